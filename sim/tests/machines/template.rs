//! An external controller repairs, by objects made from a template.

use resus_core::mhc::facts::{CONTROL_PLANE_MACHINE_LABEL, Dialect, Flavour, Style};
use resus_sim::clock::{MINUTE, SECOND};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{ALL, BLUE, Story, WORKERS, metal3};

const NOTHING: [&str; 0] = [];

fn remediation(story: &mut Story, machine: &str) -> Value {
    story.get(&format!("{}/{machine}", metal3("metal3remediations"))).expect("it exists")
}

#[test]
fn what_is_made_has_the_machines_name_the_templates_body_and_goes_with_its_cause() {
    for dialect in ALL {
        let mut story = Story::templated(dialect, 3, &Check::with_template());
        story.breaks("n1");
        story.run(300 * SECOND);
        assert_eq!(story.remediations(), NOTHING, "{dialect:?}");
        story.run(SECOND);
        assert_eq!(story.remediations(), ["m1"], "{dialect:?}");
        let made = remediation(&mut story, "m1");
        assert_eq!(made["spec"], json!({"strategy": {"type": "Reboot", "retryLimit": 1}}), "{dialect:?}");
        let (group, uid) = (dialect.flavour().group(), story.machine("m1")["metadata"]["uid"].clone());
        assert_eq!(made["metadata"]["annotations"][format!("{group}/cloned-from-name")], "reboot", "{dialect:?}");
        assert_eq!(
            made["metadata"]["annotations"][format!("{group}/cloned-from-groupkind")],
            "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io"
        );
        assert_eq!(
            made["metadata"]["ownerReferences"],
            json!([{"apiVersion": dialect.api_version(), "kind": "Machine", "name": "m1", "uid": uid}]),
            "{dialect:?}"
        );
        let is_labelled = made["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == BLUE;
        assert_eq!(is_labelled, dialect.flavour() == Flavour::ClusterApi, "{dialect:?}");
        // Nobody else is to act on it.
        assert_eq!((story.asked().len(), story.machines().len()), (0, 3), "{dialect:?}");
        assert_eq!(story.events("RemediationCreated").len(), 2, "{dialect:?}: on the machine and on the check");
        story.recovers("n1");
        story.run(2 * SECOND);
        assert_eq!(story.remediations(), NOTHING, "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [3, 3, 3], "{dialect:?}");
        story.expect_quiet();
    }
}

#[test]
fn the_machine_says_that_it_is_remediated_in_the_new_style_for_as_long_as_it_is() {
    for dialect in [Dialect::V1beta1, Dialect::V1beta2] {
        let mut story = Story::templated(dialect, 3, &Check::with_template());
        story.breaks("n1");
        story.run(302 * SECOND);
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False UnhealthyNode"; 2], "{dialect:?}");
        assert_eq!(story.sign("m1", "ExternallyRemediated"), ["False WaitingForRemediation"], "{dialect:?}");
        assert_eq!(story.posted("m1", Style::Legacy, "ExternallyRemediated"), None);
        assert_eq!(story.sign("m1", "OwnerRemediated"), NOTHING);
        story.recovers("n1");
        story.run(3 * SECOND);
        assert_eq!(story.sign("m1", "ExternallyRemediated"), NOTHING, "{dialect:?}");
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["True HealthCheckSucceeded", "True"], "{dialect:?}");
    }
}

/// To fall back to its owner, or to a deletion, would cost the machine.
#[test]
fn a_template_that_is_not_there_is_told_and_nothing_else_is_tried() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 3, &Check::with_template());
        story.breaks("n1");
        story.run(10 * MINUTE);
        assert_eq!((story.asked().len(), story.machines().len()), (0, 3), "{dialect:?}");
        assert_eq!(
            story.condition(WORKERS, "ExternalRemediationTemplateAvailable").as_deref(),
            Some("False ExternalRemediationTemplateNotFound"),
            "{dialect:?}"
        );
        story.add_template();
        story.run(2 * SECOND);
        assert_eq!(story.remediations(), ["m1"], "{dialect:?}: it is used as soon as it is there");
        assert_eq!(story.condition(WORKERS, "ExternalRemediationTemplateAvailable"), None, "{dialect:?}");
    }
}

#[test]
fn a_name_that_somebody_else_has_taken_is_left_alone_and_stops_no_other() {
    let mut story = Story::templated(Dialect::V1beta2, 3, &Check::with_template());
    let (api_version, path) = ("infrastructure.cluster.x-k8s.io/v1beta1", metal3("metal3remediations"));
    let theirs = json!({"apiVersion": api_version, "kind": "Metal3Remediation", "metadata": {"name": "m1"}, "spec": {}});
    story.create(&path, &theirs);
    story.breaks("n1");
    story.breaks("n2");
    story.run(302 * SECOND);
    assert_eq!(story.remediations(), ["m1", "m2"]);
    assert!(story.message(WORKERS, "RemediationHeld").contains("m1: "), "{}", story.status(WORKERS));
    story.recovers("n1");
    story.run(5 * SECOND);
    assert_eq!(remediation(&mut story, "m1")["spec"], json!({}), "it is theirs");
}

