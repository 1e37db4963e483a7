//! What stands in the row of a built-in kind?

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, pod};
use crate::resource::Resource;

/// One cell for each of the resource's columns.
pub fn builtin(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status, age) = (&object["spec"], &object["status"], age::of(object, now));
    let name = json!(text(&object["metadata"]["name"]));
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "nodes") => node(object, name, age),
        ("", "pods") => pod::cells(object, now),
        ("" | "events.k8s.io", "events") => event(object, name, now),
        ("", "namespaces") => vec![name, json!(text(&status["phase"])), age],
        ("", "configmaps") => vec![name, json!(size(&object["data"]) + size(&object["binaryData"])), age],
        ("", "secrets") => vec![name, json!(text(&object["type"])), json!(size(&object["data"])), age],
        ("", "serviceaccounts") => vec![name, age],
        ("apps", "deployments") => deployment(object, name, age),
        ("apps", "daemonsets") => daemon_set(object, name, age),
        ("coordination.k8s.io", "leases") => vec![name, json!(text(&spec["holderIdentity"])), age],
        ("storage.k8s.io", "volumeattachments") => {
            let volume = text(&spec["source"]["persistentVolumeName"]);
            let attached = status["attached"] == true;
            vec![name, json!(text(&spec["attacher"])), json!(volume), json!(text(&spec["nodeName"])), json!(attached), age]
        }
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request(object, name, age),
        ("policy", "poddisruptionbudgets") => {
            let (least, most) = (amount(&spec["minAvailable"]), amount(&spec["maxUnavailable"]));
            vec![name, json!(least), json!(most), json!(number(&status["disruptionsAllowed"])), age]
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(object, name, age),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => policy(spec, name, age),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            vec![name, json!(text(&spec["policyName"])), json!(parameters(&spec["paramRef"])), age]
        }
        _ => vec![name, json!(created_at(object))],
    }
}

/// The text of a field, or nothing.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The text of a field, or what is printed where it is empty.
pub fn text_or<'a>(value: &'a Value, otherwise: &'a str) -> &'a str {
    Some(text(value)).filter(|text| !text.is_empty()).unwrap_or(otherwise)
}

/// The status of the condition of this type.
pub fn condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a str> {
    items(conditions).iter().find(|one| one["type"] == kind).map(|one| text(&one["status"]))
}

fn size(map: &Value) -> usize {
    map.as_object().map_or(0, |map| map.len())
}

/// Instants are stored as they are printed here; without one Kubernetes prints the zero of its clock.
fn created_at(object: &Value) -> &str {
    text_or(&object["metadata"]["creationTimestamp"], "0001-01-01T00:00:00Z")
}

