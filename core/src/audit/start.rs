//! What does a plan start, and does a fresh look show why?

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effect::{Change, Creation, Effect, Owner, Signing, Target};
use crate::facts::{Check, Mode, Name, Policy, READY, Status};
use crate::health::Known;
use crate::mhc::facts::{Cluster, ClusterKey, Flavour, Machine, MachineCheck, MachinePolicy, Place, Repair, Sign};
use crate::time::{Mono, Now};
use crate::world::World;

/// A look that was sent longer ago than this shows nothing any more.
const LOOK_COUNTS_FOR: Duration = Duration::from_secs(5);
/// When was what is ill at once, whatever the clock says.
const ALWAYS: Mono = Mono(i64::MIN);

/// A repair, or a step of one.
pub enum Start<'a> {
    Node(OnNode<'a>),
    Machine(OnMachine<'a>),
}

pub struct OnNode<'a> {
    pub known: &'a Known,
    pub check: &'a Check,
    pub policy: &'a Policy,
}

pub struct OnMachine<'a> {
    pub machine: &'a Machine,
    /// By which checks it may be: not every request says by which it is.
    pub orders: Vec<Order<'a>>,
    /// Nothing is done about it but by its owner.
    pub by_owner: bool,
}

/// A check that watches over a machine, and where the machine's node is.
pub struct Order<'a> {
    pub check: &'a MachineCheck,
    pub policy: &'a MachinePolicy,
    pub site: Site<'a>,
}

/// Where the nodes of a check's machines are.
pub enum Site<'a> {
    Here,
    /// Without nodes while nobody can be asked.
    There(&'a Cluster, Option<&'a BTreeMap<Name, Known>>),
    Nowhere,
}

/// The node that a machine names.
pub enum Sighting<'a> {
    There(&'a Known),
    Gone,
    Unheard,
}

impl<'a> Start<'a> {
    /// None: nobody asks for it, or for nothing that is there.
    pub fn of(world: &'a World, effect: &'a Effect) -> Option<Start<'a>> {
        let on = |target: &Target, repairs: fn(&Repair) -> bool| {
            let machine = world.fleet.machines.get(&target.place).filter(|machine| machine.uid == target.uid)?;
            let orders: Vec<Order> = orders(world, machine).filter(|order| repairs(&order.policy.repair)).collect();
            let by_owner = matches!(effect, Effect::Sign(_));
            (!orders.is_empty()).then_some(Start::Machine(OnMachine { machine, orders, by_owner }))
        };
        match effect {
            Effect::Create(creation) => made(world, creation),
            Effect::Sign(signing) => on(&signing.machine, |repair| *repair == Repair::Owner),
            Effect::PowerCycle { machine, .. } => on(machine, |repair| *repair == Repair::PowerCycle),
            Effect::DeleteMachine { machine, .. } => {
                on(machine, |repair| matches!(repair, Repair::Deletion | Repair::PowerCycle))
            }
            // Nothing else is called a start.
            _ => None,
        }
    }

    /// Was its target looked at within the last seconds, and after the time of what is wrong with it was over?
    pub fn is_justified(&self, world: &World, now: Now) -> bool {
        match self {
            Start::Node(OnNode { known, policy, .. }) => {
                let looked_at = world.looked_at(None, &known.node.name, true);
                node_is_due(known, policy).is_some_and(|due_at| is_fresh(looked_at, due_at, now.mono))
            }
            Start::Machine(OnMachine { machine, orders, .. }) => {
                let has_looked = |order: &Order| {
                    order.is_due(world, machine, now).is_some_and(|due_at| order.has_looked(world, machine, due_at, now.mono))
                };
                orders.iter().any(has_looked)
            }
        }
    }
}

fn is_fresh(looked_at: Option<Mono>, due_at: Mono, now: Mono) -> bool {
    looked_at.is_some_and(|at| at >= due_at && now.since(at) <= LOOK_COUNTS_FOR)
}

