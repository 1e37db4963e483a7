//! May this check start another remediation now?
//!
//! A gate only ever says no. What every gate lets pass may start; nothing else may.

use crate::decision::Because;
use crate::facts::Policy;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    Open,
    Shut(Because),
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

pub fn gate(policy: &Policy, tally: Tally) -> Gate {
    match paused(policy).or_else(|| too_many_unhealthy(policy, tally)) {
        Some(because) => Gate::Shut(because),
        None => Gate::Open,
    }
}

fn paused(policy: &Policy) -> Option<Because> {
    (!policy.pause_requests.is_empty()).then(|| Because::Paused { requests: policy.pause_requests.clone() })
}

/// A pending node counts as not healthy: a storm is seen while it rises, not when its time-outs run off.
/// Exactly the limit is still allowed. As every node under remediation is among the not healthy, and leftovers
/// count too, the remediations of a check never exceed what is allowed either.
fn too_many_unhealthy(policy: &Policy, tally: Tally) -> Option<Because> {
    let allowed = policy.threshold.allowed(tally.targets);
    let not_healthy = tally.not_healthy + tally.leftovers;
    (not_healthy > allowed).then_some(Because::TooManyUnhealthy { not_healthy, allowed, of: tally.targets })
}
