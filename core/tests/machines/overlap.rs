//! Two checks, one machine.

use std::time::Duration;

use resus_core::decision::{Because, Decision};
use resus_core::effect::Effect;
use resus_core::facts::{
    Amount, CONTROL_PLANE_LABELS, Check, Claim, HealthyDelay, Kind, Mode, Object, ObjectKey, OwnerRef, Policy, Requirement, Rule,
    Selector, Source, Status, Step, Threshold,
};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::mhc::facts::{Budget, ClusterKey, Dialect, Repair, Sign};
use resus_core::plan::plan;
use resus_core::quorum::{self, Starting};
use resus_core::time::Wall;

use crate::facts::{by_template, check, foreign_node_check, object, remediation_kind, template_kind, up};
use crate::model::{CHECK, Fleet};

fn second(fleet: &mut Fleet, created_at: i64, repair: Repair, budget: Budget) {
    let mut other = check(Dialect::V1beta2, "other", repair, budget);
    other.created_at = Wall(created_at);
    fleet.add_check(other);
    fleet.settle();
}

const ALL: Budget = Budget::AtMost(Amount::Percent(100));
const NONE: Budget = Budget::AtMost(Amount::Count(0));

#[test]
fn the_older_check_acts_and_the_younger_says_so() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    // Older, and it would not act: its gate must not be bypassed.
    second(&mut fleet, 0, Repair::Owner, NONE);
    fleet.breaks("n1");
    fleet.wait(310);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("Overlapping").as_deref(), Some("True Overlapping"));
    assert!(
        fleet.message("Overlapping").contains("m1: the older check MachineHealthCheck ns/other"),
        "{}",
        fleet.message("Overlapping")
    );
    assert_eq!(fleet.status().healthy, Some(2), "it counts in both");
    assert_eq!(fleet.checks["other"].status.healthy, Some(2));
    assert_eq!(fleet.sign("m1", Sign::HealthCheckSucceeded).as_deref(), Some("False UnhealthyNode"));

    // It goes, and the younger takes over.
    fleet.remove_check("other");
    fleet.wait(2);
    assert_eq!(fleet.all_asked(), ["m1"]);
    assert_eq!(fleet.condition("Overlapping"), None);
}

#[test]
fn a_check_that_cannot_act_owns_nothing() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, Repair::Owner, Amount::Percent(100));
    second(&mut fleet, 0, by_template(), ALL);
    fleet.breaks("n1");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m1"], "the template of the other does not exist");
}

/// Two checks that disagree must not write over each other.
#[test]
fn checks_do_not_fight_over_a_machine() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Percent(100));
    let mut lenient = check(Dialect::V1beta2, "other", Repair::Owner, ALL);
    lenient.policy.as_mut().expect("it is valid").node_rules.retain(|rule| rule.status == Status::Unknown);
    fleet.add_check(lenient);
    fleet.settle();
    fleet.breaks("n1");
    fleet.wait(302);
    let written = fleet.written.len();
    fleet.wait(600);
    assert_eq!(fleet.written.len(), written, "{:?}", &fleet.written[written..]);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

#[test]
fn checks_of_others_count_as_older() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 2, Repair::Owner, Amount::Percent(100));
    fleet.world.machine_claim = Claim::Marked;
    fleet.change_check(CHECK, |check| check.take_over = true);
    second(&mut fleet, i64::MAX / 2, Repair::Owner, ALL);
    fleet.breaks("n1");
    fleet.wait(310);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("Overlapping").as_deref(), Some("True Overlapping"));
}

/// A check of nodes that is ours and would remediate whatever is not ready for five minutes.
fn node_check() -> Check {
    let template = ObjectKey {
        kind: Kind { api_version: "nodes.test/v1".into(), kind: "RebootTemplate".into() },
        namespace: Some("ns".into()),
        name: "reboot".into(),
    };
    let policy = Policy {
        selector: Selector::default(),
        rules: vec![Rule { kind: "Ready".into(), status: Status::False, lasts_for: Duration::from_secs(300) }],
        threshold: Threshold::MaxUnhealthy(Amount::Percent(100)),
        steps: vec![Step { template, timeout: None }],
        pause_requests: Vec::new(),
        healthy_delay: HealthyDelay::None,
        storm_cooldown: None,
        mode: Mode::Act,
        topology_key: None,
        repeat: None,
        startup_timeout: None,
    };
    Check { take_over: true, policy: Ok(policy), ..foreign_node_check("uid-nhc") }
}

