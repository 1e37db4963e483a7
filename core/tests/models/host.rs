//! One machine of the model of a promise: an agent, what it remembers, and its Lease.
//!
//! There are some hundred of them that differ, in millions of states: each is kept once, and what becomes of it after an event is computed once.

use std::collections::BTreeSet;
#[expect(clippy::disallowed_types, reason = "nobody asks in which order they are kept")]
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::{Act, Agent, Device, Failure, Heard, Memory, Start, Word};
use resus_core::fencing::lease::{Claim, Order, Seen};
use resus_core::fencing::pill::Watch;
use resus_core::fencing::roll::Roll;
use resus_core::fencing::terms::Terms;
use resus_core::time::Mono;

/// So long that everything is due after it.
pub const TICK: i64 = 60_000;
pub const NOW: Mono = Mono(0);
pub const BOOT: &str = "b";
pub const NAMES: [&str; 3] = ["x", "y", "z"];
/// The node in question; the others are only asked.
pub const X: usize = 0;
/// Acts that follow from each other at one instant.
const TURNS_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    name: &'static str,
    pub agent: Agent,
    pub memory: Option<Memory>,
    pub lease: Option<Seen>,
    request: Option<Act>,
    /// Writes of X that nobody waits for any more.
    pub late: Vec<(Version, Claim)>,
    /// The version of the Lease that the agent saw last.
    told: Option<Version>,
    /// Its last request was lost.
    cut_off: bool,
    /// Questions of X for which it reads.
    reading: BTreeSet<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its request reaches the server, and it hears the answer in the same moment.
    Answer,
    Lose,
    StoreAndLose,
    StoreLate(usize),
    Roll(Kept<Roll>),
    Hear(Heard),
    Tick,
    /// After a tick, to do what is due.
    Wake,
    Restart {
        forgets: bool,
    },
    Order(Order),
    Replace,
}

/// What became of it, and what is to be done about that.
pub struct After {
    pub host: Kept<Host>,
    pub left: Left,
    /// It had a proof from what is said of another machine.
    pub vouched: bool,
}

#[derive(Default)]
pub struct Left {
    /// The vote that is under way, by the number that the questions have.
    pub vote: Option<u64>,
    pub asks: Vec<(u64, Vec<Name>)>,
    pub reads: Vec<u64>,
    pub replies: Vec<(u64, Word)>,
    pub dies: bool,
}

pub fn after(host: Kept<Host>, event: Event) -> &'static After {
    #[expect(clippy::disallowed_types, reason = "nobody asks in which order they are kept")]
    static KNOWN: LazyLock<Mutex<HashMap<(Kept<Host>, Event), &'static After>>> = LazyLock::new(Mutex::default);
    let key = (host, event);
    if let Some(known) = KNOWN.lock().expect("nobody fails with it").get(&key) {
        return known;
    }
    let mut next = (*host).clone();
    let (left, vouched) = next.meet(key.1.clone());
    let after = &*Box::leak(Box::new(After { host: Kept::of(next), left, vouched }));
    KNOWN.lock().expect("nobody fails with it").insert(key, after);
    after
}

impl Host {
    /// It knows the roll, and its Lease shows that.
    pub fn new(name: &'static str, roll: &Roll) -> Host {
        let (late, reading) = (Vec::new(), BTreeSet::new());
        let agent = agent(name, None);
        let mut host = Host { name, agent, memory: None, lease: None, request: None, late, told: None, cut_off: false, reading };
        host.settle();
        // Read, create, read the roll, and tell it.
        for _ in 0..4 {
            host.meet(Event::Answer);
            host.hear(Heard::Roll(Ok(roll.clone())));
            host.settle();
        }
        assert_eq!(host.lease.as_ref().map(|lease| lease.claim.roll), Some(roll.number));
        host
    }

