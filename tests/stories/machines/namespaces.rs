//! A check watches over the machines of its own namespace, whatever those elsewhere are called.

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use resus_harness::{Cluster, until};
use serde_json::{Value, json};

use super::check::check;
use super::dialect::Dialect;
use super::site::{Site, site};
use crate::stage::SOON;

const ELSEWHERE: &str = "elsewhere";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_and_checks_of_the_same_name_are_kept_apart() {
    let Some(site) = site(Dialect::OpenShift, Cluster::builder()).await else { return };
    site.stage.kubectl(&["create", "namespace", ELSEWHERE]).await;
    site.machines(3).await;
    for n in 1..=3 {
        site.stage.node(&format!("other-n{n}")).await;
        create_elsewhere(&site, "Machine", site.dialect.machine(&format!("m{n}"), "")).await;
        let status = json!({"status": {"nodeRef": site.dialect.node_ref(&format!("other-n{n}"))}});
        let patched =
            elsewhere(&site, "Machine").patch_status(&format!("m{n}"), &PatchParams::default(), &Patch::Merge(status)).await;
        patched.expect("the status of a Machine can be patched");
    }
    site.check(&check("workers").at_most(1)).await;
    let _controller = site.controller().await;
    site.until_counters("workers", [3, 3, 1]).await;
    site.breaks("other-n1").await;
    site.breaks("n2").await;
    site.until_names(&["m1", "m3"]).await;
    site.until_counters("workers", [2, 2, 1]).await;
    assert!(exists_elsewhere(&site, "m1").await && exists_elsewhere(&site, "m2").await);

    create_elsewhere(&site, "MachineHealthCheck", check("workers").at_most(1).render(site.dialect)).await;
    until(SOON, "the other acts, too", || async { (!exists_elsewhere(&site, "m1").await).then_some(()) }).await;
    assert!(exists_elsewhere(&site, "m2").await);
    assert_eq!(site.names().await, ["m1", "m3"]);
}

fn elsewhere(site: &Site, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(site.dialect.group(), site.dialect.version(), kind);
    Api::namespaced_with(site.stage.api.clone(), ELSEWHERE, &ApiResource::from_gvk(&kind))
}

async fn create_elsewhere(site: &Site, kind: &str, mut object: Value) {
    object["metadata"]["namespace"] = json!(ELSEWHERE);
    let object = serde_json::from_value(object).expect("it is an object");
    elsewhere(site, kind).create(&PostParams::default(), &object).await.expect("it can be created");
}

async fn exists_elsewhere(site: &Site, machine: &str) -> bool {
    elsewhere(site, "Machine").get_opt(machine).await.expect("the server answers").is_some()
}
