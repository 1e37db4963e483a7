//! One controller process in virtual time: the loop of `driver/src/pump.rs` without its sockets.

use std::collections::BTreeMap;

use resus_core::decision::{Because, Decision, Verdict};
use resus_core::default_check::DefaultCheck;
use resus_core::effect::Effect;
use resus_core::facts::{Claim, Limit, Name, Served, Source};
use resus_core::input::Input;
use resus_core::lease::{Election, Timing};
use resus_core::mhc::facts::ClusterKey;
use resus_core::plan::{Plan, plan};
use resus_core::rival::Homes;
use resus_core::world::World;

use crate::clock::{HostClock, Millis, ProcessClock, SECOND};
use crate::scenario::{Flags, NAMESPACE};
use crate::watcher::Watcher;

/// As in the driver.
const TURN_WITHIN: Millis = 5 * SECOND;
const STOP_WITHIN: Millis = 8 * SECOND;

/// Clocks that differ by more than this do so in every answer, however slow it was.
const CLEARLY_WRONG: Millis = 15 * SECOND;
/// As in the core.
const BELIEVED_AFTER: Millis = 60 * SECOND;

pub struct Replica {
    pub number: usize,
    /// How often it has been started.
    pub lives: u32,
    pub process: Option<Process>,
    /// Until then the process stands still, and the world goes on.
    pub frozen_until: Millis,
    pub host: HostClock,
}

pub struct Process {
    /// Unlike that of any other process.
    pub identity: String,
    pub clock: ProcessClock,
    pub world: World,
    pub watches: BTreeMap<Source, Watching>,
    /// Requests that wait for an answer, each with when it was sent.
    pub open: BTreeMap<u64, (Purpose, Millis)>,
    /// The truth about its watch of Nodes: when it was last listed, broken or silent for too long.
    pub doubted_at: Millis,
    /// From when on it has to know that its wall clock is wrong, as it is now.
    pub wrong_from: Option<Millis>,
    /// An answer has told it the time.
    told_time: bool,
    /// The truth about looks: when the last answered one at each node was executed.
    pub looked_at: BTreeMap<Name, Millis>,
    decided: BTreeMap<(Name, Name), (Verdict, Because)>,
    changed: bool,
    pub wake_at: Millis,
    rests_until: Millis,
    led: bool,
    stop_by: Option<Millis>,
}

pub struct Watching {
    pub way: Way,
    pub watcher: Watcher,
    /// The request under way, and then the connection that came of it.
    pub call: u64,
    /// For when a wake-up is on the agenda.
    pub timer_at: Option<Millis>,
}

/// How a source is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub served: Option<Served>,
    /// The server of another cluster; none: this one's.
    pub server: Option<String>,
}

pub enum Purpose {
    Effect(Effect),
    Watch(Source),
}

impl Purpose {
    pub fn tells_time(&self) -> bool {
        match self {
            Purpose::Effect(effect) => effect.tells_time(),
            Purpose::Watch(source) => !matches!(source, Source::Objects(_)),
        }
    }

    /// Whose server is asked; none: our own.
    pub fn cluster(&self) -> Option<ClusterKey> {
        match self {
            Purpose::Effect(effect) => effect.cluster().cloned(),
            Purpose::Watch(Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster)) => Some(cluster.clone()),
            Purpose::Watch(_) => None,
        }
    }
}

/// What comes of one turn of the loop.
pub struct Turn {
    /// Decisions that are news.
    pub decisions: Vec<Decision>,
    /// All decisions, for counters.
    pub all: Vec<Decision>,
    /// Set when leadership changed.
    pub leads: Option<bool>,
    /// Each with the time from which it must not be sent any more.
    pub sends: Vec<(Effect, Option<Millis>)>,
    pub begins: Vec<(Source, Way)>,
    pub ends: Vec<Watching>,
}

impl Replica {
    pub fn new(number: usize) -> Replica {
        Replica { number, lives: 0, process: None, frozen_until: 0, host: HostClock::default() }
    }

    pub fn start(&mut self, flags: Flags, now: Millis) {
        self.lives += 1;
        let identity = format!("replica-{}-{}", self.number, self.lives);
        let election = Election::new(identity.as_str().into(), Timing::default());
        let mut world = World::new(election, Claim::Marked);
        world.machine_claim = flags.mhc;
        world.homes = Homes::with(NAMESPACE);
        if flags.short_circuit_at_limit {
            world.limit = Limit::Shut;
        }
        if flags.default_check {
            world.default_check = DefaultCheck::Template;
        }
        self.process = Some(Process {
            identity,
            clock: ProcessClock::new(now, self.host),
            world,
            watches: BTreeMap::new(),
            open: BTreeMap::new(),
            doubted_at: now,
            wrong_from: None,
            told_time: false,
            looked_at: BTreeMap::new(),
            decided: BTreeMap::new(),
            changed: true,
            wake_at: now,
            rests_until: now,
            led: false,
            stop_by: None,
        });
    }

    /// Does it believe that it leads, and so act? One that stops acts no more.
    pub fn leads(&self, now: Millis) -> bool {
        self.process.as_ref().is_some_and(|process| {
            let election = &process.world.election;
            election.leads(process.clock.read(now).mono) && !election.stopping
        })
    }
}

