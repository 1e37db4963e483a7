//! How do the nodes of one check stand, and may anything start under it?

mod recover;
mod repair;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::{Because, Outcome};
use crate::escalate::{self, Workshop};
use crate::facts::{Check, EXCLUDE_LABEL, Limit, Mode, Name, Object, ObjectKey, Policy, Rival, Source};
use crate::gate::{self, Asked, Gates, Storm, Tally};
use crate::health::{Health, Known, assess};
use crate::hold;
use crate::kinds;
use crate::nhc::{Findings, Found, Remediation, StatusCondition, UnhealthyNode};
use crate::plan::{Draft, sources};
use crate::reasons;
use crate::repeat::Recent;
use crate::time::Wall;
use crate::upgrade::{self, Sign};
use crate::world::{Creating, World};

/// A check, and what holds for all of its nodes.
pub struct Round<'a> {
    pub check: &'a Check,
    pub policy: &'a Policy,
    /// What decisions rest on, and may be out of date.
    pub doubt: Option<Source>,
    /// One for each step; none if the check is disabled.
    pub workshops: Vec<Workshop<'a>>,
    pub gates: Gates,
    pub dark_zones: BTreeMap<Name, Because>,
    recent: BTreeMap<Name, Recent>,
}

/// A node under a check.
pub struct Target<'a> {
    pub known: &'a Known,
    pub health: Health,
    pub zone: &'a str,
    /// Remediations of this check for this node.
    pub mine: Vec<&'a Object>,
    /// A request may have created this one, which we do not see yet.
    pub maybe_created: Option<&'a ObjectKey>,
    /// What the check's status says of it.
    pub listed: Option<&'a UnhealthyNode>,
}

impl Round<'_> {
    pub fn acts(&self) -> bool {
        self.policy.mode == Mode::Act
    }

    pub fn recent(&self, node: &Name) -> Option<&Recent> {
        self.recent.get(node)
    }
}

impl<'a> Target<'a> {
    pub fn name(&self) -> &'a Name {
        &self.known.node.name
    }

    fn is_healthy(&self) -> bool {
        self.health == Health::Healthy && self.mine.is_empty() && self.maybe_created.is_none()
    }

    /// Steps that were given up, and of which nothing is left but the status. What was given up for an earlier Node of this name does
    /// not count, unless something is still at work that was made for that: then it came back in the middle of its repair.
    pub fn remembered(&self) -> Vec<&'a Remediation> {
        let node = &self.known.node;
        let outlives_node = self.mine.iter().any(|object| object.created_at < node.created_at);
        let is_of_node = |remediation: &Remediation| outlives_node || remediation.timed_out_at >= Some(node.created_at);
        let listed = self.listed.into_iter().flat_map(|listed| &listed.remediations);
        let is_live = |remediation: &Remediation| self.mine.iter().any(|object| object.uid == remediation.uid);
        let given_up = listed.filter(|remediation| remediation.timed_out_at.is_some() && !is_live(remediation));
        given_up.filter(|remediation| is_of_node(remediation)).collect()
    }
}

