//! Executions that once went wrong, or nearly did: races between looks, lists and watches, changes in the middle of a
//! remediation, and requests that would repeat themselves for ever.

use std::time::Duration;

use crate::model::{Cluster, Fate, at_most, plan, remediation};
use resus_core::effect::{Effect, EffectKey};
use resus_core::facts::{
    Amount, Check, Invalid, Kind, Name, Node, NodeLease, Object, ObjectKey, OwnerRef, Source, Status, Threshold, Version,
};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::nhc::CheckStatus;
use resus_core::plan::Plan;
use resus_core::reasons;
use resus_core::time::Wall;

fn name(node: &str) -> Name {
    node.into()
}

/// Four healthy nodes, of which one may be unhealthy, for five seconds.
fn settled() -> Cluster {
    let mut cluster = Cluster::new(4, at_most(1), Duration::from_secs(5));
    cluster.run_well(10_000);
    cluster
}

/// `n1` is broken for long enough, and the plan has just been made.
fn due(cluster: &mut Cluster) -> Plan {
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.time += 5_001;
    cluster.turn()
}

/// As [`due`], with the look and the status under way.
fn looks_and_writes(cluster: &mut Cluster) -> EffectKey {
    due(cluster);
    let event = cluster.requests.iter().position(|effect| matches!(effect, Effect::Emit(_)));
    cluster.execute(event.expect("events come first"), Fate::Done);
    cluster.turn();
    assert!(cluster.requests.iter().any(|effect| matches!(effect, Effect::Look { .. })));
    let status = cluster.requests.iter().find(|effect| matches!(effect, Effect::Status { .. }));
    status.expect("n1 is told of").key()
}

fn execute_all(cluster: &mut Cluster) {
    while !cluster.requests.is_empty() {
        cluster.execute(0, Fate::Done);
    }
}

fn apply(cluster: &mut Cluster, input: Input) {
    let now = cluster.now();
    cluster.world.apply(input, now);
}

fn hear_of_every_watch(cluster: &mut Cluster) {
    for source in cluster.world.sources().cloned().collect::<Vec<_>>() {
        apply(cluster, Input::Heard(source));
    }
}

fn count(plan: &Plan, is: fn(&Effect) -> bool) -> usize {
    plan.effects.iter().filter(|effect| is(effect)).count()
}

fn creates(effect: &Effect) -> bool {
    matches!(effect, Effect::Create(_))
}

fn deletes(effect: &Effect) -> bool {
    matches!(effect, Effect::Delete { .. })
}

#[test]
fn a_wall_clock_that_jumps_neither_hurries_a_repair_nor_puts_it_off_for_ever() {
    const HOUR: i64 = 3_600_000;
    for jump in [HOUR, -HOUR] {
        let mut cluster = settled();
        cluster.wall_step += jump;
        cluster.set_broken(&name("n1"), true);
        let broken_at = cluster.time;
        cluster.run_well(HOUR);
        let starts: Vec<i64> = cluster.created.iter().map(|(_, at)| at - broken_at).collect();
        assert!(starts.len() == 1 && (5_001..6_000).contains(&starts[0]), "a jump by {jump} ms: started after {starts:?} ms");
    }
}

#[test]
fn a_list_that_is_older_than_the_look_does_not_make_the_look_count() {
    let mut cluster = settled();
    due(&mut cluster);
    let page: Vec<Node> = cluster.broken_since.keys().map(|node| cluster.node(node)).collect();
    apply(&mut cluster, Input::Broken(Source::Nodes));
    apply(&mut cluster, Input::Listing(Source::Nodes));
    cluster.set_broken(&name("n1"), false);
    cluster.time += 500;
    execute_all(&mut cluster); // the look, which shows that it is well
    cluster.hear_of(&Source::NodeLeases);
    for node in page {
        apply(&mut cluster, Input::Seen(Fact::Node(node)));
    }
    apply(&mut cluster, Input::Listed(Source::Nodes));
    assert_eq!(count(&plan(&cluster.world, cluster.now()), creates), 0);
}

