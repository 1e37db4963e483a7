//! May a node of the control plane be taken out of service?
//!
//! One at a time, whichever check asks; and never one that etcd needs for its majority. OpenShift says so itself, by a
//! PodDisruptionBudget over Pods that guard etcd's members; elsewhere the members are counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Because;
use crate::effect::EffectKey;
use crate::facts::{ETCD_LABEL, Name, Node, Signal, Source, Status};
use crate::health::Known;
use crate::mhc::facts::Machine;
use crate::plan::machines::Reach;
use crate::time::Now;
use crate::world::World;

/// `starting` is the one that something has just been decided on.
pub fn forbids(world: &World, node: &Node, starting: Option<&Name>, now: Now) -> Option<Because> {
    if !node.is_control_plane() {
        return None;
    }
    if let Some(other) = under_remediation(world).chain(starting).find(|other| **other != node.name) {
        return Some(Because::ControlPlaneBusy { node: other.clone() });
    }
    if !world.is_fresh(&Source::Etcd, now.mono) {
        return Some(Because::Stale { source: Source::Etcd });
    }
    match is_openshift(world) {
        Some(false) => majority(&world.nodes, &world.etcd, Some(&node.name)),
        Some(true) | None => guarded(world, Some(&node.name), now),
    }
}

/// Likewise for a machine, whose node may be gone.
pub fn forbids_machine(
    world: &World,
    machine: &Machine,
    node: Option<&Node>,
    reach: Reach,
    starting: Option<&Name>,
    now: Now,
) -> Option<Because> {
    if !machine.is_control_plane() && !node.is_some_and(Node::is_control_plane) {
        return None;
    }
    let own = [Some(&machine.place.name), machine.node.as_ref()];
    let busy = machines_under_remediation(world, machine);
    let nodes = under_remediation(world).filter(|_| matches!(reach, Reach::Here));
    if let Some(other) = busy.chain(nodes).chain(starting).find(|other| !own.contains(&Some(*other))) {
        return Some(Because::ControlPlaneBusy { node: other.clone() });
    }
    let source = match reach {
        Reach::Here => Source::Etcd,
        Reach::There(cluster, _) => Source::RemoteEtcd(cluster.key.clone()),
        // The first machine of a control plane that has never been up is nobody's majority.
        Reach::NotYet(_) => return None,
    };
    if !world.is_fresh(&source, now.mono) {
        return Some(Because::Stale { source });
    }
    match reach {
        Reach::There(_, region) => majority(&region.nodes, &region.etcd, machine.node.as_ref()),
        Reach::Here if is_openshift(world) == Some(false) => majority(&world.nodes, &world.etcd, machine.node.as_ref()),
        Reach::Here | Reach::NotYet(_) => guarded(world, machine.node.as_ref(), now),
    }
}

/// Would enough members of etcd be on ready nodes without this one?
fn majority(nodes: &BTreeMap<Name, Known>, etcd: &BTreeMap<Name, Name>, without: Option<&Name>) -> Option<Because> {
    let labelled = nodes.values().filter(|known| known.node.labels.get(ETCD_LABEL).is_some());
    let hosts: BTreeSet<&Name> = labelled.map(|known| &known.node.name).chain(etcd.values()).collect();
    if hosts.is_empty() {
        return None;
    }
    let is_ready = |host: &&&Name| nodes.get(**host).is_some_and(|known| known.unreadable.is_none() && known.node.is_ready());
    let ready = hosts.iter().filter(|host| Some(**host) != without).filter(is_ready).count();
    let needed = hosts.len() / 2 + 1;
    (ready < needed).then_some(Because::EtcdQuorum { ready, needed, of: hosts.len() })
}

/// Machines of the same control plane that are being repaired, or may be.
fn machines_under_remediation<'a>(world: &'a World, machine: &'a Machine) -> impl Iterator<Item = &'a Name> {
    let all = world.fleet.machines_in(machine.place.flavour, &machine.place.namespace);
    let is_busy = |other: &&Machine| {
        let has_remediation =
            world.objects.values().any(|object| object.body.is_none() && object.owners.iter().any(|uid| **uid == *other.uid));
        let is_asked = [EffectKey::DeleteMachine(other.place.clone()), EffectKey::PowerCycle(other.place.clone())];
        other.deleting
            || other.marks.power_cycle
            || has_remediation
            || is_asked.iter().any(|key| world.flights.may_have_happened(key))
            || world.flights.may_be_made_for(&other.place.namespace, &other.place.name)
    };
    let is_beside =
        |other: &&Machine| other.uid != machine.uid && other.is_control_plane() && other.cluster() == machine.cluster();
    all.filter(is_beside).filter(is_busy).map(|other| &other.place.name)
}

/// None while nobody has asked yet.
pub fn is_openshift(world: &World) -> Option<bool> {
    let kind = Signal::ClusterVersions.kind()?;
    world.kinds.get(&kind.api_version).map(|kinds| kinds.served.contains_key(&kind.kind))
}

/// A member of etcd that is down already cannot be taken from it.
fn guarded(world: &World, node: Option<&Name>, now: Now) -> Option<Because> {
    let stale = |source: &Source| !world.is_fresh(source, now.mono);
    if let Some(source) = [Source::Budgets, Source::Guards].into_iter().find(stale) {
        return Some(Because::Stale { source });
    }
    let mut budgets = world.budgets.values();
    let (Some(budget), None) = (budgets.next(), budgets.next()) else {
        return Some(Because::EtcdBudgets { found: world.budgets.len() });
    };
    let mut guards = world.guards.values().filter(|guard| Some(&guard.node) == node && budget.selector.selects(&guard.labels));
    let is_up = guards.any(|guard| matches!(guard.ready, Some(Status::True | Status::Unknown)));
    (budget.disruptions_allowed == 0 && is_up).then_some(Because::EtcdGuarded)
}

/// Nodes of the control plane that have a remediation, or may have got one.
fn under_remediation(world: &World) -> impl Iterator<Item = &Name> {
    let is_control_plane = |node: &Name| world.nodes.get(node).is_some_and(|known| known.node.is_control_plane());
    let objects = world.objects.values().filter(|object| object.body.is_none());
    let remediated =
        objects.filter(move |object| object.control_plane || is_control_plane(&object.node)).map(|object| &object.node);
    let machines = world.fleet.machines.values().filter(|machine| machine.is_control_plane());
    let of_machines =
        machines.filter(|machine| machine.marks.power_cycle || machine.deleting).filter_map(|machine| machine.node.as_ref());
    remediated.chain(world.maybe_remediated().filter(move |node| is_control_plane(node))).chain(of_machines)
}
