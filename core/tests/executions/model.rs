//! A cluster in a few lines: nodes, one check, an API that may lose requests or answers, watches that lag.
//!
//! Ground truth is kept apart from what the world under test has been told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use resus_core::audit::audit;
use resus_core::default_check::Workers;
use resus_core::effect::Effect;
use resus_core::etcd::EtcdPod;
use resus_core::event::Event;
use resus_core::facts::{
    Amount, Body, Budget, Check, Claim, Condition, Guard, HealthyDelay, Invalid, Kind, Mode, Name, Node, NodeLease, Object,
    ObjectKey, OwnNamespace, OwnerRef, Policy, Rival, RivalLease, Rule, Selector, Signal, SignalFact, Source, Status, Step,
    Taint, Threshold, Version,
};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::lease::{Election, Record, Timing};
use resus_core::nhc::CheckStatus;
use resus_core::plan::Plan;
use resus_core::time::{Mono, Now, Wall};
use resus_core::world::World;

/// Wall time when the monotonic clock shows zero.
pub const EPOCH: i64 = 1_800_000_000_000;

/// So many turns in a row have something to do only where something is done again and again.
const TURNS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Done,
    LostBefore,
    LostAfter,
    Refused,
}

pub struct Cluster {
    pub world: World,
    /// True time, in milliseconds.
    pub time: i64,
    /// How far the wall clock of the process is off.
    pub wall_step: i64,
    /// How far that of the API server is, if its answers are dated.
    pub server_step: Option<i64>,
    /// How far the clock of each node's kubelet is behind.
    pub behind: BTreeMap<Name, i64>,
    /// Since when each node is not ready; None while it is.
    pub broken_since: BTreeMap<Name, Option<i64>>,
    /// When each node that was broken recovered last.
    recovered_at: BTreeMap<Name, i64>,
    pub objects: BTreeMap<ObjectKey, Object>,
    pub check: Check,
    pub node_leases: BTreeMap<Name, NodeLease>,
    /// Pods of etcd, and what their kubelets say of them.
    pub etcd: BTreeMap<Name, Option<EtcdPod>>,
    /// What OpenShift has in its namespace for etcd.
    pub budgets: BTreeMap<Name, Budget>,
    pub guards: BTreeMap<Name, Guard>,
    /// Where we are installed, if it exists.
    pub own_namespace: Option<OwnNamespace>,
    /// Leases of somebody else's leader.
    pub rivals: BTreeMap<Name, RivalLease>,
    /// Uids of Machines, by namespace and name, and the nodes that they name.
    pub machines: BTreeMap<Name, (Name, Option<Name>)>,
    /// Labels and annotations of nodes, beside those that all have.
    pub labels: BTreeMap<Name, Vec<(&'static str, &'static str)>>,
    pub annotations: BTreeMap<Name, Vec<(&'static str, &'static str)>>,
    /// When the Node objects that another machine registered were made.
    pub registered_at: BTreeMap<Name, Wall>,
    /// Kinds beside those that all providers have.
    pub installed: Vec<Name>,
    /// Nodes that have not reported anything.
    pub silent: BTreeSet<Name>,
    /// The provider's role lacks patch.
    pub patch_is_forbidden: bool,
    /// There is no check in the cluster; those that were made by default are counted.
    pub has_no_check: bool,
    pub default_checks: Vec<Workers>,
    pub lease: Option<Record>,
    pub version: u64,
    /// Events that the watches have not delivered; each watch lags on its own.
    news: BTreeMap<Source, VecDeque<Input>>,
    /// Requests that have not been executed.
    pub requests: VecDeque<Effect>,
    pub created: Vec<(Name, i64)>,
    /// Questions that are not about nodes, while all went well.
    pub asked: usize,
    /// What differs from `v1`.
    pub kubelets: BTreeMap<Name, Name>,
    pub server: Name,
    pub taints: BTreeMap<Name, Name>,
    /// What others say of upgrades; kured's is listed always, the others where their kinds are installed.
    pub signals: BTreeMap<Signal, SignalFact>,
    /// Signals that we may not read.
    pub forbidden: Vec<Signal>,
    pub events: Vec<Event>,
    /// Nodes that are being deleted.
    pub leaving: BTreeSet<Name>,
    /// Of these nothing is ever heard.
    pub deaf_to: BTreeSet<Source>,
}