impl<'a> Draft<'a> {
    pub(in crate::plan) fn plan_check(&mut self, check: &'a Check) {
        let policy = match &check.policy {
            Ok(policy) if !check.deleting => policy,
            Ok(_) => return,
            Err(invalid) => return self.report_unusable(check, Because::PolicyInvalid { why: invalid.0.clone() }),
        };
        let sources = sources::of_check(self.world, check, self.now.mono);
        if let Some(source) = sources.iter().find(|source| !self.world.is_synced(source)) {
            self.shut(check.name.clone(), &Because::Stale { source: source.clone() });
            return self.report_doubt(check, source); // Not everything has been heard yet: there is nothing to decide on.
        }
        let doubt = sources.into_iter().find(|source| !self.world.is_fresh(source, self.now.mono));
        let (targets, leftovers) = self.targets(check, policy);
        let outside = leftovers.len() + self.unseen_outside(check, policy, &leftovers);
        let (tally, dark_zones) = tally(policy, &targets, outside, self.world.limit);
        let too_many = gate::too_many_unhealthy(policy, tally, self.world.limit);
        let storm = gate::storm(self.world, check, policy, too_many.is_some(), self.now);
        if let Storm::Cooling { until } = storm {
            self.wake(Some(until));
        }
        let (workshops, disabled) = match escalate::workshops(self.world, policy) {
            Ok(workshops) => (workshops, None),
            Err(because) => (Vec::new(), Some(because)),
        };
        let signs: Vec<Sign> = targets.iter().map(|target| Sign::of(target.known, &target.health)).collect();
        let upgrading = upgrade::upgrading(self.world, check, policy, &signs, self.now);
        self.wake(upgrading.as_ref().and_then(|upgrading| upgrading.wake_at(self.now.mono)));
        let gates = gate::gates(Asked {
            doubt: doubt.as_ref(),
            everywhere: &self.everywhere,
            paused: gate::paused(policy),
            unusable: disabled.clone(),
            upgrading: upgrading.as_ref().map(|upgrading| (upgrading.because(), upgrading.is_told(self.now.mono))),
            too_many,
            cooling: cooling(storm),
        });
        if let Some(because) = gates.first_step() {
            self.shut(check.name.clone(), because);
        }
        let recent = self.recent(check, policy, &targets);
        let round = Round { check, policy, doubt, workshops, gates, dark_zones, recent };

        self.plan.decisions.reserve(targets.len() + leftovers.len());
        let mut unhealthy = Vec::new();
        // Whether or not the check still has the node.
        let at_work = leftovers.keys().chain(self.maybe_created.keys().copied()).chain(self.left_behind.keys().copied());
        let mut busy: BTreeSet<Name> = at_work.map(|node| hold::lease_name(node)).collect();
        for target in &targets {
            let outcome = self.decide(&round, target);
            unhealthy.extend(self.found(&round, target, &outcome.because));
            if !target.mine.is_empty() || outcome.because.is_about_to_start() {
                busy.insert(hold::lease_name(target.name()));
            }
            self.decided(check.name.clone(), target.name(), outcome);
        }
        for (node, objects) in &leftovers {
            let outcome = self.clear_up(&round, node, objects);
            self.decided(check.name.clone(), node, outcome);
        }
        self.let_go(&round, &busy);
        if let Some(source) = &round.doubt {
            return self.report_doubt(check, source);
        }
        let healthy = targets.iter().filter(|target| target.is_healthy()).count();
        unhealthy.extend(leftovers.into_iter().map(|(node, objects)| self.found_without_target(&round, node, &objects)));
        unhealthy.sort_by(|one, other| one.node.name.cmp(&other.node.name));
        let condition = upgrade::condition(self.world, check, &signs, upgrading.as_ref(), self.now);
        let upgrade_takes_long = self.upgrade_takes_long(check, condition.as_ref());
        let findings = Findings {
            observed: targets.len(),
            healthy,
            unhealthy,
            disabled,
            shut: round.gates.told().cloned(),
            dark_zones: round.dark_zones.values().cloned().collect(),
            storm: Some(storm),
            recent: round.recent.into_values().collect(),
            brief: self.world.brief(&check.name).to_vec(),
            limits: self.limits(check),
            ignored_leases: self.ignored_leases(Rival::Medik8s, check.take_over),
            clamped: policy.threshold.is_clamped(),
            upgrading: condition,
            upgrade_takes_long,
        };
        self.report(check, &findings);
    }

    /// Whether the check has seen an upgrade for more than two hours, so that a person should look.
    fn upgrade_takes_long(&mut self, check: &Check, condition: Option<&StatusCondition>) -> bool {
        let stands = || check.status.conditions.iter().find(|own| &*own.kind == reasons::UPGRADING);
        let at = condition.or_else(stands).and_then(|condition| upgrade::takes_long_at(self.world, condition, self.now));
        self.is_told(at)
    }

    /// What the roles of the providers do not let us do, and what we do instead.
    fn limits(&self, check: &Check) -> Vec<String> {
        let mut limits = Vec::new();
        for kind in kinds::of_check(self.world, check) {
            if self.world.is_unwritable(&kind) {
                limits.push(format!("neither patch nor update of {kind} is granted: nothing is marked there"));
            } else if self.world.is_limited(&kind) {
                limits.push(format!("patch of {kind} is not granted: update is used"));
            }
            let source = Source::Objects(kind);
            if self.world.is_polled(&source) {
                limits.push(format!("watch of {source} is not granted: it is listed every 15 s"));
            }
        }
        limits
    }

