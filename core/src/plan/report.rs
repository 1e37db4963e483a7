//! When are events and statuses written?

use std::time::Duration;

use super::Draft;
use crate::effect::Effect;
use crate::event::Event;
use crate::facts::ObjectKey;
use crate::time::Mono;

/// The status is for people: they need no more than one a second.
const STATUS_EVERY: Duration = Duration::from_secs(1);
const STATUS_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Events that do not wait for the pace of the status.
const EVENTS_PER_STATUS: usize = 20;

impl Draft<'_> {
    /// Events first, the status that makes them history after.
    pub(super) fn write(&mut self, check: &ObjectKey, events: Vec<Event>, gist: u64, status: Option<Effect>) {
        let next_at = self.next_status_at(check, gist);
        let mut all_settled = true;
        let mut room = EVENTS_PER_STATUS.saturating_sub(self.world.settled(check));
        for event in events {
            if self.world.is_settled(check, &event.name) {
                continue;
            }
            all_settled = false;
            // A single event need not wait; many at once are summed up, and that at the pace of the status.
            if next_at.is_none() || (!event.sums_up && room > 0) {
                room = room.saturating_sub(1);
                self.send(Effect::Emit(event));
            }
        }
        match (status, next_at) {
            (Some(_), Some(next_at)) => self.wake(Some(next_at)),
            (Some(status), None) if all_settled => {
                self.send(status);
            }
            (Some(_) | None, _) => {}
        }
    }

    /// Is it time to tell of what comes and goes, and is worth a word only from then on? None: it is not known yet.
    pub(super) fn is_told(&mut self, told_at: Option<Mono>) -> bool {
        told_at.into_iter().for_each(|at| self.wake_if_later(at));
        told_at.is_some_and(|at| at <= self.now.mono)
    }

    /// None: now. To write again what was stored last means that it did not stay: a schema prunes it, or somebody else
    /// writes too, and neither gets better by hurrying.
    fn next_status_at(&self, check: &ObjectKey, desired_gist: u64) -> Option<Mono> {
        let sent = self.world.status_sent(check)?;
        let did_not_stay = sent.stored && sent.gist == desired_gist;
        let pause = if did_not_stay { STATUS_AGAIN_AFTER } else { STATUS_EVERY };
        Some(sent.at.after(pause)).filter(|at| *at > self.now.mono)
    }
}
