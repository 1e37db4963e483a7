//! Whatever a client sends, the server answers and lives on.

use http::{Method, Request};
use jiff::Timestamp;
use resus_apiserver::{Reply, Server};
use serde_json::{Value, json};

const REQUESTS: usize = 200_000;

#[test]
fn no_request_is_too_strange_to_be_answered() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let mut server = Server::new(1, now);
    let mut dice = Dice(7);
    let mut refused = 0;
    for _ in 0..REQUESTS {
        let request = strange(&mut dice);
        let shown = format!("{request:?}");
        match server.handle(now, request) {
            Reply::Answer(answer) => {
                assert!(matches!(answer.status().as_u16(), 200..600), "{shown}");
                assert!(answer.status().as_u16() != 500 || !answer.body().is_empty(), "{shown}");
                refused += usize::from(!answer.status().is_success());
            }
            Reply::Watch(mut watch) => {
                server.follow(now, &mut watch);
            }
        }
        server.tend(now);
    }
    assert!((REQUESTS / 2..REQUESTS).contains(&refused), "{refused} of {REQUESTS} were refused: some should pass, most not");
}

fn strange(dice: &mut Dice) -> Request<Vec<u8>> {
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let types = [
        "application/json",
        "application/yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "nonsense",
    ];
    let method = dice.one(&methods).clone();
    let kind = *dice.one(&types);
    let body = match dice.below(10) {
        0 => Vec::new(),
        1 => (0..dice.below(40)).map(|_| dice.byte()).collect(),
        2 => json!([{"op": dice.word(), "path": format!("/{}/{}", dice.word(), dice.word()), "value": value(dice, 2)}])
            .to_string()
            .into_bytes(),
        _ => object(dice).to_string().into_bytes(),
    };
    let path = path(dice);
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    request
        .header("accept", *dice.one(&["", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml", "x"]))
        .body(body)
        .expect("a request")
}

fn path(dice: &mut Dice) -> String {
    let plurals = [
        ("api/v1", "nodes"),
        ("api/v1", "namespaces"),
        ("api/v1", "pods"),
        ("api/v1", "configmaps"),
        ("api/v1", "secrets"),
        ("api/v1", "events"),
        ("api/v1", "serviceaccounts"),
        ("apis/apps/v1", "deployments"),
        ("apis/apps/v1", "daemonsets"),
        ("apis/policy/v1", "poddisruptionbudgets"),
        ("apis/coordination.k8s.io/v1", "leases"),
        ("apis/rbac.authorization.k8s.io/v1", "roles"),
        ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        ("apis/certificates.k8s.io/v1", "certificatesigningrequests"),
        ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
        ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
        ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings"),
        ("apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"),
        ("apis/a.test/v1", "as"),
    ];
    let (group, plural) = *dice.one(&plurals);
    let namespace = *dice.one(&["", "namespaces/default/", "namespaces/a/", "watch/"]);
    let name = *dice.one(&[
        "",
        "/a",
        "/b",
        "/a/status",
        "/a/scale",
        "/a/eviction",
        "/a/binding",
        "/a/token",
        "/a/approval",
        "/%00",
        "/a/b/c",
    ]);
    let queries = [
        "",
        "watch=1",
        "limit=1",
        "limit=x",
        "fieldManager=m",
        "dryRun=All",
        "labelSelector=a%20in%20(",
        "fieldSelector=%5C",
        "continue=e30",
    ];
    format!("/{group}/{namespace}{plural}{name}?{}", dice.one(&queries))
}

/// Mostly what an object looks like, with something else here and there.
fn object(dice: &mut Dice) -> Value {
    let mut object = json!({"metadata": {"name": dice.one(&["a", "b", "as.a.test"])}});
    for field in ["spec", "status", "data", "rules", "roleRef", "subjects", "involvedObject", "apiVersion", "kind"] {
        if dice.below(3) == 0 {
            object[field] = value(dice, 5);
        }
    }
    if dice.below(2) == 0 {
        let field = dice.word();
        object["metadata"][field] = value(dice, 3);
    }
    object
}

fn value(dice: &mut Dice, depth: usize) -> Value {
    match dice.below(if depth == 0 { 6 } else { 10 }) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!(i64::from(dice.byte()) - 100),
        3 => json!(1e300),
        4 => json!(dice.word()),
        5 => json!("\u{0}é\"\\"),
        6 => (0..dice.below(4)).map(|_| value(dice, depth - 1)).collect(),
        _ => {
            let fields = (0..dice.below(5)).map(|_| (dice.word().to_owned(), value(dice, depth - 1)));
            Value::Object(fields.collect())
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("it is small") % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("it is a byte")
    }

    fn one<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Names that mean something somewhere.
    fn word(&mut self) -> &'static str {
        let word: &&str = self.one(&WORDS);
        word
    }
}

const WORDS: [&str; 54] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "uid",
    "generateName",
    "resourceVersion",
    "deletionTimestamp",
    "containers",
    "template",
    "selector",
    "matchLabels",
    "matchExpressions",
    "taints",
    "conditions",
    "type",
    "status",
    "replicas",
    "minAvailable",
    "group",
    "names",
    "plural",
    "kind",
    "scope",
    "versions",
    "schema",
    "openAPIV3Schema",
    "properties",
    "x-kubernetes-validations",
    "rule",
    "validations",
    "expression",
    "matchConstraints",
    "resourceRules",
    "policyName",
    "validationActions",
    "request",
    "signerName",
    "usages",
    "target",
    "holderIdentity",
    "key",
    "effect",
    "images",
    "addresses",
    "$patch",
    "replace",
    "$setElementOrder/conditions",
    "self.a",
    "100m",
    "",
];
