//! What is right for an Event, and how do its two APIs show the same object?
//!
//! Stored is the form of `v1`; `events.k8s.io/v1` is a view of it with other names for some fields.

use serde_json::{Map, Value, json};

use super::names;
use super::read::{drop_zero, fill, go_struct, invalid_text, text};
use crate::refusal::Cause;

/// Name in `v1`, name in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
/// As Kubernetes limits them, so that Events stay small.
const WORD_BYTES_MAX: usize = 128;
const NOTE_BYTES_MAX: usize = 1024;

/// From the view of `events.k8s.io/v1` to what is stored.
pub fn to_core(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!("v1"));
        rename(map, |(core, new)| (new, core));
        default_map(map);
    }
    object
}

/// From what is stored to the view of `events.k8s.io/v1`.
pub fn from_core(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
        rename(map, |(core, new)| (core, new));
        // Here an empty string is left out, in the other view it is not.
        drop_zero(map, &["reportingController", "reportingInstance", "deprecatedCount"]);
    }
    object
}

fn rename(map: &mut Map<String, Value>, order: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    for (from, to) in NAMES.map(order) {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// Of the stored form.
pub fn default(event: &mut Value) {
    if let Some(map) = event.as_object_mut() {
        default_map(map);
    }
}

fn default_map(map: &mut Map<String, Value>) {
    drop_zero(map, &["reason", "message", "type", "action", "count", "series", "related"]);
    for key in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        map.entry(key).or_insert(Value::Null);
    }
    for key in ["reportingComponent", "reportingInstance"] {
        fill(map, key, json!(""));
    }
    for key in ["involvedObject", "source"] {
        fill(map, key, json!({}));
    }
}

/// The event in its stored form. `strict` is for requests to `events.k8s.io/v1`.
pub fn validate(event: &Value, strict: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    about(event, &mut causes);
    if !event["eventTime"].is_null() {
        reported(event, strict, &mut causes);
    }
    causes
}

pub fn validate_create(event: &Value, strict: bool) -> Vec<Cause> {
    let mut causes = validate(event, strict);
    if !strict {
        return causes;
    }
    let unset = |field: &str| Cause::invalid(field, &"".into(), "needs to be unset");
    series(event, &mut causes);
    if event["eventTime"].is_null() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if kind != "Normal" && kind != "Warning" {
        causes.push(Cause::invalid("type", &"".into(), format!("has invalid value: {kind}")));
    }
    let times = ["firstTimestamp", "lastTimestamp"].into_iter().filter(|key| !event[*key].is_null());
    causes.extend(times.map(unset));
    if event["count"].as_i64().is_some_and(|count| count != 0) {
        causes.push(unset("count"));
    }
    if !text(&event["source"], "component").is_empty() || !text(&event["source"], "host").is_empty() {
        causes.push(unset("source"));
    }
    causes
}

/// Through `events.k8s.io/v1` only the series may change.
pub fn validate_update(event: &Value, old: &Value, strict: bool) -> Vec<Cause> {
    const OBJECT: [(&str, &str, &str); 7] = [
        ("Kind", "kind", "\"\""),
        ("Namespace", "namespace", "\"\""),
        ("Name", "name", "\"\""),
        ("UID", "uid", "\"\""),
        ("APIVersion", "apiVersion", "\"\""),
        ("ResourceVersion", "resourceVersion", "\"\""),
        ("FieldPath", "fieldPath", "\"\""),
    ];
    const SOURCE: [(&str, &str, &str); 2] = [("Component", "component", "\"\""), ("Host", "host", "\"\"")];
    const KEPT: [(&str, &str); 14] = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    let mut causes = validate(event, strict);
    if !strict {
        return causes;
    }
    if event["series"] != old["series"] {
        series(event, &mut causes);
    }
    for (key, name) in KEPT.into_iter().filter(|(key, _)| event[*key] != old[*key]) {
        let value = &event[key];
        causes.push(match key {
            "involvedObject" | "related" if value.is_object() => {
                invalid_text(name, &go_struct(value, &OBJECT), "field is immutable")
            }
            "source" => invalid_text(name, &go_struct(value, &SOURCE), "field is immutable"),
            "reason" | "message" | "type" | "action" => Cause::invalid(name, &text(event, key).into(), "field is immutable"),
            _ => Cause::invalid(name, value, "field is immutable"),
        });
    }
    causes
}

/// An Event lives where its object lives; those about nodes and the like live in `default`.
fn about(event: &Value, causes: &mut Vec<Cause>) {
    let (namespace, about) = (text(&event["metadata"], "namespace"), text(&event["involvedObject"], "namespace"));
    let fits = match (event["eventTime"].is_null(), about) {
        (true, "") => namespace.is_empty() || namespace == "default",
        (true, about) => namespace == about,
        (false, "") => namespace == "default" || namespace == "kube-system",
        (false, _) => true,
    };
    if !fits {
        causes.push(Cause::invalid("involvedObject.namespace", &about.into(), "does not match event.namespace"));
    }
}

fn reported(event: &Value, strict: bool, causes: &mut Vec<Cause>) {
    let controller = text(event, "reportingComponent");
    let name = if strict { "reportingController" } else { "reportingComponent" };
    if controller.is_empty() {
        causes.push(Cause::required(name, ""));
    }
    causes.extend(names::qualified(controller).into_iter().map(|detail| Cause::invalid(name, &controller.into(), detail)));
    for (key, bytes_max, needed) in [
        ("reportingInstance", WORD_BYTES_MAX, true),
        ("action", WORD_BYTES_MAX, true),
        ("reason", WORD_BYTES_MAX, true),
        ("message", NOTE_BYTES_MAX, false),
    ] {
        let length = text(event, key).len();
        if needed && length == 0 {
            causes.push(Cause::required(key, ""));
        }
        if length > bytes_max {
            causes.push(Cause::invalid(key, &"".into(), format!("can have at most {bytes_max} characters")));
        }
    }
}

fn series(event: &Value, causes: &mut Vec<Cause>) {
    let series = &event["series"];
    if !series.is_object() {
        return;
    }
    if series["count"].as_i64().unwrap_or_default() < 2 {
        causes.push(Cause::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
}
