//! What is, or may be, still at work on a node although its check no longer has it; and what is forgotten in time.

use std::time::Duration;

use crate::checks::control_plane;
use crate::model::{Cluster, Fate, at_most, key, plan, remediation};
use resus_core::decision::{Because, Decision};
use resus_core::effect::{Effect, EffectKey, Owner};
use resus_core::facts::{
    Check, Kind, MACHINE_ANNOTATION, Name, Object, ObjectKey, OwnerRef, Requirement, Selector, Source, Step, Version,
};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::nhc::CheckStatus;
use resus_core::plan::Plan;
use resus_core::time::Wall;

fn apply(cluster: &mut Cluster, input: Input) {
    let now = cluster.now();
    cluster.world.apply(input, now);
}

/// Four nodes of which one may be unhealthy, for five seconds.
fn settled() -> Cluster {
    let mut cluster = Cluster::new(4, at_most(1), Duration::from_secs(5));
    cluster.run_well(10_000);
    cluster
}

/// A check that makes something else of the same nodes.
fn younger(cluster: &mut Cluster) -> Check {
    let mut check = cluster.check.clone();
    (check.name, check.uid, check.created_at) = ("younger".into(), "younger".into(), Wall(check.created_at.0 + 1000));
    // Its status is never stored.
    (check.version, check.status) = (Version("0".into()), CheckStatus::default());
    let template = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    let template = Object { key: key("PowerTemplate", "power"), ..template };
    check.policy.as_mut().expect("it is valid").steps[0].template = template.key.clone();
    cluster.add_object(template);
    check
}

fn delete_check(cluster: &mut Cluster) {
    cluster.has_no_check = true;
    cluster.hear_of(&Source::Checks);
    apply(cluster, Input::Gone(Gone::Check("workers".into())));
}

/// Turns, with every request answered, while nothing is heard of the kinds of remediations.
fn turns(cluster: &mut Cluster, many: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    for _ in 0..many {
        for source in cluster.world.sources().cloned().collect::<Vec<_>>() {
            if !matches!(&source, Source::Objects(kind) if !kind.kind.ends_with("Template")) {
                cluster.hear_of(&source);
            }
            apply(cluster, Input::Heard(source));
        }
        plans.push(cluster.turn());
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::Done);
        }
        cluster.time += 250;
    }
    plans
}

fn because<'a>(plan: &'a Plan, check: &str, node: &str) -> &'a Because {
    let is_wanted = |decision: &&Decision| &*decision.check == check && &*decision.node == node;
    &plan.decisions.iter().find(is_wanted).expect("it is decided on").because
}

/// n1 is broken, and the answer to its creation was lost; the watch does not show it.
fn lost_creation() -> (Cluster, ObjectKey) {
    lost_creation_in(settled())
}

fn lost_creation_in(mut cluster: Cluster) -> (Cluster, ObjectKey) {
    cluster.set_broken(&"n1".into(), true);
    cluster.hear_all();
    cluster.time += 5_001;
    let is_create = |effect: &Effect| matches!(effect, Effect::Create(_));
    for _ in 0..20 {
        cluster.turn();
        if let Some(at) = cluster.requests.iter().position(is_create) {
            let key = match &cluster.requests[at] {
                Effect::Create(creation) => creation.key.clone(),
                _ => unreachable!("it was looked for"),
            };
            cluster.execute(at, Fate::LostAfter);
            return (cluster, key);
        }
        cluster.execute(0, Fate::Done);
        cluster.hear_of(&Source::NodeLeases);
    }
    panic!("it is never created");
}

/// What is on its way is not gone with its node.
#[test]
fn what_may_have_been_created_for_a_node_that_is_gone_counts_against_the_limit() {
    let (mut cluster, key) = lost_creation();
    cluster.objects.remove(&key).expect("it was stored, and goes before anybody hears of it");
    cluster.broken_since.remove("n1");
    cluster.tell(Input::Gone(Gone::Node("n1".into())));
    cluster.set_broken(&"n2".into(), true);
    cluster.hear_of(&Source::Nodes);
    cluster.time += 5_001;
    let create = EffectKey::Create(key);
    let (mut waits, mut starts) = (0, 0);
    for _ in 0..100 {
        let may_exist = cluster.world.flights.may_have_happened(&create);
        let plan = turns(&mut cluster, 1).remove(0);
        let started = plan.effects.iter().filter(|effect| matches!(effect, Effect::Create(_))).count();
        assert!(started == 0 || !may_exist, "only one may be unhealthy");
        (waits, starts) = (waits + usize::from(may_exist), starts + started);
    }
    assert!(waits > 0 && starts == 1, "{waits} {starts}");
}

