//! What is left of an answer when everything is gone that must differ from server to server?
//!
//! Uids and times become words; a version becomes its place among all versions that this server told of objects.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::client::Answer;
use crate::compare::in_order;
use crate::random::side::Told;

/// The times in operations are all of this year, which no clock shows any more.
const YEAR_OF_OPERATIONS: &str = "2020-";

const BESIDE_WORDS: [char; 8] = [' ', ',', '"', '\n', '\\', '.', '(', ')'];

pub struct Normal {
    pub answers: Vec<String>,
    pub states: Vec<(&'static str, Vec<String>)>,
    pub events: Vec<(&'static str, Vec<String>)>,
}

impl Normal {
    pub fn of(told: &Told) -> Normal {
        let mut versions = BTreeSet::new();
        for answer in &told.answers {
            collect_versions(&answer.body, &mut versions);
        }
        let events: Vec<&Value> = told.events.iter().flat_map(|(_, events)| events).collect();
        events.iter().for_each(|event| collect_versions(event, &mut versions));
        let words = Words { versions };
        let texts = |values: &[Value]| values.iter().map(|value| pretty(&words.normal(value))).collect();
        Normal {
            answers: told.answers.iter().map(|answer| words.answer(answer)).collect(),
            states: told.states.iter().map(|(kind, objects)| (*kind, texts(objects))).collect(),
            events: told.events.iter().map(|(kind, events)| (*kind, texts(events))).collect(),
        }
    }
}

struct Words {
    versions: BTreeSet<u64>,
}

impl Words {
    fn answer(&self, answer: &Answer) -> String {
        format!("{} {:?}\n{}", answer.code, answer.warnings, pretty(&self.normal(&answer.body)))
    }

    fn normal(&self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut normal: Map<String, Value> =
                    map.iter().map(|(key, value)| (key.clone(), self.normal_field(key, value))).collect();
                if let Some(Value::Array(causes)) = normal.get_mut("causes") {
                    causes.sort_by_key(Value::to_string);
                    // Metadata is checked twice at an update, and complained about as often.
                    causes.dedup();
                }
                if let Some(Value::Array(managers)) = normal.get_mut("managedFields") {
                    // Their order depends on the second in which each wrote.
                    managers.sort_by_key(Value::to_string);
                }
                Value::Object(normal)
            }
            Value::Array(items) => items.iter().map(|item| self.normal(item)).collect(),
            Value::String(text) => Value::from(self.text(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn normal_field(&self, key: &str, value: &Value) -> Value {
        match (key, value) {
            ("resourceVersion", Value::String(version)) => match version.parse() {
                Ok(version) => Value::from(self.place(version)),
                Err(_) => value.clone(),
            },
            ("continue", Value::String(token)) if !token.is_empty() => Value::from("(a token)"),
            _ => self.normal(value),
        }
    }

    /// How many of the versions were not later.
    fn place(&self, version: u64) -> String {
        format!("(version {})", self.versions.range(..=version).count())
    }

    fn text(&self, text: &str) -> String {
        if is_time(text) && !text.starts_with(YEAR_OF_OPERATIONS) {
            return "(a time)".to_owned();
        }
        // Labels that were emptied and labels that never were are told apart here and nowhere else.
        let text = &text.replace("Invalid value: {}: `selector`", "Invalid value: null: `selector`");
        // A strategic patch is told as it is left over, without what it deleted from a map that it brought itself.
        let text = &text.replace("labels:map[color:<nil>]", "labels:map[]");
        let text = in_order(&self.without_version(&without_object(&without_diff(text))));
        let words: Vec<String> = text.split_inclusive([' ', ',', '"', '\n', '\\']).map(|word| self.word(word)).collect();
        words.concat()
    }

    /// A patch that is refused is told as Go prints a map, with the version in it.
    fn without_version(&self, text: &str) -> String {
        let Some((before, after)) = text.split_once("resourceVersion:") else { return text.to_owned() };
        let digits = after.len() - after.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        match after[..digits].parse() {
            Ok(version) => format!("{before}resourceVersion:{}{}", self.place(version), &after[digits..]),
            Err(_) => text.to_owned(),
        }
    }

    /// Messages about preconditions and conflicts name uids, times, and versions in brackets.
    fn word(&self, word: &str) -> String {
        let begin = &word[..word.len() - word.trim_start_matches(BESIDE_WORDS).len()];
        let bare = word[begin.len()..].trim_end_matches(BESIDE_WORDS);
        let end = &word[begin.len() + bare.len()..];
        if is_uid(bare) {
            return format!("{begin}(a uid){end}");
        }
        if is_time(bare) && !bare.starts_with(YEAR_OF_OPERATIONS) {
            return format!("{begin}(a time){end}");
        }
        match bare.parse::<u64>() {
            Ok(number) if begin == "(" && end.starts_with(')') => format!("{begin}{}{end}", self.place(number)),
            _ => word.to_owned(),
        }
    }
}

/// A patch that is refused is told with the whole object, whose fields are in an order that only Go knows.
fn without_object(text: &str) -> String {
    let (Some(begin), Some(end)) = (text.find("Invalid value: \"{"), text.rfind("}\": ")) else { return text.to_owned() };
    match begin < end {
        true => format!("{}Invalid value: (an object): {}", &text[..begin], &text[end + "}\": ".len()..]),
        false => text.to_owned(),
    }
}

/// What changed in a Pod that may not is told as a diff of Go's structs, always at the end.
fn without_diff(text: &str) -> String {
    const BEFORE: &str = "if it was previously negative)\n";
    match text.find(BEFORE) {
        Some(at) => format!("{}(a diff){}", &text[..at + BEFORE.len()], if text.ends_with(']') { "]" } else { "" }),
        None => text.to_owned(),
    }
}

fn collect_versions(value: &Value, versions: &mut BTreeSet<u64>) {
    match value {
        Value::Object(map) => {
            let is_object = map.get("uid").is_some();
            if let Some(version) = map.get("resourceVersion").and_then(Value::as_str).filter(|_| is_object) {
                versions.extend(version.parse::<u64>());
            }
            map.values().for_each(|value| collect_versions(value, versions));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_versions(item, versions)),
        _ => {}
    }
}

fn is_uid(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.chars().all(|letter| letter == '-' || letter.is_ascii_hexdigit())
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.parse::<jiff::Timestamp>().is_ok()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
