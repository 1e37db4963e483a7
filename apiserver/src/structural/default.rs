//! What does the schema of a CRD fill in?

use serde_json::Value;

use crate::schema::Schema;

/// Fills in defaults of the schema, into objects that are there. Null where null is not allowed counts as missing: it
/// gives way to the default, or goes if there is none.
pub fn default(object: &mut Value, schema: &Schema) {
    match object {
        Value::Object(map) => {
            map.retain(|name, value| {
                let field = schema.field(name);
                !value.is_null() || field.is_none_or(|field| field.nullable || field.default.is_some() || !knows_null(field))
            });
            for (name, field) in &schema.properties {
                let Some(filled) = &field.default else { continue };
                if map.get(name).is_none_or(|value| value.is_null() && !field.nullable) {
                    map.insert(name.clone(), filled.clone());
                }
            }
            for (name, value) in map {
                if let Some(field) = schema.field(name) {
                    fill(value, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill(item, schema));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    if let (Value::Null, Some(filled), false) = (&*value, &schema.default, schema.nullable) {
        *value = filled.clone();
    }
    default(value, schema);
}

/// Built-in schemas (of metadata) say nothing of null.
fn knows_null(schema: &Schema) -> bool {
    schema.checks.is_some()
}
