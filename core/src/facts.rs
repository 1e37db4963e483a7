//! What do we know of the things in the cluster?
//!
//! Facts are parsed once, at the edge (crate `k8s`), and are small: a Node of 11 KB leaves less than 2 KB
//! here. An object that cannot be used is a fact too ([`Invalid`]), with the sentence that says why.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use crate::labels::{Labels, Requirement, Selector};
use crate::mhc::facts::{ClusterKey, Dialect, Flavour};
use crate::text::{NAME_MAX, Plain, is_name};
use crate::time::Wall;

/// A name that is handed around a lot: cheap to clone.
pub type Name = Arc<str>;

/// Where resus is installed, unless somebody says otherwise.
pub const DEFAULT_NAMESPACE: &str = "poison-pill";

/// Why something that the API holds cannot be used, as a sentence for the admin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Invalid(pub Name);

/// `metadata.resourceVersion`, ordered where the server's versions are numbers, as Kubernetes' are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Box<str>);

impl Version {
    /// Is this certainly older than `other`? Unknown counts as no, so that no fact is dropped by mistake.
    pub fn is_older_than(&self, other: &Version) -> bool {
        matches!((self.0.parse::<u64>(), other.0.parse::<u64>()), (Ok(own), Ok(theirs)) if own < theirs)
    }
}

/// The condition that every kubelet reports.
pub const READY: &str = "Ready";

/// A node, with all conditions and labels, and of the rest what decisions need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub name: Name,
    pub uid: Box<str>,
    pub created_at: Wall,
    /// Not a fact that decisions depend on: each heartbeat changes it.
    pub version: Version,
    pub labels: Labels,
    /// Only the annotations that somebody asks for.
    pub annotations: Box<[(Box<str>, Box<str>)]>,
    pub conditions: Box<[Condition]>,
    /// When each of them was reported, by the clock of who reports it. Empty once it has been taken in: it is asked for only
    /// when a condition has changed, and each heartbeat changes it.
    pub reported_at: Box<[Wall]>,
    pub taints: Box<[Taint]>,
    pub boot_id: Box<str>,
    pub kubelet_version: Box<str>,
    pub provider_id: Option<ProviderId>,
    pub unschedulable: bool,
    pub deleting: bool,
}

/// By which the infrastructure knows the host of a Node, or of a Machine: `spec.providerID`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderId(Name);

/// In bytes: twice what the longest that clouds give need.
const PROVIDER_ID_MAX: usize = 512;

impl ProviderId {
    /// Empty is as good as absent.
    pub fn new(text: &str) -> Option<ProviderId> {
        let kept = text.char_indices().find(|(at, _)| *at > PROVIDER_ID_MAX).map_or(text, |(at, _)| &text[..at]);
        (!text.is_empty()).then(|| ProviderId(kept.into()))
    }

    /// Of one host? What is too long to be kept is not known well enough for that. Azure writes the same id in upper and in
    /// lower case.
    pub fn is_of_the_host_of(&self, other: &ProviderId) -> bool {
        self.0.len() <= PROVIDER_ID_MAX && self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(&self.0).fmt(f)
    }
}

impl Node {
    /// Is there nothing in `other` that a decision could depend on? True for heartbeats.
    pub fn says_the_same_as(&self, other: &Node) -> bool {
        let Node {
            name,
            uid,
            created_at: _, // Another uid has another.
            version: _,
            labels,
            annotations,
            conditions,
            reported_at: _,
            taints,
            boot_id,
            kubelet_version,
            provider_id,
            unschedulable,
            deleting,
        } = self;
        *conditions == other.conditions
            && *labels == other.labels
            && *taints == other.taints
            && *annotations == other.annotations
            && *uid == other.uid
            && *name == other.name
            && *boot_id == other.boot_id
            && *kubelet_version == other.kubelet_version
            && *provider_id == other.provider_id
            && *unschedulable == other.unschedulable
            && *deleting == other.deleting
    }

