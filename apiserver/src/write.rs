//! How are objects written? Create, update, patch and apply, each through the same checks.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::access;
use crate::admission::Attempt;
use crate::apply::{self, Manager};
use crate::aside::{self, Aside};
use crate::ask::{APPLY, Ask, media_type};
use crate::builtin;
use crate::patch;
use crate::precondition::{check_precondition, check_uid, version_of};
use crate::present::{object_value, stored_value, with_kind};
use crate::read;
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;
use crate::server::Server;
use crate::store::{Key, Stored};

/// What became of a write.
pub struct Done {
    pub code: u16,
    pub object: Arc<Stored>,
    pub warnings: Vec<String>,
}

/// Whether ownership of fields is still to be recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owners {
    Track,
    /// Server-side apply has done so.
    Tracked,
}

/// As often as Kubernetes draws another suffix when a generated name is taken.
const GENERATED_TRIES_MAX: usize = 8;

impl Server {
    pub(crate) fn create(&mut self, ask: &Ask) -> Result<Done, Refusal> {
        ask.check_options("CreateOptions")?;
        let (mut object, twice) = ask.parse_body()?;
        let warnings = ask.check_shape(&mut object, &twice).or_else(|refusal| match refusal.code {
            // What is invalid shows only where something could be created at all.
            422 => self.check_namespace(ask, &refusal.name).and(Err(refusal)),
            _ => Err(refusal),
        })?;
        as_stored(ask.resource(), &mut object);
        let (object, more) = self.create_object(ask, object, Owners::Track).map_err(|refusal| refusal.warned(&warnings))?;
        Ok(Done { code: 201, object, warnings: [warnings, more].concat() })
    }

