//! NodeHealthCheck, `remediation.medik8s.io/v1alpha1`: which nodes, what is unhealthy, how to repair.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

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
    printcolumn(name = "Observed", type_ = "integer", json_path = ".status.observedNodes"),
    printcolumn(name = "Healthy", type_ = "integer", json_path = ".status.healthyNodes"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Remediating", type_ = "integer", json_path = ".status.remediatingNodes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = "1")
)]
#[x_kube(validation = Rule::new("!(has(self.minHealthy) && has(self.maxUnhealthy))").message("minHealthy and maxUnhealthy cannot be specified at the same time: remove one of them"))]
#[serde(rename_all = "camelCase")]
pub struct NodeHealthCheckSpec {
    /// Selects the nodes to observe. Without it, all nodes are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// A node that has any of these conditions for longer than its duration is unhealthy.
    #[serde(default = "default_conditions")]
    #[schemars(schema_with = "conditions_schema")]
    pub unhealthy_conditions: Vec<UnhealthyCondition>,

    /// Nodes are remediated only while at least this many of the selected ones are healthy: a number or a
    /// percentage, rounded up. Not together with maxUnhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent_schema")]
    pub min_healthy: Option<IntOrPercent>,

    /// Nodes are remediated only while at most this many of the selected ones are not healthy: a number or a
    /// percentage, rounded down. Not together with minHealthy. Without both, 49%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_percent_schema")]
    pub max_unhealthy: Option<IntOrPercent>,

    /// The template from which an object is made for each node that is to be remediated. The object has the
    /// template's kind without the suffix Template, its namespace, and the node's name.
    #[x_kube(
        validation = Rule::new("has(self.apiVersion) && self.apiVersion != '' && has(self.kind) && self.kind != '' && has(self.name) && self.name != ''").message("remediationTemplate needs apiVersion, kind and name of the template"),
        validation = Rule::new("!has(self.kind) || (self.kind.endsWith('Template') && self.kind != 'Template')").message("remediationTemplate.kind must be the kind of a template: its name ends with Template, as in SelfNodeRemediationTemplate")
    )]
    pub remediation_template: ObjectReference,

    /// While this list has entries no remediation is started. Each says who asks for it, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pause_requests: Vec<String>,
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
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub duration: String,
}

pub fn default_conditions() -> Vec<UnhealthyCondition> {
    let ready = |status: &str| UnhealthyCondition { kind: "Ready".into(), status: status.into(), duration: "300s".into() };
    vec![ready("False"), ready("Unknown")]
}

fn conditions_schema(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<UnhealthyCondition>();
    json_schema!({
        "type": "array",
        "description": "A node that has any of these conditions for longer than its duration is unhealthy. Without it: Ready False or Unknown for 300s.",
        "items": items,
        "minItems": 1,
        "default": default_conditions(),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type", "status"],
    })
}

/// The pattern bites on texts only, the minimum on numbers only.
fn int_or_percent_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$",
        "minimum": 0,
    })
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
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// When the remediation of a node began. Deprecated: read unhealthyNodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_flight_remediations: BTreeMap<String, Time>,
    /// Disabled: can the check do anything at all? RemediationAllowed: may it start remediations now?
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// The object.
    pub resource: ObjectReference,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// The template it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_name: Option<String>,
}