#[test]
fn what_may_have_been_created_under_another_check_is_waited_for() {
    enum Change {
        SelectsNothing,
        IsDeleted,
        IsReplaced,
    }
    for change in [Change::SelectsNothing, Change::IsDeleted, Change::IsReplaced] {
        let (mut cluster, key) = lost_creation();
        let other = younger(&mut cluster);
        apply(&mut cluster, Input::Seen(Fact::Check(other.clone())));
        match &change {
            Change::SelectsNothing => {
                cluster.change_policy(|policy| policy.selector = Selector(vec![Requirement::Exists("none".into())]));
            }
            Change::IsDeleted => delete_check(&mut cluster),
            Change::IsReplaced => {
                (cluster.check.uid, cluster.check.created_at) = ("another".into(), Wall(other.created_at.0 + 1000));
                cluster.check_changed();
            }
        }
        let lost = cluster.created.len();
        let plans = turns(&mut cluster, 40);
        assert_eq!(cluster.created.len(), lost, "what was lost may be there");
        let told = Because::Overlapping { owner: "workers".into() };
        let is_told = |plan: &Plan| plan.decisions.iter().any(|own| *own.check == *"younger" && own.because == told);
        assert!(plans.iter().any(is_told), "{:?}", plans.last());
        assert!(cluster.node_leases.contains_key("node-n1"), "the node is not given back meanwhile");
        let asks = |effect: &Effect| matches!(effect, Effect::Read { key: asked, .. } if *asked == key);
        assert!(plans.iter().any(|plan| plan.effects.iter().any(asks)), "the server is asked");
        // Whoever removes it, us or the garbage collector.
        cluster.hear_all();
        turns(&mut cluster, 4);
        let is_left = !matches!(change, Change::SelectsNothing);
        assert!(!is_left || cluster.node_leases.contains_key("node-n1"), "nor while it is at work");
        cluster.remove_object(&key);
        cluster.run_well(20_000);
        let live = || cluster.objects.values().filter(|object| object.body.is_none());
        assert_eq!(live().map(|object| &*object.key.kind.kind).collect::<Vec<_>>(), ["Power"], "then the other begins");
    }
}

#[test]
fn what_may_have_been_created_on_the_control_plane_holds_all_of_it() {
    let mut cluster = Cluster::new(5, at_most(3), Duration::from_secs(5));
    cluster.run_well(10_000);
    control_plane(&mut cluster, &["n0", "n1", "n2"], false);
    let (mut cluster, _) = lost_creation_in(cluster);
    cluster.set_broken(&"n2".into(), true);
    cluster.hear_of(&Source::Nodes);
    cluster.time += 5_001;
    let now = plan(&cluster.world, cluster.now());
    assert_eq!(*because(&now, "workers", "n2"), Because::ControlPlaneBusy { node: "n1".into() });
}

/// A template may be changed while no status tells of a remediation yet.
#[test]
fn what_was_made_from_an_earlier_template_is_at_work_before_any_status_tells_of_it() {
    for is_seen_first in [false, true] {
        let (mut cluster, key) = lost_creation();
        let template = younger(&mut cluster).policy.expect("it is valid").steps[0].template.clone();
        if is_seen_first {
            cluster.hear_of(&Source::Objects(key.kind.clone()));
        }
        cluster.change_policy(|policy| policy.steps[0].template = template);
        // No status is ever stored.
        for _ in 0..40 {
            cluster.hear_all();
            cluster.turn();
            cluster.requests.retain(|effect| !matches!(effect, Effect::Status { .. }));
            while !cluster.requests.is_empty() {
                cluster.execute(0, Fate::Done);
            }
            cluster.time += 250;
        }
        assert_eq!(cluster.created.len(), 1);
        let now = plan(&cluster.world, cluster.now());
        assert!(now.watches.contains(&Source::Objects(key.kind.clone())));
        assert!(matches!(because(&now, "workers", "n1"), Because::Remediating { key: own, .. } if *own == key));
        cluster.remove_object(&key);
        cluster.run_well(20_000);
        assert_eq!(cluster.created.len(), 2);
    }
}

