//! The words of messages are those of a real API server. What matches which request follows its source, not its answers.
#![expect(clippy::needless_pass_by_value, reason = "tables of values read better without references")]

use serde_json::{Value, json};

use super::*;

fn policy(name: &str, spec: Value) -> Value {
    let mut all = json!({"matchConstraints": {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent", "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "scope": "*"}]}});
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": all})
}

fn binding(policy: &str, actions: Value, more: Value) -> Value {
    let mut spec = json!({"policyName": policy, "validationActions": actions});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": format!("b-{policy}")}, "spec": spec})
}

fn configmaps() -> Resource {
    let text = str::to_owned;
    Resource { version: text("v1"), plural: text("configmaps"), kind: text("ConfigMap"), namespaced: true, ..Resource::default() }
}

/// What is said of a ConfigMap `c` with this data: (code, message), or the warnings.
fn asked(spec: Value, actions: Value, reference: Value, operation: &str, data: Value) -> Result<Vec<String>, (u16, String)> {
    let object = json!({"metadata": {"name": "c", "namespace": "default"}, "data": data});
    let namespace = json!({"metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}});
    let param = json!({"metadata": {"name": "param", "namespace": "default"}, "data": {"want": "this"}});
    let params = move |_: &str, kind: &str| (kind == "ConfigMap").then(|| vec![param.clone()]);
    let (policies, bindings) = ([policy("p", spec)], [binding("p", actions, reference)]);
    let compiled = Compiled::default();
    let policies = Policies { policies: &policies, bindings: &bindings, params: &params, compiled: &compiled };
    let is_delete = operation == "DELETE";
    let attempt = Attempt {
        operation,
        resource: &configmaps(),
        subresource: "",
        namespace: "default",
        name: "c",
        user: &User::admin(),
        dry_run: true,
        object: Some(&object).filter(|_| !is_delete),
        old: Some(&object).filter(|_| is_delete),
        namespace_object: Some(&namespace),
    };
    admit(&policies, &attempt).map_err(|refusal| (refusal.code, refusal.message))
}

fn refused(code: u16, said: &str) -> Result<Vec<String>, (u16, String)> {
    Err((code, format!("configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b-p' denied request: {said}")))
}

#[test]
fn a_validation_that_fails_refuses_with_its_message_and_the_code_of_its_reason() {
    let plain = r#"!has(object.data) || !("a" in object.data)"#;
    let error = r#"!has(object.data) || !("a" in object.data) || object.data.nope == "x""#;
    let failed = format!("expression '{error}' resulted in error: no such key: nope");
    let request = r#"request.operation + " " + request.name + " " + request.namespace + " " + request.kind.kind + " " + request.resource.resource + " " + request.userInfo.username + " " + request.requestKind.kind + " " + request.requestResource.resource + " " + string(request.dryRun) + " " + namespaceObject.metadata.name + " " + string(has(request.requestSubResource)) + string(has(request.subResource)) + string(oldObject == null) + string(has(request.userInfo.extra))"#;
    let data = "has(object.data) ? object.data : {}";
    let conditions = json!([
        {"name": "one", "expression": r#"has(object.data) && "a" in object.data"#},
        {"name": "two", "expression": r#"object.data.a == "y" || object.data.nope == "x""#}]);
    let table = [
        (json!({"validations": [{"expression": plain}]}), refused(422, &format!("failed expression: {plain}"))),
        (json!({"validations": [{"expression": plain, "message": "no a", "reason": "Forbidden"}]}), refused(403, "no a")),
        (json!({"validations": [{"expression": plain, "reason": "RequestEntityTooLarge", "message": "x"}]}), refused(413, "x")),
        (
            json!({"variables": [{"name": "d", "expression": data}], "validations": [{"expression": r#"!("a" in variables.d)"#, "messageExpression": r#""a is " + string(variables.d.a)"#}]}),
            refused(422, "a is 1"),
        ),
        (json!({"validations": [{"expression": error}]}), refused(422, &failed)),
        (json!({"failurePolicy": "Ignore", "validations": [{"expression": error}]}), Ok(vec![])),
        (
            json!({"matchConditions": conditions, "validations": [{"expression": "false"}]}),
            refused(422, r#"expression 'object.data.a == "y" || object.data.nope == "x"' resulted in error: no such key: nope"#),
        ),
        (
            json!({"matchConditions": [{"name": "n", "expression": "false"}], "validations": [{"expression": "false"}]}),
            Ok(vec![]),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "one"}, {"expression": "false", "message": "two"}]}),
            refused(422, "one"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "fallback", "messageExpression": "string(object.data.nope)"}]}),
            refused(422, "fallback"),
        ),
        (
            json!({"validations": [{"expression": "false", "messageExpression": request}]}),
            refused(422, "CREATE c default ConfigMap configmaps admin ConfigMap configmaps true default falsefalsetruefalse"),
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(asked(spec.clone(), json!(["Deny"]), json!({}), "CREATE", json!({"a": "1"})), expected, "{spec}");
    }
}

#[test]
fn a_binding_may_warn_instead() {
    let spec = json!({"validations": [{"expression": "false", "message": "careful"}]});
    let warning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b-p': careful";
    assert_eq!(asked(spec.clone(), json!(["Warn", "Audit"]), json!({}), "CREATE", json!({})), Ok(vec![warning.to_owned()]));
    assert_eq!(asked(spec, json!(["Audit"]), json!({}), "CREATE", json!({})), Ok(vec![]));
}

#[test]
fn params_are_found_by_name_or_the_binding_says_what_then() {
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "object.data.a == params.data.want", "messageExpression": r#""want " + string(params.data.want)"#}]});
    let reference =
        |name: &str, action: &str| json!({"paramRef": {"name": name, "namespace": "default", "parameterNotFoundAction": action}});
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    let table = [
        (reference("param", "Deny"), "this", Ok(vec![])),
        (reference("param", "Deny"), "that", refused(422, "want this")),
        (reference("gone", "Allow"), "that", Ok(vec![])),
        (reference("gone", "Deny"), "this", refused(422, missing)),
    ];
    for (reference, data, expected) in table {
        assert_eq!(
            asked(spec.clone(), json!(["Deny"]), reference.clone(), "CREATE", json!({"a": data})),
            expected,
            "{reference}"
        );
    }
}

#[test]
fn a_deletion_is_judged_by_what_is_there() {
    let spec = json!({"validations": [{"expression": r#"!("keep" in oldObject.data)"#, "message": "kept"}, {"expression": "object == null"}]});
    assert_eq!(asked(spec.clone(), json!(["Deny"]), json!({}), "DELETE", json!({"keep": "1"})), refused(422, "kept"));
    assert_eq!(asked(spec, json!(["Deny"]), json!({}), "DELETE", json!({"a": "1"})), Ok(vec![]));
}

#[test]
fn a_policy_only_sees_what_it_is_meant_for() {
    let rule = |resources: &str, operation: &str, more: Value| {
        let mut rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resources]});
        for (key, value) in more.as_object().unwrap() {
            rule[key] = value.clone();
        }
        json!([rule])
    };
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let others = json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}});
    let table = [
        (json!({"resourceRules": rule("configmaps", "CREATE", json!({}))}), true),
        (json!({"resourceRules": rule("*", "*", json!({}))}), true),
        (json!({"resourceRules": rule("*/*", "*", json!({}))}), true),
        (json!({"resourceRules": rule("configmaps/*", "*", json!({}))}), true),
        (json!({"resourceRules": rule("configmaps/status", "*", json!({}))}), false),
        (json!({"resourceRules": rule("pods", "*", json!({}))}), false),
        (json!({"resourceRules": rule("configmaps", "UPDATE", json!({}))}), false),
        (json!({"resourceRules": rule("configmaps", "*", json!({"scope": "Cluster"}))}), false),
        (json!({"resourceRules": rule("configmaps", "*", json!({"resourceNames": ["d"]}))}), false),
        (json!({"resourceRules": rule("configmaps", "*", json!({"apiVersions": ["v2"]})), "matchPolicy": "Exact"}), false),
        (json!({"resourceRules": rule("*", "*", json!({})), "excludeResourceRules": rule("configmaps", "*", json!({}))}), false),
        (json!({"resourceRules": rule("*", "*", json!({})), "namespaceSelector": own}), true),
        (json!({"resourceRules": rule("*", "*", json!({})), "namespaceSelector": others}), false),
        (json!({"resourceRules": rule("*", "*", json!({})), "objectSelector": own}), false),
    ];
    for (constraints, expected) in table {
        let spec = json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]});
        assert_eq!(asked(spec, json!(["Deny"]), json!({}), "CREATE", json!({})).is_err(), expected, "{constraints}");
        let limited = asked(
            json!({"validations": [{"expression": "false"}]}),
            json!(["Deny"]),
            json!({"matchResources": constraints}),
            "CREATE",
            json!({}),
        );
        assert_eq!(limited.is_err(), expected, "in a binding: {constraints}");
    }
}

