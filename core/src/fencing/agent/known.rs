//! What may stand in our Lease, and what follows from it?

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Agent, Asking, Dog, Heritage, Poll, ROLL_EACH, Standing, TRIAL_EACH, Word};
use crate::facts::Name;
use crate::fencing::lease::Claim;
use crate::fencing::vote::{Electorate, Reply};
use crate::time::Mono;

impl Agent {
    /// The same agent at an instant zero, without what no longer matters: in a search of all that can happen only differences count, and
    /// two that will do the same for ever are one.
    #[must_use]
    pub fn rebased(mut self, now: Mono) -> Agent {
        let past =
            |at: Mono, kept_for: Duration| Mono((at.0 - now.0).max(-i64::try_from(kept_for.as_millis()).unwrap_or(i64::MAX)));
        let terms = self.terms;
        self.failures = self.failures.min(terms.failures_max);
        self.asking = match self.asking {
            Asking::Not => Asking::Not,
            Asking::Reading { sent_at } => Asking::Reading { sent_at: past(sent_at, terms.proof_for + terms.renew_each) },
            Asking::Writing { sent_at } => Asking::Writing { sent_at: past(sent_at, terms.proof_for + terms.renew_each) },
        };
        self.fuse = self.fuse.rebased(now);
        self.next_request_at = past(self.next_request_at, Duration::ZERO);
        self.roll_asked_at = self.roll_asked_at.map(|at| past(at, ROLL_EACH));
        self.roll_due_at = past(self.roll_due_at, Duration::ZERO);
        self.voted_at = self.voted_at.map(|at| past(at, terms.vote_each()));
        self.next_trial_at = Mono(0).after(TRIAL_EACH);
        self.heard_at = self.heard_at.map(|_| Mono(0));
        if let Dog::Armed { fed_at } = &mut self.dog {
            *fed_at = past(*fed_at, terms.feed_each());
        }
        match &mut self.poll {
            None => self.polls_begun = 0,
            Some(Poll::Vote(number, vote)) => {
                vote.rebase(now);
                (self.polls_begun, *number) = (1, 1);
            }
            Some(Poll::Trial(number, trial)) => {
                trial.rebase(now);
                (self.polls_begun, *number) = (1, 1);
            }
        }
        self
    }

    /// Too many requests in a row have failed.
    pub(super) fn is_cut_off(&self) -> bool {
        self.failures >= self.terms.failures_max
    }

    pub(super) fn is_elector(&self) -> bool {
        let newest = self.memory.roll.and_then(|number| self.memory.lists.get(&number));
        newest.is_some_and(|list| list.contains(&self.me))
    }

    pub(super) fn knows_order(&self, node: &Name, boot: &Name) -> bool {
        self.memory.orders.contains(&(node.clone(), boot.clone()))
    }

    pub(super) fn word(&self, asker: &Name, boot: &Name, reply: Reply) -> Word {
        Word::Reply(if self.knows_order(asker, boot) { Reply::Ordered } else { reply })
    }

    pub(super) fn claim(&self, now: Mono) -> Claim {
        Claim {
            boot: self.boot.clone(),
            bound: self.promise(now).ok(),
            assured: self.dog != Dog::Unusable,
            roll: self.memory.roll.unwrap_or(0),
        }
    }

    /// All claims that may stand in our Lease, now or later.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        let seen = match &self.lease {
            Standing::Seen(seen) => Some(&seen.claim),
            Standing::Unknown | Standing::Absent => None,
        };
        seen.into_iter().filter(|claim| claim.boot == self.boot).chain(self.unanswered.iter().map(|(_, claim)| claim))
    }

    pub(super) fn bounds(&self) -> impl Iterator<Item = Duration> {
        let earlier = match self.heritage {
            Heritage::Known { bound, .. } => bound,
            Heritage::Lost | Heritage::Over => None,
        };
        self.claims().filter_map(|claim| claim.bound).chain(earlier)
    }

    /// For certain: neither by us, nor by an earlier process of this boot. What stands in the Lease of somebody who has our name
    /// says nothing about us.
    pub(super) fn promises_nothing(&self) -> bool {
        let is_ours = match &self.lease {
            Standing::Unknown | Standing::Absent => true,
            Standing::Seen(seen) => seen.claim.boot == self.boot,
        };
        is_ours && self.heritage == Heritage::Over && self.bounds().next().is_none()
    }

    /// Can all be kept that may have been promised?
    pub(super) fn keeps_all(&self) -> bool {
        self.memory.published
            && self.heritage != Heritage::Lost
            && self.bounds().all(|bound| self.terms.proof_under(bound).is_some())
    }

    /// What is longer is used after it was promised for certain, what is shorter before.
    pub(super) fn proof_for(&self) -> Duration {
        let under = self.bounds().map(|bound| self.terms.proof_under(bound).unwrap_or(Duration::ZERO));
        under.fold(self.terms.proof_for, Duration::min)
    }

    /// The rolls that our Lease may name. Zero is none, and nobody can win a vote in it: the controller counts on that.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        let earlier = match &self.heritage {
            Heritage::Known { numbers, .. } => numbers.clone(),
            Heritage::Lost | Heritage::Over => BTreeSet::new(),
        };
        self.claims().map(|claim| claim.roll).chain(earlier).collect()
    }

    pub(super) fn electorate(&self) -> Electorate {
        let lists: Vec<_> = self.numbers().iter().map(|number| self.memory.lists.get(number).cloned()).collect();
        // A list that we do not know cannot be won.
        let known = lists.into_iter().collect::<Option<Vec<_>>>().filter(|_| self.heritage != Heritage::Lost);
        let lists = known.unwrap_or_else(|| vec![BTreeSet::new()]);
        Electorate { me: self.me.clone(), lists, counts_me: self.memory.roll.is_some() }
    }
}
