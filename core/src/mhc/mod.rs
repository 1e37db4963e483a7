//! MachineHealthChecks: of Cluster API and of OpenShift.
//!
//! A machine is judged by its node, by itself, and by the cluster that it belongs to. Who repairs it is a matter of
//! the check: its owner, an external controller, or, on OpenShift, whoever makes machines anew when one is deleted.

pub mod budget;
pub mod facts;
pub mod fleet;
pub mod identity;
pub mod judge;
pub mod status;
