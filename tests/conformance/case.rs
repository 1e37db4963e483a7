//! What is a case, and where are they?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::client::Asked;
use crate::compare::Memory;

/// One file in `cases`: a topic.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    #[serde(skip)]
    pub file: PathBuf,
    /// Steps that every case of the file relies on, such as the CRD that they use.
    #[serde(default)]
    pub setup: Vec<Step>,
    pub cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(rename = "case")]
    pub name: String,
    /// Why the embedded server is allowed to answer differently where a step has `embedded`.
    #[serde(default)]
    pub differs: Option<String>,
    pub steps: Vec<Step>,
}

/// A request and what the server says to it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The verb and the path, as `MERGE-PATCH /api/v1/nodes/$id?dryRun=All`.
    #[serde(rename = "do")]
    pub request: String,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: Option<Value>,
    /// A body that is sent as it is written here.
    #[serde(default)]
    pub text: Option<String>,
    /// Of a WATCH that is read later: the name by which EVENTS reads it.
    #[serde(default)]
    pub name: Option<String>,
    /// Asks again until the answer is the expected one, where the server needs time to notice something.
    #[serde(default)]
    pub eventually: bool,
    #[serde(flatten)]
    pub expected: Expected,
    /// What the embedded server says instead.
    #[serde(default)]
    pub embedded: Option<Expected>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Expected {
    /// A number, or `?` and the paths of interest, to be filled in by a recording.
    #[serde(default)]
    pub code: Value,
    #[serde(default)]
    pub answer: Value,
    #[serde(default)]
    pub absent: Vec<String>,
    #[serde(default)]
    pub warnings: Option<Vec<String>>,
    #[serde(default)]
    pub content_type: Option<String>,
    /// Of WATCH and EVENTS; or `?`, a number of events and the paths of interest.
    #[serde(default)]
    pub events: Value,
    /// Of WATCH and EVENTS: whether the server ends the stream after these events.
    #[serde(default)]
    pub ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    Real,
    Embedded,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/cases")
}

/// Every topic, sorted by name; only those in `RESUS_TOPICS` (separated by commas), if it is set.
pub fn all() -> Vec<Topic> {
    let wanted = std::env::var("RESUS_TOPICS").ok();
    let files = std::fs::read_dir(folder()).expect("the cases are part of the repository");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a folder can be read").path()).collect();
    files.sort();
    let is_wanted = |file: &PathBuf| {
        let name = topic_name(file);
        wanted.as_ref().is_none_or(|wanted| wanted.split(',').any(|topic| topic == name))
    };
    files.into_iter().filter(is_wanted).map(|file| read(&file)).collect()
}

pub fn topic_name(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn read(file: &Path) -> Topic {
    let text = std::fs::read_to_string(file).expect("a file of cases can be read");
    // In YAML 1.2 `y` and `on` are texts.
    let options = serde_saphyr::options! { strict_booleans: true };
    let topic: Result<Topic, _> = serde_saphyr::from_str_with_options(&text, options);
    let topic = topic.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    for case in &topic.cases {
        let differs = case.steps.iter().any(|step| step.embedded.is_some());
        assert_eq!(differs, case.differs.is_some(), "{}: `differs` goes with `embedded`", case.name);
    }
    Topic { file: file.to_owned(), ..topic }
}

impl Step {
    pub fn verb(&self) -> &str {
        self.request.split(' ').next().unwrap_or_default()
    }

    pub fn path(&self) -> &str {
        self.request.split_once(' ').map_or("", |(_, path)| path)
    }

    pub fn expected_of(&self, side: Side) -> &Expected {
        match (&self.embedded, side) {
            (Some(embedded), Side::Embedded) => embedded,
            _ => &self.expected,
        }
    }

    /// The request as it goes over the wire.
    pub fn asked(&self, memory: &Memory) -> Asked {
        let (method, content_type) = match self.verb() {
            "GET" | "WATCH" => (Method::GET, "application/json"),
            "POST" => (Method::POST, "application/json"),
            "PUT" => (Method::PUT, "application/json"),
            "DELETE" => (Method::DELETE, "application/json"),
            "PATCH" => (Method::PATCH, "application/json"),
            "JSON-PATCH" => (Method::PATCH, "application/json-patch+json"),
            "MERGE-PATCH" => (Method::PATCH, "application/merge-patch+json"),
            "STRATEGIC-PATCH" => (Method::PATCH, "application/strategic-merge-patch+json"),
            "APPLY" => (Method::PATCH, "application/apply-patch+yaml"),
            verb => panic!("{verb} is no verb of a step"),
        };
        let mut path = escaped(&memory.fill_text(self.path()));
        if self.verb() == "WATCH" {
            path += if path.contains('?') { "&watch=1" } else { "?watch=1" };
        }
        let mut headers: Vec<(String, String)> =
            self.headers.iter().map(|(name, value)| (name.clone(), memory.fill_text(value))).collect();
        let body = match (&self.body, &self.text) {
            (Some(body), _) => Some(memory.fill(body).to_string().into_bytes()),
            (None, Some(text)) => Some(memory.fill_text(text).into_bytes()),
            (None, None) => None,
        };
        if body.is_some() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        Asked { method, path, headers, body }
    }
}

/// Selectors are written with their spaces and brackets.
fn escaped(path: &str) -> String {
    let mut escaped = String::new();
    for letter in path.chars() {
        match letter {
            ' ' | '"' | '<' | '>' | '{' | '}' | '|' | '^' | '`' | '\\' => escaped.push_str(&format!("%{:02X}", letter as u32)),
            letter => escaped.push(letter),
        }
    }
    escaped
}
