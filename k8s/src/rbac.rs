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
    /// The names of the objects that it is about; none for all.
    pub only: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub why: &'static str,
}

pub const RIGHTS: &[Right] = &[
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["nodes"],
        only: &[],
        verbs: &["get", "list", "watch"],
        why: "judge nodes by their conditions, and look once more before anything starts",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["nodes"],
        only: &[],
        verbs: &["patch"],
        why: "take back the annotation by which a person confirmed that a node is healthy",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Namespace(names::NODE_LEASES),
        group: "coordination.k8s.io",
        resources: &["leases"],
        only: &[],
        verbs: &["list", "watch", "create", "update", "delete"],
        why: "keep off nodes that others have out of service, and others off those that we have",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Namespace(names::ETCD_PODS.0),
        group: "",
        resources: &["pods"],
        only: &[],
        verbs: &["list", "watch"],
        why: "know which nodes etcd runs on, so as never to take its majority",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Namespace(names::OPENSHIFT_ETCD),
        group: "policy",
        resources: &["poddisruptionbudgets"],
        only: &[],
        verbs: &["list", "watch"],
        why: "take no node whose etcd member OpenShift cannot spare",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Namespace(names::OPENSHIFT_ETCD),
        group: "",
        resources: &["pods"],
        only: &[],
        verbs: &["list", "watch"],
        why: "see whether the etcd member on a node is up, by the Pod that guards it",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "machine.openshift.io",
        resources: &["machines"],
        only: &[],
        verbs: &["get"],
        why: "let a node's Machine own its remediation, where Metal3 looks for it",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "coordination.k8s.io",
        resources: &["leases"],
        only: &[names::RIVAL_LEASE],
        verbs: &["list", "watch"],
        why: "leave checks alone while another controller takes care of them",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "remediation.medik8s.io",
        resources: &["nodehealthchecks"],
        only: &[],
        verbs: &["get", "list", "watch"],
        why: "read the checks",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "remediation.medik8s.io",
        resources: &["nodehealthchecks"],
        only: &[],
        verbs: &["create"],
        why: "give a cluster without any check the default one, where that is switched on",
    },
    Right {
        component: Component::Controller,
        scope: Scope::OwnNamespace,
        group: "poison-pill.medik8s.io",
        resources: &["poisonpillremediationtemplates"],
        only: &[],
        verbs: &["create"],
        why: "give the default check its template",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "remediation.medik8s.io",
        resources: &["nodehealthchecks/status"],
        only: &[],
        verbs: &["patch"],
        why: "report what each check sees and does",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        only: &[],
        verbs: &["list", "watch"],
        why: "notice kinds of templates and remediations that come and go",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "config.openshift.io",
        resources: &["clusterversions"],
        only: &[],
        verbs: &["get", "list", "watch"],
        why: "start nothing while OpenShift is being upgraded",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "apps",
        resources: &["daemonsets"],
        only: &[],
        verbs: &["list", "watch"],
        why: "start nothing while kured, whose DaemonSet holds its lock in any namespace, reboots nodes",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "upgrade.cattle.io",
        resources: &["plans"],
        only: &[],
        verbs: &["list", "watch"],
        why: "start nothing while the system-upgrade-controller carries out a Plan",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["events"],
        only: &[],
        verbs: &["create"],
        why: "tell people; events of cluster-scoped checks go to the namespace default",
    },
    Right {
        component: Component::Controller,
        scope: Scope::Cluster,
        group: "",
        resources: &["namespaces"],
        only: &[],
        verbs: &["create"],
        why: "create the namespace of the leader lease if it is missing",
    },
    Right {
        component: Component::Controller,
        scope: Scope::OwnNamespace,
        group: "coordination.k8s.io",
        resources: &["leases"],
        only: &[],
        verbs: &["get", "create", "update"],
        why: "elect a leader",
    },
];

/// Account, roles and bindings of a component installed in `namespace`, as objects to apply in this order.
pub fn manifests(component: Component, namespace: &str) -> Vec<Value> {
    let account = component.account();
    let subject = subject(component, namespace);
    let aggregation = format!("{account}-remediators");
    let (label, value) = names::AGGREGATION;
    let selector =
        LabelSelector { match_labels: Some([(label.to_owned(), value.to_owned())].into()), ..LabelSelector::default() };
    let mut objects = vec![
        object(&Namespace {
            metadata: ObjectMeta { name: Some(namespace.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        }),
        object(&ServiceAccount { metadata: metadata(account, Some(namespace)), ..ServiceAccount::default() }),
        object(&ClusterRole {
            metadata: metadata(account, None),
            rules: Some(rules(component, Scope::Cluster)),
            ..ClusterRole::default()
        }),
        object(&ClusterRoleBinding {
            metadata: metadata(account, None),
            role_ref: role_ref("ClusterRole", account),
            subjects: Some(vec![subject.clone()]),
        }),
        // Filled by the cluster from the roles that providers label; without rules of its own.
        object(&ClusterRole {
            metadata: metadata(&aggregation, None),
            aggregation_rule: Some(AggregationRule { cluster_role_selectors: Some(vec![selector]) }),
            rules: None,
        }),
        object(&ClusterRoleBinding {
            metadata: metadata(&aggregation, None),
            role_ref: role_ref("ClusterRole", &aggregation),
            subjects: Some(vec![subject.clone()]),
        }),
        object(&provider_role(metadata(&format!("{account}-poison-pill"), None))),
    ];
    // The namespaces of others may be missing, and are left alone if they are not.
    let metadata = ObjectMeta { name: Some(names::NODE_LEASES.into()), ..ObjectMeta::default() };
    objects.push(object(&Namespace { metadata, ..Namespace::default() }));
    for place in [namespace, names::NODE_LEASES, names::ETCD_PODS.0] {
        objects.extend(role(component, namespace, place));
    }
    objects
}

/// What is needed beside those on OpenShift, in a namespace that exists only there.
pub fn openshift(component: Component, namespace: &str) -> Vec<Value> {
    role(component, namespace, names::OPENSHIFT_ETCD).into()
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
