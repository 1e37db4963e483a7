//! One seed, one run.

use crate::happening::{Happening, What};
use crate::report::Report;
use crate::simulation::Simulation;
use crate::swarm;

pub fn run(seed: u64) -> Report {
    let mut simulation = Simulation::new(swarm::draw(seed));
    while let Some(happening) = simulation.step() {
        // What comes after the first violation may be its consequence.
        if matches!(happening.what, What::Violation(_)) {
            break;
        }
    }
    report(seed, &simulation)
}

/// The whole story, as it goes on.
pub fn tell(seed: u64, mut each: impl FnMut(&Happening)) -> Report {
    let mut simulation = Simulation::new(swarm::draw(seed));
    while let Some(happening) = simulation.step() {
        each(&happening);
    }
    report(seed, &simulation)
}

fn report(seed: u64, simulation: &Simulation) -> Report {
    let trace = simulation.trace();
    Report {
        seed,
        hash: trace.hash(),
        violations: trace.violations.clone(),
        counters: trace.counters().clone(),
        simulated_for: simulation.now(),
        story: trace.recent().cloned().collect(),
    }
}
