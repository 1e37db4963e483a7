//! What does a seed draw? A cluster, its checks, and what happens to them.
//!
//! In each run some kinds of faults are switched off: a fault that is always there hides others.

use resus_core::facts::Claim;
use serde_json::{Value, json};

use crate::clock::{HostClock, MINUTE, Millis, SECOND};
use crate::fleet;
use crate::fleet::draw::MACHINES_FROM;
use crate::liveness::Liveness;
use crate::rng::Rng;
use crate::scenario::{
    Act, CONTROL_PLANE, FLAPS_EACH, Failure, Flags, MachineSpec, NetSpec, PATIENCE, ProviderSpec, Scenario, TEMPLATE,
    TEMPLATE_HARD, TEMPLATE_INVALID, TEMPLATE_OF_SEVERAL, TEMPLATE_POWER, WORKER, ZONE, template,
};

/// The longest duration of a rule here; recovery has to wait for it.
const RULE_MAX: Millis = 90 * SECOND;

/// The longest step of an escalation; nothing else that a check waits for takes so long here.
const WAIT_MAX: Millis = 120 * SECOND;

pub fn draw(seed: u64) -> Scenario {
    let mut rng = Rng::of(seed, "scenario");
    let mut machines = machines(&mut Rng::of(seed, "machines"));
    let hosts_etcd = Rng::of(seed, "etcd").chance(50);
    machines.iter_mut().for_each(|machine| machine.hosts_etcd = machine.control_plane && hosts_etcd);
    let replicas = 1 + rng.below(3);
    let heals_at = rng.within(4 * MINUTE..=12 * MINUTE);
    let mut acts = checks(&mut Rng::of(seed, "checks"), heals_at);
    let fleet = fleet::draw::draw(seed, heals_at, &mut machines, &mut acts);
    patience(&mut Rng::of(seed, "patience"), &mut acts);
    acts.extend(failures(&mut Rng::of(seed, "failures"), &machines, heals_at));
    acts.extend(process_faults(&mut Rng::of(seed, "processes"), replicas, heals_at));
    acts.extend(orders(&mut Rng::of(seed, "orders"), heals_at));
    acts.extend(clocks(&mut Rng::of(seed, "clocks"), seed, &mut machines, replicas, heals_at));
    acts.extend(neighbours(&mut Rng::of(seed, "neighbours"), heals_at));
    let provider = provider(&mut Rng::of(seed, "provider's character"), heals_at, &mut acts);
    let net = net(&mut Rng::of(seed, "weather"), heals_at, &mut acts);
    acts.sort_by_key(|(at, _)| *at);
    let repair_within = provider.works_for.1 + 60 * SECOND + 30 * SECOND;
    let ends_at = heals_at + Liveness::phase(RULE_MAX, WAIT_MAX, repair_within);
    let flags = Flags { mhc: if fleet.is_some() { Claim::All } else { Claim::default() }, ..Flags::default() };
    Scenario {
        seed,
        machines,
        replicas,
        flags,
        provider,
        fleet,
        net,
        acts,
        patience: PATIENCE,
        begins_at: 0,
        heals_at: Some(heals_at),
        ends_at,
    }
}

fn machines(rng: &mut Rng) -> Vec<MachineSpec> {
    let workers = match rng.below(20) {
        0..=9 => rng.within(1..=6),
        10..=17 => rng.within(5..=16),
        _ => rng.within(17..=57),
    };
    let control_plane = if rng.chance(50) { 1 } else { 3 };
    let zones = rng.within(1..=3);
    let skewed = rng.chance(30);
    let posts_each = if workers > 8 { 60 * SECOND } else { *rng.pick(&[10, 10, 30, 60]).unwrap_or(&10) * SECOND };
    (0..control_plane + workers)
        .map(|n| MachineSpec {
            name: if n < control_plane { format!("cp-{n}") } else { format!("worker-{}", n - control_plane) },
            cluster: None,
            zone: ["a", "b", "c"][usize::try_from(n % zones).unwrap_or(0)].to_owned(),
            control_plane: n < control_plane,
            beats_each: rng.within(8 * SECOND..=11 * SECOND),
            posts_each,
            boots_for: rng.within(5 * SECOND..=60 * SECOND),
            flaps_each: FLAPS_EACH,
            clock: HostClock { ahead: if skewed { rng.within(-20 * SECOND..=20 * SECOND) } else { 0 }, drift: 0 },
            pods: rng.below(3),
            hosts_etcd: false,
        })
        .collect()
}

