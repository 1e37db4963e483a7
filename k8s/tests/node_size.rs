//! How much of an 11 KB Node stays in memory? Alone in its binary, since it counts every byte of the process.

use resus_core::facts::{Claim, Source};
use resus_core::input::{Fact, Input};
use resus_core::lease::{Election, Timing};
use resus_core::time::{Mono, Now, Wall};
use resus_core::world::World;
use resus_k8s::observe::{self, Keep};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const NODES: usize = 500;
/// The whole of it: facts, their place in the world, and what the allocator hands out for them.
const BYTES_PER_NODE_MAX: usize = 2048;

#[test]
fn an_11_kb_node_leaves_less_than_2_kb() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut world = World::new(Election::new("me".into(), Timing::default()), Claim::Marked);
    let now = Now { wall: Wall(1_800_000_000_000), mono: Mono(0) };
    let before = dhat::HeapStats::get().curr_bytes;
    world.apply(Input::Listing(Source::Nodes), now);
    for n in 0..NODES {
        let json = node(n).to_string();
        assert!((10_000..13_000).contains(&json.len()), "{} bytes", json.len());
        let node = observe::node(json.as_bytes(), &Keep::default()).expect("a Node can be read");
        assert_eq!(
            (node.labels.iter().count(), node.conditions.len(), node.taints.len()),
            (15, 8, 1),
            "nothing that counts is dropped"
        );
        world.apply(Input::Seen(Fact::Node(node)), now);
    }
    world.apply(Input::Listed(Source::Nodes), now);
    let each = (dhat::HeapStats::get().curr_bytes - before) / NODES;
    println!("{each} bytes per node");
    assert!(each < BYTES_PER_NODE_MAX, "{each} bytes per node");
}

/// As a cloud makes it: labels, addresses, 50 images, managed fields.
fn node(n: usize) -> Value {
    let labels: serde_json::Map<String, Value> = [
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
    ]
    .into_iter()
    .map(|key| (key.to_owned(), json!(format!("value-{n}"))))
    .collect();
    let condition = |kind: &str| {
        json!({"type": kind, "status": "False", "lastHeartbeatTime": "2026-11-17T05:00:00Z", "lastTransitionTime": "2026-11-01T05:00:00Z",
               "reason": "KubeletHasSufficientResources", "message": "kubelet has sufficient of everything that it needs"})
    };
    let kinds = [
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "FrequentKubeletRestart",
    ];
    let image = |i: usize| json!({"names": [format!("registry.example/team-{i}/image@sha256:{:064}", i), format!("registry.example/team-{i}/image:v1.{i}")], "sizeBytes": 123_456_789});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("worker-{n}.cluster.example"), "uid": format!("00000000-0000-0000-0000-{n:012}"), "resourceVersion": "123456", "labels": labels,
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(500), "csi.volume.kubernetes.io/nodeid": "y".repeat(100)},
            "managedFields": (0..3).map(|_| json!({"manager": "kubelet", "fieldsV1": {"f:status": {"f:conditions": {"k:{}": "z".repeat(100)}}}})).collect::<Vec<_>>(),
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": "cloud:///zone/instance", "taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "250"}, "allocatable": {"cpu": "63", "memory": "250Gi", "pods": "250"},
            "conditions": kinds.map(condition), "images": (0..42).map(image).collect::<Vec<_>>(),
            "nodeInfo": {"bootID": "5f6c1f1e-0c1b-4a51-9b7e-1d9b0c7d2a11", "kubeletVersion": "v1.36.4", "kernelVersion": "6.1"},
        },
    })
}
