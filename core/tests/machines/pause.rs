//! While everything is paused no machine is touched but to clean up.

use resus_core::facts::{Amount, Status};
use resus_core::mhc::facts::{Dialect, Repair, Sign};

use crate::facts::by_template;
use crate::model::Fleet;

const WHY: &str = "everything is paused by the annotation resus.dev/pause on the namespace poison-pill: roll-out";

#[test]
fn no_machine_is_repaired_in_whichever_way_while_everything_is_paused() {
    for (dialect, repair) in [
        (Dialect::V1beta2, Repair::Owner),
        (Dialect::V1beta2, by_template()),
        (Dialect::OpenShift, by_template()),
        (Dialect::OpenShift, Repair::Deletion),
        (Dialect::OpenShift, Repair::PowerCycle),
    ] {
        let mut fleet = Fleet::with(dialect, 4, repair.clone(), Amount::Percent(100));
        fleet.add_template();
        fleet.set_all_paused(Some("roll-out"));
        fleet.settle();
        fleet.written.clear();
        fleet.breaks("n1");
        fleet.wait(400);
        let acts = ["Create", "Delete", "PowerCycle"];
        let acted = |fleet: &Fleet| fleet.written.iter().any(|written| acts.iter().any(|act| written.starts_with(act)));
        assert!(!acted(&fleet), "{repair:?}: {:?}", fleet.written);
        assert_eq!(fleet.all_asked(), [""; 0], "{repair:?}");
        let reason = fleet.condition("RemediationAllowed").expect("it is told");
        assert!(reason == "False Paused" && fleet.message("RemediationAllowed") == WHY, "{repair:?}: {:?}", fleet.status());
        assert_eq!(fleet.status().remediations_allowed, Some(0));
        fleet.set_all_paused(None);
        fleet.wait(2);
        assert!(acted(&fleet) || fleet.all_asked() == ["m1"], "{repair:?}: {:?}", fleet.written);
    }
}

#[test]
fn what_is_over_is_cleaned_up_and_the_truth_is_told_while_everything_is_paused() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 4, Repair::Owner, Amount::Percent(100));
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"]);
    fleet.set_all_paused(Some("roll-out"));
    fleet.recovers("n1");
    fleet.ready(None, "n2", Status::Unknown);
    fleet.wait(400);
    assert_eq!(fleet.sign("m1", Sign::OwnerRemediated), None, "its owner need not act any more");
    assert_eq!(fleet.sign("m2", Sign::HealthCheckSucceeded).as_deref(), Some("False UnhealthyNode"));
    assert_eq!(fleet.sign("m2", Sign::OwnerRemediated), None, "its owner is not to act yet");
}

#[test]
fn that_everything_is_paused_and_that_it_goes_on_is_told_once_each() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Percent(100));
    for times in 1..=2 {
        fleet.set_all_paused(Some("roll-out"));
        fleet.wait(600);
        assert_eq!(fleet.events_of("Paused"), vec!["Namespace poison-pill"; times]);
        assert_eq!(fleet.events_of("Resumed"), vec!["Namespace poison-pill"; times - 1]);
        fleet.set_all_paused(None);
        fleet.wait(600);
        assert_eq!(fleet.events_of("Resumed"), vec!["Namespace poison-pill"; times]);
    }
}

#[test]
fn a_pause_that_began_while_nobody_led_is_told_by_who_leads_next() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Percent(100));
    fleet.set_all_paused(Some("roll-out"));
    fleet.events.clear();
    fleet.restart();
    fleet.wait(60);
    assert_eq!(fleet.events_of("Paused"), ["Namespace poison-pill"]);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False Paused"));
}
