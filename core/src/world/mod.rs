//! What do we know, all together?
//!
//! Inputs change it, one at a time; nothing else does. An input that changes no fact says so, and then
//! nothing is planned anew: a heartbeat costs its decoding and one comparison.

mod answers;
mod hear;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::hear::{CHECK_DEFINITION, CLUSTER_DEFINITION, MACHINE_CHECK_DEFINITIONS};
use crate::default_check::DefaultCheck;
use crate::effect::{Change, Effect, EffectKey, Owner, Signing};
use crate::etcd::Etcd;
use crate::facts::{
    Budget, Check, Claim, DEFAULT_NAMESPACE, Guard, Kind, Limit, Name, NodeLease, Object, ObjectKey, Rival, Served, Source,
};
use crate::flight::{Flights, backoff};
use crate::health::Known;
use crate::input::Input;
use crate::lease::Election;
use crate::mhc::facts::{ClusterKey, Dialect, Flavour, MachineCheck, Style};
use crate::mhc::fleet::Fleet;
use crate::nhc::Remediation;
use crate::pause::Pause;
use crate::rival::{Homes, Rivals};
use crate::time::{Clock, Mono, Now};
use crate::upgrade::{Detectors, Signals};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub clock: Clock,
    /// Where resus is installed.
    pub namespace: Name,
    pub election: Election,
    /// Of NodeHealthChecks and of MachineHealthChecks.
    claim: Claim,
    pub machine_claim: Claim,
    pub limit: Limit,
    pub detectors: Detectors,
    pub homes: Homes,
    pub default_check: DefaultCheck,
    /// What is known of upgrades.
    pub signals: Signals,
    /// The definitions of checks that there are, and whether each is ours.
    definitions: BTreeMap<Name, bool>,
    pub nodes: BTreeMap<Name, Known>,
    pub checks: BTreeMap<Name, Check>,
    /// Templates and remediations.
    pub objects: BTreeMap<ObjectKey, Object>,
    /// Leases on nodes, by their own names.
    pub node_leases: BTreeMap<Name, NodeLease>,
    /// The namespace for leases on nodes does not exist: a Lease could not be made there.
    pub lease_namespace_missing: bool,
    pub pause: Pause,
    pub etcd: Etcd,
    /// OpenShift's guards of etcd.
    pub budgets: BTreeMap<Name, Budget>,
    pub guards: BTreeMap<Name, Guard>,
    pub rivals: BTreeMap<Rival, Rivals>,
    /// Named like those of another controller, but elsewhere than one is at home: they change nothing.
    strays: BTreeMap<Source, BTreeSet<Name>>,
    /// Machines, and what goes with them.
    pub fleet: Fleet,
    feeds: BTreeMap<Source, Feed>,
    /// By API group and version.
    pub kinds: BTreeMap<Name, Kinds>,
    pub flights: Flights,
    /// When the last answered look at a node was sent, and whether it was there.
    looks: BTreeMap<(Option<ClusterKey>, Name), (Mono, bool)>,
    /// What each node names as its Machine, and when we asked.
    machines: BTreeMap<(Name, Name, Name), (Mono, MachineOfNode)>,
    /// Events that need no further attempt, by check, until the status that goes with them is written.
    settled: BTreeMap<ObjectKey, BTreeSet<Name>>,
    status_sent: BTreeMap<ObjectKey, StatusSent>,
    /// For whom each creation that is under way, or may have happened, was sent.
    creations: BTreeMap<ObjectKey, Creating>,
    /// Namespaces of what NodeHealthChecks make.
    workplaces: BTreeSet<Name>,
    /// How often somebody else removed what we created, and when last.
    removals: BTreeMap<ObjectKey, (u32, Mono)>,
    /// Nodes of which nothing was ever readable but the name, with why.
    unreadable: BTreeMap<Name, Name>,
    /// Sources that are listed now and then, as they may not be watched.
    polled: BTreeSet<Source>,
    /// Kinds that may not be patched, each until it is tried again, and those that may not be updated either.
    unpatchable: BTreeMap<Kind, Mono>,
    unwritable: BTreeSet<Kind>,
    /// Whole objects that are about to be updated, with their uids.
    wholes: BTreeMap<ObjectKey, (Name, Name)>,
    /// Remediations that came and went before the status of their check could tell, by check.
    brief: BTreeMap<Name, Vec<(Name, Remediation)>>,
}

