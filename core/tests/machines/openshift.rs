//! On OpenShift checks delete, or have machines power-cycled.

use resus_core::effect::Effect;
use resus_core::facts::{Amount, Condition, Rival, Rule, Status};
use resus_core::input::{Answer, Fact, Input};
use resus_core::mhc::facts::{Dialect, MachineCheck, Repair, Sign};

use crate::facts::{by_template, rival};
use crate::model::{CHECK, Fleet};

fn fleet(machines: usize, repair: Repair) -> Fleet {
    Fleet::with(Dialect::OpenShift, machines, repair, Amount::Percent(100))
}

fn names(fleet: &Fleet) -> Vec<&str> {
    fleet.machines.keys().map(|name| &**name).collect()
}

#[test]
fn an_unhealthy_machine_is_deleted_if_a_controller_would_make_another() {
    let mut fleet = fleet(4, Repair::Deletion);
    fleet.change("m2", |machine| machine.has_controller = false);
    fleet.breaks("n1");
    fleet.breaks("n2");
    fleet.wait(302);
    assert_eq!(names(&fleet), ["m0", "m2", "m3"]);
    assert_eq!(fleet.events_of("MachineDeleted"), ["Machine m1", "MachineHealthCheck check"]);
    assert_eq!(fleet.events_of("SkippedNoController"), ["Machine m2"]);
    assert_eq!(fleet.condition("RemediationHeld").as_deref(), Some("True SkippedNoController"));
    fleet.wait(24 * 3600);
    assert_eq!(fleet.events_of("SkippedNoController").len(), 1, "once");
    assert_eq!(fleet.sign("m2", Sign::HealthCheckSucceeded), None, "nothing is written on machines");
    assert_eq!(fleet.status().targets, [], "nor are they listed");
    assert_eq!(fleet.status().observed_generation, None);
}

#[test]
fn a_failed_machine_goes_at_once_and_a_slow_one_by_its_last_change() {
    let mut fleet = fleet(4, Repair::Deletion);
    fleet.change("m0", |machine| machine.failed = true);
    fleet.wait(1);
    assert_eq!(names(&fleet), ["m1", "m2", "m3"]);
    let updated = fleet.now().wall;
    fleet.change("m1", |machine| (machine.node, machine.updated_at) = (None, Some(updated)));
    fleet.change("m2", |machine| (machine.node, machine.updated_at) = (None, None));
    fleet.wait(598);
    assert_eq!(names(&fleet), ["m1", "m2", "m3"]);
    fleet.wait(5);
    assert_eq!(names(&fleet), ["m2", "m3"], "of m2 nobody knows since when");
    fleet.wait(2000);
    assert_eq!(names(&fleet), ["m2", "m3"]);
}

#[test]
fn a_power_cycle_is_asked_for_by_annotation_and_taken_back() {
    let mut fleet = fleet(3, Repair::PowerCycle);
    fleet.breaks("n1");
    fleet.wait(302);
    assert!(fleet.machines["m1"].marks.power_cycle);
    assert_eq!(fleet.events_of("ExternalAnnotationAdded"), ["Machine m1"]);
    assert_eq!(fleet.events_of("DeprecatedStrategy"), ["MachineHealthCheck check"], "told once");

    // The actuator has begun: what it remembers by must not be taken from it.
    fleet.change("m1", |machine| machine.marks.power_cycling = true);
    fleet.recovers("n1");
    fleet.wait(5);
    assert!(fleet.machines["m1"].marks.power_cycle);
    assert_eq!(fleet.status().healthy, Some(2), "it counts as not healthy until that is over");
    fleet.change("m1", |machine| machine.marks.power_cycling = false);
    fleet.wait(2);
    assert!(!fleet.machines["m1"].marks.power_cycle);
    fleet.wait(2);
    assert_eq!(fleet.status().healthy, Some(3));

    // A failed one is not worth it.
    fleet.change("m2", |machine| machine.failed = true);
    fleet.wait(2);
    assert_eq!(names(&fleet), ["m0", "m1"]);
}

