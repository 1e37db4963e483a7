//! When does a process take in what it hears, plan, rest, and end?
//!
//! It knows no socket and no timer: whoever drives it tells what was heard and what time it is, and does what a [`Turn`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::audit::{Breach, audit};
use crate::decision::{Because, Decision, Verdict};
use crate::effect::Effect;
use crate::facts::{Name, Served, Source};
use crate::input::Input;
use crate::mhc::facts::{Access, ClusterKey};
use crate::plan::{Plan, plan};
use crate::time::{Mono, Now};
use crate::upgrade::{Detector, Off};
use crate::world::World;

/// It turns at least this often, so that its health can be seen from outside.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// When many nodes fail, every answer and every event is a change; what comes within this is planned for together.
const REST_MIN: Duration = Duration::from_millis(10);
/// In a storm that lasts, planning gets a twentieth of the time, but pauses no longer than `REST_MAX`, which nobody notices
/// beside time-outs of minutes.
const REST_FACTOR: u32 = 20;
pub const REST_MAX: Duration = Duration::from_millis(50);
/// Rest that was taken while there was nothing to do counts: a hundred nodes that fail at once after it are planned for
/// without any but the shortest pauses.
const REST_SAVED_MAX: Duration = Duration::from_secs(20);
/// A stopping process waits this long for its last answers: longer than any request may take.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Plans that broke a rule, within `BREACHES_WITHIN`: the planner is wrong, and is not going to be right.
const BREACHES_MAX: usize = 3;
const BREACHES_WITHIN: Duration = Duration::from_secs(600);
/// The same world gives the same plan: it is not made again before whoever scrapes the metrics has seen what happened.
const BREACH_REST: Duration = Duration::from_secs(30);
/// Of one plan; they are nearly always of one kind.
const BREACHES_TOLD_MAX: usize = 10;

/// Of Nodes and Pods that cannot be read, in one workload cluster.
const UNREADABLE_TOLD_MAX: u32 = 100;
/// Whoever makes and deletes such objects again and again does not fill the log.
const STRAYS_TOLD_MAX: usize = 100;

pub struct Process {
    pub world: World,
    watches: BTreeMap<Source, Watching>,
    watches_begun: u64,
    /// Something was heard on which a decision can depend.
    changed: bool,
    wake_at: Mono,
    /// Not to plan again before.
    rests_until: Mono,
    /// When all planning so far is made up for by rest.
    rest_owed_until: Mono,
    /// Set when it was asked to stop.
    stop_by: Option<Mono>,
    /// Of which the API server says that there is no such kind.
    pub unserved: BTreeSet<Source>,
    /// When plans broke a rule, the last ones.
    breached_at: Vec<Mono>,
    told: Told,
    news: Vec<News>,
}

/// How a source is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    pub served: Option<Served>,
    /// What leads to the server of another cluster; none: it is our own.
    pub access: Option<Access>,
}

/// A watch that was begun.
struct Watching {
    number: u64,
    way: Way,
    /// It has said that its list begins.
    lists: bool,
}

/// What is to be done after planning.
pub struct Turn {
    /// Without its effects.
    pub plan: Plan,
    /// Each with the time from which it must not be sent any more: another may lead by then.
    pub sends: Vec<(Effect, Option<Mono>)>,
    /// Watches to be ended, by their numbers.
    pub ends: Vec<u64>,
    /// Watches to be begun, after that.
    pub begins: Vec<(u64, Source, Way)>,
}

/// What is worth a line in a log. Each is told once, when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Leads,
    /// Another leads, if anybody does.
    LeadsNoMore {
        leader: Option<Name>,
    },
    /// That a node is and stays healthy is none.
    Decided(Decision),
    /// The plan broke a rule, and was not followed.
    Breached(Breach),
    /// Checks that are not ours.
    Foreign(Vec<Name>),
    DetectorOff(Detector, Off),
    ClockDiffers(Because),
    ClockAgrees,
    /// What has the name of another controller's, where none is at home.
    Stray(Source, Name),
    /// A cluster that does not say who it is.
    Unidentified(ClusterKey),
    /// The leader lease cannot be read or written.
    LeaseTrouble(Name),
    Unreadable {
        source: Source,
        name: Name,
        why: Name,
    },
    NotWatched(Source),
    Stops,
    /// Its last answers did not come in time.
    StopsUnanswered,
}

#[derive(Default)]
struct Told {
    /// Of everything but healthy nodes, by check and node.
    decided: BTreeMap<(Name, Name), (Verdict, Because)>,
    leads: bool,
    foreign: Vec<Name>,
    detectors_off: Vec<(Detector, Off)>,
    /// How often, of each cluster.
    unreadable: BTreeMap<ClusterKey, u32>,
    strays: BTreeSet<Name>,
    unidentified: BTreeSet<ClusterKey>,
    lease_trouble: Option<Name>,
    out_of_time: Option<Because>,
}

