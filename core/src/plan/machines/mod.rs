//! How do the machines of one check stand, and may anything start under it?

mod earlier;
mod find;
mod repair;
mod report;
pub(crate) mod sign;

pub use earlier::kind_on;
pub(super) use find::{clusters, is_here};

use std::collections::{BTreeMap, BTreeSet};

use super::{Draft, sources};
use crate::decision::{Because, Outcome};
use crate::effect::EffectKey;
use crate::escalate::{self, Workshop};
use crate::facts::{DEFAULT_NAMESPACE, Kind, Name, Object, ObjectKey, Rival, Source};
use crate::gate::{self, Asked, Gates, Tally};
use crate::kinds;
use crate::mhc::budget;
use crate::mhc::facts::{Cluster, ClusterKey, Flavour, Machine, MachineCheck, MachinePolicy, Repair};
use crate::mhc::fleet::Region;
use crate::mhc::identity::{Doubt, State};
use crate::mhc::judge::{Judgement, NodeOf, Unjudged, another_host, judge};
use crate::mhc::status::Findings;
use crate::world::World;

/// A check, and what holds for all of its machines.
pub struct Round<'a> {
    pub check: &'a MachineCheck,
    pub policy: &'a MachinePolicy,
    pub reach: Reach<'a>,
    /// What decisions rest on, and may be out of date.
    pub doubt: Option<Source>,
    /// What is made from its template, if it has one.
    pub kind: Option<Kind>,
    pub means: Means<'a>,
    pub gates: Gates,
    /// Nothing is written on machines either.
    pub paused: bool,
}

/// How the machines of a check are repaired.
pub enum Means<'a> {
    Owner,
    Template(Workshop<'a>),
    /// By a template, which cannot be used.
    NoTemplate(Because),
    PowerCycle,
    Deletion,
}

/// Where the nodes of a check's machines are.
#[derive(Clone, Copy)]
pub enum Reach<'a> {
    Here,
    There(&'a Cluster, &'a Region),
    /// Its control plane is not up, so that nobody can be asked.
    NotYet(&'a Cluster),
}

impl<'a> Reach<'a> {
    pub fn cluster(self) -> Option<&'a Cluster> {
        match self {
            Reach::Here => None,
            Reach::There(cluster, _) | Reach::NotYet(cluster) => Some(cluster),
        }
    }

    /// None: in this cluster.
    pub fn key(self) -> Option<&'a ClusterKey> {
        self.cluster().map(|cluster| &cluster.key)
    }
}

/// A machine under a check.
pub struct Subject<'a> {
    pub machine: &'a Machine,
    pub node: NodeOf<'a>,
    pub judgement: Judgement,
    /// What was made for it from the check's template.
    pub remediation: Option<&'a Object>,
    /// A request may have created it, and we do not see it yet.
    pub maybe_created: bool,
    /// Likewise, one may have had the machine deleted or power-cycled.
    pub maybe_asked: bool,
}

impl Subject<'_> {
    fn is_idle(&self) -> bool {
        self.remediation.is_none() && !self.maybe_created && !self.maybe_asked
    }
}

impl<'a> Draft<'a> {
    pub(super) fn plan_machines(&mut self) {
        let world = self.world;
        self.tell_news();
        for check in world.fleet.checks.values() {
            if !world.is_our_machine_check(check) {
                self.plan.foreign.push(check.place.to_string().into());
            } else if !check.deleting && world.is_synced(&Source::MachineChecks(check.dialect)) {
                self.plan_machine_check(check);
            }
        }
        self.clear_signs();
    }

    fn plan_machine_check(&mut self, check: &'a MachineCheck) {
        let rival = self.rivals.get(&Rival::of(check.place.flavour)).filter(|_| !check.take_over);
        if let Some(because) = rival.cloned() {
            return self.report_shut(check, &because);
        }
        let policy = match &check.policy {
            Ok(policy) => policy,
            Err(invalid) => return self.report_shut(check, &Because::PolicyInvalid { why: invalid.0.clone() }),
        };
        let reach = match reach(self.world, check) {
            Ok(reach) => reach,
            Err(Because::Stale { source }) => return self.report_machine_doubt(check, &source),
            Err(because) => return self.report_shut(check, &because),
        };
        if let Some(cluster) = reach.cluster().filter(|cluster| cluster.paused) {
            let because = Because::ClusterPaused { cluster: cluster.key.clone() };
            self.shut(check.place.to_string().into(), &because);
            self.hold_all(check, &because);
            return self.report_paused(check);
        }
        let sources = sources::of_machine_check(self.world, check, policy, reach, self.now.mono);
        if let Some(source) = sources.iter().find(|source| !self.world.is_synced(source)) {
            return self.report_machine_doubt(check, source);
        }
        let is_doubtful = |source: &Source| !self.world.is_fresh(source, self.now.mono) || is_unidentified(self.world, source);
        let doubt = sources.into_iter().find(is_doubtful);
        self.plan_round(check, policy, reach, doubt);
    }

