//! Owners repair, on what stands on their machines: a MachineSet and its infrastructure provider are at work here.

use resus_core::mhc::facts::Dialect;
use resus_sim::clock::{MINUTE, SECOND};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{BLUE, CLUSTER_API, Story, WORKERS};

fn deleting(story: &mut Story) -> Vec<String> {
    let machines = story.machines();
    machines.into_iter().filter(|name| !story.machine(name)["metadata"]["deletionTimestamp"].is_null()).collect()
}

#[test]
fn a_machine_whose_node_is_silent_is_replaced_by_its_owner_and_all_is_well_again() {
    for dialect in CLUSTER_API {
        let mut story = Story::owned(dialect, 3, &Check::default());
        assert_eq!(story.counters(WORKERS), [3, 3, 3], "{dialect:?}");
        story.ready(BLUE, "node-set-2", "Unknown");
        story.run(300 * SECOND);
        assert_eq!(story.machines(), ["set-1", "set-2", "set-3"], "{dialect:?}");
        story.run(5 * SECOND);
        assert_eq!(story.machines(), ["set-1", "set-3", "set-4"], "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [3, 2, 2], "{dialect:?}: the new one has no node yet");
        story.run(15 * SECOND);
        assert_eq!(story.counters(WORKERS), [3, 3, 3], "{dialect:?}");
        story.expect_quiet();
        assert_eq!(story.machines(), ["set-1", "set-3", "set-4"], "{dialect:?}: no other");
        let told = story.events("MachineMarkedUnhealthy");
        assert!(matches!(told.as_slice(), [one] if one.starts_with("Machine set-2: ")), "{told:?}");
    }
}

#[test]
fn a_machine_that_never_gets_a_node_is_replaced_too() {
    let mut story = Story::owned(Dialect::V1beta2, 2, &Check { startup: Some(60), ..Check::default() });
    story.boot_for(1000 * MINUTE);
    story.delete(&story.machine_path("set-1"));
    story.run(5 * SECOND);
    assert_eq!(story.machines(), ["set-2", "set-3"]);
    story.run(50 * SECOND);
    assert_eq!(story.machines(), ["set-2", "set-3"]);
    story.boot_for(10 * SECOND);
    // The one before has waited for longer than that already.
    story.run(20 * SECOND);
    assert_eq!(story.machines(), ["set-2", "set-3"], "its node came just in time");
    assert_eq!(story.counters(WORKERS), [2, 2, 2]);

    story.boot_for(1000 * MINUTE);
    story.delete(&story.machine_path("set-2"));
    story.run(70 * SECOND);
    assert_eq!(story.machines(), ["set-3", "set-5"], "set-4 had its time");
}

/// The owner may not act yet; when the node is well again, it takes its word back, and nothing is left to act on.
#[test]
fn a_machine_that_recovers_before_its_owner_acts_is_left_alone() {
    let mut story = Story::owned(Dialect::V1beta2, 3, &Check::default());
    story.owner.iter_mut().for_each(|owner| owner.in_flight_max = Some(0));
    story.ready(BLUE, "node-set-2", "False");
    story.run(310 * SECOND);
    assert_eq!(story.sign("set-2", "OwnerRemediated"), ["False RemediationDeferred"; 2], "what the owner says stays");
    story.expect_quiet();
    story.ready(BLUE, "node-set-2", "True");
    story.run(3 * SECOND);
    assert_eq!(story.sign("set-2", "HealthCheckSucceeded"), ["True HealthCheckSucceeded", "True"]);
    assert_eq!(story.sign("set-2", "OwnerRemediated"), [""; 0]);
    // A relapse has its whole time, though the owner may act now.
    story.owner.iter_mut().for_each(|owner| owner.in_flight_max = None);
    story.ready(BLUE, "node-set-2", "False");
    story.run(300 * SECOND);
    assert_eq!(story.machines(), ["set-1", "set-2", "set-3"]);
    story.run(5 * SECOND);
    assert_eq!(story.machines(), ["set-1", "set-3", "set-4"]);
}

#[test]
fn a_storm_stops_everything_and_when_it_is_over_the_rest_is_repaired() {
    for dialect in CLUSTER_API {
        let mut story = Story::owned(dialect, 5, &Check::at_most("40%"));
        for n in 1..=3 {
            story.ready(BLUE, &format!("node-set-{n}"), "Unknown");
        }
        story.run(30 * MINUTE);
        assert_eq!(story.machines().len(), 5, "{dialect:?}");
        assert_eq!(story.owner.as_ref().map(|owner| owner.made), Some(5), "{dialect:?}: nothing was replaced");
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False TooManyUnhealthy"), "{dialect:?}");
        assert_eq!(story.events("RemediationRestricted").len(), 1, "{dialect:?}");
        // One comes back by itself.
        story.ready(BLUE, "node-set-1", "True");
        story.run(30 * SECOND);
        assert_eq!(story.machines(), ["set-1", "set-4", "set-5", "set-6", "set-7"], "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [5, 5, 2], "{dialect:?}");
        assert!(story.condition(WORKERS, "RemediationAllowed").is_some_and(|told| told.starts_with("True")), "{dialect:?}");
    }
}

#[test]
fn the_owners_own_limit_is_its_own_and_nobody_is_forgotten() {
    let mut story = Story::owned(Dialect::V1beta2, 5, &Check::default());
    story.owner.iter_mut().for_each(|owner| owner.in_flight_max = Some(1));
    for n in 1..=4 {
        story.ready(BLUE, &format!("node-set-{n}"), "False");
    }
    story.run(301 * SECOND);
    let mut most = 0;
    for _ in 0..60 {
        story.run(SECOND);
        most = most.max(deleting(&mut story).len());
    }
    assert_eq!(most, 1);
    assert_eq!(story.machines(), ["set-5", "set-6", "set-7", "set-8", "set-9"]);
    assert_eq!(story.counters(WORKERS), [5, 5, 5]);
}

/// Otherwise the owner of a machine that was ill before would act in the middle of a storm.
#[test]
fn a_storm_does_not_revive_what_the_owner_has_not_taken_back() {
    let mut story = Story::with(Dialect::V1beta2, 4, &Check::at_most(1));
    story.post_on_machine("m1", "OwnerRemediated", "False", "RemediationDeferred");
    story.breaks("n1");
    story.breaks("n2");
    story.run(310 * SECOND);
    assert_eq!(story.asked(), [""; 0]);
    assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["True HealthCheckSucceeded", "True"]);
    assert_eq!(story.sign("m2", "HealthCheckSucceeded"), ["False UnhealthyNode"; 2]);
    assert!(story.message(WORKERS, "RemediationHeld").contains("m1: "), "{}", story.status(WORKERS));
    story.recovers("n2");
    story.run(2 * SECOND);
    assert_eq!(story.asked(), ["m1"], "the storm is over");
    assert_eq!(story.condition(WORKERS, "RemediationHeld"), None);
}

#[test]
fn a_machine_that_a_person_deletes_meanwhile_is_not_in_the_way() {
    let mut story = Story::owned(Dialect::V1beta2, 3, &Check::default());
    story.ready(BLUE, "node-set-2", "False");
    story.run(290 * SECOND);
    story.delete(&story.machine_path("set-2"));
    story.run(30 * SECOND);
    assert_eq!(story.machines(), ["set-1", "set-3", "set-4"]);
    assert_eq!(story.counters(WORKERS), [3, 3, 3]);
    assert_eq!(story.events("MachineMarkedUnhealthy"), [""; 0]);
}

/// Owners that are older than the new style read the other one.
#[test]
fn both_styles_say_the_same_and_what_is_missing_in_one_is_written() {
    let mut story = Story::with(Dialect::V1beta1, 3, &Check::default());
    story.breaks("n1");
    story.run(301 * SECOND);
    assert_eq!(story.sign("m1", "OwnerRemediated"), ["False WaitingForRemediation"; 2]);
    // An owner of old forgives in its own style alone.
    let kept: Vec<Value> = story.machine("m1")["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|own| own["type"] != "OwnerRemediated")
        .cloned()
        .collect();
    story.set_machine_status("m1", &json!({"conditions": kept}));
    story.run(3 * SECOND);
    assert_eq!(story.sign("m1", "OwnerRemediated"), ["False WaitingForRemediation"; 2]);
}
