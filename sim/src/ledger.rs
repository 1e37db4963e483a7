//! What stands in the API, and what stood there lately?
//!
//! The truth that oracles judge by: every change of Nodes, checks and remediations as the server stored it, read
//! through watches of the ledger's own, at once after every write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use resus_core::facts::ObjectKey;
use serde_json::Value;

use crate::api::Api;
use crate::clock::{EPOCH, MINUTE, Millis, SECOND};
use crate::eye::Eye;
use crate::policy::{Condition, NodeState, Policy, text};

/// Longer than anything that a controller may still believe without being in doubt.
const KEPT_FOR: Millis = 5 * MINUTE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Nodes,
    Checks,
    Remediations,
    Templates,
    NodeLeases,
}

const NODE_LEASES: (Subject, &str) = (Subject::NodeLeases, "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases");
const NODES: (Subject, &str) = (Subject::Nodes, "/api/v1/nodes");
const CHECKS: (Subject, &str) = (Subject::Checks, "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks");
const PROVIDED: [(Subject, &str); 4] = [
    (Subject::Remediations, "/apis/provider.test/v1/rebootremediations"),
    (Subject::Remediations, "/apis/provider.test/v1/powerremediations"),
    (Subject::Templates, "/apis/provider.test/v1/rebootremediationtemplates"),
    (Subject::Templates, "/apis/provider.test/v1/powerremediationtemplates"),
];

/// Where the object is among those of the provider: `rebootremediations/worker-1`.
pub fn place(key: &ObjectKey) -> String {
    format!("{}s/{}", key.kind.kind.to_lowercase(), key.name)
}

#[derive(Default)]
pub struct Ledger {
    eyes: Vec<(Subject, Eye)>,
    pub nodes: BTreeMap<String, History<NodeState>>,
    pub checks: BTreeMap<String, History<Policy>>,
    /// By [`place`]: all are in the provider's namespace. Templates too.
    pub remediations: BTreeMap<String, Remediation>,
    pub templates: BTreeMap<String, Value>,
    /// Leases of others on nodes, by node.
    pub holds: BTreeMap<String, History<Hold>>,
    /// What the status of each check says. It is what controllers remember by, and no fact that they should act on.
    pub statuses: BTreeMap<String, History<Said>>,
    /// Nodes on which there is etcd.
    pub etcd: BTreeSet<String>,
    /// The process whose request is being executed.
    pub writer: String,
}

#[derive(Clone, Debug)]
pub struct Remediation {
    pub uid: String,
    pub node: String,
    /// Uid of the check that owns it.
    pub owner: Option<String>,
    /// Name of the template that it was made from.
    pub template: String,
    pub stored_at: Millis,
    pub deleting: bool,
    pub held: bool,
    /// The process that created it; empty if it was none of ours.
    pub creator: String,
}

/// Somebody else's Lease on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub holder: String,
    pub until: Millis,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Templates that were tried in vain, by node.
    pub given_up: BTreeMap<String, BTreeSet<String>>,
    pub storm: bool,
    /// Since when it waits for the end of the cooldown.
    pub cooling_since: Option<Millis>,
}

/// What changed, as far as others want to know.
#[derive(Clone, Debug)]
pub enum Change {
    /// A fact about a node that decisions may depend on.
    Node(String),
    Condition {
        node: String,
        kind: String,
        status: String,
    },
    Check,
    Created {
        name: String,
        uid: String,
        node: String,
    },
    Updated {
        name: String,
        uid: String,
        deleting: bool,
    },
    Removed {
        name: String,
        node: String,
    },
    Template,
    Hold,
}

impl Ledger {
    pub fn open(&mut self, now: Millis, api: &mut Api) {
        for (subject, path) in [NODES, CHECKS, NODE_LEASES] {
            self.look_at(now, api, subject, path);
        }
    }

    /// Of another cluster only its Nodes are of interest.
    pub fn open_nodes(&mut self, now: Millis, api: &mut Api) {
        let (subject, path) = NODES;
        self.look_at(now, api, subject, path);
    }

    /// When the provider's kinds are there.
    pub fn open_provider(&mut self, now: Millis, api: &mut Api) {
        for (subject, path) in PROVIDED {
            if !self.eyes.iter().any(|(_, eye)| eye.path == path) {
                self.look_at(now, api, subject, path);
            }
        }
    }

    fn look_at(&mut self, now: Millis, api: &mut Api, subject: Subject, path: &str) {
        self.eyes.push((subject, Eye::open(now, api, path)));
    }

