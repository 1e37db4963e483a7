//! Which machines does a check watch over, and which of them are healthy?

use resus_core::mhc::facts::{CONTROL_PLANE_MACHINE_LABEL, Dialect, Style};
use resus_sim::clock::{MINUTE, SECOND, rfc3339};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{BLUE, CLUSTER_API, POOL, Story, WORKERS};

const NEW: [Dialect; 2] = [Dialect::V1beta1, Dialect::V1beta2];
const NOBODY: [&str; 0] = [];

#[test]
fn a_node_that_is_not_ready_for_longer_than_its_time_fails_the_check_to_the_second() {
    for (dialect, status) in CLUSTER_API.into_iter().flat_map(|dialect| [(dialect, "False"), (dialect, "Unknown")]) {
        let mut story = Story::with(dialect, 3, &Check::default());
        assert!(story.sign("m1", "HealthCheckSucceeded").iter().all(|sign| sign.starts_with("True")));
        story.ready(BLUE, "n1", status);
        story.run(5 * MINUTE);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}: it has to be longer");
        assert_eq!(story.counters(WORKERS), [3, 2, 2], "{dialect:?}: but what is pending is not healthy");
        story.run(SECOND);
        assert_eq!(story.asked(), ["m1"], "{dialect:?}");
        let styles = dialect.styles().len();
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), vec!["False UnhealthyNode"; styles]);
        assert_eq!(story.sign("m1", "OwnerRemediated"), vec!["False WaitingForRemediation"; styles]);
        assert_eq!(story.events("MachineMarkedUnhealthy").len(), 1);
    }
}

#[test]
fn a_node_that_recovers_in_time_is_left_alone_and_its_next_time_is_a_whole_one() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    story.breaks("n1");
    story.run(299 * SECOND);
    story.recovers("n1");
    story.run(MINUTE);
    assert_eq!(story.counters(WORKERS), [3, 3, 3]);
    story.breaks("n1");
    story.run(5 * MINUTE);
    assert_eq!(story.asked(), NOBODY);
    story.run(SECOND);
    assert_eq!(story.asked(), ["m1"]);
    // What we asked for is taken back with its cause.
    story.recovers("n1");
    story.run(2 * SECOND);
    assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["True HealthCheckSucceeded", "True"]);
    assert_eq!(story.sign("m1", "OwnerRemediated"), NOBODY);
}

#[test]
fn a_node_that_is_gone_is_found_at_once() {
    for dialect in NEW {
        let mut story = Story::with(dialect, 3, &Check::default());
        story.remove_node(BLUE, "n1");
        story.run(SECOND);
        assert_eq!(story.asked(), ["m1"], "{dialect:?}");
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False NodeDeleted", "False NodeNotFound"]);
        let new = story.posted("m1", Style::New, "HealthCheckSucceeded").expect("it is there");
        assert_eq!(new["message"], "The health check failed:\n  * Node n1 is gone");
        let legacy = story.posted("m1", Style::Legacy, "HealthCheckSucceeded").expect("it is there");
        assert_eq!((&legacy["message"], &legacy["severity"]), (&Value::Null, &json!("Warning")), "as ever");
        story.add_node(BLUE, "n1");
        story.run(SECOND);
        assert_eq!(story.asked(), NOBODY, "it has come back");
    }
}

#[test]
fn conditions_of_the_machine_itself_count_by_their_own_time_and_are_told_first() {
    for dialect in NEW {
        let check = Check { on_machines: &[("BootstrapReady", "False", 60)], ..Check::default() };
        let mut story = Story::with(dialect, 3, &check);
        story.run(MINUTE);
        assert_eq!(story.counters(WORKERS), [3, 3, 3], "{dialect:?}: what is not there meets no rule");
        story.breaks("n1");
        story.run(245 * SECOND);
        story.post_on_machine("m1", "BootstrapReady", "False", "Waiting");
        story.run(MINUTE);
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False UnhealthyNode"; 2], "{dialect:?}");
        // It is called unhealthy already; what else there is to say about it may take some seconds.
        story.run(6 * SECOND);
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False UnhealthyMachine"; 2], "{dialect:?}");
        let message = story.posted("m1", Style::New, "HealthCheckSucceeded").expect("it is there")["message"].clone();
        assert_eq!(
            message,
            "The health check failed:\n  * condition BootstrapReady of the Machine is False (Waiting) for more than 1m0s\
             \n  * condition Ready of the Node is False (Story) for more than 5m0s"
        );
        let legacy = story.posted("m1", Style::Legacy, "HealthCheckSucceeded").expect("it is there")["message"].clone();
        assert_eq!(
            legacy,
            "condition BootstrapReady of the Machine is False (Waiting) for more than 1m0s; condition Ready of the Node is False \
             (Story) for more than 5m0s"
        );
        // Its node recovers, it does not.
        story.recovers("n1");
        story.run(2 * SECOND);
        assert_eq!(story.asked(), ["m1"]);
    }
}

