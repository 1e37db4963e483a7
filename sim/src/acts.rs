//! What is done to the cluster: failures, faults, and orders of its admin.

use serde_json::{Value, json};

use crate::api::{CHECKS, MERGE, NODES, PROVIDED};
use crate::clock::{HostClock, Millis, SECOND, wall};
use crate::happening::What;
use crate::liveness::{JUDGE_EACH, Liveness};
use crate::machine::State;
use crate::scenario::{Act, EXCLUDED, Failure, TEMPLATE, WORKER};
use crate::simulation::{Event, Simulation};

/// The admin's own finalizer, which keeps a Node that is being deleted.
const FINALIZER: &str = "example.test/slow";

/// Up to 5 s of difference are none, a date leaves out the parts of a second, and an answer may be some seconds old.
const SKEW: Millis = 12 * SECOND;

const HOLDS: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";

impl Simulation {
    pub(crate) fn act(&mut self, act: &Act) {
        let now = self.now();
        self.trace.count(act.word());
        let told = match act {
            Act::Break(machine, failure) => {
                self.machines[*machine].fails(*failure, now);
                format!("{} {}", self.machines[*machine].spec.title(), failure.word())
            }
            Act::BreakZone(zone, failure) => self.break_zone(zone, *failure),
            Act::Mend(machine) => {
                self.mend(*machine);
                format!("{} is repaired by hand", self.machines[*machine].spec.title())
            }
            Act::PlannedReboot(machine) => {
                self.reset(*machine);
                format!("{} is rebooted on purpose", self.machines[*machine].spec.title())
            }
            Act::Check { name, spec } => self.write_check(name, spec),
            Act::DropCheck(name) => format!("check {name} is deleted: {}", self.api.delete(now, &format!("{CHECKS}/{name}"))),
            Act::PauseCheck(name, paused) => {
                let requests = if *paused { json!(["the admin asks for it"]) } else { Value::Null };
                let code = self.api.patch(now, &format!("{CHECKS}/{name}"), MERGE, &json!({"spec": {"pauseRequests": requests}}));
                format!("check {name} paused: {paused}: {code}")
            }
            Act::InstallProvider | Act::RestoreTemplate => {
                self.restore_provider();
                act.word().to_owned()
            }
            Act::DropTemplate => {
                let path = format!("{PROVIDED}/rebootremediationtemplates/{TEMPLATE}");
                format!("the template is deleted: {}", self.api.delete(now, &path))
            }
            Act::RemoveNode | Act::NodeLeaves | Act::Relabel | Act::Exclude | Act::HoldNode { .. } => self.act_on_node(act),
            Act::RemoveRemediation => self.remove_remediation(),
            Act::Occupy => self.occupy(),
            Act::Fleet(herd, deed) => self.do_deed(*herd, deed),
            _ => self.act_on_process(act),
        };
        self.trace.tell(now, What::Act(told));
    }

    fn act_on_process(&mut self, act: &Act) -> String {
        let now = self.now();
        match act {
            Act::Api { up } => {
                self.api.is_up = *up;
                if !up {
                    self.close_all(None);
                }
            }
            Act::Compact => self.api.compact(),
            Act::Link { replica, cut } => {
                self.net.cut(*replica, *cut);
                self.pull_all();
            }
            Act::Lag { replica, by } => self.net.lag(*replica, *by),
            Act::DropWatches { replica } => {
                let open = self.connections.iter().filter(|(_, connection)| connection.replica == *replica);
                let open: Vec<u64> = open.map(|(number, _)| *number).collect();
                open.into_iter().for_each(|connection| self.close(connection));
            }
            Act::Kill { replica } => self.kill(*replica),
            Act::Stop { replica } => {
                if let Some(process) = &mut self.replicas[*replica].process {
                    process.stop(now);
                }
                self.settle_unless_frozen(*replica);
            }
            Act::Start { replica } => self.start(*replica),
            Act::Freeze { replica, lasts_for } => {
                let replica = &mut self.replicas[*replica];
                replica.frozen_until = replica.frozen_until.max(now + lasts_for);
            }
            Act::StepClock { replica, by } => {
                let clock = self.replicas[*replica].host;
                self.set_clock(*replica, HostClock { ahead: clock.ahead + by, ..clock });
            }
            Act::SetClock { replica, clock } => self.set_clock(*replica, *clock),
            Act::StepKubeletClock { machine, by } => self.machines[*machine].spec.clock.ahead += by,
            _ => {}
        }
        format!("{}: {act:?}", act.word())
    }

