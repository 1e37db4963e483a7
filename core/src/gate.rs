//! May something start under this check, may a repair that has begun go on, and what is told about it?
//!
//! A gate only ever says no. What every gate lets pass may start; nothing else may. They are the same for checks of nodes and of
//! machines, and are asked in one order: the first that is shut says why. What concerns one node or machine is asked after
//! them, in `plan/shut.rs`.

use std::collections::BTreeMap;

use crate::decision::Because;
use crate::facts::{Check, Limit, Name, Policy, Source, Status};
use crate::mhc::budget;
use crate::mhc::facts::{Budget, MachinePolicy};
use crate::reasons;
use crate::time::{Clock, Mono, Now};
use crate::world::World;

/// What the gates of a check ask about. None: it stops nothing.
pub struct Asked<'a> {
    /// What decisions rest on, and may be out of date. It is told apart from the others, once it lasts.
    pub doubt: Option<&'a Source>,
    /// What stops all checks; see [`everywhere`].
    pub everywhere: &'a Gates,
    /// Somebody paused this check.
    pub paused: Option<Because>,
    /// What it makes remediations from cannot be used.
    pub unusable: Option<Because>,
    /// The cluster is being upgraded, and whether that is certain enough to be told. Of nodes only: machines of other clusters
    /// are upgraded by their owners, which make new ones.
    pub upgrading: Option<(Because, bool)>,
    pub too_many: Option<Because>,
    /// A storm is over, but not for long enough. Of nodes only: no MachineHealthCheck can ask for it.
    pub cooling: Option<Because>,
}

pub fn gates(asked: Asked) -> Gates {
    let Asked { doubt, everywhere, paused, unusable, upgrading, too_many, cooling } = asked;
    let doubt = doubt.map(|source| Because::Stale { source: source.clone() });
    let mut gates = Gates::default();
    gates.add(doubt, Stops::EveryStep, Told::No);
    gates.0.extend(everywhere.0.iter().cloned());
    gates.add(paused, Stops::EveryStep, Told::Yes);
    gates.add(unusable, Stops::EveryStep, Told::Yes);
    let (upgrading, is_told) = upgrading.map_or((None, false), |(because, is_told)| (Some(because), is_told));
    gates.add(upgrading, Stops::EveryStep, Told::when(is_told));
    gates.add(too_many, Stops::FirstStep, Told::Yes);
    gates.add(cooling, Stops::FirstStep, Told::Yes);
    gates
}

/// What stops all checks. `paused`: by a person, as far as that is known, and whether it is certain enough to be told.
pub fn everywhere(paused: Option<(Because, bool)>, clock_differs: Option<Because>) -> Gates {
    let (paused, is_told) = paused.map_or((None, false), |(because, is_told)| (Some(because), is_told));
    let mut gates = Gates::default();
    gates.add(paused, Stops::EveryStep, Told::when(is_told));
    gates.add(clock_differs, Stops::EveryStep, Told::Yes);
    gates
}

/// The gates that are shut, in the order in which they were asked.
#[derive(Clone, Debug, Default)]
pub struct Gates(Vec<Gate>);

#[derive(Clone, Debug)]
struct Gate {
    because: Because,
    stops: Stops,
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stops {
    /// The first step of a repair. After it, its target has a place in the budget.
    FirstStep,
    EveryStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Yes,
    /// It may be over in a moment, or is told elsewhere.
    No,
}

impl Told {
    fn when(is_told: bool) -> Told {
        if is_told { Told::Yes } else { Told::No }
    }
}

impl Gates {
    /// Why no repair may begin.
    pub fn first_step(&self) -> Option<&Because> {
        self.0.first().map(|gate| &gate.because)
    }

    /// Why not even a repair that has begun may take its next step.
    pub fn next_step(&self) -> Option<&Because> {
        self.0.iter().find(|gate| gate.stops == Stops::EveryStep).map(|gate| &gate.because)
    }

    /// What people are told of it.
    pub fn told(&self) -> Option<&Because> {
        self.0.iter().find(|gate| gate.told == Told::Yes).map(|gate| &gate.because)
    }

    fn add(&mut self, because: Option<Because>, stops: Stops, told: Told) {
        self.0.extend(because.map(|because| Gate { because, stops, told }));
    }
}

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

/// Why the check's own pauseRequests let nothing start.
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

/// Of machines there may be too few that are not healthy, too: see `unhealthyRange`.
pub fn outside_budget(policy: &MachinePolicy, tally: Tally, limit: Limit) -> Option<Because> {
    let room = budget::room(policy.budget, tally, limit);
    let Tally { targets: of, not_healthy, .. } = tally;
    let because = match policy.budget {
        Budget::AtMost(_) => Because::TooManyUnhealthy { not_healthy, allowed: room.max, of },
        Budget::Between { min, max } => Because::OutsideRange { not_healthy, min, max, of },
    };
    (!room.allowed).then_some(because)
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
    match world.clock.anchor(calm_since, now).beyond(cooldown) {
        until if now.mono >= until => Storm::Calm,
        until => Storm::Cooling { until },
    }
}
