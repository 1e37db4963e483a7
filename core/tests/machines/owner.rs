//! Owners repair, on what stands on their machines.

use std::time::Duration;

use resus_core::decision::Because;
use resus_core::effect::Effect;
use resus_core::facts::{Amount, Claim, Condition, ProviderId, Rule, Status};
use resus_core::input::{Answer, Fact, Input};
use resus_core::mhc::facts::{Budget, Dialect, Repair, Sign, Slot, Style};
use resus_core::time::Wall;

use crate::facts::posted;
use crate::model::{CHECK, Fleet, plan};

const HEALTHY: Option<&str> = Some("True HealthCheckSucceeded");

fn owned(machines: usize) -> Fleet {
    Fleet::with(Dialect::V1beta2, machines, Repair::Owner, Amount::Percent(100))
}

fn verdict(fleet: &Fleet, machine: &str) -> Option<String> {
    fleet.sign(machine, Sign::HealthCheckSucceeded)
}

/// Whoever writes the status of a Machine may write anything there.
#[test]
fn what_is_no_name_of_a_node_is_neither_gone_nor_healthy() {
    for garbled in ["a/b", "../n1", "A", "two\nlines", &"a".repeat(254)] {
        let mut fleet = owned(3);
        fleet.change("m1", |machine| machine.node = Some(garbled.into()));
        fleet.breaks("n2");
        fleet.wait(400);
        assert_eq!(fleet.all_asked(), ["m2"], "{garbled}");
        assert_eq!(fleet.status().healthy, Some(1), "{garbled}");
        assert!(
            fleet.message("RemediationHeld").starts_with("m1: its status.nodeRef.name is not the name of a Node"),
            "{garbled}"
        );
    }
}

/// M12: whoever writes Machines could have any node repaired by naming it, and also by asking for it.
#[test]
fn a_machine_of_another_host_than_its_node_is_not_judged() {
    for asks in [false, true] {
        let mut fleet = owned(3);
        fleet.change("m1", |machine| {
            machine.provider_id = ProviderId::new("cloud:///tenant");
            machine.marks.remediate = asks;
        });
        fleet.breaks("n1");
        fleet.breaks("n2");
        fleet.wait(400);
        assert_eq!(fleet.all_asked(), ["m2"], "{asks}");
        assert_eq!(fleet.status().healthy, Some(1), "it is not called healthy either");
        let told = fleet.message("RemediationHeld");
        assert!(told.contains("cloud:///tenant and cloud:///1"), "both are named: {told}");
        // Where only one of them says which host it is, that is no contradiction.
        fleet.change("m1", |machine| machine.provider_id = None);
        fleet.wait(2);
        assert_eq!(fleet.all_asked(), ["m1", "m2"], "{asks}");
        assert_eq!(fleet.condition("RemediationHeld"), None);
    }
}

#[test]
fn an_owner_is_asked_when_the_time_is_over_and_not_before() {
    let mut fleet = owned(3);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY);
    fleet.breaks("n1");
    fleet.wait(299);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY, "what is pending stays as it is");
    fleet.wait(3);
    assert_eq!(fleet.signs("m1", Sign::HealthCheckSucceeded), ["False UnhealthyNode", "False UnhealthyNode"]);
    assert_eq!(fleet.signs("m1", Sign::OwnerRemediated), ["False WaitingForRemediation", "False WaitingForRemediation"]);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.events_of("MachineMarkedUnhealthy"), ["Machine m1"]);
    let machine = &fleet.machines["m1"];
    let (new, legacy) = (
        machine.sign(Sign::HealthCheckSucceeded),
        machine.board(Style::Legacy).and_then(|board| board.get(Sign::HealthCheckSucceeded)),
    );
    assert_eq!(
        new.map(|posted| &*posted.message),
        Some("The health check failed:\n  * condition Ready of the Node is False (Test) for more than 5m0s")
    );
    assert_eq!(legacy.map(|posted| &*posted.message), Some("condition Ready of the Node is False (Test) for more than 5m0s"));
    assert_eq!(legacy.and_then(|posted| posted.severity.as_deref()), Some("Warning"));

    // Nothing is written again while nothing changes.
    let written = fleet.written.len();
    fleet.wait(3600);
    assert_eq!(fleet.written.len(), written, "{:?}", &fleet.written[written..]);
    assert_eq!(fleet.events_of("MachineMarkedUnhealthy").len(), 1);
}

