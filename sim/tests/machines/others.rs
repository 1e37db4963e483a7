//! Others who take care of the same machines: other controllers, other checks, and those of nodes.

use resus_core::facts::Claim;
use resus_core::mhc::facts::Dialect;
use resus_sim::clock::{MINUTE, SECOND, wall};
use resus_sim::scenario::{Flags, template};
use serde_json::{Value, json};

use crate::check::Check;
use crate::story::{ALL, HERE, NODES, POOL, Story, WORKERS, metal3};

const NOBODY: [&str; 0] = [];
const THEIRS: &str = "/apis/coordination.k8s.io/v1/namespaces/capi-system/leases";
const NODE_CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn stamp(story: &Story) -> Value {
    json!(wall(story.now()).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

/// Somebody else's controller leads, for as long as its Lease is renewed.
fn rivalled(dialect: Dialect) -> (Story, String) {
    let mut story = Story::with(dialect, 3, &Check::default());
    story.add_namespace("capi-system");
    let name = match dialect {
        Dialect::OpenShift => "cluster-api-provider-healthcheck-leader",
        Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => "controller-leader-election-capi",
    };
    let spec = json!({"holderIdentity": "manager-0", "leaseDurationSeconds": 15, "renewTime": stamp(&story)});
    let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
    story.create(THEIRS, &body);
    let lease = format!("{THEIRS}/{name}");
    alive_for(&mut story, &lease, 10);
    (story, lease)
}

fn alive_for(story: &mut Story, lease: &str, seconds: i64) {
    for _ in 0..seconds / 2 {
        story.patch(lease, &json!({"spec": {"renewTime": stamp(story)}}));
        story.run(2 * SECOND);
    }
}

/// How many machines their owner is asked about, or are gone.
fn acted(story: &mut Story) -> usize {
    story.asked().len() + 3 - story.machines().len()
}

#[test]
fn checks_are_left_to_a_controller_that_is_alive_and_taken_up_when_it_is_not() {
    for dialect in ALL {
        let (mut story, lease) = rivalled(dialect);
        story.breaks("n1");
        alive_for(&mut story, &lease, 20 * 60);
        assert_eq!(acted(&mut story), 0, "{dialect:?}");
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False ForeignController"), "{dialect:?}");
        // Its last fifteen seconds began two seconds ago.
        story.run(12 * SECOND);
        assert_eq!(acted(&mut story), 0, "{dialect:?}");
        story.run(5 * SECOND);
        assert_eq!(acted(&mut story), 1, "{dialect:?}");
        assert!(story.condition(WORKERS, "RemediationAllowed").is_some_and(|told| told.starts_with("True")), "{dialect:?}");
    }
}

/// Cluster API's own controller cannot be switched off: it is kept off by the annotation, and says so in the status.
#[test]
fn a_check_that_was_taken_over_is_ours_though_it_is_paused_and_the_other_is_alive() {
    let (mut story, lease) = rivalled(Dialect::V1beta2);
    let annotations = json!({"resus.dev/take-over": "true", "cluster.x-k8s.io/paused": ""});
    story.change_check(WORKERS, &json!({"metadata": {"annotations": annotations}}));
    let theirs =
        json!({"type": "Paused", "status": "True", "reason": "Paused", "message": "theirs", "lastTransitionTime": stamp(&story)});
    let path = format!("{}/status", story.check_path(WORKERS));
    story.patch(&path, &json!({"status": {"conditions": [theirs]}}));
    story.breaks("n1");
    alive_for(&mut story, &lease, 302);
    assert_eq!(story.asked(), ["m1"]);
    assert_eq!(story.message(WORKERS, "Paused"), "theirs", "that is theirs to say");
    assert!(story.condition(WORKERS, "RemediationAllowed").is_some_and(|told| told.starts_with("True")));
}

#[test]
fn checks_that_nobody_gave_us_are_left_alone() {
    for dialect in ALL {
        let mut story = Story::flagged(dialect, 3, Flags::default());
        story.add_check(WORKERS, &Check::default());
        story.breaks("n1");
        let written = story.written_within(20 * MINUTE);
        assert_eq!(written, [], "{dialect:?}");
        assert_eq!(story.status(WORKERS), Value::Null, "{dialect:?}");
        story.change_check(WORKERS, &json!({"metadata": {"annotations": {"resus.dev/take-over": "true"}}}));
        story.run(2 * SECOND);
        assert_eq!(acted(&mut story), 1, "{dialect:?}: now it is ours");
    }
}

#[test]
fn checks_whose_definition_is_ours_are_ours_and_switched_off_is_off() {
    for (claim, acts) in [(Claim::Marked, 1), (Claim::Off, 0)] {
        let mut story = Story::flagged(Dialect::V1beta2, 3, Flags { mhc: claim, ..Flags::default() });
        let labels = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "resus"}}});
        story.patch(&format!("{DEFINITIONS}/machinehealthchecks.cluster.x-k8s.io"), &labels);
        story.add_check(WORKERS, &Check::default());
        story.breaks("n1");
        story.run(310 * SECOND);
        assert_eq!(story.asked().len(), acts, "{claim:?}");
        if claim == Claim::Off {
            let asked = story.simulation.asked();
            assert!(asked.keys().all(|what| !what.contains("machine")), "not even looked at: {asked:?}");
        }
    }
}

