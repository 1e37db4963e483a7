//! What does a NodeHealthCheck show of itself, and which events go with a change of it?
//!
//! The status in the API is also the memory of what was reported: events are the difference between the
//! status that stands there and the one that should. They are written first, under names that a second
//! attempt would choose again, and the status after them; so a crash in between loses and doubles nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::decision::Because;
use crate::event::Event;
use crate::facts::{Check, EXCLUDE_LABEL, Name, Node, Object, ObjectKey, Status};
use crate::gate::Storm;
use crate::mhc::status::sentence;
use crate::reasons;
use crate::repeat::Recent;
use crate::rival;
use crate::text;
use crate::time::Wall;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckStatus {
    pub observed: Option<u32>,
    pub healthy: Option<u32>,
    pub unhealthy: Vec<UnhealthyNode>,
    pub conditions: Vec<StatusCondition>,
    /// How often nodes were remediated lately, while the check limits that.
    pub recent: Vec<Recent>,
    pub phase: Name,
    pub reason: Name,
}

/// The counters still count all.
const LISTED_MAX: usize = 2000;
/// Of unhealthy nodes, and of when nodes were remediated, in bytes: an object in etcd has 1.5 MiB at most.
const LISTED_BYTES_MAX: usize = 900_000;
const RECENT_BYTES_MAX: usize = 300_000;

/// A node is listed from the moment it is unhealthy until it is healthy and nothing of ours is left on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnhealthyNode {
    pub name: Name,
    pub remediations: Vec<Remediation>,
    /// Since when its conditions are healthy again, while remediations are still there.
    pub healthy_since: Option<Wall>,
    /// Its remediations stay although it is healthy, as the check asks.
    pub healthy_delayed: bool,
    /// Why nothing is done about this very node.
    pub held: Option<Name>,
}

impl UnhealthyNode {
    pub fn new(name: Name, remediations: Vec<Remediation>) -> UnhealthyNode {
        UnhealthyNode { name, remediations, healthy_since: None, healthy_delayed: false, held: None }
    }

