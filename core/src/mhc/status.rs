//! What does a check say about itself and about machines, and in which words?
//!
//! Owners, dashboards and scripts read types and reasons; the messages are for people.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::decision::Because;
use crate::event::Event;
use crate::facts::{Kind, Name, Status};
use crate::mhc::facts::{Dialect, Flavour, Machine, MachineCheck, MachineCheckStatus, Posted, Repair, Sign, Style};
use crate::mhc::judge::Finding;
use crate::reasons;
use crate::rival;
use crate::text;
use crate::time::Wall;

/// The schema of Cluster API allows no more.
const TARGETS_MAX: usize = 10_000;
/// Of machines, or of findings, that are named in a message; the others are counted.
const NAMED_MAX: usize = 10;

const WARNING: &str = "Warning";
const ERROR: &str = "Error";

/// A condition to be written.
pub struct Post {
    pub status: Status,
    pub reason: &'static str,
    pub severity: Option<&'static str>,
    pub message: String,
}

impl Post {
    fn new(status: Status, reason: &'static str, severity: Option<&'static str>, message: String) -> Post {
        Post { status, reason, severity, message: text::message(message) }
    }

    /// Is there nothing to write? Who wrote it last does not matter, nor for which generation.
    pub fn stands_as(&self, known: &Posted, style: Style) -> bool {
        known.status == self.status
            && *known.reason == *self.reason
            && *known.message == *self.message
            && known.severity.as_deref() == self.severity_in(style)
    }

    fn severity_in(&self, style: Style) -> Option<&'static str> {
        self.severity.filter(|_| style == Style::Legacy && self.status != Status::True)
    }

    /// As it stands in the API afterwards. Its date moves only when it says something else; in the new style, only when the
    /// status does.
    pub fn after(self, before: Option<&Posted>, style: Style, generation: i64, now: Wall) -> Posted {
        let is_same = |before: &&Posted| match style {
            Style::New => before.status == self.status,
            Style::Legacy => self.stands_as(before, style),
        };
        let since = before.filter(is_same).map_or(now.whole_seconds(), |before| before.since);
        let severity = self.severity_in(style);
        let Post { status, reason, message, .. } = self;
        Posted {
            status,
            reason: reason.into(),
            severity: severity.map(Into::into),
            message: message.into(),
            since,
            observed_generation: (style == Style::New).then_some(generation),
            ours: true,
        }
    }
}

/// What HealthCheckSucceeded says of a machine.
pub fn verdict(findings: Option<&[Finding]>, style: Style) -> Post {
    let Some(findings) = findings else {
        // The legacy style has no reason for what is well.
        let reason = if style == Style::New { reasons::HEALTH_CHECK_SUCCEEDED } else { "" };
        return Post::new(Status::True, reason, None, String::new());
    };
    let mut lines: Vec<String> = findings.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if findings.len() > NAMED_MAX {
        lines.push(format!("and {} more", findings.len() - NAMED_MAX));
    }
    let message = match style {
        Style::New => lines.iter().fold("The health check failed:".to_owned(), |all, line| format!("{all}\n  * {line}")),
        // As ever.
        Style::Legacy if findings.iter().all(|finding| matches!(finding, Finding::NodeGone { .. })) => String::new(),
        Style::Legacy => lines.join("; "),
    };
    Post::new(Status::False, reason(findings, style), Some(WARNING), message)
}