impl Cluster {
    pub fn new(nodes: usize, threshold: Threshold, unhealthy_after: Duration) -> Cluster {
        let timing = Timing::default();
        let mut cluster = Cluster {
            world: World::new(Election::new("me".into(), timing), Claim::Marked),
            time: 1_000_000,
            wall_step: 0,
            server_step: None,
            behind: BTreeMap::new(),
            broken_since: (0..nodes).map(|n| (Name::from(format!("n{n}")), None)).collect(),
            recovered_at: BTreeMap::new(),
            objects: BTreeMap::new(),
            check: check(threshold, unhealthy_after),
            node_leases: BTreeMap::new(),
            etcd: BTreeMap::new(),
            budgets: BTreeMap::new(),
            guards: BTreeMap::new(),
            own_namespace: None,
            rivals: BTreeMap::new(),
            machines: BTreeMap::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            registered_at: BTreeMap::new(),
            installed: Vec::new(),
            silent: BTreeSet::new(),
            patch_is_forbidden: false,
            has_no_check: false,
            default_checks: Vec::new(),
            lease: None,
            version: 1,
            news: BTreeMap::new(),
            requests: VecDeque::new(),
            created: Vec::new(),
            asked: 0,
            kubelets: BTreeMap::new(),
            server: "v1.36.0".into(),
            taints: BTreeMap::new(),
            signals: BTreeMap::new(),
            forbidden: Vec::new(),
            events: Vec::new(),
            leaving: BTreeSet::new(),
            deaf_to: BTreeSet::new(),
        };
        let template = template();
        cluster.objects.insert(template.key.clone(), template);
        cluster.list(Source::Nodes);
        cluster.list(Source::Checks);
        cluster.list(Source::Kinds);
        cluster
    }

    pub fn now(&self) -> Now {
        Now { wall: Wall(EPOCH + self.time + self.wall_step), mono: Mono(self.time) }
    }

    pub fn list(&mut self, source: Source) {
        let now = self.now();
        self.news.remove(&source);
        if let Source::Signals(signal) = &source
            && self.forbidden.contains(signal)
        {
            self.world.apply(Input::Listing(source.clone()), now);
            self.world.apply(Input::Forbidden(source), now);
            return;
        }
        let facts: Vec<Fact> = match &source {
            Source::Nodes => self.broken_since.keys().map(|name| Fact::Node(self.node(name))).collect(),
            Source::Checks => (!self.has_no_check).then(|| Fact::Check(self.check.clone())).into_iter().collect(),
            Source::Kinds => vec![Fact::Definition { name: "nodehealthchecks.remediation.medik8s.io".into(), ours: true }],
            Source::Signals(signal) => self.signals.get(signal).map(|says| said(*signal, says)).into_iter().collect(),
            Source::Objects(kind) => self.objects.values().filter(|o| o.key.kind == *kind).cloned().map(Fact::Object).collect(),
            Source::NodeLeases => self.node_leases.values().cloned().map(Fact::NodeLease).collect(),
            Source::Etcd => {
                let member = |(pod, says): (&Name, &Option<EtcdPod>)| Fact::Etcd { pod: pod.clone(), says: says.clone() };
                self.etcd.iter().map(member).collect()
            }
            Source::OwnNamespace => self.own_namespace.iter().cloned().map(Fact::OwnNamespace).collect(),
            Source::Budgets => {
                let fact = |(name, budget): (&Name, &Budget)| Fact::Budget { name: name.clone(), budget: budget.clone() };
                self.budgets.iter().map(fact).collect()
            }
            Source::Guards => {
                let fact = |(pod, guard): (&Name, &Guard)| Fact::Guard { pod: pod.clone(), guard: guard.clone() };
                self.guards.iter().map(fact).collect()
            }
            Source::Rivals(_) => {
                let fact = |(name, lease): (&Name, &RivalLease)| Fact::Rival {
                    rival: Rival::Medik8s,
                    name: name.clone(),
                    lease: lease.clone(),
                };
                self.rivals.iter().map(fact).collect()
            }
            Source::MachineChecks(_)
            | Source::Machines(_)
            | Source::Clusters(_)
            | Source::Access(_)
            | Source::RemoteNodes(_)
            | Source::RemoteEtcd(_) => unreachable!("there are no machines here"),
        };
        self.world.apply(Input::Listing(source.clone()), now);
        if self.deaf_to.contains(&source) {
            return;
        }
        for fact in facts {
            self.world.apply(Input::Seen(fact), now);
        }
        self.world.apply(Input::Listed(source), now);
    }

