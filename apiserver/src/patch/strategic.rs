//! How does a strategic merge patch change an object?
//!
//! Maps are merged field by field; lists are replaced, unless the schema says that they merge: scalars are united, objects
//! meet by their merge key. Keys that begin with `$` say what merging alone cannot: delete, replace, keep only, order.

use serde_json::{Map, Value};

use super::list;
use crate::json::json_type;
use crate::refusal::Refusal;
use crate::schema::Schema;

pub(super) const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Kubernetes' strategic merge patch, with its directives: `$patch`, `$deleteFromPrimitiveList`, `$setElementOrder` and
/// `$retainKeys`.
pub fn strategic_merge(target: &mut Value, patch: &Value, schema: &Schema) -> Result<(), Refusal> {
    match (target, patch) {
        (_, Value::Null) => Ok(()),
        (Value::Object(target), Value::Object(patch)) => merge_map(target, patch, Some(schema)),
        (_, other) => {
            let message = format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_type(other));
            Err(Refusal::bad_request(message))
        }
    }
}

pub(super) fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<(), Refusal> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        *target = match directive.as_str() {
            Some("replace") => stored_fields(patch, false),
            Some("delete") => Map::new(),
            _ => return Err(unknown_directive(directive, patch)),
        };
        return Ok(());
    }
    retain(target, patch)?;
    let ordered = set_orders(target, patch, schema)?;
    for (key, value) in patch {
        if ordered.contains(&key.as_str()) || key == RETAIN_KEYS || key.starts_with(SET_ORDER) {
            continue;
        }
        match named_list(key, DELETE_FROM_LIST, "invalid patch format of primitive list")? {
            Some(name) => delete_from(target, name, value, schema)?,
            None => merge_field(target, key, value, schema)?,
        }
    }
    Ok(())
}

/// `$retainKeys`: whatever it does not name goes, and the patch may name nothing else.
fn retain(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Refusal> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || Refusal::bad_request("invalid patch format of retainKeys");
    let retained = retained.as_array().ok_or_else(malformed)?;
    let is_retained = |key: &String| retained.iter().any(|one| one.as_str() == Some(key));
    let is_free = |key: &String| key == RETAIN_KEYS || key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
    if !patch.iter().all(|(key, value)| value.is_null() || is_free(key) || is_retained(key)) {
        return Err(malformed());
    }
    target.retain(|key, _| is_retained(key));
    Ok(())
}

/// The list that a directive such as `$setElementOrder/containers` is about.
fn named_list<'a>(key: &'a str, prefix: &str, malformed: &str) -> Result<Option<&'a str>, Refusal> {
    match key.strip_prefix(prefix) {
        None => Ok(None),
        Some(rest) => rest.strip_prefix('/').map(Some).ok_or_else(|| Refusal::bad_request(malformed)),
    }
}

/// Merges and orders all lists that have a `$setElementOrder`; returns their names.
fn set_orders<'a>(
    target: &mut Map<String, Value>,
    patch: &'a Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<Vec<&'a str>, Refusal> {
    let mut ordered = Vec::new();
    for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(SET_ORDER)) {
        let order = array(order)?;
        let Some(name) = named_list(key, SET_ORDER, "invalid patch format of setElementOrder list")? else { continue };
        let schema = schema.and_then(|schema| schema.field(name)).map(AsRef::as_ref);
        let changes = patch.get(name).map(array).transpose()?;
        list::check_order(changes.map_or(&[][..], Vec::as_slice), order, merge_key(schema))?;
        let known = match (target.get_mut(name), changes) {
            (None, None) => continue,
            (Some(_), None) => usize::MAX,
            (None, Some(changes)) => {
                target.insert(name.to_owned(), stored_elements(changes).into());
                0
            }
            (Some(current), Some(changes)) => merge_list(array_mut(current)?, changes, schema)?,
        };
        if let Some(current) = target.get_mut(name) {
            list::put_in_order(array_mut(current)?, order, known, merge_key(schema))?;
        }
        ordered.push(name);
    }
    Ok(ordered)
}

