//! Conditions on Machines: where they are, who wrote them, and what becomes of what we write.

use resus_core::effect::{Change, Edit, Effect, Signing};
use resus_core::facts::Status;
use resus_core::input::{Answer, Fact};
use resus_core::mhc::facts::{Dialect, Machine, Posted, Sign, Slot, Style};
use resus_core::time::Wall;
use resus_k8s::names;
use resus_k8s::observe;
use serde_json::{Value, json};

use crate::draw::Draw;
use crate::stage::{Stage, target};

const SINCE: &str = "2027-01-15T08:00:00Z";
const DIALECTS: [Dialect; 4] = [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift];

fn posted(status: Status, reason: &str, style: Style) -> Posted {
    Posted {
        reason: reason.into(),
        severity: (style == Style::Legacy && status != Status::True).then(|| "Warning".into()),
        message: if status == Status::True { "" } else { "it is broken" }.into(),
        since: Wall(1_800_000_000_000),
        observed_generation: (style == Style::New).then_some(1),
        ours: true,
        status,
    }
}

/// As a plan makes it.
fn signing(machine: &Machine, signs: &[(Sign, Option<(Status, &str)>)]) -> Effect {
    let edits = machine.boards.iter().flat_map(|board| {
        signs.iter().filter_map(|(sign, post)| {
            let post = post.clone().map(|(status, reason)| posted(status, reason, board.style));
            let change = match (board.slot(*sign), post) {
                (Slot::At(at, _), Some(posted)) => Change::Replace(*at, posted),
                (Slot::At(at, _), None) => Change::Remove(*at),
                (Slot::Before(at), Some(posted)) => Change::Insert(*at, posted),
                (Slot::Before(_), None) => return None,
            };
            Some(Edit { style: board.style, sign: *sign, change })
        })
    });
    let missing = machine.boards.iter().map(|board| (board.style, board.missing));
    Effect::Sign(Signing { machine: target(machine), edits: edits.collect(), missing: missing.collect(), tells: Vec::new() })
}

fn done(answer: Answer) -> Machine {
    match answer {
        Answer::Done(Some(Fact::Machine(machine))) => machine,
        other => panic!("{other:?}"),
    }
}

fn list(machine: &Value, dialect: Dialect, style: Style) -> &Value {
    names::conditions(dialect, style).iter().fold(&machine["status"], |at, element| &at[element])
}

fn kinds(list: &Value) -> Vec<&str> {
    list.as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(|own| own["type"].as_str()).collect()
}

fn with_conditions(dialect: Dialect, style: Style, conditions: Value) -> Value {
    let mut status = json!({});
    *names::conditions(dialect, style).iter().fold(&mut status, |at, element| &mut at[element]) = conditions;
    status
}

fn some(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({"type": kind, "status": "True", "reason": "Fine", "lastTransitionTime": SINCE})).collect()
}

const BROKEN: [(Sign, Option<(Status, &str)>); 2] = [
    (Sign::OwnerRemediated, Some((Status::False, "WaitingForRemediation"))),
    (Sign::HealthCheckSucceeded, Some((Status::False, "UnhealthyNode"))),
];

#[test]
fn a_machine_without_a_status_gets_every_list_that_its_version_has() {
    for mut stage in
        DIALECTS.map(Stage::theirs).into_iter().chain([Stage::ours(Dialect::V1beta1), Stage::ours(Dialect::V1alpha3)])
    {
        let dialect = stage.dialect;
        let machine = stage.machine("m", &Value::Null);
        let after = done(stage.send(&signing(&machine, &BROKEN)));
        let stored = stage.show("m");
        for style in dialect.styles() {
            let mut expected = json!([
                {"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode", "message": "it is broken", "lastTransitionTime": SINCE},
                {"type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation", "message": "it is broken", "lastTransitionTime": SINCE},
            ]);
            for condition in expected.as_array_mut().expect("a list") {
                match style {
                    Style::New => condition["observedGeneration"] = json!(1),
                    Style::Legacy => condition["severity"] = json!("Warning"),
                }
            }
            assert_eq!(list(&stored, dialect, *style), &expected, "{dialect:?} {style:?}");
            let board = after.board(*style).expect("one for each style");
            assert_eq!(board.missing, 0);
            for (sign, post) in BROKEN {
                let expected = post.map(|(status, reason)| posted(status, reason, *style));
                assert_eq!(board.get(sign), expected.as_ref(), "what was written is read again: {dialect:?} {style:?}");
            }
        }
        assert_eq!(dialect.styles().len(), after.boards.len());
    }
}

