//! Is an answer what a case expects, and what must be remembered of it?
//!
//! Maps are compared by the keys that are expected, lists element by element. In an expected string `*` stands for
//! anything, `$name` for a remembered value; one that nobody knows yet is remembered, and `!$name` must be different.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

#[derive(Clone, Debug, Default)]
pub struct Memory(pub BTreeMap<String, Value>);

impl Memory {
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), Value::from(value));
    }

    /// The value with every `$name` that is known replaced. Others stay, as `$patch` means something else.
    pub fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => match text.strip_prefix('$').and_then(|name| self.0.get(name)) {
                Some(known) => known.clone(),
                None => Value::from(self.fill_text(text)),
            },
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(map) => Value::Object(map.iter().map(|(key, item)| (self.fill_text(key), self.fill(item))).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    pub fn fill_text(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = (&rest[..at], &rest[at + 1..]);
            let name: String = after.chars().take_while(|letter| letter.is_ascii_alphanumeric()).collect();
            filled.push_str(before);
            match self.0.get(&name) {
                Some(Value::String(known)) => filled.push_str(known),
                Some(known) => filled.push_str(&known.to_string()),
                None => filled.push_str(&format!("${name}")),
            }
            rest = &after[name.len()..];
        }
        filled + rest
    }
}

/// What is different, each with its path; empty if the answer will do.
pub fn differences(expected: &Value, got: &Value, memory: &mut Memory) -> Vec<String> {
    let mut found = Vec::new();
    compare(expected, got, "", memory, &mut found);
    found
}

fn compare(expected: &Value, got: &Value, path: &str, memory: &mut Memory, found: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => compare_maps(expected, got, path, memory, found),
        (Value::Array(expected), Value::Array(got)) => compare_lists(expected, got, path, memory, found),
        (Value::String(text), _) => compare_text(text, got, path, memory, found),
        _ if expected == got => {}
        _ => found.push(format!("{path}: expected {expected}, got {got}")),
    }
}

fn compare_maps(
    expected: &Map<String, Value>,
    got: &Map<String, Value>,
    path: &str,
    memory: &mut Memory,
    found: &mut Vec<String>,
) {
    for (key, expected) in expected {
        let key = memory.fill_text(key);
        let path = format!("{path}/{key}");
        match got.get(&key) {
            Some(got) if key == "causes" => compare(&sorted(expected), &sorted(got), &path, memory, found),
            Some(got) => compare(expected, got, &path, memory, found),
            None => found.push(format!("{path}: expected {expected}, got nothing")),
        }
    }
}

/// Faults that are found in a map come in any order.
fn sorted(causes: &Value) -> Value {
    let mut causes = causes.clone();
    if let Value::Array(causes) = &mut causes {
        causes.sort_by_key(|cause| (cause["field"].to_string(), cause["message"].to_string()));
        // The real server checks metadata twice at an update, and then says what is wrong with it twice.
        causes.dedup();
    }
    causes
}

/// The same for a message such as `a is invalid: [this, that]`.
pub fn in_order(message: &str) -> String {
    match message.split_once(": [") {
        Some((before, faults)) if faults.ends_with(']') => {
            let mut faults: Vec<&str> = faults[..faults.len() - 1].split(", ").collect();
            faults.sort_unstable();
            format!("{before}: [{}]", faults.join(", "))
        }
        _ => message.to_owned(),
    }
}

fn compare_lists(expected: &[Value], got: &[Value], path: &str, memory: &mut Memory, found: &mut Vec<String>) {
    let (expected, more_may_follow) = match expected.split_last() {
        Some((last, before)) if last == "..." => (before, true),
        _ => (expected, false),
    };
    if got.len() < expected.len() || (got.len() > expected.len() && !more_may_follow) {
        let got = Value::from(got);
        found.push(format!("{path}: expected {} items, got {got}", expected.len()));
        return;
    }
    for (index, (expected, got)) in expected.iter().zip(got).enumerate() {
        compare(expected, got, &format!("{path}/{index}"), memory, found);
    }
}

fn compare_text(expected: &str, got: &Value, path: &str, memory: &mut Memory, found: &mut Vec<String>) {
    let name = expected.strip_prefix('$').filter(|name| name.chars().all(|letter| letter.is_ascii_alphanumeric()));
    if let Some(name) = name
        && !memory.0.contains_key(name)
    {
        memory.0.insert(name.to_owned(), got.clone());
        return;
    }
    if let Some(other) = expected.strip_prefix("!$").and_then(|name| memory.0.get(name)) {
        if other == got {
            found.push(format!("{path}: expected something else than {got}"));
        }
        return;
    }
    let filled = memory.fill(&Value::from(expected));
    let alike = match (&filled, got) {
        (Value::String(pattern), Value::String(got)) => glob(pattern, got) || glob(&in_order(pattern), &in_order(got)),
        (Value::String(pattern), _) => pattern == "*",
        (filled, got) => filled == got,
    };
    if !alike {
        found.push(format!("{path}: expected {filled}, got {got}"));
    }
}

/// Whether the text is the pattern, where each `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| glob(after, &rest[at..]))
        }
    }
}

/// What is at a path such as `metadata.labels` or `spec.containers.0.name`. A dot in a key is written `\.`.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    keys(path).iter().try_fold(value, |value, key| match value {
        Value::Object(map) => map.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

pub fn keys(path: &str) -> Vec<String> {
    path.replace("\\.", "\0").split('.').map(|key| key.replace('\0', ".")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_compared_by_what_is_expected() {
        let mut memory = Memory::default();
        memory.set("ns", "here");
        let got = json!({"a": [{"b": "x-1"}, 2], "c": {"d": "in here", "e": 7}});
        for (expected, count) in [
            (json!({"a": [{"b": "x-*"}, 2], "c": {"d": "in $ns"}}), 0),
            (json!({"a": [{"b": "*"}, "..."]}), 0),
            (json!({"a": [{"b": "y*"}, 2]}), 1),
            (json!({"a": [{}]}), 1),
            (json!({"c": {"e": "$seven"}}), 0),
            (json!({"c": {"e": "!$seven"}}), 1),
            (json!({"c": {"f": "*"}}), 1),
        ] {
            assert_eq!(differences(&expected, &got, &mut memory).len(), count, "{expected}");
        }
        assert_eq!(memory.0["seven"], json!(7));
    }
}
