//! What a leader knows may be old, and what it does may come late. What then?

use resus_core::facts::Name;
use resus_core::fencing::pill::{Done, Hold, Step, Strategy, Watch, Why, Word};
use resus_core::time::Wall;

use crate::yard::{BOUND, Yard};

const BOUND_S: i64 = BOUND as i64;

#[test]
fn the_wall_clock_neither_shortens_the_wait_nor_prolongs_it() {
    for wall in [i64::MIN, 0, i64::MAX] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.wait(10);
        yard.case.noted.as_mut().expect("it is noted").at = Wall(wall);
        yard.wait(200);
        assert_eq!(yard.waited(), Some(BOUND_S), "noted at {wall}");
    }
}

/// A leader that was deposed, or stood still, may send it whenever it likes.
#[test]
fn what_was_decided_before_the_node_moved_is_refused() {
    let steps: [(&str, fn(&Step) -> bool); 5] = [
        ("cordon", |step| matches!(step, Step::Cordon(_))),
        ("order", |step| matches!(step, Step::Order { .. })),
        ("hold", |step| matches!(step, Step::Hold(_))),
        ("commit", |step| matches!(step, Step::Commit(..))),
        ("delete node", |step| matches!(step, Step::DeleteNode { .. })),
    ];
    for (what, is_it) in steps {
        let mut yard = Yard::new(Strategy::NodeDeletion);
        let late = yard.until(is_it);
        assert!(!yard.refuses(&late), "{what}: in time it is done");
        yard.reboot();
        assert!(yard.refuses(&late), "{what}: {late:?}");
    }
}

#[test]
fn a_leader_that_stood_still_after_the_hold_looks_again_before_it_commits() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(BOUND_S + 5);
    assert!(yard.when("hold").is_some());
    yard.reboot();
    yard.time += 3600;
    assert_eq!(yard.settle(), Step::Done(Done::Back), "what it read before it stood still is too old to act on");
    assert!(!yard.is_released());
}

#[test]
fn an_api_that_comes_and_goes_does_not_prolong_the_wait() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    for _ in 0..20 {
        yard.wait(3);
        // Nothing can be read.
        yard.time += 7;
        yard.settle();
    }
    let waited = yard.waited().expect("it is held");
    assert!((BOUND_S..BOUND_S + 7).contains(&waited), "{waited} s");
    assert!(yard.is_released());
}

/// It restarts, and shows no number until it has read the roll again. Until then it says nothing, and then it knows the order again.
#[test]
fn an_elector_that_restarts_after_it_knew_of_the_order_does_not_prolong_the_wait() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(40);
    yard.acks.insert("y".into(), 0);
    yard.wait(5);
    yard.acks.remove("y");
    yard.wait(100);
    assert_eq!(yard.waited(), Some(BOUND_S));
    assert!(yard.is_released());
}

#[test]
fn who_has_known_of_another_order_does_not_know_of_this_one() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(40);
    // The Lease was made anew and ordered by somebody else, and nobody has heard of it yet.
    let version = yard.next_version();
    let lease = yard.lease.as_mut().expect("a Lease");
    (lease.uid, lease.version) = ("another".into(), version);
    yard.acks.clear();
    assert_eq!(yard.wait(3600), Step::Wait { why: Why::Acknowledging { know: 0, needed: 2 }, until: None });
    assert!(!yard.is_released());
}

/// Another machine had its name for a moment and the order was gone: the old one took the name back, and was ordered again by another leader.
#[test]
fn an_order_that_was_given_again_is_waited_for_again() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(80);
    let version = yard.next_version();
    yard.lease.as_mut().expect("a Lease").version = version;
    let began = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(began + BOUND_S));
}

#[test]
fn a_lease_that_is_deleted_meanwhile_keeps_the_node_from_being_released() {
    for after in [1, 50, BOUND_S + 5] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.wait(after);
        yard.lease = None;
        assert_eq!(yard.wait(3600), Step::Wait { why: Why::NoAgent, until: None }, "after {after} s");
        assert!(!yard.is_released(), "after {after} s");
    }
}

/// Nothing is as it was, though it looks like it.
#[test]
fn what_a_restored_backup_has_undone_is_done_anew() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    let (lease, roll) = (yard.lease.clone(), yard.roll.clone());
    yard.wait(80);
    (yard.lease, yard.roll) = (lease, roll);
    yard.acks = ["y", "z"].map(|name| (Name::from(name), 7)).into();
    assert_eq!(yard.wait(300), Step::Wait { why: Why::Acknowledging { know: 0, needed: 2 }, until: None });
    yard.acks = ["y", "z"].map(|name| (Name::from(name), 8)).into();
    let known_at = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(known_at + BOUND_S));
    assert_eq!(yard.deeds().iter().filter(|what| ["order", "enter"].contains(what)).count(), 4, "{:?}", yard.done);
}

#[test]
fn a_machine_that_is_kept_off_is_held_and_looked_at_like_any_other() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.case.word = Word::KeptOff;
    yard.wait(30);
    assert_eq!(yard.waited(), Some(0), "nobody has to wait for its end");
    assert_eq!(yard.when("commit").zip(yard.when("hold")).map(|(commit, hold)| commit - hold), Some(15));

    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.case.word = Word::KeptOff;
    yard.wait(10);
    yard.reboot();
    assert_eq!(yard.wait(3600), Step::Done(Done::Back), "it was another machine, or somebody has switched it on");
    assert!(!yard.is_released());
}

#[test]
fn power_that_comes_back_before_the_commit_takes_the_word_of_the_bmc_back() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.case.word = Word::KeptOff;
    yard.wait(10);
    assert!(yard.when("hold").is_some());
    yard.case.word = Word::None;
    yard.wait(60);
    assert!(!yard.is_released(), "it may be booting");
    yard.wait(60);
    let after = yard.when("commit").zip(yard.when("order")).map(|(commit, order)| commit - order);
    assert!(after >= Some(BOUND_S), "as if there were no BMC: {after:?}");
}

/// It came back, and is still not well. Its kubelet sees the hold and ends the pods; if it does not, this boot is the next to die.
#[test]
fn a_node_that_came_back_unwell_keeps_the_hold_and_is_ordered_anew() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(BOUND_S + 5);
    yard.reboot();
    assert_eq!(yard.wait(600), Step::Done(Done::Back));
    assert_eq!(yard.node.as_ref().map(|node| node.hold), Some(Hold::Held));
    assert!(!yard.is_released());

    (yard.case.noted, yard.case.remediation, yard.watch) = (None, "another".into(), Watch::default());
    let began = yard.time + 1;
    yard.acks = ["y", "z"].map(|name| (Name::from(name), 9)).into();
    yard.wait(200);
    let order = yard.lease.as_ref().and_then(|lease| lease.order.clone()).expect("an order");
    assert_eq!((&*order.boot, &*order.remediation), ("b2", "another"));
    assert!(yard.when("commit") >= Some(began + BOUND_S), "{:?}", yard.done);
}

#[test]
fn a_node_that_registers_again_after_it_was_deleted_is_left_alone() {
    let mut yard = Yard::new(Strategy::NodeDeletion);
    let mut node = yard.node.clone().expect("a Node");
    yard.wait(200);
    assert_eq!((yard.deeds().last(), yard.node.is_none()), (Some(&"delete node"), true));
    (node.uid, node.boot) = ("registered again".into(), "b2".into());
    yard.node = Some(node.clone());
    assert_eq!(yard.wait(600), Step::Done(Done::Released));
    assert_eq!((yard.deeds().last(), &yard.node), (Some(&"delete node"), &Some(node)));
}
