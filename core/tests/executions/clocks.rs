//! What if a clock is wrong: ours, a node's, or that of the API server?

use std::time::Duration;

use resus_core::decision::Because;
use resus_core::effect::Effect;
use resus_core::facts::{Condition, Name, Source, Status, Step};
use resus_core::input::{Fact, Input};
use resus_core::lease::LeaseEffect;
use resus_core::mhc::facts::ClusterKey;
use resus_core::reasons;
use resus_core::time::Wall;

use crate::model::{Cluster, EPOCH, at_most, key, plan};

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const UNHEALTHY_AFTER: Duration = Duration::from_secs(300);

/// Our clock and the server's are off by so much from the beginning.
fn begun(ours: i64, servers: i64) -> Cluster {
    let mut cluster = Cluster::new(3, at_most(3), UNHEALTHY_AFTER);
    (cluster.wall_step, cluster.server_step) = (ours, Some(servers));
    cluster.restart();
    cluster.run_well(10 * SECOND);
    cluster
}

fn n1() -> Name {
    "n1".into()
}

fn because(cluster: &Cluster) -> Because {
    let plan = plan(&cluster.world, cluster.now());
    plan.decisions.into_iter().find(|decision| decision.node == n1()).expect("it is a target").because
}

/// When it was started on, counted from `since`.
fn started(cluster: &Cluster, since: i64) -> Vec<i64> {
    cluster.created.iter().map(|(_, at)| at - since).collect()
}

fn is_due(after: i64) -> bool {
    let due = UNHEALTHY_AFTER.as_millis() as i64;
    (due..due + 3 * SECOND).contains(&after)
}

#[test]
fn nothing_starts_while_our_clock_is_wrong_and_all_that_is_due_when_it_is_right() {
    for off in [10 * MINUTE, -2 * HOUR] {
        let mut cluster = begun(off, 0);
        cluster.set_broken(&n1(), true);
        cluster.run_well(10 * MINUTE);
        assert_eq!(cluster.created, [], "off by {off}");
        let Because::ClockDiffers { ahead } = because(&cluster) else { panic!("{:?}", because(&cluster)) };
        assert!(ahead.abs_diff(off / SECOND) <= 2, "{ahead} s, where it is {off} ms");
        let allowed = cluster.check.status.conditions.iter().find(|own| &*own.kind == reasons::REMEDIATION_ALLOWED);
        assert!(allowed.is_some_and(|own| own.status == Status::False && &*own.reason == reasons::CLOCK_DIFFERS), "{allowed:?}");

        cluster.wall_step = 0;
        let right_at = cluster.time;
        cluster.run_well(MINUTE);
        let starts = started(&cluster, right_at);
        assert!(starts.len() == 1 && starts[0] < 10 * SECOND, "off by {off}: {starts:?}");
    }
}

/// The clock of a host that has just booted is put right within seconds.
#[test]
fn a_clock_that_was_wrong_for_some_seconds_neither_hurries_nor_delays_anything() {
    for off @ (ours, servers) in [(10 * MINUTE, 0), (-2 * HOUR, 0), (0, -2 * HOUR)] {
        let mut cluster = begun(ours, servers);
        (cluster.wall_step, cluster.server_step) = (0, Some(0));
        cluster.run_well(5 * SECOND);
        cluster.change_policy(|policy| {
            let step = |name| Step { template: key("RebootTemplate", name), timeout: Some(Duration::from_secs(60)) };
            policy.steps = vec![step("reboot"), step("missing")];
            policy.steps[1].template = policy.steps[0].template.clone();
        });
        cluster.set_broken(&n1(), true);
        let broken_at = cluster.time;
        cluster.run_well(6 * MINUTE + 30 * SECOND);
        let starts = started(&cluster, broken_at);
        assert!(starts.first().is_some_and(|first| is_due(*first)), "off by {off:?}: {starts:?}");
        let first = cluster.objects.values().find(|object| object.node == n1()).expect("it was created");
        assert!(first.timed_out, "off by {off:?}: a step ends after its time");
        let lease = cluster.node_leases.values().next().expect("we hold the node");
        assert!(lease.renewed_at.0 - EPOCH > broken_at + 5 * MINUTE + 30 * SECOND, "off by {off:?}: it is renewed in time");
    }
}

#[test]
fn a_step_of_our_clock_is_believed_after_a_minute_and_stops_only_what_is_new() {
    let mut cluster = begun(0, 0);
    cluster.set_broken(&n1(), true);
    let broken_at = cluster.time;
    cluster.run_well(4 * MINUTE + 30 * SECOND);
    cluster.wall_step = HOUR;
    cluster.run_well(29 * SECOND);
    assert_eq!((started(&cluster, broken_at), matches!(because(&cluster), Because::Pending(_))), (vec![], true));
    cluster.run_well(10 * SECOND);
    assert!(is_due(started(&cluster, broken_at)[0]), "neither sooner nor later");
    cluster.set_broken(&"n2".into(), true);
    cluster.run_well(10 * MINUTE);
    assert_eq!(cluster.created.len(), 1, "by now it is certain that the clocks differ");
    cluster.set_broken(&n1(), false);
    cluster.run_well(MINUTE);
    assert_eq!(cluster.remediated(), Vec::<Name>::new(), "what has recovered is let go");
}

