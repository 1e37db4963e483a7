//! What do we know, all together?
//!
//! Inputs change it, one at a time; nothing else does. An input that changes no fact says so, and then
//! nothing is planned anew: a heartbeat costs its decoding and one comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::default_check::DefaultCheck;
use crate::effect::{Effect, EffectKey};
use crate::facts::{Check, Claim, Kind, Name, Node, NodeLease, Object, ObjectKey, Served, Signal, SignalFact, Source};
use crate::flight::{FORGET_AFTER, Flights, backoff};
use crate::health::Known;
use crate::input::{Answer, Fact, Gone, Input};
use crate::lease::Election;
use crate::nhc::Remediation;
use crate::time::{Clock, Mono, Now};
use crate::upgrade::{Detectors, Off, Signals};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub clock: Clock,
    pub election: Election,
    claim: Claim,
    pub detectors: Detectors,
    pub default_check: DefaultCheck,
    /// What is known of upgrades.
    pub signals: Signals,
    /// Whether the definition of checks is ours; None while it is not known.
    definition_is_ours: Option<bool>,
    pub nodes: BTreeMap<Name, Known>,
    pub checks: BTreeMap<Name, Check>,
    /// Templates and remediations.
    pub objects: BTreeMap<ObjectKey, Object>,
    /// Leases on nodes, by their own names.
    pub node_leases: BTreeMap<Name, NodeLease>,
    /// The namespace for leases on nodes does not exist.
    pub lease_namespace_missing: bool,
    /// Pods of etcd, and the node of each.
    pub etcd: BTreeMap<Name, Name>,
    feeds: BTreeMap<Source, Feed>,
    /// By API group and version.
    pub kinds: BTreeMap<Name, Kinds>,
    pub flights: Flights,
    /// When the last answered look at a node was sent.
    looks: BTreeMap<Name, Mono>,
    /// Events that need no further attempt, by check, until the status that goes with them is written.
    settled: BTreeMap<Name, BTreeSet<Name>>,
    status_sent: BTreeMap<Name, StatusSent>,
    /// For whom each creation that is under way, or may have happened, was sent.
    creations: BTreeMap<ObjectKey, (Name, Name)>,
    /// How often somebody else removed what we created, and when last.
    removals: BTreeMap<ObjectKey, (u32, Mono)>,
    /// Nodes of which nothing was ever readable but the name, with why.
    unreadable: BTreeMap<Name, Name>,
    /// Sources that are listed now and then, as they may not be watched.
    polled: BTreeSet<Source>,
    /// Kinds that may not be patched, and those that may not be updated either.
    unpatchable: BTreeSet<Kind>,
    unwritable: BTreeSet<Kind>,
    /// Whole objects that are about to be updated, with their uids.
    wholes: BTreeMap<ObjectKey, (Name, Name)>,
    /// Remediations that came and went before the status of their check could tell, by check.
    brief: BTreeMap<Name, Vec<(Name, Remediation)>>,
}

/// How well we hear from a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Feed {
    /// A list has been completed.
    synced: bool,
    /// The watch broke and nothing has come since.
    broken: bool,
    /// Since when, if it is.
    broken_at: Mono,
    heard_at: Mono,
    /// While a list is under way: what it has not shown yet.
    unseen: Option<BTreeSet<Name>>,
}

/// The last status that was sent for a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusSent {
    pub at: Mono,
    /// What it said, without its times; see [`crate::nhc::CheckStatus::gist`].
    pub gist: u64,
    /// The server said that it is stored.
    pub stored: bool,
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

/// A definition is named `plural.group`.
const CHECK_DEFINITION: &str = "nodehealthchecks.remediation.medik8s.io";
/// Bookmarks come about every minute; a watch that is silent for longer than this is not trusted.
pub const STALE_AFTER: Duration = Duration::from_secs(90);
/// A definition is served some moments after it appears: ask at this pace at first, then ever slower.
const RECHECK_MIN: Duration = Duration::from_millis(250);
/// Together with the growing pause, some eight seconds.
const RECHECKS: u32 = 5;
/// Not every kind has a definition that we can watch (aggregated APIs): ask now and then for ever.
const RECHECK_MAX: Duration = Duration::from_secs(60);
/// Where definitions cannot be watched at all.
const RECHECK_BLIND: Duration = Duration::from_secs(15);
/// An event that cannot be written must not keep the status from being written.
const EVENT_TRIES_MAX: u32 = 3;
/// A check whose status can never be written must not fill the memory: what is forgotten is sent once more, under the
/// same name, and refused as existing.
const SETTLED_MAX: usize = 1000;
/// So short-lived are remediations only in tests and in trouble; and trouble is told after the first hundred.
const BRIEF_MAX: usize = 100;

