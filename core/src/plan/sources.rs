//! What must have been heard before anything is decided under a check?

use super::machines::{Reach, clusters};
use crate::facts::{Check, Kind, Rival, Source};
use crate::kinds;
use crate::mhc::facts::{Flavour, MachineCheck, MachinePolicy};
use crate::time::Mono;
use crate::world::World;

pub(super) fn of_check(world: &World, check: &Check, now: Mono) -> Vec<Source> {
    let mut sources = vec![Source::Nodes, Source::Checks, Source::NodeLeases];
    sources.extend(rivals(world, Rival::Medik8s, check.take_over, now));
    sources.extend(of_kinds(world, kinds::of_check(world, check)));
    sources
}

pub(super) fn of_machine_check(
    world: &World,
    check: &MachineCheck,
    policy: &MachinePolicy,
    reach: Reach,
    now: Mono,
) -> Vec<Source> {
    let mut sources = vec![Source::MachineChecks(check.dialect), Source::Machines(check.dialect)];
    match reach {
        Reach::Here => sources.push(Source::Nodes),
        Reach::There(cluster, _) => sources.push(Source::RemoteNodes(cluster.key.clone())),
        Reach::NotYet(_) => {}
    }
    // Whether there are Clusters at all decides where nodes are looked for.
    if check.place.flavour == Flavour::ClusterApi {
        sources.push(Source::Kinds);
    }
    if check.cluster.is_some() {
        sources.extend(clusters(world).ok().flatten().map(Source::Clusters));
    }
    sources.extend(rivals(world, Rival::of(check.place.flavour), check.take_over, now));
    sources.extend(of_kinds(world, kinds::of_machine_policy(world, policy)));
    sources
}

/// Whether another controller takes care of the check.
fn rivals(world: &World, rival: Rival, take_over: bool, now: Mono) -> Option<Source> {
    (!take_over && !world.is_blind_to(rival, now)).then_some(Source::Rivals(rival))
}

/// One that is not served has nothing to say. One that was not asked about yet is never synced, as nothing is listed under its
/// name.
fn of_kinds(world: &World, kinds: impl IntoIterator<Item = Kind>) -> impl Iterator<Item = Source> {
    let is_heard = |kind: &Kind| !world.kinds.contains_key(&kind.api_version) || world.served(kind).is_some();
    kinds.into_iter().filter(is_heard).map(Source::Objects)
}
