//! What is done about a node that is unhealthy?

use super::{Round, Target};
use crate::decision::{Because, Match, Outcome};
use crate::effect::{Effect, EffectKey, Hold, Mark, Owner};
use crate::escalate::{self, Progress};
use crate::facts::{Kind, MACHINE_API_VERSION, Name, Node, Object, ObjectKey};
use crate::hold::{self, Standing};
use crate::nhc;
use crate::plan::Draft;
use crate::plan::attempt::{Clear, refused};
use crate::quorum::{self, Part};
use crate::time::Mono;
use crate::world::MachineOfNode;

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
            Progress::Next(step) => {
                match self.shut_for_node(round, target, step, target.mine.is_empty() && remembered.is_empty()) {
                    Some(because) => {
                        self.find_out(target);
                        Outcome::hold(because)
                    }
                    None => self.begin(round, target, step, due_at),
                }
            }
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
        let (machine, because) = match mate {
            Mate::None => (None, Because::Creating { key: key.clone() }),
            Mate::Owner { name, uid } => (Some((name, uid)), Because::Creating { key: key.clone() }),
            Mate::Stranger { machine, names } => (None, Because::CreatingUnowned { key: key.clone(), machine, names }),
        };
        let tells = match &because {
            Because::CreatingUnowned { .. } => vec![nhc::mismatch(round.check, node, &because, self.now.wall)],
            _ => Vec::new(),
        };
        let part = quorum::part(self.world, &node.name, self.now);
        let owner = Owner::Check {
            node: node.name.clone(),
            check: round.check.name.clone(),
            check_uid: round.check.uid.clone(),
            control_plane: part == Part::Counted,
            machine,
            tells,
        };
        let sent = self.create(&round.workshops[step], key, owner);
        if sent {
            self.starting.insert((None, part), node.name.clone());
        }
        match sent {
            true => Outcome::start(because),
            false => Outcome::wait(Because::Queued),
        }
    }
}
