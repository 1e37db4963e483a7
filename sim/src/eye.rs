//! What has been written to a kind of objects since somebody looked last?
//!
//! The eyes of those who know the truth: a watch that is read at once after every write, and that misses nothing when the
//! server forgets its history.

use std::collections::BTreeSet;

use http::Request;
use resus_apiserver::{Reply, Watch};
use serde_json::{Value, json};

use crate::api::Api;
use crate::clock::Millis;
use crate::policy::text;

pub struct Eye {
    pub path: String,
    watch: Watch,
    /// Namespace and name of everything that is there.
    shown: BTreeSet<(String, String)>,
}

impl Eye {
    pub fn open(now: Millis, api: &mut Api, path: &str) -> Eye {
        Eye { path: path.to_owned(), watch: begin(now, api, path), shown: BTreeSet::new() }
    }

    /// All additions, changes and deletions since it was called last.
    pub fn read(&mut self, now: Millis, api: &mut Api) -> Vec<Value> {
        let followed = api.follow(now, &mut self.watch);
        let mut events: Vec<Value> = followed.lines.iter().map(|line| parse(line)).filter(is_change).collect();
        events.iter().for_each(|event| self.note(event));
        if followed.ended {
            events.extend(self.read_anew(now, api));
        }
        events
    }

    /// The history was forgotten: what a new watch does not show at once is gone.
    fn read_anew(&mut self, now: Millis, api: &mut Api) -> Vec<Value> {
        self.watch = begin(now, api, &self.path);
        let lines = api.follow(now, &mut self.watch).lines;
        let there: Vec<Value> = lines.iter().map(|line| parse(line)).filter(is_change).collect();
        let known = std::mem::take(&mut self.shown);
        there.iter().for_each(|event| self.note(event));
        let gone = known
            .difference(&self.shown)
            .map(|(namespace, name)| json!({"type": "DELETED", "object": {"metadata": {"namespace": namespace, "name": name}}}));
        gone.chain(there).collect()
    }

    fn note(&mut self, event: &Value) {
        let metadata = &event["object"]["metadata"];
        let place = (text(&metadata["namespace"]), text(&metadata["name"]));
        match event["type"] == "DELETED" {
            true => self.shown.remove(&place),
            false => self.shown.insert(place),
        };
    }
}

/// Bookmarks are none.
fn is_change(event: &Value) -> bool {
    ["ADDED", "MODIFIED", "DELETED"].iter().any(|kind| event["type"] == *kind)
}

fn begin(now: Millis, api: &mut Api, path: &str) -> Watch {
    let uri = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1000000");
    let request = Request::get(uri).header("accept", "application/json").body(Vec::new()).expect("the path is well-formed");
    match api.handle(now, request) {
        Reply::Watch(watch) => watch,
        Reply::Answer(answer) => panic!("{path} cannot be watched: {}", answer.status()),
    }
}

fn parse(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("the server writes JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NODES;

    #[test]
    fn it_misses_nothing_when_the_history_is_forgotten() {
        let mut api = Api::new(1, 0);
        let mut eye = Eye::open(0, &mut api, NODES);
        let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let read = |eye: &mut Eye, api: &mut Api| -> Vec<String> {
            let told = |event: &Value| format!("{} {}", text(&event["type"]), text(&event["object"]["metadata"]["name"]));
            eye.read(0, api).iter().map(told).collect()
        };
        ["a", "b"].iter().for_each(|name| assert_eq!(api.create(0, NODES, &node(name)), 201));
        assert_eq!(read(&mut eye, &mut api), ["ADDED a", "ADDED b"]);
        api.delete(0, &format!("{NODES}/a"));
        api.create(0, NODES, &node("c"));
        api.compact();
        assert_eq!(read(&mut eye, &mut api), ["DELETED a", "ADDED b", "ADDED c"]);
        assert!(read(&mut eye, &mut api).is_empty());
    }
}
