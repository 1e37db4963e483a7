//! Who makes Machines and their nodes, who repairs them, and what else is done to them?

use std::collections::{BTreeMap, BTreeSet};

use resus_core::mhc::facts::{CLUSTER_KIND, CLUSTER_LABEL, CONTROL_PLANE_MACHINE_LABEL, Dialect, Flavour, ROLE_LABEL};
use serde_json::{Value, json};

use crate::api::{MERGE, NODES};
use crate::clock::{MINUTE, Millis, SECOND, rfc3339};
use crate::fleet::liveness::Duties;
use crate::fleet::oracle::View;
use crate::fleet::truth::{Spot, Truth};
use crate::fleet::{Deed, FleetSpec, HerdSpec, Kubeconfig, Meddling};
use crate::machine::State;
use crate::machinery::{METAL3, definitions};
use crate::owner::{Owner, path};
use crate::rng::Rng;
use crate::scenario::MachineSpec;
use crate::simulation::{Event, Simulation};

/// Everything about Machines in a simulation.
pub(crate) struct Fleet {
    pub spec: FleetSpec,
    pub truth: Truth,
    pub duties: Duties,
    herds: Vec<Herd>,
    rng: Rng,
}

#[derive(Default)]
struct Herd {
    owners: Vec<Owner>,
    /// Which host each Machine has, by the uid of the Machine.
    claims: BTreeMap<String, usize>,
    /// Uids of the Machines for which no Node is named.
    stuck: BTreeSet<String>,
    /// When the remediator resets the machine next, by the uid of what was made for it; None: never.
    jobs: BTreeMap<String, Option<Millis>>,
    owners_look_at: Millis,
    /// Number of changes when the owners looked last.
    looked_at: u64,
}

/// Interval between two looks of those who take care of a herd.
pub(crate) const TEND_EACH: Millis = 2 * SECOND;
/// Time after which the remediator resets a machine again that is still ill.
const AGAIN_AFTER: Millis = MINUTE;
const HELD_BY: &str = "remediator.test/held";
const TEMPLATE: &str = "reboot";
/// A template from which nothing can be made.
const TEMPLATE_INVALID: &str = "broken";
/// Machines of a herd by what they are for.
pub(crate) const POOL: &str = "pool";
pub(crate) const WORKERS: &str = "workers";
pub(crate) const MASTERS: &str = "masters";
pub(crate) const STRAYS: &str = "strays";

fn metal3(namespace: &str, plural: &str) -> String {
    format!("/apis/{METAL3}/namespaces/{namespace}/{plural}")
}

fn at((namespace, name): &Spot, dialect: Dialect) -> String {
    format!("{}/{name}", path(dialect, namespace, "machines"))
}

/// In a simulation a kubeconfig is nothing but the name of a server; behind this comes what makes it another.
pub(crate) fn server_of(access: &str) -> String {
    access.split('#').next().unwrap_or_default().to_owned()
}

fn elsewhere(herd: &HerdSpec) -> String {
    format!("{}-other", herd.name)
}

impl Simulation {
    /// Everything that there is before anything happens.
    pub(crate) fn found_fleet(&mut self, spec: FleetSpec) -> Fleet {
        let FleetSpec { dialect, herds } = &spec;
        let has_clusters = herds.iter().any(|herd| herd.is_away);
        let is_defined = |definition: &&Value| has_clusters || definition["spec"]["names"]["kind"] != CLUSTER_KIND;
        definitions(*dialect).iter().filter(is_defined).for_each(|definition| self.api.define(0, definition));
        self.api.tend(0);
        let truth = Truth::open(*dialect, has_clusters, &mut self.api);
        let founded = herds.iter().map(|herd| self.found_herd(*dialect, herd)).collect();
        let rng = Rng::of(self.scenario.seed, "fleet's acts");
        Fleet { spec, truth, duties: Duties::default(), herds: founded, rng }
    }

