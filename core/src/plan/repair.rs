//! What is done about a node that is unhealthy?

use super::Draft;
use super::attempt::{Clear, refused};
use super::check::{Round, Target};
use crate::decision::{Because, Match, Outcome};
use crate::effect::{Creation, Effect, EffectKey, Hold, Mark, Owner};
use crate::escalate::{self, Progress};
use crate::facts::{Check, EXCLUDE_LABEL, Kind, MACHINE_API_VERSION, Name, Node, Object, ObjectKey};
use crate::health::Known;
use crate::hold::{self, Standing};
use crate::mhc::facts::MACHINE_CHECK_KIND;
use crate::time::Mono;
use crate::world::MachineOfNode;
use crate::{nhc, quorum, repeat, upgrade};

/// What the Machine that a node names is to it.
enum Mate {
    /// The node names no Machine beside its remediation, or one that does not exist.
    None,
    /// It owns what is created for the node, so that Metal3 knows which host that is about.
    Owner { name: Name, uid: Name },
    /// It is another node's, or nobody's: to have it own anything would be to repair somebody else's host.
    Stranger { machine: Name, names: Option<Name> },
}

impl<'a> Draft<'a> {
    pub(super) fn repair(&mut self, round: &Round<'a>, target: &Target<'a>, found: &Match, due_at: Mono) -> Outcome {
        self.give_up(round, target);
        let remembered = target.remembered();
        match escalate::progress(self.world, round.policy, &target.mine, &remembered, self.now) {
            Progress::Working(object, _) if object.deleting => Outcome::wait(Because::Leaving { key: object.key.clone() }),
            Progress::Working(object, until) => {
                self.wake(until);
                Outcome::keep(Because::Remediating { key: object.key.clone(), reason: found.clone() })
            }
            Progress::Exhausted => Outcome::keep(Because::NoTemplateLeft),
            Progress::Next(step) => match self.forbids(round, target, step, target.mine.is_empty() && remembered.is_empty()) {
                Some(because) => {
                    self.find_out(target);
                    Outcome::hold(because)
                }
                None => self.begin(round, target, step, due_at),
            },
        }
    }

    /// Steps that have failed or had their time are marked, whatever else is stopped.
    fn give_up(&mut self, round: &Round<'a>, target: &Target<'a>) {
        for object in target.mine.iter().filter(|object| !object.timed_out && !object.deleting && object.succeeded != Some(true))
        {
            let is_over = |step| escalate::is_over(self.world, step, object, self.now);
            if round.acts() && round.doubt.is_none() && escalate::step_of(round.policy, object).is_some_and(is_over) {
                self.mark(object, Mark::TimedOut(self.now.wall));
            }
        }
    }

    /// Why the node must be left as it is. What concerns the budget only concerns the first step: after it, the node has
    /// its place there.
    fn forbids(&mut self, round: &Round<'a>, target: &Target<'a>, step: usize, is_first: bool) -> Option<Because> {
        let node = &target.known.node;
        let shut = if is_first { &round.first_shut } else { &round.next_shut };
        if let Some(because) = shut.as_ref().or(round.dark_zones.get(target.zone).filter(|_| is_first)) {
            return Some(because.clone());
        }
        if node.deleting {
            return Some(Because::NodeLeaving);
        }
        if node.labels.get(EXCLUDE_LABEL) == Some("true") {
            return Some(Because::Excluded);
        }
        if let Some(because) = upgrade::under_maintenance(self.world, target.known) {
            return Some(because);
        }
        if let Some(key) = self.left_on(target.name()) {
            return Some(Because::LeftBehind { key: key.clone() });
        }
        if let Some(owner) = self.other_check(round.check, target.known) {
            return Some(Because::Overlapping { owner });
        }
        let too_often = round
            .policy
            .repeat
            .filter(|_| is_first)
            .and_then(|limit| repeat::forbids(round.recent(target.name()), limit, self.world, self.now));
        if let Some((because, until)) = too_often {
            self.wake(Some(until));
            return Some(because);
        }
        quorum::forbids(self.world, node, self.starting.get(&None), self.now).or_else(|| {
            let key = round.workshops[step].name_for(round.check, node, step);
            (!round.acts()).then_some(Because::DryRun { key })
        })
    }

