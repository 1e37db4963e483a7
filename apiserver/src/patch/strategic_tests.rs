//! Rows from a real server: a patch, and what the list or map that it is about looked like afterwards.

// Rows hand their values over: that reads better than borrowing them.
#![allow(clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::strategic_merge;
use crate::refusal::Refusal;
use crate::schema::Schema;

fn deployment() -> Schema {
    let source = crate::resource::builtin_source();
    Schema::of_kind("io.k8s.api.apps.v1.Deployment", source["schemas"].as_object().unwrap())
}

fn container(fields: Value) -> Value {
    let mut container = fields;
    container["name"] = json!("c");
    pod(json!({"containers": [container]}))
}

fn pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn metadata(fields: Value) -> Value {
    json!({"metadata": fields})
}

fn after(patch: &Value, schema: &Schema) -> Result<Value, Refusal> {
    let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]);
    let mut target = container(json!({"image": "i", "env": env}));
    target["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    target["metadata"] = json!({"name": "d", "finalizers": ["x/a", "x/b", "x/c"], "labels": {"q": "1", "r": "2"}});
    strategic_merge(&mut target, patch, schema).map(|()| target)
}

/// What is empty is not stored by the real server.
fn check(rows: impl IntoIterator<Item = (Value, Value)>, wrap: fn(Value) -> Value, at: &str) {
    let schema = deployment();
    for (fields, want) in rows {
        let patch = wrap(fields);
        let got = after(&patch, &schema).unwrap().pointer(at).cloned().unwrap_or_default();
        let got = if got == json!([]) || got == json!({}) { Value::Null } else { got };
        assert_eq!(got, want, "{patch}");
    }
}