#[test]
fn the_older_of_two_checks_acts_and_the_younger_says_so() {
    for dialect in ALL {
        let mut story = Story::of(dialect, 3);
        // It would not act: its limit must not be got round.
        story.add_check("zz-first", &Check::at_most(0));
        story.run(2 * SECOND);
        story.add_check("aa-second", &Check::default());
        story.run(5 * SECOND);
        story.breaks("n1");
        story.run(10 * MINUTE);
        assert_eq!(acted(&mut story), 0, "{dialect:?}");
        assert_eq!(story.condition("aa-second", "Overlapping").as_deref(), Some("True Overlapping"), "{dialect:?}");
        assert!(story.message("aa-second", "Overlapping").contains("zz-first"), "{}", story.status("aa-second"));
        assert_eq!(story.condition("zz-first", "Overlapping"), None, "{dialect:?}");
        story.delete(&story.check_path("zz-first"));
        story.run(2 * SECOND);
        assert_eq!(acted(&mut story), 1, "{dialect:?}: now it is alone");
    }
}

#[test]
fn checks_that_disagree_about_a_machine_do_not_write_over_each_other() {
    let mut story = Story::of(Dialect::V1beta2, 3);
    story.add_check("first", &Check { timeout: 30, ..Check::default() });
    story.run(2 * SECOND);
    story.add_check("second", &Check { timeout: 100_000, ..Check::default() });
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(40 * SECOND);
    assert_eq!(story.asked(), ["m1"]);
    story.expect_quiet();
    // Both lists count it.
    assert_eq!([story.counters("first"), story.counters("second")], [[3, 2, 2], [3, 2, 2]]);
}

fn add_check_of_nodes(story: &mut Story) {
    let spec = json!({
        "selector": {"matchExpressions": [{"key": "nothing", "operator": "DoesNotExist"}]}, "maxUnhealthy": 3,
        "unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "30s"}],
        "remediationTemplate": template("reboot"),
    });
    let (api_version, metadata) = ("remediation.medik8s.io/v1alpha1", json!({"name": "nodes"}));
    let body = json!({"apiVersion": api_version, "kind": "NodeHealthCheck", "metadata": metadata, "spec": spec});
    story.create(NODE_CHECKS, &body);
}

