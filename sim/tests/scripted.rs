//! A scripted scenario, played step by step.

use resus_core::decision::Verdict;
use resus_sim::Simulation;
use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::happening::{Happening, What};
use resus_sim::scenario::{Act, Failure, Scenario};

fn play(scenario: Scenario) -> Vec<Happening> {
    let mut simulation = Simulation::new(scenario);
    let story: Vec<Happening> = std::iter::from_fn(|| simulation.step()).collect();
    story.iter().for_each(|happening| println!("{happening}"));
    assert!(simulation.violations().is_empty());
    story
}

fn when(story: &[Happening], is: impl Fn(&What) -> bool) -> Option<i64> {
    story.iter().find(|happening| is(&happening.what)).map(|happening| happening.at)
}

#[test]
fn a_node_that_crashes_is_remediated_and_comes_back() {
    let scenario = Scenario::calm(1, 5).check("workers", 30, "40%").at(MINUTE, Act::Break(1, Failure::Crash));
    let story = play(scenario);
    let is_node = |node: &str| node == "worker-2";
    let unknown =
        when(&story, |what| matches!(what, What::Condition { node, status, .. } if is_node(node) && status == "Unknown"));
    let started = when(&story, |what| matches!(what, What::Decided { decision, .. } if decision.verdict == Verdict::Start));
    let created = when(&story, |what| matches!(what, What::Created { node, .. } if is_node(node)));
    let booted = when(&story, |what| matches!(what, What::Booted { node } if is_node(node)));
    let removed = when(&story, |what| matches!(what, What::Removed { node, .. } if is_node(node)));
    let times = [unknown, started, created, booted, removed].map(|at| at.expect("it happens"));
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[2] - times[0] < 32 * SECOND, "created {} ms after it became unknown", times[2] - times[0]);
    assert!(times[4] - times[3] < 2 * SECOND, "removed {} ms after the boot", times[4] - times[3]);
}

#[test]
fn a_zone_that_fails_is_too_much_and_nothing_is_started() {
    let scenario = Scenario::calm(2, 4).check("workers", 30, "40%").at(MINUTE, Act::BreakZone("a".to_owned(), Failure::Hangs));
    let story = play(scenario);
    assert!(when(&story, |what| matches!(what, What::Decided { decision, .. } if decision.verdict == Verdict::Hold)).is_some());
    assert!(when(&story, |what| matches!(what, What::Created { .. })).is_none());
}
