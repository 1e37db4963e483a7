//! What does the agent of a node do now?
//!
//! It renews its Lease, feeds its watchdog while it may, asks its peers when the API is gone, and answers theirs. What it is
//! told comes in by [`Agent::hear`], what it does goes out by [`Agent::turn`], in the order in which it is to be done. It never
//! waits for anything: when an answer does not come, the fuse burns down by itself.

mod act;
mod hear;
mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::fuse::Fuse;
use super::lease::{Claim, Seen};
use super::roll::Roll;
use super::terms::Terms;
use super::vote::{Reply, Trial, Vote};
use super::wire;
use crate::facts::{Name, Version};
use crate::time::Mono;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// The answer to what was asked of our own Lease.
    Lease(Result<Seen, Failure>),
    Roll(Result<Roll, Failure>),
    /// A peer asks about itself.
    Asked {
        question: u64,
        asker: Name,
        boot: Name,
        trial: bool,
        protocol: u32,
    },
    /// The Lease of a peer that asked, read after it did.
    LeaseOf {
        question: u64,
        found: Result<Seen, Failure>,
    },
    Replied {
        vote: u64,
        from: Name,
        reply: Word,
        protocol: u32,
    },
    /// The watchdog is open, and was read back to reset the machine in time.
    Armed,
    /// It cannot be opened, or does something else than we want.
    Unusable,
    /// It was closed for good.
    Disarmed,
    /// The machine stood still without its clock noticing.
    Paused,
    /// Somebody wants the process to end.
    Stop,
}

/// Only an answer of the 2xx kind that can be read is contact with the API; all that is not, is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    Missing,
    /// Somebody else was faster: the version is not what we thought.
    Conflict,
    /// Refused, failed, unreadable, or no answer in time. It may have been done all the same.
    Lost,
}

/// What a peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Reply(Reply),
    /// To a trial: that it was heard.
    Here,
}

/// What is to be done. A later one is begun only when the one before it is under way, and `Remember` when it is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Where the next process of this boot finds it, and no other boot does.
    Remember(Memory),
    /// Read our own Lease plainly.
    Read,
    Create(Claim),
    /// If the Lease still has this version.
    Renew(Version, Claim),
    ReadRoll,
    Ask {
        vote: u64,
        peers: Vec<Name>,
        trial: bool,
    },
    ReadLeaseOf {
        question: u64,
        asker: Name,
    },
    Reply {
        question: u64,
        word: Word,
    },
    /// Open the watchdog, set its time-out and read it back.
    Open,
    Feed,
    /// Close the watchdog so that it stops.
    Disarm,
    /// Where it survives the reset that is to be expected.
    Record(Cause),
    /// Never feed again, and restart the machine by the shortest way.
    Die(Cause),
    /// All that was promised is taken back: the process may end.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The order was read.
    Ordered,
    /// Peers have read it.
    Voted,
    /// Nobody said anything until the fuse had burnt down.
    Silence,
}

/// Why nothing is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Withheld {
    /// It has not had its first proof, or nobody has heard it yet.
    Starting,
    /// More than half of the electors do not hear us: if the API went away, we would die for nothing.
    Unheard,
    /// It was reset by its own watchdog again and again.
    Relapsing,
    /// There is no watchdog, or none that can be relied on.
    NoWatchdog,
    Stopping,
}

/// What outlives the process, not the boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Our Lease has shown this boot.
    pub published: bool,
    /// The newest roll that was read. None: all orders may be unknown to us.
    pub roll: Option<u64>,
    /// As it says, how many there are.
    pub agents: usize,
    /// Electors by the number of the roll, of every number that our Lease may show; of zero there are none.
    pub lists: BTreeMap<u64, BTreeSet<Name>>,
    /// Nodes and boots. Nothing is ever taken out.
    pub orders: BTreeSet<(Name, Name)>,
    /// The shortest bound that our Lease may show.
    pub bound: Option<Duration>,
}

/// The watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Dog {
    Shut,
    Opening,
    /// Left by disarming, or by a reset.
    Armed {
        fed_at: Mono,
    },
    Disarming,
    Unusable,
}

/// The device, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// It goes on when the process dies, and stops when it is told to.
    Reliable,
    /// It goes on whatever happens: nowayout.
    Unstoppable,
    None,
}

/// What may be left of an earlier process of this boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Heritage {
    /// It remembered, or there was none.
    Known { bound: Option<Duration>, numbers: BTreeSet<u64> },
    /// There was one, and what it remembered is lost.
    Lost,
    /// Something of ours was stored: whatever was sent before names an older version.
    Over,
}

