//! What an honest server has and answers, so that there is something to decide.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use resus_core::effect::Effect;
use resus_core::facts::{Kind, Rival, Signal, Source};
use resus_core::mhc::facts::Dialect;
use serde_json::{Value, json};

/// 2027-01-15T08:00:00Z.
pub const EPOCH: i64 = 1_800_000_000_000;
const LONG_AGO: &str = "2027-01-15T07:00:00Z";

fn metadata(name: &str) -> Value {
    json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 1, "creationTimestamp": LONG_AGO})
}

fn in_default(name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["namespace"] = json!("default");
    metadata
}

pub fn objects(source: &Source) -> Vec<Value> {
    match source {
        Source::Nodes | Source::RemoteNodes(_) => ["n1", "n2", "n3", "n4"].map(node).into(),
        Source::Checks => vec![check()],
        Source::Kinds => [
            "nodehealthchecks.remediation.medik8s.io",
            "machinehealthchecks.cluster.x-k8s.io",
            "machinehealthchecks.machine.openshift.io",
            "clusters.cluster.x-k8s.io",
            "reboots.provider.test",
        ]
        .map(|name| json!({"metadata": metadata(name)}))
        .into(),
        Source::Objects(kind) => object(kind),
        Source::NodeLeases => vec![lease("n9", "somebody")],
        Source::Rivals(Rival::Medik8s | Rival::ClusterApi | Rival::OpenShift) => Vec::new(),
        Source::Etcd | Source::RemoteEtcd(_) => ["n2", "n3", "n4"].map(|node| pod("etcd", node)).into(),
        Source::OwnNamespace => vec![json!({"metadata": metadata("poison-pill")})],
        Source::Guards => vec![pod("guard", "n2")],
        Source::Budgets => vec![json!({
            "metadata": metadata("etcd"), "spec": {"selector": {"matchLabels": {"app": "etcd"}}}, "status": {"disruptionsAllowed": 1},
        })],
        Source::Signals(Signal::ClusterVersions) => vec![json!({
            "metadata": metadata("version"),
            "status": {"desired": {"version": "4.20"}, "conditions": [{"type": "Progressing", "status": "False"}]},
        })],
        Source::Signals(Signal::Kured) => vec![json!({"metadata": in_default("kured")})],
        Source::Signals(Signal::Plans) => vec![json!({"metadata": in_default("plan"), "status": {"applying": []}})],
        Source::MachineChecks(dialect) => vec![machine_check("by-owner", *dialect), machine_check("by-template", *dialect)],
        Source::Machines(dialect) => ["n1", "n2", "n3", "n4"].map(|node| machine(node, *dialect)).into(),
        Source::Clusters(_) => vec![cluster()],
        Source::Access(_) => {
            let server = "apiVersion: v1\nkind: Config\nclusters: []\n";
            vec![json!({"metadata": in_default("blue-kubeconfig"), "data": {"value": STANDARD.encode(server)}})]
        }
    }
}

/// n1 is broken.
fn node(name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = json!({"role": "worker", "kubernetes.io/hostname": name});
    if name == "n4" {
        metadata["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
    }
    metadata["annotations"] = json!({"machine.openshift.io/machine": format!("default/m{name}"), "other": "text"});
    let status = if name == "n1" { "Unknown" } else { "True" };
    json!({
        "metadata": metadata,
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": status, "reason": "Kubelet", "lastTransitionTime": LONG_AGO}],
            "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.36.0"},
        },
    })
}

fn template(name: &str) -> Value {
    json!({"apiVersion": "provider.test/v1", "kind": "RebootTemplate", "namespace": "default", "name": name})
}

fn check() -> Value {
    json!({
        "apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": metadata("check"),
        "spec": {
            "selector": {"matchExpressions": [{"key": "role", "operator": "In", "values": ["worker"]}]},
            "maxUnhealthy": "50%",
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
            "escalatingRemediations": [
                {"remediationTemplate": template("t"), "order": 1, "timeout": "60s"},
                {"remediationTemplate": template("u"), "order": 2, "timeout": "60s"},
            ],
        },
        "status": {
            "observedNodes": 4,
            "unhealthyNodes": [{"name": "n3", "remediations": [{
                "resource": {"apiVersion": "provider.test/v1", "kind": "Reboot", "namespace": "default", "name": "n3", "uid": "u"},
                "started": LONG_AGO,
            }]}],
            "conditions": [{"type": "Disabled", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": LONG_AGO}],
        },
    })
}

fn object(kind: &Kind) -> Vec<Value> {
    if kind.kind.ends_with("Template") {
        let spec = json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"how": "hard"}}});
        return ["t", "u"].map(|name| json!({"metadata": in_default(name), "spec": spec})).into();
    }
    // What is left of an earlier trouble, of a node and of a machine.
    let made = |name: &str, owner: &str| {
        let mut metadata = in_default(name);
        metadata["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": owner, "controller": false}]);
        metadata["annotations"] =
            json!({"remediation.medik8s.io/node-name": name, "resus.dev/machine-health-check": "uid-by-template"});
        json!({"metadata": metadata, "spec": {}, "status": {"conditions": [{"type": "Processing", "status": "True"}]}})
    };
    vec![made("n3", "uid-check"), made("mn3", "uid-mn3")]
}

