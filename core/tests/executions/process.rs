//! When the loop takes in, plans, rests and ends.

use std::time::Duration;

use resus_core::effect::{Effect, EffectKey};
use resus_core::facts::{Claim, Invalid, Name, Source};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::lease::{Election, LeaseAnswer, Timing};
use resus_core::mhc::facts::{Access, ClusterKey};
use resus_core::process::{News, Process, Turn};
use resus_core::time::{Mono, Now, Wall};
use resus_core::world::World;

use crate::model::{Cluster, at_most};

fn at(mono: i64) -> Now {
    Now { wall: Wall(1_800_000_000_000 + mono), mono: Mono(mono) }
}

fn process() -> Process {
    Process::new(World::new(Election::new("me".into(), Timing::default()), Claim::Marked), Mono(0))
}

/// One more Node that cannot be read.
fn change(process: &mut Process, now: i64, n: i64) {
    let node = Input::Unreadable { source: Source::Nodes, name: format!("n{n}").into(), why: "it has no uid".into() };
    assert!(process.hear(None, node, at(now)), "it is a change");
}

fn watch_of(turn: &Turn, source: &Source) -> Option<u64> {
    turn.begins.iter().find(|(_, own, _)| own == source).map(|(number, ..)| *number)
}

#[test]
fn it_turns_at_once_and_then_every_five_seconds_if_nothing_comes() {
    let mut process = process();
    assert_eq!(process.wake_at(), Mono(0));
    let turn = process.turn(at(0)).expect("it is time to");
    assert!(watch_of(&turn, &Source::Nodes).is_some());
    process.rest(Duration::from_millis(1), Mono(1));
    assert!(process.turn(at(1)).is_none());
    assert!(process.wake_at() > Mono(1) && process.wake_at() <= Mono(5_000));
    let due = process.wake_at();
    assert!(process.turn(Now { mono: due.shift(-1), ..at(0) }).is_none());
    assert!(process.turn(Now { mono: due, ..at(0) }).is_some());
}

/// A storm that lasts: planning takes 20 ms, and gets no more than a twentieth of the time, but pauses are short.
#[test]
fn it_rests_from_planning_and_no_longer_than_anybody_notices() {
    let mut process = process();
    process.turn(at(0)).expect("it is time to");
    process.rest(Duration::from_millis(1), Mono(0));
    let mut now = 100_000;
    // What was rested before counts: 20 s of it.
    let mut pauses = Vec::new();
    for n in 0..100 {
        change(&mut process, now, n);
        let rested_at = process.wake_at().0.max(now);
        pauses.push(rested_at - now);
        assert!(rested_at == now || process.turn(at(rested_at - 1)).is_none(), "more may come");
        now = rested_at;
        process.turn(at(now)).expect("it has rested");
        now += 20;
        process.rest(Duration::from_millis(20), Mono(now));
    }
    assert_eq!(pauses[0], 0, "nothing has to be waited for");
    assert!(pauses[1..40].iter().all(|pause| *pause == 10), "{pauses:?}");
    assert!(pauses[70..].iter().all(|pause| *pause == 50), "{pauses:?}");
}

/// A wake-up that is due waits for the rest, too, and is not asked for again and again meanwhile.
#[test]
fn a_change_during_the_rest_is_no_reason_to_wake_before_its_end() {
    let mut process = process();
    process.turn(at(0)).expect("it is time to");
    process.rest(Duration::from_secs(60), Mono(4_990));
    change(&mut process, 4_991, 0);
    assert_eq!(process.wake_at(), Mono(5_040));
    assert!(process.turn(at(5_030)).is_none());
    assert!(process.turn(at(5_040)).is_some());
}

#[test]
fn what_a_watch_that_was_ended_says_is_not_heard() {
    let mut process = process();
    let turn = process.turn(at(0)).expect("it is time to");
    let nodes = watch_of(&turn, &Source::Nodes).expect("they are watched");
    let listing = |process: &mut Process, watch| {
        process.hear(watch, Input::Listing(Source::Nodes), at(1));
        process.hear(watch, Input::Listed(Source::Nodes), at(2));
        process.world.is_synced(&Source::Nodes)
    };
    assert!(!listing(&mut process, Some(nodes + 100)));
    assert!(listing(&mut process, Some(nodes)));
}

