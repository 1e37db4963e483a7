//! What changes when something is heard?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Feed, Kinds, World};
use crate::default_check::DefaultCheck;
use crate::effect::EffectKey;
use crate::facts::{Check, Invalid, Name, Node, NodeLease, Object, ObjectKey, OwnNamespace, Served, Signal, SignalFact, Source};
use crate::flight::FORGET_AFTER;
use crate::health::{News, take_in};
use crate::input::{Fact, Gone};
use crate::kinds;
use crate::mhc::facts::{ClusterKey, Flavour, Machine, MachineCheck};
use crate::mhc::fleet::{Overflow, TOO_MUCH_AGAIN, cluster_name};
use crate::rival::{self, Rivals};
use crate::time::{Mono, Now};
use crate::upgrade::Off;

/// A definition is named `plural.group`.
pub(super) const CHECK_DEFINITION: &str = "nodehealthchecks.remediation.medik8s.io";
pub(super) const CLUSTER_DEFINITION: &str = "clusters.cluster.x-k8s.io";
pub(super) const MACHINE_CHECK_DEFINITIONS: [(Flavour, &str); 2] = [
    (Flavour::ClusterApi, "machinehealthchecks.cluster.x-k8s.io"),
    (Flavour::OpenShift, "machinehealthchecks.machine.openshift.io"),
];
/// A definition is served some moments after it appears: ask at this pace at first, then ever slower.
const RECHECK_MIN: Duration = Duration::from_millis(250);
/// Together with the growing pause, some eight seconds.
const RECHECKS: u32 = 5;
/// Not every kind has a definition that we can watch (aggregated APIs): ask now and then for ever.
const RECHECK_MAX: Duration = Duration::from_secs(60);
/// Where definitions cannot be watched at all.
const RECHECK_BLIND: Duration = Duration::from_secs(15);
/// A watch that has missed nothing for 15 s is well: its next break is a new trouble.
const WELL_AFTER: Duration = Duration::from_secs(15);
/// Of one kind: more than an admin reads, however many a tenant writes.
const STRAYS_MAX: usize = 10;
/// Namespaces that templates are kept in: providers have one each.
const WORKPLACES_MAX: usize = 1000;
/// So short-lived are remediations only in tests and in trouble; and trouble is told after the first hundred.
const BRIEF_MAX: usize = 100;

/// What a watch shows right after a break may have happened during it.
const CAUGHT_UP_AFTER: Duration = Duration::from_secs(5);

impl World {
    pub(super) fn list_begins(&mut self, source: Source, now: Now) -> bool {
        let mut unseen: BTreeSet<Name> = match &source {
            Source::Nodes => self.nodes.keys().chain(self.unreadable.keys()).cloned().collect(),
            Source::Checks => self.checks.keys().cloned().collect(),
            Source::Kinds => self.definitions.keys().cloned().collect(),
            Source::Signals(signal) => self.signals.names(*signal).collect(),
            Source::Objects(kind) => self.objects.keys().filter(|key| key.kind == *kind).map(list_name).collect(),
            Source::NodeLeases => self.node_leases.keys().cloned().collect(),
            Source::Etcd => self.etcd.pods(),
            Source::OwnNamespace => self.pause.exists().then(|| self.namespace.clone()).into_iter().collect(),
            Source::Budgets => self.budgets.keys().cloned().collect(),
            Source::Guards => self.guards.keys().cloned().collect(),
            Source::Rivals(rival) => self.rivals.get(rival).map(Rivals::names).unwrap_or_default(),
            Source::MachineChecks(_)
            | Source::Machines(_)
            | Source::Clusters(_)
            | Source::Access(_)
            | Source::RemoteNodes(_)
            | Source::RemoteEtcd(_) => self.fleet.names(&source),
        };
        unseen.extend(self.strays.get(&source).into_iter().flatten().cloned());
        if let Source::RemoteNodes(cluster) = &source {
            self.fleet.may_change(cluster, now.mono);
        }
        let feed = self.feeds.entry(source).or_insert(Feed {
            synced: false,
            broken: false,
            broken_at: now.mono,
            unwell_since: now.mono,
            heard_at: now.mono,
            fresh_since: now.mono,
            lists_since: now.mono,
            unseen: None,
        });
        (feed.lists_since, feed.unseen) = (now.mono, Some(unseen));
        false
    }

