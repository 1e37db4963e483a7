//! What exactly does a client ask for?

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::User;
use crate::aside::Aside;
use crate::json;
use crate::patch;
use crate::present::Accept;
use crate::refusal::{Cause, Refusal};
use crate::resource::{self, Resource};
use crate::route::{Query, Route};
use crate::structural;
use crate::wire;

/// A request for a resource, understood.
pub struct Ask {
    pub now: Timestamp,
    pub user: User,
    pub method: Method,
    pub route: Route,
    pub query: Query,
    pub accept: Accept,
    pub content_type: String,
    /// Of the header `User-Agent`, up to the slash: the field manager of who names none.
    pub agent: String,
    pub body: Vec<u8>,
    /// Nothing is stored.
    pub dry_run: bool,
    /// Of a Node, while the rest is written; see [`crate::aside`].
    pub aside: Aside,
}

/// What to do with fields that nobody knows, and with fields that are there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl Ask {
    /// RFC 3339 in seconds, as all times that the server writes.
    pub fn time(&self) -> String {
        seconds(self.now)
    }

    pub fn resource(&self) -> &Resource {
        &self.route.resource
    }

    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The same request, to be varied.
    pub fn again(&self) -> Ask {
        Ask {
            now: self.now,
            user: self.user.clone(),
            method: self.method.clone(),
            route: self.route.clone(),
            query: self.query.clone(),
            accept: self.accept,
            content_type: self.content_type.clone(),
            agent: self.agent.clone(),
            body: Vec::new(),
            dry_run: self.dry_run,
            aside: Aside::default(),
        }
    }

    pub fn manager(&self) -> &str {
        match self.query.get("fieldManager") {
            "" if self.agent.is_empty() => "unknown",
            "" => &self.agent,
            name => name,
        }
    }

    /// Parameters of all writes.
    pub fn check_options(&self, kind: &str) -> Result<(), Refusal> {
        let mut causes = Vec::new();
        if kind == "PatchOptions" {
            match media_type(&self.content_type) {
                APPLY if self.query.get("fieldManager").is_empty() => {
                    causes.push(Cause::required("fieldManager", "is required for apply patch"));
                }
                APPLY => {}
                _ if self.query.has("force") => {
                    causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
                }
                _ => {}
            }
        }
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        if dry_run.iter().any(|one| *one != "All") {
            causes.push(Cause::not_supported("dryRun", &json!(dry_run), &["All"]));
        }
        let manager = self.query.get("fieldManager");
        if manager.len() > MANAGER_MAX {
            causes.push(Cause {
                field: "fieldManager".to_owned(),
                reason: "FieldValueTooLong",
                message: format!("Too long: may not be more than {MANAGER_MAX} bytes"),
            });
        }
        if let Some(at) = manager.chars().position(char::is_control) {
            causes.push(Cause::invalid(
                "fieldManager",
                &json!(manager),
                format!("invalid character {:?} (at position {at})", manager.chars().nth(at).unwrap_or_default()),
            ));
        }
        if let Err(cause) = self.field_validation() {
            causes.push(cause);
        }
        match causes.is_empty() {
            true => Ok(()),
            false => Err(options_invalid(kind, causes)),
        }
    }

    fn field_validation(&self) -> Result<FieldValidation, Cause> {
        match self.query.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(Cause::not_supported("fieldValidation", &json!(other), &["", "Ignore", "Strict", "Warn"])),
        }
    }

    /// The body as a value, and the fields that were there twice.
    pub fn parse_body(&self) -> Result<(Value, Vec<String>), Refusal> {
        let kind = &self.resource().kind;
        let unknown =
            |what: String| Refusal::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {what}"));
        match media_type(&self.content_type) {
            "" | "application/json" => match json::parse(&self.body) {
                Ok((value, twice)) if value.is_object() => Ok((value, twice)),
                _ => Err(unknown(not_json(&self.body))),
            },
            "application/yaml" => {
                let text = std::str::from_utf8(&self.body).map_err(|error| unknown(error.to_string()))?;
                let value = serde_saphyr::from_str(text).map_err(|error| unknown(not_yaml(text, &error.to_string())))?;
                Ok((value, Vec::new()))
            }
            wire::MEDIA_TYPE if self.resource().custom.is_none() => wire::decode(&self.body, &self.route.api_version, kind)
                .map(|object| (object, Vec::new()))
                .map_err(|wrong| Refusal::bad_request(wrong.message)),
            _ => Err(Refusal::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }

    /// The object itself instead of its subresource.
    pub fn for_itself(&self) -> Ask {
        let mut ask = self.again();
        ask.route.subresource.clear();
        ask
    }

    /// The body of a subresource that has a kind of its own.
    pub fn parse_body_as(&self, api_version: &str, kind: &str) -> Result<(Value, Vec<String>), Refusal> {
        let (body, twice) = match media_type(&self.content_type) {
            wire::MEDIA_TYPE => {
                let object = wire::decode(&self.body, api_version, kind).map_err(|wrong| Refusal::bad_request(wrong.message))?;
                (object, Vec::new())
            }
            _ => self.parse_body()?,
        };
        let sent = body["kind"].as_str().unwrap_or(kind);
        match sent == kind && body.is_object() {
            true => Ok((body, twice)),
            false => Err(Refusal::bad_request(format!("{sent} cannot be handled as a {kind}"))),
        }
    }

    /// Whether the object says that it is what the URL says; what is left out is filled in.
    pub fn check_kind(&self, object: &mut Value) -> Result<(), Refusal> {
        let resource = self.resource();
        let (expected, kind) = (resource.api_version(), &resource.kind);
        let Some(map) = object.as_object_mut() else {
            return Err(Refusal::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct"
            )));
        };
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, own_kind) = (text("apiVersion"), text("kind"));
        if resource.custom.is_some() && own_kind.is_empty() {
            let shown = String::from_utf8_lossy(&self.body);
            return Err(Refusal::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{shown}' ({shown})"
            )));
        }
        let other = |why: String| {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            Refusal::bad_request(format!("{own_kind} in version {version:?} cannot be handled as a {kind}: {why}"))
        };
        let is_builtin = |api_version: &str, kind: &str| {
            resource::builtin().iter().any(|one| one.kind == kind && one.api_version() == api_version)
        };
        if !api_version.is_empty()
            && (api_version != expected || own_kind != *kind)
            && resource.custom.is_none()
            && !own_kind.is_empty()
        {
            let internal = |group: &str| {
                if group.is_empty() { "core".to_owned() } else { group.split('.').next().unwrap_or_default().to_owned() }
            };
            return Err(match is_builtin(&api_version, &own_kind) {
                true => {
                    let version = api_version.rsplit('/').next().unwrap_or_default();
                    other(format!(
                        "converting ({version}.{own_kind}) to ({}.{kind}): unknown conversion",
                        internal(&resource.group)
                    ))
                }
                false => other(format!(
                    "no kind {own_kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
                )),
            });
        }
        if !api_version.is_empty() && api_version != expected {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            )));
        }
        if !own_kind.is_empty() && own_kind != *kind {
            let cause = Cause::invalid("kind", &json!(own_kind), format!("must be {kind}"));
            let name = map.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default().to_owned();
            let as_sent = Resource { kind: own_kind, ..resource.clone() };
            return Err(Refusal::invalid(&as_sent, &name, vec![cause]));
        }
        map.insert("apiVersion".to_owned(), json!(expected));
        map.insert("kind".to_owned(), json!(kind));
        // What is no object is refused where the types of all fields are looked at.
        if map.get("metadata").is_none_or(Value::is_null) {
            map.insert("metadata".to_owned(), json!({}));
        }
        Ok(())
    }

    /// As [`Ask::check_shape`], for what a patch made: a wrong type is the patch's fault.
    pub fn check_patched(&self, object: &mut Value) -> Result<Vec<String>, Refusal> {
        let resource = self.resource();
        self.check_kind(object)?;
        if let Err(why) = structural::decode(object, &resource.schema, &resource.version, &resource.kind) {
            let why = without_kind(&why, &resource.kind);
            let why = if self.is_strategic() { unconvertible(why) } else { why.to_owned() };
            return Err(bad_patch(&self.shown_patch(object), &why));
        }
        self.drop_unknown(object, &[]).map_err(|refusal| match refusal.message.find("strict decoding error: ") {
            Some(at) => bad_patch(&self.shown_patch(object), &refusal.message[at..]),
            None => refusal,
        })
    }

    /// As [`Ask::check_shape`], for what came of an applied configuration.
    pub fn check_applied(&self, object: &mut Value, applied: &Value) -> Result<Vec<String>, Refusal> {
        let resource = self.resource();
        self.check_kind(object)?;
        if let Err(why) = structural::decode(object, &resource.schema, &resource.version, &resource.kind) {
            let why = without_kind(&why, &resource.kind);
            let name = |key: &str| applied["metadata"][key].as_str().unwrap_or_default();
            let version = match resource.group.is_empty() {
                true => format!("/{}", resource.version),
                false => resource.api_version(),
            };
            let kind = format!("{version}, Kind={}", resource.kind);
            return Err(Refusal::plain(format!(
                "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: {}",
                name("namespace"),
                name("name"),
                unconvertible(why)
            )));
        }
        self.check_shape(object, &[])
    }

    fn is_strategic(&self) -> bool {
        media_type(&self.content_type) == "application/strategic-merge-patch+json"
    }

    /// What a refusal shows of a patch: a strategic one itself, of all others the object that they made.
    fn shown_patch(&self, object: &Value) -> String {
        match self.is_strategic() {
            true => go_text(&serde_json::from_slice(&self.body).unwrap_or_default()),
            false => object.to_string(),
        }
    }

    /// Checks the shape of an object that a client sent, or that a patch made, and drops what nobody knows. Returns warnings.
    pub fn check_shape(&self, object: &mut Value, twice: &[String]) -> Result<Vec<String>, Refusal> {
        let resource = self.resource();
        self.check_kind(object)?;
        structural::decode(object, &resource.schema, &resource.version, &resource.kind).map_err(Refusal::bad_request)?;
        self.drop_unknown(object, twice)
    }

    /// What nobody knows is not stored; whether it is said, or even refused, is the client's choice.
    fn drop_unknown(&self, object: &mut Value, twice: &[String]) -> Result<Vec<String>, Refusal> {
        let resource = self.resource();
        let wrong = |what: String| {
            Refusal::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: {what}",
                resource.kind, resource.version, resource.kind
            ))
        };
        let mut complaints: Vec<String> = twice.iter().map(|field| format!("duplicate field {field:?}")).collect();
        complaints.extend(structural::prune(object, &resource.schema).iter().map(|field| format!("unknown field {field:?}")));
        match (&resource.custom, resource.schema.field("metadata"), object.get_mut("metadata")) {
            (None, _, _) => structural::drop_empty(object, &resource.schema),
            (Some(_), Some(schema), Some(metadata)) => structural::drop_empty(metadata, schema),
            (Some(_), _, _) => {}
        }
        match self.field_validation().unwrap_or(FieldValidation::Warn) {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(complaints),
            FieldValidation::Strict if complaints.is_empty() => Ok(complaints),
            FieldValidation::Strict => Err(wrong(format!("strict decoding error: {}", complaints.join(", ")))),
        }
    }
}

