//! What is stored, and in which order did it change?
//!
//! Objects are kept as JSON text without `apiVersion` and `kind`: a fraction of the memory that parsed values take, and
//! lists and watches only copy. A history of changes serves watches and consistent pages of lists.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::aside::{self, Aside};
use crate::resource::Resource;

/// Changes kept for each kind. Clients that fall further behind list anew.
const HISTORY_MAX: usize = 10_000;
/// Old versions may take a sixteenth of the memory that the live objects of their kind take, ...
const HISTORY_SHARE: usize = 16;
/// ... or this many bytes if that is more.
const HISTORY_BYTES_MIN: usize = 4 << 20;

#[derive(Default)]
pub struct Store {
    version: u64,
    tables: BTreeMap<TableName, Table>,
}

/// Group and plural: all versions of a kind are stored as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    pub group: String,
    pub plural: String,
}

/// Ordered as the API lists, which is by the text `namespace/name`: `a-b` comes before `a`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
}

impl Key {
    fn text(&self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain(*b"/").chain(self.name.bytes())
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        match self.namespace == other.namespace {
            true => self.name.cmp(&other.name),
            false => self.text().cmp(other.text()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub struct Stored {
    pub version: u64,
    /// An object without `apiVersion` and `kind`; it begins with `{"` and has at least metadata.
    pub json: Box<str>,
    /// For selectors: `key=value` lines, so that matching parses nothing.
    pub labels: Arc<str>,
    /// For the garbage collector: most objects have no owner and are not being deleted.
    pub is_owned: bool,
    pub is_ending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Added,
    Modified,
    Deleted,
}

pub struct Change {
    pub version: u64,
    pub key: Key,
    pub kind: Type,
    /// After the change; of a deletion: the last state, with the version of the deletion.
    pub object: Arc<Stored>,
    pub before: Option<Arc<Stored>>,
}

#[derive(Default)]
pub struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    live_bytes: usize,
    history: VecDeque<Change>,
    /// Of versions that only the history keeps.
    history_bytes: usize,
    /// The version of the newest change that is forgotten; who knows only older ones has missed something.
    forgotten: u64,
    line: RefCell<Option<Line>>,
}

/// What was told last: most watchers want to hear the same.
struct Line {
    version: u64,
    api_version: String,
    kind: &'static str,
    text: Bytes,
}

impl Store {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A write will get this version. Kubernetes writes it into the object before it is stored.
    pub fn next_version(&self) -> u64 {
        self.version + 1
    }

    pub fn table(&self, name: &TableName) -> Option<&Table> {
        self.tables.get(name)
    }

    pub fn tables(&self) -> impl Iterator<Item = (&TableName, &Table)> {
        self.tables.iter()
    }

    /// Stores an object whose `metadata.resourceVersion` is [`Store::next_version`].
    pub fn put(&mut self, table: &TableName, key: Key, object: &Value, aside: &Aside) -> Arc<Stored> {
        self.version += 1;
        let mut stored = Stored::of(object, aside, self.version);
        let table = self.tables.entry(table.clone()).or_default();
        // Versions of an object mostly have the same labels.
        if let Some(before) = table.objects.get(&key).filter(|before| before.labels == stored.labels) {
            stored.labels = before.labels.clone();
        }
        let stored = Arc::new(stored);
        let before = table.objects.insert(key.clone(), stored.clone());
        table.live_bytes = table.live_bytes + stored.json.len() - before.as_ref().map_or(0, |old| old.json.len());
        let kind = if before.is_some() { Type::Modified } else { Type::Added };
        table.remember(Change { version: self.version, key, kind, object: stored.clone(), before });
        stored
    }

    /// Removes an object; `last` is its last state, with the version of the deletion.
    pub fn remove(&mut self, table: &TableName, key: &Key, last: &Value, aside: &Aside) -> Option<Arc<Stored>> {
        let table = self.tables.get_mut(table)?;
        let before = table.objects.remove(key)?;
        self.version += 1;
        table.live_bytes -= before.json.len();
        let object = Arc::new(Stored::of(last, aside, self.version));
        let change =
            Change { version: self.version, key: key.clone(), kind: Type::Deleted, object: object.clone(), before: Some(before) };
        table.remember(change);
        Some(object)
    }

    /// A kind that is new has no past: watches from before its time are too old.
    pub fn begin_table(&mut self, table: &TableName) {
        let version = self.version;
        self.tables.entry(table.clone()).or_insert_with(|| Table { forgotten: version, ..Table::default() });
    }

    /// A kind that is no longer served leaves nothing behind.
    pub fn drop_table(&mut self, table: &TableName) {
        self.tables.remove(table);
    }

    pub fn compact(&mut self) {
        for table in self.tables.values_mut() {
            table.history.clear();
            table.history_bytes = 0;
            table.forgotten = self.version;
        }
    }
}

impl Stored {
    /// With what was left aside of it; see [`crate::aside`].
    pub fn of(object: &Value, aside: &Aside, version: u64) -> Stored {
        let metadata = &object["metadata"];
        Stored {
            version,
            json: aside::text(object, aside),
            labels: aside.labels().cloned().unwrap_or_else(|| lines_of(&metadata["labels"])),
            is_owned: metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty()),
            is_ending: metadata["deletionTimestamp"].is_string(),
        }
    }

    /// Without `apiVersion` and `kind`.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).expect("it was a value when it was stored")
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.labels.lines().filter_map(|line| line.split_once('='))
    }
}

fn lines_of(labels: &Value) -> Arc<str> {
    let mut lines = String::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        lines.push_str(key);
        lines.push('=');
        lines.push_str(value.as_str().unwrap_or_default());
        lines.push('\n');
    }
    lines.into()
}

