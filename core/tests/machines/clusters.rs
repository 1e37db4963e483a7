//! Machines whose nodes are in clusters of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use resus_core::decision::Because;
use resus_core::facts::{Amount, Invalid, Source, Status};
use resus_core::input::{Fact, Gone, Input};
use resus_core::mhc::facts::{
    Access, Budget, CLUSTER_LABEL, CONTROL_PLANE_MACHINE_LABEL, ClusterKey, Dialect, MachineCheck, Repair, Sign, Ties,
};
use resus_core::process::{Process, Way};
use resus_core::time::{Mono, Wall};

use crate::facts::{check, node, ready_since};
use crate::model::{CHECK, Fleet, plan};

fn remote(machines: usize) -> (Fleet, ClusterKey) {
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, machines).into_cluster();
    fleet.add_check(named(CHECK, "blue"));
    fleet.settle();
    (fleet, key)
}

fn named(name: &str, cluster: &str) -> resus_core::mhc::facts::MachineCheck {
    let mut check = check(Dialect::V1beta2, name, Repair::Owner, Budget::AtMost(Amount::Percent(100)));
    check.cluster = Some(cluster.into());
    check
}

#[test]
fn nodes_are_read_from_the_cluster_of_their_machines() {
    let (mut fleet, key) = remote(3);
    assert_eq!(fleet.status().healthy, Some(3));
    fleet.ready(Some(&key), "n1", Status::Unknown);
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    fleet.ready(Some(&key), "n1", Status::True);
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), [""; 0]);
}

#[test]
fn nodes_of_the_same_name_in_two_clusters_are_never_mixed_up() {
    let (mut fleet, _) = remote(2);
    let red = fleet.add_cluster("red", 0..1);
    // Of the same name as in the other cluster, and as in this one.
    fleet.tell(Input::Seen(Fact::Node(node(0, Wall(0)))));
    let labels = [(CLUSTER_LABEL, "red")].into_iter().collect();
    fleet.change("m1", |machine| {
        (machine.labels, machine.node, machine.provider_id) = (labels, Some("n0".into()), node(0, Wall(0)).provider_id);
    });
    fleet.add_check(named("red", "red"));
    fleet.settle();
    fleet.ready(Some(&red), "n0", Status::False);
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"], "m0 has another n0");
}

/// Its list is as it should be, and its watch breaks at once, again and again: it is never in doubt for long.
#[test]
fn a_watch_that_never_lives_is_told() {
    for (every, is_told) in [(3_000, true), (20_000, false)] {
        let (mut fleet, key) = remote(2);
        let source = Source::RemoteNodes(key.clone());
        for _ in 0..(120_000 / every) {
            fleet.tell(Input::Broken(source.clone()));
            fleet.settle();
            fleet.time += 200;
            fleet.list(source.clone());
            match is_told {
                true => drop(fleet.settle()),
                false => fleet.wait(every / 1000),
            }
            assert_eq!(fleet.world.fleet.asked_since(&key), None, "it has said which one it is");
            fleet.time += 1000;
        }
        fleet.tell(Input::Broken(source));
        fleet.settle();
        assert_eq!(fleet.condition("RemediationAllowed").as_deref() == Some("False Stale"), is_told, "{every}");
    }
}

#[test]
fn a_cluster_that_cannot_be_read_is_a_reason_to_wait_and_is_told() {
    let cases: [(fn(&mut Fleet, &ClusterKey), &str, &str); 5] = [
        (
            |fleet, key| fleet.tell(Input::Forbidden(Source::Access(key.clone()))),
            "False ClusterUnreachable",
            "resus manifests --cluster ns/blue | kubectl apply -f -",
        ),
        (
            |fleet, key| {
                fleet.access.remove(key);
                fleet.tell(Input::Gone(Gone::Access(key.clone())));
            },
            "False ClusterUnreachable",
            "there is no Secret blue-kubeconfig",
        ),
        (
            |fleet, key| {
                let access = Err(Invalid("the key value is missing".into()));
                fleet.access.insert(key.clone(), access.clone());
                fleet.tell(Input::Seen(Fact::Access { cluster: key.clone(), access }));
            },
            "False ClusterUnreachable",
            "the key value is missing",
        ),
        (
            |fleet, key| fleet.tell(Input::NoAccess { cluster: key.clone(), why: "it is no kubeconfig".into() }),
            "False ClusterUnreachable",
            "it is no kubeconfig",
        ),
        (
            |fleet, key| {
                fleet.clusters.remove(key);
                fleet.tell(Input::Gone(Gone::Cluster(Dialect::V1beta2, key.clone())));
            },
            "False ClusterMissing",
            "there is no Cluster ns/blue",
        ),
    ];
    for (break_it, condition, message) in cases {
        let (mut fleet, key) = remote(2);
        fleet.node_goes(Some(&key), "n1");
        break_it(&mut fleet, &key);
        fleet.wait(400);
        assert_eq!(fleet.all_asked(), [""; 0], "{message}");
        assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some(condition));
        assert!(fleet.message("RemediationAllowed").contains(message), "{}", fleet.message("RemediationAllowed"));
    }
}

