//! Which fields does a write of the object leave alone, and which a write of its status?

use serde_json::Value;

use super::read::{list, text};
use super::workloads;
use crate::resource::Resource;

/// An update of the object itself keeps what belongs to the status.
pub fn keep_on_update(resource: &Resource, new: &mut Value, old: &Value) {
    if resource.has("status") {
        keep(new, old, "status");
    }
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        keep(new, old, "spec");
    }
    if resource.is("", "namespaces") {
        keep_finalizers(new, old);
    }
}

/// An update of the status keeps everything else. Of the metadata it keeps what the kind says: custom kinds and the later
/// built-in ones keep all of it, Nodes nothing.
pub fn keep_on_status(resource: &Resource, new: &mut Value, old: &Value) {
    if resource.custom.is_some() {
        return keep_all_but_status(new, old);
    }
    keep(new, old, "spec");
    let kept: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &["ownerReferences", "deletionTimestamp"],
        ("apps", "deployments") => &["labels"],
        ("storage.k8s.io" | "admissionregistration.k8s.io" | "apiextensions.k8s.io", _) => {
            &["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"]
        }
        _ => &[],
    };
    if let Some(meta) = new.get_mut("metadata") {
        kept.iter().for_each(|key| keep(meta, &old["metadata"], key));
    }
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        keep_verdict(new, old);
    }
    if resource.is("apps", "daemonsets") {
        workloads::count_template(new, Some(old));
    }
    if resource.is("", "pods") && text(&new["status"], "qosClass").is_empty() {
        let class = old["status"]["qosClass"].clone();
        if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
            status.insert("qosClass".to_owned(), class);
        }
    }
}

/// `/approval` of a certificate request changes the conditions and nothing else.
pub fn keep_on_approval(new: &mut Value, old: &Value) {
    let conditions = new.pointer_mut("/status/conditions").map(Value::take).unwrap_or_default();
    keep(new, old, "spec");
    keep(new, old, "status");
    if let Some(new) = new.as_object_mut() {
        let status = new.entry("status").or_insert_with(|| Value::Object(Default::default()));
        if let Some(status) = status.as_object_mut() {
            status.insert("conditions".to_owned(), conditions);
        }
    }
}

/// `/finalize` of a Namespace changes its finalizers and metadata.
pub fn keep_on_finalize(new: &mut Value, old: &Value) {
    keep(new, old, "status");
}

fn keep(new: &mut Value, old: &Value, key: &str) {
    let Some(new) = new.as_object_mut() else { return };
    match old.get(key) {
        same if new.get(key) == same => {}
        Some(value) => _ = new.insert(key.to_owned(), value.clone()),
        None => _ = new.remove(key),
    }
}

/// Who approved or denied a request, and why, is not for its signer to rewrite.
fn keep_verdict(new: &mut Value, old: &Value) {
    let before = list(&old["status"], "conditions");
    let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    for kind in ["Approved", "Denied"] {
        let verdict = before.iter().find(|one| one["type"] == kind);
        let here = conditions.iter_mut().find(|one| one["type"] == kind);
        if let (Some(verdict), Some(here)) = (verdict, here) {
            *here = verdict.clone();
        }
    }
}

fn keep_finalizers(new: &mut Value, old: &Value) {
    if let Some(spec) = super::read::child(new, "spec") {
        match old["spec"].get("finalizers") {
            Some(finalizers) => _ = spec.insert("finalizers".to_owned(), finalizers.clone()),
            None => _ = spec.remove("finalizers"),
        }
    }
}

/// The version that the writer has seen and who manages what are the request's own.
fn keep_all_but_status(new: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for key in ["status", "apiVersion", "kind"] {
        keep(&mut kept, new, key);
    }
    for key in ["managedFields", "resourceVersion", "uid", "name", "namespace"] {
        let Some(meta) = kept.get_mut("metadata") else { continue };
        if !new["metadata"][key].is_null() {
            keep(meta, &new["metadata"], key);
        }
    }
    *new = kept;
}