fn checks(rng: &mut Rng, heals_at: Millis) -> Vec<(Millis, Act)> {
    let count = [1, 1, 2, 3][rng.below(4)];
    let mut acts = Vec::new();
    for n in 0..count {
        let name = format!("check-{n}");
        let at = if rng.chance(70) { 0 } else { rng.within(0..=heals_at / 2) };
        acts.push((at, Act::Check { name: name.clone(), spec: spec(rng, n == 0) }));
        if rng.chance(20) {
            let from = rng.within(at..=heals_at);
            acts.push((from, Act::PauseCheck(name.clone(), true)));
            acts.push((rng.within(from..=heals_at), Act::PauseCheck(name.clone(), rng.chance(10))));
        }
        if rng.chance(20) {
            acts.push((rng.within(at..=heals_at), Act::Check { name: name.clone(), spec: spec(rng, n == 0) }));
        }
        if rng.chance(10) {
            let dropped = rng.within(at..=heals_at);
            acts.push((dropped, Act::DropCheck(name.clone())));
            acts.push((rng.within(dropped..=heals_at), Act::Check { name, spec: spec(rng, n == 0) }));
        }
    }
    acts
}

/// `plain`: nothing that keeps it from acting.
fn spec(rng: &mut Rng, plain: bool) -> Value {
    let duration = |rng: &mut Rng| format!("{}s", rng.within(5..=RULE_MAX / SECOND));
    let (not_ready, silent, disk) = (duration(rng), duration(rng), duration(rng));
    let mut rules = vec![
        json!({"type": "Ready", "status": "False", "duration": not_ready}),
        json!({"type": "Ready", "status": "Unknown", "duration": silent}),
    ];
    if rng.chance(50) {
        rules.push(json!({"type": "DiskBroken", "status": "True", "duration": disk}));
    }
    let mut spec = json!({"unhealthyConditions": rules});
    let exists = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    match rng.below(8) {
        0..=3 => spec["selector"] = exists(WORKER),
        4 => spec["selector"] = exists(CONTROL_PLANE),
        5 => spec["selector"] = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "c"]}]}),
        6 => {
            spec["selector"] =
                json!({"matchLabels": {WORKER: ""}, "matchExpressions": [{"key": "spare", "operator": "DoesNotExist"}]});
        }
        _ => {}
    }
    match rng.below(9) {
        0 | 1 => spec["maxUnhealthy"] = json!(rng.within(1..=3)),
        2 | 3 => spec["maxUnhealthy"] = json!(format!("{}%", rng.within(20..=60))),
        4 => spec["maxUnhealthy"] = json!("100%"),
        5 => spec["minHealthy"] = json!(format!("{}%", rng.within(40..=80))),
        6 => spec["minHealthy"] = json!(rng.within(1..=3)),
        7 => spec["maxUnhealthy"] = json!(0),
        _ => {}
    }
    let kind = if plain { rng.below(4) } else { rng.below(9) };
    spec["remediationTemplate"] = match kind {
        0..=2 => template(TEMPLATE),
        3 | 4 => template(TEMPLATE_OF_SEVERAL),
        5 => template("missing"),
        6 => template(TEMPLATE_INVALID),
        7 => json!({"apiVersion": "nobody.test/v1", "kind": "NothingTemplate", "namespace": "provider", "name": "x"}),
        _ => {
            spec["selector"] = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": []}]});
            template(TEMPLATE)
        }
    };
    spec
}