/// Creation, control plane, infrastructure of the cluster, infrastructure of the machine: the latest of them counts.
#[test]
fn a_machine_without_a_node_has_its_time_from_the_latest_of_four_moments() {
    let moments: [fn(&mut Story); 4] = [
        |_| {},
        |story| {
            story.gates(BLUE, false, true);
            story.run(5 * SECOND);
            story.gates(BLUE, true, true);
        },
        |story| {
            story.gates(BLUE, true, false);
            story.run(5 * SECOND);
            story.gates(BLUE, true, true);
        },
        |story| story.post_on_machine("m9", "InfrastructureReady", "True", "Provisioned"),
    ];
    for (number, moment) in moments.into_iter().enumerate() {
        let mut story = Story::with(Dialect::V1beta2, 2, &Check::default());
        story.add_machine(BLUE, "m9", None);
        if number > 0 {
            story.run(100 * SECOND);
        }
        moment(&mut story);
        story.run(600 * SECOND);
        assert_eq!(story.asked(), NOBODY, "moment {number}: ten minutes where the check says nothing");
        assert_eq!(story.counters(WORKERS), [3, 2, 2]);
        story.run(SECOND);
        assert_eq!(story.asked(), ["m9"], "moment {number}");
        assert_eq!(story.sign("m9", "HealthCheckSucceeded"), ["False NodeStartupTimeout"; 2]);
    }
}

#[test]
fn the_time_of_a_machine_without_a_node_is_what_the_check_says_and_zero_is_for_ever() {
    for dialect in CLUSTER_API {
        let mut story = Story::with(dialect, 2, &Check { startup: Some(45), ..Check::default() });
        story.add_machine(BLUE, "m9", None);
        story.run(45 * SECOND);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}");
        story.run(SECOND);
        assert_eq!(story.asked(), ["m9"], "{dialect:?}");
        // It joins after all.
        story.add_node(BLUE, "n9");
        story.set_machine_status("m9", &json!({"nodeRef": {"name": "n9"}}));
        story.run(2 * SECOND);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}");

        let mut story = Story::with(dialect, 2, &Check { startup: Some(0), ..Check::default() });
        story.add_machine(BLUE, "m9", None);
        story.run(120 * MINUTE);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [3, 2, 2], "{dialect:?}: but it counts against the threshold");
        assert_eq!(story.sign("m9", "HealthCheckSucceeded"), NOBODY, "{dialect:?}: nothing is known of it");
    }
}

#[test]
fn a_person_can_ask_for_a_repair_by_annotation() {
    for dialect in NEW {
        let mut story = Story::with(dialect, 3, &Check::default());
        story.annotate("m1", "cluster.x-k8s.io/remediate-machine", Some(""));
        story.run(SECOND);
        assert_eq!(story.asked(), ["m1"], "{dialect:?}");
        assert_eq!(
            story.sign("m1", "HealthCheckSucceeded"),
            ["False HasRemediateAnnotation", "False HasRemediateMachineAnnotation"]
        );
        story.annotate("m1", "cluster.x-k8s.io/remediate-machine", None);
        story.run(SECOND);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}: a change of mind");
    }
}

#[test]
fn a_person_can_forbid_it_and_then_the_machine_does_not_even_count() {
    for annotation in ["cluster.x-k8s.io/skip-remediation", "cluster.x-k8s.io/paused"] {
        let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
        story.annotate("m1", annotation, Some("whatever"));
        story.breaks("n1");
        story.run(10 * MINUTE);
        assert_eq!(story.asked(), NOBODY, "{annotation}");
        assert_eq!(story.counters(WORKERS), [2, 2, 2], "{annotation}");
        assert_eq!(story.status(WORKERS)["targets"], json!(["m0", "m2"]), "{annotation}");
        story.annotate("m1", annotation, None);
        story.run(SECOND);
        assert_eq!(story.asked(), ["m1"], "{annotation}: its time has long been over");
    }
}