/// The watch may show it before the answer comes, and then nothing shows it again.
#[test]
fn what_was_taken_back_keeps_nobody_else_from_being_repaired() {
    let mut fleet = Fleet::with(Dialect::OpenShift, 3, Repair::PowerCycle, Amount::Count(1));
    fleet.breaks("n1");
    fleet.wait(302);
    assert!(fleet.machines["m1"].marks.power_cycle);
    fleet.recovers("n1");
    fleet.wait(5);
    assert!(!fleet.machines["m1"].marks.power_cycle);
    fleet.breaks("n2");
    fleet.wait(302);
    assert!(fleet.machines["m2"].marks.power_cycle, "{:?}", fleet.message("RemediationAllowed"));
}

/// As in the reference: its Node is ready, and will be taken down all the same.
#[test]
fn a_machine_that_is_being_power_cycled_is_unhealthy_whatever_its_node_says() {
    for (repair, says) in [(Repair::PowerCycle, "1 of them for longer than allowed"), (Repair::Deletion, "none of them")] {
        let mut fleet = Fleet::with(Dialect::OpenShift, 3, repair, Amount::Count(0));
        fleet.change("m1", |machine| (machine.marks.power_cycle, machine.marks.power_cycling) = (true, true));
        fleet.wait(10);
        assert_eq!(fleet.status().healthy, Some(2), "{says}");
        assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False TooManyUnhealthy"), "{says}");
        assert!(fleet.message("RemediationAllowed").contains(says), "{}", fleet.message("RemediationAllowed"));
    }
}

/// Two ways of repair must not meet on one machine.
#[test]
fn a_machine_that_still_has_the_annotation_gets_no_remediation_object() {
    let mut fleet = fleet(3, by_template());
    fleet.add_template();
    fleet.change("m1", |machine| machine.marks.power_cycle = true);
    fleet.breaks("n1");
    fleet.wait(400);
    assert_eq!(fleet.remediations(), [""; 0]);
    assert!(fleet.message("RemediationHeld").contains("still has the annotation"));
    fleet.change("m1", |machine| machine.marks.power_cycle = false);
    fleet.wait(2);
    assert_eq!(fleet.remediations(), ["m1"]);
}

#[test]
fn a_storm_stops_it_and_costs_nothing_while_it_lasts() {
    let mut fleet = Fleet::with(Dialect::OpenShift, 5, Repair::Deletion, Amount::Percent(40));
    (0..3).for_each(|n| fleet.breaks(&format!("n{n}")));
    fleet.wait(310);
    assert_eq!(names(&fleet).len(), 5);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False TooManyUnhealthy"));
    assert_eq!(fleet.events_of("RemediationRestricted"), ["MachineHealthCheck check"]);
    let written = fleet.written.len();
    fleet.wait(3600);
    assert_eq!(fleet.written.len(), written, "no hot loop");
    assert_eq!(fleet.events_of("RemediationRestricted").len(), 1);
}

#[test]
fn their_own_controller_goes_first() {
    let mut fleet = fleet(3, Repair::Deletion);
    let (rival, lease) = rival(Rival::OpenShift, fleet.now().wall);
    fleet.rivals.insert("openshift-machine-api/theirs".into(), lease.clone());
    fleet.tell(Input::Seen(Fact::Rival { rival, name: "openshift-machine-api/theirs".into(), lease }));
    fleet.breaks("n1");
    fleet.wait(5);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False ForeignController"));
    // It has been silent for longer than its Lease lasts.
    fleet.wait(400);
    assert_eq!(names(&fleet), ["m0", "m2"]);
}

/// OpenShift ships such a check beside those that admins write.
fn terminator() -> MachineCheck {
    let mut terminating = crate::facts::check(
        Dialect::OpenShift,
        "a-terminator",
        Repair::Deletion,
        resus_core::mhc::facts::Budget::AtMost(Amount::Percent(100)),
    );
    let policy = terminating.policy.as_mut().expect("it is valid");
    policy.node_rules = vec![Rule { kind: "Terminating".into(), status: Status::True, lasts_for: std::time::Duration::ZERO }];
    policy.startup_timeout = None;
    terminating.created_at = resus_core::time::Wall(0);
    terminating
}

