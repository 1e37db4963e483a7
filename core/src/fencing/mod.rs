//! When is it certain that a node no longer runs what it ran?
//!
//! Poison pill, without any IO: each agent promises in its Lease how soon after its last proof of life its machine is reset
//! ([`fuse`], [`vote`], [`agent`]), and the controller orders an end, waits until the promise has come true, and only then
//! releases what ran there ([`roll`], [`pill`]). docs/fencing.md has the argument why nothing runs twice.

pub mod agent;
pub mod fuse;
pub mod lease;
pub mod pill;
pub mod roll;
pub mod terms;
pub mod vote;
pub mod wire;
