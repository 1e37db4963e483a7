//! What is done about one machine?

use super::earlier::Earlier;
use super::find::is_here;
use super::{Outcome, Reach, Round, Subject, is_beside, is_target, only_waits_for_termination, remediation_key, sign};
use crate::decision::{Because, Verdict};
use crate::effect::{Creation, Effect, EffectKey, Owner};
use crate::facts::{Name, ObjectKey, Status};
use crate::flight::{Clearance, Flight};
use crate::mhc::facts::{MACHINE_CHECK_KIND, Machine, MachineCheck, MachinePolicy, Repair, Sign, Style};
use crate::mhc::judge::{Finding, Judgement, NodeOf, Unjudged};
use crate::mhc::status;
use crate::nhc::Event;
use crate::plan::Draft;
use crate::plan::repair::{LOOK_VALID_FOR, node_kind};
use crate::time::Mono;
use crate::{quorum, reasons};

/// Looks under way in one Cluster: one that accepts and never answers must not take all the room from the others.
const LOOKS_PER_CLUSTER_MAX: usize = 8;

fn outcome(verdict: Verdict, because: Because) -> Outcome {
    Outcome { verdict, because }
}

impl<'a> Draft<'a> {
    pub(super) fn decide_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>) -> Outcome {
        let is_unhealthy = matches!(subject.judgement, Judgement::Unhealthy { .. });
        let keep_or_wait = if subject.is_idle() { Verdict::Wait } else { Verdict::Keep };
        // Whoever takes care of the node that it names does so for another host.
        if let Judgement::Unjudged(why @ Unjudged::AnotherHost { .. }) = &subject.judgement {
            return outcome(keep_or_wait, Because::Unjudged(why.clone()));
        }
        if let Some(owner) = self.other_owner(round.check, subject) {
            let verdict = if is_unhealthy { Verdict::Hold } else { Verdict::Leave };
            return outcome(verdict, if is_unhealthy { Because::Overlapping { owner } } else { Because::Healthy });
        }
        // Beside others it does its own, and what is left of them goes when nobody watches over the machine any more.
        let earlier = match is_beside_all(round.policy) {
            true => Earlier::Nothing,
            false => self.earlier(subject.machine, round.kind.as_ref()),
        };
        match earlier {
            Earlier::Nothing => {}
            Earlier::Unknown(source) => return outcome(Verdict::Wait, Because::Stale { source }),
            Earlier::There(object) => {
                if round.doubt.is_none() {
                    self.remove_earlier(object);
                }
                return outcome(Verdict::Remove, Because::Leaving { key: object.key.clone() });
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
                outcome(keep_or_wait, Because::MachinePending)
            }
            Judgement::Unjudged(Unjudged::PowerCycling) => self.stop_power_cycle(round, subject),
            Judgement::Unjudged(why) => outcome(keep_or_wait, Because::Unjudged(why.clone())),
            Judgement::Unhealthy { findings, due_at } => self.repair_machine(round, subject, findings, *due_at),
        }
    }

    fn recover_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>) -> Outcome {
        self.sign_leisurely(round, subject);
        let Some(object) = subject.remediation else { return outcome(Verdict::Leave, Because::Healthy) };
        if let Some(source) = &round.doubt {
            return outcome(Verdict::Keep, Because::Stale { source: source.clone() });
        }
        if object.deleting {
            return outcome(Verdict::Remove, Because::Leaving { key: object.key.clone() });
        }
        let Some(served) = self.world.served(&object.key.kind) else {
            return outcome(Verdict::Keep, Because::KindNotServed { key: object.key.clone() });
        };
        let message = format!("removed {}, as the Machine is healthy", object.key);
        let tells = self.both(round, subject, reasons::EVENT_REMEDIATION_REMOVED, &object.uid, &message);
        let (key, plural, uid) = (object.key.clone(), served.plural.clone(), object.uid.clone());
        match self.send(Effect::Delete { key, plural, uid, tells }) {
            true => outcome(Verdict::Remove, Because::Healthy),
            false => outcome(Verdict::Remove, Because::Queued),
        }
    }

    /// Its node is well: what was asked for is not needed any more, unless the actuator has begun.
    fn stop_power_cycle(&mut self, round: &Round<'a>, subject: &Subject<'a>) -> Outcome {
        let machine = subject.machine;
        if machine.marks.power_cycling || machine.deleting || round.doubt.is_some() || round.paused {
            return outcome(Verdict::Keep, Because::Unjudged(Unjudged::PowerCycling));
        }
        let message = "removed the annotation host.metal3.io/external-remediation, as the Machine is healthy";
        let tells = self.on_machine(machine, false, reasons::EVENT_ANNOTATION_REMOVED, &machine.version.0, message);
        self.send(Effect::PowerCycle { machine: sign::target(machine), on: false, tells });
        outcome(Verdict::Remove, Because::Healthy)
    }

    fn repair_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>, findings: &[Finding], due_at: Mono) -> Outcome {
        let machine = subject.machine;
        if let Some(object) = subject.remediation {
            self.sign_leisurely(round, subject);
            let key = object.key.clone();
            return match object.deleting {
                true => outcome(Verdict::Wait, Because::Leaving { key }),
                false => outcome(Verdict::Keep, Because::MachineRemediated { key }),
            };
        }
        if machine.deleting {
            self.sign_leisurely(round, subject);
            return outcome(Verdict::Wait, Because::MachineLeaving);
        }
        match &round.policy.repair {
            Repair::Owner => self.have_owner_repair(round, subject, due_at),
            Repair::Template { .. } => self.have_template_repair(round, subject, findings, due_at),
            Repair::PowerCycle if !machine.failed => self.have_power_cycled(round, subject, due_at),
            Repair::PowerCycle | Repair::Deletion => self.have_replaced(round, subject, due_at),
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
                return outcome(Verdict::Keep, Because::OwnersTurn { reason: asked.reason.clone() });
            }
            (_, _) => {}
        }
        // The owner of a control plane looks after its etcd; a MachineSet does not.
        let is_unguarded = !machine.is_control_plane();
        let stopped = round.shut.clone().or_else(|| self.waits_for_others(round, subject));
        if let Some(because) = stopped.or_else(|| self.guarded(round, subject).filter(|_| is_unguarded)) {
            // To say that the machine is unhealthy would now be to have it repaired.
            let would_act = |style: &Style| {
                is_false(Sign::OwnerRemediated, *style).is_some() && is_false(Sign::HealthCheckSucceeded, *style).is_none()
            };
            if styles.iter().any(would_act) {
                return outcome(Verdict::Hold, Because::OwnerNotDone);
            }
            self.sign_leisurely(round, subject);
            return outcome(Verdict::Hold, because);
        }
        if let Err(waiting) = self.look_at_machine(round, subject, due_at) {
            return waiting;
        }
        let sent = self.sign(round, subject, true).is_none_or(|signing| self.send(Effect::Sign(signing)));
        self.started(round, subject, sent, Because::Signing)
    }

    fn have_template_repair(&mut self, round: &Round<'a>, subject: &Subject<'a>, findings: &[Finding], due_at: Mono) -> Outcome {
        let outcome = self.make_remediation(round, subject, findings, due_at);
        // What is being made in this moment is written down together with why, once it is there.
        if !matches!(outcome.because, Because::Looking | Because::Queued | Because::Creating { .. }) {
            self.sign_leisurely(round, subject);
        }
        outcome
    }

    fn make_remediation(&mut self, round: &Round<'a>, subject: &Subject<'a>, findings: &[Finding], due_at: Mono) -> Outcome {
        let machine = subject.machine;
        if let Some(because) = round.shut.clone() {
            self.find_out_machine(round, subject);
            return outcome(Verdict::Hold, because);
        }
        let Some(workshop) = &round.workshop else { unreachable!("a check whose template cannot be used is shut") };
        if let Some(because) = self.waits_for_others(round, subject) {
            return outcome(Verdict::Hold, because);
        }
        if machine.marks.power_cycle {
            return outcome(Verdict::Hold, Because::StillPowerCycled);
        }
        let key = remediation_key(&workshop.kind, machine);
        if self.world.objects.contains_key(&key) {
            return outcome(Verdict::Hold, Because::Occupied { key });
        }
        if let Some(because) = self.guarded(round, subject) {
            return outcome(Verdict::Hold, because);
        }
        if let Err(waiting) = self.may_create(round, subject, &key) {
            return waiting;
        }
        if let Err(waiting) = self.look_at_machine(round, subject, due_at) {
            return waiting;
        }
        let why: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let message = format!("created {key}: {}", why.join("; "));
        let tells = self.both(round, subject, reasons::EVENT_REMEDIATION_CREATED, &machine.version.0, &message);
        let sent = self.send(Effect::Create(Creation {
            key: key.clone(),
            plural: workshop.served.plural.clone(),
            body: workshop.body.clone(),
            template: workshop.template.key.name.clone(),
            owner: Owner::Machine {
                dialect: machine.dialect,
                name: machine.place.name.clone(),
                uid: machine.uid.clone(),
                cluster: machine.cluster().map(Into::into),
                check_uid: round.check.uid.clone(),
                tells,
            },
        }));
        self.started(round, subject, sent, Because::Creating { key })
    }

    /// Has it been asked for, or refused, or removed by somebody else?
    fn may_create(&mut self, round: &Round<'a>, subject: &Subject<'a>, key: &ObjectKey) -> Result<(), Outcome> {
        let create = EffectKey::Create(key.clone());
        let creating = Err(outcome(Verdict::Start, Because::Creating { key: key.clone() }));
        // From another template, a moment ago: two repairs must not meet.
        if let Some(other) = self.may_be_made_for(subject.machine).find(|other| *other != key) {
            return Err(outcome(Verdict::Wait, Because::Creating { key: other.clone() }));
        }
        self.minded.insert(key.clone());
        match (self.world.flights.get(&create), self.world.flights.clearance(&create, self.now.mono)) {
            (_, Clearance::UnderWay) => return creating,
            (Some(Flight::Stored { .. } | Flight::Exists { .. }), _) => {
                self.find_out_machine(round, subject);
                return creating;
            }
            (Some(Flight::Refused { why, busy, .. }), Clearance::NotBefore(at)) => {
                self.wake(Some(at));
                return Err(outcome(Verdict::Wait, Because::Refused { key: key.clone(), why: why.clone(), busy: *busy }));
            }
            (_, Clearance::NotBefore(at)) => {
                self.wake(Some(at));
                return creating;
            }
            (_, Clearance::Go) => {}
        }
        match self.world.removed_by_others(key).filter(|(_, again_at)| *again_at > self.now.mono) {
            Some((times, again_at)) => {
                self.wake(Some(again_at));
                Err(outcome(Verdict::Wait, Because::Removed { key: key.clone(), times }))
            }
            None => Ok(()),
        }
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
            return outcome(Verdict::Keep, Because::PowerCycleAsked);
        }
        let key = EffectKey::PowerCycle(machine.place.clone());
        if let Err(waiting) = self.may_change(round, subject, &key, due_at, &Because::PowerCycleAsked) {
            return waiting;
        }
        let message = "asked for a power-cycle by the annotation host.metal3.io/external-remediation";
        let tells = self.on_machine(machine, false, reasons::EVENT_ANNOTATION_ADDED, &machine.version.0, message);
        let sent = self.send(Effect::PowerCycle { machine: sign::target(machine), on: true, tells });
        self.started(round, subject, sent, Because::PowerCycleAsked)
    }

    /// Whoever controls the machine makes another.
    fn have_replaced(&mut self, round: &Round<'a>, subject: &Subject<'a>, due_at: Mono) -> Outcome {
        let machine = subject.machine;
        if !machine.has_controller {
            self.tell_skipped(round, machine);
            return outcome(Verdict::Hold, Because::NoController);
        }
        let key = EffectKey::DeleteMachine(machine.place.clone());
        if let Err(waiting) = self.may_change(round, subject, &key, due_at, &Because::DeletingMachine) {
            return waiting;
        }
        let message = format!("deleted under MachineHealthCheck {}", round.check.place);
        let tells = self.both(round, subject, reasons::EVENT_MACHINE_DELETED, &machine.uid, &message);
        let sent = self.send(Effect::DeleteMachine { machine: sign::target(machine), tells });
        self.started(round, subject, sent, Because::DeletingMachine)
    }

    /// Where people look who wonder why it is still there; once, and not of all of them in a storm.
    fn tell_skipped(&mut self, round: &Round<'a>, machine: &Machine) {
        if round.shut.is_none() && !self.world.fleet.skipped.contains(&machine.uid) {
            let message = format!("not deleted: {}", Because::NoController);
            let events = self.on_machine(machine, false, reasons::EVENT_NO_CONTROLLER, &machine.uid, &message);
            events.into_iter().for_each(|event| self.send_in_time(Effect::Emit(event)));
        }
    }

    /// May the Machine itself be changed, by what this key stands for?
    fn may_change(
        &mut self,
        round: &Round<'a>,
        subject: &Subject<'a>,
        key: &EffectKey,
        due_at: Mono,
        doing: &Because,
    ) -> Result<(), Outcome> {
        let stopped = round.shut.clone().or_else(|| self.waits_for_others(round, subject));
        if let Some(because) = stopped.or_else(|| self.guarded(round, subject)) {
            return Err(outcome(Verdict::Hold, because));
        }
        match (self.world.flights.get(key), self.world.flights.clearance(key, self.now.mono)) {
            (Some(Flight::Refused { why, busy, .. }), Clearance::NotBefore(at)) => {
                self.wake(Some(at));
                let because = Because::Refused { key: subject.machine.key(), why: why.clone(), busy: *busy };
                return Err(outcome(Verdict::Wait, because));
            }
            (_, Clearance::NotBefore(at)) => {
                self.wake(Some(at));
                return Err(outcome(Verdict::Start, doing.clone()));
            }
            (_, Clearance::UnderWay) => return Err(outcome(Verdict::Start, doing.clone())),
            (_, Clearance::Go) => {}
        }
        self.look_at_machine(round, subject, due_at)
    }

    /// The control plane is repaired one machine at a time, and never so that etcd loses its majority.
    fn guarded(&self, round: &Round<'a>, subject: &Subject<'a>) -> Option<Because> {
        let starting = self.starting.get(&round.reach.key().cloned());
        quorum::forbids_machine(self.world, subject.machine, round.reach, starting, self.now)
    }

    /// The Machine and its Node are asked for once more, plainly; what they say then is judged anew.
    fn look_at_machine(&mut self, round: &Round<'a>, subject: &Subject<'a>, due_at: Mono) -> Result<(), Outcome> {
        let machine = subject.machine;
        let is_recent = |at: Option<Mono>| at.is_some_and(|at| at >= due_at && self.now.mono.since(at) <= LOOK_VALID_FOR);
        let cluster = round.reach.key();
        let expected = match subject.node {
            NodeOf::Known(_) => machine.node.as_ref().map(|node| (node, true)),
            NodeOf::Gone(node) => Some((node, false)),
            NodeOf::Unnamed | NodeOf::NotHeard => None,
        };
        let has_seen_machine = is_recent(self.world.fleet.looks.get(&machine.place).copied());
        let has_seen_node = expected.is_none_or(|(node, is_there)| is_recent(self.world.looked_at(cluster, node, is_there)));
        if has_seen_machine && has_seen_node {
            return Ok(());
        }
        // The watch and the server do not agree; one of them will tell.
        let contradicts = expected.and_then(|(node, is_there)| self.world.looked_at(cluster, node, !is_there));
        if let Some(at) = contradicts.filter(|at| is_recent(Some(*at))) {
            self.wake_if_later(at.after(LOOK_VALID_FOR).shift(1));
            return Err(outcome(Verdict::Wait, Because::Looking));
        }
        let node_look = expected.map(|(node, _)| (node, EffectKey::Look(cluster.cloned(), node.clone())));
        let why = |look: &EffectKey| self.world.flights.refusal(look).cloned();
        let of_machine = why(&EffectKey::LookMachine(machine.place.clone())).map(|why| (machine.key(), why));
        let of_node = node_look
            .filter(|_| !has_seen_node)
            .and_then(|(node, look)| Some((ObjectKey { kind: node_kind(), namespace: None, name: node.clone() }, why(&look)?)));
        let refused = of_machine.filter(|_| !has_seen_machine).or(of_node);
        let mut sent = true;
        if !has_seen_machine {
            sent &= self.send(Effect::LookMachine { place: machine.place.clone(), dialect: machine.dialect });
        }
        if let Some((node, _)) = expected.filter(|_| !has_seen_node) {
            let is_full = match round.reach {
                Reach::There(cluster, _) => self.looks_in(&cluster.key) >= LOOKS_PER_CLUSTER_MAX,
                Reach::Here | Reach::NotYet(_) => false,
            };
            sent &= !is_full && self.send(Effect::Look { cluster: cluster.cloned(), node: node.clone() });
        }
        let waiting = if sent { Because::Looking } else { Because::Queued };
        Err(outcome(Verdict::Wait, refused.map_or(waiting, |(key, why)| Because::LookRefused { key, why })))
    }

    fn started(&mut self, round: &Round<'a>, subject: &Subject<'a>, sent: bool, because: Because) -> Outcome {
        if !sent {
            return outcome(Verdict::Wait, Because::Queued);
        }
        if quorum::machine_holds_back(self.world, subject.machine, round.reach, self.now) {
            self.starting.insert(round.reach.key().cloned(), subject.machine.place.name.clone());
        }
        outcome(Verdict::Start, because)
    }

    fn both(&self, round: &Round<'a>, subject: &Subject<'a>, reason: &'static str, anchor: &str, message: &str) -> Vec<Event> {
        status::event_on_both(round.check, subject.machine, false, reason, anchor, message, self.now.wall)
    }

    fn on_machine(&self, machine: &Machine, warning: bool, reason: &'static str, anchor: &str, message: &str) -> Vec<Event> {
        vec![status::event_on(machine.key(), &machine.uid, warning, reason, anchor, message, self.now.wall)]
    }

    /// Who else is responsible for the machine: a NodeHealthCheck that is at work on its node, or the oldest of the checks
    /// that watch over it, if that is another.
    fn other_owner(&self, check: &MachineCheck, subject: &Subject<'a>) -> Option<Name> {
        let at_work = match subject.node {
            NodeOf::Known(known) if is_here(self.world, check) => self.at_work_on(&known.node.name, None),
            NodeOf::Gone(node) if is_here(self.world, check) => self.at_work_on(node, None),
            NodeOf::Known(_) | NodeOf::Unnamed | NodeOf::Gone(_) | NodeOf::NotHeard => None,
        };
        if let Some(owner) = at_work {
            return Some(owner.clone());
        }
        // What is being terminated is lost, whoever else watches over it; and who deletes it writes nothing on it.
        if check.policy.as_ref().is_ok_and(is_beside_all) {
            return None;
        }
        // Nearly always it is the only one, and then nobody's labels have to be compared again.
        let is_beside = |other: &&&MachineCheck| is_beside(other, subject.machine);
        if self.able_checks.iter().find(is_beside).is_none_or(|oldest| oldest.place == check.place) {
            return None;
        }
        let owner = self.responsible(subject.machine).filter(|owner| owner.place != check.place)?;
        Some(format!("{MACHINE_CHECK_KIND} {}", owner.place).into())
    }

    /// What must be over before anything is done about the machine, or about its node.
    fn waits_for_others(&self, round: &Round<'a>, subject: &Subject<'a>) -> Option<Because> {
        let cuts_power = match &round.policy.repair {
            Repair::Template { .. } => true,
            Repair::PowerCycle => !subject.machine.failed,
            Repair::Owner | Repair::Deletion => false,
        };
        // Of a template it is asked where its own object may be on the way, too.
        if !matches!(round.policy.repair, Repair::Template { .. })
            && let Some(key) = self.may_be_made_for(subject.machine).next()
        {
            return Some(Because::LeftBehind { key: key.clone() });
        }
        let node = match subject.node {
            // Whoever replaces the machine may do so in the middle of what is done to its Node.
            NodeOf::Known(known) if known.node.deleting && cuts_power => return Some(Because::NodeLeaving),
            NodeOf::Known(known) => &known.node.name,
            NodeOf::Gone(node) => node,
            NodeOf::Unnamed | NodeOf::NotHeard => return None,
        };
        let left = self.left_behind.get(node).filter(|_| is_here(self.world, round.check))?;
        Some(Because::LeftBehind { key: (*left).clone() })
    }

    /// The oldest check that watches over the machine and is able to act.
    pub(crate) fn responsible(&self, machine: &Machine) -> Option<&'a MachineCheck> {
        let watches = |check: &&&MachineCheck| {
            is_beside(check, machine) && check.policy.as_ref().is_ok_and(|policy| is_target(self.world, machine, check, policy))
        };
        self.able_checks.iter().find(watches).copied()
    }
}

/// It takes away what is lost, whoever else watches over it.
pub(super) fn is_beside_all(policy: &MachinePolicy) -> bool {
    policy.repair == Repair::Deletion && only_waits_for_termination(policy)
}
