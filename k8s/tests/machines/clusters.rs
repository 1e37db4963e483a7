//! Clusters and their kubeconfigs.

use resus_core::input::Fact;
use resus_core::mhc::facts::{Access, Cluster, ClusterKey, Dialect};
use resus_core::time::Wall;
use resus_k8s::observe;
use serde_json::{Value, json};

const CREATED: Wall = Wall(1_800_000_000_000);
const LATER: &str = "2027-01-15T08:01:40Z";
const AT_LATER: Wall = Wall(1_800_000_100_000);

fn cluster(dialect: Dialect, status: &Value) -> Cluster {
    let metadata = json!({"name": "c", "namespace": "n", "creationTimestamp": "2027-01-15T08:00:00Z"});
    let object = json!({"metadata": metadata, "spec": {}, "status": status});
    observe::cluster(object.to_string().as_bytes(), dialect).expect("it can be read")
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "lastTransitionTime": LATER})
}

#[test]
fn gates_open_when_their_conditions_say_so() {
    let both = |control_plane: &str, infrastructure: &str| {
        json!([condition("InfrastructureReady", infrastructure), condition("ControlPlaneInitialized", control_plane)])
    };
    let open = Some(AT_LATER);
    for (dialect, status, expected) in [
        (Dialect::V1beta2, json!(null), (None, None)),
        (Dialect::V1beta2, json!({"conditions": both("True", "True")}), (open, open)),
        (Dialect::V1beta2, json!({"conditions": both("True", "False")}), (open, None)),
        (Dialect::V1beta2, json!({"conditions": both("Unknown", "True")}), (None, open)),
        (Dialect::V1beta2, json!({"deprecated": {"v1beta1": {"conditions": both("True", "True")}}}), (None, None)),
        (Dialect::V1beta1, json!({"conditions": both("True", "True")}), (open, open)),
        (
            Dialect::V1beta1,
            json!({"conditions": both("True", "True"), "v1beta2": {"conditions": both("False", "True")}}),
            (None, open),
        ),
        (Dialect::V1beta1, json!({"infrastructureReady": true, "controlPlaneReady": true}), (None, None)),
        (
            Dialect::V1alpha3,
            json!({"controlPlaneInitialized": true, "infrastructureReady": true}),
            (Some(CREATED), Some(CREATED)),
        ),
        (
            Dialect::V1alpha3,
            json!({"controlPlaneInitialized": true, "infrastructureReady": true, "conditions": [condition("InfrastructureReady", "True")]}),
            (Some(CREATED), open),
        ),
        (
            Dialect::V1alpha3,
            json!({"controlPlaneInitialized": false, "conditions": [condition("InfrastructureReady", "True")]}),
            (None, None),
        ),
        (Dialect::V1alpha3, json!({"controlPlaneInitialized": "yes"}), (None, None)),
    ] {
        let read = cluster(dialect, &status);
        assert_eq!((read.control_plane_initialized_at, read.infrastructure_ready_at), expected, "{dialect:?} {status}");
    }
    let undated = json!({"conditions": [{"type": "InfrastructureReady", "status": "True"}]});
    assert_eq!(cluster(Dialect::V1beta2, &undated).infrastructure_ready_at, Some(CREATED));
}

#[test]
fn a_cluster_rests_while_its_spec_says_so() {
    for (spec, expected) in [(json!({"paused": true}), true), (json!({"paused": null}), false), (json!(null), false)] {
        let object = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": spec});
        let read = observe::cluster(object.to_string().as_bytes(), Dialect::V1beta1).expect("it can be read");
        assert_eq!(read.paused, expected, "{spec}");
        assert_eq!(read.key, ClusterKey { namespace: "n".into(), name: "c".into() });
    }
}

#[test]
fn a_secret_without_a_kubeconfig_says_what_to_write() {
    // "apiVersion: v1", and two bytes that are no text.
    let (good, no_text) = ("YXBpVmVyc2lvbjogdjE=", "//4=");
    for (data, expected) in [
        (json!({"value": good, "other": "%"}), Ok("apiVersion: v1")),
        (json!({"value": "secret words"}), Err("Secret n/c-kubeconfig does not hold base64: write the kubeconfig")),
        (json!({"value": no_text}), Err("Secret n/c-kubeconfig does not hold text in UTF-8: write")),
        (json!({"kubeconfig": good}), Err("Secret n/c-kubeconfig has no key value: write")),
        (json!({"value": ""}), Err("has no key value")),
        (json!({"value": 7}), Err("has no key value")),
        (json!("secret words"), Err("has no key value")),
        (json!(null), Err("has no key value")),
    ] {
        let object = json!({"metadata": {"name": "c-kubeconfig", "namespace": "n"}, "data": data});
        let Ok(Fact::Access { cluster, access }) = observe::access(object.to_string().as_bytes()) else { panic!("{data}") };
        assert_eq!(cluster, ClusterKey { namespace: "n".into(), name: "c".into() });
        match (access, expected) {
            (Ok(access), Ok(expected)) => assert_eq!(access, Access(expected.into())),
            (Err(why), Err(says)) => assert!(why.0.contains(says) && !why.0.contains("secret words"), "{}", why.0),
            (access, expected) => panic!("{data}: {access:?}, not {expected:?}"),
        }
    }
    let other = json!({"metadata": {"name": "kubeconfig-c", "namespace": "n"}});
    assert!(observe::access(other.to_string().as_bytes()).is_err());
}
