//! May the repair of this node or machine begin, or take its next step?
//!
//! After the gates of the whole check come those of the one target, in this order; the first that is shut says why. Who else
//! has it, or may have something at work on it, stands here, too.

use super::Draft;
use super::machines::{self, Means, Subject, is_beside, is_beside_all, is_here, is_target, remediation_key};
use super::nodes::{Round, Target};
use crate::decision::Because;
use crate::facts::{Check, EXCLUDE_LABEL, Name, ObjectKey};
use crate::health::Known;
use crate::mhc::facts::{MACHINE_CHECK_KIND, Machine, MachineCheck};
use crate::mhc::judge::NodeOf;
use crate::{quorum, repeat, upgrade};

impl<'a> Draft<'a> {
    /// What concerns the budget only concerns the first step: after it, the node has its place there.
    pub(super) fn shut_for_node(
        &mut self,
        round: &Round<'a>,
        target: &Target<'a>,
        step: usize,
        is_first: bool,
    ) -> Option<Because> {
        let node = &target.known.node;
        let of_check = if is_first { round.gates.first_step() } else { round.gates.next_step() };
        of_check
            .or_else(|| round.dark_zones.get(target.zone).filter(|_| is_first))
            .cloned()
            .or_else(|| node.deleting.then_some(Because::NodeLeaving))
            .or_else(|| (node.labels.get(EXCLUDE_LABEL) == Some("true")).then_some(Because::Excluded))
            .or_else(|| upgrade::under_maintenance(self.world, target.known))
            .or_else(|| self.left_on_node(&node.name).map(|key| Because::LeftBehind { key: key.clone() }))
            .or_else(|| self.other_check(round.check, target.known).map(|owner| Because::Overlapping { owner }))
            .or_else(|| if is_first { self.too_often(round, &node.name) } else { None })
            .or_else(|| quorum::forbids(self.world, node, &self.starting, self.now))
            .or_else(|| {
                let key = || round.workshops[step].name_for(round.check, node, step);
                (!round.acts()).then(|| Because::DryRun { key: key() })
            })
    }

    /// A machine has one step. Whether another check is responsible for it is asked before, as nothing is done about it then.
    pub(super) fn shut_for_machine(&self, round: &machines::Round<'a>, subject: &Subject<'a>) -> Option<Because> {
        let machine = subject.machine;
        let template = match &round.means {
            Means::Template(workshop) => Some(remediation_key(&workshop.kind, machine)),
            Means::Owner | Means::NoTemplate(_) | Means::PowerCycle | Means::Deletion => None,
        };
        // The owner of a control plane looks after its etcd; a MachineSet does not.
        let is_guarded = !matches!(round.means, Means::Owner) || !machine.is_control_plane();
        round
            .gates
            .first_step()
            .cloned()
            .or_else(|| self.left_on_machine(round, subject).map(|key| Because::LeftBehind { key: key.clone() }))
            .or_else(|| cuts_power_of_leaving_node(round, subject).then_some(Because::NodeLeaving))
            .or_else(|| (template.is_some() && machine.marks.power_cycle).then_some(Because::StillPowerCycled))
            .or_else(|| template.filter(|key| self.world.objects.contains_key(key)).map(|key| Because::Occupied { key }))
            .or_else(|| match is_guarded {
                true => quorum::forbids_machine(self.world, machine, round.reach, &self.starting, self.now),
                false => None,
            })
    }

    fn too_often(&mut self, round: &Round<'a>, node: &Name) -> Option<Because> {
        let (because, until) = repeat::forbids(round.recent(node), round.policy.repeat?, self.world, self.now)?;
        self.wake(Some(until));
        Some(because)
    }