    pub fn node(&self, name: &Name) -> Node {
        let (status, since) = match self.broken_since[name] {
            Some(since) => (Status::False, since),
            None => (Status::True, self.recovered_at.get(name).copied().unwrap_or(0)),
        };
        let annotations = self.annotations.get(name).cloned().unwrap_or_default();
        let behind = self.behind.get(name).copied().unwrap_or(0);
        Node {
            name: name.clone(),
            uid: self.registered_at.get(name).map_or(format!("uid-{name}"), |at| format!("uid-{name}-{}", at.0)).into(),
            created_at: self.registered_at.get(name).copied().unwrap_or(Wall(EPOCH)),
            version: Version(self.version.to_string().into()),
            labels: [("role", "worker")].into_iter().chain(self.labels.get(name).cloned().unwrap_or_default()).collect(),
            annotations: annotations.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
            conditions: (!self.silent.contains(name))
                .then(|| Condition { kind: "Ready".into(), status, since: Wall(EPOCH + since - behind), reason: "".into() })
                .into_iter()
                .collect(),
            // In a lagging watch every report is old: only stories about clocks have them dated.
            reported_at: self.behind.get(name).map(|behind| Wall(EPOCH + self.time - behind)).into_iter().collect(),
            taints: self
                .taints
                .get(name)
                .map(|key| Taint { key: Box::from(&**key), value: "".into(), effect: "NoSchedule".into() })
                .into_iter()
                .collect(),
            boot_id: "b".into(),
            kubelet_version: self.kubelets.get(name).map_or("v1", |version| version).into(),
            provider_id: None,
            unschedulable: false,
            deleting: self.leaving.contains(name),
        }
    }

    pub fn set_broken(&mut self, name: &Name, broken: bool) {
        let since = broken.then_some(self.time);
        if self.broken_since[name].is_some() != broken {
            self.broken_since.insert(name.clone(), since);
            self.recovered_at.insert(name.clone(), self.time);
            self.version += 1;
            let node = self.node(name);
            self.tell(Input::Seen(Fact::Node(node)));
        }
    }

    /// Something about a node has changed that is no condition.
    pub fn touch(&mut self, name: &Name) {
        self.version += 1;
        let node = self.node(name);
        self.tell(Input::Seen(Fact::Node(node)));
    }

