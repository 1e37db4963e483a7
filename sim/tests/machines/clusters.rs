//! Machines whose nodes are in clusters of their own, which come and go, hang, and lie.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use resus_core::mhc::facts::Dialect;
use resus_sim::clock::{MINUTE, SECOND};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{BLUE, CLUSTER_API, FLEET, HERE, POOL, Story, WORKERS};

const NOBODY: [&str; 0] = [];
const RED: &str = "red";

/// As many machines in each of two clusters, with nodes of the same names: `m0` and so on in blue, `r0` and so on in red.
fn two_clusters(machines: usize) -> Story {
    let mut story = Story::of(Dialect::V1beta2, machines);
    story.add_cluster(RED);
    for n in 0..machines {
        story.add_node(RED, &format!("n{n}"));
        story.add_machine(RED, &format!("r{n}"), Some(&format!("n{n}")));
    }
    story.add_check(WORKERS, &Check::default());
    story.add_check("reds", &Check { cluster: RED, ..Check::default() });
    story.run(10 * SECOND);
    story
}

#[test]
fn nodes_of_the_same_names_in_two_clusters_are_never_mixed_up() {
    let mut story = two_clusters(3);
    // And here there are some, too.
    (0..3).for_each(|n| story.add_node(HERE, &format!("n{n}")));
    assert_eq!((story.counters(WORKERS), story.counters("reds")), ([3, 3, 3], [3, 3, 3]));
    story.ready(RED, "n1", "False");
    story.ready(HERE, "n0", "False");
    story.run(310 * SECOND);
    assert_eq!(story.asked(), ["r1"]);
    assert_eq!(story.counters(WORKERS), [3, 3, 3]);
    story.remove_node(BLUE, "n2");
    story.run(2 * SECOND);
    assert_eq!(story.asked(), ["m2", "r1"]);
    story.ready(RED, "n1", "True");
    story.run(2 * SECOND);
    assert_eq!(story.asked(), ["m2"]);
}

#[test]
fn a_cluster_that_hangs_is_waited_for_and_costs_the_other_nothing() {
    // In each more than there may be requests under way at once.
    let mut story = two_clusters(80);
    for n in 0..80 {
        story.ready(RED, &format!("n{n}"), "False");
        story.ready(BLUE, &format!("n{n}"), "False");
    }
    story.run(299 * SECOND);
    story.simulation.hang_remote(RED, true);
    story.run(4 * SECOND);
    let asked = story.asked();
    assert_eq!(asked.len(), 80, "{asked:?}");
    assert!(asked.iter().all(|machine| machine.starts_with('m')), "{asked:?}");
    story.run(5 * MINUTE);
    assert_eq!(story.condition("reds", "RemediationAllowed").as_deref(), Some("False Stale"), "it is told");
    assert!(story.condition(WORKERS, "RemediationAllowed").is_some_and(|told| told.starts_with("True")));
    story.simulation.hang_remote(RED, false);
    story.run(20 * SECOND);
    assert_eq!(story.asked().len(), 160, "and then it goes on");
}

#[test]
fn a_server_that_goes_away_stops_everything_there_and_its_return_resumes_it_within_seconds() {
    for dialect in CLUSTER_API {
        let mut story = Story::with(dialect, 3, &Check::default());
        story.breaks("n1");
        story.run(290 * SECOND);
        story.simulation.switch_remote(BLUE, false);
        story.run(10 * MINUTE);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}: nobody knows how it is");
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False Stale"), "{dialect:?}");
        story.simulation.switch_remote(BLUE, true);
        story.run(15 * SECOND);
        assert_eq!(story.asked(), ["m1"], "{dialect:?}: its time was over long ago");
        assert!(story.condition(WORKERS, "RemediationAllowed").is_some_and(|told| told.starts_with("True")), "{dialect:?}");
    }
}

/// It came back meanwhile; what stood there before it went away is no reason.
#[test]
fn a_node_that_recovered_while_its_server_was_away_is_left_alone() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    story.breaks("n1");
    story.run(290 * SECOND);
    story.simulation.switch_remote(BLUE, false);
    story.run(MINUTE);
    story.recovers("n1");
    story.simulation.switch_remote(BLUE, true);
    story.run(30 * MINUTE);
    assert_eq!(story.asked(), NOBODY);
    assert_eq!(story.events("MachineMarkedUnhealthy"), NOBODY);
}