/// A kind of templates that comes into use, goes out of it, and comes back, is watched anew each time.
#[test]
fn watches_follow_what_is_wanted_and_how_it_is_reached() {
    let mut process = process();
    process.turn(at(0)).expect("it is time to");
    let blue = ClusterKey { namespace: "ns".into(), name: "blue".into() };
    assert_eq!(process.access(&blue), None);
    let access = |text: &str| Fact::Access { cluster: blue.clone(), access: Ok(Access(text.into())) };
    process.hear(None, Input::Seen(access("one")), at(1));
    assert_eq!(process.access(&blue), Some(Access("one".into())));
    let broken = Fact::Access { cluster: blue.clone(), access: Err(Invalid("it is no YAML".into())) };
    process.hear(None, Input::Seen(broken), at(2));
    assert_eq!(process.access(&blue), None);
}

fn unreadable(process: &mut Process, source: Source, name: &str) -> Vec<News> {
    let (name, why): (Name, Name) = (name.into(), "it has no uid".into());
    process.hear(None, Input::Unreadable { source, name, why }, at(1));
    process.news()
}

/// Of our own server each time; of one of others each Node once, and not without end.
#[test]
fn what_cannot_be_read_is_told_without_filling_the_log() {
    let mut process = process();
    process.hear(None, Input::Listing(Source::Nodes), at(0));
    for _ in 0..2 {
        assert_eq!(unreadable(&mut process, Source::Nodes, "n1").len(), 1);
    }
    let blue = ClusterKey { namespace: "ns".into(), name: "blue".into() };
    let remote = Source::RemoteNodes(blue.clone());
    process.hear(None, Input::Listing(remote.clone()), at(0));
    let told = |process: &mut Process, name: &str| unreadable(process, remote.clone(), name).len();
    assert_eq!((told(&mut process, "n1"), told(&mut process, "n1")), (1, 0));
    let many: usize = (2..500).map(|n| told(&mut process, &format!("n{n}"))).sum();
    assert_eq!(many, 99);
    assert_eq!(unreadable(&mut process, Source::RemoteEtcd(blue), "kube-system/etcd-n1"), []);
}

/// It waits for what is under way, gives the leadership back, and ends: in eight seconds at most.
#[test]
fn it_stops_when_all_is_answered_or_in_time() {
    for is_answered in [true, false] {
        let mut process = process();
        let turn = process.turn(at(0)).expect("it is time to");
        let sent: Vec<Effect> = turn.sends.into_iter().map(|(effect, _)| effect).collect();
        assert!(sent.iter().any(|effect| matches!(effect, Effect::Lease(_))), "{sent:?}");
        process.rest(Duration::ZERO, Mono(0));
        assert!(!process.is_stopping() && !process.has_stopped(at(1)));
        process.stop(at(1));
        process.stop(at(2));
        assert!(process.is_stopping());
        assert_eq!(process.news().iter().filter(|news| **news == News::Stops).count(), 1);
        assert!(!process.has_stopped(at(2)), "an answer is still to come");
        if is_answered {
            process.hear(None, Input::LeaseAnswered(LeaseAnswer::Missing), at(3));
            for effect in &sent {
                process.hear(None, Input::Answered(effect.key(), Answer::Missing), at(3));
            }
            let mut now = 3;
            while !process.has_stopped(at(now)) {
                now = process.wake_at().0.max(now + 1);
                if let Some(turn) = process.turn(at(now)) {
                    process.rest(Duration::ZERO, Mono(now));
                    for (effect, _) in turn.sends {
                        process.hear(None, Input::Answered(effect.key(), Answer::Missing), at(now));
                    }
                }
                assert!(now < 1_000, "it ends soon");
            }
            assert!(!process.news().contains(&News::StopsUnanswered));
        } else {
            assert!(process.wake_at() <= Mono(8_001));
            assert!(!process.has_stopped(at(8_000)) && process.has_stopped(at(8_001)));
            assert_eq!(process.news(), [News::StopsUnanswered]);
        }
    }
}

#[test]
fn what_is_not_served_is_known_until_it_is_listed() {
    let mut process = process();
    process.hear(None, Input::NotServed(Source::Checks), at(0));
    assert!(process.unserved.contains(&Source::Checks));
    process.hear(None, Input::Listed(Source::Checks), at(1));
    assert!(process.unserved.is_empty());
    process.hear(None, Input::Gone(Gone::Check("none".into())), at(2));
}

