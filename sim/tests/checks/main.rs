//! What a NodeHealthCheck can ask for, rule by rule, on the embedded API server and in virtual time.
//!
//! The rules are those of `core/tests/executions/checks.rs`; here a check is JSON that the server takes, and what comes
//! of it is read back from the API. Where a test speaks of a provider, it plays it.

mod control_plane;
mod escalation;
mod leases;
mod limits;
mod load;
mod node_gone;
mod openshift;
mod overlap;
mod recovery;
mod refusals;
mod rivals;
mod storm;
mod story;
mod templates;
mod upgrades;
