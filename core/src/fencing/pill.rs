//! What is the next step to fence a node, and why no further one?
//!
//! The controller's side, for one remediation. Everything that is decided here rests on plain reads and on answers to writes,
//! each with the instant at which it was asked for; every write names the version that it was decided on. What a leader knows by
//! itself, [`Watch`], is only how long it has known something: another leader begins to wait anew.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::{Order, Seen};
use super::roll::Roll;
use super::terms::LOOK_AFTER;
use crate::facts::{Name, Version};
use crate::time::{Mono, Wall};

/// A remediation by poison pill.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    pub node: Name,
    /// Its uid.
    pub remediation: Name,
    pub strategy: Strategy,
    /// The remediation is being deleted: the node is well again, or somebody else takes over.
    pub ending: bool,
    /// As it stands in the remediation's status: written before the order is.
    pub noted: Option<Noted>,
    /// How long a node without a watchdog is waited for. It may raise a bound, never lower it.
    pub safe_time: Option<Duration>,
    /// Nodes without a watchdog are not released by time.
    pub require_assured: bool,
    pub word: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    OutOfServiceTaint,
    ResourceDeletion,
    NodeDeletion,
}

/// The boot that must die, and when that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Noted {
    pub boot: Name,
    pub at: Wall,
    /// What ran there was released, and is gone.
    pub released: bool,
}

/// What is known of the node's end by other means than time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    None,
    /// F2: its BMC, known by the system's UUID, has said twice that it is off, and we keep it off.
    KeptOff,
    /// F3: a person says so.
    Confirmed,
}

/// Something as it was read, and when it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read<T> {
    pub asked_at: Mono,
    pub found: T,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub uid: Name,
    pub version: Version,
    pub boot: Name,
    pub cordoned: bool,
    pub hold: Hold,
}

/// Our taint on a node, or the one that says that it is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    None,
    Held,
    Released,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub uid: Name,
    /// It has a deletionTimestamp.
    pub marked: bool,
    /// It tolerates the hold, so that Kubernetes does not mark it and a kubelet would start it.
    pub tolerates: bool,
    /// Of a DaemonSet, or a mirror of what the kubelet runs by itself: nobody runs it elsewhere.
    pub local: bool,
}

/// What was read. None: not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    pub node: Option<Read<Option<Node>>>,
    pub lease: Option<Read<Option<Seen>>>,
    pub roll: Option<Read<Roll>>,
    /// The numbers of the roll that electors show.
    pub acks: BTreeMap<Name, u64>,
    /// The version of the kubelet's own Lease; it moves with each heartbeat.
    pub kubelet: Option<Read<Option<Version>>>,
    pub pods: Option<Read<Vec<Pod>>>,
}

/// For how long this leader has known what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watch {
    ordered: Option<Ordered>,
    held: Option<Held>,
}

/// An order stands in this version of the Lease, for this boot. Nobody writes there any more, unless another has its name: what was ordered
/// then was ordered anew.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ordered {
    lease: Name,
    version: Version,
    boot: Name,
    at: Mono,
    /// Since when enough electors are known to know of it. They never forget: who restarts says nothing until it has read the roll.
    acknowledged_at: Option<Mono>,
}

/// The hold stands on this node, whose boot is dead and whose pods are marked, and what the Leases of its kubelet and of its agent showed when
/// that was known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    node: Name,
    at: Mono,
    kubelet: Option<Read<Option<Version>>>,
    lease: Option<Read<Option<Version>>>,
}

