//! What is wrong with the values of a custom object?
//!
//! Every check counts what it found in order, as Kubernetes' validator does: where none of several alternatives fits,
//! the errors shown are those of the one that matched best.

use serde_json::{Value, json};

use crate::refusal::Cause;
use crate::schema::{List, Schema};
use crate::structural::rules::Rules;
use crate::structural::{embedded, formats, lists, numbers};

/// For custom kinds: types, enums, patterns, limits, required fields, embedded objects, list uniqueness; not the CEL
/// rules, and not the object's own metadata. `old` allows ratcheting: what was invalid before and is unchanged passes.
pub fn validate(object: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    let mut causes = fit(object, old, schema, "");
    causes.extend(embedded::check(object, schema, ""));
    let was_unique = old.is_none_or(|old| lists::check(old, schema, "").is_empty());
    if was_unique {
        causes.extend(lists::check(object, schema, ""));
    }
    causes
}

/// A write of the status alone, which is validated as if it were an object of its own: messages name fields without
/// the `status.` in front.
pub fn validate_status(object: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let (Some(status), Some(schema)) = (object.get("status"), schema.properties.get("status")) {
        let old = old.and_then(|old| old.get("status"));
        causes = fit(status, old, schema, "status");
    }
    causes.extend(embedded::check(object, schema, ""));
    let was_unique = old.is_none_or(|old| lists::check(old, schema, "").is_empty());
    if was_unique {
        causes.extend(lists::check(object, schema, ""));
    }
    causes
}

/// Whether a value fits a schema on its own; `under` comes before the paths of the fields.
pub fn fit(value: &Value, old: Option<&Value>, schema: &Schema, under: &str) -> Vec<Cause> {
    let place = |field: String| match (under, field.trim_start_matches('.')) {
        (_, "<nil>") if under.is_empty() => "<nil>".to_owned(),
        (_, "" | "<nil>") if !under.is_empty() => under.to_owned(),
        ("", "") => "<nil>".to_owned(),
        ("", field) => field.to_owned(),
        (under, field) => format!("{under}.{field}"),
    };
    let faults = ratchet(value, old, schema, "").faults;
    faults.into_iter().map(|fault| Cause { field: place(fault.cause.field), ..fault.cause }).collect()
}

/// What the checks found, and how many passed.
#[derive(Default)]
pub struct Verdict {
    pub faults: Vec<Fault>,
    pub passed: usize,
}

pub struct Fault {
    pub cause: Cause,
    /// The same text is said only once.
    text: String,
}

impl Verdict {
    pub fn add(&mut self, field: &str, reason: &'static str, message: String, text: String) {
        if !self.faults.iter().any(|fault| fault.text == text) {
            self.faults.push(Fault { cause: Cause { field: field.to_owned(), reason, message }, text });
        }
    }

    /// `shown` is the value as it is printed.
    pub fn invalid(&mut self, field: &str, shown: impl std::fmt::Display, text: String) {
        self.add(field, "FieldValueInvalid", format!("Invalid value: {shown}: {text}"), text);
    }

    /// Without a field: the path is in the text.
    pub fn bare(&mut self, text: String) {
        self.add("<nil>", "FieldValueInvalid", format!("Invalid value: \"\": {text}"), text);
    }

    fn wrong_type(&mut self, path: &str, wanted: &str, found: &str) {
        let text = format!("{path} in body must be of type {wanted}: {}", quoted(found));
        self.add(path, "FieldValueTypeInvalid", format!("Invalid value: {}: {text}", quoted(found)), text);
    }

    pub fn merge(&mut self, other: Verdict) {
        self.passed += other.passed;
        for fault in other.faults {
            if !self.faults.iter().any(|known| known.text == fault.text) {
                self.faults.push(fault);
            }
        }
    }
}

