//! The API is out of reach. Whose fault is it?

use resus_core::fencing::agent::{Cause, Device, Withheld};

use crate::hall::{Hall, Refuses};

const NOBODY: [(String, Option<Cause>); 0] = [];

fn seconds(hall: &Hall) -> f64 {
    hall.terms.bound().as_secs_f64()
}

/// Who is reset from now on; nobody later than it promised.
fn dead_in_time(hall: &mut Hall) -> Vec<String> {
    let since = hall.time;
    hall.run_for(600);
    let dead: Vec<String> = hall.resets().into_iter().map(|(name, _)| name).collect();
    for name in &dead {
        let after = hall.first_reset(name, since).expect("it was");
        assert!(after <= seconds(hall), "{name} after {after} s");
    }
    dead
}

#[test]
fn everybody_promises_once_it_was_heard() {
    for machines in 1..=5 {
        let hall = Hall::of(machines);
        for name in hall.machines.keys() {
            assert!(hall.is_armed(name), "{name} of {machines}");
            assert_eq!(hall.bound(name), Some(hall.terms.bound()), "{name} of {machines}");
            assert_eq!(hall.leases[name].claim.roll, 1, "{name} of {machines}");
        }
    }
}

/// 002's causes 2, 3, 5 and 6: etcd or the API server fails, the network between, the account, or the rights.
#[test]
fn what_is_nobodys_own_fault_resets_nobody() {
    let causes: [(&str, fn(&mut Hall)); 4] = [
        ("the API server or etcd is gone", |hall| hall.api_is_down = true),
        ("the network between nodes and control plane is cut", |hall| hall.cut_from_api.extend(hall.machines.keys().cloned())),
        ("the account is gone: everything is refused", |hall| hall.refuses = Refuses::Everything),
        ("the rights are gone: writes are refused", |hall| hall.refuses = Refuses::Writes),
    ];
    for machines in 1..=5 {
        for (what, cause) in causes {
            let mut hall = Hall::of(machines);
            cause(&mut hall);
            hall.run_for(3600);
            assert_eq!(hall.resets(), NOBODY, "{what}, {machines} machines");
        }
    }
}

/// Admission refuses it, or etcd is full.
#[test]
fn where_only_writes_fail_reading_proves_enough() {
    let mut hall = Hall::of(3);
    hall.part(&["n0"], &["n1", "n2"]);
    hall.refuses = Refuses::Writes;
    hall.run_for(3600);
    assert_eq!(hall.resets(), NOBODY, "not even n0, which nobody hears");
}

/// 002's cause 1.
#[test]
fn a_node_that_reaches_nobody_is_reset_in_the_time_that_it_promised() {
    for machines in 2..=5 {
        let mut hall = Hall::of(machines);
        hall.isolate("n0");
        let since = hall.time;
        hall.run_for(120);
        assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Silence))], "of {machines}");
        let after = hall.first_reset("n0", since).expect("it was");
        assert!(after <= seconds(&hall), "after {after} s");
        assert!(after >= hall.terms.proof_for.as_secs_f64() - 10.0, "not sooner than it must: after {after} s");
    }
}

/// 002's cause 4.
#[test]
fn an_agent_that_gets_no_time_is_reset_by_its_watchdog() {
    let mut hall = Hall::of(3);
    hall.machine("n1").starved = true;
    let since = hall.time;
    hall.run_for(30);
    let after = hall.first_reset("n1", since).expect("it was");
    assert!(after <= 11.0, "after {after} s");
    assert_eq!(hall.resets().len(), 1);
}

#[test]
fn a_node_that_is_cut_from_the_api_alone_lives_by_its_peers() {
    for machines in 2..=5 {
        let mut hall = Hall::of(machines);
        hall.cut_from_api.insert("n0".into());
        hall.run_for(3600);
        assert_eq!(hall.resets(), NOBODY, "of {machines}");
    }
}

