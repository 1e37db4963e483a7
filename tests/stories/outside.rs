//! What the process shows of itself: endpoints, and errors that say what to do.

use std::path::Path;
use std::process::Command;

use kube::api::{DeleteParams, ListParams};
use resus_harness::{Cluster, Process, run, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{SOON, Stage, bare_stage, stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_metrics_are_served() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    stage.check("workers", 5, "1").await;
    let kubeconfig = stage.account().await;
    let flags = ["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"];
    let controller = stage.controller_with("controller", &kubeconfig, &flags);
    let (metrics, probes) = (address(&controller, "serving metrics").await, address(&controller, "serving health probes").await);
    until(SOON, "it is ready", || async { get(&probes, "/readyz").await.starts_with("HTTP/1.1 200").then_some(()) }).await;
    everything_is_paused_for_a_while(&stage, &metrics).await;
    stage.until_remediations(&["n1"]).await;
    let text = until(SOON, "the decision is counted", || async {
        let text = get(&metrics, "/metrics").await;
        text.contains("resus_decisions{verdict=\"keep\"} 1").then_some(text)
    })
    .await;
    for line in [
        "resus_leader 1",
        "resus_leader_changes_total 0",
        "resus_nodes 3",
        "resus_checks 1",
        "resus_stale_sources 0",
        "resus_effects_total{effect=\"create\"} 1",
        "resus_request_duration_seconds_count{effect=\"create\"} 1",
        "resus_build_info{version=\"0.1.0\"} 1",
    ] {
        assert!(text.lines().any(|own| own == line), "{line} in {text}");
    }
    assert!(get(&probes, "/nothing").await.starts_with("HTTP/1.1 404"));

    // Without the API server the process is well all the same: to restart it would help nobody.
    stage.cluster.apiserver().kill();
    until(SOON, "the watches are stale", || async {
        get(&metrics, "/metrics").await.contains("resus_stale_sources 9").then_some(())
    })
    .await;
    let text = get(&metrics, "/metrics").await;
    for series in
        ["resus_watch_restarts_total{source=\"nodes\"} ", "resus_source_age_seconds{source=\"nodes\"} ", "process_open_fds "]
    {
        assert!(text.contains(series), "{series} in {text}");
    }
    assert!(text.contains("process_resident_memory_bytes ") && text.contains("process_cpu_seconds_total "), "{text}");
    assert!(get(&probes, "/healthz").await.starts_with("HTTP/1.1 200"));
    stage.cluster.apiserver().restart().await.expect("it comes back");
}

/// n1 breaks meanwhile.
async fn everything_is_paused_for_a_while(stage: &Stage, metrics: &str) {
    let pause = async |change: &str| stage.kubectl(&["annotate", "namespace", "poison-pill", change]).await;
    pause("resus.dev/pause=ask Ana").await;
    stage.condition("n1", "Ready", "False", 60).await;
    let status = stage.until_status("workers", "it is paused", |status| status["phase"] == "Paused").await;
    assert!(status["reason"].as_str().is_some_and(|reason| reason.ends_with("namespace poison-pill: ask Ana")), "{status}");
    let series = [
        "resus_paused 1",
        r#"resus_gate_shut{check="workers",reason="AllPaused"} 1"#,
        r#"resus_held_nodes{check="workers",reason="AllPaused"} 1"#,
    ];
    until(SOON, "it can be measured", || async {
        let text = get(metrics, "/metrics").await;
        series.iter().all(|series| text.contains(series)).then_some(())
    })
    .await;
    stage.stays(&[]).await;
    pause("resus.dev/pause-").await;
    until(SOON, "it goes on", || async {
        let text = get(metrics, "/metrics").await;
        (text.contains("resus_paused 0") && !text.contains("AllPaused")).then_some(())
    })
    .await;
    for (event, part) in [("Paused", "ask Ana"), ("Resumed", "everything goes on")] {
        until(SOON, event, || async {
            let told = stage
                .kubectl(&[
                    "get",
                    "events",
                    "-n",
                    "default",
                    "--field-selector",
                    &format!("reason={event},involvedObject.kind=Namespace"),
                ])
                .await;
            told.contains(part).then_some(())
        })
        .await;
    }
}

/// A node has series while something is done about it, and what is left of them goes with its Node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_series_of_a_node_go_with_it() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(3).await;
    stage.check("workers", 5, "1").await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller_with("controller", &kubeconfig, &["--metrics-bind-address=127.0.0.1:0"]);
    let metrics = address(&controller, "serving metrics").await;
    let until_series = async |metric: &str, there: bool| {
        let series = format!(r#"nodehealthcheck_{metric}{{name="n1",namespace="provider",remediation="RebootRemediation""#);
        until(SOON, &format!("{series} is there: {there}"), || async {
            (get(&metrics, "/metrics").await.contains(&series) == there).then_some(())
        })
        .await;
    };
    stage.condition("n1", "Ready", "False", 60).await;
    until_series("ongoing_remediation", true).await;
    until_series("old_remediation_cr", false).await;
    // As after two days.
    let flag =
        ["annotate", "-n", "provider", "rebootremediation", "n1", "nodehealthcheck.medik8s.io/old-remediation-cr-flag=flagon"];
    stage.kubectl(&flag).await;
    until_series("old_remediation_cr", true).await;
    stage.condition("n1", "Ready", "True", 0).await;
    until_series("ongoing_remediation", false).await;
    until_series("old_remediation_cr", false).await;
    until_series("unhealthy_node_duration_seconds_count", true).await;
    stage.nodes_api().delete("n1", &DeleteParams::default()).await.expect("a Node can be deleted");
    until_series("unhealthy_node_duration_seconds_count", false).await;
    assert!(!get(&metrics, "/metrics").await.contains("n1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_our_crds_is_told_what_to_apply() {
    let Some(stage) = bare_stage(Cluster::builder()).await else { return };
    // What waits is the next step: kubectl itself waits for minutes on a busy machine.
    stage.kubectl(&["delete", "crd", "nodehealthchecks.remediation.medik8s.io", "--wait=false"]).await;
    // The server goes on serving the kind for some moments after its definition is gone.
    until(SOON, "the kind is no longer served", || async {
        stage.checks_api().list(&ListParams::default()).await.is_err().then_some(())
    })
    .await;
    let flags = ["--health-probe-bind-address=127.0.0.1:0"];
    let controller = stage.controller_with("controller", stage.cluster.admin_kubeconfig(), &flags);
    controller.wait_for_log("apply deploy/crds", SOON).await.expect("it says what to do");
    let probes = address(&controller, "serving health probes").await;
    // Where only MachineHealthChecks are used it is never served.
    until(SOON, "it is ready", || async { get(&probes, "/readyz").await.starts_with("HTTP/1.1 200").then_some(()) }).await;
    stage.apply_file("deploy/crds").await;
    controller.wait_for_log("source=NodeHealthChecks objects=0", SOON).await.expect("they are listed without a restart");
}

#[tokio::test]
async fn bad_flags_end_the_process_with_what_to_write() {
    for (args, says) in [
        (vec!["controller", "--kubeconfig", "/does/not/exist"], "cannot read the kubeconfig /does/not/exist"),
        (vec!["controller", "--leader-elect-renew-deadline", "14s"], "must be less than the lease duration"),
        (vec!["controller", "--leader-elect-retry-period", "0s"], "must not be zero"),
        (vec!["controller", "--leader-elect-lease-duration", "15"], "write a unit after each number"),
        (vec!["controller", "--namespace", "Not_A_Name"], "a namespace has lower-case letters"),
        (vec!["controller", "--metrics-bind-address", "everywhere"], "write IP:PORT, :PORT, or 0 for none"),
        (vec!["controller", "--log", "resus=loud"], "write a level"),
        (vec!["manifests", "--check", "--to", "/does/not/exist"], "run `make manifests`"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
        command.args(&args);
        let said = run(&command, SOON).await.expect("it ends");
        assert!(!said.status.success() && said.stderr.contains(says), "{args:?}: {} {}", said.status, said.stderr);
    }
}

/// The files in `deploy` are what the code says.
#[tokio::test]
async fn generated_files_are_up_to_date() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
    command.args(["manifests", "--check", "--to"]).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy"));
    let said = run(&command, SOON).await.expect("it ends");
    assert!(said.status.success(), "{}", said.stderr);
}

pub async fn address(controller: &Process, what: &str) -> String {
    let line = controller.wait_for_log(what, SOON).await.expect("it serves");
    let line = line.lines().find(|line| line.contains(what)).expect("it was found").to_owned();
    line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("with its address").to_owned()
}

pub async fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.expect("somebody listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: resus\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("it can be asked");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("it answers");
    answer
}
