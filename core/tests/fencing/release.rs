//! When is a node released, and what keeps it from that?

use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::lease::Order;
use resus_core::fencing::pill::{Done, Facts, Hold, Step, Strategy, Watch, Why, Word};

use crate::yard::{BOUND, Yard, pod};

const LOOK_AFTER: i64 = 15;

#[test]
fn one_step_follows_the_other_and_nothing_is_released_before_its_time() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(200);
    let deeds = ["cordon", "note", "order", "enter", "hold", "commit", "delete pods db", "note released", "unhold"];
    assert_eq!(yard.deeds(), deeds);
    let at = |what: &str| yard.when(what).expect(what);
    assert_eq!(
        at("hold"),
        at("order") + BOUND as i64,
        "the bound counts from when the order was known, and was known to be known"
    );
    assert_eq!(at("commit"), at("hold") + LOOK_AFTER);
    assert_eq!(yard.settle(), Step::Done(Done::Released));
    yard.case.ending = true;
    yard.wait(2);
    assert_eq!(yard.deeds()[deeds.len()..], ["uncordon"]);
    assert_eq!(yard.settle(), Step::Done(Done::Cleared));
}

#[test]
fn with_node_deletion_the_node_goes_last() {
    let mut yard = Yard::new(Strategy::NodeDeletion);
    yard.wait(200);
    let deeds = yard.deeds();
    assert_eq!(deeds[deeds.len() - 3..], ["delete pods db", "note released", "delete node"]);
    assert_eq!(yard.settle(), Step::Done(Done::Released));
}

#[test]
fn out_of_service_leaves_the_pods_to_kubernetes_and_stays_until_they_are_gone() {
    let mut yard = Yard::new(Strategy::OutOfServiceTaint);
    yard.wait(300);
    assert_eq!(yard.settle(), Step::Wait { why: Why::PodsLeaving, until: None });
    assert_eq!(yard.deeds().last(), Some(&"commit"));
    // Not even if the remediation goes: the node may be up again, and Kubernetes is deleting what it would start.
    yard.case.ending = true;
    yard.wait(60);
    assert_eq!(yard.deeds().last(), Some(&"commit"));
    yard.pods.clear();
    yard.wait(2);
    let deeds = yard.deeds();
    assert_eq!(deeds[deeds.len() - 2..], ["unhold", "uncordon"]);
}

#[test]
fn half_of_the_electors_have_to_know() {
    for (know, released) in [(vec![], false), (vec!["y"], false), (vec!["y", "z"], true), (vec!["x", "y"], false)] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.acks = know.iter().map(|name| (Name::from(*name), 8)).collect();
        let step = yard.wait(3600);
        assert_eq!(yard.is_released(), released, "{know:?}");
        if !released {
            let of_others = know.iter().filter(|name| **name != "x").count();
            assert_eq!(step, Step::Wait { why: Why::Acknowledging { know: of_others, needed: 2 }, until: None });
        }
    }
    // An older number does not have the order.
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.acks = ["y", "z"].map(|name| (name.into(), 7)).into();
    yard.wait(3600);
    assert!(!yard.is_released());
    // And the time counts from when they know.
    yard.acks = ["y", "z"].map(|name| (name.into(), 9)).into();
    let known_at = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(known_at + BOUND as i64));
}

#[test]
fn a_list_that_is_lost_fences_nobody() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.lease.as_mut().expect("a Lease").claim.roll = 3;
    assert_eq!(yard.wait(3600), Step::Wait { why: Why::ListLost, until: None });
    yard.case.word = Word::Confirmed;
    yard.wait(60);
    assert!(yard.is_released(), "but a person may");
}

