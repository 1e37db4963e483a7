//! Does a kubeconfig still lead to the cluster that it led to?
//!
//! A kubeconfig out of the wrong backup, or a name that leads elsewhere by now, would show every node of its machines to be
//! gone. So each cluster is asked who it is, after each time that its Nodes are listed anew, before they are believed.

use std::time::Duration;

use crate::facts::Name;
use crate::mhc::facts::Cluster;
use crate::time::Mono;

/// Whoever corrects a kubeconfig, or a name, looks whether it helped.
pub const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Which cluster a Cluster is. Whatever is known of it lasts as long as the Cluster, whichever kubeconfig leads there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The uid of the Cluster.
    of: Name,
    /// As it was when it was first asked, or as a person has said since.
    pub known: Option<Name>,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// What is heard is in doubt, and has been since. Left by an answer to a question that was sent after `changed_at`.
    Asking { since: Mono, changed_at: Mono },
    /// Left when it may have become another; `confirmed`: a person says so.
    Same { uid: Name, confirmed: bool },
    /// We may not ask, and never might. Left likewise.
    Hidden,
    /// What is heard is not believed. Left in time, or when a person says that it is right.
    Doubted { doubt: Doubt, again_at: Mono },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    Another {
        known: Name,
        found: Name,
    },
    /// We may not ask any more.
    Hidden,
    /// There is no namespace kube-system.
    NoCluster,
}

/// What was answered.
pub enum Found {
    Uid(Name),
    Forbidden,
    Missing,
}

impl Identity {
    pub fn new(cluster: &Cluster, now: Mono) -> Identity {
        Identity { of: cluster.uid.clone(), known: None, state: State::Asking { since: now, changed_at: now } }
    }

    /// The Cluster was seen: it may be another of the same name, or a person may have said which one it is.
    pub fn cluster_seen(&mut self, cluster: &Cluster, now: Mono) {
        if self.of != cluster.uid {
            *self = Identity::new(cluster, now);
        }
        let Some(said) = &cluster.identity else { return };
        match &self.state {
            State::Doubted { doubt: Doubt::Another { found, .. }, .. } if said == found => self.may_change(now),
            State::Same { uid, .. } if said == uid => self.state = State::Same { uid: uid.clone(), confirmed: true },
            State::Same { .. } => self.may_change(now),
            State::Asking { .. } | State::Hidden | State::Doubted { .. } => {}
        }
    }

    /// What was heard so far says nothing about what will be heard from now on.
    pub fn may_change(&mut self, now: Mono) {
        let since = if let State::Asking { since, .. } = self.state { since } else { now };
        self.state = State::Asking { since, changed_at: now };
    }

    pub fn answered(&mut self, cluster: &Cluster, found: Found, sent_at: Mono, now: Mono) {
        match self.state {
            State::Asking { changed_at, .. } if sent_at >= changed_at => {}
            // An answer to a question of before.
            State::Asking { .. } | State::Same { .. } | State::Hidden | State::Doubted { .. } => return,
        }
        let doubted = |doubt| State::Doubted { doubt, again_at: now.after(AGAIN_AFTER) };
        let known = cluster.identity.as_ref().or(self.known.as_ref());
        self.state = match (found, known) {
            (Found::Uid(uid), Some(known)) if *known != uid => doubted(Doubt::Another { known: known.clone(), found: uid }),
            (Found::Uid(uid), _) => {
                self.known = Some(uid.clone());
                let confirmed = cluster.identity.is_some();
                State::Same { uid, confirmed }
            }
            (Found::Forbidden, None) => State::Hidden,
            (Found::Forbidden, Some(_)) => doubted(Doubt::Hidden),
            (Found::Missing, _) => doubted(Doubt::NoCluster),
        };
    }
}
