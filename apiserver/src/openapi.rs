//! What do kubectl's validation and `explain` read? OpenAPI v3 documents.
//!
//! One document for each group version, made when it is asked for: the schemas of its kinds with everything that they
//! refer to, and the paths, in which kubectl looks for the kind of a resource and for the parameters of PATCH.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::resource::Resource;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const REFERENCE: &str = "#/components/schemas/";

/// `/openapi/v3` itself, and `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`. `builtin` is `kinds.json`.
pub fn document(path: &str, resources: &[&Resource], builtin: &Value) -> Option<Value> {
    let path = path.trim_matches('/').strip_prefix("openapi/v3")?;
    let Some(asked) = path.strip_prefix('/') else { return path.is_empty().then(|| index(resources)) };
    let here: Vec<&Resource> = resources.iter().copied().filter(|one| place(one) == asked).collect();
    if here.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for resource in &here {
        add_paths(&mut paths, resource);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "paths": paths,
        "components": {"schemas": schemas(&here, builtin)},
    }))
}

fn index(resources: &[&Resource]) -> Value {
    let places: BTreeSet<String> = resources.iter().map(|one| place(one)).collect();
    let entry = |place: String| {
        let hash = hash(resources.iter().filter(|one| self::place(one) == place));
        let url = format!("/openapi/v3/{place}?hash={hash:016X}");
        (place, json!({"serverRelativeURL": url}))
    };
    json!({"paths": places.into_iter().map(entry).collect::<Map<_, _>>()})
}

/// As `api/v1` or `apis/apps/v1`.
fn place(resource: &Resource) -> String {
    match resource.group.is_empty() {
        true => format!("api/{}", resource.version),
        false => format!("apis/{}/{}", resource.group, resource.version),
    }
}

/// Changes whenever the document would, so that clients may keep what they have: FNV-1a over what it is made from.
fn hash<'a>(resources: impl Iterator<Item = &'a &'a Resource>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for one in resources {
        let written = one.custom.as_ref().map(|custom| custom.openapi.to_string());
        let subresources: Vec<_> = one.subresources.iter().map(|(name, _)| name).collect();
        let all = format!("{} {} {:?} {:?} {written:?}", one.plural, one.kind, one.verbs, subresources);
        for byte in all.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

fn schemas(resources: &[&Resource], builtin: &Value) -> Map<String, Value> {
    let mut schemas = Map::new();
    for resource in resources {
        let name = schema_name(resource);
        if resource.custom.is_some() {
            add(custom_schema(resource, builtin), &name, builtin, &mut schemas);
        } else if let Some(schema) = builtin["schemas"].get(&name) {
            add(schema.clone(), &name, builtin, &mut schemas);
        }
        if resource.verbs.iter().any(|verb| verb == "list") {
            add(list_schema(resource, builtin), &list_name(resource), builtin, &mut schemas);
        }
    }
    schemas.entry(format!("{META}.ListMeta")).or_insert_with(list_meta);
    schemas
}

/// With everything that it refers to.
fn add(schema: Value, name: &str, builtin: &Value, schemas: &mut Map<String, Value>) {
    let mut missing = references(&schema);
    schemas.insert(name.to_owned(), schema);
    while let Some(name) = missing.pop() {
        let Some(schema) = builtin["schemas"].get(&name).filter(|_| !schemas.contains_key(&name)) else { continue };
        missing.extend(references(schema));
        schemas.insert(name, schema.clone());
    }
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => {
            let own = map.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(REFERENCE));
            own.map(str::to_owned).into_iter().chain(map.values().flat_map(references)).collect()
        }
        Value::Array(list) => list.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Of custom kinds the group is reversed, as in `dev.resus.v1.Kind`.
fn schema_name(resource: &Resource) -> String {
    if resource.custom.is_none() {
        return resource.schema_name.clone();
    }
    let reversed: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind)
}

fn list_name(resource: &Resource) -> String {
    let name = schema_name(resource);
    let package = name.strip_suffix(resource.kind.as_str()).unwrap_or_default();
    format!("{package}{}", resource.list_kind)
}

