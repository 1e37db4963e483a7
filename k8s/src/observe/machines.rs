//! What does a Machine say, and the Cluster that it belongs to?
//!
//! A status that cannot be read fails the whole object: a Machine whose node is garbled must not pass for one that has
//! none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resus_core::facts::{ProviderId, Version};
use resus_core::input::Fact;
use resus_core::mhc::facts::{Access, Cluster, ClusterKey, Dialect, Flavour, Machine, Marks, Place};
use resus_core::text::{NAME_MAX, Plain, is_name};
use resus_core::time::Wall;
use serde::Deserialize;
use serde_json::Value;

use super::boards::{self, Post};
use super::{Meta, NameOnly, Names, invalid, wall};
use crate::names;

pub fn machine(json: &[u8], dialect: Dialect) -> serde_json::Result<Machine> {
    #[derive(Deserialize)]
    struct View {
        metadata: Meta,
        spec: Option<SpecView>,
        #[serde(default)]
        status: Value,
    }
    let View { metadata, spec, status } = serde_json::from_slice(json)?;
    let lists = boards::lists(&status, dialect)?;
    let managed = if boards::has_signs(&lists) { managed_fields(json)? } else { Value::Null };
    let StatusView { node_ref, phase, last_updated } = Option::deserialize(&status)?.unwrap_or_default();
    let is_openshift = dialect.flavour() == Flavour::OpenShift;
    let node = node_ref.and_then(|node| node.name).filter(|name| !name.is_empty());
    Ok(Machine {
        dialect,
        version: Version(metadata.resource_version.as_str().into()),
        generation: metadata.generation,
        created_at: metadata.created_at(),
        deleting: metadata.deletion_timestamp.is_some(),
        marks: marks(&metadata),
        has_controller: metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true)),
        provider_id: spec.as_ref().and_then(|spec| ProviderId::new(spec.provider_id.as_deref()?)),
        parts: spec.map_or_else(Box::default, |spec| spec.parts(&metadata.name)),
        // Of what is none, no more is kept than is needed to see that.
        node: node.map(|name| if is_name(&name) { name.into() } else { Plain(&name).to_string().into() }),
        failed: is_openshift && phase.as_deref() == Some("Failed"),
        updated_at: last_updated.filter(|_| is_openshift).map(|time| wall(time.0)).filter(|at| at.0 >= 0),
        conditions: boards::newest(&lists, dialect).iter().map(Post::condition).collect(),
        boards: boards::boards(&lists, &managed),
        place: place(&metadata, dialect),
        labels: metadata.labels.unwrap_or_default().into_iter().collect(),
        uid: metadata.uid.into(),
    })
}

