//! What does a seed draw about Machines?

use resus_core::mhc::facts::{Dialect, Flavour};
use serde_json::{Value, json};

use crate::clock::{HostClock, MINUTE, Millis, SECOND};
use crate::fleet::play::{MASTERS, POOL, STRAYS, WORKERS};
use crate::fleet::{Deed, FleetSpec, HerdSpec, Kubeconfig, Meddling, OwnerSpec, RemediatorSpec};
use crate::machinery::CheckSpec;
use crate::rng::Rng;
use crate::scenario::{Act, FLAPS_EACH, MachineSpec};

/// From this seed on there are Machines in every run.
pub const MACHINES_FROM: u64 = 2_000_000;

/// Number of machines in this cluster, at most, where its nodes have Machines.
const WITH_MACHINES_MAX: usize = 8;
/// Likewise where only those of other clusters have, so that a run takes no longer than others.
const BESIDE_OTHERS_MAX: usize = 4;

/// Adds the machines of other clusters, and what happens to the fleet.
pub fn draw(seed: u64, heals_at: Millis, machines: &mut Vec<MachineSpec>, acts: &mut Vec<(Millis, Act)>) -> Option<FleetSpec> {
    if seed < MACHINES_FROM {
        return None;
    }
    let mut rng = Rng::of(seed, "fleet");
    let dialect =
        *rng.pick(&[Dialect::V1beta2, Dialect::V1beta2, Dialect::V1beta1, Dialect::OpenShift]).unwrap_or(&Dialect::V1beta2);
    let names: &[&str] = match (dialect.flavour(), rng.below(4)) {
        (Flavour::OpenShift, _) | (Flavour::ClusterApi, 0) => &[],
        (Flavour::ClusterApi, 3) => &["blue", "red"],
        (Flavour::ClusterApi, _) => &["blue"],
    };
    machines.truncate(if names.is_empty() { WITH_MACHINES_MAX } else { BESIDE_OTHERS_MAX });
    let herds: Vec<HerdSpec> = match names {
        [] => vec![herd(&mut rng, "fleet", false, (0..machines.len()).collect())],
        names => names.iter().map(|name| away(&mut rng, name, machines)).collect(),
    };
    for (number, herd) in herds.iter().enumerate() {
        let mut rng = Rng::of(seed, &format!("deeds {}", herd.name));
        let mut deeds = checks(&mut rng, dialect, herd, heals_at);
        deeds.extend(troubles(&mut rng, dialect, herd, heals_at));
        acts.extend(deeds.into_iter().map(|(at, deed)| (at, Act::Fleet(number, deed))));
    }
    Some(FleetSpec { dialect, herds })
}

/// Its machines have the names of those here: nobody may mix them up.
fn away(rng: &mut Rng, name: &str, machines: &mut Vec<MachineSpec>) -> HerdSpec {
    let (masters, workers) = (*rng.pick(&[0, 1, 3]).unwrap_or(&0), rng.below(5) + 2);
    let (hosts_etcd, first) = (rng.chance(60), machines.len());
    for n in 0..masters + workers {
        let is_master = n < masters;
        machines.push(MachineSpec {
            name: if is_master { format!("cp-{n}") } else { format!("worker-{}", n - masters) },
            cluster: Some(name.to_owned()),
            zone: ["a", "b", "c"][n % 3].to_owned(),
            control_plane: is_master,
            beats_each: rng.within(8 * SECOND..=11 * SECOND),
            flaps_each: FLAPS_EACH,
            posts_each: 30 * SECOND,
            boots_for: rng.within(5 * SECOND..=60 * SECOND),
            clock: HostClock::default(),
            pods: 0,
            hosts_etcd: is_master && hosts_etcd,
        });
    }
    herd(rng, name, true, (first..machines.len()).collect())
}

fn herd(rng: &mut Rng, name: &str, is_away: bool, hosts: Vec<usize>) -> HerdSpec {
    let are_stray = rng.chance(40);
    let strays = hosts.iter().copied().filter(|_| are_stray && rng.chance(25)).collect();
    let mut odds = |percent: u32| if rng.chance(30) { percent } else { 0 };
    let (never, holds, stuck) = (odds(30), odds(50), odds(40));
    let works_for = (2 * SECOND, rng.within(3 * SECOND..=30 * SECOND));
    HerdSpec {
        name: name.to_owned(),
        is_away,
        hosts,
        strays,
        owner: OwnerSpec {
            is_idle: rng.chance(20),
            looks_each: rng.within(SECOND..=15 * SECOND),
            in_flight_max: *rng.pick(&[None, None, Some(1), Some(2)]).unwrap_or(&None),
        },
        remediator: RemediatorSpec { works_for, never, holds },
        boots_for: rng.within(2 * SECOND..=20 * SECOND),
        leaves_for: rng.within(SECOND..=15 * SECOND),
        stuck,
        says_who: rng.chance(50),
    }
}

