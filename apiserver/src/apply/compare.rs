//! What changed between two versions of an object, and what does an object set at all?
//!
//! Both are walked together, and only what differs costs anything. Two things make it more than a comparison of JSON:
//! lists whose elements have identities, and fields that Kubernetes' own types always have, set or not.

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use super::set::key_of;
use super::set::{Set, Step};
use crate::schema::{List, Schema, Type};

#[derive(Debug, Default)]
pub struct Changes {
    /// Added or with another value.
    pub set: Set,
    pub removed: Set,
}

/// Nobody owns what identifies an object or what only the server writes.
const UNTRACKED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
static NULL: Value = Value::Null;

/// The same for all kinds; schemas of CRDs do not say it.
static METADATA: LazyLock<Schema> = LazyLock::new(|| {
    let list = |list: List, items: Schema| {
        let items = Some(items.into());
        Schema { kind: Type::Array, list, items, ..Schema::default() }
    };
    let owner = Schema { kind: Type::Object, atomic: true, ..Schema::default() };
    let text = || Schema { kind: Type::String, ..Schema::default() };
    let texts = || Schema { kind: Type::Object, values: Some(text().into()), ..Schema::default() };
    let owners = list(List::Map { keys: vec!["uid".to_owned()] }, owner);
    let properties = [
        ("labels", texts()),
        ("annotations", texts()),
        ("finalizers", list(List::Set, text())),
        ("ownerReferences", owners),
        ("managedFields", list(List::Atomic, Schema::default())),
    ];
    let properties = properties.into_iter().map(|(name, schema)| (name.to_owned(), schema.into()));
    Schema { kind: Type::Object, properties: properties.collect(), ..Schema::default() }
});

/// What an applied configuration may name without owning it.
pub fn untracked() -> Set {
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[Step::Field(name)]);
    }
    for name in UNTRACKED {
        set.insert(&[Step::Field("metadata"), Step::Field(name)]);
    }
    set
}

/// The schema of a field. Metadata is always that of Kubernetes.
pub fn field<'a>(schema: Option<&'a Schema>, name: &str, is_root: bool) -> Option<&'a Schema> {
    match (is_root, name) {
        (true, "metadata") => Some(&METADATA),
        _ => schema?.field(name).map(AsRef::as_ref),
    }
}

pub fn changes(old: Option<&Value>, new: &Value, schema: &Schema) -> Changes {
    walk(old, new, schema, Empties::AreNothing)
}

/// As [`changes`], but a merged configuration is compared as it is, before it becomes one of Kubernetes' own types.
pub fn changes_as_merged(old: Option<&Value>, merged: &Value, schema: &Schema) -> Changes {
    walk(old, merged, schema, Empties::AreValues)
}

/// What nulls and empty lists and maps are in fields of Kubernetes' own types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empties {
    AreNothing,
    AreValues,
}

fn walk(old: Option<&Value>, new: &Value, schema: &Schema, empties: Empties) -> Changes {
    let mut walk = Walk { path: Vec::new(), changes: Changes::default(), empties };
    let old = old.and_then(Value::as_object).unwrap_or(&NOTHING);
    walk.fields(old, new.as_object().unwrap_or(&NOTHING), Some(schema));
    walk.changes
}

struct Walk<'a> {
    path: Vec<Step<'a>>,
    changes: Changes,
    empties: Empties,
}

impl<'a> Walk<'a> {
    fn fields(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, schema: Option<&'a Schema>) {
        for (name, old_value) in old {
            self.field(name, Some(old_value), new.get(name), schema);
        }
        for (name, new_value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            self.field(name, None, Some(new_value), schema);
        }
    }

    fn field(&mut self, name: &'a str, old: Option<&'a Value>, new: Option<&'a Value>, parent: Option<&'a Schema>) {
        // Most fields are scalars that did not change: they need no look at the schema.
        if let (Some(old), Some(new)) = (old, new)
            && !matches!(old, Value::Object(_) | Value::Array(_))
            && old == new
        {
            return;
        }
        let untracked = match self.path.as_slice() {
            [] => matches!(name, "apiVersion" | "kind"),
            [Step::Field("metadata")] => UNTRACKED.contains(&name),
            _ => false,
        };
        if untracked {
            return;
        }
        let is_metadata = self.path.is_empty() && name == "metadata";
        let schema = field(parent, name, self.path.is_empty());
        let unset = if is_metadata { Some(&NULL) } else { unset(parent, name, schema) };
        let is_kept = |value: &&Value| self.empties == Empties::AreValues || is_kept(value, parent, name, schema);
        let old = old.filter(is_kept).or(unset);
        let new = new.filter(is_kept).or(unset);
        self.path.push(Step::Field(name));
        self.values(old, new, schema);
        self.path.pop();
    }

