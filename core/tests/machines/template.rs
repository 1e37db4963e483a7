//! An external controller repairs, by objects made from a template.

use resus_core::decision::Because;
use resus_core::effect::Effect;
use resus_core::facts::{Amount, Invalid, Kind, Object, ObjectKey, OwnerRef, Source, Status};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::mhc::facts::{Budget, CONTROL_PLANE_MACHINE_LABEL, Dialect, Posted, ROLE_LABEL, Repair, Sign, Slot, Style};

use crate::facts::{by_template, check, foreign_node_check, object, posted, remediation_kind, template_kind};
use crate::model::{CHECK, Fleet, plan};

fn templated(machines: usize, at_most: Amount) -> Fleet {
    let mut fleet = Fleet::with(Dialect::V1beta2, machines, by_template(), at_most);
    fleet.add_template();
    fleet
}

#[test]
fn a_remediation_is_made_and_removed() {
    let mut fleet = templated(3, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m1"]);
    assert_eq!(fleet.signs("m1", Sign::HealthCheckSucceeded), ["False UnhealthyNode", "False UnhealthyNode"]);
    assert_eq!(fleet.signs("m1", Sign::ExternallyRemediated), ["False WaitingForRemediation"], "in the new style alone");
    assert_eq!(fleet.sign("m1", Sign::OwnerRemediated), None, "its owner has nothing to do with it");
    assert_eq!(fleet.events_of("RemediationCreated"), ["Machine m1", "MachineHealthCheck check"]);
    fleet.recovers("n1");
    fleet.wait(2);
    assert_eq!(fleet.remediations(), [""; 0]);
    assert_eq!(fleet.sign("m1", Sign::ExternallyRemediated), None);
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded).as_deref(), Some("True HealthCheckSucceeded"));
    assert_eq!(fleet.events_of("RemediationRemoved"), ["Machine m1", "MachineHealthCheck check"]);
}

#[test]
fn a_hundred_repairs_come_before_what_is_written_about_them_in_one_patch_each() {
    let mut fleet = templated(300, Amount::Percent(100));
    let before = fleet.written.len();
    (0..100).for_each(|n| fleet.breaks(&format!("n{n}")));
    fleet.wait(310);
    assert_eq!(fleet.remediations().len(), 100);
    let written = &fleet.written[before..];
    let creation = written.iter().rposition(|key| key.starts_with("Create")).expect("they were made");
    let signing = written.iter().position(|key| key.starts_with("Sign")).expect("they were marked");
    assert!(creation < signing, "the last is made with number {creation}, the first is marked with number {signing}");
    assert_eq!(written.iter().filter(|key| key.starts_with("Sign")).count(), 100);
    assert_eq!(fleet.signs("m99", Sign::HealthCheckSucceeded), ["False UnhealthyNode", "False UnhealthyNode"]);
    assert_eq!(fleet.signs("m99", Sign::ExternallyRemediated), ["False WaitingForRemediation"]);
}

/// The reference ends its loop at the first machine that has one already.
#[test]
fn a_remediation_that_exists_does_not_starve_the_others() {
    let mut fleet = templated(6, Amount::Percent(100));
    for (n, expected) in [(0, vec!["m0"]), (1, vec!["m0", "m1"]), (2, vec!["m0", "m1", "m2"])] {
        fleet.breaks(&format!("n{n}"));
        fleet.wait(302);
        assert_eq!(fleet.remediations(), expected);
    }
    let healthy = |machine: &str| fleet.sign(machine, Sign::HealthCheckSucceeded);
    assert_eq!(healthy("m4").as_deref(), Some("True HealthCheckSucceeded"), "also of one that never had a remediation");
}

#[test]
fn recovered_machines_are_cleared_in_a_storm_and_in_a_pause() {
    for paused in [false, true] {
        let mut fleet = templated(4, Amount::Count(2));
        fleet.breaks("n0");
        fleet.breaks("n1");
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m0", "m1"]);
        fleet.change_check(CHECK, |check| check.paused = paused);
        fleet.breaks("n2");
        fleet.breaks("n3");
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m0", "m1"], "nothing more starts");
        fleet.recovers("n0");
        fleet.wait(2);
        assert_eq!(fleet.remediations(), ["m1"], "paused: {paused}");
    }
}