#[test]
fn what_is_missing_is_counted_from_the_end_of_the_path() {
    let read = |status: Value, dialect| {
        let machine = json!({"metadata": {"name": "m", "namespace": "n"}, "status": status});
        let machine = observe::machine(machine.to_string().as_bytes(), dialect).expect("it can be read");
        machine.boards.iter().map(|board| board.missing).collect::<Vec<_>>()
    };
    for (status, dialect, missing) in [
        (json!(null), Dialect::V1beta2, vec![2, 4]),
        (json!({}), Dialect::V1beta2, vec![1, 3]),
        (json!({"conditions": [], "deprecated": {}}), Dialect::V1beta2, vec![0, 2]),
        (json!({"conditions": null, "deprecated": {"v1beta1": {"conditions": []}}}), Dialect::V1beta2, vec![1, 0]),
        (json!({"deprecated": {"v1beta1": {}}}), Dialect::V1beta2, vec![1, 1]),
        (json!(null), Dialect::V1beta1, vec![3, 2]),
        (json!({"conditions": [], "v1beta2": null}), Dialect::V1beta1, vec![2, 0]),
        (json!({"v1beta2": {"conditions": []}}), Dialect::V1beta1, vec![0, 1]),
        (json!({}), Dialect::V1alpha3, vec![1]),
        (json!(null), Dialect::OpenShift, vec![2]),
    ] {
        assert_eq!(read(status.clone(), dialect), missing, "{status} {dialect:?}");
    }
}

#[test]
fn signs_go_where_the_order_wants_them() {
    let (new, legacy) = (
        ["Available", "Ready", "BootstrapConfigReady", "InfrastructureReady", "UpToDate", "Deleting", "Paused"],
        ["Ready", "BootstrapReady", "InfrastructureReady", "NodeHealthy"],
    );
    for dialect in [Dialect::V1beta1, Dialect::V1beta2] {
        let mut stage = Stage::theirs(dialect);
        let mut status = with_conditions(dialect, Style::New, some(&new));
        *names::conditions(dialect, Style::Legacy).iter().fold(&mut status, |at, element| &mut at[element]) = some(&legacy);
        let machine = stage.machine("m", &status);
        let all = Sign::ALL.map(|sign| (sign, Some((Status::False, "R"))));
        let machine = done(stage.send(&signing(&machine, &all)));
        let stored = stage.show("m");
        assert_eq!(
            kinds(list(&stored, dialect, Style::New)),
            [
                "Available",
                "Ready",
                "BootstrapConfigReady",
                "ExternallyRemediated",
                "HealthCheckSucceeded",
                "InfrastructureReady",
                "OwnerRemediated",
                "UpToDate",
                "Deleting",
                "Paused"
            ]
        );
        assert_eq!(
            kinds(list(&stored, dialect, Style::Legacy)),
            [
                "Ready",
                "BootstrapReady",
                "ExternallyRemediated",
                "HealthCheckSucceeded",
                "InfrastructureReady",
                "NodeHealthy",
                "OwnerRemediated"
            ]
        );

        // One is replaced, one taken away, one left alone, and what others wrote stays as it was.
        let turn =
            [(Sign::HealthCheckSucceeded, Some((Status::True, "HealthCheckSucceeded"))), (Sign::ExternallyRemediated, None)];
        done(stage.send(&signing(&machine, &turn)));
        let stored = stage.show("m");
        for (style, others) in [(Style::New, &new[..]), (Style::Legacy, &legacy[..])] {
            let list = list(&stored, dialect, style);
            assert!(!kinds(list).contains(&"ExternallyRemediated") && kinds(list).contains(&"OwnerRemediated"), "{list}");
            let of =
                |kind: &str| list.as_array().and_then(|all| all.iter().find(|own| own["type"] == kind)).expect("it is there");
            assert_eq!(of("HealthCheckSucceeded")["status"], "True");
            assert_eq!(of("HealthCheckSucceeded").get("severity"), None);
            for other in others {
                assert_eq!(of(other)["reason"], "Fine");
            }
        }
    }
}

