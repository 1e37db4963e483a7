//! Is a policy, or a binding, fit to be stored?

use serde_json::{Value, json};

use crate::cel::{Names, compile_expression};
use crate::refusal::Cause;
use crate::schema::Type;

/// Of the variables that every expression sees.
const REQUEST: (&str, &[&str]) = (
    "request",
    &[
        "kind",
        "resource",
        "subResource",
        "requestKind",
        "requestResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "dryRun",
        "options",
    ],
);

/// As many matchConditions as Kubernetes takes.
const CONDITIONS_MAX: usize = 64;

/// A policy as it is about to be stored: whether its expressions compile, and the rest of its validation.
pub fn validate(policy: &Value) -> Vec<Cause> {
    let spec = &policy["spec"];
    let mut causes = Vec::new();
    if spec["failurePolicy"].is_string() && !["Fail", "Ignore"].iter().any(|one| spec["failurePolicy"] == *one) {
        causes.push(Cause::not_supported("spec.failurePolicy", &spec["failurePolicy"], &["Fail", "Ignore"]));
    }
    if spec["paramKind"].is_object() {
        for key in ["apiVersion", "kind"].into_iter().filter(|key| text(&spec["paramKind"], key).is_empty()) {
            causes.push(Cause::required(format!("spec.paramKind.{key}"), ""));
        }
        let version = text(&spec["paramKind"], "apiVersion");
        if version.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {version}");
            causes.push(Cause::invalid("spec.paramKind.apiVersion", &json!(version), detail));
        }
    }
    match spec["matchConstraints"].is_object() {
        false => causes.push(Cause::required("spec.matchConstraints", "")),
        true => constraint_problems(&spec["matchConstraints"], "spec.matchConstraints", true, &mut causes),
    }
    let mut seen = vec!["object", "oldObject", "request", "namespaceObject"];
    if spec["paramKind"].is_object() {
        seen.push("params");
    }
    condition_problems(spec, &seen, &mut causes);
    let variables = variable_problems(spec, &mut seen, &mut causes);
    let fields = [REQUEST, ("variables", variables.as_slice())];
    let names = Names { variables: &seen, schema: None, fields: &fields };
    expression_problems(spec, &names, &mut causes);
    causes
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn constraint_problems(constraints: &Value, field: &str, is_policy: bool, causes: &mut Vec<Cause>) {
    let policy = &constraints["matchPolicy"];
    if policy.is_string() && !["Equivalent", "Exact"].iter().any(|one| policy == one) {
        causes.push(Cause::not_supported(format!("{field}.matchPolicy"), policy, &["Equivalent", "Exact"]));
    }
    if is_policy && list(constraints, "resourceRules").is_empty() {
        causes.push(Cause::required(format!("{field}.resourceRules"), ""));
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in list(constraints, key).iter().enumerate() {
            rule_problems(rule, &format!("{field}.{key}[{index}]"), causes);
        }
    }
}

fn rule_problems(rule: &Value, field: &str, causes: &mut Vec<Cause>) {
    let names = list(rule, "resourceNames");
    for (index, name) in names.iter().enumerate().filter(|(index, name)| names[..*index].contains(name)) {
        causes.push(Cause::duplicate(format!("{field}.resourceNames[{index}]"), name));
    }
    let lists =
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions"), ("resources", "resources")];
    for (key, called) in lists {
        let (all, field) = (list(rule, key), format!("{field}.{key}"));
        if all.is_empty() {
            causes.push(Cause::required(field, ""));
            continue;
        }
        if key != "resources" && all.len() > 1 && all.iter().any(|one| one == "*") {
            causes.push(Cause::invalid(&field, &rule[key], format!("if '*' is present, must not specify other {called}")));
        }
        let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        for (index, one) in all.iter().enumerate() {
            if key == "operations" && !operations.iter().any(|known| one == known) {
                causes.push(Cause::not_supported(format!("{field}[{index}]"), one, &operations));
            }
            if matches!(key, "apiVersions" | "resources") && one == "" {
                causes.push(Cause::required(format!("{field}[{index}]"), ""));
            }
        }
    }
    let resources = list(rule, "resources");
    let has = |name: &str| resources.iter().any(|one| one == name);
    if has("*/*") && resources.len() > 1 {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(format!("{field}.resources"), &rule["resources"], detail));
    }
    let is_whole = |one: &Value| one.as_str().is_some_and(|one| !one.contains('/') && one != "*");
    if has("*") && resources.iter().any(is_whole) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(format!("{field}.resources"), &rule["resources"], detail));
    }
    let scopes = ["*", "Cluster", "Namespaced"];
    if rule["scope"].is_string() && !scopes.iter().any(|scope| rule["scope"] == *scope) {
        causes.push(Cause::not_supported(format!("{field}.scope"), &rule["scope"], &scopes));
    }
}

/// Where an expression does not compile, if so.
fn uncompiled(expression: &str, wanted: Type, names: &Names, field: String) -> Option<Cause> {
    let said = compile_expression(expression, wanted, names).err()?;
    Some(Cause::invalid(field, &json!(expression), said))
}

