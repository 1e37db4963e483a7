//! Who may do what, and why?
//!
//! One table. The manifests in `deploy/` are made from it, and the stories run under the accounts that it
//! describes, so a right that is missing here fails a test, and one without a why cannot be written down.

mod rights;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use resus_core::mhc::facts::Flavour;
use serde_json::Value;

pub use self::rights::{Component, RIGHTS, Right, Scope};
use crate::names;

/// Account, roles and bindings of a component installed in `namespace`, as objects to apply in this order.
pub fn manifests(component: Component, namespace: &str) -> Vec<Value> {
    let account = component.account();
    let mut objects = vec![
        object(&Namespace {
            metadata: ObjectMeta { name: Some(namespace.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        }),
        object(&ServiceAccount { metadata: metadata(account, Some(namespace)), ..ServiceAccount::default() }),
    ];
    objects.extend(cluster_role(component, namespace, account, Scope::Cluster));
    objects.extend(aggregated(component, namespace, &format!("{account}-remediators"), names::AGGREGATION));
    objects.push(object(&provider_role(metadata(&format!("{account}-poison-pill"), None))));
    // The namespaces of others may be missing, and are left alone if they are not.
    let metadata = ObjectMeta { name: Some(names::NODE_LEASES.into()), ..ObjectMeta::default() };
    objects.push(object(&Namespace { metadata, ..Namespace::default() }));
    for place in [namespace, names::NODE_LEASES, names::ETCD_PODS.0] {
        objects.extend(role(component, namespace, place));
    }
    objects
}

/// What is needed beside those where Cluster API is, or its kinds from `deploy/crds-machines` are.
pub fn cluster_api(component: Component, namespace: &str) -> Vec<Value> {
    let name = format!("{}-cluster-api", component.account());
    let aggregation = format!("{name}-remediators");
    let mut objects: Vec<Value> = cluster_role(component, namespace, &name, Scope::Where(Flavour::ClusterApi)).into();
    objects.extend(aggregated(component, namespace, &aggregation, names::CLUSTER_API_AGGREGATION));
    objects
}

/// What is needed beside those on OpenShift, also in a namespace that exists only there.
pub fn openshift(component: Component, namespace: &str) -> Vec<Value> {
    let name = format!("{}-openshift", component.account());
    let mut objects: Vec<Value> = role(component, namespace, names::OPENSHIFT_ETCD).into();
    objects.extend(cluster_role(component, namespace, &name, Scope::Where(Flavour::OpenShift)));
    objects
}

/// What the component may do everywhere, in a role of this name.
fn cluster_role(component: Component, namespace: &str, name: &str, scope: Scope) -> [Value; 2] {
    let role = ClusterRole { metadata: metadata(name, None), rules: Some(rules(component, scope)), ..ClusterRole::default() };
    [object(&role), bound(component, namespace, name)]
}

/// Filled by the cluster from the roles that providers label; without rules of its own.
fn aggregated(component: Component, namespace: &str, name: &str, (label, value): (&str, &str)) -> [Value; 2] {
    let selector =
        LabelSelector { match_labels: Some([(label.to_owned(), value.to_owned())].into()), ..LabelSelector::default() };
    let role = ClusterRole {
        metadata: metadata(name, None),
        aggregation_rule: Some(AggregationRule { cluster_role_selectors: Some(vec![selector]) }),
        rules: None,
    };
    [object(&role), bound(component, namespace, name)]
}

fn bound(component: Component, namespace: &str, name: &str) -> Value {
    object(&ClusterRoleBinding {
        metadata: metadata(name, None),
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(vec![subject(component, namespace)]),
    })
}

/// What the component, installed in `namespace`, may do in `place`.
fn role(component: Component, namespace: &str, place: &str) -> [Value; 2] {
    let scope = match place == namespace {
        true => Scope::OwnNamespace,
        false => {
            let scopes = RIGHTS.iter().map(|right| right.scope);
            scopes.into_iter().find(|scope| matches!(scope, Scope::Namespace(own) if *own == place)).expect("a right is for it")
        }
    };
    let meta = metadata(component.account(), Some(place));
    [
        object(&Role { metadata: meta.clone(), rules: Some(rules(component, scope)) }),
        object(&RoleBinding {
            metadata: meta,
            role_ref: role_ref("Role", component.account()),
            subjects: Some(vec![subject(component, namespace)]),
        }),
    ]
}

fn subject(component: Component, namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: component.account().into(),
        namespace: Some(namespace.into()),
        ..Subject::default()
    }
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: namespace.map(Into::into),
        labels: Some([(names::MANAGED_BY_LABEL.to_owned(), names::MANAGER.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: "rbac.authorization.k8s.io".into(), kind: kind.into(), name: name.into() }
}

/// What the provider of PoisonPillRemediations grants to whoever has nodes remediated, labelled as any provider's is.
fn provider_role(mut metadata: ObjectMeta) -> ClusterRole {
    let (label, value) = names::AGGREGATION;
    metadata.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned());
    let rule = |resources: &[&str], verbs: &[&str]| PolicyRule {
        api_groups: Some(vec!["poison-pill.medik8s.io".into()]),
        resources: Some(resources.iter().map(|text| (*text).to_owned()).collect()),
        verbs: verbs.iter().map(|text| (*text).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let rules = vec![
        rule(&["poisonpillremediationtemplates"], &["get", "list", "watch"]),
        rule(&["poisonpillremediations"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
    ];
    ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() }
}

fn rules(component: Component, scope: Scope) -> Vec<PolicyRule> {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let rights = RIGHTS.iter().filter(|right| right.component == component && right.scope == scope);
    let rule = |right: &Right| PolicyRule {
        api_groups: Some(vec![right.group.into()]),
        resources: Some(texts(right.resources)),
        resource_names: Some(texts(right.only)).filter(|only| !only.is_empty()),
        verbs: texts(right.verbs),
        ..PolicyRule::default()
    };
    rights.map(rule).collect()
}

fn object(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("Kubernetes' own types are made for JSON")
}
