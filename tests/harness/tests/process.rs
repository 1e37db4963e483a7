//! Does a process do what the story says, and does nothing stay behind?

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use resus_harness::{Process, holds_for, run, until};

const SOON: Duration = Duration::from_secs(10);
/// Set in the copy of this test program that is to be killed: the folder where it says which child it started.
const DOOMED_IN: &str = "RESUS_HARNESS_DOOMED_IN";

#[tokio::test]
async fn a_process_is_paused_resumed_killed_and_started_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ticking = ticking(folder.path());
    ticking.wait_for_log("tick", SOON).await.expect("it ticks");

    ticking.pause();
    let said = ticking.log();
    holds_for(Duration::from_millis(300), "a paused process is silent", || async {
        if ticking.log() == said { Ok(()) } else { Err("it ticked".to_owned()) }
    })
    .await;
    assert!(ticking.is_running(), "paused is not ended");
    ticking.resume();
    until(SOON, "it ticks again", || async { (ticking.log() != said).then_some(()) }).await;

    ticking.pause();
    ticking.kill();
    assert_eq!(ticking.exit_status().and_then(|status| status.signal()), Some(9), "a paused process can be killed");
    let first_pid = ticking.pid();
    ticking.start_again().expect("it can be started again");
    assert_ne!(ticking.pid(), first_pid);
    ticking.wait_for_log("tick", SOON).await.expect("it ticks in its second life");
    let status = ticking.terminate(SOON).await.expect("it ends when asked to");
    assert_eq!(status.signal(), Some(15));
}

#[tokio::test]
async fn a_process_that_ends_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("sh");
    command.args(["-c", "echo last words; exit 3"]);
    let short = Process::start("short", command, &folder.path().join("short.log")).expect("sh starts");
    assert_eq!(short.wait_for_exit(SOON).await.expect("it ends").code(), Some(3));
    let error = short.wait_for_log("never", SOON).await.expect_err("it never says that");
    assert!(error.to_string().contains("last words"), "{error}");
}

#[tokio::test]
async fn a_command_that_hangs_is_ended_at_its_limit() {
    let mut command = Command::new("sleep");
    command.arg("1000");
    let error = run(&command, Duration::from_millis(200)).await.expect_err("it takes too long");
    assert!(error.to_string().contains("still ran"), "{error}");
}

#[tokio::test]
async fn a_dropped_process_is_gone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ticking = ticking(folder.path());
    ticking.pause();
    let pid = ticking.pid();
    drop(ticking);
    assert!(!exists(pid), "reaped by the time that drop returns");
}

/// The copy of this program starts a child from a thread of a runtime that has ended, and is killed without a chance to
/// clean up. The child must outlive the thread and die with the program.
#[tokio::test]
async fn nothing_is_left_behind_by_a_killed_test() {
    if let Some(folder) = std::env::var_os(DOOMED_IN) {
        return be_doomed(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["nothing_is_left_behind_by_a_killed_test", "--exact", "--nocapture"]);
    command.env(DOOMED_IN, folder.path());
    let doomed = Process::start("doomed", command, &folder.path().join("doomed.log")).expect("a copy of us starts");
    let child: u32 = until(SOON, "the doomed copy has a child", || async {
        std::fs::read_to_string(folder.path().join("child")).ok()?.parse().ok()
    })
    .await;
    holds_for(Duration::from_millis(300), "the child outlives the thread that wanted it", || async {
        if runs(child) { Ok(()) } else { Err(doomed.log()) }
    })
    .await;

    doomed.kill();

    until(SOON, "the child is gone too", || async { (!exists(child)).then_some(()) }).await;
}

async fn be_doomed(folder: &Path) {
    let wanted_in = folder.to_owned();
    let ticking = std::thread::spawn(move || {
        let ticking = ticking(&wanted_in);
        // Only once it runs is it bound to anybody; a thread that ends before would prove nothing.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(ticking.wait_for_log("tick", SOON)).expect("it ticks");
        ticking
    });
    let ticking = ticking.join().expect("a child is started");
    // Written under another name first: the reader must not see half a number.
    let written = folder.join("child.new");
    std::fs::write(&written, ticking.pid().to_string()).expect("the folder can be written");
    std::fs::rename(&written, folder.join("child")).expect("the folder can be written");
    std::future::pending::<()>().await;
}

fn ticking(folder: &Path) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "while sleep 0.05; do echo tick; done"]);
    Process::start("ticking", command, &folder.join("ticking.log")).expect("sh starts")
}

/// Zombies included: what is not reaped is left behind too.
fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A zombie does not: it waits to be reaped by the copy, which never looks.
fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
}
