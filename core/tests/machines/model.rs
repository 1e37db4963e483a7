//! Machines, their nodes and their checks in a few lines, and an API that does what it is asked at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use resus_core::audit::audit;
use resus_core::effect::{Change, Creation, Edit, Effect, Owner, OwnerGoes};
use resus_core::etcd::EtcdPod;
use resus_core::facts::{
    Amount, Body, Claim, Invalid, Name, Node, Object, ObjectKey, OwnNamespace, OwnerRef, RivalLease, Served, Source, Status,
    Version,
};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::lease::{Election, LeaseAnswer, LeaseEffect, Timing};
use resus_core::mhc::facts::{
    Access, Budget, Cluster, ClusterKey, Dialect, Machine, MachineCheck, MachineCheckStatus, Repair, Sign, Slot, Style,
};
use resus_core::plan::Plan;
use resus_core::time::{Mono, Now, Wall};
use resus_core::world::World;

use crate::facts::{EPOCH, check, definition, machine, node, object, ready_since, template_kind, up};

/// So many turns in a row have something to do only where something is done again and again.
const TURNS_MAX: usize = 1000;

pub const CHECK: &str = "check";

pub struct Fleet {
    pub world: World,
    pub dialect: Dialect,
    pub time: i64,
    pub version: u64,
    pub machines: BTreeMap<Name, Machine>,
    pub checks: BTreeMap<Name, MachineCheck>,
    /// In this cluster, and in others.
    pub nodes: BTreeMap<Option<ClusterKey>, BTreeMap<Name, Node>>,
    pub clusters: BTreeMap<ClusterKey, Cluster>,
    pub access: BTreeMap<ClusterKey, Result<Access, Invalid>>,
    /// The kind Cluster is served.
    pub has_clusters: bool,
    /// It is defined, but not served yet.
    pub has_definition_only: bool,
    pub objects: BTreeMap<ObjectKey, Object>,
    pub etcd: BTreeMap<Name, EtcdPod>,
    /// Where we are installed, if it exists.
    pub own_namespace: Option<OwnNamespace>,
    pub rivals: BTreeMap<Name, RivalLease>,
    /// Clusters that take requests and answer none.
    pub hanging: BTreeSet<ClusterKey>,
    /// What is answered to the question which cluster it is, where it is not always the same.
    pub identities: BTreeMap<ClusterKey, Answer>,
    /// Creations are refused.
    pub refuses: bool,
    /// Finalizers keep what is deleted.
    pub hold_deletions: bool,
    /// The definition is older than the new style of conditions.
    pub drops_new: bool,
    listed: BTreeSet<Source>,
    /// Reasons of events, each with what it is about.
    pub events: Vec<(String, String)>,
    /// Everything that was written, but for events and the lease.
    pub written: Vec<String>,
}

impl Fleet {
    /// Machines `m0` and so on, each with a ready node `n0` and so on in this cluster.
    pub fn new(dialect: Dialect, machines: usize) -> Fleet {
        let mut world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
        world.machine_claim = Claim::All;
        let mut fleet = Fleet {
            world,
            dialect,
            time: 1_000_000,
            version: 1,
            machines: BTreeMap::new(),
            checks: BTreeMap::new(),
            nodes: BTreeMap::from([(None, BTreeMap::new())]),
            clusters: BTreeMap::new(),
            access: BTreeMap::new(),
            has_clusters: false,
            has_definition_only: false,
            objects: BTreeMap::new(),
            etcd: BTreeMap::new(),
            own_namespace: None,
            rivals: BTreeMap::new(),
            hanging: BTreeSet::new(),
            identities: BTreeMap::new(),
            refuses: false,
            hold_deletions: false,
            drops_new: false,
            listed: BTreeSet::new(),
            events: Vec::new(),
            written: Vec::new(),
        };
        for n in 0..machines {
            let machine = machine(dialect, n, fleet.now().wall);
            fleet.machines.insert(machine.place.name.clone(), machine);
            fleet.nodes.entry(None).or_default().insert(format!("n{n}").into(), node(n, Wall(EPOCH)));
        }
        fleet
    }

    /// With one check that has this repair and allows this many: unhealthy when not ready for more than five minutes.
    pub fn with(dialect: Dialect, machines: usize, repair: Repair, at_most: Amount) -> Fleet {
        let mut fleet = Fleet::new(dialect, machines);
        let check = check(dialect, CHECK, repair, Budget::AtMost(at_most));
        fleet.checks.insert(CHECK.into(), check);
        fleet.settle();
        fleet
    }

