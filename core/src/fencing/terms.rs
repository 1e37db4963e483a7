//! How long may each thing take, and what has to hold between these times?
//!
//! The letters are those of the table in docs/fencing.md. All times are computed here, and every inequality on which
//! the argument rests is checked here, whether the times were computed, configured or read from somebody's Lease.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// r: an agent renews its Lease so often.
    pub renew_each: Duration,
    /// c: and waits so long for the answer.
    pub answer_within: Duration,
    /// m: after so many failures in a row it asks its peers.
    pub failures_max: u32,
    /// K: in so many rounds.
    pub rounds_max: u32,
    /// d: of this length.
    pub round_for: Duration,
    /// What a peer needs to be reached and to read a Lease.
    pub peer_answers_within: Duration,
    /// g: a proof lets the agent feed its watchdog for so long, from when its request was sent.
    pub proof_for: Duration,
    /// w: the watchdog's own time-out.
    pub watchdog_for: Duration,
    /// W: the longest time from the last feed to the reset.
    pub reset_within: Duration,
    /// z: how long the machine may stand still without its clock noticing.
    pub pause_max: Duration,
    /// By how much the clocks of two machines may differ in speed, in percent.
    pub drift_max: u32,
    /// For what is rounded, and for everything that takes a moment.
    pub slack: Duration,
}

/// What the times depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Circumstances {
    /// n: how many agents renew their Leases.
    pub agents: usize,
    pub watchdog_for: Duration,
    pub resets: Resets,
    /// Virtual machines are paused, moved and snapshotted.
    pub virtual_machine: bool,
}

/// When does the watchdog reset the machine?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resets {
    AtExpiry,
    /// The first expiry only warns.
    AtSecondExpiry,
    /// As somebody measured on this machine.
    Within(Duration),
}

/// An inequality that does not hold; the sentence says which and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breach {
    Zero { what: &'static str },
    AnswerOutlastsRenewal { answer_within: Duration, renew_each: Duration },
    PeerOutlastsRound { peer_answers_within: Duration, round_for: Duration },
    RoundTooLong { round_for: Duration, proof_for: Duration },
    ProofTooShort { proof_for: Duration, needed: Duration },
    ResetBeforeExpiry { reset_within: Duration, watchdog_for: Duration },
    BoundTooShort { bound: Duration, needed: Duration },
    LookTooEarly { look_after: Duration, kubelet_renews_each: Duration },
}

/// Of 5,000 agents that renew each 10 seconds the server sees 500 a second, as it does of kubelets.
const RENEWALS_PER_SECOND_MAX: u64 = 500;
const RENEW_EACH_MIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const FAILURES_MAX: u32 = 3;
const ROUNDS_MAX: u32 = 4;
const ROUND_FOR: Duration = Duration::from_secs(4);
const PEER_ANSWERS_WITHIN: Duration = Duration::from_secs(3);
const PROOF_FOR_MIN: Duration = Duration::from_secs(50);
pub const WATCHDOG_FOR: Duration = Duration::from_secs(10);
/// From the expiry of a watchdog until nothing runs any more.
const RESET_TAKES: Duration = Duration::from_secs(1);
const VIRTUAL_PAUSE_MAX: Duration = Duration::from_secs(10);
/// What clocks are specified for is a hundredth of it.
const DRIFT_MAX: u32 = 1;
const SLACK: Duration = Duration::from_secs(1);
/// s: the second look comes so long after the hold.
pub const LOOK_AFTER: Duration = Duration::from_secs(15);
/// How often kubelets renew their own Leases.
pub const KUBELET_RENEWS_EACH: Duration = Duration::from_secs(10);
/// Feeds in the time-out of the watchdog: one that is late, or two, do no harm.
const FEEDS: u32 = 4;
/// Votes after the first of an outage, in the life of a proof.
const VOTES: u32 = 4;

impl Terms {
    pub fn of(circumstances: Circumstances) -> Terms {
        let Circumstances { agents, watchdog_for, resets, virtual_machine } = circumstances;
        let reset_within = match resets {
            Resets::AtExpiry => watchdog_for + RESET_TAKES,
            Resets::AtSecondExpiry => 2 * watchdog_for + RESET_TAKES,
            Resets::Within(measured) => measured,
        };
        let terms = Terms {
            renew_each: renew_each(agents),
            answer_within: ANSWER_WITHIN,
            failures_max: FAILURES_MAX,
            rounds_max: ROUNDS_MAX,
            round_for: ROUND_FOR,
            peer_answers_within: PEER_ANSWERS_WITHIN,
            proof_for: PROOF_FOR_MIN,
            watchdog_for,
            reset_within,
            pause_max: if virtual_machine { VIRTUAL_PAUSE_MAX } else { Duration::ZERO },
            drift_max: DRIFT_MAX,
            slack: SLACK,
        };
        Terms { proof_for: PROOF_FOR_MIN.max(terms.proof_needed()), ..terms }
    }

