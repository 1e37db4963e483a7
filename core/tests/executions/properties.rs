//! What must hold in every execution, whatever is lost, late, refused or out of step?

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::{Cluster, Fate, at_most, plan};
use proptest::prelude::*;
use resus_core::effect::Effect;
use resus_core::facts::{Name, Source};
use resus_core::input::Input;

#[derive(Clone, Debug)]
enum Step {
    Break(usize),
    Recover(usize),
    Pass(i64),
    Hear(usize),
    Turn,
    /// Some turns in which everything goes well: long stories need them.
    Well(i64),
    Execute(usize, Fate),
    TurnClock(i64),
    CutWatch,
    Relist,
    Pause(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fate =
        prop_oneof![5 => Just(Fate::Done), 1 => Just(Fate::LostBefore), 1 => Just(Fate::LostAfter), 1 => Just(Fate::Refused)];
    let step = prop_oneof![
        3 => (0..NODES).prop_map(Step::Break),
        2 => (0..NODES).prop_map(Step::Recover),
        2 => (0..1_000i64).prop_map(Step::Pass),
        2 => (0..200_000i64).prop_map(Step::Pass),
        6 => (0..4usize).prop_map(Step::Hear),
        8 => Just(Step::Turn),
        2 => (0..5_000i64).prop_map(Step::Well),
        8 => (0..8usize, fate).prop_map(|(at, fate)| Step::Execute(at, fate)),
        1 => prop_oneof![Just(3_600_000i64), Just(-3_600_000i64)].prop_map(Step::TurnClock),
        1 => Just(Step::CutWatch),
        1 => Just(Step::Relist),
        1 => any::<bool>().prop_map(Step::Pause),
    ];
    prop::collection::vec(step, 1..300)
}

const NODES: usize = 6;
const UNHEALTHY_AFTER: Duration = Duration::from_secs(300);

fn take(cluster: &mut Cluster, step: &Step) {
    let node = |n: &usize| Name::from(format!("n{n}"));
    match step {
        Step::Break(n) => cluster.set_broken(&node(n), true),
        Step::Recover(n) => cluster.set_broken(&node(n), false),
        Step::Pass(millis) => cluster.time += millis,
        Step::Hear(which) => cluster.hear(*which),
        Step::Turn => {
            cluster.turn();
        }
        Step::Well(millis) => {
            cluster.run_well(*millis);
        }
        Step::Execute(at, fate) => cluster.execute(*at % cluster.requests.len().max(1), *fate),
        Step::TurnClock(by) => cluster.wall_step += by,
        Step::CutWatch => {
            let now = cluster.now();
            cluster.world.apply(Input::Broken(Source::Nodes), now);
        }
        Step::Relist => cluster.list(Source::Nodes),
        Step::Pause(paused) => cluster.set_paused(*paused),
    }
}

/// All nodes for which a remediation exists, or may exist as far as anybody knows.
fn in_flight(cluster: &Cluster) -> BTreeSet<Name> {
    let asked = cluster.requests.iter().filter_map(|effect| match effect {
        Effect::Create(creation) => creation.node().cloned(),
        _ => None,
    });
    cluster.remediated().into_iter().chain(asked).collect()
}

proptest! {
    /// Also with answers lost: what may exist counts as if it did.
    #[test]
    fn never_over_budget(max in 0u32..4, steps in steps()) {
        let mut cluster = Cluster::new(NODES, at_most(max), UNHEALTHY_AFTER);
        for step in &steps {
            take(&mut cluster, step);
            prop_assert!(in_flight(&cluster).len() <= max as usize, "{:?} under a limit of {max}", in_flight(&cluster));
        }
    }

    /// Neither lag, nor a step of the wall clock by an hour, nor a lost watch makes anything start early.
    #[test]
    fn nothing_starts_before_it_is_due(steps in steps()) {
        let mut cluster = Cluster::new(NODES, at_most(4), UNHEALTHY_AFTER);
        for step in &steps {
            take(&mut cluster, step);
            let now = cluster.now();
            for effect in &plan(&cluster.world, now).effects {
                let Effect::Create(creation) = effect else { continue };
                let node = creation.node().expect("all are for nodes");
                // It may have recovered since the look, but only within the life of a look.
                let known = &cluster.world.nodes[node];
                let due = known.since[0].after(UNHEALTHY_AFTER);
                prop_assert!(cluster.now().mono > due, "{} at {:?}, due {due:?}", node, cluster.now().mono);
                let looked_at = cluster.world.looked_at(None, node, true);
                prop_assert!(looked_at.is_some_and(|at| at > due), "a look, and after the time was over");
                if let Some(since) = cluster.broken_since[node] {
                    let waited = cluster.time - since;
                    let could_be_older_break = since >= looked_at.map_or(0, |at| at.0);
                    prop_assert!(could_be_older_break || waited > UNHEALTHY_AFTER.as_millis() as i64, "broken for {waited} ms only");
                }
            }
        }
    }

    #[test]
    fn plans_are_deterministic_and_send_nothing_twice(steps in steps()) {
        let mut cluster = Cluster::new(NODES, at_most(3), UNHEALTHY_AFTER);
        for step in &steps {
            take(&mut cluster, step);
            let now = cluster.now();
            let (first, again) = (plan(&cluster.world, now), plan(&cluster.world.clone(), now));
            prop_assert_eq!(&first, &again);
            let mut after = cluster.world.clone();
            for effect in &first.effects {
                after.sent(effect, now);
            }
            let keys: BTreeSet<_> = first.effects.iter().map(Effect::key).collect();
            let repeated: Vec<_> = plan(&after, now).effects.into_iter().filter(|effect| keys.contains(&effect.key())).collect();
            prop_assert!(repeated.is_empty(), "sent again: {repeated:?}");
        }
    }

    /// Once the faults end, what is broken is remediated if the limit allows it, what is healthy is left alone, all of
    /// it is reported, and then there is silence.
    #[test]
    fn it_recovers_and_rests(max in 0u32..7, steps in steps()) {
        let mut cluster = Cluster::new(NODES, at_most(max), UNHEALTHY_AFTER);
        for step in &steps {
            take(&mut cluster, step);
        }
        while !cluster.requests.is_empty() {
            cluster.execute(0, Fate::LostAfter);
        }
        cluster.set_paused(false);
        cluster.list(Source::Nodes);
        cluster.run_well(2_000_000);
        let broken: Vec<Name> = cluster.broken_since.iter().filter(|(_, since)| since.is_some()).map(|(name, _)| name.clone()).collect();
        let remediated = cluster.remediated();
        if broken.len() <= max as usize {
            prop_assert_eq!(&remediated, &broken);
        } else {
            prop_assert!(remediated.iter().all(|name| broken.contains(name)), "{remediated:?} of {broken:?}");
        }
        let status = &cluster.check.status;
        let listed: Vec<Name> = status.unhealthy.iter().map(|node| node.name.clone()).collect();
        prop_assert_eq!(listed, broken.clone());
        prop_assert_eq!((status.observed, status.healthy), (Some(NODES as u32), Some((NODES - broken.len()) as u32)));
        prop_assert_eq!(cluster.run_well(3_600_000), 0, "a quiet world means no writes");
    }
}