    pub fn now(&self) -> Now {
        Now { wall: Wall(EPOCH + self.time), mono: Mono(self.time) }
    }

    /// So much time passes, and whatever becomes due in it is done when it is.
    pub fn wait(&mut self, seconds: i64) {
        let until = self.time + seconds * 1000;
        while self.time < until {
            let wake_at = self.settle().wake_at.map_or(until, |at| at.0);
            self.time = wake_at.min(until).min(self.time + 10_000);
            let fed: Vec<Source> = self.listed.iter().filter(|source| !self.is_silent(source)).cloned().collect();
            fed.into_iter().for_each(|source| self.tell(Input::Heard(source)));
        }
        self.settle();
    }

    /// Until there is nothing more to do now.
    pub fn settle(&mut self) -> Plan {
        for _ in 0..TURNS_MAX {
            let plan = plan(&self.world, self.now());
            let gone: Vec<Source> = self.listed.difference(&plan.watches).cloned().collect();
            let new: Vec<Source> = plan.watches.difference(&self.listed).cloned().collect();
            if plan.effects.is_empty() && gone.is_empty() && new.is_empty() {
                return plan;
            }
            for source in gone {
                self.listed.remove(&source);
                self.tell(Input::Stopped(source));
            }
            new.into_iter().for_each(|source| self.list(source));
            for effect in plan.effects {
                self.world.sent(&effect, self.now());
                self.carry_out(&effect);
            }
            self.time += 1;
        }
        panic!("it never rests: {:?}", plan(&self.world, self.now()).effects);
    }

    /// Until this is to be sent; it is not carried out.
    pub fn until_sent(&mut self, is_wanted: impl Fn(&Effect) -> bool) -> Effect {
        for _ in 0..TURNS_MAX {
            let plan = plan(&self.world, self.now());
            let (wanted, others): (Vec<Effect>, Vec<Effect>) = plan.effects.into_iter().partition(&is_wanted);
            if let Some(effect) = wanted.into_iter().next() {
                self.world.sent(&effect, self.now());
                return effect;
            }
            for effect in others {
                self.world.sent(&effect, self.now());
                self.carry_out(&effect);
            }
            self.time += 10;
        }
        panic!("it is never sent: {:?}", plan(&self.world, self.now()).decisions);
    }

    pub fn list(&mut self, source: Source) {
        self.listed.insert(source.clone());
        self.tell(Input::Listing(source.clone()));
        if self.is_silent(&source) {
            return;
        }
        let facts = self.facts(&source);
        facts.into_iter().for_each(|fact| self.tell(Input::Seen(fact)));
        self.tell(Input::Listed(source));
    }

