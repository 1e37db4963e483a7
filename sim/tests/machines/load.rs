//! What do checks of machines cost the API server?

use resus_core::mhc::facts::{Dialect, Flavour};
use resus_sim::clock::{MINUTE, SECOND};

use crate::check::Check;
use crate::story::{ALL, Story, WORKERS};

#[test]
fn a_quiet_fleet_costs_watches_and_next_to_nothing_else() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 20, &Check::default());
        story.run(MINUTE);
        let asked = story.asked_within(10 * MINUTE);
        assert!(asked.iter().all(|(what, _)| what.starts_with("WATCH ") || what.starts_with("GET ")), "{dialect:?}: {asked:?}");
        let others: u64 = asked.iter().filter(|(what, _)| !what.starts_with("WATCH ")).map(|(_, times)| times).sum();
        assert!(others <= 12, "{dialect:?}: {asked:?}");
    }
}

#[test]
fn a_fleet_in_which_much_is_wrong_is_quiet_too_once_all_is_said() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 10, &Check::at_most(1));
        (0..5).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(310 * SECOND);
        let asked = story.asked_within(60 * MINUTE);
        let writes: Vec<_> = asked.iter().filter(|(what, _)| !what.starts_with("WATCH ") && !what.starts_with("GET ")).collect();
        assert!(writes.is_empty(), "{dialect:?}: {writes:?}");
        let looks: u64 = asked.iter().filter(|(what, _)| what.starts_with("GET ")).map(|(_, times)| times).sum();
        assert!(looks <= 120, "{dialect:?}: no hot loop: {asked:?}");
    }
}

#[test]
fn a_thousand_machines_that_flap_are_at_most_two_status_writes_a_second_for_each_check() {
    for dialect in [Dialect::V1beta2, Dialect::OpenShift] {
        let mut story = Story::with(dialect, 1000, &Check { timeout: 5, ..Check::at_most("10%") });
        story.run(MINUTE);
        let status = format!("PATCH {}/status", story.check_path(WORKERS));
        let (mut most, mut events, mut all) = (0, 0, 0);
        for second in 0..30 {
            let before = story.simulation.asked().clone();
            // Every tenth of a second another hundred change their minds.
            for n in 0..1000 {
                match (second + n / 100) % 2 {
                    0 => story.breaks(&format!("n{n}")),
                    _ => story.recovers(&format!("n{n}")),
                }
                if n % 100 == 99 {
                    story.run(SECOND / 10);
                }
            }
            let asked = story.simulation.asked();
            let since = |what: &str| asked.get(what).copied().unwrap_or(0) - before.get(what).copied().unwrap_or(0);
            most = most.max(since(&status));
            events += since("POST /api/v1/namespaces/fleet/events");
            all += asked.values().sum::<u64>() - before.values().sum::<u64>();
        }
        assert!((1..=2).contains(&most), "{dialect:?}: {most} status writes in a second");
        assert!(events <= 60, "{dialect:?}: {events} events in half a minute");
        assert!(all <= 300, "{dialect:?}: {all} requests in half a minute");
        assert_eq!((story.asked().len(), story.machines().len()), (0, 1000), "{dialect:?}");
        // And then it rests.
        (0..1000).for_each(|n| story.recovers(&format!("n{n}")));
        story.run(10 * SECOND);
        story.expect_quiet();
        assert_eq!(story.counters(WORKERS), [1000, 1000, 100], "{dialect:?}");
    }
}

/// They are called unhealthy one after the other, and healthy again, but not faster than others can bear.
#[test]
fn a_thousand_machines_that_break_at_once_are_all_called_so_and_then_there_is_silence() {
    for dialect in [Dialect::V1beta2, Dialect::OpenShift] {
        let mut story = Story::with(dialect, 1000, &Check { timeout: 5, ..Check::at_most("10%") });
        story.run(MINUTE);
        (0..1000).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(2 * MINUTE);
        if dialect.flavour() == Flavour::ClusterApi {
            let is_called_ill = |n: &usize| story.sign(&format!("m{n}"), "HealthCheckSucceeded") == ["False UnhealthyNode"; 2];
            assert_eq!((0..1000).filter(is_called_ill).count(), 1000);
        }
        assert_eq!((story.asked().len(), story.machines().len()), (0, 1000), "{dialect:?}");
        story.expect_quiet();
    }
}
