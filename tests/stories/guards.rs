//! What keeps hands off a node, for its own sake or for that of the others?

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use resus_harness::Cluster;
use serde_json::{Value, json};

use crate::stage::{Stage, condition, created_at, listed, stage, time};

const EXCLUDE: &str = "remediation.medik8s.io/exclude-from-remediation";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_storm_repairs_wait_for_the_cooldown() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(4).await;
    stage.check_with("workers", "1", json!({"stormCooldownDuration": "5s"})).await;
    let kubeconfig = stage.account().await;
    stage.condition("n1", "Ready", "False", 60).await;
    stage.condition("n2", "Ready", "False", 60).await;
    let _controller = stage.controller("controller", &kubeconfig);
    let storm = |status: &Value, active: &str, cooling: &str| {
        let is = |kind: &str, expected: &str| condition(status, kind)["status"] == expected;
        is("StormActive", active) && is("StormCooldownActive", cooling)
    };
    stage.until_status("workers", "a storm rages", |status| storm(status, "True", "False")).await;
    stage.until_event("StormRecoveryStarted", "").await;

    stage.condition("n2", "Ready", "True", 0).await;
    let status = stage.until_status("workers", "it is over", |status| storm(status, "True", "True")).await;
    assert_eq!(condition(&status, "RemediationAllowed")["reason"], "StormCooldown", "{status}");
    let calm_since = time(&condition(&status, "StormCooldownActive")["lastTransitionTime"]);
    stage.until_remediations(&["n1"]).await;
    let waited = created_at(&stage.remediations_api().get("n1").await.expect("it exists")).duration_since(calm_since);
    assert!(waited >= SignedDuration::from_secs(5) && waited < SignedDuration::from_secs(10), "{waited}");
    stage.until_status("workers", "the cooldown is over", |status| storm(status, "False", "False")).await;
    stage.until_event("StormRecoveryCooldownStarted", "").await;
    stage.until_event("StormRecoveryEnded", "").await;
}

/// By a label, or by the mark of somebody who maintains it. A label without a value excludes nothing, and is told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_somebody_set_aside_is_left_alone() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(12).await;
    stage.change_node("n1", json!({"metadata": {"labels": {EXCLUDE: "true"}}})).await;
    stage.change_node("n2", json!({"metadata": {"labels": {EXCLUDE: ""}}})).await;
    let repair = json!({"key": "example.com/repair", "value": "disk", "effect": "NoSchedule"});
    let other = json!({"key": "example.com/repair", "value": "fan", "effect": "NoSchedule"});
    stage.change_node("n3", json!({"spec": {"taints": [repair]}})).await;
    stage.change_node("n4", json!({"spec": {"taints": [other]}})).await;
    stage.change_node("n5", json!({"metadata": {"annotations": {"example.com/visit": "today"}}})).await;
    stage.change_node("n6", json!({"metadata": {"annotations": {"example.com/visit": "never"}}})).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let marks = ["--maintenance-taints=example.com/repair=disk:NoSchedule", "--maintenance-annotations=example.com/visit=today"];
    let _controller = stage.controller_with("controller", &kubeconfig, &marks);
    for node in ["n1", "n2", "n3", "n4", "n5", "n6"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.stays(&["n2", "n4", "n6"]).await;
    stage.until_held("workers", "n1", EXCLUDE).await;
    stage.until_held("workers", "n3", "under maintenance: it has the taint example.com/repair").await;
    stage.until_held("workers", "n5", "under maintenance: it has the annotation example.com/visit").await;
    stage.until_event("RemediationSkipped", EXCLUDE).await;
    stage.until_event("InvalidNodeLabel", "n2").await;
    assert_eq!(condition(&stage.status("workers").await, "RemediationAllowed")["status"], "True", "it is not about the others");

    stage.change_node("n1", json!({"metadata": {"labels": {EXCLUDE: null}}})).await;
    stage.change_node("n3", json!({"spec": {"taints": null}})).await;
    stage.change_node("n5", json!({"metadata": {"annotations": {"example.com/visit": null}}})).await;
    stage.until_remediations(&["n1", "n2", "n3", "n4", "n5", "n6"]).await;
}

