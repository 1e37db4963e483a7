//! MachineHealthChecks of Cluster API and OpenShift, with the definitions that those ship.

mod arrival;
mod bad;
mod check;
mod clusters;
mod dialect;
mod faults;
mod hostile;
mod leftovers;
mod machineset;
mod many;
mod namespaces;
mod openshift;
mod overlap;
mod owner;
mod quiet;
mod rules;
mod site;
mod template;
