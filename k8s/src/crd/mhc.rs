//! MachineHealthCheck, `cluster.x-k8s.io`: which machines, what is unhealthy, who repairs.
//!
//! For clusters without Cluster API. Both versions have the fields of either, and both names of the template: the one
//! that was proposed and the one that shipped.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{LegacyCondition, NewConditions};
use super::{column, machine_rules};
use crate::quantity::IntOrPercent;

/// Which machines to check, what makes one unhealthy, and who repairs it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta1",
    kind = "MachineHealthCheck",
    plural = "machinehealthchecks",
    shortname = "mhc",
    shortname = "mhcs",
    category = "cluster-api",
    namespaced,
    status = "MachineHealthCheckStatus",
    doc = "Checks the health of machines by their nodes and by themselves, and has unhealthy ones remediated.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "ExpectedMachines", type_ = "integer", json_path = ".status.expectedMachines"),
    printcolumn(name = "MaxUnhealthy", type_ = "string", json_path = ".spec.maxUnhealthy"),
    printcolumn(name = "CurrentHealthy", type_ = "integer", json_path = ".status.currentHealthy"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = machine_rules::some_selector(),
    validation = machine_rules::selects_in_its_cluster(),
    validation = machine_rules::cluster_stays(),
    validation = machine_rules::one_template()
)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckSpec {
    /// The Cluster that the machines belong to, in the namespace of the check. Without it, their nodes are in this
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::cluster_name")]
    pub cluster_name: Option<String>,

    /// Selects the machines to check, in the namespace of the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::selector")]
    pub selector: Option<LabelSelector>,

    /// A machine whose node has any of these conditions for longer than its timeout is unhealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "machine_rules::conditions::<UnhealthyCondition>")]
    pub unhealthy_conditions: Vec<UnhealthyCondition>,

    /// A machine that has any of these conditions for longer than its timeout is unhealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "machine_rules::conditions::<UnhealthyMachineCondition>")]
    pub unhealthy_machine_conditions: Vec<UnhealthyMachineCondition>,

    /// A machine that has no node for so long is unhealthy, as a Go duration of at least 30s; 0 switches this off.
    /// Without it, 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::startup_timeout")]
    pub node_startup_timeout: Option<String>,

    /// Machines are remediated only while at most this many of the selected ones are not healthy: a number or a
    /// percentage, rounded down. Without it, 100%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::max_unhealthy")]
    pub max_unhealthy: Option<IntOrPercent>,

    /// Machines are remediated only while the number of those that are not healthy is in this range, as in [1-3], both
    /// included. It takes precedence over maxUnhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::unhealthy_range")]
    pub unhealthy_range: Option<String>,

    /// The template, in the namespace of the check, from which an object is made for each machine that is to be
    /// remediated. The object has the template's kind without the suffix Template, and the machine's name. Without it,
    /// the machine's owner is asked to remediate it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::template")]
    pub remediation_template: Option<ObjectReference>,

    /// Another name of remediationTemplate. Not together with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "machine_rules::external_template")]
    pub external_remediation_template: Option<ObjectReference>,
}

/// A condition of a node, and how long it must last to mean unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct UnhealthyCondition {
    /// Type of the node's condition, such as Ready.
    #[schemars(length(min = 1))]
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status: True, False or Unknown.
    #[schemars(length(min = 1))]
    pub status: String,
    /// How long it must last, as a Go duration such as 300s, 5m or 1.5h.
    #[schemars(schema_with = "machine_rules::timeout")]
    pub timeout: String,
}

/// A condition of a machine, and how long it must last to mean unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct UnhealthyMachineCondition {
    /// Type of the machine's condition, such as NodeHealthy; not one that checks write, nor one that sums up others.
    #[schemars(schema_with = "machine_rules::machine_condition_type")]
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status: True, False or Unknown.
    #[schemars(schema_with = "machine_rules::condition_status")]
    pub status: String,
    /// How long it must last, as a Go duration such as 300s, 5m or 1.5h.
    #[schemars(schema_with = "machine_rules::timeout")]
    pub timeout: String,
}

/// What the check sees and does.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckStatus {
    /// How many machines are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))] // Kubernetes knows no unsigned formats, and warns.
    pub expected_machines: Option<u32>,
    /// How many of them are healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub current_healthy: Option<u32>,
    /// How many more may become unhealthy before no more are remediated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub remediations_allowed: Option<u32>,
    /// The generation of the check that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The machines that are selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "machine_rules::targets")]
    pub targets: Vec<String>,
    /// RemediationAllowed: may machines be remediated now? Others tell of trouble.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "machine_rules::by_type::<LegacyCondition>")]
    pub conditions: Vec<LegacyCondition>,
    /// The same in the style that Kubernetes uses today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<NewConditions>,
}

pub fn v1alpha3_columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("MaxUnhealthy", "string", ".spec.maxUnhealthy"),
        column("ExpectedMachines", "integer", ".status.expectedMachines"),
        column("CurrentHealthy", "integer", ".status.currentHealthy"),
    ]
}
