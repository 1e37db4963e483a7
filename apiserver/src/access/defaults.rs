//! Which roles does every cluster have?
//!
//! Those that people bind, and those that everybody has; `admin`, `edit` and `view` only know the kinds that are served.

use serde_json::{Value, json};

use super::{RBAC_GROUP, aggregate, text};

/// The ClusterRoles and ClusterRoleBindings that the server creates at its start.
pub fn default_roles() -> Vec<Value> {
    let mut roles = vec![
        role(
            "cluster-admin",
            &[],
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        ),
        gathering("admin", &[], "admin"),
        gathering("edit", &["admin"], "edit"),
        gathering("view", &["edit"], "view"),
        role("system:aggregate-to-admin", &["admin"], admin()),
        role("system:aggregate-to-edit", &["edit"], edit()),
        role("system:aggregate-to-view", &["view"], view()),
        role("system:basic-user", &[], basic_user()),
        role("system:discovery", &[], discovery()),
        role(
            "system:public-info-viewer",
            &[],
            json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]),
        ),
    ];
    // What gathers may be gathered in turn: view by edit, edit by admin.
    loop {
        let changed = aggregate(&roles);
        if changed.is_empty() {
            break;
        }
        for (name, rules) in changed {
            let gathering = roles.iter_mut().filter(|role| text(&role["metadata"], "name") == name);
            gathering.for_each(|role| role["rules"] = rules.clone());
        }
    }
    roles.extend([
        binding("cluster-admin", &["system:masters"]),
        binding("system:basic-user", &["system:authenticated"]),
        binding("system:discovery", &["system:authenticated"]),
        binding("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ]);
    roles
}

fn role(name: &str, gathered_by: &[&str], rules: Value) -> Value {
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    for gathering in gathered_by {
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{gathering}")] = json!("true");
    }
    let mut role = json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
    });
    role["rules"] = rules;
    role
}

fn gathering(name: &str, gathered_by: &[&str], label: &str) -> Value {
    let mut role = role(name, gathered_by, json!([]));
    let label = format!("rbac.authorization.k8s.io/aggregate-to-{label}");
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    role
}

fn binding(role_name: &str, groups: &[&str]) -> Value {
    let mut binding = role(role_name, &[], Value::Null);
    let subjects = groups.iter().map(|group| json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": group}));
    binding["subjects"] = subjects.collect();
    binding["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role_name});
    binding["kind"] = json!("ClusterRoleBinding");
    if let Some(fields) = binding.as_object_mut() {
        fields.remove("rules");
    }
    binding
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn admin() -> Value {
    json!([
        rule(&["authorization.k8s.io"], &["localsubjectaccessreviews"], &["create"]),
        rule(&[RBAC_GROUP], &["rolebindings", "roles"], ALL),
    ])
}

fn edit() -> Value {
    json!([
        rule(&[""], &["secrets"], READ),
        rule(&[""], &["serviceaccounts"], &["impersonate"]),
        rule(&[""], &["pods"], WRITE),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["configmaps", "secrets", "serviceaccounts"], WRITE),
        rule(&[""], &["serviceaccounts/token"], &["create"]),
        rule(&["", "events.k8s.io"], &["events"], WRITE),
        rule(&["apps"], &["daemonsets", "deployments", "deployments/scale"], WRITE),
        rule(&["policy"], &["poddisruptionbudgets"], WRITE),
        rule(&["coordination.k8s.io"], &["leases"], ALL),
    ])
}

fn view() -> Value {
    json!([
        rule(&[""], &["configmaps", "pods", "serviceaccounts"], READ),
        rule(&[""], &["namespaces/status", "pods/status"], READ),
        rule(&[""], &["namespaces"], READ),
        rule(&["", "events.k8s.io"], &["events"], READ),
        rule(&["apps"], &["daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status"], READ),
        rule(&["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"], READ),
    ])
}

fn basic_user() -> Value {
    json!([
        rule(&["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"], &["create"]),
        rule(&["authentication.k8s.io"], &["selfsubjectreviews"], &["create"]),
    ])
}

fn discovery() -> Value {
    let paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    json!([{"nonResourceURLs": paths, "verbs": ["get"]}])
}
