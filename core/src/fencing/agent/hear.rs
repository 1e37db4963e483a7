//! What changes when an agent hears something?

use super::{Agent, Asking, End, Failure, Heritage, Poll, Question, ROLL_EACH, Standing};
use crate::fencing::lease::Seen;
use crate::fencing::roll::Roll;
use crate::fencing::vote::Reply;
use crate::time::Mono;

impl Agent {
    pub(super) fn hear_lease(&mut self, answer: Result<Seen, Failure>, now: Mono) {
        let (sent_at, wrote) = match std::mem::replace(&mut self.asking, Asking::Not) {
            Asking::Not => return,
            Asking::Reading { sent_at } => (sent_at, false),
            Asking::Writing { sent_at } => (sent_at, true),
        };
        let is_outdated = std::mem::take(&mut self.outdated);
        self.next_request_at = if is_outdated { now } else { sent_at.after(self.terms.renew_each) };
        match answer {
            Ok(seen) => {
                // Whatever replaces an older version will be refused. What replaces this one may yet be stored.
                match wrote {
                    true => {
                        self.unanswered.clear();
                        self.heritage = Heritage::Over;
                    }
                    false => {
                        self.unanswered.retain(|(version, _)| *version == seen.version);
                        // Somebody has published this boot, and we do not remember who.
                        if seen.claim.boot == self.boot && !self.memory.published && self.heritage != Heritage::Over {
                            self.heritage = Heritage::Lost;
                        }
                    }
                }
                self.failures = 0;
                self.voted_at = None;
                self.poll.take_if(|poll| matches!(poll, Poll::Vote(..)));
                self.reread = false;
                if seen.orders(&self.boot) {
                    self.memory.orders.insert((self.me.clone(), self.boot.clone()));
                } else if seen.proves(&self.boot) {
                    self.memory.published = true;
                    if !is_outdated {
                        self.fuse.prove(sent_at);
                        self.end = End::Open;
                    }
                }
                self.lease = Standing::Seen(seen);
                // An elector reads the roll at each renewal.
                if self.is_elector() {
                    self.roll_due_at = now;
                }
            }
            Err(Failure::Missing) => {
                self.lease = Standing::Absent;
                self.unanswered.retain(|(version, _)| version.0.is_empty());
                self.reread = false;
                self.next_request_at = now;
            }
            Err(Failure::Conflict) => {
                self.reread = true;
                self.next_request_at = now;
            }
            Err(Failure::Lost) => {
                self.reread = true;
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    /// The machine stood still, and its clock with it: whatever was proved or asked before may be older than it looks.
    pub(super) fn forget_proofs(&mut self, now: Mono) {
        self.fuse.void();
        self.outdated = self.asking != Asking::Not;
        self.next_request_at = now;
        self.poll.take_if(|poll| matches!(poll, Poll::Vote(..)));
        // The watchdog is not fed until somebody answers: those who have been asking ask all, at once.
        self.voted_at = self.voted_at.map(|at| at.min(now.before(self.terms.vote_each())));
    }

    pub(super) fn hear_roll(&mut self, answer: Result<Roll, Failure>, now: Mono) {
        let Some(asked_at) = self.roll_asked_at.take() else { return };
        let wait = if self.is_elector() || self.memory.roll.is_none() { self.terms.renew_each } else { ROLL_EACH };
        self.roll_due_at = asked_at.after(wait).max(now);
        let Ok(roll) = answer else { return };
        if self.memory.roll.is_some_and(|known| known >= roll.number) {
            return;
        }
        let orders = roll.orders.iter().map(|entry| (entry.node.clone(), entry.boot.clone()));
        self.memory.orders.extend(orders);
        for number in self.numbers().into_iter().chain([roll.number]) {
            if let Some(list) = roll.list(number) {
                self.memory.lists.entry(number).or_insert_with(|| list.clone());
            }
        }
        self.memory.roll = Some(roll.number);
        if roll.agents > 0 {
            self.memory.agents = roll.agents;
            self.terms = self.terms.for_agents(roll.agents);
        }
    }

    /// Read after the question, so that what it shows was true then.
    pub(super) fn hear_lease_of(&mut self, question: u64, found: Result<Seen, Failure>) {
        let Some(Question { asker, boot, .. }) = self.questions.get(&question).cloned() else { return };
        let word = match found {
            Ok(seen) if seen.orders(&boot) => {
                self.memory.orders.insert((asker.clone(), boot.clone()));
                Some(Reply::Ordered)
            }
            Ok(seen) if seen.proves(&boot) => Some(Reply::Healthy),
            // It is another's: nothing is known of whoever asks.
            Ok(_) | Err(Failure::Missing) => None,
            Err(Failure::Conflict | Failure::Lost) => Some(Reply::NoApi),
        };
        match word {
            Some(reply) => self.answered.push((question, self.word(&asker, &boot, reply))),
            None => {
                self.questions.remove(&question);
            }
        }
    }
}
