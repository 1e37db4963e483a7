//! Upgrades, sign by sign: what stops, for how long, and what goes on meanwhile.

use std::time::Duration;

use crate::model::{Cluster, Fate, at_most};
use resus_core::decision::{Because, Verdict};
use resus_core::effect::Effect;
use resus_core::facts::{Name, Signal, SignalFact, Source, Status};
use resus_core::input::{Answer, Input};
use resus_core::nhc::StatusCondition;
use resus_core::plan::Plan;
use resus_core::reasons;
use resus_core::time::{Mono, Wall};
use resus_core::upgrade::{CURRENT_CONFIG, DESIRED_CONFIG, Detector, FOLLOWS_WITHIN, Mark, Off};

const MINUTE: i64 = 60_000;
const HALF_AN_HOUR: i64 = FOLLOWS_WITHIN.as_millis() as i64;

fn name(node: &str) -> Name {
    node.into()
}

/// n1 is broken and due; the cluster has come to rest before.
fn settled(prepare: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::new(5, at_most(2), Duration::from_secs(5));
    prepare(&mut cluster);
    cluster.run_well(10_000);
    cluster
}

fn break_n1(cluster: &mut Cluster) {
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
}

fn because(cluster: &mut Cluster) -> (Verdict, Because) {
    cluster.hear_all();
    decision(&cluster.turn(), "n1")
}

fn decision(plan: &Plan, node: &str) -> (Verdict, Because) {
    let found = plan.decisions.iter().find(|decision| &*decision.node == node).expect("the node is decided on");
    (found.verdict, found.because.clone())
}

fn held_by(cluster: &mut Cluster) -> Option<(Detector, String)> {
    match because(cluster) {
        (Verdict::Hold, because @ Because::Upgrading { detector, .. }) => Some((detector, because.to_string())),
        _ => None,
    }
}

fn busy(what: &str) -> SignalFact {
    SignalFact::Busy { what: what.into(), lasts: None, nodes: [].into() }
}

fn condition(cluster: &Cluster, kind: &str) -> StatusCondition {
    let found = cluster.check.status.conditions.iter().find(|condition| &*condition.kind == kind);
    found.cloned().unwrap_or_else(|| panic!("no condition {kind} in {:?}", cluster.check.status.conditions))
}

/// n1 is due, five seconds after it broke; half an hour later it is no sign of an upgrade any more, and is remediated.
fn is_held_for_half_an_hour(cluster: &mut Cluster, what: &str) {
    cluster.run_well(HALF_AN_HOUR - 6_000);
    assert!(cluster.created.is_empty(), "{what}");
    assert!(held_by(cluster).is_some(), "{what}");
    cluster.run_well(8_000);
    assert_eq!(cluster.remediated(), [name("n1")], "{what}");
}

fn lock_of(nodes: &[&str]) -> SignalFact {
    let nodes = nodes.iter().map(|node| name(node)).collect();
    SignalFact::Busy { what: "kured's lock is held".into(), lasts: None, nodes }
}

/// M11: it would stop the repair of all, itself included, so that what it is a sign of never ends.
#[test]
fn a_node_that_dies_in_its_upgrade_is_a_sign_of_it_for_half_an_hour() {
    let moves = |cluster: &mut Cluster, node: &str| {
        cluster.annotations.insert(name(node), vec![(DESIRED_CONFIG, "rendered-1")]);
        cluster.touch(&name(node));
    };
    let mut cluster = settled(|_| {});
    moves(&mut cluster, "n1");
    break_n1(&mut cluster);
    is_held_for_half_an_hour(&mut cluster, "machine config");

    for signal in [Signal::Kured, Signal::Plans] {
        let mut cluster = settled(|cluster| cluster.set_signal(signal, SignalFact::Quiet));
        cluster.set_signal(signal, lock_of(&["n1"]));
        break_n1(&mut cluster);
        is_held_for_half_an_hour(&mut cluster, signal.detector().name());
    }

    // A kubelet that changes its version again and again while it is not well.
    let mut cluster = settled(mixed);
    cluster.set_kubelet(&name("n1"), "v1.35.9");
    break_n1(&mut cluster);
    for version in 1..6 {
        assert!(held_by(&mut cluster).is_some(), "{version}");
        cluster.set_kubelet(&name("n1"), &format!("v1.35.{version}9"));
        cluster.run_well(5 * MINUTE);
    }
    cluster.set_kubelet(&name("n1"), "v1.35.99");
    cluster.run_well(5 * MINUTE - 10_000);
    assert!(cluster.created.is_empty());
    cluster.run_well(20_000);
    assert_eq!(cluster.remediated(), [name("n1")], "half an hour is over");
}

