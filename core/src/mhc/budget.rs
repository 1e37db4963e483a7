//! May repairs start, with so many machines not healthy?

use crate::facts::{Limit, Threshold};
use crate::gate::Tally;
use crate::mhc::facts::Budget;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    pub allowed: bool,
    /// How many more may become unhealthy; what the status shows.
    pub left: usize,
    /// The greatest number of machines that may be not healthy.
    pub max: usize,
}

pub fn room(budget: Budget, tally: Tally, limit: Limit) -> Room {
    let count = tally.not_healthy;
    // The counters of the status are the reference's: unlike the decision, they are not clamped to the number of machines.
    let (allowed, max) = match budget {
        Budget::Between { min, max } => (count >= min as usize && count <= max as usize, max as usize),
        Budget::AtMost(amount) => {
            let shown = match amount {
                crate::facts::Amount::Count(max) => max as usize,
                crate::facts::Amount::Percent(percent) => tally.targets * percent as usize / 100,
            };
            (count <= Threshold::MaxUnhealthy(amount).allowed(tally.targets, limit), shown)
        }
    };
    Room { allowed, left: if allowed { max.saturating_sub(count) } else { 0 }, max }
}
