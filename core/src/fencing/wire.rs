//! By which names do agents and controller find what the other has written?
//!
//! Everything that the two sides agree on is here and nowhere else; who changes any of it changes [`PROTOCOL`].

/// Agents that are one version apart understand each other; answers of others do not count.
pub const PROTOCOL: u32 = 1;

/// Annotations of an agent's Lease, which has the name of its node.
pub const BOOT_ID: &str = "resus.dev/boot-id";
pub const SYSTEM_UUID: &str = "resus.dev/system-uuid";
pub const WATCHDOG: &str = "resus.dev/watchdog";
pub const ASSURED: &str = "resus.dev/assured";
pub const PEER_ADDRESS: &str = "resus.dev/peer-address";
pub const PROTOCOL_NUMBER: &str = "resus.dev/protocol";
/// The number of the roll that the agent knows and counts with.
pub const ROLL_NUMBER: &str = "resus.dev/roll";
/// In whole seconds. Absent: nothing is promised.
pub const FENCE_BOUND: &str = "resus.dev/fence-bound";
/// The boot that must die, and the uid of the remediation that wants it, with a space between them.
pub const ORDER: &str = "resus.dev/order";

/// The ConfigMap of the roll.
pub const ROLL: &str = "resus-roll";
/// The taint of a node that is being fenced, and its values.
pub const HOLD_TAINT: &str = "resus.dev/fencing";
pub const HOLD: &str = "hold";
pub const RELEASED: &str = "released";

/// Does an answer with this number count?
pub fn understands(protocol: u32) -> bool {
    protocol.abs_diff(PROTOCOL) <= 1
}
