//! Is each rule of the definition needed? Without it, some mistake in the table has to pass, or be told otherwise.

use resus_k8s::crd;
use serde_json::{Value, json};

use crate::side::{CHECKS, Side};
use crate::{bad, check};

/// What refuses something in a schema, besides types and required fields.
const REFUSING: [&str; 6] = ["x-kubernetes-validations", "enum", "minLength", "minimum", "maximum", "x-kubernetes-list-map-keys"];

#[tokio::test]
async fn the_table_shows_each_rule_of_the_spec() {
    let all: Vec<Value> = crd::all().into_iter().map(|crd| json!(crd)).collect();
    let [checks, ..] = all.as_slice() else { panic!("there are definitions") };
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let rules = rules_in(checks.pointer(spec).expect("it has a spec"), spec);
    assert!(rules.len() > 40, "{rules:#?}");
    let mut unseen = Vec::new();
    for rule in rules {
        let mut without = checks.clone();
        let (parent, name) = rule.rsplit_once('/').expect("a pointer has slashes");
        match without.pointer_mut(parent).expect("it was just found") {
            Value::Array(list) => drop(list.remove(name.parse().expect("lists have numbers"))),
            Value::Object(fields) => {
                fields.remove(name);
                if name == "x-kubernetes-list-map-keys" {
                    fields.remove("x-kubernetes-list-type");
                }
            }
            other => panic!("{rule}: {other}"),
        }
        if !is_noticed(&mut Side::embedded_with(vec![without])).await {
            unseen.push(rule);
        }
    }
    assert!(unseen.is_empty(), "no mistake in the table shows these: {unseen:#?}");
}

async fn is_noticed(side: &mut Side) -> bool {
    for bad in bad::all() {
        let answer = side.try_create(CHECKS, &check("bad", &bad.whole())).await;
        if answer.code != 422 || !answer.blames(bad.field, bad.says) {
            return true;
        }
    }
    false
}

/// Pointers to all of them.
fn rules_in(schema: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for key in REFUSING.into_iter().filter(|key| !schema[key].is_null()) {
        match (key, &schema[key]) {
            ("x-kubernetes-validations", Value::Array(rules)) => {
                found.extend((0..rules.len()).map(|number| format!("{path}/{key}/{number}")));
            }
            _ => found.push(format!("{path}/{key}")),
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.extend(rules_in(property, &format!("{path}/properties/{name}")));
    }
    for key in ["items", "additionalProperties"].into_iter().filter(|key| schema[key].is_object()) {
        found.extend(rules_in(&schema[key], &format!("{path}/{key}")));
    }
    found
}
