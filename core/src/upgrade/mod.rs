//! Is the cluster being upgraded, so that nothing new should be started?
//!
//! An upgrade drains, reboots and overloads nodes; to remediate them meanwhile disturbs it. It stops only what
//! would start: clean-up and time-outs of what runs go on. A detector whose object is not there, or was never
//! readable, is off. One that worked and then does not holds everything back until it is known again.

mod detector;
mod signals;
mod stamp;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::detector::{Detector, Detectors, MAINTENANCE_ANNOTATIONS, MAINTENANCE_TAINTS, Mark, Off};
use self::signals::{AGAIN_MAX, Change, KUBELETS_CHANGED, SERVER_CHANGED, Said, Server};
pub use self::signals::{FOLLOWS_WITHIN, Signals};
use crate::decision::Because;
use crate::effect::{Effect, EffectKey};
use crate::facts::{Check, Name, Node, Policy, Signal, SignalFact, Source, Status};
use crate::health::{Health, Known, assess};
use crate::kinds;
use crate::nhc::{self, StatusCondition};
use crate::reasons;
use crate::time::{Mono, Now};
use crate::world::World;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upgrading {
    Seen {
        detector: Detector,
        /// Which version, node or lock, as part of a sentence.
        detail: Name,
        /// When it counts as over unless facts change; None: only then.
        until: Option<Mono>,
    },
    /// Nobody can tell.
    Unknown {
        detector: Detector,
        /// Doubts come and go with every broken connection: before then it is not worth a word. None: not yet.
        told_at: Option<Mono>,
    },
}

/// The server is asked for its version so often; nothing tells of it by itself.
const SERVER_ASKED_EVERY: Duration = Duration::from_secs(5 * 60);
/// Older than this, and asked again and again meanwhile, it is not known any more.
const SERVER_VALID_FOR: Duration = Duration::from_secs(10 * 60);
/// Watches are back within seconds after most breaks.
const TOLD_AFTER: Duration = Duration::from_secs(10);
/// With the pauses between them some seconds, as above.
const TOLD_AFTER_TRIES: u32 = 5;

/// A node that does not come back from its upgrade would stop the repair of all, itself included: so long after it became
/// unhealthy it is no sign of one any more.
pub const SICK_COUNTS_FOR: Duration = Duration::from_secs(30 * 60);
/// Most nodes take some minutes: after that long somebody should look.
const TAKES_LONG_AFTER: Duration = Duration::from_secs(2 * 3600);

/// A node that may be a sign of an upgrade.
pub struct Sign<'a> {
    pub known: &'a Known,
    /// Until when it is one, if it is unhealthy.
    counts_until: Option<Mono>,
}

impl<'a> Sign<'a> {
    pub fn of(known: &'a Known, health: &Health) -> Sign<'a> {
        let counts_until = match health {
            Health::Unhealthy { due_at, .. } => Some(due_at.after(SICK_COUNTS_FOR)),
            Health::Healthy
            | Health::Pending { .. }
            | Health::NeverReported { .. }
            | Health::Unreadable { .. }
            | Health::Leaving => None,
        };
        Sign { known, counts_until }
    }

    fn counts(&self, now: Mono) -> bool {
        self.counts_until.is_none_or(|until| now < until)
    }
}

pub fn upgrading(world: &World, check: &Check, policy: &Policy, targets: &[Sign], now: Now) -> Option<Upgrading> {
    let on = Detector::ALL.into_iter().filter(|detector| world.detectors.is_on(*detector));
    let found = on.filter_map(|detector| match detector {
        Detector::ClusterVersion => signalled(world, policy, Signal::ClusterVersions, now.mono),
        Detector::MachineConfig => machine_config(targets, now.mono),
        Detector::KubeletVersions => kubelets_move(world, check, targets, now.mono),
        Detector::ServerVersion => server_moved(world, check, targets, now.mono),
        Detector::Kured => signalled(world, policy, Signal::Kured, now.mono),
        Detector::Plans => signalled(world, policy, Signal::Plans, now.mono),
        Detector::Maintenance => None,
    });
    // What is seen says more than what is not known.
    found.min_by_key(|upgrading| matches!(upgrading, Upgrading::Unknown { .. }))
}

/// Stops only what would be done to this node.
pub fn under_maintenance(world: &World, known: &Known) -> Option<Because> {
    let Detectors { annotations, taints, .. } = &world.detectors;
    if !world.detectors.is_on(Detector::Maintenance) {
        return None;
    }
    let annotated = || known.node.annotations.iter().find(|own| annotations.iter().any(|mark| mark.is_annotation(own)));
    let tainted = known.node.taints.iter().find(|own| taints.iter().any(|mark| mark.is_taint(own)));
    let mark = match tainted {
        Some(taint) => format!("the taint {}", taint.key),
        None => format!("the annotation {}", annotated()?.0),
    };
    Some(Because::UnderMaintenance { mark: mark.into() })
}

impl Upgrading {
    pub fn because(&self) -> Because {
        match self {
            Upgrading::Seen { detector, detail, .. } => Because::Upgrading { detector: *detector, detail: detail.clone() },
            Upgrading::Unknown { detector, .. } => Because::UpgradeUnknown { detector: *detector },
        }
    }

