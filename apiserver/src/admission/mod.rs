//! Do the ValidatingAdmissionPolicies let a request pass?

mod matching;
mod policy;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::access::{User, selects};
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;
use policy::{Policy, Verdict};

pub use validate::validate;

/// What is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// CREATE, UPDATE, DELETE or CONNECT.
    pub operation: &'a str,
    pub resource: &'a Resource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
    /// None for DELETE.
    pub object: Option<&'a Value>,
    /// None for CREATE.
    pub old: Option<&'a Value>,
    /// The Namespace object, for namespaced requests.
    pub namespace_object: Option<&'a Value>,
}

/// The policies and bindings as they are stored, and how to find params: (api version, kind, namespace, name or selector).
pub struct Policies<'a> {
    pub policies: &'a [Value],
    pub bindings: &'a [Value],
    /// All objects of a kind, by apiVersion and kind; None if nobody serves it.
    pub params: &'a dyn Fn(&str, &str) -> Option<Vec<Value>>,
    /// Kept by the server from request to request.
    pub compiled: &'a Compiled,
}

/// Policies that were compiled before, by uid, each with the resourceVersion that it was compiled from.
#[derive(Default)]
pub struct Compiled(Mutex<BTreeMap<String, (String, Arc<Policy>)>>);

/// Ok with the warnings to send along.
pub fn admit(policies: &Policies, attempt: &Attempt) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
    if policies.bindings.is_empty() || policies.policies.is_empty() || is_exempt(attempt.resource) {
        return Ok(warnings);
    }
    let mut denied = None;
    for source in policies.policies {
        let name = name_of(source);
        let mut bindings = policies.bindings.iter().filter(|binding| binding["spec"]["policyName"] == name).peekable();
        if bindings.peek().is_none() || !matching::matches(&source["spec"]["matchConstraints"], attempt) {
            continue;
        }
        let policy = policies.compiled.get(source);
        for binding in bindings.filter(|binding| matching::binding_matches(&binding["spec"]["matchResources"], attempt)) {
            let refuse = |verdict: &Verdict| refuse(attempt, name, binding, verdict);
            let verdicts: Vec<Verdict> = match params(policies, source, binding, attempt) {
                Ok(params) => params.iter().flat_map(|params| policy.judge(attempt, params)).collect(),
                Err(_) if !policy.fails_closed => continue,
                // Whatever the binding would do: nobody can tell what the policy says.
                Err(said) => {
                    denied = denied.or_else(|| Some(refuse(&Verdict::unconfigured(&said))));
                    continue;
                }
            };
            let does = |action: &str| {
                binding["spec"]["validationActions"].as_array().is_some_and(|all| all.iter().any(|one| one == action))
            };
            if does("Deny") {
                denied = denied.or_else(|| verdicts.first().map(refuse));
            }
            if does("Warn") {
                warnings.extend(verdicts.iter().map(|verdict| warn(name, binding, verdict)));
            }
        }
    }
    denied.map_or(Ok(warnings), Err)
}

/// Policies could lock everybody out of mending them; reviews ask and change nothing.
fn is_exempt(resource: &Resource) -> bool {
    match resource.group.as_str() {
        "admissionregistration.k8s.io" => resource.plural.contains("admissionpolic"),
        "authorization.k8s.io" | "authentication.k8s.io" => true,
        _ => false,
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

impl Compiled {
    fn get(&self, source: &Value) -> Arc<Policy> {
        let text = |key: &str| source["metadata"][key].as_str().unwrap_or_default();
        let (uid, version) = (text("uid"), text("resourceVersion"));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(uid) {
            Some((known, policy)) if known == version && !version.is_empty() => policy.clone(),
            Some(_) | None => {
                let policy = Arc::new(Policy::read(&source["spec"]));
                all.insert(uid.to_owned(), (version.to_owned(), policy.clone()));
                policy
            }
        }
    }
}

/// Each of these is judged with; null where the policy has no params.
fn params(policies: &Policies, policy: &Value, binding: &Value, attempt: &Attempt) -> Result<Vec<Value>, String> {
    let (kind, reference) = (&policy["spec"]["paramKind"], &binding["spec"]["paramRef"]);
    if !kind.is_object() || !reference.is_object() {
        return Ok(vec![Value::Null]);
    }
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(kind, "apiVersion"), text(kind, "kind"));
    let Some(mut found) = (policies.params)(&api_version, &kind) else {
        return Err(format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"));
    };
    let wanted = match text(reference, "namespace") {
        own if own.is_empty() => attempt.namespace.to_owned(),
        own => own,
    };
    let is_namespaced = found.iter().any(|one| one["metadata"]["namespace"].is_string());
    if is_namespaced && wanted.is_empty() {
        return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned());
    }
    let name = text(reference, "name");
    found.retain(|one| {
        let is_there = !is_namespaced || one["metadata"]["namespace"] == wanted;
        let is_meant =
            if name.is_empty() { selects(&reference["selector"], &one["metadata"]["labels"]) } else { name_of(one) == name };
        is_there && is_meant
    });
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    for one in &mut found {
        one["apiVersion"] = json!(api_version);
        one["kind"] = json!(kind);
    }
    Ok(found)
}

fn warn(policy: &str, binding: &Value, verdict: &Verdict) -> String {
    let (binding, said) = (name_of(binding), &verdict.message);
    format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {said}")
}

fn refuse(attempt: &Attempt, policy: &str, binding: &Value, verdict: &Verdict) -> Refusal {
    let (binding, said) = (name_of(binding), &verdict.message);
    let message = format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {said}");
    let name = match (attempt.name, attempt.object) {
        ("", Some(object)) => name_of(object),
        (name, _) => name,
    };
    let refusal = Refusal::forbidden(attempt.resource, name, &message);
    let (reason, code) = match verdict.reason.as_str() {
        "Forbidden" => ("Forbidden", 403),
        "Unauthorized" => ("Unauthorized", 401),
        "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
        _ => ("Invalid", 422),
    };
    let causes = vec![Cause { field: String::new(), reason: "", message }];
    Refusal { reason, code, causes, ..refusal }
}
