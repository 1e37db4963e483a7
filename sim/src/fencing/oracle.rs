//! What must never happen, seen by somebody who knows the truth?
//!
//! S1: no workload runs twice, and nothing that runs is taken out of the API by force. What was released by a time that nobody
//! promised, from a node without a watchdog, is counted apart. F1: what is held as dead is dead. L1: after the faults all workloads run
//! again, and nothing is left of fencing. S6: every reset has a recorded cause, or one that we know of.

use std::collections::{BTreeMap, BTreeSet};

use resus_core::facts::Name;
use resus_core::fencing::agent::Failure;
use resus_core::fencing::lease::Seen;
use resus_core::fencing::pill::{Hold, Word};
use resus_core::fencing::roll::Entry;

use super::boots::Reset;
use super::errands::Belief;
use super::scenario::{Cue, Workload};
use super::site::Site;
use super::store::AgentLease;

#[derive(Default)]
pub struct Oracle {
    /// Of every pod that ever was.
    workloads: BTreeMap<Name, usize>,
    /// Pods that were on a node without a watchdog when it was released.
    unassured: BTreeSet<Name>,
    /// Pods that were taken out of the API by force.
    forced: BTreeSet<Name>,
    /// Boots whose order enough electors know.
    acknowledged: BTreeSet<Name>,
}

impl Oracle {
    pub fn made(&mut self, uid: Name, workload: usize) {
        self.workloads.insert(uid, workload);
    }

    pub fn workload_of(&self, uid: &Name) -> Option<usize> {
        self.workloads.get(uid).copied()
    }
}

impl Site {
    /// A pod begins to run.
    pub fn judge_start(&mut self, m: usize, uid: &Name) {
        let Some(workload) = self.oracle.workload_of(uid) else { return };
        if self.scenario.workloads[workload] == Workload::Local {
            return;
        }
        let name = self.machines[m].name.clone();
        self.trace.feed(self.agenda.now(), &[b"runs", uid.as_bytes()]);
        if self.oracle.forced.contains(uid) {
            self.violated(&[uid], format!("{name} starts {uid} of db-{workload}, which was taken away from it"));
        }
        let elsewhere = self.machines.iter().enumerate().filter(|(other, _)| *other != m).find_map(|(other, machine)| {
            machine.running.iter().find(|(_, own)| **own == workload).map(|(own, _)| (other, own.clone()))
        });
        if let Some((other, own)) = elsewhere {
            let story = format!("db-{workload} runs on n{other} as {own}, and is started on {name} as {uid}");
            self.violated(&[uid, &own], story);
        }
    }

    /// A pod is taken out of the API, and its kubelet was not asked.
    pub fn remove_by_force(&mut self, uid: &Name, by: &str) {
        let Some(pod) = self.store.pods.remove(uid) else { return };
        self.trace.count("pod removed by force");
        self.tell(format!("{uid} of db-{} is removed by {by}", pod.workload));
        if pod.shown.local {
            return;
        }
        self.oracle.forced.insert(uid.clone());
        let runs_on = self.machines.iter().find(|machine| machine.running.contains_key(uid)).map(|machine| machine.name.clone());
        if let Some(node) = runs_on {
            self.violated(&[uid], format!("{by} removes {uid} of db-{}, which {node} runs", pod.workload));
        }
    }

    /// The hold says that this boot has ended.
    pub fn judge_hold(&mut self, node: &Name, belief: &Belief) {
        let machine = &self.machines[self.by_name[node]];
        let lives = machine.is_up() && belief.dead.as_ref() == Some(&machine.boot_id());
        match (lives, belief.unassured) {
            (false, _) => {}
            (true, true) => self.trace.count("unassured node held alive"),
            (true, false) => {
                let story = format!("{node} is held as dead, and its boot {} runs", machine.boot_id());
                self.trace.violated("F1", self.agenda.now(), story);
            }
        }
    }

