//! Single executions, step by step, each with the rule that it is about.

use std::time::Duration;

use crate::model::{Cluster, Fate, at_most};
use resus_core::decision::{Because, Verdict};
use resus_core::effect::{Effect, EffectKey};
use resus_core::facts::{Name, Source};
use resus_core::input::Input;
use resus_core::plan::Plan;

const FIVE_MINUTES: Duration = Duration::from_secs(300);

fn name(node: &str) -> Name {
    node.into()
}

fn settled(nodes: usize, max: u32, after: Duration) -> Cluster {
    let mut cluster = Cluster::new(nodes, at_most(max), after);
    cluster.run_well(10_000);
    cluster
}

fn decision(plan: &Plan, node: &str) -> (Verdict, Because) {
    let found = plan.decisions.iter().find(|decision| &*decision.node == node).expect("the node is decided on");
    (found.verdict, found.because.clone())
}

#[test]
fn a_node_is_unhealthy_strictly_after_its_time_and_the_plan_wakes_exactly_then() {
    let mut cluster = settled(3, 1, FIVE_MINUTES);
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    let broken_at = cluster.time;
    cluster.time = broken_at + 300_000;
    let plan = cluster.turn();
    assert!(matches!(decision(&plan, "n1"), (Verdict::Wait, Because::Pending(_))));
    cluster.run_well(1);
    let plan = cluster.turn();
    assert!(!matches!(decision(&plan, "n1").1, Because::Pending(_)), "one millisecond later its time is over");
}

#[test]
fn a_node_that_recovers_in_time_is_left_alone() {
    let mut cluster = settled(5, 2, FIVE_MINUTES);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(299_000);
    cluster.set_broken(&name("n1"), false);
    cluster.run_well(3_600_000);
    assert!(cluster.created.is_empty());
}

/// A storm is seen while it rises, not when its time-outs run off.
#[test]
fn pending_nodes_count_against_the_limit() {
    let mut cluster = settled(5, 1, FIVE_MINUTES);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(200_000);
    cluster.set_broken(&name("n2"), true);
    cluster.run_well(150_000);
    assert!(cluster.created.is_empty(), "n1 is unhealthy, but n2 is pending");
    let plan = cluster.turn();
    assert_eq!(decision(&plan, "n1"), (Verdict::Hold, Because::TooManyUnhealthy { not_healthy: 2, allowed: 1, of: 5 }));
    cluster.set_broken(&name("n2"), false);
    cluster.run_well(1_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

/// Everything goes well until a creation is sent, which has this fate.
fn create_with(cluster: &mut Cluster, fate: Fate) {
    loop {
        cluster.hear_of(&Source::NodeLeases);
        cluster.turn();
        while let Some(effect) = cluster.requests.front() {
            if matches!(effect, Effect::Create(_)) {
                return cluster.execute(0, fate);
            }
            cluster.execute(0, Fate::Done);
        }
    }
}

#[test]
fn a_creation_whose_answer_was_lost_counts_until_its_fate_is_known() {
    let mut cluster = settled(4, 1, Duration::from_secs(5));
    cluster.set_broken(&name("n1"), true);
    cluster.time += 5_001;
    cluster.hear_all();
    create_with(&mut cluster, Fate::LostBefore);
    cluster.set_broken(&name("n1"), false);
    cluster.set_broken(&name("n2"), true);
    cluster.hear_all();
    let plan = cluster.turn();
    assert!(matches!(decision(&plan, "n2").1, Because::Pending(_)));
    let key = EffectKey::Create(ours("n1"));
    assert!(cluster.world.flights.may_have_happened(&key), "it may exist for all we know");
    // The server is asked and says no; but what was sent may still arrive, until it no longer can. Then n2 has its turn.
    cluster.run_well(6_000);
    assert!(cluster.remediated().is_empty());
    cluster.run_well(8_000);
    assert_eq!(cluster.remediated(), [name("n2")]);
    assert!(!cluster.world.flights.may_have_happened(&key));
}

#[test]
fn a_creation_that_was_stored_counts_before_the_watch_shows_it() {
    let mut cluster = settled(4, 1, Duration::from_secs(5));
    cluster.set_broken(&name("n1"), true);
    cluster.time += 5_001;
    cluster.hear_all();
    create_with(&mut cluster, Fate::Done);
    // Nodes are heard of, the new object is not.
    cluster.set_broken(&name("n1"), false);
    cluster.set_broken(&name("n2"), true);
    cluster.time += 5_001;
    cluster.list(Source::Nodes);
    let plan = cluster.turn();
    assert!(matches!(decision(&plan, "n2").1, Because::TooManyUnhealthy { not_healthy: 2, .. }), "{:?}", decision(&plan, "n2"));
}

#[test]
fn an_old_look_does_not_justify_a_new_start() {
    let mut cluster = settled(4, 1, Duration::from_millis(500));
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.time += 501;
    cluster.turn();
    while !cluster.requests.is_empty() {
        cluster.execute(0, Fate::Done); // the look among them
    }
    cluster.set_broken(&name("n1"), false);
    cluster.hear_all();
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.time += 501;
    let plan = cluster.turn();
    assert_eq!(decision(&plan, "n1"), (Verdict::Wait, Because::Looking));
}

#[test]
fn nothing_starts_while_a_watch_is_broken() {
    let mut cluster = settled(4, 1, Duration::from_secs(5));
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    let now = cluster.now();
    cluster.world.apply(Input::Broken(Source::Nodes), now);
    cluster.time += 6_000;
    let plan = cluster.turn();
    assert_eq!(decision(&plan, "n1"), (Verdict::Hold, Because::Stale { source: Source::Nodes }));
    cluster.list(Source::Nodes);
    cluster.run_well(1_000);
    assert_eq!(cluster.remediated(), [name("n1")]);
}

#[test]
fn silence_makes_a_watch_stale() {
    let mut cluster = settled(4, 1, Duration::from_secs(5));
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    cluster.time += 90_001;
    let plan = cluster.turn();
    assert!(matches!(decision(&plan, "n1"), (Verdict::Hold, Because::Stale { .. })));
}

/// The watch lags: it still shows the node as broken when the plain look has shown that it is well.
#[test]
fn a_look_overrules_a_watch_that_lags() {
    let mut cluster = settled(4, 1, Duration::from_secs(5));
    cluster.set_broken(&name("n1"), true);
    cluster.hear_all();
    for broken in [false, true, false] {
        cluster.time += 2_000;
        cluster.set_broken(&name("n1"), broken); // not heard
    }
    cluster.turn();
    while !cluster.requests.is_empty() {
        cluster.execute(0, Fate::Done);
    }
    // Now the watch delivers that it recovered and broke again, which is old news already.
    cluster.hear(0);
    cluster.hear(0);
    let plan = cluster.turn();
    assert_eq!(decision(&plan, "n1"), (Verdict::Leave, Because::Healthy));
    assert!(cluster.created.is_empty());
}

#[test]
fn more_nodes_than_requests_at_once_are_all_served() {
    let mut cluster = settled(300, 200, Duration::from_secs(5));
    for n in 0..200 {
        cluster.set_broken(&name(&format!("n{n}")), true);
    }
    cluster.run_well(20_000);
    assert_eq!(cluster.remediated().len(), 200);
    assert_eq!(cluster.created.len(), 200);
}

fn ours(node: &str) -> resus_core::facts::ObjectKey {
    let kind = resus_core::facts::Kind { api_version: "provider.test/v1".into(), kind: "Reboot".into() };
    resus_core::facts::ObjectKey { kind, namespace: Some("default".into()), name: node.into() }
}
