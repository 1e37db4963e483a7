//! By which words do metrics count?
//!
//! Labels are of bounded sets: no names, no numbers, nothing that others wrote.

use crate::decision::Because;
use crate::facts::Source;

impl Because {
    /// One word for metrics, of a bounded set: who reads them has the sentence in the status.
    pub fn word(&self) -> &'static str {
        match self {
            Because::Healthy => "Healthy",
            Because::Pending(_) => "Pending",
            Because::NeverReported { .. } => "NeverReported",
            Because::NodeLeaving => "NodeLeaving",
            Because::Unreadable { .. } => "Unreadable",
            Because::Expired(_) => "Expired",
            Because::Stale { .. } => "Stale",
            Because::KindNotServed { .. } => "KindNotServed",
            Because::TemplateMissing { .. } => "TemplateMissing",
            Because::TemplateInvalid { .. } => "TemplateInvalid",
            Because::PolicyInvalid { .. } => "PolicyInvalid",
            Because::Paused { .. } => "Paused",
            Because::AllPaused { .. } => "AllPaused",
            Because::PauseUnknown { .. } => "PauseUnknown",
            Because::TooManyUnhealthy { .. } => "TooManyUnhealthy",
            Because::Upgrading { .. } => "Upgrading",
            Because::UpgradeUnknown { .. } => "UpgradeUnknown",
            Because::UnderMaintenance { .. } => "UnderMaintenance",
            Because::Overlapping { .. } => "Overlapping",
            Because::Occupied { .. } => "Occupied",
            Because::Leaving { .. } => "Leaving",
            Because::LeftBehind { .. } => "LeftBehind",
            Because::NotLeading => "NotLeading",
            Because::Removed { .. } => "Removed",
            Because::Looking => "Looking",
            Because::LookRefused { .. } => "LookRefused",
            Because::Queued => "Queued",
            Because::Creating { .. } => "Creating",
            Because::Refused { .. } => "Refused",
            Because::Remediating { .. } => "Remediating",
            Because::Excluded => "Excluded",
            Because::StormCooldown => "StormCooldown",
            Because::ZoneDark { .. } => "ZoneDark",
            Because::ControlPlaneBusy { .. } => "ControlPlaneBusy",
            Because::EtcdQuorum { .. } => "EtcdQuorum",
            Because::EtcdGuarded => "EtcdGuarded",
            Because::EtcdBudgets { .. } => "EtcdBudgets",
            Because::ForeignController { .. } => "ForeignController",
            Because::Held { .. } => "Held",
            Because::Holding => "Holding",
            Because::RemediatedTooOften { .. } => "RemediatedTooOften",
            Because::BackingOff { .. } => "BackingOff",
            Because::NoTemplateLeft => "NoTemplateLeft",
            Because::MakingRoom { .. } => "MakingRoom",
            Because::HealthyDelay { .. } => "HealthyDelay",
            Because::Unconfirmed => "Unconfirmed",
            Because::DryRun { .. } => "DryRun",
            Because::DryRemoval { .. } => "DryRemoval",
            Because::TemplateUnplaced { .. } => "TemplateUnplaced",
            Because::CreatingUnowned { .. } => "CreatingUnowned",
            Because::ClockDiffers { .. } => "ClockDiffers",
            Because::NotSelected => "NotSelected",
            Because::NodeGone => "NodeGone",
            Because::NodeGoneProviderBusy { .. } => "NodeGoneProviderBusy",
            Because::MachinePending => "MachinePending",
            Because::Unjudged(_) => "Unjudged",
            Because::MachineLeaving => "MachineLeaving",
            Because::Signing => "Signing",
            Because::OwnersTurn { .. } => "OwnersTurn",
            Because::MachineRemediated { .. } => "MachineRemediated",
            Because::CheckPaused => "CheckPaused",
            Because::ClusterPaused { .. } => "ClusterPaused",
            Because::ClusterMissing { .. } => "ClusterMissing",
            Because::NoAccess { .. } => "NoAccess",
            Because::AnotherCluster { .. } => "AnotherCluster",
            Because::NoNodeKnown { .. } => "NoNodeKnown",
            Because::OutsideRange { .. } => "OutsideRange",
            Because::NoController => "NoController",
            Because::PowerCycleAsked => "PowerCycleAsked",
            Because::StillPowerCycled => "StillPowerCycled",
            Because::DeletingMachine => "DeletingMachine",
            Because::OwnerNotDone => "OwnerNotDone",
        }
    }
}

impl Source {
    /// One word for all of its kind, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Source::Nodes => "nodes",
            Source::Checks => "nodehealthchecks",
            Source::Kinds => "definitions",
            Source::Objects(_) => "templates-and-remediations",
            Source::NodeLeases => "node-leases",
            Source::Etcd => "etcd",
            Source::OwnNamespace => "own-namespace",
            Source::Budgets => "etcd-budgets",
            Source::Guards => "etcd-guards",
            Source::Rivals(_) => "rivals",
            Source::Signals(_) => "upgrades",
            Source::MachineChecks(_) => "machinehealthchecks",
            Source::Machines(_) => "machines",
            Source::Clusters(_) => "clusters",
            Source::Access(_) => "kubeconfigs",
            Source::RemoteNodes(_) => "remote-nodes",
            Source::RemoteEtcd(_) => "remote-etcd",
        }
    }
}
