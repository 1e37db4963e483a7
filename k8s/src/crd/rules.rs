//! What may be written in a health check, and what does the API server answer to anything else?
//!
//! Each rule ends in what to write instead. Where the reference's webhook has words for a mistake, ours begin with
//! them, since people search for them. The language is the part of CEL that both Kubernetes and our embedded server
//! evaluate alike: `type()` is not in it, and `duration()` does not know the unit `µs`.
//!
//! The limits on lengths are generous. They are there because the API server multiplies them into the worst cost of a
//! rule and refuses definitions that could become too dear.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{Message, Reason, Rule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::nhc::{EscalatingRemediation, UnhealthyCondition, default_conditions};

pub const CONDITIONS_MAX: u32 = 100;
const STEPS_MAX: u32 = 20;
const PAUSE_REQUESTS_MAX: u32 = 100;
const LABELS_MAX: u32 = 100;
const EXPRESSIONS_MAX: u32 = 20;
const VALUES_MAX: u32 = 1000;
/// Of durations: the longest one that Go prints has 26 characters.
pub const DURATION_MAX: u32 = 100;
/// As long as the names of objects, groups and label prefixes may be.
pub const NAME_MAX: u32 = 253;
/// A prefix, a slash, and the 63 characters of a label's name.
pub const LABEL_KEY_MAX: u32 = 317;

pub const DURATION: &str = "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$";
const SIGNED_DURATION: &str = "^-?([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$";
/// The embedded server's `duration` knows this unit under its ASCII name only.
pub const SELF: &str = "duration(self.replace('µs', 'us'))";
const COUNT_OR_PERCENT: &str = "^((100|[0-9]{1,2})%|[0-9]{1,18})$";
const NAME: &str = "^[-.a-z0-9]+$";
pub const LABEL_KEY: &str =
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// While any node has a remediation. Only the stored status counts, which an update of the spec cannot change.
const REMEDIATES: &str = "has(oldSelf.status) && has(oldSelf.status.unhealthyNodes) && oldSelf.status.unhealthyNodes.exists(node, has(node.remediations) && node.remediations.size() > 0)";

/// A remediation is found, timed out and removed by what the check says: that stays while one runs. At the root,
/// because rules in the spec do not see the status.
pub fn stays(field: &str) -> Rule {
    let (new, old) = (format!("self.spec.{field}"), format!("oldSelf.spec.{field}"));
    let unchanged = format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})");
    Rule::new(format!("({unchanged}) || !({REMEDIATES})"))
        .message(&*format!("{field} update prohibited due to running remediation: wait until no node in status.unhealthyNodes has remediations, or write pauseRequests and delete them first"))
        .reason(Reason::FieldValueForbidden)
        .field_path(format!(".spec.{field}"))
}

pub fn one_threshold() -> Rule {
    Rule::new("!(has(self.minHealthy) && has(self.maxUnhealthy))")
        .message("minHealthy and maxUnhealthy cannot be specified at the same time: remove one of them")
}

/// An empty list is as good as none, as in the reference.
const ESCALATES: &str = "has(self.escalatingRemediations) && self.escalatingRemediations.size() > 0";

pub fn some_template() -> Rule {
    Rule::new(format!("has(self.remediationTemplate) || ({ESCALATES})"))
        .message("Either RemediationTemplate or at least one EscalatingRemediations must be set: write remediationTemplate with apiVersion, kind, name and namespace of a template")
        .reason(Reason::FieldValueRequired)
        .field_path(".remediationTemplate")
}

pub fn one_way_of_templates() -> Rule {
    Rule::new(format!("!(has(self.remediationTemplate) && {ESCALATES})"))
        .message("RemediationTemplate and EscalatingRemediations usage is mutual exclusive: remove one of them")
}

/// Deleted machines come back as other nodes, so that the share of unhealthy ones says nothing.
pub fn no_machine_deletion() -> Rule {
    Rule::new("!has(self.maxUnhealthy) || !has(self.remediationTemplate) || !has(self.remediationTemplate.kind) || self.remediationTemplate.kind.lowerAscii() != 'machinedeletionremediationtemplate'")
        .message("maxUnhealthy can't be used with MachineDeletionRemediationTemplate: write minHealthy instead")
        .field_path(".maxUnhealthy")
}

pub fn no_machine_deletion_step() -> Rule {
    Rule::new("!has(self.maxUnhealthy) || !has(self.escalatingRemediations) || self.escalatingRemediations.all(step, !has(step.remediationTemplate.kind) || step.remediationTemplate.kind.lowerAscii() != 'machinedeletionremediationtemplate')")
        .message("maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation: write minHealthy instead")
        .field_path(".maxUnhealthy")
}

