//! A MachineHealthCheck, in whichever dialect.

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::site::NAMESPACE;

/// Of all workers: unhealthy when Ready is not True for five seconds.
#[derive(Clone)]
pub struct Check {
    name: String,
    cluster: Option<String>,
    selector: Value,
    at_most: Option<Value>,
    range: Option<String>,
    template: Option<(String, String, String)>,
    startup: Option<u32>,
    machine_rule: Option<String>,
    annotations: Value,
}

pub fn check(name: &str) -> Check {
    Check {
        name: name.to_owned(),
        cluster: None,
        selector: json!({"matchLabels": {"pool": "workers"}}),
        at_most: None,
        range: None,
        template: None,
        startup: None,
        machine_rule: None,
        annotations: json!({}),
    }
}

impl Check {
    /// Other than the only one.
    pub fn cluster(mut self, cluster: &str) -> Check {
        self.cluster = Some(cluster.to_owned());
        self
    }

    pub fn selector(mut self, selector: Value) -> Check {
        self.selector = selector;
        self
    }

    pub fn at_most(mut self, at_most: impl Into<Value>) -> Check {
        self.at_most = Some(at_most.into());
        self
    }

    pub fn range(mut self, range: &str) -> Check {
        self.range = Some(range.to_owned());
        self
    }

    /// The template `reboot` of the tests' provider.
    pub fn by_template(self) -> Check {
        self.by_template_of("provider.test/v1", "RebootRemediationTemplate", "reboot")
    }

    pub fn by_template_of(mut self, api_version: &str, kind: &str, name: &str) -> Check {
        self.template = Some((api_version.to_owned(), kind.to_owned(), name.to_owned()));
        self
    }

    /// How long a machine may be without a node; zero for ever.
    pub fn startup(mut self, seconds: u32) -> Check {
        self.startup = Some(seconds);
        self
    }

    /// This condition of the machine must not be False for five seconds.
    pub fn machine_rule(mut self, kind: &str) -> Check {
        self.machine_rule = Some(kind.to_owned());
        self
    }

    pub fn annotated(mut self, key: &str, value: &str) -> Check {
        self.annotations[key] = json!(value);
        self
    }

    pub fn render(&self, dialect: Dialect) -> Value {
        let mut spec = match dialect {
            Dialect::V1beta2 => self.nested(),
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => self.flat(),
        };
        spec["selector"] = self.selector.clone();
        if let Some(only) = dialect.of_cluster() {
            spec["clusterName"] = json!(self.cluster.as_deref().unwrap_or(only));
        }
        json!({"apiVersion": dialect.api_version(), "kind": "MachineHealthCheck",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": self.annotations}, "spec": spec})
    }

    fn nested(&self) -> Value {
        let rule = |kind: &str, status: &str| json!({"type": kind, "status": status, "timeoutSeconds": 5});
        let mut spec = json!({"checks": {"unhealthyNodeConditions": [rule("Ready", "False"), rule("Ready", "Unknown")]}});
        if let Some(kind) = &self.machine_rule {
            spec["checks"]["unhealthyMachineConditions"] = json!([rule(kind, "False")]);
        }
        if let Some(seconds) = self.startup {
            spec["checks"]["nodeStartupTimeoutSeconds"] = json!(seconds);
        }
        if let Some(at_most) = &self.at_most {
            spec["remediation"]["triggerIf"]["unhealthyLessThanOrEqualTo"] = at_most.clone();
        }
        if let Some(range) = &self.range {
            spec["remediation"]["triggerIf"]["unhealthyInRange"] = json!(range);
        }
        if let Some((api_version, kind, name)) = &self.template {
            spec["remediation"]["templateRef"] = json!({"apiVersion": api_version, "kind": kind, "name": name});
        }
        spec
    }

    fn flat(&self) -> Value {
        let rule = |kind: &str, status: &str| json!({"type": kind, "status": status, "timeout": "5s"});
        let mut spec = json!({"unhealthyConditions": [rule("Ready", "False"), rule("Ready", "Unknown")]});
        if let Some(kind) = &self.machine_rule {
            spec["unhealthyMachineConditions"] = json!([rule(kind, "False")]);
        }
        if let Some(seconds) = self.startup {
            spec["nodeStartupTimeout"] = json!(format!("{seconds}s"));
        }
        if let Some(at_most) = &self.at_most {
            spec["maxUnhealthy"] = at_most.clone();
        }
        if let Some(range) = &self.range {
            spec["unhealthyRange"] = json!(range);
        }
        if let Some((api_version, kind, name)) = &self.template {
            spec["remediationTemplate"] = json!({"apiVersion": api_version, "kind": kind, "name": name, "namespace": NAMESPACE});
        }
        spec
    }
}
