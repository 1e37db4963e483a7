//! Where are the two servers, and how are they started?

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use resus_harness::{Cluster, Process, Upstream, cluster_or_skip, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::client::Api;

/// It is ready within some ten milliseconds; a busy machine gets the rest.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// etcd and kube-apiserver without any controller: what changes, the server itself has changed.
pub async fn real_or_skip() -> Option<Cluster> {
    cluster_or_skip(Cluster::builder()).await
}

pub fn api_of(cluster: &Cluster) -> Api {
    let upstream = cluster.upstream().expect("a running cluster has a certificate");
    Api::new(upstream, text_at(&read(cluster.admin_kubeconfig()), "/users/0/user/token"))
}

/// Our own server as a program, gone when dropped.
pub struct Embedded {
    pub api: Api,
    _process: Process,
    _folder: TempDir,
}

impl Embedded {
    pub async fn start() -> Embedded {
        let folder = tempfile::tempdir().expect("a folder for a test");
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--no-controllers", "--write-kubeconfig"]).arg(&kubeconfig);
        let log = folder.path().join("apiserver.log");
        let process = Process::start("resus apiserver", command, &log).expect("the binary was just built");
        until(READY_WITHIN, "the embedded server writes its kubeconfig", || async {
            assert!(process.is_running(), "it ended: {}", process.last_lines(20));
            kubeconfig.exists().then_some(())
        })
        .await;
        let written = read(&kubeconfig);
        let certificate = folder.path().join("ca.crt");
        let encoded = text_at(&written, "/clusters/0/cluster/certificate-authority-data");
        let decoded = BASE64_STANDARD.decode(encoded).expect("certificates in kubeconfigs are base64");
        std::fs::write(&certificate, decoded).expect("the folder of a test can be written");
        let server = text_at(&written, "/clusters/0/cluster/server");
        let port = server.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
        let port = port.expect("the server of a kubeconfig ends in its port");
        let upstream = Upstream::tls(port, &certificate).expect("the server has a certificate");
        Embedded { api: Api::new(upstream, text_at(&written, "/users/0/user/token")), _process: process, _folder: folder }
    }
}

fn read(kubeconfig: &Path) -> Value {
    let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig can be read");
    serde_saphyr::from_str(&text).expect("a kubeconfig is YAML")
}

fn text_at(kubeconfig: &Value, pointer: &str) -> String {
    kubeconfig.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
