//! Does anybody else have this node out of service?
//!
//! Operators of the medik8s family hold a Lease on a node while they work on it. We honour theirs and hold our own: from
//! before a remediation is created until the node is healthy and nothing of ours is left on it.

use std::time::Duration;

use crate::effect::Hold;
use crate::facts::{Check, Name, Node, NodeLease};
use crate::time::{Mono, Now};
use crate::world::World;

/// For a remediation without a time-out of its own.
const DEFAULT_FOR: Duration = Duration::from_secs(600);
/// A little longer than the step, so that it never ends before what it stands for.
const BUFFER: Duration = Duration::from_secs(60);
/// When a step begins its Lease has been taken or renewed within this: long enough for the request and the look beside it, and
/// well below what it lasts beyond the step.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);
/// As many seconds fit into a Lease.
const LASTS_MAX: Duration = Duration::from_secs(i32::MAX as u64);

const HOLDER_PREFIX: &str = "NodeHealthCheck-";

#[derive(Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// Nobody has it, or whoever had it has let it expire, or it is ours and does not last as long as this step; this would
    /// take it.
    Free(Hold),
    /// It is ours until then.
    Ours {
        lease: &'a NodeLease,
        until: Mono,
    },
    Theirs {
        holder: &'a Name,
        until: Mono,
    },
}

pub fn standing<'a>(world: &'a World, check: &Check, node: &Node, step: Option<Duration>, now: Now) -> Standing<'a> {
    let (name, holder) = (lease_name(&node.name), holder(check));
    let lease = world.node_leases.get(&name);
    let take = |before: Option<&NodeLease>| Hold {
        name: name.clone(),
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        holder: holder.clone(),
        lasts_for: lasts_for(step),
        at: now.wall,
        before: before.cloned(),
    };
    match lease {
        None => Standing::Free(take(None)),
        Some(lease) => {
            let until = ends_at(world, lease, now);
            match (*lease.holder == *holder, until > now.mono) {
                (true, true) if lasts(lease, until, step, now) => Standing::Ours { lease, until },
                (false, true) if !lease.holder.is_empty() => Standing::Theirs { holder: &lease.holder, until },
                (_, _) => Standing::Free(take(Some(lease))),
            }
        }
    }
}

/// Once half of it is over, to leave time for failures.
pub fn renewal(world: &World, check: &Check, node: &Node, step: Option<Duration>, now: Now) -> Option<(Hold, Mono)> {
    let lease = ours(world, check, &node.name)?;
    let at = ends_at(world, lease, now).shift(-i64::try_from(lease.lasts_for.as_millis() / 2).unwrap_or(0));
    let hold = Hold {
        name: lease.name.clone(),
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        holder: lease.holder.clone(),
        lasts_for: lasts_for(step),
        at: now.wall,
        before: Some(lease.clone()),
    };
    Some((hold, at))
}

/// From the moment that the step begins, for its time-out and a minute. In whole seconds, as it stands in the Lease.
fn lasts_for(step: Option<Duration>) -> Duration {
    let seconds = step.unwrap_or(DEFAULT_FOR).saturating_add(BUFFER).min(LASTS_MAX).as_secs();
    Duration::from_secs(seconds)
}

/// If the step begins now.
fn lasts(lease: &NodeLease, until: Mono, step: Option<Duration>, now: Now) -> bool {
    lease.lasts_for == lasts_for(step) && until.after(TAKEN_WITHIN) >= now.mono.after(lasts_for(step))
}

pub fn ours<'a>(world: &'a World, check: &Check, node: &str) -> Option<&'a NodeLease> {
    world.node_leases.get(&lease_name(node)).filter(|lease| lease.holder == holder(check))
}

fn ends_at(world: &World, lease: &NodeLease, now: Now) -> Mono {
    world.clock.anchor(lease.renewed_at, now).after(lease.lasts_for)
}

pub fn holder(check: &Check) -> Name {
    format!("{HOLDER_PREFIX}{}", check.name).into()
}

/// The check that a holder stands for.
pub fn check_of(holder: &str) -> Option<&str> {
    holder.strip_prefix(HOLDER_PREFIX)
}

pub fn lease_name(node: &str) -> Name {
    format!("node-{}", node.to_lowercase()).into()
}
