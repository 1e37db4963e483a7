//! What do we know of Machines, of their clusters, and of the checks that watch over them?

use std::fmt;
use std::time::Duration;

use crate::facts::{
    Amount, Condition, Invalid, Kind, Labels, Name, Object, ObjectKey, ProviderId, Rule, Selector, Status, Version,
};
use crate::text::is_name;
use crate::time::Wall;

/// Whose API a Machine and its checks belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// Nodes may be in clusters of their own, and owners repair.
    ClusterApi,
    /// Nodes are in this cluster, and checks delete.
    OpenShift,
}

impl Flavour {
    pub const ALL: [Flavour; 2] = [Flavour::ClusterApi, Flavour::OpenShift];

    pub fn group(self) -> &'static str {
        match self {
            Flavour::ClusterApi => "cluster.x-k8s.io",
            Flavour::OpenShift => "machine.openshift.io",
        }
    }

    /// The newest first: what a server has of it is read in that.
    pub fn dialects(self) -> &'static [Dialect] {
        match self {
            Flavour::ClusterApi => &[Dialect::V1beta2, Dialect::V1beta1, Dialect::V1alpha3],
            Flavour::OpenShift => &[Dialect::OpenShift],
        }
    }
}

/// The API version in which Machines and their checks are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    V1alpha3,
    V1beta1,
    V1beta2,
    OpenShift,
}

pub const MACHINE_KIND: &str = "Machine";
pub const MACHINE_CHECK_KIND: &str = "MachineHealthCheck";
pub const CLUSTER_KIND: &str = "Cluster";

impl Dialect {
    pub fn flavour(self) -> Flavour {
        match self {
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => Flavour::ClusterApi,
            Dialect::OpenShift => Flavour::OpenShift,
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            Dialect::V1alpha3 => "cluster.x-k8s.io/v1alpha3",
            Dialect::V1beta1 => "cluster.x-k8s.io/v1beta1",
            Dialect::V1beta2 => "cluster.x-k8s.io/v1beta2",
            Dialect::OpenShift => "machine.openshift.io/v1beta1",
        }
    }

    pub fn kind(self, kind: &str) -> Kind {
        Kind { api_version: self.api_version().into(), kind: kind.into() }
    }

    /// In which styles conditions are written.
    pub fn styles(self) -> &'static [Style] {
        match self {
            Dialect::V1beta1 | Dialect::V1beta2 => &[Style::New, Style::Legacy],
            Dialect::V1alpha3 | Dialect::OpenShift => &[Style::Legacy],
        }
    }
}

/// How a condition looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Style {
    /// As everywhere in Kubernetes today.
    New,
    /// With a severity.
    Legacy,
}

/// Where a Machine or a check is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub flavour: Flavour,
    pub namespace: Name,
    pub name: Name,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Cluster, which has Nodes of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    pub namespace: Name,
    pub name: Name,
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster {}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    pub key: ClusterKey,
    pub uid: Name,
    /// Annotation `resus.dev/cluster-uid`: a person says which cluster this is.
    pub identity: Option<Name>,
    pub paused: bool,
    /// Since when, if it is. Where the API says that it is, but not since when: since the Cluster was created.
    pub control_plane_initialized_at: Option<Wall>,
    pub infrastructure_ready_at: Option<Wall>,
}

/// How the API of a Cluster is reached: a kubeconfig, which nobody should find in a log.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Access(pub Name);

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    pub place: Place,
    pub dialect: Dialect,
    pub uid: Name,
    pub version: Version,
    pub generation: i64,
    pub created_at: Wall,
    pub deleting: bool,
    pub labels: Labels,
    pub marks: Marks,
    /// An owner says that it controls the machine, so that it would make another.
    pub has_controller: bool,
    /// Group and kind of what `spec.infrastructureRef` and `spec.bootstrap.configRef` name, where that has the machine's own
    /// name, as it usually has.
    pub parts: Box<[(Box<str>, Box<str>)]>,
    /// `status.nodeRef.name`.
    pub node: Option<Name>,
    pub provider_id: Option<ProviderId>,
    /// OpenShift: its phase is Failed.
    pub failed: bool,
    /// OpenShift: `status.lastUpdated`.
    pub updated_at: Option<Wall>,
    /// Of the new style where the version has it.
    pub conditions: Box<[Condition]>,
    /// What checks have written on it, in each style of its dialect.
    pub boards: Box<[Board]>,
}

