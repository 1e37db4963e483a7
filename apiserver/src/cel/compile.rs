//! Are the rules of a CRD's schema well-formed?

use serde_json::{Value, json};

use super::names::{self, Names};
use super::value::{self, Program};
use crate::refusal::Cause;
use crate::schema::{Schema, Type};

/// As long as a message may be, in characters, in Kubernetes.
const MESSAGE_MAX: usize = 2048;

/// Whether each rule of a schema compiles; with the paths in the CRD that are wrong. `path` is the schema's place there.
pub fn compile(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(&Schema::of_crd(schema), path, &mut causes);
    causes
}

/// An expression that must give a value of a type. Err with the words of Kubernetes.
pub fn compile_expression(expression: &str, wanted: Type, names: &Names) -> Result<Program, String> {
    let program = value::program(expression).map_err(|error| format!("compilation failed: ERROR: <input>: {error}"))?;
    if let Some(unknown) = names::unknown(&program, names) {
        return Err(format!("compilation failed: ERROR: <input>: {unknown}"));
    }
    match (names::other_than(&program, wanted, names), wanted) {
        (Some(got), Type::Boolean) => Err(format!("must evaluate to bool but got {got}")),
        (Some(got), Type::String) => Err(format!("must evaluate to string but got {got}")),
        (Some(_) | None, _) => Ok(program),
    }
}

fn walk(schema: &Schema, path: &str, causes: &mut Vec<Cause>) {
    let rules = schema.source.get("x-kubernetes-validations").and_then(Value::as_array);
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        judge(rule, schema, &format!("{path}.x-kubernetes-validations[{index}]"), causes);
    }
    for (name, property) in &schema.properties {
        walk(property, &format!("{path}.properties[{name}]"), causes);
    }
    if let Some(values) = &schema.values {
        walk(values, &format!("{path}.additionalProperties"), causes);
    }
    if let Some(items) = &schema.items {
        walk(items, &format!("{path}.items"), causes);
    }
}

fn judge(rule: &Value, schema: &Schema, path: &str, causes: &mut Vec<Cause>) {
    let text = |key: &str| rule[key].as_str().unwrap_or_default();
    let names = Names { variables: &["self", "oldSelf"], schema: Some(schema), fields: &[] };
    let mut uses_old = true;
    if text("rule").trim().is_empty() {
        causes.push(Cause::required(format!("{path}.rule"), "rule is not specified"));
    } else {
        match compile_expression(text("rule"), Type::Boolean, &names) {
            Ok(program) => uses_old = program.references().has_variable("oldSelf"),
            Err(said) => {
                let said = if said.starts_with("must") { "cel expression must evaluate to a bool" } else { &said };
                causes.push(uncompiled(format!("{path}.rule"), rule, said));
            }
        }
    }
    if !text("messageExpression").is_empty()
        && let Err(said) = compile_expression(text("messageExpression"), Type::String, &names)
    {
        let said = if said.starts_with("must") { "must evaluate to a string" } else { &said };
        let said = format!("messageExpression {said}");
        causes.push(uncompiled(format!("{path}.messageExpression"), rule, &said));
    }
    causes.extend(message_problem(rule, path));
    let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if rule["reason"].is_string() && !reasons.contains(&text("reason")) {
        causes.push(Cause::not_supported(format!("{path}.reason"), &rule["reason"], &reasons));
    }
    if !text("fieldPath").is_empty() && !leads_somewhere(text("fieldPath"), schema) {
        causes.push(Cause::invalid(format!("{path}.fieldPath"), &rule["fieldPath"], "must be a valid path"));
    }
    if rule["optionalOldSelf"].is_boolean() && !uses_old {
        let detail = "may not be set if oldSelf is not used in rule";
        causes.push(Cause::invalid(format!("{path}.optionalOldSelf"), &rule["optionalOldSelf"], detail));
    }
}

fn message_problem(rule: &Value, path: &str) -> Option<Cause> {
    let field = format!("{path}.message");
    let message = rule["message"].as_str().unwrap_or_default();
    let breaks_lines = rule["rule"].as_str().is_some_and(|rule| rule.trim().contains('\n'));
    if message.is_empty() {
        return breaks_lines.then(|| Cause::required(field, "message must be specified if rule contains line breaks"));
    }
    let detail = match message.trim() {
        "" => "must be non-empty if specified".to_owned(),
        text if text.contains('\n') => "must not contain line breaks".to_owned(),
        text if text.chars().count() > MESSAGE_MAX => format!("must have a maximum length of {MESSAGE_MAX} characters"),
        _ => return None,
    };
    Some(Cause::invalid(field, &rule["message"], detail))
}

/// Kubernetes prints its own form of the rule, with keys in capitals and in this order.
fn uncompiled(field: String, rule: &Value, said: &str) -> Cause {
    let text = |key: &str| json!(rule[key].as_str().unwrap_or_default()).to_string();
    let printed = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        rule["reason"],
        text("fieldPath"),
        rule["optionalOldSelf"]
    );
    let printed = printed.replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026");
    Cause { field, reason: "FieldValueInvalid", message: format!("Invalid value: {printed}: {said}") }
}

/// As `.spec.name` or `['a.b']`, of fields that the schema knows.
fn leads_somewhere(path: &str, schema: &Schema) -> bool {
    let (name, rest) = match (path.strip_prefix('.'), path.strip_prefix("['")) {
        (Some(after), _) => after.split_at(after.find(['.', '[']).unwrap_or(after.len())),
        (None, Some(after)) => match after.split_once("']") {
            Some(split) => split,
            None => return false,
        },
        (None, None) => return false,
    };
    schema.field(name).is_some_and(|next| rest.is_empty() || leads_somewhere(rest, next))
}
