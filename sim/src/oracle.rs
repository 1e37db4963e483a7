//! Did anything happen that must not?
//!
//! Oracles judge by the truth and by what the server stored, never by what a controller believes. Where a controller
//! could not know better they say nothing: what it knew may be as old as `blind_for`, and a look shows a node as it was.

use std::collections::BTreeSet;

use crate::clock::{Millis, SECOND};
use crate::fleet::oracle::Looks;
use crate::ledger::{Ledger, Remediation, Said};
use crate::policy::{Health, NodeState, Policy, Slack};

pub type Found = (&'static str, String);

/// What the sender of a request was, and knew, when it sent it.
#[derive(Clone, Debug)]
pub struct Intent {
    pub identity: String,
    pub sent_at: Millis,
    /// When the last look at the node that it had heard of was executed.
    pub looked_at: Option<Millis>,
    /// Likewise at the machine, and at the node of that.
    pub looks: Looks,
    /// How much older than it is a condition may have seemed to it.
    pub slack: Slack,
    /// From when on it has to have known that its own clock is wrong.
    pub wrong_from: Option<Millis>,
}

/// Nobody plans on facts that are older than this and not in doubt: a list may take ten seconds, leadership outlives a
/// standstill by ten, and looks and answers take some more.
pub const BLIND_FOR: Millis = 25 * SECOND;

/// Leadership outlives a standstill by ten seconds, and nothing is sent after it.
pub(crate) const DECIDED_WITHIN: Millis = 15 * SECOND;

/// What a controller could not know better.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    pub blind_for: Millis,
    /// How far apart two controllers may date the same instant.
    pub skew: Millis,
}

/// A remediation was stored.
pub fn judge_creation(ledger: &Ledger, name: &str, intent: &Intent, now: Millis, doubt: Doubt) -> Vec<Found> {
    let Some(created) = ledger.remediations.get(name) else { return Vec::new() };
    let Some((check, history)) = created.owner.as_deref().and_then(|uid| ledger.check_of(uid)) else {
        return vec![("S4", format!("{name} has no owner among the checks"))];
    };
    let from = intent.sent_at - doubt.blind_for;
    let policies: Vec<&Policy> = history.within(from, intent.sent_at).filter_map(|(_, policy)| policy).collect();
    let scene = Scene { ledger, intent, check, created, policies, from, now, doubt };
    let always = [
        scene.unjustified(),
        scene.was_stopped(),
        scene.doubled(),
        scene.was_held(),
        scene.took_the_quorum(),
        scene.was_out_of_time(),
    ];
    // A node that is being remediated has its place in the budget: its next step needs no other.
    let budget = match scene.is_next_step() {
        true => [None, None, None],
        false => [scene.over_budget(), scene.gate_was_shut(), scene.was_cooling_down()],
    };
    always.into_iter().chain(budget).flatten().collect()
}

/// A remediation was deleted by a controller.
pub fn judge_deletion(ledger: &Ledger, removed: &Remediation, intent: &Intent, doubt: Doubt) -> Option<Found> {
    let (check, history) = ledger.check_of(removed.owner.as_deref()?)?;
    let from = intent.sent_at - doubt.blind_for;
    let policies: Vec<_> = history.within(from, intent.sent_at).collect();
    let states: Vec<_> = ledger.nodes.get(&removed.node)?.within(from, intent.sent_at).collect();
    let [(_, Some(policy))] = policies.as_slice() else { return None };
    if let Some(found) = removed_too_early(ledger, policy, check, removed, intent, doubt) {
        return Some(found);
    }
    let [(_, Some(node))] = states.as_slice() else { return None };
    let tried = |said: &Said| said.given_up.get(&removed.node).is_some_and(|tried| tried.contains(&removed.template));
    let mut said = ledger.statuses.get(check)?.within(from, intent.sent_at);
    // A step that was given up, and noted down as such, may make room for the next one.
    let makes_room = policy.steps.len() > 1 && said.any(|(_, said)| said.is_some_and(tried));
    let is_needed = policy.is_valid() && policy.selects(node) && policy.health(node, from, Slack::NONE) == Health::Expired;
    (is_needed && !makes_room).then(|| ("S4", format!("{check} gave up {}, which had been unhealthy all the time", removed.node)))
}