    /// Everything that has to be known is.
    fn plan_round(&mut self, check: &'a MachineCheck, policy: &'a MachinePolicy, reach: Reach<'a>, doubt: Option<Source>) {
        let means = means(self.world, check, policy);
        let kind = remediation_kind(policy);
        let subjects = self.subjects(check, policy, reach, kind.as_ref());
        let is_healthy = |subject: &&Subject| subject.judgement == Judgement::Healthy;
        let healthy = subjects.iter().filter(is_healthy).count();
        let at_rest = subjects.iter().filter(is_healthy).filter(|subject| subject.is_idle()).count();
        let expected = subjects.len();
        // What is shown is as users know it; what is decided on counts machines under remediation as not healthy, too.
        let tally = |healthy: usize| Tally { targets: expected, not_healthy: expected - healthy, leftovers: 0 };
        let shown = budget::room(policy.budget, tally(healthy), self.world.limit);
        let paused = check.paused && !check.take_over;
        let full = gate::outside_budget(policy, tally(at_rest), self.world.limit);
        let unusable = match &means {
            Means::NoTemplate(because) => Some(because.clone()),
            Means::Owner | Means::Template(_) | Means::PowerCycle | Means::Deletion => None,
        };
        let is_full = full.is_some();
        let gates = gate::gates(Asked {
            doubt: doubt.as_ref(),
            everywhere: &self.everywhere,
            paused: paused.then_some(Because::CheckPaused),
            unusable: unusable.clone(),
            upgrading: None,
            too_many: full,
            cooling: None,
        });
        if let Some(because) = gates.first_step() {
            self.shut(check.place.to_string().into(), because);
        }
        let round = Round { check, policy, reach, doubt, kind, means, gates, paused };
        let mut found = Findings {
            targets: subjects.iter().map(|subject| subject.machine.place.name.clone()).collect(),
            healthy,
            unhealthy: 0,
            left: if is_full || self.everywhere.told().is_some() { 0 } else { shown.left },
            shut: round.gates.told().cloned(),
            paused: (!check.take_over || !check.paused).then_some(paused),
            template: unusable,
            request: None,
            overlapping: Vec::new(),
            held: Vec::new(),
            ignored_leases: self.ignored_leases(Rival::of(check.place.flavour), check.take_over),
            deprecated: policy.repair == Repair::PowerCycle,
        };
        self.decide_machines(&round, &subjects, &mut found);
        self.clear_strays(&round, &subjects);
        let is_being_tied = self.tie(&round);
        match (&round.doubt, paused) {
            (Some(source), _) => self.report_machine_doubt(check, source),
            (None, true) => self.report_paused(check),
            // The status would be written on a version that is about to go.
            (None, false) if is_being_tied => {}
            (None, false) => self.report_machines(check, &found),
        }
    }

