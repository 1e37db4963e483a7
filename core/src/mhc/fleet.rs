//! What do we know of all machines, together?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::effect::EffectKey;
use crate::etcd::Etcd;
use crate::event::Event;
use crate::facts::{Condition, Invalid, Name, Node, Object, ObjectKey, Source};
use crate::health::{self, Known, News};
use crate::mhc::facts::{Access, Cluster, ClusterKey, Dialect, Flavour, MACHINE_CHECK_KIND, Machine, MachineCheck, Place};
use crate::mhc::identity::{Found, Identity, State};
use crate::reasons;
use crate::time::{Clock, Mono, Now, Wall};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fleet {
    pub checks: BTreeMap<Place, MachineCheck>,
    pub machines: BTreeMap<Place, Machine>,
    pub clusters: BTreeMap<ClusterKey, Cluster>,
    pub access: BTreeMap<ClusterKey, Result<Access, Invalid>>,
    /// Clusters whose kubeconfig turned out to be of no use, with why, until there is another or it can be used after all.
    pub no_access: BTreeMap<ClusterKey, Name>,
    /// Clusters whose Secret we may not read. What was read before stays, and nothing starts on it.
    pub forbidden: BTreeSet<ClusterKey>,
    /// Clusters whose server sent more than we take.
    pub overflows: BTreeMap<ClusterKey, Overflow>,
    pub identities: BTreeMap<ClusterKey, Identity>,
    pub regions: BTreeMap<ClusterKey, Region>,
    /// What is remembered of their etcd while there is no region.
    etcd: BTreeMap<ClusterKey, Etcd>,
    /// Conditions that are dated into the future, or not at all, by their type: as they stand there, and when that was
    /// first seen.
    ahead: BTreeMap<Place, BTreeMap<Box<str>, (Condition, Wall)>>,
    /// When the last answered look at each Machine was sent.
    pub looks: BTreeMap<Place, Mono>,
    /// Dialects whose definitions drop conditions of the new style: they are older than it.
    pub drops_new: BTreeSet<Dialect>,
    /// Machines on which something of the new style is being written.
    pub wrote_new: BTreeSet<Place>,
    /// What is to be told when a request has been carried out.
    tells: BTreeMap<EffectKey, Vec<Event>>,
    /// What is to be told now.
    pub news: Vec<Event>,
    /// Uids of machines of which was told that they are not deleted, as nobody would make another.
    pub skipped: BTreeSet<Name>,
    /// How many repairs of each check have come to their end, since we began.
    pub repaired: BTreeMap<ObjectKey, u64>,
}

/// The Nodes of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    pub nodes: BTreeMap<Name, Known>,
    /// Nodes of which nothing was ever readable but the name, with why.
    pub unreadable: BTreeMap<Name, Name>,
    pub etcd: Etcd,
    /// Its server's, compared with that of our own server.
    pub clock: Clock,
    /// Bytes that its Nodes take, about.
    weight: usize,
}

/// More than we take was sent, and all of it was forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Overflow {
    pub why: Name,
    /// Nothing is asked for before.
    pub again_at: Mono,
}

/// Who has sent too much is asked again after this: somebody has to do something about it first.
pub const TOO_MUCH_AGAIN: Duration = Duration::from_secs(300);
/// Twice the nodes that Kubernetes supports in one cluster.
pub const REGION_NODES_MAX: usize = 10_000;
/// Five thousand Nodes take eight MiB; and one cluster must not take the memory from all others.
pub const REGION_WEIGHT_MAX: usize = 16 << 20;
/// A cluster has at most a handful, and those of the last hour are remembered.
pub const REGION_ETCD_MAX: usize = 100;

impl Region {
    /// As [`health::take_in`].
    pub fn take_in(&mut self, node: Node, news: News, now: Now) -> Option<Option<Known>> {
        // Its nodes are dated by its own server's clock.
        let now = self.clock.corrected(now);
        let (name, after) = (node.name.clone(), node.weight());
        let freed = self.unreadable.remove(&name).map_or(0, |why| weight(&name, &why));
        self.weight -= freed;
        let before = health::take_in(&mut self.nodes, node, news, &self.clock, now)?;
        self.weight = self.weight + after - before.as_ref().map_or(0, |known| known.node.weight());
        Some(before)
    }

    /// False if that was known.
    pub fn cannot_read(&mut self, name: &Name, why: Name) -> bool {
        match self.nodes.get_mut(name) {
            Some(known) => known.unreadable.replace(why).is_none(),
            None => {
                self.weight += weight(name, &why);
                let before = self.unreadable.insert(name.clone(), why);
                self.weight -= before.as_ref().map_or(0, |why| weight(name, why));
                before.is_none()
            }
        }
    }

