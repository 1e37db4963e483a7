//! A patch of a Node's status changes the same whether the rest of the Node was parsed or not.

use http::{Request, header};
use jiff::Timestamp;
use resus_apiserver::{Reply, Server};
use serde_json::{Value, json};

struct Cluster(Server);

impl Cluster {
    /// Where there is a policy, every write parses the whole object: policies see everything.
    fn new(has_policy: bool) -> Cluster {
        let mut cluster = Cluster(Server::new(1, Timestamp::UNIX_EPOCH));
        let policy = json!({"metadata": {"name": "any"}, "spec": {"validations": [{"expression": "true"}], "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}}});
        if has_policy {
            cluster.post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", &policy);
        }
        cluster.post("/api/v1/nodes", &node());
        cluster
    }

    fn post(&mut self, path: &str, object: &Value) {
        let request = Request::post(path).body(object.to_string().into_bytes()).expect("a request");
        let (code, body) = self.ask(request);
        assert_eq!(code, 201, "{body}");
    }

    fn patch(&mut self, patch: &Value) -> (u16, Value) {
        let request = Request::patch("/api/v1/nodes/n/status?fieldManager=kubelet")
            .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
            .body(patch.to_string().into_bytes());
        self.ask(request.expect("a request"))
    }

    fn ask(&mut self, request: Request<Vec<u8>>) -> (u16, Value) {
        let Reply::Answer(answer) = self.0.handle(Timestamp::UNIX_EPOCH, request) else { panic!("no watch was asked for") };
        let mut body: Value = serde_json::from_slice(answer.body()).expect("JSON");
        // Of these a server makes its own.
        for key in ["resourceVersion", "uid"] {
            body["metadata"].as_object_mut().map(|metadata| metadata.remove(key));
        }
        (answer.status().as_u16(), body)
    }
}

fn node() -> Value {
    json!({
        "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"c": "d\0", "e": "\"images\":[]"}, "finalizers": ["x.test/y"]},
        "spec": {"providerID": "p", "taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {
            "capacity": {"cpu": "4", "pods": "10"}, "allocatable": {"cpu": "3", "pods": "10"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
            "images": [{"names": ["a", "b"], "sizeBytes": 1}], "nodeInfo": {"bootID": "1"}, "volumesInUse": ["v"],
        },
    })
}

#[test]
fn what_is_left_aside_makes_no_difference() {
    let ready = |status: &str| json!({"type": "Ready", "status": status, "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
    let order = json!([{"type": "DiskPressure"}, {"type": "Ready"}]);
    let patches = [
        json!({"status": {"conditions": [ready("False")]}}),
        json!({"status": {"conditions": [ready("False")]}}),
        json!({"status": {"$setElementOrder/conditions": order, "conditions": [ready("True")]}}),
        json!({"status": {"conditions": [{"type": "DiskPressure", "$patch": "delete"}]}}),
        json!({"status": {"allocatable": null}}),
        json!({"status": {"capacity": {"cpu": "8"}}}),
        json!({"status": {"capacity": {"cpu": "-1"}}}),
        json!({"status": {"capacity": null, "allocatable": null}}),
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "InternalIP", "address": "10.0.0.2"}]}}),
        json!({"status": {"nodeInfo": {"bootID": "2"}, "daemonEndpoints": null}}),
        json!({"status": {"images": [], "volumesInUse": null}}),
        json!({"status": {"conditions": null}}),
        json!({"status": {"conditions": "no list"}}),
        json!({"status": {"phase": "\0images"}}),
        json!({"status": {"unknown": 1}}),
        json!({"status": {"$retainKeys": ["conditions"], "conditions": [ready("True")]}}),
        json!({"metadata": {"labels": {"a": null, "z": "1"}}, "status": {"conditions": [ready("Unknown")]}}),
        json!({"metadata": {"annotations": {"c": "\0images"}}}),
        json!({"metadata": {"annotations": {"c": "plain again"}}, "status": {"conditions": [ready("True")]}}),
        json!({"status": {"conditions": [ready("False")]}}),
        json!({"metadata": {"resourceVersion": "1"}, "status": {"conditions": [ready("True")]}}),
        json!({"metadata": {"uid": "other"}, "status": {"conditions": [ready("True")]}}),
        json!({"spec": {"unschedulable": true}, "status": {"conditions": [ready("True")]}}),
        json!({"metadata": {"managedFields": []}, "status": {"conditions": [ready("False")]}}),
        json!({"status": null}),
        json!({"status": {"$patch": "replace", "phase": "Running"}}),
        json!({"status": {"conditions": [ready("True")]}}),
    ];
    let (mut split, mut whole) = (Cluster::new(false), Cluster::new(true));
    for patch in patches {
        let ((code, answer), (whole_code, whole_answer)) = (split.patch(&patch), whole.patch(&patch));
        // Uids stand in some refusals.
        let told = |answer: &Value| if code < 300 { answer.clone() } else { answer["reason"].clone() };
        assert_eq!((code, told(&answer)), (whole_code, told(&whole_answer)), "{patch}");
    }
}
