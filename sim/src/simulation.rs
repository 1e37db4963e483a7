//! The whole cluster in virtual time: one event after the other, until the scenario ends.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use resus_apiserver::{Reply, Server, Watch};
use resus_core::effect::Effect;
use resus_core::event::hash;

use crate::api::{Api, Topic};
use crate::clock::{Agenda, Millis, SECOND};
use crate::fleet::liveness::longest_wait;
use crate::fleet::play::{self, Fleet};
use crate::happening::{Happening, Violation, What};
use crate::ledger::{Change, Ledger};
use crate::liveness::{JUDGE_EACH, Liveness};
use crate::machine::{LIFECYCLE_EACH, Machine, bind_pods, watch_over};
use crate::net::Net;
use crate::oracle::Intent;
use crate::provider::{Job, Next, Provider};
use crate::replica::Replica;
use crate::rng::Rng;
use crate::scenario::{Act, Scenario, titled};
use crate::trace::Trace;

pub struct Simulation {
    pub(crate) scenario: Scenario,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) api: Api,
    /// Other clusters, by what a kubeconfig calls them.
    pub(crate) remotes: BTreeMap<String, Remote>,
    pub(crate) ledger: Ledger,
    /// None too while somebody is at work on it.
    pub(crate) fleet: Option<Fleet>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) provider: Provider,
    pub(crate) net: Net,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) trace: Trace,
    /// For choices that are made when something happens.
    pub(crate) rng: Rng,
    /// For the loops of the controllers.
    pub(crate) pace: Rng,
    pub(crate) calls: u64,
    pub(crate) asked: BTreeMap<String, u64>,
    /// Who stands in the leader lease, as the server stored it.
    pub(crate) holder: Option<String>,
    /// Since the faults ended.
    pub(crate) liveness: Option<Liveness>,
    /// The node lifecycle controller's.
    patience: Millis,
    ended: bool,
}

/// A watch that is open, seen from the server.
pub(crate) struct Connection {
    pub replica: usize,
    /// The number of the watch.
    pub number: u64,
    /// Of another cluster.
    pub server: Option<String>,
    pub topic: Option<Topic>,
    pub watch: Watch,
    /// It will be read soon.
    pub pulling: bool,
    /// Lines arrive in order: none before this.
    pub due_at: Millis,
}

pub(crate) enum Event {
    Act(usize),
    Beat(usize),
    Lifecycle,
    Booted(usize, u32),
    Provider(Job),
    /// Those who take care of a herd do.
    Herd(usize),
    /// What Kubernetes' own controllers do, and bookmarks.
    Tend,
    Wake {
        replica: usize,
        life: u32,
    },
    Depart {
        replica: usize,
        life: u32,
        effect: Box<Effect>,
        not_after: Option<Millis>,
    },
    Execute(Box<Call>),
    Hear {
        replica: usize,
        call: u64,
        heard: Heard,
    },
    TimeOut {
        replica: usize,
        call: u64,
    },
    /// Of the watch with this number.
    Timer {
        replica: usize,
        number: u64,
        life: u32,
    },
    Pull(u64),
    Lines {
        connection: u64,
        lines: Vec<Bytes>,
        ended: bool,
    },
    Heal,
    Judge,
    End,
}

/// A request on its way to the server.
pub(crate) struct Call {
    pub number: u64,
    pub replica: usize,
    pub request: Request<Vec<u8>>,
    /// Of another cluster.
    pub server: Option<String>,
    /// None for lists and watches.
    pub effect: Option<Effect>,
    pub intent: Intent,
    /// When its sender hears the answer; None if it never does.
    pub answered: Option<Millis>,
}

/// What is sent, where to, and how long an answer is waited for.
pub(crate) struct Sent {
    pub request: Request<Vec<u8>>,
    pub server: Option<String>,
    pub effect: Option<Effect>,
    pub intent: Intent,
    /// None: whoever asks gives up by itself.
    pub patience: Option<Millis>,
}

