//! Does a first step start although the check allows no more?
//!
//! Whatever is not well counts, so also what the plan itself starts, and so does what exists, and what may exist. Next steps have
//! their place already, and a budget that was lowered later takes nothing back.

use std::collections::{BTreeMap, BTreeSet};

use super::start::{OnMachine, OnNode, Order, Start, node_is_due, watches};
use super::{Breach, Rule, is_owned_whole, is_part};
use crate::effect::{Effect, EffectKey};
use crate::facts::{Amount, Check, Limit, Name, Object, ObjectKey, Policy, READY, Threshold};
use crate::health::Known;
use crate::mhc::facts::{Budget, Machine, MachinePolicy, Place, Repair};
use crate::time::Now;
use crate::world::World;

pub fn breaches(world: &World, starts: &[(&Effect, Start)], now: Now) -> Vec<Breach> {
    let mut crews: BTreeMap<&Name, Crew> = BTreeMap::new();
    let mut is_full: BTreeMap<&Place, bool> = BTreeMap::new();
    let mut breaches = Vec::new();
    for (effect, start) in starts {
        let is_beyond = match start {
            Start::Node(node) if is_next_step(world, node) => false,
            Start::Node(OnNode { known, check, policy }) => {
                let crew = crews.entry(&check.name).or_insert_with(|| Crew::of(world, check, policy));
                crew.is_beyond(known, policy, world.limit)
            }
            Start::Machine(OnMachine { orders, .. }) => orders
                .iter()
                .all(|order| *is_full.entry(&order.check.place).or_insert_with(|| is_beyond_range(world, order, now))),
        };
        breaches.extend(is_beyond.then(|| Rule::Budget.broken_by(effect)));
    }
    breaches
}

/// Something of this check is at work on the node, or was given up since the node has been there.
fn is_next_step(world: &World, OnNode { known, check, .. }: &OnNode) -> bool {
    let node = &known.node;
    let mut objects = world.objects.values().filter(|object| object.node == node.name && is_of(world, check, object));
    let listed = check.status.unhealthy.iter().filter(|listed| listed.name == node.name);
    let mut given_up = listed.flat_map(|listed| &listed.remediations).filter_map(|remediation| remediation.timed_out_at);
    objects.next().is_some() || given_up.any(|at| at >= node.created_at)
}

/// Elsewhere than checks make things anybody may write in the name of one.
fn is_of(world: &World, check: &Check, object: &Object) -> bool {
    object.body.is_none() && is_owned_whole(object, &check.uid) && world.is_at_home(object)
}

/// How many there are, and how many of them are not well.
#[derive(Clone, Copy, Default)]
struct Count {
    of: usize,
    ill: usize,
}

/// The nodes of a check, by zone; all in one where the check has no zones.
struct Crew<'a> {
    zones: BTreeMap<&'a str, Count>,
    /// Nodes that are gone, or no longer selected, on which something is at work or may be.
    outside: usize,
}

impl<'a> Crew<'a> {
    fn of(world: &'a World, check: &Check, policy: &Policy) -> Crew<'a> {
        let exist = world.objects.values().filter(|object| is_of(world, check, object)).map(|object| &object.node);
        let may_exist = world.maybe_created().filter(|(_, creating)| creating.check_uid == check.uid);
        let mut busy: BTreeSet<&Name> = exist.chain(may_exist.map(|(_, creating)| &creating.node)).collect();
        let mut zones: BTreeMap<&str, Count> = BTreeMap::new();
        for known in world.nodes.values().filter(|known| policy.selector.selects(&known.node.labels)) {
            let is_busy = busy.remove(&known.node.name);
            let count = zones.entry(zone_of(known, policy)).or_default();
            count.of += 1;
            count.ill += usize::from(is_busy || !is_well(known, policy));
        }
        Crew { zones, outside: busy.len() }
    }

    /// A zone in which too many are ill is shut and does not count elsewhere.
    fn is_beyond(&self, known: &Known, policy: &Policy, limit: Limit) -> bool {
        let is_shut = |count: &Count| policy.topology_key.is_some() && !is_within(policy.threshold, *count, limit);
        let lit = self.zones.values().filter(|count| !is_shut(count));
        let all = lit.fold(Count::default(), |sum, zone| Count { of: sum.of + zone.of, ill: sum.ill + zone.ill });
        let all = Count { ill: all.ill + self.outside, ..all };
        self.zones.get(zone_of(known, policy)).is_none_or(is_shut) || !is_within(policy.threshold, all, limit)
    }
}

fn zone_of<'a>(known: &'a Known, policy: &Policy) -> &'a str {
    policy.topology_key.as_ref().and_then(|key| known.node.labels.get(key)).unwrap_or_default()
}

