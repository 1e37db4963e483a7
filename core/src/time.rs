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

    /// The first millisecond at which something has lasted for longer than this, strictly.
    pub fn beyond(self, lasts_for: Duration) -> Mono {
        self.after(lasts_for).shift(1)
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
        Wall(self.0.saturating_sub(self.0.rem_euclid(1000)))
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
    /// `wall - mono` that our own clock and the server's agree on, or else the server's: what is dated now is dated by it.
    offset: i64,
    /// The smallest that any answer showed since then, and in the period before that: where several servers answer whose clocks
    /// differ, dates are read by the one that is behind.
    lowest: i64,
    lowest_since: Mono,
    lowest_before: Option<i64>,
    skew: Skew,
    heard_at: Mono,
    /// When the server's clock was put right, the last ones: what it dated before is read by what it was then.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Skew {
    Agrees,
    /// Our wall clock is ahead by so many milliseconds, or behind if they are negative, in all answers since then.
    Differs {
        ahead: i64,
        since: Mono,
        /// It is more than a stray answer.
        believed: bool,
    },
}

/// The offset changed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    at: Mono,
    before: i64,
    after: i64,
}

/// Further apart than this our clock and the server's do not agree. Network time keeps hosts within milliseconds of each other, and
/// a `Date` has whole seconds.
pub const SKEW_MAX: Duration = Duration::from_secs(5);
/// One answer may be stale or come from the one server of several whose clock is wrong.
const SKEW_BELIEVED_AFTER: Duration = Duration::from_secs(60);
/// Who hears no dates any more knows nothing of clocks either.
const SKEW_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Longer than the pause between two answers of one of several servers.
const LOWEST_FOR: Duration = Duration::from_secs(60);
/// A `Date` leaves out the parts of a second.
const DATE_STEP: i64 = 1000;
/// A clock that is put right again and again is beyond what dates can tell.
const STEPS_MAX: usize = 4;

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
        let before = self.judged.take();
        // A slow answer agrees with every clock.
        if before.is_some() && most.saturating_sub(least) > DATE_STEP + millis(SKEW_MAX) {
            self.judged = before;
            return;
        }
        let ahead = own.saturating_sub(most).max(0) + own.saturating_sub(least).min(0);
        let agrees = ahead.unsigned_abs() <= SKEW_MAX.as_millis() as u64;
        let shown = if agrees { own } else { least };
        let skew = match before.as_ref().map(|before| before.skew) {
            _ if agrees => Skew::Agrees,
            // The first answers of all are believed at once: nothing else has been heard of this host's clock.
            None => Skew::Differs { ahead, since: now.mono, believed: true },
            Some(Skew::Agrees) => Skew::Differs { ahead, since: now.mono, believed: false },
            Some(Skew::Differs { ahead: known, since, believed }) => {
                let moved = known.abs_diff(ahead) > SKEW_MAX.as_millis() as u64;
                let believed = believed || now.mono.since(since) >= SKEW_BELIEVED_AFTER;
                Skew::Differs { ahead: if moved { ahead } else { known }, since, believed }
            }
        };
        let fresh = || Judged {
            offset: shown,
            lowest: shown,
            lowest_since: now.mono,
            lowest_before: None,
            skew,
            heard_at: now.mono,
            steps: Vec::new(),
        };
        let mut judged = before.unwrap_or_else(fresh);
        if now.mono.since(judged.lowest_since) >= LOWEST_FOR {
            (judged.lowest_before, judged.lowest, judged.lowest_since) = (Some(judged.lowest), shown, now.mono);
        }
        judged.lowest = judged.lowest.min(shown);
        (judged.skew, judged.heard_at) = (skew, now.mono);
        if !matches!(skew, Skew::Differs { believed: false, .. }) {
            judged.moves_to(shown, now.mono);
        }
        self.judged = Some(judged);
    }

    /// Both clocks, as far as they may be trusted: our own wall clock alone is only believed until an answer is dated.
    pub fn corrected(&self, now: Now) -> Now {
        let wall = self.judged.as_ref().map_or(now.wall, |judged| Wall(now.mono.0.saturating_add(judged.offset)));
        Now { wall, ..now }
    }

    /// By how many milliseconds is our wall clock ahead of the server's (behind, if they are negative)? None: they agree, or nothing
    /// is certain.
    pub fn skew(&self, now: Mono) -> Option<i64> {
        let judged = self.judged.as_ref().filter(|judged| now.since(judged.heard_at) < SKEW_FORGOTTEN_AFTER)?;
        match judged.skew {
            Skew::Differs { ahead, believed: true, .. } => Some(ahead),
            Skew::Differs { believed: false, .. } | Skew::Agrees => None,
        }
    }

    /// When, in monotonic time, did something begin that an API object dates `began_at`? Never later than
    /// now: a timestamp from the future begins to count when it is first seen.
    pub fn anchor(&self, began_at: Wall, now: Now) -> Mono {
        let began = match &self.judged {
            Some(judged) => judged.read(began_at, now.mono),
            None => Mono(began_at.0.saturating_sub(self.own.unwrap_or(now.offset()))),
        };
        began.min(now.mono)
    }
}

