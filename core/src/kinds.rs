//! Which kinds does anybody need to know?
//!
//! Whoever writes a check chooses a kind of templates, and whoever writes on a Machine may have it name a kind. What is made from
//! templates is listed only where there are such templates, so that nobody chooses what else we list; and what nobody needs any more
//! is forgotten.

use std::collections::BTreeSet;

use crate::escalate;
use crate::facts::{Check, Kind, Name, Signal};
use crate::mhc::facts::{Flavour, MachinePolicy, Repair};
use crate::plan::machines::kind_on;
use crate::time::Mono;
use crate::world::World;

/// Of templates, of what is made from them, and of what is or may be there already.
pub fn wanted(world: &World) -> BTreeSet<Kind> {
    let of_nodes = world.checks.values().filter(|check| world.is_ours(check)).flat_map(|check| of_check(world, check));
    let ours = world.fleet.checks.values().filter(|check| world.is_our_machine_check(check));
    let policies = ours.filter_map(|check| check.policy.as_ref().ok());
    let of_machines = policies.flat_map(|policy| of_machine_policy(world, policy));
    let on_machines = world.fleet.machines.values().filter_map(kind_on);
    let on_machines = on_machines.flat_map(|kind| of_template(world, &escalate::template_kind(&kind)));
    let on_their_way = world.flights.creations().map(|key| key.kind.clone());
    // What was made stays in sight until it is gone, even if nobody would make such a thing any more.
    let for_machines = world.objects.values().filter(|object| object.machine_check.is_some()).map(|object| &object.key);
    let there = world.left_behind().into_values().chain(for_machines).map(|key| key.kind.clone());
    of_nodes.chain(of_machines).chain(on_machines).chain(on_their_way).chain(there).collect()
}

/// The kinds that a check needs, and of what it has already on nodes.
pub fn of_check(world: &World, check: &Check) -> BTreeSet<Kind> {
    let steps = check.policy.iter().flat_map(|policy| &policy.steps);
    let policy = steps.flat_map(|step| of_template(world, &step.template.kind));
    let listed = check.status.unhealthy.iter().flat_map(|node| &node.remediations).map(|remediation| &remediation.key);
    // The status may not tell of them yet.
    let there = world.objects.values().filter(|object| world.is_work_of(object, &check.uid)).map(|object| &object.key);
    policy.chain(listed.chain(there).map(|key| key.kind.clone())).filter(|kind| kind.api_version.contains('/')).collect()
}

/// The kinds that a check of machines needs.
pub fn of_machine_policy(world: &World, policy: &MachinePolicy) -> Vec<Kind> {
    match &policy.repair {
        Repair::Template { kind, .. } => of_template(world, kind).collect(),
        Repair::Owner | Repair::PowerCycle | Repair::Deletion => Vec::new(),
    }
}

/// Is it served, and so are the templates that it is made from?
pub fn is_made(world: &World, kind: &Kind) -> bool {
    world.served(kind).is_some() && world.served(&escalate::template_kind(kind)).is_some()
}

fn of_template(world: &World, template: &Kind) -> impl Iterator<Item = Kind> + use<> {
    let made = world.served(template).map(|_| escalate::remediation_kind(template));
    [Some(template.clone()), made].into_iter().flatten()
}

/// The API versions of all that anybody asks about.
pub fn api_versions(world: &World) -> BTreeSet<Name> {
    let dialects = Flavour::ALL.into_iter().flat_map(Flavour::dialects).map(|dialect| dialect.api_version().into());
    let signals = Signal::ALL.into_iter().filter_map(|signal| signal.kind()).map(|kind| kind.api_version);
    wanted(world).into_iter().map(|kind| kind.api_version).chain(dialects).chain(signals).collect()
}

/// When to ask which kinds an API has, again or for the first time. None: what is known of it is enough. `missing`: it lacks one
/// that somebody needs.
pub fn due_at(world: &World, api_version: &Name, missing: bool) -> Option<Mono> {
    match world.kinds.get(api_version) {
        None => Some(Mono(i64::MIN)),
        Some(known) if known.changed => Some(Mono(i64::MIN)),
        Some(known) if missing || known.rechecks_left > 0 => Some(known.recheck_at),
        Some(_) => None,
    }
}