#[test]
fn what_a_list_does_not_show_is_gone_and_what_of_it_cannot_be_read_is_not() {
    let mut cluster = settled();
    let (at, lasts_for) = (cluster.now().wall, Duration::from_secs(600));
    let lease = NodeLease {
        name: name("node-n1"),
        uid: "another".into(),
        version: Version("77".into()),
        holder: "another".into(),
        acquired_at: at,
        renewed_at: at,
        lasts_for,
        transitions: 0,
    };
    apply(&mut cluster, Input::Seen(Fact::NodeLease(lease)));
    assert!(cluster.world.node_leases.contains_key("node-n1"));
    for source in [Source::Nodes, Source::NodeLeases] {
        apply(&mut cluster, Input::Listing(source));
    }
    apply(&mut cluster, Input::Unreadable { source: Source::Nodes, name: name("n1"), why: "it has no uid".into() });
    for source in [Source::Nodes, Source::NodeLeases] {
        apply(&mut cluster, Input::Listed(source));
    }
    assert_eq!(cluster.world.nodes.keys().map(|node| &**node).collect::<Vec<_>>(), ["n1"]);
    assert!(cluster.world.node_leases.is_empty());
}

/// A watch that cannot be opened says so with each attempt.
#[test]
fn a_doubt_is_as_old_as_its_first_break() {
    let mut cluster = settled();
    let broken_at = cluster.now().mono;
    for _ in 0..5 {
        apply(&mut cluster, Input::Broken(Source::Checks));
        cluster.time += 3_000;
    }
    assert_eq!(cluster.world.silent_since(&Source::Checks), Some(broken_at));
}

/// Its last page comes a minute and a half after it was asked for, and shows what was then.
#[test]
fn a_list_is_as_old_as_its_beginning() {
    for (took, is_fresh) in [(90_000, true), (90_001, false)] {
        let mut cluster = settled();
        apply(&mut cluster, Input::Broken(Source::Nodes));
        apply(&mut cluster, Input::Listing(Source::Nodes));
        cluster.time += took;
        apply(&mut cluster, Input::Listed(Source::Nodes));
        assert_eq!(cluster.world.is_fresh(&Source::Nodes, cluster.now().mono), is_fresh, "{took}");
        apply(&mut cluster, Input::Heard(Source::Nodes));
        assert!(cluster.world.is_fresh(&Source::Nodes, cluster.now().mono));
    }
}

/// The Node goes after the look and before the list, and the answer to the look comes last.
#[test]
fn an_answer_during_a_list_does_not_vouch_for_what_the_list_does_not_show() {
    let mut cluster = settled();
    let write = looks_and_writes(&mut cluster);
    for source in [Source::Nodes, Source::Checks] {
        apply(&mut cluster, Input::Broken(source.clone()));
        apply(&mut cluster, Input::Listing(source));
    }
    let (node, check) = (cluster.node(&name("n1")), cluster.check.clone());
    apply(&mut cluster, Input::Answered(EffectKey::Look(None, name("n1")), Answer::Done(Some(Fact::Node(node)))));
    apply(&mut cluster, Input::Answered(write, Answer::Done(Some(Fact::Check(check)))));
    for n in ["n0", "n2", "n3"] {
        let node = cluster.node(&name(n));
        apply(&mut cluster, Input::Seen(Fact::Node(node)));
    }
    apply(&mut cluster, Input::Listed(Source::Nodes));
    apply(&mut cluster, Input::Listed(Source::Checks));
    assert_eq!(cluster.world.nodes.keys().map(|node| &**node).collect::<Vec<_>>(), ["n0", "n2", "n3"]);
    assert!(cluster.world.checks.is_empty());
}

