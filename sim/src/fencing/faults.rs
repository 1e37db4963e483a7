//! What goes wrong, and when does it hurt most?

use resus_core::fencing::agent::Heard;
use resus_core::fencing::pill::Word;

use super::boots::Reset;
use super::machine::Power;
use super::scenario::{Cue, Fault, Kind, fault};
use super::site::{Event, Site};
use crate::clock::{Millis, SECOND};
use crate::happening::What;

/// A3: in one wait a machine stands still for z at most, all in all.
const PAUSES_EACH: Millis = 240 * SECOND;
/// F2 takes two readings.
const BMC_READS_FOR: Millis = 6 * SECOND;

impl Site {
    /// Counted only if it happens to anything.
    pub fn inflict(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        let Fault { kind, machine: m, other, lasts_for } = fault;
        let now = self.agenda.now();
        let until = now + lasts_for;
        let name = self.machines[m].name.clone();
        let happens = match kind {
            Kind::CutOff => self.cut_off(m, until),
            Kind::Isolated => self.isolate(m, until),
            Kind::Mute => set(&mut self.machines[m].mute_until, until),
            Kind::Parted => self.part(m, other, until),
            Kind::AllCutOff => (0..self.machines.len()).all(|m| self.cut_off(m, until)),
            Kind::ApiDown => set(&mut self.net.api_down_until, until),
            Kind::ApiRefuses => set(&mut self.net.api_refuses_until, until),
            Kind::Killed => self.strike(m, false, lasts_for),
            Kind::Forgetful => self.strike(m, true, lasts_for),
            Kind::Stopped => self.stop(m, lasts_for),
            Kind::Starved => self.starve(m, until),
            Kind::Paused => self.pause(m, lasts_for),
            Kind::Crashed => self.switch_off(m, kind, lasts_for),
            Kind::PowerCut => {
                self.somebody_looks(m, lasts_for);
                self.switch_off(m, kind, lasts_for)
            }
            Kind::LeaderFrozen => self.freeze_leader(until),
            Kind::LeaderKilled => self.kill_leader(lasts_for),
            Kind::Mistaken => self.make_remediation(&name, true),
            Kind::Ended => self.end_remediation(&name),
            Kind::KubeletDies => set(&mut self.machines[m].kubelet.dead_until, until),
            Kind::LeaseDeleted => self.store.leases.remove(&name).is_some(),
            Kind::KeptOff => self.keep_off(m),
            Kind::Confirmed => self.confirm(m),
            Kind::PodDeleted => self.delete_pod(),
        };
        if happens {
            self.trace.count(kind.word());
            self.tell(format!("{}: {name}, for {} ms", kind.word(), lasts_for));
        }
    }

    /// Faults follow where they hurt.
    pub fn echo(&mut self, cue: Cue, m: usize) {
        if let Some(sequel) = self.scenario.plot.and_then(|plot| plot.sequel(cue)).filter(|_| self.sequels_left > 0) {
            self.sequels_left -= 1;
            let wait = self.luck.echoes.within(sequel.wait.0..=sequel.wait.1);
            let (kind, lasts_for) = (sequel.kind, sequel.lasts_for);
            self.follow(Fault { kind, machine: m, other: m, lasts_for }, wait);
            return;
        }
        let percent = Cue::ALL.iter().position(|own| *own == cue).map_or(0, |at| self.scenario.echoes[at]);
        if self.healed || !self.luck.echoes.chance(percent) {
            return;
        }
        let (kinds, within): (&[Kind], Millis) = match cue {
            Cue::Ordered => {
                (&[Kind::AllCutOff, Kind::ApiDown, Kind::LeaderFrozen, Kind::Stopped, Kind::Isolated, Kind::KeptOff], 10 * SECOND)
            }
            Cue::Acknowledged => (&[Kind::AllCutOff, Kind::AllCutOff, Kind::Forgetful, Kind::LeaderFrozen], 3 * SECOND),
            Cue::Held => (&[Kind::LeaderFrozen, Kind::LeaderKilled, Kind::Ended, Kind::Isolated, Kind::PodDeleted], 20 * SECOND),
            Cue::Booted => (&[Kind::Isolated, Kind::KubeletDies, Kind::Crashed], 40 * SECOND),
            Cue::Stopped => (&[Kind::Isolated, Kind::CutOff], 3 * SECOND),
            Cue::RenewalLate => (&[Kind::Stopped], 3 * SECOND),
            Cue::CutOff => (&[Kind::Killed, Kind::Starved, Kind::Paused], 60 * SECOND),
        };
        let Some(kind) = self.luck.echoes.pick(kinds).copied().filter(|kind| self.scenario.kinds.contains(kind)) else { return };
        let wait = self.luck.echoes.within(0..=within);
        let mut drawn = fault(&mut self.luck.echoes, kind, m, self.machines.len());
        match (cue, kind) {
            // Long enough to outlast the bound, and the successor is late.
            (Cue::Stopped | Cue::Acknowledged | Cue::Ordered | Cue::Booted, Kind::Isolated | Kind::AllCutOff | Kind::CutOff) => {
                drawn.lasts_for = drawn.lasts_for.max(180 * SECOND);
            }
            (Cue::RenewalLate, Kind::Stopped) => drawn.lasts_for = drawn.lasts_for.max(60 * SECOND),
            (_, _) => {}
        }
        self.follow(drawn, wait);
    }

