//! Does any object at all make reading fail where it must not?

use resus_core::mhc::facts::Dialect;
use resus_k8s::observe;
use serde_json::{Value, json};

use crate::draw::Draw;

const OBJECTS: usize = 10_000;

fn spec(dialect: Dialect) -> Value {
    let template = json!({"apiVersion": "a.b/v1", "kind": "RebootTemplate", "name": "t", "namespace": "n"});
    let selector =
        json!({"matchLabels": {"pool": "a"}, "matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]});
    match dialect {
        Dialect::V1beta2 => json!({
            "clusterName": "c",
            "selector": selector,
            "checks": {
                "nodeStartupTimeoutSeconds": 600,
                "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 300}],
                "unhealthyMachineConditions": [{"type": "NodeHealthy", "status": "False", "timeoutSeconds": 300}],
            },
            "remediation": {
                "triggerIf": {"unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-3]"},
                "templateRef": template,
            },
        }),
        Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => json!({
            "clusterName": "c",
            "selector": selector,
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "5m"}],
            "unhealthyMachineConditions": [{"type": "NodeHealthy", "status": "False", "timeout": "5m"}],
            "nodeStartupTimeout": "10m",
            "maxUnhealthy": "40%",
            "unhealthyRange": "[1-3]",
            "remediationTemplate": template,
        }),
    }
}

#[test]
fn random_specs_are_read_or_refused_with_a_sentence() {
    let mut draw = Draw(20_261_117);
    let (mut understood, mut refused) = (0, 0);
    for _ in 0..OBJECTS {
        let dialect = draw.pick(&[Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift]);
        let (mut spec, mut status) = (spec(dialect), json!({"expectedMachines": 3, "conditions": []}));
        draw.garble(&mut spec, 25);
        draw.garble(&mut status, 10);
        let object = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": spec, "status": status});
        let check = observe::machine_check(object.to_string().as_bytes(), dialect).expect("its metadata is good");
        match check.policy {
            Ok(_) => understood += 1,
            Err(why) => {
                refused += 1;
                assert!(why.0.starts_with("spec") && !why.0.contains('\n'), "{spec}: {:?}", why.0);
                assert!(why.0.contains(": "), "{spec}: it says what to do: {:?}", why.0);
            }
        }
    }
    // If nearly all were nonsense, nothing would have been shown.
    assert!(understood > OBJECTS / 5 && refused > OBJECTS / 5, "{understood} understood, {refused} refused");
}

#[test]
fn random_machines_clusters_and_secrets_end_no_process() {
    let mut draw = Draw(4);
    let condition =
        |kind: &str| json!({"type": kind, "status": "False", "reason": "R", "lastTransitionTime": "2027-01-15T08:00:00Z"});
    let conditions = json!([condition("Ready"), condition("HealthCheckSucceeded"), condition("OwnerRemediated")]);
    let fields = json!({"f:status": {"f:conditions": {r#"k:{"type":"HealthCheckSucceeded"}"#: {"f:status": {}}}}});
    let whole = json!({
        "metadata": {
            "name": "c-kubeconfig", "namespace": "n", "generation": 3, "annotations": {"cluster.x-k8s.io/paused": ""},
            "ownerReferences": [{"uid": "u", "controller": true}],
            "managedFields": [{"manager": "resus", "apiVersion": "cluster.x-k8s.io/v1beta2", "fieldsV1": fields}],
        },
        "spec": {"paused": false},
        "data": {"value": "YQ=="},
        "status": {
            "nodeRef": {"name": "node-1"}, "phase": "Running", "conditions": conditions, "v1beta2": {"conditions": conditions},
            "deprecated": {"v1beta1": {"conditions": conditions}},
        },
    });
    let mut read = 0;
    for _ in 0..OBJECTS {
        let dialect = draw.pick(&[Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift]);
        let mut object = whole.clone();
        draw.garble(&mut object, 40);
        let json = object.to_string();
        read += usize::from(observe::machine(json.as_bytes(), dialect).is_ok());
        let _ = (observe::cluster(json.as_bytes(), dialect), observe::access(json.as_bytes()));
    }
    assert!(read > OBJECTS / 5, "{read} could be read");
}
