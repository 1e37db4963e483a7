//! What a check says of itself, exactly as its version has it, and when its dates move.

use resus_core::mhc::facts::{Dialect, Style};
use resus_sim::clock::{MINUTE, Millis, SECOND, rfc3339};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{ALL, BLUE, CLUSTER_API, POOL, Story, WORKERS};

/// Ten seconds after the beginning the check is made, and looked at by the controller within that second.
const MADE_AT: Millis = 10 * SECOND;

fn allowed(style: Style) -> Value {
    let stamp = rfc3339(MADE_AT);
    match style {
        Style::New => json!({
            "type": "RemediationAllowed", "status": "True", "reason": "RemediationAllowed", "message": "",
            "lastTransitionTime": stamp, "observedGeneration": 1,
        }),
        Style::Legacy => json!({"type": "RemediationAllowed", "status": "True", "lastTransitionTime": stamp}),
    }
}

fn not_paused() -> Value {
    json!({
        "type": "Paused", "status": "False", "reason": "NotPaused", "message": "", "lastTransitionTime": rfc3339(MADE_AT),
        "observedGeneration": 1,
    })
}

#[test]
fn the_status_of_a_quiet_check_is_exactly_this() {
    let counters = |mut status: Value| {
        (status["expectedMachines"], status["currentHealthy"]) = (json!(2), json!(2));
        status["remediationsAllowed"] = json!(2);
        status
    };
    let of_cluster_api = |mut status: Value| {
        (status["observedGeneration"], status["targets"]) = (json!(1), json!(["m0", "m1"]));
        counters(status)
    };
    let (new, legacy) = (json!([not_paused(), allowed(Style::New)]), json!([allowed(Style::Legacy)]));
    for (dialect, expected) in [
        (Dialect::V1alpha3, of_cluster_api(json!({"conditions": legacy}))),
        (Dialect::V1beta1, of_cluster_api(json!({"conditions": legacy, "v1beta2": {"conditions": new}}))),
        (Dialect::V1beta2, of_cluster_api(json!({"conditions": new, "deprecated": {"v1beta1": {"conditions": legacy}}}))),
        (Dialect::OpenShift, counters(json!({"conditions": legacy}))),
    ] {
        let mut story = Story::with(dialect, 2, &Check::default());
        assert_eq!(story.status(WORKERS), expected, "{dialect:?}");
        story.expect_quiet();
    }
}

#[test]
fn a_restriction_has_its_reason_its_numbers_and_its_dates() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 3, &Check::at_most(1));
        let broken_at = story.now();
        story.breaks("n0");
        story.breaks("n1");
        story.run(10 * SECOND);
        let check = story.check_object(WORKERS);
        for style in dialect.styles() {
            let list = resus_sim::owner::conditions(&check, dialect, *style);
            let found = list.iter().find(|own| own["type"] == "RemediationAllowed").expect("it is there");
            assert_eq!((&found["status"], &found["reason"]), (&json!("False"), &json!("TooManyUnhealthy")), "{dialect:?}");
            assert_eq!(found["lastTransitionTime"], rfc3339(broken_at), "{dialect:?}");
            let is_severe = found["severity"] == "Warning";
            assert_eq!(is_severe, *style == Style::Legacy, "{dialect:?}");
            let message = found["message"].as_str().unwrap_or_default();
            assert!(message.contains('2') && message.contains('1') && message.contains('3'), "{dialect:?}: {message}");
        }
        assert_eq!(story.events("RemediationRestricted"), [""; 0], "{dialect:?}: it holds up nobody yet");
        story.run(300 * SECOND);
        assert_eq!(story.events("RemediationRestricted").len(), 1, "{dialect:?}: now it does");

        // The date of the new style moves with the status alone, that of the other with whatever is said.
        let check = story.check_object(WORKERS);
        for style in dialect.styles() {
            let list = resus_sim::owner::conditions(&check, dialect, *style);
            let found = list.iter().find(|own| own["type"] == "RemediationAllowed").expect("it is there");
            let has_moved = found["lastTransitionTime"] != rfc3339(broken_at);
            assert_eq!(has_moved, *style == Style::Legacy, "{dialect:?}, {style:?}");
        }
    }
}

#[test]
fn a_verdict_on_a_machine_has_the_dates_of_its_style() {
    for dialect in [Dialect::V1beta1, Dialect::V1beta2] {
        let check = Check { on_machines: &[("Disk", "False", 60)], ..Check::default() };
        let mut story = Story::with(dialect, 2, &check);
        story.breaks("n1");
        let at = story.now() + 300 * SECOND;
        story.run(250 * SECOND);
        story.post_on_machine("m1", "Disk", "False", "Broken");
        story.run(55 * SECOND);
        let stamp = |story: &mut Story, style| {
            story.posted("m1", style, "HealthCheckSucceeded").expect("it is there")["lastTransitionTime"].clone()
        };
        assert_eq!([stamp(&mut story, Style::New), stamp(&mut story, Style::Legacy)], [rfc3339(at), rfc3339(at)], "{dialect:?}");
        story.run(15 * SECOND);
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False UnhealthyMachine"; 2], "{dialect:?}");
        assert_eq!(stamp(&mut story, Style::New), rfc3339(at), "{dialect:?}: it has been False all the time");
        assert_ne!(stamp(&mut story, Style::Legacy), rfc3339(at), "{dialect:?}: it says something else");
        let generation = story.machine("m1")["metadata"]["generation"].clone();
        let new = story.posted("m1", Style::New, "HealthCheckSucceeded").expect("it is there");
        assert_eq!(new["observedGeneration"], generation, "{dialect:?}");
    }
}