    fn begin(&mut self, round: &Round<'a>, target: &Target<'a>, step: usize, due_at: Mono) -> Outcome {
        let key = round.workshops[step].name_for(round.check, &target.known.node, step);
        if let Some(object) = self.world.objects.get(&key) {
            return match target.mine.iter().any(|mine| mine.uid == object.uid) {
                true => self.make_room(round, target, object),
                false => Outcome::hold(Because::Occupied { key }),
            };
        }
        match self.clear_to_start(round, target, step, &key, due_at) {
            Clear::Break(waits) => waits,
            Clear::Continue(mate) => self.start(round, &target.known.node, step, &key, mate),
        }
    }

    /// Two steps of one kind, whose provider knows a node by the name of its object: the earlier one makes room, but not
    /// before the status remembers that it was tried.
    fn make_room(&mut self, round: &Round<'a>, target: &Target<'a>, object: &Object) -> Outcome {
        let listed = target.listed.into_iter().flat_map(|listed| &listed.remediations);
        if !listed.into_iter().any(|known| known.uid == object.uid && known.timed_out_at.is_some()) {
            return Outcome::wait(Because::MakingRoom { key: object.key.clone() });
        }
        self.remove(round, &[object], Because::MakingRoom { key: object.key.clone() })
    }

    /// Nothing of the kind is under way, the node is ours, and a plain look at it, sent after its time was over, still shows the
    /// reason. With what the node's Machine is to it.
    fn clear_to_start(
        &mut self,
        round: &Round<'a>,
        target: &Target<'a>,
        step: usize,
        key: &ObjectKey,
        due_at: Mono,
    ) -> Clear<Mate> {
        if !self.plan.leads {
            return Clear::Break(Outcome::wait(Because::NotLeading));
        }
        // Something else may have been created for it, and the watch has yet to show it.
        if target.maybe_created.is_some_and(|maybe| maybe != key) {
            self.find_out(target);
            return Clear::Break(Outcome::start(Because::Creating { key: key.clone() }));
        }
        self.clear_to_create(key)?;
        let take = match hold::standing(self.world, round.check, &target.known.node, round.policy.steps[step].timeout, self.now) {
            Standing::Theirs { holder, until } => {
                self.wake(Some(until));
                return Clear::Break(Outcome::hold(Because::Held { holder: holder.clone() }));
            }
            Standing::Free(take) => Some(take),
            Standing::Ours { .. } => None,
        };
        let mate = self.mate(target, key)?;
        let node = target.name();
        let has_looked = self.has_looked(None, node, true, due_at);
        if let Some(refused) = self.refused_look(None, node).filter(|_| !has_looked) {
            self.send(Effect::Look { cluster: None, node: node.clone() });
            return Clear::Break(Outcome::wait(refused));
        }
        // All at once: the Lease is given back if the look shows that the node is well.
        if !has_looked && !self.send(Effect::Look { cluster: None, node: node.clone() }) {
            return Clear::Break(Outcome::wait(Because::Queued));
        }
        match (take, mate) {
            (Some(take), _) => Clear::Break(self.hold_node(take)),
            (None, Some(mate)) if has_looked => Clear::Continue(mate),
            (None, _) => Clear::Break(Outcome::wait(Because::Looking)),
        }
    }

