//! What may be written in a MachineHealthCheck, and what does the API server answer to anything else?
//!
//! What the reference's webhook refuses is refused here, in the language of [`super::rules`].

use kube::core::{Reason, Rule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::rules::{
    self, CONDITIONS_MAX, DURATION, DURATION_MAX, LABEL_KEY, LABEL_KEY_MAX, NAME_MAX, SELF, rule, template_reference,
};
use crate::names::{NO_REMEDIATION_TEMPLATES, NOT_FOR_RULES};

/// As many as the reference allows.
const TARGETS_MAX: u32 = 10_000;
/// Of a Cluster, which is also the value of a label.
const CLUSTER_MAX: u32 = 63;
const CLUSTER: &str = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$";
/// Numbers of more digits than any cluster has machines. In a text of CEL a backslash is written twice.
const RANGE: &str = r"^\\[[0-9]{1,9}-[0-9]{1,9}\\]$";
const RANGE_MAX: u32 = 32;

/// Whether it is absent or empty: all machines of a namespace are rarely meant, and the first of two checks would take
/// those of the second.
pub fn some_selector() -> Rule {
    Rule::new("has(self.selector) && ((has(self.selector.matchLabels) && self.selector.matchLabels.size() > 0) || (has(self.selector.matchExpressions) && self.selector.matchExpressions.size() > 0))")
        .message("selector must not be empty: write matchLabels with labels of the machines to be checked")
        .reason(Reason::FieldValueRequired)
        .field_path(".selector")
}

pub fn selects_in_its_cluster() -> Rule {
    let labels = "self.selector.matchLabels";
    let label = "'cluster.x-k8s.io/cluster-name'";
    Rule::new(format!("!has(self.clusterName) || !has(self.selector) || !has({labels}) || !({label} in {labels}) || {labels}[{label}] == self.clusterName"))
        .message("cannot specify a cluster selector other than the one specified by clusterName: write the same name in matchLabels, or leave cluster.x-k8s.io/cluster-name out there")
        .field_path(".selector")
}

pub fn cluster_stays() -> Rule {
    Rule::new("has(self.clusterName) == has(oldSelf.clusterName) && (!has(self.clusterName) || self.clusterName == oldSelf.clusterName)")
        .message("field is immutable: clusterName stays as it is: delete the check, and create one for the other Cluster")
        .field_path(".clusterName")
}

pub fn one_template() -> Rule {
    Rule::new("!(has(self.remediationTemplate) && has(self.externalRemediationTemplate))")
        .message("remediationTemplate and externalRemediationTemplate are two names of the same: remove one of them")
}

pub fn cluster_name(_: &mut SchemaGenerator) -> Schema {
    let shaped = format!("self.matches('{CLUSTER}')");
    let said = "clusterName is no name of a Cluster: write it as `kubectl get clusters` shows it, or leave it out for nodes of this cluster";
    json_schema!({"type": "string", "maxLength": CLUSTER_MAX, "x-kubernetes-validations": [rule(shaped, said)]})
}

pub fn selector(_: &mut SchemaGenerator) -> Schema {
    rules::selector_of("machine")
}

/// In any order, and the same one twice: whichever is met first counts.
pub fn conditions<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<T>();
    json_schema!({"type": "array", "items": items, "maxItems": CONDITIONS_MAX, "x-kubernetes-list-type": "atomic"})
}

pub fn machine_condition_type(_: &mut SchemaGenerator) -> Schema {
    let texts: Vec<String> = NOT_FOR_RULES.iter().map(|kind| format!("'{kind}'")).collect();
    let named = NOT_FOR_RULES.join(", ");
    json_schema!({
        "type": "string",
        "maxLength": LABEL_KEY_MAX,
        "x-kubernetes-validations": [
            rule(format!("self.matches('{LABEL_KEY}')"), "is no type of a condition: write one such as NodeHealthy"),
            rule(format!("!(self in [{}])", texts.join(", ")), format!("type must not be one of: {named}: write what they sum up, such as NodeHealthy")),
        ],
    })
}