pub const DOUBT_TOLD_AFTER: Duration = Duration::from_secs(10);
const TROUBLE_TOLD_AFTER: Duration = Duration::from_secs(30);

/// How well we hear from a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Feed {
    /// A list has been completed.
    synced: bool,
    /// The watch broke and nothing has come since.
    broken: bool,
    /// Since when, if it is.
    broken_at: Mono,
    /// Since when it has not been well for longer than a moment, if it is broken.
    unwell_since: Mono,
    heard_at: Mono,
    /// Since when nothing has been missed: the end of a list, or the first word after a break.
    fresh_since: Mono,
    /// When the list that is under way, or was the last one, began.
    lists_since: Mono,
    /// While a list is under way: what it has not shown yet.
    unseen: Option<BTreeSet<Name>>,
}

/// The Machine that a node names as its own. A kubelet may name any; whose it is, the Machine says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MachineOfNode {
    Missing,
    Own {
        uid: Name,
    },
    /// It names this node, or none.
    OfAnother {
        node: Option<Name>,
    },
}

/// A creation for a node, under a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Creating {
    pub node: Name,
    pub check: Name,
    pub check_uid: Name,
}

/// The last status that was sent for a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusSent {
    pub at: Mono,
    /// What it said, without its times; see [`crate::nhc::CheckStatus::gist`].
    pub gist: u64,
    /// The server said that it is stored.
    pub stored: bool,
    /// Of the remediations that came and went, so many had done so by then, and are told of with it.
    briefs: usize,
}

/// What an API group and version serves, and when to ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds {
    pub served: BTreeMap<Name, Served>,
    /// A definition in this group changed since we asked.
    pub changed: bool,
    pub recheck_at: Mono,
    /// After a change the server's own list takes a while to follow: ask so many times more.
    pub rechecks_left: u32,
    tries: u32,
}

/// Bookmarks come about every minute; a watch that is silent for longer than this is not trusted.
pub const STALE_AFTER: Duration = Duration::from_secs(90);

impl World {
    pub fn new(election: Election, claim: Claim) -> World {
        World {
            clock: Clock::default(),
            namespace: DEFAULT_NAMESPACE.into(),
            election,
            claim,
            machine_claim: Claim::default(),
            limit: Limit::default(),
            detectors: Detectors::default(),
            homes: Homes::default(),
            default_check: DefaultCheck::Off,
            signals: Signals::default(),
            definitions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            checks: BTreeMap::new(),
            objects: BTreeMap::new(),
            node_leases: BTreeMap::new(),
            lease_namespace_missing: false,
            pause: Pause::default(),
            etcd: Etcd::default(),
            budgets: BTreeMap::new(),
            guards: BTreeMap::new(),
            rivals: BTreeMap::new(),
            strays: BTreeMap::new(),
            fleet: Fleet::default(),
            feeds: BTreeMap::new(),
            kinds: BTreeMap::new(),
            flights: Flights::default(),
            looks: BTreeMap::new(),
            machines: BTreeMap::new(),
            settled: BTreeMap::new(),
            status_sent: BTreeMap::new(),
            creations: BTreeMap::new(),
            workplaces: BTreeSet::new(),
            removals: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            polled: BTreeSet::new(),
            unpatchable: BTreeMap::new(),
            unwritable: BTreeSet::new(),
            wholes: BTreeMap::new(),
            brief: BTreeMap::new(),
        }
    }