/// Four nodes that we lead; `n1` has been broken for so long, of the five seconds that it may be.
fn led(broken_for: i64) -> (Process, Now) {
    let mut cluster = Cluster::new(4, at_most(1), Duration::from_secs(5));
    cluster.run_well(10_000);
    cluster.set_broken(&"n1".into(), true);
    cluster.hear_all();
    cluster.time += broken_for;
    (Process::new(cluster.world.clone(), cluster.now().mono), cluster.now())
}

fn later(now: Now, millis: i64) -> Now {
    Now { wall: Wall(now.wall.0 + millis), mono: now.mono.shift(millis) }
}

/// The lease itself may be asked for at any time.
#[test]
fn what_only_a_leader_does_is_not_sent_once_another_may_lead() {
    let (mut process, now) = led(5_001);
    let turn = process.turn(now).expect("it is time to");
    let not_after = |is_it: fn(&Effect) -> bool| turn.sends.iter().find(|(effect, _)| is_it(effect)).map(|(_, at)| *at);
    let leads_until = process.world.election.leads_until();
    assert!(leads_until > Some(now.mono));
    assert_eq!(not_after(|effect| matches!(effect, Effect::Look { .. })), Some(leads_until));
    assert_eq!(not_after(|effect| matches!(effect, Effect::Lease(_))), Some(None));
}

#[test]
fn what_is_under_way_is_not_sent_again() {
    let (mut process, now) = led(5_001);
    let sent: Vec<EffectKey> = process.turn(now).expect("it is time to").sends.iter().map(|(effect, _)| effect.key()).collect();
    assert!(sent.contains(&EffectKey::Look(None, "n1".into())), "{sent:?}");
    process.rest(Duration::ZERO, now.mono);
    let soon = later(now, 100);
    let change = Input::Unreadable { source: Source::Nodes, name: "n9".into(), why: "it has no uid".into() };
    assert!(process.hear(None, change, soon));
    let again = process.turn(soon).expect("something was heard");
    assert!(again.sends.iter().all(|(effect, _)| !sent.contains(&effect.key())), "{:?}", again.sends);
}

#[test]
fn it_wakes_when_a_node_becomes_due() {
    let (mut process, now) = led(3_000);
    process.turn(now).expect("it is time to");
    process.rest(Duration::ZERO, now.mono);
    assert!(process.wake_at() <= later(now, 2_001).mono);
}

/// As far as anybody knows, nothing of it is as it was when it is watched again.
#[test]
fn what_is_no_longer_watched_is_forgotten() {
    let (mut process, now) = led(0);
    let leases = watch_of(&process.turn(now).expect("it is time to"), &Source::NodeLeases).expect("there is a check");
    process.rest(Duration::ZERO, now.mono);
    assert!(process.world.is_synced(&Source::NodeLeases));
    process.hear(None, Input::Gone(Gone::Check("workers".into())), now);
    let turn = process.turn(later(now, 1_000)).expect("it is time to");
    assert!(turn.ends.contains(&leases) && process.news().contains(&News::NotWatched(Source::NodeLeases)));
    assert!(!process.world.is_synced(&Source::NodeLeases));
}

#[test]
fn it_does_not_stop_before_the_lease_is_given_back() {
    let (mut process, now) = led(5_001);
    let turn = process.turn(now).expect("it is time to");
    process.rest(Duration::ZERO, now.mono);
    let sent: Vec<Effect> = turn.sends.into_iter().map(|(effect, _)| effect).collect();
    let is_lease = |effect: &&Effect| matches!(effect, Effect::Lease(_));
    assert!(sent.iter().any(|effect| is_lease(&effect)) && sent.iter().any(|effect| !is_lease(&effect)), "{sent:?}");
    process.stop(now);
    for effect in sent.iter().filter(|effect| !is_lease(effect)) {
        process.hear(None, Input::Answered(effect.key(), Answer::Missing), now);
    }
    process.turn(later(now, 100)).expect("it is asked to end");
    assert!(!process.has_stopped(later(now, 100)), "the lease is ours");
}
