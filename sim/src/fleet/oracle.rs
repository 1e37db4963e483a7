//! Was anything done about a machine that must not be?
//!
//! As [`crate::oracle`]: by the truth, and silent where a controller could not know better.

use std::collections::BTreeMap;

use resus_core::mhc::facts::Flavour;

use crate::clock::Millis;
use crate::fleet::policy::{MachinePolicy, Way};
use crate::fleet::truth::{MachineState, Repair, Spot, Truth};
use crate::ledger::{History, Ledger};
use crate::oracle::{DECIDED_WITHIN, Doubt, Found, Intent};
use crate::policy::{Health, NodeState, Slack};
use crate::simulation::Remote;

/// Everything that is true about machines and their nodes.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub truth: &'a Truth,
    pub home: &'a Ledger,
    pub remotes: &'a BTreeMap<String, Remote>,
}

impl<'a> View<'a> {
    /// Where the nodes of a herd are.
    pub fn land(&self, namespace: &str) -> &'a Ledger {
        self.remotes.get(namespace).map_or(self.home, |remote| &remote.ledger)
    }

    pub fn is_here(&self, namespace: &str) -> bool {
        !self.remotes.contains_key(namespace)
    }

    /// Is a node of this cluster for a check of machines that is able to act?
    pub fn watches_over(&self, node: &str) -> bool {
        let is_its = |machine: &MachineState| machine.node.as_deref() == Some(node);
        let machines = self.truth.machines.iter().filter_map(|(spot, history)| Some((spot, history.current()?)));
        machines.filter(|(spot, machine)| self.is_here(&spot.0) && is_its(machine)).any(|(spot, machine)| {
            let checks = self.truth.checks.iter().filter(|(check, _)| check.0 == spot.0);
            let mut policies = checks.filter_map(|(check, history)| Some((check, history.current()?)));
            policies.any(|(check, policy)| policy.targets(machine) && self.is_able(check, policy))
        })
    }

    /// Is nothing wrong with the check that would keep it from acting?
    pub fn is_able(&self, check: &Spot, policy: &MachinePolicy) -> bool {
        let Way::Template(template) = &policy.way else { return !policy.deleting };
        let templates = self.truth.templates.get(&(check.0.clone(), template.clone()));
        !policy.deleting && templates.is_some_and(|history| history.current() == Some(&true))
    }

    /// The node that the machine names, if it is there now.
    pub fn node(&self, namespace: &str, machine: &MachineState) -> Option<&'a NodeState> {
        self.land(namespace).node(machine.node.as_ref()?)
    }
}

/// A repair of a machine has begun.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub spot: Spot,
    pub kind: Kind,
    /// Of the check, where the request says so.
    pub check: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Asked,
    Made,
    PowerCycled,
    Deleted,
}

impl Kind {
    /// One word for counters.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Asked => "owner asked",
            Kind::Made => "repair made",
            Kind::PowerCycled => "machine power-cycled",
            Kind::Deleted => "machine deleted by us",
        }
    }

    fn is_of(self, way: &Way) -> bool {
        match self {
            Kind::Asked => *way == Way::Owner,
            Kind::Made => matches!(way, Way::Template(_)),
            Kind::PowerCycled => *way == Way::PowerCycle,
            Kind::Deleted => matches!(way, Way::Deletion | Way::PowerCycle),
        }
    }
}

/// When the last looks at a machine and its node that the sender had heard of were executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    pub machine: Option<Millis>,
    pub node: Option<Millis>,
}

