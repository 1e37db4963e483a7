//! Somebody else's controller is alive, or may be.

use std::time::Duration;

use resus_core::facts::{Rival, Signal, SignalFact, Source, Status};
use resus_core::input::{Fact, Gone, Input};
use resus_core::reasons;

use crate::checks::{MINUTE, exist, name, reboot, settled};
use crate::model::Cluster;

/// Its leader renews the Lease every two seconds, for so long.
fn alive_for(cluster: &mut Cluster, seconds: i64, clock_is_off_by: i64) {
    for _ in 0..seconds / 2 {
        cluster.set_rival("manager-0", clock_is_off_by);
        cluster.run_well(2_000);
    }
}

fn disabled(cluster: &Cluster) -> Option<String> {
    let condition = cluster.check.status.conditions.iter().find(|condition| &*condition.kind == reasons::DISABLED)?;
    (condition.status == Status::True).then(|| format!("{}: {}", condition.reason, condition.message))
}

#[test]
fn checks_are_left_to_a_controller_that_is_alive_whatever_its_clock_says() {
    for clock_is_off_by in [0, -60 * MINUTE, 60 * MINUTE] {
        let mut cluster = settled();
        alive_for(&mut cluster, 4, clock_is_off_by);
        cluster.set_broken(&name("n1"), true);
        alive_for(&mut cluster, 60, clock_is_off_by);
        exist(&cluster, &[]);
        let told = disabled(&cluster).expect("it is told");
        assert!(told.starts_with("ForeignController: ") && told.contains("manager-0"), "{told}");
        assert!(told.contains("operators/e1f13584.medik8s.io") && told.contains("resus.dev/take-over=true"), "{told}");
        // It ends without a word; its Lease has fifteen seconds.
        cluster.run_well(10_000);
        exist(&cluster, &[]);
        cluster.run_well(10_000);
        exist(&cluster, &[reboot("n1")]);
        assert_eq!(disabled(&cluster), None);
    }
}

#[test]
fn a_check_that_says_so_is_taken_over() {
    let mut cluster = settled();
    cluster.check.take_over = true;
    cluster.check_changed();
    alive_for(&mut cluster, 4, 0);
    cluster.set_broken(&name("n1"), true);
    alive_for(&mut cluster, 10, 0);
    exist(&cluster, &[reboot("n1")]);
    assert_eq!(disabled(&cluster), None);
}

#[test]
fn a_lease_that_was_given_up_or_removed_or_is_a_relic_stops_nothing() {
    type Change = fn(&mut Cluster);
    let given_up: Change = |cluster| cluster.set_rival("", 0);
    let removed: Change = |cluster| {
        cluster.rivals.clear();
        cluster.tell(Input::Gone(Gone::Rival { rival: Rival::Medik8s, name: "operators/e1f13584.medik8s.io".into() }));
    };
    for change in [given_up, removed] {
        let mut cluster = settled();
        alive_for(&mut cluster, 10, 0);
        assert!(disabled(&cluster).is_some());
        change(&mut cluster);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        exist(&cluster, &[reboot("n1")]);
    }
    // What is seen for the first time may be alive, however old it says that it is; but not for longer than it lasts.
    let mut cluster = settled();
    cluster.set_rival("manager-0", -60 * MINUTE);
    cluster.restart();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(12_000);
    exist(&cluster, &[]);
    cluster.run_well(10_000);
    exist(&cluster, &[reboot("n1")]);
}

