//! Machines, and a cluster of their own for their nodes where the API has such, in which a test plays everybody but the
//! controller.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use resus_core::facts::Claim;
use resus_core::mhc::facts::{CLUSTER_LABEL, Dialect, Flavour, Style};
use resus_sim::Simulation;
use resus_sim::api::MERGE;
use resus_sim::clock::{MINUTE, Millis, SECOND, rfc3339};
use resus_sim::happening::{Happening, What};
use resus_sim::machine::{SYSTEM_PODS, etcd};
use resus_sim::machinery::{METAL3, definitions};
use resus_sim::owner::{Infrastructure, Owner, conditions, path};
use resus_sim::scenario::{Act, CONTROL_PLANE, Flags, ProviderSpec, Scenario};
use serde_json::{Value, json};

use crate::check::Check;

pub const ALL: [Dialect; 4] = [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift];
pub const CLUSTER_API: [Dialect; 3] = [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2];

/// Where machines, their checks and their clusters are.
pub const FLEET: &str = "fleet";
/// The cluster of nearly every machine, and its server.
pub const BLUE: &str = "blue";
/// The check of nearly every story.
pub const WORKERS: &str = "workers";
pub const NODES: &str = "/api/v1/nodes";
/// A group of machines, by their label.
pub const POOL: &str = "pool";

/// Prints its timeline if it ends in a panic.
pub struct Story {
    pub simulation: Simulation,
    pub dialect: Dialect,
    /// Who makes machines and nodes in this story, if the test does not.
    pub owner: Option<Owner>,
    infrastructure: Option<Infrastructure>,
    told: Vec<Happening>,
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.told.extend(self.simulation.run_until(self.simulation.now()));
            self.told.iter().for_each(|happening| println!("{happening}"));
        }
    }
}

impl Story {
    /// Machines `m0` and so on, each with a node `n0` and so on that is ready, and a controller that takes care of all
    /// checks.
    pub fn of(dialect: Dialect, machines: usize) -> Story {
        Story::flagged(dialect, machines, Flags { mhc: Claim::All, ..Flags::default() })
    }

    pub fn flagged(dialect: Dialect, machines: usize, flags: Flags) -> Story {
        let provider = ProviderSpec { idle: true, ..ProviderSpec::default() };
        Story::play(dialect, machines, Scenario { provider, flags, ends_at: Millis::MAX, ..Scenario::calm(1, 0) })
    }

    pub fn play(dialect: Dialect, machines: usize, scenario: Scenario) -> Story {
        let simulation = Simulation::new(scenario);
        let mut story = Story { simulation, dialect, owner: None, infrastructure: None, told: Vec::new() };
        story.define(dialect);
        story.add_namespace(FLEET);
        story.add_set(POOL, 0);
        if dialect.flavour() == Flavour::ClusterApi {
            story.add_cluster(BLUE);
        }
        for n in 0..machines {
            story.add_node(BLUE, &format!("n{n}"));
            story.add_machine(BLUE, &format!("m{n}"), Some(&format!("n{n}")));
        }
        story.run(10 * SECOND);
        story
    }

    /// As [`Story::of`], with the template and a check.
    pub fn templated(dialect: Dialect, machines: usize, check: &Check) -> Story {
        let mut story = Story::of(dialect, machines);
        story.add_template();
        story.add_check(WORKERS, check);
        story.run(10 * SECOND);
        story
    }

    /// As [`Story::of`], with a check of all machines.
    pub fn with(dialect: Dialect, machines: usize, check: &Check) -> Story {
        let mut story = Story::of(dialect, machines);
        story.add_check(WORKERS, check);
        story.run(10 * SECOND);
        story
    }

    /// Machines that somebody else makes, in a set named `set`, each with its node after ten seconds.
    pub fn owned(dialect: Dialect, replicas: usize, check: &Check) -> Story {
        let mut story = Story::of(dialect, 0);
        story.add_set("set", replicas);
        let cluster = (dialect.flavour() == Flavour::ClusterApi).then(|| BLUE.to_owned());
        let namespace = FLEET.to_owned();
        story.owner = Some(Owner {
            dialect,
            namespace: namespace.clone(),
            name: "set".to_owned(),
            cluster,
            labels: BTreeMap::from([(POOL.to_owned(), "a".to_owned())]),
            in_flight_max: None,
            made: 0,
        });
        story.infrastructure = Some(Infrastructure { dialect, namespace, boots_for: 10 * SECOND, leaves_for: 2 * SECOND });
        story.run(30 * SECOND);
        story.add_check(WORKERS, check);
        story.run(10 * SECOND);
        story
    }