    fn decide_machines(&mut self, round: &Round<'a>, subjects: &[Subject<'a>], found: &mut Findings) {
        let label = Name::from(round.check.place.to_string());
        for subject in subjects {
            found.unhealthy += usize::from(match &subject.judgement {
                Judgement::Unhealthy { .. } => true,
                // What is to be power-cycled is unhealthy until it has been, whatever its Node says meanwhile.
                Judgement::Unjudged(Unjudged::PowerCycling) => round.policy.repair == Repair::PowerCycle,
                Judgement::Healthy | Judgement::Pending { .. } | Judgement::Unjudged(_) => false,
            });
            let outcome = self.decide_machine(round, subject);
            let name = &subject.machine.place.name;
            match &outcome.because {
                because @ Because::Overlapping { .. } => found.overlapping.push((name.clone(), because.clone())),
                because @ Because::Refused { busy: false, .. } if matches!(round.means, Means::Template(_)) => {
                    found.request = Some(because.clone());
                }
                because if because.is_of_one_node() => found.held.push((name.clone(), because.clone())),
                _ => {}
            }
            self.decided(label.clone(), name, outcome);
        }
    }

    fn subjects(
        &self,
        check: &'a MachineCheck,
        policy: &'a MachinePolicy,
        reach: Reach<'a>,
        kind: Option<&Kind>,
    ) -> Vec<Subject<'a>> {
        let machines = targets(self.world, check, policy);
        let subject = |machine: &'a Machine| {
            let node = node_of(self.world, machine, reach);
            let key = kind.map(|kind| remediation_key(kind, machine));
            // A NodeHealthCheck has the Machine own what it makes for its node, too.
            let is_mine = |object: &&Object| machine.is_repaired_by(object) && !object.is_for_node();
            let made = key.as_ref().and_then(|key| self.world.objects.get(key)).filter(is_mine);
            // From before the template had this version, which may not even be served.
            let made_before = || {
                let is_alike = |object: &&Object| kind.is_some_and(|kind| kind.is_like(&object.key.kind));
                self.made_for(machine).filter(is_mine).find(is_alike)
            };
            Subject {
                machine,
                node,
                judgement: judge(machine, node, reach.cluster(), policy, &self.world.clock, self.now),
                remediation: made.or_else(made_before),
                maybe_created: key.is_some_and(|key| self.world.flights.may_have_happened(&EffectKey::Create(key))),
                maybe_asked: self.may_be_asked(policy, machine),
            }
        };
        machines.map(subject).collect()
    }

    fn may_be_asked(&self, policy: &MachinePolicy, machine: &Machine) -> bool {
        let may_have_happened = |key: EffectKey| self.world.flights.may_have_happened(&key);
        match policy.repair {
            Repair::Owner | Repair::Template { .. } => false,
            Repair::PowerCycle | Repair::Deletion => {
                may_have_happened(EffectKey::DeleteMachine(machine.place.clone()))
                    || may_have_happened(EffectKey::PowerCycle(machine.place.clone()))
            }
        }
    }

    /// Nothing is decided about any machine of the check, for the same reason.
    fn hold_all(&mut self, check: &'a MachineCheck, because: &Because) {
        let label = Name::from(check.place.to_string());
        for machine in check.policy.iter().flat_map(|policy| targets(self.world, check, policy)) {
            self.decided(label.clone(), &machine.place.name, Outcome::hold(because.clone()));
        }
    }
}

/// The machines that a check watches over.
pub fn targets<'a>(world: &'a World, check: &'a MachineCheck, policy: &'a MachinePolicy) -> impl Iterator<Item = &'a Machine> {
    let machines = world.fleet.machines_in(check.place.flavour, &check.place.namespace);
    machines.filter(move |machine| is_target(world, machine, check, policy))
}

/// Could the check watch over the machine, if it selects it?
pub fn is_beside(check: &MachineCheck, machine: &Machine) -> bool {
    check.place.flavour == machine.place.flavour && check.place.namespace == machine.place.namespace
}

/// People and programs can take a machine of Cluster API out of it. One that belongs to a Cluster has its node there, and is
/// not for a check that looks for nodes here.
pub fn is_target(world: &World, machine: &Machine, check: &MachineCheck, policy: &MachinePolicy) -> bool {
    let is_left_alone = match machine.place.flavour {
        Flavour::ClusterApi => machine.marks.paused || machine.marks.skipped,
        Flavour::OpenShift => false,
    };
    !is_left_alone
        && match &check.cluster {
            Some(cluster) => machine.cluster() == Some(cluster),
            None => {
                machine.cluster().is_none() || machine.place.flavour == Flavour::OpenShift || find::clusters(world) == Ok(None)
            }
        }
        && policy.selector.selects(&machine.labels)
}

