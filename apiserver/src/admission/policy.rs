//! What does one policy say of a request?

use kube_cel::cel::Value as Cel;
use serde_json::{Map, Value, json};

use super::Attempt;
use crate::cel::{Program, Scope, map, program, scope, untyped};

pub struct Policy {
    /// failurePolicy Fail: what cannot be evaluated is refused.
    pub fails_closed: bool,
    conditions: Vec<Expression>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
}

struct Expression {
    text: String,
    program: Result<Program, String>,
}

struct Validation {
    expression: Expression,
    /// What is said where no messageExpression says it.
    message: String,
    message_expression: Option<Program>,
    reason: String,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub message: String,
    /// Empty for Invalid.
    pub reason: String,
}

impl Verdict {
    pub fn unconfigured(said: &str) -> Verdict {
        Verdict { message: format!("failed to configure binding: {said}"), reason: String::new() }
    }
}

impl Policy {
    pub fn read(spec: &Value) -> Policy {
        let list = |key: &str| spec[key].as_array().into_iter().flatten();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().trim().to_owned();
        let expression = |one: &Value| Expression { text: text(one, "expression"), program: program(&text(one, "expression")) };
        let validation = |one: &Value| {
            let message = match text(one, "message") {
                none if none.is_empty() => format!("failed expression: {}", text(one, "expression")),
                message => message,
            };
            let message_expression = program(&text(one, "messageExpression")).ok();
            Validation { expression: expression(one), message, message_expression, reason: text(one, "reason") }
        };
        Policy {
            fails_closed: spec["failurePolicy"] != "Ignore",
            conditions: list("matchConditions").map(expression).collect(),
            variables: list("variables").map(|one| (text(one, "name"), expression(one))).collect(),
            validations: list("validations").map(validation).collect(),
        }
    }

    /// Nothing if the request may pass.
    pub fn judge(&self, attempt: &Attempt, params: &Value) -> Vec<Verdict> {
        scope(|scope| {
            bind(scope, attempt, params);
            match self.is_meant(scope) {
                Ok(true) => {}
                Ok(false) => return Vec::new(),
                Err(said) => return self.failed(said).into_iter().collect(),
            }
            let broken = self.bind_variables(scope);
            self.validations.iter().filter_map(|validation| self.check(validation, scope, &broken)).collect()
        })
    }

    /// One condition that does not hold decides, even where another cannot be evaluated.
    fn is_meant(&self, scope: &Scope) -> Result<bool, String> {
        let mut error = None;
        for condition in &self.conditions {
            match condition.holds(scope, &[]) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(said) => error = error.or(Some(said)),
            }
        }
        error.map_or(Ok(true), Err)
    }

    /// Each variable may use those before it. Returns those that could not be evaluated, which only matters to whoever
    /// uses them.
    fn bind_variables(&self, scope: &mut Scope) -> Vec<(String, String)> {
        let (mut values, mut broken): (Vec<(String, Cel)>, Vec<(String, String)>) = (Vec::new(), Vec::new());
        for (name, expression) in &self.variables {
            scope.bind("variables", map(values.iter().cloned()));
            match expression.run(scope, &broken) {
                Ok(value) => values.push((name.clone(), value)),
                Err(said) => broken.push((name.clone(), said)),
            }
        }
        scope.bind("variables", map(values.into_iter()));
        broken
    }

    fn check(&self, validation: &Validation, scope: &Scope, broken: &[(String, String)]) -> Option<Verdict> {
        match validation.expression.holds(scope, broken) {
            Ok(true) => None,
            Ok(false) => {
                let said = validation.message_expression.as_ref().and_then(|program| scope.text(program));
                Some(Verdict { message: said.unwrap_or_else(|| validation.message.clone()), reason: validation.reason.clone() })
            }
            Err(said) => self.failed(said),
        }
    }

    fn failed(&self, message: String) -> Option<Verdict> {
        self.fails_closed.then(|| Verdict { message, reason: String::new() })
    }
}

impl Expression {
    fn holds(&self, scope: &Scope, broken: &[(String, String)]) -> Result<bool, String> {
        let said = |error: String| format!("expression '{}' resulted in error: {error}", self.text);
        Ok(self.run(scope, broken).map_err(said)? == Cel::Bool(true))
    }

    fn run(&self, scope: &Scope, broken: &[(String, String)]) -> Result<Cel, String> {
        let program = self.program.as_ref().map_err(|error| format!("compilation failed: {error}"))?;
        scope.run(program).map_err(|error| {
            let missing = broken.iter().find(|(name, _)| error == format!("no such key: {name}"));
            missing.map_or(error.clone(), |(name, said)| format!("composited variable {name:?} fails to evaluate: {said}"))
        })
    }
}

fn bind(scope: &mut Scope, attempt: &Attempt, params: &Value) {
    let or_null = |object: Option<&Value>| object.map_or(Cel::Null, untyped);
    scope.bind("object", or_null(attempt.object));
    scope.bind("oldObject", or_null(attempt.old));
    scope.bind("params", untyped(params));
    let namespace = attempt.namespace_object.filter(|_| attempt.resource.namespaced);
    scope.bind("namespaceObject", or_null(namespace));
    scope.bind("request", untyped(&request(attempt)));
}

/// As in an AdmissionRequest; what is empty is left out.
fn request(attempt: &Attempt) -> Value {
    let resource = attempt.resource;
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let user = attempt.user;
    let name = match (attempt.name, attempt.object) {
        ("", Some(object)) => &object["metadata"]["name"],
        (name, _) => &json!(name),
    };
    let is_empty = |value: &Value| value.is_null() || [json!(""), json!([]), json!({})].contains(value);
    let tidy = |fields: Map<String, Value>| Value::Object(fields.into_iter().filter(|(_, value)| !is_empty(value)).collect());
    let user = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
    let request = json!({
        "kind": kind, "resource": plural, "subResource": attempt.subresource,
        "requestKind": kind, "requestResource": plural, "requestSubResource": attempt.subresource,
        "name": name, "namespace": attempt.namespace, "operation": attempt.operation,
        "userInfo": user.as_object().cloned().map(tidy), "dryRun": attempt.dry_run,
    });
    request.as_object().cloned().map_or(Value::Null, tidy)
}
