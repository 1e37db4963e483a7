//! Nothing is started while the cluster is being upgraded, and no longer than that.

use resus_sim::clock::{MINUTE, Millis, SECOND};
use serde_json::{Value, json};

use crate::story::{HOUR, NODES, Story, WORKERS};

const VERSIONS: &str = "/apis/config.openshift.io/v1/clusterversions";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
const DESIRED: &str = "machineconfiguration.openshift.io/desiredConfig";

/// The check says that the cluster is being upgraded, and by which sign; nothing starts for so long.
fn holds(story: &mut Story, reason: &str, lasts_for: Millis) {
    // What only the controller watches, the simulated server tells of in its own time.
    story.run(15 * SECOND);
    assert_eq!(story.condition(WORKERS, "Upgrading"), Some(("True".to_owned(), reason.to_owned())));
    assert_eq!(story.condition(WORKERS, "RemediationAllowed"), Some(("False".to_owned(), "Upgrading".to_owned())));
    story.run(lasts_for);
    story.expect(&[]);
}

fn lets_go(story: &mut Story) {
    story.run(15 * SECOND);
    story.expect(&["reboot n1"]);
    assert_eq!(story.is("Upgrading"), Some(false));
}

fn kubelet(story: &mut Story, node: &str, version: &str) {
    story.patch(&format!("{NODES}/{node}/status"), &json!({"status": {"nodeInfo": {"kubeletVersion": version}}}));
}

fn config(story: &mut Story, node: &str, current: &str, desired: &str) {
    let annotations = json!({CURRENT: current, DESIRED: desired});
    story.patch(&format!("{NODES}/{node}"), &json!({"metadata": {"annotations": annotations}}));
}

/// With six kubelets of one version.
fn settled() -> Story {
    let mut story = Story::of(6);
    (0..6).for_each(|n| kubelet(&mut story, &format!("n{n}"), "v1.35.1"));
    story.check(WORKERS, &json!({}));
    story.run(10 * SECOND);
    story
}

/// Nobody tells how a plain cluster is upgraded: half an hour without a change is its end, and so are equal versions.
#[test]
fn kubelets_that_change_hold_repairs_for_half_an_hour_or_until_all_are_alike() {
    let mut story = settled();
    for node in ["n2", "n3"] {
        kubelet(&mut story, node, "v1.36.0");
        story.run(20 * MINUTE);
    }
    story.breaks("n1");
    holds(&mut story, "KubeletVersions", 9 * MINUTE);
    story.run(MINUTE);
    lets_go(&mut story);

    let mut story = settled();
    kubelet(&mut story, "n2", "v1.36.0");
    story.breaks("n1");
    holds(&mut story, "KubeletVersions", MINUTE);
    for node in ["n0", "n1", "n3", "n4", "n5"] {
        kubelet(&mut story, node, "v1.36.0");
    }
    lets_go(&mut story);
}

/// It is asked every five minutes, and by whoever begins to lead.
#[test]
fn a_server_that_moves_ahead_holds_repairs_until_the_nodes_have_followed_or_none_does_for_half_an_hour() {
    let upgraded = || {
        let mut story = settled();
        story.upgrade_server("v1.37.0");
        story.run(6 * MINUTE);
        story.breaks("n1");
        holds(&mut story, "ServerVersion", MINUTE);
        story
    };
    let mut story = upgraded();
    (0..6).for_each(|n| kubelet(&mut story, &format!("n{n}"), "v1.37.0"));
    lets_go(&mut story);

    let mut story = upgraded();
    story.restart_controller();
    holds(&mut story, "ServerVersion", 10 * MINUTE);
    story.run(20 * MINUTE);
    lets_go(&mut story);
}

#[test]
fn what_is_left_of_the_half_hour_survives_a_restart_of_the_controller() {
    let mut story = settled();
    kubelet(&mut story, "n2", "v1.36.0");
    let changed_at = story.now();
    story.run(10 * MINUTE);
    story.breaks("n1");
    story.restart_controller();
    holds(&mut story, "KubeletVersions", MINUTE);
    story.run_until(changed_at + 30 * MINUTE - 2 * SECOND);
    story.expect(&[]);
    lets_go(&mut story);
}

