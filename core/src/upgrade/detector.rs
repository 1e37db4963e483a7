//! Which signs of an upgrade are looked for?

use std::collections::BTreeSet;
use std::fmt;

use crate::facts::{Kind, Signal, Taint};
use crate::reasons;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detector {
    /// OpenShift says that it moves to another version.
    ClusterVersion,
    /// OpenShift moves a selected node to another configuration; hosted control planes tell by this alone.
    MachineConfig,
    /// Kubelets of the selected nodes change their versions.
    KubeletVersions,
    /// The API server has a new version, and the nodes follow.
    ServerVersion,
    /// kured reboots a node.
    Kured,
    /// The system-upgrade-controller carries out a Plan.
    Plans,
    /// Somebody marked a node; this concerns that node alone.
    Maintenance,
}

impl Detector {
    pub const ALL: [Detector; 7] = [
        Detector::ClusterVersion,
        Detector::MachineConfig,
        Detector::KubeletVersions,
        Detector::ServerVersion,
        Detector::Kured,
        Detector::Plans,
        Detector::Maintenance,
    ];

    /// For flags, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Detector::ClusterVersion => "cluster-version",
            Detector::MachineConfig => "machine-config",
            Detector::KubeletVersions => "kubelet-versions",
            Detector::ServerVersion => "server-version",
            Detector::Kured => "kured",
            Detector::Plans => "plans",
            Detector::Maintenance => "maintenance",
        }
    }

    /// In the condition `Upgrading`.
    pub fn reason(self) -> &'static str {
        match self {
            Detector::ClusterVersion => reasons::UPGRADING_CLUSTER_VERSION,
            Detector::MachineConfig => reasons::UPGRADING_MACHINE_CONFIG,
            Detector::KubeletVersions => reasons::UPGRADING_KUBELETS,
            Detector::ServerVersion => reasons::UPGRADING_SERVER,
            Detector::Kured => reasons::UPGRADING_KURED,
            Detector::Plans => reasons::UPGRADING_PLANS,
            Detector::Maintenance => reasons::UPGRADING_MAINTENANCE,
        }
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Signal {
    pub const ALL: [Signal; 3] = [Signal::ClusterVersions, Signal::Kured, Signal::Plans];

    pub fn detector(self) -> Detector {
        match self {
            Signal::ClusterVersions => Detector::ClusterVersion,
            Signal::Kured => Detector::Kured,
            Signal::Plans => Detector::Plans,
        }
    }

    /// The kind that has to be served for this to be watched. DaemonSets always are.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Signal::ClusterVersions => Some(("config.openshift.io/v1", "ClusterVersion")),
            Signal::Plans => Some(("upgrade.cattle.io/v1", "Plan")),
            Signal::Kured => None,
        }
        .map(|(api_version, kind)| Kind { api_version: api_version.into(), kind: kind.into() })
    }
}

/// Which detectors are on, and what means that a node is under maintenance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Detectors {
    pub on: BTreeSet<Detector>,
    pub annotations: Vec<Mark>,
    pub taints: Vec<Mark>,
}

impl Detectors {
    pub fn is_on(&self, detector: Detector) -> bool {
        self.on.contains(&detector)
    }
}

/// Set by kured while it reboots a node, if it runs with --annotate-nodes.
pub const MAINTENANCE_ANNOTATIONS: [&str; 1] = ["weave.works/kured-reboot-in-progress"];
/// In this order: the node maintenance operator, the cluster autoscaler, and Karpenter as it is and as it was before 1.0,
/// drain the node, and the last three remove it. A mere cordon (`node.kubernetes.io/unschedulable`) says nothing: people
/// and remediators cordon broken nodes.
pub const MAINTENANCE_TAINTS: [&str; 4] =
    ["medik8s.io/drain", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"];

impl Default for Detectors {
    fn default() -> Detectors {
        Detectors {
            on: Detector::ALL.into(),
            annotations: MAINTENANCE_ANNOTATIONS.map(Mark::any).into(),
            taints: MAINTENANCE_TAINTS.map(Mark::any).into(),
        }
    }
}

/// An annotation or a taint by its key, and, where they are given, its value and effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    pub key: Box<str>,
    pub value: Option<Box<str>>,
    /// Of taints.
    pub effect: Option<Box<str>>,
}

impl Mark {
    pub fn any(key: &str) -> Mark {
        Mark { key: key.into(), value: None, effect: None }
    }

    pub fn is_annotation(&self, (key, value): &(Box<str>, Box<str>)) -> bool {
        self.key == *key && self.value.as_ref().is_none_or(|own| own == value)
    }

    pub fn is_taint(&self, taint: &Taint) -> bool {
        self.key == taint.key
            && self.value.as_ref().is_none_or(|own| *own == taint.value)
            && self.effect.as_ref().is_none_or(|own| *own == taint.effect)
    }
}

/// Why a detector that is switched on does not work from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Off {
    NotInstalled,
    NotReadable,
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Off::NotInstalled => "what it looks for is not installed",
            Off::NotReadable => "we may not read what it looks for (deploy/rbac.yaml has what is needed)",
        })
    }
}
