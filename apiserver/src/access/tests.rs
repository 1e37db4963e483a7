//! The words of messages are those of a real API server with the same roles. Aggregation, escalate and bind follow its source.
#![expect(clippy::needless_pass_by_value, reason = "tables of values read better without references")]

use serde_json::{Value, json};

use super::*;

struct Cluster {
    roles: Vec<Value>,
    cluster_roles: Vec<Value>,
    role_bindings: Vec<Value>,
    cluster_role_bindings: Vec<Value>,
}

impl Cluster {
    fn rbac(&self) -> Rbac<'_> {
        let Cluster { roles, cluster_roles, role_bindings, cluster_role_bindings } = self;
        Rbac { roles, cluster_roles, role_bindings, cluster_role_bindings }
    }
}

fn binding(kind: &str, name: &str, role_kind: &str, role: &str, subjects: Value) -> Value {
    let mut metadata = json!({"name": name});
    if kind == "RoleBinding" {
        metadata["namespace"] = json!("default");
    }
    json!({"kind": kind, "metadata": metadata, "roleRef": {"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role}, "subjects": subjects})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": RBAC_GROUP, "name": name})
}

fn cluster() -> Cluster {
    let reader = json!({"kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [
        {"apiGroups": ["", "apps"], "resources": ["pods", "pods/log", "*/scale"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
        {"apiGroups": [RBAC_GROUP], "resources": ["clusterroles", "clusterrolebindings", "roles", "rolebindings"], "verbs": ["create", "update", "patch", "get"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["*"]},
    ]});
    let local = json!({"kind": "Role", "metadata": {"name": "local", "namespace": "default"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "delete"]}]});
    let bot = json!({"kind": "ServiceAccount", "name": "bot", "namespace": "default"});
    let (mut cluster_roles, mut cluster_role_bindings): (Vec<Value>, Vec<Value>) =
        default_roles().into_iter().partition(|one| one["kind"] == "ClusterRole");
    cluster_roles.push(reader);
    cluster_role_bindings.insert(0, binding("ClusterRoleBinding", "readers", "ClusterRole", "reader", json!([user("x"), bot])));
    let bot_here = json!({"kind": "ServiceAccount", "name": "bot"});
    let role_bindings = vec![
        binding("RoleBinding", "locals", "Role", "local", json!([bot_here, user("x")])),
        binding("RoleBinding", "missing", "Role", "nope", json!([user("y")])),
    ];
    Cluster { roles: vec![local], cluster_roles, role_bindings, cluster_role_bindings }
}

fn known(name: &str) -> User {
    User::named(name, &[])
}

fn of_resource<'a>(verb: &'a str, group: &'a str, resource: &'a str, namespace: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes { verb, group, resource, namespace, name, path: "" }
}

fn of_path<'a>(verb: &'a str, path: &'a str) -> Attributes<'a> {
    Attributes { verb, path, ..Attributes::default() }
}

#[test]
fn a_rule_allows_what_it_names_and_nothing_else() {
    let cluster = cluster();
    let table = [
        (of_resource("get", "", "pods", "", ""), true),
        (of_resource("get", "", "pods", "anywhere", "p"), true),
        (of_resource("delete", "", "pods", "", ""), false),
        (of_resource("get", "batch", "pods", "", ""), false),
        (of_resource("get", "", "pods/log", "", "p"), true),
        (of_resource("get", "", "pods/status", "", "p"), false),
        (of_resource("get", "apps", "deployments/scale", "", "d"), true),
        (of_resource("get", "apps", "deployments", "", "d"), false),
        (of_resource("get", "apps", "deployments/upscale", "", "d"), false),
        (of_resource("whatever", "", "secrets", "", "one"), true),
        (of_resource("get", "", "secrets", "", "two"), false),
        (of_resource("list", "", "secrets", "", ""), false),
        (of_resource("get", "", "configmaps", "default", "c"), true),
        (of_resource("get", "", "configmaps", "other", "c"), false),
        (of_resource("get", "", "configmaps", "", ""), false),
        (of_path("get", "/metrics"), true),
        (of_path("get", "/metricsx"), false),
        (of_path("post", "/metrics"), false),
        (of_path("get", "/logs/a"), true),
        (of_path("get", "/logs"), false),
        (of_path("get", "/version"), true),
    ];
    for (attributes, expected) in table {
        assert_eq!(allowed(cluster.rbac(), &known("x"), &attributes).is_some(), expected, "{attributes:?}");
        assert!(allowed(Rbac::default(), &User::admin(), &attributes).is_some(), "masters may do anything: {attributes:?}");
    }
}