pub fn selector(_: &mut SchemaGenerator) -> Schema {
    selector_of("node")
}

/// Which of the things that are called `what` are meant.
pub fn selector_of(what: &str) -> Schema {
    let said = "Invalid selector: a key is no label key: write one such as node-role.kubernetes.io/worker";
    let key = rule(format!("self.matches('{LABEL_KEY}')"), said);
    let labels = rule(format!("self.all(key, key.matches('{LABEL_KEY}'))"), said);
    let value = rule(
        format!("self.matches('{LABEL_VALUE}')"),
        "Invalid selector: a label value has at most 63 letters, digits, dashes, dots and underscores, and begins and ends with a letter or digit",
    );
    let operator = rule(
        "self in ['In', 'NotIn', 'Exists', 'DoesNotExist']",
        "Invalid selector: the operator must be In, NotIn, Exists or DoesNotExist",
    );
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": format!("Labels that a {what} must have, all of them, with these values."),
                "maxProperties": LABELS_MAX,
                "x-kubernetes-validations": [labels],
                "additionalProperties": {"type": "string", "maxLength": 63, "x-kubernetes-validations": [value]},
            },
            "matchExpressions": {
                "type": "array",
                "description": format!("Requirements on the labels of a {what}, all of which must hold."),
                "maxItems": EXPRESSIONS_MAX,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "type": "string",
                            "description": "The label's key.",
                            "maxLength": LABEL_KEY_MAX,
                            "x-kubernetes-validations": [key],
                        },
                        "operator": {
                            "type": "string",
                            "description": "In, NotIn, Exists or DoesNotExist.",
                            "maxLength": NAME_MAX,
                            "x-kubernetes-validations": [operator],
                        },
                        "values": {
                            "type": "array",
                            "description": "Values for In and NotIn; the other operators take none.",
                            "maxItems": VALUES_MAX,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63, "x-kubernetes-validations": [value]},
                        },
                    },
                    "x-kubernetes-validations": [
                        rule("!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)", "Invalid selector: In and NotIn need at least one value: write values, or the operator Exists or DoesNotExist"),
                        rule("!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0", "Invalid selector: Exists and DoesNotExist take no values: remove them, or write the operator In or NotIn"),
                    ],
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<UnhealthyCondition>();
    json_schema!({
        "type": "array",
        "items": items,
        "default": default_conditions(),
        "maxItems": CONDITIONS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type", "status"],
        "x-kubernetes-validations": [rule("self.size() > 0", "unhealthyConditions must not be empty, or nothing would ever be unhealthy: leave the field out for Ready False or Unknown for 300s")],
    })
}

pub fn min_healthy(_: &mut SchemaGenerator) -> Schema {
    count_or_percent("minHealthy", "51%")
}

pub fn max_unhealthy(_: &mut SchemaGenerator) -> Schema {
    count_or_percent("maxUnhealthy", "49%")
}

pub fn count_or_percent(field: &str, example: &str) -> Schema {
    let write = format!("write a number such as 3, or a percentage such as {example}");
    let said = format!("'{field} must not be negative: ' + string(self) + ': {write}'");
    let shaped = format!("string(self).startsWith('-') || string(self).matches('{COUNT_OR_PERCENT}')");
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [
            explained("!string(self).startsWith('-')", said),
            rule(shaped, format!("{field} is neither a number nor a percentage of at most 100%: {write}")),
        ],
    })
}

pub fn template(_: &mut SchemaGenerator) -> Schema {
    let examples = ("SelfNodeRemediationTemplate", "self-node-remediation.medik8s.io/v1alpha1");
    template_reference(
        "remediationTemplate",
        examples,
        ", and its namespace",
        "Namespace of the template, and of the objects made from it.",
    )
}

