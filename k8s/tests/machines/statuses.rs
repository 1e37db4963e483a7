//! Machines as they are read, and the status of their checks as it is written and read again.

use resus_core::effect::{Effect, LabelGoes, OwnerGoes, Target, Tying};
use resus_core::facts::{ProviderId, Status};
use resus_core::input::{Answer, Fact};
use resus_core::mhc::facts::{Dialect, Machine, MachineCheck, MachineCheckStatus, Marks, Posted, Style};
use resus_core::time::Wall;
use resus_k8s::observe::{self, Keep};
use serde_json::{Value, json};

use crate::specs::with;
use crate::stage::Stage;

fn machine(dialect: Dialect, metadata: &Value, status: &Value) -> Machine {
    let mut object = json!({"metadata": {"name": "m", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3}, "status": status});
    for (key, value) in metadata.as_object().expect("metadata is an object") {
        object["metadata"][key] = value.clone();
    }
    observe::machine(object.to_string().as_bytes(), dialect).expect("it can be read")
}

#[test]
fn annotations_and_owners_are_marks() {
    let marks = |keys: &[&str]| {
        let annotations: serde_json::Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), json!(""))).collect();
        machine(Dialect::V1beta1, &json!({"annotations": annotations}), &json!(null)).marks
    };
    let none = Marks::default();
    assert_eq!(marks(&["other"]), none);
    assert_eq!(marks(&["cluster.x-k8s.io/paused"]), Marks { paused: true, ..none });
    assert_eq!(marks(&["cluster.x-k8s.io/skip-remediation"]), Marks { skipped: true, ..none });
    assert_eq!(marks(&["cluster.x-k8s.io/remediate-machine"]), Marks { remediate: true, ..none });
    assert_eq!(marks(&["host.metal3.io/external-remediation"]), Marks { power_cycle: true, ..none });
    for key in ["powered-off-for-remediation", "power-on-will-timeout-at", "node-labels-backup", "node-annotations-backup"] {
        assert_eq!(marks(&[&format!("remediation.metal3.io/{key}")]), Marks { power_cycling: true, ..none }, "{key}");
    }

    let owned = |controller: Value| {
        let owners = json!([{"apiVersion": "a/v1", "kind": "B", "name": "c", "uid": "d"}, {"apiVersion": "a/v1", "kind": "B", "name": "c", "uid": "d", "controller": controller}]);
        machine(Dialect::OpenShift, &json!({"ownerReferences": owners}), &json!(null)).has_controller
    };
    assert_eq!((owned(json!(true)), owned(json!(false)), owned(json!(null))), (true, false, false));
}

#[test]
fn conditions_are_those_of_the_newest_style() {
    let listed =
        |kind: &str| json!([{"type": kind, "status": "False", "reason": "Broken", "lastTransitionTime": "2027-01-15T08:00:00Z"}]);
    for (dialect, status, expected) in [
        (
            Dialect::V1beta2,
            json!({"conditions": listed("New"), "deprecated": {"v1beta1": {"conditions": listed("Old")}}}),
            Some("New"),
        ),
        (Dialect::V1beta2, json!({"deprecated": {"v1beta1": {"conditions": listed("Old")}}}), None),
        (Dialect::V1beta1, json!({"conditions": listed("Old"), "v1beta2": {"conditions": listed("New")}}), Some("New")),
        (Dialect::V1beta1, json!({"conditions": listed("Old"), "v1beta2": {"conditions": []}}), None),
        (Dialect::V1beta1, json!({"conditions": listed("Old"), "v1beta2": {}}), Some("Old")),
        (Dialect::V1alpha3, json!({"conditions": listed("Old"), "v1beta2": {"conditions": listed("New")}}), Some("Old")),
        (Dialect::OpenShift, json!({"conditions": listed("Old")}), Some("Old")),
    ] {
        let read = machine(dialect, &json!({}), &status);
        assert_eq!(read.conditions.first().map(|condition| &*condition.kind), expected, "{dialect:?} {status}");
        for condition in &read.conditions {
            assert_eq!(
                (&condition.status, &*condition.reason, condition.since),
                (&Status::False, "Broken", Wall(1_800_000_000_000))
            );
        }
    }
}