#[test]
fn lists_of_objects_merge_by_key_and_keep_order() {
    let rows = [
        (
            json!({"env": [{"name": "B", "value": "9"}]}),
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "9"}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"env": [{"name": "D", "value": "9"}]}),
            json!([{"name": "D", "value": "9"}, {"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"env": [{"name": "D", "value": "9"}, {"name": "A", "value": "7"}]}),
            json!([{"name": "D", "value": "9"}, {"name": "A", "value": "7"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"env": [{"name": "C", "value": "9"}, {"name": "A", "value": "7"}]}),
            json!([{"name": "B", "value": "2"}, {"name": "C", "value": "9"}, {"name": "A", "value": "7"}]),
        ),
        (json!({"env": [{"name": "B", "$patch": "delete"}]}), json!([{"name": "A", "value": "1"}, {"name": "C", "value": "3"}])),
        (
            json!({"env": [{"name": "Z", "$patch": "delete"}]}),
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (json!({"env": [{"$patch": "replace"}, {"name": "Q", "value": "q"}]}), json!([{"name": "Q", "value": "q"}])),
        (json!({"env": [{"$patch": "replace"}]}), json!(null)),
        (json!({"env": null}), json!(null)),
        (json!({"env": []}), json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}])),
        (
            json!({"$setElementOrder/env": [{"name": "C"}, {"name": "A"}, {"name": "B"}]}),
            json!([{"name": "C", "value": "3"}, {"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
        ),
        (
            json!({"$setElementOrder/env": [{"name": "C"}, {"name": "A"}]}),
            json!([{"name": "B", "value": "2"}, {"name": "C", "value": "3"}, {"name": "A", "value": "1"}]),
        ),
        (
            json!({"$setElementOrder/env": [{"name": "C"}, {"name": "D"}, {"name": "A"}], "env": [{"name": "D", "value": "d"}]}),
            json!([{"name": "B", "value": "2"}, {"name": "C", "value": "3"}, {"name": "D", "value": "d"}, {"name": "A", "value": "1"}]),
        ),
        (
            json!({"$setElementOrder/env": [{"name": "C"}, {"name": "A"}], "env": [{"name": "B", "$patch": "delete"}]}),
            json!([{"name": "C", "value": "3"}, {"name": "A", "value": "1"}]),
        ),
        (
            json!({"$setElementOrder/env": [], "env": [{"name": "D", "value": "d"}]}),
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}, {"name": "D", "value": "d"}]),
        ),
        (
            json!({"$setElementOrder/envFrom": [], "env": [{"name": "D", "value": "d"}]}),
            json!([{"name": "D", "value": "d"}, {"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"env": [{"name": "B", "value": null, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            json!([{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"env": [{"name": "A", "$retainKeys": ["name", "valueFrom"], "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"$retainKeys": ["name", "image", "env", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "resources"], "image": "z"}),
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (
            json!({"$setElementOrder/env": [{"name": "B"}, {"name": "A"}], "env": [{"name": "C", "$patch": "delete"}, {"name": "B", "value": "bb"}]}),
            json!([{"name": "B", "value": "bb"}, {"name": "A", "value": "1"}]),
        ),
    ];
    check(rows, container, "/spec/template/spec/containers/0/env");
}

#[test]
fn lists_of_scalars_are_united() {
    let rows = [
        (json!({"finalizers": ["x/d"]}), json!(["x/d", "x/a", "x/b", "x/c"])),
        (json!({"finalizers": ["x/c", "x/a"]}), json!(["x/b", "x/c", "x/a"])),
        (json!({"finalizers": ["x/d", "x/b", "x/d"]}), json!(["x/d", "x/a", "x/b", "x/c"])),
        (json!({"finalizers": null}), json!(null)),
        (json!({"finalizers": []}), json!(["x/a", "x/b", "x/c"])),
        (json!({"$deleteFromPrimitiveList/finalizers": ["x/b"]}), json!(["x/a", "x/c"])),
        (json!({"$deleteFromPrimitiveList/finalizers": ["x/b"], "finalizers": ["x/d"]}), json!(["x/d", "x/a", "x/c"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["x/b"], "finalizers": ["x/d"], "$setElementOrder/finalizers": ["x/d", "x/a"]}),
            json!(["x/d", "x/a", "x/c"]),
        ),
        (json!({"$setElementOrder/finalizers": ["x/c", "x/a"]}), json!(["x/b", "x/c", "x/a"])),
        (json!({"$deleteFromPrimitiveList/finalizers": "x"}), json!(["x/a", "x/b", "x/c"])),
        (json!({"$deleteFromPrimitiveList/finalizers": null}), json!(null)),
        (json!({"$deleteFromPrimitiveList/nope": ["x"]}), json!(["x/a", "x/b", "x/c"])),
        (json!({"$deleteFromPrimitiveList/finalizers": []}), json!(["x/a", "x/b", "x/c"])),
    ];
    check(rows, metadata, "/metadata/finalizers");
}

#[test]
fn directives_inside_list_elements_are_followed() {
    let rows = [
        (
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m", "defaultMode": 420}}]}),
            json!([{"name": "v", "configMap": {"name": "m", "defaultMode": 420}}]),
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": null, "configMap": {"name": "m", "defaultMode": 420}}]}),
            json!([{"name": "v", "configMap": {"name": "m", "defaultMode": 420}}]),
        ),
        (
            json!({"volumes": [{"name": "w", "emptyDir": {"medium": null, "$patch": "replace"}}]}),
            json!([{"name": "w", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        ),
        (
            json!({"volumes": [{"name": "w", "emptyDir": {"medium": null}}]}),
            json!([{"name": "w", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        ),
        (json!({"volumes": [{"name": "v", "emptyDir": {"$patch": "delete"}}]}), json!([{"name": "v", "emptyDir": {}}])),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {"$patch": "replace", "medium": "Memory"}}]}),
            json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]),
        ),
    ];
    check(rows, pod, "/spec/template/spec/volumes");
}

#[test]
fn maps_merge_and_obey_directives() {
    let rows = [
        (json!({"labels": {"q": null}}), json!({"r": "2"})),
        (json!({"labels": {"$patch": "replace", "z": "1"}}), json!({"z": "1"})),
        (json!({"labels": {"$patch": "delete"}}), json!(null)),
        (json!({"labels": {"$retainKeys": ["r"]}}), json!({"r": "2"})),
        (json!({"labels": null}), json!(null)),
        (json!({"labels": {}}), json!({"q": "1", "r": "2"})),
    ];
    check(rows, metadata, "/metadata/labels");
}

