//! Which request carries out this effect?
//!
//! Every write names what it was decided on: a version, a uid, or a name that a second attempt would
//! choose again. So what comes late, twice, or from a leader that was deposed, is refused or harmless.

mod machines;

use http::{Method, Request, header};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use resus_core::default_check::Workers;
use resus_core::effect::{Creation, Effect, Hold, Mark, Owner};
use resus_core::event::Event;
use resus_core::facts::{CONTROL_PLANE_LABELS, MACHINE_API_VERSION, Name, ObjectKey};
use resus_core::lease::{LeaseEffect, REQUEST_TIMEOUT, Record};
use resus_core::nhc::CheckStatus;
use resus_core::pause::NAMESPACE_KIND;
use resus_core::repeat::Recent;
use resus_core::time::Wall;
use serde_json::{Value, json};

use crate::crd::nhc::{NodeHealthCheckStatus, RecentRemediation, Remediation, UnhealthyNode};
use crate::names::{self, Places};
use crate::observe::timestamp;

/// Why no request can be made: something that others wrote is too long for an address, or cannot be written back.
#[derive(Debug, thiserror::Error)]
pub enum Unsendable {
    #[error("no address can be made of it: {0}")]
    Address(#[from] http::Error),
    #[error("its JSON cannot be written back: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its JSON cannot be written back: metadata.annotations is not a map")]
    Annotations,
}

pub type Sendable = Result<Request<Vec<u8>>, Unsendable>;

/// The API server refuses longer messages in events.
const EVENT_MESSAGE_MAX: usize = 1024;

pub fn encode(effect: &Effect, places: &Places) -> Sendable {
    let namespace = &*places.own;
    match effect {
        // A Node of another cluster is asked for there.
        Effect::Look { node, .. } => request(Method::GET, format!("/api/v1/nodes/{}", escape(node)), None),
        Effect::Identify { .. } => request(Method::GET, "/api/v1/namespaces/kube-system".into(), None),
        Effect::LookMachine { place, dialect } => machines::look(place, *dialect),
        Effect::Create(creation) => create(creation),
        Effect::Delete { key, plural, uid, .. } => {
            let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": &**uid}});
            request(Method::DELETE, object_path(key, plural, true), Some(body))
        }
        Effect::Read { key, plural } => request(Method::GET, object_path(key, plural, true), None),
        Effect::Fetch { key, plural } => request(Method::GET, object_path(key, plural, true), None),
        Effect::Mark { key, plural, uid, mark, whole } => {
            let (annotation, value) = match mark {
                Mark::TimedOut(at) => (names::TIMED_OUT, json!(seconds(*at))),
                Mark::HealthySince(since) => (names::HEALTHY_DELAY, json!(since.map(seconds))),
                Mark::Old => (names::OLD_FLAG.0, json!(names::OLD_FLAG.1)),
            };
            if let Some(whole) = whole {
                // With the version that it was read at: what changed since refuses.
                let mut object: Value = serde_json::from_str(whole)?;
                annotate(&mut object, annotation, value)?;
                return request(Method::PUT, object_path(key, plural, true), Some(object));
            }
            // Another object of the same name has another uid, and refuses.
            let patch = json!({"metadata": {"uid": &**uid, "annotations": {annotation: value}}});
            merge(object_path(key, plural, true), &patch)
        }
        Effect::Unconfirm { node } => {
            let patch = json!({"metadata": {"annotations": {names::CONFIRMED_HEALTHY: null}}});
            merge(format!("/api/v1/nodes/{}", escape(node)), &patch)
        }
        Effect::FindMachine { namespace, name, .. } => {
            let machines = format!("{}/namespaces/{}/machines", api_root(MACHINE_API_VERSION), escape(namespace));
            request(Method::GET, format!("{machines}/{}", escape(name)), None)
        }
        Effect::HoldNode(hold) => hold_node(hold, &places.node_leases),
        Effect::ReleaseNode { lease } => {
            let same = json!({"uid": &*lease.uid, "resourceVersion": &*lease.version.0});
            let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": same});
            request(Method::DELETE, format!("{}/{}", leases(&places.node_leases), escape(&lease.name)), Some(body))
        }
        Effect::LeaseNamespace => {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": places.node_leases}});
            request(Method::POST, "/api/v1/namespaces".into(), Some(body))
        }
        Effect::DefaultTemplate => {
            let template = json!({
                "apiVersion": names::DEFAULT_TEMPLATE.0,
                "kind": names::DEFAULT_TEMPLATE.1,
                "metadata": {"name": names::DEFAULT_TEMPLATE.2, "namespace": namespace, "labels": ours()},
                "spec": {"template": {"spec": {}}},
            });
            let root = api_root(names::DEFAULT_TEMPLATE.0);
            request(
                Method::POST,
                format!("{root}/namespaces/{}/poisonpillremediationtemplates", escape(namespace)),
                Some(template),
            )
        }
        Effect::DefaultCheck(workers) => default_check(*workers, namespace),
        Effect::Discover { api_version } => request(Method::GET, api_root(api_version), None),
        Effect::ServerVersion => request(Method::GET, "/version".into(), None),
        Effect::Emit(event) => emit(event),
        Effect::Status { check, version, status, written_at } => {
            let path = format!("{}/{}/{}/status", api_root(names::CHECK_API_VERSION), names::CHECK_PLURAL, escape(check));
            // A merge patch could not remove entries of a map; and the version makes a stale write a conflict.
            let patch = vec![
                json!({"op": "replace", "path": "/metadata/resourceVersion", "value": &*version.0}),
                json!({"op": "add", "path": "/status", "value": check_status(status, *written_at)}),
            ];
            json_patch(path, patch)
        }
        Effect::Sign(signing) => machines::sign(signing),
        Effect::PowerCycle { machine, on, .. } => machines::power_cycle(machine, *on),
        Effect::DeleteMachine { machine, .. } => machines::delete(machine),
        Effect::MachineCheckStatus { check, status } => machines::status(check, status),
        Effect::Tie(tying) => machines::tie(tying),
        Effect::Lease(effect) => lease(effect, namespace),
    }
}

fn annotate(object: &mut Value, annotation: &str, value: Value) -> Result<(), Unsendable> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).ok_or(Unsendable::Annotations)?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    // Null is as good as absent.
    if annotations.is_null() {
        *annotations = json!({});
    }
    annotations.as_object_mut().ok_or(Unsendable::Annotations)?.insert(annotation.into(), value);
    Ok(())
}

