//! Can a node prove that it may live, after its end was ordered and enough of its electors know?
//!
//! Three machines, each with the agent itself, the roll, and the controller's own count of who knows. Everybody may lose the API for as
//! long as it likes, before or after a write is stored, and what the node gave up may be stored later. Questions take any
//! time. Faults: the list of electors changes, a process starts anew, with what it remembered or without. What counts is only
//! when a proof was asked for; how long it lives is the other model's question, so nothing is fed or reset here.
//!
//! Merged, since it makes no difference: a server reads in the moment in which a request arrives or, for what peers read, begins (an order
//! never goes away, so what is read earlier shows less). What a peer says is heard at once (instead of hearing it late, let the peer
//! answer late). Of a peer only matters what it remembers, whether it has the API, and what its Lease shows: with the same of those
//! it is the same peer.

use std::collections::BTreeSet;
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::{Failure, Heard, Word};
use resus_core::fencing::lease::Seen;
use resus_core::fencing::pill::{self, Case, Facts, Hold, Noted, Read, Step, Strategy, Watch, Why};
use resus_core::fencing::roll::{Roll, Voter};
use resus_core::fencing::vote::Reply;
use resus_core::fencing::wire;
use resus_core::time::Wall;
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::host::{After, BOOT, Event, Host, Kept, Left, NAMES, NOW, TICK, X, after};

/// So many ticks after the order is known a vote that began then is over.
const SINCE_MAX: i64 = 2;
/// What peers still read for a vote that is over, each.
const READS_MAX: usize = 1;
/// Above this something in the states grows without end, which is a mistake of the model.
const STATES_MAX: usize = 500_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    hosts: [Kept<Host>; 3],
    /// What X has asked the other, and has not heard of.
    asked: [Vec<Asked>; 3],
    roll: Kept<Roll>,
    watch: Kept<Watch>,
    /// How many ticks ago the controller knew that the order stands and that enough know of it.
    known: Option<i64>,
    /// X was told to die, and does.
    dead: bool,
    /// A proof was asked for after that, or rests on what is said of another machine.
    wrong: bool,
    restarts_left: u8,
    changes_left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    /// None: that vote is over.
    vote: Option<u64>,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Sent,
    /// The peer reads the Lease of X; the server has answered that.
    Reading {
        question: u64,
        found: Seen,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Answer(usize),
    Lose(usize),
    StoreAndLose,
    StoreLate(usize),
    ReadRoll(usize),
    Deliver(usize),
    DeliverAndLose(usize),
    AnswerRead(usize, usize),
    LoseRead(usize, usize),
    Restart {
        host: usize,
        forgets: bool,
    },
    ChangeList,
    /// Another machine has the name of X, and says so.
    Replace,
    Control,
}

struct Promise {
    first: State,
    /// The list of electors after it changed.
    after: &'static [&'static str],
    who_restarts: &'static [usize],
    /// What peers read takes time.
    reads_wait: bool,
}

