//! What does an agent do about what it knows?

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{Act, Agent, Asking, Cause, Device, Dog, End, Poll, READS_MAX, Stage, Standing, TRIAL_EACH, Word};
use crate::facts::{Name, Version};
use crate::fencing::vote::{Reply, Trial, Verdict, Vote};
use crate::time::Mono;

impl Agent {
    pub(super) fn answer(&mut self, acts: &mut Vec<Act>) {
        let cut_off = self.is_cut_off();
        let mut reading = self.questions.values().filter(|question| question.stage == Stage::Reading).count();
        for (number, question) in &mut self.questions {
            let known = self.memory.orders.contains(&(question.asker.clone(), question.boot.clone()));
            let reply = if known { Some(Reply::Ordered) } else { cut_off.then_some(Reply::NoApi) };
            match (question.stage, reply) {
                (Stage::Trial, _) => self.answered.push((*number, Word::Here)),
                // Without API there is nothing to read, and all may be asking at once.
                (Stage::New | Stage::Reading, Some(reply)) => self.answered.push((*number, Word::Reply(reply))),
                // It will ask again; until then somebody else may have answered.
                (Stage::New, None) if reading >= READS_MAX => {}
                (Stage::New, None) => {
                    reading += 1;
                    question.stage = Stage::Reading;
                    acts.push(Act::ReadLeaseOf { question: *number, asker: question.asker.clone() });
                }
                (Stage::Reading, None) => {}
            }
        }
        for (question, word) in std::mem::take(&mut self.answered) {
            if self.questions.remove(&question).is_some() {
                acts.push(Act::Reply { question, word });
            }
        }
        self.questions.retain(|_, question| question.stage != Stage::New);
    }

    pub(super) fn ask_peers(&mut self, acts: &mut Vec<Act>, now: Mono, luck: u64) {
        self.begin_poll(now, luck, acts);
        match &mut self.poll {
            Some(Poll::Vote(number, vote)) => {
                match vote.verdict(now) {
                    None => {}
                    Some(Verdict::Healthy { proved_at }) => {
                        self.fuse.prove(proved_at);
                        self.end = End::Open;
                        self.poll = None;
                        return;
                    }
                    Some(Verdict::Unhealthy) => {
                        self.memory.orders.insert((self.me.clone(), self.boot.clone()));
                        self.end = End::Sealed;
                        acts.extend([Act::Record(Cause::Voted), Act::Die(Cause::Voted)]);
                        return;
                    }
                    Some(Verdict::Undecided) => {
                        self.poll = None;
                        return;
                    }
                }
                let peers = vote.ask(now);
                if !peers.is_empty() {
                    acts.push(Act::Ask { vote: *number, peers, trial: false });
                }
            }
            Some(Poll::Trial(_, trial)) => {
                if let Some(succeeded) = trial.succeeds(now) {
                    self.heard_at = if succeeded { Some(now) } else { self.heard_at };
                    self.poll = None;
                }
            }
            None => {}
        }
    }

    pub(super) fn begin_poll(&mut self, now: Mono, luck: u64, acts: &mut Vec<Act>) {
        if self.is_cut_off() {
            let is_due = self.voted_at.is_none_or(|at| now >= at.after(self.terms.vote_each()));
            let is_voting = matches!(self.poll, Some(Poll::Vote(..)));
            // Before the first proof of this boot nothing is promised, and nobody has to die for it.
            if !is_due || is_voting || !self.memory.published {
                return;
            }
            let electorate = self.electorate();
            let mut order: Vec<Name> = electorate.peers().into_iter().collect();
            order.sort_by_key(|name| hash(luck, name));
            let gently = self.voted_at.is_none();
            let vote = Vote::begin(electorate, order, gently, self.terms.rounds_max, self.terms.round_for, now);
            self.polls_begun += 1;
            self.voted_at = Some(now);
            self.poll = Some(Poll::Vote(self.polls_begun, vote));
        } else if self.poll.is_none() && now >= self.next_trial_at && self.electorate().is_known() {
            let trial = Trial::begin(self.electorate(), self.terms.round_for, now);
            let peers = trial.peers();
            self.polls_begun += 1;
            // Until it has been heard once it tries again soon.
            self.next_trial_at = now.after(if self.heard_at.is_some() { TRIAL_EACH } else { self.terms.renew_each });
            if !peers.is_empty() {
                acts.push(Act::Ask { vote: self.polls_begun, peers, trial: true });
            }
            self.poll = Some(Poll::Trial(self.polls_begun, trial));
        }
    }

