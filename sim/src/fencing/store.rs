//! What stands in the API, and what does a write need to be stored?
//!
//! As etcd has it: one version after the other, every read is of the newest. A write that names a version is stored only on
//! that one; one that names none is stored whatever there is, as Kubernetes does it.

use std::collections::{BTreeMap, BTreeSet};

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::Failure;
use resus_core::fencing::lease::{Claim, Order, Seen};
use resus_core::fencing::pill::{Case, Hold, Node, Noted, Pod, Strategy, Word};
use resus_core::fencing::roll::{Roll, Voter, is_living};
use resus_core::time::{Mono, Wall};

use crate::clock::Millis;

pub struct Store {
    stored: u64,
    made: u64,
    pub leases: BTreeMap<Name, AgentLease>,
    pub nodes: BTreeMap<Name, NodeObject>,
    /// The kubelets' own Leases.
    pub beats: BTreeMap<Name, Version>,
    /// By uid.
    pub pods: BTreeMap<Name, PodObject>,
    pub roll: Roll,
    pub roll_version: Version,
    /// By node: there is one at a time.
    pub remediations: BTreeMap<Name, Remediation>,
}

pub struct AgentLease {
    pub seen: Seen,
    pub renewed_at: Millis,
}

#[derive(Clone, Debug)]
pub struct NodeObject {
    pub shown: Node,
    /// Kubernetes' own taint, by which its garbage collection takes the pods.
    pub out_of_service: bool,
    pub ready: bool,
    /// When Ready became what it is.
    pub ready_since: Millis,
    /// When its kubelet last said anything.
    pub beaten_at: Millis,
}

#[derive(Clone, Debug)]
pub struct PodObject {
    /// Which one of the workloads; at most one pod of it may run.
    pub workload: usize,
    pub node: Option<Name>,
    pub shown: Pod,
    /// Since when its node does not exist.
    pub orphaned_at: Option<Millis>,
}

#[derive(Clone, Debug)]
pub struct Remediation {
    pub version: Version,
    pub case: Case,
    /// Somebody wants it although the node is well.
    pub mistaken: bool,
}

/// All that the roll is made of.
pub struct Census {
    pub version: Version,
    pub roll: Roll,
    pub voters: Vec<Voter>,
    pub named: BTreeSet<u64>,
    pub orders: BTreeSet<(Name, Name)>,
}

impl Store {
    pub fn new() -> Store {
        Store {
            stored: 0,
            made: 0,
            leases: BTreeMap::new(),
            nodes: BTreeMap::new(),
            beats: BTreeMap::new(),
            pods: BTreeMap::new(),
            roll: Roll::default(),
            roll_version: Version("0".into()),
            remediations: BTreeMap::new(),
        }
    }

    pub fn next_version(&mut self) -> Version {
        self.stored += 1;
        Version(self.stored.to_string().into())
    }

    pub fn next_uid(&mut self, what: &str) -> Name {
        self.made += 1;
        format!("{what}-{}", self.made).into()
    }

    pub fn lease(&self, node: &Name) -> Result<Seen, Failure> {
        self.leases.get(node).map(|lease| lease.seen.clone()).ok_or(Failure::Missing)
    }

    pub fn create_lease(&mut self, node: &Name, claim: Claim, now: Millis) -> Result<Seen, Failure> {
        if self.leases.contains_key(node) {
            return Err(Failure::Conflict);
        }
        let seen = Seen { uid: self.next_uid("lease"), version: self.next_version(), claim, order: None };
        self.leases.insert(node.clone(), AgentLease { seen: seen.clone(), renewed_at: now });
        Ok(seen)
    }

    /// Agents have no right to take an order away.
    pub fn renew_lease(&mut self, node: &Name, version: &Version, claim: Claim, now: Millis) -> Result<Seen, Failure> {
        let next = self.next_version();
        let lease = self.leases.get_mut(node).ok_or(Failure::Missing)?;
        fits(&lease.seen.version, version)?;
        (lease.seen.claim, lease.seen.version, lease.renewed_at) = (claim, next, now);
        Ok(lease.seen.clone())
    }

    pub fn order(&mut self, node: &Name, version: &Version, order: Order) -> Result<Seen, Failure> {
        let next = self.next_version();
        let lease = self.leases.get_mut(node).ok_or(Failure::Missing)?;
        fits(&lease.seen.version, version)?;
        (lease.seen.order, lease.seen.version) = (Some(order), next);
        Ok(lease.seen.clone())
    }

    pub fn change_node(&mut self, name: &Name, version: &Version, change: impl FnOnce(&mut NodeObject)) -> Result<Node, Failure> {
        let next = self.next_version();
        let node = self.nodes.get_mut(name).ok_or(Failure::Missing)?;
        fits(&node.shown.version, version)?;
        change(node);
        node.shown.version = next;
        Ok(node.shown.clone())
    }