    /// Bytes that it takes, about; but for its version, which each heartbeat changes.
    pub fn weight(&self) -> usize {
        let label = |(key, value): (&str, &str)| key.len() + value.len() + 2 * size_of::<u32>();
        let annotation = |(key, value): &(Box<str>, Box<str>)| key.len() + value.len() + 2 * size_of::<Box<str>>();
        let condition = |own: &Condition| own.kind.len() + own.status.weight() + own.reason.len() + size_of::<Condition>();
        let taint = |own: &Taint| own.key.len() + own.value.len() + own.effect.len() + size_of::<Taint>();
        let texts = [self.uid.len(), self.boot_id.len(), self.kubelet_version.len()];
        size_of::<Node>()
            + self.name.len()
            + texts.iter().sum::<usize>()
            + self.labels.iter().map(label).sum::<usize>()
            + self.annotations.iter().map(annotation).sum::<usize>()
            + self.conditions.iter().map(condition).sum::<usize>()
            + self.taints.iter().map(taint).sum::<usize>()
    }

    pub fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| &*condition.kind == READY && condition.status == Status::True)
    }

    /// Whether it is ready or not, it has said so.
    pub fn has_reported(&self) -> bool {
        self.conditions.iter().any(|condition| &*condition.kind == READY)
    }

    pub fn is_confirmed_healthy(&self) -> bool {
        self.annotations.iter().any(|(key, _)| &**key == CONFIRMED_HEALTHY)
    }

    /// Namespace and name of its Machine, where it says so.
    pub fn machine(&self) -> Option<(&str, &str)> {
        let place = self.annotations.iter().find(|(key, _)| &**key == MACHINE_ANNOTATION)?.1.split_once('/');
        // The kubelet may write anything there.
        place.filter(|(namespace, name)| is_name(namespace) && is_name(name))
    }

    /// Or a host of etcd, without which there is none.
    pub fn is_control_plane(&self) -> bool {
        CONTROL_PLANE_LABELS.iter().any(|label| self.labels.get(label).is_some()) || self.has_etcd_label()
    }

    pub fn has_etcd_label(&self) -> bool {
        self.labels.get(ETCD_LABEL).is_some()
    }
}

/// On a Node of OpenShift: namespace and name of its Machine.
pub const MACHINE_ANNOTATION: &str = "machine.openshift.io/machine";
pub const MACHINE_API_VERSION: &str = "machine.openshift.io/v1beta1";
/// By presence, whatever their value; the members of etcd on nodes of their own.
pub const ETCD_LABEL: &str = "node-role.kubernetes.io/etcd";
/// With the value `true`: nothing is started on this node.
pub const EXCLUDE_LABEL: &str = "remediation.medik8s.io/exclude-from-remediation";
/// On a Node, by a person, with any value: it is healthy, and delayed removals need not wait.
pub const CONFIRMED_HEALTHY: &str = "remediation.medik8s.io/manually-confirmed-healthy";
/// By presence, whatever their value.
pub const CONTROL_PLANE_LABELS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    pub kind: Box<str>,
    pub status: Status,
    pub since: Wall,
    /// One word for people.
    pub reason: Box<str>,
}

