//! How are objects read? Get, list in pages, and the beginning of a watch.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::builtin;
use crate::present::{Form, present_list};
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;
use crate::route::{Query, Route};
use crate::select::{FieldSelector, LabelSelector};
use crate::store::{Key, Store, Stored};
use crate::watch::{Begin, Watch};

/// Which objects of a kind a request means.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    namespace: String,
    /// Of a list or watch of a single name.
    name: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    pub fn parse(route: &Route, query: &Query) -> Result<Filter, Refusal> {
        let labels = LabelSelector::parse(query.get("labelSelector"))?;
        let fields = FieldSelector::parse(query.get("fieldSelector"))?;
        for term in &fields.terms {
            check_field(&route.resource, &term.field)?;
        }
        let name_field = fields.terms.iter().find(|term| term.field == "metadata.name" && term.equals);
        let name = name_field.map_or(route.name.clone(), |term| term.value.clone());
        Ok(Filter { namespace: route.namespace.clone(), name, labels, fields })
    }

    pub fn covers(&self, key: &Key) -> bool {
        (self.namespace.is_empty() || key.namespace == self.namespace) && (self.name.is_empty() || key.name == self.name)
    }

    /// No selector: whatever is covered is meant.
    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn selects(&self, resource: &Resource, stored: &Stored) -> bool {
        if !self.labels.is_empty() && !self.labels.matches(&stored.labels()) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let object = stored.value();
        self.fields.matches(|field| builtin::field_value(resource, &object, field))
    }
}

fn check_field(resource: &Resource, field: &str) -> Result<(), Refusal> {
    let is_own = builtin::selectable(resource).contains(&field);
    let is_custom = resource.selectable.iter().any(|path| path.trim_start_matches('.') == field);
    match is_own || is_custom {
        true => Ok(()),
        false => Err(Refusal::bad_request(builtin::unsupported_field(resource, field))),
    }
}

/// A get may ask for a version that is not older; here all are the newest.
pub fn check_version(store: &Store, query: &Query) -> Result<(), Refusal> {
    match version(query.get("resourceVersion"))? {
        asked if asked > store.version() => Err(too_large(asked, store.version())),
        _ => Ok(()),
    }
}

pub fn get<'a>(store: &'a Store, route: &Route) -> Result<&'a Arc<Stored>, Refusal> {
    let table = store.table(route.resource.table());
    table.and_then(|table| table.get(&route.key())).ok_or_else(|| Refusal::not_found(&route.resource, &route.name))
}

/// The objects that a request means, in order, as of now.
pub fn selected(store: &Store, resource: &Resource, filter: &Filter) -> Vec<(Key, Arc<Stored>)> {
    let Some(table) = store.table(resource.table()) else { return Vec::new() };
    let all = table.objects(&filter.namespace, None);
    let meant = all.filter(|(key, stored)| filter.covers(key) && filter.selects(resource, stored));
    meant.map(|(key, stored)| (key.clone(), stored.clone())).collect()
}

pub fn list(store: &Store, route: &Route, query: &Query, form: Form, now: Timestamp) -> Result<String, Refusal> {
    if query.has("sendInitialEvents") {
        let cause = Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        return Err(list_options(vec![cause]));
    }
    let filter = Filter::parse(route, query)?;
    let limit = number(query, "limit")?.unwrap_or(0).max(0);
    let page = Page::parse(store, query)?;
    let Some((version, objects)) = page.objects(store, &route.resource) else {
        return Err(match page.after {
            Some(_) => Refusal::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            ),
            None => Refusal::expired(format!("The resourceVersion for the provided list is too old: {}", page.version)),
        });
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let after = page.after.as_ref();
    let mut covered = objects.iter().filter(|(key, _)| after.is_none_or(|after| key > after) && filter.covers(key));
    let meant = covered.by_ref().filter(|(_, stored)| filter.selects(&route.resource, stored));
    let items: Vec<_> = meant.take(if limit == 0 { usize::MAX } else { limit }).collect();
    // Whether any of these would be selected is not looked at.
    let rest = covered.count();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some((last, _)) = items.last().filter(|_| rest > 0) {
        metadata["continue"] = json!(token(version, last));
        if filter.selects_all() {
            metadata["remainingItemCount"] = json!(rest);
        }
    }
    Ok(present_list(&route.resource, items.iter().map(|(_, stored)| &*stored.json), &metadata, form, now))
}

/// Which version of the collection is asked for, and from where on.
struct Page {
    after: Option<Key>,
    /// Zero: the newest.
    version: u64,
    exact: bool,
}

impl Page {
    fn parse(store: &Store, query: &Query) -> Result<Page, Refusal> {
        let (resource_version, matching) = (query.get("resourceVersion"), query.get("resourceVersionMatch"));
        check_match(resource_version, matching, query)?;
        if query.has("continue") && !query.get("continue").is_empty() {
            if !matches!(resource_version, "" | "0") {
                return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
            }
            let (version, after) = read_token(query.get("continue"))
                .map_err(|why| Refusal::bad_request(format!("invalid continue token: continue key is not valid: {why}")))?;
            return Ok(Page { after: Some(after), version, exact: true });
        }
        let version = version(resource_version)
            .map_err(|refusal| Refusal::bad_request(format!("invalid resource version: {}", refusal.message)))?;
        if version > store.version() {
            return Err(too_large(version, store.version()));
        }
        Ok(Page { after: None, version, exact: matching == "Exact" })
    }

