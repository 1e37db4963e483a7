//! How does a server do in the cases?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::interval;

use crate::case::{Case, Expected, Side, Step, Topic, all, topic_name};
use crate::client::{Answer, Api, Events};
use crate::compare::{Memory, at, differences};

/// A new CRD is served and a new policy enforced after a second or two.
const EVENTUALLY_WITHIN: Duration = Duration::from_secs(30);
/// Often enough not to wait in vain, seldom enough not to be a load.
const ASK_EACH: Duration = Duration::from_millis(100);

/// Runs the topics side by side, the cases of each in order; panics with every mismatch.
pub async fn all_answer_as_written(api: &Api, side: Side) {
    let topics = all();
    let wrong: Vec<String> = join_all(topics.iter().map(|topic| topic_goes(api, side, topic))).await.concat();
    let cases: usize = topics.iter().map(|topic| topic.cases.len()).sum();
    println!("{cases} cases in {} topics, {} wrong", topics.len(), wrong.len());
    assert!(wrong.is_empty(), "{}\n\n{} of {cases} cases went wrong", wrong.join("\n"), wrong.len());
}

async fn topic_goes(api: &Api, side: Side, topic: &Topic) -> Vec<String> {
    let name = topic_name(&topic.file);
    let mut memory = Memory::default();
    memory.set("topic", &name);
    let mut setup = Scene::new(api, memory.clone());
    for step in &topic.setup {
        if let Err(wrong) = setup.play(step, step.expected_of(side)).await {
            return vec![format!("{name}: the setup of the topic: {wrong}")];
        }
    }
    let mut wrong = Vec::new();
    for (index, case) in topic.cases.iter().enumerate() {
        let mut scene = begin(api, setup.memory.clone(), topic, case, index).await;
        for (number, step) in case.steps.iter().enumerate() {
            if let Err(why) = scene.play(step, step.expected_of(side)).await {
                wrong.push(format!("{name}: {:?}, step {}: {why}", case.name, number + 1));
                break;
            }
        }
    }
    wrong
}

/// A case with names of its own: `$id` for what belongs to no namespace, `$ns` for a namespace, made if it is mentioned.
pub async fn begin(api: &Api, mut memory: Memory, topic: &Topic, case: &Case, index: usize) -> Scene {
    let id = format!("{}-{index}", topic_name(&topic.file));
    let namespace = format!("in-{id}");
    memory.set("id", &id);
    memory.set("ns", &namespace);
    let mut scene = Scene::new(api, memory);
    if case.steps.iter().any(|step| format!("{step:?}").contains("$ns")) {
        let make = Step {
            request: "POST /api/v1/namespaces".to_owned(),
            body: Some(json!({"metadata": {"name": namespace}})),
            expected: Expected { code: json!(201), ..Expected::default() },
            ..Step::default()
        };
        scene.play(&make, &make.expected).await.expect("a namespace is made");
    }
    scene
}

/// A case while it is played.
pub struct Scene {
    api: Api,
    pub memory: Memory,
    watches: BTreeMap<String, Events>,
}

impl Scene {
    pub fn new(api: &Api, memory: Memory) -> Scene {
        Scene { api: api.clone(), memory, watches: BTreeMap::new() }
    }

    pub async fn play(&mut self, step: &Step, expected: &Expected) -> Result<(), String> {
        match step.verb() {
            "WATCH" | "EVENTS" => {
                let count = expected.events.as_array().map_or(0, Vec::len);
                let events = self.events(step, count, expected.ends).await;
                let written = if expected.events.is_null() { json!([]) } else { expected.events.clone() };
                let found = differences(&written, &events, &mut self.memory);
                match found.is_empty() {
                    true => Ok(()),
                    false => Err(format!("{}\n  {}\n  got {events}", step.request, found.join("\n  "))),
                }
            }
            _ => self.ask(step, expected).await,
        }
    }

    /// As many events as are expected. If the stream shall end, every event that comes till then.
    pub async fn events(&mut self, step: &Step, count: usize, ends: bool) -> Value {
        let name = step.name.clone().unwrap_or_else(|| step.path().to_owned());
        if step.verb() == "WATCH" {
            let watch = self.api.watch(&step.asked(&self.memory)).await;
            self.watches.insert(name.clone(), watch);
            if step.name.is_some() && count == 0 {
                return json!([]);
            }
        }
        let watch = self.watches.get_mut(&name).unwrap_or_else(|| panic!("no WATCH has the name {name}"));
        let mut events = Vec::new();
        while ends || events.len() < count {
            match watch.next().await {
                Some(event) if is_periodic(&event) => {}
                Some(event) => events.push(event),
                None => break,
            }
        }
        Value::from(events)
    }

    async fn ask(&mut self, step: &Step, expected: &Expected) -> Result<(), String> {
        let give_up_at = Instant::now() + EVENTUALLY_WITHIN;
        let mut ticks = interval(ASK_EACH);
        loop {
            let asked = step.asked(&self.memory);
            let answer = self.api.ask(&asked).await;
            let mut memory = self.memory.clone();
            let found = wrong_in(&answer, expected, &mut memory);
            if found.is_empty() {
                self.memory = memory;
                return Ok(());
            }
            if !step.eventually || Instant::now() >= give_up_at {
                let sent = asked.body.map(|body| String::from_utf8_lossy(&body).into_owned()).unwrap_or_default();
                let (verb, path, code, body) = (step.verb(), asked.path, answer.code, answer.body);
                return Err(format!("{verb} {path}\n  sent {sent}\n  {}\n  got {code} {body}", found.join("\n  ")));
            }
            ticks.tick().await;
        }
    }

    /// The plain answer, for a recording.
    pub async fn answer(&mut self, step: &Step) -> Answer {
        self.api.ask(&step.asked(&self.memory)).await
    }
}

/// Bookmarks come when they like, but for the one that ends the initial events.
fn is_periodic(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null()
}

fn wrong_in(answer: &Answer, expected: &Expected, memory: &mut Memory) -> Vec<String> {
    let mut found = Vec::new();
    if expected.code != json!(answer.code) {
        found.push(format!("code: expected {}, got {}", expected.code, answer.code));
    }
    if !expected.answer.is_null() {
        found.extend(differences(&expected.answer, &answer.body, memory));
    }
    for path in &expected.absent {
        if let Some(there) = at(&answer.body, path) {
            found.push(format!("{path}: expected nothing, got {there}"));
        }
    }
    if let Some(warnings) = &expected.warnings {
        found.extend(differences(&json!(warnings), &json!(answer.warnings), memory));
    }
    if let Some(content_type) = &expected.content_type {
        found.extend(differences(&json!(content_type), &json!(answer.content_type), memory));
    }
    found
}