#[test]
fn what_others_are_a_sign_of_is_one_as_long_as_it_stands() {
    let moves = |cluster: &mut Cluster, node: &str| {
        cluster.annotations.insert(name(node), vec![(DESIRED_CONFIG, "rendered-1")]);
        cluster.touch(&name(node));
    };
    let mut cluster = settled(|_| {});
    moves(&mut cluster, "n1");
    moves(&mut cluster, "n3");
    break_n1(&mut cluster);
    cluster.run_well(24 * 60 * MINUTE);
    assert!(held_by(&mut cluster).is_some_and(|(_, said)| said.contains("node n3")), "n3 is well, and moves");
    for holders in [&["n1", "n3"][..], &["manual"], &["n1", "manual"], &["gone"], &[]] {
        let mut cluster = settled(|cluster| cluster.set_signal(Signal::Kured, SignalFact::Quiet));
        cluster.set_signal(Signal::Kured, lock_of(holders));
        break_n1(&mut cluster);
        cluster.run_well(24 * 60 * MINUTE);
        assert!(cluster.created.is_empty(), "{holders:?}");
    }
}

/// Whatever shows it: after two hours somebody should look.
#[test]
fn an_upgrade_of_more_than_two_hours_is_told_of_once() {
    let told = |cluster: &Cluster| cluster.events.iter().filter(|event| event.reason == reasons::UPGRADE_TAKES_LONG).count();
    let is_long = |cluster: &Cluster| {
        cluster.check.status.conditions.iter().any(|own| &*own.kind == reasons::UPGRADE_TAKES_LONG && own.status == Status::True)
    };
    let mut cluster = settled(|cluster| cluster.set_signal(Signal::ClusterVersions, SignalFact::Quiet));
    cluster.set_signal(Signal::ClusterVersions, busy("OpenShift moves to 4.99"));
    cluster.run_well(119 * MINUTE);
    assert!(told(&cluster) == 0 && !is_long(&cluster), "not yet");
    // Neither a restart nor another sign is a break.
    cluster.restart();
    cluster.set_signal(Signal::ClusterVersions, busy("OpenShift moves to 4.100"));
    cluster.run_well(2 * MINUTE);
    assert!(told(&cluster) == 1 && is_long(&cluster), "{:?}", cluster.check.status.conditions);
    cluster.run_well(24 * 60 * MINUTE);
    assert_eq!(told(&cluster), 1);
    assert!(cluster.events.iter().all(|event| event.reason != reasons::UPGRADE_TAKES_LONG || event.warning));
    cluster.set_signal(Signal::ClusterVersions, SignalFact::Quiet);
    cluster.run_well(1_000);
    assert!(!is_long(&cluster), "it is over");
}

fn mixed(cluster: &mut Cluster) {
    for (node, version) in [("n0", "v1.35.2"), ("n1", "v1.35.2"), ("n2", "v1.35.2"), ("n3", "v1.36.0"), ("n4", "v1.36.0")] {
        cluster.set_kubelet(&name(node), version);
    }
    cluster.list(Source::Nodes);
    cluster.restart();
}

