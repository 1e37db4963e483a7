//! Machine, `cluster.x-k8s.io`: what stands behind a node, for clusters without Cluster API.
//!
//! Only what a health check reads and writes, and what tells people which machine it is. Whoever makes machines writes
//! the rest elsewhere, or brings a definition of its own.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{column, machine_rules};

/// Which machine it is.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Machine",
    plural = "machines",
    shortname = "ma",
    category = "cluster-api",
    namespaced,
    status = "MachineStatus",
    doc = "A machine that is, or shall become, a node.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "NodeName", type_ = "string", json_path = ".status.nodeRef.name"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The Cluster that it belongs to. Without it, its node is in this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::cluster_name")]
    pub cluster_name: Option<String>,
    /// By which its provider knows it, the same as in its node.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The version of Kubernetes that it is meant to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How it becomes a node; for its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::anything")]
    pub bootstrap: Option<Value>,
    /// What it is made of; for its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::anything")]
    pub infrastructure_ref: Option<Value>,
}

/// How it is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeRef>,
    /// The step of its life that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When its phase changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// HealthCheckSucceeded: is it healthy? OwnerRemediated: has its owner remediated it? Others are its provider's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "machine_rules::by_type::<LegacyCondition>")]
    pub conditions: Vec<LegacyCondition>,
    /// The same in the style that Kubernetes uses today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<NewConditions>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A condition as Cluster API had it before Kubernetes had a style.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LegacyCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// How bad it is, while the status is False: Error, Warning or Info.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When any of this changed last.
    pub last_transition_time: Time,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct NewConditions {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "machine_rules::by_type::<Condition>")]
    pub conditions: Vec<Condition>,
}

pub fn v1alpha3_columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("ProviderID", "string", ".spec.providerID"),
        column("Phase", "string", ".status.phase"),
        column("Version", "string", ".spec.version"),
        CustomResourceColumnDefinition { priority: Some(1), ..column("NodeName", "string", ".status.nodeRef.name") },
    ]
}
