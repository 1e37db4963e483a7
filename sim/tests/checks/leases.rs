//! Leases on nodes: others' are respected, ours are held and given back.

use resus_sim::clock::{MINUTE, Millis, SECOND};
use resus_sim::scenario::template;
use serde_json::{Value, json};

use crate::story::{CHECKS, HOUR, Story, WORKERS, millis, steps};

fn ends_at(lease: &Value) -> Millis {
    millis(&lease["renewTime"]) + lease["leaseDurationSeconds"].as_i64().expect("it has one") * SECOND
}

#[test]
fn a_node_that_somebody_else_holds_is_left_alone_until_the_lease_ends_and_then_taken_over() {
    let mut story = Story::with(6, &json!({}));
    story.hold("n1", "NodeMaintenance-n1", 10 * MINUTE);
    let held_at = story.now();
    story.breaks("n1");
    story.run_until(held_at + 10 * MINUTE - SECOND);
    story.expect(&[]);
    assert!(story.held(WORKERS, "n1").starts_with("NodeMaintenance-n1 has the node out of service"));
    assert_eq!(story.lease("n1").expect("it is held")["holderIdentity"], "NodeMaintenance-n1");
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
    let lease = story.lease("n1").expect("it is held");
    assert_eq!(lease["holderIdentity"], "NodeHealthCheck-workers");
    assert_eq!(lease["leaseTransitions"], 4);
}

#[test]
fn a_lease_that_somebody_else_gives_back_early_is_not_waited_for() {
    let mut story = Story::with(6, &json!({}));
    story.hold("n1", "NodeMaintenance-n1", HOUR);
    story.breaks("n1");
    story.run(MINUTE);
    story.expect(&[]);
    story.delete(&format!("{}/node-n1", crate::story::LEASES));
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
}

#[test]
fn the_lease_is_held_while_the_remediation_exists_renewed_over_hours_and_then_given_back() {
    let mut story = Story::with(6, &json!({}));
    assert_eq!(story.lease("n1"), None);
    story.breaks("n1");
    story.run(10 * SECOND);
    let first = story.lease("n1").expect("it is held");
    for _ in 0..50 {
        story.run(7 * MINUTE);
        let lease = story.lease("n1").expect("it is held");
        assert!(ends_at(&lease) > story.now(), "it has been renewed: {lease}");
        assert_eq!(lease["acquireTime"], first["acquireTime"]);
        assert_eq!(lease["leaseTransitions"], first["leaseTransitions"]);
    }
    story.recovers("n1");
    story.run(3 * SECOND);
    assert_eq!(story.lease("n1"), None);
}

#[test]
fn the_lease_outlasts_the_step_of_an_escalation() {
    let mut story = Story::with(6, &steps(["reboot", "power"], "30m"));
    story.breaks("n1");
    story.run(10 * SECOND);
    assert_eq!(story.lease("n1").expect("it is held")["leaseDurationSeconds"], 31 * 60);
}

/// The reference looked up the time of a step by its kind, and so took that of the first.
#[test]
fn each_of_two_steps_of_one_kind_has_its_own_time_and_a_lease_that_lasts_as_long() {
    let mut story = Story::of(6);
    for name in ["soft", "hard"] {
        story.add_template("Reboot", name, &json!({"template": {"spec": {"how": name}}}), &json!({}));
    }
    let step = |order: i64, name: &str, timeout: &str| json!({"remediationTemplate": template(name), "order": order, "timeout": timeout});
    story.check(WORKERS, &json!({"escalatingRemediations": [step(1, "soft", "5m"), step(2, "hard", "40m")]}));
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(10 * SECOND);
    assert_eq!(story.lease("n1").expect("it is held")["leaseDurationSeconds"], 6 * 60);
    story.run(6 * MINUTE);
    assert_eq!(story.remediation("reboot n1")["spec"]["how"], "hard");
    let second_at = story.created_at("reboot n1");
    while story.now() < second_at + 39 * MINUTE {
        assert!(story.lease("n1").is_some_and(|lease| ends_at(&lease) > story.now()), "it is held all along");
        assert!(!story.held(WORKERS, "n1").contains("by hand"), "the second step has its own time");
        story.run(MINUTE);
    }
    assert_eq!(story.lease("n1").expect("it is held")["leaseDurationSeconds"], 41 * 60);
    story.run(2 * MINUTE);
    assert!(story.held(WORKERS, "n1").contains("by hand"));
}

/// What runs is looked after, whatever keeps more from starting.
#[test]
fn neither_a_pause_nor_a_full_threshold_lets_a_lease_lapse() {
    for spec in [json!({"pauseRequests": ["we upgrade"]}), json!({"maxUnhealthy": 0})] {
        let mut story = Story::with(6, &json!({}));
        story.breaks("n1");
        story.run(10 * SECOND);
        story.change_check(WORKERS, &spec);
        story.run(50 * MINUTE);
        story.expect(&["reboot n1"]);
        assert!(story.lease("n1").is_some_and(|lease| ends_at(&lease) > story.now()), "{spec}");
    }
}

#[test]
fn nothing_is_created_before_the_lease_is_ours() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(10 * SECOND);
    let acquired_at = millis(&story.lease("n1").expect("it is held")["acquireTime"]);
    assert!(acquired_at < story.created_at("reboot n1") + SECOND);
}

#[test]
fn a_lease_does_not_outlive_its_check() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(10 * SECOND);
    assert!(story.lease("n1").is_some());
    story.delete(&format!("{CHECKS}/{WORKERS}"));
    story.run(15 * SECOND);
    story.expect(&[]);
    assert_eq!(story.lease("n1"), None);
}

#[test]
fn a_check_that_is_deleted_after_its_remediation_ended_leaves_no_lease() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(10 * SECOND);
    story.recovers("n1");
    story.delete(&format!("{CHECKS}/{WORKERS}"));
    story.run(15 * SECOND);
    story.expect(&[]);
    assert_eq!(story.lease("n1"), None);
}

#[test]
fn the_lease_of_somebody_else_survives_all_of_it() {
    let mut story = Story::with(6, &json!({}));
    story.hold("n1", "NodeMaintenance-n1", HOUR);
    story.breaks("n1");
    story.run(MINUTE);
    story.recovers("n1");
    story.run(MINUTE);
    story.delete(&format!("{CHECKS}/{WORKERS}"));
    story.run(MINUTE);
    assert_eq!(story.lease("n1").expect("it is held")["holderIdentity"], "NodeMaintenance-n1");
}
