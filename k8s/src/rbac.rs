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
use resus_core::mhc::facts::{ClusterKey, Flavour};
use serde_json::Value;

pub use self::rights::{Component, RIGHTS, Right, Scope};
use crate::crd::policy;
use crate::names;

/// Account, roles and bindings of a component installed in `namespace`, and the policy that narrows what the roles cannot, as
/// objects to apply in this order.
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
    objects.extend(aggregated(component, namespace, &format!("{account}-remediators")));
    objects.push(provider_role(&format!("{account}-poison-pill"), POISON_PILL));
    // The namespaces of others may be missing, and are left alone if they are not.
    let metadata = ObjectMeta { name: Some(names::NODE_LEASES.into()), ..ObjectMeta::default() };
    objects.push(object(&Namespace { metadata, ..Namespace::default() }));
    for place in [namespace, names::NODE_LEASES, names::ETCD_PODS.0] {
        objects.extend(role(component, namespace, place));
    }
    objects.extend(policy::node_writes(namespace, account));
    objects
}

/// What is needed beside those where Cluster API is, or its kinds from `deploy/crds-machines` are.
pub fn cluster_api(component: Component, namespace: &str) -> Vec<Value> {
    let name = format!("{}-cluster-api", component.account());
    let mut objects: Vec<Value> = cluster_role(component, namespace, &name, Scope::Where(Flavour::ClusterApi)).into();
    objects.push(provider_role(&format!("{name}-metal3"), METAL3));
    objects
}

/// What is needed beside those to reach the nodes of one Cluster: its kubeconfig, and no other Secret.
pub fn cluster_access(component: Component, namespace: &str, cluster: &ClusterKey) -> [Value; 2] {
    let secret = format!("{}{}", cluster.name, names::KUBECONFIG.0);
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".into()]),
        resource_names: Some(vec![secret.clone()]),
        verbs: ["list", "watch"].map(Into::into).into(),
        ..PolicyRule::default()
    };
    role_in(component, namespace, &cluster.namespace, &format!("{}-{secret}", component.account()), vec![rule])
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
    let mut rules = self::rules(component, scope);
    if scope == Scope::Cluster {
        // Namespaces are in no namespace, so that no Role would do.
        let itself = self::rules(component, Scope::OwnNamespaceItself).into_iter();
        rules.extend(itself.map(|rule| PolicyRule { resource_names: Some(vec![namespace.into()]), ..rule }));
    }
    let role = ClusterRole { metadata: metadata(name, None), rules: Some(rules), ..ClusterRole::default() };
    [object(&role), bound(component, namespace, name)]
}

/// Filled by the cluster from the roles that providers label; without rules of its own.
fn aggregated(component: Component, namespace: &str, name: &str) -> [Value; 2] {
    let (label, value) = names::AGGREGATION;
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
    role_in(component, namespace, place, component.account(), rules(component, scope))
}

fn role_in(component: Component, namespace: &str, place: &str, name: &str, rules: Vec<PolicyRule>) -> [Value; 2] {
    let metadata = metadata(name, Some(place));
    [
        object(&Role { metadata: metadata.clone(), rules: Some(rules) }),
        object(&RoleBinding { metadata, role_ref: role_ref("Role", name), subjects: Some(vec![subject(component, namespace)]) }),
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

/// A provider of remediations: its API group, and the plurals of its templates and of its remediations.
type Provider = (&'static str, &'static str, &'static str);
const POISON_PILL: Provider = ("poison-pill.medik8s.io", "poisonpillremediationtemplates", "poisonpillremediations");
/// Its own roles are for Cluster API's manager.
const METAL3: Provider = ("infrastructure.cluster.x-k8s.io", "metal3remediationtemplates", "metal3remediations");

/// What a provider grants to whoever has nodes or machines remediated, labelled as any provider's role is.
fn provider_role(name: &str, (group, templates, remediations): Provider) -> Value {
    let (label, value) = names::AGGREGATION;
    let mut metadata = metadata(name, None);
    metadata.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned());
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(vec![resource.into()]),
        verbs: verbs.iter().map(|text| (*text).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let rules = vec![rule(templates, TEMPLATE_VERBS), rule(remediations, REMEDIATION_VERBS)];
    object(&ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() })
}

/// What we ask of any provider's kinds.
const TEMPLATE_VERBS: &[&str] = &["list", "watch"];
const REMEDIATION_VERBS: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

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
