//! Objects of others that tell of upgrades: as their controllers write them, and as nobody should.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use resus_core::facts::{Signal, SignalFact, Source};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::time::{Mono, Wall};
use resus_core::upgrade::{Detectors, Mark};
use resus_k8s::feed::{self, Line};
use resus_k8s::names::Places;
use resus_k8s::observe::{self, Keep};
use resus_k8s::{answer, encode, signal};
use serde_json::{Value, json};

fn says(signal: Signal, object: &Value) -> SignalFact {
    match signal::signal(object.to_string().as_bytes(), signal) {
        Ok(Fact::Signal { says, .. }) => says,
        other => panic!("{other:?}"),
    }
}

fn what(signal: Signal, object: &Value) -> Option<String> {
    match says(signal, object) {
        SignalFact::Busy { what, .. } => Some(what.to_string()),
        SignalFact::Quiet => None,
    }
}

#[test]
fn a_cluster_version_that_progresses_moves() {
    let version = |status: Value| json!({"metadata": {"name": "version"}, "status": status});
    let progressing = |status: &str| json!([{"type": "Available", "status": "True"}, {"type": "Progressing", "status": status}]);
    for (status, said) in [
        (json!({"conditions": progressing("True"), "desired": {"version": "4.20.3"}}), Some("OpenShift moves to 4.20.3")),
        (json!({"conditions": progressing("True")}), Some("OpenShift moves to another version")),
        (json!({"conditions": progressing("True"), "desired": 7}), Some("OpenShift moves to another version")),
        (json!({"conditions": progressing("False"), "desired": {"version": "4.20.3"}}), None),
        (json!({"conditions": progressing("Unknown")}), None),
        (json!({"conditions": null}), None),
        (json!({"conditions": {"Progressing": "True"}}), None),
        (json!({"conditions": [7, null, {"type": 3}, {"type": "Progressing"}]}), None),
        (json!(null), None),
        (json!("progressing"), None),
    ] {
        assert_eq!(what(Signal::ClusterVersions, &version(status.clone())).as_deref(), said, "{status}");
    }
}

fn kured(lock: &Value) -> Value {
    json!({"metadata": {"name": "kured", "namespace": "kube-system", "annotations": {"weave.works/kured-node-lock": lock}}})
}

#[test]
fn kureds_lock_is_held_until_it_is_gone_or_over() {
    let created = "2027-01-15T08:00:00.123456789Z";
    let one = json!({"nodeID": "n1", "metadata": {"unschedulable": false}, "created": created, "TTL": 0});
    let lasting = |node: &str, nanos: i64| json!({"nodeID": node, "created": created, "TTL": nanos});
    let several = |locks: Value| json!({"maxOwners": 2, "locks": locks});
    let minute = 60_000_000_000;
    let since = Wall(1_800_000_000_123);
    for (lock, said, lasts) in [
        (one.clone(), "n1", None),
        (json!({"nodeID": "manual"}), "manual", None),
        (lasting("n1", minute), "n1", Some((since, Duration::from_secs(60)))),
        (lasting("n1", -minute), "n1", None),
        (several(json!([lasting("n1", minute), lasting("n2", 2 * minute)])), "n1, n2", Some((since, Duration::from_secs(120)))),
        (several(json!([lasting("n1", minute), one])), "n1, n1", None),
        (
            several(json!([{"nodeID": "a"}, {"nodeID": "b"}, {"nodeID": "c"}, {"nodeID": "d"}, {"nodeID": "e"}])),
            "a, b, c and 2 more",
            None,
        ),
    ] {
        let what = format!("kured's lock is held by {said}").into();
        let SignalFact::Busy { what: is, lasts: for_long, nodes } = says(Signal::Kured, &kured(&json!(lock.to_string()))) else {
            panic!("{lock} is a lock")
        };
        assert_eq!((is, for_long), (what, lasts), "{lock}");
        assert_eq!(&*nodes[0], &said[..said.find(',').unwrap_or(said.len())], "{lock}");
    }
    // Not all of these can be nodes, or are too many to be.
    for odd in [several(json!([{"nodeID": "n1"}, {"nodeID": "no name"}])), several(json!(vec![json!({"nodeID": "n1"}); 101]))] {
        let said = says(Signal::Kured, &kured(&json!(odd.to_string())));
        assert!(matches!(&said, SignalFact::Busy { nodes, .. } if nodes.is_empty()), "{said:?}");
    }
    for free in [json!({"metadata": {"name": "kured"}}), json!({"metadata": {"name": "kured", "annotations": null}})] {
        assert_eq!(what(Signal::Kured, &free), None);
    }
    assert_eq!(what(Signal::Kured, &kured(&json!(several(json!([])).to_string()))), None, "nobody holds it");
    for unclear in [
        json!(""),
        json!("{"),
        json!("[]"),
        json!("{\"nodeID\": 7}"),
        json!("{\"nodeID\":\"n\",\"created\":\"x\"}"),
        json!(7),
        json!(null),
    ] {
        let said = what(Signal::Kured, &kured(&unclear));
        assert_eq!(said.as_deref(), Some("kured has a lock that cannot be read"), "{unclear}: who knows what it stops");
    }
}