    pub fn node_gone(&mut self, name: &Name, now: Mono) -> bool {
        self.weight -= self.unreadable.remove(name).map_or(0, |why| weight(name, &why));
        let known = self.nodes.remove(name);
        self.weight -= known.as_ref().map_or(0, |known| known.node.weight());
        known.iter().for_each(|known| self.etcd.node_left(&known.node, now));
        known.is_some()
    }

    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Is it more than one cluster may have?
    fn too_much(&self) -> Option<String> {
        let nodes = self.nodes.len() + self.unreadable.len();
        match () {
            () if nodes > REGION_NODES_MAX => Some(format!("there are more than {REGION_NODES_MAX} of them")),
            () if self.weight > REGION_WEIGHT_MAX => Some(format!("they take more than {} MiB", REGION_WEIGHT_MAX >> 20)),
            () if self.etcd.size() > REGION_ETCD_MAX => Some(format!("there are more than {REGION_ETCD_MAX} Pods of etcd")),
            () => None,
        }
    }
}

/// What cannot be read has but a name and a reason; the rest is what a map takes for them.
fn weight(name: &Name, why: &Name) -> usize {
    name.len() + why.len() + 4 * size_of::<Name>()
}

/// Above this many events that could not be written the oldest are forgotten: they are for people, and nobody reads more.
const NEWS_MAX: usize = 2000;
/// Of one kind about one object at once.
const ALIKE_MAX: usize = 10;
/// By these a repair comes to its end.
const ENDS: [&str; 2] = [reasons::EVENT_REMEDIATION_REMOVED, reasons::EVENT_MACHINE_DELETED];

impl Fleet {
    /// The machines of a namespace.
    pub fn machines_in(&self, flavour: Flavour, namespace: &Name) -> impl Iterator<Item = &Machine> {
        let first = Place { flavour, namespace: namespace.clone(), name: "".into() };
        let is_there = move |place: &Place| place.flavour == flavour && place.namespace == *namespace;
        self.machines.range(first..).take_while(move |(place, _)| is_there(place)).map(|(_, machine)| machine)
    }

    /// What is dated into the future, or not at all, counts from when it was first seen.
    pub fn date(&mut self, machine: &mut Machine, now: Wall) {
        let known = self.ahead.remove(&machine.place).unwrap_or_default();
        let mut ahead = BTreeMap::new();
        for own in machine.conditions.iter_mut().filter(|own| own.since > now) {
            let seen = known.get(&own.kind).filter(|(known, _)| known.is_since_when(own)).map(|(_, seen_at)| *seen_at);
            let seen_at = seen.unwrap_or(now);
            ahead.insert(own.kind.clone(), (own.clone(), seen_at));
            own.since = seen_at;
        }
        if !ahead.is_empty() {
            self.ahead.insert(machine.place.clone(), ahead);
        }
    }

    pub fn machine_gone(&mut self, place: &Place) -> bool {
        self.ahead.remove(place);
        self.machines.remove(place).is_some()
    }

    /// Was this made for a machine that we know?
    pub fn owns(&self, object: &Object) -> bool {
        let at = |flavour| Place {
            flavour,
            namespace: object.key.namespace.clone().unwrap_or_else(|| "".into()),
            name: object.key.name.clone(),
        };
        let is_owner = |flavour| self.machines.get(&at(flavour)).is_some_and(|machine| machine.is_repaired_by(object));
        Flavour::ALL.into_iter().any(is_owner)
    }

    pub fn region_mut(&mut self, cluster: &ClusterKey) -> &mut Region {
        let Fleet { regions, etcd, .. } = self;
        let begun = || Region { etcd: etcd.get(cluster).cloned().unwrap_or_default(), ..Region::default() };
        regions.entry(cluster.clone()).or_insert_with(begun)
    }

    /// For when its Nodes are out of sight; only of the cluster that it certainly is.
    fn remember_etcd(&mut self, cluster: &ClusterKey, now: Mono) {
        let state = self.identities.get(cluster).map(|identity| &identity.state);
        let is_certain = matches!(state, Some(State::Same { .. } | State::Hidden)) && self.clusters.contains_key(cluster);
        if let Some(region) = self.regions.get(cluster).filter(|_| is_certain) {
            let etcd = region.etcd.out_of_sight(&region.nodes, now);
            match etcd.size() <= REGION_ETCD_MAX {
                true => drop(self.etcd.insert(cluster.clone(), etcd)),
                false => drop(self.etcd.remove(cluster)),
            }
        }
    }

