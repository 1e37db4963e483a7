//! What does this object say?
//!
//! Objects are decoded straight into the few facts that decisions need; the rest of an 11 KB Node is
//! skipped while it is read. What cannot be decoded is an error with a sentence, for this object alone.

mod boards;
mod fields;
mod machine_check;
mod machine_policy;
mod machines;
mod policy;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resus_core::escalate::TEMPLATE_SUFFIX;
use resus_core::etcd::EtcdPod;
use resus_core::facts::{
    Body, Budget, Check, Condition, Guard, Invalid, Kind, Name, Node, NodeLease, Object, ObjectKey, OwnNamespace, OwnerRef,
    ProviderId, READY, Rival, RivalLease, Taint, Version,
};
use resus_core::input::Fact;
use resus_core::mhc::facts::{CLUSTER_KIND, Flavour};
use resus_core::nhc::{CheckStatus, Remediation, StatusCondition, UnhealthyNode};
use resus_core::repeat::Recent;
use resus_core::text::{NAME_MAX, Plain, is_name};
use resus_core::time::Wall;
use resus_core::upgrade::Detectors;
use serde::de::{Deserializer, IgnoredAny, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::machine_check::machine_check;
pub use self::machines::{access, cluster, machine, machine_of_node};
use crate::crd::nhc::NodeHealthCheckStatus;
use crate::{limits, names};

/// Which annotations of Nodes are kept beside [`names::NODE_ANNOTATIONS`]: those that the admin says mean maintenance.
#[derive(Clone, Debug, Default)]
pub struct Keep(Vec<Box<str>>);

impl Keep {
    pub fn of(detectors: &Detectors) -> Keep {
        Keep(detectors.annotations.iter().map(|mark| mark.key.clone()).collect())
    }

    fn keeps(&self, key: &str) -> bool {
        names::NODE_ANNOTATIONS.contains(&key) || self.0.iter().any(|own| **own == *key)
    }
}

pub fn node(json: &[u8], keep: &Keep) -> serde_json::Result<Node> {
    serde_json::from_slice::<NodeView>(json)?.into_facts(keep)
}

/// The node in a line of a watch that says that it was added or modified; None for every other line.
pub fn changed_node(line: &[u8], keep: &Keep) -> Option<Node> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        object: NodeView<'a>,
    }
    let event: Event = serde_json::from_slice(line).ok()?;
    matches!(event.kind, "ADDED" | "MODIFIED").then(|| event.object.into_facts(keep).ok())?
}

pub fn check(json: &[u8]) -> serde_json::Result<Check> {
    serde_json::from_slice::<CheckView>(json).map(CheckView::into_facts)
}

/// Kinds of providers may be served by a server of theirs. What has no uid could only be deleted by its name, which is another's
/// by then, perhaps.
pub fn object(json: &[u8], kind: &Kind) -> serde_json::Result<Object> {
    let view: ObjectView = serde_json::from_slice(json)?;
    match view.metadata.uid.is_empty() {
        true => Err(serde::de::Error::custom("it has no uid")),
        false => Ok(view.into_facts(kind)),
    }
}

pub fn definition(json: &[u8]) -> serde_json::Result<Fact> {
    serde_json::from_slice::<MetaOnly>(json)
        .map(|MetaOnly { metadata }| Fact::Definition { ours: metadata.is_labelled_ours(), name: metadata.name.into() })
}

/// Our own namespace: whether everything is paused, whatever the annotation says.
pub fn own_namespace(json: &[u8]) -> serde_json::Result<OwnNamespace> {
    #[derive(Deserialize)]
    struct View {
        metadata: Named,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        #[serde(flatten)]
        names: Names,
        #[serde(default)]
        resource_version: String,
        #[serde(default)]
        annotations: Value,
    }
    let View { metadata: Named { names, resource_version, annotations } } = serde_json::from_slice(json)?;
    let reason = |value: &Value| Plain(value.as_str().unwrap_or_default()).to_string().into();
    Ok(OwnNamespace {
        name: names.name.into(),
        uid: names.uid.into(),
        version: Version(resource_version.into()),
        pause: annotations.get(names::PAUSE).map(reason),
    })
}

