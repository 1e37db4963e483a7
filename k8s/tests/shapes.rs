//! Objects, requests and answers, as they go over the wire.

use std::time::Duration;

use http::{Response, StatusCode};
use resus_core::effect::{Creation, Effect, Hold, Owner};
use resus_core::facts::{Amount, Body, Kind, Name, ObjectKey, Source, Status, Threshold, Version};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::lease::{LeaseAnswer, LeaseEffect, Record};
use resus_core::mhc::facts::Dialect;
use resus_core::time::Wall;
use resus_k8s::feed::{self, Line};
use resus_k8s::names::Places;
use resus_k8s::observe::Keep;
use resus_k8s::{answer, encode, observe};
use serde_json::{Value, json};

fn check(spec: &Value) -> resus_core::facts::Check {
    let json = json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
    observe::check(json.to_string().as_bytes()).expect("metadata can be read")
}

fn spec() -> Value {
    json!({"remediationTemplate": {"apiVersion": "p.test/v1", "kind": "RebootTemplate", "name": "t", "namespace": "ns"}})
}

#[test]
fn a_check_with_nothing_but_a_template_has_the_defaults_of_the_reference() {
    let policy = check(&spec()).policy.expect("it is valid");
    assert_eq!(policy.threshold, Threshold::MaxUnhealthy(Amount::Percent(49)));
    assert!(policy.selector.0.is_empty(), "all nodes");
    let rules: Vec<_> = policy.rules.iter().map(|rule| (&*rule.kind, &rule.status, rule.lasts_for)).collect();
    assert_eq!(
        rules,
        [("Ready", &Status::False, Duration::from_secs(300)), ("Ready", &Status::Unknown, Duration::from_secs(300))]
    );
}

#[test]
fn thresholds_are_read_in_all_spellings() {
    use Amount::{Count, Percent};
    use Threshold::{MaxUnhealthy, MinHealthy};
    for (field, value, expected) in [
        ("maxUnhealthy", json!(3), MaxUnhealthy(Count(3))),
        ("maxUnhealthy", json!("3"), MaxUnhealthy(Count(3))),
        ("maxUnhealthy", json!("40%"), MaxUnhealthy(Percent(40))),
        ("maxUnhealthy", json!("150%"), MaxUnhealthy(Percent(150))),
        ("maxUnhealthy", json!(99_999_999_999i64), MaxUnhealthy(Count(u32::MAX))),
        ("minHealthy", json!("51%"), MinHealthy(Percent(51))),
        ("minHealthy", json!("2"), MinHealthy(Count(2))),
    ] {
        let mut spec = spec();
        spec[field] = value;
        assert_eq!(check(&spec).policy.expect("it is valid").threshold, expected);
    }
}

