//! May a CRD say this in its schema?

use serde_json::{Map, Value, json};

use crate::cel;
use crate::crd::{list, serve, structure, text};
use crate::refusal::Cause;
use crate::schema::Schema;
use crate::structural::{fit, prune};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// What may stand at the root beside a status subresource, so that the status can be judged alone.
const AT_ROOT: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
const AT_ROOT_SHOWN: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
                             MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items \
                             Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at \
                             the root of the schema if the status subresource is enabled";

pub fn validate(schema: &Value, path: &str, has_status: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let keys = schema.as_object().map(|map| map.keys()).into_iter().flatten();
    if has_status && keys.clone().any(|key| !AT_ROOT.contains(&key.as_str()) && schema[key] != false) {
        causes.push(Cause::invalid(path, schema, AT_ROOT_SHOWN));
    }
    if schema["nullable"] == true {
        causes.push(Cause::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let mut found = structure_unless_listed(schema, path);
    if found.is_empty() {
        defaults(schema, path, &mut found);
    }
    let is_structural = found.is_empty();
    causes.extend(found);
    let before = causes.len();
    of_schema(schema, path, &Place { root: true, ..Place::default() }, &mut causes);
    if is_structural && causes.len() == before {
        causes.extend(cel::compile(schema, path));
    }
    causes
}

/// A schema that cannot even be read as structural (`$ref`, lists of items) is only told that.
fn structure_unless_listed(schema: &Value, path: &str) -> Vec<Cause> {
    if is_readable(schema) { structure::validate(schema, path) } else { Vec::new() }
}

fn is_readable(schema: &Value) -> bool {
    let forbidden = ["$ref", "id", "patternProperties", "definitions", "dependencies", "additionalItems"];
    let is_plain = forbidden.iter().all(|key| schema[*key].is_null() || schema[*key] == "");
    let is_single = !schema["items"].is_array() && schema["uniqueItems"] != true;
    let is_exclusive = !schema["additionalProperties"].is_object() || fields(schema).next().is_none();
    let kind = text(schema, "type");
    let is_known = kind.is_empty() || TYPES.contains(&kind);
    is_plain && is_single && is_exclusive && is_known && below(schema).all(|(_, one)| is_readable(one))
}

/// Values that are filled in must be valid and hold no unknown fields.
fn defaults(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let filled = &schema["default"];
    if !filled.is_null() {
        let understood = serve::understand(Schema::of_crd(schema), false);
        let mut pruned = filled.clone();
        prune(&mut pruned, &understood);
        if pruned != *filled {
            causes.push(Cause::invalid(format!("{path}.default"), filled, "must not have unknown fields"));
        }
        causes.extend(fit(filled, None, &understood, &format!("{path}.default")));
    }
    if schema["items"].is_object() {
        defaults(&schema["items"], &format!("{path}.items"), causes);
    }
    for (name, field) in fields(schema) {
        defaults(field, &format!("{path}.properties[{name}]"), causes);
    }
}

/// What the schemas around this one say about it.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    in_metadata: bool,
    no_default: Option<String>,
}

fn of_schema(schema: &Value, path: &str, place: &Place, causes: &mut Vec<Cause>) {
    unsupported(schema, path, place, causes);
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(format!("{path}.uniqueItems"), detail));
    }
    let values = &schema["additionalProperties"];
    if (values.is_object() || *values == false) && fields(schema).next().is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), detail));
    }
    let inner = Place { root: false, ..place.clone() };
    if values.is_object() {
        let reason = || "inside additionalProperties applying to object metadata".to_owned();
        let no_default = if place.in_metadata { Some(reason()) } else { place.no_default.clone() };
        of_schema(values, &format!("{path}.additionalProperties"), &Place { no_default, ..inner.clone() }, causes);
    }
    let is_resource = place.root || schema["x-kubernetes-embedded-resource"] == true;
    for (name, field) in fields(schema) {
        let mut inner = inner.clone();
        if is_resource && ["metadata", "kind", "apiVersion"].contains(&name.as_str()) {
            inner.in_metadata = true;
            inner.no_default = if place.root { Some(format!("in top-level {name}")) } else { inner.no_default };
        }
        of_schema(field, &format!("{path}.properties[{name}]"), &inner, causes);
    }
    for (key, one) in below(schema).filter(|(key, _)| !key.starts_with("properties[") && key != "additionalProperties") {
        of_schema(one, &format!("{path}.{key}"), &inner, causes);
    }
    of_maps_and_lists(schema, path, causes);
    for (index, rule) in list(&schema["x-kubernetes-validations"]).iter().enumerate() {
        of_rule(rule, &format!("{path}.x-kubernetes-validations[{index}]"), causes);
    }
}

