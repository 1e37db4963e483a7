//! The loop: facts in, plan, effects out.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use http::Response;
use kube::Client;
use kube::client::Body;
use resus_core::decision::Decision;
use resus_core::default_check::DefaultCheck;
use resus_core::effect::Effect;
use resus_core::facts::{Claim, Limit, Source};
use resus_core::input::Input;
use resus_core::lease::{Election, REQUEST_TIMEOUT, Timing};
use resus_core::mhc::facts::ClusterKey;
use resus_core::process::{News, Process, Turn, Way};
use resus_core::rival::Homes;
use resus_core::time::{Mono, Now, Wall};
use resus_core::upgrade::Detectors;
use resus_core::world::World;
use resus_k8s::names::Places;
use resus_k8s::observe::Keep;
use resus_k8s::watcher::Wanted;
use resus_k8s::{answer, encode, limits};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, error, info, warn};

use crate::body;
use crate::clusters::Clusters;
use crate::connect::{self, Trust};
use crate::telemetry::Telemetry;
use crate::watch::{self, Ear, Server};

pub struct Settings {
    pub places: Places,
    /// Unlike that of any other process, also of an earlier one on the same host.
    pub identity: String,
    pub timing: Timing,
    /// Of NodeHealthChecks and of MachineHealthChecks.
    pub claim: Claim,
    pub machine_claim: Claim,
    pub detectors: Detectors,
    pub homes: Homes,
    pub limit: Limit,
    /// Of kubeconfigs of workload clusters.
    pub trust: Trust,
    /// Give a cluster without any check the default one.
    pub default_check: bool,
}

/// Messages that wait for the loop. When it is full, watches wait, and the server keeps their events.
const INPUTS_MAX: usize = 256;

pub async fn run(client: Client, settings: Settings, telemetry: Arc<Telemetry>, stop: impl Future<Output = ()>) -> Result<()> {
    settings.timing.check().map_err(anyhow::Error::msg)?;
    let (sender, mut inputs) = mpsc::channel(INPUTS_MAX);
    let clock = Clock::start();
    let mut pump = Pump {
        client,
        clusters: Clusters::new(settings.trust),
        keep: Arc::new(Keep::of(&settings.detectors)),
        places: Arc::new(settings.places.clone()),
        clock,
        process: Process::new(world(settings), clock.now().mono),
        sender,
        watches: BTreeMap::new(),
        tasks: JoinSet::new(),
        telemetry,
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        pump.turn();
        may_go_on(&pump.process)?;
        if pump.process.has_stopped(pump.clock.now()) {
            pump.log();
            return Ok(());
        }
        let wake_at = pump.clock.instant(pump.process.wake_at());
        tokio::select! {
            heard = inputs.recv() => pump.take(heard.context("the loop holds a sender itself, so the channel never closes")?),
            () = tokio::time::sleep_until(wake_at.into()) => {}
            () = &mut stop, if !pump.process.is_stopping() => pump.process.stop(pump.clock.now()),
            Some(ended) = pump.tasks.join_next() => ended_well(ended)?,
        }
        for _ in 0..INPUTS_MAX {
            let Ok(heard) = inputs.try_recv() else { break };
            pump.take(heard);
        }
        while let Some(ended) = pump.tasks.try_join_next() {
            ended_well(ended)?;
        }
    }
}

fn world(settings: Settings) -> World {
    let mut world = World::new(Election::new(settings.identity.as_str().into(), settings.timing), settings.claim);
    world.namespace = settings.places.own.as_str().into();
    world.detectors = settings.detectors;
    world.homes = settings.homes;
    world.limit = settings.limit;
    world.machine_claim = settings.machine_claim;
    if settings.default_check {
        world.default_check = DefaultCheck::Template;
    }
    world
}

/// The leadership is not given back, as nothing has come to a good end: it runs out, and then another may lead.
fn may_go_on(process: &Process) -> Result<()> {
    match process.has_failed() {
        true => {
            Err(anyhow!("again and again a plan broke a rule that nothing may break; the log says which: please report this"))
        }
        false => Ok(()),
    }
}

