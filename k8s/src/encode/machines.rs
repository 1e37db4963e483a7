//! What is written on Machines and on their checks, and what is made for them?

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use resus_core::effect::{Change, Creation, Edit, LabelGoes, OwnerGoes, Signing, Target, Tying};
use resus_core::escalate::TEMPLATE_SUFFIX;
use resus_core::facts::ObjectKey;
use resus_core::mhc::facts::{
    CLUSTER_KIND, CLUSTER_LABEL, Dialect, MACHINE_CHECK_KIND, MACHINE_KIND, MachineCheckStatus, Place, Posted, Style,
};
use serde_json::{Value, json};

use super::{Sendable, json_patch, merge, object_path, request, seconds};
use crate::names;

pub fn look(place: &Place, dialect: Dialect) -> Sendable {
    request(Method::GET, machine_path(place, dialect), None)
}

/// Conditions are found by their place in a list: the version makes sure that it still is theirs.
pub fn sign(signing: &Signing) -> Sendable {
    let Signing { machine: Target { place, dialect, version, .. }, edits, missing, tells: _ } = signing;
    let mut patch = vec![json!({"op": "replace", "path": "/metadata/resourceVersion", "value": &*version.0})];
    let gains = |style: Style| edits.iter().any(|edit| edit.style == style && !matches!(edit.change, Change::Remove(_)));
    patch.extend(parents(missing.iter().copied().filter(|(style, _)| gains(*style)), *dialect));
    patch.extend(in_order(edits).into_iter().map(|edit| operation(edit, *dialect)));
    json_patch(format!("{}/status", machine_path(place, *dialect)), patch)
}

/// What is missing on the way to the lists, the outermost first; what both lists miss, once.
fn parents(missing: impl Iterator<Item = (Style, u8)>, dialect: Dialect) -> Vec<Value> {
    let (mut made, mut patch) = (BTreeSet::new(), Vec::new());
    for (style, missing) in missing {
        let path: Vec<&str> = [&["status"], names::conditions(dialect, style)].concat();
        for end in path.len() - path.len().min(missing.into())..path.len() {
            let pointer = format!("/{}", path[..=end].join("/"));
            let empty = if end + 1 == path.len() { json!([]) } else { json!({}) };
            if made.insert(pointer.clone()) {
                patch.push(json!({"op": "add", "path": pointer, "value": empty}));
            }
        }
    }
    patch
}

/// From the end of each list to its beginning, so that no edit moves what another one means. Of those that go to the
/// same place the last in the alphabet goes first, and is pushed on by the others.
fn in_order(edits: &[Edit]) -> Vec<&Edit> {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| {
        let (number, is_there) = match &edit.change {
            Change::Replace(at, _) | Change::Remove(at) => (*at, true),
            Change::Insert(before, _) => (*before, false),
        };
        Reverse((number, is_there, edit.sign.name()))
    });
    edits
}

fn operation(Edit { style, sign, change }: &Edit, dialect: Dialect) -> Value {
    let list = format!("/status/{}", names::conditions(dialect, *style).join("/"));
    let condition = |posted: &Posted| condition(sign.name(), posted, *style);
    match change {
        Change::Replace(at, posted) => json!({"op": "replace", "path": format!("{list}/{at}"), "value": condition(posted)}),
        Change::Insert(before, posted) => json!({"op": "add", "path": format!("{list}/{before}"), "value": condition(posted)}),
        Change::Remove(at) => json!({"op": "remove", "path": format!("{list}/{at}")}),
    }
}

/// The legacy style has no empty texts: its schema refuses them.
fn condition(kind: &str, posted: &Posted, style: Style) -> Value {
    let Posted { status, reason, severity, message, since, observed_generation, ours: _ } = posted;
    let mut condition = json!({"type": kind, "status": status.to_string(), "lastTransitionTime": seconds(*since)});
    for (field, text) in [("reason", reason), ("message", message)] {
        if style == Style::New || !text.is_empty() {
            condition[field] = json!(&**text);
        }
    }
    match style {
        Style::New => observed_generation.iter().for_each(|generation| condition["observedGeneration"] = json!(generation)),
        Style::Legacy => severity.iter().for_each(|severity| condition["severity"] = json!(&**severity)),
    }
    condition
}

pub fn power_cycle(machine: &Target, on: bool) -> Sendable {
    let asked = if on { json!("") } else { Value::Null };
    let patch = json!({"metadata": {"resourceVersion": &*machine.version.0, "annotations": {names::POWER_CYCLE: asked}}});
    merge(machine_path(&machine.place, machine.dialect), &patch)
}

