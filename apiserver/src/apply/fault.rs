//! What is wrong with a configuration that is applied, by the schema of its kind?

use serde_json::Value;

use super::compare::{Parts, find, items, key_of, parts, step};
use super::set::{Set, Step};
use crate::ask::go_text;
use crate::schema::{Schema, Type};

/// As the real server says it; None if nothing is wrong.
pub fn fault(applied: &Value, schema: &Schema) -> Option<String> {
    let mut faults = Vec::new();
    value(applied, schema, "", &mut faults);
    match faults.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn value(one: &Value, schema: &Schema, path: &str, faults: &mut Vec<String>) {
    let mut expected = |what: &str, got: String| faults.push(format!("{path}: expected {what}, got {got}"));
    match (kind(schema), one) {
        (Type::Any, _) | (_, Value::Null) => {}
        (Type::Object, Value::Object(_)) => fields(one, schema, path, faults),
        (Type::Object, other) => expected("map", shown(other)),
        (Type::Array, Value::Array(list)) => elements(list, one, schema, path, faults),
        (Type::Array, other) => expected("list", shown(other)),
        (Type::Integer | Type::Number, Value::Number(_)) => {}
        (Type::Integer | Type::Number, other) => expected("numeric (int or float)", go_type(other).to_owned()),
        (Type::String, Value::String(_)) => {}
        (Type::String, other) => expected("string", format!("&value.valueUnstructured{{Value:{}}}", go_syntax(other))),
        (Type::Boolean, Value::Bool(_)) => {}
        (Type::Boolean, other) => expected("boolean", shown(other)),
        (Type::IntOrString | Type::Quantity, Value::Object(_) | Value::Array(_)) => expected("any scalar", shown(one)),
        (Type::IntOrString | Type::Quantity, _) => {}
    }
}

/// Times and raw JSON have types of their own in Go: what is wrong with them shows later.
fn kind(schema: &Schema) -> Type {
    let is_builtin = schema.checks.is_none();
    match schema.kind {
        Type::String if is_builtin && schema.format.as_deref() == Some("date-time") => Type::Quantity,
        Type::Object if is_builtin && schema.properties.is_empty() && schema.values.is_none() => Type::Any,
        kind => kind,
    }
}

fn fields(object: &Value, schema: &Schema, path: &str, faults: &mut Vec<String>) {
    let is_open = schema.preserve_unknown || (schema.properties.is_empty() && schema.values.is_none());
    for (name, one) in object.as_object().into_iter().flatten() {
        match schema.field(name) {
            Some(field) => value(one, field, &format!("{path}.{name}"), faults),
            None if is_open || (path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) => {}
            None => faults.push(format!("{path}.{name}: field not declared in schema")),
        }
    }
}

fn elements(list: &[Value], whole: &Value, schema: &Schema, path: &str, faults: &mut Vec<String>) {
    let items = items(Some(schema));
    let keys = match parts(whole, whole, Some(schema)) {
        Parts::Elements(_, keys) => Some(keys),
        Parts::Whole | Parts::Fields(_) => None,
    };
    for (at, one) in list.iter().enumerate() {
        let name = match keys {
            Some(keys) => {
                if let Some(why) = unidentified(one, keys, items) {
                    return faults.push(format!("{path}: element {at}: {why}"));
                }
                let name = one_path(step(one, keys, items));
                if find(&list[..at], one, at, keys, items).is_some() {
                    faults.push(format!("{path}: duplicate entries for key {name}"));
                }
                name
            }
            None => format!("[{at}]"),
        };
        if let Some(items) = items {
            value(one, items, &format!("{path}{name}"), faults);
        }
    }
}

/// Why an element cannot be told from others, if it cannot.
fn unidentified(one: &Value, keys: &[String], items: Option<&Schema>) -> Option<String> {
    let why = match (keys.is_empty(), one) {
        (true, Value::Object(_)) => "associative list without keys has an element that's a map type",
        (true, Value::Array(_)) => "not supported: associative list with lists as elements",
        (true, Value::Null) => "associative list without keys has an element that's an explicit null",
        (true, _) => return None,
        (false, Value::Null) => "associative list with keys may not have a null element",
        (false, Value::Object(_)) if keys.iter().any(|key| key_of(one, key, items).is_some()) => return None,
        (false, Value::Object(_)) => {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Some(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        (false, _) => "associative list with keys may not have non-map elements",
    };
    Some(why.to_owned())
}

fn one_path(step: Step) -> String {
    let mut set = Set::default();
    set.insert(&[step]);
    set.paths().pop().unwrap_or_default()
}

/// A pointer to a struct with the value in it, as Go prints it.
fn shown(value: &Value) -> String {
    format!("&{{{}}}", go_text(value))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as one would write it in Go.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(list) => format!("[]interface {{}}{{{}}}", list.iter().map(go_syntax).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key:?}:{}", go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", pairs.join(", "))
        }
    }
}
