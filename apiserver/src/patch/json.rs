//! How does a JSON patch (RFC 6902) change an object?
//!
//! Kubernetes' library is more lenient than the RFC: `replace` of an absent key of an object sets it, a missing value is
//! null, negative indexes count from the end, and whatever stands before the first `/` of a path is ignored.

use serde_json::{Map, Value};

use super::{parse, rejected, undecodable};
use crate::json::json_type;
use crate::refusal::{Cause, Refusal};

/// As on the real server: a patch with more operations is not even looked at.
const OPERATIONS_MAX: usize = 10_000;

/// `body` is the patch as it was sent.
pub fn json_patch(target: &mut Value, body: &[u8]) -> Result<(), Refusal> {
    let patch = parse(body).map_err(|error| undecodable(&error))?;
    let operations = operations(&patch)?;
    if operations.len() > OPERATIONS_MAX {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Refusal { code: 413, reason: "RequestEntityTooLarge", ..Refusal::bad_request(message) });
    }
    for operation in operations {
        operation.as_object().and_then(|operation| run(target, operation)).ok_or_else(rejected)?;
    }
    if target.is_object() { Ok(()) } else { Err(no_object(target)) }
}

/// The operations, each an object (or null, as Go has it) whose texts are texts.
fn operations(patch: &Value) -> Result<&[Value], Refusal> {
    let wrong = |value: &Value, what: &str| Err(undecodable(&format!("json: cannot unmarshal {} into {what}", json_type(value))));
    let list = match patch {
        Value::Null => return Ok(&[]),
        Value::Array(list) => list,
        other => return wrong(other, "Go value of type []handlers.jsonPatchOp"),
    };
    for operation in list {
        let Value::Object(operation) = operation else {
            if operation.is_null() {
                continue;
            }
            return wrong(operation, "Go value of type handlers.jsonPatchOp");
        };
        for key in ["op", "path", "from"] {
            if let Some(value) = operation.get(key).filter(|value| !value.is_string() && !value.is_null()) {
                return wrong(value, &format!("Go struct field jsonPatchOp.{key} of type string"));
            }
        }
    }
    Ok(list)
}

/// The kind and version are what the real server misses first in something that is no object.
fn no_object(target: &Value) -> Refusal {
    let said = target.to_string();
    let detail = "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type \
        struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
    let cause = Cause::invalid("patch", &Value::String(said), detail);
    let message = format!(" \"\" is invalid: patch: {}", cause.message);
    Refusal { code: 422, reason: "Invalid", causes: vec![cause], ..Refusal::bad_request(message) }
}

/// One operation; None where it does not apply.
fn run(target: &mut Value, operation: &Map<String, Value>) -> Option<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or_default();
    match text("op")? {
        "add" => add(target, text("path")?, value()),
        "remove" => remove(target, text("path")?).map(drop),
        "replace" => replace(target, text("path")?, value()),
        "move" => {
            let moved = remove(target, text("from")?)?;
            add(target, text("path")?, moved)
        }
        "copy" => {
            let copied = get(target, text("from")?)?.cloned().unwrap_or_default();
            add(target, text("path")?, copied)
        }
        "test" => test(target, text("path")?, operation.get("value").unwrap_or(&Value::Null)),
        _ => None,
    }
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(list) if key == "-" => list.push(value),
        // One place more than there are elements: behind the last one may be added, and -1 is that place.
        Value::Array(list) => list.insert(index(&key, list.len() + 1)?, value),
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(map) => map.remove(&key),
        Value::Array(list) => Some(list.remove(index(&key, list.len())?)),
        _ => None,
    }
}

fn replace(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = Some(value).filter(|value| value.is_object() || value.is_array())?;
        return Some(());
    }
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(list) => {
            let index = index(&key, list.len())?;
            list[index] = value;
        }
        _ => return None,
    }
    Some(())
}

/// What is absent equals null.
fn test(target: &mut Value, path: &str, value: &Value) -> Option<()> {
    let equal = match path {
        "" => target == value,
        path => get(target, path)?.unwrap_or(&Value::Null) == value,
    };
    equal.then_some(())
}

/// The value at a path: None where the path leads nowhere, `Some(None)` where only the last key is absent.
fn get<'a>(target: &'a mut Value, path: &str) -> Option<Option<&'a Value>> {
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(map) => Some(map.get(&key)),
        Value::Array(list) => Some(list.get(index(&key, list.len())?)),
        _ => None,
    }
}

/// What holds the last key of a path, and that key.
fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (_, path) = path.split_once('/')?;
    let mut parent = target;
    let mut keys = path.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).peekable();
    while let Some(key) = keys.next() {
        if keys.peek().is_none() {
            return Some((parent, key));
        }
        parent = match parent {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(list) => {
                let index = index(&key, list.len())?;
                &mut list[index]
            }
            _ => return None,
        };
    }
    None
}

