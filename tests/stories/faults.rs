//! The API server restarts, etcd stands still, watches are cut, expire, or are refused: afterwards the state is right.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resus_harness::{Action, Asked, Cluster, Process, Proxy, Rule, holds_for, until};
use serde_json::{Value, json};

use crate::stage::{SOON, Stage, condition, stage};

/// With a controller that leads, through a proxy.
async fn running(nodes: usize, seconds: u32) -> Option<(Stage, Proxy, Process)> {
    let stage = stage(Cluster::builder().audit(true)).await?;
    stage.check("workers", seconds, "50%").await;
    let (proxy, controller) = begin(&stage, nodes).await;
    Some((stage, proxy, controller))
}

/// When there is a check.
pub async fn begin(stage: &Stage, nodes: usize) -> (Proxy, Process) {
    stage.nodes(nodes).await;
    let proxy = Proxy::in_front_of(&stage.cluster).await.expect("the proxy starts");
    let kubeconfig = stage.account_through(&proxy).await;
    let controller = stage.controller("controller", &kubeconfig);
    stage.until_status("workers", "the check is served", |status| status["phase"] == "Enabled").await;
    (proxy, controller)
}

/// 429 for every second write, until it is removed.
pub fn refuse_every_second_write(proxy: &Proxy) -> Rule {
    let writes = AtomicUsize::new(0);
    let is_second = move |asked: &Asked| asked.method != "GET" && writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    proxy.rule(is_second, Action::too_many_requests(Duration::from_secs(1))).always()
}

/// 410 for each attempt to watch: lists alone must do. Returns when it has been felt.
pub async fn expire_every_watch(proxy: &Proxy) -> Rule {
    let gone = proxy.rule(|asked| asked.path.contains("watch=true"), Action::gone()).always();
    proxy.cut_all().await;
    gone.reached_times(8).await;
    gone
}

/// For thirty seconds: longer than a leader's Lease lasts.
pub async fn etcd_stands_still(stage: &Stage, controller: &Process) {
    stage.cluster.etcd().pause();
    holds_for(Duration::from_secs(30), "the controller bears it", || async {
        if controller.is_running() { Ok(()) } else { Err(controller.last_lines(20)) }
    })
    .await;
    stage.cluster.etcd().resume();
    stage.cluster.apiserver().wait_ready().await.expect("it is ready again");
}

