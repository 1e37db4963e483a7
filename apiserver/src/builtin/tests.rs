//! Requests that a real API server was asked, and what it made of them: `cases.json` holds its answers.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::*;
use crate::access::User;
use crate::resource::{self, Resource};

static BUILTIN: LazyLock<&'static [std::sync::Arc<Resource>]> = LazyLock::new(resource::builtin);

/// What the server would store, or what is wrong: the way of a write through this module.
fn write(resource: &Resource, case: &Value) -> Result<Value, Vec<Cause>> {
    let is_view = resource.group == "events.k8s.io";
    let mut object = case["given"].clone();
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    if resource.namespaced {
        object["metadata"]["namespace"] = case["namespace"].clone();
    } else if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("namespace");
    }
    let mut object = if is_view { event_to_core(object) } else { object };
    let stored = case.get("stored").cloned().map(|old| if is_view { event_to_core(old) } else { old });
    default(resource, &mut object);
    if resource.plural == "certificatesigningrequests" && stored.is_none() {
        set_requester(&mut object, &User { uid: "1".to_owned(), ..User::admin() });
    }
    let causes = match (&stored, case["subresource"].as_str().unwrap_or_default()) {
        (None, _) => {
            prepare_create(resource, &mut object);
            let mut causes = validate_meta(resource, &object, None);
            causes.extend(validate_create(resource, &object));
            causes
        }
        (Some(old), "") => {
            prepare_update(resource, &mut object, old);
            update(resource, &mut object, old, validate_update)
        }
        (Some(old), "status") => {
            keep_on_status(resource, &mut object, old);
            untime(resource, &mut object, case);
            update(resource, &mut object, old, validate_status)
        }
        (Some(old), "approval") => {
            keep_on_approval(&mut object, old);
            untime(resource, &mut object, case);
            update(resource, &mut object, old, |resource, new, old| validate_subresource(resource, "approval", new, old))
        }
        (Some(old), _) => {
            keep_on_finalize(&mut object, old);
            update(resource, &mut object, old, |resource, new, old| validate_subresource(resource, "finalize", new, old))
        }
    };
    match causes.is_empty() {
        true => Ok(if is_view { event_from_core(object) } else { object }),
        false => Err(causes),
    }
}

/// The clock of the server that was asked.
fn untime(resource: &Resource, object: &mut Value, case: &Value) {
    let condition = &case["stores"]["status"]["conditions"][0];
    if let (Some(now), true) = (condition["lastUpdateTime"].as_str(), resource.plural == "certificatesigningrequests") {
        set_request_times(object, &json!({}), now);
    }
}

fn update(
    resource: &Resource,
    object: &mut Value,
    old: &Value,
    validate: impl Fn(&Resource, &Value, &Value) -> Vec<Cause>,
) -> Vec<Cause> {
    keep_meta(object, old);
    let mut causes = validate_meta(resource, object, Some(old));
    causes.extend(validate(resource, object, old));
    causes
}

/// Without what the rest of the server sets.
fn bare(mut object: Value) -> Value {
    if let Some(meta) = object["metadata"].as_object_mut() {
        for key in ["uid", "creationTimestamp", "generation", "resourceVersion", "managedFields"] {
            meta.remove(key);
        }
    }
    object
}

/// Sorted, and each once: Kubernetes judges some fields twice, and visits maps in any order.
fn said(causes: &[(String, String, String)]) -> Vec<(String, String, String)> {
    // The diff of two Pods is ours alone.
    let first_line = |(field, reason, message): &(String, String, String)| {
        (field.clone(), reason.clone(), message.split('\n').next().unwrap_or_default().to_owned())
    };
    let mut said: Vec<_> = causes.iter().map(first_line).collect();
    said.sort();
    said.dedup();
    said
}

#[test]
fn writes_are_judged_and_completed_as_the_real_server_does() {
    let all = &*BUILTIN;
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let mut wrong: BTreeMap<usize, String> = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        let (group, plural) = (case["group"].as_str().unwrap(), case["plural"].as_str().unwrap());
        let resource = all.iter().find(|one| one.is(group, plural)).unwrap();
        let answer = write(resource, case);
        let expected: Vec<(String, String, String)> = serde_json::from_value(case["causes"].clone()).unwrap_or_default();
        let given = &case["given"];
        match answer {
            Ok(object) if expected.is_empty() => {
                let (ours, theirs) = (bare(object), &case["stores"]);
                if ours != *theirs {
                    wrong.insert(at, format!("{plural} {given}\n  real {theirs}\n  ours {ours}"));
                }
            }
            Ok(_) => _ = wrong.insert(at, format!("{plural} {given}\n  real {expected:#?}\n  ours: fine")),
            Err(causes) => {
                let ours: Vec<_> = causes.into_iter().map(|one| (one.field, one.reason.to_owned(), one.message)).collect();
                if said(&ours) != said(&expected) {
                    let (ours, expected) = (said(&ours), said(&expected));
                    wrong.insert(at, format!("{plural} {given}\n  real {expected:#?}\n  ours {ours:#?}"));
                }
            }
        }
    }
    let shown: Vec<&String> = wrong.values().collect();
    assert!(
        wrong.is_empty(),
        "{} of {}: {}",
        wrong.len(),
        cases.len(),
        shown.iter().map(|one| one.as_str()).collect::<Vec<_>>().join("\n")
    );
}

