//! Does an API server look the same to kubectl and to the Python client, whether it is the real one or ours?
//!
//! Every `*.session` file here is a terminal session with the answers that a real kube-apiserver gave (see
//! `session.rs` for the form). All of them run against both servers.
//!
//! `RESUS_SESSIONS=apply,get` runs only these. `RESUS_RECORD=FOLDER` writes each session into that folder again, with
//! the answers that the server under test gave wherever they do not fit: that is how a session is written.

mod pattern;
mod server;
mod session;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use resus_harness::{run, skip};

use crate::server::Server;
use crate::session::Session;

/// Each check of the script waits less long for what it waits for; together they take some 10 s.
const PYTHON_WITHIN: Duration = Duration::from_secs(180);
/// A first set-up downloads a handful of packages.
const SETUP_WITHIN: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_sees_a_real_server() {
    let Some(server) = Server::real().await else { return };
    run_sessions(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_sees_ours_as_it_sees_a_real_one() {
    let Some(server) = Server::embedded().await else { return };
    run_sessions(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_works_with_a_real_server() {
    let Some(python) = python_or_skip().await else { return };
    let Some(server) = Server::real().await else { return };
    run_python(&python, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_works_with_ours() {
    let Some(python) = python_or_skip().await else { return };
    let Some(server) = Server::embedded().await else { return };
    run_python(&python, &server).await;
}

/// All of them, also after a failure: one run shows everything that differs.
async fn run_sessions(server: &Server) {
    let mut differences = Vec::new();
    for path in session_files() {
        let session = Session::read(&path);
        let answers = session.run(server).await;
        if let Some(folder) = std::env::var_os("RESUS_RECORD") {
            let recorded = Path::new(&folder).join(path.file_name().expect("a file has a name"));
            std::fs::write(&recorded, session.record(&answers)).expect("the folder in RESUS_RECORD can be written");
        }
        differences.extend(session.differences(&answers));
    }
    assert!(differences.is_empty(), "{} steps differ:\n\n{}", differences.len(), differences.join("\n"));
}

fn session_files() -> Vec<PathBuf> {
    let only = std::env::var("RESUS_SESSIONS").ok();
    let wanted = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let chosen = only.as_ref().is_none_or(|only| only.split(',').any(|one| one == name));
        chosen && path.extension().is_some_and(|end| end == "session")
    };
    let entries = std::fs::read_dir(root().join("tests/kubectl")).expect("the sessions are in the repository");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(wanted).collect();
    files.sort();
    assert!(!files.is_empty(), "RESUS_SESSIONS names no session");
    files
}

async fn run_python(python: &Path, server: &Server) {
    let mut check = Command::new(python);
    check.arg(root().join("tests/python/check.py")).arg(server.kubeconfig());
    let said = run(&check, PYTHON_WITHIN).await.expect("the script runs");
    assert!(said.status.success(), "the Python client's checks failed:\n{}{}", said.stdout, said.stderr);
}

/// The interpreter that has the client; installed if it is missing.
async fn python_or_skip() -> Option<PathBuf> {
    let setup = |args: &[&str]| {
        let mut setup = Command::new(root().join("tests/setup"));
        setup.args(args);
        setup
    };
    let said = run(&setup(&["python"]), SETUP_WITHIN).await.expect("tests/setup runs");
    if !said.status.success() {
        skip(&format!("the Python client cannot be had: {}", said.stderr.trim_end()));
        return None;
    }
    let folder = run(&setup(&["--where", "python"]), SETUP_WITHIN).await.and_then(resus_harness::Said::ok);
    Some(PathBuf::from(folder.expect("tests/setup knows where it put it").trim_end()))
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the repository").to_owned()
}
