//! What a NodeHealthCheck can ask for beyond the reference, and how it gets along with others.

use std::time::Duration;

use crate::checks::{
    MINUTE, because, condition, decided, escalating, exist, listed, minutes, name, now, reboot, set_label, settled, steps,
};
use crate::model::{Cluster, Fate, at_most};
use resus_core::decision::{Because, Verdict};
use resus_core::default_check::{DefaultCheck, Workers};
use resus_core::effect::Effect;
use resus_core::facts::{Amount, Limit, Mode, Repeat, Source, Status, Threshold};
use resus_core::input::{Fact, Input};
use resus_core::reasons;

#[test]
fn a_node_that_fails_again_and_again_is_remediated_ever_more_slowly_and_not_for_ever() {
    let mut cluster = settled();
    let repeat = Repeat { max: 3, within: minutes(120), backoff: minutes(5), max_backoff: minutes(8) };
    cluster.change_policy(|policy| policy.repeat = Some(repeat));
    let fail = |cluster: &mut Cluster| {
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(7_000);
        let started = !cluster.remediated().is_empty();
        if started {
            cluster.set_broken(&name("n1"), false);
            cluster.run_well(3_000);
        }
        started
    };
    assert!(fail(&mut cluster));
    assert!(!fail(&mut cluster));
    assert_eq!(because(&cluster, "n1"), Because::BackingOff { times: 1 });
    cluster.run_well(5 * MINUTE);
    assert_eq!(cluster.created.len(), 2, "five minutes after the first");
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(3_000);
    assert!(!fail(&mut cluster));
    cluster.run_well(7 * MINUTE);
    assert_eq!(cluster.created.len(), 2);
    cluster.run_well(MINUTE);
    assert_eq!(cluster.created.len(), 3, "not ten but eight minutes after the second");
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(3_000);
    assert!(!fail(&mut cluster));
    cluster.run_well(60 * MINUTE);
    assert_eq!(because(&cluster, "n1"), Because::RemediatedTooOften { times: 3, within: minutes(120) });
    cluster.run_well(60 * MINUTE);
    assert_eq!(cluster.created.len(), 4, "when the first is two hours ago");
}

/// The status tells of it only a second later.
#[test]
fn a_node_that_fails_again_within_a_second_is_remembered_all_the_same() {
    let mut cluster = settled();
    let repeat = Repeat { max: 1, within: minutes(60), backoff: Duration::ZERO, max_backoff: Duration::ZERO };
    cluster.change_policy(|policy| policy.repeat = Some(repeat));
    cluster.change_policy(|policy| policy.rules[0].lasts_for = Duration::ZERO);
    cluster.run_well(5_000);
    for _ in 0..3 {
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(20);
        cluster.set_broken(&name("n1"), false);
        cluster.run_well(20);
    }
    assert_eq!(cluster.created.len(), 1);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(5_000);
    assert_eq!(because(&cluster, "n1"), Because::RemediatedTooOften { times: 1, within: minutes(60) });
}

/// What comes and goes while a status is on its way is not in that status.
#[test]
fn a_status_that_is_answered_late_does_not_make_a_brief_remediation_forgotten() {
    let mut cluster = settled();
    let repeat = Repeat { max: 1, within: minutes(60), backoff: Duration::ZERO, max_backoff: Duration::ZERO };
    cluster.change_policy(|policy| policy.repeat = Some(repeat));
    cluster.change_policy(|policy| policy.rules[0].lasts_for = Duration::ZERO);
    cluster.run_well(5_000);
    for (node, broken) in [("n2", true), ("n1", true), ("n1", false)] {
        cluster.set_broken(&name(node), broken);
        for _ in 0..20 {
            cluster.hear_all();
            cluster.turn();
            while let Some(at) = cluster.requests.iter().position(|effect| !matches!(effect, Effect::Status { .. })) {
                cluster.execute(at, Fate::Done);
            }
            cluster.time += 1;
        }
    }
    assert_eq!((cluster.requests.len(), cluster.created.len()), (1, 2), "a status is on its way");
    cluster.execute(0, Fate::Done);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(5_000);
    assert_eq!(cluster.created.len(), 2);
    assert_eq!(because(&cluster, "n1"), Because::RemediatedTooOften { times: 1, within: minutes(60) });
}

#[test]
fn a_node_that_never_reports_is_unhealthy_after_the_startup_timeout() {
    let mut cluster = settled();
    cluster.silent.insert(name("n1"));
    cluster.touch(&name("n1"));
    cluster.run_well(60 * MINUTE);
    assert!(matches!(because(&cluster, "n1"), Because::NeverReported { .. }));
    cluster.change_policy(|policy| policy.startup_timeout = Some(minutes(120)));
    cluster.run_well(30 * MINUTE);
    assert!(cluster.created.is_empty());
    cluster.run_well(60 * MINUTE);
    exist(&cluster, &[reboot("n1")]);
}

