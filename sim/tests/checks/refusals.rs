//! What the server refuses for one node is that node's trouble alone.

use resus_sim::clock::SECOND;
use serde_json::json;

use crate::story::{PROVIDED, Story, WORKERS};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// The first of the nodes: whoever stopped at it would get to none.
#[test]
fn a_remediation_that_the_providers_admission_refuses_stops_no_other() {
    let mut story = Story::with(6, &json!({}));
    let rules = json!([{"apiGroups": ["provider.test"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]);
    let validation =
        json!({"expression": "object.metadata.name != 'n0'", "message": "n0 has no power supply that can be reached"});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "reachable"},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [validation]}});
    story.create(POLICIES, &policy);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "reachable"}, "spec": {"policyName": "reachable", "validationActions": ["Deny"]}});
    story.create(BINDINGS, &binding);
    story.breaks("n0");
    story.run(20 * SECOND);
    story.expect(&[]);
    ["n1", "n2"].iter().for_each(|node| story.breaks(node));
    story.run(8 * SECOND);
    story.expect(&["reboot n1", "reboot n2"]);
    assert!(story.held(WORKERS, "n0").contains("n0 has no power supply"), "{}", story.held(WORKERS, "n0"));
    story.delete(&format!("{BINDINGS}/reachable"));
    story.run(60 * SECOND);
    story.expect(&["reboot n0", "reboot n1", "reboot n2"]);
}

#[test]
fn a_name_that_somebody_else_has_taken_stops_no_other() {
    let mut story = Story::with(6, &json!({}));
    let metadata = json!({"name": "n0", "namespace": "provider"});
    let theirs = json!({"apiVersion": "provider.test/v1", "kind": "RebootRemediation", "metadata": metadata, "spec": {}});
    story.create(&format!("{PROVIDED}/rebootremediations"), &theirs);
    ["n0", "n1"].iter().for_each(|node| story.breaks(node));
    story.run(20 * SECOND);
    assert!(story.get(&format!("{PROVIDED}/rebootremediations/n1")).is_some());
    assert!(story.held(WORKERS, "n0").contains("is not ours"), "{}", story.held(WORKERS, "n0"));
}