/// A process that follows the Nodes of a Cluster, and the number of the watch that it does so by.
fn following(fleet: &Fleet, key: &ClusterKey) -> (Process, u64) {
    let mut process = Process::new(fleet.world.clone(), fleet.now().mono);
    let number = begun(&mut process, fleet, key).expect("its Nodes are watched");
    hear_list(&mut process, number, fleet, key);
    (process, number)
}

fn hear_list(process: &mut Process, number: u64, fleet: &Fleet, key: &ClusterKey) {
    let source = Source::RemoteNodes(key.clone());
    let nodes = fleet.facts(&source).into_iter().map(Input::Seen);
    for input in [Input::Listing(source.clone())].into_iter().chain(nodes).chain([Input::Listed(source.clone())]) {
        process.hear(Some(number), input, fleet.now());
    }
}

/// By the next turn; whatever it ends is ended.
fn begun(process: &mut Process, fleet: &Fleet, key: &ClusterKey) -> Option<u64> {
    process.rest(Duration::ZERO, Mono(0));
    let turn = process.turn(fleet.now()).expect("something was heard");
    let is_it = |(_, source, _): &&(u64, Source, Way)| *source == Source::RemoteNodes(key.clone());
    turn.begins.iter().find(is_it).map(|(number, ..)| *number)
}

/// Whoever replaces a Secret deletes it and makes it anew. What was heard so far is forgotten with it, and a watch that goes on
/// would never show it again.
#[test]
fn a_kubeconfig_that_comes_back_as_it_was_is_followed_from_the_beginning() {
    let (mut fleet, key) = remote(2);
    let (mut process, number) = following(&fleet, &key);
    for input in [
        Input::Gone(Gone::Access(key.clone())),
        Input::Seen(Fact::Access { cluster: key.clone(), access: fleet.access[&key].clone() }),
    ] {
        process.hear(None, input, fleet.now());
    }
    fleet.time += 6000;
    let anew = begun(&mut process, &fleet, &key).expect("it is watched anew");
    assert_ne!(anew, number);
    fleet.time += 6000;
    assert_eq!(begun(&mut process, &fleet, &key), None, "once");
    hear_list(&mut process, anew, &fleet, &key);
    assert!(process.world.is_fresh(&Source::RemoteNodes(key), fleet.now().mono));
}

/// It may come in the same moment as the kubeconfig that leads elsewhere.
#[test]
fn what_an_old_kubeconfig_leads_to_is_not_heard_any_more() {
    for has_listed in [true, false] {
        let (fleet, key) = remote(2);
        let mut process = Process::new(fleet.world.clone(), fleet.now().mono);
        let number = begun(&mut process, &fleet, &key).expect("its Nodes are watched");
        if has_listed {
            hear_list(&mut process, number, &fleet, &key);
        }
        let access = Ok(Access("another".into()));
        process.hear(None, Input::Seen(Fact::Access { cluster: key.clone(), access }), fleet.now());
        hear_list(&mut process, number, &fleet, &key);
        assert!(!process.world.is_synced(&Source::RemoteNodes(key.clone())));
        assert!(process.world.fleet.region(&key).is_none_or(|region| region.nodes.is_empty()));
        assert!(begun(&mut process, &fleet, &key).is_some());
    }
}

/// The process stood still for so long that it never planned without the Cluster.
#[test]
fn a_cluster_that_sent_too_much_is_watched_anew_however_late_that_is_thought_of() {
    let (mut fleet, key) = remote(2);
    let (mut process, number) = following(&fleet, &key);
    process.hear(Some(number), Input::TooMuch { cluster: key.clone(), why: "it is too much".into() }, fleet.now());
    fleet.time += 400_000;
    assert!(begun(&mut process, &fleet, &key).is_some());
}