/// A Lease on a node.
pub fn node_lease(json: &[u8]) -> serde_json::Result<NodeLease> {
    let lease: Lease = serde_json::from_slice(json)?;
    let (metadata, spec) = (lease.metadata, lease.spec.unwrap_or_default());
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Ok(NodeLease {
        name: metadata.name.unwrap_or_default().into(),
        uid: metadata.uid.unwrap_or_default().into(),
        version: Version(metadata.resource_version.unwrap_or_default().into()),
        holder: spec.holder_identity.unwrap_or_default().into(),
        acquired_at: spec.acquire_time.map_or(Wall(0), |time| wall(time.0)),
        renewed_at: spec.renew_time.map_or(Wall(0), |time| wall(time.0)),
        lasts_for: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
    })
}

/// The Lease of somebody else's leader.
pub fn rival(json: &[u8], rival: Rival) -> serde_json::Result<Fact> {
    let NameOnly { metadata } = serde_json::from_slice(json)?;
    let NodeLease { holder, renewed_at, lasts_for, .. } = node_lease(json)?;
    Ok(Fact::Rival { rival, name: metadata.full_name(), lease: RivalLease { holder, renewed_at, lasts_for } })
}

/// A budget whose selector cannot be read is one that nobody can keep.
pub fn budget(json: &[u8]) -> serde_json::Result<Fact> {
    let NameOnly { metadata } = serde_json::from_slice(json)?;
    let budget: PodDisruptionBudget = serde_json::from_slice(json)?;
    let selector = budget.spec.and_then(|spec| spec.selector).unwrap_or_default();
    let selector = fields::requirements(selector).map_err(|invalid| serde::de::Error::custom(&invalid.0))?;
    let allowed = budget.status.map_or(0, |status| status.disruptions_allowed);
    let budget = Budget { selector, disruptions_allowed: u32::try_from(allowed).unwrap_or(0) };
    Ok(Fact::Budget { name: metadata.full_name(), budget })
}

pub fn guard(json: &[u8]) -> serde_json::Result<Fact> {
    let NameOnly { metadata } = serde_json::from_slice(json)?;
    let pod: Pod = serde_json::from_slice(json)?;
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == READY);
    let guard = Guard {
        node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default().into(),
        labels: pod.metadata.labels.unwrap_or_default().into_iter().collect(),
        ready: ready.map(|condition| condition.status.as_str().into()),
    };
    Ok(Fact::Guard { pod: metadata.full_name(), guard })
}

/// The name of a Pod of etcd, and what the kubelet shows of it. Others can write such Pods too, but not static ones.
pub fn etcd(json: &[u8]) -> serde_json::Result<(Name, Option<EtcdPod>)> {
    /// Of a Pod that anybody may have written no more is read than is kept.
    #[derive(Deserialize)]
    struct View<'a> {
        #[serde(borrow)]
        metadata: Marks<'a>,
        #[serde(default)]
        spec: Option<Spec>,
        #[serde(default)]
        status: Option<Status>,
    }
    #[derive(Deserialize)]
    struct Marks<'a> {
        #[serde(borrow, default)]
        annotations: Option<RawAnnotations<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: Option<String>,
    }
    #[derive(Deserialize)]
    struct Status {
        conditions: Option<AtMost<ConditionView, { limits::CONDITIONS_MAX }>>,
    }
    let NameOnly { metadata } = serde_json::from_slice(json)?;
    let pod: View = serde_json::from_slice(json)?;
    let is_static = pod.metadata.annotations.is_some_and(|own| own.0.iter().any(|(key, _)| key == names::MIRROR_ANNOTATION));
    let node = pod.spec.and_then(|spec| spec.node_name).filter(|node| is_static && is_name(node));
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.items.iter().any(|own| &*own.kind == READY && own.status == "True");
    Ok((metadata.full_name(), node.map(|node| EtcdPod { node: node.into(), ready })))
}