/// The node recovers, and the check is deleted, after the requests and before the list; and the answers come between its pages.
#[test]
fn an_answer_during_a_list_does_not_overrule_a_page_that_is_newer() {
    let mut cluster = settled();
    let write = looks_and_writes(&mut cluster);
    let (ill, acting) = (cluster.node(&name("n1")), cluster.check.clone());
    for source in [Source::Nodes, Source::Checks] {
        apply(&mut cluster, Input::Broken(source.clone()));
        apply(&mut cluster, Input::Listing(source));
    }
    cluster.set_broken(&name("n1"), false);
    let well = cluster.node(&name("n1"));
    cluster.version += 1;
    let leaving = Check { version: Version(cluster.version.to_string().into()), deleting: true, ..acting.clone() };
    apply(&mut cluster, Input::Seen(Fact::Node(well.clone())));
    apply(&mut cluster, Input::Seen(Fact::Check(leaving.clone())));
    apply(&mut cluster, Input::Answered(EffectKey::Look(None, name("n1")), Answer::Done(Some(Fact::Node(ill)))));
    apply(&mut cluster, Input::Answered(write, Answer::Done(Some(Fact::Check(acting)))));
    assert_eq!(cluster.world.nodes["n1"].node, well);
    assert_eq!(cluster.world.checks[&leaving.name], leaving);
}

#[test]
fn old_news_of_a_node_does_not_overrule_the_look_at_its_successor() {
    let mut cluster = settled();
    due(&mut cluster);
    let old = Node { version: Version("900".into()), ..cluster.node(&name("n1")) };
    cluster.broken_since.insert(name("n1"), None);
    let new = Node { uid: "another".into(), version: Version("1000".into()), ..cluster.node(&name("n1")) };
    apply(&mut cluster, Input::Answered(EffectKey::Look(None, name("n1")), Answer::Done(Some(Fact::Node(new)))));
    apply(&mut cluster, Input::Seen(Fact::Node(old)));
    assert_eq!(count(&plan(&cluster.world, cluster.now()), creates), 0);
}

#[test]
fn nothing_is_removed_on_stale_facts() {
    let mut cluster = settled();
    apply(&mut cluster, Input::Broken(Source::Nodes));
    // Another leader has remediated n1, and n9 that joined since; we know of neither's trouble.
    for node in ["n1", "n9"] {
        apply(&mut cluster, Input::Seen(Fact::Object(remediation(node))));
    }
    assert_eq!(count(&plan(&cluster.world, cluster.now()), deletes), 0);
    cluster.list(Source::Nodes);
    assert_eq!(count(&plan(&cluster.world, cluster.now()), deletes), 2, "now it is certain");
}

#[test]
fn a_node_that_cannot_be_read_is_not_gone() {
    let mut cluster = settled();
    apply(&mut cluster, Input::Seen(Fact::Object(remediation("bad"))));
    apply(&mut cluster, Input::Unreadable { source: Source::Nodes, name: "bad".into(), why: "garbage".into() });
    assert_eq!(count(&plan(&cluster.world, cluster.now()), deletes), 0);
}

/// What a controller consists of is no remediation, though it owns it.
#[test]
fn what_the_check_controls_is_left_alone() {
    for (controls, many) in [(false, 1), (true, 0)] {
        let mut cluster = settled();
        let owners = [OwnerRef { uid: "check".into(), controls, is_check: true }].into();
        apply(&mut cluster, Input::Seen(Fact::Object(Object { owners, ..remediation("n1") })));
        assert_eq!(count(&plan(&cluster.world, cluster.now()), deletes), many, "n1 is healthy, controls: {controls}");
    }
}

#[test]
fn a_remediation_of_another_kind_stays_until_the_node_is_well() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(20_000);
    let old = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    let kind = Kind { kind: "PowerTemplate".into(), ..old.key.kind.clone() };
    let new = Object { key: ObjectKey { kind, ..old.key.clone() }, ..old };
    cluster.objects.insert(new.key.clone(), new.clone());
    cluster.change_policy(|policy| policy.steps[0].template = new.key);
    cluster.run_well(20_000);
    assert_eq!(cluster.remediated(), [name("n1")], "one is enough");
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(20_000);
    assert!(cluster.remediated().is_empty());
}

