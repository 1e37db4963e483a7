//! Is this node healthy?

use std::collections::BTreeMap;
use std::time::Duration;

use crate::decision::Match;
use crate::facts::{Condition, Name, Node, Policy, READY, Rule, Status};
use crate::time::{Clock, Mono, Now, SKEW_MAX, Wall};

/// A node as we know it, with the monotonic instant at which each of its conditions began.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    pub node: Node,
    /// Parallel to `node.conditions`.
    pub since: Box<[Mono]>,
    /// Parallel to them, too: when each was first seen with its status, in a watch that has shown no other since.
    seen_at: Box<[Mono]>,
    pub created: Mono,
    // Asked of every node by every plan, so both are found out once, when the node is seen.
    pub is_control_plane: bool,
    /// Whether it is ready or not, it has said so.
    pub has_reported: bool,
    /// Its newest object could not be read: what stands here is what was known before.
    pub unreadable: Option<Name>,
}

/// How a node came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// In a list, which is always believed.
    Listed,
    /// By a watch. `fresh`: it has shown everything so far, as soon as it happened.
    Watched { fresh: bool },
    /// As the answer to a question. `fresh` is the watch beside it.
    Asked { fresh: bool },
}

impl Known {
    fn status_of(&self, condition: &Condition) -> Option<Standing<'_>> {
        let is_it = |own: &Condition| own.kind == condition.kind && own.status == condition.status;
        let at = self.node.conditions.iter().position(is_it)?;
        Some(Standing { condition: &self.node.conditions[at], since: self.since[at], seen_at: self.seen_at[at] })
    }

    /// When a condition that any of the rules asks for changed last.
    pub fn changed_at(&self, rules: &[Rule]) -> Option<Mono> {
        let asked_for = |condition: &Condition| rules.iter().any(|rule| rule.kind == condition.kind);
        let dated = self.node.conditions.iter().zip(&self.since);
        dated.filter(|(condition, _)| asked_for(condition)).map(|(_, since)| *since).max()
    }
}

/// Takes in a node as it was seen. None: nothing that a decision could depend on has changed; otherwise what it was before.
pub fn take_in(nodes: &mut BTreeMap<Name, Known>, mut node: Node, news: News, clock: &Clock, now: Now) -> Option<Option<Known>> {
    if let Some(known) = nodes.get_mut(&node.name) {
        // A watch may lag behind a look; its old news is no news.
        if news != News::Listed && node.version.is_older_than(&known.node.version) {
            return None;
        }
        if known.unreadable.is_none() && known.node.says_the_same_as(&node) {
            known.node.version = node.version;
            return None;
        }
    }
    let reported_at = std::mem::take(&mut node.reported_at);
    let same = nodes.get(&node.name).filter(|known| known.node.uid == node.uid);
    // What it said while it could not be read nobody knows.
    let news = if same.is_some_and(|known| known.unreadable.is_some()) { News::Listed } else { news };
    let begun = node.conditions.iter().enumerate().map(|(at, condition)| {
        let known = same.and_then(|known| known.status_of(condition));
        begun(condition, reported_at.get(at).copied(), known, news, clock, now)
    });
    let (since, seen_at): (Vec<Mono>, Vec<Mono>) = begun.unzip();
    let created = same.map_or_else(|| clock.anchor(node.created_at, now), |known| known.created);
    let (is_control_plane, has_reported) = (node.is_control_plane(), node.has_reported());
    // Itself, or its neighbour by name, which often is of the same kind.
    if let Some((_, known)) = nodes.range(..=node.name.clone()).next_back() {
        node.labels.share_keys(&known.node.labels);
    }
    let (since, seen_at) = (since.into(), seen_at.into());
    let known = Known { node, since, seen_at, created, is_control_plane, has_reported, unreadable: None };
    Some(nodes.insert(known.node.name.clone(), known))
}

/// A condition that we know with the status that it still has.
struct Standing<'a> {
    condition: &'a Condition,
    since: Mono,
    seen_at: Mono,
}

/// When a condition began, and when it was first seen so.
fn begun(
    condition: &Condition,
    reported_at: Option<Wall>,
    known: Option<Standing>,
    news: News,
    clock: &Clock,
    now: Now,
) -> (Mono, Mono) {
    let dated = || clock.anchor(condition.since, now);
    match (known, news) {
        // What has not changed keeps the instant at which it began, whatever any clock does.
        (Some(Standing { condition: known, since, seen_at }), _) if known.is_since_when(condition) => (since, seen_at),
        // Only its date has changed, and it has been nothing else since: a reporter that dates it anew each time does not
        // keep its time from ending.
        (Some(Standing { since, seen_at, .. }), News::Watched { .. }) => (dated().max(since).min(seen_at), seen_at),
        // It may have been something else in between.
        (Some(_), News::Listed | News::Asked { .. }) | (None, News::Listed) => (dated(), now.mono),
        (None, News::Watched { fresh } | News::Asked { fresh }) => {
            let behind = if fresh { behind(condition, reported_at, now) } else { Duration::ZERO };
            (dated().after(behind).min(now.mono), now.mono)
        }
    }
}

/// How far the clock of who reported a change is behind: its report was that old already when it arrived. What the control
/// plane says of a silent node it dates itself, and the last report stays as it was.
fn behind(condition: &Condition, reported_at: Option<Wall>, now: Now) -> Duration {
    let age = |at: Wall| Duration::from_millis(u64::try_from(now.wall.0.saturating_sub(at.0)).unwrap_or(0));
    let age = reported_at.filter(|_| condition.status != Status::Unknown).map_or(Duration::ZERO, age);
    if age > SKEW_MAX { age } else { Duration::ZERO }
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

/// The condition of the node that the rule is about, if its status is the one that the rule names, and when its time is over.
pub fn met<'a>(known: &'a Known, rule: &Rule) -> Option<(Mono, &'a Condition)> {
    let at = known.node.conditions.iter().position(|c| c.status == rule.status && c.kind == rule.kind)?;
    Some((known.since[at].beyond(rule.lasts_for), &known.node.conditions[at]))
}

fn due(known: &Known, rule: &Rule) -> Option<(Mono, Match)> {
    let (due_at, condition) = met(known, rule)?;
    let found = Match {
        kind: condition.kind.clone(),
        status: condition.status.clone(),
        since: condition.since,
        lasts_for: rule.lasts_for,
    };
    Some((due_at, found))
}

/// A node that is there but never says that it is, or is not, ready.
fn never_started(known: &Known, policy: &Policy) -> Option<(Mono, Match)> {
    let timeout = policy.startup_timeout.filter(|_| !known.has_reported)?;
    let (kind, status) = (READY.into(), Status::Other("missing".into()));
    let found = Match { kind, status, since: known.node.created_at, lasts_for: timeout };
    Some((known.created.beyond(timeout), found))
}

/// A condition that only some nodes report (a problem detector's, say) never matches where it is absent.
/// `Ready` is every kubelet's: where it is asked for and absent, the node cannot be called healthy.
fn never_reported(known: &Known, rules: &[Rule]) -> Option<Box<str>> {
    let asked = rules.iter().any(|rule| &*rule.kind == READY);
    (asked && !known.has_reported).then(|| READY.into())
}