#[derive(Deserialize)]
struct MetaOnly {
    metadata: Meta,
}

/// The least that can be said of an object.
#[derive(Deserialize)]
pub struct NameOnly {
    pub metadata: Names,
}

#[derive(Deserialize)]
pub struct Names {
    #[serde(deserialize_with = "named")]
    pub name: String,
    #[serde(default, deserialize_with = "named_if_any")]
    pub namespace: Option<String>,
    #[serde(default, deserialize_with = "opaque")]
    pub uid: String,
}

impl Names {
    pub fn full_name(&self) -> Name {
        full_name(&self.name, self.namespace.as_deref())
    }
}

fn full_name(name: &str, namespace: Option<&str>) -> Name {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    }
}

/// Of an object of which nothing else can be read.
pub fn name(json: &[u8]) -> serde_json::Result<Name> {
    #[derive(Deserialize)]
    struct View {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(deserialize_with = "named")]
        name: String,
        #[serde(default, deserialize_with = "named_if_any")]
        namespace: Option<String>,
    }
    let View { metadata } = serde_json::from_slice(json)?;
    Ok(full_name(&metadata.name, metadata.namespace.as_deref()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(deserialize_with = "named")]
    name: String,
    #[serde(default, deserialize_with = "named_if_any")]
    namespace: Option<String>,
    #[serde(default, deserialize_with = "opaque")]
    uid: String,
    #[serde(default, deserialize_with = "opaque")]
    resource_version: String,
    #[serde(default)]
    generation: i64,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "asked_for")]
    annotations: Vec<(Box<str>, Box<str>)>,
    #[serde(default)]
    finalizers: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    owner_references: Option<Vec<OwnerView>>,
}

impl Meta {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(own, _)| &**own == key).map(|(_, value)| &**value)
    }

    fn is_labelled_ours(&self) -> bool {
        let value = self.labels.as_ref().and_then(|labels| labels.get(names::MANAGED_BY_LABEL));
        value.is_some_and(|value| value == names::MANAGER)
    }

    fn created_at(&self) -> Wall {
        self.creation_timestamp.as_ref().map_or(Wall(0), |time| wall(time.0))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerView {
    #[serde(deserialize_with = "opaque")]
    uid: Box<str>,
    controller: Option<bool>,
    #[serde(default)]
    api_version: Box<str>,
    #[serde(default)]
    kind: Box<str>,
    #[serde(default)]
    name: Box<str>,
}

impl OwnerView {
    /// Of this name, in whichever version.
    fn is_cluster(&self, name: Option<&str>) -> bool {
        self.is(Flavour::ClusterApi.group(), CLUSTER_KIND) && name == Some(&*self.name)
    }

    fn is(&self, group: &str, kind: &str) -> bool {
        self.api_version.split_once('/').is_some_and(|(own, _)| own == group) && *self.kind == *kind
    }

    fn into_facts(self) -> OwnerRef {
        let is_check = self.is(names::CHECK_GROUP, names::CHECK_KIND);
        OwnerRef { uid: self.uid, controls: self.controller == Some(true), is_check }
    }
}

#[derive(Deserialize)]
struct NodeView<'a> {
    #[serde(borrow)]
    metadata: NodeMeta<'a>,
    #[serde(default)]
    spec: NodeSpecView,
    #[serde(default)]
    status: NodeStatusView,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMeta<'a> {
    #[serde(deserialize_with = "named")]
    name: Box<str>,
    #[serde(default, deserialize_with = "opaque")]
    uid: Box<str>,
    #[serde(default, deserialize_with = "opaque")]
    resource_version: Box<str>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    labels: Option<AtMostLabels>,
    #[serde(borrow, default)]
    annotations: Option<RawAnnotations<'a>>,
}