/// Infrastructure and bootstrap objects have the name of their Machine, too, and it owns them.
#[test]
fn only_what_was_made_to_repair_a_healthy_machine_is_removed() {
    const OURS: Option<&str> = Some("uid-check");
    // Owner, whether it controls the object, our mark, whether the Machine names it as a part, whether it is removed.
    let cases = [
        ("uid-m1", false, OURS, false, true),
        ("uid-m1", true, OURS, false, true),
        ("uid-m1", false, None, false, true),
        ("uid-m1", true, None, false, false),
        ("uid-m1", false, OURS, true, false),
        ("uid-m1", false, None, true, false),
        ("uid-m1", true, None, true, false),
        ("uid-m0", false, OURS, false, false),
        ("uid-m0", false, None, false, false),
    ];
    for (owner, controls, mark, is_part, is_removed) in cases {
        let mut fleet = templated(3, Amount::Percent(100));
        if is_part {
            fleet.change("m1", |machine| machine.parts = [("repair.test".into(), "Cycle".into())].into());
        }
        let key = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "m1".into() };
        let owners = [OwnerRef { uid: owner.into(), controls, is_check: false }].into();
        fleet.add_object(Object { owners, machine_check: mark.map(Into::into), ..object(key, 77) });
        fleet.wait(60);
        let expected: &[&str] = if is_removed { &[] } else { &["m1"] };
        assert_eq!(fleet.remediations(), expected, "{owner}, controls: {controls}, mark: {mark:?}, part: {is_part}");
    }
}

/// Whoever may write there can name any Machine as an owner, and any check as the one that it was made under.
#[test]
fn what_is_in_another_namespace_is_neither_removed_nor_waited_for() {
    let mut fleet = templated(3, Amount::Percent(100));
    for n in 0..2 {
        let labels = fleet.machines[&*format!("m{n}")].labels.clone();
        let labels = labels.iter().chain([(CONTROL_PLANE_MACHINE_LABEL, "")]).collect();
        fleet.change(&format!("m{n}"), |machine| machine.labels = labels);
    }
    for (name, owner) in [("m0", "uid-m0"), ("stray", "uid-m0")] {
        let key = ObjectKey { kind: remediation_kind(), namespace: Some("tenant".into()), name: name.into() };
        let owners = [OwnerRef { uid: owner.into(), controls: false, is_check: false }].into();
        fleet.add_object(Object { owners, machine_check: Some("uid-check".into()), ..object(key, 77) });
    }
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m1", "m0", "stray"], "{}", fleet.message("RemediationHeld"));
}

/// Whoever may write the status of a Machine can have it name any kind, as if we had written that.
#[test]
fn what_a_machine_names_is_looked_for_only_where_there_are_templates_of_it() {
    for (kind, api_version) in [("Lone", "repair.test/v1"), ("Pod", "v1")] {
        let mut fleet = templated(2, Amount::Percent(100));
        let forged = Posted {
            ours: true,
            message: format!("Waiting for {kind} ({api_version})").into(),
            ..posted(Status::False, "WaitingForRemediation")
        };
        fleet.change("m1", |machine| {
            let new = machine.boards.iter_mut().find(|board| board.style == Style::New).expect("it has one");
            new.slots[Sign::ExternallyRemediated as usize] = Slot::At(0, forged.clone());
        });
        let named = Source::Objects(Kind { api_version: api_version.into(), kind: kind.into() });
        let now = plan(&fleet.world, fleet.now());
        let asks = |effect: &Effect| matches!(effect, Effect::Discover { api_version: asked } if **asked == *"v1");
        assert!(!now.watches.contains(&named) && !now.effects.iter().any(asks), "{named}");
        fleet.breaks("n1");
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m1"], "{named}");
    }
}

/// A NodeHealthCheck has the Machine of its node own what it makes.
#[test]
fn what_a_node_health_check_made_is_left_to_it() {
    let mut fleet = templated(3, Amount::Percent(100));
    fleet.tell(Input::Seen(Fact::Check(foreign_node_check("uid-nhc"))));
    let key = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "m1".into() };
    let owners = [("uid-nhc", true), ("uid-m1", false)];
    let owners = owners.map(|(uid, is_check)| OwnerRef { uid: uid.into(), controls: false, is_check }).into();
    fleet.add_object(Object { owners, ..object(key, 77) });
    fleet.wait(60);
    assert_eq!(fleet.remediations(), ["m1"]);
}

