//! What does `kubectl get` print? Tables, made by the server.

mod age;
mod cells;
mod custom;
mod jsonpath;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Resource;

/// How much of each object goes into its row, by the parameter `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    None,
    Metadata,
    Object,
}

/// A `meta.k8s.io/v1` Table of these objects; `metadata` is that of the list, or nothing for a single object or event.
/// `columns`: whether the definitions of the columns are wanted; a watch sends them with its first event only.
pub fn table(
    resource: &Resource,
    objects: &[Value],
    metadata: Option<Value>,
    include: Include,
    columns: bool,
    now: Timestamp,
) -> Value {
    let print = printer(resource);
    let rows = objects.iter().map(|object| {
        let mut row = json!({"cells": print(object, now), "object": included(object, include)});
        if let Some(conditions) = pod::completed(object).filter(|_| resource.is("", "pods")) {
            row["conditions"] = conditions;
        }
        row
    });
    let rows: Vec<Value> = rows.collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata.map_or_else(|| version_of(objects), |list| list_metadata(&list)),
        // Without definitions the field is null, as in Kubernetes.
        "columnDefinitions": if columns { definitions(resource) } else { Value::Null },
        "rows": rows,
    })
}

/// Cells of one object.
type Printer<'a> = Box<dyn Fn(&Value, Timestamp) -> Vec<Value> + 'a>;

fn printer(resource: &Resource) -> Printer<'_> {
    match resource.custom {
        Some(_) => {
            let columns = custom::columns(&resource.columns);
            Box::new(move |object, now| custom::cells(&columns, object, now))
        }
        None => Box::new(move |object, now| cells::builtin(resource, object, now)),
    }
}

fn included(object: &Value, include: Include) -> Value {
    match include {
        Include::Object => object.clone(),
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        }),
        Include::None => Value::Null,
    }
}

/// Only what a table has of a list.
fn list_metadata(list: &Value) -> Value {
    let keys = ["resourceVersion", "continue", "remainingItemCount"];
    let said = |key: &str| list.get(key).filter(|value| *value != "").cloned();
    Value::Object(keys.into_iter().filter_map(|key| Some((key.to_owned(), said(key)?))).collect())
}

fn version_of(objects: &[Value]) -> Value {
    match objects {
        [one] => list_metadata(&json!({"resourceVersion": cells::text(&one["metadata"]["resourceVersion"])})),
        _ => json!({}),
    }
}

fn definitions(resource: &Resource) -> Value {
    match resource.custom {
        Some(_) => custom::definitions(&resource.columns),
        None => json!(resource.columns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Custom, builtin_source, read_all};

    fn resource(api_version: &str, plural: &str, columns: &Value) -> Resource {
        let known = read_all(builtin_source());
        let known = known.into_iter().find(|one| one.api_version() == api_version && one.plural == plural);
        let with_columns = (api_version, plural) == ("resus.dev/v1", "widgets");
        known.unwrap_or_else(|| Resource {
            columns: columns.as_array().filter(|_| with_columns).cloned().unwrap_or_default(),
            custom: Some(Custom::default().into()),
            ..Resource::default()
        })
    }

    #[test]
    fn rows_are_those_of_a_real_server() {
        let real: Value = serde_json::from_str(include_str!("real.json")).unwrap();
        let tables = real["tables"].as_array().unwrap();
        assert_eq!(tables.len(), 24);
        for asked in tables {
            let plural = asked["resource"].as_str().unwrap();
            let resource = resource(asked["apiVersion"].as_str().unwrap(), plural, &real["widgetColumns"]);
            let now = asked["now"].as_str().unwrap().parse().unwrap();
            for row in asked["rows"].as_array().unwrap() {
                let objects = [row["object"].clone()];
                let ours = table(&resource, &objects, None, Include::Object, true, now);
                assert_eq!(ours["rows"][0], *row, "{plural}");
                let (columns, cells) = (&ours["columnDefinitions"], &row["cells"]);
                assert_eq!(columns.as_array().unwrap().len(), cells.as_array().unwrap().len(), "{plural}");
            }
        }
    }

    #[test]
    fn a_list_keeps_its_metadata_and_an_object_its_version() {
        let node = resource("v1", "nodes", &Value::Null);
        let objects = [json!({"metadata": {"name": "n1", "resourceVersion": "7"}})];
        let list = json!({"resourceVersion": "9", "continue": "", "remainingItemCount": 3, "selfLink": "/"});
        let now = Timestamp::UNIX_EPOCH;
        let whole = table(&node, &objects, Some(list), Include::None, false, now);
        assert_eq!(whole["metadata"], json!({"resourceVersion": "9", "remainingItemCount": 3}));
        assert_eq!((&whole["columnDefinitions"], &whole["rows"][0]["object"]), (&Value::Null, &Value::Null));
        let single = table(&node, &objects, None, Include::Metadata, true, now);
        assert_eq!(single["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(single["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    }

    #[test]
    fn columns_of_custom_kinds_are_described() {
        let plain = resource("resus.dev/v1", "plains", &Value::Null);
        let name = &read_all(builtin_source())[0].columns[0];
        let age = &read_all(builtin_source())[0].columns[2]["description"];
        let ours = table(&plain, &[], None, Include::None, true, Timestamp::UNIX_EPOCH);
        let expected = json!([name, {"name": "Age", "type": "date", "format": "", "description": age, "priority": 0}]);
        assert_eq!(ours["columnDefinitions"], expected);
        let size = json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}]);
        let ours = table(&resource("resus.dev/v1", "widgets", &size), &[], None, Include::None, true, Timestamp::UNIX_EPOCH);
        let described = "Custom resource definition column (in JSONPath format): .spec.size";
        let expected = json!({"name": "Size", "type": "integer", "format": "", "description": described, "priority": 1});
        assert_eq!(ours["columnDefinitions"][1], expected);
    }

    #[test]
    fn garbage_is_printed_without_harm() {
        let garbage = [json!(null), json!([1]), json!({"metadata": 3, "spec": [], "status": {"conditions": {"a": 1}}})];
        for resource in read_all(builtin_source()) {
            let rows = table(&resource, &garbage, None, Include::Metadata, true, Timestamp::MIN);
            assert_eq!(rows["rows"].as_array().map(Vec::len), Some(3));
        }
    }
}