fn made<'a>(world: &'a World, creation: &'a Creation) -> Option<Start<'a>> {
    match &creation.owner {
        Owner::Check { node, check, check_uid, .. } => {
            let check = world.checks.get(check).filter(|own| own.uid == *check_uid && !own.deleting)?;
            let policy = check.policy.as_ref().ok().filter(|policy| policy.mode == Mode::Act)?;
            let known = world.nodes.get(node).filter(|known| policy.selector.selects(&known.node.labels))?;
            Some(Start::Node(OnNode { known, check, policy }))
        }
        Owner::Machine { dialect, name, uid, check_uid, .. } => {
            let place = Place { flavour: dialect.flavour(), namespace: creation.key.namespace.clone()?, name: name.clone() };
            let machine = world.fleet.machines.get(&place).filter(|machine| machine.uid == *uid)?;
            let is_by = |order: &Order| order.check.uid == *check_uid && matches!(order.policy.repair, Repair::Template { .. });
            let orders: Vec<Order> = orders(world, machine).filter(is_by).collect();
            (!orders.is_empty()).then_some(Start::Machine(OnMachine { machine, orders, by_owner: false }))
        }
    }
}

/// An owner repairs the machine as soon as it reads this.
pub fn asks_owner(signing: &Signing) -> bool {
    signing.edits.iter().filter(|edit| edit.sign == Sign::OwnerRemediated).any(|edit| match &edit.change {
        Change::Replace(_, posted) | Change::Insert(_, posted) => posted.status == Status::False,
        Change::Remove(_) => false,
    })
}

/// When the first of what is wrong with the node, or may become so, has lasted for longer than it may. None: nothing is.
pub fn node_is_due(known: &Known, policy: &Policy) -> Option<Mono> {
    let conditions = || known.node.conditions.iter().zip(&known.since);
    let begun = policy.rules.iter().flat_map(|rule| {
        let meets = conditions().filter(|(own, _)| own.kind == rule.kind && own.status == rule.status);
        meets.map(|(_, since)| over_after(*since, rule.lasts_for))
    });
    let has_reported = conditions().any(|(own, _)| &*own.kind == READY);
    let startup = policy.startup_timeout.filter(|_| !has_reported).map(|lasts_for| over_after(known.created, lasts_for));
    begun.chain(startup).filter(|_| known.unreadable.is_none()).min()
}

/// The first millisecond after it.
fn over_after(since: Mono, lasts_for: Duration) -> Mono {
    since.after(lasts_for).shift(1)
}

/// The checks under which something may be done about the machine.
pub fn orders<'a>(world: &'a World, machine: &'a Machine) -> impl Iterator<Item = Order<'a>> {
    let readable = world.fleet.checks.values().filter(|check| !check.deleting);
    let watching = readable.filter_map(|check| Some((check, check.policy.as_ref().ok()?)));
    let watching = watching.filter(|(check, policy)| watches(world, check, policy, machine));
    watching.map(|(check, policy)| Order { check, policy, site: site(world, check) })
}

/// Is the machine a target of the check?
pub fn watches(world: &World, check: &MachineCheck, policy: &MachinePolicy, machine: &Machine) -> bool {
    let is_of_openshift = machine.place.flavour == Flavour::OpenShift;
    let is_taken_out = !is_of_openshift && (machine.marks.paused || machine.marks.skipped);
    let is_of_cluster = match &check.cluster {
        Some(cluster) => machine.cluster() == Some(&**cluster),
        None => is_of_openshift || machine.cluster().is_none() || world.has_clusters() == Some(false),
    };
    let is_beside = (check.place.flavour, &check.place.namespace) == (machine.place.flavour, &machine.place.namespace);
    is_beside && !is_taken_out && is_of_cluster && policy.selector.selects(&machine.labels)
}

