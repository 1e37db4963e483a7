//! What have we asked for, and what may have come of it?
//!
//! An effect spends budget from the moment it is sent until it is proven refused, and earns nothing until
//! its result is seen in a watch. A time-out proves neither.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::effect::{Absence, EffectKey, Nature, Room, Shown};
use crate::facts::{Name, ObjectKey};
use crate::input::Answer;
use crate::lease::REQUEST_TIMEOUT;
use crate::mhc::facts::ClusterKey;
use crate::time::Mono;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flight {
    /// Sent, not answered; left by an answer, and the loop turns every lost request into one.
    /// `refused`: why it was the last time, if it was.
    Sent { at: Mono, tries: u32, refused: Option<Name> },
    /// The server stored it; left when the watch shows it.
    Stored { retry_at: Mono },
    /// The server says that it exists already; left when the watch shows it.
    Exists { retry_at: Mono },
    /// It may have been stored, or be yet; left by a later answer, or when it can no longer arrive.
    Unsure { sent_at: Mono, tries: u32, retry_at: Mono },
    /// It was not stored; left by a later answer, or in time. `busy`: only because the server had too much to do.
    Refused { at: Mono, tries: u32, retry_at: Mono, why: Name, busy: bool },
}

/// A watch that has not shown a stored write by then is asked about it.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// Every write tells the server to give up after [`REQUEST_TIMEOUT`]. What it says does not exist after twice that and
/// some seconds will not appear any more.
const LATE_MAX: Duration = Duration::from_secs(2 * REQUEST_TIMEOUT.as_secs() + 2);
/// First and longest pause before something is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// So often a server that only has too much to do is asked again as soon as it wants us back.
const BUSY_TRIES: u32 = 8;
/// What was refused together does not come back together, nor in step with what refuses every other request.
const SPREAD_MAX: Duration = Duration::from_millis(500);
/// How long a refusal, or anything else that nobody asks about any more, is remembered.
pub const FORGET_AFTER: Duration = Duration::from_secs(600);

const GONE: &str = "it is gone, or another has taken its place";

/// May this effect be sent?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Clearance {
    Go,
    UnderWay,
    NotBefore(Mono),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flights(BTreeMap<EffectKey, Flight>);

impl Flights {
    pub fn clearance(&self, key: &EffectKey, now: Mono) -> Clearance {
        match self.0.get(key) {
            None => Clearance::Go,
            Some(Flight::Sent { .. }) => Clearance::UnderWay,
            Some(
                Flight::Stored { retry_at }
                | Flight::Exists { retry_at }
                | Flight::Unsure { retry_at, .. }
                | Flight::Refused { retry_at, .. },
            ) => {
                if now >= *retry_at {
                    Clearance::Go
                } else {
                    Clearance::NotBefore(*retry_at)
                }
            }
        }
    }

    pub fn get(&self, key: &EffectKey) -> Option<&Flight> {
        self.0.get(key)
    }

    /// Why a question was not answered, where the server would not, or could not.
    pub fn refusal(&self, key: &EffectKey) -> Option<&Name> {
        match self.0.get(key)? {
            Flight::Refused { why, busy: false, .. } if **why != *GONE => Some(why),
            Flight::Sent { refused, .. } => refused.as_ref(),
            Flight::Refused { .. } | Flight::Stored { .. } | Flight::Exists { .. } | Flight::Unsure { .. } => None,
        }
    }

    /// What may have been created, for all we know.
    pub fn creations(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys().filter_map(|key| match key {
            EffectKey::Create(own) if self.may_have_happened(key) => Some(own),
            _ => None,
        })
    }

    /// How often it has been tried without a final answer.
    pub fn tries(&self, key: &EffectKey) -> u32 {
        self.0.get(key).map_or(0, Flight::tries)
    }

    /// Could this have been done, for all we know?
    pub fn may_have_happened(&self, key: &EffectKey) -> bool {
        match self.0.get(key) {
            Some(Flight::Sent { .. } | Flight::Stored { .. } | Flight::Exists { .. } | Flight::Unsure { .. }) => true,
            Some(Flight::Refused { .. }) | None => false,
        }
    }

    /// How many requests that grow with the number of nodes wait for an answer.
    pub fn waiting_for_answers(&self) -> usize {
        self.0.iter().filter(|(key, flight)| key.nature().room == Room::Counted && matches!(flight, Flight::Sent { .. })).count()
    }

    pub fn looks_in(&self, cluster: &ClusterKey) -> usize {
        let is_look = |key: &EffectKey| matches!(key, EffectKey::Look(Some(own), _) if own == cluster);
        self.0.iter().filter(|(key, flight)| is_look(key) && matches!(flight, Flight::Sent { .. })).count()
    }

    /// What is answered by the server of this cluster from now on was not asked of the one that it has now.
    pub fn forget_looks_in(&mut self, cluster: &ClusterKey) {
        self.0.retain(|key, _| !matches!(key, EffectKey::Look(Some(own), _) if own == cluster));
    }