/// In the legacy style nothing is empty: a text that would be is left out, or a schema refuses it.
#[test]
fn a_healthy_machine_has_no_reason_in_the_legacy_style() {
    let mut stage = Stage::theirs(Dialect::V1alpha3);
    let machine = stage.machine("m", &json!({}));
    done(stage.send(&signing(&machine, &[(Sign::HealthCheckSucceeded, Some((Status::True, "")))])));
    let stored = stage.show("m");
    assert_eq!(
        stored["status"]["conditions"],
        json!([{"type": "HealthCheckSucceeded", "status": "True", "lastTransitionTime": SINCE}])
    );
}

#[test]
fn a_machine_that_has_changed_refuses_our_edits() {
    let mut stage = Stage::theirs(Dialect::V1beta2);
    let machine = stage.machine("m", &json!({"conditions": some(&["Available", "Ready"])}));
    stage.write("m", &json!({"conditions": some(&["Available", "Paused", "Ready"])}), "somebody");
    assert!(matches!(stage.send(&signing(&machine, &BROKEN)), Answer::Conflict));
}

#[test]
fn any_edits_of_any_list_leave_it_in_order() {
    const ROUNDS: usize = 300;
    let kinds_of = ["Available", "Ready", "Alpha", "Gamma", "InfrastructureReady", "NodeHealthy", "Zeta", "Deleting", "Paused"];
    let mut draw = Draw(20_261_117);
    let mut stage = Stage::theirs(Dialect::V1beta2);
    for round in 0..ROUNDS {
        let name = format!("m{round}");
        let own: Vec<&str> = kinds_of.into_iter().filter(|_| draw.one_in(2)).collect();
        let status = if draw.one_in(8) { Value::Null } else { json!({"conditions": some(&own)}) };
        let mut expected: Vec<&str> = if status.is_null() { Vec::new() } else { own };
        let mut machine = stage.machine(&name, &status);
        for _ in 0..3 {
            let mut signs = Vec::new();
            for sign in Sign::ALL {
                let has = expected.contains(&sign.name());
                match draw.below(3) {
                    0 => signs.push((sign, Some((Status::False, "R")))),
                    1 if has => signs.push((sign, None)),
                    _ => continue,
                }
                expected.retain(|kind| *kind != sign.name());
                if signs.last().is_some_and(|(_, post)| post.is_some()) {
                    expected.push(sign.name());
                }
            }
            let rank = |kind: &&str| match *kind {
                "Available" => (0, String::new()),
                "Ready" => (1, String::new()),
                "Deleting" => (3, String::new()),
                "Paused" => (4, String::new()),
                other => (2, other.to_owned()),
            };
            expected.sort_by_key(rank);
            machine = done(stage.send(&signing(&machine, &signs)));
            let stored = stage.show(&name);
            assert_eq!(kinds(list(&stored, Dialect::V1beta2, Style::New)), expected, "{signs:?}");
        }
    }
}

fn ours(machine: &Machine) -> Vec<(Style, Sign)> {
    let of = |style: Style| Sign::ALL.into_iter().map(move |sign| (style, sign));
    let all = machine.boards.iter().flat_map(|board| of(board.style));
    all.filter(|(style, sign)| machine.board(*style).and_then(|board| board.get(*sign)).is_some_and(|post| post.ours)).collect()
}

#[test]
fn what_somebody_else_says_is_no_longer_ours() {
    for dialect in [Dialect::V1beta1, Dialect::V1beta2] {
        let mut stage = Stage::theirs(dialect);
        let machine = stage.machine("m", &json!({}));
        let machine = done(stage.send(&signing(&machine, &BROKEN)));
        assert_eq!(ours(&machine).len(), 4, "{dialect:?}");

        // The owner says how far it is, and adds a condition of its own: that makes it the last writer of the other list.
        let mut status = stage.show("m")["status"].clone();
        for style in dialect.styles() {
            let at = names::conditions(dialect, *style).iter().fold(&mut status, |at, element| &mut at[element]);
            at[1]["reason"] = json!("RemediationDeferred");
            at.as_array_mut().expect("a list").extend(some(&["Zeta"]).as_array().expect("a list").clone());
        }
        stage.write("m", &status, "machineset");
        let both = |sign| [(Style::New, sign), (Style::Legacy, sign)];
        assert_eq!(ours(&stage.look("m")), both(Sign::HealthCheckSucceeded), "{dialect:?}");
    }
}

