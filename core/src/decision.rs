//! Why did it, or why did it not?
//!
//! Every decision carries its because. It is an enum, so making one costs nothing; the sentence is
//! written only when somebody reads it.

use std::fmt;
use std::time::Duration;

use crate::facts::{Name, ObjectKey, Source, Status};
use crate::mhc::facts::ClusterKey;
use crate::mhc::judge::Unjudged;
use crate::text::Plain;
use crate::time::Wall;
use crate::upgrade::Detector;

/// What was decided about one node under one check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    pub check: Name,
    pub node: Name,
    pub verdict: Verdict,
    pub because: Because,
}

/// What is done about a node or machine now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: Verdict,
    pub because: Because,
}

impl Outcome {
    pub fn leave(because: Because) -> Outcome {
        Outcome { verdict: Verdict::Leave, because }
    }

    pub fn wait(because: Because) -> Outcome {
        Outcome { verdict: Verdict::Wait, because }
    }

    pub fn hold(because: Because) -> Outcome {
        Outcome { verdict: Verdict::Hold, because }
    }

    pub fn start(because: Because) -> Outcome {
        Outcome { verdict: Verdict::Start, because }
    }

    pub fn keep(because: Because) -> Outcome {
        Outcome { verdict: Verdict::Keep, because }
    }

    pub fn remove(because: Because) -> Outcome {
        Outcome { verdict: Verdict::Remove, because }
    }
}

/// What is done about the node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Healthy, nothing to do.
    Leave,
    /// Not healthy, but it is not yet time, or something has to be known first.
    Wait,
    /// Would be repaired, but a gate is shut.
    Hold,
    /// A remediation is being created.
    Start,
    /// A remediation exists and stays.
    Keep,
    /// A remediation is being removed.
    Remove,
}

impl Verdict {
    pub const ALL: [Verdict; 6] = [Verdict::Leave, Verdict::Wait, Verdict::Hold, Verdict::Start, Verdict::Keep, Verdict::Remove];
}

impl Decision {
    /// It is unhealthy and nothing is done about it.
    pub fn is_held(&self) -> bool {
        let is_stuck = match &self.because {
            Because::Refused { busy, .. } => !busy,
            other => matches!(other, Because::NoTemplateLeft | Because::LookRefused { .. } | Because::Removed { .. }),
        };
        self.verdict == Verdict::Hold || is_stuck
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Leave => "leave",
            Verdict::Wait => "wait",
            Verdict::Hold => "hold",
            Verdict::Start => "start",
            Verdict::Keep => "keep",
            Verdict::Remove => "remove",
        })
    }
}

