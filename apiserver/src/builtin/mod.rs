//! What do the built-in kinds demand beyond their schema?
//!
//! Defaults, validation and what the server itself sets, for each kind as Kubernetes does it. Events come in the form of `v1`,
//! in which they are stored: [`event_to_core`] and [`event_from_core`] change between the two.

pub mod base64;
mod core;
mod csr;
mod event;
mod fields;
mod keep;
mod meta;
mod misc;
pub mod names;
mod node;
mod pod;
mod pod_rules;
mod quantity;
mod rbac;
mod read;
mod selector;
#[cfg(test)]
mod tests;
mod workloads;

use serde_json::{Value, json};

pub use self::csr::{set_requester, set_times as set_request_times};
pub use self::event::{from_core as event_from_core, to_core as event_to_core};
pub use self::fields::{field_value, selectable, unsupported as unsupported_field};
pub use self::keep::{keep_on_approval, keep_on_finalize, keep_on_status, keep_on_update};
pub use self::meta::{keep_meta, validate_meta, warn_of_finalizers};
use crate::refusal::Cause;
use crate::resource::Resource;

/// The kinds that have rules of their own; the rest only has a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Event,
    Namespace,
    Node,
    Pod,
    Secret,
    ServiceAccount,
    DaemonSet,
    Deployment,
    Lease,
    VolumeAttachment,
    CertificateSigningRequest,
    DisruptionBudget,
    Role,
    RoleBinding,
    Policy,
    PolicyBinding,
    Other,
}

fn kind(resource: &Resource) -> Kind {
    if resource.custom.is_some() {
        return Kind::Other;
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "nodes") => Kind::Node,
        ("", "configmaps") => Kind::ConfigMap,
        ("" | "events.k8s.io", "events") => Kind::Event,
        ("", "namespaces") => Kind::Namespace,
        ("", "pods") => Kind::Pod,
        ("", "secrets") => Kind::Secret,
        ("", "serviceaccounts") => Kind::ServiceAccount,
        ("apps", "daemonsets") => Kind::DaemonSet,
        ("apps", "deployments") => Kind::Deployment,
        ("coordination.k8s.io", "leases") => Kind::Lease,
        ("storage.k8s.io", "volumeattachments") => Kind::VolumeAttachment,
        ("certificates.k8s.io", "certificatesigningrequests") => Kind::CertificateSigningRequest,
        ("policy", "poddisruptionbudgets") => Kind::DisruptionBudget,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => Kind::Role,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => Kind::RoleBinding,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => Kind::Policy,
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => Kind::PolicyBinding,
        _ => Kind::Other,
    }
}

/// Whether a PUT of an object that does not exist creates it.
pub fn creates_on_update(resource: &Resource) -> bool {
    matches!(kind(resource), Kind::Lease | Kind::Event | Kind::Role | Kind::RoleBinding)
}

/// Whether an update may leave out the resourceVersion.
pub fn updates_unconditionally(resource: &Resource) -> bool {
    match kind(resource) {
        Kind::ConfigMap | Kind::Event | Kind::Namespace | Kind::Node | Kind::Pod | Kind::Secret => true,
        Kind::DaemonSet | Kind::Deployment | Kind::Role | Kind::RoleBinding | Kind::CertificateSigningRequest => true,
        Kind::ServiceAccount => true,
        Kind::Lease | Kind::VolumeAttachment | Kind::DisruptionBudget | Kind::Policy | Kind::PolicyBinding | Kind::Other => false,
    }
}

/// Whether `metadata.generation` counts changes of this kind.
pub fn has_generation(resource: &Resource) -> bool {
    match kind(resource) {
        Kind::Pod | Kind::DaemonSet | Kind::Deployment | Kind::DisruptionBudget | Kind::Policy | Kind::PolicyBinding => true,
        Kind::Other => resource.custom.is_some() || resource.is("apiextensions.k8s.io", "customresourcedefinitions"),
        Kind::ConfigMap | Kind::Event | Kind::Namespace | Kind::Node | Kind::Secret | Kind::ServiceAccount => false,
        Kind::Lease | Kind::VolumeAttachment | Kind::CertificateSigningRequest | Kind::Role | Kind::RoleBinding => false,
    }
}