    pub(super) fn ask_api(&mut self, acts: &mut Vec<Act>, now: Mono) {
        if self.roll_asked_at.is_none() && now >= self.roll_due_at {
            self.roll_asked_at = Some(now);
            acts.push(Act::ReadRoll);
        }
        let claim = self.claim(now);
        // What is new is told at once, unless the API is gone.
        let is_news = self.failures == 0 && !self.reread && self.written.as_ref() != Some(&claim);
        if self.asking != Asking::Not || !(now >= self.next_request_at || is_news) {
            return;
        }
        let writes = match &self.lease {
            Standing::Unknown => None,
            _ if self.reread => None,
            Standing::Absent => Some((Version("".into()), Act::Create(claim.clone()))),
            // Somebody else has our name: we neither live on what its Lease says, nor write in it.
            Standing::Seen(seen) if seen.claim.boot != self.boot && self.memory.published => None,
            Standing::Seen(seen) => Some((seen.version.clone(), Act::Renew(seen.version.clone(), claim.clone()))),
        };
        match writes {
            None => {
                self.asking = Asking::Reading { sent_at: now };
                acts.push(Act::Read);
            }
            Some((version, act)) => {
                self.asking = Asking::Writing { sent_at: now };
                // While writes are refused and reads are not, the same is sent again and again.
                let sent = (version, claim.clone());
                if !self.unanswered.contains(&sent) {
                    self.unanswered.push(sent);
                }
                self.written = Some(claim);
                acts.push(act);
            }
        }
    }

    pub(super) fn tend_dog(&mut self, acts: &mut Vec<Act>, now: Mono) {
        self.fuse.burn_for(self.proof_for());
        let may_feed = self.fuse.allows_feed(now) || self.promises_nothing();
        match self.dog {
            // Whatever an earlier process left running resets the machine, as was promised.
            Dog::Shut if self.stopping => acts.push(Act::Leave),
            Dog::Shut => {
                if self.may_promise(now).is_ok() && self.keeps_all() && self.fuse.allows_feed(now) {
                    self.dog = Dog::Opening;
                    acts.push(Act::Open);
                }
            }
            Dog::Armed { .. } if self.may_promise(now).is_err() && self.promises_nothing() => match self.device {
                Device::Reliable => {
                    self.dog = Dog::Disarming;
                    acts.push(Act::Disarm);
                }
                Device::Unstoppable | Device::None if self.stopping => acts.push(Act::Leave),
                Device::Unstoppable | Device::None => self.feed(acts, now),
            },
            Dog::Armed { .. } if may_feed => self.feed(acts, now),
            Dog::Armed { .. } => self.foretell(acts),
            Dog::Unusable if self.stopping => acts.push(Act::Leave),
            // Without a watchdog it is up to us.
            Dog::Unusable => {
                if self.fuse.ends_at().is_some_and(|end| now > end) && self.heard_at.is_some() && self.is_cut_off() {
                    self.end = End::Sealed;
                    acts.extend([Act::Record(Cause::Silence), Act::Die(Cause::Silence)]);
                }
            }
            Dog::Opening | Dog::Disarming => {}
        }
    }

    pub(super) fn feed(&mut self, acts: &mut Vec<Act>, now: Mono) {
        if let Dog::Armed { fed_at } = &mut self.dog
            && now >= fed_at.after(self.terms.feed_each())
        {
            *fed_at = now;
            acts.push(Act::Feed);
        }
    }

    pub(super) fn foretell(&mut self, acts: &mut Vec<Act>) {
        if self.end == End::Open {
            self.end = End::Foretold;
            acts.push(Act::Record(Cause::Silence));
        }
    }

    /// What is worth keeping beyond the process, before anything is done that rests on it.
    pub(super) fn remember(&mut self) {
        self.memory.bound = self.bounds().min();
        let numbers = self.numbers();
        let newest = self.memory.roll;
        self.memory.lists.retain(|number, _| numbers.contains(number) || newest == Some(*number));
        // That the Lease may name none has to be remembered, too: an empty list, which nobody can win.
        if numbers.contains(&0) {
            self.memory.lists.entry(0).or_default();
        }
    }
}

fn hash(luck: u64, name: &Name) -> u64 {
    let mut hasher = DefaultHasher::new();
    (luck, name).hash(&mut hasher);
    hasher.finish()
}