/// In some runs checks escalate, or wait: after a recovery, or after a storm.
fn patience(rng: &mut Rng, acts: &mut [(Millis, Act)]) {
    let (escalate, delay, cool) = (rng.chance(35), rng.chance(30), rng.chance(30));
    for (_, act) in acts {
        let Act::Check { spec, .. } = act else { continue };
        let usable = [TEMPLATE, TEMPLATE_OF_SEVERAL].iter().any(|name| spec["remediationTemplate"]["name"] == **name);
        if escalate && usable && rng.chance(80) {
            let pairs = [
                [TEMPLATE, TEMPLATE_POWER],
                [TEMPLATE_POWER, TEMPLATE],
                [TEMPLATE, TEMPLATE_HARD],
                [TEMPLATE_OF_SEVERAL, TEMPLATE],
                [TEMPLATE, TEMPLATE_OF_SEVERAL],
            ];
            let pair = pairs[rng.below(pairs.len())];
            let mut step = |(order, name): (usize, &str)| {
                let timeout = format!("{}s", rng.within(60..=WAIT_MAX / SECOND));
                json!({"remediationTemplate": template(name), "order": order, "timeout": timeout})
            };
            spec["escalatingRemediations"] = pair.into_iter().enumerate().map(&mut step).collect();
            spec["remediationTemplate"] = Value::Null;
        }
        if delay {
            spec["healthyDelay"] = json!(format!("{}s", rng.within(5..=40)));
        }
        if cool {
            spec["stormCooldownDuration"] = json!(format!("{}s", rng.within(10..=60)));
        }
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    }
}

/// Which of `all` this run may meet: each with even odds, but at least one.
fn some<T: Copy>(rng: &mut Rng, all: &[T]) -> Vec<T> {
    let mut chosen: Vec<T> = all.iter().copied().filter(|_| rng.chance(50)).collect();
    if chosen.is_empty() {
        chosen.extend(rng.pick(all).copied());
    }
    chosen
}

fn failures(rng: &mut Rng, machines: &[MachineSpec], heals_at: Millis) -> Vec<(Millis, Act)> {
    let kinds = some(rng, &Failure::ALL);
    let mut acts = Vec::new();
    // From some single failures to most of the cluster.
    let most = [3, machines.len(), 2 * machines.len()][rng.below(3)];
    for _ in 0..1 + rng.below(most) {
        let (machine, at) = (rng.below(machines.len()), rng.within(30 * SECOND..=heals_at));
        let failure = rng.pick(&kinds).copied().unwrap_or(Failure::Crash);
        acts.push((at, Act::Break(machine, failure)));
        if rng.chance(40) {
            acts.push((at + rng.within(SECOND..=3 * MINUTE), Act::Mend(machine)));
        }
    }
    if rng.chance(25) {
        let failure = rng.pick(&kinds).copied().unwrap_or(Failure::Crash);
        let zone = machines[rng.below(machines.len())].zone.clone();
        acts.push((rng.within(30 * SECOND..=heals_at), Act::BreakZone(zone, failure)));
    }
    if rng.chance(40) {
        acts.push((rng.within(30 * SECOND..=heals_at), Act::PlannedReboot(rng.below(machines.len()))));
    }
    acts.retain(|(at, _)| *at < heals_at);
    acts
}

#[derive(Clone, Copy)]
enum ProcessFault {
    Kill,
    Stop,
    Freeze,
    StepClock,
    CutLink,
    Lag,
    DropWatches,
}