/// Whether a write counts as a new generation of the object: a change of the spec, for Deployments of annotations too, for
/// custom kinds of anything but metadata and status. `new` is as it will be stored.
pub fn is_new_generation(resource: &Resource, new: &Value, old: &Value) -> bool {
    let spec_differs = new["spec"] != old["spec"];
    match kind(resource) {
        Kind::Deployment => spec_differs || new["metadata"]["annotations"] != old["metadata"]["annotations"],
        Kind::Other if resource.custom.is_some() => {
            let counts = |key: &str| match key {
                "metadata" | "apiVersion" | "kind" => false,
                "status" => !resource.has("status"),
                _ => true,
            };
            let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
            let gone = old.keys().any(|key| counts(key) && !new.contains_key(key));
            gone || new.iter().any(|(key, value)| counts(key) && old.get(key) != Some(value))
        }
        _ => has_generation(resource) && spec_differs,
    }
}

/// Defaults of fields, at every write, before validation. All kinds but custom ones.
pub fn default(resource: &Resource, object: &mut Value) {
    default_meta(object);
    match kind(resource) {
        Kind::Node => node::default(object),
        Kind::Pod => pod::default(object),
        Kind::Event => event::default(object),
        Kind::ConfigMap => core::default_config_map(object),
        Kind::Secret => core::default_secret(object),
        Kind::Namespace => core::default_namespace(object),
        Kind::DaemonSet => workloads::default_daemon_set(object),
        Kind::Deployment => workloads::default_deployment(object),
        Kind::DisruptionBudget => workloads::default_disruption_budget(object),
        Kind::Lease => misc::default_lease(object),
        Kind::VolumeAttachment => misc::default_volume_attachment(object),
        Kind::Role => rbac::default_role(object),
        Kind::RoleBinding => rbac::default_binding(object),
        Kind::PolicyBinding => misc::default_policy_binding(object),
        Kind::Policy => misc::default_policy(object),
        Kind::ServiceAccount | Kind::CertificateSigningRequest | Kind::Other => {}
    }
    for key in ["spec", "status"] {
        if object[key].is_null() && resource.schema.field(key).is_some() {
            object[key] = json!({});
        }
    }
}

/// Nothing is what an empty map or list of metadata is stored as.
fn default_meta(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        read::drop_zero(meta, &["labels", "annotations", "finalizers", "ownerReferences", "generateName", "selfLink"]);
    }
}

/// An emptied list of rules is stored as none. Its writer owns it all the same: this comes after managers are recorded.
pub fn drop_empty_rules(resource: &Resource, object: &mut Value) {
    if kind(resource) == Kind::Role && object["rules"].as_array().is_some_and(Vec::is_empty) {
        object["rules"] = Value::Null;
    }
}

/// What the server sets at creation: status of a Namespace, phase of a Pod, taints of a Node, and so on. Users do not set the
/// status of what they create, except that of Nodes.
pub fn prepare_create(resource: &Resource, object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            meta.remove(key);
        }
    }
    match kind(resource) {
        Kind::Node => return node::prepare_create(object),
        Kind::Pod => return pod::prepare_create(object),
        Kind::Namespace => return core::prepare_namespace(object),
        Kind::CertificateSigningRequest => return csr::prepare_create(object),
        Kind::DaemonSet => workloads::count_template(object, None),
        _ => {}
    }
    if resource.has("status")
        && let Some(map) = object.as_object_mut()
    {
        let had = map.remove("status").is_some();
        if had && resource.custom.is_none() {
            default(resource, object);
        }
    }
}