#[test]
fn a_name_that_changes_in_flight_does_not_make_two() {
    let mut cluster = settled();
    due(&mut cluster);
    execute_all(&mut cluster);
    cluster.hear_of(&Source::NodeLeases);
    cluster.turn();
    let create = cluster.requests.iter().position(creates).expect("it is being created");
    cluster.execute(create, Fate::LostAfter);
    // The template's watch is ahead of that of the remediations.
    let template = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    let template = Object { allows_several: true, version: Version("999".into()), ..template };
    cluster.objects.insert(template.key.clone(), template.clone());
    apply(&mut cluster, Input::Seen(Fact::Object(template)));
    for _ in 0..5 {
        cluster.turn();
        execute_all(&mut cluster);
        cluster.time += 100;
    }
    assert_eq!(cluster.remediated().len(), 1);
}

#[test]
fn an_older_check_of_which_little_is_known_is_still_responsible() {
    let mut cluster = settled();
    let mut older = cluster.check.clone();
    (older.name, older.uid, older.created_at) = ("older".into(), "older".into(), Wall(0));
    let policy = older.policy.as_mut().expect("it is valid");
    policy.steps[0].template.kind.api_version = "slow.test/v1".into();
    policy.pause_requests = vec!["maintenance".into()];
    apply(&mut cluster, Input::Seen(Fact::Check(older)));
    due(&mut cluster);
    for _ in 0..5 {
        cluster.requests.retain(|effect| !matches!(effect, Effect::Discover { .. })); // not answered yet
        execute_all(&mut cluster);
        cluster.hear_of(&Source::NodeLeases);
        cluster.time += 100;
        cluster.turn();
    }
    assert!(cluster.remediated().is_empty());
}

#[test]
fn an_older_check_does_not_start_where_a_younger_one_has() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(20_000);
    let mut older = cluster.check.clone();
    (older.name, older.uid, older.created_at) = ("older".into(), "older".into(), Wall(0));
    let mut template = cluster.objects.values().find(|object| object.body.is_some()).expect("there is a template").clone();
    template.key.kind.api_version = "slow.test/v1".into();
    older.policy.as_mut().expect("it is valid").steps[0].template = template.key.clone();
    cluster.objects.insert(template.key.clone(), template);
    apply(&mut cluster, Input::Seen(Fact::Check(older)));
    cluster.run_well(5_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

#[test]
fn what_others_remove_is_created_again_ever_more_slowly() {
    let mut cluster = settled();
    due(&mut cluster);
    for _ in 0..500 {
        execute_all(&mut cluster);
        cluster.hear_all();
        for object in cluster.objects.values().filter(|object| object.body.is_none()).cloned().collect::<Vec<_>>() {
            cluster.objects.remove(&object.key);
            apply(&mut cluster, Input::Gone(Gone::Object(object.key, object.uid)));
        }
        cluster.time += 10;
        cluster.turn();
    }
    assert!((2..6).contains(&cluster.created.len()), "{} in five seconds", cluster.created.len());
}

/// How often the status is written in two minutes, with this done to each attempt.
fn status_writes(tamper: fn(&mut Cluster)) -> usize {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    let (until, mut writes) = (cluster.time + 120_000, 0);
    while cluster.time < until {
        cluster.hear_all();
        hear_of_every_watch(&mut cluster);
        writes += count(&cluster.turn(), |effect| matches!(effect, Effect::Status { .. }));
        while let Some(effect) = cluster.requests.front() {
            match effect {
                Effect::Status { .. } => tamper(&mut cluster),
                _ => cluster.execute(0, Fate::Done),
            }
        }
        cluster.time += 100;
    }
    writes
}

#[test]
fn a_status_that_does_not_stay_is_not_written_every_second() {
    let pruned = status_writes(|cluster| {
        if let Some(Effect::Status { status, .. }) = cluster.requests.front_mut() {
            status.conditions.retain(|condition| &*condition.kind == "Disabled");
        }
        cluster.execute(0, Fate::Done);
    });
    assert!(pruned < 10, "{pruned} writes although the schema prunes them");
    let missing = status_writes(|cluster| {
        let effect = cluster.requests.pop_front().expect("there is one");
        apply(cluster, Input::Answered(effect.key(), Answer::Missing));
    });
    assert!(missing < 15, "{missing} writes although there is no status subresource");
}

#[test]
fn a_kind_that_goes_is_noticed_although_discovery_lags() {
    let mut cluster = settled();
    apply(&mut cluster, Input::Gone(Gone::Definition { name: "reboots.provider.test".into() }));
    let mut asked = 0;
    for _ in 0..100 {
        asked += count(&cluster.turn(), |effect| matches!(effect, Effect::Discover { .. }));
        execute_all(&mut cluster); // still served
        cluster.time += 1_000;
    }
    assert!((3..10).contains(&asked), "asked {asked} times, then no more");
}

/// The reference read "not found" out of whatever discovery said, and disabled the check.
#[test]
fn discovery_that_fails_disables_no_check() {
    for fate in [Fate::Refused, Fate::LostBefore] {
        let mut cluster = settled();
        let enabled = cluster.check.status.clone();
        cluster.restart();
        cluster.set_broken(&name("n1"), true);
        for _ in 0..60 {
            cluster.hear_all();
            cluster.turn();
            while let Some(effect) = cluster.requests.front() {
                let asks = matches!(effect, Effect::Discover { .. });
                cluster.execute(0, if asks { fate } else { Fate::Done });
            }
            cluster.time += 1_000;
        }
        assert!(cluster.remediated().is_empty(), "{fate:?}: nothing is known of the kinds");
        let is_disabled = |status: &CheckStatus| {
            status.conditions.iter().any(|condition| &*condition.kind == reasons::DISABLED && condition.status == Status::True)
        };
        assert!(!is_disabled(&enabled) && !is_disabled(&cluster.check.status), "{fate:?}");
        cluster.run_well(60_000);
        assert_eq!(cluster.remediated(), [name("n1")], "{fate:?}");
    }
}

#[test]
fn a_spec_that_becomes_invalid_does_not_report_what_did_not_happen() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(20_000);
    cluster.check.policy = Err(Invalid("no such operator".into()));
    cluster.change_policy(|_| {});
    cluster.run_well(20_000);
    assert_eq!((cluster.remediated().len(), cluster.check.status.unhealthy.len()), (1, 1));
    assert_eq!(&*cluster.check.status.phase, "Disabled");
}