/// S4: a remediation outlives the recovery of its node by the healthy delay. A relapse that was over sooner than a
/// controller has to hear of it is forgiven.
fn removed_too_early(
    ledger: &Ledger,
    policy: &Policy,
    check: &str,
    removed: &Remediation,
    intent: &Intent,
    doubt: Doubt,
) -> Option<Found> {
    let delay = policy.healthy_delay.filter(|delay| *delay > 0)?;
    let from = intent.sent_at - delay - doubt.blind_for;
    let (mut well_since, mut ill_since, mut dated) = (from, from, from);
    let mut was_well = true;
    let mut ended = from;
    for (end, state) in ledger.nodes.get(&removed.node)?.within(from, intent.sent_at) {
        let state = state.filter(|state| policy.selects(state))?;
        let is_well = policy.health(state, 0, Slack::NONE) == Health::Healthy;
        match (was_well, is_well) {
            (false, true) => well_since = ended,
            (true, false) => ill_since = ended,
            (true, true) | (false, false) => {}
        }
        (was_well, ended) = (is_well, end);
        let asked_for = state.conditions.iter().filter(|condition| policy.rules.iter().any(|rule| rule.kind == condition.kind));
        dated = asked_for.map(|condition| condition.since - condition.dated_before).max().unwrap_or(well_since);
    }
    // Since when a node is healthy its kubelet says, by its own clock.
    let healthy_for = intent.sent_at - well_since.min(dated);
    let is_early = was_well && well_since - ill_since > doubt.blind_for && healthy_for < delay - doubt.skew;
    is_early.then(|| ("S4", format!("{check} removed what {} had, healthy for {healthy_for} of {delay} ms", removed.node)))
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
    doubt: Doubt,
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

    /// Something of this check was on the node already, or the status remembered that it had been.
    fn is_next_step(&self) -> bool {
        let is_earlier =
            |one: &&Remediation| self.is_of_check(one) && one.node == self.created.node && one.uid != self.created.uid;
        let remembered = |said: &Said| said.given_up.contains_key(&self.created.node);
        let said = self.ledger.statuses.get(self.check);
        let mut said = said.into_iter().flat_map(|history| history.within(self.from, self.intent.sent_at));
        let escalates = self.policies.iter().any(|policy| policy.steps.len() > 1);
        escalates
            && (self.ledger.remediations.values().any(|one| is_earlier(&one))
                || said.any(|(_, said)| said.is_some_and(remembered)))
    }

    fn is_of_check(&self, one: &Remediation) -> bool {
        one.owner == self.created.owner
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

    /// S2: nodes under remediation stay within the budget of their check. The steps of an escalation are one remediation.
    fn over_budget(&self) -> Option<Found> {
        let nodes: BTreeSet<&String> = self.known().filter(|one| self.is_of_check(one)).map(|one| &one.node).collect();
        let in_flight = nodes.len();
        let allowed = self.allowed();
        (in_flight > allowed)
            .then(|| ("S2", format!("{} has {in_flight} nodes under remediation, {allowed} are allowed", self.check)))
    }

    /// S2: nothing starts, and no next step either, while the check is paused, only looks, or the node is excluded.
    fn was_stopped(&self) -> Option<Found> {
        let (check, node) = (self.check, &self.created.node);
        let all = |is: fn(&Policy) -> bool| !self.policies.is_empty() && self.policies.iter().all(|policy| is(policy));
        let mut states = self.ledger.nodes.get(node)?.within(self.from, self.intent.sent_at);
        let because = match () {
            () if all(|policy| policy.paused) => "while paused",
            () if all(|policy| policy.dry_run) => "in a dry run",
            () if states.all(|(_, state)| state.is_some_and(NodeState::is_excluded)) => "which is excluded",
            () => return None,
        };
        Some(("S2", format!("{check} started on {node} {because}")))
    }

    /// S2: after a storm nothing starts until the cooldown is over.
    fn was_cooling_down(&self) -> Option<Found> {
        let cooldown = self.policies.iter().map(|policy| policy.storm_cooldown).min()??;
        let said = self.ledger.statuses.get(self.check)?;
        let mut said = said.within(self.from, self.intent.sent_at);
        let ends_at = |said: &Said| said.cooling_since.map(|since| since + cooldown);
        let now = self.intent.sent_at + self.doubt.skew;
        let is_cooling = said.all(|(_, said)| said.and_then(ends_at).is_some_and(|ends_at| ends_at > now));
        is_cooling.then(|| ("S2", format!("{} started on {} while it cooled down", self.check, self.created.node)))
    }

    /// S2: a node that somebody else has out of service is left alone.
    fn was_held(&self) -> Option<Found> {
        let node = &self.created.node;
        let mut holds = self.ledger.holds.get(node)?.within(self.from, self.intent.sent_at);
        let now = self.intent.sent_at + self.doubt.skew;
        let is_held = holds.all(|(_, hold)| hold.is_some_and(|hold| hold.until > now));
        is_held.then(|| ("S2", format!("{} started on {node}, which somebody else holds", self.check)))
    }

    /// S4: nothing starts by who has to know that its clock is wrong. What was decided before may be on its way for a while.
    fn was_out_of_time(&self) -> Option<Found> {
        let since = self.intent.wrong_from.filter(|from| self.intent.sent_at > from + DECIDED_WITHIN)?;
        let (check, node) = (self.check, &self.created.node);
        Some(("S4", format!("{check} started on {node} by a clock that is known to be wrong since {since}")))
    }

    /// S3: one node of the control plane at a time, and never one that etcd needs.
    fn took_the_quorum(&self) -> Option<Found> {
        let (check, node) = (self.check, &self.created.node);
        let within = |node: &String| self.ledger.nodes.get(node).map(|history| history.within(self.from, self.intent.sent_at));
        let always = |node: &String, is: fn(&NodeState) -> bool| {
            within(node).is_some_and(|mut states| states.all(|(_, state)| state.is_some_and(is)))
        };
        if !always(node, NodeState::is_control_plane) {
            return None;
        }
        let other =
            self.known().find(|one| one.node != *node && one.owner.is_some() && always(&one.node, NodeState::is_control_plane));
        if let Some(other) = other {
            return Some(("S3", format!("{check} started on {node} while {} was out of service too", other.node)));
        }
        let hosts = &self.ledger.etcd;
        let sometimes = |node: &&String| {
            within(node).is_some_and(|mut states| states.any(|(_, state)| state.is_some_and(NodeState::is_ready)))
        };
        let ready = hosts.iter().filter(|host| *host != node).filter(sometimes).count();
        let needed = hosts.len() / 2 + 1;
        (!hosts.is_empty() && ready < needed).then(|| {
            ("S3", format!("{check} started on {node} while {ready} other members of etcd were ready, {needed} are needed"))
        })
    }

    /// S2: nothing starts while more nodes are not healthy than allowed; those count that cannot have seemed healthy.
    fn gate_was_shut(&self) -> Option<Found> {
        // With zones, each has a gate of its own; no seed draws them, and stories look at what they do.
        if self.policies.iter().any(|policy| policy.topology_key.is_some()) {
            return None;
        }
        let is_remediated = |node: &String| self.known().any(|one| one.owner == self.created.owner && one.node == *node);
        let seems_unhealthy = |node: &&String| {
            let mut states = self.ledger.nodes[*node].within(self.from, self.intent.sent_at);
            states.all(|(end, state)| {
                let Some(state) = state else { return false };
                let selected = self.policies.iter().all(|policy| policy.selects(state));
                let unhealthy = || self.policies.iter().all(|policy| policy.health(state, end, Slack::NONE) != Health::Healthy);
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