    pub(super) fn list_ends(&mut self, source: &Source, now: Now) -> bool {
        let Some(feed) = self.feeds.get_mut(source) else { return false };
        let unseen = feed.unseen.take().unwrap_or_default();
        // It shows what was when it began; what has happened since is still to come.
        let heard_at = feed.lists_since;
        let is_quick = now.mono.since(heard_at) < CAUGHT_UP_AFTER;
        let fresh_since = if is_quick { now.mono.before(CAUGHT_UP_AFTER) } else { now.mono };
        *feed = Feed { synced: true, broken: false, heard_at, fresh_since, unseen: None, ..*feed };
        if let Some(strays) = self.strays.get_mut(source) {
            strays.retain(|name| !unseen.contains(name));
        }
        match source {
            Source::Nodes => unseen.iter().for_each(|name| {
                self.node_gone(name, now.mono);
            }),
            Source::Checks => unseen.iter().for_each(|name| self.drop_check(name)),
            Source::Kinds => unseen.iter().for_each(|name| {
                self.definition_seen(name, None);
            }),
            Source::Signals(signal) => {
                for name in &unseen {
                    self.signals.gone(*signal, name);
                }
                self.signals.listed(*signal);
            }
            Source::Objects(kind) => self.objects.retain(|key, _| key.kind != *kind || !unseen.contains(&list_name(key))),
            Source::NodeLeases => self.node_leases.retain(|name, _| !unseen.contains(name)),
            Source::Etcd => unseen.iter().for_each(|pod| {
                self.etcd.gone(pod, &self.nodes, now.mono);
            }),
            Source::OwnNamespace => {
                self.pause.forbidden = false;
                if !unseen.is_empty() {
                    self.own_namespace_gone(now);
                }
            }
            Source::Budgets => self.budgets.retain(|name, _| !unseen.contains(name)),
            Source::Guards => self.guards.retain(|pod, _| !unseen.contains(pod)),
            Source::Rivals(rival) => self.rivals.entry(*rival).or_default().listed(&unseen),
            Source::RemoteNodes(cluster) => {
                // A cluster without Nodes has been heard of, too.
                self.fleet.region_mut(cluster);
                self.fleet.no_access.remove(cluster);
                self.fleet.drop_unseen(source, &unseen, now.mono);
                if self.fleet.is_taken(cluster, now.mono) {
                    self.fleet.overflows.remove(cluster);
                }
            }
            Source::Access(cluster) => {
                self.fleet.forbidden.remove(cluster);
                self.fleet.drop_unseen(source, &unseen, now.mono);
            }
            Source::MachineChecks(dialect) => {
                for check in self.fleet.checks_gone(*dialect, &unseen) {
                    self.drop_machine_check(&check);
                }
            }
            Source::RemoteEtcd(cluster) => {
                self.fleet.no_access.remove(cluster);
                self.fleet.drop_unseen(source, &unseen, now.mono);
            }
            Source::Machines(_) | Source::Clusters(_) => {
                self.fleet.drop_unseen(source, &unseen, now.mono);
            }
        }
        true
    }

