//! What does a CRD serve, and under which names?

use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::{Map, Value, json};

use crate::crd::{list, text};
use crate::discovery;
use crate::resource::{Custom, Resource, builtin_source};
use crate::schema::{Schema, Type};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The status that Kubernetes' own controllers write: conditions NamesAccepted and Established, acceptedNames,
/// storedVersions. `taken` are all kinds that are served; those of the group must not share names.
pub fn establish(crd: &mut Value, taken: &[Resource], time: &str) {
    let name = text(&crd["metadata"], "name").to_owned();
    let group = text(&crd["spec"], "group").to_owned();
    let is_other = |one: &&Resource| one.group == group && one.custom.as_ref().is_none_or(|custom| custom.definition != name);
    let others: Vec<&Resource> = taken.iter().filter(is_other).collect();
    let (accepted, conflict) = accept(&crd["spec"]["names"], &crd["status"]["acceptedNames"], &others);
    let established = conflict.is_none() || is_true(crd, "Established");
    let Some(status) = crd.as_object_mut().map(|crd| crd.entry("status").or_insert_with(|| json!({}))) else { return };
    if !status.is_object() {
        *status = json!({});
    }
    status["acceptedNames"] = accepted;
    let (state, reason, message) = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    set_condition(status, "NamesAccepted", state, reason, message, time);
    let (state, reason, message) = match established {
        true => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
        false => ("False", "NotAccepted", "not all names are accepted"),
    };
    set_condition(status, "Established", state, reason, message, time);
}

/// The names that are free, and the last one that is not.
fn accept(wanted: &Value, accepted: &Value, others: &[&Resource]) -> (Value, Option<(&'static str, String)>) {
    let mut names = accepted.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let as_resource = |name: &str| {
        let is_used =
            |one: &&Resource| one.plural == name || one.singular == name || one.short_names.iter().any(|short| short == name);
        others.iter().any(is_used)
    };
    let as_kind = |name: &str| others.iter().any(|one| one.kind == name || one.list_kind == name);
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut one = |key: &str, reason: &'static str, is_taken: &dyn Fn(&str) -> bool| {
        let name = text(wanted, key);
        match name != text(accepted, key) && is_taken(name) {
            true => conflict = Some((reason, in_use(name))),
            false => drop(names.insert(key.to_owned(), json!(name))),
        }
    };
    one("plural", "PluralConflict", &as_resource);
    one("singular", "SingularConflict", &as_resource);
    let shorts = list(&wanted["shortNames"]).iter().filter_map(Value::as_str);
    let clashing: Vec<&str> =
        shorts.filter(|short| !list(&accepted["shortNames"]).contains(&json!(short)) && as_resource(short)).collect();
    let said = match clashing.as_slice() {
        [] => None,
        [only] => Some(in_use(only)),
        many => Some(format!("[{}]", many.iter().map(|name| in_use(name)).collect::<Vec<_>>().join(", "))),
    };
    if let Some(said) = &said {
        conflict = Some(("ShortNamesConflict", said.clone()));
    }
    let mut one = |key: &str, reason: &'static str| {
        let name = text(wanted, key);
        match name != text(accepted, key) && as_kind(name) {
            true => conflict = Some((reason, in_use(name))),
            false => drop(names.insert(key.to_owned(), json!(name))),
        }
    };
    one("kind", "KindConflict");
    one("listKind", "ListKindConflict");
    for key in ["shortNames", "categories"].into_iter().filter(|key| *key == "categories" || said.is_none()) {
        match list(&wanted[key]).is_empty() {
            true => drop(names.remove(key)),
            false => drop(names.insert(key.to_owned(), wanted[key].clone())),
        }
    }
    names.entry("kind").or_insert_with(|| json!(""));
    names.entry("plural").or_insert_with(|| json!(""));
    names.retain(|key, value| ["kind", "plural"].contains(&key.as_str()) || value != "");
    (Value::Object(names), conflict)
}

fn set_condition(status: &mut Value, kind: &str, state: &str, reason: &str, message: &str, time: &str) {
    let mut conditions = list(&status["conditions"]).to_vec();
    let old = conditions.iter_mut().find(|one| one["type"] == kind);
    let since = old.as_ref().filter(|old| old["status"] == state).map(|old| old["lastTransitionTime"].clone());
    let new = json!({
        "type": kind, "status": state, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(time)),
    });
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    status["conditions"] = json!(conditions);
}

fn is_true(crd: &Value, kind: &str) -> bool {
    list(&crd["status"]["conditions"]).iter().any(|one| one["type"] == kind && one["status"] == "True")
}

/// One for each served version, if the CRD is established.
pub fn resources(crd: &Value) -> Vec<Resource> {
    if !is_true(crd, "Established") {
        return Vec::new();
    }
    let versions = list(&crd["spec"]["versions"]);
    versions.iter().filter(|version| version["served"] == true).map(|version| resource(crd, version)).collect()
}

