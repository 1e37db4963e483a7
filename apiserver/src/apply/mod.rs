//! Who owns which field? Server-side apply and managedFields.
//!
//! Every writer owns the fields that it set last. An update takes what it changes; an apply must ask, or force.

mod compare;
mod fault;
mod merge;
mod set;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use self::compare::{Changes, changes, changes_as_merged, field_set};
use self::set::Set;
use crate::refusal::{Cause, Refusal};
use crate::schema::Schema;

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    pub name: &'a str,
    /// Of the object as it is written, such as `apps/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// RFC 3339, in seconds.
    pub time: &'a str,
    /// The status is written elsewhere.
    pub leaves_status: bool,
}

/// kubectl keeps here what was applied last, and the server helps it with that.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// As on the real server: with more updaters than these the oldest become one.
const UPDATERS_MAX: usize = 10;

/// After a create, update or patch (not apply): sets `metadata.managedFields` of `new`. `old` is what was stored before,
/// with its managedFields. Whatever the client wrote into managedFields of `new` has been put aside before, except an
/// emptied list (`[]` or `[{}]`), which resets the tracking.
pub fn track(old: Option<&Value>, new: &mut Value, schema: &Schema, manager: Manager) {
    let mut entries = entries(old, new, manager);
    let is_tracked = old.is_none() || !entries.is_empty();
    if is_tracked {
        let changes = changes(old, new, schema);
        update(&mut entries, &changes, manager);
        unite_oldest(&mut entries);
    }
    put(new, entries);
}

/// Server-side apply: the merged object, with managedFields, or the conflicts.
pub fn apply(live: Option<&Value>, applied: &Value, schema: &Schema, manager: Manager, force: bool) -> Result<Value, Refusal> {
    if applied.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(fault) = fault::fault(applied, schema) {
        return Err(untyped(applied, &fault));
    }
    let nothing = json!({});
    let before = live.unwrap_or(&nothing);
    let mut entries = before.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    if let (Some(live), true) = (live, entries.is_empty()) {
        let mut there = changes(None, live, schema);
        if manager.leaves_status {
            there.set.children.remove("f:status");
        }
        update(&mut entries, &there, Manager { name: "before-first-apply", ..manager });
    }
    let last = entries.iter().position(|entry| is_of(entry, manager, "Apply")).map(|at| entries.remove(at));
    let mut own = field_set(applied, schema);
    let mut merged = before.clone();
    merge::merge(&mut merged, applied, Some(schema), true);
    if let Some(last) = &last {
        prune(&mut merged, last, &own, &entries, schema);
    }
    let is_changed = merged != *before;
    let changes = changes_as_merged(live, &merged, schema);
    if !force {
        refuse_conflicts(&entries, &changes, manager, before, schema)?;
    }
    take(&mut entries, &changes);
    // An apply that changes nothing keeps its time, or has none.
    let time = if is_changed { Some(json!(manager.time)) } else { last.and_then(|last| last.get("time").cloned()) };
    own.subtract(&compare::untracked());
    entries.extend(entry(&own, manager, "Apply", time));
    keep_last_applied(&mut merged, applied, manager);
    put(&mut merged, entries);
    Ok(merged)
}

/// Whether a write changed nothing but the times at which somebody wrote: then it is none.
pub fn is_same_but_for_times(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    let without = |map: &'_ Map<String, Value>, key: &str| map.len() - usize::from(map.contains_key(key));
    let same_but = |new: &Map<String, Value>, old: &Map<String, Value>, key: &str| {
        without(new, key) == without(old, key) && new.iter().all(|(name, value)| name == key || old.get(name) == Some(value))
    };
    let (Some(new_meta), Some(old_meta)) =
        (new.get("metadata").and_then(Value::as_object), old.get("metadata").and_then(Value::as_object))
    else {
        return new == old;
    };
    let managers = |meta: &Map<String, Value>| meta.get("managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    if !same_but(new, old, "metadata") || !same_but(new_meta, old_meta, "managedFields") {
        return false;
    }
    let (mut new_managers, mut old_managers) = (managers(new_meta), managers(old_meta));
    for entry in new_managers.iter_mut().chain(&mut old_managers).filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    // Also in the same order, which is that of their times.
    new_managers == old_managers
}

