//! What a NodeHealthCheck can ask for, rule by rule, as its users know it from elsewhere or read of it in our documents.

use std::time::Duration;

use crate::model::{Cluster, Fate, at_most, key, plan, template};
use resus_core::decision::{Because, Verdict};
use resus_core::effect::Effect;
use resus_core::etcd::EtcdPod;
use resus_core::facts::{
    CONFIRMED_HEALTHY, EXCLUDE_LABEL, HealthyDelay, Name, NodeLease, Object, ObjectKey, Source, Status, Step, Version,
};
use resus_core::nhc::UnhealthyNode;
use resus_core::plan::Plan;
use resus_core::reasons;

pub const MINUTE: i64 = 60_000;

pub fn name(node: &str) -> Name {
    node.into()
}

pub fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Six nodes that are unhealthy after five seconds, of which three may be.
pub fn settled() -> Cluster {
    let mut cluster = Cluster::new(6, at_most(3), Duration::from_secs(5));
    cluster.run_well(10_000);
    cluster
}

/// First reboot, then power, five minutes for each.
pub fn escalating() -> Cluster {
    let mut cluster = settled();
    steps(&mut cluster, &[("RebootTemplate", "reboot"), ("PowerTemplate", "power")], false);
    cluster
}

pub fn steps(cluster: &mut Cluster, templates: &[(&str, &str)], allows_several: bool) {
    for (kind, name) in templates {
        let template = Object { key: key(kind, name), uid: (*name).into(), allows_several, ..template() };
        cluster.add_object(template);
    }
    let steps = templates.iter().map(|(kind, name)| Step { template: key(kind, name), timeout: Some(minutes(5)) }).collect();
    cluster.change_policy(|policy| policy.steps = steps);
    cluster.run_well(10_000);
}

pub fn reboot(node: &str) -> ObjectKey {
    key("Reboot", node)
}

pub fn power(node: &str) -> ObjectKey {
    key("Power", node)
}

pub fn exist(cluster: &Cluster, keys: &[ObjectKey]) {
    let there: Vec<String> =
        cluster.objects.values().filter(|object| object.body.is_none()).map(|object| object.key.to_string()).collect();
    let mut wanted: Vec<String> = keys.iter().map(ToString::to_string).collect();
    wanted.sort();
    let mut sorted = there;
    sorted.sort();
    assert_eq!(sorted, wanted);
}

pub fn now(cluster: &Cluster) -> Plan {
    plan(&cluster.world, cluster.now())
}

pub fn because(cluster: &Cluster, node: &str) -> Because {
    decided(cluster, node).1
}

pub fn decided(cluster: &Cluster, node: &str) -> (Verdict, Because) {
    let plan = now(cluster);
    let found = plan.decisions.iter().find(|decision| &*decision.node == node).expect("the node is decided on");
    (found.verdict, found.because.clone())
}

pub fn listed<'a>(cluster: &'a Cluster, node: &str) -> Option<&'a UnhealthyNode> {
    cluster.check.status.unhealthy.iter().find(|listed| &*listed.name == node)
}

pub fn condition(cluster: &Cluster, kind: &str) -> Option<Status> {
    cluster.check.status.conditions.iter().find(|condition| &*condition.kind == kind).map(|condition| condition.status.clone())
}

pub fn set_label(cluster: &mut Cluster, node: &str, label: &'static str, value: &'static str) {
    cluster.labels.entry(name(node)).or_default().push((label, value));
    cluster.touch(&name(node));
}

#[test]
fn a_step_that_has_had_its_time_is_marked_and_the_next_begins() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    exist(&cluster, &[reboot("n1")]);
    let began_at = cluster.created[0].1;
    cluster.run_well(began_at + 5 * MINUTE - cluster.time);
    exist(&cluster, &[reboot("n1")]);
    cluster.run_well(1_000);
    exist(&cluster, &[reboot("n1"), power("n1")]);
    assert!(cluster.created[1].1 - began_at <= 5 * MINUTE + 2, "the plan wakes exactly then");
    assert!(cluster.objects[&reboot("n1")].timed_out && !cluster.objects[&power("n1")].timed_out);
    cluster.run_well(2_000);
    let given_up: Vec<bool> =
        listed(&cluster, "n1").expect("it is listed").remediations.iter().map(|one| one.timed_out_at.is_some()).collect();
    assert_eq!(given_up, [true, false]);
    // When the node is healthy everything goes together.
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(5_000);
    exist(&cluster, &[]);
    assert_eq!(listed(&cluster, "n1"), None);
}

