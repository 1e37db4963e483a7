//! What does a seed draw for fencing? Machines, what runs on them, the weather of the network, and what fails.
//!
//! In each run some kinds of faults are switched off: a fault that is always there hides others. What fails by the clock is drawn
//! here; what fails just when it matters ([`Cue`]) is drawn while the run goes on, as often as the run's character says.

use std::time::Duration;

use resus_core::fencing::agent::Device;
use resus_core::fencing::terms::{Circumstances, Resets, Terms, WATCHDOG_FOR};

use super::machine::{FASTEST, SLOWEST};
use super::plots::{self, Plot};
use crate::clock::{MINUTE, Millis, SECOND};
use crate::rng::Rng;

pub struct Scenario {
    pub seed: u64,
    pub machines: Vec<Spec>,
    pub workloads: Vec<Workload>,
    pub weather: Weather,
    pub habits: Habits,
    /// Kinds that may happen in this run.
    pub kinds: Vec<Kind>,
    pub faults: Vec<(Millis, Fault)>,
    pub heals_at: Millis,
    pub plot: Option<Plot>,
    /// In percent: how often a cue is taken up.
    pub echoes: [u32; Cue::ALL.len()],
}

pub struct Spec {
    pub device: Device,
    pub terms: Terms,
    pub is_virtual: bool,
    /// In millionths: its clock is so much too fast.
    pub rate: i64,
    pub boots_for: (Millis, Millis),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Like a pod of a StatefulSet.
    Plain,
    /// It tolerates every taint.
    Stubborn,
    /// Of a DaemonSet: one on each machine, nobody runs it elsewhere.
    Local,
}

/// In percent, of requests and messages.
#[derive(Clone, Copy)]
pub struct Weather {
    pub late: u32,
    pub slow: u32,
    pub answer_lost: u32,
    pub message_lost: u32,
    pub message_slow: u32,
    /// Of all feeds: the process stalls between beginning and writing it.
    pub feed_stalls: u32,
    /// The same of the last ones, when the last proof of a machine that does not reach the API is about to end.
    pub feed_late: u32,
    /// Of processes that have written such a feed late: they are killed just before the watchdog resets the machine.
    pub killed_last: u32,
    /// Of emergency restarts: nothing happens.
    pub restart_fails: u32,
    /// Of writes by the controllers: how many more come late.
    pub control_late: u32,
}

/// How Kubernetes and admins behave in this cluster.
#[derive(Clone, Copy)]
pub struct Habits {
    /// A node that is not ready for so long is remediated.
    pub remediated_after: Millis,
    /// And its pods are marked for deletion after so long.
    pub evicted_after: Millis,
    /// In percent: of boots in which the agent does not come up.
    pub agent_missing: u32,
    pub require_assured: u32,
    pub safe_time: Option<Duration>,
    /// In percent: of writes that mark or release something, the leader is frozen just before it sends them.
    pub freezes: u32,
    /// In percent: kubelets that start pods before they show themselves.
    pub kubelet_eager: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    CutOff,
    Isolated,
    Mute,
    Parted,
    AllCutOff,
    ApiDown,
    ApiRefuses,
    Killed,
    Forgetful,
    Stopped,
    Starved,
    Paused,
    Crashed,
    PowerCut,
    LeaderFrozen,
    LeaderKilled,
    Mistaken,
    Ended,
    KubeletDies,
    LeaseDeleted,
    KeptOff,
    Confirmed,
    PodDeleted,
}

/// What happens to a machine, to the way between two, or to all, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub machine: usize,
    pub other: usize,
    pub lasts_for: Millis,
}

/// Moments at which faults hurt most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cue {
    /// An order was stored.
    Ordered,
    /// An elector has shown that it knows an order.
    Acknowledged,
    /// The hold was stored.
    Held,
    /// A kubelet of a new boot has read its pods.
    Booted,
    /// An agent was told to stop.
    Stopped,
    /// A renewal was given up, and may yet be stored.
    RenewalLate,
    /// Its machine does not reach the API any more.
    CutOff,
}

impl Cue {
    pub const ALL: [Cue; 7] =
        [Cue::Ordered, Cue::Acknowledged, Cue::Held, Cue::Booted, Cue::Stopped, Cue::RenewalLate, Cue::CutOff];
}

