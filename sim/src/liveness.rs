//! Once nothing fails any more: is everything done that should be, and then nothing?

use std::collections::BTreeMap;

use serde_json::Value;

use crate::clock::{MINUTE, Millis, SECOND};
use crate::ledger::Ledger;
use crate::oracle::Found;
use crate::policy::{Health, NodeState, Policy};

pub struct Liveness {
    healed_at: Millis,
    /// What should have been done since when, by check and node.
    overdue: BTreeMap<(String, String), Millis>,
    /// When a fact changed last, or the leader.
    pub changed_at: Millis,
    /// How long a remediation of a willing provider takes, boot included.
    pub repair_within: Millis,
}

pub const JUDGE_EACH: Millis = 5 * SECOND;
/// After the faults: for watches, elections and pauses between attempts to settle.
const SETTLE_WITHIN: Millis = 60 * SECOND;
/// From when something may be done until it is; the longest pause between two attempts is 30 s.
const ACT_WITHIN: Millis = 45 * SECOND;
/// A status that did not stay is written again after a minute; nothing else takes so long.
const QUIET_AFTER: Millis = 90 * SECOND;

impl Liveness {
    pub fn new(healed_at: Millis, repair_within: Millis) -> Liveness {
        Liveness { healed_at, overdue: BTreeMap::new(), changed_at: healed_at, repair_within }
    }

    /// How long the healed phase has to be for everything to be seen.
    pub fn phase(longest_rule: Millis, repair_within: Millis) -> Millis {
        SETTLE_WITHIN + 2 * longest_rule + MINUTE + repair_within + ACT_WITHIN + QUIET_AFTER + 2 * MINUTE
    }

    /// L1: what is unhealthy under an open gate is acted on, and what is healthy is let go.
    pub fn judge(&mut self, ledger: &Ledger, now: Millis) -> Vec<Found> {
        let mut due = BTreeMap::new();
        for (check, policy) in ledger.checks.iter().filter_map(|(name, history)| Some((name, history.current()?))) {
            if now < self.healed_at + SETTLE_WITHIN + policy.longest_rule() || !policy.is_valid() || policy.deleting {
                continue;
            }
            let gate_is_open = gate_is_open(ledger, policy);
            for (name, node) in ledger.nodes.iter().filter_map(|(name, history)| Some((name, history.current()?))) {
                let starts = gate_is_open && should_start(ledger, check, policy, name, node, now);
                if starts || should_end(ledger, policy, name, node, now) {
                    let key = (check.clone(), name.clone());
                    let since = self.overdue.get(&key).copied().unwrap_or(now);
                    due.insert(key, since);
                }
            }
        }
        self.overdue = due;
        let late = self.overdue.iter_mut().filter(|(_, since)| now - **since >= ACT_WITHIN);
        late.map(|((check, node), since)| {
            *since = now;
            let what = match ledger.remediations.values().any(|one| one.node == *node) {
                true => "is well, and its remediation stays",
                false => "is unhealthy, the gate is open, and nothing is done",
            };
            ("L1", format!("{check}: {node} {what}"))
        })
        .collect()
    }

    /// L2: by the end every remediation has come to its end.
    pub fn judge_end(&self, ledger: &Ledger, now: Millis) -> Vec<Found> {
        let bound = SETTLE_WITHIN + self.repair_within + ACT_WITHIN + MINUTE;
        let is_late = |stored_at: Millis| now - stored_at.max(self.healed_at) > bound;
        let late = ledger.remediations.iter().filter(|(_, one)| one.owner.is_some() && is_late(one.stored_at));
        late.map(|(name, one)| ("L2", format!("{name} of {} has not come to an end: {one:?}", one.node))).collect()
    }

    /// L3: a quiet world means no writes. Elections do not count.
    pub fn judge_write(&self, ledger: &Ledger, now: Millis, what: &str) -> Option<Found> {
        let policies = ledger.checks.values().filter_map(|history| history.current());
        let longest_rule = policies.map(Policy::longest_rule).max().unwrap_or(0);
        let is_quiet = now - self.changed_at > longest_rule + QUIET_AFTER && now - self.healed_at > SETTLE_WITHIN;
        is_quiet.then(|| ("L3", format!("{what}, though nothing has changed since {}", self.changed_at)))
    }
}

fn gate_is_open(ledger: &Ledger, policy: &Policy) -> bool {
    let mut targets = 0;
    let mut not_healthy = 0;
    for (name, node) in ledger.nodes.iter().filter_map(|(name, history)| Some((name, history.current()?))) {
        if policy.selects(node) {
            targets += 1;
            let is_remediated =
                ledger.remediations.values().any(|one| one.node == *name && one.owner.as_ref() == Some(&policy.uid));
            // As of now a rule matches or it does not; whether its time is over does not matter.
            not_healthy += usize::from(is_remediated || policy.health(node, 0, 0) != Health::Healthy);
        }
    }
    !policy.paused && not_healthy <= policy.allowed(targets)
}

fn should_start(ledger: &Ledger, check: &str, policy: &Policy, name: &str, node: &NodeState, now: Millis) -> bool {
    let is_free = !ledger.remediations.iter().any(|(object, one)| one.node == name || object == name);
    is_free
        && policy.selects(node)
        && policy.health(node, now, 0) == Health::Expired
        && is_able(ledger, policy)
        && owner(ledger, node).is_some_and(|owner| owner == check)
}

fn should_end(ledger: &Ledger, policy: &Policy, name: &str, node: &NodeState, now: Millis) -> bool {
    let mut mine = ledger.remediations.values().filter(|one| one.node == name && one.owner.as_ref() == Some(&policy.uid));
    let is_well = !policy.selects(node) || policy.health(node, now, 0) == Health::Healthy;
    is_well && mine.any(|one| !one.deleting)
}

/// Of the checks that select the node and can act, the oldest is responsible.
fn owner<'a>(ledger: &'a Ledger, node: &NodeState) -> Option<&'a String> {
    let checks = ledger.checks.iter().filter_map(|(name, history)| Some((name, history.current()?)));
    let responsible = checks.filter(|(_, policy)| !policy.deleting && policy.selects(node) && is_able(ledger, policy));
    responsible.min_by_key(|(name, policy)| (policy.created_at, *name)).map(|(name, _)| name)
}

fn is_able(ledger: &Ledger, policy: &Policy) -> bool {
    let template = policy.template.as_ref().and_then(|name| ledger.templates.get(name));
    policy.is_valid() && template.is_some_and(|spec| matches!(spec["template"], Value::Object(_)))
}
