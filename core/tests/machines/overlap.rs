//! Two checks, one machine.

use resus_core::facts::{Amount, Claim, Status};
use resus_core::mhc::facts::{Budget, Dialect, Repair, Sign};
use resus_core::time::Wall;

use crate::facts::{by_template, check};
use crate::model::{CHECK, Fleet};

fn second(fleet: &mut Fleet, created_at: i64, repair: Repair, budget: Budget) {
    let mut other = check(Dialect::V1beta2, "other", repair, budget);
    other.created_at = Wall(created_at);
    fleet.add_check(other);
    fleet.settle();
}

const ALL: Budget = Budget::AtMost(Amount::Percent(100));
const NONE: Budget = Budget::AtMost(Amount::Count(0));

#[test]
fn the_older_check_acts_and_the_younger_says_so() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    // Older, and it would not act: its gate must not be bypassed.
    second(&mut fleet, 0, Repair::Owner, NONE);
    fleet.breaks("n1");
    fleet.wait(310);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("Overlapping").as_deref(), Some("True Overlapping"));
    assert!(
        fleet.message("Overlapping").contains("m1: the older check MachineHealthCheck ns/other"),
        "{}",
        fleet.message("Overlapping")
    );
    assert_eq!(fleet.status().healthy, Some(2), "it counts in both");
    assert_eq!(fleet.checks["other"].status.healthy, Some(2));
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded).as_deref(), Some("False UnhealthyNode"));

    // It goes, and the younger takes over.
    fleet.remove_check("other");
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.condition("Overlapping"), None);
}

#[test]
fn a_check_that_cannot_act_owns_nothing() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    second(&mut fleet, 0, by_template(), ALL);
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"], "the template of the other does not exist");
}

/// Two checks that disagree must not write over each other.
#[test]
fn checks_do_not_fight_over_a_machine() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Percent(100));
    let mut lenient = check(Dialect::V1beta2, "other", Repair::Owner, ALL);
    lenient.policy.as_mut().expect("it is valid").node_rules.retain(|rule| rule.status == Status::Unknown);
    fleet.add_check(lenient);
    fleet.settle();
    fleet.breaks("n1");
    fleet.wait(302);
    let written = fleet.written.len();
    fleet.wait(600);
    assert_eq!(fleet.written.len(), written, "{:?}", &fleet.written[written..]);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

#[test]
fn checks_of_others_count_as_older() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Percent(100));
    fleet.world.machine_claim = Claim::Marked;
    fleet.change_check(CHECK, |check| check.take_over = true);
    second(&mut fleet, i64::MAX / 2, Repair::Owner, ALL);
    fleet.breaks("n1");
    fleet.wait(310);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("Overlapping").as_deref(), Some("True Overlapping"));
}
