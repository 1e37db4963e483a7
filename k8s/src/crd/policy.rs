//! Which requests are refused that no rule of a definition sees?

use serde_json::{Value, json};

use crate::names::{CHECK_PLURAL, MANAGED_BY_LABEL, MANAGER};

const NAME: &str = "nodehealthcheck-deletion.resus.dev";

/// Nobody would clean up after the remediations of a check that is gone. Without an old object there is nothing to
/// lose, and the definition's own end is not asked for here.
const IDLE: &str = "oldObject == null || !has(oldObject.status) || !has(oldObject.status.unhealthyNodes) || !oldObject.status.unhealthyNodes.exists(node, has(node.remediations) && node.remediations.size() > 0)";

const WHY: &str = "deletion prohibited due to running remediation: wait until no node in status.unhealthyNodes has remediations, or write pauseRequests and delete them first";

/// The policy and its binding.
pub fn deletion() -> [Value; 2] {
    let metadata = json!({"name": NAME, "labels": {MANAGED_BY_LABEL: MANAGER}});
    let rule = json!({
        "apiGroups": ["remediation.medik8s.io"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": [CHECK_PLURAL],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": IDLE, "message": WHY, "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    });
    [policy, binding]
}
