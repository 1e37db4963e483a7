//! Is an object's metadata in order? For every kind, custom ones too.

use serde_json::Value;

use super::names;
use super::read::{go_json, invalid_text, list, map, text, too_long};
use crate::refusal::Cause;
use crate::resource::Resource;

/// All annotations of an object together: etcd and every cache hold them.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// As Kubernetes limits them, so that managedFields stay readable.
const MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;

/// `old` is what is stored, at updates. Names must have been generated, and what the server itself sets must be set.
pub fn validate_meta(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let meta = &object["metadata"];
    let mut causes = Vec::new();
    if let Some(old) = old {
        unchanged(meta, &old["metadata"], &mut causes);
    }
    name(resource, meta, &mut causes);
    namespace(resource, meta, &mut causes);
    if let Some(generation) = meta["generation"].as_i64().filter(|generation| *generation < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("metadata.generation", &generation.into(), detail));
    }
    labels(meta, "labels", "metadata.labels", &mut causes);
    annotations(meta, &mut causes);
    owners(meta, &mut causes);
    finalizers(resource, meta, &mut causes);
    managers(meta, &mut causes);
    causes
}

/// What an update cannot change, whatever it says: before [`validate_meta`].
pub fn keep_meta(object: &mut Value, old: &Value) {
    let before = &old["metadata"];
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for key in ["creationTimestamp", "deletionTimestamp", "generation"] {
        if !before[key].is_null() {
            meta.insert(key.to_owned(), before[key].clone());
        }
    }
    if before["generation"].is_null() {
        meta.remove("generation");
    }
    for key in ["uid", "deletionGracePeriodSeconds"] {
        let is_missing = meta.get(key).is_none_or(|value| value.is_null() || value == "");
        if is_missing && !before[key].is_null() {
            meta.insert(key.to_owned(), before[key].clone());
        }
    }
}

/// Also for the labels of pod templates and for `matchLabels`: `path` is how the field is called in causes.
pub fn labels(parent: &Value, key: &str, path: &str, causes: &mut Vec<Cause>) {
    for (key, value) in map(parent, key) {
        let invalid = |of: &Value, detail| Cause::invalid(path, of, detail);
        causes.extend(names::qualified(key).into_iter().map(|detail| invalid(&key.as_str().into(), detail)));
        let text = value.as_str().unwrap_or_default();
        causes.extend(names::label_value(text).into_iter().map(|detail| invalid(value, detail)));
    }
}

fn unchanged(meta: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if !old["deletionTimestamp"].is_null() {
        let before = list(old, "finalizers");
        let mut added: Vec<&Value> = list(meta, "finalizers").iter().filter(|one| !before.contains(one)).collect();
        added.sort_by_key(|one| one.as_str());
        added.dedup();
        if !added.is_empty() {
            let added = added.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ");
            let detail = "no new finalizers can be added if the object is being deleted, found new finalizers";
            causes.push(Cause::forbidden("metadata.finalizers", &format!("{detail} []string{{{added}}}")));
        }
    }
    let fields = ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];
    for field in fields.into_iter().filter(|field| meta[field] != old[field]) {
        causes.push(Cause::invalid(format!("metadata.{field}"), &meta[field], "field is immutable"));
    }
}

fn name(resource: &Resource, meta: &Value, causes: &mut Vec<Cause>) {
    let rule = rule(resource);
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        let invalid = |detail| Cause::invalid("metadata.generateName", &prefix.into(), detail);
        causes.extend(rule(&completed(prefix)).into_iter().map(invalid));
    }
    let name = text(meta, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    }
    let wrong = if name.is_empty() { Vec::new() } else { rule(name) };
    causes.extend(wrong.into_iter().map(|detail| Cause::invalid("metadata.name", &name.into(), detail)));
}

fn rule(resource: &Resource) -> fn(&str) -> Vec<String> {
    let rbac = resource.group == "rbac.authorization.k8s.io";
    let lax = rbac
        || resource.is("", "events")
        || resource.is("policy", "poddisruptionbudgets")
        || resource.is("certificates.k8s.io", "certificatesigningrequests");
    match resource.is("", "namespaces") {
        true => names::label,
        false if lax => names::path_segment,
        false => names::subdomain,
    }
}

/// A prefix may end in a dash, as letters will follow. Kubernetes judges it without the letter before the dash, too.
fn completed(prefix: &str) -> String {
    let mut kept = prefix.chars();
    match kept.next_back() == Some('-') && kept.next_back().is_some() {
        true => format!("{}a", kept.as_str()),
        false => prefix.to_owned(),
    }
}

