//! What does a body in Kubernetes' protobuf say, as JSON?
//!
//! Typed clients in Go send it. A message carries numbers instead of names, so a table says of each message which
//! field is which.

mod fields;
mod table;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::fields::{Datum, Fields};
use self::table::{Field, Message, Place, Shape, TABLE};
use crate::builtin::base64;

pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Every body begins with it.
const MAGIC: &[u8] = b"k8s\0";
/// Messages in messages: deeper than the schema of any custom resource goes, and shallow enough for the stack.
const NESTING_MAX: usize = 100;
/// Of a body that nobody understands, the client is told this many bytes.
const SUMMARY_MAX: usize = 1024;
/// The server names its own list of kinds so.
const SCHEME: &str = "pkg/runtime/scheme.go:111";

/// Why a body is not understood.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    pub what: String,
    /// What the server says where the body is an object to be stored. Where it is the options of a deletion, it says
    /// only what is wrong.
    pub message: String,
}

/// The object in a body. What the body does not say of its version and kind is as given.
pub fn decode(body: &[u8], api_version: &str, kind: &str) -> Result<Value, Wrong> {
    let sent = Envelope::open(body).map_err(|what| {
        let message = format!("the object provided is unrecognized (must be of type {kind}): {what} ({})", summary(body));
        Wrong { what, message }
    })?;
    let own_version = if sent.api_version.is_empty() { api_version } else { &sent.api_version };
    let own_kind = if sent.kind.is_empty() { kind } else { &sent.kind };
    let wrong = |what: String| {
        let version = own_version.rsplit('/').next().unwrap_or_default();
        let message = format!("{own_kind} in version {version:?} cannot be handled as a {kind}: {what}");
        Wrong { what, message }
    };
    let message = TABLE
        .kind(own_version, own_kind)
        .ok_or_else(|| wrong(format!("no kind {own_kind:?} is registered for version {own_version:?} in scheme {SCHEME:?}")))?;
    let mut object = Map::new();
    fill(&mut object, message, sent.raw, 0).map_err(wrong)?;
    object.insert("apiVersion".to_owned(), json!(own_version));
    object.insert("kind".to_owned(), json!(own_kind));
    Ok(Value::Object(object))
}