impl Process {
    pub fn new(world: World, now: Mono) -> Process {
        Process {
            world,
            watches: BTreeMap::new(),
            watches_begun: 0,
            changed: true,
            wake_at: now,
            rests_until: now,
            rest_owed_until: now,
            stop_by: None,
            unserved: BTreeSet::new(),
            breached_at: Vec::new(),
            told: Told::default(),
            news: Vec::new(),
        }
    }

    /// Takes in what was heard: by the watch of this number, or as the answer to a request. False: no decision can depend on it.
    /// What a watch said before it was ended may arrive after, and must not count any more; nor what it says before it is ended.
    pub fn hear(&mut self, watch: Option<u64>, input: Input, now: Now) -> bool {
        if !watch.is_none_or(|number| self.is_current(number)) {
            return false;
        }
        if matches!(input, Input::Listing(_)) {
            self.watches.values_mut().filter(|own| Some(own.number) == watch).for_each(|own| own.lists = true);
        }
        match &input {
            Input::Unreadable { source, name, why } => self.tell_unreadable(source, name, why),
            Input::NotServed(source) => drop(self.unserved.insert(source.clone())),
            Input::Listed(source) => drop(self.unserved.remove(source)),
            _ => {}
        }
        let changed = self.world.apply(input, now);
        self.changed |= changed;
        changed
    }

    /// It is asked to end: nothing new is begun, and what is under way is finished.
    pub fn stop(&mut self, now: Now) {
        if self.stop_by.is_none() {
            self.news.push(News::Stops);
            self.stop_by = Some(now.mono.after(STOP_WITHIN));
            self.hear(None, Input::Stop, now);
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stop_by.is_some()
    }

    /// It was asked to end, and has.
    pub fn has_stopped(&mut self, now: Now) -> bool {
        let Some(by) = self.stop_by else { return false };
        let is_done = !self.changed && self.world.election.is_over(now.mono) && !self.world.flights.any_unanswered();
        if !is_done && now.mono >= by {
            self.news.push(News::StopsUnanswered);
        }
        is_done || now.mono >= by
    }

    /// When to call [`Process::turn`], at the latest; and before that, whenever something was heard.
    pub fn wake_at(&self) -> Mono {
        let due = if self.changed { self.rests_until } else { self.wake_at };
        self.stop_by.map_or(due, |by| due.min(by))
    }

    /// It has planned what must not be, again and again: it is to end, as by a crash. What it holds of the leadership runs out by
    /// itself, and then another may lead.
    pub fn has_failed(&self) -> bool {
        self.breached_at.len() >= BREACHES_MAX
    }

    /// Plans, if it is time to.
    pub fn turn(&mut self, now: Now) -> Option<Turn> {
        if now.mono < if self.changed { self.rests_until } else { self.wake_at } {
            return None;
        }
        let plan = plan(&self.world, now);
        Some(self.follow(plan, now))
    }

    /// What is to be done about a plan that was made of the world as it is. Of one that breaks a rule nothing is sent but the lease,
    /// and nothing else counts as sent.
    pub fn follow(&mut self, mut plan: Plan, now: Now) -> Turn {
        self.tell(&plan);
        if !self.may_follow(&plan, now) {
            plan.effects.retain(|effect| matches!(effect, Effect::Lease(_)));
        }
        let (ends, begins) = self.rewatch(&plan, now);
        let leads_until = plan.leads_until;
        let mut sends = Vec::new();
        for effect in std::mem::take(&mut plan.effects) {
            self.world.sent(&effect, now);
            let not_after = leads_until.filter(|_| !matches!(effect, Effect::Lease(_)));
            sends.push((effect, not_after));
        }
        self.changed = false;
        let latest = now.mono.after(TURN_WITHIN);
        self.wake_at = plan.wake_at.map_or(latest, |at| at.min(latest));
        Turn { plan, sends, ends, begins }
    }

    fn may_follow(&mut self, plan: &Plan, now: Now) -> bool {
        if self.breached_at.last().is_some_and(|at| now.mono.since(*at) < BREACH_REST) {
            return false;
        }
        let breaches = audit(&self.world, plan, now);
        if breaches.is_empty() {
            return true;
        }
        self.news.extend(breaches.into_iter().take(BREACHES_TOLD_MAX).map(News::Breached));
        self.breached_at.retain(|at| now.mono.since(*at) < BREACHES_WITHIN);
        self.breached_at.push(now.mono);
        false
    }

    /// To be told after each turn: how long it took.
    pub fn rest(&mut self, took: Duration, now: Mono) {
        let saved_since = now.before(REST_SAVED_MAX);
        self.rest_owed_until = self.rest_owed_until.max(saved_since).after(took * REST_FACTOR);
        self.rests_until = self.rest_owed_until.clamp(now.after(REST_MIN), now.after(REST_MAX));
    }

    /// What has become known since somebody asked last.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    fn rewatch(&mut self, plan: &Plan, now: Now) -> (Vec<u64>, Vec<(u64, Source, Way)>) {
        let (mut ends, mut begins) = (Vec::new(), Vec::new());
        let unwanted: Vec<Source> = self.watches.keys().filter(|source| !plan.watches.contains(source)).cloned().collect();
        for source in unwanted {
            ends.extend(self.watches.remove(&source).map(|own| own.number));
            self.news.push(News::NotWatched(source.clone()));
            self.world.apply(Input::Stopped(source), now);
        }
        for source in &plan.watches {
            if self.watches.get(source).is_some_and(|own| self.is_good(source, own)) {
                continue;
            }
            ends.extend(self.watches.remove(source).map(|own| own.number));
            if let Some(way) = self.way(source) {
                self.watches_begun += 1;
                let watching = Watching { number: self.watches_begun, way: way.clone(), lists: false };
                self.watches.insert(source.clone(), watching);
                begins.push((self.watches_begun, source.clone(), way));
            }
        }
        let clusters = &self.world.fleet.clusters;
        self.told.unreadable.retain(|cluster, _| clusters.contains_key(cluster));
        (ends, begins)
    }