#[test]
fn a_dry_run_decides_and_reports_but_changes_nothing() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.mode = Mode::DryRun);
    cluster.set_broken(&name("n1"), true);
    let mut writes = Vec::new();
    for _ in 0..200 {
        cluster.hear_all();
        let plan = cluster.turn();
        writes.extend(plan.effects.iter().map(|effect| effect.key().nature().verb));
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time += 100;
    }
    writes.sort_unstable();
    writes.dedup();
    assert_eq!(writes, ["event", "lease", "status"]);
    assert_eq!(decided(&cluster, "n1"), (Verdict::Hold, Because::DryRun { key: reboot("n1") }));
    assert!(listed(&cluster, "n1").expect("it is listed").held.as_ref().is_some_and(|why| why.contains("dry run")));
}

#[test]
fn a_dry_run_says_what_it_would_remove() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    cluster.change_policy(|policy| policy.mode = Mode::DryRun);
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n1")]);
    let (verdict, because) = decided(&cluster, "n1");
    assert_eq!((verdict, &*because.to_string()), (Verdict::Keep, "dry run: Reboot default/n1 would be removed"));
}

#[test]
fn a_dark_zone_stops_repair_there_and_nowhere_else() {
    let mut cluster = Cluster::new(9, Threshold::MaxUnhealthy(Amount::Percent(40)), Duration::from_secs(5));
    for (at, zone) in ["a", "a", "a", "b", "b", "b", "c", "c", "c"].into_iter().enumerate() {
        set_label(&mut cluster, Box::leak(format!("n{at}").into_boxed_str()), "zone", zone);
    }
    cluster.change_policy(|policy| policy.topology_key = Some("zone".into()));
    cluster.run_well(10_000);
    for node in ["n0", "n1", "n2", "n3"] {
        cluster.set_broken(&name(node), true);
    }
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n3")]);
    assert!(matches!(because(&cluster, "n0"), Because::ZoneDark { not_healthy: 3, allowed: 1, of: 3, .. }));
    // Without zones four of nine are too many.
    cluster.change_policy(|policy| policy.topology_key = None);
    cluster.set_broken(&name("n4"), true);
    cluster.run_well(8_000);
    assert!(matches!(because(&cluster, "n0"), Because::TooManyUnhealthy { .. }));
}

#[test]
fn a_remediation_that_lasts_for_two_days_is_flagged_once() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(47 * 60 * MINUTE);
    assert!(!cluster.objects[&reboot("n1")].flagged_old);
    cluster.run_well(2 * 60 * MINUTE);
    assert!(cluster.objects[&reboot("n1")].flagged_old);
    assert_eq!(cluster.run_well(10 * 60 * MINUTE), 0);
}

#[test]
fn the_default_check_yields_to_one_that_somebody_wrote() {
    let mut cluster = settled();
    cluster.check.is_default = true;
    cluster.change_policy(|_| ());
    let mut younger = cluster.check.clone();
    (younger.name, younger.uid, younger.is_default) = ("zz".into(), "zz".into(), false);
    younger.created_at = cluster.now().wall;
    let at = cluster.now();
    cluster.run_well(1_000);
    cluster.world.apply(Input::Seen(Fact::Check(younger)), at);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    let plan = now(&cluster);
    let of_default = plan.decisions.iter().find(|decision| &*decision.check == "workers" && &*decision.node == "n1");
    assert_eq!(of_default.expect("it is decided on").because, Because::Overlapping { owner: name("zz") });
}

/// What the reference kept for ever, and then refused every change of the check.
#[test]
fn a_node_that_vanishes_without_a_remediation_leaves_no_trace() {
    let mut cluster = settled();
    for node in ["n0", "n1", "n2", "n3"] {
        cluster.set_broken(&name(node), true);
    }
    cluster.run_well(8_000);
    assert!(listed(&cluster, "n1").is_some());
    cluster.broken_since.remove("n1");
    cluster.list(Source::Nodes);
    cluster.run_well(5_000);
    assert_eq!(listed(&cluster, "n1"), None);
}

#[test]
fn marks_are_written_once() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(5 * MINUTE + 5_000);
    let mut marks = 0;
    for _ in 0..100 {
        cluster.hear_all();
        let plan = cluster.turn();
        marks += plan.effects.iter().filter(|effect| matches!(effect, Effect::Mark { .. })).count();
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time += 1_000;
    }
    assert!(marks <= 1, "{marks}");
}

/// Roles of many providers lack patch: then the whole object is updated, and the status says so.
#[test]
fn where_patch_is_not_granted_objects_are_updated() {
    let mut cluster = escalating();
    cluster.patch_is_forbidden = true;
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6 * MINUTE);
    assert!(cluster.objects[&reboot("n1")].timed_out);
    assert_eq!(condition(&cluster, reasons::LIMITED_RIGHTS), Some(Status::True));
}

