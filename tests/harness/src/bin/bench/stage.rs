//! What is measured on? A cluster with many nodes of a real size, one check of all of them, and a provider.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use resus_harness::{Cluster, Process};
use serde_json::{Value, json};
use tokio::time::interval;

use crate::api;
use crate::node::{KUBELETS, name, node, written};

pub const NODES: &str = "/api/v1/nodes";
pub const REMEDIATIONS: &str = "/apis/provider.test/v1/namespaces/provider/rebootremediations";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta1/namespaces/provider/machines";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const NODE_BYTES: std::ops::Range<usize> = 10 * 1024..13 * 1024;

/// Whose checks are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Subjects {
    Nodes,
    /// Each with a node, under a MachineHealthCheck.
    Machines,
}

impl Subjects {
    pub fn name(self) -> &'static str {
        match self {
            Subjects::Nodes => "nodes",
            Subjects::Machines => "machines",
        }
    }
}

pub struct Stage {
    cluster: Cluster,
    pub api: Client,
    subjects: Subjects,
    pub nodes: usize,
    /// Heartbeats count their seconds from here, so that no two are alike and none is in the future.
    began_at: Timestamp,
}

/// The controller's release build, where cargo puts it together with this program.
pub fn resus_beside_us() -> Result<PathBuf> {
    let us = std::env::current_exe()?;
    let resus = us.with_file_name("resus");
    ensure!(
        resus.is_file(),
        "no controller at {}: build it with `cargo build --release -p resus`, then run this again",
        resus.display()
    );
    Ok(resus)
}

impl Stage {
    pub async fn start(subjects: Subjects, nodes: usize) -> Result<Stage> {
        let cluster = Cluster::start().await?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for manifests in ["deploy/crds", "deploy/crds-machines", "tests/provider/crds.yaml"] {
            cluster.apply_file(&root.join(manifests)).await?;
        }
        cluster.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await?.ok()?;
        cluster.apply_file(&root.join("tests/provider/template.yaml")).await?;
        cluster.apply(if subjects == Subjects::Nodes { CHECK } else { MACHINE_CHECK }).await?;
        Ok(Stage { api: cluster.admin(), cluster, subjects, nodes, began_at: Timestamp::now() - SignedDuration::from_hours(24) })
    }

    pub async fn make_nodes(&self) -> Result<()> {
        api::all_of((0..self.nodes).map(|n| async move { api::create(&self.api, NODES, &node(n)).await })).await?;
        if self.subjects == Subjects::Machines {
            api::all_of((0..self.nodes).map(|n| self.make_machine(n))).await?;
        }
        Ok(())
    }