impl Process {
    pub fn take(&mut self, inputs: Vec<Input>, now: Millis) {
        for input in inputs {
            let lists = matches!(&input, Input::Listing(Source::Nodes) | Input::Listed(Source::Nodes));
            let dated = matches!(&input, Input::Dated { cluster: None, .. });
            let in_doubt = |process: &Process| !process.world.is_fresh(&Source::Nodes, process.clock.read(now).mono);
            let was_in_doubt = in_doubt(self);
            self.changed |= self.world.apply(input, self.clock.read(now));
            if lists || was_in_doubt || in_doubt(self) {
                self.doubted_at = now;
            }
            if dated {
                self.hears_the_time(now);
            }
        }
    }

    /// The truth about what it could see: an answer that was slow leaves room for some seconds.
    fn hears_the_time(&mut self, now: Millis) {
        let is_wrong = self.clock.host.off(now).abs() > CLEARLY_WRONG;
        let first = !std::mem::replace(&mut self.told_time, true);
        let from = self.wrong_from.unwrap_or(if first { now } else { now + BELIEVED_AFTER });
        self.wrong_from = is_wrong.then_some(from);
    }

    pub fn stop(&mut self, now: Millis) {
        self.stop_by.get_or_insert(now + STOP_WITHIN);
        self.take(vec![Input::Stop], now);
    }

    pub fn is_stopping(&self) -> bool {
        self.stop_by.is_some()
    }

    /// The end of a pass through the loop: plans if it is time to. `rest` is how long planning must not begin again.
    pub fn turn_if_due(&mut self, now: Millis, rest: Millis) -> Option<Turn> {
        if self.changed && now < self.rests_until {
            self.wake_at = if self.wake_at <= now { self.rests_until } else { self.wake_at.min(self.rests_until) };
            return None;
        }
        (self.changed || now >= self.wake_at).then(|| self.turn(now, rest))
    }

    /// A process that was asked to stop, and has.
    pub fn has_stopped(&self, now: Millis) -> bool {
        let is_done =
            self.world.election.is_over(self.clock.read(now).mono) && !self.world.flights.any_unanswered() && !self.changed;
        self.stop_by.is_some_and(|by| now >= by || is_done)
    }

    fn turn(&mut self, now: Millis, rest: Millis) -> Turn {
        let read = self.clock.read(now);
        let plan = plan(&self.world, read);
        let mut turn = Turn {
            decisions: self.news(&plan),
            leads: (plan.leads != self.led).then_some(plan.leads),
            sends: Vec::new(),
            begins: Vec::new(),
            ends: Vec::new(),
            all: Vec::new(),
        };
        self.led = plan.leads;
        self.rewatch(&plan, now, &mut turn);
        let leads_until = plan.leads_until.map(|at| self.clock.true_time(at));
        for effect in plan.effects {
            self.world.sent(&effect, read);
            let not_after = leads_until.filter(|_| !matches!(effect, Effect::Lease(_)));
            turn.sends.push((effect, not_after));
        }
        turn.all = plan.decisions;
        self.changed = false;
        self.rests_until = now + rest;
        let latest = self.stop_by.map_or(now + TURN_WITHIN, |by| by.min(now + TURN_WITHIN));
        self.wake_at = plan.wake_at.map_or(latest, |at| self.clock.true_time(at).min(latest)).max(now + 1);
        turn
    }

    fn rewatch(&mut self, plan: &Plan, now: Millis, turn: &mut Turn) {
        let unwanted: Vec<Source> = self.watches.keys().filter(|source| !plan.watches.contains(source)).cloned().collect();
        for source in unwanted {
            turn.ends.extend(self.watches.remove(&source));
            self.world.apply(Input::Stopped(source), self.clock.read(now));
        }
        for source in &plan.watches {
            let way = self.way(source);
            if self.watches.get(source).is_some_and(|watching| watching.way == way) {
                continue;
            }
            turn.ends.extend(self.watches.remove(source));
            turn.begins.push((source.clone(), way));
        }
    }

    fn way(&self, source: &Source) -> Way {
        match source {
            Source::Objects(kind) => Way { served: self.world.served(kind).cloned(), server: None },
            Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster) => Way { served: None, server: self.server(cluster) },
            _ => Way { served: None, server: None },
        }
    }

    /// In a simulation a kubeconfig is nothing but the name of a server.
    pub fn server(&self, cluster: &ClusterKey) -> Option<String> {
        let access = self.world.fleet.access.get(cluster)?.as_ref().ok()?;
        Some(access.0.to_string())
    }

    /// Each decision is told once, when it changes, as the driver logs it.
    fn news(&mut self, plan: &Plan) -> Vec<Decision> {
        let mut news = Vec::new();
        let mut decided = BTreeMap::new();
        for decision in &plan.decisions {
            let Decision { check, node, verdict, because } = decision;
            let key = (check.clone(), node.clone());
            let is_news = match self.decided.get(&key) {
                Some((known, reason)) => known != verdict || !reason.is_like(because),
                None => *verdict != Verdict::Leave,
            };
            if is_news {
                news.push(decision.clone());
            }
            if *verdict != Verdict::Leave {
                decided.insert(key, (*verdict, because.clone()));
            }
        }
        self.decided = decided;
        news
    }
}