/// What is wrong with the machine itself is told first.
fn reason(findings: &[Finding], style: Style) -> &'static str {
    let of = |finding: &Finding| match (finding, style) {
        (Finding::MachineCondition(_), _) => (0, reasons::UNHEALTHY_MACHINE),
        (Finding::Asked, Style::New) => (1, reasons::HAS_REMEDIATE_ANNOTATION),
        (Finding::Asked, Style::Legacy) => (1, reasons::HAS_REMEDIATE_ANNOTATION_LEGACY),
        (Finding::Failed, _) => (1, reasons::MACHINE_FAILED),
        (Finding::NodeGone { .. }, Style::New) => (2, reasons::NODE_DELETED),
        (Finding::NodeGone { .. }, Style::Legacy) => (2, reasons::NODE_NOT_FOUND),
        (Finding::NoNode { .. }, _) => (2, reasons::NODE_STARTUP_TIMEOUT),
        (Finding::NodeCondition(_), _) => (2, reasons::UNHEALTHY_NODE),
    };
    findings.iter().map(of).min().map_or(reasons::UNHEALTHY_NODE, |(_, reason)| reason)
}

/// What ExternallyRemediated says while there is an object of this kind.
pub fn waiting_for(kind: &Kind) -> Post {
    let message = format!("{WAITING_FOR}{kind}");
    Post::new(Status::False, reasons::WAITING_FOR_REMEDIATION, Some(WARNING), message)
}

/// The kind in such a condition, if it is ours.
pub fn awaited(posted: &Posted) -> Option<Kind> {
    let (kind, api_version) = posted.message.strip_prefix(WAITING_FOR)?.strip_suffix(')')?.split_once(" (")?;
    let kind = Kind { api_version: api_version.into(), kind: kind.into() };
    // A field manager is whatever its writer says: what is of Kubernetes itself was never made by us.
    (posted.ours && kind.is_plausible() && !kind.group().is_empty()).then_some(kind)
}

const WAITING_FOR: &str = "Waiting for ";

/// What OwnerRemediated says when it is up to the owner to act.
pub fn waiting(style: Style) -> Post {
    let message = if style == Style::New { "Waiting for remediation" } else { "" };
    Post::new(Status::False, reasons::WAITING_FOR_REMEDIATION, Some(WARNING), message.to_owned())
}

/// What the plan found out about a check.
pub struct Findings {
    pub targets: Vec<Name>,
    pub healthy: usize,
    pub unhealthy: usize,
    /// What may become unhealthy beside what is.
    pub left: usize,
    /// Why nothing starts.
    pub shut: Option<Because>,
    /// What was paused; none: what stands there is somebody else's to say.
    pub paused: Option<bool>,
    /// Why the template cannot be used.
    pub template: Option<Because>,
    /// Why what was made from it cannot be created.
    pub request: Option<Because>,
    /// Machines that belong to another check, and whose.
    pub overlapping: Vec<(Name, Because)>,
    /// Machines about which nothing is done for reasons of their own.
    pub held: Vec<(Name, Because)>,
    /// Leases named like that of another controller's leader, where they do not count.
    pub ignored_leases: Vec<Name>,
    /// It still has machines power-cycled by annotation.
    pub deprecated: bool,
}

