//! What is told of all that happens?
//!
//! Happenings of the simulator become lines. What happens to many nodes in the same way, at about the same time, is one
//! line; what follows from the line before is left out.

use std::collections::{BTreeMap, VecDeque};

use resus_core::decision::{Because, Decision, Match, Verdict};
use resus_sim::Simulation;
use resus_sim::clock::{Millis, SECOND};
use resus_sim::happening::{Happening, What};

use super::balance::Balance;
use super::script::{Cue, Script};

/// Nodes that fail together are missed within two rounds of the node lifecycle controller.
const TOGETHER: Millis = 11 * SECOND;
/// Names that are written out; the rest is counted.
const NAMED_MAX: usize = 4;

pub struct Line {
    pub at: Millis,
    pub speaker: Speaker,
    pub nodes: Vec<String>,
    pub text: String,
    /// What becomes of these nodes.
    pub state: Option<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// Begins a chapter.
    Headline,
    /// Something goes wrong.
    Trouble,
    /// What everybody can read in the API.
    Cluster,
    Resus(Verdict),
    Provider,
    /// Something is well again.
    Relief,
}

impl Speaker {
    /// As it stands before a line.
    pub fn name(self) -> &'static str {
        match self {
            Speaker::Headline | Speaker::Trouble => "!",
            Speaker::Cluster | Speaker::Relief => "cluster",
            Speaker::Resus(_) => "resus",
            Speaker::Provider => "provider",
        }
    }
}

/// How a node looks to somebody who knows everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Healthy,
    /// Nobody has noticed yet.
    Broken,
    Pending,
    /// Its time is over, and nothing is done about it.
    Unhealthy,
    Repairing,
    Rebooting,
}

pub struct Story {
    simulation: Simulation,
    cues: VecDeque<Cue>,
    /// Taken from the simulation, not yet told.
    ahead: VecDeque<Line>,
    told_until: Millis,
    /// Until the first chapter everything is set up, which is no story.
    began: bool,
    booting: BTreeMap<String, Millis>,
    /// Why each node is not healthy, as resus said it first.
    found: BTreeMap<String, Match>,
    last: BTreeMap<String, Verdict>,
    balance: Balance,
}

impl Story {
    pub fn new(script: Script) -> Story {
        Story {
            simulation: Simulation::new(script.scenario.clone()),
            ahead: VecDeque::new(),
            told_until: 0,
            began: false,
            booting: BTreeMap::new(),
            found: BTreeMap::new(),
            last: BTreeMap::new(),
            balance: Balance::new(&script),
            cues: script.cues,
        }
    }

    /// When all is told: did it go as it should?
    pub fn end(mut self) -> Balance {
        self.balance.end(&self.simulation);
        self.balance
    }

    /// None: the end.
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let horizon = self.ahead.front().map(|line| line.at + TOGETHER);
            if horizon.is_some_and(|horizon| self.told_until > horizon) {
                return self.ahead.pop_front();
            }
            let Some(happening) = self.simulation.step() else { return self.ahead.pop_front() };
            self.told_until = happening.at;
            self.balance.take(&happening, &self.simulation);
            self.take(happening);
        }
    }

    fn take(&mut self, Happening { at, what }: Happening) {
        if let Some((speaker, node, text)) = news(&what) {
            let state = matches!(what, What::Reset { .. }).then_some(State::Rebooting);
            if !self.is_expected(at, &what) {
                self.tell(at, speaker, node.to_owned(), &text, state);
            }
        }
        match what {
            What::Act(_) => self.act(at),
            What::Reset { node } | What::Booted { node } => {
                self.booting.insert(node, at);
            }
            // There are no Machines in the demo.
            What::Condition { .. } | What::Healed | What::Fleet(_) => {}
            What::Decided { decision, .. } => self.decided(at, decision),
            What::Created { node, .. } => {
                self.tell(at, Speaker::Cluster, node, "a RebootRemediation is created", Some(State::Repairing));
            }
            What::Removed { node, .. } => {
                self.tell(at, Speaker::Relief, node, "the RebootRemediation is removed", Some(State::Healthy));
            }
            What::Leads { .. } => self.say(at, Speaker::Cluster, "resus leads again: it holds its lease"),
            What::LeadsNoMore { .. } => {
                self.say(at, Speaker::Cluster, "resus no longer leads: it could not renew its lease, and may do nothing");
            }
            What::Violation(violation) => self.say(at, Speaker::Trouble, &violation.to_string()),
        }
    }

    fn act(&mut self, at: Millis) {
        let Some(Cue { headline, text, nodes, breaks }) = self.cues.pop_front() else { return };
        if let Some(headline) = headline {
            self.began = true;
            self.say(at, Speaker::Headline, &headline);
        }
        let (speaker, state) = match breaks {
            true => (Speaker::Trouble, Some(State::Broken)),
            false if text.ends_with("any more") => (Speaker::Trouble, None),
            false => (Speaker::Relief, None),
        };
        if nodes.is_empty() {
            self.say(at, speaker, text);
        }
        nodes.into_iter().for_each(|node| self.tell(at, speaker, node, text, state));
    }

    /// A machine that boots is silent, and then it reports.
    fn is_expected(&self, at: Millis, what: &What) -> bool {
        let What::Condition { node, .. } = what else { return false };
        self.booting.get(node).is_some_and(|since| *since == at || self.is_booting(node))
    }

    fn is_booting(&self, node: &str) -> bool {
        let machine = self.simulation.machines().iter().find(|machine| machine.spec.name == node);
        machine.is_some_and(|machine| matches!(machine.state, resus_sim::machine::State::Booting { .. }))
    }

    fn decided(&mut self, at: Millis, Decision { node, verdict, because, .. }: Decision) {
        let node = node.to_string();
        let before = self.last.insert(node.clone(), verdict);
        if let Because::Pending(found) | Because::Expired(found) = &because {
            self.found.insert(node.clone(), found.clone());
        }
        let (because, state) = match (verdict, &because) {
            // That it creates something is no reason; that its time is over is.
            (Verdict::Start, Because::Creating { .. } | Because::CreatingUnowned { .. }) => match self.found.get(&node) {
                Some(found) => (Because::Expired(found.clone()), None),
                None => (because, None),
            },
            // The object that was just created says the same.
            (Verdict::Keep, _) => return,
            (Verdict::Leave, _) if before == Some(Verdict::Remove) => return,
            (Verdict::Leave, _) => (because, Some(State::Healthy)),
            (Verdict::Wait, Because::Pending(_)) => (because, Some(State::Pending)),
            (Verdict::Wait | Verdict::Hold, _) => (because, Some(State::Unhealthy)),
            (Verdict::Start | Verdict::Remove, _) => (because, None),
        };
        self.tell(at, Speaker::Resus(verdict), node, &because.to_string(), state);
    }

    fn say(&mut self, at: Millis, speaker: Speaker, text: &str) {
        if self.began {
            let text = text.to_owned();
            self.ahead.push_back(Line { at, speaker, nodes: Vec::new(), text, state: None });
        }
    }

    /// Joins a line that says the same of another node, unless a chapter lies between.
    fn tell(&mut self, at: Millis, speaker: Speaker, node: String, text: &str, state: Option<State>) {
        if !self.began {
            return;
        }
        let chapter = self.ahead.iter().rposition(|line| line.speaker == Speaker::Headline).map_or(0, |at| at + 1);
        let alike = |line: &&mut Line| {
            let is_same = line.speaker == speaker && line.text == text && at <= line.at + TOGETHER;
            is_same && !line.nodes.is_empty() && !line.nodes.contains(&node)
        };
        match self.ahead.iter_mut().skip(chapter).find(alike) {
            Some(line) => line.nodes.push(node),
            None => {
                let (nodes, text) = (vec![node], text.to_owned());
                self.ahead.push_back(Line { at, speaker, nodes, text, state });
            }
        }
    }
}