    /// Takes in what was learnt. False: no decision can depend on it.
    pub fn apply(&mut self, input: Input, now: Now) -> bool {
        self.clock.observe(now);
        // All that is dated from here on is dated by the server's clock.
        let (own, now) = (now, self.clock.corrected(now));
        match input {
            Input::Dated { cluster: None, date, sent_at } => {
                let before = self.clock.skew(own.mono);
                self.clock.dated(date, sent_at, own);
                before != self.clock.skew(own.mono)
            }
            Input::Dated { cluster: Some(cluster), date, sent_at } => {
                if self.fleet.access.contains_key(&cluster) {
                    self.fleet.region_mut(&cluster).clock.dated(date, sent_at, now);
                }
                false
            }
            Input::Listing(source) => self.list_begins(source, now),
            Input::Listed(source) => self.list_ends(&source, now),
            Input::Seen(fact) => self.seen(fact, now),
            Input::Gone(gone) => self.gone(gone, now),
            Input::Heard(source) => {
                let was_polled = self.polled.remove(&source);
                self.heard(&source, now) || was_polled
            }
            Input::Polled(source) => self.polled.insert(source),
            Input::Broken(source) => {
                if let Source::RemoteNodes(cluster) = &source {
                    self.fleet.may_change(cluster, now.mono);
                }
                self.broken(&source, now.mono)
            }
            Input::NotServed(source) => self.not_served(&source, now.mono),
            Input::Forbidden(source) => self.forbidden(&source, now.mono),
            Input::Stopped(source) => self.forget(&source, now.mono),
            Input::Unreadable { source, name, why } => self.unreadable(&source, &name, why, now),
            Input::NoAccess { cluster, why } => {
                self.fleet.no_access.insert(cluster, why.clone()).is_none_or(|before| before != why)
            }
            Input::TooMuch { cluster, why } => self.too_much(cluster, why, now),
            Input::Answered(key, answer) => self.answered(key, answer, now),
            Input::LeaseAnswered(answer) => {
                self.election.answered(answer, now.mono);
                self.tell_pause(now.mono, now.wall);
                true
            }
            Input::Stop => {
                self.election.stopping = true;
                true
            }
        }
    }

    /// An effect of the plan has been handed to the client.
    pub fn sent(&mut self, effect: &Effect, now: Now) {
        match effect {
            Effect::Lease(lease) => self.election.sent(lease, now.mono),
            Effect::Status { check, status, .. } => {
                let briefs = self.brief(check).len();
                let sent = StatusSent { at: now.mono, gist: status.gist(), stored: false, briefs };
                self.status_sent.extend(self.checks.get(check).map(|check| (check.key(), sent)));
                self.flights.sent(effect.key(), now.mono);
            }
            Effect::Create(creation) => {
                self.flights.sent(effect.key(), now.mono);
                match &creation.owner {
                    Owner::Check { node, check, check_uid, tells, .. } => {
                        self.fleet.sent(effect.key(), tells);
                        let creating = Creating { node: node.clone(), check: check.clone(), check_uid: check_uid.clone() };
                        self.creations.insert(creation.key.clone(), creating);
                        let World { creations, flights, .. } = self;
                        creations.retain(|key, _| flights.may_have_happened(&EffectKey::Create(key.clone())));
                    }
                    Owner::Machine { tells, .. } => self.fleet.sent(effect.key(), tells),
                }
            }
            Effect::Sign(Signing { machine, edits, tells, .. }) => {
                self.flights.sent(effect.key(), now.mono);
                self.fleet.sent(effect.key(), tells);
                if edits.iter().any(|edit| edit.style == Style::New && !matches!(edit.change, Change::Remove(_))) {
                    self.fleet.wrote_new.insert(machine.place.clone());
                }
            }
            Effect::PowerCycle { tells, .. } | Effect::DeleteMachine { tells, .. } => {
                self.flights.sent(effect.key(), now.mono);
                self.fleet.sent(effect.key(), tells);
            }
            Effect::MachineCheckStatus { check, status } => {
                let sent = StatusSent { at: now.mono, gist: status.gist(), stored: false, briefs: 0 };
                self.status_sent.extend(self.fleet.checks.get(&check.place).map(|check| (check.key(), sent)));
                self.flights.sent(effect.key(), now.mono);
            }
            Effect::Delete { tells, .. } => {
                self.flights.sent(effect.key(), now.mono);
                self.fleet.sent(effect.key(), tells);
            }
            Effect::Mark { key, whole, .. } => {
                if whole.is_some() {
                    self.wholes.remove(key);
                }
                self.flights.sent(effect.key(), now.mono);
            }
            Effect::Look { .. }
            | Effect::LookMachine { .. }
            | Effect::Identify { .. }
            | Effect::Read { .. }
            | Effect::Fetch { .. }
            | Effect::FindMachine { .. }
            | Effect::Unconfirm { .. }
            | Effect::HoldNode(_)
            | Effect::ReleaseNode { .. }
            | Effect::LeaseNamespace
            | Effect::DefaultTemplate
            | Effect::DefaultCheck(_)
            | Effect::Discover { .. }
            | Effect::ServerVersion
            | Effect::Tie(_) => self.flights.sent(effect.key(), now.mono),
            Effect::Emit(event) => {
                self.fleet.event_sent(event);
                self.flights.sent(effect.key(), now.mono);
            }
        }
    }

    /// Is this check ours to act on? What is not known yet is not.
    pub fn is_ours(&self, check: &Check) -> bool {
        self.claims(self.claim, check.take_over, CHECK_DEFINITION)
    }

