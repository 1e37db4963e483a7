//! Is a cluster without any check given one?
//!
//! Once in the life of a process that leads, and only if nobody has written a check by then: who deletes the default check
//! does not get it back before the next start.

use crate::effect::Effect;
use crate::facts::Source;
use crate::time::Now;
use crate::world::World;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DefaultCheck {
    /// Nobody wants it.
    #[default]
    Off,
    /// Left when the template is stored, or when there are checks.
    Template,
    /// Left when the check is stored, or when there are checks.
    Check,
    Settled,
}

/// Which nodes the default check selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workers {
    Labelled,
    /// Where no node has the label of a worker: all that are not of the control plane.
    NotControlPlane,
}

const WORKER_LABEL: &str = "node-role.kubernetes.io/worker";

pub fn wanted(world: &World, now: Now) -> Option<Effect> {
    let is_known = [Source::Checks, Source::Nodes].iter().all(|source| world.is_fresh(source, now.mono));
    if !is_known || !world.checks.is_empty() {
        return None;
    }
    match world.default_check {
        DefaultCheck::Off | DefaultCheck::Settled => None,
        DefaultCheck::Template => Some(Effect::DefaultTemplate),
        DefaultCheck::Check => {
            let is_labelled = world.nodes.values().any(|known| known.node.labels.get(WORKER_LABEL).is_some());
            Some(Effect::DefaultCheck(if is_labelled { Workers::Labelled } else { Workers::NotControlPlane }))
        }
    }
}