/// Another step before it, or another template in its place: what has begun is not overtaken.
#[test]
fn what_is_at_work_is_waited_for_when_the_steps_are_edited() {
    let mut cluster = escalating();
    cluster.installed = ["Metal", "MetalTemplate"].map(Name::from).into();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    steps(&mut cluster, &[("PowerTemplate", "power"), ("RebootTemplate", "reboot")], false);
    cluster.run_well(MINUTE);
    exist(&cluster, &[reboot("n1")]);
    cluster.run_well(4 * MINUTE);
    exist(&cluster, &[reboot("n1"), power("n1")]);
    assert!(cluster.objects[&reboot("n1")].timed_out);

    steps(&mut cluster, &[("RebootTemplate", "reboot"), ("MetalTemplate", "metal")], false);
    cluster.run_well(20 * MINUTE);
    exist(&cluster, &[reboot("n1"), power("n1")]);
    assert!(matches!(because(&cluster, "n1"), Because::Remediating { key, .. } if key == power("n1")));
    // Its provider says that it is of no use.
    cluster.change_object(&power("n1"), |object| object.succeeded = Some(false));
    cluster.run_well(MINUTE);
    exist(&cluster, &[reboot("n1"), power("n1"), key("Metal", "n1")]);
}

#[test]
fn a_remediation_that_failed_is_not_waited_for() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    cluster.change_object(&reboot("n1"), |object| object.succeeded = Some(false));
    cluster.run_well(2_000);
    exist(&cluster, &[reboot("n1"), power("n1")]);
}

#[test]
fn without_escalation_nothing_is_ever_given_up() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(47 * 60 * MINUTE);
    cluster.change_object(&reboot("n1"), |object| object.succeeded = Some(false));
    cluster.run_well(MINUTE);
    assert!(!cluster.objects[&reboot("n1")].timed_out);
    assert_eq!(cluster.created.len(), 1);
}

#[test]
fn when_every_step_was_tried_there_is_silence_and_a_word() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(20 * MINUTE);
    exist(&cluster, &[reboot("n1"), power("n1")]);
    assert_eq!(decided(&cluster, "n1"), (Verdict::Keep, Because::NoTemplateLeft));
    assert!(listed(&cluster, "n1").expect("it is listed").held.as_ref().is_some_and(|why| why.contains("by hand")));
    assert_eq!(cluster.run_well(60 * MINUTE), 0);
}

/// The Go controller recorded remediations by kind alone, and never got past the second.
#[test]
fn two_steps_of_one_kind_work_with_and_without_several_objects_per_node() {
    for allows_several in [true, false] {
        let mut cluster = settled();
        steps(&mut cluster, &[("RebootTemplate", "soft"), ("RebootTemplate", "hard")], allows_several);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(6 * MINUTE);
        let templates: Vec<Name> = cluster
            .objects
            .values()
            .filter(|object| object.body.is_none())
            .filter_map(|object| object.template.clone())
            .collect();
        match allows_several {
            true => assert_eq!(templates.len(), 2, "{templates:?}"),
            false => assert_eq!(templates, [name("hard")], "the first has made room"),
        }
        cluster.run_well(6 * MINUTE);
        assert_eq!(because(&cluster, "n1"), Because::NoTemplateLeft);
        let listed = listed(&cluster, "n1").expect("it is listed");
        assert!(listed.remediations.iter().all(|one| one.timed_out_at.is_some()) && listed.remediations.len() == 2);
        assert_eq!(cluster.created.len(), 2);
        cluster.set_broken(&name("n1"), false);
        cluster.run_well(5_000);
        exist(&cluster, &[]);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(7_000);
        assert_eq!(cluster.created.len(), 3, "another failure begins with the first step");
    }
}

#[test]
fn a_pending_node_is_not_escalated() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    cluster.change_policy(|policy| policy.rules[0].lasts_for = minutes(60));
    cluster.run_well(30 * MINUTE);
    exist(&cluster, &[reboot("n1")]);
    assert!(!cluster.objects[&reboot("n1")].timed_out);
}