/// Why an admission plugin refuses the object, if one does: for a 403 with this detail.
pub fn forbid_create(resource: &Resource, object: &Value) -> Option<String> {
    match kind(resource) {
        Kind::Pod => pod::refused_priority(object),
        _ => None,
    }
}

/// What the server keeps or sets at an update that is not of the status: `old` is what is stored.
pub fn prepare_update(resource: &Resource, object: &mut Value, old: &Value) {
    keep_on_update(resource, object, old);
    match kind(resource) {
        Kind::Pod => pod::prepare_update(object, old),
        Kind::DaemonSet => workloads::count_template(object, Some(old)),
        _ => {}
    }
}

/// Everything about the kind's own fields; metadata is judged by [`validate_meta`].
pub fn validate_create(resource: &Resource, object: &Value) -> Vec<Cause> {
    match kind(resource) {
        Kind::Node => node::validate(object),
        Kind::Pod => pod_rules::validate(object),
        Kind::Event => event::validate_create(object, resource.group == "events.k8s.io"),
        Kind::Namespace => core::validate_namespace(object),
        _ => validate(resource, object, None),
    }
}

pub fn validate_update(resource: &Resource, object: &Value, old: &Value) -> Vec<Cause> {
    match kind(resource) {
        Kind::Node => node::validate_update(object, old),
        Kind::Pod => pod_rules::validate_update(object, old),
        Kind::Event => event::validate_update(object, old, resource.group == "events.k8s.io"),
        Kind::CertificateSigningRequest | Kind::Namespace => Vec::new(),
        _ => validate(resource, object, Some(old)),
    }
}

fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    match kind(resource) {
        Kind::ConfigMap => core::validate_config_map(object, old),
        Kind::Secret => core::validate_secret(object, old),
        Kind::DaemonSet => workloads::validate_daemon_set(object, old),
        Kind::Deployment => workloads::validate_deployment(object, old),
        Kind::DisruptionBudget => workloads::validate_disruption_budget(object),
        Kind::Lease => misc::validate_lease(object),
        Kind::VolumeAttachment => misc::validate_volume_attachment(object, old),
        Kind::CertificateSigningRequest => csr::validate(object),
        Kind::Role => rbac::validate_role(object, resource.namespaced),
        Kind::RoleBinding => rbac::validate_binding(object, old, resource.namespaced),
        Kind::PolicyBinding => misc::validate_policy_binding(object),
        Kind::Node | Kind::Pod | Kind::Event | Kind::Namespace | Kind::ServiceAccount | Kind::Policy | Kind::Other => Vec::new(),
    }
}

/// An update of the status subresource.
pub fn validate_status(resource: &Resource, object: &Value, old: &Value) -> Vec<Cause> {
    match kind(resource) {
        Kind::Node => node::validate_status(object),
        Kind::Pod => pod_rules::validate_status(object, old),
        Kind::Namespace => core::validate_namespace_status(object),
        Kind::Deployment => {
            let keys = [
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
            ];
            workloads::validate_status(object, &keys, Some("replicas"))
        }
        Kind::DaemonSet => {
            let keys = [
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
            ];
            workloads::validate_status(object, &keys, None)
        }
        Kind::DisruptionBudget => {
            let keys = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
            workloads::validate_status(object, &keys, None)
        }
        Kind::VolumeAttachment => misc::validate_volume_attachment_status(object),
        Kind::CertificateSigningRequest => csr::validate_status(object, old),
        _ => Vec::new(),
    }
}

/// An update of another subresource that takes the object itself: `approval` and `finalize`.
pub fn validate_subresource(resource: &Resource, subresource: &str, object: &Value, old: &Value) -> Vec<Cause> {
    match (kind(resource), subresource) {
        (Kind::CertificateSigningRequest, "approval") => csr::validate_approval(object, old),
        (Kind::Namespace, "finalize") => core::validate_finalize(object),
        _ => Vec::new(),
    }
}
