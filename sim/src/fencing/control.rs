//! What do the controllers do, and what does one do that does not know yet that it leads no more?
//!
//! Two replicas, one of which leads. Who leads is simple here: whoever has not renewed for some seconds is followed by the other, and
//! learns of it some seconds after it goes on. Until then it acts on what it knew, and what it had under way goes out.

use std::collections::BTreeMap;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::Failure;
use resus_core::fencing::pill::{Case, Done, Facts, Read, Step, Watch, Why, Word};
use resus_core::time::Mono;

use super::errands::{Belief, Errand, Outcome, Weight};
use super::machine::{Clock, FASTEST, SLOWEST};
use super::net::Route;
use super::plots::Plot;
use super::site::{Event, Site};
use super::store::Remediation;
use crate::clock::{Millis, SECOND};
use crate::happening::What;
use crate::rng::Rng;

const REPLICAS: usize = 2;
const TURNS_EACH: Millis = SECOND;
/// While there is nothing to do everything is read again so often.
const REVIEWS_EACH: Millis = 2 * SECOND;
const COUNTS_EACH: Millis = 3 * SECOND;
const ANSWERS_WITHIN: Millis = 5 * SECOND;
/// Who has not renewed its leadership for so long has lost it.
const LEADS_FOR: Millis = 15 * SECOND;
/// A leader that was frozen may go on for so long before it learns that it was deposed.
const LEARNS_WITHIN: Millis = 25 * SECOND;

pub struct Control {
    pub replicas: Vec<Replica>,
    holder: usize,
    renewed_at: Millis,
}

pub struct Replica {
    pub clock: Clock,
    /// Each process has its own.
    term: u64,
    leads: bool,
    frozen_until: Millis,
    /// It was deposed while it was frozen, and will have learnt of it by then.
    learns_at: Option<Millis>,
    files: BTreeMap<Name, File>,
    counting: bool,
    counted_at: Millis,
    listing: bool,
    /// What it had decided and not sent when it was frozen.
    unsent: Vec<Errand>,
}

/// What a leader knows of one remediation.
struct File {
    case: Case,
    version: Version,
    watch: Watch,
    facts: Facts,
    is_busy: bool,
    reviewed_at: Millis,
    /// Something was refused, or got lost: nothing more is done on what is known.
    is_stale: bool,
    last: Option<Step>,
}

impl Control {
    pub fn new(rng: &mut Rng) -> Control {
        let replica = |rate: i64| Replica {
            clock: Clock { began_at: -SECOND, rate, lost: 0 },
            term: 0,
            leads: false,
            frozen_until: 0,
            learns_at: None,
            files: BTreeMap::new(),
            counting: false,
            counted_at: 0,
            listing: false,
            unsent: Vec::new(),
        };
        let replicas = (0..REPLICAS).map(|_| replica(rng.within(SLOWEST..=FASTEST))).collect();
        Control { replicas, holder: 0, renewed_at: 0 }
    }

    pub fn is_deposed(&self, replica: usize) -> bool {
        self.holder != replica
    }

    /// What the leader is waiting for.
    pub fn told(&self) -> String {
        let files = self.replicas[self.holder].files.iter();
        files.map(|(node, file)| format!("{node}: {:?}", file.last)).collect::<Vec<_>>().join("; ")
    }
}

impl Replica {
    fn forget(&mut self) {
        self.term += 1;
        self.leads = false;
        self.learns_at = None;
        self.files.clear();
        self.unsent.clear();
        (self.counting, self.listing, self.counted_at) = (false, false, 0);
    }
}

impl Site {
    pub fn begin_control(&mut self) {
        for replica in 0..REPLICAS {
            self.agenda.enter(0, Event::Runs(replica, 0));
        }
        self.control.replicas[0].leads = true;
    }

    pub fn run_replica(&mut self, replica: usize, term: u64) {
        let now = self.agenda.now();
        let own = &mut self.control.replicas[replica];
        if own.term != term {
            return;
        }
        if own.frozen_until > now {
            self.agenda.enter(own.frozen_until, Event::Runs(replica, term));
            return;
        }
        for errand in std::mem::take(&mut own.unsent) {
            self.send(replica, errand);
        }
        self.follow_leadership(replica);
        if self.control.replicas[replica].leads {
            self.lead(replica);
        }
        let term = self.control.replicas[replica].term;
        self.agenda.after(TURNS_EACH, Event::Runs(replica, term));
    }