    fn values(&mut self, old: Option<&'a Value>, new: Option<&'a Value>, schema: Option<&'a Schema>) {
        match (old, new) {
            (None, None) => {}
            (Some(gone), None) => one_sided(&mut self.path, gone, schema, self.empties, &mut self.changes.removed),
            (None, Some(added)) => one_sided(&mut self.path, added, schema, self.empties, &mut self.changes.set),
            (Some(old), Some(new)) => match (parts(old, new, schema), parts(new, old, schema)) {
                (Parts::Fields(old), Parts::Fields(new)) => self.fields(old, new, schema),
                (Parts::Elements(old, keys), Parts::Elements(new, _)) => self.elements(old, new, keys, items(schema)),
                _ if old != new => self.changes.set.insert(&self.path),
                _ => {}
            },
        }
    }

    fn elements(&mut self, old: &'a [Value], new: &'a [Value], keys: &'a [String], items: Option<&'a Schema>) {
        for (at, old_one) in old.iter().enumerate() {
            let found = find(new, old_one, at, keys, items);
            self.path.push(step(old_one, keys, items));
            self.values(Some(old_one), found.map(|at| &new[at]), items);
            self.path.pop();
        }
        for (at, added) in new.iter().enumerate() {
            if find(old, added, at, keys, items).is_none() {
                self.path.push(step(added, keys, items));
                self.values(None, Some(added), items);
                self.path.pop();
            }
        }
    }
}

/// Everything in a value that is there on one side only, itself included.
fn one_sided<'a>(path: &mut Vec<Step<'a>>, value: &'a Value, schema: Option<&'a Schema>, empties: Empties, set: &mut Set) {
    set.insert(path);
    match parts(value, value, schema) {
        Parts::Whole => {}
        Parts::Fields(map) => {
            for (name, value) in map {
                let child = field(schema, name, false);
                let is_kept = empties == Empties::AreValues || is_kept(value, schema, name, child);
                if is_kept || unset(schema, name, child).is_some() {
                    path.push(Step::Field(name));
                    one_sided(path, value, child, empties, set);
                    path.pop();
                }
            }
            let declared = schema.map(|schema| &schema.properties).into_iter().flatten();
            for (name, child) in declared.filter(|(name, _)| !map.contains_key(*name)) {
                if let Some(unset) = unset(schema, name, Some(child)) {
                    path.push(Step::Field(name));
                    one_sided(path, unset, Some(child), empties, set);
                    path.pop();
                }
            }
        }
        Parts::Elements(list, keys) => {
            for one in list {
                path.push(step(one, keys, items(schema)));
                one_sided(path, one, items(schema), empties, set);
                path.pop();
            }
        }
    }
}

/// The fields that an applied configuration sets: leaves, list elements and keys of maps.
pub fn field_set(applied: &Value, schema: &Schema) -> Set {
    let mut set = Set::default();
    leaves(&mut Vec::new(), applied, Some(schema), &mut set);
    set
}

