//! The agent ends, or its Lease does. What of the promise?

use resus_core::fencing::agent::{Cause, Device, Withheld};

use crate::hall::Hall;

#[test]
fn a_clean_stop_takes_the_promise_back_before_it_disarms() {
    let mut hall = Hall::of(3);
    hall.stop_agent("n0");
    hall.run_for(1);
    assert!(hall.machines["n0"].agent.is_none());
    assert_eq!((hall.bound("n0"), hall.is_armed("n0")), (None, false));
    hall.run_for(600);
    assert_eq!(hall.resets().len(), 0);
    hall.start_agent("n0");
    hall.run_for(30);
    assert!(hall.bound("n0").is_some() && hall.is_armed("n0"));
}

#[test]
fn without_api_a_stop_cannot_take_anything_back_and_nothing_is_disarmed() {
    let mut hall = Hall::of(3);
    hall.isolate("n0");
    hall.run_for(5);
    hall.stop_agent("n0");
    hall.run_for(120);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Silence))]);
}

#[test]
fn a_stop_does_not_escape_an_order() {
    let mut hall = Hall::of(3);
    hall.order("n0");
    hall.stop_agent("n0");
    hall.run_for(1);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Ordered))]);
}

#[test]
fn another_process_of_the_same_boot_keeps_what_the_first_promised() {
    let mut hall = Hall::of(3);
    hall.kill_agent("n0");
    hall.run_for(3);
    hall.start_agent("n0");
    hall.run_for(1);
    assert!(hall.is_armed("n0") && hall.bound("n0").is_some());
    hall.run_for(60);
    assert_eq!(hall.resets().len(), 0);
}

#[test]
fn another_process_lives_without_api_by_what_the_first_remembered() {
    let mut hall = Hall::of(3);
    hall.api_is_down = true;
    hall.run_for(60);
    hall.kill_agent("n0");
    hall.start_agent("n0");
    hall.run_for(600);
    assert_eq!(hall.resets().len(), 0);
    assert!(hall.is_armed("n0"));
}

/// How often is renewed, and so what is promised, follows from the number of agents, which the roll tells.
#[test]
fn another_process_knows_how_many_agents_there_are() {
    let mut hall = Hall::of(3);
    (hall.roll.number, hall.roll.agents) = (2, 5000);
    hall.run_for(90);
    let larger = hall.terms.for_agents(5000).bound();
    assert_eq!(hall.bound("n0"), Some(larger));
    hall.kill_agent("n0");
    hall.start_agent("n0");
    hall.run_for(30);
    assert_eq!(hall.bound("n0"), Some(larger), "also after a restart, though the roll is no news to it");
    assert_eq!(hall.resets().len(), 0);
}

/// Each opening feeds the watchdog: a process that crashes again and again would feed it for ever.
#[test]
fn a_process_without_a_proof_of_its_own_does_not_open_the_device() {
    let mut hall = Hall::of(3);
    hall.isolate("n0");
    let since = hall.time;
    for _ in 0..30 {
        hall.kill_agent("n0");
        hall.machine("n0").runs_off_at = hall.machine("n0").runs_off_at.map(|at| at.min(since + 10_000));
        hall.start_agent("n0");
        hall.run_for(1);
    }
    let after = hall.first_reset("n0", since).expect("it was");
    assert!(after <= 11.0, "after {after} s");
}

#[test]
fn an_agent_that_is_killed_for_good_is_reset_by_its_watchdog() {
    let mut hall = Hall::of(3);
    hall.kill_agent("n0");
    hall.run_for(11);
    assert_eq!(hall.resets().len(), 1);
}

#[test]
fn what_cannot_be_disarmed_is_fed_on_when_nothing_is_promised() {
    let mut hall = Hall::empty(3);
    hall.boot("n0", Device::Unstoppable);
    hall.run_for(30);
    hall.part(&["n0"], &["n1", "n2"]);
    hall.run_for(1200);
    assert_eq!(hall.withheld("n0"), Some(Withheld::Unheard));
    assert_eq!((hall.bound("n0"), hall.is_armed("n0")), (None, true));
    hall.isolate("n0");
    hall.run_for(600);
    assert_eq!(hall.resets().len(), 0);
}

#[test]
fn an_order_is_obeyed_at_the_next_renewal() {
    let mut hall = Hall::of(3);
    hall.order("n0");
    hall.run_for(6);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Ordered))]);
    hall.run_for(30);
    assert_eq!(hall.leases["n0"].claim.boot, crate::hall::boot_name(2), "the next boot shows itself");
    assert_eq!(hall.resets().len(), 1, "and the old order is none for it");
}

#[test]
fn a_machine_whose_name_was_given_to_another_dies() {
    let mut hall = Hall::of(3);
    let version = hall.leases["n1"].version.clone();
    let lease = hall.leases.get_mut("n0").expect("a Lease");
    lease.claim.boot = "another".into();
    lease.version = version;
    let since = hall.time;
    hall.run_for(120);
    let after = hall.first_reset("n0", since).expect("it was");
    assert!(after <= hall.terms.bound().as_secs_f64(), "after {after} s");
}

#[test]
fn a_lease_that_somebody_deleted_is_made_again() {
    let mut hall = Hall::of(3);
    hall.leases.remove("n0");
    hall.run_for(10);
    assert!(hall.bound("n0").is_some());
    assert_eq!(hall.resets().len(), 0);
}

#[test]
fn what_cannot_be_disarmed_waits_for_the_next_process_as_long_as_it_can() {
    for (seconds, resets) in [(6, 0), (12, 1)] {
        let mut hall = Hall::empty(3);
        hall.boot("n0", Device::Unstoppable);
        hall.run_for(30);
        hall.stop_agent("n0");
        hall.run_for(1);
        assert!(hall.machines["n0"].agent.is_none());
        assert_eq!((hall.bound("n0"), hall.is_armed("n0")), (None, true), "nothing is promised, and it runs on");
        hall.run_for(seconds - 1);
        if resets == 0 {
            hall.start_agent("n0");
        }
        hall.run_for(60);
        assert_eq!(hall.resets().len(), resets, "the next one comes after {seconds} s");
        assert!(hall.bound("n0").is_some());
    }
}

/// A release that crashes when it is armed: each boot would end in a reset.
#[test]
fn who_was_reset_again_and_again_is_not_armed_for_a_while() {
    let mut hall = Hall::of(3);
    hall.relapsing_until = Some(hall.now().shift(3_600_000));
    hall.boot("n0", Device::Reliable);
    hall.run_for(60);
    assert_eq!(hall.withheld("n0"), Some(Withheld::Relapsing));
    assert_eq!((hall.bound("n0"), hall.is_armed("n0")), (None, false));
    hall.kill_agent("n0");
    hall.run_for(60);
    assert_eq!(hall.resets().len(), 0, "whatever becomes of its agent");
    hall.start_agent("n0");
    hall.run_for(3600);
    assert!(hall.bound("n0").is_some() && hall.is_armed("n0"), "later it is tried again");
}
