//! When does a machine run, and what ends it?

use super::kubelet::Turn;
use super::machine::{Clock, Dog, Power};
use super::site::{Event, Site};
use crate::clock::{MINUTE, Millis, SECOND};
use crate::happening::What;

/// Longer than any run: it does not come up by itself.
const NEVER: Millis = 60 * MINUTE;

/// By whom a boot is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    Watchdog,
    Agent,
    /// By the simulator, which knows why.
    Fault(&'static str),
}

impl Site {
    pub fn power_on(&mut self, m: usize) {
        let machine = &mut self.machines[m];
        if machine.power != Power::Off || machine.kept_off.is_some() {
            return;
        }
        machine.power = Power::Booting;
        machine.boot += 1;
        let (boot, (from, to)) = (machine.boot, machine.spec.boots_for);
        let takes = if boot == 1 { self.luck.machines.within(0..=SECOND) } else { self.luck.machines.within(from..=to) };
        self.agenda.after(takes, Event::Boots(m, boot));
    }

    pub fn boots(&mut self, m: usize, boot: u64) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        if machine.boot != boot || machine.power != Power::Booting {
            return;
        }
        machine.power = Power::Up;
        machine.clock = Clock { began_at: now, rate: machine.spec.rate, lost: 0 };
        let (processes, node) = (machine.processes, machine.name.to_string());
        let is_first = boot == 1;
        let missing = !is_first && !self.healed && self.luck.machines.chance(self.scenario.habits.agent_missing);
        let agent_after = if missing { NEVER } else { self.luck.machines.within(SECOND..=10 * SECOND) };
        let kubelet_after = self.luck.machines.within(SECOND..=if is_first { 2 * SECOND } else { 30 * SECOND });
        if missing {
            self.trace.count("boot without an agent");
        }
        self.agenda.after(agent_after, Event::AgentStarts(m, processes));
        self.agenda.after(kubelet_after, Event::Kubelet(m, boot, Turn::Sync));
        self.trace.tell(now, What::Booted { node });
    }

    /// The machine stops at once, and boots again after `off_for`, unless its BMC keeps it off.
    pub fn reset(&mut self, m: usize, by: Reset, off_for: Millis) {
        let now = self.agenda.now();
        if self.machines[m].power == Power::Off {
            return;
        }
        self.judge_reset(m, by);
        let machine = &mut self.machines[m];
        if machine.recorded.is_some() && by != Reset::Fault("kept off") {
            machine.reset_by_its_own(now);
        }
        let (node, cause, excuse) = (machine.name.to_string(), machine.recorded, machine.excuse);
        machine.forget_boot();
        machine.power = Power::Off;
        self.trace.tell(now, What::Reset { node });
        self.tell(format!("   by {by:?}, recorded {cause:?}, excuse {excuse:?}"));
        if off_for == 0 {
            self.power_on(m);
        } else {
            self.agenda.after(off_for, Event::PowersOn(m));
        }
    }

    pub fn bite(&mut self, m: usize, number: u64) {
        let now = self.agenda.now();
        let Some(dog) = self.machines[m].dog.as_ref().filter(|dog| dog.number == number) else { return };
        if dog.bites_at > now {
            self.agenda.enter(dog.bites_at, Event::Bites(m, number));
            return;
        }
        self.trace.count("reset by watchdog");
        self.reset(m, Reset::Watchdog, 0);
    }

    /// The reset comes anywhere from w to W after it, and mostly as late as it may.
    pub fn feed_dog(&mut self, m: usize) {
        let now = self.agenda.now();
        let terms = self.machines[m].spec.terms;
        let (from, to) = (millis(terms.watchdog_for), millis(terms.reset_within));
        let wait = if self.luck.machines.chance(85) { to } else { self.luck.machines.within(from..=to) };
        let machine = &mut self.machines[m];
        if let Some(dog) = &mut machine.dog {
            dog.bites_at = now + wait;
            machine.excuse = None;
        }
    }

    /// Opening feeds it, whoever held it before.
    pub fn open_dog(&mut self, m: usize, process: u64) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        match &mut machine.dog {
            Some(dog) => dog.holder = Some(process),
            None => {
                let number = process;
                machine.dog = Some(Dog { bites_at: now, holder: Some(process), number });
                self.agenda.after(1, Event::Bites(m, number));
            }
        }
        self.feed_dog(m);
    }

    /// The kernel closes the device of a process that ends, and feeds it once more.
    pub fn close_dog(&mut self, m: usize, process: u64) {
        let held = self.machines[m].dog.as_ref().is_some_and(|dog| dog.holder == Some(process));
        if held {
            self.feed_dog(m);
            if let Some(dog) = &mut self.machines[m].dog {
                dog.holder = None;
            }
        }
    }
}

pub fn millis(time: std::time::Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}
