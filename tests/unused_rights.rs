//! Do we ask for a right that nothing needs, or need one that we do not ask for?
//!
//! Compared with what the controller's account asked real servers for in all stories; see [`resus_harness::exercised`].

use std::collections::BTreeSet;

use resus_core::mhc::facts::ClusterKey;
use resus_harness::{Exercised, exercised, rights_file};
use resus_k8s::names;
use resus_k8s::rbac::{self, Component};
use serde_json::Value;

const NAMESPACE: &str = "poison-pill";
/// Of the Cluster of most stories.
const CLUSTER: (&str, &str) = ("default", "blue");

/// One verb on one resource, as a rule grants it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Granted {
    verb: String,
    group: String,
    resource: String,
    /// None: in all.
    namespace: Option<String>,
    /// None: of whatever name.
    name: Option<String>,
    /// What every provider's role grants of its own kinds.
    of_provider: bool,
}

#[test]
fn every_right_of_ours_is_used_and_none_is_missing() {
    let Some(file) = rights_file() else {
        eprintln!("nothing to compare with: `make test` sets RESUS_RIGHTS_FILE, and runs all stories first");
        return;
    };
    if somebody_was_skipped() {
        return;
    }
    let asked = exercised(&file).expect("the stories ran before, and wrote down what they asked for");
    let unused: Vec<Granted> = granted().into_iter().filter(|right| !asked.iter().any(|one| is_use(right, one))).collect();
    let refused: Vec<&Exercised> = asked.iter().filter(|one| !one.allowed).collect();
    assert!(unused.is_empty(), "no story needs these; take them out of k8s/src/rbac/rights.rs:\n{unused:#?}");
    assert!(refused.is_empty(), "nothing grants these; see k8s/src/rbac/rights.rs:\n{refused:#?}");
}

/// Then rights seem unused that are not.
fn somebody_was_skipped() -> bool {
    let file = std::env::var_os("RESUS_SKIPPED_FILE");
    file.is_some_and(|file| std::fs::read_to_string(file).is_ok_and(|text| !text.is_empty()))
}

fn is_use(right: &Granted, one: &Exercised) -> bool {
    let is_of_kind = match right.of_provider {
        // To have every provider's kinds in a story of their own would show nothing new.
        true => PROVIDERS.contains(&&*one.group) && right.resource.ends_with("templates") == one.resource.ends_with("templates"),
        false => one.group == right.group && one.resource == right.resource,
    };
    one.allowed
        && one.verb == right.verb
        && is_of_kind
        && right.namespace.as_ref().is_none_or(|namespace| *namespace == one.namespace)
        && right.name.as_ref().is_none_or(|name| *name == one.name)
}

const PROVIDERS: [&str; 3] = ["provider.test", "poison-pill.medik8s.io", "infrastructure.cluster.x-k8s.io"];

/// Everything that our manifests grant.
fn granted() -> BTreeSet<Granted> {
    let cluster = ClusterKey { namespace: CLUSTER.0.into(), name: CLUSTER.1.into() };
    let manifests = [
        rbac::manifests(Component::Controller, NAMESPACE),
        rbac::cluster_api(Component::Controller, NAMESPACE),
        rbac::openshift(Component::Controller, NAMESPACE),
        rbac::cluster_access(Component::Controller, NAMESPACE, &cluster).into(),
    ];
    let roles = manifests.iter().flatten().filter(|object| object["rules"].is_array());
    let rules = roles.flat_map(|role| list(role, "rules").iter().map(move |rule| (role, rule)));
    rules.flat_map(|(role, rule)| rights(role, rule)).collect()
}

fn rights(role: &Value, rule: &Value) -> Vec<Granted> {
    let metadata = &role["metadata"];
    let mut rights = Vec::new();
    let mut names: Vec<Option<String>> = texts(rule, "resourceNames").map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    for verb in texts(rule, "verbs") {
        for (group, resource) in
            texts(rule, "apiGroups").flat_map(|group| texts(rule, "resources").map(move |one| (group.clone(), one)))
        {
            rights.extend(names.iter().map(|name| Granted {
                verb: verb.clone(),
                group: group.clone(),
                resource: resource.clone(),
                namespace: metadata["namespace"].as_str().map(str::to_owned),
                name: name.clone(),
                of_provider: metadata["labels"][names::AGGREGATION.0] == names::AGGREGATION.1,
            }));
        }
    }
    rights
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = String> + use<'a> {
    list(value, key).iter().filter_map(Value::as_str).map(str::to_owned)
}
