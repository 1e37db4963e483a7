//! What has changed since a client last heard?

use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::present::{Form, object_text, present_one};
use crate::read::Filter;
use crate::refusal::Refusal;
use crate::resource::Resource;
use crate::store::{Change, Store, Stored, Type};

/// As often as Kubernetes sends bookmarks to who asks for them.
const BOOKMARK_EACH: SignedDuration = SignedDuration::from_secs(60);
/// The last bookmark comes this long before the end, so that the client's next watch need not begin far back.
const BOOKMARK_BEFORE_END: SignedDuration = SignedDuration::from_secs(2);
/// A watch without a time-out of its own ends after this; Kubernetes takes something between half an hour and an hour.
const LASTS_MAX: SignedDuration = SignedDuration::from_secs(2700);
/// Events that are handed out at one go; the rest comes with the next.
const TOGETHER_MAX: usize = 1000;

/// A client that follows changes. Ask [`crate::Server::follow`] when the server's version has changed, or the time has come.
pub struct Watch {
    pub(crate) resource: Arc<Resource>,
    pub(crate) filter: Filter,
    pub(crate) form: Form,
    /// All changes up to this version have been told.
    cursor: u64,
    /// What was there at the beginning, before any change; emptied at the first go.
    initial: Vec<Arc<Stored>>,
    /// After the initial objects a bookmark says so.
    marks_initial: bool,
    /// None: no more bookmarks are wanted.
    bookmark_at: Option<Timestamp>,
    ends_at: Timestamp,
    /// Tables have their column definitions in the first event only.
    told_columns: bool,
    refused: Option<Refusal>,
}

/// What a watch has to say.
pub struct Followed {
    /// JSON documents, each with its newline.
    pub lines: Vec<Bytes>,
    /// Nothing more will come.
    pub ended: bool,
}

/// How a watch begins.
pub struct Begin {
    pub cursor: u64,
    pub initial: Vec<Arc<Stored>>,
    pub marks_initial: bool,
    pub bookmarks: bool,
    pub timeout_seconds: Option<i64>,
    pub refused: Option<Refusal>,
}

impl Watch {
    pub fn new(resource: Arc<Resource>, filter: Filter, form: Form, begin: Begin, now: Timestamp) -> Watch {
        let lasts = begin.timeout_seconds.map_or(LASTS_MAX, |seconds| SignedDuration::from_secs(seconds.clamp(0, 1 << 30)));
        Watch {
            resource,
            filter,
            form,
            cursor: begin.cursor,
            initial: begin.initial,
            marks_initial: begin.marks_initial,
            bookmark_at: begin.bookmarks.then(|| next_bookmark(now, now + lasts)).flatten(),
            ends_at: now + lasts,
            told_columns: false,
            refused: begin.refused,
        }
    }

    /// When to ask again at the latest, even if nothing changes.
    pub fn wakes_at(&self) -> Timestamp {
        self.bookmark_at.map_or(self.ends_at, |at| at.min(self.ends_at))
    }

    pub(crate) fn follow(&mut self, store: &Store, is_served: bool, now: Timestamp) -> Followed {
        let mut lines = Vec::new();
        if let Some(refusal) = self.refused.take() {
            return Followed { lines: vec![error(&refusal)], ended: true };
        }
        for stored in std::mem::take(&mut self.initial) {
            lines.push(self.line("ADDED", &stored.json, now));
        }
        if std::mem::take(&mut self.marks_initial) {
            lines.push(self.bookmark(self.cursor, true));
        }
        let ended = self.follow_changes(store, &mut lines, now) || !is_served || now >= self.ends_at;
        if let Some(at) = self.bookmark_at
            && now >= at
            && lines.len() < TOGETHER_MAX
        {
            lines.push(self.bookmark(store.version(), false));
            self.bookmark_at = next_bookmark(now, self.ends_at);
        }
        Followed { lines, ended }
    }