/// The API server of another cluster.
pub(crate) struct Remote {
    pub api: Api,
    pub ledger: Ledger,
    /// It takes requests and answers none.
    pub hangs: bool,
}

pub(crate) enum Heard {
    Answer { response: Response<Vec<u8>>, executed_at: Millis },
    Opened { watch: Box<Watch>, date: HeaderValue },
    Lost,
}

/// Bookmarks come once a minute; to look for them so often is soon enough.
const TEND_EACH: Millis = 10 * SECOND;

impl Simulation {
    pub fn new(scenario: Scenario) -> Simulation {
        let (seed, now) = (scenario.seed, scenario.begins_at);
        let mut api = Api::new(hash(&["uids", &seed.to_string()]), now);
        let mut ledger = Ledger::default();
        api.install(now);
        ledger.open(now, &mut api);
        if scenario.provider.installed {
            api.install_provider(now);
            ledger.open_provider(now, &mut api);
        }
        let mut pace = Rng::of(seed, "pace");
        let mut simulation = Simulation {
            agenda: Agenda::new(now),
            machines: scenario.machines.iter().cloned().map(Machine::new).collect(),
            provider: Provider::new(scenario.provider.clone(), Rng::of(seed, "provider")),
            net: Net::new(scenario.net.clone(), scenario.replicas, Rng::of(seed, "net")),
            replicas: (0..scenario.replicas).map(Replica::new).collect(),
            connections: BTreeMap::new(),
            trace: Trace::default(),
            rng: Rng::of(seed, "acts"),
            patience: pace.within(scenario.patience.0..=scenario.patience.1),
            pace,
            calls: 0,
            asked: BTreeMap::new(),
            holder: None,
            liveness: None,
            ended: false,
            api,
            remotes: BTreeMap::new(),
            ledger,
            fleet: None,
            scenario,
        };
        let fleet = simulation.scenario.fleet.clone();
        simulation.fleet = fleet.map(|spec| simulation.found_fleet(spec));
        simulation.populate();
        simulation.schedule();
        simulation.look_around();
        simulation
    }

    /// What runs on the machines from the beginning.
    fn populate(&mut self) {
        let now = self.now();
        let Simulation { api, ledger, remotes, scenario, .. } = self;
        for spec in &scenario.machines {
            let remote = spec.cluster.as_ref().and_then(|cluster| remotes.get_mut(cluster));
            let (api, ledger) = remote.map_or((&mut *api, &mut *ledger), |remote| (&mut remote.api, &mut remote.ledger));
            bind_pods(spec, now, api);
            ledger.etcd.extend(spec.hosts_etcd.then(|| spec.name.clone()));
        }
    }

    /// The kubelet of a machine stirs, wherever it is.
    fn beat(&mut self, number: usize) {
        let now = self.now();
        let Simulation { api, ledger, remotes, machines, .. } = self;
        let machine = &mut machines[number];
        let remote = machine.spec.cluster.as_ref().and_then(|cluster| remotes.get_mut(cluster));
        let (api, ledger) = remote.map_or((api, &*ledger), |remote| (&mut remote.api, &remote.ledger));
        machine.beat(now, api, ledger);
    }

    fn schedule(&mut self) {
        for number in 0..self.machines.len() {
            // All machines register at once; then each has a rhythm of its own.
            self.beat(number);
            let wait = self.pace.within(0..=self.machines[number].spec.beats_each);
            self.agenda.after(wait, Event::Beat(number));
        }
        for number in 0..self.fleet.as_ref().map_or(0, |fleet| fleet.spec.herds.len()) {
            self.agenda.after(play::TEND_EACH, Event::Herd(number));
        }
        let Simulation { agenda, scenario, .. } = self;
        for (number, (at, _)) in scenario.acts.iter().enumerate() {
            agenda.enter(*at, Event::Act(number));
        }
        if let Some(at) = scenario.heals_at {
            agenda.enter(at, Event::Heal);
        }
        agenda.after(LIFECYCLE_EACH, Event::Lifecycle);
        agenda.after(TEND_EACH, Event::Tend);
        agenda.enter(scenario.ends_at, Event::End);
        for replica in 0..scenario.replicas {
            self.start(replica);
        }
    }