/// Longer names of field managers are refused.
const MANAGER_MAX: usize = 128;

/// Server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// Of a decoder's message what comes after the kind.
fn without_kind<'a>(why: &'a str, kind: &str) -> &'a str {
    why.split_once(&format!("cannot be handled as a {kind}: ")).map_or(why, |(_, why)| why)
}

fn bad_patch(shown: &str, why: &str) -> Refusal {
    Refusal::invalid(&Resource::default(), "", vec![Cause::invalid("patch", &json!(shown), why)])
}

/// As Go prints maps and lists.
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// What is wrong with a body, with its beginning.
pub fn not_json(body: &[u8]) -> String {
    let why = match patch::parse(body) {
        Err(why) => why,
        Ok(value) => format!("json: cannot unmarshal {} into Go value of type {WANTED}", json::json_type(&value)),
    };
    let shown = match body {
        [] => "<empty>".to_owned(),
        [b'{', ..] if body.len() > SHOWN_MAX => format!("{} ...", String::from_utf8_lossy(&body[..SHOWN_MAX])),
        [b'{', ..] => String::from_utf8_lossy(body).into_owned(),
        _ => body.iter().take(SHOWN_MAX).map(|byte| format!("{byte:02x}")).collect(),
    };
    format!("couldn't get version/kind; json parse error: {why} ({shown})")
}

