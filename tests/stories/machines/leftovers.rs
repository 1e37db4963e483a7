//! What stays behind when a check, or a machine's part in it, is gone?

use resus_harness::Cluster;
use serde_json::json;

use super::check::check;
use super::dialect::Dialect;
use super::site::{CLUSTER, Site, site};
use crate::stage::SOON;

const SIGNS: [&str; 3] = ["HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated"];

async fn until_clear(site: &Site, machine: &str) {
    for sign in SIGNS {
        site.until_says("Machine", machine, sign, &[]).await;
    }
}

/// Of somebody else, who is not to be touched: what it says about a machine that no check of ours watches over.
async fn theirs(site: &Site, machine: &str, node: &str) {
    site.machine(machine, CLUSTER, Some(node)).await;
    site.change("Machine", machine, json!({"metadata": {"labels": {"pool": "theirs"}}})).await;
    let says =
        |kind: &str| json!({"type": kind, "status": "False", "reason": "Theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    site.machine_status(machine, site.dialect.status_with(&SIGNS.map(says))).await;
}

async fn is_theirs(site: &Site, machine: &str) {
    for sign in SIGNS {
        let expected = site.dialect.each(["False Theirs"; 2]);
        assert_eq!(site.says("Machine", machine, sign).await, expected, "{sign} of {machine}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_we_wrote_goes_with_its_check_and_what_others_wrote_stays_in_v1alpha3() {
    what_we_wrote_goes_with_its_check_and_what_others_wrote_stays(Dialect::V1alpha3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_we_wrote_goes_with_its_check_and_what_others_wrote_stays_in_v1beta1() {
    what_we_wrote_goes_with_its_check_and_what_others_wrote_stays(Dialect::V1beta1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_we_wrote_goes_with_its_check_and_what_others_wrote_stays_in_v1beta2() {
    what_we_wrote_goes_with_its_check_and_what_others_wrote_stays(Dialect::V1beta2).await;
}

async fn what_we_wrote_goes_with_its_check_and_what_others_wrote_stays(dialect: Dialect) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    site.machines(4).await;
    theirs(&site, "m9", "n4").await;
    site.check(&check("workers")).await;
    let controller = site.controller().await;
    site.until_counters("workers", [4, 4, 4]).await;
    for node in ["n1", "n2"] {
        site.breaks(node).await;
    }
    site.until_asked(&["m1", "m2", "m9"]).await;

    // It leaves the selection.
    site.change("Machine", "m1", json!({"metadata": {"labels": {"pool": "others"}}})).await;
    until_clear(&site, "m1").await;
    site.until_counters("workers", [3, 2, 2]).await;
    site.change("Machine", "m1", json!({"metadata": {"labels": {"pool": "workers"}}})).await;
    site.until_asked(&["m1", "m2", "m9"]).await;

    // The check goes while the controller runs.
    site.delete("MachineHealthCheck", "workers").await;
    for machine in ["m1", "m2", "m3"] {
        until_clear(&site, machine).await;
    }
    is_theirs(&site, "m9").await;

    // Another goes while nobody runs.
    site.check(&check("workers")).await;
    site.until_asked(&["m1", "m2", "m9"]).await;
    controller.kill();
    site.delete("MachineHealthCheck", "workers").await;
    site.stage.forget_leader().await;
    controller.start_again().expect("it starts");
    controller.wait_for_log(" leading", SOON).await.expect("it leads");
    for machine in ["m1", "m2", "m3"] {
        until_clear(&site, machine).await;
    }
    is_theirs(&site, "m9").await;
    for machine in ["m1", "m4"] {
        assert!(!site.get("Machine", machine).await["status"]["nodeRef"].is_null(), "the rest of its status is as it was");
    }
}

/// Whoever does not want a machine to be repaired must not find it power-cycled all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remediation_goes_when_its_machine_is_to_be_skipped() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.machines(3).await;
    site.template().await;
    site.check(&check("workers").by_template()).await;
    let _controller = site.controller().await;
    site.until_counters("workers", [3, 3, 3]).await;
    for node in ["n1", "n2"] {
        site.breaks(node).await;
    }
    site.until_remediations(&["m1", "m2"]).await;
    site.until_says("Machine", "m1", "ExternallyRemediated", &["False WaitingForRemediation"]).await;
    site.annotate("Machine", "m1", "cluster.x-k8s.io/skip-remediation", Some("")).await;
    site.until_remediations(&["m2"]).await;
    until_clear(&site, "m1").await;
    site.until_says("Machine", "m2", "ExternallyRemediated", &["False WaitingForRemediation"]).await;
}

/// Its owner would still delete what is to be power-cycled now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_gets_a_template_takes_back_what_it_asked_of_owners() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.machines(3).await;
    site.template().await;
    site.check(&check("workers")).await;
    let _controller = site.controller().await;
    site.until_counters("workers", [3, 3, 3]).await;
    site.breaks("n1").await;
    site.until_asked(&["m1"]).await;
    let other = check("workers").by_template().render(site.dialect);
    site.change("MachineHealthCheck", "workers", json!({"spec": other["spec"]})).await;
    site.until_remediations(&["m1"]).await;
    site.until_says("Machine", "m1", "OwnerRemediated", &[]).await;
    site.until_says("Machine", "m1", "HealthCheckSucceeded", &["False UnhealthyNode"; 2]).await;
}

/// Nobody else would remove it, and its provider would go on with a machine that is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remediation_goes_with_its_check_and_before_its_owner_is_asked() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.machines(3).await;
    site.template().await;
    site.check(&check("workers").by_template()).await;
    let controller = site.controller().await;
    site.until_counters("workers", [3, 3, 3]).await;
    site.breaks("n1").await;
    site.until_says("Machine", "m1", "ExternallyRemediated", &["False WaitingForRemediation"]).await;

    // The check changes its mind.
    let other = check("workers").render(site.dialect);
    let remediation = serde_json::Value::Null;
    site.change("MachineHealthCheck", "workers", json!({"spec": {"remediation": remediation}})).await;
    site.change("MachineHealthCheck", "workers", json!({"spec": other["spec"]})).await;
    site.until_asked(&["m1"]).await;
    site.until_remediations(&[]).await;
    site.delete("MachineHealthCheck", "workers").await;
    until_clear(&site, "m1").await;

    // It goes while nobody runs.
    site.check(&check("workers").by_template()).await;
    site.until_says("Machine", "m1", "ExternallyRemediated", &["False WaitingForRemediation"]).await;
    controller.kill();
    site.delete("MachineHealthCheck", "workers").await;
    site.stage.forget_leader().await;
    controller.start_again().expect("it starts");
    site.until_remediations(&[]).await;
    until_clear(&site, "m1").await;
}
