//! On OpenShift etcd is guarded by a budget, and nodes have Machines.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use resus_harness::{Cluster, until};
use serde_json::{Value, json};

use crate::stage::{SOON, Stage, condition, stage};

/// Where OpenShift has its Machines, and Metal3 looks for them.
const MACHINES: &str = "openshift-machine-api";
const METAL3: &str = "infrastructure.cluster.x-k8s.io";
const GUARDS: &str = "openshift-etcd";

/// By nothing but what `deploy/rbac-openshift.yaml` adds to our rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcds_guards_hold_the_control_plane_and_machines_own_remediations() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    openshift(&stage).await;
    stage.nodes(6).await;
    budget(&stage, "etcd-guard-pdb").await;
    for node in ["n1", "n2", "n3"] {
        stage.change_node(node, json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})).await;
        guard(&stage, node, "True").await;
    }
    let machine = machine(&stage, "provider", "m1", "n4").await;
    stage.change_node("n4", json!({"metadata": {"annotations": {"machine.openshift.io/machine": "provider/m1"}}})).await;
    stage.check("workers", 5, "50%").await;
    let kubeconfig = stage.account().await;
    stage.apply_file("deploy/rbac-openshift.yaml").await;
    for node in ["n1", "n4"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    let _controller = stage.controller("controller", &kubeconfig);

    stage.until_held("workers", "n1", "its PodDisruptionBudget allows no disruption, and the member on this node is up").await;
    stage.until_event("RemediationSkipped", "allows no disruption").await;
    stage.stays(&["n4"]).await;
    let owners = stage.remediations_api().get("n4").await.expect("it exists").metadata.owner_references.unwrap_or_default();
    let kinds: Vec<&str> = owners.iter().map(|owner| owner.kind.as_str()).collect();
    assert_eq!(kinds, ["NodeHealthCheck", "Machine"], "{owners:?}");
    assert_eq!((&owners[1].name, Some(&owners[1].uid)), (&"m1".to_owned(), machine.metadata.uid.as_ref()));

    // Which of two budgets counts nobody can tell.
    budget(&stage, "another").await;
    stage.until_held("workers", "n1", "2 PodDisruptionBudgets").await;
    stage.kubectl(&["delete", "pdb", "-n", GUARDS, "another"]).await;
    stage.until_held("workers", "n1", "allows no disruption").await;

    // The member on n1 is down already: there is nothing left to lose there.
    ready(&stage, "n1", "False").await;
    stage.until_remediations(&["n1", "n4"]).await;
    let owners = stage.remediations_api().get("n1").await.expect("it exists").metadata.owner_references.unwrap_or_default();
    assert_eq!(owners.len(), 1, "n1 has no Machine: {owners:?}");
}

