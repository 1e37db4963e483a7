//! Somebody else's controller takes care of the same checks, for as long as it lives.

use resus_sim::clock::{MINUTE, SECOND, wall};
use serde_json::{Value, json};

use crate::story::{CHECKS, Story, WORKERS};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/operators/leases";
const LEADER: &str = "e1f13584.medik8s.io";

/// With a leader whose Lease has fifteen seconds.
fn rivalled() -> Story {
    let mut story = Story::with(6, &json!({}));
    story.add_namespace("operators");
    let spec = json!({"holderIdentity": "manager-0", "leaseDurationSeconds": 15, "renewTime": stamp(&story)});
    let metadata = json!({"name": LEADER, "namespace": "operators"});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
    story.create(LEASES, &lease);
    alive_for(&mut story, 10);
    story
}

fn stamp(story: &Story) -> Value {
    json!(wall(story.now()).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

fn alive_for(story: &mut Story, seconds: i64) {
    for _ in 0..seconds / 2 {
        let renewed = json!({"spec": {"renewTime": stamp(story)}});
        story.patch(&format!("{LEASES}/{LEADER}"), &renewed);
        story.run(2 * SECOND);
    }
}

#[test]
fn checks_are_left_to_a_controller_that_is_alive_and_taken_up_when_it_is_not() {
    let mut story = rivalled();
    story.breaks("n1");
    alive_for(&mut story, 20 * 60);
    story.expect(&[]);
    assert_eq!(story.condition(WORKERS, "Disabled"), Some(("True".to_owned(), "ForeignController".to_owned())));
    assert_eq!(story.status(WORKERS)["phase"], "Disabled");
    assert_eq!(story.events("Disabled").len(), 1, "it is told once");
    assert_eq!(story.lease("n1"), None, "nor is the node held");
    // From now on nobody renews it: its last fifteen seconds began two seconds ago.
    story.run(12 * SECOND);
    story.expect(&[]);
    story.run(5 * SECOND);
    story.expect(&["reboot n1"]);
    assert_eq!(story.is("Disabled"), Some(false));
}

#[test]
fn a_check_that_says_so_is_ours_however_alive_the_other_is() {
    let mut story = rivalled();
    story.breaks("n1");
    alive_for(&mut story, 60);
    story.expect(&[]);
    story.patch(&format!("{CHECKS}/{WORKERS}"), &json!({"metadata": {"annotations": {"resus.dev/take-over": "true"}}}));
    alive_for(&mut story, 4);
    story.expect(&["reboot n1"]);
    story.recovers("n1");
    alive_for(&mut story, 4);
    story.expect(&[]);
}

#[test]
fn a_lease_that_was_given_up_stops_nothing() {
    let mut story = rivalled();
    story.breaks("n1");
    alive_for(&mut story, MINUTE / SECOND);
    story.expect(&[]);
    story.patch(&format!("{LEASES}/{LEADER}"), &json!({"spec": {"holderIdentity": ""}}));
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
}