    fn follow(&mut self, fault: Fault, wait: Millis) {
        if fault.kind != Kind::Forgetful {
            self.agenda.after(wait, Event::Fault(fault));
            return;
        }
        // All who know are those who forget, and nobody can tell them again.
        let cut = Fault { kind: Kind::AllCutOff, lasts_for: 240 * SECOND, ..fault };
        self.agenda.after(wait, Event::Fault(cut));
        for machine in (0..self.machines.len()).filter(|other| *other != fault.machine) {
            let lasts_for = self.luck.echoes.within(0..=3 * SECOND);
            self.agenda.after(wait, Event::Fault(Fault { machine, lasts_for, ..fault }));
        }
    }

    pub fn heal(&mut self) {
        let now = self.agenda.now();
        self.healed = true;
        self.net.heal();
        self.trace.tell(now, What::Healed);
        for m in 0..self.machines.len() {
            let machine = &mut self.machines[m];
            (machine.cut_until, machine.mute_until, machine.kubelet.dead_until) = (0, 0, 0);
            let (processes, is_kept_off) = (machine.processes, machine.kept_off.is_some());
            if is_kept_off {
                self.say_word(m, Word::None);
            }
            self.power_on(m);
            self.agenda.after(3 * SECOND, Event::AgentStarts(m, processes));
        }
        self.heal_control();
    }

    fn cut_off(&mut self, m: usize, until: Millis) -> bool {
        let machine = &mut self.machines[m];
        machine.cut_until = until.max(machine.cut_until);
        self.echo(Cue::CutOff, m);
        true
    }

    fn isolate(&mut self, m: usize, until: Millis) -> bool {
        self.cut_off(m, until);
        for other in (0..self.machines.len()).filter(|other| *other != m) {
            self.net.part(m, other, until);
            self.net.part(other, m, until);
        }
        true
    }

    /// In one direction, or in both.
    fn part(&mut self, m: usize, other: usize, until: Millis) -> bool {
        self.net.part(m, other, until);
        if self.luck.echoes.chance(50) {
            self.net.part(other, m, until);
        }
        m != other
    }

    fn stop(&mut self, m: usize, next_after: Millis) -> bool {
        let runs = self.machines[m].process.is_some();
        self.stop_agent(m, next_after);
        if runs {
            self.echo(Cue::Stopped, m);
        }
        runs
    }

    fn switch_off(&mut self, m: usize, kind: Kind, off_for: Millis) -> bool {
        let is_on = self.machines[m].power != Power::Off;
        self.reset(m, Reset::Fault(kind.word()), off_for);
        is_on
    }

    /// Killed now, or somewhere between what it does next.
    fn strike(&mut self, m: usize, forgets: bool, next_after: Millis) -> bool {
        let at_once = forgets || self.luck.echoes.chance(50);
        let dies_after = u32::try_from(self.luck.echoes.below(6)).unwrap_or(0) + 1;
        let Some(process) = &mut self.machines[m].process else { return false };
        process.next_after = next_after;
        if at_once {
            self.kill_agent(m, "killed");
        } else {
            process.dies_after = Some(dies_after);
        }
        if forgets {
            self.machines[m].memory = None;
        }
        true
    }

