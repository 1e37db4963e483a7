//! Who makes machines, and who makes nodes of them: a MachineSet's controller and an infrastructure provider.
//!
//! Stand-ins for a simulation, a demonstration or a test, as far as a MachineHealthCheck has to do with them. Both look
//! at everything anew in each step.

use std::collections::BTreeMap;

use http::Method;
use resus_core::mhc::facts::{CLUSTER_LABEL, Dialect, Flavour, Style};
use resus_k8s::names;
use serde_json::{Value, json};

use crate::api::{Api, MERGE, NODES, STRATEGIC};
use crate::clock::{EPOCH, Millis, rfc3339};

/// The controller of one MachineSet, which exists and says how many machines there are to be.
pub struct Owner {
    pub dialect: Dialect,
    pub namespace: String,
    pub name: String,
    /// Whose machines they are, where that is another cluster.
    pub cluster: Option<String>,
    /// What it writes on machines beside its own label.
    pub labels: BTreeMap<String, String>,
    /// How many may be deleted at the same time, as its MachineDeployment says.
    pub in_flight_max: Option<usize>,
    /// How many it has made.
    pub made: usize,
}

/// Gives machines their nodes, and takes them away.
pub struct Infrastructure {
    pub dialect: Dialect,
    pub namespace: String,
    /// From a Machine to its Node.
    pub boots_for: Millis,
    /// From the deletion of a Machine until it is gone.
    pub leaves_for: Millis,
}

const FINALIZER: &str = "machine.cluster.x-k8s.io";
/// Which of the machines are those of a MachineSet.
pub const SET_LABEL: &str = "cluster.x-k8s.io/set-name";
const HEALTHY: &str = "HealthCheckSucceeded";
const REMEDIATED: &str = "OwnerRemediated";