    /// The node's Machine, where it can own the remediation: in the same namespace. None: the server is being asked.
    fn mate(&mut self, target: &Target<'a>, key: &ObjectKey) -> Clear<Option<Mate>> {
        let beside = |(namespace, _): &(&str, &str)| key.namespace.as_deref() == Some(*namespace);
        let Some((namespace, name)) = target.known.node.machine().filter(beside) else {
            return Clear::Continue(Some(Mate::None));
        };
        if let Some((at, found)) = self.world.machine_of(target.name(), namespace, name)
            && self.justifies(*at, *at)
        {
            return Clear::Continue(Some(match found {
                MachineOfNode::Missing => Mate::None,
                MachineOfNode::Own { uid } => Mate::Owner { name: name.into(), uid: uid.clone() },
                MachineOfNode::OfAnother { node } => {
                    Mate::Stranger { machine: format!("{namespace}/{name}").into(), names: node.clone() }
                }
            }));
        }
        let find = Effect::FindMachine { node: target.name().clone(), namespace: namespace.into(), name: name.into() };
        let kind = Kind { api_version: MACHINE_API_VERSION.into(), kind: "Machine".into() };
        let key = ObjectKey { kind, namespace: Some(namespace.into()), name: name.into() };
        let refused = refused(self.world.flights.get(&find.key()), &key);
        self.send(find);
        match refused {
            Some(because) => Clear::Break(Outcome::wait(because)),
            None => Clear::Continue(None),
        }
    }

    pub(super) fn hold_node(&mut self, take: Hold) -> Outcome {
        if self.world.lease_namespace_missing {
            return self.holding(Effect::LeaseNamespace);
        }
        let kind = Kind { api_version: "coordination.k8s.io/v1".into(), kind: "Lease".into() };
        let key = ObjectKey { kind, namespace: None, name: take.name.clone() };
        match refused(self.world.flights.get(&EffectKey::HoldNode(take.name.clone())), &key) {
            Some(because) => {
                self.send(Effect::HoldNode(take));
                Outcome::wait(because)
            }
            None => self.holding(Effect::HoldNode(take)),
        }
    }

    fn holding(&mut self, effect: Effect) -> Outcome {
        match self.send(effect) {
            true => Outcome::wait(Because::Holding),
            false => Outcome::wait(Because::Queued),
        }
    }

    fn start(&mut self, round: &Round<'a>, node: &Node, step: usize, key: &ObjectKey, mate: Mate) -> Outcome {
        let workshop = &round.workshops[step];
        let (machine, because) = match mate {
            Mate::None => (None, Because::Creating { key: key.clone() }),
            Mate::Owner { name, uid } => (Some((name, uid)), Because::Creating { key: key.clone() }),
            Mate::Stranger { machine, names } => (None, Because::CreatingUnowned { key: key.clone(), machine, names }),
        };
        let tells = match &because {
            Because::CreatingUnowned { .. } => vec![nhc::mismatch(round.check, node, &because, self.now.wall)],
            _ => Vec::new(),
        };
        let sent = self.send(Effect::Create(Creation {
            key: key.clone(),
            plural: workshop.served.plural.clone(),
            body: workshop.body.clone(),
            template: workshop.template.key.name.clone(),
            owner: Owner::Check {
                node: node.name.clone(),
                check: round.check.name.clone(),
                check_uid: round.check.uid.clone(),
                control_plane: quorum::holds_back(self.world, node, self.now),
                machine,
                tells,
            },
        }));
        if sent && quorum::holds_back(self.world, node, self.now) {
            self.starting.insert(None, node.name.clone());
        }
        match sent {
            true => Outcome::start(because),
            false => Outcome::wait(Because::Queued),
        }
    }

    /// The NodeHealthCheck, other than this one, that has a remediation on the node, or may have.
    pub(super) fn at_work_on(&self, node: &Name, but: Option<&Check>) -> Option<&'a Name> {
        let is_other = |owner: &&&'a Name| but.is_none_or(|own| own.name != ***owner);
        let maybe_created = self.maybe_created.get(node).into_iter().flatten().map(|(_, creating)| creating);
        let mut others = maybe_created.filter(|creating| but.is_none_or(|own| own.uid != creating.check_uid));
        self.remediated_by.get(node).filter(is_other).copied().or_else(|| others.next().map(|creating| &creating.check))
    }

    /// What may be at work on the node although no check has it any more.
    fn left_on(&self, node: &Name) -> Option<&'a ObjectKey> {
        if let Some(key) = self.left_behind.get(node) {
            return Some(key);
        }
        let machine = self.machines_here.get(node).filter(|machine| self.responsible(machine).is_none())?;
        self.may_be_made_for(machine).next().or_else(|| self.made_for(machine).next().map(|object| &object.key))
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
}
