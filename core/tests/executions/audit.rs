//! A plan that breaks a rule is told of, and not followed: by hand-made plans beside the nearest that keeps the rule, and by what
//! the planner itself makes where it is easily wrong.
//!
//! The mutants `audited-*` break the planner. What it plans then is not sent, so that only what the audit tells fails these tests.

use std::time::Duration;

use resus_core::audit::{Breach, Rule, audit};
use resus_core::effect::{Creation, Effect, Owner};
use resus_core::etcd::EtcdPod;
use resus_core::facts::{Limit, Mode, Name, Object, ObjectKey, OwnerRef, Policy, Source, Status};
use resus_core::input::{Fact, Gone, Input};
use resus_core::plan::Plan;
use resus_core::process::{News, Process};
use resus_core::time::{Mono, Now};
use resus_core::world::World;

use crate::checks::{control_plane, name, settled, steps};
use crate::model::{Cluster, Fate, at_most, key, remediation};

/// A plan, and the world that it was made of.
#[derive(Clone)]
struct Scene {
    world: World,
    plan: Plan,
    now: Now,
}

impl Scene {
    fn broken(&self) -> Vec<Rule> {
        audit(&self.world, &self.plan, self.now).into_iter().map(|breach| breach.rule).collect()
    }

    fn later(&mut self, millis: i64) {
        (self.now.mono.0, self.now.wall.0) = (self.now.mono.0 + millis, self.now.wall.0 + millis);
    }

    fn policy(&mut self) -> &mut Policy {
        let check = self.world.checks.get_mut("workers").expect("it is there");
        check.policy.as_mut().expect("it can be read")
    }

    fn creation(&self) -> Creation {
        let creations = self.plan.effects.iter().filter_map(|effect| match effect {
            Effect::Create(creation) => Some(creation.clone()),
            _ => None,
        });
        { creations }.next().expect("something is created")
    }

    /// The plan starts the same on another node, too.
    fn starts_on(&mut self, node: &str) {
        let mut creation = self.creation();
        creation.key.name = node.into();
        let Owner::Check { node: own, .. } = &mut creation.owner else { unreachable!("all are for nodes") };
        *own = node.into();
        self.plan.effects.push(Effect::Create(creation));
    }

    fn deletes(&mut self, key: &ObjectKey, uid: &str) {
        self.plan.effects.push(Effect::Delete { key: key.clone(), plural: "reboots".into(), uid: uid.into(), tells: Vec::new() });
    }

    fn hears(&mut self, input: Input) {
        self.world.apply(input, self.now);
    }
}

/// Its requests are answered and its watches follow until it starts or removes something, or that is not sent as it breaks a rule.
fn decisive(cluster: &mut Cluster) -> (Scene, Vec<Effect>, Vec<Breach>) {
    for _ in 0..10 {
        cluster.hear_all();
        let (world, now) = (cluster.world.clone(), cluster.now());
        let plan = resus_core::plan::plan(&world, now);
        let mut process = Process::new(world.clone(), now.mono);
        let sent: Vec<Effect> = process.turn(now).expect("it is time to").sends.into_iter().map(|(effect, _)| effect).collect();
        let breaches = told(&mut process);
        if !breaches.is_empty() || sent.iter().any(|effect| matches!(effect, Effect::Create(_) | Effect::Delete { .. })) {
            return (Scene { world, plan, now }, sent, breaches);
        }
        for effect in sent {
            cluster.world.sent(&effect, now);
            cluster.requests.push_back(effect);
        }
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time += 1;
    }
    let (world, now) = (cluster.world.clone(), cluster.now());
    let plan = resus_core::plan::plan(&world, now);
    (Scene { world, plan, now }, Vec::new(), Vec::new())
}

fn told(process: &mut Process) -> Vec<Breach> {
    let breaches = process.news().into_iter().filter_map(|news| match news {
        News::Breached(breach) => Some(breach),
        _ => None,
    });
    breaches.collect()
}