    /// When to look again.
    pub fn wake_at(&self, now: Mono) -> Option<Mono> {
        match self {
            Upgrading::Seen { until, .. } => *until,
            Upgrading::Unknown { told_at, .. } => *told_at,
        }
        .filter(|at| *at > now)
    }

    pub fn is_told(&self, now: Mono) -> bool {
        match self {
            Upgrading::Seen { .. } => true,
            Upgrading::Unknown { told_at, .. } => told_at.is_some_and(|at| at <= now),
        }
    }
}

/// The condition `Upgrading` of a check; None: what stands there stays. It is also the memory of changed versions over
/// restarts, so it tells when they changed last.
pub fn condition(
    world: &World,
    check: &Check,
    targets: &[Sign],
    upgrading: Option<&Upgrading>,
    now: Now,
) -> Option<StatusCondition> {
    let (status, reason, message) = match upgrading {
        Some(upgrading) if !upgrading.is_told(now.mono) => return None,
        Some(seen @ Upgrading::Seen { detector, .. }) => {
            let mut message = seen.because().to_string();
            let kubelets = last_kubelet_change(world, check, targets, now.mono).map(|(change, _)| change);
            let kubelets = kubelets.filter(|_| world.detectors.is_on(Detector::KubeletVersions));
            let server = last_server_change(world, check).filter(|_| world.detectors.is_on(Detector::ServerVersion));
            for (mark, change) in [(KUBELETS_CHANGED, kubelets), (SERVER_CHANGED, server)] {
                if let Some(change) = change.filter(|change| now.mono < change.until()) {
                    message.push_str(mark);
                    message.push_str(&stamp::write(change.wall));
                }
            }
            (Status::True, detector.reason(), message)
        }
        Some(unknown @ Upgrading::Unknown { detector, .. }) => {
            (Status::Unknown, detector.reason(), unknown.because().to_string())
        }
        None if world.detectors.on.is_empty() => {
            (Status::False, reasons::UPGRADING_OFF, "upgrades are not looked for: all detectors are switched off".to_owned())
        }
        None => (Status::False, reasons::NOT_UPGRADING, "no upgrade is seen".to_owned()),
    };
    Some(nhc::condition(check, reasons::UPGRADING, status, reason, message, now.wall))
}

/// When the check has seen an upgrade without a break for so long that people are told, by the condition `Upgrading`.
pub fn takes_long_at(world: &World, condition: &StatusCondition, now: Now) -> Option<Mono> {
    (condition.status == Status::True).then(|| world.clock.anchor(condition.since, now).after(TAKES_LONG_AFTER))
}

/// What has to be asked and watched for all this.
#[derive(Default)]
pub struct Needs {
    pub watches: BTreeSet<Source>,
    pub asks: Vec<Effect>,
    /// Detectors that are switched on and do not work from the start.
    pub off: Vec<(Detector, Off)>,
    pub wake_at: Option<Mono>,
}

pub fn needs(world: &World, now: Mono) -> Needs {
    let mut needs = Needs::default();
    // Where there is nothing to hold back, nobody needs to know.
    if !world.checks.values().any(|check| world.is_ours(check)) {
        return needs;
    }
    for signal in Signal::ALL.into_iter().filter(|signal| world.detectors.is_on(signal.detector())) {
        needs.find(world, signal, now);
        needs.watch(world, signal, now);
    }
    if world.detectors.is_on(Detector::ServerVersion) {
        let due_at = match (&world.signals.server, world.signals.refusal(Detector::ServerVersion)) {
            (Some(server), _) => Some(server.heard_at.after(SERVER_ASKED_EVERY)),
            (None, Some(refusal)) => {
                needs.off.push((Detector::ServerVersion, refusal.off));
                Some(refusal.again_at)
            }
            (None, None) => None,
        };
        if due_at.is_none_or(|due_at| needs.is_due(due_at, now)) {
            needs.asks.push(Effect::ServerVersion);
        }
    }
    needs
}

impl Needs {
    /// Is the signal's kind served? A definition that comes tells so itself; what no definition tells of is asked rarely.
    fn find(&mut self, world: &World, signal: Signal, now: Mono) {
        let Some(kind) = signal.kind() else { return };
        let missing = || world.kinds.get(&kind.api_version).filter(|_| world.served(&kind).is_none());
        let due_at = match world.signals.refusal(signal.detector()).filter(|_| !world.kinds.contains_key(&kind.api_version)) {
            Some(refusal) => Some(refusal.again_at),
            None => kinds::due_at(world, &kind.api_version, false)
                .or_else(|| missing().map(|known| known.recheck_at.after(AGAIN_MAX))),
        };
        if due_at.is_some_and(|at| self.is_due(at, now)) {
            self.asks.push(Effect::Discover { api_version: kind.api_version });
        }
    }

