//! Has this node been remediated too often lately?
//!
//! The check's status remembers when remediations of each node began, as long as it matters.

use std::time::Duration;

use crate::decision::Because;
use crate::facts::{Name, Repeat};
use crate::time::{Mono, Now, Wall};
use crate::world::World;

/// When the remediations of a node began, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recent {
    pub node: Name,
    pub started_at: Vec<Wall>,
}

/// Times that are kept for each node: more than these matter to no sane limit, and each costs bytes in the status.
const KEPT_MAX: usize = 100;

impl Recent {
    /// As it is stored, in bytes, about.
    pub fn weight(&self) -> usize {
        60 + 2 * self.node.len() + 25 * self.started_at.len()
    }

    /// Without those that are too long ago, with `more`.
    pub fn with(mut self, more: impl IntoIterator<Item = Wall>, repeat: Repeat, world: &World, now: Now) -> Recent {
        self.started_at.extend(more);
        self.started_at.sort_unstable();
        self.started_at.dedup();
        self.started_at.retain(|at| now.mono < leaves_at(world, *at, repeat, now));
        let surplus = self.started_at.len().saturating_sub(KEPT_MAX);
        self.started_at.drain(..surplus);
        self
    }
}

/// Why not now, and until when.
pub fn forbids(recent: Option<&Recent>, repeat: Repeat, world: &World, now: Now) -> Option<(Because, Mono)> {
    let within: Vec<Wall> =
        recent?.started_at.iter().copied().filter(|at| now.mono < leaves_at(world, *at, repeat, now)).collect();
    let times = u32::try_from(within.len()).unwrap_or(u32::MAX);
    if times >= repeat.max {
        // Room comes when so many have left that one less than the limit stay.
        let leaver = within.get(within.len() - repeat.max.max(1) as usize).or(within.last())?;
        let because = Because::RemediatedTooOften { times, within: repeat.within };
        return Some((because, leaves_at(world, *leaver, repeat, now)));
    }
    let until = world.clock.anchor(*within.last()?, now).after(pause(repeat, times));
    (until > now.mono).then_some((Because::BackingOff { times }, until))
}

fn leaves_at(world: &World, started_at: Wall, repeat: Repeat, now: Now) -> Mono {
    world.clock.anchor(started_at, now).after(repeat.within)
}

fn pause(repeat: Repeat, times: u32) -> Duration {
    repeat.backoff.saturating_mul(1 << times.saturating_sub(1).min(20)).min(repeat.max_backoff.max(repeat.backoff))
}
