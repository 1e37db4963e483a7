//! Does `resus demo` show what it promises, to somebody who tries it first?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use resus_harness::{Process, Said, run, skip, until};

/// Without a terminal it does not wait for readers; a busy machine gets the rest.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
/// From the break to the end of the repair it takes some 45 s at wall speed.
const REPAIRED_WITHIN: Duration = Duration::from_secs(150);
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The controller gives up its lease, and waits for no more than its last answers.
const STOPS_WITHIN: Duration = Duration::from_secs(15);
/// A first build of the Kubernetes parts takes 15 minutes on 2 cores, and several tests may wait for it at once.
const BUILT_WITHIN: Duration = Duration::from_secs(45 * 60);

async fn demo(args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
    command.arg("demo").args(args);
    run(&command, TOLD_WITHIN).await.expect("it ends in time")
}

/// Each in this order.
#[track_caller]
fn assert_told(story: &str, texts: &[&str]) {
    let mut rest = story;
    for text in texts {
        match rest.find(text) {
            Some(at) => rest = &rest[at + text.len()..],
            None => panic!("not told, or not in this order: {text:?}\n{story}"),
        }
    }
}

#[tokio::test]
async fn a_story_is_told_line_by_line_and_ends_well() {
    let story = demo(&[]).await.ok().expect("it ends with 0");
    assert_told(
        &story,
        &[
            "12 workers in 3 zones",
            "\n# A worker loses power.\n",
            "!         worker-2: the power is gone",
            "wait with worker-2, because condition Ready is Unknown, unhealthy only after 300s",
            "... 5 minutes pass",
            "start to remediate worker-2, because condition Ready is Unknown for longer than 300s",
            "worker-2: a RebootRemediation is created",
            "worker-2: power-cycled",
            "worker-2: booted and Ready",
            "remove the remediation of worker-2, because the node is healthy",
            "worker-2: the RebootRemediation is removed",
            "\n# A worker loses the kubelet",
            "start to remediate worker-7, because condition Ready is Unknown for longer than 300s",
            "\n# A worker reports a bad disk",
            "start to remediate worker-12, because condition DiskBroken is True for longer than 60s",
            "\n# A worker flaps",
            "wait with worker-1, because condition Ready is False, unhealthy only after 300s",
            "leave worker-1 alone, because the node is healthy",
            "\n# All of zone c loses power: 4 of 12 workers at once.\n",
            "hold back on worker-9, worker-10, worker-11, worker-12, because 4 of 12 nodes are not healthy, repairs go on only while at most 3 are",
            "\n# Power returns to zone c, but worker-9 does not come up.\n",
            "leave worker-10, worker-11, worker-12 alone, because the node is healthy",
            "start to remediate worker-9, because",
            "\n# A worker hangs, and when its time is over the API server is away.\n",
            "the API server does not answer any more",
            "hold back on worker-6, because what is known of Nodes may be out of date",
            "the API server answers again",
            "start to remediate worker-6, because",
            "\nAll 12 workers are well. 5 repairs, and no wrong one.\n",
            "Held back, as too many were not healthy at once: worker-9, worker-10, worker-11, worker-12.",
            "resus demo --serve",
        ],
    );
    assert!(!story.contains("start to remediate worker-1,"), "the flapping one is left alone:\n{story}");
    assert!(story.is_ascii(), "no colours and no symbols where there is no terminal:\n{story}");
    let again = demo(&["--fast"]).await.ok().expect("it ends with 0");
    assert!(story == again, "the same story each time");
}

#[tokio::test]
async fn with_more_workers_more_of_them_break_and_no_more_is_said() {
    let story = demo(&["--nodes", "60"]).await.ok().expect("it ends with 0");
    assert_told(
        &story,
        &[
            "60 workers in 3 zones",
            "\n# 5 workers lose power.\n",
            "start to remediate worker-2, worker-3, worker-4 and 2 more, because condition Ready is Unknown for longer than 300s",
            "\n# All of zone c loses power: 20 of 60 workers at once.\n",
            "hold back on worker-41, worker-42, worker-43 and 17 more, because 20 of 60 nodes are not healthy, repairs go on only while at most 18 are",
            "\nAll 60 workers are well. 17 repairs, and no wrong one.\n",
        ],
    );
    assert!(story.lines().count() < 120, "{} lines", story.lines().count());
}

