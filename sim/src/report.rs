//! What is to be said about a run?

use std::collections::BTreeMap;
use std::fmt;

use resus_core::decision::{Because, Verdict};

use crate::clock::Millis;
use crate::happening::{Clocked, Happening, Violation};

pub struct Report {
    pub seed: u64,
    /// The same for the same seed and code.
    pub hash: u64,
    pub violations: Vec<Violation>,
    /// How often each fault, each decision and each kind of write happened.
    pub counters: BTreeMap<&'static str, u64>,
    pub simulated_for: Millis,
    /// The last part of the story; of a run that went wrong, up to the first violation.
    pub story: Vec<Happening>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, hash, violations, counters, simulated_for, story } = self;
        for happening in story {
            writeln!(f, "{happening}")?;
        }
        writeln!(f, "seed {seed}: {} simulated, trace {hash:016x}", Clocked(*simulated_for))?;
        for (what, times) in counters {
            writeln!(f, "  {times:6} {what}")?;
        }
        for violation in violations {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}

pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Leave => "verdict leave",
        Verdict::Wait => "verdict wait",
        Verdict::Hold => "verdict hold",
        Verdict::Start => "verdict start",
        Verdict::Keep => "verdict keep",
        Verdict::Remove => "verdict remove",
    }
}

pub fn because_word(because: &Because) -> &'static str {
    match because {
        Because::Healthy => "because healthy",
        Because::Pending(_) => "because pending",
        Because::NeverReported { .. } => "because never reported",
        Because::NodeLeaving => "because node leaving",
        Because::Unreadable { .. } => "because unreadable",
        Because::Expired(_) => "because expired",
        Because::Stale { .. } => "because stale",
        Because::KindNotServed { .. } => "because kind not served",
        Because::TemplateMissing { .. } => "because template missing",
        Because::TemplateInvalid { .. } => "because template invalid",
        Because::TemplateUnplaced { .. } => "because template unplaced",
        Because::PolicyInvalid { .. } => "because policy invalid",
        Because::Paused { .. } => "because paused",
        Because::AllPaused { .. } => "because all paused",
        Because::PauseUnknown { .. } => "because pause unknown",
        Because::TooManyUnhealthy { .. } => "because too many unhealthy",
        Because::Upgrading { .. } => "because upgrading",
        Because::UpgradeUnknown { .. } => "because upgrade unknown",
        Because::UnderMaintenance { .. } => "because under maintenance",
        Because::Overlapping { .. } => "because overlapping",
        Because::Occupied { .. } => "because occupied",
        Because::Leaving { .. } => "because leaving",
        Because::LeftBehind { .. } => "because left behind",
        Because::NotLeading => "because not leading",
        Because::Removed { .. } => "because removed",
        Because::Looking => "because looking",
        Because::Queued => "because queued",
        Because::Creating { .. } => "because creating",
        Because::CreatingUnowned { .. } => "because creating unowned",
        Because::LookRefused { .. } => "because look refused",
        Because::Refused { .. } => "because refused",
        Because::Remediating { .. } => "because remediating",
        Because::Excluded => "because excluded",
        Because::StormCooldown => "because storm cooldown",
        Because::ClockDiffers { .. } => "because clock differs",
        Because::ZoneDark { .. } => "because zone dark",
        Because::ControlPlaneBusy { .. } => "because control plane busy",
        Because::EtcdQuorum { .. } => "because etcd quorum",
        Because::EtcdGuarded => "because etcd guarded",
        Because::EtcdBudgets { .. } => "because etcd budgets",
        Because::ForeignController { .. } => "because foreign controller",
        Because::Held { .. } => "because held",
        Because::Holding => "because holding",
        Because::RemediatedTooOften { .. } => "because remediated too often",
        Because::BackingOff { .. } => "because backing off",
        Because::NoTemplateLeft => "because no template left",
        Because::MakingRoom { .. } => "because making room",
        Because::HealthyDelay { .. } => "because healthy delay",
        Because::Unconfirmed => "because unconfirmed",
        Because::DryRun { .. } => "because dry run",
        Because::DryRemoval { .. } => "because dry removal",
        Because::NotSelected => "because not selected",
        Because::NodeGone => "because node gone",
        Because::NodeGoneProviderBusy { .. } => "because node gone, provider busy",
        Because::MachinePending => "because machine pending",
        Because::Unjudged(_) => "because unjudged",
        Because::MachineLeaving => "because machine leaving",
        Because::Signing => "because signing",
        Because::OwnersTurn { .. } => "because owner's turn",
        Because::MachineRemediated { .. } => "because machine remediated",
        Because::CheckPaused => "because check paused",
        Because::ClusterPaused { .. } => "because cluster paused",
        Because::ClusterMissing { .. } => "because cluster missing",
        Because::NoAccess { .. } => "because no access",
        Because::AnotherCluster { .. } => "because another cluster",
        Because::NoNodeKnown { .. } => "because no node known",
        Because::OutsideRange { .. } => "because outside range",
        Because::NoController => "because no controller",
        Because::PowerCycleAsked => "because power cycle asked",
        Because::StillPowerCycled => "because still power-cycled",
        Because::DeletingMachine => "because deleting machine",
        Because::OwnerNotDone => "because owner not done",
    }
}