#[test]
fn observed_is_the_generation_that_was_looked_at() {
    for dialect in CLUSTER_API {
        let mut story = Story::with(dialect, 2, &Check::default());
        assert_eq!(story.status(WORKERS)["observedGeneration"], 1);
        story.change_check(WORKERS, &json!({"spec": {"note": "another"}}));
        story.run(2 * SECOND);
        assert_eq!(story.status(WORKERS)["observedGeneration"], 2, "{dialect:?}");
    }
}

#[test]
fn conditions_of_machines_stand_in_the_order_that_cluster_api_gives_them() {
    let mut story = Story::of(Dialect::V1beta2, 2);
    for kind in ["Available", "Ready", "BootstrapConfigReady", "NodeReady", "Deleting", "Paused"] {
        story.post_on_machine("m1", kind, "True", "Story");
    }
    story.add_check(WORKERS, &Check::default());
    story.breaks("n1");
    story.run(310 * SECOND);
    let machine = story.machine("m1");
    let kinds: Vec<&str> = resus_sim::owner::conditions(&machine, Dialect::V1beta2, Style::New)
        .iter()
        .filter_map(|own| own["type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "Available",
            "Ready",
            "BootstrapConfigReady",
            "HealthCheckSucceeded",
            "NodeReady",
            "OwnerRemediated",
            "Deleting",
            "Paused"
        ]
    );
}

#[test]
fn a_status_that_somebody_mangled_is_written_anew() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    let before = story.status(WORKERS);
    let path = format!("{}/status", story.check_path(WORKERS));
    story.patch(&path, &json!({"status": {"expectedMachines": "many", "currentHealthy": -4, "targets": null}}));
    // What does not stay as it was written is written again, and not in a hurry.
    story.run(61 * SECOND);
    for field in ["expectedMachines", "currentHealthy", "targets", "remediationsAllowed"] {
        assert_eq!(story.status(WORKERS)[field], before[field], "{field}");
    }
    story.run(MINUTE);
    story.expect_quiet();
}

/// Cluster API before 1.9 has no such style: what is written there is dropped.
#[test]
fn a_definition_that_is_older_than_the_new_style_is_not_written_to_again_and_again() {
    let mut story = Story::of(Dialect::V1beta1, 0);
    for kind in ["machines", "machinehealthchecks"] {
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
        let any = json!({"x-kubernetes-preserve-unknown-fields": true});
        let status = json!({"type": "object", "properties": {
            "conditions": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "nodeRef": any, "phase": any, "targets": any, "expectedMachines": any, "currentHealthy": any,
            "remediationsAllowed": any, "observedGeneration": any,
        }});
        let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.cluster.x-k8s.io");
        story.patch_json(&definition, &json!([{"op": "replace", "path": path, "value": status}]));
        // The object itself must not keep what its status does not have.
        let open = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-preserve-unknown-fields";
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        story.patch_json(
            &definition,
            &json!([{"op": "remove", "path": open}, {"op": "add", "path": spec, "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]),
        );
    }
    for n in 0..3 {
        story.add_node(BLUE, &format!("n{n}"));
        story.add_machine(BLUE, &format!("m{n}"), Some(&format!("n{n}")));
    }
    story.add_check(WORKERS, &Check::default());
    story.run(MINUTE);
    assert_eq!(story.status(WORKERS)["v1beta2"], Value::Null);
    assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["True"]);
    story.expect_quiet();
    story.breaks("n1");
    story.run(301 * SECOND);
    assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False UnhealthyNode"]);
    assert_eq!(story.sign("m1", "OwnerRemediated"), ["False WaitingForRemediation"]);
    story.run(MINUTE);
    story.expect_quiet();
}

#[test]
fn kinds_that_arrive_are_picked_up_within_seconds() {
    for (first, then) in [(Dialect::OpenShift, Dialect::V1beta2), (Dialect::V1beta2, Dialect::OpenShift)] {
        let mut story = Story::with(first, 3, &Check::default());
        story.dialect = then;
        story.define(then);
        story.add_set(POOL, 0);
        if then == Dialect::V1beta2 {
            story.add_cluster(BLUE);
        }
        for n in 7..9 {
            story.add_node(BLUE, &format!("n{n}"));
            story.add_machine(BLUE, &format!("m{n}"), Some(&format!("n{n}")));
        }
        story.add_check(WORKERS, &Check::default());
        story.run(10 * SECOND);
        assert_eq!(story.counters(WORKERS), [2, 2, 2], "{then:?}");
        story.dialect = first;
        assert_eq!(story.counters(WORKERS), [3, 3, 3], "{first:?}: the other does not mind");
    }
}