    /// None: that version is forgotten.
    fn objects(&self, store: &Store, resource: &Resource) -> Option<(u64, Vec<(Key, Arc<Stored>)>)> {
        let Some(table) = store.table(resource.table()) else { return Some((store.version(), Vec::new())) };
        let pairs = |(key, stored): (&Key, &Arc<Stored>)| (key.clone(), stored.clone());
        if !self.exact || table.is_quiet_since(self.version) {
            let version = if self.exact { self.version } else { store.version() };
            return Some((version, table.objects("", None).map(pairs).collect()));
        }
        Some((self.version, table.at(self.version)?.into_iter().collect()))
    }
}

fn check_match(version: &str, matching: &str, query: &Query) -> Result<(), Refusal> {
    let field = "resourceVersionMatch";
    let initial = query.has("sendInitialEvents");
    let mut causes = Vec::new();
    if matching.is_empty() {
        return Ok(());
    }
    if version.is_empty() && !initial {
        causes.push(Cause::forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if !query.get("continue").is_empty() {
        causes.push(Cause::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if matching == "Exact" && version == "0" {
        causes.push(Cause::forbidden(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
    if !matches!(matching, "Exact" | "NotOlderThan") {
        causes.push(Cause::not_supported(field, &json!(matching), &["Exact", "NotOlderThan", ""]));
    }
    match causes.is_empty() {
        true => Ok(()),
        false => Err(list_options(causes)),
    }
}

fn list_options(causes: Vec<Cause>) -> Refusal {
    let options = Resource { group: "meta.k8s.io".into(), kind: "ListOptions".into(), ..Resource::default() };
    Refusal::invalid(&options, "", causes)
}

/// Zero for none.
fn version(text: &str) -> Result<u64, Refusal> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            Refusal::plain(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

fn too_large(asked: u64, current: u64) -> Refusal {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let cause =
        Cause { field: String::new(), reason: "ResourceVersionTooLarge", message: "Too large resource version".to_owned() };
    Refusal::timeout(message, cause)
}

pub fn number(query: &Query, key: &str) -> Result<Option<i64>, Refusal> {
    match query.get(key) {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| Refusal::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
    }
}

/// Where the next page begins; opaque to clients.
fn token(version: u64, last: &Key) -> String {
    let start = format!("{}/{}", last.namespace, last.name);
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": start}).to_string())
}

fn read_token(token: &str) -> Result<(u64, Key), String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| error.to_string())?;
    let value = crate::patch::parse(&bytes)?;
    let parts = value["start"].as_str().and_then(|start| start.split_once('/'));
    let (Some(version), Some((namespace, name))) = (value["rv"].as_u64(), parts) else {
        return Err("it was not made by this server".to_owned());
    };
    Ok((version, Key { namespace: namespace.to_owned(), name: name.to_owned() }))
}

/// The beginning of a watch.
pub fn watch(store: &Store, route: &Route, query: &Query, form: Form, now: Timestamp) -> Result<Watch, Refusal> {
    let filter = Filter::parse(route, query)?;
    let bookmarks = query.flag("allowWatchBookmarks");
    let (wants_initial, matching) = (query.flag("sendInitialEvents"), query.get("resourceVersionMatch"));
    if query.has("sendInitialEvents") && matching != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        let mut causes = vec![Cause::forbidden("resourceVersionMatch", detail)];
        if !matching.is_empty() {
            causes.push(Cause::not_supported("resourceVersionMatch", &json!(matching), &["NotOlderThan"]));
        }
        return Err(list_options(causes));
    }
    if !matching.is_empty() && !query.has("sendInitialEvents") {
        let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return Err(list_options(vec![Cause::forbidden("resourceVersionMatch", detail)]));
    }
    let asked = version(query.get("resourceVersion"))?;
    let begins_now = wants_initial || (asked == 0 && !query.has("sendInitialEvents"));
    let initial = match begins_now {
        true => selected(store, &route.resource, &filter).into_iter().map(|(_, stored)| stored).collect(),
        false => Vec::new(),
    };
    let too_new = asked > store.version() && wants_initial;
    let begin = Begin {
        cursor: if begins_now || asked == 0 { store.version() } else { asked },
        initial,
        marks_initial: wants_initial && bookmarks,
        bookmarks,
        timeout_seconds: number(query, "timeoutSeconds")?,
        refused: too_new.then(|| too_large(asked, store.version())),
    };
    Ok(Watch::new(route.resource.clone(), filter, form, begin, now))
}

/// What the whole list would be, as values with `apiVersion` and `kind`.
pub fn values(store: &Store, resource: &Resource) -> Vec<Value> {
    let Some(table) = store.table(resource.table()) else { return Vec::new() };
    table.objects("", None).map(|(_, stored)| crate::present::object_value(resource, &stored.json)).collect()
}
