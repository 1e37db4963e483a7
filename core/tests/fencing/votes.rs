//! What do peers say, and what follows from it?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use resus_core::facts::Name;
use resus_core::fencing::agent::{Cause, Device};
use resus_core::fencing::pill::{Case, Facts, Hold, Node, Noted, Read, Step, Strategy, Watch, Why, Word};
use resus_core::fencing::vote::{Electorate, Reply, Verdict, Vote};
use resus_core::fencing::wire;
use resus_core::time::{Mono, Wall};

use crate::hall::Hall;

/// What a leader waits for that wants to fence this node, whose end is ordered.
fn waits_for(hall: &Hall, node: &str) -> Option<Why> {
    fn read<T>(hall: &Hall, found: T) -> Option<Read<T>> {
        Some(Read { asked_at: hall.now(), found })
    }
    let lease = hall.leases[node].clone();
    let boot = lease.claim.boot.clone();
    let case = Case {
        node: node.into(),
        remediation: "r".into(),
        strategy: Strategy::ResourceDeletion,
        ending: false,
        noted: Some(Noted { boot: boot.clone(), at: Wall(0), released: false }),
        safe_time: None,
        require_assured: false,
        word: Word::None,
    };
    let known = Node { uid: "u".into(), version: lease.version.clone(), boot, cordoned: true, hold: Hold::None };
    let acks: BTreeMap<Name, u64> = hall.leases.iter().map(|(name, lease)| (name.clone(), lease.claim.roll)).collect();
    let (node, lease, roll) = (read(hall, Some(known)), read(hall, Some(lease)), read(hall, hall.roll.clone()));
    let facts = Facts { node, lease, roll, acks, ..Facts::default() };
    let mut watch = Watch::default();
    watch.see(&case, &facts, hall.now());
    match watch.next(&case, &facts, hall.now()) {
        Step::Wait { why, .. } => Some(why),
        _ => None,
    }
}

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

/// etcd is slow, or the network goes one way: what electors write is stored, and they do not know. So they say that they have no API,
/// and the node lives by that; whoever saw them renew must not take it for dead.
#[test]
fn electors_that_get_no_answers_do_not_know_of_an_order_whatever_they_have_stored() {
    let mut hall = Hall::of(3);
    let before = hall.leases["n1"].version.clone();
    hall.cut_from_api.insert("n0".into());
    hall.deaf.extend(["n1".into(), "n2".into()]);
    hall.run_for(60);
    assert_ne!(hall.leases["n1"].version, before, "its renewal is stored");
    hall.order("n0");
    for _ in 0..10 {
        hall.run_for(60);
        assert_eq!(hall.resets().len(), 0, "they say that they have no API");
        assert_eq!(waits_for(&hall, "n0"), Some(Why::Acknowledging { know: 0, needed: 2 }));
    }
    hall.deaf.clear();
    hall.run_for(30);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Voted))]);
}

/// n0 and n1 have not heard that there are four now: they are more than half of three. The other two are half of four.
#[test]
fn who_counts_with_an_older_list_is_fenced_by_that_list() {
    let mut hall = Hall::of(3);
    hall.cut_from_api.extend(["n0".into(), "n1".into()]);
    hall.boot("n3", Device::Reliable);
    hall.run_for(30);
    hall.call_roll();
    hall.run_for(30);
    assert_eq!(hall.roll.electors.len(), 4);
    hall.part(&["n0", "n1"], &["n2", "n3"]);
    hall.order("n0");
    hall.run_for(600);
    assert_eq!(hall.resets().len(), 0, "they live by each other's word");
    assert_eq!(waits_for(&hall, "n0"), Some(Why::Acknowledging { know: 1, needed: 2 }));
    hall.cut_from_api.remove("n1");
    hall.run_for(30);
    assert_eq!(hall.resets(), [("n0".to_owned(), Some(Cause::Voted))], "n1 has read the order, and tells it");
}

#[test]
fn peers_do_not_speak_for_a_boot_that_its_lease_does_not_show() {
    let mut hall = Hall::of(3);
    hall.cut_from_api.insert("n0".into());
    hall.leases.get_mut("n0").expect("a Lease").claim.boot = "another".into();
    let since = hall.time;
    hall.run_for(120);
    let after = hall.first_reset("n0", since).expect("it was");
    assert!(after <= hall.terms.bound().as_secs_f64(), "after {after} s");
}

/// Who does not know what it promises by an answer does not give one that counts, and gets none.
#[test]
fn answers_count_between_versions_that_understand_each_other() {
    for (protocol, dead) in [(wire::PROTOCOL - 1, 0), (wire::PROTOCOL + 1, 0), (wire::PROTOCOL + 2, 3)] {
        let mut hall = Hall::of(3);
        hall.protocols = ["n1", "n2"].map(|name| (name.into(), protocol)).into();
        hall.api_is_down = true;
        hall.run_for(hall.terms.bound().as_secs() as i64);
        assert_eq!(hall.resets().len(), dead, "protocol {protocol}");
    }
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
