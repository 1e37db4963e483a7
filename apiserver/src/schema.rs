//! What shape does a kind have?
//!
//! One form for the OpenAPI schemas of built-in kinds and for those in CRDs. Patches look here for merge keys,
//! server-side apply for what is atomic, validation for everything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::structural::Rules as Checks;

#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Of built-in schemas: as in the OpenAPI document, `io.k8s.api.core.v1.Pod`.
    pub name: String,
    pub kind: Type,
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// Of maps: what each value looks like.
    pub values: Option<Arc<Schema>>,
    pub items: Option<Arc<Schema>>,
    pub list: List,
    /// `x-kubernetes-map-type: atomic`: replaced as a whole by server-side apply.
    pub atomic: bool,
    /// How a strategic merge patch treats this field, by `x-kubernetes-patch-strategy` and `-merge-key`.
    pub strategy: Strategy,
    pub nullable: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub default: Option<Value>,
    /// Of built-in kinds: what Kubernetes takes this field for while nobody sets it: its zero, or the default of a list key.
    pub unset: Option<Value>,
    pub format: Option<String>,
    pub required: Vec<String>,
    /// The schema as it was written: `enum`, `pattern`, limits, `anyOf` and so on, and `x-kubernetes-validations`.
    /// Empty for built-in kinds, whose rules are code.
    pub source: Arc<Map<String, Value>>,
    /// Of schemas in CRDs: what is demanded of values, read once. None for built-in kinds.
    pub checks: Option<Arc<Checks>>,
    /// Of `x-kubernetes-validations`, compiled when they are first needed.
    pub rules: crate::cel::Rules,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// Nothing is said: anything goes.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// Built-in kinds only: a number or a string such as `100m`.
    Quantity,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum List {
    #[default]
    Atomic,
    Set,
    Map {
        keys: Vec<String>,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    pub merge: bool,
    pub retain_keys: bool,
    /// Of lists of objects that are merged; lists of scalars have none.
    pub merge_key: Option<String>,
}

/// Schemas may refer to each other in circles (that of CRDs does). Deeper than this nobody looks: anything goes.
const DEPTH_MAX: usize = 24;

impl Schema {
    /// The schema of a CRD's version.
    pub fn of_crd(source: &Value) -> Schema {
        read(source, &Map::new(), &mut Vec::new(), true)
    }

    /// One of the built-in schemas, by name.
    pub fn of_kind(name: &str, all: &Map<String, Value>) -> Schema {
        all.get(name)
            .map(|source| Schema { name: name.to_owned(), ..read(source, all, &mut vec![name.to_owned()], false) })
            .unwrap_or_default()
    }

    /// The schema of a field; nothing where the field is unknown.
    pub fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.values.as_ref())
    }
}

fn read(source: &Value, all: &Map<String, Value>, within: &mut Vec<String>, keep: bool) -> Schema {
    let Some(map) = source.as_object() else { return Schema { preserve_unknown: true, ..Schema::default() } };
    if let Some(name) = reference(map) {
        return refer(name, map, all, within);
    }
    let child = |value: &Value, within: &mut Vec<String>| Arc::new(read(value, all, within, keep));
    let flag = |key: &str| map.get(key).and_then(Value::as_bool) == Some(true);
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let properties = map.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten().map(|(name, value)| (name.clone(), child(value, within))).collect();
    let values = map.get("additionalProperties").filter(|value| value.is_object()).map(|value| child(value, within));
    let items = map.get("items").map(|value| child(value, within));
    let checks = keep.then(|| Arc::new(Checks::read(map, &|value| read(value, all, &mut Vec::new(), true))));
    Schema {
        name: String::new(),
        kind: kind(map, text("type"), flag("x-kubernetes-int-or-string")),
        properties,
        values,
        items,
        list: list(map, text("x-kubernetes-list-type")),
        atomic: text("x-kubernetes-map-type") == Some("atomic"),
        strategy: strategy(text("x-kubernetes-patch-strategy"), text("x-kubernetes-patch-merge-key")),
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields")
            || map.get("additionalProperties") == Some(&Value::Bool(true)),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        default: map.get("default").filter(|_| keep).cloned(),
        unset: map.get("default").filter(|_| !keep).cloned(),
        format: text("format").map(str::to_owned),
        required: strings(map.get("required")),
        source: Arc::new(if keep { map.clone() } else { Map::new() }),
        checks,
        rules: crate::cel::Rules::default(),
    }
}

/// Built-in schemas say `allOf: [{$ref}]` where a default or a description stands beside the reference.
fn reference(map: &Map<String, Value>) -> Option<&str> {
    let direct = map.get("$ref").and_then(Value::as_str);
    let wrapped = || map.get("allOf")?.as_array()?.first()?.get("$ref")?.as_str();
    direct.or_else(wrapped)?.rsplit('/').next()
}

fn refer(name: &str, beside: &Map<String, Value>, all: &Map<String, Value>, within: &mut Vec<String>) -> Schema {
    if within.iter().any(|outer| outer == name) || within.len() >= DEPTH_MAX {
        return Schema { name: name.to_owned(), preserve_unknown: true, ..Schema::default() };
    }
    if name.ends_with(".Quantity") {
        return Schema { kind: Type::Quantity, ..Schema::default() };
    }
    within.push(name.to_owned());
    let mut schema = all.get(name).map(|source| read(source, all, within, false)).unwrap_or_default();
    within.pop();
    schema.name = name.to_owned();
    schema.unset = beside.get("default").cloned();
    schema.atomic |= beside.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
    if let Some(strategy_here) = beside.get("x-kubernetes-patch-strategy").and_then(Value::as_str) {
        schema.strategy = strategy(Some(strategy_here), None);
    }
    schema
}

fn kind(map: &Map<String, Value>, kind: Option<&str>, int_or_string: bool) -> Type {
    let is_either = int_or_string || map.get("format").and_then(Value::as_str) == Some("int-or-string");
    match kind {
        _ if is_either => Type::IntOrString,
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        Some(_) | None => Type::Any,
    }
}

fn list(map: &Map<String, Value>, kind: Option<&str>) -> List {
    match kind {
        Some("set") => List::Set,
        Some("map") => List::Map { keys: strings(map.get("x-kubernetes-list-map-keys")) },
        Some(_) | None => List::Atomic,
    }
}

fn strategy(names: Option<&str>, merge_key: Option<&str>) -> Strategy {
    let names = names.unwrap_or_default();
    Strategy {
        merge: names.split(',').any(|name| name == "merge"),
        retain_keys: names.split(',').any(|name| name == "retainKeys"),
        merge_key: merge_key.map(str::to_owned),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