    fn meet(&mut self, event: Event) -> (Left, bool) {
        let proved_at = self.agent.proved_at();
        let mut is_anothers = false;
        match event {
            Event::Answer => {
                // An elector goes on until it has nothing new to tell: its requests matter to nobody but by what its Lease shows.
                let requests = if self.name == NAMES[X] { 1 } else { 3 };
                for _ in 1..requests {
                    self.answer();
                    self.settle();
                }
                is_anothers = self.answer();
            }
            Event::Lose => {
                if self.name == NAMES[X] {
                    self.give_up();
                }
                self.hear(Heard::Lease(Err(Failure::Lost)));
            }
            Event::StoreAndLose => {
                if let Some(Act::Renew(version, claim)) = self.request.clone()
                    && self.store(&version, claim).is_ok()
                {
                    self.hear(Heard::Lease(Err(Failure::Lost)));
                }
            }
            Event::StoreLate(at) => {
                let (version, claim) = self.late.remove(at);
                // If it is refused, nobody hears of it.
                self.store(&version, claim).ok();
            }
            Event::Roll(roll) => self.hear(Heard::Roll(Ok((*roll).clone()))),
            Event::Hear(heard) => self.hear(heard),
            Event::Tick => {
                // What was asked of the roll is lost, and asked again: its answer comes whenever it comes.
                self.agent.hear(Heard::Roll(Err(Failure::Lost)), NOW);
                self.agent = self.agent.clone().rebased(Mono(TICK));
                return (Left::default(), false);
            }
            Event::Wake => {}
            Event::Restart { forgets } => {
                if self.name == NAMES[X] {
                    self.give_up();
                }
                self.memory = self.memory.take().filter(|_| !forgets);
                self.start();
            }
            Event::Order(order) => self.write(|lease| lease.order = Some(order)),
            Event::Replace => self.write(|lease| (lease.order, lease.claim.boot) = (None, "another".into())),
        }
        let left = self.settle();
        let vouched = is_anothers && self.agent.proved_at() != proved_at;
        self.reading.extend(&left.reads);
        self.reading.retain(|question| !left.replies.iter().any(|(replied, _)| replied == question));
        if self.name != NAMES[X] && self.reading.is_empty() {
            self.make_plain();
        }
        (left, vouched)
    }

    /// An elector as it would be had it just begun, with the same memory, and the API or not.
    fn make_plain(&mut self) {
        let cut_off = self.cut_off;
        self.memory = self.memory.take().filter(|memory| memory.roll.is_some()).map(|memory| {
            let lists = memory.lists.into_iter().filter(|(number, _)| Some(*number) == memory.roll).collect();
            Memory { published: true, lists, ..memory }
        });
        self.start();
        self.settle();
        let lease = self.lease.clone();
        // It reads its Lease, and renews it once; what that shows is not stored here.
        for _ in 0..2 {
            self.answer();
            self.settle();
        }
        self.lease = lease.map(|lease| Seen { version: Version("1".into()), ..lease });
        if cut_off {
            self.hear(Heard::Lease(Err(Failure::Lost)));
            self.settle();
        }
    }

    fn start(&mut self) {
        self.agent = agent(self.name, self.memory.clone());
        (self.request, self.told, self.cut_off) = (None, None, false);
        self.reading.clear();
    }

    fn hear(&mut self, heard: Heard) {
        if let Heard::Lease(answer) = &heard {
            self.request = None;
            self.cut_off = matches!(answer, Err(Failure::Lost));
            if let Ok(seen) = answer {
                self.told = Some(seen.version.clone());
            }
        }
        if let Heard::LeaseOf { question, .. } = &heard {
            self.reading.remove(question);
        }
        self.agent.hear(heard, NOW);
    }

    fn settle(&mut self) -> Left {
        let mut left = Left::default();
        for _ in 0..TURNS_MAX {
            let acts = self.agent.turn(NOW, 0);
            if acts.is_empty() {
                left.vote = self.agent.vote();
                self.agent = self.agent.clone().rebased(NOW);
                return left;
            }
            for act in acts {
                match act {
                    Act::Remember(memory) => self.memory = Some(memory),
                    Act::Read | Act::Create(_) | Act::Renew(..) => self.request = Some(act),
                    Act::Ask { vote, peers, trial: false } => left.asks.push((vote, peers)),
                    Act::ReadLeaseOf { question, .. } => left.reads.push(question),
                    Act::Reply { question, word } => left.replies.push((question, word)),
                    Act::Die(_) => left.dies = true,
                    // The roll is read all the time.
                    Act::ReadRoll | Act::Ask { trial: true, .. } | Act::Record(_) => {}
                    Act::Open | Act::Feed | Act::Disarm | Act::Leave => panic!("there is no watchdog, and nobody stops"),
                }
            }
        }
        panic!("it never rests");
    }

    /// Does it show another's boot?
    fn answer(&mut self) -> bool {
        let Some(request) = self.request.clone() else { return false };
        let answer = match request {
            Act::Renew(version, claim) => {
                let before = self.lease.as_ref().map(|lease| lease.version.clone());
                let mut stored = self.store(&version, claim);
                // Nobody knows the version before any more: it is used again.
                if let (Ok(seen), Some(before)) = (&mut stored, before) {
                    seen.version = before;
                    self.lease = Some(seen.clone());
                }
                stored
            }
            Act::Create(claim) => {
                let first = Seen { uid: "u".into(), version: Version("1".into()), claim, order: None };
                self.lease = Some(first.clone());
                Ok(first)
            }
            _ => self.lease.clone().ok_or(Failure::Missing),
        };
        let is_anothers = answer.as_ref().is_ok_and(|seen| *seen.claim.boot != *BOOT);
        self.hear(Heard::Lease(answer));
        is_anothers
    }

