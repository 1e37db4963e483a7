//! A provider of remediations, as the demo's cluster has it: its kinds, and what it does about each object.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub const REMEDIATIONS: &str = "/apis/provider.test/v1/namespaces/provider/rebootremediations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NODE_NAME: &str = "remediation.medik8s.io/node-name";
/// Between an object and the power-cycle, as long as a management controller may take.
const ACTS_AFTER: Duration = Duration::from_secs(3);

/// Objects that it works on, by uid.
#[derive(Default)]
pub struct Provider {
    jobs: BTreeMap<String, Job>,
}

struct Job {
    name: String,
    node: String,
    step: Step,
}

enum Step {
    /// Acts then.
    Waits(Instant),
    /// Until the machine has booted.
    Watches,
    Done,
}

/// What it wants done.
pub enum Order {
    PowerCycle(String),
    /// The new status of this object.
    Report(String, Value),
}

impl Provider {
    /// `objects` are all that there are, `is_up` says of a node whether its machine runs.
    pub fn work(&mut self, objects: &[Value], now: Instant, is_up: impl Fn(&str) -> bool) -> Vec<Order> {
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.jobs.retain(|known, _| objects.iter().any(|object| uid(object) == *known));
        let mut orders = Vec::new();
        for object in objects.iter().filter(|object| object["metadata"]["deletionTimestamp"].is_null()) {
            let metadata = &object["metadata"];
            let job = self.jobs.entry(uid(object)).or_insert_with(|| {
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                let node = metadata["annotations"][NODE_NAME].as_str().map_or_else(|| name.clone(), str::to_owned);
                orders.push(Order::Report(name.clone(), status("True", "Unknown")));
                Job { name, node, step: Step::Waits(now + ACTS_AFTER) }
            });
            match job.step {
                Step::Waits(until) if now >= until => {
                    orders.push(Order::PowerCycle(job.node.clone()));
                    job.step = Step::Watches;
                }
                Step::Watches if is_up(&job.node) => {
                    orders.push(Order::Report(job.name.clone(), status("False", "True")));
                    job.step = Step::Done;
                }
                Step::Waits(_) | Step::Watches | Step::Done => {}
            }
        }
        orders
    }
}

fn status(processing: &str, succeeded: &str) -> Value {
    json!({"status": {"conditions": [
        {"type": "Processing", "status": processing},
        {"type": "Succeeded", "status": succeeded},
    ]}})
}

pub fn template_reference() -> Value {
    json!({"apiVersion": "provider.test/v1", "kind": "RebootRemediationTemplate", "namespace": "provider", "name": "reboot"})
}

/// What it brings into a cluster, in this order: where to POST what.
pub fn definitions() -> Vec<(&'static str, Value)> {
    let columns = json!([
        {"name": "Processing", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Processing\")].status"},
        {"name": "Succeeded", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Succeeded\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    vec![
        (DEFINITIONS, definition("RebootRemediationTemplate", &json!({}), &json!([]))),
        (DEFINITIONS, definition("RebootRemediation", &json!({"status": {}}), &columns)),
        ("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "provider"}})),
    ]
}

/// Once its kind is served.
pub fn template() -> (&'static str, Value) {
    let template = json!({
        "apiVersion": "provider.test/v1", "kind": "RebootRemediationTemplate",
        "metadata": {"name": "reboot", "namespace": "provider"},
        "spec": {"template": {"spec": {"method": "power-cycle"}}},
    });
    ("/apis/provider.test/v1/namespaces/provider/rebootremediationtemplates", template)
}

pub fn definition_of_ours(definition: Value) -> (&'static str, Value) {
    (DEFINITIONS, definition)
}

fn definition(kind: &str, subresources: &Value, columns: &Value) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.provider.test")},
        "spec": {
            "group": "provider.test", "scope": "Namespaced",
            "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": subresources, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_its_machine_cycled_once() {
        let object = json!({"metadata": {"name": "worker-1-x", "uid": "u", "annotations": {NODE_NAME: "worker-1"}}});
        let (mut provider, began) = (Provider::default(), Instant::now());
        let mut orders = |after: u64, up: bool| {
            let orders = provider.work(std::slice::from_ref(&object), began + Duration::from_secs(after), |_| up);
            let word = |order: &Order| match order {
                Order::PowerCycle(node) => format!("cycle {node}"),
                Order::Report(name, status) => format!("{name} {}", status["status"]["conditions"][1]["status"]),
            };
            orders.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(orders(0, false), "worker-1-x \"Unknown\"");
        assert_eq!(orders(1, false), "");
        assert_eq!(orders(3, false), "cycle worker-1");
        assert_eq!(orders(4, false), "");
        assert_eq!(orders(12, true), "worker-1-x \"True\"");
        assert_eq!(orders(13, true), "");
    }
}