/// The driver tries again what could not be used.
#[test]
fn a_kubeconfig_that_can_be_used_after_all_is_enough() {
    // Either watch may have been told that it cannot, and only that one tries again.
    for source in [Source::RemoteNodes, Source::RemoteEtcd] {
        let (mut fleet, key) = remote(2);
        fleet.tell(Input::NoAccess { cluster: key.clone(), why: "the name of its server leads nowhere".into() });
        fleet.ready(Some(&key), "n1", Status::False);
        fleet.wait(400);
        assert_eq!(fleet.all_asked(), [""; 0]);
        fleet.list(source(key));
        fleet.wait(10);
        assert_eq!(fleet.all_asked(), ["m1"]);
    }
}

#[test]
fn a_kubeconfig_that_may_be_read_again_is_enough() {
    let (mut fleet, key) = remote(2);
    fleet.tell(Input::Forbidden(Source::Access(key.clone())));
    fleet.ready(Some(&key), "n1", Status::False);
    fleet.wait(400);
    assert_eq!(fleet.all_asked(), [""; 0]);
    fleet.world.namespace = "elsewhere".into();
    fleet.wait(2);
    let command = "resus manifests --cluster ns/blue --namespace elsewhere | kubectl apply -f -";
    assert!(fleet.message("RemediationAllowed").contains(command), "{}", fleet.message("RemediationAllowed"));
    fleet.list(Source::Access(key));
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

/// A watch that breaks means that nothing is certain any more, and that no node is gone.
#[test]
fn a_broken_watch_stops_everything_there_and_its_return_resumes_it() {
    let (mut fleet, key) = remote(3);
    fleet.ready(Some(&key), "n1", Status::False);
    fleet.wait(290);
    fleet.hanging.insert(key.clone());
    fleet.tell(Input::Broken(Source::RemoteNodes(key.clone())));
    fleet.wait(100);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False Stale"));
    fleet.hanging.remove(&key);
    fleet.list(Source::RemoteNodes(key));
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("True RemediationAllowed"));
}

#[test]
fn a_node_is_gone_only_after_a_complete_list_of_its_own_cluster() {
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, 3).into_cluster();
    fleet.hanging.insert(key.clone());
    fleet.add_check(named(CHECK, "blue"));
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), [""; 0]);
    let because = plan(&fleet.world, fleet.now()).decisions;
    assert!(because.iter().all(|decision| decision.because != Because::Healthy), "{because:?}");
    fleet.hanging.remove(&key);
    fleet.list(Source::RemoteNodes(key));
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.status().healthy, Some(3));
}

#[test]
fn until_the_control_plane_is_up_only_its_own_machines_are_judged() {
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, 2).into_cluster();
    fleet.clusters.get_mut(&key).expect("it is there").control_plane_initialized_at = None;
    fleet.add_check(named(CHECK, "blue"));
    let labels = [(CLUSTER_LABEL, "blue"), (CONTROL_PLANE_MACHINE_LABEL, "")].into_iter().collect();
    fleet.change("m0", |machine| (machine.labels, machine.node) = (labels, None));
    fleet.change("m1", |machine| machine.node = None);
    fleet.wait(1200);
    assert_eq!(fleet.all_asked(), ["m0"]);
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded), None);
    assert_eq!(fleet.status().healthy, Some(0), "both count against the threshold");

    // What opens the gate is acted on at once, and starts the clock of the others.
    let now = fleet.now().wall;
    fleet.set_cluster(&key, |cluster| cluster.control_plane_initialized_at = Some(now));
    fleet.wait(598);
    assert_eq!(fleet.all_asked(), ["m0"]);
    fleet.wait(5);
    assert_eq!(fleet.all_asked(), ["m0", "m1"]);
}

#[test]
fn without_infrastructure_nobody_is_judged_and_machines_with_a_node_count_as_healthy() {
    let (mut fleet, key) = remote(3);
    fleet.set_cluster(&key, |cluster| cluster.infrastructure_ready_at = None);
    fleet.ready(Some(&key), "n1", Status::False);
    fleet.wait(400);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.status().healthy, Some(3));
    // A person may ask all the same.
    fleet.change("m2", |machine| machine.marks.remediate = true);
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m2"]);
}

#[test]
fn a_paused_cluster_is_not_touched() {
    let (mut fleet, key) = remote(3);
    fleet.set_cluster(&key, |cluster| cluster.paused = true);
    fleet.ready(Some(&key), "n1", Status::False);
    let written = fleet.written.len();
    fleet.wait(400);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("Paused").as_deref(), Some("True Paused"));
    assert_eq!(fleet.written.len(), written + 1, "but for the word that it is paused: {:?}", &fleet.written[written..]);
}

