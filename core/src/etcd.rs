//! Which nodes host the members of etcd, and which of these are up?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::{Name, Node};
use crate::health::Known;
use crate::time::Mono;

/// A member that was seen within this time counts although its Node or its Pod is gone: etcd waits for it all the same.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// A static Pod of etcd, as the kubelet of its node shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdPod {
    pub node: Name,
    /// Its condition Ready is True.
    pub ready: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Etcd {
    pods: BTreeMap<Name, EtcdPod>,
    /// Hosts that were deleted, or lost their Pod or their labels, and when. One whose Pod stands stays.
    departed: BTreeMap<Name, Mono>,
}

impl Etcd {
    /// Members that are shown, and hosts that are remembered.
    pub fn size(&self) -> usize {
        self.pods.len() + self.departed.len()
    }

    pub fn pods(&self) -> BTreeSet<Name> {
        self.pods.keys().cloned().collect()
    }

    /// Pods that look like members, by their kubelets' word.
    pub fn members(&self) -> impl Iterator<Item = &EtcdPod> + Clone {
        self.pods.values()
    }

    /// Hosts that were deleted, or lost their Pod or their labels, and when.
    pub fn departures(&self) -> impl Iterator<Item = (&Name, &Mono)> {
        self.departed.iter()
    }

    /// Without a word of the kubelet's it is a Pod like any other. False if all of it was known.
    pub fn seen(&mut self, name: Name, says: Option<EtcdPod>, nodes: &BTreeMap<Name, Known>, now: Mono) -> bool {
        let before = self.pods.get(&name);
        if before == says.as_ref() {
            return false;
        }
        if before.map(|pod| &pod.node) != says.as_ref().map(|pod| &pod.node) {
            self.gone(&name, nodes, now);
        }
        self.pods.extend(says.map(|pod| (name, pod)));
        true
    }

    pub fn gone(&mut self, pod: &Name, nodes: &BTreeMap<Name, Known>, now: Mono) -> bool {
        let Some(pod) = self.pods.remove(pod) else { return false };
        if is_counted(&pod, nodes) || self.departed.contains_key(&pod.node) {
            self.departs(pod.node, now);
        }
        true
    }

    pub fn all_gone(&mut self, nodes: &BTreeMap<Name, Known>, now: Mono) {
        self.pods().iter().for_each(|pod| {
            self.gone(pod, nodes, now);
        });
    }

    /// The same, of nodes and Pods that are all out of sight from now on.
    pub fn out_of_sight(&self, nodes: &BTreeMap<Name, Known>, now: Mono) -> Etcd {
        let is_recent = |(_, at): &(&Name, &Mono)| now.since(**at) < REMEMBERED_FOR;
        let departed = self.departed.iter().filter(is_recent).map(|(host, at)| (host.clone(), *at));
        let labelled = nodes.values().filter(|known| known.node.has_etcd_label()).map(|known| &known.node.name);
        let is_host =
            |node: &&Name| nodes.get(*node).is_none_or(|known| known.is_control_plane) || self.departed.contains_key(*node);
        let hosts = labelled.chain(self.shown().filter(is_host)).map(|host| (host.clone(), now));
        Etcd { pods: BTreeMap::new(), departed: departed.chain(hosts).collect() }
    }

    pub fn forget_departed(&mut self) {
        self.departed.clear();
    }

    /// Its Node was deleted, or is no longer of the control plane.
    pub fn node_left(&mut self, node: &Node, now: Mono) {
        let has_pod = || self.pods.values().any(|pod| pod.node == node.name);
        if node.has_etcd_label() || node.is_control_plane() && has_pod() {
            self.departs(node.name.clone(), now);
        }
    }

    fn departs(&mut self, host: Name, now: Mono) {
        let pods = &self.pods;
        self.departed.retain(|host, at| now.since(*at) < REMEMBERED_FOR || has_pod(pods, host));
        self.departed.insert(host, now);
    }

    /// Hosts that count although nothing shows them as such any more.
    fn remembered(&self, now: Mono) -> impl Iterator<Item = &Name> {
        self.departed.keys().filter(move |host| self.remembers(host, now))
    }

    pub fn remembers(&self, host: &Name, now: Mono) -> bool {
        self.departed.get(host).is_some_and(|at| now.since(*at) < REMEMBERED_FOR || has_pod(&self.pods, host))
    }

    /// Is it one, whatever its labels say? A kubelet that shows such a Pod and hosts no member keeps but itself from being repaired.
    pub fn has_host(&self, host: &Name, now: Mono) -> bool {
        self.remembers(host, now) || has_pod(&self.pods, host)
    }

    /// Whatever has a Pod of etcd by its kubelet's word, of the control plane or not.
    pub fn shown(&self) -> impl Iterator<Item = &Name> {
        self.pods.values().map(|pod| &pod.node)
    }

    /// When the next host is forgotten.
    pub fn forgets_at(&self, now: Mono) -> Option<Mono> {
        self.departed.values().map(|at| at.after(REMEMBERED_FOR)).filter(|at| *at > now).min()
    }

    pub fn hosts<'a>(&'a self, nodes: &'a BTreeMap<Name, Known>, now: Mono) -> BTreeSet<&'a Name> {
        let labelled = nodes.values().filter(|known| known.is_control_plane && known.node.has_etcd_label());
        let pods = self.pods.values().filter(|pod| is_counted(pod, nodes)).map(|pod| &pod.node);
        labelled.map(|known| &known.node.name).chain(pods).chain(self.remembered(now)).collect()
    }

    /// k3s runs its members without Pods: there the Node has to do.
    pub fn is_up(&self, host: &Name, nodes: &BTreeMap<Name, Known>) -> bool {
        let Some(known) = nodes.get(host) else { return false };
        let mut pods = self.pods.values().filter(|pod| pod.node == *host).peekable();
        let is_running = if pods.peek().is_some() { pods.all(|pod| pod.ready) } else { known.node.has_etcd_label() };
        known.unreadable.is_none() && known.node.is_ready() && is_running
    }
}

fn has_pod(pods: &BTreeMap<Name, EtcdPod>, host: &Name) -> bool {
    pods.values().any(|pod| pod.node == *host)
}

/// Others can write Pods that look like members; but not on such a node, or where none is.
fn is_counted(pod: &EtcdPod, nodes: &BTreeMap<Name, Known>) -> bool {
    nodes.get(&pod.node).is_none_or(|known| known.is_control_plane)
}
