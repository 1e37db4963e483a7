//! What is right for a CertificateSigningRequest, and who may change what of it?

use serde_json::{Value, json};

use super::read::{child, drop_zero, each, fill, list, text};
use super::{base64, names};
use crate::access::User;
use crate::refusal::Cause;

/// Shorter certificates would be renewed all the time.
const EXPIRATION_SECONDS_MIN: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The request is in the name of whoever posts it, whatever it says.
pub fn set_requester(request: &mut Value, user: &User) {
    let Some(spec) = child(request, "spec") else { return };
    for (key, value) in
        [("username", json!(user.name)), ("uid", json!(user.uid)), ("groups", json!(user.groups)), ("extra", json!(user.extra))]
    {
        spec.insert(key.to_owned(), value);
    }
    drop_zero(spec, &["username", "uid", "groups", "extra"]);
}

pub fn prepare_create(request: &mut Value) {
    request["status"] = json!({});
}

/// Times of conditions, at writes of `/approval` and `/status`: `now` is what the server's clock says.
pub fn set_times(request: &mut Value, old: &Value, now: &str) {
    let before = list(&old["status"], "conditions");
    let Some(status) = request.get_mut("status").and_then(Value::as_object_mut) else { return };
    for condition in each(status, "conditions") {
        let matching =
            |one: &&Value| Some(&one["type"]) == condition.get("type") && Some(&one["status"]) == condition.get("status");
        let changed_at = before.iter().find(matching).map_or(json!(now), |one| one["lastTransitionTime"].clone());
        fill(condition, "lastUpdateTime", json!(now));
        fill(condition, "lastTransitionTime", changed_at);
    }
}

pub fn validate(request: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &request["spec"];
    if !holds_pem(text(spec, "request"), "CERTIFICATE REQUEST") {
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        causes.push(Cause::invalid("spec.request", &spec["request"], detail));
    }
    usages(spec, &mut causes);
    signer(text(spec, "signerName"), &mut causes);
    let seconds = &spec["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < EXPIRATION_SECONDS_MIN) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", seconds, detail));
    }
    conditions(request, &mut causes);
    causes
}

/// Of `/status`, where nobody approves.
pub fn validate_status(request: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let certificate = text(&request["status"], "certificate");
    if !certificate.is_empty() && !holds_pem(certificate, "CERTIFICATE") {
        let detail = "must contain at least one CERTIFICATE PEM block";
        causes.push(Cause::invalid("status.certificate", &"<certificate data>".into(), detail));
    }
    conditions(request, &mut causes);
    removed(request, old, &mut causes);
    for kind in ["Approved", "Denied"] {
        if of_type(request, kind).len() <= of_type(old, kind).len() {
            continue;
        }
        let detail = format!("updates may not add a condition of type {kind:?}");
        causes.push(Cause::forbidden("status.conditions", &detail));
    }
    causes
}

/// Of `/approval`.
pub fn validate_approval(request: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    conditions(request, &mut causes);
    removed(request, old, &mut causes);
    causes
}

fn removed(request: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for kind in ["Approved", "Denied", "Failed"] {
        if of_type(request, kind).len() < of_type(old, kind).len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            causes.push(Cause::forbidden("status.conditions", &detail));
        }
    }
}

fn of_type<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(&request["status"], "conditions").iter().filter(|condition| condition["type"] == kind).collect()
}

fn conditions(request: &Value, causes: &mut Vec<Cause>) {
    let conditions = list(&request["status"], "conditions");
    for (at, condition) in conditions.iter().enumerate() {
        let path = |field: &str| format!("status.conditions[{at}].{field}");
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        if kind.is_empty() {
            causes.push(Cause::required(path("type"), ""));
        }
        let is_final = matches!(kind, "Approved" | "Denied" | "Failed");
        match status {
            "" => causes.push(Cause::required(path("status"), "")),
            "True" => {}
            _ if is_final => causes.push(Cause::not_supported(path("status"), &condition["status"], &["True"])),
            "False" | "Unknown" => {}
            _ => {
                let known = ["False", "True", "Unknown"];
                causes.push(Cause::not_supported(path("status"), &condition["status"], &known));
            }
        }
        if conditions[..at].iter().any(|one| one["type"] == condition["type"]) {
            causes.push(Cause::duplicate(path("type"), &condition["type"]));
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => continue,
        };
        if conditions[..at].iter().any(|one| one["type"] == other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            causes.push(Cause::invalid("status.conditions", &kind.into(), detail));
        }
    }
}

fn usages(spec: &Value, causes: &mut Vec<Cause>) {
    let usages = list(spec, "usages");
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(format!("spec.usages[{at}]"), usage, &USAGES));
        }
        if usages[..at].contains(usage) {
            causes.push(Cause::duplicate(format!("spec.usages[{at}]"), usage));
        }
    }
}

fn signer(name: &str, causes: &mut Vec<Cause>) {
    let mut invalid = |value: &str, detail: &str| causes.push(Cause::invalid("spec.signerName", &value.into(), detail));
    if name == "kubernetes.io/legacy-unknown" {
        return invalid(name, "the legacy signerName is not allowed via this API version");
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, path] = parts.as_slice() else {
        if name.is_empty() {
            return causes.push(Cause::required("spec.signerName", ""));
        }
        return invalid(name, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
    };
    for label in domain.split('.') {
        for detail in names::label(label) {
            invalid(domain, &format!("validating label {label:?}: {detail}"));
        }
    }
    if !domain.contains('.') {
        invalid(domain, "should be a domain with at least two segments separated by dots");
    }
    for label in path.split('.') {
        for detail in names::subdomain(label) {
            invalid(path, &format!("validating label {label:?}: {detail}"));
        }
    }
}

/// Looks at the envelope and that a sequence is inside, not at what it says.
fn holds_pem(coded: &str, kind: &str) -> bool {
    let text = base64::decode(coded).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (begin, end) = (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"));
    let body = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map(|(body, _)| body);
    /// The tag with which every DER sequence begins.
    const SEQUENCE: u8 = 0x30;
    body.and_then(|body| base64::decode(body.trim())).is_some_and(|der| der.first() == Some(&SEQUENCE))
}
