//! What time is it, and which of the two clocks may be trusted with what?
//!
//! Wall time is only compared with timestamps that stand in API objects, and only once: when a fact
//! arrives, its timestamp is turned into a monotonic instant ([`Clock::anchor`]). From then on every wait
//! is monotonic, so a step of the wall clock neither shortens nor restarts it. Whether our wall clock is right at all
//! the API server tells, with each of its answers ([`Clock::dated`]).

use std::time::Duration;

/// An instant of the monotonic clock, in milliseconds. May be negative: before the process began.
/// A plain integer, so that a model checker can shift all instants of a state together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub i64);

/// An instant of the wall clock, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    pub wall: Wall,
    pub mono: Mono,
}

impl Now {
    fn offset(self) -> i64 {
        self.wall.0.saturating_sub(self.mono.0)
    }
}

impl Mono {
    pub fn after(self, wait: Duration) -> Mono {
        Mono(self.0.saturating_add(millis(wait)))
    }

    pub fn before(self, wait: Duration) -> Mono {
        Mono(self.0.saturating_sub(millis(wait)))
    }

    /// How long ago `earlier` was; nothing if it is still to come.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    #[must_use]
    pub fn shift(self, by_millis: i64) -> Mono {
        Mono(self.0.saturating_add(by_millis))
    }
}

impl Wall {
    pub fn after(self, wait: Duration) -> Wall {
        Wall(self.0.saturating_add(millis(wait)))
    }

    /// The API keeps whole seconds in most of its timestamps; what we compare with them must too.
    pub fn whole_seconds(self) -> Wall {
        Wall(self.0 - self.0.rem_euclid(1000))
    }

    /// The first whole second from then on: what is measured from there never ends too early.
    pub fn next_second(self) -> Wall {
        Wall(self.0.saturating_add(999)).whole_seconds()
    }
}

/// Relates wall time to monotonic time, on the safe side.
///
/// Dates in objects are read, and written, by the clock of the API server, as the `Date` of its answers shows it: by our own
/// wall clock while the two agree, else without it. So a wall clock that jumps or was wrong from the start changes nothing but
/// that repairs stop until somebody has put it right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The smallest `wall - mono` that our own clock ever showed. Used until an answer is dated: a wall clock that jumps ahead
    /// leaves it as it is, one that jumps back lowers it, in both cases waits end no earlier than they should.
    own: Option<i64>,
    judged: Option<Judged>,
}

/// What dated answers say of our wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Judged {
    /// `wall - mono` as of the last answer: what is dated now is dated by it.
    offset: i64,
    /// The smallest of these since then, and of the period before that: where several servers answer whose clocks differ, dates
    /// are read by the one that is behind.
    lowest: i64,
    lowest_since: Mono,
    lowest_before: Option<i64>,
    skew: Skew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Skew {
    Agrees,
    /// Our wall clock has been ahead by so many milliseconds, or behind if they are negative, in all answers until now. From
    /// `believed_at` on it is more than a stray answer.
    Differs {
        ahead: i64,
        believed_at: Mono,
    },
}

/// Further apart than this our clock and the server's do not agree. Network time keeps hosts within milliseconds of each other, and
/// a `Date` has whole seconds.
pub const SKEW_MAX: Duration = Duration::from_secs(5);
/// One answer may be stale or come from the one server of several whose clock is wrong.
const SKEW_BELIEVED_AFTER: Duration = Duration::from_secs(60);
/// Longer than the pause between two answers of one of several servers.
const LOWEST_FOR: Duration = Duration::from_secs(60);
/// A `Date` leaves out the parts of a second.
const DATE_STEP: i64 = 1000;

impl Clock {
    pub fn observe(&mut self, now: Now) {
        let offset = now.offset();
        self.own = Some(self.own.map_or(offset, |known| known.min(offset)));
    }

    /// An answer of the API server to what was sent then is dated so, and is here now.
    pub fn dated(&mut self, date: Wall, sent_at: Mono, now: Now) {
        let own = now.offset();
        // The server wrote the date at some time since the request was sent.
        let least = date.0.saturating_sub(now.mono.0);
        let most = date.0.saturating_add(DATE_STEP).saturating_sub(sent_at.0.min(now.mono.0));
        let ahead = own.saturating_sub(most).max(0) + own.saturating_sub(least).min(0);
        let agrees = ahead.unsigned_abs() <= SKEW_MAX.as_millis() as u64;
        let offset = if agrees { own } else { least };
        let before = self.judged.take();
        let skew = match before.as_ref().map(|before| before.skew) {
            _ if agrees => Skew::Agrees,
            // The first answers of all are believed at once: nothing else has been heard of this host's clock.
            None => Skew::Differs { ahead, believed_at: now.mono },
            Some(Skew::Agrees) => Skew::Differs { ahead, believed_at: now.mono.after(SKEW_BELIEVED_AFTER) },
            Some(Skew::Differs { ahead: known, believed_at }) => {
                let moved = known.abs_diff(ahead) > SKEW_MAX.as_millis() as u64;
                Skew::Differs { ahead: if moved { ahead } else { known }, believed_at }
            }
        };
        let mut judged = before.unwrap_or(Judged { offset, lowest: offset, lowest_since: now.mono, lowest_before: None, skew });
        if now.mono.since(judged.lowest_since) >= LOWEST_FOR {
            (judged.lowest_before, judged.lowest, judged.lowest_since) = (Some(judged.lowest), offset, now.mono);
        }
        (judged.offset, judged.skew) = (offset, skew);
        judged.lowest = judged.lowest.min(offset);
        self.judged = Some(judged);
    }