impl Condition {
    /// The same, and for as long.
    pub fn is_since_when(&self, other: &Condition) -> bool {
        (&self.kind, &self.status, self.since) == (&other.kind, &other.status, other.since)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    True,
    False,
    Unknown,
    /// The API does not restrict the status of a Node condition; a rule may ask for any text.
    Other(Box<str>),
}

impl From<&str> for Status {
    fn from(text: &str) -> Status {
        match text {
            "True" => Status::True,
            "False" => Status::False,
            "Unknown" => Status::Unknown,
            other => Status::Other(other.into()),
        }
    }
}

impl Status {
    fn weight(&self) -> usize {
        match self {
            Status::True | Status::False | Status::Unknown => 0,
            Status::Other(text) => text.len(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
            Status::Other(other) => return write!(f, "{}", Plain(other)),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Box<str>,
    pub value: Box<str>,
    pub effect: Box<str>,
}

/// A NodeHealthCheck as it stands in the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    pub name: Name,
    pub uid: Name,
    pub version: Version,
    pub created_at: Wall,
    pub deleting: bool,
    /// Annotation `resus.dev/take-over: "true"`: ours, whoever installed its definition.
    pub take_over: bool,
    /// The check that we created ourselves: it yields to every other.
    pub is_default: bool,
    pub policy: Result<Policy, Invalid>,
    pub status: crate::nhc::CheckStatus,
}

impl Check {
    pub fn key(&self) -> ObjectKey {
        let kind = Kind { api_version: CHECK_API_VERSION.into(), kind: CHECK_KIND.into() };
        ObjectKey { kind, namespace: None, name: self.name.clone() }
    }
}

pub const CHECK_API_VERSION: &str = "remediation.medik8s.io/v1alpha1";
pub const CHECK_KIND: &str = "NodeHealthCheck";

/// Of whose checks do we take care? Two controllers on one object fight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Of all if the definition is ours; otherwise of those that say so.
    #[default]
    Marked,
    All,
    Off,
}

/// What a check asks for, whichever API it was written in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub selector: Selector,
    pub rules: Vec<Rule>,
    pub threshold: Threshold,
    /// What repairs a node, to be tried one after the other; never empty.
    pub steps: Vec<Step>,
    pub pause_requests: Vec<Box<str>>,
    pub healthy_delay: HealthyDelay,
    /// After a storm nothing starts for so long.
    pub storm_cooldown: Option<Duration>,
    pub mode: Mode,
    /// The limit holds for the nodes of each value of this label, too.
    pub topology_key: Option<Box<str>>,
    pub repeat: Option<Repeat>,
    /// A node that has not reported Ready for so long after it was created is unhealthy.
    pub startup_timeout: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    pub template: ObjectKey,
    /// None: it is the only one, and never given up.
    pub timeout: Option<Duration>,
}

/// When is a remediation removed from a node that is healthy again?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HealthyDelay {
    #[default]
    None,
    For(Duration),
    /// A person has to say so.
    UntilConfirmed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    #[default]
    Act,
    /// Decide and report, but change nothing.
    DryRun,
}

/// How often may one node be remediated?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repeat {
    pub max: u32,
    pub within: Duration,
    /// Between the first and the second time; it doubles with each further one.
    pub backoff: Duration,
    pub max_backoff: Duration,
}

/// A condition with this type and status for longer than this means unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    pub kind: Box<str>,
    pub status: Status,
    pub lasts_for: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threshold {
    MaxUnhealthy(Amount),
    MinHealthy(Amount),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    Count(u32),
    Percent(u32),
}

/// Is exactly `maxUnhealthy` still allowed?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Limit {
    #[default]
    Allowed,
    /// With `--short-circuit-at-limit`.
    Shut,
}

impl Threshold {
    /// More than all.
    pub fn is_clamped(self) -> bool {
        match self {
            Threshold::MaxUnhealthy(Amount::Percent(percent)) | Threshold::MinHealthy(Amount::Percent(percent)) => percent > 100,
            Threshold::MaxUnhealthy(Amount::Count(_)) | Threshold::MinHealthy(Amount::Count(_)) => false,
        }
    }

