//! Too many at once: thresholds, zones, storms and their cooldown.

use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::{Flags, ZONE};
use serde_json::json;

use crate::story::{CHECKS, Story, WORKERS};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodehealthchecks.remediation.medik8s.io";

const FOUR: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn rage(story: &mut Story) {
    FOUR.iter().for_each(|node| story.breaks(node));
    story.run(10 * SECOND);
}

fn calm(story: &mut Story) {
    FOUR.iter().for_each(|node| story.recovers(node));
    story.run(2 * SECOND);
}

#[test]
fn after_a_storm_repairs_wait_for_the_cooldown_even_if_every_node_recovered() {
    let mut story = Story::with(6, &json!({"stormCooldownDuration": "10m"}));
    assert_eq!((story.is("StormActive"), story.is("StormCooldownActive")), (Some(false), Some(false)));
    rage(&mut story);
    assert_eq!((story.is("StormActive"), story.is("StormCooldownActive")), (Some(true), Some(false)));
    story.expect(&[]);
    calm(&mut story);
    let calm_at = story.now();
    assert_eq!(story.status(WORKERS)["healthyNodes"], 6);
    assert_eq!((story.is("StormActive"), story.is("StormCooldownActive")), (Some(true), Some(true)));
    story.run(5 * MINUTE);
    story.breaks("n1");
    story.run_until(calm_at + 10 * MINUTE - 3 * SECOND);
    story.expect(&[]);
    assert_eq!(story.condition(WORKERS, "RemediationAllowed"), Some(("False".to_owned(), "StormCooldown".to_owned())));
    story.run(5 * SECOND);
    story.expect(&["reboot n1"]);
    assert_eq!((story.is("StormActive"), story.is("StormCooldownActive")), (Some(false), Some(false)));
    for reason in ["StormRecoveryStarted", "StormRecoveryCooldownStarted", "StormRecoveryEnded"] {
        assert_eq!(story.events(reason).len(), 1, "{reason}");
    }
    // Without the field the conditions go.
    story.change_check(WORKERS, &json!({"stormCooldownDuration": null}));
    story.run(3 * SECOND);
    assert_eq!(story.is("StormActive"), None);
}

#[test]
fn another_storm_begins_the_cooldown_anew() {
    let mut story = Story::with(6, &json!({"stormCooldownDuration": "10m"}));
    rage(&mut story);
    calm(&mut story);
    story.run(8 * MINUTE);
    rage(&mut story);
    assert_eq!((story.is("StormActive"), story.is("StormCooldownActive")), (Some(true), Some(false)));
    calm(&mut story);
    story.run(9 * MINUTE);
    assert_eq!(story.is("StormCooldownActive"), Some(true));
    story.run(MINUTE);
    assert_eq!(story.is("StormCooldownActive"), Some(false));
    let told =
        ["StormRecoveryStarted", "StormRecoveryCooldownStarted", "StormRecoveryEnded"].map(|reason| story.events(reason).len());
    assert_eq!(told, [1, 2, 1], "it was one storm with a lull");
}

#[test]
fn a_second_storm_after_the_first_has_ended_is_told_again() {
    let mut story = Story::with(6, &json!({"stormCooldownDuration": "1m"}));
    for times in 1..=2 {
        rage(&mut story);
        calm(&mut story);
        story.run(2 * MINUTE);
        for reason in ["StormRecoveryStarted", "StormRecoveryCooldownStarted", "StormRecoveryEnded"] {
            assert_eq!(story.events(reason).len(), times, "{reason}");
        }
    }
}

#[test]
fn a_cooldown_survives_a_restart_of_the_controller() {
    let mut story = Story::with(6, &json!({"stormCooldownDuration": "10m"}));
    rage(&mut story);
    calm(&mut story);
    story.breaks("n1");
    story.run(5 * MINUTE);
    story.restart_controller();
    story.run(4 * MINUTE);
    story.expect(&[]);
    story.run(MINUTE);
    story.expect(&["reboot n1"]);
}