    pub fn delete_node(&mut self, name: &Name, uid: &Name, version: &Version) -> Result<(), Failure> {
        let node = self.nodes.get(name).filter(|node| node.shown.uid == *uid).ok_or(Failure::Missing)?;
        fits(&node.shown.version, version)?;
        self.nodes.remove(name);
        // It belongs to the Node.
        self.beats.remove(name);
        Ok(())
    }

    /// What a kubelet does when it comes up, and whenever it finds its Node gone.
    pub fn show_node(&mut self, name: &Name, boot: &Name, now: Millis) {
        let version = self.next_version();
        if let Some(node) = self.nodes.get_mut(name) {
            (node.shown.boot, node.shown.version) = (boot.clone(), version);
        } else {
            let uid = self.next_uid("node");
            let shown = Node { uid, version, boot: boot.clone(), cordoned: false, hold: Hold::None };
            let node = NodeObject { shown, out_of_service: false, ready: false, ready_since: now, beaten_at: now };
            self.nodes.insert(name.clone(), node);
        }
    }

    pub fn note(&mut self, node: &Name, version: &Version, boot: &Name, at: Wall) -> Result<Remediation, Failure> {
        self.change_remediation(node, version, |case| {
            case.noted = Some(Noted { boot: boot.clone(), at, released: false });
        })
    }

    pub fn note_released(&mut self, node: &Name, version: &Version) -> Result<Remediation, Failure> {
        self.change_remediation(node, version, |case| {
            if let Some(noted) = &mut case.noted {
                noted.released = true;
            }
        })
    }

    pub fn change_remediation(
        &mut self,
        node: &Name,
        version: &Version,
        change: impl FnOnce(&mut Case),
    ) -> Result<Remediation, Failure> {
        let next = self.next_version();
        let remediation = self.remediations.get_mut(node).ok_or(Failure::Missing)?;
        fits(&remediation.version, version)?;
        change(&mut remediation.case);
        remediation.version = next;
        Ok(remediation.clone())
    }

    pub fn remove_remediation(&mut self, node: &Name, version: &Version) -> Result<(), Failure> {
        let remediation = self.remediations.get(node).ok_or(Failure::Missing)?;
        fits(&remediation.version, version)?;
        self.remediations.remove(node);
        Ok(())
    }

    /// Those that are there, and what was left on nodes by whoever was late: it is over, and has to be undone.
    pub fn remediations(&self) -> Vec<Remediation> {
        let is_marked = |node: &NodeObject| node.shown.cordoned || node.shown.hold != Hold::None;
        let left = self.nodes.iter().filter(|(name, node)| is_marked(node) && !self.remediations.contains_key(*name));
        let case = |name: &Name, node: &NodeObject| Case {
            node: name.clone(),
            remediation: "nobody's".into(),
            strategy: if node.out_of_service { Strategy::OutOfServiceTaint } else { Strategy::ResourceDeletion },
            ending: true,
            noted: None,
            safe_time: None,
            require_assured: false,
            word: Word::None,
        };
        let nobodys =
            left.map(|(name, node)| Remediation { version: node.shown.version.clone(), case: case(name, node), mistaken: false });
        self.remediations.values().cloned().chain(nobodys).collect()
    }

    pub fn write_roll(&mut self, version: &Version, roll: Roll) -> Result<(), Failure> {
        fits(&self.roll_version, version)?;
        self.roll = roll;
        self.roll_version = self.next_version();
        Ok(())
    }

    pub fn pods_on(&self, node: &Name) -> impl Iterator<Item = &PodObject> {
        self.pods.values().filter(move |pod| pod.node.as_ref() == Some(node))
    }

    /// The numbers that all Leases show.
    pub fn acks(&self) -> BTreeMap<Name, u64> {
        self.leases.iter().map(|(name, lease)| (name.clone(), lease.seen.claim.roll)).collect()
    }

    pub fn census(&self, now: Millis) -> Census {
        let voters = self.leases.iter().filter(|(_, lease)| is_living(Mono(lease.renewed_at), Mono(now)));
        let voter =
            |(node, lease): (&Name, &AgentLease)| Voter { node: node.clone(), zone: "a".into(), roll: lease.seen.claim.roll };
        let stands = |(node, lease): (&Name, &AgentLease)| {
            let order = lease.seen.order.as_ref().filter(|order| order.boot == lease.seen.claim.boot);
            order.map(|order| (node.clone(), order.boot.clone()))
        };
        Census {
            version: self.roll_version.clone(),
            roll: self.roll.clone(),
            voters: voters.map(voter).collect(),
            named: self.leases.values().map(|lease| lease.seen.claim.roll).collect(),
            orders: self.leases.iter().filter_map(stands).collect(),
        }
    }
}

fn fits(stored: &Version, named: &Version) -> Result<(), Failure> {
    if named.0.is_empty() || stored == named { Ok(()) } else { Err(Failure::Conflict) }
}