    /// The nodes that the check selects, and its remediations of nodes that it does not.
    fn targets(&self, check: &'a Check, policy: &Policy) -> (Vec<Target<'a>>, BTreeMap<Name, Vec<&'a Object>>) {
        let mut mine = remediations(self.world, check);
        let own = |all: &Vec<(&'a ObjectKey, &'a Creating)>| {
            all.iter().find(|(_, creating)| creating.check_uid == check.uid).map(|(key, _)| *key)
        };
        let listed: BTreeMap<&Name, &UnhealthyNode> = check.status.unhealthy.iter().map(|node| (&node.name, node)).collect();
        let selected = self.world.nodes.values().filter(|known| policy.selector.selects(&known.node.labels));
        let target = |known: &'a Known| Target {
            known,
            health: assess(known, policy, self.now.mono),
            zone: policy.topology_key.as_ref().and_then(|key| known.node.labels.get(key)).unwrap_or_default(),
            mine: mine.remove(&known.node.name).unwrap_or_default(),
            maybe_created: self.maybe_created.get(&known.node.name).and_then(own),
            listed: listed.get(&known.node.name).copied(),
        };
        let mut targets = Vec::with_capacity(self.world.nodes.len());
        targets.extend(selected.map(target));
        (targets, mine)
    }

    /// How many nodes are no targets any more, and may have got a remediation that is not seen yet.
    fn unseen_outside(&self, check: &Check, policy: &Policy, leftovers: &BTreeMap<Name, Vec<&'a Object>>) -> usize {
        let is_own = |all: &[(&ObjectKey, &Creating)]| all.iter().any(|(_, creating)| creating.check_uid == check.uid);
        let is_target = |node: &Name| self.world.nodes.get(node).is_some_and(|known| policy.selector.selects(&known.node.labels));
        let own = self.maybe_created.iter().filter(|(_, all)| is_own(all)).map(|(node, _)| *node);
        own.filter(|node| !is_target(node) && !leftovers.contains_key(*node)).count()
    }

    fn decide(&mut self, round: &Round<'a>, target: &Target<'a>) -> Outcome {
        if !matches!(target.health, Health::Unhealthy { .. }) {
            self.find_out(target);
        }
        if target.health != Health::Healthy {
            self.tend(round, target, None);
        }
        let waits = |because| if target.mine.is_empty() { Outcome::wait(because) } else { Outcome::keep(because) };
        match &target.health {
            Health::Healthy => self.recover(round, target),
            Health::Pending { found, due_at } => {
                self.wake(Some(*due_at));
                waits(Because::Pending(found.clone()))
            }
            Health::NeverReported { kind } => waits(Because::NeverReported { kind: kind.clone() }),
            Health::Unreadable { why } => waits(Because::Unreadable { why: why.clone() }),
            Health::Leaving => waits(Because::NodeLeaving),
            Health::Unhealthy { found, due_at } => self.repair(round, target, found, *due_at),
        }
    }

    /// Where an answer was lost, or the watch does not show what was stored, the server is asked.
    pub(in crate::plan) fn find_out(&mut self, target: &Target) {
        if let Some(key) = target.maybe_created {
            self.find_out_key(key);
        }
    }

    /// How a target is listed in the status, if it is.
    fn found(&self, round: &Round, target: &Target, because: &Because) -> Option<Found> {
        let is_healthy = target.health == Health::Healthy;
        let remembered = if is_healthy { Vec::new() } else { target.remembered() };
        let why = match &target.health {
            Health::Unhealthy { found, .. } => Some(Because::Expired(found.clone())),
            Health::Healthy
            | Health::Leaving
            | Health::Pending { .. }
            | Health::NeverReported { .. }
            | Health::Unreadable { .. } => None,
        };
        if why.is_none() && target.mine.is_empty() && remembered.is_empty() {
            return None;
        }
        let live = target.mine.iter().map(|object| self.listed_as(round, object, target.listed));
        let mut remediations: Vec<Remediation> = remembered.into_iter().cloned().chain(live).collect();
        remediations.sort_by(|one, other| (one.started_at, &one.key).cmp(&(other.started_at, &other.key)));
        let held = Some(because).filter(|because| why.is_some() && because.is_of_one_node()).cloned();
        let node = UnhealthyNode {
            healthy_since: is_healthy.then(|| self.healthy_since(target)),
            healthy_delayed: matches!(because, Because::HealthyDelay { .. } | Because::Unconfirmed),
            held: held.as_ref().map(|held| held.to_string().into()),
            ..UnhealthyNode::new(target.name().clone(), remediations)
        };
        let label_is_empty = target.known.node.labels.get(EXCLUDE_LABEL) == Some("");
        Some(Found { node, because: why, held, label_is_empty })
    }

    fn found_without_target(&self, round: &Round, name: Name, objects: &[&Object]) -> Found {
        let listed = round.check.status.unhealthy.iter().find(|node| node.name == name);
        let remediations = objects.iter().map(|object| self.listed_as(round, object, listed)).collect();
        Found { node: UnhealthyNode::new(name, remediations), because: None, held: None, label_is_empty: false }
    }

    fn listed_as(&self, round: &Round, object: &Object, listed: Option<&UnhealthyNode>) -> Remediation {
        let step = escalate::step_of(round.policy, object);
        let is_over = step.is_some_and(|step| escalate::is_over(self.world, step, object, self.now));
        let known = listed.into_iter().flat_map(|listed| &listed.remediations).find(|known| known.uid == object.uid);
        let given_up_at = known.and_then(|known| known.timed_out_at).unwrap_or(self.now.wall.whole_seconds());
        Remediation { timed_out_at: is_over.then_some(given_up_at), ..object.into() }
    }

    /// When remediations of each node began, while the check limits how often they may. The status remembers them, but some
    /// are too new to stand there.
    fn recent(&self, check: &Check, policy: &Policy, targets: &[Target]) -> BTreeMap<Name, Recent> {
        let Some(repeat) = policy.repeat else { return BTreeMap::new() };
        let mut all: BTreeMap<Name, Recent> =
            check.status.recent.iter().map(|recent| (recent.node.clone(), recent.clone())).collect();
        let mut begun: Vec<(Name, Wall)> = Vec::new();
        for target in targets.iter().filter(|target| !target.mine.is_empty()) {
            // An escalation is one repair of the node, however many steps it takes.
            let live = target.mine.iter().map(|object| object.created_at);
            let listed = target.listed.into_iter().flat_map(|listed| &listed.remediations).map(|one| one.started_at);
            begun.extend(live.chain(listed).min().map(|at| (target.name().clone(), at)));
        }
        let brief = self.world.brief(&check.name).iter().map(|(node, one)| (node.clone(), one.started_at));
        for (node, at) in begun.into_iter().chain(brief) {
            let recent = all.entry(node.clone()).or_insert_with(|| Recent { node, started_at: Vec::new() });
            recent.started_at.push(at);
        }
        let kept = all.into_iter().map(|(node, recent)| (node, recent.with([], repeat, self.world, self.now)));
        kept.filter(|(_, recent)| !recent.started_at.is_empty()).collect()
    }
}

