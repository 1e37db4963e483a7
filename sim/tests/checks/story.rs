//! A cluster without kubelets, in which a test plays everybody but the controller.

use http::{Method, Request};
use resus_sim::Simulation;
use resus_sim::clock::{EPOCH, MINUTE, Millis, SECOND, rfc3339, wall};
use resus_sim::happening::{Happening, What};
use resus_sim::scenario::{Act, Flags, ProviderSpec, Scenario, WORKER, template};
use serde_json::{Value, json};

/// About the end of each hour the server ends its watches, and for some seconds a controller is in doubt: what a story
/// expects to the second it does not expect just then.
pub const HOUR: Millis = 60 * MINUTE;

pub const NODES: &str = "/api/v1/nodes";
pub const CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";
pub const PROVIDED: &str = "/apis/provider.test/v1/namespaces/provider";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// The check of nearly every story.
pub const WORKERS: &str = "workers";

/// Prints its timeline if it ends in a panic.
pub struct Story {
    pub simulation: Simulation,
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
    /// Nodes `n0` and so on, all ready, and a controller that leads.
    pub fn of(nodes: usize) -> Story {
        Story::flagged(nodes, Flags::default())
    }

    pub fn flagged(nodes: usize, flags: Flags) -> Story {
        let provider = ProviderSpec { idle: true, ..ProviderSpec::default() };
        let mut story = Story::play(Scenario { provider, flags, ends_at: Millis::MAX, ..Scenario::calm(1, 0) });
        (0..nodes).for_each(|n| story.add_node(&format!("n{n}"), &json!({WORKER: ""})));
        story.run(10 * SECOND);
        story
    }

    pub fn play(scenario: Scenario) -> Story {
        Story { simulation: Simulation::new(scenario), told: Vec::new() }
    }

    /// As [`Story::of`], with a check of all nodes: unhealthy when not ready for five seconds, of which three may be.
    pub fn with(nodes: usize, spec: &Value) -> Story {
        let mut story = Story::of(nodes);
        story.check(WORKERS, spec);
        story.run(10 * SECOND);
        story
    }

    pub fn check(&mut self, name: &str, spec: &Value) {
        let (code, answer) = self.try_check(name, spec);
        assert_eq!(code, 201, "{answer}");
    }

