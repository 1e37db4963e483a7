//! The machine stood still. What does it still know, and what may it do?

use resus_core::facts::Name;
use resus_core::fencing::agent::{Act, Agent, Failure, Heard, Word};
use resus_core::fencing::vote::Reply;
use resus_core::fencing::wire;
use resus_core::time::Mono;

use crate::hall::Hall;
use crate::heritage::{promising, turn};

/// Paused, moved or snapshotted, and its clock stood still with it; that the wall clock has jumped is all that it sees.
fn pause(hall: &mut Hall, name: &str, seconds: i64) {
    hall.stand_still(name, seconds);
    hall.machine(name).behind += seconds * 1000;
    hall.tell(name, Heard::Paused);
}

#[test]
fn what_was_proved_before_a_pause_proves_nothing_after_it() {
    let mut hall = Hall::of(3);
    hall.isolate("n0");
    hall.run_for(2);
    pause(&mut hall, "n0", 600);
    let since = hall.time;
    hall.run_for(60);
    let after = hall.first_reset("n0", since).expect("it was");
    assert!(after <= 11.0, "its watchdog is not fed any more: after {after} s");
}

#[test]
fn after_a_pause_a_machine_asks_at_once() {
    for api_is_down in [false, true] {
        // Whenever its next vote would have been.
        for seconds in 60..75 {
            let mut hall = Hall::of(3);
            hall.api_is_down = api_is_down;
            hall.run_for(seconds);
            pause(&mut hall, "n0", 600);
            hall.run_for(60);
            assert_eq!(hall.resets().len(), 0, "the API, or if that is down ({api_is_down}) its peers; after {seconds} s");
        }
    }
}

#[test]
fn an_answer_to_what_was_asked_before_a_pause_proves_nothing() {
    let (mut agent, known, mut memory, mut now) = promising();
    let mut fed = Vec::new();
    while turn(&mut agent, &mut memory, &mut fed, now).is_empty() {
        now = now.shift(1000);
    }
    agent.hear(Heard::Paused, now);
    fed.clear();
    agent.hear(Heard::Lease(Ok(known.clone())), now);
    let asked = turn(&mut agent, &mut memory, &mut fed, now);
    assert_eq!(asked.len(), 1, "it asks again, at once");
    for seconds in 0..120 {
        turn(&mut agent, &mut memory, &mut fed, now.shift(seconds * 1000));
    }
    assert_eq!(fed, [0; 0], "nothing is answered any more");
    agent.hear(Heard::Lease(Ok(known)), now);
    turn(&mut agent, &mut memory, &mut fed, now.shift(10_000));
    assert_ne!(fed, [0; 0], "but what was asked after it does prove something");
}

#[test]
fn a_vote_that_was_begun_before_a_pause_proves_nothing() {
    let (mut agent, _, _, mut now) = promising();
    let mut votes = Vec::new();
    while votes.is_empty() {
        now = now.shift(1000);
        votes = without_api(&mut agent, now).0;
    }
    agent.hear(Heard::Paused, now);
    let reply = Word::Reply(Reply::Healthy);
    for (vote, peers) in votes {
        for from in peers {
            agent.hear(Heard::Replied { vote, from, reply, protocol: wire::PROTOCOL }, now);
        }
    }
    let mut fed = 0;
    for seconds in 0..120 {
        fed += without_api(&mut agent, now.shift(seconds * 1000)).1;
    }
    assert_eq!(fed, 0, "nobody answers what it asks now");
}

/// The drivers of some watchdogs stop them for the time of a sleep. The clock goes on, so the fuse burns on.
#[test]
fn a_machine_that_slept_does_not_feed_its_watchdog_before_it_has_a_new_proof() {
    for isolated in [true, false] {
        let mut hall = Hall::of(3);
        if isolated {
            hall.isolate("n0");
        }
        hall.stand_still("n0", 3600);
        let since = hall.time;
        hall.run_for(60);
        let after = hall.first_reset("n0", since);
        assert_eq!(after.is_some(), isolated);
        assert!(after.is_none_or(|after| after <= 11.0), "after {after:?} s");
    }
}

/// Whom it asks, and how often it feeds its watchdog.
fn without_api(agent: &mut Agent, now: Mono) -> (Vec<(u64, Vec<Name>)>, usize) {
    let (mut votes, mut fed) = (Vec::new(), 0);
    for act in agent.turn(now, 0) {
        match act {
            Act::Read | Act::Renew(..) => agent.hear(Heard::Lease(Err(Failure::Lost)), now),
            Act::Ask { vote, peers, trial: false } => votes.push((vote, peers)),
            Act::Feed => fed += 1,
            _ => {}
        }
    }
    (votes, fed)
}