impl Owner {
    pub fn step(&mut self, now: Millis, api: &mut Api) {
        let Some(set) = api.read(now, &format!("{}/{}", path(self.dialect, &self.namespace, "machinesets"), self.name)) else {
            return;
        };
        let uid = &set["metadata"]["uid"];
        let is_own = |machine: &Value| &machine["metadata"]["ownerReferences"][0]["uid"] == uid;
        let (leaving, there): (Vec<Value>, Vec<Value>) =
            machines(now, api, self.dialect, &self.namespace).into_iter().filter(is_own).partition(is_leaving);
        let missing = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(0)).unwrap_or(0).saturating_sub(there.len());
        if self.dialect.flavour() == Flavour::ClusterApi {
            self.forgive(now, api, &there);
            self.remediate(now, api, &leaving, &there);
        }
        (0..missing).for_each(|_| self.make(now, api, uid));
    }

    /// What was said of a machine that is well again goes, in each style by itself.
    fn forgive(&self, now: Millis, api: &mut Api, there: &[Value]) {
        for machine in there {
            let is_over = |style: &Style| {
                says(machine, self.dialect, *style, HEALTHY, "True") && says(machine, self.dialect, *style, REMEDIATED, "False")
            };
            let styles: Vec<Style> = self.dialect.styles().iter().copied().filter(is_over).collect();
            if !styles.is_empty() {
                self.write(now, api, machine, |style| styles.contains(&style).then_some(Value::Null));
            }
        }
    }

    fn remediate(&self, now: Millis, api: &mut Api, leaving: &[Value], there: &[Value]) {
        // Who has both styles reads the new one.
        let style = self.dialect.styles()[0];
        let is_ill = |machine: &&Value| {
            says(machine, self.dialect, style, HEALTHY, "False") && says(machine, self.dialect, style, REMEDIATED, "False")
        };
        let mut ill: Vec<&Value> = there.iter().filter(is_ill).collect();
        let asked = |machine: &Value| !machine["metadata"]["annotations"][names::REMEDIATE_MACHINE].is_null();
        // First those that a person asked for, then the youngest.
        ill.sort_by_key(|machine| {
            (!asked(machine), -stamped(machine, "creationTimestamp"), machine["metadata"]["name"].to_string())
        });
        let in_flight = leaving.iter().filter(|machine| is_being_deleted(machine, self.dialect)).count();
        let room = self.in_flight_max.map_or(usize::MAX, |max| max.saturating_sub(in_flight));
        for machine in ill.iter().skip(room) {
            self.write(now, api, machine, |style| Some(condition(now, style, "False", "RemediationDeferred")));
        }
        for machine in ill.iter().take(room) {
            // Of the old style it is done when the deletion is.
            self.write(now, api, machine, |style| {
                Some(condition(now, style, if style == Style::New { "False" } else { "True" }, "MachineDeleting"))
            });
            api.delete(now, &path_of(machine, self.dialect));
        }
    }

    /// Gives OwnerRemediated this value in each style for which there is one; null takes it away.
    fn write(&self, now: Millis, api: &mut Api, machine: &Value, value: impl Fn(Style) -> Option<Value>) {
        let mut status = json!({});
        for style in self.dialect.styles() {
            let Some(value) = value(*style) else { continue };
            let known = conditions(machine, self.dialect, *style).iter().find(|own| own["type"] == REMEDIATED);
            if known.is_some_and(|known| known["reason"] == value["reason"]) {
                continue;
            }
            let others = conditions(machine, self.dialect, *style).iter().filter(|own| own["type"] != REMEDIATED).cloned();
            let list = names::conditions(self.dialect, *style).iter().fold(&mut status, |at, element| &mut at[element]);
            *list = others.chain(Some(value).filter(|value| !value.is_null())).collect();
        }
        if status != json!({}) {
            let version = &machine["metadata"]["resourceVersion"];
            let body = json!({"metadata": {"resourceVersion": version}, "status": status});
            api.patch(now, &format!("{}/status?fieldManager=capi-machineset", path_of(machine, self.dialect)), MERGE, &body);
        }
    }

    fn make(&mut self, now: Millis, api: &mut Api, uid: &Value) {
        self.made += 1;
        let Owner { dialect, namespace, name, cluster, labels, made, .. } = self;
        let mut labels = json!(labels);
        labels[SET_LABEL] = json!(name);
        cluster.iter().for_each(|cluster| labels[CLUSTER_LABEL] = json!(cluster));
        let owner =
            json!({"apiVersion": dialect.api_version(), "kind": "MachineSet", "name": name, "uid": uid, "controller": true});
        let metadata = json!({
            "name": format!("{name}-{made}"), "namespace": namespace, "labels": labels, "finalizers": [FINALIZER],
            "ownerReferences": [owner],
        });
        let machine = json!({"apiVersion": dialect.api_version(), "kind": "Machine", "metadata": metadata, "spec": {}});
        api.create(now, &format!("{}?fieldManager=capi-machineset", path(*dialect, namespace, "machines")), &machine);
    }
}

impl Infrastructure {
    /// `there`: where the nodes are, if that is another cluster.
    pub fn step(&mut self, now: Millis, api: &mut Api, mut there: Option<&mut Api>) {
        for machine in machines(now, api, self.dialect, &self.namespace) {
            let node = format!("node-{}", machine["metadata"]["name"].as_str().unwrap_or_default());
            let nodes = there.as_deref_mut();
            let (booted, left) = (stamped(&machine, "creationTimestamp"), stamped(&machine, "deletionTimestamp"));
            if is_leaving(&machine) && now - left >= self.leaves_for {
                nodes.unwrap_or(api).delete(now, &format!("{NODES}/{node}"));
                api.patch(now, &path_of(&machine, self.dialect), MERGE, &json!({"metadata": {"finalizers": null}}));
            } else if !is_leaving(&machine) && machine["status"]["nodeRef"].is_null() && now - booted >= self.boots_for {
                join(now, nodes.unwrap_or(api), &node);
                let status = json!({"nodeRef": {"name": node}, "phase": "Running", "lastUpdated": rfc3339(now)});
                let path = format!("{}/status?fieldManager=capi-machine", path_of(&machine, self.dialect));
                api.patch(now, &path, MERGE, &json!({"status": status}));
            }
        }
    }
}