#[test]
fn only_openshift_has_phases_that_count() {
    let status = json!({"phase": "Failed", "lastUpdated": "2027-01-15T08:00:00Z", "nodeRef": {"name": "node-1"}});
    let read = machine(Dialect::OpenShift, &json!({}), &status);
    assert_eq!((read.failed, read.updated_at), (true, Some(Wall(1_800_000_000_000))));
    assert_eq!((read.node.as_deref(), read.generation, &*read.version.0), (Some("node-1"), 3, "7"));
    let read = machine(Dialect::V1alpha3, &json!({}), &status);
    assert_eq!((read.failed, read.updated_at), (false, None));
    for no_node in [json!({}), json!({"nodeRef": null}), json!({"nodeRef": {}}), json!({"nodeRef": {"name": ""}})] {
        assert_eq!(machine(Dialect::V1beta1, &json!({}), &no_node).node, None, "{no_node}");
    }
}

#[test]
fn machines_and_nodes_say_which_host_they_are() {
    for (spec, id) in [
        (json!({"providerID": "cloud:///1"}), ProviderId::new("cloud:///1")),
        (json!({"providerID": ""}), None),
        (json!({"providerID": null}), None),
        (json!({}), None),
    ] {
        let object = json!({"metadata": {"name": "m", "namespace": "n"}, "spec": spec}).to_string();
        for dialect in [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift] {
            assert_eq!(observe::machine(object.as_bytes(), dialect).expect("it can be read").provider_id, id, "{spec}");
        }
        assert_eq!(observe::node(object.as_bytes(), &Keep::default()).expect("it can be read").provider_id, id, "{spec}");
    }
}

/// A machine whose node cannot be read must not pass for one that never got any.
#[test]
fn a_garbled_status_is_not_an_empty_one() {
    for status in [
        json!({"nodeRef": "node-1"}),
        json!({"nodeRef": {"name": 5}}),
        json!({"conditions": "Ready"}),
        json!({"conditions": [{"type": "Ready"}]}),
        json!({"conditions": [5]}),
        json!("Running"),
    ] {
        let object = json!({"metadata": {"name": "m", "namespace": "n"}, "status": status});
        assert!(observe::machine(object.to_string().as_bytes(), Dialect::V1beta1).is_err(), "{status}");
    }
}

fn status(dialect: Dialect) -> MachineCheckStatus {
    let post = |style: Style, status: Status, reason: &str| Posted {
        reason: reason.into(),
        severity: (style == Style::Legacy && status == Status::False).then(|| "Warning".into()),
        message: if status == Status::False { "too many" } else { "" }.into(),
        since: Wall(1_800_000_000_000),
        observed_generation: (style == Style::New).then_some(1),
        ours: true,
        status,
    };
    let has = |style| dialect.styles().contains(&style);
    let (counts, is_openshift) = (Some(3), dialect == Dialect::OpenShift);
    let new = vec![
        ("Paused".into(), post(Style::New, Status::False, "NotPaused")),
        ("RemediationAllowed".into(), post(Style::New, Status::True, "RemediationAllowed")),
    ];
    let legacy = vec![
        (
            "ExternalRemediationTemplateAvailable".into(),
            post(Style::Legacy, Status::False, "ExternalRemediationTemplateNotFound"),
        ),
        ("RemediationAllowed".into(), post(Style::Legacy, Status::True, "")),
    ];
    MachineCheckStatus {
        expected: counts,
        healthy: Some(0),
        remediations_allowed: Some(1),
        observed_generation: Some(1).filter(|_| !is_openshift),
        targets: if is_openshift { Vec::new() } else { vec!["a".into(), "b".into()] },
        new: if has(Style::New) { new } else { Vec::new() },
        legacy,
    }
}

#[test]
fn a_status_is_read_as_it_was_written() {
    let stages = [
        Stage::theirs(Dialect::V1alpha3),
        Stage::theirs(Dialect::V1beta1),
        Stage::theirs(Dialect::V1beta2),
        Stage::theirs(Dialect::OpenShift),
        Stage::ours(Dialect::V1alpha3),
        Stage::ours(Dialect::V1beta1),
    ];
    for mut stage in stages {
        let dialect = stage.dialect;
        let MachineCheck { place, uid, version, .. } = stage.check("c", &with(&json!({})));
        let check = Target { place, dialect, uid, version };
        for expected in [status(dialect), MachineCheckStatus { expected: Some(0), ..MachineCheckStatus::default() }] {
            let current = observe_version(&mut stage);
            let effect =
                Effect::MachineCheckStatus { check: Target { version: current, ..check.clone() }, status: expected.clone() };
            let Answer::Done(Some(Fact::MachineCheck(read))) = stage.send(&effect) else { panic!("{dialect:?}") };
            assert_eq!(read.status, expected, "{dialect:?}");
        }
        let stale = Effect::MachineCheckStatus { check, status: status(dialect) };
        assert!(matches!(stage.send(&stale), Answer::Conflict), "it was decided on another version");
    }
}