/// Whether everything still works: a node breaks and recovers.
async fn works(stage: &Stage, node: &str) {
    stage.condition(node, "Ready", "False", 3600).await;
    until(Duration::from_secs(60), "the node is remediated", || async { (stage.remediations().await == [node]).then_some(()) })
        .await;
    stage.until_status("workers", "it is reported", |status| status["phase"] == "Remediating").await;
    stage.condition(node, "Ready", "True", 0).await;
    until(Duration::from_secs(60), "the remediation is removed", || async {
        stage.remediations().await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_starts_while_the_clocks_differ() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.check("workers", 5, "50%").await;
    stage.nodes(4).await;
    stage.condition("n1", "Ready", "False", 3600).await;
    let proxy = Proxy::in_front_of(&stage.cluster).await.expect("the proxy starts");
    proxy.shift_dates(-600);
    let kubeconfig = stage.account_through(&proxy).await;
    let _controller = stage.controller("controller", &kubeconfig);
    let is_told = |status: &Value| {
        let told = condition(status, "RemediationAllowed");
        told["reason"] == "ClockDiffers"
            && told["message"].as_str().is_some_and(|text| text.contains("ahead of that of the API server"))
    };
    stage.until_status("workers", "the clocks differ", is_told).await;
    stage.stays(&[]).await;
    proxy.shift_dates(0);
    stage.until_remediations(&["n1"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_restarts() {
    let Some((stage, _proxy, controller)) = running(4, 5).await else { return };
    works(&stage, "n1").await;
    stage.condition("n2", "Ready", "False", 60).await;
    stage.until_remediations(&["n2"]).await;
    // What the server has answered last may be missing in the log of one that is killed.
    until(SOON, "it stands in the audit log", || async { (stage.times_created() == 2).then_some(()) }).await;
    stage.cluster.apiserver().kill();
    stage.cluster.apiserver().restart().await.expect("it comes back");
    stage.condition("n2", "Ready", "True", 0).await;
    until(Duration::from_secs(60), "the remediation is removed", || async {
        stage.remediations().await.is_empty().then_some(())
    })
    .await;
    works(&stage, "n3").await;
    assert_eq!(stage.times_created(), 3);
    assert!(controller.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_stands_still_for_thirty_seconds() {
    let Some((stage, _proxy, controller)) = running(4, 5).await else { return };
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    etcd_stands_still(&stage, &controller).await;
    stage.condition("n1", "Ready", "True", 0).await;
    until(Duration::from_secs(60), "the remediation is removed", || async {
        stage.remediations().await.is_empty().then_some(())
    })
    .await;
    works(&stage, "n2").await;
    assert_eq!(stage.times_created(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_cut_and_expire() {
    let Some((stage, proxy, _controller)) = running(6, 5).await else { return };
    for node in ["n1", "n2", "n3"] {
        proxy.cut_all().await;
        works(&stage, node).await;
    }
    let gone = expire_every_watch(&proxy).await;
    works(&stage, "n4").await;
    assert!(gone.hits() < 100, "{} attempts: each waits longer than the one before", gone.hits());
    gone.remove().await;
    works(&stage, "n5").await;
    assert_eq!(stage.times_created(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_second_write_is_refused() {
    let Some((stage, proxy, _controller)) = running(6, 5).await else { return };
    let busy = refuse_every_second_write(&proxy);
    for node in ["n1", "n2", "n3"] {
        works(&stage, node).await;
    }
    assert!(busy.hits() >= 6, "{} writes were refused", busy.hits());
    busy.remove().await;
    assert_eq!(stage.times_created(), 3);
    let status = stage
        .until_status("workers", "all is reported", |status| status["phase"] == "Enabled" && status["healthyNodes"] == 6)
        .await;
    assert_eq!(status["unhealthyNodes"].as_array().map_or(0, Vec::len), 0);
}

/// The answers to writes are lost although the server stored them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_lost() {
    let Some((stage, proxy, _controller)) = running(6, 5).await else { return };
    for (node, method, path) in [
        ("n1", "POST", "/rebootremediations"),
        ("n2", "DELETE", "/rebootremediations"),
        ("n3", "PATCH", "/status"),
        ("n4", "POST", "/events"),
    ] {
        let lost = proxy.rule(move |asked| asked.is(method, path), Action::LoseAnswer).times(1);
        works(&stage, node).await;
        lost.reached().await;
    }
    assert_eq!(stage.times_created(), 4);
}

/// Pending when the API goes away, recovered meanwhile, and its time over when the API returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_recovered_while_the_api_was_away_is_left_alone() {
    let Some((stage, proxy, controller)) = running(4, 10).await else { return };
    stage.condition("n1", "Ready", "False", 0).await;
    controller.wait_for_log("unhealthy only after 10s", SOON).await.expect("it is pending");
    proxy.refuse(true);
    proxy.cut_all().await;
    stage.condition("n1", "Ready", "True", 0).await;
    holds_for(Duration::from_secs(12), "its time runs out", || async { Ok(()) }).await;
    proxy.refuse(false);
    stage.until_status("workers", "the controller is back", |status| status["healthyNodes"] == 4).await;
    works(&stage, "n2").await;
    assert_eq!(stage.times_created(), 1, "n2 alone was remediated");
}

/// The node's watch stands still without breaking, so the node looks unhealthy; the look before the start shows that
/// it has recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_look_before_a_start_sees_what_the_watch_missed() {
    let Some((stage, proxy, controller)) = running(4, 5).await else { return };
    // The server's answer to the look is what decides, so let the node recover between the two.
    let look = proxy.rule(|asked| asked.is("GET", "/api/v1/nodes/n1"), Action::HoldBefore).times(1);
    stage.condition("n1", "Ready", "False", 60).await;
    look.reached().await;
    // From now on the controller hears nothing of nodes: the watch is cut and cannot be resumed.
    let blind = proxy.rule(|asked| asked.is("GET", "/api/v1/nodes?"), Action::Hang).always();
    proxy.cut_all().await;
    stage.condition("n1", "Ready", "True", 0).await;
    look.release().await;
    holds_for(Duration::from_secs(6), "nothing starts blindly", || async {
        let names = stage.remediations().await;
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    blind.remove().await;
    works(&stage, "n2").await;
    assert_eq!(stage.times_created(), 1);
    assert!(controller.is_running());
}

/// A kubelet may annotate its own Node as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_of_70000_characters_costs_nobody_a_repair() {
    let Some((stage, _proxy, controller)) = running(4, 5).await else { return };
    let machine = format!("default/{}", "a".repeat(70_000));
    stage.change_node("n1", json!({"metadata": {"annotations": {"machine.openshift.io/machine": machine}}})).await;
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    stage.until_remediations(&["n1", "n2"]).await;
    assert!(controller.is_running());
}
