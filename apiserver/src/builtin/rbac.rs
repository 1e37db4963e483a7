//! What is right for roles and their bindings?

use serde_json::{Value, json};

use super::read::{drop_zero, each, fill_text, go_struct, invalid_text, list, text};
use super::{names, selector};
use crate::refusal::Cause;

const GROUP: &str = "rbac.authorization.k8s.io";

pub fn default_role(role: &mut Value) {
    if let Some(role) = role.as_object_mut() {
        role.entry("rules").or_insert(Value::Null);
        for rule in each(role, "rules") {
            drop_zero(rule, &["apiGroups", "resources", "resourceNames", "nonResourceURLs"]);
        }
    }
}

pub fn default_binding(binding: &mut Value) {
    let Some(binding) = binding.as_object_mut() else { return };
    drop_zero(binding, &["subjects"]);
    for subject in each(binding, "subjects") {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            fill_text(subject, "apiGroup", GROUP);
        }
        drop_zero(subject, &["apiGroup", "namespace"]);
    }
    let reference = binding.entry("roleRef").or_insert_with(|| json!({}));
    if let Some(reference) = reference.as_object_mut() {
        fill_text(reference, "apiGroup", GROUP);
        fill_text(reference, "kind", "");
        fill_text(reference, "name", "");
    }
}

pub fn validate_role(role: &Value, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (at, rule) in list(role, "rules").iter().enumerate() {
        let path = |field: &str| format!("rules[{at}].{field}");
        let empty = |field: &str| list(rule, field).is_empty();
        if empty("verbs") {
            causes.push(Cause::required(path("verbs"), "verbs must contain at least one value"));
        }
        let urls = &rule["nonResourceURLs"];
        if !empty("nonResourceURLs") {
            let has_resources = !empty("apiGroups") || !empty("resources") || !empty("resourceNames");
            if namespaced {
                causes.push(Cause::invalid(path("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs"));
            }
            if has_resources {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                causes.push(Cause::invalid(path("nonResourceURLs"), urls, detail));
            }
            continue;
        }
        if empty("apiGroups") {
            causes.push(Cause::required(path("apiGroups"), "resource rules must supply at least one api group"));
        }
        if empty("resources") {
            causes.push(Cause::required(path("resources"), "resource rules must supply at least one resource"));
        }
    }
    if role["aggregationRule"].is_object() {
        aggregation(&role["aggregationRule"], &mut causes);
    }
    causes
}

fn aggregation(rule: &Value, causes: &mut Vec<Cause>) {
    let path = "aggregationRule.clusterRoleSelectors";
    if list(rule, "clusterRoleSelectors").is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        causes.push(Cause::required(path, detail));
    }
    for (at, one) in list(rule, "clusterRoleSelectors").iter().enumerate() {
        let before = causes.len();
        selector::validate(one, &format!("{path}[{at}]"), causes);
        if causes.len() > before {
            causes.push(Cause::invalid(format!("{path}[{at}]"), &Value::Null, "invalid label selector."));
        }
    }
}

pub fn validate_binding(binding: &Value, old: Option<&Value>, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let reference = &binding["roleRef"];
    if text(reference, "apiGroup") != GROUP {
        causes.push(Cause::not_supported("roleRef.apiGroup", &reference["apiGroup"], &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(reference, "kind")) {
        causes.push(Cause::not_supported("roleRef.kind", &text(reference, "kind").into(), kinds));
    }
    let name = text(reference, "name");
    if name.is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    causes.extend(names::path_segment(name).into_iter().map(|detail| Cause::invalid("roleRef.name", &name.into(), detail)));
    for (at, one) in list(binding, "subjects").iter().enumerate() {
        subject(one, &format!("subjects[{at}]"), namespaced, &mut causes);
    }
    if old.is_some_and(|old| old["roleRef"] != *reference) {
        let fields = [("APIGroup", "apiGroup", "\"\""), ("Kind", "kind", "\"\""), ("Name", "name", "\"\"")];
        causes.push(invalid_text("roleRef", &go_struct(reference, &fields), "cannot change roleRef"));
    }
    causes
}

fn subject(subject: &Value, path: &str, namespaced: bool, causes: &mut Vec<Cause>) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        causes.push(Cause::required(format!("{path}.name"), ""));
    }
    let expected = match text(subject, "kind") {
        "ServiceAccount" => {
            let wrong = if name.is_empty() { Vec::new() } else { names::subdomain(name) };
            causes.extend(wrong.into_iter().map(|detail| Cause::invalid(format!("{path}.name"), &name.into(), detail)));
            ""
        }
        "User" | "Group" => GROUP,
        kind => {
            let known = ["ServiceAccount", "User", "Group"];
            causes.push(Cause::not_supported(format!("{path}.kind"), &kind.into(), &known));
            return;
        }
    };
    if group != expected {
        causes.push(Cause::not_supported(format!("{path}.apiGroup"), &group.into(), &[expected]));
    }
    let homeless = text(subject, "kind") == "ServiceAccount" && text(subject, "namespace").is_empty();
    if homeless && !namespaced {
        causes.push(Cause::required(format!("{path}.namespace"), ""));
    }
}