#[test]
fn a_plan_is_carried_out_while_it_is_applied_to_nodes() {
    let plan = |status: Value| json!({"metadata": {"name": "k3s", "namespace": "system-upgrade"}, "spec": {}, "status": status});
    let complete = |status: &str| json!([{"type": "Complete", "status": status}]);
    for (status, said) in [
        (json!({"applying": ["n1"]}), Some("the Plan system-upgrade/k3s is applied to n1")),
        (
            json!({"applying": ["n1", "n2"], "conditions": complete("False")}),
            Some("the Plan system-upgrade/k3s is applied to n1, n2"),
        ),
        (json!({"applying": [7]}), Some("the Plan system-upgrade/k3s is applied to ?")),
        (json!({"applying": ["n1"], "conditions": complete("True")}), None),
        (json!({"applying": []}), None),
        (json!({"applying": null, "conditions": complete("False")}), None),
        (json!({"applying": "n1"}), None),
        (json!({}), None),
        (json!(null), None),
    ] {
        assert_eq!(what(Signal::Plans, &plan(status.clone())).as_deref(), said, "{status}");
    }
}

#[test]
fn what_has_not_even_a_name_is_an_error_and_no_panic() {
    for signal in [Signal::ClusterVersions, Signal::Kured, Signal::Plans] {
        for garbage in ["", "null", "[]", "7", "{}", "{\"metadata\":{}}", "{\"metadata\":{\"name\":7}}", "{\"metadata\":null}"] {
            assert!(signal::signal(garbage.as_bytes(), signal).is_err(), "{garbage}");
        }
    }
}

#[test]
fn each_is_listed_and_watched_where_it_is() {
    let path = |signal| feed::list(&Source::Signals(signal), None, &Places::new("resus"), None, 100).unwrap().uri().to_string();
    assert_eq!(path(Signal::ClusterVersions), "/apis/config.openshift.io/v1/clusterversions?limit=100");
    assert_eq!(path(Signal::Plans), "/apis/upgrade.cattle.io/v1/plans?limit=100");
    assert_eq!(path(Signal::Kured), "/apis/apps/v1/daemonsets?limit=100&fieldSelector=metadata.name%3Dkured");
    let watch = feed::watch(&Source::Signals(Signal::Kured), None, &Places::new("resus"), "7").unwrap();
    assert!(watch.uri().to_string().ends_with("&resourceVersion=7&fieldSelector=metadata.name%3Dkured"), "{}", watch.uri());
    assert!(watch.headers()["accept"].to_str().unwrap().contains("PartialObjectMetadata;"), "the rest of it is not read");

    let source = Source::Signals(Signal::Plans);
    let gone = json!({"type": "DELETED", "object": {"metadata": {"name": "k3s", "namespace": "s", "resourceVersion": "8"}}});
    let Ok(Line::Input(input, _)) = feed::read_line(&source, &Keep::default(), gone.to_string().as_bytes()) else { panic!() };
    assert_eq!(input, Input::Gone(Gone::Signal { signal: Signal::Plans, name: "s/k3s".into() }));
}

