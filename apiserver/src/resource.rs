//! Which kinds are served, and under which names?

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use crate::schema::Schema;
use crate::store::TableName;

/// One kind in one version.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// As `status`, each with the entry of the discovery document.
    pub subresources: Vec<(String, Value)>,
    pub schema: Arc<Schema>,
    /// Name of the schema in the OpenAPI document.
    pub schema_name: String,
    /// Columns of tables, as in the API's own `columnDefinitions`; for a CRD with `jsonPath` in each.
    pub columns: Vec<Value>,
    /// Of a CRD: the fields that field selectors may name, as `.spec.color`.
    pub selectable: Vec<String>,
    /// Made from a CRD; None for built-in kinds.
    pub custom: Option<Arc<Custom>>,
    /// See [`Resource::table`].
    pub table: OnceLock<TableName>,
}

/// What only kinds from CRDs have.
#[derive(Clone, Debug, Default)]
pub struct Custom {
    /// The name of the CRD, and the version of the CRD that this was made from.
    pub definition: String,
    pub version: String,
    /// Objects are stored in this version.
    pub storage_version: String,
    /// `.spec.replicas` and so on, where there is a scale subresource.
    pub scale: Option<Value>,
    /// The schema of this version as written, for OpenAPI documents.
    pub openapi: Value,
    /// Whether the API server warns, and how.
    pub deprecated: Option<String>,
}

impl Resource {
    /// As `nodes` or `leases.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        match self.group.is_empty() {
            true => self.plural.clone(),
            false => format!("{}.{}", self.plural, self.group),
        }
    }

    /// As `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }

    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|(name, _)| name == subresource)
    }

    /// With the version of the CRD that it was made from.
    pub fn made_from(self, version: &str) -> Resource {
        let custom = self.custom.map(|custom| Arc::new(Custom { version: version.to_owned(), ..(*custom).clone() }));
        Resource { custom, ..self }
    }

    /// Where its objects are stored. The two APIs for Events show one store.
    pub fn table(&self) -> &TableName {
        self.table.get_or_init(|| {
            let group = if self.is("events.k8s.io", "events") { "" } else { &self.group };
            TableName { group: group.to_owned(), plural: self.plural.clone() }
        })
    }

    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// What a real API server says of its own kinds, as the file says that was made from it.
pub fn builtin_source() -> &'static Value {
    static SOURCE: OnceLock<Value> = OnceLock::new();
    SOURCE.get_or_init(|| serde_json::from_str(include_str!("kinds.json")).expect("it was generated from JSON"))
}

/// The kinds that every server has.
pub fn builtin() -> &'static [Arc<Resource>] {
    static BUILTIN: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    BUILTIN.get_or_init(|| read_all(builtin_source()).into_iter().map(Arc::new).collect())
}

pub fn read_all(source: &Value) -> Vec<Resource> {
    let no_schemas = Map::new();
    let schemas = source["schemas"].as_object().unwrap_or(&no_schemas);
    let mut all: Vec<Resource> = Vec::new();
    for group in source["groups"].as_array().into_iter().flatten() {
        let group_version = group["groupVersion"].as_str().unwrap_or_default();
        let (group_name, version) = group_version.split_once('/').unwrap_or(("", group_version));
        for entry in group["resources"].as_array().into_iter().flatten() {
            let name = text(entry, "name");
            match name.split_once('/') {
                None => all.push(read(entry, group_name, version, schemas)),
                Some((plural, subresource)) => {
                    let owner = all.iter_mut().find(|one| one.is(group_name, plural) && one.version == version);
                    if let Some(owner) = owner {
                        owner.subresources.push((subresource.to_owned(), entry.clone()));
                    }
                }
            }
        }
    }
    all
}

fn read(entry: &Value, group: &str, version: &str, schemas: &Map<String, Value>) -> Resource {
    let kind = text(entry, "kind");
    let schema_name = text(entry, "schema");
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: text(entry, "name"),
        singular: text(entry, "singularName"),
        list_kind: format!("{kind}List"),
        kind,
        short_names: texts(entry, "shortNames"),
        categories: texts(entry, "categories"),
        namespaced: entry["namespaced"].as_bool() == Some(true),
        verbs: texts(entry, "verbs"),
        subresources: Vec::new(),
        schema: Arc::new(Schema::of_kind(&schema_name, schemas)),
        schema_name,
        columns: entry["columns"].as_array().cloned().unwrap_or_default(),
        selectable: Vec::new(),
        custom: None,
        table: OnceLock::new(),
    }
}

fn text(entry: &Value, key: &str) -> String {
    entry[key].as_str().unwrap_or_default().to_owned()
}

fn texts(entry: &Value, key: &str) -> Vec<String> {
    let list = entry[key].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
