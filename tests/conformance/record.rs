//! What does a real server answer where a case does not say it yet?
//!
//! `code: "?"` and `events: "? 3"` in a file of cases are replaced by what the server said. Paths after the question mark
//! say which parts of an object are of interest; of a refusal, reason, message and causes always are.

use futures::future::join_all;
use serde_json::{Map, Value, json};

use crate::case::{Step, Topic, topic_name};
use crate::client::Api;
use crate::compare::{Memory, at, differences, keys};
use crate::run::{Scene, begin};

/// Runs every case of the topics and rewrites those files that have question marks.
pub async fn fill_in(api: &Api, topics: &[Topic]) {
    join_all(topics.iter().map(|topic| fill_in_topic(api, topic))).await;
}

async fn fill_in_topic(api: &Api, topic: &Topic) {
    let mut memory = Memory::default();
    memory.set("topic", &topic_name(&topic.file));
    let mut recording = Recording { replacements: Vec::new() };
    let mut setup = Scene::new(api, memory);
    for step in &topic.setup {
        recording.play(&mut setup, step).await;
    }
    for (index, case) in topic.cases.iter().enumerate() {
        let mut scene = begin(api, setup.memory.clone(), topic, case, index).await;
        for step in &case.steps {
            recording.play(&mut scene, step).await;
        }
    }
    recording.write(topic);
}

struct Recording {
    /// In the order in which the question marks are in the file.
    replacements: Vec<Value>,
}

impl Recording {
    async fn play(&mut self, scene: &mut Scene, step: &Step) {
        let expected = match step.verb() {
            "WATCH" | "EVENTS" => match question(&step.expected.events) {
                Some(paths) => self.record_events(scene, step, &paths).await,
                None => return played(scene, step).await,
            },
            _ => match question(&step.expected.code) {
                Some(paths) => self.record_answer(scene, step, &paths).await,
                None => return played(scene, step).await,
            },
        };
        self.replacements.push(expected);
    }

    async fn record_answer(&mut self, scene: &mut Scene, step: &Step, paths: &[String]) -> Value {
        let answer = scene.answer(step).await;
        // What the case remembers of the answer stands beside the question mark.
        differences(&step.expected.answer, &answer.body, &mut scene.memory);
        let mut said = json!({"code": answer.code});
        let picked = named(&pick(&answer.body, paths), &scene.memory);
        if picked != json!({}) {
            said["answer"] = picked;
        }
        if !answer.warnings.is_empty() {
            said["warnings"] = named(&json!(answer.warnings), &scene.memory);
        }
        said
    }

    async fn record_events(&mut self, scene: &mut Scene, step: &Step, paths: &[String]) -> Value {
        let count = paths.first().and_then(|count| count.parse().ok()).unwrap_or(0);
        let events = scene.events(step, count, step.expected.ends).await;
        let events = events.as_array().cloned().unwrap_or_default();
        let pick_of = |event: &Value| json!({"type": event["type"], "object": pick(&event["object"], &paths[1..])});
        named(&json!({"events": events.iter().map(pick_of).collect::<Vec<_>>()}), &scene.memory)
    }

    fn write(&self, topic: &Topic) {
        let text = std::fs::read_to_string(&topic.file).expect("it was read before");
        let mut replacements = self.replacements.iter();
        let mut lines = Vec::new();
        for line in text.lines() {
            let stripped = line.trim_start();
            if !stripped.starts_with("code: \"?") && !stripped.starts_with("events: \"?") {
                lines.push(line.to_owned());
                continue;
            }
            let indent = " ".repeat(line.len() - stripped.len());
            let said = replacements.next().expect("each question mark was asked");
            for key in ["code", "warnings", "answer", "events"].into_iter().filter(|key| !said[key].is_null()) {
                let part = json!({key: said[key]});
                let yaml = serde_saphyr::to_string(&part).expect("JSON can be written as YAML");
                lines.extend(yaml.lines().map(|line| format!("{indent}{line}")));
            }
        }
        if !self.replacements.is_empty() {
            std::fs::write(&topic.file, lines.join("\n") + "\n").expect("the file of cases can be written");
        }
    }
}

async fn played(scene: &mut Scene, step: &Step) {
    if let Err(wrong) = scene.play(step, &step.expected).await {
        println!("not as written: {wrong}");
    }
}

/// The words after the question mark, if there is one.
fn question(written: &Value) -> Option<Vec<String>> {
    let words = written.as_str()?.strip_prefix('?')?;
    Some(words.split_whitespace().map(str::to_owned).collect())
}

fn pick(body: &Value, paths: &[String]) -> Value {
    if body["kind"] == "Status" && body["status"] == "Failure" {
        let mut refusal = json!({"reason": body["reason"], "message": body["message"]});
        if refusal["reason"].is_null() {
            refusal = json!({"message": body["message"]});
        }
        if !body["details"]["causes"].is_null() {
            refusal["details"] = json!({"causes": body["details"]["causes"]});
        }
        return refusal;
    }
    if let Value::String(_) = body {
        return body.clone();
    }
    let mut picked = json!({});
    for path in paths {
        if let Some(found) = at(body, path) {
            put(&mut picked, &keys(path), found.clone());
        }
    }
    picked
}

fn put(into: &mut Value, keys: &[String], value: Value) {
    let Some((key, rest)) = keys.split_first() else {
        *into = value;
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    put(&mut into[key], rest, value);
}

/// With the names of this run replaced by those of the case.
fn named(value: &Value, memory: &Memory) -> Value {
    let mut text = value.to_string();
    let mut known: Vec<(&String, &Value)> = memory.0.iter().collect();
    // The longest first, as the name of the namespace contains the id of the case.
    known.sort_by_key(|(_, value)| std::cmp::Reverse(value.to_string().len()));
    for (name, value) in known {
        if let Some(value) = value.as_str().filter(|value| value.len() > 3 && name.as_str() != "topic") {
            text = text.replace(value, &format!("${name}"));
        }
    }
    serde_json::from_str(&text).expect("names contain nothing that JSON would mind")
}