/// `field` refers to it; `examples` are a kind and its group and version.
pub fn template_reference(field: &str, (kind, api_version): (&str, &str), and_namespace: &str, namespace: &str) -> Schema {
    let text = |description: &str| json!({"type": "string", "description": description, "maxLength": NAME_MAX});
    let named = |field: &str, shown: &str| {
        let shaped = format!("!has(self.{field}) || self.{field} == '' || self.{field}.matches('{NAME}')");
        rule(
            shaped,
            format!(
                "the {shown} of a template has lower-case letters, digits, dashes and dots: write it as `kubectl get` shows it"
            ),
        )
    };
    json_schema!({
        "type": "object",
        "properties": {
            "apiVersion": text(&format!("Group and version of the template, as in {api_version}.")),
            "kind": text("Kind of the template, which ends with Template."),
            "name": text("Name of the template."),
            "namespace": text(namespace),
            "uid": text("Not used."),
            "resourceVersion": text("Not used."),
            "fieldPath": text("Not used."),
        },
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [
            rule("has(self.apiVersion) && self.apiVersion != '' && has(self.kind) && self.kind != '' && has(self.name) && self.name != ''", format!("{field} needs apiVersion, kind and name of a template: write all three{and_namespace}")),
            rule("!has(self.kind) || self.kind == '' || self.kind.matches('^[A-Za-z0-9]+Template$')", format!("{field}.kind must be the kind of a template, letters and digits that end with Template: write it as in {kind}")),
            rule("!has(self.apiVersion) || self.apiVersion == '' || self.apiVersion.matches('^[-.a-z0-9]+/[-.a-z0-9]+$')", format!("{field}.apiVersion must be a group and a version: write it as in {api_version}")),
            named("name", "name"),
            named("__namespace__", "namespace"),
        ],
    })
}

pub fn steps(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<EscalatingRemediation>();
    let once = "self.all(step, self.exists_one(other, other.order == step.order))";
    let said = "EscalatingRemediation Order must be unique: found duplicate order: write a different number for each";
    json_schema!({
        "type": "array",
        "items": items,
        "maxItems": STEPS_MAX,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [rule(once, said)],
    })
}

pub fn duration(_: &mut SchemaGenerator) -> Schema {
    duration_with(DURATION, "300s, 5m or 1h30m", Vec::new())
}

/// A sign means something here.
pub fn signed_duration(_: &mut SchemaGenerator) -> Schema {
    duration_with(SIGNED_DURATION, "5m or 1h30m, 0s for at once, or -1s for until somebody confirms", Vec::new())
}

pub fn positive_duration(_: &mut SchemaGenerator) -> Schema {
    let positive = format!("!self.matches('{DURATION}') || {SELF} > duration('0s')");
    duration_with(
        DURATION,
        "5m or 1h30m",
        vec![rule(positive, "must be longer than 0s: write a duration such as 10m, or leave the field out")],
    )
}

pub fn step_timeout(_: &mut SchemaGenerator) -> Schema {
    let long_enough = format!("!self.matches('{DURATION}') || {SELF} >= duration('1m')");
    let said = "'EscalatingRemediation Timeout must be at least one minute: found timeout ' + self + ': write 60s or longer'";
    duration_with(DURATION, "60s, 5m or 1h30m", vec![explained(long_enough, said)])
}

/// Go's durations end at 292 years, and texts for longer ones cannot be compared.
fn duration_with(pattern: &str, examples: &str, mut more: Vec<Value>) -> Schema {
    let shaped = format!("self.matches('{pattern}') && {SELF} <= duration('2562047h')");
    let mut rules = vec![rule(shaped, format!("is not a duration: write numbers with units, such as {examples}"))];
    rules.append(&mut more);
    json_schema!({"type": "string", "maxLength": DURATION_MAX, "x-kubernetes-validations": rules})
}

pub fn pause_requests(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string"}, "maxItems": PAUSE_REQUESTS_MAX})
}

pub fn topology_key(_: &mut SchemaGenerator) -> Schema {
    let shaped = rule(
        format!("self.matches('{LABEL_KEY}')"),
        "topologyKey is no label key: write one such as topology.kubernetes.io/zone",
    );
    json_schema!({"type": "string", "maxLength": LABEL_KEY_MAX, "x-kubernetes-validations": [shaped]})
}

pub fn backoff_below_its_max() -> Rule {
    Rule::new("!has(self.backoff) || !has(self.maxBackoff) || duration(self.backoff.replace('µs', 'us')) <= duration(self.maxBackoff.replace('µs', 'us'))")
        .message("backoff must not be longer than maxBackoff: write a longer maxBackoff")
        .field_path(".backoff")
}

/// Where a rule only needs to know that something is referred to, as in the status.
pub fn reference(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = ObjectReference::json_schema(generator);
    schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
    schema
}

/// A list in which each entry has its own `key`, so that others may add theirs.
pub fn keyed_list<T: JsonSchema>(generator: &mut SchemaGenerator, key: &str) -> Schema {
    let items = generator.subschema_for::<T>();
    json_schema!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
}

pub fn rule(rule: impl Into<String>, message: impl Into<String>) -> Value {
    json!(Rule::new(rule).message(Message::Message(message.into())))
}

/// The message is an expression too, and can show what is wrong.
fn explained(rule: impl Into<String>, expression: impl Into<String>) -> Value {
    json!(Rule::new(rule).message(Message::Expression(expression.into())))
}