/// Up to here floats hold every whole number; what is larger is no integer to the API server.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// What was invalid before and is unchanged passes.
fn ratchet(value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Verdict {
    let mut verdict = check(value, old, schema, path);
    if old == Some(value) {
        verdict.faults.clear();
    }
    verdict
}

fn check(value: &Value, old: Option<&Value>, schema: &Schema, path: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(rules) = &schema.checks else { return verdict };
    if value.is_null() {
        verdict.merge(of_type(value, schema, rules, path));
        verdict.merge(of_enum(value, rules, path));
        return verdict;
    }
    if !rules.types.is_empty() || rules.format.is_some() {
        verdict.merge(of_type(value, schema, rules, path));
        verdict.passed += 1;
    }
    verdict.merge(alternatives(value, old, rules, path));
    verdict.passed += 1;
    match value {
        Value::String(text) => {
            verdict.merge(of_text(text, rules, path));
            verdict.passed += 1;
            if let Some(format) = &rules.format {
                if !formats::holds(format, text) {
                    verdict.wrong_type(path, format, text);
                }
                verdict.passed += 1;
            }
        }
        Value::Number(number) => {
            verdict.merge(numbers::check(number, rules, path));
            verdict.passed += 1;
        }
        Value::Array(items) => {
            verdict.merge(of_list(items, old, schema, rules, path));
            verdict.passed += 1;
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
    verdict.merge(of_enum(value, rules, path));
    verdict.passed += 1;
    if let Value::Object(_) = value {
        verdict.merge(of_object(value, old, schema, rules, path));
        verdict.passed += 1;
    }
    verdict.passed += 1;
    verdict
}

fn of_type(value: &Value, schema: &Schema, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let wanted = rules.types.join(",");
    let wants = |name: &str| rules.types.iter().any(|one| one == name);
    let (name, detail) = type_name(value);
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= EXACT_MAX);
    let fits = wants(name) || (name == "number" && is_whole && wants("integer")) || (name == "integer" && wants("number"));
    let is_text = matches!(value, Value::String(_) | Value::Array(_));
    match &rules.format {
        _ if value.is_null() => match rules.types.is_empty() || schema.nullable {
            true => verdict.passed = 1,
            false => verdict.wrong_type(path, &wanted, "null"),
        },
        Some(format) if !is_text && !fits && detail != format => verdict.wrong_type(path, format, detail),
        Some(_) if is_text && !wants("number") && !wants("integer") => verdict.passed = 1,
        Some(_) | None if !fits => verdict.wrong_type(path, &wanted, name),
        Some(_) | None => verdict.passed = 1,
    }
    verdict
}

/// The JSON type, and the format that Go's own type of it stands for.
fn type_name(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn of_enum(value: &Value, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let same = |allowed: &Value| match (allowed.as_f64(), value.as_f64()) {
        (Some(one), Some(other)) => one == other,
        (_, _) => allowed == value && !value.is_null(),
    };
    if rules.allowed.is_empty() || rules.allowed.iter().any(same) {
        return verdict;
    }
    let show = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
    let supported: Vec<String> = rules.allowed.iter().map(|one| quoted(&show(one))).collect();
    let message = format!("Unsupported value: {}: supported values: {}", printed(value), supported.join(", "));
    let text = format!("{path} in body should be one of [{}]", rules.allowed.iter().map(show).collect::<Vec<_>>().join(" "));
    verdict.add(path, "FieldValueNotSupported", message, text);
    verdict
}

fn of_text(text: &str, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(most) = rules.max_length.filter(|most| length > *most) {
        let bytes = if most == 1 { "byte" } else { "bytes" };
        let said = format!("{path} in body should be at most {most} chars long");
        verdict.add(path, "FieldValueTooLong", format!("Too long: may not be more than {most} {bytes}"), said);
    } else if let Some(least) = rules.min_length.filter(|least| length < *least) {
        verdict.invalid(path, quoted(text), format!("{path} in body should be at least {least} chars long"));
    } else if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
        verdict.invalid(path, quoted(text), format!("{path} in body should match '{}'", pattern.text));
    }
    verdict
}

fn of_list(items: &[Value], old: Option<&Value>, schema: &Schema, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict { passed: 1, ..Verdict::default() };
    if let Some(schema_of_items) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            let old = counterpart(item, old, &schema.list);
            verdict.merge(ratchet(item, old, schema_of_items, &format!("{path}[{index}]")));
        }
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(least) = rules.min_items.filter(|least| count < *least) {
        verdict.invalid(path, count, format!("{path} in body should have at least {least} items"));
    }
    if let Some(most) = rules.max_items.filter(|most| count > *most) {
        too_many(&mut verdict, path, count, most, "items");
    }
    let repeats = || items.iter().enumerate().any(|(index, item)| items[..index].contains(item));
    if rules.unique_items && repeats() {
        verdict.invalid(path, "\"\"", format!("{path} in body shouldn't contain duplicates"));
    }
    verdict
}

/// Only items with keys can be told apart; those of other lists have no past.
fn counterpart<'a>(item: &Value, old: Option<&'a Value>, list: &List) -> Option<&'a Value> {
    let List::Map { keys } = list else { return None };
    old?.as_array()?.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