fn condition_problems(spec: &Value, seen: &[&str], causes: &mut Vec<Cause>) {
    let conditions = list(spec, "matchConditions");
    let names = Names { variables: seen, schema: None, fields: &[REQUEST] };
    if conditions.len() > CONDITIONS_MAX {
        let message = format!("Too many: {}: must have at most {CONDITIONS_MAX} items", conditions.len());
        causes.push(Cause { field: "spec.matchConditions".to_owned(), reason: "FieldValueTooMany", message });
    }
    for (index, condition) in conditions.iter().enumerate() {
        let field = format!("spec.matchConditions[{index}]");
        match text(condition, "expression").trim() {
            "" => causes.push(Cause::required(format!("{field}.expression"), "")),
            expression => causes.extend(uncompiled(expression, Type::Boolean, &names, format!("{field}.expression"))),
        }
        let name = text(condition, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if !is_qualified(name) {
            causes.push(Cause::invalid(format!("{field}.name"), &json!(name), QUALIFIED));
        } else if conditions[..index].iter().any(|other| text(other, "name") == name) {
            causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
        }
    }
}

/// Returns their names, for the expressions that follow, which then also see `variables`.
fn variable_problems<'a>(spec: &'a Value, seen: &mut Vec<&'a str>, causes: &mut Vec<Cause>) -> Vec<&'a str> {
    let mut known: Vec<&str> = Vec::new();
    for (index, variable) in list(spec, "variables").iter().enumerate() {
        if index == 0 {
            seen.push("variables");
        }
        let (field, name) = (format!("spec.variables[{index}]"), text(variable, "name"));
        let is_word = |name: &str| {
            name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
                && !name.starts_with(|one: char| one.is_ascii_digit())
        };
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), "name is not specified"));
        } else if !is_word(name) {
            causes.push(Cause::invalid(format!("{field}.name"), &json!(name), "must be a valid CEL identifier"));
        }
        let fields = [REQUEST, ("variables", known.as_slice())];
        let names = Names { variables: seen, schema: None, fields: &fields };
        match text(variable, "expression").trim() {
            "" => causes.push(Cause::required(format!("{field}.expression"), "expression is not specified")),
            expression => causes.extend(uncompiled(expression, Type::Any, &names, format!("{field}.expression"))),
        }
        known.push(name);
    }
    known
}

fn expression_problems(spec: &Value, names: &Names, causes: &mut Vec<Cause>) {
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        causes.push(Cause::required("spec.validations", detail));
        causes.push(Cause::required("spec.auditAnnotations", detail));
    }
    for (index, validation) in validations.iter().enumerate() {
        let field = format!("spec.validations[{index}]");
        let expression = text(validation, "expression").trim();
        match expression {
            "" => causes.push(Cause::required(format!("{field}.expression"), "expression is not specified")),
            _ => causes.extend(uncompiled(expression, Type::Boolean, names, format!("{field}.expression"))),
        }
        let message_expression = text(validation, "messageExpression").trim();
        if !message_expression.is_empty() {
            causes.extend(uncompiled(message_expression, Type::String, names, format!("{field}.messageExpression")));
        }
        let message = text(validation, "message");
        let detail = match message.trim() {
            "" if message.is_empty() => None,
            "" => Some("must be non-empty if specified"),
            message => message.contains('\n').then_some("must not contain line breaks"),
        };
        causes.extend(detail.map(|detail| Cause::invalid(format!("{field}.message"), &json!(message), detail)));
        if message.is_empty() && expression.contains('\n') && message_expression.is_empty() {
            let detail = "message must be specified if expression contains line breaks";
            causes.push(Cause::required(format!("{field}.message"), detail));
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        if validation["reason"].is_string() && !reasons.iter().any(|one| validation["reason"] == *one) {
            causes.push(Cause::not_supported(format!("{field}.reason"), &validation["reason"], &reasons));
        }
    }
    for (index, annotation) in annotations.iter().enumerate() {
        let (field, key) = (format!("spec.auditAnnotations[{index}]"), text(annotation, "key"));
        if !is_qualified(key) {
            causes.push(Cause::invalid(format!("{field}.key"), &json!(key), QUALIFIED));
        } else if annotations[..index].iter().any(|other| text(other, "key") == key) {
            causes.push(Cause::duplicate(format!("{field}.key"), &json!(key)));
        }
        match text(annotation, "valueExpression").trim() {
            "" => causes.push(Cause::required(format!("{field}.valueExpression"), "valueExpression is not specified")),
            value => causes.extend(uncompiled(value, Type::Any, names, format!("{field}.valueExpression"))),
        }
    }
}

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn is_qualified(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    let is_edge = |one: Option<char>| one.is_some_and(|one| one.is_ascii_alphanumeric());
    let inside = |one: char| one.is_ascii_alphanumeric() || "-_.".contains(one);
    is_edge(name.chars().next()) && is_edge(name.chars().last()) && name.chars().all(inside)
}
