//! The same objects, and what a real API server 1.36 said to them.

use serde_json::{Value, json};

use crate::crd;
use crate::refusal::Cause;
use crate::resource::{Resource, builtin};
use crate::structural::{decode, default, prune, validate, validate_status};

fn thing() -> Resource {
    let mut crd: Value = serde_json::from_str(include_str!("thing.json")).unwrap();
    crd::default(&mut crd);
    assert_eq!(crd::validate(&crd, None), []);
    crd::establish(&mut crd, &[], "2020-01-01T00:00:00Z");
    crd::resources(&crd).remove(0)
}

/// What the server says before it validates, or the causes of its refusal, or nothing.
fn said(object: &mut Value, resource: &Resource) -> Value {
    let (kind, version) = (resource.kind.clone(), resource.api_version());
    if let Err(message) = decode(object, &resource.schema, &version, &kind) {
        return json!(message);
    }
    let unknown: Vec<String> = prune(object, &resource.schema).iter().map(|path| format!("unknown field \"{path}\"")).collect();
    if !unknown.is_empty() {
        let refused = format!("{kind} in version \"{}\" cannot be handled as a {kind}", resource.version);
        return json!(format!("{refused}: strict decoding error: {}", unknown.join(", ")));
    }
    if resource.custom.is_none() {
        return json!("");
    }
    default(object, &resource.schema);
    json!(validate(object, None, &resource.schema).iter().map(shown).collect::<Vec<_>>())
}

fn shown(cause: &Cause) -> Value {
    json!([cause.field, cause.reason, cause.message])
}

/// The real server walks fields in no order at all.
fn sorted(mut answer: Value) -> Value {
    if let Some(causes) = answer.as_array_mut() {
        causes.sort_by_key(Value::to_string);
    }
    answer
}

fn compare(table: &str, resources: &[Resource]) {
    let table: Vec<(Value, Value)> = serde_json::from_str(table).unwrap();
    let mut wrong = Vec::new();
    for (object, expected) in table {
        let resource = resources.iter().find(|one| object["kind"] == one.kind.as_str()).unwrap();
        let found = said(&mut object.clone(), resource);
        if sorted(found.clone()) != sorted(expected.clone()) {
            wrong.push(format!("{object}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn custom_values_are_judged_as_by_a_real_server() {
    compare(include_str!("values.json"), &[thing()]);
}

#[test]
fn wrong_types_and_unknown_fields_are_named_as_by_a_real_server() {
    let mut resources: Vec<Resource> = builtin().iter().map(|one| (**one).clone()).collect();
    resources.push(thing());
    compare(include_str!("decoding.json"), &resources);
}

#[test]
fn defaults_fill_objects_that_are_there_and_nulls_go() {
    let mut object = json!({"spec": {
        "def": null, "mp2": [{"name": "x"}], "o": null, "l": ["a"], "s": null, "nul": null,
    }});
    default(&mut object, &thing().schema);
    let expected = json!({"spec": {
        "def": {"a": 3, "b": "x"}, "l": ["a"], "mp2": [{"name": "x", "port": 80}], "nul": null,
    }});
    assert_eq!(object, expected);
}

#[test]
fn a_status_is_judged_as_an_object_of_its_own() {
    let object = json!({"spec": {"s": 1}, "status": {"n": 4, "phase": 5}});
    let found: Vec<Value> = validate_status(&object, None, &thing().schema).iter().map(shown).collect();
    let expected = json!([
        ["status.n", "FieldValueInvalid", "Invalid value: 4: n in body should be less than or equal to 3"],
        [
            "status.phase",
            "FieldValueTypeInvalid",
            "Invalid value: \"integer\": phase in body must be of type string: \"integer\""
        ],
    ]);
    assert_eq!(json!(found), expected);
}

#[test]
fn what_was_invalid_and_is_unchanged_passes() {
    let schema = thing().schema;
    let old = json!({"spec": {"e": "z", "i": 99, "mp": [{"name": "a", "v": 9}, {"name": "b", "v": 1}], "l": ["a", "b", "c"]}});
    for (new, fields) in [
        (json!({"spec": {"e": "z", "i": 5, "mp": [{"name": "a", "v": 9}], "l": ["a", "b", "c"]}}), vec![]),
        (json!({"spec": {"e": "y", "i": 99}}), vec!["spec.e"]),
        (json!({"spec": {"mp": [{"name": "c", "v": 9}, {"name": "a", "v": 9}]}}), vec!["spec.mp[0].v"]),
        (json!({"spec": {"l": ["a", "b", "c", "d"]}}), vec!["spec.l"]),
    ] {
        let found: Vec<String> = validate(&new, Some(&old), &schema).into_iter().map(|cause| cause.field).collect();
        assert_eq!(found, fields, "{new}");
    }
}
