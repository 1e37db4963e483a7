//! What do we remember of upgrades?
//!
//! What others say of theirs, what refused to be read, and when versions changed under our eyes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::detector::{Detector, Off};
use super::stamp;
use crate::facts::{Check, Name, Node, Signal, SignalFact};
use crate::nhc::StatusCondition;
use crate::reasons;
use crate::time::{Clock, Mono, Now, Wall};

/// How long a change of versions means that an upgrade goes on: a node takes some minutes to be drained, upgraded and
/// rebooted, so the next one follows well within this.
pub const FOLLOWS_WITHIN: Duration = Duration::from_secs(30 * 60);
/// What refused is tried again, soon at first: the rights may be on their way. Then so rarely that nobody notices.
const AGAIN_MIN: Duration = Duration::from_secs(15);
pub const AGAIN_MAX: Duration = Duration::from_secs(20 * 60);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signals {
    said: BTreeMap<(Signal, Name), Said>,
    refusals: BTreeMap<Detector, Refusal>,
    /// The last change of each node's kubelet, for as long as it matters.
    kubelets: BTreeMap<Name, (Box<str>, Change)>,
    pub server: Option<Server>,
    /// What the conditions of the checks tell of changes that we, or who led before us, saw.
    recalled: BTreeMap<Name, Recalled>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Said {
    pub fact: SignalFact,
    /// When it ends by itself.
    pub ends_at: Option<Mono>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub off: Off,
    pub again_at: Mono,
    tries: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub version: Name,
    pub heard_at: Mono,
    /// It answered before, and says no by now.
    pub refused: bool,
    pub changed: Option<Change>,
}

/// A version became another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub at: Mono,
    pub wall: Wall,
    /// None: a condition tells of it.
    pub versions: Option<(Name, Name)>,
}

