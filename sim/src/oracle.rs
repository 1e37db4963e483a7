//! Did anything happen that must not?
//!
//! Oracles judge by the truth and by what the server stored, never by what a controller believes. Where a controller
//! could not know better they say nothing: what it knew may be as old as `blind_for`, and a look shows a node as it was.

use crate::clock::{Millis, SECOND};
use crate::ledger::{Ledger, Remediation};
use crate::policy::{Health, NodeState, Policy};

pub type Found = (&'static str, String);

/// What the sender of a request was, and knew, when it sent it.
#[derive(Clone, Debug)]
pub struct Intent {
    pub identity: String,
    pub sent_at: Millis,
    /// When the last look at the node that it had heard of was executed.
    pub looked_at: Option<Millis>,
    /// How much older than it is a condition may have seemed to it.
    pub slack: Millis,
}

/// Nobody plans on facts that are older than this and not in doubt: a list may take ten seconds, leadership outlives a
/// standstill by ten, and looks and answers take some more.
pub const BLIND_FOR: Millis = 25 * SECOND;

/// A remediation was stored.
pub fn judge_creation(ledger: &Ledger, name: &str, intent: &Intent, now: Millis, blind_for: Millis) -> Vec<Found> {
    let Some(created) = ledger.remediations.get(name) else { return Vec::new() };
    let Some((check, history)) = created.owner.as_deref().and_then(|uid| ledger.check_of(uid)) else {
        return vec![("S4", format!("{name} has no owner among the checks"))];
    };
    let from = intent.sent_at - blind_for;
    let policies: Vec<&Policy> = history.within(from, intent.sent_at).filter_map(|(_, policy)| policy).collect();
    let scene = Scene { ledger, intent, check, created, policies, from, now };
    [scene.unjustified(), scene.over_budget(), scene.gate_was_shut(), scene.doubled()].into_iter().flatten().collect()
}

/// A remediation was deleted by a controller.
pub fn judge_deletion(ledger: &Ledger, removed: &Remediation, intent: &Intent, blind_for: Millis) -> Option<Found> {
    let (check, history) = ledger.check_of(removed.owner.as_deref()?)?;
    let from = intent.sent_at - blind_for;
    let policies: Vec<_> = history.within(from, intent.sent_at).collect();
    let states: Vec<_> = ledger.nodes.get(&removed.node)?.within(from, intent.sent_at).collect();
    let ([(_, Some(policy))], [(_, Some(node))]) = (policies.as_slice(), states.as_slice()) else { return None };
    let is_needed = policy.is_valid() && policy.selects(node) && policy.health(node, from, 0) == Health::Expired;
    is_needed.then(|| ("S4", format!("{check} gave up {}, which had been unhealthy all the time", removed.node)))
}

struct Scene<'a> {
    ledger: &'a Ledger,
    intent: &'a Intent,
    check: &'a str,
    created: &'a Remediation,
    /// The check as it may have been known.
    policies: Vec<&'a Policy>,
    from: Millis,
    now: Millis,
}

impl Scene<'_> {
    /// S4: between the look that preceded it and the creation, the node was unhealthy for longer than a rule allows.
    fn unjustified(&self) -> Option<Found> {
        let (node, check) = (&self.created.node, self.check);
        let Some(looked_at) = self.intent.looked_at else {
            return Some(("S4", format!("{check} started on {node} without a look at it")));
        };
        let history = self.ledger.nodes.get(node)?;
        let justifies = |end: Millis, state: &NodeState| {
            let expired = |policy: &&Policy| policy.health(state, end, self.intent.slack) == Health::Expired;
            self.policies.iter().any(|policy| policy.selects(state) && expired(policy))
        };
        let mut states = history.within(looked_at, self.now);
        if states.any(|(end, state)| state.is_some_and(|state| justifies(end, state))) {
            return None;
        }
        let seen: Vec<_> = history.within(looked_at, self.now).collect();
        Some(("S4", format!("{check} started on {node}, looked at {looked_at}: nothing justified it in {seen:?}")))
    }

    /// The most that could have been believed to be allowed.
    fn allowed(&self) -> usize {
        let targets = |policy: &Policy| {
            let may_be_selected = |node: &&String| {
                let mut states = self.ledger.nodes[*node].within(self.from, self.intent.sent_at);
                states.any(|(_, state)| state.is_some_and(|state| policy.selects(state)))
            };
            self.ledger.nodes.keys().filter(may_be_selected).count()
        };
        self.policies.iter().map(|policy| policy.allowed(targets(policy))).max().unwrap_or(0)
    }

    /// Remediations that the sender had to know of: its own, and what had been stored for long enough.
    fn known(&self) -> impl Iterator<Item = &Remediation> {
        let is_known =
            |one: &&Remediation| one.uid == self.created.uid || one.creator == self.intent.identity || one.stored_at < self.from;
        self.ledger.remediations.values().filter(is_known)
    }

    /// S2: remediations in flight stay within the budget of their check.
    fn over_budget(&self) -> Option<Found> {
        let in_flight = self.known().filter(|one| one.owner == self.created.owner).count();
        let allowed = self.allowed();
        (in_flight > allowed)
            .then(|| ("S2", format!("{} has {in_flight} remediations in flight, {allowed} are allowed", self.check)))
    }

    /// S2: nothing starts while more nodes are not healthy than allowed; those count that cannot have seemed healthy.
    fn gate_was_shut(&self) -> Option<Found> {
        if !self.policies.is_empty() && self.policies.iter().all(|policy| policy.paused) {
            return Some(("S2", format!("{} started on {} while paused", self.check, self.created.node)));
        }
        let is_remediated = |node: &String| self.known().any(|one| one.owner == self.created.owner && one.node == *node);
        let seems_unhealthy = |node: &&String| {
            let mut states = self.ledger.nodes[*node].within(self.from, self.intent.sent_at);
            states.all(|(end, state)| {
                let Some(state) = state else { return false };
                let selected = self.policies.iter().all(|policy| policy.selects(state));
                let unhealthy = || self.policies.iter().all(|policy| policy.health(state, end, 0) != Health::Healthy);
                selected && (is_remediated(node) || unhealthy())
            })
        };
        let (not_healthy, allowed) = (self.ledger.nodes.keys().filter(seems_unhealthy).count(), self.allowed());
        (not_healthy > allowed).then(|| {
            let (check, node) = (self.check, &self.created.node);
            ("S2", format!("{check} started on {node} while {not_healthy} were not healthy and {allowed} allowed"))
        })
    }

    /// Of several checks that exist one is responsible for a node.
    fn doubled(&self) -> Option<Found> {
        let is_alive = |uid: &String| {
            self.ledger.check_of(uid).is_some_and(|(_, history)| history.current().is_some_and(|now| now.uid == *uid))
        };
        let is_other = |one: &&Remediation| {
            one.node == self.created.node && one.owner != self.created.owner && one.owner.as_ref().is_some_and(is_alive)
        };
        let other = self.known().find(is_other)?;
        let (check, node) = (self.check, &self.created.node);
        Some(("S2", format!("{check} started on {node}, on which another check has a remediation: {other:?}")))
    }
}
