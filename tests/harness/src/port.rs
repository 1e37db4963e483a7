//! Which port on loopback will still be free when the server comes to listen on it?
//!
//! A port from the ephemeral range is a trap: while its server is down, any outgoing connection may be given it, and
//! a client that polls it can even connect to itself. So ports are drawn from below that range.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use anyhow::Context;

/// So many ports below the ephemeral range are drawn from: wide enough that two clusters seldom draw the same.
const RANGE_WIDTH: u16 = 12_000;
/// Ports in use on a test machine are a handful; so many in a row point at something else.
const DRAWS_MAX: usize = 50;

/// A port that nobody listens on now. Somebody may before the server does: who starts it tries again with another.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let Some(lowest) = lowest_ephemeral().and_then(|port| port.checked_sub(RANGE_WIDTH)).filter(|port| *port > 1024) else {
        // No room below: the kernel's choice is the next best.
        return Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
    };
    (0..DRAWS_MAX)
        .map(|_| lowest + draw_below(RANGE_WIDTH))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .with_context(|| format!("no free port in {DRAWS_MAX} draws from {lowest} on"))
}

fn lowest_ephemeral() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}

/// The standard library seeds its hashers from the system's randomness; that is all the dice that this needs.
fn draw_below(limit: u16) -> u16 {
    let drawn = RandomState::new().build_hasher().finish() % u64::from(limit);
    u16::try_from(drawn).expect("smaller than a u16 limit")
}
