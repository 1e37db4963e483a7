//! What may an operation be?

use std::fmt;

use http::Method;
use serde_json::{Value, json};

use crate::random::draw::Draw;
use crate::random::fragments::{BAD_METADATA, KINDS, Kind, METADATA, parse};

/// So few that operations meet each other's objects.
const NAMES: &[&str] = &["a", "b", "c", "d"];
pub const NAMESPACES: &[&str] = &["random-one", "random-two"];

/// A request. Texts in it that begin with `$version`, `$stale` or `$uid` stand for what the server told of the object.
#[derive(Clone, Debug)]
pub struct Operation {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub body: Option<Value>,
    /// The path of the object that it is about, where it is about one.
    pub object: Option<String>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(|body| format!("{} {body}", self.content_type)).unwrap_or_default();
        write!(f, "{} {}\n{body}", self.method, self.path)
    }
}

pub fn draw(draw: &mut Draw) -> Operation {
    let about = About::draw(draw);
    let verbs: &[(usize, fn(&mut Draw, &About) -> Operation)] = &[
        (14, create),
        (6, get),
        (5, list),
        (14, update),
        (10, merge_patch),
        (9, json_patch),
        (8, strategic_patch),
        (9, apply),
        (10, change_status),
        (4, delete),
        (1, delete_some),
    ];
    let verb = draw.weighted(verbs);
    verb(draw, &about)
}

/// An object that may or may not be there.
struct About {
    kind: &'static Kind,
    name: &'static str,
    /// As `/api/v1/namespaces/random-one/configmaps`.
    all: String,
}

impl About {
    fn draw(draw: &mut Draw) -> About {
        let kind = &KINDS[draw.below(KINDS.len())];
        let name = draw.one_of(NAMES);
        let Kind { root, plural, .. } = kind;
        let namespace = if draw.percent(2) { "random-gone" } else { draw.one_of(NAMESPACES) };
        let all = match kind.namespaced {
            true => format!("{root}/namespaces/{namespace}/{plural}"),
            false => format!("{root}/{plural}"),
        };
        About { kind, name, all }
    }

    fn object(&self) -> String {
        format!("{}/{}", self.all, self.name)
    }

    fn operation(&self, method: Method, path: String, body: Option<Value>) -> Operation {
        Operation { method, path, content_type: "application/json", body, object: Some(self.object()) }
    }

    /// A whole object, mostly good.
    fn body(&self, draw: &mut Draw) -> Value {
        let mut body = json!({"apiVersion": self.kind.api_version(), "kind": self.kind.kind, "metadata": {"name": self.name}});
        merge(&mut body, &parse(self.kind.body));
        for _ in 0..draw.below(3) {
            merge(&mut body, &self.fragment(draw, 8));
        }
        body
    }

    /// A part of an object, bad in so many of a hundred cases.
    fn fragment(&self, draw: &mut Draw, bad: usize) -> Value {
        let (of_metadata, of_kind) = match draw.percent(bad) {
            true => (BAD_METADATA, self.kind.bad),
            false => (METADATA, self.kind.good),
        };
        parse(if draw.percent(35) { draw.one_of(of_metadata) } else { draw.one_of(of_kind) })
    }
}

fn create(draw: &mut Draw, about: &About) -> Operation {
    let mut body = about.body(draw);
    if draw.percent(3) {
        body["metadata"]["name"] = json!("Bad_Name");
    }
    if draw.percent(2) {
        body["kind"] = json!("Wrong");
    }
    if draw.percent(2) {
        body["metadata"]["resourceVersion"] = json!("7");
    }
    let query = write_query(draw);
    about.operation(Method::POST, format!("{}{query}", about.all), Some(body))
}

fn get(draw: &mut Draw, about: &About) -> Operation {
    let status = !about.kind.status.is_empty() && draw.percent(20);
    about.operation(Method::GET, about.object() + if status { "/status" } else { "" }, None)
}