#[test]
fn directives_are_not_stored_where_nothing_was() {
    let rows = [
        (json!({"annotations": {"$patch": "replace", "z": "1"}}), json!(null)),
        (json!({"annotations": {"$patch": "delete"}}), json!(null)),
        (json!({"annotations": {"q": null}}), json!(null)),
        (json!({"annotations": {"$retainKeys": ["r"], "r": "1"}}), json!({"r": "1"})),
    ];
    check(rows, metadata, "/metadata/annotations");
    let ports = json!({"$setElementOrder/ports": [{"containerPort": 1}], "ports": [{"containerPort": 1, "$retainKeys": []}]});
    let stored = after(&container(ports), &deployment()).unwrap();
    assert!(!stored.to_string().contains('$'), "{stored}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rows = [
        (
            container(json!({"env": [{"$patch": "merge", "name": "A"}]})),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            container(json!({"env": [{"$patch": "frob", "name": "A"}]})),
            500,
            "unknown patch type: frob in map: map[$patch:frob name:A]",
        ),
        (
            container(json!({"env": [{"$patch": "delete"}]})),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (container(json!({"env": [{"value": "x"}]})), 500, "map: map[value:x] does not contain declared merge key: name"),
        (
            container(json!({"env": ["x"]})),
            500,
            "list element types are not identical: [[map[name:A value:1] map[name:B value:2] map[name:C value:3]] [x]]",
        ),
        (
            container(json!({"env": [["x"]]})),
            500,
            "list element types are not identical: [[map[name:A value:1] map[name:B value:2] map[name:C value:3]] [[x]]]",
        ),
        (
            container(json!({"env": [null]})),
            500,
            "list element types are not identical: [[map[name:A value:1] map[name:B value:2] map[name:C value:3]] [<nil>]]",
        ),
        (
            container(json!({"$setElementOrder/env": [{"name": "C"}, {"name": "A"}], "env": [{"name": "D", "value": "d"}]})),
            500,
            "The order in patch list:\n[map[name:D value:d]]\n doesn't match $setElementOrder list:\n[map[name:C] map[name:A]]\n",
        ),
        (
            container(
                json!({"$setElementOrder/env": [{"name": "A"}, {"name": "C"}], "env": [{"name": "C", "value": "1"}, {"name": "A", "value": "1"}]}),
            ),
            500,
            "The order in patch list:\n[map[name:C value:1] map[name:A value:1]]\n doesn't match $setElementOrder list:\n[map[name:A] map[name:C]]\n",
        ),
        (container(json!({"$setElementOrder/env": "x"})), 500, "expected a []interface {}, but received a string"),
        (container(json!({"$setElementOrder/env": ["x"]})), 500, "value for key 0 is not a map"),
        (container(json!({"$setElementOrder": ["x"]})), 400, "invalid patch format of setElementOrder list"),
        (
            container(json!({"$setElementOrder/env": [{"name": "C"}], "env": "x"})),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            container(json!({"$setElementOrder/env": [{"x": "C"}]})),
            500,
            "map: map[x:C] does not contain declared merge key: name",
        ),
        (
            container(json!({"$retainKeys": ["name", "image"], "env": [{"name": "D", "value": "d"}]})),
            400,
            "invalid patch format of retainKeys",
        ),
        (container(json!({"$retainKeys": "name"})), 400, "invalid patch format of retainKeys"),
        (metadata(json!({"$deleteFromPrimitiveList": ["x"]})), 400, "invalid patch format of primitive list"),
        (metadata(json!({"finalizers": [1]})), 500, "list element types are not identical: [[x/a x/b x/c] [1]]"),
        (metadata(json!({"finalizers": [{"a": 1}]})), 500, "list element types are not identical: [[x/a x/b x/c] [map[a:1]]]"),
        (metadata(json!({"finalizers": [["a"]]})), 500, "list element types are not identical: [[x/a x/b x/c] [[a]]]"),
        (
            metadata(json!({"$deleteFromPrimitiveList/finalizers": [1]})),
            500,
            "list element types are not identical: [[x/a x/b x/c] [1]]",
        ),
        (metadata(json!({"finalizers": [null]})), 500, "list element types are not identical: [[x/a x/b x/c] [<nil>]]"),
        (
            pod(json!({"volumes": [{"name": "v", "emptyDir": {"$patch": "merge", "medium": "Memory"}}]})),
            500,
            "unknown patch type: merge in map: map[$patch:merge medium:Memory]",
        ),
        (
            pod(json!({"volumes": [{"name": "v", "emptyDir": {"$patch": 3, "medium": "Memory"}}]})),
            500,
            "unknown patch type: %!s(int64=3) in map: map[$patch:3 medium:Memory]",
        ),
        (metadata(json!({"labels": {"$retainKeys": ["r"], "s": "1"}})), 400, "invalid patch format of retainKeys"),
        (metadata(json!({"$patch": "frob"})), 500, "unknown patch type: frob in map: map[$patch:frob]"),
        (json!([]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ];
    let schema = deployment();
    for (patch, code, message) in rows {
        let Err(refusal) = after(&patch, &schema) else { panic!("{patch} was not refused") };
        assert_eq!((refusal.code, refusal.message.as_str()), (code, message), "{patch}");
        assert_eq!(refusal.reason, if code == 400 { "BadRequest" } else { "" }, "{patch}");
    }
}
