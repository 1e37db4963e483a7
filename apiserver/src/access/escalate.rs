//! Does somebody hand out rights that he does not have himself?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Attributes, RBAC_GROUP, Rbac, User, allowed, named, rules, text, texts};
use crate::refusal::Refusal;

/// A role may only be written, or bound, by somebody who has its rules himself, or the verb escalate or bind.
/// `object` is a Role, ClusterRole, RoleBinding or ClusterRoleBinding that is about to be stored.
pub fn escalates(rbac: Rbac, user: &User, object: &Value, old: Option<&Value>) -> Result<(), Refusal> {
    if user.is_master() || old.is_some_and(|old| differs_for_garbage_collection_only(object, old)) {
        return Ok(());
    }
    match text(object, "kind") {
        "Role" => writes_role(rbac, user, object, old, "roles"),
        "ClusterRole" => writes_role(rbac, user, object, old, "clusterroles"),
        "RoleBinding" => binds(rbac, user, object, "rolebindings"),
        "ClusterRoleBinding" => binds(rbac, user, object, "clusterrolebindings"),
        _ => Ok(()),
    }
}

fn writes_role(rbac: Rbac, user: &User, role: &Value, old: Option<&Value>, plural: &str) -> Result<(), Refusal> {
    let (name, namespace) = (text(&role["metadata"], "name"), text(&role["metadata"], "namespace"));
    // At a creation the name is not yet in the path of the request, and only that counts.
    let name_asked = if old.is_some() { name } else { "" };
    if may(rbac, user, "escalate", plural, namespace, name_asked) {
        return Ok(());
    }
    let refuse = |detail: &str| Refusal::forbidden(&named(RBAC_GROUP, plural), name, detail);
    let granted = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    held(rbac, user, namespace, granted).map_err(|missing| refuse(&missing))?;
    let gathers = |role: &Value| role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty());
    if gathers(role) || old.is_some_and(gathers) {
        let everything =
            [json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}), json!({"nonResourceURLs": ["*"], "verbs": ["*"]})];
        let detail = "must have cluster-admin privileges to use the aggregationRule";
        held(rbac, user, namespace, &everything).map_err(|_| refuse(detail))?;
    }
    Ok(())
}

fn binds(rbac: Rbac, user: &User, binding: &Value, plural: &str) -> Result<(), Refusal> {
    let (name, namespace) = (text(&binding["metadata"], "name"), text(&binding["metadata"], "namespace"));
    let role = &binding["roleRef"];
    let roles = if text(role, "kind") == "Role" { "roles" } else { "clusterroles" };
    if may(rbac, user, "bind", roles, namespace, text(role, "name")) {
        return Ok(());
    }
    let resource = named(RBAC_GROUP, plural);
    let granted = rules::role(rbac, role, namespace).map_err(|_| Refusal::not_found(&resource, text(role, "name")))?;
    held(rbac, user, namespace, granted).map_err(|missing| Refusal::forbidden(&resource, name, &missing))
}

fn may(rbac: Rbac, user: &User, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
    allowed(rbac, user, &Attributes { verb, group: RBAC_GROUP, resource, namespace, name, path: "" }).is_some()
}

/// The garbage collector may set finalizers and owners of roles that it could not write.
fn differs_for_garbage_collection_only(new: &Value, old: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| !["ownerReferences", "finalizers", "managedFields"].contains(&key.as_str()));
        }
        object
    };
    strip(new) == strip(old)
}

/// One verb on one thing. The smallest piece of a rule, so that pieces can be held by different roles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str> },
    Path(&'a str),
}

/// Err with the words for what is missing.
fn held(rbac: Rbac, user: &User, namespace: &str, granted: &[Value]) -> Result<(), String> {
    let own: Vec<&Value> = rules::grants(rbac, user, namespace).filter_map(Result::ok).flat_map(|grant| grant.rules).collect();
    let mut missing: Vec<(Right, &str)> = granted.iter().flat_map(pieces).collect();
    missing.retain(|(right, verb)| !own.iter().any(|rule| covers(rule, right, verb)));
    if missing.is_empty() {
        return Ok(());
    }
    let mut verbs: BTreeMap<Right, Vec<&str>> = BTreeMap::new();
    let mut lines: BTreeSet<String> = BTreeSet::new();
    for (right, verb) in missing {
        match right {
            Right::Resource { .. } => verbs.entry(right).or_default().push(verb),
            Right::Path(_) => _ = lines.insert(line(&right, &[verb])),
        }
    }
    lines.extend(verbs.iter().map(|(right, verbs)| line(right, verbs)));
    let lines = lines.into_iter().collect::<Vec<_>>().join("\n");
    let (name, groups) = (&user.name, quoted(&user.groups));
    Err(format!("user {name:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{lines}"))
}

fn pieces(rule: &Value) -> Vec<(Right<'_>, &str)> {
    let mut names: Vec<Option<&str>> = texts(rule, "resourceNames").map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut pieces = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in texts(rule, "verbs") {
                pieces.extend(names.iter().map(|&name| (Right::Resource { group, resource, name }, verb)));
            }
        }
    }
    for path in texts(rule, "nonResourceURLs") {
        pieces.extend(texts(rule, "verbs").map(|verb| (Right::Path(path), verb)));
    }
    pieces
}

fn covers(rule: &Value, right: &Right, verb: &str) -> bool {
    let any = |key: &str, wanted: &str| texts(rule, key).any(|one| one == "*" || one == wanted);
    let limited = texts(rule, "resourceNames").next().is_some();
    any("verbs", verb)
        && match right {
            Right::Path(path) => texts(rule, "nonResourceURLs").any(|own| rules::covers_path(own, path)) && !limited,
            Right::Resource { group, resource, name } => {
                let named = name.is_some_and(|name| texts(rule, "resourceNames").any(|one| one == name));
                any("apiGroups", group)
                    && texts(rule, "resources").any(|own| rules::covers_resource(own, resource))
                    && (!limited || named)
            }
        }
}

fn line(right: &Right, verbs: &[&str]) -> String {
    let verbs = quoted(verbs);
    match right {
        Right::Path(path) => format!("{{NonResourceURLs:[{path:?}], Verbs:{verbs}}}"),
        Right::Resource { group, resource, name } => {
            let names = name.map(|name| format!(", ResourceNames:[{name:?}]")).unwrap_or_default();
            format!("{{APIGroups:[{group:?}], Resources:[{resource:?}]{names}, Verbs:{verbs}}}")
        }
    }
}

/// As Go prints lists of strings: `["a" "b"]`.
fn quoted<T: AsRef<str>>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(|one| format!("{:?}", one.as_ref())).collect();
    format!("[{}]", all.join(" "))
}
