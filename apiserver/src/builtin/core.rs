//! What is right for ConfigMaps, Secrets and Namespaces?

use serde_json::{Value, json};

use super::base64;
use super::meta::{UNKNOWN_FINALIZER, is_known_finalizer};
use super::names;
use super::read::{child, drop_zero, fill_text, list, map, text, too_long, untimed};
use crate::refusal::Cause;

/// All values of a ConfigMap or Secret together; etcd takes no larger objects.
const DATA_BYTES_MAX: usize = 1024 * 1024;

pub fn default_config_map(config: &mut Value) {
    if let Some(config) = config.as_object_mut() {
        drop_zero(config, &["data", "binaryData"]);
    }
}

pub fn validate_config_map(config: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = frozen(config, old, &["data", "binaryData"]);
    let mut bytes = 0;
    for (key, value) in map(config, "data") {
        let path = || format!("data[{key}]");
        causes.extend(names::config_key(key).into_iter().map(|detail| Cause::invalid(path(), &key.as_str().into(), detail)));
        if !config["binaryData"][key.as_str()].is_null() {
            causes.push(Cause::invalid(path(), &key.as_str().into(), "duplicate of key present in binaryData"));
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    bytes += data(config, "binaryData", &mut causes);
    if bytes > DATA_BYTES_MAX {
        causes.push(too_long("[]", DATA_BYTES_MAX));
    }
    causes
}

/// Plain text is folded into `data` and never seen again.
pub fn default_secret(secret: &mut Value) {
    let plain = secret.as_object_mut().and_then(|secret| secret.remove("stringData"));
    if let Some(Value::Object(plain)) = plain
        && !plain.is_empty()
        && let Some(data) = child(secret, "data")
    {
        for (key, value) in plain {
            data.insert(key, json!(base64::encode(value.as_str().unwrap_or_default().as_bytes())));
        }
    }
    if let Some(secret) = secret.as_object_mut() {
        drop_zero(secret, &["data"]);
        fill_text(secret, "type", "Opaque");
    }
}

pub fn validate_secret(secret: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_some_and(|old| old["type"] != secret["type"]) {
        causes.push(Cause::invalid("type", &secret["type"], "field is immutable"));
    }
    causes.extend(frozen(secret, old, &["data"]));
    if data(secret, "data", &mut causes) > DATA_BYTES_MAX {
        causes.push(too_long("data", DATA_BYTES_MAX));
    }
    let has = |key: &str| secret["data"][key].is_string();
    let needed = |key: &str| Cause::required(format!("data[{key}]"), "");
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if text(&secret["metadata"]["annotations"], key).is_empty() {
                causes.push(Cause::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => causes.extend(credentials(secret, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => causes.extend(credentials(secret, ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            causes.extend(["username", "password"].map(needed));
        }
        "kubernetes.io/ssh-auth" if text(&secret["data"], "ssh-privatekey").is_empty() => {
            causes.push(needed("ssh-privatekey"));
        }
        "kubernetes.io/tls" => causes.extend(["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)).map(needed)),
        _ => {}
    }
    causes
}

/// Must be a JSON object. Of Kubernetes' words for what is wrong with it only the most common are known here.
fn credentials(secret: &Value, key: &str) -> Option<Cause> {
    let Some(coded) = secret["data"][key].as_str() else { return Some(Cause::required(format!("data[{key}]"), "")) };
    let bytes = base64::decode(coded).unwrap_or_default();
    if serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_ok() {
        return None;
    }
    let detail = match bytes.trim_ascii().first() {
        None => "unexpected end of JSON input".to_owned(),
        Some(first) => format!("invalid character '{}' looking for beginning of value", char::from(*first)),
    };
    Some(Cause::invalid(format!("data[{key}]"), &"<secret contents redacted>".into(), detail))
}

/// Judges the keys of a map of base64 and returns how much it holds.
fn data(object: &Value, part: &str, causes: &mut Vec<Cause>) -> usize {
    let mut bytes = 0;
    for (key, value) in map(object, part) {
        let invalid = |detail| Cause::invalid(format!("{part}[{key}]"), &key.as_str().into(), detail);
        causes.extend(names::config_key(key).into_iter().map(invalid));
        bytes += base64::decoded_len(value.as_str().unwrap_or_default());
    }
    bytes
}

fn frozen(object: &Value, old: Option<&Value>, parts: &[&str]) -> Vec<Cause> {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return Vec::new() };
    let forbidden = |part: &str| Cause::forbidden(part, "field is immutable when `immutable` is set");
    let mut causes = Vec::new();
    if object["immutable"] != true {
        causes.push(forbidden("immutable"));
    }
    causes.extend(parts.iter().filter(|part| object[**part] != old[**part]).map(|part| forbidden(part)));
    causes
}

/// Every Namespace carries its own name as a label.
pub fn default_namespace(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    let has_name = name.as_str().is_some_and(|name| !name.is_empty());
    if has_name && let Some(labels) = namespace.get_mut("metadata").and_then(|meta| child(meta, "labels")) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
    child(namespace, "spec");
    if let Some(status) = child(namespace, "status") {
        untimed(status, &["lastTransitionTime"]);
    }
}

pub fn prepare_namespace(namespace: &mut Value) {
    namespace["status"] = json!({"phase": "Active"});
    let Some(spec) = child(namespace, "spec") else { return };
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|one| one == "kubernetes")
    {
        finalizers.push(json!("kubernetes"));
    }
}

pub fn validate_namespace(namespace: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for finalizer in list(&namespace["spec"], "finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        let wrong = names::qualified(name);
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid("spec.finalizers", finalizer, detail)));
        if !is_known_finalizer(name) {
            causes.push(Cause::invalid("spec.finalizers", finalizer, UNKNOWN_FINALIZER));
        }
    }
    causes
}

/// The subresource `finalize`.
pub fn validate_finalize(namespace: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (at, finalizer) in list(&namespace["spec"], "finalizers").iter().enumerate() {
        let path = || format!("spec.finalizers[{at}]");
        let name = finalizer.as_str().unwrap_or_default();
        let wrong = names::qualified(name);
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(path(), finalizer, detail)));
        if !is_known_finalizer(name) {
            causes.push(Cause::invalid(path(), finalizer, UNKNOWN_FINALIZER));
        }
    }
    causes
}

pub fn validate_namespace_status(namespace: &Value) -> Vec<Cause> {
    let phase = text(&namespace["status"], "phase");
    let detail = match namespace["metadata"]["deletionTimestamp"].is_null() {
        true if phase != "Active" => "may only be 'Active' if `deletionTimestamp` is empty",
        false if phase != "Terminating" => "may only be 'Terminating' if `deletionTimestamp` is not empty",
        true | false => return Vec::new(),
    };
    vec![Cause::invalid("status.Phase", &phase.into(), detail)]
}
