//! Small readers for JSON whose shape the schema has already judged: what is missing or of another type reads as empty.

use serde_json::{Map, Value, json};

use crate::refusal::Cause;

pub fn text<'a>(parent: &'a Value, key: &str) -> &'a str {
    parent[key].as_str().unwrap_or_default()
}

pub fn list<'a>(parent: &'a Value, key: &str) -> &'a [Value] {
    parent[key].as_array().map_or(&[], Vec::as_slice)
}

pub fn map<'a>(parent: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    parent[key].as_object().into_iter().flatten()
}

/// Sets what is missing or null.
pub fn fill(object: &mut Map<String, Value>, key: &str, value: Value) {
    let slot = object.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value;
    }
}

/// Like [`fill`], also where the value is an empty string, which Kubernetes cannot tell from a missing one.
pub fn fill_text(object: &mut Map<String, Value>, key: &str, value: &str) {
    let slot = object.entry(key).or_insert(Value::Null);
    if slot.is_null() || *slot == "" {
        *slot = json!(value);
    }
}

/// The object at a key, made if there is none.
pub fn child<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let map = object.as_object_mut()?;
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), json!({}));
    }
    map.get_mut(key)?.as_object_mut()
}

/// The objects in a list, to be changed.
pub fn each<'a>(object: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Times of conditions are written even where there are none.
pub fn untimed(status: &mut Map<String, Value>, times: &[&str]) {
    for condition in each(status, "conditions") {
        for time in times {
            if !condition.contains_key(*time) {
                condition.insert((*time).to_owned(), Value::Null);
            }
        }
    }
}

/// Drops a field that has its zero value, which Kubernetes does not write.
pub fn drop_zero(object: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        let zero = match object.get(*key) {
            None => false,
            Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::Bool(true)) => false,
            Some(Value::Number(number)) => number.as_i64() == Some(0),
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
        };
        if zero {
            object.remove(*key);
        }
    }
}

pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Cause {
    let message = format!("Too long: may not be more than {bytes_max} bytes");
    Cause { field: field.into(), reason: "FieldValueTooLong", message }
}

/// A number that may not be negative, where there is one.
pub fn not_negative(field: impl Into<String>, value: &Value, causes: &mut Vec<Cause>) {
    if value.as_f64().is_some_and(|number| number < 0.0) {
        causes.push(Cause::invalid(field, value, "must be greater than or equal to 0"));
    }
}

/// JSON with the fields in the order of Kubernetes' structs, which its messages show. What is missing is left out.
pub fn go_json(object: &Value, order: &[&str]) -> String {
    let present = order.iter().filter(|key| !object[**key].is_null());
    let fields: Vec<String> = present.map(|key| format!("{}:{}", json!(key), object[*key])).collect();
    format!("{{{}}}", fields.join(","))
}

/// As [`go_json`], for structs that Kubernetes prints with the names of its own code: each field is there, with `zero`
/// where the object has none.
pub fn go_struct(object: &Value, fields: &[(&str, &str, &str)]) -> String {
    let field = |(go, key, zero): &(&str, &str, &str)| match &object[*key] {
        Value::Null => format!("\"{go}\":{zero}"),
        value => format!("\"{go}\":{value}"),
    };
    format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
}

pub fn invalid_text(field: impl Into<String>, value: &str, detail: &str) -> Cause {
    Cause { field: field.into(), reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {detail}") }
}