    /// What was remembered was another cluster's.
    fn forget_etcd(&mut self, cluster: &ClusterKey) {
        self.etcd.remove(cluster);
        self.regions.get_mut(cluster).into_iter().for_each(|region| region.etcd.forget_departed());
    }

    /// More was sent than is taken: nothing of it is kept.
    pub fn drop_region(&mut self, cluster: &ClusterKey) {
        self.etcd.remove(cluster);
        self.regions.remove(cluster);
    }

    pub fn region(&self, cluster: &ClusterKey) -> Option<&Region> {
        self.regions.get(cluster)
    }

    /// Is what its server sends taken in at all?
    pub fn is_taken(&self, cluster: &ClusterKey, now: Mono) -> bool {
        self.overflows.get(cluster).is_none_or(|overflow| overflow.again_at <= now)
    }

    pub fn too_much(&self, cluster: &ClusterKey) -> Option<String> {
        self.regions.get(cluster).and_then(Region::too_much)
    }

    /// Since when is it not known which cluster it is?
    pub fn asked_since(&self, cluster: &ClusterKey) -> Option<Mono> {
        match self.identities.get(cluster)?.state {
            State::Asking { since, .. } => Some(since),
            State::Same { .. } | State::Hidden | State::Doubted { .. } => None,
        }
    }

    /// It may have become another since it was asked last.
    pub fn may_change(&mut self, cluster: &ClusterKey, now: Mono) {
        self.remember_etcd(cluster, now);
        if let Some(cluster) = self.clusters.get(cluster) {
            self.identities.entry(cluster.key.clone()).or_insert_with(|| Identity::new(cluster, now)).may_change(now);
        }
    }

    pub fn cluster_seen(&mut self, cluster: Cluster, now: Mono) -> bool {
        if let Some(identity) = self.identities.get_mut(&cluster.key) {
            identity.cluster_seen(&cluster, now);
        }
        let known = self.clusters.get(&cluster.key);
        let changed = known != Some(&cluster);
        if known.is_some_and(|known| known.uid != cluster.uid) {
            self.forget_etcd(&cluster.key);
        }
        self.clusters.insert(cluster.key.clone(), cluster);
        changed
    }

    pub fn cluster_gone(&mut self, cluster: &ClusterKey) -> bool {
        self.identities.remove(cluster);
        self.etcd.remove(cluster);
        self.clusters.remove(cluster).is_some()
    }

    /// Its server has said who it is, or that it does not say.
    pub fn identified(&mut self, key: &ClusterKey, found: Found, sent_at: Mono, now: Mono) {
        let Some(cluster) = self.clusters.get(key) else { return };
        let identity = self.identities.entry(key.clone()).or_insert_with(|| Identity::new(cluster, sent_at));
        let known = identity.known.clone();
        identity.answered(cluster, found, sent_at, now);
        // A person says that it is right.
        if known.is_some() && known != identity.known {
            self.forget_etcd(key);
        }
    }

    /// A request was sent; this is to be told if it is carried out.
    pub fn sent(&mut self, key: EffectKey, tells: &[Event]) {
        match tells.is_empty() {
            true => self.tells.remove(&key),
            false => self.tells.insert(key, tells.to_vec()),
        };
    }

    /// An event was sent. That of a machine stands for itself: no status tells whether it has been told.
    pub fn event_sent(&mut self, event: &Event) {
        if event.reason != reasons::EVENT_NO_CONTROLLER {
            return;
        }
        // What was told of machines that are gone need not be kept; told again, an event has the same name.
        if self.skipped.len() > self.machines.len() {
            self.skipped.clear();
        }
        if self.skipped.insert(event.about_uid.clone()) {
            self.tell([event.clone()]);
        }
    }

    pub fn done(&mut self, key: &EffectKey) {
        let told = self.tells.remove(key).unwrap_or_default();
        let is_end = |event: &&Event| ENDS.contains(&event.reason) && &*event.about.kind.kind == MACHINE_CHECK_KIND;
        for event in told.iter().filter(is_end) {
            *self.repaired.entry(event.about.clone()).or_default() += 1;
        }
        self.tell(told);
    }

    /// It was not carried out, for all that is known.
    pub fn refused(&mut self, key: &EffectKey) {
        self.tells.remove(key);
    }

