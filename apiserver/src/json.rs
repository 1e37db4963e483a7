//! JSON as clients send it: a field that is there twice is noticed, the last one counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The value, and the paths of fields that were there more than once, as `spec.a[0].b`.
pub fn parse(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut twice = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let read = Read { path: String::new(), twice: &mut twice };
    let value = read.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map(|value| (value, twice)).map_err(|error| error.to_string())
}

/// What Go calls the type of a JSON value when it is the wrong one.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct Read<'a> {
    path: String,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is too large"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, values.len());
            match list.next_element_seed(Read { path, twice: self.twice })? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let value = fields.next_value_seed(Read { path: path.clone(), twice: self.twice })?;
            if map.insert(key, value).is_some() {
                self.twice.push(path);
            }
            if map.len() > FIELDS_MAX {
                return Err(A::Error::custom("an object has too many fields"));
            }
        }
        Ok(Value::Object(map))
    }
}

/// A body of the largest size that is taken could not hold more.
const FIELDS_MAX: usize = 1 << 20;