/// A check that names a cluster watches over that cluster's machines alone.
#[test]
fn where_there_are_no_clusters_machines_are_of_this_one() {
    let mut fleet = Fleet::new(Dialect::V1beta1, 3);
    let mut blue = named(CHECK, "blue");
    blue.dialect = Dialect::V1beta1;
    fleet.add_check(blue);
    let labels = [(CLUSTER_LABEL, "red")].into_iter().collect();
    fleet.change("m2", |machine| machine.labels = labels);
    fleet.settle();
    assert_eq!(fleet.status().expected, Some(2));
    fleet.breaks("n1");
    fleet.breaks("n2");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

/// One that accepts and never answers must not hold up the others.
#[test]
fn a_cluster_that_hangs_costs_the_others_nothing() {
    let (mut fleet, blue) = remote(100);
    let red = fleet.add_cluster("red", 0..80);
    for n in 0..80 {
        let labels = [(CLUSTER_LABEL, "red")].into_iter().collect();
        fleet.change(&format!("m{n}"), |machine| machine.labels = labels);
    }
    // The first in line.
    fleet.add_check(named("a-red", "red"));
    fleet.settle();
    (0..80).for_each(|n| fleet.ready(Some(&red), &format!("n{n}"), Status::False));
    (80..100).for_each(|n| fleet.ready(Some(&blue), &format!("n{n}"), Status::False));
    fleet.wait(299);
    fleet.hanging.insert(red);
    fleet.wait(3);
    assert_eq!(fleet.all_asked().len(), 20, "all of blue, none of red");
    assert!(!fleet.asked("m1") && fleet.asked("m81"));
}

/// To look for nodes in this cluster would be to find them gone.
#[test]
fn a_kind_cluster_that_is_not_served_yet_is_waited_for() {
    let mut fleet = Fleet::new(Dialect::V1beta2, 2);
    fleet.nodes.insert(None, BTreeMap::new());
    fleet.has_definition_only = true;
    fleet.add_check(named(CHECK, "blue"));
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.sign("m0", Sign::HealthCheckSucceeded), None);
}

#[test]
fn another_kubeconfig_may_lead_to_another_cluster() {
    let (mut fleet, key) = remote(2);
    fleet.hanging.insert(key.clone());
    let access = Ok(Access("elsewhere".into()));
    fleet.access.insert(key.clone(), access.clone());
    // Of the old one n1 was known to be well, and is gone in the same moment.
    fleet.tell(Input::Seen(Fact::Access { cluster: key.clone(), access }));
    fleet.tell(Input::Gone(Gone::RemoteNode(key.clone(), "n1".into())));
    fleet.wait(5);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert!(!fleet.world.is_synced(&Source::RemoteNodes(key.clone())), "until the new one has been listed nobody knows");
    fleet.hanging.remove(&key);
    fleet.list(Source::RemoteNodes(key));
    fleet.wait(1);
    assert_eq!(fleet.status().healthy, Some(2));
}

/// A list that does not show a definition says that it is gone, as its deletion in a watch does.
#[test]
fn a_kind_that_went_while_nobody_watched_is_gone() {
    let mut fleet = Fleet::new(Dialect::V1beta2, 2);
    fleet.has_definition_only = true;
    fleet.add_check(named(CHECK, "blue"));
    fleet.wait(5);
    assert_eq!(fleet.sign("m0", Sign::HealthCheckSucceeded), None, "its Cluster is waited for");
    fleet.has_definition_only = false;
    fleet.list(Source::Kinds);
    fleet.wait(5);
    assert_eq!(fleet.sign("m0", Sign::HealthCheckSucceeded).as_deref(), Some("True HealthCheckSucceeded"));
}

/// While a Cluster is moved, its checks go before its machines do.
#[test]
fn what_stands_on_machines_of_a_paused_cluster_stays_though_its_check_is_gone() {
    let (mut fleet, key) = remote(2);
    fleet.ready(Some(&key), "n1", Status::False);
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    fleet.set_cluster(&key, |cluster| cluster.paused = true);
    fleet.settle();
    let written = fleet.written.len();
    fleet.remove_check(CHECK);
    fleet.wait(60);
    assert_eq!(fleet.written.len(), written, "{:?}", &fleet.written[written..]);
    fleet.set_cluster(&key, |cluster| cluster.paused = false);
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), [""; 0]);
}

