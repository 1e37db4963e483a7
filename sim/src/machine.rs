//! The machines: what really runs, and what their kubelets tell the API of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::{Api, MERGE, NODE_LEASES, NODES, STRATEGIC};
use crate::clock::{Millis, SECOND, rfc3339, wall};
use crate::ledger::Ledger;
use crate::scenario::{CONTROL_PLANE, Failure, MachineSpec, WORKER, ZONE};

pub struct Machine {
    pub spec: MachineSpec,
    pub state: State,
    pub boots: u32,
    /// Since when it does not do what it should.
    pub unhealthy_since: Option<Millis>,
    /// The pods that really run.
    pub running: BTreeSet<String>,
    /// When the API last heard of its kubelet.
    pub beat_at: Millis,
    posted: Option<(Millis, Says)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Failed(Failure),
    /// Left when it has booted.
    Booting {
        cut: bool,
    },
    /// Taken out of the cluster.
    Removed,
}

/// What the kubelet and the problem detector have to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Says {
    ready: &'static str,
    disk_broken: &'static str,
}

/// The node lifecycle controller looks at all nodes so often.
pub const LIFECYCLE_EACH: Millis = 5 * SECOND;

impl Machine {
    pub fn new(spec: MachineSpec) -> Machine {
        Machine {
            spec,
            state: State::Running,
            boots: 1,
            unhealthy_since: None,
            running: BTreeSet::new(),
            beat_at: 0,
            posted: None,
        }
    }

    pub fn fails(&mut self, failure: Failure, now: Millis) {
        if self.state == State::Removed {
            return;
        }
        self.state = State::Failed(failure);
        self.unhealthy_since.get_or_insert(now);
        if failure == Failure::Crash {
            self.running.clear();
        }
    }

    /// Whatever it did, it does no more until it has booted.
    pub fn resets(&mut self, now: Millis) {
        if self.state != State::Removed {
            self.state = State::Booting { cut: self.state == State::Failed(Failure::NetworkCut) };
            self.unhealthy_since.get_or_insert(now);
            self.running.clear();
        }
    }

    /// False if it was not booting.
    pub fn has_booted(&mut self) -> bool {
        let State::Booting { cut } = self.state else { return false };
        self.boots += 1;
        self.posted = None;
        self.state = match cut {
            true => State::Failed(Failure::NetworkCut),
            false => State::Running,
        };
        if self.state == State::Running {
            self.unhealthy_since = None;
        }
        true
    }

    /// Somebody repaired it by hand.
    pub fn is_mended(&mut self, now: Millis) -> bool {
        match self.state {
            State::Running | State::Booting { .. } => false,
            State::Failed(Failure::Crash | Failure::Hangs) => {
                self.resets(now);
                true
            }
            State::Failed(_) | State::Removed => {
                (self.state, self.unhealthy_since) = (State::Running, None);
                false
            }
        }
    }

    fn says(&self, now: Millis) -> Option<Says> {
        let (ready, disk_broken) = match self.state {
            State::Running | State::Failed(Failure::SlowBeats) => ("True", "False"),
            State::Failed(Failure::RuntimeDown) => ("False", "False"),
            State::Failed(Failure::DiskBroken) => ("True", "True"),
            State::Failed(Failure::Flaps) if (now / self.spec.flaps_each) % 2 == 0 => ("False", "False"),
            State::Failed(Failure::Flaps) => ("True", "False"),
            State::Failed(Failure::Crash | Failure::KubeletStops | Failure::Hangs | Failure::NetworkCut)
            | State::Booting { .. }
            | State::Removed => return None,
        };
        Some(Says { ready, disk_broken })
    }

    /// When its kubelet stirs next.
    pub fn rests_for(&self) -> Millis {
        match self.state {
            // Sometimes beyond the patience of the node lifecycle controller.
            State::Failed(Failure::SlowBeats) => 4 * self.spec.beats_each + 5 * SECOND,
            _ => self.spec.beats_each,
        }
    }

    /// The kubelet renews its lease, and posts its status if that changed or is due.
    pub fn beat(&mut self, now: Millis, api: &mut Api, ledger: &Ledger) {
        let Some(says) = self.says(now) else { return };
        if ledger.node(&self.spec.name).is_none() {
            self.register(now, api);
            return;
        }
        if self.running.is_empty() && self.spec.pods > 0 {
            self.start_pods(now, api);
        }
        let lease = format!("{NODE_LEASES}/{}", self.spec.name);
        let stamp = wall(self.spec.clock.shows(now)).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        match api.patch(now, &lease, MERGE, &json!({"spec": {"renewTime": stamp}})) {
            200 => self.beat_at = now,
            404 => self.lease(now, api, &stamp),
            _ => return,
        }
        if self.posted.is_none_or(|(at, said)| said != says || now - at >= self.spec.posts_each) || self.is_doubted(ledger, says)
        {
            self.post(now, api, ledger, says);
        }
    }

