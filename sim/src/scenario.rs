//! What is there, and what happens to it when?
//!
//! A scenario is data: written by hand for a demonstration, or drawn from a seed by [`crate::swarm`].

use resus_core::facts::Claim;
use serde_json::{Value, json};

use crate::clock::{HostClock, MINUTE, Millis, SECOND};
use crate::fleet::{Deed, FleetSpec};

#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub machines: Vec<MachineSpec>,
    /// How many controllers run; one of them leads.
    pub replicas: usize,
    pub flags: Flags,
    pub provider: ProviderSpec,
    /// Machines of an API beside their nodes, and checks of those.
    pub fleet: Option<FleetSpec>,
    pub net: NetSpec,
    pub acts: Vec<(Millis, Act)>,
    /// How long the node lifecycle controller waits for a heartbeat, at least and at most.
    pub patience: (Millis, Millis),
    pub begins_at: Millis,
    /// From then on nothing fails any more, and recovery is demanded.
    pub heals_at: Option<Millis>,
    pub ends_at: Millis,
}

/// How the controllers are started: the flags that change what they decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    pub short_circuit_at_limit: bool,
    pub default_check: bool,
    /// Of whose MachineHealthChecks they take care.
    pub mhc: Claim,
}

#[derive(Clone, Debug)]
pub struct MachineSpec {
    pub name: String,
    /// The server of the cluster that its Node is in; none: this one.
    pub cluster: Option<String>,
    pub zone: String,
    pub control_plane: bool,
    /// How often its kubelet renews its lease.
    pub beats_each: Millis,
    /// How often its kubelet posts a status that has not changed.
    pub posts_each: Millis,
    pub boots_for: Millis,
    /// How long it is ready, and how long it is not, while it flaps.
    pub flaps_each: Millis,
    pub clock: HostClock,
    pub pods: usize,
    pub hosts_etcd: bool,
}

impl MachineSpec {
    /// As it is called where there may be others of its name.
    pub fn title(&self) -> String {
        titled(self.cluster.as_deref(), &self.name)
    }
}

/// A node by its name, and by that of its cluster if that is another.
pub fn titled(cluster: Option<&str>, node: &str) -> String {
    cluster.map_or_else(|| node.to_owned(), |cluster| format!("{cluster}:{node}"))
}

/// What may be wrong with a machine. A reboot cures all of it but a cut network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// The power is off.
    Crash,
    KubeletStops,
    /// Alive to the network, dead to everybody else.
    Hangs,
    NetworkCut,
    /// The kubelet says itself that it is not ready.
    RuntimeDown,
    /// A problem detector posts a condition of its own.
    DiskBroken,
    /// Ready and not ready in turns.
    Flaps,
    /// Heartbeats come so rarely that it is sometimes taken for dead.
    SlowBeats,
}

impl Failure {
    pub const ALL: [Failure; 8] = [
        Failure::Crash,
        Failure::KubeletStops,
        Failure::Hangs,
        Failure::NetworkCut,
        Failure::RuntimeDown,
        Failure::DiskBroken,
        Failure::Flaps,
        Failure::SlowBeats,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Failure::Crash => "crashes",
            Failure::KubeletStops => "loses its kubelet",
            Failure::Hangs => "hangs",
            Failure::NetworkCut => "loses its network",
            Failure::RuntimeDown => "loses its container runtime",
            Failure::DiskBroken => "has a broken disk",
            Failure::Flaps => "flaps",
            Failure::SlowBeats => "beats slowly",
        }
    }
}

/// How the provider of remediations behaves, in percent of its objects.
#[derive(Clone, Debug)]
pub struct ProviderSpec {
    pub works_for: (Millis, Millis),
    pub never: u32,
    pub fails: u32,
    pub holds: u32,
    /// Its kinds are there from the beginning.
    pub installed: bool,
    /// It does nothing: somebody else plays the provider.
    pub idle: bool,
}

impl Default for ProviderSpec {
    fn default() -> ProviderSpec {
        ProviderSpec { works_for: (2 * SECOND, 5 * SECOND), never: 0, fails: 0, holds: 0, installed: true, idle: false }
    }
}

/// How requests fare, in percent of them.
#[derive(Clone, Debug)]
pub struct NetSpec {
    /// Of a whole request in good times, at most.
    pub latency: Millis,
    pub slow: u32,
    pub refused: u32,
    pub cut_before: u32,
    pub cut_after: u32,
    pub late: u32,
    /// No watch lags by more.
    pub lag_max: Millis,
}

impl NetSpec {
    pub fn good() -> NetSpec {
        NetSpec { latency: 20, slow: 0, refused: 0, cut_before: 0, cut_after: 0, late: 0, lag_max: 0 }
    }
}

#[derive(Clone, Debug)]
pub enum Act {
    Break(usize, Failure),
    /// All machines of a zone at once.
    BreakZone(String, Failure),
    Mend(usize),
    PlannedReboot(usize),
    /// Creates the check, or gives it another spec.
    Check {
        name: String,
        spec: Value,
    },
    DropCheck(String),
    PauseCheck(String, bool),
    InstallProvider,
    DropTemplate,
    RestoreTemplate,
    /// Of a node that has a remediation if there is any: its object goes, and the machine with it.
    RemoveNode,
    /// The object of such a node is deleted, but a finalizer holds it.
    NodeLeaves,
    /// Such a node gets another role.
    Relabel,
    /// Somebody else removes a remediation.
    RemoveRemediation,
    /// Somebody else's object takes the name that ours would get.
    Occupy,
    /// A node that is broken, if there is any, gets the label that excludes it.
    Exclude,
    /// Somebody else has such a node out of service for so long.
    HoldNode {
        lasts_for: Millis,
    },
    Api {
        up: bool,
    },
    /// The server forgets its history.
    Compact,
    Link {
        replica: usize,
        cut: bool,
    },
    /// The watches of the replica lag by so much from now on.
    Lag {
        replica: usize,
        by: Millis,
    },
    DropWatches {
        replica: usize,
    },
    Kill {
        replica: usize,
    },
    /// As by SIGTERM.
    Stop {
        replica: usize,
    },
    Start {
        replica: usize,
    },
    /// The process stands still.
    Freeze {
        replica: usize,
        lasts_for: Millis,
    },
    StepClock {
        replica: usize,
        by: Millis,
    },
    /// From now on the clock of the replica's host is like this.
    SetClock {
        replica: usize,
        clock: HostClock,
    },
    /// The clock of a machine jumps.
    StepKubeletClock {
        machine: usize,
        by: Millis,
    },
    /// Something is done to the herd with this number.
    Fleet(usize, Deed),
}