/// Of a Machine of OpenShift that a Node names: its uid, and which Node it names itself.
pub fn machine_of_node(json: &[u8]) -> serde_json::Result<Fact> {
    #[derive(Deserialize)]
    struct View {
        metadata: Names,
        status: Option<StatusView>,
    }
    let View { metadata, status } = serde_json::from_slice(json)?;
    let node = status.and_then(|status| status.node_ref?.name).filter(|name| is_name(name));
    Ok(Fact::MachineOfNode { uid: metadata.uid.into(), node: node.map(Into::into) })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    node_ref: Option<NodeRef>,
    phase: Option<Box<str>>,
    last_updated: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecView {
    #[serde(rename = "providerID")]
    provider_id: Option<Box<str>>,
    infrastructure_ref: Option<PartView>,
    bootstrap: Option<Bootstrap>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bootstrap {
    config_ref: Option<PartView>,
}

/// With a group since v1beta2, with a group and version before.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartView {
    api_group: Option<Box<str>>,
    api_version: Option<Box<str>>,
    kind: Option<Box<str>>,
    name: Option<Box<str>>,
}

impl SpecView {
    fn parts(self, machine: &str) -> Box<[(Box<str>, Box<str>)]> {
        let all = [self.infrastructure_ref, self.bootstrap.and_then(|bootstrap| bootstrap.config_ref)].into_iter().flatten();
        let part = |part: PartView| {
            let group = || part.api_version.as_deref().and_then(|version| version.split_once('/')).map(|(group, _)| group.into());
            let is_named_alike = part.name.as_deref() == Some(machine);
            is_named_alike.then(|| (part.api_group.clone().or_else(group).unwrap_or_default(), part.kind.unwrap_or_default()))
        };
        all.filter_map(part).collect()
    }
}

#[derive(Deserialize)]
struct NodeRef {
    name: Option<Box<str>>,
}

pub(super) fn place(metadata: &Meta, dialect: Dialect) -> Place {
    let namespace = metadata.namespace.as_deref().unwrap_or_default().into();
    Place { flavour: dialect.flavour(), namespace, name: metadata.name.as_str().into() }
}

fn marks(metadata: &Meta) -> Marks {
    let has = |key: &str| metadata.annotation(key).is_some();
    Marks {
        paused: has(names::PAUSED),
        skipped: has(names::SKIP_REMEDIATION),
        remediate: has(names::REMEDIATE_MACHINE),
        power_cycle: has(names::POWER_CYCLE),
        power_cycling: names::POWER_CYCLING.into_iter().any(has),
    }
}

fn managed_fields(json: &[u8]) -> serde_json::Result<Value> {
    #[derive(Deserialize)]
    struct View {
        metadata: Managed,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Managed {
        #[serde(default)]
        managed_fields: Value,
    }
    serde_json::from_slice::<View>(json).map(|view| view.metadata.managed_fields)
}

pub fn cluster(json: &[u8], dialect: Dialect) -> serde_json::Result<Cluster> {
    #[derive(Deserialize)]
    struct View {
        metadata: Meta,
        spec: Option<SpecView>,
        #[serde(default)]
        status: Value,
    }
    #[derive(Deserialize)]
    struct SpecView {
        paused: Option<bool>,
    }
    let View { metadata, spec, status } = serde_json::from_slice(json)?;
    let created_at = metadata.created_at();
    let Place { namespace, name, .. } = place(&metadata, dialect);
    Ok(Cluster {
        key: ClusterKey { namespace, name },
        identity: metadata.annotation(names::CLUSTER_UID).filter(|uid| (1..=NAME_MAX).contains(&uid.len())).map(Into::into),
        uid: metadata.uid.as_str().into(),
        paused: spec.and_then(|spec| spec.paused).unwrap_or(false),
        control_plane_initialized_at: gate(&status, dialect, ("ControlPlaneInitialized", "controlPlaneInitialized"), created_at)?,
        infrastructure_ready_at: gate(&status, dialect, ("InfrastructureReady", "infrastructureReady"), created_at)?,
    })
}

/// Since when it is open. It is named by a condition and, where the version has that, by a flag, which has no date.
fn gate(status: &Value, dialect: Dialect, (kind, flag): (&str, &str), created_at: Wall) -> serde_json::Result<Option<Wall>> {
    let lists = boards::lists(status, dialect)?;
    let condition = boards::newest(&lists, dialect).iter().find(|post| &*post.kind == kind && &*post.status == "True");
    let since = condition.map(|post| post.since().unwrap_or(created_at));
    Ok(match dialect {
        Dialect::V1beta1 | Dialect::V1beta2 => since,
        Dialect::V1alpha3 => {
            let is_open = status.get(flag).and_then(Value::as_bool).unwrap_or(false);
            is_open.then(|| since.unwrap_or(created_at))
        }
        Dialect::OpenShift => None,
    })
}

/// The Secret with the kubeconfig of a Cluster. Nothing of what it holds may be in a refusal.
pub fn access(json: &[u8]) -> serde_json::Result<Fact> {
    #[derive(Deserialize)]
    struct View {
        #[serde(default)]
        data: Value,
    }
    let NameOnly { metadata } = serde_json::from_slice(json)?;
    let (suffix, key) = names::KUBECONFIG;
    let Some(name) = metadata.name.strip_suffix(suffix) else {
        return Err(serde::de::Error::custom(format!("the name of a kubeconfig Secret ends with {suffix}")));
    };
    let cluster = ClusterKey { namespace: metadata.namespace.as_deref().unwrap_or_default().into(), name: name.into() };
    let View { data } = serde_json::from_slice(json)?;
    let encoded = data.get(key).and_then(Value::as_str).filter(|value| !value.is_empty());
    let access = kubeconfig(encoded).map_err(|why| {
        invalid(format!("Secret {} {why}: write the kubeconfig of the Cluster under the key {key}", metadata.full_name()))
    });
    Ok(Fact::Access { cluster, access })
}

fn kubeconfig(encoded: Option<&str>) -> Result<Access, String> {
    let encoded = encoded.ok_or_else(|| format!("has no key {}", names::KUBECONFIG.1))?;
    let bytes = STANDARD.decode(encoded).map_err(|_| "does not hold base64".to_owned())?;
    let text = String::from_utf8(bytes).map_err(|_| "does not hold text in UTF-8".to_owned())?;
    Ok(Access(text.into()))
}
