//! What happened that somebody would want to hear of?

use std::fmt;

use resus_core::decision::Decision;

use crate::clock::{Millis, SECOND};

#[derive(Clone, Debug)]
pub struct Happening {
    pub at: Millis,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// Something was done to the cluster: a failure, a fault, an order of its admin.
    Act(String),
    /// The provider resets the machine, or its admin does.
    Reset {
        node: String,
    },
    /// The machine is up again.
    Booted {
        node: String,
    },
    /// A condition of a Node changed in the API.
    Condition {
        node: String,
        kind: String,
        status: String,
    },
    /// A controller came to another decision.
    Decided {
        replica: usize,
        decision: Decision,
    },
    Created {
        remediation: String,
        node: String,
        by: String,
    },
    Removed {
        remediation: String,
        node: String,
    },
    /// Something changed about a Machine, its check or what is made for it.
    Fleet(String),
    Leads {
        replica: usize,
    },
    LeadsNoMore {
        replica: usize,
    },
    Healed,
    Violation(Violation),
}

/// An oracle says that something happened which must not.
#[derive(Clone, Debug)]
pub struct Violation {
    /// As in the design: S1, S2, S4, S5, S6, L1, L2, L3, and F1 for a node that is taken for dead and is not.
    pub rule: &'static str,
    pub at: Millis,
    pub story: String,
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", Clocked(self.at))?;
        match &self.what {
            What::Act(what) => write!(f, "!  {what}"),
            What::Reset { node } => write!(f, "   {node} is reset"),
            What::Booted { node } => write!(f, "   {node} has booted"),
            What::Condition { node, kind, status } => write!(f, "   {node}: {kind} is {status}"),
            What::Decided { replica, decision: Decision { check, node, verdict, because } } => {
                write!(f, "{replica}: {check}: {verdict} {node}: {because}")
            }
            What::Created { remediation, node, by } => write!(f, "   {remediation} created for {node} by {by}"),
            What::Removed { remediation, node } => write!(f, "   {remediation} of {node} removed"),
            What::Fleet(what) => write!(f, "   {what}"),
            What::Leads { replica } => write!(f, "{replica}: leads"),
            What::LeadsNoMore { replica } => write!(f, "{replica}: leads no more"),
            What::Healed => write!(f, "!  from now on nothing fails any more"),
            What::Violation(violation) => write!(f, "!! {violation}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} violated at {}: {}", self.rule, Clocked(self.at), self.story)
    }
}

/// Minutes, seconds and milliseconds.
pub struct Clocked(pub Millis);

impl fmt::Display for Clocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / SECOND;
        write!(f, "{:02}:{:02}.{:03}", seconds / 60, seconds % 60, self.0 % SECOND)
    }
}
