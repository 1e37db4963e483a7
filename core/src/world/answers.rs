//! What changes when a request is answered?

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MachineOfNode, STALE_AFTER, World};
use crate::default_check::DefaultCheck;
use crate::effect::EffectKey;
use crate::facts::{Name, Node, ObjectKey, Signal, Source};
use crate::health::News;
use crate::input::{Answer, Fact};
use crate::mhc::facts::{ClusterKey, MACHINE_KIND, Machine, Style};
use crate::mhc::identity::Found;
use crate::pause::NAMESPACE_KIND;
use crate::time::{Mono, Now};
use crate::upgrade::Off;

/// An event that cannot be written must not keep the status from being written.
const EVENT_TRIES_MAX: u32 = 3;
/// A check whose status can never be written must not fill the memory: what is forgotten is sent once more, under the
/// same name, and refused as existing.
const SETTLED_MAX: usize = 1000;
/// Roles are changed by people, who look whether it helped.
const PATCH_AGAIN_AFTER: Duration = Duration::from_secs(600);

impl World {
    pub(super) fn answered(&mut self, key: EffectKey, answer: Answer, now: Now) -> bool {
        let Some(sent_at) = self.flights.answered(&key, &answer, now.mono) else { return false };
        match (key, answer) {
            (EffectKey::Look(cluster, name), Answer::Done(Some(Fact::Node(node)))) => {
                self.looked(cluster, name, Some(node), sent_at, now);
            }
            (EffectKey::Look(cluster, name), Answer::Missing) => self.looked(cluster, name, None, sent_at, now),
            (EffectKey::Look(..), _) => {}
            (EffectKey::Identify(cluster), answer) => {
                let found = match answer {
                    Answer::Done(Some(Fact::Identity { uid })) => Found::Uid(uid),
                    Answer::Missing => Found::Missing,
                    Answer::Refused { forbidden: true, .. } => Found::Forbidden,
                    Answer::Done(_) | Answer::Exists | Answer::Conflict | Answer::Refused { .. } | Answer::Unsure { .. } => {
                        return true;
                    }
                };
                self.fleet.identified(&cluster, found, sent_at, now.mono);
            }
            (EffectKey::LookMachine(place), Answer::Done(Some(Fact::Machine(machine)))) => {
                if self.fleet.machines.contains_key(&place) {
                    let listing = self.is_listing(&Source::Machines(machine.dialect));
                    self.machine_seen(machine, false, now);
                    self.fleet.looks.retain(|_, looked_at| now.mono.since(*looked_at) < STALE_AFTER);
                    if !listing {
                        self.fleet.looks.insert(place, sent_at);
                    }
                }
            }
            (EffectKey::LookMachine(_), _) => {}
            (EffectKey::Sign(place), answer) => {
                let wrote_new = self.fleet.wrote_new.remove(&place);
                let key = EffectKey::Sign(place);
                match answer {
                    Answer::Done(fact) => {
                        self.fleet.done(&key);
                        if let Some(Fact::Machine(machine)) = fact {
                            self.signed(machine, wrote_new, now);
                        }
                    }
                    Answer::Exists | Answer::Missing | Answer::Conflict | Answer::Refused { .. } | Answer::Unsure { .. } => {
                        self.fleet.refused(&key);
                    }
                }
            }
            (EffectKey::PowerCycle(place), Answer::Done(fact)) => {
                let key = EffectKey::PowerCycle(place.clone());
                self.fleet.done(&key);
                // The watch may have shown it before the answer came, and does not show it again.
                let is_shown = match (self.fleet.machines.get(&place), fact) {
                    (None, _) => true,
                    (Some(known), Some(Fact::Machine(after))) => !known.version.is_older_than(&after.version),
                    (Some(_), _) => false,
                };
                if is_shown {
                    self.flights.resolved(&key);
                }
            }
            (key @ EffectKey::DeleteMachine(_), Answer::Done(_)) => self.fleet.done(&key),
            (key @ (EffectKey::PowerCycle(_) | EffectKey::DeleteMachine(_)), _) => self.fleet.refused(&key),
            (EffectKey::MachineCheckStatus(_), Answer::Done(Some(Fact::MachineCheck(check)))) => {
                if self.fleet.checks.get(&check.place).is_some_and(|known| known.uid == check.uid) {
                    self.settled.remove(&check.key());
                    if let Some(sent) = self.status_sent.get_mut(&check.key()) {
                        sent.stored = true;
                    }
                    // Whatever is written of the new style, RemediationAllowed is part of it.
                    if check.dialect.styles().contains(&Style::New) && check.status.new.is_empty() {
                        self.fleet.drops_new.insert(check.dialect);
                    }
                    self.machine_check_seen(check, false);
                }
            }
            (EffectKey::Tie(_), Answer::Done(Some(Fact::MachineCheck(check)))) => {
                if self.fleet.checks.get(&check.place).is_some_and(|known| known.uid == check.uid) {
                    self.machine_check_seen(check, false);
                }
            }
            (EffectKey::MachineCheckStatus(_) | EffectKey::Tie(_), _) => {}
            (EffectKey::Create(key), Answer::Done(_)) => {
                self.fleet.done(&EffectKey::Create(key.clone()));
                if self.objects.contains_key(&key) {
                    self.flights.resolved(&EffectKey::Create(key));
                }
            }
            (EffectKey::Create(key), _) if self.objects.contains_key(&key) => self.flights.resolved(&EffectKey::Create(key)),
            (EffectKey::Create(_), _) => {}
            (EffectKey::Delete(key, uid), answer) => {
                let effect = EffectKey::Delete(key.clone(), uid.clone());
                match answer {
                    Answer::Done(_) => self.fleet.done(&effect),
                    _ => self.fleet.refused(&effect),
                }
                if self.objects.get(&key).is_none_or(|object| object.uid != uid) {
                    self.flights.resolved(&EffectKey::Delete(key, uid));
                }
            }
            (EffectKey::Read(key), Answer::Done(_)) => self.flights.confirmed(&EffectKey::Create(key), now.mono),
            (EffectKey::Read(key), Answer::Missing) => self.flights.denied(&EffectKey::Create(key), now.mono),
            (EffectKey::Read(_), _) => {}
            (EffectKey::HoldNode(_), Answer::Missing) => self.lease_namespace_missing = true,
            (EffectKey::LeaseNamespace, Answer::Done(_) | Answer::Exists) => {
                self.lease_namespace_missing = false;
                self.flights.release_holds();
            }
            // Where we may not make it somebody else has to; whether they have, the next Lease tells.
            (EffectKey::LeaseNamespace, Answer::Refused { forbidden: true, .. }) => self.lease_namespace_missing = false,
            // First the patch is refused; then, if that is no better, the update.
            (EffectKey::Mark(key, ..), Answer::Refused { forbidden: true, .. }) => {
                match self.is_unpatchable(&key.kind, sent_at) {
                    false => drop(self.unpatchable.insert(key.kind, now.mono.after(PATCH_AGAIN_AFTER))),
                    true => drop(self.unwritable.insert(key.kind)),
                }
            }
            (EffectKey::Mark(key, ..), Answer::Done(_)) => {
                if !self.is_unpatchable(&key.kind, sent_at) {
                    self.unpatchable.remove(&key.kind);
                }
                self.unwritable.remove(&key.kind);
            }
            (EffectKey::FindMachine { node, namespace, name }, Answer::Done(Some(Fact::MachineOfNode { uid, node: named }))) => {
                let found = match named {
                    Some(named) if named == node => MachineOfNode::Own { uid },
                    named => MachineOfNode::OfAnother { node: named },
                };
                self.machine_found((node, namespace, name), found, sent_at, now);
            }
            (EffectKey::FindMachine { node, namespace, name }, Answer::Missing) => {
                self.machine_found((node, namespace, name), MachineOfNode::Missing, sent_at, now);
            }
            (EffectKey::FindMachine { .. }, _) => {}
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
            (EffectKey::Emit(about, event), answer) => self.settle(about, event, &answer),
            (EffectKey::Status(_), Answer::Done(Some(Fact::Check(check)))) => {
                if self.checks.get(&check.name).is_some_and(|known| known.uid == check.uid) {
                    self.settled.remove(&check.key());
                    if let Some(sent) = self.status_sent.get_mut(&check.key()) {
                        sent.stored = true;
                        // Those that came and went while it was on its way are told of with the next one.
                        let told = std::mem::take(&mut sent.briefs);
                        if let Some(briefs) = self.brief.get_mut(&check.name) {
                            briefs.drain(..told.min(briefs.len()));
                        }
                    }
                    self.check_seen(check, false, now);
                }
            }
            (EffectKey::Status(_), _) | (EffectKey::Lease, _) => {}
        }
        true
    }

