//! What is to be done now, and why?
//!
//! Pure and total: the same world and time give the same plan. It is made from scratch each time, so
//! there is nothing to keep in step with the world but the world.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decision::{Because, Decision, Match, Verdict};
use crate::effect::{Creation, Effect, EffectKey};
use crate::escalate::{self, Workshop};
use crate::facts::{Check, Name, Object, ObjectKey, Policy, Source};
use crate::flight::{Clearance, Flight, grows_with_nodes};
use crate::gate::{Gate, Tally, gate};
use crate::health::{Health, Known, assess};
use crate::nhc::{self, Findings, UnhealthyNode};
use crate::time::{Mono, Now};
use crate::world::World;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    pub decisions: Vec<Decision>,
    pub effects: Vec<Effect>,
    /// What has to be watched for the next plan.
    pub watches: BTreeSet<Source>,
    /// When to plan again even if nothing is heard; always later than now.
    pub wake_at: Option<Mono>,
    pub leads: bool,
}

/// Requests under way at once that grow with the number of nodes. Enough to start a hundred remediations
/// within a blink, and a small part of what an API server admits from one client.
pub const REQUESTS_MAX: usize = 64;
/// A look that was sent longer ago no longer justifies a start.
const LOOK_VALID_FOR: Duration = Duration::from_secs(5);
/// The status is for people: they need no more than one a second.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Events that do not wait for the pace of the status.
const EVENTS_PER_STATUS: usize = 20;

pub fn plan(world: &World, now: Now) -> Plan {
    let mut draft = Draft::new(world, now);
    draft.elect();
    draft.find_kinds();
    if world.is_synced(&Source::Nodes) && world.is_synced(&Source::Checks) {
        for check in world.checks.values() {
            draft.plan_check(check);
        }
    }
    draft.finish()
}

struct Draft<'a> {
    world: &'a World,
    now: Now,
    plan: Plan,
    requests_left: usize,
}

/// A node under a check.
struct Target<'a> {
    known: &'a Known,
    health: Health,
    /// Remediations of this check for this node.
    mine: Vec<&'a Object>,
    /// The object that a remediation would be, if the template can be used.
    key: Option<ObjectKey>,
    /// A request may have created one that we do not see yet.
    maybe_created: bool,
}

impl Target<'_> {
    fn is_healthy(&self) -> bool {
        self.health == Health::Healthy && self.mine.is_empty() && !self.maybe_created
    }
}

impl<'a> Draft<'a> {
    fn new(world: &'a World, now: Now) -> Draft<'a> {
        let requests_left = REQUESTS_MAX.saturating_sub(world.flights.waiting_for_answers());
        let watches = BTreeSet::from([Source::Nodes, Source::Checks, Source::Kinds]);
        Draft { world, now, plan: Plan { watches, ..Plan::default() }, requests_left }
    }

    fn elect(&mut self) {
        if self.world.election.stopping && self.world.flights.any_unanswered() {
            return; // Let go of the leadership only when nothing of ours is on its way any more.
        }
        let (effect, wake_at) = self.world.election.step(self.now);
        self.plan.effects.extend(effect.map(Effect::Lease));
        self.plan.leads = self.world.election.leads(self.now.mono);
        self.wake(wake_at);
    }

    /// Asks for the kinds that the checks' templates need, and watches those that are served.
    fn find_kinds(&mut self) {
        let policies = self.world.checks.values().filter_map(|check| check.policy.as_ref().ok());
        let wanted: BTreeSet<_> =
            policies.flat_map(|policy| [policy.template.kind.clone(), escalate::remediation_kind(&policy.template)]).collect();
        for kind in wanted {
            let known = self.world.kinds.get(&kind.api_version);
            let missing = self.world.served(&kind).is_none();
            let ask = match known {
                None => true,
                Some(known) if known.changed => true,
                Some(known) if missing => {
                    self.wake_if_later(known.recheck_at);
                    self.now.mono >= known.recheck_at
                }
                Some(_) => false,
            };
            if ask {
                let effect = Effect::Discover { api_version: kind.api_version.clone() };
                if !self.plan.effects.contains(&effect) {
                    self.send(effect);
                }
            }
            if !missing {
                self.plan.watches.insert(Source::Objects(kind));
            }
        }
    }

    fn plan_check(&mut self, check: &'a Check) {
        let policy = match &check.policy {
            Ok(policy) if !check.deleting => policy,
            Ok(_) => return,
            Err(invalid) => {
                let disabled = Some(Because::PolicyInvalid { why: invalid.0.clone() });
                return self.report(check, &Findings { disabled, ..Findings::default() });
            }
        };
        let sources = sources(self.world, policy);
        if !sources.iter().all(|source| self.world.is_synced(source)) {
            return; // Not everything has been heard yet: there is nothing to decide on.
        }
        let workshop = escalate::workshop(self.world, policy);
        let doubt = sources.into_iter().find(|source| !self.world.is_fresh(source, self.now.mono));
        let mut mine = remediations(self.world, check);
        let targets: Vec<Target> = self
            .world
            .nodes
            .values()
            .filter(|known| policy.selector.selects(&known.node.labels))
            .map(|known| {
                self.target(check, policy, workshop.as_ref().ok(), known, mine.remove(&known.node.name).unwrap_or_default())
            })
            .collect();
        let tally = Tally { targets: targets.len(), not_healthy: targets.iter().filter(|target| !target.is_healthy()).count() };
        let gate = gate(policy, tally);
        let shut = match (&doubt, &workshop, &gate) {
            (Some(source), _, _) => Some(Because::Stale { source: source.clone() }),
            (None, Err(because), _) => Some(because.clone()),
            (None, Ok(_), Gate::Shut(because)) => Some(because.clone()),
            (None, Ok(_), Gate::Open) => None,
        };
        for target in &targets {
            self.decide(check, workshop.as_ref().ok(), target, shut.as_ref());
        }
        for (node, objects) in mine {
            self.decide_without_target(check, &node, &objects);
        }
        // What may be out of date is not reported as if it were so.
        if doubt.is_none() {
            let shut = match gate {
                Gate::Shut(because) => Some(because),
                Gate::Open => None,
            };
            let unhealthy = targets.iter().filter_map(|target| self.unhealthy(check, target)).collect();
            let healthy = tally.targets - tally.not_healthy;
            let brief = self.world.brief(&check.name).to_vec();
            self.report(check, &Findings { observed: tally.targets, healthy, unhealthy, disabled: workshop.err(), shut, brief });
        }
    }

    fn target(
        &self,
        check: &Check,
        policy: &Policy,
        workshop: Option<&Workshop>,
        known: &'a Known,
        mine: Vec<&'a Object>,
    ) -> Target<'a> {
        let key = workshop.map(|workshop| workshop.name_for(check, &known.node));
        let maybe_created = key.as_ref().is_some_and(|key| self.world.flights.may_have_happened(&EffectKey::Create(key.clone())));
        Target { known, health: assess(known, &policy.rules, self.now.mono), mine, key, maybe_created }
    }