    /// The same where there are so many agents.
    #[must_use]
    pub fn for_agents(self, agents: usize) -> Terms {
        let renew_each = renew_each(agents);
        let terms = Terms { renew_each, ..self };
        Terms { proof_for: PROOF_FOR_MIN.max(terms.proof_needed()), ..terms }
    }

    pub fn check(&self) -> Result<(), Breach> {
        let Terms { renew_each, answer_within, round_for, peer_answers_within, proof_for, watchdog_for, reset_within, .. } =
            *self;
        let positive = [("r", renew_each), ("c", answer_within), ("d", round_for), ("w", watchdog_for)];
        if let Some((what, _)) = positive.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(Breach::Zero { what });
        }
        if self.failures_max == 0 || self.rounds_max == 0 {
            return Err(Breach::Zero { what: if self.failures_max == 0 { "m" } else { "K" } });
        }
        if answer_within >= renew_each {
            return Err(Breach::AnswerOutlastsRenewal { answer_within, renew_each });
        }
        if peer_answers_within >= round_for {
            return Err(Breach::PeerOutlastsRound { peer_answers_within, round_for });
        }
        if round_for > proof_for / VOTES {
            return Err(Breach::RoundTooLong { round_for, proof_for });
        }
        if proof_for < self.proof_needed() {
            return Err(Breach::ProofTooShort { proof_for, needed: self.proof_needed() });
        }
        if reset_within <= watchdog_for {
            return Err(Breach::ResetBeforeExpiry { reset_within, watchdog_for });
        }
        Ok(())
    }

    /// B: so long after the last proof that could have been had, the machine does not run any more. In whole seconds, as it is
    /// written in the Lease.
    pub fn bound(&self) -> Duration {
        whole_seconds(self.bound_needed())
    }

    /// Is this a bound that these times keep?
    pub fn keeps(&self, bound: Duration) -> Result<(), Breach> {
        let needed = self.bound_needed();
        if bound < needed { Err(Breach::BoundTooShort { bound, needed }) } else { Ok(()) }
    }

    /// How long a proof may live under a bound that was promised earlier, which is longer or shorter than ours. None: not at all.
    pub fn proof_under(&self, bound: Duration) -> Option<Duration> {
        let left = bound.checked_sub(self.slack + self.pause_max)?;
        let longest = left.mul_f64(100.0 / f64::from(100 + self.drift_max));
        let proof_for = longest.checked_sub(3 * self.reset_within)?;
        // Rounded down to what our clock shows.
        Some(Duration::from_millis(u64::try_from(proof_for.as_millis()).unwrap_or(u64::MAX))).filter(|time| !time.is_zero())
    }

    pub fn feed_each(&self) -> Duration {
        self.watchdog_for / FEEDS
    }

    /// Later votes of one outage follow each other so fast.
    pub fn vote_each(&self) -> Duration {
        self.proof_for / VOTES
    }

    /// From the last proof the renewals have to fail, and then two whole votes have to fit in.
    fn proof_needed(&self) -> Duration {
        self.renew_each * self.failures_max + self.answer_within + self.round_for * (2 * self.rounds_max)
    }

    /// The watchdog runs off W after its last feed. A feed that was begun in time may be written W late, and when the process
    /// dies in that moment the kernel feeds once more as it closes the device: 3W. Clocks differ by 1% at most.
    fn bound_needed(&self) -> Duration {
        let longest = self.proof_for + 3 * self.reset_within;
        longest + longest * self.drift_max / 100 + self.slack + self.pause_max
    }
}

fn renew_each(agents: usize) -> Duration {
    RENEW_EACH_MIN.max(Duration::from_secs((agents as u64).div_ceil(RENEWALS_PER_SECOND_MAX)))
}

