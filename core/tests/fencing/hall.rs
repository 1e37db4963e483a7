//! Some machines with agents and watchdogs, the network between them, and an API. Time is true time, in milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::{Act, Agent, Cause, Device, Failure, Heard, Memory, Start, Withheld};
use resus_core::fencing::lease::{Claim, Order, Seen};
use resus_core::fencing::roll::{self, Roll, Voter};
use resus_core::fencing::terms::{Circumstances, Resets, Terms, WATCHDOG_FOR};
use resus_core::fencing::wire;
use resus_core::time::Mono;

/// So many turns at one instant mean that something is done again and again.
const TURNS_MAX: usize = 1000;

pub struct Hall {
    pub time: i64,
    pub machines: BTreeMap<Name, Machine>,
    pub leases: BTreeMap<Name, Seen>,
    renewed_at: BTreeMap<Name, Mono>,
    pub roll: Roll,
    version: u64,
    /// It answers nobody.
    pub api_is_down: bool,
    /// It answers, but refuses: authentication, rights, admission.
    pub refuses: Refuses,
    /// Machines that cannot reach the API, and pairs that cannot reach each other.
    pub cut_from_api: BTreeSet<Name>,
    pub cut: BTreeSet<(Name, Name)>,
    /// Machines whose requests are carried out, and whose answers are lost.
    pub deaf: BTreeSet<Name>,
    /// What those speak who do not speak ours.
    pub protocols: BTreeMap<Name, u32>,
    /// Of agents that start from now on: they were reset too often.
    pub relapsing_until: Option<Mono>,
    questions: BTreeMap<u64, (Name, u64)>,
    questions_begun: u64,
    pub terms: Terms,
    later: BTreeMap<(i64, u64), (Name, u64, Heard)>,
    later_begun: u64,
    /// For whoever wants to count: requests to the API, renewals among them, and questions to peers.
    pub requests: usize,
    pub renewals: usize,
    pub asked: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuses {
    Nothing,
    Writes,
    Everything,
}

pub struct Machine {
    pub agent: Option<Agent>,
    /// When it has something to do, by its own clock: what it said itself, or now, since it heard something.
    wake_at: Mono,
    /// Its process stands still.
    pub starved: bool,
    /// What it will hear when it does not any more.
    waiting: Vec<Heard>,
    /// By how much its clock is: the time for which it stood still without noticing.
    pub behind: i64,
    pub boot: u64,
    device: Device,
    /// It is there, but does not do what is wanted of it.
    pub refuses_to_open: bool,
    memory: Option<Memory>,
    /// When the watchdog runs off; none while it is off.
    pub runs_off_at: Option<i64>,
    /// Of each, when and why, as far as was written down.
    pub resets: Vec<(i64, Option<Cause>)>,
    recorded: Option<Cause>,
    process: u64,
}

impl Hall {
    /// `n0` and so on; all are up, and have promised what they can.
    pub fn of(machines: usize) -> Hall {
        let mut hall = Hall::empty(machines);
        hall.run_for(30);
        hall
    }

    pub fn empty(machines: usize) -> Hall {
        let agents = machines;
        let terms =
            Terms::of(Circumstances { agents, watchdog_for: WATCHDOG_FOR, resets: Resets::AtExpiry, virtual_machine: false });
        let names: Vec<Name> = (0..machines).map(|n| format!("n{n}").into()).collect();
        let voters: Vec<Voter> = names.iter().map(|name| voter(name, 0)).collect();
        let roll = Roll::default().next(&voters, &BTreeSet::new(), &BTreeSet::new()).expect("the first roll");
        let mut hall = Hall {
            time: 0,
            machines: BTreeMap::new(),
            leases: BTreeMap::new(),
            renewed_at: BTreeMap::new(),
            roll,
            version: 0,
            api_is_down: false,
            refuses: Refuses::Nothing,
            cut_from_api: BTreeSet::new(),
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            protocols: BTreeMap::new(),
            relapsing_until: None,
            questions: BTreeMap::new(),
            questions_begun: 0,
            terms,
            later: BTreeMap::new(),
            later_begun: 0,
            requests: 0,
            renewals: 0,
            asked: 0,
        };
        for name in names {
            hall.boot(&name, Device::Reliable);
        }
        hall
    }

