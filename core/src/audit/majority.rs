//! Is the control plane of this cluster repaired one at a time, and does etcd keep its majority?
//!
//! Owners look after the control planes that they own, and those of other clusters are not asked about here.

use std::collections::BTreeSet;

use super::start::{OnMachine, OnNode, Start};
use super::{Breach, Rule, is_part};
use crate::effect::{Effect, EffectKey};
use crate::etcd::REMEMBERED_FOR;
use crate::facts::{Name, Object, READY, Source, Status};
use crate::mhc::facts::{Flavour, Machine};
use crate::time::Now;
use crate::world::World;

/// What is to be taken out of service.
struct Taken<'a> {
    effect: &'a Effect,
    /// By which it is known: its node or, without one, its machine.
    name: &'a Name,
    node: Option<&'a Name>,
    /// By its labels, or those of its node. A Pod alone, which any kubelet can show, holds back nobody else.
    is_control_plane: bool,
}

pub fn breaches(world: &World, starts: &[(&Effect, Start)], now: Now) -> Vec<Breach> {
    let taken: Vec<Taken> = starts.iter().filter_map(|(effect, start)| taken(world, effect, start, now)).collect();
    let mut breaches = Vec::new();
    if taken.iter().any(|one| one.is_control_plane) {
        let mut busy = busy(world, now);
        busy.extend(taken.iter().filter(|one| one.is_control_plane).map(|one| one.name));
        let beside = |one: &&Taken| one.is_control_plane && busy.iter().any(|other| *other != one.name);
        breaches.extend(taken.iter().filter(beside).map(|one| Rule::ControlPlane.broken_by(one.effect)));
    }
    let is_needed = |one: &&Taken| {
        one.node.is_some_and(|node| match is_openshift(world) {
            true => one.is_control_plane && is_guarded(world, node),
            false => is_needed(world, node, now),
        })
    };
    breaches.extend(taken.iter().filter(is_needed).map(|one| Rule::Etcd.broken_by(one.effect)));
    breaches
}

fn taken<'a>(world: &World, effect: &'a Effect, start: &Start<'a>, now: Now) -> Option<Taken<'a>> {
    match start {
        Start::Node(OnNode { known, .. }) => {
            let name = &known.node.name;
            Some(Taken { effect, name, node: Some(name), is_control_plane: is_control_plane(world, name, now) })
        }
        Start::Machine(OnMachine { by_owner: true, .. }) => None,
        Start::Machine(OnMachine { machine, .. }) => {
            let node = machine.node.as_ref();
            let is_control_plane = machine.is_control_plane() || node.is_some_and(|node| is_control_plane(world, node, now));
            let name = node.unwrap_or(&machine.place.name);
            is_here(world, machine).then_some(Taken { effect, name, node, is_control_plane })
        }
    }
}

/// Is the machine's node in this cluster?
fn is_here(world: &World, machine: &Machine) -> bool {
    machine.place.flavour == Flavour::OpenShift || machine.cluster().is_none() || world.has_clusters() == Some(false)
}

fn is_control_plane(world: &World, node: &Name, now: Now) -> bool {
    world.nodes.get(node).is_some_and(|known| known.node.is_control_plane()) || departed(world, now).any(|host| host == node)
}

/// Hosts that etcd still waits for, although they are gone or not labelled any more.
fn departed(world: &World, now: Now) -> impl Iterator<Item = &Name> {
    let has_pod = |host: &Name| world.etcd.members().any(|pod| pod.node == *host);
    let all = world.etcd.departures().filter(move |(host, at)| now.mono.since(**at) < REMEMBERED_FOR || has_pod(host));
    all.map(|(host, _)| host)
}

/// Nodes of the control plane on which something is at work, or may be.
fn busy(world: &World, now: Now) -> BTreeSet<&Name> {
    let objects = world.objects.values().filter(|object| object.body.is_none() && world.is_at_home(object));
    let exist = objects.filter(|object| object.control_plane || is_control_plane(world, &object.node, now));
    let may_exist = world.maybe_created().map(|(_, creating)| &creating.node);
    let machines = world.fleet.machines.values().filter_map(|machine| Some((machine, machine.node.as_ref()?)));
    let machines = machines.filter(|(machine, node)| machine.is_control_plane() || is_control_plane(world, node, now));
    let machines = machines.filter(|(machine, node)| is_on_its_node(world, machine, node) && is_under_repair(world, machine));
    exist
        .map(|object| &object.node)
        .chain(may_exist.filter(|node| is_control_plane(world, node, now)))
        .chain(machines.map(|(_, node)| node))
        .collect()
}

