//! What can be measured from outside?

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use resus_core::decision::Verdict;
use resus_core::effect::EffectKey;
use resus_core::facts::Source;
use resus_core::input::Answer;
use resus_core::plan::Plan;
use resus_core::text::Plain;
use resus_core::time::Now;
use resus_core::world::World;

use crate::machines::Machines;
use crate::remediations::Remediations;

pub struct Telemetry {
    registry: Registry,
    remediations: Remediations,
    machines: Machines,
    began: Instant,
    inputs: Family<[(&'static str, &'static str); 1], Counter>,
    effects: Family<[(&'static str, &'static str); 1], Counter>,
    answers: Family<[(&'static str, &'static str); 2], Counter>,
    plans: Histogram,
    decisions: Family<[(&'static str, String); 1], Gauge>,
    nodes: Gauge,
    checks: Gauge,
    leads: Gauge,
    stale: Gauge,
    skew: Gauge,
    panics: Counter,
    /// Milliseconds after `began` at which the loop turned last.
    turned_at: AtomicU64,
    /// Likewise, at which our API server answered last as it does to those whom it knows.
    answered_at: AtomicU64,
    ready: std::sync::Mutex<Result<(), String>>,
}

/// The loop turns every few seconds; one that has not for this long hangs.
const TURNS_WITHIN: Duration = Duration::from_secs(60);
/// The lease alone is asked for every few seconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

impl Telemetry {
    pub fn new() -> Telemetry {
        // Those of the reference have its names, without our prefix.
        let mut all = Registry::default();
        let remediations = Remediations::new(&mut all);
        let machines = Machines::new(&mut all);
        let registry = all.sub_registry_with_prefix("resus");
        let inputs = Family::default();
        registry.register("inputs", "What was heard, by whether a decision could depend on it", inputs.clone());
        let effects = Family::default();
        registry.register("effects", "Requests sent, by what they are for", effects.clone());
        let answers = Family::default();
        registry.register("answers", "Answers to requests, by what they were for", answers.clone());
        let plans = Histogram::new(exponential_buckets(0.000_05, 4.0, 8));
        registry.register_with_unit("plan_duration", "How long it took to plan", Unit::Seconds, plans.clone());
        let decisions = Family::default();
        registry.register("decisions", "Nodes under checks, by what is done about them", decisions.clone());
        let gauge = |registry: &mut Registry, name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let nodes = gauge(registry, "nodes", "Nodes in the cluster");
        let checks = gauge(registry, "checks", "NodeHealthChecks in the cluster");
        let leads = gauge(registry, "leader", "1 if this process leads");
        let stale = gauge(registry, "stale_sources", "Watches that may be out of date; nothing starts that depends on them");
        let skew = gauge(
            registry,
            "clock_skew_seconds",
            "Seconds by which this host's clock is ahead of the API server's (behind if negative); 0 while they agree within 5 s",
        );
        let panics = Counter::default();
        registry.register(
            "task_panics",
            "Requests and watches of workload clusters that a mistake in this program ended",
            panics.clone(),
        );
        Telemetry {
            registry: all,
            remediations,
            machines,
            began: Instant::now(),
            inputs,
            effects,
            answers,
            plans,
            decisions,
            nodes,
            checks,
            leads,
            stale,
            skew,
            panics,
            turned_at: AtomicU64::new(0),
            answered_at: AtomicU64::new(0),
            ready: std::sync::Mutex::new(Err("just started".into())),
        }
    }

    pub fn input(&self, changed: bool) {
        self.inputs.get_or_create(&[("changed", if changed { "yes" } else { "no" })]).inc();
    }

    /// Does work of which a panic is to cost nothing else; then it is counted, and what it said is returned.
    pub async fn caught<T>(&self, work: impl Future<Output = T>) -> Result<T, String> {
        AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
            self.panics.inc();
            let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            format!("a mistake in this program: {}", Plain(said.unwrap_or("it panicked")))
        })
    }