    /// Of the same name as its node, so that its remediation has it too.
    async fn make_machine(&self, n: usize) -> Result<()> {
        let labels = json!({"pool": "bench", "cluster.x-k8s.io/set-name": "bench", "cluster.x-k8s.io/deployment-name": "bench"});
        let spec = json!({
            "providerID": format!("cloud:///zone/{n}"), "version": "v1.36.0",
            "bootstrap": {"dataSecretName": name(n)},
            "infrastructureRef": {"apiVersion": "infrastructure.test/v1", "kind": "TestMachine", "name": name(n)},
        });
        api::create(&self.api, MACHINES, &json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": {"name": name(n), "labels": labels}, "spec": spec,
        }))
        .await?;
        let since = written(Timestamp::now());
        let conditions = ["Ready", "BootstrapReady", "InfrastructureReady", "NodeHealthy"]
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": since}));
        let status =
            json!({"status": {"nodeRef": {"kind": "Node", "name": name(n)}, "phase": "Running", "conditions": conditions}});
        api::patch(&self.api, &format!("{MACHINES}/{}/status", name(n)), MERGE, &status).await.map(drop)
    }

    fn check(&self) -> &'static str {
        match self.subjects {
            Subjects::Nodes => "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks/bench",
            Subjects::Machines => "/apis/cluster.x-k8s.io/v1beta1/namespaces/provider/machinehealthchecks/bench",
        }
    }

    /// How large a node really is, as the server sends it; an error if that is not what we claim to measure with.
    pub async fn node_bytes(&self) -> Result<usize> {
        let stored: Value = api::get(&self.api, &format!("{NODES}/{}", name(0))).await?;
        let bytes = stored.to_string().len();
        ensure!(NODE_BYTES.contains(&bytes), "a node should have about 11 KiB, not {bytes} bytes");
        Ok(bytes)
    }

    pub fn start_controller(&self, resus: &Path) -> Result<Process> {
        let mut command = Command::new(resus);
        command.arg("controller").arg("--kubeconfig").arg(self.cluster.admin_kubeconfig());
        command.args(["--metrics-bind-address=0", "--health-probe-bind-address=0"]);
        // What somebody's shell says about logs or namespaces is not measured.
        command.env_remove("RESUS_LOG").env_remove("POD_NAMESPACE");
        self.cluster.start_process("controller", command)
    }

    /// Until the check's status counts all nodes as healthy, and all machines say so. Whoever calls sets the limit.
    pub async fn until_synced(&self) -> Result<()> {
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            let check: Value = api::get(&self.api, self.check()).await?;
            let healthy = match self.subjects {
                Subjects::Nodes => &check["status"]["healthyNodes"],
                Subjects::Machines => &check["status"]["currentHealthy"],
            };
            if *healthy == json!(self.nodes) {
                break;
            }
        }
        if self.subjects == Subjects::Nodes {
            return Ok(());
        }
        // A list of all machines is much to ask for.
        let mut ticks = interval(Duration::from_secs(2));
        loop {
            ticks.tick().await;
            let all: Value = api::get(&self.api, MACHINES).await?;
            let is_marked = |machine: &Value| {
                let conditions = machine["status"]["conditions"].as_array();
                conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == "HealthCheckSucceeded"))
            };
            if all["items"].as_array().is_some_and(|items| items.iter().all(is_marked)) {
                return Ok(());
            }
        }
    }

    pub async fn limit_unhealthy(&self, max_unhealthy: &str) -> Result<()> {
        let patch = json!({"spec": {"maxUnhealthy": max_unhealthy}});
        api::patch(&self.api, self.check(), MERGE, &patch).await.map(drop)
    }

    /// Ready has this status since `since_for`.
    pub async fn set_ready(&self, n: usize, status: &str, since_for: SignedDuration) -> Result<()> {
        let (since, now) = (written(Timestamp::now() - since_for), written(Timestamp::now()));
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": since, "lastHeartbeatTime": now});
        self.patch_conditions(n, &json!([ready])).await.map(drop)
    }

    /// Like a kubelet that has nothing new to say; returns the node's new version.
    pub async fn beat(&self, n: usize, beat: usize) -> Result<String> {
        let at = written(self.began_at + SignedDuration::from_secs(i64::try_from(beat)?));
        let conditions = KUBELETS.map(|kind| json!({"type": kind, "lastHeartbeatTime": at}));
        self.patch_conditions(n, &json!(conditions)).await
    }

    async fn patch_conditions(&self, n: usize, conditions: &Value) -> Result<String> {
        let patch = json!({"status": {"conditions": conditions}});
        let node = api::patch(&self.api, &format!("{NODES}/{}/status", name(n)), STRATEGIC, &patch).await?;
        Ok(node.metadata.resource_version)
    }

    pub async fn remediations(&self) -> Result<usize> {
        let all: api::List = api::get(&self.api, REMEDIATIONS).await.context("counting remediations")?;
        Ok(all.items.len())
    }
}

const CHECK: &str = r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: bench
spec:
  selector:
    matchExpressions:
      - {key: node-role.kubernetes.io/worker, operator: Exists}
  maxUnhealthy: "100%"
  unhealthyConditions:
    - {type: Ready, status: "False", duration: 1s}
    - {type: Ready, status: Unknown, duration: 1s}
  remediationTemplate:
    apiVersion: provider.test/v1
    kind: RebootRemediationTemplate
    name: reboot
    namespace: provider
"#;

/// With the machines' template in their namespace, which is the provider's.
const MACHINE_CHECK: &str = r#"
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata:
  name: bench
  namespace: provider
spec:
  selector:
    matchLabels: {pool: bench}
  maxUnhealthy: "100%"
  unhealthyConditions:
    - {type: Ready, status: "False", timeout: 1s}
    - {type: Ready, status: Unknown, timeout: 1s}
  remediationTemplate:
    apiVersion: provider.test/v1
    kind: RebootRemediationTemplate
    name: reboot
"#;