    fn decide(&mut self, check: &Check, workshop: Option<&Workshop>, target: &Target, shut: Option<&Because>) {
        let (verdict, because) = match &target.health {
            Health::Healthy if !target.mine.is_empty() => self.remove(&target.mine, Because::Healthy),
            Health::Healthy => {
                self.find_out(target, workshop);
                (Verdict::Leave, Because::Healthy)
            }
            Health::Pending { found, due_at } => {
                self.wake(Some(*due_at));
                self.find_out(target, workshop);
                (keep_or_wait(target), Because::Pending(found.clone()))
            }
            Health::NeverReported { kind } => (keep_or_wait(target), Because::NeverReported { kind: kind.clone() }),
            Health::Unreadable { why } => (keep_or_wait(target), Because::Unreadable { why: why.clone() }),
            Health::Unhealthy { found, due_at } => self.repair(check, workshop, target, found, *due_at, shut),
        };
        self.decided(check, &target.known.node.name, verdict, because);
    }

    fn repair(
        &mut self,
        check: &Check,
        workshop: Option<&Workshop>,
        target: &Target,
        found: &Match,
        due_at: Mono,
        shut: Option<&Because>,
    ) -> (Verdict, Because) {
        if let Some(object) = target.mine.first() {
            let key = object.key.clone();
            return if object.deleting {
                (Verdict::Wait, Because::Leaving { key })
            } else {
                (Verdict::Keep, Because::Remediating { key, reason: found.clone() })
            };
        }
        if let Some(because) = shut {
            self.find_out(target, workshop);
            return (Verdict::Hold, because.clone());
        }
        let (Some(workshop), Some(key)) = (workshop, &target.key) else {
            return (Verdict::Hold, Because::Stale { source: Source::Kinds }); // Not reached: no workshop shuts the gate.
        };
        if let Some(owner) = self.older_check(check, target.known) {
            return (Verdict::Hold, Because::Overlapping { owner });
        }
        if self.world.objects.contains_key(key) {
            return (Verdict::Hold, Because::Occupied { key: key.clone() });
        }
        self.start(check, workshop, target, key, due_at)
    }

