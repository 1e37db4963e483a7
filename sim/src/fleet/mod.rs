//! Which Machines are there, who makes them, who checks them, and where are their nodes?
//!
//! A fleet is drawn beside the nodes of some seeds (`draw.rs`) and played in virtual time (`play.rs`): a herd is a namespace with
//! Machines, each of which stands for a machine of the scenario, their owners, their checks and a remediator. Its nodes are in this
//! cluster or in one of its own. What really is so is read from the stores ([`truth`]), and judged ([`oracle`], [`liveness`]).

pub mod draw;
pub mod liveness;
pub mod oracle;
pub(crate) mod play;
pub mod policy;
pub mod truth;

use resus_core::mhc::facts::Dialect;
use serde_json::Value;

use crate::clock::Millis;

#[derive(Clone, Debug)]
pub struct FleetSpec {
    pub dialect: Dialect,
    pub herds: Vec<HerdSpec>,
}

#[derive(Clone, Debug)]
pub struct HerdSpec {
    /// Name of its namespace, and, where its nodes are in a cluster of their own, of that and of its server.
    pub name: String,
    pub is_away: bool,
    /// Numbers of the scenario's machines for which there are Machines.
    pub hosts: Vec<usize>,
    /// Those of the hosts whose Machines nobody owns.
    pub strays: Vec<usize>,
    pub owner: OwnerSpec,
    pub remediator: RemediatorSpec,
    /// Time from the making of a Machine until its Node is named.
    pub boots_for: Millis,
    /// Time from the deletion of a Machine until it is gone.
    pub leaves_for: Millis,
    /// Percentage of the Machines for which no Node is named until all is healed.
    pub stuck: u32,
    /// Its Cluster says by annotation which cluster it is, so that no other is ever taken for it.
    pub says_who: bool,
}

/// Who owns Machines, and deletes those that it is asked to.
#[derive(Clone, Debug)]
pub struct OwnerSpec {
    /// It does nothing about requests until all is healed.
    pub is_idle: bool,
    /// Interval between two looks at its Machines.
    pub looks_each: Millis,
    /// Number of Machines that it deletes at the same time at most.
    pub in_flight_max: Option<usize>,
}

/// Who sees the objects that are made for Machines, in percent of those.
#[derive(Clone, Debug)]
pub struct RemediatorSpec {
    pub works_for: (Millis, Millis),
    pub never: u32,
    pub holds: u32,
}

/// What is done to a herd.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Creates the check, or gives it another spec.
    Check {
        name: String,
        spec: Value,
    },
    DropCheck(String),
    PauseCheck(String, bool),
    DropTemplate,
    RestoreTemplate,
    /// The server of its cluster goes away, or comes back.
    Server {
        up: bool,
    },
    /// The server of its cluster takes requests from controllers and answers none, or does again.
    Hang(bool),
    Kubeconfig(Kubeconfig),
    PauseCluster(bool),
    /// Something is done to one of its Machines, rather to one that is ill.
    Meddle(Meddling),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meddling {
    /// Somebody deletes the Machine.
    Delete,
    /// Somebody wants it to be repaired.
    AskForRepair,
    /// Somebody takes it out of all checks.
    Skip,
    /// OpenShift's controller says that it failed.
    Fail,
    /// Its Node goes, and the kubelet with it.
    RemoveNode,
    /// Somebody removes what was made for any Machine of the herd.
    RemoveRepair,
    /// Somebody else's object takes its name.
    OccupyName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubeconfig {
    Right,
    /// It has other credentials, and leads to the same cluster.
    Renewed,
    Missing,
    Nonsense,
    /// It leads to another cluster.
    Elsewhere,
}

impl Deed {
    /// One word for counters and traces.
    pub fn word(&self) -> &'static str {
        match self {
            Deed::Check { .. } => "machine check written",
            Deed::DropCheck(_) => "machine check dropped",
            Deed::PauseCheck(..) => "machine check paused",
            Deed::DropTemplate => "machine template dropped",
            Deed::RestoreTemplate => "machine template restored",
            Deed::Server { up: false } => "workload cluster down",
            Deed::Server { up: true } => "workload cluster up",
            Deed::Hang(true) => "workload cluster hangs",
            Deed::Hang(false) => "workload cluster answers",
            Deed::Kubeconfig(Kubeconfig::Right) => "kubeconfig right",
            Deed::Kubeconfig(Kubeconfig::Renewed) => "kubeconfig renewed",
            Deed::Kubeconfig(Kubeconfig::Missing) => "kubeconfig missing",
            Deed::Kubeconfig(Kubeconfig::Nonsense) => "kubeconfig nonsense",
            Deed::Kubeconfig(Kubeconfig::Elsewhere) => "kubeconfig elsewhere",
            Deed::PauseCluster(_) => "cluster paused",
            Deed::Meddle(Meddling::Delete) => "machine deleted",
            Deed::Meddle(Meddling::AskForRepair) => "repair asked for",
            Deed::Meddle(Meddling::Skip) => "machine skipped",
            Deed::Meddle(Meddling::Fail) => "machine failed",
            Deed::Meddle(Meddling::RemoveNode) => "node of a machine removed",
            Deed::Meddle(Meddling::RemoveRepair) => "repair removed",
            Deed::Meddle(Meddling::OccupyName) => "name of a machine occupied",
        }
    }
}