    pub fn tell(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            let is_known = self.news.iter().any(|known| known.name == event.name && known.about == event.about);
            // When a rack loses power its machines tell, each of itself; their check has said enough by then.
            let alike = self.news.iter().filter(|known| known.about == event.about && known.reason == event.reason);
            if !is_known && alike.count() < ALIKE_MAX {
                self.news.push(event);
            }
        }
        let surplus = self.news.len().saturating_sub(NEWS_MAX);
        self.news.drain(..surplus);
    }

    /// An event needs no further attempt.
    pub fn told(&mut self, about: &ObjectKey, name: &Name) {
        self.news.retain(|event| event.name != *name || event.about != *about);
    }

    /// The names of everything in the source, as a list shows them.
    pub fn names(&self, source: &Source) -> BTreeSet<Name> {
        let full = |place: &Place| Name::from(place.to_string());
        let of = |flavour: Flavour| move |place: &&Place| place.flavour == flavour;
        match source {
            Source::MachineChecks(dialect) => self.checks.keys().filter(of(dialect.flavour())).map(full).collect(),
            Source::Machines(dialect) => self.machines.keys().filter(of(dialect.flavour())).map(full).collect(),
            Source::Clusters(_) => self.clusters.keys().map(cluster_name).collect(),
            Source::Access(cluster) => self.access.get(cluster).map(|_| cluster_name(cluster)).into_iter().collect(),
            Source::RemoteNodes(cluster) => {
                let names = self.regions.get(cluster).map(|region| region.nodes.keys().chain(region.unreadable.keys()));
                names.into_iter().flatten().cloned().collect()
            }
            Source::RemoteEtcd(cluster) => self.regions.get(cluster).map(|region| region.etcd.pods()).unwrap_or_default(),
            _ => BTreeSet::new(),
        }
    }

    /// A list did not show these, so they are gone.
    pub fn checks_gone(&mut self, dialect: Dialect, unseen: &BTreeSet<Name>) -> Vec<MachineCheck> {
        let is_gone = |place: &Place| place.flavour == dialect.flavour() && unseen.contains(place.to_string().as_str());
        let gone: Vec<Place> =
            self.checks.keys().filter(|_| !unseen.is_empty()).filter(|place| is_gone(place)).cloned().collect();
        gone.iter().filter_map(|place| self.checks.remove(place)).collect()
    }

    /// Likewise of the others.
    pub fn drop_unseen(&mut self, source: &Source, unseen: &BTreeSet<Name>, now: Mono) {
        let gone = |flavour: Flavour, place: &Place| place.flavour == flavour && unseen.contains(place.to_string().as_str());
        match source {
            // To compare each would cost more than it is worth where nothing is gone, which is nearly always.
            _ if unseen.is_empty() => {}
            Source::Machines(dialect) => {
                self.machines.retain(|place, _| !gone(dialect.flavour(), place));
                self.ahead.retain(|place, _| !gone(dialect.flavour(), place));
            }
            Source::Clusters(_) => {
                let gone = self.clusters.keys().filter(|key| unseen.contains(&cluster_name(key))).cloned().collect::<Vec<_>>();
                gone.iter().for_each(|key| {
                    self.cluster_gone(key);
                });
            }
            Source::Access(cluster) => {
                self.access.remove(cluster);
                self.no_access.remove(cluster);
            }
            Source::RemoteNodes(cluster) => {
                if let Some(region) = self.regions.get_mut(cluster) {
                    unseen.iter().for_each(|name| {
                        region.node_gone(name, now);
                    });
                }
            }
            Source::RemoteEtcd(cluster) => {
                if let Some(region) = self.regions.get_mut(cluster) {
                    unseen.iter().for_each(|pod| {
                        region.etcd.gone(pod, &region.nodes, now);
                    });
                }
            }
            _ => {}
        }
    }

    /// The source is no longer watched.
    pub fn forget(&mut self, source: &Source, now: Mono) {
        match source {
            Source::MachineChecks(dialect) => self.checks.retain(|_, check| check.dialect != *dialect),
            Source::Machines(dialect) => {
                self.machines.retain(|_, machine| machine.dialect != *dialect);
                self.ahead.retain(|place, _| self.machines.contains_key(place));
            }
            Source::Clusters(_) => self.clusters.clear(),
            Source::Access(cluster) => {
                self.access.remove(cluster);
                self.no_access.remove(cluster);
                self.forbidden.remove(cluster);
            }
            Source::RemoteNodes(cluster) => {
                self.remember_etcd(cluster, now);
                self.regions.remove(cluster);
            }
            Source::RemoteEtcd(cluster) => {
                if let Some(region) = self.regions.get_mut(cluster) {
                    region.etcd.all_gone(&region.nodes, now);
                }
            }
            _ => {}
        }
    }
}

/// As [`crate::input::Input`]s name it.
pub fn cluster_name(cluster: &ClusterKey) -> Name {
    format!("{}/{}", cluster.namespace, cluster.name).into()
}