fn site<'a>(world: &'a World, check: &MachineCheck) -> Site<'a> {
    let elsewhere = check.cluster.as_ref().filter(|_| check.place.flavour == Flavour::ClusterApi);
    let Some(name) = elsewhere.filter(|_| world.has_clusters() != Some(false)) else { return Site::Here };
    let key = ClusterKey { namespace: check.place.namespace.clone(), name: name.clone() };
    let Some(cluster) = world.fleet.clusters.get(&key) else { return Site::Nowhere };
    let region = world.fleet.region(&key).filter(|_| cluster.control_plane_initialized_at.is_some());
    Site::There(cluster, region.map(|region| &region.nodes))
}

impl<'a> Order<'a> {
    /// As [`node_is_due`].
    pub fn is_due(&self, world: &World, machine: &Machine, now: Now) -> Option<Mono> {
        let is_asked_for = match machine.place.flavour {
            Flavour::ClusterApi => machine.marks.remediate,
            Flavour::OpenShift => machine.failed,
        };
        if is_asked_for {
            return Some(ALWAYS);
        }
        if let Site::There(cluster, _) = self.site
            && (cluster.infrastructure_ready_at.is_none()
                || (cluster.control_plane_initialized_at.is_none() && !machine.is_control_plane()))
        {
            return None;
        }
        let dated = |since| world.clock.anchor(since, now);
        let on_machine = self.policy.machine_rules.iter().flat_map(|rule| {
            let meets = machine.conditions.iter().filter(|own| own.kind == rule.kind && own.status == rule.status);
            meets.map(|own| over_after(dated(own.since), rule.lasts_for))
        });
        let on_node = match machine.node.as_ref().map(|name| self.sighting(world, name)) {
            // It has at least the time from its own beginning; OpenShift counts from the last change of its Machine.
            None => self.policy.startup_timeout.map(|lasts_for| {
                let since = match machine.place.flavour {
                    Flavour::ClusterApi => dated(machine.created_at),
                    Flavour::OpenShift => machine.updated_at.map_or(now.mono, dated),
                };
                over_after(since, lasts_for)
            }),
            Some(Sighting::Gone) => Some(ALWAYS),
            Some(Sighting::There(known)) => self.node_rules_are_due(known),
            Some(Sighting::Unheard) => None,
        };
        on_machine.chain(on_node).min()
    }

    fn node_rules_are_due(&self, known: &Known) -> Option<Mono> {
        let rules = self.policy.node_rules.iter().filter(|_| known.unreadable.is_none());
        let begun = rules.flat_map(|rule| {
            let conditions = known.node.conditions.iter().zip(&known.since);
            let meets = conditions.filter(|(own, _)| own.kind == rule.kind && own.status == rule.status);
            meets.map(|(_, since)| over_after(*since, rule.lasts_for))
        });
        begun.min()
    }

    fn has_looked(&self, world: &World, machine: &Machine, due_at: Mono, now: Mono) -> bool {
        let at_node = |name: &Name| {
            let is_there = match self.sighting(world, name) {
                Sighting::There(_) => true,
                Sighting::Gone => false,
                Sighting::Unheard => return true,
            };
            is_fresh(world.looked_at(self.cluster(), name, is_there), due_at, now)
        };
        is_fresh(world.fleet.looks.get(&machine.place).copied(), due_at, now) && machine.node.as_ref().is_none_or(at_node)
    }

    fn cluster(&self) -> Option<&'a ClusterKey> {
        match self.site {
            Site::There(cluster, _) => Some(&cluster.key),
            Site::Here | Site::Nowhere => None,
        }
    }

    fn sighting(&self, world: &'a World, name: &Name) -> Sighting<'a> {
        let (nodes, is_unreadable) = match self.site {
            Site::Here => (Some(&world.nodes), world.unreadable_node(name).is_some()),
            Site::There(cluster, nodes) => (nodes, world.is_unreadable(&cluster.key, name)),
            Site::Nowhere => (None, false),
        };
        match nodes.map(|nodes| nodes.get(name)) {
            Some(Some(known)) => Sighting::There(known),
            Some(None) if !is_unreadable => Sighting::Gone,
            Some(None) | None => Sighting::Unheard,
        }
    }
}