    pub(super) fn seen(&mut self, fact: Fact, now: Now) -> bool {
        let freshened = fact.source().is_some_and(|source| self.heard(&source, now));
        let changed = match fact {
            Fact::Node(node) => {
                let news = self.news(&Source::Nodes, now.mono);
                self.mark_seen(&Source::Nodes, &node.name);
                self.node_seen(node, news, now)
            }
            Fact::Check(check) => {
                self.mark_seen(&Source::Checks, &check.name);
                let listed = self.is_listing(&Source::Checks);
                self.check_seen(check, listed, now)
            }
            Fact::Object(object) => self.object_seen(object),
            Fact::Definition { name, ours } => {
                self.mark_seen(&Source::Kinds, &name);
                self.definition_seen(&name, Some(ours))
            }
            Fact::NodeLease(lease) => self.node_lease_seen(lease),
            Fact::Etcd { pod, says } => {
                self.mark_seen(&Source::Etcd, &pod);
                self.etcd.seen(pod, says, &self.nodes, now.mono)
            }
            Fact::OwnNamespace(namespace) => self.own_namespace_seen(namespace, now),
            Fact::Budget { name, budget } => {
                self.mark_seen(&Source::Budgets, &name);
                self.budgets.insert(name, budget.clone()).is_none_or(|before| before != budget)
            }
            Fact::Guard { pod, guard } => {
                self.mark_seen(&Source::Guards, &pod);
                self.guards.insert(pod, guard.clone()).is_none_or(|before| before != guard)
            }
            Fact::Rival { rival, name, lease } => {
                let source = Source::Rivals(rival);
                self.mark_seen(&source, &name);
                match rival::is_in(&self.homes.rivals, &name) {
                    true => self.rivals.entry(rival).or_default().seen(name, lease, now),
                    false => self.stray_seen(source, name),
                }
            }
            // Of which node only the answer knows.
            Fact::MachineOfNode { .. } => false,
            Fact::MachineCheck(check) => {
                let source = Source::MachineChecks(check.dialect);
                self.mark_seen(&source, &check.place.to_string().into());
                let listed = self.is_listing(&source);
                self.machine_check_seen(check, listed)
            }
            Fact::Machine(machine) => {
                let source = Source::Machines(machine.dialect);
                let listed = self.is_listing(&source);
                if listed {
                    self.mark_seen(&source, &machine.place.to_string().into());
                }
                self.machine_seen(machine, listed, now)
            }
            Fact::Cluster(dialect, cluster) => {
                self.mark_seen(&Source::Clusters(dialect), &cluster_name(&cluster.key));
                self.fleet.cluster_seen(cluster, now.mono)
            }
            Fact::Access { cluster, access } => {
                self.mark_seen(&Source::Access(cluster.clone()), &cluster_name(&cluster));
                let changed = self.fleet.access.get(&cluster) != Some(&access);
                if changed {
                    // It may lead to another cluster: what was heard from the old one says nothing about that.
                    self.forget(&Source::RemoteNodes(cluster.clone()), now.mono);
                    self.forget(&Source::RemoteEtcd(cluster.clone()), now.mono);
                    self.looks.retain(|(own, _), _| own.as_ref() != Some(&cluster));
                    self.flights.forget_looks_in(&cluster);
                    self.fleet.no_access.remove(&cluster);
                    self.fleet.overflows.remove(&cluster);
                    self.fleet.may_change(&cluster, now.mono);
                    self.fleet.access.insert(cluster, access);
                }
                changed
            }
            Fact::RemoteNode(cluster, node) => self.remote_node_seen(cluster, node, now),
            Fact::RemoteEtcd { cluster, pod, says } => {
                self.mark_seen(&Source::RemoteEtcd(cluster.clone()), &pod);
                if !self.fleet.is_taken(&cluster, now.mono) {
                    return false;
                }
                let region = self.fleet.region_mut(&cluster);
                region.etcd.seen(pod, says, &region.nodes, now.mono) | self.overflows(cluster, now)
            }
            // Of which cluster only the answer knows.
            Fact::Identity { .. } => false,
            Fact::Kinds { api_version, served } => self.kinds_found(api_version, served, now.mono),
            Fact::Signal { signal, name, says } => self.signal_seen(signal, name, says, now),
            Fact::Whole { key, uid, json } => self.wholes.insert(key, (uid, json)).is_none(),
            Fact::Server { version } => self.signals.server_seen(version, now),
        };
        freshened || changed
    }

    pub(super) fn node_seen(&mut self, node: Node, news: News, now: Now) -> bool {
        self.unreadable.remove(&node.name);
        let name = node.name.clone();
        let Some(before) = take_in(&mut self.nodes, node, news, &self.clock, now) else { return false };
        if let (Some(before), Some(after)) = (before, self.nodes.get(&name)) {
            self.signals.kubelet_seen(&before.node, &after.node, now);
            if !after.is_control_plane {
                self.etcd.node_left(&before.node, now.mono);
            }
        }
        true
    }