/// Our own CRD refuses most of these already; a foreign one may not.
#[test]
fn a_bad_spec_is_a_sentence_that_names_the_field() {
    let bad: [(&str, Value, &str); 16] = [
        ("remediationTemplate", json!({"apiVersion": "my group/v1", "kind": "RebootTemplate", "name": "t"}), "group/version"),
        ("remediationTemplate", json!({"apiVersion": "p.test/v1", "kind": "Réboot/Template", "name": "t"}), "letters and digits"),
        (
            "remediationTemplate",
            json!({"apiVersion": "p.test/v1", "kind": "RebootTemplate", "name": "../../nodes"}),
            "is no name",
        ),
        ("minHealthy", json!(-1), "minHealthy must not be negative: -1"),
        ("maxUnhealthy", json!("many"), "many"),
        ("unhealthyConditions", json!([]), "unhealthyConditions is empty"),
        ("unhealthyConditions", json!([{"type": "Ready", "status": "False", "duration": "5 minutes"}]), "5 minutes"),
        ("unhealthyConditions", json!([{"type": "Ready", "status": "False", "duration": "-5m"}]), "must not be negative"),
        ("unhealthyConditions", json!("Ready"), "spec.unhealthyConditions is not a list"),
        ("selector", json!({"matchExpressions": [{"key": "k", "operator": "Resembles"}]}), "Resembles"),
        ("selector", json!({"matchExpressions": [{"key": "k", "operator": "In"}]}), "at least one value"),
        ("selector", json!({"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["v"]}]}), "takes no values"),
        ("remediationTemplate", json!({"apiVersion": "p.test/v1", "kind": "Reboot", "name": "t"}), "ends with Template"),
        ("remediationTemplate", json!({"apiVersion": "p.test/v1", "kind": "Template", "name": "t"}), "ends with Template"),
        ("remediationTemplate", json!({"apiVersion": "v1", "kind": "RebootTemplate", "name": "t"}), "group/version"),
        ("remediationTemplate", json!({"apiVersion": "p.test/v1", "kind": "RebootTemplate"}), "name is missing"),
    ];
    for (field, value, says) in bad {
        let mut spec = spec();
        spec[field] = value;
        let why = check(&spec).policy.expect_err(&format!("{spec}")).0;
        assert!(why.contains(says), "{spec}: {why}");
    }
}

#[test]
fn templates_that_cannot_be_used_say_why() {
    let kind = Kind { api_version: "p.test/v1".into(), kind: "RebootTemplate".into() };
    for (spec, expected) in [
        (json!({"template": {"spec": {"b": 1, "a": [2]}}}), Ok(r#"{"a":[2],"b":1}"#)),
        (json!({"template": {}}), Ok("{}")),
        (json!({"template": {"spec": null}}), Ok("{}")),
        (json!({}), Err("no spec.template")),
        (json!(null), Err("no spec.template")),
        (json!(5), Err("no spec.template")),
        (json!({"template": "x"}), Err("spec.template is not an object")),
        (json!({"template": {"spec": []}}), Err("spec.template.spec is not an object")),
        (json!({"template": {"metadata": {"labels": null, "creationTimestamp": null}}}), Ok("{}")),
        (json!({"template": {"metadata": {"labels": {"a": 5}}}}), Err("spec.template.metadata.labels is no map of texts")),
        (json!({"template": {"metadata": {"annotations": "a"}}}), Err("metadata.annotations is no map of texts: write")),
    ] {
        let json = json!({"metadata": {"name": "t", "namespace": "ns", "uid": "t"}, "spec": spec});
        let body = observe::object(json.to_string().as_bytes(), &kind).expect("it can be read").body.expect("it is a template");
        match (body, expected) {
            (Ok(body), Ok(expected)) => assert_eq!(&*body.spec, expected),
            (Err(why), Err(expected)) => assert!(why.0.contains(expected), "{spec}: {}", why.0),
            (body, expected) => panic!("{spec}: {body:?}, not {expected:?}"),
        }
    }
}

#[test]
fn a_template_says_what_its_objects_are_labelled_with() {
    let kind = Kind { api_version: "p.test/v1".into(), kind: "RebootTemplate".into() };
    let metadata = json!({"labels": {"b": "2", "a": "1"}, "annotations": {"c": ""}});
    let json = json!({"metadata": {"name": "t", "uid": "t"}, "spec": {"template": {"metadata": metadata}}});
    let body = observe::object(json.to_string().as_bytes(), &kind).expect("it can be read").body.expect("it is a template");
    let body = body.expect("it can be used");
    assert_eq!(*body.labels, [("a".into(), "1".into()), ("b".into(), "2".into())]);
    assert_eq!(*body.annotations, [("c".into(), "".into())]);
}

#[test]
fn a_bad_object_stops_neither_its_list_nor_its_watch() {
    let good = json!({"metadata": {"name": "good", "resourceVersion": "5"}, "status": {"conditions": null}});
    let bad = json!({"metadata": {"name": "bad", "resourceVersion": "6"}, "status": {"conditions": "none"}});
    let page = feed::read_page(
        &Source::Nodes,
        &Keep::default(),
        json!({"metadata": {"resourceVersion": "9"}, "items": [bad, good]}).to_string().as_bytes(),
    );
    let page = page.expect("the list can be read");
    assert!(matches!(&page.inputs[0], Input::Unreadable { name, .. } if &**name == "bad"));
    assert!(matches!(&page.inputs[1], Input::Seen(Fact::Node(node)) if &*node.name == "good"));
    assert_eq!((page.version.as_str(), page.next), ("9", None));

    let line = json!({"type": "MODIFIED", "object": bad}).to_string();
    let Ok(Line::Input(Input::Unreadable { .. }, Some(version))) =
        feed::read_line(&Source::Nodes, &Keep::default(), line.as_bytes())
    else {
        panic!("{line}")
    };
    assert_eq!(version, "6", "the watch goes on after it");
    let line = json!({"type": "DELETED", "object": bad}).to_string();
    assert!(
        matches!(
            feed::read_line(&Source::Nodes, &Keep::default(), line.as_bytes()),
            Ok(Line::Input(Input::Gone(Gone::Node(_)), _))
        ),
        "its end is heard all the same"
    );
    let line = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).to_string();
    assert!(matches!(feed::read_line(&Source::Nodes, &Keep::default(), line.as_bytes()), Ok(Line::Expired)));
    let line =
        json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12", "creationTimestamp": null}}}).to_string();
    assert!(
        matches!(feed::read_line(&Source::Nodes, &Keep::default(), line.as_bytes()), Ok(Line::Input(Input::Heard(Source::Nodes), Some(version))) if version == "12")
    );
}

/// Go writes its zero, of the year 1, where a date is wanted and none is known.
#[test]
fn a_condition_without_a_date_counts_from_when_it_is_seen() {
    let dates = [
        (json!(null), i64::MAX),
        (json!("0001-01-01T00:00:00Z"), i64::MAX),
        (json!("1969-12-31T23:59:59Z"), i64::MAX),
        (json!("1970-01-01T00:00:01Z"), 1000),
    ];
    for (date, since) in dates {
        let json = json!({
            "metadata": {"name": "n"},
            "status": {
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": date, "lastHeartbeatTime": date}],
                "phase": "Failed", "lastUpdated": date,
            },
        });
        let json = json.to_string();
        let node = observe::node(json.as_bytes(), &Keep::default()).expect("it can be read");
        assert_eq!((node.conditions[0].since, node.reported_at[0]), (Wall(since), Wall(since)), "{date}");
        let machine = observe::machine(json.as_bytes(), Dialect::OpenShift).expect("it can be read");
        assert_eq!(machine.conditions[0].since, Wall(since), "{date}");
        assert_eq!(machine.updated_at, (since != i64::MAX).then_some(Wall(since)), "{date}");
    }
}

/// A watch goes on from there, and who asks for more than an address can hold gets no answer.
#[test]
fn a_version_that_is_none_is_not_gone_on_from() {
    for (length, is_kept) in [(20, true), (60_000, false)] {
        let line = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1".repeat(length)}}}).to_string();
        let read = feed::read_line(&Source::Nodes, &Keep::default(), line.as_bytes());
        assert_eq!(matches!(read, Ok(Line::Input(_, Some(_)))), is_kept, "{length}");
    }
}

/// What its checks own as a part of them is none of their remediations, and what others own is none at all.
#[test]
fn owners_are_read_with_what_they_are() {
    let owner = |api_version: &str, kind: &str, controller: Value| json!({"apiVersion": api_version, "kind": kind, "name": "c", "uid": "u", "controller": controller});
    let check = "remediation.medik8s.io/v1alpha1";
    for (owner, controls, is_check) in [
        (owner(check, "NodeHealthCheck", json!(false)), false, true),
        (owner(check, "NodeHealthCheck", Value::Null), false, true),
        (owner("remediation.medik8s.io/v2", "NodeHealthCheck", json!(true)), true, true),
        (owner("remediation.medik8s.io.evil/v1", "NodeHealthCheck", json!(false)), false, false),
        (owner("machine.openshift.io/v1beta1", "Machine", json!(true)), true, false),
    ] {
        let json = json!({"metadata": {"name": "n1", "namespace": "ns", "uid": "o", "ownerReferences": [owner.clone()]}});
        let object = observe::object(json.to_string().as_bytes(), &key().kind).expect("it can be read");
        assert_eq!((object.owners[0].controls, object.owners[0].is_check), (controls, is_check), "{owner}");
    }
}

/// They stand in the status of its check, which could not be stored any more.
#[test]
fn what_is_no_name_in_an_annotation_of_a_remediation_is_as_good_as_absent() {
    let odd = "\u{1}".repeat(200_000);
    for (written, node, template) in [("n2", "n2", Some("n2")), ("", "n1", None), ("N 2", "n1", None), (&*odd, "n1", None)] {
        let annotations = json!({"remediation.medik8s.io/node-name": written, "remediation.medik8s.io/template-name": written});
        let json = json!({"metadata": {"name": "n1", "namespace": "ns", "uid": "o", "annotations": annotations}});
        let object = observe::object(json.to_string().as_bytes(), &key().kind).expect("it can be read");
        assert_eq!((&*object.node, object.template.as_deref()), (node, template));
    }
}

#[test]
fn an_object_of_a_provider_without_a_uid_cannot_be_read() {
    for (metadata, uid) in
        [(json!({"name": "n1", "uid": "o"}), Some("o")), (json!({"name": "n1", "uid": ""}), None), (json!({"name": "n1"}), None)]
    {
        let object = observe::object(json!({"metadata": metadata}).to_string().as_bytes(), &key().kind);
        assert_eq!(object.ok().as_ref().map(|object| &*object.uid), uid);
    }
}

fn key() -> ObjectKey {
    ObjectKey {
        kind: Kind { api_version: "p.test/v1".into(), kind: "Reboot".into() },
        namespace: Some("ns".into()),
        name: "n1".into(),
    }
}

fn creation() -> Effect {
    Effect::Create(Creation {
        key: key(),
        plural: "reboots".into(),
        body: Body { spec: r#"{"a":1}"#.into(), labels: Box::default(), annotations: Box::default() },
        template: "t".into(),
        owner: Owner::Check {
            node: "n1".into(),
            check: "c".into(),
            check_uid: "u".into(),
            control_plane: true,
            machine: None,
            tells: Vec::new(),
        },
    })
}

#[test]
fn every_write_names_what_it_was_decided_on() {
    let request = encode::encode(&creation(), &Places::new("resus")).unwrap();
    let body: Value = serde_json::from_slice(request.body()).expect("JSON");
    assert_eq!(
        (request.method().as_str(), request.uri().to_string().as_str()),
        ("POST", "/apis/p.test/v1/namespaces/ns/reboots?fieldManager=resus&timeout=4s")
    );
    assert_eq!(
        (&body["metadata"]["name"], &body["metadata"]["ownerReferences"][0]["uid"], &body["spec"]),
        (&json!("n1"), &json!("u"), &json!({"a": 1}))
    );
    assert_eq!(body["metadata"]["labels"]["remediation.medik8s.io/isControlPlaneNode"], "");

    let request = encode::encode(
        &Effect::Delete { key: key(), plural: "reboots".into(), uid: "x".into(), tells: Vec::new() },
        &Places::new("resus"),
    )
    .unwrap();
    let body: Value = serde_json::from_slice(request.body()).expect("JSON");
    assert_eq!(
        (request.method().as_str(), request.uri().path(), &body["preconditions"]),
        ("DELETE", "/apis/p.test/v1/namespaces/ns/reboots/n1", &json!({"uid": "x"}))
    );

    let status =
        Effect::Status { check: "c".into(), version: Version("41".into()), status: Default::default(), written_at: Wall(0) };
    let request = encode::encode(&status, &Places::new("resus")).unwrap();
    let body: Value = serde_json::from_slice(request.body()).expect("JSON");
    assert_eq!(body[0], json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "41"}));
    assert_eq!(request.headers()["content-type"], "application/json-patch+json");

    let record = Record {
        holder: "me".into(),
        lease_for: Duration::from_secs(15),
        acquired_at: Wall(0),
        renewed_at: Wall(1_500),
        transitions: 2,
        version: Version("8".into()),
    };
    let request = encode::encode(&Effect::Lease(LeaseEffect::Write(record)), &Places::new("resus")).unwrap();
    let body: Value = serde_json::from_slice(request.body()).expect("JSON");
    assert_eq!(
        (&body["metadata"]["resourceVersion"], &body["spec"]["renewTime"]),
        (&json!("8"), &json!("1970-01-01T00:00:01.500000Z"))
    );
}

#[test]
fn no_name_breaks_out_of_its_place_in_a_path() {
    let key = ObjectKey { name: "a b/../?x=ü%".into(), ..key() };
    let request = encode::encode(&Effect::Read { key, plural: "reboots".into() }, &Places::new("resus")).unwrap();
    assert_eq!(request.uri().to_string(), "/apis/p.test/v1/namespaces/ns/reboots/a%20b%2F..%2F%3Fx%3D%C3%BC%25");
}

#[test]
fn a_time_out_is_no_refusal() {
    let respond = |code: u16, reason: &str| {
        let body = json!({"kind": "Status", "code": code, "reason": reason, "message": "m"}).to_string().into_bytes();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).expect("a code");
        response
    };
    let answer = |code, reason| match answer::decode(&creation(), &Keep::default(), &respond(code, reason)) {
        Input::Answered(_, answer) => answer,
        other => panic!("{other:?}"),
    };
    assert!(matches!(answer(201, ""), Answer::Done(None)));
    assert!(matches!(answer(409, "AlreadyExists"), Answer::Exists));
    assert!(matches!(answer(409, "Conflict"), Answer::Conflict));
    assert!(matches!(answer(404, "NotFound"), Answer::Missing));
    for code in [400, 401, 403, 422, 429] {
        assert!(matches!(answer(code, ""), Answer::Refused { .. }), "{code} was definitely not stored");
    }
    for code in [500, 502, 503, 504] {
        assert!(matches!(answer(code, ""), Answer::Unsure { .. }), "{code} may have been stored");
    }
    let mut busy = respond(429, "TooManyRequests");
    busy.headers_mut().insert("retry-after", "7".parse().expect("a number"));
    let Input::Answered(_, Answer::Refused { retry_after, .. }) = answer::decode(&creation(), &Keep::default(), &busy) else {
        panic!()
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));

    // A success that cannot be read proves nothing either.
    let garbage = Response::new(b"<html>".to_vec());
    assert!(matches!(
        answer::decode(&Effect::Look { cluster: None, node: "n".into() }, &Keep::default(), &garbage),
        Input::Answered(_, Answer::Unsure { .. })
    ));
    assert!(matches!(
        answer::decode(&Effect::Lease(LeaseEffect::Read), &Keep::default(), &garbage),
        Input::LeaseAnswered(LeaseAnswer::Failed { .. })
    ));
}

#[test]
fn a_pause_is_whatever_stands_in_the_annotation_as_people_may_see_it() {
    let pause = |metadata: Value| {
        let namespace = observe::own_namespace(json!({"metadata": metadata}).to_string().as_bytes()).expect("it can be read");
        namespace.pause.map(|reason| reason.to_string())
    };
    let long = "x".repeat(1000);
    for (written, read) in [("ask Ana", "ask Ana"), ("", ""), ("false", "false"), ("two\nlines\u{1b}[31m", "two lines [31m")] {
        let metadata = json!({"name": "poison-pill", "annotations": {"resus.dev/pause": written, "other": long}});
        assert_eq!(pause(metadata).as_deref(), Some(read));
    }
    let cut = pause(json!({"name": "poison-pill", "annotations": {"resus.dev/pause": long}})).expect("it is paused");
    assert_eq!(cut.len(), 259);
    for annotations in [json!({"resus.dev/paused": "no"}), json!({}), Value::Null] {
        assert_eq!(pause(json!({"name": "poison-pill", "annotations": annotations})), None);
    }
    let request =
        feed::list(&Source::OwnNamespace, None, &Places::new("resus"), None, resus_k8s::limits::PAGE).expect("it can be sent");
    assert_eq!(request.uri().to_string(), "/api/v1/namespaces?limit=100&fieldSelector=metadata.name%3Dresus");
}

/// Only a namespace that is missing is to be made; a Lease that went while it was taken over is not.
#[test]
fn a_lease_that_is_gone_is_no_namespace_that_is_missing() {
    let hold = Hold {
        name: "node-n1".into(),
        node: "n1".into(),
        node_uid: "u".into(),
        holder: "me".into(),
        lasts_for: Duration::from_secs(60),
        at: Wall(0),
        before: None,
    };
    let answer = |kind: &str| {
        let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": {"kind": kind}});
        let mut response = Response::new(status.to_string().into_bytes());
        *response.status_mut() = StatusCode::NOT_FOUND;
        match answer::decode(&Effect::HoldNode(hold.clone()), &Keep::default(), &response) {
            Input::Answered(_, answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer("namespaces"), Answer::Missing);
    assert_eq!(answer("leases"), Answer::Conflict);
}

#[test]
fn discovery_skips_subresources() {
    let body = json!({"resources": [
        {"name": "reboots", "kind": "Reboot", "namespaced": true, "verbs": []},
        {"name": "reboots/status", "kind": "Reboot", "namespaced": true, "verbs": []},
    ]});
    let effect = Effect::Discover { api_version: "p.test/v1".into() };
    let Input::Answered(_, Answer::Done(Some(Fact::Kinds { served, .. }))) =
        answer::decode(&effect, &Keep::default(), &Response::new(body.to_string().into_bytes()))
    else {
        panic!("it can be read")
    };
    let plurals: Vec<(Name, Name)> = served.into_iter().map(|(kind, served)| (kind, served.plural)).collect();
    assert_eq!(plurals, [("Reboot".into(), "reboots".into())]);
}
