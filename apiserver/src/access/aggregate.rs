//! Which rules does a ClusterRole gather from others?

use serde_json::{Map, Value};

use super::{text, texts};

/// ClusterRoles with an aggregationRule: the rules that they should have, as Kubernetes' controller would write them.
/// Returns name and rules of each whose rules differ.
pub fn aggregate(cluster_roles: &[Value]) -> Vec<(String, Value)> {
    let gathering = cluster_roles.iter().filter(|role| role["aggregationRule"].is_object());
    let changed = gathering.filter_map(|role| {
        let rules = gather(role, cluster_roles);
        let current: Vec<Value> = role["rules"].as_array().into_iter().flatten().map(tidy).collect();
        (current != rules).then(|| (text(&role["metadata"], "name").to_owned(), Value::Array(rules)))
    });
    changed.collect()
}

/// Whether a label selector, with matchLabels and matchExpressions, selects labels. An empty one selects everything.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels[key].as_str();
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    equal.into_iter().all(|(key, value)| label(key).is_some() && label(key) == value.as_str())
        && expressions.all(|expression| {
            let value = label(text(expression, "key"));
            let listed = value.is_some_and(|value| texts(expression, "values").any(|one| one == value));
            match text(expression, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn gather(role: &Value, all: &[Value]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let mut selected: Vec<&Value> = all.iter().filter(|one| selects(selector, &one["metadata"]["labels"])).collect();
        selected.retain(|one| one["metadata"]["name"] != role["metadata"]["name"]);
        selected.sort_by_key(|one| text(&one["metadata"], "name"));
        for rule in selected.into_iter().flat_map(|one| one["rules"].as_array()).flatten().map(tidy) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    rules
}

/// An empty list and none are the same.
fn tidy(rule: &Value) -> Value {
    let fields = rule.as_object().into_iter().flatten();
    let kept = fields.filter(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty()) && !value.is_null());
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}
