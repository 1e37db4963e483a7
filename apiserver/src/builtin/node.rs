//! What is right for a Node?
//!
//! Heartbeats come here ten thousand times a second: nothing is cloned, and what is already in order is only looked at.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::names;
use super::quantity::{self, Quantity};
use super::read::{child, drop_zero, each, fill, go_struct, list, map, text, untimed};
use crate::refusal::Cause;

/// Strings that a Node's `nodeInfo` always has.
const SYSTEM: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

pub fn default(node: &mut Value) {
    if let Some(spec) = child(node, "spec") {
        drop_zero(spec, &["unschedulable", "taints", "podCIDR", "podCIDRs", "providerID", "externalID"]);
        if spec.contains_key("podCIDR") || spec.contains_key("podCIDRs") {
            mirror_cidrs(spec);
        }
        each(spec, "taints").for_each(|taint| drop_zero(taint, &["value", "timeAdded"]));
    }
    let Some(status) = child(node, "status") else { return };
    for key in ["capacity", "allocatable"] {
        if let Some(quantities) = status.get_mut(key).and_then(Value::as_object_mut) {
            quantity::normalise(quantities);
        }
    }
    if !status.contains_key("allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
    if !status.contains_key("daemonEndpoints") {
        status.insert("daemonEndpoints".to_owned(), json!({"kubeletEndpoint": {"Port": 0}}));
    }
    let system = status.entry("nodeInfo").or_insert_with(|| json!({}));
    if let Some(system) = system.as_object_mut().filter(|system| system.len() < SYSTEM.len()) {
        SYSTEM.iter().for_each(|key| fill(system, key, json!("")));
    }
    untimed(status, &["lastHeartbeatTime", "lastTransitionTime"]);
    drop_zero(status, &["addresses", "conditions", "images", "volumesInUse", "volumesAttached", "capacity", "allocatable"]);
}

/// The singular is what old clients write, and wins.
fn mirror_cidrs(spec: &mut Map<String, Value>) {
    let one = spec.get("podCIDR").cloned().unwrap_or(Value::Null);
    let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
    match first {
        Some(first) if one.is_null() => _ = spec.insert("podCIDR".to_owned(), first),
        Some(first) if first == one => {}
        Some(_) | None => _ = spec.insert("podCIDRs".to_owned(), json!([one])),
    }
}

/// A new Node is not ready until somebody says so: the admission plugin TaintNodesByCondition.
pub fn prepare_create(node: &mut Value) {
    let Some(spec) = child(node, "spec") else { return };
    spec.remove("configSource");
    let (key, effect) = ("node.kubernetes.io/not-ready", "NoSchedule");
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut()
        && !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect)
    {
        taints.push(json!({"key": key, "effect": effect}));
    }
}

pub fn validate(node: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    taints(list(&node["spec"], "taints"), &mut causes);
    resources(&node["status"], &mut causes);
    cidrs(&node["spec"], &mut causes);
    causes
}

pub fn validate_update(node: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate(node);
    addresses(&node["status"], &mut causes);
    let (spec, before) = (&node["spec"], &old["spec"]);
    let forbidden = |field: &str, detail: &str| Cause::forbidden(format!("spec.{field}"), detail);
    if !list(before, "podCIDRs").is_empty() && spec["podCIDRs"] != before["podCIDRs"] {
        causes.push(forbidden("podCIDRs", "node updates may not change podCIDR except from \"\" to valid"));
    }
    if !text(before, "providerID").is_empty() && spec["providerID"] != before["providerID"] {
        causes.push(forbidden("providerID", "node updates may not change providerID except from \"\" to valid"));
    }
    if text(spec, "externalID") != text(before, "externalID") {
        causes.push(forbidden("externalID", "may not be updated"));
    }
    causes
}

/// The spec is the stored one, so only the status is looked at.
pub fn validate_status(node: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    resources(&node["status"], &mut causes);
    addresses(&node["status"], &mut causes);
    causes
}