/// Other labels and owners stay: what is there, and where, the version makes sure of.
pub fn tie(tying: &Tying) -> Sendable {
    let Tying { check: Target { place, dialect, version, .. }, cluster, cluster_uid, dialect: read_in, label, owner } = tying;
    let mut patch = vec![json!({"op": "replace", "path": "/metadata/resourceVersion", "value": &*version.0})];
    let add = |path: String, value: Value| json!({"op": "add", "path": path, "value": value});
    match label {
        Some(LabelGoes::First) => patch.push(add("/metadata/labels".into(), json!({CLUSTER_LABEL: &**cluster}))),
        Some(LabelGoes::Beside) => {
            patch.push(add(format!("/metadata/labels/{}", CLUSTER_LABEL.replace('/', "~1")), json!(&**cluster)));
        }
        None => {}
    }
    let reference = json!({"apiVersion": read_in.api_version(), "kind": CLUSTER_KIND, "name": &**cluster, "uid": &**cluster_uid});
    match owner {
        Some(OwnerGoes::First) => patch.push(add("/metadata/ownerReferences".into(), json!([reference]))),
        Some(OwnerGoes::Last) => patch.push(add("/metadata/ownerReferences/-".into(), reference)),
        Some(OwnerGoes::At(at)) => {
            patch.push(json!({"op": "replace", "path": format!("/metadata/ownerReferences/{at}"), "value": reference}));
        }
        None => {}
    }
    json_patch(object_path(&key(place, *dialect, MACHINE_CHECK_KIND), names::MACHINE_CHECKS, true), patch)
}

pub fn delete(machine: &Target) -> Sendable {
    let same = json!({"uid": &*machine.uid, "resourceVersion": &*machine.version.0});
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": same});
    request(Method::DELETE, machine_path(&machine.place, machine.dialect), Some(body))
}

pub fn status(check: &Target, status: &MachineCheckStatus) -> Sendable {
    let MachineCheckStatus { expected, healthy, remediations_allowed, observed_generation, targets, new, legacy } = status;
    let mut body = json!({});
    let counters = [("expectedMachines", expected), ("currentHealthy", healthy), ("remediationsAllowed", remediations_allowed)];
    for (field, count) in counters {
        count.iter().for_each(|count| body[field] = json!(count));
    }
    observed_generation.iter().for_each(|generation| body["observedGeneration"] = json!(generation));
    if !targets.is_empty() {
        body["targets"] = targets.iter().map(|name| json!(&**name)).collect();
    }
    for style in check.dialect.styles() {
        let posted = match style {
            Style::New => new,
            Style::Legacy => legacy,
        };
        if !posted.is_empty() {
            let list = names::conditions(check.dialect, *style).iter().fold(&mut body, |at, element| &mut at[element]);
            *list = posted.iter().map(|(kind, posted)| condition(kind, posted, *style)).collect();
        }
    }
    let path = object_path(&key(&check.place, check.dialect, MACHINE_CHECK_KIND), names::MACHINE_CHECKS, true);
    let patch = vec![
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": &*check.version.0}),
        json!({"op": "add", "path": "/status", "value": body}),
    ];
    json_patch(format!("{path}/status"), patch)
}

/// For whom [`create`] makes something.
pub struct For<'a> {
    pub dialect: Dialect,
    pub name: &'a str,
    pub uid: &'a str,
    pub cluster: Option<&'a str>,
    pub check_uid: &'a str,
}

/// Remediators find the Machine by its owner reference, and the template by its annotations.
pub fn create(creation: &Creation, machine: &For) -> Sendable {
    let For { dialect, name, uid, cluster, check_uid } = machine;
    let group = creation.key.kind.api_version.split('/').next().unwrap_or_default();
    let template_kind = format!("{}{TEMPLATE_SUFFIX}.{group}", creation.key.kind.kind);
    let cloned_from = |what: &str| format!("{}/cloned-from-{what}", dialect.flavour().group());
    let mut labels: BTreeMap<&str, &str> = creation.body.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
    labels.extend(cluster.map(|cluster| (CLUSTER_LABEL, cluster)));
    let (from_name, from_kind) = (cloned_from("name"), cloned_from("groupkind"));
    let mut annotations: BTreeMap<&str, &str> = creation.body.annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
    annotations.extend([
        (&*from_name, &*creation.template),
        (&*from_kind, &*template_kind),
        (names::MACHINE_CHECK_UID, *check_uid),
    ]);
    let owner = json!({"apiVersion": dialect.api_version(), "kind": MACHINE_KIND, "name": name, "uid": uid});
    super::create_with(creation, json!({"labels": labels, "annotations": annotations, "ownerReferences": [owner]}))
}

fn machine_path(place: &Place, dialect: Dialect) -> String {
    object_path(&key(place, dialect, MACHINE_KIND), names::MACHINES, true)
}

fn key(place: &Place, dialect: Dialect, kind: &str) -> ObjectKey {
    ObjectKey { kind: dialect.kind(kind), namespace: Some(place.namespace.clone()), name: place.name.clone() }
}