fn remediated_nodes(story: &mut Story) -> Vec<String> {
    let made = story.get("/apis/provider.test/v1/namespaces/provider/rebootremediations").expect("the kind is served");
    let names = made["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].as_str().unwrap_or_default());
    names.map(str::to_owned).collect()
}

/// Machines of this cluster, and a check of its nodes: one repair at a time.
#[test]
fn a_node_that_a_check_of_nodes_remediates_is_left_to_it() {
    let mut story = Story::of(Dialect::OpenShift, 4);
    add_check_of_nodes(&mut story);
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(40 * SECOND);
    assert_eq!(remediated_nodes(&mut story), ["n1"]);
    story.add_check(WORKERS, &Check { timeout: 60, ..Check::default() });
    story.run(10 * MINUTE);
    assert_eq!(story.machines(), ["m0", "m1", "m2", "m3"]);
    assert!(story.message(WORKERS, "Overlapping").contains("m1: "), "{}", story.status(WORKERS));
    // The others are not held up by that.
    story.breaks("n2");
    story.run(62 * SECOND);
    assert_eq!(story.machines(), ["m0", "m1", "m3"]);
}

/// Who knows about the machine knows more than who only knows about its node.
#[test]
fn a_machine_that_a_check_watches_over_is_not_for_the_check_of_its_node() {
    let mut story = Story::of(Dialect::OpenShift, 4);
    story.add_template();
    add_check_of_nodes(&mut story);
    story.add_check(WORKERS, &Check { timeout: 60, ..Check::with_template() });
    story.run(5 * SECOND);
    story.breaks("n1");
    story.run(10 * MINUTE);
    assert_eq!((remediated_nodes(&mut story), story.remediations()), (vec![], vec!["m1".to_owned()]));
    let status = story.get(&format!("{NODE_CHECKS}/nodes")).expect("it exists")["status"].clone();
    assert!(status.to_string().contains("MachineHealthCheck fleet/workers"), "{status}");
}

/// L1: what a check of machines has left is at work until its provider is done with it, whether another check remains or not.
#[test]
fn what_a_check_of_machines_has_left_holds_the_node_from_the_check_of_nodes() {
    for another_remains in [false, true] {
        let mut story = Story::of(Dialect::OpenShift, 4);
        story.add_template();
        add_check_of_nodes(&mut story);
        story.add_check(WORKERS, &Check { timeout: 60, ..Check::with_template() });
        if another_remains {
            story.add_check("zz-elsewhere", &Check { pool: "elsewhere", ..Check::default() });
        }
        story.run(5 * SECOND);
        story.breaks("n1");
        story.run(3 * MINUTE);
        assert_eq!(story.remediations(), ["m1"]);
        let made = metal3("metal3remediations/m1");
        story.patch(&made, &json!({"metadata": {"finalizers": ["provider.test/busy"]}}));
        story.delete(&story.check_path(WORKERS));
        story.run(10 * MINUTE);
        assert_eq!((remediated_nodes(&mut story), story.remediations()), (vec![], vec!["m1".to_owned()]), "{another_remains}");
        let status = story.get(&format!("{NODE_CHECKS}/nodes")).expect("it exists")["status"].clone();
        assert!(status.to_string().contains("belongs to no check that could act"), "{another_remains}: {status}");
        story.patch(&made, &json!({"metadata": {"finalizers": null}}));
        story.run(MINUTE);
        assert_eq!((remediated_nodes(&mut story), story.remediations()), (vec!["n1".to_owned()], vec![]), "{another_remains}");
    }
}

/// M12: a tenant's Machine could keep any node from being repaired, by naming it.
#[test]
fn a_machine_of_another_host_does_not_keep_a_node_from_the_check_of_nodes() {
    let mut story = Story::of(Dialect::OpenShift, 4);
    story.add_template();
    add_check_of_nodes(&mut story);
    story.add_check(WORKERS, &Check { timeout: 60, ..Check::with_template() });
    for (of_machine, n) in [("m1", 1), ("n2", 2)] {
        let id = |text: String| json!({"spec": {"providerID": format!("cloud:///{text}")}});
        story.patch(&story.machine_path(&format!("m{n}")), &id(of_machine.to_owned()));
        story.patch(&format!("{NODES}/n{n}"), &id(format!("n{n}")));
    }
    story.run(5 * SECOND);
    story.breaks("n1");
    story.breaks("n2");
    story.run(10 * MINUTE);
    assert_eq!((remediated_nodes(&mut story), story.remediations()), (vec!["n1".to_owned()], vec!["m2".to_owned()]));
    let told = story.message(WORKERS, "RemediationHeld");
    assert!(told.contains("cloud:///m1 and cloud:///n1"), "{told}");
}

#[test]
fn a_paused_check_writes_nothing_on_machines_and_goes_on_when_it_is_no_longer() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 3, &Check::default());
        story.change_check(WORKERS, &json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "why not"}}}));
        story.run(2 * SECOND);
        story.breaks("n1");
        assert_eq!(story.written_within(20 * MINUTE), [], "{dialect:?}");
        assert_eq!(acted(&mut story), 0, "{dialect:?}");
        story.change_check(WORKERS, &json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}));
        story.run(2 * SECOND);
        assert_eq!(acted(&mut story), 1, "{dialect:?}");
    }
}

