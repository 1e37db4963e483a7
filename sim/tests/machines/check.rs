//! What a check asks for, as far as stories tell checks apart.

use resus_core::mhc::facts::Dialect;
use resus_sim::machinery::CheckSpec;
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
        let check = CheckSpec {
            selector: json!({"matchLabels": {POOL: self.pool}}),
            cluster: Some(self.cluster.to_owned()),
            on_nodes: vec![("Ready", "False", self.timeout), ("Ready", "Unknown", self.timeout)],
            on_machines: self.on_machines.to_vec(),
            startup: self.startup,
            limit: self.limit.clone(),
            range: self.range.map(str::to_owned),
            template: self.has_template.then(|| "reboot".to_owned()),
        };
        check.spec(dialect)
    }
}