    fn follow_leadership(&mut self, replica: usize) {
        let now = self.agenda.now();
        let (holder, renewed_at) = (self.control.holder, self.control.renewed_at);
        if holder == replica {
            if !self.net.is_down(now) {
                self.control.renewed_at = now;
            }
            return;
        }
        let learns_in = self.luck.control.within(0..=LEARNS_WITHIN);
        let own = &mut self.control.replicas[replica];
        if own.leads {
            if now >= *own.learns_at.get_or_insert(now + learns_in) {
                own.forget();
                self.trace.count("deposed leader learns of it");
                self.trace.tell(now, What::LeadsNoMore { replica });
            }
        } else if now - renewed_at > LEADS_FOR && !self.net.is_down(now) {
            own.leads = true;
            (self.control.holder, self.control.renewed_at) = (replica, now);
            self.trace.count("leader changes");
            self.trace.tell(now, What::Leads { replica });
        }
    }

    fn lead(&mut self, replica: usize) {
        let now = self.agenda.now();
        let own = &mut self.control.replicas[replica];
        if !own.listing {
            own.listing = true;
            self.send(replica, Errand::List);
        }
        let own = &mut self.control.replicas[replica];
        if !own.counting && now - own.counted_at >= COUNTS_EACH {
            own.counting = true;
            self.send(replica, Errand::Count);
        }
        let nodes: Vec<Name> = self.control.replicas[replica].files.keys().cloned().collect();
        for node in nodes {
            self.drive(replica, &node);
        }
    }

    /// The next step for one node, if nothing is under way for it.
    fn drive(&mut self, replica: usize, node: &Name) {
        let now = self.agenda.now();
        let own = &mut self.control.replicas[replica];
        let mono = own.clock.read(now);
        let Some(file) = own.files.get_mut(node).filter(|file| !file.is_busy) else { return };
        file.watch.see(&file.case, &file.facts, mono);
        let step = file.watch.next(&file.case, &file.facts, mono);
        if file.last.as_ref() != Some(&step) {
            self.trace.count(step_word(&step));
        }
        if matches!(step, Step::Enter { .. }) {
            // Whoever counts finds the order.
            own.counted_at = 0;
        }
        let errand = file.errand(&step, now);
        file.last = Some(step);
        if let Some(errand) = errand {
            file.is_busy = true;
            self.maybe_freeze(replica, &errand);
            self.send(replica, errand);
        }
    }

    /// Between a decision and its request: so it goes out when everything may be different.
    fn maybe_freeze(&mut self, replica: usize, errand: &Errand) {
        if self.healed || errand.weight() != Weight::Decides {
            return;
        }
        let commits = matches!(errand, Errand::Step { step: Step::Commit(..), .. });
        let (percent, longest) = match self.scenario.plot {
            Some(Plot::LateCommit) if commits => (90, 240 * SECOND),
            Some(_) | None => (self.scenario.habits.freezes, 180 * SECOND),
        };
        if self.luck.control.chance(percent) {
            let wait = self.luck.control.within(longest / 3..=longest);
            self.control.replicas[replica].frozen_until = self.agenda.now() + wait;
            self.trace.count("leader frozen before a write");
            self.tell(format!("{replica} is frozen for {wait} ms, and was about to send {errand:?}"));
        }
    }

    fn send(&mut self, replica: usize, errand: Errand) {
        let now = self.agenda.now();
        let own = &mut self.control.replicas[replica];
        if own.frozen_until > now {
            own.unsent.push(errand);
            return;
        }
        let term = own.term;
        let late = match errand.weight() {
            Weight::Reads => 0,
            Weight::Prepares => self.net.weather.control_late / 4,
            Weight::Decides => self.net.weather.control_late,
        };
        let Route { arrives_in, answers_in } = self.net.route(&mut self.luck.control, late);
        let gives_up_at = now + ANSWERS_WITHIN;
        let Some(arrives_in) = arrives_in else { return };
        if now + arrives_in >= gives_up_at {
            let outcome = Outcome::Failed(Failure::Lost);
            let errand = errand.clone();
            self.agenda.enter(gives_up_at, Event::Answered { replica, term, sent_at: now, errand, outcome });
        }
        self.agenda.after(arrives_in, Event::Arrives { replica, term, sent_at: now, gives_up_at, answers_in, errand });
    }

