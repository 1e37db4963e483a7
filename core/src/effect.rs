//! What is to be done, so exactly that doing it leaves no choice?

use crate::default_check::Workers;
use crate::event::Event;
use crate::facts::{Body, Name, NodeLease, ObjectKey, Version};
use crate::lease::LeaseEffect;
use crate::mhc::facts::{ClusterKey, Dialect, MachineCheckStatus, Place, Posted, Sign, Style};
use crate::nhc::CheckStatus;
use crate::time::Wall;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Read the Node plainly, past every cache, before something starts on it.
    Look {
        /// Where it is; none: in this cluster.
        cluster: Option<ClusterKey>,
        node: Name,
    },
    /// Which cluster is this? Asked there, of what no two clusters have in common.
    Identify {
        cluster: ClusterKey,
    },
    /// Likewise for the Machine.
    LookMachine {
        place: Place,
        dialect: Dialect,
    },
    Create(Creation),
    /// Delete the object if it still is the one with this uid.
    Delete {
        key: ObjectKey,
        plural: Name,
        uid: Name,
        tells: Vec<Event>,
    },
    /// Does the object exist? Asked where an answer was lost.
    Read {
        key: ObjectKey,
        plural: Name,
    },
    /// Write an annotation of the object if it still is the one with this uid.
    Mark {
        key: ObjectKey,
        plural: Name,
        uid: Name,
        mark: Mark,
        /// The whole object, where we may update but not patch.
        whole: Option<Name>,
    },
    /// Read the whole object, to update it.
    Fetch {
        key: ObjectKey,
        plural: Name,
    },
    /// Which uid has the Machine that the node names, and is it the node's? It shall own what is created for the node.
    FindMachine {
        node: Name,
        namespace: Name,
        name: Name,
    },
    /// Take back a person's word that the node is healthy: it has been heard.
    Unconfirm {
        node: Name,
    },
    HoldNode(Hold),
    ReleaseNode {
        lease: NodeLease,
    },
    /// Make the namespace for leases on nodes.
    LeaseNamespace,
    /// Create the template that the default check refers to.
    DefaultTemplate,
    DefaultCheck(Workers),
    /// Which kinds does this API group and version serve?
    Discover {
        api_version: Name,
    },
    /// Which version does the server have?
    ServerVersion,
    Emit(Event),
    /// Write the status of the check if it still has this version.
    Status {
        check: Name,
        version: Version,
        status: CheckStatus,
        written_at: Wall,
    },
    /// Write conditions of the Machine if it still has this version.
    Sign(Signing),
    /// Ask OpenShift's actuator to power-cycle the Machine, or no longer, if it still has this version.
    PowerCycle {
        machine: Target,
        on: bool,
        tells: Vec<Event>,
    },
    /// Delete the Machine if it still has this version.
    DeleteMachine {
        machine: Target,
        tells: Vec<Event>,
    },
    /// Write the status of the MachineHealthCheck if it still has this version.
    MachineCheckStatus {
        check: Target,
        status: MachineCheckStatus,
    },
    /// Tie the MachineHealthCheck to its Cluster if it still has this version.
    Tie(Tying),
    Lease(LeaseEffect),
}

/// What ties a MachineHealthCheck to its Cluster, as far as it is missing or wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tying {
    pub check: Target,
    pub cluster: Name,
    pub cluster_uid: Name,
    /// In which the Cluster is read.
    pub dialect: Dialect,
    pub label: Option<LabelGoes>,
    pub owner: Option<OwnerGoes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelGoes {
    /// It has no labels.
    First,
    /// Beside others, or in place of a wrong one.
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerGoes {
    /// It has no owners.
    First,
    Last,
    /// In place of a Cluster of this name that is not this one.
    At(u32),
}

/// A Machine or a MachineHealthCheck, exactly as it was decided on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub place: Place,
    pub dialect: Dialect,
    pub uid: Name,
    pub version: Version,
}

/// What is to be written on a Machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signing {
    pub machine: Target,
    pub edits: Vec<Edit>,
    /// How many elements of the path to the list of each style are missing; see [`crate::mhc::facts::Board`].
    pub missing: Vec<(Style, u8)>,
    pub tells: Vec<Event>,
}

/// A change of one condition in one list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Edit {
    pub style: Style,
    pub sign: Sign,
    pub change: Change,
}

/// By the number of a condition in the list, as it is before any of the changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Replace(u32, Posted),
    /// Before the one that has this number.
    Insert(u32, Posted),
    Remove(u32),
}

/// What is written on a remediation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    TimedOut(Wall),
    /// None takes it away.
    HealthySince(Option<Wall>),
    Old,
}

