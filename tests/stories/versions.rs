//! Does a version go on where the one before it has left off, and the other way round?
//!
//! During a rollout both run, and either may lead: what one has begun the other must know again and end.

use std::path::Path;

use kube::ResourceExt as _;
use resus_harness::{Cluster, Process, previous_or_skip, until};
use serde_json::Value;

use crate::escalation::{two_steps, until_given_up, until_powered};
use crate::escalation_faults::{born_since, versions};
use crate::stage::{SOON, Stage, listed, stage};

/// The older one is killed in the middle of a repair; then each in turn hands over to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_before_and_this_one_lead_in_turns_and_each_ends_what_the_other_began() {
    let target = Path::new(env!("CARGO_BIN_EXE_resus")).ancestors().nth(2).expect("cargo builds into a folder of a folder");
    let Some(before) = previous_or_skip(target).await else { return };
    // Which rights an older version lacks, or uses, says nothing about those that we ship now.
    let Some(stage) = stage(Cluster::builder().lacks_rights()).await else { return };
    stage.power_provider().await;
    stage.nodes(6).await;
    stage.check_with("workers", "50%", two_steps()).await;
    let kubeconfig = stage.account().await;
    let since = versions(&stage).await;

    let old = stage.controller_of(&before, "before", &kubeconfig);
    old.wait_for_log(" leading", SOON).await.expect("the version before leads");
    breaks(&stage, "n1").await;
    let begun = Begun::of(&stage, "n1").await;
    old.kill();
    stage.forget_leader().await;

    let new = stage.controller("this", &kubeconfig);
    new.wait_for_log(" leading", SOON).await.expect("this version leads");
    breaks(&stage, "n2").await;
    begun.goes_on(&stage).await;
    // n1 is in the middle of its escalation when the other takes over.
    stage.provider_says("RebootRemediation", "n1", "Succeeded", "False").await;
    until_powered(&stage, SOON, &["n1"]).await;
    until_given_up(&stage, SOON, "n1").await;
    told(&stage, "n1", 2).await;
    let begun_by_us = Begun::of(&stage, "n2").await;
    hand_over(&new, &old).await;

    begun.goes_on(&stage).await;
    begun_by_us.goes_on(&stage).await;
    told(&stage, "n1", 2).await;
    stage.provider_says("RebootRemediation", "n2", "Succeeded", "False").await;
    until_powered(&stage, SOON, &["n1", "n2"]).await;
    until_given_up(&stage, SOON, "n2").await;
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_remediations(&["n2"]).await;
    until_powered(&stage, SOON, &["n2"]).await;
    released(&stage, "n1").await;
    breaks(&stage, "n3").await;
    hand_over(&old, &new).await;

    begun_by_us.goes_on(&stage).await;
    stage.stays(&["n2", "n3"]).await;
    for node in ["n2", "n3"] {
        stage.condition(node, "Ready", "True", 0).await;
    }
    stage.until_remediations(&[]).await;
    until_powered(&stage, SOON, &[]).await;
    for node in ["n2", "n3"] {
        released(&stage, node).await;
    }
    let is_well = |status: &Value| status["healthyNodes"] == 6 && status["unhealthyNodes"].is_null();
    stage.until_status("workers", "all is well", is_well).await;
    assert_eq!(born_since(&stage, &since).await, (3, 2), "each step was taken once");
}

/// What one version has begun on a node: the other must neither take it away nor begin it anew.
struct Begun {
    node: &'static str,
    remediation: Option<String>,
    lease: Option<String>,
    since: Value,
}

impl Begun {
    async fn of(stage: &Stage, node: &'static str) -> Begun {
        let remediation = stage.remediations_api().get(node).await.expect("it is being remediated").uid();
        let lease = stage.leases_api().get(&format!("node-{node}")).await.expect("a Lease holds it").uid();
        let status = told(stage, node, 1).await;
        let since = listed(&status, node)["remediations"][0]["started"].clone();
        assert!(since.is_string(), "{status}");
        Begun { node, remediation, lease, since }
    }

    async fn goes_on(&self, stage: &Stage) {
        let Begun { node, remediation, lease, since } = self;
        assert_eq!(&stage.remediations_api().get(node).await.expect("it is still there").uid(), remediation, "{node}");
        let held = stage.leases_api().get(&format!("node-{node}")).await.expect("a Lease still holds it");
        assert_eq!(&held.uid(), lease, "{node}");
        assert_eq!(held.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("NodeHealthCheck-workers"), "{node}");
        let status = stage.status("workers").await;
        assert_eq!(&listed(&status, node)["remediations"][0]["started"], since, "{status}");
    }
}

/// The first step is taken, and told of.
async fn breaks(stage: &Stage, node: &str) {
    stage.condition(node, "Ready", "False", 60).await;
    told(stage, node, 1).await;
}

/// The status tells of at least this many steps, and of when each was taken.
async fn told(stage: &Stage, node: &str, steps: usize) -> Value {
    stage
        .until_status("workers", &format!("{steps} steps of {node} are told"), |status| {
            let all = listed(status, node)["remediations"].as_array().map_or(&[][..], Vec::as_slice);
            all.len() >= steps && all.iter().all(|step| step["started"].is_string())
        })
        .await
}

async fn released(stage: &Stage, node: &str) {
    until(SOON, &format!("the Lease on {node} is given back"), || async {
        stage.leases_api().get_opt(&format!("node-{node}")).await.ok()?.is_none().then_some(())
    })
    .await;
}

/// As a rollout does it: the next one waits beside the one that leads, which is asked to stop.
async fn hand_over(from: &Process, to: &Process) {
    to.start_again().expect("it starts again");
    to.wait_for_log("listed", SOON).await.expect("it watches");
    let stopped = from.terminate(SOON).await.expect("it stops");
    assert!(stopped.success(), "{stopped}");
    to.wait_for_log(" leading", SOON).await.expect("it leads");
}
