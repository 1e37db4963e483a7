//! On OpenShift checks delete, or have machines power-cycled.

use std::time::Duration;

use resus_harness::{Cluster, holds_for, until};
use serde_json::json;

use super::check::check;
use super::dialect::Dialect;
use super::site::{CLUSTER, Site, ago, site};
use crate::stage::SOON;

const POWER_CYCLE: &str = "host.metal3.io/external-remediation";
const BEGUN: &str = "remediation.metal3.io/powered-off-for-remediation";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_are_ill_are_deleted_if_a_controller_would_make_others() {
    let Some(site) = site(Dialect::OpenShift, Cluster::builder()).await else { return };
    site.machines(8).await;
    site.machine("m9", CLUSTER, None).await;
    // An empty selector is that of all.
    let workers = check("workers").selector(json!({})).at_most("60%").startup(30);
    site.check(&workers.annotated("cluster.x-k8s.io/paused", "")).await;
    // It failed, its node is gone, its node is not ready, nobody would make another, no node ever came.
    site.machine_status("m1", json!({"phase": "Failed"})).await;
    site.stage.kubectl(&["delete", "node", "n2"]).await;
    site.stage.condition("n3", "Ready", "Unknown", 60).await;
    site.change("Machine", "m4", json!({"metadata": {"ownerReferences": null}})).await;
    site.breaks("n4").await;
    site.machine_status("m9", json!({"lastUpdated": ago(60)})).await;
    let _controller = site.controller().await;
    site.stays_untouched(9).await;
    site.annotate("MachineHealthCheck", "workers", "cluster.x-k8s.io/paused", None).await;

    site.until_names(&["m4", "m5", "m6", "m7", "m8"]).await;
    for machine in ["m1", "m2", "m3", "m9"] {
        site.until_event("MachineDeleted", &format!("Machine {machine}"), "MachineHealthCheck default/workers").await;
    }
    site.until_event("SkippedNoController", "Machine m4", "no controller owns the Machine").await;
    site.until_told("workers", "RemediationHeld", "True SkippedNoController", "m4").await;
    site.until_counters("workers", [5, 4, 2]).await;

    // Nothing is written on machines, and checks say no more than the reference's.
    let machine = site.get("Machine", "m4").await;
    assert!(machine["status"]["conditions"].is_null(), "{machine}");
    let status = site.get("MachineHealthCheck", "workers").await;
    assert!(status["status"]["targets"].is_null() && status["status"]["observedGeneration"].is_null(), "{status}");
    assert_eq!(site.times_told("SkippedNoController").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_in_a_storm_and_it_is_told_once() {
    let Some(site) = site(Dialect::OpenShift, Cluster::builder()).await else { return };
    site.machines(5).await;
    for node in ["n1", "n2", "n3"] {
        site.breaks(node).await;
    }
    site.check(&check("workers").at_most("40%")).await;
    let _controller = site.controller().await;
    site.until_told("workers", "RemediationAllowed", "False TooManyUnhealthy", "").await;
    site.until_event("RemediationRestricted", "MachineHealthCheck workers", "").await;
    site.until_counters("workers", [5, 2, 0]).await;
    site.stays_untouched(5).await;
    assert_eq!(site.times_told("RemediationRestricted").await, 1);
    // At the limit it acts.
    site.recovers("n1").await;
    site.until_names(&["m1", "m4", "m5"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cycle_is_asked_for_by_annotation_and_taken_back_unless_it_has_begun() {
    let Some(site) = site(Dialect::OpenShift, Cluster::builder()).await else { return };
    site.machines(4).await;
    let strategy = ("machine.openshift.io/remediation-strategy", "external-baremetal");
    site.check(&check("workers").annotated(strategy.0, strategy.1)).await;
    let _controller = site.controller().await;
    site.until_told("workers", "DeprecatedStrategy", "True StrategyAnnotation", "remediationTemplate").await;
    site.until_counters("workers", [4, 4, 4]).await;
    site.breaks("n1").await;
    site.breaks("n2").await;
    for machine in ["m1", "m2"] {
        until_marked(&site, machine, true).await;
        site.until_event("ExternalAnnotationAdded", &format!("Machine {machine}"), "").await;
    }
    site.until_counters("workers", [4, 2, 2]).await;

    // The actuator has begun with m2, and finds its way back by this.
    site.annotate("Machine", "m2", BEGUN, Some("")).await;
    site.recovers("n2").await;
    site.recovers("n1").await;
    until_marked(&site, "m1", false).await;
    site.until_event("ExternalAnnotationRemoved", "Machine m1", "").await;
    site.until_counters("workers", [4, 3, 3]).await;
    holds_for(Duration::from_secs(3), "m2 is left to the actuator", || async {
        if is_marked(&site, "m2").await { Ok(()) } else { Err("the annotation is gone".to_owned()) }
    })
    .await;
    // It removes all of them when it is done.
    site.change("Machine", "m2", json!({"metadata": {"annotations": {BEGUN: null, POWER_CYCLE: null}}})).await;
    site.until_counters("workers", [4, 4, 4]).await;

    // What failed is not worth it.
    site.machine_status("m3", json!({"phase": "Failed"})).await;
    site.until_names(&["m1", "m2", "m4"]).await;
    assert_eq!(site.times_told("DeprecatedStrategy").await, 1);
}

async fn is_marked(site: &Site, machine: &str) -> bool {
    !site.get("Machine", machine).await["metadata"]["annotations"][POWER_CYCLE].is_null()
}

async fn until_marked(site: &Site, machine: &str, marked: bool) {
    let what = format!("a power-cycle of {machine} is asked for: {marked}");
    until(SOON, &what, || async { (is_marked(site, machine).await == marked).then_some(()) }).await;
}
