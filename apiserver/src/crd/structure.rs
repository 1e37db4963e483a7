//! Is a schema structural?
//!
//! Every field is described outside of `allOf`, `anyOf`, `oneOf` and `not`, with a type, so that pruning and defaulting
//! know what to do without evaluating alternatives.

use serde_json::{Map, Value, json};

use crate::crd::{list, text};
use crate::refusal::Cause;
use crate::structural::compile_pattern;

pub fn validate(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    structure(schema, Level::Root, path, &mut causes);
    completeness(schema, schema, path, path, &mut causes);
    causes.sort_by_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn structure(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    let flag = |key: &str| schema[key] == true;
    if kind == "array" && schema["items"].is_null() {
        causes.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    if schema["items"].is_object() {
        structure(&schema["items"], Level::Item, &format!("{path}.items"), causes);
    }
    for (name, field) in fields(schema) {
        structure(field, Level::Field, &format!("{path}.properties[{name}]"), causes);
    }
    let values = &schema["additionalProperties"];
    if !values.is_null() && level == Level::Root {
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
    }
    if values.is_object() {
        structure(values, Level::Field, &format!("{path}.additionalProperties"), causes);
    }
    let either = flag("x-kubernetes-int-or-string");
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if either && flag(key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(format!("{path}.{key}"), &json!(true), detail));
        }
    }
    alternatives(schema, is_either(&schema["anyOf"]), is_either(&schema["allOf"][0]["anyOf"]), path, causes);
    of_type(schema, kind, level, path, causes);
    of_meta(schema, level, path, causes);
}

fn of_type(schema: &Value, kind: &str, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let flag = |key: &str| schema[key] == true;
    let field = format!("{path}.type");
    let embedded = flag("x-kubernetes-embedded-resource");
    let preserves = flag("x-kubernetes-preserve-unknown-fields");
    let of_embedded = "must be object if x-kubernetes-embedded-resource is true";
    match kind {
        "" if embedded => causes.push(Cause::required(&field, of_embedded)),
        "" if !flag("x-kubernetes-int-or-string") && !preserves => {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            causes.push(Cause::required(&field, detail));
        }
        kind if embedded && kind != "object" => causes.push(Cause::invalid(&field, &json!(kind), of_embedded)),
        _ => {}
    }
    if embedded && !schema["additionalProperties"].is_null() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid(&field, &json!(kind), "must be object at the root"));
    }
    if embedded && !preserves && fields(schema).next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(format!("{path}.properties"), detail));
    }
}

/// What every object has is not for the schema to describe; only names may be restricted.
fn of_meta(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let is_resource = level == Level::Root || schema["x-kubernetes-embedded-resource"] == true;
    let properties = &schema["properties"];
    for key in ["kind", "apiVersion"] {
        let field = &properties[key];
        if is_resource && field.is_object() && text(field, "type") != "string" {
            let path = format!("{path}.properties[{key}].type");
            causes.push(Cause::invalid(path, &json!(text(field, "type")), "must be string"));
        }
    }
    let Some(metadata) = properties["metadata"].as_object() else { return };
    let path = format!("{path}.properties[metadata]");
    let kind = text(&properties["metadata"], "type");
    if is_resource && kind != "object" {
        causes.push(Cause::invalid(format!("{path}.type"), &json!(kind), "must be object"));
    }
    let only_names = |fields: &Value| {
        fields.as_object().is_some_and(|map| map.keys().all(|name| ["name", "generateName"].contains(&name.as_str())))
    };
    let allowed = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => only_names(value),
        _ => false,
    };
    if level == Level::Root && !metadata.iter().all(allowed) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(path, detail));
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, which is allowed for int-or-string.
fn is_either(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn alternatives(schema: &Value, skip_any: bool, skip_first_all: bool, path: &str, causes: &mut Vec<Cause>) {
    for (index, one) in list(&schema["anyOf"]).iter().enumerate().filter(|_| !skip_any) {
        nested(one, false, &format!("{path}.anyOf[{index}]"), causes);
    }
    for (index, one) in list(&schema["allOf"]).iter().enumerate() {
        nested(one, skip_first_all && index == 0, &format!("{path}.allOf[{index}]"), causes);
    }
    for (index, one) in list(&schema["oneOf"]).iter().enumerate() {
        nested(one, false, &format!("{path}.oneOf[{index}]"), causes);
    }
    if schema["not"].is_object() {
        nested(&schema["not"], false, &format!("{path}.not"), causes);
    }
    let pattern = text(schema, "pattern");
    if let Err(error) = compile_pattern(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(Cause::invalid(format!("{path}.pattern"), &json!(pattern), detail));
    }
}

/// Below an alternative only values are judged; nothing may be described there.
fn nested(schema: &Value, skip_any: bool, path: &str, causes: &mut Vec<Cause>) {
    alternatives(schema, skip_any, false, path, causes);
    if schema["items"].is_object() {
        nested(&schema["items"], false, &format!("{path}.items"), causes);
    }
    for (name, field) in fields(schema) {
        nested(field, false, &format!("{path}.properties[{name}]"), causes);
    }
    let is_set = |key: &str| match &schema[key] {
        Value::Null | Value::Bool(false) => key == "additionalProperties" && schema[key] == false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    };
    let empty = ["type", "title", "description", "x-kubernetes-list-map-keys", "x-kubernetes-validations"];
    let undefined = ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"];
    let unset =
        ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"];
    for (keys, must) in [(&empty[..], "empty"), (&undefined[..], "undefined"), (&unset[..], "false")] {
        for key in keys.iter().filter(|key| is_set(key)) {
            causes.push(Cause::forbidden(format!("{path}.{key}"), &format!("must be {must} to be structural")));
        }
    }
    if schema["properties"]["metadata"].is_object() {
        let path = format!("{path}.properties[metadata]");
        causes.push(Cause::forbidden(path, "must not be specified in a nested context"));
    }
}

/// What an alternative judges must be described outside of it.
fn completeness(values: &Value, schema: &Value, path: &str, place: &str, causes: &mut Vec<Cause>) {
    let mut judge = |one: &Value, place: String| {
        completeness(one, schema, path, &place, causes);
        if one["items"].is_object() && !schema["items"].is_object() {
            let detail = format!("because it is defined in {place}.items");
            causes.push(Cause::required(format!("{path}.items"), &detail));
        } else if one["items"].is_object() {
            completeness(&one["items"], &schema["items"], &format!("{path}.items"), &format!("{place}.items"), causes);
        }
        for (name, field) in fields(one) {
            let (path, place) = (format!("{path}.properties[{name}]"), format!("{place}.properties[{name}]"));
            match schema["properties"].get(name) {
                None => causes.push(Cause::required(path, &format!("because it is defined in {place}"))),
                Some(known) => completeness(field, known, &path, &place, causes),
            }
        }
    };
    if values["not"].is_object() {
        judge(&values["not"], format!("{place}.not"));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, one) in list(&values[key]).iter().enumerate() {
            judge(one, format!("{place}.{key}[{index}]"));
        }
    }
}

fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}
