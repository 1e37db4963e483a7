//! Does a plan keep the rules that nothing may break?
//!
//! It is judged by the World alone, and by code that was written apart from the planner, so that a mistake there is not made here
//! once more: nothing that decides is called, neither of the plan nor of the gate or the quorum. A plan that breaks a rule is not
//! followed; see [`crate::process::Process::follow`]. Where to demand all that the planner demands would be to plan again, a rule
//! demands less, and nowhere more: what others write must never be able to break one.

mod budget;
mod majority;
mod start;

use std::collections::BTreeMap;
use std::fmt;

use self::start::{Start, orders};
use crate::effect::{Effect, Target};
use crate::facts::{Name, Object, ObjectKey};
use crate::mhc::facts::{ClusterKey, Flavour, Machine, Place, Repair};
use crate::plan::Plan;
use crate::time::Now;
use crate::world::World;

/// A rule that a plan breaks, and on what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Breach {
    pub rule: Rule,
    /// For people: which request it is about, and about which node, machine or object that is.
    pub target: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Nothing starts without a look of the last seconds that still shows why.
    Look,
    /// No first step starts while more are not healthy than the check allows.
    Budget,
    /// Of the control plane of this cluster one is repaired at a time.
    ControlPlane,
    /// No member of etcd goes that its majority needs.
    Etcd,
    /// Who does not lead sends nothing but the lease, and questions.
    Leader,
    /// Nothing is deleted by its name alone.
    Uid,
    /// Of remediations only ours are deleted.
    Ours,
    /// A Machine is deleted only on OpenShift, and only where somebody makes another.
    Replacement,
    /// A plan has no more requests than one API server is to get at once.
    Requests,
}

impl Rule {
    pub const ALL: [Rule; 9] = [
        Rule::Look,
        Rule::Budget,
        Rule::ControlPlane,
        Rule::Etcd,
        Rule::Leader,
        Rule::Uid,
        Rule::Ours,
        Rule::Replacement,
        Rule::Requests,
    ];

    /// One word for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Rule::Look => "look",
            Rule::Budget => "budget",
            Rule::ControlPlane => "control-plane",
            Rule::Etcd => "etcd",
            Rule::Leader => "leader",
            Rule::Uid => "uid",
            Rule::Ours => "ours",
            Rule::Replacement => "replacement",
            Rule::Requests => "requests",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Look => "nothing starts without a fresh look that still shows why",
            Rule::Budget => "nothing starts while more are not healthy than the check allows",
            Rule::ControlPlane => "the control plane is repaired one at a time",
            Rule::Etcd => "etcd keeps its majority",
            Rule::Leader => "who does not lead changes nothing",
            Rule::Uid => "nothing is deleted without its uid",
            Rule::Ours => "only what was made for a repair is removed",
            Rule::Replacement => "a Machine is deleted only where the check asks for that and a controller makes another",
            Rule::Requests => "a plan has a bounded number of requests",
        })
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} breaks the rule that {}", self.target, self.rule)
    }
}

/// Requests about single nodes, machines and remediations in one plan.
const ABOUT_ONE_MAX: usize = 64;
/// Looks into one other cluster in one plan.
const LOOKS_ELSEWHERE_MAX: usize = 8;

/// A plan that changes nothing costs a glance at each of its requests, which are few.
pub fn audit(world: &World, plan: &Plan, now: Now) -> Vec<Breach> {
    let now = world.clock.corrected(now);
    let mut breaches: Vec<Breach> = Vec::new();
    for effect in &plan.effects {
        let deletion = || broken_by_deletion(world, effect);
        let rule = (!may_be_sent(world, effect, now)).then_some(Rule::Leader).or_else(deletion);
        breaches.extend(rule.map(|rule| rule.broken_by(effect)));
    }
    breaches.extend(too_many(plan));
    let mut starts = Vec::new();
    for effect in plan.effects.iter().filter(|effect| matches!(Sort::of(effect), Sort::Start)) {
        match Start::of(world, effect) {
            Some(start) if start.is_justified(world, now) => starts.push((effect, start)),
            Some(_) | None => breaches.push(Rule::Look.broken_by(effect)),
        }
    }
    if !starts.is_empty() {
        breaches.extend(budget::breaches(world, &starts, now));
        breaches.extend(majority::breaches(world, &starts, now));
    }
    breaches
}

/// What kind of request is it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Lease,
    /// What is there?
    Question,
    /// A repair begins, or its next step does.
    Start,
    /// About one node, machine or remediation.
    AboutOne,
    /// About a check, or about everything.
    AboutMany,
    /// A look at a node of another cluster.
    Elsewhere,
}

