//! A cluster that stays: the embedded API server over HTTPS, simulated machines at wall speed, and the real controller,
//! which reaches the server as any client does.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use resus_core::facts::{Claim, Limit};
use resus_core::lease::Timing;
use resus_core::rival::Homes;
use resus_core::upgrade::Detectors;
use resus_driver::connect::Trust;
use resus_driver::pump::{self, Settings};
use resus_driver::telemetry::Telemetry;
use resus_k8s::names::Places;
use resus_sim::clock::{Millis, SECOND};
use resus_sim::scenario::NAMESPACE;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::machines::Machines;
use super::panel::clock;
use super::script::{CHECK, Script};
use super::story::decision;
use crate::cmd::controller::{asked_to_stop, connect, identity};
use crate::serve::{Front, secret};

/// Minutes in production; nobody wants to wait for that here.
const READY_AFTER: Millis = 20 * SECOND;
const DISK_AFTER: Millis = 10 * SECOND;

pub async fn serve(script: &Script, listen: SocketAddr, kubeconfig: &Path) -> Result<()> {
    if kubeconfig.is_dir() {
        bail!("--write-kubeconfig: {} is a folder; name a file", kubeconfig.display());
    }
    let began = Instant::now();
    let stop = asked_to_stop()?;
    let token = secret();
    let front = Front::bind(listen, &token).await.context("choose another address with --listen; port 0 takes a free one")?;
    let (machines, shared) = Machines::start(script, script.check(READY_AFTER, DISK_AFTER), &token, began);
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("resus_driver=info,resus_driver::watch=warn"))
        .with_writer(std::io::stdout)
        .event_format(Telling { began })
        .init();
    front.write_kubeconfig(kubeconfig)?;
    introduce(script, &front.url, kubeconfig);

    let serving = tokio::spawn(front.serve(shared.clone()));
    let client = connect(Some(kubeconfig.to_owned()), None).await?;
    let settings = Settings {
        places: Places::new(NAMESPACE),
        identity: identity(),
        timing: Timing::default(),
        claim: Claim::Marked,
        machine_claim: Claim::Marked,
        detectors: Detectors::default(),
        homes: Homes::with(NAMESPACE),
        limit: Limit::default(),
        trust: Trust::RemoteOrLoopback,
        default_check: false,
    };
    tokio::select! {
        ended = pump::run(client, settings, Arc::new(Telemetry::new()), stop) => ended,
        served = serving => served.context("the server died")?,
        () = shared.tend() => bail!("the controllers have ended"),
        () = machines.run() => bail!("the machines have ended"),
    }
}

fn introduce(script: &Script, url: &str, kubeconfig: &Path) {
    let zone = script.zones.last().map(|zone| zone.name.clone()).unwrap_or_default();
    println!("{} simulated workers in {} zones, and the real controller, at {url}.", script.workers(), script.zones.len());
    println!(
        "Unhealthy is who is not Ready for {}s, or has a broken disk for {}s; repairs start while at most {} ({}) are not healthy.",
        READY_AFTER / SECOND,
        DISK_AFTER / SECOND,
        script.max_unhealthy,
        script.allowed
    );
    println!("\nLook at it:");
    println!("  export KUBECONFIG={}", kubeconfig.canonicalize().unwrap_or_else(|_| kubeconfig.to_owned()).display());
    println!("  kubectl get nodes --watch");
    println!("  kubectl get nhc -o wide");
    println!("  kubectl get rebootremediations -A");
    println!("  kubectl events --for nodehealthcheck/{CHECK}");
    println!("\nBreak it:");
    println!("  kubectl annotate node worker-2 demo.resus.dev/break=power       # or kubelet, disk, flap");
    println!("  kubectl annotate nodes -l topology.kubernetes.io/zone={zone} demo.resus.dev/break=power");
    println!("  kubectl annotate nodes -l topology.kubernetes.io/zone={zone} demo.resus.dev/mend=now");
    println!("\nctrl-c ends it.\n");
}

/// What the controller logs, in the words of the demo.
struct Telling {
    began: Instant,
}

impl<S, N> FormatEvent<S, N> for Telling
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let text = match said.message.as_str() {
            "decided" => decision(&said.verdict, &said.node, &said.because),
            message => format!("{message}{}", said.rest),
        };
        writeln!(writer, "  {}  {:9} {text}", clock(millis_since(self.began)), "resus")
    }
}

pub fn millis_since(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX)
}

#[derive(Default)]
struct Said {
    message: String,
    verdict: String,
    node: String,
    because: String,
    rest: String,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            "verdict" => self.verdict = value,
            "node" => self.node = value,
            "because" => self.because = value,
            name => {
                // Writing to a string cannot fail.
                let _ = write!(self.rest, ", {name}: {value}");
            }
        }
    }
}
