//! What a NodeHealthCheck asks for, as it is read.

use std::time::Duration;

use resus_core::facts::{Check, HealthyDelay, Mode, Policy, Repeat};
use resus_k8s::observe;
use serde_json::{Value, json};

fn check(metadata: &Value, spec: &Value) -> Check {
    let mut object = json!({"metadata": {"name": "c", "uid": "u"}, "spec": spec});
    for (key, value) in metadata.as_object().expect("metadata is an object") {
        object["metadata"][key] = value.clone();
    }
    observe::check(object.to_string().as_bytes()).expect("metadata can be read")
}

fn with(fields: &Value) -> Value {
    let mut spec = json!({"remediationTemplate": {"apiVersion": "p.test/v1", "kind": "RebootTemplate", "name": "t"}});
    for (key, value) in fields.as_object().expect("fields are an object") {
        spec[key] = value.clone();
    }
    spec
}

fn policy(fields: &Value) -> Policy {
    check(&json!({}), &with(fields)).policy.expect("it is valid")
}

fn annotated(annotations: &Value, fields: &Value) -> Result<Policy, String> {
    check(&json!({"annotations": annotations}), &with(fields)).policy.map_err(|why| why.0.to_string())
}

#[test]
fn what_is_not_asked_for_is_off() {
    let policy = policy(&json!({}));
    assert_eq!(policy.healthy_delay, HealthyDelay::None);
    assert_eq!((policy.storm_cooldown, policy.startup_timeout, policy.repeat), (None, None, None));
    assert_eq!((policy.mode, policy.topology_key, policy.pause_requests.len()), (Mode::Act, None, 0));
    let [only] = policy.steps.as_slice() else { panic!("{:?}", policy.steps) };
    assert_eq!(only.timeout, None, "the only step is never given up");
}

#[test]
fn steps_are_tried_in_their_order() {
    let step = |name: &str, order: i64, timeout: &str| json!({"remediationTemplate": {"apiVersion": "p.test/v1", "kind": "RebootTemplate", "name": name}, "order": order, "timeout": timeout});
    let steps = json!([step("last", 30, "1m"), step("first", -2, "90s"), step("middle", 7, "1.5h")]);
    let policy = policy(&json!({"remediationTemplate": null, "escalatingRemediations": steps}));
    let read: Vec<_> = policy.steps.iter().map(|step| (&*step.template.name, step.timeout)).collect();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(read, [("first", seconds(90)), ("middle", seconds(5400)), ("last", seconds(60))]);
}

#[test]
fn the_sign_of_a_delay_says_who_ends_it() {
    for (text, expected) in [
        ("0s", HealthyDelay::None),
        ("-0s", HealthyDelay::None),
        ("1h30m", HealthyDelay::For(Duration::from_secs(5400))),
        ("1.5s", HealthyDelay::For(Duration::from_millis(1500))),
        ("-1ns", HealthyDelay::UntilConfirmed),
        ("-5m", HealthyDelay::UntilConfirmed),
    ] {
        assert_eq!(policy(&json!({"healthyDelay": text})).healthy_delay, expected, "{text}");
    }
    assert_eq!(policy(&json!({"stormCooldownDuration": "15m"})).storm_cooldown, Some(Duration::from_secs(900)));
}

const REPEAT: Repeat = Repeat {
    max: 3,
    within: Duration::from_secs(3600),
    backoff: Duration::from_secs(300),
    max_backoff: Duration::from_secs(1200),
};

/// A foreign definition drops the fields, not the annotations.
#[test]
fn our_own_fields_are_annotations_too() {
    let fields = json!({
        "mode": "DryRun", "topologyKey": "zone", "nodeStartupTimeout": "10m",
        "repeat": {"max": 3, "within": "1h", "backoff": "5m", "maxBackoff": "20m"},
    });
    let annotations = json!({
        "resus.dev/mode": "DryRun", "resus.dev/topologyKey": "zone", "resus.dev/nodeStartupTimeout": "600s",
        "resus.dev/repeat": r#"{"max": 3, "within": "60m", "backoff": "300s", "maxBackoff": "20m"}"#,
    });
    let none = json!({});
    for (annotations, fields) in [(&none, &fields), (&annotations, &none), (&annotations, &fields)] {
        let policy = annotated(annotations, fields).expect("they say the same, in other words");
        assert_eq!(policy.mode, Mode::DryRun);
        assert_eq!(policy.topology_key.as_deref(), Some("zone"));
        assert_eq!(policy.startup_timeout, Some(Duration::from_secs(600)));
        assert_eq!(policy.repeat, Some(REPEAT));
    }
}

