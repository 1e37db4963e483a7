//! What would be allowed? The reviews that `kubectl auth can-i` and `kubectl auth whoami` post.

use serde_json::{Map, Value, json};

use super::{Attributes, Rbac, User, allowed, rules, text, texts};
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;

/// Answers a posted SelfSubjectAccessReview, SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectRulesReview or
/// SelfSubjectReview: the same object with its status.
pub fn review(rbac: Rbac, user: &User, posted: &Value) -> Result<Value, Refusal> {
    let spec = &posted["spec"];
    match text(posted, "kind") {
        "SelfSubjectReview" => Ok(answer(posted, None, json!({"userInfo": whoami(user)}))),
        "SelfSubjectRulesReview" => match text(spec, "namespace") {
            "" => Err(Refusal::bad_request("no namespace on request")),
            namespace => Ok(answer(posted, Some(json!({})), rules_of(rbac, user, namespace))),
        },
        kind => {
            refuse(problems(kind, posted))?;
            let subject = subject(spec);
            let asked_for = if kind == "SelfSubjectAccessReview" { user } else { &subject };
            Ok(answer(posted, Some(spec.clone()), access(rbac, asked_for, spec)))
        }
    }
}

/// A user as Kubernetes shows it, without what is empty.
pub fn whoami(user: &User) -> Value {
    let all =
        [("username", json!(user.name)), ("uid", json!(user.uid)), ("groups", json!(user.groups)), ("extra", json!(user.extra))];
    let is_empty = |value: &Value| [json!(""), json!([]), json!({})].contains(value);
    all.into_iter()
        .filter(|(_, value)| !is_empty(value))
        .map(|(key, value)| (key.to_owned(), value))
        .collect::<Map<_, _>>()
        .into()
}

fn answer(posted: &Value, spec: Option<Value>, status: Value) -> Value {
    let mut answer = json!({"kind": posted["kind"], "apiVersion": posted["apiVersion"], "metadata": {}});
    answer["status"] = status;
    if let Some(namespace) = posted["metadata"]["namespace"].as_str() {
        answer["metadata"] = json!({"namespace": namespace});
    }
    if let Some(spec) = spec {
        answer["spec"] = spec;
    }
    answer
}

