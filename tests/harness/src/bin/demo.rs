//! `make demo`: nodes break and are repaired, on a real API server, with the reasons.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use resus_harness::{Cluster, Process, until};
use serde_json::{Value, json};

const NODES: usize = 6;
/// Minutes in production; nobody wants to watch that.
const UNHEALTHY_AFTER: &str = "3s";
/// Far more than any step takes, also on a slow machine.
const SOON: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let began = Instant::now();
    let demo = Demo::set_up(began).await?;

    demo.scene("One node loses its kubelet. It is given time to recover; then it is repaired.");
    demo.set("n2", "Ready", "Unknown").await?;
    demo.until_remediated(&["n2"]).await;
    demo.scene("The provider has power-cycled it: the node is back, the remediation goes.");
    demo.set("n2", "Ready", "True").await?;
    demo.until_remediated(&[]).await;

    demo.scene("Another breaks in another way: a problem detector reports a broken disk. It recovers by itself, in time.");
    demo.set("n5", "DiskBroken", "True").await?;
    demo.until_told("n5", "unhealthy only after").await;
    demo.set("n5", "DiskBroken", "False").await?;
    demo.until_told("n5", "is healthy").await;

    demo.scene("A rack loses power: 4 of 6 nodes at once. That is no broken node, and nothing is touched.");
    for node in ["n1", "n2", "n3", "n4"] {
        demo.set(node, "Ready", "Unknown").await?;
    }
    demo.until_told("n4", "nodes are not healthy").await;
    let status = demo.until_status("TooManyUnhealthy").await;
    demo.say(&format!("status of the check: {}", status["conditions"][1]["message"].as_str().unwrap_or_default()));

    demo.scene("Power returns, but one node does not come up. Now it is just one, and it is repaired.");
    for node in ["n1", "n2", "n4"] {
        demo.set(node, "Ready", "True").await?;
    }
    demo.until_remediated(&["n3"]).await;
    demo.set("n3", "Ready", "True").await?;
    demo.until_remediated(&[]).await;

    demo.until_status("RemediationAllowed").await;
    demo.scene("What an admin sees of it:");
    for args in [
        ["get", "nodehealthcheck", "workers", "-o", "wide"].as_slice(),
        ["events", "-n", "default", "--for", "nodehealthcheck/workers"].as_slice(),
    ] {
        print!("{}", demo.cluster.kubectl(args).await?.ok()?);
    }
    let stopped = demo.controller.terminate(SOON).await?;
    ensure!(stopped.success(), "the controller ended with {stopped}");
    println!("\nDone in {} s.", began.elapsed().as_secs());
    Ok(())
}

struct Demo {
    cluster: Cluster,
    api: Client,
    controller: Process,
    began: Instant,
    /// Lines of the controller's log that have been shown.
    shown: std::sync::Mutex<usize>,
}

impl Demo {
    async fn set_up(began: Instant) -> Result<Demo> {
        println!("Starting etcd and kube-apiserver, with {NODES} nodes, a check and the controller ...");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cluster = Cluster::start().await?;
        for file in ["deploy/crds", "tests/provider/crds.yaml"] {
            cluster.apply_file(&root.join(file)).await?;
        }
        cluster.kubectl(["wait", "--for=condition=Established", "--timeout=30s", "--all", "crd"]).await?.ok()?;
        cluster.apply_file(&root.join("tests/provider/template.yaml")).await?;
        cluster.apply(&check()).await?;

        let mut command = Command::new(resus()?);
        command.args([
            "controller",
            "--log-format=json",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--kubeconfig",
        ]);
        command.arg(cluster.admin_kubeconfig());
        let controller = cluster.start_process("controller", command)?;
        let demo = Demo { api: cluster.admin(), cluster, controller, began, shown: 0.into() };
        for n in 1..=NODES {
            demo.create_node(&format!("n{n}")).await?;
        }
        demo.until_status("RemediationAllowed").await;
        println!("A check observes them: {UNHEALTHY_AFTER} of not being ready, or of a broken disk, mean unhealthy; and repairs");
        println!("go on only while at most 49% are not healthy.");
        Ok(demo)
    }

    async fn create_node(&self, name: &str) -> Result<()> {
        let labels = [("node-role.kubernetes.io/worker".to_owned(), String::new())].into();
        let metadata = ObjectMeta { name: Some(name.into()), labels: Some(labels), ..ObjectMeta::default() };
        Api::<Node>::all(self.api.clone()).create(&PostParams::default(), &Node { metadata, ..Node::default() }).await?;
        self.report(name, "Ready", "True").await
    }