fn create(creation: &Creation) -> Sendable {
    match &creation.owner {
        Owner::Machine { dialect, name, uid, cluster, check_uid, tells: _ } => {
            machines::create(creation, &machines::For { dialect: *dialect, name, uid, cluster: cluster.as_deref(), check_uid })
        }
        Owner::Check { node, check, check_uid, control_plane, machine, tells: _ } => {
            let mut labels = json!({names::PART_OF.0: names::PART_OF.1});
            if *control_plane {
                labels[names::CONTROL_PLANE_LABEL] = json!("");
            }
            let owner = |api_version: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": false});
            let mut owners = vec![owner(names::CHECK_API_VERSION, names::CHECK_KIND, check, check_uid)];
            owners.extend(machine.as_ref().map(|(name, uid)| owner(MACHINE_API_VERSION, "Machine", name, uid)));
            let annotations = json!({names::NODE_NAME: &**node, names::TEMPLATE_NAME: &*creation.template});
            create_with(creation, json!({"labels": labels, "annotations": annotations, "ownerReferences": owners}))
        }
    }
}

fn create_with(creation: &Creation, mut metadata: Value) -> Sendable {
    metadata["name"] = json!(&*creation.key.name);
    metadata["namespace"] = json!(creation.key.namespace.as_deref());
    let spec: Value = serde_json::from_str(&creation.body.spec)?;
    let kind = &creation.key.kind;
    let body = json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind, "metadata": metadata, "spec": spec});
    request(Method::POST, object_path(&creation.key, &creation.plural, false), Some(body))
}

fn emit(event: &Event) -> Sendable {
    let at = timestamp(event.at.whole_seconds()).to_string();
    let about = &event.about;
    let source = match &*about.kind.kind {
        names::CHECK_KIND => names::EVENT_SOURCE,
        NAMESPACE_KIND => names::MANAGER,
        _ => names::MACHINE_EVENT_SOURCE,
    };
    let namespace = about.namespace.as_deref().unwrap_or(names::EVENT_NAMESPACE);
    let mut involved = json!({
        "apiVersion": &*about.kind.api_version,
        "kind": &*about.kind.kind,
        "name": &*about.name,
        "uid": &*event.about_uid,
    });
    about.namespace.iter().for_each(|namespace| involved["namespace"] = json!(&**namespace));
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": &*event.name, "namespace": namespace},
        "involvedObject": involved,
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": cut(&event.message, EVENT_MESSAGE_MAX),
        "source": {"component": source},
        "reportingComponent": source,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    });
    request(Method::POST, format!("/api/v1/namespaces/{}/events", escape(namespace)), Some(body))
}