    /// The same question about a MachineHealthCheck.
    pub fn is_our_machine_check(&self, check: &MachineCheck) -> bool {
        self.claims(self.machine_claim, check.take_over, machine_check_definition(check.place.flavour))
    }

    fn claims(&self, claim: Claim, take_over: bool, definition: &str) -> bool {
        match claim {
            Claim::All => true,
            Claim::Marked => take_over || self.is_defined_by_us(definition),
            Claim::Off => false,
        }
    }

    /// Are there MachineHealthChecks of this flavour? None while it is not known.
    pub fn has_machine_checks(&self, flavour: Flavour) -> Option<bool> {
        self.is_synced(&Source::Kinds).then(|| self.definitions.contains_key(machine_check_definition(flavour)))
    }

    /// Is there a kind Cluster? None while it is not known.
    pub fn has_clusters(&self) -> Option<bool> {
        self.is_synced(&Source::Kinds).then(|| self.definitions.contains_key(CLUSTER_DEFINITION))
    }

    fn is_defined_by_us(&self, definition: &str) -> bool {
        self.definitions.get(definition) == Some(&true)
    }

    /// Nobody else takes care of any check.
    pub fn owns_all_checks(&self) -> bool {
        self.claim == Claim::All || (self.claim == Claim::Marked && self.is_defined_by_us(CHECK_DEFINITION))
    }

    /// We may not look for its Lease: what nobody tells us of is not there.
    pub fn is_blind_to(&self, rival: Rival, now: Mono) -> bool {
        self.rivals.get(&rival).is_some_and(|rivals| rivals.is_unreadable(now))
    }

    /// What has the name of another controller's where none is at home.
    pub fn strays(&self) -> impl Iterator<Item = (&Source, &Name)> {
        self.strays.iter().flat_map(|(source, names)| names.iter().map(move |name| (source, name)))
    }