#[test]
fn a_refusal_has_the_message_as_its_only_cause() {
    let (object, user) = (json!({"metadata": {"name": "c"}}), User::admin());
    let attempt = Attempt {
        operation: "CREATE",
        resource: &configmaps(),
        subresource: "",
        namespace: "default",
        name: "",
        user: &user,
        dry_run: false,
        object: Some(&object),
        old: None,
        namespace_object: None,
    };
    let verdict = Verdict { message: "MESSAGE".to_owned(), reason: String::new() };
    let status = refuse(&attempt, "p", &binding("p", json!([]), json!({})), &verdict).to_value();
    let message = "ValidatingAdmissionPolicy 'p' with binding 'b-p' denied request: MESSAGE";
    assert_eq!(status["details"], json!({"name": "c", "kind": "configmaps", "causes": [{"message": message}]}));
    assert_eq!((&status["reason"], &status["code"]), (&json!("Invalid"), &json!(422)));
}

#[test]
fn a_policy_that_changed_is_compiled_again() {
    let compiled = Compiled::default();
    let mut source = policy("p", json!({"validations": [{"expression": "true"}]}));
    let first = compiled.get(&source);
    assert!(Arc::ptr_eq(&first, &compiled.get(&source)));
    source["metadata"]["resourceVersion"] = json!("2");
    assert!(!Arc::ptr_eq(&first, &compiled.get(&source)));
}