fn join(now: Millis, api: &mut Api, name: &str) {
    api.create(now, NODES, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
    let (stamp, reason) = (rfc3339(now), "KubeletReady");
    let ready = json!({
        "type": "Ready", "status": "True", "reason": reason, "message": "", "lastHeartbeatTime": stamp, "lastTransitionTime": stamp,
    });
    api.ask(now, Method::PATCH, &format!("{NODES}/{name}/status"), STRATEGIC, &json!({"status": {"conditions": [ready]}}));
}

pub fn path(dialect: Dialect, namespace: &str, plural: &str) -> String {
    format!("/apis/{}/namespaces/{namespace}/{plural}", dialect.api_version())
}

fn path_of(machine: &Value, dialect: Dialect) -> String {
    let text = |field: &str| machine["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", path(dialect, &text("namespace"), "machines"), text("name"))
}

fn machines(now: Millis, api: &mut Api, dialect: Dialect, namespace: &str) -> Vec<Value> {
    let list = api.read(now, &path(dialect, namespace, "machines")).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn is_leaving(machine: &Value) -> bool {
    !machine["metadata"]["deletionTimestamp"].is_null()
}

fn stamped(machine: &Value, field: &str) -> Millis {
    let stamp = machine["metadata"][field].as_str().and_then(|stamp| stamp.parse::<jiff::Timestamp>().ok());
    stamp.map_or(0, |stamp| stamp.as_millisecond() - EPOCH)
}

/// The list of conditions of one style.
pub fn conditions(object: &Value, dialect: Dialect, style: Style) -> &[Value] {
    let list = names::conditions(dialect, style).iter().fold(&object["status"], |at, element| &at[element]);
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn says(machine: &Value, dialect: Dialect, style: Style, kind: &str, status: &str) -> bool {
    conditions(machine, dialect, style).iter().any(|own| own["type"] == kind && own["status"] == status)
}

fn is_being_deleted(machine: &Value, dialect: Dialect) -> bool {
    let newest = conditions(machine, dialect, dialect.styles()[0]);
    newest.iter().any(|own| own["type"] == REMEDIATED && own["reason"] == "MachineDeleting")
}

fn condition(now: Millis, style: Style, status: &str, reason: &str) -> Value {
    let mut condition =
        json!({"type": REMEDIATED, "status": status, "reason": reason, "message": "", "lastTransitionTime": rfc3339(now)});
    if style == Style::Legacy && status != "True" {
        condition["severity"] = json!("Warning");
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::machinery;

    const SETS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machinesets";
    const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/machines";

    fn defined() -> Api {
        let mut api = Api::new(1, 0);
        machinery::definitions(Dialect::V1beta2).iter().for_each(|definition| api.define(0, definition));
        api.tend(0);
        api.create(0, "/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}));
        let set = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "metadata": {"name": "pool", "namespace": "ns"},
            "spec": {"replicas": 3},
        });
        assert_eq!(api.create(0, SETS, &set), 201);
        api
    }

    fn owner(in_flight_max: Option<usize>) -> Owner {
        let cluster = Some("blue".to_owned());
        let (dialect, labels) = (Dialect::V1beta2, BTreeMap::new());
        Owner { dialect, namespace: "ns".into(), name: "pool".into(), cluster, labels, in_flight_max, made: 0 }
    }

    fn infrastructure() -> Infrastructure {
        let (dialect, namespace) = (Dialect::V1beta2, "ns".to_owned());
        Infrastructure { dialect, namespace, boots_for: 10 * SECOND, leaves_for: 2 * SECOND }
    }

    fn names(api: &mut Api) -> Vec<String> {
        let all = machines(0, api, Dialect::V1beta2, "ns");
        all.iter().map(|machine| machine["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn post(api: &mut Api, machine: &str, healthy: &str, remediated: Option<&str>) {
        let healthy = json!({"type": HEALTHY, "status": healthy});
        let remediated =
            remediated.map(|status| json!({"type": REMEDIATED, "status": status, "reason": "WaitingForRemediation"}));
        let list: Vec<Value> = Some(healthy).into_iter().chain(remediated).collect();
        let status = json!({"status": {"conditions": list, "deprecated": {"v1beta1": {"conditions": list}}}});
        assert_eq!(api.patch(0, &format!("{MACHINES}/{machine}/status"), MERGE, &status), 200);
    }

    fn reasons(api: &mut Api, machine: &str) -> Vec<String> {
        let machine = api.read(0, &format!("{MACHINES}/{machine}")).unwrap_or_default();
        let of = |style: &Style| {
            let list = conditions(&machine, Dialect::V1beta2, *style);
            let found = list.iter().find(|own| own["type"] == REMEDIATED);
            found.map(|own| {
                format!("{} {}", own["status"].as_str().unwrap_or_default(), own["reason"].as_str().unwrap_or_default())
            })
        };
        [Style::New, Style::Legacy].iter().filter_map(of).collect()
    }

    #[test]
    fn it_makes_what_is_missing_and_deletes_what_it_is_asked_to() {
        let (mut api, mut owner) = (defined(), owner(None));
        owner.step(0, &mut api);
        assert_eq!(names(&mut api), ["pool-1", "pool-2", "pool-3"]);
        post(&mut api, "pool-2", "False", None);
        owner.step(SECOND, &mut api);
        assert_eq!(reasons(&mut api, "pool-2"), [""; 0], "nobody asked for it");
        post(&mut api, "pool-2", "False", Some("False"));
        owner.step(2 * SECOND, &mut api);
        assert_eq!(reasons(&mut api, "pool-2"), ["False MachineDeleting", "True MachineDeleting"]);
        owner.step(3 * SECOND, &mut api);
        assert_eq!(names(&mut api), ["pool-1", "pool-2", "pool-3", "pool-4"], "its finalizer holds the old one");
        let mut infrastructure = infrastructure();
        infrastructure.step(3 * SECOND, &mut api, None);
        assert_eq!(names(&mut api).len(), 4, "that takes two seconds");
        infrastructure.step(4 * SECOND, &mut api, None);
        assert_eq!(names(&mut api), ["pool-1", "pool-3", "pool-4"]);
    }

    #[test]
    fn it_forgives_and_has_no_more_in_flight_than_it_may() {
        let (mut api, mut owner) = (defined(), owner(Some(1)));
        owner.step(0, &mut api);
        ["pool-1", "pool-2"].iter().for_each(|machine| post(&mut api, machine, "False", Some("False")));
        owner.step(SECOND, &mut api);
        assert_eq!(reasons(&mut api, "pool-1"), ["False MachineDeleting", "True MachineDeleting"]);
        assert_eq!(reasons(&mut api, "pool-2"), ["False RemediationDeferred", "False RemediationDeferred"]);
        owner.step(2 * SECOND, &mut api);
        assert!(api.read(0, &format!("{MACHINES}/pool-2")).is_some_and(|machine| !is_leaving(&machine)));
        post(&mut api, "pool-2", "True", Some("False"));
        owner.step(3 * SECOND, &mut api);
        assert_eq!(reasons(&mut api, "pool-2"), [""; 0]);
    }

    #[test]
    fn a_machine_gets_its_node_when_it_has_booted_and_loses_it_when_it_goes() {
        let (mut api, mut there, mut owner) = (defined(), Api::new(2, 0), owner(None));
        let mut infrastructure = infrastructure();
        owner.step(0, &mut api);
        infrastructure.step(9 * SECOND, &mut api, Some(&mut there));
        assert!(there.read(0, &format!("{NODES}/node-pool-1")).is_none());
        infrastructure.step(10 * SECOND, &mut api, Some(&mut there));
        assert!(there.read(0, &format!("{NODES}/node-pool-1")).is_some());
        assert!(api.read(0, &format!("{NODES}/node-pool-1")).is_none(), "it is in its own cluster");
        let machine = api.read(0, &format!("{MACHINES}/pool-1")).unwrap_or_default();
        assert_eq!(machine["status"]["nodeRef"]["name"], "node-pool-1");
        api.delete(11 * SECOND, &format!("{MACHINES}/pool-1"));
        infrastructure.step(13 * SECOND, &mut api, Some(&mut there));
        assert!(there.read(0, &format!("{NODES}/node-pool-1")).is_none());
        assert_eq!(names(&mut api), ["pool-2", "pool-3"]);
    }
}