/// A condition of a node that meets a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    pub kind: Box<str>,
    pub status: Status,
    pub since: Wall,
    pub lasts_for: Duration,
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {} is {}", Plain(&self.kind), self.status)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    Healthy,
    /// A rule matches, its time is not over.
    Pending(Match),
    /// The node has not reported what the rules ask about.
    NeverReported {
        kind: Box<str>,
    },
    /// The node's object is being deleted.
    NodeLeaving,
    /// The node's object could not be read; its health is unknown.
    Unreadable {
        why: Name,
    },
    /// A rule has matched for longer than it allows.
    Expired(Match),
    /// Something that decisions rest on is not known, or no longer certain.
    Stale {
        source: Source,
    },
    KindNotServed {
        key: ObjectKey,
    },
    TemplateMissing {
        key: ObjectKey,
    },
    TemplateInvalid {
        key: ObjectKey,
        why: Name,
    },
    /// Its kind is namespaced, and no namespace is named to find it in.
    TemplateUnplaced {
        key: ObjectKey,
    },
    PolicyInvalid {
        why: Name,
    },
    Paused {
        requests: Vec<Box<str>>,
    },
    /// By the annotation on our own namespace.
    AllPaused {
        namespace: Name,
        reason: Name,
    },
    /// We may not look whether everything is paused.
    PauseUnknown {
        namespace: Name,
    },
    TooManyUnhealthy {
        not_healthy: usize,
        allowed: usize,
        of: usize,
    },
    /// The cluster is being upgraded.
    Upgrading {
        detector: Detector,
        detail: Name,
    },
    /// A detector of upgrades does not work.
    UpgradeUnknown {
        detector: Detector,
    },
    /// Somebody marked the node.
    UnderMaintenance {
        mark: Name,
    },
    /// Our wall clock is ahead of that of the API server by this number of seconds, or behind if it is negative.
    ClockDiffers {
        ahead: i64,
    },
    /// An older check is responsible for the node.
    Overlapping {
        owner: Name,
    },
    /// Another object has the name that ours would get.
    Occupied {
        key: ObjectKey,
    },
    /// Our own earlier object is still going away.
    Leaving {
        key: ObjectKey,
    },
    /// It would be started, but another process leads.
    NotLeading,
    /// The node or machine has, or may have, a remediation that belongs to no check that could act.
    LeftBehind {
        key: ObjectKey,
    },
    /// Somebody else removed what we created; it is created again, ever more slowly.
    Removed {
        key: ObjectKey,
        times: u32,
    },
    /// The node is asked once more, plainly, before anything starts.
    Looking,
    /// This may not be read, and without that nothing starts; it is tried again later.
    LookRefused {
        key: ObjectKey,
        why: Name,
    },
    /// More is under way than is sent at once.
    Queued,
    Creating {
        key: ObjectKey,
    },
    /// Without the Machine that the node names as its own: that names another node.
    CreatingUnowned {
        key: ObjectKey,
        machine: Name,
        names: Option<Name>,
    },
    /// The server refused it; it is tried again later. `busy`: it only had too much to do.
    Refused {
        key: ObjectKey,
        why: Name,
        busy: bool,
    },
    Remediating {
        key: ObjectKey,
        reason: Match,
    },
    /// Label `remediation.medik8s.io/exclude-from-remediation: "true"`.
    Excluded,
    /// A storm is over, but not for long enough.
    StormCooldown,
    /// Too many nodes of its zone are not healthy.
    ZoneDark {
        zone: Name,
        not_healthy: usize,
        allowed: usize,
        of: usize,
    },
    /// Another node of the control plane is out of service.
    ControlPlaneBusy {
        node: Name,
    },
    EtcdQuorum {
        ready: usize,
        needed: usize,
        of: usize,
    },
    /// OpenShift's etcd has no budget left, and its member on this node is up.
    EtcdGuarded,
    /// OpenShift has exactly one such budget.
    EtcdBudgets {
        found: usize,
    },
    /// The controller of others takes care of the checks.
    ForeignController {
        lease: Name,
        holder: Name,
    },
    /// Somebody else has the node out of service.
    Held {
        holder: Name,
    },
    /// Taking the Lease on the node.
    Holding,
    RemediatedTooOften {
        times: u32,
        within: Duration,
    },
    BackingOff {
        times: u32,
    },
    /// Every step has been tried, and the node is still unhealthy.
    NoTemplateLeft,
    /// An earlier step's object has the name that the next one needs.
    MakingRoom {
        key: ObjectKey,
    },
    /// Healthy again, but its remediation stays for a while.
    HealthyDelay {
        lasts_for: Duration,
    },
    /// Healthy again, but a person has to say so.
    Unconfirmed,
    /// It would be created, if the check did more than look.
    DryRun {
        key: ObjectKey,
    },
    /// It would be removed, if the check did more than look.
    DryRemoval {
        key: ObjectKey,
    },
    /// The node is no longer selected by the check.
    NotSelected,
    /// The node is gone.
    NodeGone,
    /// The node is gone, and its provider is still at work.
    NodeGoneProviderBusy {
        key: ObjectKey,
    },
    /// Of machines: a rule matches, its time is not over.
    MachinePending,
    Unjudged(Unjudged),
    /// The machine is being deleted, so that nothing more is asked for.
    MachineLeaving,
    /// Conditions are being written on the machine.
    Signing,
    /// It is up to the machine's owner, who says how far it is.
    OwnersTurn {
        reason: Name,
    },
    /// There is a remediation for the machine.
    MachineRemediated {
        key: ObjectKey,
    },
    CheckPaused,
    ClusterPaused {
        cluster: ClusterKey,
    },
    ClusterMissing {
        cluster: ClusterKey,
    },
    /// Nothing is known of the cluster's nodes.
    NoAccess {
        cluster: ClusterKey,
        why: Name,
    },
    /// The kubeconfig leads to another cluster than before.
    AnotherCluster {
        cluster: ClusterKey,
        known: Name,
        found: Name,
    },
    /// Not one of the Nodes that its Machines name is there.
    NoNodeKnown {
        cluster: ClusterKey,
        named: usize,
        found: Option<Name>,
    },
    OutsideRange {
        not_healthy: usize,
        min: u32,
        max: u32,
        of: usize,
    },
    /// Nobody would make another machine.
    NoController,
    /// OpenShift's actuator has been asked to power-cycle it.
    PowerCycleAsked,
    /// It has been, by an annotation that has to go before anything else is tried.
    StillPowerCycled,
    /// The machine is being deleted by us.
    DeletingMachine,
    /// What an owner said about an earlier trouble still stands; it would take it for this one.
    OwnerNotDone,
}