    fn node_gone(&mut self, name: &Name, now: Mono) -> bool {
        self.unreadable.remove(name);
        let known = self.nodes.remove(name);
        known.iter().for_each(|known| self.etcd.node_left(&known.node, now));
        known.is_some()
    }

    /// `listed`: by a list, which is always believed. An answer that arrives while a list is under way is no part of it: it may
    /// be older, and says nothing of what is gone since.
    pub(super) fn check_seen(&mut self, check: Check, listed: bool, now: Now) -> bool {
        if !listed && self.checks.get(&check.name).is_some_and(|known| check.version.is_older_than(&known.version)) {
            return false;
        }
        self.signals.recall(&check, &self.clock, now);
        if self.default_check != DefaultCheck::Off {
            self.default_check = DefaultCheck::Settled;
        }
        let templates = check.policy.iter().flat_map(|policy| &policy.steps).map(|step| &step.template);
        let listed = check.status.unhealthy.iter().flat_map(|node| &node.remediations).map(|remediation| &remediation.key);
        let namespaces = templates.chain(listed).filter_map(|key| key.namespace.clone());
        self.workplaces.extend(namespaces.take(WORKPLACES_MAX.saturating_sub(self.workplaces.len())));
        self.checks.insert(check.name.clone(), check);
        true
    }

    /// `listed`: as for [`World::check_seen`].
    pub(super) fn machine_check_seen(&mut self, check: MachineCheck, listed: bool) -> bool {
        if !listed && self.fleet.checks.get(&check.place).is_some_and(|known| check.version.is_older_than(&known.version)) {
            return false;
        }
        self.fleet.checks.insert(check.place.clone(), check);
        true
    }

    /// `listed`: as for [`World::check_seen`].
    pub(super) fn machine_seen(&mut self, mut machine: Machine, listed: bool, now: Now) -> bool {
        let known = self.fleet.machines.get(&machine.place);
        if !listed && known.is_some_and(|known| machine.version.is_older_than(&known.version)) {
            return false;
        }
        self.flights.resolved(&EffectKey::PowerCycle(machine.place.clone()));
        if let Some((_, known)) = self.fleet.machines.range(..machine.place.clone()).next_back() {
            machine.share_texts(known);
        }
        self.fleet.date(&mut machine, now.wall);
        self.fleet.machines.insert(machine.place.clone(), machine.clone()).is_none_or(|before| before != machine)
    }

    fn own_namespace_seen(&mut self, namespace: OwnNamespace, now: Now) -> bool {
        self.mark_seen(&Source::OwnNamespace, &namespace.name);
        let changed = namespace.name == self.namespace && self.pause.seen(namespace);
        self.tell_pause(now.mono, now.wall);
        changed
    }

    fn own_namespace_gone(&mut self, now: Now) -> bool {
        let changed = self.pause.gone();
        self.tell_pause(now.mono, now.wall);
        changed
    }

    fn remote_node_seen(&mut self, cluster: ClusterKey, node: Node, now: Now) -> bool {
        let source = Source::RemoteNodes(cluster.clone());
        self.mark_seen(&source, &node.name);
        if !self.fleet.is_taken(&cluster, now.mono) {
            return false;
        }
        let news = self.news(&source, now.mono);
        let region = self.fleet.region_mut(&cluster);
        let is_control_plane = node.is_control_plane();
        let Some(before) = region.take_in(node, news, now) else { return false };
        if let Some(before) = before.filter(|_| !is_control_plane) {
            region.etcd.node_left(&before.node, now.mono);
        }
        self.overflows(cluster, now);
        true
    }

    /// What a Cluster has sent may be more than we take.
    fn overflows(&mut self, cluster: ClusterKey, now: Now) -> bool {
        match self.fleet.too_much(&cluster) {
            Some(why) => self.too_much(cluster, why.into(), now),
            None => false,
        }
    }