/// Where are the nodes of the check's machines, and can they be known?
pub fn reach<'a>(world: &'a World, check: &MachineCheck) -> Result<Reach<'a>, Because> {
    if check.place.flavour == Flavour::OpenShift {
        return Ok(Reach::Here);
    }
    let (Some(dialect), Some(name)) = (find::clusters(world)?, check.cluster.clone()) else { return Ok(Reach::Here) };
    let key = ClusterKey { namespace: check.place.namespace.clone(), name };
    let stale = |source: Source| if world.is_synced(&source) { Ok(()) } else { Err(Because::Stale { source }) };
    stale(Source::Clusters(dialect))?;
    let Some(cluster) = world.fleet.clusters.get(&key) else { return Err(Because::ClusterMissing { cluster: key }) };
    if cluster.control_plane_initialized_at.is_none() {
        return Ok(Reach::NotYet(cluster));
    }
    if world.fleet.forbidden.contains(&key) {
        let why = forbidden(world, &key).into();
        return Err(Because::NoAccess { cluster: key, why });
    }
    stale(Source::Access(key.clone()))?;
    let why = match (world.fleet.access.get(&key), world.fleet.no_access.get(&key)) {
        (None, _) => Some(format!("there is no Secret {}-kubeconfig in the namespace {}", key.name, key.namespace).into()),
        (Some(Err(invalid)), _) => Some(invalid.0.clone()),
        (Some(Ok(_)), why) => why.cloned(),
    };
    let too_much = || world.fleet.overflows.get(&key).map(|overflow| overflow.why.clone());
    if let Some(why) = why.or_else(too_much) {
        return Err(Because::NoAccess { cluster: key, why });
    }
    if let Some(because) = doubted(world, &key) {
        return Err(because);
    }
    stale(Source::RemoteNodes(key.clone()))?;
    match world.fleet.region(&key) {
        Some(region) => identified(world, &key, region).map(|()| Reach::There(cluster, region)),
        None => Err(Because::Stale { source: Source::RemoteNodes(key) }),
    }
}

/// What to do about it is a command, to be copied as it stands.
fn forbidden(world: &World, ClusterKey { namespace, name }: &ClusterKey) -> String {
    let own = match &*world.namespace {
        DEFAULT_NAMESPACE => String::new(),
        own => format!(" --namespace {own}"),
    };
    format!(
        "the Secret {name}-kubeconfig in the namespace {namespace} may not be read: resus manifests --cluster {namespace}/{name}{own} | kubectl apply -f -"
    )
}

/// It said who it is, and that is not whom we know.
fn doubted(world: &World, key: &ClusterKey) -> Option<Because> {
    let Some(State::Doubted { doubt, .. }) = world.fleet.identities.get(key).map(|identity| &identity.state) else { return None };
    let no_access = |why: &str| Because::NoAccess { cluster: key.clone(), why: why.into() };
    Some(match doubt {
        Doubt::Another { known, found } => {
            Because::AnotherCluster { cluster: key.clone(), known: known.clone(), found: found.clone() }
        }
        Doubt::Hidden => no_access(
            "the user of its kubeconfig may not get the namespace kube-system any more, so nobody knows whether it is the same cluster",
        ),
        Doubt::NoCluster => no_access("its server has no namespace kube-system, so it is no cluster of Kubernetes"),
    })
}

/// Is it the cluster that it was, as far as it says, and as far as its Nodes tell?
fn identified(world: &World, key: &ClusterKey, region: &Region) -> Result<(), Because> {
    let found = match world.fleet.identities.get(key).map(|identity| &identity.state) {
        // Nothing is written or started then.
        None | Some(State::Asking { .. } | State::Doubted { .. }) => return Ok(()),
        Some(State::Same { confirmed: true, .. }) => return Ok(()),
        Some(State::Same { uid, confirmed: false }) => Some(uid.clone()),
        Some(State::Hidden) => None,
    };
    let machines = world.fleet.machines_in(Flavour::ClusterApi, &key.namespace);
    let named = machines.filter(|machine| machine.cluster() == Some(&key.name)).filter_map(|machine| machine.node.as_ref());
    let is_there = |name: &&Name| region.nodes.contains_key(*name) || region.unreadable.contains_key(*name);
    let mut missing = BTreeSet::new();
    for name in named {
        if is_there(&name) {
            return Ok(());
        }
        missing.insert(name);
    }
    match missing.len() < NAMED_MIN {
        true => Ok(()),
        false => Err(Because::NoNodeKnown { cluster: key.clone(), named: missing.len(), found }),
    }
}

/// Nodes of who has not said yet which cluster it is.
fn is_unidentified(world: &World, source: &Source) -> bool {
    let Source::RemoteNodes(key) = source else { return false };
    match world.fleet.identities.get(key).map(|identity| &identity.state) {
        None | Some(State::Asking { .. } | State::Doubted { .. }) => true,
        Some(State::Same { .. } | State::Hidden) => false,
    }
}

/// One node may be gone by itself; that all of several are says more about the cluster than about them.
const NAMED_MIN: usize = 2;

/// A name that a complete list of the right cluster does not have is that of a node that is gone.
fn node_of<'a>(world: &'a World, machine: &'a Machine, reach: Reach<'a>) -> NodeOf<'a> {
    let Some(name) = &machine.node else { return NodeOf::Unnamed };
    let (nodes, unreadable) = match reach {
        Reach::Here => (&world.nodes, world.unreadable_node(name).is_some()),
        Reach::There(_, region) => (&region.nodes, region.unreadable.contains_key(name)),
        Reach::NotYet(_) => return NodeOf::NotHeard,
    };
    match nodes.get(name) {
        Some(known) => NodeOf::Known(known),
        None if unreadable => NodeOf::NotHeard,
        None => NodeOf::Gone(name),
    }
}