    /// Every start is preceded by a plain look at the node whose answer still shows the reason.
    fn start(
        &mut self,
        check: &Check,
        workshop: &Workshop,
        target: &Target,
        key: &ObjectKey,
        due_at: Mono,
    ) -> (Verdict, Because) {
        let create = EffectKey::Create(key.clone());
        match (self.world.flights.get(&create), self.world.flights.clearance(&create, self.now.mono)) {
            (_, Clearance::UnderWay) => return (Verdict::Start, Because::Creating { key: key.clone() }),
            (Some(Flight::Stored { .. } | Flight::Exists { .. }), _) => {
                self.find_out(target, Some(workshop));
                return (Verdict::Start, Because::Creating { key: key.clone() });
            }
            (flight, Clearance::NotBefore(retry_at)) => {
                self.wake(Some(retry_at));
                return match flight {
                    Some(Flight::Refused { why, .. }) => (Verdict::Wait, Because::Refused { key: key.clone(), why: why.clone() }),
                    _ => (Verdict::Start, Because::Creating { key: key.clone() }),
                };
            }
            (_, Clearance::Go) => {}
        }
        let node = &target.known.node;
        let looked = self.world.looked_at(&node.name).is_some_and(|at| at >= due_at && self.now.mono.since(at) <= LOOK_VALID_FOR);
        if !looked {
            return match self.send(Effect::Look { node: node.name.clone() }) {
                true => (Verdict::Wait, Because::Looking),
                false => (Verdict::Wait, Because::Queued),
            };
        }
        let sent = self.send(Effect::Create(Creation {
            key: key.clone(),
            plural: workshop.served.plural.clone(),
            body: workshop.body.clone(),
            node: node.name.clone(),
            template: workshop.template.key.name.clone(),
            check: check.name.clone(),
            check_uid: check.uid.clone(),
            control_plane: node.is_control_plane(),
        }));
        match sent {
            true => (Verdict::Start, Because::Creating { key: key.clone() }),
            false => (Verdict::Wait, Because::Queued),
        }
    }

    /// Where an answer was lost, or the watch does not show what was stored, the server is asked.
    fn find_out(&mut self, target: &Target, workshop: Option<&Workshop>) {
        let (Some(key), Some(workshop), true) = (&target.key, workshop, target.maybe_created) else { return };
        match self.world.flights.clearance(&EffectKey::Create(key.clone()), self.now.mono) {
            Clearance::Go => {
                self.send(Effect::Read { key: key.clone(), plural: workshop.served.plural.clone() });
            }
            Clearance::NotBefore(at) => self.wake(Some(at)),
            Clearance::UnderWay => {}
        }
    }

    /// A remediation whose node is no longer a target: it left the selection, or the cluster.
    fn decide_without_target(&mut self, check: &Check, node: &Name, objects: &[&Object]) {
        let (verdict, because) = if self.world.nodes.contains_key(node) {
            self.remove(objects, Because::NotSelected)
        } else if let Some(busy) = objects.iter().find(|object| object.processing || object.finalizers > 0) {
            (Verdict::Keep, Because::NodeGoneProviderBusy { key: busy.key.clone() })
        } else {
            self.remove(objects, Because::NodeGone)
        };
        self.decided(check, node, verdict, because);
    }

    fn remove(&mut self, objects: &[&Object], because: Because) -> (Verdict, Because) {
        let mut queued = false;
        for object in objects.iter().filter(|object| !object.deleting) {
            let Some(served) = self.world.served(&object.key.kind) else { continue };
            let (key, plural, uid) = (object.key.clone(), served.plural.clone(), object.uid.clone());
            queued |= !self.send(Effect::Delete { key, plural, uid });
        }
        match objects.first() {
            Some(object) if object.deleting => (Verdict::Remove, Because::Leaving { key: object.key.clone() }),
            _ if queued => (Verdict::Remove, Because::Queued),
            _ => (Verdict::Remove, because),
        }
    }

    /// Of several checks that select a node, the oldest that can act at all is responsible for it.
    fn older_check(&self, check: &Check, known: &Known) -> Option<Name> {
        let age = |check: &Check| (check.created_at, check.name.clone());
        let others = self.world.checks.values().filter(|other| !other.deleting && age(other) < age(check));
        let responsible = others.filter(|other| {
            let Ok(policy) = &other.policy else { return false };
            policy.selector.selects(&known.node.labels) && escalate::workshop(self.world, policy).is_ok()
        });
        responsible.min_by_key(|other| age(other)).map(|other| other.name.clone())
    }

    fn unhealthy(&self, check: &Check, target: &Target) -> Option<(UnhealthyNode, Option<Because>)> {
        let name = target.known.node.name.clone();
        let because = match &target.health {
            Health::Unhealthy { found, .. } => Some(Because::Expired(found.clone())),
            Health::Healthy | Health::Pending { .. } | Health::NeverReported { .. } | Health::Unreadable { .. } => None,
        };
        if because.is_none() && target.mine.is_empty() {
            return None;
        }
        let known = check.status.unhealthy.iter().find(|node| node.name == name);
        let healthy_since = match &target.health {
            Health::Healthy => Some(known.and_then(|node| node.healthy_since).unwrap_or(self.now.wall.whole_seconds())),
            Health::Unhealthy { .. } | Health::Pending { .. } | Health::NeverReported { .. } | Health::Unreadable { .. } => None,
        };
        let remediations = target.mine.iter().map(|object| (*object).into()).collect();
        Some((UnhealthyNode { name, remediations, healthy_since }, because))
    }