#[test]
fn a_check_that_only_waits_for_termination_owns_nothing_else() {
    let mut fleet = fleet(3, Repair::Deletion);
    fleet.add_check(terminator());
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(names(&fleet), ["m0", "m2"]);
    assert_eq!(fleet.checks[CHECK].status.condition("Overlapping"), None);

    // And nobody keeps it from what it is for.
    let mut node = fleet.nodes[&None]["n2"].clone();
    let since = fleet.now().wall;
    let terminating = Condition { kind: "Terminating".into(), status: Status::True, since, reason: "Spot".into() };
    (node.version, node.conditions) = (fleet.next_version(), [terminating].into());
    fleet.nodes.get_mut(&None).expect("it is there").insert("n2".into(), node.clone());
    fleet.tell(Input::Seen(Fact::Node(node)));
    fleet.wait(1);
    assert_eq!(names(&fleet), ["m0"]);
    assert_eq!(fleet.checks["a-terminator"].status.condition("Overlapping"), None);
}

#[test]
fn a_check_that_only_waits_for_termination_leaves_what_others_make() {
    let mut fleet = fleet(3, by_template());
    fleet.add_template();
    fleet.add_check(terminator());
    fleet.breaks("n1");
    fleet.wait(600);
    assert_eq!(fleet.remediations(), ["m1"]);
    assert_eq!(fleet.written.iter().filter(|key| key.starts_with("Delete")).count(), 0, "{:?}", fleet.written);
    // Nor while that check can do nothing, as its template is gone.
    fleet.remove_templates();
    fleet.wait(60);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False RemediationTemplateUnavailable"));
    assert_eq!(fleet.remediations(), ["m1"]);
    // It does not keep it either, when the check that made it is gone.
    fleet.remove_check(CHECK);
    fleet.wait(10);
    assert_eq!(fleet.remediations(), [""; 0]);
}

/// Its Node is wiped by whoever deletes it: to cut its power now would be in the middle of that. To replace the machine is what
/// comes of it anyway, and a finalizer may keep such a Node for ever.
#[test]
fn the_power_of_a_machine_whose_node_is_being_deleted_is_not_cut() {
    for repair in [Repair::Deletion, Repair::PowerCycle, by_template()] {
        let is_replaced = repair == Repair::Deletion;
        let mut fleet = fleet(3, repair);
        fleet.add_template();
        let mut node = fleet.nodes[&None]["n1"].clone();
        (node.version, node.deleting) = (fleet.next_version(), true);
        fleet.nodes.get_mut(&None).expect("it is there").insert("n1".into(), node.clone());
        fleet.tell(Input::Seen(Fact::Node(node)));
        fleet.breaks("n1");
        fleet.wait(600);
        if is_replaced {
            assert_eq!(names(&fleet), ["m0", "m2"]);
            continue;
        }
        assert_eq!(names(&fleet), ["m0", "m1", "m2"]);
        assert!(fleet.remediations().is_empty() && !fleet.machines["m1"].marks.power_cycle);
        assert!(fleet.message("RemediationHeld").contains("m1"), "{}", fleet.message("RemediationHeld"));
        fleet.node_goes(None, "n1");
        fleet.wait(10);
        assert!(!fleet.remediations().is_empty() || fleet.machines["m1"].marks.power_cycle, "now it is gone");
    }
}

/// Whose answer was lost, and whose node is well again: it may be on its way out all the same.
#[test]
fn a_machine_that_may_have_been_deleted_has_its_place_in_the_budget() {
    let mut fleet = Fleet::with(Dialect::OpenShift, 4, Repair::Deletion, Amount::Count(1));
    fleet.breaks("n1");
    fleet.wait(298);
    let sent = fleet.until_sent(|effect| matches!(effect, Effect::DeleteMachine { .. }));
    fleet.tell(Input::Answered(sent.key(), Answer::Unsure { why: "lost".into() }));
    fleet.recovers("n1");
    fleet.breaks("n2");
    fleet.wait(310);
    assert_eq!(fleet.machines.len(), 4, "m2 waits");
    fleet.remove("m1");
    fleet.wait(5);
    assert!(!fleet.machines.contains_key("m2"));
}
