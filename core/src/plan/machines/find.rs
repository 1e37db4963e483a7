//! What has to be watched to take care of machines?

use std::collections::{BTreeMap, BTreeSet};

use super::is_target;
use crate::decision::Because;
use crate::effect::Effect;
use crate::etcd::Etcd;
use crate::facts::{Claim, Name, Rival, Source};
use crate::health::Known;
use crate::mhc::facts::{
    CLUSTER_KIND, ClusterKey, Dialect, Flavour, MACHINE_CHECK_KIND, MACHINE_KIND, Machine, MachineCheck, Repair,
};
use crate::mhc::identity::State;
use crate::plan::Draft;
use crate::time::Mono;
use crate::world::World;

impl Draft<'_> {
    /// An API that is not there costs nothing but the look at the definitions that there are.
    pub(crate) fn find_machines(&mut self) {
        if self.world.machine_claim == Claim::Off {
            return;
        }
        for flavour in Flavour::ALL {
            if self.world.has_machine_checks(flavour) == Some(true) {
                self.ask_for_dialects(flavour);
                self.watch_machines(flavour);
            }
        }
    }

    fn ask_for_dialects(&mut self, flavour: Flavour) {
        let is_served = served(self.world, flavour, &[MACHINE_CHECK_KIND, MACHINE_KIND]).is_some();
        for dialect in flavour.dialects() {
            self.discover(&dialect.api_version().into(), !is_served);
        }
    }

    fn watch_machines(&mut self, flavour: Flavour) {
        let Some(dialect) = served(self.world, flavour, &[MACHINE_CHECK_KIND, MACHINE_KIND]) else { return };
        self.plan.watches.insert(Source::MachineChecks(dialect));
        // Also where no check is left: what was written on machines under one that is gone has to be cleared.
        self.plan.watches.insert(Source::Machines(dialect));
        // And what is paused is not touched, whether a check names it or not.
        if let (Flavour::ClusterApi, Ok(Some(dialect))) = (flavour, clusters(self.world)) {
            self.plan.watches.insert(Source::Clusters(dialect));
        }
        let world = self.world;
        let checks = world.fleet.checks.values().filter(|check| check.dialect == dialect && world.is_our_machine_check(check));
        for check in checks.filter(|check| !check.deleting) {
            self.plan.watches.insert(Source::Rivals(Rival::of(flavour)));
            self.watch_cluster(check);
            if is_here(world, check) && self.needs_etcd(check, &world.nodes, &world.etcd) {
                self.plan.watches.insert(Source::Etcd);
                self.wake(world.etcd.forgets_at(self.now.mono));
                self.find_openshift();
            }
        }
    }

    /// Who repairs machines of the control plane by other means than its owner has to know about etcd.
    fn needs_etcd(&self, check: &MachineCheck, nodes: &BTreeMap<Name, Known>, etcd: &Etcd) -> bool {
        let Ok(policy) = &check.policy else { return false };
        // A few of many thousands, and every plan asks.
        let masters: BTreeSet<&Name> = nodes.iter().filter(|(_, known)| known.is_control_plane).map(|(name, _)| name).collect();
        let is_host = |node: &Name| masters.contains(node) || etcd.has_host(node, self.now.mono);
        let concerns = |machine: &Machine| match machine.is_control_plane() {
            true => policy.repair != Repair::Owner,
            false => machine.node.as_ref().is_some_and(is_host),
        };
        let mut machines = self.world.fleet.machines_in(check.place.flavour, &check.place.namespace);
        machines.any(|machine| concerns(machine) && is_target(self.world, machine, check, policy))
    }

    fn watch_cluster(&mut self, check: &MachineCheck) {
        let (Ok(Some(_)), Some(name)) = (clusters(self.world), &check.cluster) else { return };
        let key = ClusterKey { namespace: check.place.namespace.clone(), name: name.clone() };
        let is_up = self.world.fleet.clusters.get(&key).is_some_and(|cluster| cluster.control_plane_initialized_at.is_some());
        if !is_up {
            return;
        }
        self.plan.watches.insert(Source::Access(key.clone()));
        if !matches!(self.world.fleet.access.get(&key), Some(Ok(_))) {
            return;
        }
        if let Some(again_at) = self.is_left_alone_until(&key) {
            return self.wake(Some(again_at));
        }
        self.plan.watches.insert(Source::RemoteNodes(key.clone()));
        self.identify(&key);
        let region = self.world.fleet.region(&key);
        let needs_etcd = match region {
            Some(region) => self.needs_etcd(check, &region.nodes, &region.etcd),
            None => self.needs_etcd(check, &BTreeMap::new(), &Etcd::default()),
        };
        if needs_etcd {
            self.wake(region.and_then(|region| region.etcd.forgets_at(self.now.mono)));
            self.plan.watches.insert(Source::RemoteEtcd(key));
        }
    }

    /// Who sent too much, or is not whom we know, is not listened to for a while.
    fn is_left_alone_until(&self, key: &ClusterKey) -> Option<Mono> {
        let fleet = &self.world.fleet;
        let doubted = match fleet.identities.get(key).map(|identity| &identity.state) {
            Some(State::Doubted { again_at, .. }) => Some(*again_at),
            None | Some(State::Asking { .. } | State::Same { .. } | State::Hidden) => None,
        };
        let too_much = fleet.overflows.get(key).map(|overflow| overflow.again_at);
        doubted.max(too_much).filter(|at| *at > self.now.mono)
    }

    /// When its Nodes have been listed, and it answers, it is asked who it is.
    fn identify(&mut self, key: &ClusterKey) {
        match self.world.fleet.identities.get(key).map(|identity| &identity.state) {
            None | Some(State::Asking { .. }) => {}
            Some(State::Hidden) => return self.plan.unidentified.push(key.clone()),
            Some(State::Same { .. } | State::Doubted { .. }) => return,
        }
        let effect = Effect::Identify { cluster: key.clone() };
        // Several checks may watch over one Cluster.
        if self.world.is_fresh(&Source::RemoteNodes(key.clone()), self.now.mono) && !self.plan.effects.contains(&effect) {
            self.send(effect);
        }
    }
}

/// The newest version that serves all of these. None too while one that is newer has not been asked for.
fn served(world: &World, flavour: Flavour, wanted: &[&str]) -> Option<Dialect> {
    for dialect in flavour.dialects() {
        let kinds = world.kinds.get(dialect.api_version())?;
        if wanted.iter().all(|kind| kinds.served.contains_key(*kind)) {
            return Some(*dialect);
        }
    }
    None
}

/// Are the nodes of the check's machines in this cluster?
pub fn is_here(world: &World, check: &MachineCheck) -> bool {
    check.place.flavour == Flavour::OpenShift || check.cluster.is_none() || clusters(world) == Ok(None)
}

/// How Clusters are read; where there is no such kind, machines are of this cluster. To take one that is not served yet for one
/// that does not exist would be to look for nodes in the wrong place, and to find them gone.
pub fn clusters(world: &World) -> Result<Option<Dialect>, Because> {
    match (world.has_clusters(), served(world, Flavour::ClusterApi, &[CLUSTER_KIND])) {
        (Some(false), _) => Ok(None),
        (Some(true), Some(dialect)) => Ok(Some(dialect)),
        (Some(true) | None, _) => Err(Because::Stale { source: Source::Kinds }),
    }
}
