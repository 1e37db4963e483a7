//! Definitions, rivals and permissions come and go.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use resus_harness::{Cluster, holds_for, until};
use serde_json::{Value, json};

use super::check::check;
use super::dialect::Dialect;
use super::site::{CLUSTER, Site, bare_site, site};
use crate::stage::SOON;

const TAKE_OVER: &str = "resus.dev/take-over";
/// Definitions that arrive are noticed within so long.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_arrive_while_the_controller_runs_are_noticed() {
    for dialect in [Dialect::V1beta2, Dialect::OpenShift] {
        let Some(site) = bare_site(dialect, Cluster::builder()).await else { return };
        let controller = site.controller().await;
        controller.wait_for_log(" leading", SOON).await.expect("it leads");
        site.definitions().await;
        if dialect.has_clusters() {
            site.cluster(CLUSTER, &site.stage.cluster).await;
        }
        site.machines(2).await;
        site.template().await;
        site.check(&check("workers").by_template()).await;
        site.breaks("n1").await;
        until(NOTICED_WITHIN, "the machine is repaired", || async { (site.remediations().await == ["m1"]).then_some(()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_others_are_left_alone_until_they_are_handed_over() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.machines(3).await;
    site.check(&check("workers")).await;
    site.breaks("n1").await;
    let controller = site.controller_with(&[]).await;
    controller.wait_for_log("not ours", SOON).await.expect("it says so");
    site.stays_untouched(3).await;
    assert!(site.get("MachineHealthCheck", "workers").await["status"].is_null(), "nothing is said about it either");
    // Cluster API's own controller is kept off by the first; the second makes it ours.
    site.annotate("MachineHealthCheck", "workers", "cluster.x-k8s.io/paused", Some("")).await;
    site.annotate("MachineHealthCheck", "workers", TAKE_OVER, Some("true")).await;
    site.until_asked(&["m1"]).await;
    assert_eq!(site.says("MachineHealthCheck", "workers", "Paused").await, [""; 0], "that is for the other to say");
    // It is theirs again: what we wrote is theirs to judge, and not renewed.
    site.annotate("MachineHealthCheck", "workers", TAKE_OVER, None).await;
    site.breaks("n2").await;
    holds_for(Duration::from_secs(3), "nothing more is asked for", || async {
        let said = site.says("Machine", "m2", "OwnerRemediated").await;
        if said.is_empty() { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_left_to_a_controller_that_is_alive_on_cluster_api() {
    checks_are_left_to_a_controller_that_is_alive(Dialect::V1beta2, "controller-leader-election-capi").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_left_to_a_controller_that_is_alive_on_openshift() {
    checks_are_left_to_a_controller_that_is_alive(Dialect::OpenShift, "cluster-api-provider-healthcheck-leader").await;
}

async fn checks_are_left_to_a_controller_that_is_alive(dialect: Dialect, leader: &str) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    site.machines(4).await;
    site.template().await;
    site.check(&check("workers").by_template()).await;
    site.breaks("n1").await;
    let rival = lead(&site, leader).await;
    let _controller = site.controller().await;
    let alive = async || renew(&rival, leader).await;
    until(SOON, "the check is left to the other", || async {
        alive().await;
        is_theirs(&site).await.then_some(())
    })
    .await;
    holds_for(Duration::from_secs(8), "longer than its Lease lasts, nothing is done", || async {
        alive().await;
        let made = site.remediations().await;
        if made.is_empty() { Ok(()) } else { Err(format!("{made:?}")) }
    })
    .await;

    // The check is ours by its own word, however alive the other is.
    site.annotate("MachineHealthCheck", "workers", TAKE_OVER, Some("true")).await;
    until(SOON, "m1 is repaired", || async {
        alive().await;
        (site.remediations().await == ["m1"]).then_some(())
    })
    .await;
    site.annotate("MachineHealthCheck", "workers", TAKE_OVER, None).await;
    until(SOON, "the check is theirs again", || async {
        alive().await;
        is_theirs(&site).await.then_some(())
    })
    .await;
    // From now on nobody renews the Lease.
    site.breaks("n2").await;
    site.until_remediations(&["m1", "m2"]).await;
    site.until_counters("workers", [4, 2, 2]).await;
}

async fn is_theirs(site: &Site) -> bool {
    let said = site.says("MachineHealthCheck", "workers", "RemediationAllowed").await;
    !said.is_empty() && said.iter().all(|said| said == "False ForeignController")
}

/// Where the other's leader holds its Lease, for five seconds.
async fn lead(site: &Site, name: &str) -> Api<Lease> {
    site.stage.kubectl(&["create", "namespace", "operators"]).await;
    let spec = LeaseSpec {
        holder_identity: Some("manager-0".to_owned()),
        lease_duration_seconds: Some(5),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let lease = Lease { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, spec: Some(spec) };
    let leases = site.stage.leases_in("operators");
    leases.create(&PostParams::default(), &lease).await.expect("a Lease can be created");
    leases
}

async fn renew(leases: &Api<Lease>, name: &str) {
    let renewed: Value = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
    leases.patch(name, &PatchParams::default(), &Patch::Merge(renewed)).await.expect("a Lease can be renewed");
}
