//! Is a label selector well-formed, and does it match?

use serde_json::Value;

use super::read::{go_json, invalid_text, list, map, text};
use super::{meta, names};
use crate::refusal::Cause;

/// `path` is where the selector is.
pub fn validate(selector: &Value, path: &str, causes: &mut Vec<Cause>) {
    meta::labels(selector, "matchLabels", &format!("{path}.matchLabels"), causes);
    for (at, one) in list(selector, "matchExpressions").iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        let values = list(one, "values");
        match text(one, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(format!("{path}.values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(format!("{path}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            operator => {
                causes.push(Cause::invalid(format!("{path}.operator"), &operator.into(), "not a valid selector operator"));
            }
        }
        let wrong = names::qualified(text(one, "key"));
        causes.extend(wrong.into_iter().map(|detail| Cause::invalid(format!("{path}.key"), &text(one, "key").into(), detail)));
        for (at, value) in values.iter().enumerate() {
            let wrong = names::label_value(value.as_str().unwrap_or_default());
            causes.extend(wrong.into_iter().map(|detail| Cause::invalid(format!("{path}.values[{at}]"), value, detail)));
        }
    }
}

/// Nothing selects nothing; an empty selector selects everything.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    let has = |key: &str| labels[key].is_string();
    let fits = |one: &Value| {
        let value = &labels[text(one, "key")];
        match text(one, "operator") {
            "In" => value.is_string() && list(one, "values").contains(value),
            "NotIn" => !list(one, "values").contains(value),
            "Exists" => has(text(one, "key")),
            "DoesNotExist" => !has(text(one, "key")),
            _ => false,
        }
    };
    selector.is_object()
        && map(selector, "matchLabels").all(|(key, value)| labels[key.as_str()] == *value)
        && list(selector, "matchExpressions").iter().all(fits)
}

pub fn is_empty(selector: &Value) -> bool {
    map(selector, "matchLabels").next().is_none() && list(selector, "matchExpressions").is_empty()
}

/// A selector as a cause shows it.
pub fn invalid(selector: &Value, path: &str, detail: &str) -> Cause {
    let mut shown = Vec::new();
    if selector["matchLabels"].is_object() {
        shown.push(format!("\"matchLabels\":{}", selector["matchLabels"]));
    }
    let expressions = list(selector, "matchExpressions").iter().map(|one| go_json(one, &["key", "operator", "values"]));
    let expressions: Vec<String> = expressions.collect();
    if !expressions.is_empty() {
        shown.push(format!("\"matchExpressions\":[{}]", expressions.join(",")));
    }
    invalid_text(path, &format!("{{{}}}", shown.join(",")), detail)
}
