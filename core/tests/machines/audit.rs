//! As `executions/audit.rs`, of machines.

use resus_core::audit::{Breach, Rule, audit};
use resus_core::effect::{Effect, Target};
use resus_core::facts::Amount;
use resus_core::input::Input;
use resus_core::mhc::facts::{Budget, Dialect, Machine, MachinePolicy, ROLE_LABEL, Repair, Sign};
use resus_core::plan::Plan;
use resus_core::process::{News, Process};
use resus_core::time::Now;
use resus_core::world::World;

use crate::facts::by_template;
use crate::model::{CHECK, Fleet};

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

    fn policy(&mut self) -> &mut MachinePolicy {
        let check = self.world.fleet.checks.values_mut().find(|check| &*check.place.name == CHECK).expect("it is there");
        check.policy.as_mut().expect("it can be read")
    }

    fn machine(&mut self, name: &str, change: impl FnOnce(&mut Machine)) {
        let machine = self.world.fleet.machines.values_mut().find(|machine| &*machine.place.name == name);
        change(machine.expect("it is there"));
    }

    /// The plan deletes a machine.
    fn deletes(&mut self, name: &str, with_uid: bool) {
        let machine = self.world.fleet.machines.values().find(|machine| &*machine.place.name == name).expect("it is there");
        let uid = if with_uid { machine.uid.clone() } else { "".into() };
        let (place, dialect, version) = (machine.place.clone(), machine.dialect, machine.version.clone());
        let machine = Target { place, dialect, uid, version };
        self.plan.effects.push(Effect::DeleteMachine { machine, tells: Vec::new() });
    }
}

fn starts(effect: &Effect) -> bool {
    match effect {
        Effect::Sign(signing) => signing.edits.iter().any(|edit| edit.sign == Sign::OwnerRemediated),
        other => matches!(other, Effect::Create(_) | Effect::DeleteMachine { .. } | Effect::PowerCycle { .. }),
    }
}

