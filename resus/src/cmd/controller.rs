//! `resus controller`: watch nodes and checks, and act.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use futures::FutureExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use resus_core::facts::{Claim, DEFAULT_NAMESPACE, Limit};
use resus_core::lease::Timing;
use resus_core::rival::{Homes, KURED_NAMESPACES, RIVAL_NAMESPACES};
use resus_driver::connect::Trust;
use resus_driver::home::Home;
use resus_driver::pump::{self, Settings};
use resus_driver::telemetry::Telemetry;
use resus_driver::{admin, clusters, proxy};
use resus_k8s::names::{self, Places};
use resus_k8s::quantity;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::cmd::upgrades::Upgrades;

/// Run the controller: judge nodes by the NodeHealthChecks in the cluster, and have unhealthy ones remediated.
///
/// Several may run; one leads. Needs nothing in the cluster but deploy/crds; the namespace for its leader
/// lease is created if it is missing.
#[derive(Args)]
#[command(args_override_self = true)] // The last one wins, as users of Go programs expect.
pub struct Controller {
    /// File with the cluster's address and credentials. Without it: KUBECONFIG, ~/.kube/config, or, inside a
    /// cluster, the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use, instead of its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Where resus is installed; holds the leader lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = DEFAULT_NAMESPACE, value_parser = namespace)]
    namespace: String,

    /// Where operators that take nodes out of service keep their Leases on nodes.
    #[arg(long, env = "LEASE_NAMESPACE", value_name = "NAMESPACE", default_value = names::NODE_LEASES, value_parser = namespace)]
    lease_namespace: String,

    /// Address for /metrics; 0 for none. Without it: port 8080 on all addresses, if it is free.
    #[arg(long, value_name = "ADDRESS", value_parser = bind_address)]
    metrics_bind_address: Option<Bind>,

    /// Address for /healthz and /readyz; 0 for none. Without it: port 8081 on all addresses, if it is free.
    #[arg(long, value_name = "ADDRESS", value_parser = bind_address)]
    health_probe_bind_address: Option<Bind>,

    /// Of which NodeHealthChecks to take care where their CRD is not ours: of those annotated with
    /// resus.dev/take-over=true, of all, or of none (off: of none at all).
    #[arg(long, value_enum, default_value = "marked")]
    nhc: Mine,

    /// Likewise of which MachineHealthChecks of Cluster API and OpenShift.
    #[arg(long, value_enum, default_value = "marked")]
    mhc: Mine,

    /// Stop when as many nodes are unhealthy as maxUnhealthy says, not only when there are more. minHealthy is not affected.
    #[arg(long)]
    short_circuit_at_limit: bool,

    /// Where other controllers of NodeHealthChecks and MachineHealthChecks are installed: while one renews its leader's Lease
    /// there, its checks are left to it. Comma-separated; our own namespace counts in any case.
    #[arg(long, value_name = "LIST", default_values = RIVAL_NAMESPACES, value_delimiter = ',', value_parser = namespace)]
    rival_namespaces: Vec<String>,
    /// Use kubeconfigs of workload clusters also where they skip the verification of TLS, name http://, a proxy or a server
    /// without a scheme, or lead to loopback and link-local addresses. Whoever may write their Secrets can then have this
    /// process send requests there. Loopback is always fine where our own API server is on loopback.
    #[arg(long)]
    allow_insecure_workload_clusters: bool,

    #[command(flatten)]
    upgrades: Upgrades,

    /// Where kured is installed: its DaemonSet's lock counts only there. Comma-separated; our own namespace counts in any case.
    #[arg(long, value_name = "LIST", default_values = KURED_NAMESPACES, value_delimiter = ',', value_parser = namespace)]
    kured_namespaces: Vec<String>,

    /// Give a cluster that has no NodeHealthCheck at all the default one, nhc-worker-default, at each start. It yields to
    /// every check that somebody writes.
    #[arg(long)]
    default_check: bool,

    /// How long others wait before they take over from a leader that is not heard of.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,

    /// How long a leader goes on without having renewed its lease.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,

    /// How often the lease is renewed, or looked at.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,

    /// How logs look.
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,