/// The controller is killed at every tenth of a second around the moment at which it acts.
#[test]
fn a_controller_that_is_killed_in_the_middle_does_nothing_twice() {
    for tenths in 0..12 {
        let mut story = Story::of(Dialect::V1beta2, 4);
        story.add_template();
        story.label("m3", POOL, "b");
        story.add_check(WORKERS, &Check::with_template());
        story.add_check("owned", &Check { pool: "b", ..Check::default() });
        story.run(10 * SECOND);
        story.breaks("n1");
        story.breaks("n3");
        story.run(300 * SECOND + tenths * SECOND / 200);
        story.restart_controller();
        story.run(MINUTE);
        assert_eq!(story.remediations(), ["m1"], "{tenths}");
        assert_eq!(story.asked(), ["m3"], "{tenths}");
        let posts = story.simulation.asked().get(&format!("POST {}", metal3("metal3remediations"))).copied();
        assert_eq!(posts, Some(1), "{tenths}");
        assert!(story.events("MachineMarkedUnhealthy").len() <= 2, "{tenths}: {:?}", story.events("MachineMarkedUnhealthy"));
        story.expect_quiet();
    }
}

#[test]
fn a_controller_that_is_killed_deletes_no_second_machine() {
    for tenths in 0..12 {
        let mut story = Story::owned(Dialect::OpenShift, 3, &Check::default());
        story.ready(HERE, "node-set-2", "False");
        story.run(300 * SECOND);
        story.run(tenths * SECOND / 200);
        story.restart_controller();
        story.run(MINUTE);
        assert_eq!(story.machines(), ["set-1", "set-3", "set-4"], "{tenths}");
    }
}

/// What was written while we were there goes when the check does, also while we are not.
#[test]
fn what_a_check_wrote_goes_with_it_even_if_nobody_was_there_to_see_it_go() {
    for (dialect, is_down) in
        [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2].into_iter().flat_map(|d| [(d, false), (d, true)])
    {
        let mut story = Story::with(dialect, 3, &Check::default());
        story.breaks("n1");
        story.run(302 * SECOND);
        assert_eq!(story.asked(), ["m1"], "{dialect:?}");
        let check = story.check_path(WORKERS);
        if is_down {
            story.without_controller(|story| story.delete(&check));
        } else {
            story.delete(&check);
            story.run(2 * SECOND);
        }
        for machine in ["m0", "m1"] {
            assert_eq!(story.sign(machine, "HealthCheckSucceeded"), NOBODY, "{dialect:?}, {machine}");
            assert_eq!(story.sign(machine, "OwnerRemediated"), NOBODY, "{dialect:?}, {machine}");
        }
    }
}