impl World {
    pub fn new(election: Election, claim: Claim) -> World {
        World {
            clock: Clock::default(),
            election,
            claim,
            detectors: Detectors::default(),
            default_check: DefaultCheck::Off,
            signals: Signals::default(),
            definition_is_ours: None,
            nodes: BTreeMap::new(),
            checks: BTreeMap::new(),
            objects: BTreeMap::new(),
            node_leases: BTreeMap::new(),
            lease_namespace_missing: false,
            etcd: BTreeMap::new(),
            feeds: BTreeMap::new(),
            kinds: BTreeMap::new(),
            flights: Flights::default(),
            looks: BTreeMap::new(),
            settled: BTreeMap::new(),
            status_sent: BTreeMap::new(),
            creations: BTreeMap::new(),
            removals: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            polled: BTreeSet::new(),
            unpatchable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            wholes: BTreeMap::new(),
            brief: BTreeMap::new(),
        }
    }

    /// Takes in what was learnt. False: no decision can depend on it.
    pub fn apply(&mut self, input: Input, now: Now) -> bool {
        self.clock.observe(now);
        match input {
            Input::Listing(source) => self.list_begins(source, now),
            Input::Listed(source) => self.list_ends(&source, now),
            Input::Seen(fact) => self.seen(fact, now),
            Input::Gone(gone) => self.gone(gone, now),
            Input::Heard(source) => {
                let was_polled = self.polled.remove(&source);
                self.heard(&source, now) || was_polled
            }
            Input::Polled(source) => self.polled.insert(source),
            Input::Broken(source) => self.broken(&source, now.mono),
            Input::NotServed(source) => self.not_served(&source, now.mono),
            Input::Forbidden(source) => self.forbidden(&source, now.mono),
            Input::Stopped(source) => self.forget(&source),
            Input::Unreadable { source, name, why } => self.unreadable(&source, &name, why, now),
            Input::Answered(key, answer) => self.answered(key, answer, now),
            Input::LeaseAnswered(answer) => {
                self.election.answered(answer, now.mono);
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
                self.status_sent.insert(check.clone(), StatusSent { at: now.mono, gist: status.gist(), stored: false });
                self.flights.sent(effect.key(), now.mono);
            }
            Effect::Create(creation) => {
                self.creations.insert(creation.key.clone(), (creation.check_uid.clone(), creation.node.clone()));
                self.flights.sent(effect.key(), now.mono);
                let World { creations, flights, .. } = self;
                creations.retain(|key, _| flights.may_have_happened(&EffectKey::Create(key.clone())));
            }
            Effect::Mark { key, whole, .. } => {
                if whole.is_some() {
                    self.wholes.remove(key);
                }
                self.flights.sent(effect.key(), now.mono);
            }
            Effect::Look { .. }
            | Effect::Delete { .. }
            | Effect::Read { .. }
            | Effect::Fetch { .. }
            | Effect::Unconfirm { .. }
            | Effect::HoldNode(_)
            | Effect::ReleaseNode { .. }
            | Effect::LeaseNamespace
            | Effect::DefaultTemplate
            | Effect::DefaultCheck(_)
            | Effect::Discover { .. }
            | Effect::ServerVersion
            | Effect::Emit(_) => self.flights.sent(effect.key(), now.mono),
        }
    }

    /// Is this check ours to act on? What is not known yet is not.
    pub fn is_ours(&self, check: &Check) -> bool {
        match self.claim {
            Claim::All => true,
            Claim::Marked => check.take_over || self.definition_is_ours == Some(true),
            Claim::Off => false,
        }
    }

    /// Nobody else takes care of any check.
    pub fn owns_all_checks(&self) -> bool {
        self.claim == Claim::All || (self.claim == Claim::Marked && self.definition_is_ours == Some(true))
    }

    pub fn is_synced(&self, source: &Source) -> bool {
        self.feeds.get(source).is_some_and(|feed| feed.synced)
    }