    /// Somebody else wrote what the kubelet knows better.
    fn is_doubted(&self, ledger: &Ledger, says: Says) -> bool {
        ledger.node(&self.spec.name).is_some_and(|node| {
            !node.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == says.ready)
        })
    }

    fn post(&mut self, now: Millis, api: &mut Api, ledger: &Ledger, says: Says) {
        let own = self.spec.clock.shows(now);
        let condition = |kind: &str, status: &str| {
            let known = ledger.node(&self.spec.name).and_then(|node| node.conditions.iter().find(|known| known.kind == kind));
            let since = known.filter(|known| known.status == status).map_or_else(|| rfc3339(own), |known| known.dated.clone());
            condition(kind, status, "KubeletReports", &rfc3339(own), &since)
        };
        let conditions = [condition("Ready", says.ready), condition("DiskBroken", says.disk_broken)];
        let body = json!({"status": {"conditions": conditions, "nodeInfo": {"bootID": self.boot_id()}}});
        if api.patch(now, &format!("{NODES}/{}/status", self.spec.name), STRATEGIC, &body) == 200 {
            self.posted = Some((now, says));
            self.beat_at = now;
        }
    }

    fn register(&mut self, now: Millis, api: &mut Api) {
        let role = if self.spec.control_plane { CONTROL_PLANE } else { WORKER };
        let labels = json!({role: "", ZONE: self.spec.zone, "kubernetes.io/hostname": self.spec.name});
        let info = json!({
            "bootID": self.boot_id(), "machineID": self.spec.name, "systemUUID": self.spec.name, "kernelVersion": "6.12.0",
            "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.0", "kubeletVersion": "v1.36.0",
            "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
        });
        let body = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.spec.name, "labels": labels},
            "status": {"nodeInfo": info},
        });
        if api.create(now, NODES, &body) == 201 {
            self.posted = None;
            self.beat_at = now;
        }
    }

    fn lease(&mut self, now: Millis, api: &mut Api, stamp: &str) {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.spec.name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": self.spec.name, "leaseDurationSeconds": 40, "renewTime": stamp},
        });
        if api.create(now, NODE_LEASES, &body) == 201 {
            self.beat_at = now;
        }
    }

    /// A kubelet runs what is bound to its node, before and after a boot.
    fn start_pods(&mut self, now: Millis, api: &mut Api) {
        let bound = api.read(now, &format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.spec.name));
        let bound = bound.unwrap_or_default();
        let uids = bound["items"].as_array().into_iter().flatten().filter_map(|pod| pod["metadata"]["uid"].as_str());
        self.running = uids.map(str::to_owned).collect();
    }

    fn boot_id(&self) -> String {
        format!("{}-{}", self.spec.name, self.boots)
    }
}

/// What the node lifecycle controller does: nodes that are silent for too long are Unknown.
pub fn watch_over<'a>(
    machines: impl Iterator<Item = &'a Machine>,
    now: Millis,
    patience: Millis,
    api: &mut Api,
    ledger: &Ledger,
) {
    for Machine { spec, beat_at, .. } in machines {
        let Some(node) = ledger.node(&spec.name) else { continue };
        let known = node.conditions.iter().any(|condition| condition.status != "Unknown");
        if now - beat_at <= patience || (!known && !node.conditions.is_empty()) {
            continue;
        }
        let stamp = rfc3339(now);
        let unknown = |kind: &str| condition(kind, "Unknown", "NodeStatusUnknown", &stamp, &stamp);
        let body = json!({"status": {"conditions": [unknown("Ready"), unknown("DiskBroken")]}});
        api.patch(now, &format!("{NODES}/{}/status", spec.name), STRATEGIC, &body);
    }
}

/// Pods that are bound to the machine from the beginning.
pub fn bind_pods(spec: &MachineSpec, now: Millis, api: &mut Api) {
    for n in 0..spec.pods {
        let body = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{}-{n}", spec.name), "namespace": "default"},
            "spec": {"nodeName": spec.name, "containers": [{"name": "main", "image": "example.test/app:1"}]},
        });
        api.create(now, "/api/v1/namespaces/default/pods", &body);
    }
    if spec.hosts_etcd {
        let body = etcd(&spec.name);
        api.create(now, SYSTEM_PODS, &body);
        let path = format!("{SYSTEM_PODS}/etcd-{}/status", spec.name);
        api.patch(now, &path, STRATEGIC, &json!({"status": body["status"]}));
    }
}

pub const SYSTEM_PODS: &str = "/api/v1/namespaces/kube-system/pods";

/// A member of etcd as the kubelet of its node shows it.
pub fn etcd(node: &str) -> Value {
    let metadata = json!({
        "name": format!("etcd-{node}"), "namespace": "kube-system", "labels": {"component": "etcd"},
        "annotations": {"kubernetes.io/config.mirror": "1"},
    });
    let spec = json!({"nodeName": node, "containers": [{"name": "etcd", "image": "example.test/etcd:3"}]});
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
}

fn condition(kind: &str, status: &str, reason: &str, beat: &str, since: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "",
        "lastHeartbeatTime": beat, "lastTransitionTime": since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn machine() -> Machine {
        Machine::new(Scenario::calm(1, 1).machines.remove(0))
    }

    #[test]
    fn a_reboot_cures_all_but_a_cut_network() {
        for failure in Failure::ALL {
            let mut machine = machine();
            machine.fails(failure, 5);
            machine.resets(6);
            assert!(machine.says(7).is_none(), "{failure:?}: silent while it boots");
            assert!(machine.has_booted() && !machine.has_booted());
            let cured = machine.state == State::Running && machine.unhealthy_since.is_none();
            assert_eq!(cured, failure != Failure::NetworkCut, "{failure:?}");
        }
    }

    #[test]
    fn a_crash_ends_the_pods_and_a_hang_does_not() {
        for (failure, left) in [(Failure::Crash, 0), (Failure::Hangs, 1), (Failure::NetworkCut, 1)] {
            let mut machine = machine();
            machine.running.insert("pod".into());
            machine.fails(failure, 5);
            assert_eq!(machine.running.len(), left, "{failure:?}");
        }
    }
}