/// Only starting stops. What was started is marked, cleaned up, and goes on where the node has its place in the budget.
#[test]
fn a_full_threshold_does_not_stop_the_next_step_but_a_pause_does() {
    for paused in [false, true] {
        let mut cluster = escalating();
        for node in ["n1", "n2", "n3"] {
            cluster.set_broken(&name(node), true);
        }
        cluster.run_well(6_000);
        assert_eq!(cluster.created.len(), 3);
        cluster.set_broken(&name("n4"), true);
        cluster.set_paused(paused);
        cluster.run_well(6 * MINUTE);
        assert!(cluster.objects[&reboot("n1")].timed_out);
        assert_eq!(cluster.created.len(), if paused { 3 } else { 6 });
        assert!(!cluster.objects.contains_key(&reboot("n4")), "it has no place in the budget");
        cluster.set_broken(&name("n1"), false);
        cluster.run_well(5_000);
        assert!(!cluster.objects.contains_key(&reboot("n1")), "clean-up goes on");
    }
}

/// A provider, or a person, removes and re-creates the object: the time begins anew.
#[test]
fn a_remediation_that_was_made_again_has_its_own_time() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(4 * MINUTE);
    cluster.remove_object(&reboot("n1"));
    cluster.run_well(3 * MINUTE);
    assert_eq!(cluster.created.len(), 2);
    exist(&cluster, &[reboot("n1")]);
    assert!(!cluster.objects[&reboot("n1")].timed_out);
}

#[test]
fn a_recovered_node_keeps_its_remediation_for_the_healthy_delay() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.healthy_delay = HealthyDelay::For(minutes(10)));
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(9 * MINUTE);
    exist(&cluster, &[reboot("n1")]);
    assert!(cluster.objects[&reboot("n1")].healthy_since.is_some());
    let node = listed(&cluster, "n1").expect("it is listed");
    assert!(node.healthy_delayed && node.healthy_since.is_some());
    // It flaps: the clock begins anew.
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    assert!(cluster.objects[&reboot("n1")].healthy_since.is_none());
    let node = listed(&cluster, "n1").expect("it is listed");
    assert!(!node.healthy_delayed && node.healthy_since.is_none());
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(9 * MINUTE);
    exist(&cluster, &[reboot("n1")]);
    cluster.run_well(MINUTE + 2_000);
    exist(&cluster, &[]);
}

/// Nobody had the time to note it down.
#[test]
fn a_relapse_that_no_status_tells_of_begins_the_healthy_delay_anew_too() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.healthy_delay = HealthyDelay::For(minutes(10)));
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(9 * MINUTE);
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(9 * MINUTE);
    exist(&cluster, &[reboot("n1")]);
    cluster.run_well(MINUTE + 2_000);
    exist(&cluster, &[]);
}

#[test]
fn a_person_can_confirm_that_a_node_is_healthy() {
    for delay in [HealthyDelay::UntilConfirmed, HealthyDelay::For(minutes(60))] {
        let mut cluster = settled();
        cluster.change_policy(|policy| policy.healthy_delay = delay);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(6_000);
        cluster.set_broken(&name("n1"), false);
        cluster.run_well(50 * MINUTE);
        exist(&cluster, &[reboot("n1")]);
        assert!(listed(&cluster, "n1").is_some_and(|node| node.healthy_delayed));
        cluster.annotations.insert(name("n1"), vec![(CONFIRMED_HEALTHY, "")]);
        cluster.touch(&name("n1"));
        cluster.run_well(5_000);
        exist(&cluster, &[]);
        assert!(cluster.annotations.is_empty(), "it has been heard, and is taken back");
    }
}

