//! May a node of the control plane be taken out of service?
//!
//! One at a time, whichever check asks; and never one that etcd needs for its majority. OpenShift says so itself, by a
//! PodDisruptionBudget over Pods that guard etcd's members; elsewhere the members are counted.

use std::collections::BTreeSet;

use crate::decision::Because;
use crate::facts::{ETCD_LABEL, Name, Node, Signal, Source, Status};
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
    if is_openshift(world) != Some(false) {
        return guarded(world, node, now);
    }
    let hosts = etcd_hosts(world);
    if hosts.is_empty() {
        return None;
    }
    let is_ready = |host: &&Name| world.nodes.get(*host).is_some_and(|known| known.unreadable.is_none() && known.node.is_ready());
    let ready = hosts.iter().filter(|host| **host != node.name).filter(is_ready).count();
    let needed = hosts.len() / 2 + 1;
    (ready < needed).then_some(Because::EtcdQuorum { ready, needed, of: hosts.len() })
}

/// None while nobody has asked yet.
pub fn is_openshift(world: &World) -> Option<bool> {
    let kind = Signal::ClusterVersions.kind()?;
    world.kinds.get(&kind.api_version).map(|kinds| kinds.served.contains_key(&kind.kind))
}

/// A member of etcd that is down already cannot be taken from it.
fn guarded(world: &World, node: &Node, now: Now) -> Option<Because> {
    let stale = |source: &Source| !world.is_fresh(source, now.mono);
    if let Some(source) = [Source::Budgets, Source::Guards].into_iter().find(stale) {
        return Some(Because::Stale { source });
    }
    let mut budgets = world.budgets.values();
    let (Some(budget), None) = (budgets.next(), budgets.next()) else {
        return Some(Because::EtcdBudgets { found: world.budgets.len() });
    };
    let mut guards = world.guards.values().filter(|guard| guard.node == node.name && budget.selector.selects(&guard.labels));
    let is_up = guards.any(|guard| matches!(guard.ready, Some(Status::True | Status::Unknown)));
    (budget.disruptions_allowed == 0 && is_up).then_some(Because::EtcdGuarded)
}

/// Nodes of the control plane that have a remediation, or may have got one.
fn under_remediation(world: &World) -> impl Iterator<Item = &Name> {
    let is_control_plane = |node: &Name| world.nodes.get(node).is_some_and(|known| known.node.is_control_plane());
    let objects = world.objects.values().filter(|object| object.body.is_none());
    let remediated =
        objects.filter(move |object| object.control_plane || is_control_plane(&object.node)).map(|object| &object.node);
    remediated.chain(world.maybe_remediated().filter(move |node| is_control_plane(node)))
}

fn etcd_hosts(world: &World) -> BTreeSet<Name> {
    let labelled = world.nodes.values().filter(|known| known.node.labels.get(ETCD_LABEL).is_some());
    labelled.map(|known| known.node.name.clone()).chain(world.etcd.values().cloned()).collect()
}