#[derive(Default, Deserialize)]
struct NodeSpecView {
    #[serde(default)]
    unschedulable: bool,
    #[serde(default, rename = "providerID")]
    provider_id: Option<Box<str>>,
    #[serde(default)]
    taints: Option<AtMost<TaintView, { limits::TAINTS_MAX }>>,
}

#[derive(Deserialize)]
struct TaintView {
    key: Box<str>,
    #[serde(default)]
    value: Box<str>,
    effect: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatusView {
    #[serde(default)]
    conditions: Option<AtMost<ConditionView, { limits::CONDITIONS_MAX }>>,
    #[serde(default)]
    node_info: NodeInfoView,
}

#[derive(Default, Deserialize)]
struct NodeInfoView {
    #[serde(default, rename = "bootID")]
    boot_id: Box<str>,
    #[serde(default, rename = "kubeletVersion")]
    kubelet_version: Box<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionView {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: String,
    last_transition_time: Option<Time>,
    last_heartbeat_time: Option<Time>,
    #[serde(default)]
    reason: Option<Box<str>>,
}

impl ConditionView {
    fn reported_at(&self) -> Wall {
        dated(self.last_heartbeat_time.as_ref().map(|time| time.0))
    }

    fn into_facts(self) -> Condition {
        // A condition without a date counts from when it is first seen: the future is cut off at now.
        let since = dated(self.last_transition_time.map(|time| time.0));
        Condition { kind: self.kind, status: self.status.as_str().into(), since, reason: self.reason.unwrap_or_default() }
    }
}

impl NodeView<'_> {
    fn into_facts(self, keep: &Keep) -> serde_json::Result<Node> {
        let NodeView { metadata, spec, status } = self;
        let annotations = metadata.annotations.map_or_else(|| Ok(Vec::new()), |all| all.kept(keep))?;
        let taints = spec.taints.unwrap_or_default().all("taints")?.into_iter();
        let conditions = status.conditions.unwrap_or_default().all("conditions")?;
        let node = Node {
            created_at: metadata.creation_timestamp.map_or(Wall(0), |time| wall(time.0)),
            name: metadata.name.into(),
            uid: metadata.uid,
            version: Version(metadata.resource_version),
            labels: metadata.labels.unwrap_or_default().0.all("labels")?.into_iter().collect(),
            annotations: annotations.into(),
            reported_at: conditions.iter().map(ConditionView::reported_at).collect(),
            conditions: conditions.into_iter().map(ConditionView::into_facts).collect(),
            taints: taints.map(|TaintView { key, value, effect }| Taint { key, value, effect }).collect(),
            boot_id: status.node_info.boot_id,
            kubelet_version: status.node_info.kubelet_version,
            provider_id: spec.provider_id.as_deref().and_then(ProviderId::new),
            unschedulable: spec.unschedulable,
            deleting: metadata.deletion_timestamp.is_some(),
        };
        match node.weight() > limits::NODE_KEPT_MAX {
            true => Err(serde::de::Error::custom(format!("it says more than {} bytes", limits::NODE_KEPT_MAX))),
            false => Ok(node),
        }
    }
}

/// The first of a list; whatever is behind them takes no memory.
pub struct AtMost<T, const MAX: usize> {
    pub items: Vec<T>,
    pub more: bool,
}

impl<T, const MAX: usize> Default for AtMost<T, MAX> {
    fn default() -> AtMost<T, MAX> {
        AtMost { items: Vec::new(), more: false }
    }
}

impl<T, const MAX: usize> AtMost<T, MAX> {
    fn all(self, what: &str) -> serde_json::Result<Vec<T>> {
        match self.more {
            true => Err(serde::de::Error::custom(format!("it has more than {MAX} {what}"))),
            false => Ok(self.items),
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AtMost<T, MAX>, D::Error> {
        struct List<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
            type Value = AtMost<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AtMost<T, MAX>, A::Error> {
                let mut found = AtMost::default();
                while found.items.len() < MAX {
                    match list.next_element()? {
                        Some(item) => found.items.push(item),
                        None => return Ok(found),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    found.more = true;
                }
                Ok(found)
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

#[derive(Default)]
struct AtMostLabels(AtMost<(Box<str>, Box<str>), { limits::LABELS_MAX }>);

impl<'de> Deserialize<'de> for AtMostLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AtMostLabels, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = AtMostLabels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AtMostLabels, A::Error> {
                let mut found = AtMost::default();
                while found.items.len() < limits::LABELS_MAX {
                    match map.next_entry()? {
                        Some(label) => found.items.push(label),
                        None => return Ok(AtMostLabels(found)),
                    }
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    found.more = true;
                }
                Ok(AtMostLabels(found))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

/// The annotations of a Node where they stand in its JSON: which ones are wanted is known only later, and to copy all
/// would cost each heartbeat.
struct RawAnnotations<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl RawAnnotations<'_> {
    fn kept(self, keep: &Keep) -> serde_json::Result<Vec<(Box<str>, Box<str>)>> {
        let kept = self.0.into_iter().filter(|(key, _)| keep.keeps(key));
        let mut kept: Vec<(Box<str>, Box<str>)> =
            kept.map(|(key, raw)| Ok((key.into(), cut(serde_json::from_str(raw.get())?)))).collect::<serde_json::Result<_>>()?;
        kept.sort_unstable();
        Ok(kept)
    }
}

fn cut(text: Box<str>) -> Box<str> {
    match text.len() > limits::ANNOTATION_KEPT_MAX {
        true => text[..text.floor_char_boundary(limits::ANNOTATION_KEPT_MAX)].into(),
        false => text,
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawAnnotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawAnnotations<'a>, D::Error> {
        /// Borrowed unless the JSON escapes something in it.
        #[derive(Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
        struct Raw;
        impl<'de> Visitor<'de> for Raw {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    if all.len() >= limits::ANNOTATIONS_MAX {
                        return Err(serde::de::Error::custom(format!(
                            "it has more than {} annotations",
                            limits::ANNOTATIONS_MAX
                        )));
                    }
                    all.push((key, value));
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(Raw).map(RawAnnotations)
    }
}

/// The spec is read a second time, on its own, so that a spec of the wrong shape is a status, not a silence.
#[derive(Deserialize)]
struct CheckView {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl CheckView {
    fn into_facts(self) -> Check {
        let CheckView { metadata, spec, status } = self;
        let policy = policy::read(&spec, &metadata);
        // A status that somebody mangled is not ours any more: it is written anew.
        let status = serde_json::from_value(status).map(check_status).unwrap_or_default();
        Check {
            created_at: metadata.created_at(),
            take_over: metadata.annotation(names::TAKE_OVER) == Some("true"),
            is_default: metadata.name == names::DEFAULT_CHECK && metadata.is_labelled_ours(),
            name: metadata.name.into(),
            uid: metadata.uid.into(),
            version: Version(metadata.resource_version.into()),
            deleting: metadata.deletion_timestamp.is_some(),
            policy,
            status,
        }
    }
}

fn check_status(status: NodeHealthCheckStatus) -> CheckStatus {
    let condition = |condition: k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| StatusCondition {
        kind: condition.type_.into(),
        status: condition.status.as_str().into(),
        reason: condition.reason.into(),
        message: condition.message.into(),
        since: wall(condition.last_transition_time.0),
    };
    CheckStatus {
        observed: status.observed_nodes,
        healthy: status.healthy_nodes,
        // Whoever may write the status may write anything as a name.
        unhealthy: status.unhealthy_nodes.into_iter().filter(|node| is_name(&node.name)).map(unhealthy_node).collect(),
        conditions: status.conditions.into_iter().map(condition).collect(),
        recent: status.recent_remediations.into_iter().filter(|recent| is_name(&recent.name)).map(recent).collect(),
        phase: status.phase.into(),
        reason: status.reason.into(),
    }
}

fn recent(recent: crate::crd::nhc::RecentRemediation) -> Recent {
    Recent { node: recent.name.into(), started_at: recent.started.into_iter().map(|time| wall(time.0)).collect() }
}

fn unhealthy_node(node: crate::crd::nhc::UnhealthyNode) -> UnhealthyNode {
    let remediation = |remediation: crate::crd::nhc::Remediation| {
        let resource = remediation.resource;
        let kind =
            Kind { api_version: resource.api_version.unwrap_or_default().into(), kind: resource.kind.unwrap_or_default().into() };
        Remediation {
            key: ObjectKey {
                kind,
                namespace: resource.namespace.map(Into::into),
                name: resource.name.unwrap_or_default().into(),
            },
            uid: resource.uid.unwrap_or_default().into(),
            started_at: remediation.started.map_or(Wall(0), |time| wall(time.0)),
            template: remediation.template_name.map(Into::into),
            timed_out_at: remediation.timed_out.map(|time| wall(time.0)),
        }
    };
    UnhealthyNode {
        name: node.name.into(),
        // Anybody who may write the status may write anything there; no address is made of it.
        remediations: node.remediations.into_iter().map(remediation).filter(|own| own.key.is_plausible()).collect(),
        healthy_since: node.conditions_healthy_timestamp.map(|time| wall(time.0)),
        healthy_delayed: node.healthy_delayed,
        held: node.held.map(Into::into),
    }
}

#[derive(Deserialize)]
struct ObjectView {
    metadata: Meta,
    #[serde(default)]
    spec: Option<Value>,
    #[serde(default)]
    status: Option<Value>,
}

impl ObjectView {
    fn into_facts(self, kind: &Kind) -> Object {
        let ObjectView { metadata, spec, status } = self;
        let name: Name = metadata.name.as_str().into();
        Object {
            uid: metadata.uid.as_str().into(),
            version: Version(metadata.resource_version.as_str().into()),
            created_at: metadata.created_at(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.as_ref().map_or(0, |all| u32::try_from(all.len()).unwrap_or(u32::MAX)),
            // Whoever may write on it may write anything there, which would stand in the status of its check.
            node: metadata.annotation(names::NODE_NAME).filter(|node| is_name(node)).map_or_else(|| name.clone(), Into::into),
            template: metadata.annotation(names::TEMPLATE_NAME).filter(|template| is_name(template)).map(Into::into),
            allows_several: metadata.annotation(names::MULTIPLE_TEMPLATES).is_some(),
            machine_check: metadata.annotation(names::MACHINE_CHECK_UID).map(Into::into),
            control_plane: metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::CONTROL_PLANE_LABEL)),
            processing: condition(status.as_ref(), "Processing") == Some("True"),
            expects_node_to_go: condition(status.as_ref(), "PermanentNodeDeletionExpected") == Some("True"),
            succeeded: match condition(status.as_ref(), "Succeeded") {
                Some("True") => Some(true),
                Some("False") => Some(false),
                Some(_) | None => None,
            },
            timed_out: metadata.annotation(names::TIMED_OUT).is_some(),
            healthy_since: metadata.annotation(names::HEALTHY_DELAY).and_then(|text| text.parse().ok()).map(wall),
            flagged_old: metadata.annotation(names::OLD_FLAG.0).is_some(),
            body: kind.kind.ends_with(TEMPLATE_SUFFIX).then(|| body(spec.as_ref())),
            owners: metadata.owner_references.unwrap_or_default().into_iter().map(OwnerView::into_facts).collect(),
            key: ObjectKey { kind: kind.clone(), namespace: metadata.namespace.map(Into::into), name },
        }
    }
}

/// `spec.template`; with an empty spec where the template asks for nothing.
fn body(spec: Option<&Value>) -> Result<Body, Invalid> {
    let template = spec.and_then(|spec| spec.get("template")).filter(|template| !template.is_null());
    let Some(template) = template else { return Err(invalid("it has no spec.template".into())) };
    if !template.is_object() {
        return Err(invalid("its spec.template is not an object".into()));
    }
    let spec = match template.get("spec") {
        None | Some(Value::Null) => "{}".into(),
        Some(body @ Value::Object(_)) => body.to_string().into(),
        Some(_) => return Err(invalid("its spec.template.spec is not an object".into())),
    };
    let texts = |field: &str| {
        let given = template.get("metadata").and_then(|metadata| metadata.get(field)).unwrap_or(&Value::Null);
        let read = Option::<BTreeMap<Box<str>, Box<str>>>::deserialize(given);
        let refused = |_| invalid(format!("its spec.template.metadata.{field} is no map of texts: write each value in quotes"));
        read.map(|texts| texts.unwrap_or_default().into_iter().collect()).map_err(refused)
    };
    Ok(Body { spec, labels: texts("labels")?, annotations: texts("annotations")? })
}

/// The status of a condition.
fn condition<'a>(status: Option<&'a Value>, kind: &str) -> Option<&'a str> {
    let conditions = status?.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").is_some_and(|own| own == kind))?.get("status")?.as_str()
}

/// A name or namespace: what is none in Kubernetes fails its object, as it goes into addresses and sentences.
fn named<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    match is_name(&text) {
        true => Ok(text.into()),
        false => Err(serde::de::Error::custom(format!(
            "a name in its metadata is none: names have at most {NAME_MAX} lower-case letters, digits, dashes and dots"
        ))),
    }
}

/// Empty is as good as absent.
fn named_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty());
    text.map(|text| named(text.into_deserializer())).transpose()
}

/// A uid or a version, which may be any short text.
fn opaque<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.len() <= NAME_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.into()),
        false => Err(serde::de::Error::custom(format!(
            "a uid or version in its metadata is none: they have at most {NAME_MAX} characters of ASCII without spaces"
        ))),
    }
}