    fn create_object(&mut self, ask: &Ask, mut object: Value, owners: Owners) -> Result<(Arc<Stored>, Vec<String>), Refusal> {
        let resource = ask.route.resource.clone();
        set_namespace(ask, &mut object)?;
        self.set_name(ask, &mut object);
        self.check_namespace(ask, text(&object["metadata"], "name"))?;
        let version = text(&object["metadata"], "resourceVersion").to_owned();
        let fields = object["metadata"].as_object_mut().expect("its shape was checked");
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"] {
            fields.remove(key);
        }
        fields.insert("uid".to_owned(), json!(self.rng.uid()));
        fields.insert("creationTimestamp".to_owned(), json!(ask.time()));
        if builtin::has_generation(&resource) {
            fields.insert("generation".to_owned(), json!(1));
        }
        self.default(ask, &mut object);
        if owners == Owners::Track {
            // Who creates an object does not own its status.
            let status = resource.has("status").then(|| object.as_object_mut().and_then(|map| map.remove("status"))).flatten();
            drop_sent_managers(&mut object);
            apply::track(None, &mut object, &resource.schema, manager(ask, &ask.time()));
            if let Some(status) = status {
                object["status"] = status;
            }
        }
        self.prepare_create(ask, &mut object);
        let name = text(&object["metadata"], "name").to_owned();
        if let Some(why) = builtin::forbid_create(&resource, &object) {
            return Err(Refusal::forbidden(&resource, &name, &why));
        }
        let causes = self.validate(ask, &object, None);
        if !causes.is_empty() {
            return Err(Refusal::invalid(&resource, &name, causes));
        }
        let key = Key { namespace: ask.route.namespace.clone(), name: name.clone() };
        self.check_escalation(ask, &object, None)?;
        let mut warnings = self.admit(ask, "CREATE", &name, Some(&object), None)?;
        warnings.extend(builtin::warn_of_finalizers(&resource, &object, None));
        if !ask.is_dry_run() && version.parse::<u64>().is_ok_and(|version| version > 0) {
            return Err(Refusal::plain("resourceVersion should not be set on objects to be created").warned(&warnings));
        }
        if self.store.table(resource.table()).is_some_and(|table| table.get(&key).is_some()) {
            let mut refusal = Refusal::already_exists(&resource, &name);
            if self.store.table(resource.table()).and_then(|table| table.get(&key)).is_some_and(|found| found.is_ending) {
                refusal.message = format!("object is being deleted: {}", refusal.message);
            }
            return Err(refusal.warned(&warnings));
        }
        if ask.is_dry_run() && !version.is_empty() {
            // Nothing is stored that would have a version: the answer shows what was sent.
            object["metadata"]["resourceVersion"] = json!(version);
        }
        let stored = self.commit(ask, key, object);
        Ok((stored, warnings))
    }

    pub(crate) fn update(&mut self, ask: &Ask) -> Result<Done, Refusal> {
        ask.check_options("UpdateOptions")?;
        let (mut object, twice) = ask.parse_body()?;
        let warnings = ask.check_shape(&mut object, &twice)?;
        as_stored(ask.resource(), &mut object);
        let (code, object, more) = self.replace(ask, object).map_err(|refusal| refusal.warned(&warnings))?;
        Ok(Done { code, object, warnings: [warnings, more].concat() })
    }

    fn replace(&mut self, ask: &Ask, mut object: Value) -> Result<(u16, Arc<Stored>, Vec<String>), Refusal> {
        set_namespace(ask, &mut object)?;
        check_has_name(ask, &object)?;
        check_name(ask, &mut object)?;
        let found = read::get(&self.store, &ask.route).cloned();
        let old = match found {
            Ok(stored) => stored,
            Err(_) if ask.route.subresource.is_empty() && builtin::creates_on_update(ask.resource()) => {
                check_uid(ask, text(&object["metadata"], "uid"), "")?;
                version_of(&object)?;
                if let Some(metadata) = object["metadata"].as_object_mut().filter(|_| !ask.is_dry_run()) {
                    metadata.remove("resourceVersion");
                }
                let (object, warnings) = self.create_object(ask, object, Owners::Track)?;
                return Ok((201, object, warnings));
            }
            Err(refusal) => return Err(refusal),
        };
        let old = stored_value(ask.resource(), &old.json);
        let (object, warnings) = self.update_object(ask, &old, object, Owners::Track)?;
        Ok((200, object, warnings))
    }

    pub(crate) fn patch(&mut self, ask: &Ask) -> Result<Done, Refusal> {
        let kind = media_type(&ask.content_type);
        match kind {
            "application/json-patch+json" | "application/merge-patch+json" | APPLY => {}
            "application/strategic-merge-patch+json" if ask.resource().custom.is_none() => {}
            "application/strategic-merge-patch+json" => {
                return Err(Refusal::unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
            _ => return Err(Refusal::unsupported_media_type("415: Unsupported Media Type")),
        }
        ask.check_options("PatchOptions")?;
        if kind == APPLY {
            return self.apply(ask);
        }
        let stored = read::get(&self.store, &ask.route)?.clone();
        let is_strategic = kind == "application/strategic-merge-patch+json";
        let strategic = if is_strategic { parse_patch(ask)? } else { Value::Null };
        let split = if self.may_split(ask) { aside::split(&stored, &strategic) } else { None };
        let is_event = ask.resource().is("events.k8s.io", "events");
        let (old, mut new, aside) = match split {
            Some((light, aside)) => {
                let mut old = with_kind(ask.resource(), light);
                // They would be dropped again; see [`drop_sent_managers`].
                let managers = old["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
                let new = old.clone();
                if let Some(managers) = managers {
                    old["metadata"]["managedFields"] = managers;
                }
                (old, new, aside)
            }
            None => {
                let old = stored_value(ask.resource(), &stored.json);
                let new = if is_event { object_value(ask.resource(), &stored.json) } else { old.clone() };
                (old, new, Aside::default())
            }
        };
        match kind {
            "application/json-patch+json" => patch::json_patch(&mut new, &ask.body)?,
            "application/merge-patch+json" => patch::merge_patch(&mut new, &patch::parse_merge_patch(&ask.body)?),
            _ => patch::strategic_merge(&mut new, &strategic, &ask.resource().schema)?,
        }
        // Heartbeats are such patches: what they leave alone has been checked before.
        let unchanged = if is_strategic { set_aside(&mut new, &old) } else { Vec::new() };
        let warnings = ask.check_patched(&mut new)?;
        put_back(&mut new, unchanged);
        as_stored(ask.resource(), &mut new);
        let named = set_namespace(ask, &mut new).and_then(|()| check_has_name(ask, &new));
        let named = named.and_then(|()| check_name(ask, &mut new));
        let written = named.and_then(|()| self.update_object(&Ask { aside, ..ask.again() }, &old, new, Owners::Track));
        let (object, more) = written.map_err(|refusal| refusal.warned(&warnings))?;
        Ok(Done { code: 200, object, warnings: [warnings, more].concat() })
    }

    /// Whether most of the object may be left alone. Policies see everything.
    fn may_split(&self, ask: &Ask) -> bool {
        ask.resource().is("", "nodes") && ask.route.subresource == "status" && !self.has_policies()
    }

    fn apply(&mut self, ask: &Ask) -> Result<Done, Refusal> {
        let mut applied: Value = std::str::from_utf8(&ask.body)
            .ok()
            .and_then(|text| serde_saphyr::from_str(text).ok())
            .ok_or_else(|| Refusal::bad_request("error decoding YAML: the body is neither YAML nor JSON"))?;
        let (api_version, kind) = (text(&applied, "apiVersion"), text(&applied, "kind"));
        if api_version != ask.route.api_version || kind != ask.resource().kind {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            return Err(Refusal::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
        }
        ask.check_kind(&mut applied)?;
        let sent_version = text(&applied["metadata"], "resourceVersion").to_owned();
        own_part(ask, &mut applied);
        let resource = ask.route.resource.clone();
        let time = ask.time();
        let force = ask.query.flag("force");
        let stored = read::get(&self.store, &ask.route).ok().cloned();
        let Some(stored) = stored else {
            if !ask.route.subresource.is_empty() {
                return Err(Refusal::not_found(&resource, &ask.route.name));
            }
            if !text(&applied["metadata"], "uid").is_empty() {
                let detail = "uid mismatch: the provided object specified uid, and no existing object was found";
                return Err(Refusal::conflict(&resource, &ask.route.name, detail));
            }
            let mut object = apply::apply(None, &applied, &resource.schema, manager(ask, &time), force)?;
            let warnings = ask.check_applied(&mut object, &applied)?;
            check_identity(ask, &applied)?;
            version_of(&applied)?;
            if let Some(metadata) = object["metadata"].as_object_mut().filter(|_| !ask.is_dry_run()) {
                metadata.remove("resourceVersion");
            }
            as_stored(&resource, &mut object);
            check_name(ask, &mut object)?;
            let (object, more) = self.create_object(ask, object, Owners::Tracked)?;
            return Ok(Done { code: 201, object, warnings: [warnings, more].concat() });
        };
        let live = object_value(&resource, &stored.json);
        let mut new = apply::apply(Some(&live), &applied, &resource.schema, manager(ask, &time), force)?;
        let warnings = ask.check_applied(&mut new, &applied)?;
        check_identity(ask, &applied)?;
        set_namespace(ask, &mut new)?;
        as_stored(&resource, &mut new);
        if !sent_version.is_empty() {
            new["metadata"]["resourceVersion"] = json!(sent_version);
        }
        let old = stored_value(&resource, &stored.json);
        let (object, more) = self.update_object(ask, &old, new, Owners::Tracked)?;
        Ok(Done { code: 200, object, warnings: [warnings, more].concat() })
    }

    /// Stores a changed object, through all checks of an update.
    pub(crate) fn rewrite(&mut self, ask: &Ask, object: Value) -> Result<(Arc<Stored>, Vec<String>), Refusal> {
        let old = stored_value(ask.resource(), &read::get(&self.store, &ask.route)?.json);
        self.update_object(ask, &old, object, Owners::Track)
    }

    fn update_object(
        &mut self,
        ask: &Ask,
        old: &Value,
        mut new: Value,
        owners: Owners,
    ) -> Result<(Arc<Stored>, Vec<String>), Refusal> {
        let resource = ask.route.resource.clone();
        let name = &ask.route.name;
        check_precondition(ask, old, &new)?;
        if owners == Owners::Track {
            drop_sent_managers(&mut new);
        }
        let sent_end = take_end(&mut new);
        put_end(&mut new, sent_end.clone());
        carry_metadata(old, &mut new);
        match ask.route.subresource.as_str() {
            "" => builtin::keep_on_update(&resource, &mut new, old),
            "status" => builtin::keep_on_status(&resource, &mut new, old),
            "approval" => builtin::keep_on_approval(&mut new, old),
            "finalize" => builtin::keep_on_finalize(&mut new, old),
            _ => {}
        }
        self.default(ask, &mut new);
        if owners == Owners::Track {
            // Who leaves out that the object is being deleted owns that no more; it stays all the same.
            let end = take_end(&mut new);
            put_end(&mut new, sent_end);
            apply::track(Some(old), &mut new, &resource.schema, manager(ask, &ask.time()));
            put_end(&mut new, end);
        }
        if resource.is("certificates.k8s.io", "certificatesigningrequests") {
            builtin::set_request_times(&mut new, old, &ask.time());
        }
        if ask.route.subresource.is_empty() {
            builtin::prepare_update(&resource, &mut new, old);
        }
        if matches!(ask.route.subresource.as_str(), "" | "scale") {
            count_generation(&resource, old, &mut new);
        }
        let causes = self.validate(ask, &new, Some(old));
        if !causes.is_empty() {
            return Err(Refusal::invalid(&resource, name, causes));
        }
        self.check_escalation(ask, &new, Some(old))?;
        let mut warnings = self.admit(ask, "UPDATE", name, Some(&new), Some(old))?;
        warnings.extend(builtin::warn_of_finalizers(&resource, &new, Some(old)));
        let key = ask.route.key();
        if self.is_over(ask, &new) {
            // The writer is shown what it wrote, although that never was; who watches, what was there.
            self.remove(ask, &key, old.clone());
            strip(&mut new);
            return Ok((Arc::new(Stored::of(&new, &ask.aside, self.store.version())), warnings));
        }
        builtin::drop_empty_rules(&resource, &mut new);
        if apply::is_same_but_for_times(&new, old) {
            return Ok((read::get(&self.store, &ask.route)?.clone(), warnings));
        }
        Ok((self.commit(ask, key, new), warnings))
    }

    /// Stores an object that has passed all checks; a dry run only shows what would be stored.
    pub(crate) fn commit(&mut self, ask: &Ask, key: Key, mut object: Value) -> Arc<Stored> {
        let resource = ask.route.resource.clone();
        builtin::drop_empty_rules(&resource, &mut object);
        if ask.is_dry_run() {
            strip(&mut object);
            return Arc::new(Stored::of(&object, &ask.aside, self.store.version()));
        }
        object["metadata"]["resourceVersion"] = json!(self.store.next_version().to_string());
        strip(&mut object);
        let stored = self.store.put(resource.table(), key, &object, &ask.aside);
        self.written(&resource);
        stored
    }

    /// The object is gone with this write: it was being deleted, and its last finalizer went.
    fn is_over(&self, ask: &Ask, new: &Value) -> bool {
        let metadata = &new["metadata"];
        let no_finalizers = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        let no_grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        let is_namespace = ask.resource().is("", "namespaces");
        let emptied = !is_namespace || new["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        metadata["deletionTimestamp"].is_string() && no_finalizers && no_grace && emptied
    }

    /// Removes an object for good, in the state that it has last.
    pub(crate) fn remove(&mut self, ask: &Ask, key: &Key, mut last: Value) -> Arc<Stored> {
        let resource = ask.route.resource.clone();
        if ask.is_dry_run() {
            strip(&mut last);
            return Arc::new(Stored::of(&last, &ask.aside, self.store.version()));
        }
        last["metadata"]["resourceVersion"] = json!(self.store.next_version().to_string());
        strip(&mut last);
        let stored = self.store.remove(resource.table(), key, &last, &ask.aside);
        self.written(&resource);
        stored.unwrap_or_else(|| Arc::new(Stored::of(&last, &ask.aside, self.store.version())))
    }

    fn set_name(&mut self, ask: &Ask, object: &mut Value) {
        let metadata = &mut object["metadata"];
        let prefix = text(metadata, "generateName").to_owned();
        if !text(metadata, "name").is_empty() || prefix.is_empty() {
            return;
        }
        let table = ask.resource().table();
        for _ in 0..GENERATED_TRIES_MAX {
            // The longest name that leaves room for the suffix in a label value.
            let kept: String = prefix.chars().take(58).collect();
            let name = format!("{kept}{}", self.rng.suffix());
            let key = Key { namespace: ask.route.namespace.clone(), name: name.clone() };
            object["metadata"]["name"] = json!(name);
            if self.store.table(table).is_none_or(|table| table.get(&key).is_none()) {
                return;
            }
        }
    }

    /// Objects can only be made in a namespace that exists and is not being deleted.
    fn check_namespace(&self, ask: &Ask, name: &str) -> Result<(), Refusal> {
        if !ask.resource().namespaced {
            return Ok(());
        }
        let namespaces = self.kind("", "namespaces");
        let namespace = &ask.route.namespace;
        let key = Key { namespace: String::new(), name: namespace.clone() };
        let Some(found) = self.store.table(namespaces.table()).and_then(|table| table.get(&key)) else {
            return Err(Refusal::not_found(&namespaces, namespace));
        };
        if !found.is_ending {
            return Ok(());
        }
        let detail = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("namespace {namespace} is being terminated");
        let cause = Cause { field: "metadata.namespace".to_owned(), reason: "NamespaceTerminating", message };
        Err(Refusal { causes: vec![cause], ..Refusal::forbidden(ask.resource(), name, &detail) })
    }

    fn admit(
        &mut self,
        ask: &Ask,
        operation: &str,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Refusal> {
        let namespace_object = self.namespace_object(&ask.route.namespace);
        let attempt = Attempt {
            operation,
            resource: &ask.route.resource,
            subresource: &ask.route.subresource,
            namespace: &ask.route.namespace,
            name,
            user: &ask.user,
            dry_run: ask.is_dry_run(),
            object,
            old,
            namespace_object: namespace_object.as_ref(),
        };
        self.admit_attempt(&attempt)
    }

    pub(crate) fn admit_delete(&mut self, ask: &Ask, name: &str, old: &Value) -> Result<Vec<String>, Refusal> {
        self.admit(ask, "DELETE", name, None, Some(old))
    }

    fn check_escalation(&mut self, ask: &Ask, object: &Value, old: Option<&Value>) -> Result<(), Refusal> {
        if ask.resource().group != "rbac.authorization.k8s.io" || ask.user.is_master() {
            return Ok(());
        }
        let objects = self.rbac_objects();
        access::escalates(objects.view(), &ask.user, object, old)
    }
}

fn manager<'a>(ask: &'a Ask, time: &'a str) -> Manager<'a> {
    // The version is that of the request, which outlives the ask.
    let subresource = ask.route.subresource.as_str();
    let leaves_status = subresource.is_empty() && ask.resource().has("status");
    Manager { name: ask.manager(), api_version: &ask.route.api_version, subresource, time, leaves_status }
}

/// Takes out what is as it was: the spec, and fields of `metadata` and `status`.
fn set_aside(new: &mut Value, old: &Value) -> Vec<(&'static str, Option<String>, Value)> {
    let mut unchanged = Vec::new();
    if let Some(new) = new.as_object_mut().filter(|new| new.get("spec") == old.get("spec")) {
        unchanged.extend(new.remove("spec").map(|spec| ("spec", None, spec)));
    }
    for part in ["metadata", "spec", "status"] {
        let Some(fields) = new.get_mut(part).and_then(Value::as_object_mut) else { continue };
        let same: Vec<String> =
            fields.iter().filter(|(key, value)| old[part].get(*key) == Some(*value)).map(|(key, _)| key.clone()).collect();
        unchanged.extend(same.into_iter().filter_map(|key| fields.remove(&key).map(|value| (part, Some(key), value))));
    }
    unchanged
}

fn put_back(new: &mut Value, unchanged: Vec<(&'static str, Option<String>, Value)>) {
    for (part, key, value) in unchanged {
        match key {
            Some(key) => new[part][key] = value,
            None => new[part] = value,
        }
    }
}

/// Clients send back what they got; the server alone keeps the books. An emptied list asks to begin anew.
fn drop_sent_managers(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let is_reset = metadata.get("managedFields").and_then(Value::as_array).is_some_and(|list| match list.as_slice() {
        [] => true,
        [one] => one.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    });
    if !is_reset {
        metadata.remove("managedFields");
    }
}

/// What an object's metadata say of its end.
const END: [&str; 2] = ["deletionTimestamp", "deletionGracePeriodSeconds"];

fn take_end(object: &mut Value) -> [Option<Value>; 2] {
    let mut metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    END.map(|key| metadata.as_mut().and_then(|metadata| metadata.remove(key)))
}

fn put_end(object: &mut Value, end: [Option<Value>; 2]) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for (key, value) in END.into_iter().zip(end) {
        match value {
            Some(value) => _ = metadata.insert(key.to_owned(), value),
            None => _ = metadata.remove(key),
        }
    }
}

/// What no client may change and many leave out.
fn carry_metadata(old: &Value, new: &mut Value) {
    builtin::keep_meta(new, old);
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
}

/// The generation counts what the user wants to have changed, not what was observed.
fn count_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if builtin::is_new_generation(resource, new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = json!(generation);
    }
}

/// What is applied may leave out name and namespace, but not name others.
fn check_identity(ask: &Ask, applied: &Value) -> Result<(), Refusal> {
    let mut copy = json!({"metadata": {"name": applied["metadata"]["name"], "namespace": applied["metadata"]["namespace"]}});
    set_namespace(ask, &mut copy)?;
    check_name(ask, &mut copy)
}

fn set_namespace(ask: &Ask, object: &mut Value) -> Result<(), Refusal> {
    let metadata = &mut object["metadata"];
    let sent = text(metadata, "namespace").to_owned();
    let namespace = &ask.route.namespace;
    if !ask.resource().namespaced {
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok(());
    }
    if !sent.is_empty() && sent != *namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata["namespace"] = json!(namespace);
    Ok(())
}

fn check_has_name(ask: &Ask, object: &Value) -> Result<(), Refusal> {
    let name = &ask.route.name;
    match text(&object["metadata"], "name").is_empty() {
        true => Err(Refusal::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        false => Ok(()),
    }
}

fn check_name(ask: &Ask, object: &mut Value) -> Result<(), Refusal> {
    let sent = text(&object["metadata"], "name").to_owned();
    if sent.is_empty() {
        object["metadata"]["name"] = json!(ask.route.name);
    } else if sent != ask.route.name {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({})",
            ask.route.name
        )));
    }
    Ok(())
}

/// Who applies to the object does not own its status, and the other way round.
fn own_part(ask: &Ask, applied: &mut Value) {
    let Some(map) = applied.as_object_mut() else { return };
    match ask.route.subresource.as_str() {
        "" if ask.resource().has("status") => {
            map.remove("status");
        }
        "status" => map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status")),
        _ => {}
    }
}

fn parse_patch(ask: &Ask) -> Result<Value, Refusal> {
    patch::parse(&ask.body).map_err(Refusal::bad_request)
}

/// The two APIs for Events have one store, in the shape of the older.
fn as_stored(resource: &Resource, object: &mut Value) {
    if resource.is("events.k8s.io", "events") {
        *object = builtin::event_to_core(object.take());
    }
}

/// Objects are stored without their kind; see [`crate::store`].
fn strip(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
}

pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
