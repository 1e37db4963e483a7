//! What does this response mean for the effect that was sent?

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, header};
use k8s_openapi::api::coordination::v1::Lease;
use resus_core::effect::{Effect, Signing, Tying};
use resus_core::facts::{Name, Served, Version};
use resus_core::input::{Answer, Fact, Input};
use resus_core::lease::{LeaseAnswer, LeaseEffect, Record};
use resus_core::mhc::facts::ClusterKey;
use resus_core::text::{Plain, is_name};
use resus_core::time::{Mono, Wall};
use serde::Deserialize;

use crate::observe::{self, ApiStatus, Keep, NameOnly, wall};

/// Before a busy server is asked again.
const BUSY_SECONDS: u64 = 1;

/// `keep`: see [`Keep`].
pub fn decode(effect: &Effect, keep: &Keep, response: &Response<Vec<u8>>) -> Input {
    match effect {
        Effect::Lease(lease) => Input::LeaseAnswered(lease_answer(lease, response)),
        _ => Input::Answered(effect.key(), answer(effect, keep, response)),
    }
}

/// No response came, or none in time: done or not, nobody knows.
pub fn lost(effect: &Effect, why: &str) -> Input {
    let why: Name = Plain(why).to_string().into();
    match effect {
        Effect::Lease(_) => Input::LeaseAnswered(LeaseAnswer::Failed { why }),
        _ => Input::Answered(effect.key(), Answer::Unsure { why }),
    }
}

/// It was never sent, so nothing has happened.
pub fn unsent(effect: &Effect, why: &str) -> Input {
    let why: Name = format!("not sent: {}", Plain(why)).into();
    match effect {
        Effect::Lease(_) => Input::LeaseAnswered(LeaseAnswer::Failed { why }),
        _ => Input::Answered(effect.key(), Answer::Refused { why, retry_after: None, forbidden: false }),
    }
}

/// What an answer, whatever it says, tells of the clock of the server. `cluster`: see [`Input::Dated`]; none is our own.
pub fn dated(headers: &HeaderMap, cluster: Option<ClusterKey>, sent_at: Mono) -> Option<Input> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let date = wall(jiff::fmt::rfc2822::parse(date).ok()?.timestamp());
    Some(Input::Dated { cluster, date, sent_at })
}

fn answer(effect: &Effect, keep: &Keep, response: &Response<Vec<u8>>) -> Answer {
    let code = response.status();
    if code.is_success() {
        return match fact(effect, keep, response.body()) {
            Ok(fact) => Answer::Done(fact),
            // Stored it may be, but an answer that cannot be read proves nothing.
            Err(error) => Answer::Unsure { why: format!("the answer cannot be read: {}", Plain(&error.to_string())).into() },
        };
    }
    let status = api_status(response);
    match (code, status.reason.as_str()) {
        // The Lease that was to be taken over is gone, not the namespace.
        (StatusCode::NOT_FOUND, _) if matches!(effect, Effect::HoldNode(_)) && !status.names_namespace() => Answer::Conflict,
        (StatusCode::NOT_FOUND, _) => Answer::Missing,
        (StatusCode::CONFLICT, "AlreadyExists") => Answer::Exists,
        (StatusCode::CONFLICT, _) => Answer::Conflict,
        (code, _) if code.is_client_error() => {
            // Not 401: who we are is in doubt then, not what we may do.
            let cannot = code == StatusCode::METHOD_NOT_ALLOWED && matches!(effect, Effect::Mark { .. });
            let forbidden = code == StatusCode::FORBIDDEN || cannot;
            Answer::Refused { why: why(code, &status), retry_after: retry_after(response, &status), forbidden }
        }
        (code, _) => Answer::Unsure { why: why(code, &status) },
    }
}

fn fact(effect: &Effect, keep: &Keep, body: &[u8]) -> serde_json::Result<Option<Fact>> {
    Ok(match effect {
        Effect::Look { .. } => Some(Fact::Node(observe::node(body, keep)?)),
        Effect::Identify { .. } => {
            let NameOnly { metadata } = serde_json::from_slice(body)?;
            // What has none is not what was asked for. It is shown in a command that people copy.
            if !is_name(&metadata.uid) {
                return Err(serde::de::Error::custom("it has no uid"));
            }
            Some(Fact::Identity { uid: metadata.uid.into() })
        }
        Effect::Status { .. } => Some(Fact::Check(observe::check(body)?)),
        Effect::Discover { api_version } => Some(kinds(api_version, body)?),
        Effect::ServerVersion => Some(server(body)?),
        Effect::FindMachine { .. } => Some(observe::machine_of_node(body)?),
        Effect::LookMachine { dialect, .. } => Some(Fact::Machine(observe::machine(body, *dialect)?)),
        Effect::Sign(Signing { machine, .. }) | Effect::PowerCycle { machine, .. } => {
            Some(Fact::Machine(observe::machine(body, machine.dialect)?))
        }
        Effect::MachineCheckStatus { check, .. } | Effect::Tie(Tying { check, .. }) => {
            Some(Fact::MachineCheck(observe::machine_check(body, check.dialect)?))
        }
        Effect::Fetch { key, .. } => {
            let NameOnly { metadata } = serde_json::from_slice(body)?;
            let json = String::from_utf8_lossy(body).into_owned().into();
            Some(Fact::Whole { key: key.clone(), uid: metadata.uid.into(), json })
        }
        // Of these the watch tells.
        Effect::Create(_)
        | Effect::Delete { .. }
        | Effect::DeleteMachine { .. }
        | Effect::Read { .. }
        | Effect::Mark { .. }
        | Effect::Unconfirm { .. }
        | Effect::HoldNode(_)
        | Effect::ReleaseNode { .. }
        | Effect::LeaseNamespace
        | Effect::DefaultTemplate
        | Effect::DefaultCheck(_)
        | Effect::Emit(_)
        | Effect::Lease(_) => None,
    })
}