/// The second look is to see whether a kubelet has said anything since the hold.
pub fn check_look(look_after: Duration, kubelet_renews_each: Duration) -> Result<(), Breach> {
    if look_after > kubelet_renews_each { Ok(()) } else { Err(Breach::LookTooEarly { look_after, kubelet_renews_each }) }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

impl Display for Breach {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Zero { what } => write!(f, "{what} > 0 does not hold"),
            Breach::AnswerOutlastsRenewal { answer_within, renew_each } => {
                write!(
                    f,
                    "c < r does not hold: the time-out of a renewal, {answer_within:?}, must be below the time between two, {renew_each:?}"
                )
            }
            Breach::PeerOutlastsRound { peer_answers_within, round_for } => {
                write!(
                    f,
                    "dial + GET < d does not hold: a peer may take {peer_answers_within:?}, a round of a vote only {round_for:?}"
                )
            }
            Breach::RoundTooLong { round_for, proof_for } => {
                write!(f, "d <= g/4 does not hold: a round of a vote takes {round_for:?}, a proof lives for {proof_for:?}")
            }
            Breach::ProofTooShort { proof_for, needed } => {
                write!(f, "g >= m r + c + 2 K d does not hold: a proof must live for {needed:?} at least, not {proof_for:?}")
            }
            Breach::ResetBeforeExpiry { reset_within, watchdog_for } => {
                write!(f, "W > w does not hold: no watchdog that is set to {watchdog_for:?} resets within {reset_within:?}")
            }
            Breach::BoundTooShort { bound, needed } => {
                write!(
                    f,
                    "B >= 1.01 (g + 3W) + 1 s + z does not hold: the fence bound must be {needed:?} at least, not {bound:?}"
                )
            }
            Breach::LookTooEarly { look_after, kubelet_renews_each } => {
                write!(f, "s > the kubelet's lease period does not hold: {look_after:?} is not more than {kubelet_renews_each:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn metal(agents: usize) -> Circumstances {
        Circumstances { agents, watchdog_for: WATCHDOG_FOR, resets: Resets::AtExpiry, virtual_machine: false }
    }

    #[test]
    fn the_times_of_the_table_are_computed() {
        // agents, when it resets, virtual -> r, g, W, B
        let table = [
            (metal(1), [5, 50, 11, 85]),
            (metal(2500), [5, 50, 11, 85]),
            (metal(2501), [6, 53, 11, 88]),
            (metal(5000), [10, 65, 11, 100]),
            (Circumstances { virtual_machine: true, ..metal(3) }, [5, 50, 11, 95]),
            (Circumstances { resets: Resets::AtSecondExpiry, ..metal(3) }, [5, 50, 21, 116]),
            (Circumstances { resets: Resets::Within(S(14)), ..metal(3) }, [5, 50, 14, 94]),
            (Circumstances { watchdog_for: S(60), ..metal(3) }, [5, 50, 61, 237]),
        ];
        for (circumstances, expected) in table {
            let terms = Terms::of(circumstances);
            assert_eq!(terms.check(), Ok(()), "{circumstances:?}");
            let times = [terms.renew_each, terms.proof_for, terms.reset_within, terms.bound()].map(|time| time.as_secs());
            assert_eq!(times, expected, "{circumstances:?}");
            assert_eq!(terms.keeps(terms.bound()), Ok(()));
            assert!(terms.keeps(terms.bound() - S(1)).is_err(), "one second less is too short");
            assert!(terms.proof_under(terms.bound()) >= Some(terms.proof_for), "its own bound allows its own proofs");
        }
        assert_eq!(check_look(LOOK_AFTER, KUBELET_RENEWS_EACH), Ok(()));
    }

    #[test]
    fn what_breaks_an_inequality_is_refused_by_its_name() {
        let fine = Terms::of(metal(3));
        let table: [(Terms, &str); 9] = [
            (Terms { renew_each: S(0), ..fine }, "r > 0"),
            (Terms { watchdog_for: S(0), ..fine }, "w > 0"),
            (Terms { failures_max: 0, ..fine }, "m > 0"),
            (Terms { rounds_max: 0, ..fine }, "K > 0"),
            (Terms { answer_within: S(5), ..fine }, "c < r"),
            (Terms { peer_answers_within: S(4), ..fine }, "dial + GET < d"),
            (Terms { round_for: S(13), peer_answers_within: S(4), ..fine }, "d <= g/4"),
            (Terms { proof_for: S(49), ..fine }, "g >= m r + c + 2 K d"),
            (Terms { reset_within: S(10), ..fine }, "W > w"),
        ];
        for (terms, named) in table {
            let breach = terms.check().expect_err(named).to_string();
            assert!(breach.starts_with(&format!("{named} does not hold")), "{named}: {breach}");
        }
        let short = fine.keeps(S(84)).expect_err("short").to_string();
        assert!(short.starts_with("B >= 1.01 (g + 3W) + 1 s + z does not hold"), "{short}");
        assert!(check_look(S(10), S(10)).expect_err("early").to_string().starts_with("s > the kubelet's lease period"));
    }
}