fn node(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let (info, addresses) = (&object["status"]["nodeInfo"], &object["status"]["addresses"]);
    let ready = match condition(&object["status"]["conditions"], "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if object["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    let address = |kind: &str| {
        let found = items(addresses).iter().find(|one| one["type"] == kind);
        found.map_or("<none>", |one| text(&one["address"])).to_owned()
    };
    let kernel = text_or(&info["kernelVersion"], "<unknown>");
    let kernel = match text(&info["architecture"]) {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    vec![
        name,
        json!(format!("{ready}{cordoned}")),
        json!(roles(&object["metadata"]["labels"])),
        age,
        json!(text(&info["kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(text_or(&info["osImage"], "<unknown>")),
        json!(kernel),
        json!(text_or(&info["containerRuntimeVersion"], "<unknown>")),
    ]
}

fn roles(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then(|| text(value)),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

/// Both groups of events have the same rows; the newer one has other names for the older fields.
fn event(object: &Value, name: Value, now: Timestamp) -> Vec<Value> {
    let either = |old: &str, new: &str| if object[old].is_null() { &object[new] } else { &object[old] };
    let regarding = either("involvedObject", "regarding");
    let (first_at, last_at) =
        (either("firstTimestamp", "deprecatedFirstTimestamp"), either("lastTimestamp", "deprecatedLastTimestamp"));
    let first = age::since(if first_at.is_null() { &object["eventTime"] } else { first_at }, now);
    let last = if last_at.is_null() { first.clone() } else { age::since(last_at, now) };
    let series = &object["series"];
    let (last, count) = match (series.is_object(), number(either("count", "deprecatedCount"))) {
        (true, _) => (age::since(&series["lastObservedTime"], now), number(&series["count"])),
        (false, count) => (last, if count == 0 { 1 } else { count }),
    };
    let kind = text(&regarding["kind"]).to_lowercase();
    let target = match text(&regarding["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        json!(last),
        json!(text(&object["type"])),
        json!(text(&object["reason"])),
        json!(target),
        json!(text(&regarding["fieldPath"])),
        json!(event_source(object, either("source", "deprecatedSource"))),
        json!(text(either("message", "note")).trim()),
        json!(first),
        json!(count),
        name,
    ]
}

fn event_source(object: &Value, source: &Value) -> String {
    let controller = text_or(&object["reportingComponent"], text(&object["reportingController"]));
    let component = text_or(&source["component"], controller);
    match text_or(&source["host"], text(&object["reportingInstance"])) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

fn deployment(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let (names, images) = containers(&spec["template"]["spec"]);
    let ready = format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]));
    let selector = selector(&spec["selector"]).unwrap_or_else(|| "<invalid>".to_owned());
    vec![
        name,
        json!(ready),
        json!(number(&status["updatedReplicas"])),
        json!(number(&status["availableReplicas"])),
        age,
        json!(names),
        json!(images),
        json!(selector),
    ]
}

fn daemon_set(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let (template, status) = (&object["spec"]["template"]["spec"], &object["status"]);
    let (names, images) = containers(template);
    let counts = ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"];
    let counts = counts.map(|field| json!(number(&status[field])));
    let none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let selector = selector(&object["spec"]["selector"]).map_or_else(|| "<error>".to_owned(), none);
    let rest = [json!(none(labels(&template["nodeSelector"]).join(","))), age, json!(names), json!(images), json!(selector)];
    std::iter::once(name).chain(counts).chain(rest).collect()
}

fn containers(template: &Value) -> (String, String) {
    let all = |field: &str| {
        let texts: Vec<&str> = items(&template["containers"]).iter().map(|one| text(&one[field])).collect();
        texts.join(",")
    };
    (all("name"), all("image"))
}

fn labels(map: &Value) -> Vec<String> {
    map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))).collect()
}

/// In the syntax of the command line; nothing if an operator is unknown.
fn selector(selector: &Value) -> Option<String> {
    let key_of = |written: &str| written.trim_start_matches('!').split(['=', ' ']).next().unwrap_or_default().to_owned();
    let mut all = labels(&selector["matchLabels"]);
    for expression in items(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = items(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        all.push(match text(&expression["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    all.sort_by_key(|written| key_of(written));
    Some(all.join(","))
}

fn signing_request(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let has = |kind: &str| condition(&status["conditions"], kind).is_some();
    let decision = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if text(&status["certificate"]).is_empty() { "" } else { ",Issued" };
    let duration = spec["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), age::human);
    let signer = text_or(&spec["signerName"], "<none>");
    let requestor = text(&spec["username"]);
    vec![name, age, json!(signer), json!(requestor), json!(duration), json!(format!("{decision}{failed}{issued}"))]
}

fn amount(value: &Value) -> String {
    match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let role = format!("{}/{}", text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"]));
    let of_kind = |kind: &str| {
        let subjects = items(&object["subjects"]).iter().filter(|one| one["kind"] == kind);
        let names: Vec<String> = subjects
            .map(|one| match kind {
                "ServiceAccount" => format!("{}/{}", text(&one["namespace"]), text(&one["name"])),
                _ => text(&one["name"]).to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    vec![name, json!(role), age, of_kind("User"), of_kind("Group"), of_kind("ServiceAccount")]
}

fn policy(spec: &Value, name: Value, age: Value) -> Vec<Value> {
    let kind = &spec["paramKind"];
    let kind = match kind.is_object() {
        true => format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])),
        false => "<unset>".to_owned(),
    };
    vec![name, json!(items(&spec["validations"]).len()), json!(kind), age]
}

fn parameters(reference: &Value) -> String {
    let selector = &reference["selector"];
    match (text(&reference["namespace"]), text(&reference["name"])) {
        (_, "") if selector.is_object() => go_selector(selector),
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Kubernetes prints the selector of a parameter as its own data structure.
fn go_selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", text(value))).collect();
    let expressions = items(&selector["matchExpressions"]).iter().map(|one| {
        let values: Vec<&str> = items(&one["values"]).iter().map(text).collect();
        let (key, operator) = (text(&one["key"]), text(&one["operator"]));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