/// Whoever may write such objects in a namespace of their own would stop all repairs.
#[test]
fn what_others_make_elsewhere_holds_nobody_back() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n0", "n1", "n2"], false);
    for node in ["n1", "n2"] {
        let owners = Box::new([OwnerRef { uid: "invented".into(), controls: false, is_check: true }]);
        let forged = remediation(node);
        let key = ObjectKey { namespace: Some("tenant".into()), ..forged.key.clone() };
        cluster.add_object(Object { key, control_plane: true, owners, ..forged });
    }
    cluster.set_broken(&"n2".into(), true);
    cluster.run_well(20_000);
    assert_eq!(cluster.created.len(), 1, "{:?}", because(&plan(&cluster.world, cluster.now()), "workers", "n2"));
}

/// They can name any check as the owner. On a node that is well, on one that will not be, and on one that is not there.
#[test]
fn what_others_make_elsewhere_in_the_name_of_a_check_is_none_of_its_work() {
    let mut cluster = settled();
    for node in ["n0", "n1", "nowhere"] {
        let forged = remediation(node);
        let key = ObjectKey { namespace: Some("tenant".into()), ..forged.key.clone() };
        cluster.add_object(Object { key, finalizers: 1, ..forged });
    }
    cluster.run_well(10_000);
    assert_eq!((cluster.check.status.unhealthy.len(), cluster.check.status.healthy), (0, Some(4)));
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(20_000);
    assert_eq!(cluster.created.len(), 1, "{:?}", because(&plan(&cluster.world, cluster.now()), "workers", "n1"));
    cluster.set_broken(&"n1".into(), false);
    cluster.run_well(20_000);
    let left = cluster.objects.keys().filter(|key| key.namespace.as_deref() == Some("tenant")).count();
    assert_eq!((left, cluster.remediated().len()), (3, 3), "its own is removed, and nothing else");
}

/// A check makes such objects where its templates are, and has made them where its status says.
#[test]
fn what_is_left_where_a_status_tells_of_others_is_waited_for() {
    for is_told in [true, false] {
        let mut cluster = Cluster::new(4, at_most(2), Duration::from_secs(5));
        cluster.run_well(10_000);
        cluster.set_broken(&"n1".into(), true);
        cluster.run_well(10_000);
        assert_eq!(cluster.check.status.unhealthy.len(), 1);
        let template = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
        let moved = ObjectKey { namespace: Some("elsewhere".into()), ..template.key.clone() };
        cluster.add_object(Object { key: moved.clone(), uid: "moved".into(), ..template });
        cluster.change_policy(|policy| policy.steps[0].template = moved);
        if !is_told {
            let made = cluster.objects.keys().find(|key| &*key.name == "n1").expect("it was made").clone();
            cluster.set_broken(&"n1".into(), false);
            cluster.remove_object(&made);
            cluster.run_well(10_000);
        }
        cluster.restart();
        cluster.run_well(10_000);
        let owners = Box::new([OwnerRef { uid: "gone".into(), controls: false, is_check: true }]);
        let left = Object { owners, ..remediation("n2") };
        cluster.add_object(left.clone());
        cluster.set_broken(&"n2".into(), true);
        cluster.run_well(10_000);
        let now = plan(&cluster.world, cluster.now());
        let is_held = *because(&now, "workers", "n2") == Because::LeftBehind { key: left.key };
        assert_eq!(is_held, is_told, "{:?}", because(&now, "workers", "n2"));
    }
}

#[test]
fn a_template_that_is_owned_by_its_check_is_no_remediation() {
    let mut cluster = settled();
    let key = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").key.clone();
    let owners = Box::new([OwnerRef { uid: "check".into(), controls: false, is_check: true }]);
    cluster.change_object(&key, |template| template.owners = owners);
    cluster.run_well(20_000);
    assert!(cluster.objects.contains_key(&key));
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(20_000);
    assert_eq!(cluster.created.len(), 1);
}