    /// From now on everything on it is released.
    pub fn judge_commit(&mut self, node: &Name, belief: &Belief) {
        let pods: Vec<Name> = self.store.pods_on(node).filter(|pod| !pod.shown.local).map(|pod| pod.shown.uid.clone()).collect();
        if belief.unassured {
            self.trace.count("released without a watchdog");
            self.oracle.unassured.extend(pods.iter().cloned());
        }
        self.trace.count(match belief.word {
            Word::None => "released by time",
            Word::KeptOff => "released by its bmc's word",
            Word::Confirmed => "released by a person's word",
        });
        let running = &self.machines[self.by_name[node]].running;
        if let Some(uid) = pods.into_iter().find(|uid| running.contains_key(uid)) {
            self.violated(&[&uid], format!("{node} is released, and still runs {uid}"));
        }
    }

    pub fn judge_reset(&mut self, m: usize, by: Reset) {
        let now = self.agenda.now();
        let machine = &self.machines[m];
        let is_explained = match by {
            Reset::Watchdog => machine.recorded.is_some() || machine.excuse.is_some(),
            Reset::Agent => machine.recorded.is_some(),
            Reset::Fault(_) => true,
        };
        if !is_explained {
            self.trace.violated("S6", now, format!("{} is reset by {by:?}, and nobody has written down why", machine.name));
        }
    }

    /// A Lease was written.
    pub fn judge_lease(&mut self, m: usize, stored: &Result<Seen, Failure>) {
        let Ok(seen) = stored else { return };
        // Its renewal may have made it so many that know of an order.
        let (roll, number) = (&self.store.roll, seen.claim.roll);
        let is_known = |entry: &&Entry| {
            let knows = |(node, lease): (&Name, &AgentLease)| *node != entry.node && lease.seen.claim.roll >= entry.since;
            let know = self.store.leases.iter().filter(|lease| knows(*lease)).count();
            entry.since <= number && entry.node != self.machines[m].name && know >= roll.electors.len().div_ceil(2)
        };
        if let Some(Entry { node, boot, .. }) = roll.orders.iter().find(is_known).cloned() {
            self.acknowledged(&node, &boot);
        }
        match seen.claim.bound {
            Some(_) => self.trace.count("promised"),
            None => self.trace.count("nothing promised"),
        }
    }

    /// Told once of each order.
    fn acknowledged(&mut self, node: &Name, boot: &Name) {
        if self.oracle.acknowledged.insert(boot.clone()) {
            self.trace.count("acknowledged");
            self.tell(format!("enough know that {boot} is to end"));
            self.echo(Cue::Acknowledged, self.by_name[node]);
        }
    }

    fn violated(&mut self, pods: &[&Name], story: String) {
        if pods.iter().any(|uid| self.oracle.unassured.contains(*uid)) {
            self.trace.count("unassured double run");
        } else {
            self.trace.violated("S1", self.agenda.now(), story);
        }
    }

    /// What is still missing after all has been mended?
    pub fn unwell(&self) -> Option<String> {
        let runs = |workload: usize| self.machines.iter().any(|machine| machine.running.values().any(|own| *own == workload));
        let missing = (0..self.scenario.workloads.len()).find(|workload| !runs(*workload));
        if let Some(workload) = missing {
            let pod = self.store.pods.values().find(|pod| pod.workload == workload);
            return Some(format!("db-{workload} runs nowhere; {pod:?}; {}", self.control.told()));
        }
        if let Some((node, remediation)) = self.store.remediations.first_key_value() {
            return Some(format!("the remediation of {node} has not ended: {remediation:?}; {}", self.control.told()));
        }
        let is_marked = |node: &super::store::NodeObject| node.shown.cordoned || node.shown.hold != Hold::None;
        let left = self.store.nodes.iter().find(|(_, node)| is_marked(node));
        left.map(|(name, node)| format!("{name} is still marked: {node:?}; {}", self.control.told()))
    }
}