    /// The styles of conditions that stay when they are written.
    pub fn styles(&self, dialect: Dialect) -> &'static [Style] {
        match self.fleet.drops_new.contains(&dialect) {
            true => &[Style::Legacy],
            false => dialect.styles(),
        }
    }

    /// A list of it has begun, and it was not forgotten since.
    pub fn is_followed(&self, source: &Source) -> bool {
        self.feeds.contains_key(source)
    }

    pub fn is_synced(&self, source: &Source) -> bool {
        self.feeds.get(source).is_some_and(|feed| feed.synced)
    }

    /// Stale is a watch from its break until something comes after it, and one that has been silent too long.
    pub fn is_fresh(&self, source: &Source, now: Mono) -> bool {
        self.feeds.get(source).is_some_and(|feed| feed.synced && !feed.broken && now.since(feed.heard_at) <= STALE_AFTER)
    }

    /// How long has it not been heard of?
    pub fn age(&self, source: &Source, now: Mono) -> Option<Duration> {
        self.feeds.get(source).map(|feed| now.since(feed.heard_at))
    }

    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.feeds.keys()
    }

    pub fn served(&self, kind: &Kind) -> Option<&Served> {
        self.kinds.get(&kind.api_version)?.served.get(&kind.kind)
    }

    pub fn is_polled(&self, source: &Source) -> bool {
        self.polled.contains(source)
    }

    /// Whether marks are to be written by an update instead.
    pub fn is_unpatchable(&self, kind: &Kind, now: Mono) -> bool {
        self.unpatchable.get(kind).is_some_and(|until| now < *until)
    }

    /// A patch was refused, and none has worked since.
    pub fn is_limited(&self, kind: &Kind) -> bool {
        self.unpatchable.contains_key(kind)
    }

    pub fn is_unwritable(&self, kind: &Kind) -> bool {
        self.unwritable.contains(kind)
    }

    /// The whole object, if it has been read for an update.
    pub fn whole(&self, object: &Object) -> Option<&Name> {
        self.wholes.get(&object.key).filter(|(uid, _)| *uid == object.uid).map(|(_, json)| json)
    }

    /// Since when has a source been awaited that was never listed completely, or broke, or has not been heard of?
    pub fn silent_since(&self, source: &Source) -> Option<Mono> {
        self.feeds.get(source).map(|feed| if feed.broken { feed.broken_at } else { feed.heard_at })
    }

    /// When is it worth a word that nothing can be decided by it? Doubts come and go with every broken connection, and most are over
    /// within seconds. But a watch that breaks again and again is never in doubt for long, and never good for anything.
    pub fn doubt_told_at(&self, source: &Source) -> Option<Mono> {
        let feed = self.feeds.get(source)?;
        let lasts = self.silent_since(source)?.after(DOUBT_TOLD_AFTER);
        Some(if feed.broken { lasts.min(feed.unwell_since.after(TROUBLE_TOLD_AFTER)) } else { lasts })
    }

    /// What may have been created that we do not see yet, and for whom.
    pub fn maybe_created(&self) -> impl Iterator<Item = (&ObjectKey, &Creating)> {
        let may_exist = |key: &ObjectKey| self.flights.may_have_happened(&EffectKey::Create(key.clone()));
        self.creations.iter().filter(move |(key, _)| may_exist(key))
    }

    /// Is it where remediations are made, by what checks say or have said since we began?
    pub fn is_at_home(&self, object: &Object) -> bool {
        object.key.namespace.as_ref().is_none_or(|namespace| self.workplaces.contains(namespace))
    }

    /// Was it made under the check of this uid? Anywhere else others may have written that it was: a uid is no secret, and whoever may
    /// write such objects in a namespace of their own could keep any node from being repaired.
    pub fn is_work_of(&self, object: &Object, check_uid: &str) -> bool {
        object.is_made_for(check_uid) && self.is_at_home(object)
    }

    /// Was it sent for a node, and not for a machine?
    pub fn is_for_node(&self, key: &ObjectKey) -> bool {
        self.creations.contains_key(key)
    }

    /// What was made under a check that is gone, by the node that it is for. The garbage collector takes it away.
    pub fn left_behind(&self) -> BTreeMap<&Name, &ObjectKey> {
        let uids: BTreeSet<&str> = self.checks.values().map(|check| &*check.uid).collect();
        let is_left = |object: &&Object| {
            let mut checks = object.owners.iter().filter(|owner| owner.is_check && !owner.controls);
            checks.any(|owner| !uids.contains(&*owner.uid)) && object.body.is_none() && self.is_at_home(object)
        };
        self.objects.values().filter(is_left).map(|object| (&object.node, &object.key)).collect()
    }

    /// How often somebody else removed this object, and when it may be created again.
    pub fn removed_by_others(&self, key: &ObjectKey) -> Option<(u32, Mono)> {
        self.removals.get(key).map(|(times, at)| (*times, at.after(backoff(*times))))
    }

    /// Is it known that a Node of this Cluster cannot be read?
    pub fn is_unreadable(&self, cluster: &ClusterKey, node: &str) -> bool {
        let region = self.fleet.region(cluster);
        region.is_some_and(|own| {
            own.unreadable.contains_key(node) || own.nodes.get(node).is_some_and(|known| known.unreadable.is_some())
        })
    }

    pub fn unreadable_node(&self, node: &str) -> Option<&Name> {
        self.unreadable.get(node)
    }

    /// When the last look at the node was sent that showed that it is, or is not, there.
    pub fn looked_at(&self, cluster: Option<&ClusterKey>, node: &Name, is_there: bool) -> Option<Mono> {
        let look = self.looks.get(&(cluster.cloned(), node.clone()));
        look.filter(|(_, found)| *found == is_there).map(|(at, _)| *at)
    }

    /// What was found when the Machine of this namespace and name, which the node names, was last asked for, and when that was.
    pub fn machine_of(&self, node: &Name, namespace: &str, name: &str) -> Option<&(Mono, MachineOfNode)> {
        self.machines.get(&(node.clone(), namespace.into(), name.into()))
    }

    pub fn is_settled(&self, check: &ObjectKey, event: &str) -> bool {
        self.settled.get(check).is_some_and(|events| events.contains(event))
    }

    /// How many events have been written since the last status.
    pub fn settled(&self, check: &ObjectKey) -> usize {
        self.settled.get(check).map_or(0, BTreeSet::len)
    }

    pub fn brief(&self, check: &str) -> &[(Name, Remediation)] {
        self.brief.get(check).map_or(&[], Vec::as_slice)
    }

    pub fn status_sent(&self, check: &ObjectKey) -> Option<&StatusSent> {
        self.status_sent.get(check)
    }
}

fn machine_check_definition(flavour: Flavour) -> &'static str {
    MACHINE_CHECK_DEFINITIONS.iter().find(|(own, _)| *own == flavour).map_or("", |(_, definition)| definition)
}
