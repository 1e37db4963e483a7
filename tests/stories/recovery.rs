//! A node is well again, or gone; and whose was it meanwhile?

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use resus_harness::{Cluster, holds_for, until};
use serde_json::{Value, json};

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

/// However often it relapses, and however briefly: only a node that is well all along is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_flaps_keeps_its_remediation_until_it_has_been_well_for_the_whole_delay() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    let delay = SignedDuration::from_secs(6);
    stage.nodes(3).await;
    stage.check_with("workers", "1", json!({"healthyDelay": "6s"})).await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;

    let began_at = Timestamp::now();
    let mut well_since = Vec::new();
    // Flaps until the first delay is over twice; each relapse is over before it would make the node unhealthy.
    while Timestamp::now().duration_since(began_at) < delay * 2 {
        stage.condition("n1", "Ready", "True", 0).await;
        let status = stage.until_status("workers", "delayed", |status| listed(status, "n1")["healthyDelayed"] == true).await;
        well_since.push(time(&listed(&status, "n1")["conditionsHealthyTimestamp"]));
        stage.condition("n1", "Ready", "False", 0).await;
        let relapsed = |status: &Value| {
            let node = listed(status, "n1");
            !node.is_null() && node["healthyDelayed"].is_null() && node["conditionsHealthyTimestamp"].is_null()
        };
        stage.until_status("workers", "the relapse is told", relapsed).await;
        until(SOON, "the delay is taken back", || async { delayed_since(&stage, "n1").await.is_none().then_some(()) }).await;
    }
    assert!(well_since.len() > 1 && well_since.is_sorted(), "{well_since:?}");
    assert_eq!(stage.remediations().await, ["n1"]);

    stage.condition("n1", "Ready", "True", 0).await;
    let recovered_at = Timestamp::now();
    stage.until_remediations(&[]).await;
    let waited = Timestamp::now().duration_since(recovered_at);
    assert!(waited >= delay - SignedDuration::from_secs(1), "{waited}"); // Conditions have whole seconds.
    stage.until_status("workers", "all is well", |status| status["healthyNodes"] == 3).await;
    assert_eq!(stage.times_created(), 1, "it was one remediation all along");
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

/// Its provider holds what there is of n1, which is gone, and of n2, which has recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_provider_holds_by_a_finalizer_stays_until_the_provider_lets_go() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(4).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_remediations(&["n1", "n2"]).await;
    for node in ["n1", "n2"] {
        finalizers(&stage, node, json!(["provider.test/works"])).await;
    }
    // The node goes only when the controller has heard of the finalizer: it is the reason to wait.
    stage.condition("n2", "Ready", "True", 0).await;
    let leaving = |name: &'static str| {
        let stage = &stage;
        async move { stage.remediations_api().get(name).await.expect("it exists").metadata.deletion_timestamp.is_some() }
    };
    until(SOON, "that of n2 is deleted", || async { leaving("n2").await.then_some(()) }).await;
    stage.nodes_api().delete("n1", &DeleteParams::default()).await.expect("a Node can be deleted");
    let told = |status: &Value| {
        let remains = |node: &str| listed(status, node)["remediations"][0]["resource"]["name"] == node;
        status["observedNodes"] == 3 && status["phase"] == "Remediating" && remains("n1") && remains("n2")
    };
    stage.until_status("workers", "what is left of both is told", told).await;
    stage.stays(&["n1", "n2"]).await;
    assert!(!leaving("n1").await, "its provider is at work");
    for node in ["n1", "n2"] {
        let kept = stage.remediations_api().get(node).await.expect("it exists").metadata.finalizers;
        assert_eq!(kept, Some(vec!["provider.test/works".to_owned()]));
    }

    for node in ["n1", "n2"] {
        finalizers(&stage, node, json!(null)).await;
    }
    stage.until_remediations(&[]).await;
    let is_well = |status: &Value| status["phase"] == "Enabled" && status["unhealthyNodes"].is_null();
    stage.until_status("workers", "nothing is left of them", is_well).await;
}

async fn finalizers(stage: &Stage, name: &str, finalizers: Value) {
    let change = json!({"metadata": {"finalizers": finalizers}});
    let patched = stage.remediations_api().patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.expect("a remediation can be patched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_held_by_one_at_a_time() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    hold(&stage.leases_api(), "n2", 3600).await;
    hold(&stage.leases_api(), "n3", 12).await;
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

async fn hold(leases: &Api<Lease>, node: &str, seconds: i32) {
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
    leases.create(&PostParams::default(), &lease).await.expect("a Lease can be created");
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

/// As the other operators of the family can be told, too; they have to agree on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leases_on_nodes_are_where_the_environment_says() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let rights = "--verb=list,watch,create,update,delete";
    stage.kubectl(&["create", "namespace", "our-leases"]).await;
    stage.kubectl(&["create", "role", "leases", "-n", "our-leases", rights, "--resource=leases.coordination.k8s.io"]).await;
    let to = "--serviceaccount=poison-pill:resus-controller";
    stage.kubectl(&["create", "rolebinding", "leases", "-n", "our-leases", "--role=leases", to]).await;
    hold(&stage.leases_in("our-leases"), "n1", 3600).await;
    hold(&stage.leases_api(), "n2", 3600).await;
    let _controller = stage.controller_in("controller", &kubeconfig, &[], &[("LEASE_NAMESPACE", "our-leases")]);
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_held("workers", "n1", "NodeMaintenance-n1 has the node out of service").await;
    stage.stays(&["n2"]).await;
    let ours = stage.leases_in("our-leases").get("node-n2").await.expect("it exists");
    assert_eq!(ours.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("NodeHealthCheck-workers"));
    let theirs = stage.leases_api().get("node-n2").await.expect("nobody touched it");
    assert_eq!(theirs.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("NodeMaintenance-n2"));
    stage.condition("n2", "Ready", "True", 0).await;
    until(SOON, "it is given back", || async {
        stage.leases_in("our-leases").get_opt("node-n2").await.ok()?.is_none().then_some(())
    })
    .await;
}
