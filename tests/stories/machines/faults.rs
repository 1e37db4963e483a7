//! Requests are lost, late or refused, and the controller dies in between: afterwards everything is as it should be, once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resus_harness::{Action, Asked, Cluster, Process, Proxy, until};
use serde_json::json;

use super::check::{Check, check};
use super::dialect::Dialect;
use super::site::{Site, site};

const LATE: Duration = Duration::from_secs(60);

/// With a controller that leads, through a proxy.
async fn running(dialect: Dialect, check: &Check) -> Option<(Site, Proxy, Process)> {
    let site = site(dialect, Cluster::builder().audit(true)).await?;
    site.machines(6).await;
    site.template().await;
    site.check(check).await;
    let proxy = Proxy::in_front_of(&site.stage.cluster).await.expect("the proxy starts");
    let direct = site.machine_account().await;
    let kubeconfig = site.stage.cluster.kubeconfig_via(&proxy.url(), &direct).expect("a kubeconfig can be written");
    let controller = site.stage.controller_with("controller", &kubeconfig, &["--mhc=all"]);
    site.until_counters("workers", [6, 6, 6]).await;
    Some((site, proxy, controller))
}

/// A machine is repaired, and well again.
async fn works_by_template(site: &Site, node: &str) {
    let machine = node.replace('n', "m");
    site.breaks(node).await;
    until(LATE, "the machine is remediated", || async { (site.remediations().await == [&*machine]).then_some(()) }).await;
    site.until_says("Machine", &machine, "ExternallyRemediated", &["False WaitingForRemediation"]).await;
    site.recovers(node).await;
    until(LATE, "it is over", || async { site.remediations().await.is_empty().then_some(()) }).await;
    site.until_says("Machine", &machine, "ExternallyRemediated", &[]).await;
}

async fn works_by_owner(site: &Site, node: &str) {
    let machine = node.replace('n', "m");
    site.breaks(node).await;
    until(LATE, "the owner is asked", || async { (site.asked().await == [&*machine]).then_some(()) }).await;
    site.recovers(node).await;
    until(LATE, "it is taken back", || async { site.asked().await.is_empty().then_some(()) }).await;
    site.until_says("Machine", &machine, "OwnerRemediated", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_lost() {
    let Some((site, proxy, controller)) = running(Dialect::V1beta2, &check("workers").by_template()).await else { return };
    for (node, method, path) in [
        ("n1", "POST", "/rebootremediations"),
        ("n2", "DELETE", "/rebootremediations/"),
        ("n3", "PATCH", "/machines/"),
        ("n4", "PATCH", "/machinehealthchecks/"),
        ("n5", "POST", "/events"),
    ] {
        let lost = proxy.rule(move |asked| asked.is(method, path), Action::LoseAnswer).times(1);
        works_by_template(&site, node).await;
        lost.reached().await;
    }
    assert_eq!(site.stage.times_created_of("rebootremediations"), 5, "each once");
    site.until_counters("workers", [6, 6, 6]).await;
    assert!(controller.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_second_write_is_refused_and_others_write_in_between() {
    let Some((site, proxy, controller)) = running(Dialect::V1beta1, &check("workers")).await else { return };
    let writes = AtomicUsize::new(0);
    let is_second = move |asked: &Asked| asked.method != "GET" && writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    let busy = proxy.rule(is_second, Action::too_many_requests(Duration::from_secs(1))).always();
    for node in ["n1", "n2"] {
        works_by_owner(&site, node).await;
    }
    assert!(busy.hits() >= 6, "{} writes were refused", busy.hits());
    busy.remove().await;

    // Somebody moves the conditions about while ours are on their way: none of theirs may be hit.
    let late = proxy.rule(|asked| asked.is("PATCH", "/machines/m3/status"), Action::HoldBefore).times(1);
    site.breaks("n3").await;
    late.reached().await;
    let theirs =
        json!({"type": "BootstrapReady", "status": "True", "reason": "Theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ours = site.get("Machine", "m3").await["status"]["conditions"].clone();
    let list: Vec<_> = [theirs].into_iter().chain(ours.as_array().cloned().unwrap_or_default()).collect();
    site.machine_status("m3", json!({"conditions": list})).await;
    late.release().await;
    site.until_asked(&["m3"]).await;
    let machine = site.get("Machine", "m3").await;
    let kinds: Vec<&str> = machine["status"]["conditions"]
        .as_array()
        .expect("it has conditions")
        .iter()
        .filter_map(|condition| condition["type"].as_str())
        .collect();
    assert_eq!(kinds, ["BootstrapReady", "HealthCheckSucceeded", "OwnerRemediated"], "{machine}");
    assert!(controller.is_running());
}

/// It has stored what it asked for, and never heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_dies_between_two_writes_leaves_nothing_undone() {
    let Some((site, proxy, controller)) = running(Dialect::V1beta2, &check("workers").by_template()).await else { return };
    let made = proxy.rule(|asked| asked.is("POST", "/rebootremediations"), Action::HoldAfter).times(1);
    site.breaks("n1").await;
    made.reached().await;
    controller.kill();
    // While nobody looks, another one breaks, and the first is well again.
    site.breaks("n2").await;
    site.recovers("n1").await;
    site.stage.forget_leader().await;
    controller.start_again().expect("it starts");
    until(LATE, "it is put in order", || async { (site.remediations().await == ["m2"]).then_some(()) }).await;
    site.until_says("Machine", "m1", "ExternallyRemediated", &[]).await;
    site.until_says("Machine", "m1", "HealthCheckSucceeded", &["True HealthCheckSucceeded", "True"]).await;
    site.until_counters("workers", [6, 5, 5]).await;
    assert_eq!(site.stage.times_created_of("rebootremediations"), 2);

    // The server itself goes away and comes back.
    site.stage.cluster.apiserver().kill();
    site.stage.cluster.apiserver().restart().await.expect("it comes back");
    site.recovers("n2").await;
    until(LATE, "it goes on", || async { site.remediations().await.is_empty().then_some(()) }).await;
    works_by_template(&site, "n3").await;
    assert!(controller.is_running());
}
