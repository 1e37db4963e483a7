//! A node is healthy again, and its remediations go: at once, later, or when somebody says so.

use resus_sim::clock::{MINUTE, SECOND};
use serde_json::json;

use crate::story::{CHECKS, HOUR, NODES, Story, WORKERS, path_of};

const DELAYED: &str = "remediation.medik8s.io/healthy-delay";
const CONFIRMED: &str = "remediation.medik8s.io/manually-confirmed-healthy";

#[test]
fn a_recovered_node_keeps_its_remediation_for_the_healthy_delay_which_a_relapse_begins_anew() {
    let mut story = Story::with(6, &json!({"healthyDelay": "10m"}));
    story.breaks("n1");
    story.run(7 * SECOND);
    story.recovers("n1");
    story.run(9 * MINUTE);
    story.expect(&["reboot n1"]);
    assert!(story.annotation("reboot n1", DELAYED).is_some());
    let listed = story.listed(WORKERS, "n1").expect("it is listed");
    assert!(listed["healthyDelayed"] == true && !listed["conditionsHealthyTimestamp"].is_null(), "{listed}");
    story.breaks("n1");
    story.run(7 * SECOND);
    assert_eq!(story.annotation("reboot n1", DELAYED), None);
    let listed = story.listed(WORKERS, "n1").expect("it is listed");
    assert!(listed["healthyDelayed"].is_null() && listed["conditionsHealthyTimestamp"].is_null(), "{listed}");
    story.recovers("n1");
    let recovered_at = story.now();
    story.run_until(recovered_at + 10 * MINUTE);
    story.expect(&["reboot n1"]);
    story.run(2 * SECOND);
    story.expect(&[]);
    assert_eq!(story.events("RemediationCreated").len(), 1);
}

/// Pending is not healthy either.
#[test]
fn a_relapse_that_is_over_before_its_time_begins_the_healthy_delay_anew_too() {
    for lasts_for in [3 * SECOND, SECOND / 20] {
        let mut story = Story::with(6, &json!({"healthyDelay": "10m"}));
        story.breaks("n1");
        story.run(7 * SECOND);
        story.recovers("n1");
        story.run(9 * MINUTE);
        story.breaks("n1");
        story.run(lasts_for);
        story.recovers("n1");
        story.run(9 * MINUTE);
        story.expect(&["reboot n1"]);
        story.run(MINUTE + 2 * SECOND);
        story.expect(&[]);
    }
}

#[test]
fn a_healthy_delay_survives_a_restart_of_the_controller() {
    let mut story = Story::with(6, &json!({"healthyDelay": "10m"}));
    story.breaks("n1");
    story.run(7 * SECOND);
    story.recovers("n1");
    let recovered_at = story.now();
    story.run(5 * MINUTE);
    story.restart_controller();
    story.run_until(recovered_at + 10 * MINUTE);
    story.expect(&["reboot n1"]);
    story.run(3 * SECOND);
    story.expect(&[]);
}

#[test]
fn a_person_can_confirm_that_a_node_is_healthy_and_the_word_is_taken_back_from_the_node() {
    for delay in ["-1s", "1h"] {
        let mut story = Story::with(6, &json!({"healthyDelay": delay}));
        story.breaks("n1");
        story.run(7 * SECOND);
        story.recovers("n1");
        story.run(50 * MINUTE);
        story.expect(&["reboot n1"]);
        assert_eq!(story.listed(WORKERS, "n1").expect("it is listed")["healthyDelayed"], true);
        story.annotate("n1", CONFIRMED);
        story.run(3 * SECOND);
        story.expect(&[]);
        let node = story.get(&format!("{NODES}/n1")).expect("the node exists");
        assert!(node["metadata"]["annotations"][CONFIRMED].is_null(), "{node}");
    }
}

#[test]
fn without_a_word_a_negative_delay_never_ends() {
    let mut story = Story::with(6, &json!({"healthyDelay": "-1s"}));
    story.breaks("n1");
    story.run(7 * SECOND);
    story.recovers("n1");
    story.run(5 * HOUR);
    story.expect(&["reboot n1"]);
}

#[test]
fn cleaning_up_goes_on_while_the_check_is_paused() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(7 * SECOND);
    story.change_check(WORKERS, &json!({"pauseRequests": ["we upgrade"]}));
    story.run(2 * SECOND);
    assert_eq!(story.status(WORKERS)["phase"], "Paused");
    story.recovers("n1");
    story.run(2 * SECOND);
    story.expect(&[]);
    let status = story.status(WORKERS);
    assert_eq!((&status["observedNodes"], &status["healthyNodes"]), (&json!(6), &json!(6)), "it goes on counting: {status}");
}

/// What the reference kept for ever, and then refused every change of the check.
#[test]
fn a_node_that_vanishes_without_a_remediation_leaves_no_trace() {
    let mut story = Story::with(6, &json!({}));
    ["n0", "n1", "n2", "n3"].iter().for_each(|node| story.breaks(node));
    story.run(8 * SECOND);
    story.expect(&[]);
    assert!(story.listed(WORKERS, "n1").is_some());
    story.delete(&format!("{NODES}/n1"));
    story.run(2 * SECOND);
    assert_eq!(story.listed(WORKERS, "n1"), None);
    assert_eq!(story.status(WORKERS)["observedNodes"], 5);
}

/// Its provider took the object and the node away: the check must not say for ever that it is remediating.
#[test]
fn a_node_that_vanishes_together_with_its_remediation_leaves_no_trace() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(7 * SECOND);
    assert_eq!(story.status(WORKERS)["phase"], "Remediating");
    story.delete(&path_of("reboot n1"));
    story.delete(&format!("{NODES}/n1"));
    story.run(3 * SECOND);
    assert_eq!(story.listed(WORKERS, "n1"), None);
    assert_eq!(story.status(WORKERS)["phase"], "Enabled");
    assert_eq!(story.lease("n1"), None);
}

#[test]
fn the_remediations_of_a_check_that_is_deleted_go_with_it() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(7 * SECOND);
    story.expect(&["reboot n1"]);
    story.delete(&format!("{CHECKS}/{WORKERS}"));
    story.run(15 * SECOND);
    story.expect(&[]);
}
