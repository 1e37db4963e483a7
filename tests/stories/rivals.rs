//! Somebody else's controller takes care of the same checks.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use resus_harness::{Cluster, holds_for, until};
use serde_json::{Value, json};

use crate::stage::{SOON, Stage, condition, listed, stage};

const LEADER: &str = "e1f13584.medik8s.io";

/// Two controllers on one check would fight: the other's is left alone until it says so, or the other is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_left_to_a_controller_that_is_alive_unless_they_say_otherwise() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(6).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    stage.kubectl(&["create", "namespace", "operators"]).await;
    let rival = lead(&stage, "operators").await;
    stage.condition("n1", "Ready", "False", 60).await;
    let _controller = stage.controller("controller", &kubeconfig);

    let status = until(SOON, "the check is left to the other", || async {
        renew(&rival).await;
        let status = stage.status("workers").await;
        is_theirs(&status).then_some(status)
    })
    .await;
    let told = condition(&status, "Disabled")["message"].as_str().unwrap_or_default();
    assert!(told.contains("manager-0") && told.contains("operators/e1f13584.medik8s.io"), "{status}");
    assert!(told.contains("resus.dev/take-over=true"), "it says what to do: {status}");
    holds_for(Duration::from_secs(8), "longer than its Lease lasts, nothing is done", || async {
        renew(&rival).await;
        let names = stage.remediations().await;
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;

    // The check is ours by its own word, however alive the other is.
    take_over(&stage, json!("true")).await;
    until(SOON, "n1 is remediated", || async {
        renew(&rival).await;
        (stage.remediations().await == ["n1"]).then_some(())
    })
    .await;
    take_over(&stage, Value::Null).await;
    until(SOON, "the check is theirs again", || async {
        renew(&rival).await;
        is_theirs(&stage.status("workers").await).then_some(())
    })
    .await;

    // From now on nobody renews the Lease.
    stage.condition("n2", "Ready", "False", 60).await;
    stage.until_remediations(&["n1", "n2"]).await;
    let status = stage.until_status("workers", "it is ours", |status| !listed(status, "n2").is_null()).await;
    assert_eq!(condition(&status, "Disabled")["status"], "False", "{status}");
}

fn is_theirs(status: &Value) -> bool {
    let disabled = condition(status, "Disabled");
    disabled["status"] == "True" && disabled["reason"] == "ForeignController" && status["phase"] == "Disabled"
}

async fn take_over(stage: &Stage, says: Value) {
    let change = json!({"metadata": {"annotations": {"resus.dev/take-over": says}}});
    stage.change_check("workers", change).await.expect("it can be annotated");
}

/// Where the other's leader holds its Lease, for five seconds.
async fn lead(stage: &Stage, namespace: &str) -> Api<Lease> {
    let spec = LeaseSpec {
        holder_identity: Some("manager-0".to_owned()),
        lease_duration_seconds: Some(5),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let lease = Lease { metadata: ObjectMeta { name: Some(LEADER.to_owned()), ..ObjectMeta::default() }, spec: Some(spec) };
    let leases = stage.leases_in(namespace);
    leases.create(&PostParams::default(), &lease).await.expect("a Lease can be created");
    leases
}

async fn renew(leases: &Api<Lease>) {
    let renewed = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
    leases.patch(LEADER, &PatchParams::default(), &Patch::Merge(renewed)).await.expect("a Lease can be renewed");
}