    /// As it is stored, in bytes, about.
    fn weight(&self) -> usize {
        let remediation =
            |one: &Remediation| 350 + one.key.to_string().len() + one.template.as_ref().map_or(0, |name| name.len());
        let held = self.held.as_ref().map_or(0, |held| 20 + held.len() + held.matches(['"', '\\']).count());
        // A node with remediations is named once more, with when the first began.
        150 + 2 * self.name.len() + held + self.remediations.iter().map(remediation).sum::<usize>()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remediation {
    pub key: ObjectKey,
    pub uid: Name,
    pub started_at: Wall,
    pub template: Option<Name>,
    /// When its step was given up.
    pub timed_out_at: Option<Wall>,
}

impl From<&Object> for Remediation {
    fn from(object: &Object) -> Remediation {
        Remediation {
            key: object.key.clone(),
            uid: object.uid.clone(),
            started_at: object.created_at,
            template: object.template.clone(),
            timed_out_at: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusCondition {
    pub kind: Box<str>,
    pub status: Status,
    pub reason: Box<str>,
    pub message: Name,
    pub since: Wall,
}

/// What the plan found out about a check, from which its status is made.
#[derive(Default)]
pub struct Findings {
    pub observed: usize,
    pub healthy: usize,
    pub unhealthy: Vec<Found>,
    /// Why the check can do nothing at all.
    pub disabled: Option<Because>,
    /// Why the check starts nothing now.
    pub shut: Option<Because>,
    /// Where else it starts nothing now.
    pub dark_zones: Vec<Because>,
    pub storm: Option<Storm>,
    pub recent: Vec<Recent>,
    /// Remediations that came and went before any status could tell.
    pub brief: Vec<(Name, Remediation)>,
    /// What we are not allowed to do, and what is done instead.
    pub limits: Vec<String>,
    /// Leases named like that of another controller's leader, where they do not count.
    pub ignored_leases: Vec<Name>,
    /// The check asks for more than all nodes.
    pub clamped: bool,
    /// Is the cluster being upgraded? None: what stood there stays.
    pub upgrading: Option<StatusCondition>,
    /// One is seen for longer than upgrades take.
    pub upgrade_takes_long: bool,
}

/// A node that is listed as unhealthy.
pub struct Found {
    pub node: UnhealthyNode,
    /// Why it is unhealthy; none while it is healthy and only its remediation is left.
    pub because: Option<Because>,
    /// Why nothing is done about this very node.
    pub held: Option<Because>,
    /// It has the label that would exclude it, but without a value.
    pub label_is_empty: bool,
}

impl CheckStatus {
    /// What it says apart from times. To write the same again and again would mean that it does not stay as written.
    pub fn gist(&self) -> u64 {
        let mut timeless = self.clone();
        timeless.conditions.iter_mut().for_each(|condition| condition.since = Wall(0));
        for node in &mut timeless.unhealthy {
            // That there is a time is news, whichever it is.
            node.healthy_since = node.healthy_since.map(|_| Wall(0));
            node.remediations.iter_mut().for_each(|one| one.timed_out_at = one.timed_out_at.map(|_| Wall(0)));
        }
        let mut hasher = DefaultHasher::new();
        timeless.hash(&mut hasher);
        hasher.finish()
    }
}

/// While something is unknown nothing new can be said, but that.
pub fn status_in_doubt(check: &Check, doubt: &Because, now: Wall) -> CheckStatus {
    let mut status = check.status.clone();
    status.conditions.retain(|condition| &*condition.kind != reasons::REMEDIATION_ALLOWED);
    status.conditions.push(condition(check, reasons::REMEDIATION_ALLOWED, Status::False, reasons::STALE, doubt.to_string(), now));
    status
}

pub fn status(check: &Check, findings: &Findings, now: Wall) -> CheckStatus {
    let (phase, reason) = phase(findings);
    CheckStatus {
        observed: u32::try_from(findings.observed).ok(),
        healthy: u32::try_from(findings.healthy).ok(),
        unhealthy: listed(&findings.unhealthy),
        conditions: conditions(check, findings, now),
        recent: recent(&findings.recent),
        phase: phase.into(),
        reason: reason.into(),
    }
}

/// As many as there is room for, first of all those with remediations: which steps have been tried stands nowhere else.
fn listed(unhealthy: &[Found]) -> Vec<UnhealthyNode> {
    let (mut many, mut bytes) = (0, 0);
    let mut fits = |found: &Found| {
        (many, bytes) = (many + 1, bytes + found.node.weight());
        many <= LISTED_MAX && bytes <= LISTED_BYTES_MAX
    };
    let mut is_listed = vec![false; unhealthy.len()];
    for is_bare in [false, true] {
        for (at, found) in unhealthy.iter().enumerate().filter(|(_, found)| found.node.remediations.is_empty() == is_bare) {
            is_listed[at] = fits(found);
        }
    }
    let listed = unhealthy.iter().zip(is_listed).filter(|(_, is_listed)| *is_listed);
    listed.map(|(found, _)| found.node.clone()).collect()
}

/// As many as there is room for, first of all those that were remediated most often: they are nearest to their limit.
fn recent(all: &[Recent]) -> Vec<Recent> {
    let mut often_first: Vec<&Recent> = all.iter().collect();
    often_first.sort_by_key(|recent| Reverse(recent.started_at.len()));
    let mut bytes = 0;
    let fits = |recent: &&&Recent| {
        bytes += recent.weight();
        bytes <= RECENT_BYTES_MAX
    };
    let mut listed: Vec<Recent> = often_first.iter().take(LISTED_MAX).take_while(fits).copied().cloned().collect();
    listed.sort_by(|one, other| one.node.cmp(&other.node));
    listed
}

fn conditions(check: &Check, findings: &Findings, now: Wall) -> Vec<StatusCondition> {
    let mut conditions = vec![disabled(check, findings, now), allowed(check, findings, now)];
    if !findings.limits.is_empty() {
        let message = findings.limits.join("; ");
        conditions.push(condition(check, reasons::LIMITED_RIGHTS, Status::True, reasons::NOT_GRANTED, message, now));
    }
    if !findings.ignored_leases.is_empty() {
        let message = rival::ignored(&findings.ignored_leases);
        conditions.push(condition(check, reasons::LEASE_IGNORED, Status::True, reasons::ELSEWHERE, message, now));
    }
    let is_left = |found: &&Found| matches!(found.held, Some(Because::Overlapping { .. }));
    let left = findings.unhealthy.iter().filter(is_left).filter_map(|found| Some((found.node.name.clone(), found.held.clone()?)));
    let left: Vec<(Name, Because)> = left.collect();
    if !left.is_empty() {
        conditions.push(condition(check, reasons::OVERLAPPING, Status::True, reasons::OVERLAPPING, sentence(&left), now));
    }
    if findings.clamped {
        let message = "the threshold is above 100%, and read as 100%: write what you mean".to_owned();
        conditions.push(condition(check, reasons::THRESHOLD_CLAMPED, Status::True, reasons::ABOVE_ALL, message, now));
    }
    conditions.extend(findings.upgrading.as_ref().or_else(|| known(check, reasons::UPGRADING)).cloned());
    if findings.upgrade_takes_long {
        let message = "an upgrade has been seen for more than two hours without a break, and nothing is repaired meanwhile: see the condition Upgrading for what shows it".to_owned();
        conditions.push(condition(check, reasons::UPGRADE_TAKES_LONG, Status::True, reasons::MORE_THAN_TWO_HOURS, message, now));
    }
    let storm = match findings.storm {
        Some(Storm::NotWatched) => return conditions,
        Some(Storm::Calm) => [(Status::False, "no storm"), (Status::False, "no storm")],
        Some(Storm::Raging) => [
            (Status::True, "too many nodes are not healthy"),
            (Status::False, "the cooldown begins when fewer nodes are unhealthy"),
        ],
        Some(Storm::Cooling { .. }) => [
            (Status::True, "waiting for stormCooldownDuration"),
            (Status::True, "few enough nodes are unhealthy, waiting for stormCooldownDuration"),
        ],
        // Not judged now: what stood there stays.
        None => {
            let kinds = [reasons::STORM_ACTIVE, reasons::STORM_COOLDOWN_ACTIVE];
            conditions.extend(kinds.iter().filter_map(|kind| known(check, kind)).cloned());
            return conditions;
        }
    };
    // The clock of the cooldown must not begin early.
    for ((status, message), kind) in storm.into_iter().zip([reasons::STORM_ACTIVE, reasons::STORM_COOLDOWN_ACTIVE]) {
        conditions.push(condition(check, kind, status, reasons::THRESHOLD_CHANGE, message.to_owned(), now.next_second()));
    }
    conditions
}

fn phase(findings: &Findings) -> (&'static str, String) {
    if let Some(because) = &findings.disabled {
        return (reasons::PHASE_DISABLED, format!("NHC is disabled: {}: {because}", disabled_reason(because)));
    }
    if let Some(Because::Paused { requests }) = &findings.shut {
        return (reasons::PHASE_PAUSED, format!("NHC is paused: {}", requests.join(",")));
    }
    if let Some(because @ Because::AllPaused { .. }) = &findings.shut {
        return (reasons::PHASE_PAUSED, format!("NHC is paused: {because}"));
    }
    let remediated = findings.unhealthy.iter().filter(|found| !found.node.remediations.is_empty()).count();
    match remediated {
        0 => (reasons::PHASE_ENABLED, "NHC is enabled, no ongoing remediation".to_owned()),
        1 => (reasons::PHASE_REMEDIATING, "NHC is remediating 1 node".to_owned()),
        many => (reasons::PHASE_REMEDIATING, format!("NHC is remediating {many} nodes")),
    }
}

fn disabled(check: &Check, findings: &Findings, now: Wall) -> StatusCondition {
    match &findings.disabled {
        Some(because) => condition(check, reasons::DISABLED, Status::True, disabled_reason(because), because.to_string(), now),
        None => {
            condition(check, reasons::DISABLED, Status::False, reasons::ENABLED_REASON, "the check is enabled".to_owned(), now)
        }
    }
}

fn allowed(check: &Check, findings: &Findings, now: Wall) -> StatusCondition {
    let (status, reason, message) = match (&findings.disabled, &findings.shut) {
        (Some(because), _) => (Status::False, reasons::DISABLED_REASON, because.to_string()),
        (None, Some(because @ Because::PauseUnknown { .. })) => (Status::False, reasons::PAUSE_UNKNOWN, because.to_string()),
        (None, Some(because @ Because::Stale { .. })) => (Status::False, reasons::STALE, because.to_string()),
        (None, Some(because @ (Because::Paused { .. } | Because::AllPaused { .. }))) => {
            (Status::False, reasons::PAUSED, because.to_string())
        }
        (None, Some(because @ Because::StormCooldown)) => (Status::False, reasons::STORM, because.to_string()),
        (None, Some(because @ Because::Upgrading { .. })) => (Status::False, reasons::UPGRADE, because.to_string()),
        (None, Some(because @ Because::ClockDiffers { .. })) => (Status::False, reasons::CLOCK_DIFFERS, because.to_string()),
        (None, Some(because @ Because::UpgradeUnknown { .. })) => (Status::False, reasons::UPGRADE_UNKNOWN, because.to_string()),
        (None, Some(because)) => (Status::False, reasons::TOO_MANY_UNHEALTHY, because.to_string()),
        (None, None) => {
            let dark = findings.dark_zones.iter().map(|because| format!("; {because}"));
            (Status::True, reasons::GATE_OPEN, format!("unhealthy nodes are remediated{}", dark.collect::<String>()))
        }
    };
    condition(check, reasons::REMEDIATION_ALLOWED, status, reason, message, now)
}

fn disabled_reason(because: &Because) -> &'static str {
    match because {
        Because::TemplateInvalid { .. } => reasons::TEMPLATE_INVALID,
        Because::PolicyInvalid { .. } => reasons::SPEC_INVALID,
        Because::ForeignController { .. } => reasons::FOREIGN_CONTROLLER,
        // Also where no namespace says where to look, as in the reference.
        _ => reasons::TEMPLATE_NOT_FOUND,
    }
}

/// `since` moves only when the status of the condition does.
pub fn condition(check: &Check, kind: &str, status: Status, reason: &str, message: String, now: Wall) -> StatusCondition {
    let since = match known(check, kind) {
        Some(known) if known.status == status => known.since,
        Some(_) | None => now.whole_seconds(),
    };
    StatusCondition { kind: kind.into(), status, reason: reason.into(), message: text::message(message).into(), since }
}

fn known<'a>(check: &'a Check, kind: &str) -> Option<&'a StatusCondition> {
    check.status.conditions.iter().find(|condition| &*condition.kind == kind)
}

/// Above this many alike at once, one event speaks for all: a rack that loses power is one thing that happened.
const EVENTS_ALIKE_MAX: usize = 10;

/// What changed between the status that stands in the API and the one that should.
pub fn events(check: &Check, findings: &Findings, desired: &CheckStatus, now: Wall) -> Vec<Event> {
    let mut events = flips(check, desired, now);
    let known: BTreeMap<&Name, &UnhealthyNode> = check.status.unhealthy.iter().map(|node| (&node.name, node)).collect();
    let (mut detected, mut labels, mut skipped, mut exhausted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for found in &findings.unhealthy {
        let (node, before) = (&found.node.name, known.get(&found.node.name));
        // A node that becomes unhealthy again later is another event.
        let id = || format!("{node}/{}", found.because.as_ref().map(anchor).unwrap_or_default());
        if let (Some(because), None) = (&found.because, before) {
            detected.push((node.clone(), id(), format!("node {node}: {because}")));
            if found.label_is_empty {
                let text = format!("node {node}: the label {EXCLUDE_LABEL} has no value and excludes nothing: write \"true\"");
                labels.push((node.clone(), id(), text));
            }
        }
        if let Some(held) = found.held.as_ref().filter(|_| before.is_none_or(|before| before.held != found.node.held)) {
            let list = match held {
                // The condition tells of it.
                Because::Overlapping { .. } => continue,
                Because::NoTemplateLeft => &mut exhausted,
                _ => &mut skipped,
            };
            let held_before = before.and_then(|before| before.held.as_deref()).unwrap_or_default();
            list.push((node.clone(), format!("{}/{held_before}/{held}", id()), format!("node {node}: {held}")));
        }
    }
    events.extend(alike(check, false, reasons::EVENT_DETECTED_UNHEALTHY, "became unhealthy", detected, now));
    events.extend(alike(check, true, reasons::EVENT_INVALID_NODE_LABEL, "have an exclude label without a value", labels, now));
    events.extend(alike(check, true, reasons::EVENT_REMEDIATION_SKIPPED, "are not remediated now", skipped, now));
    events.extend(alike(check, true, reasons::EVENT_NO_TEMPLATE_LEFT, "have no template left", exhausted, now));

    let uids = |status: &CheckStatus| -> Vec<(Name, Remediation)> {
        status.unhealthy.iter().flat_map(|node| node.remediations.iter().map(|r| (node.name.clone(), r.clone()))).collect()
    };
    let (before, after) = (uids(&check.status), uids(desired));
    let (before, after) = (before.as_slice(), after.as_slice());
    let only_in = |these: &[(Name, Remediation)], those: &[(Name, Remediation)], verb: &str| -> Vec<(Name, String, String)> {
        let others: BTreeSet<&Name> = those.iter().map(|(_, other)| &other.uid).collect();
        these
            .iter()
            .filter(|(_, remediation)| !others.contains(&remediation.uid))
            .map(|(node, remediation)| {
                (node.clone(), remediation.uid.to_string(), format!("{verb} {} for node {node}", remediation.key))
            })
            .collect()
    };
    let created = [only_in(after, before, "created"), only_in(&findings.brief, &[], "created")].concat();
    let removed = [only_in(before, after, "removed"), only_in(&findings.brief, &[], "removed")].concat();
    events.extend(alike(check, false, reasons::EVENT_REMEDIATION_CREATED, "are being remediated", created, now));
    events.extend(alike(check, false, reasons::EVENT_REMEDIATION_REMOVED, "are no longer remediated", removed, now));
    events
}

/// Conditions of the check that changed their status.
fn flips(check: &Check, desired: &CheckStatus, now: Wall) -> Vec<Event> {
    let flipped = desired.conditions.iter().filter_map(|condition| {
        let before = known(check, &condition.kind);
        let changed = before.is_none_or(|before| before.status != condition.status || before.reason != condition.reason);
        changed.then_some((before, condition))
    });
    let mut events = Vec::new();
    for (before, condition) in flipped {
        let (warning, reason) = match (&*condition.kind, &condition.status) {
            (reasons::DISABLED, Status::True) => (true, reasons::EVENT_DISABLED),
            (reasons::DISABLED, _) => (false, reasons::EVENT_ENABLED),
            (reasons::OVERLAPPING, _) => (true, reasons::OVERLAPPING),
            (reasons::UPGRADE_TAKES_LONG, _) => (true, reasons::UPGRADE_TAKES_LONG),
            (reasons::LEASE_IGNORED, _) => (true, reasons::LEASE_IGNORED),
            (reasons::THRESHOLD_CLAMPED, _) => (true, reasons::EVENT_THRESHOLD_CLAMPED),
            (reasons::STORM_ACTIVE, Status::True) => (true, reasons::EVENT_STORM_STARTED),
            (reasons::STORM_ACTIVE, _) if before.is_some_and(|before| before.status == Status::True) => {
                (false, reasons::EVENT_STORM_ENDED)
            }
            (reasons::STORM_COOLDOWN_ACTIVE, Status::True) => (true, reasons::EVENT_STORM_COOLDOWN_STARTED),
            (reasons::REMEDIATION_ALLOWED, Status::False) if &*condition.reason != reasons::DISABLED_REASON => {
                (![reasons::PAUSED, reasons::UPGRADE].contains(&&*condition.reason), reasons::EVENT_REMEDIATION_SKIPPED)
            }
            _ => continue,
        };
        // What was before, not what is now, makes the name: now is another time in each attempt.
        let anchor = format!("{}/{:?}", condition.reason, before.map(|before| (before.since, &before.reason)));
        let message = match reason {
            reasons::EVENT_DISABLED => &*format!("{}: {}", condition.reason, condition.message),
            _ => &condition.message,
        };
        events.push(event(check, warning, reason, &anchor, message, now));
    }
    events
}

/// `found` is (node, what makes the event's name, text).
fn alike(
    check: &Check,
    warning: bool,
    reason: &'static str,
    verb: &str,
    found: Vec<(Name, String, String)>,
    now: Wall,
) -> Vec<Event> {
    if found.len() <= EVENTS_ALIKE_MAX {
        return found.into_iter().map(|(_, anchor, text)| event(check, warning, reason, &anchor, &text, now)).collect();
    }
    let anchor: String = found.iter().map(|(_, anchor, _)| anchor.as_str()).collect::<Vec<_>>().join("/");
    let named: Vec<&str> = found.iter().take(EVENTS_ALIKE_MAX).map(|(node, ..)| &**node).collect();
    let text = format!("{} nodes {verb}: {} and {} more", found.len(), named.join(", "), found.len() - named.len());
    vec![Event { sums_up: true, ..event(check, warning, reason, &anchor, &text, now) }]
}

fn event(check: &Check, warning: bool, reason: &'static str, anchor: &str, message: &str, now: Wall) -> Event {
    let event = Event::new(check.key(), &check.uid, reason, anchor, &format!("[remediation] {message}"), now);
    Event { warning, ..event }
}

/// Somebody who looks for the host of a remediation should know why no Machine owns it. Once for each uid of the node: it is
/// no news that it names the same Machine the next time.
pub fn mismatch(check: &Check, node: &Node, because: &Because, now: Wall) -> Event {
    let text = format!("node {}: {because}", node.name);
    event(check, true, reasons::EVENT_MACHINE_MISMATCH, &format!("{}/{because}", node.uid), &text, now)
}

fn anchor(because: &Because) -> String {
    match because {
        Because::Expired(found) => format!("{}={}@{}", found.kind, found.status, found.since.0),
        other => other.to_string(),
    }
}