impl Model for Promise {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.dead || state.wrong {
            return;
        }
        if state.known.is_none_or(|ago| ago < SINCE_MAX) {
            actions.push(Action::Tick);
        }
        for host in 0..NAMES.len() {
            actions.extend([Action::Answer(host), Action::Lose(host), Action::ReadRoll(host)]);
            for (at, asked) in state.asked[host].iter().enumerate() {
                match asked.stage {
                    Stage::Sent => actions.extend([Action::Deliver(host), Action::DeliverAndLose(host)]),
                    Stage::Reading { .. } => actions.extend([Action::AnswerRead(host, at), Action::LoseRead(host, at)]),
                }
            }
        }
        actions.push(Action::StoreAndLose);
        actions.extend((0..state.hosts[X].late.len()).map(Action::StoreLate));
        if state.known.is_none() {
            actions.push(Action::Control);
        }
        if state.restarts_left > 0 {
            actions.extend(self.who_restarts.iter().map(|host| Action::Restart { host: *host, forgets: true }));
            // An elector that remembers everything is the same as before.
            actions.extend(self.who_restarts.contains(&X).then_some(Action::Restart { host: X, forgets: false }));
        }
        if state.changes_left > 0 {
            actions.extend([Action::ChangeList, Action::Replace]);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Answer(host) => state.happens(host, Event::Answer),
            Action::Lose(host) => state.happens(host, Event::Lose),
            Action::StoreAndLose => state.happens(X, Event::StoreAndLose),
            Action::StoreLate(at) => state.happens(X, Event::StoreLate(at)),
            Action::ReadRoll(host) => state.happens(host, Event::Roll(state.roll)),
            Action::Deliver(host) => state.deliver(host, self.reads_wait, false)?,
            Action::DeliverAndLose(host) => state.deliver(host, self.reads_wait, true)?,
            Action::AnswerRead(host, at) => state.answer_read(host, at, false)?,
            Action::LoseRead(host, at) => state.answer_read(host, at, true)?,
            Action::Restart { host, forgets } => {
                state.restarts_left -= 1;
                state.restart(host, forgets);
            }
            Action::ChangeList => {
                state.changes_left -= 1;
                state.roll = Kept::of(next_roll(&state.roll, self.after, &state.named(), false));
            }
            Action::Replace => {
                state.changes_left -= 1;
                state.known = None;
                state.happens(X, Event::Replace);
            }
            Action::Control => state.control(),
        }
        if state.dead {
            // However it died.
            return Some(State { dead: true, ..self.first.clone() });
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Promise>> {
        let mut all = vec![
            Property::always(
                "no proof is asked for after that, and none rests on what is said of another",
                |_: &Promise, state: &State| !state.wrong,
            ),
            Property::sometimes("it is known that enough know", |_: &Promise, state: &State| state.known.is_some()),
            Property::sometimes("it is told to die", |_: &Promise, state: &State| state.dead),
            Property::sometimes("it asks after that", |_: &Promise, state: &State| {
                state.known == Some(1) && state.asked.iter().flatten().any(|asked| asked.vote.is_some())
            }),
            Property::sometimes("nobody waits for a write any more", |_: &Promise, state: &State| {
                !state.hosts[X].late.is_empty()
            }),
        ];
        if self.first.changes_left > 0 {
            all.push(Property::sometimes("another has its name", |_: &Promise, state: &State| {
                state.hosts[X].lease.as_ref().is_some_and(|lease| *lease.claim.boot != *BOOT)
            }));
            all.push(Property::sometimes(
                "the list has changed, it counts with both, and the order is known",
                |model: &Promise, state: &State| {
                    state.known.is_some()
                        && state.roll.electors == list(model.after)
                        && state.hosts[X].memory.as_ref().is_some_and(|memory| memory.lists.len() > 1)
                },
            ));
        }
        if self.first.restarts_left > 0 {
            all.push(Property::sometimes("somebody has forgotten", |_: &Promise, state: &State| {
                state.hosts.iter().any(|host| host.memory.as_ref().is_none_or(|memory| memory.roll.is_none()))
            }));
        }
        if self.reads_wait {
            all.push(Property::sometimes("a peer reads for a vote that is over", |_: &Promise, state: &State| {
                state.asked.iter().flatten().any(|asked| asked.vote.is_none())
            }));
        }
        all
    }
}

impl State {
    fn tick(&mut self) {
        self.hosts[X] = after(self.hosts[X], Event::Tick).host;
        self.known = self.known.map(|ago| ago + 1);
        self.happens(X, Event::Wake);
    }

    fn happens(&mut self, host: usize, event: Event) {
        let After { host: next, left, vouched } = after(self.hosts[host], event);
        self.hosts[host] = *next;
        self.wrong |= host == X && *vouched;
        let Left { vote, asks, reads, replies, dies } = left;
        if host == X {
            self.dead |= *dies;
            for (vote, peer) in asks.iter().flat_map(|(vote, peers)| peers.iter().map(move |peer| (*vote, peer))) {
                let to = NAMES.iter().position(|name| **name == **peer).expect("one of them");
                self.asked[to].push(Asked { vote: Some(vote), stage: Stage::Sent });
            }
            self.end_votes(*vote);
            let proved_at = self.hosts[X].agent.proved_at();
            self.wrong |= self.known.zip(proved_at).is_some_and(|(ago, at)| at.0 >= -ago * TICK);
            return;
        }
        for question in reads {
            let found = Seen { version: Version("".into()), ..self.hosts[X].lease.clone().expect("it has one") };
            let sent = self.asked[host].iter_mut().find(|asked| asked.stage == Stage::Sent).expect("just delivered");
            sent.stage = Stage::Reading { question: *question, found };
        }
        for (question, word) in replies {
            let is_it = |asked: &Asked| matches!(asked.stage, Stage::Reading { question: own, .. } if own == *question);
            let at = self.asked[host].iter().position(is_it);
            let at = at.or_else(|| self.asked[host].iter().position(|asked| asked.stage == Stage::Sent)).expect("it was asked");
            let Asked { vote, stage } = self.asked[host].remove(at);
            let is_anothers = matches!(stage, Stage::Reading { found, .. } if *found.claim.boot != *BOOT);
            self.wrong |= is_anothers && *word == Word::Reply(Reply::Healthy);
            if let Some(vote) = vote {
                let from = NAMES[host].into();
                self.happens(X, Event::Hear(Heard::Replied { vote, from, reply: *word, protocol: wire::PROTOCOL }));
            }
        }
    }

