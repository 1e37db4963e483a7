//! What can we learn?

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effect::EffectKey;
use crate::etcd::EtcdPod;
use crate::facts::{
    Budget, Check, Guard, Invalid, Name, Node, NodeLease, Object, ObjectKey, OwnNamespace, Rival, RivalLease, Served, Signal,
    SignalFact, Source,
};
use crate::lease::LeaseAnswer;
use crate::mhc::facts::{Access, Cluster, ClusterKey, Dialect, Machine, MachineCheck, Place};
use crate::time::{Mono, Wall};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A list of everything in the source begins.
    Listing(Source),
    /// The list is complete: what it did not show is gone.
    Listed(Source),
    /// An object as it is, from a list or a watch.
    Seen(Fact),
    Gone(Gone),
    /// The watch is alive and has shown us everything so far.
    Heard(Source),
    /// The watch broke: what we know of the source may be out of date.
    Broken(Source),
    /// The server does not know the source's kind.
    NotServed(Source),
    /// The server does not let us list or watch it.
    Forbidden(Source),
    /// The server lets us list it, but not watch: it is listed now and then.
    Polled(Source),
    /// The source is no longer watched.
    Stopped(Source),
    /// What was sent then has been answered, with this as the date of the answer: by our own server, or that of a Cluster.
    Dated {
        cluster: Option<ClusterKey>,
        date: Wall,
        sent_at: Mono,
    },
    /// An object that cannot be read; what was known of it is in doubt.
    Unreadable {
        source: Source,
        name: Name,
        why: Name,
    },
    /// With the kubeconfig that is known of it, the Cluster cannot even be asked.
    NoAccess {
        cluster: ClusterKey,
        why: Name,
    },
    /// The Cluster's server sends more than we take.
    TooMuch {
        cluster: ClusterKey,
        why: Name,
    },
    Answered(EffectKey, Answer),
    LeaseAnswered(LeaseAnswer),
    /// The process has been asked to end: start nothing more, let go of the leadership.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    Node(Node),
    Check(Check),
    Object(Object),
    /// A CustomResourceDefinition; is it one that we installed?
    Definition {
        name: Name,
        ours: bool,
    },
    NodeLease(NodeLease),
    /// A Pod that is labelled as a member of etcd, and what the kubelet says of it if it is one of its own.
    Etcd {
        pod: Name,
        says: Option<EtcdPod>,
    },
    OwnNamespace(OwnNamespace),
    Budget {
        name: Name,
        budget: Budget,
    },
    Guard {
        pod: Name,
        guard: Guard,
    },
    Rival {
        rival: Rival,
        name: Name,
        lease: RivalLease,
    },
    /// The Machine that a node names as its own, and the node that the Machine names.
    MachineOfNode {
        uid: Name,
        node: Option<Name>,
    },
    MachineCheck(MachineCheck),
    Machine(Machine),
    Cluster(Dialect, Cluster),
    /// How the API of a Cluster is reached, or why its Secret does not say so.
    Access {
        cluster: ClusterKey,
        access: Result<Access, Invalid>,
    },
    RemoteNode(ClusterKey, Node),
    RemoteEtcd {
        cluster: ClusterKey,
        pod: Name,
        says: Option<EtcdPod>,
    },
    /// The uid of the namespace kube-system where it was asked for: no two clusters have the same.
    Identity {
        uid: Name,
    },
    /// What an API group and version serves, by kind.
    Kinds {
        api_version: Name,
        served: BTreeMap<Name, Served>,
    },
    Signal {
        signal: Signal,
        name: Name,
        says: SignalFact,
    },
    /// A whole object, as text, to be written again with a change.
    Whole {
        key: ObjectKey,
        uid: Name,
        json: Name,
    },
    /// The version of the API server.
    Server {
        version: Name,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    Node(Name),
    Check(Name),
    Object(ObjectKey, Name),
    Definition { name: Name },
    NodeLease(Name),
    Etcd { pod: Name },
    OwnNamespace(Name),
    Budget { name: Name },
    Guard { pod: Name },
    Rival { rival: Rival, name: Name },
    Signal { signal: Signal, name: Name },
    MachineCheck(Dialect, Place),
    Machine(Dialect, Place),
    Cluster(Dialect, ClusterKey),
    Access(ClusterKey),
    RemoteNode(ClusterKey, Name),
    RemoteEtcd { cluster: ClusterKey, pod: Name },
}

impl Fact {
    pub fn source(&self) -> Option<Source> {
        match self {
            Fact::Node(_) => Some(Source::Nodes),
            Fact::Check(_) => Some(Source::Checks),
            Fact::Object(object) => Some(Source::Objects(object.key.kind.clone())),
            Fact::Definition { .. } => Some(Source::Kinds),
            Fact::NodeLease(_) => Some(Source::NodeLeases),
            Fact::Etcd { .. } => Some(Source::Etcd),
            Fact::OwnNamespace(_) => Some(Source::OwnNamespace),
            Fact::Budget { .. } => Some(Source::Budgets),
            Fact::Guard { .. } => Some(Source::Guards),
            Fact::Rival { rival, .. } => Some(Source::Rivals(*rival)),
            Fact::Signal { signal, .. } => Some(Source::Signals(*signal)),
            Fact::MachineCheck(check) => Some(Source::MachineChecks(check.dialect)),
            Fact::Machine(machine) => Some(Source::Machines(machine.dialect)),
            Fact::Cluster(dialect, _) => Some(Source::Clusters(*dialect)),
            Fact::Access { cluster, .. } => Some(Source::Access(cluster.clone())),
            Fact::RemoteNode(cluster, _) => Some(Source::RemoteNodes(cluster.clone())),
            Fact::RemoteEtcd { cluster, .. } => Some(Source::RemoteEtcd(cluster.clone())),
            Fact::Kinds { .. }
            | Fact::Server { .. }
            | Fact::Whole { .. }
            | Fact::MachineOfNode { .. }
            | Fact::Identity { .. } => None,
        }
    }
}

/// How the API server answered a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Done; with what the answer showed.
    Done(Option<Fact>),
    /// There is an object of that name already.
    Exists,
    /// There is no such object.
    Missing,
    /// The object is no longer the one that we decided on.
    Conflict,
    /// Definitely not done.
    Refused { why: Name, retry_after: Option<Duration>, forbidden: bool },
    /// Done or not, nobody knows: a time-out, a lost connection, an error of the server.
    Unsure { why: Name },
}