impl Change {
    pub fn until(&self) -> Mono {
        self.at.after(FOLLOWS_WITHIN)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Recalled {
    kubelets: Option<Change>,
    server: Option<Change>,
}

/// Before the instants in the message of the condition `Upgrading`.
pub const KUBELETS_CHANGED: &str = "; last change of a kubelet's version: ";
pub const SERVER_CHANGED: &str = "; last change of the server's version: ";

impl Signals {
    pub fn said(&self, signal: Signal) -> impl Iterator<Item = (&Name, &Said)> {
        self.said.iter().filter(move |((own, _), _)| *own == signal).map(|((_, name), said)| (name, said))
    }

    pub fn refusal(&self, detector: Detector) -> Option<&Refusal> {
        self.refusals.get(&detector)
    }

    /// The last change that matters for this node.
    pub fn kubelet_change(&self, node: &Node) -> Option<&Change> {
        self.kubelets.get(&node.name).filter(|(uid, _)| *uid == node.uid).map(|(_, change)| change)
    }

    pub fn no_kubelet_changed(&self) -> bool {
        self.kubelets.is_empty()
    }

    pub fn recalled_kubelets(&self, check: &Check) -> Option<&Change> {
        self.recalled.get(&check.name)?.kubelets.as_ref()
    }

    pub fn recalled_server(&self, check: &Check) -> Option<&Change> {
        self.recalled.get(&check.name)?.server.as_ref()
    }

    pub fn names(&self, signal: Signal) -> impl Iterator<Item = Name> {
        self.said(signal).map(|(name, _)| name.clone())
    }

    pub fn says(&mut self, signal: Signal, name: Name, fact: SignalFact, clock: &Clock, now: Now) -> bool {
        let key = (signal, name);
        // What says the same keeps the instant at which it ends, whatever the wall clock does.
        if self.said.get(&key).is_some_and(|said| said.fact == fact) {
            return false;
        }
        let ends_at = match &fact {
            SignalFact::Busy { lasts: Some((since, lasts_for)), .. } => Some(clock.anchor(*since, now).after(*lasts_for)),
            SignalFact::Busy { lasts: None, .. } | SignalFact::Quiet => None,
        };
        self.said.insert(key, Said { fact, ends_at });
        true
    }

    pub fn gone(&mut self, signal: Signal, name: &Name) -> bool {
        self.said.remove(&(signal, name.clone())).is_some()
    }

    pub fn forget(&mut self, signal: Signal) {
        self.said.retain(|(own, _), _| *own != signal);
    }

    pub fn listed(&mut self, signal: Signal) {
        self.refusals.remove(&signal.detector());
    }

    pub fn refused(&mut self, detector: Detector, off: Off, now: Mono) {
        let tries = self.refusals.get(&detector).map_or(0, |refusal| refusal.tries);
        let pause = AGAIN_MIN.saturating_mul(1 << tries.min(16)).min(AGAIN_MAX);
        self.refusals.insert(detector, Refusal { off, again_at: now.after(pause), tries: tries + 1 });
    }

    /// The same node, so no other machine that happens to have another version.
    pub fn kubelet_seen(&mut self, before: &Node, after: &Node, now: Now) {
        let (from, to) = (&before.kubelet_version, &after.kubelet_version);
        if before.uid != after.uid || from == to || from.is_empty() || to.is_empty() {
            return;
        }
        self.kubelets.retain(|_, (_, change)| now.mono < change.until());
        let versions = Some((Name::from(&**from), Name::from(&**to)));
        let change = Change { at: now.mono, wall: now.wall.whole_seconds(), versions };
        self.kubelets.insert(after.name.clone(), (after.uid.clone(), change));
    }

    pub fn server_seen(&mut self, version: Name, now: Now) -> bool {
        self.refusals.remove(&Detector::ServerVersion);
        let changed = match &self.server {
            Some(server) if server.version != version => {
                let versions = Some((server.version.clone(), version.clone()));
                Some(Change { at: now.mono, wall: now.wall.whole_seconds(), versions })
            }
            Some(server) => server.changed.clone(),
            None => None,
        };
        self.server = Some(Server { version, heard_at: now.mono, refused: false, changed });
        true
    }

    pub fn server_refused(&mut self, off: Off, now: Mono) {
        match &mut self.server {
            Some(server) => server.refused = true,
            None => self.refused(Detector::ServerVersion, off, now),
        }
    }

    /// An instant is anchored once: one from the future begins to count when it is first seen, and ends.
    pub fn recall(&mut self, check: &Check, clock: &Clock, now: Now) {
        let is_told = |condition: &&StatusCondition| {
            &*condition.kind == reasons::UPGRADING && condition.status == crate::facts::Status::True
        };
        let Some(condition) = check.status.conditions.iter().find(is_told) else {
            self.recalled.remove(&check.name);
            return;
        };
        let known = self.recalled.remove(&check.name).unwrap_or_default();
        let change = |mark: &str, reason: &str, known: Option<Change>| {
            // Without an instant that can be read, the condition itself has one.
            let fallback = (&*condition.reason == reason).then_some(condition.since);
            let wall = instant_after(mark, &condition.message).or(fallback)?;
            let fresh = || Change { at: clock.anchor(wall, now), wall, versions: None };
            Some(known.filter(|known| known.wall == wall).unwrap_or_else(fresh))
        };
        let recalled = Recalled {
            kubelets: change(KUBELETS_CHANGED, reasons::UPGRADING_KUBELETS, known.kubelets),
            server: change(SERVER_CHANGED, reasons::UPGRADING_SERVER, known.server),
        };
        self.recalled.insert(check.name.clone(), recalled);
    }

    pub fn forget_check(&mut self, check: &str) {
        self.recalled.remove(check);
    }
}

fn instant_after(mark: &str, message: &str) -> Option<Wall> {
    let (_, rest) = message.split_once(mark)?;
    stamp::read(rest.split(';').next()?)
}