fn breaks(cluster: &mut Cluster, nodes: &[&str]) {
    nodes.iter().for_each(|node| cluster.set_broken(&name(node), true));
    cluster.hear_all();
    cluster.time += 5_001;
}

fn created(sent: &[Effect]) -> Vec<&str> {
    let nodes = sent.iter().filter_map(|effect| match effect {
        Effect::Create(creation) => creation.node().map(|node| &**node),
        _ => None,
    });
    nodes.collect()
}

/// Of six nodes, three of which may be unhealthy, one is to be remediated now.
fn starting() -> Scene {
    let mut cluster = settled();
    breaks(&mut cluster, &["n1"]);
    let (scene, sent, breaches) = decisive(&mut cluster);
    assert_eq!((created(&sent), breaches), (vec!["n1"], Vec::new()));
    scene
}

/// Likewise one of three nodes of the control plane with a member of etcd each.
fn starting_on_the_control_plane() -> Scene {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    breaks(&mut cluster, &["n1"]);
    let (scene, sent, breaches) = decisive(&mut cluster);
    assert_eq!((created(&sent), breaches), (vec!["n1"], Vec::new()));
    scene
}

/// A remediation of a node that is well is to be removed.
fn removing() -> Scene {
    let mut cluster = settled();
    let now = cluster.now();
    cluster.world.apply(Input::Seen(Fact::Object(remediation("n1"))), now);
    let (scene, sent, breaches) = decisive(&mut cluster);
    let deletes = |effect: &Effect| matches!(effect, Effect::Delete { .. });
    assert!(sent.iter().any(deletes) && breaches.is_empty(), "{sent:?} {breaches:?}");
    scene
}

/// What differs from a scene that breaks no rule.
type Change = fn(&mut Scene);