    fn watch(&mut self, world: &World, signal: Signal, now: Mono) {
        let source = Source::Signals(signal);
        let hearing = hearing(world, signal, now);
        if let Hearing::Off(off) = hearing {
            self.off.push((signal.detector(), off));
        }
        let is_served = signal.kind().is_none_or(|kind| world.served(&kind).is_some());
        let may_be_tried = match world.signals.refusal(signal.detector()) {
            Some(refusal) if is_served && !world.is_synced(&source) => self.is_due(refusal.again_at, now),
            Some(_) | None => true,
        };
        if is_served && may_be_tried {
            self.watches.insert(source);
        }
    }

    fn is_due(&mut self, at: Mono, now: Mono) -> bool {
        if at > now {
            self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
        }
        at <= now
    }
}

/// How well do we hear a signal?
enum Hearing {
    Well,
    Off(Off),
    /// Not yet, or not any more.
    Not,
}

fn hearing(world: &World, signal: Signal, now: Mono) -> Hearing {
    let source = Source::Signals(signal);
    let refusal = world.signals.refusal(signal.detector());
    if let Some(kind) = signal.kind() {
        match world.kinds.get(&kind.api_version) {
            Some(_) if world.served(&kind).is_some() => {}
            Some(_) => return Hearing::Off(Off::NotInstalled),
            None => return refusal.map_or(Hearing::Not, |refusal| Hearing::Off(refusal.off)),
        }
    }
    match refusal {
        _ if world.is_fresh(&source, now) => Hearing::Well,
        Some(refusal) if !world.is_synced(&source) => Hearing::Off(refusal.off),
        Some(_) | None => Hearing::Not,
    }
}

/// Somebody else says so.
fn signalled(world: &World, policy: &Policy, signal: Signal, now: Mono) -> Option<Upgrading> {
    let detector = signal.detector();
    let seen = |said: &Said| match &said.fact {
        SignalFact::Busy { what, nodes, .. } => {
            let ends_at = [said.ends_at, sick_until(world, policy, nodes, now)].into_iter().flatten().min();
            let seen = || Upgrading::Seen { detector, detail: what.clone(), until: ends_at };
            ends_at.is_none_or(|ends_at| now < ends_at).then(seen)
        }
        SignalFact::Quiet => None,
    };
    match hearing(world, signal, now) {
        Hearing::Off(_) => None,
        Hearing::Not => Some(Upgrading::Unknown { detector, told_at: told_at(world, signal, now) }),
        Hearing::Well => world.signals.said(signal).find_map(|(_, said)| seen(said)),
    }
}

/// Until when these nodes count as a sign, if all of them are unhealthy by the rules of the check. None: as long as it stands.
fn sick_until(world: &World, policy: &Policy, nodes: &[Name], now: Mono) -> Option<Mono> {
    let until = |name: &Name| world.nodes.get(name).and_then(|known| Sign::of(known, &assess(known, policy, now)).counts_until);
    nodes.iter().map(until).collect::<Option<Vec<Mono>>>()?.into_iter().max()
}

fn told_at(world: &World, signal: Signal, now: Mono) -> Option<Mono> {
    match (world.silent_since(&Source::Signals(signal)), signal.kind()) {
        (Some(since), _) => Some(since.after(TOLD_AFTER)),
        (None, Some(kind)) => told_after_tries(world, &EffectKey::Discover(kind.api_version), now),
        (None, None) => None,
    }
}

fn told_after_tries(world: &World, key: &EffectKey, now: Mono) -> Option<Mono> {
    (world.flights.tries(key) >= TOLD_AFTER_TRIES).then_some(now)
}

pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";

fn machine_config(targets: &[Sign], now: Mono) -> Option<Upgrading> {
    let differs = |node: &Node| annotation(node, DESIRED_CONFIG) != annotation(node, CURRENT_CONFIG);
    let moves = |node: &Node| !annotation(node, DESIRED_CONFIG).is_empty() && differs(node);
    let sign = targets.iter().find(|sign| sign.counts(now) && moves(&sign.known.node))?;
    let node = &sign.known.node;
    let detail = format!("node {} moves to machine config {}", node.name, annotation(node, DESIRED_CONFIG));
    Some(Upgrading::Seen { detector: Detector::MachineConfig, detail: detail.into(), until: sign.counts_until })
}

fn annotation<'a>(node: &'a Node, key: &str) -> &'a str {
    node.annotations.iter().find(|(own, _)| &**own == key).map_or("", |(_, value)| value)
}