#[test]
fn after_a_storm_repairs_wait_for_the_cooldown() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.storm_cooldown = Some(minutes(10)));
    cluster.run_well(2_000);
    assert_eq!(condition(&cluster, reasons::STORM_ACTIVE), Some(Status::False));
    for node in ["n1", "n2", "n3", "n4"] {
        cluster.set_broken(&name(node), true);
    }
    cluster.run_well(10_000);
    assert_eq!(condition(&cluster, reasons::STORM_ACTIVE), Some(Status::True));
    // Straight to no unhealthy node at all, and then a real failure: it waits for what is left of the cooldown.
    for node in ["n1", "n2", "n3", "n4"] {
        cluster.set_broken(&name(node), false);
    }
    cluster.run_well(2_000);
    assert_eq!(condition(&cluster, reasons::STORM_COOLDOWN_ACTIVE), Some(Status::True));
    cluster.run_well(5 * MINUTE);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(4 * MINUTE);
    assert_eq!(decided(&cluster, "n1"), (Verdict::Hold, Because::StormCooldown));
    cluster.run_well(MINUTE + 5_000);
    exist(&cluster, &[reboot("n1")]);
    assert_eq!(condition(&cluster, reasons::STORM_ACTIVE), Some(Status::False));
    assert_eq!(condition(&cluster, reasons::STORM_COOLDOWN_ACTIVE), Some(Status::False));
    // Without the field the conditions go.
    cluster.change_policy(|policy| policy.storm_cooldown = None);
    cluster.run_well(5_000);
    assert_eq!(condition(&cluster, reasons::STORM_ACTIVE), None);
}

#[test]
fn another_storm_begins_the_cooldown_anew() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.storm_cooldown = Some(minutes(10)));
    let storm = |cluster: &mut Cluster, rages: bool| {
        for node in ["n1", "n2", "n3", "n4"] {
            cluster.set_broken(&name(node), rages);
        }
        cluster.run_well(10_000);
    };
    storm(&mut cluster, true);
    storm(&mut cluster, false);
    cluster.run_well(8 * MINUTE);
    storm(&mut cluster, true);
    storm(&mut cluster, false);
    cluster.run_well(8 * MINUTE);
    assert_eq!(condition(&cluster, reasons::STORM_COOLDOWN_ACTIVE), Some(Status::True));
    cluster.run_well(2 * MINUTE);
    assert_eq!(condition(&cluster, reasons::STORM_COOLDOWN_ACTIVE), Some(Status::False));
}

#[test]
fn an_excluded_node_is_left_alone_but_an_empty_label_excludes_nothing() {
    for (value, excluded) in [("true", true), ("", false), ("false", false)] {
        let mut cluster = settled();
        set_label(&mut cluster, "n1", EXCLUDE_LABEL, value);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        assert_eq!(because(&cluster, "n1") == Because::Excluded, excluded, "{value:?}");
        assert_eq!(cluster.created.is_empty(), excluded, "{value:?}");
    }
}

pub fn control_plane(cluster: &mut Cluster, nodes: &[&'static str], with_etcd: bool) {
    for node in nodes {
        set_label(cluster, node, "node-role.kubernetes.io/control-plane", "");
        if with_etcd {
            cluster.etcd.insert(format!("etcd-{node}").into(), Some(EtcdPod { node: name(node), ready: true }));
        }
    }
    cluster.run_well(10_000);
}

#[test]
fn the_control_plane_is_repaired_one_node_at_a_time() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], false);
    for node in ["n1", "n2", "n4"] {
        cluster.set_broken(&name(node), true);
    }
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n1"), reboot("n4")]);
    assert!(cluster.objects[&reboot("n1")].control_plane);
    assert_eq!(because(&cluster, "n2"), Because::ControlPlaneBusy { node: name("n1") });
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n2"), reboot("n4")]);
}