#[tokio::test]
async fn what_cannot_be_shown_is_refused_with_what_to_write() {
    for (args, texts) in [
        (["--nodes", "1"].as_slice(), ["--nodes", "from 3 to 500"]),
        (["--listen", "127.0.0.1:0"].as_slice(), ["--serve", "required"]),
    ] {
        let said = demo(args).await;
        assert!(!said.status.success() && said.stdout.is_empty(), "{args:?}: {said:?}");
        texts.iter().for_each(|text| assert!(said.stderr.contains(text), "{args:?}: {}", said.stderr));
    }
}

#[tokio::test]
async fn a_served_cluster_repairs_what_kubectl_breaks() {
    let Some(kubectl) = kubectl_or_skip().await else { return };
    let folder = tempfile::Builder::new().prefix("resus-demo-").tempdir().expect("a folder can be made");
    let kubeconfig = folder.path().join("demo.kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
    command.args(["demo", "--serve", "--nodes", "6", "--listen", "127.0.0.1:0", "--write-kubeconfig"]).arg(&kubeconfig);
    let process = Process::start("resus-demo", command, &folder.path().join("demo.log")).expect("it starts");
    until(READY_WITHIN, "the demo writes its kubeconfig", || async {
        assert!(process.is_running(), "the demo ended:\n{}", process.last_lines(20));
        kubeconfig.exists().then_some(())
    })
    .await;
    let ask = |args: &str| {
        let mut command = Command::new(&kubectl);
        command.arg("--kubeconfig").arg(&kubeconfig).args(args.split(' ')).env("HOME", folder.path());
        async move { run(&command, READY_WITHIN).await.and_then(Said::ok) }
    };
    let nodes = ask("get nodes --no-headers").await.expect("kubectl reaches it");
    assert_eq!(nodes.matches(" Ready ").count(), 6, "{nodes}");
    until(READY_WITHIN, "the check counts them", || async {
        ask("get nhc workers --no-headers")
            .await
            .ok()
            .filter(|check| check.contains("Enabled") && check.matches('6').count() >= 2)
    })
    .await;

    ask("annotate node worker-2 demo.resus.dev/break=power").await.expect("a node can be broken");
    until(REPAIRED_WITHIN, "worker-2 is not ready", || async {
        ask("get node worker-2 --no-headers").await.ok().filter(|node| node.contains("NotReady"))
    })
    .await;
    let left = ask("get node worker-2 -o jsonpath={.metadata.annotations}").await.expect("it is still there");
    assert!(!left.contains("demo.resus.dev"), "the annotation is used up: {left}");
    until(REPAIRED_WITHIN, "worker-2 is remediated", || async {
        ask("get rebootremediations -n provider --no-headers").await.ok().filter(|all| all.contains("worker-2"))
    })
    .await;
    until(REPAIRED_WITHIN, "worker-2 is back, and its remediation gone", || async {
        let node = ask("get node worker-2 --no-headers").await.ok()?;
        let all = ask("get rebootremediations -n provider --no-headers").await.ok()?;
        (node.contains(" Ready ") && !all.contains("worker-2")).then_some(())
    })
    .await;
    let boot = ask("get node worker-2 -o jsonpath={.status.nodeInfo.bootID}").await.expect("it is still there");
    assert_eq!(boot, "worker-2-2", "it was rebooted once");

    let ended = process.terminate(STOPS_WITHIN).await.expect("it ends when it is asked to");
    assert!(ended.success(), "{ended}:\n{}", process.last_lines(20));
    assert_told(
        &process.log(),
        &[
            "worker-2: the power is gone",
            "wait with worker-2, because condition Ready is Unknown, unhealthy only after 20s",
            "start to remediate worker-2",
            "worker-2: power-cycled",
            "worker-2: booted and Ready",
            "remove the remediation of worker-2, because the node is healthy",
        ],
    );
}

async fn kubectl_or_skip() -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kube/build");
    match run(Command::new(build).arg("kube"), BUILT_WITHIN).await.and_then(Said::ok) {
        Ok(folder) => Some(Path::new(folder.trim_end()).join("kubectl")),
        Err(why) => {
            skip(&format!("the real kubectl cannot be had: {why:#}"));
            None
        }
    }
}
