//! What a MachineHealthCheck can ask for, rule by rule, on the embedded API server and in virtual time.
//!
//! The rules are those of `core/tests/machines`; here a check is JSON in each of its versions, and what comes of it is
//! read back from the API. Where a story needs a MachineSet or an infrastructure provider, `resus_sim::owner` plays it;
//! everybody else is played by the test.

mod check;
mod clusters;
mod faults;
mod health;
mod load;
mod openshift;
mod others;
mod owner;
mod status;
mod story;
mod template;
mod thresholds;
mod weaknesses;