    fn is_current(&self, number: u64) -> bool {
        let watch = self.watches.iter().find(|(_, own)| own.number == number);
        watch.is_some_and(|(source, own)| self.is_good(source, own))
    }

    /// Does it lead where it should, and is what it has shown so far still known? It would not show that again.
    fn is_good(&self, source: &Source, own: &Watching) -> bool {
        self.way(source).as_ref() == Some(&own.way) && (!own.lists || self.world.is_followed(source))
    }

    /// None: nobody knows how to reach it.
    fn way(&self, source: &Source) -> Option<Way> {
        let served = if let Source::Objects(kind) = source { self.world.served(kind).cloned() } else { None };
        let access = match source.cluster() {
            Some(cluster) => Some(self.access(cluster)?),
            None => None,
        };
        Some(Way { served, access })
    }

    /// What leads to this cluster.
    pub fn access(&self, cluster: &ClusterKey) -> Option<Access> {
        self.world.fleet.access.get(cluster)?.as_ref().ok().cloned()
    }

    /// Each of a server of others only once: it may send them without end.
    fn tell_unreadable(&mut self, source: &Source, name: &Name, why: &Name) {
        if let Some(cluster) = source.cluster() {
            if self.world.is_unreadable(cluster, name) {
                return;
            }
            let told = self.told.unreadable.entry(cluster.clone()).or_default();
            *told += 1;
            if *told > UNREADABLE_TOLD_MAX {
                return;
            }
        }
        self.news.push(News::Unreadable { source: source.clone(), name: name.clone(), why: why.clone() });
    }

    fn tell(&mut self, plan: &Plan) {
        let Process { world, told, news, .. } = self;
        if plan.leads != told.leads {
            told.leads = plan.leads;
            news.push(match plan.leads {
                true => News::Leads,
                false => News::LeadsNoMore { leader: world.election.leader().cloned() },
            });
        }
        if plan.foreign != told.foreign {
            told.foreign.clone_from(&plan.foreign);
            news.push(News::Foreign(plan.foreign.clone()));
        }
        for (detector, off) in plan.detectors_off.iter().filter(|off| !told.detectors_off.contains(off)) {
            news.push(News::DetectorOff(*detector, *off));
        }
        told.detectors_off.clone_from(&plan.detectors_off);
        if plan.out_of_time != told.out_of_time {
            told.out_of_time.clone_from(&plan.out_of_time);
            news.push(plan.out_of_time.clone().map_or(News::ClockAgrees, News::ClockDiffers));
        }
        for (source, name) in &plan.strays {
            if told.strays.len() < STRAYS_TOLD_MAX && told.strays.insert(name.clone()) {
                news.push(News::Stray(source.clone(), name.clone()));
            }
        }
        for cluster in &plan.unidentified {
            if told.unidentified.insert(cluster.clone()) {
                news.push(News::Unidentified(cluster.clone()));
            }
        }
        if world.election.trouble != told.lease_trouble {
            told.lease_trouble.clone_from(&world.election.trouble);
            news.extend(told.lease_trouble.clone().map(News::LeaseTrouble));
        }
        told.decide(plan, news);
    }
}

impl Told {
    fn decide(&mut self, plan: &Plan, news: &mut Vec<News>) {
        let (healthy, others): (Vec<&Decision>, Vec<&Decision>) =
            plan.decisions.iter().partition(|decision| decision.verdict == Verdict::Leave);
        let mut decided = BTreeMap::new();
        for decision in others {
            let key = (decision.check.clone(), decision.node.clone());
            let before = self.decided.remove(&key);
            if before.is_none_or(|(known, reason)| known != decision.verdict || !reason.is_like(&decision.because)) {
                news.push(News::Decided(decision.clone()));
            }
            decided.insert(key, (decision.verdict, decision.because.clone()));
        }
        // Nearly always nothing is left of what was told before, and then nobody has to be looked for among the healthy.
        for decision in healthy {
            if self.decided.is_empty() {
                break;
            }
            if self.decided.remove(&(decision.check.clone(), decision.node.clone())).is_some() {
                news.push(News::Decided(decision.clone()));
            }
        }
        self.decided = decided;
    }
}
