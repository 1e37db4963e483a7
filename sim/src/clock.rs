//! What time is it, for whom, and what happens next?
//!
//! True time is virtual: it jumps from one event to the next, unless somebody drives it by a real clock. Processes see it
//! only through clocks of their own.

use std::collections::BTreeMap;

use resus_core::time::{Mono, Now, Wall};

/// True time in milliseconds since [`EPOCH`]; less than 0 before.
pub type Millis = i64;

pub const SECOND: Millis = 1_000;
pub const MINUTE: Millis = 60 * SECOND;

/// What right clocks show at the beginning, in milliseconds since 1970.
pub const EPOCH: i64 = 1_800_000_000_000;

pub fn wall(at: Millis) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(EPOCH + at).expect("a simulation ends long before the year 9999")
}

/// As Kubernetes writes most of its timestamps.
pub fn rfc3339(at: Millis) -> String {
    wall(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What is to come, in order; of two at the same time the one that was entered first.
pub struct Agenda<E> {
    now: Millis,
    entered: u64,
    events: BTreeMap<(Millis, u64), E>,
}

impl<E> Agenda<E> {
    pub fn new(now: Millis) -> Agenda<E> {
        Agenda { now, entered: 0, events: BTreeMap::new() }
    }

    pub fn now(&self) -> Millis {
        self.now
    }

    /// What is entered for the past happens now.
    pub fn enter(&mut self, at: Millis, event: E) {
        self.entered += 1;
        self.events.insert((at.max(self.now), self.entered), event);
    }

    pub fn after(&mut self, wait: Millis, event: E) {
        self.enter(self.now + wait, event);
    }

    pub fn pop(&mut self) -> Option<E> {
        let ((at, _), event) = self.events.pop_first()?;
        self.now = at;
        Some(event)
    }

    /// What happens until then; when there is nothing more, it is then.
    pub fn pop_until(&mut self, end: Millis) -> Option<E> {
        match self.events.first_key_value() {
            Some(((at, _), _)) if *at <= end => self.pop(),
            Some(_) | None => {
                self.now = self.now.max(end);
                None
            }
        }
    }
}

/// The wall clock of one host; by default it is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostClock {
    /// How far it is ahead, beside what it has drifted.
    pub ahead: Millis,
    /// How much faster than time it goes, in millionths.
    pub drift: i64,
}

impl HostClock {
    /// What it shows, as true time would be written.
    pub fn shows(self, now: Millis) -> Millis {
        now + self.off(now)
    }

    pub fn off(self, now: Millis) -> Millis {
        self.ahead + now * self.drift / 1_000_000
    }
}

/// The clocks of one process: a monotonic one that begins with it, and the wall clock of its host.
#[derive(Clone, Debug)]
pub struct ProcessClock {
    began_at: Millis,
    pub host: HostClock,
}

impl ProcessClock {
    pub fn new(began_at: Millis, host: HostClock) -> ProcessClock {
        ProcessClock { began_at, host }
    }

    pub fn read(&self, now: Millis) -> Now {
        Now { wall: Wall(EPOCH + self.host.shows(now)), mono: Mono(now - self.began_at) }
    }

    pub fn true_time(&self, at: Mono) -> Millis {
        at.0.saturating_add(self.began_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_entry() {
        let mut agenda = Agenda::new(0);
        for (at, event) in [(5, "c"), (3, "a"), (5, "d"), (4, "b")] {
            agenda.enter(at, event);
        }
        assert_eq!((agenda.pop(), agenda.pop(), agenda.now()), (Some("a"), Some("b"), 4));
        agenda.enter(1, "late");
        assert_eq!((agenda.pop(), agenda.now()), (Some("late"), 4), "time never goes back");
        assert_eq!((agenda.pop(), agenda.pop(), agenda.pop()), (Some("c"), Some("d"), None));
    }

    #[test]
    fn a_step_of_the_wall_clock_leaves_the_monotonic_one_alone() {
        let mut clock = ProcessClock::new(1_000, HostClock::default());
        let before = clock.read(3_000);
        clock.host.ahead = -3_600_000;
        let after = clock.read(3_000);
        assert_eq!((before.mono, after.mono), (Mono(2_000), Mono(2_000)));
        assert_eq!(before.wall.0 - after.wall.0, 3_600_000);
        assert_eq!(clock.true_time(Mono(2_000)), 3_000);
    }
}
