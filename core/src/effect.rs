//! What is to be done, so exactly that doing it leaves no choice?

use crate::default_check::Workers;
use crate::facts::{Name, NodeLease, ObjectKey, Version};
use crate::lease::LeaseEffect;
use crate::nhc::{CheckStatus, Event};
use crate::time::Wall;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Read the Node plainly, past every cache, before something starts on it.
    Look {
        node: Name,
    },
    Create(Creation),
    /// Delete the object if it still is the one with this uid.
    Delete {
        key: ObjectKey,
        plural: Name,
        uid: Name,
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
    /// Which uid has the node's Machine? It shall own what is created for the node.
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
    Lease(LeaseEffect),
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
    /// The template's `spec.template.spec`, as JSON.
    pub body: Name,
    pub node: Name,
    pub template: Name,
    pub check: Name,
    pub check_uid: Name,
    pub control_plane: bool,
    /// Name and uid of the node's Machine, which owns it too.
    pub machine: Option<(Name, Name)>,
}

/// What an effect is about: two effects with the same key are never under way together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKey {
    Look(Name),
    Create(ObjectKey),
    Delete(ObjectKey, Name),
    Read(ObjectKey),
    Mark(ObjectKey, Name, u8),
    Fetch(ObjectKey),
    /// By the node's name.
    FindMachine(Name),
    Unconfirm(Name),
    /// By the lease's name.
    HoldNode(Name),
    ReleaseNode(Name),
    LeaseNamespace,
    DefaultTemplate,
    DefaultCheck,
    Discover(Name),
    ServerVersion,
    /// By the check's name, then the event's own.
    Emit(Name, Name),
    Status(Name),
    Lease,
}

impl Effect {
    pub fn key(&self) -> EffectKey {
        match self {
            Effect::Look { node } => EffectKey::Look(node.clone()),
            Effect::Create(creation) => EffectKey::Create(creation.key.clone()),
            Effect::Delete { key, uid, .. } => EffectKey::Delete(key.clone(), uid.clone()),
            Effect::Read { key, .. } => EffectKey::Read(key.clone()),
            Effect::Mark { key, uid, mark, .. } => EffectKey::Mark(key.clone(), uid.clone(), mark.number()),
            Effect::Fetch { key, .. } => EffectKey::Fetch(key.clone()),
            Effect::FindMachine { node, .. } => EffectKey::FindMachine(node.clone()),
            Effect::Unconfirm { node } => EffectKey::Unconfirm(node.clone()),
            Effect::HoldNode(hold) => EffectKey::HoldNode(hold.name.clone()),
            Effect::ReleaseNode { lease } => EffectKey::ReleaseNode(lease.name.clone()),
            Effect::LeaseNamespace => EffectKey::LeaseNamespace,
            Effect::DefaultTemplate => EffectKey::DefaultTemplate,
            Effect::DefaultCheck(_) => EffectKey::DefaultCheck,
            Effect::Discover { api_version } => EffectKey::Discover(api_version.clone()),
            Effect::ServerVersion => EffectKey::ServerVersion,
            Effect::Emit(event) => EffectKey::Emit(event.check.clone(), event.name.clone()),
            Effect::Status { check, .. } => EffectKey::Status(check.clone()),
            Effect::Lease(_) => EffectKey::Lease,
        }
    }
}

/// Who may send an effect?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everybody: it is how a leader is found.
    Election,
    /// Everybody: it only asks what is there.
    Question,
    /// Who leads: it asks about what is about to be done.
    Look,
    /// Who leads: it changes something.
    Write,
}

impl Effect {
    pub fn reach(&self) -> Reach {
        match self {
            Effect::Lease(_) => Reach::Election,
            Effect::Discover { .. } | Effect::ServerVersion => Reach::Question,
            Effect::Look { .. } | Effect::Read { .. } | Effect::Fetch { .. } | Effect::FindMachine { .. } => Reach::Look,
            Effect::Create(_)
            | Effect::Delete { .. }
            | Effect::Mark { .. }
            | Effect::Unconfirm { .. }
            | Effect::HoldNode(_)
            | Effect::ReleaseNode { .. }
            | Effect::LeaseNamespace
            | Effect::DefaultTemplate
            | Effect::DefaultCheck(_)
            | Effect::Emit(_)
            | Effect::Status { .. } => Reach::Write,
        }
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

impl EffectKey {
    /// One word for logs and metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            EffectKey::Look(_) => "look",
            EffectKey::Create(_) => "create",
            EffectKey::Delete(..) => "delete",
            EffectKey::Read(_) => "read",
            EffectKey::Mark(..) => "mark",
            EffectKey::Fetch(_) => "fetch",
            EffectKey::FindMachine(_) => "machine",
            EffectKey::Unconfirm(_) => "unconfirm",
            EffectKey::HoldNode(_) => "hold-node",
            EffectKey::ReleaseNode(_) => "release-node",
            EffectKey::LeaseNamespace => "namespace",
            EffectKey::DefaultTemplate | EffectKey::DefaultCheck => "default-check",
            EffectKey::Discover(_) => "discover",
            EffectKey::ServerVersion => "version",
            EffectKey::Emit(..) => "event",
            EffectKey::Status(_) => "status",
            EffectKey::Lease => "lease",
        }
    }
}
