//! How long does it take from a cause to its effect, and what does it cost the controller?

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use jiff::SignedDuration;
use resus_core::plan::REQUESTS_MAX;
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::api::{self, Seen, Sign, Watch};
use crate::node::name;
use crate::pass;
use crate::stage::{CONFIG_MAPS, NODES, REMEDIATIONS, Stage};
use crate::usage::Usage;

/// As many as in the measurements of the other controllers.
pub const FAIL_AT_ONCE: usize = 100;
/// 5,000 nodes that report every 25 s.
const BEAT_EVERY: Duration = Duration::from_millis(5);
/// The kernel counts CPU time in hundredths of a second: with so many beats that is 0.005 ms for each.
const BEATS: usize = 2000;
const SILENCE_FOR: Duration = Duration::from_secs(10);
/// Fails after the last beat. Any node would do.
const LAST: usize = 0;
/// Until the controller has seen a new limit: a status written in the meantime is not the storm's.
const SETTLE_FOR: Duration = Duration::from_secs(2);
pub const STORM_FOR: Duration = Duration::from_secs(30);
/// Longer ago than the check's second, so that there is nothing left to wait for.
const FAILED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Each figure of one round.
pub struct Round {
    pub alone: Vec<Duration>,
    pub together: Vec<Duration>,
    pub failed: Vec<Duration>,
    pub recovered: Vec<Duration>,
    pub beat: Beat,
}

/// What heartbeats cost beyond what the same time costs without them.
pub struct Beat {
    pub beats: usize,
    pub cpu_seconds: f64,
    /// How long a failure that came right after them waited for its remediation.
    pub behind: Duration,
}

pub struct Storm {
    pub cpu: Duration,
    pub lasted: Duration,
    pub failed: usize,
    pub remediations: usize,
}

/// From a request to its watch event, one at a time, with no controller in between.
pub async fn alone(stage: &Stage, round: usize) -> Result<Vec<Duration>> {
    let (sent, seen) = create(stage, format!("alone-{round}"), 1).await?;
    Ok(lags(&sent, &seen))
}

/// The same of a hundred that are wanted at once, with as many under way as the controller allows itself. The time counts
/// from when they are wanted, as it does for a node that has failed and waits for its turn.
pub async fn together(stage: &Stage, round: usize, when: &str) -> Result<Vec<Duration>> {
    let (sent, seen) = create(stage, format!("together-{when}-{round}"), REQUESTS_MAX).await?;
    let wanted_at = sent.values().min().copied().context("something was created")?;
    let wanted = sent.into_keys().map(|name| (name, wanted_at)).collect();
    Ok(lags(&wanted, &seen))
}

/// When each was sent, and when a watch showed it.
async fn create(stage: &Stage, prefix: String, at_once: usize) -> Result<(Seen, Seen)> {
    let names: BTreeSet<String> = (0..FAIL_AT_ONCE).map(|n| format!("{prefix}-{n}")).collect();
    let watch = Watch::open(&stage.api, CONFIG_MAPS).await?;
    let one = |name: &String| {
        let name = name.clone();
        async move {
            let sent_at = Instant::now();
            api::create(&stage.api, CONFIG_MAPS, &json!({"metadata": {"name": name}})).await?;
            Ok((name, sent_at))
        }
    };
    let (sent, seen) =
        tokio::try_join!(api::at_most(at_once, names.iter().map(one)), watch.until_all(names.clone(), Sign::Appears))?;
    Ok((sent.into_iter().collect(), seen))
}

/// From our watch showing the failed node to our watch showing its remediation.
pub async fn failure(stage: &Stage, round: usize) -> Result<Vec<Duration>> {
    change(stage, chosen_in(round), "False", FAILED_FOR, Sign::Appears).await
}

/// From our watch showing the recovered node to our watch showing that its remediation is gone.
pub async fn recovery(stage: &Stage, round: usize) -> Result<Vec<Duration>> {
    change(stage, chosen_in(round), "True", SignedDuration::ZERO, Sign::Goes).await
}

