//! What stands in the row of a custom kind? The results of its CRD's paths.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::jsonpath::Path;
use super::{age, cells::text};

/// What the CRD says of one column, ready to be used.
pub struct Column {
    kind: String,
    /// None: the name of the object.
    path: Option<Path>,
}

/// The name comes first in any case; a CRD without columns gets the age.
pub fn columns(written: &[Value]) -> Vec<Column> {
    let name = Column { kind: "string".to_owned(), path: None };
    let read =
        |column: &Value| Column { kind: text(&column["type"]).to_owned(), path: Some(Path::parse(text(&column["jsonPath"]))) };
    std::iter::once(name).chain(additional(written).iter().map(read)).collect()
}

pub fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    let cell = |column: &Column| match &column.path {
        None => json!(text(&object["metadata"]["name"])),
        Some(path) => path.first(object).map_or(Value::Null, |value| cell(&column.kind, &value, now)),
    };
    columns.iter().map(cell).collect()
}

/// The `columnDefinitions`.
pub fn definitions(written: &[Value]) -> Value {
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0});
    let rest = additional(written).into_iter().map(|column| {
        let path = text(&column["jsonPath"]);
        let description = match text(&column["description"]) {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            said => said.to_owned(),
        };
        json!({
            "name": column["name"], "type": column["type"], "format": text(&column["format"]),
            "description": description, "priority": column["priority"].as_i64().unwrap_or_default(),
        })
    });
    std::iter::once(name).chain(rest).collect()
}

/// What Kubernetes says of the two fields that it adds itself.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may \
    allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
    idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is \
    represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn additional(written: &[Value]) -> Vec<Value> {
    let own: Vec<Value> = written.iter().filter(|column| column["jsonPath"].is_string()).cloned().collect();
    match own.is_empty() {
        true => {
            vec![json!({"name": "Age", "type": "date", "description": CREATED, "jsonPath": ".metadata.creationTimestamp"})]
        }
        false => own,
    }
}

/// A value that is not of the column's type is not shown.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("string", value) => json!(printed(value)),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            // The fraction is cut off.
            (None, Some(fraction)) => json!(fraction as i64),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) if text == "null" => json!("<unknown>"),
        ("date", Value::String(_)) => json!(age::since(value, now)),
        _ => Value::Null,
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        Value::Number(number) => number.to_string(),
        // Go's encoder escapes what could be HTML.
        Value::Array(_) | Value::Object(_) => {
            value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
    }
}

/// As Go prints it: with an exponent where the plain form would be long.
fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match exponent {
        -4..21 => format!("{number}"),
        _ => format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}
