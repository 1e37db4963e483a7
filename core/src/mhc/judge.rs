//! Is this machine healthy?
//!
//! Rules are combined by or; what has expired wins over what is pending.

use std::fmt;
use std::time::Duration;

use crate::facts::{Condition, Name, Node, ProviderId, Rule, Status};
use crate::health::{Known, met};
use crate::mhc::facts::{Cluster, Flavour, Machine, MachinePolicy};
use crate::mhc::status::GoStyle;
use crate::text::Plain;
use crate::time::{Clock, Mono, Now, Wall};

/// The node of a machine, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum NodeOf<'a> {
    /// The machine names none.
    Unnamed,
    Known(&'a Known),
    /// The machine names one, and a complete list of the right cluster does not have it.
    Gone(&'a Name),
    /// Not enough has been heard of the cluster that it would be in.
    NotHeard,
}

/// What is wrong with a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// Somebody asked for it.
    Asked,
    /// OpenShift says that the machine failed.
    Failed,
    MachineCondition(Symptom),
    NodeCondition(Symptom),
    NodeGone {
        node: Name,
    },
    NoNode {
        lasts_for: Duration,
    },
}

/// A condition that has met a rule for too long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Symptom {
    pub kind: Box<str>,
    pub status: Status,
    /// The condition's own.
    pub reason: Box<str>,
    pub since: Wall,
    pub lasts_for: Duration,
}

impl Symptom {
    fn of(rule: &Rule, condition: &Condition) -> Symptom {
        let Condition { kind, status, since, reason } = condition.clone();
        Symptom { kind, status, reason, since, lasts_for: rule.lasts_for }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut symptom = |Symptom { kind, status, reason, lasts_for, .. }: &Symptom, of: &str| {
            let reason = if reason.is_empty() { String::new() } else { format!(" ({})", Plain(reason)) };
            write!(f, "condition {} of the {of} is {status}{reason} for more than {}", Plain(kind), GoStyle(*lasts_for))
        };
        match self {
            Finding::MachineCondition(found) => symptom(found, "Machine"),
            Finding::NodeCondition(found) => symptom(found, "Node"),
            Finding::Asked => f.write_str("somebody asked for it by the annotation cluster.x-k8s.io/remediate-machine"),
            Finding::Failed => f.write_str("the Machine's phase is Failed"),
            Finding::NodeGone { node } => write!(f, "Node {node} is gone"),
            Finding::NoNode { lasts_for } => write!(f, "no Node has joined for the Machine within {}", GoStyle(*lasts_for)),
        }
    }
}

/// Why nothing is said about a machine, so that it counts as not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unjudged {
    /// It has no node, and how long that takes is not judged.
    NoNode,
    /// It is well, but on its way out.
    Leaving,
    ControlPlaneNotInitialized,
    InfrastructureNotReady,
    NotHeard,
    /// Its node's object cannot be read.
    Unreadable,
    /// What is written as the name of its node is none.
    Misnamed,
    /// The Node that it names is of another host than it says of itself.
    AnotherHost {
        machine: ProviderId,
        node: ProviderId,
    },
    /// It has been asked to be power-cycled.
    PowerCycling,
}

impl fmt::Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unjudged::NoNode => "it has no Node yet, and nodeStartupTimeout does not limit that",
            Unjudged::Leaving => "the Machine is being deleted",
            Unjudged::ControlPlaneNotInitialized => "the control plane of its Cluster is not initialized yet",
            Unjudged::InfrastructureNotReady => "the infrastructure of its Cluster is not ready",
            Unjudged::NotHeard => "not enough is known of its Node",
            Unjudged::Unreadable => "its Node's object cannot be read",
            Unjudged::Misnamed => "its status.nodeRef.name is not the name of a Node: names have at most 253 lower-case letters, digits, dashes and dots",
            Unjudged::AnotherHost { machine, node } => {
                return write!(
                    f,
                    "its spec.providerID and that of the Node that its status.nodeRef names are not the same, so that they are not one host: {machine} and {node}"
                );
            }
            Unjudged::PowerCycling => "it is being power-cycled, by the annotation host.metal3.io/external-remediation",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    Healthy,
    /// A rule matches, but not for long enough.
    Pending {
        due_at: Mono,
    },
    /// Since `due_at`.
    Unhealthy {
        findings: Vec<Finding>,
        due_at: Mono,
    },
    Unjudged(Unjudged),
}

