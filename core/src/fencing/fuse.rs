//! May the watchdog be fed?
//!
//! A proof that nobody has ordered our end is only ever about the past. So it lets us live for a time that is known
//! beforehand, counted from when its request was *sent*: an order that was stored after that is obeyed when the fuse has burnt
//! down, whatever hangs, and whoever waits for our end knows how long to wait.

use std::time::Duration;

use crate::time::Mono;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fuse {
    /// g, as it is promised.
    burns_for: Duration,
    /// When the request of the newest proof was sent.
    proved_at: Option<Mono>,
}

impl Fuse {
    pub fn new(burns_for: Duration) -> Fuse {
        Fuse { burns_for, proved_at: None }
    }

    /// Answers may overtake each other: an older proof takes nothing away.
    pub fn prove(&mut self, sent_at: Mono) {
        self.proved_at = self.proved_at.max(Some(sent_at));
    }

    /// The machine stood still, or its clock did: what was proved before may be older than it looks.
    pub fn void(&mut self) {
        self.proved_at = None;
    }

    /// A shorter life is used before it is promised, a longer one after.
    pub fn burn_for(&mut self, burns_for: Duration) {
        self.burns_for = burns_for;
    }

    pub fn proved_at(&self) -> Option<Mono> {
        self.proved_at
    }

    /// The last instant at which a feed may begin.
    pub fn ends_at(&self) -> Option<Mono> {
        self.proved_at.map(|at| at.after(self.burns_for))
    }

    /// Opening the device feeds it, too.
    pub fn allows_feed(&self, now: Mono) -> bool {
        self.ends_at().is_some_and(|end| now <= end)
    }

    /// See [`super::agent::Agent::rebased`].
    #[must_use]
    pub fn rebased(self, now: Mono) -> Fuse {
        let proved_at = self.proved_at.filter(|_| self.allows_feed(now)).map(|at| at.shift(-now.0));
        Fuse { proved_at, ..self }
    }
}
