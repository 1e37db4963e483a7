//! Without its templates a check is disabled, says why, and is back as soon as they are.

use resus_sim::clock::{MINUTE, SECOND};
use resus_sim::scenario::template;
use serde_json::json;

use crate::story::{PROVIDED, Story, WORKERS, steps};

fn is_disabled(story: &mut Story, reason: &str) {
    let found = story.condition(WORKERS, "Disabled");
    assert_eq!(found, Some(("True".to_owned(), reason.to_owned())));
    let status = story.status(WORKERS);
    assert_eq!(status["phase"], "Disabled");
    assert!(status["reason"].as_str().expect("it has one").contains(reason), "{status}");
}

#[test]
fn a_template_that_is_deleted_disables_its_check_which_is_enabled_again_within_a_second_of_its_return() {
    let mut story = Story::with(6, &json!({}));
    assert_eq!(story.is("Disabled"), Some(false));
    story.delete(&format!("{PROVIDED}/rebootremediationtemplates/reboot"));
    story.run(2 * SECOND);
    is_disabled(&mut story, "RemediationTemplateNotFound");
    story.breaks("n1");
    story.run(10 * MINUTE);
    story.expect(&[]);
    story.add_template("Reboot", "reboot", &json!({"template": {"spec": {}}}), &json!({}));
    story.run(SECOND);
    assert_eq!(story.is("Disabled"), Some(false));
    story.run(SECOND);
    story.expect(&["reboot n1"]);
    assert_eq!((story.events("Disabled").len(), story.events("Enabled").len()), (1, 2), "at the beginning it was enabled, too");
}

#[test]
fn what_was_started_is_cleaned_up_without_the_template_too() {
    let mut story = Story::with(6, &json!({}));
    story.breaks("n1");
    story.run(8 * SECOND);
    story.delete(&format!("{PROVIDED}/rebootremediationtemplates/reboot"));
    story.run(2 * SECOND);
    story.recovers("n1");
    story.run(2 * SECOND);
    story.expect(&[]);
}

#[test]
fn one_missing_step_disables_the_whole_escalation() {
    let mut story = Story::with(6, &steps(["reboot", "nowhere"], "5m"));
    story.breaks("n1");
    story.run(10 * SECOND);
    is_disabled(&mut story, "RemediationTemplateNotFound");
    let told = story.events("Disabled");
    assert!(told[0].starts_with("[remediation] RemediationTemplateNotFound: the template "), "{told:?}");
    story.expect(&[]);
}

#[test]
fn a_template_without_a_namespace_is_told() {
    let reference = json!({"apiVersion": "provider.test/v1", "kind": "RebootRemediationTemplate", "name": "reboot"});
    let mut story = Story::with(6, &json!({"remediationTemplate": reference}));
    is_disabled(&mut story, "RemediationTemplateNotFound");
    assert!(story.status(WORKERS)["reason"].as_str().expect("it has one").contains("namespace"));
    let mut fixed = template("reboot");
    fixed["namespace"] = json!("provider");
    story.change_check(WORKERS, &json!({"remediationTemplate": fixed}));
    story.run(2 * SECOND);
    assert_eq!(story.is("Disabled"), Some(false));
}

#[test]
fn a_template_that_holds_no_object_is_told_until_it_is_repaired() {
    let mut story = Story::of(6);
    story.add_template("Reboot", "odd", &json!({"template": "reboot, please"}), &json!({}));
    story.check(WORKERS, &json!({"remediationTemplate": template("odd")}));
    story.run(5 * SECOND);
    is_disabled(&mut story, "RemediationTemplateInvalid");
    story.breaks("n1");
    story.run(MINUTE);
    story.expect(&[]);
    let spec = json!({"template": {"spec": {"method": "kick"}}});
    story.patch(&format!("{PROVIDED}/rebootremediationtemplates/odd"), &json!({"spec": spec}));
    story.run(2 * SECOND);
    assert_eq!(story.remediation("reboot n1")["spec"], spec["template"]["spec"]);
}

#[test]
fn a_kind_that_nobody_serves_is_told_and_picked_up_when_it_is_served() {
    let kind = json!({"apiVersion": "late.test/v1", "kind": "LateRemediationTemplate", "namespace": "provider", "name": "late"});
    let mut story = Story::with(6, &json!({"remediationTemplate": kind}));
    is_disabled(&mut story, "RemediationTemplateNotFound");
    story.breaks("n1");
    for kind in ["LateRemediationTemplate", "LateRemediation"] {
        story.define("late.test", "v1", kind, "Namespaced");
    }
    story.run(20 * SECOND);
    let late = "/apis/late.test/v1/namespaces/provider";
    let body = json!({
        "apiVersion": "late.test/v1", "kind": "LateRemediationTemplate", "metadata": {"name": "late", "namespace": "provider"},
        "spec": {"template": {"spec": {}}},
    });
    story.create(&format!("{late}/lateremediationtemplates"), &body);
    // Nobody but the controller watches this kind, and so the simulated server tells of it in its own time.
    story.run(15 * SECOND);
    assert!(story.get(&format!("{late}/lateremediations/n1")).is_some());
}
