//! What may stand in our Lease, and what follows from it?

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Agent, Dog, Heritage, Standing, Word};
use crate::facts::Name;
use crate::fencing::lease::Claim;
use crate::fencing::vote::{Electorate, Reply};
use crate::time::Mono;

impl Agent {
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

    /// The rolls that our Lease may name.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        let earlier = match &self.heritage {
            Heritage::Known { numbers, .. } => numbers.clone(),
            Heritage::Lost | Heritage::Over => BTreeSet::new(),
        };
        self.claims().map(|claim| claim.roll).filter(|roll| *roll > 0).chain(earlier).collect()
    }

    pub(super) fn electorate(&self) -> Electorate {
        let lists: Vec<_> = self.numbers().iter().map(|number| self.memory.lists.get(number).cloned()).collect();
        // A list that we do not know cannot be won.
        let known = lists.into_iter().collect::<Option<Vec<_>>>().filter(|_| self.heritage != Heritage::Lost);
        let lists = known.unwrap_or_else(|| vec![BTreeSet::new()]);
        Electorate { me: self.me.clone(), lists, counts_me: self.memory.roll.is_some() }
    }
}
