//! Most of a Node is of no concern to a heartbeat: what a patch of the status does not mention is not even parsed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::store::Stored;

/// The fields that are left aside while the rest of a Node is written.
#[derive(Default)]
pub struct Aside {
    /// None: nothing is.
    of: Option<Arc<Stored>>,
    /// Where in its text.
    fields: Vec<(Box<str>, Range<usize>)>,
}

/// Stands for a field that is left aside, with its name: no text of a Node that is split contains such a thing.
const PLACE: char = '\0';
const WRITTEN_PLACE: &str = "\"\\u0000";
const LABELS: &str = "labels";
/// For places, and for what a heartbeat may add.
const ROOM: usize = 512;

#[derive(Deserialize)]
struct Node<'a> {
    #[serde(borrow)]
    metadata: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: BTreeMap<&'a str, &'a RawValue>,
}

/// Splits a stored Node into a value, with only those fields of the status that the patch mentions, and the others.
/// None if the patch may touch more than that.
pub fn split(stored: &Arc<Stored>, patch: &Value) -> Option<(Value, Aside)> {
    let mentioned = mentioned(patch)?;
    let json = &*stored.json;
    let node: Node = if json.contains(WRITTEN_PLACE) { return None } else { serde_json::from_str(json).ok()? };
    let mut fields = Vec::new();
    let mut read = |key: &str, value: &RawValue, is_needed: bool| {
        if is_needed {
            return serde_json::from_str(value.get()).ok().map(|value| (key.to_owned(), value));
        }
        let begin = value.get().as_ptr().addr() - json.as_ptr().addr();
        fields.push((key.into(), begin..begin + value.get().len()));
        Some((key.to_owned(), Value::String(format!("{PLACE}{key}"))))
    };
    let is_own = |key: &str| !(matches!(key, LABELS | "annotations") && patch.get("metadata").is_none());
    let metadata: Option<Map<_, _>> = node.metadata.into_iter().map(|(key, value)| read(key, value, is_own(key))).collect();
    let spec = node.spec.and_then(|spec| read("spec", spec, false));
    let status = node.status.into_iter().map(|(key, value)| read(key, value, mentioned.contains(&key)));
    let status: Option<Map<_, _>> = status.collect();
    let parts = [("metadata".to_owned(), Value::Object(metadata?)), ("status".to_owned(), Value::Object(status?))];
    let light = parts.into_iter().chain(spec).collect();
    Some((Value::Object(light), Aside { of: Some(stored.clone()), fields }))
}

/// The fields of the status that a patch is about; None if it may be about more.
fn mentioned(patch: &Value) -> Option<Vec<&str>> {
    let is_small = patch.as_object()?.keys().all(|key| key == "status" || key == "metadata");
    if !is_small || patch["metadata"].get("managedFields").is_some() || has_mark(patch) {
        return None;
    }
    let fields = patch["status"].as_object()?.keys().map(|key| match key.strip_prefix("$setElementOrder/") {
        Some(field) => Some(field),
        // Other directives reach further than their place.
        None => (!key.starts_with('$')).then_some(key.as_str()),
    });
    let mut fields: Vec<&str> = fields.collect::<Option<_>>()?;
    // Where it is missing, what is allocatable is the capacity.
    if fields.contains(&"allocatable") {
        fields.push("capacity");
    }
    Some(fields)
}

fn has_mark(patch: &Value) -> bool {
    match patch {
        Value::Object(map) => map.values().any(has_mark),
        Value::Array(list) => list.iter().any(has_mark),
        Value::String(text) => text.starts_with(PLACE),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Aside {
    /// The object's labels, if they are left aside.
    pub fn labels(&self) -> Option<&Arc<str>> {
        self.of.as_ref().filter(|_| self.fields.iter().any(|(key, _)| **key == *LABELS)).map(|of| &of.labels)
    }
}

/// The text of an object, in memory of just its size: what grows by doubling leaves holes behind.
pub fn text(object: &Value, aside: &Aside) -> Box<str> {
    let Some(of) = &aside.of else {
        // Faster than by Display, which goes through a formatter.
        return serde_json::to_string(object).unwrap_or_default().as_str().into();
    };
    let left: usize = aside.fields.iter().map(|(_, range)| range.len()).sum();
    let mut light = Vec::with_capacity(of.json.len() - left + ROOM);
    serde_json::to_writer(&mut light, object).expect("a value is JSON, and memory takes all of it");
    let light = String::from_utf8(light).expect("JSON is text");
    let mut parts = Vec::with_capacity(2 * aside.fields.len() + 1);
    let mut places = light.split(WRITTEN_PLACE);
    parts.extend(places.next());
    for place in places {
        let (key, rest) = place.split_once('"').unwrap_or((place, ""));
        let field = aside.fields.iter().find(|(own, _)| **own == *key);
        parts.extend(field.map(|(_, range)| &of.json[range.clone()]));
        parts.push(rest);
    }
    parts.concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(node: &Value) -> Arc<Stored> {
        Arc::new(Stored::of(node, &Aside::default(), 1))
    }

    #[test]
    fn what_is_split_is_put_together_again() {
        let node = json!({
            "metadata": {"annotations": {"x": "\"images\":[1]", "y": "a\0"}, "labels": {"a": "b"}},
            "spec": {"taints": []},
            "status": {"addresses": [], "conditions": [{"type": "Ready"}], "images": [{"names": ["a]\"[", "\\"]}], "nodeInfo": {}},
        });
        let (light, aside) = split(&stored(&node), &json!({"status": {"conditions": []}})).expect("it is split");
        assert_eq!(light["status"]["conditions"], node["status"]["conditions"]);
        assert_eq!(light["status"]["images"], "\0images");
        assert_eq!(light["metadata"]["labels"], "\0labels");
        assert_eq!(&*text(&light, &aside), node.to_string());
        assert_eq!(Stored::of(&light, &aside, 2).labels, stored(&node).labels);
        let patch = json!({"metadata": {"labels": {}}, "status": {"$setElementOrder/addresses": []}});
        let (light, aside) = split(&stored(&node), &patch).expect("it is split");
        assert_eq!(light["metadata"], node["metadata"]);
        assert_eq!(light["status"]["addresses"], json!([]));
        assert_eq!(&*text(&light, &aside), node.to_string());
    }

    #[test]
    fn what_may_reach_further_is_not_split() {
        let node = json!({"metadata": {}, "status": {"images": []}});
        let rows = [
            json!({"spec": {}, "status": {}}),
            json!({"status": null}),
            json!({"metadata": {}}),
            json!({"status": {"$retainKeys": ["conditions"]}}),
            json!({"metadata": {"managedFields": []}, "status": {}}),
            json!({"status": {"phase": "\0images"}}),
        ];
        for patch in rows {
            assert!(split(&stored(&node), &patch).is_none(), "{patch}");
        }
        let marked = json!({"metadata": {"annotations": {"a": "\0images"}}, "status": {"images": []}});
        assert!(split(&stored(&marked), &json!({"status": {}})).is_none());
    }
}