/// Nothing is wrong with it, nor may become so by time alone.
fn is_well(known: &Known, policy: &Policy) -> bool {
    let has_reported = known.node.conditions.iter().any(|own| &*own.kind == READY);
    let must_report = policy.rules.iter().any(|rule| &*rule.kind == READY);
    let says_enough = known.unreadable.is_none() && (has_reported || !must_report);
    says_enough && !known.node.deleting && node_is_due(known, policy).is_none()
}

/// Without a division: what is rounded to which side need not be known. Where all are well nothing is too much.
fn is_within(threshold: Threshold, Count { of, ill }: Count, limit: Limit) -> bool {
    let counted = match limit {
        Limit::Allowed => ill,
        Limit::Shut => ill + 1,
    };
    let hundredths = |percent: u32| of * percent.min(100) as usize;
    let is_within = match threshold {
        Threshold::MaxUnhealthy(Amount::Count(max)) => ill <= of && counted <= max as usize,
        Threshold::MaxUnhealthy(Amount::Percent(max)) => 100 * counted <= hundredths(max),
        Threshold::MinHealthy(Amount::Count(min)) => ill + min as usize <= of,
        Threshold::MinHealthy(Amount::Percent(min)) => 100 * ill + hundredths(min) <= 100 * of,
    };
    ill == 0 || is_within
}

/// That too few are ill for an unhealthyRange is not asked: for that it would have to be known who is certainly well.
fn is_beyond_range(world: &World, order: &Order, now: Now) -> bool {
    let (check, policy) = (order.check, order.policy);
    let made: BTreeSet<&Name> = made(world, order).collect();
    let mut count = Count::default();
    for machine in world.fleet.machines_in(check.place.flavour, &check.place.namespace) {
        if watches(world, check, policy, machine) {
            let is_busy = made.contains(&machine.place.name) || is_leaving(world, policy, machine);
            count.of += 1;
            count.ill += usize::from(is_busy || order.is_due(world, machine, now).is_some());
        }
    }
    match policy.budget {
        Budget::AtMost(amount) => !is_within(Threshold::MaxUnhealthy(amount), count, world.limit),
        Budget::Between { max, .. } => count.ill > max as usize,
    }
}

fn is_leaving(world: &World, policy: &MachinePolicy, machine: &Machine) -> bool {
    let asked = [EffectKey::DeleteMachine(machine.place.clone()), EffectKey::PowerCycle(machine.place.clone())];
    let by_request = matches!(policy.repair, Repair::Deletion | Repair::PowerCycle);
    machine.deleting || by_request && asked.iter().any(|key| world.flights.may_have_happened(key))
}

/// Names of machines for which something exists, or may, that is made from the check's template.
fn made<'a>(world: &'a World, order: &Order<'a>) -> impl Iterator<Item = &'a Name> {
    let template = match &order.policy.repair {
        Repair::Template { kind, .. } => Some(kind),
        Repair::Owner | Repair::PowerCycle | Repair::Deletion => None,
    };
    let (place, template) = (&order.check.place, template.and_then(|kind| Some((kind, kind.kind.strip_suffix("Template")?))));
    let is_of_template = move |key: &ObjectKey| {
        key.namespace.as_ref() == Some(&place.namespace)
            && template.is_some_and(|(kind, made)| key.kind.api_version == kind.api_version && *key.kind.kind == *made)
    };
    let is_for_machine = move |object: &&Object| {
        let machine = Place { name: object.key.name.clone(), ..place.clone() };
        let is_its = |machine: &Machine| object.has_owner(&machine.uid) && !is_part(object, machine);
        let is_marked = object.machine_check.is_some() && !object.is_for_node() && object.body.is_none();
        is_marked && world.fleet.machines.get(&machine).is_some_and(is_its)
    };
    let exist = world.objects.values().filter(move |object| is_of_template(&object.key)).filter(is_for_machine);
    let may_exist = world.flights.creations().filter(move |key| is_of_template(key) && !world.is_for_node(key));
    exist.map(|object| &object.key.name).chain(may_exist.map(|key| &key.name))
}
