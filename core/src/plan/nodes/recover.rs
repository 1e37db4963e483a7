//! What is done about a node that is healthy again, gone, or no longer selected?

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Round, Target};
use crate::decision::{Because, Outcome};
use crate::effect::{Effect, Mark};
use crate::escalate;
use crate::facts::{HealthyDelay, Name, Object, Step};
use crate::hold::{self, Standing};
use crate::plan::Draft;
use crate::plan::attempt::Deletion;
use crate::time::{Mono, Wall};

/// A remediation that lasts longer than this has probably been forgotten.
const OLD_AFTER: Duration = Duration::from_secs(48 * 3600);

impl<'a> Draft<'a> {
    pub(super) fn recover(&mut self, round: &Round<'a>, target: &Target<'a>) -> Outcome {
        if target.mine.is_empty() {
            self.rest(round, target);
            return Outcome::leave(Because::Healthy);
        }
        let since = self.healthy_since(target);
        match round.policy.healthy_delay {
            HealthyDelay::For(lasts_for) if !target.known.node.is_confirmed_healthy() => {
                // A relapse may have been too short, or come in too much doubt, to be noted down: its end dates itself.
                // In whole seconds, so that it may have been up to one later.
                let relapsed_at = target.known.changed_at(&round.policy.rules).map(|at| at.shift(999));
                let since_at = self.world.clock.anchor(since, self.now).max(relapsed_at.unwrap_or(Mono(i64::MIN)));
                let until = since_at.after(lasts_for);
                if self.now.mono < until {
                    self.wake(Some(until));
                    self.tend(round, target, Some(since));
                    return Outcome::keep(Because::HealthyDelay { lasts_for });
                }
            }
            HealthyDelay::UntilConfirmed if !target.known.node.is_confirmed_healthy() => {
                self.tend(round, target, Some(since));
                return Outcome::keep(Because::Unconfirmed);
            }
            HealthyDelay::None | HealthyDelay::For(_) | HealthyDelay::UntilConfirmed => {}
        }
        self.remove(round, &target.mine, Because::Healthy)
    }

    /// Nothing of ours is left on the node: a person's word has been heard.
    fn rest(&mut self, round: &Round<'a>, target: &Target<'a>) {
        if !round.acts() || round.doubt.is_some() || target.maybe_created.is_some() {
            return;
        }
        if target.known.node.is_confirmed_healthy() {
            self.send(Effect::Unconfirm { node: target.name().clone() });
        }
    }

    /// Since when a node with remediations is healthy, as far as anybody remembers.
    pub(super) fn healthy_since(&self, target: &Target) -> Wall {
        let listed = target.listed.and_then(|listed| listed.healthy_since);
        let marked = || target.mine.iter().filter_map(|object| object.healthy_since).min();
        listed.or_else(marked).unwrap_or(self.now.wall.next_second())
    }

    /// Looks after remediations that stay: the Lease on their node, and what is written on them.
    pub(super) fn tend(&mut self, round: &Round<'a>, target: &Target<'a>, healthy_since: Option<Wall>) {
        if target.mine.is_empty() || !round.acts() || round.doubt.is_some() {
            return;
        }
        let is_begun = |step: &&Step| target.mine.iter().any(|object| escalate::step_of(round.policy, object) == Some(*step));
        let current = round.policy.steps.iter().rfind(is_begun).and_then(|step| step.timeout);
        match hold::renewal(self.world, round.check, &target.known.node, current, self.now) {
            Some((hold, at)) if self.now.mono >= at => {
                self.send(Effect::HoldNode(hold));
            }
            Some((_, at)) => self.wake(Some(at)),
            // Somebody deleted it, or it went with an earlier Node of this name.
            None => match hold::standing(self.world, round.check, &target.known.node, current, self.now) {
                Standing::Free(take) => {
                    self.hold_node(take);
                }
                Standing::Ours { .. } | Standing::Theirs { .. } => {}
            },
        }
        for object in target.mine.iter().filter(|object| !object.deleting) {
            if object.healthy_since.is_some() != healthy_since.is_some() {
                self.mark(object, Mark::HealthySince(healthy_since));
            }
            let old_at = self.world.clock.anchor(object.created_at, self.now).after(OLD_AFTER);
            if object.flagged_old {
                continue;
            }
            match self.now.mono >= old_at {
                true => self.mark(object, Mark::Old),
                false => self.wake(Some(old_at)),
            }
        }
    }

    pub(super) fn mark(&mut self, object: &Object, mark: Mark) {
        let Some(served) = self.world.served(&object.key.kind) else { return };
        let (key, plural, uid) = (object.key.clone(), served.plural.clone(), object.uid.clone());
        if !self.world.is_unpatchable(&key.kind, self.now.mono) {
            self.send(Effect::Mark { key, plural, uid, mark, whole: None });
        } else if let Some(whole) = self.world.whole(object) {
            self.send(Effect::Mark { key, plural, uid, mark, whole: Some(whole.clone()) });
        } else {
            self.send(Effect::Fetch { key, plural });
        }
    }

    /// Remediations whose node is no longer a target: it left the selection, or the cluster.
    pub(super) fn clear_up(&mut self, round: &Round<'a>, node: &Name, objects: &[&Object]) -> Outcome {
        if self.world.nodes.contains_key(node) {
            return self.remove(round, objects, Because::NotSelected);
        }
        if let Some(why) = self.world.unreadable_node(node) {
            return Outcome::keep(Because::Unreadable { why: why.clone() });
        }
        for object in objects {
            let step = escalate::step_of(round.policy, object);
            let ends_at = step.and_then(|step| escalate::gives_up_at(self.world, step, object, self.now));
            let goes_for_good = object.expects_node_to_go && object.succeeded != Some(true);
            let is_busy = object.processing || object.finalizers > 0 || goes_for_good;
            if is_busy && ends_at.is_none_or(|at| self.now.mono < at) {
                self.wake(ends_at);
                return Outcome::keep(Because::NodeGoneProviderBusy { key: object.key.clone() });
            }
        }
        self.remove(round, objects, Because::NodeGone)
    }

    /// What rests on old news is not acted on, in either direction.
    pub(super) fn remove(&mut self, round: &Round<'a>, objects: &[&Object], because: Because) -> Outcome {
        if let Some(source) = &round.doubt {
            return Outcome::keep(Because::Stale { source: source.clone() });
        }
        if let Some(object) = objects.first().filter(|_| !round.acts()) {
            return Outcome::keep(Because::DryRemoval { key: object.key.clone() });
        }
        let mut queued = false;
        for object in objects.iter().filter(|object| !object.deleting) {
            queued |= matches!(self.delete(object, Vec::new()), Deletion::Queued);
        }
        match objects.first() {
            Some(object) if object.deleting => Outcome::remove(Because::Leaving { key: object.key.clone() }),
            _ if queued => Outcome::remove(Because::Queued),
            _ => Outcome::remove(because),
        }
    }

    /// Gives the Leases back on nodes on which there is nothing of ours, nor about to be.
    pub(super) fn let_go(&mut self, round: &Round<'a>, busy: &BTreeSet<Name>) {
        if !round.acts() || round.doubt.is_some() {
            return;
        }
        let holder = hold::holder(round.check);
        for lease in self.world.node_leases.values().filter(|lease| lease.holder == holder && !busy.contains(&lease.name)) {
            self.send(Effect::ReleaseNode { lease: lease.clone() });
        }
    }
}