    /// Reads everything that was written since it was called last.
    pub fn read(&mut self, now: Millis, api: &mut Api) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut eyes = std::mem::take(&mut self.eyes);
        for (subject, eye) in &mut eyes {
            for event in eye.read(now, api) {
                self.take(now, (*subject, &eye.path), &event, &mut changes);
            }
        }
        self.eyes = eyes;
        changes
    }

    fn take(&mut self, now: Millis, (subject, path): (Subject, &str), event: &Value, changes: &mut Vec<Change>) {
        let (object, is_gone) = (&event["object"], event["type"] == "DELETED");
        let name = text(&object["metadata"]["name"]);
        let place = format!("{}/{name}", plural(path));
        match subject {
            Subject::Nodes => self.take_node(now, name, object, is_gone, changes),
            Subject::Checks => {
                let said = (!is_gone).then(|| said(&object["status"]));
                self.statuses.entry(name.clone()).or_default().push(now, said);
                let policy = (!is_gone).then(|| Policy::read(object, dated(&object["metadata"]["creationTimestamp"])));
                if self.checks.entry(name).or_default().push(now, policy) {
                    changes.push(Change::Check);
                }
            }
            Subject::Remediations => self.take_remediation(now, place, object, is_gone, changes),
            Subject::NodeLeases => {
                let hold = hold(object).filter(|_| !is_gone);
                let node = name.strip_prefix(LEASE_PREFIX).unwrap_or(&name).to_owned();
                if self.holds.entry(node).or_default().push(now, hold) {
                    changes.push(Change::Hold);
                }
            }
            Subject::Templates => {
                match is_gone {
                    true => self.templates.remove(&place),
                    false => self.templates.insert(place, object["spec"].clone()),
                };
                changes.push(Change::Template);
            }
        }
    }

    fn take_node(&mut self, now: Millis, name: String, object: &Value, is_gone: bool, changes: &mut Vec<Change>) {
        let history = self.nodes.entry(name.clone()).or_default();
        let known = history.current().map(|node| node.conditions.clone()).unwrap_or_default();
        let read = |condition: &Value| {
            let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
            let stamp = text(&condition["lastTransitionTime"]);
            let since = known.iter().find(|known| known.kind == kind && known.status == status).map_or(now, |same| same.since);
            let dated_before = (since - dated(&condition["lastTransitionTime"])).max(0);
            Condition { kind, status, since, dated: stamp, dated_before }
        };
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let node = NodeState {
            uid: text(&object["metadata"]["uid"]),
            labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
            created_at: dated(&object["metadata"]["creationTimestamp"]),
            conditions: object["status"]["conditions"].as_array().into_iter().flatten().map(read).collect(),
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        };
        for Condition { kind, status, .. } in &node.conditions {
            let before = known.iter().find(|known| known.kind == *kind).map(|known| &known.status);
            if before != Some(status) && !is_gone {
                changes.push(Change::Condition { node: name.clone(), kind: kind.clone(), status: status.clone() });
            }
        }
        if history.push(now, (!is_gone).then_some(node)) {
            changes.push(Change::Node(name));
        }
    }

    fn take_remediation(&mut self, now: Millis, name: String, object: &Value, is_gone: bool, changes: &mut Vec<Change>) {
        let metadata = &object["metadata"];
        let node = match metadata["annotations"]["remediation.medik8s.io/node-name"].as_str() {
            Some(node) => node.to_owned(),
            None => text(&metadata["name"]),
        };
        if is_gone {
            self.remediations.remove(&name);
            return changes.push(Change::Removed { name, node });
        }
        let (uid, deleting) = (text(&metadata["uid"]), !metadata["deletionTimestamp"].is_null());
        let held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let owner = metadata["ownerReferences"][0]["uid"].as_str().map(str::to_owned);
        let template = text(&metadata["annotations"]["remediation.medik8s.io/template-name"]);
        let known = self.remediations.get(&name).filter(|known| known.uid == uid);
        let (stored_at, creator) = known.map_or((now, self.writer.clone()), |known| (known.stored_at, known.creator.clone()));
        changes.push(match known {
            None => Change::Created { name: name.clone(), uid: uid.clone(), node: node.clone() },
            Some(_) => Change::Updated { name: name.clone(), uid: uid.clone(), deleting },
        });
        self.remediations.insert(name, Remediation { uid, node, owner, template, stored_at, deleting, held, creator });
    }

    /// The policy of the check with this uid, as it is or was last.
    pub fn check_of(&self, uid: &str) -> Option<(&String, &History<Policy>)> {
        self.checks.iter().find(|(_, history)| history.latest().is_some_and(|policy| policy.uid == uid))
    }

    /// Who else has the node out of service now?
    pub fn hold(&self, node: &str, now: Millis) -> Option<&Hold> {
        self.holds.get(node)?.current().filter(|hold| hold.until > now)
    }

    /// How many steps have been tried in vain on the node under this check, as far as anybody remembers.
    pub fn given_up(&self, check: &str, node: &str) -> usize {
        let said = self.statuses.get(check).and_then(History::current);
        said.and_then(|said| said.given_up.get(node)).map_or(0, BTreeSet::len)
    }

    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)?.current()
    }
}

