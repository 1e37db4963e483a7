//! What do peers say, and what follows from it?

use resus_core::fencing::agent::Cause;

use crate::hall::Hall;

#[test]
fn a_node_without_api_hears_of_its_order_from_its_peers() {
    for machines in 2..=5 {
        let mut hall = Hall::of(machines);
        hall.cut_from_api.insert("n0".into());
        hall.run_for(60);
        hall.order("n0");
        let since = hall.time;
        hall.run_for(60);
        assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Voted))], "of {machines}");
        let after = hall.first_reset("n0", since).expect("it was");
        assert!(after <= hall.terms.vote_each().as_secs_f64() + 1.0, "at its next vote, not after {after} s");
    }
}

/// Who has shown the number of a roll in its Lease tells its orders, with or without API.
#[test]
fn what_electors_have_read_they_tell_when_the_api_is_gone() {
    let mut hall = Hall::of(5);
    hall.cut_from_api.insert("n0".into());
    hall.order("n0");
    hall.run_for(6);
    assert!(["n1", "n2", "n3", "n4"].iter().all(|name| hall.leases[*name].claim.roll == 2), "all know it");
    hall.api_is_down = true;
    // Nobody hears it until none of them has the API either.
    hall.isolate("n0");
    hall.run_for(25);
    hall.cut.clear();
    hall.run_for(30);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Voted))]);
}

#[test]
fn an_elector_that_forgot_says_nothing_until_it_has_read_the_roll() {
    let mut hall = Hall::of(3);
    hall.cut_from_api.insert("n0".into());
    hall.order("n0");
    hall.run_for(6);
    // Both others restart without API: whatever they were told is gone.
    hall.api_is_down = true;
    hall.boot("n1", resus_core::fencing::agent::Device::Reliable);
    hall.boot("n2", resus_core::fencing::agent::Device::Reliable);
    let since = hall.time;
    hall.run_for(120);
    let after = hall.first_reset("n0", since).expect("silence kills it");
    assert!(after <= hall.terms.bound().as_secs_f64(), "after {after} s");
}

#[test]
fn many_nodes_without_api_do_not_drown_the_electors() {
    let mut hall = Hall::of(300);
    hall.asked = 0;
    hall.api_is_down = true;
    hall.run_for(120);
    assert_eq!(hall.resets().len(), 0);
    let each = hall.asked as f64 / 120.0 / 51.0;
    // For 5,000 nodes about 300 questions a second for each elector.
    assert!(each * 5000.0 / 300.0 < 450.0, "{each:.1} a second for each elector, of 300 nodes");
}