/// Of several checks the request may have come from it is enough if one may have sent it.
pub(crate) fn judge_start(view: View, start: &Start, intent: &Intent, now: Millis, doubt: Doubt) -> Vec<Found> {
    let machine = format!("{}/{}", start.spot.0, start.spot.1);
    if start.kind == Kind::Deleted && view.truth.dialect.flavour() == Flavour::ClusterApi {
        return vec![("S4", format!("machine {machine} was deleted, which is for its owner to do"))];
    }
    let from = intent.sent_at - doubt.blind_for;
    let mut least = None;
    for (check, history) in view.truth.checks.iter().filter(|(check, _)| check.0 == start.spot.0) {
        let policies = history.within(from, intent.sent_at).filter_map(|(_, policy)| policy);
        let is_asking =
            |policy: &&MachinePolicy| start.kind.is_of(&policy.way) && start.check.as_ref().is_none_or(|uid| *uid == policy.uid);
        let policies: Vec<&MachinePolicy> = policies.filter(is_asking).collect();
        if policies.is_empty() {
            continue;
        }
        let found = Scene { view, start, intent, check, policies, from, now }.judge();
        if found.is_empty() {
            return found;
        }
        least.get_or_insert(found);
    }
    least.unwrap_or_else(|| vec![("S4", format!("no check asks for what was done about machine {machine}: {:?}", start.kind))])
}

/// S2: a check of nodes has made a remediation; nothing may be at work on the machine of that node.
pub(crate) fn judge_node(view: View, node: &str, intent: &Intent, doubt: Doubt) -> Option<Found> {
    let from = intent.sent_at - doubt.blind_for;
    let is_known = |repair: &Repair| repair.creator == intent.identity || repair.stored_at < from;
    let is_at_work = |spot: &Spot| {
        let repair = view.truth.repairs.get(spot).filter(|repair| !repair.creator.is_empty() && is_known(repair));
        let Some((repair, history)) = repair.zip(view.truth.machines.get(spot)) else { return false };
        let is_its = |state: &MachineState| state.node.as_deref() == Some(node) && repair.machine.as_ref() == Some(&state.uid);
        history.within(from, intent.sent_at).all(|(_, state)| state.is_some_and(is_its))
    };
    let mut machines = view.truth.machines.keys().filter(|spot| view.is_here(&spot.0));
    let at_work = machines.find(|spot| is_at_work(spot))?;
    Some(("S2", format!("a check of nodes started on {node}, for whose machine {} a remediation was made", at_work.1)))
}

/// What was made for a machine was deleted by a controller.
pub(crate) fn judge_removal(view: View, spot: &Spot, removed: &Repair, intent: &Intent, doubt: Doubt) -> Option<Found> {
    let machine = format!("{}/{}", spot.0, spot.1);
    if removed.creator.is_empty() {
        return Some((
            "S4",
            format!("{} deleted what somebody else has made, of the name of machine {machine}", intent.identity),
        ));
    }
    let from = intent.sent_at - doubt.blind_for;
    let mut checks = view.truth.checks.iter().filter(|(check, _)| check.0 == spot.0);
    let only = checks.next().filter(|_| checks.next().is_none())?;
    let policies: Vec<_> = only.1.within(from, intent.sent_at).collect();
    let [(_, Some(policy))] = policies.as_slice() else { return None };
    let states: Vec<_> = view.truth.machines.get(spot)?.within(from, intent.sent_at).collect();
    let [(_, Some(state))] = states.as_slice() else { return None };
    let nodes: Vec<Option<&NodeState>> = match &state.node {
        None => vec![None],
        Some(node) => match view.land(&spot.0).nodes.get(node) {
            None => vec![None],
            Some(history) => history.within(from, intent.sent_at).map(|(_, node)| node).collect(),
        },
    };
    let [node] = nodes.as_slice() else { return None };
    let is_needed = matches!(policy.way, Way::Template(_))
        && !policy.deleting
        && removed.machine.as_ref() == Some(&state.uid)
        && policy.targets(state)
        && policy.health(state, *node, from, Slack::NONE) == Health::Expired;
    is_needed.then(|| ("S4", format!("{}: machine {machine} was given up, and had been unhealthy all the time", only.0.1)))
}

struct Scene<'a> {
    view: View<'a>,
    start: &'a Start,
    intent: &'a Intent,
    check: &'a Spot,
    /// The check as it may have been known.
    policies: Vec<&'a MachinePolicy>,
    from: Millis,
    now: Millis,
}