fn leaves<'a>(path: &mut Vec<Step<'a>>, value: &'a Value, schema: Option<&'a Schema>, set: &mut Set) {
    match parts(value, value, schema) {
        Parts::Whole => set.insert(path),
        Parts::Fields(map) => {
            for (name, value) in map {
                let is_root = path.is_empty();
                path.push(Step::Field(name));
                leaves(path, value, field(schema, name, is_root), set);
                let is_declared = is_declared(schema, name, is_root);
                if !is_declared || value.as_object().is_some_and(Map::is_empty) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Parts::Elements(list, keys) => {
            for one in list {
                path.push(step(one, keys, items(schema)));
                leaves(path, one, items(schema), set);
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// Whether a name is one of a type's own fields, not the key of a map.
pub fn is_declared(schema: Option<&Schema>, name: &str, is_root: bool) -> bool {
    (is_root && matches!(name, "apiVersion" | "kind" | "metadata"))
        || schema.is_some_and(|schema| schema.properties.contains_key(name))
}

pub enum Parts<'a> {
    /// Owned as a whole: scalars, and what is atomic.
    Whole,
    Fields(&'a Map<String, Value>),
    /// With the keys that tell the elements apart; a set has none.
    Elements(&'a [Value], &'a [String]),
}

/// How a value falls into parts. Null has the parts that the other side has, namely none.
pub fn parts<'a>(value: &'a Value, other: &'a Value, schema: Option<&'a Schema>) -> Parts<'a> {
    let list = schema.map_or(&List::Atomic, |schema| &schema.list);
    let keys: &[String] = match list {
        List::Map { keys } => keys,
        List::Set | List::Atomic => &[],
    };
    match (value, other) {
        (Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) if schema.is_some_and(|schema| schema.atomic) => {
            Parts::Whole
        }
        (Value::Object(map), _) => Parts::Fields(map),
        (Value::Null, Value::Object(_)) => Parts::Fields(&NOTHING),
        (Value::Array(_), _) | (Value::Null, Value::Array(_)) if *list == List::Atomic => Parts::Whole,
        (Value::Array(list), _) => Parts::Elements(list, keys),
        (Value::Null, Value::Array(_)) => Parts::Elements(&[], keys),
        _ => Parts::Whole,
    }
}

pub fn items(schema: Option<&Schema>) -> Option<&Schema> {
    schema.and_then(|schema| schema.items.as_deref())
}

pub fn step<'a>(element: &'a Value, keys: &'a [String], items: Option<&'a Schema>) -> Step<'a> {
    if keys.is_empty() { Step::Member(element) } else { Step::Element(element, keys, items) }
}

/// Where in a list the same element stands; most likely at the same place.
pub fn find(list: &[Value], one: &Value, likely: usize, keys: &[String], items: Option<&Schema>) -> Option<usize> {
    let is_same = |other: &Value| match keys.is_empty() {
        true => other == one,
        false => keys.iter().all(|key| key_of(other, key, items) == key_of(one, key, items)),
    };
    if list.get(likely).is_some_and(is_same) {
        return Some(likely);
    }
    list.iter().position(is_same)
}

fn is_builtin(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|schema| schema.source.is_empty() && schema.kind == Type::Object)
}

/// Kubernetes' own types do not tell an empty list or map from none, except in fields that they print even so.
fn is_kept(value: &Value, parent: Option<&Schema>, name: &str, schema: Option<&Schema>) -> bool {
    let is_empty = match value {
        // A time that is not set is printed as null.
        Value::Null => schema.is_none_or(|schema| schema.format.as_deref() != Some("date-time")),
        Value::Array(list) => list.is_empty() && !is_required_list(parent, name, schema),
        Value::Object(map) => map.is_empty() && schema.is_some_and(|schema| schema.values.is_some()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    !(is_empty && is_builtin(parent))
}

/// What a field of Kubernetes' own types is while nobody sets it: such fields never come or go.
fn unset<'a>(parent: Option<&'a Schema>, name: &str, schema: Option<&'a Schema>) -> Option<&'a Value> {
    if !is_builtin(parent) {
        return None;
    }
    let is_zero = |value: &&Value| match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    };
    // The keys of a map do come and go.
    if !parent?.properties.contains_key(name) {
        return None;
    }
    schema?.unset.as_ref().filter(is_zero).or_else(|| is_required_list(parent, name, schema).then_some(&NULL))
}

/// Lists that are printed as null where there is none: those that must be there, and the rules of roles.
fn is_required_list(parent: Option<&Schema>, name: &str, schema: Option<&Schema>) -> bool {
    let is_list = schema.is_some_and(|schema| schema.items.is_some());
    let is_rules = |parent: &Schema| name == "rules" && parent.name.starts_with("io.k8s.api.rbac.");
    is_list && parent.is_some_and(|parent| is_rules(parent) || parent.required.iter().any(|one| one == name))
}