fn delete_from(target: &mut Map<String, Value>, name: &str, gone: &Value, schema: Option<&Schema>) -> Result<(), Refusal> {
    match (target.get_mut(name), gone) {
        (Some(Value::Array(current)), Value::Array(gone)) => {
            let schema = schema.and_then(|schema| schema.field(name)).map(AsRef::as_ref);
            list::delete(current, gone, merge_key(schema))
        }
        (Some(_), Value::Null) => {
            target.remove(name);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn merge_field(target: &mut Map<String, Value>, key: &str, value: &Value, schema: Option<&Schema>) -> Result<(), Refusal> {
    if value.is_null() {
        target.remove(key);
        return Ok(());
    }
    let schema = schema.and_then(|schema| schema.field(key)).map(AsRef::as_ref);
    match (target.get_mut(key), value) {
        (Some(Value::Object(current)), Value::Object(value)) => return merge_map(current, value, schema),
        (Some(Value::Array(current)), Value::Array(value)) => {
            let known = merge_list(current, value, schema)?;
            if schema.is_some_and(|schema| schema.strategy.merge) {
                list::put_in_order(current, value, known, merge_key(schema))?;
            }
            return Ok(());
        }
        (Some(current), Value::String(_) | Value::Number(_) | Value::Bool(_)) => current.clone_from(value),
        (_, value) if is_marked(value) => drop(target.remove(key)),
        (_, value) => drop(target.insert(key.to_owned(), stored(value, true))),
    }
    Ok(())
}

/// Returns how many elements of the result were there before; they come first.
fn merge_list(current: &mut Vec<Value>, changes: &[Value], schema: Option<&Schema>) -> Result<usize, Refusal> {
    if !schema.is_some_and(|schema| schema.strategy.merge) {
        *current = changes.iter().map(|change| stored(change, false)).collect();
        return Ok(0);
    }
    let items = schema.and_then(|schema| schema.items.as_deref());
    list::merge(current, changes, items, merge_key(schema))
}

fn merge_key(schema: Option<&Schema>) -> Option<&str> {
    schema.and_then(|schema| schema.strategy.merge_key.as_deref())
}

/// A part of a patch as it is stored where nothing was before: no directive and no null must get in. What is marked with
/// `$patch` as a whole is left out only if `drop_marked`: the real server keeps the rest of it where it adds list elements.
pub(super) fn stored(value: &Value, drop_marked: bool) -> Value {
    match value {
        Value::Object(map) => Value::Object(stored_fields(map, drop_marked)),
        Value::Array(list) => {
            let kept = list.iter().filter(|value| !(drop_marked && is_marked(value)));
            kept.map(|value| stored(value, drop_marked)).collect()
        }
        scalar => scalar.clone(),
    }
}

fn stored_fields(map: &Map<String, Value>, drop_marked: bool) -> Map<String, Value> {
    let is_directive =
        |key: &str| key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
    let kept = map.iter().filter(|(key, value)| !(value.is_null() || is_directive(key) || drop_marked && is_marked(value)));
    kept.map(|(key, value)| (key.clone(), stored(value, drop_marked))).collect()
}

fn stored_elements(list: &[Value]) -> Vec<Value> {
    list.iter().filter(|value| !is_marked(value)).map(|value| stored(value, true)).collect()
}

pub(super) fn is_marked(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.contains_key(DIRECTIVE))
}

fn array(value: &Value) -> Result<&Vec<Value>, Refusal> {
    value.as_array().ok_or_else(|| wrong_type("[]interface {}", value))
}

fn array_mut(value: &mut Value) -> Result<&mut Vec<Value>, Refusal> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(wrong_type("[]interface {}", other)),
    }
}

pub(super) fn wrong_type(expected: &str, value: &Value) -> Refusal {
    failure(format!("expected a {expected}, but received a {}", list::go_type(value)))
}

pub(super) fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> Refusal {
    let said = match directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", list::go_type(other), list::go_text(other)),
    };
    failure(format!("unknown patch type: {said} in map: {}", list::go_map(map)))
}

/// Most mistakes of a strategic merge patch are internal errors without a reason on the real server.
pub(super) fn failure(message: String) -> Refusal {
    Refusal { reason: "", ..Refusal::internal(message) }
}