#[test]
fn a_machine_that_recovers_is_called_healthy_again_and_nothing_of_ours_stays() {
    let mut fleet = owned(3);
    fleet.breaks("n1");
    fleet.wait(302);
    assert!(fleet.asked("m1"));
    fleet.recovers("n1");
    fleet.wait(2);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY);
    assert_eq!(fleet.sign("m1", Sign::OwnerRemediated), None, "it would still stand there the next time");
}

#[test]
fn what_an_owner_wrote_is_never_touched() {
    let mut fleet = owned(3);
    fleet.breaks("n1");
    fleet.wait(302);
    let deferred = posted(Status::False, "RemediationDeferred");
    fleet.change("m1", |machine| machine.boards.iter_mut().for_each(|board| board.slots[1] = Slot::At(1, deferred.clone())));
    fleet.wait(600);
    assert_eq!(fleet.sign("m1", Sign::OwnerRemediated).as_deref(), Some("False RemediationDeferred"));
    fleet.recovers("n1");
    fleet.wait(2);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY);
    assert_eq!(
        fleet.sign("m1", Sign::OwnerRemediated).as_deref(),
        Some("False RemediationDeferred"),
        "it is the owner's to remove"
    );
}

/// Otherwise the owner of a machine that was ill before would act in the middle of a storm.
#[test]
fn a_storm_does_not_revive_what_an_owner_has_not_taken_back() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 4, Repair::Owner, Amount::Count(1));
    let deferred = posted(Status::False, "RemediationDeferred");
    fleet.change("m1", |machine| machine.boards.iter_mut().for_each(|board| board.slots[1] = Slot::At(1, deferred.clone())));
    fleet.breaks("n1");
    fleet.breaks("n2");
    fleet.wait(302);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY, "to call it unhealthy would be to have it deleted");
    assert_eq!(verdict(&fleet, "m2").as_deref(), Some("False UnhealthyNode"));
    assert_eq!(fleet.sign("m2", Sign::OwnerRemediated), None);
    assert!(fleet.message("RemediationHeld").contains("m1: the owner has not taken back"), "{:?}", fleet.status());

    // When the storm is over, both are repaired.
    fleet.change_check(CHECK, |check| {
        check.policy.as_mut().expect("it is valid").budget = Budget::AtMost(Amount::Count(2));
    });
    fleet.wait(2);
    assert_eq!(verdict(&fleet, "m1").as_deref(), Some("False UnhealthyNode"));
    assert_eq!(fleet.all_asked(), ["m1", "m2"]);
    assert_eq!(fleet.condition("RemediationHeld"), None);
}

#[test]
fn a_node_that_is_gone_is_found_at_once_but_only_when_the_server_says_so_too() {
    let mut fleet = owned(3);
    fleet.node_goes(None, "n1");
    fleet.wait(1);
    assert_eq!(fleet.signs("m1", Sign::HealthCheckSucceeded), ["False NodeDeleted", "False NodeNotFound"]);
    assert_eq!(fleet.all_asked(), ["m1"]);

    // A watch that lost a Node which is there.
    let mut fleet = owned(3);
    let node = fleet.nodes[&None]["n1"].clone();
    fleet.tell(Input::Gone(resus_core::input::Gone::Node("n1".into())));
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), [""; 0], "a plain look shows it");
    fleet.tell(Input::Seen(Fact::Node(node)));
    fleet.wait(1);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY);
}

#[test]
fn a_node_that_recovered_behind_our_back_is_left_alone() {
    let mut fleet = owned(3);
    fleet.breaks("n1");
    fleet.wait(299);
    let broken = fleet.world.nodes["n1"].clone();
    fleet.recovers("n1");
    // What the watch says comes late: the world still has the old news.
    fleet.world.nodes.insert("n1".into(), broken);
    fleet.wait(10);
    assert_eq!(fleet.all_asked(), [""; 0], "the look showed that it is well");
}