    /// Events first, the status that makes them history after.
    fn report(&mut self, check: &Check, findings: &Findings) {
        let desired = nhc::status(check, findings, self.now.wall);
        if desired == check.status && findings.brief.is_empty() {
            return;
        }
        let sent_at = self.world.status_sent_at(&check.name);
        let throttled = sent_at.map(|at| at.after(STATUS_EVERY)).filter(|at| *at > self.now.mono);
        let mut all_settled = true;
        let mut room = EVENTS_PER_STATUS.saturating_sub(self.world.settled(&check.name));
        for event in nhc::events(check, findings, &desired, self.now.wall) {
            if self.world.is_settled(&check.name, &event.name) {
                continue;
            }
            all_settled = false;
            // A single event need not wait; many at once are summed up, and that at the pace of the status.
            if throttled.is_none() || (!event.sums_up && room > 0) {
                room = room.saturating_sub(1);
                self.send(Effect::Emit(event));
            }
        }
        if desired == check.status {
            return;
        }
        match throttled {
            Some(next_at) => self.wake(Some(next_at)),
            None if all_settled => {
                let (check, uid, version) = (check.name.clone(), check.uid.clone(), check.version.clone());
                self.send(Effect::Status { check, uid, version, status: desired, written_at: self.now.wall });
            }
            None => {}
        }
    }

    fn decided(&mut self, check: &Check, node: &Name, verdict: Verdict, because: Because) {
        self.plan.decisions.push(Decision { check: check.name.clone(), node: node.clone(), verdict, because });
    }

    /// False if it has to wait for other requests.
    fn send(&mut self, effect: Effect) -> bool {
        let key = effect.key();
        match self.world.flights.clearance(&key, self.now.mono) {
            Clearance::UnderWay => return true,
            Clearance::NotBefore(at) => {
                self.wake(Some(at));
                return true;
            }
            Clearance::Go => {}
        }
        let counts = grows_with_nodes(&key);
        if counts && self.requests_left == 0 {
            return false;
        }
        self.requests_left -= usize::from(counts);
        self.plan.effects.push(effect);
        true
    }

    fn wake(&mut self, at: Option<Mono>) {
        self.plan.wake_at = match (self.plan.wake_at, at) {
            (Some(known), Some(at)) => Some(known.min(at)),
            (known, at) => known.or(at),
        };
    }

    fn wake_if_later(&mut self, at: Mono) {
        self.wake(Some(at).filter(|at| *at > self.now.mono));
    }

    /// Who does not lead decides all the same, but does nothing except asking.
    fn finish(self) -> Plan {
        let mut plan = self.plan;
        let acts = plan.leads && !self.world.election.stopping;
        plan.effects.retain(|effect| match effect {
            Effect::Lease(_) => true,
            Effect::Discover { .. } => !self.world.election.stopping,
            Effect::Look { .. }
            | Effect::Create(_)
            | Effect::Delete { .. }
            | Effect::Read { .. }
            | Effect::Emit(_)
            | Effect::Status { .. } => acts,
        });
        assert!(plan.wake_at.is_none_or(|at| at > self.now.mono), "a plan that wakes itself at once would never rest");
        plan
    }
}

/// What has to be heard before anything can be decided under this policy.
fn sources(world: &World, policy: &Policy) -> Vec<Source> {
    let mut sources = vec![Source::Nodes, Source::Checks];
    for kind in [policy.template.kind.clone(), escalate::remediation_kind(&policy.template)] {
        match world.kinds.get(&kind.api_version) {
            // Never synced, as nothing is listed under this name: stands for "not asked yet".
            None => sources.push(Source::Objects(kind)),
            Some(_) if world.served(&kind).is_some() => sources.push(Source::Objects(kind)),
            Some(_) => {}
        }
    }
    sources
}

/// The remediations that this check owns, by node.
fn remediations<'a>(world: &'a World, check: &Check) -> BTreeMap<Name, Vec<&'a Object>> {
    let mut by_node: BTreeMap<Name, Vec<&Object>> = BTreeMap::new();
    for object in world.objects.values().filter(|object| object.owners.iter().any(|owner| **owner == *check.uid)) {
        by_node.entry(object.node.clone()).or_default().push(object);
    }
    by_node
}

fn keep_or_wait(target: &Target) -> Verdict {
    match target.mine.is_empty() {
        true => Verdict::Wait,
        false => Verdict::Keep,
    }
}
