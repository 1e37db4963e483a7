//! What do an agent and the controller tell each other in the Lease of a node?

use std::time::Duration;

use crate::facts::{Name, Version};

/// The end of one boot of one node. It is final.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    pub boot: Name,
    /// The uid of the remediation that wants it.
    pub remediation: Name,
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub boot: Name,
    /// B. None: nothing is promised.
    pub bound: Option<Duration>,
    /// The agent lives, and has a watchdog that can be relied on.
    pub assured: bool,
    /// "I know the orders of this roll, and count with its electors." Zero: I know none.
    pub roll: u64,
}

/// A Lease as the server showed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    pub uid: Name,
    pub version: Version,
    pub claim: Claim,
    pub order: Option<Order>,
}

impl Seen {
    /// Does it show that this boot lives, and that nobody has ordered its end?
    pub fn proves(&self, boot: &Name) -> bool {
        self.claim.boot == *boot && !self.orders(boot)
    }

    pub fn orders(&self, boot: &Name) -> bool {
        self.order.as_ref().is_some_and(|order| order.boot == *boot)
    }
}
