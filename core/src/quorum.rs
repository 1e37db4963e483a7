//! May a node of the control plane be taken out of service?
//!
//! One at a time, whichever check asks; and never one that etcd needs for its majority. OpenShift says so itself, by a
//! PodDisruptionBudget over Pods that guard etcd's members; elsewhere the members are counted.

use std::collections::BTreeMap;

use crate::decision::Because;
use crate::effect::EffectKey;
use crate::etcd::Etcd;
use crate::facts::{Name, Node, Signal, Source, Status};
use crate::health::Known;
use crate::mhc::facts::{ClusterKey, Machine};
use crate::plan::machines::sign::is_asked_by_us;
use crate::plan::machines::{Reach, node_here};
use crate::time::Now;
use crate::world::World;

/// What is a node, or a machine by its node, to the control plane? Each waits for those that are at least as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    None,
    /// It has nothing but a Pod of etcd to show. Its kubelet may have made that up, which must not hold back anybody else; but several
    /// that tell the truth are members of one etcd, and wait for each other.
    Shown,
    /// It is one of the control plane or of etcd, by its labels or within the last hour.
    Counted,
}

/// What a plan has just decided to begin with, as a node or a machine of the control plane of this cluster (none: our own).
pub type Starting = BTreeMap<(Option<ClusterKey>, Part), Name>;

pub fn part(world: &World, node: &Name, now: Now) -> Part {
    part_of((&world.nodes, &world.etcd), node, now)
}

/// Its node may be gone.
pub fn machine_part(world: &World, machine: &Machine, reach: Reach, now: Now) -> Part {
    match (machine.is_control_plane(), machine.node.as_ref().zip(view(world, reach))) {
        (true, _) => Part::Counted,
        (false, Some((node, view))) => part_of(view, node, now),
        (false, None) => Part::None,
    }
}

pub fn forbids(world: &World, node: &Node, starting: &Starting, now: Now) -> Option<Because> {
    let part = part(world, &node.name, now);
    if part == Part::None {
        return None;
    }
    let begun = begun(starting, None, part);
    one_at_a_time(under_remediation(world, part, now).chain(begun), [Some(&node.name), None])
        .or_else(|| etcd_needs(world, Some(&node.name), Reach::Here, now))
}

/// Likewise for a machine, whose node may be gone.
pub fn forbids_machine(world: &World, machine: &Machine, reach: Reach, starting: &Starting, now: Now) -> Option<Because> {
    let part = machine_part(world, machine, reach, now);
    if part == Part::None {
        return None;
    }
    let own = [Some(&machine.place.name), machine.node.as_ref()];
    let busy = machines_under_remediation(world, machine, reach, now);
    let nodes = under_remediation(world, part, now).filter(|_| matches!(reach, Reach::Here));
    let begun = begun(starting, reach.key(), part);
    one_at_a_time(busy.chain(nodes).chain(begun), own).or_else(|| etcd_needs(world, machine.node.as_ref(), reach, now))
}

/// `own` are the names of what is asked about.
fn one_at_a_time<'a>(mut busy: impl Iterator<Item = &'a Name>, own: [Option<&Name>; 2]) -> Option<Because> {
    let other = busy.find(|other| !own.contains(&Some(*other)))?;
    Some(Because::ControlPlaneBusy { node: other.clone() })
}

/// Why etcd cannot do without the member on this node.
fn etcd_needs(world: &World, node: Option<&Name>, reach: Reach, now: Now) -> Option<Because> {
    let source = match reach {
        Reach::Here => Source::Etcd,
        Reach::There(cluster, _) => Source::RemoteEtcd(cluster.key.clone()),
        // The first machine of a control plane that has never been up is nobody's majority.
        Reach::NotYet(_) => return None,
    };
    if !world.is_fresh(&source, now.mono) {
        return Some(Because::Stale { source });
    }
    match (reach, view(world, reach)) {
        (Reach::Here, _) if is_openshift(world) != Some(false) => guarded(world, node, now),
        (_, Some((nodes, etcd))) => majority(nodes, etcd, node, now),
        (_, None) => None,
    }
}

type View<'a> = (&'a BTreeMap<Name, Known>, &'a Etcd);

