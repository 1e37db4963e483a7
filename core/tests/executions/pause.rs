//! One switch for everything: the annotation on our own namespace.

use resus_core::decision::Because;
use resus_core::facts::{Source, Status};
use resus_core::input::{Gone, Input};
use resus_core::reasons;

use crate::checks::{MINUTE, because, escalating, exist, name, power, reboot, settled};
use crate::model::Cluster;

/// Reason and message of RemediationAllowed while it is False.
fn restricted(cluster: &Cluster) -> Option<(&str, &str)> {
    let conditions = &cluster.check.status.conditions;
    let condition = conditions.iter().find(|condition| &*condition.kind == reasons::REMEDIATION_ALLOWED)?;
    (condition.status == Status::False).then_some((&*condition.reason, &*condition.message))
}

#[test]
fn while_everything_is_paused_nothing_starts_and_what_is_over_is_cleaned_up() {
    let mut cluster = escalating();
    for node in ["n1", "n2"] {
        cluster.set_broken(&name(node), true);
    }
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1"), reboot("n2")]);
    cluster.set_all_paused(Some("kernel roll-out, ask Ana"));
    cluster.set_broken(&name("n3"), true);
    cluster.run_well(6 * MINUTE);
    assert!(cluster.objects[&reboot("n1")].timed_out, "its time is over all the same");
    exist(&cluster, &[reboot("n1"), reboot("n2")]);
    let message = "everything is paused by the annotation resus.dev/pause on the namespace poison-pill: kernel roll-out, ask Ana";
    assert_eq!(restricted(&cluster), Some(("Paused", message)));
    assert_eq!(&*cluster.check.status.phase, "Paused");
    assert_eq!(&*cluster.check.status.reason, format!("NHC is paused: {message}"));
    assert_eq!(because(&cluster, "n3").to_string(), message);
    cluster.set_broken(&name("n2"), false);
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1")]);

    cluster.set_all_paused(None);
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1"), power("n1"), reboot("n3")]);
    assert_eq!(restricted(&cluster), None);
    assert_eq!(&*cluster.check.status.phase, "Remediating");
}

#[test]
fn a_pause_outlives_the_process_and_ends_with_the_namespace() {
    let mut cluster = settled();
    cluster.set_all_paused(Some(""));
    cluster.restart();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(5 * MINUTE);
    exist(&cluster, &[]);
    cluster.own_namespace = None;
    cluster.tell(Input::Gone(Gone::OwnNamespace("another".into())));
    cluster.run_well(6_000);
    exist(&cluster, &[]);
    // No watch told of it, but the next list does.
    cluster.list(Source::OwnNamespace);
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1")]);
}

#[test]
fn nothing_starts_before_our_namespace_is_heard_of_nor_while_its_watch_is_broken() {
    let mut cluster = settled();
    cluster.deaf_to.insert(Source::OwnNamespace);
    cluster.restart();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    exist(&cluster, &[]);
    assert_eq!(because(&cluster, "n1"), Because::Stale { source: Source::OwnNamespace });
    assert_eq!(restricted(&cluster), None, "that is no news yet");
    cluster.run_well(MINUTE);
    exist(&cluster, &[]);
    let message = "what is known of our own namespace may be out of date; waiting for the API server";
    assert_eq!(restricted(&cluster), Some(("Stale", message)));
    cluster.deaf_to.clear();
    cluster.list(Source::OwnNamespace);
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1")]);

    cluster.world.apply(Input::Broken(Source::OwnNamespace), cluster.now());
    cluster.deaf_to.insert(Source::OwnNamespace);
    for (node, broken) in [("n1", false), ("n2", true)] {
        cluster.set_broken(&name(node), broken);
    }
    cluster.run_well(MINUTE);
    exist(&cluster, &[]);
}

#[test]
fn where_our_namespace_may_not_be_read_nothing_starts_and_the_missing_right_is_told() {
    let mut cluster = settled();
    cluster.deaf_to.insert(Source::OwnNamespace);
    cluster.world.apply(Input::Forbidden(Source::OwnNamespace), cluster.now());
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(2 * MINUTE);
    exist(&cluster, &[]);
    let (reason, message) = restricted(&cluster).expect("it is told");
    assert!(reason == "PauseUnknown" && message.contains("grant list and watch on it"), "{reason}: {message}");
    cluster.deaf_to.clear();
    cluster.list(Source::OwnNamespace);
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1")]);
    assert_eq!(restricted(&cluster), None);
}
