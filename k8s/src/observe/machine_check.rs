//! What does a MachineHealthCheck say?

use resus_core::facts::Version;
use resus_core::mhc::facts::{CLUSTER_LABEL, Dialect, Flavour, MachineCheck, MachineCheckStatus, Posted, Style, Ties};
use serde::Deserialize;
use serde_json::Value;

use super::boards::{self, List};
use super::machines::place;
use super::{Meta, machine_policy};
use crate::names;

pub fn machine_check(json: &[u8], dialect: Dialect) -> serde_json::Result<MachineCheck> {
    #[derive(Deserialize)]
    struct View {
        metadata: Meta,
        #[serde(default)]
        spec: Value,
        #[serde(default)]
        status: Value,
    }
    let View { metadata, spec, status } = serde_json::from_slice(json)?;
    let cluster = spec.get("clusterName").and_then(Value::as_str).filter(|_| dialect.flavour() == Flavour::ClusterApi);
    Ok(MachineCheck {
        place: place(&metadata, dialect),
        dialect,
        version: Version(metadata.resource_version.as_str().into()),
        generation: metadata.generation,
        created_at: metadata.created_at(),
        deleting: metadata.deletion_timestamp.is_some(),
        take_over: metadata.annotation(names::TAKE_OVER) == Some("true"),
        paused: metadata.annotation(names::PAUSED).is_some(),
        cluster: cluster.map(Into::into),
        ties: ties(&metadata, cluster),
        policy: machine_policy::read(&spec, &metadata, dialect),
        // A status that somebody mangled is not ours any more: it is written anew.
        status: read_status(&status, dialect).unwrap_or_default(),
        uid: metadata.uid.into(),
    })
}

fn ties(metadata: &Meta, cluster: Option<&str>) -> Ties {
    let labels = metadata.labels.iter().flatten().find(|(key, _)| *key == CLUSTER_LABEL);
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().zip(0..).find(|(owner, _)| owner.is_cluster(cluster));
    Ties {
        has_labels: metadata.labels.is_some(),
        label: labels.map(|(_, value)| value.as_str().into()),
        has_owners: metadata.owner_references.is_some(),
        owner: owner.map(|(owner, at)| (at, owner.uid.clone())),
    }
}

fn read_status(status: &Value, dialect: Dialect) -> serde_json::Result<MachineCheckStatus> {
    let StatusView { expected_machines, current_healthy, remediations_allowed, observed_generation, targets } =
        Option::deserialize(status)?.unwrap_or_default();
    let (mut new, mut legacy) = (Vec::new(), Vec::new());
    for List { style, posts, .. } in boards::lists(status, dialect)? {
        // The status as a whole is ours.
        let posted: Vec<(Box<str>, Posted)> = posts.iter().map(|post| (post.kind.clone(), post.posted(true))).collect();
        match style {
            Style::New => new = posted,
            Style::Legacy => legacy = posted,
        }
    }
    Ok(MachineCheckStatus {
        expected: expected_machines,
        healthy: current_healthy,
        remediations_allowed,
        observed_generation,
        targets: targets.unwrap_or_default().into_iter().map(Into::into).collect(),
        new,
        legacy,
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    expected_machines: Option<u32>,
    current_healthy: Option<u32>,
    remediations_allowed: Option<u32>,
    observed_generation: Option<i64>,
    targets: Option<Vec<Box<str>>>,
}