#[test]
fn a_policy_that_cannot_work_is_refused() {
    let ok = json!([{"expression": "true"}]);
    let one = |validation: Value| json!({"validations": [validation]});
    let nothing = "Required value: validations or auditAnnotations must contain at least one item";
    let table = [
        (one(json!({"expression": "true"})), vec![]),
        (json!({}), vec![("spec.validations", nothing), ("spec.auditAnnotations", nothing)]),
        (
            one(json!({"expression": "object.x >"})),
            vec![("spec.validations[0].expression", "compilation failed: ERROR: <input>")],
        ),
        (one(json!({"expression": ""})), vec![("spec.validations[0].expression", "Required value: expression is not specified")]),
        (
            one(json!({"expression": "foo > 1"})),
            vec![("spec.validations[0].expression", "undeclared reference to 'foo' (in container '')")],
        ),
        (
            one(json!({"expression": "foo(object)"})),
            vec![("spec.validations[0].expression", "undeclared reference to 'foo' (in container '')")],
        ),
        (
            one(json!({"expression": "1"})),
            vec![("spec.validations[0].expression", "Invalid value: \"1\": must evaluate to bool but got int")],
        ),
        (
            one(json!({"expression": "true", "messageExpression": "1"})),
            vec![("spec.validations[0].messageExpression", "Invalid value: \"1\": must evaluate to string but got int")],
        ),
        (
            one(json!({"expression": "true", "reason": "Foo"})),
            vec![(
                "spec.validations[0].reason",
                "Unsupported value: \"Foo\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
            )],
        ),
        (
            one(json!({"expression": "true", "message": "  "})),
            vec![("spec.validations[0].message", "Invalid value: \"  \": must be non-empty if specified")],
        ),
        (
            one(json!({"expression": "variables.nope"})),
            vec![("spec.validations[0].expression", "undeclared reference to 'variables'")],
        ),
        (one(json!({"expression": "params.x"})), vec![("spec.validations[0].expression", "undeclared reference to 'params'")]),
        (one(json!({"expression": "request.nope == 1"})), vec![("spec.validations[0].expression", "undefined field 'nope'")]),
        (
            json!({"validations": ok, "variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]}),
            vec![("spec.variables[0].expression", "undefined field 'b'")],
        ),
        (
            json!({"validations": ok, "variables": [{"name": "1a", "expression": "1"}]}),
            vec![("spec.variables[0].name", "Invalid value: \"1a\": must be a valid CEL identifier")],
        ),
        (
            json!({"validations": ok, "variables": [{}]}),
            vec![
                ("spec.variables[0].name", "Required value: name is not specified"),
                ("spec.variables[0].expression", "Required value: expression is not specified"),
            ],
        ),
        (
            json!({"validations": ok, "matchConditions": [{}]}),
            vec![("spec.matchConditions[0].expression", "Required value"), ("spec.matchConditions[0].name", "Required value")],
        ),
        (
            json!({"validations": ok, "failurePolicy": "Foo"}),
            vec![("spec.failurePolicy", "Unsupported value: \"Foo\": supported values: \"Fail\", \"Ignore\"")],
        ),
        (json!({"validations": ok, "matchConstraints": null}), vec![("spec.matchConstraints", "Required value")]),
        (json!({"validations": ok, "matchConstraints": {}}), vec![("spec.matchConstraints.resourceRules", "Required value")]),
        (
            json!({"validations": ok, "paramKind": {}}),
            vec![("spec.paramKind.apiVersion", "Required value"), ("spec.paramKind.kind", "Required value")],
        ),
    ];
    for (spec, expected) in table {
        let causes = validate(&policy("v", spec.clone()));
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, expected.iter().map(|(field, _)| *field).collect::<Vec<_>>(), "{spec}");
        for (cause, (_, message)) in causes.iter().zip(expected) {
            assert!(cause.message.contains(message), "{spec}: {}", cause.message);
        }
    }
}

#[test]
fn a_binding_that_cannot_work_is_refused() {
    let table = [
        (json!({"policyName": "p", "validationActions": ["Deny"]}), vec![]),
        (
            json!({}),
            vec![
                "spec.policyName: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny", "Deny"]}),
            vec!["spec.validationActions[1]: Duplicate value: \"Deny\""],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Foo"]}),
            vec!["spec.validationActions[0]: Unsupported value: \"Foo\": supported values: \"Audit\", \"Deny\", \"Warn\""],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {}}),
            vec![
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
            ],
        ),
    ];
    let bindings = Resource {
        group: "admissionregistration.k8s.io".to_owned(),
        plural: "validatingadmissionpolicybindings".to_owned(),
        ..Resource::default()
    };
    for (spec, expected) in table {
        let causes = crate::builtin::validate_create(&bindings, &json!({"spec": spec}));
        let said: Vec<String> = causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(said, expected, "{spec}");
    }
}