/// A kubelet that changes which Machine it names, in the moment that decides.
#[test]
fn what_was_found_of_one_machine_is_not_believed_of_another() {
    let mut cluster = settled();
    for (machine, node) in [("default/m1", "n1"), ("default/master-0", "n2")] {
        cluster.machines.insert(machine.into(), (format!("uid-of-{machine}").into(), Some(node.into())));
    }
    cluster.annotations.insert("n1".into(), vec![(MACHINE_ANNOTATION, "default/m1")]);
    cluster.set_broken(&"n1".into(), true);
    cluster.hear_all();
    cluster.time += 5_001;
    let mut is_found = false;
    for _ in 0..40 {
        cluster.turn();
        while let Some(effect) = cluster.requests.front() {
            if let Effect::Create(creation) = effect {
                let Owner::Check { machine, .. } = &creation.owner else { unreachable!("it is for a node") };
                assert_eq!(*machine, None, "master-0 has another node");
            }
            is_found |= matches!(effect, Effect::FindMachine { .. });
            cluster.execute(0, Fate::Done);
        }
        if is_found {
            cluster.annotations.insert("n1".into(), vec![(MACHINE_ANNOTATION, "default/master-0")]);
            cluster.touch(&"n1".into());
        }
        cluster.hear_all();
        cluster.time += 100;
    }
    assert_eq!(cluster.created.len(), 1);
}

#[test]
fn a_creation_that_never_happened_is_waited_for_no_longer_than_it_takes_to_know() {
    let (mut cluster, key) = lost_creation();
    cluster.objects.remove(&key);
    cluster.created.clear();
    let other = younger(&mut cluster);
    apply(&mut cluster, Input::Seen(Fact::Check(other)));
    delete_check(&mut cluster);
    turns(&mut cluster, 80);
    assert_eq!(cluster.created.len(), 1, "the other begins after {} ms", cluster.time);
}

#[test]
fn what_a_check_that_is_gone_left_on_a_node_is_waited_for_and_told_of() {
    let mut cluster = settled();
    let owners = |uid: &str, is_check| Box::new([OwnerRef { uid: uid.into(), controls: false, is_check }]);
    let left = Object { owners: owners("gone", true), ..remediation("n1") };
    cluster.add_object(left.clone());
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(60_000);
    let now = plan(&cluster.world, cluster.now());
    assert_eq!(*because(&now, "workers", "n1"), Because::LeftBehind { key: left.key.clone() });
    assert_eq!(cluster.created.len(), 0);
    let listed = cluster.check.status.unhealthy.iter().find(|node| &*node.name == "n1").expect("it is listed");
    assert!(listed.held.as_ref().is_some_and(|held| held.contains("belongs to no check that could act")), "{:?}", listed.held);
    // Of another owner, or as a part of a check, it is something else that stands under this name.
    let part = Box::new([OwnerRef { uid: "gone".into(), controls: true, is_check: true }]);
    for owners in [owners("somebody", false), part] {
        cluster.change_object(&left.key, |object| object.owners = owners);
        cluster.run_well(1000);
        let now = plan(&cluster.world, cluster.now());
        assert_eq!(*because(&now, "workers", "n1"), Because::Occupied { key: left.key.clone() });
    }
    cluster.remove_object(&left.key);
    cluster.run_well(10_000);
    assert_eq!(cluster.created.len(), 1);
}

/// A kind stays in sight as long as something of it is there that a check has left.
#[test]
fn what_is_left_stays_in_sight() {
    let mut cluster = settled();
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(10_000);
    let key = cluster.objects.values().find(|object| object.body.is_none()).expect("it was made").key.clone();
    let other = younger(&mut cluster);
    apply(&mut cluster, Input::Seen(Fact::Check(other)));
    delete_check(&mut cluster);
    turns(&mut cluster, 400);
    assert_eq!(cluster.created.len(), 1);
    let now = plan(&cluster.world, cluster.now());
    assert!(now.watches.contains(&Source::Objects(key.kind.clone())));
    assert_eq!(*because(&now, "younger", "n1"), Because::LeftBehind { key: key.clone() });
    cluster.remove_object(&key);
    cluster.run_well(10_000);
    assert_eq!(cluster.created.len(), 2);
    let now = plan(&cluster.world, cluster.now());
    assert!(!now.watches.contains(&Source::Objects(key.kind)), "it is of no use any more");
}

