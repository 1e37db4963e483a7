//! Does a message arrive, and when?

use super::scenario::Weather;
use crate::clock::{Millis, SECOND};
use crate::rng::Rng;

/// What a client gave up may still be executed so much later.
pub const LATE_MAX: Millis = 180 * SECOND;

pub struct Net {
    pub weather: Weather,
    pub api_down_until: Millis,
    pub api_refuses_until: Millis,
    /// From one machine to another, in this direction only.
    parted_until: Vec<Vec<Millis>>,
}

/// Of one request. None: it gets lost.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub arrives_in: Option<Millis>,
    pub answers_in: Option<Millis>,
}

impl Net {
    pub fn new(machines: usize, weather: Weather) -> Net {
        Net { weather, api_down_until: 0, api_refuses_until: 0, parted_until: vec![vec![0; machines]; machines] }
    }

    pub fn part(&mut self, from: usize, to: usize, until: Millis) {
        let known = &mut self.parted_until[from][to];
        *known = until.max(*known);
    }

    pub fn hears(&self, from: usize, to: usize, now: Millis) -> bool {
        self.parted_until[from][to] <= now
    }

    pub fn is_down(&self, now: Millis) -> bool {
        self.api_down_until > now
    }

    pub fn heal(&mut self) {
        self.weather = Weather {
            late: 0,
            slow: 0,
            answer_lost: 0,
            message_lost: 0,
            message_slow: 0,
            feed_stalls: 0,
            feed_late: 0,
            killed_last: 0,
            restart_fails: self.weather.restart_fails,
            control_late: 0,
        };
        (self.api_down_until, self.api_refuses_until) = (0, 0);
        self.parted_until.iter_mut().flatten().for_each(|until| *until = 0);
    }

    /// `late` in percent.
    pub fn route(&self, rng: &mut Rng, late: u32) -> Route {
        let quick = rng.within(2..=40);
        let arrives_in = if rng.chance(late) {
            // Mostly soon after it was given up: that is when somebody has decided otherwise.
            let latest = if rng.chance(70) { 30 * SECOND } else { LATE_MAX };
            rng.within(3 * SECOND..=latest)
        } else if rng.chance(self.weather.slow) {
            rng.within(100..=2_900)
        } else {
            quick
        };
        let answers_in = if rng.chance(self.weather.answer_lost) { None } else { Some(rng.within(1..=30)) };
        Route { arrives_in: Some(arrives_in), answers_in }
    }

    /// Between two machines.
    pub fn message(&self, from: usize, to: usize, now: Millis, rng: &mut Rng) -> Option<Millis> {
        if !self.hears(from, to, now) || rng.chance(self.weather.message_lost) {
            return None;
        }
        Some(if rng.chance(self.weather.message_slow) { rng.within(100..=20 * SECOND) } else { rng.within(1..=20) })
    }
}
