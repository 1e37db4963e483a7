//! Many machines, or half of them off for good. Who has a voice, and is it heard?

use resus_core::fencing::agent::{Cause, Device};
use resus_core::fencing::roll::ELECTORS_MAX;

use crate::hall::Hall;

const NOBODY: [(String, Option<Cause>); 0] = [];

#[test]
fn five_thousand_machines_live_through_an_outage_and_do_not_drown_their_electors() {
    let mut hall = Hall::of(5000);
    assert_eq!((hall.roll.electors.len(), hall.roll.agents), (51, 5000));
    let bounds: Vec<u64> = hall.machines.keys().filter_map(|name| hall.bound(name)).map(|bound| bound.as_secs()).collect();
    assert_eq!(bounds, [100; 5000], "they have heard how many they are");

    hall.api_is_down = true;
    hall.run_for(60);
    // By now all ask all electors.
    hall.asked = 0;
    hall.run_for(65);
    assert_eq!(hall.resets(), NOBODY);
    let of_each = hall.asked as f64 / 65.0 / ELECTORS_MAX as f64;
    assert!(of_each <= 310.0, "{of_each:.0} questions a second for each elector");
}

/// Each has its turn: what renewals cost the server does not grow with their number.
#[test]
fn the_more_agents_there_are_the_less_often_each_renews() {
    for (agents, each) in [(500, 5), (5000, 10)] {
        let mut hall = Hall::of(3);
        (hall.roll.number, hall.roll.agents) = (2, agents);
        hall.run_for(120);
        hall.renewals = 0;
        hall.run_for(600);
        assert_eq!(hall.renewals, 3 * 600 / each, "of {agents}");
    }
}

/// For ten minutes they count: whoever is cut off for less has not lost its voice. One more never had an agent.
#[test]
fn machines_that_are_off_for_long_or_have_no_agent_have_no_voice() {
    for (machines, off) in [(2, 1), (3, 2), (6, 3), (7, 5)] {
        for (minutes, dies) in [(1, true), (11, false)] {
            let mut hall = Hall::of(machines);
            hall.boot("n99", Device::None);
            hall.power_off("n99");
            (machines - off..machines).for_each(|n| hall.power_off(&format!("n{n}")));
            for _ in 0..minutes {
                hall.run_for(60);
                hall.call_roll();
            }
            // Until the next trial.
            hall.run_for(330);
            assert_eq!(hall.resets(), NOBODY, "{off} of {machines}");
            assert!(hall.bound("n0").is_some(), "{off} of {machines} after {minutes} minutes: it has been heard");
            hall.api_is_down = true;
            hall.run_for(3600);
            let dead = hall.resets().len();
            assert_eq!(dead, if dies { machines - off } else { 0 }, "{off} of {machines}, {minutes} minutes later");
        }
    }
}