    fn deliver(&mut self, host: usize, reads_wait: bool, lost: bool) -> Option<()> {
        let known = |asked: &Asked| match asked.stage {
            Stage::Sent => None,
            Stage::Reading { question, .. } => Some(question),
        };
        let taken: BTreeSet<u64> = self.asked[host].iter().filter_map(known).collect();
        let question = (1..).find(|n| !taken.contains(n))?;
        let (asker, boot) = (NAMES[X].into(), BOOT.into());
        self.happens(host, Event::Hear(Heard::Asked { question, asker, boot, trial: false, protocol: wire::PROTOCOL }));
        // Who says nothing says nothing.
        self.asked[host].retain(|asked| asked.stage != Stage::Sent);
        match self.asked[host].iter().position(|asked| known(asked) == Some(question)) {
            Some(at) if !reads_wait => self.answer_read(host, at, lost),
            Some(_) | None => (!lost).then_some(()),
        }
    }

    fn answer_read(&mut self, host: usize, at: usize, lost: bool) -> Option<()> {
        let Stage::Reading { question, found } = self.asked[host][at].stage.clone() else { return None };
        let found = if lost { Err(Failure::Lost) } else { Ok(found) };
        self.happens(host, Event::Hear(Heard::LeaseOf { question, found }));
        self.asked[host].retain(|asked| !matches!(asked.stage, Stage::Reading { question: own, .. } if own == question));
        Some(())
    }

    /// What was asked for a vote that is over is heard by nobody; but a peer may still be reading for it.
    fn end_votes(&mut self, vote: Option<u64>) {
        for host in 1..NAMES.len() {
            self.asked[host].retain(|asked| asked.stage != Stage::Sent || asked.vote == vote);
            self.asked[host].iter_mut().filter(|asked| asked.vote != vote).for_each(|asked| asked.vote = None);
            while self.asked[host].iter().filter(|asked| asked.vote.is_none()).count() > READS_MAX {
                let at = self.asked[host].iter().position(|asked| asked.vote.is_none()).expect("counted");
                let Stage::Reading { question, .. } = self.asked[host].remove(at).stage else { continue };
                let heard = Heard::LeaseOf { question, found: Err(Failure::Missing) };
                self.hosts[host] = after(self.hosts[host], Event::Hear(heard)).host;
            }
        }
        // The agent counts its votes anew.
        let vote = self.hosts[X].agent.vote();
        self.asked.iter_mut().flatten().filter(|asked| asked.vote.is_some()).for_each(|asked| asked.vote = vote);
    }

    fn restart(&mut self, host: usize, forgets: bool) {
        match host {
            X => self.asked.iter_mut().flatten().for_each(|asked| asked.vote = None),
            _ => self.asked[host].retain(|asked| asked.stage == Stage::Sent),
        }
        self.happens(host, Event::Restart { forgets });
    }

    fn named(&self) -> BTreeSet<u64> {
        self.hosts.iter().filter_map(|host| host.lease.as_ref()).map(|lease| lease.claim.roll).collect()
    }