/// What it decides about n1, which is not ready for long enough; it makes the same as the check of machines.
fn decided_by_node_check(fleet: &mut Fleet) -> Because {
    // Nobody is asked about upgrades here.
    fleet.world.detectors.on.clear();
    let mut check = node_check();
    check.policy.as_mut().expect("it is valid").steps[0].template =
        ObjectKey { kind: template_kind(), namespace: Some("ns".into()), name: "cycle".into() };
    fleet.tell(Input::Seen(Fact::Check(check)));
    fleet.list(Source::NodeLeases);
    fleet.time += 301_000;
    for source in fleet.world.sources().cloned().collect::<Vec<_>>() {
        fleet.tell(Input::Heard(source));
    }
    let now = plan(&fleet.world, fleet.now());
    let is_wanted = |decision: &&Decision| *decision.check == *"nhc" && *decision.node == *"n1";
    now.decisions.iter().find(is_wanted).expect("it is decided on").because.clone()
}

/// Another that says of no host which one it is, and that no check watches over, changes nothing.
#[test]
fn of_two_machines_that_name_one_node_the_one_that_is_certainly_of_its_host_counts() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, by_template(), Amount::Percent(100));
    fleet.add_template();
    let mut thief = fleet.machines["m1"].clone();
    (thief.place.name, thief.uid, thief.provider_id, thief.marks.skipped) = ("a-thief".into(), "uid-thief".into(), None, true);
    fleet.machines.insert("a-thief".into(), thief.clone());
    fleet.tell(Input::Seen(Fact::Machine(thief)));
    fleet.breaks("n1");
    let owner = "MachineHealthCheck ns/check".into();
    assert_eq!(decided_by_node_check(&mut fleet), Because::Overlapping { owner });
}

#[test]
fn what_may_have_been_made_for_a_machine_holds_its_node_when_its_check_is_gone() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, by_template(), Amount::Percent(100));
    fleet.add_template();
    fleet.breaks("n1");
    fleet.wait(297);
    let sent = fleet.until_sent(|effect| matches!(effect, Effect::Create(_)));
    fleet.tell(Input::Answered(sent.key(), Answer::Unsure { why: "lost".into() }));
    fleet.remove_check(CHECK);
    let key = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "m1".into() };
    assert_eq!(decided_by_node_check(&mut fleet), Because::LeftBehind { key });
}

/// What was made under a check of nodes that is gone, and is not gone itself.
#[test]
fn what_a_check_of_nodes_has_left_on_a_node_holds_its_machine() {
    for (owner, is_held) in [("uid-nhc", true), ("uid-of-another", false)] {
        for (repair, node_goes) in [(by_template(), false), (by_template(), true), (Repair::Owner, false)] {
            let mut fleet = Fleet::with(Dialect::V1beta2, 3, repair.clone(), Amount::Percent(100));
            fleet.add_template();
            let check = node_check();
            fleet.tell(Input::Seen(Fact::Check(Check { policy: check.policy, ..foreign_node_check("uid-nhc") })));
            // Of a kind that is in sight.
            if repair == Repair::Owner {
                let mut other = crate::facts::check(Dialect::V1beta2, "other", by_template(), NONE);
                other.policy.as_mut().expect("it is valid").selector = Selector(vec![Requirement::Exists("none".into())]);
                fleet.add_check(other);
                fleet.settle();
            }
            let key = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "left".into() };
            let owners = [OwnerRef { uid: owner.into(), controls: false, is_check: is_held }].into();
            fleet.add_object(Object { owners, node: "n1".into(), ..object(key.clone(), 77) });
            fleet.tell(Input::Gone(Gone::Check("nhc".into())));
            match node_goes {
                true => fleet.node_goes(None, "n1"),
                false => fleet.breaks("n1"),
            }
            fleet.wait(400);
            let is_repaired = |fleet: &Fleet| fleet.asked("m1") || fleet.remediations().contains(&"m1");
            assert_eq!(is_repaired(&fleet), !is_held, "{owner}, {repair:?}, {node_goes}");
            assert_eq!(fleet.message("RemediationHeld").contains("belongs to no check that could act"), is_held);
            fleet.objects.remove(&key);
            fleet.tell(Input::Gone(Gone::Object(key, "uid-77".into())));
            fleet.wait(10);
            assert!(is_repaired(&fleet), "{owner}, {repair:?}, {node_goes}");
        }
    }
}

