//! Is this node healthy?

use crate::decision::Match;
use crate::facts::{Condition, Name, Node, Policy, READY, Rule, Status};
use crate::time::Mono;

/// A node as we know it, with the monotonic instant at which each of its conditions began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    pub node: Node,
    /// Parallel to `node.conditions`.
    pub since: Box<[Mono]>,
    pub created: Mono,
    // Asked of every node by every plan, so both are found out once, when the node is seen.
    pub is_control_plane: bool,
    /// Whether it is ready or not, it has said so.
    pub has_reported: bool,
    /// Its newest object could not be read: what stands here is what was known before.
    pub unreadable: Option<Name>,
}

impl Known {
    /// When a condition that any of the rules asks for changed last.
    pub fn changed_at(&self, rules: &[Rule]) -> Option<Mono> {
        let asked_for = |condition: &Condition| rules.iter().any(|rule| rule.kind == condition.kind);
        let dated = self.node.conditions.iter().zip(&self.since);
        dated.filter(|(condition, _)| asked_for(condition)).map(|(_, since)| *since).max()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    Healthy,
    /// A rule matches, but not long enough; unless facts change it has by `due_at`.
    Pending {
        found: Match,
        due_at: Mono,
    },
    /// `due_at` is when it became so.
    Unhealthy {
        found: Match,
        due_at: Mono,
    },
    /// Neither healthy nor unhealthy: it has not reported `kind`.
    NeverReported {
        kind: Box<str>,
    },
    Unreadable {
        why: Name,
    },
    /// Well, but its object is being deleted: not to be counted on.
    Leaving,
}

/// Rules are combined by or. A rule that has expired wins over one that is pending, and of several the
/// one that was, or will be, due first.
pub fn assess(known: &Known, policy: &Policy, now: Mono) -> Health {
    if let Some(why) = &known.unreadable {
        return Health::Unreadable { why: why.clone() };
    }
    let due = policy.rules.iter().filter_map(|rule| due(known, rule)).chain(never_started(known, policy));
    match due.min_by_key(|(due_at, _)| *due_at) {
        Some((due_at, found)) if now >= due_at => Health::Unhealthy { found, due_at },
        Some((due_at, found)) => Health::Pending { found, due_at },
        None => match never_reported(known, &policy.rules) {
            Some(kind) => Health::NeverReported { kind },
            None if known.node.deleting => Health::Leaving,
            None => Health::Healthy,
        },
    }
}

/// The first millisecond at which the rule's time is over, strictly.
fn due(known: &Known, rule: &Rule) -> Option<(Mono, Match)> {
    let at = known.node.conditions.iter().position(|c| c.status == rule.status && c.kind == rule.kind)?;
    let condition = &known.node.conditions[at];
    let found = Match {
        kind: condition.kind.clone(),
        status: condition.status.clone(),
        since: condition.since,
        lasts_for: rule.lasts_for,
    };
    Some((known.since[at].after(rule.lasts_for).shift(1), found))
}

/// A node that is there but never says that it is, or is not, ready.
fn never_started(known: &Known, policy: &Policy) -> Option<(Mono, Match)> {
    let timeout = policy.startup_timeout.filter(|_| !known.has_reported)?;
    let (kind, status) = (READY.into(), Status::Other("missing".into()));
    let found = Match { kind, status, since: known.node.created_at, lasts_for: timeout };
    Some((known.created.after(timeout).shift(1), found))
}

/// A condition that only some nodes report (a problem detector's, say) never matches where it is absent.
/// `Ready` is every kubelet's: where it is asked for and absent, the node cannot be called healthy.
fn never_reported(known: &Known, rules: &[Rule]) -> Option<Box<str>> {
    let asked = rules.iter().any(|rule| &*rule.kind == READY);
    (asked && !known.has_reported).then(|| READY.into())
}
