//! `resus apiserver`: a Kubernetes API in memory.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use jiff::Timestamp;
use resus_apiserver::Server;

use crate::serve::{Front, Shared, secret};

/// Serve a Kubernetes API from memory, for trying things out and for tests.
///
/// It behaves like a kube-apiserver with the kinds that resus and its users need, and every CRD that you create; nothing
/// runs Pods, and everything is gone when it ends. It collects garbage and empties deleted namespaces, as
/// kube-controller-manager does.
#[derive(Args)]
pub struct Apiserver {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,

    /// Where to write address and credentials; the file appears when the server is ready.
    #[arg(long, value_name = "FILE", default_value = "resus.kubeconfig")]
    write_kubeconfig: PathBuf,

    /// Leave out what kube-controller-manager does: garbage collection, the end of namespaces, aggregated roles.
    #[arg(long)]
    no_controllers: bool,
}

impl Apiserver {
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let Apiserver { listen, write_kubeconfig, no_controllers } = self;
        if write_kubeconfig.is_dir() {
            bail!("--write-kubeconfig: {} is a folder; name a file", write_kubeconfig.display());
        }
        let token = secret();
        let mut server = Server::new(random(), Timestamp::now());
        server.require_token(&token, secret);
        let shared = Shared::new(server);
        let front = Front::bind(listen, &token).await?;
        front.write_kubeconfig(&write_kubeconfig)?;
        println!("serving {}; kubectl --kubeconfig {} get namespaces", front.url, write_kubeconfig.display());
        let tending = async {
            match no_controllers {
                true => std::future::pending().await,
                false => shared.clone().tend().await,
            }
        };
        tokio::select! {
            served = front.serve(shared.clone()) => served,
            () = tending => bail!("the controllers have ended"),
            stopped = tokio::signal::ctrl_c() => stopped.context("cannot listen for signals"),
        }
    }
}

/// For uids and generated names. Seeds of the standard library come from the operating system.
pub fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