/// `clusterctl move` and the garbage collector follow both.
#[test]
fn a_check_is_tied_to_its_cluster_once() {
    let tied = Ties { has_labels: true, label: Some("blue".into()), has_owners: true, owner: Some((0, "uid-blue".into())) };
    for (ties, after) in [
        (Ties::default(), tied.clone()),
        (Ties { has_labels: true, label: Some("red".into()), ..Ties::default() }, tied.clone()),
        (Ties { has_owners: true, ..Ties::default() }, Ties { owner: Some((1, "uid-blue".into())), ..tied.clone() }),
        // A Cluster of that name that is no more.
        (
            Ties { owner: Some((2, "uid-of-old".into())), ..tied.clone() },
            Ties { owner: Some((2, "uid-blue".into())), ..tied.clone() },
        ),
    ] {
        let (fleet, _) = Fleet::new(Dialect::V1beta2, 3).into_cluster();
        let mut fleet = fleet;
        fleet.add_check(MachineCheck { ties: ties.clone(), ..named(CHECK, "blue") });
        fleet.wait(10);
        assert_eq!(fleet.checks[CHECK].ties, after, "{ties:?}");
        let count = |fleet: &Fleet| fleet.written.iter().filter(|what| what.starts_with("Tie(")).count();
        assert_eq!((count(&fleet), fleet.status().healthy), (1, Some(3)), "{ties:?}");
        fleet.wait(3600);
        assert_eq!(count(&fleet), 1, "{ties:?}");
    }
}

#[test]
fn a_check_of_a_paused_cluster_or_of_none_is_not_tied() {
    let count = |fleet: &Fleet| fleet.written.iter().filter(|what| what.starts_with("Tie(")).count();
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, 3).into_cluster();
    fleet.clusters.get_mut(&key).expect("there is one").paused = true;
    fleet.add_check(named(CHECK, "blue"));
    fleet.wait(60);
    assert_eq!(count(&fleet), 0, "nothing is touched there");
    fleet.set_cluster(&key, |cluster| cluster.paused = false);
    fleet.wait(2);
    assert_eq!(count(&fleet), 1);
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    fleet.wait(60);
    assert_eq!(count(&fleet), 0, "it is of this cluster");
}

/// Nodes are dated by the clock of their own cluster's server, whatever ours shows.
#[test]
fn nodes_of_a_workload_cluster_are_dated_by_its_servers_clock() {
    const HOUR: i64 = 3_600_000;
    for off in [-2 * HOUR, 2 * HOUR] {
        let (mut fleet, key) = remote(2);
        let tell_time = |fleet: &mut Fleet| {
            let date = Wall(fleet.now().wall.0 + off).whole_seconds();
            let sent_at = fleet.now().mono;
            fleet.tell(Input::Dated { cluster: Some(key.clone()), date, sent_at });
        };
        for _ in 0..12 {
            tell_time(&mut fleet);
            fleet.wait(10);
        }
        let mut node = fleet.nodes[&Some(key.clone())]["n1"].clone();
        let since = Wall(fleet.now().wall.0 + off).whole_seconds();
        (node.version, node.conditions) = (fleet.next_version(), [ready_since(Status::False, since)].into());
        fleet.nodes.get_mut(&Some(key.clone())).expect("it is there").insert("n1".into(), node.clone());
        fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), node)));
        for _ in 0..28 {
            tell_time(&mut fleet);
            fleet.wait(10);
        }
        assert_eq!(fleet.all_asked(), [""; 0], "off by {off}: not for five minutes");
        for _ in 0..4 {
            tell_time(&mut fleet);
            fleet.wait(10);
        }
        assert_eq!(fleet.all_asked(), ["m1"], "off by {off}");
    }
}

/// As for nodes.
#[test]
fn nothing_is_asked_for_while_our_clock_differs_from_the_servers() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    let tell_time = |fleet: &mut Fleet, off: i64| {
        let date = Wall(fleet.now().wall.0 + off).whole_seconds();
        let sent_at = fleet.now().mono;
        fleet.tell(Input::Dated { cluster: None, date, sent_at });
    };
    for _ in 0..10 {
        tell_time(&mut fleet, -600_000);
        fleet.wait(10);
    }
    fleet.breaks("n1");
    for _ in 0..40 {
        tell_time(&mut fleet, -600_000);
        fleet.wait(10);
    }
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False ClockDiffers"));
    for _ in 0..20 {
        tell_time(&mut fleet, 0);
        fleet.wait(10);
    }
    assert_eq!(fleet.all_asked(), ["m1"]);
}