/// Our Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Standing {
    /// Nothing was answered yet.
    Unknown,
    /// There is none.
    Absent,
    Seen(Seen),
}

/// Of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    /// Not in sight.
    Open,
    /// The fuse has burnt down; left when a proof comes before the reset.
    Foretold,
    Near(Cause),
    Sealed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asking {
    /// Nothing is under way.
    Not,
    Reading {
        sent_at: Mono,
    },
    Writing {
        sent_at: Mono,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    asker: Name,
    boot: Name,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New,
    /// The asker's Lease is being read.
    Reading,
    Trial,
}

/// What peers are being asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Poll {
    Vote(u64, Vote),
    Trial(u64, Trial),
}

/// What an agent is told when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    pub me: Name,
    pub boot: Name,
    pub terms: Terms,
    pub device: Device,
    /// Of an earlier process of this boot.
    pub memory: Option<Memory>,
    /// It was reset too often lately to be armed before.
    pub relapsing_until: Option<Mono>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    me: Name,
    boot: Name,
    /// What we want to promise.
    terms: Terms,
    device: Device,
    relapsing_until: Option<Mono>,
    memory: Memory,
    /// As it was written last.
    remembered: Memory,
    /// As it was answered last.
    lease: Standing,
    /// Claims that were sent and not answered, with the version that they replace.
    unanswered: Vec<(Version, Claim)>,
    /// What an earlier process of this boot sent may be stored until something of ours is.
    heritage: Heritage,
    asking: Asking,
    /// The machine stood still since then: what is answered was asked nobody knows when.
    outdated: bool,
    /// What we know of our Lease may be old, or nothing: read before writing.
    reread: bool,
    /// What was written last, whether it was answered or not.
    written: Option<Claim>,
    next_request_at: Mono,
    /// In a row.
    failures: u32,
    roll_asked_at: Option<Mono>,
    roll_due_at: Mono,
    fuse: Fuse,
    dog: Dog,
    poll: Option<Poll>,
    polls_begun: u64,
    /// When the last vote of this outage began.
    voted_at: Option<Mono>,
    next_trial_at: Mono,
    /// When more than half of the electors last heard us.
    heard_at: Option<Mono>,
    questions: BTreeMap<u64, Question>,
    /// Answers that have not gone out yet.
    answered: Vec<(u64, Word)>,
    stopping: bool,
    end: End,
}

/// Who is no elector reads the roll so often.
const ROLL_EACH: Duration = Duration::from_secs(60);
pub const TRIAL_EACH: Duration = Duration::from_secs(300);
/// Without being heard for so long while the API is up, the promise is taken back.
pub const UNHEARD_MAX: Duration = Duration::from_secs(600);
/// Leases of peers that are read at once. More ask only where nobody has the API, and then they are answered from memory.
const READS_MAX: usize = 256;
/// Who knows more orders than this cannot be trusted to know all, and says nothing.
const ORDERS_MAX: usize = 10_000;

impl Agent {
    pub fn new(start: Start, now: Mono) -> Agent {
        let Start { me, boot, terms, device, memory, relapsing_until } = start;
        let memory = memory.unwrap_or_default();
        let terms = if memory.agents > 0 { terms.for_agents(memory.agents) } else { terms };
        Agent {
            fuse: Fuse::new(terms.proof_for),
            remembered: memory.clone(),
            lease: Standing::Unknown,
            unanswered: Vec::new(),
            heritage: Heritage::Known { bound: memory.bound, numbers: memory.lists.keys().copied().collect() },
            asking: Asking::Not,
            outdated: false,
            reread: true,
            written: None,
            next_request_at: now,
            // The watchdog of an earlier process runs: there is no time to fail before the peers are asked, too.
            failures: if memory.bound.is_some() { terms.failures_max } else { 0 },
            roll_asked_at: None,
            roll_due_at: now,
            dog: if device == Device::None { Dog::Unusable } else { Dog::Shut },
            poll: None,
            polls_begun: 0,
            voted_at: None,
            next_trial_at: now,
            heard_at: None,
            questions: BTreeMap::new(),
            answered: Vec::new(),
            stopping: false,
            end: End::Open,
            memory,
            me,
            boot,
            terms,
            device,
            relapsing_until,
        }
    }