    pub fn hear_answer(&mut self, replica: usize, term: u64, sent_at: Millis, errand: &Errand, outcome: Outcome) {
        let now = self.agenda.now();
        let own = &mut self.control.replicas[replica];
        if own.term != term {
            return;
        }
        if own.frozen_until > now {
            let errand = errand.clone();
            self.agenda.enter(own.frozen_until, Event::Answered { replica, term, sent_at, errand, outcome });
            return;
        }
        let asked_at = own.clock.read(sent_at);
        match errand {
            Errand::List => {
                own.listing = false;
                if let Outcome::Remediations(all) = outcome {
                    own.take_list(all);
                }
            }
            Errand::Count => self.count(replica, outcome),
            Errand::WriteRoll(..) => (own.counting, own.counted_at) = (false, now),
            Errand::Remove { node, .. } => {
                if let Some(file) = own.files.get_mut(node) {
                    (file.is_busy, file.is_stale) = (false, true);
                }
            }
            Errand::Review { node } => {
                if let Some(file) = own.files.get_mut(node) {
                    (file.is_busy, file.reviewed_at) = (false, now);
                    if let Outcome::Facts(facts) = outcome {
                        (file.facts, file.is_stale) = (*facts, false);
                    }
                }
                self.drive(replica, node);
            }
            Errand::Step { node, .. } => {
                if let Some(file) = own.files.get_mut(node) {
                    file.is_busy = false;
                    file.learn(outcome, asked_at);
                }
                self.drive(replica, node);
            }
        }
    }

    fn count(&mut self, replica: usize, outcome: Outcome) {
        let now = self.agenda.now();
        let next = match outcome {
            Outcome::Census(census) => {
                let next = census.roll.next(&census.voters, &census.named, &census.orders);
                next.map(|roll| Errand::WriteRoll(census.version, roll))
            }
            Outcome::Remediations(_)
            | Outcome::Facts(_)
            | Outcome::Node(_)
            | Outcome::Lease(_)
            | Outcome::Remediation(_)
            | Outcome::Done
            | Outcome::Failed(_) => None,
        };
        match next {
            Some(errand) => self.send(replica, errand),
            None => {
                let own = &mut self.control.replicas[replica];
                (own.counting, own.counted_at) = (false, now);
            }
        }
    }

    /// What it has decided in this moment goes out when it goes on.
    pub fn freeze_leader(&mut self, until: Millis) -> bool {
        let holder = self.control.holder;
        let own = &mut self.control.replicas[holder];
        if !own.leads || own.frozen_until > self.agenda.now() {
            return false;
        }
        own.frozen_until = until;
        let nodes: Vec<Name> = own.files.keys().cloned().collect();
        for node in nodes {
            self.drive(holder, &node);
        }
        true
    }

    pub fn kill_leader(&mut self, back_after: Millis) -> bool {
        let holder = self.control.holder;
        let own = &mut self.control.replicas[holder];
        own.forget();
        own.leads = true;
        own.frozen_until = 0;
        let term = own.term;
        self.agenda.after(back_after, Event::Runs(holder, term));
        true
    }

    pub fn heal_control(&mut self) {
        let now = self.agenda.now();
        for replica in 0..REPLICAS {
            let own = &mut self.control.replicas[replica];
            if own.frozen_until > now {
                own.frozen_until = now;
                let term = own.term;
                self.agenda.enter(now, Event::Runs(replica, term));
            }
        }
    }
}

impl Replica {
    fn take_list(&mut self, all: Vec<Remediation>) {
        self.files
            .retain(|node, file| all.iter().any(|own| own.case.node == *node && own.case.remediation == file.case.remediation));
        for Remediation { version, case, .. } in all {
            let file = self.files.entry(case.node.clone()).or_insert_with(|| File {
                case: case.clone(),
                version: version.clone(),
                watch: Watch::default(),
                facts: Facts::default(),
                is_busy: false,
                reviewed_at: 0,
                is_stale: false,
                last: None,
            });
            // An answer to a write may have overtaken it.
            if !version.is_older_than(&file.version) {
                (file.case, file.version) = (case, version);
            }
        }
    }
}

