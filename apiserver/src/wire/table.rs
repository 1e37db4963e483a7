//! Which field of a message has which name and type in JSON?
//!
//! `messages.json` says so; `tests/kube/kubernetes/wire` writes it, from the Go types of Kubernetes. A field is
//! "NUMBER NAME TYPE": [TYPE] is a list, {TYPE} a map, TYPE? is left out when it is zero, and the name "." stands for a
//! message whose own fields are in its place. A message that begins with "|" is, in JSON, the first of its fields that is there.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

pub static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let rows: Rows = serde_json::from_str(include_str!("messages.json")).expect("it is a constant");
    let messages = rows.messages.into_iter().map(|(name, text)| (name, Message::parse(&text))).collect();
    Table { kinds: rows.kinds, messages }
});

pub struct Table {
    /// From version and kind to the message.
    kinds: BTreeMap<String, String>,
    messages: BTreeMap<String, Message>,
}

#[derive(Deserialize)]
struct Rows {
    kinds: BTreeMap<String, String>,
    messages: BTreeMap<String, String>,
}

pub struct Message {
    pub is_choice: bool,
    pub fields: Vec<Field>,
}

pub struct Field {
    pub number: u64,
    pub name: String,
    pub place: Place,
    pub shape: Shape,
    pub omit_zero: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    One,
    List,
    Map,
    Inlined,
}

pub enum Shape {
    Text,
    Bytes,
    /// Text that is JSON itself.
    Json,
    Bool,
    Int,
    Float,
    /// With the format that JSON has it in.
    Time(&'static str),
    IntOrString,
    Message(String),
}

impl Table {
    /// Every group has the options of a deletion among its kinds.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let api_version = if kind == "DeleteOptions" { "v1" } else { api_version };
        self.kinds.get(&format!("{api_version} {kind}")).map(|name| self.message(name))
    }

    pub fn message(&self, name: &str) -> &Message {
        self.messages.get(name).expect("the table is closed, as a test says")
    }
}

impl Message {
    fn parse(text: &str) -> Message {
        let rows = text.strip_prefix('|').unwrap_or(text);
        let fields = rows.split(',').filter(|row| !row.is_empty()).map(Field::parse).collect();
        Message { is_choice: text.starts_with('|'), fields }
    }
}

impl Field {
    fn parse(row: &str) -> Field {
        let mut words = row.splitn(3, ' ');
        let mut word = || words.next().expect("a row has three words");
        let (number, name, written) = (word(), word(), word());
        let of = written.strip_suffix('?').unwrap_or(written);
        let (place, of) = match (of.strip_prefix('['), of.strip_prefix('{')) {
            (Some(of), _) => (Place::List, of.trim_end_matches(']')),
            (_, Some(of)) => (Place::Map, of.trim_end_matches('}')),
            (None, None) if name == "." => (Place::Inlined, of),
            (None, None) => (Place::One, of),
        };
        Field {
            number: number.parse().expect("a row begins with a number"),
            name: name.to_owned(),
            place,
            shape: Shape::parse(of),
            omit_zero: written.ends_with('?'),
        }
    }
}

impl Shape {
    fn parse(of: &str) -> Shape {
        match of {
            "string" => Shape::Text,
            "bytes" => Shape::Bytes,
            "json" => Shape::Json,
            "bool" => Shape::Bool,
            "int" => Shape::Int,
            "float" => Shape::Float,
            "time" => Shape::Time("%Y-%m-%dT%H:%M:%SZ"),
            "microtime" => Shape::Time("%Y-%m-%dT%H:%M:%S%.6fZ"),
            "intorstring" => Shape::IntOrString,
            name => Shape::Message(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_the_table_names_is_in_it() {
        assert!(TABLE.kind("apps/v1", "Deployment").is_some());
        for name in TABLE.kinds.values() {
            assert!(TABLE.messages.contains_key(name), "{name}");
        }
        for field in TABLE.messages.values().flat_map(|message| &message.fields) {
            match &field.shape {
                Shape::Message(name) => assert!(TABLE.messages.contains_key(name), "{name}"),
                _ => assert_ne!(field.place, Place::Inlined, "{}", field.name),
            }
        }
    }

    #[test]
    fn the_options_of_a_deletion_are_known_in_every_group() {
        assert!(TABLE.kind("policy/v1", "DeleteOptions").is_some());
        assert!(TABLE.kind("policy/v1", "Pod").is_none());
    }
}