impl Because {
    /// Why nothing is done about a node, where that is not a matter of the whole check.
    pub fn is_of_one_node(&self) -> bool {
        match self {
            Because::Excluded
            | Because::ControlPlaneBusy { .. }
            | Because::EtcdQuorum { .. }
            | Because::EtcdGuarded
            | Because::EtcdBudgets { .. }
            | Because::Held { .. }
            | Because::RemediatedTooOften { .. }
            | Because::BackingOff { .. }
            | Because::NoTemplateLeft
            | Because::Overlapping { .. }
            | Because::LeftBehind { .. }
            | Because::Occupied { .. }
            | Because::Refused { .. }
            | Because::LookRefused { .. }
            | Because::UnderMaintenance { .. }
            | Because::NoController
            | Because::StillPowerCycled
            | Because::OwnerNotDone
            | Because::Unjudged(Unjudged::Misnamed | Unjudged::AnotherHost { .. })
            | Because::NodeLeaving
            | Because::DryRun { .. }
            | Because::DryRemoval { .. } => true,
            // Only nodes of the control plane need to know of etcd.
            Because::Stale { source } => {
                matches!(source, Source::Etcd | Source::Budgets | Source::Guards | Source::RemoteEtcd(_))
            }
            Because::Healthy
            | Because::Pending(_)
            | Because::NeverReported { .. }
            | Because::Unreadable { .. }
            | Because::Expired(_)
            | Because::KindNotServed { .. }
            | Because::TemplateMissing { .. }
            | Because::TemplateInvalid { .. }
            | Because::TemplateUnplaced { .. }
            | Because::PolicyInvalid { .. }
            | Because::ForeignController { .. }
            | Because::Paused { .. }
            | Because::AllPaused { .. }
            | Because::PauseUnknown { .. }
            | Because::TooManyUnhealthy { .. }
            | Because::Upgrading { .. }
            | Because::UpgradeUnknown { .. }
            | Because::StormCooldown
            | Because::ClockDiffers { .. }
            | Because::ZoneDark { .. }
            | Because::Leaving { .. }
            | Because::NotLeading
            | Because::Removed { .. }
            | Because::Looking
            | Because::Holding
            | Because::Queued
            | Because::Creating { .. }
            | Because::CreatingUnowned { .. }
            | Because::Remediating { .. }
            | Because::MakingRoom { .. }
            | Because::HealthyDelay { .. }
            | Because::Unconfirmed
            | Because::NotSelected
            | Because::NodeGone
            | Because::NodeGoneProviderBusy { .. }
            | Because::MachinePending
            | Because::Unjudged(_)
            | Because::MachineLeaving
            | Because::Signing
            | Because::OwnersTurn { .. }
            | Because::MachineRemediated { .. }
            | Because::CheckPaused
            | Because::ClusterPaused { .. }
            | Because::ClusterMissing { .. }
            | Because::NoAccess { .. }
            | Because::AnotherCluster { .. }
            | Because::NoNodeKnown { .. }
            | Because::OutsideRange { .. }
            | Because::PowerCycleAsked
            | Because::DeletingMachine => false,
        }
    }

    /// A remediation may be created within moments.
    pub fn is_about_to_start(&self) -> bool {
        matches!(
            self,
            Because::Looking
                | Because::Holding
                | Because::Queued
                | Because::Creating { .. }
                | Because::CreatingUnowned { .. }
                | Because::NotLeading
                | Because::Refused { busy: true, .. }
        )
    }

