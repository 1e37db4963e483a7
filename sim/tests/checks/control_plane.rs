//! The control plane is repaired one node at a time, and never so that etcd loses its majority.

use resus_sim::clock::SECOND;
use resus_sim::machine::SYSTEM_PODS;
use resus_sim::scenario::CONTROL_PLANE;
use serde_json::json;

use crate::story::{Story, WORKERS};

fn etcd(story: &mut Story, node: &str) {
    let body = resus_sim::machine::etcd(node);
    story.create(SYSTEM_PODS, &body);
    story.patch(&format!("{SYSTEM_PODS}/etcd-{node}/status"), &json!({"status": body["status"]}));
}

#[test]
fn the_control_plane_is_repaired_one_node_at_a_time() {
    let mut story = Story::with(6, &json!({}));
    ["n1", "n2", "n3"].iter().for_each(|node| story.label(node, CONTROL_PLANE, ""));
    story.run(5 * SECOND);
    ["n1", "n2", "n4"].iter().for_each(|node| story.breaks(node));
    story.run(8 * SECOND);
    let first = if story.remediations().contains(&"reboot n1".to_owned()) { "n1" } else { "n2" };
    let other = if first == "n1" { "n2" } else { "n1" };
    story.expect(&[&format!("reboot {first}"), "reboot n4"]);
    let labels = |story: &mut Story, remediation: &str| story.remediation(remediation)["metadata"]["labels"].clone();
    assert!(!labels(&mut story, &format!("reboot {first}"))["remediation.medik8s.io/isControlPlaneNode"].is_null());
    assert!(labels(&mut story, "reboot n4")["remediation.medik8s.io/isControlPlaneNode"].is_null());
    assert!(story.held(WORKERS, other).starts_with(&format!("{first} is being remediated")));
    story.recovers(first);
    story.run(3 * SECOND);
    story.expect(&[&format!("reboot {other}"), "reboot n4"]);
}

#[test]
fn another_check_does_not_get_round_it() {
    let mut story = Story::of(6);
    ["n1", "n2"].iter().for_each(|node| story.label(node, CONTROL_PLANE, ""));
    for node in ["n1", "n2"] {
        story.label(node, "only", node);
        story.check(&format!("of-{node}"), &json!({"selector": {"matchLabels": {"only": node}}, "maxUnhealthy": 1}));
    }
    story.run(5 * SECOND);
    ["n1", "n2"].iter().for_each(|node| story.breaks(node));
    story.run(10 * SECOND);
    assert_eq!(story.remediations().len(), 1);
}

#[test]
fn etcd_never_loses_its_majority_by_our_hand() {
    // Members of etcd, how many of them are broken, and whether the first of these may be remediated.
    for (members, broken, may) in [
        (1, 1, false),
        (2, 1, false),
        (3, 1, true),
        (3, 2, false),
        (4, 1, true),
        (4, 2, false),
        (5, 1, true),
        (5, 2, true),
        (5, 3, false),
    ] {
        let mut story = Story::of(6);
        for n in 1..=members {
            story.label(&format!("n{n}"), CONTROL_PLANE, "");
            etcd(&mut story, &format!("n{n}"));
        }
        story.check(WORKERS, &json!({}));
        story.run(5 * SECOND);
        (1..=broken).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(8 * SECOND);
        let expected: &[&str] = if may { &["reboot n1"] } else { &[] };
        assert_eq!(story.remediations(), expected, "{broken} of {members}");
        let held = story.held(WORKERS, "n1");
        assert_eq!(held.starts_with("etcd would lose its majority"), !may, "{broken} of {members}: {held}");
    }
}

#[test]
fn when_another_member_is_back_the_majority_allows_the_repair() {
    let mut story = Story::of(6);
    for node in ["n1", "n2", "n3"] {
        story.label(node, CONTROL_PLANE, "");
        etcd(&mut story, node);
    }
    story.check(WORKERS, &json!({}));
    story.run(5 * SECOND);
    ["n1", "n2"].iter().for_each(|node| story.breaks(node));
    story.run(8 * SECOND);
    story.expect(&[]);
    story.recovers("n2");
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
}
