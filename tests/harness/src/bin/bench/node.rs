//! What does a Node of 11 KB look like, and its heartbeat? Also for the bench of the embedded server.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Of those that a kubelet reports and repeats with each heartbeat.
pub const KUBELETS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Of those that a node problem detector adds.
const DETECTORS: [&str; 4] = ["NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "FrequentKubeletRestart"];

/// A node has the same name as its remediation.
pub fn name(n: usize) -> String {
    format!("worker-{n}.cluster.example")
}

pub fn written(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As a cloud makes it: labels, annotations, conditions, images. The server adds the managed fields.
pub fn node(n: usize) -> Value {
    let labels: serde_json::Map<String, Value> =
        LABELS.iter().map(|key| ((*key).to_owned(), json!(format!("value-{n}")))).collect();
    let since = written(Timestamp::now() - SignedDuration::from_hours(24 * 30));
    let condition = |kind: &str| {
        json!({"type": kind, "status": if kind == "Ready" { "True" } else { "False" }, "lastHeartbeatTime": since, "lastTransitionTime": since,
               "reason": "KubeletHasSufficientResources", "message": "kubelet has sufficient of everything that it needs"})
    };
    let conditions: Vec<Value> = KUBELETS.iter().chain(&DETECTORS).map(|kind| condition(kind)).collect();
    let image = |i: usize| {
        let repository = format!("registry.example/team-{i}/image");
        json!({"names": [format!("{repository}@sha256:{i:064}"), format!("{repository}:v1.{i}")], "sizeBytes": 123_456_789})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name(n), "labels": labels,
            "annotations": {"example.com/inventory": "x".repeat(500), "csi.volume.kubernetes.io/nodeid": "y".repeat(100)},
        },
        "spec": {"providerID": format!("cloud:///zone/{n}"), "taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "250"}, "allocatable": {"cpu": "63", "memory": "250Gi", "pods": "250"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name(n)}],
            "conditions": conditions, "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "5f6c1f1e-0c1b-4a51-9b7e-1d9b0c7d2a11", "kernelVersion": "6.1",
                "osImage": "Linux", "containerRuntimeVersion": "containerd://2.0", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

/// A kubelet reports up to 50. With so many, and what else there is, a node has 11 KiB.
const IMAGES: usize = 35;

const LABELS: [&str; 15] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "node-role.kubernetes.io/worker",
    "example.com/pool",
    "example.com/rack",
    "example.com/generation",
];