/// The place that an index names among so many; negative ones count from the end.
fn index(key: &str, places: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let places = i64::try_from(places).ok()?;
    let index = if index < 0 { index.checked_add(places)? } else { index };
    (0..places).contains(&index).then_some(usize::try_from(index).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(patch: &str) -> Result<Value, Refusal> {
        let mut target = json!({"data": {"x": "1", "y": "2", "a/b": "3"}, "list": ["a", "b", "c"]});
        json_patch(&mut target, patch.as_bytes()).map(|()| target)
    }

    #[test]
    fn operations_change_what_they_name() {
        let data = |data: Value| json!({"data": data, "list": ["a", "b", "c"]});
        let list = |list: Value| json!({"data": {"x": "1", "y": "2", "a/b": "3"}, "list": list});
        let all = data(json!({"x": "1", "y": "2", "a/b": "3"}));
        let rows = [
            ("null", all.clone()),
            ("[]", all.clone()),
            (r#"[{"op":"replace","path":"/data/z","value":"9"}]"#, data(json!({"x": "1", "y": "2", "a/b": "3", "z": "9"}))),
            (r#"[{"op":"remove","path":"/data/a~1b"}]"#, data(json!({"x": "1", "y": "2"}))),
            (r#"[{"op":"remove","path":"ignored/data/a~1b"}]"#, data(json!({"x": "1", "y": "2"}))),
            (r#"[{"op":"move","path":"/data/z","from":"/data/x"}]"#, data(json!({"z": "1", "y": "2", "a/b": "3"}))),
            (r#"[{"op":"copy","path":"/data","from":"/list/0"}]"#, data(json!("a"))),
            (r#"[{"op":"copy","path":"/data","from":"/nope"}]"#, data(json!(null))),
            (r#"[{"op":"add","path":"/data"}]"#, data(json!(null))),
            (r#"[{"op":"test","path":"/data/nope"}]"#, all.clone()),
            (r#"[{"op":"test","path":"/data/nope","value":null}]"#, all.clone()),
            (r#"[{"op":"test","path":"/data/x","value":"1"}]"#, all),
            (r#"[{"op":"add","path":"/list/-","value":"d"}]"#, list(json!(["a", "b", "c", "d"]))),
            (r#"[{"op":"add","path":"/list/1","value":"d"}]"#, list(json!(["a", "d", "b", "c"]))),
            (r#"[{"op":"add","path":"/list/3","value":"d"}]"#, list(json!(["a", "b", "c", "d"]))),
            (r#"[{"op":"add","path":"/list/-1","value":"d"}]"#, list(json!(["a", "b", "c", "d"]))),
            (r#"[{"op":"remove","path":"/list/-1"}]"#, list(json!(["a", "b"]))),
            (r#"[{"op":"replace","path":"/list/-3","value":"z"}]"#, list(json!(["z", "b", "c"]))),
            (r#"[{"op":"replace","path":"","value":{"a":1}}]"#, json!({"a": 1})),
        ];
        for (patch, want) in rows {
            assert_eq!(after(patch), Ok(want), "{patch}");
        }
    }

    #[test]
    fn what_does_not_apply_is_rejected() {
        let rows = [
            r#"[{"op":"add"}]"#,
            r#"[{"path":"/data/x"}]"#,
            r#"[{"op":"frob","path":"/data/x"}]"#,
            r#"[{"op":"test","path":"/data/x","value":"9"}]"#,
            r#"[{"op":"test","path":"","value":{}}]"#,
            r#"[{"op":"test","path":"/list/9","value":null}]"#,
            r#"[{"op":"replace","path":"/datax/zz","value":"9"}]"#,
            r#"[{"op":"replace","path":"/list/3","value":"9"}]"#,
            r#"[{"op":"replace","path":"/list/-","value":"9"}]"#,
            r#"[{"op":"replace","path":"","value":3}]"#,
            r#"[{"op":"remove","path":"/data/zz"}]"#,
            r#"[{"op":"remove","path":"/datax/zz"}]"#,
            r#"[{"op":"remove","path":"/list/x"}]"#,
            r#"[{"op":"remove","path":"/list/-4"}]"#,
            r#"[{"op":"remove","path":"data"}]"#,
            r#"[{"op":"remove","path":""}]"#,
            r#"[{"op":"add","path":"/datax/zz","value":"1"}]"#,
            r#"[{"op":"add","path":"/data/x/y","value":"1"}]"#,
            r#"[{"op":"add","path":"/list/9","value":"1"}]"#,
            r#"[{"op":"add","path":"/list/-5","value":"1"}]"#,
            r#"[{"op":"add","path":"/list/99999999999999999999","value":"1"}]"#,
            r#"[{"op":"move","path":"/data/q","from":"/data/nope"}]"#,
            r#"[{"op":"move","path":"/data/q"}]"#,
            r#"[{"op":"copy","path":"/data/q"}]"#,
            "[null]",
        ];
        for patch in rows {
            assert_eq!(after(patch), Err(rejected()), "{patch}");
        }
        assert_eq!((rejected().code, rejected().reason), (422, "Invalid"));
    }

    #[test]
    fn what_is_no_list_of_operations_is_a_bad_request() {
        let rows = [
            ("{", "unexpected end of JSON input"),
            (r#"{"op":"add"}"#, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            ("[3]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
            (r#"[{"op":3,"path":"/data"}]"#, "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
            (r#"[{"op":"add","path":3}]"#, "json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string"),
        ];
        for (patch, want) in rows {
            assert_eq!(after(patch), Err(Refusal::bad_request(format!("error decoding patch: {want}"))), "{patch}");
        }
    }

    #[test]
    fn too_many_operations_are_refused() {
        let patch = |count: usize| format!("[{}]", vec![r#"{"op":"test","path":"/data/x","value":"1"}"#; count].join(","));
        assert!(after(&patch(OPERATIONS_MAX)).is_ok());
        let refusal = after(&patch(OPERATIONS_MAX + 1)).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (413, "RequestEntityTooLarge"));
        let want = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
        assert_eq!(refusal.message, want);
    }

    #[test]
    fn an_object_stays_an_object() {
        let refusal = after(r#"[{"op":"replace","path":"","value":[]}]"#).unwrap_err();
        let want = r#" "" is invalid: patch: Invalid value: "[]": couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        assert_eq!((refusal.code, refusal.message.as_str()), (422, want));
    }
}
