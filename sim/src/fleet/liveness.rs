//! Once nothing fails any more: is everything done about machines that should be, and then nothing?

use std::collections::BTreeMap;

use resus_core::mhc::facts::Flavour;

use crate::clock::{MINUTE, Millis, SECOND};
use crate::fleet::oracle::View;
use crate::fleet::policy::{MachinePolicy, Way};
use crate::fleet::truth::{MachineState, Spot};
use crate::liveness::{ACT_WITHIN, SETTLE_WITHIN};
use crate::oracle::Found;
use crate::policy::{Health, NodeState, Slack};

#[derive(Default)]
pub(crate) struct Duties {
    /// Since when what should have been done, by check and machine.
    overdue: BTreeMap<(Spot, Spot), Millis>,
}

/// Time for a kubeconfig that leads back to the right cluster to be believed: whoever was another is asked once a minute who it is.
const CLUSTER_SETTLES_WITHIN: Millis = MINUTE;
/// Time for an owner to delete one machine, for that to go, and for another to boot in its place.
const REPLACED_WITHIN: Millis = 90 * SECOND;

/// The longest time for which a check of machines may wait before it does something.
pub(crate) fn longest_wait(view: View) -> Millis {
    let policies = view.truth.checks.values().filter_map(|history| history.current());
    policies.map(MachinePolicy::longest).max().unwrap_or(0)
}

impl Duties {
    /// L1: what is unhealthy under an open gate is acted on, and what was begun for what is healthy now is taken back.
    pub fn judge(&mut self, view: View, healed_at: Millis, now: Millis) -> Vec<Found> {
        let mut due = BTreeMap::new();
        for (check, policy) in view.truth.checks.iter().filter_map(|(check, history)| Some((check, history.current()?))) {
            if now < healed_at + SETTLE_WITHIN + CLUSTER_SETTLES_WITHIN || policy.deleting || policy.paused {
                continue;
            }
            let duty = Duty { view, check, policy, now };
            if !view.is_able(check, policy) || duty.is_cluster_paused() {
                continue;
            }
            let gate_is_open = duty.gate_is_open();
            for (spot, machine) in view.truth.machines_in(&check.0).filter(|(_, machine)| policy.targets(machine)) {
                if duty.is_responsible(machine)
                    && ((gate_is_open && duty.should_start(spot, machine)) || duty.should_end(spot, machine))
                {
                    let key = (check.clone(), spot.clone());
                    let since = self.overdue.get(&key).copied().unwrap_or(now);
                    due.insert(key, since);
                }
            }
        }
        self.overdue = due;
        let late = self.overdue.iter_mut().filter(|(_, since)| now - **since >= ACT_WITHIN);
        let told = |((check, spot), since): (&(Spot, Spot), &mut Millis)| {
            *since = now;
            let what = match view.truth.repairs.contains_key(spot) || view.truth.asks.contains_key(spot) {
                true => "is well, and what was begun is not taken back",
                false => "is unhealthy, the gate is open, and nothing is done",
            };
            ("L1", format!("{}: machine {}/{} {what}", check.1, spot.0, spot.1))
        };
        late.map(told).collect()
    }

    /// L2: by the end every repair has come to its end. `hosts`: how many machines an owner may have to replace.
    pub fn judge_end(&self, view: View, healed_at: Millis, repair_within: Millis, hosts: usize, now: Millis) -> Vec<Found> {
        let settled_at = healed_at + SETTLE_WITHIN + CLUSTER_SETTLES_WITHIN;
        let replaced_within = REPLACED_WITHIN * i64::try_from(hosts).unwrap_or(1);
        let is_late = |since: Millis, within: Millis| now - since.max(settled_at) > within + ACT_WITHIN + MINUTE;
        let repairs = view.truth.repairs.iter().filter(|(spot, repair)| {
            !repair.creator.is_empty() && self.is_watched(view, spot) && is_late(repair.stored_at, repair_within)
        });
        let asks = view.truth.asks.iter().filter(|(spot, ask)| {
            let is_owned = view.truth.machine_at(spot).is_some_and(|machine| machine.owner.is_some() && !machine.paused);
            is_owned && is_late(ask.at, replaced_within)
        });
        let repairs = repairs.map(|(spot, repair)| format!("what was made for machine {}/{}: {repair:?}", spot.0, spot.1));
        let asks = asks.map(|(spot, ask)| format!("the repair of machine {}/{} by its owner: {ask:?}", spot.0, spot.1));
        repairs.chain(asks).map(|what| ("L2", format!("{what} has not come to an end"))).collect()
    }

    /// What a paused check or cluster has made stays; and on a machine that nobody may touch.
    fn is_watched(&self, view: View, spot: &Spot) -> bool {
        let Some(machine) = view.truth.machine_at(spot) else { return true };
        let is_held = |policy: &MachinePolicy| policy.paused && policy.targets(machine);
        let policies = || view.truth.checks.iter().filter(|(check, _)| check.0 == spot.0);
        let mut held = policies().filter_map(|(_, history)| history.current());
        let is_cluster_paused =
            view.truth.clusters.iter().any(|(at, history)| at.0 == spot.0 && history.current() == Some(&true));
        !machine.paused && !machine.skipped && !is_cluster_paused && !held.any(is_held)
    }
}

