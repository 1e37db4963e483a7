//! How do we ask the API server, and when did its watch show something?
//!
//! Only the few fields that are measured are decoded: what the bench spends delays what it sees.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use http::{Method, Request, header};
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// Requests under way at once, as from a cluster where much happens; enough to keep 2 cores busy.
const AT_ONCE_MAX: usize = 32;

#[derive(Clone, Deserialize)]
pub struct Object {
    pub metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub resource_version: String,
}

#[derive(Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
pub struct List {
    pub metadata: Metadata,
    pub items: Vec<Object>,
}

pub async fn create(api: &Client, path: &str, object: &Value) -> Result<Object> {
    let request = request(Method::POST, path, "application/json", object)?;
    api.request(request).await.with_context(|| format!("creating in {path}"))
}

pub async fn patch(api: &Client, path: &str, kind: &str, patch: &Value) -> Result<Object> {
    let request = request(Method::PATCH, path, kind, patch)?;
    api.request(request).await.with_context(|| format!("patching {path}"))
}

pub async fn get<T: serde::de::DeserializeOwned>(api: &Client, path: &str) -> Result<T> {
    api.request(Request::get(path).body(Vec::new())?).await.with_context(|| format!("reading {path}"))
}

/// Does everything, many at once, and collects what comes out in any order.
pub async fn all_of<T, Doing: Future<Output = Result<T>>>(work: impl Iterator<Item = Doing>) -> Result<Vec<T>> {
    at_most(AT_ONCE_MAX, work).await
}

/// The same with so many at once.
pub async fn at_most<T, Doing: Future<Output = Result<T>>>(at_once: usize, work: impl Iterator<Item = Doing>) -> Result<Vec<T>> {
    stream::iter(work).buffer_unordered(at_once).try_collect().await
}

/// The same for work that does not start all at once.
pub async fn all_in<T, Doing: Future<Output = Result<T>>>(work: impl stream::Stream<Item = Doing>) -> Result<Vec<T>> {
    work.buffer_unordered(AT_ONCE_MAX).try_collect().await
}

fn request(method: Method, path: &str, kind: &str, body: &Value) -> Result<Request<Vec<u8>>> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
    Ok(request.body(body.to_string().into_bytes())?)
}

/// What a watch should show of an object.
#[derive(Clone, Copy)]
pub enum Sign {
    Appears,
    Goes,
    Ready(&'static str),
}

impl Sign {
    /// The name of the object that shows it.
    fn shown_by(self, event: WatchEvent<Object>) -> Result<Option<String>> {
        let (shown, object) = match event {
            WatchEvent::Added(object) => (matches!(self, Sign::Appears), object),
            WatchEvent::Deleted(object) => (matches!(self, Sign::Goes), object),
            WatchEvent::Modified(object) => (self.is_ready_of(&object), object),
            WatchEvent::Bookmark(_) => return Ok(None),
            WatchEvent::Error(status) => bail!("the watch says {status:?}"),
        };
        Ok(shown.then_some(object.metadata.name))
    }

    fn is_ready_of(self, object: &Object) -> bool {
        let Sign::Ready(status) = self else { return false };
        object.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == status)
    }
}

/// When something was seen, by name.
pub type Seen = BTreeMap<String, Instant>;

/// A watch of our own that has begun and is not read yet.
pub struct Watch {
    path: String,
    events: BoxStream<'static, kube::Result<WatchEvent<Object>>>,
}

impl Watch {
    /// Of everything that happens to the collection from now on.
    pub async fn open(api: &Client, path: &str) -> Result<Watch> {
        let now: List = get(api, &format!("{path}?limit=1")).await?;
        let version = now.metadata.resource_version;
        let watch = Request::get(format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=1800")).body(Vec::new())?;
        let events = api.request_events(watch).await.with_context(|| format!("watching {path}"))?.boxed();
        Ok(Watch { path: path.to_owned(), events })
    }

    /// Reads, in a task of its own, until each of `names` has shown the sign.
    pub async fn until_all(mut self, names: BTreeSet<String>, sign: Sign) -> Result<Seen> {
        let reading = tokio::spawn(async move {
            let mut seen = Seen::new();
            while seen.len() < names.len() {
                let event = self.events.try_next().await?.with_context(|| format!("the watch of {} ended", self.path))?;
                let seen_at = Instant::now();
                if let Some(name) = sign.shown_by(event)?.filter(|name| names.contains(name)) {
                    seen.entry(name).or_insert(seen_at);
                }
            }
            Ok(seen)
        });
        reading.await?
    }
}