/// A task that dies ends the process: half of it alive would be worse. One that was stopped on purpose is fine.
/// What concerns one effect or one workload cluster alone is caught before; see [`Telemetry::caught`].
fn ended_well(ended: Result<(), tokio::task::JoinError>) -> Result<()> {
    match ended {
        Err(error) if error.is_panic() => Err(error).context("a task of the loop died"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What reaches the loop.
pub struct Heard {
    /// The number of the watch; none for answers.
    pub watch: Option<u64>,
    /// Together, since each message wakes the loop.
    pub inputs: Vec<Input>,
    /// Given back when the loop has taken it.
    pub room: Option<OwnedSemaphorePermit>,
}

struct Pump {
    client: Client,
    clusters: Clusters,
    places: Arc<Places>,
    keep: Arc<Keep>,
    clock: Clock,
    process: Process,
    sender: mpsc::Sender<Heard>,
    /// By their numbers.
    watches: BTreeMap<u64, AbortHandle>,
    tasks: JoinSet<()>,
    telemetry: Arc<Telemetry>,
}

impl Pump {
    fn take(&mut self, Heard { watch, inputs, room: _ }: Heard) {
        for input in inputs {
            if let Input::Answered(key, answer) = &input {
                let word = self.telemetry.answered(key, answer);
                debug!(?key, answer = word, "answered");
            }
            let changed = self.process.hear(watch, input, self.clock.now());
            self.telemetry.input(changed);
        }
    }

    fn turn(&mut self) {
        let (began, now) = (Instant::now(), self.clock.now());
        let turn = self.process.turn(now);
        self.log();
        let Some(Turn { plan, sends, ends, begins }) = turn else { return };
        self.telemetry.planned(&plan, &self.process, now, began.elapsed());
        for number in ends {
            self.watches.remove(&number).iter().for_each(AbortHandle::abort);
        }
        for (number, source, way) in begins {
            self.watch(number, source, way);
        }
        let access = &self.process.world.fleet.access;
        self.clusters.retain(|cluster| access.contains_key(cluster));
        for (effect, not_after) in sends {
            self.telemetry.sent(&effect.key());
            self.send(effect, not_after);
        }
        self.process.rest(began.elapsed(), self.clock.now().mono);
    }

    fn send(&mut self, effect: Effect, not_after: Option<Mono>) {
        let server = server(&self.client, &self.clusters, &self.process, effect.key().cluster());
        let (places, sender, keep) = (self.places.clone(), self.sender.clone(), self.keep.clone());
        let (telemetry, clock) = (self.telemetry.clone(), self.clock);
        self.tasks.spawn(async move {
            let client = async { server.context("there is no kubeconfig any more")?.client().await };
            // The process may have stood still since the plan was made; then another may lead by now.
            let inputs = match not_after.is_some_and(|at| clock.now().mono >= at) {
                true => vec![answer::unsent(&effect, "the leadership has lapsed")],
                false => answered(client, &effect, &places, &keep, &telemetry, clock).await,
            };
            // Fails only when the loop has ended, and then nobody needs the answer.
            let _ = sender.send(Heard { watch: None, inputs, room: None }).await;
        });
    }

    fn watch(&mut self, number: u64, source: Source, way: Way) {
        let server = match (source.cluster(), way.access) {
            (Some(cluster), Some(access)) => Server::Elsewhere(self.clusters.clone(), cluster.clone(), access),
            (None, _) => Server::Here(self.client.clone()),
            // Never ours about another cluster. Without access nothing there is begun.
            (Some(_), None) => return,
        };
        let (keep, places, chance) = (self.keep.clone(), self.places.clone(), RandomState::new().hash_one(number));
        let wanted = Wanted { source, served: way.served, keep, places, chance };
        let ear = Ear::new(number, self.sender.clone());
        let task = self.tasks.spawn(watch::watch(server, wanted, ear, self.clock, self.telemetry.clone()));
        self.watches.insert(number, task);
    }

    fn log(&mut self) {
        for news in self.process.news() {
            match news {
                News::Leads => info!("leading"),
                News::LeadsNoMore { leader } => warn!(?leader, "no longer leading"),
                News::Decided(Decision { check, node, verdict, because }) => {
                    info!(%check, %node, %verdict, %because, "decided");
                }
                News::Breached(breach) => {
                    self.telemetry.breached(breach.rule);
                    error!(rule = breach.rule.word(), "{breach}; nothing of this plan is sent but the lease: please report this");
                }
                News::Foreign(checks) => {
                    info!(
                        ?checks,
                        "not ours, as their definition is somebody else's: annotate them with resus.dev/take-over=true, or use --nhc=all or --mhc=all"
                    );
                }
                News::DetectorOff(detector, off) => info!(%detector, why = %off, "upgrade detector is off"),
                News::ClockDiffers(because) => warn!(%because, "nothing new is started"),
                News::ClockAgrees => info!("this host's clock and that of the API server agree again"),
                News::Stray(source, name) => {
                    warn!(%name, "found what could be {source}, in a namespace that neither --rival-namespaces nor --kured-namespaces name: it changes nothing");
                }
                News::Unidentified(cluster) => {
                    warn!(%cluster, "the user of its kubeconfig may not get the namespace kube-system, so nobody would notice if it led to another cluster");
                }
                News::LeaseTrouble(why) => {
                    warn!(%why, "the leader lease cannot be read or written; nothing is started meanwhile");
                }
                News::Unreadable { source, name, why } => {
                    warn!(%source, %name, %why, "an object cannot be read; it is left alone, others go on");
                }
                News::NotWatched(source) => info!(%source, "no longer watched"),
                News::Stops => info!("stopping: no new remediations, finishing what is under way"),
                News::StopsUnanswered => {
                    warn!("stopped before the last requests were answered, or the lease was given up; both are safe to abandon");
                }
            }
        }
    }
}

/// Whose server is asked about what is in this cluster: never ours about another, even where nobody knows how to reach that.
fn server(home: &Client, clusters: &Clusters, process: &Process, cluster: Option<&ClusterKey>) -> Option<Server> {
    let Some(cluster) = cluster else { return Some(Server::Here(home.clone())) };
    Some(Server::Elsewhere(clusters.clone(), cluster.clone(), process.access(cluster)?))
}

/// A panic on the way leaves open whether it was done.
async fn answered(
    client: impl Future<Output = Result<Client>>,
    effect: &Effect,
    places: &Places,
    keep: &Keep,
    telemetry: &Telemetry,
    clock: Clock,
) -> Vec<Input> {
    let began = Instant::now();
    let answered = telemetry.caught(carry_out(client, effect, places, keep, clock)).await.unwrap_or_else(|why| {
        error!(key = ?effect.key(), %why, "a request was given up; please report this");
        vec![answer::lost(effect, &why)]
    });
    telemetry.took(effect.key().nature().verb, began.elapsed());
    answered
}

async fn carry_out(
    client: impl Future<Output = Result<Client>>,
    effect: &Effect,
    places: &Places,
    keep: &Keep,
    clock: Clock,
) -> Vec<Input> {
    let request = match encode::encode(effect, places) {
        Ok(request) => request.map(Body::from),
        Err(error) => return vec![answer::unsent(effect, &error.to_string())],
    };
    let sent_at = clock.now().mono;
    let key = effect.key();
    let elsewhere = key.cluster().is_some();
    let max = if elsewhere { limits::REMOTE_ANSWER_MAX } else { limits::ANSWER_MAX };
    // Of other servers nothing is repeated.
    let why = |error: kube::Error| if elsewhere { anyhow!(connect::why(&error)) } else { error.into() };
    let response = async {
        let (parts, body) = client.await?.send(request).await.map_err(why)?.into_parts();
        let body = body::whole(body, max).await?.map_err(why)?;
        anyhow::Ok(Response::from_parts(parts, body))
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, response).await {
        Ok(Ok(response)) => {
            let dated = answer::dated(response.headers(), key.cluster().cloned(), sent_at);
            dated.filter(|_| key.nature().tells_time).into_iter().chain([answer::decode(effect, keep, &response)]).collect()
        }
        Ok(Err(error)) => vec![answer::lost(effect, &format!("{error:#}"))],
        Err(_) => vec![answer::lost(effect, &format!("no answer from the API server within {REQUEST_TIMEOUT:?}"))],
    }
}

/// The only place that reads clocks.
#[derive(Clone, Copy)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { began: Instant::now() }
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { wall: Wall(millis(wall)), mono: Mono(millis(self.began.elapsed())) }
    }

    pub fn instant(&self, at: Mono) -> Instant {
        self.began + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use resus_core::audit::Rule;
    use resus_core::facts::Invalid;
    use resus_core::input::{Answer, Fact};
    use resus_core::mhc::facts::Access;
    use resus_core::plan::Plan;

    use super::*;
    use crate::watch::tests::mistaken;

    #[tokio::test]
    async fn a_panic_in_the_task_of_an_effect_leaves_it_unsure() {
        let telemetry = Telemetry::new();
        let effect = Effect::Look { cluster: None, node: "n1".into() };
        let client = async { Ok(mistaken()) };
        let inputs = answered(client, &effect, &Places::new("resus"), &Keep::default(), &telemetry, Clock::start()).await;
        let [Input::Answered(key, Answer::Unsure { why })] = inputs.as_slice() else { panic!("{inputs:?}") };
        assert_eq!((key, &**why), (&effect.key(), "a mistake in this program: on two lines"));
        assert!(telemetry.metrics().contains("resus_task_panics_total 1"), "{}", telemetry.metrics());
    }

    #[test]
    fn who_breaks_a_rule_again_and_again_ends_with_an_error() {
        let world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
        let mut process = Process::new(world, Mono(0));
        // Of one that does not lead.
        let plan = Plan { effects: vec![Effect::LeaseNamespace], ..Plan::default() };
        for minute in 0..3 {
            assert!(may_go_on(&process).is_ok(), "{minute} times");
            let now = Now { wall: Wall(minute * 60_000), mono: Mono(minute * 60_000) };
            assert!(process.follow(plan.clone(), now).sends.is_empty());
        }
        let why = may_go_on(&process).expect_err("it ends");
        assert!(why.to_string().contains("broke a rule"), "{why}");
    }

    #[test]
    fn breaches_are_counted_from_nothing_on() {
        let telemetry = Telemetry::new();
        telemetry.breached(Rule::Leader);
        let metrics = telemetry.metrics();
        for counted in [r#"resus_audit_breach_total{rule="leader"} 1"#, r#"resus_audit_breach_total{rule="look"} 0"#] {
            assert!(metrics.contains(counted), "{counted} in {metrics}");
        }
    }

    #[tokio::test]
    async fn what_is_in_another_cluster_is_never_asked_of_our_own_server() {
        let (home, clusters) = (mistaken(), Clusters::new(Trust::Remote));
        let now = Now { wall: Wall(0), mono: Mono(0) };
        let world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
        let mut process = Process::new(world, now.mono);
        let blue = ClusterKey { namespace: "ns".into(), name: "blue".into() };
        assert!(matches!(server(&home, &clusters, &process, None), Some(Server::Here(_))));
        assert!(server(&home, &clusters, &process, Some(&blue)).is_none());
        for (access, is_known) in [(Err(Invalid("it is no YAML".into())), false), (Ok(Access("a kubeconfig".into())), true)] {
            process.hear(None, Input::Seen(Fact::Access { cluster: blue.clone(), access }), now);
            let found = server(&home, &clusters, &process, Some(&blue));
            assert!(matches!(found, Some(Server::Elsewhere(..)) if is_known) || found.is_none() && !is_known);
        }
    }

    #[test]
    fn any_other_panic_ends_the_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let ended = runtime.block_on(async { tokio::spawn(async { panic!("a mistake") }).await });
        assert!(ended_well(ended).is_err());
        assert!(ended_well(Ok(())).is_ok());
    }
}
