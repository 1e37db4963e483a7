//! How does the pure core meet the world?
//!
//! One dumb loop ([`pump`]): drain what was heard, apply it, plan once, send the effects, sleep until the
//! plan's `wake_at` or the next input. Around it: watches, a metrics and a health endpoint.

pub mod admin;
mod body;
pub mod clusters;
pub mod connect;
mod gates;
pub mod home;
mod machines;
mod process;
pub mod proxy;
pub mod pump;
mod remediations;
pub mod telemetry;
pub mod watch;