/// A Lease on a node, to be created, or taken over if it still is what it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    pub name: Name,
    pub node: Name,
    pub node_uid: Box<str>,
    pub holder: Name,
    pub lasts_for: Duration,
    pub at: Wall,
    pub before: Option<NodeLease>,
}

/// A remediation object, made from a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Creation {
    pub key: ObjectKey,
    pub plural: Name,
    pub body: Body,
    pub template: Name,
    pub owner: Owner,
}

/// For whom a remediation is made, and who owns it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    Check {
        node: Name,
        check: Name,
        check_uid: Name,
        control_plane: bool,
        /// Name and uid of the node's Machine, which owns it too.
        machine: Option<(Name, Name)>,
        tells: Vec<Event>,
    },
    Machine {
        dialect: Dialect,
        name: Name,
        uid: Name,
        /// Its Cluster.
        cluster: Option<Name>,
        /// Of the MachineHealthCheck.
        check_uid: Name,
        tells: Vec<Event>,
    },
}

impl Creation {
    /// The node in this cluster that it is for.
    pub fn node(&self) -> Option<&Name> {
        match &self.owner {
            Owner::Check { node, .. } => Some(node),
            Owner::Machine { .. } => None,
        }
    }
}

/// What an effect is about: two effects with the same key are never under way together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKey {
    Look(Option<ClusterKey>, Name),
    Identify(ClusterKey),
    LookMachine(Place),
    Create(ObjectKey),
    Delete(ObjectKey, Name),
    Read(ObjectKey),
    Mark(ObjectKey, Name, u8),
    Fetch(ObjectKey),
    /// Of this node; which Machine it names may change meanwhile.
    FindMachine {
        node: Name,
        namespace: Name,
        name: Name,
    },
    Unconfirm(Name),
    /// By the lease's name.
    HoldNode(Name),
    ReleaseNode(Name),
    LeaseNamespace,
    DefaultTemplate,
    DefaultCheck,
    Discover(Name),
    ServerVersion,
    /// By what it is about, then its own name.
    Emit(ObjectKey, Name),
    Status(Name),
    Sign(Place),
    PowerCycle(Place),
    DeleteMachine(Place),
    MachineCheckStatus(Place),
    Tie(Place),
    Lease,
}

impl Effect {
    pub fn key(&self) -> EffectKey {
        match self {
            Effect::Look { cluster, node } => EffectKey::Look(cluster.clone(), node.clone()),
            Effect::Identify { cluster } => EffectKey::Identify(cluster.clone()),
            Effect::LookMachine { place, .. } => EffectKey::LookMachine(place.clone()),
            Effect::Create(creation) => EffectKey::Create(creation.key.clone()),
            Effect::Delete { key, uid, .. } => EffectKey::Delete(key.clone(), uid.clone()),
            Effect::Read { key, .. } => EffectKey::Read(key.clone()),
            Effect::Mark { key, uid, mark, .. } => EffectKey::Mark(key.clone(), uid.clone(), mark.number()),
            Effect::Fetch { key, .. } => EffectKey::Fetch(key.clone()),
            Effect::FindMachine { node, namespace, name } => {
                EffectKey::FindMachine { node: node.clone(), namespace: namespace.clone(), name: name.clone() }
            }
            Effect::Unconfirm { node } => EffectKey::Unconfirm(node.clone()),
            Effect::HoldNode(hold) => EffectKey::HoldNode(hold.name.clone()),
            Effect::ReleaseNode { lease } => EffectKey::ReleaseNode(lease.name.clone()),
            Effect::LeaseNamespace => EffectKey::LeaseNamespace,
            Effect::DefaultTemplate => EffectKey::DefaultTemplate,
            Effect::DefaultCheck(_) => EffectKey::DefaultCheck,
            Effect::Discover { api_version } => EffectKey::Discover(api_version.clone()),
            Effect::ServerVersion => EffectKey::ServerVersion,
            Effect::Emit(event) => EffectKey::Emit(event.about.clone(), event.name.clone()),
            Effect::Status { check, .. } => EffectKey::Status(check.clone()),
            Effect::Sign(signing) => EffectKey::Sign(signing.machine.place.clone()),
            Effect::PowerCycle { machine, .. } => EffectKey::PowerCycle(machine.place.clone()),
            Effect::DeleteMachine { machine, .. } => EffectKey::DeleteMachine(machine.place.clone()),
            Effect::MachineCheckStatus { check, .. } => EffectKey::MachineCheckStatus(check.place.clone()),
            Effect::Tie(tying) => EffectKey::Tie(tying.check.place.clone()),
            Effect::Lease(_) => EffectKey::Lease,
        }
    }
}

