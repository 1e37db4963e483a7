//! What is to be done now, and why?
//!
//! Pure and total: the same world and time give the same plan. It is made from scratch each time, so
//! there is nothing to keep in step with the world but the world.

mod attempt;
pub mod machines;
mod nodes;
mod report;
mod shut;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::{Because, Decision, Outcome};
use crate::default_check;
use crate::effect::{Effect, Room, Sender};
use crate::escalate;
use crate::facts::{Check, Mode, Name, Object, ObjectKey, OwnerRef, Rival, Signal, Source};
use crate::flight::Clearance;
use crate::gate::{self, Gates};
use crate::health::Known;
use crate::hold;
use crate::kinds;
use crate::mhc::facts::{ClusterKey, Machine, MachineCheck};
use crate::quorum::{self, Starting};
use crate::time::{Mono, Now, Wall};
use crate::upgrade::{self, Detector, Off};
use crate::world::{Creating, World};

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
    /// Our clock and the server's differ.
    pub out_of_time: Option<Because>,
    /// Detectors of upgrades that are switched on and do not work from the start.
    pub detectors_off: Vec<(Detector, Off)>,
    /// What has the name of another controller's where none is at home; see [`crate::rival::Homes`].
    pub strays: Vec<(Source, Name)>,
    /// Checks under which nothing starts now, each with the word for why; see [`Because::word`].
    pub shut: BTreeMap<Name, &'static str>,
    /// Clusters of which we may not ask who they are.
    pub unidentified: Vec<ClusterKey>,
    pub leads: bool,
    /// Nothing but the lease may be sent from then on.
    pub leads_until: Option<Mono>,
}

/// Requests under way at once that grow with the number of nodes. Enough to start a hundred remediations
/// within a blink, and a small part of what an API server admits from one client.
pub const REQUESTS_MAX: usize = 64;
/// What nobody waits for is sent only while fewer than this are under way: when a rack loses power its repairs come first,
/// and a new check that has thousands of machines to write on does not keep the server busy with that.
const LEISURELY_MAX: usize = 16;

pub fn plan(world: &World, now: Now) -> Plan {
    // What is written down is dated by the server's clock.
    let now = world.clock.corrected(now);
    let mut draft = Draft::new(world, now);
    draft.elect();
    draft.find_kinds();
    draft.find_neighbours();
    draft.find_signals();
    draft.find_machines();
    if world.is_synced(&Source::Nodes) && world.is_synced(&Source::Checks) {
        for check in world.checks.values() {
            match (world.is_ours(check), draft.rival_of(check)) {
                (true, None) => draft.plan_check(check),
                (true, Some(because)) => draft.report_unusable(check, because),
                (false, _) => draft.plan.foreign.push(check.name.clone()),
            }
        }
    }
    draft.plan_machines();
    draft.find_out_rest();
    draft.forget_checks();
    draft.send_leisurely();
    if let Some(effect) = default_check::wanted(world, now) {
        draft.send(effect);
    }
    draft.finish()
}

struct Draft<'a> {
    world: &'a World,
    now: Now,
    plan: Plan,
    requests_left: usize,
    /// To be sent when there is nothing more urgent.
    can_wait: Vec<Effect>,
    /// Which check has a remediation on which node.
    remediated_by: BTreeMap<&'a Name, &'a Name>,
    /// What may have been created, by the node that it is for.
    maybe_created: BTreeMap<&'a Name, Vec<(&'a ObjectKey, &'a Creating)>>,
    /// What is left of checks that are gone, likewise.
    left_behind: BTreeMap<&'a Name, &'a ObjectKey>,
    /// What was made for machines, by us, by their namespace and name; and what may have been and is not seen yet.
    made_for_machines: BTreeMap<(&'a Name, &'a Name), Vec<&'a Object>>,
    on_their_way: BTreeMap<(&'a Name, &'a Name), Vec<&'a ObjectKey>>,
    /// Creations of which it is decided already whether they are asked about or sent again.
    minded: BTreeSet<ObjectKey>,
    /// The nodes and machines of each control plane on which this plan starts something.
    starting: Starting,
    /// NodeHealthChecks that are able to act, where there are several, and MachineHealthChecks; the oldest first.
    able_node_checks: Vec<&'a Check>,
    able_checks: Vec<&'a MachineCheck>,
    /// The machines of nodes in this cluster.
    machines_here: BTreeMap<&'a Name, &'a Machine>,
    /// The gates that are shut for all checks.
    everywhere: Gates,
    /// Why checks are left to somebody else's controller, unless they say that we take over.
    rivals: BTreeMap<Rival, Because>,
}

