//! Kinds, templates and checks come and go.

use std::time::Duration;

use kube::api::DeleteParams;
use resus_harness::{Cluster, until};
use serde_json::{Value, json};

use crate::stage::{SOON, Stage, check_yaml, condition, stage};

const DEFINITION: &str = "nodehealthchecks.remediation.medik8s.io";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_disabled_while_its_template_is_away() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(4).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.until_status("workers", "enabled", |status| status["phase"] == "Enabled").await;

    stage.kubectl(&["delete", "-n", "provider", "rebootremediationtemplate", "reboot"]).await;
    let status = stage.until_status("workers", "disabled", |status| status["phase"] == "Disabled").await;
    assert_eq!(status["conditions"][0]["reason"], "RemediationTemplateNotFound");
    assert_eq!(status["observedNodes"], 4, "it still counts");
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_status("workers", "the unhealthy node is reported", |status| status["unhealthyNodes"][0]["name"] == "n1").await;

    stage.apply("{apiVersion: provider.test/v1, kind: RebootRemediationTemplate, metadata: {name: reboot, namespace: provider}, spec: {template: 5}}").await;
    let status = stage
        .until_status("workers", "the bad template is named", |status| {
            status["conditions"][0]["reason"] == "RemediationTemplateInvalid"
        })
        .await;
    assert!(status["reason"].as_str().is_some_and(|reason| reason.contains("spec.template is not an object")), "{status}");
    assert!(stage.remediations().await.is_empty());

    // Kubectl would merge; the good one takes its place.
    stage.kubectl(&["delete", "-n", "provider", "rebootremediationtemplate", "reboot"]).await;
    stage.apply_file("tests/provider/template.yaml").await;
    stage.until_remediations(&["n1"]).await;

    // The kinds themselves go, and come back.
    let crds = crate::stage::root().join("tests/provider/crds.yaml");
    stage.kubectl(&["delete", "-f", &crds.display().to_string()]).await;
    stage.until_status("workers", "disabled", |status| status["phase"] == "Disabled").await;
    stage.apply_file("tests/provider/crds.yaml").await;
    until(SOON, "the template can be created again", || async {
        stage.cluster.apply_file(&crate::stage::root().join("tests/provider/template.yaml")).await.ok()
    })
    .await;
    stage.until_remediations(&["n1"]).await;
}

/// One check's trouble is its own: the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_and_overlapping_checks_do_not_stop_others() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(4).await;
    // The definition's rules do not see annotations.
    stage.apply(&check_yaml("bad", 5, "50%").replace("name: bad", "name: bad\n  annotations: {resus.dev/mode: Sometimes}")).await;
    stage.check("older", 5, "50%").await;
    until(Duration::from_secs(5), "a second passes, for creation times have whole seconds", || async {
        let older = stage.checks_api().get("older").await.ok()?;
        let age = jiff::Timestamp::now().duration_since(older.metadata.creation_timestamp?.0);
        (age.as_secs() >= 1).then_some(())
    })
    .await;
    stage.check("a-younger", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);
    let status = stage.until_status("bad", "the bad annotation is named", |status| status["phase"] == "Disabled").await;
    assert!(status["reason"].as_str().is_some_and(|reason| reason.contains("Sometimes")), "{status}");

    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    stage.until_status("older", "the older one acts", |status| status["phase"] == "Remediating").await;
    controller.wait_for_log("the older check older is responsible", SOON).await.expect("the younger one says why it does not");

    // When the older check goes, the younger one is responsible. It goes when nothing runs any more.
    stage.kubectl(&["patch", "nhc", "older", "--type=merge", "-p", r#"{"spec":{"pauseRequests":["it goes"]}}"#]).await;
    stage.remediations_api().delete("n1", &DeleteParams::default()).await.expect("it can be deleted");
    stage.until_status("older", "nothing runs any more", |status| status["unhealthyNodes"][0]["remediations"].is_null()).await;
    stage.checks_api().delete("older", &DeleteParams::default()).await.expect("it can be deleted");
    stage.until_status("a-younger", "the younger one acts", |status| status["phase"] == "Remediating").await;
}

/// Somebody else installed the definition, so the checks are theirs until they are handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_others_are_left_alone_until_they_are_handed_over() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    installed_by_others(&stage).await;
    stage.nodes(4).await;
    stage.check("theirs", 5, "50%").await;
    stage.check("handed-over", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);
    controller.wait_for_log(r#"not ours"#, SOON).await.expect("it says so");
    stage.condition("n1", "Ready", "False", 60).await;
    stage.kubectl(&["annotate", "nhc", "handed-over", "resus.dev/take-over=true"]).await;
    // Ours now, and it judges; but theirs selects the same node, and whoever owns that was there before us.
    stage.until_status("handed-over", "it is served", |status| status["unhealthyNodes"][0]["name"] == "n1").await;
    controller.wait_for_log("the older check theirs is responsible", SOON).await.expect("it says why it does not act");
    assert!(stage.status("theirs").await.is_null(), "not touched");
    stage.checks_api().delete("theirs", &DeleteParams::default()).await.expect("it can be deleted");
    stage.until_remediations(&["n1"]).await;
}

/// Our own definition refuses what others may let pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_threshold_beyond_all_nodes_is_read_as_all_and_told_once_where_others_let_it_pass() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    let metadata = "name: workers\n  annotations: {resus.dev/take-over: \"true\"}";
    let check = check_yaml("workers", 5, "150%").replace("name: workers", metadata);
    let refused = stage.cluster.apply(&check).await.expect_err("the definition is ours");
    let why = format!("{refused:#}");
    assert!(why.contains("maxUnhealthy is neither a number nor a percentage of at most 100%"), "{why}");
    installed_by_others(&stage).await;
    let rules = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/maxUnhealthy/x-kubernetes-validations";
    let without = json!([{"op": "remove", "path": rules}]).to_string();
    stage.kubectl(&["patch", "crd", DEFINITION, "--type=json", "-p", &without]).await;
    until(SOON, "the server has taken it up", || async { stage.cluster.apply(&check).await.ok() }).await;
    stage.nodes(4).await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);
    let is_told = |status: &Value| condition(status, "ThresholdClamped")["status"] == "True";
    let status = stage.until_status("workers", "it is told", is_told).await;
    assert_eq!(condition(&status, "Disabled")["status"], "False", "it can be used all the same: {status}");
    stage.until_event("ThresholdClamped", "read as 100%").await;

    for node in ["n1", "n2", "n3", "n4"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_remediations(&["n1", "n2", "n3", "n4"]).await;
    // What was told stands in the status, where another process finds it.
    controller.kill();
    stage.forget_leader().await;
    controller.start_again().expect("it starts again");
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&["n2", "n3", "n4"]).await;
    let told = stage.events().await.into_iter().filter(|(reason, _)| reason == "ThresholdClamped");
    assert_eq!(told.count(), 1);

    stage.change_check("workers", json!({"spec": {"maxUnhealthy": "100%"}})).await.expect("it may be changed");
    stage.until_status("workers", "it is taken back", |status| condition(status, "ThresholdClamped").is_null()).await;
}

async fn installed_by_others(stage: &Stage) {
    stage.kubectl(&["label", "crd", DEFINITION, "app.kubernetes.io/managed-by=olm", "--overwrite"]).await;
}
