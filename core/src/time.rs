//! What time is it, and which of the two clocks may be trusted with what?
//!
//! Wall time is only compared with timestamps that stand in API objects, and only once: when a fact
//! arrives, its timestamp is turned into a monotonic instant ([`Clock::anchor`]). From then on every wait
//! is monotonic, so a step of the wall clock neither shortens nor restarts it.

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// The smallest `wall - mono` ever seen. A wall clock that jumps ahead leaves it as it is, one that
    /// jumps back lowers it: in both cases waits end no earlier than they should.
    offset: Option<i64>,
}

impl Clock {
    pub fn observe(&mut self, now: Now) {
        let offset = now.wall.0.saturating_sub(now.mono.0);
        self.offset = Some(self.offset.map_or(offset, |known| known.min(offset)));
    }

    /// When, in monotonic time, did something begin that an API object dates `began_at`? Never later than
    /// now: a timestamp from the future begins to count when it is first seen.
    pub fn anchor(&self, began_at: Wall, now: Now) -> Mono {
        let offset = self.offset.unwrap_or(now.wall.0.saturating_sub(now.mono.0));
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
}