/// A cluster may be mixed for ever; only one whose versions changed lately is being upgraded.
fn kubelets_move(world: &World, check: &Check, targets: &[Sign], now: Mono) -> Option<Upgrading> {
    let (change, until) = last_kubelet_change(world, check, targets, now).filter(|(_, until)| now < *until)?;
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for Sign { known, .. } in targets.iter().filter(|sign| !sign.known.node.kubelet_version.is_empty()) {
        *versions.entry(&known.node.kubelet_version).or_default() += 1;
    }
    if versions.len() < 2 {
        return None;
    }
    let (from, to) = match &change.versions {
        Some((from, to)) => (&**from, &**to),
        None => (*versions.keys().min_by_key(|text| numbers(text))?, *versions.keys().max_by_key(|text| numbers(text))?),
    };
    let have = versions.get(to).copied().unwrap_or(0);
    let detail = format!("kubelets move from {from} to {to} ({have} of {} nodes have it)", targets.len());
    Some(Upgrading::Seen { detector: Detector::KubeletVersions, detail: detail.into(), until: Some(until) })
}

/// And until when it is a sign of an upgrade.
fn last_kubelet_change<'a>(world: &'a World, check: &Check, targets: &[Sign], now: Mono) -> Option<(&'a Change, Mono)> {
    let recalled = world.signals.recalled_kubelets(check).map(|change| (change, change.until()));
    if world.signals.no_kubelet_changed() {
        return recalled;
    }
    let seen = targets.iter().filter(|sign| sign.counts(now)).filter_map(|sign| {
        let change = world.signals.kubelet_change(&sign.known.node)?;
        Some((change, sign.counts_until.map_or(change.until(), |until| until.min(change.until()))))
    });
    // What the condition recalls of a node that is no sign any more is none either.
    let is_of_the_sick = |change: &Change| {
        let mut sick = targets.iter().filter(|sign| !sign.counts(now));
        sick.any(|sign| world.signals.kubelet_change(&sign.known.node).is_some_and(|own| own.wall == change.wall))
    };
    let recalled = recalled.filter(|(change, _)| !is_of_the_sick(change));
    recalled.into_iter().chain(seen).max_by_key(|(change, _)| change.at)
}

/// A server that is ahead of its nodes may stay so for ever, too.
fn server_moved(world: &World, check: &Check, targets: &[Sign], now: Mono) -> Option<Upgrading> {
    let detector = Detector::ServerVersion;
    let version = match &world.signals.server {
        Some(Server { refused: false, version, heard_at, .. }) if now.since(*heard_at) <= SERVER_VALID_FOR => version,
        Some(_) => return Some(Upgrading::Unknown { detector, told_at: Some(now) }),
        None if world.signals.refusal(detector).is_some() => return None,
        None => {
            let told_at = told_after_tries(world, &EffectKey::ServerVersion, now);
            return Some(Upgrading::Unknown { detector, told_at });
        }
    };
    let change = last_server_change(world, check).filter(|change| now < change.until())?;
    let minor = |text: &str| numbers(text).map(|[major, minor, _]| (major, minor));
    let is_behind = |sign: &&Sign| matches!((minor(&sign.known.node.kubelet_version), minor(version)), (Some(own), Some(server)) if own < server);
    let behind = targets.iter().filter(is_behind).count();
    if behind == 0 {
        return None;
    }
    let from = change.versions.as_ref().map(|(from, _)| format!(" from {from}")).unwrap_or_default();
    let detail = format!("the API server moved{from} to {version}, {behind} of {} nodes are behind it", targets.len());
    Some(Upgrading::Seen { detector, detail: detail.into(), until: Some(change.until()) })
}

fn last_server_change<'a>(world: &'a World, check: &Check) -> Option<&'a Change> {
    let seen = world.signals.server.as_ref().and_then(|server| server.changed.as_ref());
    world.signals.recalled_server(check).into_iter().chain(seen).max_by_key(|change| change.at)
}

/// Major, minor and patch of `v1.36.0+k3s1`.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let plain = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)])
}
