//! Is this node healthy?

use std::collections::BTreeMap;

use crate::decision::Match;
use crate::facts::{Condition, Name, Node, Policy, READY, Rule, Status};
use crate::time::{Clock, Mono, Now};

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

/// Takes in a node as it was seen. None: nothing that a decision could depend on has changed; otherwise what it was before.
pub fn take_in(
    nodes: &mut BTreeMap<Name, Known>,
    mut node: Node,
    listing: bool,
    clock: &Clock,
    now: Now,
) -> Option<Option<Known>> {
    if let Some(known) = nodes.get_mut(&node.name) {
        // A watch may lag behind a look; its old news is no news. A list is always believed.
        if !listing && node.version.is_older_than(&known.node.version) {
            return None;
        }
        if known.unreadable.is_none() && known.node.says_the_same_as(&node) {
            known.node.version = node.version;
            return None;
        }
    }
    let same = nodes.get(&node.name).filter(|known| known.node.uid == node.uid);
    // A condition that has not changed keeps the instant at which it began, whatever the wall clock does.
    let kept = |condition: &Condition| {
        let at = same?.node.conditions.iter().position(|own| own.is_since_when(condition))?;
        Some(same?.since[at])
    };
    let anchor = |condition: &Condition| kept(condition).unwrap_or_else(|| clock.anchor(condition.since, now));
    let since = node.conditions.iter().map(anchor).collect();
    let created = same.map_or_else(|| clock.anchor(node.created_at, now), |known| known.created);
    let (is_control_plane, has_reported) = (node.is_control_plane(), node.has_reported());
    // Itself, or its neighbour by name, which often is of the same kind.
    if let Some((_, known)) = nodes.range(..=node.name.clone()).next_back() {
        node.labels.share_keys(&known.node.labels);
    }
    let known = Known { node, since, created, is_control_plane, has_reported, unreadable: None };
    Some(nodes.insert(known.node.name.clone(), known))
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