fn invalid(why: String) -> Invalid {
    Invalid(why.into())
}

pub fn wall(at: Timestamp) -> Wall {
    Wall(at.as_millisecond())
}

/// What nobody dates has just been, for all that is known. Nor does who writes Go's zero, of the year 1.
pub fn dated(at: Option<Timestamp>) -> Wall {
    at.map(wall).filter(|at| at.0 >= 0).unwrap_or(Wall(i64::MAX))
}

/// Out of range only beyond the year 9999.
pub fn timestamp(at: Wall) -> Timestamp {
    Timestamp::from_millisecond(at.0).unwrap_or(if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Annotations can be large (last-applied-configuration): what nobody asks for is not even copied.
fn asked_for<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Box<str>, Box<str>)>, D::Error> {
    struct Asked;
    impl<'de> Visitor<'de> for Asked {
        type Value = Vec<(Box<str>, Box<str>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut asked = Vec::new();
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                if names::ANNOTATIONS.contains(&&*key) {
                    asked.push((Box::from(&*key), map.next_value()?));
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            asked.sort_unstable();
            Ok(asked)
        }
    }
    deserializer.deserialize_any(Asked)
}

/// What a Status object of the API says; also the shape of errors in a watch.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ApiStatus {
    #[serde(default)]
    pub code: u16,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub details: Option<ApiStatusDetails>,
}

impl ApiStatus {
    /// Is it a namespace that is missing, and not what was to be in it?
    pub fn names_namespace(&self) -> bool {
        self.details.as_ref().is_some_and(|details| details.kind == "namespaces")
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiStatusDetails {
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub retry_after_seconds: u32,
}