#[test]
fn steps_that_were_tried_on_an_earlier_node_of_the_name_do_not_count() {
    let mut cluster = settled();
    let timeout = Some(Duration::from_secs(30));
    cluster.change_policy(|policy| policy.steps = vec![Step { timeout, ..policy.steps[0].clone() }]);
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(60_000);
    let now = plan(&cluster.world, cluster.now());
    assert_eq!(*because(&now, "workers", "n1"), Because::NoTemplateLeft);
    let key = cluster.objects.values().find(|object| object.body.is_none()).expect("it was made").key.clone();
    // The same Node: what was given up stays given up, also when nothing is left of it but the status.
    cluster.remove_object(&key);
    cluster.run_well(10_000);
    assert_eq!(cluster.created.len(), 1);
    // Another machine registers under the name, and is broken, too.
    let created_at = cluster.now().wall.next_second();
    cluster.time += 2000;
    cluster.registered_at.insert("n1".into(), created_at);
    cluster.touch(&"n1".into());
    cluster.run_well(20_000);
    assert_eq!(cluster.created.len(), 2, "it is a machine that nobody has tried to repair");
}

/// The earlier of two steps of one kind makes room for the next, so that nothing of it is left but the status.
#[test]
fn a_step_that_was_given_up_after_its_node_came_back_counts() {
    let mut cluster = settled();
    let timeout = Some(Duration::from_secs(60));
    cluster.change_policy(|policy| {
        let other = Step { template: key("RebootTemplate", "harder"), ..policy.steps[0].clone() };
        policy.steps = [policy.steps[0].clone(), other].map(|step| Step { timeout, ..step }).into();
    });
    let template = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    cluster.add_object(Object { key: key("RebootTemplate", "harder"), ..template });
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(20_000);
    assert_eq!(cluster.created.len(), 1);
    cluster.registered_at.insert("n1".into(), cluster.now().wall.next_second());
    cluster.time += 2000;
    cluster.touch(&"n1".into());
    cluster.run_well(120_000);
    let made: Vec<_> = cluster.objects.values().filter(|object| object.body.is_none()).map(|own| own.template.clone()).collect();
    assert_eq!((made.as_slice(), cluster.created.len()), ([Some("harder".into())].as_slice(), 2));
}

/// A repair that takes the Node away comes to its next step when that is back, not to its first.
#[test]
fn steps_that_were_tried_count_while_something_of_then_is_at_work() {
    let mut cluster = settled();
    let timeout = Some(Duration::from_secs(30));
    cluster.change_policy(|policy| {
        let other = Step { template: key("PowerTemplate", "power"), ..policy.steps[0].clone() };
        policy.steps = [policy.steps[0].clone(), other].map(|step| Step { timeout, ..step }).into();
    });
    let template = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    cluster.add_object(Object { key: key("PowerTemplate", "power"), ..template });
    cluster.set_broken(&"n1".into(), true);
    cluster.run_well(60_000);
    assert_eq!(cluster.created.len(), 2, "both steps are tried");
    let first = cluster.objects.keys().find(|key| &*key.kind.kind == "Reboot").expect("it was made").clone();
    cluster.remove_object(&first);
    cluster.registered_at.insert("n1".into(), cluster.now().wall.next_second());
    cluster.time += 2000;
    cluster.touch(&"n1".into());
    cluster.run_well(20_000);
    assert_eq!(cluster.created.len(), 2);
    let now = plan(&cluster.world, cluster.now());
    assert_eq!(*because(&now, "workers", "n1"), Because::NoTemplateLeft);
}

