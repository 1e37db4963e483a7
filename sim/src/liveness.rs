//! Once nothing fails any more: is everything done that should be, and then nothing?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::clock::{MINUTE, Millis, SECOND};
use crate::ledger::{Ledger, Remediation};
use crate::oracle::Found;
use crate::policy::{Health, NodeState, Policy, Slack, Step};

pub struct Liveness {
    pub healed_at: Millis,
    /// When too many nodes of a check were unhealthy last.
    stormy_at: BTreeMap<String, Millis>,
    /// What should have been done since when, by check and node.
    overdue: BTreeMap<(String, String), Millis>,
    /// When a fact changed last, or the leader.
    pub changed_at: Millis,
    /// How long a remediation of a willing provider takes, boot included.
    pub repair_within: Millis,
    /// The longest time that checks of machines wait for anything.
    pub machines_wait: Millis,
}

pub const JUDGE_EACH: Millis = 5 * SECOND;
/// After the faults: for watches, elections and pauses between attempts to settle.
pub(crate) const SETTLE_WITHIN: Millis = 60 * SECOND;
/// From when something may be done until it is; the longest pause between two attempts is 30 s.
pub(crate) const ACT_WITHIN: Millis = 45 * SECOND;
/// A status that did not stay is written again after a minute; nothing else takes so long.
const QUIET_AFTER: Millis = 90 * SECOND;

impl Liveness {
    pub fn new(healed_at: Millis, repair_within: Millis) -> Liveness {
        Liveness {
            healed_at,
            stormy_at: BTreeMap::new(),
            overdue: BTreeMap::new(),
            changed_at: healed_at,
            repair_within,
            machines_wait: 0,
        }
    }

    /// How long the healed phase has to be for everything to be seen.
    pub fn phase(longest_rule: Millis, longest_wait: Millis, repair_within: Millis) -> Millis {
        SETTLE_WITHIN + 2 * longest_rule + 3 * longest_wait + MINUTE + repair_within + ACT_WITHIN + QUIET_AFTER + 2 * MINUTE
    }

    /// L1: what is unhealthy under an open gate is acted on, and what is healthy is let go. `is_watched`: nodes that are for a check
    /// of machines.
    pub fn judge(&mut self, ledger: &Ledger, is_watched: &dyn Fn(&str) -> bool, now: Millis) -> Vec<Found> {
        let mut due = BTreeMap::new();
        for (check, policy) in ledger.checks.iter().filter_map(|(name, history)| Some((name, history.current()?))) {
            if is_too_much(ledger, policy) {
                self.stormy_at.insert(check.clone(), now);
            }
            if now < self.healed_at + SETTLE_WITHIN + policy.longest_rule() || !policy.is_valid() || policy.deleting {
                continue;
            }
            let gate_is_open = !policy.paused && !is_too_much(ledger, policy) && !self.is_cooling(ledger, check, policy, now);
            for (name, node) in ledger.nodes.iter().filter_map(|(name, history)| Some((name, history.current()?))) {
                let starts = gate_is_open && !is_watched(name) && should_start(ledger, check, policy, name, node, now);
                let escalates = !policy.paused && self.should_escalate(ledger, check, policy, name, node, now);
                if starts || escalates || self.should_end(ledger, policy, name, node, now) {
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
                true => "is well and its remediation stays, or is not and its next step is not taken",
                false => "is unhealthy, the gate is open, and nothing is done",
            };
            ("L1", format!("{check}: {node} {what}"))
        })
        .collect()
    }

    /// After a storm nothing starts until its cooldown is over. Storms between two looks are only seen in the status; but
    /// what that says is not believed for ever.
    fn is_cooling(&self, ledger: &Ledger, check: &str, policy: &Policy, now: Millis) -> bool {
        let Some(cooldown) = policy.storm_cooldown else { return false };
        let storm = ledger.statuses.get(check).and_then(|history| history.current()).is_some_and(|said| said.storm);
        let stormy_at = self.stormy_at.get(check).copied().unwrap_or(self.healed_at);
        storm && now - stormy_at <= cooldown + SETTLE_WITHIN
    }

    /// Everything that is on the node has had its time, and something is left to try.
    fn should_escalate(&self, ledger: &Ledger, check: &str, policy: &Policy, name: &str, node: &NodeState, now: Millis) -> bool {
        let mine: Vec<_> = mine(ledger, policy, name).collect();
        let tried: BTreeSet<&str> = mine.iter().map(|one| one.template.as_str()).collect();
        let longest = policy.steps.iter().filter_map(|step| step.lasts_for).max();
        let all_over = longest.is_some_and(|longest| mine.iter().all(|one| now > one.stored_at + longest && !one.deleting));
        let is_left = tried.len().max(ledger.given_up(check, name)) < policy.steps.len();
        let is_free = policy.steps.iter().all(|step| !is_occupied(ledger, policy, step, name));
        !mine.is_empty()
            && all_over
            && is_left
            && is_free
            && policy.selects(node)
            && policy.health(node, now, Slack::NONE) == Health::Expired
            && is_able(ledger, policy)
            && may_be_touched(ledger, name, node, now)
    }

    fn should_end(&self, ledger: &Ledger, policy: &Policy, name: &str, node: &NodeState, now: Millis) -> bool {
        let Some(delay) = (if policy.selects(node) { policy.healthy_delay } else { Some(0) }) else { return false };
        let changed_at = ledger.nodes.get(name).map_or(now, |history| history.changed_at());
        let is_well = !policy.selects(node) || policy.health(node, now, Slack::NONE) == Health::Healthy;
        is_well && (delay == 0 || now > changed_at + delay) && mine(ledger, policy, name).any(|one| !one.deleting)
    }