    pub fn boot(&mut self, name: &str, device: Device) {
        let before = self.machines.remove(name);
        let boot = before.as_ref().map_or(1, |machine| machine.boot + 1);
        let resets = before.map(|machine| machine.resets).unwrap_or_default();
        let machine = Machine {
            agent: None,
            wake_at: Mono(0),
            starved: false,
            waiting: Vec::new(),
            behind: 0,
            boot,
            device,
            refuses_to_open: false,
            memory: None,
            runs_off_at: None,
            resets,
            recorded: None,
            process: 0,
        };
        self.machines.insert(name.into(), machine);
        self.start_agent(name);
    }

    /// Another process of the same boot.
    pub fn start_agent(&mut self, name: &str) {
        // How many agents there are it hears from the roll.
        let (terms, now, relapsing_until) = (self.terms.for_agents(1), self.clock(name), self.relapsing_until);
        let machine = self.machines.get_mut(name).expect("a machine");
        machine.process += 1;
        let start = Start {
            me: name.into(),
            boot: boot_name(machine.boot),
            terms,
            device: machine.device,
            memory: machine.memory.clone(),
            relapsing_until,
        };
        machine.agent = Some(Agent::new(start, now));
        machine.wake_at = now;
    }

    /// The kernel closes the device, which feeds it once more.
    pub fn kill_agent(&mut self, name: &str) {
        let time = self.time;
        let machine = self.machine(name);
        machine.agent = None;
        machine.process += 1;
        machine.runs_off_at = machine.runs_off_at.map(|_| time + WATCHDOG_FOR.as_millis() as i64);
    }

    pub fn stop_agent(&mut self, name: &str) {
        self.tell(name, Heard::Stop);
    }

    pub fn power_off(&mut self, name: &str) {
        let machine = self.machine(name);
        (machine.agent, machine.runs_off_at) = (None, None);
        machine.process += 1;
    }

    /// The machine as a whole, with its watchdog; what comes meanwhile waits.
    pub fn stand_still(&mut self, name: &str, seconds: i64) {
        let left = self.machines[name].runs_off_at.map(|at| at - self.time);
        (self.machine(name).starved, self.machine(name).runs_off_at) = (true, None);
        self.run_for(seconds);
        let time = self.time;
        let machine = self.machine(name);
        (machine.starved, machine.runs_off_at) = (false, left.map(|left| time + left));
        for heard in std::mem::take(&mut machine.waiting) {
            machine.hear(heard, time);
        }
    }

    pub fn tell(&mut self, name: &str, heard: Heard) {
        let time = self.time;
        self.machine(name).hear(heard, time);
    }

    pub fn machine(&mut self, name: &str) -> &mut Machine {
        self.machines.get_mut(name).expect("a machine")
    }

    pub fn now(&self) -> Mono {
        Mono(self.time)
    }

    /// What the clock of this machine shows.
    fn clock(&self, name: &str) -> Mono {
        Mono(self.time - self.machines[name].behind)
    }

    pub fn is_armed(&self, name: &str) -> bool {
        self.machines[name].runs_off_at.is_some()
    }

    pub fn withheld(&self, name: &str) -> Option<Withheld> {
        self.machines[name].agent.as_ref().and_then(|agent| agent.promise(self.clock(name)).err())
    }

    pub fn bound(&self, name: &str) -> Option<Duration> {
        self.leases.get(name).and_then(|lease| lease.claim.bound)
    }

    /// Who was reset, and why.
    pub fn resets(&self) -> Vec<(String, Option<Cause>)> {
        let of = |(name, machine): (&Name, &Machine)| {
            machine.resets.iter().map(|(_, cause)| (name.to_string(), *cause)).collect::<Vec<_>>()
        };
        self.machines.iter().flat_map(of).collect()
    }

    /// How long after `since` it was reset for the first time, in seconds.
    pub fn first_reset(&self, name: &str, since: i64) -> Option<f64> {
        self.machines[name].resets.iter().find(|(at, _)| *at >= since).map(|(at, _)| (at - since) as f64 / 1000.0)
    }

    /// An order for the present boot of a node, in its Lease and in the roll.
    pub fn order(&mut self, node: &str) {
        let version = self.next_version();
        let lease = self.leases.get_mut(node).expect("a Lease");
        lease.order = Some(Order { boot: lease.claim.boot.clone(), remediation: "r".into() });
        lease.version = version;
        self.call_roll();
    }

    /// What the controller does: those who live are called, the orders that stand are entered.
    pub fn call_roll(&mut self) {
        let lives = |name: &Name| self.renewed_at.get(name).is_some_and(|at| roll::is_living(*at, self.now()));
        let living = self.leases.iter().filter(|(name, _)| lives(name));
        let voters: Vec<Voter> = living.map(|(name, lease)| voter(name, lease.claim.roll)).collect();
        let named = self.leases.values().map(|lease| lease.claim.roll).collect();
        let order = |(name, lease): (&Name, &Seen)| lease.order.as_ref().map(|order| (name.clone(), order.boot.clone()));
        let orders = self.leases.iter().filter_map(order).collect();
        if let Some(next) = self.roll.next(&voters, &named, &orders) {
            self.roll = next;
        }
    }