#[test]
fn a_remediation_whose_node_is_gone_is_reported_while_its_provider_works() {
    let mut cluster = settled();
    let busy = Object { finalizers: 1, ..remediation("away") };
    cluster.objects.insert(busy.key.clone(), busy.clone());
    apply(&mut cluster, Input::Seen(Fact::Object(busy)));
    cluster.run_well(10_000);
    assert_eq!((&*cluster.check.status.phase, cluster.remediated()), ("Remediating", vec![name("away")]));
}

/// Found by the simulator, seed 543: the provider of a node that is gone may still be at work.
#[test]
fn a_remediation_whose_node_is_gone_keeps_its_place_in_the_budget() {
    let mut cluster = settled();
    cluster.change_policy(|policy| policy.threshold = Threshold::MaxUnhealthy(Amount::Count(1)));
    let busy = Object { finalizers: 1, ..remediation("away") };
    cluster.objects.insert(busy.key.clone(), busy.clone());
    apply(&mut cluster, Input::Seen(Fact::Object(busy)));
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(20_000);
    assert_eq!(cluster.remediated(), [name("away")]);
}

#[test]
fn a_status_whose_answer_was_lost_is_written_again_soon() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.time += 5_001;
    loop {
        cluster.turn();
        let Some(effect) = cluster.requests.front() else {
            cluster.time += 100;
            continue;
        };
        if matches!(effect, Effect::Status { .. }) {
            break cluster.execute(0, Fate::LostBefore);
        }
        cluster.execute(0, Fate::Done);
        cluster.hear_all();
    }
    cluster.run_well(5_000);
    assert_eq!(&*cluster.check.status.phase, "Remediating");
}