/// On a Machine of Cluster API.
pub const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
pub const CONTROL_PLANE_MACHINE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// On a Machine of OpenShift.
pub const ROLE_LABEL: (&str, &str) = ("machine.openshift.io/cluster-api-machine-role", "master");

impl Machine {
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.dialect.kind(MACHINE_KIND),
            namespace: Some(self.place.namespace.clone()),
            name: self.place.name.clone(),
        }
    }

    /// The Cluster that it belongs to.
    pub fn cluster(&self) -> Option<&str> {
        self.labels.get(CLUSTER_LABEL)
    }

    /// Was the object made to repair the machine? By its mark by us, without it by another controller. What a machine consists
    /// of has its name, too, and is owned by it, but never counts; nor does what names it as an owner from another namespace.
    pub fn is_repaired_by(&self, object: &Object) -> bool {
        let is_ours = object.machine_check.is_some() && object.has_owner(&self.uid);
        let is_beside = object.key.namespace.as_ref() == Some(&self.place.namespace);
        is_beside && (is_ours || object.is_made_for(&self.uid)) && !self.consists_of(object) && object.body.is_none()
    }

    /// By its kind: does the machine name it as a part of itself?
    pub fn consists_of(&self, object: &Object) -> bool {
        let group = object.key.kind.group();
        self.parts.iter().any(|(own, kind)| **own == *group && **kind == *object.key.kind.kind)
    }

    /// Does something stand where the name of its node belongs that is none?
    pub fn is_misnamed(&self) -> bool {
        self.node.as_deref().is_some_and(|name| !is_name(name))
    }

    pub fn is_control_plane(&self) -> bool {
        match self.place.flavour {
            Flavour::ClusterApi => self.labels.get(CONTROL_PLANE_MACHINE_LABEL).is_some(),
            Flavour::OpenShift => self.labels.get(ROLE_LABEL.0) == Some(ROLE_LABEL.1),
        }
    }

    /// What is the same on a neighbour need not be kept twice; and every plan compares it on every machine, where what takes
    /// long is to fetch what is scattered over the memory.
    pub fn share_texts(&mut self, other: &Machine) {
        let share = |own: &mut Name, other: &Name| {
            if *own == *other {
                *own = other.clone();
            }
        };
        self.labels.share_keys(&other.labels);
        share(&mut self.place.namespace, &other.place.namespace);
        for (own, other) in self.boards.iter_mut().zip(&other.boards) {
            for pair in own.slots.iter_mut().zip(&other.slots) {
                if let (Slot::At(_, own), Slot::At(_, other)) = pair {
                    share(&mut own.reason, &other.reason);
                }
            }
        }
    }

    /// The condition of this type, if it is True: since when.
    pub fn is_true_since(&self, kind: &str) -> Option<Wall> {
        self.conditions.iter().find(|own| &*own.kind == kind && own.status == Status::True).map(|own| own.since)
    }

    pub fn board(&self, style: Style) -> Option<&Board> {
        self.boards.iter().find(|board| board.style == style)
    }

    /// As the owners read it: in the new style where there is one.
    pub fn sign(&self, sign: Sign) -> Option<&Posted> {
        let found = |style| self.board(style).and_then(|board| board.get(sign));
        found(Style::New).or_else(|| found(Style::Legacy))
    }
}

/// By which annotations people and programs interfere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    /// `cluster.x-k8s.io/paused`
    pub paused: bool,
    /// `cluster.x-k8s.io/skip-remediation`
    pub skipped: bool,
    /// `cluster.x-k8s.io/remediate-machine`
    pub remediate: bool,
    /// `host.metal3.io/external-remediation`
    pub power_cycle: bool,
    /// Any of those by which OpenShift's actuator remembers that it has begun to power-cycle.
    pub power_cycling: bool,
}

/// A condition by which checks and owners speak about a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    HealthCheckSucceeded,
    OwnerRemediated,
    ExternallyRemediated,
}

