//! What is done about one machine?

use super::earlier::Earlier;
use super::{Means, Round, Subject, is_beside_all, remediation_key, sign};
use crate::decision::{Because, Outcome};
use crate::effect::{Effect, EffectKey, Owner};
use crate::escalate::Workshop;
use crate::event::Event;
use crate::facts::{ObjectKey, Status};
use crate::mhc::facts::{Machine, Sign, Style};
use crate::mhc::judge::{Finding, Judgement, NodeOf, Unjudged};
use crate::mhc::status;
use crate::plan::Draft;
use crate::plan::attempt::{Clear, Deletion, LOOK_VALID_FOR};
use crate::time::Mono;
use crate::{quorum, reasons};

/// Looks under way in one Cluster: one that accepts and never answers must not take all the room from the others.
const LOOKS_PER_CLUSTER_MAX: usize = 8;

impl<'a> Draft<'a> {
    pub(super) fn decide_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>) -> Outcome {
        let is_unhealthy = matches!(subject.judgement, Judgement::Unhealthy { .. });
        let waits = |because| if subject.is_idle() { Outcome::wait(because) } else { Outcome::keep(because) };
        // Whoever takes care of the node that it names does so for another host.
        if let Judgement::Unjudged(why @ Unjudged::AnotherHost { .. }) = &subject.judgement {
            return waits(Because::Unjudged(why.clone()));
        }
        if let Some(owner) = self.other_machine_check(round.check, subject) {
            return match is_unhealthy {
                true => Outcome::hold(Because::Overlapping { owner }),
                false => Outcome::leave(Because::Healthy),
            };
        }
        // Beside others it does its own, and what is left of them goes when nobody watches over the machine any more.
        let earlier = match is_beside_all(round.policy) {
            true => Earlier::Nothing,
            false => self.earlier(subject.machine, round.kind.as_ref()),
        };
        match earlier {
            Earlier::Nothing => {}
            Earlier::Unknown(source) => return Outcome::wait(Because::Stale { source }),
            Earlier::There(object) => {
                if round.doubt.is_none() {
                    self.remove_earlier(object);
                }
                return Outcome::remove(Because::Leaving { key: object.key.clone() });
            }
        }
        if !is_unhealthy {
            self.find_out_machine(round, subject);
        }
        match &subject.judgement {
            Judgement::Healthy => self.recover_machine(round, subject),
            Judgement::Pending { due_at } => {
                self.wake(Some(*due_at));
                self.sign_leisurely(round, subject);
                waits(Because::MachinePending)
            }
            Judgement::Unjudged(Unjudged::PowerCycling) => self.stop_power_cycle(round, subject),
            Judgement::Unjudged(why) => waits(Because::Unjudged(why.clone())),
            Judgement::Unhealthy { findings, due_at } => self.repair_machine(round, subject, findings, *due_at),
        }
    }

    fn recover_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>) -> Outcome {
        self.sign_leisurely(round, subject);
        let Some(object) = subject.remediation else { return Outcome::leave(Because::Healthy) };
        if let Some(source) = &round.doubt {
            return Outcome::keep(Because::Stale { source: source.clone() });
        }
        if object.deleting {
            return Outcome::remove(Because::Leaving { key: object.key.clone() });
        }
        let message = format!("removed {}, as the Machine is healthy", object.key);
        let tells = self.both(round, subject, reasons::EVENT_REMEDIATION_REMOVED, &object.uid, &message);
        match self.delete(object, tells) {
            Deletion::Sent => Outcome::remove(Because::Healthy),
            Deletion::Queued => Outcome::remove(Because::Queued),
            Deletion::KindNotServed => Outcome::keep(Because::KindNotServed { key: object.key.clone() }),
        }
    }

    /// Its node is well: what was asked for is not needed any more, unless the actuator has begun.
    fn stop_power_cycle(&mut self, round: &Round<'a>, subject: &Subject<'a>) -> Outcome {
        let machine = subject.machine;
        if machine.marks.power_cycling || machine.deleting || round.doubt.is_some() || round.paused {
            return Outcome::keep(Because::Unjudged(Unjudged::PowerCycling));
        }
        let message = "removed the annotation host.metal3.io/external-remediation, as the Machine is healthy";
        let tells = self.on_machine(machine, reasons::EVENT_ANNOTATION_REMOVED, &machine.version.0, message);
        self.send(Effect::PowerCycle { machine: sign::target(machine), on: false, tells });
        Outcome::remove(Because::Healthy)
    }

    fn repair_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>, findings: &[Finding], due_at: Mono) -> Outcome {
        let machine = subject.machine;
        if let Some(object) = subject.remediation {
            self.sign_leisurely(round, subject);
            let key = object.key.clone();
            return match object.deleting {
                true => Outcome::wait(Because::Leaving { key }),
                false => Outcome::keep(Because::MachineRemediated { key }),
            };
        }
        if machine.deleting {
            self.sign_leisurely(round, subject);
            return Outcome::wait(Because::MachineLeaving);
        }
        match &round.means {
            Means::Owner => self.have_owner_repair(round, subject, due_at),
            Means::Template(workshop) => self.have_template_repair(round, subject, workshop, findings, due_at),
            Means::NoTemplate(because) => self.hold_remediation(round, subject, because),
            Means::PowerCycle if !machine.failed => self.have_power_cycled(round, subject, due_at),
            Means::PowerCycle | Means::Deletion => self.have_replaced(round, subject, due_at),
        }
    }

    /// Owners act on HealthCheckSucceeded and OwnerRemediated both being False.
    fn have_owner_repair(&mut self, round: &Round<'a>, subject: &Subject<'a>, due_at: Mono) -> Outcome {
        let machine = subject.machine;
        let styles = self.world.styles(machine.dialect);
        let posted = |sign: Sign, style: Style| machine.board(style).and_then(|board| board.get(sign));
        let is_false = |sign: Sign, style: Style| posted(sign, style).filter(|posted| posted.status == Status::False);
        // Owners read the newest style, and older ones the other; what they write in either is theirs.
        let is_told = styles.iter().all(|style| posted(Sign::OwnerRemediated, *style).is_some());
        match (is_false(Sign::OwnerRemediated, styles[0]), is_false(Sign::HealthCheckSucceeded, styles[0])) {
            (Some(asked), Some(_)) if is_told => {
                self.sign_leisurely(round, subject);
                return Outcome::keep(Because::OwnersTurn { reason: asked.reason.clone() });
            }
            (_, _) => {}
        }
        if let Some(because) = self.shut_for_machine(round, subject) {
            // To say that the machine is unhealthy would now be to have it repaired.
            let would_act = |style: &Style| {
                is_false(Sign::OwnerRemediated, *style).is_some() && is_false(Sign::HealthCheckSucceeded, *style).is_none()
            };
            if styles.iter().any(would_act) {
                return Outcome::hold(Because::OwnerNotDone);
            }
            self.sign_leisurely(round, subject);
            return Outcome::hold(because);
        }
        if let Clear::Break(waits) = self.look_at_machine(round, subject, due_at) {
            return waits;
        }
        let sent = self.sign(round, subject, true).is_none_or(|signing| self.send(Effect::Sign(signing)));
        self.started(round, subject, sent, Because::Signing)
    }

    fn have_template_repair(
        &mut self,
        round: &Round<'a>,
        subject: &Subject<'a>,
        workshop: &Workshop<'a>,
        findings: &[Finding],
        due_at: Mono,
    ) -> Outcome {
        if let Some(because) = self.shut_for_machine(round, subject) {
            return self.hold_remediation(round, subject, &because);
        }
        let outcome = self.make_remediation(round, subject, workshop, findings, due_at);
        // What is being made in this moment is written down together with why, once it is there.
        if !matches!(outcome.because, Because::Looking | Because::Queued | Because::Creating { .. }) {
            self.sign_leisurely(round, subject);
        }
        outcome
    }

    fn hold_remediation(&mut self, round: &Round<'a>, subject: &Subject<'a>, because: &Because) -> Outcome {
        self.find_out_machine(round, subject);
        self.sign_leisurely(round, subject);
        Outcome::hold(round.gates.first_step().unwrap_or(because).clone())
    }

    fn make_remediation(
        &mut self,
        round: &Round<'a>,
        subject: &Subject<'a>,
        workshop: &Workshop<'a>,
        findings: &[Finding],
        due_at: Mono,
    ) -> Outcome {
        let machine = subject.machine;
        let key = remediation_key(&workshop.kind, machine);
        if let Clear::Break(waits) = self.clear_to_make(round, subject, &key, due_at) {
            return waits;
        }
        let why: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let message = format!("created {key}: {}", why.join("; "));
        let tells = self.both(round, subject, reasons::EVENT_REMEDIATION_CREATED, &machine.version.0, &message);
        let owner = Owner::Machine {
            dialect: machine.dialect,
            name: machine.place.name.clone(),
            uid: machine.uid.clone(),
            cluster: machine.cluster().map(Into::into),
            check_uid: round.check.uid.clone(),
            tells,
        };
        let sent = self.create(workshop, &key, owner);
        self.started(round, subject, sent, Because::Creating { key })
    }

    fn clear_to_make(&mut self, round: &Round<'a>, subject: &Subject<'a>, key: &ObjectKey, due_at: Mono) -> Clear {
        // From another template, a moment ago: two repairs must not meet.
        if let Some(other) = self.may_be_made_for(subject.machine).find(|other| *other != key) {
            return Clear::Break(Outcome::wait(Because::Creating { key: other.clone() }));
        }
        self.clear_to_create(key)?;
        self.look_at_machine(round, subject, due_at)
    }

    /// What may have been created for the machine, of whichever kind, and is not seen yet.
    pub(in crate::plan) fn may_be_made_for<'s>(
        &'s self,
        machine: &'s Machine,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'s, 'a> {
        self.on_their_way.get(&(&machine.place.namespace, &machine.place.name)).into_iter().flatten().copied()
    }

    /// Where an answer was lost, or the watch does not show what was stored, the server is asked.
    fn find_out_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>) {
        if let Some(kind) = round.kind.as_ref().filter(|_| subject.maybe_created && subject.remediation.is_none()) {
            self.find_out_key(&remediation_key(kind, subject.machine));
        }
    }

    fn have_power_cycled(&mut self, round: &Round<'a>, subject: &Subject<'a>, due_at: Mono) -> Outcome {
        let machine = subject.machine;
        if machine.marks.power_cycle {
            return Outcome::keep(Because::PowerCycleAsked);
        }
        let key = EffectKey::PowerCycle(machine.place.clone());
        if let Clear::Break(waits) = self.clear_to_change(round, subject, &key, due_at, Because::PowerCycleAsked) {
            return waits;
        }
        let message = "asked for a power-cycle by the annotation host.metal3.io/external-remediation";
        let tells = self.on_machine(machine, reasons::EVENT_ANNOTATION_ADDED, &machine.version.0, message);
        let sent = self.send(Effect::PowerCycle { machine: sign::target(machine), on: true, tells });
        self.started(round, subject, sent, Because::PowerCycleAsked)
    }

    /// Whoever controls the machine makes another.
    fn have_replaced(&mut self, round: &Round<'a>, subject: &Subject<'a>, due_at: Mono) -> Outcome {
        let machine = subject.machine;
        if !machine.has_controller {
            self.tell_skipped(round, machine);
            return Outcome::hold(Because::NoController);
        }
        let key = EffectKey::DeleteMachine(machine.place.clone());
        if let Clear::Break(waits) = self.clear_to_change(round, subject, &key, due_at, Because::DeletingMachine) {
            return waits;
        }
        let message = format!("deleted under MachineHealthCheck {}", round.check.place);
        let tells = self.both(round, subject, reasons::EVENT_MACHINE_DELETED, &machine.uid, &message);
        let sent = self.send(Effect::DeleteMachine { machine: sign::target(machine), tells });
        self.started(round, subject, sent, Because::DeletingMachine)
    }

    /// Where people look who wonder why it is still there; once, and not of all of them in a storm.
    fn tell_skipped(&mut self, round: &Round<'a>, machine: &Machine) {
        if round.gates.first_step().is_none() && !self.world.fleet.skipped.contains(&machine.uid) {
            let message = format!("not deleted: {}", Because::NoController);
            let events = self.on_machine(machine, reasons::EVENT_NO_CONTROLLER, &machine.uid, &message);
            events.into_iter().for_each(|event| self.send_in_time(Effect::Emit(event)));
        }
    }

    /// May the Machine itself be changed, by this request?
    fn clear_to_change(
        &mut self,
        round: &Round<'a>,
        subject: &Subject<'a>,
        request: &EffectKey,
        due_at: Mono,
        doing: Because,
    ) -> Clear {
        if let Some(because) = self.shut_for_machine(round, subject) {
            return Clear::Break(Outcome::hold(because));
        }
        self.clear_to_send(request, &subject.machine.key(), doing)?;
        self.look_at_machine(round, subject, due_at)
    }

    /// The Machine and its Node are asked for once more, plainly; what they say then is judged anew.
    fn look_at_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>, due_at: Mono) -> Clear {
        let machine = subject.machine;
        let cluster = round.reach.key();
        let expected = match subject.node {
            NodeOf::Known(_) => machine.node.as_ref().map(|node| (node, true)),
            NodeOf::Gone(node) => Some((node, false)),
            NodeOf::Unnamed | NodeOf::NotHeard => None,
        };
        let has_seen_machine = self.world.fleet.looks.get(&machine.place).is_some_and(|at| self.justifies(*at, due_at));
        let unseen = expected.filter(|(node, is_there)| !self.has_looked(cluster, node, *is_there, due_at));
        if has_seen_machine && unseen.is_none() {
            return Clear::Continue(());
        }
        // The watch and the server do not agree; one of them will tell.
        let contradicts = unseen.and_then(|(node, is_there)| self.world.looked_at(cluster, node, !is_there));
        if let Some(at) = contradicts.filter(|at| self.justifies(*at, due_at)) {
            self.wake_if_later(at.beyond(LOOK_VALID_FOR));
            return Clear::Break(Outcome::wait(Because::Looking));
        }
        let why = self.world.flights.refusal(&EffectKey::LookMachine(machine.place.clone())).cloned();
        let of_machine = why.map(|why| Because::LookRefused { key: machine.key(), why });
        let of_node = unseen.and_then(|(node, _)| self.refused_look(cluster, node));
        let refused = of_machine.filter(|_| !has_seen_machine).or(of_node);
        let mut sent = true;
        if !has_seen_machine {
            sent &= self.send(Effect::LookMachine { place: machine.place.clone(), dialect: machine.dialect });
        }
        if let Some((node, _)) = unseen {
            let is_full = cluster.is_some_and(|cluster| self.looks_in(cluster) >= LOOKS_PER_CLUSTER_MAX);
            sent &= !is_full && self.send(Effect::Look { cluster: cluster.cloned(), node: node.clone() });
        }
        let waiting = if sent { Because::Looking } else { Because::Queued };
        Clear::Break(Outcome::wait(refused.unwrap_or(waiting)))
    }

    fn started(&mut self, round: &Round<'a>, subject: &Subject<'a>, sent: bool, because: Because) -> Outcome {
        if !sent {
            return Outcome::wait(Because::Queued);
        }
        let part = quorum::machine_part(self.world, subject.machine, round.reach, self.now);
        self.starting.insert((round.reach.key().cloned(), part), subject.machine.place.name.clone());
        Outcome::start(because)
    }

    fn both(&self, round: &Round<'a>, subject: &Subject<'a>, reason: &'static str, anchor: &str, message: &str) -> Vec<Event> {
        status::event_on_both(round.check, subject.machine, reason, anchor, message, self.now.wall)
    }

    fn on_machine(&self, machine: &Machine, reason: &'static str, anchor: &str, message: &str) -> Vec<Event> {
        vec![Event::new(machine.key(), &machine.uid, reason, anchor, message, self.now.wall)]
    }
}
