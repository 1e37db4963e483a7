//! The loop: facts in, plan, effects out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use http::Response;
use kube::Client;
use kube::client::Body;
use resus_core::decision::{Because, Decision, Verdict};
use resus_core::default_check::DefaultCheck;
use resus_core::effect::Effect;
use resus_core::facts::{Claim, Limit, Name, Served, Source};
use resus_core::input::Input;
use resus_core::lease::{Election, REQUEST_TIMEOUT, Timing};
use resus_core::mhc::facts::{Access, ClusterKey};
use resus_core::plan::{Plan, plan};
use resus_core::rival::Homes;
use resus_core::time::{Mono, Now, Wall};
use resus_core::upgrade::{Detector, Detectors, Off};
use resus_core::world::World;
use resus_k8s::names::Places;
use resus_k8s::observe::Keep;
use resus_k8s::{answer, encode, limits};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, error, info, warn};

use crate::body;
use crate::clusters::Clusters;
use crate::connect::{self, Trust};
use crate::telemetry::Telemetry;
use crate::watch::{self, Server, Wanted};

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
/// The loop turns at least this often, so that its health can be seen from outside.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// When many nodes fail, every answer and every event is a change; what comes within this is planned for together.
const REST_MIN: Duration = Duration::from_millis(10);
/// In a storm that lasts, planning gets a twentieth of the time, but pauses no longer than `REST_MAX`, which nobody notices
/// beside time-outs of minutes.
const REST_FACTOR: u32 = 20;
const REST_MAX: Duration = Duration::from_millis(50);
/// Rest that was taken while there was nothing to do counts: a hundred nodes that fail at once after it are planned for
/// without any but the shortest pauses.
const REST_SAVED_MAX: Duration = Duration::from_secs(20);
/// A stopping process waits this long for its last answers: longer than any request may take.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Of Nodes that cannot be read, in one workload cluster.
const UNREADABLE_TOLD_MAX: u32 = 100;
/// Whoever makes and deletes such objects again and again does not fill the log.
const STRAYS_TOLD_MAX: usize = 100;

