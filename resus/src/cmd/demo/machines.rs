//! Machines at wall speed: what their kubelets report, what breaks them, and who brings them back.
//!
//! They share the process with the API server and write to it directly; the controller does not.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::{Method, Request};
use jiff::Timestamp;
use resus_apiserver::Reply;
use serde_json::{Value, json};

use super::panel::clock;
use super::provider::{self, Order, Provider, REMEDIATIONS};
use super::script::Script;
use super::serve::millis_since;
use crate::serve::Shared;

const NODES: &str = "/api/v1/nodes";
const CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const BREAK: &str = "demo.resus.dev/break";
const MEND: &str = "demo.resus.dev/mend";

/// Whoever breaks a node wants to see it at once.
const TICK: Duration = Duration::from_millis(500);
const BEATS_EACH: Duration = Duration::from_secs(3);
/// Silent for longer, and a node is Unknown: three heartbeats, and longer than a boot.
const PATIENCE: Duration = Duration::from_secs(10);
const BOOTS_FOR: Duration = Duration::from_secs(6);
/// A node that flaps changes its mind so often, and gives up soon enough to be left alone.
const FLAPS_EACH: Duration = Duration::from_secs(6);
const FLAPS_FOR: Duration = Duration::from_secs(30);

pub struct Machines {
    shared: Shared,
    token: String,
    machines: Vec<Machine>,
    provider: Provider,
    began: Instant,
}

struct Machine {
    name: String,
    zone: String,
    state: State,
    boots: u32,
    beat_at: Instant,
    /// Ready and DiskBroken, as last reported.
    said: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// No power, or no kubelet: nobody hears of it.
    Silent,
    DiskBroken,
    Flapping {
        since: Instant,
    },
    Booting {
        until: Instant,
    },
}

impl Machines {
    pub fn new(script: &Script, shared: Shared, token: String, began: Instant) -> Machines {
        let machine = |zone: &str, name: &str| Machine {
            name: name.to_owned(),
            zone: zone.to_owned(),
            state: State::Running,
            boots: 1,
            beat_at: began,
            said: None,
        };
        let all = script.zones.iter().flat_map(|zone| zone.nodes.iter().map(|node| machine(&zone.name, node)));
        Machines { machines: all.collect(), provider: Provider::default(), shared, token, began }
    }