/// What is to be done next. Each is one request, and names all that it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read these plainly.
    Look(Looks),
    Cordon(Version),
    /// Write the boot and the time into the remediation's status.
    Note {
        boot: Name,
    },
    Order {
        lease: Version,
        order: Order,
    },
    /// The roll has to have the order.
    Enter {
        boot: Name,
    },
    Hold(Version),
    /// Only now is anything released.
    Commit(Version, Strategy),
    DeletePods(Vec<Name>),
    DeleteNode {
        uid: Name,
        version: Version,
    },
    /// Write into the remediation's status that all of it is released, so that nobody does it again.
    NoteReleased,
    /// Take the taints away.
    Unhold(Version),
    Uncordon(Version),
    Wait {
        why: Why,
        until: Option<Mono>,
    },
    /// Nothing is left to do, but to wait until the node is well, or the remediation goes.
    Done(Done),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Looks {
    Node,
    Lease,
    /// With the numbers that electors show.
    Roll,
    Kubelet,
    Pods,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Done {
    /// What ran there was released.
    Released,
    /// It came back first: nothing was forced.
    Back,
    /// There is nothing left of the fencing.
    Cleared,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// There is no agent in this boot: no Lease, or one of another boot.
    NoAgent,
    /// Its Lease promises nothing. Time proves nothing then.
    NoPromise,
    /// It has no watchdog, and the template demands one.
    NotAssured,
    /// So many of the electors with which it counts know of the order.
    Acknowledging {
        know: usize,
        needed: usize,
    },
    /// The list with which it counts is lost.
    ListLost,
    /// It dies by then.
    Dying,
    /// The hold has to be seen by a kubelet that may just be booting.
    Holding,
    /// These have not been marked for deletion.
    NotMarked {
        pods: Vec<Name>,
    },
    /// These tolerate the hold: a kubelet would start them.
    Tolerate {
        pods: Vec<Name>,
    },
    NodeGone,
    PodsLeaving,
}

impl Watch {
    /// Takes note of what the facts show for the first time.
    pub fn see(&mut self, case: &Case, facts: &Facts, now: Mono) {
        let lease = found(&facts.lease).and_then(Option::as_ref);
        // Whoever gave it, it is for this boot.
        let order = case.noted.as_ref().zip(lease).filter(|(noted, lease)| lease.orders(&noted.boot));
        self.ordered = order.map(|(noted, lease)| {
            let is_known =
                |known: &Ordered| (&known.lease, &known.version, &known.boot) == (&lease.uid, &lease.version, &noted.boot);
            let known = self.ordered.take().filter(is_known);
            let (at, acknowledged_at) = known.map_or((now, None), |known| (known.at, known.acknowledged_at));
            let is_enough = || matches!(acknowledgements(case, lease, facts), Acks::Enough);
            let acknowledged_at = acknowledged_at.or_else(|| is_enough().then_some(now));
            Ordered { lease: lease.uid.clone(), version: lease.version.clone(), boot: noted.boot.clone(), at, acknowledged_at }
        });
        // A hold that somebody put there sooner, on a node that still lives, is not looked at yet; nor is one that has not marked all pods,
        // as a kubelet may heed their marks alone.
        let is_dead = case.noted.as_ref().is_some_and(|noted| self.is_dead(case, noted, lease, facts, now).is_ok());
        let is_ready = is_dead && found(&facts.pods).is_some_and(|pods| unready(case, pods).is_none());
        let node = found(&facts.node).and_then(Option::as_ref).filter(|node| node.hold == Hold::Held && is_ready);
        self.held = match (node, self.held.take()) {
            (Some(node), Some(held)) if held.node == node.uid => {
                // The first that was asked for after the hold was known: from then on it must not move.
                let is_after = |asked_at: Mono| asked_at >= held.at;
                let kubelet = held.kubelet.or_else(|| facts.kubelet.clone().filter(|read| is_after(read.asked_at)));
                let lease = held.lease.or_else(|| version(&facts.lease).filter(|read| is_after(read.asked_at)));
                Some(Held { kubelet, lease, ..held })
            }
            (Some(node), _) => Some(Held { node: node.uid.clone(), at: now, kubelet: None, lease: None }),
            (None, _) => None,
        };
    }

    /// The same at an instant zero, where what is older than `kept_for` is not told apart: see [`super::agent::Agent::rebased`].
    #[must_use]
    pub fn rebased(mut self, now: Mono, kept_for: Duration) -> Watch {
        let past = |at: Mono| at.shift(-now.0).max(Mono(0).shift(-i64::try_from(kept_for.as_millis()).unwrap_or(i64::MAX)));
        if let Some(Ordered { at, acknowledged_at, .. }) = &mut self.ordered {
            *at = past(*at);
            *acknowledged_at = acknowledged_at.map(past);
        }
        if let Some(Held { at, kubelet, lease, .. }) = &mut self.held {
            *at = past(*at);
            for read in kubelet.iter_mut().chain(lease) {
                read.asked_at = past(read.asked_at);
            }
        }
        self
    }

    pub fn next(&self, case: &Case, facts: &Facts, now: Mono) -> Step {
        let Some(node) = found(&facts.node) else { return Step::Look(Looks::Node) };
        let Some(node) = node else { return without_node(case) };
        match (node.hold, case.ending) {
            (Hold::Released, _) => release(case, node, facts),
            (Hold::None | Hold::Held, true) => undo(node),
            (Hold::None | Hold::Held, false) => self.fence(case, node, facts, now),
        }
    }

    fn fence(&self, case: &Case, node: &Node, facts: &Facts, now: Mono) -> Step {
        let Some(noted) = &case.noted else {
            return if node.cordoned { Step::Note { boot: node.boot.clone() } } else { Step::Cordon(node.version.clone()) };
        };
        if noted.released {
            return if node.hold == Hold::None { Step::Done(Done::Released) } else { Step::Unhold(node.version.clone()) };
        }
        if node.boot != noted.boot {
            return Step::Done(Done::Back);
        }
        if !node.cordoned {
            return Step::Cordon(node.version.clone());
        }
        let Some(lease) = found(&facts.lease) else { return Step::Look(Looks::Lease) };
        match self.is_dead(case, noted, lease.as_ref(), facts, now) {
            Err(step) => step,
            Ok(()) => self.release_safely(case, node, lease.as_ref(), facts, now),
        }
    }

    /// F1, F2 or F3: is it certain that the boot has ended?
    fn is_dead(&self, case: &Case, noted: &Noted, lease: Option<&Seen>, facts: &Facts, now: Mono) -> Result<(), Step> {
        let wait = |why: Why, until: Option<Mono>| Err(Step::Wait { why, until });
        let by_other_means = case.word != Word::None;
        let lease = match lease {
            Some(lease) if lease.claim.boot == noted.boot => lease,
            Some(_) | None if by_other_means => return Ok(()),
            Some(_) | None => return wait(Why::NoAgent, None),
        };
        let order = Order { boot: noted.boot.clone(), remediation: case.remediation.clone() };
        let Some(ordered) = self.ordered.as_ref().filter(|_| lease.orders(&noted.boot)) else {
            return Err(Step::Order { lease: lease.version.clone(), order });
        };
        if by_other_means {
            return Ok(());
        }
        let entered = found(&facts.roll).map(|roll| roll.entry(&case.node, &noted.boot).is_some());
        match entered {
            None => return Err(Step::Look(Looks::Roll)),
            Some(false) => return Err(Step::Enter { boot: noted.boot.clone() }),
            Some(true) => {}
        }
        let (since, bound) = match lease.claim.bound {
            Some(bound) => match (ordered.acknowledged_at, acknowledgements(case, lease, facts)) {
                (Some(known_at), _) => (known_at, bound.max(case.safe_time.unwrap_or_default())),
                (None, Acks::Enough) => return wait(Why::Dying, None),
                (None, Acks::Lost) => return wait(Why::ListLost, None),
                (None, Acks::Few { know, needed }) => return wait(Why::Acknowledging { know, needed }, None),
            },
            None if lease.claim.assured => return wait(Why::NoPromise, None),
            None if case.require_assured => return wait(Why::NotAssured, None),
            None => (ordered.at, case.safe_time.unwrap_or(SAFE_TIME)),
        };
        let dead_at = since.after(bound);
        if now >= dead_at { Ok(()) } else { wait(Why::Dying, Some(dead_at)) }
    }

    /// Hold, look, commit: another boot may have begun meanwhile.
    fn release_safely(&self, case: &Case, node: &Node, lease: Option<&Seen>, facts: &Facts, now: Mono) -> Step {
        if node.hold != Hold::Held {
            return Step::Hold(node.version.clone());
        }
        let Some(pods) = found(&facts.pods) else { return Step::Look(Looks::Pods) };
        if let Some(why) = unready(case, pods) {
            return Step::Wait { why, until: None };
        }
        let Some(held) = self.held.as_ref().filter(|held| held.node == node.uid) else { return Step::Look(Looks::Node) };
        let Some(kubelet_then) = &held.kubelet else { return Step::Look(Looks::Kubelet) };
        let Some(lease_then) = &held.lease else { return Step::Look(Looks::Lease) };
        let look_at = kubelet_then.asked_at.max(lease_then.asked_at).after(LOOK_AFTER);
        if now < look_at {
            return Step::Wait { why: Why::Holding, until: Some(look_at) };
        }
        // Everything once more, asked for after that.
        let is_late = |asked_at: Option<Mono>| asked_at.is_some_and(|at| at >= look_at);
        let looks = [
            (Looks::Node, is_late(facts.node.as_ref().map(|read| read.asked_at))),
            (Looks::Lease, is_late(facts.lease.as_ref().map(|read| read.asked_at))),
            (Looks::Kubelet, is_late(facts.kubelet.as_ref().map(|read| read.asked_at))),
            (Looks::Pods, is_late(facts.pods.as_ref().map(|read| read.asked_at))),
        ];
        if let Some((look, _)) = looks.into_iter().find(|(_, is_late)| !is_late) {
            return Step::Look(look);
        }
        let has_moved = facts.kubelet.as_ref().is_some_and(|read| read.found != kubelet_then.found)
            || version(&facts.lease).is_some_and(|read| read.found != lease_then.found);
        if has_moved {
            return Step::Done(Done::Back);
        }
        // Whoever was ordered has to be the one that is looked at; without a Lease there was no order to obey.
        if case.word == Word::None && self.ordered.as_ref().map(|ordered| &ordered.lease) != lease.map(|lease| &lease.uid) {
            return Step::Wait { why: Why::NoAgent, until: None };
        }
        Step::Commit(node.version.clone(), case.strategy)
    }
}

/// By our hand it goes only when all of it was released.
fn without_node(case: &Case) -> Step {
    match &case.noted {
        _ if case.ending => Step::Done(Done::Cleared),
        Some(noted) if noted.released => Step::Done(Done::Released),
        Some(_) | None => Step::Wait { why: Why::NodeGone, until: None },
    }
}

/// How long a node without a watchdog is waited for, as in the reference.
const SAFE_TIME: Duration = Duration::from_secs(180);

enum Acks {
    Enough,
    Few { know: usize, needed: usize },
    Lost,
}

/// At least half of the electors with which the node counts, itself among them if it is one, have to know of the order: then more than
/// half never say that they know of none.
fn acknowledgements(case: &Case, lease: &Seen, facts: &Facts) -> Acks {
    let Some(roll) = found(&facts.roll) else { return Acks::Lost };
    let Some(entry) = roll.entry(&case.node, &lease.claim.boot) else { return Acks::Lost };
    // Who names no list counts with none, and cannot win a vote.
    if lease.claim.roll == 0 {
        return Acks::Enough;
    }
    let Some(list) = roll.list(lease.claim.roll) else { return Acks::Lost };
    let knows = |elector: &&Name| **elector != case.node && facts.acks.get(*elector).is_some_and(|number| *number >= entry.since);
    let (know, needed) = (list.iter().filter(knows).count(), list.len().div_ceil(2));
    if know >= needed { Acks::Enough } else { Acks::Few { know, needed } }
}

/// Which pods forbid to release the node?
fn unready(case: &Case, pods: &[Pod]) -> Option<Why> {
    let of =
        |is: fn(&Pod) -> bool| pods.iter().filter(|pod| !pod.local && is(pod)).map(|pod| pod.uid.clone()).collect::<Vec<_>>();
    let tolerate = of(|pod| pod.tolerates);
    if !tolerate.is_empty() && case.word != Word::KeptOff {
        return Some(Why::Tolerate { pods: tolerate });
    }
    let unmarked = of(|pod| !pod.tolerates && !pod.marked);
    (!unmarked.is_empty()).then_some(Why::NotMarked { pods: unmarked })
}

/// It is committed: whatever happens now, it goes on until the pods are gone.
fn release(case: &Case, node: &Node, facts: &Facts) -> Step {
    let Some(pods) = found(&facts.pods) else { return Step::Look(Looks::Pods) };
    let (tolerating, others): (Vec<&Pod>, Vec<&Pod>) = pods.iter().filter(|pod| !pod.local).partition(|pod| pod.tolerates);
    // What was bound here after the look may run, until Kubernetes has marked it: a kubelet starts nothing that is marked.
    let (marked, unmarked): (Vec<&Pod>, Vec<&Pod>) = others.into_iter().partition(|pod| pod.marked);
    let mut ours = Vec::new();
    // Kubernetes' own garbage collection deletes what is marked on a node that is out of service, and detaches its volumes.
    if case.strategy != Strategy::OutOfServiceTaint {
        ours.extend(uids(&marked));
    }
    // What tolerates the hold is released only while the node is kept off. Otherwise it came after the commit, and may be running.
    if case.word == Word::KeptOff {
        ours.extend(uids(&tolerating));
    }
    if !ours.is_empty() {
        return Step::DeletePods(ours);
    }
    if !marked.is_empty() {
        return Step::Wait { why: Why::PodsLeaving, until: None };
    }
    if !unmarked.is_empty() {
        return Step::Wait { why: Why::NotMarked { pods: uids(&unmarked) }, until: None };
    }
    if !case.ending && case.noted.as_ref().is_some_and(|noted| !noted.released) {
        return Step::NoteReleased;
    }
    // Without its Node Kubernetes would delete what has come since.
    match (case.strategy, case.ending) {
        (Strategy::NodeDeletion, false) if tolerating.is_empty() => {
            Step::DeleteNode { uid: node.uid.clone(), version: node.version.clone() }
        }
        (Strategy::NodeDeletion | Strategy::OutOfServiceTaint | Strategy::ResourceDeletion, _) => {
            Step::Unhold(node.version.clone())
        }
    }
}

/// Nothing was released: what we put on the node goes.
fn undo(node: &Node) -> Step {
    match (node.hold, node.cordoned) {
        (Hold::Held | Hold::Released, _) => Step::Unhold(node.version.clone()),
        (Hold::None, true) => Step::Uncordon(node.version.clone()),
        (Hold::None, false) => Step::Done(Done::Cleared),
    }
}

fn uids(pods: &[&Pod]) -> Vec<Name> {
    pods.iter().map(|pod| pod.uid.clone()).collect()
}

fn found<T>(read: &Option<Read<T>>) -> Option<&T> {
    read.as_ref().map(|read| &read.found)
}

fn version(lease: &Option<Read<Option<Seen>>>) -> Option<Read<Option<Version>>> {
    lease.as_ref().map(|read| Read { asked_at: read.asked_at, found: read.found.as_ref().map(|lease| lease.version.clone()) })
}