#[test]
fn each_sign_alone_stops_what_would_start_and_its_end_lets_it_go_on() {
    type Change = fn(&mut Cluster);
    let quiet: [(Signal, Detector); 3] =
        [(Signal::ClusterVersions, Detector::ClusterVersion), (Signal::Kured, Detector::Kured), (Signal::Plans, Detector::Plans)];
    for (signal, detector) in quiet {
        let mut cluster = settled(|cluster| cluster.set_signal(signal, SignalFact::Quiet));
        cluster.set_signal(signal, busy("something moves"));
        break_n1(&mut cluster);
        assert_eq!(held_by(&mut cluster), Some((detector, "the cluster is being upgraded: something moves".into())));
        cluster.run_well(24 * 60 * MINUTE);
        assert!(cluster.created.is_empty(), "{detector}: it lasts as long as it says so");
        cluster.set_signal(signal, SignalFact::Quiet);
        cluster.run_well(1_000);
        assert_eq!(cluster.remediated(), [name("n1")], "{detector}");
    }
    let config = |cluster: &mut Cluster, value: &'static str| {
        cluster.annotations.insert(name("n3"), vec![(DESIRED_CONFIG, value)]);
        cluster.touch(&name("n3"));
    };
    let mut cluster = settled(|_| {});
    config(&mut cluster, "rendered-1");
    break_n1(&mut cluster);
    let (detector, said) = held_by(&mut cluster).expect("n3 moves to another configuration");
    assert_eq!(
        (detector, &*said),
        (Detector::MachineConfig, "the cluster is being upgraded: node n3 moves to machine config rendered-1")
    );
    config(&mut cluster, "");
    cluster.run_well(1_000);
    assert_eq!(cluster.remediated(), [name("n1")]);

    let follow: [(Detector, Change, &str); 2] = [
        (
            Detector::KubeletVersions,
            |cluster| cluster.set_kubelet(&name("n2"), "v1.36.0"),
            "the cluster is being upgraded: kubelets move from v1.35.2 to v1.36.0 (3 of 5 nodes have it)",
        ),
        (
            Detector::ServerVersion,
            |cluster| {
                cluster.server = "v1.36.1".into();
                cluster.run_well(6 * MINUTE);
            },
            "the cluster is being upgraded: the API server moved from v1.36.0 to v1.36.1, 3 of 5 nodes are behind it",
        ),
    ];
    for (detector, change, said) in follow {
        let mut cluster = settled(mixed);
        change(&mut cluster);
        break_n1(&mut cluster);
        assert_eq!(held_by(&mut cluster), Some((detector, said.into())));
        for node in ["n0", "n1", "n2"] {
            cluster.set_kubelet(&name(node), "v1.36.0");
        }
        cluster.run_well(1_000);
        assert_eq!(cluster.remediated(), [name("n1")], "{detector}: all have followed");
    }
}

#[test]
fn a_cluster_that_is_mixed_from_the_start_is_never_shut() {
    let mut cluster = settled(mixed);
    break_n1(&mut cluster);
    assert_eq!(cluster.remediated(), [name("n1")]);
    assert_eq!(condition(&cluster, reasons::UPGRADING).status, Status::False);
}

