//! Which names do we share with the API and with other programs?

use resus_core::facts::{MACHINE_ANNOTATION, Rival};
use resus_core::mhc::facts::{Dialect, Style};
use resus_core::upgrade;

/// Who we are in managedFields, and the label value on CRDs that are ours.
pub const MANAGER: &str = "resus";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

pub const CHECK_GROUP: &str = "remediation.medik8s.io";
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

pub const MACHINES: &str = "machines";
pub const MACHINE_CHECKS: &str = "machinehealthchecks";
pub const CLUSTERS: &str = "clusters";
/// What machines, or what makes them, consist of is made from templates, too, and has the name of its Machine.
pub const NO_REMEDIATION_TEMPLATES: [&str; 3] = ["MachineTemplate", "ConfigTemplate", "ControlPlaneTemplate"];
/// A Secret named after its Cluster holds the kubeconfig under this key.
pub const KUBECONFIG: (&str, &str) = ("-kubeconfig", "value");

/// Where the conditions of a Machine or of its check are, below its status. A dialect of one style has but one list.
pub fn conditions(dialect: Dialect, style: Style) -> &'static [&'static str] {
    match (dialect, style) {
        (Dialect::V1beta2, Style::Legacy) => &["deprecated", "v1beta1", "conditions"],
        (Dialect::V1beta1, Style::New) => &["v1beta2", "conditions"],
        (Dialect::V1beta2, Style::New) | (Dialect::V1beta1, Style::Legacy) => &["conditions"],
        (Dialect::V1alpha3 | Dialect::OpenShift, Style::New | Style::Legacy) => &["conditions"],
    }
}

/// Conditions of a Machine that sum others up, and those that checks write: a rule on them would follow its own shadow.
pub const NOT_FOR_RULES: [&str; 5] = ["Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated"];

/// On Machines, by presence. The first is on checks, too.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
/// On a Cluster, by a person: the uid of the namespace kube-system of the cluster that it is.
pub const CLUSTER_UID: &str = "resus.dev/cluster-uid";
/// Asks OpenShift's actuator to power-cycle the Machine.
pub const POWER_CYCLE: &str = "host.metal3.io/external-remediation";
/// By which that actuator remembers how far it is.
pub const POWER_CYCLING: [&str; 4] = [
    "remediation.metal3.io/powered-off-for-remediation",
    "remediation.metal3.io/power-on-will-timeout-at",
    "remediation.metal3.io/node-labels-backup",
    "remediation.metal3.io/node-annotations-backup",
];
/// On a MachineHealthCheck of OpenShift: have machines power-cycled, not deleted.
pub const POWER_CYCLE_STRATEGY: (&str, &str) = ("machine.openshift.io/remediation-strategy", "external-baremetal");
/// On what we make from a template for a Machine: the uid of the check.
pub const MACHINE_CHECK_UID: &str = "resus.dev/machine-health-check";

/// The annotations of Machines, checks, templates and remediations that anybody asks for.
pub const ANNOTATIONS: [&str; 22] = [
    MACHINE_CHECK_UID,
    PAUSED,
    SKIP_REMEDIATION,
    REMEDIATE_MACHINE,
    CLUSTER_UID,
    POWER_CYCLE,
    POWER_CYCLING[0],
    POWER_CYCLING[1],
    POWER_CYCLING[2],
    POWER_CYCLING[3],
    POWER_CYCLE_STRATEGY.0,
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

/// On the namespace where resus is installed, with a reason as its value: nothing starts anywhere.
pub const PAUSE: &str = "resus.dev/pause";

/// The Lease of the leader, in the namespace where resus is installed.
pub const LEADER_LEASE: &str = "resus-controller";
/// Where the operators of the medik8s family keep their Leases on nodes, unless LEASE_NAMESPACE says otherwise.
pub const NODE_LEASES: &str = "medik8s-leases";
/// The Leases of the leaders of others' controllers, in whichever namespace those are installed.
pub const MEDIK8S_LEASE: &str = "e1f13584.medik8s.io";
pub const CLUSTER_API_LEASE: &str = "controller-leader-election-capi";
pub const OPENSHIFT_LEASE: &str = "cluster-api-provider-healthcheck-leader";

pub fn rival_lease(rival: Rival) -> &'static str {
    match rival {
        Rival::Medik8s => MEDIK8S_LEASE,
        Rival::ClusterApi => CLUSTER_API_LEASE,
        Rival::OpenShift => OPENSHIFT_LEASE,
    }
}

/// On a Pod that the kubelet shows of a static one.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The namespace and labels of etcd's mirror Pods.
pub const ETCD_PODS: (&str, &str) = ("kube-system", "component=etcd");
/// Where OpenShift guards its etcd.
pub const OPENSHIFT_ETCD: &str = "openshift-etcd";
/// Events on cluster-scoped objects go there.
pub const EVENT_NAMESPACE: &str = "default";
/// The sources of the references' events, on which users filter.
pub const EVENT_SOURCE: &str = "NodeHealthCheck";
pub const MACHINE_EVENT_SOURCE: &str = "machinehealthcheck-controller";

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
