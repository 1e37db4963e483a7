//! What do peers say, and what follows from it?

use std::collections::BTreeSet;
use std::time::Duration;

use resus_core::facts::Name;
use resus_core::fencing::agent::{Cause, Device};
use resus_core::fencing::vote::{Electorate, Reply, Verdict, Vote};
use resus_core::time::Mono;

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
    hall.boot("n1", Device::Reliable);
    hall.boot("n2", Device::Reliable);
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

#[test]
fn more_than_half_of_every_list_is_needed() {
    // Lists of electors, who says that it has no API either, and whether that is enough for n0.
    let table: [(&[&[usize]], &[usize], bool); 9] = [
        (&[&[0]], &[], true),
        (&[&[0, 1]], &[], false),
        (&[&[0, 1]], &[1], true),
        (&[&[0, 1, 2, 3]], &[1], false),
        (&[&[0, 1, 2, 3]], &[1, 2], true),
        (&[&[1, 2, 3]], &[1], false),
        (&[&[1, 2, 3]], &[1, 2], true),
        (&[&[0, 1, 2], &[0, 3, 4]], &[1], false),
        (&[&[0, 1, 2], &[0, 3, 4]], &[1, 3], true),
    ];
    for (lists, say_so, enough) in table {
        let name = |n: &usize| Name::from(format!("n{n}"));
        let lists: Vec<BTreeSet<Name>> = lists.iter().map(|list| list.iter().map(name).collect()).collect();
        let electorate = Electorate { me: name(&0), lists, counts_me: true };
        let order: Vec<Name> = electorate.peers().into_iter().collect();
        let mut vote = Vote::begin(electorate, order, false, 1, Duration::from_secs(4), Mono(0));
        vote.ask(Mono(0));
        say_so.iter().for_each(|n| vote.hear(&name(n), Reply::NoApi));
        let expected = if enough { Verdict::Healthy { proved_at: Mono(0) } } else { Verdict::Undecided };
        assert_eq!(vote.verdict(Mono(4000)), Some(expected), "{say_so:?} of {vote:?}");
    }
}