#[test]
fn a_machine_without_a_node_has_the_latest_of_four_times() {
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, 2).into_cluster();
    let mut check = crate::facts::check(Dialect::V1beta2, CHECK, Repair::Owner, Budget::AtMost(Amount::Percent(100)));
    check.cluster = Some("blue".into());
    fleet.add_check(check);
    fleet.settle();
    let began = fleet.now().wall;
    fleet.change("m1", |machine| (machine.node, machine.created_at) = (None, began));
    fleet.wait(300);
    fleet.set_cluster(&key, |cluster| cluster.infrastructure_ready_at = Some(Wall(began.0 + 300_000)));
    fleet.wait(599);
    assert_eq!(fleet.all_asked(), [""; 0], "the infrastructure is ready since then only");
    fleet.wait(3);
    assert_eq!(fleet.signs("m1", Sign::HealthCheckSucceeded), ["False NodeStartupTimeout", "False NodeStartupTimeout"]);

    // Without a limit it is not judged, but it is not healthy either.
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").startup_timeout = None);
    fleet.wait(2);
    assert_eq!(fleet.status().healthy, Some(1));
}

#[test]
fn conditions_of_the_machine_itself_count_and_are_told_first() {
    let mut fleet = owned(2);
    let rule = Rule { kind: "InfrastructureReady".into(), status: Status::False, lasts_for: Duration::from_secs(60) };
    fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").machine_rules = vec![rule]);
    let since = fleet.now().wall;
    fleet.breaks("n1");
    fleet.wait(240);
    fleet.change("m1", |machine| {
        machine.conditions = [resus_core::facts::Condition {
            kind: "InfrastructureReady".into(),
            status: Status::False,
            since: Wall(since.0 + 240_000),
            reason: "Gone".into(),
        }]
        .into();
    });
    fleet.wait(59);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY);
    fleet.wait(5);
    assert_eq!(fleet.signs("m1", Sign::HealthCheckSucceeded), ["False UnhealthyMachine", "False UnhealthyMachine"]);
    let message = &fleet.machines["m1"].sign(Sign::HealthCheckSucceeded).expect("it is there").message;
    assert!(message.contains("of the Machine is False (Gone) for more than 1m0s"), "{message}");
    assert!(message.contains("of the Node is False"), "{message}");
}

/// Clocks are never quite the same, and not everybody writes dates.
#[test]
fn what_is_dated_into_the_future_or_not_at_all_counts_from_when_it_was_seen() {
    for since in [Wall(i64::MAX), Wall(1_800_010_000_000)] {
        let mut fleet = owned(2);
        let rule = Rule { kind: "Disk".into(), status: Status::False, lasts_for: Duration::from_secs(60) };
        fleet.change_check(CHECK, |check| check.policy.as_mut().expect("it is valid").machine_rules = vec![rule]);
        let disk = |status: Status| {
            let condition = resus_core::facts::Condition { kind: "Disk".into(), status, since, reason: "".into() };
            move |machine: &mut resus_core::mhc::facts::Machine| machine.conditions = [condition].into()
        };
        fleet.change("m1", disk(Status::False));
        fleet.wait(50);
        fleet.change("m1", disk(Status::True));
        fleet.change("m1", disk(Status::False));
        fleet.wait(50);
        fleet.change("m1", |machine| machine.marks.power_cycling = true);
        assert_eq!(fleet.all_asked(), [""; 0], "it was well in between");
        fleet.wait(15);
        assert_eq!(fleet.all_asked(), ["m1"]);
    }
}

