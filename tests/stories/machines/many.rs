//! Many clusters, and one of them does not answer.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use resus_harness::{Cluster, until};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::check::check;
use super::dialect::Dialect;
use super::site::{Site, bare_site, kubeconfig};
use crate::stage::{AT_ONCE, SOON};

const CLUSTERS: usize = 10;
const MACHINES_EACH: usize = 50;
/// A cluster that hangs costs the others less than this.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_accepts_and_never_answers_does_not_delay_the_others() {
    let Some(site) = bare_site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.definitions().await;
    let hole = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
    let address = hole.local_addr().expect("it is bound");
    // What is accepted is kept, so that nobody sees an end.
    let swallowing = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = hole.accept().await {
            kept.push(stream);
        }
    });
    // The first one in every order.
    clusters(&site, &format!("http://{address}")).await;
    let controller = site.controller_with(&["--mhc=all", "--allow-insecure-workload-clusters"]).await;
    for n in 1..CLUSTERS {
        let all = u32::try_from(MACHINES_EACH).expect("a few");
        site.until_counters(&format!("c{n}"), [all, all, all]).await;
    }

    let ill: Vec<String> = (1..CLUSTERS).flat_map(|n| [format!("c{n}-m0"), format!("c{n}-m7")]).collect();
    let broken = ill.iter().map(|machine| {
        let (site, node) = (&site, machine.replace("-m", "-n"));
        async move { site.breaks(&node).await }
    });
    stream::iter(broken).buffer_unordered(AT_ONCE).collect::<()>().await;
    until(SERVED_WITHIN, "all others are served", || async { (site.asked().await == ill).then_some(()) }).await;
    until(SOON, "it is told", || async {
        let said = site.says("MachineHealthCheck", "c0", "RemediationAllowed").await;
        said.iter().any(|said| said == "False Stale" || said == "False ClusterUnreachable").then_some(())
    })
    .await;
    site.stays_asked(&ill.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(controller.is_running() && !swallowing.is_finished());
}

/// `c0` is at this address, all others here. Machines `c0-m0` and so on have nodes `c0-n0` and so on.
async fn clusters(site: &Site, hangs_at: &str) {
    let here = kubeconfig(site.stage.cluster.admin_kubeconfig());
    let mut elsewhere: Value = serde_json::from_str(&here).expect("it is JSON");
    elsewhere["clusters"][0]["cluster"] = json!({"server": hangs_at});
    for n in 0..CLUSTERS {
        let kubeconfig = if n == 0 { elsewhere.to_string() } else { here.clone() };
        site.cluster_with(&format!("c{n}"), &kubeconfig).await;
        site.check(&check(&format!("c{n}")).cluster(&format!("c{n}"))).await;
    }
    let made = (0..CLUSTERS).flat_map(|cluster| (0..MACHINES_EACH).map(move |n| (cluster, n))).map(|(cluster, n)| async move {
        let node = format!("c{cluster}-n{n}");
        if cluster > 0 {
            site.stage.node(&node).await;
        }
        site.machine(&format!("c{cluster}-m{n}"), &format!("c{cluster}"), Some(&node)).await;
    });
    stream::iter(made).buffer_unordered(AT_ONCE).collect::<()>().await;
}
