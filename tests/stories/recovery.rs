//! A node is well again, or gone; and whose was it meanwhile?

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use resus_harness::{Cluster, holds_for, until};
use serde_json::json;

use crate::stage::{SOON, Stage, annotation, created_at, listed, stage, time};

const HEALTHY_DELAY: &str = "remediation.medik8s.io/healthy-delay";
const CONFIRMED: &str = "remediation.medik8s.io/manually-confirmed-healthy";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovered_node_keeps_its_remediation_for_the_delay_or_until_somebody_confirms() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    stage.check_with("workers", "1", json!({"healthyDelay": "4s"})).await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    assert_eq!(delayed_since(&stage, "n1").await, None);

    stage.condition("n1", "Ready", "True", 0).await;
    let status = stage.until_status("workers", "delayed", |status| listed(status, "n1")["healthyDelayed"] == true).await;
    let since = time(&listed(&status, "n1")["conditionsHealthyTimestamp"]);
    until(SOON, "the remediation tells the same", || async { (delayed_since(&stage, "n1").await == Some(since)).then_some(()) })
        .await;
    stage.until_remediations(&[]).await;
    let waited = Timestamp::now().duration_since(since);
    assert!(waited >= SignedDuration::from_secs(4), "{waited}");

    // Not before a person says so; and what was said counts once.
    stage.change_check("workers", json!({"spec": {"healthyDelay": "-1s"}})).await.expect("it may be changed");
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    stage.condition("n1", "Ready", "True", 60).await;
    stage.until_status("workers", "delayed", |status| listed(status, "n1")["healthyDelayed"] == true).await;
    stage.stays(&["n1"]).await;
    stage.change_node("n1", json!({"metadata": {"annotations": {CONFIRMED: ""}}})).await;
    stage.until_remediations(&[]).await;
    until(SOON, "the Node's annotation is taken back", || async {
        let node = stage.nodes_api().get("n1").await.ok()?;
        (!node.metadata.annotations.unwrap_or_default().contains_key(CONFIRMED)).then_some(())
    })
    .await;
}

async fn delayed_since(stage: &Stage, name: &str) -> Option<Timestamp> {
    let object = stage.remediations_api().get(name).await.expect("it exists");
    annotation(&object, HEALTHY_DELAY).map(|since| since.parse().expect("as RFC 3339 has it"))
}

/// The provider of n1 is at work, that of n2 is about to remove the Node for good, and that of n3 says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_remediation_of_a_node_that_is_gone_stays_while_its_provider_is_busy() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    for node in ["n1", "n2", "n3"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_remediations(&["n1", "n2", "n3"]).await;
    stage.provider_says("RebootRemediation", "n1", "Processing", "True").await;
    stage.provider_says("RebootRemediation", "n2", "PermanentNodeDeletionExpected", "True").await;
    holds_for(Duration::from_secs(1), "settles", || async { Ok(()) }).await;
    for node in ["n1", "n2", "n3"] {
        stage.nodes_api().delete(node, &DeleteParams::default()).await.expect("a Node can be deleted");
    }
    stage.stays(&["n1", "n2"]).await;
    stage.until_status("workers", "three nodes are left", |status| status["observedNodes"] == 3).await;
    stage.provider_says("RebootRemediation", "n1", "Processing", "False").await;
    stage.stays(&["n2"]).await;
    stage.provider_says("RebootRemediation", "n2", "Succeeded", "True").await;
    stage.until_remediations(&[]).await;
    stage.until_status("workers", "nothing is left of them", |status| status["unhealthyNodes"].is_null()).await;
    until(SOON, "nor are leases", || async {
        let leases = stage.leases_api().list(&Default::default()).await.ok()?;
        leases.items.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_held_by_one_at_a_time() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    hold(&stage, "n2", 3600).await;
    hold(&stage, "n3", 12).await;
    let _controller = stage.controller("controller", &kubeconfig);
    for node in ["n1", "n2", "n3"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_held("workers", "n2", "NodeMaintenance-n2 has the node out of service").await;
    stage.until_event("RemediationSkipped", "NodeMaintenance-n2").await;

    // Ours comes with the remediation.
    stage.until_remediations(&["n1", "n3"]).await;
    let ours = stage.leases_api().get("node-n1").await.expect("it exists");
    let node = stage.nodes_api().get("n1").await.expect("it exists");
    let owners = ours.metadata.owner_references.unwrap_or_default();
    let owner = owners.first().expect("the Node owns it");
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Node", node.metadata.uid.as_ref()));
    assert_eq!(ours.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("NodeHealthCheck-workers"));

    // What was not renewed is taken over when its time is over, and not before.
    let taken = stage.leases_api().get("node-n3").await.expect("it exists");
    let began_at = created_at(&taken);
    let spec = taken.spec.expect("a Lease has a spec");
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("NodeHealthCheck-workers"), Some(1)));
    let waited = created_at(&stage.remediations_api().get("n3").await.expect("it exists")).duration_since(began_at);
    assert!(waited >= SignedDuration::from_secs(11), "{waited}"); // Creation times have whole seconds.

    stage.leases_api().delete("node-n2", &DeleteParams::default()).await.expect("it can be deleted");
    stage.until_remediations(&["n1", "n2", "n3"]).await;
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&["n2", "n3"]).await;
    until(SOON, "the Lease is given back", || async {
        stage.leases_api().get_opt("node-n1").await.ok()?.is_none().then_some(())
    })
    .await;
}

async fn hold(stage: &Stage, node: &str, seconds: i32) {
    let now = Some(MicroTime(Timestamp::now()));
    let spec = LeaseSpec {
        holder_identity: Some(format!("NodeMaintenance-{node}")),
        lease_duration_seconds: Some(seconds),
        acquire_time: now.clone(),
        renew_time: now,
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { name: Some(format!("node-{node}")), ..ObjectMeta::default() };
    let lease = Lease { metadata, spec: Some(spec) };
    stage.leases_api().create(&PostParams::default(), &lease).await.expect("a Lease can be created");
}

/// Started from outside with an admin's kubeconfig: nobody made the namespace of the Leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_namespace_of_the_leases_is_made_where_it_is_missing() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    stage.check("workers", 5, "1").await;
    let _controller = stage.controller("controller", stage.cluster.admin_kubeconfig());
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    stage.leases_api().get("node-n1").await.expect("it holds the node");
}