    /// Without a version a server stores whatever comes.
    fn store(&mut self, version: &Version, claim: Claim) -> Result<Seen, Failure> {
        match &self.lease {
            None => Err(Failure::Missing),
            Some(lease) if !version.0.is_empty() && lease.version != *version => Err(Failure::Conflict),
            Some(_) => {
                self.write(|lease| lease.claim = claim);
                self.lease.clone().ok_or(Failure::Missing)
            }
        }
    }

    fn write(&mut self, change: impl FnOnce(&mut Seen)) {
        let version = self.next_version();
        if let Some(lease) = &mut self.lease {
            change(lease);
            lease.version = version;
        }
        self.drop_old();
    }

    /// The agent no longer waits for its request; the server may get to it yet.
    fn give_up(&mut self) {
        if let Some(Act::Renew(version, claim)) = self.request.take() {
            self.late.retain(|late| *late != (version.clone(), claim.clone()));
            self.late.push((version, claim));
            self.late.sort_by_key(|(_, claim)| claim.roll);
            self.drop_old();
        }
    }

    /// What replaces an older version is refused whenever it comes.
    fn drop_old(&mut self) {
        let stands = self.lease.as_ref().map(|lease| lease.version.clone());
        self.late.retain(|(version, _)| version.0.is_empty() || Some(version) == stands.as_ref());
    }

    /// The smallest that nobody knows any more: which one it is does not matter.
    fn next_version(&self) -> Version {
        let asked = self.request.as_ref().and_then(|act| match act {
            Act::Renew(version, _) => Some(version),
            _ => None,
        });
        let late = self.late.iter().map(|(version, _)| version);
        let stands = self.lease.as_ref().map(|lease| &lease.version);
        let known: BTreeSet<&str> = late.chain(asked).chain(stands).chain(&self.told).map(|version| &*version.0).collect();
        let free = (1..).map(|n: u32| n.to_string()).find(|n| !known.contains(n.as_str())).expect("there are many");
        Version(free.into())
    }
}

/// Everything is due at once, and again as soon as it was answered: so there always is one request under way. A vote takes one round of a tick.
fn terms() -> Terms {
    let (none, tick) = (Duration::ZERO, Duration::from_millis(TICK as u64));
    Terms {
        renew_each: none,
        answer_within: none,
        failures_max: 1,
        rounds_max: 1,
        round_for: tick,
        peer_answers_within: none,
        proof_for: none,
        watchdog_for: tick,
        reset_within: tick,
        pause_max: none,
        drift_max: 0,
        slack: none,
    }
}

fn agent(name: &str, memory: Option<Memory>) -> Agent {
    let (me, boot, terms) = (name.into(), BOOT.into(), terms());
    Agent::new(Start { me, boot, terms, device: Device::None, memory, relapsing_until: None }, NOW)
}

/// Something of which there is one for all states that have it: whoever is at the same place is the same.
pub struct Kept<T: 'static>(&'static T);

pub trait Keep: Hash + Eq + Sized + 'static {
    #[expect(clippy::disallowed_types, reason = "nobody asks in which order they are kept")]
    fn kept() -> &'static Mutex<HashMap<&'static Self, ()>>;
}

macro_rules! keep {
    ($($kind:ty),*) => { $(
        impl Keep for $kind {
            #[expect(clippy::disallowed_types, reason = "nobody asks in which order they are kept")]
            fn kept() -> &'static Mutex<HashMap<&'static Self, ()>> {
                static KEPT: LazyLock<Mutex<HashMap<&'static $kind, ()>>> = LazyLock::new(Mutex::default);
                &KEPT
            }
        }
    )* };
}

keep!(Host, Roll, Watch);

impl<T: Keep> Kept<T> {
    pub fn of(one: T) -> Kept<T> {
        let mut kept = T::kept().lock().expect("nobody fails with it");
        if let Some((known, ())) = kept.get_key_value(&one) {
            return Kept(known);
        }
        let one = &*Box::leak(Box::new(one));
        kept.insert(one, ());
        Kept(one)
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Kept<T> {
        *self
    }
}

impl<T> Copy for Kept<T> {}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> PartialEq for Kept<T> {
    fn eq(&self, other: &Kept<T>) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<T> Eq for Kept<T> {}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