fn means<'a>(world: &'a World, check: &MachineCheck, policy: &MachinePolicy) -> Means<'a> {
    match &policy.repair {
        Repair::Owner => Means::Owner,
        Repair::Template { kind, name } => {
            // It is in the namespace of the machines, whatever its reference says.
            let namespace = Some(check.place.namespace.clone());
            match escalate::workshop(world, &ObjectKey { kind: kind.clone(), namespace, name: name.clone() }) {
                Ok(workshop) => Means::Template(workshop),
                Err(because) => Means::NoTemplate(because),
            }
        }
        Repair::PowerCycle => Means::PowerCycle,
        Repair::Deletion => Means::Deletion,
    }
}

pub fn remediation_kind(policy: &MachinePolicy) -> Option<Kind> {
    match &policy.repair {
        Repair::Template { kind, .. } => Some(escalate::remediation_kind(kind)),
        Repair::Owner | Repair::PowerCycle | Repair::Deletion => None,
    }
}

/// It has the name of its machine, so that there is never more than one.
pub fn remediation_key(kind: &Kind, machine: &Machine) -> ObjectKey {
    ObjectKey { kind: kind.clone(), namespace: Some(machine.place.namespace.clone()), name: machine.place.name.clone() }
}

/// A check with which something is wrong owns no machine. One of which not enough is known counts as able: unknown is not disabled.
/// Whoever takes care of a check that is not ours was there before us, for all that we know.
pub fn able_checks(world: &World) -> Vec<&MachineCheck> {
    let mut able: Vec<&MachineCheck> = world.fleet.checks.values().filter(|check| is_able(world, check)).collect();
    able.sort_by_key(|check| (world.is_our_machine_check(check), check.created_at, check.place.clone()));
    able
}

fn is_able(world: &World, check: &MachineCheck) -> bool {
    let Ok(policy) = &check.policy else { return false };
    let is_usable = || {
        let is_known = kinds::of_machine_policy(world, policy).into_iter().all(|kind| {
            world.kinds.contains_key(&kind.api_version)
                && (world.served(&kind).is_none() || world.is_synced(&Source::Objects(kind)))
        });
        !is_known || !matches!(means(world, check, policy), Means::NoTemplate(_))
    };
    !check.deleting && !only_waits_for_termination(policy) && (!world.is_our_machine_check(check) || is_usable())
}

/// OpenShift ships one that does nothing but take spot instances away when they are being terminated.
pub fn only_waits_for_termination(policy: &MachinePolicy) -> bool {
    policy.startup_timeout.is_none()
        && policy.machine_rules.is_empty()
        && policy.node_rules.iter().all(|rule| &*rule.kind == TERMINATING)
}

const TERMINATING: &str = "Terminating";

/// It takes away what is lost, whoever else watches over it.
pub(super) fn is_beside_all(policy: &MachinePolicy) -> bool {
    policy.repair == Repair::Deletion && only_waits_for_termination(policy)
}

/// Machines whose nodes are in this cluster, by the names of those. Where several name one, the one that is certainly its own.
pub fn machines_here(world: &World) -> BTreeMap<&Name, &Machine> {
    let mut here: BTreeMap<&Name, &Machine> = BTreeMap::new();
    if world.checks.is_empty() {
        return here;
    }
    for machine in world.fleet.machines.values() {
        let Some(node) = node_here(world, machine) else { continue };
        let known = here.entry(node).or_insert(machine);
        if known.provider_id.is_none() && machine.provider_id.is_some() {
            *known = machine;
        }
    }
    here
}

/// The machine's node, if that is in this cluster. Whoever writes Machines could otherwise keep any node from being repaired by the
/// checks of nodes.
pub fn node_here<'a>(world: &World, machine: &'a Machine) -> Option<&'a Name> {
    let is_here = match machine.place.flavour {
        Flavour::ClusterApi => machine.cluster().is_none() || find::clusters(world) == Ok(None),
        Flavour::OpenShift => true,
    };
    let is_on_another_host =
        |node: &Name| world.nodes.get(node).is_some_and(|known| another_host(machine, &known.node).is_some());
    machine.node.as_ref().filter(|node| is_here && !is_on_another_host(node))
}
