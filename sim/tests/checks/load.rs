//! What does the controller cost the API server?

use resus_sim::clock::{MINUTE, Millis, SECOND};
use resus_sim::scenario::Scenario;
use serde_json::json;

use crate::story::{HOUR, Story, WORKERS};

#[test]
fn in_a_quiet_cluster_there_are_watches_the_election_and_next_to_nothing_else() {
    let scenario = Scenario { ends_at: Millis::MAX, ..Scenario::calm(4, 20) };
    let mut story = Story::play(scenario.check(WORKERS, 30, "40%"));
    story.run(2 * MINUTE);
    let asked = story.asked_within(10 * MINUTE);
    let others: u64 = asked.iter().filter(|(what, _)| !what.starts_with("WATCH ")).map(|(_, times)| times).sum();
    assert!(asked.iter().all(|(what, _)| what.starts_with("WATCH ") || what.starts_with("GET ")), "{asked:?}");
    assert!(others <= 10, "{asked:?}");
    let watches: u64 = asked.iter().map(|(_, times)| times).sum::<u64>() - others;
    assert!(watches <= 10, "they last: {asked:?}");
}

/// The server ends every watch once an hour, and each end is a moment of doubt.
#[test]
fn watches_that_end_leave_no_trace_in_a_quiet_cluster() {
    let mut story = Story::with(6, &json!({}));
    story.run(MINUTE);
    assert_eq!(story.written_within(5 * HOUR), []);
}

#[test]
fn a_thousand_nodes_that_flap_for_a_minute_are_at_most_two_status_writes_a_second() {
    let mut story = Story::with(1000, &json!({"maxUnhealthy": "10%"}));
    let status = format!("PATCH {}/{WORKERS}/status", crate::story::CHECKS);
    let (mut most, mut events) = (0, 0);
    for second in 0..60 {
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
        let times = |what: &str| asked.get(what).copied().unwrap_or(0) - before.get(what).copied().unwrap_or(0);
        most = most.max(times(&status));
        events += times("POST /api/v1/namespaces/default/events");
    }
    assert!((1..=2).contains(&most), "{most} status writes in a second");
    assert!(events <= 120, "{events} events in a minute");
    story.expect(&[]);
    // And then it rests.
    (0..1000).for_each(|n| story.recovers(&format!("n{n}")));
    story.run(10 * SECOND);
    assert_eq!(story.written_within(10 * MINUTE), []);
    assert_eq!(story.status(WORKERS)["healthyNodes"], 1000);
}

#[test]
fn a_thousand_nodes_that_stay_unhealthy_by_turns_are_at_most_two_status_writes_a_second() {
    let mut story = Story::with(1000, &json!({"maxUnhealthy": "10%"}));
    let status = format!("PATCH {}/{WORKERS}/status", crate::story::CHECKS);
    let mut most = 0;
    for turn in 0..6 {
        for n in 0..1000 {
            match (turn + n / 60) % 2 {
                0 => story.breaks(&format!("n{n}")),
                _ => story.recovers(&format!("n{n}")),
            }
        }
        for _ in 0..10 {
            let written = story.written_within(SECOND);
            most = most.max(written.iter().filter(|(what, _)| *what == status).map(|(_, times)| *times).sum());
        }
    }
    assert!((1..=2).contains(&most), "{most} status writes in a second");
    story.expect(&[]);
}
