//! Every mistake that is refused when a check is written, with what is said: by the API server, and, where the
//! definition is a foreign one without our rules, by us who read it.

use serde_json::{Value, json};

use crate::good::{REMEDIATIONS, TEMPLATES, base, escalation, step};

pub struct Bad {
    /// Merged into a good spec; null takes a field away.
    pub spec: Value,
    /// The field that the API server blames, and a part of what it says.
    pub field: &'static str,
    pub says: &'static str,
    /// A part of what is said when it is read.
    pub read: Read,
}

pub enum Read {
    Says(&'static str),
    /// Reading it does no harm, so it is read.
    Harmless,
}

use Read::{Harmless, Says};

fn bad(spec: Value, field: &'static str, says: &'static str, read: Read) -> Bad {
    Bad { spec, field, says, read }
}

pub fn all() -> Vec<Bad> {
    [thresholds(), templates(), escalations(), selectors(), conditions(), durations(), ours()].into_iter().flatten().collect()
}

fn thresholds() -> Vec<Bad> {
    let negative = |field: &str, value: Value| json!({field: value});
    vec![
        bad(
            json!({"minHealthy": 1, "maxUnhealthy": 1}),
            "spec",
            "minHealthy and maxUnhealthy cannot be specified at the same time: remove one",
            Says("minHealthy and maxUnhealthy cannot be specified at the same time"),
        ),
        bad(
            negative("minHealthy", json!(-1)),
            "spec.minHealthy",
            "minHealthy must not be negative: -1: write a number",
            Says("minHealthy must not be negative: -1"),
        ),
        bad(
            negative("maxUnhealthy", json!(-1)),
            "spec.maxUnhealthy",
            "maxUnhealthy must not be negative: -1: write a number",
            Says("maxUnhealthy must not be negative: -1"),
        ),
        bad(
            negative("maxUnhealthy", json!("-3")),
            "spec.maxUnhealthy",
            "maxUnhealthy must not be negative: -3",
            Says("maxUnhealthy must not be negative: -3"),
        ),
        bad(
            json!({"maxUnhealthy": "many"}),
            "spec.maxUnhealthy",
            "write a number such as 3, or a percentage such as 49%",
            Says("write a number"),
        ),
        // More than all is all.
        bad(json!({"minHealthy": "101%"}), "spec.minHealthy", "a percentage of at most 100%", Harmless),
        bad(json!({"minHealthy": 1.5}), "spec.minHealthy", "must be of type integer", Says("spec.minHealthy")),
        bad(json!({"minHealthy": null, "maxUnhealthy": [1]}), "spec.maxUnhealthy", "must be of type", Says("spec.maxUnhealthy")),
        bad(
            json!({"maxUnhealthy": "49%", "remediationTemplate": {"kind": "MachineDeletionRemediationTemplate"}}),
            "spec.maxUnhealthy",
            "maxUnhealthy can't be used with MachineDeletionRemediationTemplate: write minHealthy",
            Says("maxUnhealthy can't be used with MachineDeletionRemediationTemplate: write minHealthy"),
        ),
        bad(
            json!({"maxUnhealthy": 1, "remediationTemplate": {"kind": "machinedeletionREMEDIATIONTemplate"}}),
            "spec.maxUnhealthy",
            "maxUnhealthy can't be used with MachineDeletionRemediationTemplate",
            Says("maxUnhealthy can't be used with MachineDeletionRemediationTemplate"),
        ),
        bad(
            json!({"maxUnhealthy": 1, "remediationTemplate": null, "escalatingRemediations": [
                step("ATemplate", 1, "60s"), step("MachineDeletionRemediationTemplate", 2, "60s"),
            ]}),
            "spec.maxUnhealthy",
            "maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation: write minHealthy",
            Says("maxUnhealthy can't be used with MachineDeletionRemediationTemplate escalating remediation"),
        ),
    ]
}

fn templates() -> Vec<Bad> {
    let none = "Either RemediationTemplate or at least one EscalatingRemediations must be set: write";
    let part = |field: &str, value: Value| json!({"remediationTemplate": {field: value}});
    let all_three = "needs apiVersion, kind and name of a template: write all three";
    let suffix = "end with Template: write it as in SelfNodeRemediationTemplate";
    let place = "spec.remediationTemplate";
    vec![
        bad(json!({"remediationTemplate": null}), place, none, Says(none)),
        bad(json!({"remediationTemplate": null, "escalatingRemediations": []}), place, none, Says(none)),
        bad(
            json!({"escalatingRemediations": [step("ATemplate", 1, "60s")]}),
            "spec",
            "RemediationTemplate and EscalatingRemediations usage is mutual exclusive: remove one",
            Says("RemediationTemplate and EscalatingRemediations usage is mutual exclusive: remove one"),
        ),
        bad(part("kind", Value::Null), place, all_three, Says("spec.remediationTemplate.kind is missing: write")),
        bad(part("kind", json!("")), place, all_three, Says("spec.remediationTemplate.kind is missing: write")),
        bad(part("name", Value::Null), place, all_three, Says("spec.remediationTemplate.name is missing: write")),
        bad(part("name", json!("")), place, all_three, Says("spec.remediationTemplate.name is missing: write")),
        bad(part("apiVersion", Value::Null), place, all_three, Says("spec.remediationTemplate.apiVersion is missing")),
        bad(part("kind", json!("SelfNodeRemediation")), place, suffix, Says("ends with Template")),
        bad(part("kind", json!("Template")), place, suffix, Says("ends with Template")),
        bad(part("kind", json!("Self/Template")), place, suffix, Says("letters and digits")),
        bad(part("apiVersion", json!("v1")), place, "must be a group and a version: write it as in", Says("write group/version")),
        bad(part("apiVersion", json!("a b/v1")), place, "must be a group and a version", Says("write group/version")),
        bad(part("apiVersion", json!("a/b/c")), place, "must be a group and a version", Says("write group/version")),
        bad(part("name", json!("../../nodes")), place, "the name of a template has lower-case letters", Says("is no name")),
        bad(part("namespace", json!("No_Name")), place, "the namespace of a template has lower-case letters", Says("is no name")),
        bad(json!({"remediationTemplate": "t"}), place, "must be of type object", Says("spec.remediationTemplate: ")),
    ]
}

fn escalations() -> Vec<Bad> {
    let escalate = |steps: Value| json!({"remediationTemplate": null, "escalatingRemediations": steps});
    let place = "spec.escalatingRemediations";
    let mut without_order = step("ATemplate", 1, "60s");
    without_order.as_object_mut().expect("it is one").remove("order");
    let mut many = escalation()["escalatingRemediations"].clone();
    many.as_array_mut().expect("it is one").extend((10..30).map(|order| step("ATemplate", order, "60s")));
    let with = |field: &str, value: &str| {
        let mut step = step("ATemplate", 1, "60s");
        step["remediationTemplate"][field] = json!(value);
        escalate(json!([step]))
    };
    let inner = "spec.escalatingRemediations[0].remediationTemplate";
    vec![
        bad(
            with("name", ""),
            inner,
            "needs apiVersion, kind and name of a template",
            Says("remediationTemplate.name is missing"),
        ),
        bad(with("apiVersion", "v1"), inner, "must be a group and a version", Says("write group/version")),
        bad(with("name", "A"), inner, "the name of a template has lower-case letters", Says("is no name")),
        bad(with("namespace", "A"), inner, "the namespace of a template has lower-case letters", Says("is no name")),
        bad(
            escalate(json!([step("ATemplate", 3, "60s"), step("BTemplate", 1, "60s"), step("CTemplate", 3, "60s")])),
            place,
            "EscalatingRemediation Order must be unique: found duplicate order: write a different number",
            Says("EscalatingRemediation Order must be unique: found duplicate order 3: write a different number"),
        ),
        bad(
            escalate(json!([step("ATemplate", 1, "59.999s")])),
            "spec.escalatingRemediations[0].timeout",
            "EscalatingRemediation Timeout must be at least one minute: found timeout 59.999s: write 60s or longer",
            Says("EscalatingRemediation Timeout must be at least one minute: found timeout 59.999s: write 60s or longer"),
        ),
        bad(
            escalate(json!([step("ATemplate", 1, "59999999µs")])),
            "spec.escalatingRemediations[0].timeout",
            "Timeout must be at least one minute: found timeout 59999999µs",
            Says("Timeout must be at least one minute"),
        ),
        bad(
            escalate(json!([step("ATemplate", 1, "five minutes")])),
            "spec.escalatingRemediations[0].timeout",
            "is not a duration: write numbers with units",
            Says("spec.escalatingRemediations[0].timeout: \"five minutes\" is not a duration"),
        ),
        bad(
            escalate(json!([step("ATemplate", 1, "-5m")])),
            "spec.escalatingRemediations[0].timeout",
            "is not a duration",
            Says("must not be negative"),
        ),
        bad(
            escalate(json!([step("A", 1, "60s")])),
            "spec.escalatingRemediations[0].remediationTemplate",
            "end with Template: write it as in",
            Says("spec.escalatingRemediations[0].remediationTemplate.kind is \"A\""),
        ),
        bad(
            escalate(json!([without_order])),
            "spec.escalatingRemediations[0].order",
            "Required value",
            Says("spec.escalatingRemediations[0]: missing field `order`"),
        ),
        bad(
            escalate(json!([step("ATemplate", 1, "60s"), "second"])),
            "spec.escalatingRemediations[1]",
            "must be of type object",
            Says("spec.escalatingRemediations[1]: "),
        ),
        bad(escalate(json!("all")), place, "must be of type array", Says("spec.escalatingRemediations is not a list: write")),
        bad(escalate(many), place, "must have at most 20 items", Harmless),
    ]
}

fn selectors() -> Vec<Bad> {
    let expression = |expression: Value| json!({"selector": {"matchExpressions": [expression]}});
    let item = "spec.selector.matchExpressions[0]";
    let values = "Invalid selector: In and NotIn need at least one value: write values";
    let no_values = "Invalid selector: Exists and DoesNotExist take no values: remove them";
    let key = "is no label key: write one such as node-role.kubernetes.io/worker";
    vec![
        bad(
            expression(json!({"key": "k", "operator": "Resembles", "values": ["v"]})),
            "spec.selector.matchExpressions[0].operator",
            "Invalid selector: the operator must be In, NotIn, Exists or DoesNotExist",
            Says("\"Resembles\" is no operator: write In"),
        ),
        bad(expression(json!({"key": "k", "operator": "In"})), item, values, Says("needs at least one value")),
        bad(expression(json!({"key": "k", "operator": "NotIn", "values": []})), item, values, Says("needs at least one value")),
        bad(expression(json!({"key": "k", "operator": "Exists", "values": ["v"]})), item, no_values, Says("takes no values")),
        bad(
            expression(json!({"key": "k", "operator": "DoesNotExist", "values": ["v"]})),
            item,
            no_values,
            Says("takes no values"),
        ),
        bad(expression(json!({"key": "a b", "operator": "Exists"})), "spec.selector.matchExpressions[0].key", key, Says(key)),
        bad(expression(json!({"key": "", "operator": "Exists"})), "spec.selector.matchExpressions[0].key", key, Says(key)),
        bad(
            expression(json!({"key": "k", "operator": "In", "values": ["a b"]})),
            "spec.selector.matchExpressions[0].values[0]",
            "Invalid selector: a label value has at most 63",
            Says("is no label value"),
        ),
        bad(
            expression(json!({"operator": "Exists"})),
            "spec.selector.matchExpressions[0].key",
            "Required value",
            Says("spec.selector: "),
        ),
        bad(
            json!({"selector": {"matchLabels": {"k": "-v"}}}),
            "spec.selector.matchLabels[k]",
            "Invalid selector: a label value has at most 63",
            Says("is no label value"),
        ),
        bad(json!({"selector": {"matchLabels": {"a b": "v"}}}), "spec.selector.matchLabels", key, Says(key)),
        bad(json!({"selector": "worker"}), "spec.selector", "must be of type object", Says("spec.selector: ")),
    ]
}

fn conditions() -> Vec<Bad> {
    let one = |field: &str, value: Value| {
        let mut one = json!({"type": "Ready", "status": "False", "duration": "5m"});
        one[field] = value;
        json!({"unhealthyConditions": [one]})
    };
    let duration = "spec.unhealthyConditions[0].duration";
    let not_one = "is not a duration: write numbers with units, such as 300s";
    vec![
        bad(
            json!({"unhealthyConditions": []}),
            "spec.unhealthyConditions",
            "unhealthyConditions must not be empty, or nothing would ever be unhealthy: leave the field out",
            Says("unhealthyConditions is empty"),
        ),
        bad(one("duration", json!("300")), duration, not_one, Says("write a unit")),
        bad(one("duration", json!("1d")), duration, not_one, Says("unknown unit")),
        bad(one("duration", json!("")), duration, not_one, Says("is not a duration")),
        bad(one("duration", json!("-5m")), duration, not_one, Says("must not be negative")),
        bad(one("duration", json!(300)), duration, "must be of type string", Says("spec.unhealthyConditions[0]: ")),
        // Some 1,000 years.
        bad(one("duration", json!("9000000h")), duration, not_one, Says("too long a duration")),
        bad(one("type", json!("")), "spec.unhealthyConditions[0].type", "at least 1 chars", Says("must not be empty")),
        bad(one("status", json!("")), "spec.unhealthyConditions[0].status", "at least 1 chars", Says("must not be empty")),
        bad(one("status", json!(false)), "spec.unhealthyConditions[0].status", "must be of type string", Says("[0]: ")),
        // Twice the same: the shorter time wins.
        bad(
            json!({"unhealthyConditions": [
                {"type": "Ready", "status": "False", "duration": "5m"}, {"type": "Ready", "status": "False", "duration": "6m"},
            ]}),
            "spec.unhealthyConditions[1]",
            "Duplicate value",
            Harmless,
        ),
    ]
}

fn durations() -> Vec<Bad> {
    let unit = "is not a duration: write numbers with units";
    vec![
        bad(json!({"healthyDelay": "soon"}), "spec.healthyDelay", unit, Says("spec.healthyDelay: \"soon\" is not a duration")),
        bad(json!({"healthyDelay": "--1s"}), "spec.healthyDelay", unit, Says("is not a duration")),
        bad(json!({"stormCooldownDuration": "-1s"}), "spec.stormCooldownDuration", unit, Says("must not be negative")),
        bad(json!({"stormCooldownDuration": "5"}), "spec.stormCooldownDuration", unit, Says("write a unit")),
        bad(json!({"nodeStartupTimeout": "5"}), "spec.nodeStartupTimeout", unit, Says("write a unit")),
        bad(
            json!({"nodeStartupTimeout": "0s"}),
            "spec.nodeStartupTimeout",
            "must be longer than 0s: write a duration such as 10m, or leave the field out",
            Says("spec.nodeStartupTimeout must be longer than 0s"),
        ),
    ]
}

fn ours() -> Vec<Bad> {
    let repeat = |field: &str, value: Value| {
        let mut repeat = json!({"max": 3, "within": "1h"});
        repeat[field] = value;
        json!({"repeat": repeat})
    };
    let unit = "is not a duration: write numbers with units";
    let key = "topologyKey is no label key: write one such as topology.kubernetes.io/zone";
    vec![
        bad(json!({"pauseRequests": "upgrade"}), "spec.pauseRequests", "must be of type array", Says("spec.pauseRequests: ")),
        bad(json!({"mode": "Dry"}), "spec.mode", "supported values: \"Act\", \"DryRun\"", Says("write Act or DryRun")),
        bad(json!({"topologyKey": "my zone"}), "spec.topologyKey", key, Says("spec.topologyKey: \"my zone\" is no label key")),
        bad(json!({"topologyKey": ""}), "spec.topologyKey", key, Says("is no label key")),
        bad(repeat("max", json!(0)), "spec.repeat.max", "greater than or equal to 1", Says("write a number from 1 to 100")),
        bad(repeat("max", json!(101)), "spec.repeat.max", "less than or equal to 100", Says("write a number from 1 to 100")),
        bad(repeat("max", json!("3")), "spec.repeat.max", "must be of type integer", Says("spec.repeat: ")),
        bad(repeat("within", json!("0s")), "spec.repeat.within", "must be longer than 0s", Says("must be longer than 0s")),
        bad(repeat("within", json!("day")), "spec.repeat.within", unit, Says("is not a duration")),
        bad(json!({"repeat": {"max": 1}}), "spec.repeat.within", "Required value", Says("missing field `within`: write")),
        bad(repeat("maxBackoff", json!("-5m")), "spec.repeat.maxBackoff", unit, Says("must not be negative")),
        bad(repeat("backoff", json!("-5m")), "spec.repeat.backoff", unit, Says("must not be negative")),
        bad(
            json!({"repeat": {"max": 3, "within": "1h", "backoff": "10m", "maxBackoff": "5m"}}),
            "spec.repeat.backoff",
            "backoff must not be longer than maxBackoff: write a longer maxBackoff",
            Says("backoff must not be longer than maxBackoff"),
        ),
    ]
}

/// (path, object, field, what is said)
pub fn poison_pills() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let object = |kind: &str, spec: Value| json!({"apiVersion": "poison-pill.medik8s.io/v1alpha1", "kind": kind, "metadata": {"name": "n1"}, "spec": spec});
    let (template, remediation) = ("PoisonPillRemediationTemplate", "PoisonPillRemediation");
    let strategies = "supported values: \"Automatic\", \"NodeDeletion\", \"ResourceDeletion\", \"OutOfServiceTaint\"";
    vec![
        (
            TEMPLATES,
            object(template, json!({"template": {"spec": {"remediationStrategy": "Reboot"}}})),
            "spec.template.spec.remediationStrategy",
            strategies,
        ),
        (TEMPLATES, object(template, json!({})), "spec.template", "Required value"),
        (TEMPLATES, object(template, json!({"template": {}})), "spec.template.spec", "Required value"),
        (REMEDIATIONS, object(remediation, json!({"remediationStrategy": ""})), "spec.remediationStrategy", strategies),
        (REMEDIATIONS, object(remediation, json!({"requireAssured": "yes"})), "spec.requireAssured", "must be of type boolean"),
    ]
}

impl Bad {
    /// The whole spec.
    pub fn whole(&self) -> Value {
        let mut whole = base();
        merge(&mut whole, &self.spec);
        whole
    }
}

/// As a JSON merge patch does.
pub fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(into.as_object_mut().map(|own| own.remove(name))),
            value => merge(&mut into[name.as_str()], value),
        }
    }
}
