//! What makes a CustomResourceDefinition valid, and what does it serve?

mod rules;
mod serve;
mod structure;
#[cfg(test)]
mod tests;
mod versions;

use serde_json::{Map, Value, json};

pub use serve::{establish, resources};

use crate::refusal::Cause;
use crate::structural::{is_dns_label, is_dns_subdomain};

/// Before validation at create and update: names, conversion strategy, and that objects are stored in the storage version.
pub fn default(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let kind = text(names, "kind").to_owned();
    if let Some(names) = names.as_object_mut() {
        let mut fill = |key: &str, value: String| {
            let is_empty = names.get(key).is_none_or(|old| old.is_null() || old == "");
            if is_empty && !kind.is_empty() {
                names.insert(key.to_owned(), json!(value));
            }
        };
        fill("singular", kind.to_lowercase());
        fill("listKind", format!("{kind}List"));
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    if spec.get("preserveUnknownFields") == Some(&json!(false)) {
        spec.remove("preserveUnknownFields");
    }
    let storage = list(&spec["versions"]).iter().find(|one| one["storage"] == true).map(|one| one["name"].clone());
    if let (Some(storage), Some(crd)) = (storage, crd.as_object_mut()) {
        remember(crd, storage);
    }
}

fn remember(crd: &mut Map<String, Value>, storage: Value) {
    let status = crd.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if stored.is_null() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut().filter(|stored| !stored.contains(&storage)) {
        stored.push(storage);
    }
}

/// `old` is what is stored at an update.
pub fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &crd["spec"];
    let mut causes = Vec::new();
    if old.is_none() {
        causes.extend(of_name(crd));
    }
    causes.extend(of_group(text(spec, "group")));
    causes.extend(one_of("spec.scope", text(spec, "scope"), &["Cluster", "Namespaced"]));
    causes.extend(versions::validate(spec));
    causes.extend(of_conversion(&spec["conversion"]));
    if let Some(old) = old {
        causes.extend(unchanged(spec, old));
    }
    causes.extend(of_names(&crd["status"]["acceptedNames"], "status.acceptedNames"));
    causes.extend(of_stored_versions(&crd["status"]["storedVersions"], &spec["versions"]));
    causes.extend(of_approval(crd, old));
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    causes
}

fn of_name(crd: &Value) -> Vec<Cause> {
    let name = text(&crd["metadata"], "name");
    let mut broken = is_dns_subdomain(name);
    if name != format!("{}.{}", text(&crd["spec"]["names"], "plural"), text(&crd["spec"], "group")) {
        broken.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    broken.into_iter().map(|broken| Cause::invalid("metadata.name", &json!(name), broken)).collect()
}

fn of_group(group: &str) -> Option<Cause> {
    let broken = is_dns_subdomain(group);
    match group {
        "" => Some(Cause::required("spec.group", "")),
        _ if !broken.is_empty() => Some(Cause::invalid("spec.group", &json!(group), broken.join(","))),
        _ if !group.contains('.') => {
            Some(Cause::invalid("spec.group", &json!(group), "should be a domain with at least one dot"))
        }
        _ => None,
    }
}

fn one_of(path: &str, value: &str, allowed: &[&str]) -> Option<Cause> {
    match value {
        "" => Some(Cause::required(path, "")),
        _ if allowed.contains(&value) => None,
        _ => Some(Cause::not_supported(path, &json!(value), allowed)),
    }
}

fn of_names(names: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut label = |field: String, value: &str, broken: Vec<String>, prefix: &str| {
        if !broken.is_empty() {
            causes.push(Cause::invalid(field, &json!(value), format!("{prefix}{}", broken.join(","))));
        }
    };
    for key in ["plural", "singular"] {
        let name = text(names, key);
        label(format!("{path}.{key}"), name, if name.is_empty() { Vec::new() } else { is_dns_label(name) }, "");
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let broken = if name.is_empty() { Vec::new() } else { is_dns_label(&name.to_lowercase()) };
        label(format!("{path}.{key}"), name, broken, "may have mixed case, but should otherwise match: ");
    }
    let mut labels = |key: &str| {
        for (index, name) in list(&names[key]).iter().filter_map(Value::as_str).enumerate() {
            label(format!("{path}.{key}[{index}]"), name, is_dns_label(name), "");
        }
    };
    labels("shortNames");
    labels("categories");
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        let same = Cause::invalid(format!("{path}.listKind"), &json!(kind), "kind and listKind may not be the same");
        let before = causes.iter().position(|cause| cause.field.contains(".categories[")).unwrap_or(causes.len());
        causes.insert(before, same);
    }
    causes
}