#[test]
fn a_kind_that_may_not_be_watched_is_reported() {
    let mut cluster = settled();
    let source = Source::Objects(reboot("n1").kind);
    let at = cluster.now();
    cluster.world.apply(Input::Polled(source), at);
    let plan = cluster.turn();
    let told = plan.effects.iter().any(|effect| match effect {
        Effect::Status { status, .. } => {
            status.conditions.iter().any(|one| &*one.kind == reasons::LIMITED_RIGHTS && one.message.contains("15 s"))
        }
        _ => false,
    });
    assert!(told);
}

#[test]
fn a_cluster_without_a_check_is_given_one_once_if_that_is_wanted() {
    let begin = |has_no_check: bool, wanted: bool| {
        let mut cluster = Cluster::new(3, at_most(1), Duration::from_secs(5));
        cluster.has_no_check = has_no_check;
        cluster.list(Source::Checks);
        if wanted {
            cluster.world.default_check = DefaultCheck::Template;
        }
        cluster
    };
    for (has_no_check, wanted, made) in [(true, true, 1), (true, false, 0), (false, true, 0)] {
        let mut cluster = begin(has_no_check, wanted);
        cluster.run_well(60 * MINUTE);
        assert_eq!(cluster.default_checks.len(), made, "no check: {has_no_check}, wanted: {wanted}");
    }
    // Who deletes the only check meanwhile does not get another.
    let mut cluster = begin(false, true);
    cluster.list(Source::Checks);
    cluster.has_no_check = true;
    cluster.list(Source::Checks);
    cluster.run_well(60 * MINUTE);
    assert!(cluster.default_checks.is_empty());
    for (labels, workers) in [(true, Workers::Labelled), (false, Workers::NotControlPlane)] {
        let mut cluster = begin(true, true);
        if labels {
            set_label(&mut cluster, "n1", "node-role.kubernetes.io/worker", "");
        }
        cluster.run_well(MINUTE);
        assert_eq!(cluster.default_checks, [workers]);
    }
}

/// Otherwise a crash in between would begin with the first step again.
#[test]
fn the_earlier_of_two_steps_makes_room_only_when_the_status_remembers_it() {
    let mut cluster = settled();
    steps(&mut cluster, &[("RebootTemplate", "soft"), ("RebootTemplate", "hard")], false);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(4 * MINUTE);
    let template = |cluster: &Cluster| cluster.objects.get(&reboot("n1")).and_then(|object| object.template.clone());
    for _ in 0..100 {
        cluster.hear_all();
        cluster.turn();
        while let Some(effect) = cluster.requests.front() {
            let is_status = matches!(effect, Effect::Status { .. });
            cluster.execute(0, if is_status { Fate::Refused } else { Fate::Done });
        }
        cluster.time += 2_000;
        let now = cluster.now();
        for source in cluster.world.sources().cloned().collect::<Vec<_>>() {
            cluster.world.apply(Input::Heard(source), now);
        }
        assert_eq!(template(&cluster), Some(name("soft")));
    }
    cluster.run_well(MINUTE);
    assert_eq!(template(&cluster), Some(name("hard")));
}

/// That a step failed is the only news then, and no less urgent for that.
#[test]
fn the_earlier_of_two_steps_makes_room_within_seconds_of_its_failure() {
    let mut cluster = settled();
    steps(&mut cluster, &[("RebootTemplate", "soft"), ("RebootTemplate", "hard")], false);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(20_000);
    cluster.change_object(&reboot("n1"), |object| object.succeeded = Some(false));
    cluster.run_well(5_000);
    let template = cluster.objects.get(&reboot("n1")).and_then(|object| object.template.clone());
    assert_eq!(template, Some(name("hard")));
}

#[test]
fn at_the_limit_nothing_starts_where_the_stricter_reading_is_asked_for() {
    for (limit, starts) in [(Limit::Allowed, true), (Limit::Shut, false)] {
        let mut cluster = settled();
        cluster.world.limit = limit;
        cluster.change_policy(|policy| policy.threshold = at_most(1));
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        assert_eq!(!cluster.created.is_empty(), starts, "{limit:?}");
    }
}

/// Only a definition of others lets it pass.
#[test]
fn more_than_all_nodes_is_read_as_all_and_told_once() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.threshold = Threshold::MaxUnhealthy(Amount::Percent(150)));
    let clamped = |cluster: &Cluster| cluster.check.status.conditions.iter().any(|one| &*one.kind == reasons::THRESHOLD_CLAMPED);
    let mut told = 0;
    for _ in 0..60 {
        cluster.hear_all();
        told += cluster
            .turn()
            .effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Emit(event) if event.reason == "ThresholdClamped"))
            .count();
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time += 500;
    }
    assert_eq!((told, clamped(&cluster)), (1, true));
    for node in 0..6 {
        cluster.set_broken(&name(&format!("n{node}")), true);
    }
    cluster.run_well(8_000);
    assert_eq!(cluster.created.len(), 6);
    cluster.change_policy(|policy| policy.threshold = at_most(1));
    cluster.run_well(8_000);
    assert!(!clamped(&cluster));
}