/// Two controllers on one object fight: what others installed is theirs, unless it is handed over.
#[test]
fn a_check_whose_definition_is_not_ours_is_left_to_its_owner() {
    let mut cluster = settled();
    let definition = Fact::Definition { name: "nodehealthchecks.remediation.medik8s.io".into(), ours: false };
    apply(&mut cluster, Input::Seen(definition));
    cluster.set_broken(&name("n1"), true);
    let status = cluster.check.status.clone();
    assert_eq!(cluster.run_well(20_000), 0, "not a word");
    assert_eq!((cluster.remediated().len(), &cluster.check.status), (0, &status));
    cluster.check.take_over = true;
    cluster.change_policy(|_| {});
    cluster.run_well(5_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

#[test]
fn who_does_not_lead_only_asks() {
    let mut cluster = Cluster::new(4, at_most(1), Duration::from_secs(5));
    cluster.set_broken(&name("n1"), true);
    apply(&mut cluster, Input::Seen(Fact::Object(remediation("n2"))));
    for _ in 0..100 {
        cluster.hear_all();
        hear_of_every_watch(&mut cluster);
        let plan = cluster.turn();
        assert!(
            plan.effects
                .iter()
                .all(|effect| matches!(effect, Effect::Lease(_) | Effect::Discover { .. } | Effect::ServerVersion)),
            "{:?}",
            plan.effects
        );
        // The lease is never answered.
        cluster.requests.retain(|effect| !matches!(effect, Effect::Lease(_)));
        execute_all(&mut cluster);
        cluster.time += 1_000;
    }
    assert!(!plan(&cluster.world, cluster.now()).decisions.is_empty(), "it decides all the same");
}

/// A node flaps for hours while the status can never be written; then it stays broken. Events must not go on and on.
#[test]
fn events_are_not_repeated_where_the_status_cannot_be_written() {
    let mut cluster = settled();
    let turn = |cluster: &mut Cluster| {
        cluster.time += 1_500;
        cluster.hear_all();
        hear_of_every_watch(cluster);
        let events = count(&cluster.turn(), |effect| matches!(effect, Effect::Emit(_)));
        while let Some(effect) = cluster.requests.front() {
            match effect {
                Effect::Status { .. } => {
                    let effect = cluster.requests.pop_front().expect("there is one");
                    let refused = Answer::Refused { why: "forbidden".into(), retry_after: None, forbidden: true };
                    apply(cluster, Input::Answered(effect.key(), refused));
                }
                _ => cluster.execute(0, Fate::Done),
            }
        }
        events
    };
    for round in 0..6_000 {
        cluster.set_broken(&name("n1"), round % 2 == 0);
        for _ in 0..5 {
            turn(&mut cluster);
        }
    }
    cluster.set_broken(&name("n1"), true);
    let after: usize = (0..500).map(|_| turn(&mut cluster)).sum();
    assert!(after < 50, "{after} events although nothing happens");
}

/// The watch overtook the answer, which then waited in vain to be shown.
#[test]
fn a_lease_that_was_given_back_can_be_taken_again_at_once() {
    let mut cluster = settled();
    let plan = due(&mut cluster);
    let holds = |effect: &Effect| matches!(effect, Effect::HoldNode(_));
    let Some(Effect::HoldNode(hold)) = plan.effects.iter().find(|effect| holds(effect)).cloned() else { panic!("{plan:?}") };
    let lease = NodeLease {
        name: hold.name.clone(),
        uid: "ours".into(),
        version: Version("77".into()),
        holder: hold.holder.clone(),
        acquired_at: hold.at,
        renewed_at: hold.at,
        lasts_for: hold.lasts_for,
        transitions: 0,
    };
    apply(&mut cluster, Input::Seen(Fact::NodeLease(lease)));
    apply(&mut cluster, Input::Answered(EffectKey::HoldNode(hold.name.clone()), Answer::Done(None)));
    apply(&mut cluster, Input::Gone(Gone::NodeLease(hold.name)));
    assert_eq!(count(&plan_now(&cluster), holds), 1);
}

/// Once an hour the server ends every watch; the news before that may be a minute old, and that is no doubt.
#[test]
fn a_short_break_of_a_quiet_watch_is_not_worth_a_word_but_a_long_one_is() {
    let mut cluster = settled();
    let mut told_within = |seconds: i64, breaks: bool| {
        if breaks {
            apply(&mut cluster, Input::Broken(Source::Objects(crate::model::template().key.kind)));
        }
        let mut told = 0;
        for _ in 0..seconds {
            cluster.time += 1_000;
            let plan = cluster.turn();
            told += count(&plan, |effect| matches!(effect, Effect::Status { .. }));
            execute_all(&mut cluster);
        }
        told
    };
    assert_eq!(told_within(60, false), 0);
    assert_eq!(told_within(9, true), 0);
    assert_eq!(told_within(1, false), 1);
}

fn plan_now(cluster: &Cluster) -> Plan {
    plan(&cluster.world, cluster.now())
}

fn holds(effect: &Effect) -> bool {
    matches!(effect, Effect::HoldNode(_))
}

/// Deleted by somebody, or with the Node that it belonged to: without it another operator would take the node as well.
#[test]
fn a_lease_of_ours_that_is_lost_is_taken_again() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
    let lease = cluster.node_leases.remove(&name("node-n1")).expect("it was taken before the remediation began");
    cluster.tell(Input::Gone(Gone::NodeLease(lease.name)));
    cluster.hear_all();
    assert_eq!(count(&cluster.turn(), holds), 1);
    cluster.run_well(2_000);
    assert!(cluster.node_leases.contains_key(&name("node-n1")));
    assert_eq!(cluster.created.len(), 1);
}

/// Somebody else who took it meanwhile has it.
#[test]
fn a_lease_that_another_took_meanwhile_is_left_to_them() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    let lease = cluster.node_leases[&name("node-n1")].clone();
    cluster.set_node_lease(NodeLease { holder: "sbr".into(), ..lease });
    cluster.hear_all();
    assert_eq!(count(&cluster.turn(), holds), 0);
}

