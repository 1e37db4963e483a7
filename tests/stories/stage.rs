//! What does every story need? A cluster with our CRDs, a provider, some nodes, and the controller.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use resus_harness::{AuditEntry, Builder, Cluster, Process, Proxy, cluster_or_skip, holds_for, until};
use serde_json::{Value, json};

/// Far more than anything here takes, also on a slow and busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// Requests of a story about many nodes: enough to keep the API server busy.
pub const AT_ONCE: usize = 50;

pub struct Stage {
    pub cluster: Cluster,
    pub api: Client,
}

/// With everything but nodes, checks and the controller.
pub async fn stage(builder: Builder) -> Option<Stage> {
    let stage = bare_stage(builder).await?;
    stage.apply_file("tests/provider/crds.yaml").await;
    stage.established("rebootremediations.provider.test").await;
    stage.established("rebootremediationtemplates.provider.test").await;
    stage.apply_file("tests/provider/template.yaml").await;
    Some(stage)
}

/// With nothing but what `deploy/crds` holds.
pub async fn bare_stage(builder: Builder) -> Option<Stage> {
    // Every story tells which rights it needed.
    let cluster = cluster_or_skip(builder.audit(true)).await?;
    let stage = Stage { api: cluster.admin(), cluster };
    stage.apply_file("deploy/crds").await;
    stage.established("nodehealthchecks.remediation.medik8s.io").await;
    Some(stage)
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the repository").to_owned()
}

impl Stage {
    pub async fn apply_file(&self, path: &str) {
        self.cluster.apply_file(&root().join(path)).await.expect("kubectl applies what the repository ships");
    }

    pub async fn apply(&self, yaml: &str) {
        self.cluster.apply(yaml).await.expect("kubectl applies the story's YAML");
    }