/// A dry run must never act for real.
#[test]
fn an_annotation_that_is_wrong_or_contradicts_stops_the_check() {
    for (annotations, fields, says) in [
        (
            json!({"resus.dev/mode": "Act"}),
            json!({"mode": "DryRun"}),
            "spec.mode and the annotation resus.dev/mode contradict each other",
        ),
        (json!({"resus.dev/mode": "DryRun"}), json!({"mode": "Act"}), "contradict each other: remove one"),
        (json!({"resus.dev/topologyKey": "a"}), json!({"topologyKey": "b"}), "contradict"),
        (json!({"resus.dev/nodeStartupTimeout": "1m"}), json!({"nodeStartupTimeout": "2m"}), "contradict"),
        (
            json!({"resus.dev/repeat": r#"{"max": 1, "within": "1h"}"#}),
            json!({"repeat": {"max": 2, "within": "1h"}}),
            "spec.repeat and the annotation resus.dev/repeat contradict",
        ),
        (json!({"resus.dev/mode": "dryrun"}), json!({}), "annotation resus.dev/mode: unknown variant `dryrun`"),
        (json!({"resus.dev/mode": ""}), json!({}), "write Act or DryRun"),
        (json!({"resus.dev/topologyKey": ""}), json!({}), "annotation resus.dev/topologyKey: \"\" is no label key"),
        (json!({"resus.dev/nodeStartupTimeout": "soon"}), json!({}), "annotation resus.dev/nodeStartupTimeout: \"soon\""),
        (json!({"resus.dev/nodeStartupTimeout": "0s"}), json!({}), "must be longer than 0s"),
        (json!({"resus.dev/repeat": "3"}), json!({}), "annotation resus.dev/repeat: "),
        (json!({"resus.dev/repeat": "{max: 3}"}), json!({}), "as JSON"),
        (json!({"resus.dev/repeat": r#"{"max": 3, "within": "1h", "backof": "5m"}"#}), json!({}), "unknown field `backof`"),
        (json!({"resus.dev/repeat": r#"{"max": 0, "within": "1h"}"#}), json!({}), "annotation resus.dev/repeat.max is 0"),
    ] {
        let why = annotated(&annotations, &fields).expect_err(&annotations.to_string());
        assert!(why.contains(says), "{annotations} {fields}: {why}");
    }
}

#[test]
fn what_a_limit_on_repeats_leaves_out_is_derived() {
    let repeat = |repeat: Value| policy(&json!({"repeat": repeat})).repeat.expect("it is set");
    let plain = repeat(json!({"max": 1, "within": "1h"}));
    assert_eq!((plain.backoff, plain.max_backoff), (Duration::ZERO, Duration::from_secs(3600)));
    let longer = repeat(json!({"max": 1, "within": "1h", "backoff": "2h"}));
    assert_eq!((longer.backoff, longer.max_backoff), (Duration::from_secs(7200), Duration::from_secs(7200)));
}

/// Somebody's check of the same name is theirs.
#[test]
fn the_default_check_is_known_by_name_and_label() {
    let spec = with(&json!({}));
    let ours = json!({"app.kubernetes.io/managed-by": "resus"});
    for (metadata, expected) in [
        (json!({"name": "nhc-worker-default", "labels": ours}), true),
        (json!({"name": "nhc-worker-default", "labels": {"app.kubernetes.io/managed-by": "olm"}}), false),
        (json!({"name": "nhc-worker-default"}), false),
        (json!({"name": "another", "labels": ours}), false),
    ] {
        assert_eq!(check(&metadata, &spec).is_default, expected, "{metadata}");
    }
}

#[test]
fn a_spec_of_any_other_shape_is_a_sentence() {
    for spec in [json!(null), json!("x"), json!(5), json!([]), json!({}), json!({"remediationTemplate": 5})] {
        let why = check(&json!({}), &spec).policy.expect_err("it says nothing").0;
        assert!(why.contains("write"), "{spec}: {why}");
    }
}