struct Duty<'a> {
    view: View<'a>,
    check: &'a Spot,
    policy: &'a MachinePolicy,
    now: Millis,
}

impl<'a> Duty<'a> {
    fn is_cluster_paused(&self) -> bool {
        let Some(cluster) = &self.policy.cluster else { return false };
        let known = self.view.truth.clusters.get(&(self.check.0.clone(), cluster.clone()));
        known.is_some_and(|history| history.current() == Some(&true))
    }

    /// Of the checks that are able to act the oldest.
    fn is_responsible(&self, machine: &MachineState) -> bool {
        let checks = self.view.truth.checks.iter().filter(|(check, _)| check.0 == self.check.0);
        let checks = checks.filter_map(|(check, history)| Some((check, history.current()?)));
        let able = checks.filter(|(check, policy)| self.view.is_able(check, policy) && policy.targets(machine));
        able.min_by_key(|(check, policy)| (policy.created_at, *check)).is_some_and(|(check, _)| check == self.check)
    }

    fn health(&self, machine: &MachineState, at: Millis) -> Health {
        self.policy.health(machine, self.view.node(&self.check.0, machine), at, Slack::NONE)
    }

    /// What somebody else has put there repairs nothing.
    fn is_made(&self, spot: &Spot) -> bool {
        self.view.truth.repairs.get(spot).is_some_and(|repair| repair.machine.is_some())
    }

    /// As of now a rule matches or it does not; whether its time is over does not matter.
    fn gate_is_open(&self) -> bool {
        let targets = || self.view.truth.machines_in(&self.check.0).filter(|(_, machine)| self.policy.targets(machine));
        let is_out = |(spot, machine): &(&Spot, &MachineState)| self.is_made(spot) || self.health(machine, 0) != Health::Healthy;
        self.policy.allows(targets().count(), targets().filter(is_out).count())
    }

    fn should_start(&self, spot: &Spot, machine: &MachineState) -> bool {
        let node = self.view.node(&self.check.0, machine);
        let cuts_power = match self.policy.way {
            Way::Template(_) => true,
            Way::PowerCycle => !machine.failed,
            Way::Owner | Way::Deletion => false,
        };
        // The control plane's owner decides for itself.
        let is_guarded = self.policy.way != Way::Owner && self.is_needed(spot, machine);
        let waits_for_node = cuts_power && node.is_some_and(|node| node.deleting);
        self.health(machine, self.now) == Health::Expired
            && !machine.deleting
            && !machine.asked
            && !machine.power_cycled
            && !self.view.truth.repairs.contains_key(spot)
            && !waits_for_node
            && !is_guarded
            && !self.is_taken(machine)
            && (self.policy.flavour == Flavour::ClusterApi || cuts_power || machine.owner.is_some())
    }

    /// A check of nodes is at work on its node, or has left something there.
    fn is_taken(&self, machine: &MachineState) -> bool {
        let Some(node) = machine.node.as_ref().filter(|_| self.view.is_here(&self.check.0)) else { return false };
        self.view.home.remediations.values().any(|one| one.node == *node)
    }

    /// The control plane cannot do without it now.
    fn is_needed(&self, spot: &Spot, machine: &MachineState) -> bool {
        let is_control_plane = |machine: &MachineState| {
            let node = self.view.node(&self.check.0, machine);
            machine.is_control_plane(self.policy.flavour) || node.is_some_and(NodeState::is_control_plane)
        };
        let is_busy = |(other, state): (&Spot, &MachineState)| {
            let is_at_work = || self.is_made(other) || state.deleting || state.power_cycled || state.asked_by_us;
            other != spot && is_control_plane(state) && is_at_work()
        };
        let land = self.view.land(&self.check.0);
        let is_up = |host: &&String| land.node(host).is_some_and(NodeState::is_ready);
        let ready = land.etcd.iter().filter(|host| machine.node.as_ref() != Some(host)).filter(is_up).count();
        let takes_quorum = !land.etcd.is_empty() && ready < land.etcd.len() / 2 + 1;
        let is_node_busy = || {
            self.view.is_here(&self.check.0)
                && self
                    .view
                    .home
                    .remediations
                    .values()
                    .any(|one| self.view.home.node(&one.node).is_none_or(NodeState::is_control_plane))
        };
        is_control_plane(machine) && (takes_quorum || is_node_busy() || self.view.truth.machines_in(&spot.0).any(is_busy))
    }

    fn should_end(&self, spot: &Spot, machine: &MachineState) -> bool {
        let made = self.view.truth.repairs.get(spot).is_some_and(|repair| !repair.creator.is_empty() && !repair.deleting);
        let is_begun = made || machine.asked_by_us;
        is_begun && !machine.deleting && !self.is_taken(machine) && self.health(machine, self.now) == Health::Healthy
    }
}
