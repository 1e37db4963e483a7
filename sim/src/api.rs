//! The API server of the simulated cluster, and everybody's way to it who is not under test.
//!
//! Kubelets, the provider and the admin reach it directly, and what they do is done at once. Controllers reach it
//! through `net.rs`.

use std::collections::BTreeSet;

use http::{HeaderValue, Method, Request, Response, header};
use resus_apiserver::{Followed, Reply, Server, Watch};
use serde_json::{Value, json};

use crate::clock::{Millis, wall};
use crate::scenario::{NAMESPACE, PROVIDER, TEMPLATE, TEMPLATE_HARD, TEMPLATE_INVALID, TEMPLATE_OF_SEVERAL, TEMPLATE_POWER};

pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
/// What one round of garbage collection leaves, the next takes; owners are two deep at most here.
const ROUNDS_MAX: usize = 10;

pub struct Api {
    server: Server,
    /// What the server wants of everybody, if it does.
    token: Option<HeaderValue>,
    pub is_up: bool,
    /// What may have been written since somebody asked last.
    touched: BTreeSet<Topic>,
}

/// The kinds that controllers and oracles watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Nodes,
    Checks,
    Definitions,
    Remediations,
    Templates,
    Leases,
    Pods,
    /// Machines, their checks and remediations, their Clusters, and how those are reached.
    Machines,
}

impl Topic {
    pub const ALL: [Topic; 8] = [
        Topic::Nodes,
        Topic::Checks,
        Topic::Definitions,
        Topic::Remediations,
        Topic::Templates,
        Topic::Leases,
        Topic::Pods,
        Topic::Machines,
    ];

    pub fn of(path: &str) -> Option<Topic> {
        path.split('/').find_map(|segment| match segment {
            "nodes" => Some(Topic::Nodes),
            "nodehealthchecks" => Some(Topic::Checks),
            "customresourcedefinitions" => Some(Topic::Definitions),
            "rebootremediations" | "powerremediations" => Some(Topic::Remediations),
            "rebootremediationtemplates" | "powerremediationtemplates" => Some(Topic::Templates),
            "leases" => Some(Topic::Leases),
            "pods" => Some(Topic::Pods),
            "machines" | "machinehealthchecks" | "clusters" | "secrets" => Some(Topic::Machines),
            "metal3remediations" | "metal3remediationtemplates" => Some(Topic::Machines),
            _ => None,
        })
    }
}

impl Api {
    pub fn new(seed: u64, now: Millis) -> Api {
        Api { server: Server::new(seed, wall(now)), token: None, is_up: true, touched: BTreeSet::new() }
    }

    /// What stays here has nothing in it.
    pub fn give_server(&mut self, token: &str, secrets: fn() -> String) -> Server {
        self.server.require_token(token, secrets);
        self.token = Some(format!("Bearer {token}").parse().expect("tokens are fit for headers"));
        std::mem::replace(&mut self.server, Server::new(0, wall(0)))
    }

    /// The server that it gave away comes or goes. Others may have written whatever they like to it.
    pub fn exchange(&mut self, server: &mut Server) {
        std::mem::swap(&mut self.server, server);
        self.touched.extend(Topic::ALL);
    }

    pub fn handle(&mut self, now: Millis, mut request: Request<Vec<u8>>) -> Reply {
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        if request.method() != Method::GET {
            self.touched.extend(Topic::of(request.uri().path()));
        }
        self.server.handle(wall(now), request)
    }

    pub fn take_touched(&mut self) -> BTreeSet<Topic> {
        std::mem::take(&mut self.touched)
    }

    pub fn follow(&self, now: Millis, watch: &mut Watch) -> Followed {
        self.server.follow(wall(now), watch)
    }

    /// Rounds until Kubernetes' own controllers have nothing more to do.
    pub fn tend(&mut self, now: Millis) {
        for _ in 0..ROUNDS_MAX {
            if !self.server.tend(wall(now)) {
                return;
            }
            self.touched.extend(Topic::ALL);
        }
    }

    pub fn compact(&mut self) {
        self.server.compact();
    }

    pub fn upgrade(&mut self, version: &str) {
        self.server.upgrade(version);
    }

    /// The status code; 0 while the server is away.
    pub fn ask(&mut self, now: Millis, method: Method, path: &str, kind: &str, body: &Value) -> u16 {
        match self.answer(now, method, path, kind, body) {
            Some(response) => response.status().as_u16(),
            None => 0,
        }
    }