    fn found_herd(&mut self, dialect: Dialect, spec: &HerdSpec) -> Herd {
        let namespace = &spec.name;
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.api.create(0, "/api/v1/namespaces", &body);
        if spec.is_away {
            self.found_cluster(dialect, spec);
        }
        self.install_template(0, namespace, TEMPLATE, &json!({"template": {"spec": {"strategy": {"type": "Reboot"}}}}));
        self.install_template(0, namespace, TEMPLATE_INVALID, &json!({"other": 1}));
        let machines = &self.scenario.machines;
        let is_master = |host: &&usize| machines[**host].control_plane;
        let owned = || spec.hosts.iter().filter(|host| !spec.strays.contains(host));
        let pools = [(MASTERS, owned().filter(is_master).count()), (WORKERS, owned().filter(|host| !is_master(host)).count())];
        let mut herd = Herd::default();
        for (pool, replicas) in pools.into_iter().filter(|(_, replicas)| *replicas > 0) {
            let body = json!({
                "apiVersion": dialect.api_version(), "kind": "MachineSet", "metadata": {"name": pool},
                "spec": {"replicas": replicas},
            });
            self.api.create(0, &path(dialect, namespace, "machinesets"), &body);
            herd.owners.push(Owner {
                dialect,
                namespace: namespace.clone(),
                name: pool.to_owned(),
                cluster: spec.is_away.then(|| namespace.clone()),
                labels: labels(dialect, pool),
                in_flight_max: spec.owner.in_flight_max,
                made: 0,
            });
        }
        for stray in &spec.strays {
            let mut labels = json!(labels(dialect, if machines[*stray].control_plane { MASTERS } else { STRAYS }));
            if spec.is_away {
                labels[CLUSTER_LABEL] = json!(namespace);
            }
            let body = json!({
                "apiVersion": dialect.api_version(), "kind": "Machine", "metadata": {"name": format!("stray-{stray}"), "labels": labels},
                "spec": {},
            });
            self.api.create(0, &path(dialect, namespace, "machines"), &body);
        }
        herd.owners.iter_mut().for_each(|owner| owner.step(0, &mut self.api));
        herd
    }

    /// A Cluster that is up, with a server of its own, and another server that it might be taken for.
    fn found_cluster(&mut self, dialect: Dialect, spec: &HerdSpec) {
        let name = &spec.name;
        for server in [name.clone(), elsewhere(spec)] {
            self.add_cluster(&server);
            let remote = self.remote(&server);
            for namespace in ["default", "kube-system", "kube-node-lease"] {
                let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                remote.api.create(0, "/api/v1/namespaces", &body);
            }
        }
        let remote = self.remote(name);
        remote.ledger.open_nodes(0, &mut remote.api);
        let namespace = remote.api.read(0, "/api/v1/namespaces/kube-system").unwrap_or_default();
        let says = if spec.says_who { json!({"resus.dev/cluster-uid": namespace["metadata"]["uid"]}) } else { json!({}) };
        let body = json!({
            "apiVersion": dialect.api_version(), "kind": "Cluster", "metadata": {"name": name, "annotations": says}, "spec": {},
        });
        let clusters = path(dialect, name, "clusters");
        self.api.create(0, &clusters, &body);
        let is_true = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": rfc3339(0), "reason": "Up"});
        let list = json!([is_true("ControlPlaneInitialized"), is_true("InfrastructureReady")]);
        let status = match dialect {
            Dialect::V1beta1 => json!({"conditions": list, "v1beta2": {"conditions": list}}),
            Dialect::V1alpha3 | Dialect::V1beta2 | Dialect::OpenShift => json!({"conditions": list}),
        };
        self.api.patch(0, &format!("{clusters}/{name}/status"), MERGE, &json!({"status": status}));
        self.write_kubeconfig(0, spec, Kubeconfig::Right);
    }