impl<'a> Scene<'a> {
    fn judge(&self) -> Vec<Found> {
        let all = [
            self.unjustified(),
            self.was_stopped(),
            self.was_out_of_time(),
            self.was_overruled(),
            self.doubled(),
            self.took_the_quorum(),
            self.gate_was_shut(),
        ];
        all.into_iter().flatten().collect()
    }

    fn named(&self) -> String {
        format!("{}: machine {}/{}", self.check.1, self.start.spot.0, self.start.spot.1)
    }

    fn states(&self, spot: &Spot, from: Millis, to: Millis) -> Vec<(Millis, Option<&'a MachineState>)> {
        self.view.truth.machines.get(spot).map(|history| history.within(from, to).collect()).unwrap_or_default()
    }

    /// The states of the node that the machine names, each with until when it held; None: it is not there.
    fn nodes(&self, machine: &MachineState, from: Millis, to: Millis) -> Vec<(Millis, Option<&'a NodeState>)> {
        let Some(node) = &machine.node else { return vec![(to, None)] };
        match self.view.land(&self.start.spot.0).nodes.get(node) {
            Some(history) => history.within(from, to).collect(),
            None => vec![(to, None)],
        }
    }

    /// S4: between the looks that preceded it and its execution the machine was unhealthy for longer than a rule allows.
    fn unjustified(&self) -> Option<Found> {
        let Looks { machine, node } = self.intent.looks;
        // How fresh its watch of another cluster was is not followed here.
        let watched_since = if self.view.is_here(&self.start.spot.0) { self.intent.slack.watched_since } else { Millis::MAX };
        let slack = Slack { watched_since, ..self.intent.slack };
        let Some(looked_at) = machine else { return Some(("S4", format!("{} was not looked at", self.named()))) };
        let mut seen = Vec::new();
        for (end, state) in self.states(&self.start.spot, looked_at, self.now) {
            let Some(state) = state else { continue };
            // Whoever names a node has to be looked at with it.
            let Some(node_at) = (if state.node.is_some() { node } else { Some(looked_at) }) else { continue };
            for (node_end, node) in self.nodes(state, node_at, self.now) {
                let at = end.max(node_end);
                let expired =
                    |policy: &&MachinePolicy| policy.targets(state) && policy.health(state, node, at, slack) == Health::Expired;
                if !state.deleting && self.policies.iter().any(expired) {
                    return None;
                }
                seen.push((at, state, node));
            }
        }
        Some(("S4", format!("{}, looked at {machine:?} and {node:?}: nothing justified it in {seen:?}", self.named())))
    }

    /// S2: nothing starts while the check or the cluster is paused.
    fn was_stopped(&self) -> Option<Found> {
        let is_paused = self.policies.iter().all(|policy| policy.paused);
        let clusters = &self.view.truth.clusters;
        let cluster = self.policies[0].cluster.as_ref().and_then(|name| clusters.get(&(self.start.spot.0.clone(), name.clone())));
        let is_cluster_paused = cluster.is_some_and(|history| {
            let mut states = history.within(self.from, self.intent.sent_at);
            states.all(|(_, is_paused)| is_paused == Some(&true))
        });
        (is_paused || is_cluster_paused).then(|| ("S2", format!("{} was to be repaired while paused", self.named())))
    }

    /// S4: nothing starts by who has to know that its clock is wrong.
    fn was_out_of_time(&self) -> Option<Found> {
        let since = self.intent.wrong_from.filter(|from| self.intent.sent_at > from + DECIDED_WITHIN)?;
        Some(("S4", format!("{} was to be repaired by a clock that is known to be wrong since {since}", self.named())))
    }