    /// L2: by the end every remediation has come to its end.
    pub fn judge_end(&self, ledger: &Ledger, now: Millis) -> Vec<Found> {
        let wait = |one: &Remediation| {
            let policy = one.owner.as_deref().and_then(|uid| ledger.check_of(uid)).and_then(|(_, history)| history.current());
            policy.map_or(0, |policy| policy.healthy_delay.unwrap_or(0))
        };
        let bound = |one: &Remediation| SETTLE_WITHIN + self.repair_within + ACT_WITHIN + MINUTE + wait(one);
        // All that was tried on a node goes together, some time after the last of it came.
        let last = |one: &Remediation| {
            let of_node = ledger.remediations.values().filter(|other| other.node == one.node);
            of_node.map(|other| other.stored_at).max().unwrap_or(one.stored_at)
        };
        let is_late = |one: &Remediation| now - last(one).max(self.healed_at) > bound(one);
        let late = ledger.remediations.iter().filter(|(_, one)| one.owner.is_some() && is_late(one));
        late.map(|(name, one)| ("L2", format!("{name} of {} has not come to an end: {one:?}", one.node))).collect()
    }

    /// L3: a quiet world means no writes. Elections do not count.
    pub fn judge_write(&self, ledger: &Ledger, now: Millis, what: &str) -> Option<Found> {
        let policies = || ledger.checks.values().filter_map(|history| history.current());
        let longest =
            policies().map(|policy| policy.longest_rule().max(policy.longest_wait())).max().unwrap_or(0).max(self.machines_wait);
        let is_quiet = now - self.changed_at > longest + QUIET_AFTER && now - self.healed_at > SETTLE_WITHIN;
        is_quiet.then(|| ("L3", format!("{what}, though nothing has changed since {}", self.changed_at)))
    }
}

fn is_too_much(ledger: &Ledger, policy: &Policy) -> bool {
    let mut targets = 0;
    let mut not_healthy = 0;
    for (name, node) in ledger.nodes.iter().filter_map(|(name, history)| Some((name, history.current()?))) {
        if policy.selects(node) {
            targets += 1;
            let is_remediated = mine(ledger, policy, name).next().is_some();
            // As of now a rule matches or it does not; whether its time is over does not matter.
            not_healthy += usize::from(is_remediated || policy.health(node, 0, Slack::NONE) != Health::Healthy);
        }
    }
    not_healthy > policy.allowed(targets)
}

fn should_start(ledger: &Ledger, check: &str, policy: &Policy, name: &str, node: &NodeState, now: Millis) -> bool {
    let is_free = !ledger.remediations.values().any(|one| one.node == name)
        && policy.steps.iter().all(|step| !is_occupied(ledger, policy, step, name));
    is_free
        && ledger.given_up(check, name) < policy.steps.len()
        && may_be_touched(ledger, name, node, now)
        && policy.selects(node)
        && policy.health(node, now, Slack::NONE) == Health::Expired
        && is_able(ledger, policy)
        && owner(ledger, node).is_some_and(|owner| owner == check)
}

fn mine<'a>(ledger: &'a Ledger, policy: &'a Policy, node: &'a str) -> impl Iterator<Item = &'a Remediation> {
    ledger.remediations.values().filter(move |one| one.node == node && one.owner.as_ref() == Some(&policy.uid))
}

/// Somebody else's object has the name that one of this step would get.
fn is_occupied(ledger: &Ledger, policy: &Policy, step: &Step, node: &str) -> bool {
    let kind = step.template.as_deref().and_then(|template| template.split_once("templates/")).map_or("", |(kind, _)| kind);
    let object = ledger.remediations.get(&format!("{kind}s/{node}"));
    object.is_some_and(|object| object.owner.as_ref() != Some(&policy.uid))
}

/// Neither excluded, nor somebody else's, nor needed by the control plane.
fn may_be_touched(ledger: &Ledger, name: &str, node: &NodeState, now: Millis) -> bool {
    let is_control_plane = |node: &str| ledger.node(node).is_some_and(NodeState::is_control_plane);
    let is_busy = || ledger.remediations.values().any(|one| one.node != name && is_control_plane(&one.node));
    let ready = || ledger.etcd.iter().filter(|host| *host != name && ledger.node(host).is_some_and(NodeState::is_ready)).count();
    let takes_quorum = || !ledger.etcd.is_empty() && ready() < ledger.etcd.len() / 2 + 1;
    let is_needed = node.is_control_plane() && (is_busy() || takes_quorum());
    !node.is_excluded() && ledger.hold(name, now).is_none() && !is_needed
}

/// Of the checks that select the node and can act, the oldest is responsible.
fn owner<'a>(ledger: &'a Ledger, node: &NodeState) -> Option<&'a String> {
    let checks = ledger.checks.iter().filter_map(|(name, history)| Some((name, history.current()?)));
    let responsible = checks.filter(|(_, policy)| !policy.deleting && policy.selects(node) && is_able(ledger, policy));
    responsible.min_by_key(|(name, policy)| (policy.created_at, *name)).map(|(name, _)| name)
}

fn is_able(ledger: &Ledger, policy: &Policy) -> bool {
    let is_usable = |step: &Step| {
        let template = step.template.as_ref().and_then(|place| ledger.templates.get(place));
        template.is_some_and(|spec| matches!(spec["template"], Value::Object(_)))
    };
    policy.is_valid() && policy.steps.iter().all(is_usable)
}
