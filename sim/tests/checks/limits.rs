//! How often, after how long, or only in theory.

use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::{EXCLUDED, WORKER};
use serde_json::json;

use crate::story::{HOUR, NODES, Story, WORKERS};

#[test]
fn a_node_that_fails_again_and_again_is_remediated_ever_more_slowly_and_not_for_ever() {
    for restarts in [false, true] {
        let repeat = json!({"max": 3, "within": "2h", "backoff": "5m", "maxBackoff": "8m"});
        let mut story = Story::with(6, &json!({"repeat": repeat}));
        let mut began = Vec::new();
        let fail = |story: &mut Story| {
            story.breaks("n1");
            story.run(8 * SECOND);
        };
        let recover = |story: &mut Story, began: &mut Vec<i64>| {
            began.push(story.created_at("reboot n1"));
            story.recovers("n1");
            story.run(3 * SECOND);
            if restarts {
                story.restart_controller();
            }
        };
        fail(&mut story);
        recover(&mut story, &mut began);
        fail(&mut story);
        story.expect(&[]);
        assert!(story.held(WORKERS, "n1").contains("remediated 1 times lately"), "{}", story.held(WORKERS, "n1"));
        story.run_until(began[0] + 5 * MINUTE + SECOND);
        story.expect(&["reboot n1"]);
        recover(&mut story, &mut began);
        fail(&mut story);
        story.expect(&[]);
        story.run_until(began[1] + 8 * MINUTE + SECOND);
        story.expect(&["reboot n1"]);
        recover(&mut story, &mut began);
        assert_eq!([began[1] - began[0], began[2] - began[1]], [5 * MINUTE, 8 * MINUTE], "not ten but eight minutes");
        fail(&mut story);
        story.run(HOUR);
        story.expect(&[]);
        assert!(story.held(WORKERS, "n1").contains("3 times within 7200s"), "{}", story.held(WORKERS, "n1"));
        story.run_until(began[0] + 2 * HOUR - SECOND);
        story.expect(&[]);
        story.run(2 * SECOND);
        story.expect(&["reboot n1"]);
        let status = story.status(WORKERS);
        assert_eq!(status["recentRemediations"][0]["name"], "n1", "{status}");
    }
}

#[test]
fn an_escalation_is_one_repair_however_many_steps_it_takes() {
    let mut spec = crate::story::steps(["reboot", "power"], "1m");
    spec["repeat"] = json!({"max": 2, "within": "2h"});
    let mut story = Story::with(6, &spec);
    story.breaks("n1");
    story.run(3 * MINUTE);
    story.expect(&["power n1", "reboot n1"]);
    story.recovers("n1");
    story.run(3 * SECOND);
    story.breaks("n1");
    story.run(8 * SECOND);
    story.expect(&["reboot n1"]);
}

#[test]
fn a_node_that_never_reports_is_unhealthy_after_the_startup_timeout() {
    let mut story = Story::with(6, &json!({}));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mute", "labels": {WORKER: ""}}});
    story.create(NODES, &node);
    let created_at = story.now();
    story.run(HOUR);
    story.expect(&[]);
    assert_eq!(story.status(WORKERS)["healthyNodes"], 6, "but it is not healthy either");
    story.change_check(WORKERS, &json!({"nodeStartupTimeout": "100m"}));
    story.run_until(created_at + 100 * MINUTE - SECOND);
    story.expect(&[]);
    story.run(2 * SECOND);
    story.expect(&["reboot mute"]);
    story.recovers("mute");
    story.run(2 * SECOND);
    story.expect(&[]);
}

#[test]
fn a_dry_run_decides_and_reports_but_changes_nothing() {
    let mut story = Story::with(6, &json!({"mode": "DryRun"}));
    story.breaks("n1");
    let written = story.written_within(10 * MINUTE);
    let is_word =
        |what: &str| what == "POST /api/v1/namespaces/default/events" || what.ends_with("/nodehealthchecks/workers/status");
    assert!(!written.is_empty() && written.iter().all(|(what, _)| is_word(what)), "{written:?}");
    story.expect(&[]);
    assert!(story.held(WORKERS, "n1").starts_with("dry run: "), "{}", story.held(WORKERS, "n1"));
    assert_eq!(story.events("DetectedUnhealthy").len(), 1);
    assert_eq!(story.lease("n1"), None);
    story.change_check(WORKERS, &json!({"mode": "Act"}));
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
    // And back again: what is there stays as it is.
    story.change_check(WORKERS, &json!({"mode": "DryRun"}));
    story.run(2 * SECOND);
    story.recovers("n1");
    story.run(MINUTE);
    story.expect(&["reboot n1"]);
}

#[test]
fn a_remediation_that_lasts_for_two_days_is_flagged_once() {
    const FLAG: &str = "nodehealthcheck.medik8s.io/old-remediation-cr-flag";
    let mut story = Story::with(3, &json!({"maxUnhealthy": 1}));
    story.breaks("n1");
    story.run(7 * SECOND);
    let began_at = story.created_at("reboot n1");
    story.run_until(began_at + 48 * HOUR - SECOND);
    assert_eq!(story.annotation("reboot n1", FLAG), None);
    story.run(2 * SECOND);
    assert_eq!(story.annotation("reboot n1", FLAG).as_deref(), Some("flagon"));
    let mut written = story.written_within(5 * HOUR);
    written.retain(|(what, _)| !what.contains("/medik8s-leases/"));
    assert_eq!(written, []);
}

#[test]
fn an_excluded_node_is_left_alone_but_an_empty_label_excludes_nothing_and_is_told() {
    for (value, excluded, told) in [("true", true, 0), ("", false, 1), ("false", false, 0)] {
        let mut story = Story::with(6, &json!({}));
        story.label("n1", EXCLUDED, value);
        story.breaks("n1");
        story.run(10 * SECOND);
        let expected: &[&str] = if excluded { &[] } else { &["reboot n1"] };
        assert_eq!(story.remediations(), expected, "{value:?}");
        assert_eq!(story.held(WORKERS, "n1").contains("exclude-from-remediation"), excluded, "{value:?}");
        story.run(MINUTE);
        assert_eq!(story.events("InvalidNodeLabel").len(), told, "{value:?}");
    }
}

#[test]
fn a_node_that_is_no_longer_excluded_is_remediated_at_once() {
    let mut story = Story::with(6, &json!({}));
    story.label("n1", EXCLUDED, "true");
    story.breaks("n1");
    story.run(10 * MINUTE);
    story.expect(&[]);
    story.patch(&format!("{NODES}/n1"), &json!({"metadata": {"labels": {EXCLUDED: null}}}));
    story.run(SECOND);
    story.expect(&["reboot n1"]);
}