fn ours() -> Value {
    json!({names::MANAGED_BY_LABEL: names::MANAGER})
}

fn default_check(workers: Workers, namespace: &str) -> Sendable {
    let expression = |key: &str, operator: &str| json!({"key": key, "operator": operator});
    let selector = match workers {
        Workers::Labelled => vec![expression("node-role.kubernetes.io/worker", "Exists")],
        Workers::NotControlPlane => CONTROL_PLANE_LABELS.iter().map(|label| expression(label, "DoesNotExist")).collect(),
    };
    let ready = |status: &str| json!({"type": "Ready", "status": status, "duration": "300s"});
    let (api_version, kind, name) = names::DEFAULT_TEMPLATE;
    let check = json!({
        "apiVersion": names::CHECK_API_VERSION,
        "kind": names::CHECK_KIND,
        "metadata": {"name": names::DEFAULT_CHECK, "labels": ours()},
        "spec": {
            "remediationTemplate": {"apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace},
            "selector": {"matchExpressions": selector},
            "maxUnhealthy": "49%",
            "unhealthyConditions": [ready("False"), ready("Unknown")],
        },
    });
    request(Method::POST, format!("{}/{}", api_root(names::CHECK_API_VERSION), names::CHECK_PLURAL), Some(check))
}

fn merge(path: String, patch: &Value) -> Sendable {
    let mut request = request(Method::PATCH, path, Some(patch.clone()))?;
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/merge-patch+json"));
    Ok(request)
}

fn json_patch(path: String, operations: Vec<Value>) -> Sendable {
    let mut request = request(Method::PATCH, path, Some(operations.into()))?;
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json-patch+json"));
    Ok(request)
}

fn hold_node(hold: &Hold, namespace: &str) -> Sendable {
    let same_holder = hold.before.as_ref().filter(|before| before.holder == hold.holder);
    let transitions = hold.before.as_ref().map_or(0, |before| before.transitions + u32::from(same_holder.is_none()));
    let acquired_at = same_holder.map_or(hold.at, |before| before.acquired_at);
    let mut body = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": &*hold.name,
            "namespace": namespace,
            // It goes with the Node.
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": &*hold.node, "uid": &*hold.node_uid}],
        },
        "spec": {
            "holderIdentity": &*hold.holder,
            "leaseDurationSeconds": i32::try_from(hold.lasts_for.as_secs()).unwrap_or(i32::MAX),
            "acquireTime": micros(acquired_at),
            "renewTime": micros(hold.at),
            "leaseTransitions": i32::try_from(transitions).unwrap_or(i32::MAX),
        },
    });
    match &hold.before {
        None => request(Method::POST, leases(namespace), Some(body)),
        Some(before) => {
            body["metadata"]["resourceVersion"] = json!(&*before.version.0);
            request(Method::PUT, format!("{}/{}", leases(namespace), escape(&hold.name)), Some(body))
        }
    }
}

pub fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", escape(namespace))
}

fn micros(at: Wall) -> String {
    timestamp(at).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

fn seconds(at: Wall) -> String {
    timestamp(at.whole_seconds()).to_string()
}

fn lease(effect: &LeaseEffect, namespace: &str) -> Sendable {
    let leases = leases(namespace);
    let one = format!("{leases}/{}", names::LEADER_LEASE);
    match effect {
        LeaseEffect::Namespace => {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            request(Method::POST, "/api/v1/namespaces".into(), Some(body))
        }
        LeaseEffect::Read => request(Method::GET, one, None),
        LeaseEffect::Create(record) => request(Method::POST, leases, Some(lease_body(record, namespace))),
        LeaseEffect::Write(record) => request(Method::PUT, one, Some(lease_body(record, namespace))),
    }
}

fn lease_body(record: &Record, namespace: &str) -> Value {
    let mut body = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": names::LEADER_LEASE, "namespace": namespace},
        "spec": {
            "holderIdentity": &*record.holder,
            "leaseDurationSeconds": i32::try_from(record.lease_for.as_secs()).unwrap_or(i32::MAX),
            "acquireTime": micros(record.acquired_at),
            "renewTime": micros(record.renewed_at),
            "leaseTransitions": i32::try_from(record.transitions).unwrap_or(i32::MAX),
        },
    });
    if !record.version.0.is_empty() {
        body["metadata"]["resourceVersion"] = json!(&*record.version.0);
    }
    body
}