/// `styles`: those that stay when they are written.
pub fn status(check: &MachineCheck, styles: &[Style], found: &Findings, now: Wall) -> MachineCheckStatus {
    let count = |many: usize| Some(u32::try_from(many).unwrap_or(u32::MAX));
    let is_openshift = check.dialect.flavour() == Flavour::OpenShift;
    let known = &check.status;
    let mut status = MachineCheckStatus {
        expected: count(found.targets.len()),
        healthy: count(found.healthy),
        remediations_allowed: count(found.left),
        observed_generation: Some(check.generation).filter(|_| !is_openshift),
        targets: if is_openshift { Vec::new() } else { found.targets.iter().take(TARGETS_MAX).cloned().collect() },
        new: known.new.clone(),
        legacy: known.legacy.clone(),
    };
    for style in styles {
        let allowed = allowed(found, *style);
        put(check, &mut status, *style, reasons::REMEDIATION_ALLOWED, Some(allowed), now);
    }
    // These have but one style; ours, the newest that there is.
    let newest = styles[0];
    if newest == Style::New
        && let Some(paused) = found.paused
    {
        let (status_of, reason) = if paused { (Status::True, reasons::PAUSED) } else { (Status::False, reasons::NOT_PAUSED) };
        put(check, &mut status, Style::New, reasons::PAUSED, Some(Post::new(status_of, reason, None, String::new())), now);
    }
    let trouble = |because: &Option<Because>, reason| {
        because.as_ref().map(|because| Post::new(Status::False, reason, Some(ERROR), because.to_string()))
    };
    let template = trouble(&found.template, reasons::EXTERNAL_TEMPLATE_NOT_FOUND);
    put(check, &mut status, Style::Legacy, reasons::EXTERNAL_TEMPLATE_AVAILABLE, template, now);
    let request = trouble(&found.request, reasons::EXTERNAL_REQUEST_FAILED);
    put(check, &mut status, Style::Legacy, reasons::EXTERNAL_REQUEST_AVAILABLE, request, now);
    let listed = |machines: &[(Name, Because)], reason| {
        (!machines.is_empty()).then(|| Post::new(Status::True, reason, Some(WARNING), sentence(machines)))
    };
    let overlapping = listed(&found.overlapping, reasons::OVERLAPPING);
    put(check, &mut status, newest, reasons::OVERLAPPING, overlapping, now);
    let held = found.held.first().map_or(reasons::MACHINES_HELD, |(_, because)| held_reason(check, because));
    put(check, &mut status, newest, reasons::REMEDIATION_HELD, listed(&found.held, held), now);
    let ignored = (!found.ignored_leases.is_empty())
        .then(|| Post::new(Status::True, reasons::ELSEWHERE, Some(WARNING), rival::ignored(&found.ignored_leases)));
    put(check, &mut status, newest, reasons::LEASE_IGNORED, ignored, now);
    let deprecated = found.deprecated.then(|| {
        let message = "the annotation machine.openshift.io/remediation-strategy is deprecated: use remediationTemplate, `resus check --rewrite` prints it";
        Post::new(Status::True, reasons::STRATEGY_ANNOTATION, Some(WARNING), message.to_owned())
    });
    put(check, &mut status, newest, reasons::DEPRECATED_STRATEGY, deprecated, now);
    status
}

/// While nothing can be said about the machines: what stood there stays, and nothing is allowed.
pub fn status_shut(check: &MachineCheck, styles: &[Style], because: &Because, now: Wall) -> MachineCheckStatus {
    let mut status = check.status.clone();
    for style in styles {
        let shut = Post::new(Status::False, reason_of(because), Some(WARNING), because.to_string());
        put(check, &mut status, *style, reasons::REMEDIATION_ALLOWED, Some(shut), now);
    }
    status
}

/// The Cluster, or the check itself, is paused: the only thing that is said is that.
pub fn status_paused(check: &MachineCheck, styles: &[Style], now: Wall) -> MachineCheckStatus {
    let mut status = check.status.clone();
    if styles.contains(&Style::New) {
        let paused = Post::new(Status::True, reasons::PAUSED, None, String::new());
        put(check, &mut status, Style::New, reasons::PAUSED, Some(paused), now);
    }
    status
}

fn allowed(found: &Findings, style: Style) -> Post {
    match &found.shut {
        None => {
            let reason = if style == Style::New { reasons::GATE_OPEN } else { "" };
            Post::new(Status::True, reason, None, String::new())
        }
        Some(because) => {
            let mut message = because.to_string().replace(" nodes are", " machines are");
            if matches!(because, Because::TooManyUnhealthy { .. } | Because::OutsideRange { .. }) {
                let for_too_long = match found.unhealthy {
                    0 => NONE_YET.to_owned(),
                    many => format!("{many} of them for longer than allowed"),
                };
                let _ = write!(message, "; {for_too_long}");
            }
            Post::new(Status::False, reason_of(because), Some(WARNING), message)
        }
    }
}

/// A limit that nobody runs into yet is no news; that there was nobody stands in the message.
const NONE_YET: &str = "none of them for longer than allowed";

