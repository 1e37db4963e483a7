//! Did it go as told?
//!
//! Keeps the accounts of the story, from the simulator's truth: what was broken and for how long, what was repaired, and
//! how often resus held back.

use std::collections::{BTreeMap, BTreeSet};

use resus_core::decision::{Because, Verdict};
use resus_sim::Simulation;
use resus_sim::clock::{Millis, SECOND};
use resus_sim::happening::{Happening, What};
use resus_sim::machine::State;

use super::script::Script;
use super::story::names;

/// Repairs that are told one by one at the end; of more, only the number and the longest.
const LISTED_MAX: usize = 8;

pub struct Balance {
    workers: usize,
    allowed: usize,
    /// What must be repaired, in order, with what is wrong.
    expected: Vec<(String, &'static str)>,
    left_alone: Vec<String>,
    /// Since when each broken node is.
    broken: BTreeMap<String, Millis>,
    repairs: Vec<Repair>,
    in_flight: BTreeSet<String>,
    /// So many at once.
    most: usize,
    /// Why it held back, and on how many nodes.
    held: BTreeMap<&'static str, BTreeSet<String>>,
    wrong: Vec<String>,
}

struct Repair {
    node: String,
    took: Millis,
}

impl Balance {
    pub fn new(script: &Script) -> Balance {
        Balance {
            workers: script.workers(),
            allowed: script.allowed,
            expected: script.repaired.clone(),
            left_alone: script.left_alone.clone(),
            broken: BTreeMap::new(),
            repairs: Vec::new(),
            in_flight: BTreeSet::new(),
            most: 0,
            held: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    pub fn take(&mut self, Happening { at, what }: &Happening, simulation: &Simulation) {
        for machine in simulation.machines() {
            match machine.unhealthy_since {
                Some(since) => self.broken.entry(machine.spec.name.clone()).or_insert(since),
                None => continue,
            };
        }
        match what {
            What::Created { node, .. } => self.created(node, simulation),
            What::Removed { node, .. } => {
                self.in_flight.remove(node);
                let began = self.broken.remove(node).unwrap_or(*at);
                self.repairs.push(Repair { node: node.clone(), took: at - began });
            }
            What::Decided { decision, .. } => {
                let why = match (decision.verdict, &decision.because) {
                    (Verdict::Hold, Because::TooManyUnhealthy { .. }) => "too many were not healthy at once",
                    (Verdict::Hold, Because::Stale { .. }) => "the API server could not be asked",
                    (Verdict::Leave, Because::Healthy) => {
                        self.broken.remove(&*decision.node);
                        return;
                    }
                    _ => return,
                };
                self.held.entry(why).or_default().insert(decision.node.to_string());
            }
            What::Violation(violation) => self.wrong.push(violation.to_string()),
            _ => {}
        }
    }

    fn created(&mut self, node: &str, simulation: &Simulation) {
        self.in_flight.insert(node.to_owned());
        self.most = self.most.max(self.in_flight.len());
        if self.in_flight.len() > self.allowed {
            self.wrong.push(format!("{} repairs at once, and only {} are allowed", self.in_flight.len(), self.allowed));
        }
        let machine = simulation.machines().iter().find(|machine| machine.spec.name == node);
        if machine.is_none_or(|machine| machine.unhealthy_since.is_none()) {
            self.wrong.push(format!("{node} was to be repaired, and nothing was wrong with it"));
        }
    }

    pub fn end(&mut self, simulation: &Simulation) {
        let broken = simulation.machines().iter().filter(|machine| machine.state != State::Running);
        let broken: Vec<String> = broken.map(|machine| machine.spec.name.clone()).collect();
        if !broken.is_empty() {
            self.wrong.push(format!("still broken at the end: {}", names(&broken)));
        }
        if !self.in_flight.is_empty() {
            self.wrong.push(format!("remediations left at the end: {:?}", self.in_flight));
        }
        let count = |nodes: &mut dyn Iterator<Item = &String>| {
            nodes.fold(BTreeMap::<String, usize>::new(), |mut counts, node| {
                *counts.entry(node.clone()).or_default() += 1;
                counts
            })
        };
        let expected = count(&mut self.expected.iter().map(|(node, _)| node));
        let repaired = count(&mut self.repairs.iter().map(|repair| &repair.node));
        for node in expected.keys().chain(repaired.keys()).collect::<BTreeSet<_>>() {
            let (should, did) = (expected.get(node).unwrap_or(&0), repaired.get(node).unwrap_or(&0));
            if should != did {
                self.wrong.push(format!("{node} was repaired {did} times, and should have been {should} times"));
            }
        }
        if self.held.len() != 2 {
            self.wrong.push(format!("it should have held back for two reasons, but did for {:?}", self.held.keys()));
        }
    }

    /// What was not as told; nothing, if all is well.
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }

    pub fn summary(&self) -> Vec<String> {
        let repairs = self.repairs.len();
        // Who finds the story wrong wants to know what was, not what should have been.
        if !self.wrong.is_empty() {
            return vec![format!("{} workers, {repairs} repairs, and something went wrong.", self.workers)];
        }
        let mut lines = vec![format!("All {} workers are well. {repairs} repairs, and no wrong one.", self.workers)];
        if repairs <= LISTED_MAX {
            let wide = self.repairs.iter().map(|repair| repair.node.len()).max().unwrap_or(0);
            for (repair, (_, what)) in self.repairs.iter().zip(&self.expected) {
                lines.push(format!("  {:wide$}  {what}: well again after {}", repair.node, spoken(repair.took)));
            }
        } else {
            let longest = self.repairs.iter().map(|repair| repair.took).max().unwrap_or(0);
            lines.push(format!("  Each was well again after at most {}.", spoken(longest)));
        }
        for (why, nodes) in &self.held {
            let nodes: Vec<String> = nodes.iter().cloned().collect();
            lines.push(format!("  Held back, as {why}: {}.", names(&nodes)));
        }
        lines.push(format!("  Repairs under way at once: {}, where {} were allowed.", self.most, self.allowed));
        lines.push(format!("  Left alone, as they recovered by themselves: {}.", names(&self.left_alone)));
        lines
    }
}

/// `5 min 56 s`.
fn spoken(time: Millis) -> String {
    let seconds = time / SECOND;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}
