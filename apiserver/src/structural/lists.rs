//! Are the items of sets and keyed lists told apart?

use serde_json::{Map, Value};

use crate::refusal::Cause;
use crate::schema::{List, Schema};

pub fn check(value: &Value, schema: &Schema, path: &str) -> Vec<Cause> {
    match value {
        Value::Object(map) => map.iter().flat_map(|(name, value)| of_field(name, value, schema, path)).collect(),
        Value::Array(items) => of_list(items, schema, path),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn of_field(name: &str, value: &Value, schema: &Schema, path: &str) -> Vec<Cause> {
    match (schema.properties.get(name), &schema.values) {
        (Some(field), _) if field.checks.is_none() => Vec::new(),
        (Some(field), _) if path.is_empty() => check(value, field, name),
        (Some(field), _) => check(value, field, &format!("{path}.{name}")),
        (None, Some(values)) => check(value, values, &format!("{path}[{name}]")),
        (None, None) => Vec::new(),
    }
}

fn of_list(items: &[Value], schema: &Schema, path: &str) -> Vec<Cause> {
    let mut causes = match &schema.list {
        List::Atomic => Vec::new(),
        List::Set => repeated(items).map(|index| Cause::duplicate(format!("{path}[{index}]"), &items[index])).collect(),
        List::Map { keys } => of_keyed(items, keys, path),
    };
    if let Some(schema) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            causes.extend(check(item, schema, &format!("{path}[{index}]")));
        }
    }
    causes
}

fn of_keyed(items: &[Value], keys: &[String], path: &str) -> Vec<Cause> {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        return vec![Cause::invalid(format!("{path}[{index}]"), &items[index], detail)];
    }
    let key = |item: &Value| {
        let parts = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(parts.collect::<Map<String, Value>>())
    };
    let keyed: Vec<Value> = items.iter().map(key).collect();
    repeated(&keyed).map(|index| Cause::duplicate(format!("{path}[{index}]"), &keyed[index])).collect()
}

/// Where a value is seen for the second time; the third is not worth another word.
fn repeated(items: &[Value]) -> impl Iterator<Item = usize> + '_ {
    (0..items.len()).filter(|index| items[..*index].iter().filter(|one| **one == items[*index]).count() == 1)
}
