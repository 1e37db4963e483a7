//! Can the real parts be had here, and what happens to a story if not?
//!
//! A story that cannot run says so loudly and is counted; where everything must run (CI), it fails instead.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::cluster::{Builder, Cluster};
use crate::process::run;

/// A first build of everything takes 15 minutes on 2 cores, and several tests may wait for it at once.
const BUILT_WITHIN: Duration = Duration::from_secs(45 * 60);

/// What `tests/previous` ends with where it cannot know which version was before this one.
const UNKNOWN: i32 = 3;

/// Starts the cluster, or skips the story if the real parts cannot be had. Parts that are there but do not start are
/// no reason to skip: that is a panic.
pub async fn cluster_or_skip(builder: Builder) -> Option<Cluster> {
    match programs().await {
        Ok(programs) => Some(builder.start_from(&programs).await.expect("the real parts are there, so they start")),
        Err(why) => {
            skip(&format!("{why:#}"));
            None
        }
    }
}

/// Says that a story is skipped and why. Panics instead if `RESUS_REQUIRE_REAL=1`.
pub fn skip(why: &str) {
    assert!(std::env::var("RESUS_REQUIRE_REAL").as_deref() != Ok("1"), "RESUS_REQUIRE_REAL=1, but: {why}");
    tell_skipped(why);
}

/// Adds a line to the file named by `RESUS_SKIPPED_FILE`, too, if set, so that a run can count what it did not show.
fn tell_skipped(why: &str) {
    let story = std::thread::current().name().unwrap_or("a story").to_owned();
    let line = format!("SKIPPED: {story}: {}\n", why.replace('\n', " "));
    // Not by eprintln!, which the test runner swallows when a test passes. Nobody to tell is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("RESUS_SKIPPED_FILE") {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the file in RESUS_SKIPPED_FILE can be written");
    }
}

/// The folder of etcd, kube-apiserver, kube-controller-manager and kubectl; built if they are missing.
pub(crate) async fn programs() -> anyhow::Result<PathBuf> {
    built("kube").await.context("the real Kubernetes parts cannot be had")
}

/// The folder of what the tests need of Cluster API and OpenShift: `capi-machineset`, the real controller of MachineSets,
/// and CRDs by version in `crds/`. Built if it is missing.
pub async fn cluster_api() -> anyhow::Result<PathBuf> {
    built("cluster-api").await.context("the real parts of Cluster API cannot be had")
}

/// The `resus` from before the last change, built under this target directory if it is missing; the story is skipped where
/// git or the history is not there, also with `RESUS_REQUIRE_REAL=1`. A version that does not build is no reason to skip: that is a panic.
pub async fn previous_or_skip(target: &Path) -> Option<PathBuf> {
    let mut build = Command::new(checkout().expect("the tests are in the repository").join("tests/previous"));
    build.arg(target);
    let said = run(&build, BUILT_WITHIN).await.expect("tests/previous ends");
    if said.status.code() == Some(UNKNOWN) {
        // A clone without the history lacks no part that could be had there.
        tell_skipped(&format!("the version before this one is not known: {}", said.stderr.trim_end()));
        return None;
    }
    let program = said.ok().expect("the version before this one builds");
    Some(PathBuf::from(program.trim_end()))
}

async fn built(parts: &str) -> anyhow::Result<PathBuf> {
    let mut build = Command::new(checkout()?.join("tests/kube/build"));
    build.arg(parts);
    let folder = run(&build, BUILT_WITHIN).await?.ok()?;
    Ok(PathBuf::from(folder.trim_end()))
}

/// Where the running test belongs to. What cargo says at run time goes before what it said at compile time: a checkout that
/// was copied or moved may run programs that were compiled in another.
fn checkout() -> anyhow::Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let mut above = package.ancestors();
    let found = above.find(|folder| folder.join("tests/kube/build").exists());
    found.map(Path::to_owned).with_context(|| format!("no tests/kube/build in or above {}", package.display()))
}