/// Whoever deletes a Node, and has a finalizer on it, is at work on the host.
#[test]
fn a_node_that_is_being_deleted_is_not_remediated() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.leaving.insert(name("n1"));
    cluster.touch(&name("n1"));
    cluster.run_well(20_000);
    assert!(cluster.created.is_empty(), "{:?}", cluster.created);
    assert_eq!(&*cluster.check.status.unhealthy[0].held.clone().unwrap_or_default(), "the node is being deleted");
}

/// Roles change: what was refused is tried again, and what it says of our rights with it.
#[test]
fn a_refused_patch_is_tried_again_after_some_minutes() {
    let key = remediation("n1").key;
    let mut cluster = settled();
    let mark = |cluster: &mut Cluster, answer: Answer| {
        let effect = Effect::Mark {
            key: remediation("n1").key,
            plural: "rebootremediations".into(),
            uid: "u".into(),
            mark: resus_core::effect::Mark::Old,
            whole: None,
        };
        let now = cluster.now();
        cluster.world.sent(&effect, now);
        apply(cluster, Input::Answered(effect.key(), answer));
    };
    let refused = || Answer::Refused { why: "no".into(), retry_after: None, forbidden: true };
    let patches = |cluster: &Cluster| !cluster.world.is_unpatchable(&key.kind, cluster.now().mono);
    mark(&mut cluster, refused());
    assert!(!patches(&cluster) && !cluster.world.is_unwritable(&key.kind));
    mark(&mut cluster, refused());
    assert!(!patches(&cluster) && cluster.world.is_unwritable(&key.kind));
    cluster.time += 10 * 60_000;
    assert!(patches(&cluster) && cluster.world.is_limited(&key.kind), "it is told until it has worked");
    mark(&mut cluster, Answer::Done(None));
    assert!(patches(&cluster) && !cluster.world.is_limited(&key.kind) && !cluster.world.is_unwritable(&key.kind));
}
