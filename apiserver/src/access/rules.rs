//! Which rules hold for a user, and what does a rule allow?

use std::fmt;

use serde_json::Value;

use super::{Attributes, RBAC_GROUP, Rbac, User, text, texts};

/// A binding that holds for a user, with the rules of its role.
pub struct Grant<'a> {
    pub rules: &'a [Value],
    binding: &'a Value,
    subject: &'a Value,
}

/// The bindings that hold for a user there: those of the whole cluster first, then those of the namespace. A binding
/// whose role is missing grants nothing; it says what is missing.
pub fn grants<'a>(rbac: Rbac<'a>, user: &'a User, namespace: &'a str) -> impl Iterator<Item = Result<Grant<'a>, String>> {
    let everywhere = rbac.cluster_role_bindings.iter().map(|binding| (binding, ""));
    let local = rbac.role_bindings.iter().filter(move |binding| text(&binding["metadata"], "namespace") == namespace);
    let local = local.filter(move |_| !namespace.is_empty()).map(move |binding| (binding, namespace));
    everywhere.chain(local).filter_map(move |(binding, place)| {
        let subjects = binding["subjects"].as_array()?;
        let subject = subjects.iter().find(|subject| is(user, subject, place))?;
        Some(role(rbac, &binding["roleRef"], place).map(|rules| Grant { rules, binding, subject }))
    })
}

/// The rules of a role that is bound in a namespace, or in none.
pub fn role<'a>(rbac: Rbac<'a>, reference: &Value, namespace: &str) -> Result<&'a [Value], String> {
    let name = text(reference, "name");
    let find = |roles: &'a [Value], namespace: &str| {
        roles.iter().find(|role| text(&role["metadata"], "name") == name && text(&role["metadata"], "namespace") == namespace)
    };
    let (found, resource) = match text(reference, "kind") {
        "Role" => (find(rbac.roles, namespace), "role"),
        "ClusterRole" => (find(rbac.cluster_roles, ""), "clusterrole"),
        kind => return Err(format!("unsupported role reference kind: {kind:?}")),
    };
    let rules = |role: &'a Value| role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    found.map(rules).ok_or_else(|| format!("{resource}.{RBAC_GROUP} {name:?} not found"))
}

pub fn allows(rule: &Value, attributes: &Attributes) -> bool {
    let any = |key: &str, wanted: &str| texts(rule, key).any(|one| one == "*" || one == wanted);
    if attributes.resource.is_empty() {
        return any("verbs", attributes.verb) && texts(rule, "nonResourceURLs").any(|url| covers_path(url, attributes.path));
    }
    any("verbs", attributes.verb)
        && any("apiGroups", attributes.group)
        && texts(rule, "resources").any(|resource| covers_resource(resource, attributes.resource))
        && (texts(rule, "resourceNames").next().is_none() || texts(rule, "resourceNames").any(|one| one == attributes.name))
}

/// `*` is everything, `*/scale` that subresource of everything; there is no `pods/*`.
pub fn covers_resource(rule: &str, resource: &str) -> bool {
    let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
    rule == "*" || rule == resource || subresource.is_some() && rule.strip_prefix("*/") == subresource
}

pub fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// Namespace and name of the ServiceAccount with this user name.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

fn is(user: &User, subject: &Value, namespace: &str) -> bool {
    let name = text(subject, "name");
    match text(subject, "kind") {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => service_account(&user.name) == Some((home(subject, namespace), name)),
        _ => false,
    }
}

/// A ServiceAccount without a namespace is one of the binding's own.
fn home<'a>(subject: &'a Value, namespace: &'a str) -> &'a str {
    Some(text(subject, "namespace")).filter(|own| !own.is_empty()).unwrap_or(namespace)
}

/// As in `ClusterRoleBinding "x" of ClusterRole "y" to Group "z"`.
impl fmt::Display for Grant<'_> {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        let (name, namespace) = (text(&self.binding["metadata"], "name"), text(&self.binding["metadata"], "namespace"));
        match namespace.is_empty() {
            true => write!(to, "ClusterRoleBinding {name:?}")?,
            false => write!(to, "RoleBinding {:?}", format!("{name}/{namespace}"))?,
        }
        let role = &self.binding["roleRef"];
        write!(to, " of {} {:?} to ", text(role, "kind"), text(role, "name"))?;
        let (kind, subject) = (text(self.subject, "kind"), text(self.subject, "name"));
        match kind {
            "ServiceAccount" => write!(to, "{kind} {:?}", format!("{subject}/{}", home(self.subject, namespace))),
            _ => write!(to, "{kind} {subject:?}"),
        }
    }
}
