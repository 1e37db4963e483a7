//! What can be measured from outside?

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use resus_core::audit::Rule;
use resus_core::decision::Verdict;
use resus_core::effect::EffectKey;
use resus_core::facts::{Name, Source};
use resus_core::input::Answer;
use resus_core::plan::Plan;
use resus_core::text::Plain;
use resus_core::time::{Mono, Now};
use resus_core::world::World;

use crate::gates::Gates;
use crate::machines::Machines;
use crate::process::Process;
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
    gates: Gates,
    ages: Family<[(&'static str, &'static str); 1], Gauge<f64, AtomicU64>>,
    /// The words of sources that have an age.
    aging: Mutex<BTreeSet<&'static str>>,
    restarts: Family<[(&'static str, &'static str); 1], Counter>,
    latencies: Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>,
    leader_changes: Counter,
    /// Who led last, as far as we know.
    leader: Mutex<Option<Name>>,
    paused: Gauge,
    nodes: Gauge,
    checks: Gauge,
    leads: Gauge,
    stale: Gauge,
    skew: Gauge,
    panics: Counter,
    breaches: Family<[(&'static str, &'static str); 1], Counter>,
    /// Milliseconds after `began` at which the loop turned last.
    turned_at: AtomicU64,
    /// Likewise, at which our API server answered last as it does to those whom it knows.
    answered_at: AtomicU64,
    ready: Mutex<Result<(), String>>,
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
        let gates = Gates::new(registry);
        let ages = Family::default();
        registry.register_with_unit(
            "source_age",
            "Since the one of each kind of watch that has been silent for longest was heard of",
            Unit::Seconds,
            ages.clone(),
        );
        let restarts = Family::default();
        registry.register("watch_restarts", "Watches that ended and were begun anew", restarts.clone());
        let latencies = Family::new_with_constructor(latency as fn() -> Histogram);
        registry.register_with_unit("request_duration", "How long answers took", Unit::Seconds, latencies.clone());
        let leader_changes = Counter::default();
        registry.register("leader_changes", "How often another leader was seen to take over", leader_changes.clone());
        registry.register("build", "What this is", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
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
        let paused = gauge(registry, "paused", "1 while the annotation resus.dev/pause on our namespace stops everything");
        let panics = Counter::default();
        registry.register(
            "task_panics",
            "Requests and watches of workload clusters that a mistake in this program ended",
            panics.clone(),
        );
        let breaches = Family::default();
        registry.register("audit_breach", "How often a plan was not followed, as it broke a rule", breaches.clone());
        // What rises from nothing to one between two scrapes is no increase to who has never seen the nothing.
        Rule::ALL.iter().for_each(|rule| drop(breaches.get_or_create(&[("rule", rule.word())])));
        all.register_collector(Box::new(Process));
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
            gates,
            ages,
            aging: Mutex::default(),
            restarts,
            latencies,
            leader_changes,
            leader: Mutex::default(),
            paused,
            nodes,
            checks,
            leads,
            stale,
            skew,
            panics,
            breaches,
            turned_at: AtomicU64::new(0),
            answered_at: AtomicU64::new(0),
            ready: Mutex::new(Err("just started".into())),
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

    pub fn breached(&self, rule: Rule) {
        self.breaches.get_or_create(&[("rule", rule.word())]).inc();
    }

    pub fn sent(&self, key: &EffectKey) {
        self.effects.get_or_create(&[("effect", key.nature().verb)]).inc();
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
        self.answers.get_or_create(&[("effect", key.nature().verb), ("answer", answer)]).inc();
        answer
    }

    pub fn planned(&self, plan: &Plan, process: &resus_core::process::Process, now: Now, took: Duration) {
        let world = &process.world;
        self.plans.observe(took.as_secs_f64());
        self.turned_at.store(self.millis(Instant::now()), Ordering::Relaxed);
        let count = |many: usize| i64::try_from(many).unwrap_or(i64::MAX);
        self.nodes.set(count(world.nodes.len()));
        self.checks.set(count(world.checks.len()));
        self.leads.set(i64::from(plan.leads));
        self.stale.set(count(plan.watches.iter().filter(|source| !world.is_fresh(source, now.mono)).count()));
        self.skew.set(world.clock.skew(now.mono).map_or(0, |ahead| ahead / 1000));
        let verdicts = self.gates.observe(plan);
        for verdict in Verdict::ALL {
            self.decisions.get_or_create(&[("verdict", verdict.to_string())]).set(count(verdicts[verdict as usize]));
        }
        self.paused.set(i64::from(world.pause.reason().is_some()));
        self.age(plan, world, now.mono);
        self.follow_leader(world);
        self.remediations.observe(world, now.wall, plan.leads);
        self.machines.observe(world, plan.leads);
        let is_missing =
            |source: &&Source| is_essential(source) && !process.unserved.contains(*source) && !world.is_synced(source);
        let waiting = plan.watches.iter().find(is_missing);
        let ready = waiting.map_or(Ok(()), |source| Err(format!("{source} have not been listed yet")));
        *lock(&self.ready) = ready;
    }

    fn age(&self, plan: &Plan, world: &World, now: Mono) {
        let mut oldest: BTreeMap<&'static str, Duration> = BTreeMap::new();
        for source in &plan.watches {
            let age = oldest.entry(source.word()).or_default();
            *age = (*age).max(world.age(source, now).unwrap_or_default());
        }
        let mut aging = lock(&self.aging);
        aging.retain(|word| oldest.contains_key(word) || !self.ages.remove(&[("source", word)]));
        for (word, age) in oldest {
            self.ages.get_or_create(&[("source", word)]).set(age.as_secs_f64());
            aging.insert(word);
        }
    }

    fn follow_leader(&self, world: &World) {
        let Some(now) = world.election.leader().filter(|leader| !leader.is_empty()) else { return };
        let mut leader = lock(&self.leader);
        if leader.as_ref() != Some(now) && leader.replace(now.clone()).is_some() {
            self.leader_changes.inc();
        }
    }

    pub fn restarted(&self, source: &Source) {
        self.restarts.get_or_create(&[("source", source.word())]).inc();
    }

    /// `what`: the verb of an effect, or `list`.
    pub fn took(&self, what: &'static str, time: Duration) {
        self.latencies.get_or_create(&[("effect", what)]).observe(time.as_secs_f64());
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
        lock(&self.ready).clone()
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From an API server that is near and idle to one that we give up on, in seconds.
fn latency() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0])
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