fn check_status(status: &CheckStatus, written_at: Wall) -> NodeHealthCheckStatus {
    let first_start =
        |node: &resus_core::nhc::UnhealthyNode| node.remediations.iter().map(|remediation| remediation.started_at).min();
    let in_flight = status.unhealthy.iter().filter_map(|node| Some((node.name.to_string(), time(first_start(node)?))));
    let condition = |condition: &resus_core::nhc::StatusCondition| Condition {
        type_: condition.kind.to_string(),
        status: condition.status.to_string(),
        reason: condition.reason.to_string(),
        message: condition.message.to_string(),
        last_transition_time: time(condition.since),
        observed_generation: None,
    };
    NodeHealthCheckStatus {
        observed_nodes: status.observed,
        healthy_nodes: status.healthy,
        remediating_nodes: u32::try_from(status.unhealthy.iter().filter(|node| !node.remediations.is_empty()).count()).ok(),
        unhealthy_nodes: status.unhealthy.iter().map(unhealthy_node).collect(),
        in_flight_remediations: in_flight.collect(),
        conditions: status.conditions.iter().map(condition).collect(),
        phase: status.phase.to_string(),
        reason: status.reason.to_string(),
        recent_remediations: status.recent.iter().map(recent).collect(),
        last_update_time: Some(time(written_at.whole_seconds())),
    }
}

fn unhealthy_node(node: &resus_core::nhc::UnhealthyNode) -> UnhealthyNode {
    let text = |name: &Name| Some(name.to_string());
    let remediation = |remediation: &resus_core::nhc::Remediation| Remediation {
        resource: ObjectReference {
            api_version: text(&remediation.key.kind.api_version),
            kind: text(&remediation.key.kind.kind),
            namespace: remediation.key.namespace.as_ref().and_then(text),
            name: text(&remediation.key.name),
            uid: text(&remediation.uid),
            ..ObjectReference::default()
        },
        started: Some(time(remediation.started_at)),
        timed_out: remediation.timed_out_at.map(time),
        template_name: remediation.template.as_ref().map(ToString::to_string),
    };
    UnhealthyNode {
        name: node.name.to_string(),
        remediations: node.remediations.iter().map(remediation).collect(),
        conditions_healthy_timestamp: node.healthy_since.map(time),
        healthy_delayed: node.healthy_delayed,
        held: node.held.as_ref().map(ToString::to_string),
    }
}

fn recent(recent: &Recent) -> RecentRemediation {
    RecentRemediation { name: recent.node.to_string(), started: recent.started_at.iter().map(|at| time(*at)).collect() }
}

fn time(at: Wall) -> Time {
    Time(timestamp(at))
}

fn object_path(key: &ObjectKey, plural: &str, with_name: bool) -> String {
    let namespace = key.namespace.as_ref().map(|namespace| format!("/namespaces/{}", escape(namespace))).unwrap_or_default();
    let name = if with_name { format!("/{}", escape(&key.name)) } else { String::new() };
    format!("{}{namespace}/{}{name}", api_root(&key.kind.api_version), escape(plural))
}

/// `v1` is the core group, which has a root of its own.
pub fn api_root(api_version: &str) -> String {
    match api_version.split_once('/') {
        Some((group, version)) => format!("/apis/{}/{}", escape(group), escape(version)),
        None => format!("/api/{}", escape(api_version)),
    }
}

/// Names that the API has accepted need none of this; but some come from a spec that nobody checked.
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn request(method: Method, path: String, body: Option<Value>) -> Sendable {
    // The server gives up when we do: what it has not stored by then, it never will.
    let patience = REQUEST_TIMEOUT.as_secs();
    let uri = match method {
        Method::POST | Method::PUT | Method::PATCH => format!("{path}?fieldManager={}&timeout={patience}s", names::MANAGER),
        Method::DELETE => format!("{path}?timeout={patience}s"),
        _ => path,
    };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default());
    Ok(request?)
}

fn cut(text: &str, max: usize) -> &str {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= max).last().unwrap_or(0);
    &text[..end]
}
