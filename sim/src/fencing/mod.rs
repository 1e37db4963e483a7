//! Does anything ever run twice, whatever fails?
//!
//! Fencing in virtual time: the agents, votes, rolls and the steps of the controller are those of `resus_core::fencing`; simulated are
//! machines with watchdogs and clocks (`machine.rs`), kubelets (`kubelet.rs`), the rest of Kubernetes (`cluster.rs`), the API
//! (`store.rs`) and the networks, and leaders that freeze and are deposed (`control.rs`). `oracle.rs` knows the truth. A seed
//! draws all of it (`scenario.rs`, `plots.rs`, `faults.rs`); after the faults recovery is demanded.

mod agents;
mod boots;
mod cluster;
mod control;
mod errands;
mod faults;
mod kubelet;
mod machine;
mod net;
mod oracle;
pub mod plots;
pub mod scenario;
mod site;
mod store;

use crate::happening::{Happening, What};
use crate::report::Report;

pub fn run(seed: u64) -> Report {
    let mut site = site::Site::new(scenario::draw(seed));
    while let Some(happening) = site.step() {
        // What comes after the first violation may be its consequence.
        if matches!(happening.what, What::Violation(_)) {
            break;
        }
    }
    site.report()
}

/// The whole story, as it goes on.
pub fn tell(seed: u64, mut each: impl FnMut(&Happening)) -> Report {
    let mut site = site::Site::new(scenario::draw(seed));
    while let Some(happening) = site.step() {
        each(&happening);
    }
    site.report()
}