    /// Both clocks, as far as they may be trusted: our own wall clock alone is only believed until an answer is dated.
    pub fn corrected(&self, now: Now) -> Now {
        let wall = self.judged.as_ref().map_or(now.wall, |judged| Wall(now.mono.0.saturating_add(judged.offset)));
        Now { wall, ..now }
    }

    /// By how many milliseconds is our wall clock ahead of the server's (behind, if they are negative), and from when on is that
    /// certain? None: they agree, or nothing is known.
    pub fn skew(&self) -> Option<(i64, Mono)> {
        match self.judged.as_ref()?.skew {
            Skew::Differs { ahead, believed_at } => Some((ahead, believed_at)),
            Skew::Agrees => None,
        }
    }

    /// When, in monotonic time, did something begin that an API object dates `began_at`? Never later than
    /// now: a timestamp from the future begins to count when it is first seen.
    pub fn anchor(&self, began_at: Wall, now: Now) -> Mono {
        let judged = self.judged.as_ref().map(|judged| judged.lowest_before.map_or(judged.lowest, |one| one.min(judged.lowest)));
        let offset = judged.or(self.own).unwrap_or(now.offset());
        Mono(began_at.0.saturating_sub(offset)).min(now.mono)
    }
}

fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(wall: i64, mono: i64) -> Now {
        Now { wall: Wall(wall), mono: Mono(mono) }
    }

    #[test]
    fn a_step_of_the_wall_clock_never_makes_the_past_longer() {
        let mut clock = Clock::default();
        clock.observe(at(10 * HOUR, 1_000));
        let honest = clock.anchor(Wall(10 * HOUR - 500), at(10 * HOUR, 1_000));
        assert_eq!(honest, Mono(500));

        for step in [HOUR, -HOUR] {
            let mut stepped = clock.clone();
            let now = at(10 * HOUR + step + 1_000, 2_000);
            stepped.observe(now);
            assert!(stepped.anchor(Wall(10 * HOUR - 500), now) >= honest, "step of {step} ms");
        }
    }

    #[test]
    fn a_timestamp_from_the_future_counts_from_when_it_is_seen() {
        let mut clock = Clock::default();
        clock.observe(at(HOUR, 7));
        assert_eq!(clock.anchor(Wall(2 * HOUR), at(HOUR, 7)), Mono(7));
    }

    /// Right is what the server says: it is an hour later on our clock than on the server's.
    fn asked(clock: &mut Clock, mono: i64, ahead: i64) {
        let now = at(10 * HOUR + mono + ahead, mono);
        clock.observe(now);
        clock.dated(Wall(10 * HOUR + mono).whole_seconds(), Mono(mono - 20), now);
    }

    #[test]
    fn a_clock_that_is_wrong_from_the_start_is_not_believed() {
        for ahead in [HOUR, -HOUR] {
            let mut clock = Clock::default();
            asked(&mut clock, 1_000, ahead);
            let now = at(10 * HOUR + 1_000 + ahead, 1_000);
            let (skew, believed_at) = clock.skew().expect("it is noticed");
            assert!(skew.abs_diff(ahead) <= 1_020 && believed_at <= now.mono, "{skew} at {believed_at:?}");
            let begun = clock.anchor(Wall(10 * HOUR), now);
            assert!((0..=1_020).contains(&begun.0), "{begun:?}: within the precision of a Date, and never too early");
            assert!(clock.corrected(now).wall.0.abs_diff(10 * HOUR + 1_000) <= 1_020);
        }
    }

    #[test]
    fn a_clock_that_was_wrong_and_is_right_again_has_no_effect() {
        let mut clock = Clock::default();
        asked(&mut clock, 1_000, -2 * HOUR);
        asked(&mut clock, 2_000, 0);
        assert_eq!(clock.skew(), None);
        asked(&mut clock, 3 * 60_000, 0);
        let now = at(10 * HOUR + 3 * 60_000, 3 * 60_000);
        assert_eq!((clock.anchor(Wall(10 * HOUR), now), clock.corrected(now)), (Mono(0), now));
    }

    #[test]
    fn a_stray_answer_is_not_believed_and_a_minute_of_them_is() {
        let mut clock = Clock::default();
        asked(&mut clock, 1_000, 0);
        asked(&mut clock, 2_000, 600_000);
        assert_eq!(clock.skew().map(|(_, believed_at)| believed_at), Some(Mono(62_000)));
        asked(&mut clock, 30_000, 600_000);
        assert_eq!(clock.skew().map(|(_, believed_at)| believed_at), Some(Mono(62_000)));
        asked(&mut clock, 31_000, 4_000);
        assert_eq!(clock.skew(), None, "near enough");
    }

    /// Of two servers one is behind: dates may be by either.
    #[test]
    fn of_several_servers_dates_are_read_by_the_one_that_is_behind() {
        let mut clock = Clock::default();
        let now = |mono: i64| at(10 * HOUR + mono, mono);
        for mono in [1_000, 3_000, 5_000] {
            clock.dated(Wall(10 * HOUR + mono), Mono(mono), now(mono));
            clock.dated(Wall(9 * HOUR + mono), Mono(mono), now(mono));
        }
        assert_eq!(clock.anchor(Wall(9 * HOUR + 4_000), now(6_000)), Mono(4_000));
        assert_eq!(clock.skew().map(|(ahead, _)| ahead), Some(HOUR - 1_000));
    }
}
