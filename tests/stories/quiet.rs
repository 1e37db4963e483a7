//! A quiet cluster is left in peace.

use std::time::Duration;

use jiff::Timestamp;
use resus_harness::{Cluster, holds_for};

use crate::stage::stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_watches_and_the_lease_for_a_minute() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    stage.nodes(10).await;
    stage.check("workers", 300, "40%").await;
    // One node is pending and one is under remediation: both are states to rest in.
    stage.condition("n1", "Ready", "False", 400).await;
    stage.condition("n2", "Ready", "False", 5).await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);
    stage.until_remediations(&["n1"]).await;
    stage.until_status("workers", "it is reported", |status| status["phase"] == "Remediating").await;
    holds_for(Duration::from_secs(3), "settles", || async { Ok(()) }).await;

    let began_at = Timestamp::now();
    holds_for(Duration::from_secs(60), "the controller runs", || async {
        if controller.is_running() { Ok(()) } else { Err(controller.last_lines(20)) }
    })
    .await;
    let entries = stage.cluster.audit_log().expect("the audit log can be read");
    let ours = entries.iter().filter(|entry| entry.user.ends_with(":resus-controller") && entry.at >= began_at);
    let (leases, others): (Vec<_>, Vec<_>) =
        ours.filter(|entry| entry.verb != "watch").partition(|entry| entry.uri.contains("/leases/resus-controller"));
    assert!((25..=35).contains(&leases.len()), "one renewal each two seconds, not {}", leases.len());
    assert!(others.len() <= 1 && others.iter().all(|entry| entry.verb == "get"), "{others:#?}");
}