#[test]
fn what_is_selected_is_of_the_namespace_the_labels_and_the_cluster() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    story.label("m0", POOL, "b");
    story.label("m1", "cluster.x-k8s.io/cluster-name", "red");
    ["n0", "n1", "n2"].iter().for_each(|node| story.breaks(node));
    story.run(301 * SECOND);
    assert_eq!(story.asked(), ["m2"]);
    assert_eq!(story.status(WORKERS)["targets"], json!(["m2"]));
    // It comes back into the selection.
    story.label("m0", POOL, "a");
    story.run(SECOND);
    assert_eq!(story.asked(), ["m0", "m2"]);
}

#[test]
fn a_machine_on_its_way_out_counts_as_not_healthy_and_its_owner_is_not_asked() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    story.patch(&story.machine_path("m1"), &json!({"metadata": {"finalizers": ["test/held"]}}));
    story.delete(&story.machine_path("m1"));
    story.run(SECOND);
    assert_eq!(story.counters(WORKERS), [3, 2, 2]);
    story.breaks("n1");
    story.run(10 * MINUTE);
    assert_eq!(story.sign("m1", "HealthCheckSucceeded"), ["False UnhealthyNode"; 2]);
    assert_eq!(story.sign("m1", "OwnerRemediated"), NOBODY);
}

#[test]
fn until_the_control_plane_is_up_only_its_own_machines_are_judged_and_the_gate_opens_at_once() {
    for dialect in CLUSTER_API {
        let mut story = Story::of(dialect, 0);
        story.gates(BLUE, false, true);
        story.add_machine(BLUE, "cp", None);
        story.label("cp", CONTROL_PLANE_MACHINE_LABEL, "");
        story.add_machine(BLUE, "m1", None);
        story.add_machine(BLUE, "m2", None);
        story.add_check(WORKERS, &Check { startup: Some(60), ..Check::default() });
        story.run(10 * MINUTE);
        assert_eq!(story.asked(), ["cp"], "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [3, 0, 0], "{dialect:?}: all count against the threshold");
        assert_eq!(story.sign("m1", "HealthCheckSucceeded"), NOBODY, "{dialect:?}");
        // A person may ask all the same.
        story.annotate("m2", "cluster.x-k8s.io/remediate-machine", Some(""));
        story.run(SECOND);
        assert_eq!(story.asked(), ["cp", "m2"], "{dialect:?}");
        story.gates(BLUE, true, true);
        story.run(60 * SECOND);
        assert_eq!(story.asked(), ["cp", "m2"], "{dialect:?}: now its time begins");
        story.run(2 * SECOND);
        assert_eq!(story.asked(), ["cp", "m1", "m2"], "{dialect:?}");
    }
}

#[test]
fn a_gate_that_opens_is_acted_on_at_once() {
    let mut story = Story::with(Dialect::V1beta2, 3, &Check::default());
    story.gates(BLUE, true, false);
    story.breaks("n1");
    story.run(20 * MINUTE);
    assert_eq!(story.asked(), NOBODY);
    story.gates(BLUE, true, true);
    story.run(SECOND);
    assert_eq!(story.asked(), ["m1"], "its node has been ill for long enough");
}

#[test]
fn without_infrastructure_machines_with_a_node_count_as_healthy() {
    for dialect in CLUSTER_API {
        let mut story = Story::with(dialect, 2, &Check::default());
        story.gates(BLUE, true, false);
        story.breaks("n0");
        story.add_machine(BLUE, "m9", None);
        story.run(30 * MINUTE);
        assert_eq!(story.asked(), NOBODY, "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [3, 2, 2], "{dialect:?}: all but the one without a node");
    }
}

#[test]
fn a_condition_that_is_dated_into_the_future_counts_from_when_it_was_seen() {
    let mut story = Story::with(Dialect::V1beta2, 2, &Check { on_machines: &[("Disk", "False", 60)], ..Check::default() });
    let stamp = rfc3339(story.now() + 30 * MINUTE);
    let condition = json!({"type": "Disk", "status": "False", "lastTransitionTime": stamp, "reason": "Ahead", "message": ""});
    let conditions = story.machine("m1")["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = conditions.into_iter().chain([condition]).collect();
    story.set_machine_status("m1", &json!({"conditions": all}));
    story.run(50 * SECOND);
    assert_eq!(story.asked(), NOBODY);
    story.run(15 * SECOND);
    assert_eq!(story.asked(), ["m1"], "it counts from when it was seen");
}
