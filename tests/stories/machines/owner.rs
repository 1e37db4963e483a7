//! Owners repair, on what stands on their machines.

use resus_harness::Cluster;
use serde_json::{Value, json};

use super::check::check;
use super::dialect::Dialect;
use super::site::{posted, site};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_is_asked_and_the_request_is_taken_back_in_v1alpha3() {
    an_owner_is_asked_and_the_request_is_taken_back(Dialect::V1alpha3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_is_asked_and_the_request_is_taken_back_in_v1beta1() {
    an_owner_is_asked_and_the_request_is_taken_back(Dialect::V1beta1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_is_asked_and_the_request_is_taken_back_in_v1beta2() {
    an_owner_is_asked_and_the_request_is_taken_back(Dialect::V1beta2).await;
}

async fn an_owner_is_asked_and_the_request_is_taken_back(dialect: Dialect) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    site.machines(5).await;
    site.check(&check("workers").at_most("40%")).await;
    // Somebody else's, before and after ours in the alphabet.
    let long_ago = "2026-01-01T00:00:00Z";
    let theirs = |kind: &str| json!({"type": kind, "status": "True", "reason": "Theirs", "lastTransitionTime": long_ago});
    let mut status = dialect.status_with(&["Ready", "BootstrapReady", "InfrastructureReady", "Updated"].map(theirs));
    status["nodeRef"] = dialect.node_ref("n1");
    site.machine_status("m1", status).await;
    let controller = site.controller().await;
    site.until_counters("workers", [5, 5, 2]).await;
    let well = dialect.each(["True HealthCheckSucceeded", "True"]);
    for machine in ["m1", "m2", "m5"] {
        site.until_says("Machine", machine, "HealthCheckSucceeded", &well).await;
    }
    let allowed = dialect.each(["True RemediationAllowed", "True"]);
    site.until_says("MachineHealthCheck", "workers", "RemediationAllowed", &allowed).await;

    site.breaks("n1").await;
    let ill = dialect.each(["False UnhealthyNode"; 2]);
    site.until_says("Machine", "m1", "HealthCheckSucceeded", &ill).await;
    site.until_says("Machine", "m1", "OwnerRemediated", &dialect.each(["False WaitingForRemediation"; 2])).await;
    site.until_counters("workers", [5, 4, 1]).await;
    let why = "condition Ready of the Node is False (Story) for more than 5s";
    site.until_event("MachineMarkedUnhealthy", "Machine m1", why).await;
    let machine = site.get("Machine", "m1").await;
    for path in dialect.conditions() {
        let list = machine.pointer(path).and_then(Value::as_array).expect("it has conditions");
        let kinds: Vec<&str> = list.iter().filter_map(|condition| condition["type"].as_str()).collect();
        let sorted = ["Ready", "BootstrapReady", "HealthCheckSucceeded", "InfrastructureReady", "OwnerRemediated", "Updated"];
        assert_eq!(kinds, sorted, "in the order of the reference, and theirs are still there: {path}");
        let said = posted(&machine, path, "HealthCheckSucceeded").expect("it is there");
        let is_legacy = *path == dialect.legacy();
        assert_eq!(said["severity"].as_str(), is_legacy.then_some("Warning"), "{said}");
        assert_eq!(said["observedGeneration"].is_null(), is_legacy, "{said}");
    }
    let not_paused = dialect.each([Some("False NotPaused"), None]);
    let not_paused: Vec<&str> = not_paused.into_iter().flatten().collect();
    assert_eq!(site.says("MachineHealthCheck", "workers", "Paused").await, not_paused, "in the new style alone");
    let status = site.get("MachineHealthCheck", "workers").await;
    assert_eq!(status["status"]["targets"], json!(["m1", "m2", "m3", "m4", "m5"]), "{status}");
    assert_eq!(status["status"]["observedGeneration"], status["metadata"]["generation"], "{status}");

    // At the limit it still acts; above it nothing starts, and what is ill is called so.
    site.breaks("n2").await;
    site.until_asked(&["m1", "m2"]).await;
    site.until_counters("workers", [5, 3, 0]).await;
    site.breaks("n3").await;
    site.until_says("Machine", "m3", "HealthCheckSucceeded", &ill).await;
    let restricted = dialect.each(["False TooManyUnhealthy"; 2]);
    site.until_says("MachineHealthCheck", "workers", "RemediationAllowed", &restricted).await;
    site.until_event("RemediationRestricted", "MachineHealthCheck workers", "").await;
    site.until_counters("workers", [5, 2, 0]).await;
    site.stays_asked(&["m1", "m2"]).await;

    for node in ["n1", "n2", "n3"] {
        site.recovers(node).await;
    }
    site.until_asked(&[]).await;
    for machine in ["m1", "m2", "m3"] {
        site.until_says("Machine", machine, "HealthCheckSucceeded", &well).await;
        site.until_says("Machine", machine, "OwnerRemediated", &[]).await;
    }
    site.until_counters("workers", [5, 5, 2]).await;
    assert_eq!(site.times_told("MachineMarkedUnhealthy").await, 3, "of each once");
    assert!(controller.is_running());
}
