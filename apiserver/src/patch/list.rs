//! How do two lists become one in a strategic merge patch, and in which order?
//!
//! Elements of the patch keep the patch's order (or that of `$setElementOrder`), those that only the server has keep
//! theirs, and among each other they stand as on the server, as far as that is possible.

use serde_json::{Map, Value};

use super::strategic::{DIRECTIVE, failure, is_marked, merge_map, stored, unknown_directive, wrong_type};
use crate::refusal::Refusal;
use crate::schema::Schema;

/// Merges without ordering: elements that were there before come first, and the answer is how many they are.
pub fn merge(current: &mut Vec<Value>, changes: &[Value], items: Option<&Schema>, key: Option<&str>) -> Result<usize, Refusal> {
    let Some(of_objects) = same_type(current, changes)? else { return Ok(0) };
    match (of_objects, key) {
        (true, Some(key)) => merge_objects(current, changes, items, key),
        (true, None) => Err(failure("cannot merge lists without merge key for struct".to_owned())),
        (false, _) => Ok(unite(current, changes)),
    }
}

/// `$deleteFromPrimitiveList`.
pub fn delete(current: &mut Vec<Value>, gone: &[Value], key: Option<&str>) -> Result<(), Refusal> {
    match same_type(current, gone)? {
        Some(true) => {
            let known = merge(current, gone, None, key)?;
            put_in_order(current, gone, known, key)
        }
        Some(false) | None => {
            current.retain(|one| !gone.contains(one));
            Ok(())
        }
    }
}

/// Elements that `order` names stand in its order; the others stay in theirs, each before the first of the named ones that
/// it preceded. `known` elements at the head were there before, and only they have a place to keep.
pub fn put_in_order(list: &mut Vec<Value>, order: &[Value], known: usize, key: Option<&str>) -> Result<(), Refusal> {
    let known = known.min(list.len());
    let mut named = Vec::new();
    let mut others = Vec::new();
    for (at, one) in list.iter().enumerate() {
        let identity = identity(one, key)?;
        // Equal ones count as the first of them.
        let before = position(&list[..known], identity, key)?.unwrap_or(usize::MAX);
        match position(order, identity, key)? {
            Some(place) => named.push((place, before, at)),
            None => others.push((before, at)),
        }
    }
    for one in order.iter().filter(|one| !is_marked(one)) {
        identity(one, key)?;
    }
    named.sort_by_key(|(place, _, _)| *place);
    others.sort_by_key(|(before, _)| *before);
    let mut sorted = Vec::with_capacity(list.len());
    let mut others = others.into_iter().peekable();
    for (_, before, at) in named {
        while let Some((_, other)) = others.next_if(|(other, _)| *other < before && before != usize::MAX) {
            sorted.push(other);
        }
        sorted.push(at);
    }
    sorted.extend(others.map(|(_, at)| at));
    if !sorted.is_sorted() {
        *list = sorted.into_iter().map(|at| list[at].take()).collect();
    }
    Ok(())
}

/// The elements of a patch must be among those of its `$setElementOrder`, in the same order; deletions need not.
pub fn check_order(changes: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Refusal> {
    if changes.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for change in changes {
        if key.is_some() && !change.is_object() {
            return Err(wrong_type("map[string]interface {}", change));
        }
        if is_marked(change) {
            continue;
        }
        let wanted = identity(change, key)?;
        loop {
            let Some(place) = places.next() else { return Err(order_differs(changes, order)) };
            if identity(place, key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

fn order_differs(changes: &[Value], order: &[Value]) -> Refusal {
    let (changes, order) = (go_list(changes), go_list(order));
    failure(format!("The order in patch list:\n{changes}\n doesn't match $setElementOrder list:\n{order}\n"))
}

/// Whether two lists hold objects; None if there is nothing in them. Mixed lists are refused.
fn same_type(left: &[Value], right: &[Value]) -> Result<Option<bool>, Refusal> {
    let mut all = left.iter().chain(right);
    let Some(first) = all.next() else { return Ok(None) };
    let kind = go_type(first);
    if first.is_array() {
        let message = "lists of lists are not supported".to_owned();
        return Err(Refusal { code: 422, reason: "Invalid", ..failure(message) });
    }
    if all.any(|one| go_type(one) != kind) {
        return Err(failure(format!("list element types are not identical: [{} {}]", go_list(left), go_list(right))));
    }
    Ok(Some(first.is_object()))
}

fn merge_objects(current: &mut Vec<Value>, changes: &[Value], items: Option<&Schema>, key: &str) -> Result<usize, Refusal> {
    let mut replaced = false;
    for change in changes {
        let Some(map) = change.as_object() else { continue };
        match map.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
            None => {}
            Some((_, Some("delete"))) => {
                let gone = map.get(key).ok_or_else(|| no_merge_key(change, key))?;
                current.retain(|one| one.get(key) != Some(gone));
            }
            Some((_, Some("replace"))) => replaced = true,
            Some((_, Some("merge"))) => return Err(failure("merging lists cannot yet be specified in the patch".to_owned())),
            Some((directive, _)) => return Err(unknown_directive(directive, map)),
        }
    }
    let kept = changes.iter().filter(|change| !is_marked(change));
    if replaced {
        *current = kept.map(|change| stored(change, false)).collect();
        return Ok(current.len());
    }
    let known = current.len();
    for change in kept {
        let wanted = change.get(key).ok_or_else(|| no_merge_key(change, key))?;
        let found = current.iter_mut().find(|one| one.get(key) == Some(wanted));
        match (found.and_then(Value::as_object_mut), change) {
            (Some(found), Value::Object(change)) => merge_map(found, change, items)?,
            _ => current.push(stored(change, false)),
        }
    }
    Ok(known)
}

/// Scalars, each once.
fn unite(current: &mut Vec<Value>, changes: &[Value]) -> usize {
    let before = std::mem::take(current);
    for one in before {
        if !current.contains(&one) {
            current.push(one);
        }
    }
    let known = current.len();
    for change in changes {
        if !current.contains(change) {
            current.push(change.clone());
        }
    }
    known
}

/// What tells elements apart: the value of the merge key, or the scalar itself.
fn identity<'a>(one: &'a Value, key: Option<&str>) -> Result<&'a Value, Refusal> {
    match (key, one) {
        (Some(key), Value::Object(map)) => map.get(key).ok_or_else(|| no_merge_key(one, key)),
        (Some(_), other) => Err(wrong_type("map[string]interface {}", other)),
        (None, scalar) => Ok(scalar),
    }
}

fn position(list: &[Value], identity: &Value, key: Option<&str>) -> Result<Option<usize>, Refusal> {
    for (at, one) in list.iter().enumerate() {
        let found = match key {
            None => Some(one),
            Some(key) => one.as_object().ok_or_else(|| failure(format!("value for key {at} is not a map")))?.get(key),
        };
        if found == Some(identity) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn no_merge_key(one: &Value, key: &str) -> Refusal {
    failure(format!("map: {} does not contain declared merge key: {key}", go_text(one)))
}

/// The type of a value as Go prints it.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go prints it: `map[name:a value:[1 2]]`.
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => go_list(list),
        Value::Object(map) => go_map(map),
        other => other.to_string(),
    }
}

fn go_list(list: &[Value]) -> String {
    format!("[{}]", list.iter().map(go_text).collect::<Vec<_>>().join(" "))
}

pub fn go_map(map: &Map<String, Value>) -> String {
    format!("map[{}]", map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect::<Vec<_>>().join(" "))
}
