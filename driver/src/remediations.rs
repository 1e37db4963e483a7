//! What do the dashboards of the reference's users show?
//!
//! Its names and labels. Only nodes under remediation, and those that were, have series, and they go with their Node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use resus_core::facts::{Name, Object, ObjectKey};
use resus_core::time::Wall;
use resus_core::world::World;

type Labels = Vec<(&'static str, String)>;

pub struct Remediations {
    ongoing: Family<Labels, Gauge>,
    old: Family<Labels, Gauge>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// With when the first remediation of the node began.
    ongoing: BTreeMap<Series, Wall>,
    old: BTreeSet<Series>,
    measured: BTreeSet<Series>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    node: Name,
    namespace: Option<Name>,
    kind: Name,
}

impl Remediations {
    pub fn new(registry: &mut Registry) -> Remediations {
        let remediations = Remediations {
            ongoing: Family::default(),
            old: Family::default(),
            durations: Family::new_with_constructor(histogram),
            known: Mutex::default(),
        };
        registry.register(
            "nodehealthcheck_ongoing_remediation",
            "1 while a node has a remediation",
            remediations.ongoing.clone(),
        );
        registry.register(
            "nodehealthcheck_old_remediation_cr",
            "1 while a node has a remediation that is older than two days",
            remediations.old.clone(),
        );
        registry.register(
            "nodehealthcheck_unhealthy_node_duration_seconds",
            "How long nodes were under remediation",
            remediations.durations.clone(),
        );
        remediations
    }

    /// `leads`: who only looks on would count a second time.
    pub fn observe(&self, world: &World, now: Wall, leads: bool) {
        let mut guard = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = &mut *guard;
        let owned = |object: &&Object| {
            let is_owner = |uid: &str| world.checks.values().any(|check| *check.uid == *uid);
            object.body.is_none() && object.owners.iter().any(|owner| !owner.controls && is_owner(&owner.uid))
        };
        let mut ongoing = BTreeMap::new();
        let mut old = BTreeSet::new();
        for object in world.objects.values().filter(|object| leads && owned(object)) {
            let series = Series::of(object);
            if object.flagged_old {
                old.insert(series.clone());
            }
            let began_at = ongoing.entry(series).or_insert(object.created_at);
            *began_at = object.created_at.min(*began_at);
        }
        for (series, began_at) in known.ongoing.iter().filter(|(series, _)| !ongoing.contains_key(series)) {
            self.ongoing.remove(&series.labels());
            if leads {
                let lasted = Duration::from_millis(u64::try_from(now.0 - began_at.0).unwrap_or(0));
                self.durations.get_or_create(&series.labels()).observe(lasted.as_secs_f64());
                known.measured.insert(series.clone());
            }
        }
        for series in ongoing.keys().filter(|series| !known.ongoing.contains_key(series)) {
            self.ongoing.get_or_create(&series.labels()).set(1);
        }
        for series in known.old.difference(&old) {
            self.old.remove(&series.labels());
        }
        for series in old.difference(&known.old) {
            self.old.get_or_create(&series.labels()).set(1);
        }
        (known.ongoing, known.old) = (ongoing, old);
        known.measured.retain(|series| {
            let stays = world.nodes.contains_key(&series.node);
            if !stays {
                self.durations.remove(&series.labels());
            }
            stays
        });
    }
}

impl Series {
    fn of(object: &Object) -> Series {
        let ObjectKey { kind, namespace, .. } = &object.key;
        Series { node: object.node.clone(), namespace: namespace.clone(), kind: kind.kind.clone() }
    }

    fn labels(&self) -> Labels {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        vec![("name", self.node.to_string()), ("namespace", namespace.to_owned()), ("remediation", self.kind.to_string())]
    }
}

/// The reference's buckets, in seconds.
fn histogram() -> Histogram {
    Histogram::new([30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0])
}
