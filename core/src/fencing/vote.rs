//! Do the others see what I see?
//!
//! Asked when the API does not answer. One peer that read our Lease after it was asked, and saw no order, is enough to live on
//! (P2). So is the word of more than half of the electors that the API does not answer them either, and that they know of no
//! order (P3): whoever ordered our end has waited until at least half of them knew of it. Silence decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::Name;
use crate::time::Mono;

/// The four answers of a peer; the fourth is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// Read after the question: your Lease shows the boot that asks, and no order for it.
    Healthy,
    /// An order for this boot stands, or stood when I last could read.
    Ordered,
    /// I cannot reach the API either, and know of no order for you.
    NoApi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// As of then: when the question on which it rests was sent.
    Healthy {
        proved_at: Mono,
    },
    Unhealthy,
    /// Too few have said anything. The fuse burns on.
    Undecided,
}

/// Who is asked, and who counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Electorate {
    pub me: Name,
    /// The list that our Lease names, and each newer one that we may have named.
    pub lists: Vec<BTreeSet<Name>>,
    /// Who does not know all orders has no voice, not even for itself.
    pub counts_me: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    electorate: Electorate,
    /// Those who have not been asked yet, in the order in which they will be.
    waiting: Vec<Name>,
    asked: BTreeMap<Name, Mono>,
    replies: BTreeMap<Name, Reply>,
    first_asked_at: Mono,
    /// Whom the running round asked, until when.
    round: BTreeSet<Name>,
    round_ends_at: Mono,
    rounds_left: u32,
    size_next: usize,
    round_for: Duration,
}

/// Would a vote work? Asked while the API answers, when nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trial {
    electorate: Electorate,
    heard: BTreeSet<Name>,
    ends_at: Mono,
}

impl Trial {
    pub fn begin(electorate: Electorate, lasts_for: Duration, now: Mono) -> Trial {
        Trial { electorate, heard: BTreeSet::new(), ends_at: now.after(lasts_for) }
    }

    pub fn peers(&self) -> Vec<Name> {
        self.electorate.peers().into_iter().collect()
    }

    pub fn hear(&mut self, from: Name) {
        self.heard.insert(from);
    }

    /// Does more than half of the electors hear us, and we them? None: it goes on.
    pub fn succeeds(&self, now: Mono) -> Option<bool> {
        match self.electorate.is_majority(|name| self.heard.contains(name)) {
            true => Some(true),
            false => (now >= self.ends_at).then_some(false),
        }
    }

    pub fn wake_at(&self) -> Mono {
        self.ends_at
    }

    /// See [`super::agent::Agent::rebased`].
    pub fn rebase(&mut self, now: Mono) {
        self.ends_at = self.ends_at.shift(-now.0);
    }
}

impl Electorate {
    /// All who may be asked.
    pub fn peers(&self) -> BTreeSet<Name> {
        self.lists.iter().flatten().filter(|name| **name != self.me).cloned().collect()
    }

    /// Could a vote be won at all?
    pub fn is_known(&self) -> bool {
        !self.lists.is_empty() && self.lists.iter().all(|list| !list.is_empty())
    }

    /// In every list that counts, more than half: whoever counts with another than we do is answered by the one that both know.
    fn is_majority(&self, says_so: impl Fn(&Name) -> bool) -> bool {
        let voices = |list: &BTreeSet<Name>| {
            list.iter().filter(|name| if **name == self.me { self.counts_me } else { says_so(name) }).count()
        };
        !self.lists.is_empty() && self.lists.iter().all(|list| 2 * voices(list) > list.len())
    }
}

impl Vote {
    /// `order` is a shuffle of the peers. The first vote of an outage asks a tenth of them first, then twice as many, and so on;
    /// later ones ask all at once.
    pub fn begin(
        electorate: Electorate,
        order: Vec<Name>,
        gently: bool,
        rounds_max: u32,
        round_for: Duration,
        now: Mono,
    ) -> Vote {
        let voters = electorate.lists.iter().map(BTreeSet::len).max().unwrap_or(0);
        let sample = (voters / 10).min(voters.saturating_sub(1)).max(1);
        let size_next = if gently { sample } else { order.len() };
        Vote {
            electorate,
            waiting: order.into_iter().rev().collect(),
            asked: BTreeMap::new(),
            replies: BTreeMap::new(),
            first_asked_at: now,
            round: BTreeSet::new(),
            round_ends_at: now,
            rounds_left: rounds_max,
            size_next,
            round_for,
        }
    }

    /// Whom to ask now, once the round before is over.
    pub fn ask(&mut self, now: Mono) -> Vec<Name> {
        if self.rounds_left == 0 || self.waiting.is_empty() || !self.round_is_over(now) {
            return Vec::new();
        }
        self.rounds_left -= 1;
        // Whoever is left in the last round is asked in it.
        let size = if self.rounds_left == 0 { self.waiting.len() } else { self.size_next.min(self.waiting.len()) };
        let chosen: Vec<Name> = self.waiting.split_off(self.waiting.len() - size).into_iter().rev().collect();
        self.size_next = self.size_next.saturating_mul(2);
        self.asked.extend(chosen.iter().map(|name| (name.clone(), now)));
        self.round = chosen.iter().cloned().collect();
        self.round_ends_at = now.after(self.round_for);
        chosen
    }

    /// Also of a round that is over: what is true comes late sometimes.
    pub fn hear(&mut self, from: &Name, reply: Reply) {
        if self.asked.contains_key(from) {
            self.replies.entry(from.clone()).or_insert(reply);
        }
    }

    /// None: it goes on.
    pub fn verdict(&self, now: Mono) -> Option<Verdict> {
        let healthy = self.replies.iter().filter(|(_, reply)| **reply == Reply::Healthy);
        if let Some(proved_at) = healthy.map(|(name, _)| self.asked[name]).max() {
            return Some(Verdict::Healthy { proved_at });
        }
        let is_ordered = self.replies.values().any(|reply| *reply == Reply::Ordered);
        if is_ordered {
            // One peer may have read before an order was known to be void, another after: the round is heard to its end.
            return self.round_is_over(now).then_some(Verdict::Unhealthy);
        }
        if self.electorate.is_majority(|name| self.replies.get(name) == Some(&Reply::NoApi)) {
            return Some(Verdict::Healthy { proved_at: self.first_asked_at });
        }
        (self.round_is_over(now) && (self.waiting.is_empty() || self.rounds_left == 0)).then_some(Verdict::Undecided)
    }

    /// When there is something to decide even if nobody says anything more.
    pub fn wake_at(&self) -> Mono {
        self.round_ends_at
    }

    /// See [`super::agent::Agent::rebased`].
    pub fn rebase(&mut self, now: Mono) {
        self.asked.values_mut().for_each(|at| *at = at.shift(-now.0));
        self.first_asked_at = self.first_asked_at.shift(-now.0);
        self.round_ends_at = self.round_ends_at.shift(-now.0);
    }

    fn round_is_over(&self, now: Mono) -> bool {
        now >= self.round_ends_at || self.round.iter().all(|name| self.replies.contains_key(name))
    }
}