/// The clock of the server's host was behind, and is put right: what it had dated is not hours old because of that.
#[test]
fn a_step_of_the_servers_clock_hurries_nothing() {
    let mut cluster = begun(-2 * HOUR, -2 * HOUR);
    cluster.behind.insert(n1(), 2 * HOUR);
    cluster.set_broken(&n1(), true);
    let broken_at = cluster.time;
    cluster.run_well(MINUTE);
    (cluster.wall_step, cluster.server_step) = (0, Some(0));
    cluster.run_well(10 * MINUTE);
    let starts = started(&cluster, broken_at);
    assert!(starts.len() == 1 && is_due(starts[0]), "{starts:?}");
}

#[test]
fn a_report_by_a_clock_that_is_behind_is_as_young_as_it_arrives() {
    let mut cluster = begun(0, 0);
    cluster.behind.insert(n1(), 20 * MINUTE);
    cluster.set_broken(&n1(), true);
    let broken_at = cluster.time;
    cluster.run_well(10 * MINUTE);
    let starts = started(&cluster, broken_at);
    assert!(starts.len() == 1 && is_due(starts[0]), "{starts:?}");
}

/// What has been under way for a while arrives late, by clocks that are right; and what the control plane says is dated by it.
#[test]
fn only_what_a_node_says_itself_on_a_fresh_watch_is_moved() {
    let seen = |cluster: &mut Cluster, status: Status, cut: bool| {
        let now = cluster.now();
        if cut {
            cluster.world.apply(Input::Broken(Source::Nodes), now);
        }
        cluster.version += 1;
        let mut node = cluster.node(&n1());
        node.conditions =
            [Condition { kind: "Ready".into(), status, since: Wall(now.wall.0 - MINUTE), reason: "".into() }].into();
        node.reported_at = [Wall(now.wall.0 - MINUTE)].into();
        cluster.world.apply(Input::Seen(Fact::Node(node)), now);
        cluster.time - cluster.world.nodes[&n1()].since[0].0
    };
    let mut cluster = begun(0, 0);
    assert_eq!(seen(&mut cluster, Status::False, true), MINUTE, "right after a break");
    cluster.run_well(10 * SECOND);
    assert_eq!(seen(&mut cluster, Status::Unknown, false), MINUTE, "by the control plane");
    assert_eq!(seen(&mut cluster, Status::False, false), 0, "by its kubelet");
    let now = cluster.now();
    cluster.world.apply(Input::Listing(Source::Nodes), now);
    cluster.time += 30 * SECOND;
    let now = cluster.now();
    cluster.world.apply(Input::Seen(Fact::Node(cluster.node(&n1()))), now);
    cluster.world.apply(Input::Listed(Source::Nodes), now);
    assert_eq!(seen(&mut cluster, Status::False, false), MINUTE, "while the list was under way");
}

/// Some reporters date what they say anew each time they say it.
#[test]
fn a_date_that_is_moved_again_and_again_ends_some_day() {
    let mut cluster = begun(0, 0);
    cluster.set_broken(&n1(), true);
    let broken_at = cluster.time;
    for _ in 0..40 {
        cluster.run_well(10 * SECOND);
        cluster.broken_since.insert(n1(), Some(cluster.time));
        cluster.touch(&n1());
    }
    let starts = started(&cluster, broken_at);
    assert!(starts.len() == 1 && is_due(starts[0]), "{starts:?}");
}

/// The clock of its reporter is behind: what it says again is dated far into the past again.
#[test]
fn a_date_that_is_moved_into_the_past_is_not_believed() {
    let mut cluster = begun(0, 0);
    cluster.behind.insert(n1(), 20 * MINUTE);
    cluster.set_broken(&n1(), true);
    let broken_at = cluster.time;
    cluster.run_well(10 * SECOND);
    cluster.broken_since.insert(n1(), Some(cluster.time));
    cluster.touch(&n1());
    cluster.run_well(10 * MINUTE);
    let starts = started(&cluster, broken_at);
    assert!(starts.len() == 1 && is_due(starts[0]), "{starts:?}");
}