pub async fn run(client: Client, settings: Settings, telemetry: Arc<Telemetry>, stop: impl Future<Output = ()>) -> Result<()> {
    settings.timing.check().map_err(anyhow::Error::msg)?;
    let (sender, mut inputs) = mpsc::channel(INPUTS_MAX);
    let mut world = World::new(Election::new(settings.identity.as_str().into(), settings.timing), settings.claim);
    let keep = Arc::new(Keep::of(&settings.detectors));
    world.namespace = settings.places.own.as_str().into();
    world.detectors = settings.detectors;
    world.homes = settings.homes;
    world.limit = settings.limit;
    world.machine_claim = settings.machine_claim;
    if settings.default_check {
        world.default_check = DefaultCheck::Template;
    }
    let mut pump = Pump {
        client,
        clusters: Clusters::new(settings.trust),
        places: Arc::new(settings.places),
        clock: Clock::start(),
        world,
        keep,
        sender,
        watches: BTreeMap::new(),
        watches_begun: 0,
        tasks: JoinSet::new(),
        decided: BTreeMap::new(),
        rests_until: Instant::now(),
        rest_owed_until: Instant::now(),
        led: false,
        foreign: Vec::new(),
        detectors_off: Vec::new(),
        unreadable_told: BTreeMap::new(),
        strays: BTreeSet::new(),
        unidentified: BTreeSet::new(),
        trouble: None,
        out_of_time: None,
        unserved: BTreeSet::new(),
        telemetry,
    };
    let mut stop = std::pin::pin!(stop);
    let mut stop_by: Option<Instant> = None;
    let mut wake_at = pump.turn();
    let mut changed = false;
    loop {
        changed |= tokio::select! {
            heard = inputs.recv() => pump.take(heard.context("the loop holds a sender itself, so the channel never closes")?),
            () = tokio::time::sleep_until(wake_at.into()) => false,
            () = &mut stop, if stop_by.is_none() => {
                info!("stopping: no new remediations, finishing what is under way");
                stop_by = Some(Instant::now() + STOP_WITHIN);
                pump.apply(Input::Stop)
            }
            Some(ended) = pump.tasks.join_next() => {
                ended_well(ended)?;
                false
            }
        };
        for _ in 0..INPUTS_MAX {
            let Ok(heard) = inputs.try_recv() else { break };
            changed |= pump.take(heard);
        }
        while let Some(ended) = pump.tasks.try_join_next() {
            ended_well(ended)?;
        }
        if changed && Instant::now() < pump.rests_until {
            wake_at = wake_at.min(pump.rests_until);
        } else if changed || Instant::now() >= wake_at {
            wake_at = pump.turn();
            changed = false;
        }
        match stop_by {
            Some(_) if pump.is_done() => return Ok(()),
            Some(by) if Instant::now() >= by => {
                warn!("stopped before the last requests were answered, or the lease was given up; both are safe to abandon");
                return Ok(());
            }
            Some(by) => wake_at = wake_at.min(by),
            None => {}
        }
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

/// What reaches the loop. What a watch said before it was stopped may arrive after, and must not count any more.
pub struct Heard {
    /// The number of the watch; none for answers.
    pub watch: Option<u64>,
    /// Together, since each message wakes the loop.
    pub inputs: Vec<Input>,
    /// Given back when the loop has taken it.
    pub room: Option<OwnedSemaphorePermit>,
}

struct Watching {
    number: u64,
    served: Option<Served>,
    /// Of another cluster.
    access: Option<Access>,
    task: AbortHandle,
}

struct Pump {
    client: Client,
    clusters: Clusters,
    places: Arc<Places>,
    clock: Clock,
    world: World,
    keep: Arc<Keep>,
    sender: mpsc::Sender<Heard>,
    watches: BTreeMap<Source, Watching>,
    watches_begun: u64,
    tasks: JoinSet<()>,
    /// What was logged last, of everything but healthy nodes.
    decided: BTreeMap<(Name, Name), (Verdict, Because)>,
    /// Not to plan again before.
    rests_until: Instant,
    /// When all planning so far is made up for by rest.
    rest_owed_until: Instant,
    led: bool,
    /// Checks that are not ours, as they were told last.
    foreign: Vec<Name>,
    /// As they were told last.
    detectors_off: Vec<(Detector, Off)>,
    /// How often we have told of a Node that cannot be read.
    unreadable_told: BTreeMap<ClusterKey, u32>,
    /// Objects named like those of other controllers, of which we have told.
    strays: BTreeSet<Name>,
    /// Clusters that do not say who they are, as they were told.
    unidentified: BTreeSet<ClusterKey>,
    trouble: Option<Name>,
    /// Whether our clock and the server's differ, as it was told last.
    out_of_time: Option<Because>,
    /// Of which the API server says that there is no such kind.
    unserved: BTreeSet<Source>,
    telemetry: Arc<Telemetry>,
}

impl Pump {
    fn take(&mut self, Heard { watch, inputs, room: _ }: Heard) -> bool {
        let is_current = watch.is_none_or(|number| self.watches.values().any(|watching| watching.number == number));
        let mut changed = false;
        for input in inputs.into_iter().filter(|_| is_current) {
            changed |= self.apply(input);
        }
        changed
    }

    /// False: no decision can depend on it.
    fn apply(&mut self, input: Input) -> bool {
        match &input {
            // Each of a server of others only once: it may send them without end.
            Input::Unreadable { source: Source::RemoteNodes(cluster), name, .. } if self.world.is_unreadable(cluster, name) => {}
            Input::Unreadable { source: Source::RemoteNodes(cluster), name, why } => {
                let told = self.unreadable_told.entry(cluster.clone()).or_default();
                *told += 1;
                if *told <= UNREADABLE_TOLD_MAX {
                    warn!(%cluster, %name, %why, "a Node cannot be read; it is left alone, others go on");
                }
            }
            Input::Unreadable { source, name, why } => {
                warn!(%source, %name, %why, "an object cannot be read; it is left alone, others go on");
            }
            Input::Answered(key, answer) => {
                let word = self.telemetry.answered(key, answer);
                debug!(?key, answer = word, "answered");
            }
            Input::NotServed(source) => drop(self.unserved.insert(source.clone())),
            Input::Listed(source) => drop(self.unserved.remove(source)),
            _ => {}
        }
        let changed = self.world.apply(input, self.clock.now());
        self.telemetry.input(changed);
        changed
    }

    /// Plans once, sends, and says when to come back.
    fn turn(&mut self) -> Instant {
        let began = Instant::now();
        let now = self.clock.now();
        let plan = plan(&self.world, now);
        self.telemetry.planned(&plan, &self.world, &self.unserved, now, began.elapsed());
        self.tell(&plan);
        self.watch(&plan);
        for effect in plan.effects {
            self.world.sent(&effect, now);
            self.telemetry.sent(&effect.key());
            self.send(effect, plan.leads_until);
        }
        let saved_since = began.checked_sub(REST_SAVED_MAX).unwrap_or(began);
        let ended = Instant::now();
        self.rest_owed_until = self.rest_owed_until.max(saved_since) + (ended - began) * REST_FACTOR;
        self.rests_until = self.rest_owed_until.clamp(ended + REST_MIN, ended + REST_MAX);
        let latest = began + TURN_WITHIN;
        plan.wake_at.map_or(latest, |at| self.clock.instant(at).min(latest))
    }

    fn is_done(&self) -> bool {
        self.world.election.is_over(self.clock.now().mono) && !self.world.flights.any_unanswered()
    }

    fn send(&mut self, effect: Effect, leads_until: Option<Mono>) {
        let server = self.server(effect.cluster());
        let (places, sender, keep) = (self.places.clone(), self.sender.clone(), self.keep.clone());
        let (telemetry, clock) = (self.telemetry.clone(), self.clock);
        let not_after = leads_until.map(|at| self.clock.instant(at)).filter(|_| !matches!(effect, Effect::Lease(_)));
        self.tasks.spawn(async move {
            let client = async { server.context("there is no kubeconfig any more")?.client().await };
            // The process may have stood still since the plan was made; then another may lead by now.
            let inputs = match not_after.is_some_and(|at| Instant::now() >= at) {
                true => vec![answer::unsent(&effect, "the leadership has lapsed")],
                false => answered(client, &effect, &places, &keep, &telemetry, clock).await,
            };
            // Fails only when the loop has ended, and then nobody needs the answer.
            let _ = sender.send(Heard { watch: None, inputs, room: None }).await;
        });
    }

    fn watch(&mut self, plan: &Plan) {
        let unwanted: Vec<Source> = self.watches.keys().filter(|source| !plan.watches.contains(source)).cloned().collect();
        for source in unwanted {
            if let Some(watching) = self.watches.remove(&source) {
                watching.task.abort();
            }
            info!(%source, "no longer watched");
            self.world.apply(Input::Stopped(source), self.clock.now());
        }
        for source in &plan.watches {
            let served = if let Source::Objects(kind) = source { self.world.served(kind).cloned() } else { None };
            let cluster = match source {
                Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster) => Some(cluster),
                _ => None,
            };
            let Some(server) = self.server(cluster) else {
                self.watches.remove(source).iter().for_each(|watching| watching.task.abort());
                continue;
            };
            let access = server.access().cloned();
            match self.watches.get(source) {
                Some(watching) if watching.served == served && watching.access == access => continue,
                Some(watching) => watching.task.abort(),
                None => {}
            }
            self.watches_begun += 1;
            let number = self.watches_begun;
            let wanted = Wanted {
                clock: self.clock,
                source: source.clone(),
                served: served.clone(),
                keep: self.keep.clone(),
                places: self.places.clone(),
            };
            let task = self.tasks.spawn(watch::watch(server, wanted, number, self.sender.clone(), self.telemetry.clone()));
            self.watches.insert(source.clone(), Watching { number, served, access, task });
        }
        let world = &self.world;
        self.clusters.retain(|cluster| world.fleet.access.contains_key(cluster));
        self.unreadable_told.retain(|cluster, _| world.fleet.clusters.contains_key(cluster));
    }

    fn server(&self, cluster: Option<&ClusterKey>) -> Option<Server> {
        server(&self.client, &self.clusters, &self.world, cluster)
    }

    /// Each decision is logged once, when it changes; that a node is and stays healthy is no news.
    fn tell(&mut self, plan: &Plan) {
        if plan.leads != self.led {
            self.led = plan.leads;
            match plan.leads {
                true => info!("leading"),
                false => warn!(leader = ?self.world.election.leader(), "no longer leading"),
            }
        }
        if plan.foreign != self.foreign {
            self.foreign.clone_from(&plan.foreign);
            info!(checks = ?self.foreign, "not ours, as their definition is somebody else's: annotate them with resus.dev/take-over=true, or use --nhc=all or --mhc=all");
        }
        for (detector, off) in plan.detectors_off.iter().filter(|off| !self.detectors_off.contains(off)) {
            info!(%detector, why = %off, "upgrade detector is off");
        }
        self.detectors_off.clone_from(&plan.detectors_off);
        if plan.out_of_time != self.out_of_time {
            self.out_of_time.clone_from(&plan.out_of_time);
            match &plan.out_of_time {
                Some(because) => warn!(%because, "nothing new is started"),
                None => info!("this host's clock and that of the API server agree again"),
            }
        }
        for (source, name) in &plan.strays {
            if self.strays.len() < STRAYS_TOLD_MAX && self.strays.insert(name.clone()) {
                warn!(%name, "found what could be {source}, in a namespace that neither --rival-namespaces nor --kured-namespaces name: it changes nothing");
            }
        }
        for cluster in &plan.unidentified {
            if self.unidentified.insert(cluster.clone()) {
                warn!(%cluster, "the user of its kubeconfig may not get the namespace kube-system, so nobody would notice if it led to another cluster");
            }
        }
        if self.world.election.trouble != self.trouble {
            self.trouble = self.world.election.trouble.clone();
            if let Some(why) = &self.trouble {
                warn!(%why, "the leader lease cannot be read or written; nothing is started meanwhile");
            }
        }
        let (healthy, others): (Vec<&Decision>, Vec<&Decision>) =
            plan.decisions.iter().partition(|decision| decision.verdict == Verdict::Leave);
        let mut decided = BTreeMap::new();
        for Decision { check, node, verdict, because } in others {
            let key = (check.clone(), node.clone());
            let before = self.decided.remove(&key);
            if before.is_none_or(|(known, reason)| known != *verdict || !reason.is_like(because)) {
                info!(%check, %node, %verdict, %because, "decided");
            }
            decided.insert(key, (*verdict, because.clone()));
        }
        // Nearly always nothing is left of what was told before, and then nobody has to be looked for among the healthy.
        for Decision { check, node, verdict, because } in healthy {
            if self.decided.is_empty() {
                break;
            }
            if self.decided.remove(&(check.clone(), node.clone())).is_some() {
                info!(%check, %node, %verdict, %because, "decided");
            }
        }
        self.decided = decided;
    }
}

/// Whose server is asked about what is in this cluster: never ours about another, even where nobody knows how to reach that.
fn server(home: &Client, clusters: &Clusters, world: &World, cluster: Option<&ClusterKey>) -> Option<Server> {
    let Some(cluster) = cluster else { return Some(Server::Here(home.clone())) };
    let access = world.fleet.access.get(cluster)?.as_ref().ok()?;
    Some(Server::Elsewhere(clusters.clone(), cluster.clone(), access.clone()))
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
    telemetry.took(effect.key().verb(), began.elapsed());
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
    let elsewhere = effect.cluster().is_some();
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
            let dated = answer::dated(response.headers(), effect.cluster().cloned(), sent_at);
            dated.filter(|_| effect.tells_time()).into_iter().chain([answer::decode(effect, keep, &response)]).collect()
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

    fn instant(&self, at: Mono) -> Instant {
        self.began + Duration::from_millis(u64::try_from(at.0).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use resus_core::facts::Invalid;
    use resus_core::input::{Answer, Fact};
    use resus_core::mhc::facts::Access;

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

    #[tokio::test]
    async fn what_is_in_another_cluster_is_never_asked_of_our_own_server() {
        let (home, clusters) = (mistaken(), Clusters::new(Trust::Remote));
        let mut world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
        let blue = ClusterKey { namespace: "ns".into(), name: "blue".into() };
        assert!(matches!(server(&home, &clusters, &world, None), Some(Server::Here(_))));
        assert!(server(&home, &clusters, &world, Some(&blue)).is_none());
        for (access, is_known) in [(Err(Invalid("it is no YAML".into())), false), (Ok(Access("a kubeconfig".into())), true)] {
            let now = Now { wall: Wall(0), mono: Mono(0) };
            world.apply(Input::Seen(Fact::Access { cluster: blue.clone(), access }), now);
            let found = server(&home, &clusters, &world, Some(&blue));
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
