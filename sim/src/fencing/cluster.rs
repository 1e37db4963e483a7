//! What does the rest of Kubernetes do, and who asks for remediations?
//!
//! Node lifecycle, taints that mark pods, garbage collection, StatefulSets, the scheduler, and something like a health check. They
//! see the API as it is, each so often.

use resus_core::facts::Name;
use resus_core::fencing::pill::{Case, Hold, Pod, Strategy, Word};

use super::machine::Power;
use super::net::LATE_MAX;
use super::scenario::Workload;
use super::site::{Event, Site};
use super::store::{PodObject, Remediation};
use crate::clock::{Millis, SECOND};

const LOOKS_EACH: Millis = 2 * SECOND;
/// Kubernetes' node monitor grace period.
const SILENT_MAX: Millis = 40 * SECOND;
/// So often its garbage collection runs, and so long a Node may be missing.
const COLLECTS_EACH: Millis = 20 * SECOND;
const ORPHANED_FOR: Millis = 40 * SECOND;
/// A node that is well for so long is no longer remediated.
const WELL_FOR: Millis = 10 * SECOND;
/// What a health check would do with a remediation of a well node.
const MISTAKEN_FOR: Millis = 240 * SECOND;

pub struct Cluster {
    /// When everything was last looked at.
    pub looked_at: Millis,
    collected_at: Millis,
    /// By workload: where the local ones belong.
    local_on: Vec<Option<usize>>,
}

impl Cluster {
    pub fn new(workloads: &[Workload]) -> Cluster {
        let mut locals = 0..;
        let place = |workload: &Workload| match workload {
            Workload::Plain | Workload::Stubborn => None,
            Workload::Local => locals.next(),
        };
        Cluster { looked_at: 0, collected_at: 0, local_on: workloads.iter().map(place).collect() }
    }
}

impl Site {
    pub fn run_kubernetes(&mut self) {
        let now = self.agenda.now();
        self.agenda.after(LOOKS_EACH, Event::Kubernetes);
        self.cluster.looked_at = now;
        if !self.net.is_down(now) {
            self.notice_silence();
            self.mark_pods();
            if now - self.cluster.collected_at >= COLLECTS_EACH {
                self.cluster.collected_at = now;
                self.collect_garbage();
            }
            self.make_pods();
            self.schedule();
            self.remediate();
        }
        self.let_go();
    }

    fn notice_silence(&mut self) {
        let now = self.agenda.now();
        let silent = |node: &&super::store::NodeObject| node.ready && now - node.beaten_at > SILENT_MAX;
        let count = self.store.nodes.values().filter(silent).count();
        let versions: Vec<_> = (0..count).map(|_| self.store.next_version()).collect();
        let nodes = self.store.nodes.values_mut().filter(|node| node.ready && now - node.beaten_at > SILENT_MAX);
        for (node, version) in nodes.zip(versions) {
            (node.ready, node.ready_since, node.shown.version) = (false, now, version);
        }
    }

    /// NoExecute taints: ours, the one that says out of service, and Kubernetes' own for nodes that are not ready.
    fn mark_pods(&mut self) {
        let (now, evicted_after) = (self.agenda.now(), self.scenario.habits.evicted_after);
        for pod in self.store.pods.values_mut().filter(|pod| !pod.shown.marked && !pod.shown.tolerates) {
            let Some(node) = pod.node.as_ref().and_then(|node| self.store.nodes.get(node)) else { continue };
            let is_tainted = node.shown.hold != Hold::None || node.out_of_service;
            let is_evicted = !pod.shown.local && !node.ready && now - node.ready_since > evicted_after;
            pod.shown.marked = (is_tainted || is_evicted) && self.luck.cluster.chance(40);
        }
    }

    fn collect_garbage(&mut self) {
        let now = self.agenda.now();
        let mut removed: Vec<(Name, &str)> = Vec::new();
        for pod in self.store.pods.values_mut() {
            let Some(name) = &pod.node else { continue };
            match self.store.nodes.get(name) {
                Some(node) => {
                    pod.orphaned_at = None;
                    if node.out_of_service && !node.ready && pod.shown.marked {
                        removed.push((pod.shown.uid.clone(), "garbage collection"));
                    }
                }
                None => {
                    let since = *pod.orphaned_at.get_or_insert(now);
                    if now - since >= ORPHANED_FOR {
                        removed.push((pod.shown.uid.clone(), "garbage collection of orphans"));
                    }
                }
            }
        }
        for (uid, by) in removed {
            self.remove_by_force(&uid, by);
        }
    }