/// To fall back to its owner would delete the machine.
#[test]
fn a_template_that_cannot_be_used_never_falls_back() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, by_template(), Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!((fleet.remediations(), fleet.all_asked()), (vec![], vec![]));
    assert_eq!(
        fleet.condition("ExternalRemediationTemplateAvailable").as_deref(),
        Some("False ExternalRemediationTemplateNotFound")
    );
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False RemediationTemplateUnavailable"));
    assert_eq!(fleet.events_of("RemediationTemplateUnavailable"), ["MachineHealthCheck check"]);
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded).as_deref(), Some("False UnhealthyNode"));

    // It arrives, and everything else follows; what was said of its absence goes.
    fleet.add_template();
    fleet.wait(1);
    assert_eq!(fleet.remediations(), ["m1"]);
    assert_eq!(fleet.condition("ExternalRemediationTemplateAvailable"), None);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("True RemediationAllowed"));

    // One that is no template.
    let mut fleet = templated(2, Amount::Percent(100));
    let key = ObjectKey { kind: template_kind(), namespace: Some("ns".into()), name: "cycle".into() };
    let mut template = fleet.objects[&key].clone();
    template.body = Some(Err(Invalid("it has no spec.template".into())));
    fleet.add_object(template);
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!((fleet.remediations(), fleet.all_asked()), (vec![], vec![]));
    assert!(fleet.message("ExternalRemediationTemplateAvailable").contains("it has no spec.template"));
}

/// Its owner would still delete what is to be repaired by somebody else now.
#[test]
fn a_check_that_gets_a_template_takes_back_what_it_asked_of_owners() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    fleet.add_template();
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").repair = by_template());
    fleet.wait(2);
    assert_eq!(fleet.remediations(), ["m1"]);
    assert_eq!(fleet.sign("m1", Sign::OwnerRemediated), None);
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded).as_deref(), Some("False UnhealthyNode"));

    // A remediator that gives up asks the owner in the same words, and in the legacy style alone, whose list we have written to.
    let asked = Posted { ours: true, ..posted(Status::False, "WaitingForRemediation") };
    fleet.change("m1", |machine| {
        let legacy = machine.boards.iter_mut().find(|board| board.style == Style::Legacy).expect("it has one");
        legacy.slots[1] = Slot::At(1, asked.clone());
    });
    fleet.wait(60);
    assert_eq!(fleet.signs("m1", Sign::OwnerRemediated), ["False WaitingForRemediation"]);
}

#[test]
fn a_refused_creation_is_told_tried_again_and_forgotten() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.refuses = true;
    fleet.breaks("n1");
    fleet.wait(310);
    assert_eq!(
        fleet.condition("ExternalRemediationRequestAvailable").as_deref(),
        Some("False ExternalRemediationRequestCreationFailed")
    );
    fleet.refuses = false;
    fleet.wait(60);
    assert_eq!(fleet.remediations(), ["m1"]);
    assert_eq!(fleet.condition("ExternalRemediationRequestAvailable"), None, "it is not sticky");
}

#[test]
fn a_machine_that_is_being_deleted_gets_no_remediation() {
    let mut fleet = templated(3, Amount::Percent(100));
    fleet.change("m1", |machine| machine.deleting = true);
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!(fleet.remediations(), [""; 0]);
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded).as_deref(), Some("False UnhealthyNode"));
    assert_eq!(fleet.status().healthy, Some(2));
}

#[test]
fn an_object_of_somebody_else_in_its_place_is_left_alone() {
    let mut fleet = templated(2, Amount::Percent(100));
    let mut kind = template_kind();
    kind.kind = "Cycle".into();
    let key = ObjectKey { kind, namespace: Some("ns".into()), name: "m1".into() };
    fleet.add_object(object(key, 7));
    fleet.breaks("n1");
    fleet.wait(400);
    assert!(fleet.message("RemediationHeld").contains("exists already and is not ours"), "{:?}", fleet.status());
    fleet.recovers("n1");
    fleet.wait(2);
    assert_eq!(fleet.remediations(), ["m1"]);
}