#[test]
fn who_promises_nothing_is_not_released_by_time() {
    let change: [(&str, fn(&mut Yard), Why); 4] = [
        ("withdrawn", |yard| yard.lease.as_mut().expect("a Lease").claim.bound = None, Why::NoPromise),
        ("no Lease", |yard| yard.lease = None, Why::NoAgent),
        ("no agent in this boot", |yard| yard.lease.as_mut().expect("a Lease").claim.boot = "b0".into(), Why::NoAgent),
        (
            "not assured, and that is demanded",
            |yard| {
                let claim = &mut yard.lease.as_mut().expect("a Lease").claim;
                (claim.bound, claim.assured, yard.case.require_assured) = (None, false, true);
            },
            Why::NotAssured,
        ),
    ];
    for (what, change, why) in change {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        change(&mut yard);
        assert_eq!(yard.wait(3600), Step::Wait { why, until: None }, "{what}");
        assert!(!yard.is_released(), "{what}");
        yard.case.word = Word::KeptOff;
        yard.wait(60);
        assert!(yard.is_released(), "{what}: its BMC says that it is off");
    }
}

#[test]
fn a_node_without_a_watchdog_is_waited_for_as_long_as_configured() {
    for (safe_time, expected) in [(None, 180), (Some(300), 300)] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        let claim = &mut yard.lease.as_mut().expect("a Lease").claim;
        (claim.bound, claim.assured) = (None, false);
        yard.case.safe_time = safe_time.map(Duration::from_secs);
        yard.wait(400);
        assert_eq!(yard.waited(), Some(expected));
    }
}

#[test]
fn a_configured_time_raises_the_bound_and_never_lowers_it() {
    for (safe_time, expected) in [(10, BOUND as i64), (120, 120)] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.case.safe_time = Some(Duration::from_secs(safe_time));
        yard.wait(300);
        assert_eq!(yard.waited(), Some(expected));
    }
}

#[test]
fn any_sign_of_life_means_that_it_is_back() {
    let signs: [(&str, fn(&mut Yard)); 2] = [
        ("its Node shows another boot", |yard| {
            let version = yard.next_version();
            let node = yard.node.as_mut().expect("a Node");
            (node.boot, node.version) = ("b2".into(), version);
        }),
        ("its Lease shows another boot", |yard| yard.lease.as_mut().expect("a Lease").claim.boot = "b2".into()),
    ];
    for (what, sign) in signs {
        for after in [1, 50, 84, 86, 95] {
            let mut yard = Yard::new(Strategy::ResourceDeletion);
            yard.wait(after);
            sign(&mut yard);
            yard.wait(3600);
            assert!(!yard.is_released(), "{what} after {after} s");
        }
    }
    // The kubelet says something between the hold and the look.
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(90);
    assert!(yard.when("hold").is_some());
    yard.kubelet = Some(Version("99".into()));
    assert_eq!(yard.wait(3600), Step::Done(Done::Back));
    assert!(!yard.is_released());
}

/// A person may be wrong about a node whose agent says something in another boot.
#[test]
fn a_lease_that_moves_after_the_hold_is_a_sign_of_life() {
    for word in [Word::Confirmed, Word::KeptOff] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.lease.as_mut().expect("a Lease").claim.boot = "b0".into();
        yard.case.word = word;
        yard.wait(5);
        assert!(yard.when("hold").is_some());
        let version = yard.next_version();
        yard.lease.as_mut().expect("a Lease").version = version;
        assert_eq!(yard.wait(3600), Step::Done(Done::Back), "{word:?}");
        assert!(!yard.is_released(), "{word:?}");
    }
}

#[test]
fn pods_that_a_kubelet_would_start_keep_the_node_from_being_released() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.pods = vec![pod("db", false, false, false), pod("log", false, true, true)];
    assert_eq!(yard.wait(300), Step::Wait { why: Why::NotMarked { pods: vec!["db".into()] }, until: None });
    yard.pods[0].marked = true;
    yard.pods.push(pod("stubborn", false, true, false));
    assert_eq!(yard.wait(300), Step::Wait { why: Why::Tolerate { pods: vec!["stubborn".into()] }, until: None });
    yard.case.word = Word::Confirmed;
    yard.wait(60);
    assert!(!yard.is_released(), "nor does a person's word release what a kubelet would start");
    yard.case.word = Word::KeptOff;
    yard.wait(60);
    assert!(yard.is_released());
    assert!(yard.done.iter().any(|(_, what)| what == "delete pods db stubborn"), "not those of the node itself: {:?}", yard.done);
}

