//! Does somebody else's controller take care of the same checks?
//!
//! Two controllers on one object fight. Where medik8s' own one is alive, as its leader's Lease shows, we leave the checks to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::decision::Because;
use crate::facts::{Name, RivalLease};
use crate::time::{Clock, Mono, Now};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rivals {
    leases: BTreeMap<Name, (RivalLease, Mono)>,
    /// We may not look: what nobody tells us of is not there.
    blind_until: Option<Mono>,
}

/// How long a refusal is believed. It is repeated every few seconds while it holds; where other errors follow it, whether we
/// may look is not known.
const BLIND_FOR: Duration = Duration::from_secs(120);

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

    /// A Lease that is renewed under our eyes is alive, whatever its holder's clock says.
    pub fn seen(&mut self, name: Name, lease: RivalLease, clock: &Clock, now: Now) -> bool {
        let before = self.alive(now.mono).is_some();
        let until = match self.leases.get(&name) {
            Some((known, until)) if known.renewed_at == lease.renewed_at => *until,
            Some(_) => now.mono.after(lease.lasts_for),
            None => clock.anchor(lease.renewed_at, now).after(lease.lasts_for),
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
