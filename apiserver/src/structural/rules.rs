//! What does a schema in a CRD demand of a value? Read once, when the CRD is.

use regex::Regex;
use serde_json::{Map, Value};

use crate::schema::Schema;
use crate::structural::formats;
use crate::structural::pattern;

#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// JSON types, as the schema calls them; empty where any will do.
    pub types: Vec<String>,
    /// Only one that the API server checks; unknown ones are ignored.
    pub format: Option<String>,
    pub allowed: Vec<Value>,
    pub pattern: Option<Pattern>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub unique_items: bool,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    /// `additionalProperties: false`.
    pub closed: bool,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

#[derive(Clone, Debug)]
pub struct Pattern {
    pub text: String,
    /// CRDs with a pattern that does not compile are refused.
    pub compiled: Option<Regex>,
}

impl Pattern {
    pub fn matches(&self, text: &str) -> bool {
        self.compiled.as_ref().is_some_and(|compiled| compiled.is_match(text))
    }
}

impl Rules {
    /// `child` reads the schemas below `allOf` and so on.
    pub fn read(map: &Map<String, Value>, child: &dyn Fn(&Value) -> Schema) -> Rules {
        let flag = |key: &str| map.get(key).and_then(Value::as_bool) == Some(true);
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_i64);
        let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let list = |key: &str| map.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let types: Vec<String> = match flag("x-kubernetes-int-or-string") {
            true => vec!["integer".to_owned(), "string".to_owned()],
            false => text("type").map(str::to_owned).into_iter().collect(),
        };
        Rules {
            format: text("format").filter(|format| formats::is_checked(format, &types)).map(str::to_owned),
            types,
            allowed: list("enum"),
            pattern: text("pattern").map(|text| Pattern { text: text.to_owned(), compiled: pattern::compile(text).ok() }),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            closed: map.get("additionalProperties") == Some(&Value::Bool(false)),
            all_of: list("allOf").iter().map(child).collect(),
            any_of: list("anyOf").iter().map(child).collect(),
            one_of: list("oneOf").iter().map(child).collect(),
            not: map.get("not").filter(|not| !not.is_null()).map(|not| Box::new(child(not))),
        }
    }
}
