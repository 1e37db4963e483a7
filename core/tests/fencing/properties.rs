//! What must hold of fuses, votes and times, whatever they are fed with?

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use resus_core::facts::Name;
use resus_core::fencing::fuse::Fuse;
use resus_core::fencing::terms::{Circumstances, LOOK_AFTER, Resets, Terms};
use resus_core::fencing::vote::{Electorate, Reply, Verdict, Vote};
use resus_core::time::Mono;

/// As it is since Kubernetes 1.32; before it was shorter.
const NODE_MONITOR_GRACE: Duration = Duration::from_secs(50);

fn name(n: usize) -> Name {
    format!("n{n}").into()
}

fn electorate(lists: &[BTreeSet<usize>], counts_me: bool) -> Electorate {
    let lists = lists.iter().map(|list| list.iter().map(|n| name(*n)).collect()).collect();
    Electorate { me: name(0), lists, counts_me }
}

fn reply() -> impl Strategy<Value = Option<Reply>> {
    prop_oneof![Just(None), Just(Some(Reply::Healthy)), Just(Some(Reply::Ordered)), Just(Some(Reply::NoApi))]
}

proptest! {
    /// Whatever is proved, in whichever order it is heard: no feed begins later than g after the newest request.
    #[test]
    fn a_fuse_never_allows_a_feed_too_late(lives in 1u64..1000, proofs in prop::collection::vec((0i64..10_000, 0i64..10_000), 0..20), at in 0i64..30_000) {
        let mut fuse = Fuse::new(Duration::from_millis(lives));
        for (sent_at, _) in &proofs {
            fuse.prove(Mono(*sent_at));
        }
        let newest = proofs.iter().map(|(sent_at, _)| *sent_at).max();
        let expected = newest.is_some_and(|newest| at <= newest + lives as i64);
        prop_assert_eq!(fuse.allows_feed(Mono(at)), expected);
    }

    /// It ends within its rounds, with one of three words, and says healthy only for a reason.
    #[test]
    fn a_vote_ends_within_its_rounds(
        lists in prop::collection::vec(prop::collection::btree_set(0usize..60, 1..60), 1..3),
        counts_me in any::<bool>(),
        gently in any::<bool>(),
        replies in prop::collection::vec((reply(), 0i64..6000), 60),
    ) {
        const ROUNDS: u32 = 4;
        const ROUND_FOR: Duration = Duration::from_secs(4);
        let electorate = electorate(&lists, counts_me);
        let order: Vec<Name> = electorate.peers().into_iter().collect();
        let mut vote = Vote::begin(electorate, order, gently, ROUNDS, ROUND_FOR, Mono(0));
        let (mut due, mut told): (Vec<(i64, usize)>, BTreeSet<usize>) = (Vec::new(), BTreeSet::new());
        let mut asked = BTreeSet::new();
        let mut ended = None;
        for now in (0..=16_000i64).step_by(100) {
            for (at, n) in &due {
                if *at <= now && told.insert(*n) && let Some(reply) = replies[*n].0 {
                    vote.hear(&name(*n), reply);
                }
            }
            if let Some(verdict) = vote.verdict(Mono(now)) {
                ended = Some(verdict);
                break;
            }
            for peer in vote.ask(Mono(now)) {
                let n: usize = peer[1..].parse().expect("a number");
                prop_assert!(asked.insert(n), "nobody is asked twice");
                due.push((now + replies[n].1, n));
            }
        }
        let Some(verdict) = ended else { return Err(TestCaseError::fail("it goes on after its last round")) };
        let said = |word: Reply| told.iter().filter(|n| replies[**n].0 == Some(word)).copied().collect::<BTreeSet<_>>();
        let majority = lists.iter().all(|list| {
            let voices = list.iter().filter(|n| if **n == 0 { counts_me } else { said(Reply::NoApi).contains(n) }).count();
            2 * voices > list.len()
        });
        match verdict {
            Verdict::Healthy { .. } => prop_assert!(!said(Reply::Healthy).is_empty() || majority && said(Reply::Ordered).is_empty()),
            Verdict::Unhealthy => prop_assert!(!said(Reply::Ordered).is_empty() && said(Reply::Healthy).is_empty()),
            Verdict::Undecided => prop_assert!(said(Reply::Healthy).is_empty() && said(Reply::Ordered).is_empty() && !majority),
        }
    }

    /// Whatever the circumstances are, the times that are computed hold, and a proof under somebody's bound keeps it.
    #[test]
    fn computed_times_hold(agents in 0usize..20_000, dog in 1u64..120, second in any::<bool>(), virtual_machine in any::<bool>(), bound in 1u64..600) {
        let resets = if second { Resets::AtSecondExpiry } else { Resets::AtExpiry };
        let terms = Terms::of(Circumstances { agents, watchdog_for: Duration::from_secs(dog), resets, virtual_machine });
        prop_assert_eq!(terms.check(), Ok(()));
        prop_assert_eq!(terms.keeps(terms.bound()), Ok(()));
        prop_assert!(terms.bound() + LOOK_AFTER > NODE_MONITOR_GRACE, "Kubernetes collects only what it has found to be not ready");
        let bound = Duration::from_secs(bound);
        if let Some(proof_for) = terms.proof_under(bound) {
            prop_assert_eq!(Terms { proof_for, ..terms }.keeps(bound), Ok(()));
        }
    }
}