    fn set_clock(&mut self, replica: usize, clock: HostClock) {
        self.replicas[replica].host = clock;
        if let Some(process) = &mut self.replicas[replica].process {
            process.clock.host = clock;
        }
    }

    /// How far apart two controllers may date the same instant.
    pub(crate) fn skew(&self) -> Millis {
        let is_wrong = |act: &Act| matches!(act, Act::StepClock { .. } | Act::SetClock { .. });
        if self.scenario.acts.iter().any(|(_, act)| is_wrong(act)) { SKEW } else { 0 }
    }

    fn settle_unless_frozen(&mut self, replica: usize) {
        if self.replicas[replica].frozen_until <= self.now() {
            self.settle(replica);
        }
    }

    fn break_zone(&mut self, zone: &str, failure: Failure) -> String {
        let now = self.now();
        let all = self.machines.iter_mut().filter(|machine| machine.spec.zone == zone);
        all.for_each(|machine| machine.fails(failure, now));
        format!("zone {zone} {}", failure.word())
    }

    fn mend(&mut self, machine: usize) {
        let now = self.now();
        if self.machines[machine].is_mended(now) {
            let Simulation { machines, agenda, .. } = self;
            agenda.after(machines[machine].spec.boots_for, Event::Booted(machine, machines[machine].boots));
        }
    }

    fn write_check(&mut self, name: &str, spec: &Value) -> String {
        let now = self.now();
        let body = json!({
            "apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck",
            "metadata": {"name": name}, "spec": spec,
        });
        let code = match self.api.create(now, CHECKS, &body) {
            409 => {
                // A merge patch keeps what it does not name; thresholds exclude each other, and ways of templates too.
                let mut spec = spec.clone();
                for field in [
                    "maxUnhealthy",
                    "minHealthy",
                    "selector",
                    "remediationTemplate",
                    "escalatingRemediations",
                    "healthyDelay",
                    "stormCooldownDuration",
                ] {
                    if spec[field].is_null() {
                        spec[field] = Value::Null;
                    }
                }
                self.api.patch(now, &format!("{CHECKS}/{name}"), MERGE, &json!({"spec": spec}))
            }
            code => code,
        };
        format!("check {name} is written: {code}: {spec}")
    }

    fn restore_provider(&mut self) {
        let now = self.now();
        if self.api.is_up {
            self.api.install_provider(now);
            self.ledger.open_provider(now, &mut self.api);
        }
    }

    /// Rather one that has a remediation: that is where it gets interesting.
    fn choose_node(&mut self) -> usize {
        let remediated: Vec<usize> = (0..self.machines_here())
            .filter(|number| self.ledger.remediations.values().any(|one| one.node == self.machines[*number].spec.name))
            .collect();
        self.rng.pick(&remediated).copied().unwrap_or_else(|| self.rng.below(self.machines_here()))
    }

    /// How many machines are of this cluster: the first ones.
    fn machines_here(&self) -> usize {
        self.machines.iter().filter(|machine| machine.spec.cluster.is_none()).count()
    }

    /// Rather one that will need a remediation soon.
    fn choose_broken(&mut self) -> usize {
        let broken: Vec<usize> =
            (0..self.machines_here()).filter(|number| self.machines[*number].unhealthy_since.is_some()).collect();
        self.rng.pick(&broken).copied().unwrap_or_else(|| self.rng.below(self.machines_here()))
    }

    fn act_on_node(&mut self, act: &Act) -> String {
        let now = self.now();
        let number = match act {
            Act::HoldNode { .. } | Act::Exclude => self.choose_broken(),
            _ => self.choose_node(),
        };
        let node = self.machines[number].spec.name.clone();
        let path = format!("{NODES}/{node}");
        let code = match act {
            Act::Relabel => self.api.patch(now, &path, MERGE, &json!({"metadata": {"labels": {WORKER: null, "spare": ""}}})),
            Act::Exclude => self.api.patch(now, &path, MERGE, &json!({"metadata": {"labels": {EXCLUDED: "true"}}})),
            Act::HoldNode { lasts_for } => self.hold_node(&node, *lasts_for),
            Act::NodeLeaves => {
                self.api.patch(now, &path, MERGE, &json!({"metadata": {"finalizers": [FINALIZER]}}));
                self.api.delete(now, &path)
            }
            _ => {
                let code = self.api.delete(now, &path);
                if code == 200 {
                    (self.machines[number].state, self.machines[number].unhealthy_since) = (State::Removed, None);
                }
                code
            }
        };
        format!("{} {node}: {code}", act.word())
    }