#[test]
fn a_list_that_changes_hands_as_a_whole_is_its_last_writers() {
    for mut stage in [Stage::theirs(Dialect::V1alpha3), Stage::old()] {
        let dialect = stage.dialect;
        let machine = stage.machine("m", &json!({"conditions": some(&["Ready"])}));
        let machine = done(stage.send(&signing(&machine, &BROKEN)));
        let legacy = |sign| (Style::Legacy, sign);
        assert_eq!(ours(&machine), [legacy(Sign::HealthCheckSucceeded), legacy(Sign::OwnerRemediated)], "{dialect:?}");
        if dialect == Dialect::V1beta1 {
            assert_eq!(machine.board(Style::New).map(|board| board.missing), Some(2), "the server drops the new style");
        }
        let mut status = stage.show("m")["status"].clone();
        status["conditions"][0]["reason"] = json!("Changed");
        stage.write("m", &status, "capi");
        assert_eq!(ours(&stage.look("m")), [], "{dialect:?}");
    }
    // Where the list is split up by type, each keeps its own.
    let mut stage = Stage::ours(Dialect::V1alpha3);
    let machine = stage.machine("m", &json!({"conditions": some(&["Ready"])}));
    done(stage.send(&signing(&machine, &BROKEN)));
    let mut status = stage.show("m")["status"].clone();
    status["conditions"][0]["reason"] = json!("Changed");
    stage.write("m", &status, "capi");
    assert_eq!(ours(&stage.look("m")).len(), 2);
}

/// An entry keeps the words of the version that it was written in.
#[test]
fn what_we_wrote_in_another_version_is_ours() {
    let signed = |manager: &str, api_version: &str, status: Value| {
        let entry =
            json!({"manager": manager, "operation": "Update", "apiVersion": api_version, "fieldsV1": {"f:status": status}});
        let condition = json!({"type": "HealthCheckSucceeded", "status": "False", "lastTransitionTime": SINCE});
        let machine = json!({
            "metadata": {"name": "m", "namespace": "n", "managedFields": [entry]},
            "status": {"conditions": [condition]},
        });
        let machine = observe::machine(machine.to_string().as_bytes(), Dialect::V1beta2).expect("it can be read");
        ours(&machine) == [(Style::New, Sign::HealthCheckSucceeded)]
    };
    let of_sign = json!({r#"k:{"type":"HealthCheckSucceeded"}"#: {".": {}, "f:type": {}, "f:status": {}}});
    let of_other = json!({r#"k:{"type":"OwnerRemediated"}"#: {".": {}, "f:type": {}, "f:status": {}}});
    for (manager, api_version, status, expected) in [
        ("resus", "cluster.x-k8s.io/v1beta2", json!({"f:conditions": of_sign}), true),
        ("resus", "cluster.x-k8s.io/v1beta1", json!({"f:v1beta2": {"f:conditions": of_sign}}), true),
        ("resus", "cluster.x-k8s.io/v1beta1", json!({"f:conditions": of_sign}), false),
        ("resus", "cluster.x-k8s.io/v1beta2", json!({"f:conditions": of_other}), false),
        ("resus", "cluster.x-k8s.io/v9", json!({"f:conditions": of_sign}), false),
        ("manager", "cluster.x-k8s.io/v1beta2", json!({"f:conditions": of_sign}), false),
        ("resus", "cluster.x-k8s.io/v1beta2", json!("f:conditions"), false),
        ("resus", "cluster.x-k8s.io/v1beta2", json!({"f:conditions": []}), false),
    ] {
        assert_eq!(signed(manager, api_version, status.clone()), expected, "{manager} {api_version} {status}");
    }
}