    /// Is it the same reason, apart from numbers that change with every other node in a storm?
    pub fn is_like(&self, other: &Because) -> bool {
        match (self, other) {
            (Because::TooManyUnhealthy { .. }, Because::TooManyUnhealthy { .. })
            | (Because::OutsideRange { .. }, Because::OutsideRange { .. })
            | (Because::ZoneDark { .. }, Because::ZoneDark { .. }) => true,
            (Because::Upgrading { detector, .. }, Because::Upgrading { detector: other, .. }) => detector == other,
            _ => self == other,
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Healthy => f.write_str("the node is healthy"),
            Because::MachinePending => f.write_str("something is wrong with the machine, but not for long enough"),
            Because::Unjudged(why) => write!(f, "{why}"),
            Because::MachineLeaving => f.write_str("the Machine is being deleted"),
            Because::Signing => f.write_str("writing conditions on the Machine"),
            Because::OwnersTurn { reason } => write!(f, "its owner is to repair it, and says {}", Plain(reason)),
            Because::MachineRemediated { key } => write!(f, "{key} exists"),
            Because::CheckPaused => f.write_str("the check has the annotation cluster.x-k8s.io/paused"),
            Because::ClusterPaused { cluster } => write!(f, "the {cluster} is paused"),
            Because::ClusterMissing { cluster } => {
                write!(f, "there is no {cluster}: correct spec.clusterName, or leave it out for Nodes of this cluster")
            }
            Because::NoAccess { cluster, why } => write!(f, "the Nodes of the {cluster} cannot be read: {why}"),
            Because::AnotherCluster { cluster, known, found } => write!(
                f,
                "the kubeconfig of the {cluster} leads to another cluster than before, so none of its Nodes is believed: correct it, \
                 or, if that is right, annotate the Cluster with resus.dev/cluster-uid={} (it was {})",
                Plain(found),
                Plain(known)
            ),
            Because::NoNodeKnown { cluster, named, found } => {
                write!(
                    f,
                    "none of the {named} Nodes that Machines of the {cluster} name is there, so it may be another cluster: correct its \
                     kubeconfig, or, if they are really gone, "
                )?;
                match found {
                    Some(uid) => write!(f, "annotate the Cluster with resus.dev/cluster-uid={}", Plain(uid)),
                    None => f.write_str("let its user get the namespace kube-system there, and annotate the Cluster with \
                                         resus.dev/cluster-uid=<the uid of that>"),
                }
            }
            Because::OutsideRange { not_healthy, min, max, of } => {
                write!(f, "{not_healthy} of {of} machines are not healthy, repairs go on only within the unhealthyRange [{min}-{max}]")
            }
            Because::NoController => f.write_str("no controller owns the Machine, so that nobody would make another"),
            Because::PowerCycleAsked => f.write_str("it has the annotation host.metal3.io/external-remediation, and is to be power-cycled"),
            Because::StillPowerCycled => f.write_str(
                "the Machine still has the annotation host.metal3.io/external-remediation: nothing else is tried until that is gone",
            ),
            Because::DeletingMachine => f.write_str("deleting the Machine"),
            Because::OwnerNotDone => f.write_str("the owner has not taken back its OwnerRemediated of an earlier trouble"),
            Because::Pending(found) => write!(f, "{found}, unhealthy only after {}", Seconds(found.lasts_for)),
            Because::NeverReported { kind } => write!(f, "the node has no condition {} yet", Plain(kind)),
            Because::NodeLeaving => f.write_str("the node is being deleted"),
            Because::Unreadable { why } => write!(f, "the node's object cannot be read: {why}"),
            Because::Expired(found) => write!(f, "{found} for longer than {}", Seconds(found.lasts_for)),
            Because::Stale { source } => write!(f, "what is known of {source} may be out of date; waiting for the API server"),
            Because::KindNotServed { key } => {
                write!(f, "the API server does not know the kind {}: install its CRD", key.kind)
            }
            Because::TemplateMissing { key } => write!(f, "the template {key} does not exist: create it"),
            Because::TemplateInvalid { key, why } => write!(f, "the template {key} cannot be used: {why}"),
            Because::TemplateUnplaced { key } => write!(
                f,
                "the template {key} cannot be found, as no namespace is provided: write the template's namespace into its reference"
            ),
            Because::PolicyInvalid { why } => write!(f, "the check cannot be used: {why}"),
            Because::Paused { requests } => write!(f, "paused by pauseRequests: {}", Plain(&requests.join(", "))),
            Because::AllPaused { namespace, reason } => {
                write!(f, "everything is paused by the annotation resus.dev/pause on the namespace {namespace}: {reason}")
            }
            Because::PauseUnknown { namespace } => write!(
                f,
                "whether everything is paused is not known, as the namespace {namespace} may not be read: grant list and watch on it, as deploy/rbac.yaml does"
            ),
            Because::TooManyUnhealthy { not_healthy, allowed, of } => {
                write!(f, "{not_healthy} of {of} nodes are not healthy, repairs go on only while at most {allowed} are")
            }
            Because::Upgrading { detail, .. } => write!(f, "the cluster is being upgraded: {}", Plain(detail)),
            Because::UpgradeUnknown { detector } => {
                write!(
                    f,
                    "it is not known whether the cluster is being upgraded: what the detector {detector} looks at cannot be read"
                )
            }
            Because::ClockDiffers { ahead } => {
                let direction = if *ahead < 0 { "behind" } else { "ahead of" };
                let apart = ahead.unsigned_abs();
                write!(
                    f,
                    "the clock of this controller's host is {apart} s {direction} that of the API server, and nothing starts until they agree: look at the time synchronization of both hosts"
                )
            }
            Because::UnderMaintenance { mark } => write!(f, "the node is under maintenance: it has {}", Plain(mark)),
            Because::Overlapping { owner } => write!(f, "the older check {owner} is responsible for the node"),
            Because::Occupied { key } => write!(f, "{key} exists already and is not ours"),
            Because::Leaving { key } => write!(f, "the earlier {key} is still being deleted"),
            Because::LeftBehind { key } => {
                write!(f, "{key} may still be at work on it, and belongs to no check that could act: waiting until it is gone")
            }
            Because::NotLeading => f.write_str("another controller leads, and will start it"),
            Because::Removed { key, times } => write!(f, "somebody else removed {key}, {times} times by now; trying again later"),
            Because::Looking => f.write_str("asking the API server once more before starting"),
            Because::Queued => f.write_str("next in line, other requests are under way"),
            Because::Creating { key } => write!(f, "creating {key}"),
            Because::CreatingUnowned { key, machine, names } => {
                let named = names.as_deref().map_or_else(|| "no Node".to_owned(), |name| format!("Node {name}"));
                write!(f, "creating {key}, which Machine {machine} does not own: the node names it as its own, but its status.nodeRef names {named}")
            }
            Because::Refused { key, why, .. } => write!(f, "the API server refused {key}: {why}; trying again later"),
            Because::LookRefused { key, why } => {
                write!(f, "nothing starts before {key} has been read once more, which the API server refused: {why}; trying again later")
            }
            Because::Remediating { key, reason } => write!(f, "{reason}, {key} exists"),
            Because::Excluded => f.write_str("the node has the label remediation.medik8s.io/exclude-from-remediation=true"),
            Because::StormCooldown => {
                f.write_str("too many nodes were unhealthy a short while ago; waiting for stormCooldownDuration")
            }
            Because::ZoneDark { zone, not_healthy, allowed, of } => {
                let zone = if zone.is_empty() { "nodes without a zone" } else { zone };
                let zone = Plain(zone);
                write!(f, "{not_healthy} of {of} nodes of {zone} are not healthy, repairs go on there only while at most {allowed} are")
            }
            Because::ControlPlaneBusy { node } => {
                write!(f, "{node} is being remediated, and the control plane is repaired one node at a time")
            }
            Because::EtcdQuorum { ready, needed, of } => {
                write!(f, "etcd would lose its majority: {ready} other members of {of} are up, {needed} are needed")
            }
            Because::EtcdGuarded => f.write_str(
                "etcd would lose its majority: its PodDisruptionBudget allows no disruption, and the member on this node is up",
            ),
            Because::EtcdBudgets { found } => {
                write!(f, "{found} PodDisruptionBudgets in openshift-etcd, not the one that guards etcd's majority")
            }
            Because::ForeignController { lease, holder } => write!(
                f,
                "another controller takes care of it, {} by the Lease {lease}: stop that one, or annotate the check with resus.dev/take-over=true",
                Plain(holder)
            ),
            Because::Held { holder } => write!(f, "{} has the node out of service, by its Lease", Plain(holder)),
            Because::Holding => f.write_str("taking the Lease on the node"),
            Because::RemediatedTooOften { times, within } => {
                write!(f, "the node was remediated {times} times within {}, which is the limit", Seconds(*within))
            }
            Because::BackingOff { times } => {
                write!(f, "the node was remediated {times} times lately, and the next time waits for the back-off")
            }
            Because::NoTemplateLeft => f.write_str("every step of escalatingRemediations has been tried: repair the node by hand"),
            Because::MakingRoom { key } => write!(f, "removing the earlier {key}, as the next step needs its name"),
            Because::HealthyDelay { lasts_for } => {
                write!(f, "the node is healthy; its remediation is removed when it has been so for {}", Seconds(*lasts_for))
            }
            Because::Unconfirmed => f.write_str(
                "the node is healthy; its remediation is removed when the node has the annotation remediation.medik8s.io/manually-confirmed-healthy",
            ),
            Because::DryRun { key } => write!(f, "dry run: {key} would be created"),
            Because::DryRemoval { key } => write!(f, "dry run: {key} would be removed"),
            Because::NotSelected => f.write_str("the check no longer selects the node"),
            Because::NodeGone => f.write_str("the node is gone"),
            Because::NodeGoneProviderBusy { key } => write!(f, "the node is gone, but the provider of {key} is still at work"),
        }
    }
}

/// A duration as Go and YAML write it.
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}s", self.0.as_secs_f64()),
        }
    }
}
