//! Which nodes are broken, may they be repaired now, and what is to be done?
//!
//! Facts come in as [`input::Input`]s and are kept in a [`world::World`]. One pure and total function,
//! [`plan::plan`], decides from the whole world and the time what to do, and why. What it returns is so
//! specific that carrying it out leaves no choice. Nothing in this crate knows a clock, a socket or chance.

pub mod audit;
pub mod decision;
pub mod default_check;
pub mod effect;
pub mod escalate;
pub mod etcd;
pub mod event;
pub mod facts;
pub mod fencing;
pub mod flight;
pub mod gate;
pub mod health;
pub mod hold;
pub mod input;
mod kinds;
mod labels;
pub mod lease;
pub mod mhc;
pub mod nhc;
pub mod pause;
pub mod plan;
pub mod process;
pub mod quorum;
pub mod reasons;
pub mod repeat;
pub mod rival;
pub mod text;
pub mod time;
pub mod upgrade;
mod words;
pub mod world;