/// The nodes and the etcd of the cluster that a machine belongs to.
fn view<'a>(world: &'a World, reach: Reach<'a>) -> Option<View<'a>> {
    match reach {
        Reach::Here => Some((&world.nodes, &world.etcd)),
        Reach::There(_, region) => Some((&region.nodes, &region.etcd)),
        Reach::NotYet(_) => None,
    }
}

fn part_of((nodes, etcd): View, node: &Name, now: Now) -> Part {
    let has_host = etcd.has_host(node, now.mono);
    match nodes.get(node) {
        Some(known) if known.is_control_plane || etcd.remembers(node, now.mono) => Part::Counted,
        Some(_) if has_host => Part::Shown,
        None if has_host => Part::Counted,
        Some(_) | None => Part::None,
    }
}

fn begun<'a>(starting: &'a Starting, cluster: Option<&'a ClusterKey>, part: Part) -> impl Iterator<Item = &'a Name> {
    let is_waited_for = move |(own, other): &(Option<ClusterKey>, Part)| own.as_ref() == cluster && *other >= part;
    starting.iter().filter(move |(key, _)| is_waited_for(key)).map(|(_, name)| name)
}

/// Would enough members of etcd be up without this one?
fn majority(nodes: &BTreeMap<Name, Known>, etcd: &Etcd, without: Option<&Name>, now: Now) -> Option<Because> {
    let mut hosts = etcd.hosts(nodes, now.mono);
    // Where nothing but its Pod makes the node a host, those of all others do, too: who lies holds back nobody else.
    if without.is_some_and(|host| !hosts.contains(host) && etcd.has_host(host, now.mono)) {
        hosts.extend(etcd.shown());
    }
    if hosts.is_empty() {
        return None;
    }
    let ready = hosts.iter().filter(|host| Some(**host) != without && etcd.is_up(host, nodes)).count();
    let needed = hosts.len() / 2 + 1;
    (ready < needed).then_some(Because::EtcdQuorum { ready, needed, of: hosts.len() })
}

/// Machines of the same control plane that are being repaired, or may be.
fn machines_under_remediation<'a>(
    world: &'a World,
    machine: &'a Machine,
    reach: Reach<'a>,
    now: Now,
) -> impl Iterator<Item = &'a Name> {
    let all = world.fleet.machines_in(machine.place.flavour, &machine.place.namespace);
    let part = machine_part(world, machine, reach, now);
    let is_beside = move |other: &&Machine| {
        other.uid != machine.uid && other.cluster() == machine.cluster() && machine_part(world, other, reach, now) >= part
    };
    all.filter(is_beside).filter(|other| is_busy(world, other)).map(|other| &other.place.name)
}

/// Is the machine being repaired, replaced or deleted, or may it be?
fn is_busy(world: &World, machine: &Machine) -> bool {
    let has_remediation = || world.objects.values().any(|object| machine.is_repaired_by(object));
    let is_asked = [EffectKey::DeleteMachine(machine.place.clone()), EffectKey::PowerCycle(machine.place.clone())];
    machine.deleting
        || machine.marks.power_cycle
        || is_asked_by_us(machine)
        || is_asked.iter().any(|key| world.flights.may_have_happened(key))
        || world.flights.may_be_made_for(&machine.place.namespace, &machine.place.name)
        || has_remediation()
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

/// Nodes for which one that is this to the control plane waits: they have a remediation, or may have got one.
fn under_remediation(world: &World, own: Part, now: Now) -> impl Iterator<Item = &Name> {
    let is_waited_for = move |node: &Name| part(world, node, now) >= own;
    // Whoever may write such objects in a namespace of their own could otherwise stop all repairs of the control plane.
    let objects = world.objects.values().filter(|object| object.body.is_none() && world.is_at_home(object));
    let remediated = objects.filter(move |object| object.control_plane || is_waited_for(&object.node)).map(|object| &object.node);
    let of_machines = world
        .fleet
        .machines
        .values()
        .filter_map(|machine| Some((machine, machine.node.as_ref()?)))
        .filter(move |(machine, node)| machine.is_control_plane() || is_waited_for(node))
        .filter(|(machine, _)| node_here(world, machine).is_some() && is_busy(world, machine))
        .map(|(_, node)| node);
    remediated
        .chain(world.maybe_created().map(|(_, creating)| &creating.node).filter(move |node| is_waited_for(node)))
        .chain(of_machines)
}
