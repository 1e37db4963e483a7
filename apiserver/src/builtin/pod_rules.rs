//! Is a Pod's spec, or a template's, one that could run? And what of it may change?

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::quantity::Quantity;
use super::read::{fill, list, map, not_negative, text};
use super::{meta, names, node};
use crate::refusal::Cause;

const PORT_MAX: i64 = 65535;

pub fn validate(pod: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    validate_spec(&pod["spec"], "spec", &mut causes);
    causes
}

/// `path` is `spec`, or where the template's spec is.
pub fn validate_spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let volumes = volumes(spec, path, causes);
    if list(spec, "containers").is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut taken = BTreeSet::new();
    for key in ["containers", "initContainers"] {
        for (at, one) in list(spec, key).iter().enumerate() {
            let path = format!("{path}.{key}[{at}]");
            container(one, &path, &volumes, causes);
            if !text(one, "name").is_empty() && !taken.insert(text(one, "name")) {
                causes.push(Cause::duplicate(format!("{path}.name"), &one["name"]));
            }
            probes(one, &path, key == "initContainers", causes);
        }
    }
    choice(spec, "restartPolicy", path, &["Always", "OnFailure", "Never"], causes);
    if spec["hostNetwork"] == true {
        shared_ports(spec, path, causes);
    }
    choice(spec, "dnsPolicy", path, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], causes);
    meta::labels(spec, "nodeSelector", &format!("{path}.nodeSelector"), causes);
    for key in ["serviceAccountName", "nodeName"].into_iter().filter(|key| !text(spec, key).is_empty()) {
        let wrong = names::subdomain(text(spec, key));
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(format!("{path}.{key}"), &spec[key], detail)));
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64().filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds)) {
        let detail = "must be between 1 and 2147483647, inclusive";
        causes.push(Cause::invalid(format!("{path}.activeDeadlineSeconds"), &seconds.into(), detail));
    }
    for (at, one) in list(spec, "tolerations").iter().enumerate() {
        toleration(one, &format!("{path}.tolerations[{at}]"), causes);
    }
    for (at, one) in list(spec, "containers").iter().enumerate() {
        if text(one, "image").trim() != text(one, "image") {
            let detail = "must not have leading or trailing whitespace";
            causes.push(Cause::invalid(format!("{path}.containers[{at}].image"), &one["image"], detail));
        }
    }
}

pub fn validate_update(pod: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate(pod);
    let (spec, before) = (&pod["spec"], &old["spec"]);
    for key in ["containers", "initContainers"] {
        if list(spec, key).len() != list(before, key).len() {
            let detail = "pod updates may not add or remove containers";
            causes.push(Cause::forbidden(format!("spec.{key}"), detail));
            return causes;
        }
    }
    if !deadline_falls(&spec["activeDeadlineSeconds"], &before["activeDeadlineSeconds"], &mut causes) {
        return causes;
    }
    let same = |one: &Value, other: &Value| ["key", "operator", "value", "effect"].iter().all(|key| one[*key] == other[*key]);
    let tolerations = list(spec, "tolerations");
    let kept = list(before, "tolerations").iter().all(|old| tolerations.iter().any(|one| same(one, old)));
    if !kept {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", detail));
    }
    let changed = changed(spec, before);
    if !changed.is_empty() {
        causes.push(Cause::forbidden("spec", &format!("{UPDATABLE}\n{changed}")));
    }
    causes
}

/// A Pod's time can only become shorter. False: nothing else is looked at.
fn deadline_falls(new: &Value, old: &Value, causes: &mut Vec<Cause>) -> bool {
    let detail = match (new.as_i64(), old.as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => "must be between 0 and 2147483647, inclusive",
        (Some(new), Some(old)) if new > old => "must be less than or equal to previous value",
        (None, Some(_)) => "must not update from a positive integer to nil value",
        (Some(_) | None, _) => return true,
    };
    causes.push(Cause::invalid("spec.activeDeadlineSeconds", new, detail));
    new.is_null()
}