/// Who removes its own object too early gets another, ever more slowly.
#[test]
fn somebody_who_removes_remediations_does_not_make_us_hot() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    let created = |fleet: &Fleet| fleet.written.iter().filter(|key| key.starts_with("Create")).count();
    for _ in 0..200 {
        let gone: Vec<_> = fleet
            .objects
            .iter()
            .filter(|(key, _)| &*key.kind.kind == "Cycle")
            .map(|(key, own)| (key.clone(), own.uid.clone()))
            .collect();
        for (key, uid) in gone {
            fleet.objects.remove(&key);
            fleet.tell(Input::Gone(Gone::Object(key, uid)));
        }
        fleet.wait(1);
    }
    assert!(created(&fleet) < 20, "{}", created(&fleet));
}

#[test]
fn a_machine_that_leaves_the_selection_loses_its_remediation() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    fleet.change("m1", |machine| machine.marks.paused = true);
    fleet.wait(2);
    assert_eq!(fleet.remediations(), ["m1"], "what is paused is not touched at all");
    fleet.change("m1", |machine| (machine.marks.paused, machine.marks.skipped) = (false, true));
    fleet.wait(2);
    assert_eq!(fleet.remediations(), [""; 0]);
}

#[test]
fn the_control_plane_is_repaired_one_at_a_time_and_never_beyond_the_majority() {
    let mut fleet = templated(5, Amount::Percent(100));
    for n in 0..3 {
        let labels = fleet.machines[&*format!("m{n}")].labels.clone();
        let labels = labels.iter().chain([(CONTROL_PLANE_MACHINE_LABEL, "")]).collect();
        fleet.change(&format!("m{n}"), |machine| machine.labels = labels);
        fleet.hosts_etcd(&format!("n{n}"), true);
    }
    fleet.settle();
    fleet.breaks("n0");
    fleet.breaks("n3");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m0", "m3"], "two of three members are left");
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m0", "m3"]);
    assert!(fleet.message("RemediationHeld").contains("m1: m0 is being remediated"), "{}", fleet.message("RemediationHeld"));
    fleet.recovers("n0");
    fleet.wait(2);
    assert_eq!(fleet.remediations(), ["m1", "m3"]);
}

/// Of which nobody knows yet whether it was carried out.
#[test]
fn one_machine_of_the_control_plane_waits_for_what_may_be_under_way_on_another() {
    let ways =
        [(Dialect::V1beta2, by_template()), (Dialect::OpenShift, Repair::Deletion), (Dialect::OpenShift, Repair::PowerCycle)];
    for (dialect, repair) in ways {
        let mut fleet = Fleet::with(dialect, 5, repair, Amount::Percent(100));
        fleet.add_template();
        for machine in ["m0", "m1"] {
            let labels = [(CONTROL_PLANE_MACHINE_LABEL, ""), ROLE_LABEL].into_iter().collect();
            fleet.change(machine, |machine| machine.labels = labels);
        }
        ["n0", "n1"].iter().for_each(|node| fleet.breaks(node));
        fleet.wait(297);
        let is_begun =
            |effect: &Effect| matches!(effect, Effect::Create(_) | Effect::DeleteMachine { .. } | Effect::PowerCycle { .. });
        let sent = fleet.until_sent(is_begun);
        let waits = |fleet: &Fleet| {
            let now = plan(&fleet.world, fleet.now());
            let decision = now.decisions.iter().find(|decision| &*decision.node == "m1").expect("it is decided on");
            assert_eq!(decision.because, Because::ControlPlaneBusy { node: "m0".into() }, "{dialect:?}: {sent:?}");
        };
        waits(&fleet);
        if matches!(sent, Effect::PowerCycle { .. }) {
            fleet.tell(Input::Answered(sent.key(), Answer::Done(None)));
            fleet.change("m0", |machine| machine.marks.power_cycle = true);
            waits(&fleet);
        }
    }
}

#[test]
fn a_lost_creation_is_asked_about_and_not_made_twice() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(297);
    let sent = fleet.until_sent(|effect| matches!(effect, Effect::Create(_)));
    fleet.tell(Input::Answered(sent.key(), Answer::Unsure { why: "lost".into() }));
    fleet.wait(60);
    assert_eq!(fleet.remediations(), ["m1"]);
    let machine = &fleet.machines["m1"];
    assert_eq!(
        machine.board(Style::New).and_then(|board| board.get(Sign::ExternallyRemediated)).map(|own| own.status.clone()),
        Some(Status::False)
    );
}