#[test]
fn a_person_can_ask_for_it_and_a_person_can_forbid_it() {
    let mut fleet = owned(3);
    fleet.change("m1", |machine| machine.marks.remediate = true);
    fleet.wait(1);
    assert_eq!(
        fleet.signs("m1", Sign::HealthCheckSucceeded),
        ["False HasRemediateAnnotation", "False HasRemediateMachineAnnotation"]
    );
    assert_eq!(fleet.all_asked(), ["m1"]);

    let mut fleet = owned(3);
    fleet.change("m1", |machine| machine.marks.skipped = true);
    fleet.change("m2", |machine| machine.marks.paused = true);
    fleet.breaks("n1");
    fleet.breaks("n2");
    fleet.wait(400);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.status().expected, Some(1), "neither is a target");
}

/// An owner would still act on what stands there.
#[test]
fn what_was_written_goes_with_the_check_that_wrote_it() {
    for also_down in [false, true] {
        let mut fleet = owned(3);
        fleet.breaks("n1");
        fleet.wait(302);
        assert!(fleet.asked("m1"));
        if also_down {
            fleet.checks.remove(CHECK);
            fleet.restart();
        } else {
            fleet.remove_check(CHECK);
        }
        fleet.wait(2);
        for machine in ["m0", "m1"] {
            assert_eq!(verdict(&fleet, machine), None, "{machine}");
            assert_eq!(fleet.sign(machine, Sign::OwnerRemediated), None, "{machine}");
        }
    }
}

#[test]
fn a_machine_that_leaves_the_selection_or_is_to_be_skipped_is_cleared_too() {
    let mut fleet = owned(3);
    fleet.breaks("n1");
    fleet.wait(302);
    fleet.change("m1", |machine| machine.marks.skipped = true);
    fleet.wait(2);
    assert_eq!((verdict(&fleet, "m1"), fleet.sign("m1", Sign::OwnerRemediated)), (None, None));
    // What somebody else wrote stays.
    fleet.change("m2", |machine| {
        machine.marks.skipped = true;
        machine.boards.iter_mut().for_each(|board| board.slots[0] = Slot::At(0, posted(Status::False, "TheirReason")));
    });
    fleet.wait(2);
    assert_eq!(verdict(&fleet, "m2").as_deref(), Some("False TheirReason"));
}

#[test]
fn a_paused_check_starts_nothing_and_says_so() {
    let mut fleet = owned(3);
    fleet.change_check(CHECK, |check| check.paused = true);
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY, "nothing is written on machines either");
    assert_eq!(fleet.condition("Paused").as_deref(), Some("True Paused"));
    fleet.change_check(CHECK, |check| check.paused = false);
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.condition("Paused").as_deref(), Some("False NotPaused"));
}

/// Cluster API's own controller is kept off by the annotation, and writes the condition itself.
#[test]
fn a_check_that_was_taken_over_is_ours_though_it_is_paused() {
    let mut fleet = owned(3);
    fleet.change_check(CHECK, |check| {
        (check.paused, check.take_over) = (true, true);
        check.status.new = vec![("Paused".into(), posted(Status::True, "Paused"))];
    });
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.condition("Paused").as_deref(), Some("True Paused"), "that is theirs to say");
}

#[test]
fn checks_of_others_are_left_alone() {
    let mut fleet = owned(3);
    fleet.world.machine_claim = Claim::Marked;
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!(fleet.all_asked(), [""; 0]);
    fleet.change_check(CHECK, |check| check.take_over = true);
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

/// Before Cluster API 1.9 there was no such style: what is written there is dropped.
#[test]
fn a_definition_that_drops_the_new_style_is_not_written_to_again_and_again() {
    let mut fleet = Fleet::new(Dialect::V1beta1, 3);
    fleet.drops_new = true;
    fleet.add_check(crate::facts::check(Dialect::V1beta1, CHECK, Repair::Owner, Budget::AtMost(Amount::Percent(100))));
    fleet.settle();
    fleet.wait(5);
    let written = fleet.written.len();
    fleet.wait(600);
    assert_eq!(fleet.written.len(), written, "{:?}", &fleet.written[written..]);
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.signs("m1", Sign::OwnerRemediated), ["False WaitingForRemediation"]);
}