impl Judged {
    fn moves_to(&mut self, offset: i64, now: Mono) {
        if self.offset.abs_diff(offset) > SKEW_MAX.as_millis() as u64 {
            self.steps.push(Step { at: now, before: self.offset, after: offset });
            let surplus = self.steps.len().saturating_sub(STEPS_MAX);
            self.steps.drain(..surplus);
        }
        self.offset = offset;
    }

    /// By the clock as it was when this was dated: otherwise everything would be two hours older, or still to come, as soon as
    /// the server's clock is put right by two hours.
    fn read(&self, date: Wall, now: Mono) -> Mono {
        let lowest = self.lowest_before.map_or(self.lowest, |before| before.min(self.lowest));
        let mut began = Mono(date.0.saturating_sub(lowest));
        for step in self.steps.iter().rev() {
            let is_earlier = match step.after > step.before {
                true => date.0 < step.at.0.saturating_add(step.after),
                // Some dates come twice; what would be still to come is of the first time.
                false => began > now,
            };
            if !is_earlier {
                break;
            }
            began = Mono(date.0.saturating_sub(step.before));
        }
        began
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
            let skew = clock.skew(now.mono).expect("it is noticed");
            assert!(skew.abs_diff(ahead) <= 1_020, "{skew}");
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
        assert_eq!(clock.skew(Mono(2_000)), None);
        asked(&mut clock, 3 * 60_000, 0);
        let now = at(10 * HOUR + 3 * 60_000, 3 * 60_000);
        assert_eq!((clock.anchor(Wall(10 * HOUR), now), clock.corrected(now)), (Mono(0), now));
    }

    #[test]
    fn a_stray_answer_is_not_believed_and_a_minute_of_them_is() {
        let mut clock = Clock::default();
        let right = |mono: i64| Wall(10 * HOUR + mono);
        asked(&mut clock, 1_000, 0);
        asked(&mut clock, 2_000, 600_000);
        asked(&mut clock, 61_000, 600_000);
        assert_eq!(clock.skew(Mono(70_000)), None, "not by time alone");
        let written = clock.corrected(at(10 * HOUR + 660_000, 60_000)).wall;
        assert_eq!(written, right(60_000), "what is written is dated as before");
        asked(&mut clock, 62_000, 600_000);
        let skew = clock.skew(Mono(62_000)).expect("a minute of them");
        assert!((598_000..=600_000).contains(&skew), "{skew}");
        asked(&mut clock, 63_000, 602_000);
        assert_eq!(clock.skew(Mono(63_000)), Some(skew), "about the same");
        asked(&mut clock, 64_000, 1_200_000);
        assert!(clock.skew(Mono(64_000)).is_some_and(|skew| skew > 1_100_000));
        assert_eq!(clock.skew(Mono(64_000 + 600_000)), None, "nothing has been heard for ten minutes");
        asked(&mut clock, 65_000, 4_900);
        assert_eq!(clock.skew(Mono(65_000)), None, "near enough");
    }