impl<'a> Draft<'a> {
    fn new(world: &'a World, now: Now) -> Draft<'a> {
        let requests_left = REQUESTS_MAX.saturating_sub(world.flights.waiting_for_answers());
        let strays = world.strays().map(|(source, name)| (source.clone(), name.clone())).collect();
        let watches = BTreeSet::from([Source::Nodes, Source::Checks, Source::Kinds, Source::OwnNamespace]);
        let checks: BTreeMap<&str, &Name> = world.checks.values().map(|check| (&*check.uid, &check.name)).collect();
        let owner = |object: &'a Object| {
            let is_owner = |owner: &&OwnerRef| checks.contains_key(&*owner.uid) && world.is_work_of(object, &owner.uid);
            let owner = object.owners.iter().find(is_owner)?;
            Some((&object.node, *checks.get(&*owner.uid)?))
        };
        let owned = world.objects.values().filter_map(owner);
        let place = |key: &'a ObjectKey| Some((key.namespace.as_ref()?, &key.name));
        let made = world.objects.values().filter(|object| object.machine_check.is_some());
        let may_be_made = world.flights.creations().filter(|key| !world.is_for_node(key));
        let mut draft = Draft {
            world,
            now,
            plan: Plan { watches, strays, ..Plan::default() },
            requests_left,
            can_wait: Vec::new(),
            remediated_by: owned.collect(),
            maybe_created: by(world.maybe_created().map(|(key, creating)| (Some(&creating.node), (key, creating)))),
            left_behind: world.left_behind(),
            made_for_machines: by(made.map(|object| (place(&object.key), object))),
            on_their_way: by(may_be_made.map(|key| (place(key), key))),
            minded: BTreeSet::new(),
            starting: Starting::new(),
            able_node_checks: Vec::new(),
            able_checks: machines::able_checks(world),
            machines_here: machines::machines_here(world),
            everywhere: Gates::default(),
            rivals: BTreeMap::new(),
        };
        let out_of_time = gate::clock_differs(&world.clock, now.mono);
        draft.everywhere = gate::everywhere(draft.paused(), out_of_time.clone());
        draft.plan.out_of_time = out_of_time;
        for (rival, leases) in &world.rivals {
            if let Some((because, until)) = leases.alive(now.mono) {
                draft.rivals.insert(*rival, because);
                draft.wake(Some(until));
            }
        }
        if world.checks.len() > 1 {
            let mut able: Vec<&Check> = world.checks.values().filter(|check| draft.is_able(check)).collect();
            able.sort_by_key(|check| draft.age(check));
            draft.able_node_checks = able;
        }
        draft
    }

    /// Why everything is paused, and whether that is told. That a pause is not known comes and goes with every broken connection;
    /// only if that lasts it is worth a word.
    fn paused(&mut self) -> Option<(Because, bool)> {
        let paused = self.world.paused(self.now.mono)?;
        if matches!(paused, Because::AllPaused { .. }) {
            return Some((paused, true));
        }
        let is_told = self.is_told(self.world.doubt_told_at(&Source::OwnNamespace));
        Some((paused, is_told))
    }

    fn rival_of(&self, check: &Check) -> Option<Because> {
        self.rivals.get(&Rival::Medik8s).filter(|_| !check.take_over).cloned()
    }

