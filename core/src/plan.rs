//! What is to be done now, and why?
//!
//! Pure and total: the same world and time give the same plan. It is made from scratch each time, so
//! there is nothing to keep in step with the world but the world.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decision::{Because, Decision, Match, Verdict};
use crate::effect::{Creation, Effect, EffectKey};
use crate::escalate::{self, Workshop};
use crate::facts::{Check, Kind, Name, Node, Object, ObjectKey, Policy, Source};
use crate::flight::{Clearance, Flight, grows_with_nodes};
use crate::gate::{Gate, Tally, gate};
use crate::health::{Health, Known, assess};
use crate::nhc::{self, CheckStatus, Findings, UnhealthyNode};
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
    /// Checks that are not ours; see [`World::is_ours`].
    pub foreign: Vec<Name>,
    pub leads: bool,
    /// Nothing but the lease may be sent from then on.
    pub leads_until: Option<Mono>,
}

/// Requests under way at once that grow with the number of nodes. Enough to start a hundred remediations
/// within a blink, and a small part of what an API server admits from one client.
pub const REQUESTS_MAX: usize = 64;
/// A look that was sent longer ago no longer justifies a start.
const LOOK_VALID_FOR: Duration = Duration::from_secs(5);
/// The status is for people: they need no more than one a second.
const STATUS_EVERY: Duration = Duration::from_secs(1);
const STATUS_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Watches are back within seconds after most breaks.
const DOUBT_TOLD_AFTER: Duration = Duration::from_secs(10);
/// Events that do not wait for the pace of the status.
const EVENTS_PER_STATUS: usize = 20;

pub fn plan(world: &World, now: Now) -> Plan {
    let mut draft = Draft::new(world, now);
    draft.elect();
    draft.find_kinds();
    if world.is_synced(&Source::Nodes) && world.is_synced(&Source::Checks) {
        for check in world.checks.values() {
            match world.is_ours(check) {
                true => draft.plan_check(check),
                false => draft.plan.foreign.push(check.name.clone()),
            }
        }
    }
    draft.finish()
}

struct Draft<'a> {
    world: &'a World,
    now: Now,
    plan: Plan,
    requests_left: usize,
    /// Which check has a remediation on which node.
    remediated_by: BTreeMap<&'a Name, &'a Name>,
}

/// A node under a check.
struct Target<'a> {
    known: &'a Known,
    health: Health,
    /// Remediations of this check for this node.
    mine: Vec<&'a Object>,
    /// A request may have created this one, which we do not see yet.
    maybe_created: Option<&'a ObjectKey>,
}

impl Target<'_> {
    fn is_healthy(&self) -> bool {
        self.health == Health::Healthy && self.mine.is_empty() && self.maybe_created.is_none()
    }
}

/// May remediations of a check be started, and how?
enum Permit<'a> {
    Start(Workshop<'a>),
    Shut(Because),
}

