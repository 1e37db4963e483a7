//! How fast is resus, and how much does it need?
//!
//! Once for nodes and once for machines: it starts a real API server with many nodes and the release build of the controller that lies next to this program,
//! and measures from outside: by watches of its own and by what the kernel says about the process. A plain create ->
//! watch round trip is measured in the same rounds, so that a slow machine can be told from a slow controller: of a hundred
//! at once, with as many requests under way as the controller allows itself, since a hundred nodes fail at once too and a
//! server with much to do answers each later; and one at a time, to show how much of it is that.

mod api;
mod measure;
mod node;
mod report;
mod stage;
mod usage;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::{Instant, interval, timeout};

use measure::{FAIL_AT_ONCE, Round};
use report::Report;
use stage::{Stage, Subjects};

const NODES: usize = 5000;
/// More than the largest cluster that Kubernetes supports; beyond it the API server is what is measured.
const NODES_MAX: usize = 10_000;
/// One round on a shared machine is an anecdote; three show whether they agree.
const ROUNDS: usize = 3;
/// Nobody should have to wonder whether it still works.
const SPEAK_EVERY: Duration = Duration::from_secs(5);
/// Includes a first build of the Kubernetes parts, which gives up by itself after 45 minutes.
const START_WITHIN: Duration = Duration::from_secs(50 * 60);
/// 5,000 nodes are made in half a minute on 2 cores.
const NODES_WITHIN: Duration = Duration::from_secs(600);
const SYNC_WITHIN: Duration = Duration::from_secs(120);
/// The slowest controller that we know takes two minutes to clean up after 100 nodes.
const STEP_WITHIN: Duration = Duration::from_secs(300);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let nodes = nodes_asked_for(std::env::args().skip(1))?;
    let resus = stage::resus_beside_us()?;
    let mut breaches = Vec::new();
    for subjects in [Subjects::Nodes, Subjects::Machines] {
        breaches.extend(bench(subjects, nodes, &resus).await?);
    }
    ensure!(breaches.is_empty(), "{}", breaches.join("; "));
    Ok(())
}

/// Prints what was measured, and returns what must not be.
async fn bench(subjects: Subjects, nodes: usize, resus: &Path) -> Result<Vec<String>> {
    let load_before = usage::load_average()?;
    let stage = step("starting etcd and kube-apiserver", START_WITHIN, Stage::start(subjects, nodes)).await?;
    step(&format!("making {nodes} {}", subjects.name()), NODES_WITHIN, stage.make_nodes()).await?;
    let node_bytes = stage.node_bytes().await?;
    let controller = stage.start_controller(resus)?;
    let report = measure_all(&stage, subjects, controller.pid()).await;
    let mut report = report.with_context(|| format!("the controller's last lines:\n{}", controller.last_lines(20)))?;
    ensure!(controller.is_running(), "the controller has ended:\n{}", controller.last_lines(20));
    report.node_bytes = node_bytes;
    report.load = [load_before, usage::load_average()?];
    println!("{report}");
    Ok(report.breaches())
}

async fn measure_all(stage: &Stage, subjects: Subjects, pid: u32) -> Result<Report> {
    let usage = usage::Usage::of(pid).await?;
    step("the controller lists the nodes", SYNC_WITHIN, stage.until_synced()).await?;
    pass(Duration::from_secs(3)).await;
    let synced = usage.memory()?;
    let mut rounds = Vec::new();
    for number in 0..ROUNDS {
        rounds.push(measure_round(stage, &usage, number).await?);
    }
    let busy = usage.memory()?;
    let storm = step("60% of the nodes fail; the limit is 40%", STEP_WITHIN, measure::storm(stage, &usage)).await?;
    Ok(Report { subjects, nodes: stage.nodes, node_bytes: 0, load: Default::default(), synced, busy, rounds, storm })
}

/// Each figure once in each round, so that a noisy minute spoils one sample of each and not all of one.
async fn measure_round(stage: &Stage, usage: &usage::Usage, number: usize) -> Result<Round> {
    let of = format!("round {} of {ROUNDS}", number + 1);
    let plain = format!("{of}: {FAIL_AT_ONCE} plain round trips");
    let alone = step(&format!("{plain}, one at a time"), STEP_WITHIN, measure::alone(stage, number)).await?;
    let at_once = format!("{plain} at once");
    let together = |when| step(&at_once, STEP_WITHIN, measure::together(stage, number, when));
    // Before and after what it is compared with: somebody else may begin to use the machine in between.
    let before = together("before").await?;
    let failed = step(&format!("{of}: {FAIL_AT_ONCE} nodes fail"), STEP_WITHIN, measure::failure(stage, number)).await?;
    let recovered = step(&format!("{of}: they recover"), STEP_WITHIN, measure::recovery(stage, number)).await?;
    let together = [before, together("after").await?].concat();
    let beat = step(&format!("{of}: silence, then heartbeats"), STEP_WITHIN, measure::heartbeats(stage, usage, number)).await?;
    Ok(Round { alone, together, failed, recovered, beat })
}

/// Does one thing, says so, says that it is still at it, and gives up at the limit.
async fn step<T>(what: &str, limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let began_at = Instant::now();
    eprintln!("bench: {what}");
    let speak = async {
        let mut ticks = interval(SPEAK_EVERY);
        ticks.tick().await;
        // Ended by whoever waits for the work, at the limit at the latest.
        loop {
            ticks.tick().await;
            eprintln!("bench:   still at it after {} s", began_at.elapsed().as_secs());
        }
    };
    tokio::select! {
        done = timeout(limit, work) => done.with_context(|| format!("not done in {limit:?}")).flatten().with_context(|| what.to_owned()),
        () = speak => bail!("speaking never ends"),
    }
}

/// Lets time pass that belongs to a measurement.
async fn pass(duration: Duration) {
    let mut ticks = interval(duration);
    ticks.tick().await;
    ticks.tick().await;
}

fn nodes_asked_for(mut args: impl Iterator<Item = String>) -> Result<usize> {
    let nodes = match (args.next().as_deref(), args.next(), args.next()) {
        (None, ..) => NODES,
        (Some("--nodes"), Some(nodes), None) => nodes.parse().with_context(|| format!("--nodes {nodes}"))?,
        _ => bail!("usage: bench [--nodes N], by default {NODES}"),
    };
    ensure!((FAIL_AT_ONCE..=NODES_MAX).contains(&nodes), "--nodes must be from {FAIL_AT_ONCE} to {NODES_MAX}, not {nodes}");
    Ok(nodes)
}