#[test]
fn a_cluster_that_was_never_reached_has_no_nodes_that_are_gone() {
    let mut story = Story::of(Dialect::V1beta2, 3);
    story.simulation.switch_remote(BLUE, false);
    story.add_check(WORKERS, &Check::default());
    story.run(10 * MINUTE);
    assert_eq!(story.asked(), NOBODY);
    story.restart_controller();
    story.run(10 * MINUTE);
    assert_eq!(story.asked(), NOBODY);
    story.simulation.switch_remote(BLUE, true);
    story.run(10 * SECOND);
    assert_eq!(story.counters(WORKERS), [3, 3, 3]);
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_told_and_another_is_taken_up_at_once() {
    let secret = format!("/api/v1/namespaces/{FLEET}/secrets/blue-kubeconfig");
    for data in
        [json!({"value": STANDARD.encode("nonsense")}), json!({"value": null}), json!({"value": STANDARD.encode([0xff_u8])})]
    {
        let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
        story.remove_node(BLUE, "n1");
        story.write_access(BLUE, &data);
        story.recovers("n2");
        story.run(10 * SECOND);
        // What was found out before that stands, but nothing is added to it.
        let before = story.asked();
        story.breaks("n2");
        story.run(10 * MINUTE);
        assert_eq!(story.asked(), before, "{data}");
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False ClusterUnreachable"), "{data}");
        story.write_access(BLUE, &json!({"value": STANDARD.encode(BLUE)}));
        story.run(5 * SECOND);
        assert_eq!(story.asked(), ["m1", "m2"], "{data}");

        story.delete(&secret);
        story.run(5 * SECOND);
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False ClusterUnreachable"), "{data}");
        assert!(story.message(WORKERS, "RemediationAllowed").contains("blue-kubeconfig"), "{}", story.status(WORKERS));
    }
}

/// Certificates and addresses change; what was known of the nodes is read anew from the new server.
#[test]
fn a_kubeconfig_that_names_another_cluster_is_followed_when_a_person_says_so() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    story.simulation.add_cluster("green");
    (0..3).for_each(|n| story.add_node("green", &format!("n{n}")));
    story.write_access(BLUE, &json!({"value": STANDARD.encode("green")}));
    story.run(MINUTE);
    assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False AnotherCluster"));
    story.ready("green", "n2", "False");
    story.run(10 * MINUTE);
    assert_eq!(story.asked(), NOBODY, "nobody has said that it is the right one");
    story.ready("green", "n2", "True");
    let namespace = Request::get("/api/v1/namespaces/kube-system").body(Vec::new()).expect("it is a request");
    let namespace: Value = serde_json::from_slice(story.simulation.ask_remote("green", namespace).body()).expect("it is JSON");
    let annotations = json!({"resus.dev/cluster-uid": namespace["metadata"]["uid"]});
    story.patch(&format!("{}/{BLUE}", story.path("clusters")), &json!({"metadata": {"annotations": annotations}}));
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(10 * MINUTE);
    assert_eq!(story.asked(), NOBODY, "that was the old server");
    story.ready("green", "n2", "False");
    story.run(302 * SECOND);
    assert_eq!(story.asked(), ["m2"]);
}

#[test]
fn a_cluster_that_does_not_exist_is_told_until_it_does() {
    let mut story = Story::of(Dialect::V1beta2, 2);
    story.add_check("reds", &Check { cluster: RED, ..Check::default() });
    story.run(MINUTE);
    assert_eq!(story.condition("reds", "RemediationAllowed").as_deref(), Some("False ClusterMissing"));
    story.add_cluster(RED);
    story.add_node(RED, "n0");
    story.add_machine(RED, "r0", Some("n0"));
    story.run(5 * SECOND);
    assert_eq!(story.counters("reds"), [1, 1, 1]);
    assert!(story.condition("reds", "RemediationAllowed").is_some_and(|told| told.starts_with("True")));
}

#[test]
fn a_paused_cluster_is_not_touched_and_goes_on_at_once_when_it_is_no_longer() {
    for dialect in CLUSTER_API {
        let mut story = Story::with(dialect, 3, &Check::default());
        let cluster = format!("{}/{BLUE}", story.path("clusters"));
        story.patch(&cluster, &json!({"spec": {"paused": true}}));
        story.breaks("n1");
        story.run(5 * SECOND);
        assert_eq!(story.written_within(20 * MINUTE), [], "{dialect:?}");
        assert_eq!(story.asked(), NOBODY, "{dialect:?}");
        if dialect != Dialect::V1alpha3 {
            assert_eq!(story.condition(WORKERS, "Paused").as_deref(), Some("True Paused"), "{dialect:?}");
        }
        story.patch(&cluster, &json!({"spec": {"paused": false}}));
        story.run(2 * SECOND);
        assert_eq!(story.asked(), ["m1"], "{dialect:?}");
        if dialect != Dialect::V1alpha3 {
            assert_eq!(story.condition(WORKERS, "Paused").as_deref(), Some("False NotPaused"), "{dialect:?}");
        }
    }
}

/// Several pools of one cluster, each with its own check: there is one watch of its nodes.
#[test]
fn checks_of_one_cluster_share_their_watch() {
    let mut story = Story::of(Dialect::V1beta2, 4);
    ["m2", "m3"].iter().for_each(|machine| story.label(machine, POOL, "b"));
    let watches = "WATCH blue:/api/v1/nodes";
    story.add_check(WORKERS, &Check::default());
    story.add_check("others", &Check { pool: "b", ..Check::at_most(0) });
    story.run(10 * SECOND);
    assert_eq!(story.simulation.asked().get(watches), Some(&1));
    (0..4).for_each(|n| story.breaks(&format!("n{n}")));
    story.run(302 * SECOND);
    assert_eq!(story.asked(), ["m0", "m1"], "each has its own limit");
}