    /// What was taken in is forgotten: it is not the whole, and the others need the room.
    pub(super) fn too_much(&mut self, cluster: ClusterKey, why: Name, now: Now) -> bool {
        self.fleet.drop_region(&cluster);
        self.forget(&Source::RemoteNodes(cluster.clone()), now.mono);
        self.forget(&Source::RemoteEtcd(cluster.clone()), now.mono);
        self.looks.retain(|(own, _), _| own.as_ref() != Some(&cluster));
        self.fleet.overflows.insert(cluster, Overflow { why, again_at: now.mono.after(TOO_MUCH_AGAIN) });
        true
    }

    pub(super) fn signal_seen(&mut self, signal: Signal, name: Name, says: SignalFact, now: Now) -> bool {
        self.mark_seen(&Source::Signals(signal), &name);
        match self.is_signal(signal, &name) {
            true => self.signals.says(signal, name, says, &self.clock, now),
            false => self.stray_seen(Source::Signals(signal), name),
        }
    }

    /// Whoever may write a DaemonSet in some namespace can call it kured; the others' objects are an admin's to write.
    fn is_signal(&self, signal: Signal, name: &str) -> bool {
        match signal {
            Signal::Kured => rival::is_in(&self.homes.kured, name),
            Signal::ClusterVersions | Signal::Plans => true,
        }
    }

    fn stray_seen(&mut self, source: Source, name: Name) -> bool {
        let strays = self.strays.entry(source).or_default();
        strays.len() < STRAYS_MAX && strays.insert(name)
    }

    fn stray_gone(&mut self, source: &Source, name: &Name) -> bool {
        self.strays.get_mut(source).is_some_and(|strays| strays.remove(name))
    }

    pub(super) fn object_seen(&mut self, object: Object) -> bool {
        self.mark_seen(&Source::Objects(object.key.kind.clone()), &list_name(&object.key));
        self.flights.resolved(&EffectKey::Create(object.key.clone()));
        if self.objects.get(&object.key) == Some(&object) {
            return false;
        }
        self.objects.insert(object.key.clone(), object);
        true
    }

    pub(super) fn node_lease_seen(&mut self, lease: NodeLease) -> bool {
        self.mark_seen(&Source::NodeLeases, &lease.name);
        self.flights.resolved(&EffectKey::HoldNode(lease.name.clone()));
        self.lease_namespace_missing = false;
        let changed = self.node_leases.get(&lease.name) != Some(&lease);
        self.node_leases.insert(lease.name.clone(), lease);
        changed
    }

    pub(super) fn definition_seen(&mut self, name: &str, ours: Option<bool>) -> bool {
        let matters = [CHECK_DEFINITION, CLUSTER_DEFINITION].contains(&name)
            || MACHINE_CHECK_DEFINITIONS.iter().any(|(_, own)| *own == name);
        let mut any = matters && self.definitions.get(name).copied() != ours;
        if matters {
            match ours {
                Some(ours) => self.definitions.insert(name.into(), ours),
                None => self.definitions.remove(name),
            };
        }
        let Some((_, group)) = name.split_once('.') else { return any };
        for (api_version, kinds) in &mut self.kinds {
            if api_version.split_once('/').is_some_and(|(own, _)| own == group) {
                (kinds.changed, kinds.tries, kinds.rechecks_left, any) = (true, 0, RECHECKS, true);
            }
        }
        any
    }

    pub(super) fn kinds_found(&mut self, api_version: Name, served: BTreeMap<Name, Served>, now: Mono) -> bool {
        let most = if self.is_fresh(&Source::Kinds, now) { RECHECK_MAX } else { RECHECK_BLIND };
        let kinds = self.kinds.entry(api_version).or_default();
        let pause = RECHECK_MIN.saturating_mul(1 << kinds.tries.min(16)).min(most);
        let rechecks_left = if kinds.changed { kinds.rechecks_left } else { kinds.rechecks_left.saturating_sub(1) };
        *kinds = Kinds { served, changed: false, recheck_at: now.after(pause), rechecks_left, tries: kinds.tries + 1 };
        // Whoever writes checks chooses what is asked about; what nobody wants any more is forgotten with the next answer.
        let wanted = kinds::api_versions(self);
        self.kinds.retain(|api_version, _| wanted.contains(api_version));
        true
    }