/// Kubernetes reports taints under `metadata`, and so do we.
fn taints(taints: &[Value], causes: &mut Vec<Cause>) {
    for (at, taint) in taints.iter().enumerate() {
        let path = |field: &str| format!("metadata.taints[{at}].{field}");
        let wrong = names::qualified(text(taint, "key"));
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(path("key"), &text(taint, "key").into(), detail)));
        let wrong = names::label_value(text(taint, "value"));
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(path("value"), &taint["value"], detail)));
        effect(&taint["effect"], path("effect"), false, causes);
        let same = |other: &&Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if taints[..at].iter().any(|other| same(&other)) {
            let fields = [
                ("Key", "key", "\"\""),
                ("Value", "value", "\"\""),
                ("Effect", "effect", "\"\""),
                ("TimeAdded", "timeAdded", "null"),
            ];
            let shown = go_struct(taint, &fields);
            let message = format!("Duplicate value: {shown}: taints must be unique by key and effect pair");
            causes.push(Cause { field: format!("metadata.taints[{at}]"), reason: "FieldValueDuplicate", message });
        }
    }
}

/// Also for tolerations, which may leave it out.
pub fn effect(effect: &Value, path: String, may_be_empty: bool, causes: &mut Vec<Cause>) {
    match effect.as_str().unwrap_or_default() {
        "" if may_be_empty => {}
        "" => causes.push(Cause::required(path, "")),
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
        _ => causes.push(Cause::not_supported(path, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"])),
    }
}

fn resources(status: &Value, causes: &mut Vec<Cause>) {
    for part in ["capacity", "allocatable"] {
        for (name, value) in map(status, part) {
            let Some(quantity) = Quantity::of(value) else { continue };
            let path = || format!("status.{part}.{name}");
            if quantity.nano < 0 {
                causes.push(Cause::invalid(path(), &quantity.to_string().into(), "must be greater than or equal to 0"));
            }
            if is_counted(name) && !quantity.is_integer() {
                causes.push(Cause::invalid(path(), &quantity.to_string().into(), "must be an integer"));
            }
        }
    }
}

/// Pods and devices come whole.
pub fn is_counted(name: &str) -> bool {
    name == "pods" || (name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests."))
}

fn addresses(status: &Value, causes: &mut Vec<Cause>) {
    let addresses = list(status, "addresses");
    for (at, address) in addresses.iter().enumerate() {
        if addresses[..at].contains(address) {
            let fields = [("Type", "type", "\"\""), ("Address", "address", "\"\"")];
            let message = format!("Duplicate value: {}", go_struct(address, &fields));
            causes.push(Cause { field: format!("status.addresses[{at}]"), reason: "FieldValueDuplicate", message });
        }
    }
}

fn cidrs(spec: &Value, causes: &mut Vec<Cause>) {
    let cidrs = list(spec, "podCIDRs");
    let families: Vec<Option<bool>> = cidrs.iter().map(|cidr| is_ipv6(cidr.as_str().unwrap_or_default())).collect();
    for (at, cidr) in cidrs.iter().enumerate().filter(|(at, _)| families[*at].is_none()) {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        causes.push(Cause::invalid(format!("spec.podCIDRs[{at}]"), cidr, detail));
    }
    if cidrs.len() < 2 {
        return;
    }
    if let Some(at) = families.iter().position(Option::is_none) {
        let said = format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {})", cidrs[at].as_str().unwrap_or_default());
        let message = format!("Internal error: invalid PodCIDRs. failed to check with dual stack with error:{said}");
        causes.push(Cause { field: "spec.podCIDRs".to_owned(), reason: "InternalError", message });
    }
    let is_pair = cidrs.len() == 2 && families.iter().all(Option::is_some) && families[0] != families[1];
    if !is_pair {
        let detail = "may specify no more than one CIDR for each IP family";
        causes.push(Cause::invalid("spec.podCIDRs", &spec["podCIDRs"], detail));
    }
}

fn is_ipv6(cidr: &str) -> Option<bool> {
    let (address, bits) = cidr.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv6() { 128 } else { 32 }).then_some(address.is_ipv6())
}