    /// What may be at work on the node although no check has it any more.
    fn left_on_node(&self, node: &Name) -> Option<&'a ObjectKey> {
        if let Some(key) = self.left_behind.get(node) {
            return Some(key);
        }
        let machine = self.machines_here.get(node).filter(|machine| self.responsible(machine).is_none())?;
        self.may_be_made_for(machine).next().or_else(|| self.made_for(machine).next().map(|object| &object.key))
    }

    /// What may be at work on the machine, or on its node.
    fn left_on_machine(&self, round: &machines::Round<'a>, subject: &Subject<'a>) -> Option<&'a ObjectKey> {
        // Where there is a template its own object may be on the way, so that is asked about the others there.
        let on_machine = match &round.means {
            Means::Template(_) | Means::NoTemplate(_) => None,
            Means::Owner | Means::PowerCycle | Means::Deletion => self.may_be_made_for(subject.machine).next(),
        };
        let node = match subject.node {
            NodeOf::Known(known) => Some(&known.node.name),
            NodeOf::Gone(node) => Some(node),
            NodeOf::Unnamed | NodeOf::NotHeard => None,
        };
        let on_node = || self.left_behind.get(node?).filter(|_| is_here(self.world, round.check)).copied();
        on_machine.or_else(on_node)
    }

    /// Is another check responsible for the node? That is whichever has a remediation on it; otherwise, of several that
    /// select it and are able to act, the oldest.
    fn other_check(&self, check: &Check, known: &Known) -> Option<Name> {
        if let Some(owner) = self.at_work_on(&known.node.name, Some(check)) {
            return Some(owner.clone());
        }
        // Who knows about the machine knows more than who only knows about its node.
        if let Some(owner) = self.machines_here.get(&known.node.name).and_then(|machine| self.responsible(machine)) {
            return Some(format!("{MACHINE_CHECK_KIND} {}", owner.place).into());
        }
        let older = self.able_node_checks.iter().take_while(|other| self.age(other) < self.age(check));
        let selects = |other: &&&Check| other.policy.as_ref().is_ok_and(|policy| policy.selector.selects(&known.node.labels));
        older.copied().find(|other| selects(&other)).map(|other| other.name.clone())
    }

    /// Who else is responsible for the machine: a NodeHealthCheck that is at work on its node, or the oldest of the checks
    /// that watch over it, if that is another.
    pub(super) fn other_machine_check(&self, check: &MachineCheck, subject: &Subject<'a>) -> Option<Name> {
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

    /// The NodeHealthCheck, other than this one, that has a remediation on the node, or may have.
    fn at_work_on(&self, node: &Name, but: Option<&Check>) -> Option<&'a Name> {
        let is_other = |owner: &&&'a Name| but.is_none_or(|own| own.name != ***owner);
        let maybe_created = self.maybe_created.get(node).into_iter().flatten().map(|(_, creating)| creating);
        let mut others = maybe_created.filter(|creating| but.is_none_or(|own| own.uid != creating.check_uid));
        self.remediated_by.get(node).filter(is_other).copied().or_else(|| others.next().map(|creating| &creating.check))
    }

    /// The oldest check that watches over the machine and is able to act.
    pub(crate) fn responsible(&self, machine: &Machine) -> Option<&'a MachineCheck> {
        let watches = |check: &&&MachineCheck| {
            is_beside(check, machine) && check.policy.as_ref().is_ok_and(|policy| is_target(self.world, machine, check, policy))
        };
        self.able_checks.iter().find(watches).copied()
    }
}

/// Whoever replaces the machine may do so in the middle of what is done to its Node.
fn cuts_power_of_leaving_node(round: &machines::Round, subject: &Subject) -> bool {
    let cuts_power = match round.means {
        Means::Template(_) | Means::NoTemplate(_) => true,
        Means::PowerCycle => !subject.machine.failed,
        Means::Owner | Means::Deletion => false,
    };
    let is_leaving = match subject.node {
        NodeOf::Known(known) => known.node.deleting,
        NodeOf::Gone(_) | NodeOf::Unnamed | NodeOf::NotHeard => false,
    };
    cuts_power && is_leaving
}