fn process_faults(rng: &mut Rng, replicas: usize, heals_at: Millis) -> Vec<(Millis, Act)> {
    use ProcessFault::{CutLink, DropWatches, Freeze, Kill, Lag, StepClock, Stop};
    let kinds = some(rng, &[Kill, Stop, Freeze, StepClock, CutLink, Lag, DropWatches]);
    let mut acts = Vec::new();
    for _ in 0..rng.below(13) {
        let (replica, at) = (rng.below(replicas), rng.within(5 * SECOND..=heals_at));
        match rng.pick(&kinds).copied().unwrap_or(Kill) {
            Kill => {
                acts.push((at, Act::Kill { replica }));
                acts.push((at + rng.within(100..=40 * SECOND), Act::Start { replica }));
            }
            Stop => {
                acts.push((at, Act::Stop { replica }));
                acts.push((at + rng.within(8 * SECOND..=40 * SECOND), Act::Start { replica }));
            }
            Freeze => acts.push((at, Act::Freeze { replica, lasts_for: rng.within(SECOND..=45 * SECOND) })),
            StepClock => {
                let by = *rng.pick(&[-3600 * SECOND, 3600 * SECOND, -5 * SECOND, 5 * SECOND]).unwrap_or(&0);
                acts.push((at, Act::StepClock { replica, by }));
            }
            CutLink => {
                acts.push((at, Act::Link { replica, cut: true }));
                acts.push((at + rng.within(SECOND..=2 * MINUTE), Act::Link { replica, cut: false }));
            }
            Lag => {
                acts.push((at, Act::Lag { replica, by: rng.within(SECOND..=LAG_MAX) }));
                acts.push((at + rng.within(5 * SECOND..=MINUTE), Act::Lag { replica, by: 0 }));
            }
            DropWatches => acts.push((at, Act::DropWatches { replica })),
        }
    }
    acts.retain(|(at, _)| *at < heals_at);
    acts
}

/// From this seed on, and up to those with Machines, clocks are wrong in every run.
pub const WRONG_CLOCKS_FROM: u64 = 1_000_000;

#[derive(Clone, Copy)]
enum ClockFault {
    KubeletWrong,
    KubeletDrifts,
    KubeletSteps,
    StartsWrong,
    Drifts,
    Steps,
}

/// In some runs the clocks of kubelets and controllers start wrong, drift and step. That of the API server is right, and those
/// of controllers are again when all is healed.
fn clocks(rng: &mut Rng, seed: u64, machines: &mut [MachineSpec], replicas: usize, heals_at: Millis) -> Vec<(Millis, Act)> {
    use ClockFault::{Drifts, KubeletDrifts, KubeletSteps, KubeletWrong, StartsWrong, Steps};
    if !rng.chance(20) && !(WRONG_CLOCKS_FROM..MACHINES_FROM).contains(&seed) {
        return Vec::new();
    }
    let kinds = some(rng, &[KubeletWrong, KubeletDrifts, KubeletSteps, StartsWrong, Drifts, Steps]);
    let off = |rng: &mut Rng| {
        let most = *rng.pick(&[3 * SECOND, 20 * SECOND, 10 * MINUTE, 2 * 60 * MINUTE]).unwrap_or(&0);
        rng.within(-most..=most)
    };
    let drift = |rng: &mut Rng| rng.within(-20_000..=20_000);
    let mut acts = Vec::new();
    for kind in kinds {
        match kind {
            KubeletWrong => {
                for machine in machines.iter_mut() {
                    if rng.chance(50) {
                        machine.clock.ahead = off(rng);
                    }
                }
            }
            KubeletDrifts => machines.iter_mut().for_each(|machine| machine.clock.drift = drift(rng)),
            KubeletSteps => acts.extend((0..1 + rng.below(4)).map(|_| {
                let machine = rng.below(machines.len());
                (rng.within(SECOND..=heals_at), Act::StepKubeletClock { machine, by: off(rng) })
            })),
            StartsWrong => acts.extend(
                (0..replicas).map(|replica| (0, Act::SetClock { replica, clock: HostClock { ahead: off(rng), drift: 0 } })),
            ),
            Drifts => acts.extend((0..replicas).map(|replica| {
                let clock = HostClock { ahead: 0, drift: drift(rng) };
                (rng.within(0..=MINUTE), Act::SetClock { replica, clock })
            })),
            Steps => {
                for _ in 0..1 + rng.below(5) {
                    let (replica, at) = (rng.below(replicas), rng.within(SECOND..=heals_at));
                    acts.push((at, Act::StepClock { replica, by: off(rng) }));
                    // Somebody notices.
                    let right = Act::SetClock { replica, clock: HostClock::default() };
                    acts.push((at + rng.within(SECOND..=5 * MINUTE), right));
                }
            }
        }
    }
    acts.retain(|(at, _)| *at < heals_at);
    acts
}

