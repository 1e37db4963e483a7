//! Why did it, or why did it not?
//!
//! Every decision carries its because. It is an enum, so making one costs nothing; the sentence is
//! written only when somebody reads it.

use std::fmt;
use std::time::Duration;

use crate::facts::{Name, ObjectKey, Source, Status};
use crate::time::Wall;

/// What was decided about one node under one check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    pub check: Name,
    pub node: Name,
    pub verdict: Verdict,
    pub because: Because,
}

/// What is done about the node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Healthy, nothing to do.
    Leave,
    /// Not healthy, but it is not yet time, or something has to be known first.
    Wait,
    /// Would be repaired, but a gate is shut.
    Hold,
    /// A remediation is being created.
    Start,
    /// A remediation exists and stays.
    Keep,
    /// A remediation is being removed.
    Remove,
}

impl Verdict {
    pub const ALL: [Verdict; 6] = [Verdict::Leave, Verdict::Wait, Verdict::Hold, Verdict::Start, Verdict::Keep, Verdict::Remove];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Leave => "leave",
            Verdict::Wait => "wait",
            Verdict::Hold => "hold",
            Verdict::Start => "start",
            Verdict::Keep => "keep",
            Verdict::Remove => "remove",
        })
    }
}

/// A condition of a node that meets a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    pub kind: Box<str>,
    pub status: Status,
    pub since: Wall,
    pub lasts_for: Duration,
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {} is {}", self.kind, self.status)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    Healthy,
    /// A rule matches, its time is not over.
    Pending(Match),
    /// The node has not reported what the rules ask about.
    NeverReported {
        kind: Box<str>,
    },
    /// The node's object is being deleted.
    NodeLeaving,
    /// The node's object could not be read; its health is unknown.
    Unreadable {
        why: Name,
    },
    /// A rule has matched for longer than it allows.
    Expired(Match),
    /// Something that decisions rest on is not known, or no longer certain.
    Stale {
        source: Source,
    },
    KindNotServed {
        key: ObjectKey,
    },
    TemplateMissing {
        key: ObjectKey,
    },
    TemplateInvalid {
        key: ObjectKey,
        why: Name,
    },
    PolicyInvalid {
        why: Name,
    },
    Paused {
        requests: Vec<Box<str>>,
    },
    TooManyUnhealthy {
        not_healthy: usize,
        allowed: usize,
        of: usize,
    },
    /// An older check is responsible for the node.
    Overlapping {
        owner: Name,
    },
    /// Another object has the name that ours would get.
    Occupied {
        key: ObjectKey,
    },
    /// Our own earlier object is still going away.
    Leaving {
        key: ObjectKey,
    },
    /// It would be started, but another process leads.
    NotLeading,
    /// Somebody else removed what we created; it is created again, ever more slowly.
    Removed {
        key: ObjectKey,
        times: u32,
    },
    /// The node is asked once more, plainly, before anything starts.
    Looking,
    /// More is under way than is sent at once.
    Queued,
    Creating {
        key: ObjectKey,
    },
    /// The server refused it; it is tried again later.
    Refused {
        key: ObjectKey,
        why: Name,
    },
    Remediating {
        key: ObjectKey,
        reason: Match,
    },
    /// The node is no longer selected by the check.
    NotSelected,
    /// The node is gone.
    NodeGone,
    /// The node is gone, and its provider is still at work.
    NodeGoneProviderBusy {
        key: ObjectKey,
    },
}

impl Because {
    /// Is it the same reason, apart from numbers that change with every other node in a storm?
    pub fn is_like(&self, other: &Because) -> bool {
        match (self, other) {
            (Because::TooManyUnhealthy { .. }, Because::TooManyUnhealthy { .. }) => true,
            _ => self == other,
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Healthy => f.write_str("the node is healthy"),
            Because::Pending(found) => write!(f, "{found}, unhealthy only after {}", Seconds(found.lasts_for)),
            Because::NeverReported { kind } => write!(f, "the node has no condition {kind} yet"),
            Because::NodeLeaving => f.write_str("the node is being deleted"),
            Because::Unreadable { why } => write!(f, "the node's object cannot be read: {why}"),
            Because::Expired(found) => write!(f, "{found} for longer than {}", Seconds(found.lasts_for)),
            Because::Stale { source } => write!(f, "what is known of {source} may be out of date; waiting for the API server"),
            Because::KindNotServed { key } => {
                write!(f, "the API server does not know the kind {}: install its CRD", key.kind)
            }
            Because::TemplateMissing { key } => write!(f, "the template {key} does not exist: create it"),
            Because::TemplateInvalid { key, why } => write!(f, "the template {key} cannot be used: {why}"),
            Because::PolicyInvalid { why } => write!(f, "the check cannot be used: {why}"),
            Because::Paused { requests } => write!(f, "paused by pauseRequests: {}", requests.join(", ")),
            Because::TooManyUnhealthy { not_healthy, allowed, of } => {
                write!(f, "{not_healthy} of {of} nodes are not healthy, repairs go on only while at most {allowed} are")
            }
            Because::Overlapping { owner } => write!(f, "the older check {owner} is responsible for the node"),
            Because::Occupied { key } => write!(f, "{key} exists already and is not ours"),
            Because::Leaving { key } => write!(f, "the earlier {key} is still being deleted"),
            Because::NotLeading => f.write_str("another controller leads, and will start it"),
            Because::Removed { key, times } => write!(f, "somebody else removed {key}, {times} times by now; trying again later"),
            Because::Looking => f.write_str("asking the API server once more before starting"),
            Because::Queued => f.write_str("next in line, other requests are under way"),
            Because::Creating { key } => write!(f, "creating {key}"),
            Because::Refused { key, why } => write!(f, "the API server refused {key}: {why}; trying again later"),
            Because::Remediating { key, reason } => write!(f, "{reason}, {key} exists"),
            Because::NotSelected => f.write_str("the check no longer selects the node"),
            Because::NodeGone => f.write_str("the node is gone"),
            Because::NodeGoneProviderBusy { key } => write!(f, "the node is gone, but the provider of {key} is still at work"),
        }
    }
}

/// A duration as Go and YAML write it.
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}s", self.0.as_secs_f64()),
        }
    }
}