fn custom_schema(resource: &Resource, builtin: &Value) -> Value {
    let mut schema = resource.custom.as_ref().map(|custom| custom.openapi.clone()).unwrap_or_default();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.values_mut().for_each(complete_embedded);
    }
    let common = &builtin["schemas"]["io.k8s.api.core.v1.Node"]["properties"];
    for field in ["apiVersion", "kind"] {
        schema["properties"][field] = common[field].clone();
    }
    schema["properties"]["metadata"] = refer(&common["metadata"]["description"], "ObjectMeta");
    schema["x-kubernetes-group-version-kind"] = json!([gvk(resource, &resource.kind)]);
    schema
}

/// Whole objects inside of custom ones have the fields of every object, whether or not the CRD says so.
fn complete_embedded(schema: &mut Value) {
    let embedded = schema["x-kubernetes-embedded-resource"] == true;
    let Some(map) = schema.as_object_mut() else { return };
    for key in ["properties", "items", "additionalProperties"] {
        match (key, map.get_mut(key)) {
            ("properties", Some(Value::Object(fields))) => fields.values_mut().for_each(complete_embedded),
            (_, Some(inner @ Value::Object(_))) => complete_embedded(inner),
            _ => {}
        }
    }
    if !embedded {
        return;
    }
    const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let texts = [
        ("apiVersion", "apiVersion defines the versioned schema of this representation of an object.", "resources"),
        ("kind", "kind is a string value representing the type of this object. In CamelCase.", "types-kinds"),
    ];
    for (field, text, anchor) in texts {
        let text = format!("{text} More info: {CONVENTIONS}#{anchor}");
        schema["properties"][field] = json!({"description": text, "type": "string"});
    }
    let text = format!("Standard object's metadata. More info: {CONVENTIONS}#metadata");
    schema["properties"]["metadata"] = refer(&json!(text), "ObjectMeta");
    let mut required = schema["required"].as_array().cloned().unwrap_or_default();
    for field in ["kind", "apiVersion"] {
        if !required.iter().any(|one| one == field) {
            required.push(json!(field));
        }
    }
    schema["required"] = json!(required);
}

fn list_schema(resource: &Resource, builtin: &Value) -> Value {
    let common = &builtin["schemas"]["io.k8s.api.core.v1.Node"]["properties"];
    let item = format!("{REFERENCE}{}", schema_name(resource));
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": common["apiVersion"],
            "kind": common["kind"],
            "metadata": refer(&json!("Standard list metadata."), "ListMeta"),
            "items": {"description": format!("List of {}.", resource.plural), "type": "array", "items": {"$ref": item}},
        },
        "x-kubernetes-group-version-kind": [gvk(resource, &resource.list_kind)],
    })
}

fn list_meta() -> Value {
    json!({
        "description": "What a list says of itself.",
        "type": "object",
        "properties": {
            "continue": {"description": "Where the next page begins, if there is one.", "type": "string"},
            "remainingItemCount": {"description": "How many follow.", "type": "integer", "format": "int64"},
            "resourceVersion": {"description": "When the list was made; watches begin here.", "type": "string"},
        },
    })
}

fn refer(description: &Value, name: &str) -> Value {
    json!({"description": description, "allOf": [{"$ref": format!("{REFERENCE}{META}.{name}")}]})
}

fn gvk(resource: &Resource, kind: &str) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": kind})
}

