//! A machine and its node are watched over by two checks.

use std::time::Duration;

use resus_harness::{Cluster, holds_for, until};

use super::check::check;
use super::dialect::Dialect;
use super::site::site;
use crate::stage::SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_check_acts_and_the_node_check_says_so() {
    let Some(site) = site(Dialect::OpenShift, Cluster::builder()).await else { return };
    site.machines(4).await;
    // One node is nobody's machine.
    site.stage.node("n9").await;
    site.stage.apply_file("tests/provider/template.yaml").await;
    // The node check is older, and yields all the same: deleting a machine under a repair of its node would be the worst of both.
    site.stage.check("nodes", 5, "60%").await;
    let strategy = ("machine.openshift.io/remediation-strategy", "external-baremetal");
    site.check(&check("machines").annotated(strategy.0, strategy.1)).await;
    let controller = site.controller().await;
    site.until_counters("machines", [4, 4, 4]).await;
    site.breaks("n1").await;
    site.breaks("n9").await;
    until(SOON, "the machine check acts", || async {
        let machine = site.get("Machine", "m1").await;
        (!machine["metadata"]["annotations"]["host.metal3.io/external-remediation"].is_null()).then_some(())
    })
    .await;
    site.stage.until_held("nodes", "n1", "MachineHealthCheck default/machines").await;
    site.stage.until_remediations(&["n9"]).await;
    holds_for(Duration::from_secs(3), "the node check leaves it alone", || async {
        let names = site.stage.remediations().await;
        if names == ["n9"] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;

    // The machine check goes, and the node is the other's.
    site.delete("MachineHealthCheck", "machines").await;
    site.stage.until_remediations(&["n1", "n9"]).await;
    // It comes back, and waits for what has begun.
    site.check(&check("machines")).await;
    site.until_told("machines", "Overlapping", "True Overlapping", "nodes").await;
    assert_eq!(site.names().await.len(), 4, "nothing was deleted");
    assert!(controller.is_running());
}