fn cooling(storm: Storm) -> Option<Because> {
    match storm {
        Storm::Cooling { .. } => Some(Because::StormCooldown),
        Storm::NotWatched | Storm::Calm | Storm::Raging => None,
    }
}

/// Overall, without the zones that are dark; and those.
fn tally(policy: &Policy, targets: &[Target], leftovers: usize, limit: Limit) -> (Tally, BTreeMap<Name, Because>) {
    let dark = match policy.topology_key {
        Some(_) => gate::dark_zones(policy, &zones(targets), limit),
        None => BTreeMap::new(),
    };
    let mut overall = Tally { leftovers, ..Tally::default() };
    for target in targets.iter().filter(|target| dark.is_empty() || !dark.contains_key(target.zone)) {
        overall.count(target.is_healthy());
    }
    (overall, dark)
}

fn zones<'a>(targets: &[Target<'a>]) -> BTreeMap<&'a str, Tally> {
    let mut zones: BTreeMap<&str, Tally> = BTreeMap::new();
    for target in targets {
        zones.entry(target.zone).or_default().count(target.is_healthy());
    }
    zones
}

/// The remediations that this check owns, by node.
fn remediations<'a>(world: &'a World, check: &Check) -> BTreeMap<Name, Vec<&'a Object>> {
    let mut by_node: BTreeMap<Name, Vec<&Object>> = BTreeMap::new();
    for object in world.objects.values().filter(|object| world.is_work_of(object, &check.uid)) {
        by_node.entry(object.node.clone()).or_default().push(object);
    }
    by_node
}