    /// What is logged, such as info, debug or resus_driver=debug.
    #[arg(long, env = "RESUS_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Mine {
    Marked,
    All,
    Off,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Controller {
    pub fn run(self) -> Result<()> {
        // One thread: there is little to do, and to wake another would cost more than to do it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.control())
    }

    async fn control(self) -> Result<()> {
        let Controller {
            kubeconfig,
            context,
            namespace,
            lease_namespace,
            metrics_bind_address,
            health_probe_bind_address,
            nhc,
            mhc,
            short_circuit_at_limit,
            allow_insecure_workload_clusters,
            default_check,
            rival_namespaces,
            upgrades,
            kured_namespaces,
            leader_elect_lease_duration,
            leader_elect_renew_deadline,
            leader_elect_retry_period,
            log_format,
            log,
        } = self;
        start_logs(log_format, &log)?;
        let timing = Timing {
            lease_for: leader_elect_lease_duration,
            renew_within: leader_elect_renew_deadline,
            retry_each: leader_elect_retry_period,
        };
        timing.check().map_err(anyhow::Error::msg)?;
        let claim = |mine| match mine {
            Mine::Marked => Claim::Marked,
            Mine::All => Claim::All,
            Mine::Off => Claim::Off,
        };
        let (claim, machine_claim) = (claim(nhc), claim(mhc));
        let detectors = upgrades.detectors().map_err(anyhow::Error::msg)?;
        let server = configuration(kubeconfig.clone(), context.clone()).await?.cluster_url;
        let identity = identity();
        info!(version = env!("CARGO_PKG_VERSION"), %server, %namespace, %identity, "resus controller starts");

        let telemetry = Arc::new(Telemetry::new());
        let connect = Box::new(move || connect(kubeconfig.clone(), context.clone()).boxed());
        let home = Home::new(connect, telemetry.clone()).await?;
        let mut listeners = Vec::new();
        for (what, bind, port) in [("metrics", metrics_bind_address, 8080), ("health probes", health_probe_bind_address, 8081)] {
            listeners.extend(listen(what, bind, port).await?);
        }
        let endpoints = async {
            let all = listeners.into_iter().map(|listener| admin::serve(listener, telemetry.clone()));
            match first_to_end(all).await {
                Some(Err(error)) => error,
                Some(Ok(())) | None => std::future::pending().await,
            }
        };
        let limit = if short_circuit_at_limit { Limit::Shut } else { Limit::Allowed };
        let named = |list: Vec<String>| list.into_iter().chain([namespace.clone()]).map(Into::into).collect();
        let homes = Homes { rivals: named(rival_namespaces), kured: named(kured_namespaces) };
        let places = Places { own: namespace, node_leases: lease_namespace };
        let trust = clusters::trust(&server, allow_insecure_workload_clusters);
        let settings = Settings { places, identity, timing, claim, machine_claim, detectors, homes, limit, trust, default_check };
        tokio::select! {
            done = pump::run(home.client(), settings, telemetry.clone(), asked_to_stop()?) => done,
            ended = home.tend() => ended,
            error = endpoints => Err(error),
        }
    }
}

/// The first of several endless futures that ends after all.
async fn first_to_end<T>(all: impl Iterator<Item = impl Future<Output = T> + Send>) -> Option<T> {
    let all: Vec<_> = all.map(Box::pin).collect();
    match all.is_empty() {
        true => None,
        false => Some(futures::future::select_all(all).await.0),
    }
}

pub async fn connect(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Client> {
    proxy::client(configuration(kubeconfig, context).await?, Trust::Anything).map_err(clusters::unauthenticated)
}

pub async fn configuration(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Config> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let (read, name) = match &kubeconfig {
        Some(file) => (Kubeconfig::read_from(file), file.display().to_string()),
        None => (Kubeconfig::read(), "in KUBECONFIG or ~/.kube/config".into()),
    };
    let mut read = match read {
        Ok(read) => read,
        // Its words may be those of the file, credentials included.
        Err(error) if kubeconfig.is_some() => bail!("cannot read the kubeconfig {name}: {}", clusters::unreadable(&error)),
        Err(error) if options.context.is_some() => bail!("no usable kubeconfig {name}: {}", clusters::unreadable(&error)),
        Err(_) => {
            let inside = Config::incluster();
            let inside = inside.context("no kubeconfig given, none found, and not inside a cluster: use --kubeconfig FILE")?;
            return Ok(clusters::patient(inside));
        }
    };
    proxy::ask_us(&mut read);
    let config = Config::from_custom_kubeconfig(read, &options).await;
    let config = config.map_err(|error| anyhow!("the kubeconfig {name} cannot be used: {}", clusters::unusable(&error)))?;
    Ok(clusters::patient(config))
}

fn start_logs(format: LogFormat, filter: &str) -> Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter}: write a level, or target=level"))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Text => logs.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
    }
    Ok(())
}

/// Host, process and chance: two processes never share it, whatever their hosts are called.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "resus" } else { host.trim() };
    format!("{host}_{}_{:08x}", std::process::id(), RandomState::new().hash_one(()) as u32)
}

pub fn asked_to_stop() -> Result<impl Future<Output = ()>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

#[derive(Clone, Copy)]
enum Bind {
    Nowhere,
    At(SocketAddr),
    /// On all addresses.
    Port(u16),
}

/// A default port yields to whoever has it, an address that was asked for does not.
async fn listen(what: &str, bind: Option<Bind>, default_port: u16) -> Result<Option<TcpListener>> {
    let bound = match bind.unwrap_or(Bind::Port(default_port)) {
        Bind::Nowhere => return Ok(None),
        Bind::At(address) => admin::bind(address).await,
        Bind::Port(port) => admin::bind_all(port).await,
    };
    match bound {
        Ok(listener) => {
            info!(address = %listener.local_addr()?, "serving {what}");
            Ok(Some(listener))
        }
        Err(error) if bind.is_none() => {
            warn!(why = format!("{error:#}"), "no {what}: name a free address, or 0 for none");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn bind_address(text: &str) -> Result<Bind, String> {
    if text == "0" {
        return Ok(Bind::Nowhere);
    }
    let bind = match text.strip_prefix(':') {
        Some(port) => port.parse().map(Bind::Port).ok(),
        None => text.parse().map(Bind::At).ok(),
    };
    bind.ok_or_else(|| "write IP:PORT, :PORT, or 0 for none".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = quantity::parse_duration(text).map_err(|error| error.to_string())?;
    duration.non_negative().ok_or_else(|| "must not be negative".into())
}

fn namespace(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !text.is_empty() && text.len() <= 63 && text.chars().all(fits) && !text.starts_with('-') && !text.ends_with('-') {
        true => Ok(text.into()),
        false => Err("a namespace has lower-case letters, digits and dashes, at most 63".into()),
    }
}
