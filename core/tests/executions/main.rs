//! Executions of the pure core against a small model of a cluster: chosen ones, and random ones.

mod audit;
mod beyond;
mod checks;
mod clocks;
mod etcd;
mod leftovers;
mod model;
mod openshift;
mod pause;
mod process;
mod properties;
mod rivals;
mod server;
mod stories;
mod traps;
mod upgrades;