fn resource(crd: &Value, version: &Value) -> Resource {
    let spec = &crd["spec"];
    let names = &crd["status"]["acceptedNames"];
    let name = |key: &str| text(names, key).to_owned();
    let texts = |value: &Value| list(value).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let (group, version_name, kind) = (text(spec, "group"), text(version, "name"), name("kind"));
    let openapi = version["schema"]["openAPIV3Schema"].clone();
    let storage = list(&spec["versions"]).iter().find(|one| one["storage"] == true);
    let namespaced = text(spec, "scope") == "Namespaced";
    let reversed: Vec<&str> = group.rsplit('.').collect();
    let warning = match version["deprecationWarning"].as_str() {
        Some(warning) => warning.to_owned(),
        None => match successor(spec, version_name) {
            Some(newer) => format!("{group}/{version_name} {kind} is deprecated; use {group}/{newer} {kind}"),
            None => format!("{group}/{version_name} {kind} is deprecated"),
        },
    };
    let custom = Custom {
        version: String::new(),
        definition: text(&crd["metadata"], "name").to_owned(),
        storage_version: storage.map(|one| text(one, "name").to_owned()).unwrap_or_default(),
        scale: Some(version["subresources"]["scale"].clone()).filter(Value::is_object),
        openapi: openapi.clone(),
        deprecated: (version["deprecated"] == true).then_some(warning),
    };
    Resource {
        group: group.to_owned(),
        version: version_name.to_owned(),
        plural: name("plural"),
        singular: name("singular"),
        list_kind: name("listKind"),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced,
        verbs: VERBS.map(str::to_owned).to_vec(),
        subresources: subresources(&version["subresources"], &name("plural"), &kind, namespaced),
        schema: Arc::new(understand(Schema::of_crd(&openapi), true)),
        schema_name: format!("{}.{version_name}.{kind}", reversed.join(".")),
        columns: list(&version["additionalPrinterColumns"]).to_vec(),
        selectable: list(&version["selectableFields"]).iter().map(|one| text(one, "jsonPath").to_owned()).collect(),
        custom: Some(Arc::new(custom)),
        table: OnceLock::new(),
        kind,
    }
}

/// The best version that is served and not deprecated, if it is better.
fn successor(spec: &Value, version: &str) -> Option<String> {
    let good = list(&spec["versions"]).iter().filter(|one| one["served"] == true && one["deprecated"] != true);
    let best = good.map(|one| text(one, "name")).min_by_key(|name| discovery::priority(name))?;
    (discovery::priority(best) < discovery::priority(version)).then(|| best.to_owned())
}

fn subresources(written: &Value, plural: &str, kind: &str, namespaced: bool) -> Vec<(String, Value)> {
    let entry = |name: &str, kind: &str| {
        json!({
            "name": format!("{plural}/{name}"), "singularName": "", "namespaced": namespaced, "kind": kind,
            "verbs": ["get", "patch", "update"],
        })
    };
    let mut entries = Vec::new();
    if written["status"].is_object() {
        entries.push(("status".to_owned(), entry("status", kind)));
    }
    if written["scale"].is_object() {
        let mut scale = entry("scale", "Scale");
        scale["group"] = json!("autoscaling");
        scale["version"] = json!("v1");
        entries.push(("scale".to_owned(), scale));
    }
    entries
}

/// What every object has, from the built-in kinds.
static META: LazyLock<Schema> = LazyLock::new(|| {
    let none = Map::new();
    Schema::of_kind(OBJECT_META, builtin_source()["schemas"].as_object().unwrap_or(&none))
});

/// Objects have an apiVersion, a kind and metadata, also where the schema does not say so: at the root and in embedded
/// resources.
pub fn understand(mut schema: Schema, root: bool) -> Schema {
    let inner = |schema: &mut Arc<Schema>| *schema = Arc::new(understand(Schema::clone(schema), false));
    schema.properties.values_mut().for_each(inner);
    schema.items.iter_mut().for_each(inner);
    schema.values.iter_mut().for_each(inner);
    if root || schema.embedded_resource {
        for name in ["apiVersion", "kind"] {
            let text = || Arc::new(Schema { kind: Type::String, ..Schema::default() });
            schema.properties.entry(name.to_owned()).or_insert_with(text);
        }
        let mut meta = META.clone();
        if let Some(written) = schema.properties.get("metadata") {
            meta.checks.clone_from(&written.checks);
            meta.rules = written.rules.clone();
            meta.source.clone_from(&written.source);
            meta.required.clone_from(&written.required);
            meta.properties.extend(written.properties.clone());
        }
        schema.properties.insert("metadata".to_owned(), Arc::new(meta));
    }
    schema
}
