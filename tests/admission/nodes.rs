//! What our account writes on Nodes is the one thing that we write there, whatever its roles allow.

use http::Method;
use resus_core::effect::Effect;
use resus_harness::until;
use resus_k8s::crd::policy;
use resus_k8s::encode;
use resus_k8s::names::Places;
use resus_k8s::rbac::Component;
use serde_json::{Value, json};

use crate::running::SOON;
use crate::side::{Answer, POLICIES, Side};

const NAMESPACE: &str = "elsewhere";
const US: &str = "system:serviceaccount:elsewhere:resus-controller";
/// Of the same name, installed in another namespace.
const OTHERS: &str = "system:serviceaccount:poison-pill:resus-controller";
const NODES: &str = "/api/v1/nodes";
const CONFIRMED: &str = "remediation.medik8s.io/manually-confirmed-healthy";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_server_holds_us_to_what_we_write_on_nodes() {
    nodes_are_left_alone(&mut Side::embedded()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_holds_us_to_what_we_write_on_nodes() {
    let Some(mut side) = Side::real_or_skip().await else { return };
    nodes_are_left_alone(&mut side).await;
}

async fn nodes_are_left_alone(side: &mut Side) {
    set_up(side).await;
    wait_for_the_policy(side).await;
    for (method, path, kind, body, says) in refused() {
        let path = format!("{NODES}{path}?dryRun=All");
        let ours = side.ask_as(US, method.clone(), &path, kind, &body).await;
        assert!(ours.code == 403 && ours.message().contains(says), "{path} {body}: {} {}", ours.code, ours.message());
        // Nobody else is held to it.
        let theirs = side.ask_as(OTHERS, method, &path, kind, &body).await;
        assert!(theirs.is_ok(), "{path} {body}: {} {}", theirs.code, theirs.message());
    }
    for body in [json!({}), json!({"metadata": {"annotations": {"kept": "as it is"}}})] {
        let answer = side.ask_as(US, Method::PATCH, &format!("{NODES}/n1"), MERGE, &body).await;
        assert!(answer.is_ok(), "{body}: {}", answer.message());
    }
    let answer = unconfirm(side, "n1").await;
    assert!(answer.is_ok(), "{}", answer.message());
    assert_eq!(answer.body["metadata"]["annotations"], json!({"kept": "as it is"}));
    // The last annotation, on a Node that has nothing else either.
    let answer = unconfirm(side, "bare").await;
    assert!(answer.is_ok() && answer.body["metadata"]["annotations"].is_null(), "{} {}", answer.message(), answer.body);
    let answer = unconfirm(side, "bare").await;
    assert!(answer.is_ok(), "once more: {}", answer.message());
}

/// At least one for each rule: what is asked for, and what is said about it.
fn refused() -> Vec<(Method, &'static str, &'static str, Value, &'static str)> {
    let patch = |kind: &'static str, body: Value, says: &'static str| (Method::PATCH, "/n1", kind, body, says);
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "bare", "uid": "1"}]);
    let annotations = |all: Value| json!({"metadata": {"annotations": all}});
    let (spec, only) = ("nothing in the spec of Nodes", "only takes the annotation");
    vec![
        (
            Method::POST,
            "",
            "application/json",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}}),
            "makes and deletes none",
        ),
        (Method::DELETE, "/n1", "application/json", Value::Null, "makes and deletes none"),
        (Method::PATCH, "/n1/status", MERGE, json!({"status": {"phase": "Running"}}), "leaves their status alone"),
        patch(MERGE, json!({"spec": {"unschedulable": true}}), spec),
        patch(STRATEGIC, json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), spec),
        patch(MERGE, json!({"spec": {"taints": null}}), spec),
        patch(MERGE, json!({"metadata": {"labels": {"zone": "b"}}}), "changes no labels"),
        patch(MERGE, json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}), "changes no labels"),
        patch(MERGE, json!({"metadata": {"labels": null}}), "changes no labels"),
        patch(MERGE, annotations(json!({"new": ""})), only),
        patch(MERGE, annotations(json!({"kept": "not as it was"})), only),
        patch(MERGE, annotations(json!({"kept": null})), only),
        patch(MERGE, annotations(json!({CONFIRMED: null, "kept": null})), only),
        patch(MERGE, annotations(json!({CONFIRMED: "by whom?"})), only),
        patch(MERGE, annotations(Value::Null), only),
        patch(MERGE, json!({"metadata": {"finalizers": null}}), "neither finalizers nor owners"),
        patch(MERGE, json!({"metadata": {"finalizers": ["a.test/b", "a.test/c"]}}), "neither finalizers nor owners"),
        patch(MERGE, json!({"metadata": {"ownerReferences": owner}}), "neither finalizers nor owners"),
    ]
}

/// The policy, two accounts whose roles would let them do anything to Nodes, and two Nodes.
async fn set_up(side: &mut Side) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": "everything-on-nodes"});
    let role =
        json!({"metadata": metadata, "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}]});
    let subject = |namespace: &str| json!({"kind": "ServiceAccount", "name": "resus-controller", "namespace": namespace});
    let binding = json!({"metadata": metadata, "subjects": [subject(NAMESPACE), subject("poison-pill")],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything-on-nodes"}});
    let full = json!({"metadata": {"name": "n1", "labels": {"zone": "a"}, "finalizers": ["a.test/b"],
            "annotations": {CONFIRMED: "", "kept": "as it is"}},
        "spec": {"taints": [{"key": "others", "effect": "NoSchedule"}]}});
    let bare = json!({"metadata": {"name": "bare", "annotations": {CONFIRMED: ""}}});
    let policies = POLICIES.into_iter().map(str::to_owned).zip(policy::node_writes(NAMESPACE, Component::Controller.account()));
    let roles = [(format!("{rbac}/clusterroles"), role), (format!("{rbac}/clusterrolebindings"), binding)];
    for (path, object) in policies.chain(roles).chain([full, bare].map(|node| (NODES.to_owned(), node))) {
        let answer = side.create(&path, &object).await;
        assert!(answer.is_ok(), "{object}: {}", answer.message());
    }
}

/// As the controller asks for it.
async fn unconfirm(side: &mut Side, node: &str) -> Answer {
    let effect = Effect::Unconfirm { node: node.into() };
    let request = encode::encode(&effect, &Places::new(NAMESPACE)).expect("it can be sent");
    let kind = request.headers()["content-type"].to_str().expect("it is ASCII").to_owned();
    let body = serde_json::from_slice(request.body()).expect("it is JSON");
    side.ask_as(US, request.method().clone(), request.uri().path(), &kind, &body).await
}

/// A real server hears of policies and roles a moment after they are stored.
async fn wait_for_the_policy(side: &mut Side) {
    let side = tokio::sync::Mutex::new(side);
    until(SOON, "the policy is in force", || async {
        let patch = json!({"metadata": {"labels": {"zone": "b"}}});
        let path = format!("{NODES}/n1?dryRun=All");
        let answer = side.lock().await.ask_as(US, Method::PATCH, &path, MERGE, &patch).await;
        (answer.code == 403 && answer.message().contains("ValidatingAdmissionPolicy")).then_some(())
    })
    .await;
}