/// Kubernetes neither marks nor deletes what tolerates its taint: without us it would stay on a node that is off, for ever.
#[test]
fn out_of_service_what_tolerates_the_taint_is_deleted_while_the_node_is_kept_off() {
    let mut yard = Yard::new(Strategy::OutOfServiceTaint);
    yard.pods = vec![pod("stubborn", false, true, false), pod("db", true, false, false)];
    yard.case.word = Word::KeptOff;
    assert_eq!(yard.wait(60), Step::Wait { why: Why::PodsLeaving, until: None });
    assert_eq!(yard.deeds().last(), Some(&"delete pods stubborn"));
}

/// The node is up again, and something that tolerates everything was put there since: nobody has released that.
#[test]
fn what_came_after_the_commit_is_not_deleted() {
    for strategy in [Strategy::OutOfServiceTaint, Strategy::ResourceDeletion, Strategy::NodeDeletion] {
        let mut yard = Yard::new(strategy);
        let commit = yard.until(|step| matches!(step, Step::Commit(..)));
        yard.carry_out(commit);
        yard.pods = vec![pod("stubborn", false, true, false)];
        yard.wait(60);
        assert_eq!(yard.pods.len(), 1, "{strategy:?}: {:?}", yard.done);
        assert_eq!(yard.node.as_ref().map(|node| node.hold), Some(Hold::None), "{strategy:?}: its Node stays, too");
    }
}

/// Somebody bound it there before it knew of the hold, and a node that is back starts it as soon as the hold is gone.
#[test]
fn what_was_bound_after_the_look_is_deleted_when_kubernetes_has_marked_it() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    let commit = yard.until(|step| matches!(step, Step::Commit(..)));
    yard.carry_out(commit);
    yard.pods = vec![pod("late", false, false, false)];
    assert_eq!(yard.wait(60), Step::Wait { why: Why::NotMarked { pods: vec!["late".into()] }, until: None });
    yard.pods[0].marked = true;
    yard.wait(1);
    assert!(yard.deeds().contains(&"delete pods late"));
}

/// A kubelet may heed the marks alone: what it read before they were there, it shows within the time of the look.
#[test]
fn the_look_comes_after_the_marks() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.pods[0].marked = false;
    yard.wait(120);
    yard.pods[0].marked = true;
    let marked_at = yard.time + 1;
    yard.wait(60);
    assert_eq!(yard.when("commit"), Some(marked_at + LOOK_AFTER));
}

#[test]
fn another_leader_waits_anew() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(80);
    yard.watch = Watch::default();
    yard.facts = Facts::default();
    let began = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(began + BOUND as i64));
    assert_eq!(yard.deeds().iter().filter(|what| **what == "order").count(), 1, "what was ordered is not ordered again");
}

#[test]
fn a_lease_that_was_made_anew_has_to_be_ordered_anew() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(80);
    let version = yard.next_version();
    let lease = yard.lease.as_mut().expect("a Lease");
    (lease.uid, lease.order, lease.version) = ("another".into(), None, version);
    let began = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(began + BOUND as i64));
}

#[test]
fn somebody_elses_order_for_the_same_boot_is_not_written_over() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    let order = Order { boot: "b1".into(), remediation: "another".into() };
    yard.lease.as_mut().expect("a Lease").order = Some(order.clone());
    yard.wait(200);
    assert_eq!(yard.lease.as_ref().and_then(|lease| lease.order.clone()), Some(order), "an order is final, whoever gave it");
    assert!(yard.is_released(), "and its boot dies of it all the same");
}

#[test]
fn what_ends_before_anything_was_released_is_undone() {
    for after in [1, 50, 90] {
        let mut yard = Yard::new(Strategy::NodeDeletion);
        yard.wait(after);
        yard.case.ending = true;
        yard.wait(3600);
        let node = yard.node.as_ref().expect("it stays");
        assert_eq!((node.cordoned, node.hold), (false, Hold::None), "after {after} s");
        assert!(!yard.is_released());
        assert_eq!(yard.settle(), Step::Done(Done::Cleared));
    }
}