    /// Everything that is in the cluster before its controller is.
    pub fn install(&mut self, check: &Value) -> Result<()> {
        for definition in resus_k8s::crd::all() {
            let (path, definition) = provider::definition_of_ours(serde_json::to_value(definition)?);
            self.create(path, &definition)?;
        }
        for (path, object) in provider::definitions() {
            self.create(path, &object)?;
        }
        while self.shared.with(|server| server.tend(Timestamp::now())) {}
        let (path, template) = provider::template();
        self.create(path, &template)?;
        self.create(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "poison-pill"}}),
        )?;
        self.tick(Instant::now());
        self.create(CHECKS, check)
    }

    /// Never ends.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tick(Instant::now());
        }
    }

    fn tick(&mut self, now: Instant) {
        let nodes = self.list(NODES);
        nodes.iter().for_each(|node| self.obey(node, now));
        for number in 0..self.machines.len() {
            let name = &self.machines[number].name;
            let node = nodes.iter().find(|node| node["metadata"]["name"] == name.as_str());
            self.advance(number, now);
            self.beat(number, node, now);
        }
        let objects = self.list(REMEDIATIONS);
        let machines = &self.machines;
        let is_up = |node: &str| machines.iter().any(|machine| machine.name == node && machine.state == State::Running);
        for order in self.provider.work(&objects, now, is_up) {
            match order {
                Order::PowerCycle(node) => self.power_cycle(&node, now),
                Order::Report(name, status) => {
                    self.ask(Method::PATCH, &format!("{REMEDIATIONS}/{name}/status"), MERGE, &status);
                }
            }
        }
    }

    /// Breaks a machine, or mends it, if somebody annotated its node; the annotation is used up by that.
    fn obey(&mut self, node: &Value, now: Instant) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let annotations = &node["metadata"]["annotations"];
        let (wish, mend) = (annotations[BREAK].as_str(), !annotations[MEND].is_null());
        let Some(number) = self.machines.iter().position(|machine| machine.name == name) else { return };
        if wish.is_none() && !mend {
            return;
        }
        let used = json!({"metadata": {"annotations": {BREAK: null, MEND: null}}});
        self.ask(Method::PATCH, &format!("{NODES}/{name}"), MERGE, &used);
        let (state, text) = match wish {
            Some("power") => (State::Silent, "the power is gone"),
            Some("kubelet") => (State::Silent, "the kubelet is dead"),
            Some("disk") => (State::DiskBroken, "the disk is bad"),
            Some("flap") => (State::Flapping { since: now }, "flapping begins"),
            Some(other) => {
                let text = format!("{BREAK}={other} is not known: write power, kubelet, disk or flap");
                return self.say("!", name, &text);
            }
            None => return self.power_cycle_by("admin", number, now),
        };
        self.machines[number].state = state;
        self.say("!", name, text);
    }

    /// What time brings.
    fn advance(&mut self, number: usize, now: Instant) {
        let machine = &mut self.machines[number];
        let text = match machine.state {
            State::Booting { until } if now >= until => {
                (machine.boots, machine.said) = (machine.boots + 1, None);
                "booted and Ready"
            }
            State::Flapping { since } if now >= since + FLAPS_FOR => "flapping ends",
            State::Running | State::Silent | State::DiskBroken | State::Flapping { .. } | State::Booting { .. } => return,
        };
        machine.state = State::Running;
        let name = machine.name.clone();
        self.say("cluster", &name, text);
    }

    fn power_cycle(&mut self, node: &str, now: Instant) {
        if let Some(number) = self.machines.iter().position(|machine| machine.name == node) {
            self.power_cycle_by("provider", number, now);
        }
    }

    fn power_cycle_by(&mut self, who: &str, number: usize, now: Instant) {
        self.machines[number].state = State::Booting { until: now + BOOTS_FOR };
        let name = self.machines[number].name.clone();
        self.say(who, &name, "power-cycled");
    }

    /// The kubelet reports, or is missed by the node lifecycle controller.
    fn beat(&mut self, number: usize, node: Option<&Value>, now: Instant) {
        let machine = &self.machines[number];
        let Some(said) = machine.says(now) else {
            let conditions = node.and_then(|node| node["status"]["conditions"].as_array()).into_iter().flatten();
            let is_known = conditions.into_iter().any(|condition| condition["status"] != "Unknown");
            if is_known && now > machine.beat_at + PATIENCE {
                let name = machine.name.clone();
                self.post(&name, ("Unknown", "Unknown"), node, &Value::Null);
                self.say("cluster", &name, "no heartbeat, Ready is Unknown");
            }
            return;
        };
        if node.is_none() {
            self.register(number);
        } else if machine.said == Some(said) && now < machine.beat_at + BEATS_EACH {
            return;
        }
        let machine = &mut self.machines[number];
        let news = match machine.said {
            Some((ready, _)) if ready != said.0 => Some(format!("Ready is {}", said.0)),
            Some((_, disk_broken)) if disk_broken != said.1 => Some(format!("DiskBroken is {}", said.1)),
            Some(_) | None => None,
        };
        (machine.said, machine.beat_at) = (Some(said), now);
        let (name, boot) = (machine.name.clone(), json!({"bootID": format!("{}-{}", machine.name, machine.boots)}));
        self.post(&name, said, node, &boot);
        if let Some(news) = news {
            self.say("cluster", &name, &news);
        }
    }

    fn post(&self, name: &str, (ready, disk_broken): (&str, &str), node: Option<&Value>, info: &Value) {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = |kind: &str, status: &str| {
            let known = node.and_then(|node| node["status"]["conditions"].as_array()).into_iter().flatten();
            let known = known.into_iter().find(|known| known["type"] == kind && known["status"] == status);
            let since = known.map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone());
            let (reason, message) = match status {
                "Unknown" => ("NodeStatusUnknown", "the kubelet has stopped reporting"),
                _ => ("KubeletReports", "as the kubelet reports it"),
            };
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since,
            })
        };
        let mut status = json!({"conditions": [condition("Ready", ready), condition("DiskBroken", disk_broken)]});
        if !info.is_null() {
            status["nodeInfo"] = info.clone();
        }
        self.ask(Method::PATCH, &format!("{NODES}/{name}/status"), STRATEGIC, &json!({"status": status}));
    }

    fn register(&self, number: usize) {
        let Machine { name, zone, .. } = &self.machines[number];
        let (high, low) = ((number + 1) / 250, (number + 1) % 250);
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                resus_sim::scenario::WORKER: "", resus_sim::scenario::ZONE: zone, "kubernetes.io/hostname": name,
            }},
            "status": {
                "addresses": [{"type": "InternalIP", "address": format!("10.0.{high}.{low}")}],
                "nodeInfo": {
                    "machineID": name, "systemUUID": name, "bootID": format!("{name}-1"), "kernelVersion": "6.12.0",
                    "osImage": "simulated", "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.0",
                    "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
                },
            },
        });
        self.ask(Method::POST, NODES, JSON, &node);
    }

    fn say(&self, who: &str, node: &str, text: &str) {
        println!("  {}  {who:9} {node}: {text}", clock(millis_since(self.began)));
    }

    fn list(&self, path: &str) -> Vec<Value> {
        match self.ask(Method::GET, path, JSON, &Value::Null).1["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    fn create(&self, path: &str, object: &Value) -> Result<()> {
        match self.ask(Method::POST, path, JSON, object) {
            (201, _) => Ok(()),
            (code, said) => bail!("cannot set up {path}: {code}: {}", said["message"]),
        }
    }

    fn ask(&self, method: Method, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("accept", JSON)
            .header("content-type", kind)
            .header("authorization", format!("Bearer {}", self.token))
            .body(body)
            .expect("names of nodes and of objects are fit for paths");
        match self.shared.with(|server| server.handle(Timestamp::now(), request)) {
            Reply::Answer(answer) => (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap_or_default()),
            Reply::Watch(_) => (0, Value::Null),
        }
    }
}

impl Machine {
    /// Ready and DiskBroken; none while nobody hears of it.
    fn says(&self, now: Instant) -> Option<(&'static str, &'static str)> {
        match self.state {
            State::Running => Some(("True", "False")),
            State::Silent | State::Booting { .. } => None,
            State::DiskBroken => Some(("True", "True")),
            State::Flapping { since } => {
                let rounds = now.duration_since(since).as_secs() / FLAPS_EACH.as_secs();
                Some((if rounds.is_multiple_of(2) { "False" } else { "True" }, "False"))
            }
        }
    }
}
