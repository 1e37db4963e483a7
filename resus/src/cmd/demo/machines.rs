//! What becomes of the served cluster as time passes, and as somebody annotates its nodes?
//!
//! Machines, kubelets and provider are the simulator's, with no controllers of its own and driven by the wall clock. They
//! share the process with the API server and write to it directly; the real controller does not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use resus_sim::Simulation;
use resus_sim::api::{MERGE, NODES};
use resus_sim::clock::{EPOCH, Millis, SECOND};
use resus_sim::happening::{Happening, What};
use resus_sim::machine::{Machine, State};
use resus_sim::scenario::{Act, Failure, ProviderSpec, Scenario};
use serde_json::{Value, json};

use super::panel::clock;
use super::script::Script;
use super::serve::millis_since;
use super::story::{Speaker, news};
use crate::cmd::apiserver::random;
use crate::serve::{Shared, secret};

const BREAK: &str = "demo.resus.dev/break";
const MEND: &str = "demo.resus.dev/mend";

/// Whoever breaks a node wants to see it at once.
const TICK: Duration = Duration::from_millis(500);
const BEATS_EACH: Millis = 3 * SECOND;
/// Silent for longer, and a node is Unknown: three heartbeats, and longer than a boot.
const PATIENCE: Millis = 10 * SECOND;
const BOOTS_FOR: Millis = 6 * SECOND;
/// Between its first look at an object and the power-cycle, as long as a management controller may take.
const PROVIDER_WORKS_FOR: (Millis, Millis) = (SECOND, 2 * SECOND);
/// While a node flaps it changes its mind after each of these, and it gives up soon enough to be left alone.
const FLAPS_EACH: Millis = 6 * SECOND;
const FLAPS_FOR: Millis = 30 * SECOND;
/// The cluster is older than what is shown of it: by then all kubelets have reported.
const SETTLES_FOR: Millis = 2 * BEATS_EACH;

pub struct Machines {
    shared: Shared,
    simulation: Simulation,
    /// Until when each machine flaps that does.
    flapping: BTreeMap<usize, Millis>,
    began: Instant,
}

impl Machines {
    /// With everything that is in the cluster before its controller is, and with its server, which wants this token.
    pub fn start(script: &Script, check: Act, token: &str, began: Instant) -> (Machines, Shared) {
        let mut simulation = Simulation::new(scenario(script, check, wall_clock() - SETTLES_FOR));
        // Nobody wants to hear of how it was set up.
        simulation.run_until(wall_clock());
        let shared = Shared::new(simulation.give_server(token, secret));
        (Machines { shared: shared.clone(), simulation, flapping: BTreeMap::new(), began }, shared)
    }

    /// Never ends.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tick();
        }
    }

    fn tick(&mut self) {
        let Machines { shared, simulation, flapping, .. } = self;
        let (happened, orders) = shared.with(|server| {
            simulation.visit(server, |simulation| {
                let happened = simulation.run_until(wall_clock());
                let orders: Vec<Order> =
                    flaps_that_end(flapping, simulation).into_iter().chain(take_orders(simulation)).collect();
                for act in orders.iter().filter_map(|order| order.act.as_ref()) {
                    simulation.act_now(act);
                    if let Act::Break(machine, Failure::Flaps) = act {
                        flapping.insert(*machine, simulation.now() + FLAPS_FOR);
                    }
                }
                (happened, orders)
            })
        });
        self.tell(&happened);
        orders.iter().for_each(|Order { node, speaker, text, .. }| self.say(*speaker, node, text));
    }

    fn tell(&self, happened: &[Happening]) {
        for Happening { at, what } in happened {
            // That a machine is Ready which has just booted is said with that.
            let has_booted = |node: &str| {
                happened
                    .iter()
                    .any(|other| other.at == *at && matches!(&other.what, What::Booted { node: booted } if booted == node))
            };
            match news(what) {
                Some((_, node, _)) if matches!(what, What::Condition { .. }) && has_booted(node) => {}
                Some((speaker, node, text)) => self.say(speaker, node, &text),
                None => {}
            }
        }
    }

    fn say(&self, speaker: Speaker, node: &str, text: &str) {
        println!("  {}  {:9} {node}: {text}", clock(millis_since(self.began)), speaker.name());
    }
}