    pub fn try_check(&mut self, name: &str, spec: &Value) -> (u16, Value) {
        let mut whole = json!({"unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "5s"}]});
        if spec["minHealthy"].is_null() {
            whole["maxUnhealthy"] = json!(3);
        }
        if spec["escalatingRemediations"].is_null() {
            whole["remediationTemplate"] = template("reboot");
        }
        let fields = spec.as_object().expect("a spec is an object");
        fields.iter().for_each(|(field, value)| whole[field] = value.clone());
        let body = json!({
            "apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": {"name": name}, "spec": whole,
        });
        self.ask(Method::POST, CHECKS, &body)
    }

    pub fn change_check(&mut self, name: &str, spec: &Value) {
        self.patch(&format!("{CHECKS}/{name}"), &json!({"spec": spec}));
    }

    pub fn add_node(&mut self, name: &str, labels: &Value) {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.create(NODES, &body);
        self.recovers(name);
    }

    pub fn breaks(&mut self, node: &str) {
        self.ready(node, "False");
    }

    pub fn recovers(&mut self, node: &str) {
        self.ready(node, "True");
    }

    fn ready(&mut self, node: &str, status: &str) {
        let stamp = rfc3339(self.now());
        let condition = json!({
            "type": "Ready", "status": status, "reason": "Story", "message": "",
            "lastHeartbeatTime": stamp, "lastTransitionTime": stamp,
        });
        let body = json!({"status": {"conditions": [condition]}});
        let strategic = "application/strategic-merge-patch+json";
        let (code, answer) = self.ask_as(Method::PATCH, &format!("{NODES}/{node}/status"), strategic, &body);
        assert_eq!(code, 200, "{answer}");
    }

    pub fn annotate(&mut self, node: &str, annotation: &str) {
        self.patch(&format!("{NODES}/{node}"), &json!({"metadata": {"annotations": {annotation: ""}}}));
    }

    pub fn label(&mut self, node: &str, label: &str, value: &str) {
        self.patch(&format!("{NODES}/{node}"), &json!({"metadata": {"labels": {label: value}}}));
    }

    /// What the provider says of a remediation.
    pub fn provider_says(&mut self, remediation: &str, conditions: &[(&str, &str)]) {
        let conditions: Vec<Value> = conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        self.patch(&format!("{}/status", path_of(remediation)), &json!({"status": {"conditions": conditions}}));
    }

    pub fn add_template(&mut self, kind: &str, name: &str, spec: &Value, annotations: &Value) {
        let metadata = json!({"name": name, "namespace": "provider", "annotations": annotations});
        let body = json!({
            "apiVersion": "provider.test/v1", "kind": format!("{kind}RemediationTemplate"), "metadata": metadata, "spec": spec,
        });
        self.create(&format!("{PROVIDED}/{}remediationtemplates", kind.to_lowercase()), &body);
    }

    /// A kind of somebody else, of which anything goes.
    pub fn define(&mut self, group: &str, version: &str, kind: &str, scope: &str) {
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let version = json!({
            "name": version, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        });
        let names = json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular});
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
        });
        self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &body);
    }

    pub fn add_namespace(&mut self, name: &str) {
        self.create("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }

    pub fn restart_controller(&mut self) {
        self.simulation.act_now(&Act::Kill { replica: 0 });
        self.simulation.act_now(&Act::Start { replica: 0 });
        self.run(30 * SECOND);
    }

    pub fn upgrade_server(&mut self, version: &str) {
        self.simulation.upgrade_server(version);
    }

    pub fn now(&self) -> Millis {
        self.simulation.now()
    }

    pub fn run(&mut self, lasts_for: Millis) {
        self.run_until(self.now() + lasts_for);
    }

    pub fn run_until(&mut self, at: Millis) {
        self.told.extend(self.simulation.run_until(at));
        let violations = self.simulation.violations();
        assert!(violations.is_empty(), "{}", violations[0]);
    }

    pub fn create(&mut self, path: &str, body: &Value) {
        let (code, answer) = self.ask(Method::POST, path, body);
        assert_eq!(code, 201, "{answer}");
    }

    pub fn patch(&mut self, path: &str, body: &Value) {
        let (code, answer) = self.ask_as(Method::PATCH, path, "application/merge-patch+json", body);
        assert_eq!(code, 200, "{answer}");
    }

    /// For what stands in a list, which a merge would replace as a whole.
    pub fn patch_json(&mut self, path: &str, operations: &Value) {
        let (code, answer) = self.ask_as(Method::PATCH, path, "application/json-patch+json", operations);
        assert_eq!(code, 200, "{answer}");
    }

    pub fn delete(&mut self, path: &str) {
        let (code, answer) = self.ask(Method::DELETE, path, &Value::Null);
        assert!(matches!(code, 200 | 202), "{answer}");
    }

    pub fn get(&mut self, path: &str) -> Option<Value> {
        let (code, answer) = self.ask(Method::GET, path, &Value::Null);
        (code == 200).then_some(answer)
    }

    pub fn ask(&mut self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.ask_as(method, path, "application/json", body)
    }

    fn ask_as(&mut self, method: Method, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        if method != Method::GET {
            self.told.extend(self.simulation.run_until(self.now()));
            self.told.push(Happening { at: self.now(), what: What::Act(format!("{method} {path} {body}")) });
        }
        let request =
            Request::builder().method(method).uri(path).header("accept", "application/json").header("content-type", kind);
        let response = self.simulation.ask(request.body(bytes).expect("paths here are well-formed"));
        (response.status().as_u16(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    /// All that exist: `reboot n1`, `power n1`, by the node's name.
    pub fn remediations(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for kind in ["power", "reboot"] {
            let list = self.get(&format!("{PROVIDED}/{kind}remediations")).expect("the kind is served");
            let nodes = list["items"].as_array().into_iter().flatten().map(|item| {
                let node = &item["metadata"]["annotations"]["remediation.medik8s.io/node-name"];
                format!("{kind} {}", node.as_str().unwrap_or_default())
            });
            all.extend(nodes);
        }
        all.sort();
        all
    }

    pub fn expect(&mut self, remediations: &[&str]) {
        assert_eq!(self.remediations(), remediations, "at {}", self.now());
    }

    /// Of a kind whose objects are named like their nodes: `reboot n1`.
    pub fn remediation(&mut self, remediation: &str) -> Value {
        self.get(&path_of(remediation)).unwrap_or_else(|| panic!("{remediation} exists"))
    }

    pub fn annotation(&mut self, remediation: &str, annotation: &str) -> Option<String> {
        self.remediation(remediation)["metadata"]["annotations"][annotation].as_str().map(str::to_owned)
    }

    pub fn created_at(&mut self, remediation: &str) -> Millis {
        millis(&self.remediation(remediation)["metadata"]["creationTimestamp"])
    }

    pub fn status(&mut self, check: &str) -> Value {
        self.get(&format!("{CHECKS}/{check}")).expect("the check exists")["status"].clone()
    }

    pub fn listed(&mut self, check: &str, node: &str) -> Option<Value> {
        let status = self.status(check);
        status["unhealthyNodes"].as_array().into_iter().flatten().find(|listed| listed["name"] == node).cloned()
    }

    /// Why nothing is done about this node.
    pub fn held(&mut self, check: &str, node: &str) -> String {
        self.listed(check, node).and_then(|node| node["held"].as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Status and reason of a condition.
    pub fn condition(&mut self, check: &str, kind: &str) -> Option<(String, String)> {
        let status = self.status(check);
        let found = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind)?.clone();
        Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
    }

    pub fn is(&mut self, kind: &str) -> Option<bool> {
        self.condition(WORKERS, kind).map(|(status, _)| status == "True")
    }

    /// What was said with this reason.
    pub fn events(&mut self, reason: &str) -> Vec<String> {
        let list = self.get(EVENTS).expect("events are served");
        let events = list["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason);
        events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn lease(&mut self, node: &str) -> Option<Value> {
        self.get(&format!("{LEASES}/node-{node}")).map(|lease| lease["spec"].clone())
    }

    /// Somebody else has the node out of service.
    pub fn hold(&mut self, node: &str, holder: &str, lasts_for: Millis) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}});
        self.ask(Method::POST, "/api/v1/namespaces", &namespace);
        let stamp = wall(self.now()).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": lasts_for / SECOND, "acquireTime": stamp, "renewTime": stamp,
            "leaseTransitions": 3,
        });
        let metadata = json!({"name": format!("node-{node}"), "namespace": "medik8s-leases"});
        self.create(
            LEASES,
            &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}),
        );
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
}

/// Two steps with so much time each.
pub fn steps(templates: [&str; 2], timeout: &str) -> Value {
    let step = |(order, name): (usize, &str)| json!({"remediationTemplate": template(name), "order": order, "timeout": timeout});
    json!({"escalatingRemediations": templates.into_iter().enumerate().map(step).collect::<Vec<_>>()})
}

pub fn millis(stamp: &Value) -> Millis {
    let stamp: jiff::Timestamp = stamp.as_str().and_then(|stamp| stamp.parse().ok()).expect("it is a date");
    stamp.as_millisecond() - EPOCH
}

pub fn path_of(remediation: &str) -> String {
    let (kind, node) = remediation.split_once(' ').expect("it is a kind and a node");
    format!("{PROVIDED}/{kind}remediations/{node}")
}