impl Sort {
    fn of(effect: &Effect) -> Sort {
        match effect {
            Effect::Lease(_) => Sort::Lease,
            Effect::Discover { .. } | Effect::ServerVersion | Effect::Identify { .. } => Sort::Question,
            Effect::Create(_) | Effect::DeleteMachine { .. } | Effect::PowerCycle { on: true, .. } => Sort::Start,
            Effect::Sign(signing) if start::asks_owner(signing) => Sort::Start,
            Effect::Look { cluster: Some(_), .. } => Sort::Elsewhere,
            Effect::Look { cluster: None, .. }
            | Effect::LookMachine { .. }
            | Effect::PowerCycle { on: false, .. }
            | Effect::Sign(_)
            | Effect::Delete { .. }
            | Effect::Read { .. }
            | Effect::Mark { .. }
            | Effect::Fetch { .. }
            | Effect::FindMachine { .. }
            | Effect::Unconfirm { .. }
            | Effect::HoldNode(_)
            | Effect::ReleaseNode { .. } => Sort::AboutOne,
            Effect::LeaseNamespace
            | Effect::DefaultTemplate
            | Effect::DefaultCheck(_)
            | Effect::Emit(_)
            | Effect::Status { .. }
            | Effect::MachineCheckStatus { .. }
            | Effect::Tie(_) => Sort::AboutMany,
        }
    }
}

fn may_be_sent(world: &World, effect: &Effect, now: Now) -> bool {
    let stops = world.election.stopping;
    match Sort::of(effect) {
        Sort::Lease => true,
        Sort::Question => !stops,
        Sort::Start | Sort::AboutOne | Sort::AboutMany | Sort::Elsewhere => !stops && world.election.leads(now.mono),
    }
}

fn too_many(plan: &Plan) -> Option<Breach> {
    let mut elsewhere: BTreeMap<Option<ClusterKey>, usize> = BTreeMap::new();
    let mut about_one = 0;
    for effect in &plan.effects {
        match Sort::of(effect) {
            Sort::Start | Sort::AboutOne => about_one += 1,
            Sort::Elsewhere => *elsewhere.entry(effect.key().cluster().cloned()).or_default() += 1,
            Sort::Lease | Sort::Question | Sort::AboutMany => {}
        }
    }
    let is_too_much = about_one > ABOUT_ONE_MAX || elsewhere.values().any(|looks| *looks > LOOKS_ELSEWHERE_MAX);
    let target = || format!("a plan of {} requests", plan.effects.len()).into();
    is_too_much.then(|| Breach { rule: Rule::Requests, target: target() })
}

fn broken_by_deletion(world: &World, effect: &Effect) -> Option<Rule> {
    match effect {
        Effect::Delete { uid, .. } if uid.is_empty() => Some(Rule::Uid),
        Effect::Delete { key, uid, .. } if !is_ours(world, key, uid) => Some(Rule::Ours),
        Effect::DeleteMachine { machine, .. } if machine.uid.is_empty() => Some(Rule::Uid),
        Effect::DeleteMachine { machine, .. } if !is_replaced(world, machine) => Some(Rule::Replacement),
        _ => None,
    }
}

/// Was it made to repair something, by us or, for the Machine that owns it, by another controller? What a Machine consists of has its
/// name and is owned by it, too, and what a check controls is a part of that: neither ever counts.
fn is_ours(world: &World, key: &ObjectKey, uid: &Name) -> bool {
    let Some(object) = world.objects.get(key).filter(|object| object.uid == *uid && object.body.is_none()) else { return false };
    if world.checks.values().any(|check| is_owned_whole(object, &check.uid)) {
        return true;
    }
    let place = |flavour| {
        let namespace = object.key.namespace.clone()?;
        Some(Place { flavour, namespace, name: object.key.name.clone() })
    };
    let namesakes: Vec<&Machine> =
        Flavour::ALL.into_iter().filter_map(|flavour| world.fleet.machines.get(&place(flavour)?)).collect();
    !namesakes.iter().any(|machine| is_part(object, machine))
        && (object.machine_check.is_some() || namesakes.iter().any(|machine| is_owned_whole(object, &machine.uid)))
}

/// Does the machine consist of it?
fn is_part(object: &Object, machine: &Machine) -> bool {
    let kind = &object.key.kind;
    machine.parts.iter().any(|(group, own)| **group == *kind.group() && **own == *kind.kind)
}

/// Owned, and not controlled.
fn is_owned_whole(object: &Object, uid: &str) -> bool {
    let mut links = object.owners.iter().filter(|owner| *owner.uid == *uid).peekable();
    links.peek().is_some() && links.all(|owner| !owner.controls)
}

fn is_replaced(world: &World, target: &Target) -> bool {
    let Some(machine) = world.fleet.machines.get(&target.place).filter(|machine| machine.uid == target.uid) else { return false };
    machine.has_controller
        && machine.place.flavour == Flavour::OpenShift
        && orders(world, machine).any(|order| match order.policy.repair {
            Repair::Deletion => true,
            Repair::PowerCycle => machine.failed,
            Repair::Owner | Repair::Template { .. } => false,
        })
}

impl Rule {
    fn broken_by(self, effect: &Effect) -> Breach {
        let about = match effect {
            Effect::Create(creation) => creation.key.to_string(),
            Effect::Delete { key, .. } => key.to_string(),
            Effect::DeleteMachine { machine, .. } | Effect::PowerCycle { machine, .. } => format!("Machine {}", machine.place),
            Effect::Sign(signing) => format!("Machine {}", signing.machine.place),
            Effect::Emit(event) => event.about.to_string(),
            other => format!("{:?}", other.key()),
        };
        Breach { rule: self, target: format!("{} {about}", effect.key().nature().verb).into() }
    }
}
