//! One seed, one run; and many of them.

use std::collections::BTreeMap;

use crate::happening::{Happening, What};
use crate::report::Report;
use crate::simulation::Simulation;
use crate::swarm;

/// Each so manyeth seed runs twice.
const TWICE: u64 = 8;
/// Of those that go wrong, for each thread: more say no more.
const FAILED_MAX: usize = 3;
/// Of a story that went wrong.
const LINES: usize = 60;

/// What many runs come to.
#[derive(Default)]
pub struct Tally {
    /// How often what happened.
    pub counters: BTreeMap<&'static str, u64>,
    /// How each seed is called that went wrong, and what it did.
    pub failed: Vec<String>,
}

/// Runs all of them, some twice, and prints the end of each story that went wrong. `variable` names a single seed to whoever wants to see it.
pub fn tally(seeds: &[u64], run: fn(u64) -> Report, variable: &str) -> Tally {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts = (0..threads).map(|part| seeds.iter().copied().skip(part).step_by(threads));
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let running: Vec<_> = parts.map(|part| scope.spawn(move || tally_some(part, run, variable))).collect();
        running.into_iter().map(|thread| thread.join().expect("no run panics")).collect()
    });
    let mut all = Tally::default();
    for Tally { counters, failed } in tallies {
        counters.into_iter().for_each(|(what, times)| *all.counters.entry(what).or_default() += times);
        all.failed.extend(failed);
    }
    all
}

fn tally_some(seeds: impl Iterator<Item = u64>, run: fn(u64) -> Report, variable: &str) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let report = run(seed);
        if seed % TWICE == 0 {
            assert_eq!(report.hash, run(seed).hash, "seed {seed} does not go the same way twice");
        }
        for (what, times) in &report.counters {
            *tally.counters.entry(what).or_default() += times;
        }
        if let Some(violation) = report.violations.first() {
            let skipped = report.story.len().saturating_sub(LINES);
            report.story.iter().skip(skipped).for_each(|happening| println!("{happening}"));
            tally.failed.push(format!("{variable}={seed}: {violation}"));
            if tally.failed.len() == FAILED_MAX {
                break;
            }
        }
    }
    tally
}

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
