//! What is right for Leases, VolumeAttachments and bindings of admission policies?

use serde_json::{Map, Value, json};

use super::read::{child, drop_zero, each, fill, fill_text, go_struct, invalid_text, list, not_negative, text, too_long};
use super::{names, selector};
use crate::refusal::Cause;

/// CSI says so of the names of drivers.
const ATTACHER_BYTES_MAX: usize = 63;
/// Errors of drivers are for people, and stored with the object.
const ERROR_BYTES_MAX: usize = 262_144;

/// Coordinated leader election is not enabled by default: its two fields are dropped.
pub fn default_lease(lease: &mut Value) {
    if let Some(spec) = child(lease, "spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

pub fn validate_lease(lease: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let duration = &lease["spec"]["leaseDurationSeconds"];
    if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    not_negative("spec.leaseTransitions", &lease["spec"]["leaseTransitions"], &mut causes);
    causes
}

pub fn default_volume_attachment(attachment: &mut Value) {
    if let Some(status) = child(attachment, "status") {
        fill(status, "attached", json!(false));
    }
}

pub fn validate_volume_attachment(attachment: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &attachment["spec"];
    let attacher = text(spec, "attacher");
    if attacher.is_empty() {
        causes.push(Cause::required("spec.attacher", ""));
    } else {
        if attacher.len() > ATTACHER_BYTES_MAX {
            causes.push(too_long("spec.attacher", ATTACHER_BYTES_MAX));
        }
        if !names::is_subdomain(&attacher.to_ascii_lowercase()) {
            let wrong = names::subdomain(&attacher.to_ascii_lowercase());
            causes.extend(wrong.into_iter().map(|detail| Cause::invalid("spec.attacher", &attacher.into(), detail)));
        }
    }
    volume_source(&spec["source"], &mut causes);
    let node = text(spec, "nodeName");
    causes.extend(names::subdomain(node).into_iter().map(|detail| Cause::invalid("spec.nodeName", &node.into(), detail)));
    if let Some(name) = spec["source"]["persistentVolumeName"].as_str() {
        let path = "spec.source.persistentVolumeName";
        causes.extend(names::subdomain(name).into_iter().map(|detail| Cause::invalid(path, &name.into(), detail)));
    }
    if old.is_some_and(|old| old["spec"] != *spec) {
        let sources =
            [("PersistentVolumeName", "persistentVolumeName", "null"), ("InlineVolumeSpec", "inlineVolumeSpec", "null")];
        let source = go_struct(&spec["source"], &sources);
        let shown = format!("{{\"Attacher\":{},\"Source\":{source},\"NodeName\":{}}}", json!(attacher), json!(node));
        causes.push(invalid_text("spec", &shown, "field is immutable"));
    }
    causes
}

fn volume_source(source: &Value, causes: &mut Vec<Cause>) {
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source["persistentVolumeName"].as_str(), source["inlineVolumeSpec"].is_object()) {
        (None, false) => causes.push(Cause::required("spec.source", detail)),
        (Some(_), true) => causes.push(Cause::forbidden("spec.source", detail)),
        (Some(""), false) => {
            let detail = "must specify non empty persistentVolumeName";
            causes.push(Cause::required("spec.source.persistentVolumeName", detail));
        }
        (Some(_), false) | (None, true) => {}
    }
}

pub fn validate_volume_attachment_status(attachment: &Value) -> Vec<Cause> {
    let keys = ["attachError", "detachError"].into_iter();
    let long = keys.filter(|key| text(&attachment["status"][*key], "message").len() > ERROR_BYTES_MAX);
    long.map(|key| too_long(format!("status.{key}.message"), ERROR_BYTES_MAX)).collect()
}

pub fn default_policy_binding(binding: &mut Value) {
    let Some(spec) = child(binding, "spec") else { return };
    drop_zero(spec, &["policyName", "validationActions"]);
    default_matching(spec, "matchResources");
}

pub fn default_policy(policy: &mut Value) {
    let Some(spec) = child(policy, "spec") else { return };
    fill_text(spec, "failurePolicy", "Fail");
    default_matching(spec, "matchConstraints");
}

fn default_matching(spec: &mut Map<String, Value>, key: &str) {
    let Some(resources) = spec.get_mut(key).and_then(Value::as_object_mut) else { return };
    fill_text(resources, "matchPolicy", "Equivalent");
    fill(resources, "namespaceSelector", json!({}));
    fill(resources, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        each(resources, key).for_each(|rule| fill_text(rule, "scope", "*"));
    }
}

pub fn validate_policy_binding(binding: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &binding["spec"];
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    } else {
        let wrong = names::subdomain(policy);
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid("spec.policyName", &policy.into(), detail)));
    }
    if spec["paramRef"].is_object() {
        params(&spec["paramRef"], &mut causes);
    }
    if spec["matchResources"].is_object() {
        resources(&spec["matchResources"], &mut causes);
    }
    actions(spec, &mut causes);
    causes
}

fn params(reference: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.paramRef";
    match (text(reference, "name").is_empty(), reference["selector"].is_object()) {
        (true, false) => causes.push(Cause::required(path, "one of name or selector must be specified")),
        (false, true) => {
            for key in ["name", "selector"] {
                causes.push(Cause::forbidden(format!("{path}.{key}"), "name and selector are mutually exclusive"));
            }
        }
        (true, true) | (false, false) => {}
    }
    selector::validate(&reference["selector"], &format!("{path}.selector"), causes);
    let action = &reference["parameterNotFoundAction"];
    match action.as_str().unwrap_or_default() {
        "" => causes.push(Cause::required(format!("{path}.parameterNotFoundAction"), "")),
        "Deny" | "Allow" => {}
        _ => causes.push(Cause::not_supported(format!("{path}.parameterNotFoundAction"), action, &["Deny", "Allow"])),
    }
}

fn resources(resources: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.matchResources";
    let policy = &resources["matchPolicy"];
    if !["Equivalent", "Exact"].contains(&policy.as_str().unwrap_or_default()) {
        causes.push(Cause::not_supported(format!("{path}.matchPolicy"), policy, &["Equivalent", "Exact"]));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        selector::validate(&resources[key], &format!("{path}.{key}"), causes);
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (at, rule) in list(resources, key).iter().enumerate() {
            let needed = ["operations", "apiGroups", "apiVersions", "resources"];
            for field in needed.into_iter().filter(|field| list(rule, field).is_empty()) {
                causes.push(Cause::required(format!("{path}.{key}[{at}].{field}"), ""));
            }
        }
    }
}

fn actions(spec: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.validationActions";
    let actions = list(spec, "validationActions");
    if actions.is_empty() {
        causes.push(Cause::required(path, "at least one validation action is required"));
    }
    let known = ["Audit", "Deny", "Warn"];
    for (at, action) in actions.iter().enumerate() {
        if !known.contains(&action.as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(format!("{path}[{at}]"), action, &known));
        }
        if actions[..at].contains(action) {
            causes.push(Cause::duplicate(format!("{path}[{at}]"), action));
        }
    }
    if ["Deny", "Warn"].iter().all(|both| actions.iter().any(|action| action == both)) {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and \
                      headers serves no purpose)";
        causes.push(Cause::invalid(path, &spec["validationActions"], detail));
    }
}
