//! Is anything released that still runs, or that will run?
//!
//! One node and two leaders, each with the controller's own steps. What the other models show is taken for granted here: a boot whose
//! Lease promised something when its end was ordered has ended when that time is over. Everything else may happen: boots follow each
//! other with or without an agent, kubelets read their pods and start them when they like, leaders stand still at any point, see each
//! other's work late, and what they sent is stored late, twice or never.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::lease::{Claim, Seen};
use resus_core::fencing::pill::{Case, Done, Facts, Hold, Node, Noted, Pod, Read, Step, Strategy, Watch, Word};
use resus_core::fencing::roll::{Entry, Roll};
use resus_core::fencing::terms::LOOK_AFTER;
use resus_core::time::{Mono, Wall};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// B, and the time between the hold and the look.
const TICK: Duration = LOOK_AFTER;
const NOW: Mono = Mono(0);
/// What a leader waits for takes a tick; how much longer ago it was makes no difference.
const KEPT_FOR: Duration = TICK;
const BOOTS: u8 = 2;
/// The orders for so many boots stand in the roll.
const BOOTS_MAX: u8 = 3;
const FAULTS: u8 = 2;
const LEADERS: usize = 2;
/// Of a leader, in one moment.
const LOOKS_MAX: usize = 5;
/// Above this something in the states grows without end, which is a mistake of the model.
const STATES_MAX: usize = 100_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    machine: Machine,
    node: Option<Node>,
    lease: Seen,
    /// The one pod of the workload. It runs wherever its object says, and on X if X runs it.
    pod: Option<Bound>,
    noted: Option<Noted>,
    ending: bool,
    leaders: Vec<Leader>,
    /// Writes that nobody waits for any more.
    late: Vec<Step>,
    faults_left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    boot: u8,
    up: bool,
    /// So many ticks until this boot has ended, as was promised.
    ends_in: Option<u8>,
    /// What its kubelet has read, and would start.
    read: Option<u8>,
    /// The kubelet has said in this boot which boot it is.
    shown: bool,
    runs: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bound {
    uid: u8,
    on_x: bool,
    marked: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Leader {
    watch: Watch,
    /// What it has sent, and waits for.
    sent: Option<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Crash,
    Boot,
    Publish,
    Withdraw,
    Register,
    ReadPods,
    Start,
    Show,
    EndPod,
    Mark,
    Schedule {
        on_x: bool,
    },
    /// A scheduler that decided before the node was cordoned.
    BindLate,
    Collect,
    EndRemediation,
    Step(usize),
    Answer(usize),
    AnswerTwice(usize),
    Lose(usize),
    StoreLate(usize),
    Replace(usize),
}

/// What keeps a kubelet from starting a pod: a mark on it, or our taint on its Node. Either has to suffice, as there are ways to miss one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heeds {
    Both,
    Marks,
    Taint,
}

struct Release {
    strategy: Strategy,
    heeds: Heeds,
    boots: u8,
    faults: u8,
}

