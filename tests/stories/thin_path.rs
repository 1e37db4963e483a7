//! A node breaks, a remediation appears; it recovers, the remediation goes.

use std::time::Duration;

use kube::api::DeleteParams;
use resus_harness::{Cluster, holds_for, until};
use serde_json::json;

use crate::stage::{SOON, bare_stage, stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_node_is_remediated_until_it_recovers() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(5).await;
    stage.check("workers", 300, "40%").await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);

    let status = stage.until_status("workers", "the check reports its nodes", |status| status["observedNodes"] == 5).await;
    assert_eq!((&status["healthyNodes"], &status["phase"]), (&json!(5), &json!("Enabled")));
    assert!(stage.remediations().await.is_empty());

    // By the rule on Ready, and by the rule on another condition.
    stage.condition("n1", "Ready", "Unknown", 301).await;
    stage.until_remediations(&["n1"]).await;
    stage.condition("n2", "DiskBroken", "True", 301).await;
    stage.until_remediations(&["n1", "n2"]).await;

    let object = stage.remediations_api().get("n1").await.expect("it exists");
    let check = stage.checks_api().get("workers").await.expect("it exists");
    let (labels, annotations) =
        (object.metadata.labels.clone().unwrap_or_default(), object.metadata.annotations.clone().unwrap_or_default());
    assert_eq!(object.data["spec"], json!({"method": "power-cycle", "retries": 3}));
    assert_eq!(labels["app.kubernetes.io/part-of"], "node-healthcheck-controller");
    assert_eq!(annotations["remediation.medik8s.io/node-name"], "n1");
    assert_eq!(annotations["remediation.medik8s.io/template-name"], "reboot");
    let owners = object.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(
        (owners.len(), &owners[0].uid, owners[0].controller),
        (1, check.metadata.uid.as_ref().expect("it has a uid"), Some(false))
    );

    let status = stage
        .until_status("workers", "the status lists both", |status| status["unhealthyNodes"].as_array().map(Vec::len) == Some(2))
        .await;
    assert_eq!((&status["healthyNodes"], &status["phase"]), (&json!(3), &json!("Remediating")));
    assert!(status["inFlightRemediations"]["n1"].is_string());
    assert_eq!(status["unhealthyNodes"][0]["remediations"][0]["resource"]["name"], "n1");
    let table = stage.kubectl(&["get", "nhc", "workers"]).await;
    assert!(table.contains("OBSERVED") && table.contains("Remediating"), "{table}");

    // A third would be one too many, and says so.
    stage.condition("n3", "Ready", "False", 301).await;
    let shut = stage
        .until_status("workers", "remediation is no longer allowed", |status| {
            status["conditions"][1]["reason"] == "TooManyUnhealthy"
        })
        .await;
    assert_eq!(shut["conditions"][1]["status"], "False", "{shut}");
    holds_for(Duration::from_secs(2), "nothing is started above the limit", || async {
        let names = stage.remediations().await;
        if names == ["n1", "n2"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;

    // Recovered nodes are cleaned up although the gate is shut; then the third has its turn.
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&["n2", "n3"]).await;
    stage.condition("n2", "DiskBroken", "False", 0).await;
    stage.condition("n3", "Ready", "True", 0).await;
    stage.until_remediations(&[]).await;
    stage
        .until_status("workers", "all is well again", |status| status["healthyNodes"] == 5 && status["phase"] == "Enabled")
        .await;

    let events = stage.events().await;
    for (reason, count) in [
        ("DetectedUnhealthy", 3),
        ("RemediationCreated", 3),
        ("RemediationRemoved", 3),
        ("RemediationSkipped", 1),
        ("Enabled", 1),
    ] {
        assert_eq!(events.iter().filter(|(own, _)| own == reason).count(), count, "{reason} in {events:#?}");
    }
    let status = controller.terminate(SOON).await.expect("it stops");
    assert!(status.success(), "{status}: {}", controller.last_lines(20));
}

/// With a real controller manager: it adds the provider's role to ours, and collects what a deleted check leaves behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_aggregated_and_leftovers_collected() {
    let builder = Cluster::builder().controller_manager(true);
    let builder =
        builder.controller_manager_flag("--controllers=clusterrole-aggregation-controller,garbage-collector-controller");
    let Some(stage) = stage(builder).await else { return };
    stage.nodes(3).await;
    stage.check("workers", 5, "1").await;
    let kubeconfig = stage.account_as_shipped().await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    // Where our policy does not keep it.
    stage.kubectl(&["delete", "validatingadmissionpolicybinding", "nodehealthcheck-deletion.resus.dev"]).await;
    until(SOON, "the check can be deleted", || async {
        stage.checks_api().delete("workers", &DeleteParams::default()).await.ok()
    })
    .await;
    stage.until_remediations(&[]).await;
}

/// Started from outside with an admin's kubeconfig, nothing applied but `deploy/crds`; the provider arrives later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_needs_nothing_but_the_crds() {
    let Some(stage) = bare_stage(Cluster::builder()).await else { return };
    let _controller = stage.controller("controller", stage.cluster.admin_kubeconfig());
    stage.nodes(3).await;
    stage.condition("n2", "Ready", "False", 60).await;
    stage.check("workers", 10, "1").await;
    stage.until_status("workers", "the missing provider is named", |status| status["phase"] == "Disabled").await;
    stage.apply_file("tests/provider/crds.yaml").await;
    stage
        .kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd/rebootremediationtemplates.provider.test"])
        .await;
    stage.apply_file("tests/provider/template.yaml").await;
    stage.until_remediations(&["n2"]).await;
    stage.kubectl(&["get", "lease", "-n", "poison-pill", "resus-controller"]).await;
}