fn unsupported(schema: &Value, path: &str, place: &Place, causes: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(Cause::not_supported(format!("{path}.type"), &json!(kind), &TYPES));
    }
    if let (false, Some(reason)) = (schema["default"].is_null(), &place.no_default) {
        causes.push(Cause::forbidden(format!("{path}.default"), &format!("must not be set {reason}")));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let value = &schema[key];
        if !value.is_null() && value != "" && *value != json!({}) {
            causes.push(Cause::forbidden(format!("{path}.{key}"), &format!("{key} is not supported")));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        causes.push(Cause::forbidden(format!("{path}.type"), detail));
    }
    if schema["items"].is_array() {
        causes.push(Cause::forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
    }
    if place.in_metadata && schema["x-kubernetes-embedded-resource"] == true {
        let path = format!("{path}.x-kubernetes-embedded-resource");
        causes.push(Cause::forbidden(path, "must not be used inside of resource meta"));
    }
}

fn of_maps_and_lists(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(path, &json!(false), "must be true or undefined"));
    }
    let mut demand = |wanted: &str, key: &str| {
        let detail = format!("must be {wanted} if {key} is specified");
        match kind {
            "" => causes.push(Cause::required(format!("{path}.type"), &detail)),
            kind if kind != wanted => causes.push(Cause::invalid(format!("{path}.type"), &json!(kind), detail)),
            _ => {}
        }
    };
    let map_type = schema["x-kubernetes-map-type"].as_str();
    let list_type = schema["x-kubernetes-list-type"].as_str();
    map_type.iter().for_each(|_| demand("object", "x-kubernetes-map-type"));
    list_type.iter().for_each(|_| demand("array", "x-kubernetes-list-type"));
    if let Some(other) = map_type.filter(|one| !["atomic", "granular"].contains(one)) {
        let path = format!("{path}.x-kubernetes-map-type");
        causes.push(Cause::not_supported(path, &json!(other), &["atomic", "granular"]));
    }
    let items = &schema["items"];
    if list_type == Some("set") {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let inner = &items["x-kubernetes-list-type"];
        if text(items, "type") == "array" && !inner.is_null() && inner != "atomic" {
            causes.push(Cause::invalid(format!("{path}.items.x-kubernetes-list-type"), inner, detail));
        } else if text(items, "type") == "object" && items["x-kubernetes-map-type"] != "atomic" {
            causes.push(Cause::invalid(format!("{path}.items.x-kubernetes-map-type"), inner, detail));
        }
    }
    let field = format!("{path}.x-kubernetes-list-type");
    if let Some(other) = list_type.filter(|one| !["atomic", "set", "map"].contains(one)) {
        causes.push(Cause::not_supported(&field, &json!(other), &["atomic", "set", "map"]));
    }
    let keys = list(&schema["x-kubernetes-list-map-keys"]);
    let needs_map = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list_type {
        None if !keys.is_empty() => causes.push(Cause::required(field, needs_map)),
        Some(other) if !keys.is_empty() && other != "map" => causes.push(Cause::invalid(field, &json!(other), needs_map)),
        Some("map") => of_keys(keys, schema, path, causes),
        Some(_) | None => {}
    }
    if let Some(kind) = list_type.filter(|one| ["set", "map"].contains(one) && items["nullable"] == true) {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        causes.push(Cause::forbidden(format!("{path}.items.nullable"), &detail));
    }
}

/// Items are found by their keys: these must be there, and simple.
fn of_keys(keys: &[Value], schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let items = &schema["items"];
    let all = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        causes.push(Cause::required(&all, "must not be empty if x-kubernetes-list-type is map"));
    }
    if items.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        causes.push(Cause::required(format!("{path}.items"), detail));
    } else if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(format!("{path}.items.type"), &json!(text(items, "type")), detail));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let field = &items["properties"][name];
        let place = format!("{path}.items.properties[{name}]");
        if field.is_null() {
            causes.push(Cause::invalid(&all, &json!(keys), "entries must all be names of item properties"));
        } else if ["array", "object"].contains(&text(field, "type")) {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(Cause::invalid(format!("{place}.type"), &json!("object"), detail));
        }
        if keys[..index].contains(key) {
            causes.push(Cause::invalid(&all, &json!(keys), "must not contain duplicate entries"));
        }
        if !field.is_null() && !list(&items["required"]).contains(key) && field["default"].is_null() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(format!("{place}.default"), detail));
        }
        if field["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(format!("{place}.nullable"), detail));
        }
    }
}

fn of_rule(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let has_breaks = |text: &str| text.trim().contains(['\n', '\r']);
    let (expression, message) = (text(rule, "rule"), text(rule, "message"));
    let field = format!("{path}.message");
    if expression.trim().is_empty() {
        causes.push(Cause::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        causes.push(Cause::invalid(field, &json!(message), "must be non-empty if specified"));
    } else if has_breaks(message) {
        causes.push(Cause::invalid(field, &json!(message), "must not contain line breaks"));
    } else if has_breaks(expression) && message.is_empty() {
        causes.push(Cause::required(field, "message must be specified if rule contains line breaks"));
    }
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        causes.push(Cause::not_supported(format!("{path}.reason"), &json!(reason), &REASONS));
    }
    let place = text(rule, "fieldPath");
    if !place.is_empty() && place.trim().is_empty() {
        causes.push(Cause::invalid(format!("{path}.fieldPath"), &json!(place), "must be non-empty if specified"));
    } else if has_breaks(place) {
        causes.push(Cause::invalid(format!("{path}.fieldPath"), &json!(place), "must not contain line breaks"));
    }
}

/// Every schema inside of this one, with its place.
fn below(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let named = fields(schema).map(|(name, one)| (format!("properties[{name}]"), one));
    let single = ["additionalProperties", "not", "items"].into_iter().map(|key| (key.to_owned(), &schema[key]));
    let listed = ["allOf", "oneOf", "anyOf"]
        .into_iter()
        .flat_map(|key| list(&schema[key]).iter().enumerate().map(move |(index, one)| (format!("{key}[{index}]"), one)));
    named.chain(single).chain(listed).filter(|(_, one)| one.is_object())
}

fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> + Clone {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}