fn checks(rng: &mut Rng, dialect: Dialect, herd: &HerdSpec, heals_at: Millis) -> Vec<(Millis, Deed)> {
    let mut deeds = Vec::new();
    for n in 0..[1, 1, 2, 3][rng.below(4)] {
        let name = format!("check-{n}");
        let at = if rng.chance(70) { 0 } else { rng.within(0..=heals_at / 2) };
        let written = |rng: &mut Rng| Deed::Check { name: name.clone(), spec: spec(rng, dialect, herd, n == 0) };
        deeds.push((at, written(rng)));
        if rng.chance(20) {
            let from = rng.within(at..=heals_at);
            deeds.push((from, Deed::PauseCheck(name.clone(), true)));
            deeds.push((rng.within(from..=heals_at), Deed::PauseCheck(name.clone(), rng.chance(10))));
        }
        if rng.chance(20) {
            deeds.push((rng.within(at..=heals_at), written(rng)));
        }
        if rng.chance(10) {
            let dropped = rng.within(at..=heals_at);
            deeds.push((dropped, Deed::DropCheck(name.clone())));
            deeds.push((rng.within(dropped..=heals_at), written(rng)));
        }
    }
    deeds
}

/// `is_plain`: nothing that keeps it from acting.
fn spec(rng: &mut Rng, dialect: Dialect, herd: &HerdSpec, is_plain: bool) -> Value {
    let seconds = |rng: &mut Rng| rng.within(5..=90);
    let mut on_nodes = vec![("Ready", "False", seconds(rng)), ("Ready", "Unknown", seconds(rng))];
    let disk = ("DiskBroken", "True", seconds(rng));
    on_nodes.extend(rng.chance(50).then_some(disk));
    let selector = match rng.below(6) {
        0 => json!({"matchLabels": {POOL: MASTERS}}),
        1 | 2 => json!({"matchLabels": {POOL: WORKERS}}),
        3 if !is_plain => json!({"matchLabels": {POOL: STRAYS}}),
        _ => json!({"matchLabels": {"fleet": "all"}}),
    };
    let (limit, range) = match rng.below(8) {
        0 | 1 => (Some(json!(rng.within(1..=3))), None),
        2 => (Some(json!(format!("{}%", rng.within(20..=80)))), None),
        // OpenShift has no ranges.
        3 if dialect.flavour() == Flavour::ClusterApi => (None, Some(["[1-2]", "[1-3]", "[2-4]"][rng.below(3)].to_owned())),
        4 if !is_plain => (Some(json!(0)), None),
        _ => (None, None),
    };
    let template = match rng.below(8) {
        0..=3 => None,
        4 if !is_plain => Some("missing"),
        5 if !is_plain => Some("broken"),
        _ => Some("reboot"),
    };
    let check = CheckSpec {
        selector,
        cluster: herd.is_away.then(|| herd.name.clone()),
        on_nodes,
        on_machines: Vec::new(),
        startup: *rng.pick(&[None, Some(0), Some(60), Some(60), Some(100)]).unwrap_or(&None),
        limit,
        range,
        template: template.map(str::to_owned),
    };
    let mut spec = check.spec(dialect);
    if dialect == Dialect::OpenShift && rng.chance(30) {
        spec["strategy"] = json!("external-baremetal");
    }
    spec
}

#[derive(Clone, Copy)]
enum Trouble {
    DropTemplate,
    Server,
    Hang,
    Kubeconfig,
    PauseCluster,
    Meddle(Meddling),
}

/// In each run some kinds of troubles are switched off.
fn troubles(rng: &mut Rng, dialect: Dialect, herd: &HerdSpec, heals_at: Millis) -> Vec<(Millis, Deed)> {
    use Meddling::{AskForRepair, Delete, Fail, OccupyName, RemoveNode, RemoveRepair, Skip};
    use Trouble::{DropTemplate, Hang, Kubeconfig as Access, Meddle, PauseCluster, Server};
    let everywhere = [DropTemplate, Meddle(Delete), Meddle(RemoveNode), Meddle(RemoveRepair), Meddle(OccupyName)];
    let of_dialect: &[Trouble] = match dialect.flavour() {
        Flavour::ClusterApi => &[Meddle(AskForRepair), Meddle(Skip)],
        Flavour::OpenShift => &[Meddle(Fail)],
    };
    let of_cluster: &[Trouble] = if herd.is_away { &[Server, Hang, Access, Access, PauseCluster] } else { &[] };
    let all = everywhere.iter().chain(of_dialect).chain(of_cluster).copied();
    let kinds: Vec<Trouble> = all.filter(|_| rng.chance(50)).collect();
    let mut deeds = Vec::new();
    for _ in 0..rng.below(9) {
        let (at, lasts_for) = (rng.within(40 * SECOND..=heals_at - 1), rng.within(SECOND..=2 * MINUTE));
        let Some(kind) = rng.pick(&kinds) else { break };
        let (deed, back) = match kind {
            DropTemplate => (Deed::DropTemplate, Some(Deed::RestoreTemplate)),
            Server => (Deed::Server { up: false }, Some(Deed::Server { up: true })),
            Hang => (Deed::Hang(true), Some(Deed::Hang(false))),
            Access => {
                let mut all = vec![Kubeconfig::Renewed, Kubeconfig::Missing, Kubeconfig::Nonsense];
                // Who begins while another cluster is behind it cannot know better otherwise.
                all.extend(herd.says_who.then_some(Kubeconfig::Elsewhere));
                let drawn = rng.pick(&all).copied().unwrap_or(Kubeconfig::Renewed);
                (Deed::Kubeconfig(drawn), Some(Deed::Kubeconfig(Kubeconfig::Right)))
            }
            PauseCluster => (Deed::PauseCluster(true), Some(Deed::PauseCluster(false))),
            Meddle(meddling) => (Deed::Meddle(*meddling), None),
        };
        deeds.push((at, deed));
        deeds.extend(back.map(|back| ((at + lasts_for).min(heals_at - 1), back)));
    }
    deeds
}