    #[test]
    fn seven_seconds_are_too_many_either_way_and_a_slow_answer_says_nothing() {
        for (ahead, differs) in [(4_900, false), (-4_900, false), (7_000, true), (-7_000, true)] {
            let mut clock = Clock::default();
            asked(&mut clock, 1_000, ahead);
            assert_eq!(clock.skew(Mono(1_000)).is_some(), differs, "{ahead} ms");
        }
        let mut clock = Clock::default();
        asked(&mut clock, 1_000, 20_000);
        let now = at(10 * HOUR + 31_000 + 20_000, 31_000);
        clock.dated(Wall(10 * HOUR + 31_000), Mono(10_000), now);
        assert!(clock.skew(now.mono).is_some(), "it took 21 s");
        let mut clock = Clock::default();
        let now = at(10 * HOUR + 5_000, 5_000);
        clock.dated(Wall(10 * HOUR), Mono(0), now);
        assert_eq!(clock.skew(now.mono), None, "it was dated when it was sent, five seconds ago");
    }

    /// Of two servers one is behind: dates may be by either.
    #[test]
    fn of_several_servers_dates_are_read_by_the_one_that_is_behind() {
        let mut clock = Clock::default();
        let now = |mono: i64| at(10 * HOUR + mono, mono);
        for mono in (1_000..300_000).step_by(20_000) {
            clock.dated(Wall(9 * HOUR + mono), Mono(mono), now(mono));
            clock.dated(Wall(10 * HOUR + mono), Mono(mono), now(mono));
            assert_eq!(clock.anchor(Wall(9 * HOUR + mono), now(mono + 100)), Mono(mono));
        }
        assert_eq!(clock.skew(Mono(300_000)), None);
        for mono in (300_000..430_000).step_by(20_000) {
            clock.dated(Wall(10 * HOUR + mono), Mono(mono), now(mono));
        }
        assert_eq!(clock.anchor(Wall(10 * HOUR + 425_000), now(430_000)), Mono(425_000), "it has gone");
    }

    /// The clocks of both hosts are put right at the same time, or they are one host.
    #[test]
    fn what_was_dated_before_a_step_is_read_by_the_clock_of_then() {
        for step in [2 * HOUR, -2 * HOUR] {
            let mut clock = Clock::default();
            let (before, after) = (|mono: i64| Wall(10 * HOUR + mono), |mono: i64| Wall(10 * HOUR + step + mono));
            let right = |date: Wall, mono: i64| Now { wall: date, mono: Mono(mono) };
            for mono in (1_000..=60_000).step_by(1_000) {
                clock.dated(before(mono), Mono(mono), right(before(mono), mono));
            }
            for mono in (61_000..=400_000).step_by(1_000) {
                clock.dated(after(mono), Mono(mono), right(after(mono), mono));
                let now = right(after(mono), mono);
                assert_eq!(clock.anchor(before(30_000), now), Mono(30_000), "step {step}, at {mono}");
            }
            let now = right(after(400_000), 400_000);
            assert_eq!(clock.anchor(after(350_000), now), Mono(350_000), "step {step}");
            assert_eq!(clock.skew(now.mono), None);
        }
    }

    #[test]
    fn no_date_is_too_absurd() {
        for date in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 1, i64::MAX].map(Wall) {
            for sent_at in [i64::MIN, 0, i64::MAX].map(Mono) {
                let mut clock = Clock::default();
                let now = at(10 * HOUR, 1_000);
                clock.dated(date, sent_at, now);
                clock.dated(Wall(10 * HOUR), Mono(1_000), now);
                clock.dated(date, sent_at, now);
                assert!(clock.anchor(date, now) <= now.mono);
                let _ = (clock.corrected(now).wall.next_second(), clock.skew(now.mono));
            }
        }
    }
}
