//! One controller process in virtual time: the real loop and the real watches, without their sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{Response, StatusCode};
use resus_core::default_check::DefaultCheck;
use resus_core::effect::Effect;
use resus_core::facts::{Claim, Limit, Name, Source};
use resus_core::input::Input;
use resus_core::lease::{Election, Timing};
use resus_core::mhc::facts::{ClusterKey, Place};
use resus_core::process::{self, News, Turn};
use resus_core::rival::Homes;
use resus_core::upgrade::Detectors;
use resus_core::world::World;
use resus_k8s::observe::Keep;
use resus_k8s::watcher::Watcher;

use crate::clock::{HostClock, Millis, ProcessClock, SECOND};
use crate::fleet::play::server_of;
use crate::scenario::{Flags, NAMESPACE};

/// Clocks that differ by more than this do so in every answer, however slow it was.
const CLEARLY_WRONG: Millis = 15 * SECOND;
/// As in the core.
const BELIEVED_AFTER: Millis = 60 * SECOND;

/// As a controller without flags: the usual marks of maintenance.
pub fn keep() -> Arc<Keep> {
    static KEEP: LazyLock<Arc<Keep>> = LazyLock::new(|| Arc::new(Keep::of(&Detectors::default())));
    KEEP.clone()
}

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
    process: process::Process,
    /// By their numbers.
    pub watches: BTreeMap<u64, Watching>,
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
    /// Likewise of looks that may have found nothing, at nodes in any cluster.
    pub nodes_looked_at: BTreeMap<(Option<ClusterKey>, Name), Millis>,
    /// Likewise of looks at Machines.
    pub machines_looked_at: BTreeMap<Place, Millis>,
    /// For when a wake-up is on the agenda.
    pub wakes_at: Option<Millis>,
}

pub struct Watching {
    pub watcher: Watcher,
    /// The server of another cluster; none: this one's.
    pub server: Option<String>,
    /// The request under way, and then the connection that came of it.
    pub call: u64,
    /// For when a wake-up is on the agenda.
    pub timer_at: Option<Millis>,
}

pub enum Purpose {
    Effect(Effect),
    /// By its number.
    Watch(u64),
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
        let clock = ProcessClock::new(now, self.host);
        self.process = Some(Process {
            identity,
            process: process::Process::new(world, clock.read(now).mono),
            clock,
            watches: BTreeMap::new(),
            open: BTreeMap::new(),
            doubted_at: now,
            wrong_from: None,
            told_time: false,
            looked_at: BTreeMap::new(),
            nodes_looked_at: BTreeMap::new(),
            machines_looked_at: BTreeMap::new(),
            wakes_at: None,
        });
    }

    /// Does it believe that it leads, and so act? One that stops acts no more.
    pub fn leads(&self, now: Millis) -> bool {
        self.process.as_ref().is_some_and(|process| {
            let election = &process.process.world.election;
            election.leads(process.clock.read(now).mono) && !election.stopping
        })
    }
}

impl Process {
    /// `watch`: the number of the watch that says it; none for answers.
    pub fn take(&mut self, watch: Option<u64>, inputs: Vec<Input>, now: Millis) {
        for input in inputs {
            let lists = matches!(&input, Input::Listing(Source::Nodes) | Input::Listed(Source::Nodes));
            let dated = matches!(&input, Input::Dated { cluster: None, .. });
            let in_doubt = |process: &Process| !process.process.world.is_fresh(&Source::Nodes, process.clock.read(now).mono);
            let was_in_doubt = in_doubt(self);
            self.process.hear(watch, input, self.clock.read(now));
            if lists || was_in_doubt || in_doubt(self) {
                self.doubted_at = now;
            }
            if dated {
                self.hears_the_time(now);
            }
        }
    }

    /// An answer to a look, which may have found nothing.
    pub fn looks(&mut self, effect: &Effect, response: &Response<Vec<u8>>, executed_at: Millis) {
        if !response.status().is_success() && response.status() != StatusCode::NOT_FOUND {
            return;
        }
        if let Effect::Look { cluster, node } = effect {
            self.nodes_looked_at.insert((cluster.clone(), node.clone()), executed_at);
        }
        if let Effect::LookMachine { place, .. } = effect {
            self.machines_looked_at.insert(place.clone(), executed_at);
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
        self.process.stop(self.clock.read(now));
    }

    pub fn is_stopping(&self) -> bool {
        self.process.is_stopping()
    }

    /// A process that was asked to stop, and has.
    pub fn has_stopped(&mut self, now: Millis) -> bool {
        self.process.has_stopped(self.clock.read(now))
    }

    /// The end of a pass through the loop: plans if it is time to. `took` is how long planning takes then.
    pub fn turn(&mut self, now: Millis, took: Duration) -> Option<Turn> {
        let turn = self.process.turn(self.clock.read(now))?;
        self.process.rest(took, self.clock.read(now).mono);
        Some(turn)
    }

    pub fn wake_at(&self) -> Millis {
        self.clock.true_time(self.process.wake_at())
    }

    pub fn news(&mut self) -> Vec<News> {
        self.process.news()
    }

    /// In a simulation a kubeconfig is nothing but the name of a server.
    pub fn server(&self, cluster: &ClusterKey) -> Option<String> {
        self.process.access(cluster).map(|access| server_of(&access.0))
    }
}