    /// S2: of several checks that are able to act the oldest is responsible, though it may not act now.
    fn was_overruled(&self) -> Option<Found> {
        let own = self.policies[0];
        let states = self.states(&self.start.spot, self.from, self.intent.sent_at);
        let other = self.view.truth.checks.iter().find(|(check, history)| {
            check.0 == self.check.0
                && *check != self.check
                && history.within(self.from, self.intent.sent_at).all(|(_, policy)| {
                    policy.is_some_and(|policy| {
                        (policy.created_at, *check) < (own.created_at, self.check)
                            && self.is_able(policy)
                            && states.iter().all(|(_, state)| state.is_some_and(|state| policy.targets(state)))
                    })
                })
        })?;
        Some(("S2", format!("{} was to be repaired, for which {} is responsible", self.named(), other.0.1)))
    }

    fn is_able(&self, policy: &MachinePolicy) -> bool {
        let template = match &policy.way {
            Way::Template(template) => template.clone(),
            Way::Owner | Way::PowerCycle | Way::Deletion => return !policy.deleting,
        };
        let templates = self.view.truth.templates.get(&(self.check.0.clone(), template));
        let is_usable = |history: &History<bool>| {
            history.within(self.from, self.intent.sent_at).all(|(_, is_usable)| is_usable == Some(&true))
        };
        !policy.deleting && templates.is_some_and(is_usable)
    }

    /// S2: two repairs do not meet on one machine, or on its node.
    fn doubled(&self) -> Option<Found> {
        let spot = &self.start.spot;
        if self.start.kind != Kind::Made && self.known_repair(spot).is_some_and(|repair| !repair.creator.is_empty()) {
            return Some(("S2", format!("{} was to be repaired in two ways at once", self.named())));
        }
        let state = self.view.truth.machine_at(spot)?;
        let node = state.node.as_ref().filter(|_| self.view.is_here(&spot.0))?;
        let is_known = |stored_at: Millis, creator: &str| creator == self.intent.identity || stored_at < self.from;
        let mut remediations = self.view.home.remediations.values();
        let other =
            remediations.find(|one| one.node == *node && !one.creator.is_empty() && is_known(one.stored_at, &one.creator))?;
        Some((
            "S2",
            format!("{} was to be repaired while a check of nodes has a remediation on its node: {other:?}", self.named()),
        ))
    }

