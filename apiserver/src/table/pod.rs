//! How is a pod, in one word?

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{condition, items, number, text, text_or};

/// What the containers of a pod add up to.
struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

#[derive(Default)]
struct Restarts {
    count: i64,
    /// As written: instants of one form compare as text.
    last_at: String,
}

pub fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let containers = items(&spec["containers"]).len() + items(&spec["initContainers"]).iter().filter(|one| sidecar(one)).count();
    let summary = summarize(pod);
    let restarts = match (summary.restarts.count, summary.restarts.last_at) {
        (0, _) => "0".to_owned(),
        (count, last_at) if last_at.is_empty() => count.to_string(),
        (count, last_at) => format!("{count} ({} ago)", age::since(&json!(last_at), now)),
    };
    vec![
        json!(text(&pod["metadata"]["name"])),
        json!(format!("{}/{containers}", summary.ready)),
        json!(leaving(pod).unwrap_or(&summary.reason)),
        json!(restarts),
        age::of(pod, now),
        json!(text_or(&status["podIPs"][0]["ip"], "<none>")),
        json!(text_or(&spec["nodeName"], "<none>")),
        json!(text_or(&status["nominatedNodeName"], "<none>")),
        json!(gates(pod)),
    ]
}

/// The conditions of the row of a pod that has ended.
pub fn completed(pod: &Value) -> Option<Value> {
    let message = match text(&pod["status"]["phase"]) {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    let reason = &pod["status"]["phase"];
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn summarize(pod: &Value) -> Summary {
    let status = &pod["status"];
    let mut reason = text_or(&status["reason"], text(&status["phase"])).to_owned();
    let gated = |one: &Value| one["type"] == "PodScheduled" && one["reason"] == "SchedulingGated";
    if items(&status["conditions"]).iter().any(gated) {
        reason = "SchedulingGated".to_owned();
    }
    let init = initialize(pod);
    let initialized = condition(&status["conditions"], "Initialized") == Some("True");
    match init.blocked {
        Some(reason) if !initialized => Summary { reason, ready: init.ready, restarts: init.restarts },
        blocked => run(status, blocked.unwrap_or(reason), init.ready, init.sidecar_restarts),
    }
}

struct Init {
    /// Why the first container that is not done keeps the others waiting.
    blocked: Option<String>,
    ready: usize,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

fn initialize(pod: &Value) -> Init {
    let planned = items(&pod["spec"]["initContainers"]);
    let mut init = Init { blocked: None, ready: 0, restarts: Restarts::default(), sidecar_restarts: Restarts::default() };
    for (at, container) in items(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
        let is_sidecar = planned.iter().any(|one| one["name"] == container["name"] && sidecar(one));
        init.restarts.add(container);
        if is_sidecar {
            init.sidecar_restarts.add(container);
        }
        let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
        if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
            continue;
        }
        if is_sidecar && container["started"] == true {
            init.ready += usize::from(container["ready"] == true);
            continue;
        }
        init.blocked = Some(match text(&waiting["reason"]) {
            _ if terminated.is_object() => format!("Init:{}", ended(terminated)),
            "" | "PodInitializing" => format!("Init:{at}/{}", planned.len()),
            reason => format!("Init:{reason}"),
        });
        break;
    }
    init
}

/// The last container decides, but one that runs or failed speaks for a pod of which others have completed.
fn run(status: &Value, mut reason: String, mut ready: usize, mut restarts: Restarts) -> Summary {
    let (mut running, mut error) = (false, None);
    for container in items(&status["containerStatuses"]).iter().rev() {
        restarts.add(container);
        let state = &container["state"];
        let waiting = text(&state["waiting"]["reason"]);
        if !waiting.is_empty() {
            reason = waiting.to_owned();
        } else if state["terminated"].is_object() {
            reason = ended(&state["terminated"]);
            if number(&state["terminated"]["exitCode"]) != 0 {
                error = Some(reason.clone());
            }
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            ready += 1;
        }
    }
    if reason == "Completed" {
        let pod_ready = items(&status["conditions"]).iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        reason = match error {
            _ if running && pod_ready => "Running".to_owned(),
            Some(error) => error,
            None if running => "NotReady".to_owned(),
            None => reason,
        };
    }
    Summary { reason, ready, restarts }
}

/// Why a container ended.
fn ended(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn leaving(pod: &Value) -> Option<&'static str> {
    let terminal = matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed");
    match pod["metadata"]["deletionTimestamp"].is_string() {
        true if pod["status"]["reason"] == "NodeLost" => Some("Unknown"),
        true if !terminal => Some("Terminating"),
        _ => None,
    }
}

fn gates(pod: &Value) -> String {
    let gates = items(&pod["spec"]["readinessGates"]);
    let open = |gate: &&Value| condition(&pod["status"]["conditions"], text(&gate["conditionType"])) == Some("True");
    match gates.len() {
        0 => "<none>".to_owned(),
        all => format!("{}/{all}", gates.iter().filter(open).count()),
    }
}

/// An init container that stays.
fn sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(&container["restartCount"]));
        let ended_at = text(&container["lastState"]["terminated"]["finishedAt"]);
        if ended_at > self.last_at.as_str() {
            self.last_at = ended_at.to_owned();
        }
    }
}
