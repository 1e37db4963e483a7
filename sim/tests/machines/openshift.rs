//! On OpenShift checks delete, or have machines power-cycled.

use resus_core::mhc::facts::Dialect;
use resus_sim::clock::{MINUTE, SECOND, rfc3339};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{BLUE, HERE, NODES, Story, WORKERS};

const POWER_CYCLE: &str = "host.metal3.io/external-remediation";

fn story(machines: usize, check: &Check) -> Story {
    Story::with(Dialect::OpenShift, machines, check)
}

fn power_cycled() -> Check {
    Check::annotated(json!({"machine.openshift.io/remediation-strategy": "external-baremetal"}))
}

fn is_asked(story: &mut Story, machine: &str) -> bool {
    story.machine(machine)["metadata"]["annotations"][POWER_CYCLE] == ""
}

#[test]
fn an_unhealthy_machine_is_deleted_to_the_second_and_its_owner_makes_another() {
    let mut story = Story::owned(Dialect::OpenShift, 3, &Check::default());
    story.ready(HERE, "node-set-2", "Unknown");
    story.run(300 * SECOND);
    assert_eq!(story.machines(), ["set-1", "set-2", "set-3"]);
    assert!(story.machine("set-2")["metadata"]["deletionTimestamp"].is_null());
    story.run(SECOND);
    assert!(!story.machine("set-2")["metadata"]["deletionTimestamp"].is_null());
    story.run(30 * SECOND);
    assert_eq!(story.machines(), ["set-1", "set-3", "set-4"]);
    assert_eq!(story.counters(WORKERS), [3, 3, 3]);
    assert!(story.events("MachineDeleted").iter().any(|told| told.starts_with("Machine set-2: ")));
    story.expect_quiet();
}

#[test]
fn nothing_is_written_on_machines() {
    let mut story = story(3, &Check::at_most(0));
    story.breaks("n1");
    story.remove_node(BLUE, "n2");
    let before: Vec<Value> = ["m0", "m1", "m2"].iter().map(|machine| story.machine(machine)).collect();
    story.run(10 * MINUTE);
    let after: Vec<Value> = ["m0", "m1", "m2"].iter().map(|machine| story.machine(machine)).collect();
    assert_eq!(before, after);
}

#[test]
fn without_a_controller_it_is_kept_and_told_once() {
    let mut story = story(3, &Check::default());
    story.patch(&story.machine_path("m1"), &json!({"metadata": {"ownerReferences": null}}));
    story.breaks("n1");
    story.breaks("n2");
    story.run(60 * MINUTE);
    assert_eq!(story.machines(), ["m0", "m1"]);
    let told = story.events("SkippedNoController");
    assert!(told.len() == 1 && told[0].starts_with("Machine m1: not deleted: no controller owns"), "{told:?}");
    assert!(story.message(WORKERS, "RemediationHeld").contains("m1: "), "{}", story.status(WORKERS));
}

#[test]
fn a_machine_that_failed_goes_at_once_and_one_without_a_node_by_its_last_change() {
    let mut story = story(3, &Check::default());
    story.set_machine_status("m0", &json!({"phase": "Failed"}));
    story.run(SECOND);
    assert_eq!(story.machines(), ["m1", "m2"]);
    story.add_machine(BLUE, "m8", None);
    story.add_machine(BLUE, "m9", None);
    story.set_machine_status("m8", &json!({"phase": "Provisioning", "lastUpdated": rfc3339(story.now())}));
    story.run(500 * SECOND);
    // Each step of its way begins its time anew.
    story.set_machine_status("m8", &json!({"phase": "Provisioned", "lastUpdated": rfc3339(story.now())}));
    story.run(600 * SECOND);
    assert_eq!(story.machines(), ["m1", "m2", "m8", "m9"]);
    story.run(SECOND);
    assert_eq!(story.machines(), ["m1", "m2", "m9"]);
    story.run(60 * MINUTE);
    assert_eq!(story.machines(), ["m1", "m2", "m9"], "of m9 nobody knows since when");
    assert_eq!(story.counters(WORKERS), [3, 2, 2]);
}

#[test]
fn a_node_that_is_gone_costs_its_machine_at_once() {
    let mut story = story(3, &Check::default());
    story.remove_node(BLUE, "n1");
    story.run(SECOND);
    assert_eq!(story.machines(), ["m0", "m2"]);
}