    pub(super) fn not_served(&mut self, source: &Source, now: Mono) -> bool {
        match source {
            Source::Signals(signal) => match signal.kind().and_then(|kind| self.kinds.get_mut(&kind.api_version)) {
                Some(kinds) => !std::mem::replace(&mut kinds.changed, true),
                None => self.refused(*signal, Off::NotInstalled, now),
            },
            Source::Objects(kind) => {
                self.kinds.get_mut(&kind.api_version).is_some_and(|kinds| !std::mem::replace(&mut kinds.changed, true))
            }
            Source::Nodes
            | Source::Checks
            | Source::Kinds
            | Source::NodeLeases
            | Source::Etcd
            | Source::OwnNamespace
            | Source::Budgets
            | Source::Guards
            | Source::Rivals(_)
            | Source::Access(_)
            | Source::RemoteNodes(_)
            | Source::RemoteEtcd(_) => false,
            Source::MachineChecks(dialect) | Source::Machines(dialect) | Source::Clusters(dialect) => {
                let kinds = self.kinds.get_mut(dialect.api_version());
                kinds.is_some_and(|kinds| !std::mem::replace(&mut kinds.changed, true))
            }
        }
    }

    pub(super) fn forbidden(&mut self, source: &Source, now: Mono) -> bool {
        match source {
            Source::Signals(signal) => self.refused(*signal, Off::NotReadable, now),
            Source::Rivals(rival) => self.rivals.entry(*rival).or_default().forbidden(now),
            Source::Access(cluster) => self.fleet.forbidden.insert(cluster.clone()),
            Source::OwnNamespace => !std::mem::replace(&mut self.pause.forbidden, true),
            // Without these there is nothing to decide on, and the watch says why.
            Source::Nodes
            | Source::Checks
            | Source::Kinds
            | Source::Objects(_)
            | Source::NodeLeases
            | Source::Etcd
            | Source::Budgets
            | Source::Guards
            | Source::MachineChecks(_)
            | Source::Machines(_)
            | Source::Clusters(_)
            | Source::RemoteNodes(_)
            | Source::RemoteEtcd(_) => false,
        }
    }

    pub(super) fn refused(&mut self, signal: Signal, off: Off, now: Mono) -> bool {
        self.broken(&Source::Signals(signal), now);
        self.signals.refused(signal.detector(), off, now);
        true
    }