#[test]
fn what_the_remediator_holds_by_a_finalizer_stays_until_it_lets_go() {
    let mut story = Story::templated(Dialect::V1beta2, 3, &Check::with_template());
    story.breaks("n1");
    story.run(302 * SECOND);
    let path = format!("{}/m1", metal3("metal3remediations"));
    story.patch(&path, &json!({"metadata": {"finalizers": ["metal3remediation.infrastructure.cluster.x-k8s.io"]}}));
    let uid = remediation(&mut story, "m1")["metadata"]["uid"].clone();
    story.recovers("n1");
    story.run(5 * SECOND);
    assert!(!remediation(&mut story, "m1")["metadata"]["deletionTimestamp"].is_null());
    story.breaks("n1");
    story.run(10 * MINUTE);
    assert_eq!(remediation(&mut story, "m1")["metadata"]["uid"], uid, "a relapse waits for it");
    story.patch(&path, &json!({"metadata": {"finalizers": null}}));
    story.run(2 * SECOND);
    assert_ne!(remediation(&mut story, "m1")["metadata"]["uid"], uid);
}

#[test]
fn a_remediation_goes_with_its_machine() {
    let mut story = Story::templated(Dialect::V1beta2, 3, &Check::with_template());
    story.breaks("n1");
    story.run(302 * SECOND);
    story.delete(&story.machine_path("m1"));
    story.run(15 * SECOND);
    assert_eq!(story.remediations(), NOTHING);
    assert_eq!(story.counters(WORKERS), [2, 2, 2]);
}

/// Whoever removes an object that we made gets another, ever more slowly.
#[test]
fn somebody_who_removes_remediations_again_and_again_does_not_make_us_hot() {
    let mut story = Story::templated(Dialect::V1beta2, 3, &Check::with_template());
    story.breaks("n1");
    story.run(302 * SECOND);
    let before = story.simulation.asked().clone();
    for _ in 0..600 {
        if story.remediations() == ["m1"] {
            story.delete(&format!("{}/m1", metal3("metal3remediations")));
        }
        story.run(SECOND);
    }
    let what = format!("POST {}", metal3("metal3remediations"));
    let made = story.simulation.asked()[&what] - before[&what];
    assert!((2..=30).contains(&made), "{made} in ten minutes");
}

#[test]
fn the_control_plane_is_repaired_one_at_a_time_and_never_beyond_the_majority_of_its_own_etcd() {
    let mut story = Story::of(Dialect::V1beta2, 5);
    story.add_template();
    for n in 0..3 {
        story.label(&format!("m{n}"), CONTROL_PLANE_MACHINE_LABEL, "");
        story.add_etcd(BLUE, &format!("n{n}"));
    }
    story.add_check(WORKERS, &Check::with_template());
    story.run(10 * SECOND);
    story.breaks("n0");
    story.breaks("n3");
    story.run(302 * SECOND);
    assert_eq!(story.remediations(), ["m0", "m3"]);
    story.breaks("n1");
    story.run(10 * MINUTE);
    assert_eq!(story.remediations(), ["m0", "m3"]);
    assert!(story.message(WORKERS, "RemediationHeld").contains("m1: "), "{}", story.status(WORKERS));
    story.recovers("n0");
    story.run(3 * SECOND);
    assert_eq!(story.remediations(), ["m1", "m3"]);
}

/// Nobody else would remove it, and its provider would go on with a machine that is well. Where conditions have the new style,
/// the machine says what is to be looked for.
#[test]
fn a_remediation_goes_with_its_check_even_if_nobody_was_there_to_see_it_go() {
    for (dialect, is_down) in [Dialect::V1beta1, Dialect::V1beta2].into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let mut story = Story::templated(dialect, 3, &Check::with_template());
        story.breaks("n1");
        story.run(302 * SECOND);
        assert_eq!(story.remediations(), ["m1"], "{dialect:?}");
        let check = story.check_path(WORKERS);
        if is_down {
            story.without_controller(|story| story.delete(&check));
        } else {
            story.delete(&check);
        }
        story.run(10 * SECOND);
        assert_eq!(story.remediations(), NOTHING, "{dialect:?}, {is_down}");
        assert_eq!(story.sign("m1", "ExternallyRemediated"), NOTHING, "{dialect:?}, {is_down}");
    }
}
