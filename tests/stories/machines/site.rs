//! What does every story about machines need? A server with the definitions of one dialect, machines with nodes, and a check.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use resus_core::mhc::facts::ClusterKey;
use resus_harness::{Builder, Cluster, Process, cluster_api, holds_for, skip, until};
use resus_k8s::rbac::{self, Component};
use serde_json::{Value, json};

use super::check::Check;
use super::dialect::Dialect;
use crate::stage::{AT_ONCE, SOON, Stage, bare_stage};

/// Where machines and checks are.
pub const NAMESPACE: &str = "default";
/// The Cluster of all machines, where there are Clusters and the story does not name others. Its nodes are on the same server.
pub const CLUSTER: &str = "blue";

pub struct Site {
    pub stage: Stage,
    pub dialect: Dialect,
}

/// With the Cluster, where the dialect has it, and a provider; without machines, checks and the controller.
pub async fn site(dialect: Dialect, builder: Builder) -> Option<Site> {
    let site = bare_site(dialect, builder).await?;
    site.definitions().await;
    if dialect.has_clusters() {
        site.cluster(CLUSTER, &site.stage.cluster).await;
    }
    Some(site)
}

/// Without the definitions of the dialect.
pub async fn bare_site(dialect: Dialect, builder: Builder) -> Option<Site> {
    if let Err(why) = cluster_api().await {
        skip(&format!("{why:#}"));
        return None;
    }
    let stage = bare_stage(builder).await?;
    stage.apply_file("tests/provider/crds.yaml").await;
    for plural in ["rebootremediations", "rebootremediationtemplates"] {
        stage.established(&format!("{plural}.provider.test")).await;
    }
    Some(Site { stage, dialect })
}

/// The folder of what is really Cluster API's.
pub async fn parts() -> PathBuf {
    cluster_api().await.expect("it was there when the story began")
}

impl Site {
    pub async fn definitions(&self) {
        let folder = parts().await.join("crds").join(self.dialect.folder());
        self.stage.cluster.apply_file(&folder).await.expect("the definitions can be applied");
        let mut plurals = vec!["machines", "machinehealthchecks", "machinesets"];
        plurals.extend(self.dialect.has_clusters().then_some("clusters"));
        for plural in plurals {
            self.stage.established(&format!("{plural}.{}", self.dialect.group())).await;
        }
    }

    /// Credentials of the controller's own account, with nothing but the rights that we and the provider ship.
    pub async fn machine_account(&self) -> PathBuf {
        let kubeconfig = self.stage.account().await;
        match self.dialect {
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => {
                self.stage.apply_file("deploy/rbac-cluster-api.yaml").await;
            }
            Dialect::OpenShift => {
                self.stage.kubectl(&["create", "namespace", "openshift-etcd"]).await;
                self.stage.apply_file("deploy/rbac-openshift.yaml").await;
            }
        }
        kubeconfig
    }

    /// A controller that takes care of all MachineHealthChecks.
    pub async fn controller(&self) -> Process {
        self.controller_with(&["--mhc=all"]).await
    }

    pub async fn controller_with(&self, flags: &[&str]) -> Process {
        let kubeconfig = self.machine_account().await;
        self.stage.controller_with("controller", &kubeconfig, flags)
    }

