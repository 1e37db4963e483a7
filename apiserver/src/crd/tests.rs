//! The same definitions, and what a real API server 1.36 said to them.

use serde_json::{Value, json};

use crate::crd::{default, establish, resources, validate};
use crate::resource::Resource;

fn foo() -> Value {
    json!({
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            }],
        },
    })
}

fn fields(crd: &Value, old: Option<&Value>) -> Vec<String> {
    validate(crd, old).into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn definitions_are_judged_as_by_a_real_server() {
    let table: Vec<(Value, Value)> = serde_json::from_str(include_str!("answers.json")).unwrap();
    let mut wrong = Vec::new();
    for (mut crd, expected) in table {
        default(&mut crd);
        let causes = validate(&crd, None);
        let found: Value = causes.iter().map(|cause| json!([cause.field, cause.reason, cause.message])).collect();
        if found != expected {
            wrong.push(format!("{crd}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn names_are_accepted_unless_another_kind_of_the_group_has_them() {
    let mut first = foo();
    default(&mut first);
    establish(&mut first, &[], "2020-01-01T00:00:00Z");
    let taken = resources(&first);
    let mut second = foo();
    second["metadata"]["name"] = json!("bars.ex.io");
    second["spec"]["names"] = json!({"plural": "bars", "kind": "Foo", "shortNames": ["fo"], "singular": "foo"});
    default(&mut second);
    establish(&mut second, &taken, "2020-01-02T00:00:00Z");
    let expected = json!({
        "acceptedNames": {"plural": "bars", "kind": ""},
        "conditions": [
            {"type": "NamesAccepted", "status": "False", "lastTransitionTime": "2020-01-02T00:00:00Z",
             "reason": "ListKindConflict", "message": "\"FooList\" is already in use"},
            {"type": "Established", "status": "False", "lastTransitionTime": "2020-01-02T00:00:00Z",
             "reason": "NotAccepted", "message": "not all names are accepted"},
        ],
        "storedVersions": ["v1"],
    });
    assert_eq!(second["status"], expected);
    assert_eq!(resources(&second).len(), 0);
    establish(&mut first, &taken, "2020-01-03T00:00:00Z");
    assert_eq!(first["status"]["conditions"][0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
}

#[test]
fn what_objects_are_stored_by_does_not_change() {
    let mut old = foo();
    default(&mut old);
    establish(&mut old, &[], "2020-01-01T00:00:00Z");
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["kind"] = json!("Bar");
    new["spec"]["group"] = json!("other.io");
    new["spec"]["versions"][0]["name"] = json!("v2");
    let expected = [
        "spec.scope: Invalid value: \"Cluster\": field is immutable",
        "spec.names.kind: Invalid value: \"Bar\": field is immutable",
        "spec.group: Invalid value: \"other.io\": field is immutable",
        "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2",
        "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, \
         and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 \
         from status.storedVersions",
    ];
    assert_eq!(fields(&new, Some(&old)), expected);
}

#[test]
fn each_served_version_is_a_resource() {
    let mut crd = foo();
    default(&mut crd);
    establish(&mut crd, &[], "2020-01-01T00:00:00Z");
    let all: Vec<Resource> = resources(&crd);
    let [one] = all.as_slice() else { panic!("{}", all.len()) };
    assert_eq!((one.plural.as_str(), one.singular.as_str(), one.list_kind.as_str()), ("foos", "foo", "FooList"));
    assert_eq!(one.schema_name, "io.ex.v1.Foo");
    let expected = json!({
        "name": "foos/status", "singularName": "", "namespaced": true, "kind": "Foo", "verbs": ["get", "patch", "update"],
    });
    assert_eq!(one.subresources, [("status".to_owned(), expected)]);
    assert!(one.columns.is_empty());
    assert!(one.schema.properties["metadata"].properties["ownerReferences"].items.is_some());
}

#[test]
fn the_definitions_of_this_repository_are_valid() {
    let own = include_str!("../../../deploy/crds/nodehealthchecks.remediation.medik8s.io.yaml");
    for source in [own, include_str!("../../../tests/provider/crds.yaml")] {
        let crds: Vec<Value> = serde_saphyr::from_multiple(source).unwrap();
        assert!(!crds.is_empty());
        for mut crd in crds {
            default(&mut crd);
            assert_eq!(fields(&crd, None), [""; 0]);
        }
    }
}