    pub fn read(&mut self, now: Millis, path: &str) -> Option<Value> {
        let response = self.answer(now, Method::GET, path, JSON, &Value::Null)?;
        response.status().is_success().then(|| serde_json::from_slice(response.body()).ok()).flatten()
    }

    pub fn create(&mut self, now: Millis, path: &str, body: &Value) -> u16 {
        self.ask(now, Method::POST, path, JSON, body)
    }

    pub fn delete(&mut self, now: Millis, path: &str) -> u16 {
        self.ask(now, Method::DELETE, path, JSON, &Value::Null)
    }

    pub fn patch(&mut self, now: Millis, path: &str, kind: &str, body: &Value) -> u16 {
        self.ask(now, Method::PATCH, path, kind, body)
    }

    fn answer(&mut self, now: Millis, method: Method, path: &str, kind: &str, body: &Value) -> Option<Response<Vec<u8>>> {
        if !self.is_up {
            return None;
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("accept", JSON).header("content-type", kind).body(body);
        match self.handle(now, request.expect("paths here are well-formed")) {
            Reply::Answer(response) => Some(response),
            Reply::Watch(_) => None,
        }
    }

    /// Everything that is in a cluster before its nodes are.
    pub fn install(&mut self, now: Millis) {
        for name in ["default", "kube-system", "kube-node-lease", PROVIDER, NAMESPACE] {
            self.create(now, "/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        for crd in resus_k8s::crd::all() {
            let crd = serde_json::to_value(crd).expect("our own definitions are JSON");
            self.define(now, &crd);
        }
        self.tend(now);
    }

    pub fn install_provider(&mut self, now: Millis) {
        for kind in REMEDIATION_KINDS {
            self.define(now, &definition(&format!("{kind}Template"), json!({})));
            self.define(now, &definition(kind, json!({"subresources": {"status": {}}, "additionalPrinterColumns": columns()})));
        }
        self.tend(now);
        self.install_templates(now);
    }

    pub fn define(&mut self, now: Millis, crd: &Value) {
        if let Some(answer) = self.answer(now, Method::POST, DEFINITIONS, JSON, crd) {
            let code = answer.status().as_u16();
            assert!(matches!(code, 201 | 409), "the server takes all definitions: {}", String::from_utf8_lossy(answer.body()));
        }
    }

    fn install_templates(&mut self, now: Millis) {
        let spec = json!({"template": {"spec": {"method": "power-cycle", "retries": 3}}});
        let several = json!({"remediation.medik8s.io/multiple-templates-support": "true"});
        for (kind, name, annotations, spec) in [
            ("Reboot", TEMPLATE, json!({}), spec.clone()),
            ("Reboot", TEMPLATE_HARD, json!({}), spec.clone()),
            ("Reboot", TEMPLATE_OF_SEVERAL, several, spec.clone()),
            ("Reboot", TEMPLATE_INVALID, json!({}), json!({"other": 1})),
            ("Power", TEMPLATE_POWER, json!({}), spec),
        ] {
            let body = json!({
                "apiVersion": "provider.test/v1", "kind": format!("{kind}RemediationTemplate"),
                "metadata": {"name": name, "namespace": PROVIDER, "annotations": annotations}, "spec": spec,
            });
            self.create(now, &format!("{PROVIDED}/{}remediationtemplates", kind.to_lowercase()), &body);
        }
    }
}

pub const NODES: &str = "/api/v1/nodes";
pub const NODE_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
pub const CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";
/// What the provider's objects are kept under: `rebootremediations/worker-1` and so on.
pub const PROVIDED: &str = "/apis/provider.test/v1/namespaces/provider";
pub const REMEDIATION_KINDS: [&str; 2] = ["RebootRemediation", "PowerRemediation"];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn columns() -> Value {
    let condition = |kind: &str| json!({"name": kind, "type": "string", "jsonPath": format!(".status.conditions[?(@.type==\"{kind}\")].status")});
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    json!([condition("Processing"), condition("Succeeded"), age])
}

fn definition(kind: &str, mut version: Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    version["name"] = json!("v1");
    (version["served"], version["storage"]) = (json!(true), json!(true));
    version["schema"] = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.provider.test")},
        "spec": {
            "group": "provider.test", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [version],
        },
    })
}
