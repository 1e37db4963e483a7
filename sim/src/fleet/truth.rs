//! What stands in the API about Machines, and what stood there lately?
//!
//! As [`crate::ledger`], for Machines, their checks, and what is made to repair them.

use std::collections::BTreeMap;

use resus_core::mhc::facts::{CLUSTER_LABEL, CONTROL_PLANE_MACHINE_LABEL, Dialect, Flavour, ROLE_LABEL};
use serde_json::Value;

use crate::api::Api;
use crate::clock::Millis;
use crate::eye::Eye;
use crate::fleet::policy::MachinePolicy;
use crate::ledger::{History, dated};
use crate::machinery::METAL3;
use crate::owner::conditions;
use crate::policy::text;

/// Namespace and name.
pub type Spot = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Machines,
    Checks,
    Clusters,
    Repairs,
    Templates,
}

pub struct Truth {
    pub dialect: Dialect,
    eyes: Vec<(Subject, Eye)>,
    pub machines: BTreeMap<Spot, History<MachineState>>,
    pub checks: BTreeMap<Spot, History<MachinePolicy>>,
    /// What was made for machines; all have the names of those.
    pub repairs: BTreeMap<Spot, Repair>,
    /// When the last thing of each name was removed.
    pub removed: BTreeMap<Spot, Millis>,
    /// Whether something can be made from each template.
    pub templates: BTreeMap<Spot, History<bool>>,
    /// Whether each Cluster is paused.
    pub clusters: BTreeMap<Spot, History<bool>>,
    /// Requests to owners that stand on machines.
    pub asks: BTreeMap<Spot, Ask>,
    /// Number of changes in each namespace so far.
    pub changes: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineState {
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub created_at: Millis,
    pub deleting: bool,
    pub cluster: Option<String>,
    pub node: Option<String>,
    /// Name of the MachineSet that controls it.
    pub owner: Option<String>,
    pub paused: bool,
    pub skipped: bool,
    /// Somebody wants it to be repaired.
    pub wanted: bool,
    pub failed: bool,
    pub updated_at: Option<Millis>,
    /// It has the annotation by which it is to be power-cycled.
    pub power_cycled: bool,
    /// What owners read: the machine is not healthy, and they are to repair it.
    pub asked: bool,
    /// That stands as we wrote it.
    pub asked_by_us: bool,
}

impl MachineState {
    pub fn is_control_plane(&self, flavour: Flavour) -> bool {
        match flavour {
            Flavour::ClusterApi => self.labels.contains_key(CONTROL_PLANE_MACHINE_LABEL),
            Flavour::OpenShift => self.labels.get(ROLE_LABEL.0).is_some_and(|role| role == ROLE_LABEL.1),
        }
    }