fn namespace(resource: &Resource, meta: &Value, causes: &mut Vec<Cause>) {
    let namespace = text(meta, "namespace");
    match (resource.namespaced, namespace.is_empty()) {
        (true, true) => causes.push(Cause::required("metadata.namespace", "")),
        (true, false) => {
            let invalid = |detail| Cause::invalid("metadata.namespace", &namespace.into(), detail);
            causes.extend(names::label(namespace).into_iter().map(invalid));
        }
        (false, true) => {}
        (false, false) => causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type")),
    }
}

fn annotations(meta: &Value, causes: &mut Vec<Cause>) {
    let mut bytes = 0;
    for (key, value) in map(meta, "annotations") {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        let lowered = match key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => names::qualified(&key.to_ascii_lowercase()),
            false => names::qualified(key),
        };
        let invalid = |detail| Cause::invalid("metadata.annotations", &key.as_str().into(), detail);
        causes.extend(lowered.into_iter().map(invalid));
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX));
    }
}

fn owners(meta: &Value, causes: &mut Vec<Cause>) {
    const ORDER: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let path = "metadata.ownerReferences";
    let owners = list(meta, "ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = text(owner, "apiVersion");
        let has_version = match api_version.split_once('/') {
            Some((_, version)) => !version.is_empty() && !version.contains('/'),
            None => !api_version.is_empty(),
        };
        if !has_version {
            let detail = "version must not be empty";
            causes.push(Cause::invalid(format!("{path}.apiVersion"), &api_version.into(), detail));
        }
        for field in ["kind", "name", "uid"].into_iter().filter(|field| text(owner, field).is_empty()) {
            causes.push(Cause::invalid(format!("{path}.{field}"), &"".into(), "must not be empty"));
        }
        if api_version == "v1" && text(owner, "kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(invalid_text(path, &go_json(owner, ORDER), detail));
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let all: Vec<String> = owners.iter().map(|owner| go_json(owner, ORDER)).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    causes.push(invalid_text(path, &format!("[{}]", all.join(",")), &detail));
                }
            }
        }
    }
}

fn finalizers(resource: &Resource, meta: &Value, causes: &mut Vec<Cause>) {
    let path = "metadata.finalizers";
    let finalizers = list(meta, "finalizers");
    for finalizer in finalizers {
        let wrong = names::qualified(finalizer.as_str().unwrap_or_default());
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(path, finalizer, detail)));
    }
    let has = |name: &str| finalizers.iter().any(|one| one == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(path, &meta["finalizers"], detail));
    }
    if !wants_qualified_finalizers(resource) {
        return;
    }
    for (at, finalizer) in finalizers.iter().enumerate() {
        if !is_known_finalizer(finalizer.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(format!("{path}[{at}]"), finalizer, UNKNOWN_FINALIZER));
        }
    }
}

pub const UNKNOWN_FINALIZER: &str = "name is neither a standard finalizer name nor is it fully qualified";

pub fn is_known_finalizer(name: &str) -> bool {
    name.contains('/') || matches!(name, "kubernetes" | "orphan" | "foregroundDeletion")
}

/// Of custom kinds, which may have finalizers of any name: those that are new here and nobody's in particular.
pub fn warn_of_finalizers(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    if resource.custom.is_none() {
        return Vec::new();
    }
    let before = old.map(|old| list(&old["metadata"], "finalizers")).unwrap_or_default();
    let added = list(&object["metadata"], "finalizers").iter().filter(|one| !before.contains(one)).filter_map(Value::as_str);
    let mut added: Vec<&str> = added.filter(|name| !is_known_finalizer(name)).collect();
    added.sort_unstable();
    added.dedup();
    let why = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers";
    added.into_iter().map(|name| format!("metadata.finalizers: {name:?}: {why}")).collect()
}

/// Kinds that came late do without this rule.
fn wants_qualified_finalizers(resource: &Resource) -> bool {
    let late = resource.custom.is_some()
        || matches!(resource.group.as_str(), "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "policy")
        || resource.group == "coordination.k8s.io"
        || resource.is("", "events");
    !late
}

fn managers(meta: &Value, causes: &mut Vec<Cause>) {
    for (at, entry) in list(meta, "managedFields").iter().enumerate() {
        let path = |field: &str| format!("metadata.managedFields[{at}].{field}");
        let manager = text(entry, "manager");
        if manager.len() > MANAGER_BYTES_MAX {
            causes.push(too_long(path("manager"), MANAGER_BYTES_MAX));
        }
        let bad = manager.chars().enumerate().find(|(_, one)| one.is_control());
        if let Some((at, bad)) = bad {
            let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(bad));
            causes.push(Cause::invalid(path("manager"), &entry["manager"], detail));
        }
        if text(entry, "subresource").len() > SUBRESOURCE_BYTES_MAX {
            causes.push(too_long(path("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
}