    fn is_silent(&self, source: &Source) -> bool {
        matches!(source, Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster) if self.hanging.contains(cluster))
    }

    pub fn facts(&self, source: &Source) -> Vec<Fact> {
        match source {
            Source::Kinds => {
                let clusters = Fact::Definition { name: "clusters.cluster.x-k8s.io".into(), ours: false };
                [definition(self.dialect)]
                    .into_iter()
                    .chain((self.has_clusters || self.has_definition_only).then_some(clusters))
                    .collect()
            }
            Source::Nodes => self.nodes[&None].values().cloned().map(Fact::Node).collect(),
            Source::MachineChecks(_) => self.checks.values().cloned().map(Fact::MachineCheck).collect(),
            Source::Machines(_) => self.machines.values().cloned().map(Fact::Machine).collect(),
            Source::Clusters(dialect) => self.clusters.values().cloned().map(|own| Fact::Cluster(*dialect, own)).collect(),
            Source::Access(cluster) => {
                let access = self.access.get(cluster).cloned();
                access.map(|access| Fact::Access { cluster: cluster.clone(), access }).into_iter().collect()
            }
            Source::RemoteNodes(cluster) => {
                let nodes = self.nodes.get(&Some(cluster.clone())).into_iter().flat_map(BTreeMap::values);
                nodes.cloned().map(|node| Fact::RemoteNode(cluster.clone(), node)).collect()
            }
            Source::RemoteEtcd(cluster) => {
                let member = |(pod, says): (&Name, &EtcdPod)| Fact::RemoteEtcd {
                    cluster: cluster.clone(),
                    pod: pod.clone(),
                    says: Some(says.clone()),
                };
                self.etcd.iter().map(member).collect()
            }
            Source::Etcd => {
                self.etcd.iter().map(|(pod, says)| Fact::Etcd { pod: pod.clone(), says: Some(says.clone()) }).collect()
            }
            Source::Objects(kind) => {
                self.objects.values().filter(|own| own.key.kind == *kind).cloned().map(Fact::Object).collect()
            }
            Source::Rivals(rival) => {
                let fact =
                    |(name, lease): (&Name, &RivalLease)| Fact::Rival { rival: *rival, name: name.clone(), lease: lease.clone() };
                self.rivals.iter().map(fact).collect()
            }
            Source::OwnNamespace => self.own_namespace.iter().cloned().map(Fact::OwnNamespace).collect(),
            Source::Checks | Source::NodeLeases | Source::Budgets | Source::Guards | Source::Signals(_) => Vec::new(),
        }
    }

    pub fn tell(&mut self, input: Input) {
        let kind = match &input {
            Input::Seen(Fact::Object(object)) => Some(&object.key.kind),
            Input::Gone(Gone::Object(key, _)) => Some(&key.kind),
            _ => None,
        };
        // Of kinds that nobody needs nothing is heard.
        if kind.is_some_and(|kind| !self.listed.contains(&Source::Objects(kind.clone()))) {
            return;
        }
        let now = self.now();
        self.world.apply(input, now);
    }

    pub fn carry_out(&mut self, effect: &Effect) {
        self.version += 1;
        if let Effect::Lease(lease) = effect {
            let answer = match lease {
                LeaseEffect::Namespace => LeaseAnswer::NamespaceCreated,
                LeaseEffect::Read => LeaseAnswer::Missing,
                LeaseEffect::Create(record) | LeaseEffect::Write(record) => {
                    let mut record = record.clone();
                    record.version = self.next_version();
                    LeaseAnswer::Found(record)
                }
            };
            return self.tell(Input::LeaseAnswered(answer));
        }
        if !matches!(
            effect,
            Effect::Emit(_)
                | Effect::Discover { .. }
                | Effect::ServerVersion
                | Effect::Look { .. }
                | Effect::LookMachine { .. }
                | Effect::Identify { .. }
        ) {
            self.written.push(format!("{:?}", effect.key()));
        }
        let Some(answer) = self.answer(effect) else { return };
        self.tell(Input::Answered(effect.key(), answer));
    }

    /// None: it never comes.
    fn answer(&mut self, effect: &Effect) -> Option<Answer> {
        Some(match effect {
            Effect::Look { cluster: Some(cluster), .. } if self.hanging.contains(cluster) => return None,
            Effect::Look { cluster, node } => match self.nodes.get(cluster).and_then(|nodes| nodes.get(node)) {
                Some(node) => Answer::Done(Some(Fact::Node(node.clone()))),
                None => Answer::Missing,
            },
            Effect::Identify { cluster } if self.hanging.contains(cluster) => Answer::Unsure { why: "no answer in time".into() },
            Effect::Identify { cluster } => match &self.identities.get(cluster) {
                None => Answer::Done(Some(Fact::Identity { uid: format!("uid-of-{}", cluster.name).into() })),
                Some(answer) => (*answer).clone(),
            },
            Effect::LookMachine { place, .. } => match self.machines.get(&place.name) {
                Some(machine) => Answer::Done(Some(Fact::Machine(machine.clone()))),
                None => Answer::Missing,
            },
            Effect::Discover { api_version } => Answer::Done(Some(self.kinds(api_version))),
            Effect::Emit(event) => {
                self.events.push((event.reason.to_owned(), format!("{} {}", event.about.kind.kind, event.about.name)));
                Answer::Done(None)
            }
            Effect::Sign(signing) => {
                let name = signing.machine.place.name.clone();
                let drops_new = self.drops_new;
                self.change(&name, |machine| {
                    let kept = signing.edits.iter().filter(|edit| edit.style == Style::Legacy || !drops_new);
                    kept.for_each(|edit| carve(machine, edit));
                });
                Answer::Done(Some(Fact::Machine(self.machines[&name].clone())))
            }
            Effect::PowerCycle { machine, on, .. } => {
                let name = machine.place.name.clone();
                self.change(&name, |machine| machine.marks.power_cycle = *on);
                Answer::Done(Some(Fact::Machine(self.machines[&name].clone())))
            }
            Effect::DeleteMachine { machine, .. } => {
                self.remove(&machine.place.name);
                Answer::Done(None)
            }
            Effect::MachineCheckStatus { check, status } => {
                let version = self.next_version();
                let known = self.checks.get_mut(&check.place.name).expect("the check exists");
                if known.version != check.version {
                    return Some(Answer::Conflict);
                }
                (known.status, known.version) = (status.clone(), version);
                if self.drops_new {
                    known.status.new.clear();
                }
                Answer::Done(Some(Fact::MachineCheck(known.clone())))
            }
            Effect::Tie(tying) => {
                let version = self.next_version();
                let known = self.checks.get_mut(&tying.check.place.name).expect("the check exists");
                if known.version != tying.check.version {
                    return Some(Answer::Conflict);
                }
                known.version = version;
                if tying.label.is_some() {
                    (known.ties.has_labels, known.ties.label) = (true, Some(Box::from(&*tying.cluster)));
                }
                let at = match tying.owner {
                    Some(OwnerGoes::First) => Some(0),
                    Some(OwnerGoes::Last) => Some(1),
                    Some(OwnerGoes::At(at)) => Some(at),
                    None => None,
                };
                if let Some(at) = at {
                    (known.ties.has_owners, known.ties.owner) = (true, Some((at, Box::from(&*tying.cluster_uid))));
                }
                Answer::Done(Some(Fact::MachineCheck(known.clone())))
            }
            Effect::Create(_) if self.refuses => Answer::Refused { why: "no".into(), retry_after: None, forbidden: true },
            Effect::Create(creation) if self.objects.contains_key(&creation.key) => Answer::Exists,
            Effect::Create(creation) => {
                let object = self.made(creation);
                self.add_object(object);
                Answer::Done(None)
            }
            Effect::Delete { key, .. } if self.hold_deletions => {
                let mut object = self.objects[key].clone();
                object.deleting = true;
                self.add_object(object);
                Answer::Done(None)
            }
            Effect::Delete { key, uid, .. } => {
                self.objects.remove(key);
                self.tell(Input::Gone(Gone::Object(key.clone(), uid.clone())));
                Answer::Done(None)
            }
            Effect::Read { key, .. } => match self.objects.contains_key(key) {
                true => Answer::Done(None),
                false => Answer::Missing,
            },
            Effect::ServerVersion => Answer::Done(Some(Fact::Server { version: "v1.36.0".into() })),
            other => unreachable!("nothing here asks for {other:?}"),
        })
    }

    fn kinds(&self, api_version: &Name) -> Fact {
        let served =
            |kind: &str| (Name::from(kind), Served { plural: format!("{}s", kind.to_lowercase()).into(), namespaced: true });
        let mut kinds = BTreeMap::new();
        if **api_version == *self.dialect.api_version() {
            kinds.extend([served("MachineHealthCheck"), served("Machine")]);
            kinds.extend(self.has_clusters.then(|| served("Cluster")));
        } else if api_version.starts_with("repair.test/v") {
            kinds.extend(["CycleTemplate", "Cycle", "SwapTemplate", "Swap", "Lone"].map(served));
        } else if **api_version == *"v1" {
            kinds.extend(["Pod", "PodTemplate"].map(served));
        }
        Fact::Kinds { api_version: api_version.clone(), served: kinds }
    }

    pub fn made(&self, creation: &Creation) -> Object {
        let Owner::Machine { uid, check_uid, .. } = &creation.owner else { unreachable!("all are for machines") };
        Object {
            key: creation.key.clone(),
            owners: [OwnerRef { uid: Box::from(&**uid), controls: false, is_check: false }].into(),
            machine_check: Some(check_uid.clone()),
            ..object(creation.key.clone(), self.version)
        }
    }

    pub fn add_object(&mut self, object: Object) {
        self.objects.insert(object.key.clone(), object.clone());
        self.tell(Input::Seen(Fact::Object(object)));
    }

    /// Providers are done with what is being deleted.
    pub fn let_go(&mut self) {
        self.hold_deletions = false;
        let leaving: Vec<Object> = self.objects.values().filter(|object| object.deleting).cloned().collect();
        for object in leaving {
            self.objects.remove(&object.key);
            self.tell(Input::Gone(Gone::Object(object.key, object.uid)));
        }
    }

    pub fn add_template(&mut self) {
        let body = Body { spec: "{}".into(), labels: [].into(), annotations: [].into() };
        let key = ObjectKey { kind: template_kind(), namespace: Some("ns".into()), name: "cycle".into() };
        self.add_object(Object { body: Some(Ok(body)), ..object(key, 1) });
        self.settle();
    }

    pub fn remove_templates(&mut self) {
        let gone: Vec<Object> = self.objects.values().filter(|object| object.body.is_some()).cloned().collect();
        for Object { key, uid, .. } in gone {
            self.objects.remove(&key);
            self.tell(Input::Gone(Gone::Object(key, uid)));
        }
    }

    pub fn change(&mut self, machine: &str, change: impl FnOnce(&mut Machine)) {
        let version = self.next_version();
        let machine = self.machines.get_mut(machine).expect("there is such a machine");
        change(machine);
        machine.version = version;
        let machine = machine.clone();
        self.tell(Input::Seen(Fact::Machine(machine)));
    }

    pub fn remove(&mut self, machine: &str) {
        if let Some(machine) = self.machines.remove(machine) {
            self.tell(Input::Gone(Gone::Machine(self.dialect, machine.place)));
        }
    }

    pub fn change_check(&mut self, check: &str, change: impl FnOnce(&mut MachineCheck)) {
        let version = self.next_version();
        let check = self.checks.get_mut(check).expect("there is such a check");
        change(check);
        (check.version, check.generation) = (version, check.generation + 1);
        let check = check.clone();
        self.tell(Input::Seen(Fact::MachineCheck(check)));
    }

    pub fn add_check(&mut self, check: MachineCheck) {
        self.checks.insert(check.place.name.clone(), check.clone());
        self.tell(Input::Seen(Fact::MachineCheck(check)));
    }

    pub fn remove_check(&mut self, check: &str) {
        let check = self.checks.remove(check).expect("there is such a check");
        self.tell(Input::Gone(Gone::MachineCheck(self.dialect, check.place)));
    }

    pub fn breaks(&mut self, node: &str) {
        self.ready(None, node, Status::False);
    }

    pub fn recovers(&mut self, node: &str) {
        self.ready(None, node, Status::True);
    }

    pub fn ready(&mut self, cluster: Option<&ClusterKey>, name: &str, status: Status) {
        let (version, since) = (self.next_version(), self.now().wall.whole_seconds());
        let nodes = self.nodes.get_mut(&cluster.cloned()).expect("there is such a cluster");
        let node = nodes.get_mut(name).expect("there is such a node");
        (node.version, node.conditions) = (version, [ready_since(status, since)].into());
        let node = node.clone();
        let is_silent = cluster.is_some_and(|cluster| self.hanging.contains(cluster));
        match cluster {
            _ if is_silent => {}
            Some(cluster) => self.tell(Input::Seen(Fact::RemoteNode(cluster.clone(), node))),
            None => self.tell(Input::Seen(Fact::Node(node))),
        }
    }

    /// In this cluster.
    pub fn hosts_etcd(&mut self, node: &str, ready: bool) {
        let (pod, says): (Name, _) = (format!("etcd-{node}").into(), EtcdPod { node: node.into(), ready });
        self.etcd.insert(pod.clone(), says.clone());
        self.tell(Input::Seen(Fact::Etcd { pod, says: Some(says) }));
    }

    pub fn node_goes(&mut self, cluster: Option<&ClusterKey>, node: &str) {
        self.nodes.get_mut(&cluster.cloned()).expect("there is such a cluster").remove(node);
        self.tell(Input::Gone(match cluster {
            Some(cluster) => Gone::RemoteNode(cluster.clone(), node.into()),
            None => Gone::Node(node.into()),
        }));
    }

    /// A Cluster `blue` that is up, in which the nodes are, and which all machines belong to.
    pub fn into_cluster(mut self) -> (Fleet, ClusterKey) {
        let key = ClusterKey { namespace: "ns".into(), name: "blue".into() };
        self.has_clusters = true;
        self.clusters.insert(key.clone(), up(&key));
        self.access.insert(key.clone(), Ok(Access("blue".into())));
        let nodes = std::mem::take(self.nodes.get_mut(&None).expect("this cluster has nodes"));
        self.nodes.insert(Some(key.clone()), nodes);
        (self, key)
    }

    /// Another Cluster that is up, with these nodes.
    pub fn add_cluster(&mut self, name: &str, nodes: Range<usize>) -> ClusterKey {
        let key = ClusterKey { namespace: "ns".into(), name: name.into() };
        let cluster = up(&key);
        self.clusters.insert(key.clone(), cluster.clone());
        self.access.insert(key.clone(), Ok(Access(name.into())));
        let nodes = nodes.map(|n| (format!("n{n}").into(), node(n, Wall(EPOCH)))).collect();
        self.nodes.insert(Some(key.clone()), nodes);
        self.tell(Input::Seen(Fact::Cluster(self.dialect, cluster)));
        key
    }

    pub fn set_cluster(&mut self, key: &ClusterKey, change: impl FnOnce(&mut Cluster)) {
        let cluster = self.clusters.get_mut(key).expect("there is such a Cluster");
        change(cluster);
        let cluster = cluster.clone();
        self.tell(Input::Seen(Fact::Cluster(self.dialect, cluster)));
    }

    /// By the annotation on our own namespace, if it is there, and for this reason.
    pub fn set_all_paused(&mut self, reason: Option<&str>) {
        let (name, version) = (self.world.namespace.clone(), self.next_version());
        let namespace = OwnNamespace { name, uid: "own".into(), version, pause: reason.map(Into::into) };
        self.own_namespace = Some(namespace.clone());
        self.tell(Input::Seen(Fact::OwnNamespace(namespace)));
    }

    /// Another process takes over, with the memory that the API has.
    pub fn restart(&mut self) {
        self.world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
        self.world.machine_claim = Claim::All;
        self.listed.clear();
        self.settle();
    }

    pub fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }

    /// What a sign says, as `False UnhealthyNode`.
    pub fn sign(&self, machine: &str, sign: Sign) -> Option<String> {
        self.machines[machine].sign(sign).map(|posted| format!("{} {}", posted.status, posted.reason))
    }

    /// In both styles.
    pub fn signs(&self, machine: &str, sign: Sign) -> Vec<String> {
        let machine = &self.machines[machine];
        machine
            .boards
            .iter()
            .filter_map(|board| board.get(sign))
            .map(|posted| format!("{} {}", posted.status, posted.reason))
            .collect()
    }

    pub fn asked(&self, machine: &str) -> bool {
        self.machines[machine].sign(Sign::OwnerRemediated).is_some_and(|posted| posted.status == Status::False)
    }

    pub fn all_asked(&self) -> Vec<&str> {
        self.machines.keys().map(|name| &**name).filter(|name| self.asked(name)).collect()
    }

    pub fn remediations(&self) -> Vec<&str> {
        self.objects.keys().filter(|key| &*key.kind.kind == "Cycle").map(|key| &*key.name).collect()
    }

    pub fn status(&self) -> &MachineCheckStatus {
        &self.checks[CHECK].status
    }

    /// Status and reason of a condition of the check.
    pub fn condition(&self, kind: &str) -> Option<String> {
        self.status().condition(kind).map(|posted| format!("{} {}", posted.status, posted.reason))
    }

    pub fn message(&self, kind: &str) -> &str {
        self.status().condition(kind).map_or("", |posted| &posted.message)
    }

    pub fn events_of(&self, reason: &str) -> Vec<&str> {
        self.events.iter().filter(|(own, _)| own == reason).map(|(_, about)| about.as_str()).collect()
    }
}

/// As the process makes it: in no test may a rule be broken.
pub fn plan(world: &World, now: Now) -> Plan {
    let plan = resus_core::plan::plan(world, now);
    let breaches = audit(world, &plan, now);
    assert!(breaches.is_empty(), "{breaches:?}");
    plan
}

/// As the server applies an edit.
fn carve(machine: &mut Machine, edit: &Edit) {
    let board = machine.boards.iter_mut().find(|board| board.style == edit.style).expect("there is such a board");
    board.missing = 0;
    board.slots[edit.sign as usize] = match &edit.change {
        Change::Replace(at, posted) | Change::Insert(at, posted) => Slot::At(*at, posted.clone()),
        Change::Remove(at) => Slot::Before(*at),
    };
}