#[test]
fn a_power_cycle_is_asked_for_by_annotation_counts_and_is_taken_back() {
    let mut story = story(3, &power_cycled());
    story.breaks("n1");
    story.run(301 * SECOND);
    assert!(is_asked(&mut story, "m1"));
    assert_eq!(story.machines().len(), 3);
    assert_eq!(story.events("ExternalAnnotationAdded").len(), 1);
    story.expect_quiet();
    // The actuator has begun: what it remembers by must not be taken from it.
    story.annotate("m1", "remediation.metal3.io/powered-off-for-remediation", Some(""));
    story.recovers("n1");
    story.run(MINUTE);
    assert!(is_asked(&mut story, "m1"));
    assert_eq!(story.counters(WORKERS), [3, 2, 2], "it is not healthy until that is over");
    story.annotate("m1", "remediation.metal3.io/powered-off-for-remediation", None);
    story.run(2 * SECOND);
    assert!(!is_asked(&mut story, "m1"));
    assert_eq!(story.counters(WORKERS), [3, 3, 3]);
    // One that failed is not worth it.
    story.set_machine_status("m2", &json!({"phase": "Failed"}));
    story.run(SECOND);
    assert_eq!(story.machines(), ["m0", "m1"]);
}

#[test]
fn the_annotation_is_called_deprecated_once() {
    let mut story = story(2, &power_cycled());
    story.run(60 * MINUTE);
    assert_eq!(story.condition(WORKERS, "DeprecatedStrategy").as_deref(), Some("True StrategyAnnotation"));
    assert_eq!(story.events("DeprecatedStrategy").len(), 1);
}

/// Two ways of repair must not meet on one machine.
#[test]
fn a_machine_that_still_has_the_annotation_gets_no_remediation_object() {
    let mut story = Story::of(Dialect::OpenShift, 3);
    story.add_template();
    story.add_check(WORKERS, &Check::with_template());
    story.annotate("m1", POWER_CYCLE, Some(""));
    story.breaks("n1");
    story.run(10 * MINUTE);
    assert_eq!(story.remediations(), [""; 0]);
    story.annotate("m1", POWER_CYCLE, None);
    story.run(2 * SECOND);
    assert_eq!(story.remediations(), ["m1"]);
}

/// An empty selector is everything in the namespace, unlike with Cluster API.
#[test]
fn a_check_that_selects_nothing_in_particular_watches_over_all() {
    let mut story = story(3, &Check::default());
    story.label("m1", "pool", "b");
    story.change_check(WORKERS, &json!({"spec": {"selector": {"matchLabels": null}}}));
    story.breaks("n1");
    story.run(301 * SECOND);
    assert_eq!(story.machines(), ["m0", "m2"]);
}

/// OpenShift ships one that takes away spot instances which are being terminated, beside those that admins write.
#[test]
fn the_check_for_terminating_instances_acts_at_once_and_owns_nothing_else() {
    let mut story = Story::of(Dialect::OpenShift, 4);
    let body = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck",
        "metadata": {"name": "machine-api-termination-handler"},
        "spec": {"selector": {"matchLabels": {"pool": "a"}}, "maxUnhealthy": "100%", "nodeStartupTimeout": "0",
            "unhealthyConditions": [{"type": "Terminating", "status": "True", "timeout": "0s"}]},
    });
    story.create(&story.path("machinehealthchecks"), &body);
    story.run(2 * SECOND);
    story.add_check(WORKERS, &Check::default());
    story.run(5 * SECOND);
    let stamp = rfc3339(story.now());
    let terminating = json!({"type": "Terminating", "status": "True", "reason": "Spot", "message": "",
        "lastHeartbeatTime": stamp, "lastTransitionTime": stamp});
    let conditions = story.get(&format!("{NODES}/n1")).expect("it exists")["status"]["conditions"].clone();
    let all: Vec<Value> = conditions.as_array().into_iter().flatten().cloned().chain([terminating]).collect();
    story.patch(&format!("{NODES}/n1/status"), &json!({"status": {"conditions": all}}));
    story.run(2 * SECOND);
    assert_eq!(story.machines(), ["m0", "m2", "m3"]);
    story.breaks("n2");
    story.run(301 * SECOND);
    assert_eq!(story.machines(), ["m0", "m3"]);
    assert_eq!(story.condition(WORKERS, "Overlapping"), None);
}
