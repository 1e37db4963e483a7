//! What does a built-in kind not store? Nulls, and lists and maps with nothing in them.

use serde_json::Value;

use crate::schema::{Schema, Type};

/// These are stored even when they are empty.
const KEPT: [&str; 3] = ["rules", "containers", "storedVersions"];

pub fn drop_empty(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let Some(field) = schema.field(key) else { return true };
                // A value of a map is there, whatever it is.
                if !schema.properties.contains_key(key) {
                    if value.is_null() && field.kind == Type::String {
                        *value = Value::String(String::new());
                    }
                    return true;
                }
                drop_empty(value, field);
                !is_empty(value, field) || (KEPT.contains(&key.as_str()) && !value.is_null())
            });
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            list.iter_mut().for_each(|item| drop_empty(item, items));
        }
        _ => {}
    }
}

/// An object with fields of its own is there even if none of them is.
fn is_empty(value: &Value, schema: &Schema) -> bool {
    match value {
        Value::Null => schema.kind != Type::Any,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && schema.values.is_some(),
        _ => false,
    }
}