#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(body: &'a [u8]) -> Result<Envelope<'a>, String> {
        if body.is_empty() {
            return Err("empty data".to_owned());
        }
        let Some(data) = body.strip_prefix(MAGIC) else {
            return Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned());
        };
        if data.is_empty() {
            return Err("empty body".to_owned());
        }
        let mut envelope = Envelope::default();
        let mut fields = Fields(data);
        while let Some(field) = fields.next()? {
            match field {
                (1, Datum::Bytes(data)) => {
                    let mut names = Fields(data);
                    while let Some(name) = names.next()? {
                        match name {
                            (1, Datum::Bytes(text)) => envelope.api_version = lossy(text),
                            (2, Datum::Bytes(text)) => envelope.kind = lossy(text),
                            _ => {}
                        }
                    }
                }
                (2, Datum::Bytes(data)) => envelope.raw = data,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

fn summary(body: &[u8]) -> String {
    let shown = &body[..body.len().min(SUMMARY_MAX)];
    let more = if shown.len() < body.len() { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => lossy(shown) + more,
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + more,
    }
}

/// Adds the fields of a message to an object: its own, or the one that the message is inlined in.
fn fill(object: &mut Map<String, Value>, message: &Message, data: &[u8], depth: usize) -> Result<(), String> {
    if depth > NESTING_MAX {
        return Err("exceeded max depth".to_owned());
    }
    let mut fields = Fields(data);
    while let Some((number, datum)) = fields.next()? {
        if let Some(field) = message.fields.iter().find(|field| field.number == number) {
            put(object, field, &datum, depth)?;
        }
    }
    Ok(())
}

fn put(object: &mut Map<String, Value>, field: &Field, datum: &Datum, depth: usize) -> Result<(), String> {
    match (field.place, datum, &field.shape) {
        (Place::Inlined, Datum::Bytes(data), Shape::Message(name)) => fill(object, TABLE.message(name), data, depth + 1)?,
        (Place::List, Datum::Bytes(data), Shape::Int | Shape::Bool) => {
            let mut packed = Fields(data);
            while !packed.0.is_empty() {
                let number = Datum::Varint(packed.varint()?);
                push(object, &field.name, value(field, &number, depth)?);
            }
        }
        (Place::List, ..) => push(object, &field.name, value(field, datum, depth)?),
        (Place::Map, Datum::Bytes(data), _) => {
            let (key, value) = entry(field, data, depth)?;
            if let Value::Object(map) = object.entry(field.name.clone()).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        }
        (Place::Map | Place::Inlined, ..) => return Err(wrong_wire_type(field, datum)),
        (Place::One, ..) => {
            let value = value(field, datum, depth)?;
            let is_left_out = value.is_null() || field.omit_zero && is_zero(&value);
            if !is_left_out {
                object.insert(field.name.clone(), value);
            }
        }
    }
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    if let Value::Array(list) = object.entry(name.to_owned()).or_insert_with(|| json!([])) {
        list.push(value);
    }
}

fn entry(field: &Field, data: &[u8], depth: usize) -> Result<(String, Value), String> {
    let mut key = String::new();
    let mut found = None;
    let mut fields = Fields(data);
    while let Some(part) = fields.next()? {
        match part {
            (1, Datum::Bytes(text)) => key = lossy(text),
            (2, datum) => found = Some(value(field, &datum, depth)?),
            _ => {}
        }
    }
    match found {
        Some(value) => Ok((key, value)),
        // Both halves may be left out: that means empty.
        None => Ok((key, value(field, &Datum::Bytes(&[]), depth)?)),
    }
}

/// As Go's `omitempty` (and `omitzero`, for a struct) sees it.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Array(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn value(field: &Field, datum: &Datum, depth: usize) -> Result<Value, String> {
    Ok(match (&field.shape, *datum) {
        (Shape::Text, Datum::Bytes(text)) => json!(lossy(text)),
        (Shape::Bytes, Datum::Bytes(data)) => json!(base64::encode(data)),
        (Shape::Json, Datum::Bytes(text)) => serde_json::from_slice(text).map_err(|error| error.to_string())?,
        (Shape::Bool, Datum::Varint(number)) => json!(number != 0),
        (Shape::Int, Datum::Varint(number)) => json!(number.cast_signed()),
        (Shape::Float, Datum::Fixed(bits)) => float(f64::from_bits(bits)),
        (Shape::Time(format), Datum::Bytes(data)) => time(data, format)?,
        (Shape::IntOrString, Datum::Bytes(data)) => int_or_string(data)?,
        (Shape::Message(name), Datum::Bytes(data)) => {
            let message = TABLE.message(name);
            let mut object = Map::new();
            fill(&mut object, message, data, depth + 1)?;
            match message.is_choice {
                true => message.fields.iter().find_map(|field| object.remove(&field.name)).unwrap_or_default(),
                false => Value::Object(object),
            }
        }
        _ => return Err(wrong_wire_type(field, datum)),
    })
}

fn wrong_wire_type(field: &Field, datum: &Datum) -> String {
    format!("proto: wrong wireType = {} for field {}", datum.wire_type(), field.name)
}

/// JSON of Go has no point in whole numbers.
fn float(number: f64) -> Value {
    const EXACT_MAX: f64 = (1u64 << 53) as f64;
    match number.fract() == 0.0 && number.abs() < EXACT_MAX {
        true => json!(number as i64),
        false => json!(number),
    }
}

fn time(data: &[u8], format: &str) -> Result<Value, String> {
    if data.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Fields(data);
    while let Some(field) = fields.next()? {
        match field {
            (1, Datum::Varint(number)) => seconds = number.cast_signed(),
            (2, Datum::Varint(number)) => nanos = number.cast_signed(),
            _ => {}
        }
    }
    let time = Timestamp::from_nanosecond(i128::from(seconds) * 1_000_000_000 + i128::from(nanos));
    Ok(json!(time.map_err(|error| error.to_string())?.strftime(format).to_string()))
}

fn int_or_string(data: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    let mut fields = Fields(data);
    while let Some(field) = fields.next()? {
        match field {
            (1, Datum::Varint(kind)) => is_text = kind == 1,
            (2, Datum::Varint(sent)) => number = sent.cast_signed(),
            (3, Datum::Bytes(sent)) => text = lossy(sent),
            _ => {}
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

/// As Go's JSON: what is not UTF-8 is replaced.
fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubectl 1.36 sent, and what Go's encoder makes of kinds that it does not send; the objects are as Go's types
    /// write them in JSON, without nulls.
    #[test]
    fn bodies_of_go_clients_read_as_the_json_of_the_same_objects() {
        let bodies: Vec<Value> = serde_json::from_str(include_str!("bodies.json")).unwrap();
        assert!(!bodies.is_empty());
        for body in bodies {
            let sent = base64::decode(body["body"].as_str().unwrap()).unwrap();
            assert_eq!(decode(&sent, "", "").as_ref(), Ok(&body["object"]), "{}", body["command"]);
        }
    }

    #[test]
    fn a_body_that_does_not_say_what_it_is_is_what_the_url_says() {
        let sent = b"k8s\0\x12\x05\x0a\x03\x0a\x01z";
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "z"}});
        assert_eq!(decode(sent, "v1", "ConfigMap"), Ok(object));
    }

    /// The messages are those of a real server.
    #[test]
    fn what_is_no_object_is_refused() {
        let of_type = "the object provided is unrecognized (must be of type ConfigMap)";
        let as_one = "in version \"v1\" cannot be handled as a ConfigMap";
        let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        let no_kind = "no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"";
        for (body, message) in [
            (&b""[..], format!("{of_type}: empty data (<empty>)")),
            (b"abc", format!("{of_type}: {prefix} (616263)")),
            (b"{}", format!("{of_type}: {prefix} ({{}})")),
            (b"k8s\0", format!("{of_type}: empty body (6b387300)")),
            (b"k8s\0\x0a\x7f", format!("{of_type}: unexpected EOF (6b3873000a7f)")),
            (b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Foo\x12\x00", format!("Foo {as_one}: {no_kind}")),
            (b"k8s\0\x12\x02\x0a\x7f", format!("ConfigMap {as_one}: unexpected EOF")),
        ] {
            let wrong = decode(body, "v1", "ConfigMap").unwrap_err();
            assert_eq!(wrong.message, message);
            assert!(message.contains(&wrong.what));
        }
    }

    #[test]
    fn garbage_and_endless_nesting_are_refused_without_a_panic() {
        let whole = b"k8s\0\x12\x0c\x0a\x03\x0a\x01z\x12\x05\x0a\x01k\x12\x00";
        for at in 4..whole.len() {
            let _ = decode(&whole[..at], "v1", "ConfigMap");
            for byte in 0..=u8::MAX {
                let mut sent = whole.to_vec();
                sent[at] = byte;
                let _ = decode(&sent, "v1", "ConfigMap");
            }
        }
        // A schema may hold a schema, in `not`.
        let not = TABLE.message("apiextensions.v1.JSONSchemaProps").fields.iter().find(|field| field.name == "not").unwrap();
        let mut schema = Vec::new();
        for _ in 0..=NESTING_MAX {
            schema = [varint(not.number << 3 | 2), varint(schema.len() as u64), schema].concat();
        }
        let message = TABLE.message("apiextensions.v1.JSONSchemaProps");
        assert_eq!(fill(&mut Map::new(), message, &schema, 0), Err("exceeded max depth".to_owned()));
    }

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }
}
