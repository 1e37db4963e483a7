//! What does a real owner make of what we write? Cluster API's own MachineSet controller reads it here.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use resus_harness::{Cluster, Process, holds_for, until};
use serde_json::{Value, json};

use super::check::{Check, check};
use super::dialect::Dialect;
use super::site::{CLUSTER, Site, bare_site, kubeconfig, parts};
use crate::stage::{SOON, root};

/// Machines of a MachineSet of two, each with a node of its own name.
async fn owned(check: &Check) -> Option<(Site, Process)> {
    let site = bare_site(Dialect::V1beta2, Cluster::builder()).await?;
    site.definitions().await;
    site.stage.apply_file("tests/provider/infrastructure.yaml").await;
    for plural in ["testmachines", "testmachinetemplates"] {
        site.stage.established(&format!("{plural}.infrastructure.cluster.x-k8s.io")).await;
    }
    site.stage.apply_file("tests/provider/cluster-api.yaml").await;
    let status = root().join("tests/provider/cluster-status.yaml").display().to_string();
    site.stage.kubectl(&["apply", "--server-side", "--subresource=status", "-f", &status]).await;
    site.grant(CLUSTER).await;
    site.secret(CLUSTER, json!({"value": kubeconfig(site.stage.cluster.admin_kubeconfig())})).await;
    let mut command = Command::new(parts().await.join("capi-machineset"));
    command.arg("--kubeconfig").arg(site.stage.cluster.admin_kubeconfig());
    let owner = site.stage.cluster.start_process("capi-machineset", command).expect("it starts");
    until_two_with_nodes(&site, &BTreeSet::new()).await;
    site.check(check).await;
    Some((site, owner))
}

/// Each new machine gets a node. Returns the names of both.
async fn until_two_with_nodes(site: &Site, old: &BTreeSet<String>) -> Vec<String> {
    let names =
        until(SOON, "the owner has made its machines", || async { Some(site.names().await).filter(|names| names.len() == 2) })
            .await;
    for name in names.iter().filter(|name| !old.contains(*name)) {
        site.stage.node(name).await;
        site.machine_status(name, json!({"nodeRef": {"name": name}})).await;
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_ill_is_deleted_and_replaced_by_its_owner() {
    let Some((site, _owner)) = owned(&check("workers")).await else { return };
    let names: BTreeSet<String> = site.names().await.into_iter().collect();
    let ill = names.first().expect("there are two").clone();
    let _controller = site.controller().await;
    site.until_counters("workers", [2, 2, 2]).await;
    site.breaks(&ill).await;
    let machine = until(SOON, "its owner deletes it", || async {
        let machine = site.get("Machine", &ill).await;
        (!machine["metadata"]["deletionTimestamp"].is_null()).then_some(machine)
    })
    .await;
    assert!(!machine["metadata"]["finalizers"].is_null(), "it waits for a controller that is not here: {machine}");
    let deleting = ["False MachineDeleting"];
    until(SOON, "the owner says so", || async {
        let said = site.says("Machine", &ill, "OwnerRemediated").await;
        said.first().is_some_and(|said| said == deleting[0]).then_some(())
    })
    .await;
    // What it wrote stays, as long as the machine does.
    holds_for(Duration::from_secs(3), "the owner's word stands", || async {
        let said = site.says("Machine", &ill, "OwnerRemediated").await;
        if said.first().is_some_and(|said| said == deleting[0]) { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
    site.until_says("Machine", &ill, "HealthCheckSucceeded", &["False UnhealthyNode"; 2]).await;

    let change = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    site.api("Machine").patch(&ill, &PatchParams::default(), &change).await.expect("a finalizer can be removed");
    site.stage.nodes_api().delete(&ill, &DeleteParams::default()).await.expect("a Node can be deleted");
    let now = until_two_with_nodes(&site, &names).await;
    assert!(!now.contains(&ill), "another took its place");
    site.until_counters("workers", [2, 2, 2]).await;
    site.stays_asked(&[]).await;
}

/// The owner sleeps while the machine is ill, and finds nothing to do when it wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_recovers_is_left_alone_by_its_owner() {
    let Some((site, owner)) = owned(&check("workers").at_most(1)).await else { return };
    let names = site.names().await;
    let _controller = site.controller().await;
    site.until_counters("workers", [2, 2, 1]).await;
    owner.pause();
    site.breaks(&names[0]).await;
    site.until_asked(&[&names[0]]).await;
    site.recovers(&names[0]).await;
    site.until_says("Machine", &names[0], "HealthCheckSucceeded", &["True HealthCheckSucceeded", "True"]).await;
    site.until_says("Machine", &names[0], "OwnerRemediated", &[]).await;
    owner.resume();
    left_alone(&site, &names).await;

    // Too many at once: both are called ill, and their owner must not read that as a request.
    for name in &names {
        site.stage.condition(name, "Ready", "False", 0).await;
    }
    for name in &names {
        site.until_says("Machine", name, "HealthCheckSucceeded", &["False UnhealthyNode"; 2]).await;
    }
    left_alone(&site, &names).await;
    assert_eq!(site.asked().await, [""; 0]);
}

async fn left_alone(site: &Site, names: &[String]) {
    // So that it has seen what there is to see: it is asked for something else, and does it.
    let replicas = |count: usize| json!({"spec": {"replicas": count}});
    site.change("MachineSet", "workers", replicas(3)).await;
    until(SOON, "the owner is awake", || async { (site.names().await.len() == 3).then_some(()) }).await;
    let params = ListParams::default();
    let all = site.api("Machine").list(&params).await.expect("Machines can be listed").items;
    let is_new = |name: &String| !names.contains(name);
    let new = all.into_iter().filter_map(|machine| machine.metadata.name).find(is_new).expect("one is new");
    let skip = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}});
    site.change("Machine", &new, skip).await;
    site.change("MachineSet", "workers", replicas(2)).await;
    until(SOON, "the new one goes again", || async {
        let machine = site.get("Machine", &new).await;
        (machine == Value::Null || !machine["metadata"]["deletionTimestamp"].is_null()).then_some(())
    })
    .await;
    let change = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    site.api("Machine").patch(&new, &PatchParams::default(), &change).await.expect("a finalizer can be removed");
    assert_eq!(site.names().await, names, "both are still there");
}