fn too_many(verdict: &mut Verdict, path: &str, count: i64, most: i64, what: &str) {
    let items = if most == 1 { "item" } else { "items" };
    let text = format!("{path} in body should have at most {most} {what}");
    verdict.add(path, "FieldValueTooMany", format!("Too many: {count}: must have at most {most} {items}"), text);
}

fn of_object(value: &Value, old: Option<&Value>, schema: &Schema, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let Value::Object(map) = value else { return verdict };
    let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
    if let Some(least) = rules.min_properties.filter(|least| count < *least) {
        verdict.invalid(path, count, format!("{path} in body should have at least {least} properties"));
    }
    if let Some(most) = rules.max_properties.filter(|most| count > *most) {
        too_many(&mut verdict, path, count, most, "properties");
    }
    let old_of = |name: &str| old.and_then(|old| old.get(name));
    for (name, value) in map.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
        if rules.closed {
            verdict.invalid(path, quoted(name), format!("{path}.{name} in body is a forbidden property"));
        } else if let Some(schema) = &schema.values {
            verdict.merge(ratchet(value, old_of(name), schema, &format!("{path}.{name}")));
        }
    }
    for (name, schema) in &schema.properties {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let Some(value) = map.get(name) {
            verdict.merge(ratchet(value, old_of(name), schema, &below));
        }
    }
    for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
        let text = format!("{path}.{name} in body is required");
        verdict.add(&format!("{path}.{name}"), "FieldValueRequired", "Required value".to_owned(), text);
    }
    verdict
}

/// `anyOf`, `oneOf`, `allOf` and `not`.
fn alternatives(value: &Value, old: Option<&Value>, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict { passed: 1, ..Verdict::default() };
    let judge = |schema: &Schema| check(value, old, schema, path);
    if !rules.any_of.is_empty() {
        let (fitting, failed) = split(rules.any_of.iter().map(judge));
        if fitting.is_empty() {
            verdict.bare(format!("{} must validate at least one schema (anyOf)", quoted(path)));
        }
        verdict.merge(fitting.into_iter().next().or(failed).unwrap_or_default());
    }
    if !rules.one_of.is_empty() {
        let (fitting, failed) = split(rules.one_of.iter().map(judge));
        let said = format!("{} must validate one and only one schema (oneOf).", quoted(path));
        match fitting.len() {
            0 => {
                verdict.bare(format!("{said} Found none valid"));
                verdict.merge(failed.unwrap_or_default());
            }
            1 => verdict.merge(fitting.into_iter().next().unwrap_or_default()),
            many => verdict.bare(format!("{said} Found {many} valid alternatives")),
        }
    }
    let judged: Vec<Verdict> = rules.all_of.iter().map(judge).collect();
    let failing = judged.iter().filter(|one| !one.faults.is_empty()).count();
    let none = if failing == judged.len() { ". None validated" } else { "" };
    judged.into_iter().for_each(|one| verdict.merge(one));
    if failing > 0 {
        verdict.bare(format!("{} must validate all the schemas (allOf){none}", quoted(path)));
    }
    if rules.not.as_ref().is_some_and(|not| judge(not).faults.is_empty()) {
        verdict.bare(format!("{} must not validate the schema (not)", quoted(path)));
    }
    verdict
}

/// Those that fit, and of the others the first of those that matched best.
fn split(judged: impl Iterator<Item = Verdict>) -> (Vec<Verdict>, Option<Verdict>) {
    let (fitting, failing): (Vec<Verdict>, Vec<Verdict>) = judged.partition(|one| one.faults.is_empty());
    let best = failing.into_iter().reduce(|best, one| if one.passed > best.passed { one } else { best });
    (fitting, best)
}

pub fn quoted(text: &str) -> String {
    json!(text).to_string()
}

/// As Go prints values in messages: whole floats without a fraction.
fn printed(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => numbers::printed(number),
        other => other.to_string(),
    }
}