    fn hold_node(&mut self, node: &str, lasts_for: Millis) -> u16 {
        let now = self.now();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}});
        self.api.create(now, "/api/v1/namespaces", &namespace);
        let stamp = wall(now).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("node-{node}"), "namespace": "medik8s-leases"},
            "spec": {
                "holderIdentity": "somebody else", "leaseDurationSeconds": lasts_for / SECOND,
                "acquireTime": stamp, "renewTime": stamp,
            },
        });
        self.api.create(now, HOLDS, &body)
    }

    fn remove_remediation(&mut self) -> String {
        let names: Vec<String> = self.ledger.remediations.keys().cloned().collect();
        let Some(name) = self.rng.pick(&names).cloned() else { return "there is no remediation to remove".to_owned() };
        let code = self.api.delete(self.now(), &format!("{PROVIDED}/{name}"));
        format!("somebody else removes {name}: {code}")
    }

    /// Rather the name of a node that will need it.
    fn occupy(&mut self) -> String {
        let number = self.choose_broken();
        let node = self.machines[number].spec.name.clone();
        let body = json!({
            "apiVersion": "provider.test/v1", "kind": "RebootRemediation",
            "metadata": {"name": node, "namespace": "provider", "annotations": {"provider.test/by": "somebody else"}}, "spec": {},
        });
        let code = self.api.create(self.now(), &format!("{PROVIDED}/rebootremediations"), &body);
        format!("somebody else's object takes the name {node}: {code}")
    }

    /// From now on nothing fails any more. What is broken may stay so, if a reboot cures it: it is ours to repair.
    pub(crate) fn heal(&mut self) {
        let now = self.now();
        self.trace.tell(now, What::Healed);
        self.api.is_up = true;
        self.net.heals();
        self.provider.heals();
        self.restore_provider();
        self.heal_fleet();
        for number in 0..self.machines.len() {
            let is_ours = match self.machines[number].state {
                State::Failed(Failure::Crash | Failure::KubeletStops | Failure::Hangs | Failure::RuntimeDown) => {
                    self.rng.chance(50)
                }
                State::Failed(Failure::DiskBroken) => self.rng.chance(50),
                State::Failed(Failure::NetworkCut | Failure::Flaps | Failure::SlowBeats) | State::Removed => false,
                State::Booting { .. } | State::Running => true,
            };
            if let State::Booting { cut } = &mut self.machines[number].state {
                *cut = false;
            }
            if !is_ours {
                self.mend(number);
            }
        }
        self.tidy_up(now);
        for replica in 0..self.replicas.len() {
            // Those of kubelets stay as wrong as they are.
            self.set_clock(replica, HostClock::default());
            // Whoever is about to stop is replaced at once; whoever stands still will go on.
            if self.replicas[replica].process.as_ref().is_some_and(|process| process.is_stopping()) {
                self.kill(replica);
            }
            self.start(replica);
        }
        self.pull(None, |_| true);
        let boot = self.machines.iter().map(|machine| machine.spec.boots_for).max().unwrap_or(0);
        let repair_within = self.scenario.provider.works_for.1 + boot + 30 * SECOND;
        self.liveness = Some(Liveness::new(now, repair_within));
        self.agenda.after(JUDGE_EACH, Event::Judge);
    }

    /// The admin takes back what stands in the way, and the provider looks at everything once more.
    fn tidy_up(&mut self, now: Millis) {
        let leaving = self.ledger.nodes.iter().filter(|(_, history)| history.current().is_some_and(|node| node.deleting));
        for node in leaving.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.api.patch(now, &format!("{NODES}/{node}"), MERGE, &json!({"metadata": {"finalizers": null}}));
        }
        let holds = self.ledger.holds.iter().filter(|(_, history)| history.current().is_some());
        for node in holds.map(|(node, _)| node.clone()).collect::<Vec<_>>() {
            self.api.delete(now, &format!("{HOLDS}/node-{node}"));
        }
        for (name, one) in self.ledger.remediations.clone() {
            if one.owner.is_none() {
                self.api.delete(now, &format!("{PROVIDED}/{name}"));
            }
            let next = self.provider.sees(name, one.uid, one.deleting);
            next.into_iter().for_each(|next| self.provide(next));
        }
    }
}
