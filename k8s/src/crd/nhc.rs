//! NodeHealthCheck, `remediation.medik8s.io/v1alpha1`: which nodes, what is unhealthy, how to repair.

use std::collections::BTreeMap;
use std::ops::Not;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::rules;
use crate::quantity::IntOrPercent;

/// Which nodes to check, what makes one unhealthy, and how it is remediated.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(
    group = "remediation.medik8s.io",
    version = "v1alpha1",
    kind = "NodeHealthCheck",
    plural = "nodehealthchecks",
    shortname = "nhc",
    status = "NodeHealthCheckStatus",
    doc = "Checks the health of nodes by their conditions, and has unhealthy ones remediated.",
    validation = rules::stays("selector"),
    validation = rules::stays("remediationTemplate"),
    validation = rules::stays("escalatingRemediations"),
    printcolumn(name = "Observed", type_ = "integer", json_path = ".status.observedNodes"),
    printcolumn(name = "Healthy", type_ = "integer", json_path = ".status.healthyNodes"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Remediating", type_ = "integer", json_path = ".status.remediatingNodes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = "1")
)]
#[x_kube(
    validation = rules::one_threshold(),
    validation = rules::some_template(),
    validation = rules::one_way_of_templates(),
    validation = rules::no_machine_deletion(),
    validation = rules::no_machine_deletion_step()
)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealthCheckSpec {
    /// Selects the nodes to observe. Without it, all nodes are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::selector")]
    pub selector: Option<LabelSelector>,

    /// A node that has any of these conditions for longer than its duration is unhealthy. Without it: Ready False or
    /// Unknown for 300s.
    #[serde(default = "default_conditions")]
    #[schemars(schema_with = "rules::conditions")]
    pub unhealthy_conditions: Vec<UnhealthyCondition>,

    /// Nodes are remediated only while at least this many of the selected ones are healthy: a number or a
    /// percentage, rounded up. Not together with maxUnhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::min_healthy")]
    pub min_healthy: Option<IntOrPercent>,

    /// Nodes are remediated only while at most this many of the selected ones are not healthy: a number or a
    /// percentage, rounded down. Not together with minHealthy. Without both, 49%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::max_unhealthy")]
    pub max_unhealthy: Option<IntOrPercent>,

    /// The template from which an object is made for each node that is to be remediated. The object has the
    /// template's kind without the suffix Template, its namespace, and the node's name. Not together with
    /// escalatingRemediations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::template")]
    pub remediation_template: Option<ObjectReference>,

    /// Several templates, tried one after the other in ascending order until the node is healthy. Not together with
    /// remediationTemplate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "rules::steps")]
    pub escalating_remediations: Vec<EscalatingRemediation>,

    /// While this list has entries no remediation is started. Each says who asks for it, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "rules::pause_requests")]
    pub pause_requests: Vec<String>,

    /// For how long a node must be healthy again before its remediations are removed, as a Go duration. 0s or absent:
    /// at once. Negative: not before somebody annotates the node with remediation.medik8s.io/manually-confirmed-healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::signed_duration")]
    pub healthy_delay: Option<String>,

    /// For how long no remediation is started after too many nodes were unhealthy at once, as a Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::duration")]
    pub storm_cooldown_duration: Option<String>,

    /// The label of a node that says where it is, such as topology.kubernetes.io/zone: the threshold then holds for the
    /// nodes of each of its values, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::topology_key")]
    pub topology_key: Option<String>,

    /// How often one node may be remediated. Absent: as often as it is unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,

    /// A node that has not reported Ready for so long after it was created is unhealthy, as a Go duration. Absent:
    /// such a node is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::positive_duration")]
    pub node_startup_timeout: Option<String>,

    /// Act (the default), or DryRun: decide and report, but remediate nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
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
    #[schemars(schema_with = "rules::duration")]
    pub duration: String,
}

pub fn default_conditions() -> Vec<UnhealthyCondition> {
    let ready = |status: &str| UnhealthyCondition { kind: "Ready".into(), status: status.into(), duration: "300s".into() };
    vec![ready("False"), ready("Unknown")]
}

/// One template of several.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EscalatingRemediation {
    /// The template from which an object is made.
    #[schemars(schema_with = "rules::template")]
    pub remediation_template: ObjectReference,
    /// Its place: lower numbers are tried first.
    pub order: i64,
    /// When the next one is tried, as a Go duration of at least 60s.
    #[schemars(schema_with = "rules::step_timeout")]
    pub timeout: String,
}

/// As often within its window as anybody can want; the status keeps a date for each.
pub const REPEATS_MAX: u32 = 100;

/// How often one node may be remediated.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::backoff_below_its_max())]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeat {
    /// So many times at most.
    #[schemars(with = "i32", range(min = 1, max = REPEATS_MAX))] // Kubernetes knows no unsigned formats, and warns.
    pub max: u32,
    /// Within so long, as a Go duration.
    #[schemars(schema_with = "rules::positive_duration")]
    pub within: String,
    /// How long to wait between the first and the second time, as a Go duration; it doubles with each further one.
    /// Absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::duration")]
    pub backoff: Option<String>,
    /// How long to wait at most. Absent: as long as within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "rules::duration")]
    pub max_backoff: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Mode {
    Act,
    DryRun,
}

/// What the check sees and does.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeHealthCheckStatus {
    /// How many nodes are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))] // Kubernetes knows no unsigned formats, and warns.
    pub observed_nodes: Option<u32>,
    /// How many of them are healthy, with no remediation left on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))] // Kubernetes knows no unsigned formats, and warns.
    pub healthy_nodes: Option<u32>,
    /// How many nodes are being remediated: of a list, a printer column shows the first entry only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))] // Kubernetes knows no unsigned formats, and warns.
    pub remediating_nodes: Option<u32>,
    /// Nodes that are unhealthy, or still have remediations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "by_name::<UnhealthyNode>")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// How often each node was remediated lately. Only while repeat is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "by_name::<RecentRemediation>")]
    pub recent_remediations: Vec<RecentRemediation>,
    /// When the remediation of a node began. Deprecated: read unhealthyNodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_flight_remediations: BTreeMap<String, Time>,
    /// Disabled: can the check do anything at all? RemediationAllowed: may it start remediations now?
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "by_type")]
    pub conditions: Vec<Condition>,
    /// Disabled, Paused, Remediating or Enabled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why it is in this phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When the status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    pub name: String,
    /// What has been created to remediate it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remediations: Vec<Remediation>,
    /// Since when its conditions are healthy again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions_healthy_timestamp: Option<Time>,
    /// Its conditions are healthy again, but healthyDelay keeps its remediations.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub healthy_delayed: bool,
    /// Why nothing is done about this node, where that is not a matter of the whole check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// The object.
    #[schemars(schema_with = "rules::reference")]
    pub resource: ObjectReference,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When it was given up, and the next template's turn came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<Time>,
    /// The template it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct RecentRemediation {
    /// The node.
    pub name: String,
    /// When its remediations began, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<Time>,
}

fn by_name<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    rules::keyed_list::<T>(generator, "name")
}

fn by_type(generator: &mut SchemaGenerator) -> Schema {
    rules::keyed_list::<Condition>(generator, "type")
}
