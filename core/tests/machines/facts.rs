//! Facts as the tests need them: what is not said about them is as it is when all is well.

use std::time::Duration;

use resus_core::facts::{
    Check, Condition, Invalid, Kind, Labels, Node, Object, ObjectKey, ProviderId, Rival, RivalLease, Rule, Selector, Status,
    Version,
};
use resus_core::input::Fact;
use resus_core::mhc::facts::{
    Board, Budget, CLUSTER_LABEL, Cluster, ClusterKey, Dialect, Machine, MachineCheck, MachineCheckStatus, MachinePolicy, Marks,
    Place, Posted, Repair, Slot, Style, Ties,
};
use resus_core::nhc::CheckStatus;
use resus_core::time::Wall;

/// Wall time when the monotonic clock shows zero.
pub const EPOCH: i64 = 1_800_000_000_000;

pub fn up(key: &ClusterKey) -> Cluster {
    Cluster {
        key: key.clone(),
        uid: format!("uid-{}", key.name).into(),
        identity: None,
        paused: false,
        control_plane_initialized_at: Some(Wall(EPOCH)),
        infrastructure_ready_at: Some(Wall(EPOCH)),
    }
}

pub fn definition(dialect: Dialect) -> Fact {
    Fact::Definition { name: format!("machinehealthchecks.{}", dialect.flavour().group()).into(), ours: false }
}

pub fn template_kind() -> Kind {
    Kind { api_version: "repair.test/v1".into(), kind: "CycleTemplate".into() }
}

/// What is made from such a template.
pub fn remediation_kind() -> Kind {
    Kind { api_version: "repair.test/v1".into(), kind: "Cycle".into() }
}

/// A NodeHealthCheck of somebody else.
pub fn foreign_node_check(uid: &str) -> Check {
    Check {
        name: "nhc".into(),
        uid: uid.into(),
        version: Version("1".into()),
        created_at: Wall(EPOCH),
        deleting: false,
        take_over: false,
        is_default: false,
        policy: Err(Invalid("it makes no sense".into())),
        status: CheckStatus::default(),
    }
}

pub fn by_template() -> Repair {
    Repair::Template { kind: template_kind(), name: "cycle".into() }
}

pub fn check(dialect: Dialect, name: &str, repair: Repair, budget: Budget) -> MachineCheck {
    let rule = |status| Rule { kind: "Ready".into(), status, lasts_for: Duration::from_secs(300) };
    MachineCheck {
        place: Place { flavour: dialect.flavour(), namespace: "ns".into(), name: name.into() },
        dialect,
        uid: format!("uid-{name}").into(),
        version: Version("1".into()),
        generation: 1,
        created_at: Wall(EPOCH),
        deleting: false,
        take_over: false,
        paused: false,
        cluster: None,
        ties: Ties::default(),
        policy: Ok(MachinePolicy {
            selector: Selector::default(),
            node_rules: vec![rule(Status::False), rule(Status::Unknown)],
            machine_rules: Vec::new(),
            startup_timeout: Some(Duration::from_secs(600)),
            budget,
            repair,
        }),
        status: MachineCheckStatus::default(),
    }
}

pub fn machine(dialect: Dialect, n: usize, created_at: Wall) -> Machine {
    let board = |style: &Style| Board { style: *style, missing: 1, slots: [const { Slot::Before(0) }; 3] };
    Machine {
        place: Place { flavour: dialect.flavour(), namespace: "ns".into(), name: format!("m{n}").into() },
        dialect,
        uid: format!("uid-m{n}").into(),
        version: Version("1".into()),
        generation: 1,
        created_at,
        deleting: false,
        labels: Labels::from_iter([(CLUSTER_LABEL, "blue")]),
        marks: Marks::default(),
        has_controller: true,
        parts: [].into(),
        node: Some(format!("n{n}").into()),
        provider_id: ProviderId::new(&format!("cloud:///{n}")),
        failed: false,
        updated_at: Some(created_at),
        conditions: [].into(),
        boards: dialect.styles().iter().map(board).collect(),
    }
}

pub fn node(n: usize, since: Wall) -> Node {
    Node {
        name: format!("n{n}").into(),
        uid: format!("uid-n{n}").into(),
        created_at: since,
        version: Version("1".into()),
        labels: Labels::default(),
        annotations: [].into(),
        conditions: [ready_since(Status::True, since)].into(),
        reported_at: [].into(),
        taints: [].into(),
        boot_id: "b".into(),
        kubelet_version: "v1".into(),
        provider_id: ProviderId::new(&format!("cloud:///{n}")),
        unschedulable: false,
        deleting: false,
    }
}

pub fn ready_since(status: Status, since: Wall) -> Condition {
    Condition { kind: "Ready".into(), status, since, reason: "Test".into() }
}

pub fn object(key: ObjectKey, version: u64) -> Object {
    Object {
        uid: format!("uid-{version}").into(),
        version: Version(version.to_string().into()),
        created_at: Wall(EPOCH),
        deleting: false,
        finalizers: 0,
        owners: [].into(),
        node: key.name.clone(),
        template: None,
        allows_several: false,
        control_plane: false,
        processing: false,
        expects_node_to_go: false,
        succeeded: None,
        timed_out: false,
        healthy_since: None,
        flagged_old: false,
        machine_check: None,
        body: None,
        key,
    }
}

/// As somebody else would write it.
pub fn posted(status: Status, reason: &str) -> Posted {
    Posted {
        status,
        reason: reason.into(),
        severity: None,
        message: "".into(),
        since: Wall(EPOCH),
        observed_generation: None,
        ours: false,
    }
}

pub fn rival(rival: Rival, at: Wall) -> (Rival, RivalLease) {
    (rival, RivalLease { holder: "somebody".into(), renewed_at: at, lasts_for: Duration::from_secs(15) })
}