    /// True: changes were missed, and the watch is over.
    fn follow_changes(&mut self, store: &Store, lines: &mut Vec<Bytes>, now: Timestamp) -> bool {
        let Some(table) = store.table(self.resource.table()) else {
            self.cursor = store.version();
            return false;
        };
        let Some(changes) = table.since(self.cursor) else {
            let message = format!("too old resource version: {} ({})", self.cursor, store.version());
            lines.push(error(&Refusal::expired(message)));
            return true;
        };
        for change in changes {
            if lines.len() >= TOGETHER_MAX {
                return false;
            }
            self.cursor = change.version;
            if let Some((kind, object)) = self.filter.judge(&self.resource, change) {
                let line = match self.form {
                    Form::Object if object.version == change.version && !self.is_of_events() => {
                        let resource = &self.resource;
                        table.line(change.version, resource, kind, || shared_line(resource, kind, &object.json))
                    }
                    _ if object.version == change.version => self.line(kind, &object.json, now),
                    _ => self.line(kind, &at_version(object, change.version), now),
                };
                lines.push(line);
            }
        }
        // Nothing of ours happened between the last change and now.
        self.cursor = store.version();
        false
    }

    /// Their two APIs show them in two shapes.
    fn is_of_events(&self) -> bool {
        self.resource.is("events.k8s.io", "events")
    }

    fn line(&mut self, kind: &str, json: &str, now: Timestamp) -> Bytes {
        let object = match self.form {
            Form::Object => object_text(&self.resource, json),
            Form::Table(_) | Form::Partial => {
                let first = !std::mem::replace(&mut self.told_columns, true);
                present_one(&self.resource, json, self.form, first, now).into()
            }
        };
        [format!(r#"{{"type":"{kind}","object":"#).as_bytes(), object.as_bytes(), b"}\n"].concat().into()
    }

    fn bookmark(&self, version: u64, ends_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Object => json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata}),
            Form::Partial => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
            Form::Table(_) => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version.to_string()},
                "columnDefinitions": null,
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}],
            }),
        };
        line("BOOKMARK", &object)
    }
}

impl Filter {
    /// What a change means to who sees only a part: an object that leaves it is gone for them.
    fn judge<'a>(&self, resource: &Resource, change: &'a Change) -> Option<(&'static str, &'a Stored)> {
        if !self.covers(&change.key) {
            return None;
        }
        if self.selects_all() {
            let kind = match change.kind {
                Type::Added => "ADDED",
                Type::Modified => "MODIFIED",
                Type::Deleted => "DELETED",
            };
            return Some((kind, &change.object));
        }
        let before = change.before.as_deref().filter(|before| self.selects(resource, before));
        let after = (change.kind != Type::Deleted).then_some(&*change.object).filter(|object| self.selects(resource, object));
        match (before, after) {
            (None, Some(after)) => Some(("ADDED", after)),
            (Some(_), Some(after)) => Some(("MODIFIED", after)),
            (Some(_), None) if change.kind == Type::Deleted => Some(("DELETED", &change.object)),
            (Some(before), None) => Some(("DELETED", before)),
            (None, None) => None,
        }
    }
}

/// None: the watch ends before another one is worth its while.
fn next_bookmark(now: Timestamp, ends_at: Timestamp) -> Option<Timestamp> {
    Some((now + BOOKMARK_EACH).min(ends_at - BOOKMARK_BEFORE_END)).filter(|at| *at > now)
}

fn shared_line(resource: &Resource, kind: &str, json: &str) -> Bytes {
    let (api_version, own_kind) = (resource.api_version(), &resource.kind);
    let head = format!(r#"{{"type":"{kind}","object":{{"apiVersion":"{api_version}","kind":"{own_kind}","#);
    [head.as_bytes(), &json.as_bytes()[1..], b"}\n"].concat().into()
}

/// An object that left a selection is shown as it was, but with the version of the change.
fn at_version(stored: &Stored, version: u64) -> String {
    let mut value = stored.value();
    value["metadata"]["resourceVersion"] = json!(version.to_string());
    value.to_string()
}

fn error(refusal: &Refusal) -> Bytes {
    line("ERROR", &refusal.to_value())
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into_bytes().into()
}
