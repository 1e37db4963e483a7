//! Are the versions of a CRD sound?
//!
//! What all versions have in common Kubernetes moves out of them before it looks; its messages then name `spec.validation`
//! and so on, which nobody wrote.

use serde_json::{Value, json};

use crate::crd::{list, of_names, rules, text};
use crate::refusal::Cause;
use crate::schema::Schema;
use crate::structural::is_dns_label;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
/// As many as the API server allows in one version.
const SELECTABLE_MAX: usize = 8;

pub fn validate(spec: &Value) -> Vec<Cause> {
    let versions = list(&spec["versions"]);
    let common = |key: &str| {
        versions.first().is_some_and(|first| !first[key].is_null() && versions.iter().all(|version| version[key] == first[key]))
    };
    let mut causes = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            causes.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        let broken = is_dns_label(name);
        if !broken.is_empty() {
            causes.push(Cause::invalid(format!("{path}.name"), &json!(name), broken.join(",")));
        }
        causes.extend(of_deprecation(version, &path));
        causes.extend(parts(version, &path, &|key| !common(key)));
    }
    causes.extend(of_set(versions));
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"], key).is_empty() {
            causes.push(Cause::required(format!("spec.names.{key}"), ""));
        }
    }
    causes.extend(of_names(&spec["names"], "spec.names"));
    if let Some(first) = versions.first() {
        causes.extend(parts(first, "spec", &common));
    }
    causes
}

/// Those parts of a version that `wanted` names.
fn parts(version: &Value, path: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let schema = &version["schema"]["openAPIV3Schema"];
    if wanted("schema") && schema.is_object() {
        let place = if path == "spec" { "spec.validation".to_owned() } else { format!("{path}.schema") };
        let has_status = !version["subresources"]["status"].is_null();
        causes.extend(rules::validate(schema, &format!("{place}.openAPIV3Schema"), has_status));
    }
    if wanted("subresources") {
        causes.extend(of_scale(&version["subresources"]["scale"], &format!("{path}.subresources.scale")));
    }
    if wanted("additionalPrinterColumns") {
        for (index, column) in list(&version["additionalPrinterColumns"]).iter().enumerate() {
            causes.extend(of_column(column, &format!("{path}.additionalPrinterColumns[{index}]")));
        }
    }
    if wanted("selectableFields") {
        causes.extend(of_selectable(version, &format!("{path}.selectableFields")));
    }
    causes
}