fn reason_of(because: &Because) -> &'static str {
    match because {
        Because::TooManyUnhealthy { .. } | Because::OutsideRange { .. } => reasons::TOO_MANY_UNHEALTHY,
        Because::AllPaused { .. } => reasons::PAUSED,
        Because::PauseUnknown { .. } => reasons::PAUSE_UNKNOWN,
        Because::PolicyInvalid { .. } => reasons::MACHINE_CHECK_INVALID,
        Because::ClusterMissing { .. } => reasons::CLUSTER_MISSING,
        Because::NoAccess { .. } => reasons::CLUSTER_UNREACHABLE,
        Because::ClockDiffers { .. } => reasons::CLOCK_DIFFERS,
        Because::AnotherCluster { .. } => reasons::ANOTHER_CLUSTER,
        Because::NoNodeKnown { .. } => reasons::NO_NODE_KNOWN,
        Because::ForeignController { .. } => reasons::FOREIGN_CONTROLLER,
        Because::TemplateMissing { .. }
        | Because::TemplateInvalid { .. }
        | Because::TemplateUnplaced { .. }
        | Because::KindNotServed { .. } => reasons::TEMPLATE_UNAVAILABLE,
        _ => reasons::STALE,
    }
}

/// As the reference calls it in its events, where it does.
fn held_reason(check: &MachineCheck, because: &Because) -> &'static str {
    let repair = check.policy.as_ref().map(|policy| &policy.repair);
    match (because, repair) {
        (Because::NoController, _) => reasons::EVENT_NO_CONTROLLER,
        (Because::Refused { .. }, Ok(Repair::PowerCycle)) => reasons::EVENT_ANNOTATION_FAILED,
        (Because::Refused { .. }, Ok(Repair::Deletion)) => reasons::EVENT_MACHINE_DELETION_FAILED,
        (_, _) => reasons::MACHINES_HELD,
    }
}

/// Why nothing is done about some machines, or nodes.
pub fn sentence(these: &[(Name, Because)]) -> String {
    let mut text = String::new();
    for (name, because) in these.iter().take(NAMED_MAX) {
        let _ = write!(text, "{}{name}: {because}", if text.is_empty() { "" } else { "; " });
    }
    if these.len() > NAMED_MAX {
        let _ = write!(text, "; and {} more", these.len() - NAMED_MAX);
    }
    text
}