    /// A name is used again only when the object is gone.
    fn make_pods(&mut self) {
        for workload in 0..self.scenario.workloads.len() {
            let exists = self.store.pods.values().any(|pod| pod.workload == workload);
            if exists || !self.luck.cluster.chance(60) {
                continue;
            }
            let kind = self.scenario.workloads[workload];
            let uid = self.store.next_uid("pod");
            let (local, tolerates) = (kind == Workload::Local, kind != Workload::Plain);
            let shown = Pod { uid: uid.clone(), marked: false, tolerates, local };
            let node = self.cluster.local_on[workload].map(|m| self.machines[m].name.clone());
            self.oracle.made(uid.clone(), workload);
            self.store.pods.insert(uid, PodObject { workload, node, shown, orphaned_at: None });
        }
    }

    fn schedule(&mut self) {
        let unbound: Vec<(Name, bool)> = self
            .store
            .pods
            .values()
            .filter(|pod| pod.node.is_none() && !pod.shown.marked)
            .map(|pod| (pod.shown.uid.clone(), pod.shown.tolerates))
            .collect();
        for (uid, tolerates) in unbound {
            let is_free =
                |node: &super::store::NodeObject| !node.shown.cordoned && node.shown.hold == Hold::None && !node.out_of_service;
            // Who tolerates everything tolerates that a node is cordoned.
            let fit: Vec<Name> = self
                .store
                .nodes
                .iter()
                .filter(|(_, node)| node.ready && (tolerates || is_free(node)))
                .map(|(name, _)| name.clone())
                .collect();
            let chosen = self.luck.cluster.pick(&fit).cloned();
            if let (Some(pod), Some(node)) = (self.store.pods.get_mut(&uid), chosen) {
                self.trace.feed(self.agenda.now(), &[b"bind", uid.as_bytes(), node.as_bytes()]);
                pod.node = Some(node);
            }
        }
    }

    /// Nodes that are not ready for some time; and what was remediated and is well again is left alone.
    fn remediate(&mut self) {
        let now = self.agenda.now();
        let after = self.scenario.habits.remediated_after;
        let sick = |node: &super::store::NodeObject| !node.ready && now - node.ready_since >= after;
        let nodes: Vec<Name> = self.store.nodes.iter().filter(|(_, node)| sick(node)).map(|(name, _)| name.clone()).collect();
        for name in nodes {
            self.make_remediation(&name, false);
        }
        let well = |name: &Name| self.store.nodes.get(name).is_some_and(|node| node.ready && now - node.ready_since >= WELL_FOR);
        let is_old = |remediation: &Remediation| {
            !remediation.mistaken
                || self.healed
                || remediation.case.noted.as_ref().is_some_and(|noted| now - noted.at.0 > MISTAKEN_FOR)
        };
        let over = self.store.remediations.iter().filter(|(name, own)| !own.case.ending && is_old(own) && well(name));
        let over: Vec<Name> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.end_remediation(&name);
        }
    }

    pub fn make_remediation(&mut self, node: &Name, mistaken: bool) -> bool {
        if self.store.remediations.contains_key(node) {
            return false;
        }
        let (rng, habits) = (&mut self.luck.cluster, self.scenario.habits);
        let strategies = [Strategy::OutOfServiceTaint, Strategy::ResourceDeletion, Strategy::NodeDeletion];
        let case = Case {
            node: node.clone(),
            remediation: self.store.next_uid("remediation"),
            strategy: strategies[rng.below(strategies.len())],
            ending: false,
            noted: None,
            safe_time: habits.safe_time,
            require_assured: rng.chance(habits.require_assured),
            word: Word::None,
        };
        self.tell(format!("{node} is to be remediated{}", if mistaken { " by mistake" } else { "" }));
        let version = self.store.next_version();
        self.store.remediations.insert(node.clone(), Remediation { version, case, mistaken });
        true
    }

    pub fn end_remediation(&mut self, node: &Name) -> bool {
        let Some(version) = self.store.remediations.get(node).map(|own| own.version.clone()) else { return false };
        let ends = self.store.change_remediation(node, &version, |case| case.ending = true).is_ok();
        self.tell(format!("the remediation of {node} is to end"));
        ends
    }

    /// F2: who is kept off stays off until everything on it was released, or its remediation is gone.
    fn let_go(&mut self) {
        let now = self.agenda.now();
        for m in 0..self.machines.len() {
            let machine = &self.machines[m];
            let Some(remediation) = &machine.kept_off else { continue };
            let known = self.store.remediations.get(&machine.name).filter(|own| own.case.remediation == *remediation);
            let is_over = known.is_none_or(|own| {
                let held = self.store.nodes.get(&machine.name).map_or(Hold::None, |node| node.shown.hold);
                let is_released = own.case.noted.as_ref().is_some_and(|noted| noted.released) && held == Hold::None;
                // Nobody has acted on the word for so long that nobody will.
                let is_taken_back = own.case.word == Word::None && self.healed && now >= self.scenario.heals_at + LATE_MAX;
                is_released || is_taken_back
            });
            if is_over && machine.power == Power::Off {
                self.machines[m].kept_off = None;
                self.power_on(m);
            }
        }
    }
}
