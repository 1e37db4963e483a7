//! Which fields may a field selector name, and what is their value?

use serde_json::Value;

use super::read::text;
use crate::resource::Resource;

/// Of built-in kinds; those of custom kinds are in the resource.
pub fn selectable(resource: &Resource) -> &'static [&'static str] {
    own(resource).unwrap_or(&["metadata.name", "metadata.namespace"])
}

/// What the 400 says.
pub fn unsupported(resource: &Resource, field: &str) -> String {
    match own(resource).is_some() || resource.custom.is_some() {
        true => format!("field label not supported: {field}"),
        false => format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
    }
}

/// `object` is as it is stored: an Event in the form of `v1` whichever API asks.
pub fn field_value(resource: &Resource, object: &Value, field: &str) -> String {
    let core = match field.strip_prefix("regarding.") {
        Some(rest) if resource.group == "events.k8s.io" => return read(&object["involvedObject"], rest),
        Some(_) | None => field,
    };
    match core {
        "source" => match text(&object["source"], "component") {
            "" => text(object, "reportingComponent").to_owned(),
            component => component.to_owned(),
        },
        "reportingController" => text(object, "reportingComponent").to_owned(),
        "spec.unschedulable" => (object["spec"]["unschedulable"] == true).to_string(),
        "spec.hostNetwork" => (object["spec"]["hostNetwork"] == true).to_string(),
        "status.podIPs" => {
            let addresses = object["status"]["podIPs"].as_array().into_iter().flatten();
            addresses.map(|address| text(address, "ip")).collect::<Vec<_>>().join(",")
        }
        path => read(object, path),
    }
}

fn read(object: &Value, path: &str) -> String {
    let value = path.split('.').fold(object, |value, key| &value[key]);
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn own(resource: &Resource) -> Option<&'static [&'static str]> {
    let fields: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["metadata.name", "spec.unschedulable"],
        ("", "secrets") => &["metadata.name", "metadata.namespace", "type"],
        ("", "namespaces") => &["metadata.name", "status.phase"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
            "metadata.name",
            "metadata.namespace",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
            "metadata.name",
            "metadata.namespace",
        ],
        ("certificates.k8s.io", _) => &["metadata.name", "spec.signerName"],
        _ => return None,
    };
    Some(fields)
}