    pub fn is_wanted_repaired(&self, flavour: Flavour) -> bool {
        match flavour {
            Flavour::ClusterApi => self.wanted,
            Flavour::OpenShift => self.failed,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Repair {
    pub uid: String,
    /// Uid of the machine that owns it.
    pub machine: Option<String>,
    pub stored_at: Millis,
    pub deleting: bool,
    pub held: bool,
    /// The process that made it; empty if it was none of ours.
    pub creator: String,
}

/// A request to the owner of a machine.
#[derive(Clone, Debug)]
pub struct Ask {
    pub by: String,
    pub at: Millis,
}

impl Truth {
    pub fn open(dialect: Dialect, has_clusters: bool, api: &mut Api) -> Truth {
        let own = |plural: &str| format!("/apis/{}/{plural}", dialect.api_version());
        let metal3 = |plural: &str| format!("/apis/{METAL3}/{plural}");
        let clusters = has_clusters.then(|| (Subject::Clusters, own("clusters")));
        let eyes = [
            (Subject::Machines, own("machines")),
            (Subject::Checks, own("machinehealthchecks")),
            (Subject::Repairs, metal3("metal3remediations")),
            (Subject::Templates, metal3("metal3remediationtemplates")),
        ];
        let eyes = eyes.into_iter().chain(clusters).map(|(subject, path)| (subject, Eye::open(0, api, &path)));
        Truth {
            dialect,
            eyes: eyes.collect(),
            machines: BTreeMap::new(),
            checks: BTreeMap::new(),
            repairs: BTreeMap::new(),
            removed: BTreeMap::new(),
            templates: BTreeMap::new(),
            clusters: BTreeMap::new(),
            asks: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    /// Reads everything that was written since it was called last, by `writer`, and tells what of it matters.
    pub fn read(&mut self, now: Millis, api: &mut Api, writer: &str) -> Vec<String> {
        let mut told = Vec::new();
        let mut eyes = std::mem::take(&mut self.eyes);
        for (subject, eye) in &mut eyes {
            for event in eye.read(now, api) {
                self.take(now, *subject, &event, writer, &mut told);
            }
        }
        self.eyes = eyes;
        told
    }

    fn take(&mut self, now: Millis, subject: Subject, event: &Value, writer: &str, told: &mut Vec<String>) {
        let (object, is_gone) = (&event["object"], event["type"] == "DELETED");
        let metadata = &object["metadata"];
        let spot = (text(&metadata["namespace"]), text(&metadata["name"]));
        *self.changes.entry(spot.0.clone()).or_default() += 1;
        match subject {
            Subject::Machines => self.take_machine(now, &spot, (!is_gone).then(|| self.machine(object)), writer, told),
            Subject::Checks => {
                let policy = (!is_gone).then(|| MachinePolicy::read(object, self.dialect));
                if self.checks.entry(spot.clone()).or_default().push(now, policy) {
                    told.push(format!("check {}/{} is {}", spot.0, spot.1, if is_gone { "gone" } else { "there" }));
                }
            }
            Subject::Clusters => {
                let is_paused = object["spec"]["paused"] == true;
                self.clusters.entry(spot).or_default().push(now, (!is_gone).then_some(is_paused));
            }
            Subject::Repairs => self.take_repair(now, spot, object, is_gone, writer, told),
            Subject::Templates => {
                let is_usable = object["spec"]["template"].is_object();
                self.templates.entry(spot).or_default().push(now, (!is_gone).then_some(is_usable));
            }
        }
    }

    fn take_machine(&mut self, now: Millis, spot: &Spot, state: Option<MachineState>, writer: &str, told: &mut Vec<String>) {
        let history = self.machines.entry(spot.clone()).or_default();
        let before = history.current().cloned();
        match (state.as_ref().is_some_and(|state| state.asked), self.asks.contains_key(spot)) {
            (true, false) => drop(self.asks.insert(spot.clone(), Ask { by: writer.to_owned(), at: now })),
            (false, true) => drop(self.asks.remove(spot)),
            (true, true) | (false, false) => {}
        }
        let what = match (&before, &state) {
            (None, Some(_)) => Some("is there".to_owned()),
            (Some(_), None) => Some("is gone".to_owned()),
            (Some(before), Some(after)) => changed(before, after),
            (None, None) => None,
        };
        told.extend(what.map(|what| format!("machine {}/{} {what}", spot.0, spot.1)));
        history.push(now, state);
    }

    fn machine(&self, object: &Value) -> MachineState {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let has = |annotation: &str| !metadata["annotations"][annotation].is_null();
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let labels: BTreeMap<String, String> = labels.map(|(key, value)| (key.clone(), text(value))).collect();
        let style = self.dialect.styles()[0];
        let own = conditions(object, self.dialect, style);
        let is_false = |kind: &str| own.iter().find(|own| own["type"] == kind && own["status"] == "False");
        let request = is_false("OwnerRemediated");
        MachineState {
            uid: text(&metadata["uid"]),
            created_at: dated(&metadata["creationTimestamp"]),
            deleting: !metadata["deletionTimestamp"].is_null(),
            cluster: labels.get(CLUSTER_LABEL).cloned(),
            labels,
            node: status["nodeRef"]["name"].as_str().map(str::to_owned),
            owner: metadata["ownerReferences"][0]["name"].as_str().map(str::to_owned),
            paused: has("cluster.x-k8s.io/paused"),
            skipped: has("cluster.x-k8s.io/skip-remediation"),
            wanted: has("cluster.x-k8s.io/remediate-machine"),
            failed: status["phase"] == "Failed",
            updated_at: status["lastUpdated"].as_str().map(|_| dated(&status["lastUpdated"])),
            power_cycled: has("host.metal3.io/external-remediation"),
            asked: request.is_some() && is_false("HealthCheckSucceeded").is_some(),
            asked_by_us: request.is_some_and(|own| own["reason"] == "WaitingForRemediation"),
        }
    }

    fn take_repair(&mut self, now: Millis, spot: Spot, object: &Value, is_gone: bool, writer: &str, told: &mut Vec<String>) {
        let metadata = &object["metadata"];
        if is_gone {
            told.push(format!("what was made for machine {}/{} is gone", spot.0, spot.1));
            self.repairs.remove(&spot);
            self.removed.insert(spot, now);
            return;
        }
        let uid = text(&metadata["uid"]);
        let known = self.repairs.get(&spot).filter(|known| known.uid == uid);
        let (stored_at, creator) = known.map_or((now, writer.to_owned()), |known| (known.stored_at, known.creator.clone()));
        if known.is_none() {
            let by = if writer.is_empty() { "somebody else" } else { writer };
            told.push(format!("a remediation for machine {}/{} is made by {by}", spot.0, spot.1));
        }
        let repair = Repair {
            uid,
            machine: metadata["ownerReferences"][0]["uid"].as_str().map(str::to_owned),
            stored_at,
            deleting: !metadata["deletionTimestamp"].is_null(),
            held: metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty()),
            creator,
        };
        self.repairs.insert(spot, repair);
    }

    /// All machines of a namespace that are there.
    pub fn machines_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Spot, &'a MachineState)> {
        let there = self.machines.iter().filter(move |(spot, _)| spot.0 == namespace);
        there.filter_map(|(spot, history)| Some((spot, history.current()?)))
    }

    /// Has this process just asked the owner of the machine to repair it?
    pub fn is_asked_by(&self, spot: &Spot, identity: &str, now: Millis) -> bool {
        self.asks.get(spot).is_some_and(|ask| ask.by == identity && ask.at == now)
    }

    pub fn machine_at(&self, spot: &Spot) -> Option<&MachineState> {
        self.machines.get(spot)?.current()
    }
}

/// What of it is worth telling.
fn changed(before: &MachineState, after: &MachineState) -> Option<String> {
    let flags = [
        (before.deleting, after.deleting, "is being deleted", "is not being deleted"),
        (before.asked, after.asked, "is for its owner to repair", "is no longer for its owner to repair"),
        (before.power_cycled, after.power_cycled, "is to be power-cycled", "is no longer to be power-cycled"),
        (before.failed, after.failed, "has failed", "has not failed"),
    ];
    let flags = flags.into_iter().filter(|(before, after, ..)| before != after);
    let told = flags.map(|(_, is, yes, no)| if is { yes.to_owned() } else { no.to_owned() });
    let node = (before.node != after.node).then(|| format!("names node {}", after.node.as_deref().unwrap_or("none")));
    let all: Vec<String> = told.chain(node).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
