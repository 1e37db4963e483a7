//! What a check asks for, in the words of no version, and in those of each.

use resus_core::mhc::facts::{Dialect, Flavour};
use resus_sim::machinery::METAL3;
use serde_json::{Value, json};

use crate::story::{BLUE, POOL};

#[derive(Clone, Debug)]
pub struct Check {
    pub cluster: &'static str,
    pub pool: &'static str,
    /// In seconds, of nodes that are not ready or silent.
    pub timeout: i64,
    /// In seconds, of machines without a node; none: it does not say.
    pub startup: Option<i64>,
    pub limit: Option<Value>,
    pub range: Option<&'static str>,
    pub has_template: bool,
    /// Type, status and seconds.
    pub on_machines: &'static [(&'static str, &'static str, i64)],
    pub annotations: Value,
}

impl Default for Check {
    fn default() -> Check {
        Check {
            cluster: BLUE,
            pool: "a",
            timeout: 300,
            startup: None,
            limit: None,
            range: None,
            has_template: false,
            on_machines: &[],
            annotations: json!({}),
        }
    }
}

impl Check {
    pub fn at_most(limit: impl Into<Value>) -> Check {
        Check { limit: Some(limit.into()), ..Check::default() }
    }

    pub fn in_range(range: &'static str) -> Check {
        Check { range: Some(range), ..Check::default() }
    }

    pub fn with_template() -> Check {
        Check { has_template: true, ..Check::default() }
    }

    pub fn annotated(annotations: Value) -> Check {
        Check { annotations, ..Check::default() }
    }

    pub fn spec(&self, dialect: Dialect) -> Value {
        let template = json!({"apiVersion": METAL3, "kind": "Metal3RemediationTemplate", "name": "reboot"});
        let selector = json!({"matchLabels": {POOL: self.pool}});
        let on_nodes = [("Ready", "False", self.timeout), ("Ready", "Unknown", self.timeout)];
        let rules = |rules: &[(&str, &str, i64)]| -> Value {
            let rule = |(kind, status, seconds): &(&str, &str, i64)| match dialect {
                Dialect::V1beta2 => json!({"type": kind, "status": status, "timeoutSeconds": seconds}),
                _ => json!({"type": kind, "status": status, "timeout": format!("{seconds}s")}),
            };
            rules.iter().map(rule).collect()
        };
        let mut spec = json!({"selector": selector});
        if dialect.flavour() == Flavour::ClusterApi {
            spec["clusterName"] = json!(self.cluster);
        }
        // Where each of them is, below the spec.
        let [nodes, machines, startup, limit, range, reference]: [&[&str]; 6] = match dialect {
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
        };
        let started = self.startup.map(|seconds| match dialect {
            Dialect::V1beta2 => json!(seconds),
            _ => json!(format!("{seconds}s")),
        });
        let fields = [
            (nodes, Some(rules(&on_nodes))),
            (machines, Some(rules(self.on_machines)).filter(|_| !self.on_machines.is_empty())),
            (startup, started),
            (limit, self.limit.clone()),
            (range, self.range.map(|range| json!(range))),
            (reference, self.has_template.then_some(template)),
        ];
        for (path, value) in fields {
            let Some(value) = value else { continue };
            *path.iter().fold(&mut spec, |at, element| &mut at[element]) = value;
        }
        spec
    }
}
