//! Are the kinds of the embedded API server still those of the real one?

use std::process::Command;
use std::time::Duration;

use resus_harness::{Cluster, cluster_or_skip, run};

#[tokio::test]
async fn the_kinds_in_the_repository_are_those_of_a_real_server() {
    // Only to skip where there are no Kubernetes parts: the program starts its own.
    let Some(cluster) = cluster_or_skip(Cluster::builder()).await else { return };
    drop(cluster);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinds"));
    command.arg("--check");
    let said = run(&command, Duration::from_secs(120)).await.expect("it ends");
    assert!(said.status.success(), "{}", said.stderr);
}