pub fn validate_status(pod: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (status, before) = (&pod["status"], &old["status"]);
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() {
        let invalid = |detail| Cause::invalid("status.nominatedNodeName", &nominated.into(), detail);
        causes.extend(names::subdomain(nominated).into_iter().map(invalid));
    }
    if status["qosClass"] != before["qosClass"] {
        causes.push(Cause::invalid("status.qosClass", &status["qosClass"], "field is immutable"));
    }
    for (at, address) in list(status, "podIPs").iter().enumerate() {
        if text(address, "ip").parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(format!("status.podIPs[{at}]"), &address["ip"], detail));
        }
    }
    causes
}

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
    `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
    (allow it to be set to 1 if it was previously negative)";

/// The fields that differ and may not, one line for the old value and one for the new. Kubernetes prints a longer diff here, with
/// the lines around and the names of its own structs.
fn changed(spec: &Value, before: &Value) -> String {
    let mut new = spec.clone();
    for key in ["containers", "initContainers"] {
        let olds = list(before, key);
        for (one, old) in new.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().zip(olds) {
            if let Some(one) = one.as_object_mut() {
                one.remove("image");
                fill(one, "image", old["image"].clone());
            }
        }
    }
    let was_negative = before["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0);
    let may = |key: &str| match key {
        "activeDeadlineSeconds" | "tolerations" => true,
        "terminationGracePeriodSeconds" => was_negative && spec[key] == 1,
        _ => false,
    };
    let keys: BTreeSet<&String> = [&new, before].into_iter().filter_map(Value::as_object).flat_map(|map| map.keys()).collect();
    let differs = keys.into_iter().filter(|key| !may(key) && new[key.as_str()] != before[key.as_str()]);
    let line = |sign: char, key: &str, value: &Value| match value {
        Value::Null => String::new(),
        value => format!("{sign} {}: {value}\n", json!(key)),
    };
    differs.map(|key| line('-', key, &before[key.as_str()]) + &line('+', key, &new[key.as_str()])).collect()
}

fn choice(parent: &Value, key: &str, path: &str, known: &[&str], causes: &mut Vec<Cause>) {
    if !known.contains(&text(parent, key)) {
        causes.push(Cause::not_supported(format!("{path}.{key}"), &text(parent, key).into(), known));
    }
}

/// The names of the volumes, for the mounts.
fn volumes<'a>(spec: &'a Value, path: &str, causes: &mut Vec<Cause>) -> BTreeSet<&'a str> {
    let mut taken = BTreeSet::new();
    for (at, volume) in list(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{at}]");
        for (key, field) in [("hostPath", "path"), ("secret", "secretName"), ("configMap", "name")] {
            if volume[key].is_object() && text(&volume[key], field).is_empty() {
                causes.push(Cause::required(format!("{path}.{key}.{field}"), ""));
            }
        }
        let sources: Vec<&String> =
            volume.as_object().into_iter().flat_map(|map| map.keys()).filter(|key| *key != "name").collect();
        for source in sources.iter().skip(1) {
            causes.push(Cause::forbidden(format!("{path}.{source}"), "may not specify more than 1 volume type"));
        }
        let name = text(volume, "name");
        match name.is_empty() {
            true => causes.push(Cause::required(format!("{path}.name"), "")),
            false => {
                let invalid = |detail| Cause::invalid(format!("{path}.name"), &name.into(), detail);
                causes.extend(names::label(name).into_iter().map(invalid));
            }
        }
        if !taken.insert(name) {
            causes.push(Cause::duplicate(format!("{path}.name"), &name.into()));
        }
    }
    taken
}

fn container(container: &Value, path: &str, volumes: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    let name = text(container, "name");
    match name.is_empty() {
        true => causes.push(Cause::required(format!("{path}.name"), "")),
        false => {
            let invalid = |detail| Cause::invalid(format!("{path}.name"), &name.into(), detail);
            causes.extend(names::label(name).into_iter().map(invalid));
        }
    }
    if text(container, "image").is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    }
    choice(container, "terminationMessagePolicy", path, &["File", "FallbackToLogsOnError"], causes);
    ports(container, path, causes);
    variables(container, path, causes);
    mounts(container, path, volumes, causes);
    choice(container, "imagePullPolicy", path, &["Always", "IfNotPresent", "Never"], causes);
    resources(&container["resources"], &format!("{path}.resources"), causes);
}

fn ports(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut taken = BTreeSet::new();
    for (at, port) in list(container, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{at}]");
        if !text(port, "name").is_empty() && !taken.insert(text(port, "name")) {
            causes.push(Cause::duplicate(format!("{path}.name"), &port["name"]));
        }
        causes.extend(port_name(text(port, "name")).map(|detail| Cause::invalid(format!("{path}.name"), &port["name"], detail)));
        if port["containerPort"].as_i64().unwrap_or_default() == 0 {
            causes.push(Cause::required(format!("{path}.containerPort"), ""));
        }
        for key in ["containerPort", "hostPort"] {
            if port[key].as_i64().is_some_and(|number| number != 0 && !(1..=PORT_MAX).contains(&number)) {
                causes.push(Cause::invalid(format!("{path}.{key}"), &port[key], "must be between 1 and 65535, inclusive"));
            }
        }
        if !["SCTP", "TCP", "UDP"].contains(&text(port, "protocol")) {
            causes.push(Cause::not_supported(format!("{path}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]));
        }
    }
}

/// On the node's own network a port is the node's.
fn shared_ports(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, container) in list(spec, "containers").iter().enumerate() {
        for (number, port) in list(container, "ports").iter().enumerate() {
            let differs = port["hostPort"].as_i64().is_some_and(|host| host != 0 && port["containerPort"] != host);
            if differs {
                let path = format!("{path}.containers[{at}].ports[{number}].hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                causes.push(Cause::invalid(path, &port["hostPort"], detail));
            }
        }
    }
}

fn port_name(name: &str) -> impl Iterator<Item = &'static str> {
    let has_other = !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let has_letter = name.bytes().any(|byte| byte.is_ascii_lowercase());
    let rules = [
        (name.len() > 15, "must be no more than 15 characters"),
        (has_other, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (!has_letter, "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    let is_named = !name.is_empty();
    rules.into_iter().filter(move |(broken, _)| is_named && *broken).map(|(_, detail)| detail)
}

/// What of itself a container may read from its environment.
fn is_field(path: &str) -> bool {
    let known = ["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"];
    let status = ["status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"];
    let keyed = ["metadata.annotations['", "metadata.labels['"];
    known.contains(&path) || status.contains(&path) || keyed.iter().any(|start| path.starts_with(start) && path.ends_with("']"))
}

fn variables(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, variable) in list(container, "env").iter().enumerate() {
        let path = format!("{path}.env[{at}]");
        let name = text(variable, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        } else if !name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            causes.push(Cause::invalid(format!("{path}.name"), &variable["name"], detail));
        }
        let field = &variable["valueFrom"]["fieldRef"]["fieldPath"];
        if field.as_str().is_some_and(|field| !is_field(field)) {
            let detail = format!("error converting fieldPath: field label not supported: {}", field.as_str().unwrap_or_default());
            causes.push(Cause::invalid(format!("{path}.valueFrom.fieldRef.fieldPath"), field, detail));
        }
        let detail = match (&variable["valueFrom"], text(variable, "value")) {
            (Value::Object(from), _) if from.is_empty() => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            }
            (Value::Object(_), value) if !value.is_empty() => "may not be specified when `value` is not empty",
            _ => continue,
        };
        causes.push(Cause::invalid(format!("{path}.valueFrom"), &"".into(), detail));
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>, causes: &mut Vec<Cause>) {
    let mut taken = BTreeSet::new();
    for (at, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{at}]");
        if text(mount, "name").is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        } else if !volumes.contains(text(mount, "name")) {
            let message = format!("Not found: {}", mount["name"]);
            causes.push(Cause { field: format!("{path}.name"), reason: "FieldValueNotFound", message });
        }
        if text(mount, "mountPath").is_empty() {
            causes.push(Cause::required(format!("{path}.mountPath"), ""));
        }
        if !taken.insert(text(mount, "mountPath")) {
            causes.push(Cause::invalid(format!("{path}.mountPath"), &mount["mountPath"], "must be unique"));
        }
    }
}

fn resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    for part in ["limits", "requests"] {
        for (name, value) in map(resources, part) {
            let Some(quantity) = Quantity::of(value) else { continue };
            let limit = Quantity::of(&resources["limits"][name.as_str()]);
            if let Some(limit) = limit.filter(|limit| part == "requests" && quantity.nano > limit.nano) {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                causes.push(Cause::invalid(format!("{path}.requests"), &quantity.to_string().into(), detail));
            }
            let path = format!("{path}.{part}[{name}]");
            if quantity.nano < 0 {
                causes.push(Cause::invalid(path.as_str(), &quantity.to_string().into(), "must be greater than or equal to 0"));
            }
            if node::is_counted(name) && !quantity.is_integer() {
                causes.push(Cause::invalid(path.as_str(), &quantity.to_string().into(), "must be an integer"));
            }
            let is_standard = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
            if !is_standard && !name.contains('/') {
                let name = Value::from(name.as_str());
                causes.push(Cause::invalid(path.as_str(), &name, "must be a standard resource type or fully qualified"));
                causes.push(Cause::invalid(path, &name, "must be a standard resource for containers"));
            }
        }
    }
}

fn probes(container: &Value, path: &str, is_init: bool, causes: &mut Vec<Cause>) {
    let runs_once = is_init && text(container, "restartPolicy") != "Always";
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[key];
        let path = format!("{path}.{key}");
        if !probe.is_object() {
            continue;
        }
        if runs_once {
            causes.push(Cause::forbidden(path, "may not be set for init containers without restartPolicy=Always"));
            continue;
        }
        if ["exec", "httpGet", "tcpSocket", "grpc"].iter().all(|action| probe[*action].is_null()) {
            causes.push(Cause::required(path.as_str(), "must specify a handler type"));
        }
        if probe["exec"].is_object() && list(&probe["exec"], "command").is_empty() {
            causes.push(Cause::required(format!("{path}.exec.command"), ""));
        }
        for action in ["httpGet", "tcpSocket", "grpc"] {
            let port = &probe[action]["port"];
            if port.as_i64().is_some_and(|number| !(1..=PORT_MAX).contains(&number)) {
                causes.push(Cause::invalid(format!("{path}.{action}.port"), port, "must be between 1 and 65535, inclusive"));
            }
        }
        for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
            not_negative(format!("{path}.{key}"), &probe[key], causes);
        }
    }
}

fn toleration(toleration: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    if !key.is_empty() {
        let wrong = names::qualified(key);
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(format!("{path}.key"), &key.into(), detail)));
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(Cause::invalid(format!("{path}.operator"), &operator.into(), detail));
    }
    if toleration["tolerationSeconds"].is_number() && text(toleration, "effect") != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(Cause::invalid(format!("{path}.effect"), &text(toleration, "effect").into(), detail));
    }
    match operator {
        "" | "Equal" => {
            let wrong = names::label_value(text(toleration, "value"));
            let invalid = |detail| Cause::invalid(format!("{path}.operator"), &toleration["value"], detail);
            causes.extend(wrong.into_iter().map(invalid));
        }
        "Exists" if !text(toleration, "value").is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            causes.push(Cause::invalid(format!("{path}.operator"), &toleration["value"], detail));
        }
        "Exists" => {}
        _ => causes.push(Cause::not_supported(format!("{path}.operator"), &operator.into(), &["Equal", "Exists"])),
    }
    node::effect(&toleration["effect"], format!("{path}.effect"), true, causes);
}