    /// The node was asked for, plainly. Whether a node that the watch does not show is really there, the watch will tell; until
    /// then it is left alone.
    fn looked(&mut self, cluster: Option<ClusterKey>, name: Name, found: Option<Node>, sent_at: Mono, now: Now) {
        let source = cluster.clone().map_or(Source::Nodes, Source::RemoteNodes);
        let is_there = found.is_some();
        // While a list is under way its older news may follow: what the look shows is taken in, but does not count.
        let listing = self.is_listing(&source);
        let news = News::Asked { fresh: !listing && self.is_up_to_date(&source, now.mono) };
        match (found, &cluster) {
            (Some(node), None) if self.nodes.contains_key(&name) => {
                self.node_seen(node, news, now);
            }
            (Some(node), Some(cluster)) => {
                if let Some(region) = self.fleet.regions.get_mut(cluster).filter(|region| region.nodes.contains_key(&name)) {
                    region.take_in(node, news, now);
                }
            }
            (Some(_), None) | (None, _) => {}
        }
        self.looks.retain(|_, (looked_at, _)| now.mono.since(*looked_at) < STALE_AFTER);
        if !listing {
            self.looks.insert((cluster, name), (sent_at, is_there));
        }
    }

    /// A Machine as it is after we wrote on it. Where a condition of the new style did not stay, there is no such style.
    fn signed(&mut self, machine: Machine, wrote_new: bool, now: Now) {
        if wrote_new && machine.board(Style::New).is_none_or(|board| board.missing > 0) {
            self.fleet.drops_new.insert(machine.dialect);
        }
        if self.fleet.machines.get(&machine.place).is_some_and(|known| known.uid == machine.uid) {
            self.machine_seen(machine, false, now);
        }
    }

    fn machine_found(&mut self, asked: (Name, Name, Name), found: MachineOfNode, sent_at: Mono, now: Now) {
        self.machines.retain(|_, (at, _)| now.mono.since(*at) < STALE_AFTER);
        self.machines.insert(asked, (sent_at, found));
    }

    pub(super) fn settle(&mut self, about: ObjectKey, event: Name, answer: &Answer) {
        let key = EffectKey::Emit(about.clone(), event.clone());
        let settled = match answer {
            Answer::Done(_) | Answer::Exists | Answer::Missing | Answer::Conflict => true,
            Answer::Refused { retry_after, .. } => retry_after.is_none() || self.flights.tries(&key) >= EVENT_TRIES_MAX,
            Answer::Unsure { .. } => self.flights.tries(&key) >= EVENT_TRIES_MAX,
        };
        if !settled {
            return;
        }
        self.fleet.told(&about, &event);
        // Of machines and of our namespace no status tells that it has been told.
        if [MACHINE_KIND, NAMESPACE_KIND].contains(&&*about.kind.kind) {
            return;
        }
        let events = self.settled.entry(about).or_default();
        if events.len() >= SETTLED_MAX {
            events.clear();
        }
        events.insert(event);
    }
}