    /// What was made for a machine, if the sender had to know. What somebody else has put there repairs nothing.
    fn known_repair(&self, spot: &Spot) -> Option<&'a Repair> {
        let is_known = |repair: &&Repair| repair.creator == self.intent.identity || repair.stored_at < self.from;
        let is_known = |repair: &&Repair| repair.machine.is_some() && is_known(repair);
        self.view.truth.repairs.get(spot).filter(is_known)
    }

    /// Its owner was asked, the sender had to know that, and it has not been healthy since.
    fn is_asked(&self, spot: &Spot) -> bool {
        let Some(ask) = self.view.truth.asks.get(spot) else { return false };
        let is_known = ask.by == self.intent.identity || ask.at < self.from;
        is_known && self.never_healthy(spot, ask.at.max(self.from))
    }

    /// It cannot have seemed healthy to any of the policies.
    fn never_healthy(&self, spot: &Spot, from: Millis) -> bool {
        let states = self.states(spot, from, self.intent.sent_at);
        !states.is_empty()
            && states.into_iter().all(|(_, state)| {
                let Some(state) = state else { return false };
                let nodes = self.nodes(state, from, self.intent.sent_at);
                nodes.into_iter().all(|(end, node)| {
                    let is_ill = |policy: &&MachinePolicy| policy.health(state, node, end, Slack::NONE) != Health::Healthy;
                    self.policies.iter().all(is_ill)
                })
            })
    }

    /// S2: nothing starts while too many are not healthy, or too few. Those under remediation count.
    fn gate_was_shut(&self) -> Option<Found> {
        let machines = || self.view.truth.machines.keys().filter(|spot| spot.0 == self.start.spot.0);
        let is_target = |spot: &Spot, always: bool| {
            let states = self.states(spot, self.from, self.intent.sent_at);
            let targeted = |state: Option<&MachineState>| {
                let by = |policy: &&MachinePolicy| state.is_some_and(|state| policy.targets(state));
                if always { self.policies.iter().all(by) } else { self.policies.iter().any(by) }
            };
            match always {
                true => !states.is_empty() && states.iter().all(|(_, state)| targeted(*state)),
                false => states.iter().any(|(_, state)| targeted(*state)),
            }
        };
        let is_out =
            |spot: &&Spot| self.known_repair(spot).is_some() || self.is_asked(spot) || self.never_healthy(spot, self.from);
        let not_healthy = machines().filter(|spot| is_target(spot, true)).filter(is_out).count();
        let most = machines().filter(|spot| is_target(spot, false)).count();
        let allowed = self.policies.iter().map(|policy| policy.allowed(most)).max().unwrap_or(0);
        if not_healthy > allowed {
            let story = format!("{} was to be repaired while {not_healthy} were not healthy and {allowed} allowed", self.named());
            return Some(("S2", story));
        }
        let needed = self.policies.iter().map(|policy| policy.needed()).min().unwrap_or(0);
        let may_be_out = |spot: &&Spot| {
            let removed_at = self.view.truth.removed.get(*spot).is_some_and(|at| *at >= self.from);
            removed_at || self.view.truth.repairs.contains_key(*spot) || self.may_be_unhealthy(spot)
        };
        let ill = machines().filter(|spot| is_target(spot, false)).filter(may_be_out).count();
        let story = || format!("{} was to be repaired while {ill} were not healthy and {needed} needed", self.named());
        (ill < needed).then(|| ("S2", story()))
    }

    fn may_be_unhealthy(&self, spot: &Spot) -> bool {
        self.states(spot, self.from, self.intent.sent_at).into_iter().any(|(_, state)| {
            let Some(state) = state else { return false };
            self.nodes(state, self.from, self.intent.sent_at).into_iter().any(|(end, node)| {
                self.policies.iter().any(|policy| policy.health(state, node, end, Slack::NONE) != Health::Healthy)
            })
        })
    }

    /// S3: one machine of the control plane at a time, and never one that etcd needs. Owners look after that themselves.
    fn took_the_quorum(&self) -> Option<Found> {
        let (spot, flavour) = (&self.start.spot, self.view.truth.dialect.flavour());
        let always = |spot: &Spot, is: &dyn Fn(&MachineState) -> bool| {
            let states = self.states(spot, self.from, self.intent.sent_at);
            !states.is_empty() && states.iter().all(|(_, state)| state.is_some_and(is))
        };
        let is_control_plane = |state: &MachineState| state.is_control_plane(flavour);
        if self.start.kind == Kind::Asked || !always(spot, &is_control_plane) {
            return None;
        }
        let cluster = self.view.truth.machine_at(spot).and_then(|state| state.cluster.clone());
        let is_busy =
            |other: &Spot| self.known_repair(other).is_some() || always(other, &|state| state.deleting || state.power_cycled);
        let mut others = self.view.truth.machines.keys().filter(|other| other.0 == spot.0 && *other != spot);
        let other = others.find(|other| {
            always(other, &|state| is_control_plane(state) && state.cluster == cluster && state.node.is_some()) && is_busy(other)
        });
        if let Some(other) = other {
            return Some(("S3", format!("{} was to be repaired while {} was out of service, too", self.named(), other.1)));
        }
        let land = self.view.land(&spot.0);
        let own = self.view.truth.machine_at(spot).and_then(|state| state.node.as_ref());
        let is_ready = |host: &&String| {
            let states = land.nodes.get(*host).map(|history| history.within(self.from, self.intent.sent_at));
            states.is_some_and(|mut states| states.any(|(_, state)| state.is_some_and(NodeState::is_ready)))
        };
        let ready = land.etcd.iter().filter(|host| Some(*host) != own).filter(is_ready).count();
        let needed = land.etcd.len() / 2 + 1;
        (!land.etcd.is_empty() && ready < needed).then(|| {
            let story = format!(
                "{} was to be repaired while {ready} other members of etcd were ready, {needed} are needed",
                self.named()
            );
            ("S3", story)
        })
    }
}
