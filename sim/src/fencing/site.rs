//! What happens next at a site, and to whom?

use std::collections::BTreeMap;

use resus_core::facts::Name;
use resus_core::fencing::agent::Heard;

use super::agents::{Call, Question};
use super::cluster::Cluster;
use super::control::Control;
use super::errands::{Errand, Outcome};
use super::kubelet::Turn;
use super::machine::Machine;
use super::net::Net;
use super::oracle::Oracle;
use super::scenario::{Fault, Scenario};
use super::store::Store;
use crate::clock::{Agenda, MINUTE, Millis, SECOND};
use crate::happening::{Happening, What};
use crate::report::Report;
use crate::rng::Rng;
use crate::trace::Trace;

/// After the faults: what is late arrives, a boot, a whole fencing, and the start of pods, each at its longest.
const RECOVERS_WITHIN: Millis = 11 * MINUTE;
/// Before it is asked whether all is well.
const SETTLES_FOR: Millis = 60 * SECOND;

/// Of one plot: some begin twice.
const SEQUELS_MAX: u32 = 4;

pub struct Site {
    pub agenda: Agenda<Event>,
    pub trace: Trace,
    pub scenario: Scenario,
    pub machines: Vec<Machine>,
    pub by_name: BTreeMap<Name, usize>,
    pub store: Store,
    pub net: Net,
    pub control: Control,
    pub cluster: Cluster,
    pub oracle: Oracle,
    pub questions: BTreeMap<u64, Question>,
    pub questions_begun: u64,
    pub luck: Luck,
    pub healed: bool,
    /// A plot does not begin again and again.
    pub sequels_left: u32,
    is_over: bool,
}

/// Each component has a generator of its own.
pub struct Luck {
    pub machines: Rng,
    pub net: Rng,
    pub cluster: Rng,
    pub control: Rng,
    pub echoes: Rng,
    pub votes: Rng,
}

/// A machine is named by its place; then come the number of the boot, or of the process, for which it is meant.
pub enum Event {
    Fault(Fault),
    Heals,
    Boots(usize, u64),
    PowersOn(usize),
    AgentStarts(usize, u64),
    Wakes(usize, u64),
    Hears(usize, u64, Heard),
    Resumes(usize, u64),
    Killed(usize, u64),
    Bites(usize, u64),
    Calls(Call),
    Kubelet(usize, u64, Turn),
    BmcSpeaks(usize, u64),
    Runs(usize, u64),
    Arrives { replica: usize, term: u64, sent_at: Millis, gives_up_at: Millis, answers_in: Option<Millis>, errand: Errand },
    Answered { replica: usize, term: u64, sent_at: Millis, errand: Errand, outcome: Outcome },
    Kubernetes,
}

impl Site {
    pub fn new(mut scenario: Scenario) -> Site {
        let seed = scenario.seed;
        let rng = |component: &str| Rng::of(seed, component);
        let specs = std::mem::take(&mut scenario.machines);
        let machines: Vec<Machine> =
            specs.into_iter().enumerate().map(|(n, spec)| Machine::new(format!("n{n}").into(), spec)).collect();
        let mut site = Site {
            agenda: Agenda::new(0),
            trace: Trace::default(),
            by_name: machines.iter().enumerate().map(|(n, machine)| (machine.name.clone(), n)).collect(),
            store: Store::new(),
            net: Net::new(machines.len(), scenario.weather),
            control: Control::new(&mut rng("fencing clocks")),
            cluster: Cluster::new(&scenario.workloads),
            oracle: Oracle::default(),
            questions: BTreeMap::new(),
            questions_begun: 0,
            luck: Luck {
                machines: rng("fencing dogs"),
                net: rng("fencing net"),
                cluster: rng("fencing cluster"),
                control: rng("fencing control"),
                echoes: rng("fencing echoes"),
                votes: rng("fencing votes"),
            },
            healed: false,
            sequels_left: SEQUELS_MAX,
            is_over: false,
            machines,
            scenario,
        };
        site.begin();
        site
    }

