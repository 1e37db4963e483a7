//! What do the objects of others tell of an upgrade?
//!
//! Read with tolerance: a field of another shape says nothing. Only a lock that cannot be read counts as held, since
//! whoever wrote it wanted something to stop.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resus_core::facts::{Name, Signal, SignalFact};
use resus_core::input::Fact;
use resus_core::text::is_name;
use serde::Deserialize;
use serde_json::Value;

use crate::observe::{Names, wall};

/// kured keeps its lock on its own DaemonSet.
pub const KURED_LOCK: &str = "weave.works/kured-node-lock";
pub const KURED_NAME: &str = "kured";

/// Nodes that are named in one sentence.
const NAMED_MAX: usize = 3;
/// Nodes of one sign that are kept one by one: more than anybody upgrades at once.
const NODES_MAX: usize = 100;

pub fn signal(json: &[u8], signal: Signal) -> serde_json::Result<Fact> {
    #[derive(Deserialize)]
    struct View {
        metadata: Meta,
        #[serde(default)]
        status: Value,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(flatten)]
        names: Names,
        #[serde(default)]
        annotations: Value,
    }
    let View { metadata: Meta { names, annotations }, status } = serde_json::from_slice(json)?;
    let Names { name, namespace, .. } = names;
    let says = match signal {
        Signal::ClusterVersions => cluster_version(&status),
        Signal::Kured => annotations.get(KURED_LOCK).map_or(SignalFact::Quiet, kured_lock),
        Signal::Plans => plan(&name, namespace.as_deref(), &status),
    };
    Ok(Fact::Signal { signal, name: full_name(&name, namespace.as_deref()), says })
}

/// As [`crate::feed`] names what is gone or unreadable.
pub fn full_name(name: &str, namespace: Option<&str>) -> Name {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    }
}

fn cluster_version(status: &Value) -> SignalFact {
    if condition(status, "Progressing") != Some("True") {
        return SignalFact::Quiet;
    }
    let version = status.get("desired").and_then(|desired| desired.get("version")).and_then(Value::as_str);
    match version.filter(|version| !version.is_empty()) {
        Some(version) => busy(format!("OpenShift moves to {version}")),
        None => busy("OpenShift moves to another version".to_owned()),
    }
}

/// One lock, or several where kured may reboot as many nodes at once. One without an end holds until it is released.
fn kured_lock(annotation: &Value) -> SignalFact {
    #[derive(Deserialize)]
    struct Lock {
        #[serde(rename = "nodeID")]
        node: String,
        created: Option<Time>,
        /// In nanoseconds; nothing or 0: for ever.
        #[serde(default, rename = "TTL")]
        lasts_for: i64,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Locks {
        Several { locks: Vec<Lock> },
        One(Lock),
    }
    let locks = match annotation.as_str().map(serde_json::from_str) {
        Some(Ok(Locks::One(lock))) => vec![lock],
        Some(Ok(Locks::Several { locks })) => locks,
        Some(Err(_)) | None => return busy("kured has a lock that cannot be read".to_owned()),
    };
    let lasts = |lock: &Lock| match (&lock.created, u64::try_from(lock.lasts_for)) {
        (Some(created), Ok(nanos @ 1..)) => Some((wall(created.0), Duration::from_nanos(nanos))),
        _ => None,
    };
    let names: Vec<&str> = locks.iter().map(|lock| &*lock.node).collect();
    if names.is_empty() {
        return SignalFact::Quiet;
    }
    let all: Option<Vec<_>> = locks.iter().map(lasts).collect();
    let last = all.and_then(|all| all.into_iter().max_by_key(|(since, lasts_for)| since.after(*lasts_for)));
    SignalFact::Busy { what: format!("kured's lock is held by {}", some_of(&names)).into(), lasts: last, nodes: nodes(&names) }
}

fn plan(name: &str, namespace: Option<&str>, status: &Value) -> SignalFact {
    let applying = status.get("applying").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if applying.is_empty() || condition(status, "Complete") == Some("True") {
        return SignalFact::Quiet;
    }
    let names: Vec<&str> = applying.iter().map(|node| node.as_str().unwrap_or("?")).collect();
    let what = format!("the Plan {} is applied to {}", full_name(name, namespace), some_of(&names));
    SignalFact::Busy { what: what.into(), lasts: None, nodes: nodes(&names) }
}

/// None where not all of them can be nodes: what is not understood is a sign as long as it stands.
fn nodes(names: &[&str]) -> Box<[Name]> {
    match names.len() <= NODES_MAX && names.iter().all(|name| is_name(name)) {
        true => names.iter().map(|name| Name::from(*name)).collect(),
        false => [].into(),
    }
}

fn some_of(names: &[&str]) -> String {
    match names.split_at_checked(NAMED_MAX) {
        Some((named, more @ [_, ..])) => format!("{} and {} more", named.join(", "), more.len()),
        Some(_) | None => names.join(", "),
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").is_some_and(|own| own == kind))?.get("status")?.as_str()
}

fn busy(what: String) -> SignalFact {
    SignalFact::Busy { what: what.into(), lasts: None, nodes: [].into() }
}