    /// Its provider changes a remediation.
    pub fn change_object(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Object)) {
        self.version += 1;
        let version = Version(self.version.to_string().into());
        let Some(object) = self.objects.get_mut(key) else { return };
        change(object);
        object.version = version;
        let object = object.clone();
        self.tell(Input::Seen(Fact::Object(object)));
    }

    pub fn add_object(&mut self, object: Object) {
        self.objects.insert(object.key.clone(), object.clone());
        self.tell(Input::Seen(Fact::Object(object)));
    }

    pub fn remove_object(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.remove(key) {
            self.tell(Input::Gone(Gone::Object(key.clone(), object.uid)));
        }
    }

    pub fn set_node_lease(&mut self, lease: NodeLease) {
        self.node_leases.insert(lease.name.clone(), lease.clone());
        self.tell(Input::Seen(Fact::NodeLease(lease)));
    }

    /// Somebody else's leader renews its Lease now, by its own clock.
    pub fn set_rival(&mut self, holder: &str, clock_is_off_by: i64) {
        self.set_rival_lease("operators", holder, clock_is_off_by, Duration::from_secs(15));
    }

    pub fn set_rival_lease(&mut self, namespace: &str, holder: &str, clock_is_off_by: i64, lasts_for: Duration) {
        let renewed_at = Wall(self.now().wall.0 + clock_is_off_by);
        let lease = RivalLease { holder: holder.into(), renewed_at, lasts_for };
        let name: Name = format!("{namespace}/e1f13584.medik8s.io").into();
        self.rivals.insert(name.clone(), lease.clone());
        self.tell(Input::Seen(Fact::Rival { rival: Rival::Medik8s, name, lease }));
    }

    pub fn set_kubelet(&mut self, name: &Name, version: &str) {
        self.kubelets.insert(name.clone(), version.into());
        self.touch(name);
    }

    pub fn set_signal(&mut self, signal: Signal, says: SignalFact) {
        self.tell(Input::Seen(said(signal, &says)));
        self.signals.insert(signal, says);
    }

    /// Another process takes over, with the memory that the API has.
    pub fn restart(&mut self) {
        let detectors = self.world.detectors.clone();
        self.world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
        self.world.detectors = detectors;
        self.requests.clear();
        self.news.clear();
        for source in [Source::Nodes, Source::Checks, Source::Kinds] {
            self.list(source);
        }
    }

    /// By the annotation on our own namespace, if it is there, and for this reason.
    pub fn set_all_paused(&mut self, reason: Option<&str>) {
        self.version += 1;
        self.own_namespace = Some(OwnNamespace {
            name: self.world.namespace.clone(),
            uid: "own".into(),
            version: Version(self.version.to_string().into()),
            pause: reason.map(Into::into),
        });
        self.tell(Input::Seen(Fact::OwnNamespace(self.own_namespace.clone().expect("it was set"))));
    }

    pub fn set_paused(&mut self, paused: bool) {
        self.change_policy(|policy| policy.pause_requests = if paused { vec!["me".into()] } else { Vec::new() });
    }

    pub fn change_policy(&mut self, change: impl FnOnce(&mut Policy)) {
        if let Ok(policy) = &mut self.check.policy {
            change(policy);
        }
        self.check_changed();
    }

    pub fn check_changed(&mut self) {
        self.version += 1;
        self.check.version = Version(self.version.to_string().into());
        self.tell(Input::Seen(Fact::Check(self.check.clone())));
    }

    pub fn tell(&mut self, input: Input) {
        let source = source_of(&input).expect("news are of a source");
        self.news.entry(source).or_default().push_back(input);
    }

    /// One of the watches delivers its oldest news.
    pub fn hear(&mut self, which: usize) {
        let waiting: Vec<Source> =
            self.news.iter().filter(|(_, news)| !news.is_empty()).map(|(source, _)| source.clone()).collect();
        let Some(source) = waiting.get(which % waiting.len().max(1)) else { return };
        let (source, now) = (source.clone(), self.now());
        if let Some(news) = self.news.get_mut(&source).and_then(VecDeque::pop_front)
            && self.is_watched(&source)
        {
            self.world.apply(news, now);
        }
    }

    /// Of kinds that nobody needs nothing is heard.
    fn is_watched(&self, source: &Source) -> bool {
        !matches!(source, Source::Objects(_)) || self.world.sources().any(|own| own == source)
    }

    /// Of one source, whatever the other watches do.
    pub fn hear_of(&mut self, source: &Source) {
        let now = self.now();
        while let Some(news) = self.news.get_mut(source).and_then(VecDeque::pop_front) {
            if self.is_watched(source) {
                self.world.apply(news, now);
            }
        }
    }

    pub fn hear_all(&mut self) {
        while self.has_news() {
            self.hear(0);
        }
    }

    fn has_news(&self) -> bool {
        self.news.values().any(|news| !news.is_empty())
    }

    /// One turn of the loop.
    pub fn turn(&mut self) -> Plan {
        let now = self.now();
        let plan = plan(&self.world, now);
        for effect in &plan.effects {
            self.world.sent(effect, now);
            self.requests.push_back(effect.clone());
        }
        for source in self.world.sources().filter(|source| !plan.watches.contains(source)).cloned().collect::<Vec<_>>() {
            self.world.apply(Input::Stopped(source), now);
        }
        for source in &plan.watches {
            if !self.world.is_synced(source) {
                self.list(source.clone());
            }
        }
        plan
    }

    /// The request at `at` is executed, or not, and answered, or not.
    pub fn execute(&mut self, at: usize, fate: Fate) {
        let Some(effect) = self.requests.remove(at) else { return };
        if let Some(step) = self.server_step {
            let date = Wall(EPOCH + self.time + step).whole_seconds();
            let dated = Input::Dated { cluster: None, date, sent_at: Mono(self.time - 20) };
            self.world.apply(dated, self.now());
        }
        if let Effect::Lease(effect) = &effect {
            let answer = self.elect(effect);
            let now = self.now();
            self.world.apply(Input::LeaseAnswered(answer), now);
            return;
        }
        let answer = match fate {
            Fate::Done => self.store(&effect),
            Fate::LostBefore => Answer::Unsure { why: "lost".into() },
            Fate::LostAfter => {
                self.store(&effect);
                Answer::Unsure { why: "lost".into() }
            }
            Fate::Refused => Answer::Refused { why: "busy".into(), retry_after: Some(Duration::from_secs(1)), forbidden: false },
        };
        let now = self.now();
        self.world.apply(Input::Answered(effect.key(), answer), now);
    }

    /// The remediations that stand in the API, by node.
    pub fn remediated(&self) -> Vec<Name> {
        self.objects.values().filter(|object| object.body.is_none()).map(|object| object.node.clone()).collect()
    }

    /// Everything is heard, executed and answered at once, for so long. Returns how much was sent beside questions.
    pub fn run_well(&mut self, millis: i64) -> usize {
        let (until, mut sent) = (self.time + millis, 0);
        let mut turns = 0;
        while self.time < until {
            turns += 1;
            assert!(turns < TURNS_MAX, "it asks and asks, and time stands still");
            self.hear_all();
            for source in self.world.sources().filter(|source| !self.deaf_to.contains(source)).cloned().collect::<Vec<_>>() {
                let now = self.now();
                self.world.apply(Input::Heard(source), now);
            }
            let plan = self.turn();
            let is_question = |effect: &&Effect| matches!(effect, Effect::Discover { .. } | Effect::ServerVersion);
            let is_lease = |effect: &&Effect| matches!(effect, Effect::Lease(_) | Effect::HoldNode(_));
            sent += plan.effects.iter().filter(|effect| !is_question(effect) && !is_lease(effect)).count();
            self.asked += plan.effects.iter().filter(is_question).count();
            let idle = self.requests.is_empty();
            while !self.requests.is_empty() {
                self.execute(0, Fate::Done);
            }
            if idle && !self.has_news() {
                self.time = plan.wake_at.map_or(self.time + 60_000, |at| at.0.min(self.time + 60_000)).min(until);
                turns = 0;
            }
        }
        sent
    }
}