/// What holds for every request of one kind: its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// One word for logs and metrics.
    pub verb: &'static str,
    pub sender: Sender,
    pub room: Room,
    pub shown: Shown,
    pub absence: Absence,
    /// Does the answer tell the time? An aggregated API server has a clock of its own, and what it says is passed on as it is: only
    /// kinds that no such server serves are asked.
    pub tells_time: bool,
}

/// Who may send it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Everybody: it is how a leader is found.
    Candidate,
    /// Everybody: it only asks what is there.
    Everybody,
    /// Who leads: it asks about what is about to be done.
    LeaderAsks,
    /// Who leads: it changes something.
    LeaderWrites,
}

/// Does it count against the requests that are under way at once?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There are the more of them the more nodes there are.
    Counted,
    /// There are few of them; or another server is asked, which has a limit of its own, so that one that hangs takes no room from
    /// the others.
    Apart,
}

/// What tells that it was done?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Of objects that come and go the watch alone tells; an answer that overtakes it would leave a ghost.
    ByWatch,
    ByAnswer,
}

/// What does it mean that there is no such object, or not the one that was decided on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was asked whether there is one.
    Answers,
    /// The watch will say what became of it; to ask again at once would only heat the wire.
    Refuses,
}

const fn row(verb: &'static str, sender: Sender, room: Room, shown: Shown, absence: Absence) -> Nature {
    Nature { verb, sender, room, shown, absence, tells_time: false }
}

impl EffectKey {
    pub fn nature(&self) -> Nature {
        use self::{Absence::*, Room::*, Sender::*, Shown::*};
        match self {
            EffectKey::Look(None, _) => Nature { tells_time: true, ..row("look", LeaderAsks, Counted, ByAnswer, Refuses) },
            EffectKey::Look(Some(_), _) => Nature { tells_time: true, ..row("look", LeaderAsks, Apart, ByAnswer, Refuses) },
            EffectKey::Identify(_) => Nature { tells_time: true, ..row("identify", Everybody, Apart, ByAnswer, Answers) },
            EffectKey::LookMachine(_) => row("look", LeaderAsks, Counted, ByAnswer, Refuses),
            EffectKey::Create(_) => row("create", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::Delete(..) => row("delete", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::Read(_) => row("read", LeaderAsks, Counted, ByAnswer, Answers),
            EffectKey::Mark(..) => row("mark", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::Fetch(_) => row("fetch", LeaderAsks, Counted, ByAnswer, Answers),
            EffectKey::FindMachine { .. } => row("machine", LeaderAsks, Counted, ByAnswer, Answers),
            EffectKey::Unconfirm(_) => row("unconfirm", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::HoldNode(_) => row("hold-node", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::ReleaseNode(_) => row("release-node", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::LeaseNamespace => row("namespace", LeaderWrites, Apart, ByAnswer, Refuses),
            EffectKey::DefaultTemplate | EffectKey::DefaultCheck => row("default-check", LeaderWrites, Apart, ByAnswer, Refuses),
            EffectKey::Discover(_) => row("discover", Everybody, Apart, ByAnswer, Answers),
            EffectKey::ServerVersion => row("version", Everybody, Apart, ByAnswer, Answers),
            EffectKey::Emit(..) => row("event", LeaderWrites, Apart, ByAnswer, Refuses),
            EffectKey::Status(_) | EffectKey::MachineCheckStatus(_) => row("status", LeaderWrites, Apart, ByAnswer, Refuses),
            EffectKey::Sign(_) => row("sign", LeaderWrites, Counted, ByAnswer, Refuses),
            EffectKey::PowerCycle(_) => row("power-cycle", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::DeleteMachine(_) => row("delete-machine", LeaderWrites, Counted, ByWatch, Refuses),
            EffectKey::Tie(_) => row("tie", LeaderWrites, Apart, ByAnswer, Refuses),
            EffectKey::Lease => Nature { tells_time: true, ..row("lease", Candidate, Apart, ByAnswer, Refuses) },
        }
    }

    /// The Cluster whose server is asked; none: our own.
    pub fn cluster(&self) -> Option<&ClusterKey> {
        if let EffectKey::Look(Some(cluster), _) | EffectKey::Identify(cluster) = self { Some(cluster) } else { None }
    }
}

impl Mark {
    /// Marks of one kind are not written at the same time.
    fn number(self) -> u8 {
        match self {
            Mark::TimedOut(_) => 0,
            Mark::HealthySince(_) => 1,
            Mark::Old => 2,
        }
    }
}
