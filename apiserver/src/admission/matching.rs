//! Is a policy about this request at all?

use serde_json::Value;

use super::Attempt;
use crate::access::selects;

/// The matchConstraints of a policy.
pub fn matches(constraints: &Value, attempt: &Attempt) -> bool {
    let is_equivalent = constraints["matchPolicy"] != "Exact";
    let any = |key: &str| rules(constraints, key).iter().any(|rule| covers(rule, attempt, is_equivalent));
    in_namespace(&constraints["namespaceSelector"], attempt)
        && has_labels(&constraints["objectSelector"], attempt)
        && !any("excludeResourceRules")
        && any("resourceRules")
}

/// The matchResources of a binding, which limit a policy further, if there are any.
pub fn binding_matches(resources: &Value, attempt: &Attempt) -> bool {
    let is_equivalent = resources["matchPolicy"] != "Exact";
    let any = |key: &str| rules(resources, key).iter().any(|rule| covers(rule, attempt, is_equivalent));
    !resources.is_object()
        || in_namespace(&resources["namespaceSelector"], attempt)
            && has_labels(&resources["objectSelector"], attempt)
            && !any("excludeResourceRules")
            && (rules(resources, "resourceRules").is_empty() || any("resourceRules"))
}

fn rules<'a>(constraints: &'a Value, key: &str) -> &'a [Value] {
    constraints[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Objects are served in every version of their kind alike, so that an equivalent match may name any of them.
fn covers(rule: &Value, attempt: &Attempt, is_equivalent: bool) -> bool {
    let list = |key: &str| rules(rule, key).iter().filter_map(Value::as_str);
    let any = |key: &str, wanted: &str| list(key).any(|one| one == "*" || one == wanted);
    let names = rules(rule, "resourceNames");
    let resources = list("resources").any(|one| {
        let (resource, subresource) = one.split_once('/').unwrap_or((one, ""));
        (resource == "*" || resource == attempt.resource.plural) && (subresource == "*" || subresource == attempt.subresource)
    });
    let scope = match rule["scope"].as_str() {
        Some("Namespaced") => attempt.resource.namespaced,
        Some("Cluster") => !attempt.resource.namespaced,
        Some(_) | None => true,
    };
    any("operations", attempt.operation)
        && any("apiGroups", &attempt.resource.group)
        && (is_equivalent || any("apiVersions", &attempt.resource.version))
        && resources
        && scope
        && (names.is_empty() || names.iter().any(|name| name == attempt.name))
}

/// A Namespace is judged by its own labels; what is in no namespace is in all of them.
fn in_namespace(selector: &Value, attempt: &Attempt) -> bool {
    let is_namespace = attempt.resource.is("", "namespaces");
    if !selector.is_object() || !is_namespace && !attempt.resource.namespaced {
        return true;
    }
    let judged = if is_namespace { attempt.object.or(attempt.old) } else { attempt.namespace_object };
    selects(selector, judged.map_or(&Value::Null, |namespace| &namespace["metadata"]["labels"]))
}

/// Either the object or the one it replaces.
fn has_labels(selector: &Value, attempt: &Attempt) -> bool {
    let labels = |object: &Value| selects(selector, &object["metadata"]["labels"]);
    !selector.is_object()
        || selects(selector, &Value::Null)
        || attempt.object.is_some_and(labels)
        || attempt.old.is_some_and(labels)
}
