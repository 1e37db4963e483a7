//! Is everything paused?
//!
//! One switch for all checks: the annotation `resus.dev/pause` on the namespace where resus is installed. What is over is
//! cleaned up all the same. Nothing starts before we have heard of the namespace, nor while we cannot.

use crate::decision::Because;
use crate::event::Event;
use crate::facts::{Kind, Name, ObjectKey, OwnNamespace, Source};
use crate::reasons;
use crate::time::{Mono, Wall};
use crate::world::World;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pause {
    /// None: there is no such namespace, so that nobody can have paused anything.
    seen: Option<OwnNamespace>,
    /// We may not look.
    pub forbidden: bool,
    /// The namespace as it was when we last told people that everything is paused; none: that it is not.
    told: Option<OwnNamespace>,
}

impl World {
    /// Why nothing may start under any check.
    pub fn paused(&self, now: Mono) -> Option<Because> {
        let namespace = || self.namespace.clone();
        if self.pause.forbidden {
            return Some(Because::PauseUnknown { namespace: namespace() });
        }
        if !self.is_fresh(&Source::OwnNamespace, now) {
            return Some(Because::Stale { source: Source::OwnNamespace });
        }
        self.pause.reason().map(|reason| Because::AllPaused { namespace: namespace(), reason: reason.clone() })
    }

    /// That everything is paused, or no longer, is told once, by whoever leads.
    pub(crate) fn tell_pause(&mut self, now: Mono, at: Wall) {
        if self.election.leads(now) {
            let event = self.pause.news(&self.namespace, at);
            self.fleet.tell(event);
        }
    }
}

impl Pause {
    pub fn reason(&self) -> Option<&Name> {
        self.seen.as_ref()?.pause.as_ref()
    }

    pub fn exists(&self) -> bool {
        self.seen.is_some()
    }

    pub fn seen(&mut self, namespace: OwnNamespace) -> bool {
        let changed = self.reason() != namespace.pause.as_ref();
        // As long as it says the same, what people are told of it has the same name.
        if changed || self.seen.is_none() {
            self.seen = Some(namespace);
        }
        changed
    }

    pub fn gone(&mut self) -> bool {
        self.seen.take().is_some_and(|namespace| namespace.pause.is_some())
    }

    fn news(&mut self, name: &Name, at: Wall) -> Option<Event> {
        let kind = Kind { api_version: "v1".into(), kind: NAMESPACE_KIND.into() };
        let about = ObjectKey { kind, namespace: None, name: name.clone() };
        let now = self.seen.clone().filter(|namespace| namespace.pause.is_some());
        let event = |of: &OwnNamespace, event, text: &str| Event::new(about, &of.uid, event, &of.version.0, text, at);
        let event = match (&now, &self.told) {
            (Some(paused), told) if told.as_ref().and_then(|told| told.pause.as_ref()) != paused.pause.as_ref() => {
                let reason = paused.pause.as_deref().unwrap_or_default();
                event(paused, reasons::EVENT_PAUSED, &format!("nothing new is started under any check: {reason}"))
            }
            (None, Some(told)) => event(self.seen.as_ref().unwrap_or(told), reasons::EVENT_RESUMED, "everything goes on"),
            (Some(_) | None, _) => return None,
        };
        self.told = now;
        Some(event)
    }
}

pub const NAMESPACE_KIND: &str = "Namespace";
