//! With how many machines not healthy may anything start?

use resus_core::facts::Claim;
use resus_core::mhc::facts::{Dialect, Flavour};
use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::Flags;
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{ALL, Story, WORKERS};

/// Machines that are healthy, pending and unhealthy, and the limit; is it allowed, how many more are, and about how many
/// something is done.
struct Example {
    stand: (usize, usize, usize),
    /// Of the unhealthy ones, so many are being deleted already.
    leaving: usize,
    check: Check,
    allowed: bool,
    left: i64,
    started: usize,
}

fn example(stand: (usize, usize, usize), check: Check, allowed: bool, left: i64, started: usize) -> Example {
    Example { stand, leaving: 0, check, allowed, left, started }
}

fn examples() -> Vec<Example> {
    let at_most = |limit: Value| Check::at_most(limit);
    vec![
        example((2, 0, 1), at_most(json!("100%")), true, 2, 1),
        example((1, 0, 2), at_most(json!("40%")), false, 0, 0),
        example((3, 0, 2), at_most(json!("40%")), true, 0, 2),
        example((2, 0, 3), at_most(json!("50%")), false, 0, 0),
        example((2, 0, 3), at_most(json!("60%")), true, 0, 3),
        example((1, 0, 1), at_most(json!("40%")), false, 0, 0),
        example((1, 1, 1), at_most(json!(1)), false, 0, 0),
        example((0, 0, 0), at_most(json!("100%")), true, 0, 0),
        example((0, 0, 0), at_most(json!(3)), true, 3, 0),
        Example { leaving: 1, ..example((2, 0, 2), at_most(json!("100%")), true, 2, 1) },
        example((0, 0, 3), Check::default(), true, 0, 3),
        example((0, 0, 1), at_most(json!(0)), false, 0, 0),
        example((6, 0, 4), at_most(json!(4)), true, 0, 4),
    ]
}

#[test]
fn the_worked_examples_hold_for_cluster_api() {
    let of_ranges = [
        example((2, 0, 1), Check::in_range("[1-3]"), true, 2, 1),
        example((1, 0, 2), Check::in_range("[3-5]"), false, 0, 0),
        example((3, 0, 0), Check::in_range("[1-3]"), false, 0, 0),
        // The range goes first.
        example((2, 0, 1), Check { limit: Some(json!(0)), ..Check::in_range("[1-3]") }, true, 2, 1),
    ];
    for dialect in [Dialect::V1beta1, Dialect::V1beta2] {
        for (number, example) in examples().iter().chain(&of_ranges).enumerate() {
            play(dialect, number, example);
        }
    }
}

#[test]
fn the_worked_examples_hold_for_openshift() {
    let clamped = example((0, 0, 1), Check::at_most(-1), false, 0, 0);
    let quoted = example((2, 0, 1), Check::at_most("1"), true, 0, 1);
    for (number, example) in examples().iter().chain([&clamped, &quoted]).enumerate() {
        play(Dialect::OpenShift, number, example);
    }
}

fn play(dialect: Dialect, number: usize, example: &Example) {
    let (healthy, pending, unhealthy) = example.stand;
    let expected = healthy + pending + unhealthy;
    let mut story = Story::of(dialect, expected);
    // What is deleted stays, so that the numbers do.
    (0..expected).for_each(|n| {
        story.patch(&story.machine_path(&format!("m{n}")), &json!({"metadata": {"finalizers": ["test/held"]}}));
    });
    story.add_check(WORKERS, &example.check);
    story.run(10 * SECOND);
    (0..unhealthy).for_each(|n| story.breaks(&format!("n{n}")));
    (0..example.leaving).for_each(|n| story.delete(&story.machine_path(&format!("m{n}"))));
    story.run(200 * SECOND);
    (unhealthy..unhealthy + pending).for_each(|n| story.breaks(&format!("n{n}")));
    story.run(103 * SECOND);

    let what = format!("{dialect:?}, example {number}");
    let counted = |many: usize| i64::try_from(many).expect("they are few");
    assert_eq!(story.counters(WORKERS), [counted(expected), counted(healthy), example.left], "{what}");
    let allowed = story.condition(WORKERS, "RemediationAllowed").expect("it is told");
    assert_eq!(allowed.starts_with("True"), example.allowed, "{what}: {allowed}");
    assert!(example.allowed || allowed == "False TooManyUnhealthy", "{what}: {allowed}");
    let started = match dialect.flavour() {
        Flavour::ClusterApi => story.asked().len(),
        Flavour::OpenShift => deleted(&mut story) - example.leaving,
    };
    assert_eq!(started, example.started, "{what}");
    // What is ill is called so, allowed or not; and nobody is told of a limit that holds up nobody.
    if dialect.flavour() == Flavour::ClusterApi {
        let is_called_ill =
            |n: &usize| story.sign(&format!("m{n}"), "HealthCheckSucceeded").iter().all(|sign| sign.starts_with("False"));
        assert_eq!((0..unhealthy).filter(is_called_ill).count(), unhealthy, "{what}");
    }
    let restricted = usize::from(!example.allowed && unhealthy > 0);
    assert_eq!(story.events("RemediationRestricted").len(), restricted, "{what}");
}

fn deleted(story: &mut Story) -> usize {
    let machines = story.machines();
    machines.iter().filter(|name| !story.machine(name)["metadata"]["deletionTimestamp"].is_null()).count()
}

/// What the limit is, as OpenShift's documents put it: at the limit nothing starts.
#[test]
fn at_the_limit_nothing_starts_where_the_controller_is_told_so() {
    for (at_limit, broken, started) in [(true, 1, 1), (true, 2, 0), (false, 2, 2), (false, 3, 0)] {
        let flags = Flags { mhc: Claim::All, short_circuit_at_limit: at_limit, ..Flags::default() };
        let mut story = Story::flagged(Dialect::V1beta2, 5, flags);
        story.add_check(WORKERS, &Check::at_most("40%"));
        story.run(10 * SECOND);
        (0..broken).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(305 * SECOND);
        assert_eq!(story.asked().len(), started, "{at_limit}, {broken}");
    }
}

#[test]
fn a_limit_that_makes_no_sense_is_told_and_nothing_starts_in_any_version() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 3, &Check::at_most("some"));
        story.breaks("n1");
        story.run(10 * MINUTE);
        assert_eq!(
            story.condition(WORKERS, "RemediationAllowed").as_deref(),
            Some("False MachineHealthCheckInvalid"),
            "{dialect:?}"
        );
        assert_eq!((story.asked().len(), story.machines().len()), (0, 3), "{dialect:?}");
        let path = if dialect == Dialect::V1beta2 {
            json!({"spec": {"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 1}}}})
        } else {
            json!({"spec": {"maxUnhealthy": 1}})
        };
        story.change_check(WORKERS, &path);
        story.run(2 * SECOND);
        assert!(story.condition(WORKERS, "RemediationAllowed").is_some_and(|told| told.starts_with("True")), "{dialect:?}");
        assert_eq!(story.asked().len() + 3 - story.machines().len(), 1, "{dialect:?}: and then it goes on");
    }
}
