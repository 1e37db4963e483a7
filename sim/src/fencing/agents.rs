//! What becomes of what an agent wants done?

use std::collections::VecDeque;

use resus_core::fencing::agent::{Act, Agent, Cause, Failure, Heard, Start, Word};
use resus_core::fencing::vote::Reply;
use resus_core::fencing::wire;

use super::boots::{Reset, millis};
use super::machine::{Power, Process};
use super::scenario::Cue;
use super::site::{Event, Site};
use crate::clock::{Millis, SECOND};

/// Who is to stop and has not done so is killed.
const STOPS_WITHIN: Millis = 30 * SECOND;
/// Turns at one instant; more mean that something is done again and again.
const TURNS_MAX: usize = 20;

/// A request of an agent, on its way to the API.
pub struct Call {
    pub machine: usize,
    pub process: u64,
    pub act: Act,
    pub gives_up_at: Millis,
    pub answers_in: Option<Millis>,
}

/// Of one peer to another.
pub struct Question {
    asker: usize,
    process: u64,
    vote: u64,
}

impl Site {
    pub fn start_agent(&mut self, m: usize, processes: u64) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        if machine.power != Power::Up || machine.process.is_some() || machine.processes != processes {
            return;
        }
        if machine.paused_until > now {
            self.agenda.enter(machine.paused_until, Event::AgentStarts(m, processes));
            return;
        }
        machine.processes += 1;
        let start = Start {
            me: machine.name.clone(),
            boot: machine.boot_id(),
            terms: machine.spec.terms,
            device: machine.spec.device,
            memory: machine.memory.clone(),
            relapsing_until: machine.relapsing_until(now),
        };
        if start.relapsing_until.is_some() {
            self.trace.count("relapsing");
        }
        let agent = Agent::new(start, machine.clock.read(now));
        let number = machine.processes;
        machine.process = Some(Process {
            number,
            agent,
            wakes_at: None,
            stalled_until: 0,
            pending: VecDeque::new(),
            feeds_last: false,
            dies_after: None,
            next_after: SECOND,
        });
        self.trace.feed(now, &[b"start", &[m as u8]]);
        self.turn(m);
    }

    /// What it was about to do is not done; the next one begins later.
    pub fn kill_agent(&mut self, m: usize, excuse: &'static str) {
        let Some(process) = self.machines[m].process.take() else { return };
        self.close_dog(m, process.number);
        self.machines[m].excuse = Some(excuse);
        let name = self.machines[m].name.clone();
        self.tell(format!("{name}: its agent ends: {excuse}"));
        self.agenda.after(process.next_after, Event::AgentStarts(m, process.number));
    }

    pub fn stop_agent(&mut self, m: usize, next_after: Millis) {
        let now = self.agenda.now();
        let Some(process) = &mut self.machines[m].process else { return };
        process.next_after = next_after;
        let number = process.number;
        self.agenda.enter(now, Event::Hears(m, number, Heard::Stop));
        self.agenda.after(STOPS_WITHIN, Event::Killed(m, number));
    }

    pub fn wake(&mut self, m: usize) {
        let now = self.agenda.now();
        let Some(process) = &mut self.machines[m].process else { return };
        if process.wakes_at.is_some_and(|at| at <= now) {
            process.wakes_at = None;
            self.turn(m);
        }
    }

    pub fn hear(&mut self, m: usize, heard: Heard) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        let mono = machine.clock.read(now);
        let Some(process) = &mut machine.process else { return };
        match &heard {
            Heard::Replied { reply: Word::Reply(reply), .. } => {
                machine.heard = Some(*reply);
                self.trace.count(match reply {
                    Reply::Healthy => "peer says healthy",
                    Reply::Ordered => "peer says ordered",
                    Reply::NoApi => "peer says no api",
                });
            }
            Heard::Replied { reply: Word::Here, .. } => self.trace.count("trial heard"),
            Heard::Lease(Ok(_)) => self.trace.count("lease answered"),
            Heard::Lease(Err(Failure::Conflict)) => self.trace.count("lease conflict"),
            Heard::Lease(Err(Failure::Missing)) => self.trace.count("lease missing"),
            Heard::Lease(Err(Failure::Lost)) => self.trace.count("lease lost"),
            Heard::Roll(_)
            | Heard::Asked { .. }
            | Heard::LeaseOf { .. }
            | Heard::Armed
            | Heard::Unusable
            | Heard::Disarmed
            | Heard::Paused
            | Heard::Stop => {}
        }
        process.agent.hear(heard, mono);
        self.turn(m);
    }

    /// A stalled process goes on where it was.
    pub fn resume(&mut self, m: usize) {
        let Some(process) = &mut self.machines[m].process else { return };
        let mut pending = std::mem::take(&mut process.pending);
        let (number, was_last) = (process.number, process.feeds_last);
        if let Some(Act::Feed) = pending.front() {
            pending.pop_front();
            self.trace.count("feed written late");
            self.feed_dog(m);
            if was_last
                && self.luck.machines.chance(self.net.weather.killed_last)
                && let Some(dog) = &self.machines[m].dog
            {
                let at = dog.bites_at - self.luck.machines.within(1..=300);
                self.agenda.enter(at, Event::Killed(m, number));
            }
        }
        self.carry_out(m, pending);
        self.turn(m);
    }

    fn turn(&mut self, m: usize) {
        for _ in 0..TURNS_MAX {
            let now = self.agenda.now();
            let machine = &mut self.machines[m];
            let mono = machine.clock.read(now);
            let Some(process) = &mut machine.process else { return };
            if process.stalled_until > now {
                return;
            }
            let acts = process.agent.turn(mono, self.luck.votes.draw());
            if acts.is_empty() {
                self.sleep_until_next(m);
                return;
            }
            self.trace.feed(now, &[b"turn", &[m as u8, acts.len() as u8]]);
            self.carry_out(m, acts.into());
        }
        self.trace.violated("L3", self.agenda.now(), format!("the agent of n{m} finds no rest"));
    }

    fn sleep_until_next(&mut self, m: usize) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        let Some(process) = &mut machine.process else { return };
        let at = machine.clock.true_time(process.agent.wake_at(machine.clock.read(now))).max(now + 1);
        if process.wakes_at.is_none_or(|known| known > at || known <= now) {
            process.wakes_at = Some(at);
            self.agenda.enter(at, Event::Wakes(m, process.number));
        }
    }

    /// Until the process is stalled, or is no more.
    fn carry_out(&mut self, m: usize, mut acts: VecDeque<Act>) {
        let Some(number) = self.machines[m].process.as_ref().map(|process| process.number) else { return };
        while let Some(act) = acts.pop_front() {
            if self.is_struck(m) {
                self.kill_agent(m, "killed");
                return;
            }
            if act == Act::Feed
                && let Some((until, feeds_last)) = self.stalls_until(m)
            {
                let Some(process) = &mut self.machines[m].process else { return };
                acts.push_front(act);
                (process.pending, process.stalled_until, process.feeds_last) = (acts, until, feeds_last);
                self.machines[m].excuse = Some("stalled");
                self.agenda.enter(until, Event::Resumes(m, number));
                return;
            }
            self.act(m, number, act);
            if self.machines[m].process.as_ref().is_none_or(|process| process.number != number) {
                return;
            }
        }
    }

    /// Between what it has begun and what comes next.
    fn is_struck(&mut self, m: usize) -> bool {
        let Some(left) = self.machines[m].process.as_mut().and_then(|process| process.dies_after.as_mut()) else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Feeds are written late where that hurts, as late as the watchdog lets: at the end of the last proof.
    fn stalls_until(&mut self, m: usize) -> Option<(Millis, bool)> {
        let now = self.agenda.now();
        let weather = self.net.weather;
        let machine = &self.machines[m];
        let terms = machine.spec.terms;
        let ends_at = machine.proved_at + millis(terms.proof_for);
        let is_last = machine.cut_until > now && now + millis(terms.feed_each()) >= ends_at;
        if !self.luck.machines.chance(if is_last { weather.feed_late } else { weather.feed_stalls }) {
            return None;
        }
        let bites_at = self.machines[m].dog.as_ref()?.bites_at;
        let until = if is_last || self.luck.machines.chance(60) {
            bites_at - self.luck.machines.within(1..=300)
        } else {
            self.luck.machines.within(now..=bites_at)
        };
        (until > now).then_some((until, is_last))
    }

    fn act(&mut self, m: usize, number: u64, act: Act) {
        let now = self.agenda.now();
        let name = self.machines[m].name.clone();
        match act {
            Act::Remember(memory) => self.machines[m].memory = Some(memory),
            Act::Read | Act::Create(_) | Act::Renew(..) | Act::ReadRoll | Act::ReadLeaseOf { .. } => self.call(m, number, act),
            Act::Ask { vote, peers, trial } => {
                self.trace.count(if trial { "trial" } else { "vote" });
                if !trial {
                    self.tell(format!("{name} asks {}", peers.join(" ")));
                }
                for peer in peers {
                    self.ask_peer(m, number, vote, self.by_name[&peer], trial);
                }
            }
            Act::Reply { question, word } => {
                let Some(Question { asker, process, vote }) = self.questions.remove(&question) else { return };
                if let Some(wait) = self.net.message(m, asker, now, &mut self.luck.net) {
                    let heard = Heard::Replied { vote, from: name, reply: word, protocol: wire::PROTOCOL };
                    self.agenda.after(wait, Event::Hears(asker, process, heard));
                }
            }
            Act::Open => {
                self.open_dog(m, number);
                self.tell(format!("{name} opens its watchdog"));
                let wait = self.luck.machines.within(0..=50);
                self.agenda.after(wait, Event::Hears(m, number, Heard::Armed));
            }
            Act::Feed => {
                self.count_survival(m);
                self.feed_dog(m);
            }
            Act::Disarm => {
                self.machines[m].dog = None;
                self.trace.count("disarmed");
                self.tell(format!("{name} disarms its watchdog"));
                self.agenda.after(1, Event::Hears(m, number, Heard::Disarmed));
            }
            Act::Record(cause) => {
                self.machines[m].recorded = Some(cause);
                self.trace.count(match cause {
                    Cause::Ordered => "ends: ordered",
                    Cause::Voted => "ends: voted",
                    Cause::Silence => "ends: silence",
                });
                self.tell(format!("{name} writes down why it ends: {cause:?}"));
            }
            Act::Die(_) => self.die(m),
            Act::Leave => {
                self.trace.count("agent has left");
                self.kill_agent(m, "left");
            }
        }
    }

    /// Its own last proof would not let it feed any more: it lives on what its peers have said.
    fn count_survival(&mut self, m: usize) {
        let machine = &self.machines[m];
        // What the slowest clock is too slow by, and more.
        let ended_at = machine.proved_at + millis(machine.spec.terms.proof_for) + SECOND;
        match machine.heard {
            Some(Reply::Healthy) if self.agenda.now() > ended_at => self.trace.count("lives by the word of a peer"),
            Some(Reply::NoApi) if self.agenda.now() > ended_at => self.trace.count("lives by the word of most"),
            Some(Reply::Healthy | Reply::Ordered | Reply::NoApi) | None => {}
        }
    }

    /// The emergency restart: at once, or not at all.
    fn die(&mut self, m: usize) {
        if self.luck.machines.chance(self.net.weather.restart_fails) {
            self.trace.count("emergency restart fails");
        } else {
            self.trace.count("reset by agent");
            self.reset(m, Reset::Agent, 0);
        }
    }

    fn ask_peer(&mut self, m: usize, number: u64, vote: u64, peer: usize, trial: bool) {
        let now = self.agenda.now();
        self.questions_begun += 1;
        let question = self.questions_begun;
        let Some(wait) = self.net.message(m, peer, now, &mut self.luck.net) else { return };
        let Some(process) = self.machines[peer].process.as_ref().map(|process| process.number) else { return };
        self.questions.insert(question, Question { asker: m, process: number, vote });
        let (asker, boot) = (self.machines[m].name.clone(), self.machines[m].boot_id());
        let asked = Heard::Asked { question, asker, boot, trial, protocol: wire::PROTOCOL };
        self.agenda.after(wait, Event::Hears(peer, process, asked));
    }

    fn call(&mut self, m: usize, number: u64, act: Act) {
        let now = self.agenda.now();
        let gives_up_at = now + millis(self.machines[m].spec.terms.answer_within);
        let late = self.net.weather.late;
        let route = self.net.route(&mut self.luck.net, late);
        let arrives_in = route.arrives_in.filter(|_| self.machines[m].cut_until <= now);
        let Some(arrives_in) = arrives_in else {
            self.agenda.enter(gives_up_at, Event::Hears(m, number, lost(&act)));
            return;
        };
        if now + arrives_in >= gives_up_at {
            self.agenda.enter(gives_up_at, Event::Hears(m, number, lost(&act)));
            if matches!(act, Act::Renew(..)) {
                self.echo(Cue::RenewalLate, m);
            }
        }
        self.agenda.after(
            arrives_in,
            Event::Calls(Call { machine: m, process: number, act, gives_up_at, answers_in: route.answers_in }),
        );
    }

    /// The request has reached the API.
    pub fn answer_call(&mut self, call: Call) {
        let now = self.agenda.now();
        let Call { machine: m, process, act, gives_up_at, answers_in } = call;
        let is_late = now >= gives_up_at;
        if self.net.is_down(now) || self.net.api_refuses_until > now {
            // A refusal is answered at once, silence is not.
            let at = if self.net.is_down(now) { gives_up_at } else { now + 1 };
            if !is_late {
                self.agenda.enter(at, Event::Hears(m, process, lost(&act)));
            }
            return;
        }
        let given_up = lost(&act);
        let heard = self.execute_call(m, act, is_late);
        if is_late {
            return;
        }
        let machine = &self.machines[m];
        let answers_at = answers_in.map(|wait| now + wait).filter(|_| machine.cut_until <= now && machine.mute_until <= now);
        match answers_at.filter(|at| *at < gives_up_at) {
            Some(at) => {
                if matches!(heard, Heard::Lease(Ok(_))) {
                    self.machines[m].proved_at = gives_up_at - millis(self.machines[m].spec.terms.answer_within);
                }
                self.agenda.enter(at, Event::Hears(m, process, heard));
            }
            None => {
                self.trace.count("answer lost");
                self.agenda.enter(gives_up_at, Event::Hears(m, process, given_up));
            }
        }
    }

    fn execute_call(&mut self, m: usize, act: Act, is_late: bool) -> Heard {
        let now = self.agenda.now();
        let name = self.machines[m].name.clone();
        let stored = match act {
            Act::Read => return Heard::Lease(self.store.lease(&name)),
            Act::ReadRoll => return Heard::Roll(Ok(self.store.roll.clone())),
            Act::ReadLeaseOf { question, asker } => return Heard::LeaseOf { question, found: self.store.lease(&asker) },
            Act::Create(claim) => self.store.create_lease(&name, claim, now),
            Act::Renew(version, claim) => {
                let promised =
                    self.store.lease(&name).ok().filter(|seen| seen.claim.boot == claim.boot && seen.claim.bound.is_some());
                let stored = self.store.renew_lease(&name, &version, claim, now);
                if promised.is_some() && stored.as_ref().is_ok_and(|seen| seen.claim.bound.is_none()) {
                    self.trace.count("withdrawn");
                }
                stored
            }
            Act::Remember(_)
            | Act::Ask { .. }
            | Act::Reply { .. }
            | Act::Open
            | Act::Feed
            | Act::Disarm
            | Act::Record(_)
            | Act::Die(_)
            | Act::Leave => return Heard::Lease(Err(Failure::Lost)),
        };
        if is_late {
            self.trace.count(if stored.is_ok() { "late write stored" } else { "late write refused" });
        }
        self.judge_lease(m, &stored);
        Heard::Lease(stored)
    }
}

/// What a client hears that waits no longer.
fn lost(act: &Act) -> Heard {
    match act {
        Act::ReadRoll => Heard::Roll(Err(Failure::Lost)),
        Act::ReadLeaseOf { question, .. } => Heard::LeaseOf { question: *question, found: Err(Failure::Lost) },
        Act::Read
        | Act::Create(_)
        | Act::Renew(..)
        | Act::Remember(_)
        | Act::Ask { .. }
        | Act::Reply { .. }
        | Act::Open
        | Act::Feed
        | Act::Disarm
        | Act::Record(_)
        | Act::Die(_)
        | Act::Leave => Heard::Lease(Err(Failure::Lost)),
    }
}
