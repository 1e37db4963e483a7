//! What are the command lines of a small real control plane, and when is each part ready?

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::bail;

use crate::port::free_port;
use crate::process::Process;
use crate::until::poll;
use crate::upstream::Upstream;

/// Measured: 1 s for etcd, 4 s for kube-apiserver on 2 idle cores. A busy CI machine gets the rest.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// One running part of the control plane: a [`Process`] that can also be restarted until it is ready again.
pub struct Part {
    process: Process,
    ready: Ready,
}

/// Where a part says that it is ready.
struct Ready {
    port: u16,
    /// Of a part that speaks TLS: the file where it puts the certificate that it makes for itself.
    certificate: Option<PathBuf>,
    path: &'static str,
}

impl Part {
    /// Kills the part if it runs, starts it on the same port with the same data, and waits until it is ready.
    pub async fn restart(&self) -> anyhow::Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// Waits until the part answers that it is ready; an error, with its last words, if it ends instead.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let look = || async {
            if !self.process.is_running() {
                return Some(false);
            }
            self.ready.asked().await.then_some(true)
        };
        let name = self.process.name();
        match poll(READY_WITHIN, look).await {
            Some(true) => Ok(()),
            Some(false) => bail!("{name} ended before it was ready; its last lines:\n{}", self.process.last_lines(20)),
            None => bail!("{name} not ready in {READY_WITHIN:?}; its last lines:\n{}", self.process.last_lines(20)),
        }
    }
}

impl Deref for Part {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Ready {
    /// Any error means not ready yet: the port is closed, the certificate not written, the server still refuses.
    async fn asked(&self) -> bool {
        let upstream = match &self.certificate {
            Some(certificate) => Upstream::tls(self.port, certificate),
            None => Ok(Upstream::plain(self.port)),
        };
        match upstream {
            Ok(upstream) => upstream.get(self.path).await.is_ok_and(|status| status.is_success()),
            Err(_) => false,
        }
    }
}

/// Where everything of one cluster is: programs, files and ports.
pub(crate) struct Place {
    programs: PathBuf,
    folder: PathBuf,
    etcd_port: u16,
    etcd_peer_port: u16,
    pub(crate) api_port: u16,
    controller_manager_port: u16,
}

/// The one user of the token file. Loopback only, and gone with the test: no secret.
pub(crate) const ADMIN_TOKEN: &str = "admin-of-this-test";

impl Place {
    pub(crate) fn new(programs: &Path, folder: &Path) -> anyhow::Result<Place> {
        Ok(Place {
            programs: programs.to_owned(),
            folder: folder.to_owned(),
            etcd_port: free_port()?,
            etcd_peer_port: free_port()?,
            api_port: free_port()?,
            controller_manager_port: free_port()?,
        })
    }

    pub(crate) fn start_etcd(&self) -> anyhow::Result<Part> {
        let clients = format!("http://127.0.0.1:{}", self.etcd_port);
        let peers = format!("http://127.0.0.1:{}", self.etcd_peer_port);
        let mut etcd = self.program("etcd");
        etcd.arg("--name=only")
            .arg(format!("--data-dir={}", self.file("etcd").display()))
            .arg(format!("--listen-client-urls={clients}"))
            .arg(format!("--advertise-client-urls={clients}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster=only={peers}"))
            // It has no rivals, so it need not wait a second before it makes itself the leader.
            .arg("--heartbeat-interval=20")
            .arg("--election-timeout=200")
            // A killed process loses nothing by this; only a machine that loses power would.
            .arg("--unsafe-no-fsync");
        let ready = Ready { port: self.etcd_port, certificate: None, path: "/health" };
        self.start("etcd", etcd, ready)
    }

    pub(crate) fn start_apiserver(&self, audit: bool, flags: &[String]) -> anyhow::Result<Part> {
        let certificates = self.file("apiserver-certificates");
        // The server makes itself a TLS key if there is none. The same key signs the tokens of service accounts.
        let key = certificates.join("apiserver.key");
        std::fs::write(self.file("tokens.csv"), format!("{ADMIN_TOKEN},admin,1,system:masters\n"))?;
        let mut apiserver = self.program("kube-apiserver");
        apiserver
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.api_port))
            .arg(format!("--cert-dir={}", certificates.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", key.display()))
            .arg(format!("--service-account-signing-key-file={}", key.display()))
            .arg(format!("--token-auth-file={}", self.file("tokens.csv").display()))
            .arg("--authorization-mode=RBAC")
            .arg("--service-cluster-ip-range=10.0.0.0/24")
            // Pods may be made in a namespace that nobody gave a default service account.
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg("--allow-privileged");
        if audit {
            std::fs::write(self.file("audit-policy.json"), AUDIT_POLICY)?;
            apiserver
                .arg(format!("--audit-policy-file={}", self.file("audit-policy.json").display()))
                .arg(format!("--audit-log-path={}", self.audit_log().display()))
                // An entry is written before the answer goes out: who has the answer finds the entry.
                .arg("--audit-log-mode=blocking");
        }
        apiserver.args(flags);
        let ready = Ready { port: self.api_port, certificate: Some(self.api_certificate()), path: "/readyz" };
        self.start("kube-apiserver", apiserver, ready)
    }

    pub(crate) fn start_controller_manager(&self, kubeconfig: &Path, flags: &[String]) -> anyhow::Result<Part> {
        let certificates = self.file("controller-manager-certificates");
        let mut controller_manager = self.program("kube-controller-manager");
        controller_manager
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--authentication-kubeconfig={}", kubeconfig.display()))
            .arg(format!("--authorization-kubeconfig={}", kubeconfig.display()))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.controller_manager_port))
            .arg(format!("--cert-dir={}", certificates.display()))
            // There is only one, and a restarted one should not wait for its predecessor's lease.
            .arg("--leader-elect=false")
            .args(flags);
        let certificate = certificates.join("kube-controller-manager.crt");
        let ready = Ready { port: self.controller_manager_port, certificate: Some(certificate), path: "/healthz" };
        self.start("kube-controller-manager", controller_manager, ready)
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    pub(crate) fn api_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    pub(crate) fn api_certificate(&self) -> PathBuf {
        self.file("apiserver-certificates").join("apiserver.crt")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.file("audit.jsonl")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn start(&self, name: &str, command: Command, ready: Ready) -> anyhow::Result<Part> {
        let process = Process::start(name, command, &self.file(&format!("{name}.log")))?;
        Ok(Part { process, ready })
    }
}

/// Everything, without bodies. The stage that is left out would only say each thing twice.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [{"level": "Metadata"}]
}
"#;