    pub fn define(&mut self, dialect: Dialect) {
        self.simulation.lend(None, |now, api, _| {
            definitions(dialect).iter().for_each(|definition| api.define(now, definition));
            api.tend(now);
        });
    }

    pub fn add_namespace(&mut self, name: &str) {
        self.create("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }

    pub fn add_set(&mut self, name: &str, replicas: usize) {
        let body = json!({
            "apiVersion": self.dialect.api_version(), "kind": "MachineSet", "metadata": {"name": name},
            "spec": {"replicas": replicas},
        });
        self.create(&self.path("machinesets"), &body);
    }

    /// A Cluster that is up since now, with a server of its own that its kubeconfig names.
    pub fn add_cluster(&mut self, name: &str) {
        self.simulation.add_cluster(name);
        let body = json!({"apiVersion": self.dialect.api_version(), "kind": "Cluster", "metadata": {"name": name}, "spec": {}});
        self.create(&self.path("clusters"), &body);
        self.gates(name, true, true);
        self.write_access(name, &json!({"value": STANDARD.encode(name)}));
    }

    /// Is the control plane of the Cluster initialized, and its infrastructure ready? Since now, if so.
    pub fn gates(&mut self, cluster: &str, initialized: bool, ready: bool) {
        let (stamp, word) = (rfc3339(self.now()), |is: bool| if is { "True" } else { "False" });
        let list = json!([
            {"type": "ControlPlaneInitialized", "status": word(initialized), "lastTransitionTime": stamp, "reason": "Story"},
            {"type": "InfrastructureReady", "status": word(ready), "lastTransitionTime": stamp, "reason": "Story"},
        ]);
        let status = match self.dialect {
            Dialect::V1beta1 => json!({"conditions": list, "v1beta2": {"conditions": list}}),
            Dialect::V1alpha3 => {
                json!({"conditions": list, "controlPlaneInitialized": initialized, "infrastructureReady": ready})
            }
            Dialect::V1beta2 | Dialect::OpenShift => json!({"conditions": list}),
        };
        self.patch(&format!("{}/{cluster}/status", self.path("clusters")), &json!({"status": status}));
    }

    /// What is in the kubeconfig Secret of the Cluster.
    pub fn write_access(&mut self, cluster: &str, data: &Value) {
        let secrets = format!("/api/v1/namespaces/{FLEET}/secrets");
        let secret = format!("{cluster}-kubeconfig");
        match self.get(&format!("{secrets}/{secret}")) {
            Some(_) => self.patch(&format!("{secrets}/{secret}"), &json!({"data": data})),
            None => {
                let body = json!({"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                    "metadata": {"name": secret, "labels": {CLUSTER_LABEL: cluster}}, "data": data});
                self.create(&secrets, &body);
            }
        }
    }

    pub fn add_machine(&mut self, cluster: &str, name: &str, node: Option<&str>) {
        let set = self.get(&format!("{}/{POOL}", self.path("machinesets"))).expect("the set exists");
        let owner = json!({
            "apiVersion": self.dialect.api_version(), "kind": "MachineSet", "name": POOL, "uid": set["metadata"]["uid"],
            "controller": true,
        });
        let mut labels = json!({POOL: "a"});
        if self.dialect.flavour() == Flavour::ClusterApi {
            labels[CLUSTER_LABEL] = json!(cluster);
        }
        let body = json!({
            "apiVersion": self.dialect.api_version(), "kind": "Machine", "spec": {},
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        });
        self.create(&self.path("machines"), &body);
        if let Some(node) = node {
            self.set_machine_status(name, &json!({"nodeRef": {"name": node}, "phase": "Running"}));
        }
    }

    pub fn set_machine_status(&mut self, machine: &str, status: &Value) {
        self.patch(&format!("{}/status", self.machine_path(machine)), &json!({"status": status}));
    }

    /// An annotation with any value; none takes it away.
    pub fn annotate(&mut self, machine: &str, annotation: &str, value: Option<&str>) {
        self.patch(&self.machine_path(machine), &json!({"metadata": {"annotations": {annotation: value}}}));
    }

    pub fn label(&mut self, machine: &str, label: &str, value: &str) {
        self.patch(&self.machine_path(machine), &json!({"metadata": {"labels": {label: value}}}));
    }

    /// A condition of the Machine itself, since now, in all styles.
    pub fn post_on_machine(&mut self, machine: &str, kind: &str, status: &str, reason: &str) {
        let object = self.machine(machine);
        let stamp = rfc3339(self.now());
        let mut changed = json!({});
        for style in self.dialect.styles() {
            let others = conditions(&object, self.dialect, *style).iter().filter(|own| own["type"] != kind).cloned();
            let own = json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": stamp});
            let path = resus_k8s::names::conditions(self.dialect, *style);
            *path.iter().fold(&mut changed, |at, element| &mut at[element]) = others.chain([own]).collect();
        }
        self.set_machine_status(machine, &changed);
    }

    pub fn add_check(&mut self, name: &str, check: &Check) {
        let body = json!({
            "apiVersion": self.dialect.api_version(), "kind": "MachineHealthCheck",
            "metadata": {"name": name, "annotations": check.annotations}, "spec": check.spec(self.dialect),
        });
        self.create(&self.path("machinehealthchecks"), &body);
    }

    pub fn change_check(&mut self, name: &str, body: &Value) {
        self.patch(&self.check_path(name), body);
    }

    pub fn add_template(&mut self) {
        let body = json!({
            "apiVersion": METAL3, "kind": "Metal3RemediationTemplate", "metadata": {"name": "reboot"},
            "spec": {"template": {"spec": {"strategy": {"type": "Reboot", "retryLimit": 1}}}},
        });
        self.create(&metal3("metal3remediationtemplates"), &body);
    }

    pub fn add_node(&mut self, cluster: &str, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let (code, answer) = self.ask(self.server(cluster), Method::POST, NODES, JSON, &body);
        assert_eq!(code, 201, "{answer}");
        self.ready(cluster, name, "True");
    }

    /// A member of etcd on this node.
    pub fn add_etcd(&mut self, cluster: &str, node: &str) {
        let body = etcd(node);
        let (code, answer) = self.ask(self.server(cluster), Method::POST, SYSTEM_PODS, JSON, &body);
        assert_eq!(code, 201, "{answer}");
        let labels = json!({"metadata": {"labels": {CONTROL_PLANE: ""}}});
        for (path, change) in [
            (format!("{SYSTEM_PODS}/etcd-{node}/status"), json!({"status": body["status"]})),
            (format!("{NODES}/{node}"), labels),
        ] {
            let (code, answer) = self.ask(self.server(cluster), Method::PATCH, &path, MERGE, &change);
            assert_eq!(code, 200, "{answer}");
        }
    }

    pub fn breaks(&mut self, node: &str) {
        self.ready(BLUE, node, "False");
    }

    pub fn recovers(&mut self, node: &str) {
        self.ready(BLUE, node, "True");
    }

    pub fn ready(&mut self, cluster: &str, node: &str, status: &str) {
        let stamp = rfc3339(self.now());
        let condition = json!({
            "type": "Ready", "status": status, "reason": "Story", "message": "",
            "lastHeartbeatTime": stamp, "lastTransitionTime": stamp,
        });
        let body = json!({"status": {"conditions": [condition]}});
        let path = format!("{NODES}/{node}/status");
        let (code, answer) = self.ask(self.server(cluster), Method::PATCH, &path, STRATEGIC, &body);
        assert_eq!(code, 200, "{answer}");
    }

    pub fn remove_node(&mut self, cluster: &str, node: &str) {
        let (code, answer) = self.ask(self.server(cluster), Method::DELETE, &format!("{NODES}/{node}"), JSON, &Value::Null);
        assert!(matches!(code, 200 | 202), "{answer}");
    }

    /// Where the nodes of a cluster are; none: in this one.
    fn server<'a>(&self, cluster: &'a str) -> Option<&'a str> {
        (self.dialect.flavour() == Flavour::ClusterApi && cluster != HERE).then_some(cluster)
    }

    /// How long machines take from now on until they have a node.
    pub fn boot_for(&mut self, boots_for: Millis) {
        self.infrastructure.iter_mut().for_each(|provider| provider.boots_for = boots_for);
    }

    pub fn restart_controller(&mut self) {
        self.without_controller(|_| {});
    }

    /// What happens while no controller is there.
    pub fn without_controller(&mut self, happens: impl FnOnce(&mut Story)) {
        self.simulation.act_now(&Act::Kill { replica: 0 });
        happens(self);
        self.simulation.act_now(&Act::Start { replica: 0 });
        self.run(30 * SECOND);
    }

    pub fn now(&self) -> Millis {
        self.simulation.now()
    }

    pub fn run(&mut self, lasts_for: Millis) {
        self.run_until(self.now() + lasts_for);
    }

    pub fn run_until(&mut self, at: Millis) {
        while self.owner.is_some() && self.now() < at {
            let next = at.min(self.now() + SECOND);
            self.told.extend(self.simulation.run_until(next));
            let Story { simulation, owner, infrastructure, .. } = self;
            let server = owner.as_ref().and_then(|owner| owner.cluster.clone());
            simulation.lend(server.as_deref(), |now, api, there| {
                owner.iter_mut().for_each(|owner| owner.step(now, api));
                let mut there = there;
                infrastructure.iter_mut().for_each(|provider| provider.step(now, api, there.as_deref_mut()));
            });
        }
        self.told.extend(self.simulation.run_until(at));
        let violations = self.simulation.violations();
        assert!(violations.is_empty(), "{}", violations[0]);
    }

    pub fn create(&mut self, path: &str, body: &Value) {
        let (code, answer) = self.ask(None, Method::POST, path, JSON, body);
        assert_eq!(code, 201, "{answer}");
    }

    pub fn patch(&mut self, path: &str, body: &Value) {
        let (code, answer) = self.ask(None, Method::PATCH, path, "application/merge-patch+json", body);
        assert_eq!(code, 200, "{answer}");
    }

    /// For what stands in a list, which a merge would replace as a whole.
    pub fn patch_json(&mut self, path: &str, operations: &Value) {
        let (code, answer) = self.ask(None, Method::PATCH, path, "application/json-patch+json", operations);
        assert_eq!(code, 200, "{answer}");
    }

    pub fn delete(&mut self, path: &str) {
        let (code, answer) = self.ask(None, Method::DELETE, path, JSON, &Value::Null);
        assert!(matches!(code, 200 | 202), "{answer}");
    }

    pub fn get(&mut self, path: &str) -> Option<Value> {
        let (code, answer) = self.ask(None, Method::GET, path, JSON, &Value::Null);
        (code == 200).then_some(answer)
    }

    pub fn ask(&mut self, server: Option<&str>, method: Method, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        if method != Method::GET {
            self.told.extend(self.simulation.run_until(self.now()));
            let whose = server.map(|server| format!("{server}:")).unwrap_or_default();
            self.told.push(Happening { at: self.now(), what: What::Act(format!("{method} {whose}{path} {body}")) });
        }
        let request = Request::builder().method(method).uri(path).header("accept", JSON).header("content-type", kind);
        let request = request.body(bytes).expect("paths here are well-formed");
        let response = match server {
            None => self.simulation.ask(request),
            Some(server) => self.simulation.ask_remote(server, request),
        };
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    pub fn path(&self, plural: &str) -> String {
        path(self.dialect, FLEET, plural)
    }

    pub fn machine_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path("machines"))
    }

    pub fn check_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path("machinehealthchecks"))
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        let list = self.get(path).expect("the kind is served");
        let items = list["items"].as_array().into_iter().flatten();
        items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn machines(&mut self) -> Vec<String> {
        self.names(&self.path("machines"))
    }