fn lease(name: &str, holder: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["namespace"] = json!("medik8s-leases");
    json!({"metadata": metadata, "spec": {
        "holderIdentity": holder, "leaseDurationSeconds": 60, "leaseTransitions": 1,
        "acquireTime": "2027-01-15T07:00:00.000000Z", "renewTime": "2027-01-15T08:00:00.000000Z",
    }})
}

fn pod(name: &str, node: &str) -> Value {
    let mut metadata = metadata(&format!("{name}-{node}"));
    metadata["namespace"] = json!("kube-system");
    metadata["labels"] = json!({"app": name, "component": "etcd"});
    metadata["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    metadata["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": format!("uid-{node}"), "controller": true}]);
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": ready}})
}

fn machine_check(name: &str, dialect: Dialect) -> Value {
    let mut metadata = in_default(name);
    metadata["annotations"] = json!({"resus.dev/take-over": "true"});
    let reference = json!({"apiVersion": "provider.test/v1", "kind": "RebootTemplate", "name": "t"});
    let is_template = name == "by-template";
    let selector = json!({"matchLabels": {"repaired-by": name}});
    let spec = match dialect {
        Dialect::V1beta2 => json!({
            "clusterName": "blue", "selector": selector,
            "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 300}]},
            "remediation": if is_template { json!({"templateRef": reference}) } else { json!({}) },
        }),
        Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => {
            let conditions = json!([{"type": "Ready", "status": "Unknown", "timeout": "300s"}]);
            let mut spec = json!({"selector": selector, "maxUnhealthy": "100%", "unhealthyConditions": conditions});
            if is_template {
                spec["remediationTemplate"] = reference;
            }
            spec
        }
    };
    json!({"apiVersion": dialect.api_version(), "kind": "MachineHealthCheck", "metadata": metadata, "spec": spec, "status": {}})
}

fn machine(node: &str, dialect: Dialect) -> Value {
    let mut metadata = in_default(&format!("m{node}"));
    let checks = if matches!(node, "n1" | "n2") { "by-owner" } else { "by-template" };
    metadata["labels"] = json!({"cluster.x-k8s.io/cluster-name": "blue", "repaired-by": checks});
    metadata["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true}]);
    let waiting = json!({
        "type": "ExternallyRemediated", "status": "False", "reason": "WaitingForRemediation",
        "message": "Waiting for Reboot (provider.test/v1)", "lastTransitionTime": LONG_AGO,
    });
    metadata["managedFields"] =
        json!([{"manager": "resus", "operation": "Update", "fieldsV1": {"f:status": {"f:conditions": {}}}}]);
    json!({
        "apiVersion": dialect.api_version(), "kind": "Machine", "metadata": metadata,
        "spec": {"clusterName": "blue", "infrastructureRef": {"apiVersion": "infra.test/v1", "kind": "Host", "name": format!("m{node}")}},
        "status": {"nodeRef": {"name": node}, "phase": "Running", "lastUpdated": LONG_AGO, "conditions": [waiting]},
    })
}

fn cluster() -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "r", "lastTransitionTime": LONG_AGO});
    let conditions = json!([condition("ControlPlaneInitialized"), condition("InfrastructureReady")]);
    json!({"metadata": in_default("blue"), "spec": {"paused": false}, "status": {"conditions": conditions}})
}

pub fn answer(effect: &Effect, request: &Request<Vec<u8>>) -> Value {
    match effect {
        Effect::Look { node: name, .. } => node(name),
        Effect::Identify { .. } => json!({"metadata": {"name": "kube-system", "uid": "uid-blue"}}),
        Effect::LookMachine { place, dialect } => machine(place.name.strip_prefix('m').unwrap_or("n1"), *dialect),
        Effect::FindMachine { node, .. } => machine(node, Dialect::OpenShift),
        Effect::Discover { api_version } => {
            let resource = |kind: &str, namespaced: bool| json!({"name": format!("{}s", kind.to_lowercase()), "kind": kind, "namespaced": namespaced});
            let namespaced = ["Reboot", "RebootTemplate", "Machine", "MachineHealthCheck"].map(|kind| resource(kind, true));
            let mut resources = namespaced.to_vec();
            // One API has Clusters, the other judges by the nodes of this cluster.
            if &**api_version == "cluster.x-k8s.io/v1beta2" {
                resources.push(resource("Cluster", true));
            }
            json!({"resources": resources})
        }
        Effect::ServerVersion => json!({"gitVersion": "v1.36.0"}),
        Effect::Status { .. } => check(),
        Effect::MachineCheckStatus { check, .. } => machine_check(&check.place.name, check.dialect),
        Effect::Sign(signing) => machine(signing.machine.place.name.strip_prefix('m').unwrap_or("n1"), signing.machine.dialect),
        Effect::PowerCycle { machine: target, .. } => {
            machine(target.place.name.strip_prefix('m').unwrap_or("n1"), target.dialect)
        }
        _ => {
            let mut stored: Value = serde_json::from_slice(request.body()).unwrap_or_else(|_| json!({"metadata": {}}));
            if stored["metadata"].is_object() {
                stored["metadata"]["resourceVersion"] = json!("9");
                stored["metadata"]["uid"] = json!("uid-new");
            }
            stored
        }
    }
}
