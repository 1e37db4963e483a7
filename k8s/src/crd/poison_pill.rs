//! PoisonPillRemediation and its template, `poison-pill.medik8s.io/v1alpha1`: have a node reset itself, and release
//! its workloads once that is certain.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::rules;

/// How to remediate the node.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "poison-pill.medik8s.io",
    version = "v1alpha1",
    kind = "PoisonPillRemediation",
    plural = "poisonpillremediations",
    shortname = "ppr",
    namespaced,
    status = "PoisonPillRemediationStatus",
    doc = "While it exists, the node of the same name, or the one that its annotation remediation.medik8s.io/node-name names, is to be fenced.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Rebooted", type_ = "string", json_path = ".status.timeAssumedRebooted"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PoisonPillRemediationSpec {
    /// How the workloads of a fenced node are released. Absent: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation_strategy: Option<RemediationStrategy>,
    /// Release workloads only where it is certain that the node no longer runs them, not after a time in which a node
    /// without a usable watchdog should have restarted. Absent: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_assured: Option<bool>,
}

/// Automatic: OutOfServiceTaint from Kubernetes 1.28 on, NodeDeletion before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RemediationStrategy {
    Automatic,
    NodeDeletion,
    ResourceDeletion,
    OutOfServiceTaint,
}

/// How far the remediation is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoisonPillRemediationStatus {
    /// Processing: is it being worked on? Succeeded: are the workloads released?
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "by_type")]
    pub conditions: Vec<Condition>,
    /// The step that it is in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// From when on the node counts as rebooted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_assumed_rebooted: Option<Time>,
}

fn by_type(generator: &mut SchemaGenerator) -> Schema {
    rules::keyed_list::<Condition>(generator, "type")
}

/// What remediations look like that are made from this template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "poison-pill.medik8s.io",
    version = "v1alpha1",
    kind = "PoisonPillRemediationTemplate",
    plural = "poisonpillremediationtemplates",
    shortname = "pprt",
    namespaced,
    doc = "Health checks make a PoisonPillRemediation from it for each node that is to be remediated."
)]
pub struct PoisonPillRemediationTemplateSpec {
    pub template: Template,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Template {
    pub spec: PoisonPillRemediationSpec,
}