    pub fn remediations(&mut self) -> Vec<String> {
        self.names(&metal3("metal3remediations"))
    }

    pub fn machine(&mut self, name: &str) -> Value {
        self.get(&self.machine_path(name)).unwrap_or_else(|| panic!("{name} exists"))
    }

    /// A condition on a machine, whole, in this style.
    pub fn posted(&mut self, machine: &str, style: Style, kind: &str) -> Option<Value> {
        let machine = self.machine(machine);
        conditions(&machine, self.dialect, style).iter().find(|own| own["type"] == kind).cloned()
    }

    /// Status and reason of it, in each style of the version, the new one first.
    pub fn sign(&mut self, machine: &str, kind: &str) -> Vec<String> {
        let machine = self.machine(machine);
        let of = |style: &Style| find(conditions(&machine, self.dialect, *style), kind);
        self.dialect.styles().iter().filter_map(of).collect()
    }

    /// Machines whose owners are to act, as they read it.
    pub fn asked(&mut self) -> Vec<String> {
        let list = self.get(&self.path("machines")).expect("the kind is served");
        let style = self.dialect.styles()[0];
        let is_false = |machine: &Value, kind: &str| {
            find(conditions(machine, self.dialect, style), kind).is_some_and(|found| found.starts_with("False"))
        };
        let machines = list["items"].as_array().into_iter().flatten();
        let asked = machines.filter(|machine| is_false(machine, "HealthCheckSucceeded") && is_false(machine, "OwnerRemediated"));
        asked.map(|machine| machine["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn check_object(&mut self, check: &str) -> Value {
        self.get(&self.check_path(check)).expect("the check exists")
    }

    pub fn status(&mut self, check: &str) -> Value {
        self.check_object(check)["status"].clone()
    }

    /// Expected, healthy, and allowed machines.
    pub fn counters(&mut self, check: &str) -> [i64; 3] {
        let status = self.status(check);
        ["expectedMachines", "currentHealthy", "remediationsAllowed"].map(|field| status[field].as_i64().unwrap_or(-1))
    }

    /// Status and reason of a condition of the check, of the newest style that has it.
    pub fn condition(&mut self, check: &str, kind: &str) -> Option<String> {
        let check = self.check_object(check);
        self.dialect.styles().iter().find_map(|style| find(conditions(&check, self.dialect, *style), kind))
    }

    pub fn message(&mut self, check: &str, kind: &str) -> String {
        let check = self.check_object(check);
        let all = self.dialect.styles().iter().flat_map(|style| conditions(&check, self.dialect, *style));
        let found = all.into_iter().find(|own| own["type"] == kind).and_then(|own| own["message"].as_str());
        found.unwrap_or_default().to_owned()
    }

    /// What was said with this reason, each with what it is about: `Machine m1: deleted`.
    pub fn events(&mut self, reason: &str) -> Vec<String> {
        let list = self.get(&format!("/api/v1/namespaces/{FLEET}/events")).expect("events are served");
        let events = list["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told = |event: &Value| {
            let about = &event["involvedObject"];
            format!("{} {}: {}", text(&about["kind"]), text(&about["name"]), text(&event["message"]))
        };
        events.map(told).collect()
    }

    /// What controllers asked the API while it ran for so long, but for the election: each with how often.
    pub fn asked_within(&mut self, lasts_for: Millis) -> Vec<(String, u64)> {
        let before = self.simulation.asked().clone();
        self.run(lasts_for);
        let since = |(what, times): (&String, &u64)| (what.clone(), times - before.get(what).copied().unwrap_or(0));
        let all = self.simulation.asked().iter().map(since);
        all.filter(|(what, times)| *times > 0 && !what.contains("/leases/resus-controller")).collect()
    }

    /// As above, but only what changes something.
    pub fn written_within(&mut self, lasts_for: Millis) -> Vec<(String, u64)> {
        let asked = self.asked_within(lasts_for);
        asked.into_iter().filter(|(what, _)| !what.starts_with("GET ") && !what.starts_with("WATCH ")).collect()
    }

    /// It is quiet for ten minutes.
    pub fn expect_quiet(&mut self) {
        assert_eq!(self.written_within(10 * MINUTE), []);
    }
}

/// Not in a cluster of their own.
pub const HERE: &str = "";
const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn find(conditions: &[Value], kind: &str) -> Option<String> {
    let found = conditions.iter().find(|own| own["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some(format!("{} {}", text("status"), text("reason")).trim_end().to_owned())
}

/// Below this are the remediations and their templates.
pub fn metal3(plural: &str) -> String {
    format!("/apis/{METAL3}/namespaces/{FLEET}/{plural}")
}