impl Act {
    /// One word for counters and traces.
    pub fn word(&self) -> &'static str {
        match self {
            Act::Break(_, failure) => failure.word(),
            Act::BreakZone(..) => "zone fails",
            Act::Mend(_) => "mend",
            Act::PlannedReboot(_) => "planned reboot",
            Act::Check { .. } => "check written",
            Act::DropCheck(_) => "check dropped",
            Act::PauseCheck(..) => "check paused",
            Act::InstallProvider => "provider installed",
            Act::DropTemplate => "template dropped",
            Act::RestoreTemplate => "template restored",
            Act::RemoveNode => "node removed",
            Act::NodeLeaves => "node leaves",
            Act::Relabel => "node relabelled",
            Act::RemoveRemediation => "remediation removed",
            Act::Occupy => "name occupied",
            Act::Exclude => "node excluded",
            Act::HoldNode { .. } => "node held",
            Act::Api { up: false } => "api down",
            Act::Api { up: true } => "api up",
            Act::Compact => "history compacted",
            Act::Link { cut: true, .. } => "link cut",
            Act::Link { cut: false, .. } => "link whole",
            Act::Lag { .. } => "watches lag",
            Act::DropWatches { .. } => "watches dropped",
            Act::Kill { .. } => "replica killed",
            Act::Stop { .. } => "replica stopped",
            Act::Start { .. } => "replica started",
            Act::Freeze { .. } => "replica frozen",
            Act::StepClock { .. } => "clock stepped",
            Act::SetClock { .. } => "clock set",
            Act::StepKubeletClock { .. } => "kubelet's clock stepped",
            Act::Fleet(_, deed) => deed.word(),
        }
    }
}

impl Scenario {
    /// Healthy workers `worker-1` and so on, one controller, and no faults, for ten minutes.
    pub fn calm(seed: u64, workers: usize) -> Scenario {
        let machine = |n: usize| MachineSpec {
            name: format!("worker-{n}"),
            cluster: None,
            zone: "a".to_owned(),
            control_plane: false,
            beats_each: 10 * SECOND,
            posts_each: 10 * SECOND,
            boots_for: 20 * SECOND,
            flaps_each: FLAPS_EACH,
            clock: HostClock::default(),
            pods: 1,
            hosts_etcd: false,
        };
        Scenario {
            seed,
            machines: (1..=workers).map(machine).collect(),
            replicas: 1,
            flags: Flags::default(),
            provider: ProviderSpec::default(),
            fleet: None,
            net: NetSpec::good(),
            acts: Vec::new(),
            patience: PATIENCE,
            begins_at: 0,
            heals_at: None,
            ends_at: 10 * MINUTE,
        }
    }

    #[must_use]
    pub fn at(mut self, at: Millis, act: Act) -> Scenario {
        self.acts.push((at, act));
        self
    }

    /// A check of all workers: not ready, or silent, for so many seconds.
    #[must_use]
    pub fn check(self, name: &str, seconds: u32, max_unhealthy: &str) -> Scenario {
        let spec = json!({
            "selector": {"matchExpressions": [{"key": WORKER, "operator": "Exists"}]},
            "unhealthyConditions": [
                {"type": "Ready", "status": "False", "duration": format!("{seconds}s")},
                {"type": "Ready", "status": "Unknown", "duration": format!("{seconds}s")},
            ],
            "maxUnhealthy": max_unhealthy,
            "remediationTemplate": template(TEMPLATE),
        });
        self.at(0, Act::Check { name: name.to_owned(), spec })
    }
}

/// As kube-controller-manager: 40 s by default, 50 s since Kubernetes 1.32.
pub const PATIENCE: (Millis, Millis) = (40 * SECOND, 50 * SECOND);
pub const FLAPS_EACH: Millis = 15 * SECOND;

pub const WORKER: &str = "node-role.kubernetes.io/worker";
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
pub const EXCLUDED: &str = "remediation.medik8s.io/exclude-from-remediation";
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Where resus is installed in the simulated cluster.
pub const NAMESPACE: &str = "poison-pill";
/// Where the provider keeps its objects.
pub const PROVIDER: &str = "provider";
pub const TEMPLATE: &str = "reboot";
/// Another of the same kind, which needs the same name for its objects.
pub const TEMPLATE_HARD: &str = "reboot-hard";
/// One whose provider can work on several objects for a node.
pub const TEMPLATE_OF_SEVERAL: &str = "reboot-several";
/// One that cannot be used.
pub const TEMPLATE_INVALID: &str = "broken";
/// The only one of its kind.
pub const TEMPLATE_POWER: &str = "power";

pub fn template(name: &str) -> Value {
    let kind = if name == TEMPLATE_POWER { "PowerRemediationTemplate" } else { "RebootRemediationTemplate" };
    json!({"apiVersion": "provider.test/v1", "kind": kind, "namespace": PROVIDER, "name": name})
}