impl<'a> Draft<'a> {
    fn new(world: &'a World, now: Now) -> Draft<'a> {
        let requests_left = REQUESTS_MAX.saturating_sub(world.flights.waiting_for_answers());
        let watches = BTreeSet::from([Source::Nodes, Source::Checks, Source::Kinds]);
        let checks: BTreeMap<&str, &Name> = world.checks.values().map(|check| (&*check.uid, &check.name)).collect();
        let owned = world
            .objects
            .values()
            .filter_map(|object| Some((&object.node, object.owners.iter().find_map(|uid| checks.get(&**uid).copied())?)));
        Draft { world, now, plan: Plan { watches, ..Plan::default() }, requests_left, remediated_by: owned.collect() }
    }

    fn elect(&mut self) {
        self.plan.leads = self.world.election.leads(self.now.mono);
        self.plan.leads_until = self.world.election.leads_until();
        if self.world.election.stopping && self.world.flights.any_unanswered() {
            return; // Let go of the leadership only when nothing of ours is on its way any more.
        }
        let (effect, wake_at) = self.world.election.step(self.now);
        self.plan.effects.extend(effect.map(Effect::Lease));
        self.wake(wake_at);
    }

    /// Asks for the kinds that the checks need, and watches those that are served.
    fn find_kinds(&mut self) {
        let ours = self.world.checks.values().filter(|check| self.world.is_ours(check));
        let wanted: BTreeSet<Kind> = ours.flat_map(kinds_of).collect();
        for kind in wanted {
            let missing = self.world.served(&kind).is_none();
            let ask = match self.world.kinds.get(&kind.api_version) {
                None => true,
                Some(known) if known.changed => true,
                Some(known) if missing || known.rechecks_left > 0 => {
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
            Err(invalid) => return self.report_invalid(check, &invalid.0),
        };
        let sources = sources(self.world, check);
        if let Some(source) = sources.iter().find(|source| !self.world.is_synced(source)) {
            return self.report_doubt(check, source); // Not everything has been heard yet: there is nothing to decide on.
        }
        let doubt = sources.into_iter().find(|source| !self.world.is_fresh(source, self.now.mono));
        let (targets, leftovers) = self.targets(check, policy);
        let not_healthy = targets.iter().filter(|target| !target.is_healthy()).count();
        let tally = Tally { targets: targets.len(), not_healthy, leftovers: leftovers.len() };
        let gate = gate(policy, tally);
        let workshop = escalate::workshop(self.world, policy);
        let disabled = workshop.as_ref().err().cloned();
        let permit = match (&doubt, workshop, &gate) {
            (Some(source), _, _) => Permit::Shut(Because::Stale { source: source.clone() }),
            (None, Err(because), _) => Permit::Shut(because),
            (None, Ok(_), Gate::Shut(because)) => Permit::Shut(because.clone()),
            (None, Ok(workshop), Gate::Open) => Permit::Start(workshop),
        };
        for target in &targets {
            self.decide(check, &permit, target, doubt.as_ref());
        }
        for (node, objects) in &leftovers {
            self.decide_without_target(check, node, objects, doubt.as_ref());
        }
        if let Some(source) = doubt {
            return self.report_doubt(check, &source);
        }
        let mut unhealthy: Vec<_> = targets.iter().filter_map(|target| self.unhealthy(check, target)).collect();
        unhealthy.extend(leftovers.into_iter().map(|(name, objects)| (UnhealthyNode::new(name, &objects), None)));
        unhealthy.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let shut = match gate {
            Gate::Shut(because) => Some(because),
            Gate::Open => None,
        };
        let brief = self.world.brief(&check.name).to_vec();
        self.report(
            check,
            &Findings { observed: tally.targets, healthy: tally.targets - tally.not_healthy, unhealthy, disabled, shut, brief },
        );
    }

    /// The nodes that the check selects, and its remediations of nodes that it does not.
    fn targets(&self, check: &Check, policy: &Policy) -> (Vec<Target<'a>>, BTreeMap<Name, Vec<&'a Object>>) {
        let mut mine = remediations(self.world, check);
        let maybe_created = self.world.maybe_created(&check.uid);
        let selected = self.world.nodes.values().filter(|known| policy.selector.selects(&known.node.labels));
        let target = |known: &'a Known| Target {
            known,
            health: assess(known, &policy.rules, self.now.mono),
            mine: mine.remove(&known.node.name).unwrap_or_default(),
            maybe_created: maybe_created.get(&known.node.name).copied(),
        };
        (selected.map(target).collect(), mine)
    }

    fn decide(&mut self, check: &Check, permit: &Permit, target: &Target, doubt: Option<&Source>) {
        if !matches!(target.health, Health::Unhealthy { .. }) {
            self.find_out(target);
        }
        let (verdict, because) = match &target.health {
            Health::Healthy if target.mine.is_empty() => (Verdict::Leave, Because::Healthy),
            Health::Healthy => self.remove(&target.mine, Because::Healthy, doubt),
            Health::Pending { found, due_at } => {
                self.wake(Some(*due_at));
                (keep_or_wait(target), Because::Pending(found.clone()))
            }
            Health::NeverReported { kind } => (keep_or_wait(target), Because::NeverReported { kind: kind.clone() }),
            Health::Unreadable { why } => (keep_or_wait(target), Because::Unreadable { why: why.clone() }),
            Health::Leaving => (keep_or_wait(target), Because::NodeLeaving),
            Health::Unhealthy { found, due_at } => self.repair(check, permit, target, found, *due_at),
        };
        self.decided(check, &target.known.node.name, verdict, because);
    }

    fn repair(&mut self, check: &Check, permit: &Permit, target: &Target, found: &Match, due_at: Mono) -> (Verdict, Because) {
        if let Some(object) = target.mine.first() {
            let key = object.key.clone();
            return match object.deleting {
                true => (Verdict::Wait, Because::Leaving { key }),
                false => (Verdict::Keep, Because::Remediating { key, reason: found.clone() }),
            };
        }
        let workshop = match permit {
            Permit::Start(workshop) => workshop,
            Permit::Shut(because) => {
                self.find_out(target);
                return (Verdict::Hold, because.clone());
            }
        };
        if let Some(owner) = self.other_check(check, target.known) {
            return (Verdict::Hold, Because::Overlapping { owner });
        }
        let key = workshop.name_for(check, &target.known.node);
        if self.world.objects.contains_key(&key) {
            return (Verdict::Hold, Because::Occupied { key });
        }
        match self.clear_to_start(target, &key, due_at) {
            Err(waits) => waits,
            Ok(()) => self.start(check, workshop, &target.known.node, key),
        }
    }

    /// Nothing of the kind is under way, and a plain look at the node, sent after its time was over, still shows the reason.
    fn clear_to_start(&mut self, target: &Target, key: &ObjectKey, due_at: Mono) -> Result<(), (Verdict, Because)> {
        if !self.plan.leads {
            return Err((Verdict::Wait, Because::NotLeading));
        }
        let create = EffectKey::Create(key.clone());
        let creating = Err((Verdict::Start, Because::Creating { key: key.clone() }));
        // Something else may have been created for it, or this very thing may have been, and the watch has yet to show it.
        if target.maybe_created.is_some_and(|maybe| maybe != key) {
            self.find_out(target);
            return creating;
        }
        match (self.world.flights.get(&create), self.world.flights.clearance(&create, self.now.mono)) {
            (_, Clearance::UnderWay) => return creating,
            (Some(Flight::Stored { .. } | Flight::Exists { .. }), _) => {
                self.find_out(target);
                return creating;
            }
            (Some(Flight::Refused { why, .. }), Clearance::NotBefore(retry_at)) => {
                self.wake(Some(retry_at));
                return Err((Verdict::Wait, Because::Refused { key: key.clone(), why: why.clone() }));
            }
            (_, Clearance::NotBefore(retry_at)) => {
                self.wake(Some(retry_at));
                return creating;
            }
            (_, Clearance::Go) => {}
        }
        if let Some((times, again_at)) = self.world.removed_by_others(key).filter(|(_, again_at)| *again_at > self.now.mono) {
            self.wake(Some(again_at));
            return Err((Verdict::Wait, Because::Removed { key: key.clone(), times }));
        }
        let node = &target.known.node.name;
        let looked = self.world.looked_at(node).is_some_and(|at| at >= due_at && self.now.mono.since(at) <= LOOK_VALID_FOR);
        if looked {
            return Ok(());
        }
        match self.send(Effect::Look { node: node.clone() }) {
            true => Err((Verdict::Wait, Because::Looking)),
            false => Err((Verdict::Wait, Because::Queued)),
        }
    }

    fn start(&mut self, check: &Check, workshop: &Workshop, node: &Node, key: ObjectKey) -> (Verdict, Because) {
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
            true => (Verdict::Start, Because::Creating { key }),
            false => (Verdict::Wait, Because::Queued),
        }
    }

    /// Where an answer was lost, or the watch does not show what was stored, the server is asked.
    fn find_out(&mut self, target: &Target) {
        let Some(key) = target.maybe_created else { return };
        let Some(served) = self.world.served(&key.kind) else { return };
        match self.world.flights.clearance(&EffectKey::Create(key.clone()), self.now.mono) {
            Clearance::Go => {
                self.send(Effect::Read { key: key.clone(), plural: served.plural.clone() });
            }
            Clearance::NotBefore(at) => self.wake(Some(at)),
            Clearance::UnderWay => {}
        }
    }

    /// A remediation whose node is no longer a target: it left the selection, or the cluster.
    fn decide_without_target(&mut self, check: &Check, node: &Name, objects: &[&Object], doubt: Option<&Source>) {
        let (verdict, because) = if self.world.nodes.contains_key(node) {
            self.remove(objects, Because::NotSelected, doubt)
        } else if let Some(why) = self.world.unreadable_node(node) {
            (Verdict::Keep, Because::Unreadable { why: why.clone() })
        } else if let Some(busy) = objects.iter().find(|object| {
            object.processing || object.finalizers > 0 || object.expects_node_to_go && object.succeeded != Some(true)
        }) {
            (Verdict::Keep, Because::NodeGoneProviderBusy { key: busy.key.clone() })
        } else {
            self.remove(objects, Because::NodeGone, doubt)
        };
        self.decided(check, node, verdict, because);
    }

    /// What rests on old news is not acted on, in either direction.
    fn remove(&mut self, objects: &[&Object], because: Because, doubt: Option<&Source>) -> (Verdict, Because) {
        if let Some(source) = doubt {
            return (Verdict::Keep, Because::Stale { source: source.clone() });
        }
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

    /// Is another check responsible for the node? That is whichever has a remediation on it; otherwise, of several that
    /// select it, the oldest. One of which not enough is known yet counts as able to act: unknown is not disabled.
    fn other_check(&self, check: &Check, known: &Known) -> Option<Name> {
        if let Some(owner) = self.remediated_by.get(&known.node.name).filter(|owner| ***owner != check.name) {
            return Some((*owner).clone());
        }
        // Whoever takes care of a check that is not ours was there before us, for all that we know.
        let age = |check: &Check| (self.world.is_ours(check), check.created_at, check.name.clone());
        let others = self.world.checks.values().filter(|other| !other.deleting && age(other) < age(check));
        let responsible = others.filter(|other| {
            let Ok(policy) = &other.policy else { return false };
            let is_able = || {
                !self.world.is_ours(other)
                    || !sources(self.world, other).iter().all(|source| self.world.is_synced(source))
                    || escalate::workshop(self.world, policy).is_ok()
            };
            policy.selector.selects(&known.node.labels) && is_able()
        });
        responsible.min_by_key(|other| age(other)).map(|other| other.name.clone())
    }

    fn unhealthy(&self, check: &Check, target: &Target) -> Option<(UnhealthyNode, Option<Because>)> {
        let name = target.known.node.name.clone();
        let because = match &target.health {
            Health::Unhealthy { found, .. } => Some(Because::Expired(found.clone())),
            Health::Healthy
            | Health::Leaving
            | Health::Pending { .. }
            | Health::NeverReported { .. }
            | Health::Unreadable { .. } => None,
        };
        if because.is_none() && target.mine.is_empty() {
            return None;
        }
        let known = check.status.unhealthy.iter().find(|node| node.name == name);
        let healthy_since = match &target.health {
            Health::Healthy => Some(known.and_then(|node| node.healthy_since).unwrap_or(self.now.wall.whole_seconds())),
            Health::Leaving
            | Health::Unhealthy { .. }
            | Health::Pending { .. }
            | Health::NeverReported { .. }
            | Health::Unreadable { .. } => None,
        };
        Some((UnhealthyNode { healthy_since, ..UnhealthyNode::new(name, &target.mine) }, because))
    }

    /// What stood there stays: it cannot be judged any more, and is not gone because of that.
    fn report_invalid(&mut self, check: &Check, why: &Name) {
        if !self.world.is_fresh(&Source::Checks, self.now.mono) {
            return;
        }
        let known = &check.status;
        let count = |number: Option<u32>| number.unwrap_or(0) as usize;
        let unhealthy = known.unhealthy.iter().map(|node| (node.clone(), None)).collect();
        let disabled = Some(Because::PolicyInvalid { why: why.clone() });
        let findings = Findings {
            observed: count(known.observed),
            healthy: count(known.healthy),
            unhealthy,
            disabled,
            ..Findings::default()
        };
        self.report(check, &findings);
    }

    /// Doubts come and go with every broken connection; only one that lasts is worth a word.
    fn report_doubt(&mut self, check: &Check, source: &Source) {
        let Some(since) = self.world.silent_since(source) else { return };
        let told_at = since.after(DOUBT_TOLD_AFTER);
        if told_at > self.now.mono {
            return self.wake(Some(told_at));
        }
        let status = nhc::status_in_doubt(check, &Because::Stale { source: source.clone() }, self.now.wall);
        self.write_status(check, status, true);
    }

    /// Events first, the status that makes them history after.
    fn report(&mut self, check: &Check, findings: &Findings) {
        let desired = nhc::status(check, findings, self.now.wall);
        if desired == check.status && findings.brief.is_empty() {
            return;
        }
        let throttled = self.next_status_at(check, &desired).is_some();
        let mut all_settled = true;
        let mut room = EVENTS_PER_STATUS.saturating_sub(self.world.settled(&check.name));
        for event in nhc::events(check, findings, &desired, self.now.wall) {
            if self.world.is_settled(&check.name, &event.name) {
                continue;
            }
            all_settled = false;
            // A single event need not wait; many at once are summed up, and that at the pace of the status.
            if !throttled || (!event.sums_up && room > 0) {
                room = room.saturating_sub(1);
                self.send(Effect::Emit(event));
            }
        }
        self.write_status(check, desired, all_settled);
    }

    fn write_status(&mut self, check: &Check, status: CheckStatus, events_are_out: bool) {
        if status == check.status {
            return;
        }
        match self.next_status_at(check, &status) {
            Some(next_at) => self.wake(Some(next_at)),
            None if events_are_out => {
                let (check, version) = (check.name.clone(), check.version.clone());
                self.send(Effect::Status { check, version, status, written_at: self.now.wall });
            }
            None => {}
        }
    }

    /// None: now. To write again what was stored last means that it did not stay: a schema prunes it, or somebody else
    /// writes too, and neither gets better by hurrying.
    fn next_status_at(&self, check: &Check, desired: &CheckStatus) -> Option<Mono> {
        let sent = self.world.status_sent(&check.name)?;
        let did_not_stay = sent.stored && sent.gist == desired.gist();
        let pause = if did_not_stay { STATUS_AGAIN_AFTER } else { STATUS_EVERY };
        Some(sent.at.after(pause)).filter(|at| *at > self.now.mono)
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

/// The kinds that a check needs: of its template, of what is made from it, and of what it has already on nodes.
fn kinds_of(check: &Check) -> BTreeSet<Kind> {
    let steps = check.policy.iter().flat_map(|policy| &policy.steps);
    let policy = steps.flat_map(|step| [step.template.kind.clone(), escalate::remediation_kind(&step.template)]);
    let running =
        check.status.unhealthy.iter().flat_map(|node| &node.remediations).map(|remediation| remediation.key.kind.clone());
    policy.chain(running).filter(|kind| kind.api_version.contains('/')).collect()
}

/// What has to be heard before anything can be decided under this check.
fn sources(world: &World, check: &Check) -> Vec<Source> {
    let mut sources = vec![Source::Nodes, Source::Checks];
    for kind in kinds_of(check) {
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