/// Two repairs must not meet on one machine.
#[test]
fn what_another_template_made_goes_before_anything_else_is_tried() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m1"]);
    fleet.hold_deletions = true;
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").repair = Repair::Owner);
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), [""; 0], "its provider is not done with it");
    fleet.let_go();
    fleet.wait(2);
    assert_eq!((fleet.remediations(), fleet.all_asked()), (vec![], vec!["m1"]));
    assert_eq!(fleet.sign("m1", Sign::ExternallyRemediated), None);
}

#[test]
fn a_remediation_goes_with_its_check_even_if_nobody_was_there_to_see_it_go() {
    for also_down in [false, true] {
        let mut fleet = templated(2, Amount::Percent(100));
        fleet.breaks("n1");
        fleet.wait(302);
        match also_down {
            true => {
                fleet.checks.remove(CHECK);
                fleet.restart();
            }
            false => fleet.remove_check(CHECK),
        }
        fleet.wait(10);
        assert_eq!(fleet.remediations(), [""; 0]);
        assert_eq!(fleet.sign("m1", Sign::ExternallyRemediated), None);
        assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded), None);
    }
}

/// Whoever has no Clusters can be cleared; and a check that is being deleted has no say any more.
#[test]
fn what_a_check_has_left_goes_on_openshift_though_nothing_is_known_of_clusters() {
    for is_being_deleted in [false, true] {
        let mut fleet = Fleet::new(Dialect::OpenShift, 2);
        fleet.has_definition_only = true;
        fleet.add_check(check(Dialect::OpenShift, CHECK, by_template(), Budget::AtMost(Amount::Percent(100))));
        fleet.add_template();
        fleet.breaks("n1");
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m1"]);
        match is_being_deleted {
            true => fleet.change_check(CHECK, |check| check.deleting = true),
            false => fleet.remove_check(CHECK),
        }
        fleet.wait(10);
        assert_eq!(fleet.remediations(), [""; 0], "{is_being_deleted}");
    }
}

fn other_kind() -> Kind {
    Kind { kind: "Swap".into(), ..remediation_kind() }
}

/// The check names another template from now on.
fn swap(fleet: &mut Fleet) {
    let kind = Kind { kind: "SwapTemplate".into(), ..template_kind() };
    let cycle = fleet.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    let key = ObjectKey { kind: kind.clone(), ..cycle.key.clone() };
    fleet.add_object(Object { key, ..cycle });
    let repair = Repair::Template { kind, name: "cycle".into() };
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").repair = repair);
}

/// Where the answer was lost, or the watch is slow, the Machine does not say yet what was made for it.
#[test]
fn what_is_being_made_from_another_template_is_waited_for_and_removed() {
    for answer in [Answer::Done(None), Answer::Unsure { why: "lost".into() }] {
        let mut fleet = templated(2, Amount::Percent(100));
        fleet.breaks("n1");
        fleet.wait(297);
        let Effect::Create(creation) = fleet.until_sent(|effect| matches!(effect, Effect::Create(_))) else {
            unreachable!("it was looked for")
        };
        let object = fleet.made(&creation);
        fleet.objects.insert(object.key.clone(), object.clone());
        fleet.tell(Input::Answered(Effect::Create(creation).key(), answer));
        swap(&mut fleet);
        fleet.hold_deletions = true;
        fleet.wait(20);
        let of_other = |fleet: &Fleet| fleet.objects.keys().filter(|key| key.kind == other_kind()).count();
        assert_eq!((fleet.remediations(), of_other(&fleet)), (vec!["m1"], 0), "one may be at work");
        fleet.tell(Input::Seen(Fact::Object(object)));
        fleet.wait(60);
        assert_eq!((fleet.remediations(), of_other(&fleet)), (vec!["m1"], 0), "its provider is not done with it");
        fleet.let_go();
        fleet.wait(10);
        assert_eq!((fleet.remediations(), of_other(&fleet)), (vec![], 1));
    }
}