#[test]
fn the_server_tells_its_version() {
    let effect = resus_core::effect::Effect::ServerVersion;
    assert_eq!(encode::encode(&effect, &Places::new("ns")).unwrap().uri(), "/version");
    let respond = |body: &str| answer::decode(&effect, &Keep::default(), &http::Response::new(body.as_bytes().to_vec()));
    let known = Fact::Server { version: "v1.36.0+k3s1".into() };
    assert_eq!(respond(r#"{"major":"1","gitVersion":"v1.36.0+k3s1"}"#), Input::Answered(effect.key(), Answer::Done(Some(known))));
    assert!(matches!(respond("{}"), Input::Answered(_, Answer::Unsure { .. })));
}

/// An answer that is merely late, or credentials that are not accepted for a moment, must not switch a detector off.
#[test]
fn an_answer_tells_the_time() {
    let told = |values: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("date", HeaderValue::from_bytes(value).expect("what a header may hold"));
        }
        match answer::dated(&headers, None, Mono(7)) {
            Some(Input::Dated { cluster: None, date, sent_at: Mono(7) }) => Some(date.0),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(&[b"Wed, 18 Nov 2026 19:16:50 GMT"]), Some(1_795_029_410_000));
    assert_eq!(told(&[b"Wed, 18 Nov 2026 21:16:50 +0200"]), Some(1_795_029_410_000));
    assert_eq!(told(&[b"Wed, 18 Nov 2026 19:16:50 GMT", b"nonsense"]), Some(1_795_029_410_000), "the first of two");
    for nothing in [&b"nonsense"[..], b"\xff", b"", b"Fri, 99 Nov 99999 19:16:50 GMT"] {
        assert_eq!(told(&[nothing]), None);
    }
    assert_eq!(told(&[]), None);
}

#[test]
fn only_who_says_that_we_may_not_refuses_for_good() {
    let effect = resus_core::effect::Effect::ServerVersion;
    for (code, is_for_good) in [(403, true), (401, false), (405, false), (429, false)] {
        let response = http::Response::builder().status(code).body(Vec::new()).unwrap();
        let Input::Answered(_, Answer::Refused { forbidden, .. }) = answer::decode(&effect, &Keep::default(), &response) else {
            panic!("{code}")
        };
        assert_eq!(forbidden, is_for_good, "{code}");
    }
}

#[test]
fn annotations_that_mean_maintenance_are_kept_by_every_way_in() {
    let annotations = json!({"a.io/mended": "by \"me\"", "b.io/\u{e4}": "x", "c.io/large": "y", "d.io/mended": ""});
    let object = json!({"metadata": {"name": "n", "resourceVersion": "1", "annotations": annotations}});
    let marks = ["a.io/mended", "d.io/mended", "b.io/ä"].map(Mark::any).into();
    let keep = Keep::of(&Detectors { annotations: marks, ..Detectors::default() });
    let kept: [(Box<str>, Box<str>); 3] =
        [("a.io/mended".into(), "by \"me\"".into()), ("b.io/ä".into(), "x".into()), ("d.io/mended".into(), "".into())];
    let text = object.to_string().replace('ä', "\\u00e4");
    assert_eq!(*observe::node(text.as_bytes(), &keep).unwrap().annotations, kept);
    let line = format!(r#"{{"type":"MODIFIED","object":{text}}}"#);
    let Ok(Line::Input(Input::Seen(Fact::Node(node)), _)) = feed::read_line(&Source::Nodes, &keep, line.as_bytes()) else {
        panic!()
    };
    assert_eq!(*node.annotations, kept);
    let look = resus_core::effect::Effect::Look { cluster: None, node: "n".into() };
    let response = http::Response::new(text.into_bytes());
    let Input::Answered(_, Answer::Done(Some(Fact::Node(node)))) = answer::decode(&look, &keep, &response) else { panic!() };
    assert_eq!(*node.annotations, kept);
    assert_eq!(node.annotations.len(), 3);
    for bad in [json!("x"), json!([1]), json!({"a.io/mended": 7})] {
        let object = json!({"metadata": {"name": "n", "annotations": bad}});
        assert!(observe::node(object.to_string().as_bytes(), &keep).is_err(), "{object}");
    }
    let none = json!({"metadata": {"name": "n", "annotations": null}});
    assert_eq!(observe::node(none.to_string().as_bytes(), &keep).unwrap().annotations.len(), 0);
}
