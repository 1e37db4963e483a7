//! What does a URL mean?

use std::sync::Arc;

use crate::refusal::Refusal;
use crate::resource::Resource;
use crate::store::Key;

/// A request for a resource.
#[derive(Clone, Debug)]
pub struct Route {
    pub resource: Arc<Resource>,
    /// Empty: all namespaces, or a kind that has none.
    pub namespace: String,
    /// Empty: the collection.
    pub name: String,
    /// Empty: the object itself.
    pub subresource: String,
    /// As in the URL: `v1` or `apps/v1`.
    pub api_version: String,
}

impl Route {
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// None: no path of a resource.
pub fn route(path: &str, resources: &[Arc<Resource>]) -> Result<Option<Route>, Refusal> {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Ok(None),
    };
    if rest.is_empty() {
        return Ok(None);
    }
    let find = |plural: &str| {
        let found = resources.iter().find(|one| one.plural == plural && one.group == group && one.version == version);
        found.cloned().ok_or_else(Refusal::no_such_path)
    };
    let (namespace, rest) = match rest {
        // A Namespace itself, and its own subresources.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(Refusal::no_such_path()),
    };
    let resource = find(plural)?;
    let is_misplaced = resource.namespaced == namespace.is_empty();
    if is_misplaced && !(resource.namespaced && name.is_empty()) {
        return Err(Refusal::no_such_path());
    }
    if !subresource.is_empty() && !resource.has(subresource) {
        return Err(Refusal::no_such_path());
    }
    let api_version = resource.api_version();
    let (namespace, name, subresource) = (namespace.to_owned(), name.to_owned(), subresource.to_owned());
    Ok(Some(Route { resource, namespace, name, subresource, api_version }))
}

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub fn parse(query: &str) -> Query {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        };
        Query { pairs: query.split('&').filter(|part| !part.is_empty()).map(pair).collect() }
    }

    pub fn with(mut self, key: &str, value: &str) -> Query {
        self.pairs.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Empty if absent.
    pub fn get(&self, key: &str) -> &str {
        self.pairs.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(name, _)| name == key)
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// As Go reads booleans in URLs: everything but `false` and `0` is true.
    pub fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key), "false" | "0")
    }
}

/// Percent-decoding; what is not well-formed stays as it is.
fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(hex.unwrap_or(*byte));
        at += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}