fn builtin(group: &str, plural: &str) -> Resource {
    Resource::clone(BUILTIN.iter().find(|one| one.is(group, plural)).unwrap())
}

fn custom() -> Resource {
    let subresources = vec![("status".to_owned(), json!({}))];
    let custom = Some(Default::default());
    Resource { group: "x.io".to_owned(), plural: "xs".to_owned(), namespaced: true, subresources, custom, ..Resource::default() }
}

#[test]
fn which_kinds_are_created_by_put_need_a_version_or_count_generations() {
    // Group, plural, created by PUT, updated without resourceVersion, has a generation.
    let table = [
        ("", "configmaps", false, true, false),
        ("", "secrets", false, true, false),
        ("", "serviceaccounts", false, true, false),
        ("", "events", true, true, false),
        ("events.k8s.io", "events", true, true, false),
        ("", "nodes", false, true, false),
        ("", "namespaces", false, true, false),
        ("", "pods", false, true, true),
        ("apps", "deployments", false, true, true),
        ("apps", "daemonsets", false, true, true),
        ("coordination.k8s.io", "leases", true, false, false),
        ("storage.k8s.io", "volumeattachments", false, false, false),
        ("policy", "poddisruptionbudgets", false, false, true),
        ("rbac.authorization.k8s.io", "roles", true, true, false),
        ("rbac.authorization.k8s.io", "clusterrolebindings", true, true, false),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", false, false, true),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", false, false, true),
        ("apiextensions.k8s.io", "customresourcedefinitions", false, false, true),
    ];
    for (group, plural, creates, unconditional, counts) in table {
        let resource = builtin(group, plural);
        let ours = (creates_on_update(&resource), updates_unconditionally(&resource), has_generation(&resource));
        assert_eq!(ours, (creates, unconditional, counts), "{group} {plural}");
    }
    assert!(has_generation(&custom()) && !updates_unconditionally(&custom()));
}

#[test]
fn a_generation_counts_what_the_real_server_counts() {
    let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"a": 1}, "status": {}});
    let with = |path: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(path).unwrap() = value;
        new
    };
    let (deployment, pod) = (builtin("apps", "deployments"), builtin("", "pods"));
    let (spec, status) = (with("/spec/a", json!(2)), with("/status", json!({"a": 1})));
    let annotated = with("/metadata", json!({"annotations": {"a": "b"}}));
    for (resource, new, expected) in [
        (&deployment, &spec, true),
        (&deployment, &annotated, true),
        (&deployment, &status, false),
        (&pod, &spec, true),
        (&pod, &annotated, false),
        (&custom(), &spec, true),
        (&custom(), &annotated, false),
        (&custom(), &status, false),
        (&builtin("", "nodes"), &spec, false),
    ] {
        assert_eq!(is_new_generation(resource, new, &old), expected, "{} {new}", resource.plural);
    }
}

#[test]
fn a_write_of_the_status_of_a_custom_object_changes_nothing_else() {
    let old = json!({"metadata": {"name": "a", "labels": {"a": "b"}, "resourceVersion": "1"}, "spec": {"a": 1}, "other": 1});
    let mut new = json!({
        "apiVersion": "x.io/v1", "kind": "X", "spec": {"a": 2}, "status": {"b": 1},
        "metadata": {"name": "a", "labels": {"c": "d"}, "resourceVersion": "2", "managedFields": []},
    });
    keep_on_status(&custom(), &mut new, &old);
    let expected = json!({
        "apiVersion": "x.io/v1", "kind": "X", "spec": {"a": 1}, "status": {"b": 1}, "other": 1,
        "metadata": {"name": "a", "labels": {"a": "b"}, "resourceVersion": "2", "managedFields": []},
    });
    assert_eq!(new, expected);
}

