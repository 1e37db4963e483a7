//! A cluster in which nobody has written a check.

use kube::api::{DeleteParams, ListParams};
use resus_harness::{Cluster, until};

use crate::stage::{SOON, Stage, listed, stage};

const DEFAULT: &str = "nhc-worker-default";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_given_a_check_which_yields_to_the_first_that_somebody_writes() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    stage.nodes(6).await;
    let kubeconfig = stage.account().await;
    stage.aggregate("resus-controller-poison-pill").await;
    let controller = stage.controller_with("controller", &kubeconfig, &["--default-check"]);
    until(SOON, "there is the default check", || async { (names(&stage).await == [DEFAULT]).then_some(()) }).await;
    let status = stage.until_status(DEFAULT, "it is served", |status| status["observedNodes"] == 6).await;
    assert_eq!(status["phase"], "Enabled", "its template is there, too: {status}");

    stage.condition("n1", "Ready", "False", 301).await;
    let poison = ["get", "poisonpillremediations", "-n", "poison-pill", "-o", "name"];
    until(SOON, "it remediates n1", || async { stage.kubectl(&poison).await.ends_with("/n1\n").then_some(()) }).await;
    stage.condition("n1", "Ready", "True", 0).await;
    stage.until_status(DEFAULT, "n1 is well", |status| status["healthyNodes"] == 6).await;

    stage.check("of-an-admin", 5, "50%").await;
    stage.until_status("of-an-admin", "it is served", |status| status["observedNodes"] == 6).await;
    stage.condition("n2", "Ready", "False", 301).await;
    stage.until_remediations(&["n2"]).await;
    stage.until_held(DEFAULT, "n2", "of-an-admin").await;
    assert_eq!(stage.kubectl(&poison).await, "");
    let status = stage.until_status("of-an-admin", "it is told", |status| status["phase"] == "Remediating").await;
    assert!(listed(&status, "n2")["held"].is_null(), "{status}");

    // Who has a check of their own does not get this one back, and neither does who deletes it.
    stage.checks_api().delete(DEFAULT, &DeleteParams::default()).await.expect("nothing runs under it");
    controller.kill();
    stage.forget_leader().await;
    controller.start_again().expect("it starts");
    controller.wait_for_log(" leading", SOON).await.expect("it leads");
    stage.condition("n2", "Ready", "True", 0).await;
    stage.until_status("of-an-admin", "nothing runs under it", |status| status["phase"] == "Enabled").await;
    assert_eq!(names(&stage).await, ["of-an-admin"]);
    stage.checks_api().delete("of-an-admin", &DeleteParams::default()).await.expect("nothing runs under it");
    stage.stays(&[]).await;
    assert_eq!(names(&stage).await, [""; 0], "once at each start, if at all");
    let created = stage.times_created_of("nodehealthchecks");
    assert_eq!(created, 1, "one by us, as the other was applied");
}

async fn names(stage: &Stage) -> Vec<String> {
    let all = stage.checks_api().list(&ListParams::default()).await.expect("checks can be listed");
    all.items.into_iter().filter_map(|check| check.metadata.name).collect()
}