#[test]
fn a_look_that_is_refused_says_why_nothing_starts() {
    let mut cluster = settled();
    cluster.set_broken(&"n1".into(), true);
    cluster.hear_all();
    cluster.time += 5_001;
    let (mut told, mut taken) = (Vec::new(), 0);
    for _ in 0..160 {
        let now = cluster.turn();
        taken += now.effects.iter().filter(|effect| matches!(effect, Effect::HoldNode(_))).count();
        while let Some(effect) = cluster.requests.front().map(Effect::key) {
            if effect != EffectKey::Look(None, "n1".into()) {
                cluster.execute(0, Fate::Done);
                continue;
            }
            cluster.requests.pop_front();
            let answer = Answer::Refused { why: "nodes \"n1\" is forbidden".into(), retry_after: None, forbidden: true };
            apply(&mut cluster, Input::Answered(effect, answer));
        }
        cluster.hear_all();
        cluster.time += 250;
        let now = plan(&cluster.world, cluster.now());
        let decision = now.decisions.iter().find(|decision| &*decision.node == "n1").expect("it is decided on");
        let text = decision.because.to_string();
        if told.last() != Some(&text) {
            told.push(text);
        }
        assert!(decision.is_held() || !told.iter().any(|told| told.contains("refused")), "{told:?}");
    }
    assert!(taken <= 1, "the Lease on the node comes and goes: {taken}");
    let why = "nothing starts before Node n1 has been read once more, which the API server refused: nodes \"n1\" is forbidden; trying again later";
    assert_eq!(told.last().map(String::as_str), Some(why));
    assert!(told.len() <= 2, "it is said once: {told:?}");
    assert_eq!(cluster.created.len(), 0);
    cluster.run_well(60_000);
    assert_eq!(cluster.created.len(), 1, "once it may be read");
}

/// Nobody has refused anything: the server has too much to do, or there is no such node.
#[test]
fn a_look_that_was_not_refused_is_not_told_of_as_such() {
    for answer in
        [Answer::Refused { why: "busy".into(), retry_after: Some(Duration::from_secs(1)), forbidden: false }, Answer::Missing]
    {
        let mut cluster = settled();
        cluster.set_broken(&"n1".into(), true);
        cluster.hear_all();
        cluster.time += 5_001;
        for _ in 0..20 {
            cluster.turn();
            while let Some(effect) = cluster.requests.front().map(Effect::key) {
                if effect != EffectKey::Look(None, "n1".into()) {
                    cluster.execute(0, Fate::Done);
                    continue;
                }
                cluster.requests.pop_front();
                apply(&mut cluster, Input::Answered(effect, answer.clone()));
            }
            cluster.hear_all();
            cluster.time += 250;
            let now = plan(&cluster.world, cluster.now());
            let told = because(&now, "workers", "n1");
            assert!(!matches!(told, Because::LookRefused { .. }), "{told}");
        }
        assert_eq!(cluster.created.len(), 0, "nothing starts without a look");
    }
}

/// Whoever writes checks chooses kinds of templates: nothing else may be listed for them, nor kept for ever.
#[test]
fn only_kinds_with_templates_are_listed_and_what_nobody_names_is_forgotten() {
    let mut cluster = settled();
    let apps = |kind: &str| Kind { api_version: "apps/v1".into(), kind: kind.into() };
    let mut other = younger(&mut cluster);
    let template = ObjectKey { kind: apps("MetalTemplate"), namespace: None, name: "any".into() };
    other.policy.as_mut().expect("it is valid").steps[0].template = template;
    cluster.installed = vec!["Metal".into()];
    apply(&mut cluster, Input::Seen(Fact::Check(other)));
    cluster.run_well(10_000);
    assert!(cluster.world.kinds.contains_key("apps/v1"), "it was asked about");
    let watches = plan(&cluster.world, cluster.now()).watches;
    assert!(!watches.contains(&Source::Objects(apps("Metal"))), "there is no such template");
    apply(&mut cluster, Input::Gone(Gone::Check("younger".into())));
    cluster.run_well(3_600_000);
    let known = |cluster: &Cluster| cluster.world.kinds.keys().cloned().collect::<Vec<Name>>();
    let before = known(&cluster);
    // Any answer will do.
    let asked = Effect::Discover { api_version: "provider.test/v1".into() };
    let now = cluster.now();
    cluster.world.sent(&asked, now);
    cluster.requests.push_back(asked);
    cluster.execute(0, Fate::Done);
    assert!(!known(&cluster).iter().any(|version| &**version == "apps/v1"), "before: {before:?}");
    assert!(known(&cluster).iter().any(|version| &**version == "provider.test/v1"));
}
