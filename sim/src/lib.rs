//! Does it hold, whatever fails?
//!
//! The same `World`, `plan`, requests, answers and watches as in production, and the embedded API server, in virtual
//! time: only the loop, the sockets and the clocks are replaced. A seed draws a cluster, its checks and its faults
//! ([`swarm`]); oracles that know the truth watch ([`oracle`], [`liveness`]). After the faults recovery is demanded.
//!
//! [`run::run`] plays one seed; a scripted [`scenario::Scenario`] is played step by step by [`Simulation`].

mod acts;
pub mod api;
pub mod clock;
mod eye;
pub mod fencing;
pub mod fleet;
pub mod happening;
pub mod ledger;
pub mod liveness;
pub mod machine;
pub mod machinery;
mod net;
pub mod oracle;
pub mod owner;
pub mod policy;
mod provider;
mod replica;
pub mod report;
mod rng;
pub mod run;
pub mod scenario;
mod simulation;
pub mod swarm;
pub mod trace;
mod watching;
mod wiring;

pub use simulation::Simulation;
