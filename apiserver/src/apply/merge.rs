//! What does an object look like once a configuration is applied to it?

use serde_json::{Map, Value};

use super::compare::{Parts, field, find, is_declared, items, parts, step};
use super::set::Set;
use crate::schema::Schema;

/// What `live` becomes. A null asks for nothing where there are parts to keep; elsewhere it is a value like others.
pub fn merge(live: &mut Value, applied: &Value, schema: Option<&Schema>, is_root: bool) {
    if applied.is_null() {
        let has_parts = match parts(live, live, schema) {
            Parts::Fields(map) => !map.is_empty(),
            Parts::Elements(list, _) => !list.is_empty(),
            Parts::Whole => false,
        };
        if !has_parts {
            *live = Value::Null;
        }
        return;
    }
    match parts(applied, applied, schema) {
        Parts::Fields(fields) if live.is_object() || live.is_null() => {
            if live.is_null() {
                *live = Value::Object(Map::new());
            }
            let Value::Object(live) = live else { return };
            for (name, value) in fields {
                let child = field(schema, name, is_root);
                match live.get_mut(name) {
                    Some(current) => merge(current, value, child, false),
                    None => drop(live.insert(name.clone(), value.clone())),
                }
            }
        }
        Parts::Elements(elements, keys) if live.is_array() => {
            let Value::Array(live) = live else { return };
            *live = merge_elements(std::mem::take(live), elements, keys, items(schema));
        }
        Parts::Whole | Parts::Fields(_) | Parts::Elements(..) => live.clone_from(applied),
    }
}

/// Elements of the configuration keep its order; those that only the live list has stay where they were among the rest.
fn merge_elements(live: Vec<Value>, applied: &[Value], keys: &[String], items: Option<&Schema>) -> Vec<Value> {
    let places: Vec<Option<usize>> = live.iter().enumerate().map(|(at, one)| find(applied, one, at, keys, items)).collect();
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let mut shared = (0..applied.len()).filter(|at| places.contains(&Some(*at))).peekable();
    let (mut left, mut right) = (0, 0);
    let mut is_done = vec![false; applied.len()];
    while left < live.len() || right < applied.len() {
        if let (Some(place), true) = (places.get(left).copied().flatten(), right < applied.len()) {
            // A shared element whose turn it is not yet, or that was taken already, waits for its place in the configuration.
            if place != right && shared.peek().is_some_and(|next| *next != place) {
                left += 1;
                continue;
            }
        }
        match places.get(left) {
            Some(None) => {
                merged.extend(live[left].take());
                left += 1;
                continue;
            }
            Some(Some(place)) if *place == right || is_done[*place] => left += 1,
            Some(Some(_)) | None => {}
        }
        if right < applied.len() {
            let mut one =
                places.iter().position(|place| *place == Some(right)).and_then(|at| live[at].take()).unwrap_or_default();
            merge(&mut one, &applied[right], items, false);
            merged.push(one);
            is_done[right] = true;
            shared.next_if_eq(&right);
            right += 1;
        }
    }
    merged
}

/// A set together with the fields of types on the way to its members: who owns something in a field needs the field.
pub fn with_fields(set: &Set, schema: Option<&Schema>, is_root: bool) -> Set {
    let child = |(key, child): (&String, &Set)| {
        let name = key.strip_prefix("f:");
        let schema_of_child = name.map_or(items(schema), |name| field(schema, name, is_root));
        let mut full = with_fields(child, schema_of_child, false);
        full.member = child.member || name.is_some_and(|name| is_declared(schema, name, is_root));
        (key.clone(), full)
    };
    Set { member: set.member, children: set.children.iter().map(child).collect() }
}

/// Takes the members of a set out of an object, each with all that it holds.
pub fn remove(object: &mut Value, gone: &Set, schema: Option<&Schema>, is_root: bool) {
    match object {
        Value::Object(map) => {
            let steps: Vec<(&str, &Set)> =
                gone.children.iter().filter_map(|(key, set)| Some((key.strip_prefix("f:")?, set))).collect();
            for (name, set) in steps {
                match map.get_mut(name) {
                    Some(_) if set.member => drop(map.remove(name)),
                    Some(value) => remove(value, set, field(schema, name, is_root), false),
                    None => {}
                }
            }
        }
        Value::Array(list) => remove_elements(list, gone, schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn remove_elements(list: &mut Vec<Value>, gone: &Set, schema: Option<&Schema>) {
    let none = Value::Array(Vec::new());
    let Parts::Elements(_, keys) = parts(&none, &none, schema) else { return };
    let items = items(schema);
    list.retain_mut(|one| {
        let name = step(one, keys, items).render();
        match gone.children.get(&name) {
            Some(set) if set.member => false,
            Some(set) => {
                remove(one, set, items, false);
                true
            }
            None => true,
        }
    });
}