    /// The node breaks, or recovers.
    async fn set(&self, node: &str, kind: &str, status: &str) -> Result<()> {
        self.say(&format!("{node}: {kind} is {status}"));
        self.report(node, kind, status).await
    }

    async fn report(&self, node: &str, kind: &str, status: &str) -> Result<()> {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition =
            json!({"type": kind, "status": status, "lastTransitionTime": now, "lastHeartbeatTime": now, "reason": "Demo"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        Api::<Node>::all(self.api.clone()).patch_status(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn until_remediated(&self, nodes: &[&str]) {
        let kind = GroupVersionKind::gvk("provider.test", "v1", "RebootRemediation");
        let api: Api<DynamicObject> = Api::namespaced_with(self.api.clone(), "provider", &ApiResource::from_gvk(&kind));
        until(SOON, &format!("remediations are {nodes:?}"), || async {
            self.show_decisions();
            let all = api.list(&ListParams::default()).await.ok()?;
            let names: Vec<String> = all.items.into_iter().filter_map(|object| object.metadata.name).collect();
            (names == nodes).then_some(())
        })
        .await;
        self.show_decisions();
    }

    async fn until_told(&self, node: &str, text: &str) {
        let told = |decision: &BTreeMap<String, Value>| {
            decision["node"] == node && decision["because"].as_str().is_some_and(|why| why.contains(text))
        };
        let from = *self.shown.lock().expect("nothing panics while it is held");
        until(SOON, &format!("{node}: {text}"), || async {
            self.show_decisions();
            decisions(&self.controller.log()).iter().skip(from).any(told).then_some(())
        })
        .await;
    }

    async fn until_status(&self, reason: &str) -> Value {
        let kind = GroupVersionKind::gvk("remediation.medik8s.io", "v1alpha1", "NodeHealthCheck");
        let api: Api<DynamicObject> = Api::all_with(self.api.clone(), &ApiResource::from_gvk(&kind));
        until(SOON, &format!("the check says {reason}"), || async {
            let status = api.get("workers").await.ok()?.data.get("status")?.clone();
            (status["conditions"][1]["reason"] == reason
                && status["observedNodes"] == NODES
                && (reason != "RemediationAllowed" || status["healthyNodes"] == NODES))
                .then_some(status)
        })
        .await
    }

    fn scene(&self, text: &str) {
        self.show_decisions();
        println!("\n# {text}");
    }

    fn say(&self, text: &str) {
        println!("{:6.1}s  {text}", self.began.elapsed().as_secs_f64());
    }

    /// Each decision with its because, as the controller logs it.
    fn show_decisions(&self) {
        let mut shown = self.shown.lock().expect("nothing panics while it is held");
        let all = decisions(&self.controller.log());
        for decision in all.iter().skip(*shown) {
            let text = |field: &str| decision.get(field).and_then(Value::as_str).unwrap_or_default();
            self.say(&format!("  {}: {:6} because {}", text("node"), text("verdict"), text("because")));
        }
        *shown = all.len();
    }
}

fn decisions(log: &str) -> Vec<BTreeMap<String, Value>> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<BTreeMap<String, Value>>(line).ok());
    lines.filter(|line| line.get("message").and_then(Value::as_str) == Some("decided")).collect()
}

fn check() -> String {
    format!(
        r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {{name: workers}}
spec:
  selector:
    matchExpressions: [{{key: node-role.kubernetes.io/worker, operator: Exists}}]
  maxUnhealthy: 49%
  unhealthyConditions:
    - {{type: Ready, status: "False", duration: {UNHEALTHY_AFTER}}}
    - {{type: Ready, status: Unknown, duration: {UNHEALTHY_AFTER}}}
    - {{type: DiskBroken, status: "True", duration: {UNHEALTHY_AFTER}}}
  remediationTemplate: {{apiVersion: provider.test/v1, kind: RebootRemediationTemplate, name: reboot, namespace: provider}}
"#
    )
}

/// Built beside this program.
fn resus() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().context("a program is in a folder")?.join("resus");
    ensure!(path.exists(), "{} is missing: run `cargo build -p resus` first, or `make demo`", path.display());
    Ok(path)
}
