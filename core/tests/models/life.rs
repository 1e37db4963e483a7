//! How long can a machine live after its last proof?
//!
//! One machine with its agent, its watchdog and its Lease, and a controller that orders its end at any time and releases what ran
//! there when the bound that the Lease promised has passed. Requests take as long as they like; what the client gave up may still be
//! stored. The process may be killed, stand still before a feed, be stopped, and be started again with other times. Peers are
//! heard, but of no help.

use std::collections::BTreeSet;
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::{Act, Agent, Device, Failure, Heard, Memory, Start, Word};
use resus_core::fencing::lease::{Claim, Order, Seen};
use resus_core::fencing::roll::Roll;
use resus_core::fencing::terms::Terms;
use resus_core::fencing::wire;
use resus_core::time::Mono;
use stateright::{Checker, HasDiscoveries, Model, Property};

const TICK: i64 = 1000;
const NOW: Mono = Mono(0);
/// w and W, in ticks.
const DOG: i64 = 2;
/// g, and what it may be after a change of configuration.
const PROOF: u64 = 2;
const PROOF_LONGER: u64 = 3;
const PROCESSES_MAX: u8 = 3;
/// A feed that is late, a process that dies, and another fault before: it takes three to live as long as one may.
const FAULTS: u8 = 4;
/// Above this something in the states grows without end, which is a mistake of the model.
const STATES_MAX: usize = 100_000_000;

