//! Several controllers run; one leads.

use std::time::Duration;

use resus_harness::{Cluster, until};

use crate::stage::{SOON, stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_takes_over_when_the_first_dies_or_lets_go() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    stage.nodes(4).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    let first = stage.controller("first", &kubeconfig);
    first.wait_for_log("leading", SOON).await.expect("the first leads");
    let second = stage.controller("second", &kubeconfig);
    second.wait_for_log("listed", SOON).await.expect("the second watches");

    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    assert!(!second.log().contains(" leading"), "only one leads");

    // Killed: the lease has to run out. Paused leaders are deposed in the same way.
    first.kill();
    stage.condition("n1", "Ready", "True", 0).await;
    until(Duration::from_secs(40), "the second cleans up", || async { stage.remediations().await.is_empty().then_some(()) })
        .await;

    // Asked to stop: it lets go, and its successor need not wait for the lease to run out.
    let third = stage.controller("third", &kubeconfig);
    third.wait_for_log("listed", SOON).await.expect("the third watches");
    let stopped = second.terminate(SOON).await.expect("it stops");
    assert!(stopped.success(), "{stopped}");
    third.wait_for_log(" leading", Duration::from_secs(8)).await.expect("sooner than the 15 s of the lease");
    stage.condition("n2", "Ready", "False", 60).await;
    stage.until_remediations(&["n2"]).await;
    assert_eq!(stage.times_created(), 2, "one for each node");
}
