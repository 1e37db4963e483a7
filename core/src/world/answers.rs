//! What changes when a request is answered?

use std::collections::BTreeMap;

use super::{STALE_AFTER, World};
use crate::default_check::DefaultCheck;
use crate::effect::EffectKey;
use crate::facts::{Name, Signal, Source};
use crate::input::{Answer, Fact};
use crate::time::{Mono, Now};
use crate::upgrade::Off;

/// An event that cannot be written must not keep the status from being written.
const EVENT_TRIES_MAX: u32 = 3;
/// A check whose status can never be written must not fill the memory: what is forgotten is sent once more, under the
/// same name, and refused as existing.
const SETTLED_MAX: usize = 1000;

impl World {
    pub(super) fn answered(&mut self, key: EffectKey, answer: Answer, now: Now) -> bool {
        let Some(sent_at) = self.flights.answered(&key, &answer, now.mono) else { return false };
        match (key, answer) {
            (EffectKey::Look(name), Answer::Done(Some(Fact::Node(node)))) if self.nodes.contains_key(&name) => {
                // While a list is under way its older news may follow: what the look shows is taken in, but does not count.
                self.node_seen(node, now);
                self.looks.retain(|_, looked_at| now.mono.since(*looked_at) < STALE_AFTER);
                if !self.is_listing(&Source::Nodes) {
                    self.looks.insert(name, sent_at);
                }
            }
            // The watch will tell that the node is gone; until then it is left alone.
            (EffectKey::Look(_), _) => {}
            (EffectKey::Create(key), _) if self.objects.contains_key(&key) => self.flights.resolved(&EffectKey::Create(key)),
            (EffectKey::Create(_), _) => {}
            (EffectKey::Delete(key, uid), _) => {
                if self.objects.get(&key).is_none_or(|object| object.uid != uid) {
                    self.flights.resolved(&EffectKey::Delete(key, uid));
                }
            }
            (EffectKey::Read(key), Answer::Done(_)) => self.flights.confirmed(&EffectKey::Create(key), now.mono),
            (EffectKey::Read(key), Answer::Missing) => self.flights.denied(&EffectKey::Create(key), now.mono),
            (EffectKey::Read(_), _) => {}
            (EffectKey::HoldNode(_), Answer::Missing) => self.lease_namespace_missing = true,
            // Where we may not make it somebody else has to; whether they have, the next Lease tells.
            (EffectKey::LeaseNamespace, Answer::Done(_) | Answer::Exists | Answer::Refused { forbidden: true, .. }) => {
                self.lease_namespace_missing = false;
            }
            // First the patch is refused; then, if that is no better, the update.
            (EffectKey::Mark(key, ..), Answer::Refused { forbidden: true, .. }) => {
                if !self.unpatchable.insert(key.kind.clone()) {
                    self.unwritable.insert(key.kind);
                }
            }
            (EffectKey::FindMachine(node), Answer::Done(Some(Fact::Machine { uid }))) => {
                self.machine_found(node, Some(uid), sent_at, now);
            }
            (EffectKey::FindMachine(node), Answer::Missing) => self.machine_found(node, None, sent_at, now),
            (EffectKey::FindMachine(_), _) => {}
            (EffectKey::Fetch(_), Answer::Done(Some(fact @ Fact::Whole { .. }))) => {
                self.seen(fact, now);
            }
            (EffectKey::Fetch(_), _) => {}
            (EffectKey::Mark(..) | EffectKey::Unconfirm(_) | EffectKey::HoldNode(_) | EffectKey::ReleaseNode(_), _)
            | (EffectKey::LeaseNamespace, _) => {}
            (EffectKey::DefaultTemplate, Answer::Done(_) | Answer::Exists) => self.default_check = DefaultCheck::Check,
            (EffectKey::DefaultCheck, Answer::Done(_) | Answer::Exists) => self.default_check = DefaultCheck::Settled,
            (EffectKey::DefaultTemplate | EffectKey::DefaultCheck, _) => {}
            (EffectKey::Discover(_), Answer::Done(Some(fact @ Fact::Kinds { .. }))) => {
                self.seen(fact, now);
            }
            (EffectKey::Discover(api_version), Answer::Missing) => {
                self.kinds_found(api_version, BTreeMap::new(), now.mono);
            }
            // For good, that is: not merely because it has too much to do.
            (EffectKey::Discover(api_version), Answer::Refused { forbidden: true, .. }) => {
                let is_asked = |signal: &Signal| signal.kind().is_some_and(|kind| kind.api_version == api_version);
                if let Some(signal) = Signal::ALL.into_iter().find(is_asked) {
                    self.signals.refused(signal.detector(), Off::NotReadable, now.mono);
                }
            }
            (EffectKey::Discover(_), _) => {}
            (EffectKey::ServerVersion, Answer::Done(Some(fact @ Fact::Server { .. }))) => {
                self.seen(fact, now);
            }
            (EffectKey::ServerVersion, Answer::Missing) => self.signals.server_refused(Off::NotInstalled, now.mono),
            (EffectKey::ServerVersion, Answer::Refused { forbidden: true, .. }) => {
                self.signals.server_refused(Off::NotReadable, now.mono);
            }
            (EffectKey::ServerVersion, _) => {}
            (EffectKey::Emit(check, event), answer) => self.settle(check, event, &answer),
            (EffectKey::Status(_), Answer::Done(Some(Fact::Check(check)))) => {
                if self.checks.get(&check.name).is_some_and(|known| known.uid == check.uid) {
                    self.settled.remove(&check.name);
                    if let Some(sent) = self.status_sent.get_mut(&check.name) {
                        sent.stored = true;
                        // Those that came and went while it was on its way are told of with the next one.
                        let told = std::mem::take(&mut sent.briefs);
                        if let Some(briefs) = self.brief.get_mut(&check.name) {
                            briefs.drain(..told.min(briefs.len()));
                        }
                    }
                    self.check_seen(check, now);
                }
            }
            (EffectKey::Status(_), _) | (EffectKey::Lease, _) => {}
        }
        true
    }

    fn machine_found(&mut self, node: Name, uid: Option<Name>, sent_at: Mono, now: Now) {
        self.machines.retain(|_, (at, _)| now.mono.since(*at) < STALE_AFTER);
        self.machines.insert(node, (sent_at, uid));
    }

    pub(super) fn settle(&mut self, check: Name, event: Name, answer: &Answer) {
        let key = EffectKey::Emit(check.clone(), event.clone());
        let settled = match answer {
            Answer::Done(_) | Answer::Exists | Answer::Missing | Answer::Conflict => true,
            Answer::Refused { retry_after, .. } => retry_after.is_none() || self.flights.tries(&key) >= EVENT_TRIES_MAX,
            Answer::Unsure { .. } => self.flights.tries(&key) >= EVENT_TRIES_MAX,
        };
        if !settled || !self.checks.contains_key(&check) {
            return;
        }
        let events = self.settled.entry(check).or_default();
        if events.len() >= SETTLED_MAX {
            events.clear();
        }
        events.insert(event);
    }
}
