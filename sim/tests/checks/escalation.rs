//! Several templates, one after the other.

use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::template;
use serde_json::json;

use crate::story::{HOUR, Story, WORKERS, path_of, steps};

const TIMED_OUT: &str = "remediation.medik8s.io/nhc-timed-out";

fn escalating() -> Story {
    Story::with(6, &steps(["reboot", "power"], "5m"))
}

#[test]
fn a_step_that_has_had_its_time_is_marked_and_the_next_begins_in_the_same_second() {
    let mut story = escalating();
    story.breaks("n1");
    story.run(7 * SECOND);
    story.expect(&["reboot n1"]);
    let began_at = story.created_at("reboot n1");
    story.run_until(began_at + 5 * MINUTE);
    story.expect(&["reboot n1"]);
    story.run(SECOND);
    story.expect(&["power n1", "reboot n1"]);
    assert_eq!(story.created_at("power n1") - began_at, 5 * MINUTE);
    assert!(story.annotation("reboot n1", TIMED_OUT).is_some() && story.annotation("power n1", TIMED_OUT).is_none());
    story.run(2 * SECOND);
    let listed = story.listed(WORKERS, "n1").expect("it is listed");
    let given_up: Vec<bool> = (0..2).map(|step| !listed["remediations"][step]["timedOut"].is_null()).collect();
    assert_eq!(given_up, [true, false], "{listed}");
    // When the node is healthy everything goes together.
    story.recovers("n1");
    story.run(3 * SECOND);
    story.expect(&[]);
    assert_eq!(story.listed(WORKERS, "n1"), None);
    assert_eq!(story.status(WORKERS)["phase"], "Enabled");
    assert_eq!((story.events("RemediationCreated").len(), story.events("RemediationRemoved").len()), (2, 2));
}

#[test]
fn a_remediation_that_failed_is_not_waited_for() {
    for (succeeded, escalates) in [("False", true), ("Unknown", false), ("True", false)] {
        let mut story = escalating();
        story.breaks("n1");
        story.run(7 * SECOND);
        story.provider_says("reboot n1", &[("Processing", "False"), ("Succeeded", succeeded)]);
        story.run(2 * SECOND);
        let expected: &[&str] = if escalates { &["power n1", "reboot n1"] } else { &["reboot n1"] };
        story.expect(expected);
    }
}

#[test]
fn without_escalation_nothing_is_ever_given_up() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(20 * HOUR);
    story.provider_says("reboot n1", &[("Succeeded", "False")]);
    story.run(MINUTE);
    assert_eq!(story.annotation("reboot n1", TIMED_OUT), None);
    assert_eq!(story.events("RemediationCreated").len(), 1);
}

#[test]
fn when_every_step_was_tried_there_is_one_word_and_then_silence() {
    let mut story = escalating();
    story.breaks("n1");
    story.run(11 * MINUTE);
    story.expect(&["power n1", "reboot n1"]);
    assert!(story.held(WORKERS, "n1").contains("by hand"));
    assert_eq!(story.events("NoTemplateLeft").len(), 1);
    let mut written = story.written_within(HOUR);
    written.retain(|(what, _)| !what.contains("/medik8s-leases/"));
    assert_eq!(written, []);
    assert_eq!(story.events("NoTemplateLeft").len(), 1);
}

/// The Go controller recorded remediations by kind alone, and never got past the second.
#[test]
fn two_steps_of_one_kind_work_with_and_without_several_objects_per_node() {
    for several in [true, false] {
        let mut story = Story::of(6);
        let annotations = if several { json!({"remediation.medik8s.io/multiple-templates-support": ""}) } else { json!({}) };
        for name in ["soft", "hard"] {
            story.add_template("Reboot", name, &json!({"template": {"spec": {"how": name}}}), &annotations);
        }
        story.check(WORKERS, &steps(["soft", "hard"], "5m"));
        story.run(5 * SECOND);
        story.breaks("n1");
        story.run(6 * MINUTE);
        match several {
            true => story.expect(&["reboot n1", "reboot n1"]),
            false => {
                story.expect(&["reboot n1"]);
                assert_eq!(story.remediation("reboot n1")["spec"]["how"], "hard", "the first has made room");
            }
        }
        story.run(6 * MINUTE);
        assert!(story.held(WORKERS, "n1").contains("by hand"));
        let listed = story.listed(WORKERS, "n1").expect("it is listed");
        let remediations = listed["remediations"].as_array().expect("there are some");
        assert_eq!(remediations.iter().filter(|one| !one["timedOut"].is_null()).count(), 2, "{listed}");
        let templates: Vec<_> = remediations.iter().map(|one| one["templateName"].clone()).collect();
        assert_eq!(templates, ["soft", "hard"]);
        assert_eq!(story.events("RemediationCreated").len(), 2);
        story.recovers("n1");
        story.run(5 * SECOND);
        story.expect(&[]);
        story.breaks("n1");
        story.run(8 * SECOND);
        assert_eq!(story.events("RemediationCreated").len(), 3, "another failure begins with the first step");
    }
}

