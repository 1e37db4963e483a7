//! A status names at most as many nodes as etcd has room for, however much there is to say of each.

use http::{Method, Request};
use jiff::Timestamp;
use resus_apiserver::{Reply, Server};
use resus_core::decision::{Because, Match};
use resus_core::effect::Effect;
use resus_core::facts::{Check, Kind, Name, ObjectKey, Status, Version};
use resus_core::nhc::{self, CheckStatus, Findings, Found, Remediation, UnhealthyNode};
use resus_core::repeat::Recent;
use resus_core::text::{MESSAGE_MAX, Plain, TEXT_MAX};
use resus_core::time::Wall;
use resus_k8s::names::Places;
use resus_k8s::{crd, encode, observe};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";
/// What etcd takes, in bytes.
const ETCD_MAX: usize = 1_572_864;
const NODES: usize = 5000;
/// Of them, those that have been remediated most often.
const OFTEN: usize = 200;

fn ask(server: &mut Server, request: Request<Vec<u8>>) -> Vec<u8> {
    match server.handle(NOW, request) {
        Reply::Answer(answer) if answer.status().is_success() => answer.into_body(),
        Reply::Answer(answer) => panic!("{}: {}", answer.status(), String::from_utf8_lossy(answer.body())),
        Reply::Watch(_) => panic!("nothing is watched"),
    }
}

fn post(server: &mut Server, path: &str, object: &Value) -> Vec<u8> {
    let request = Request::builder().method(Method::POST).uri(path).body(object.to_string().into_bytes());
    ask(server, request.expect("the path is valid"))
}

/// With the check as it is stored.
fn stage() -> (Server, Check) {
    let mut server = Server::new(1, NOW);
    for definition in crd::all() {
        post(&mut server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json!(definition));
    }
    while server.tend(NOW) {}
    let object = json!({
        "apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": {"name": "workers"},
        "spec": {"remediationTemplate": {"apiVersion": "p.test/v1", "kind": "RebootTemplate", "name": "t", "namespace": "ns"}},
    });
    let stored = post(&mut server, CHECKS, &object);
    (server, observe::check(&stored).expect("it can be read"))
}

/// Every node fails, and of each this is to be told; this many are being remediated.
fn findings(held: &str, remediated: usize, name_length: usize) -> Findings {
    let kind = Kind { api_version: "provider.example.com/v1alpha1".into(), kind: "RebootRemediation".into() };
    let found = |n: usize| {
        let name: Name = format!("{n:0>name_length$}").into();
        let key = ObjectKey { kind: kind.clone(), namespace: Some("openshift-workload-availability".into()), name: name.clone() };
        let remediation = Remediation {
            uid: format!("{n:0>36}").into(),
            template: Some("self-node-remediation-automatic-strategy-template".into()),
            started_at: Wall(1_800_000_000_000),
            timed_out_at: Some(Wall(1_800_000_000_000)),
            key: key.clone(),
        };
        let refused = Because::Refused { key, why: Plain(held).to_string().into(), busy: false };
        let expired = Match {
            kind: "Ready".into(),
            status: Status::Unknown,
            since: Wall(0),
            lasts_for: std::time::Duration::from_secs(300),
        };
        let is_held = n < NODES - remediated;
        Found {
            node: UnhealthyNode {
                held: is_held.then(|| refused.to_string().into()),
                ..UnhealthyNode::new(name, if is_held { Vec::new() } else { vec![remediation] })
            },
            because: Some(Because::Expired(expired)),
            held: is_held.then_some(refused),
            label_is_empty: false,
        }
    };
    let recent = |n: usize| Recent {
        node: format!("{n:0>name_length$}").into(),
        started_at: vec![Wall(1_800_000_000_000); if n < NODES - OFTEN { 3 } else { 9 }],
    };
    Findings {
        observed: NODES,
        healthy: 0,
        unhealthy: (0..NODES).map(found).collect(),
        disabled: None,
        shut: None,
        dark_zones: Vec::new(),
        storm: None,
        recent: (0..NODES).map(recent).collect(),
        brief: Vec::new(),
        limits: (0..NODES).map(|n| format!("watch of kind {n} is not granted")).collect(),
        ignored_leases: Vec::new(),
        clamped: false,
        upgrading: None,
        upgrade_takes_long: false,
    }
}

fn written(server: &mut Server, check: &Check, status: CheckStatus) -> Vec<u8> {
    let effect = Effect::Status { check: check.name.clone(), version: check.version.clone(), status, written_at: Wall(0) };
    ask(server, encode::encode(&effect, &Places::new("resus")).expect("it can be sent"))
}

#[test]
fn whatever_there_is_to_say_of_thousands_of_nodes_the_status_can_be_stored() {
    // Texts that take most room as they are stored, in bytes for each character.
    for (text, name_length) in [("no", 8), ("\u{1f600}", 63), ("\"", 253), ("\\", 253)] {
        let (mut server, check) = stage();
        let status = nhc::status(&check, &findings(&text.repeat(TEXT_MAX), 1500, name_length), Wall(0));
        let often = status.recent.iter().filter(|recent| recent.started_at.len() == 9).count();
        assert!((OFTEN..NODES).contains(&status.recent.len()) && often == OFTEN, "{text}: {often} of {}", status.recent.len());
        let stored = written(&mut server, &check, status);
        assert!(stored.len() < ETCD_MAX, "{text}: {} bytes", stored.len());
        let object: Value = serde_json::from_slice(&stored).expect("it is JSON");
        let nodes = object["status"]["unhealthyNodes"].as_array().expect("they are listed");
        let remediated = nodes.iter().filter(|node| node["remediations"].as_array().is_some_and(|all| !all.is_empty())).count();
        assert!(nodes.len() >= 500, "{text}: only {} nodes", nodes.len());
        assert!(remediated == 1500 || remediated == nodes.len(), "{text}: of {} {remediated} are being remediated", nodes.len());
        assert!(nodes.is_sorted_by_key(|node| node["name"].as_str().map(str::to_owned)), "as they are sorted elsewhere");
        for condition in object["status"]["conditions"].as_array().expect("they are listed") {
            assert!(condition["message"].as_str().expect("a text").chars().count() <= MESSAGE_MAX, "{condition}");
        }
        assert_ne!(check.version, Version("".into()));
    }
}