/// Both clocks are put right together: what runs already neither ends at once nor later.
#[test]
fn a_step_of_all_clocks_leaves_waits_as_they_are() {
    for off in [-2 * HOUR, 2 * HOUR] {
        let mut cluster = begun(off, off);
        cluster.behind.insert(n1(), -off);
        cluster.change_policy(|policy| {
            let step = Step { template: policy.steps[0].template.clone(), timeout: Some(Duration::from_secs(120)) };
            policy.steps = vec![step.clone(), step];
        });
        cluster.set_broken(&n1(), true);
        cluster.run_well(5 * MINUTE + 30 * SECOND);
        let first =
            |cluster: &Cluster| cluster.objects.values().find(|object| object.node == n1()).cloned().expect("it is there");
        assert!(!first(&cluster).timed_out);
        (cluster.wall_step, cluster.server_step) = (0, Some(0));
        cluster.run_well(60 * SECOND);
        assert!(!first(&cluster).timed_out, "off by {off}: a minute and a half of two");
        cluster.run_well(60 * SECOND);
        assert!(first(&cluster).timed_out, "off by {off}: two minutes and a half");
    }
}

/// Its server may say what it likes of the time.
#[test]
fn the_clock_of_a_workload_cluster_is_not_ours() {
    let mut cluster = begun(0, 0);
    let (before, now) = (cluster.world.clock.clone(), cluster.now());
    for date in [Wall(0), Wall(now.wall.0 + HOUR), Wall(i64::MAX)] {
        let there = Some(ClusterKey { namespace: "ns".into(), name: "blue".into() });
        cluster.world.apply(Input::Dated { cluster: there, date, sent_at: now.mono }, now);
    }
    assert_eq!(cluster.world.clock, before);
    assert!(cluster.world.fleet.regions.is_empty(), "of a Cluster that we do not know");
    let there = ClusterKey { namespace: "ns".into(), name: "blue".into() };
    let look = Effect::Look { cluster: Some(there.clone()), node: n1() };
    assert_eq!(
        [look, Effect::Identify { cluster: there.clone() }].map(|effect| effect.key().cluster().cloned()),
        [Some(there.clone()), Some(there)]
    );
}

#[test]
fn a_date_that_is_moved_counts_anew_where_the_node_may_have_been_well_in_between() {
    for is_listed in [true, false] {
        let mut cluster = begun(0, 0);
        cluster.set_broken(&n1(), true);
        cluster.run_well(4 * MINUTE);
        cluster.broken_since.insert(n1(), Some(cluster.time));
        cluster.version += 1;
        let again_at = cluster.time;
        if is_listed {
            cluster.list(Source::Nodes);
        } else {
            // What it was while it could not be read nobody knows.
            let now = cluster.now();
            let unreadable = Input::Unreadable { source: Source::Nodes, name: n1(), why: "it has no uid".into() };
            cluster.world.apply(unreadable, now);
            cluster.touch(&n1());
        }
        cluster.run_well(10 * MINUTE);
        let starts = started(&cluster, again_at);
        assert!(starts.len() == 1 && is_due(starts[0]), "{is_listed}: {starts:?}");
    }
}

/// What a watch shows within five seconds of a break may have happened during it.
#[test]
fn a_report_is_moved_once_its_watch_has_caught_up() {
    for (after, moved) in [(4 * SECOND, false), (6 * SECOND, true)] {
        let mut cluster = begun(0, 0);
        let now = cluster.now();
        cluster.world.apply(Input::Broken(Source::Nodes), now);
        cluster.time += SECOND;
        let now = cluster.now();
        cluster.world.apply(Input::Heard(Source::Nodes), now);
        cluster.time += after;
        let now = cluster.now();
        cluster.version += 1;
        let mut node = cluster.node(&n1());
        let since = Wall(now.wall.0 - MINUTE);
        node.conditions = [Condition { kind: "Ready".into(), status: Status::False, since, reason: "".into() }].into();
        node.reported_at = [since].into();
        cluster.world.apply(Input::Seen(Fact::Node(node)), now);
        let age = cluster.time - cluster.world.nodes[&n1()].since[0].0;
        assert_eq!(age, if moved { 0 } else { MINUTE }, "{after} ms after the break");
    }
}

/// Others read it by theirs, which agrees with the server's.
#[test]
fn what_we_write_is_dated_by_the_servers_clock() {
    for off in [HOUR, -HOUR] {
        let mut cluster = begun(off, 0);
        cluster.run_well(2 * MINUTE);
        let ours = cluster.now().wall;
        let mut renewals = Vec::new();
        for _ in 0..20 {
            let plan = plan(&cluster.world, cluster.now());
            renewals.extend(plan.effects.iter().filter_map(|effect| match effect {
                Effect::Lease(LeaseEffect::Write(record) | LeaseEffect::Create(record)) => Some(record.renewed_at.0),
                _ => None,
            }));
            cluster.run_well(SECOND);
        }
        assert!(!renewals.is_empty(), "it is renewed");
        for renewed_at in renewals {
            assert!((renewed_at + off - ours.0).abs() < MINUTE, "off by {off}: {} by ours", renewed_at - ours.0);
        }
    }
}