impl File {
    /// None: nothing is to be asked now.
    fn errand(&self, step: &Step, now: Millis) -> Option<Errand> {
        let node = self.case.node.clone();
        let review = (now - self.reviewed_at >= REVIEWS_EACH).then_some(Errand::Review { node: node.clone() });
        match step {
            _ if self.is_stale => Some(Errand::Review { node }),
            Step::Done(Done::Cleared) if self.case.ending => Some(Errand::Remove { node, version: self.version.clone() }),
            Step::Enter { .. } | Step::Wait { .. } | Step::Done(_) => review,
            Step::Look(_)
            | Step::Cordon(_)
            | Step::Note { .. }
            | Step::Order { .. }
            | Step::Hold(_)
            | Step::Commit(..)
            | Step::DeletePods(_)
            | Step::DeleteNode { .. }
            | Step::NoteReleased
            | Step::Unhold(_)
            | Step::Uncordon(_) => {
                let dead = self.case.noted.as_ref().map(|noted| noted.boot.clone());
                let belief = Belief { dead, word: self.case.word, unassured: self.is_unassured() };
                Some(Errand::Step { node, version: self.version.clone(), step: step.clone(), belief })
            }
        }
    }

    /// It is released by a time that nobody promised.
    fn is_unassured(&self) -> bool {
        let lease = self.facts.lease.as_ref().and_then(|read| read.found.as_ref());
        self.case.word == Word::None && lease.is_some_and(|lease| lease.claim.bound.is_none() && !lease.claim.assured)
    }

    fn learn(&mut self, outcome: Outcome, asked_at: Mono) {
        let facts = &mut self.facts;
        match outcome {
            Outcome::Facts(found) => {
                let Facts { node, lease, roll, acks, kubelet, pods } = *found;
                if roll.is_some() {
                    facts.acks = acks;
                }
                facts.node = node.or(facts.node.take());
                facts.lease = lease.or(facts.lease.take());
                facts.roll = roll.or(facts.roll.take());
                facts.kubelet = kubelet.or(facts.kubelet.take());
                facts.pods = pods.or(facts.pods.take());
            }
            Outcome::Node(found) => facts.node = Some(Read { asked_at, found }),
            Outcome::Lease(found) => facts.lease = Some(Read { asked_at, found }),
            Outcome::Remediation(Remediation { version, case, .. }) => (self.case, self.version) = (case, version),
            // Whatever it was about has to be read again. What is known stays known: how long we have known it counts.
            Outcome::Done | Outcome::Failed(_) => self.is_stale = true,
            Outcome::Remediations(_) | Outcome::Census(_) => {}
        }
    }
}

fn step_word(step: &Step) -> &'static str {
    match step {
        Step::Look(_) => "step: look",
        Step::Cordon(_) => "step: cordon",
        Step::Note { .. } => "step: note",
        Step::Order { .. } => "step: order",
        Step::Enter { .. } => "step: enter",
        Step::Hold(_) => "step: hold",
        Step::Commit(..) => "step: commit",
        Step::DeletePods(_) => "step: delete pods",
        Step::DeleteNode { .. } => "step: delete node",
        Step::NoteReleased => "step: note released",
        Step::Unhold(_) => "step: unhold",
        Step::Uncordon(_) => "step: uncordon",
        Step::Done(Done::Released) => "done: released",
        Step::Done(Done::Back) => "done: back",
        Step::Done(Done::Cleared) => "done: cleared",
        Step::Wait { why, .. } => match why {
            Why::NoAgent => "waits: no agent",
            Why::NoPromise => "waits: no promise",
            Why::NotAssured => "waits: not assured",
            Why::Acknowledging { .. } => "waits: acknowledging",
            Why::ListLost => "waits: list lost",
            Why::Dying => "waits: dying",
            Why::Holding => "waits: holding",
            Why::NotMarked { .. } => "waits: not marked",
            Why::Tolerate { .. } => "waits: tolerate",
            Why::NodeGone => "waits: node gone",
            Why::PodsLeaving => "waits: pods leaving",
        },
    }
}
