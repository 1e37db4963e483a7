//! How is another cluster reached?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use resus_core::mhc::facts::{Access, ClusterKey};

/// As towards our own server: the loop has its own patience.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// One client for each cluster, made when it is needed and kept while its kubeconfig stays the same.
#[derive(Clone, Default)]
pub struct Clusters(Arc<Mutex<BTreeMap<ClusterKey, (Access, Client)>>>);

impl Clusters {
    pub async fn client(&self, cluster: &ClusterKey, access: &Access) -> Result<Client> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned();
        if let Some((_, client)) = known.filter(|(own, _)| own == access) {
            return Ok(client);
        }
        let client = connect(access).await?;
        self.keep(cluster, access, client.clone());
        Ok(client)
    }

    pub fn keep(&self, cluster: &ClusterKey, access: &Access, client: Client) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.clone(), (access.clone(), client));
    }

    /// Keeps nothing of clusters that nobody asks about any more.
    pub fn retain(&self, is_wanted: impl Fn(&ClusterKey) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|cluster, _| is_wanted(cluster));
    }
}

async fn connect(Access(text): &Access) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(text).context("it is no kubeconfig")?;
    harmless(&kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = patient(config.context("the kubeconfig cannot be used")?);
    Client::try_from(config).context("no client can be made from the kubeconfig")
}

/// Whoever may write a Secret must not be able to have programs run here, or files read.
fn harmless(kubeconfig: &Kubeconfig) -> Result<()> {
    for user in kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()) {
        ensure!(
            user.exec.is_none() && user.auth_provider.is_none(),
            "the kubeconfig wants a program to be run: write a token or a certificate into it"
        );
        let files = [&user.token_file, &user.client_certificate, &user.client_key];
        ensure!(files.iter().all(|file| file.is_none()), "the kubeconfig names files: write what is in them into it");
    }
    for cluster in kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref()) {
        ensure!(cluster.certificate_authority.is_none(), "the kubeconfig names files: write certificate-authority-data into it");
    }
    Ok(())
}

/// A retry inside the client would hide that the server is away, and a write that is repeated behind our back could arrive
/// after we gave up the leadership.
pub fn patient(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_WITHIN);
    config.read_timeout = None;
    config.write_timeout = None;
    config
}