fn terms(proof_for: u64) -> Terms {
    let tick = Duration::from_secs(1);
    Terms {
        renew_each: tick,
        answer_within: tick,
        failures_max: 1,
        rounds_max: 1,
        round_for: tick,
        peer_answers_within: tick,
        proof_for: tick * proof_for as u32,
        watchdog_for: tick * DOG as u32,
        reset_within: tick * DOG as u32,
        pause_max: Duration::ZERO,
        drift_max: 0,
        slack: Duration::ZERO,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The clock always shows zero: after each tick all that is known is one tick older.
    alive: bool,
    agent: Option<Agent>,
    memory: Option<Memory>,
    processes: u8,
    /// A feed that was begun and is not written: the process stands still there.
    stalled: bool,
    /// For how many ticks more nothing is reset, for certain, if nobody feeds it.
    dog: Option<i64>,
    /// The process holds the device.
    open: bool,
    lease: Option<Seen>,
    request: Option<Request>,
    /// Writes that nobody waits for any more.
    late: Vec<(Option<Version>, Claim)>,
    /// How many ticks ago, and the bound that was promised then.
    ordered: Option<(i64, Duration)>,
    /// The version of the Lease that the agent saw last.
    told: Option<Version>,
    faults_left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request {
    act: Act,
    executed: Option<Result<Seen, Failure>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    /// The next feed is begun and not written.
    TickAndStall,
    Write,
    Execute,
    Answer,
    Lose,
    Store(usize),
    Kill,
    Start(u64),
    Stop,
    Order,
}

struct Life {
    faults: u8,
}

impl Model for Life {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            alive: true,
            agent: None,
            memory: None,
            processes: 0,
            stalled: false,
            dog: None,
            open: false,
            lease: None,
            request: None,
            late: Vec::new(),
            ordered: None,
            told: None,
            faults_left: self.faults,
        };
        state.start(PROOF);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.alive || state.is_released() {
            return;
        }
        let may_fail = state.faults_left > 0;
        actions.push(Action::Tick);
        match (&state.request, state.stalled) {
            (Some(request), false) => match request.executed {
                None => actions.push(Action::Execute),
                Some(_) => actions.push(Action::Answer),
            },
            (Some(request), true) if request.executed.is_none() => actions.push(Action::Execute),
            (Some(_), true) | (None, _) => {}
        }
        if state.stalled {
            actions.push(Action::Write);
        }
        actions.extend((0..state.late.len()).map(Action::Store));
        if state.agent.is_none() && state.processes < PROCESSES_MAX {
            actions.push(Action::Start(PROOF));
            if may_fail {
                actions.push(Action::Start(PROOF_LONGER));
            }
        }
        if state.agent.is_some() && may_fail {
            actions.extend([Action::Kill, Action::Stop]);
            if !state.stalled {
                actions.push(Action::TickAndStall);
            }
            if state.request.is_some() && !state.stalled {
                actions.push(Action::Lose);
            }
        }
        // Who promises nothing is not released by time, whatever was ordered.
        if state.ordered.is_none() && state.lease.as_ref().is_some_and(|lease| lease.claim.bound.is_some()) {
            actions.push(Action::Order);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(false),
            Action::TickAndStall => {
                state.tick(true);
                if !state.stalled {
                    return None;
                }
                state.faults_left -= 1;
            }
            Action::Write => {
                state.stalled = false;
                state.feed();
                state.turn(false);
            }
            Action::Execute => state.execute(),
            Action::Answer => {
                let answer = state.request.take()?.executed?;
                state.hear(Heard::Lease(answer));
            }
            Action::Lose => {
                state.faults_left -= 1;
                let Request { act, executed } = state.request.take()?;
                match (act, executed) {
                    (Act::Renew(version, claim), None) => state.late.push((Some(version), claim)),
                    (Act::Create(claim), None) => state.late.push((None, claim)),
                    (_, _) => {}
                }
                state.hear(Heard::Lease(Err(Failure::Lost)));
            }
            Action::Store(at) => {
                let (version, claim) = state.late.remove(at);
                state.store(version.as_ref(), claim).ok()?;
            }
            Action::Kill => {
                state.faults_left -= 1;
                // The kernel feeds once more as it closes the device.
                if state.open {
                    state.feed();
                }
                state.end_process();
            }
            Action::Start(proof_for) => {
                if proof_for == PROOF_LONGER {
                    state.faults_left -= 1;
                }
                state.start(proof_for);
            }
            Action::Stop => {
                state.faults_left -= 1;
                state.hear(Heard::Stop);
            }
            Action::Order => {
                let version = state.next_version();
                let lease = state.lease.as_mut()?;
                let bound = lease.claim.bound?;
                lease.order = Some(Order { boot: "b".into(), remediation: "r".into() });
                lease.version = version;
                state.ordered = Some((0, bound));
            }
        }
        // What replaces an older version is refused whenever it comes.
        let stands = state.lease.as_ref().map(|lease| lease.version.clone());
        state.late.retain(|(version, _)| *version == stands || is_unconditional(version.as_ref()));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Life>> {
        vec![
            Property::always("what is released does not run", |_: &Life, state: &State| !state.is_released() || !state.alive),
            Property::sometimes("it lives as long as it may", |_: &Life, state: &State| {
                state.ordered.is_some_and(|(ago, bound)| state.alive && ago + 1 == bound.as_secs() as i64)
            }),
            Property::sometimes("a process is killed", |_: &Life, state: &State| state.agent.is_none() && state.dog.is_some()),
            Property::sometimes("a feed is late", |_: &Life, state: &State| state.stalled),
            Property::sometimes("nobody waits for a write any more", |_: &Life, state: &State| !state.late.is_empty()),
            Property::sometimes("a process is stopped, and leaves", |_: &Life, state: &State| {
                state.agent.is_none() && state.dog.is_none() && state.lease.is_some()
            }),
            Property::sometimes("a process has other times, and promises them", |_: &Life, state: &State| {
                state.lease.as_ref().is_some_and(|lease| lease.claim.bound == Some(terms(PROOF_LONGER).bound()))
            }),
        ]
    }
}

impl State {
    fn is_released(&self) -> bool {
        self.ordered.is_some_and(|(ago, bound)| ago >= bound.as_secs() as i64)
    }

    fn tick(&mut self, stall: bool) {
        self.agent = self.agent.take().map(|agent| agent.rebased(Mono(TICK)));
        self.ordered = self.ordered.map(|(ago, bound)| (ago + 1, bound));
        // It has run off, and took as long for the reset as it may.
        if self.dog == Some(0) {
            self.alive = false;
            self.end_process();
            return;
        }
        self.dog = self.dog.map(|left| left - 1);
        self.turn(stall);
    }

    fn start(&mut self, proof_for: u64) {
        self.processes += 1;
        let (me, boot): (Name, Name) = ("x".into(), "b".into());
        let start = Start {
            me,
            boot,
            terms: terms(proof_for),
            device: Device::Reliable,
            memory: self.memory.clone(),
            relapsing_until: None,
        };
        self.agent = Some(Agent::new(start, NOW));
        self.told = None;
        self.turn(false);
    }

    fn end_process(&mut self) {
        self.agent = None;
        self.stalled = false;
        self.open = false;
        if let Some(Request { act, executed: None }) = self.request.take() {
            match act {
                Act::Renew(version, claim) => self.late.push((Some(version), claim)),
                Act::Create(claim) => self.late.push((None, claim)),
                _ => {}
            }
        }
    }

    fn hear(&mut self, heard: Heard) {
        if let Heard::Lease(Ok(seen)) = &heard {
            self.told = Some(seen.version.clone());
        }
        if let Some(agent) = &mut self.agent {
            agent.hear(heard, NOW);
        }
        self.turn(false);
    }

    fn feed(&mut self) {
        self.dog = Some(DOG);
    }

    /// Everything but the API answers at once.
    fn turn(&mut self, stall: bool) {
        // A handful of acts follow from each other at one instant.
        for _ in 0..20 {
            let Some(agent) = self.agent.as_mut().filter(|_| !self.stalled) else { return };
            let acts = agent.turn(NOW, 0);
            if acts.is_empty() {
                return;
            }
            for act in acts {
                self.carry_out(act, stall);
            }
        }
        panic!("it never rests");
    }

    fn carry_out(&mut self, act: Act, stall: bool) {
        let mut hear = |heard: Heard| {
            if let Some(agent) = &mut self.agent {
                agent.hear(heard, NOW);
            }
        };
        match act {
            Act::Remember(memory) => self.memory = Some(memory),
            Act::Read | Act::Create(_) | Act::Renew(..) => self.request = Some(Request { act, executed: None }),
            Act::ReadRoll => {
                let electors = ["x", "y", "z"].map(Name::from).into();
                hear(Heard::Roll(Ok(Roll { number: 1, electors, ..Roll::default() })));
            }
            Act::Ask { vote, peers, trial: true } => peers.into_iter().for_each(|from| {
                hear(Heard::Replied { vote, from, reply: Word::Here, protocol: wire::PROTOCOL });
            }),
            Act::Ask { .. } | Act::Record(_) | Act::ReadLeaseOf { .. } | Act::Reply { .. } => {}
            Act::Open => {
                hear(Heard::Armed);
                self.open = true;
                self.feed();
            }
            Act::Feed if stall => self.stalled = true,
            Act::Feed => self.feed(),
            Act::Disarm => {
                hear(Heard::Disarmed);
                self.open = false;
                self.dog = None;
            }
            // The shortest way is not always open: what counts is that nobody feeds any more.
            Act::Die(_) => {}
            Act::Leave => self.end_process(),
        }
    }

    fn execute(&mut self) {
        let Some(mut request) = self.request.take() else { return };
        request.executed = Some(match request.act.clone() {
            Act::Renew(version, claim) => self.store(Some(&version), claim),
            Act::Create(claim) => self.store(None, claim),
            _ => self.lease.clone().ok_or(Failure::Missing),
        });
        self.request = Some(request);
    }

    fn store(&mut self, version: Option<&Version>, claim: Claim) -> Result<Seen, Failure> {
        if self.lease.as_ref().map(|lease| &lease.version) != version && !is_unconditional(version) {
            return Err(Failure::Conflict);
        }
        let order = self.lease.as_ref().and_then(|lease| lease.order.clone());
        let seen = Seen { uid: "u".into(), version: self.next_version(), claim, order };
        self.lease = Some(seen.clone());
        Ok(seen)
    }

    /// The smallest that nobody knows any more: which one it is does not matter.
    fn next_version(&self) -> Version {
        let asked = self.request.as_ref().and_then(|request| match &request.act {
            Act::Renew(version, _) => Some(version),
            _ => None,
        });
        let answered =
            self.request.as_ref().and_then(|request| request.executed.as_ref()?.as_ref().ok()).map(|seen| &seen.version);
        let late = self.late.iter().filter_map(|(version, _)| version.as_ref());
        let stands = self.lease.as_ref().map(|lease| &lease.version);
        let known: BTreeSet<&str> =
            late.chain(asked).chain(answered).chain(stands).chain(&self.told).map(|version| &*version.0).collect();
        let free = (1..).map(|n: u32| n.to_string()).find(|n| !known.contains(n.as_str())).expect("there are many");
        Version(free.into())
    }
}

/// Without a version a server stores whatever comes.
fn is_unconditional(version: Option<&Version>) -> bool {
    version.is_some_and(|version| version.0.is_empty())
}

fn search(faults: u8) {
    let checker = Life { faults }.checker().threads(2).target_state_count(STATES_MAX);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "life of a proof, {faults} faults: {} states, {} of them different",
        checker.state_count(),
        checker.unique_state_count()
    );
    checker.assert_properties();
    assert!(checker.is_done() && checker.state_count() < STATES_MAX, "not all was searched");
}

#[test]
fn nothing_runs_longer_than_was_promised() {
    search(FAULTS);
}

#[test]
#[ignore = "takes minutes: make soak"]
fn nothing_runs_longer_with_more_faults() {
    search(FAULTS + 1);
}
