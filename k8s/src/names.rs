//! Which names do we share with the API and with other programs?

use resus_core::facts::MACHINE_ANNOTATION;
use resus_core::upgrade;

/// Who we are in managedFields, and the label value on CRDs that are ours.
pub const MANAGER: &str = "resus";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

pub const CHECK_API_VERSION: &str = "remediation.medik8s.io/v1alpha1";
pub const CHECK_KIND: &str = "NodeHealthCheck";
pub const CHECK_PLURAL: &str = "nodehealthchecks";
/// The check that is created where there is none; with our label on it, it is ours.
pub const DEFAULT_CHECK: &str = "nhc-worker-default";
/// API version, kind and name of the template of the default check.
pub const DEFAULT_TEMPLATE: (&str, &str, &str) =
    ("poison-pill.medik8s.io/v1alpha1", "PoisonPillRemediationTemplate", "poison-pill-default-template");

/// On every remediation, as remediators select on it.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "node-healthcheck-controller");
pub const CONTROL_PLANE_LABEL: &str = "remediation.medik8s.io/isControlPlaneNode";
pub const NODE_NAME: &str = "remediation.medik8s.io/node-name";
pub const TEMPLATE_NAME: &str = "remediation.medik8s.io/template-name";
/// On a template, with any value: its provider can work on several objects per node.
pub const MULTIPLE_TEMPLATES: &str = "remediation.medik8s.io/multiple-templates-support";

/// On a remediation: when its step of an escalation was given up.
pub const TIMED_OUT: &str = "remediation.medik8s.io/nhc-timed-out";
/// On a remediation: since when its node is healthy, while its removal is delayed.
pub const HEALTHY_DELAY: &str = "remediation.medik8s.io/healthy-delay";
/// On a remediation that is older than two days.
pub const OLD_FLAG: (&str, &str) = ("nodehealthcheck.medik8s.io/old-remediation-cr-flag", "flagon");
/// On a Node, by a person, with any value.
pub const CONFIRMED_HEALTHY: &str = "remediation.medik8s.io/manually-confirmed-healthy";

/// Providers label their ClusterRoles with it, so that we may create their objects.
pub const AGGREGATION: (&str, &str) = ("rbac.ext-remediation/aggregate-to-ext-remediation", "true");

/// The annotations of checks, templates and remediations that anybody asks for.
pub const ANNOTATIONS: [&str; 11] = [
    NODE_NAME,
    TEMPLATE_NAME,
    MULTIPLE_TEMPLATES,
    TAKE_OVER,
    TOPOLOGY_KEY,
    REPEAT,
    NODE_STARTUP_TIMEOUT,
    MODE,
    TIMED_OUT,
    HEALTHY_DELAY,
    OLD_FLAG.0,
];

/// The annotations of Nodes that are always asked for; of all others those that mean maintenance (see
/// [`crate::observe::Keep`]) are kept while decoding.
pub const NODE_ANNOTATIONS: [&str; 4] = [CONFIRMED_HEALTHY, upgrade::CURRENT_CONFIG, upgrade::DESIRED_CONFIG, MACHINE_ANNOTATION];

/// On an object whose definition others installed: take care of it all the same.
pub const TAKE_OVER: &str = "resus.dev/take-over";
/// On a check: fields of ours, for where a definition that others installed would drop them from the spec.
pub const TOPOLOGY_KEY: &str = "resus.dev/topologyKey";
pub const REPEAT: &str = "resus.dev/repeat";
pub const NODE_STARTUP_TIMEOUT: &str = "resus.dev/nodeStartupTimeout";
pub const MODE: &str = "resus.dev/mode";

/// The Lease of the leader, in the namespace where resus is installed.
pub const LEADER_LEASE: &str = "resus-controller";
/// Where the operators of the medik8s family keep their Leases on nodes, unless LEASE_NAMESPACE says otherwise.
pub const NODE_LEASES: &str = "medik8s-leases";
/// The Lease of the leader of medik8s' own controller, in whichever namespace that is installed.
pub const RIVAL_LEASE: &str = "e1f13584.medik8s.io";
/// The namespace and labels of etcd's mirror Pods.
pub const ETCD_PODS: (&str, &str) = ("kube-system", "component=etcd");
/// Where OpenShift guards its etcd.
pub const OPENSHIFT_ETCD: &str = "openshift-etcd";
/// Events on cluster-scoped objects go there.
pub const EVENT_NAMESPACE: &str = "default";
/// The source of the reference's events, on which users filter.
pub const EVENT_SOURCE: &str = "NodeHealthCheck";

/// Namespaces that are a matter of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where resus is installed.
    pub own: String,
    /// Where Leases on nodes are.
    pub node_leases: String,
}

impl Places {
    /// The usual ones.
    pub fn new(own: &str) -> Places {
        Places { own: own.to_owned(), node_leases: NODE_LEASES.to_owned() }
    }
}
