//! Who asks, and may they? RBAC, impersonation, and the reviews that `kubectl auth` asks for.

mod aggregate;
mod defaults;
mod escalate;
mod review;
mod rules;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::refusal::Refusal;
use crate::resource::Resource;

pub use aggregate::{aggregate, selects};
pub use defaults::default_roles;
pub use escalate::escalates;
pub use review::review;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Its members may do anything, whatever the roles say.
const MASTERS: &str = "system:masters";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

impl User {
    /// Who may do anything, as whoever holds the kubeconfig that the server writes.
    pub fn admin() -> User {
        let groups = [MASTERS, "system:authenticated"].map(str::to_owned).into();
        User { name: "admin".to_owned(), groups, ..User::default() }
    }

    /// Somebody who is known by name, and as a member of these groups; Kubernetes adds those that follow from the name.
    pub fn named(name: &str, groups: &[String]) -> User {
        let mut all = groups.to_vec();
        if let Some((namespace, _)) = rules::service_account(name).filter(|_| groups.is_empty()) {
            all.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
        }
        let everybody = if name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
        if !all.iter().any(|group| group == "system:authenticated" || group == "system:unauthenticated") {
            all.push(everybody.to_owned());
        }
        User { name: name.to_owned(), groups: all, ..User::default() }
    }

    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// As in RBAC: get, list, watch, create, update, patch, delete, deletecollection; or impersonate, approve, sign...
    pub verb: &'a str,
    pub group: &'a str,
    /// Plural; with `/subresource` where there is one. Empty for paths.
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Of requests that are not for a resource, such as `/version`.
    pub path: &'a str,
}

/// The RBAC objects as they are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rbac<'a> {
    pub roles: &'a [Value],
    pub cluster_roles: &'a [Value],
    pub role_bindings: &'a [Value],
    pub cluster_role_bindings: &'a [Value],
}

/// Whether the user may; if so, with the reason that a SubjectAccessReview shows.
pub fn allowed(rbac: Rbac, user: &User, attributes: &Attributes) -> Option<String> {
    if user.is_master() {
        return Some(String::new());
    }
    let grants = rules::grants(rbac, user, attributes.namespace).filter_map(Result::ok);
    let mut allowing = grants.filter(|grant| grant.rules.iter().any(|rule| rules::allows(rule, attributes)));
    allowing.next().map(|grant| format!("RBAC: allowed by {grant}"))
}

/// The refusal of a request that is not allowed, in Kubernetes' words.
pub fn forbidden(user: &User, attributes: &Attributes) -> Refusal {
    let Attributes { verb, group, resource, namespace, name, path } = attributes;
    if resource.is_empty() {
        let detail = harmless(&format!("User {:?} cannot {verb} path {path:?}", user.name));
        let refusal = Refusal::forbidden(&Resource::default(), "", "");
        return Refusal { message: format!("forbidden: {detail}"), ..refusal };
    }
    let place = match namespace.is_empty() {
        true => "at the cluster scope".to_owned(),
        false => format!("in the namespace {namespace:?}"),
    };
    let detail = format!("User {:?} cannot {verb} resource {resource:?} in API group {group:?} {place}", user.name);
    let plural = resource.split('/').next().unwrap_or_default();
    Refusal::forbidden(&named(group, plural), name, &harmless(&detail))
}

/// Who a request with the headers `Impersonate-User` and `Impersonate-Group` is from, if whoever sent it may speak for
/// that user. `attributes` are those of the request, which a refusal names.
pub fn impersonate(rbac: Rbac, asker: &User, name: &str, groups: &[String], attributes: &Attributes) -> Result<User, Refusal> {
    let may = |group, resource, namespace, name| {
        allowed(rbac, asker, &Attributes { verb: "impersonate", group, resource, namespace, name, path: "" }).is_some()
    };
    let (mode, may_be) = match rules::service_account(name) {
        Some((namespace, account)) => ("serviceaccount", may("", "serviceaccounts", namespace, account)),
        None if name.starts_with("system:node:") => ("arbitrary-node", may("", "users", "", name)),
        None => ("user-info", may("", "users", "", name)),
    };
    if may_be && groups.iter().all(|group| may("", "groups", "", group)) {
        return Ok(User::named(name, groups));
    }
    let verb = format!("impersonate-on:{mode}:{}", attributes.verb);
    Err(forbidden(asker, &Attributes { verb: &verb, ..attributes.clone() }))
}

/// Paths come from anybody: Kubernetes lets no answer look like HTML.
fn harmless(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Enough of a resource to be named in a refusal.
fn named(group: &str, plural: &str) -> Resource {
    Resource { group: group.to_owned(), plural: plural.to_owned(), ..Resource::default() }
}

/// The strings of a list; nothing where there is none.
fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
