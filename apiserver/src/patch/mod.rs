//! What does an object look like after a patch?
//!
//! Three kinds of patch, each in a file of its own but for the simplest. All work in place: after a refusal the target
//! is spoilt, so callers patch a copy.

mod json;
mod list;
mod strategic;
#[cfg(test)]
mod strategic_tests;

use serde_json::Value;

pub use json::json_patch;
pub use strategic::strategic_merge;

use crate::json::json_type;
use crate::refusal::Refusal;

/// RFC 7386.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = without_nulls(patch);
        return;
    };
    for (key, value) in patch {
        match target.get_mut(key) {
            _ if value.is_null() => {
                target.remove(key);
            }
            Some(current) => merge_patch(current, value),
            None => {
                target.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

/// A null says "delete": where there is nothing to delete it must not be stored. Nulls that are elements of lists stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

/// Reads a body, or says what is wrong with it as Go's parser does: that is what clients of Kubernetes know.
pub fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| syntax(body, &error))
}

/// Reads a merge patch, which must be an object.
pub fn parse_merge_patch(body: &[u8]) -> Result<Value, Refusal> {
    match parse(body).map_err(|error| undecodable(&error))? {
        Value::Null => Err(Refusal::bad_request("Invalid JSON Patch")),
        patch @ Value::Object(_) => Ok(patch),
        other => {
            let said = format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", json_type(&other));
            Err(undecodable(&said))
        }
    }
}

fn undecodable(error: &str) -> Refusal {
    Refusal::bad_request(format!("error decoding patch: {error}"))
}

fn syntax(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = body.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let rest = line.get(error.column().saturating_sub(1)..).unwrap_or_default();
    let said = error.to_string();
    let places = [
        ("trailing characters", "after top-level value"),
        ("trailing comma", "looking for beginning of object key string"),
        ("key must be a string", "looking for beginning of object key string"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
    ];
    let place = places.iter().find(|(ours, _)| said.starts_with(ours)).map_or("looking for beginning of value", |(_, go)| go);
    format!("invalid character '{}' {place}", quoted(rest.first().copied().unwrap_or(b'\n')))
}

/// One byte, as Go quotes it: it takes each for a character of its own.
fn quoted(byte: u8) -> String {
    match char::from(byte) {
        '\'' => "\\'".to_owned(),
        '"' => "\"".to_owned(),
        ' '..='~' | '\n' | '\r' | '\t' => char::from(byte).escape_default().to_string(),
        letter if byte.is_ascii() => format!("\\x{:02x}", u32::from(letter)),
        letter if letter.is_control() || matches!(byte, 0xa0 | 0xad) => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    }
}

/// The answer to most patches that make no sense; the real server keeps the particulars to itself.
fn rejected() -> Refusal {
    let message = "the server rejected our request due to an error in our request";
    Refusal { code: 422, reason: "Invalid", ..Refusal::bad_request(message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_sets_deletes_and_never_stores_nulls() {
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        ];
        for (mut target, patch, want) in rows {
            merge_patch(&mut target, &patch);
            assert_eq!(target, want, "{patch}");
        }
    }

    #[test]
    fn a_merge_patch_is_an_object() {
        let rows = [
            ("{", "error decoding patch: unexpected end of JSON input"),
            ("[]", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ("3", "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"),
            ("null", "Invalid JSON Patch"),
        ];
        for (body, want) in rows {
            assert_eq!(parse_merge_patch(body.as_bytes()), Err(Refusal::bad_request(want)), "{body}");
        }
        assert_eq!(parse_merge_patch(br#"{"a":null}"#), Ok(json!({"a": null})));
    }

    #[test]
    fn a_body_that_is_no_json_is_explained_as_go_does() {
        let rows = [
            ("{", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("{} x", "invalid character 'x' after top-level value"),
            (r#"{"data":}"#, "invalid character '}' looking for beginning of value"),
            (r#"[{"op":"add","path":"/data/x",}]"#, "invalid character '}' looking for beginning of object key string"),
            (r#"[{"op":"add" "path"}]"#, "invalid character '\"' after object key:value pair"),
            ("{\n  a: 1}", "invalid character 'a' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
        ];
        for (body, want) in rows {
            assert_eq!(parse(body.as_bytes()), Err(want.to_owned()), "{body}");
        }
    }
}
