//! What does a controller ask of the API, and what comes of it?

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::Failure;
use resus_core::fencing::lease::Seen;
use resus_core::fencing::pill::{Facts, Hold, Looks, Node, Pod, Read, Step, Strategy, Word};
use resus_core::fencing::roll::Roll;
use resus_core::time::{Mono, Wall};

use super::scenario::Cue;
use super::site::{Event, Site};
use super::store::{Census, Remediation};
use crate::clock::Millis;

/// One request, or, where it only reads, several at once.
#[derive(Clone, Debug)]
pub enum Errand {
    /// Which remediations are there?
    List,
    /// All that the roll is made of.
    Count,
    WriteRoll(Version, Roll),
    /// Everything about one node.
    Review {
        node: Name,
    },
    /// With the version of the remediation.
    Step {
        node: Name,
        version: Version,
        step: Step,
        belief: Belief,
    },
    /// The remediation is over.
    Remove {
        node: Name,
        version: Version,
    },
}

/// What whoever decided it believed.
#[derive(Clone, Debug)]
pub struct Belief {
    /// The boot that has ended, if any has.
    pub dead: Option<Name>,
    pub word: Word,
    /// Only because of a time that nobody has promised.
    pub unassured: bool,
}

pub enum Outcome {
    Remediations(Vec<Remediation>),
    Census(Census),
    Facts(Box<Facts>),
    Node(Option<Node>),
    Lease(Option<Seen>),
    Remediation(Remediation),
    Done,
    Failed(Failure),
}

/// How much harm does it do when it comes late?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Reads,
    Prepares,
    /// It marks or releases something.
    Decides,
}

impl Errand {
    pub fn weight(&self) -> Weight {
        match self {
            Errand::List | Errand::Count | Errand::Review { .. } => Weight::Reads,
            Errand::WriteRoll(..) | Errand::Remove { .. } => Weight::Prepares,
            Errand::Step { step, .. } => match step {
                Step::Look(_) | Step::Wait { .. } | Step::Done(_) => Weight::Reads,
                Step::Cordon(_) | Step::Note { .. } | Step::Order { .. } | Step::Enter { .. } | Step::NoteReleased => {
                    Weight::Prepares
                }
                Step::Hold(_)
                | Step::Commit(..)
                | Step::DeletePods(_)
                | Step::DeleteNode { .. }
                | Step::Unhold(_)
                | Step::Uncordon(_) => Weight::Decides,
            },
        }
    }
}

impl Site {
    /// The request has reached the API.
    pub fn execute_errand(
        &mut self,
        replica: usize,
        term: u64,
        sent_at: Millis,
        gives_up_at: Millis,
        answers_in: Option<Millis>,
        errand: Errand,
    ) {
        let now = self.agenda.now();
        if self.net.is_down(now) {
            if now < gives_up_at {
                let outcome = Outcome::Failed(Failure::Lost);
                self.agenda.enter(gives_up_at, Event::Answered { replica, term, sent_at, errand, outcome });
            }
            return;
        }
        let asked_at = self.control.replicas[replica].clock.read(sent_at);
        let outcome = self.carry_out_errand(&errand, asked_at);
        if errand.weight() != Weight::Reads {
            let is_stored = !matches!(outcome, Outcome::Failed(_));
            if self.control.is_deposed(replica) {
                self.trace.count(if is_stored { "deposed leader's write stored" } else { "deposed leader's write refused" });
            }
            if now >= gives_up_at {
                self.trace.count(if is_stored { "late step stored" } else { "late step refused" });
            }
        }
        if now >= gives_up_at {
            return;
        }
        let answer_at = answers_in.map(|wait| now + wait).filter(|at| *at < gives_up_at);
        let (at, outcome) = match answer_at {
            Some(at) => (at, outcome),
            None => (gives_up_at, Outcome::Failed(Failure::Lost)),
        };
        self.agenda.enter(at, Event::Answered { replica, term, sent_at, errand, outcome });
    }

    fn carry_out_errand(&mut self, errand: &Errand, asked_at: Mono) -> Outcome {
        let now = self.agenda.now();
        match errand {
            Errand::List => Outcome::Remediations(self.store.remediations()),
            Errand::Count => Outcome::Census(self.store.census(now)),
            Errand::WriteRoll(version, roll) => done(self.store.write_roll(version, roll.clone())),
            Errand::Review { node } => Outcome::Facts(Box::new(self.review(node, asked_at))),
            Errand::Remove { node, version } => done(self.store.remove_remediation(node, version)),
            Errand::Step { node, version, step, belief } => {
                let outcome = self.carry_out_step(node, version, step, belief, asked_at);
                let is_told = !matches!(step, Step::Look(_));
                if is_told {
                    let how = if let Outcome::Failed(failure) = &outcome { format!("{failure:?}") } else { "stored".into() };
                    self.tell(format!("{node}: {step:?}: {how}"));
                }
                outcome
            }
        }
    }

