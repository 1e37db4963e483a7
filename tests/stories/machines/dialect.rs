//! How is the same thing said in each of the four APIs?

use serde_json::{Value, json};

use super::site::{CLUSTER, NAMESPACE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V1alpha3,
    V1beta1,
    V1beta2,
    OpenShift,
}

impl Dialect {
    /// The folder of its definitions.
    pub fn folder(self) -> &'static str {
        match self {
            Dialect::V1alpha3 => "v1alpha3",
            Dialect::V1beta1 => "v1beta1",
            Dialect::V1beta2 => "v1beta2",
            Dialect::OpenShift => "openshift",
        }
    }

    pub fn group(self) -> &'static str {
        match self {
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => "cluster.x-k8s.io",
            Dialect::OpenShift => "machine.openshift.io",
        }
    }

    pub fn version(self) -> &'static str {
        match self {
            Dialect::V1alpha3 => "v1alpha3",
            Dialect::V1beta1 | Dialect::OpenShift => "v1beta1",
            Dialect::V1beta2 => "v1beta2",
        }
    }

    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    pub fn has_clusters(self) -> bool {
        self != Dialect::OpenShift
    }

    /// Where conditions are, those with a severity last.
    pub fn conditions(self) -> &'static [&'static str] {
        match self {
            Dialect::V1beta2 => &["/status/conditions", "/status/deprecated/v1beta1/conditions"],
            Dialect::V1beta1 => &["/status/v1beta2/conditions", "/status/conditions"],
            Dialect::V1alpha3 | Dialect::OpenShift => &["/status/conditions"],
        }
    }

    /// Where conditions are that have a severity.
    pub fn legacy(self) -> &'static str {
        self.conditions().last().expect("each has a list")
    }

    /// Those of these that it has: the new style first.
    pub fn each<T: Copy>(self, both: [T; 2]) -> Vec<T> {
        both[2 - self.conditions().len()..].to_vec()
    }

    /// A status with these conditions in all lists; each with type, status, reason and the time since when.
    pub fn status_with(self, conditions: &[Value]) -> Value {
        let mut status = json!({});
        for path in self.conditions() {
            let list = path.split('/').skip(2).fold(&mut status, |at, element| &mut at[element]);
            let is_new = *path != self.legacy();
            let in_style = |condition: &Value| {
                let mut condition = condition.clone();
                if is_new {
                    condition["message"] = json!("");
                }
                condition
            };
            *list = conditions.iter().map(in_style).collect();
        }
        status
    }

    pub fn machine(self, name: &str, cluster: &str) -> Value {
        let mut machine = json!({"apiVersion": self.api_version(), "kind": "Machine",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"pool": "workers"}}});
        if !self.has_clusters() {
            machine["spec"] = json!({});
            machine["metadata"]["ownerReferences"] = json!([{"apiVersion": self.api_version(), "kind": "MachineSet",
                "name": "workers", "uid": "3d4a9c7e-0000-4000-8000-000000000001", "controller": true}]);
            return machine;
        }
        let (group, kind) = ("infrastructure.cluster.x-k8s.io", "TestMachine");
        let infrastructure = match self {
            Dialect::V1beta2 => json!({"apiGroup": group, "kind": kind, "name": name}),
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => {
                json!({"apiVersion": format!("{group}/v1"), "kind": kind, "name": name, "namespace": NAMESPACE})
            }
        };
        machine["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = json!(cluster);
        machine["spec"] =
            json!({"clusterName": cluster, "bootstrap": {"dataSecretName": "bootstrap"}, "infrastructureRef": infrastructure});
        machine
    }

    pub fn node_ref(self, node: &str) -> Value {
        match self {
            Dialect::V1beta2 => json!({"name": node}),
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => {
                json!({"apiVersion": "v1", "kind": "Node", "name": node})
            }
        }
    }

    pub fn cluster(self, name: &str) -> Value {
        json!({"apiVersion": self.api_version(), "kind": "Cluster", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}})
    }

    /// Of a Cluster that is up since long ago.
    pub fn cluster_is_up(self) -> Value {
        let long_ago = "2026-01-01T00:00:00Z";
        let open = |kind: &str| json!({"type": kind, "status": "True", "reason": "Story", "lastTransitionTime": long_ago});
        let mut status = self.status_with(&[open("ControlPlaneInitialized"), open("InfrastructureReady")]);
        match self {
            Dialect::V1alpha3 => {
                status["controlPlaneInitialized"] = json!(true);
                status["infrastructureReady"] = json!(true);
            }
            Dialect::V1beta1 => status["infrastructureReady"] = json!(true),
            Dialect::V1beta2 => {
                status["initialization"] = json!({"infrastructureProvisioned": true, "controlPlaneInitialized": true});
            }
            Dialect::OpenShift => {}
        }
        status
    }

    pub fn of_cluster(self) -> Option<&'static str> {
        self.has_clusters().then_some(CLUSTER)
    }
}