fn is_on_its_node(world: &World, machine: &Machine, node: &Name) -> bool {
    let ids = world.nodes.get(node).and_then(|known| Some((known.node.provider_id.as_ref()?, machine.provider_id.as_ref()?)));
    is_here(world, machine) && ids.is_none_or(|(node, machine)| machine.is_of_the_host_of(node))
}

/// By anybody but its owner.
fn is_under_repair(world: &World, machine: &Machine) -> bool {
    let asked = [EffectKey::DeleteMachine(machine.place.clone()), EffectKey::PowerCycle(machine.place.clone())];
    let is_of_it =
        |namespace: Option<&Name>, name: &Name| namespace == Some(&machine.place.namespace) && *name == machine.place.name;
    let mut creations = world.flights.creations().filter(|key| is_of_it(key.namespace.as_ref(), &key.name));
    // Anybody may write elsewhere what names the machine.
    let is_beside = |object: &Object| object.key.namespace.as_ref() == Some(&machine.place.namespace);
    let mut objects = world.objects.values().filter(|object| is_beside(object)).filter(|object| {
        object.body.is_none() && object.machine_check.is_some() && object.has_owner(&machine.uid) && !is_part(object, machine)
    });
    machine.deleting
        || machine.marks.power_cycle
        || asked.iter().any(|key| world.flights.may_have_happened(key))
        || creations.next().is_some()
        || objects.next().is_some()
}

/// Does a member of etcd run there without which fewer than its majority would be up, for all that is known?
fn is_needed(world: &World, node: &Name, now: Now) -> bool {
    let is_labelled = |name: &Name| world.nodes.get(name).is_some_and(|known| known.node.has_etcd_label());
    let has_pod = |name: &Name| world.etcd.members().any(|pod| pod.node == *name);
    let pods = world.etcd.members().map(|pod| &pod.node);
    // Anybody can show a Pod that looks like a member, but not on a node of the control plane.
    let counted = pods.clone().filter(|name| world.nodes.get(*name).is_none_or(|known| known.node.is_control_plane()));
    let mut hosts: BTreeSet<&Name> = counted.chain(departed(world, now)).collect();
    hosts.extend(world.nodes.keys().filter(|name| is_labelled(name)));
    if !hosts.contains(node) && has_pod(node) {
        hosts.extend(pods);
    }
    if !hosts.contains(node) {
        return false;
    }
    if !world.is_fresh(&Source::Etcd, now.mono) {
        return true;
    }
    let up = hosts.iter().filter(|host| **host != node && is_up(world, host)).count();
    2 * up <= hosts.len()
}

/// It guards its etcd itself. So does, for all that is known, who has not been asked yet.
fn is_openshift(world: &World) -> bool {
    world.kinds.get("config.openshift.io/v1").is_none_or(|kinds| kinds.served.contains_key("ClusterVersion"))
}

/// Etcd's own budget says whether a member may go. One that is down already is not taken from it.
fn is_guarded(world: &World, node: &Name) -> bool {
    let is_up = |ready: &Option<Status>| matches!(ready, Some(Status::True | Status::Unknown));
    let guards = || world.guards.values().filter(|guard| guard.node == *node && is_up(&guard.ready));
    let mut full = world.budgets.values().filter(|budget| budget.disruptions_allowed == 0);
    full.any(|budget| guards().any(|guard| budget.selector.selects(&guard.labels)))
}

fn is_up(world: &World, host: &Name) -> bool {
    let Some(known) = world.nodes.get(host).filter(|known| known.unreadable.is_none()) else { return false };
    let is_ready = known.node.conditions.iter().any(|own| &*own.kind == READY && own.status == Status::True);
    let mut pods = world.etcd.members().filter(|pod| pod.node == *host).peekable();
    // Where members run without Pods, the Node has to do.
    is_ready && if pods.peek().is_some() { pods.all(|pod| pod.ready) } else { known.node.has_etcd_label() }
}