    /// Nobody of the one side reaches anybody of the other.
    pub fn part(&mut self, one: &[&str], other: &[&str]) {
        for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (*a, *b))) {
            self.cut.insert((a.into(), b.into()));
            self.cut.insert((b.into(), a.into()));
        }
    }

    pub fn isolate(&mut self, node: &str) {
        let others: Vec<Name> = self.machines.keys().filter(|name| &***name != node).cloned().collect();
        self.part(&[node], &others.iter().map(|name| &**name).collect::<Vec<_>>());
        self.cut_from_api.insert(node.into());
    }

    pub fn run_for(&mut self, seconds: i64) {
        let until = self.time + seconds * 1000;
        while self.time < until {
            self.turn();
            self.time = self.next_at().min(until);
            self.let_dogs_bite();
            self.deliver();
        }
        self.turn();
    }

    fn next_at(&self) -> i64 {
        let awake = self.machines.values().filter(|machine| machine.agent.is_some() && !machine.starved);
        let wakes = awake.map(|machine| machine.wake_at.0 + machine.behind);
        let dogs = self.machines.values().filter_map(|machine| machine.runs_off_at);
        let later = self.later.keys().next().map(|(at, _)| *at);
        wakes.chain(dogs).chain(later).min().unwrap_or(i64::MAX).max(self.time + 1)
    }

    fn let_dogs_bite(&mut self) {
        let time = self.time;
        let bitten = |machine: &Machine| machine.runs_off_at.is_some_and(|at| at <= time);
        let names: Vec<Name> =
            self.machines.iter().filter(|(_, machine)| bitten(machine)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.reset(&name);
        }
    }

    fn reset(&mut self, name: &Name) {
        let (time, device) = (self.time, self.machines[name].device);
        let machine = self.machine(name);
        let cause = machine.recorded.take();
        machine.resets.push((time, cause));
        self.boot(name, device);
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= self.time) {
            let (name, process, heard) = entry.remove();
            if let Some(machine) = self.machines.get_mut(&name).filter(|machine| machine.process == process) {
                machine.hear(heard, self.time);
            }
        }
    }

    fn say(&mut self, after: Duration, name: &Name, heard: Heard) {
        self.later_begun += 1;
        let process = self.machines[name].process;
        let at = self.time + after.as_millis() as i64;
        self.later.insert((at, self.later_begun), (name.clone(), process, heard));
    }

    /// Everything that is to be done now is.
    fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            self.deliver();
            let (time, luck) = (self.time, self.time as u64);
            let mut all = Vec::new();
            for (name, machine) in &mut self.machines {
                let now = Mono(time - machine.behind);
                let is_due = !machine.starved && machine.wake_at <= now;
                if let Some(agent) = machine.agent.as_mut().filter(|_| is_due) {
                    let acts = agent.turn(now, luck);
                    // Until it has nothing more to do.
                    machine.wake_at = if acts.is_empty() { agent.wake_at(now) } else { now };
                    let death = acts.iter().position(|act| matches!(act, Act::Die(_)));
                    assert!(death.is_none_or(|at| at + 1 == acts.len()), "{name} dies, and goes on: {acts:?}");
                    all.extend(acts.into_iter().map(|act| (name.clone(), act)));
                }
            }
            if all.is_empty() && self.later.first_key_value().is_none_or(|((at, _), _)| *at > time) {
                return;
            }
            for (name, act) in all {
                self.carry_out(&name, act);
            }
        }
        panic!("time stands still at {}", self.time);
    }

    fn carry_out(&mut self, name: &Name, act: Act) {
        let (time, wait) = (self.time, WATCHDOG_FOR.as_millis() as i64);
        match act {
            Act::Remember(memory) => self.machine(name).memory = Some(memory),
            Act::Read => {
                let answer = self.reach(name, false).and_then(|()| self.leases.get(name).cloned().ok_or(Failure::Missing));
                self.answer(name, answer, Heard::Lease);
            }
            Act::Create(claim) => {
                let answer = self.reach(name, true).and_then(|()| self.store(name, None, claim));
                self.answer(name, answer, Heard::Lease);
            }
            Act::Renew(version, claim) => {
                self.renewals += 1;
                let answer = self.reach(name, true).and_then(|()| self.store(name, Some(&version), claim));
                self.answer(name, answer, Heard::Lease);
            }
            Act::ReadRoll => {
                let answer = self.reach(name, false).map(|()| self.roll.clone());
                self.answer(name, answer, Heard::Roll);
            }
            Act::Ask { vote, peers, trial } => {
                let boot = boot_name(self.machines[name].boot);
                for peer in peers {
                    self.asked += 1;
                    self.questions_begun += 1;
                    let (question, asker, boot) = (self.questions_begun, name.clone(), boot.clone());
                    self.questions.insert(question, (asker.clone(), vote));
                    if !self.cut.contains(&(name.clone(), peer.clone())) && self.machines.contains_key(&peer) {
                        let asked = Heard::Asked { question, asker, boot, trial, protocol: self.protocol(name) };
                        self.say(Duration::ZERO, &peer, asked);
                    }
                }
            }
            Act::ReadLeaseOf { question, asker } => {
                let found = self.reach(name, false).and_then(|()| self.leases.get(&asker).cloned().ok_or(Failure::Missing));
                self.answer(name, found, |found| Heard::LeaseOf { question, found });
            }
            Act::Reply { question, word } => {
                let Some((asker, vote)) = self.questions.remove(&question) else { return };
                if !self.cut.contains(&(name.clone(), asker.clone())) {
                    let protocol = self.protocol(name);
                    let replied = Heard::Replied { vote, from: name.clone(), reply: word, protocol };
                    self.say(Duration::ZERO, &asker, replied);
                }
            }
            Act::Open if self.machines[name].refuses_to_open => self.say(Duration::ZERO, name, Heard::Unusable),
            Act::Open => {
                self.machine(name).runs_off_at = Some(time + wait);
                self.say(Duration::ZERO, name, Heard::Armed);
            }
            Act::Feed => self.machine(name).runs_off_at = Some(time + wait),
            Act::Disarm => {
                self.machine(name).runs_off_at = None;
                self.say(Duration::ZERO, name, Heard::Disarmed);
            }
            Act::Record(cause) => self.machine(name).recorded = Some(cause),
            Act::Die(_) => self.reset(name),
            Act::Leave => self.machine(name).agent = None,
        }
    }

    fn reach(&mut self, name: &Name, writes: bool) -> Result<(), Failure> {
        self.requests += 1;
        let refused = match self.refuses {
            Refuses::Nothing => false,
            Refuses::Writes => writes,
            Refuses::Everything => true,
        };
        if self.api_is_down || refused || self.cut_from_api.contains(name) { Err(Failure::Lost) } else { Ok(()) }
    }

    fn protocol(&self, name: &Name) -> u32 {
        self.protocols.get(name).copied().unwrap_or(wire::PROTOCOL)
    }

    /// What is lost is given up only when its time is over.
    fn answer<T>(&mut self, name: &Name, answer: Result<T, Failure>, heard: impl Fn(Result<T, Failure>) -> Heard) {
        let answer = if self.deaf.contains(name) { Err(Failure::Lost) } else { answer };
        let is_lost = matches!(answer, Err(Failure::Lost));
        self.say(if is_lost { self.terms.answer_within } else { Duration::ZERO }, name, heard(answer));
    }

    fn store(&mut self, name: &Name, version: Option<&Version>, claim: Claim) -> Result<Seen, Failure> {
        let known = self.leases.get(name).map(|lease| &lease.version);
        if known != version {
            return Err(if known.is_none() { Failure::Missing } else { Failure::Conflict });
        }
        let (order, uid) = self.leases.get(name).map_or((None, name.clone()), |lease| (lease.order.clone(), lease.uid.clone()));
        let seen = Seen { uid, version: self.next_version(), claim, order };
        self.leases.insert(name.clone(), seen.clone());
        self.renewed_at.insert(name.clone(), self.now());
        Ok(seen)
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }
}

impl Machine {
    fn hear(&mut self, heard: Heard, time: i64) {
        let now = Mono(time - self.behind);
        match &mut self.agent {
            _ if self.starved => self.waiting.push(heard),
            Some(agent) => {
                agent.hear(heard, now);
                self.wake_at = now;
            }
            None => {}
        }
    }
}

/// Of three zones.
fn voter(name: &Name, roll: u64) -> Voter {
    let number: usize = name[1..].parse().expect("a number");
    Voter { node: name.clone(), zone: format!("z{}", number % 3).into(), roll }
}

pub fn boot_name(boot: u64) -> Name {
    format!("b{boot}").into()
}
