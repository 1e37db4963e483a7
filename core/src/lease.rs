//! Do we lead?
//!
//! One Lease, the same protocol as Kubernetes' own controllers. A leader believes in itself only until
//! `renew_within` after the *sending* of its last answered renewal; another takes over only after it has
//! seen the Lease unchanged for `lease_for`. Both are measured by monotonic clocks, so two never lead.

use std::time::Duration;

use crate::facts::{Name, Version};
use crate::time::{Mono, Now, Wall};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    pub lease_for: Duration,
    pub renew_within: Duration,
    pub retry_each: Duration,
}

/// No request of ours waits longer for its answer, so none is in our hands when another may lead.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

impl Default for Timing {
    fn default() -> Timing {
        Timing { lease_for: Duration::from_secs(15), renew_within: Duration::from_secs(10), retry_each: Duration::from_secs(2) }
    }
}

impl Timing {
    /// The inequalities on which "two never lead" rests; the sentence says which one is broken.
    pub fn check(&self) -> Result<(), String> {
        let Timing { lease_for, renew_within, retry_each } = self;
        if *renew_within + REQUEST_TIMEOUT >= *lease_for {
            return Err(format!(
                "leader election: renew deadline ({renew_within:?}) + request time-out ({REQUEST_TIMEOUT:?}) must be less than the lease duration ({lease_for:?})"
            ));
        }
        if *retry_each * 2 > *renew_within || retry_each.is_zero() {
            return Err(format!(
                "leader election: twice the retry period ({retry_each:?}) must be at most the renew deadline ({renew_within:?}), and it must not be zero"
            ));
        }
        if lease_for.subsec_nanos() != 0 {
            return Err(format!("leader election: the lease duration ({lease_for:?}) must be whole seconds"));
        }
        Ok(())
    }
}

