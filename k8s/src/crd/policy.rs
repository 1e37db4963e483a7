//! Which requests are refused that no rule of a definition sees?

use serde_json::{Value, json};

use crate::names::{CHECK_PLURAL, CONFIRMED_HEALTHY, MANAGED_BY_LABEL, MANAGER};

const NAME: &str = "nodehealthcheck-deletion.resus.dev";

/// Nobody would clean up after the remediations of a check that is gone. Without an old object there is nothing to
/// lose, and the definition's own end is not asked for here.
const IDLE: &str = "oldObject == null || !has(oldObject.status) || !has(oldObject.status.unhealthyNodes) || !oldObject.status.unhealthyNodes.exists(node, has(node.remediations) && node.remediations.size() > 0)";

const WHY: &str = "deletion prohibited due to running remediation: wait until no node in status.unhealthyNodes has remediations, or write pauseRequests and delete them first; where resus was uninstalled nobody writes that status any more: kubectl delete validatingadmissionpolicybinding nodehealthcheck-deletion.resus.dev";

/// The policy and its binding.
pub fn deletion() -> [Value; 2] {
    let rule = json!({
        "apiGroups": ["remediation.medik8s.io"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": [CHECK_PLURAL],
    });
    policy(NAME, &rule, &json!([]), &[(IDLE.to_owned(), WHY)])
}

const NODES: &str = "node-writes.resus.dev";

/// Holds what an account writes on Nodes to the one thing that we write there, whatever its roles allow: a right to patch Nodes
/// for the sake of one annotation is one to taint, cordon and relabel them all.
pub fn node_writes(namespace: &str, account: &str) -> [Value; 2] {
    let rule = json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["nodes", "nodes/*"]});
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let ours = json!([{"name": "resus", "expression": format!("request.userInfo.username == '{user}'")}]);
    let annotations = both(&[
        &format!("!has({NEW}) || {NEW}.all(key, has({OLD}) && key in {OLD} && {OLD}[key] == {NEW}[key])"),
        &format!("!has({OLD}) || {OLD}.all(key, key == '{CONFIRMED_HEALTHY}' || (has({NEW}) && key in {NEW}))"),
    ]);
    let validations = [
        (
            "request.operation == 'UPDATE' && (!has(request.subResource) || request.subResource == '')".to_owned(),
            "resus changes Nodes themselves, and nothing but an annotation: it makes and deletes none, and leaves their status alone",
        ),
        (
            both(&[&same("spec")]),
            "resus changes nothing in the spec of Nodes: neither taints nor whether they may be scheduled to",
        ),
        (both(&[&same("metadata.labels")]), "resus changes no labels of Nodes"),
        (annotations, "resus only takes the annotation remediation.medik8s.io/manually-confirmed-healthy away from Nodes"),
        (
            both(&[&same("metadata.finalizers"), &same("metadata.ownerReferences")]),
            "resus changes neither finalizers nor owners of Nodes",
        ),
    ];
    policy(NODES, &rule, &ours, &validations)
}

const NEW: &str = "object.metadata.annotations";
const OLD: &str = "oldObject.metadata.annotations";

/// Where there are not two objects to compare, another rule refuses.
fn both(conditions: &[&str]) -> String {
    let all: Vec<String> = conditions.iter().map(|condition| format!("({condition})")).collect();
    format!("object == null || oldObject == null || ({})", all.join(" && "))
}

fn same(path: &str) -> String {
    format!("has(object.{path}) == has(oldObject.{path}) && (!has(object.{path}) || object.{path} == oldObject.{path})")
}

fn policy(name: &str, rule: &Value, conditions: &Value, validations: &[(String, &str)]) -> [Value; 2] {
    let metadata = json!({"name": name, "labels": {MANAGED_BY_LABEL: MANAGER}});
    let validation =
        |(expression, message): &(String, &str)| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    let validations: Vec<Value> = validations.iter().map(validation).collect();
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": validations,
    });
    if conditions.as_array().is_some_and(|all| !all.is_empty()) {
        spec["matchConditions"] = conditions.clone();
    }
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": spec,
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [policy, binding]
}
