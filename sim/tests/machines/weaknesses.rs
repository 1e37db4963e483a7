//! What is weak in the controllers of Cluster API and OpenShift, and is not here: see `docs/reference-bugs.md`.

use resus_core::mhc::facts::{Dialect, Flavour};
use resus_sim::clock::{MINUTE, SECOND};
use serde_json::json;

use crate::check::Check;
use crate::story::{ALL, BLUE, CLUSTER_API, POOL, Story, WORKERS, metal3};

const NOBODY: [&str; 0] = [];

/// Cluster API ends its loop at the first machine that has a remediation already.
#[test]
fn a_remediation_that_exists_starves_no_other_machine() {
    for dialect in ALL {
        let mut story = Story::templated(dialect, 8, &Check::with_template());
        let mut expected = Vec::new();
        // Against every order of names: from the middle outwards.
        for n in [3, 5, 1, 7, 0] {
            story.breaks(&format!("n{n}"));
            story.run(301 * SECOND);
            expected.push(format!("m{n}"));
            expected.sort();
            assert_eq!(story.remediations(), expected, "{dialect:?}");
        }
    }
}

#[test]
fn healthy_machines_are_called_so_though_they_never_had_a_remediation() {
    for dialect in CLUSTER_API {
        let mut story = Story::templated(dialect, 3, &Check::with_template());
        for machine in ["m0", "m1", "m2"] {
            let signs = story.sign(machine, "HealthCheckSucceeded");
            assert!(!signs.is_empty() && signs.iter().all(|sign| sign.starts_with("True")), "{dialect:?}: {signs:?}");
        }
    }
}

/// Cluster API finds the machine of a node by the node's name alone, and drops the news of all that share it.
#[test]
fn news_of_nodes_that_share_their_name_with_one_in_another_cluster_are_heard_at_once() {
    let mut story = Story::of(Dialect::V1beta2, 2);
    story.add_cluster("red");
    story.add_node("red", "n1");
    story.add_machine("red", "r1", Some("n1"));
    story.add_check(WORKERS, &Check::default());
    story.add_check("reds", &Check { cluster: "red", ..Check::default() });
    story.run(10 * SECOND);
    story.ready(BLUE, "n1", "False");
    story.run(SECOND);
    assert_eq!((story.counters(WORKERS), story.counters("reds")), ([2, 1, 1], [1, 1, 1]));
    story.remove_node("red", "n1");
    story.run(SECOND);
    assert_eq!(story.asked(), ["r1"]);
}

/// Both keep them there, so that the remediator may go on power-cycling hosts that are well.
#[test]
fn remediations_of_recovered_machines_are_removed_while_nothing_may_start() {
    for dialect in ALL {
        let mut story = Story::templated(dialect, 6, &Check { limit: Some(json!(2)), ..Check::with_template() });
        story.breaks("n0");
        story.breaks("n1");
        story.run(301 * SECOND);
        assert_eq!(story.remediations(), ["m0", "m1"], "{dialect:?}");
        (2..6).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(301 * SECOND);
        assert_eq!(story.remediations(), ["m0", "m1"], "{dialect:?}: nothing more starts");
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False TooManyUnhealthy"), "{dialect:?}");
        story.recovers("n0");
        story.run(2 * SECOND);
        assert_eq!(story.remediations(), ["m1"], "{dialect:?}");
        assert_eq!(story.condition(WORKERS, "RemediationAllowed").as_deref(), Some("False TooManyUnhealthy"), "{dialect:?}");
    }
}