/// Whatever the check asks for by now.
#[test]
fn what_may_have_been_made_is_waited_for_before_anything_else_is_asked_for() {
    let other_ways =
        [(Dialect::V1beta2, Repair::Owner), (Dialect::OpenShift, Repair::Deletion), (Dialect::OpenShift, Repair::PowerCycle)];
    for (dialect, repair) in other_ways {
        let mut fleet = Fleet::with(dialect, 2, by_template(), Amount::Percent(100));
        fleet.add_template();
        fleet.breaks("n1");
        fleet.wait(297);
        let sent = fleet.until_sent(|effect| matches!(effect, Effect::Create(_)));
        let Effect::Create(creation) = &sent else { unreachable!("it was looked for") };
        let object = fleet.made(creation);
        fleet.objects.insert(object.key.clone(), object.clone());
        fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").repair = repair);
        fleet.tell(Input::Answered(sent.key(), Answer::Unsure { why: "lost".into() }));
        fleet.hold_deletions = true;
        let is_asked =
            |fleet: &Fleet| fleet.machines.get("m1").is_none_or(|machine| machine.marks.power_cycle) || fleet.asked("m1");
        fleet.wait(60);
        assert!(!is_asked(&fleet), "one may be at work");
        assert!(
            fleet.message("RemediationHeld").contains("m1 may still be at work on it"),
            "{}",
            fleet.message("RemediationHeld")
        );
        fleet.tell(Input::Seen(Fact::Object(object)));
        fleet.wait(60);
        assert!(!is_asked(&fleet), "its provider is not done with it");
        fleet.let_go();
        fleet.wait(10);
        assert!(is_asked(&fleet));
    }
}

/// A Machine whose check went before the Machine could say what was made for it.
#[test]
fn what_was_made_goes_with_its_check_though_the_machine_does_not_name_it() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(297);
    let sent = fleet.until_sent(|effect| matches!(effect, Effect::Create(_)));
    let Effect::Create(creation) = &sent else { unreachable!("it was looked for") };
    let object = fleet.made(creation);
    fleet.remove_check(CHECK);
    fleet.tell(Input::Answered(sent.key(), Answer::Done(None)));
    fleet.objects.insert(object.key.clone(), object.clone());
    fleet.tell(Input::Seen(Fact::Object(object)));
    fleet.wait(60);
    assert_eq!(fleet.remediations(), [""; 0]);
}

/// The same object is served in each version of its kind.
#[test]
fn a_template_of_another_version_is_no_other_template() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    let deleted = |fleet: &Fleet| fleet.written.iter().filter(|key| key.starts_with("Delete")).count();
    let in_v2 = |kind: Kind| Kind { api_version: "repair.test/v2".into(), ..kind };
    // The server shows what is there in both.
    for object in fleet.objects.values().cloned().collect::<Vec<_>>() {
        let key = ObjectKey { kind: in_v2(object.key.kind.clone()), ..object.key.clone() };
        fleet.add_object(Object { key, ..object });
    }
    let repair = Repair::Template { kind: in_v2(template_kind()), name: "cycle".into() };
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").repair = repair);
    fleet.wait(60);
    assert_eq!(deleted(&fleet), 0);
    assert_eq!(fleet.events_of("RemediationCreated").len(), 2, "one, told of on the machine and on its check");
}

/// What was made before is still what was made for the machine.
#[test]
fn a_template_of_a_version_that_nobody_serves_leaves_nothing_on_machines_that_are_well() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    let repair =
        Repair::Template { kind: Kind { api_version: "repair.test/none".into(), ..template_kind() }, name: "cycle".into() };
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").repair = repair);
    fleet.wait(60);
    assert_eq!(fleet.remediations(), ["m1"], "it is at work");
    fleet.recovers("n1");
    fleet.wait(60);
    assert_eq!(fleet.remediations(), [""; 0]);
    assert_eq!(fleet.sign("m1", Sign::ExternallyRemediated), None);
}

#[test]
fn a_look_that_is_refused_says_why_nothing_starts() {
    let is_look = |effect: &Effect| matches!(effect, Effect::LookMachine { .. });
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(297);
    for _ in 0..3 {
        let sent = fleet.until_sent(is_look);
        let answer = Answer::Refused { why: "machines m1 is forbidden".into(), retry_after: None, forbidden: true };
        fleet.tell(Input::Answered(sent.key(), answer));
        let now = plan(&fleet.world, fleet.now());
        let decision = now.decisions.iter().find(|decision| &*decision.node == "m1").expect("it is decided on");
        let why = decision.because.to_string();
        assert!(decision.is_held() && why.contains("Machine ns/m1") && why.contains("machines m1 is forbidden"), "{why}");
    }
    assert_eq!(fleet.remediations(), [""; 0]);
    fleet.wait(60);
    assert_eq!(fleet.remediations(), ["m1"], "once it may be read");
}