/// What something was, and since when.
#[derive(Debug)]
pub struct History<T>(VecDeque<(Millis, Option<T>)>);

impl<T> Default for History<T> {
    fn default() -> History<T> {
        History(VecDeque::new())
    }
}

impl<T: PartialEq> History<T> {
    /// False if it was so already.
    pub fn push(&mut self, now: Millis, state: Option<T>) -> bool {
        if self.0.back().is_some_and(|(_, known)| *known == state) {
            return false;
        }
        self.0.push_back((now, state));
        while self.0.len() > 2 && self.0[1].0 < now - KEPT_FOR {
            self.0.pop_front();
        }
        true
    }
}

impl<T> History<T> {
    pub fn current(&self) -> Option<&T> {
        self.0.back()?.1.as_ref()
    }

    /// The last state in which it existed.
    pub fn latest(&self) -> Option<&T> {
        self.0.iter().rev().find_map(|(_, state)| state.as_ref())
    }

    pub fn changed_at(&self) -> Millis {
        self.0.back().map_or(0, |(at, _)| *at)
    }

    /// All states that held at some time from `from` to `to`, each with when, within that, it held last; None while it
    /// did not exist.
    pub fn within(&self, from: Millis, to: Millis) -> impl Iterator<Item = (Millis, Option<&T>)> {
        let before = self.0.front().filter(|(began, _)| *began > from).map(|_| (from, None));
        let states = self.0.iter().enumerate().filter_map(move |(at, (began, state))| {
            let ended = self.0.get(at + 1).map_or(Millis::MAX, |(next, _)| *next);
            (*began <= to && ended >= from).then_some((ended.min(to), state.as_ref()))
        });
        before.into_iter().chain(states)
    }
}

const LEASE_PREFIX: &str = "node-";

/// None: it is ours.
fn hold(lease: &Value) -> Option<Hold> {
    let (spec, holder) = (&lease["spec"], text(&lease["spec"]["holderIdentity"]));
    let until = dated(&spec["renewTime"]) + spec["leaseDurationSeconds"].as_i64().unwrap_or(0) * SECOND;
    (!holder.is_empty() && !holder.starts_with("NodeHealthCheck-")).then_some(Hold { holder, until })
}

fn said(status: &Value) -> Said {
    let mut given_up: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in status["unhealthyNodes"].as_array().into_iter().flatten() {
        let remediations = node["remediations"].as_array().into_iter().flatten();
        for one in remediations.filter(|one| !one["timedOut"].is_null()) {
            given_up.entry(text(&node["name"])).or_default().insert(text(&one["templateName"]));
        }
    }
    let is_true = |kind: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        all.find(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let cooling_since = is_true("StormCooldownActive").map(|condition| dated(&condition["lastTransitionTime"]));
    Said { given_up, storm: is_true("StormActive").is_some(), cooling_since }
}

fn plural(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub fn dated(value: &Value) -> Millis {
    let stamp = value.as_str().and_then(|stamp| stamp.parse::<jiff::Timestamp>().ok());
    stamp.map_or(0, |stamp| stamp.as_millisecond() - EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_tells_what_held_within_a_time() {
        let mut history = History::default();
        for (at, state) in [(10, Some("a")), (20, Some("b")), (30, None)] {
            assert!(history.push(at, state));
        }
        assert!(!history.push(40, None), "no change");
        let within = |from, to| history.within(from, to).collect::<Vec<_>>();
        assert_eq!(within(12, 15), [(15, Some(&"a"))]);
        assert_eq!(within(15, 25), [(20, Some(&"a")), (25, Some(&"b"))]);
        assert_eq!(within(5, 12), [(5, None), (12, Some(&"a"))], "before it was there");
        assert_eq!(within(35, 50), [(50, None)]);
        assert_eq!((history.current(), history.latest(), history.changed_at()), (None, Some(&"b"), 30));
    }
}