    fn write_kubeconfig(&mut self, now: Millis, spec: &HerdSpec, kubeconfig: Kubeconfig) -> u16 {
        let (name, secrets) = (&spec.name, format!("/api/v1/namespaces/{}/secrets", spec.name));
        let secret = format!("{secrets}/{name}-kubeconfig");
        let value = match kubeconfig {
            Kubeconfig::Right => name.clone(),
            Kubeconfig::Renewed => format!("{name}#{now}"),
            Kubeconfig::Nonsense => "nonsense".to_owned(),
            Kubeconfig::Elsewhere => elsewhere(spec),
            Kubeconfig::Missing => return self.api.delete(now, &secret),
        };
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "stringData": {"value": value},
            "metadata": {"name": format!("{name}-kubeconfig"), "labels": {CLUSTER_LABEL: name}},
        });
        match self.api.create(now, &secrets, &body) {
            409 => self.api.patch(now, &secret, MERGE, &json!({"stringData": {"value": value}})),
            code => code,
        }
    }

    fn install_template(&mut self, now: Millis, namespace: &str, name: &str, spec: &Value) -> u16 {
        let body = json!({
            "apiVersion": METAL3, "kind": "Metal3RemediationTemplate", "metadata": {"name": name}, "spec": spec,
        });
        self.api.create(now, &metal3(namespace, "metal3remediationtemplates"), &body)
    }

    /// A herd's owners, infrastructure and remediator look at everything.
    pub(crate) fn tend_herd(&mut self, number: usize) {
        if let Some(mut fleet) = self.fleet.take() {
            if self.api.is_up {
                self.owners_look(&mut fleet, number);
                self.hosts_boot(&mut fleet, number);
                self.remediator_works(&mut fleet, number);
            }
            self.fleet = Some(fleet);
        }
        self.agenda.after(TEND_EACH, Event::Herd(number));
    }

    /// They have nothing to do while nothing changes, but for what they have put off.
    fn owners_look(&mut self, fleet: &mut Fleet, number: usize) {
        let (now, spec, herd) = (self.now(), &fleet.spec.herds[number], &mut fleet.herds[number]);
        let changes = fleet.truth.changes.get(&spec.name).copied().unwrap_or(0);
        let is_asked = fleet.truth.asks.keys().any(|spot| spot.0 == spec.name);
        let is_idle = spec.owner.is_idle && self.liveness.is_none();
        if is_idle || now < herd.owners_look_at || (changes == herd.looked_at && !is_asked) {
            return;
        }
        (herd.owners_look_at, herd.looked_at) = (now + spec.owner.looks_each, changes);
        herd.owners.iter_mut().for_each(|owner| owner.step(now, &mut self.api));
    }

    /// Machines that are there get their nodes, and those that go lose them.
    fn hosts_boot(&mut self, fleet: &mut Fleet, number: usize) {
        let now = self.now();
        let Fleet { spec, truth, herds, rng, .. } = fleet;
        let (dialect, spec, herd) = (spec.dialect, &spec.herds[number], &mut herds[number]);
        let there: Vec<_> = truth.machines_in(&spec.name).map(|(spot, machine)| (spot.clone(), machine.clone())).collect();
        herd.claims.retain(|uid, _| there.iter().any(|(_, machine)| machine.uid == *uid));
        for (spot, machine) in there {
            if machine.deleting {
                let gone_at = truth.machines[&spot].changed_at() + spec.leaves_for;
                if now >= gone_at {
                    self.host_leaves(herd.claims.remove(&machine.uid));
                    self.api.patch(now, &at(&spot, dialect), MERGE, &json!({"metadata": {"finalizers": null}}));
                }
                continue;
            }
            let Some(host) = herd.claims.get(&machine.uid).copied().or_else(|| {
                let is_control_plane = machine.is_control_plane(dialect.flavour());
                let is_stray = machine.owner.is_none();
                let is_fit = |host: &&usize| {
                    spec.strays.contains(host) == is_stray && self.scenario.machines[**host].control_plane == is_control_plane
                };
                let taken: BTreeSet<usize> = herd.claims.values().copied().collect();
                spec.hosts.iter().filter(is_fit).find(|host| !taken.contains(host)).copied()
            }) else {
                continue;
            };
            if herd.claims.insert(machine.uid.clone(), host).is_none() && rng.chance(spec.stuck) && now > 0 {
                herd.stuck.insert(machine.uid.clone());
            }
            let is_stuck = herd.stuck.contains(&machine.uid) && self.liveness.is_none();
            if machine.node.is_none() && !is_stuck && now - machine.created_at >= spec.boots_for {
                self.host_joins(&spot, dialect, host);
            }
        }
    }

    /// The Node of a Machine that is gone goes with it, and the machine is put away.
    fn host_leaves(&mut self, host: Option<usize>) {
        let Some(host) = host else { return };
        let now = self.now();
        let MachineSpec { name, cluster, .. } = &self.machines[host].spec;
        let node = format!("{NODES}/{name}");
        match cluster.clone() {
            None => self.api.delete(now, &node),
            Some(cluster) => self.remote(&cluster).api.delete(now, &node),
        };
        (self.machines[host].state, self.machines[host].unhealthy_since) = (State::Removed, None);
    }

    /// Its kubelet registers its Node first.
    fn host_joins(&mut self, spot: &Spot, dialect: Dialect, host: usize) {
        let now = self.now();
        if self.machines[host].state == State::Removed {
            self.machines[host].is_mended(now);
        }
        let MachineSpec { name, cluster, .. } = &self.machines[host].spec;
        let land = cluster.as_ref().and_then(|cluster| self.remotes.get(cluster)).map_or(&self.ledger, |remote| &remote.ledger);
        if land.node(name).is_some() {
            let status = json!({"nodeRef": {"name": name}, "phase": "Running", "lastUpdated": rfc3339(now)});
            let path = format!("{}/status?fieldManager=capi-machine", at(spot, dialect));
            self.api.patch(now, &path, MERGE, &json!({"status": status}));
        }
    }

    /// It resets what something was made for, or what is annotated, again and again until that goes.
    fn remediator_works(&mut self, fleet: &mut Fleet, number: usize) {
        let (now, is_healed) = (self.now(), self.liveness.is_some());
        let Fleet { spec, truth, herds, rng, .. } = fleet;
        let (spec, herd) = (&spec.herds[number], &mut herds[number]);
        let remediator = &spec.remediator;
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        for (spot, repair) in truth.repairs.iter().filter(|(spot, _)| spot.0 == spec.name) {
            let path = format!("{}/{}", metal3(&spot.0, "metal3remediations"), spot.1);
            if repair.deleting {
                self.api.patch(now, &path, MERGE, &json!({"metadata": {"finalizers": null}}));
                continue;
            }
            let is_new = repair.machine.is_some() && !herd.jobs.contains_key(&repair.uid);
            if is_new && !is_healed && rng.chance(remediator.holds) {
                self.trace.count("remediator holds");
                self.api.patch(now, &path, MERGE, &json!({"metadata": {"finalizers": [HELD_BY]}}));
            }
            wanted.extend(repair.machine.clone().map(|machine| (repair.uid.clone(), machine)));
        }
        let cycled = truth.machines_in(&spec.name).filter(|(_, machine)| machine.power_cycled);
        wanted.extend(cycled.map(|(_, machine)| (machine.uid.clone(), machine.uid.clone())));
        herd.jobs.retain(|job, _| wanted.contains_key(job));
        for (job, machine) in wanted {
            let (min, max) = remediator.works_for;
            let mut first = || match !is_healed && rng.chance(remediator.never) {
                true => {
                    self.trace.count("remediator never acts");
                    None
                }
                false => Some(now + rng.within(min..=max)),
            };
            let due = *herd.jobs.entry(job.clone()).or_insert_with(&mut first);
            let due = due.or(is_healed.then_some(now));
            if due.is_none_or(|due| now < due) {
                continue;
            }
            herd.jobs.insert(job, Some(now + AGAIN_AFTER));
            match herd.claims.get(&machine) {
                Some(host) if self.machines[*host].state == State::Removed => drop(self.machines[*host].is_mended(now)),
                Some(host) => self.reset(*host),
                None => {}
            }
        }
    }

    pub(crate) fn do_deed(&mut self, number: usize, deed: &Deed) -> String {
        let Some(mut fleet) = self.fleet.take() else { return "there is no fleet".to_owned() };
        let told = self.do_to(&mut fleet, number, deed);
        let told = format!("{}: {told}", fleet.spec.herds[number].name);
        self.fleet = Some(fleet);
        told
    }

    fn do_to(&mut self, fleet: &mut Fleet, number: usize, deed: &Deed) -> String {
        let now = self.now();
        let (dialect, spec) = (fleet.spec.dialect, fleet.spec.herds[number].clone());
        let checks = path(dialect, &spec.name, "machinehealthchecks");
        let template = metal3(&spec.name, "metal3remediationtemplates");
        let code = match deed {
            Deed::Check { name, spec: wanted } => return self.write_machine_check(dialect, &checks, name, wanted),
            Deed::DropCheck(name) => self.api.delete(now, &format!("{checks}/{name}")),
            Deed::PauseCheck(name, paused) => {
                let value = if *paused { json!("") } else { Value::Null };
                let body = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
                self.api.patch(now, &format!("{checks}/{name}"), MERGE, &body)
            }
            Deed::DropTemplate => self.api.delete(now, &format!("{template}/{TEMPLATE}")),
            Deed::RestoreTemplate => {
                self.install_template(now, &spec.name, TEMPLATE, &json!({"template": {"spec": {"strategy": {"type": "Reboot"}}}}))
            }
            Deed::Server { up } => {
                self.switch_remote(&spec.name, *up);
                0
            }
            Deed::Hang(hangs) => {
                self.hang_remote(&spec.name, *hangs);
                0
            }
            Deed::Kubeconfig(kubeconfig) => self.write_kubeconfig(now, &spec, *kubeconfig),
            Deed::PauseCluster(paused) => {
                let cluster = format!("{}/{}", path(dialect, &spec.name, "clusters"), spec.name);
                self.api.patch(now, &cluster, MERGE, &json!({"spec": {"paused": paused}}))
            }
            Deed::Meddle(meddling) => return self.meddle(fleet, number, *meddling),
        };
        format!("{}: {code}", deed.word())
    }

    fn write_machine_check(&mut self, dialect: Dialect, checks: &str, name: &str, wanted: &Value) -> String {
        let now = self.now();
        let strategy = &wanted["strategy"];
        let mut spec = wanted.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("strategy");
        }
        let annotations = json!({"machine.openshift.io/remediation-strategy": strategy});
        let body = json!({
            "apiVersion": dialect.api_version(), "kind": "MachineHealthCheck",
            "metadata": {"name": name, "annotations": if strategy.is_null() { json!({}) } else { annotations.clone() }}, "spec": spec,
        });
        let code = match self.api.create(now, checks, &body) {
            // A merge would keep what stood there before.
            409 => {
                let path = format!("{checks}/{name}");
                let operations = json!([{"op": "replace", "path": "/spec", "value": spec}]);
                self.api.patch(now, &path, "application/json-patch+json", &operations)
            }
            code => code,
        };
        format!("machine check {name} is written: {code}: {spec}")
    }

    fn meddle(&mut self, fleet: &mut Fleet, number: usize, meddling: Meddling) -> String {
        let now = self.now();
        let Fleet { spec, truth, herds, rng, .. } = fleet;
        let (dialect, spec, herd) = (spec.dialect, &spec.herds[number], &herds[number]);
        let all: Vec<(Spot, String)> =
            truth.machines_in(&spec.name).map(|(spot, machine)| (spot.clone(), machine.uid.clone())).collect();
        let host = |uid: &String| herd.claims.get(uid).map(|host| &self.machines[*host]);
        let is_ill = |uid: &String| host(uid).is_some_and(|host| host.unhealthy_since.is_some());
        let ill: Vec<(Spot, String)> = all.iter().filter(|(_, uid)| is_ill(uid)).cloned().collect();
        let chosen = if rng.chance(60) { rng.pick(&ill) } else { None };
        let Some((spot, uid)) = chosen.or_else(|| rng.pick(&all)).cloned() else { return "there is no machine".to_owned() };
        let annotate = |annotation: &str| json!({"metadata": {"annotations": {annotation: ""}}});
        let machine = at(&spot, dialect);
        let repairs = metal3(&spot.0, "metal3remediations");
        let code = match meddling {
            Meddling::AskForRepair => self.api.patch(now, &machine, MERGE, &annotate("cluster.x-k8s.io/remediate-machine")),
            Meddling::Skip => self.api.patch(now, &machine, MERGE, &annotate("cluster.x-k8s.io/skip-remediation")),
            Meddling::Fail => self.api.patch(now, &format!("{machine}/status"), MERGE, &json!({"status": {"phase": "Failed"}})),
            Meddling::RemoveNode => {
                // The Machine names it still.
                self.host_leaves(herd.claims.get(&uid).copied());
                0
            }
            Meddling::RemoveRepair => {
                let there: Vec<&Spot> = truth.repairs.keys().filter(|at| at.0 == spot.0).collect();
                let Some(at) = rng.pick(&there) else { return "there is no repair to remove".to_owned() };
                self.api.delete(now, &format!("{repairs}/{}", at.1))
            }
            Meddling::OccupyName => {
                let body = json!({"apiVersion": METAL3, "kind": "Metal3Remediation", "metadata": {"name": spot.1}, "spec": {}});
                self.api.create(now, &repairs, &body)
            }
            Meddling::Delete => self.api.delete(now, &machine),
        };
        format!("{} {}: {code}", Deed::Meddle(meddling).word(), spot.1)
    }

    /// From now on nothing fails any more, and nobody stands in the way.
    pub(crate) fn heal_fleet(&mut self) {
        let now = self.now();
        let Some(fleet) = self.fleet.take() else { return };
        for herd in &fleet.spec.herds {
            if herd.is_away {
                self.switch_remote(&herd.name, true);
                self.hang_remote(&herd.name, false);
                self.write_kubeconfig(now, herd, Kubeconfig::Right);
            }
            self.install_template(now, &herd.name, TEMPLATE, &json!({"template": {"spec": {"strategy": {"type": "Reboot"}}}}));
        }
        let unwanted =
            ["cluster.x-k8s.io/remediate-machine", "cluster.x-k8s.io/skip-remediation"].map(|key| (key.to_owned(), Value::Null));
        for spot in fleet.truth.machines.iter().filter(|(_, history)| history.current().is_some()).map(|(spot, _)| spot) {
            let body = json!({"metadata": {"annotations": Value::from_iter(unwanted.clone())}});
            let machine = at(spot, fleet.spec.dialect);
            self.api.patch(now, &machine, MERGE, &body);
            if fleet.truth.machine_at(spot).is_some_and(|machine| machine.failed) {
                self.api.patch(now, &format!("{machine}/status"), MERGE, &json!({"status": {"phase": "Running"}}));
            }
        }
        for (spot, _) in fleet.truth.repairs.iter().filter(|(_, repair)| repair.creator.is_empty()) {
            self.api.delete(now, &format!("{}/{}", metal3(&spot.0, "metal3remediations"), spot.1));
        }
        self.fleet = Some(fleet);
    }

    pub(crate) fn view<'a>(&'a self, fleet: &'a Fleet) -> View<'a> {
        View { truth: &fleet.truth, home: &self.ledger, remotes: &self.remotes }
    }
}

impl Fleet {
    pub fn hosts(&self) -> usize {
        self.spec.herds.iter().map(|herd| herd.hosts.len()).sum()
    }
}

fn labels(dialect: Dialect, pool: &str) -> BTreeMap<String, String> {
    let role = match dialect.flavour() {
        Flavour::ClusterApi => (CONTROL_PLANE_MACHINE_LABEL, ""),
        Flavour::OpenShift => ROLE_LABEL,
    };
    let role = Some(role).filter(|_| pool == MASTERS);
    let all = [(POOL, pool), ("fleet", "all")].into_iter().chain(role);
    all.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