/// What goes, or is changed, between the request and the list is as the list shows it, also where the answer comes last.
#[test]
fn an_answer_during_a_list_is_none_of_it() {
    for (is_look, is_gone) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut fleet = templated(2, Amount::Percent(100));
        fleet.breaks("n1");
        fleet.wait(if is_look { 297 } else { 0 });
        let (sent, source, earlier) = match is_look {
            true => {
                let sent = fleet.until_sent(|effect| matches!(effect, Effect::LookMachine { .. }));
                (sent, Source::Machines(fleet.dialect), Fact::Machine(fleet.machines["m1"].clone()))
            }
            false => {
                let sent = fleet.until_sent(|effect| matches!(effect, Effect::MachineCheckStatus { .. }));
                (sent, Source::MachineChecks(fleet.dialect), Fact::MachineCheck(fleet.checks[CHECK].clone()))
            }
        };
        let version = fleet.next_version();
        match (is_look, is_gone) {
            (true, true) => drop(fleet.machines.remove("m1")),
            (false, true) => drop(fleet.checks.remove(CHECK)),
            (true, false) => {
                let machine = fleet.machines.get_mut("m1").expect("it is there");
                (machine.version, machine.deleting) = (version, true);
            }
            (false, false) => {
                let check = fleet.checks.get_mut(CHECK).expect("it is there");
                (check.version, check.deleting) = (version, true);
            }
        }
        fleet.tell(Input::Broken(source.clone()));
        fleet.tell(Input::Listing(source.clone()));
        fleet.facts(&source).into_iter().for_each(|fact| fleet.tell(Input::Seen(fact)));
        fleet.tell(Input::Answered(sent.key(), Answer::Done(Some(earlier))));
        fleet.tell(Input::Listed(source));
        assert!(fleet.world.fleet.looks.is_empty());
        let (machines, checks) = (&fleet.world.fleet.machines, &fleet.world.fleet.checks);
        assert!(machines.values().eq(fleet.machines.values()), "{machines:?}");
        assert!(checks.values().eq(fleet.checks.values()), "{checks:?}");
    }
}

/// A check that a list no longer shows leaves as little as one whose end was seen.
#[test]
fn nothing_is_remembered_of_a_check_that_went_unseen() {
    let mut fleet = templated(2, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    let key = fleet.checks[CHECK].key();
    assert_ne!(fleet.world.status_sent(&key), None);
    fleet.checks.remove(CHECK);
    fleet.list(Source::MachineChecks(fleet.dialect));
    fleet.wait(3600);
    assert_eq!(fleet.world.settled(&key), 0);
    assert_eq!(fleet.world.status_sent(&key), None);
}

#[test]
fn what_was_written_on_a_machine_is_forgotten_with_the_answer() {
    for answer in [Answer::Conflict, Answer::Missing, Answer::Refused { why: "no".into(), retry_after: None, forbidden: true }] {
        let mut fleet = templated(2, Amount::Percent(100));
        fleet.change("m1", |machine| machine.boards.iter_mut().for_each(|board| board.slots = [const { Slot::Before(0) }; 3]));
        let sent = fleet.until_sent(|effect| matches!(effect, Effect::Sign(_)));
        assert_eq!(fleet.world.fleet.wrote_new.len(), 1);
        fleet.tell(Input::Answered(sent.key(), answer));
        assert_eq!(fleet.world.fleet.wrote_new.len(), 0);
    }
}

/// Whoever writes our mark on what a machine consists of does not have it removed when the check lets go of the machine.
#[test]
fn what_a_machine_consists_of_is_no_stray() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, by_template(), Amount::Percent(100));
    fleet.add_template();
    fleet.change("m1", |machine| {
        machine.parts = [("repair.test".into(), "Cycle".into())].into();
        machine.marks.skipped = true;
    });
    let key = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "m1".into() };
    fleet.add_object(Object { machine_check: Some("uid-check".into()), ..object(key, 77) });
    fleet.wait(60);
    assert_eq!(fleet.remediations(), ["m1"]);
}
