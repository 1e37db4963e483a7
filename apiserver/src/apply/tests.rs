//! Rows from a real server: what was stored, what was written or applied, and what came of it.

use serde_json::{Value, json};

use super::*;

fn rows() -> Vec<(Value, Schema)> {
    let real: Value = serde_json::from_str(include_str!("real.json")).unwrap();
    let source = crate::resource::builtin_source();
    let schema = |name: &str| match name {
        "foo" => Schema::of_crd(&real["foo"]),
        name => Schema::of_kind(name, source["schemas"].as_object().unwrap()),
    };
    let rows = real["rows"].as_array().unwrap();
    let whole = |row: &Value| {
        let mut row = row.clone();
        // What was stored before is mostly what an earlier row left.
        if let Some(earlier) = row["old"].as_u64() {
            row["old"] = rows[usize::try_from(earlier).unwrap()]["new"].clone();
        }
        row
    };
    rows.iter().map(|row| (whole(row), schema(row["schema"].as_str().unwrap()))).collect()
}

fn manager(row: &Value) -> Manager<'_> {
    let text = |value: &'_ Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let entries = row["new"]["metadata"]["managedFields"].as_array().into_iter().flatten();
    let latest = entries.filter_map(|entry| entry["time"].as_str()).max().unwrap_or("2000-01-01T00:00:00Z");
    let api_version = match text(&row["schema"]).as_str() {
        "foo" => "ex.io/v1",
        "io.k8s.api.apps.v1.Deployment" => "apps/v1",
        _ => "v1",
    };
    let name = row["manager"].as_str().unwrap();
    Manager { name, api_version, subresource: row["subresource"].as_str().unwrap(), time: latest, leaves_status: false }
}

fn old(row: &Value) -> Option<&Value> {
    row.get("old").filter(|old| !old.is_null())
}

#[test]
fn updates_are_tracked_as_on_a_real_server() {
    for (row, schema) in rows().iter().filter(|(row, _)| row.get("applied").is_none()) {
        let mut new = row["new"].clone();
        let want = new["metadata"].as_object_mut().unwrap().remove("managedFields").unwrap_or_default();
        if row.get("reset").is_some() {
            new["metadata"]["managedFields"] = json!([{}]);
        }
        track(old(row), &mut new, schema, manager(row));
        same(&new["metadata"]["managedFields"], &want, &row["what"]);
    }
}

#[test]
fn a_patched_copy_with_its_managed_fields_is_tracked_alike() {
    for (row, schema) in rows().iter().filter(|(row, _)| row.get("applied").is_none() && row.get("reset").is_none()) {
        let mut new = row["new"].clone();
        let want = new["metadata"].as_object_mut().unwrap().remove("managedFields").unwrap_or_default();
        if let Some(fields) = old(row).and_then(|old| old["metadata"].get("managedFields")) {
            new["metadata"]["managedFields"] = fields.clone();
        }
        track(old(row), &mut new, schema, manager(row));
        same(&new["metadata"]["managedFields"], &want, &row["what"]);
    }
}

#[test]
fn configurations_are_applied_as_on_a_real_server() {
    for (row, schema) in rows().iter().filter(|(row, _)| row.get("applied").is_some()) {
        let force = row["force"] == true;
        let got = apply(old(row), &row["applied"], schema, manager(row), force);
        match row.get("refused") {
            Some(refused) => {
                let Err(got) = got else { panic!("{} was not refused", row["what"]) };
                assert_eq!(json!(got.message), refused["message"], "{}", row["what"]);
                assert_eq!((json!(got.code), got.reason), (refused["code"].clone(), refused["reason"].as_str().unwrap_or("")));
                // The real server lists the causes in the order of a hash map.
                let causes = got.causes.iter().map(|cause| (json!(cause.field), json!(cause.message), json!(cause.reason)));
                let wanted = refused["causes"].as_array().unwrap().iter();
                let wanted = wanted.map(|cause| (cause["field"].clone(), cause["message"].clone(), cause["reason"].clone()));
                let sorted = |mut all: Vec<(Value, Value, Value)>| {
                    all.sort_by_key(|cause| format!("{cause:?}"));
                    all
                };
                assert_eq!(sorted(causes.collect()), sorted(wanted.collect()), "{}", row["what"]);
            }
            None => {
                let got = got.unwrap_or_else(|refusal| panic!("{}: {refusal:?}", row["what"]));
                same(&got["metadata"]["managedFields"], &row["new"]["metadata"]["managedFields"], &row["what"]);
                within(&got, &row["new"], &row["what"].to_string());
                if row["schema"] == "io.k8s.api.core.v1.ConfigMap" {
                    within(&row["new"], &got, &row["what"].to_string());
                }
            }
        }
    }
}

/// Times of entries aside whose manager did nothing now: only their order is of interest.
fn same(got: &Value, want: &Value, what: &Value) {
    let lines = |value: &Value| value.as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
    assert_eq!(lines(got), lines(want), "{what}");
}

/// Everything but what the server adds afterwards: defaults, and what identifies and counts.
fn within(part: &Value, whole: &Value, path: &str) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (key, value) in part {
                if ["generation", "creationTimestamp", "namespace", "managedFields"].contains(&key.as_str())
                    || *value == json!({})
                {
                    continue;
                }
                within(value, whole.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"));
            }
        }
        (Value::Array(part), Value::Array(whole)) => {
            assert_eq!(part.len(), whole.len(), "{path}");
            part.iter().zip(whole).for_each(|(part, whole)| within(part, whole, &format!("{path}[]")));
        }
        _ => assert_eq!(part, whole, "{path}"),
    }
}