    /// Machines `m1` and so on of the only Cluster, each with a healthy node `n1` and so on.
    pub async fn machines(&self, count: usize) {
        self.stage.nodes(count).await;
        let made = (1..=count).map(|n| async move { self.machine(&format!("m{n}"), CLUSTER, Some(&format!("n{n}"))).await });
        stream::iter(made).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    pub async fn machine(&self, name: &str, cluster: &str, node: Option<&str>) {
        self.create("Machine", self.dialect.machine(name, cluster)).await;
        if let Some(node) = node {
            self.machine_status(name, json!({"nodeRef": self.dialect.node_ref(node)})).await;
        }
    }

    /// A Cluster that is up, whose nodes are on this server.
    pub async fn cluster(&self, name: &str, server: &Cluster) {
        self.cluster_with(name, &kubeconfig(server.admin_kubeconfig())).await;
    }

    /// Likewise with this kubeconfig.
    pub async fn cluster_with(&self, name: &str, kubeconfig: &str) {
        self.cluster_without_access(name).await;
        self.secret(name, json!({"value": kubeconfig})).await;
    }

    pub async fn cluster_without_access(&self, name: &str) {
        self.grant(name).await;
        self.forbidden_cluster(name).await;
    }

    /// Whose Secret our account may not read.
    pub async fn forbidden_cluster(&self, name: &str) {
        self.create("Cluster", self.dialect.cluster(name)).await;
        self.change_status("Cluster", name, self.dialect.cluster_is_up()).await;
    }

    /// What `resus manifests --cluster` prints.
    pub async fn grant(&self, cluster: &str) {
        let cluster = ClusterKey { namespace: NAMESPACE.into(), name: cluster.into() };
        let [role, binding] = rbac::cluster_access(Component::Controller, "poison-pill", &cluster);
        let role: Role = serde_json::from_value(role).expect("it is a Role");
        let binding: RoleBinding = serde_json::from_value(binding).expect("it is a RoleBinding");
        let roles: Api<Role> = Api::namespaced(self.stage.api.clone(), NAMESPACE);
        let bindings: Api<RoleBinding> = Api::namespaced(self.stage.api.clone(), NAMESPACE);
        roles.create(&PostParams::default(), &role).await.expect("a Role can be created");
        bindings.create(&PostParams::default(), &binding).await.expect("a RoleBinding can be created");
    }

    /// The Secret with the kubeconfig of a Cluster.
    pub async fn secret(&self, cluster: &str, data: Value) {
        let name = format!("{cluster}-kubeconfig");
        let secret = json!({"metadata": {"name": name}, "type": "cluster.x-k8s.io/secret", "stringData": data});
        let secret: Secret = serde_json::from_value(secret).expect("it is a Secret");
        let secrets: Api<Secret> = Api::namespaced(self.stage.api.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await.expect("a Secret can be created");
    }

    pub async fn check(&self, check: &Check) {
        self.create("MachineHealthCheck", check.render(self.dialect)).await;
    }

    /// The template `reboot`.
    pub async fn template(&self) {
        let template = json!({"apiVersion": "provider.test/v1", "kind": "RebootRemediationTemplate",
            "metadata": {"name": "reboot", "namespace": NAMESPACE},
            "spec": {"template": {"metadata": {"labels": {"from": "template"}}, "spec": {"method": "power-cycle"}}}});
        self.stage.apply(&template.to_string()).await;
    }

    /// Of Cluster API or OpenShift.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.dialect.group(), self.dialect.version(), kind);
        Api::namespaced_with(self.stage.api.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    pub async fn create(&self, kind: &str, object: Value) {
        let object = serde_json::from_value(object).expect("it is an object");
        self.api(kind).create(&PostParams::default(), &object).await.unwrap_or_else(|why| panic!("a {kind}: {why}"));
    }

    /// Merges something into an object.
    pub async fn change(&self, kind: &str, name: &str, change: Value) {
        let changed = self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        changed.unwrap_or_else(|why| panic!("{kind} {name}: {why}"));
    }

    /// Without a value the annotation goes.
    pub async fn annotate(&self, kind: &str, name: &str, key: &str, value: Option<&str>) {
        self.change(kind, name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub async fn change_status(&self, kind: &str, name: &str, status: Value) {
        let change = Patch::Merge(json!({"status": status}));
        let changed = self.api(kind).patch_status(name, &PatchParams::default(), &change).await;
        changed.unwrap_or_else(|why| panic!("{kind} {name}: {why}"));
    }

    pub async fn machine_status(&self, name: &str, status: Value) {
        self.change_status("Machine", name, status).await;
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap_or_else(|why| panic!("{kind} {name}: {why}"));
    }

    /// The node is not ready for a minute.
    pub async fn breaks(&self, node: &str) {
        self.stage.condition(node, "Ready", "False", 60).await;
    }

    pub async fn recovers(&self, node: &str) {
        self.stage.condition(node, "Ready", "True", 0).await;
    }

    /// Null if there is none.
    pub async fn get(&self, kind: &str, name: &str) -> Value {
        let object = self.api(kind).get_opt(name).await.expect("the server answers");
        object.map_or(Value::Null, |object| serde_json::to_value(object).expect("it is JSON"))
    }

    /// What a condition says of an object in each style, the new one first, as in `False UnhealthyNode`.
    pub async fn says(&self, kind: &str, name: &str, condition: &str) -> Vec<String> {
        let object = self.get(kind, name).await;
        let found = self.dialect.conditions().iter().filter_map(|path| posted(&object, path, condition));
        found.map(in_short).collect()
    }

    pub async fn until_says(&self, kind: &str, name: &str, condition: &str, expected: &[&str]) {
        let what = format!("{condition} of {kind} {name} says {expected:?}");
        until(SOON, &what, || async { (self.says(kind, name, condition).await == expected).then_some(()) }).await;
    }

    /// What a condition of a check says, where nobody cares in which style.
    pub async fn until_told(&self, check: &str, condition: &str, expected: &str, message: &str) {
        let what = format!("{condition} of {check} is {expected} with {message:?}");
        until(SOON, &what, || async {
            let found = self.get("MachineHealthCheck", check).await;
            let mut told = self.dialect.conditions().iter().filter_map(|path| posted(&found, path, condition));
            let contains = |said: &Value| said["message"].as_str().unwrap_or_default().contains(message);
            told.any(|said| in_short(said) == expected && contains(said)).then_some(())
        })
        .await;
    }

    /// Machines whose owners are asked to repair them.
    pub async fn asked(&self) -> Vec<String> {
        let machines = self.api("Machine").list(&ListParams::default()).await.expect("Machines can be listed");
        let is_asked = |machine: &Value| {
            let is_false = |kind: &str| {
                let mut lists = self.dialect.conditions().iter().filter_map(|path| posted(machine, path, kind));
                lists.any(|said| said["status"] == "False")
            };
            is_false("HealthCheckSucceeded") && is_false("OwnerRemediated")
        };
        let all = machines.items.into_iter().map(|machine| serde_json::to_value(machine).expect("it is JSON"));
        all.filter(is_asked).map(|machine| machine["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub async fn until_asked(&self, expected: &[&str]) {
        until(SOON, &format!("{expected:?} are to be repaired"), || async { (self.asked().await == expected).then_some(()) })
            .await;
    }

    pub async fn stays_asked(&self, expected: &[&str]) {
        holds_for(Duration::from_secs(3), &format!("{expected:?} are to be repaired"), || async {
            let asked = self.asked().await;
            if asked == expected { Ok(()) } else { Err(format!("{asked:?}")) }
        })
        .await;
    }

    /// Names of the Machines that there are and that stay.
    pub async fn names(&self) -> Vec<String> {
        let machines = self.api("Machine").list(&ListParams::default()).await.expect("Machines can be listed");
        let stay = machines.items.into_iter().filter(|machine| machine.metadata.deletion_timestamp.is_none());
        stay.filter_map(|machine| machine.metadata.name).collect()
    }

    pub async fn until_names(&self, expected: &[&str]) {
        until(SOON, &format!("the machines are {expected:?}"), || async { (self.names().await == expected).then_some(()) }).await;
    }

    pub fn remediations_api(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("provider.test", "v1", "RebootRemediation");
        Api::namespaced_with(self.stage.api.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    pub async fn remediations(&self) -> Vec<String> {
        let all = self.remediations_api().list(&ListParams::default()).await.expect("remediations can be listed");
        all.items.into_iter().filter_map(|object| object.metadata.name).collect()
    }

    pub async fn until_remediations(&self, expected: &[&str]) {
        until(SOON, &format!("the remediations are {expected:?}"), || async {
            (self.remediations().await == expected).then_some(())
        })
        .await;
    }

    /// Nothing was made for any machine, deleted, or asked of any owner, and it stays so for some seconds.
    pub async fn stays_untouched(&self, machines: usize) {
        holds_for(Duration::from_secs(3), "nothing is done", || async {
            let (made, asked, left) = (self.remediations().await, self.asked().await, self.names().await.len());
            match made.is_empty() && asked.is_empty() && left == machines {
                true => Ok(()),
                false => Err(format!("made {made:?}, asked {asked:?}, {left} machines are left")),
            }
        })
        .await;
    }

    /// `expectedMachines`, `currentHealthy` and `remediationsAllowed`.
    pub async fn counters(&self, check: &str) -> [Value; 3] {
        let found = self.get("MachineHealthCheck", check).await;
        ["expectedMachines", "currentHealthy", "remediationsAllowed"].map(|field| found["status"][field].clone())
    }

    pub async fn until_counters(&self, check: &str, expected: [u32; 3]) {
        until(SOON, &format!("{check} counts {expected:?}"), || async {
            (self.counters(check).await == expected.map(|count| json!(count))).then_some(())
        })
        .await;
    }

    /// Events as (reason, kind and name of what they are about, message).
    pub async fn events(&self) -> Vec<(String, String, String)> {
        let api: Api<Event> = Api::namespaced(self.stage.api.clone(), NAMESPACE);
        let events = api.list(&ListParams::default()).await.expect("events can be listed").items.into_iter();
        let of = |event: Event| {
            let about = event.involved_object;
            let about = format!("{} {}", about.kind.unwrap_or_default(), about.name.unwrap_or_default());
            (event.reason.unwrap_or_default(), about, event.message.unwrap_or_default())
        };
        events.map(of).collect()
    }

    /// How often it was told, of whatever.
    pub async fn times_told(&self, reason: &str) -> usize {
        self.events().await.iter().filter(|(own, _, _)| own == reason).count()
    }

    pub async fn until_event(&self, reason: &str, about: &str, part: &str) {
        until(SOON, &format!("there is an event {reason} on {about} with {part:?}"), || async {
            let is_it = |(own, on, message): &(String, String, String)| own == reason && on == about && message.contains(part);
            self.events().await.iter().any(is_it).then_some(())
        })
        .await;
    }
}

/// A condition in the list at this path.
pub fn posted<'a>(object: &'a Value, path: &str, kind: &str) -> Option<&'a Value> {
    object.pointer(path)?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Status and reason, where it has one.
fn in_short(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    format!("{} {}", text("status"), text("reason")).trim_end().to_owned()
}

/// With what is in the files that it names.
pub fn kubeconfig(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a kubeconfig can be read");
    let mut kubeconfig: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    let cluster = kubeconfig["clusters"][0]["cluster"].as_object_mut().expect("a cluster is an object");
    if let Some(file) = cluster.remove("certificate-authority") {
        let file = std::fs::read(file.as_str().expect("a path is text")).expect("a certificate can be read");
        cluster.insert("certificate-authority-data".to_owned(), json!(STANDARD.encode(file)));
    }
    kubeconfig.to_string()
}

/// So many seconds ago, as the API writes it.
pub fn ago(seconds: i64) -> String {
    (Timestamp::now() - SignedDuration::from_secs(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