const LAG_MAX: Millis = 15 * SECOND;

#[derive(Clone, Copy)]
enum Order {
    DropTemplate,
    RemoveNode,
    NodeLeaves,
    Relabel,
    RemoveRemediation,
    Occupy,
}

fn orders(rng: &mut Rng, heals_at: Millis) -> Vec<(Millis, Act)> {
    use Order::{DropTemplate, NodeLeaves, Occupy, Relabel, RemoveNode, RemoveRemediation};
    let kinds = some(rng, &[DropTemplate, RemoveNode, NodeLeaves, Relabel, RemoveRemediation, Occupy]);
    let mut acts = Vec::new();
    for _ in 0..rng.below(7) {
        let at = rng.within(MINUTE..=heals_at - 1);
        match rng.pick(&kinds).copied().unwrap_or(Relabel) {
            DropTemplate => {
                acts.push((at, Act::DropTemplate));
                acts.push((at + rng.within(SECOND..=MINUTE), Act::RestoreTemplate));
            }
            RemoveNode => acts.push((at, Act::RemoveNode)),
            NodeLeaves => acts.push((at, Act::NodeLeaves)),
            Relabel => acts.push((at, Act::Relabel)),
            RemoveRemediation => acts.push((at, Act::RemoveRemediation)),
            Occupy => acts.push((at, Act::Occupy)),
        }
    }
    acts.retain(|(at, _)| *at < heals_at);
    acts
}

/// In some runs other people and programs have a say about nodes.
fn neighbours(rng: &mut Rng, heals_at: Millis) -> Vec<(Millis, Act)> {
    let (exclude, hold) = (rng.chance(20), rng.chance(30));
    let mut acts = Vec::new();
    for _ in 0..rng.below(5) {
        let at = rng.within(10 * SECOND..=heals_at - 1);
        let lasts_for = rng.within(20 * SECOND..=4 * MINUTE);
        match rng.chance(30) {
            true if exclude => acts.push((at, Act::Exclude)),
            false if hold => acts.push((at, Act::HoldNode { lasts_for })),
            true | false => {}
        }
    }
    acts
}

fn provider(rng: &mut Rng, heals_at: Millis, acts: &mut Vec<(Millis, Act)>) -> ProviderSpec {
    let mut odds = |percent: u32| if rng.chance(40) { percent } else { 0 };
    let (never, fails, holds) = (odds(30), odds(30), odds(50));
    let installed = rng.chance(85);
    if !installed {
        acts.push((rng.within(10 * SECOND..=heals_at / 2), Act::InstallProvider));
    }
    ProviderSpec { works_for: (2 * SECOND, rng.within(3 * SECOND..=40 * SECOND)), never, fails, holds, installed, idle: false }
}

fn net(rng: &mut Rng, heals_at: Millis, acts: &mut Vec<(Millis, Act)>) -> NetSpec {
    if rng.chance(30) {
        let at = rng.within(MINUTE..=heals_at - 1);
        acts.push((at, Act::Api { up: false }));
        acts.push(((at + rng.within(SECOND..=2 * MINUTE)).min(heals_at - 1), Act::Api { up: true }));
    }
    for _ in 0..rng.below(4) {
        acts.push((rng.within(SECOND..=heals_at), Act::Compact));
    }
    let latency = *rng.pick(&[5, 20, 20, 200]).unwrap_or(&20);
    let mut odds = || if rng.chance(40) { u32::try_from(rng.within(1..=8)).unwrap_or(1) } else { 0 };
    let (slow, refused, cut_before, cut_after, late) = (odds(), odds(), odds(), odds(), odds());
    let lags = acts.iter().map(|(_, act)| if let Act::Lag { by, .. } = act { *by } else { 0 });
    NetSpec { latency, slow, refused, cut_before, cut_after, late, lag_max: lags.max().unwrap_or(0) }
}