/// Its node has the name of one here.
#[test]
fn what_is_left_on_a_node_here_is_nothing_to_machines_elsewhere() {
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, 3).into_cluster();
    let mut blue = check(Dialect::V1beta2, CHECK, by_template(), ALL);
    blue.cluster = Some("blue".into());
    fleet.add_check(blue);
    fleet.add_template();
    let policy = node_check().policy;
    fleet.tell(Input::Seen(Fact::Check(Check { policy, ..foreign_node_check("uid-nhc") })));
    let left = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "left".into() };
    let owners = [OwnerRef { uid: "uid-nhc".into(), controls: false, is_check: true }].into();
    fleet.add_object(Object { owners, node: "n1".into(), ..object(left, 77) });
    fleet.tell(Input::Gone(Gone::Check("nhc".into())));
    fleet.ready(Some(&key), "n1", Status::False);
    fleet.wait(400);
    assert_eq!(fleet.remediations(), ["left", "m1"]);
}

/// It may still put the machine right, or take it away for good.
#[test]
fn a_check_of_nodes_that_is_at_work_on_a_node_that_is_gone_has_its_machine() {
    let mut fleet = Fleet::with(Dialect::V1beta2, 3, by_template(), Amount::Percent(100));
    fleet.add_template();
    let policy = node_check().policy;
    fleet.tell(Input::Seen(Fact::Check(Check { policy, ..foreign_node_check("uid-nhc") })));
    let key = ObjectKey { kind: remediation_kind(), namespace: Some("ns".into()), name: "at-work".into() };
    let owners = [OwnerRef { uid: "uid-nhc".into(), controls: false, is_check: true }].into();
    fleet.add_object(Object { owners, node: "n1".into(), ..object(key.clone(), 77) });
    fleet.node_goes(None, "n1");
    fleet.wait(400);
    assert_eq!(fleet.remediations(), ["at-work"]);
    assert!(fleet.message("Overlapping").contains("the older check nhc"), "{}", fleet.message("Overlapping"));
    fleet.objects.remove(&key);
    fleet.tell(Input::Gone(Gone::Object(key, "uid-77".into())));
    fleet.wait(10);
    assert_eq!(fleet.remediations(), ["m1"]);
}

/// Whether the control plane of this cluster is being repaired by a machine is seen by checks of nodes; that of another cluster
/// is none of theirs.
#[test]
fn the_control_plane_is_one_for_machines_and_nodes() {
    let breaks = |fleet: &mut Fleet| {
        fleet.breaks("n0");
        fleet.wait(302);
    };
    let leaves = |fleet: &mut Fleet| fleet.change("m0", |machine| machine.deleting = true);
    let ways: [(Repair, bool, &dyn Fn(&mut Fleet), bool); 4] = [
        (by_template(), false, &leaves, true),
        (by_template(), true, &leaves, false),
        (by_template(), false, &breaks, true),
        (Repair::Owner, false, &breaks, true),
    ];
    for (at, (repair, elsewhere, begin, is_busy)) in ways.into_iter().enumerate() {
        let mut fleet = Fleet::with(Dialect::V1beta2, 3, repair, Amount::Percent(100));
        fleet.add_template();
        if elsewhere {
            fleet.has_clusters = true;
            let key = ClusterKey { namespace: "ns".into(), name: "blue".into() };
            fleet.clusters.insert(key.clone(), up(&key));
            fleet.restart();
        }
        for name in ["n0", "n1", "n2"] {
            let mut node = fleet.nodes[&None][name].clone();
            node.labels = [(CONTROL_PLANE_LABELS[0], "")].into_iter().collect();
            node.version = fleet.next_version();
            fleet.nodes.get_mut(&None).expect("it is there").insert(name.into(), node.clone());
            fleet.tell(Input::Seen(Fact::Node(node)));
        }
        begin(&mut fleet);
        let mut check = node_check();
        check.policy.as_mut().expect("it is valid").selector =
            Selector(vec![Requirement::Exists(CONTROL_PLANE_LABELS[0].into())]);
        fleet.tell(Input::Seen(Fact::Check(check)));
        fleet.breaks("n1");
        fleet.time += 301_000;
        for source in [Source::Nodes, Source::Checks] {
            fleet.tell(Input::Heard(source));
        }
        let concerned = quorum::forbids(&fleet.world, &fleet.nodes[&None]["n1"].clone(), &Starting::new(), fleet.now());
        let told = matches!(&concerned, Some(Because::ControlPlaneBusy { node }) if **node == *"n0");
        assert_eq!(told, is_busy, "{at}: {concerned:?}");
    }
}