    fn carry_out_step(&mut self, name: &Name, version: &Version, step: &Step, belief: &Belief, asked_at: Mono) -> Outcome {
        match step {
            Step::Look(looks) => Outcome::Facts(Box::new(only(*looks, self.review(name, asked_at)))),
            Step::Cordon(version) => self.write_node(name, version, "cordoned", |node| node.shown.cordoned = true),
            Step::Hold(version) => {
                let outcome = self.write_node(name, version, "held", |node| node.shown.hold = Hold::Held);
                if matches!(outcome, Outcome::Node(_)) {
                    self.judge_hold(name, belief);
                }
                self.cue_if_done(&outcome, Cue::Held, name);
                outcome
            }
            Step::Commit(version, strategy) => {
                let out_of_service = *strategy == Strategy::OutOfServiceTaint;
                let outcome = self.write_node(name, version, commit_word(*strategy), |node| {
                    (node.shown.hold, node.out_of_service) = (Hold::Released, out_of_service);
                });
                if matches!(outcome, Outcome::Node(_)) {
                    self.judge_commit(name, belief);
                }
                outcome
            }
            Step::Unhold(version) => self.write_node(name, version, "unheld", |node| {
                (node.shown.hold, node.out_of_service) = (Hold::None, false);
            }),
            Step::Uncordon(version) => self.write_node(name, version, "uncordoned", |node| node.shown.cordoned = false),
            Step::Note { boot } => remediation(self.store.note(name, version, boot, Wall(self.agenda.now()))),
            Step::NoteReleased => {
                let outcome = remediation(self.store.note_released(name, version));
                if matches!(outcome, Outcome::Remediation(_)) {
                    self.trace.count("released");
                }
                outcome
            }
            Step::Order { lease, order } => {
                let outcome = match self.store.order(name, lease, order.clone()) {
                    Ok(seen) => Outcome::Lease(Some(seen)),
                    Err(failure) => Outcome::Failed(failure),
                };
                if matches!(outcome, Outcome::Lease(_)) {
                    self.trace.count("ordered");
                }
                self.cue_if_done(&outcome, Cue::Ordered, name);
                outcome
            }
            Step::DeletePods(uids) => {
                for uid in uids {
                    self.remove_by_force(uid, "the controller");
                }
                Outcome::Done
            }
            Step::DeleteNode { uid, version } => {
                let outcome = done(self.store.delete_node(name, uid, version));
                if matches!(outcome, Outcome::Done) {
                    self.trace.count("node deleted");
                }
                outcome
            }
            // The roll is written by itself.
            Step::Enter { .. } | Step::Wait { .. } | Step::Done(_) => Outcome::Done,
        }
    }

    fn cue_if_done(&mut self, outcome: &Outcome, cue: Cue, name: &Name) {
        if !matches!(outcome, Outcome::Failed(_)) {
            self.echo(cue, self.by_name[name]);
        }
    }

    fn write_node(
        &mut self,
        name: &Name,
        version: &Version,
        word: &'static str,
        change: impl FnOnce(&mut super::store::NodeObject),
    ) -> Outcome {
        match self.store.change_node(name, version, change) {
            Ok(node) => {
                self.trace.count(word);
                Outcome::Node(Some(node))
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }

    fn review(&self, name: &Name, asked_at: Mono) -> Facts {
        let pods: Vec<Pod> = self.store.pods_on(name).map(|pod| pod.shown.clone()).collect();
        Facts {
            node: read(asked_at, self.store.nodes.get(name).map(|node| node.shown.clone())),
            lease: read(asked_at, self.store.lease(name).ok()),
            roll: read(asked_at, self.store.roll.clone()),
            acks: self.store.acks(),
            kubelet: read(asked_at, self.store.beats.get(name).cloned()),
            pods: read(asked_at, pods),
        }
    }
}

fn read<T>(asked_at: Mono, found: T) -> Option<Read<T>> {
    Some(Read { asked_at, found })
}

fn only(looks: Looks, all: Facts) -> Facts {
    let none = Facts::default();
    match looks {
        Looks::Node => Facts { node: all.node, ..none },
        Looks::Lease => Facts { lease: all.lease, ..none },
        Looks::Roll => Facts { roll: all.roll, acks: all.acks, ..none },
        Looks::Kubelet => Facts { kubelet: all.kubelet, ..none },
        Looks::Pods => Facts { pods: all.pods, ..none },
    }
}

fn done(stored: Result<(), Failure>) -> Outcome {
    match stored {
        Ok(()) => Outcome::Done,
        Err(failure) => Outcome::Failed(failure),
    }
}

fn remediation(stored: Result<Remediation, Failure>) -> Outcome {
    match stored {
        Ok(remediation) => Outcome::Remediation(remediation),
        Err(failure) => Outcome::Failed(failure),
    }
}

fn commit_word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::OutOfServiceTaint => "committed: out of service",
        Strategy::ResourceDeletion => "committed: resource deletion",
        Strategy::NodeDeletion => "committed: node deletion",
    }
}
