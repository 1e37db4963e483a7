//! On OpenShift etcd is guarded by a budget, and nodes have Machines.

use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::CONTROL_PLANE;
use serde_json::json;

use crate::story::{NODES, Story, WORKERS};

const BUDGETS: &str = "/apis/policy/v1/namespaces/openshift-etcd/poddisruptionbudgets";
const PODS: &str = "/api/v1/namespaces/openshift-etcd/pods";

/// Three nodes of the control plane, each with a guard that is ready, and a budget of no disruption.
fn guarded() -> Story {
    let mut story = Story::of(6);
    story.define("config.openshift.io", "v1", "ClusterVersion", "Cluster");
    story.add_namespace("openshift-etcd");
    add_budget(&mut story, "etcd-guard-pdb");
    for node in ["n1", "n2", "n3"] {
        story.label(node, CONTROL_PLANE, "");
        let metadata = json!({"name": format!("guard-{node}"), "namespace": "openshift-etcd", "labels": {"app": "guard"}});
        let spec = json!({"nodeName": node, "containers": [{"name": "guard", "image": "example.test/guard:1"}]});
        story.create(PODS, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
        ready(&mut story, node, "True");
    }
    story.check(WORKERS, &json!({}));
    story.run(MINUTE);
    story
}

fn add_budget(story: &mut Story, name: &str) {
    let spec = json!({"minAvailable": 3, "selector": {"matchLabels": {"app": "guard"}}});
    let metadata = json!({"name": name, "namespace": "openshift-etcd"});
    let body = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec});
    story.create(BUDGETS, &body);
    allows(story, name, 0);
}

fn allows(story: &mut Story, budget: &str, disruptions: u32) {
    let status = json!({"currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": disruptions, "expectedPods": 3});
    story.patch(&format!("{BUDGETS}/{budget}/status"), &json!({"status": status}));
}

fn ready(story: &mut Story, node: &str, status: &str) {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    story.patch(&format!("{PODS}/guard-{node}/status"), &status);
}

#[test]
fn a_member_of_etcd_that_is_up_is_not_taken_from_it_without_a_budget() {
    type Change = fn(&mut Story);
    let guard_goes_down: Change = |story| ready(story, "n1", "False");
    let guard_goes: Change = |story| story.delete(&format!("{PODS}/guard-n1?gracePeriodSeconds=0"));
    let budget_grows: Change = |story| allows(story, "etcd-guard-pdb", 1);
    for lets_go in [guard_goes_down, guard_goes, budget_grows] {
        let mut story = guarded();
        ["n1", "n4"].iter().for_each(|node| story.breaks(node));
        story.run(30 * MINUTE);
        story.expect(&["reboot n4"]);
        assert!(story.held(WORKERS, "n1").contains("allows no disruption"), "{}", story.held(WORKERS, "n1"));
        lets_go(&mut story);
        // Nobody but the controller watches budgets, and so the simulated server tells of them in its own time.
        story.run(15 * SECOND);
        story.expect(&["reboot n1", "reboot n4"]);
    }
}

#[test]
fn without_exactly_one_budget_nothing_is_taken_from_the_control_plane() {
    let mut story = guarded();
    ready(&mut story, "n1", "False");
    add_budget(&mut story, "another");
    story.run(MINUTE);
    ["n1", "n4"].iter().for_each(|node| story.breaks(node));
    story.run(MINUTE);
    story.expect(&["reboot n4"]);
    assert!(story.held(WORKERS, "n1").starts_with("2 PodDisruptionBudgets"), "{}", story.held(WORKERS, "n1"));
    story.delete(&format!("{BUDGETS}/another"));
    story.run(15 * SECOND);
    story.expect(&["reboot n1", "reboot n4"]);
}

/// In the namespace of the template, where whoever reads the owner can find it.
#[test]
fn a_machine_beside_the_template_owns_the_remediation_too() {
    let machines = |namespace: &str| format!("/apis/machine.openshift.io/v1beta1/namespaces/{namespace}/machines");
    for (namespace, owners) in [("provider", &["NodeHealthCheck", "Machine"][..]), ("elsewhere", &["NodeHealthCheck"])] {
        let mut story = Story::with(6, &json!({}));
        story.define("machine.openshift.io", "v1beta1", "Machine", "Namespaced");
        if namespace == "elsewhere" {
            story.add_namespace(namespace);
        }
        let body = json!({"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
            "metadata": {"name": "m1", "namespace": namespace}, "status": {"nodeRef": {"name": "n1"}}});
        story.create(&machines(namespace), &body);
        let annotation = json!({"machine.openshift.io/machine": format!("{namespace}/m1")});
        story.patch(&format!("{NODES}/n1"), &json!({"metadata": {"annotations": annotation}}));
        story.breaks("n1");
        story.run(8 * SECOND);
        let found = story.remediation("reboot n1")["metadata"]["ownerReferences"].clone();
        let kinds: Vec<&str> = found.as_array().into_iter().flatten().filter_map(|owner| owner["kind"].as_str()).collect();
        assert_eq!(kinds, owners, "{found}");
    }
}

/// Elsewhere no Machine could own what is made from it.
#[test]
fn a_template_of_metal3_is_refused_where_it_would_find_no_machine() {
    let group = "infrastructure.cluster.x-k8s.io";
    for (namespace, is_disabled) in [("provider", true), ("openshift-machine-api", false)] {
        let mut story = Story::of(6);
        story.define(group, "v1beta1", "Metal3Remediation", "Namespaced");
        story.define(group, "v1beta1", "Metal3RemediationTemplate", "Namespaced");
        if namespace != "provider" {
            story.add_namespace(namespace);
        }
        let template = json!({"apiVersion": format!("{group}/v1beta1"), "kind": "Metal3RemediationTemplate",
            "metadata": {"name": "reboot", "namespace": namespace}, "spec": {"template": {"spec": {}}}});
        story.create(&format!("/apis/{group}/v1beta1/namespaces/{namespace}/metal3remediationtemplates"), &template);
        let reference = json!({"apiVersion": format!("{group}/v1beta1"), "kind": "Metal3RemediationTemplate",
            "name": "reboot", "namespace": namespace});
        story.check(WORKERS, &json!({"remediationTemplate": reference}));
        story.run(MINUTE);
        let (status, reason) = story.condition(WORKERS, "Disabled").expect("it is told");
        assert_eq!(
            (status == "True", reason == "RemediationTemplateInvalid"),
            (is_disabled, is_disabled),
            "{namespace}: {reason}"
        );
    }
}
