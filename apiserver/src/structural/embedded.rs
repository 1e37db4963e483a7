//! Are the objects inside of an object such?

use serde_json::Value;

use crate::refusal::Cause;
use crate::schema::Schema;
use crate::structural::names::is_dns_label;

pub fn check(value: &Value, schema: &Schema, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    match value {
        Value::Object(map) => {
            if schema.embedded_resource && !path.is_empty() {
                causes.extend(of_object(value, path));
            }
            for (name, value) in map {
                let below = match schema.properties.contains_key(name) {
                    _ if path.is_empty() => name.clone(),
                    true => format!("{path}.{name}"),
                    false => format!("{path}[{name}]"),
                };
                if let Some(field) = schema.field(name).filter(|field| field.checks.is_some()) {
                    causes.extend(check(value, field, &below));
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return causes };
            for (index, item) in items.iter().enumerate() {
                causes.extend(check(item, schema, &format!("{path}[{index}]")));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    causes
}

/// It needs an apiVersion and a kind; metadata only if it wants to.
fn of_object(object: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["apiVersion", "kind"] {
        if object.get(name).is_none() {
            causes.push(Cause::required(format!("{path}.{name}"), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let Some(value) = object.get(name) else { continue };
        let broken = match value.as_str() {
            None => "must be a string".to_owned(),
            Some("") => "must not be empty".to_owned(),
            Some(version) if name == "apiVersion" => match version.matches('/').count() {
                0 | 1 => continue,
                _ => format!("unexpected GroupVersion string: {version}"),
            },
            Some(kind) => match is_dns_label(&kind.to_lowercase()).join(",") {
                broken if broken.is_empty() => continue,
                broken => format!("may have mixed case, but should otherwise match: {broken}"),
            },
        };
        causes.push(Cause::invalid(format!("{path}.{name}"), value, broken));
    }
    causes.extend(of_name(object, path));
    causes
}

fn of_name(object: &Value, path: &str) -> Option<Cause> {
    let name = object.get("metadata")?.get("name")?;
    let text = name.as_str()?;
    let broken = match text {
        "." | ".." => format!("may not be '{text}'"),
        _ if text.contains('/') => "may not contain '/'".to_owned(),
        _ if text.contains('%') => "may not contain '%'".to_owned(),
        _ => return None,
    };
    Some(Cause::invalid(format!("{path}.metadata.name"), name, broken))
}
