//! How does a story get a real Kubernetes API, and what can it ask and break there?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use tempfile::TempDir;

use crate::audit::{self, AuditEntry};
use crate::kubeconfig;
use crate::parts::{ADMIN_TOKEN, Part, Place};
use crate::process::{Process, Said, last_lines, read_lossy, run};
use crate::rights;
use crate::skip::programs;
use crate::until::poll;
use crate::upstream::Upstream;

/// Ports are drawn and may be taken before they are used; three times in a row is no accident any more.
const STARTS_MAX: usize = 3;
/// kubectl itself gives up on most things earlier; `kubectl wait` has a limit of its own.
const KUBECTL_WITHIN: Duration = Duration::from_secs(120);
/// The server makes the `default` namespace within about a second of being ready.
const NAMESPACE_WITHIN: Duration = Duration::from_secs(30);
/// Enough to see why a part gave up, little enough to read four of them in a CI log.
const LAST_LINES: usize = 40;

/// What a cluster should have.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    audit: bool,
    lacks_rights: bool,
    controller_manager: bool,
    apiserver_flags: Vec<String>,
    controller_manager_flags: Vec<String>,
}

impl Builder {
    /// Whether the API server writes down who asked for what; see [`Cluster::audit_log`].
    pub fn audit(mut self, audit: bool) -> Builder {
        self.audit = audit;
        self
    }

    /// The story takes rights away: that requests are refused is what it is about. See [`crate::exercised`].
    pub fn lacks_rights(mut self) -> Builder {
        self.lacks_rights = true;
        self
    }

    /// Whether kube-controller-manager runs: garbage collection, node lifecycle, aggregated cluster roles.
    pub fn controller_manager(mut self, controller_manager: bool) -> Builder {
        self.controller_manager = controller_manager;
        self
    }

    /// One more flag for kube-apiserver, as `--name=value`.
    pub fn apiserver_flag(mut self, flag: &str) -> Builder {
        self.apiserver_flags.push(flag.to_owned());
        self
    }

    /// One more flag for kube-controller-manager, as `--name=value`.
    pub fn controller_manager_flag(mut self, flag: &str) -> Builder {
        self.controller_manager_flags.push(flag.to_owned());
        self
    }

    /// Starts everything and returns when it is ready.
    pub async fn start(self) -> anyhow::Result<Cluster> {
        let programs = programs().await?;
        self.start_from(&programs).await
    }

    pub(crate) async fn start_from(&self, programs: &Path) -> anyhow::Result<Cluster> {
        let mut starts = 1;
        loop {
            match self.start_once(programs).await {
                Err(error) if starts < STARTS_MAX && format!("{error:#}").contains("address already in use") => {
                    starts += 1;
                }
                started_or_not => return started_or_not,
            }
        }
    }

    /// What is started is declared in the order of dependence, so that a failure half way ends it in reverse.
    async fn start_once(&self, programs: &Path) -> anyhow::Result<Cluster> {
        let folder = tempfile::Builder::new().prefix("resus-cluster-").tempdir()?;
        let place = Place::new(programs, folder.path())?;
        let etcd = place.start_etcd()?;
        etcd.wait_ready().await?;
        let apiserver = place.start_apiserver(self.audit, &self.apiserver_flags)?;
        apiserver.wait_ready().await?;

        let admin_kubeconfig = place.file("admin.kubeconfig");
        kubeconfig::write(&admin_kubeconfig, &place.api_url(), &place.api_certificate(), ADMIN_TOKEN)?;
        let controller_manager = match self.controller_manager {
            true => Some(place.start_controller_manager(&admin_kubeconfig, &self.controller_manager_flags)?),
            false => None,
        };
        if let Some(controller_manager) = &controller_manager {
            controller_manager.wait_ready().await?;
        }
        let admin = kubeconfig::client(&admin_kubeconfig).await?;
        wait_for_default_namespace(&admin).await?;
        let lacks_rights = self.lacks_rights;
        Ok(Cluster { admin, admin_kubeconfig, controller_manager, apiserver, etcd, place, folder, lacks_rights })
    }
}

/// A real control plane on loopback, in a temporary folder. Gone when dropped; if a test panics, its folder is kept
/// and the end of every log is printed.
pub struct Cluster {
    admin: kube::Client,
    admin_kubeconfig: PathBuf,
    controller_manager: Option<Part>,
    apiserver: Part,
    etcd: Part,
    place: Place,
    folder: TempDir,
    lacks_rights: bool,
}

impl Cluster {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// etcd and kube-apiserver, nothing else.
    pub async fn start() -> anyhow::Result<Cluster> {
        Cluster::builder().start().await
    }

    /// A client that may do everything. It belongs to the runtime in which the cluster was started.
    pub fn admin(&self) -> kube::Client {
        self.admin.clone()
    }

    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// A client that speaks as a kubeconfig of this cluster says.
    pub async fn client_of(&self, kubeconfig: &Path) -> anyhow::Result<kube::Client> {
        kubeconfig::client(kubeconfig).await
    }