    /// How many of `targets` may be not healthy for repairs to go on. `maxUnhealthy` rounds down and
    /// `minHealthy` rounds up, so that 49% and 51% mean the same; what is above the number, or 100%, is clamped.
    pub fn allowed(self, targets: usize, limit: Limit) -> usize {
        let at_most = |max: usize| match limit {
            Limit::Allowed => max.min(targets),
            Limit::Shut => max.saturating_sub(1).min(targets),
        };
        let hundredths = |percent: u32| targets * percent.min(100) as usize;
        match self {
            Threshold::MaxUnhealthy(Amount::Count(max)) => at_most(max as usize),
            Threshold::MaxUnhealthy(Amount::Percent(percent)) => at_most(hundredths(percent) / 100),
            Threshold::MinHealthy(Amount::Count(min)) => targets.saturating_sub(min as usize),
            Threshold::MinHealthy(Amount::Percent(percent)) => targets.saturating_sub(hundredths(percent).div_ceil(100)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// `group/version`, or `v1`.
    pub api_version: Name,
    pub kind: Name,
}

impl Kind {
    /// Empty for the core of Kubernetes.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// In another version it is the same object.
    pub fn is_like(&self, other: &Kind) -> bool {
        (self.group(), &self.kind) == (other.group(), &other.kind)
    }

    /// As far as a path is concerned.
    pub fn is_plausible(&self) -> bool {
        let is_version = self.api_version.split('/').count() <= 2 && self.api_version.split('/').all(is_name);
        let is_kind =
            !self.kind.is_empty() && self.kind.len() <= NAME_MAX && self.kind.chars().all(|c| c.is_ascii_alphanumeric());
        is_version && is_kind
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.api_version)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: Kind,
    /// None for kinds that are not namespaced.
    pub namespace: Option<Name>,
    pub name: Name,
}

impl ObjectKey {
    pub fn is_plausible(&self) -> bool {
        self.kind.is_plausible() && is_name(&self.name) && self.namespace.as_deref().is_none_or(is_name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {}/{}", self.kind.kind, namespace, self.name),
            None => write!(f, "{} {}", self.kind.kind, self.name),
        }
    }
}

/// An object of a kind that only its provider knows: a template or a remediation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    pub key: ObjectKey,
    pub uid: Name,
    pub version: Version,
    pub created_at: Wall,
    pub deleting: bool,
    pub finalizers: u32,
    pub owners: Box<[OwnerRef]>,
    /// Annotation `remediation.medik8s.io/node-name`, or, where there is none, its own name.
    pub node: Name,
    /// Annotation `remediation.medik8s.io/template-name`.
    pub template: Option<Name>,
    /// Annotation `remediation.medik8s.io/multiple-templates-support`: several objects per node are fine.
    pub allows_several: bool,
    /// Label `remediation.medik8s.io/isControlPlaneNode`.
    pub control_plane: bool,
    /// Condition `Processing` is True.
    pub processing: bool,
    /// Condition `PermanentNodeDeletionExpected` is True: its node goes for good.
    pub expects_node_to_go: bool,
    /// Condition `Succeeded`, if it is True or False.
    pub succeeded: Option<bool>,
    /// Annotation `remediation.medik8s.io/nhc-timed-out`.
    pub timed_out: bool,
    /// Annotation `remediation.medik8s.io/healthy-delay`: since when its node is healthy, for who reads it there.
    pub healthy_since: Option<Wall>,
    /// Annotation `nodehealthcheck.medik8s.io/old-remediation-cr-flag`.
    pub flagged_old: bool,
    /// Annotation `resus.dev/machine-health-check`: the uid of the one that it was made under.
    pub machine_check: Option<Name>,
    /// Of templates: what is made from it, or why nothing can be.
    pub body: Option<Result<Body, Invalid>>,
}

/// Who owns an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    pub uid: Box<str>,
    /// `controller: true`: the object is a part of its owner.
    pub controls: bool,
    /// The owner is a NodeHealthCheck.
    pub is_check: bool,
}

impl Object {
    /// Is it the work of some NodeHealthCheck?
    pub fn is_for_node(&self) -> bool {
        self.body.is_none() && self.owners.iter().any(|owner| owner.is_check && !owner.controls)
    }

    pub fn has_owner(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| *owner.uid == *uid)
    }

    /// Is it owned by what has this uid, and no part of it? Remediations are; what a controller consists of is not, nor is a template.
    pub fn is_made_for(&self, uid: &str) -> bool {
        self.body.is_none() && self.has_owner(uid) && !self.owners.iter().any(|owner| *owner.uid == *uid && owner.controls)
    }
}

/// What a template says of the objects that are made from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    /// `spec.template.spec`, as canonical JSON.
    pub spec: Name,
    /// Labels and annotations in `spec.template.metadata`.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    pub annotations: Box<[(Box<str>, Box<str>)]>,
}

/// A Lease on a node, by which operators that take nodes out of service keep off each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeLease {
    pub name: Name,
    pub uid: Name,
    pub version: Version,
    pub holder: Name,
    pub acquired_at: Wall,
    pub renewed_at: Wall,
    pub lasts_for: Duration,
    pub transitions: u32,
}

