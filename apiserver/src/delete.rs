//! When is an object gone? Preconditions, grace periods, finalizers, and whole collections.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::ask::{self, Ask, media_type, options_invalid, seconds};
use crate::present::{Form, present_list, stored_value};
use crate::read::{self, Filter};
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;
use crate::route::{Query, Route};
use crate::server::Server;
use crate::store::{Key, Stored};
use crate::wire;
use crate::write::text;

/// How a client wants an object to go.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    grace_seconds: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    /// `Orphan`, `Background` or `Foreground`.
    propagation: Option<String>,
    /// The old form of it.
    orphans: Option<bool>,
    dry_run: Vec<String>,
}

/// What became of a deletion.
pub enum Deleted {
    /// Gone, in its last state.
    Gone(Arc<Stored>),
    /// Marked; it goes when its finalizers are gone, or its time is over.
    Waits(Arc<Stored>),
}

/// Namespaces that every cluster has and needs.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
/// These kinds answer with the object that is gone; all others with a Status.
const SHOWN: [(&str, &str); 4] =
    [("", "pods"), ("", "namespaces"), ("", "serviceaccounts"), ("storage.k8s.io", "volumeattachments")];

impl DeleteOptions {
    pub fn parse(ask: &Ask) -> Result<DeleteOptions, Refusal> {
        let options = match ask.body.is_empty() {
            true => DeleteOptions::from_query(&ask.query)?,
            false => DeleteOptions::from_body(&parse_options(ask)?)?,
        };
        let mut causes = Vec::new();
        if options.orphans.is_some() && options.propagation.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &json!(options.propagation), why));
        }
        if options.dry_run.iter().any(|one| one != "All") {
            causes.push(Cause::not_supported("dryRun", &json!(options.dry_run), &["All"]));
        }
        let known = [None, Some("Orphan"), Some("Background"), Some("Foreground")];
        if !known.contains(&options.propagation.as_deref()) {
            causes.push(Cause::not_supported(
                "propagationPolicy",
                &json!(options.propagation),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        match causes.is_empty() {
            true => Ok(options),
            false => Err(options_invalid("DeleteOptions", causes)),
        }
    }

    fn from_query(query: &Query) -> Result<DeleteOptions, Refusal> {
        let set = |key: &str| query.has(key).then(|| query.get(key).to_owned());
        Ok(DeleteOptions {
            grace_seconds: read::number(query, "gracePeriodSeconds")?,
            propagation: set("propagationPolicy"),
            orphans: query.has("orphanDependents").then(|| query.flag("orphanDependents")),
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            ..DeleteOptions::default()
        })
    }

    pub fn from_body(body: &Value) -> Result<DeleteOptions, Refusal> {
        let kind = text(body, "kind");
        if !kind.is_empty() && kind != "DeleteOptions" {
            let version = text(body, "apiVersion");
            return Err(Refusal::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        let set = |value: &Value| value.as_str().map(str::to_owned);
        Ok(DeleteOptions {
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: set(&body["preconditions"]["uid"]),
            version: set(&body["preconditions"]["resourceVersion"]),
            propagation: set(&body["propagationPolicy"]),
            orphans: body["orphanDependents"].as_bool(),
            dry_run: strings(&body["dryRun"]),
        })
    }

    /// Whoever sends a body is not asked for parameters beside it.
    fn understood(&self, ask: &Ask) -> Ask {
        Ask { dry_run: !self.dry_run.is_empty(), ..ask.again() }
    }

    /// Still this very object: for who deletes what it has seen.
    pub fn of(uid: &str, propagation: &str) -> DeleteOptions {
        DeleteOptions { uid: Some(uid.to_owned()), propagation: Some(propagation.to_owned()), ..DeleteOptions::default() }
    }
}

/// Options have no kind to be recognised by.
fn parse_options(ask: &Ask) -> Result<Value, Refusal> {
    if media_type(&ask.content_type) == wire::MEDIA_TYPE {
        return wire::decode(&ask.body, "v1", "DeleteOptions").map_err(|wrong| Refusal::bad_request(wrong.what));
    }
    let unread = "the object provided is unrecognized";
    ask.parse_body().map(|(body, _)| body).map_err(|refusal| match refusal.message.starts_with(unread) {
        true => Refusal::bad_request(ask::not_json(&ask.body).rsplit_once(" (").map_or("", |(why, _)| why)),
        false => refusal,
    })
}

impl Server {
    /// Code and body of the answer.
    pub(crate) fn delete(&mut self, ask: &Ask) -> Result<(u16, Vec<u8>), Refusal> {
        let options = DeleteOptions::parse(ask)?;
        let ask = &options.understood(ask);
        let is_foreground = options.orphans == Some(false);
        let resource = ask.route.resource.clone();
        match self.delete_one(ask, &options)? {
            Deleted::Gone(last) if !is_shown(&resource) => Ok((200, gone(&resource, &last).to_string().into_bytes())),
            Deleted::Gone(last) => Ok((200, self.show(ask, &last))),
            Deleted::Waits(object) => Ok((if is_foreground { 202 } else { 200 }, self.show(ask, &object))),
        }
    }

    pub(crate) fn delete_collection(&mut self, ask: &Ask) -> Result<(u16, Vec<u8>), Refusal> {
        let options = DeleteOptions::parse(ask)?;
        let ask = &options.understood(ask);
        let filter = Filter::parse(&ask.route, &ask.query)?;
        let version = self.store.version();
        let mut shown = Vec::new();
        for (key, stored) in read::selected(&self.store, ask.resource(), &filter) {
            let route = Route { namespace: key.namespace, name: key.name, ..ask.route.clone() };
            let one = Ask { route, body: Vec::new(), ..ask.again() };
            match self.delete_one(&one, &options) {
                Ok(_) => shown.push(stored),
                // Somebody else's deletion was faster.
                Err(refusal) if refusal.code == 404 => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let metadata = json!({"resourceVersion": version.to_string()});
        let items = shown.iter().map(|stored| &*stored.json);
        Ok((200, present_list(ask.resource(), items, &metadata, Form::Object, ask.now).into_bytes()))
    }

    pub(crate) fn delete_one(&mut self, ask: &Ask, options: &DeleteOptions) -> Result<Deleted, Refusal> {
        let resource = ask.route.resource.clone();
        let stored = read::get(&self.store, &ask.route)?.clone();
        let mut object = stored_value(&resource, &stored.json);
        check_preconditions(&resource, &ask.route.name, options, &object)?;
        self.admit_delete(ask, &ask.route.name, &object)?;
        let dry_ask = Ask { dry_run: ask.is_dry_run() || !options.dry_run.is_empty(), ..ask.again() };
        let key = ask.route.key();
        if resource.is("", "namespaces") {
            if IMMORTAL.contains(&ask.route.name.as_str()) {
                return Err(Refusal::forbidden(&resource, &ask.route.name, "this namespace may not be deleted"));
            }
            return Ok(self.delete_namespace(&dry_ask, &key, object));
        }
        let grace = match grace(&resource, &object, options, ask) {
            Grace::Already => return Ok(Deleted::Waits(stored)),
            Grace::None => None,
            Grace::Until { seconds, at } => Some((seconds, at)),
        };
        set_finalizers(&resource, &mut object, options);
        if is_definition(&resource) {
            self.hold_definition(&mut object);
        }
        let has_finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        match grace {
            Some((seconds, ref at)) => mark(&mut object, at, seconds),
            None if has_finalizers => {
                let at = ask.time();
                let earlier = text(&object["metadata"], "deletionTimestamp").to_owned();
                let at = if earlier.is_empty() || earlier > at { at } else { earlier };
                mark(&mut object, &at, 0);
            }
            None => {}
        }
        if has_finalizers || grace.as_ref().is_some_and(|(seconds, _)| *seconds > 0) {
            if object == stored_value(&resource, &stored.json) {
                return Ok(Deleted::Waits(stored));
            }
            return Ok(Deleted::Waits(self.commit(&dry_ask, key, object)));
        }
        if grace.is_some() {
            // Who watches sees that it was to go before it sees that it is gone.
            self.commit(&dry_ask, key.clone(), object.clone());
        } else {
            object = stored_value(&resource, &stored.json);
        }
        Ok(Deleted::Gone(self.remove(&dry_ask, &key, object)))
    }

    /// A namespace empties itself first; its own finalizer holds it until then.
    fn delete_namespace(&mut self, ask: &Ask, key: &Key, mut object: Value) -> Deleted {
        if !object["metadata"]["deletionTimestamp"].is_string() {
            object["metadata"]["deletionTimestamp"] = json!(ask.time());
            object["status"]["phase"] = json!("Terminating");
        }
        let is_held = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        match is_held(&object["spec"]["finalizers"]) || is_held(&object["metadata"]["finalizers"]) {
            true => Deleted::Waits(self.commit(ask, key.clone(), object)),
            false => Deleted::Gone(self.remove(ask, key, object)),
        }
    }
}

enum Grace {
    /// It goes at once, or when its finalizers are gone.
    None,
    /// It is on its way already, no faster than it is asked for now.
    Already,
    Until {
        seconds: i64,
        at: String,
    },
}

/// Only Pods go gracefully: their kubelet ends them first.
fn grace(resource: &Resource, object: &Value, options: &DeleteOptions, ask: &Ask) -> Grace {
    if !resource.is("", "pods") {
        return Grace::None;
    }
    let metadata = &object["metadata"];
    let asked = options.grace_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let after = |seconds: i64| crate::ask::seconds(ask.now + SignedDuration::from_secs(seconds.clamp(0, GRACE_MAX)));
    if let Some(deleted_at) = metadata["deletionTimestamp"].as_str() {
        let left = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        return match asked {
            _ if left == 0 => Grace::None,
            Some(seconds) if seconds < left => {
                let began = deleted_at.parse::<jiff::Timestamp>().ok().map(|at| at - SignedDuration::from_secs(left));
                let at = began.map_or(ask.now, |began| began + SignedDuration::from_secs(seconds));
                let seconds = if at < ask.now && seconds != 0 { 1 } else { seconds };
                Grace::Until { seconds, at: self::seconds(at.max(ask.now)) }
            }
            _ => Grace::Already,
        };
    }
    let is_over =
        matches!(text(&object["status"], "phase"), "Failed" | "Succeeded") || text(&object["spec"], "nodeName").is_empty();
    let wanted = asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
    let seconds = if is_over { 0 } else { wanted };
    Grace::Until { seconds, at: after(seconds) }
}

/// A century: longer waits only overflow.
const GRACE_MAX: i64 = 100 * 365 * 24 * 3600;

fn mark(object: &mut Value, at: &str, grace_seconds: i64) {
    let metadata = &mut object["metadata"];
    if !metadata["deletionTimestamp"].is_string()
        && let Some(generation) = metadata["generation"].as_i64().filter(|generation| *generation > 0)
    {
        metadata["generation"] = json!(generation + 1);
    }
    metadata["deletionTimestamp"] = json!(at);
    metadata["deletionGracePeriodSeconds"] = json!(grace_seconds);
}

fn check_preconditions(resource: &Resource, name: &str, options: &DeleteOptions, object: &Value) -> Result<(), Refusal> {
    let metadata = &object["metadata"];
    let conflict = |what: &str, asked: &str, is: &str, guess: &str| {
        let detail = format!(
            "the {what} in the precondition ({asked}) does not match the {what} in record ({is}). The object might have been {guess}"
        );
        // Kubernetes names the kind here, where it names the plural everywhere else.
        let by_kind = Resource { plural: resource.kind.clone(), ..resource.clone() };
        Err(Refusal::conflict(&by_kind, name, &detail))
    };
    match (&options.uid, &options.version) {
        (Some(uid), _) if uid != text(metadata, "uid") => {
            conflict("UID", uid, text(metadata, "uid"), "deleted and then recreated")
        }
        (_, Some(version)) if version != text(metadata, "resourceVersion") => {
            conflict("ResourceVersion", version, text(metadata, "resourceVersion"), "modified")
        }
        _ => Ok(()),
    }
}

/// The finalizers by which the garbage collector is told what to do with dependents.
fn set_finalizers(resource: &Resource, object: &mut Value, options: &DeleteOptions) {
    if resource.plural == "events" && resource.custom.is_none() {
        return;
    }
    let metadata = &mut object["metadata"];
    let had: Vec<String> = strings(&metadata["finalizers"]);
    let had_one = |name: &str| had.iter().any(|one| one == name);
    let orphans = match (options.orphans, options.propagation.as_deref()) {
        (Some(orphans), _) => orphans,
        (None, Some(policy)) => policy == "Orphan",
        (None, None) => had_one("orphan"),
    };
    let waits = match (options.orphans, options.propagation.as_deref()) {
        (Some(_), _) => false,
        (None, Some(policy)) => policy == "Foreground",
        (None, None) => had_one("foregroundDeletion") && !had_one("orphan"),
    };
    let mut finalizers: Vec<String> =
        had.iter().filter(|name| !matches!(name.as_str(), "orphan" | "foregroundDeletion")).cloned().collect();
    finalizers.extend(orphans.then(|| "orphan".to_owned()));
    finalizers.extend(waits.then(|| "foregroundDeletion".to_owned()));
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    if sorted(had) == sorted(finalizers.clone()) {
        return;
    }
    match finalizers.is_empty() {
        true => {
            if let Some(map) = metadata.as_object_mut() {
                map.remove("finalizers");
            }
        }
        false => metadata["finalizers"] = json!(finalizers),
    }
}

pub fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

fn is_shown(resource: &Resource) -> bool {
    SHOWN.iter().any(|(group, plural)| resource.is(group, plural))
}

fn gone(resource: &Resource, last: &Stored) -> Value {
    let object = last.value();
    let metadata = &object["metadata"];
    let mut details = json!({"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