pub fn condition_status(_: &mut SchemaGenerator) -> Schema {
    let said = "status must be True, False or Unknown: write one of them in quotes";
    json_schema!({
        "type": "string",
        "maxLength": NAME_MAX,
        "x-kubernetes-validations": [rule("self in ['True', 'False', 'Unknown']", said)],
    })
}

pub fn timeout(_: &mut SchemaGenerator) -> Schema {
    duration_or_zero("300s, 5m or 1h30m", Vec::new())
}

/// A machine takes longer than this to come up, wherever it is made.
pub fn startup_timeout(_: &mut SchemaGenerator) -> Schema {
    let long_enough = format!("!self.matches('{DURATION}') || {SELF} == duration('0s') || {SELF} >= duration('30s')");
    let said = "nodeStartupTimeout must be at least 30s, or 0: write 30s or longer, or 0 to wait for ever";
    duration_or_zero("10m or 1h30m, or 0 to wait for ever", vec![rule(long_enough, said)])
}

/// Go takes 0 without a unit.
fn duration_or_zero(examples: &str, mut more: Vec<Value>) -> Schema {
    let shaped = format!("self == '0' || (self.matches('{DURATION}') && {SELF} <= duration('2562047h'))");
    let mut rules = vec![rule(shaped, format!("is not a duration: write numbers with units, such as {examples}"))];
    rules.append(&mut more);
    json_schema!({"type": "string", "maxLength": DURATION_MAX, "x-kubernetes-validations": rules})
}

pub fn max_unhealthy(_: &mut SchemaGenerator) -> Schema {
    rules::count_or_percent("maxUnhealthy", "40%")
}

pub fn unhealthy_range(_: &mut SchemaGenerator) -> Schema {
    let write = "write two numbers in brackets, the smaller first, as in [1-3]";
    let ordered = format!(
        "!self.matches('{RANGE}') || int(self.split('-')[0].replace('[', '')) <= int(self.split('-')[1].replace(']', ''))"
    );
    json_schema!({
        "type": "string",
        "maxLength": RANGE_MAX,
        "x-kubernetes-validations": [
            rule(format!("self.matches('{RANGE}')"), format!("unhealthyRange is no range: {write}")),
            rule(ordered, format!("unhealthyRange begins above its end, so that nothing would ever be remediated: {write}")),
        ],
    })
}

pub fn template(_: &mut SchemaGenerator) -> Schema {
    metal3("remediationTemplate")
}

pub fn external_template(_: &mut SchemaGenerator) -> Schema {
    metal3("externalRemediationTemplate")
}

fn metal3(field: &str) -> Schema {
    let examples = ("Metal3RemediationTemplate", "infrastructure.cluster.x-k8s.io/v1beta1");
    let mut schema = template_reference(field, examples, "", "Not used: the template is in the namespace of the machine.");
    let suffixes = NO_REMEDIATION_TEMPLATES.join("|");
    let said = format!(
        "{field}.kind is one of which machines themselves are made: write the kind of a remediation's template, as in Metal3RemediationTemplate"
    );
    let no_part = rule(format!("!has(self.kind) || !self.kind.matches('({suffixes})$')"), said);
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.push(no_part);
    }
    schema
}

pub fn targets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "maxLength": NAME_MAX}, "maxItems": TARGETS_MAX})
}

pub fn by_type<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    rules::keyed_list::<T>(generator, "type")
}

pub fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[cfg(test)]
mod tests {
    use resus_core::mhc::facts::{CLUSTER_LABEL, Sign};
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_are_written_twice_are_the_same() {
        assert!(json!(selects_in_its_cluster()).to_string().contains(CLUSTER_LABEL));
        for sign in Sign::ALL {
            assert!(NOT_FOR_RULES.contains(&sign.name()), "{sign:?}");
        }
    }
}
