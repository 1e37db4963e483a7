//! May this check start another remediation now?
//!
//! A gate only ever says no. What every gate lets pass may start; nothing else may.

use std::collections::BTreeMap;

use crate::decision::Because;
use crate::facts::{Check, Limit, Name, Policy, Status};
use crate::reasons;
use crate::time::{Clock, Mono, Now};
use crate::world::World;

/// How the targets of a check stand. `not_healthy` are all that are not positively healthy: expired,
/// pending, unknown, under remediation, or with a request under way that may have started one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    pub targets: usize,
    pub not_healthy: usize,
    /// Remediations of nodes that are gone or no longer selected: their provider may still be at work.
    pub leftovers: usize,
}

impl Tally {
    pub fn count(&mut self, is_healthy: bool) {
        self.targets += 1;
        self.not_healthy += usize::from(!is_healthy);
    }
}

/// Why nothing may start, whatever the number of unhealthy nodes; the next step of an escalation neither.
pub fn paused(policy: &Policy) -> Option<Because> {
    (!policy.pause_requests.is_empty()).then(|| Because::Paused { requests: policy.pause_requests.clone() })
}

/// Why nothing may start under any check: dates are read by the API server's clock, but a host whose own clock is wrong has
/// more trouble than we can see.
pub fn clock_differs(clock: &Clock, now: Mono) -> Option<Because> {
    clock.skew(now).map(|ahead| Because::ClockDiffers { ahead: ahead / 1000 })
}

/// A pending node counts as not healthy: a storm is seen while it rises, not when its time-outs run off.
/// Whether exactly the limit is still allowed, `limit` says. As every node under remediation is among the not healthy, and leftovers
/// count too, the remediations of a check never exceed what is allowed either.
pub fn too_many_unhealthy(policy: &Policy, tally: Tally, limit: Limit) -> Option<Because> {
    let allowed = policy.threshold.allowed(tally.targets, limit);
    let not_healthy = tally.not_healthy + tally.leftovers;
    (not_healthy > allowed).then_some(Because::TooManyUnhealthy { not_healthy, allowed, of: tally.targets })
}

/// The zones, by their tallies, in which too many are unhealthy. They are shut, and do not count elsewhere.
pub fn dark_zones(policy: &Policy, zones: &BTreeMap<&str, Tally>, limit: Limit) -> BTreeMap<Name, Because> {
    let dark = |(zone, tally): (&&str, &Tally)| {
        let allowed = policy.threshold.allowed(tally.targets, limit);
        let (not_healthy, of) = (tally.not_healthy, tally.targets);
        let zone = Name::from(*zone);
        (not_healthy > allowed).then(|| (zone.clone(), Because::ZoneDark { zone, not_healthy, allowed, of }))
    };
    zones.iter().filter_map(dark).collect()
}

/// After too many nodes were unhealthy at once, nothing starts for a while. What stands in the check's status remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storm {
    /// The check does not ask for it.
    NotWatched,
    Calm,
    Raging,
    /// It is over, and this is when repairs begin again.
    Cooling {
        until: Mono,
    },
}

pub fn storm(world: &World, check: &Check, policy: &Policy, too_many: bool, now: Now) -> Storm {
    let Some(cooldown) = policy.storm_cooldown else { return Storm::NotWatched };
    let since = |kind: &str| {
        let known = check.status.conditions.iter().find(|condition| &*condition.kind == kind)?;
        (known.status == Status::True).then_some(known.since)
    };
    if too_many {
        return Storm::Raging;
    }
    if since(reasons::STORM_ACTIVE).is_none() {
        return Storm::Calm;
    }
    let calm_since = since(reasons::STORM_COOLDOWN_ACTIVE).unwrap_or(now.wall.next_second());
    match world.clock.anchor(calm_since, now).after(cooldown).shift(1) {
        until if now.mono >= until => Storm::Calm,
        until => Storm::Cooling { until },
    }
}