/// For who reads "short-circuits at maxUnhealthy" as "not even then".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_nothing_starts_where_the_stricter_reading_is_asked_for() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    stage.check("workers", 5, "1").await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller_with("controller", &kubeconfig, &["--short-circuit-at-limit"]);
    stage.condition("n1", "Ready", "False", 60).await;
    let is_shut = |status: &Value| condition(status, "RemediationAllowed")["reason"] == "TooManyUnhealthy";
    let status = stage.until_status("workers", "it is shut", is_shut).await;
    let why = condition(&status, "RemediationAllowed")["message"].as_str().unwrap_or_default();
    assert!(why.contains("1 of 3 nodes are not healthy") && why.contains("at most 0"), "{status}");
    stage.until_event("RemediationSkipped", "1 of 3 nodes are not healthy").await;
    stage.stays(&[]).await;
    stage.change_check("workers", json!({"spec": {"maxUnhealthy": 2}})).await.expect("it may be changed");
    stage.until_remediations(&["n1"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_control_plane_keeps_its_majority_and_is_repaired_one_node_at_a_time() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    for node in ["n1", "n2", "n3"] {
        stage.change_node(node, json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})).await;
        host_etcd(&stage, node).await;
    }
    stage.condition("n1", "Ready", "False", 60).await;
    stage.condition("n2", "Ready", "False", 60).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    for node in ["n1", "n2"] {
        stage.until_held("workers", node, "etcd would lose its majority").await;
    }
    stage.condition("n4", "Ready", "False", 60).await;
    stage.stays(&["n4"]).await;
    // Its node is ready again, but the member is not.
    member_is(&stage, "n2", "False").await;
    stage.condition("n2", "Ready", "True", 0).await;
    stage.stays(&["n4"]).await;
    member_is(&stage, "n2", "True").await;
    stage.until_remediations(&["n1", "n4"]).await;
    let labels = stage.remediations_api().get("n1").await.expect("it exists").metadata.labels.unwrap_or_default();
    assert!(labels.contains_key("remediation.medik8s.io/isControlPlaneNode"), "{labels:?}");

    stage.condition("n2", "Ready", "False", 60).await;
    stage.until_held("workers", "n2", "n1 is being remediated").await;
    stage.until_event("RemediationSkipped", "one node at a time").await;
    stage.stays(&["n1", "n4"]).await;
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&["n2", "n4"]).await;
}

