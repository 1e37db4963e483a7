//! The numbers that users of the reference know.

use resus_core::facts::{Amount, Limit, Status};
use resus_core::gate::Tally;
use resus_core::mhc::budget::room;
use resus_core::mhc::facts::{Budget, Dialect, Repair, Sign};

use crate::facts::check;
use crate::model::{CHECK, Fleet};

const NO_LIMIT: Budget = Budget::AtMost(Amount::Percent(100));

struct Example {
    healthy: usize,
    pending: usize,
    unhealthy: usize,
    /// Of those that are unhealthy.
    deleting: usize,
    budget: Budget,
    allowed: bool,
    left: u32,
    marked: usize,
    event: bool,
}

fn percent(percent: u32) -> Budget {
    Budget::AtMost(Amount::Percent(percent))
}

fn count(count: u32) -> Budget {
    Budget::AtMost(Amount::Count(count))
}

fn range(min: u32, max: u32) -> Budget {
    Budget::Between { min, max }
}

/// Healthy, pending, unhealthy, limit; allowed, how many more may be, how many are marked.
fn example(
    (healthy, pending, unhealthy): (usize, usize, usize),
    budget: Budget,
    allowed: bool,
    left: u32,
    marked: usize,
) -> Example {
    Example { healthy, pending, unhealthy, deleting: 0, budget, allowed, left, marked, event: !allowed && unhealthy > 0 }
}

#[test]
fn the_range_that_forbids_is_named() {
    let mut fleet = Fleet::new(Dialect::V1beta2, 3);
    fleet.add_check(check(Dialect::V1beta2, CHECK, Repair::Owner, range(2, 3)));
    fleet.settle();
    fleet.breaks("n1");
    fleet.wait(302);
    let message = fleet.message("RemediationAllowed");
    assert!(
        message.starts_with("1 of 3 machines are not healthy") && message.contains("within the unhealthyRange [2-3]"),
        "{message}"
    );
}

#[test]
fn the_worked_examples_hold() {
    let examples = [
        example((2, 0, 1), percent(100), true, 2, 1),
        example((1, 0, 2), percent(40), false, 0, 0),
        example((3, 0, 2), percent(40), true, 0, 2),
        example((2, 0, 3), percent(50), false, 0, 0),
        example((2, 0, 3), percent(60), true, 0, 3),
        example((1, 0, 1), percent(40), false, 0, 0),
        example((1, 1, 1), count(1), false, 0, 0),
        example((2, 0, 1), range(1, 3), true, 2, 1),
        example((1, 0, 2), range(3, 5), false, 0, 0),
        example((3, 0, 0), range(1, 3), false, 0, 0),
        example((0, 0, 0), percent(100), true, 0, 0),
        example((0, 0, 0), count(3), true, 3, 0),
        Example { deleting: 1, ..example((2, 0, 2), percent(100), true, 2, 1) },
        example((0, 0, 3), NO_LIMIT, true, 0, 3),
        example((0, 0, 1), count(0), false, 0, 0),
    ];
    for (number, example) in examples.iter().enumerate() {
        play(number, example);
    }
}

fn play(number: usize, example: &Example) {
    let Example { healthy, pending, unhealthy, .. } = *example;
    let mut fleet = Fleet::new(Dialect::V1beta2, healthy + pending + unhealthy);
    fleet.add_check(check(Dialect::V1beta2, CHECK, Repair::Owner, example.budget));
    fleet.settle();
    (0..unhealthy).for_each(|n| fleet.breaks(&format!("n{n}")));
    (0..example.deleting).for_each(|n| fleet.change(&format!("m{n}"), |machine| machine.deleting = true));
    fleet.wait(302);
    (unhealthy..unhealthy + pending).for_each(|n| fleet.breaks(&format!("n{n}")));
    if pending > 0 {
        // The threshold counts what is pending, so the ill are marked before; what matters is what is allowed now.
        fleet.wait(2);
    } else {
        assert_eq!(fleet.all_asked().len(), example.marked, "example {number}");
    }
    let status = fleet.status();
    assert_eq!(status.expected, Some((healthy + pending + unhealthy) as u32), "example {number}");
    assert_eq!(status.healthy, Some(healthy as u32), "example {number}");
    assert_eq!(status.remediations_allowed, Some(example.left), "example {number}");
    let allowed = if example.allowed { "True RemediationAllowed" } else { "False TooManyUnhealthy" };
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some(allowed), "example {number}");
    assert_eq!(!fleet.events_of("RemediationRestricted").is_empty(), example.event, "example {number}");
    let failed =
        |n: &usize| fleet.sign(&format!("m{n}"), Sign::HealthCheckSucceeded).is_some_and(|sign| sign.starts_with("False"));
    assert_eq!((0..unhealthy).filter(failed).count(), unhealthy, "example {number}: what is ill is called so, allowed or not");
}

/// Of five machines with 40%: one acts and two stop; without the flag two act and three stop.
#[test]
fn at_the_limit_the_stricter_reading_stops() {
    for (limit, unhealthy, allowed) in
        [(Limit::Shut, 1, true), (Limit::Shut, 2, false), (Limit::Allowed, 2, true), (Limit::Allowed, 3, false)]
    {
        let mut fleet = Fleet::with(Dialect::V1beta1, 5, Repair::Owner, Amount::Percent(40));
        fleet.world.limit = limit;
        (0..unhealthy).for_each(|n| fleet.breaks(&format!("n{n}")));
        fleet.wait(302);
        assert_eq!(fleet.all_asked().len(), if allowed { unhealthy } else { 0 }, "{limit:?}, {unhealthy}");
    }
    // The range says what it says.
    let tally = Tally { targets: 5, not_healthy: 2, leftovers: 0 };
    assert!(room(range(1, 2), tally, Limit::Shut).allowed);
}

/// The counters are those of the reference, also where the limit is above the number of machines.
#[test]
fn counters_are_not_clamped() {
    let tally = Tally { targets: 3, not_healthy: 0, leftovers: 0 };
    assert_eq!(room(count(10), tally, Limit::Allowed).left, 10);
    assert_eq!(room(percent(150), tally, Limit::Allowed).left, 4);
    assert_eq!(Status::True.to_string(), "True");
}
