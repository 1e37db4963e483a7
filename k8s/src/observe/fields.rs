//! How is a field of a spec read, so that a refusal says where it stands and what to write instead?

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use resus_core::escalate::TEMPLATE_SUFFIX;
use resus_core::facts::{Invalid, Kind, Name, ObjectKey, Requirement, Selector};
use resus_core::text::{NAME_MAX, Plain, is_name};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::invalid;
use crate::quantity::{self, GoDuration};

/// An object in a spec, and where it stands.
pub struct Fields<'a> {
    value: &'a Value,
    place: String,
}

impl<'a> Fields<'a> {
    /// `first`: what to write into a spec that is none.
    pub fn of_spec(spec: &'a Value, first: &str) -> Result<Fields<'a>, Invalid> {
        Fields::of(spec, "spec".into(), first)
    }

    /// Absent is as good as empty.
    pub fn below(&self, name: &str, first: &str) -> Result<Fields<'a>, Invalid> {
        Fields::of(self.value.get(name).unwrap_or(&Value::Null), self.place(name), first)
    }

    fn of(value: &'a Value, place: String, first: &str) -> Result<Fields<'a>, Invalid> {
        match value {
            Value::Object(_) | Value::Null => Ok(Fields { value, place }),
            _ => Err(invalid(format!("{place} is not an object: write {first} and what else is needed below it"))),
        }
    }

    pub fn place(&self, name: &str) -> String {
        format!("{}.{name}", self.place)
    }

    /// Null is as good as absent, here and in every API.
    pub fn field(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    pub fn read<T: DeserializeOwned>(&self, name: &str, write: &str) -> Result<Option<T>, Invalid> {
        self.field(name).map(|value| decode(value, &self.place(name), write)).transpose()
    }

    pub fn list(&self, name: &str) -> Result<Option<&'a [Value]>, Invalid> {
        let refused = || invalid(format!("{} is not a list: write a list, each entry after a dash", self.place(name)));
        let list = self.field(name).map(|value| value.as_array().ok_or_else(refused));
        Ok(list.transpose()?.map(Vec::as_slice))
    }

    pub fn duration(&self, name: &str) -> Result<Option<Duration>, Invalid> {
        let text: Option<String> = self.read(name, DURATIONS)?;
        text.map(|text| duration(&text, &self.place(name))).transpose()
    }
}

pub const DURATIONS: &str = "a duration such as 300s, 5m or 1h30m, in quotes";

pub fn decode<T: DeserializeOwned>(value: &Value, place: &str, write: &str) -> Result<T, Invalid> {
    // What was written may be in the error as it is.
    T::deserialize(value).map_err(|error| invalid(format!("{place}: {}: write {write}", Plain(&error.to_string()))))
}

pub fn go_duration(text: &str, place: &str) -> Result<GoDuration, Invalid> {
    quantity::parse_duration(text).map_err(|error| invalid(format!("{place}: {error}")))
}

pub fn duration(text: &str, place: &str) -> Result<Duration, Invalid> {
    let refused = || invalid(format!("{place} must not be negative: write a duration such as 5m, not {}", shown(text)));
    go_duration(text, place)?.non_negative().ok_or_else(refused)
}

pub const TEMPLATES: &str = "apiVersion, kind, name and namespace of a template, each as text";

pub fn template(reference: &ObjectReference, place: &str) -> Result<ObjectKey, Invalid> {
    let given = |field: &Option<String>, name: &str| -> Result<Name, Invalid> {
        let value = field.as_deref().filter(|value| !value.is_empty());
        value.map(Into::into).ok_or_else(|| invalid(format!("{place}.{name} is missing: write {TEMPLATES}")))
    };
    let kind = Kind { api_version: given(&reference.api_version, "apiVersion")?, kind: given(&reference.kind, "kind")? };
    if kind.kind.strip_suffix(TEMPLATE_SUFFIX).is_none_or(str::is_empty) {
        return Err(invalid(format!("{place}.kind is {:?}: the kind of a template ends with Template", shown(&kind.kind))));
    }
    if !kind.api_version.split_once('/').is_some_and(|(group, version)| is_name(group) && is_name(version)) {
        return Err(invalid(format!("{place}.apiVersion is {:?}: write group/version", shown(&kind.api_version))));
    }
    if !kind.is_plausible() {
        return Err(invalid(format!("{place}.kind is {:?}: a kind has letters and digits", shown(&kind.kind))));
    }
    let name = given(&reference.name, "name")?;
    let namespace: Option<Name> = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()).map(Into::into);
    if let Some(bad) = [Some(&name), namespace.as_ref()].into_iter().flatten().find(|name| !is_name(name)) {
        return Err(invalid(format!(
            "{place}: {:?} is no name: names have at most {NAME_MAX} lower-case letters, digits, dashes and dots",
            shown(bad)
        )));
    }
    Ok(ObjectKey { kind, namespace, name })
}

/// What was written, as far as it is repeated in a refusal.
pub fn shown(text: &str) -> String {
    Plain(text).to_string()
}

pub fn requirements(selector: LabelSelector) -> Result<Selector, Invalid> {
    let mut requirements = Vec::new();
    for (key, value) in selector.match_labels.unwrap_or_default() {
        requirements.push(Requirement::In(label_key(key)?, vec![label_value(value)?]));
    }
    for expression in selector.match_expressions.unwrap_or_default() {
        let key = label_key(expression.key)?;
        let values: Vec<Box<str>> =
            expression.values.unwrap_or_default().into_iter().map(label_value).collect::<Result<_, _>>()?;
        requirements.push(match (expression.operator.as_str(), values.is_empty()) {
            ("In", false) => Requirement::In(key, values),
            ("NotIn", false) => Requirement::NotIn(key, values),
            ("Exists", true) => Requirement::Exists(key),
            ("DoesNotExist", true) => Requirement::DoesNotExist(key),
            (operator @ ("In" | "NotIn"), true) => {
                return Err(invalid(format!("spec.selector: {operator} on {key} needs at least one value")));
            }
            (operator @ ("Exists" | "DoesNotExist"), false) => {
                return Err(invalid(format!("spec.selector: {operator} on {key} takes no values")));
            }
            (operator, _) => {
                return Err(invalid(format!(
                    "spec.selector: {:?} is no operator: write In, NotIn, Exists or DoesNotExist",
                    shown(operator)
                )));
            }
        });
    }
    Ok(Selector(requirements))
}

fn label_key(key: String) -> Result<Box<str>, Invalid> {
    match is_label_key(&key) {
        true => Ok(key.into()),
        false => {
            let key = shown(&key);
            Err(invalid(format!("spec.selector: {key:?} is no label key: write one such as node-role.kubernetes.io/worker")))
        }
    }
}

fn label_value(value: String) -> Result<Box<str>, Invalid> {
    match value.is_empty() || is_label_name(&value) {
        true => Ok(value.into()),
        false => Err(invalid(format!(
            "spec.selector: {:?} is no label value: write at most 63 letters, digits, dashes, dots and underscores",
            shown(&value)
        ))),
    }
}

pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => prefix.len() <= NAME_MAX && prefix.split('.').all(is_dns_label) && is_label_name(name),
        None => is_label_name(key),
    }
}

fn is_dns_label(label: &str) -> bool {
    let ends_well = !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    ends_well && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_label_name(name: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= 63
        && is_end(name.chars().next())
        && is_end(name.chars().last())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