    pub fn hear(&mut self, heard: Heard, now: Mono) {
        match heard {
            Heard::Lease(answer) => self.hear_lease(answer, now),
            Heard::Roll(answer) => self.hear_roll(answer, now),
            Heard::Asked { question, asker, boot, trial, protocol } => {
                let knows_all = self.memory.roll.is_some() && self.memory.orders.len() <= ORDERS_MAX;
                // Until it knows what the controller relies on it to know, it says nothing.
                if knows_all && wire::understands(protocol) {
                    self.questions
                        .insert(question, Question { asker, boot, stage: if trial { Stage::Trial } else { Stage::New } });
                }
            }
            Heard::LeaseOf { question, found } => self.hear_lease_of(question, found),
            Heard::Replied { vote, from, reply, protocol } if wire::understands(protocol) => match (&mut self.poll, reply) {
                (Some(Poll::Vote(number, own)), Word::Reply(reply)) if *number == vote => own.hear(&from, reply),
                (Some(Poll::Trial(number, own)), Word::Here) if *number == vote => own.hear(from),
                (_, Word::Reply(_) | Word::Here) => {}
            },
            Heard::Replied { .. } => {}
            Heard::Armed => self.dog = Dog::Armed { fed_at: now },
            Heard::Unusable => self.dog = Dog::Unusable,
            Heard::Disarmed => self.dog = Dog::Shut,
            Heard::Paused => self.forget_proofs(now),
            Heard::Stop => self.stopping = true,
        }
    }

    /// What is to be done now. `luck` decides whom a vote asks first.
    pub fn turn(&mut self, now: Mono, luck: u64) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.knows_order(&self.me, &self.boot) && matches!(self.end, End::Open | End::Foretold) {
            self.end = End::Near(Cause::Ordered);
        }
        match self.end {
            End::Sealed => return Vec::new(),
            End::Near(cause) => {
                self.end = End::Sealed;
                acts.extend([Act::Record(cause), Act::Die(cause)]);
            }
            End::Open | End::Foretold => {
                self.answer(&mut acts);
                self.ask_peers(&mut acts, now, luck);
                // Who has just been told to die does nothing more, above all no feeding.
                if self.end != End::Sealed {
                    self.ask_api(&mut acts, now);
                    self.tend_dog(&mut acts, now);
                }
            }
        }
        self.remember();
        if self.memory != self.remembered {
            self.remembered = self.memory.clone();
            acts.insert(0, Act::Remember(self.memory.clone()));
        }
        acts
    }

    /// When there is something to do even if nothing is heard.
    pub fn wake_at(&self, now: Mono) -> Mono {
        let poll = match &self.poll {
            Some(Poll::Vote(_, vote)) => Some(vote.wake_at()),
            Some(Poll::Trial(_, trial)) => Some(trial.wake_at()),
            None if self.is_cut_off() => self.voted_at.map(|at| at.after(self.terms.vote_each())),
            None => Some(self.next_trial_at),
        };
        let request = (self.asking == Asking::Not).then_some(self.next_request_at);
        let roll = self.roll_asked_at.is_none().then_some(self.roll_due_at);
        let feed = match self.dog {
            Dog::Armed { fed_at } => Some(fed_at.after(self.terms.feed_each())),
            Dog::Unusable => self.fuse.ends_at().map(|at| at.shift(1)),
            Dog::Shut | Dog::Opening | Dog::Disarming => None,
        };
        let all = [poll, request, roll, feed, self.relapsing_until];
        all.into_iter().flatten().filter(|at| *at > now).min().unwrap_or(now.after(self.terms.renew_each))
    }

    /// Why nothing is promised, or what is.
    pub fn promise(&self, now: Mono) -> Result<Duration, Withheld> {
        self.may_promise(now)?;
        match self.dog {
            Dog::Armed { .. } => Ok(self.terms.bound()),
            Dog::Shut | Dog::Opening | Dog::Disarming | Dog::Unusable => Err(Withheld::Starting),
        }
    }

    /// When the request of the newest proof was sent.
    pub fn proved_at(&self) -> Option<Mono> {
        self.fuse.proved_at()
    }

    /// The number of the vote that is under way.
    pub fn vote(&self) -> Option<u64> {
        match &self.poll {
            Some(Poll::Vote(number, _)) => Some(*number),
            Some(Poll::Trial(..)) | None => None,
        }
    }

    fn may_promise(&self, now: Mono) -> Result<(), Withheld> {
        if self.stopping {
            return Err(Withheld::Stopping);
        }
        if self.dog == Dog::Unusable {
            return Err(Withheld::NoWatchdog);
        }
        if self.relapsing_until.is_some_and(|until| now < until) {
            return Err(Withheld::Relapsing);
        }
        match self.heard_at {
            // Whoever held the device before has promised something: it has to be kept, whoever hears us.
            None if self.bounds().next().is_some() => Ok(()),
            None => Err(Withheld::Starting),
            Some(at) if now.since(at) > UNHEARD_MAX && !self.is_cut_off() => Err(Withheld::Unheard),
            Some(_) => Ok(()),
        }
    }
}