    pub fn sent(&self, key: &EffectKey) {
        self.effects.get_or_create(&[("effect", key.verb())]).inc();
    }

    /// Returns one word for the answer.
    pub fn answered(&self, key: &EffectKey, answer: &Answer) -> &'static str {
        let answer = match answer {
            Answer::Done(_) => "done",
            Answer::Exists => "exists",
            Answer::Missing => "missing",
            Answer::Conflict => "conflict",
            Answer::Refused { .. } => "refused",
            Answer::Unsure { .. } => "unsure",
        };
        self.answers.get_or_create(&[("effect", key.verb()), ("answer", answer)]).inc();
        answer
    }

    pub fn planned(&self, plan: &Plan, world: &World, unserved: &BTreeSet<Source>, now: Now, took: Duration) {
        self.plans.observe(took.as_secs_f64());
        self.turned_at.store(self.millis(Instant::now()), Ordering::Relaxed);
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.nodes.set(count(world.nodes.len()));
        self.checks.set(count(world.checks.len()));
        self.leads.set(i64::from(plan.leads));
        self.stale.set(count(plan.watches.iter().filter(|source| !world.is_fresh(source, now.mono)).count()));
        self.skew.set(world.clock.skew().map_or(0, |(ahead, _)| ahead / 1000));
        for verdict in Verdict::ALL {
            let many = plan.decisions.iter().filter(|decision| decision.verdict == verdict).count();
            self.decisions.get_or_create(&[("verdict", verdict.to_string())]).set(count(many));
        }
        self.remediations.observe(world, now.wall, plan.leads);
        self.machines.observe(world, plan.leads);
        let is_missing = |source: &&Source| is_essential(source) && !unserved.contains(*source) && !world.is_synced(source);
        let waiting = plan.watches.iter().find(is_missing);
        let ready = waiting.map_or(Ok(()), |source| Err(format!("{source} have not been listed yet")));
        *self.ready.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = ready;
    }

    pub fn health(&self) -> Result<(), String> {
        let silent_for = self.since(&self.turned_at, Instant::now());
        match silent_for > TURNS_WITHIN {
            true => Err(format!("the loop has not turned for {} s", silent_for.as_secs())),
            false => Ok(()),
        }
    }

    pub fn readiness(&self) -> Result<(), String> {
        self.readiness_at(Instant::now())
    }

    fn readiness_at(&self, now: Instant) -> Result<(), String> {
        let silent_for = self.since(&self.answered_at, now);
        if silent_for > ANSWERED_WITHIN {
            return Err(format!("the API server has not answered for {} s, or does not know us any more", silent_for.as_secs()));
        }
        self.ready.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Not that it does not know us.
    pub fn answered_well(&self) {
        self.answered_at.store(self.millis(Instant::now()), Ordering::Relaxed);
    }

    fn since(&self, at: &AtomicU64, now: Instant) -> Duration {
        now.duration_since(self.began).saturating_sub(Duration::from_millis(at.load(Ordering::Relaxed)))
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry::new()
    }
}

/// Without these nothing is decided at all; of everything else each check says itself that it waits.
fn is_essential(source: &Source) -> bool {
    matches!(source, Source::Nodes | Source::Checks | Source::MachineChecks(_) | Source::Machines(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_nothing_for_two_minutes_is_not_ready() {
        let telemetry = Telemetry::new();
        *telemetry.ready.lock().unwrap() = Ok(());
        let after = |seconds| telemetry.began + Duration::from_secs(seconds);
        assert_eq!(telemetry.readiness_at(after(120)), Ok(()));
        assert!(telemetry.readiness_at(after(121)).is_err());
        telemetry.answered_at.store(100_000, Ordering::Relaxed);
        assert_eq!(telemetry.readiness_at(after(220)), Ok(()));
        assert!(telemetry.readiness_at(after(221)).is_err());
    }
}