#[test]
fn fields_are_read_as_selectors_see_them() {
    let event = json!({"involvedObject": {"name": "x"}, "source": {}, "reportingComponent": "c", "metadata": {"name": "e"}});
    let pod = json!({"spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}});
    let table = [
        ("", "pods", &pod, "spec.nodeName", "n"),
        ("", "pods", &pod, "spec.hostNetwork", "false"),
        ("", "pods", &pod, "status.phase", ""),
        ("", "nodes", &json!({"spec": {}}), "spec.unschedulable", "false"),
        ("", "events", &event, "involvedObject.name", "x"),
        ("", "events", &event, "source", "c"),
        ("", "events", &event, "reportingComponent", "c"),
        ("events.k8s.io", "events", &event, "regarding.name", "x"),
        ("events.k8s.io", "events", &event, "reportingController", "c"),
        ("", "configmaps", &event, "metadata.name", "e"),
    ];
    for (group, plural, object, field, expected) in table {
        let resource = builtin(group, plural);
        assert!(selectable(&resource).contains(&field), "{plural} {field}");
        assert_eq!(field_value(&resource, object, field), expected, "{plural} {field}");
    }
    assert_eq!(unsupported_field(&builtin("", "pods"), "a"), "field label not supported: a");
    let other = "\"a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!(unsupported_field(&builtin("", "configmaps"), "a"), other);
    assert!(!selectable(&builtin("", "nodes")).contains(&"metadata.namespace"));
}

#[test]
fn a_signer_cannot_rewrite_who_approved() {
    let requests = builtin("certificates.k8s.io", "certificatesigningrequests");
    let request = |message: &str| json!({"status": {"conditions": [{"type": "Approved", "status": "True", "message": message}]}});
    let mut new = request("me");
    keep_on_status(&requests, &mut new, &request("the admin"));
    assert_eq!(new, request("the admin"));
    let causes = validate_status(&requests, &new, &json!({"status": {}}));
    assert_eq!(causes, [Cause::forbidden("status.conditions", "updates may not add a condition of type \"Approved\"")]);
}

#[test]
fn priorities_are_the_servers_to_give() {
    let pods = builtin("", "pods");
    let asked = "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from \
                 the given PriorityClass name";
    let table = [
        (json!({}), None),
        (json!({"priorityClassName": "system-node-critical"}), None),
        (json!({"priority": 5}), Some(asked)),
        (json!({"priorityClassName": "nope"}), Some("no PriorityClass with name nope was found")),
    ];
    for (spec, expected) in table {
        let mut pod = json!({"spec": spec});
        assert_eq!(forbid_create(&pods, &pod).as_deref(), expected);
        prepare_create(&pods, &mut pod);
        assert_eq!(forbid_create(&pods, &pod).as_deref(), expected);
    }
}

#[test]
fn garbage_does_no_harm() {
    let wild = [json!(null), json!(1), json!("x"), json!([]), json!([1, null, {}]), json!({"a": [1]}), json!({"": null})];
    let shapes = wild.iter().flat_map(|one| {
        let nested =
            json!({"metadata": one, "spec": one, "status": one, "rules": one, "data": one, "subjects": one, "roleRef": one});
        let deep = json!({"metadata": {"labels": one, "finalizers": one, "ownerReferences": one}, "spec": {
            "taints": one, "containers": one, "template": one, "selector": one, "strategy": one, "source": one, "volumes": one,
            "tolerations": one, "podCIDRs": one, "matchResources": one, "paramRef": one, "usages": one, "finalizers": one,
        }, "status": {"capacity": one, "conditions": one, "addresses": one, "nodeInfo": one}, "series": one, "source": one});
        [one.clone(), nested, deep]
    });
    let all = &*BUILTIN;
    for shape in shapes {
        for resource in all.iter().map(|one| -> &Resource { one }).chain([&custom()]) {
            let mut object = if shape.is_object() { shape.clone() } else { json!({"metadata": {}, "spec": shape}) };
            default(resource, &mut object);
            prepare_create(resource, &mut object);
            prepare_update(resource, &mut object, &shape);
            keep_meta(&mut object, &shape);
            validate_meta(resource, &object, Some(&shape));
            validate_create(resource, &object);
            validate_update(resource, &object, &shape);
            validate_status(resource, &object, &shape);
            validate_subresource(resource, "approval", &object, &shape);
            validate_subresource(resource, "finalize", &object, &shape);
            set_requester(&mut object, &User::admin());
            set_request_times(&mut object, &shape, "");
            keep_on_approval(&mut object.clone(), &shape);
            keep_on_finalize(&mut object, &shape);
            keep_on_status(resource, &mut object, &shape);
            event_from_core(event_to_core(object));
        }
    }
}

/// Not a test of time, which would fail on a busy machine, but that a heartbeat leaves a Node as it is.
#[test]
fn defaults_leave_a_stored_node_alone() {
    let nodes = builtin("", "nodes");
    let mut node = json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}, "spec": {},
        "status": {"capacity": {"cpu": "8000m", "memory": "16374268Ki"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    default(&nodes, &mut node);
    let stored = node.clone();
    default(&nodes, &mut node);
    assert_eq!(node, stored);
    assert_eq!(node["status"]["allocatable"]["cpu"], "8");
    assert_eq!(validate_meta(&nodes, &node, Some(&stored)), []);
    assert_eq!(validate_status(&nodes, &node, &stored), []);
}