#[test]
fn a_pending_node_is_not_escalated() {
    let mut story = escalating();
    story.breaks("n1");
    story.run(7 * SECOND);
    let rules = json!([{"type": "Ready", "status": "False", "duration": "1h"}]);
    story.change_check(WORKERS, &json!({"unhealthyConditions": rules}));
    story.run(30 * MINUTE);
    story.expect(&["reboot n1"]);
    assert_eq!(story.annotation("reboot n1", TIMED_OUT), None);
}

/// Only starting stops. What was started is marked, cleaned up, and goes on where the node has its place in the budget.
#[test]
fn a_full_threshold_does_not_stop_the_next_step_but_a_pause_does_and_neither_stops_cleaning_up() {
    for paused in [false, true] {
        let mut story = escalating();
        ["n1", "n2", "n3"].iter().for_each(|node| story.breaks(node));
        story.run(8 * SECOND);
        story.expect(&["reboot n1", "reboot n2", "reboot n3"]);
        story.breaks("n4");
        if paused {
            story.change_check(WORKERS, &json!({"pauseRequests": ["we upgrade"]}));
        }
        story.run(6 * MINUTE);
        assert!(story.annotation("reboot n1", TIMED_OUT).is_some());
        let all = story.remediations();
        assert_eq!(all.iter().filter(|one| one.starts_with("power")).count(), if paused { 0 } else { 3 }, "{all:?}");
        assert!(!all.contains(&"reboot n4".to_owned()), "it has no place in the budget");
        let reason = if paused { "Paused" } else { "TooManyUnhealthy" };
        assert_eq!(story.condition(WORKERS, "RemediationAllowed"), Some(("False".to_owned(), reason.to_owned())));
        story.recovers("n1");
        story.run(3 * SECOND);
        assert!(!story.remediations().iter().any(|one| one.ends_with("n1")), "clean-up goes on");
    }
}

/// A provider, or a person, removes the object: it is made again, and its time begins anew.
#[test]
fn a_remediation_that_was_made_again_has_its_own_time() {
    let mut story = escalating();
    story.breaks("n1");
    story.run(4 * MINUTE);
    story.delete(&path_of("reboot n1"));
    story.run(3 * MINUTE);
    story.expect(&["reboot n1"]);
    assert_eq!(story.annotation("reboot n1", TIMED_OUT), None);
    assert_eq!(story.events("RemediationCreated").len(), 2);
}

#[test]
fn steps_are_tried_in_the_order_of_their_numbers_wherever_they_stand() {
    let step = |order: i64, name: &str| json!({"remediationTemplate": template(name), "order": order, "timeout": "1m"});
    let mut story = Story::with(6, &json!({"escalatingRemediations": [step(7, "power"), step(-2, "reboot")]}));
    story.breaks("n1");
    story.run(8 * SECOND);
    story.expect(&["reboot n1"]);
    story.recovers("n1");
    story.run(5 * SECOND);
    assert_eq!(story.written_within(10 * MINUTE), [], "nor is the status written because of it");
}

#[test]
fn a_restart_of_the_controller_changes_nothing_about_an_escalation() {
    let mut story = escalating();
    story.breaks("n1");
    story.run(7 * SECOND);
    let began_at = story.created_at("reboot n1");
    story.run(2 * MINUTE);
    story.restart_controller();
    story.run_until(began_at + 5 * MINUTE + SECOND);
    assert_eq!(story.created_at("power n1") - began_at, 5 * MINUTE);
    story.restart_controller();
    story.expect(&["power n1", "reboot n1"]);
    assert_eq!(story.events("RemediationCreated").len(), 2);
}