/// Labels and owners of others stay, and a wrong one of ours is corrected.
#[test]
fn a_check_is_tied_to_its_cluster_and_keeps_what_else_it_has() {
    let label = "cluster.x-k8s.io/cluster-name";
    let of = |name: &str, kind: &str, uid: &str| json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind, "name": name, "uid": uid});
    for (labels, owners, kept) in [
        (json!(null), json!(null), vec![]),
        (json!({"a": "b"}), json!([of("blue", "ClusterClass", "u1")]), vec!["u1"]),
        (json!({"a": "b", label: "red"}), json!([of("red", "Cluster", "u1"), of("blue", "Cluster", "old")]), vec!["u1"]),
    ] {
        let mut stage = Stage::ours(Dialect::V1beta1);
        let spec = with(&json!({"clusterName": "blue"}));
        let metadata = json!({"name": "c", "labels": labels, "ownerReferences": owners});
        let api_version = stage.dialect.api_version();
        let object = json!({"apiVersion": api_version, "kind": "MachineHealthCheck", "metadata": metadata, "spec": spec});
        assert_eq!(stage.create(&object).0, 201, "{object}");
        let path = format!("/apis/{api_version}/namespaces/default/machinehealthchecks/c");
        let read = |stage: &mut Stage| {
            let object = stage.ask(&http::Method::GET, &path, &Value::Null);
            (observe::machine_check(object.to_string().as_bytes(), Dialect::V1beta1).expect("it can be read"), object)
        };
        let MachineCheck { ties, place, dialect, uid, version, .. } = read(&mut stage).0;
        let tying = Tying {
            check: Target { place, dialect, uid, version },
            cluster: "blue".into(),
            cluster_uid: "u9".into(),
            dialect: Dialect::V1beta2,
            label: Some(if ties.has_labels { LabelGoes::Beside } else { LabelGoes::First }),
            owner: Some(match (&ties.owner, ties.has_owners) {
                (Some((at, _)), _) => OwnerGoes::At(*at),
                (None, true) => OwnerGoes::Last,
                (None, false) => OwnerGoes::First,
            }),
        };
        let effect = Effect::Tie(tying);
        let Answer::Done(Some(Fact::MachineCheck(tied))) = stage.send(&effect) else { panic!("{object}") };
        let at = u32::try_from(kept.len()).expect("a few");
        assert_eq!((tied.ties.label.as_deref(), tied.ties.owner), (Some("blue"), Some((at, "u9".into()))), "{object}");
        let (_, after) = read(&mut stage);
        assert_eq!(after["metadata"]["labels"]["a"], labels["a"], "{after}");
        let owners = after["metadata"]["ownerReferences"].as_array().expect("it has owners");
        let uids: Vec<&str> = owners.iter().filter_map(|owner| owner["uid"].as_str()).collect();
        assert_eq!(uids, [&kept[..], &["u9"]].concat(), "{after}");
        let ours = &owners[kept.len()];
        assert_eq!((&ours["apiVersion"], &ours["controller"]), (&json!("cluster.x-k8s.io/v1beta2"), &Value::Null), "{ours}");
        assert!(matches!(stage.send(&effect), Answer::Conflict), "it was decided on another version");
    }
}

fn observe_version(stage: &mut Stage) -> resus_core::facts::Version {
    let path = format!("/apis/{}/namespaces/default/machinehealthchecks/c", stage.dialect.api_version());
    let object = stage.ask(&http::Method::GET, &path, &Value::Null);
    observe::machine_check(object.to_string().as_bytes(), stage.dialect).expect("it can be read").version
}

#[test]
fn a_mangled_status_is_none() {
    for status in [json!("x"), json!({"targets": 5}), json!({"expectedMachines": -1}), json!({"conditions": [{"type": 5}]})] {
        let object = json!({"metadata": {"name": "c", "namespace": "n"}, "status": status});
        let read = observe::machine_check(object.to_string().as_bytes(), Dialect::V1beta1).expect("its metadata is good");
        assert_eq!(read.status, MachineCheckStatus::default(), "{status}");
    }
}
