//! A Node vanishes while its remediation exists: its provider may have done that, and may still be at work.

use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::WORKER;
use serde_json::json;

use crate::story::{NODES, Story, WORKERS, path_of, steps};

/// Deletes the node of a remediation of which the provider says this.
fn gone(spec: &serde_json::Value, conditions: &[(&str, &str)]) -> Story {
    let mut story = Story::with(6, spec);
    story.breaks("n1");
    story.run(7 * SECOND);
    story.expect(&["reboot n1"]);
    story.provider_says("reboot n1", conditions);
    story.run(SECOND);
    story.delete(&format!("{NODES}/n1"));
    story.run(3 * SECOND);
    story
}

#[test]
fn what_nobody_works_on_goes_with_its_node() {
    for conditions in [&[][..], &[("Processing", "False"), ("Succeeded", "True")], &[("PermanentNodeDeletionExpected", "False")]]
    {
        let mut story = gone(&json!({}), conditions);
        story.expect(&[]);
        assert_eq!(story.listed(WORKERS, "n1"), None);
    }
}

#[test]
fn what_is_being_processed_stays_until_it_is_done() {
    let mut story = gone(&json!({}), &[("Processing", "True")]);
    story.run(170 * MINUTE);
    story.expect(&["reboot n1"]);
    assert!(story.listed(WORKERS, "n1").is_some());
    story.provider_says("reboot n1", &[("Processing", "False"), ("Succeeded", "True")]);
    story.run(2 * SECOND);
    story.expect(&[]);
    assert_eq!(story.listed(WORKERS, "n1"), None, "nothing is left that could block the check");
}

#[test]
fn a_node_that_is_replaced_keeps_its_remediation_until_that_has_succeeded() {
    let mut story = gone(&json!({}), &[("PermanentNodeDeletionExpected", "True")]);
    story.run(50 * MINUTE);
    story.expect(&["reboot n1"]);
    story.provider_says("reboot n1", &[("PermanentNodeDeletionExpected", "True"), ("Succeeded", "True")]);
    story.run(2 * SECOND);
    story.expect(&[]);
    let mut story = gone(&json!({}), &[("PermanentNodeDeletionExpected", "True"), ("Succeeded", "True")]);
    story.expect(&[]);
}

#[test]
fn what_a_finalizer_holds_stays() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(7 * SECOND);
    story.patch(&path_of("reboot n1"), &json!({"metadata": {"finalizers": ["provider.test/held"]}}));
    story.run(SECOND);
    story.delete(&format!("{NODES}/n1"));
    story.run(50 * MINUTE);
    let kept = story.remediation("reboot n1");
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    story.patch(&path_of("reboot n1"), &json!({"metadata": {"finalizers": null}}));
    story.run(2 * SECOND);
    story.expect(&[]);
}

#[test]
fn in_an_escalation_it_stays_until_the_time_of_its_step_is_over_at_most() {
    for says in [&[("Processing", "True")], &[("PermanentNodeDeletionExpected", "True")]] {
        let mut story = gone(&steps(["reboot", "power"], "5m"), says);
        let began_at = story.created_at("reboot n1");
        story.run_until(began_at + 5 * MINUTE - SECOND);
        story.expect(&["reboot n1"]);
        story.run(2 * SECOND);
        story.expect(&[]);
        story.run(2 * SECOND);
        assert_eq!(story.listed(WORKERS, "n1"), None);
    }
}

#[test]
fn in_an_escalation_a_finalizer_does_not_keep_it_from_being_deleted_after_its_step_either() {
    let mut story = Story::with(6, &steps(["reboot", "power"], "5m"));
    story.breaks("n1");
    story.run(7 * SECOND);
    let began_at = story.created_at("reboot n1");
    story.patch(&path_of("reboot n1"), &json!({"metadata": {"finalizers": ["provider.test/held"]}}));
    story.run(SECOND);
    story.delete(&format!("{NODES}/n1"));
    story.run_until(began_at + 5 * MINUTE - SECOND);
    assert!(story.remediation("reboot n1")["metadata"]["deletionTimestamp"].is_null());
    story.run(2 * SECOND);
    assert!(!story.remediation("reboot n1")["metadata"]["deletionTimestamp"].is_null());
}

/// Some providers delete the Node and have the kubelet register anew: that is their work, not another failure.
#[test]
fn a_node_that_its_provider_makes_anew_is_not_remediated_once_more() {
    for says in [&[][..], &[("Processing", "True")]] {
        let mut story = gone(&json!({}), says);
        story.create(NODES, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {WORKER: ""}}}));
        story.run(50 * MINUTE);
        assert_eq!(story.events("RemediationCreated").len(), 1, "{says:?}");
        story.recovers("n1");
        story.run(3 * SECOND);
        story.expect(&[]);
        assert_eq!(story.events("RemediationCreated").len(), 1, "{says:?}");
        assert_eq!(story.status(WORKERS)["healthyNodes"], 6);
    }
}

#[test]
fn what_is_left_of_a_node_that_is_gone_counts_against_the_budget() {
    let mut story = gone(&json!({"maxUnhealthy": 1}), &[("Processing", "True")]);
    story.breaks("n2");
    story.run(10 * SECOND);
    story.expect(&["reboot n1"]);
    story.provider_says("reboot n1", &[("Processing", "False")]);
    story.run(3 * SECOND);
    story.expect(&["reboot n2"]);
}
