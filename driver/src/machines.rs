//! What do dashboards and alerts for MachineHealthChecks show?
//!
//! OpenShift's names and labels, for checks of either flavour; a series goes with its check.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use resus_core::facts::{ObjectKey, Status};
use resus_core::mhc::facts::MachineCheck;
use resus_core::reasons;
use resus_core::world::World;

type Labels = [(&'static str, String); 2];

pub struct Machines {
    covered: Family<Labels, Gauge>,
    short_circuit: Family<Labels, Gauge>,
    repaired: Family<Labels, Counter<u64, AtomicU64>>,
    /// What has been counted of each check.
    known: Mutex<BTreeMap<ObjectKey, u64>>,
}

impl Machines {
    pub fn new(registry: &mut Registry) -> Machines {
        let machines = Machines {
            covered: Family::default(),
            short_circuit: Family::default(),
            repaired: Family::default(),
            known: Mutex::default(),
        };
        let name = |end: &str| format!("mapi_machinehealthcheck_{end}");
        registry.register(name("nodes_covered"), "Machines that a MachineHealthCheck watches over", machines.covered.clone());
        registry.register(
            name("short_circuit"),
            "1 while a MachineHealthCheck starts nothing, as too many machines are not healthy",
            machines.short_circuit.clone(),
        );
        registry.register(
            name("remediation_success"),
            "Repairs under a MachineHealthCheck that have come to their end",
            machines.repaired.clone(),
        );
        machines
    }

    /// `leads`: who only looks on would count a second time.
    pub fn observe(&self, world: &World, leads: bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = world.fleet.checks.values().filter(|check| leads && world.is_our_machine_check(check));
        let checks: BTreeMap<ObjectKey, &MachineCheck> = ours.map(|check| (check.key(), check)).collect();
        known.retain(|key, _| {
            let stays = checks.contains_key(key);
            if !stays {
                self.covered.remove(&labels(key));
                self.short_circuit.remove(&labels(key));
                self.repaired.remove(&labels(key));
            }
            stays
        });
        for (key, check) in checks {
            let allowed = check.status.condition(reasons::REMEDIATION_ALLOWED);
            let is_shut =
                allowed.is_some_and(|posted| posted.status == Status::False && &*posted.reason == reasons::TOO_MANY_UNHEALTHY);
            self.covered.get_or_create(&labels(&key)).set(i64::from(check.status.expected.unwrap_or(0)));
            self.short_circuit.get_or_create(&labels(&key)).set(i64::from(is_shut));
            let (repaired, counted) =
                (world.fleet.repaired.get(&key).copied().unwrap_or(0), known.entry(key.clone()).or_default());
            self.repaired.get_or_create(&labels(&key)).inc_by(repaired.saturating_sub(*counted));
            *counted = repaired;
        }
    }
}

fn labels(check: &ObjectKey) -> Labels {
    [("name", check.name.to_string()), ("namespace", check.namespace.as_deref().unwrap_or_default().to_owned())]
}