#[test]
fn a_reason_names_the_binding_the_role_and_the_subject() {
    let cluster = cluster();
    let (pods, configmaps) = (of_resource("get", "", "pods", "", ""), of_resource("get", "", "configmaps", "default", ""));
    let bot = "system:serviceaccount:default:bot";
    let table = [
        ("x", &pods, r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "x""#),
        ("x", &configmaps, r#"RBAC: allowed by RoleBinding "locals/default" of Role "local" to User "x""#),
        (bot, &pods, r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to ServiceAccount "bot/default""#),
        (bot, &configmaps, r#"RBAC: allowed by RoleBinding "locals/default" of Role "local" to ServiceAccount "bot/default""#),
    ];
    for (name, attributes, expected) in table {
        assert_eq!(allowed(cluster.rbac(), &known(name), attributes).as_deref(), Some(expected));
    }
}

#[test]
fn a_refusal_is_said_in_the_words_of_kubernetes() {
    let table = [
        (
            of_resource("list", "", "nodes", "", ""),
            r#"nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope"#,
            json!({"kind": "nodes"}),
        ),
        (
            of_resource("get", "", "nodes", "", "n1"),
            r#"nodes "n1" is forbidden: User "x" cannot get resource "nodes" in API group "" at the cluster scope"#,
            json!({"name": "n1", "kind": "nodes"}),
        ),
        (
            of_resource("get", "apps", "deployments/status", "default", "d"),
            r#"deployments.apps "d" is forbidden: User "x" cannot get resource "deployments/status" in API group "apps" in the namespace "default""#,
            json!({"name": "d", "group": "apps", "kind": "deployments"}),
        ),
        (of_path("get", "/metricsx"), r#"forbidden: User "x" cannot get path "/metricsx""#, json!({})),
        (of_path("get", "/a<b&"), r#"forbidden: User "x" cannot get path "/a&lt;b&amp;""#, json!({})),
    ];
    for (attributes, message, details) in table {
        let status = forbidden(&known("x"), &attributes).to_value();
        assert_eq!((&status["message"], &status["details"], &status["code"]), (&json!(message), &details, &json!(403)));
    }
}

fn reviewed(kind: &str, asker: &User, spec: Value) -> Value {
    let mut posted = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    if kind == "LocalSubjectAccessReview" {
        posted["metadata"] = json!({"namespace": "default"});
    }
    match review(cluster().rbac(), asker, &posted) {
        Ok(answer) => answer["status"].clone(),
        Err(refusal) => json!(refusal.message),
    }
}

#[test]
fn reviews_answer_as_a_real_server() {
    let own = "SelfSubjectAccessReview";
    let of_others = "SubjectAccessReview";
    let local = "LocalSubjectAccessReview";
    let pods = json!({"verb": "get", "resource": "pods"});
    let configmaps = json!({"verb": "get", "resource": "configmaps", "namespace": "default"});
    let path = json!({"path": "/x", "verb": "get"});
    let by_role = json!({"allowed": true, "reason": r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "x""#});
    let table = [
        (own, "x", json!({"resourceAttributes": pods}), by_role.clone()),
        (own, "x", json!({"resourceAttributes": {"verb": "get"}}), json!({"allowed": false})),
        (own, "x", json!({"resourceAttributes": {"verb": "get", "resource": "nodes"}}), json!({"allowed": false})),
        (
            own,
            "y",
            json!({"resourceAttributes": configmaps}),
            json!({"allowed": false, "reason": r#"RBAC: role.rbac.authorization.k8s.io "nope" not found"#}),
        ),
        (
            own,
            "x",
            json!({"resourceAttributes": {"verb": "get", "resource": "deployments", "subresource": "scale", "group": "apps"}}),
            by_role.clone(),
        ),
        (own, "x", json!({"nonResourceAttributes": {"path": "/logs/x", "verb": "get"}}), by_role.clone()),
        (
            own,
            "x",
            json!({}),
            json!(
                r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#
            ),
        ),
        (
            own,
            "x",
            json!({"resourceAttributes": pods, "nonResourceAttributes": path}),
            json!(
                r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with resourceAttributes"#
            ),
        ),
        (of_others, "a", json!({"resourceAttributes": pods, "user": "x"}), by_role.clone()),
        (
            of_others,
            "a",
            json!({"resourceAttributes": pods, "user": "q", "groups": ["system:masters"]}),
            json!({"allowed": true}),
        ),
        (
            of_others,
            "a",
            json!({}),
            json!(
                r#".authorization.k8s.io "" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]"#
            ),
        ),
        (
            of_others,
            "a",
            json!({"user": "q", "resourceAttributes": {"verb": "get", "fieldSelector": {}}}),
            json!(
                r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required"#
            ),
        ),
        (
            local,
            "a",
            json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}, "user": "x"}),
            by_role,
        ),
        (
            local,
            "a",
            json!({"resourceAttributes": pods, "user": "q"}),
            json!(
                r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace"#
            ),
        ),
        (
            local,
            "a",
            json!({"nonResourceAttributes": path, "user": "q"}),
            json!(
                r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request"#
            ),
        ),
        ("SelfSubjectRulesReview", "x", json!({}), json!("no namespace on request")),
    ];
    for (kind, asker, spec, expected) in table {
        assert_eq!(reviewed(kind, &known(asker), spec.clone()), expected, "{kind} {spec}");
    }
}

#[test]
fn a_rules_review_lists_every_rule_that_holds() {
    let status = reviewed("SelfSubjectRulesReview", &known("x"), json!({"namespace": "default"}));
    let first = json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "pods/log", "*/scale"]});
    let last = json!({"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["configmaps"]});
    let rules = status["resourceRules"].as_array().unwrap();
    assert_eq!((rules.first(), rules.last(), rules.len()), (Some(&first), Some(&last), 6));
    assert_eq!(status["nonResourceRules"][0], json!({"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}));
    assert_eq!((&status["incomplete"], &status["evaluationError"]), (&json!(false), &Value::Null));
    let status = reviewed("SelfSubjectRulesReview", &known("y"), json!({"namespace": "default"}));
    assert_eq!(status["evaluationError"], json!(r#"role.rbac.authorization.k8s.io "nope" not found"#));
}

#[test]
fn everybody_learns_who_he_is() {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    let name = "system:serviceaccount:default:bot";
    assert_eq!(reviewed("SelfSubjectReview", &known(name), json!({})), json!({"userInfo": {"username": name, "groups": groups}}));
}

#[test]
fn nobody_hands_out_rights_that_he_lacks() {
    let held = r#"user "x" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:"#;
    let rbac = "rbac.authorization.k8s.io";
    let role = |kind: &str, name: &str, rules: Value| json!({"kind": kind, "metadata": {"name": name}, "rules": rules});
    let mut local = role("Role", "e6", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update"]}]));
    local["metadata"]["namespace"] = json!("default");
    let mut gathering = role("ClusterRole", "e2", json!([]));
    gathering["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let wide = json!([
        {"apiGroups": ["", "apps"], "resources": ["pods", "nodes"], "verbs": ["get", "delete"]},
        {"nonResourceURLs": ["/metrics", "/q"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one", "two"], "verbs": ["get", "list"]},
    ]);
    let wide_missing = "{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"delete\"]}\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"two\"], Verbs:[\"get\" \"list\"]}\n{APIGroups:[\"apps\"], Resources:[\"nodes\"], Verbs:[\"get\" \"delete\"]}\n{APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n{NonResourceURLs:[\"/q\"], Verbs:[\"get\"]}";
    let everything = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    let bind = |kind, name, role_kind, role| binding(kind, name, role_kind, role, json!([user("z")]));
    let table = [
        (role("ClusterRole", "e1", wide), Some(format!("clusterroles.{rbac} \"e1\" is forbidden: {held}\n{wide_missing}"))),
        (
            gathering,
            Some(format!(
                "clusterroles.{rbac} \"e2\" is forbidden: must have cluster-admin privileges to use the aggregationRule"
            )),
        ),
        (
            bind("ClusterRoleBinding", "e3", "ClusterRole", "cluster-admin"),
            Some(format!("clusterrolebindings.{rbac} \"e3\" is forbidden: {held}\n{everything}")),
        ),
        (
            bind("ClusterRoleBinding", "e3", "ClusterRole", "nonesuch"),
            Some(format!("clusterrolebindings.{rbac} \"nonesuch\" not found")),
        ),
        (bind("RoleBinding", "e4", "Role", "nonesuch"), Some(format!("rolebindings.{rbac} \"nonesuch\" not found"))),
        (bind("RoleBinding", "e5", "Role", "local"), None),
        (
            local,
            Some(format!(
                "roles.{rbac} \"e6\" is forbidden: {held}\n{{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"update\"]}}"
            )),
        ),
    ];
    let cluster = cluster();
    for (object, expected) in table {
        let said = escalates(cluster.rbac(), &known("x"), &object, None).err().map(|refusal| refusal.message);
        assert_eq!(said, expected, "{object}");
        assert_eq!(escalates(cluster.rbac(), &User::admin(), &object, None), Ok(()));
    }
}

#[test]
fn a_role_that_one_could_not_write_may_still_get_a_finalizer_but_no_label() {
    let cluster = cluster();
    let old = &cluster.cluster_roles[0];
    let (mut collected, mut labelled) = (old.clone(), old.clone());
    collected["metadata"]["finalizers"] = json!(["a/b"]);
    labelled["metadata"]["labels"]["a"] = json!("b");
    assert_eq!(escalates(cluster.rbac(), &known("x"), &collected, Some(old)), Ok(()));
    assert!(escalates(cluster.rbac(), &known("x"), &labelled, Some(old)).is_err());
}

#[test]
fn the_verbs_escalate_and_bind_let_one_hand_out_what_one_lacks() {
    let mut cluster = cluster();
    let rules = json!([{"apiGroups": [RBAC_GROUP], "resources": ["clusterroles"], "verbs": ["escalate", "bind"]}]);
    cluster.cluster_roles.push(json!({"kind": "ClusterRole", "metadata": {"name": "up"}, "rules": rules}));
    cluster.cluster_role_bindings.push(binding("ClusterRoleBinding", "ups", "ClusterRole", "up", json!([user("up")])));
    let role = json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = binding("ClusterRoleBinding", "b", "ClusterRole", "cluster-admin", json!([user("q")]));
    for object in [role, binding] {
        assert_eq!(escalates(cluster.rbac(), &known("up"), &object, None), Ok(()));
        assert!(escalates(cluster.rbac(), &known("y"), &object, None).is_err());
    }
}

#[test]
fn a_gathering_role_takes_rules_by_name_of_their_role_and_each_once() {
    let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
    let role =
        |name: &str, label: &str, rules: Value| json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules});
    let gathering = json!({
        "metadata": {"name": "all", "labels": {"to": "b"}}, "rules": null,
        "aggregationRule": {"clusterRoleSelectors": [
            {"matchLabels": {"to": "b"}},
            {"matchExpressions": [{"key": "to", "operator": "In", "values": ["c", "d"]}, {"key": "x", "operator": "DoesNotExist"}]},
        ]},
    });
    let mut all = vec![
        gathering,
        role("z", "b", json!([rule("pods")])),
        role("a", "b", json!([rule("nodes"), rule("pods")])),
        role("b", "c", json!([rule("secrets")])),
        role("c", "e", json!([rule("events")])),
    ];
    let expected = json!([rule("nodes"), rule("pods"), rule("secrets")]);
    assert_eq!(aggregate(&all), [("all".to_owned(), expected.clone())]);
    all[0]["rules"] = expected;
    assert_eq!(aggregate(&all), []);
}

#[test]
fn the_default_roles_gather_each_other() {
    let cluster = cluster();
    let rules = |name: &str| {
        let role = cluster.cluster_roles.iter().find(|role| role["metadata"]["name"] == name).unwrap();
        role["rules"].as_array().unwrap().len()
    };
    assert_eq!((rules("view"), rules("edit"), rules("admin")), (6, 16, 18));
    assert_eq!(aggregate(&cluster.cluster_roles), []);
}

#[test]
fn only_who_may_impersonate_speaks_for_others() {
    let cluster = cluster();
    let nodes = of_resource("list", "", "nodes", "", "");
    assert_eq!(impersonate(cluster.rbac(), &User::admin(), "u", &[], &nodes), Ok(known("u")));
    let table =
        [("u", "user-info"), ("system:serviceaccount:kube-system:q", "serviceaccount"), ("system:node:n1", "arbitrary-node")];
    for (name, mode) in table {
        let refusal = impersonate(cluster.rbac(), &known("x"), name, &[], &nodes).unwrap_err();
        let expected = format!(
            "nodes is forbidden: User \"x\" cannot impersonate-on:{mode}:list resource \"nodes\" in API group \"\" at the cluster scope"
        );
        assert_eq!(refusal.message, expected);
    }
}