/// Cluster API forgets when to look again, and OpenShift looks a thousand times a second.
#[test]
fn while_nothing_may_start_times_are_kept_to_the_second_and_nothing_is_hot() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 5, &Check::at_most(1));
        story.breaks("n0");
        story.breaks("n1");
        story.run(MINUTE);
        let asked: u64 = story.asked_within(3 * MINUTE).iter().map(|(_, times)| times).sum();
        assert!(asked <= 20, "{dialect:?}: {asked} requests in three minutes");
        if dialect.flavour() == Flavour::ClusterApi {
            story.run(MINUTE);
            let is_false = |sign: String| sign.starts_with("False");
            assert!(!story.sign("m0", "HealthCheckSucceeded").into_iter().any(is_false), "{dialect:?}");
            story.run(SECOND);
            assert!(story.sign("m0", "HealthCheckSucceeded").into_iter().all(is_false), "{dialect:?}: on time, storm or not");
        }
    }
}

#[test]
fn what_is_said_of_templates_and_requests_goes_with_its_cause() {
    for dialect in ALL {
        let mut story = Story::with(dialect, 3, &Check::with_template());
        story.breaks("n1");
        story.run(301 * SECOND);
        let told = |story: &mut Story, kind: &str| story.condition(WORKERS, kind).is_some();
        assert!(told(&mut story, "ExternalRemediationTemplateAvailable"), "{dialect:?}");
        // The server refuses what the template asks for.
        let rules = json!({"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": [{"rule": "!has(self.strategy)", "message": "no strategies today"}],
            "properties": {"strategy": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties";
        let definition =
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/metal3remediations.infrastructure.cluster.x-k8s.io";
        story.patch_json(definition, &json!([{"op": "add", "path": format!("{path}/spec"), "value": rules["spec"]}]));
        story.add_template();
        story.run(5 * SECOND);
        assert!(!told(&mut story, "ExternalRemediationTemplateAvailable"), "{dialect:?}");
        assert!(story.message(WORKERS, "ExternalRemediationRequestAvailable").contains("no strategies today"), "{dialect:?}");
        assert_eq!(story.events("RemediationRequestFailed").len(), 1, "{dialect:?}");
        story.patch_json(definition, &json!([{"op": "remove", "path": format!("{path}/spec")}]));
        story.run(2 * MINUTE);
        assert_eq!(story.remediations(), ["m1"], "{dialect:?}");
        assert!(!told(&mut story, "ExternalRemediationRequestAvailable"), "{dialect:?}");
        story.recovers("n1");
        story.run(3 * SECOND);
        if dialect.flavour() == Flavour::ClusterApi {
            assert_eq!(story.sign("m1", "ExternallyRemediated"), NOBODY, "{dialect:?}: nor does that stay");
        }
    }
}

/// Its owner would still delete a machine on what stands there.
#[test]
fn nothing_is_left_on_a_machine_that_no_check_watches_over() {
    let leaves: [(&str, fn(&mut Story)); 3] = [
        ("its check is deleted", |story| story.delete(&story.check_path(WORKERS))),
        ("its labels change", |story| story.label("m1", POOL, "b")),
        ("it is to be skipped", |story| story.annotate("m1", "cluster.x-k8s.io/skip-remediation", Some(""))),
    ];
    for dialect in CLUSTER_API {
        for (why, leave) in leaves {
            let mut story = Story::with(dialect, 3, &Check::default());
            story.post_on_machine("m1", "BootstrapReady", "True", "Theirs");
            story.breaks("n1");
            story.run(301 * SECOND);
            assert_eq!(story.asked(), ["m1"], "{dialect:?}");
            leave(&mut story);
            story.run(2 * SECOND);
            assert_eq!(story.sign("m1", "HealthCheckSucceeded"), NOBODY, "{dialect:?}: {why}");
            assert_eq!(story.sign("m1", "OwnerRemediated"), NOBODY, "{dialect:?}: {why}");
            assert_eq!(story.sign("m1", "BootstrapReady").len(), dialect.styles().len(), "{dialect:?}: what others wrote stays");
        }
    }
}

/// What others wrote under the same names is theirs, and stays when a check goes.
#[test]
fn what_another_controller_wrote_is_not_cleared_with_our_check() {
    for dialect in [Dialect::V1beta1, Dialect::V1beta2] {
        let mut story = Story::with(dialect, 3, &Check::at_most(0));
        story.breaks("n1");
        story.run(301 * SECOND);
        story.post_on_machine("m1", "HealthCheckSucceeded", "False", "TheirReason");
        story.post_on_machine("m1", "OwnerRemediated", "False", "TheirReason");
        story.change_check(WORKERS, &json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}));
        story.run(2 * SECOND);
        story.delete(&story.check_path(WORKERS));
        story.run(MINUTE);
        assert!(story.sign("m1", "OwnerRemediated").iter().all(|sign| sign == "False TheirReason"), "{dialect:?}");
        assert_eq!(story.sign("m1", "OwnerRemediated").len(), 2, "{dialect:?}");
        assert_eq!(story.sign("m0", "HealthCheckSucceeded"), NOBODY, "{dialect:?}: ours goes");
    }
}

#[test]
fn that_a_machine_is_unhealthy_is_told_once() {
    for dialect in CLUSTER_API {
        let mut story = Story::with(dialect, 3, &Check::default());
        story.breaks("n1");
        story.run(120 * MINUTE);
        assert_eq!(story.events("MachineMarkedUnhealthy").len(), 1, "{dialect:?}");
        story.restart_controller();
        story.run(10 * MINUTE);
        assert_eq!(story.events("MachineMarkedUnhealthy").len(), 1, "{dialect:?}: nor by the next controller");
    }
}

#[test]
fn a_machine_that_is_being_deleted_gets_no_remediation() {
    for dialect in ALL {
        let mut story = Story::templated(dialect, 3, &Check::with_template());
        story.patch(&story.machine_path("m1"), &json!({"metadata": {"finalizers": ["test/held"]}}));
        story.delete(&story.machine_path("m1"));
        story.breaks("n1");
        story.run(20 * MINUTE);
        assert_eq!(story.remediations(), NOBODY, "{dialect:?}");
        assert_eq!(story.counters(WORKERS), [3, 2, 2], "{dialect:?}");
    }
}

/// OpenShift counts a machine whose host is being power-cycled as healthy as soon as its node says so.
#[test]
fn a_machine_under_remediation_has_its_place_in_the_budget_until_the_object_is_gone() {
    for dialect in ALL {
        let mut story = Story::templated(dialect, 4, &Check { limit: Some(json!(1)), ..Check::with_template() });
        story.breaks("n0");
        story.run(301 * SECOND);
        assert_eq!(story.remediations(), ["m0"], "{dialect:?}");
        let path = format!("{}/m0", metal3("metal3remediations"));
        story.patch(&path, &json!({"metadata": {"finalizers": ["test/still-at-work"]}}));
        // It is back for a moment, and its host is switched off all the same.
        story.recovers("n0");
        story.breaks("n1");
        story.run(20 * MINUTE);
        assert_eq!(story.remediations(), ["m0"], "{dialect:?}: two at once would be one too many");
        story.patch(&path, &json!({"metadata": {"finalizers": null}}));
        story.run(2 * SECOND);
        assert_eq!(story.remediations(), ["m1"], "{dialect:?}");
    }
}

/// Two checks over the same machines must not have two budgets.
#[test]
fn two_checks_that_overlap_do_not_double_the_budget() {
    for dialect in ALL {
        let mut story = Story::of(dialect, 6);
        story.add_check("first", &Check::at_most(2));
        story.run(2 * SECOND);
        story.add_check("second", &Check::at_most(2));
        story.run(5 * SECOND);
        (0..3).for_each(|n| story.breaks(&format!("n{n}")));
        story.run(20 * MINUTE);
        assert_eq!((story.asked().len(), story.machines().len()), (0, 6), "{dialect:?}: three are too many for each of them");
        story.recovers("n2");
        story.run(2 * SECOND);
        assert_eq!(story.asked().len() + 6 - story.machines().len(), 2, "{dialect:?}");
        assert_eq!(story.condition("second", "Overlapping").is_some(), story.machines().len() == 6, "{dialect:?}");
    }
}