    pub(super) fn gone(&mut self, gone: Gone, now: Now) -> bool {
        match gone {
            Gone::Node(name) => {
                self.heard(&Source::Nodes, now);
                self.looks.remove(&(None, name.clone()));
                self.machines.retain(|(node, _, _), _| *node != name);
                self.node_gone(&name, now.mono)
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
                let was_ours = object.as_ref().is_some_and(|object| self.owner_of(object).is_some() || self.fleet.owns(object));
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
                // The watch may have shown that it was taken before the answer did; what is gone can be taken again.
                self.flights.resolved(&EffectKey::HoldNode(name.clone()));
                self.node_leases.remove(&name).is_some()
            }
            Gone::Etcd { pod } => {
                self.heard(&Source::Etcd, now);
                self.etcd.gone(&pod, &self.nodes, now.mono)
            }
            Gone::OwnNamespace(name) => {
                self.heard(&Source::OwnNamespace, now);
                name == self.namespace && self.own_namespace_gone(now)
            }
            Gone::Budget { name } => {
                self.heard(&Source::Budgets, now);
                self.budgets.remove(&name).is_some()
            }
            Gone::Guard { pod } => {
                self.heard(&Source::Guards, now);
                self.guards.remove(&pod).is_some()
            }
            Gone::Rival { rival, name } => {
                self.heard(&Source::Rivals(rival), now);
                self.stray_gone(&Source::Rivals(rival), &name) || self.rivals.entry(rival).or_default().gone(&name)
            }
            Gone::MachineCheck(dialect, place) => {
                self.heard(&Source::MachineChecks(dialect), now);
                let check = self.fleet.checks.remove(&place);
                check.iter().for_each(|check| self.drop_machine_check(check));
                check.is_some()
            }
            Gone::Machine(dialect, place) => {
                self.heard(&Source::Machines(dialect), now);
                self.fleet.looks.remove(&place);
                self.flights.resolved(&EffectKey::DeleteMachine(place.clone()));
                self.flights.resolved(&EffectKey::PowerCycle(place.clone()));
                self.fleet.machine_gone(&place)
            }
            Gone::Cluster(dialect, key) => {
                self.heard(&Source::Clusters(dialect), now);
                self.fleet.cluster_gone(&key)
            }
            Gone::Access(cluster) => {
                self.heard(&Source::Access(cluster.clone()), now);
                self.fleet.no_access.remove(&cluster);
                self.fleet.access.remove(&cluster).is_some()
            }
            Gone::RemoteNode(cluster, name) => {
                self.heard(&Source::RemoteNodes(cluster.clone()), now);
                let region = self.fleet.region_mut(&cluster);
                let was_known = region.node_gone(&name, now.mono);
                self.looks.remove(&(Some(cluster), name));
                was_known
            }
            Gone::RemoteEtcd { cluster, pod } => {
                self.heard(&Source::RemoteEtcd(cluster.clone()), now);
                let region = self.fleet.region_mut(&cluster);
                region.etcd.gone(&pod, &region.nodes, now.mono)
            }
            Gone::Definition { name } => {
                self.heard(&Source::Kinds, now);
                self.definition_seen(&name, None)
            }
            Gone::Signal { signal, name } => {
                self.heard(&Source::Signals(signal), now);
                self.stray_gone(&Source::Signals(signal), &name) || self.signals.gone(signal, &name)
            }
        }
    }

    /// The NodeHealthCheck that a remediation was made under.
    pub fn owner_of(&self, object: &Object) -> Option<&Check> {
        self.checks.values().find(|check| self.is_work_of(object, &check.uid))
    }

    /// Without this, a remediation that lasts less than the pause between two statuses would leave no trace.
    pub(super) fn remember_brief(&mut self, object: &Object) {
        let Some(check) = self.owner_of(object) else { return };
        let told = check.status.unhealthy.iter().flat_map(|node| &node.remediations).any(|known| known.uid == object.uid);
        let brief = self.brief.entry(check.name.clone()).or_default();
        if !told && brief.len() < BRIEF_MAX {
            brief.push((object.node.clone(), object.into()));
        }
    }

    pub(super) fn heard(&mut self, source: &Source, now: Now) -> bool {
        let was_fresh = self.is_fresh(source, now.mono);
        let Some(feed) = self.feeds.get_mut(source) else { return false };
        // What a list shows is not yet the whole: it makes nothing fresh before its end.
        if feed.unseen.is_some() {
            return false;
        }
        (feed.broken, feed.heard_at) = (false, now.mono);
        if !was_fresh {
            feed.fresh_since = now.mono;
        }
        !was_fresh
    }

    fn news(&self, source: &Source, now: Mono) -> News {
        match self.is_listing(source) {
            true => News::Listed,
            false => News::Watched { fresh: self.is_up_to_date(source, now) },
        }
    }

    /// What it shows has just happened, as far as anybody can tell.
    pub(super) fn is_up_to_date(&self, source: &Source, now: Mono) -> bool {
        let caught_up = |feed: &Feed| now.since(feed.fresh_since) >= CAUGHT_UP_AFTER;
        self.is_fresh(source, now) && self.feeds.get(source).is_some_and(caught_up)
    }

    pub(super) fn broken(&mut self, source: &Source, now: Mono) -> bool {
        let Some(feed) = self.feeds.get_mut(source).filter(|feed| !feed.broken) else { return false };
        (feed.broken, feed.broken_at) = (true, now);
        if now.since(feed.fresh_since) > WELL_AFTER {
            feed.unwell_since = now;
        }
        true
    }

