//! How is a repair carried forward?
//!
//! Step by step, the same for nodes and machines: what is under way is waited for, what was refused is tried again later, and
//! nothing starts before its target has been asked for once more, plainly. What is not done yet is said by an [`Outcome`].

use std::ops::ControlFlow;
use std::time::Duration;

use super::Draft;
use crate::decision::{Because, Outcome};
use crate::effect::{Creation, Effect, EffectKey, Owner};
use crate::escalate::Workshop;
use crate::event::Event;
use crate::facts::{Kind, Name, Object, ObjectKey};
use crate::flight::{Clearance, Flight};
use crate::mhc::facts::ClusterKey;
use crate::time::Mono;

/// May the attempt go on? Break: not now, and this is said meanwhile.
pub(super) type Clear<T = ()> = ControlFlow<Outcome, T>;

/// A look that was sent longer ago no longer justifies a start.
pub(super) const LOOK_VALID_FOR: Duration = Duration::from_secs(5);

/// What became of the wish to delete a remediation.
pub(super) enum Deletion {
    Sent,
    /// Too many other requests are under way.
    Queued,
    KindNotServed,
}

impl Draft<'_> {
    /// Nothing of this name is being made, was refused a moment ago, or is removed by others again and again.
    pub(super) fn clear_to_create(&mut self, key: &ObjectKey) -> Clear {
        self.minded.insert(key.clone());
        let (create, creating) = (EffectKey::Create(key.clone()), Because::Creating { key: key.clone() });
        if let Some(Flight::Stored { .. } | Flight::Exists { .. }) = self.world.flights.get(&create) {
            self.find_out_key(key);
            return Clear::Break(Outcome::start(creating));
        }
        self.clear_to_send(&create, key, creating)?;
        match self.world.removed_by_others(key).filter(|(_, again_at)| *again_at > self.now.mono) {
            Some((times, again_at)) => {
                self.wake(Some(again_at));
                Clear::Break(Outcome::wait(Because::Removed { key: key.clone(), times }))
            }
            None => Clear::Continue(()),
        }
    }

    /// `about` is what the request changes or makes, `doing` what is said while it is under way.
    pub(super) fn clear_to_send(&mut self, request: &EffectKey, about: &ObjectKey, doing: Because) -> Clear {
        match (self.world.flights.get(request), self.world.flights.clearance(request, self.now.mono)) {
            (_, Clearance::Go) => Clear::Continue(()),
            (_, Clearance::UnderWay) => Clear::Break(Outcome::start(doing)),
            (flight, Clearance::NotBefore(at)) => {
                self.wake(Some(at));
                Clear::Break(refused(flight, about).map_or_else(|| Outcome::start(doing), Outcome::wait))
            }
        }
    }

    /// Where an answer was lost, or the watch does not show what was stored, the server is asked.
    pub(super) fn find_out_key(&mut self, key: &ObjectKey) {
        self.minded.insert(key.clone());
        let Some(served) = self.world.served(&key.kind) else { return };
        match self.world.flights.clearance(&EffectKey::Create(key.clone()), self.now.mono) {
            Clearance::Go => {
                self.send(Effect::Read { key: key.clone(), plural: served.plural.clone() });
            }
            Clearance::NotBefore(at) => self.wake(Some(at)),
            Clearance::UnderWay => {}
        }
    }

    /// Did a look at the node, asked for after its time was over, show that it is there, or that it is not?
    pub(super) fn has_looked(&self, cluster: Option<&ClusterKey>, node: &Name, is_there: bool, due_at: Mono) -> bool {
        self.world.looked_at(cluster, node, is_there).is_some_and(|at| self.justifies(at, due_at))
    }

    /// Does a look that was sent at this instant justify to start what is due since then?
    pub(super) fn justifies(&self, looked_at: Mono, due_at: Mono) -> bool {
        looked_at >= due_at && self.now.mono.since(looked_at) <= LOOK_VALID_FOR
    }

    /// Why a look at the node was not answered, if the server said so.
    pub(super) fn refused_look(&self, cluster: Option<&ClusterKey>, node: &Name) -> Option<Because> {
        let why = self.world.flights.refusal(&EffectKey::Look(cluster.cloned(), node.clone()))?.clone();
        let kind = Kind { api_version: "v1".into(), kind: "Node".into() };
        Some(Because::LookRefused { key: ObjectKey { kind, namespace: None, name: node.clone() }, why })
    }

    /// Makes a remediation from a template. False if too many other requests are under way.
    pub(super) fn create(&mut self, workshop: &Workshop, key: &ObjectKey, owner: Owner) -> bool {
        self.send(Effect::Create(Creation {
            key: key.clone(),
            plural: workshop.served.plural.clone(),
            body: workshop.body.clone(),
            template: workshop.template.key.name.clone(),
            owner,
        }))
    }

    /// As long as it is the one that we know.
    pub(super) fn delete(&mut self, object: &Object, tells: Vec<Event>) -> Deletion {
        let Some(served) = self.world.served(&object.key.kind) else { return Deletion::KindNotServed };
        let (key, plural, uid) = (object.key.clone(), served.plural.clone(), object.uid.clone());
        match self.send(Effect::Delete { key, plural, uid, tells }) {
            true => Deletion::Sent,
            false => Deletion::Queued,
        }
    }
}

/// Why the server did not do it, if that is what it said.
pub(super) fn refused(flight: Option<&Flight>, about: &ObjectKey) -> Option<Because> {
    match flight? {
        Flight::Refused { why, busy, .. } => Some(Because::Refused { key: about.clone(), why: why.clone(), busy: *busy }),
        Flight::Sent { .. } | Flight::Stored { .. } | Flight::Exists { .. } | Flight::Unsure { .. } => None,
    }
}