/// About all of them together.
fn of_set(versions: &[Value]) -> Vec<Cause> {
    let shown = format!("[{}]", versions.iter().map(shown).collect::<Vec<_>>().join(","));
    let invalid = |detail: &str| Cause {
        field: "spec.versions".to_owned(),
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {shown}: {detail}"),
    };
    let mut causes = Vec::new();
    let repeats = |(index, version): (usize, &Value)| versions[..index].iter().any(|one| one["name"] == version["name"]);
    if versions.iter().enumerate().any(repeats) {
        causes.push(invalid("must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        causes.push(invalid("must have exactly one version marked as storage version"));
    }
    if let Some(name) = versions.first().map(|first| text(first, "name")) {
        let broken = is_dns_label(name);
        if !broken.is_empty() {
            causes.push(Cause::invalid("spec.version", &json!(name), broken.join(",")));
        }
    }
    causes
}

/// As Kubernetes prints a version whose parts were moved out of it.
fn shown(version: &Value) -> String {
    let flag = |key: &str| version[key] == true;
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
         \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        version["name"],
        flag("served"),
        flag("storage"),
        flag("deprecated"),
        version["deprecationWarning"],
    )
}

fn of_deprecation(version: &Value, path: &str) -> Vec<Cause> {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let mut broken = Vec::new();
    if version["deprecated"] != true {
        broken.push("can only be set for deprecated versions".to_owned());
    } else {
        if warning.len() > 256 {
            broken.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            broken.push("must not be an empty string".to_owned());
        }
        if let Some((index, _)) = warning.char_indices().find(|(_, one)| one.is_control()) {
            let said = "must only contain printable UTF-8 characters; non-printable character found at index";
            broken.push(format!("{said} {index}"));
        }
    }
    let invalid = |broken: String| Cause::invalid(format!("{path}.deprecationWarning"), &json!(warning), broken);
    broken.into_iter().map(invalid).collect()
}

fn of_scale(scale: &Value, path: &str) -> Vec<Cause> {
    if scale.is_null() {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let mut judge = |key: &str, required: bool, under: &[&str], detail: &str| {
        let value = text(scale, key);
        let field = format!("{path}.{key}");
        match value {
            "" if required => causes.push(Cause::required(field, "")),
            "" => {}
            _ => match not_a_path(value) {
                Some(broken) => causes.push(Cause::invalid(field, &json!(value), broken)),
                None if under.iter().any(|prefix| value.starts_with(prefix)) => {}
                None => causes.push(Cause::invalid(field, &json!(value), detail)),
            },
        }
    };
    judge("specReplicasPath", true, &[".spec."], "should be a json path under .spec");
    judge("statusReplicasPath", true, &[".status."], "should be a json path under .status");
    let either = "should be a json path under either .spec or .status";
    judge("labelSelectorPath", false, &[".spec.", ".status."], either);
    causes
}

fn not_a_path(path: &str) -> Option<&'static str> {
    (!path.starts_with('.')).then_some("must be a simple json path starting with .")
}

fn of_column(column: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(column, "name").is_empty() {
        causes.push(Cause::required(format!("{path}.name"), ""));
    }
    let kinds = format!("must be one of {}", COLUMN_TYPES.join(","));
    match text(column, "type") {
        "" => causes.push(Cause::required(format!("{path}.type"), &kinds)),
        kind if !COLUMN_TYPES.contains(&kind) => causes.push(Cause::invalid(format!("{path}.type"), &json!(kind), kinds)),
        _ => {}
    }
    let format = text(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        causes.push(Cause::invalid(format!("{path}.format"), &json!(format), detail));
    }
    match text(column, "jsonPath") {
        "" => causes.push(Cause::required(format!("{path}.JSONPath"), "")),
        value => {
            let broken = not_a_path(value);
            causes.extend(broken.map(|broken| Cause::invalid(format!("{path}.JSONPath"), &json!(value), broken)));
        }
    }
    causes
}

fn of_selectable(version: &Value, path: &str) -> Vec<Cause> {
    let fields = list(&version["selectableFields"]);
    if fields.is_empty() {
        return Vec::new();
    }
    let schema = Schema::of_crd(&version["schema"]["openAPIV3Schema"]);
    let mut causes = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let place = format!("{path}[{index}].jsonPath");
        let names: Vec<&str> = json_path.trim_start_matches('.').split('.').collect();
        let found = names.iter().try_fold(&schema, |schema, name| schema.properties.get(*name).map(|next| &**next));
        let kind = found.and_then(|found| found.source.get("type")).and_then(Value::as_str).unwrap_or_default();
        if json_path.is_empty() {
            causes.push(Cause::required(place, ""));
            continue;
        }
        if found.is_none() {
            causes.push(Cause::invalid(place, &json!(json_path), "is an invalid path: does not refer to a valid field"));
            continue;
        }
        if names.first() == Some(&"metadata") {
            causes.push(Cause::invalid(&place, &json!(json_path), "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&kind) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            causes.push(Cause::invalid(&place, &json!(json_path), detail));
        }
        match seen.contains(&json_path) {
            true => causes.push(Cause::duplicate(place, &json!(json_path))),
            false => seen.push(json_path),
        }
    }
    if seen.len() > SELECTABLE_MAX {
        let message = format!("Too many: {}: must have at most {SELECTABLE_MAX} items", seen.len());
        causes.push(Cause { field: path.to_owned(), reason: "FieldValueTooMany", message });
    }
    causes
}
