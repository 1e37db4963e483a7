//! How is one request sent as it is, and what came back?
//!
//! No client library: the cases are about headers, broken bodies and codes that a library would hide or repeat.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use resus_harness::Upstream;
use serde_json::Value;
use tokio::time::timeout;

/// A server that is silent for so long has lost the request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Api {
    upstream: Upstream,
    token: String,
    /// Connections that wait for their next request.
    idle: Arc<Mutex<Vec<SendRequest<Full<Bytes>>>>>,
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub code: u16,
    /// As JSON, or as a string if it is none.
    pub body: Value,
    /// The texts of the `Warning` headers.
    pub warnings: Vec<String>,
    pub content_type: String,
}

impl Api {
    pub fn new(upstream: Upstream, token: String) -> Api {
        Api { upstream, token, idle: Arc::default() }
    }

    pub async fn ask(&self, asked: &Asked) -> Answer {
        let (response, sender) = self.send(asked).await;
        let (head, body) = response.into_parts();
        let whole = timeout(ANSWERED_WITHIN, body.collect()).await.expect("an answer ends").expect("an answer is whole");
        self.idle.lock().expect("nobody panics with the lock").push(sender);
        let bytes = whole.to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into()));
        let texts = |name: &str| head.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        Answer {
            code: head.status.as_u16(),
            body,
            warnings: texts("warning").map(warning_text).collect(),
            content_type: texts("content-type").next().unwrap_or_default().to_owned(),
        }
    }

    /// Opens a stream of events. A refusal comes as its first and only event.
    pub async fn watch(&self, asked: &Asked) -> Events {
        let (response, _) = self.send(asked).await;
        Events { body: response.into_body(), read: Vec::new() }
    }

    async fn send(&self, asked: &Asked) -> (Response<Incoming>, SendRequest<Full<Bytes>>) {
        let mut request = http::Request::builder().method(asked.method.clone()).uri(&asked.path).header("host", "test");
        if !asked.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in &asked.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(asked.body.clone().unwrap_or_default()));
        let request = request.body(body).unwrap_or_else(|error| panic!("{} {}: {error}", asked.method, asked.path));
        let mut sender = self.connection().await;
        let response = timeout(ANSWERED_WITHIN, sender.send_request(request)).await;
        let response = response.unwrap_or_else(|_| panic!("no answer to {} {}", asked.method, asked.path));
        (response.unwrap_or_else(|error| panic!("{} {}: {error}", asked.method, asked.path)), sender)
    }

    async fn connection(&self) -> SendRequest<Full<Bytes>> {
        loop {
            let idle = self.idle.lock().expect("nobody panics with the lock").pop();
            let Some(mut sender) = idle else { break };
            if sender.ready().await.is_ok() {
                return sender;
            }
        }
        self.upstream.connect().await.expect("the server listens")
    }
}

/// A watch that is open.
pub struct Events {
    body: Incoming,
    read: Vec<u8>,
}

impl Events {
    /// The next event, or None when the server has ended the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event is a line of JSON"));
            }
            // A server that is silent for so long has nothing to tell.
            let Ok(frame) = timeout(ANSWERED_WITHIN, self.body.frame()).await else { return None };
            match frame {
                Some(Ok(frame)) => self.read.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(_)) | None if self.read.is_empty() => return None,
                Some(Err(_)) | None => self.read.push(b'\n'),
            }
        }
    }
}

/// Of `299 - "the text"`.
fn warning_text(header: &str) -> String {
    let text = header.splitn(3, ' ').nth(2).unwrap_or(header);
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.replace("\\\"", "\"")
}