#[test]
fn a_node_that_is_cut_from_its_peers_alone_lives_by_the_api_and_takes_its_promise_back() {
    let mut hall = Hall::of(3);
    hall.part(&["n0"], &["n1", "n2"]);
    hall.run_for(1200);
    assert_eq!(hall.resets(), NOBODY);
    assert_eq!((hall.bound("n0"), hall.is_armed("n0")), (None, false), "an outage of the API would reset it");
    hall.api_is_down = true;
    hall.run_for(3600);
    assert_eq!(hall.resets(), NOBODY);
    hall.api_is_down = false;
    hall.cut.clear();
    hall.run_for(330);
    assert!(hall.is_armed("n0") && hall.bound("n0").is_some(), "when it is heard again it promises again");
}

#[test]
fn the_smaller_side_of_a_partition_dies_and_the_larger_lives() {
    // With the API on the side of the larger part.
    let mut hall = Hall::of(5);
    hall.part(&["n0", "n1"], &["n2", "n3", "n4"]);
    hall.cut_from_api.extend(["n0".into(), "n1".into()]);
    assert_eq!(dead_in_time(&mut hall), ["n0", "n1"]);
}

#[test]
fn with_the_api_on_nobodys_side_the_larger_part_lives() {
    let mut hall = Hall::of(5);
    hall.part(&["n0", "n1"], &["n2", "n3", "n4"]);
    hall.api_is_down = true;
    assert_eq!(dead_in_time(&mut hall), ["n0", "n1"]);
}

/// A switch that restarts in 35 s must not reboot a rack.
#[test]
fn a_network_that_is_gone_for_less_than_the_life_of_a_proof_resets_nobody() {
    let mut hall = Hall::of(5);
    for node in ["n0", "n1", "n2", "n3", "n4"] {
        hall.isolate(node);
    }
    hall.run_for(35);
    hall.cut.clear();
    hall.cut_from_api.clear();
    hall.run_for(300);
    assert_eq!(hall.resets(), NOBODY);
}

/// Nobody can tell that from being alone.
#[test]
fn a_network_that_is_gone_for_longer_resets_everybody_once() {
    let mut hall = Hall::of(3);
    for node in ["n0", "n1", "n2"] {
        hall.isolate(node);
    }
    let since = hall.time;
    hall.run_for(3600);
    for node in ["n0", "n1", "n2"] {
        assert_eq!(hall.machines[node].resets.len(), 1, "{node}");
        assert!(hall.first_reset(node, since) <= Some(seconds(&hall)), "{node}");
    }
}

#[test]
fn an_isolated_node_is_reset_once_and_then_waits() {
    let mut hall = Hall::of(3);
    hall.isolate("n2");
    hall.run_for(3600);
    assert_eq!(hall.resets().len(), 1, "nothing is promised in a boot that had no proof");
    assert!(!hall.is_armed("n2"));
}

#[test]
fn all_machines_that_power_up_before_the_api_wait_for_it() {
    let mut hall = Hall::empty(3);
    hall.api_is_down = true;
    hall.run_for(3600);
    assert_eq!(hall.resets(), NOBODY);
    hall.api_is_down = false;
    hall.run_for(60);
    assert!(hall.machines.keys().all(|name| hall.bound(name).is_some()));
}

/// It would stop when the process crashes, or is set not to reset.
#[test]
fn a_watchdog_that_proves_unreliable_is_as_good_as_none() {
    let mut hall = Hall::empty(3);
    hall.machine("n0").refuses_to_open = true;
    hall.run_for(30);
    assert_eq!((hall.bound("n0"), hall.leases["n0"].claim.assured), (None, false));
    assert_eq!(hall.withheld("n0"), Some(Withheld::NoWatchdog));
}

#[test]
fn a_machine_without_a_watchdog_promises_nothing_and_restarts_itself() {
    let mut hall = Hall::empty(3);
    hall.boot("n0", Device::None);
    hall.run_for(30);
    assert_eq!((hall.bound("n0"), hall.leases["n0"].claim.assured), (None, false));
    hall.isolate("n0");
    hall.run_for(120);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Silence))]);
}