fn put(check: &MachineCheck, status: &mut MachineCheckStatus, style: Style, kind: &str, post: Option<Post>, now: Wall) {
    let list = match style {
        Style::New => &mut status.new,
        Style::Legacy => &mut status.legacy,
    };
    let at = list.iter().position(|(own, _)| &**own == kind);
    let stands = |post: &Post| at.is_some_and(|at| post.stands_as(&list[at].1, style));
    if post.as_ref().is_some_and(stands) {
        return;
    }
    let posted = post.map(|post| post.after(at.map(|at| &list[at].1), style, check.generation, now));
    match (at, posted) {
        (Some(at), Some(posted)) => list[at].1 = posted,
        (None, None) => {}
        (Some(at), None) => {
            list.remove(at);
        }
        (None, Some(posted)) => {
            list.push((kind.into(), posted));
            list.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
    }
}

impl MachineCheckStatus {
    /// What it says apart from times; see [`crate::nhc::CheckStatus::gist`].
    pub fn gist(&self) -> u64 {
        let mut timeless = self.clone();
        for (_, posted) in timeless.new.iter_mut().chain(&mut timeless.legacy) {
            (posted.since, posted.ours, posted.observed_generation) = (Wall(0), false, None);
        }
        let mut hasher = DefaultHasher::new();
        timeless.hash(&mut hasher);
        hasher.finish()
    }

    pub fn condition(&self, kind: &str) -> Option<&Posted> {
        self.new.iter().chain(&self.legacy).find(|(own, _)| &**own == kind).map(|(_, posted)| posted)
    }
}

/// Where no other name fits.
const HELD: &str = reasons::EVENT_REMEDIATION_SKIPPED;

/// What changed between the status that stands in the API and the one that should.
pub fn events(check: &MachineCheck, desired: &MachineCheckStatus, now: Wall) -> Vec<Event> {
    let kinds = [
        (reasons::REMEDIATION_ALLOWED, Status::False, reasons::EVENT_REMEDIATION_RESTRICTED),
        (reasons::EXTERNAL_TEMPLATE_AVAILABLE, Status::False, reasons::EVENT_TEMPLATE_UNAVAILABLE),
        (reasons::EXTERNAL_REQUEST_AVAILABLE, Status::False, reasons::EVENT_REQUEST_FAILED),
        (reasons::OVERLAPPING, Status::True, reasons::OVERLAPPING),
        (reasons::REMEDIATION_HELD, Status::True, HELD),
        (reasons::LEASE_IGNORED, Status::True, reasons::LEASE_IGNORED),
        (reasons::DEPRECATED_STRATEGY, Status::True, reasons::DEPRECATED_STRATEGY),
    ];
    let mut events = Vec::new();
    for (kind, bad, event) in kinds {
        let (before, after) = (check.status.condition(kind), desired.condition(kind));
        let Some(after) = after.filter(|after| after.status == bad) else { continue };
        let is_quiet = |posted: &Posted| posted.status != bad || posted.message.ends_with(NONE_YET);
        let is_news = before.is_none_or(|before| is_quiet(before) || before.reason != after.reason) && !is_quiet(after);
        // What was before, not what is now, makes the name: now is another time in each attempt.
        let anchor = format!("{}/{:?}", after.reason, before.map(|before| (before.since, &before.reason)));
        let event = match (event, &*after.reason) {
            (HELD, reasons::EVENT_ANNOTATION_FAILED) => reasons::EVENT_ANNOTATION_FAILED,
            (HELD, reasons::EVENT_MACHINE_DELETION_FAILED) => reasons::EVENT_MACHINE_DELETION_FAILED,
            (event, _) => event,
        };
        if is_news {
            events.push(Event::new(check.key(), &check.uid, event, &anchor, &after.message, now).warning());
        }
    }
    events
}

/// The same on the check and on the machine, as people look at either.
pub fn event_on_both(
    check: &MachineCheck,
    machine: &Machine,
    reason: &'static str,
    anchor: &str,
    message: &str,
    now: Wall,
) -> Vec<Event> {
    let on_machine = Event::new(machine.key(), &machine.uid, reason, anchor, message, now);
    let named = format!("Machine {}: {message}", machine.place.name);
    vec![on_machine, Event::new(check.key(), &check.uid, reason, &format!("{}/{anchor}", machine.uid), &named, now)]
}

/// Styles in which this sign is written.
pub fn styles_of(sign: Sign, dialect: Dialect) -> impl Iterator<Item = Style> {
    // The legacy style never had ExternallyRemediated.
    dialect.styles().iter().copied().filter(move |style| sign != Sign::ExternallyRemediated || *style == Style::New)
}

/// As Go writes it: users know `5m0s`.
pub struct GoStyle(pub Duration);

impl std::fmt::Display for GoStyle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (millis, seconds) = (self.0.subsec_millis(), self.0.as_secs());
        if seconds == 0 && millis > 0 {
            return write!(f, "{millis}ms");
        }
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match millis {
            0 => write!(f, "{seconds}s"),
            _ => write!(f, "{}s", format!("{seconds}.{millis:03}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_as_in_go() {
        for (millis, text) in [
            (0, "0s"),
            (300, "300ms"),
            (1500, "1.5s"),
            (30_000, "30s"),
            (300_000, "5m0s"),
            (5_400_000, "1h30m0s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(GoStyle(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
