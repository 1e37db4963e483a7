//! What is a machine, apart from what its agent thinks?
//!
//! It boots, has a clock of its own and a watchdog, runs one process of the agent at a time, and runs pods. All instants here are
//! true time, unless they are a [`Mono`]: then they are what its clock shows.

use std::collections::{BTreeMap, VecDeque};

use resus_core::facts::Name;
use resus_core::fencing::agent::{Act, Agent, Cause, Memory};
use resus_core::fencing::vote::Reply;
use resus_core::time::Mono;

use super::kubelet::Kubelet;
use super::scenario::Spec;
use crate::clock::{MINUTE, Millis};

/// Three resets by its own hand in this time, and the agent is not armed until the first of them is over.
const RELAPSES_WITHIN: Millis = 60 * MINUTE;
const RELAPSES_MAX: usize = 3;

/// A3: any two clocks differ by 1% at most, so each by half of that from the truth, in millionths.
pub const SLOWEST: i64 = -5_000;
pub const FASTEST: i64 = 5_000;

pub struct Machine {
    pub name: Name,
    pub spec: Spec,
    /// Counts the boots, also the one that is under way.
    pub boot: u64,
    pub power: Power,
    /// Its BMC keeps it off until this remediation is over.
    pub kept_off: Option<Name>,
    pub clock: Clock,
    /// It stands still, and its clock and its watchdog with it.
    pub paused_until: Millis,
    /// A3 is about all pauses in one wait together.
    pub next_pause_at: Millis,
    pub dog: Option<Dog>,
    pub process: Option<Process>,
    pub processes: u64,
    /// The file of the agent. It survives the process, not the boot.
    pub memory: Option<Memory>,
    pub kubelet: Kubelet,
    /// Pods by uid, and of which workload they are.
    pub running: BTreeMap<Name, usize>,
    /// What the agent has written down about the end of this boot.
    pub recorded: Option<Cause>,
    /// What the simulator has done since the last feed that explains a reset.
    pub excuse: Option<&'static str>,
    own_resets: Vec<Millis>,
    /// When it asked for the last proof that it had from the API, later by what its clock has missed since.
    pub proved_at: Millis,
    /// What a peer has said last.
    pub heard: Option<Reply>,
    /// The network between it and the API is cut until then.
    pub cut_until: Millis,
    /// Its requests arrive, the answers do not.
    pub mute_until: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    Off,
    Booting,
    Up,
}

pub struct Process {
    pub number: u64,
    pub agent: Agent,
    pub wakes_at: Option<Millis>,
    /// It gets no time until then.
    pub stalled_until: Millis,
    /// What it was about to do when it was stalled.
    pub pending: VecDeque<Act>,
    /// What it was about to do was its last feed.
    pub feeds_last: bool,
    /// It is killed before it does so many things more.
    pub dies_after: Option<u32>,
    /// How long after its end the next one begins.
    pub next_after: Millis,
}

pub struct Dog {
    pub bites_at: Millis,
    /// The process that holds the device.
    pub holder: Option<u64>,
    pub number: u64,
}

/// CLOCK_BOOTTIME of one boot, or the monotonic clock of a process elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub began_at: Millis,
    /// In millionths: so much too fast.
    pub rate: i64,
    /// For so long it stood still.
    pub lost: Millis,
}

impl Clock {
    pub fn read(&self, now: Millis) -> Mono {
        Mono((now - self.began_at - self.lost) * (1_000_000 + self.rate) / 1_000_000)
    }

    /// The first millisecond at which it shows this.
    pub fn true_time(&self, at: Mono) -> Millis {
        let speed = 1_000_000 + self.rate;
        self.began_at + self.lost + (at.0 * 1_000_000 + speed - 1).div_euclid(speed)
    }
}

impl Machine {
    pub fn new(name: Name, spec: Spec) -> Machine {
        let clock = Clock { began_at: 0, rate: spec.rate, lost: 0 };
        Machine {
            name,
            spec,
            boot: 0,
            power: Power::Off,
            kept_off: None,
            clock,
            paused_until: 0,
            next_pause_at: 0,
            dog: None,
            process: None,
            processes: 0,
            memory: None,
            kubelet: Kubelet::default(),
            running: BTreeMap::new(),
            recorded: None,
            excuse: None,
            own_resets: Vec::new(),
            proved_at: 0,
            heard: None,
            cut_until: 0,
            mute_until: 0,
        }
    }

    pub fn boot_id(&self) -> Name {
        format!("{}-{}", self.name, self.boot).into()
    }

    pub fn is_up(&self) -> bool {
        self.power == Power::Up
    }

    /// Everything that a boot had is gone.
    pub fn forget_boot(&mut self) {
        self.dog = None;
        self.process = None;
        self.memory = None;
        self.kubelet = Kubelet::default();
        self.running.clear();
        self.recorded = None;
        self.excuse = None;
        self.paused_until = 0;
    }

    pub fn reset_by_its_own(&mut self, now: Millis) {
        self.own_resets.push(now);
    }

    /// As the agent is told when it begins.
    pub fn relapsing_until(&self, now: Millis) -> Option<Mono> {
        let lately = self.own_resets.iter().filter(|at| now - **at < RELAPSES_WITHIN);
        let first = lately.clone().next().copied()?;
        (lately.count() >= RELAPSES_MAX).then(|| self.clock.read(first + RELAPSES_WITHIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_reached_an_instant_when_that_was_said() {
        for rate in [-5_000, 0, 4_999] {
            let clock = Clock { began_at: 1_234, rate, lost: 777 };
            for at in [0, 1, 999, 85_000, 3_600_001] {
                let then = clock.true_time(Mono(at));
                assert!(clock.read(then) >= Mono(at) && clock.read(then - 2) < Mono(at), "{rate} {at}");
            }
        }
    }
}