/// What stands in the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Empty: nobody.
    pub holder: Name,
    pub lease_for: Duration,
    pub acquired_at: Wall,
    pub renewed_at: Wall,
    pub transitions: u32,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEffect {
    Namespace,
    Read,
    Create(Record),
    /// If the Lease still has the version in the record.
    Write(Record),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseAnswer {
    /// Read or written: this is what stands there now.
    Found(Record),
    Missing,
    NamespaceMissing,
    NamespaceCreated,
    Conflict,
    Failed {
        why: Name,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Standing {
    /// The Lease has not been read. Left by the first answer.
    Ignorant,
    NoNamespace,
    /// There is no Lease. Who had seen somebody hold it waits as long as if it still stood there: it may have been
    /// deleted under a leader, which notices only at its next renewal. Who has just begun does not wait.
    Vacant {
        not_before: Mono,
    },
    /// Somebody holds it; left when it is given up, or has not changed for as long as it lasts.
    Following {
        record: Record,
        unchanged_since: Mono,
    },
    /// Ours; left when it cannot be renewed in time, or somebody else stands in it.
    Leading {
        record: Record,
        renewed_at: Mono,
    },
    /// Given up on purpose. Never left.
    Released,
}

/// So often a leader tries again within the time in which others look once: a busy server that refuses every other
/// request must not cost it the leadership.
const LEADER_RETRIES: u32 = 4;

/// The request that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    at: Mono,
    /// Only an answered write renews. To read our own name proves only that nobody took over.
    writes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Election {
    me: Name,
    timing: Timing,
    standing: Standing,
    asked: Option<Asked>,
    /// Nothing is sent before.
    next_at: Mono,
    /// The version we know may be old: read before writing.
    reread: bool,
    pub stopping: bool,
    /// What went wrong last, for the admin.
    pub trouble: Option<Name>,
}

impl Election {
    pub fn new(me: Name, timing: Timing) -> Election {
        Election {
            me,
            timing,
            standing: Standing::Ignorant,
            asked: None,
            next_at: Mono(i64::MIN),
            reread: false,
            stopping: false,
            trouble: None,
        }
    }

    pub fn leads(&self, now: Mono) -> bool {
        match &self.standing {
            Standing::Leading { renewed_at, .. } => now < renewed_at.after(self.timing.renew_within),
            Standing::Ignorant
            | Standing::NoNamespace
            | Standing::Vacant { .. }
            | Standing::Following { .. }
            | Standing::Released => false,
        }
    }

    pub fn leader(&self) -> Option<&Name> {
        match &self.standing {
            Standing::Following { record, .. } | Standing::Leading { record, .. } => Some(&record.holder),
            Standing::Ignorant | Standing::NoNamespace | Standing::Vacant { .. } | Standing::Released => None,
        }
    }

    /// Nothing more is to be expected of a process that stops: it has let go, or what it held has run out.
    pub fn is_over(&self, now: Mono) -> bool {
        self.stopping && self.asked.is_none() && !self.leads(now)
    }

    /// Until when we lead unless the lease is renewed.
    pub fn leads_until(&self) -> Option<Mono> {
        self.lapses_at()
    }

    /// What to send now, and when to ask again if nothing happens.
    pub fn step(&self, now: Now) -> (Option<LeaseEffect>, Option<Mono>) {
        // Wakes the plan when leadership lapses, also while an answer is still out.
        let lapses_at = self.lapses_at().filter(|at| *at > now.mono);
        if self.asked.is_some() {
            return (None, lapses_at);
        }
        if self.stopping && !(self.reread && now.mono < self.next_at) {
            return (self.release(now), None);
        }
        if now.mono < self.next_at {
            return (None, Some(lapses_at.map_or(self.next_at, |at| at.min(self.next_at))));
        }
        let effect = match &self.standing {
            Standing::Released => return (None, None),
            Standing::NoNamespace => LeaseEffect::Namespace,
            Standing::Ignorant => LeaseEffect::Read,
            Standing::Vacant { not_before } if now.mono < *not_before => LeaseEffect::Read,
            Standing::Vacant { .. } => LeaseEffect::Create(self.claim(None, now)),
            _ if self.reread => LeaseEffect::Read,
            Standing::Leading { record, .. } => LeaseEffect::Write(Record { renewed_at: now.wall, ..record.clone() }),
            Standing::Following { record, unchanged_since } => {
                // A holder may have written a longer lease than ours: it relies on what it wrote.
                let expires_at = unchanged_since.after(record.lease_for.max(self.timing.lease_for));
                if record.holder.is_empty() || now.mono >= expires_at {
                    LeaseEffect::Write(self.claim(Some(record), now))
                } else {
                    LeaseEffect::Read
                }
            }
        };
        (Some(effect), None)
    }

    pub fn sent(&mut self, effect: &LeaseEffect, now: Mono) {
        let writes = match effect {
            LeaseEffect::Create(_) | LeaseEffect::Write(_) => true,
            LeaseEffect::Namespace | LeaseEffect::Read => false,
        };
        self.asked = Some(Asked { at: now, writes });
        self.next_at = now.after(self.timing.retry_each);
    }

    pub fn answered(&mut self, answer: LeaseAnswer, now: Mono) {
        let Some(asked) = self.asked.take() else { return };
        match answer {
            LeaseAnswer::Found(record) => {
                self.trouble = None;
                self.found(record, &asked, now);
            }
            LeaseAnswer::Missing => self.missing(now),
            LeaseAnswer::NamespaceMissing => self.become_next(Standing::NoNamespace, now),
            LeaseAnswer::NamespaceCreated => self.become_next(Standing::Vacant { not_before: now }, now),
            LeaseAnswer::Conflict => {
                self.reread = true;
                self.next_at = now;
                self.standing = match std::mem::replace(&mut self.standing, Standing::Ignorant) {
                    // Somebody else wrote: until we have read who it was, we do not lead.
                    Standing::Leading { record, .. } => Standing::Leading { record, renewed_at: Mono(i64::MIN) },
                    following @ Standing::Following { .. } => following,
                    _ => Standing::Ignorant,
                };
            }
            // The write may have been stored: what we know of the Lease is no longer certain.
            LeaseAnswer::Failed { why } => {
                self.reread = true;
                self.trouble = Some(why);
                // A leader has something to lose: it does not wait for its next turn.
                if self.leads(now) && !self.stopping {
                    self.next_at = self.next_at.min(now.after(self.timing.retry_each / LEADER_RETRIES));
                }
                // The admin may have created the namespace meanwhile.
                if self.standing == Standing::NoNamespace {
                    self.standing = Standing::Ignorant;
                }
            }
        }
    }

    fn missing(&mut self, now: Mono) {
        // Who leads knows that nobody else does, and who has just begun has seen nobody. All others have to assume that
        // somebody who leads has not noticed yet.
        let at_once = self.leads(now) || self.standing == Standing::Ignorant;
        let lease_for = match &self.standing {
            Standing::Following { record, .. } => record.lease_for.max(self.timing.lease_for),
            _ => self.timing.lease_for,
        };
        let not_before = if at_once { now } else { now.after(lease_for) };
        if !matches!(self.standing, Standing::Vacant { .. }) {
            self.become_next(Standing::Vacant { not_before }, if at_once { now } else { now.after(self.timing.retry_each) });
        }
    }

    fn found(&mut self, record: Record, asked: &Asked, now: Mono) {
        self.reread = false;
        if self.stopping && record.holder.is_empty() {
            self.standing = Standing::Released;
        } else if record.holder == self.me {
            let renewed_at = match &self.standing {
                _ if asked.writes => asked.at,
                Standing::Leading { renewed_at, .. } => *renewed_at,
                _ => Mono(i64::MIN),
            };
            if !asked.writes {
                self.next_at = now;
            }
            self.standing = Standing::Leading { record, renewed_at };
        } else {
            let unchanged_since = match &self.standing {
                Standing::Following { record: known, unchanged_since } if known.version == record.version => *unchanged_since,
                _ => now,
            };
            if record.holder.is_empty() {
                self.next_at = now;
            }
            self.standing = Standing::Following { record, unchanged_since };
        }
    }

    fn become_next(&mut self, standing: Standing, next_at: Mono) {
        self.standing = standing;
        self.reread = false;
        self.next_at = next_at;
    }

    fn claim(&self, from: Option<&Record>, now: Now) -> Record {
        Record {
            holder: self.me.clone(),
            lease_for: self.timing.lease_for,
            acquired_at: now.wall,
            renewed_at: now.wall,
            transitions: from.map_or(0, |record| record.transitions.saturating_add(1)),
            version: from.map_or(Version("".into()), |record| record.version.clone()),
        }
    }

    /// A leader that stops says so, and its successor need not wait.
    fn release(&self, now: Now) -> Option<LeaseEffect> {
        match &self.standing {
            Standing::Leading { record, .. } if !self.reread => Some(LeaseEffect::Write(Record {
                holder: "".into(),
                lease_for: Duration::from_secs(1),
                renewed_at: now.wall,
                ..record.clone()
            })),
            Standing::Leading { .. } => Some(LeaseEffect::Read),
            Standing::Ignorant
            | Standing::NoNamespace
            | Standing::Vacant { .. }
            | Standing::Following { .. }
            | Standing::Released => None,
        }
    }

    fn lapses_at(&self) -> Option<Mono> {
        match &self.standing {
            Standing::Leading { renewed_at, .. } => Some(renewed_at.after(self.timing.renew_within)),
            Standing::Ignorant
            | Standing::NoNamespace
            | Standing::Vacant { .. }
            | Standing::Following { .. }
            | Standing::Released => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timings_that_allow_two_leaders_are_refused_by_name() {
        let seconds = Duration::from_secs;
        let timing =
            |lease, renew, retry| Timing { lease_for: seconds(lease), renew_within: seconds(renew), retry_each: seconds(retry) };
        assert_eq!(Timing::default().check(), Ok(()));
        assert!(timing(14, 10, 2).check().unwrap_err().contains("renew deadline"));
        assert!(timing(15, 10, 6).check().unwrap_err().contains("retry period"));
        assert!(timing(15, 10, 0).check().unwrap_err().contains("retry period"));
    }

    #[test]
    fn a_read_of_our_own_name_renews_nothing() {
        let mut election = Election::new("a".into(), Timing::default());
        let mut server = Server::default();
        assert!(server.serve(&mut election, at(0), Fate::Answered), "reads");
        assert!(server.serve(&mut election, at(0), Fate::Answered), "creates");
        assert!(election.leads(Mono(0)));
        // A renewal is stored, its answer lost; then only reads come through.
        server.serve(&mut election, at(2_000), Fate::AnswerLost);
        server.serve(&mut election, at(9_000), Fate::Answered);
        assert!(election.leads(Mono(9_999)));
        assert!(!election.leads(Mono(10_000)), "the renewal that was answered was sent at 0");
    }

    #[test]
    fn a_leader_that_stops_lets_its_successor_begin_at_once() {
        let (mut a, mut b) = (Election::new("a".into(), Timing::default()), Election::new("b".into(), Timing::default()));
        let mut server = Server::default();
        server.serve(&mut a, at(0), Fate::Answered);
        server.serve(&mut a, at(0), Fate::Answered);
        server.serve(&mut b, at(0), Fate::Answered);
        a.stopping = true;
        server.serve(&mut a, at(500), Fate::Answered);
        assert!(a.is_over(Mono(500)) && !a.leads(Mono(500)));
        server.serve(&mut b, at(2_000), Fate::Answered);
        server.serve(&mut b, at(2_000), Fate::Answered);
        assert!(b.leads(Mono(2_000)));
    }

    #[test]
    fn a_lease_that_is_deleted_under_its_leader_is_not_taken_at_once() {
        let (mut a, mut b) = (Election::new("a".into(), Timing::default()), Election::new("b".into(), Timing::default()));
        let mut server = Server::default();
        server.serve(&mut a, at(0), Fate::Answered);
        server.serve(&mut a, at(0), Fate::Answered);
        server.serve(&mut b, at(100), Fate::Answered);
        server.serve(&mut a, at(2_000), Fate::Answered);
        server.stored = None;
        for time in [2_100, 2_200, 4_300] {
            server.serve(&mut b, at(time), Fate::Answered);
            assert!(a.leads(Mono(time)) && !b.leads(Mono(time)));
        }
        // The leader notices at its next renewal, and has it again.
        server.serve(&mut a, at(4_400), Fate::Answered);
        server.serve(&mut a, at(4_400), Fate::Answered);
        assert!(a.leads(Mono(13_000)));
    }

    #[test]
    fn a_leader_that_stops_while_the_api_is_away_does_not_hurry() {
        let mut election = Election::new("a".into(), Timing::default());
        let mut server = Server::default();
        server.serve(&mut election, at(0), Fate::Answered);
        server.serve(&mut election, at(0), Fate::Answered);
        election.stopping = true;
        let asked = (1..8_000).filter(|time| server.serve(&mut election, at(*time), Fate::AnswerLost)).count();
        assert!(asked < 10, "{asked} requests");
        assert!(election.is_over(Mono(10_000)), "what it held has run out");
    }

    #[test]
    fn a_leader_to_whom_a_busy_server_says_no_again_and_again_tries_often_enough() {
        let mut election = Election::new("a".into(), Timing::default());
        let mut server = Server::default();
        server.serve(&mut election, at(0), Fate::Answered);
        server.serve(&mut election, at(0), Fate::Answered);
        let mut writes = 0;
        for time in 1..60_000 {
            let (Some(effect), _) = election.step(at(time)) else { continue };
            election.sent(&effect, Mono(time));
            let is_write = matches!(effect, LeaseEffect::Write(_));
            writes += usize::from(is_write);
            let refused = is_write && !writes.is_multiple_of(8);
            let answer = if refused { LeaseAnswer::Failed { why: "busy".into() } } else { server.execute(&effect) };
            election.answered(answer, Mono(time));
            assert!(election.leads(Mono(time)), "at {time}");
        }
        assert!(writes < 130, "{writes} writes in a minute");
    }

    #[test]
    fn a_namespace_that_we_may_not_create_is_found_when_somebody_else_does() {
        let mut election = Election::new("a".into(), Timing::default());
        let mut asked = Vec::new();
        let answers = [
            LeaseAnswer::Missing,
            LeaseAnswer::NamespaceMissing,
            LeaseAnswer::Failed { why: "forbidden".into() },
            LeaseAnswer::Missing,
        ];
        for (n, answer) in answers.into_iter().enumerate() {
            let now = at(n as i64 * 2_000);
            let (Some(effect), _) = election.step(now) else { panic!("it has something to ask") };
            election.sent(&effect, now.mono);
            election.answered(answer, now.mono);
            asked.push(effect);
        }
        assert!(
            matches!(asked[..], [LeaseEffect::Read, LeaseEffect::Create(_), LeaseEffect::Namespace, LeaseEffect::Read]),
            "{asked:?}"
        );
        assert_eq!(election.trouble.as_deref(), Some("forbidden"), "told until all is well");
    }

    #[derive(Clone, Copy, Debug)]
    enum Fate {
        Answered,
        AnswerLost,
    }

    #[derive(Default)]
    struct Server {
        stored: Option<Record>,
        version: u64,
    }

    impl Server {
        fn execute(&mut self, effect: &LeaseEffect) -> LeaseAnswer {
            let written = match effect {
                LeaseEffect::Namespace => return LeaseAnswer::NamespaceCreated,
                LeaseEffect::Read => return self.stored.clone().map_or(LeaseAnswer::Missing, LeaseAnswer::Found),
                LeaseEffect::Create(_) if self.stored.is_some() => return LeaseAnswer::Conflict,
                LeaseEffect::Create(record) => record,
                LeaseEffect::Write(_) if self.stored.is_none() => return LeaseAnswer::Missing,
                LeaseEffect::Write(record) if self.stored.as_ref().is_some_and(|known| known.version != record.version) => {
                    return LeaseAnswer::Conflict;
                }
                LeaseEffect::Write(record) => record,
            };
            self.version += 1;
            let stored = Record { version: Version(self.version.to_string().into()), ..written.clone() };
            self.stored = Some(stored.clone());
            LeaseAnswer::Found(stored)
        }

        /// One whole request of a candidate; false if it had nothing to ask.
        fn serve(&mut self, election: &mut Election, now: Now, fate: Fate) -> bool {
            let (Some(effect), _) = election.step(now) else { return false };
            election.sent(&effect, now.mono);
            let lost = LeaseAnswer::Failed { why: "lost".into() };
            let answer = match fate {
                Fate::Answered => self.execute(&effect),
                Fate::AnswerLost => {
                    self.execute(&effect);
                    lost
                }
            };
            election.answered(answer, now.mono);
            true
        }
    }

    fn at(millis: i64) -> Now {
        Now { wall: Wall(0), mono: Mono(millis) }
    }

    /// A request on its way: executed by the server at one time, its answer taken in at another, perhaps much
    /// later, as when the process was stopped in between.
    struct OnItsWay {
        asker: usize,
        effect: LeaseEffect,
        executed_at: i64,
        answer: Option<LeaseAnswer>,
        heard_at: i64,
    }

    proptest! {
        /// Three candidates, one Lease; each has its own monotonic clock, and wall clocks mean nothing.
        #[test]
        fn no_two_ever_lead(
            clocks in prop::array::uniform3(-1_000_000i64..1_000_000),
            turns in prop::collection::vec((0usize..3, 0i64..6_000, 0u8..8, 0i64..4_000, prop_oneof![4 => 0i64..10, 1 => 0i64..30_000]), 1..200),
        ) {
            let mut server = Server::default();
            let mut elections: Vec<Election> = ["a", "b", "c"].map(|me| Election::new(me.into(), Timing::default())).into();
            let mut on_their_way: Vec<OnItsWay> = Vec::new();
            let mut deleted_at = None;
            let mut time = 0;
            for (who, pause, fate, latency, pause_of_process) in turns {
                time += pause;
                // Somebody deletes the Lease, once all three have seen it.
                if fate == 7 && deleted_at.is_none() && elections.iter().all(|election| election.leader().is_some()) {
                    (server.stored, deleted_at) = (None, Some(time));
                }
                for way in &mut on_their_way {
                    if way.executed_at <= time && way.answer.is_none() {
                        way.answer = Some(server.execute(&way.effect));
                    }
                }
                on_their_way.retain_mut(|way| {
                    if way.heard_at > time { return true }
                    let answer = way.answer.take().expect("it was executed before it is heard of");
                    elections[way.asker].answered(answer, Mono(clocks[way.asker] + time));
                    false
                });
                let now = at(clocks[who] + time);
                if let (Some(effect), _) = elections[who].step(now) {
                    elections[who].sent(&effect, now.mono);
                    match fate {
                        // Never executed, or executed without an answer.
                        0 => elections[who].answered(LeaseAnswer::Failed { why: "lost".into() }, now.mono),
                        1 => {
                            server.execute(&effect);
                            elections[who].answered(LeaseAnswer::Failed { why: "lost".into() }, now.mono);
                        }
                        _ => {
                            let executed_at = time + latency;
                            on_their_way.push(OnItsWay { asker: who, effect, executed_at, answer: None, heard_at: executed_at + pause_of_process });
                        }
                    }
                }
                let leaders = elections.iter().zip(clocks).filter(|(election, clock)| election.leads(Mono(clock + time))).count();
                prop_assert!(leaders <= 1, "{leaders} leaders at {time}: {elections:?}");
            }
        }
    }
}