/// What is wanted of a machine, and what is said about it.
struct Order {
    node: String,
    /// None: nobody knows what that should be.
    act: Option<Act>,
    speaker: Speaker,
    text: String,
}

fn flaps_that_end(flapping: &mut BTreeMap<usize, Millis>, simulation: &Simulation) -> Vec<Order> {
    let over = flapping
        .extract_if(.., |_, until| simulation.now() >= *until)
        .map(|(number, _)| (number, &simulation.machines()[number]));
    // It may have been rebooted meanwhile, or broken in another way.
    let over = over.filter(|(_, machine)| machine.state == State::Failed(Failure::Flaps));
    over.map(|(number, machine)| Order::mend(number, &machine.spec.name, "flapping ends")).collect()
}

/// Annotations are used up by being read.
fn take_orders(simulation: &mut Simulation) -> Vec<Order> {
    let nodes = simulation.lend(None, |now, api, _| api.read(now, NODES)).unwrap_or_default();
    let nodes = nodes["items"].as_array().into_iter().flatten().map(|node| &node["metadata"]);
    let orders: Vec<Order> = nodes.filter_map(|metadata| Order::read(metadata, simulation.machines())).collect();
    for Order { node, .. } in &orders {
        let used = json!({"metadata": {"annotations": {BREAK: null, MEND: null}}});
        simulation.lend(None, |now, api, _| api.patch(now, &format!("{NODES}/{node}"), MERGE, &used));
    }
    orders
}

impl Order {
    fn read(metadata: &Value, machines: &[Machine]) -> Option<Order> {
        let (name, annotations) = (&metadata["name"], &metadata["annotations"]);
        let number = machines.iter().position(|machine| *name == machine.spec.name)?;
        let node = &machines[number].spec.name;
        let (failure, text) = match annotations[BREAK].as_str() {
            Some("power") => (Failure::Crash, "the power is gone"),
            Some("kubelet") => (Failure::KubeletStops, "the kubelet is dead"),
            Some("disk") => (Failure::DiskBroken, "the disk is bad"),
            Some("flap") => (Failure::Flaps, "flapping begins"),
            Some(other) => {
                let text = format!("{BREAK}={other} is not known: write power, kubelet, disk or flap");
                return Some(Order { node: node.clone(), act: None, speaker: Speaker::Trouble, text });
            }
            None if annotations[MEND].is_null() => return None,
            None => return Some(Order::mend(number, node, "repaired by hand")),
        };
        let act = Some(Act::Break(number, failure));
        Some(Order { node: node.clone(), act, speaker: Speaker::Trouble, text: text.to_owned() })
    }

    fn mend(number: usize, node: &str, text: &str) -> Order {
        Order { node: node.to_owned(), act: Some(Act::Mend(number)), speaker: Speaker::Relief, text: text.to_owned() }
    }
}

/// The cluster of the story, before anything happens to it, and faster than it.
fn scenario(script: &Script, check: Act, begins_at: Millis) -> Scenario {
    let mut scenario = Scenario {
        seed: random(),
        replicas: 0,
        provider: ProviderSpec { works_for: PROVIDER_WORKS_FOR, ..ProviderSpec::default() },
        acts: vec![(begins_at, check)],
        patience: (PATIENCE, PATIENCE),
        begins_at,
        ends_at: Millis::MAX,
        ..script.scenario.clone()
    };
    for machine in &mut scenario.machines {
        (machine.beats_each, machine.boots_for, machine.flaps_each) = (BEATS_EACH, BOOTS_FOR, FLAPS_EACH);
        machine.pods = 0;
    }
    scenario
}

/// As the simulator counts time. After a pause of this process the cluster catches up; where the clock is set back, it waits.
fn wall_clock() -> Millis {
    Timestamp::now().as_millisecond() - EPOCH
}
