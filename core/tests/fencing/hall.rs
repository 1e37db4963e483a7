//! Some machines with agents and watchdogs, the network between them, and an API. Time is true time, in milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::{Act, Agent, Cause, Device, Failure, Heard, Memory, Start, Withheld};
use resus_core::fencing::lease::{Claim, Order, Seen};
use resus_core::fencing::roll::{Entry, Roll};
use resus_core::fencing::terms::{Circumstances, Resets, Terms, WATCHDOG_FOR};
use resus_core::fencing::wire;
use resus_core::time::Mono;

/// So many turns at one instant mean that something is done again and again.
const TURNS_MAX: usize = 1000;

pub struct Hall {
    pub time: i64,
    pub machines: BTreeMap<Name, Machine>,
    pub leases: BTreeMap<Name, Seen>,
    pub roll: Roll,
    version: u64,
    /// It answers nobody.
    pub api_is_down: bool,
    /// It answers, but refuses: authentication, rights, admission.
    pub refuses: Refuses,
    /// Machines that cannot reach the API, and pairs that cannot reach each other.
    pub cut_from_api: BTreeSet<Name>,
    pub cut: BTreeSet<(Name, Name)>,
    questions: BTreeMap<u64, (Name, u64)>,
    questions_begun: u64,
    pub terms: Terms,
    later: BTreeMap<(i64, u64), (Name, u64, Heard)>,
    later_begun: u64,
    /// Requests to the API, for whoever wants to count.
    pub requests: usize,
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
    /// Its process stands still.
    pub starved: bool,
    pub boot: u64,
    device: Device,
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
        let electors = names.iter().take(51).cloned().collect();
        let mut hall = Hall {
            time: 0,
            machines: BTreeMap::new(),
            leases: BTreeMap::new(),
            roll: Roll { number: 1, electors, ..Roll::default() },
            version: 0,
            api_is_down: false,
            refuses: Refuses::Nothing,
            cut_from_api: BTreeSet::new(),
            cut: BTreeSet::new(),
            questions: BTreeMap::new(),
            questions_begun: 0,
            terms,
            later: BTreeMap::new(),
            later_begun: 0,
            requests: 0,
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
            starved: false,
            boot,
            device,
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
        let (terms, now) = (self.terms, self.now());
        let machine = self.machines.get_mut(name).expect("a machine");
        machine.process += 1;
        let start = Start {
            me: name.into(),
            boot: boot_name(machine.boot),
            terms,
            device: machine.device,
            memory: machine.memory.clone(),
            relapsing_until: None,
        };
        machine.agent = Some(Agent::new(start, now));
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
        let now = self.now();
        if let Some(agent) = &mut self.machine(name).agent {
            agent.hear(Heard::Stop, now);
        }
    }

    pub fn machine(&mut self, name: &str) -> &mut Machine {
        self.machines.get_mut(name).expect("a machine")
    }

    pub fn now(&self) -> Mono {
        Mono(self.time)
    }

    pub fn is_armed(&self, name: &str) -> bool {
        self.machines[name].runs_off_at.is_some()
    }

    pub fn withheld(&self, name: &str) -> Option<Withheld> {
        self.machines[name].agent.as_ref().and_then(|agent| agent.promise(self.now()).err())
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
        let boot = self.leases[node].claim.boot.clone();
        let version = self.next_version();
        let lease = self.leases.get_mut(node).expect("a Lease");
        lease.order = Some(Order { boot: boot.clone(), remediation: "r".into() });
        lease.version = version;
        self.roll.number += 1;
        let number = self.roll.number;
        self.roll.orders.insert(Entry { node: node.into(), boot, since: number });
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
        let now = self.now();
        let agents = self.machines.values().filter(|machine| !machine.starved).filter_map(|machine| machine.agent.as_ref());
        let wakes = agents.map(|agent| agent.wake_at(now).0);
        let dogs = self.machines.values().filter_map(|machine| machine.runs_off_at);
        let later = self.later.keys().map(|(at, _)| *at);
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
        let now = self.now();
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now.0) {
            let (name, process, heard) = entry.remove();
            self.tell(&name, process, heard);
        }
    }

    fn tell(&mut self, name: &Name, process: u64, heard: Heard) {
        let now = self.now();
        let Some(machine) = self.machines.get_mut(name).filter(|machine| machine.process == process) else { return };
        if let Some(agent) = machine.agent.as_mut() {
            agent.hear(heard, now);
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
            let (now, luck) = (self.now(), self.time as u64);
            let mut all = Vec::new();
            for (name, machine) in &mut self.machines {
                if let Some(agent) = machine.agent.as_mut().filter(|_| !machine.starved) {
                    let acts = agent.turn(now, luck);
                    let death = acts.iter().position(|act| matches!(act, Act::Die(_)));
                    assert!(death.is_none_or(|at| at + 1 == acts.len()), "{name} dies, and goes on: {acts:?}");
                    all.extend(acts.into_iter().map(|act| (name.clone(), act)));
                }
            }
            if all.is_empty() && self.later.first_key_value().is_none_or(|((at, _), _)| *at > self.time) {
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
                let answer = self.reach(name, true).and_then(|()| self.store(name, Some(&version), claim));
                self.answer(name, answer, Heard::Lease);
            }
            Act::ReadRoll => {
                let answer = self.reach(name, false).map(|()| self.roll.clone());
                self.answer(name, answer, Heard::Roll);
            }
            Act::Ask { vote, peers, trial } => {
                for peer in peers {
                    self.asked += 1;
                    self.questions_begun += 1;
                    let (question, asker, boot) = (self.questions_begun, name.clone(), boot_name(self.machines[name].boot));
                    self.questions.insert(question, (asker.clone(), vote));
                    if !self.cut.contains(&(name.clone(), peer.clone())) && self.machines.contains_key(&peer) {
                        let asked = Heard::Asked { question, asker, boot, trial, protocol: wire::PROTOCOL };
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
                    let replied = Heard::Replied { vote, from: name.clone(), reply: word, protocol: wire::PROTOCOL };
                    self.say(Duration::ZERO, &asker, replied);
                }
            }
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

    /// What is lost is given up only when its time is over.
    fn answer<T>(&mut self, name: &Name, answer: Result<T, Failure>, heard: impl Fn(Result<T, Failure>) -> Heard) {
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
        Ok(seen)
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }
}

pub fn boot_name(boot: u64) -> Name {
    format!("b{boot}").into()
}
