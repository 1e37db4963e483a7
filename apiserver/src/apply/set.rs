//! Which fields? A set of paths into an object, as managedFields write it (`FieldsV1`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::Schema;

/// One step into an object; written down only when it ends up in a set.
#[derive(Clone, Copy)]
pub enum Step<'a> {
    Field(&'a str),
    /// The element of a list whose elements are told apart by these keys.
    Element(&'a Value, &'a [String], Option<&'a Schema>),
    /// The element of a set.
    Member(&'a Value),
}

impl Step<'_> {
    /// As `FieldsV1` writes it.
    pub fn render(self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Member(value) => format!("v:{value}"),
            Step::Element(element, keys, items) => {
                let pairs = keys.iter().filter_map(|key| Some((key.clone(), key_of(element, key, items)?.clone())));
                format!("k:{}", Value::Object(pairs.collect()))
            }
        }
    }
}

/// The value of a key of a list element: a key that is left out counts as its default.
pub fn key_of<'a>(element: &'a Value, key: &str, items: Option<&'a Schema>) -> Option<&'a Value> {
    element.get(key).or_else(|| items?.properties.get(key)?.unset.as_ref().or(items?.properties.get(key)?.default.as_ref()))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Whether the path that leads here is itself in the set.
    pub member: bool,
    pub children: BTreeMap<String, Set>,
}

impl Set {
    pub fn parse(fields: &Value) -> Set {
        let children = fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
        let child = |(key, value): (&String, &Value)| {
            let mut set = Set::parse(value);
            set.member = is_member(value);
            (key.clone(), set)
        };
        Set { member: false, children: children.map(child).collect() }
    }

    pub fn to_value(&self) -> Value {
        let child = |(key, set): (&String, &Set)| {
            let mut value = set.to_value();
            if let (true, false, Value::Object(map)) = (set.member, set.children.is_empty(), &mut value) {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (key.clone(), value)
        };
        self.children.iter().map(child).collect()
    }

    pub fn insert(&mut self, path: &[Step]) {
        let end = path.iter().fold(self, |set, step| set.children.entry(step.render()).or_default());
        end.member = true;
    }

    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    pub fn add(&mut self, other: &Set) {
        self.member |= other.member;
        for (key, set) in &other.children {
            self.children.entry(key.clone()).or_default().add(set);
        }
    }

    pub fn subtract(&mut self, other: &Set) {
        self.member &= !other.member;
        for (key, gone) in &other.children {
            if let Some(set) = self.children.get_mut(key) {
                set.subtract(gone);
                if !set.member && set.children.is_empty() {
                    self.children.remove(key);
                }
            }
        }
    }

    pub fn intersection(&self, other: &Set) -> Set {
        let both = self.children.iter().filter_map(|(key, set)| {
            let set = set.intersection(other.children.get(key)?);
            (set.member || !set.children.is_empty()).then(|| (key.clone(), set))
        });
        Set { member: self.member && other.member, children: both.collect() }
    }

    /// Whether any path of this set is in those of an entry; without reading them all.
    pub fn touches(&self, fields: &Value) -> bool {
        self.children
            .iter()
            .any(|(key, set)| fields.get(key).is_some_and(|value| (set.member && is_member(value)) || set.touches(value)))
    }

    /// Whether all paths of this set are in those of an entry.
    pub fn is_within(&self, fields: &Value) -> bool {
        self.children
            .iter()
            .all(|(key, set)| fields.get(key).is_some_and(|value| (!set.member || is_member(value)) && set.is_within(value)))
    }

    /// The paths as people read them: `.spec.containers[name="c"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_paths("", &mut found);
        found
    }

    fn collect_paths(&self, prefix: &str, found: &mut Vec<String>) {
        // Members before what is below, as the real server lists them.
        for (key, _) in self.children.iter().filter(|(_, set)| set.member) {
            found.push(format!("{prefix}{}", readable(key)));
        }
        for (key, set) in &self.children {
            set.collect_paths(&format!("{prefix}{}", readable(key)), found);
        }
    }
}

fn is_member(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.is_empty() || map.contains_key("."))
}

fn readable(key: &str) -> String {
    match key.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", pairs.join(","))
        }
        _ => format!("[{key}]"),
    }
}