/// Webhooks cannot be called from here, so that a CRD that needs one would not work.
fn of_conversion(conversion: &Value) -> Vec<Cause> {
    let strategy = text(conversion, "strategy");
    if strategy == "Webhook" {
        let detail = "this API server does not call webhooks: only the strategy None is supported";
        return vec![Cause::invalid("spec.conversion.strategy", &json!(strategy), detail)];
    }
    let mut causes: Vec<Cause> = one_of("spec.conversion.strategy", strategy, &["None", "Webhook"]).into_iter().collect();
    let webhook = &conversion["webhook"];
    let detail = "should not be set when strategy is not set to Webhook";
    if !webhook["clientConfig"].is_null() {
        causes.push(Cause::forbidden("spec.conversion.webhookClientConfig", detail));
    }
    if !list(&webhook["conversionReviewVersions"]).is_empty() {
        causes.push(Cause::forbidden("spec.conversion.conversionReviewVersions", detail));
    }
    causes
}

fn unchanged(spec: &Value, old: &Value) -> Vec<Cause> {
    let old_spec = &old["spec"];
    let is_established =
        list(&old["status"]["conditions"]).iter().any(|one| one["type"] == "Established" && one["status"] == "True");
    let stored = [
        ("spec.scope", &spec["scope"], &old_spec["scope"]),
        ("spec.names.kind", &spec["names"]["kind"], &old_spec["names"]["kind"]),
    ];
    let always = [
        ("spec.group", &spec["group"], &old_spec["group"]),
        ("spec.names.plural", &spec["names"]["plural"], &old_spec["names"]["plural"]),
    ];
    let judged = stored.into_iter().filter(|_| is_established).chain(always);
    judged.filter(|(_, new, old)| new != old).map(|(path, new, _)| Cause::invalid(path, new, "field is immutable")).collect()
}

fn of_stored_versions(stored: &Value, versions: &Value) -> Vec<Cause> {
    const PATH: &str = "status.storedVersions";
    if list(stored).is_empty() {
        return vec![Cause::invalid(PATH, &Value::Null, "must have at least one stored version")];
    }
    let mut causes = Vec::new();
    for (index, version) in list(versions).iter().enumerate().filter(|(_, version)| version["storage"] == true) {
        // A stored version stands for one version only, also where two have its name.
        let is_second = list(versions)[..index].iter().any(|one| one["name"] == version["name"]);
        if is_second || !list(stored).contains(&version["name"]) {
            let detail = format!("must have the storage version {}", text(version, "name"));
            causes.push(Cause::invalid(PATH, stored, detail));
        }
    }
    for (index, name) in list(stored).iter().enumerate() {
        if !list(versions).iter().any(|version| version["name"] == *name) {
            let version = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {version} and removes \
                 {version} from status.storedVersions"
            );
            causes.push(Cause::invalid(format!("{PATH}[{index}]"), name, detail));
        }
    }
    causes
}

/// Groups of Kubernetes itself need a word from its people.
fn of_approval(crd: &Value, old: Option<&Value>) -> Option<Cause> {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(&crd["spec"], "group");
    let is_protected = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if !is_protected("k8s.io") && !is_protected("kubernetes.io") {
        return None;
    }
    let approval = |crd: &Value| text(&crd["metadata"]["annotations"], ANNOTATION).to_owned();
    let approved = approval(crd);
    if old.is_some_and(|old| approval(old) == approved) || approved.starts_with("unapproved") || approved.contains("://") {
        return None;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    let said = format!("protected groups must have approval annotation {ANNOTATION:?}");
    Some(match approved.is_empty() {
        true => Cause::required(path, &format!("{said}, {SEE}")),
        false => {
            let detail = format!("{said} with either a URL or a reason starting with \"unapproved\", {SEE}");
            Cause::invalid(path, &json!(approved), detail)
        }
    })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