/// The PodDisruptionBudget by which OpenShift keeps etcd's majority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Selects the Pods that guard etcd's members.
    pub selector: Selector,
    pub disruptions_allowed: u32,
}

/// A Pod beside a member of etcd, ready while the member is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    pub node: Name,
    pub labels: Labels,
    /// Its condition Ready, if it has one.
    pub ready: Option<Status>,
}

/// The Lease by which the controller of others elects its leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RivalLease {
    pub holder: Name,
    pub renewed_at: Wall,
    pub lasts_for: Duration,
}

/// The namespace where resus is installed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnNamespace {
    pub name: Name,
    pub uid: Name,
    pub version: Version,
    /// Annotation `resus.dev/pause`, as people may see it: everything is paused, and why.
    pub pause: Option<Name>,
}

/// How the API serves a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    pub plural: Name,
    pub namespaced: bool,
}

/// Objects of others that tell of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// OpenShift's.
    ClusterVersions,
    /// Its DaemonSet, which holds its lock.
    Kured,
    /// The system-upgrade-controller's.
    Plans,
}

/// What one of them says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SignalFact {
    Quiet,
    Busy {
        /// As part of a sentence.
        what: Name,
        /// Since when, and for how long at most, where it says so.
        lasts: Option<(Wall, Duration)>,
        /// Whose matter it is; none: not that of single nodes.
        nodes: Box<[Name]>,
    },
}

/// What a watch is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Nodes,
    Checks,
    /// CustomResourceDefinitions, to learn of kinds that come and go.
    Kinds,
    Objects(Kind),
    /// Leases on nodes, ours and those of others.
    NodeLeases,
    /// Pods of etcd's members.
    Etcd,
    /// The namespace where resus is installed.
    OwnNamespace,
    /// OpenShift's, of etcd.
    Budgets,
    Guards,
    /// The Lease of the leader of somebody else's controller.
    Rivals(Rival),
    Signals(Signal),
    MachineChecks(Dialect),
    Machines(Dialect),
    Clusters(Dialect),
    /// The Secret with the kubeconfig of a Cluster.
    Access(ClusterKey),
    RemoteNodes(ClusterKey),
    RemoteEtcd(ClusterKey),
}

/// Whose controller might take care of the same checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rival {
    Medik8s,
    ClusterApi,
    OpenShift,
}

impl Rival {
    pub fn of(flavour: Flavour) -> Rival {
        match flavour {
            Flavour::ClusterApi => Rival::ClusterApi,
            Flavour::OpenShift => Rival::OpenShift,
        }
    }
}

