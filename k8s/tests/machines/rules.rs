//! What our definition of MachineHealthChecks keeps. What it refuses is asked of both servers in `tests/admission`.

use http::Method;
use resus_core::mhc::facts::Dialect;
use serde_json::{Value, json};

use crate::specs::with;
use crate::stage::Stage;

fn template(kind: &str) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "name": "t"})
}

fn object(dialect: Dialect, name: &str, fields: &Value) -> Value {
    let mut spec = with(fields);
    // To a server null is no value, and is refused as one of the wrong type.
    spec.as_object_mut().expect("a spec is an object").retain(|_, value| !value.is_null());
    json!({"apiVersion": dialect.api_version(), "kind": "MachineHealthCheck", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn a_check_stays_with_its_cluster() {
    let mut stage = Stage::ours(Dialect::V1beta1);
    for (name, before, after, allowed) in [
        ("a", json!({"clusterName": "one"}), json!({"clusterName": "two"}), false),
        ("b", json!({"clusterName": "one"}), json!({}), false),
        ("c", json!({}), json!({"clusterName": "one"}), false),
        ("d", json!({"clusterName": "one"}), json!({"clusterName": "one", "maxUnhealthy": 1}), true),
    ] {
        assert_eq!(stage.create(&object(Dialect::V1beta1, name, &before)).0, 201);
        let path = format!("/apis/cluster.x-k8s.io/v1beta1/namespaces/default/machinehealthchecks/{name}");
        let mut changed = stage.ask(&Method::GET, &path, &Value::Null);
        changed["spec"] = with(&after);
        let (code, said) = stage.try_to(&Method::PUT, &path, &changed);
        match allowed {
            true => assert_eq!(code, 200, "{said}"),
            false => assert!(code == 422 && said.contains("field is immutable: clusterName stays as it is"), "{code} {said}"),
        }
    }
}

/// Nothing converts one version into the other, so that nothing may be lost between them.
#[test]
fn both_versions_show_the_same() {
    let mut stage = Stage::ours(Dialect::V1alpha3);
    let fields = json!({"unhealthyRange": "[1-3]", "externalRemediationTemplate": template("ATemplate")});
    assert_eq!(stage.create(&object(Dialect::V1alpha3, "c", &fields)).0, 201);
    let mut shown = |version: &str| {
        let path = format!("/apis/cluster.x-k8s.io/{version}/namespaces/default/machinehealthchecks/c");
        stage.ask(&Method::GET, &path, &Value::Null)["spec"].clone()
    };
    assert_eq!(shown("v1beta1"), with(&fields));
    assert_eq!(shown("v1alpha3"), with(&fields));
}