    /// The controller looks at everything, and takes its next step.
    fn control(&mut self) {
        let case = Case {
            node: NAMES[X].into(),
            remediation: "r".into(),
            strategy: Strategy::ResourceDeletion,
            ending: false,
            noted: Some(Noted { boot: BOOT.into(), at: Wall(0), released: false }),
            safe_time: None,
            require_assured: false,
            word: pill::Word::None,
        };
        let (uid, version, boot) = ("n".into(), Version("n".into()), BOOT.into());
        let node = pill::Node { uid, version, boot, cordoned: true, hold: Hold::None };
        let shown = NAMES.iter().zip(&self.hosts);
        let acks = shown.filter_map(|(name, host)| host.lease.as_ref().map(|lease| (Name::from(*name), lease.claim.roll)));
        // It promises something: how long that is does not matter here.
        let mut lease = self.hosts[X].lease.clone();
        lease.iter_mut().for_each(|lease| lease.claim.bound = Some(Duration::from_secs(1)));
        let facts = Facts {
            node: Some(Read { asked_at: NOW, found: Some(node) }),
            lease: Some(Read { asked_at: NOW, found: lease }),
            roll: Some(Read { asked_at: NOW, found: (*self.roll).clone() }),
            acks: acks.collect(),
            ..Facts::default()
        };
        let mut watch = (*self.watch).clone();
        watch.see(&case, &facts, NOW);
        match watch.next(&case, &facts, NOW) {
            Step::Order { order, .. } => self.happens(X, Event::Order(order)),
            Step::Enter { .. } => {
                let electors: Vec<&str> = self.roll.electors.iter().map(|name| &**name).collect();
                self.roll = Kept::of(next_roll(&self.roll, &electors, &self.named(), true));
            }
            Step::Wait { why: Why::Dying, .. } => {
                // Whatever is asked for from now on is asked for after that.
                self.tick();
                self.known = Some(0);
            }
            Step::Wait { .. } => {}
            other => panic!("not here: {other:?}"),
        }
        self.watch = Kept::of(watch);
    }
}

fn list(names: &[&str]) -> BTreeSet<Name> {
    names.iter().map(|name| Name::from(*name)).collect()
}

fn next_roll(roll: &Roll, electors: &[&str], named: &BTreeSet<u64>, orders: bool) -> Roll {
    let voters: Vec<Voter> = electors.iter().map(|name| Voter { node: (*name).into(), zone: "a".into(), roll: 0 }).collect();
    let mut wanted: BTreeSet<(Name, Name)> = roll.orders.iter().map(|entry| (entry.node.clone(), entry.boot.clone())).collect();
    if orders {
        wanted.insert((NAMES[X].into(), BOOT.into()));
    }
    let next = roll.next(&voters, named, &wanted).unwrap_or_else(|| roll.clone());
    // How often they renew must not change here.
    Roll { agents: 0, ..next }
}

/// One search, of what can happen with so many faults.
struct Search {
    before: &'static [&'static str],
    after: &'static [&'static str],
    changes: u8,
    restarts: u8,
    who_restarts: &'static [usize],
    reads_wait: bool,
}

impl Search {
    fn run(&self) {
        let Search { before, after, changes, restarts, who_restarts, reads_wait } = *self;
        let roll = next_roll(&Roll::default(), before, &BTreeSet::new(), false);
        let first = State {
            hosts: NAMES.map(|name| Kept::of(Host::new(name, &roll))),
            asked: Default::default(),
            roll: Kept::of(roll),
            watch: Kept::of(Watch::default()),
            known: None,
            dead: false,
            wrong: false,
            restarts_left: restarts,
            changes_left: changes,
        };
        let model = Promise { first, after, who_restarts, reads_wait };
        let checker = model.checker().threads(2).target_state_count(STATES_MAX);
        let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        println!(
            "promise, {before:?} then {after:?}, {restarts} restarts of {who_restarts:?}: {} states, {} of them different",
            checker.state_count(),
            checker.unique_state_count()
        );
        checker.assert_properties();
        assert!(checker.is_done() && checker.state_count() < STATES_MAX, "not all was searched");
    }
}

/// An elector that forgets, and a list that shrinks, grows or is another.
#[test]
fn no_vote_is_won_against_an_order_that_is_known() {
    let lists: [(&[&str], &[&str]); 4] = [
        (&["x", "y", "z"], &["x", "y"]),
        (&["x", "y"], &["x", "y", "z"]),
        (&["x", "y"], &["x", "z"]),
        (&["x", "y", "z"], &["y", "z"]),
    ];
    for (before, after) in lists {
        Search { before, after, changes: 1, restarts: 1, who_restarts: &[1, 2], reads_wait: false }.run();
    }
}

#[test]
fn no_vote_is_won_by_a_process_that_begins_anew() {
    let lists: &[&str] = &["x", "y", "z"];
    Search { before: lists, after: lists, changes: 0, restarts: 2, who_restarts: &[X], reads_wait: false }.run();
}

#[test]
fn no_vote_is_won_while_peers_read() {
    let lists: &[&str] = &["x", "y"];
    Search { before: lists, after: lists, changes: 1, restarts: 1, who_restarts: &[1], reads_wait: true }.run();
}

#[test]
#[ignore = "takes minutes: make soak"]
fn no_vote_is_won_whoever_begins_anew() {
    let (before, after): (&[&str], &[&str]) = (&["x", "y"], &["x", "z"]);
    Search { before, after, changes: 1, restarts: 1, who_restarts: &[X, 1, 2], reads_wait: false }.run();
}

#[test]
#[ignore = "takes minutes: make soak"]
fn no_vote_is_won_while_two_forget() {
    let (before, after): (&[&str], &[&str]) = (&["x", "y", "z"], &["x", "y"]);
    Search { before, after, changes: 1, restarts: 2, who_restarts: &[1, 2], reads_wait: false }.run();
}

#[test]
#[ignore = "takes minutes: make soak"]
fn no_vote_is_won_while_peers_read_and_the_list_grows() {
    Search { before: &["x", "y"], after: &["x", "y", "z"], changes: 1, restarts: 0, who_restarts: &[], reads_wait: true }.run();
}
