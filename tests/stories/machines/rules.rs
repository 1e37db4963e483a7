//! What makes a machine unhealthy, and what keeps it from being judged?

use std::time::Duration;

use resus_harness::{Cluster, holds_for};
use serde_json::json;

use super::check::check;
use super::dialect::Dialect;
use super::site::{CLUSTER, ago, site};

const PAUSED: &str = "cluster.x-k8s.io/paused";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_found_ill_for_what_is_wrong_with_them_in_v1alpha3() {
    machines_are_found_ill_for_what_is_wrong_with_them(Dialect::V1alpha3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_found_ill_for_what_is_wrong_with_them_in_v1beta1() {
    machines_are_found_ill_for_what_is_wrong_with_them(Dialect::V1beta1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_are_found_ill_for_what_is_wrong_with_them_in_v1beta2() {
    machines_are_found_ill_for_what_is_wrong_with_them(Dialect::V1beta2).await;
}

async fn machines_are_found_ill_for_what_is_wrong_with_them(dialect: Dialect) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    let has_machine_rules = dialect != Dialect::V1alpha3;
    site.machines(7).await;
    site.machine("m8", CLUSTER, None).await;
    // Somebody asks for it, the node is gone, the machine itself is not well, people forbid it, no node ever came.
    site.annotate("Machine", "m1", "cluster.x-k8s.io/remediate-machine", Some("")).await;
    site.stage.kubectl(&["delete", "node", "n2"]).await;
    let gone = json!({"type": "InfrastructureReady", "status": "False", "reason": "Gone", "lastTransitionTime": ago(60)});
    let mut status = dialect.status_with(&[gone]);
    status["nodeRef"] = dialect.node_ref("n3");
    site.machine_status("m3", status).await;
    for (node, machine, mark) in [("n4", "m4", "cluster.x-k8s.io/skip-remediation"), ("n5", "m5", PAUSED)] {
        site.annotate("Machine", machine, mark, Some("")).await;
        site.breaks(node).await;
    }
    let mut workers = check("workers").startup(5).annotated(PAUSED, "true");
    if has_machine_rules {
        workers = workers.machine_rule("InfrastructureReady");
    }
    site.check(&workers).await;
    let _controller = site.controller().await;

    // Whatever is wrong, a check that is paused writes nothing on machines.
    let is_new = dialect.conditions().len() == 2;
    if is_new {
        site.until_says("MachineHealthCheck", "workers", "Paused", &["True Paused"]).await;
    }
    holds_for(Duration::from_secs(3), "nothing is written", || async {
        let said = site.says("Machine", "m1", "HealthCheckSucceeded").await;
        if said.is_empty() { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
    site.annotate("MachineHealthCheck", "workers", PAUSED, None).await;

    let mut ill = vec![
        ("m1", dialect.each(["False HasRemediateAnnotation", "False HasRemediateMachineAnnotation"])),
        ("m2", dialect.each(["False NodeDeleted", "False NodeNotFound"])),
        ("m8", dialect.each(["False NodeStartupTimeout"; 2])),
    ];
    if has_machine_rules {
        ill.insert(2, ("m3", dialect.each(["False UnhealthyMachine"; 2])));
    }
    for (machine, says) in &ill {
        site.until_says("Machine", machine, "HealthCheckSucceeded", says).await;
    }
    let asked: Vec<&str> = ill.iter().map(|(machine, _)| *machine).collect();
    site.until_asked(&asked).await;
    let healthy = 6 - u32::try_from(ill.len()).expect("a few");
    site.until_counters("workers", [6, healthy, healthy]).await;
    if is_new {
        site.until_says("MachineHealthCheck", "workers", "Paused", &["False NotPaused"]).await;
    }
    for machine in ["m4", "m5"] {
        assert_eq!(site.says("Machine", machine, "HealthCheckSucceeded").await, [""; 0], "{machine} is no target");
    }

    // A Cluster that is paused is not touched.
    site.change("Cluster", CLUSTER, json!({"spec": {"paused": true}})).await;
    if is_new {
        site.until_says("MachineHealthCheck", "workers", "Paused", &["True Paused"]).await;
    }
    site.breaks("n6").await;
    site.stays_asked(&asked).await;
    site.change("Cluster", CLUSTER, json!({"spec": {"paused": false}})).await;
    let mut more = asked;
    more.insert(more.len() - 1, "m6");
    site.until_asked(&more).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_number_within_the_range_is_repaired_in_v1beta1() {
    only_a_number_within_the_range_is_repaired(Dialect::V1beta1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_number_within_the_range_is_repaired_in_v1beta2() {
    only_a_number_within_the_range_is_repaired(Dialect::V1beta2).await;
}

async fn only_a_number_within_the_range_is_repaired(dialect: Dialect) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    site.machines(5).await;
    // It goes before a threshold.
    site.check(&check("workers").range("[2-3]").at_most("100%")).await;
    let _controller = site.controller().await;
    let outside = ["False TooManyUnhealthy"; 2];
    site.until_says("MachineHealthCheck", "workers", "RemediationAllowed", &outside).await;
    site.until_counters("workers", [5, 5, 0]).await;
    assert_eq!(site.times_told("RemediationRestricted").await, 0, "nobody is ill, so it is no news");

    site.breaks("n1").await;
    site.until_says("Machine", "m1", "HealthCheckSucceeded", &["False UnhealthyNode"; 2]).await;
    site.until_event("RemediationRestricted", "MachineHealthCheck workers", "").await;
    site.stays_asked(&[]).await;

    site.breaks("n2").await;
    site.until_asked(&["m1", "m2"]).await;
    site.until_counters("workers", [5, 3, 1]).await;
    site.until_says("MachineHealthCheck", "workers", "RemediationAllowed", &["True RemediationAllowed", "True"]).await;
    site.breaks("n3").await;
    site.until_asked(&["m1", "m2", "m3"]).await;
    site.breaks("n4").await;
    site.until_says("Machine", "m4", "HealthCheckSucceeded", &["False UnhealthyNode"; 2]).await;
    site.until_says("MachineHealthCheck", "workers", "RemediationAllowed", &outside).await;
    site.stays_asked(&["m1", "m2", "m3"]).await;
}
