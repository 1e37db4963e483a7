//! In which form does the client want the answer?

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::builtin;
use crate::refusal::Refusal;
use crate::resource::Resource;
use crate::route::Query;
use crate::table::{self, Include};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Object,
    Table(Include),
    /// Metadata only.
    Partial,
}

/// The form and encoding that the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    pub form: Form,
    pub yaml: bool,
    /// `APIGroupDiscoveryList`, which only discovery has.
    pub aggregated: bool,
}

impl Accept {
    /// The first that we have, in the client's order.
    pub fn parse(header: &str, query: &Query) -> Result<Accept, Refusal> {
        let plain = Accept { form: Form::Object, yaml: false, aggregated: false };
        if header.trim().is_empty() {
            return Ok(plain);
        }
        let mut is_known = false;
        for entry in header.split(',') {
            let mut parts = entry.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let yaml = match kind {
                "application/json" | "*/*" | "application/*" => false,
                "application/yaml" => true,
                _ => continue,
            };
            let parameter = |name: &str| {
                let found = entry.split(';').skip(1).filter_map(|part| part.trim().split_once('=')).find(|(key, _)| *key == name);
                found.map(|(_, value)| value)
            };
            let is_meta =
                parameter("g").is_none_or(|group| group == "meta.k8s.io") && parameter("v").is_none_or(|version| version == "v1");
            match parameter("as") {
                None => return Ok(Accept { yaml, ..plain }),
                Some("Table") if is_meta => return Ok(Accept { form: Form::Table(include(query)?), yaml, ..plain }),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") if is_meta => {
                    return Ok(Accept { form: Form::Partial, yaml, ..plain });
                }
                Some("APIGroupDiscoveryList") if parameter("v") == Some("v2") => return Ok(Accept { aggregated: true, ..plain }),
                Some(_) => is_known = true,
            }
        }
        if is_known {
            return Err(Refusal::not_acceptable(
                "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
        Err(Refusal::not_acceptable(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ))
    }
}

fn include(query: &Query) -> Result<Include, Refusal> {
    match query.get("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::None),
        other => Err(Refusal::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))),
    }
}

/// An object as it is served in a version: with `apiVersion` and `kind`.
pub fn object_text<'a>(resource: &Resource, json: &'a str) -> Cow<'a, str> {
    let json = in_version(resource, json);
    let head = format!(r#"{{"apiVersion":"{}","kind":"{}","#, resource.api_version(), resource.kind);
    // At one go: a formatter would grow its text step by step.
    [head.as_str(), &json[1..]].concat().into()
}

/// As it is stored, with `apiVersion` and `kind`: what writes work on.
pub fn stored_value(resource: &Resource, json: &str) -> Value {
    with_kind(resource, serde_json::from_str(json).unwrap_or_default())
}

pub fn with_kind(resource: &Resource, mut value: Value) -> Value {
    value["apiVersion"] = json!(resource.api_version());
    value["kind"] = json!(resource.kind);
    value
}

pub fn object_value(resource: &Resource, json: &str) -> Value {
    serde_json::from_str(&object_text(resource, json)).unwrap_or_default()
}

/// Items of lists have no kind of their own if the kind is built in.
pub fn item_text<'a>(resource: &Resource, json: &'a str) -> Cow<'a, str> {
    match resource.custom {
        Some(_) => object_text(resource, json),
        None => in_version(resource, json),
    }
}

/// The two APIs for Events show one store in two shapes.
fn in_version<'a>(resource: &Resource, json: &'a str) -> Cow<'a, str> {
    match resource.is("events.k8s.io", "events") {
        true => builtin::event_from_core(serde_json::from_str(json).unwrap_or_default()).to_string().into(),
        false => json.into(),
    }
}

/// One object in a form.
pub fn present_one(resource: &Resource, json: &str, form: Form, columns: bool, now: Timestamp) -> String {
    match form {
        Form::Object => object_text(resource, json).into_owned(),
        Form::Table(include) => {
            let object = object_value(resource, json);
            table::table(resource, std::slice::from_ref(&object), None, include, columns, now).to_string()
        }
        Form::Partial => partial(&object_value(resource, json)).to_string(),
    }
}

/// A list in a form; `metadata` is that of the list.
pub fn present_list<'a>(
    resource: &Resource,
    items: impl Iterator<Item = &'a str>,
    metadata: &Value,
    form: Form,
    now: Timestamp,
) -> String {
    match form {
        Form::Object => {
            let mut metadata = metadata.clone();
            if resource.custom.is_some() && metadata.get("continue").is_none() {
                // Lists of custom kinds say it even where there is nothing to say.
                metadata["continue"] = json!("");
            }
            let head = format!(
                r#"{{"kind":"{}","apiVersion":"{}","metadata":{metadata},"items":["#,
                resource.list_kind,
                resource.api_version()
            );
            let mut text = head;
            for (at, json) in items.enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&item_text(resource, json));
            }
            text.push_str("]}");
            text
        }
        Form::Table(include) => {
            let objects: Vec<Value> = items.map(|json| object_value(resource, json)).collect();
            table::table(resource, &objects, Some(metadata.clone()), include, true, now).to_string()
        }
        Form::Partial => {
            let items: Vec<Value> = items.map(|json| partial(&object_value(resource, json))).collect();
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
                .to_string()
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