#[test]
fn a_lost_answer_is_followed_by_another_look_not_by_silence() {
    let mut fleet = owned(2);
    fleet.breaks("n1");
    fleet.wait(297);
    // The request is sent and never answered; what came of it the watch would tell.
    let sent = fleet.until_sent(|effect| matches!(effect, Effect::Sign(_)));
    fleet.tell(Input::Answered(sent.key(), Answer::Unsure { why: "lost".into() }));
    fleet.wait(5);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

#[test]
fn a_bad_policy_is_told_and_does_nothing() {
    let mut fleet = owned(2);
    fleet.change_check(CHECK, |check| check.policy = Err(resus_core::facts::Invalid("spec.selector: no".into())));
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False MachineHealthCheckInvalid"));
    assert!(fleet.message("RemediationAllowed").contains("spec.selector: no"));
    assert_eq!(fleet.events_of("RemediationRestricted"), ["MachineHealthCheck check"]);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(verdict(&fleet, "m1").as_deref(), HEALTHY, "of a check that cannot be read nobody knows what it watches over");
}

#[test]
fn decisions_say_why() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Count(0));
    fleet.breaks("n1");
    fleet.wait(302);
    let decisions = plan(&fleet.world, fleet.now()).decisions;
    let because =
        |machine: &str| decisions.iter().find(|decision| &*decision.node == machine).map(|decision| decision.because.clone());
    assert_eq!(because("m0"), Some(Because::Healthy));
    assert!(matches!(because("m1"), Some(Because::TooManyUnhealthy { not_healthy: 1, allowed: 0, of: 2 })));
}

/// Cluster API has changed which style its owners read.
#[test]
fn a_style_in_which_the_owner_was_never_asked_is_added() {
    let mut fleet = owned(2);
    let asked = posted(Status::False, "WaitingForRemediation");
    fleet.change("m1", |machine| machine.boards[1].slots[1] = Slot::At(1, asked));
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.signs("m1", Sign::OwnerRemediated), ["False WaitingForRemediation", "False WaitingForRemediation"]);

    // The owner is at it: in the legacy style it calls that True.
    let (new, legacy) = (posted(Status::False, "MachineDeleting"), posted(Status::True, ""));
    fleet.change("m1", |machine| {
        machine.boards[0].slots[1] = Slot::At(1, new);
        machine.boards[1].slots[1] = Slot::At(1, legacy);
    });
    fleet.wait(60);
    assert_eq!(fleet.signs("m1", Sign::OwnerRemediated), ["False MachineDeleting", "True "]);
}

/// An owner would act on it, and nobody would know under which check.
#[test]
fn a_request_goes_though_another_check_in_its_namespace_cannot_be_read() {
    let mut fleet = owned(2);
    let mut bad = crate::facts::check(Dialect::V1beta2, "bad", Repair::Owner, Budget::AtMost(Amount::Percent(100)));
    bad.policy = Err(resus_core::facts::Invalid("no".into()));
    fleet.add_check(bad);
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    fleet.remove_check(CHECK);
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(verdict(&fleet, "m1").as_deref(), Some("False UnhealthyNode"), "the other one may watch over it");
    fleet.remove_check("bad");
    fleet.wait(2);
    assert_eq!(verdict(&fleet, "m1"), None);
}

/// However many conditions a Machine has, each without a date has its own time.
#[test]
fn each_condition_without_a_date_counts_from_when_it_was_first_seen() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    fleet.change_check(CHECK, |check| {
        let rule = Rule { kind: "Broken".into(), status: Status::True, lasts_for: Duration::from_secs(300) };
        check.policy.as_mut().expect("it is valid").machine_rules = vec![rule];
    });
    let broken = |kind: &str| Condition { kind: kind.into(), status: Status::True, since: Wall(i64::MAX), reason: "".into() };
    fleet.change("m1", |machine| machine.conditions = [broken("Broken"), broken("Other")].into());
    for _ in 0..4 {
        fleet.wait(60);
        fleet.change("m1", |machine| machine.generation += 1);
    }
    assert_eq!(fleet.all_asked(), [""; 0]);
    fleet.wait(62);
    assert_eq!(fleet.all_asked(), ["m1"], "five minutes after it was first seen");
}