/// Requests are answered until something starts, or that is not sent as it breaks a rule.
fn decisive(fleet: &mut Fleet) -> (Scene, Vec<Effect>, Vec<Breach>) {
    for _ in 0..20 {
        let (world, now) = (fleet.world.clone(), fleet.now());
        let plan = resus_core::plan::plan(&world, now);
        let mut process = Process::new(world.clone(), now.mono);
        let sent: Vec<Effect> = process.turn(now).expect("it is time to").sends.into_iter().map(|(effect, _)| effect).collect();
        let breaches = told(&mut process);
        if !breaches.is_empty() || sent.iter().any(starts) {
            return (Scene { world, plan, now }, sent.into_iter().filter(starts).collect(), breaches);
        }
        for effect in sent {
            fleet.world.sent(&effect, now);
            fleet.carry_out(&effect);
        }
        fleet.time += 1;
    }
    let (world, now) = (fleet.world.clone(), fleet.now());
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

/// Of four machines, two of which may be unhealthy, n1 is not ready, and its time is about to be over.
fn ill(dialect: Dialect, repair: Repair, change: fn(&mut Fleet)) -> Fleet {
    let mut fleet = Fleet::with(dialect, 4, repair, Amount::Count(2));
    fleet.add_template();
    change(&mut fleet);
    fleet.breaks("n1");
    fleet.wait(297);
    fleet.time += 4_000;
    let fed: Vec<_> = fleet.world.sources().cloned().collect();
    fed.into_iter().for_each(|source| fleet.tell(Input::Heard(source)));
    fleet
}

fn starting(dialect: Dialect, repair: Repair) -> Scene {
    let (scene, sent, breaches) = decisive(&mut ill(dialect, repair, |_| {}));
    assert!(sent.len() == 1 && breaches.is_empty(), "{sent:?} {breaches:?}");
    scene
}

fn made() -> Scene {
    starting(Dialect::V1beta2, by_template())
}

fn asked() -> Scene {
    starting(Dialect::V1beta2, Repair::Owner)
}

fn replaced() -> Scene {
    starting(Dialect::OpenShift, Repair::Deletion)
}

fn cycled() -> Scene {
    starting(Dialect::OpenShift, Repair::PowerCycle)
}

type Change = fn(&mut Scene);

#[test]
fn what_breaks_a_rule_is_told_and_the_nearest_that_does_not_is_not() {
    let still: Change = |_| {};
    let rows: [(&str, fn() -> Scene, Rule, Change, Change); 17] = [
        ("an old look", made, Rule::Look, |scene| scene.later(4_900), |scene| scene.later(5_100)),
        ("an old look before its owner is asked", asked, Rule::Look, |scene| scene.later(4_900), |scene| scene.later(5_100)),
        ("a machine that nobody looked at", made, Rule::Look, still, |scene| scene.world.fleet.looks.clear()),
        ("another machine of its name", made, Rule::Look, still, |scene| {
            scene.machine("m1", |machine| machine.uid = "another".into());
        }),
        ("a node that nobody looked at", made, Rule::Look, still, |scene| {
            scene.machine("m1", |machine| machine.node = Some("n9".into()));
        }),
        ("a check that asks for something else", made, Rule::Look, still, |scene| scene.policy().repair = Repair::Owner),
        ("a machine that is well", replaced, Rule::Look, still, |scene| scene.policy().node_rules.clear()),
        ("what is taken out of it", asked, Rule::Look, still, |scene| {
            scene.machine("m1", |machine| machine.marks.skipped = true);
        }),
        (
            "a limit",
            replaced,
            Rule::Budget,
            |scene| scene.policy().budget = Budget::AtMost(Amount::Count(1)),
            |scene| {
                scene.policy().budget = Budget::AtMost(Amount::Count(0));
            },
        ),
        (
            "a range",
            made,
            Rule::Budget,
            |scene| scene.policy().budget = Budget::Between { min: 0, max: 1 },
            |scene| {
                scene.policy().budget = Budget::Between { min: 0, max: 0 };
            },
        ),
        ("others that leave", cycled, Rule::Budget, |scene| leave(scene, &["m2"]), |scene| leave(scene, &["m2", "m3"])),
        ("a request to an owner", asked, Rule::Budget, |scene| leave(scene, &["m2"]), |scene| leave(scene, &["m2", "m3"])),
        (
            "another of the control plane",
            replaced,
            Rule::ControlPlane,
            |scene| masters(scene, &["m1"]),
            |scene| {
                masters(scene, &["m1", "m2"]);
            },
        ),
        (
            "a Machine without its uid",
            replaced,
            Rule::Uid,
            |scene| scene.plan.effects.clear(),
            |scene| {
                scene.plan.effects.clear();
                scene.deletes("m1", false);
            },
        ),
        ("nobody makes another", replaced, Rule::Replacement, still, |scene| {
            scene.machine("m1", |machine| machine.has_controller = false);
        }),
        (
            "a Machine that is only to be power-cycled",
            cycled,
            Rule::Replacement,
            |scene| fails(scene, true),
            |scene| {
                fails(scene, false);
            },
        ),
        ("a Machine that a template repairs", made, Rule::Replacement, still, |scene| scene.deletes("m1", true)),
    ];
    let mut wrong = Vec::new();
    for (what, scene, rule, legal, bad) in rows {
        let (mut kept, mut broken) = (scene(), scene());
        legal(&mut kept);
        bad(&mut broken);
        let (kept, broken) = (kept.broken(), broken.broken());
        // A Machine that must not be deleted is often not to be repaired either.
        let is_it = |own: &Rule| *own == rule || [Rule::Uid, Rule::Replacement].contains(&rule) && *own == Rule::Look;
        if !kept.is_empty() || !broken.contains(&rule) || !broken.iter().all(is_it) {
            wrong.push(format!("{what}: {kept:?} and {broken:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

fn leave(scene: &mut Scene, machines: &[&str]) {
    machines.iter().for_each(|machine| scene.machine(machine, |machine| machine.deleting = true));
}

/// All of which are being deleted, but for m1.
fn masters(scene: &mut Scene, machines: &[&str]) {
    for name in machines {
        scene.machine(name, |machine| {
            machine.labels = [ROLE_LABEL].into_iter().collect();
            machine.deleting = &*machine.place.name != "m1";
        });
    }
}

fn fails(scene: &mut Scene, has_failed: bool) {
    scene.plan.effects.clear();
    scene.machine("m1", |machine| machine.failed = has_failed);
    scene.deletes("m1", true);
}

#[test]
fn the_planner_starts_nothing_without_a_look_at_the_machine() {
    for (dialect, repair) in
        [(Dialect::V1beta2, by_template()), (Dialect::V1beta2, Repair::Owner), (Dialect::OpenShift, Repair::Deletion)]
    {
        let mut fleet = ill(dialect, repair, |_| {});
        let now = fleet.now();
        let mut process = Process::new(fleet.world.clone(), now.mono);
        let sent = process.turn(now).expect("it is time to").sends;
        assert!(!sent.iter().any(|(effect, _)| starts(effect)), "it is not sent, whatever is planned: {sent:?}");
        assert_eq!(told(&mut process), []);
        fleet.settle();
    }
}

#[test]
fn the_planner_deletes_no_machine_that_nobody_replaces() {
    let mut fleet =
        ill(Dialect::OpenShift, Repair::Deletion, |fleet| fleet.change("m1", |machine| machine.has_controller = false));
    let (_, sent, breaches) = decisive(&mut fleet);
    assert_eq!(sent, [], "it is not sent, whatever is planned");
    assert_eq!(breaches, []);
}

#[test]
fn the_planner_repairs_no_machines_beyond_the_budget() {
    let mut fleet = ill(Dialect::V1beta2, by_template(), |fleet| {
        fleet.breaks("n2");
        fleet.breaks("n3");
    });
    let (_, sent, breaches) = decisive(&mut fleet);
    assert!(!sent.iter().any(|effect| matches!(effect, Effect::Create(_))), "it is not sent, whatever is planned: {sent:?}");
    assert_eq!(breaches, []);
}