#[test]
fn half_an_hour_without_a_change_ends_it_and_the_plan_wakes_exactly_then() {
    let mut cluster = settled(mixed);
    cluster.run_well(137); // Off the beat of the lease, which wakes it too.
    cluster.set_kubelet(&name("n2"), "v1.36.0");
    cluster.hear_all();
    let changed_at = cluster.time;
    break_n1(&mut cluster);
    let kept = condition(&cluster, reasons::UPGRADING);
    assert_eq!((kept.status, &*kept.reason), (Status::True, "KubeletVersions"));
    cluster.run_well(changed_at + HALF_AN_HOUR - 1_000 - cluster.time);
    assert!(held_by(&mut cluster).is_some());
    assert!(cluster.created.is_empty());
    // With nothing else to wake it, it wakes itself.
    cluster.world.detectors.on = [Detector::KubeletVersions].into();
    let mut wakes = Vec::new();
    while cluster.time < changed_at + HALF_AN_HOUR {
        let plan = cluster.turn();
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time = plan.wake_at.expect("it wakes").0;
        wakes.push(cluster.time);
    }
    assert!(wakes.contains(&(changed_at + HALF_AN_HOUR)), "{wakes:?}, not {}", changed_at + HALF_AN_HOUR);
    assert!(held_by(&mut cluster).is_none());
    cluster.run_well(1_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
    assert_eq!(condition(&cluster, reasons::UPGRADING).status, Status::False);
}

#[test]
fn a_restart_keeps_what_is_left_of_it() {
    type Change = fn(&mut Cluster);
    let changes: [(Detector, Change); 2] = [
        (Detector::KubeletVersions, |cluster| cluster.set_kubelet(&name("n2"), "v1.36.0")),
        (Detector::ServerVersion, |cluster| cluster.server = "v1.36.1".into()),
    ];
    for (detector, change) in changes {
        let mut cluster = settled(mixed);
        cluster.run_well(290_000);
        change(&mut cluster);
        cluster.run_well(30_000); // The server is asked at the 300th second.
        let changed_by = cluster.time;
        assert_eq!(condition(&cluster, reasons::UPGRADING).status, Status::True);
        cluster.restart();
        cluster.run_well(10_000);
        cluster.time += 20 * MINUTE;
        cluster.restart();
        break_n1(&mut cluster);
        let (by, said) = held_by(&mut cluster).unwrap_or_else(|| panic!("{detector} has been forgotten"));
        assert_eq!(by, detector, "{said}");
        cluster.run_well(changed_by + HALF_AN_HOUR - cluster.time);
        assert_eq!(cluster.remediated(), [name("n1")], "{detector}: a restart makes it no longer");
    }
}

/// Whoever wrote the condition had another clock: then it counts from when it is seen, and ends.
#[test]
fn an_instant_from_the_future_ends_too() {
    let mut cluster = settled(mixed);
    cluster.set_kubelet(&name("n2"), "v1.36.0");
    cluster.run_well(10_000);
    let told = cluster.check.status.conditions.iter_mut().find(|condition| &*condition.kind == reasons::UPGRADING).unwrap();
    told.message = "moved; last change of a kubelet's version: 9999-01-01T00:00:00Z".into();
    cluster.restart();
    break_n1(&mut cluster);
    assert!(held_by(&mut cluster).is_some());
    cluster.run_well(HALF_AN_HOUR / 2);
    cluster.change_policy(|_| {}); // It is seen again, and says the same.
    cluster.run_well(HALF_AN_HOUR / 2);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

/// Somebody edited the message: the condition's own instant is left.
#[test]
fn a_mangled_message_leaves_the_instant_of_the_condition() {
    let mut cluster = settled(mixed);
    cluster.set_kubelet(&name("n2"), "v1.36.0");
    cluster.run_well(10_000);
    let told = cluster.check.status.conditions.iter_mut().find(|condition| &*condition.kind == reasons::UPGRADING).unwrap();
    told.message = "who knows".into();
    cluster.restart();
    cluster.run_well(1_000);
    break_n1(&mut cluster);
    assert_eq!(held_by(&mut cluster).map(|(detector, _)| detector), Some(Detector::KubeletVersions));
    cluster.run_well(HALF_AN_HOUR);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

/// A lock with an end of its own.
#[test]
fn a_lock_holds_no_longer_than_it_says() {
    let mut cluster = settled(|_| {});
    cluster.run_well(137); // Off the beat of the lease, which wakes it too.
    let lasts = Some((Wall(cluster.now().wall.0 - MINUTE), Duration::from_secs(10 * 60)));
    cluster.set_signal(Signal::Kured, SignalFact::Busy { what: "kured's lock is held by n4".into(), lasts, nodes: [].into() });
    let ends_at = cluster.time + 9 * MINUTE;
    break_n1(&mut cluster);
    cluster.run_well(ends_at - 1 - cluster.time);
    assert!(cluster.created.is_empty());
    let plan = cluster.turn();
    assert_eq!(plan.wake_at, Some(Mono(ends_at)));
    cluster.run_well(1_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

/// All goes well but one watch.
fn run_without_kured(cluster: &mut Cluster, seconds: usize) {
    for _ in 0..seconds {
        cluster.hear_all();
        for source in
            cluster.world.sources().filter(|source| **source != Source::Signals(Signal::Kured)).cloned().collect::<Vec<_>>()
        {
            let now = cluster.now();
            cluster.world.apply(Input::Heard(source), now);
        }
        cluster.turn();
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time += 1_000;
    }
}

#[test]
fn what_worked_and_then_breaks_stops_what_would_start_and_says_so() {
    let mut cluster = settled(|_| {});
    run_without_kured(&mut cluster, 30); // It has nothing to say, which is no doubt.
    let now = cluster.now();
    cluster.world.apply(Input::Broken(Source::Signals(Signal::Kured)), now);
    cluster.set_broken(&name("n1"), true);
    run_without_kured(&mut cluster, 9);
    assert_eq!(because(&mut cluster), (Verdict::Hold, Because::UpgradeUnknown { detector: Detector::Kured }));
    assert_eq!(condition(&cluster, reasons::UPGRADING).status, Status::False, "breaks of a moment are not worth a word");
    run_without_kured(&mut cluster, 5);
    assert_eq!(condition(&cluster, reasons::UPGRADING).status, Status::Unknown);
    assert_eq!(&*condition(&cluster, reasons::REMEDIATION_ALLOWED).reason, reasons::UPGRADE_UNKNOWN);
    assert!(cluster.created.is_empty());
    cluster.list(Source::Signals(Signal::Kured));
    cluster.run_well(1_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

#[test]
fn rights_that_are_taken_away_stop_what_would_start() {
    let mut cluster = settled(|_| {});
    cluster.forbidden.push(Signal::Kured);
    cluster.list(Source::Signals(Signal::Kured));
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.time += 6_000;
    let plan = cluster.turn();
    assert_eq!(decision(&plan, "n1"), (Verdict::Hold, Because::UpgradeUnknown { detector: Detector::Kured }));
    assert!(plan.watches.contains(&Source::Signals(Signal::Kured)), "it is tried on");
}

#[test]
fn a_server_that_no_longer_tells_its_version_stops_what_would_start() {
    let refused = || Answer::Refused { why: "no".into(), retry_after: None, forbidden: true };
    for (answer, after) in [(refused(), 5 * MINUTE), (Answer::Unsure { why: "lost".into() }, 10 * MINUTE + 1)] {
        let mut cluster = settled(|_| {});
        let until = cluster.time + after;
        while cluster.time < until {
            for source in cluster.world.sources().cloned().collect::<Vec<_>>() {
                let now = cluster.now();
                cluster.world.apply(Input::Heard(source), now);
            }
            cluster.turn();
            while let Some(effect) = cluster.requests.front().cloned() {
                if effect == Effect::ServerVersion {
                    cluster.requests.pop_front();
                    let now = cluster.now();
                    cluster.world.apply(Input::Answered(effect.key(), answer.clone()), now);
                } else {
                    cluster.execute(0, Fate::Done);
                }
            }
            cluster.time += 1_000;
        }
        cluster.set_broken(&name("n1"), true);
        cluster.hear_all();
        cluster.time += 6_000;
        let (verdict, because) = because(&mut cluster);
        assert_eq!(
            (verdict, because),
            (Verdict::Hold, Because::UpgradeUnknown { detector: Detector::ServerVersion }),
            "{answer:?}"
        );
        cluster.run_well(60_000);
        assert_eq!(cluster.remediated(), [name("n1")], "it answers again");
    }
}

#[test]
fn what_was_never_readable_is_off_and_tried_again_ever_more_rarely() {
    let mut cluster = settled(|cluster| cluster.forbidden.push(Signal::Kured));
    let plan = cluster.turn();
    assert_eq!(
        plan.detectors_off,
        [
            (Detector::ClusterVersion, Off::NotInstalled),
            (Detector::Kured, Off::NotReadable),
            (Detector::Plans, Off::NotInstalled)
        ]
    );
    assert!(!plan.watches.contains(&Source::Signals(Signal::Kured)));
    break_n1(&mut cluster);
    assert_eq!(cluster.remediated(), [name("n1")]);
    cluster.run_well(30 * MINUTE);
    cluster.forbidden.clear();
    cluster.run_well(21 * MINUTE);
    assert!(cluster.world.is_synced(&Source::Signals(Signal::Kured)), "rights that come later are noticed");
    assert_eq!(cluster.world.signals.refusal(Detector::Kured), None, "and the next refusal is not taken for the old one");
}

#[test]
fn until_it_is_known_whether_there_is_a_sign_nothing_starts() {
    for detector in [Detector::ClusterVersion, Detector::Plans, Detector::ServerVersion] {
        nothing_starts_until_answered(detector);
    }
}

fn nothing_starts_until_answered(detector: Detector) {
    let mut cluster = settled(|cluster| cluster.world.detectors.on = [detector].into());
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.restart();
    cluster.time += 6_000;
    let mut because = None;
    for _ in 0..10 {
        let plan = cluster.turn();
        because = because.or(plan.decisions.iter().find(|decision| &*decision.node == "n1").map(|found| found.because.clone()));
        // Everything is answered but what tells of upgrades.
        let about_upgrades = |effect: &Effect| match effect {
            Effect::ServerVersion => true,
            Effect::Discover { api_version } => &**api_version != "provider.test/v1",
            _ => false,
        };
        cluster.requests.retain(|effect| !about_upgrades(effect));
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
    }
    assert_eq!(because, Some(Because::UpgradeUnknown { detector }));
    assert!(cluster.created.is_empty());
}

#[test]
fn what_is_switched_off_is_neither_watched_nor_asked_nor_believed() {
    let mut cluster = settled(|cluster| {
        mixed(cluster);
        cluster.world.detectors.on.clear();
    });
    cluster.asked = 0;
    for signal in [Signal::ClusterVersions, Signal::Kured, Signal::Plans] {
        cluster.signals.insert(signal, busy("something moves"));
    }
    cluster.set_kubelet(&name("n2"), "v1.36.0");
    cluster.annotations.insert(name("n1"), vec![(DESIRED_CONFIG, "rendered-1")]);
    cluster.taints.insert(name("n1"), "medik8s.io/drain".into());
    cluster.touch(&name("n1"));
    break_n1(&mut cluster);
    assert_eq!(cluster.remediated(), [name("n1")]);
    assert!(!cluster.turn().watches.iter().any(|source| matches!(source, Source::Signals(_))));
    assert_eq!(cluster.asked, 0);
    assert_eq!(&*condition(&cluster, reasons::UPGRADING).reason, reasons::UPGRADING_OFF);
}

#[test]
fn clean_up_goes_on_during_an_upgrade_and_what_runs_stays() {
    let mut cluster = settled(|_| {});
    cluster.set_broken(&name("n1"), true);
    cluster.set_broken(&name("n2"), true);
    cluster.run_well(6_000);
    assert_eq!(cluster.remediated(), [name("n1"), name("n2")]);
    cluster.set_signal(Signal::Kured, busy("kured's lock is held by n4"));
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(6_000);
    assert_eq!(cluster.remediated(), [name("n2")], "n1 is healthy, n2 is not yet");
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    assert_eq!(cluster.remediated(), [name("n2")], "nothing starts");
}

#[test]
fn maintenance_of_a_node_stops_only_what_would_be_done_to_that_node() {
    for is_taint in [true, false] {
        let mut cluster = settled(|cluster| cluster.world.detectors.annotations.push(Mark::any("example.com/mended-by")));
        match is_taint {
            true => drop(cluster.taints.insert(name("n1"), "medik8s.io/drain".into())),
            false => drop(cluster.annotations.insert(name("n1"), vec![("example.com/mended-by", "me")])),
        }
        cluster.touch(&name("n1"));
        cluster.set_broken(&name("n1"), true);
        cluster.set_broken(&name("n2"), true);
        cluster.run_well(6_000);
        assert_eq!(cluster.remediated(), [name("n2")]);
        let (verdict, because) = because(&mut cluster);
        assert!(matches!(because, Because::UnderMaintenance { .. }), "{because}");
        assert_eq!(verdict, Verdict::Hold);
        cluster.taints.clear();
        cluster.annotations.clear();
        cluster.touch(&name("n1"));
        cluster.run_well(1_000);
        assert_eq!(cluster.remediated(), [name("n1"), name("n2")]);
    }
}

/// What was configured before the node had anything desired, or has what is desired, is no move.
#[test]
fn a_machine_config_that_is_reached_is_no_upgrade() {
    for key in [CURRENT_CONFIG, "example.com/other"] {
        let mut cluster = settled(|_| {});
        cluster.annotations.insert(name("n3"), vec![(key, "rendered-1")]);
        cluster.touch(&name("n3"));
        break_n1(&mut cluster);
        assert_eq!(cluster.remediated(), [name("n1")], "{key}");
    }
}

#[test]
fn a_quiet_cluster_is_asked_hardly_anything() {
    let mut cluster = settled(|_| {});
    cluster.run_well(10 * MINUTE);
    cluster.asked = 0;
    cluster.run_well(600 * MINUTE);
    let (versions, groups) = (120, 60);
    assert!(cluster.asked <= versions + groups + 2, "{} questions in 10 hours", cluster.asked);
}
