//! Machines whose nodes are in clusters of their own, each a server of its own.

use std::time::Duration;

use resus_harness::{Cluster, until};
use serde_json::json;

use super::check::check;
use super::dialect::Dialect;
use super::site::{NAMESPACE, Site, bare_site, kubeconfig};
use crate::stage::{SOON, Stage};

/// What is seen of a server again after it was away.
const RESUMED_WITHIN: Duration = Duration::from_secs(15);

/// Machines `blue-1` to `blue-3` and `red-1` to `red-3`: on either server their nodes are called `n1` to `n3`.
async fn two_clusters() -> Option<(Site, Stage, Stage)> {
    let site = bare_site(Dialect::V1beta2, Cluster::builder()).await?;
    site.definitions().await;
    // As there are nodes of these names here, too, nobody may look in the wrong place.
    site.stage.nodes(3).await;
    let blue = workload(&site, "blue").await;
    let red = workload(&site, "red").await;
    Some((site, blue, red))
}

async fn workload(site: &Site, name: &str) -> Stage {
    let cluster = Cluster::start().await.expect("another server starts");
    let stage = Stage { api: cluster.admin(), cluster };
    stage.nodes(3).await;
    site.cluster(name, &stage.cluster).await;
    for n in 1..=3 {
        site.machine(&format!("{name}-{n}"), name, Some(&format!("n{n}"))).await;
    }
    site.check(&check(name).cluster(name)).await;
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_the_same_name_are_never_mixed_up() {
    let Some((site, blue, red)) = two_clusters().await else { return };
    let _controller = site.controller().await;
    for check in ["blue", "red"] {
        site.until_counters(check, [3, 3, 3]).await;
    }
    blue.condition("n1", "Ready", "False", 60).await;
    site.until_asked(&["blue-1"]).await;
    red.condition("n2", "Ready", "Unknown", 60).await;
    site.until_asked(&["blue-1", "red-2"]).await;
    red.kubectl(&["delete", "node", "n3"]).await;
    site.until_says("Machine", "red-3", "HealthCheckSucceeded", &["False NodeDeleted", "False NodeNotFound"]).await;
    // Of nodes in the cluster of the machines themselves nobody asked.
    site.breaks("n1").await;
    site.stage.kubectl(&["delete", "node", "n2"]).await;
    site.stays_asked(&["blue-1", "red-2", "red-3"]).await;
    site.until_counters("blue", [3, 2, 2]).await;
    site.until_counters("red", [3, 1, 1]).await;
    blue.condition("n1", "Ready", "True", 0).await;
    site.until_asked(&["red-2", "red-3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_cannot_be_reached_is_left_alone_and_resumed_when_it_is_back() {
    let Some((site, blue, red)) = two_clusters().await else { return };
    let controller = site.controller().await;
    for check in ["blue", "red"] {
        site.until_counters(check, [3, 3, 3]).await;
    }
    // Its time runs while nobody can be asked about it.
    red.condition("n1", "Ready", "False", 0).await;
    controller.wait_for_log("red-1", SOON).await.expect("it is seen");
    red.cluster.apiserver().kill();
    blue.condition("n1", "Ready", "False", 60).await;
    site.until_asked(&["blue-1"]).await;
    site.until_told("red", "RemediationAllowed", "False Stale", "").await;
    site.until_event("RemediationRestricted", "MachineHealthCheck red", "").await;
    site.stays_asked(&["blue-1"]).await;
    site.until_told("blue", "RemediationAllowed", "True RemediationAllowed", "").await;

    red.cluster.apiserver().restart().await.expect("it comes back");
    until(RESUMED_WITHIN, "what is wrong there is acted on", || async {
        (site.asked().await == ["blue-1", "red-1"]).then_some(())
    })
    .await;
    site.until_told("red", "RemediationAllowed", "True RemediationAllowed", "").await;
    assert!(controller.is_running());
}

/// What was known of the old one says nothing about the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_that_changes_is_followed() {
    let Some((site, blue, red)) = two_clusters().await else { return };
    let _controller = site.controller().await;
    for check in ["blue", "red"] {
        site.until_counters(check, [3, 3, 3]).await;
    }
    // Credentials that are not good any more.
    let good = kubeconfig(red.cluster.admin_kubeconfig());
    let bad = good.replace("\"token\":\"", "\"token\":\"no-");
    assert_ne!(good, bad);
    rotate(&site, "red", &bad).await;
    red.condition("n1", "Ready", "False", 60).await;
    until(SOON, "it is told", || async {
        let said = site.says("MachineHealthCheck", "red", "RemediationAllowed").await;
        said.iter().any(|said| said == "False Stale" || said == "False ClusterUnreachable").then_some(())
    })
    .await;
    site.stays_asked(&[]).await;
    rotate(&site, "red", &good).await;
    site.until_asked(&["red-1"]).await;

    // To another server, where n1 is well, and n2 is not there: nobody believes that it is the same cluster, but a person may
    // say so.
    blue.kubectl(&["delete", "node", "n2"]).await;
    site.until_asked(&["blue-2", "red-1"]).await;
    rotate(&site, "red", &kubeconfig(blue.cluster.admin_kubeconfig())).await;
    let uid = blue.kubectl(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]).await;
    site.until_told("red", "RemediationAllowed", "False AnotherCluster", &format!("resus.dev/cluster-uid={uid}")).await;
    site.until_event("RemediationRestricted", "MachineHealthCheck red", "another cluster").await;
    site.stays_asked(&["blue-2", "red-1"]).await;
    site.annotate("Cluster", "red", "resus.dev/cluster-uid", Some(&uid)).await;
    site.until_asked(&["blue-2", "red-2"]).await;
}

async fn rotate(site: &Site, cluster: &str, kubeconfig: &str) {
    let change = json!({"stringData": {"value": kubeconfig}}).to_string();
    let secret = format!("{cluster}-kubeconfig");
    site.stage.kubectl(&["patch", "secret", "-n", NAMESPACE, &secret, "--type=merge", "-p", &change]).await;
}
