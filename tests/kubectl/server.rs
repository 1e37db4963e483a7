//! Which server does a session speak to, and with which programs?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use resus_harness::{Cluster, Process, cluster_or_skip, run, skip, until};
use tempfile::TempDir;

use crate::root;

/// Its own start takes milliseconds; a busy machine gets the rest.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A first build of the Kubernetes parts takes 15 minutes on 2 cores, and several tests may wait for it at once.
const BUILT_WITHIN: Duration = Duration::from_secs(45 * 60);
/// What our server does too. The others would add objects and taints of their own to what the sessions see.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller";

pub struct Server {
    running: Running,
    kubeconfig: PathBuf,
    /// Where kubectl is.
    programs: PathBuf,
}

/// What ends with the value.
enum Running {
    Real(Cluster),
    Embedded { _process: Process, folder: TempDir },
}

impl Server {
    /// kube-apiserver with what kube-controller-manager does to all kinds alike.
    pub async fn real() -> Option<Server> {
        let builder =
            Cluster::builder().controller_manager(true).controller_manager_flag(&format!("--controllers={CONTROLLERS}"));
        let cluster = cluster_or_skip(builder).await?;
        let programs = programs_or_skip().await?;
        let kubeconfig = cluster.admin_kubeconfig().to_owned();
        Some(Server { running: Running::Real(cluster), kubeconfig, programs })
    }

    /// Ours, in a process of its own.
    pub async fn embedded() -> Option<Server> {
        let programs = programs_or_skip().await?;
        let folder = tempfile::Builder::new().prefix("resus-sessions-").tempdir().expect("a folder can be made");
        let kubeconfig = folder.path().join("admin.kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--write-kubeconfig"]).arg(&kubeconfig);
        let process = Process::start("resus-apiserver", command, &folder.path().join("apiserver.log")).expect("it starts");
        until(READY_WITHIN, "the embedded server writes its kubeconfig", || async {
            assert!(process.is_running(), "the embedded server ended:\n{}", process.last_lines(20));
            kubeconfig.exists().then_some(())
        })
        .await;
        Some(Server { running: Running::Embedded { _process: process, folder }, kubeconfig, programs })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A shell in the repository, with kubectl in its path and `$WORK` for files.
    pub fn shell(&self, script: &str) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(self.programs.clone()).chain(std::env::split_paths(&path)));
        let mut bash = Command::new("bash");
        bash.arg("-c")
            .arg(format!("exec 2>&1\n{script}"))
            .current_dir(root())
            .env("BASH_ENV", root().join("tests/kubectl/prelude"))
            .env("PATH", path.expect("the parts of a path fit into one"))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("WORK", self.folder())
            // Caches and preferences must not come from, or stay in, somebody's home; and texts stay English.
            .env("HOME", self.folder())
            .env("KUBECACHEDIR", self.folder().join("kubectl-cache"))
            .env("LC_ALL", "C");
        bash
    }

    fn folder(&self) -> &Path {
        match &self.running {
            Running::Real(cluster) => cluster.folder(),
            Running::Embedded { folder, .. } => folder.path(),
        }
    }
}

/// The folder of kubectl, which the embedded server's sessions need too.
async fn programs_or_skip() -> Option<PathBuf> {
    let built = run(Command::new(root().join("tests/kube/build")).arg("kube"), BUILT_WITHIN).await;
    match built.and_then(resus_harness::Said::ok) {
        Ok(folder) => Some(PathBuf::from(folder.trim_end())),
        Err(why) => {
            skip(&format!("the real kubectl cannot be had: {why:#}"));
            None
        }
    }
}