    pub(super) fn forget(&mut self, source: &Source, now: Mono) -> bool {
        match source {
            Source::Objects(kind) => self.objects.retain(|key, _| key.kind != *kind),
            Source::Etcd => self.etcd.all_gone(&self.nodes, now),
            Source::OwnNamespace => self.pause.forbidden = false,
            Source::Budgets => self.budgets.clear(),
            Source::Guards => self.guards.clear(),
            Source::Rivals(rival) => drop(self.rivals.remove(rival)),
            Source::MachineChecks(_)
            | Source::Machines(_)
            | Source::Clusters(_)
            | Source::Access(_)
            | Source::RemoteNodes(_)
            | Source::RemoteEtcd(_) => self.fleet.forget(source, now),
            Source::NodeLeases => self.node_leases.clear(),
            Source::Signals(signal) => self.signals.forget(*signal),
            Source::Nodes | Source::Checks | Source::Kinds => {}
        }
        self.strays.remove(source);
        self.feeds.remove(source).is_some()
    }

    pub(super) fn unreadable(&mut self, source: &Source, name: &Name, why: Name, now: Now) -> bool {
        self.heard(source, now);
        self.mark_seen(source, name);
        match source {
            Source::Nodes => match self.nodes.get_mut(name) {
                Some(known) => known.unreadable.replace(why).is_none(),
                None => self.unreadable.insert(name.clone(), why).is_none(),
            },
            // A check or a template that cannot be read at all has nothing to report on but the log.
            Source::Checks => self.checks.remove(name).is_some(),
            // What it was before it could not be read is as good a guess as any.
            Source::OwnNamespace
            | Source::Kinds
            | Source::Objects(_)
            | Source::NodeLeases
            | Source::Etcd
            | Source::Budgets
            | Source::Guards
            | Source::Rivals(_)
            | Source::RemoteEtcd(_)
            // These are read so carefully that nothing but a name is needed; what is wrong with the rest, they say themselves.
            | Source::MachineChecks(_)
            | Source::Machines(_)
            | Source::Clusters(_) => false,
            Source::Access(cluster) => {
                let access = Err(Invalid(why));
                self.fleet.access.insert(cluster.clone(), access.clone()).is_none_or(|before| before != access)
            }
            Source::RemoteNodes(cluster) if !self.fleet.is_taken(cluster, now.mono) => false,
            Source::RemoteNodes(cluster) => {
                let region = self.fleet.region_mut(cluster);
                region.cannot_read(name, why) | self.overflows(cluster.clone(), now)
            }
            // Somebody says something that we do not understand: in doubt, nothing starts.
            Source::Signals(signal) if !self.is_signal(*signal, name) => self.stray_seen(source.clone(), name.clone()),
            Source::Signals(signal) => {
                let what = format!("{source}: {name} cannot be read: {why}").into();
                self.signals.says(*signal, name.clone(), SignalFact::Busy { what, lasts: None, nodes: [].into() }, &self.clock, now)
            }
        }
    }

    pub(super) fn is_listing(&self, source: &Source) -> bool {
        self.feeds.get(source).is_some_and(|feed| feed.unseen.is_some())
    }

    pub(super) fn mark_seen(&mut self, source: &Source, name: &Name) {
        if let Some(unseen) = self.feeds.get_mut(source).and_then(|feed| feed.unseen.as_mut()) {
            unseen.remove(name);
        }
    }

    pub(super) fn drop_check(&mut self, name: &Name) {
        if let Some(check) = self.checks.remove(name) {
            self.settled.remove(&check.key());
            self.status_sent.remove(&check.key());
        }
        self.brief.remove(name);
        self.signals.forget_check(name);
    }

    fn drop_machine_check(&mut self, check: &MachineCheck) {
        self.settled.remove(&check.key());
        self.status_sent.remove(&check.key());
        self.fleet.repaired.remove(&check.key());
    }
}

fn list_name(key: &ObjectKey) -> Name {
    match &key.namespace {
        Some(namespace) => format!("{namespace}/{}", key.name).into(),
        None => key.name.clone(),
    }
}
