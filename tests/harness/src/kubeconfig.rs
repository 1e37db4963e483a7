//! What does a kubeconfig look like that speaks to a test cluster as somebody, directly or through a proxy?
//!
//! They are written as JSON, which is YAML too, so that they can be read again without a YAML parser.

use std::path::Path;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::upstream::choose_ring;

pub(crate) fn write(path: &Path, server: &str, certificate: &Path, token: &str) -> anyhow::Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": certificate}}],
        "users": [{"name": "test", "user": {"token": token}}],
    });
    save(path, &kubeconfig)
}

/// The same credentials towards another server address. A plain-HTTP address has no certificate to check.
pub(crate) fn write_via(path: &Path, server: &str, base: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(base).with_context(|| format!("reading {}", base.display()))?;
    let mut kubeconfig: Value =
        serde_json::from_str(&text).with_context(|| format!("{} was not written by a test cluster", base.display()))?;
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["server"] = json!(server);
    if server.starts_with("http://") {
        cluster.as_object_mut().context("a cluster is an object")?.remove("certificate-authority");
    }
    save(path, &kubeconfig)
}

/// A client of the current runtime.
pub(crate) async fn client(path: &Path) -> anyhow::Result<kube::Client> {
    choose_ring();
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

fn save(path: &Path, kubeconfig: &Value) -> anyhow::Result<()> {
    std::fs::write(path, format!("{kubeconfig:#}\n")).with_context(|| format!("writing {}", path.display()))
}