#[test]
fn what_breaks_a_rule_is_told_and_the_nearest_that_does_not_is_not() {
    let still: Change = |_| {};
    let rows: [(&str, fn() -> Scene, Rule, Change, Change); 22] = [
        ("an old look", starting, Rule::Look, |scene| scene.later(4_999), |scene| scene.later(5_000)),
        ("a look before the time was over", starting, Rule::Look, still, |scene| {
            scene.policy().rules[0].lasts_for = Duration::from_millis(5_100);
        }),
        ("a node that is ill for another reason", starting, Rule::Look, still, |scene| {
            scene.policy().rules[0].status = Status::Unknown;
        }),
        (
            "a node that is gone",
            starting,
            Rule::Look,
            |scene| scene.hears(Input::Gone(Gone::Node("n2".into()))),
            |scene| {
                scene.hears(Input::Gone(Gone::Node("n1".into())));
            },
        ),
        ("a node that nobody looked at", starting, Rule::Look, still, |scene| scene.starts_on("n2")),
        ("a dry run", starting, Rule::Look, still, |scene| scene.policy().mode = Mode::DryRun),
        ("a check that is gone", starting, Rule::Look, still, |scene| scene.hears(Input::Gone(Gone::Check("workers".into())))),
        (
            "a limit",
            starting,
            Rule::Budget,
            |scene| scene.policy().threshold = at_most(1),
            |scene| {
                scene.policy().threshold = at_most(0);
            },
        ),
        (
            "at the limit",
            starting,
            Rule::Budget,
            |scene| scene.policy().threshold = at_most(1),
            |scene| {
                scene.policy().threshold = at_most(1);
                scene.world.limit = Limit::Shut;
            },
        ),
        ("what exists", starting, Rule::Budget, |scene| exists_elsewhere(scene, 2), |scene| exists_elsewhere(scene, 3)),
        ("what may exist", starting, Rule::Budget, |scene| may_exist_elsewhere(scene, 2), |scene| may_exist_elsewhere(scene, 3)),
        (
            "a zone",
            starting,
            Rule::Budget,
            |scene| scene.policy().threshold = at_most(1),
            |scene| {
                scene.policy().threshold = at_most(0);
                scene.policy().topology_key = Some("role".into());
            },
        ),
        (
            "another of the control plane",
            starting_on_the_control_plane,
            Rule::ControlPlane,
            |scene| exists(scene, "n4"),
            |scene| {
                exists(scene, "n3");
            },
        ),
        ("another member is down", starting_on_the_control_plane, Rule::Etcd, still, |scene| {
            let (pod, says): (Name, _) = ("etcd-n2".into(), EtcdPod { node: "n2".into(), ready: false });
            scene.hears(Input::Seen(Fact::Etcd { pod, says: Some(says) }));
        }),
        ("of etcd nothing is heard", starting_on_the_control_plane, Rule::Etcd, still, |scene| {
            scene.hears(Input::Broken(Source::Etcd));
        }),
        (
            "who does not lead",
            lapsed,
            Rule::Leader,
            |scene| scene.plan.effects.push(Effect::ServerVersion),
            |scene| {
                scene.plan.effects.push(Effect::LeaseNamespace);
            },
        ),
        ("who stops", starting, Rule::Leader, still, |scene| scene.hears(Input::Stop)),
        ("by name alone", removing, Rule::Uid, still, |scene| scene.deletes(&key("Reboot", "n1"), "")),
        ("another of its name", removing, Rule::Ours, still, |scene| scene.deletes(&key("Reboot", "n1"), "another")),
        (
            "what the check consists of",
            removing,
            Rule::Ours,
            |scene| owned(scene, "check", false),
            |scene| {
                owned(scene, "check", true);
            },
        ),
        ("of another check", removing, Rule::Ours, still, |scene| owned(scene, "another", false)),
        ("more than one server is to get at once", removing, Rule::Requests, |scene| looks(scene, 63), |scene| looks(scene, 64)),
    ];
    let mut wrong = Vec::new();
    for (what, scene, rule, legal, bad) in rows {
        let (mut kept, mut broken) = (scene(), scene());
        legal(&mut kept);
        bad(&mut broken);
        let (kept, broken) = (kept.broken(), broken.broken());
        if !kept.is_empty() || broken.is_empty() || broken.iter().any(|own| *own != rule) {
            wrong.push(format!("{what}: {kept:?} and {broken:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// n1 may have three beside it; these are n2, n3 and so on.
fn exists_elsewhere(scene: &mut Scene, many: usize) {
    ["n2", "n3", "n4"].into_iter().take(many).for_each(|node| exists(scene, node));
}

fn exists(scene: &mut Scene, node: &str) {
    scene.hears(Input::Seen(Fact::Object(remediation(node))));
}

/// The nodes are gone by now.
fn may_exist_elsewhere(scene: &mut Scene, many: usize) {
    for node in ["x1", "x2", "x3"].into_iter().take(many) {
        let Owner::Check { check, check_uid, control_plane, .. } = scene.creation().owner else {
            unreachable!("it is for a node")
        };
        let owner = Owner::Check { node: node.into(), check, check_uid, control_plane, machine: None, tells: Vec::new() };
        let creation = Creation { key: key("Reboot", node), owner, ..scene.creation() };
        scene.world.sent(&Effect::Create(creation), scene.now);
    }
}

fn owned(scene: &mut Scene, uid: &str, controls: bool) {
    let owners = [OwnerRef { uid: uid.into(), controls, is_check: true }].into();
    scene.hears(Input::Seen(Fact::Object(Object { owners, ..remediation("n1") })));
}

fn looks(scene: &mut Scene, many: usize) {
    let look = |n| Effect::Look { cluster: None, node: format!("n{n}").into() };
    scene.plan.effects.retain(|effect| matches!(effect, Effect::Delete { .. }));
    scene.plan.effects.extend((0..many).map(look));
}

/// A plan that is all that one is to send who does not lead.
fn lapsed() -> Scene {
    let mut scene = starting();
    scene.later(60_000);
    scene.plan = resus_core::plan::plan(&scene.world, scene.now);
    assert!(!scene.plan.leads);
    scene
}

/// The node has its place in the budget, and nothing is taken back from it.
#[test]
fn a_next_step_and_a_budget_that_was_lowered_are_legal() {
    let mut cluster = settled();
    steps(&mut cluster, &[("RebootTemplate", "reboot"), ("PowerTemplate", "power")], false);
    breaks(&mut cluster, &["n1"]);
    cluster.run_well(5_000);
    cluster.set_broken(&name("n2"), true);
    cluster.change_policy(|policy| policy.threshold = at_most(0));
    cluster.run_well(310_000);
    assert_eq!(cluster.remediated(), [name("n1"), name("n1")], "the second step was taken, and n2 is left alone");
}

#[test]
fn of_a_plan_that_breaks_a_rule_only_the_lease_is_sent() {
    let mut scene = starting();
    scene.starts_on("n2");
    let mut process = Process::new(scene.world.clone(), scene.now.mono);
    let before = process.world.flights.clone();
    let lease = |effect: &Effect| matches!(effect, Effect::Lease(_));
    let renewals = scene.plan.effects.iter().filter(|effect| lease(effect)).count();
    let turn = process.follow(scene.plan, scene.now);
    assert_eq!(turn.sends.len(), renewals);
    assert!(turn.sends.iter().all(|(effect, _)| lease(effect)));
    assert_eq!(process.world.flights, before, "nothing counts as sent");
    let breaches = told(&mut process);
    assert_eq!(breaches.iter().map(|breach| breach.rule).collect::<Vec<_>>(), [Rule::Look]);
    assert_eq!(
        breaches[0].to_string(),
        "create Reboot default/n2 breaks the rule that nothing starts without a fresh look that still shows why"
    );
}

#[test]
fn the_third_breach_within_ten_minutes_is_the_last() {
    for (pause, fails) in [(30_000, true), (299_000, true), (301_000, false)] {
        let mut process = Process::new(starting().world, Mono(0));
        let mut scene = starting();
        for n in 0..3 {
            assert!(!process.has_failed(), "{pause}: {n} times");
            scene.starts_on("n2");
            process.follow(scene.plan.clone(), scene.now);
            assert_eq!(told(&mut process).len().min(1), 1, "{pause}: {n} times");
            scene.later(pause);
        }
        assert_eq!(process.has_failed(), fails, "{pause}");
    }
}

/// The same world gives the same plan, which need not be made again and again.
#[test]
fn after_a_breach_nothing_but_the_lease_is_sent_for_half_a_minute() {
    for (after, is_sent) in [(29_999, false), (30_000, true)] {
        let mut scene = starting();
        let mut process = Process::new(scene.world.clone(), scene.now.mono);
        let mut bad = scene.clone();
        bad.starts_on("n2");
        process.follow(bad.plan, bad.now);
        assert_eq!(told(&mut process).len(), 1);
        scene.later(after);
        scene.plan.effects = vec![Effect::ServerVersion];
        assert_eq!(process.follow(scene.plan, scene.now).sends.len(), usize::from(is_sent), "{after}");
        assert!(told(&mut process).is_empty() && !process.has_failed());
    }
}

#[test]
fn the_planner_starts_nothing_on_an_old_look() {
    let mut cluster = settled();
    breaks(&mut cluster, &["n1"]);
    cluster.hear_all();
    cluster.turn();
    while !cluster.requests.is_empty() {
        cluster.execute(0, Fate::Done);
    }
    cluster.hear_all();
    cluster.time += 5_001;
    let now = cluster.now();
    let mut process = Process::new(cluster.world, now.mono);
    let sent: Vec<Effect> = process.turn(now).expect("it is time to").sends.into_iter().map(|(effect, _)| effect).collect();
    assert_eq!(created(&sent), [""; 0], "it is not sent, whatever is planned");
    assert_eq!(told(&mut process), []);
}

#[test]
fn the_planner_starts_nothing_beyond_the_budget() {
    let mut cluster = settled();
    breaks(&mut cluster, &["n1", "n2", "n3", "n4"]);
    let (_, sent, breaches) = decisive(&mut cluster);
    assert_eq!(created(&sent), [""; 0], "it is not sent, whatever is planned");
    assert_eq!(breaches, []);
}

#[test]
fn the_planner_starts_on_one_of_the_control_plane() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], false);
    breaks(&mut cluster, &["n1", "n2"]);
    let (_, sent, breaches) = decisive(&mut cluster);
    assert!(created(&sent).len() <= 1, "no second is sent, whatever is planned: {sent:?}");
    assert_eq!(breaches, []);
}

#[test]
fn the_planner_starts_on_no_member_that_etcd_needs() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    let (pod, says): (Name, _) = ("etcd-n2".into(), EtcdPod { node: "n2".into(), ready: false });
    cluster.etcd.insert(pod.clone(), Some(says.clone()));
    cluster.tell(Input::Seen(Fact::Etcd { pod, says: Some(says) }));
    breaks(&mut cluster, &["n1"]);
    let (_, sent, breaches) = decisive(&mut cluster);
    assert_eq!(created(&sent), [""; 0], "it is not sent, whatever is planned");
    assert_eq!(breaches, []);
}

#[test]
fn the_planner_changes_nothing_while_another_may_lead() {
    let mut cluster = settled();
    breaks(&mut cluster, &["n1"]);
    cluster.time += 10_000;
    let now = cluster.now();
    let mut process = Process::new(cluster.world, now.mono);
    let sent: Vec<Effect> = process.turn(now).expect("it is time to").sends.into_iter().map(|(effect, _)| effect).collect();
    assert!(sent.iter().all(|effect| matches!(effect, Effect::Lease(_))), "nothing else is sent, whatever is planned: {sent:?}");
    assert_eq!(told(&mut process), []);
}

#[test]
fn the_planner_deletes_nothing_by_its_name_alone() {
    let mut cluster = settled();
    let now = cluster.now();
    cluster.world.apply(Input::Seen(Fact::Object(remediation("n1"))), now);
    let (_, sent, breaches) = decisive(&mut cluster);
    let by_name = |effect: &&Effect| matches!(effect, Effect::Delete { uid, .. } if uid.is_empty());
    assert_eq!(sent.iter().filter(by_name).count(), 0, "it is not sent, whatever is planned");
    assert_eq!(breaches, []);
}

#[test]
fn the_planner_deletes_nothing_that_a_check_consists_of() {
    let mut cluster = settled();
    let owners = [OwnerRef { uid: "check".into(), controls: true, is_check: true }].into();
    let now = cluster.now();
    cluster.world.apply(Input::Seen(Fact::Object(Object { owners, ..remediation("n1") })), now);
    let (_, sent, breaches) = decisive(&mut cluster);
    let deletes = |effect: &Effect| matches!(effect, Effect::Delete { .. });
    assert!(!sent.iter().any(deletes), "it is not sent, whatever is planned: {sent:?}");
    assert_eq!(breaches, []);
}

#[test]
fn the_planner_asks_for_no_more_than_one_server_is_to_get_at_once() {
    let mut cluster = Cluster::new(100, at_most(100), Duration::from_secs(5));
    cluster.run_well(10_000);
    let all: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    breaks(&mut cluster, &all.iter().map(String::as_str).collect::<Vec<_>>());
    let now = cluster.now();
    let mut process = Process::new(cluster.world, now.mono);
    let sent = process.turn(now).expect("it is time to").sends;
    let looks = sent.iter().filter(|(effect, _)| matches!(effect, Effect::Look { .. } | Effect::HoldNode(_))).count();
    assert!(looks <= 64, "no more are sent, whatever is planned: {looks}");
    assert_eq!(told(&mut process), []);
}
