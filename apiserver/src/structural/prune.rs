//! Which fields of an object does its schema not know?

use serde_json::Value;

use crate::schema::Schema;

/// Removes fields that the schema does not know and returns their paths, as in `unknown field "spec.a[0].b"`, in the
/// order in which the API server names them: that of the document for built-in kinds (whose maps are sorted here), and
/// for custom ones the object's metadata, then the rest, then the metadata of embedded objects.
pub fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut unknown = Unknown::default();
    walk(object, schema, &mut vec![schema], &Path::Root, &mut unknown);
    if schema.checks.is_none() {
        return unknown.fields;
    }
    let (mut own, mut embedded): (Vec<String>, Vec<String>) =
        unknown.metadata.into_iter().partition(|path| path.starts_with("metadata."));
    own.sort();
    unknown.fields.sort();
    embedded.sort();
    own.into_iter().chain(unknown.fields).chain(embedded).collect()
}

#[derive(Default)]
struct Unknown {
    fields: Vec<String>,
    /// Of custom kinds only: below `metadata` of the object itself or of embedded ones.
    metadata: Vec<String>,
}

impl Unknown {
    fn record(&mut self, path: String, around: &[&Schema]) {
        let is_custom = around.first().is_some_and(|root| root.checks.is_some());
        let in_metadata = around.iter().any(|schema| schema.name.ends_with(".ObjectMeta"));
        match is_custom && in_metadata {
            true => self.metadata.push(path),
            false => self.fields.push(path),
        }
    }
}

/// Where in the object; its text is made only where something is wrong.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn text(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Field(Path::Root, name) => (*name).to_owned(),
            Path::Field(above, name) => format!("{}.{name}", above.text()),
            Path::Item(above, index) => format!("{}[{index}]", above.text()),
        }
    }
}

/// `around` are the schemas from the root down to `schema` itself: one that refers back to itself is found there.
fn walk<'a>(value: &mut Value, schema: &'a Schema, around: &mut Vec<&'a Schema>, path: &Path, unknown: &mut Unknown) {
    let schema = resolve(schema, around);
    match value {
        Value::Object(map) if !is_free(schema) => map.retain(|name, value| {
            let below = Path::Field(path, name);
            let Some(field) = schema.field(name) else {
                if !schema.preserve_unknown {
                    unknown.record(below.text(), around);
                }
                return schema.preserve_unknown;
            };
            around.push(field);
            walk(value, field, around, &below, unknown);
            around.pop();
            true
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let below = Path::Item(path, index);
                match &schema.items {
                    Some(items) => {
                        around.push(items);
                        walk(item, items, around, &below, unknown);
                        around.pop();
                    }
                    None if schema.preserve_unknown || is_free(schema) => {}
                    None => walk(
                        item,
                        &Schema { checks: schema.checks.clone(), ..Schema::default() },
                        &mut around.clone(),
                        &below,
                        unknown,
                    ),
                }
            }
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Built-in schemas that refer to themselves stop at the second round; the walk goes on with the first.
pub fn resolve<'a>(schema: &'a Schema, around: &[&'a Schema]) -> &'a Schema {
    let is_circle = !schema.name.is_empty() && schema.preserve_unknown && schema.properties.is_empty();
    let same = |outer: &&&Schema| outer.name == schema.name && !outer.properties.is_empty();
    if is_circle { around.iter().rev().find(same).copied().unwrap_or(schema) } else { schema }
}

/// Built-in kinds that say nothing of their fields hold anything: managed fields, raw JSON.
fn is_free(schema: &Schema) -> bool {
    schema.checks.is_none() && schema.properties.is_empty() && schema.values.is_none() && schema.items.is_none()
}
