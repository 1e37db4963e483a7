//! Machines, their checks and their Clusters: as their APIs hold them, and as nobody should write them.

mod clusters;
mod draw;
mod random;
mod requests;
mod rules;
mod signs;
mod specs;
mod stage;
mod statuses;