impl Kind {
    pub const ALL: [Kind; 23] = [
        Kind::CutOff,
        Kind::Isolated,
        Kind::Mute,
        Kind::Parted,
        Kind::AllCutOff,
        Kind::ApiDown,
        Kind::ApiRefuses,
        Kind::Killed,
        Kind::Forgetful,
        Kind::Stopped,
        Kind::Starved,
        Kind::Paused,
        Kind::Crashed,
        Kind::PowerCut,
        Kind::LeaderFrozen,
        Kind::LeaderKilled,
        Kind::Mistaken,
        Kind::Ended,
        Kind::KubeletDies,
        Kind::LeaseDeleted,
        Kind::KeptOff,
        Kind::Confirmed,
        Kind::PodDeleted,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Kind::CutOff => "node cut from api",
            Kind::Isolated => "node isolated",
            Kind::Mute => "node hears no answers",
            Kind::Parted => "two nodes parted",
            Kind::AllCutOff => "all nodes cut from api",
            Kind::ApiDown => "api down",
            Kind::ApiRefuses => "api refuses",
            Kind::Killed => "agent killed",
            Kind::Forgetful => "agent killed, memory lost",
            Kind::Stopped => "agent stopped",
            Kind::Starved => "agent starved",
            Kind::Paused => "machine paused",
            Kind::Crashed => "machine crashed",
            Kind::PowerCut => "power cut",
            Kind::LeaderFrozen => "leader frozen",
            Kind::LeaderKilled => "leader killed",
            Kind::Mistaken => "remediation by mistake",
            Kind::Ended => "remediation ended early",
            Kind::KubeletDies => "kubelet dead",
            Kind::LeaseDeleted => "lease deleted",
            Kind::KeptOff => "kept off by its bmc",
            Kind::Confirmed => "confirmed by a person",
            Kind::PodDeleted => "pod deleted by its owner",
        }
    }

    /// How long it lasts: short and long ones, around the times that decide.
    pub fn lasts_for(self, rng: &mut Rng) -> Millis {
        let (from, to) = match self {
            Kind::CutOff | Kind::Isolated => (20, 330),
            Kind::Mute | Kind::Parted => (20, 180),
            Kind::AllCutOff => (30, 300),
            Kind::ApiDown | Kind::ApiRefuses => (10, 120),
            Kind::Killed | Kind::Forgetful => (1, 20),
            Kind::Stopped => (1, 120),
            Kind::Starved => (3, 25),
            Kind::Paused => (1, 10),
            Kind::Crashed => (0, 0),
            Kind::PowerCut => (20, 240),
            Kind::LeaderFrozen => (10, 180),
            Kind::LeaderKilled => (1, 30),
            Kind::KubeletDies => (60, 300),
            Kind::Mistaken | Kind::Ended | Kind::LeaseDeleted | Kind::KeptOff | Kind::Confirmed | Kind::PodDeleted => (0, 0),
        };
        rng.within(from * SECOND..=to * SECOND)
    }
}

pub fn draw(seed: u64) -> Scenario {
    let mut rng = Rng::of(seed, "fencing");
    let machines = machines(&mut Rng::of(seed, "fencing machines"));
    let workloads = workloads(&mut Rng::of(seed, "fencing workloads"), machines.len());
    let heals_at = rng.within(5 * MINUTE..=12 * MINUTE);
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|_| rng.chance(60)).collect();
    let faults = faults(&mut Rng::of(seed, "fencing faults"), &kinds, machines.len(), heals_at);
    let echoes = Cue::ALL.map(|_| *rng.pick(&[0, 0, 30, 80]).unwrap_or(&0));
    let weather = weather(&mut Rng::of(seed, "fencing weather"));
    let habits = habits(&mut Rng::of(seed, "fencing habits"));
    let mut scenario = Scenario { seed, machines, workloads, weather, habits, kinds, faults, heals_at, plot: None, echoes };
    let mut rng = Rng::of(seed, "fencing plots");
    if rng.chance(60) {
        // A kubelet that reads its pods just before the hold is the rarest of all.
        let plot = if rng.chance(25) { Plot::Comeback } else { Plot::ALL[rng.below(Plot::ALL.len())] };
        plots::set_up(&mut scenario, plot, &mut rng);
    }
    scenario
}

