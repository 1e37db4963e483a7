//! Does somebody else's controller take care of the same checks?
//!
//! Two controllers on one object fight. Where medik8s' own one is alive, as its leader's Lease shows, we leave the checks to it.
//! Whoever may write in some namespace can write such a Lease, too: it counts only where other controllers are at home, and
//! only while it is renewed under our eyes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decision::Because;
use crate::facts::{Name, RivalLease};
use crate::time::{Mono, Now};

/// Namespaces whose objects are believed to be those of other controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Homes {
    /// Where the Lease of another controller's leader counts.
    pub rivals: BTreeSet<Box<str>>,
    /// Where a DaemonSet kured is kured's.
    pub kured: BTreeSet<Box<str>>,
}

/// Where the controllers of OpenShift, OLM, medik8s and Cluster API are installed unless somebody chooses otherwise.
pub const RIVAL_NAMESPACES: [&str; 6] = [
    "openshift-workload-availability",
    "openshift-operators",
    "operators",
    "node-healthcheck-operator-system",
    "capi-system",
    "openshift-machine-api",
];
pub const KURED_NAMESPACES: [&str; 1] = ["kube-system"];

impl Default for Homes {
    fn default() -> Homes {
        Homes { rivals: RIVAL_NAMESPACES.map(Box::from).into(), kured: KURED_NAMESPACES.map(Box::from).into() }
    }
}

impl Homes {
    /// Of the usual ones, and where we are.
    pub fn with(own: &str) -> Homes {
        let mut homes = Homes::default();
        homes.rivals.insert(own.into());
        homes.kured.insert(own.into());
        homes
    }
}

/// Is this, a namespace and a name, in one of these?
pub fn is_in(namespaces: &BTreeSet<Box<str>>, full_name: &str) -> bool {
    full_name.split_once('/').is_some_and(|(namespace, _)| namespaces.contains(namespace))
}

/// What people are told of Leases elsewhere.
pub fn ignored(leases: &[Name]) -> String {
    let named: Vec<&str> = leases.iter().take(NAMED_MAX).map(|name| &**name).collect();
    let more = leases.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "named like the Lease of another controller's leader, but elsewhere than --rival-namespaces says, so that it changes nothing: {}{more}",
        named.join(", ")
    )
}

/// Leases that are named in one sentence.
const NAMED_MAX: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rivals {
    leases: BTreeMap<Name, (RivalLease, Mono)>,
    /// We may not look: what nobody tells us of is not there.
    blind_until: Option<Mono>,
}

/// How long a refusal is believed. It is repeated every few seconds while it holds; where other errors follow it, whether we
/// may look is not known.
const BLIND_FOR: Duration = Duration::from_secs(120);
/// A Lease holds us off for no longer than this after a renewal, whatever it says: twenty times what all known controllers say.
const LASTS_MAX: Duration = Duration::from_secs(300);

impl Rivals {
    /// Why nothing is done, and until when that is certain.
    pub fn alive(&self, now: Mono) -> Option<(Because, Mono)> {
        let alive = self.leases.iter().filter(|(_, (lease, until))| !lease.holder.is_empty() && *until > now);
        let (name, (lease, until)) = alive.max_by_key(|(_, (_, until))| *until)?;
        Some((Because::ForeignController { lease: name.clone(), holder: lease.holder.clone() }, *until))
    }

    pub fn is_unreadable(&self, now: Mono) -> bool {
        self.blind_until.is_some_and(|until| now < until)
    }

    pub fn names(&self) -> BTreeSet<Name> {
        self.leases.keys().cloned().collect()
    }

    /// A Lease that is renewed under our eyes is alive, whatever its holder's clock says; and one that we see for the first
    /// time may be.
    pub fn seen(&mut self, name: Name, lease: RivalLease, now: Now) -> bool {
        let before = self.alive(now.mono).is_some();
        let until = match self.leases.get(&name) {
            Some((known, until)) if known.renewed_at == lease.renewed_at => *until,
            Some(_) | None => now.mono.after(lease.lasts_for.min(LASTS_MAX)),
        };
        self.leases.insert(name, (lease, until));
        before != self.alive(now.mono).is_some()
    }

    pub fn gone(&mut self, name: &Name) -> bool {
        self.leases.remove(name).is_some()
    }

    pub fn listed(&mut self, unseen: &BTreeSet<Name>) {
        self.blind_until = None;
        self.leases.retain(|name, _| !unseen.contains(name));
    }

    pub fn forbidden(&mut self, now: Mono) -> bool {
        let was_known = self.is_unreadable(now);
        self.blind_until = Some(now.after(BLIND_FOR));
        !was_known
    }
}