impl Line {
    /// As it is read: `wait worker-2, because ...`, or `worker-2: Ready is Unknown`.
    pub fn sentence(&self) -> String {
        match (self.nodes.is_empty(), self.speaker) {
            (true, _) => self.text.clone(),
            (false, Speaker::Resus(verdict)) => decision(&verdict.to_string(), &names(&self.nodes), &self.text),
            (false, _) => format!("{}: {}", names(&self.nodes), self.text),
        }
    }
}

/// What machines, their provider and the API tell by themselves: who says it, and what of which node.
pub fn news(what: &What) -> Option<(Speaker, &str, String)> {
    let (speaker, node, text) = match what {
        What::Reset { node } => (Speaker::Provider, node, "power-cycled".to_owned()),
        What::Booted { node } => (Speaker::Relief, node, "booted and Ready".to_owned()),
        What::Condition { node, kind, status } => match (kind.as_str(), status.as_str()) {
            ("Ready", "Unknown") => (Speaker::Cluster, node, "no heartbeat, Ready is Unknown".to_owned()),
            ("Ready", "True") => (Speaker::Relief, node, "Ready is True".to_owned()),
            ("Ready", _) | ("DiskBroken", "True") => (Speaker::Cluster, node, format!("{kind} is {status}")),
            _ => return None,
        },
        What::Act(_)
        | What::Decided { .. }
        | What::Created { .. }
        | What::Removed { .. }
        | What::Leads { .. }
        | What::LeadsNoMore { .. }
        | What::Healed
        | What::Fleet(_)
        | What::Violation(_) => return None,
    };
    Some((speaker, node, text))
}

/// A decision as a sentence. The verdict comes first, as logs and metrics call it.
pub fn decision(verdict: &str, nodes: &str, because: &str) -> String {
    let what = match verdict {
        "wait" => format!("wait with {nodes}"),
        "hold" => format!("hold back on {nodes}"),
        "start" => format!("start to remediate {nodes}"),
        "keep" => format!("keep the remediation of {nodes}"),
        "remove" => format!("remove the remediation of {nodes}"),
        "leave" => format!("leave {nodes} alone"),
        other => format!("{other} {nodes}"),
    };
    // Some say what is being done, not why.
    let is_doing = ["asking ", "creating ", "next in line"].iter().any(|doing| because.starts_with(doing));
    if is_doing { format!("{what}, {because}") } else { format!("{what}, because {because}") }
}

/// In the order of their numbers.
pub fn names(nodes: &[String]) -> String {
    let mut nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    nodes.sort_by_key(|node| (node.len(), *node));
    match nodes.len() {
        0..=NAMED_MAX => nodes.join(", "),
        many => format!("{} and {} more", nodes[..NAMED_MAX - 1].join(", "), many + 1 - NAMED_MAX),
    }
}
