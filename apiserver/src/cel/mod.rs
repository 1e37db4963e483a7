//! Do the `x-kubernetes-validations` of a CRD hold?
//!
//! The language is kube-cel's. Which rule sees which value, what an update compares with, and the words of a refusal are
//! decided here, because its own walker decides otherwise.

mod compile;
mod names;
mod value;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::refusal::Cause;
use crate::schema::{List, Schema};

pub use compile::{compile, compile_expression};
pub use names::Names;
pub use value::{Program, Scope, map, program, scope, untyped};

/// The compiled rules of one node of a schema.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    here: OnceLock<Arc<[Rule]>>,
    /// Whether this node or one below has any: most of a tree need not be walked.
    anywhere: OnceLock<bool>,
}

#[derive(Debug)]
struct Rule {
    /// None where it does not compile, which a CRD that was stored cannot have.
    program: Option<Program>,
    message_program: Option<Program>,
    is_transition: bool,
    optional_old: bool,
    /// What is said where no messageExpression says it.
    message: String,
    /// What names the rule when it cannot be evaluated.
    called: String,
    reason: &'static str,
    field_path: String,
}

/// `old` is the stored object at an update, for transition rules.
pub fn check(object: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(&Place { path: String::new(), value: object, old, unchanged: old == Some(object) }, schema, &mut causes);
    causes
}

/// Whether there is any rule to check.
pub fn has_rules(schema: &Schema) -> bool {
    schema.rules.anywhere(schema)
}

/// A value in the object, and the one it replaces.
struct Place<'a> {
    path: String,
    value: &'a Value,
    /// None where there was none, or where nobody can tell which it was: in lists without keys.
    old: Option<&'a Value>,
    /// What an update leaves alone may break rules that came later.
    unchanged: bool,
}

fn walk(place: &Place, schema: &Schema, causes: &mut Vec<Cause>) {
    if place.value.is_null() || !schema.rules.anywhere(schema) {
        return;
    }
    evaluate(place, schema, causes);
    for (key, value) in place.value.as_object().into_iter().flatten() {
        let (path, schema) = match (schema.properties.get(key), &schema.values) {
            (Some(schema), _) if place.path.is_empty() => (key.clone(), schema),
            (Some(schema), _) => (format!("{}.{key}", place.path), schema),
            (None, Some(schema)) => (format!("{}[{key}]", place.path), schema),
            (None, None) => continue,
        };
        let old = place.old.and_then(|old| old.get(key));
        walk(&place.child(path, value, old), schema, causes);
    }
    let Some(items) = &schema.items else { return };
    for (index, value) in place.value.as_array().into_iter().flatten().enumerate() {
        let old = place.old.and_then(|old| counterpart(value, old, &schema.list));
        walk(&place.child(format!("{}[{index}]", place.path), value, old), items, causes);
    }
}

impl<'a> Place<'a> {
    fn child(&self, path: String, value: &'a Value, old: Option<&'a Value>) -> Place<'a> {
        let old = old.filter(|old| !old.is_null());
        // Where nothing corresponds, the nearest value above that does decides.
        let unchanged = old.map_or(self.unchanged, |old| old == value);
        Place { path, value, old, unchanged }
    }
}

/// The item of the old list with the same keys.
fn counterpart<'a>(item: &Value, old: &'a Value, list: &List) -> Option<&'a Value> {
    let List::Map { keys } = list else { return None };
    old.as_array()?.iter().find(|one| keys.iter().all(|key| one.get(key) == item.get(key)))
}

fn evaluate(place: &Place, schema: &Schema, causes: &mut Vec<Cause>) {
    let rules = schema.rules.here(schema);
    if rules.is_empty() {
        return;
    }
    let this = value::typed(place.value, schema);
    let old = place.old.map(|old| value::typed(old, schema));
    for rule in rules {
        let skip = match (rule.is_transition, &old) {
            (true, None) => !rule.optional_old,
            (true, Some(_)) => false,
            (false, _) => place.unchanged,
        };
        if skip {
            continue;
        }
        value::scope(|scope| {
            scope.bind("self", this.clone());
            match (rule.optional_old, &old) {
                (true, old) => scope.bind("oldSelf", value::optional(old.clone())),
                (false, Some(old)) => scope.bind("oldSelf", old.clone()),
                (false, None) => {}
            }
            causes.extend(rule.judge(place, schema, scope));
        });
    }
}

impl Rule {
    fn judge(&self, place: &Place, schema: &Schema, scope: &Scope) -> Option<Cause> {
        let type_name = schema.source.get("type").and_then(Value::as_str).unwrap_or_default();
        let program = self.program.as_ref()?;
        match scope.run(program) {
            Ok(kube_cel::cel::Value::Bool(true)) => return None,
            Ok(_) => {}
            Err(error) => {
                let detail = match error.as_str() {
                    "no such overload" => format!(
                        "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}",
                        self.called
                    ),
                    error => format!("{error} evaluating rule: {}", self.called),
                };
                return Some(Cause::invalid(&place.path, &type_name.into(), detail));
            }
        }
        let said = self.message_program.as_ref().and_then(|program| scope.text(program));
        let detail = said.unwrap_or_else(|| self.message.clone());
        let path = match self.field_path.strip_prefix('.') {
            Some(first) if place.path.is_empty() => first.to_owned(),
            Some(_) | None => format!("{}{}", place.path, self.field_path),
        };
        let is_scalar = !place.value.is_object() && !place.value.is_array();
        Some(match self.reason {
            "FieldValueForbidden" => Cause::forbidden(path, &detail),
            "FieldValueRequired" => Cause::required(path, &detail),
            "FieldValueDuplicate" if is_scalar => Cause::duplicate(path, place.value),
            "FieldValueDuplicate" => Cause { field: path, reason: self.reason, message: "Duplicate value".to_owned() },
            _ if is_scalar => Cause::invalid(path, place.value, detail),
            reason => Cause { field: path, reason, message: format!("Invalid value: {detail}") },
        })
    }
}

impl Rules {
    fn here(&self, schema: &Schema) -> &[Rule] {
        self.here.get_or_init(|| {
            let rules = schema.source.get("x-kubernetes-validations").and_then(Value::as_array);
            rules.into_iter().flatten().map(Rule::read).collect()
        })
    }

    fn anywhere(&self, schema: &Schema) -> bool {
        let below = || schema.properties.values().chain(&schema.values).chain(&schema.items);
        *self
            .anywhere
            .get_or_init(|| schema.source.contains_key("x-kubernetes-validations") || below().any(|one| one.rules.anywhere(one)))
    }
}

impl Rule {
    fn read(source: &Value) -> Rule {
        let text = |key: &str| source[key].as_str().unwrap_or_default().trim();
        let program = value::program(text("rule")).ok();
        let message_expression = Some(text("messageExpression")).filter(|text| !text.is_empty());
        let is_transition = program.as_ref().is_some_and(|program| program.references().has_variable("oldSelf"));
        let called = if text("message").is_empty() { text("rule") } else { text("message") };
        let reasons = ["FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"];
        Rule {
            program,
            message_program: message_expression.and_then(|text| value::program(text).ok()),
            is_transition,
            optional_old: source["optionalOldSelf"].as_bool() == Some(true),
            message: if text("message").is_empty() { format!("failed rule: {called}") } else { called.to_owned() },
            called: called.to_owned(),
            reason: reasons.into_iter().find(|reason| *reason == text("reason")).unwrap_or("FieldValueInvalid"),
            field_path: text("fieldPath").replace("['", "[").replace("']", "]"),
        }
    }
}

#[cfg(test)]
mod tests;