/// Elsewhere no Machine could own what is made from it, and Metal3 would not know which host it is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_of_metal3_is_refused_until_it_is_where_machines_are() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    openshift(&stage).await;
    stage.apply_file("tests/provider/metal3.yaml").await;
    stage.established(&format!("metal3remediations.{METAL3}")).await;
    stage.established(&format!("metal3remediationtemplates.{METAL3}")).await;
    stage.kubectl(&["create", "namespace", MACHINES]).await;
    let api_version = format!("{METAL3}/v1beta1");
    for namespace in ["provider", MACHINES] {
        let template = json!({"apiVersion": api_version, "kind": "Metal3RemediationTemplate",
            "metadata": {"name": "reboot", "namespace": namespace}, "spec": {"template": {"spec": {"strategy": {"type": "Reboot"}}}}});
        stage.apply(&template.to_string()).await;
    }
    let template = |namespace: &str| {
        json!({"remediationTemplate":
            {"apiVersion": api_version, "kind": "Metal3RemediationTemplate", "name": "reboot", "namespace": namespace}})
    };
    stage.nodes(4).await;
    let machine = machine(&stage, MACHINES, "m1", "n1").await;
    let of_machine = json!({"machine.openshift.io/machine": format!("{MACHINES}/m1")});
    stage.change_node("n1", json!({"metadata": {"annotations": of_machine}})).await;
    stage.condition("n1", "Ready", "False", 60).await;
    stage.check_with("workers", "50%", template("provider")).await;
    let kubeconfig = stage.account().await;
    stage.apply_file("deploy/rbac-openshift.yaml").await;
    stage.aggregate("metal3-remediation").await;
    let _controller = stage.controller("controller", &kubeconfig);

    let status = stage.until_status("workers", "the check is disabled", |status| status["phase"] == "Disabled").await;
    assert_eq!(condition(&status, "Disabled")["reason"], "RemediationTemplateInvalid", "{status}");
    let why = format!("it has to be in the namespace {MACHINES}, where Metal3 finds the node's Machine");
    assert!(status["reason"].as_str().is_some_and(|reason| reason.contains(&why)), "{status}");
    stage.until_event("Disabled", &why).await;

    // In the right place it is used for the node that waits, and its Machine owns what is made.
    stage.change_check("workers", json!({"spec": template(MACHINES)})).await.expect("it may be changed");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(METAL3, "v1beta1", "Metal3Remediation"));
    let remediations: Api<DynamicObject> = Api::all_with(stage.api.clone(), &kind);
    let all = until(SOON, "something is made from it", || async {
        Some(remediations.list(&ListParams::default()).await.expect("they can be listed").items).filter(|all| !all.is_empty())
    })
    .await;
    let [made] = all.as_slice() else { panic!("the refused template made something too: {all:?}") };
    assert_eq!((made.metadata.namespace.as_deref(), made.metadata.name.as_deref()), (Some(MACHINES), Some("n1")));
    let owners = made.metadata.owner_references.as_deref().unwrap_or_default();
    assert!(
        owners.iter().any(|owner| owner.kind == "Machine" && Some(&owner.uid) == machine.metadata.uid.as_ref()),
        "{owners:?}"
    );
    let status = stage.until_status("workers", "it is reported", |status| status["phase"] == "Remediating").await;
    assert_eq!(condition(&status, "Disabled")["status"], "False", "{status}");
}

async fn openshift(stage: &Stage) {
    stage.apply_file("tests/upgrades/crds.yaml").await;
    stage.apply_file("tests/provider/machines.yaml").await;
    stage.established("clusterversions.config.openshift.io").await;
    stage.established("machines.machine.openshift.io").await;
    stage.kubectl(&["create", "namespace", GUARDS]).await;
}

/// Of no disruption at all.
async fn budget(stage: &Stage, name: &str) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(stage.api.clone(), GUARDS);
    let selector = json!({"matchLabels": {"app": "guard"}});
    let budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 3, "selector": selector}});
    let budget = serde_json::from_value(budget).expect("it is a budget");
    budgets.create(&PostParams::default(), &budget).await.expect("a budget can be created");
    let status = json!({"currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": 0, "expectedPods": 3});
    change_status(&budgets, name, status).await;
}

async fn guard(stage: &Stage, node: &str, is_ready: &str) {
    let pods: Api<Pod> = Api::namespaced(stage.api.clone(), GUARDS);
    let pod = json!({"metadata": {"name": format!("guard-{node}"), "labels": {"app": "guard"}},
        "spec": {"nodeName": node, "containers": [{"name": "guard", "image": "guard"}]}});
    let pod = serde_json::from_value(pod).expect("it is a Pod");
    pods.create(&PostParams::default(), &pod).await.expect("a Pod can be created");
    ready(stage, node, is_ready).await;
}

/// As the kubelet says it of the guard on its node.
async fn ready(stage: &Stage, node: &str, status: &str) {
    let pods: Api<Pod> = Api::namespaced(stage.api.clone(), GUARDS);
    change_status(&pods, &format!("guard-{node}"), json!({"conditions": [{"type": "Ready", "status": status}]})).await;
}

async fn change_status<K>(api: &Api<K>, name: &str, status: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patched = api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await;
    patched.expect("the status can be patched");
}

/// Of this node, as it says itself.
async fn machine(stage: &Stage, namespace: &str, name: &str, node: &str) -> DynamicObject {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("machine.openshift.io", "v1beta1", "Machine"));
    let machines: Api<DynamicObject> = Api::namespaced_with(stage.api.clone(), namespace, &kind);
    let machine = DynamicObject::new(name, &kind).data(json!({"status": {"nodeRef": {"name": node}}}));
    machines.create(&PostParams::default(), &machine).await.expect("a Machine can be created")
}
