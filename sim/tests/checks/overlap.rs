//! Of two checks that select a node, one acts and the other says so.

use http::Method;
use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::{Flags, template};
use serde_json::json;

use crate::story::{CHECKS, Story};

fn owner(story: &mut Story, remediation: &str) -> String {
    let owner = story.remediation(remediation)["metadata"]["ownerReferences"][0]["name"].clone();
    owner.as_str().expect("it has one").to_owned()
}

#[test]
fn the_older_check_acts_and_the_younger_says_that_it_does_not() {
    let mut story = Story::of(6);
    story.check("zz-first", &json!({}));
    story.run(2 * SECOND);
    story.check("aa-second", &json!({}));
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(8 * SECOND);
    story.expect(&["reboot n1"]);
    assert_eq!(owner(&mut story, "reboot n1"), "zz-first");
    assert!(story.held("aa-second", "n1").contains("the older check zz-first is responsible"));
    assert_eq!(story.held("zz-first", "n1"), "");
    assert_eq!(story.condition("aa-second", "Overlapping"), Some(("True".to_owned(), "Overlapping".to_owned())));
    assert_eq!(story.condition("zz-first", "Overlapping"), None);
    story.breaks("n2");
    story.run(8 * SECOND);
    let told = story.events("Overlapping");
    assert!(told.len() == 1 && told[0].contains("n1: the older check zz-first is responsible"), "once: {told:?}");
    assert_eq!(story.events("RemediationSkipped"), [""; 0], "and by nothing else");
}

#[test]
fn the_older_check_stays_responsible_while_it_is_paused_but_not_when_it_is_gone() {
    let mut story = Story::of(6);
    story.check("first", &json!({"pauseRequests": ["we upgrade"]}));
    story.run(2 * SECOND);
    story.check("second", &json!({}));
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(MINUTE);
    story.expect(&[]);
    story.delete(&format!("{CHECKS}/first"));
    story.run(2 * SECOND);
    story.expect(&["reboot n1"]);
    assert_eq!(owner(&mut story, "reboot n1"), "second");
}

#[test]
fn a_check_that_is_disabled_or_only_looks_is_responsible_for_nothing() {
    for spec in [json!({"mode": "DryRun"}), json!({"remediationTemplate": template("nowhere")})] {
        let mut story = Story::of(6);
        story.check("first", &spec);
        story.run(2 * SECOND);
        story.check("second", &json!({}));
        story.run(5 * SECOND);
        story.breaks("n1");
        story.run(8 * SECOND);
        story.expect(&["reboot n1"]);
        assert_eq!(owner(&mut story, "reboot n1"), "second");
    }
}

#[test]
fn the_default_check_yields_to_one_that_somebody_wrote() {
    let mut story = Story::of(6);
    let metadata = json!({"name": "nhc-worker-default", "labels": {"app.kubernetes.io/managed-by": "resus"}});
    let spec = json!({
        "unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "5s"}], "remediationTemplate": template("reboot"),
    });
    let body = json!({
        "apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": metadata, "spec": spec,
    });
    assert_eq!(story.ask(Method::POST, CHECKS, &body).0, 201);
    story.run(5 * SECOND);
    story.check("of-an-admin", &json!({}));
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(8 * SECOND);
    assert_eq!(owner(&mut story, "reboot n1"), "of-an-admin");
    assert!(story.held("nhc-worker-default", "n1").contains("of-an-admin"));
}

/// Once at each start: who deletes it does not want it.
#[test]
fn a_cluster_without_a_check_is_given_one_at_each_start_if_that_is_wanted() {
    let mut story = Story::flagged(6, Flags { default_check: true, ..Flags::default() });
    let path = format!("{CHECKS}/nhc-worker-default");
    let labels = story.get(&path).expect("it exists")["metadata"]["labels"].clone();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "resus");
    assert_eq!(story.condition("nhc-worker-default", "Disabled").map(|(status, _)| status).as_deref(), Some("False"));
    story.delete(&path);
    story.run(50 * MINUTE);
    assert_eq!(story.get(&path), None);
    story.restart_controller();
    assert!(story.get(&path).is_some());
    story.delete(&path);
    story.check("of-an-admin", &json!({}));
    story.restart_controller();
    assert_eq!(story.get(&path), None);
}

/// A name alone does not make a check the default one.
#[test]
fn a_check_that_somebody_wrote_under_the_name_of_the_default_one_yields_to_nobody() {
    let mut story = Story::of(6);
    story.check("nhc-worker-default", &json!({}));
    story.run(5 * SECOND);
    story.check("younger", &json!({}));
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(8 * SECOND);
    assert_eq!(owner(&mut story, "reboot n1"), "nhc-worker-default");
}
