//! Nothing is started while the cluster is being upgraded, whoever upgrades it.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, Patch, PatchParams};
use resus_harness::Cluster;
use serde_json::{Value, json};

use crate::stage::{SOON, Stage, condition, stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_say_of_an_upgrade_holds_repairs_until_it_ends() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(4).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    let status = stage.until_status("workers", "it is served", |status| status["observedNodes"] == 4).await;
    assert_eq!(condition(&status, "Upgrading")["reason"], "NoUpgradeSeen", "{status}");

    // Definitions that come later are noticed, too.
    stage.apply_file("tests/upgrades/crds.yaml").await;
    stage.established("clusterversions.config.openshift.io").await;
    stage.established("plans.upgrade.cattle.io").await;
    cluster_version(&stage, "True").await;
    holds(&stage, "ClusterVersion", "OpenShift moves to 4.99.0").await;
    stage.until_event("RemediationSkipped", "OpenShift moves to 4.99.0").await;
    cluster_version(&stage, "False").await;
    lets_go(&stage).await;

    plan(&stage, json!(["n4"])).await;
    holds(&stage, "SystemUpgradePlan", "the Plan cattle/server is applied to n4").await;
    plan(&stage, json!([])).await;
    lets_go(&stage).await;

    kured_lock(&stage, json!(r#"{"nodeID":"n3","metadata":{},"created":"2026-01-01T00:00:00Z","TTL":0}"#)).await;
    holds(&stage, "KuredLock", "held by n3").await;
    kured_lock(&stage, Value::Null).await;
    lets_go(&stage).await;

    let config = |desired: &str| {
        let (current, wanted) =
            ("machineconfiguration.openshift.io/currentConfig", "machineconfiguration.openshift.io/desiredConfig");
        json!({"metadata": {"annotations": {current: "rendered-1", wanted: desired}}})
    };
    stage.change_node("n2", config("rendered-2")).await;
    holds(&stage, "MachineConfig", "node n2 moves to machine config rendered-2").await;
    stage.change_node("n2", config("rendered-1")).await;
    lets_go(&stage).await;
}

/// While the check says that the cluster is being upgraded, n1 breaks.
async fn holds(stage: &Stage, reason: &str, message: &str) {
    let says = |status: &Value| {
        let upgrading = condition(status, "Upgrading");
        upgrading["status"] == "True" && upgrading["reason"] == reason
    };
    let status = stage.until_status("workers", &format!("{reason} is seen"), says).await;
    let upgrading = condition(&status, "Upgrading");
    assert!(upgrading["message"].as_str().is_some_and(|text| text.contains(message)), "{upgrading}");
    assert_eq!(condition(&status, "RemediationAllowed")["reason"], "Upgrading", "{status}");
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_status("workers", "n1 is seen", |status| status["unhealthyNodes"][0]["name"] == "n1").await;
    stage.stays(&[]).await;
}

/// The upgrade is over: n1 is repaired, and well again.
async fn lets_go(stage: &Stage) {
    stage.until_remediations(&["n1"]).await;
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&[]).await;
    stage.until_status("workers", "all is well", |status| status["healthyNodes"] == 4).await;
}

async fn cluster_version(stage: &Stage, progressing: &str) {
    let version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
        "status": {"desired": {"version": "4.99.0"}, "conditions": [{"type": "Progressing", "status": progressing}]}});
    stage.apply(&version.to_string()).await;
}

async fn plan(stage: &Stage, applying: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle"}});
    let plan = json!({"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": {"name": "server", "namespace": "cattle"}, "status": {"applying": applying}});
    stage.apply(&format!("{namespace}\n---\n{plan}")).await;
}

async fn kured_lock(stage: &Stage, lock: Value) {
    let labels = json!({"name": "kured"});
    let kured = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kured"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "kured", "image": "kured"}]}}}});
    let api: Api<DaemonSet> = Api::namespaced(stage.api.clone(), "kube-system");
    let params = PatchParams::apply("story").force();
    api.patch("kured", &params, &Patch::Apply(kured)).await.expect("a DaemonSet can be applied");
    let locked = json!({"metadata": {"annotations": {"weave.works/kured-node-lock": lock}}});
    api.patch("kured", &PatchParams::default(), &Patch::Merge(locked)).await.expect("a DaemonSet can be annotated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubelets_that_change_their_version_hold_repairs_also_after_a_restart() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    for node in ["n1", "n2", "n3"] {
        kubelet(&stage, node, "v1.35.1").await;
    }
    stage.check("workers", 5, "1").await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);
    stage.until_status("workers", "it is served", |status| status["observedNodes"] == 3).await;
    kubelet(&stage, "n2", "v1.36.0").await;
    holds(&stage, "KubeletVersions", "kubelets move from v1.35.1 to v1.36.0 (1 of 3 nodes have it)").await;

    // The check's condition remembers it for the next controller.
    controller.kill();
    stage.forget_leader().await;
    controller.start_again().expect("it starts");
    controller.wait_for_log(" leading", SOON).await.expect("it leads");
    stage.stays(&[]).await;
    let status = stage.status("workers").await;
    assert_eq!(condition(&status, "Upgrading")["status"], "True", "{status}");
    for node in ["n1", "n3"] {
        kubelet(&stage, node, "v1.36.0").await;
    }
    stage.until_remediations(&["n1"]).await;
    let over = |status: &Value| condition(status, "Upgrading")["status"] == "False";
    stage.until_status("workers", "the upgrade is over", over).await;
}

/// The server is asked for its version every five minutes, so that a story cannot wait for it to change. What a leader
/// that saw it wrote down is read by the next, and compared with what the server says now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_moved_under_the_last_leader_holds_repairs_until_kubelets_follow() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    for node in ["n1", "n2", "n3"] {
        kubelet(&stage, node, "v1.20.0").await;
    }
    stage.check("workers", 5, "1").await;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message = format!("the API server moved; last change of the server's version: {now}");
    let told = json!({"status": {"conditions": [{"type": "Upgrading", "status": "True", "reason": "ServerVersion",
        "message": message, "lastTransitionTime": now}]}});
    let patched = stage.checks_api().patch_status("workers", &PatchParams::default(), &Patch::Merge(told)).await;
    patched.expect("the status of a check can be patched");
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    let version = stage.api.apiserver_version().await.expect("the server has a version").git_version;
    let is_served = |status: &Value| status["observedNodes"] == 3;
    stage.until_status("workers", "it is served", is_served).await;
    holds(&stage, "ServerVersion", &format!("the API server moved to {version}, 3 of 3 nodes are behind it")).await;

    kubelet(&stage, "n2", &version).await;
    stage.stays(&[]).await;
    for node in ["n1", "n3"] {
        kubelet(&stage, node, &version).await;
    }
    stage.until_remediations(&["n1"]).await;
}

async fn kubelet(stage: &Stage, node: &str, version: &str) {
    let patch = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
    let patched = stage.nodes_api().patch_status(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.expect("the status of a Node can be patched");
}
