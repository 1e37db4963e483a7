//! How does one server go through the operations, and what does it tell?

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use resus_harness::until;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::{Answer, Api, Asked};
use crate::random::fragments::{CRD, KINDS, parse};
use crate::random::operation::{NAMESPACES, Operation};

/// The last object of every kind: when it is seen, a watch has told everything.
const LAST: &str = "zz-the-last";
/// A CRD is served within a second or two.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

pub struct Side {
    api: Api,
    answers: Vec<Answer>,
    known: BTreeMap<String, Known>,
    watches: Vec<(&'static str, JoinHandle<Vec<Value>>)>,
}

/// What this server has told of an object.
#[derive(Default)]
struct Known {
    versions: Vec<String>,
    uid: String,
}

/// Everything that a server has told.
pub struct Told {
    pub answers: Vec<Answer>,
    /// By kind: the complete list at the end.
    pub states: Vec<(&'static str, Vec<Value>)>,
    /// By kind: everything that a watch has told from beginning to end.
    pub events: Vec<(&'static str, Vec<Value>)>,
}

impl Side {
    pub async fn begin(api: &Api) -> Side {
        let mut side = Side { api: api.clone(), answers: Vec::new(), known: BTreeMap::new(), watches: Vec::new() };
        for namespace in NAMESPACES {
            side.must(Method::POST, "/api/v1/namespaces", Some(json!({"metadata": {"name": namespace}}))).await;
        }
        side.must(Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Some(parse(CRD))).await;
        side.wait_until_served("/apis/random.test/v1/gadgets").await;
        for kind in KINDS {
            let all = format!("{}/{}", kind.root, kind.plural);
            let list = side.must(Method::GET, &all, None).await;
            let version = list["metadata"]["resourceVersion"].as_str().expect("a list has a version").to_owned();
            let watch = asked(Method::GET, &format!("{all}?watch=1&resourceVersion={version}"), None);
            let mut events = api.watch(&watch).await;
            let collect = async move {
                let mut seen = Vec::new();
                while let Some(event) = events.next().await {
                    let ours = event["object"]["metadata"]["namespace"].as_str().is_none_or(|of| NAMESPACES.contains(&of));
                    let last = event["object"]["metadata"]["name"] == LAST || event["type"] == "ERROR";
                    if ours {
                        seen.push(event);
                    }
                    if last {
                        break;
                    }
                }
                seen
            };
            side.watches.push((kind.plural, tokio::spawn(collect)));
        }
        side
    }

    pub async fn run(&mut self, operations: &[Operation]) {
        for operation in operations {
            let known = operation.object.as_ref().and_then(|object| self.known.get(object));
            let mut request =
                asked(operation.method.clone(), &operation.path, operation.body.as_ref().map(|body| filled(body, known)));
            if request.body.is_some() {
                request.headers.push(("content-type".to_owned(), operation.content_type.to_owned()));
            }
            let answer = self.api.ask(&request).await;
            if let Some(object) = &operation.object {
                self.learn(object, &answer);
            }
            self.answers.push(answer);
        }
    }

    /// Writes the last object of every kind, then reads what there is.
    pub async fn end(self) -> Told {
        let mut states = Vec::new();
        for kind in KINDS {
            let all = match kind.namespaced {
                true => format!("{}/namespaces/{}/{}", kind.root, NAMESPACES[0], kind.plural),
                false => format!("{}/{}", kind.root, kind.plural),
            };
            let mut last = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": LAST}});
            if let (Some(last), Value::Object(body)) = (last.as_object_mut(), parse(kind.body)) {
                last.extend(body);
            }
            self.must(Method::POST, &all, Some(last)).await;
            let list = self.must(Method::GET, &format!("{}/{}", kind.root, kind.plural), None).await;
            let items = list["items"].as_array().cloned().unwrap_or_default().into_iter();
            let ours = |item: &Value| item["metadata"]["namespace"].as_str().is_none_or(|of| NAMESPACES.contains(&of));
            states.push((kind.plural, items.filter(ours).collect()));
        }
        let mut events = Vec::new();
        for (kind, watch) in self.watches {
            events.push((kind, watch.await.expect("a watch ends with the last object")));
        }
        Told { answers: self.answers, states, events }
    }

    fn learn(&mut self, object: &str, answer: &Answer) {
        let metadata = &answer.body["metadata"];
        let (Some(version), Some(uid)) = (metadata["resourceVersion"].as_str(), metadata["uid"].as_str()) else { return };
        let known = self.known.entry(object.to_owned()).or_default();
        if known.versions.last().is_none_or(|last| last != version) {
            known.versions.push(version.to_owned());
        }
        known.uid = uid.to_owned();
    }

    async fn must(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = asked(method, path, body);
        request.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        let answer = self.api.ask(&request).await;
        assert!(answer.code < 300, "{} {path}: {} {}", request.method, answer.code, answer.body);
        answer.body
    }

    async fn wait_until_served(&self, path: &str) {
        until(SERVED_WITHIN, &format!("{path} is served"), || async {
            (self.api.ask(&asked(Method::GET, path, None)).await.code == 200).then_some(())
        })
        .await;
    }
}

fn asked(method: Method, path: &str, body: Option<Value>) -> Asked {
    // It names the manager of fields where the request does not.
    let headers = vec![("user-agent".to_owned(), "conformance/1".to_owned())];
    Asked { method, path: path.to_owned(), headers, body: body.map(|body| body.to_string().into_bytes()) }
}

/// With the versions and uids that this server told before.
fn filled(body: &Value, known: Option<&Known>) -> Value {
    let version = |known: &Known, back: usize| known.versions.iter().rev().nth(back).cloned();
    match body {
        Value::String(text) => match text.as_str() {
            "$version" => json!(known.and_then(|known| version(known, 0)).unwrap_or("1".to_owned())),
            "$stale" => json!(known.and_then(|known| version(known, 1)).unwrap_or("1".to_owned())),
            "$uid" => json!(known.map_or("nobody", |known| &known.uid)),
            _ => body.clone(),
        },
        Value::Array(items) => items.iter().map(|item| filled(item, known)).collect(),
        Value::Object(map) => Value::Object(map.iter().map(|(key, item)| (key.clone(), filled(item, known))).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => body.clone(),
    }
}