    /// A kubeconfig with a token of the service account, which must exist. The token is good for an hour.
    pub async fn kubeconfig_for(&self, namespace: &str, service_account: &str) -> anyhow::Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), namespace);
        let issued = accounts
            .create_token_request(service_account, &PostParams::default(), &TokenRequest::default())
            .await
            .with_context(|| format!("a token of {namespace}/{service_account}"))?;
        let token = issued.status.context("a token request is answered with a token")?.token;
        let path = self.place.file(&format!("{namespace}.{service_account}.kubeconfig"));
        kubeconfig::write(&path, &self.place.api_url(), &self.place.api_certificate(), &token)?;
        Ok(path)
    }

    /// The credentials of `base` (one of this cluster's kubeconfigs), but another server address, such as a proxy's.
    /// kube's client sends its token there; kubectl and client-go send none over plain HTTP.
    pub fn kubeconfig_via(&self, server_url: &str, base: &Path) -> anyhow::Result<PathBuf> {
        let address = server_url.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let path = base.with_extension(format!("via-{address}.kubeconfig"));
        kubeconfig::write_via(&path, server_url, base)?;
        Ok(path)
    }

    pub fn etcd(&self) -> &Part {
        &self.etcd
    }

    pub fn apiserver(&self) -> &Part {
        &self.apiserver
    }

    /// Panics if the cluster was built without one.
    pub fn controller_manager(&self) -> &Part {
        self.controller_manager.as_ref().expect("the story asked for a controller manager when it built the cluster")
    }

    /// Starts a program with its log next to those of the cluster, so that it is printed with them if the test panics.
    pub fn start_process(&self, name: &str, command: Command) -> anyhow::Result<Process> {
        Process::start(name, command, &self.place.file(&format!("{name}.log")))
    }

    /// A folder that lives as long as the cluster, for files of the story.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Every request that the server answered so far, each once, watches included from their start on.
    pub fn audit_log(&self) -> anyhow::Result<Vec<AuditEntry>> {
        let path = self.place.audit_log();
        if !path.exists() {
            bail!("the cluster was built without audit(true)");
        }
        audit::parse(&read_lossy(&path))
    }

    /// Runs the real kubectl as admin.
    pub async fn kubectl<I, S>(&self, args: I) -> anyhow::Result<Said>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut kubectl = self.kubectl_command();
        kubectl.args(args);
        run(&kubectl, KUBECTL_WITHIN).await
    }

    /// The real kubectl as admin, for a story that starts it as a process of its own.
    pub fn kubectl_command(&self) -> Command {
        let mut kubectl = self.place.program("kubectl");
        kubectl
            .env("KUBECONFIG", &self.admin_kubeconfig)
            // Its caches and preferences must not come from, or stay in, somebody's home.
            .env("HOME", self.folder())
            .env("KUBECACHEDIR", self.place.file("kubectl-cache"));
        kubectl
    }

    /// Applies manifests given as text. Server-side, as a CRD may be too big for kubectl's own annotation.
    pub async fn apply(&self, manifests: &str) -> anyhow::Result<()> {
        let mut file = tempfile::Builder::new().suffix(".yaml").tempfile_in(self.folder())?;
        std::io::Write::write_all(&mut file, manifests.as_bytes())?;
        self.apply_file(file.path()).await
    }

    /// Applies the manifests in a file, or all of a folder.
    pub async fn apply_file(&self, path: &Path) -> anyhow::Result<()> {
        let said = self.kubectl(["apply".as_ref(), "--server-side".as_ref(), "-f".as_ref(), path.as_os_str()]).await?;
        said.ok().with_context(|| format!("applying {}", path.display()))?;
        Ok(())
    }

    /// Where requests go that no client library should touch.
    pub fn upstream(&self) -> anyhow::Result<Upstream> {
        Upstream::tls(self.place.api_port, &self.place.api_certificate())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // kube-apiserver waits for an etcd that went first.
        if let Some(controller_manager) = &self.controller_manager {
            controller_manager.kill();
        }
        self.apiserver.kill();
        self.etcd.kill();
        let noted = rights::note(&self.place.audit_log(), self.lacks_rights);
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("the cluster's folder is kept: {}", self.folder().display());
            print_logs(self.folder());
        } else {
            noted.expect("what the account asked for can be written down");
        }
    }
}

/// Of everything that logged into the folder, the story's own processes included.
fn print_logs(folder: &Path) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut logs: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    logs.sort();
    for log in logs {
        eprintln!("--- the end of {}\n{}", log.display(), last_lines(&read_lossy(&log), LAST_LINES));
    }
}

async fn wait_for_default_namespace(admin: &kube::Client) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    poll(NAMESPACE_WITHIN, || async { namespaces.get_opt("default").await.ok().flatten() })
        .await
        .with_context(|| format!("no namespace default in {NAMESPACE_WITHIN:?}"))?;
    Ok(())
}