/// Takes out what this manager applied before and now leaves out, unless somebody else owns it.
fn prune(merged: &mut Value, last: &Value, own: &Set, others: &[Value], schema: &Schema) {
    let mut gone = merge::with_fields(&Set::parse(&last["fieldsV1"]), Some(schema), true);
    gone.subtract(&merge::with_fields(own, Some(schema), true));
    for other in others {
        gone.subtract(&merge::with_fields(&Set::parse(&other["fieldsV1"]), Some(schema), true));
    }
    merge::remove(merged, &gone, Some(schema), true);
}

fn untyped(applied: &Value, fault: &str) -> Refusal {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    let message = format!("failed to create typed patch object ({namespace}/{name}; {version}, Kind={kind}): {fault}");
    Refusal { reason: "", ..Refusal::internal(message) }
}

/// The entries before this write: those of the object as it is written, if there are any that make sense, or the stored ones.
fn entries(old: Option<&Value>, new: &mut Value, manager: Manager) -> Vec<Value> {
    let written = new.get_mut("metadata").and_then(Value::as_object_mut).and_then(|map| map.remove("managedFields"));
    let stored = || old.and_then(|old| old.pointer("/metadata/managedFields")?.as_array());
    match written {
        Some(Value::Array(list)) if manager.subresource.is_empty() => match list.as_slice() {
            [] => list,
            [Value::Object(one)] if one.is_empty() => Vec::new(),
            all if all.iter().all(is_valid) => list,
            _ => stored().cloned().unwrap_or_default(),
        },
        Some(Value::Array(list)) if stored() == Some(&list) => list,
        _ => stored().cloned().unwrap_or_default(),
    }
}

fn is_valid(entry: &Value) -> bool {
    let is_operation = matches!(text(entry, "operation"), "Apply" | "Update");
    is_operation && !text(entry, "apiVersion").is_empty() && text(entry, "fieldsType") == "FieldsV1"
}

/// The writer takes what it changed from everybody, and what is gone is nobody's.
fn update(entries: &mut Vec<Value>, changes: &Changes, manager: Manager) {
    if changes.set.is_empty() {
        take(entries, changes);
        return;
    }
    let time = json!(manager.time);
    let own = entries.iter().position(|entry| is_of(entry, manager, "Update"));
    // Most writes change values of what the writer owns already: then only the time does.
    let mut own = own.map(|at| entries.remove(at));
    take(entries, changes);
    match &mut own {
        Some(own) if changes.set.is_within(&own["fieldsV1"]) && !changes.removed.touches(&own["fieldsV1"]) => own["time"] = time,
        _ => {
            let mut fields = own.map(|own| Set::parse(&own["fieldsV1"])).unwrap_or_default();
            fields.subtract(&changes.removed);
            fields.add(&changes.set);
            own = entry(&fields, manager, "Update", Some(time));
        }
    }
    entries.extend(own);
}

fn take(entries: &mut Vec<Value>, changes: &Changes) {
    entries.retain_mut(|entry| {
        let fields = &entry["fieldsV1"];
        if !changes.set.touches(fields) && !changes.removed.touches(fields) {
            return true;
        }
        let mut left = Set::parse(fields);
        left.subtract(&changes.set);
        left.subtract(&changes.removed);
        entry["fieldsV1"] = left.to_value();
        !left.is_empty()
    });
}

/// Whether an entry is that of a manager. One who applies keeps its entry from version to version.
fn is_of(entry: &Value, manager: Manager, operation: &str) -> bool {
    text(entry, "operation") == operation
        && text(entry, "manager") == manager.name
        && text(entry, "subresource") == manager.subresource
        && (operation == "Apply" || text(entry, "apiVersion") == manager.api_version)
}

fn entry(fields: &Set, manager: Manager, operation: &str, time: Option<Value>) -> Option<Value> {
    if fields.is_empty() {
        return None;
    }
    let mut entry = json!({
        "manager": manager.name, "operation": operation, "apiVersion": manager.api_version,
        "fieldsType": "FieldsV1", "fieldsV1": fields.to_value(),
    });
    if let Some(time) = time {
        entry["time"] = time;
    }
    if !manager.subresource.is_empty() {
        entry["subresource"] = json!(manager.subresource);
    }
    Some(entry)
}

fn refuse_conflicts(
    entries: &[Value],
    changes: &Changes,
    manager: Manager,
    live: &Value,
    schema: &Schema,
) -> Result<(), Refusal> {
    let mut conflicts = conflicts(entries, changes);
    if manager.name == "kubectl" {
        except_last_applied(&mut conflicts, live, schema);
    }
    if conflicts.is_empty() { Ok(()) } else { Err(refusal(&conflicts)) }
}

