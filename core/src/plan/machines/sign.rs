//! What stands on a machine about its health?
//!
//! Owners act on what they read there, so nothing is written that does not follow from the facts, and what was written
//! goes with the check that wrote it.

use super::earlier::Earlier;
use super::{Round, Subject, find, is_beside, is_beside_all, is_target};
use crate::effect::{Change, Edit, Effect, Signing, Target};
use crate::event::Event;
use crate::facts::{Claim, Kind, Source, Status};
use crate::mhc::facts::{Board, ClusterKey, Dialect, Flavour, Machine, MachineCheck, Posted, Repair, Sign, Slot, Style};
use crate::mhc::judge::{Finding, Judgement};
use crate::mhc::status::{self, Post};
use crate::plan::Draft;
use crate::reasons;
use crate::world::World;

/// What a sign is to become, in each style.
enum Wish<'a> {
    Stay,
    Verdict(Option<&'a [Finding]>),
    /// Wait for somebody, unless that one has said something already.
    Ask,
    WaitingFor(&'a Kind),
    /// Goes if it is ours.
    Goes,
}

impl<'a> Draft<'a> {
    /// What is to be written on a machine now, if anything is. `starts`: its owner is to repair it.
    pub(super) fn sign(&self, round: &Round<'a>, subject: &Subject<'a>, starts: bool) -> Option<Signing> {
        let machine = subject.machine;
        if machine.place.flavour == Flavour::OpenShift || round.paused || round.doubt.is_some() {
            return None;
        }
        let verdict = match &subject.judgement {
            Judgement::Healthy => Wish::Verdict(None),
            Judgement::Unhealthy { findings, .. } => Wish::Verdict(Some(findings)),
            Judgement::Pending { .. } | Judgement::Unjudged(_) => Wish::Stay,
        };
        let owner = match subject.judgement {
            _ if starts => Wish::Ask,
            // Left over from when it was to repair: it would delete what somebody else is to repair now.
            _ if round.policy.repair != Repair::Owner && is_asked_by_us(machine) => Wish::Goes,
            // Otherwise it would still be there when the machine is ill the next time, and its owner would act at once.
            Judgement::Healthy => Wish::Goes,
            Judgement::Pending { .. } | Judgement::Unhealthy { .. } | Judgement::Unjudged(_) => Wish::Stay,
        };
        let external = match (subject.remediation, self.earlier(machine, round.kind.as_ref())) {
            (Some(object), Earlier::Nothing) => Wish::WaitingFor(&object.key.kind),
            (None, Earlier::Nothing) if !subject.maybe_created => Wish::Goes,
            (Some(_) | None, _) => Wish::Stay,
        };
        let wishes =
            [(Sign::HealthCheckSucceeded, verdict), (Sign::OwnerRemediated, owner), (Sign::ExternallyRemediated, external)];
        let mut signing = self.signing(machine, &wishes)?;
        signing.tells = self.marked(round, subject);
        Some(signing)
    }

    /// That it became unhealthy is told once, when it is written down.
    fn marked(&self, round: &Round<'a>, subject: &Subject<'a>) -> Vec<Event> {
        let Judgement::Unhealthy { findings, .. } = &subject.judgement else { return Vec::new() };
        let known = subject.machine.sign(Sign::HealthCheckSucceeded);
        if known.is_some_and(|sign| sign.status == Status::False) {
            return Vec::new();
        }
        let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let anchor = format!("{:?}", known.map(|sign| sign.since));
        let (check, machine) = (round.check, subject.machine);
        let message = format!("unhealthy under MachineHealthCheck {}: {}", check.place, text.join("; "));
        let (event, at) = (reasons::EVENT_MARKED_UNHEALTHY, self.now.wall);
        vec![Event::new(machine.key(), &machine.uid, event, &anchor, &message, at)]
    }

    /// Nobody repairs anything by what it says, so it must not keep others from being repaired.
    pub(super) fn sign_leisurely(&mut self, round: &Round<'a>, subject: &Subject<'a>) {
        if (self.has_time() || subject.machine.sign(Sign::OwnerRemediated).is_some())
            && let Some(signing) = self.sign(round, subject, false)
        {
            self.post(signing);
        }
    }

    /// An owner may act at any moment on a request that stands: to take it back is urgent.
    fn post(&mut self, signing: Signing) {
        let is_urgent = signing.edits.iter().any(|edit| edit.sign == Sign::OwnerRemediated);
        let effect = Effect::Sign(signing);
        if is_urgent {
            self.send(effect);
        } else {
            self.send_in_time(effect);
        }
    }

    fn signing(&self, machine: &Machine, wishes: &[(Sign, Wish)]) -> Option<Signing> {
        let (mut edits, mut missing) = (Vec::new(), Vec::new());
        for style in self.world.styles(machine.dialect).iter().copied() {
            let Some(board) = machine.board(style) else { continue };
            let before = edits.len();
            for (sign, wish) in
                wishes.iter().filter(|(sign, _)| status::styles_of(*sign, machine.dialect).any(|own| own == style))
            {
                edits.extend(self.edit(machine, board, *sign, wish));
            }
            if board.missing > 0 && edits.len() > before {
                missing.push((style, board.missing));
            }
        }
        (!edits.is_empty()).then(|| Signing { machine: target(machine), edits, missing, tells: Vec::new() })
    }

    fn edit(&self, machine: &Machine, board: &Board, sign: Sign, wish: &Wish) -> Option<Edit> {
        let style = board.style;
        let known = board.get(sign);
        let post: Option<Post> = match wish {
            Wish::Stay => return None,
            Wish::Verdict(findings) => Some(status::verdict(*findings, style)),
            Wish::Ask if known.is_some_and(|known| known.status != Status::True) => return None,
            Wish::WaitingFor(_) if known.is_some_and(|known| !known.ours) => return None,
            Wish::Ask => Some(status::waiting(style)),
            Wish::WaitingFor(kind) => Some(status::waiting_for(kind)),
            Wish::Goes if known.is_some_and(|known| is_ours(sign, known)) => None,
            Wish::Goes => return None,
        };
        // Nearly always it stands there already, and every plan asks for every machine.
        if post.as_ref().zip(known).is_some_and(|(post, known)| post.stands_as(known, style)) {
            return None;
        }
        let posted = post.map(|post| post.after(known, style, machine.generation, self.now.wall));
        let change = match (board.slot(sign), posted) {
            (Slot::At(at, _), Some(posted)) => Change::Replace(*at, posted),
            (Slot::At(at, _), None) => Change::Remove(*at),
            (Slot::Before(at), Some(posted)) => Change::Insert(*at, posted),
            (Slot::Before(_), None) => return None,
        };
        Some(Edit { style, sign, change })
    }

    /// Takes back what was written on machines that no check watches over any more: an owner would still act on it.
    pub(super) fn clear_signs(&mut self) {
        let world = self.world;
        if world.machine_claim == Claim::Off {
            return;
        }
        let is_known = |dialect: &Dialect| {
            [Source::MachineChecks(*dialect), Source::Machines(*dialect)]
                .iter()
                .all(|source| world.is_fresh(source, self.now.mono))
        };
        let clusters_are_known = match find::clusters(world) {
            Ok(dialect) => dialect.is_none_or(|dialect| world.is_fresh(&Source::Clusters(dialect), self.now.mono)),
            Err(_) => false,
        };
        let is_judged = |flavour: &Flavour| *flavour == Flavour::OpenShift || clusters_are_known;
        let dialects = Flavour::ALL.into_iter().filter(is_judged).flat_map(|flavour| flavour.dialects().iter().copied());
        let known: Vec<Dialect> = dialects.filter(is_known).collect();
        for machine in world.fleet.machines.values().filter(|machine| known.contains(&machine.dialect)) {
            let posted = |sign: Sign| machine.boards.iter().filter_map(move |board| board.get(sign));
            let is_marked = Sign::ALL.into_iter().any(|sign| posted(sign).any(|known| is_ours(sign, known)));
            let is_ours = is_marked || self.made_for(machine).next().is_some();
            if !is_ours || machine.marks.paused || is_in_paused_cluster(world, machine) {
                continue;
            }
            // Under one that is being deleted nothing is done any more; and one has no say in what others make.
            let has_say = |check: &&MachineCheck| !check.deleting && !check.policy.as_ref().is_ok_and(is_beside_all);
            let mut beside = world.fleet.checks.values().filter(|check| is_beside(check, machine)).filter(has_say);
            if beside.clone().any(|check| check.policy.as_ref().is_ok_and(|policy| is_target(world, machine, check, policy))) {
                continue;
            }
            // Of a check that cannot be read nobody knows whether it watches over this one; but nobody is asked under it.
            let may_be_watched = beside.any(|check| check.policy.is_err());
            let left = if may_be_watched { Earlier::Nothing } else { self.earlier(machine, None) };
            if let Earlier::There(object) = left {
                self.remove_earlier(object);
            }
            let wish = |sign: Sign| match sign {
                Sign::HealthCheckSucceeded | Sign::ExternallyRemediated if may_be_watched => Wish::Stay,
                // It says which kind is to be looked for.
                Sign::ExternallyRemediated if !matches!(left, Earlier::Nothing) => Wish::Stay,
                Sign::HealthCheckSucceeded | Sign::ExternallyRemediated | Sign::OwnerRemediated => Wish::Goes,
            };
            if let Some(signing) = self.signing(machine, &Sign::ALL.map(|sign| (sign, wish(sign)))) {
                self.post(signing);
            }
        }
    }
}

/// Somebody is moving it, or works on it by hand.
fn is_in_paused_cluster(world: &World, machine: &Machine) -> bool {
    let key = |name: &str| ClusterKey { namespace: machine.place.namespace.clone(), name: name.into() };
    machine.cluster().and_then(|name| world.fleet.clusters.get(&key(name))).is_some_and(|cluster| cluster.paused)
}

/// For certain: only the new style knows who wrote which condition, and remediators that give up write this one, too.
pub(crate) fn is_asked_by_us(machine: &Machine) -> bool {
    let asked = machine.board(Style::New).and_then(|board| board.get(Sign::OwnerRemediated));
    asked.is_some_and(|asked| is_ours(Sign::OwnerRemediated, asked))
}

/// What owners write there is never touched: ours is only what is as we wrote it.
fn is_ours(sign: Sign, posted: &Posted) -> bool {
    let is_request = posted.status == Status::False && &*posted.reason == reasons::WAITING_FOR_REMEDIATION;
    posted.ours && (sign != Sign::OwnerRemediated || is_request)
}

pub fn target(machine: &Machine) -> Target {
    Target { place: machine.place.clone(), dialect: machine.dialect, uid: machine.uid.clone(), version: machine.version.clone() }
}