#[test]
fn etcd_never_loses_its_majority_by_our_hand() {
    // Hosts of etcd, those that are broken, and whether the first of these may be remediated.
    let rows: [(&[&'static str], &[&str], bool); 7] = [
        (&["n1"], &["n1"], false),
        (&["n1", "n2"], &["n1"], false),
        (&["n1", "n2", "n3"], &["n1"], true),
        (&["n1", "n2", "n3"], &["n1", "n2"], false),
        (&["n1", "n2", "n3", "n4"], &["n1"], true),
        (&["n1", "n2", "n3", "n4"], &["n1", "n2"], false),
        (&["n1", "n2", "n3", "n4", "n5"], &["n1", "n2"], true),
    ];
    for (hosts, broken, may) in rows {
        let mut cluster = settled();
        control_plane(&mut cluster, hosts, true);
        for node in broken {
            cluster.set_broken(&name(node), true);
        }
        cluster.run_well(8_000);
        assert_eq!(cluster.objects.contains_key(&reboot("n1")), may, "{broken:?} of {hosts:?}");
        assert_eq!(matches!(because(&cluster, "n1"), Because::EtcdQuorum { .. }), !may, "{broken:?} of {hosts:?}");
    }
}

fn lease(node: &str, holder: &str, cluster: &Cluster, lasts_for: Duration) -> NodeLease {
    NodeLease {
        name: format!("node-{node}").into(),
        uid: "theirs".into(),
        version: Version("1".into()),
        holder: holder.into(),
        acquired_at: cluster.now().wall,
        renewed_at: cluster.now().wall,
        lasts_for,
        transitions: 3,
    }
}

#[test]
fn a_node_that_somebody_else_holds_is_left_alone_until_the_lease_ends() {
    let mut cluster = settled();
    cluster.set_node_lease(lease("n1", "NodeMaintenance-n1", &cluster, minutes(10)));
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(9 * MINUTE);
    assert_eq!(decided(&cluster, "n1"), (Verdict::Hold, Because::Held { holder: name("NodeMaintenance-n1") }));
    cluster.run_well(MINUTE + 1_000);
    exist(&cluster, &[reboot("n1")]);
    assert_eq!(&*cluster.node_leases["node-n1"].holder, "NodeHealthCheck-workers");
}

#[test]
fn the_lease_is_held_while_the_remediation_exists_and_then_given_back() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(120 * MINUTE);
    let lease = &cluster.node_leases["node-n1"];
    assert!(lease.renewed_at.after(lease.lasts_for) > cluster.now().wall, "it has been renewed");
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(5_000);
    assert!(cluster.node_leases.is_empty());
}

/// Other operators read from it how long to keep off: for this step, and not for the longest of all.
#[test]
fn the_lease_lasts_for_the_current_step_and_a_minute_from_when_it_begins() {
    for (first, second) in [(10, 2), (2, 10), (3, 3)] {
        let mut cluster = escalating();
        cluster.change_policy(|policy| {
            (policy.steps[0].timeout, policy.steps[1].timeout) = (Some(minutes(first)), Some(minutes(second)));
        });
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(6_000);
        let lasts = |cluster: &Cluster, key: &ObjectKey| {
            let (lease, begun_at) = (&cluster.node_leases["node-n1"], cluster.objects[key].created_at);
            assert!(begun_at.0 - lease.renewed_at.0 < 20_000 && lease.renewed_at <= begun_at, "{first}, {second}: {lease:?}");
            lease.lasts_for
        };
        assert_eq!(lasts(&cluster, &reboot("n1")), minutes(first + 1), "{first}, {second}");
        cluster.run_well(i64::try_from(first).expect("a few minutes") * MINUTE);
        assert_eq!(lasts(&cluster, &power("n1")), minutes(second + 1), "{first}, {second}");
        // While the remediation stays, so does the Lease, for as long as its last step.
        cluster.run_well(60 * MINUTE);
        let lease = &cluster.node_leases["node-n1"];
        assert!(lease.renewed_at.after(lease.lasts_for) > cluster.now().wall && lease.lasts_for == minutes(second + 1));
    }
}

#[test]
fn a_remediation_whose_node_is_gone_is_kept_while_busy_but_not_beyond_its_step() {
    let mut cluster = escalating();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(6_000);
    cluster.change_object(&reboot("n1"), |object| object.processing = true);
    cluster.run_well(1_000);
    cluster.broken_since.remove("n1");
    cluster.list(Source::Nodes);
    cluster.run_well(4 * MINUTE);
    exist(&cluster, &[reboot("n1")]);
    cluster.run_well(2 * MINUTE);
    exist(&cluster, &[]);
    assert_eq!(listed(&cluster, "n1"), None, "nothing is left that could block the check");
}

/// To take it anew would be one more request to a server that has too many.
#[test]
fn a_busy_server_does_not_make_us_give_the_lease_on_a_node_back() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    let mut given_back = 0;
    for _ in 0..40 {
        cluster.hear_all();
        given_back += cluster.turn().effects.iter().filter(|effect| matches!(effect, Effect::ReleaseNode { .. })).count();
        while let Some(effect) = cluster.requests.front() {
            let creates = matches!(effect, Effect::Create(_));
            cluster.execute(0, if creates { Fate::Refused } else { Fate::Done });
        }
        cluster.time += 500;
    }
    assert_eq!((given_back, cluster.node_leases.len()), (0, 1));
    cluster.run_well(60_000);
    exist(&cluster, &[reboot("n1")]);
}
