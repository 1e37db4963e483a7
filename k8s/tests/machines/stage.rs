//! A server with the kinds of one dialect, defined as their owners do it.

use http::{Method, Request};
use jiff::Timestamp;
use resus_apiserver::{Reply, Server};
use resus_core::effect::{Effect, Target};
use resus_core::input::{Answer, Input};
use resus_core::mhc::facts::{Dialect, Machine, MachineCheck};
use resus_k8s::names::Places;
use resus_k8s::observe::{self, Keep};
use resus_k8s::{answer, crd, encode};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub struct Stage {
    server: Server,
    pub dialect: Dialect,
}

impl Stage {
    /// With our own definitions, of which there are two versions.
    pub fn ours(dialect: Dialect) -> Stage {
        Stage::with(dialect, crd::machines().into_iter().map(|crd| json!(crd)).collect())
    }

    pub fn theirs(dialect: Dialect) -> Stage {
        let of = |kind: &str| definition(dialect, kind, &theirs(dialect));
        Stage::with(dialect, vec![of("Machine"), of("MachineHealthCheck")])
    }

    /// Of a server of v1beta1 that is older than the new style.
    pub fn old() -> Stage {
        let status = object(&json!({"nodeRef": anything(), "conditions": atomic()}));
        Stage::with(Dialect::V1beta1, vec![definition(Dialect::V1beta1, "Machine", &status)])
    }

    fn with(dialect: Dialect, definitions: Vec<Value>) -> Stage {
        let mut stage = Stage { server: Server::new(1, NOW), dialect };
        for definition in definitions {
            stage.ask(&Method::POST, DEFINITIONS, &definition);
        }
        while stage.server.tend(NOW) {}
        stage
    }

    /// A Machine in the namespace default, with its status.
    pub fn machine(&mut self, name: &str, status: &Value) -> Machine {
        let object = json!({"apiVersion": self.dialect.api_version(), "kind": "Machine", "metadata": {"name": name}, "spec": {}});
        self.ask(&Method::POST, &self.path("machines", ""), &object);
        if !status.is_null() {
            self.write(name, status, "somebody");
        }
        self.look(name)
    }

    /// Somebody writes the whole status.
    pub fn write(&mut self, name: &str, status: &Value, manager: &str) {
        let mut object = self.show(name);
        object["status"] = status.clone();
        let path = format!("{}?fieldManager={manager}", self.path("machines", &format!("/{name}/status")));
        self.ask(&Method::PUT, &path, &object);
    }

    pub fn show(&mut self, name: &str) -> Value {
        self.ask(&Method::GET, &self.path("machines", &format!("/{name}")), &Value::Null)
    }

    pub fn look(&mut self, name: &str) -> Machine {
        observe::machine(self.show(name).to_string().as_bytes(), self.dialect).expect("a server shows what can be read")
    }

    pub fn check(&mut self, name: &str, spec: &Value) -> MachineCheck {
        let metadata = json!({"name": name});
        let object =
            json!({"apiVersion": self.dialect.api_version(), "kind": "MachineHealthCheck", "metadata": metadata, "spec": spec});
        let created = self.ask(&Method::POST, &self.path("machinehealthchecks", ""), &object);
        observe::machine_check(created.to_string().as_bytes(), self.dialect).expect("a server shows what can be read")
    }

    fn path(&self, plural: &str, rest: &str) -> String {
        format!("/apis/{}/namespaces/default/{plural}{rest}", self.dialect.api_version())
    }

    /// A check in the namespace default: how the server answers.
    pub fn create(&mut self, check: &Value) -> (u16, String) {
        self.try_to(&Method::POST, &self.path("machinehealthchecks", ""), check)
    }

    pub fn try_to(&mut self, method: &Method, path: &str, body: &Value) -> (u16, String) {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let Reply::Answer(response) = self.server.handle(NOW, request.body(bytes).expect("paths here are well-formed")) else {
            unreachable!("nobody watches here")
        };
        (response.status().as_u16(), String::from_utf8_lossy(response.body()).into_owned())
    }

    pub fn ask(&mut self, method: &Method, path: &str, body: &Value) -> Value {
        let (code, answer) = self.try_to(method, path, body);
        assert!((200..300).contains(&code), "{path}: {answer}");
        serde_json::from_str(&answer).expect("answers are JSON")
    }

    /// What becomes of an effect.
    pub fn send(&mut self, effect: &Effect) -> Answer {
        let Reply::Answer(response) =
            self.server.handle(NOW, encode::encode(effect, &Places::new("resus")).expect("it can be sent"))
        else {
            unreachable!("nobody watches here")
        };
        match answer::decode(effect, &Keep::default(), &response) {
            Input::Answered(_, answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

pub fn target(machine: &Machine) -> Target {
    let Machine { place, dialect, uid, version, .. } = machine.clone();
    Target { place, dialect, uid, version }
}

fn definition(dialect: Dialect, kind: &str, status: &Value) -> Value {
    let (group, version) = dialect.api_version().split_once('/').expect("a group and a version");
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": object(&json!({"spec": anything(), "status": status}))},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// Which lists are split up by type, and which change hands as a whole.
fn theirs(dialect: Dialect) -> Value {
    let mut fields = json!({
        "nodeRef": anything(), "phase": {"type": "string"}, "lastUpdated": {"type": "string", "format": "date-time"},
        "expectedMachines": {"type": "integer"}, "currentHealthy": {"type": "integer"}, "remediationsAllowed": {"type": "integer"},
        "observedGeneration": {"type": "integer"}, "targets": {"type": "array", "items": {"type": "string"}},
    });
    match dialect {
        Dialect::V1beta2 => {
            fields["conditions"] = by_type();
            let legacy = object(&json!({"conditions": atomic()}));
            fields["deprecated"] = object(&json!({"v1beta1": legacy}));
        }
        Dialect::V1beta1 => {
            fields["conditions"] = atomic();
            fields["v1beta2"] = object(&json!({"conditions": by_type()}));
        }
        Dialect::V1alpha3 => fields["conditions"] = atomic(),
        Dialect::OpenShift => {
            fields["conditions"] = by_type();
            let fields = fields.as_object_mut().expect("an object");
            fields.remove("observedGeneration");
            fields.remove("targets");
        }
    }
    object(&fields)
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn atomic() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let fields = json!({
        "type": text, "status": text, "reason": text, "message": text,
        "severity": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
    });
    let required = json!(["type", "status", "lastTransitionTime"]);
    json!({"type": "array", "items": {"type": "object", "properties": fields, "required": required}})
}

fn by_type() -> Value {
    let text = json!({"type": "string"});
    let fields = json!({
        "type": text, "status": text, "reason": text, "message": text, "severity": text,
        "observedGeneration": {"type": "integer"}, "lastTransitionTime": {"type": "string", "format": "date-time"},
    });
    let required = json!(["type", "status", "lastTransitionTime"]);
    json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "properties": fields, "required": required},
    })
}