fn conflicts(entries: &[Value], changes: &Changes) -> Vec<(Value, Set)> {
    let touched = entries.iter().filter(|entry| changes.set.touches(&entry["fieldsV1"]));
    let mut found: Vec<(Value, Set)> =
        touched.map(|entry| (entry.clone(), Set::parse(&entry["fieldsV1"]).intersection(&changes.set))).collect();
    let identity =
        |entry: &'_ Value| ["manager", "operation", "apiVersion", "subresource"].map(|key| text(entry, key).to_owned());
    found.sort_by_cached_key(|(entry, _)| identity(entry));
    found
}

/// kubectl may change what it applied before by its own means.
fn except_last_applied(conflicts: &mut Vec<(Value, Set)>, live: &Value, schema: &Schema) {
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(last) = last else { return };
    let allowed = field_set(&last, schema);
    for (_, set) in &mut *conflicts {
        set.subtract(&allowed);
    }
    conflicts.retain(|(_, set)| !set.is_empty());
}

fn refusal(conflicts: &[(Value, Set)]) -> Refusal {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (entry, set) in conflicts {
        let name = printed(entry);
        lines.push(format!("conflicts with {name}:"));
        for field in set.paths() {
            lines.push(format!("- {field}"));
            causes.push(Cause { field, reason: "FieldManagerConflict", message: format!("conflict with {name}") });
        }
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    Refusal { code: 409, reason: "Conflict", causes, ..Refusal::bad_request(message) }
}

fn printed(entry: &Value) -> String {
    let mut printed = format!("{:?}", text(entry, "manager"));
    if !text(entry, "subresource").is_empty() {
        printed = format!("{printed} with subresource {:?}", text(entry, "subresource"));
    }
    if text(entry, "operation") == "Update" { format!("{printed} using {}", text(entry, "apiVersion")) } else { printed }
}

/// Who changes from client-side to server-side apply keeps the way back.
fn keep_last_applied(merged: &mut Value, applied: &Value, manager: Manager) {
    let annotation = merged.pointer_mut("/metadata/annotations").and_then(|annotations| annotations.get_mut(LAST_APPLIED));
    let Some(annotation) =
        annotation.filter(|text| manager.name == "kubectl" && text.as_str().is_some_and(|text| !text.is_empty()))
    else {
        return;
    };
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = json!(format!("{applied}\n"));
}

/// Many updaters would make many entries: the oldest of one version become `ancient-changes`.
fn unite_oldest(entries: &mut Vec<Value>) {
    let is_update = |entry: &Value| entry["operation"] == "Update";
    while entries.iter().filter(|entry| is_update(entry)).count() > UPDATERS_MAX {
        let mut oldest: Vec<usize> = (0..entries.len()).filter(|at| is_update(&entries[*at])).collect();
        oldest.sort_by_key(|at| ["time", "manager"].map(|key| text(&entries[*at], key)));
        let pair = oldest.iter().enumerate().find_map(|(nth, later)| {
            let same = |earlier: &&usize| entries[**earlier]["apiVersion"] == entries[*later]["apiVersion"];
            oldest[..nth].iter().find(same).map(|earlier| (*earlier, *later))
        });
        let Some((earlier, later)) = pair else { return };
        let mut fields = Set::parse(&entries[earlier]["fieldsV1"]);
        fields.add(&Set::parse(&entries[later]["fieldsV1"]));
        let version = text(&entries[later], "apiVersion").to_owned();
        let time = entries[later].get("time").cloned();
        let bucket = Manager { name: "ancient-changes", api_version: &version, subresource: "", time: "", leaves_status: false };
        let united = entry(&fields, bucket, "Update", time);
        entries.remove(earlier.max(later));
        entries.remove(earlier.min(later));
        entries.extend(united);
    }
}

/// Sorted as on the real server; an empty list is left out.
fn put(object: &mut Value, mut entries: Vec<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by(|one, other| {
        let keys = ["operation", "time", "manager", "apiVersion", "subresource"];
        keys.map(|key| text(one, key)).cmp(&keys.map(|key| text(other, key)))
    });
    metadata.insert("managedFields".to_owned(), Value::Array(entries));
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_default()
}