/// Other nodes in each round where there are enough, so that no round profits from what an earlier one left behind.
fn chosen_in(round: usize) -> impl Iterator<Item = usize> {
    round * FAIL_AT_ONCE..(round + 1) * FAIL_AT_ONCE
}

async fn change(
    stage: &Stage,
    chosen: impl Iterator<Item = usize>,
    ready: &'static str,
    since_for: SignedDuration,
    remediation: Sign,
) -> Result<Vec<Duration>> {
    let chosen: BTreeSet<usize> = chosen.map(|n| n % stage.nodes).collect();
    let names: BTreeSet<String> = chosen.iter().copied().map(name).collect();
    let nodes = Watch::open(&stage.api, NODES).await?;
    let remediations = Watch::open(&stage.api, REMEDIATIONS).await?;
    let (_, causes, effects) = tokio::try_join!(
        api::all_of(chosen.into_iter().map(|n| stage.set_ready(n, ready, since_for))),
        nodes.until_all(names.clone(), Sign::Ready(ready)),
        remediations.until_all(names.clone(), remediation),
    )?;
    Ok(lags(&causes, &effects))
}

/// A node that fails after the last beat ends the measurement: the watch is in order, so its remediation shows that the
/// controller has read all beats before it, however far behind it was.
pub async fn heartbeats(stage: &Stage, usage: &Usage, round: usize) -> Result<Beat> {
    let (before, began_at) = (usage.cpu()?, Instant::now());
    pass(SILENCE_FOR).await;
    let silence = (usage.cpu()? - before).as_secs_f64() / began_at.elapsed().as_secs_f64();

    let (before, began_at) = (usage.cpu()?, Instant::now());
    let ticks = stream::unfold(interval(BEAT_EVERY), |mut ticks| async {
        ticks.tick().await;
        Some(((), ticks))
    });
    let beats = ticks.zip(stream::iter(0..BEATS)).map(|((), n)| stage.beat(n % stage.nodes, round * BEATS + n));
    let versions: BTreeSet<String> = api::all_in(beats).await?.into_iter().collect();
    ensure!(versions.len() == BEATS, "only {} of {BEATS} heartbeats changed their node", versions.len());
    let a_second = BEATS as f64 / began_at.elapsed().as_secs_f64();
    let last = change(stage, LAST..=LAST, "False", FAILED_FOR, Sign::Appears).await?;
    let cpu_seconds = (usage.cpu()? - before).as_secs_f64() - silence * began_at.elapsed().as_secs_f64();
    change(stage, LAST..=LAST, "True", SignedDuration::ZERO, Sign::Goes).await?;
    let behind = last.into_iter().max().unwrap_or_default();
    eprintln!(
        "bench:   {a_second:.0} heartbeats a second, and {:.1} s until a failure after them was handled",
        behind.as_secs_f64()
    );
    Ok(Beat { beats: BEATS, cpu_seconds, behind })
}

/// Leaves the cluster broken, so it comes last.
pub async fn storm(stage: &Stage, usage: &Usage) -> Result<Storm> {
    stage.limit_unhealthy("40%").await?;
    pass(SETTLE_FOR).await;
    let (before, began_at) = (usage.cpu()?, Instant::now());
    let failed = stage.nodes * 6 / 10;
    let fail = api::all_of((0..failed).map(|n| stage.set_ready(n, "False", FAILED_FOR)));
    let (all_failed, ()) = tokio::join!(fail, pass(STORM_FOR));
    let (cpu, lasted) = (usage.cpu()? - before, began_at.elapsed());
    all_failed?;
    Ok(Storm { cpu, lasted, failed, remediations: stage.remediations().await? })
}

/// An effect that our watches show before its cause took no time that can be measured from outside.
fn lags(causes: &Seen, effects: &Seen) -> Vec<Duration> {
    let pairs = causes.iter().filter_map(|(name, caused_at)| Some((caused_at, effects.get(name)?)));
    pairs.map(|(caused_at, seen_at)| seen_at.saturating_duration_since(*caused_at)).collect()
}