/// H5: whoever may write Leases in some namespace of their own stopped all repairs of the cluster, for 68 years at once.
#[test]
fn a_lease_where_no_other_controller_is_at_home_stops_nothing_and_is_told_of() {
    let mut cluster = settled();
    cluster.set_rival_lease("tenant", "manager-0", 0, Duration::from_secs(2_147_483_647));
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n1")]);
    let told = |cluster: &Cluster| {
        let mut conditions = cluster.check.status.conditions.iter();
        conditions.find(|own| &*own.kind == reasons::LEASE_IGNORED).map(|own| own.message.to_string())
    };
    let message = told(&cluster).expect("people are told");
    assert!(message.contains("tenant/e1f13584.medik8s.io") && message.contains("--rival-namespaces"), "{message}");
    // However many of them there are.
    for tenant in 0..100 {
        cluster.set_rival_lease(&format!("tenant-{tenant:02}"), "manager-0", 0, Duration::from_secs(15));
    }
    cluster.run_well(4_000);
    let message = told(&cluster).expect("people are still told");
    assert!(message.len() < 500 && message.ends_with(" and 7 more"), "{message}");
    let gone: Vec<_> = std::mem::take(&mut cluster.rivals).into_keys().collect();
    gone.into_iter().for_each(|name| cluster.tell(Input::Gone(Gone::Rival { rival: Rival::Medik8s, name })));
    cluster.run_well(4_000);
    assert_eq!(told(&cluster), None);
}

/// A Lease that says that it lasts for 68 years, or not at all.
#[test]
fn no_lease_holds_us_off_for_longer_than_five_minutes_after_a_renewal() {
    for (seconds, held_for) in [(2_147_483_647, 300), (u64::MAX, 300), (301, 300), (120, 120), (0, 0)] {
        let mut cluster = settled();
        cluster.set_rival_lease("operators", "manager-0", 0, Duration::from_secs(seconds));
        cluster.run_well(2_000);
        cluster.set_broken(&name("n1"), true);
        if held_for > 0 {
            cluster.run_well((held_for - 10) * 1000);
            exist(&cluster, &[]);
        }
        cluster.run_well(20_000);
        exist(&cluster, &[reboot("n1")]);
    }
}

/// The same with kured's lock: anybody may call a DaemonSet so.
#[test]
fn a_lock_of_kured_counts_only_where_kured_is_at_home() {
    let lock = |namespace: &str| {
        let says = SignalFact::Busy { what: "kured's lock is held by n4".into(), lasts: None, nodes: [].into() };
        Input::Seen(Fact::Signal { signal: Signal::Kured, name: format!("{namespace}/kured").into(), says })
    };
    let unreadable = Input::Unreadable { source: Source::Signals(Signal::Kured), name: "tenant/kured".into(), why: "odd".into() };
    for (input, stops) in [(lock("kube-system"), true), (lock("tenant"), false), (unreadable, false)] {
        let mut cluster = settled();
        let now = cluster.now();
        assert!(cluster.world.apply(input.clone(), now), "{input:?} is worth a word");
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        exist(&cluster, &if stops { vec![] } else { vec![reboot("n1")] });
        assert_eq!(cluster.world.strays().count(), usize::from(!stops), "{input:?}");
    }
}

/// The remediations that we left behind are the other's to remove: it knows them by their owner.
#[test]
fn nothing_is_removed_either_while_another_controller_is_alive() {
    let mut cluster = settled();
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    alive_for(&mut cluster, 4, 0);
    cluster.set_broken(&name("n1"), false);
    alive_for(&mut cluster, 20, 0);
    exist(&cluster, &[reboot("n1")]);
    cluster.run_well(20_000);
    exist(&cluster, &[]);
}

/// Otherwise a role of before would stop all repairs.
#[test]
fn who_may_not_look_for_others_goes_on_without() {
    let mut cluster = settled();
    let now = cluster.now();
    cluster.world.apply(Input::Broken(Source::Rivals(Rival::Medik8s)), now);
    cluster.world.apply(Input::Forbidden(Source::Rivals(Rival::Medik8s)), now);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n1")]);
}

/// That we may not look is believed as long as the server says so again and again.
#[test]
fn a_refusal_that_is_not_repeated_is_forgotten() {
    let mut cluster = settled();
    let rivals = Source::Rivals(Rival::Medik8s);
    for input in [Input::Broken(rivals.clone()), Input::Forbidden(rivals.clone()), Input::Listing(rivals)] {
        let now = cluster.now();
        cluster.world.apply(input, now);
    }
    cluster.run_well(200_000);
    cluster.set_broken(&name("n1"), true);
    cluster.run_well(8_000);
    exist(&cluster, &[]);
}