    /// Leases that would hold a check back, were they elsewhere.
    fn ignored_leases(&self, rival: Rival, take_over: bool) -> Vec<Name> {
        let strays = self.world.strays().filter(|(source, _)| **source == Source::Rivals(rival) && !take_over);
        strays.map(|(_, name)| name.clone()).collect()
    }

    /// Is it up to us to act under this check?
    fn is_ours(&self, check: &Check) -> bool {
        self.world.is_ours(check) && self.rival_of(check).is_none()
    }

    /// Could it be responsible for a node? One of which not enough is known yet counts as able to act: unknown is not disabled.
    fn is_able(&self, check: &Check) -> bool {
        let Some(policy) = check.policy.as_ref().ok().filter(|policy| policy.mode == Mode::Act) else { return false };
        let is_known = || sources::of_check(self.world, check, self.now.mono).iter().all(|source| self.world.is_synced(source));
        !check.deleting && (!self.is_ours(check) || !is_known() || escalate::workshops(self.world, policy).is_ok())
    }

    /// Whoever takes care of a check that is not ours was there before us, for all that we know. And the check that nobody wrote
    /// yields to all that somebody did.
    fn age<'c>(&self, check: &'c Check) -> (bool, bool, Wall, &'c Name) {
        (check.is_default, self.is_ours(check), check.created_at, &check.name)
    }

    /// Leases of checks that are gone would keep the others off those nodes until they expire.
    fn forget_checks(&mut self) {
        let heard = [Source::Checks, Source::NodeLeases].iter().all(|source| self.world.is_fresh(source, self.now.mono));
        if !heard || !self.world.owns_all_checks() || self.rivals.contains_key(&Rival::Medik8s) {
            return;
        }
        let at_work = self.maybe_created.keys().chain(self.left_behind.keys());
        let busy: BTreeSet<Name> = at_work.map(|node| hold::lease_name(node)).collect();
        for lease in self.world.node_leases.values().filter(|lease| !busy.contains(&lease.name)) {
            let gone = hold::check_of(&lease.holder).is_some_and(|check| !self.world.checks.contains_key(check));
            if gone {
                self.send(Effect::ReleaseNode { lease: lease.clone() });
            }
        }
    }

    /// What was sent under a check that is gone, or that no longer has the node or machine, may have been created all the same:
    /// until that is known nobody else begins.
    fn find_out_rest(&mut self) {
        let world = self.world;
        for key in world.flights.creations().filter(|key| !self.minded.contains(key)).collect::<Vec<_>>() {
            self.find_out_key(key);
        }
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
        for kind in kinds::wanted(self.world) {
            let missing = self.world.served(&kind).is_none();
            self.discover(&kind.api_version, missing);
            if !missing {
                self.plan.watches.insert(Source::Objects(kind));
            }
        }
    }

    /// Asks which kinds this API has, if it is time to. `missing`: it lacks one that somebody needs.
    fn discover(&mut self, api_version: &Name, missing: bool) {
        let Some(due_at) = kinds::due_at(self.world, api_version, missing) else { return };
        self.wake_if_later(due_at);
        let effect = Effect::Discover { api_version: api_version.clone() };
        if self.now.mono >= due_at && !self.plan.effects.contains(&effect) {
            self.send(effect);
        }
    }

    /// What tells of upgrades.
    fn find_signals(&mut self) {
        let needs = upgrade::needs(self.world, self.now.mono);
        self.plan.watches.extend(needs.watches);
        self.plan.detectors_off = needs.off;
        self.wake(needs.wake_at);
        for effect in needs.asks {
            if !self.plan.effects.contains(&effect) {
                self.send(effect);
            }
        }
    }

    /// Leases on nodes matter to whoever may start something, and etcd to whoever may start it on the control plane.
    fn find_neighbours(&mut self) {
        let ours = self.world.checks.values().filter(|check| self.world.is_ours(check));
        let mut policies = ours.filter_map(|check| check.policy.as_ref().ok()).peekable();
        if policies.peek().is_some() {
            self.plan.watches.extend([Source::NodeLeases, Source::Rivals(Rival::Medik8s)]);
        }
        // Of a check that is gone, until they can be given back.
        if !self.left_behind.is_empty() || !self.maybe_created.is_empty() {
            self.plan.watches.insert(Source::NodeLeases);
        }
        let (etcd, now) = (&self.world.etcd, self.now.mono);
        let concerns = |known: &&Known| known.is_control_plane || etcd.has_host(&known.node.name, now);
        let control_plane: Vec<_> = self.world.nodes.values().filter(concerns).collect();
        // A host that lost its label looks like any other node until its Pod is seen.
        if policies.peek().is_some() && !control_plane.is_empty() {
            self.plan.watches.insert(Source::Etcd);
        }
        if policies.any(|policy| control_plane.iter().any(|known| policy.selector.selects(&known.node.labels))) {
            self.plan.watches.insert(Source::Etcd);
            self.wake(etcd.forgets_at(now));
            self.find_openshift();
        }
    }

    /// Is this OpenShift, which guards its etcd itself?
    fn find_openshift(&mut self) {
        Signal::ClusterVersions.kind().into_iter().for_each(|kind| self.discover(&kind.api_version, false));
        if quorum::is_openshift(self.world) == Some(true) {
            self.plan.watches.extend([Source::Budgets, Source::Guards]);
        }
    }

    fn shut(&mut self, check: Name, because: &Because) {
        self.plan.shut.insert(check, because.word());
    }

    fn decided(&mut self, check: Name, target: &Name, Outcome { verdict, because }: Outcome) {
        self.plan.decisions.push(Decision { check, node: target.clone(), verdict, because });
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
        let counts = key.nature().room == Room::Counted;
        if counts && self.requests_left == 0 {
            return false;
        }
        self.requests_left -= usize::from(counts);
        self.plan.effects.push(effect);
        true
    }

    /// Is there room for more of what can wait? If not, what is under way will be answered, and then it is thought of again.
    fn has_time(&self) -> bool {
        self.can_wait.len() < self.requests_left.saturating_sub(REQUESTS_MAX - LEISURELY_MAX)
    }

    fn send_in_time(&mut self, effect: Effect) {
        match self.world.flights.clearance(&effect.key(), self.now.mono) {
            Clearance::UnderWay => {}
            Clearance::NotBefore(at) => self.wake(Some(at)),
            Clearance::Go if self.has_time() => self.can_wait.push(effect),
            Clearance::Go => {}
        }
    }

    /// The room that nothing urgent has taken meanwhile.
    fn send_leisurely(&mut self) {
        let room = self.requests_left.saturating_sub(REQUESTS_MAX - LEISURELY_MAX);
        for effect in std::mem::take(&mut self.can_wait).into_iter().take(room) {
            self.send(effect);
        }
    }

    /// Looks under way in a Cluster.
    fn looks_in(&self, cluster: &ClusterKey) -> usize {
        let is_look = |effect: &&Effect| matches!(effect, Effect::Look { cluster: Some(own), .. } if own == cluster);
        self.world.flights.looks_in(cluster) + self.plan.effects.iter().filter(is_look).count()
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
        plan.effects.retain(|effect| match effect.key().nature().sender {
            Sender::Candidate => true,
            Sender::Everybody => !self.world.election.stopping,
            Sender::LeaderAsks | Sender::LeaderWrites => acts,
        });
        assert!(plan.wake_at.is_none_or(|at| at > self.now.mono), "a plan that wakes itself at once would never rest");
        plan
    }
}

/// Whatever has the same key, together.
fn by<K: Ord, V>(all: impl Iterator<Item = (Option<K>, V)>) -> BTreeMap<K, Vec<V>> {
    let mut together: BTreeMap<K, Vec<V>> = BTreeMap::new();
    all.filter_map(|(key, one)| Some((key?, one))).for_each(|(key, one)| together.entry(key).or_default().push(one));
    together
}