impl Sign {
    pub const ALL: [Sign; 3] = [Sign::HealthCheckSucceeded, Sign::OwnerRemediated, Sign::ExternallyRemediated];

    pub fn name(self) -> &'static str {
        match self {
            Sign::HealthCheckSucceeded => "HealthCheckSucceeded",
            Sign::OwnerRemediated => "OwnerRemediated",
            Sign::ExternallyRemediated => "ExternallyRemediated",
        }
    }
}

/// The list of a Machine's conditions in one style, as far as signs are concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Board {
    pub style: Style,
    /// How many elements of the path to the list are missing; none if the list is there, be it empty.
    pub missing: u8,
    /// One for each of [`Sign::ALL`].
    pub slots: [Slot; 3],
}

/// Where a sign is, or would be, in the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    At(u32, Posted),
    /// Before the condition with this number, so that the list stays in order.
    Before(u32),
}

impl Board {
    pub fn get(&self, sign: Sign) -> Option<&Posted> {
        match self.slot(sign) {
            Slot::At(_, posted) => Some(posted),
            Slot::Before(_) => None,
        }
    }

    pub fn slot(&self, sign: Sign) -> &Slot {
        &self.slots[sign as usize]
    }
}

/// A condition with all that it says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Posted {
    pub status: Status,
    pub reason: Name,
    /// Of the legacy style, while it is not True.
    pub severity: Option<Name>,
    pub message: Name,
    pub since: Wall,
    pub observed_generation: Option<i64>,
    /// We wrote it, as far as `managedFields` tells.
    pub ours: bool,
}

/// A MachineHealthCheck, in whichever version the API serves it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineCheck {
    pub place: Place,
    pub dialect: Dialect,
    pub uid: Name,
    pub version: Version,
    pub generation: i64,
    pub created_at: Wall,
    pub deleting: bool,
    /// Annotation `resus.dev/take-over: "true"`.
    pub take_over: bool,
    /// Annotation `cluster.x-k8s.io/paused`.
    pub paused: bool,
    /// `spec.clusterName`; none: this cluster.
    pub cluster: Option<Name>,
    pub ties: Ties,
    pub policy: Result<MachinePolicy, Invalid>,
    pub status: MachineCheckStatus,
}

/// What of a check's metadata ties it to its Cluster: `clusterctl move` follows it, and so does the garbage collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ties {
    pub has_labels: bool,
    /// The label [`CLUSTER_LABEL`].
    pub label: Option<Box<str>>,
    pub has_owners: bool,
    /// Its place among the owners, and the uid, of the owner that is a Cluster of the name in `spec.clusterName`.
    pub owner: Option<(u32, Box<str>)>,
}

impl MachineCheck {
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.dialect.kind(MACHINE_CHECK_KIND),
            namespace: Some(self.place.namespace.clone()),
            name: self.place.name.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachinePolicy {
    pub selector: Selector,
    /// On conditions of the node.
    pub node_rules: Vec<Rule>,
    /// On conditions of the machine.
    pub machine_rules: Vec<Rule>,
    /// None: a machine without a node is not judged.
    pub startup_timeout: Option<Duration>,
    pub budget: Budget,
    pub repair: Repair,
}

/// Between which numbers of machines that are not healthy may repairs start?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Budget {
    AtMost(Amount),
    /// Both included.
    Between {
        min: u32,
        max: u32,
    },
}

/// Who repairs a machine?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Repair {
    /// Its owner, by its conditions.
    Owner,
    /// Whoever takes care of the objects that are made from this template, which is in the machine's namespace.
    Template { kind: Kind, name: Name },
    /// OpenShift's bare metal actuator, by an annotation; a machine that failed is deleted.
    PowerCycle,
    /// Its controller, when it is gone.
    Deletion,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MachineCheckStatus {
    pub expected: Option<u32>,
    pub healthy: Option<u32>,
    pub remediations_allowed: Option<u32>,
    /// Not on OpenShift, and neither are the targets.
    pub observed_generation: Option<i64>,
    pub targets: Vec<Name>,
    /// By type; empty where the dialect does not have the style.
    pub new: Vec<(Box<str>, Posted)>,
    pub legacy: Vec<(Box<str>, Posted)>,
}