fn machines(rng: &mut Rng) -> Vec<Spec> {
    let count = match rng.below(40) {
        0 => 20,
        1 => 1,
        2..=11 => 2,
        12..=23 => 3,
        24..=31 => 4,
        _ => rng.below(3) + 5,
    };
    let is_virtual = rng.chance(30);
    let drifts = rng.chance(70);
    let quick = rng.chance(50);
    (0..count)
        .map(|_| {
            let resets = match rng.below(8) {
                0 => Resets::AtSecondExpiry,
                1 => Resets::Within(WATCHDOG_FOR + Duration::from_secs(4)),
                _ => Resets::AtExpiry,
            };
            Spec {
                device: match rng.below(12) {
                    0 => Device::None,
                    1 | 2 => Device::Unstoppable,
                    _ => Device::Reliable,
                },
                terms: Terms::of(Circumstances {
                    agents: count,
                    watchdog_for: WATCHDOG_FOR,
                    resets,
                    virtual_machine: is_virtual,
                }),
                is_virtual,
                rate: if drifts { rng.within(SLOWEST..=FASTEST) } else { 0 },
                boots_for: if quick { (3 * SECOND, 15 * SECOND) } else { (15 * SECOND, 100 * SECOND) },
            }
        })
        .collect()
}

fn workloads(rng: &mut Rng, machines: usize) -> Vec<Workload> {
    let plain = machines.min(6) + rng.below(2);
    let mut all = vec![Workload::Plain; plain];
    if rng.chance(40) {
        all.push(Workload::Stubborn);
    }
    if rng.chance(20) {
        all.extend(vec![Workload::Local; machines]);
    }
    all
}

fn weather(rng: &mut Rng) -> Weather {
    let mut some = |values: &[u32]| *rng.pick(values).unwrap_or(&0);
    Weather {
        late: some(&[0, 0, 2, 8]),
        slow: some(&[0, 0, 5, 20]),
        answer_lost: some(&[0, 0, 3, 10]),
        message_lost: some(&[0, 0, 5, 20]),
        message_slow: some(&[0, 0, 10]),
        feed_stalls: some(&[0, 0, 1, 4]),
        feed_late: some(&[0, 50]),
        killed_last: some(&[0, 50]),
        restart_fails: some(&[0, 30, 100]),
        control_late: some(&[0, 0, 10, 30]),
    }
}

fn habits(rng: &mut Rng) -> Habits {
    Habits {
        remediated_after: rng.within(1..=40) * SECOND,
        evicted_after: *rng.pick(&[60, 300, 300]).unwrap_or(&300) * SECOND,
        agent_missing: *rng.pick(&[0, 10, 50]).unwrap_or(&0),
        require_assured: *rng.pick(&[0, 50]).unwrap_or(&0),
        safe_time: *rng.pick(&[None, None, Some(Duration::from_secs(20)), Some(Duration::from_secs(120))]).unwrap_or(&None),
        freezes: *rng.pick(&[0, 0, 10]).unwrap_or(&0),
        kubelet_eager: *rng.pick(&[0, 50, 100]).unwrap_or(&50),
    }
}

fn faults(rng: &mut Rng, kinds: &[Kind], machines: usize, heals_at: Millis) -> Vec<(Millis, Fault)> {
    let count = rng.within(1..=12);
    let mut all = Vec::new();
    for _ in 0..count {
        let Some(kind) = rng.pick(kinds).copied() else { break };
        let at = rng.within(30 * SECOND..=heals_at - 30 * SECOND);
        let machine = victim(rng, machines);
        all.push((at, fault(rng, kind, machine, machines)));
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

fn victim(rng: &mut Rng, machines: usize) -> usize {
    // Several faults on one machine say more than one on each of several.
    if rng.chance(50) { 0 } else { rng.below(machines) }
}

pub fn fault(rng: &mut Rng, kind: Kind, machine: usize, machines: usize) -> Fault {
    Fault { kind, machine, other: rng.below(machines), lasts_for: kind.lasts_for(rng) }
}