    /// May something have been created under this name, of whichever kind?
    pub fn may_be_made_for(&self, namespace: &Name, name: &Name) -> bool {
        self.creations().any(|key| key.name == *name && key.namespace.as_ref() == Some(namespace))
    }

    pub fn any_unanswered(&self) -> bool {
        self.0.values().any(|flight| matches!(flight, Flight::Sent { .. }))
    }

    pub fn sent(&mut self, key: EffectKey, now: Mono) {
        let tries = self.0.get(&key).map_or(0, Flight::tries) + 1;
        let refused = self.refusal(&key).cloned();
        self.0.insert(key, Flight::Sent { at: now, tries, refused });
        self.0.retain(|_, flight| flight.is_remembered(now));
    }

    /// Returns when the effect was sent, if it was.
    pub fn answered(&mut self, key: &EffectKey, answer: &Answer, now: Mono) -> Option<Mono> {
        let Some(Flight::Sent { at, tries, .. }) = self.0.get(key).cloned() else { return None };
        let Nature { shown, absence, .. } = key.nature();
        let is_shown_by_watch = shown == Shown::ByWatch;
        let next = match answer {
            Answer::Done(_) => is_shown_by_watch.then_some(Flight::Stored { retry_at: now.after(SEEN_WITHIN) }),
            // To ask at once is right: nothing else will tell whose object it is if the watch is behind.
            Answer::Exists => is_shown_by_watch.then_some(Flight::Exists { retry_at: now }),
            Answer::Missing | Answer::Conflict => match absence {
                Absence::Answers => None,
                Absence::Refuses => {
                    Some(Flight::Refused { at: now, tries, retry_at: now.after(backoff(tries)), why: GONE.into(), busy: false })
                }
            },
            Answer::Refused { why, retry_after, .. } => {
                let pause = match retry_after {
                    None => backoff(tries),
                    Some(wanted) => {
                        backoff(tries.saturating_sub(BUSY_TRIES)).max((*wanted).min(BACKOFF_MAX)) + spread(key, tries)
                    }
                };
                let busy = retry_after.is_some();
                Some(Flight::Refused { at: now, tries, retry_at: now.after(pause), why: why.clone(), busy })
            }
            Answer::Unsure { .. } => Some(Flight::Unsure { sent_at: at, tries, retry_at: now.after(backoff(tries)) }),
        };
        match next {
            Some(flight) => self.0.insert(key.clone(), flight),
            None => self.0.remove(key),
        };
        Some(at)
    }

    /// The watch has shown what this effect was about. A request that is still unanswered stays.
    pub fn resolved(&mut self, key: &EffectKey) {
        if self.0.get(key).is_some_and(|flight| !matches!(flight, Flight::Sent { .. })) {
            self.0.remove(key);
        }
    }

    /// There is a namespace for Leases on nodes now: what was refused for want of it need not wait.
    pub fn release_holds(&mut self) {
        self.0.retain(|key, flight| !matches!((key, flight), (EffectKey::HoldNode(_), Flight::Refused { .. })));
    }

    /// The server was asked and says that it does not exist. What may still be on its way is asked about again.
    pub fn denied(&mut self, key: &EffectKey, now: Mono) {
        match self.0.get_mut(key) {
            Some(Flight::Unsure { sent_at, retry_at, .. }) if now.since(*sent_at) < LATE_MAX => {
                *retry_at = sent_at.after(LATE_MAX);
            }
            _ => self.resolved(key),
        }
    }

    /// The server was asked and says that it exists: wait for the watch a little more.
    pub fn confirmed(&mut self, key: &EffectKey, now: Mono) {
        if self.may_have_happened(key) && !matches!(self.0.get(key), Some(Flight::Sent { .. })) {
            self.0.insert(key.clone(), Flight::Stored { retry_at: now.after(SEEN_WITHIN) });
        }
    }
}

impl Flight {
    fn tries(&self) -> u32 {
        match self {
            Flight::Sent { tries, .. } | Flight::Unsure { tries, .. } | Flight::Refused { tries, .. } => *tries,
            Flight::Stored { .. } | Flight::Exists { .. } => 0,
        }
    }

    fn is_remembered(&self, now: Mono) -> bool {
        match self {
            Flight::Sent { .. } => true,
            Flight::Stored { retry_at } | Flight::Exists { retry_at } => now.since(*retry_at) < FORGET_AFTER,
            Flight::Unsure { sent_at, .. } => now.since(*sent_at) < FORGET_AFTER,
            Flight::Refused { at, .. } => now.since(*at) < FORGET_AFTER,
        }
    }
}

/// The same in each run, as everything here.
fn spread(key: &EffectKey, tries: u32) -> Duration {
    let mut hasher = DefaultHasher::new();
    (key, tries).hash(&mut hasher);
    SPREAD_MAX.mul_f64((hasher.finish() % 1000) as f64 / 1000.0)
}

/// The pause before try number `tries + 1`.
pub fn backoff(tries: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(BACKOFF_MAX)
}