/// The same of YAML: the parser says more, but the rest of it is a drawing of the place.
fn not_yaml(body: &str, error: &str) -> String {
    let why = error.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let shown: String = body.bytes().take(SHOWN_MAX).map(|byte| format!("{byte:02x}")).collect();
    format!("yaml: {why} ({shown})")
}

/// Of a body that cannot be read; more would only fill the screen.
const SHOWN_MAX: usize = 30;
const WANTED: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// What the converter says that strategic patches and applied configurations go through, where the decoder of all else
/// says `cannot unmarshal`.
fn unconvertible(decoder: &str) -> String {
    let Some((_, rest)) = decoder.split_once("cannot unmarshal ") else {
        return if decoder.contains("base64") { format!("error decoding from json: {decoder}") } else { decoder.to_owned() };
    };
    let from = match rest.split(' ').next().unwrap_or_default() {
        "array" => "slice",
        "object" => "map",
        "number" if rest.split(' ').nth(1).is_some_and(|number| number.contains('.')) => "float64",
        "number" => "int64",
        other => other,
    };
    let to = decoder.rsplit_once("of type ").map_or("", |(_, to)| to);
    let kind = if structural::is_text_type(to) { "string" } else { to };
    match kind {
        "string" if from == "int64" => format!("cannot convert {from} to {to}"),
        "int32" | "int64" if from == "float64" => format!("cannot convert {from} to {to}"),
        "string" | "bool" | "int32" | "int64" => format!("unrecognized type: {kind}"),
        _ if to.starts_with("[]") => format!("cannot restore slice from {from}"),
        _ if to.starts_with("map[") => format!("cannot restore map from {from}"),
        _ => format!("cannot restore struct from: {from}"),
    }
}

/// As `CreateOptions`.
pub fn options_invalid(kind: &str, causes: Vec<Cause>) -> Refusal {
    let options = Resource { group: "meta.k8s.io".into(), kind: kind.to_owned(), ..Resource::default() };
    Refusal::invalid(&options, "", causes)
}

pub fn media_type(header: &str) -> &str {
    header.split(';').next().unwrap_or_default().trim()
}

pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