/// As the process makes it: in no test may a rule be broken.
pub fn plan(world: &World, now: Now) -> Plan {
    let plan = resus_core::plan::plan(world, now);
    let breaches = audit(world, &plan, now);
    assert!(breaches.is_empty(), "{breaches:?}");
    plan
}

fn source_of(input: &Input) -> Option<Source> {
    match input {
        Input::Gone(Gone::Node(_)) => Some(Source::Nodes),
        Input::Gone(Gone::Etcd { .. }) => Some(Source::Etcd),
        Input::Gone(Gone::NodeLease(_)) => Some(Source::NodeLeases),
        Input::Gone(Gone::OwnNamespace(_)) => Some(Source::OwnNamespace),
        Input::Gone(Gone::Rival { .. }) => Some(Source::Rivals(Rival::Medik8s)),
        Input::Seen(fact) => fact.source(),
        Input::Gone(Gone::Object(key, _)) => Some(Source::Objects(key.kind.clone())),
        _ => None,
    }
}

/// One that this process did not create.
pub fn remediation(node: &str) -> Object {
    let kind = Kind { api_version: "provider.test/v1".into(), kind: "Reboot".into() };
    let key = ObjectKey { kind, namespace: Some("default".into()), name: node.into() };
    let owners = Box::new([OwnerRef { uid: "check".into(), controls: false, is_check: true }]);
    Object { key, uid: node.into(), owners, node: node.into(), body: None, ..template() }
}

fn said(signal: Signal, says: &SignalFact) -> Fact {
    Fact::Signal { signal, name: "kube-system/kured".into(), says: says.clone() }
}

pub fn key(kind: &str, name: &str) -> ObjectKey {
    let kind = Kind { api_version: "provider.test/v1".into(), kind: kind.into() };
    ObjectKey { kind, namespace: Some("default".into()), name: name.into() }
}

fn template_key() -> ObjectKey {
    key("RebootTemplate", "reboot")
}

pub fn template() -> Object {
    Object {
        key: template_key(),
        uid: "template".into(),
        version: Version("1".into()),
        created_at: Wall(0),
        deleting: false,
        finalizers: 0,
        owners: Box::new([]),
        node: "reboot".into(),
        template: None,
        allows_several: false,
        processing: false,
        control_plane: false,
        expects_node_to_go: false,
        succeeded: None,
        timed_out: false,
        healthy_since: None,
        machine_check: None,
        flagged_old: false,
        body: Some(Ok::<Body, Invalid>(Body { spec: "{}".into(), labels: [].into(), annotations: [].into() })),
    }
}

fn check(threshold: Threshold, unhealthy_after: Duration) -> Check {
    Check {
        name: "workers".into(),
        uid: "check".into(),
        version: Version("1".into()),
        created_at: Wall(EPOCH),
        deleting: false,
        take_over: false,
        is_default: false,
        policy: Ok(Policy {
            selector: Selector::default(),
            rules: vec![Rule { kind: "Ready".into(), status: Status::False, lasts_for: unhealthy_after }],
            threshold,
            steps: vec![Step { template: template_key(), timeout: None }],
            pause_requests: Vec::new(),
            healthy_delay: HealthyDelay::None,
            storm_cooldown: None,
            mode: Mode::Act,
            topology_key: None,
            repeat: None,
            startup_timeout: None,
        }),
        status: CheckStatus::default(),
    }
}

pub fn at_most(count: u32) -> Threshold {
    Threshold::MaxUnhealthy(Amount::Count(count))
}
