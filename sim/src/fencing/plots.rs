//! Which faults hurt only together, and in which order?
//!
//! For each rule of fencing there is a chain of events that breaks without it, and such chains are too rare to be met by chance. In
//! more than half of the runs one of them is set up, next to everything else that fails; whether it comes to its end is up to chance again.

use resus_core::fencing::agent::Device;
use resus_core::fencing::terms::{Circumstances, Resets, Terms, WATCHDOG_FOR};

use super::boots::millis;
use super::machine::SLOWEST;
use super::scenario::{Cue, Fault, Kind, Scenario};
use crate::clock::{MINUTE, Millis, SECOND};
use crate::rng::Rng;

/// Of pods, so that some run on a node that has come back.
const UPDATES: Millis = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Ordered just after a proof, and then cut off from everybody: it lives as long as it ever may.
    LastBreath,
    /// All lose the API when the order is known to enough of them.
    Outage,
    /// The same, and they forget it.
    Amnesia,
    /// The machine is up again just when its pods are about to be released.
    Comeback,
    /// It is up again without its agent, and then cut off.
    SecondBoot,
    /// An agent is stopped while a renewal is on its way, and then the node is cut off.
    Upgrade,
    /// A leader is frozen when it is about to commit, and goes on when the machine has come back.
    LateCommit,
}

/// What comes after a cue.
pub struct Sequel {
    pub kind: Kind,
    pub wait: (Millis, Millis),
    pub lasts_for: Millis,
}

impl Plot {
    pub const ALL: [Plot; 7] =
        [Plot::LastBreath, Plot::Outage, Plot::Amnesia, Plot::Comeback, Plot::SecondBoot, Plot::Upgrade, Plot::LateCommit];

    pub fn word(self) -> &'static str {
        match self {
            Plot::LastBreath => "plot: last breath",
            Plot::Outage => "plot: outage",
            Plot::Amnesia => "plot: amnesia",
            Plot::Comeback => "plot: comeback",
            Plot::SecondBoot => "plot: second boot",
            Plot::Upgrade => "plot: upgrade",
            Plot::LateCommit => "plot: late commit",
        }
    }

    pub fn sequel(self, cue: Cue) -> Option<Sequel> {
        let sequel = |kind, from: Millis, to: Millis, lasts_for| Some(Sequel { kind, wait: (from, to), lasts_for });
        match (self, cue) {
            (Plot::LastBreath, Cue::Ordered) => sequel(Kind::Isolated, 0, SECOND, 300 * SECOND),
            (Plot::LastBreath, Cue::CutOff) => sequel(Kind::Paused, 20 * SECOND, 75 * SECOND, 10 * SECOND),
            (Plot::Outage, Cue::Acknowledged) => sequel(Kind::AllCutOff, 0, SECOND, 240 * SECOND),
            (Plot::Amnesia, Cue::Acknowledged) => sequel(Kind::Forgetful, 0, SECOND, 0),
            (Plot::SecondBoot, Cue::Booted) => sequel(Kind::Isolated, 15 * SECOND, 40 * SECOND, 300 * SECOND),
            (Plot::Upgrade, Cue::RenewalLate) => sequel(Kind::Stopped, 0, 3 * SECOND, 300 * SECOND),
            (Plot::Upgrade, Cue::Stopped) => sequel(Kind::Isolated, SECOND, 25 * SECOND, 300 * SECOND),
            (
                Plot::LastBreath
                | Plot::Outage
                | Plot::Amnesia
                | Plot::Comeback
                | Plot::SecondBoot
                | Plot::Upgrade
                | Plot::LateCommit,
                Cue::Ordered | Cue::Acknowledged | Cue::Held | Cue::Booted | Cue::Stopped | Cue::RenewalLate | Cue::CutOff,
            ) => None,
        }
    }
}

/// What a plot needs to come to its end.
pub fn set_up(scenario: &mut Scenario, plot: Plot, rng: &mut Rng) {
    scenario.plot = Some(plot);
    scenario.heals_at = rng.within(7 * MINUTE..=11 * MINUTE);
    scenario.habits.safe_time = None;
    scenario.habits.remediated_after = rng.within(1..=10) * SECOND;
    // What else happens must not always come in between.
    scenario.faults.truncate(rng.below(4));
    if rng.chance(70) {
        scenario.echoes = [0; Cue::ALL.len()];
    }
    let at = rng.within(40 * SECOND..=100 * SECOND);
    let mut begin = |kind: Kind, lasts_for: Millis| {
        scenario.faults.push((at, Fault { kind, machine: 0, other: 0, lasts_for }));
    };
    match plot {
        Plot::LastBreath => {
            begin(Kind::Mistaken, 0);
            scenario.machines[0].terms = Terms::of(Circumstances {
                agents: scenario.machines.len(),
                watchdog_for: WATCHDOG_FOR,
                resets: Resets::AtSecondExpiry,
                virtual_machine: true,
            });
            (scenario.machines[0].is_virtual, scenario.machines[0].rate) = (true, SLOWEST);
            (scenario.weather.feed_late, scenario.weather.killed_last) = (80, 100);
            scenario.weather.feed_stalls = 0;
        }
        Plot::Outage => begin(Kind::CutOff, 400 * SECOND),
        Plot::Amnesia => {
            begin(Kind::CutOff, 400 * SECOND);
            scenario.machines.iter_mut().for_each(|machine| machine.boots_for = (3 * SECOND, 10 * SECOND));
        }
        Plot::Comeback => {
            begin(Kind::Mistaken, 0);
            let bound = millis(scenario.machines[0].terms.bound());
            scenario.machines[0].boots_for = (bound - 35 * SECOND, bound - 15 * SECOND);
            scenario.habits.kubelet_eager = 100;
            scenario.habits.agent_missing = 100;
            scenario.weather.restart_fails = 0;
            scenario.weather.control_late = *rng.pick(&[0, 0, 40]).unwrap_or(&0);
        }
        Plot::SecondBoot => {
            begin(Kind::Mistaken, 0);
            scenario.machines[0].boots_for = (3 * SECOND, 30 * SECOND);
            scenario.habits.agent_missing = 100;
        }
        Plot::Upgrade => scenario.weather.late = 8,
        Plot::LateCommit => {
            // Until it is seen to be silent, ordered, dead and held; and then it comes back.
            let bound = millis(scenario.machines[0].terms.bound());
            let off_for = 70 * SECOND + bound + rng.within(0..=30 * SECOND);
            begin(Kind::PowerCut, off_for);
            // And what runs there is new.
            for n in 0..UPDATES {
                let fault = Fault { kind: Kind::PodDeleted, machine: 0, other: 0, lasts_for: 0 };
                scenario.faults.push((at + off_for + (30 + 10 * n) * SECOND, fault));
            }
            scenario.machines[0].boots_for = (3 * SECOND, 10 * SECOND);
        }
    }
    // Whoever promises nothing is not released by time.
    scenario.machines[0].device = Device::Reliable;
}