    fn starve(&mut self, m: usize, until: Millis) -> bool {
        let machine = &mut self.machines[m];
        let Some(process) = machine.process.as_mut().filter(|process| process.pending.is_empty()) else { return false };
        process.stalled_until = until;
        machine.excuse = Some("starved");
        let number = process.number;
        self.agenda.enter(until, Event::Resumes(m, number));
        true
    }

    /// The machine, its clock and its watchdog stand still; some hear of it afterwards.
    fn pause(&mut self, m: usize, lasts_for: Millis) -> bool {
        let now = self.agenda.now();
        let is_told = self.luck.echoes.chance(30);
        let machine = &mut self.machines[m];
        let may =
            machine.spec.is_virtual && machine.is_up() && now >= machine.next_pause_at && !machine.kubelet.is_about_to_show();
        if !may {
            return false;
        }
        machine.paused_until = now + lasts_for;
        machine.next_pause_at = now + PAUSES_EACH;
        machine.clock.lost += lasts_for;
        machine.proved_at += lasts_for;
        if let Some(dog) = &mut machine.dog {
            dog.bites_at += lasts_for;
        }
        if let Some(process) = machine.process.as_ref().filter(|_| is_told) {
            self.agenda.enter(now, Event::Hears(m, process.number, Heard::Paused));
        }
        true
    }

    /// Whoever sees that a machine is off may say so.
    fn somebody_looks(&mut self, m: usize, off_for: Millis) {
        for _ in 0..3 {
            let wait = self.luck.echoes.within(0..=off_for);
            let fault = fault(&mut self.luck.echoes, Kind::Confirmed, m, self.machines.len());
            if self.scenario.kinds.contains(&Kind::Confirmed) {
                self.agenda.after(wait, Event::Fault(fault));
            }
        }
    }

    /// F2.
    fn keep_off(&mut self, m: usize) -> bool {
        let name = self.machines[m].name.clone();
        let remediation = self.store.remediations.get(&name).filter(|own| !own.case.ending).map(|own| &own.case.remediation);
        let Some(remediation) = remediation.filter(|_| self.machines[m].kept_off.is_none()) else { return false };
        self.machines[m].kept_off = Some(remediation.clone());
        self.reset(m, Reset::Fault("kept off"), BMC_READS_FOR);
        let boot = self.machines[m].boot;
        self.agenda.after(BMC_READS_FOR, Event::BmcSpeaks(m, boot));
        true
    }

    pub fn bmc_speaks(&mut self, m: usize, boot: u64) {
        let machine = &self.machines[m];
        let known = self.store.remediations.get(&machine.name).map(|own| &own.case.remediation);
        let is_meant = machine.kept_off.is_some() && machine.kept_off.as_ref() == known;
        if is_meant && machine.power == Power::Off && machine.boot == boot {
            self.say_word(m, Word::KeptOff);
        }
    }

    /// As for an update: its kubelet ends it, and then it is made anew. Mostly the one that no taint moves.
    fn delete_pod(&mut self) -> bool {
        let last = self.scenario.workloads.len() - 1;
        let workload = if self.luck.echoes.chance(50) { last } else { self.luck.echoes.below(last + 1) };
        let pod = self.store.pods.values_mut().find(|pod| pod.workload == workload && pod.node.is_some());
        let Some(pod) = pod else { return false };
        pod.shown.marked = true;
        true
    }

    /// F3: a person has looked. It is about the boot that was noted.
    fn confirm(&mut self, m: usize) -> bool {
        let machine = &self.machines[m];
        let noted = self.store.remediations.get(&machine.name).and_then(|own| own.case.noted.as_ref());
        let is_true = machine.power == Power::Off && noted.is_some_and(|noted| noted.boot == machine.boot_id());
        if is_true {
            self.say_word(m, Word::Confirmed);
        }
        is_true
    }

    fn say_word(&mut self, m: usize, word: Word) {
        let name = self.machines[m].name.clone();
        let Some(version) = self.store.remediations.get(&name).map(|own| own.version.clone()) else { return };
        if self.store.change_remediation(&name, &version, |case| case.word = word).is_ok() {
            self.trace.count(match word {
                Word::KeptOff => "word: kept off",
                Word::Confirmed => "word: confirmed",
                Word::None => "word: none",
            });
        }
    }
}

fn set(limit: &mut Millis, until: Millis) -> bool {
    *limit = until;
    true
}