/// `cluster` is the machine's own, where Cluster API has one for it.
pub fn judge(
    machine: &Machine,
    node: NodeOf,
    cluster: Option<&Cluster>,
    policy: &MachinePolicy,
    clock: &Clock,
    now: Now,
) -> Judgement {
    let at_once = |finding: Finding| Judgement::Unhealthy { findings: vec![finding], due_at: Mono(i64::MIN) };
    // Whoever writes Machines could have any node repaired otherwise, also by asking for it.
    if let NodeOf::Known(known) = node
        && let Some(another) = another_host(machine, &known.node)
    {
        return Judgement::Unjudged(another);
    }
    match machine.place.flavour {
        Flavour::ClusterApi if machine.marks.remediate => return at_once(Finding::Asked),
        Flavour::OpenShift if machine.failed => return at_once(Finding::Failed),
        Flavour::ClusterApi | Flavour::OpenShift => {}
    }
    if machine.is_misnamed() {
        return Judgement::Unjudged(Unjudged::Misnamed);
    }
    if let Some(cluster) = cluster {
        if cluster.control_plane_initialized_at.is_none() && !machine.is_control_plane() {
            return Judgement::Unjudged(Unjudged::ControlPlaneNotInitialized);
        }
        // As in the reference: with a node it counts as healthy.
        if cluster.infrastructure_ready_at.is_none() {
            return match node {
                NodeOf::Known(_) if !machine.deleting => Judgement::Healthy,
                NodeOf::Known(_) | NodeOf::Unnamed | NodeOf::Gone(_) | NodeOf::NotHeard => {
                    Judgement::Unjudged(Unjudged::InfrastructureNotReady)
                }
            };
        }
    }
    let anchor = |at: Wall| clock.anchor(at, now);
    let on_machine = policy.machine_rules.iter().filter_map(|rule| {
        let own = machine.conditions.iter().find(|own| own.kind == rule.kind && own.status == rule.status)?;
        Some((anchor(own.since).beyond(rule.lasts_for), Finding::MachineCondition(Symptom::of(rule, own))))
    });
    let mut due: Vec<(Mono, Finding)> = on_machine.collect();
    match node {
        NodeOf::Gone(node) => due.push((Mono(i64::MIN), Finding::NodeGone { node: node.clone() })),
        NodeOf::Known(known) => due.extend(policy.node_rules.iter().filter_map(|rule| on_node(known, rule))),
        NodeOf::Unnamed => due.extend(startup(machine, cluster, policy).map(|(since, lasts_for)| {
            let since = since.map_or(now.mono, anchor);
            (since.beyond(lasts_for), Finding::NoNode { lasts_for })
        })),
        NodeOf::NotHeard => {}
    }
    let first = due.iter().map(|(due_at, _)| *due_at).min();
    match first {
        Some(due_at) if due_at <= now.mono => {
            let expired = due.into_iter().filter(|(due_at, _)| *due_at <= now.mono);
            Judgement::Unhealthy { findings: expired.map(|(_, finding)| finding).collect(), due_at }
        }
        Some(due_at) => Judgement::Pending { due_at },
        None => well(machine, node),
    }
}

/// Is the node that it names of another host? Only where both say which one they are.
pub fn another_host(machine: &Machine, node: &Node) -> Option<Unjudged> {
    let (machine, node) = (machine.provider_id.as_ref()?, node.provider_id.as_ref()?);
    (!machine.is_of_the_host_of(node)).then(|| Unjudged::AnotherHost { machine: machine.clone(), node: node.clone() })
}

/// No rule says anything against it.
fn well(machine: &Machine, node: NodeOf) -> Judgement {
    match node {
        NodeOf::Unnamed => Judgement::Unjudged(Unjudged::NoNode),
        NodeOf::NotHeard => Judgement::Unjudged(Unjudged::NotHeard),
        NodeOf::Known(known) if known.unreadable.is_some() => Judgement::Unjudged(Unjudged::Unreadable),
        NodeOf::Known(_) | NodeOf::Gone(_) if machine.deleting => Judgement::Unjudged(Unjudged::Leaving),
        NodeOf::Known(_) | NodeOf::Gone(_) if machine.place.flavour == Flavour::OpenShift && machine.marks.power_cycle => {
            Judgement::Unjudged(Unjudged::PowerCycling)
        }
        NodeOf::Known(_) | NodeOf::Gone(_) => Judgement::Healthy,
    }
}

/// From when on a machine without a node has how much time. None for the instant: from now on.
fn startup(machine: &Machine, cluster: Option<&Cluster>, policy: &MachinePolicy) -> Option<(Option<Wall>, Duration)> {
    let lasts_for = policy.startup_timeout?;
    let since = match machine.place.flavour {
        Flavour::OpenShift => machine.updated_at,
        Flavour::ClusterApi => {
            let cluster = cluster.into_iter().flat_map(|own| [own.control_plane_initialized_at, own.infrastructure_ready_at]);
            let ready = machine.is_true_since("InfrastructureReady");
            cluster.chain([ready, Some(machine.created_at)]).flatten().max()
        }
    };
    Some((since, lasts_for))
}

fn on_node(known: &Known, rule: &Rule) -> Option<(Mono, Finding)> {
    if known.unreadable.is_some() {
        return None;
    }
    let (due_at, condition) = met(known, rule)?;
    Some((due_at, Finding::NodeCondition(Symptom::of(rule, condition))))
}
