//! The definitions of Machines and all that belongs to them, as small as they can be.
//!
//! Anything goes, but for the lists of conditions: which of them are merged by type decides who owns what in them, and
//! that is as in the real definitions.

use resus_core::mhc::facts::{Dialect, Flavour};
use serde_json::{Value, json};

/// For one version of the API: its own kinds, and those of Metal3.
pub fn definitions(dialect: Dialect) -> Vec<Value> {
    let clusters = (dialect.flavour() == Flavour::ClusterApi).then_some("Cluster");
    let own = ["Machine", "MachineHealthCheck", "MachineSet"].into_iter().chain(clusters);
    let metal3 = ["Metal3Remediation", "Metal3RemediationTemplate"].map(|kind| definition(METAL3, kind, &json!({})));
    own.map(|kind| definition(dialect.api_version(), kind, &status(dialect))).chain(metal3).collect()
}

pub const METAL3: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// What a MachineHealthCheck asks for, in the words of no version.
#[derive(Clone, Debug, Default)]
pub struct CheckSpec {
    pub selector: Value,
    pub cluster: Option<String>,
    /// Type, status and seconds.
    pub on_nodes: Vec<(&'static str, &'static str, i64)>,
    pub on_machines: Vec<(&'static str, &'static str, i64)>,
    /// In seconds, of machines without a node; none: it does not say.
    pub startup: Option<i64>,
    pub limit: Option<Value>,
    pub range: Option<String>,
    /// Of a template of Metal3.
    pub template: Option<String>,
}

impl CheckSpec {
    /// As it is written in this version.
    pub fn spec(&self, dialect: Dialect) -> Value {
        let rules = |rules: &[(&str, &str, i64)]| -> Value {
            let rule = |(kind, status, seconds): &(&str, &str, i64)| match dialect {
                Dialect::V1beta2 => json!({"type": kind, "status": status, "timeoutSeconds": seconds}),
                Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => {
                    json!({"type": kind, "status": status, "timeout": format!("{seconds}s")})
                }
            };
            rules.iter().map(rule).collect()
        };
        let started = self.startup.map(|seconds| match dialect {
            Dialect::V1beta2 => json!(seconds),
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => json!(format!("{seconds}s")),
        });
        let reference = |name: &String| json!({"apiVersion": METAL3, "kind": "Metal3RemediationTemplate", "name": name});
        let values = [
            Some(rules(&self.on_nodes)),
            Some(rules(&self.on_machines)).filter(|_| !self.on_machines.is_empty()),
            started,
            self.limit.clone(),
            self.range.as_ref().map(|range| json!(range)),
            self.template.as_ref().map(reference),
        ];
        let mut spec = json!({"selector": self.selector});
        if let Some(cluster) = self.cluster.as_ref().filter(|_| dialect.flavour() == Flavour::ClusterApi) {
            spec["clusterName"] = json!(cluster);
        }
        for (path, value) in fields(dialect).into_iter().zip(values) {
            let Some(value) = value else { continue };
            *path.iter().fold(&mut spec, |at, element| &mut at[element]) = value;
        }
        spec
    }
}

/// Where rules for nodes, rules for machines, start-up, limit, range and template are, below the spec of a check.
pub fn fields(dialect: Dialect) -> [&'static [&'static str]; 6] {
    match dialect {
        Dialect::V1beta2 => [
            &["checks", "unhealthyNodeConditions"],
            &["checks", "unhealthyMachineConditions"],
            &["checks", "nodeStartupTimeoutSeconds"],
            &["remediation", "triggerIf", "unhealthyLessThanOrEqualTo"],
            &["remediation", "triggerIf", "unhealthyInRange"],
            &["remediation", "templateRef"],
        ],
        Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => [
            &["unhealthyConditions"],
            &["unhealthyMachineConditions"],
            &["nodeStartupTimeout"],
            &["maxUnhealthy"],
            &["unhealthyRange"],
            &["remediationTemplate"],
        ],
    }
}

fn definition(api_version: &str, kind: &str, status: &Value) -> Value {
    let (group, version) = api_version.split_once('/').expect("it has a group");
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let schema = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": status}},
    });
    let version = json!({
        "name": version, "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
    });
    let names = json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    })
}

fn status(dialect: Dialect) -> Value {
    match dialect {
        Dialect::V1alpha3 => json!({"conditions": list(false)}),
        Dialect::V1beta1 => json!({"conditions": list(false), "v1beta2": within("conditions", &list(true))}),
        Dialect::V1beta2 => {
            let legacy = within("conditions", &list(false));
            json!({"conditions": list(true), "deprecated": within("v1beta1", &legacy)})
        }
        Dialect::OpenShift => json!({"conditions": list(true)}),
    }
}

fn within(name: &str, schema: &Value) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {name: schema}})
}

/// Not by type: then the list has one owner.
fn list(by_type: bool) -> Value {
    let condition = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "required": ["type"],
        "properties": {"type": {"type": "string"}},
    });
    let mut list = json!({"type": "array", "items": condition});
    if by_type {
        (list["x-kubernetes-list-type"], list["x-kubernetes-list-map-keys"]) = (json!("map"), json!(["type"]));
    }
    list
}