fn access(rbac: Rbac, user: &User, spec: &Value) -> Value {
    let (wanted, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let resource = match text(wanted, "subresource") {
        "" => text(wanted, "resource").to_owned(),
        subresource => format!("{}/{subresource}", text(wanted, "resource")),
    };
    let attributes = match wanted.is_object() {
        true => Attributes {
            verb: text(wanted, "verb"),
            group: text(wanted, "group"),
            // A review may leave the resource out, which only `*` matches; it is still no path.
            resource: if resource.is_empty() { "/" } else { &resource },
            namespace: text(wanted, "namespace"),
            name: text(wanted, "name"),
            path: "",
        },
        false => Attributes { verb: text(path, "verb"), path: text(path, "path"), ..Attributes::default() },
    };
    let reason = allowed(rbac, user, &attributes);
    let mut status = json!({"allowed": reason.is_some()});
    let missing = || missing(rbac, user, attributes.namespace).map(|missing| format!("RBAC: {missing}"));
    if let Some(reason) = reason.or_else(missing).filter(|reason| !reason.is_empty()) {
        status["reason"] = json!(reason);
    }
    status
}

/// The roles that bindings speak of and that do not exist.
fn missing(rbac: Rbac, user: &User, namespace: &str) -> Option<String> {
    let mut missing: Vec<String> = Vec::new();
    for one in rules::grants(rbac, user, namespace).filter_map(Result::err) {
        if !missing.contains(&one) {
            missing.push(one);
        }
    }
    match missing.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn rules_of(rbac: Rbac, user: &User, namespace: &str) -> Value {
    let (mut of_resources, mut of_paths) = (Vec::new(), Vec::new());
    for rule in rules::grants(rbac, user, namespace).filter_map(Result::ok).flat_map(|grant| grant.rules) {
        let part = |keys: [&str; 4]| {
            let kept = keys.into_iter().filter(|key| texts(rule, key).next().is_some());
            Value::Object(kept.map(|key| (key.to_owned(), rule[key].clone())).collect())
        };
        if texts(rule, "resources").next().is_some() {
            of_resources.push(part(["verbs", "apiGroups", "resources", "resourceNames"]));
        }
        if texts(rule, "nonResourceURLs").next().is_some() {
            of_paths.push(part(["verbs", "nonResourceURLs", "", ""]));
        }
    }
    let mut status = json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": false});
    if let Some(missing) = missing(rbac, user, namespace) {
        status["evaluationError"] = json!(missing);
    }
    status
}

fn subject(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(spec, "groups").map(str::to_owned).collect(),
        extra: extra.map(|(key, _)| (key.clone(), texts(&spec["extra"], key).map(str::to_owned).collect())).collect(),
    }
}

fn problems(kind: &str, posted: &Value) -> Vec<Cause> {
    let spec = &posted["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    // Kubernetes prints its own internal form here, whose keys are in capitals.
    let path_printed = json!({"Path": text(path, "path"), "Verb": text(path, "verb")});
    let mut causes = Vec::new();
    match (resource.is_object(), path.is_object()) {
        (true, true) => causes.push(Cause::invalid(
            "spec.nonResourceAttributes",
            &path_printed,
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => causes.push(Cause::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        (true, false) | (false, true) => {}
    }
    let about_self = kind == "SelfSubjectAccessReview";
    if !about_self && text(spec, "user").is_empty() && texts(spec, "groups").next().is_none() {
        causes.push(Cause::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    for key in ["fieldSelector", "labelSelector"] {
        causes.extend(selector_problems(&resource[key], &format!("spec.resourceAttributes.{key}")));
    }
    let is_local = kind == "LocalSubjectAccessReview";
    causes.extend(metadata_problem(&posted["metadata"], is_local));
    let namespace = text(resource, "namespace");
    if is_local && resource.is_object() && namespace != text(&posted["metadata"], "namespace") {
        let field = "spec.resourceAttributes.namespace";
        causes.push(Cause::invalid(field, &json!(namespace), "must match metadata.namespace"));
    }
    if is_local && path.is_object() {
        causes.push(Cause::invalid("spec.nonResourceAttributes", &path_printed, "disallowed on this kind of request"));
    }
    causes
}

fn selector_problems(selector: &Value, field: &str) -> Option<Cause> {
    let raw = text(selector, "rawSelector");
    let has_requirements = selector["requirements"].as_array().is_some_and(|list| !list.is_empty());
    let detail = format!("when {field} is specified, requirements or rawSelector is required");
    match (raw.is_empty(), has_requirements) {
        _ if !selector.is_object() => None,
        (true, false) => Some(Cause::required(format!("{field}.requirements"), &detail)),
        (false, true) => {
            let detail = "may not specified at the same time as requirements";
            Some(Cause::invalid(format!("{field}.rawSelector"), &json!(raw), detail))
        }
        (true, true) | (false, false) => None,
    }
}

fn metadata_problem(metadata: &Value, is_local: bool) -> Option<Cause> {
    let allowed = |key: &str| key == "managedFields" || key == "creationTimestamp" || is_local && key == "namespace";
    let mut rest = metadata.as_object()?.clone();
    rest.retain(|key, value| !allowed(key) && !value.is_null());
    let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
    (!rest.is_empty()).then(|| Cause::invalid("metadata", metadata, detail))
}

/// Kubernetes forgets the kind here: its message starts with a dot.
fn refuse(causes: Vec<Cause>) -> Result<(), Refusal> {
    let resource = Resource { group: "authorization.k8s.io".to_owned(), ..Resource::default() };
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(&resource, "", causes)) }
}