    fn begin(&mut self) {
        if let Some(plot) = self.scenario.plot {
            self.trace.count(plot.word());
            self.tell(plot.word().to_owned());
        }
        for m in 0..self.machines.len() {
            self.power_on(m);
        }
        for (at, fault) in self.scenario.faults.clone() {
            self.agenda.enter(at, Event::Fault(fault));
        }
        self.agenda.enter(self.scenario.heals_at, Event::Heals);
        self.agenda.enter(SECOND, Event::Kubernetes);
        self.begin_control();
    }

    /// The next thing that is worth telling; none when the run is over.
    pub fn step(&mut self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.trace.news.pop_front() {
                return Some(happening);
            }
            if self.is_over {
                return None;
            }
            let event = self.agenda.pop()?;
            self.dispatch(event);
            self.ask_whether_all_is_well();
        }
    }

    pub fn report(&self) -> Report {
        Report {
            seed: self.scenario.seed,
            hash: self.trace.hash(),
            violations: self.trace.violations.clone(),
            counters: self.trace.counters().clone(),
            simulated_for: self.agenda.now(),
            story: self.trace.recent().cloned().collect(),
        }
    }

    fn ask_whether_all_is_well(&mut self) {
        let (now, heals_at) = (self.agenda.now(), self.scenario.heals_at);
        if now < heals_at + SETTLES_FOR || self.is_over {
            return;
        }
        let is_late = now >= heals_at + RECOVERS_WITHIN;
        if is_late || self.cluster.looked_at == now {
            match self.unwell() {
                None => self.is_over = true,
                Some(story) if is_late => {
                    self.is_over = true;
                    self.trace.violated("L1", now, story);
                }
                Some(_) => {}
            }
        }
    }

    /// What is meant for another boot, or for a process that is gone, is dropped; what stands still gets it later.
    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Fault(fault) => self.inflict(fault),
            Event::Heals => self.heal(),
            Event::Boots(m, boot) => self.boots(m, boot),
            Event::PowersOn(m) => self.power_on(m),
            Event::AgentStarts(m, processes) => self.start_agent(m, processes),
            Event::Wakes(m, process) => {
                if self.awaits(m, process, || Event::Wakes(m, process)) {
                    self.wake(m);
                }
            }
            Event::Hears(m, process, heard) => {
                if self.awaits(m, process, || Event::Hears(m, process, heard.clone())) {
                    self.hear(m, heard);
                }
            }
            Event::Resumes(m, process) => {
                if self.awaits(m, process, || Event::Resumes(m, process)) {
                    self.resume(m);
                }
            }
            Event::Killed(m, process) => {
                if self.machines[m].process.as_ref().is_some_and(|own| own.number == process) {
                    self.kill_agent(m, "killed");
                }
            }
            Event::Bites(m, number) => self.bite(m, number),
            Event::Calls(call) => self.answer_call(call),
            Event::Kubelet(m, boot, turn) => self.kubelet_turns(m, boot, turn),
            Event::BmcSpeaks(m, boot) => self.bmc_speaks(m, boot),
            Event::Runs(replica, term) => self.run_replica(replica, term),
            Event::Arrives { replica, term, sent_at, gives_up_at, answers_in, errand } => {
                self.execute_errand(replica, term, sent_at, gives_up_at, answers_in, errand);
            }
            Event::Answered { replica, term, sent_at, errand, outcome } => {
                self.hear_answer(replica, term, sent_at, &errand, outcome);
            }
            Event::Kubernetes => self.run_kubernetes(),
        }
    }

    /// Is this process there, and does it get time?
    fn awaits(&mut self, m: usize, process: u64, event: impl FnOnce() -> Event) -> bool {
        let machine = &self.machines[m];
        let Some(own) = machine.process.as_ref().filter(|own| own.number == process) else { return false };
        let until = own.stalled_until.max(machine.paused_until);
        if until > self.agenda.now() {
            self.agenda.enter(until, event());
            return false;
        }
        true
    }

    pub fn tell(&mut self, what: String) {
        self.trace.tell(self.agenda.now(), What::Act(what));
    }
}
