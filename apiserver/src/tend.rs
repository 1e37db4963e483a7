//! What happens by itself? What Kubernetes' own controllers do: kinds of CRDs appear and go, roles are aggregated,
//! garbage is collected, namespaces empty themselves.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::access::{self, User};
use crate::aside::Aside;
use crate::ask::Ask;
use crate::crd;
use crate::delete::{DeleteOptions, is_definition, strings};
use crate::present::{Accept, Form, stored_value};
use crate::read;
use crate::resource::{self, Resource};
use crate::route::{Query, Route};
use crate::server::Server;
use crate::store::Key;
use crate::write::text;

/// Kubernetes waits for 5 s. Who deletes a namespace and then what is in it, as kubectl does with a file, finds it.
const NAMESPACE_ENDS_AFTER: SignedDuration = SignedDuration::from_secs(2);
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Server {
    /// One round of what Kubernetes' controller manager does in the background: garbage collection, the end of
    /// namespaces, aggregated roles. True if anything was written.
    pub fn tend(&mut self, now: Timestamp) -> bool {
        let before = self.store.version();
        if before == self.tended && !self.ending_namespaces {
            return false;
        }
        self.aggregate_roles(now);
        self.collect(now);
        self.end_namespaces(now);
        self.tended = self.store.version();
        self.tended != before
    }

    /// After each write: kinds follow their definitions at once.
    pub(crate) fn written(&mut self, resource: &Resource) {
        if is_definition(resource) {
            self.refresh_kinds();
        }
    }

    /// What the API server itself does after a request that may have changed a definition.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        let definitions = self.kind("apiextensions.k8s.io", "customresourcedefinitions");
        let changed_at = self.store.table(definitions.table()).map_or(0, |table| table.changed_at());
        if changed_at > self.definitions_settled {
            self.establish(now, &definitions);
        }
        if self.ending_definitions {
            self.end_definitions(now, &definitions);
        }
        self.definitions_settled = self.store.table(definitions.table()).map_or(0, |table| table.changed_at());
    }

    fn establish(&mut self, now: Timestamp, definitions: &Arc<Resource>) {
        for definition in read::values(&self.store, definitions) {
            let name = text(&definition["metadata"], "name").to_owned();
            let taken: Vec<Resource> =
                self.resources.iter().filter(|one| is_rival(one, &name)).map(|one| (**one).clone()).collect();
            let mut changed = definition.clone();
            crd::establish(&mut changed, &taken, &crate::ask::seconds(now));
            if changed != definition {
                self.write_as_controller(now, definitions, "status", changed);
            }
        }
        self.refresh_kinds();
    }

    fn refresh_kinds(&mut self) {
        let definitions = self.kind("apiextensions.k8s.io", "customresourcedefinitions");
        let all = read::values(&self.store, &definitions);
        let mut resources = resource::builtin().to_vec();
        for definition in &all {
            let name = text(&definition["metadata"], "name");
            let version = text(&definition["metadata"], "resourceVersion");
            // A kind that did not change keeps its parsed schema.
            let known: Vec<_> = self
                .resources
                .iter()
                .filter(|one| one.custom.as_ref().is_some_and(|custom| custom.definition == name && custom.version == version))
                .cloned()
                .collect();
            match known.is_empty() {
                false => resources.extend(known),
                true => resources.extend(crd::resources(definition).into_iter().map(|kind| Arc::new(kind.made_from(version)))),
            }
        }
        for kind in resources.iter().filter(|kind| kind.custom.is_some()) {
            self.store.begin_table(kind.table());
        }
        self.resources = resources;
        self.ending_definitions = all.iter().any(|one| one["metadata"]["deletionTimestamp"].is_string());
    }

    /// A definition goes when the last of its objects is gone.
    fn end_definitions(&mut self, now: Timestamp, definitions: &Arc<Resource>) {
        for definition in read::values(&self.store, definitions) {
            let mut finalizers = strings(&definition["metadata"]["finalizers"]);
            if !definition["metadata"]["deletionTimestamp"].is_string() || !finalizers.iter().any(|one| one == CLEANUP) {
                continue;
            }
            let (group, plural) = (text(&definition["spec"], "group"), text(&definition["spec"]["names"], "plural"));
            let kind = self.resources.iter().find(|one| one.custom.is_some() && one.is(group, plural)).cloned();
            if let Some(kind) = &kind {
                for object in read::values(&self.store, kind) {
                    if !object["metadata"]["deletionTimestamp"].is_string() {
                        self.delete_as_controller(now, kind, &object, "Background");
                    }
                }
            }
            let left = kind.as_ref().and_then(|kind| self.store.table(kind.table())).map_or(0, crate::store::Table::len);
            if left == 0 {
                finalizers.retain(|one| one != CLEANUP);
                let mut changed = definition.clone();
                changed["metadata"]["finalizers"] = json!(finalizers);
                self.write_as_controller(now, definitions, "", changed);
                if let Some(kind) = kind {
                    self.store.drop_table(kind.table());
                }
            }
        }
        self.refresh_kinds();
    }

    /// A definition that is deleted while it has objects waits for them.
    pub(crate) fn hold_definition(&self, definition: &mut Value) {
        let mut finalizers = strings(&definition["metadata"]["finalizers"]);
        if !finalizers.iter().any(|one| one == CLEANUP) {
            finalizers.push(CLEANUP.to_owned());
            definition["metadata"]["finalizers"] = json!(finalizers);
        }
    }

    fn aggregate_roles(&mut self, now: Timestamp) {
        let roles = self.kind("rbac.authorization.k8s.io", "clusterroles");
        let all = read::values(&self.store, &roles);
        for (name, rules) in access::aggregate(&all) {
            let Some(mut role) = all.iter().find(|role| role["metadata"]["name"] == name.as_str()).cloned() else { continue };
            role["rules"] = rules;
            self.write_as_controller(now, &roles, "", role);
        }
    }

    fn collect(&mut self, now: Timestamp) {
        let owned = self.flagged(|stored| stored.is_owned);
        for (kind, object) in &owned {
            self.collect_one(now, kind, object);
        }
        for (kind, object) in self.flagged(|stored| stored.is_ending) {
            let mut finalizers = strings(&object["metadata"]["finalizers"]);
            let uid = text(&object["metadata"], "uid");
            let dependents = || owned.iter().filter(|(_, one)| owners(one).any(|owner| text(owner, "uid") == uid));
            let had = finalizers.len();
            if finalizers.iter().any(|one| one == "orphan") {
                for (kind, dependent) in dependents() {
                    self.disown(now, kind, dependent, |owner| text(owner, "uid") == uid);
                }
                finalizers.retain(|one| one != "orphan");
            }
            let is_blocked = || {
                dependents().any(|(kind, one)| {
                    let exists = self.store.table(kind.table()).is_some_and(|table| table.get(&key_of(one)).is_some());
                    exists && owners(one).any(|owner| text(owner, "uid") == uid && owner["blockOwnerDeletion"] == true)
                })
            };
            if finalizers.iter().any(|one| one == "foregroundDeletion") && !is_blocked() {
                finalizers.retain(|one| one != "foregroundDeletion");
            }
            if finalizers.len() != had {
                let mut changed = object.clone();
                changed["metadata"]["finalizers"] = json!(finalizers);
                self.write_as_controller(now, &kind, "", changed);
            }
        }
    }

    /// An object lives as long as one of its owners does.
    fn collect_one(&mut self, now: Timestamp, kind: &Arc<Resource>, object: &Value) {
        let namespace = text(&object["metadata"], "namespace");
        let states: Vec<Owner> = owners(object).map(|owner| self.owner(owner, namespace)).collect();
        if object["metadata"]["deletionTimestamp"].is_string() || states.contains(&Owner::Unknown) || states.is_empty() {
            return;
        }
        let has = |state: Owner| states.contains(&state);
        match (has(Owner::Solid), has(Owner::Waiting), has(Owner::Absent)) {
            (true, _, true) | (true, true, _) => {
                let gone: Vec<String> = owners(object)
                    .filter(|owner| self.owner(owner, namespace) != Owner::Solid)
                    .map(|owner| text(owner, "uid").to_owned())
                    .collect();
                self.disown(now, kind, object, |owner| gone.iter().any(|uid| uid == text(owner, "uid")));
            }
            (true, false, false) => {}
            (false, true, _) => self.delete_as_controller(now, kind, object, "Foreground"),
            (false, false, _) => self.delete_as_controller(now, kind, object, "Background"),
        }
    }

    fn owner(&self, owner: &Value, namespace: &str) -> Owner {
        let (api_version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let Some(resource) = self.resources.iter().find(|one| one.kind == kind && one.group == group) else {
            return Owner::Unknown;
        };
        let namespace = if resource.namespaced { namespace.to_owned() } else { String::new() };
        let key = Key { namespace, name: text(owner, "name").to_owned() };
        let Some(stored) = self.store.table(resource.table()).and_then(|table| table.get(&key)) else { return Owner::Absent };
        let found = stored.value();
        let metadata = &found["metadata"];
        let waits = stored.is_ending && strings(&metadata["finalizers"]).iter().any(|one| one == "foregroundDeletion");
        match text(metadata, "uid") == text(owner, "uid") {
            false => Owner::Absent,
            true if waits => Owner::Waiting,
            true => Owner::Solid,
        }
    }

    fn disown(&mut self, now: Timestamp, kind: &Arc<Resource>, object: &Value, is_gone: impl Fn(&Value) -> bool) {
        let mut changed = object.clone();
        if let Some(list) = changed["metadata"]["ownerReferences"].as_array_mut() {
            list.retain(|owner| !is_gone(owner));
        }
        self.write_as_controller(now, kind, "", changed);
    }

    fn end_namespaces(&mut self, now: Timestamp) {
        let namespaces = self.kind("", "namespaces");
        self.ending_namespaces = false;
        for namespace in read::values(&self.store, &namespaces) {
            let name = text(&namespace["metadata"], "name");
            let Some(deleted_at) = namespace["metadata"]["deletionTimestamp"].as_str() else { continue };
            self.ending_namespaces = true;
            if deleted_at.parse::<Timestamp>().is_ok_and(|at| now < at + NAMESPACE_ENDS_AFTER) {
                continue;
            }
            let kinds: Vec<Arc<Resource>> = self.resources.iter().filter(|one| one.namespaced).cloned().collect();
            let mut left = 0;
            for kind in kinds {
                let all = read::values(&self.store, &kind);
                for object in all.iter().filter(|object| object["metadata"]["namespace"] == name) {
                    if !object["metadata"]["deletionTimestamp"].is_string() {
                        self.delete_as_controller(now, &kind, object, "Background");
                    }
                    let exists = self.store.table(kind.table()).is_some_and(|table| table.get(&key_of(object)).is_some());
                    left += usize::from(exists);
                }
            }
            if left == 0 && !strings(&namespace["spec"]["finalizers"]).is_empty() {
                let mut changed = namespace.clone();
                let mut finalizers = strings(&namespace["spec"]["finalizers"]);
                finalizers.retain(|one| one != "kubernetes");
                changed["spec"]["finalizers"] = json!(finalizers);
                self.write_as_controller(now, &namespaces, "finalize", changed);
            }
        }
    }

    /// Objects of all kinds that carry a mark, with `apiVersion` and `kind`.
    fn flagged(&self, is_meant: impl Fn(&crate::store::Stored) -> bool) -> Vec<(Arc<Resource>, Value)> {
        let mut found = Vec::new();
        for (name, table) in self.store.tables() {
            let Some(kind) = self.resources.iter().find(|one| one.table() == name) else { continue };
            for (_, stored) in table.objects("", None).filter(|(_, stored)| is_meant(stored)) {
                found.push((kind.clone(), stored_value(kind, &stored.json)));
            }
        }
        found
    }

    /// A write that may be refused, as any: then the next round tries again.
    fn write_as_controller(&mut self, now: Timestamp, kind: &Arc<Resource>, subresource: &str, object: Value) {
        let ask = controller_ask(now, kind, &object, subresource);
        let _ = self.rewrite(&ask, object);
    }

    fn delete_as_controller(&mut self, now: Timestamp, kind: &Arc<Resource>, object: &Value, propagation: &str) {
        let ask = controller_ask(now, kind, object, "");
        let _ = self.delete_one(&ask, &DeleteOptions::of(text(&object["metadata"], "uid"), propagation));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Solid,
    /// Being deleted, and waiting for its dependents.
    Waiting,
    Absent,
    /// Its kind is not served: perhaps it will be again.
    Unknown,
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn is_rival(resource: &Resource, definition: &str) -> bool {
    resource.custom.as_ref().is_none_or(|custom| custom.definition != definition)
}

fn key_of(object: &Value) -> Key {
    let metadata = &object["metadata"];
    Key { namespace: text(metadata, "namespace").to_owned(), name: text(metadata, "name").to_owned() }
}

fn controller_ask(now: Timestamp, kind: &Arc<Resource>, object: &Value, subresource: &str) -> Ask {
    let Key { namespace, name } = key_of(object);
    let route =
        Route { resource: kind.clone(), namespace, name, subresource: subresource.to_owned(), api_version: kind.api_version() };
    Ask {
        now,
        user: User::admin(),
        method: http::Method::PUT,
        route,
        query: Query::default(),
        accept: Accept { form: Form::Object, yaml: false, aggregated: false },
        content_type: String::new(),
        agent: "kube-controller-manager".to_owned(),
        body: Vec::new(),
        dry_run: false,
        aside: Aside::default(),
    }
}