impl Table {
    pub fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// In order, from `after` on (exclusive).
    pub fn objects<'a>(&'a self, namespace: &'a str, after: Option<&Key>) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        let from = match after {
            Some(key) => Excluded(key.clone()),
            None if namespace.is_empty() => Unbounded,
            None => Included(first),
        };
        let within = move |key: &Key| namespace.is_empty() || key.namespace == namespace;
        self.objects.range((from, Unbounded)).take_while(move |(key, _)| within(key))
    }

    /// All objects as they were at a version; None if that is forgotten.
    pub fn at(&self, version: u64) -> Option<BTreeMap<Key, Arc<Stored>>> {
        if version < self.forgotten {
            return None;
        }
        let mut objects = self.objects.clone();
        for change in self.since(version)?.rev() {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }

    /// The changes after a version; None if some are forgotten.
    pub fn since(&self, version: u64) -> Option<impl DoubleEndedIterator<Item = &Change>> {
        if version < self.forgotten {
            return None;
        }
        let first = self.history.partition_point(|change| change.version <= version);
        Some(self.history.range(first..))
    }

    /// The line that tells of a change, made once for all who want it.
    pub fn line(&self, version: u64, resource: &Resource, kind: &'static str, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut known = self.line.borrow_mut();
        match &*known {
            Some(line) if line.version == version && line.kind == kind && line.api_version == resource.version => {
                line.text.clone()
            }
            _ => {
                let text = make();
                *known = Some(Line { version, api_version: resource.version.clone(), kind, text: text.clone() });
                text
            }
        }
    }

    /// The version of the last change; zero if there was none.
    pub fn changed_at(&self) -> u64 {
        self.history.back().map_or(self.forgotten, |change| change.version)
    }

    /// Nothing changed after this version.
    pub fn is_quiet_since(&self, version: u64) -> bool {
        self.history.back().is_none_or(|change| change.version <= version) && self.forgotten <= version
    }

    fn remember(&mut self, change: Change) {
        self.history_bytes += change.cost();
        self.history.push_back(change);
        let bytes_max = (self.live_bytes / HISTORY_SHARE).max(HISTORY_BYTES_MIN);
        while self.history.len() > HISTORY_MAX || self.history_bytes > bytes_max {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_bytes -= oldest.cost();
            self.forgotten = oldest.version;
        }
    }
}

impl Change {
    /// What is kept for its sake alone: the version that it replaced, and of a deletion also the last state.
    fn cost(&self) -> usize {
        let own = if self.kind == Type::Deleted { self.object.json.len() } else { 0 };
        own + self.before.as_ref().map_or(0, |before| before.json.len())
    }
}
