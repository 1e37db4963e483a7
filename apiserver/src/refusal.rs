//! How does the API say no?
//!
//! Clients act on `code`, `reason` and `causes`, and people read `message`: all four are those of Kubernetes.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::resource::Resource;

/// A `Status` of kind Failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// Of the object that was asked for; empty where there is none.
    pub name: String,
    pub group: String,
    /// A kind where an object was judged, a plural where one was looked up, as in Kubernetes.
    pub kind: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: Option<u32>,
    /// Said beside the refusal, in headers.
    pub warnings: Vec<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// As `spec.containers[0].name`; empty for the whole.
    pub field: String,
    /// As `FieldValueInvalid`; empty where policies refuse.
    pub reason: &'static str,
    /// As `Invalid value: 3: must be less than 2`, without the field.
    pub message: String,
}

impl Cause {
    /// `value` is printed as Kubernetes does: strings in quotes, everything else as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> Cause {
        Cause {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {}", detail.as_ref()),
        }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Cause {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Cause { field: field.into(), reason: "FieldValueRequired", message }
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
        Cause { field: field.into(), reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}") }
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
        Cause { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {detail}") }
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Cause {
        let supported: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Cause { field: field.into(), reason: "FieldValueNotSupported", message }
    }
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: String) -> Refusal {
        let (name, group, kind) = (String::new(), String::new(), String::new());
        Refusal { code, reason, message, name, group, kind, causes: Vec::new(), retry_after_seconds: None, warnings: Vec::new() }
    }

    /// What was found before the refusal is said all the same.
    pub fn warned(self, warnings: &[String]) -> Refusal {
        Refusal { warnings: [warnings, &self.warnings].concat(), ..self }
    }

    fn about(self, resource: &Resource, name: &str) -> Refusal {
        Refusal { name: name.to_owned(), group: resource.group.clone(), kind: resource.plural.clone(), ..self }
    }

    /// Also for paths and kinds that nobody serves.
    pub fn no_such_path() -> Refusal {
        Refusal::new(404, "NotFound", "the server could not find the requested resource".to_owned())
    }

    /// Of a group that nobody serves: not even a Status.
    pub fn no_such_page() -> Refusal {
        Refusal::new(404, "", "404 page not found\n".to_owned())
    }

    /// Whether the message is all that is said, as plain text.
    pub fn is_page(&self) -> bool {
        self.code == 404 && self.reason.is_empty()
    }

    pub fn not_found(resource: &Resource, name: &str) -> Refusal {
        Refusal::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified())).about(resource, name)
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Refusal {
        Refusal::new(409, "AlreadyExists", format!("{} {name:?} already exists", resource.qualified())).about(resource, name)
    }

    pub fn conflict(resource: &Resource, name: &str, detail: &str) -> Refusal {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {detail}", resource.qualified());
        Refusal::new(409, "Conflict", message).about(resource, name)
    }

    /// Somebody else wrote in between.
    pub fn modified(resource: &Resource, name: &str) -> Refusal {
        Refusal::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn invalid(resource: &Resource, name: &str, causes: Vec<Cause>) -> Refusal {
        let text = |cause: &Cause| match cause.field.is_empty() {
            true => format!("<nil>: {}", cause.message),
            false => format!("{}: {}", cause.field, cause.message),
        };
        let said = match causes.as_slice() {
            [one] => text(one),
            many => format!("[{}]", many.iter().map(text).collect::<Vec<_>>().join(", ")),
        };
        // Events are judged in their older form.
        let qualified = match resource.group.is_empty() || resource.is("events.k8s.io", "events") {
            true => resource.kind.clone(),
            false => format!("{}.{}", resource.kind, resource.group),
        };
        let refusal = Refusal::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {said}"));
        Refusal { causes, kind: resource.kind.clone(), ..refusal.about(resource, name) }
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "BadRequest", message.into())
    }

    pub fn forbidden(resource: &Resource, name: &str, detail: &str) -> Refusal {
        let subject = match name.is_empty() {
            true => format!("{} is forbidden", resource.qualified()),
            false => format!("{} {name:?} is forbidden", resource.qualified()),
        };
        Refusal::new(403, "Forbidden", format!("{subject}: {detail}")).about(resource, name)
    }

    pub fn unauthorized() -> Refusal {
        Refusal::new(401, "Unauthorized", "Unauthorized".to_owned())
    }

    pub fn expired(message: impl Into<String>) -> Refusal {
        Refusal::new(410, "Expired", message.into())
    }

    pub fn method_not_allowed() -> Refusal {
        Refusal::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned())
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Refusal {
        Refusal::new(415, "UnsupportedMediaType", message.into())
    }

    pub fn not_acceptable(message: impl Into<String>) -> Refusal {
        Refusal::new(406, "NotAcceptable", message.into())
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Refusal {
        let refusal = Refusal::new(429, "TooManyRequests", message.into());
        Refusal { retry_after_seconds: Some(retry_after_seconds), ..refusal }
    }

    pub fn timeout(message: impl Into<String>, cause: Cause) -> Refusal {
        let refusal = Refusal::new(504, "Timeout", message.into());
        Refusal { causes: vec![cause], retry_after_seconds: Some(1), ..refusal }
    }

    /// What Kubernetes itself did not expect to happen: without a reason.
    pub fn plain(message: impl Into<String>) -> Refusal {
        Refusal::new(500, "", message.into())
    }

    pub fn too_large(bytes_max: usize) -> Refusal {
        Refusal::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {bytes_max}"))
    }

    pub fn internal(message: impl Into<String>) -> Refusal {
        Refusal::new(500, "InternalError", message.into())
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The body of the answer.
    pub fn to_value(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut value = json!({"message": cause.message});
                if !cause.reason.is_empty() {
                    value["reason"] = json!(cause.reason);
                }
                if !cause.field.is_empty() {
                    value["field"] = json!(cause.field);
                }
                value
            });
            details.insert("causes".to_owned(), causes.collect());
        }
        if let Some(seconds) = self.retry_after_seconds {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        let bare = details.is_empty() && (self.reason.is_empty() || matches!(self.code, 400 | 401 | 405..=406 | 410 | 413 | 415));
        if !bare {
            status["details"] = Value::Object(details);
        }
        status
    }
}
