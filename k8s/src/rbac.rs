//! Who may do what, and why?
//!
//! One table. The manifests in `deploy/` are made from it, and the stories run under the accounts that it
//! describes, so a right that is missing here fails a test, and one without a why cannot be written down.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::Value;

use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Controller,
}

impl Component {
    /// Of the service account, and of all that is bound to it.
    pub fn account(self) -> &'static str {
        match self {
            Component::Controller => "resus-controller",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    /// The namespace where resus is installed.
    OwnNamespace,
    Namespace(&'static str),
}

pub struct Right {
    pub component: Component,
    pub scope: Scope,
    pub group: &'static str,
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub why: &'static str,
}

pub const RIGHTS: &[Right] = &[
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["nodes"],
        verbs: &["get", "list", "watch"],
        why: "judge nodes by their conditions, and look once more before anything starts",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["nodes"],
        verbs: &["patch"],
        why: "take back the annotation by which a person confirmed that a node is healthy",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Namespace(names::NODE_LEASES),
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["list", "watch", "create", "update", "delete"],
        why: "keep off nodes that others have out of service, and others off those that we have",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Namespace(names::ETCD_PODS.0),
        group: "",
        resources: &["pods"],
        verbs: &["list", "watch"],
        why: "know which nodes etcd runs on, so as never to take its majority",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "remediation.medik8s.io",
        resources: &["nodehealthchecks"],
        verbs: &["get", "list", "watch"],
        why: "read the checks",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "remediation.medik8s.io",
        resources: &["nodehealthchecks"],
        verbs: &["create"],
        why: "give a cluster without any check the default one, where that is switched on",
    },
    Right {
        component: Component::Controller,
        scope: Scope::OwnNamespace,
        group: "poison-pill.medik8s.io",
        resources: &["poisonpillremediationtemplates"],
        verbs: &["create"],
        why: "give the default check its template",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "remediation.medik8s.io",
        resources: &["nodehealthchecks/status"],
        verbs: &["patch"],
        why: "report what each check sees and does",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        verbs: &["list", "watch"],
        why: "notice kinds of templates and remediations that come and go",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "config.openshift.io",
        resources: &["clusterversions"],
        verbs: &["get", "list", "watch"],
        why: "start nothing while OpenShift is being upgraded",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "apps",
        resources: &["daemonsets"],
        verbs: &["list", "watch"],
        why: "start nothing while kured, whose DaemonSet holds its lock in any namespace, reboots nodes",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "upgrade.cattle.io",
        resources: &["plans"],
        verbs: &["list", "watch"],
        why: "start nothing while the system-upgrade-controller carries out a Plan",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["events"],
        verbs: &["create"],
        why: "tell people; events of cluster-scoped checks go to the namespace default",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["namespaces"],
        verbs: &["create"],
        why: "create the namespace of the leader lease if it is missing",
    },
    Right {
        component: Component::Controller,
        scope: Scope::OwnNamespace,
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "create", "update"],
        why: "elect a leader",
    },
];

/// Account, roles and bindings of a component installed in `namespace`, as objects to apply in this order.
pub fn manifests(component: Component, namespace: &str) -> Vec<Value> {
    let account = component.account();
    let subject =
        Subject { kind: "ServiceAccount".into(), name: account.into(), namespace: Some(namespace.into()), ..Subject::default() };
    let meta = |name: &str, namespaced: bool| ObjectMeta {
        name: Some(name.into()),
        namespace: namespaced.then(|| namespace.into()),
        labels: Some([(names::MANAGED_BY_LABEL.to_owned(), names::MANAGER.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let role_ref =
        |kind: &str, name: &str| RoleRef { api_group: "rbac.authorization.k8s.io".into(), kind: kind.into(), name: name.into() };
    let aggregation = format!("{account}-remediators");
    let (label, value) = names::AGGREGATION;
    let selector =
        LabelSelector { match_labels: Some([(label.to_owned(), value.to_owned())].into()), ..LabelSelector::default() };
    let mut objects = vec![
        object(&Namespace {
            metadata: ObjectMeta { name: Some(namespace.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        }),
        object(&ServiceAccount { metadata: meta(account, true), ..ServiceAccount::default() }),
        object(&ClusterRole {
            metadata: meta(account, false),
            rules: Some(rules(component, Scope::Cluster)),
            ..ClusterRole::default()
        }),
        object(&ClusterRoleBinding {
            metadata: meta(account, false),
            role_ref: role_ref("ClusterRole", account),
            subjects: Some(vec![subject.clone()]),
        }),
        // Filled by the cluster from the roles that providers label; without rules of its own.
        object(&ClusterRole {
            metadata: meta(&aggregation, false),
            aggregation_rule: Some(AggregationRule { cluster_role_selectors: Some(vec![selector]) }),
            rules: None,
        }),
        object(&ClusterRoleBinding {
            metadata: meta(&aggregation, false),
            role_ref: role_ref("ClusterRole", &aggregation),
            subjects: Some(vec![subject.clone()]),
        }),
        object(&provider_role(meta(&format!("{account}-poison-pill"), false))),
    ];
    // The namespaces of others may be missing, and are left alone if they are not.
    let elsewhere = RIGHTS.iter().filter(|right| right.component == component).filter_map(|right| match right.scope {
        Scope::Namespace(namespace) => Some(namespace),
        Scope::Cluster | Scope::OwnNamespace => None,
    });
    let places = elsewhere.map(|namespace| (namespace, Scope::Namespace(namespace)));
    for (place, scope) in [(namespace, Scope::OwnNamespace)].into_iter().chain(places) {
        let meta = ObjectMeta { namespace: Some(place.into()), ..meta(account, true) };
        if place == names::NODE_LEASES {
            let metadata = ObjectMeta { name: Some(place.into()), ..ObjectMeta::default() };
            objects.push(object(&Namespace { metadata, ..Namespace::default() }));
        }
        objects.push(object(&Role { metadata: meta.clone(), rules: Some(rules(component, scope)) }));
        objects.push(object(&RoleBinding {
            metadata: meta,
            role_ref: role_ref("Role", account),
            subjects: Some(vec![subject.clone()]),
        }));
    }
    objects
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
        verbs: texts(right.verbs),
        ..PolicyRule::default()
    };
    rights.map(rule).collect()
}

fn object(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("Kubernetes' own types are made for JSON")
}