    pub async fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.kubectl(args).await.expect("kubectl runs").ok().expect("kubectl succeeds")
    }

    /// The second provider, for checks that escalate.
    pub async fn power_provider(&self) {
        self.apply_file("tests/provider/power.yaml").await;
        self.established("powerremediations.provider.test").await;
        self.established("powerremediationtemplates.provider.test").await;
        self.apply_file("tests/provider/power-template.yaml").await;
    }

    pub async fn established(&self, crd: &str) {
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", &format!("crd/{crd}")];
        // Of a definition that is so new that nothing is said of it yet kubectl makes an error.
        until(SOON, &format!("{crd} is established"), || async { self.cluster.kubectl(wait).await.ok()?.ok().ok() }).await;
    }

    /// Healthy workers `n1`, `n2` and so on.
    pub async fn nodes(&self, count: usize) {
        let created = (1..=count).map(|n| async move { self.node(&format!("n{n}")).await });
        stream::iter(created).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// A healthy worker.
    pub async fn node(&self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}},
            "status": {"conditions": [condition_since("Ready", "True", 3600)]},
        });
        let node: Node = serde_json::from_value(node).expect("it is a Node");
        self.nodes_api().create(&PostParams::default(), &node).await.expect("a Node can be created");
    }

    pub fn nodes_api(&self) -> Api<Node> {
        Api::all(self.api.clone())
    }

    /// The node has this condition since so many seconds.
    pub async fn condition(&self, node: &str, kind: &str, status: &str, since_seconds: i64) {
        let patch = json!({"status": {"conditions": [condition_since(kind, status, since_seconds)]}});
        let patched = self.nodes_api().patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await;
        patched.expect("the status of a Node can be patched");
    }

    /// A check of all workers: Ready False for `seconds`, Ready Unknown and DiskBroken True for `seconds` too.
    pub async fn check(&self, name: &str, seconds: u32, max_unhealthy: &str) {
        self.apply(&check_yaml(name, seconds, max_unhealthy)).await;
    }

    /// Like [`Stage::check`] with five seconds, and with these fields of the spec; null takes one away.
    pub async fn check_with(&self, name: &str, max_unhealthy: &str, fields: Value) {
        let mut check: Value = serde_saphyr::from_str(&check_yaml(name, 5, max_unhealthy)).expect("it is YAML");
        let fields = fields.as_object().expect("fields are an object").clone();
        let spec = check["spec"].as_object_mut().expect("a check has a spec");
        spec.extend(fields);
        spec.retain(|_, value| !value.is_null());
        self.apply(&check.to_string()).await;
    }

    /// Merges something into a check.
    pub async fn change_check(&self, name: &str, change: Value) -> kube::Result<DynamicObject> {
        self.checks_api().patch(name, &PatchParams::default(), &Patch::Merge(change)).await
    }

    /// Merges something into a Node.
    pub async fn change_node(&self, name: &str, change: Value) {
        let patched = self.nodes_api().patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        patched.expect("a Node can be patched");
    }

    /// Leases that take nodes out of service.
    pub fn leases_api(&self) -> Api<Lease> {
        self.leases_in("medik8s-leases")
    }

    pub fn leases_in(&self, namespace: &str) -> Api<Lease> {
        Api::namespaced(self.api.clone(), namespace)
    }

    pub fn checks_api(&self) -> Api<DynamicObject> {
        Api::all_with(self.api.clone(), &resource("remediation.medik8s.io", "v1alpha1", "NodeHealthCheck"))
    }

    pub async fn status(&self, check: &str) -> Value {
        let check = self.checks_api().get(check).await.expect("the check exists");
        check.data.get("status").cloned().unwrap_or_default()
    }

    pub fn remediations_api(&self) -> Api<DynamicObject> {
        self.objects_api("RebootRemediation")
    }

    /// Objects of a provider.
    pub fn objects_api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.api.clone(), "provider", &resource("provider.test", "v1", kind))
    }

    /// As the provider says how a remediation goes.
    pub async fn provider_says(&self, kind: &str, name: &str, condition: &str, status: &str) {
        let said = json!({"status": {"conditions": [{"type": condition, "status": status}]}});
        let patched = self.objects_api(kind).patch_status(name, &PatchParams::default(), &Patch::Merge(said)).await;
        patched.expect("the status of a remediation can be patched");
    }

    /// Names of all remediations there are.
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

    pub async fn until_status(&self, check: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(SOON, what, || async {
            let status = self.status(check).await;
            holds(&status).then_some(status)
        })
        .await
    }

    /// Why nothing is done about this node, as the check's status has it.
    pub async fn until_held(&self, check: &str, node: &str, why: &str) {
        self.until_status(check, &format!("{node} is held: {why}"), |status| {
            listed(status, node)["held"].as_str().is_some_and(|held| held.contains(why))
        })
        .await;
    }

    pub async fn until_event(&self, reason: &str, part: &str) {
        until(SOON, &format!("there is an event {reason} with {part:?}"), || async {
            self.events().await.iter().any(|(own, message)| own == reason && message.contains(part)).then_some(())
        })
        .await;
    }

    /// The remediations are these, and stay so for some seconds.
    pub async fn stays(&self, expected: &[&str]) {
        self.until_remediations(expected).await;
        holds_for(Duration::from_secs(3), "nothing starts and nothing goes", || async {
            let names = self.remediations().await;
            if names == expected { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    }

    /// Events of checks, as (reason, message).
    pub async fn events(&self) -> Vec<(String, String)> {
        let api: Api<Event> = Api::namespaced(self.api.clone(), "default");
        let events = api.list(&ListParams::default()).await.expect("events can be listed");
        let ours = events.items.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("NodeHealthCheck"));
        ours.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    /// Credentials of the controller's own account, with the rights of `deploy/rbac.yaml` and the provider's.
    pub async fn account(&self) -> PathBuf {
        let kubeconfig = self.account_as_shipped().await;
        self.aggregate("provider-remediation").await;
        kubeconfig
    }

    /// Without a controller manager nobody fills the aggregated role: binds a provider's directly.
    pub async fn aggregate(&self, role: &str) {
        let role_flag = format!("--clusterrole={role}");
        self.kubectl(&["create", "clusterrolebinding", role, &role_flag, "--serviceaccount=poison-pill:resus-controller"]).await;
    }

    /// With nothing but what we and the provider ship: the cluster has to aggregate the roles.
    pub async fn account_as_shipped(&self) -> PathBuf {
        self.apply_file("deploy/rbac.yaml").await;
        self.apply_file("tests/provider/role.yaml").await;
        self.cluster.kubeconfig_for("poison-pill", "resus-controller").await.expect("the account exists")
    }

    pub fn controller(&self, name: &str, kubeconfig: &Path) -> Process {
        self.controller_with(name, kubeconfig, &[])
    }

    pub fn controller_with(&self, name: &str, kubeconfig: &Path, flags: &[&str]) -> Process {
        self.controller_in(name, kubeconfig, flags, &[])
    }

    /// With these variables in its environment.
    pub fn controller_in(&self, name: &str, kubeconfig: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Process {
        let mut command = controller_command(Path::new(env!("CARGO_BIN_EXE_resus")), kubeconfig);
        command.envs(environment.iter().copied()).args(flags);
        self.cluster.start_process(name, command).expect("the controller starts")
    }

    /// Of the version that this program is.
    pub fn controller_of(&self, program: &Path, name: &str, kubeconfig: &Path) -> Process {
        self.cluster.start_process(name, controller_command(program, kubeconfig)).expect("the controller starts")
    }

    /// The controller's own account, but through the proxy.
    pub async fn account_through(&self, proxy: &Proxy) -> PathBuf {
        let direct = self.account().await;
        self.cluster.kubeconfig_via(&proxy.url(), &direct).expect("a kubeconfig can be written")
    }

    /// As if the time of a dead leader had run out; waiting for it would be all that a story does.
    pub async fn forget_leader(&self) {
        self.kubectl(&["delete", "lease", "-n", "poison-pill", "resus-controller", "--ignore-not-found"]).await;
    }

    /// How often the API server stored a new remediation, of whichever node.
    pub fn times_created(&self) -> usize {
        self.times_created_of("rebootremediations")
    }

    pub fn times_created_of(&self, plural: &str) -> usize {
        let entries = self.cluster.audit_log().expect("the audit log can be read");
        let is_creation = |entry: &&AuditEntry| {
            let path = entry.uri.split('?').next().unwrap_or_default();
            entry.verb == "create" && entry.code == 201 && path.ends_with(&format!("/{plural}"))
        };
        entries.iter().filter(is_creation).count()
    }
}

fn controller_command(program: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("controller").arg("--kubeconfig").arg(kubeconfig);
    command.args(["--metrics-bind-address=0", "--health-probe-bind-address=0", "--log=info,resus_driver=debug"]);
    command
}

/// What a check's status says of a node; null if nothing.
pub fn listed<'a>(status: &'a Value, node: &str) -> &'a Value {
    let nodes = status["unhealthyNodes"].as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().find(|listed| listed["name"] == node).unwrap_or(&Value::Null)
}

/// A condition of a check; null if it has none of this type.
pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub fn annotation<'a>(object: &'a DynamicObject, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// When the API server stored it first.
pub fn created_at(object: &impl ResourceExt) -> Timestamp {
    object.creation_timestamp().expect("the API server dates what it stores").0
}

pub fn time(value: &Value) -> Timestamp {
    value.as_str().expect("a time is a string").parse().expect("as RFC 3339 has it")
}

fn condition_since(kind: &str, status: &str, seconds: i64) -> Value {
    let written = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (since, now) = (Timestamp::now() - SignedDuration::from_secs(seconds), Timestamp::now());
    json!({
        "type": kind, "status": status, "lastTransitionTime": written(since), "lastHeartbeatTime": written(now),
        "reason": "Story", "message": "",
    })
}

pub fn check_yaml(name: &str, seconds: u32, max_unhealthy: &str) -> String {
    format!(
        r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: {name}
spec:
  selector:
    matchExpressions:
      - {{key: node-role.kubernetes.io/worker, operator: Exists}}
  maxUnhealthy: "{max_unhealthy}"
  unhealthyConditions:
    - {{type: Ready, status: "False", duration: {seconds}s}}
    - {{type: Ready, status: Unknown, duration: {seconds}s}}
    - {{type: DiskBroken, status: "True", duration: {seconds}s}}
  remediationTemplate:
    apiVersion: provider.test/v1
    kind: RebootRemediationTemplate
    name: reboot
    namespace: provider
"#
    )
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