fn list(draw: &mut Draw, about: &About) -> Operation {
    let query = draw.one_of(&[
        "",
        "?labelSelector=color",
        "?labelSelector=color=red",
        "?labelSelector=color!=red",
        "?labelSelector=color%20in%20(red,blue)",
        "?labelSelector=!!",
        "?fieldSelector=metadata.name=a",
        "?fieldSelector=metadata.name!=a",
        "?fieldSelector=spec.nothing=a",
        "?limit=2",
        "?limit=1&labelSelector=color",
        "?limit=x",
        "?continue=nonsense",
        "?resourceVersion=x",
    ]);
    Operation { object: None, ..about.operation(Method::GET, format!("{}{query}", about.all), None) }
}

fn update(draw: &mut Draw, about: &About) -> Operation {
    let mut body = about.body(draw);
    state_version(draw, &mut body);
    if draw.percent(2) {
        body["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    }
    let query = write_query(draw);
    about.operation(Method::PUT, about.object() + &query, Some(body))
}

fn merge_patch(draw: &mut Draw, about: &About) -> Operation {
    let body = patch_body(draw, about);
    let query = write_query(draw);
    Operation {
        content_type: "application/merge-patch+json",
        ..about.operation(Method::PATCH, about.object() + &query, Some(body))
    }
}

fn strategic_patch(draw: &mut Draw, about: &About) -> Operation {
    let body = match draw.percent(12) {
        true => parse(draw.one_of(&[
            r#"{"metadata":{"labels":{"$patch":"replace","color":"red"}}}"#,
            r#"{"metadata":{"labels":{"$patch":"nonsense"}}}"#,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x.io/hold"]}}"#,
            r#"{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-1"}]}}"#,
            r#"{"metadata":{"ownerReferences":[{"name":"no-key"}]}}"#,
            r#"{"metadata":{"$retainKeys":["name","labels"],"labels":{"color":"blue"}}}"#,
        ])),
        false => patch_body(draw, about),
    };
    let query = write_query(draw);
    Operation {
        content_type: "application/strategic-merge-patch+json",
        ..about.operation(Method::PATCH, about.object() + &query, Some(body))
    }
}

fn patch_body(draw: &mut Draw, about: &About) -> Value {
    if draw.percent(3) {
        return draw.one_of(&[json!([1]), json!("text"), json!(null), json!({})]);
    }
    let mut body = about.fragment(draw, 12);
    if draw.percent(30) {
        merge(&mut body, &about.fragment(draw, 10));
    }
    if draw.percent(25) {
        state_version(draw, &mut body);
    }
    body
}

/// Of a fragment each leaf is added, replaced, tested or removed.
fn json_patch(draw: &mut Draw, about: &About) -> Operation {
    let mut steps = Vec::new();
    let fragment = about.fragment(draw, 15);
    leaves(&fragment, "", &mut |path, value| {
        let step = match draw.below(10) {
            0 => json!({"op": "remove", "path": path}),
            1 => json!({"op": "test", "path": path, "value": value}),
            2 | 3 => json!({"op": "replace", "path": path, "value": value}),
            _ => json!({"op": "add", "path": path, "value": value}),
        };
        steps.push(step);
    });
    let extra = match draw.below(12) {
        0 => Some(json!({"op": "test", "path": "/metadata/resourceVersion", "value": "$version"})),
        1 => Some(json!({"op": "test", "path": "/metadata/resourceVersion", "value": "$stale"})),
        2 => Some(json!({"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/color"})),
        3 => Some(json!({"op": "move", "from": "/metadata/labels/color", "path": "/metadata/labels/was"})),
        4 => Some(json!({"op": "add", "path": "/metadata/labels", "value": {"color": "red"}})),
        5 => Some(json!({"op": "invent", "path": "/metadata/labels"})),
        6 => Some(json!({"op": "remove", "path": "/metadata/finalizers/0"})),
        _ => None,
    };
    steps.splice(0..0, extra);
    let query = write_query(draw);
    Operation {
        content_type: "application/json-patch+json",
        ..about.operation(Method::PATCH, about.object() + &query, Some(Value::from(steps)))
    }
}

fn apply(draw: &mut Draw, about: &About) -> Operation {
    let mut body = about.body(draw);
    if draw.percent(3) {
        body["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    }
    if draw.percent(10) {
        state_version(draw, &mut body);
    }
    // The real server stores such nulls of custom kinds, unseen, and so has one more write when the next one drops them.
    if let Some(metadata) = body["metadata"].as_object_mut().filter(|_| about.kind.kind == "Gadget") {
        metadata.retain(|_, value| !value.is_null());
    }
    let mut query = write_query(draw);
    if !query.contains("fieldManager") && !draw.percent(5) {
        query += if query.is_empty() { "?fieldManager=one" } else { "&fieldManager=one" };
    }
    if query.contains("fieldManager") && draw.percent(35) {
        query += "&force=true";
    }
    Operation {
        content_type: "application/apply-patch+yaml",
        ..about.operation(Method::PATCH, about.object() + &query, Some(body))
    }
}

fn change_status(draw: &mut Draw, about: &About) -> Operation {
    if about.kind.status.is_empty() {
        return get(draw, about);
    }
    let mut fragment = parse(draw.one_of(about.kind.status));
    let query = write_query(draw);
    let path = about.object() + "/status" + &query;
    let patch = |content_type, body| Operation { content_type, ..about.operation(Method::PATCH, path.clone(), Some(body)) };
    match draw.below(3) {
        0 => patch("application/merge-patch+json", fragment),
        1 => patch("application/strategic-merge-patch+json", fragment),
        _ => {
            let mut body = about.body(draw);
            merge(&mut body, &fragment);
            state_version(draw, &mut body);
            fragment = body;
            about.operation(Method::PUT, path.clone(), Some(fragment))
        }
    }
}

fn delete(draw: &mut Draw, about: &About) -> Operation {
    let body = match draw.below(12) {
        0 => Some(json!({"preconditions": {"uid": "$uid"}})),
        1 => Some(json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}})),
        2 => Some(json!({"preconditions": {"resourceVersion": "$version"}})),
        3 => Some(json!({"preconditions": {"resourceVersion": "$stale"}})),
        4 => Some(json!({"propagationPolicy": "Foreground"})),
        5 => Some(json!({"propagationPolicy": "Orphan"})),
        6 => Some(json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0})),
        7 => Some(json!({"propagationPolicy": "Sideways"})),
        // So much that it is not over when a slow server comes to it.
        8 => Some(json!({"gracePeriodSeconds": 1000})),
        9 => Some(json!({"kind": "Wrong", "apiVersion": "v1"})),
        _ => None,
    };
    let query = if draw.percent(8) { "?dryRun=All" } else { "" };
    about.operation(Method::DELETE, about.object() + query, body)
}

