//! The schema and the words of refusals are from a real API server; causes are put in order of their fields.
#![expect(clippy::needless_pass_by_value, reason = "tables of values read better without references")]

use serde_json::{Value, json};

use super::*;

fn schema() -> Schema {
    Schema::of_crd(&serde_json::from_str(SCHEMA).unwrap())
}

fn said(object: &Value, old: Option<&Value>) -> Vec<String> {
    check(object, old, &schema()).into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn rules_refuse_in_the_words_of_kubernetes() {
    let table: [(Value, &[&str]); 32] = [
        (json!({"n": 0}), &["spec.n: Invalid value: 0: must be positive"]),
        (json!({"f": 0.25}), &["spec.f: Invalid value: 0.25: failed rule: self > 0.5"]),
        (json!({"s": "b"}), &[r#"spec.s: Invalid value: "b": got b"#]),
        (json!({"b": false}), &["spec.b: Invalid value: false: failed rule: self"]),
        (json!({"o": {"x": 2, "y": 1}}), &["spec.o.x: Forbidden: x over y"]),
        (json!({"o": {"x": 13}}), &["spec.o: Required value: req"]),
        (json!({"o": {"x": 14}}), &["spec.o: Duplicate value"]),
        (json!({"l": [10]}), &["spec.l: Invalid value: small"]),
        (
            json!({"ls": ["bad", "ok", "bad"]}),
            &[
                r#"spec.ls[0]: Invalid value: "bad": failed rule: self != "bad""#,
                r#"spec.ls[2]: Invalid value: "bad": failed rule: self != "bad""#,
            ],
        ),
        (
            json!({"m": {"a": "bad", "b c": "bad"}}),
            &[
                r#"spec.m[a]: Invalid value: "bad": failed rule: self != "bad""#,
                r#"spec.m[b c]: Invalid value: "bad": failed rule: self != "bad""#,
            ],
        ),
        (json!({"im": "x"}), &[]),
        (json!({"opt": "x"}), &[r#"spec.opt: Invalid value: "x": first first"#]),
        (json!({"opt": "first"}), &[]),
        (json!({"ios": 0}), &["spec.ios: Invalid value: 0: ios"]),
        (json!({"ios": "0%"}), &[r#"spec.ios: Invalid value: "0%": ios"#]),
        (json!({"ios": "1"}), &[]),
        (
            json!({"d": "2019-01-01T00:00:00Z"}),
            &[r#"spec.d: Invalid value: "2019-01-01T00:00:00Z": failed rule: self > timestamp("2020-01-01T00:00:00Z")"#],
        ),
        (json!({"d": "2021-01-01T00:00:00Z"}), &[]),
        (json!({"du": "1ms"}), &[r#"spec.du: Invalid value: "1ms": long"#]),
        (json!({"du": "1m"}), &[]),
        (json!({"e": "5"}), &[r#"spec.e: Invalid value: "string": index out of bounds: 5 evaluating rule: idx"#]),
        (
            json!({"e": "x"}),
            &[r#"spec.e: Invalid value: "string": type conversion error from 'string' to 'int' evaluating rule: idx"#],
        ),
        (json!({"e": "1"}), &[]),
        (json!({"a-b": 0}), &["spec: Invalid value: escaped"]),
        (json!({"namespace": "bad"}), &["spec.namespace: Invalid value: kw"]),
        (json!({"me": -1}), &["spec.me: Invalid value: -1: fallback"]),
        (json!({"me": -2}), &["spec.me: Invalid value: -2: fallback"]),
        (json!({"me": -3}), &["spec.me: Invalid value: -3: fallback"]),
        (json!({"me": -4}), &["spec.me: Invalid value: -4: -1"]),
        (
            json!({"n": 0, "l": [10], "o": {"x": 2, "y": 1}, "a-b": 0}),
            &[
                "spec: Invalid value: escaped",
                "spec.l: Invalid value: small",
                "spec.n: Invalid value: 0: must be positive",
                "spec.o.x: Forbidden: x over y",
            ],
        ),
        (json!({"nn": null}), &[]),
        (json!({"ml": 0}), &["spec.ml: Invalid value: 0: zz"]),
    ];
    for (spec, expected) in table {
        assert_eq!(said(&thing("t", spec.clone()), None), expected, "{spec}");
    }
    assert_eq!(said(&thing("forbidden", json!({})), None), [": Invalid value: bad name"]);
}

#[test]
fn transition_rules_compare_with_what_was_there() {
    let table: [(Value, &[&str]); 7] = [
        (json!([{"im": "a"}, {"im": "b"}]), &[r#"spec.im: Invalid value: "b": immutable"#]),
        (json!([{}, {"im": "b"}]), &[]),
        (json!([{"im": "a"}, {"im": "a"}]), &[]),
        (json!([{"opt": "first"}, {"opt": "x"}]), &[r#"spec.opt: Invalid value: "x": first first"#]),
        (
            json!([{"lm": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}, {"lm": [{"k": "b", "v": 0}, {"k": "a", "v": 6}]}]),
            &["spec.lm[0].v: Invalid value: 0: grows"],
        ),
        (json!([{"lm": [{"k": "a", "v": 5}]}, {"lm": [{"k": "c", "v": 0}]}]), &[]),
        (json!([{"la": [1, 2]}, {"la": [1]}]), &["spec.la: Invalid value: list grows"]),
    ];
    for (both, expected) in table {
        let (old, new) = (thing("u", both[0].clone()), thing("u", both[1].clone()));
        assert_eq!(said(&new, Some(&old)), expected, "{both}");
    }
}

#[test]
fn what_an_update_leaves_alone_may_break_a_rule_that_came_later() {
    let (old, new) = (thing("u", json!({"n": 0, "ls": ["bad"]})), thing("u", json!({"n": 0, "ls": ["bad"], "f": 1})));
    assert_eq!(said(&new, Some(&old)), [""; 0]);
    assert_eq!(said(&new, None).len(), 2);
}

#[test]
fn a_rule_that_cannot_work_is_refused_with_its_place() {
    let of = |rule: Value| {
        json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"x": {"type": "integer"}}, "x-kubernetes-validations": [rule]}}})
    };
    let table = [
        (json!({"rule": "self.x > 0"}), None),
        (json!({"rule": "self.x >"}), Some(("rule", "compilation failed: ERROR: <input>"))),
        (json!({"rule": "self.nope > 0"}), Some(("rule", "undefined field 'nope'"))),
        (json!({"rule": "foo > 0"}), Some(("rule", "undeclared reference to 'foo' (in container '')"))),
        (json!({"rule": "self.x.foo()"}), Some(("rule", "undeclared reference to 'foo' (in container '')"))),
        (json!({"rule": "foo(self.x)"}), Some(("rule", "undeclared reference to 'foo' (in container '')"))),
        (
            json!({"rule": "self.x"}),
            Some((
                "rule",
                r#"Invalid value: {"Rule":"self.x","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool"#,
            )),
        ),
        (json!({"rule": ""}), Some(("rule", "Required value: rule is not specified"))),
        (
            json!({"rule": "true", "messageExpression": "self.x >"}),
            Some(("messageExpression", "messageExpression compilation failed: ERROR: <input>")),
        ),
        (
            json!({"rule": "true", "messageExpression": "self.x"}),
            Some(("messageExpression", ": messageExpression must evaluate to a string")),
        ),
        (
            json!({"rule": "true", "reason": "Foo"}),
            Some((
                "reason",
                r#"Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            )),
        ),
        (json!({"rule": "true", "fieldPath": ".x"}), None),
        (json!({"rule": "true", "fieldPath": ".nope"}), Some(("fieldPath", r#"Invalid value: ".nope": must be a valid path"#))),
        (json!({"rule": "true", "fieldPath": "x"}), Some(("fieldPath", r#"Invalid value: "x": must be a valid path"#))),
        (json!({"rule": "true", "message": "  "}), Some(("message", r#"Invalid value: "  ": must be non-empty if specified"#))),
        (json!({"rule": "true", "message": "a\nb"}), Some(("message", r#"Invalid value: "a\nb": must not contain line breaks"#))),
        (json!({"rule": "true\n"}), None),
        (
            json!({"rule": "true\n&& true"}),
            Some(("message", "Required value: message must be specified if rule contains line breaks")),
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            Some(("optionalOldSelf", "Invalid value: true: may not be set if oldSelf is not used in rule")),
        ),
        (json!({"rule": "self.list.all(x, x.foo > 1)"}), Some(("rule", "undefined field 'list'"))),
        (json!({"rule": "[1].all(y, y < self.x) && sets.contains([1], [1])"}), None),
    ];
    for (rule, expected) in table {
        let causes = compile(&of(rule.clone()), "spec.versions[0].schema.openAPIV3Schema");
        let Some((field, message)) = expected else {
            assert_eq!(causes, [], "{rule}");
            continue;
        };
        let [cause] = causes.as_slice() else { panic!("{rule}: {causes:?}") };
        let path = "spec.versions[0].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";
        assert_eq!(cause.field, format!("{path}.{field}"), "{rule}");
        assert!(cause.message.contains(message), "{rule}: {}", cause.message);
    }
}

#[test]
fn rules_are_found_in_lists_and_maps() {
    let rule = json!([{"rule": "("}]);
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": rule}},
        "m": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rule}}}});
    let fields: Vec<String> = compile(&schema, "s").into_iter().map(|cause| cause.field).collect();
    let expected = ["s.properties[l].items", "s.properties[m].additionalProperties"];
    assert_eq!(fields, expected.map(|place| format!("{place}.x-kubernetes-validations[0].rule")));
}

#[test]
fn expressions_that_kubernetes_knows_are_understood() {
    let table = [
        "type(1) == int && type('a') == string && type([]) == list",
        "string(true) == 'true' && string(1) == '1' && string(ip('10.0.0.1')) == '10.0.0.1'",
        "{'a': 1}[?'b'].orValue(2) == 2",
        "{'namespace': 1}.namespace == 1",
        "[1, 2].exists_one(x, x == 2) && [1].map(x, x + 1) == [2] && 'a'.matches('^[a-z]$')",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.1.1')",
        "duration('1m') > duration('59s') && timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026",
        "'a,b'.split(',').size() == 2 && ['a', 'b'].join('-') == 'a-b' && 'x'.replace('x', 'y') == 'y'",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && url('https://a.b/c').getHost() == 'a.b'",
    ];
    for expression in table {
        let names = Names { variables: &[], schema: None, fields: &[] };
        let program = compile_expression(expression, crate::schema::Type::Boolean, &names);
        let program = program.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(scope(|scope| scope.run(&program)), Ok(kube_cel::cel::Value::Bool(true)), "{expression}");
    }
}

const SCHEMA: &str = r##"
{"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "must be positive"}]}, "f": {"type": "number", "x-kubernetes-validations": [{"rule": "self > 0.5"}]}, "s": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self.startsWith(\"a\")", "messageExpression": "\"got \" + self"}]}, "b": {"type": "boolean", "x-kubernetes-validations": [{"rule": "self"}]}, "o": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "!has(self.x) || !has(self.y) || self.x <= self.y", "message": "x over y", "fieldPath": ".x", "reason": "FieldValueForbidden"}, {"rule": "!has(self.x) || self.x != 13", "reason": "FieldValueRequired", "message": "req"}, {"rule": "!has(self.x) || self.x != 14", "reason": "FieldValueDuplicate", "message": "dup"}]}, "l": {"type": "array", "maxItems": 10, "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.all(i, i < 10)", "message": "small"}]}, "ls": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != \"bad\""}]}}, "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != \"bad\""}]}}, "im": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}, "opt": {"type": "string", "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() ? self == oldSelf.value() : self == \"first\"", "message": "first first", "optionalOldSelf": true}]}, "lm": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string", "maxLength": 5}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "grows"}]}}, "required": ["k"]}}, "la": {"type": "array", "maxItems": 10, "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.size() >= oldSelf.size()", "message": "list grows"}]}, "ios": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{"rule": "type(self) == int ? self > 0 : self != \"0%\"", "message": "ios"}]}, "d": {"type": "string", "format": "date-time", "x-kubernetes-validations": [{"rule": "self > timestamp(\"2020-01-01T00:00:00Z\")"}]}, "du": {"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self >= duration(\"1s\")", "message": "long"}]}, "e": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "[1,2][int(self)] > 0", "message": "idx"}]}, "a-b": {"type": "integer"}, "namespace": {"type": "string", "maxLength": 5}, "me": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "fallback", "messageExpression": "self == -1 ? \"\" : (self == -2 ? \"a\\nb\" : string(1/(self+3)))"}]}, "nn": {"type": "string", "nullable": true, "maxLength": 5, "x-kubernetes-validations": [{"rule": "self != \"q\""}]}, "ml": {"type": "integer", "x-kubernetes-validations": [{"rule": "self\n > 0", "message": "zz"}]}}, "x-kubernetes-validations": [{"rule": "!has(self.a__dash__b) || self.a__dash__b > 0", "message": "escaped"}, {"rule": "!has(self.__namespace__) || self.__namespace__ != \"bad\"", "message": "kw", "fieldPath": ".namespace"}]}, "metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}, "x-kubernetes-validations": [{"rule": "self.metadata.name != \"forbidden\"", "message": "bad name"}, {"rule": "self.kind == \"Thing\""}]}
"##;