/// As the kubelet shows a static Pod.
async fn host_etcd(stage: &Stage, node: &str) {
    let pod = json!({"metadata": {
            "name": format!("etcd-{node}"), "labels": {"component": "etcd", "tier": "control-plane"},
            "annotations": {"kubernetes.io/config.mirror": "1", "kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": node, "containers": [{"name": "etcd", "image": "etcd"}]}});
    let pod: Pod = serde_json::from_value(pod).expect("it is a Pod");
    let pods: Api<Pod> = Api::namespaced(stage.api.clone(), "kube-system");
    pods.create(&PostParams::default(), &pod).await.expect("a Pod can be created");
    member_is(stage, node, "True").await;
}

async fn member_is(stage: &Stage, node: &str, ready: &str) {
    let pods: Api<Pod> = Api::namespaced(stage.api.clone(), "kube-system");
    let status = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}));
    let told = pods.patch_status(&format!("etcd-{node}"), &PatchParams::default(), &status).await;
    told.expect("its kubelet can tell");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    stage.nodes(4).await;
    for (pool, node) in [("field", "n1"), ("annotation", "n2")] {
        stage.change_node(node, json!({"metadata": {"labels": {"pool": pool}}})).await;
        stage.condition(node, "Ready", "False", 60).await;
    }
    let only = |pool: &str| json!({"matchLabels": {"pool": pool}});
    stage.check_with("by-field", "1", json!({"selector": only("field"), "mode": "DryRun"})).await;
    stage.check_with("by-annotation", "1", json!({"selector": only("annotation"), "pauseRequests": ["not yet"]})).await;
    let dry = json!({"metadata": {"annotations": {"resus.dev/mode": "DryRun"}}, "spec": {"pauseRequests": null}});
    stage.change_check("by-annotation", dry).await.expect("it can be annotated");
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.until_held("by-field", "n1", "dry run: ").await;
    stage.until_held("by-annotation", "n2", "dry run: ").await;
    stage.until_event("RemediationSkipped", "n1").await;
    stage.stays(&[]).await;
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "True", 0).await;
    }
    for check in ["by-field", "by-annotation"] {
        stage.until_status(check, "all is well", |status| status["healthyNodes"] == 1).await;
    }
    let entries = stage.cluster.audit_log().expect("the audit log can be read");
    let ours = entries.iter().filter(|entry| entry.user.ends_with(":resus-controller"));
    let writes: Vec<_> = ours.filter(|entry| !["get", "list", "watch"].contains(&entry.verb.as_str())).collect();
    let is_a_word =
        |uri: &str| uri.contains("/events") || uri.contains("/status") || uri.contains("/namespaces/poison-pill/leases");
    let deeds: Vec<_> = writes.iter().filter(|entry| !is_a_word(&entry.uri)).collect();
    assert!(!writes.is_empty() && deeds.is_empty(), "{deeds:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dark_zone_stops_repair_there_and_nowhere_else() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    for (node, zone) in [("n1", "a"), ("n2", "a"), ("n3", "a"), ("n4", "b"), ("n5", "b"), ("n6", "b")] {
        stage.change_node(node, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})).await;
    }
    stage.check_with("workers", "34%", json!({"topologyKey": "topology.kubernetes.io/zone"})).await;
    let kubeconfig = stage.account().await;
    for node in ["n1", "n2", "n4"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    let _controller = stage.controller("controller", &kubeconfig);
    stage.stays(&["n4"]).await;
    let status = stage.until_status("workers", "it is reported", |status| status["phase"] == "Remediating").await;
    let allowed = condition(&status, "RemediationAllowed");
    assert!(allowed["message"].as_str().is_some_and(|text| text.contains("2 of 3 nodes of a are not healthy")), "{allowed}");
    stage.condition("n2", "Ready", "True", 0).await;
    stage.until_remediations(&["n1", "n4"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_repaired_too_often_and_one_that_never_starts_is_repaired_too() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(4).await;
    let fields = json!({"repeat": {"max": 1, "within": "1h"}, "nodeStartupTimeout": "6s"});
    stage.check_with("workers", "2", fields).await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.until_status("workers", "it is served", |status| status["observedNodes"] == 4).await;

    let silent = json!({"metadata": {"name": "silent", "labels": {"node-role.kubernetes.io/worker": ""}}});
    let silent: Node = serde_json::from_value(silent).expect("it is a Node");
    let silent = stage.nodes_api().create(&PostParams::default(), &silent).await.expect("a Node can be created");
    stage.until_remediations(&["silent"]).await;
    let object = stage.remediations_api().get("silent").await.expect("it exists");
    let waited = created_at(&object).duration_since(created_at(&silent));
    assert!(waited >= SignedDuration::from_secs(6) && waited < SignedDuration::from_secs(10), "{waited}");
    stage.condition("silent", "Ready", "True", 0).await;
    stage.until_remediations(&[]).await;

    for node in ["n1", "silent"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_remediations(&["n1"]).await;
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&[]).await;
    stage.condition("n1", "Ready", "False", 60).await;
    for node in ["n1", "silent"] {
        stage.until_held("workers", node, "remediated 1 times within 3600s").await;
    }
    stage.until_event("RemediationSkipped", "remediated 1 times").await;
    stage.stays(&[]).await;
    let status = stage.status("workers").await;
    assert_eq!(status["recentRemediations"].as_array().map(Vec::len), Some(2), "{status}");
    assert!(listed(&status, "n1")["remediations"].is_null(), "{status}");
}