fn kinds(api_version: &Name, body: &[u8]) -> serde_json::Result<Fact> {
    #[derive(Deserialize)]
    struct List {
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        name: String,
        kind: String,
        namespaced: bool,
    }
    let list: List = serde_json::from_slice(body)?;
    // Subresources stand in the same list, as `plural/status`.
    let resources = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    let served = resources
        .map(|resource| (resource.kind.into(), Served { plural: resource.name.into(), namespaced: resource.namespaced }));
    Ok(Fact::Kinds { api_version: api_version.clone(), served: served.collect() })
}

fn server(body: &[u8]) -> serde_json::Result<Fact> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct View {
        git_version: String,
    }
    serde_json::from_slice::<View>(body).map(|view| Fact::Server { version: view.git_version.into() })
}

fn lease_answer(effect: &LeaseEffect, response: &Response<Vec<u8>>) -> LeaseAnswer {
    let code = response.status();
    let status = if code.is_success() { ApiStatus::default() } else { api_status(response) };
    match (effect, code) {
        (LeaseEffect::Namespace, code) if code.is_success() || code == StatusCode::CONFLICT => LeaseAnswer::NamespaceCreated,
        (LeaseEffect::Create(_), StatusCode::NOT_FOUND) if status.names_namespace() => LeaseAnswer::NamespaceMissing,
        (LeaseEffect::Read | LeaseEffect::Write(_), StatusCode::NOT_FOUND) => LeaseAnswer::Missing,
        (LeaseEffect::Create(_) | LeaseEffect::Write(_), StatusCode::CONFLICT) => LeaseAnswer::Conflict,
        (LeaseEffect::Namespace, code) => LeaseAnswer::Failed {
            why: format!(
                "cannot create the namespace of the leader lease: {}; create it, or name another with --namespace",
                why(code, &status)
            )
            .into(),
        },
        (_, code) if code.is_success() => match serde_json::from_slice(response.body()).map(record) {
            Ok(Some(record)) => LeaseAnswer::Found(record),
            Ok(None) => LeaseAnswer::Failed { why: "the leader lease has no version".into() },
            Err(error) => {
                LeaseAnswer::Failed { why: format!("the leader lease cannot be read: {}", Plain(&error.to_string())).into() }
            }
        },
        (_, code) => LeaseAnswer::Failed { why: why(code, &status) },
    }
}

fn record(lease: Lease) -> Option<Record> {
    let spec = lease.spec.unwrap_or_default();
    Some(Record {
        holder: spec.holder_identity.unwrap_or_default().into(),
        lease_for: Duration::from_secs(spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0)),
        acquired_at: spec.acquire_time.map_or(Wall(0), |time| wall(time.0)),
        renewed_at: spec.renew_time.map_or(Wall(0), |time| wall(time.0)),
        transitions: spec.lease_transitions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        version: Version(lease.metadata.resource_version?.into()),
    })
}

fn api_status(response: &Response<Vec<u8>>) -> ApiStatus {
    serde_json::from_slice(response.body()).unwrap_or_else(|_| ApiStatus {
        message: String::from_utf8_lossy(&response.body()[..response.body().len().min(200)]).into_owned(),
        ..ApiStatus::default()
    })
}

fn why(code: StatusCode, status: &ApiStatus) -> Name {
    match status.message.is_empty() {
        true => code.to_string().into(),
        false => format!("{} ({})", Plain(&status.message), code.as_u16()).into(),
    }
}

fn retry_after(response: &Response<Vec<u8>>, status: &ApiStatus) -> Option<Duration> {
    let header = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds)).filter(|seconds| *seconds > 0);
    // Who has too much to do wants us back, even if it does not say when: this is no refusal for good.
    let busy = (response.status() == StatusCode::TOO_MANY_REQUESTS).then_some(BUSY_SECONDS);
    header.or(body).or(busy).map(Duration::from_secs)
}