/// Method and verb of what can be done with a collection and with one object.
const OF_COLLECTION: [(&str, &str); 3] = [("get", "list"), ("post", "create"), ("delete", "deletecollection")];
const OF_OBJECT: [(&str, &str); 4] = [("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")];
const OF_SUBRESOURCE: [(&str, &str); 4] = [("get", "get"), ("put", "update"), ("patch", "patch"), ("post", "create")];

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource) {
    let root = format!("/{}", place(resource));
    let verbs = json!(resource.verbs);
    let kind = gvk(resource, &resource.kind);
    let mut add = |path: String, methods: &[(&str, &str)], verbs: &Value, kind: &Value| {
        let has = |verb: &str| verbs.as_array().is_some_and(|verbs| verbs.iter().any(|one| one == verb));
        let served = methods.iter().filter(|(_, verb)| has(verb));
        let operations = served.map(|(method, verb)| ((*method).to_owned(), operation(resource, method, verb, kind)));
        let mut operations: Map<String, Value> = operations.collect();
        if !operations.is_empty() {
            operations.insert("parameters".to_owned(), path_parameters(&path));
            paths.insert(path, Value::Object(operations));
        }
    };
    let everywhere = format!("{root}/{}", resource.plural);
    let base = match resource.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
        false => everywhere.clone(),
    };
    if resource.namespaced {
        add(everywhere, &OF_COLLECTION[..1], &verbs, &kind);
    }
    add(base.clone(), &OF_COLLECTION, &verbs, &kind);
    add(format!("{base}/{{name}}"), &OF_OBJECT, &verbs, &kind);
    for (name, entry) in &resource.subresources {
        let mut kind = kind.clone();
        for key in ["group", "version", "kind"] {
            if entry[key].is_string() {
                kind[key] = entry[key].clone();
            }
        }
        add(format!("{base}/{{name}}/{name}"), &OF_SUBRESOURCE, &entry["verbs"], &kind);
    }
}