#[test]
fn a_dark_zone_stops_repair_there_and_nowhere_else() {
    let mut story = Story::of(9);
    for n in 0..9 {
        story.label(&format!("n{n}"), ZONE, ["a", "b", "c"][n / 3]);
    }
    story.check(WORKERS, &json!({"maxUnhealthy": "40%", "topologyKey": ZONE}));
    story.run(5 * SECOND);
    ["n0", "n1", "n2", "n3"].iter().for_each(|node| story.breaks(node));
    story.run(8 * SECOND);
    story.expect(&["reboot n3"]);
    let status = story.status(WORKERS);
    let allowed = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "RemediationAllowed");
    let message = allowed.expect("it is there")["message"].as_str().expect("it has one").to_owned();
    assert!(message.contains("3 of 3 nodes of a"), "{message}");
    // Without zones five of nine are too many.
    story.change_check(WORKERS, &json!({"topologyKey": null}));
    story.breaks("n6");
    story.run(8 * SECOND);
    story.expect(&["reboot n3"]);
    let reason = story.condition(WORKERS, "RemediationAllowed").map(|(_, reason)| reason);
    assert_eq!(reason.as_deref(), Some("TooManyUnhealthy"));
}

/// The reference loops on an error on both.
#[test]
fn quoted_numbers_and_numbers_beyond_all_nodes_work_and_do_not_loop() {
    let rows = [
        (json!({"minHealthy": "3"}), 3, true),
        (json!({"minHealthy": "3"}), 4, false),
        (json!({"maxUnhealthy": "2"}), 2, true),
        (json!({"maxUnhealthy": 12}), 6, true),
        (json!({"minHealthy": 12}), 1, false),
    ];
    for (spec, broken, starts) in rows {
        let mut story = Story::with(6, &spec);
        (0..broken).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(10 * SECOND);
        assert_eq!(story.remediations().len(), if starts { broken } else { 0 }, "{spec}, {broken} broken");
        assert_eq!(story.is("Disabled"), Some(false), "{spec}");
        let mut written = story.written_within(10 * MINUTE);
        written.retain(|(what, _)| !what.contains("/medik8s-leases/"));
        assert_eq!(written, [], "{spec}");
    }
}

/// Our own definition refuses it; one of others does not.
#[test]
fn more_than_all_nodes_is_read_as_all_and_told_once() {
    let mut story = Story::of(6);
    let spec = json!({"maxUnhealthy": "150%"});
    assert_eq!(story.try_check(WORKERS, &spec).0, 422);
    story.patch(DEFINITION, &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "olm"}}}));
    let rules = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/maxUnhealthy/x-kubernetes-validations";
    story.patch_json(DEFINITION, &json!([{"op": "remove", "path": rules}]));
    story.check(WORKERS, &spec);
    story.run(10 * SECOND);
    assert!(story.status(WORKERS).is_null(), "it is not ours yet");
    story.patch(&format!("{CHECKS}/{WORKERS}"), &json!({"metadata": {"annotations": {"resus.dev/take-over": "true"}}}));
    story.run(10 * SECOND);
    assert_eq!(story.condition(WORKERS, "ThresholdClamped"), Some(("True".to_owned(), "AboveAllNodes".to_owned())));
    assert_eq!(story.events("ThresholdClamped").len(), 1);
    assert_eq!(story.written_within(10 * MINUTE), []);
    (0..6).for_each(|n| story.breaks(&format!("n{n}")));
    story.run(10 * SECOND);
    assert_eq!(story.remediations().len(), 6);
    story.restart_controller();
    assert_eq!(story.events("ThresholdClamped").len(), 1, "it stands in the status that it was told");
    story.change_check(WORKERS, &json!({"maxUnhealthy": "100%"}));
    story.run(3 * SECOND);
    assert_eq!(story.condition(WORKERS, "ThresholdClamped"), None);
}

#[test]
fn exactly_the_limit_is_allowed_and_one_more_is_not() {
    for (broken, started) in [(3, 3), (4, 0)] {
        let mut story = Story::with(6, &json!({}));
        (0..broken).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(8 * SECOND);
        assert_eq!(story.remediations().len(), started);
    }
}

#[test]
fn at_the_limit_nothing_starts_where_the_stricter_reading_is_asked_for() {
    let mut story = Story::flagged(6, Flags { short_circuit_at_limit: true, ..Flags::default() });
    story.check(WORKERS, &json!({"maxUnhealthy": 1}));
    story.run(10 * SECOND);
    story.breaks("n1");
    story.run(50 * MINUTE);
    story.expect(&[]);
    assert_eq!(story.condition(WORKERS, "RemediationAllowed"), Some(("False".to_owned(), "TooManyUnhealthy".to_owned())));
    let told = story.events("RemediationSkipped");
    assert!(told.len() == 1 && told[0].contains("1 of 6 nodes are not healthy"), "{told:?}");
    story.change_check(WORKERS, &json!({"maxUnhealthy": 2}));
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
}