#[test]
fn a_cluster_that_is_mixed_for_ever_is_never_shut() {
    let mut story = Story::of(6);
    (0..6).for_each(|n| kubelet(&mut story, &format!("n{n}"), ["v1.35.1", "v1.36.0"][n % 2]));
    story.check(WORKERS, &json!({}));
    story.run(10 * SECOND);
    story.breaks("n1");
    lets_go(&mut story);
}

/// There is no ClusterVersion where the control plane is hosted elsewhere, but nodes move to other configurations.
#[test]
fn nodes_of_a_hosted_control_plane_that_are_reconfigured_hold_repairs() {
    let mut story = Story::with(6, &json!({}));
    config(&mut story, "n2", "rendered-1", "rendered-2");
    story.breaks("n1");
    holds(&mut story, "MachineConfig", 3 * HOUR);
    config(&mut story, "n2", "rendered-2", "rendered-2");
    lets_go(&mut story);
}

#[test]
fn openshift_says_itself_how_long_it_is_upgraded_and_what_runs_is_cleaned_up_meanwhile() {
    let mut story = Story::of(6);
    story.define("config.openshift.io", "v1", "ClusterVersion", "Cluster");
    story.check(WORKERS, &json!({}));
    story.run(MINUTE);
    story.breaks("n2");
    story.run(8 * SECOND);
    story.expect(&["reboot n2"]);
    let progressing = |status: &str| json!([{"type": "Progressing", "status": status}]);
    let version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
        "status": {"desired": {"version": "4.99.0"}, "conditions": progressing("True")}});
    story.create(VERSIONS, &version);
    story.run(15 * SECOND);
    story.recovers("n2");
    story.breaks("n1");
    story.run(5 * SECOND);
    holds(&mut story, "ClusterVersion", 5 * HOUR);
    story.patch(&format!("{VERSIONS}/version"), &json!({"status": {"conditions": progressing("False")}}));
    lets_go(&mut story);
}

/// Its time is over although nobody has released it: whoever held it is dead.
#[test]
fn kureds_lock_holds_repairs_until_it_is_released_or_its_time_is_over() {
    for released in [true, false] {
        let mut story = Story::with(6, &json!({}));
        let created = resus_sim::clock::rfc3339(story.now());
        let lock = json!({"nodeID": "n3", "metadata": {}, "created": created, "TTL": 3_600_000_000_000_i64}).to_string();
        let labels = json!({"name": "kured"});
        let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "kured", "image": "example.test/kured:1"}]}}});
        let body = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": spec,
            "metadata": {"name": "kured", "namespace": "kube-system", "annotations": {"weave.works/kured-node-lock": lock}}});
        story.create(DAEMON_SETS, &body);
        story.run(15 * SECOND);
        story.breaks("n1");
        holds(&mut story, "KuredLock", 55 * MINUTE);
        match released {
            true => {
                let annotations = json!({"weave.works/kured-node-lock": Value::Null});
                story.patch(&format!("{DAEMON_SETS}/kured"), &json!({"metadata": {"annotations": annotations}}));
            }
            false => story.run(5 * MINUTE),
        }
        lets_go(&mut story);
    }
}

#[test]
fn a_node_under_maintenance_is_left_alone_for_as_long_as_it_is_marked() {
    let mut story = Story::with(6, &json!({}));
    let taint = json!({"key": "medik8s.io/drain", "effect": "NoSchedule"});
    story.patch(&format!("{NODES}/n1"), &json!({"spec": {"taints": [taint]}}));
    story.annotate("n2", "weave.works/kured-reboot-in-progress");
    ["n1", "n2", "n3"].iter().for_each(|node| story.breaks(node));
    story.run(5 * HOUR);
    story.expect(&["reboot n3"]);
    assert!(story.held(WORKERS, "n1").contains("medik8s.io/drain"), "{}", story.held(WORKERS, "n1"));
    assert!(story.held(WORKERS, "n2").contains("kured-reboot-in-progress"), "{}", story.held(WORKERS, "n2"));
    story.patch(&format!("{NODES}/n1"), &json!({"spec": {"taints": []}}));
    let annotations = json!({"weave.works/kured-reboot-in-progress": Value::Null});
    story.patch(&format!("{NODES}/n2"), &json!({"metadata": {"annotations": annotations}}));
    story.run(2 * SECOND);
    story.expect(&["reboot n1", "reboot n2", "reboot n3"]);
}