fn path_parameters(path: &str) -> Value {
    let named = ["namespace", "name"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
    let all = named.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    all.collect()
}

fn operation(resource: &Resource, method: &str, verb: &str, kind: &Value) -> Value {
    let own = kind["kind"] == resource.kind.as_str();
    let answer = match verb {
        "list" => json!({"$ref": format!("{REFERENCE}{}", list_name(resource))}),
        "delete" | "deletecollection" => json!({"type": "object"}),
        _ if own => json!({"$ref": format!("{REFERENCE}{}", schema_name(resource))}),
        _ => json!({"type": "object"}),
    };
    let action = if matches!(verb, "list" | "deletecollection") { verb } else { method };
    let mut operation = json!({
        "description": format!("{verb} {}", resource.plural),
        "parameters": parameters(verb),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    });
    let content = match verb {
        "patch" => patches(resource.custom.is_none()),
        "create" | "update" => json!({"*/*": {"schema": answer}}),
        _ => return operation,
    };
    operation["requestBody"] = json!({"content": content, "required": true});
    operation
}

/// kubectl makes strategic merge patches only for kinds that say so here.
fn patches(strategic: bool) -> Value {
    let kinds = ["apply-patch+yaml", "json-patch+json", "merge-patch+json", "strategic-merge-patch+json"];
    let kinds = &kinds[..if strategic { 4 } else { 3 }];
    let content = kinds.iter().map(|kind| (format!("application/{kind}"), json!({"schema": {"type": "object"}})));
    Value::Object(content.collect())
}

/// The query. kubectl asks for a dry run or for validation by the server only if it finds the parameter at PATCH.
fn parameters(verb: &str) -> Value {
    let names: &[(&str, &str)] = match verb {
        "list" => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        "create" | "update" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
        "patch" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")],
        "delete" | "deletecollection" => {
            &[("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("propagationPolicy", "string")]
        }
        _ => &[],
    };
    names.iter().map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind}})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Custom, builtin_source, read_all};

    fn widget(spec: &Value) -> Resource {
        let openapi = json!({"type": "object", "properties": {"spec": spec, "metadata": {"type": "object"}}});
        Resource {
            group: "resus.dev".to_owned(),
            version: "v1".to_owned(),
            plural: "widgets".to_owned(),
            kind: "Widget".to_owned(),
            list_kind: "WidgetList".to_owned(),
            namespaced: true,
            verbs: ["get", "list", "patch"].map(str::to_owned).to_vec(),
            custom: Some(Custom { openapi, ..Custom::default() }.into()),
            ..Resource::default()
        }
    }

    fn ask(path: &str, spec: &Value) -> Option<Value> {
        let source = builtin_source();
        let mut all = read_all(source);
        all.push(widget(spec));
        document(path, &all.iter().collect::<Vec<_>>(), source)
    }

    #[test]
    fn the_index_leads_to_every_document_and_every_reference_to_a_schema() {
        let index = ask("/openapi/v3", &Value::Null).unwrap();
        let paths = index["paths"].as_object().unwrap();
        assert_eq!(paths.len(), 13);
        for (place, entry) in paths {
            let url = entry["serverRelativeURL"].as_str().unwrap();
            let (path, hash) = url.split_once("?hash=").unwrap();
            assert_eq!((path, hash.len()), (format!("/openapi/v3/{place}").as_str(), 16));
            let document = ask(path, &Value::Null).unwrap();
            let schemas = document["components"]["schemas"].as_object().unwrap();
            for name in references(&document) {
                assert!(schemas.contains_key(&name), "{place} {name}");
            }
        }
        for path in ["/openapi/v2", "/openapi/v3/apis/none/v1", "/openapi/v3x", "/openapi/v3/apis"] {
            assert_eq!(ask(path, &Value::Null), None, "{path}");
        }
    }

    #[test]
    fn a_changed_schema_changes_the_hash_of_its_document_only() {
        let hash = |spec: &Value, place: &str| ask("/openapi/v3", spec).unwrap()["paths"][place].clone();
        let (one, other) = (json!({"type": "object"}), json!({"type": "string"}));
        assert_ne!(hash(&one, "apis/resus.dev/v1"), hash(&other, "apis/resus.dev/v1"));
        assert_eq!(hash(&one, "api/v1"), hash(&other, "api/v1"));
    }

    #[test]
    fn patches_name_their_kind_their_parameters_and_whether_they_merge_strategically() {
        let core = ask("/openapi/v3/api/v1", &Value::Null).unwrap();
        let patch = &core["paths"]["/api/v1/nodes/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "", "version": "v1", "kind": "Node"}));
        let has = |patch: &Value, name: &str| {
            patch["parameters"].as_array().unwrap().iter().any(|one| one["name"] == name && one["in"] == "query")
        };
        assert!(has(patch, "dryRun") && has(patch, "fieldValidation"));
        let strategic = "application/strategic-merge-patch+json";
        assert!(patch["requestBody"]["content"].get(strategic).is_some());
        let evict = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"];
        assert_eq!(evict["x-kubernetes-group-version-kind"]["kind"], "Eviction");
        let custom = ask("/openapi/v3/apis/resus.dev/v1", &Value::Null).unwrap();
        let patch = &custom["paths"]["/apis/resus.dev/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
        assert!(has(patch, "dryRun") && patch["requestBody"]["content"].get(strategic).is_none());
    }

    #[test]
    fn custom_kinds_have_the_fields_of_every_object_also_inside() {
        let template = json!({"type": "object", "x-kubernetes-embedded-resource": true});
        let spec = json!({"type": "array", "items": {"type": "object", "properties": {"template": template}}});
        let document = ask("/openapi/v3/apis/resus.dev/v1", &spec).unwrap();
        let widget = &document["components"]["schemas"]["dev.resus.v1.Widget"];
        let kind = json!([{"group": "resus.dev", "version": "v1", "kind": "Widget"}]);
        assert_eq!(widget["x-kubernetes-group-version-kind"], kind);
        // As a real server has them.
        let metadata = json!({
            "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
            "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
        });
        assert_eq!(widget["properties"]["metadata"], metadata);
        assert_eq!(widget["properties"]["apiVersion"]["type"], "string");
        let template = &widget["properties"]["spec"]["items"]["properties"]["template"];
        assert_eq!((&template["properties"]["metadata"], &template["required"]), (&metadata, &json!(["kind", "apiVersion"])));
        assert!(document["components"]["schemas"].get("dev.resus.v1.WidgetList").is_some());
    }
}