    /// Goes on until something notable happens; None: the end.
    pub fn step(&mut self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.trace.news.pop_front() {
                return Some(happening);
            }
            if self.ended {
                return None;
            }
            let event = self.agenda.pop()?;
            self.happen(event);
            self.look_around();
        }
    }

    /// Goes on until it is `at`, whatever the scenario says of its end, and tells what happened.
    pub fn run_until(&mut self, at: Millis) -> Vec<Happening> {
        while let Some(event) = self.agenda.pop_until(at) {
            self.happen(event);
            self.look_around();
        }
        self.trace.news.drain(..).collect()
    }

    /// Its server, for others to use as well: from now on it wants this token of everybody, and is here only in
    /// [`Simulation::visit`].
    pub fn give_server(&mut self, token: &str, secrets: fn() -> String) -> Server {
        self.api.give_server(token, secrets)
    }

    /// What is done with the server that it gave away, and to which others have written meanwhile.
    pub fn visit<R>(&mut self, server: &mut Server, work: impl FnOnce(&mut Simulation) -> R) -> R {
        self.api.exchange(server);
        self.look_around();
        let done = work(self);
        self.api.exchange(server);
        done
    }

    /// The API server has this version from now on.
    pub fn upgrade_server(&mut self, version: &str) {
        self.api.upgrade(version);
    }

    /// A request of somebody who is not under test, executed at once. Whoever watches hears of it as of any other.
    pub fn ask(&mut self, request: Request<Vec<u8>>) -> Response<Vec<u8>> {
        let reply = self.api.handle(self.now(), request);
        self.look_around();
        match reply {
            Reply::Answer(response) => response,
            Reply::Watch(_) => panic!("a watch is not a question that is answered at once"),
        }
    }

    /// There is another cluster, which a kubeconfig calls by this name.
    pub fn add_cluster(&mut self, server: &str) {
        let api = Api::new(hash(&["uids", server, &self.scenario.seed.to_string()]), self.now());
        self.remotes.insert(server.to_owned(), Remote { api, ledger: Ledger::default(), hangs: false });
    }

    /// The server of another cluster goes away, or comes back.
    pub fn switch_remote(&mut self, server: &str, on: bool) {
        self.remote(server).api.is_up = on;
        if !on {
            self.close_all(Some(server));
        }
    }

    /// From now on it takes requests and answers none, or does again.
    pub fn hang_remote(&mut self, server: &str, hangs: bool) {
        self.remote(server).hangs = hangs;
        self.pull(Some(server), |_| true);
    }

    /// From now on every request gets through, and every answer back.
    pub fn calm_down(&mut self) {
        self.net.heals();
        self.pull_all();
    }

    pub(crate) fn remote(&mut self, server: &str) -> &mut Remote {
        self.remotes.get_mut(server).expect("there is such a cluster")
    }

    /// Somebody who is not under test works on this cluster and, where there is a name, on another one.
    pub fn lend<R>(&mut self, server: Option<&str>, work: impl FnOnce(Millis, &mut Api, Option<&mut Api>) -> R) -> R {
        let now = self.now();
        let there = server.and_then(|server| self.remotes.get_mut(server)).map(|remote| &mut remote.api);
        let done = work(now, &mut self.api, there);
        self.look_around();
        done
    }

    /// As [`Simulation::ask`], in another cluster.
    pub fn ask_remote(&mut self, server: &str, request: Request<Vec<u8>>) -> Response<Vec<u8>> {
        let now = self.now();
        let reply = self.remote(server).api.handle(now, request);
        self.look_around();
        match reply {
            Reply::Answer(response) => response,
            Reply::Watch(_) => panic!("a watch is not a question that is answered at once"),
        }
    }

    /// Does something to the cluster that is not in the scenario.
    pub fn act_now(&mut self, act: &Act) {
        self.act(act);
        self.look_around();
    }

    pub fn now(&self) -> Millis {
        self.agenda.now()
    }

    /// How often controllers have asked the API what: `PATCH /api/v1/nodes/worker-1`, `WATCH /api/v1/nodes`.
    pub fn asked(&self) -> &BTreeMap<String, u64> {
        &self.asked
    }

    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn violations(&self) -> &[Violation] {
        &self.trace.violations
    }

    fn happen(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Act(number) => {
                let act = self.scenario.acts[number].1.clone();
                self.act(&act);
            }
            Event::Beat(number) => {
                self.beat(number);
                let rest = self.machines[number].rests_for();
                self.agenda.after(rest + self.pace.within(-rest / 10..=rest / 10), Event::Beat(number));
            }
            Event::Lifecycle => {
                let Simulation { api, ledger, remotes, machines, patience, .. } = self;
                watch_over(of(machines, None), now, *patience, api, ledger);
                for (server, remote) in remotes {
                    watch_over(of(machines, Some(server)), now, *patience, &mut remote.api, &remote.ledger);
                }
                self.agenda.after(LIFECYCLE_EACH, Event::Lifecycle);
            }
            Event::Booted(number, boots) => self.booted(number, boots),
            Event::Provider(job) => {
                let next = self.provider.works(job, now, &mut self.api, &self.ledger);
                next.into_iter().for_each(|next| self.provide(next));
            }
            Event::Herd(number) => self.tend_herd(number),
            Event::Tend => {
                self.api.tend(now);
                self.remotes.values_mut().for_each(|remote| remote.api.tend(now));
                self.pull_all();
                self.agenda.after(TEND_EACH, Event::Tend);
            }
            Event::Wake { replica, life } => self.wake(replica, life),
            Event::Depart { replica, life, effect, not_after } => self.depart(replica, life, effect, not_after),
            Event::Execute(call) => self.execute(*call),
            Event::Hear { replica, call, heard } => self.hear(replica, call, heard),
            Event::TimeOut { replica, call } => self.time_out(replica, call),
            Event::Timer { replica, number, life } => self.timer(replica, number, life),
            Event::Pull(connection) => self.read_connection(connection),
            Event::Lines { connection, lines, ended } => self.lines(connection, lines, ended),
            Event::Heal => self.heal(),
            Event::Judge => self.judge(),
            Event::End => self.end(),
        }
    }

    /// After every event: what was stored by it, and who leads now.
    fn look_around(&mut self) {
        let now = self.now();
        let touched = self.api.take_touched();
        if !touched.is_empty() {
            self.read_ledger();
            self.pull(None, |topic| touched.contains(&topic));
        }
        let touched = |(server, remote): (&String, &mut Remote)| (!remote.api.take_touched().is_empty()).then(|| server.clone());
        for server in self.remotes.iter_mut().filter_map(touched).collect::<Vec<_>>() {
            self.read_remote(&server);
            self.pull(Some(&server), |_| true);
        }
        let leaders: Vec<usize> =
            self.replicas.iter().filter(|replica| replica.leads(now)).map(|replica| replica.number).collect();
        if leaders.len() > 1 {
            self.trace.violated("S5", now, format!("replicas {leaders:?} all believe that they lead"));
        }
    }

    fn read_remote(&mut self, server: &str) {
        let now = self.now();
        let Some(Remote { api, ledger, .. }) = self.remotes.get_mut(server) else { return };
        for change in ledger.read(now, api) {
            if let Some(liveness) = &mut self.liveness {
                liveness.changed_at = now;
            }
            if let Change::Condition { node, kind, status } = change {
                self.trace.tell(now, What::Condition { node: titled(Some(server), &node), kind, status });
            }
        }
    }

    fn read_fleet(&mut self) {
        let now = self.now();
        let Some(fleet) = &mut self.fleet else { return };
        for told in fleet.truth.read(now, &mut self.api, &self.ledger.writer) {
            // What controllers write themselves is no reason to write more.
            if let Some(liveness) = self.liveness.as_mut().filter(|_| self.ledger.writer.is_empty()) {
                liveness.changed_at = now;
            }
            self.trace.tell(now, What::Fleet(told));
        }
    }

    pub(crate) fn read_ledger(&mut self) {
        let now = self.now();
        self.read_fleet();
        for change in self.ledger.read(now, &mut self.api) {
            if let Some(liveness) = &mut self.liveness {
                liveness.changed_at = now;
            }
            match change {
                Change::Condition { node, kind, status } => self.trace.tell(now, What::Condition { node, kind, status }),
                Change::Created { name, uid, node } => {
                    let by = self.ledger.remediations.get(&name).map(|one| one.creator.clone()).unwrap_or_default();
                    self.trace.tell(now, What::Created { remediation: name.clone(), node, by });
                    let next = self.provider.sees(name, uid, false);
                    next.into_iter().for_each(|next| self.provide(next));
                }
                Change::Updated { name, uid, deleting: true } => {
                    let next = self.provider.sees(name, uid, true);
                    next.into_iter().for_each(|next| self.provide(next));
                }
                Change::Removed { name, node } => self.trace.tell(now, What::Removed { remediation: name, node }),
                Change::Updated { .. } | Change::Node(_) | Change::Check | Change::Template | Change::Hold => {}
            }
        }
    }

    pub(crate) fn provide(&mut self, next: Next) {
        match next {
            Next::After(wait, job) => self.agenda.after(wait, Event::Provider(job)),
            Next::Count(what) => self.trace.count(what),
            Next::Reset { node } => {
                if let Some(number) =
                    self.machines.iter().position(|machine| machine.spec.cluster.is_none() && machine.spec.name == node)
                {
                    self.reset(number);
                }
            }
        }
    }

    pub(crate) fn reset(&mut self, number: usize) {
        let now = self.now();
        let machine = &mut self.machines[number];
        machine.resets(now);
        let node = machine.spec.title();
        self.agenda.after(machine.spec.boots_for, Event::Booted(number, machine.boots));
        self.trace.tell(now, What::Reset { node });
    }

    fn booted(&mut self, number: usize, boots: u32) {
        let now = self.now();
        let machine = &mut self.machines[number];
        if machine.boots == boots && machine.has_booted() {
            let node = machine.spec.title();
            self.beat(number);
            self.trace.tell(now, What::Booted { node });
        }
    }

    fn judge(&mut self) {
        let now = self.now();
        let Some(mut liveness) = self.liveness.take() else { return };
        let mut fleet = self.fleet.take();
        let mut found =
            liveness.judge(&self.ledger, &|node| fleet.as_ref().is_some_and(|fleet| self.view(fleet).watches_over(node)), now);
        if let Some(fleet) = &mut fleet {
            let mut duties = std::mem::take(&mut fleet.duties);
            found.extend(duties.judge(self.view(fleet), liveness.healed_at, now));
            liveness.machines_wait = longest_wait(self.view(fleet));
            fleet.duties = duties;
        }
        (self.liveness, self.fleet) = (Some(liveness), fleet);
        self.violated(found);
        self.agenda.after(JUDGE_EACH, Event::Judge);
    }

    fn end(&mut self) {
        let now = self.now();
        let mut found = Vec::new();
        if let Some(liveness) = &self.liveness {
            found.extend(liveness.judge_end(&self.ledger, now));
            if let Some(fleet) = &self.fleet {
                let (healed_at, repair_within) = (liveness.healed_at, liveness.repair_within);
                found.extend(fleet.duties.judge_end(self.view(fleet), healed_at, repair_within, fleet.hosts(), now));
            }
        }
        self.violated(found);
        self.ended = true;
    }

    pub(crate) fn violated(&mut self, found: impl IntoIterator<Item = (&'static str, String)>) {
        let now = self.now();
        found.into_iter().for_each(|(rule, story)| self.trace.violated(rule, now, story));
    }
}

/// The machines of this cluster, or of another.
fn of<'a>(machines: &'a [Machine], cluster: Option<&'a str>) -> impl Iterator<Item = &'a Machine> {
    machines.iter().filter(move |machine| machine.spec.cluster.as_deref() == cluster)
}