    /// Stale is a watch from its break until something comes after it, and one that has been silent too long.
    pub fn is_fresh(&self, source: &Source, now: Mono) -> bool {
        self.feeds.get(source).is_some_and(|feed| feed.synced && !feed.broken && now.since(feed.heard_at) <= STALE_AFTER)
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

    pub fn is_unpatchable(&self, kind: &Kind) -> bool {
        self.unpatchable.contains(kind)
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

    /// What may have been created for each node under this check, as far as anybody knows.
    pub fn maybe_created(&self, check_uid: &str) -> BTreeMap<&Name, &ObjectKey> {
        let ours = self.creations.iter().filter(|(_, (owner, _))| **owner == *check_uid);
        ours.filter(|(key, _)| self.flights.may_have_happened(&EffectKey::Create((*key).clone())))
            .map(|(key, (_, node))| (node, key))
            .collect()
    }

    /// The nodes for which something may have been created that we do not see yet.
    pub fn maybe_remediated(&self) -> impl Iterator<Item = &Name> {
        let may_exist = |key: &ObjectKey| self.flights.may_have_happened(&EffectKey::Create(key.clone()));
        self.creations.iter().filter(move |(key, _)| may_exist(key)).map(|(_, (_, node))| node)
    }

    /// How often somebody else removed this object, and when it may be created again.
    pub fn removed_by_others(&self, key: &ObjectKey) -> Option<(u32, Mono)> {
        self.removals.get(key).map(|(times, at)| (*times, at.after(backoff(*times))))
    }

    pub fn unreadable_node(&self, node: &str) -> Option<&Name> {
        self.unreadable.get(node)
    }

    pub fn looked_at(&self, node: &str) -> Option<Mono> {
        self.looks.get(node).copied()
    }

    pub fn is_settled(&self, check: &str, event: &str) -> bool {
        self.settled.get(check).is_some_and(|events| events.contains(event))
    }

    /// How many events have been written since the last status.
    pub fn settled(&self, check: &str) -> usize {
        self.settled.get(check).map_or(0, BTreeSet::len)
    }

    pub fn brief(&self, check: &str) -> &[(Name, Remediation)] {
        self.brief.get(check).map_or(&[], Vec::as_slice)
    }

    pub fn status_sent(&self, check: &str) -> Option<&StatusSent> {
        self.status_sent.get(check)
    }

    fn list_begins(&mut self, source: Source, now: Now) -> bool {
        let unseen = match &source {
            Source::Nodes => self.nodes.keys().chain(self.unreadable.keys()).cloned().collect(),
            Source::Checks => self.checks.keys().cloned().collect(),
            Source::Kinds => BTreeSet::new(),
            Source::Signals(signal) => self.signals.names(*signal).collect(),
            Source::Objects(kind) => self.objects.keys().filter(|key| key.kind == *kind).map(list_name).collect(),
            Source::NodeLeases => self.node_leases.keys().cloned().collect(),
            Source::Etcd => self.etcd.keys().cloned().collect(),
        };
        let feed = self.feeds.entry(source).or_insert(Feed {
            synced: false,
            broken: false,
            broken_at: now.mono,
            heard_at: now.mono,
            unseen: None,
        });
        feed.unseen = Some(unseen);
        false
    }

    fn list_ends(&mut self, source: &Source, now: Now) -> bool {
        let Some(feed) = self.feeds.get_mut(source) else { return false };
        let unseen = feed.unseen.take().unwrap_or_default();
        *feed = Feed { synced: true, broken: false, broken_at: now.mono, heard_at: now.mono, unseen: None };
        match source {
            Source::Nodes => {
                self.nodes.retain(|name, _| !unseen.contains(name));
                self.unreadable.retain(|name, _| !unseen.contains(name));
            }
            Source::Checks => unseen.iter().for_each(|name| self.drop_check(name)),
            Source::Kinds => {}
            Source::Signals(signal) => {
                for name in &unseen {
                    self.signals.gone(*signal, name);
                }
                self.signals.listed(*signal);
            }
            Source::Objects(kind) => self.objects.retain(|key, _| key.kind != *kind || !unseen.contains(&list_name(key))),
            Source::NodeLeases => self.node_leases.retain(|name, _| !unseen.contains(name)),
            Source::Etcd => self.etcd.retain(|pod, _| !unseen.contains(pod)),
        }
        true
    }

    fn seen(&mut self, fact: Fact, now: Now) -> bool {
        let freshened = fact.source().is_some_and(|source| self.heard(&source, now));
        let changed = match fact {
            Fact::Node(node) => self.node_seen(node, now),
            Fact::Check(check) => self.check_seen(check, now),
            Fact::Object(object) => self.object_seen(object),
            Fact::Definition { name, ours } => self.definition_seen(&name, Some(ours)),
            Fact::NodeLease(lease) => self.node_lease_seen(lease),
            Fact::Etcd { pod, node } => {
                self.mark_seen(&Source::Etcd, &pod);
                self.etcd.insert(pod, node.clone()).is_none_or(|before| before != node)
            }
            Fact::Kinds { api_version, served } => self.kinds_found(api_version, served, now.mono),
            Fact::Signal { signal, name, says } => self.signal_seen(signal, name, says, now),
            Fact::Whole { key, uid, json } => self.wholes.insert(key, (uid, json)).is_none(),
            Fact::Server { version } => self.signals.server_seen(version, now),
        };
        freshened || changed
    }

    fn node_seen(&mut self, node: Node, now: Now) -> bool {
        self.mark_seen(&Source::Nodes, &node.name);
        self.unreadable.remove(&node.name);
        let listing = self.is_listing(&Source::Nodes);
        let known = self.nodes.get_mut(&node.name);
        if let Some(known) = known {
            // A watch may lag behind a look; its old news is no news. A list is always believed.
            if !listing && node.version.is_older_than(&known.node.version) {
                return false;
            }
            if known.unreadable.is_none() && known.node.says_the_same_as(&node) {
                known.node.version = node.version;
                return false;
            }
            self.signals.kubelet_seen(&known.node, &node, now);
        }
        let since = self.anchors(&node, now);
        let same = self.nodes.get(&node.name).filter(|known| known.node.uid == node.uid);
        let created = same.map_or_else(|| self.clock.anchor(node.created_at, now), |known| known.created);
        self.nodes.insert(node.name.clone(), Known { node, since, created, unreadable: None });
        true
    }

    /// A condition that has not changed keeps the instant at which it began, whatever the wall clock does.
    fn anchors(&self, node: &Node, now: Now) -> Box<[Mono]> {
        let known = self.nodes.get(&node.name).filter(|known| known.node.uid == node.uid);
        let kept = |condition| {
            let known = known?;
            let at = known.node.conditions.iter().position(|own| own == condition)?;
            Some(known.since[at])
        };
        node.conditions
            .iter()
            .map(|condition| kept(condition).unwrap_or_else(|| self.clock.anchor(condition.since, now)))
            .collect()
    }

    fn check_seen(&mut self, check: Check, now: Now) -> bool {
        self.mark_seen(&Source::Checks, &check.name);
        let is_old = self.checks.get(&check.name).is_some_and(|known| check.version.is_older_than(&known.version));
        if is_old && !self.is_listing(&Source::Checks) {
            return false;
        }
        self.signals.recall(&check, &self.clock, now);
        if self.default_check != DefaultCheck::Off {
            self.default_check = DefaultCheck::Settled;
        }
        self.checks.insert(check.name.clone(), check);
        true
    }

    fn signal_seen(&mut self, signal: Signal, name: Name, says: SignalFact, now: Now) -> bool {
        self.mark_seen(&Source::Signals(signal), &name);
        self.signals.says(signal, name, says, &self.clock, now)
    }

    fn object_seen(&mut self, object: Object) -> bool {
        self.mark_seen(&Source::Objects(object.key.kind.clone()), &list_name(&object.key));
        self.flights.resolved(&EffectKey::Create(object.key.clone()));
        if self.objects.get(&object.key) == Some(&object) {
            return false;
        }
        self.objects.insert(object.key.clone(), object);
        true
    }

    fn node_lease_seen(&mut self, lease: NodeLease) -> bool {
        self.mark_seen(&Source::NodeLeases, &lease.name);
        self.flights.resolved(&EffectKey::HoldNode(lease.name.clone()));
        self.lease_namespace_missing = false;
        let changed = self.node_leases.get(&lease.name) != Some(&lease);
        self.node_leases.insert(lease.name.clone(), lease);
        changed
    }

    fn definition_seen(&mut self, name: &str, ours: Option<bool>) -> bool {
        let mut any = false;
        if name == CHECK_DEFINITION {
            any = std::mem::replace(&mut self.definition_is_ours, ours) != ours;
        }
        let Some((_, group)) = name.split_once('.') else { return any };
        for (api_version, kinds) in &mut self.kinds {
            if api_version.split_once('/').is_some_and(|(own, _)| own == group) {
                (kinds.changed, kinds.tries, kinds.rechecks_left, any) = (true, 0, RECHECKS, true);
            }
        }
        any
    }

    fn kinds_found(&mut self, api_version: Name, served: BTreeMap<Name, Served>, now: Mono) -> bool {
        let most = if self.is_fresh(&Source::Kinds, now) { RECHECK_MAX } else { RECHECK_BLIND };
        let kinds = self.kinds.entry(api_version).or_default();
        let pause = RECHECK_MIN.saturating_mul(1 << kinds.tries.min(16)).min(most);
        let rechecks_left = if kinds.changed { kinds.rechecks_left } else { kinds.rechecks_left.saturating_sub(1) };
        *kinds = Kinds { served, changed: false, recheck_at: now.after(pause), rechecks_left, tries: kinds.tries + 1 };
        true
    }

    fn not_served(&mut self, source: &Source, now: Mono) -> bool {
        match source {
            Source::Signals(signal) => match signal.kind().and_then(|kind| self.kinds.get_mut(&kind.api_version)) {
                Some(kinds) => !std::mem::replace(&mut kinds.changed, true),
                None => self.refused(*signal, Off::NotInstalled, now),
            },
            Source::Objects(kind) => {
                self.kinds.get_mut(&kind.api_version).is_some_and(|kinds| !std::mem::replace(&mut kinds.changed, true))
            }
            Source::Nodes | Source::Checks | Source::Kinds | Source::NodeLeases | Source::Etcd => false,
        }
    }

    fn forbidden(&mut self, source: &Source, now: Mono) -> bool {
        match source {
            Source::Signals(signal) => self.refused(*signal, Off::NotReadable, now),
            // Without these there is nothing to decide on, and the watch says why.
            Source::Nodes | Source::Checks | Source::Kinds | Source::Objects(_) | Source::NodeLeases | Source::Etcd => false,
        }
    }

    fn refused(&mut self, signal: Signal, off: Off, now: Mono) -> bool {
        self.broken(&Source::Signals(signal), now);
        self.signals.refused(signal.detector(), off, now);
        true
    }

    fn gone(&mut self, gone: Gone, now: Now) -> bool {
        match gone {
            Gone::Node(name) => {
                self.heard(&Source::Nodes, now);
                self.looks.remove(&name);
                self.unreadable.remove(&name);
                self.nodes.remove(&name).is_some()
            }
            Gone::Check(name) => {
                self.heard(&Source::Checks, now);
                self.drop_check(&name);
                true
            }
            Gone::Object(key, uid) => {
                self.heard(&Source::Objects(key.kind.clone()), now);
                let deleted_by_us = self.flights.get(&EffectKey::Delete(key.clone(), uid.clone())).is_some();
                self.flights.resolved(&EffectKey::Delete(key.clone(), uid.clone()));
                self.flights.resolved(&EffectKey::Create(key.clone()));
                self.wholes.remove(&key);
                let object = self.objects.remove(&key);
                if self.election.leads(now.mono) {
                    object.iter().for_each(|object| self.remember_brief(object));
                }
                let was_ours = object.as_ref().is_some_and(|object| self.owner_of(object).is_some());
                if was_ours && !deleted_by_us {
                    self.removals.retain(|_, (_, at)| now.mono.since(*at) < FORGET_AFTER);
                    let (times, _) = self.removals.get(&key).copied().unwrap_or_default();
                    self.removals.insert(key, (times + 1, now.mono));
                }
                object.is_some()
            }
            Gone::NodeLease(name) => {
                self.heard(&Source::NodeLeases, now);
                self.flights.resolved(&EffectKey::ReleaseNode(name.clone()));
                self.node_leases.remove(&name).is_some()
            }
            Gone::Etcd { pod } => {
                self.heard(&Source::Etcd, now);
                self.etcd.remove(&pod).is_some()
            }
            Gone::Definition { name } => {
                self.heard(&Source::Kinds, now);
                self.definition_seen(&name, None)
            }
            Gone::Signal { signal, name } => {
                self.heard(&Source::Signals(signal), now);
                self.signals.gone(signal, &name)
            }
        }
    }

    fn owner_of(&self, object: &Object) -> Option<&Check> {
        self.checks.values().find(|check| object.owners.iter().any(|owner| **owner == *check.uid))
    }

    /// Without this, a remediation that lasts less than the pause between two statuses would leave no trace.
    fn remember_brief(&mut self, object: &Object) {
        let Some(check) = self.owner_of(object) else { return };
        let told = check.status.unhealthy.iter().flat_map(|node| &node.remediations).any(|known| known.uid == object.uid);
        let brief = self.brief.entry(check.name.clone()).or_default();
        if !told && brief.len() < BRIEF_MAX {
            brief.push((object.node.clone(), object.into()));
        }
    }

    fn heard(&mut self, source: &Source, now: Now) -> bool {
        let was_fresh = self.is_fresh(source, now.mono);
        let Some(feed) = self.feeds.get_mut(source) else { return false };
        // What a list shows is not yet the whole: it makes nothing fresh before its end.
        if feed.unseen.is_some() {
            return false;
        }
        (feed.broken, feed.heard_at) = (false, now.mono);
        !was_fresh
    }

    fn broken(&mut self, source: &Source, now: Mono) -> bool {
        let Some(feed) = self.feeds.get_mut(source).filter(|feed| !feed.broken) else { return false };
        (feed.broken, feed.broken_at) = (true, now);
        true
    }

    fn forget(&mut self, source: &Source) -> bool {
        match source {
            Source::Objects(kind) => self.objects.retain(|key, _| key.kind != *kind),
            Source::Etcd => self.etcd.clear(),
            Source::NodeLeases => self.node_leases.clear(),
            Source::Signals(signal) => self.signals.forget(*signal),
            Source::Nodes | Source::Checks | Source::Kinds => {}
        }
        self.feeds.remove(source).is_some()
    }

    fn unreadable(&mut self, source: &Source, name: &Name, why: Name, now: Now) -> bool {
        self.heard(source, now);
        self.mark_seen(source, name);
        match source {
            Source::Nodes => match self.nodes.get_mut(name) {
                Some(known) => known.unreadable.replace(why).is_none(),
                None => self.unreadable.insert(name.clone(), why).is_none(),
            },
            // A check or a template that cannot be read at all has nothing to report on but the log.
            Source::Checks => self.checks.remove(name).is_some(),
            Source::Kinds | Source::Objects(_) | Source::NodeLeases | Source::Etcd => false,
            // Somebody says something that we do not understand: in doubt, nothing starts.
            Source::Signals(signal) => {
                let what = format!("{source}: {name} cannot be read: {why}").into();
                self.signals.says(*signal, name.clone(), SignalFact::Busy { what, lasts: None }, &self.clock, now)
            }
        }
    }

    fn is_listing(&self, source: &Source) -> bool {
        self.feeds.get(source).is_some_and(|feed| feed.unseen.is_some())
    }

    fn mark_seen(&mut self, source: &Source, name: &Name) {
        if let Some(unseen) = self.feeds.get_mut(source).and_then(|feed| feed.unseen.as_mut()) {
            unseen.remove(name);
        }
    }

    fn drop_check(&mut self, name: &Name) {
        self.checks.remove(name);
        self.settled.remove(name);
        self.brief.remove(name);
        self.status_sent.remove(name);
        self.signals.forget_check(name);
    }

    fn answered(&mut self, key: EffectKey, answer: Answer, now: Now) -> bool {
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
            (EffectKey::LeaseNamespace, Answer::Done(_) | Answer::Exists) => self.lease_namespace_missing = false,
            // First the patch is refused; then, if that is no better, the update.
            (EffectKey::Mark(key, ..), Answer::Refused { forbidden: true, .. }) => {
                if !self.unpatchable.insert(key.kind.clone()) {
                    self.unwritable.insert(key.kind);
                }
            }
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
                    self.brief.remove(&check.name);
                    self.status_sent.entry(check.name.clone()).and_modify(|sent| sent.stored = true);
                    self.check_seen(check, now);
                }
            }
            (EffectKey::Status(_), _) | (EffectKey::Lease, _) => {}
        }
        true
    }

    fn settle(&mut self, check: Name, event: Name, answer: &Answer) {
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

fn list_name(key: &ObjectKey) -> Name {
    match &key.namespace {
        Some(namespace) => format!("{namespace}/{}", key.name).into(),
        None => key.name.clone(),
    }
}