fn delete_some(draw: &mut Draw, about: &About) -> Operation {
    let query = draw.one_of(&["?labelSelector=color=red", "?fieldSelector=metadata.name=b", "?labelSelector=!!", "?dryRun=All"]);
    Operation { object: None, ..about.operation(Method::DELETE, format!("{}{query}", about.all), None) }
}

/// The version that the object has, one that it had, one that never was, or none.
fn state_version(draw: &mut Draw, body: &mut Value) {
    let version = draw.weighted(&[(45, Some("$version")), (20, Some("$stale")), (3, Some("nonsense")), (32, None)]);
    if let (Some(version), Some(body)) = (version, body.as_object_mut()) {
        let metadata = body.entry("metadata").or_insert_with(|| json!({}));
        if metadata.is_object() {
            metadata["resourceVersion"] = json!(version);
        }
    }
}

fn write_query(draw: &mut Draw) -> String {
    let mut parameters = Vec::new();
    if draw.percent(35) {
        parameters.push(draw.one_of(&["fieldManager=one", "fieldManager=two"]));
    }
    if draw.percent(6) {
        parameters.push("dryRun=All");
    }
    if draw.percent(20) {
        parameters.push(draw.one_of(&[
            "fieldValidation=Strict",
            "fieldValidation=Strict",
            "fieldValidation=Ignore",
            "fieldValidation=Odd",
        ]));
    }
    if draw.percent(1) {
        parameters.push("dryRun=Some");
    }
    if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) }
}

/// As a JSON merge patch does, but nulls stay, as they are part of what is sent.
fn merge(into: &mut Value, fragment: &Value) {
    match (into, fragment) {
        (Value::Object(into), Value::Object(fragment)) => {
            for (key, value) in fragment {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, fragment) => *into = fragment.clone(),
    }
}

fn leaves(value: &Value, path: &str, found: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                leaves(value, &format!("{path}/{}", key.replace('/', "~1")), found);
            }
        }
        leaf => found(path, leaf),
    }
}
