//! What our definition of MachineHealthChecks takes, and in which words it refuses the rest.

use resus_core::mhc::facts::Dialect;
use resus_k8s::observe;
use serde_json::{Value, json};

use crate::side::Side;

/// What went wrong, if anything did.
pub async fn mistakes(side: &mut Side) -> Vec<String> {
    let mut wrong = Vec::new();
    for dialect in [Dialect::V1alpha3, Dialect::V1beta1] {
        let path = format!("/apis/{}/namespaces/default/machinehealthchecks", dialect.api_version());
        for fields in good() {
            let object = object(dialect, &fields);
            let answer = side.try_create(&path, &object).await;
            if !answer.is_ok() {
                wrong.push(format!("{fields}\n  should be taken: {}", answer.message()));
            }
            let read = observe::machine_check(object.to_string().as_bytes(), dialect).expect("its metadata is good");
            wrong.extend(read.policy.err().map(|why| format!("{fields}\n  should be understood: {}", why.0)));
        }
        for (fields, says) in bad() {
            let answer = side.try_create(&path, &object(dialect, &fields)).await;
            if answer.code != 422 || !answer.message().contains(says) {
                wrong.push(format!("{fields}\n  should be refused with {says:?}: {} {}", answer.code, answer.message()));
            }
        }
    }
    wrong
}

fn object(dialect: Dialect, fields: &Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"pool": "a"}}});
    for (key, value) in fields.as_object().expect("fields are an object") {
        spec[key] = value.clone();
    }
    // To a server null is no value, and is refused as one of the wrong type.
    spec.as_object_mut().expect("a spec is an object").retain(|_, value| !value.is_null());
    let metadata = json!({"name": "check", "namespace": "default"});
    json!({"apiVersion": dialect.api_version(), "kind": "MachineHealthCheck", "metadata": metadata, "spec": spec})
}

fn template(kind: &str) -> Value {
    json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": kind, "name": "t"})
}

fn on_machine(kind: &str, status: &str) -> Value {
    json!([{"type": kind, "status": status, "timeout": "5m"}])
}

fn good() -> Vec<Value> {
    vec![
        json!({}),
        json!({"clusterName": "c", "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "c"}}}),
        json!({"selector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}),
        json!({"nodeStartupTimeout": "0"}),
        json!({"nodeStartupTimeout": "0s"}),
        json!({"nodeStartupTimeout": "30s"}),
        json!({"nodeStartupTimeout": "1.5h"}),
        json!({"maxUnhealthy": 0}),
        json!({"maxUnhealthy": 3}),
        json!({"maxUnhealthy": "3"}),
        json!({"maxUnhealthy": "100%"}),
        json!({"unhealthyRange": "[0-0]"}),
        json!({"unhealthyRange": "[3-10]", "maxUnhealthy": "40%"}),
        json!({"unhealthyConditions": []}),
        json!({"unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "0"}, {"type": "Ready", "status": "False", "timeout": "300ms"}]}),
        json!({"unhealthyMachineConditions": on_machine("infrastructure.test/Broken", "Unknown")}),
        json!({"remediationTemplate": template("Metal3RemediationTemplate")}),
        json!({"externalRemediationTemplate": template("Metal3RemediationTemplate")}),
    ]
}

fn bad() -> Vec<(Value, &'static str)> {
    let labels = json!({"matchLabels": {"cluster.x-k8s.io/cluster-name": "other"}});
    let mut bad = vec![
        (json!({"selector": null}), "selector must not be empty: write matchLabels"),
        (json!({"selector": {}}), "selector must not be empty: write matchLabels"),
        (json!({"selector": {"matchLabels": {}, "matchExpressions": []}}), "selector must not be empty: write matchLabels"),
        (json!({"selector": {"matchLabels": {"a b": "c"}}}), "Invalid selector: a key is no label key: write"),
        (json!({"clusterName": "c", "selector": labels}), "cannot specify a cluster selector other than"),
        (json!({"clusterName": ""}), "clusterName is no name of a Cluster: write"),
        (json!({"nodeStartupTimeout": "29s"}), "nodeStartupTimeout must be at least 30s, or 0: write"),
        (json!({"nodeStartupTimeout": "-30s"}), "is not a duration: write"),
        (json!({"nodeStartupTimeout": "10"}), "is not a duration: write"),
        (json!({"maxUnhealthy": -1}), "maxUnhealthy must not be negative: -1: write"),
        (json!({"maxUnhealthy": "abc"}), "maxUnhealthy is neither a number nor a percentage of at most 100%: write"),
        (json!({"maxUnhealthy": "101%"}), "maxUnhealthy is neither a number nor a percentage of at most 100%: write"),
        (json!({"unhealthyRange": "[3-1]"}), "unhealthyRange begins above its end"),
        (json!({"unhealthyRange": "[10-9]"}), "unhealthyRange begins above its end"),
        (json!({"unhealthyRange": "1-3"}), "unhealthyRange is no range: write"),
        (json!({"unhealthyRange": ""}), "unhealthyRange is no range: write"),
        (
            json!({"unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "5 minutes"}]}),
            "is not a duration: write",
        ),
        (json!({"unhealthyConditions": [{"type": "Ready", "status": "False"}]}), "timeout: Required value"),
        (
            json!({"unhealthyMachineConditions": on_machine("NodeHealthy", "Maybe")}),
            "status must be True, False or Unknown: write",
        ),
        (json!({"unhealthyMachineConditions": on_machine("a b", "True")}), "is no type of a condition: write"),
        (
            json!({"remediationTemplate": template("Metal3Remediation")}),
            "remediationTemplate.kind must be the kind of a template",
        ),
        (
            json!({"remediationTemplate": template("Metal3MachineTemplate")}),
            "remediationTemplate.kind is one of which machines themselves are made: write",
        ),
        (
            json!({"remediationTemplate": template("KubeadmConfigTemplate")}),
            "is one of which machines themselves are made: write",
        ),
        (
            json!({"externalRemediationTemplate": template("KubeadmControlPlaneTemplate")}),
            "is one of which machines themselves are made: write",
        ),
        (
            json!({"externalRemediationTemplate": {}}),
            "externalRemediationTemplate needs apiVersion, kind and name of a template: write",
        ),
        (
            json!({"remediationTemplate": template("ATemplate"), "externalRemediationTemplate": template("ATemplate")}),
            "are two names of the same: remove one of them",
        ),
    ];
    for kind in resus_k8s::names::NOT_FOR_RULES {
        bad.push((json!({"unhealthyMachineConditions": on_machine(kind, "False")}), "type must not be one of: Ready, Available"));
    }
    bad
}