impl Model for Release {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let node = Node { uid: "n1".into(), version: version(1), boot: boot_name(1), cordoned: false, hold: Hold::None };
        let claim = Claim { boot: boot_name(1), bound: Some(TICK), assured: true, roll: 1 };
        let state = State {
            machine: Machine { boot: 1, up: true, ends_in: None, read: None, shown: true, runs: Some(1) },
            node: Some(node),
            lease: Seen { uid: "u".into(), version: version(1), claim, order: None },
            pod: Some(Bound { uid: 1, on_x: true, marked: false }),
            noted: None,
            ending: false,
            leaders: vec![Leader::default(); LEADERS],
            late: Vec::new(),
            faults_left: self.faults,
        };
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What has moved elsewhere for good runs there.
        let Machine { boot, up, read, shown, runs, .. } = state.machine;
        let has_moved = runs.is_none() && read.is_none() && state.pod.as_ref().is_some_and(|pod| !pod.on_x);
        if state.runs_twice() || has_moved {
            return;
        }
        let may_fail = state.faults_left > 0;
        // A kubelet that read its pods in a new boot shows itself within s, or starts none.
        if shown || runs.is_none() {
            actions.push(Action::Tick);
        }
        if up {
            actions.push(Action::Publish);
            if runs.is_none() {
                actions.push(Action::ReadPods);
            }
            if may_fail {
                actions.extend([Action::Crash, Action::Withdraw]);
            }
            if read.is_some() && runs.is_none() {
                actions.push(Action::Start);
            }
            if runs.is_some() {
                actions.push(Action::EndPod);
            }
            actions.push(if state.node.is_none() { Action::Register } else { Action::Show });
        } else if boot < self.boots {
            actions.push(Action::Boot);
        }
        match &state.pod {
            Some(pod) if pod.on_x => actions.extend([Action::Mark, Action::Collect]),
            Some(_) => {}
            None => {
                actions.extend([Action::Schedule { on_x: true }, Action::Schedule { on_x: false }]);
                // With one of the two alone this is not safe.
                if may_fail && self.heeds == Heeds::Both && state.node.is_some() {
                    actions.push(Action::BindLate);
                }
            }
        }
        if !state.ending {
            actions.push(Action::EndRemediation);
        }
        actions.extend((0..state.late.len()).map(Action::StoreLate));
        for (at, leader) in state.leaders.iter().enumerate() {
            match leader.sent {
                None => actions.push(Action::Step(at)),
                Some(_) => actions.push(Action::Answer(at)),
            }
            if leader.sent.is_some() && may_fail {
                actions.extend([Action::AnswerTwice(at), Action::Lose(at)]);
            }
            if may_fail {
                actions.push(Action::Replace(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Crash => {
                state.faults_left -= 1;
                state.machine.ends();
            }
            Action::Boot => {
                let boot = state.machine.boot + 1;
                state.machine = Machine { boot, up: true, ends_in: None, read: None, shown: false, runs: None };
            }
            Action::Publish => state.claim(Some(TICK))?,
            Action::Withdraw => {
                state.faults_left -= 1;
                state.claim(None)?;
            }
            Action::Register => {
                let node = Node {
                    uid: format!("n{}", state.machine.boot + 1).into(),
                    version: state.next_version(),
                    boot: boot_name(state.machine.boot),
                    cordoned: false,
                    hold: Hold::None,
                };
                state.node = Some(node);
                state.machine.shown = true;
            }
            Action::ReadPods => {
                let is_held = state.node.as_ref().is_none_or(|node| node.hold != Hold::None);
                let is_kept = |pod: &Bound| match self.heeds {
                    Heeds::Both => pod.marked || is_held,
                    Heeds::Marks => pod.marked,
                    Heeds::Taint => is_held,
                };
                let pod = state.pod.as_ref().filter(|pod| pod.on_x && !is_kept(pod));
                state.machine.read = pod.map(|pod| pod.uid);
            }
            Action::Start => state.machine.runs = state.machine.read.take(),
            Action::Show => {
                let (version, boot) = (state.next_version(), boot_name(state.machine.boot));
                let node = state.node.as_mut().filter(|node| node.boot != boot)?;
                (node.version, node.boot) = (version, boot);
                state.machine.shown = true;
            }
            // A kubelet ends what is marked, and then its object.
            Action::EndPod => {
                let pod = state.pod.clone().filter(|pod| pod.marked && Some(pod.uid) == state.machine.runs)?;
                (state.machine.runs, state.machine.read) = (None, None);
                state.pod = state.pod.filter(|own| *own != pod);
            }
            // Kubernetes marks what does not tolerate the hold.
            Action::Mark => {
                let is_held = state.node.as_ref().is_some_and(|node| node.hold != Hold::None);
                state.pod.as_mut().filter(|pod| is_held && !pod.marked)?.marked = true;
            }
            // It deletes by force what is marked on a node that is out of service, and what is bound to none.
            Action::Collect => {
                let out_of_service = self.strategy == Strategy::OutOfServiceTaint;
                let released = state.node.as_ref().is_some_and(|node| node.hold == Hold::Released);
                let marked = state.pod.as_ref().is_some_and(|pod| pod.marked);
                if !(state.node.is_none() || out_of_service && released && marked) {
                    return None;
                }
                state.pod = None;
            }
            Action::Schedule { on_x } => {
                let is_open = state.node.as_ref().is_some_and(|node| !node.cordoned && node.hold == Hold::None);
                if on_x && !is_open {
                    return None;
                }
                state.pod = Some(Bound { uid: state.next_uid(), on_x, marked: false });
            }
            Action::BindLate => {
                state.faults_left -= 1;
                state.pod = Some(Bound { uid: state.next_uid(), on_x: true, marked: false });
            }
            Action::EndRemediation => state.ending = true,
            Action::Step(at) => state.step(at, self.strategy),
            Action::Answer(at) => {
                let step = state.leaders[at].sent.take()?;
                state.store(&step);
            }
            Action::AnswerTwice(at) => {
                state.faults_left -= 1;
                let step = state.leaders[at].sent.take()?;
                state.store(&step);
                state.late.push(step);
            }
            Action::Lose(at) => {
                state.faults_left -= 1;
                let step = state.leaders[at].sent.take()?;
                state.late.push(step);
            }
            Action::StoreLate(at) => {
                let step = state.late.remove(at);
                state.store(&step)?;
            }
            Action::Replace(at) => {
                state.faults_left -= 1;
                state.late.extend(state.leaders[at].sent.take());
                state.leaders[at] = Leader::default();
            }
        }
        // What is refused for ever is forgotten, and so is who of the leaders is which.
        let late = std::mem::take(&mut state.late);
        state.late = late.into_iter().filter(|step| state.may_be_stored(step)).collect();
        state.leaders.sort_by_cached_key(fingerprint);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Release>> {
        vec![
            Property::always("what is released does not run", |_: &Release, state: &State| !state.runs_twice()),
            Property::sometimes("it is released", |_: &Release, state: &State| {
                state.node.as_ref().is_some_and(|node| node.hold == Hold::Released)
            }),
            Property::sometimes("all is done", |_: &Release, state: &State| {
                state.noted.as_ref().is_some_and(|noted| noted.released) && state.pod.as_ref().is_none_or(|pod| !pod.on_x)
            }),
            Property::sometimes("it comes back while it is held", |_: &Release, state: &State| {
                state.machine.boot > 1
                    && state.machine.runs.is_some()
                    && state.node.as_ref().is_some_and(|node| node.hold == Hold::Held)
            }),
            Property::sometimes("nobody waits for a write any more", |_: &Release, state: &State| !state.late.is_empty()),
            Property::sometimes("it is ordered when it promises nothing", |_: &Release, state: &State| {
                state.lease.order.is_some() && state.lease.claim.bound.is_none() && state.machine.up
            }),
            Property::sometimes("what was fenced is used again", |_: &Release, state: &State| {
                state.noted.is_some() && state.pod.as_ref().is_some_and(|pod| pod.on_x && pod.uid > 1)
            }),
        ]
    }
}

impl State {
    /// X runs what no longer is in the API, so that somebody else may run it.
    fn runs_twice(&self) -> bool {
        self.machine.runs.is_some_and(|uid| self.pod.as_ref().is_none_or(|pod| !pod.on_x || pod.uid != uid))
    }

    fn tick(&mut self) {
        for leader in &mut self.leaders {
            leader.watch = std::mem::take(&mut leader.watch).rebased(Mono(TICK.as_millis() as i64), KEPT_FOR);
        }
        // What it read and did not act on in time, it reads again.
        if !self.machine.shown {
            self.machine.read = None;
        }
        self.machine.ends_in = self.machine.ends_in.map(|left| left - 1);
        if self.machine.ends_in == Some(0) {
            self.machine.ends();
        }
    }

    /// What the agent of this boot says, if it may still say something.
    fn claim(&mut self, bound: Option<Duration>) -> Option<()> {
        let claim = Claim { boot: boot_name(self.machine.boot), bound, assured: true, roll: 1 };
        if self.lease.orders(&claim.boot) || self.lease.claim == claim {
            return None;
        }
        // Only an agent that has promised something takes it back.
        if bound.is_none() && self.lease.claim.boot != claim.boot {
            return None;
        }
        self.lease.claim = claim;
        self.lease.version = next(&self.lease.version);
        Some(())
    }

    /// Looks at everything, and decides; what is sent then may be stored whenever it comes. Merged into one moment: what is looked at later
    /// than the Node shows no less, and whatever is written names the Node as it was read.
    fn step(&mut self, at: usize, strategy: Strategy) {
        let case = Case {
            node: "x".into(),
            remediation: "r".into(),
            strategy,
            ending: self.ending,
            noted: self.noted.clone(),
            safe_time: Some(TICK),
            require_assured: false,
            word: Word::None,
        };
        let facts = self.facts();
        let leader = &mut self.leaders[at];
        for _ in 0..LOOKS_MAX {
            leader.watch.see(&case, &facts, NOW);
            match leader.watch.next(&case, &facts, NOW) {
                // It looks again, which shows the same in the same moment.
                Step::Look(_) => {}
                Step::Wait { .. } | Step::Done(Done::Back | Done::Cleared | Done::Released) => return,
                write => {
                    leader.sent = Some(write);
                    return;
                }
            }
        }
        panic!("it looks again and again");
    }

    fn facts(&self) -> Facts {
        let pods = self.pod.iter().filter(|pod| pod.on_x);
        let pods = pods.map(|pod| Pod { uid: uid_name(pod.uid), marked: pod.marked, tolerates: false, local: false });
        // Its kubelet renews its own Lease when it shows itself, and a dead one does not.
        let kubelet = self.node.as_ref().map(|node| Version((*node.boot).into()));
        Facts {
            node: read(self.node.clone()),
            lease: read(Some(self.lease.clone())),
            roll: read(roll()),
            acks: BTreeMap::from(["y", "z"].map(|name| (name.into(), 2))),
            kubelet: read(kubelet),
            pods: read(pods.collect()),
        }
    }

    fn store(&mut self, step: &Step) -> Option<()> {
        if !self.may_be_stored(step) {
            return None;
        }
        let next_version = self.next_version();
        let change = |node: &mut Option<Node>, change: fn(&mut Node)| {
            if let Some(node) = node {
                change(node);
                node.version = next_version.clone();
            }
        };
        match step {
            Step::Cordon(_) => change(&mut self.node, |node| node.cordoned = true),
            Step::Uncordon(_) => change(&mut self.node, |node| node.cordoned = false),
            Step::Hold(_) => change(&mut self.node, |node| node.hold = Hold::Held),
            Step::Commit(..) => change(&mut self.node, |node| node.hold = Hold::Released),
            Step::Unhold(_) => change(&mut self.node, |node| node.hold = Hold::None),
            Step::Note { boot } => self.noted = Some(Noted { boot: boot.clone(), at: Wall(0), released: false }),
            Step::NoteReleased => self.noted.iter_mut().for_each(|noted| noted.released = true),
            Step::Order { order, .. } => {
                self.lease.order = Some(order.clone());
                self.lease.version = next(&self.lease.version);
                // Whoever has promised something keeps it.
                let Machine { boot, up, .. } = self.machine;
                if up
                    && *self.lease.claim.boot == *boot_name(boot)
                    && self.lease.claim.bound.is_some()
                    && order.boot == boot_name(boot)
                {
                    self.machine.ends_in = self.machine.ends_in.or(Some(1));
                }
            }
            Step::DeletePods(_) => self.pod = None,
            Step::DeleteNode { .. } => self.node = None,
            Step::Look(_) | Step::Enter { .. } | Step::Wait { .. } | Step::Done(_) => panic!("not a write: {step:?}"),
        }
        Some(())
    }

    /// Would the server store it now? Without a version it stores whatever comes.
    fn may_be_stored(&self, step: &Step) -> bool {
        let is_node = |version: &Version| self.node.as_ref().is_some_and(|node| version.0.is_empty() || node.version == *version);
        match step {
            Step::Cordon(version) | Step::Uncordon(version) => is_node(version),
            Step::Hold(version) | Step::Commit(version, _) | Step::Unhold(version) => is_node(version),
            Step::Note { .. } => self.noted.is_none(),
            Step::NoteReleased => self.noted.as_ref().is_some_and(|noted| !noted.released),
            Step::Order { lease, .. } => lease.0.is_empty() || self.lease.version == *lease,
            Step::DeletePods(uids) => self.pod.as_ref().is_some_and(|pod| pod.on_x && uids.contains(&uid_name(pod.uid))),
            Step::DeleteNode { uid, version } => is_node(version) && self.node.as_ref().is_some_and(|node| node.uid == *uid),
            Step::Look(_) | Step::Enter { .. } | Step::Wait { .. } | Step::Done(_) => false,
        }
    }

    /// The smallest version of the Node that nobody knows any more: which one it is does not matter.
    fn next_version(&self) -> Version {
        let of = |step: &Step| match step {
            Step::Cordon(version) | Step::Uncordon(version) | Step::Hold(version) => Some(version.clone()),
            Step::Commit(version, _) | Step::Unhold(version) | Step::DeleteNode { version, .. } => Some(version.clone()),
            _ => None,
        };
        let sent = self.leaders.iter().filter_map(|leader| leader.sent.as_ref()).chain(&self.late).filter_map(of);
        let known: Vec<Version> = sent.chain(self.node.iter().map(|node| node.version.clone())).collect();
        (1..).map(version).find(|version| !known.contains(version)).expect("there are many")
    }

    /// The same for the uid of a pod.
    fn next_uid(&self) -> u8 {
        let deleted =
            self.leaders.iter().filter_map(|leader| leader.sent.as_ref()).chain(&self.late).filter_map(|step| match step {
                Step::DeletePods(uids) => Some(uids.clone()),
                _ => None,
            });
        let mut known: BTreeSet<Name> = deleted.flatten().collect();
        known.extend(self.machine.runs.into_iter().chain(self.machine.read).map(uid_name));
        (2..).find(|uid| !known.contains(&uid_name(*uid))).expect("there are many")
    }
}

impl Machine {
    fn ends(&mut self) {
        *self = Machine { boot: self.boot, up: false, ends_in: None, read: None, shown: false, runs: None };
    }
}

fn roll() -> Roll {
    let electors: BTreeSet<Name> = ["x", "y", "z"].map(Name::from).into();
    let entry = |boot: u8| Entry { node: "x".into(), boot: boot_name(boot), since: 2 };
    let orders = (1..=BOOTS_MAX).map(entry).collect();
    Roll { number: 2, agents: 0, earlier: BTreeMap::from([(1, electors.clone())]), electors, orders }
}

fn read<T>(found: T) -> Option<Read<T>> {
    Some(Read { asked_at: NOW, found })
}

fn fingerprint(leader: &Leader) -> u64 {
    let mut hasher = DefaultHasher::new();
    leader.hash(&mut hasher);
    hasher.finish()
}

fn version(n: u32) -> Version {
    Version(n.to_string().into())
}

fn next(version_: &Version) -> Version {
    version(version_.0.parse::<u32>().expect("a number") + 1)
}

fn boot_name(boot: u8) -> Name {
    format!("b{boot}").into()
}

fn uid_name(uid: u8) -> Name {
    format!("p{uid}").into()
}

fn search(strategy: Strategy, heeds: Heeds, boots: u8, faults: u8) {
    let checker = Release { strategy, heeds, boots, faults }.checker().threads(2).target_state_count(STATES_MAX);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "release by {strategy:?}, {boots} boots, {faults} faults, kubelets heed {heeds:?}: {} states, {} of them different",
        checker.state_count(),
        checker.unique_state_count()
    );
    checker.assert_properties();
    assert!(checker.is_done() && checker.state_count() < STATES_MAX, "not all was searched");
}

#[test]
fn nothing_is_released_that_runs_or_will_run() {
    for strategy in [Strategy::ResourceDeletion, Strategy::OutOfServiceTaint, Strategy::NodeDeletion] {
        search(strategy, Heeds::Both, BOOTS, FAULTS);
    }
}

#[test]
fn nothing_is_released_that_runs_where_kubelets_heed_marks_alone() {
    search(Strategy::ResourceDeletion, Heeds::Marks, BOOTS, FAULTS);
}

#[test]
fn nothing_is_released_that_runs_where_kubelets_heed_the_taint_alone() {
    search(Strategy::ResourceDeletion, Heeds::Taint, BOOTS, FAULTS);
}

#[test]
#[ignore = "takes minutes: make soak"]
fn nothing_is_released_that_runs_in_more_boots_and_with_more_faults() {
    search(Strategy::ResourceDeletion, Heeds::Both, BOOTS_MAX, FAULTS);
    search(Strategy::ResourceDeletion, Heeds::Both, BOOTS, FAULTS + 1);
}
