//! Who asked the API server for what, and what was the answer?

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use jiff::Timestamp;
use serde::Deserialize;

use crate::rights::Exercised;

/// One request as the server's audit log has it.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub user: String,
    /// As RBAC knows it: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// Path and query.
    pub uri: String,
    pub user_agent: String,
    /// When the server received the request.
    pub at: Timestamp,
    /// The status; 0 if the log has none.
    pub code: u16,
    /// Which right it needed; none where it was for no resource.
    pub(crate) exercised: Option<Exercised>,
}

/// Each request once. A watch is written down when it starts and again when it ends: the start counts.
pub(crate) fn parse(log: &str) -> anyhow::Result<Vec<AuditEntry>> {
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    // The server may be writing: what has no end of line is not yet an entry.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let event: Event = serde_json::from_str(line).with_context(|| format!("audit entry {line:?}"))?;
        if seen.insert(event.audit_id.clone()) {
            entries.push(event.into());
        }
    }
    Ok(entries)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    user: User,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user_agent: String,
    request_received_timestamp: String,
    response_status: Option<Status>,
    object_ref: Option<Object>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

/// Whether an authorizer let the request pass: allow or forbid.
const DECISION: &str = "authorization.k8s.io/decision";

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl From<Event> for AuditEntry {
    fn from(event: Event) -> AuditEntry {
        let allowed = event.annotations.get(DECISION).is_none_or(|decision| decision != "forbid");
        let exercised = event.object_ref.map(|object| Exercised {
            verb: event.verb.clone(),
            group: object.api_group,
            resource: match object.subresource.as_str() {
                "" => object.resource,
                subresource => format!("{}/{subresource}", object.resource),
            },
            // Of a Namespace itself both are its name.
            namespace: object.namespace,
            name: object.name,
            allowed,
            story: String::new(),
        });
        AuditEntry {
            exercised,
            user: event.user.username,
            verb: event.verb,
            // kube puts a question mark where there is no query; to a story that is the same request.
            uri: event.request_uri.trim_end_matches('?').to_owned(),
            user_agent: event.user_agent,
            at: event.request_received_timestamp.parse().expect("the server writes RFC 3339"),
            code: event.response_status.map_or(0, |status| status.code),
        }
    }
}