impl Source {
    /// Whose server it is asked of; none: our own.
    pub fn cluster(&self) -> Option<&ClusterKey> {
        match self {
            Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster) => Some(cluster),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Nodes => f.write_str("Nodes"),
            Source::Checks => f.write_str("NodeHealthChecks"),
            Source::Kinds => f.write_str("CustomResourceDefinitions"),
            Source::Objects(kind) => write!(f, "{kind}"),
            Source::NodeLeases => f.write_str("Leases on nodes"),
            Source::Etcd => f.write_str("etcd's Pods"),
            Source::OwnNamespace => f.write_str("our own namespace"),
            Source::Budgets => f.write_str("PodDisruptionBudgets in openshift-etcd"),
            Source::Guards => f.write_str("Pods in openshift-etcd"),
            Source::Rivals(Rival::Medik8s) => f.write_str("the leader Lease of medik8s' controller"),
            Source::Rivals(Rival::ClusterApi) => f.write_str("the leader Lease of Cluster API's controller"),
            Source::Rivals(Rival::OpenShift) => f.write_str("the leader Lease of OpenShift's machine health check controller"),
            Source::MachineChecks(dialect) => write!(f, "MachineHealthChecks ({})", dialect.api_version()),
            Source::Machines(dialect) => write!(f, "Machines ({})", dialect.api_version()),
            Source::Clusters(dialect) => write!(f, "Clusters ({})", dialect.api_version()),
            Source::Access(cluster) => write!(f, "the kubeconfig Secret of the {cluster}"),
            Source::RemoteNodes(cluster) => write!(f, "the Nodes of the {cluster}"),
            Source::RemoteEtcd(cluster) => write!(f, "etcd's Pods of the {cluster}"),
            Source::Signals(Signal::ClusterVersions) => f.write_str("ClusterVersions"),
            Source::Signals(Signal::Kured) => f.write_str("the DaemonSet kured"),
            Source::Signals(Signal::Plans) => f.write_str("Plans of the system-upgrade-controller"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_round_to_the_safe_side() {
        use Amount::{Count, Percent};
        use Threshold::{MaxUnhealthy, MinHealthy};
        for (threshold, targets, allowed) in [
            (MaxUnhealthy(Percent(40)), 5, 2),
            (MaxUnhealthy(Percent(49)), 3, 1),
            (MinHealthy(Percent(51)), 3, 1),
            (MaxUnhealthy(Percent(49)), 100, 49),
            (MinHealthy(Percent(51)), 100, 49),
            (MaxUnhealthy(Percent(40)), 2, 0),
            (MaxUnhealthy(Percent(150)), 4, 4),
            (MaxUnhealthy(Percent(100)), 4, 4),
            (MaxUnhealthy(Count(12)), 10, 10),
            (MaxUnhealthy(Count(0)), 10, 0),
            (MinHealthy(Count(12)), 10, 0),
            (MinHealthy(Count(0)), 10, 10),
            (MinHealthy(Percent(75)), 10, 2),
            (MaxUnhealthy(Percent(49)), 0, 0),
        ] {
            assert_eq!(threshold.allowed(targets, Limit::Allowed), allowed, "{threshold:?} of {targets}");
        }
    }

    /// Repairs go on while fewer than `maxUnhealthy` are not healthy; `minHealthy` says what it says.
    #[test]
    fn at_the_limit_the_stricter_reading_stops() {
        use Amount::{Count, Percent};
        use Threshold::{MaxUnhealthy, MinHealthy};
        for (threshold, targets, allowed) in [
            (MaxUnhealthy(Count(3)), 10, 2),
            (MaxUnhealthy(Count(1)), 10, 0),
            (MaxUnhealthy(Count(0)), 10, 0),
            (MaxUnhealthy(Percent(40)), 5, 1),
            (MaxUnhealthy(Percent(100)), 5, 4),
            (MaxUnhealthy(Percent(150)), 5, 4),
            (MaxUnhealthy(Count(12)), 10, 10),
            (MinHealthy(Count(8)), 10, 2),
            (MinHealthy(Percent(51)), 3, 1),
        ] {
            assert_eq!(threshold.allowed(targets, Limit::Shut), allowed, "{threshold:?} of {targets}");
        }
    }

    #[test]
    fn provider_ids_are_of_one_host_where_they_say_the_same() {
        let id = |text: &str| ProviderId::new(text).expect("it is not empty");
        let (longest, too_long) = ("x".repeat(PROVIDER_ID_MAX), "x".repeat(PROVIDER_ID_MAX + 1));
        for (one, other, same) in [
            ("aws:///z/i-1", "aws:///z/i-1", true),
            ("aws:///z/i-1", "aws:///z/i-2", false),
            ("azure:///subscriptions/1/resourceGroups/MC_a", "azure:///subscriptions/1/resourcegroups/mc_a", true),
            (&*longest, &*longest, true),
            (&*too_long, &*too_long, false),
        ] {
            assert_eq!(id(one).is_of_the_host_of(&id(other)), same, "{one} {other}");
        }
        assert_eq!(ProviderId::new(""), None);
        // Of a text without an end no more is kept than shows that it is too long.
        let ProviderId(kept) = id(&"\u{fc}".repeat(100_000));
        assert!(kept.len() <= PROVIDER_ID_MAX + 4, "{} bytes", kept.len());
    }

    #[test]
    fn versions_are_compared_only_where_they_are_numbers() {
        let version = |text: &str| Version(text.into());
        assert!(version("9").is_older_than(&version("10")));
        assert!(!version("10").is_older_than(&version("10")));
        assert!(!version("abc").is_older_than(&version("10")));
    }
}
