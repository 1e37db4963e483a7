//! Who breaks when, and what is said about it?

use std::collections::VecDeque;

use resus_sim::clock::{MINUTE, Millis, SECOND};
use resus_sim::scenario::{Act, Failure, MachineSpec, Scenario, TEMPLATE, WORKER, template};
use serde_json::json;

pub const CHECK: &str = "workers";
/// As a check has it that says nothing about it.
const READY_AFTER: Millis = 5 * MINUTE;
/// A broken disk does not mend itself.
const DISK_AFTER: Millis = MINUTE;
/// Of the workers so many fail in each act; of twelve it is one.
const SHARE: usize = 12;
/// In the order of the random draws that this makes (heartbeats, latencies) the story is the same each time.
const SEED: u64 = 7;

/// The whole play.
pub struct Script {
    pub scenario: Scenario,
    /// One for each act of the scenario, in the order of time.
    pub cues: VecDeque<Cue>,
    pub zones: Vec<Zone>,
    /// More than so many not healthy, and nothing is started.
    pub allowed: usize,
    pub max_unhealthy: &'static str,
    /// Those that recover by themselves, and those that must be repaired, with what is wrong with them.
    pub left_alone: Vec<String>,
    pub repaired: Vec<(String, &'static str)>,
}

pub struct Zone {
    pub name: String,
    pub nodes: Vec<String>,
}

/// What is said when something is done to the cluster.
pub struct Cue {
    /// Begins a chapter.
    pub headline: Option<String>,
    pub text: &'static str,
    /// Whom it happens to.
    pub nodes: Vec<String>,
    pub breaks: bool,
}

impl Script {
    pub fn new(workers: usize) -> Script {
        let zones = zones(workers);
        // 30% of three would be none at all.
        let (max_unhealthy, percent) = if workers > 3 { ("30%", 30) } else { ("34%", 34) };
        let mut writer = Writer {
            script: Script {
                scenario: Scenario::calm(SEED, workers),
                cues: VecDeque::new(),
                allowed: workers * percent / 100,
                max_unhealthy,
                left_alone: Vec::new(),
                repaired: Vec::new(),
                zones,
            },
            at: 0,
        };
        writer.settle();
        writer.single_failures();
        writer.flapping();
        writer.zone_fails();
        writer.api_away();
        let Writer { mut script, at } = writer;
        script.scenario.ends_at = at;
        script
    }

    pub fn workers(&self) -> usize {
        self.scenario.machines.len()
    }

    /// The check of all workers, with these times.
    pub fn check(&self, ready_after: Millis, disk_after: Millis) -> Act {
        let rule = |kind: &str, status: &str, after: Millis| json!({"type": kind, "status": status, "duration": format!("{}s", after / SECOND)});
        let spec = json!({
            "selector": {"matchExpressions": [{"key": WORKER, "operator": "Exists"}]},
            "unhealthyConditions": [
                rule("Ready", "Unknown", ready_after), rule("Ready", "False", ready_after), rule("DiskBroken", "True", disk_after),
            ],
            "maxUnhealthy": self.max_unhealthy,
            "remediationTemplate": template(TEMPLATE),
        });
        Act::Check { name: CHECK.to_owned(), spec }
    }
}

/// The last zone is the largest, and larger than what is allowed to be unhealthy.
fn zones(workers: usize) -> Vec<Zone> {
    let count = if workers < 6 { 2 } else { 3 };
    let mut zones: Vec<Zone> =
        ["a", "b", "c"].iter().take(count).map(|name| Zone { name: (*name).to_owned(), nodes: Vec::new() }).collect();
    for number in 0..workers {
        zones[(number * count + count - 1) / workers].nodes.push(format!("worker-{}", number + 1));
    }
    zones
}

struct Writer {
    script: Script,
    at: Millis,
}

impl Writer {
    fn settle(&mut self) {
        for zone in &self.script.zones {
            for node in &zone.nodes {
                let machine = self.script.scenario.machines.iter_mut().find(|machine| machine.name == *node);
                let machine: &mut MachineSpec = machine.expect("zones are made of these machines");
                machine.zone.clone_from(&zone.name);
                // As a kubelet does: a lease each 10 s, and a status that has not changed each 5 minutes.
                machine.posts_each = 5 * MINUTE;
                machine.boots_for = 30 * SECOND;
            }
        }
        let check = self.script.check(READY_AFTER, DISK_AFTER);
        self.cue(None, "the check is written", check, Vec::new());
        self.at = 30 * SECOND;
    }

    fn single_failures(&mut self) {
        let each = (self.script.workers() / SHARE).clamp(1, self.script.allowed);
        let (one, s) = match each {
            1 => ("A worker".to_owned(), "s"),
            many => (format!("{many} workers"), ""),
        };
        let chapters = [
            (Failure::Crash, format!("{one} lose{s} power."), "the power is gone", 8 * MINUTE),
            (
                Failure::KubeletStops,
                format!("{one} lose{s} the kubelet: pods may still run there, but nobody can tell."),
                "the kubelet is dead",
                8 * MINUTE,
            ),
            (
                Failure::DiskBroken,
                format!("{one} report{s} a bad disk, while the kubelet says that all is well."),
                "the disk is bad",
                4 * MINUTE,
            ),
        ];
        for (chapter, (failure, headline, text, lasts_for)) in chapters.into_iter().enumerate() {
            let victims = self.victims(chapter, each);
            self.break_all(&headline, &victims, failure, text);
            self.at += lasts_for;
        }
    }

    fn break_all(&mut self, headline: &str, victims: &[usize], failure: Failure, text: &'static str) {
        for (n, victim) in victims.iter().enumerate() {
            let name = self.name(*victim);
            let headline = (n == 0).then(|| headline.to_owned());
            self.cue(headline, text, Act::Break(*victim, failure), vec![name.clone()]);
            self.script.repaired.push((name, text));
        }
    }

    fn flapping(&mut self) {
        let victim = self.victims(3, 1)[0];
        let name = self.name(victim);
        let headline = "A worker flaps: not Ready, Ready, not Ready. It recovers by itself, in time.".to_owned();
        self.cue(Some(headline), "flapping begins", Act::Break(victim, Failure::Flaps), vec![name.clone()]);
        self.at += 50 * SECOND;
        self.cue(None, "flapping ends", Act::Mend(victim), vec![name.clone()]);
        self.script.left_alone.push(name);
        self.at += 70 * SECOND;
    }

    fn zone_fails(&mut self) {
        let zone = self.script.zones.last().expect("there are at least two");
        let (zone, nodes) = (zone.name.clone(), zone.nodes.clone());
        let headline = format!("All of zone {zone} loses power: {} of {} workers at once.", nodes.len(), self.script.workers());
        self.cue(Some(headline), "the power is gone", Act::BreakZone(zone.clone(), Failure::Crash), nodes.clone());
        self.at += 9 * MINUTE;
        let (lost, back) = nodes.split_first().expect("the last zone is the largest");
        let mut headline = Some(format!("Power returns to zone {zone}, but {lost} does not come up."));
        for node in back {
            let act = Act::Mend(self.number(node));
            self.cue(headline.take(), "the power is back", act, vec![node.clone()]);
        }
        self.script.left_alone.extend(back.iter().cloned());
        self.script.repaired.push((lost.clone(), "the power is gone, with its zone"));
        self.at += 4 * MINUTE;
    }

    fn api_away(&mut self) {
        let victim = self.victims(4, 1);
        let headline = "A worker hangs, and when its time is over the API server is away.";
        self.break_all(headline, &victim, Failure::Hangs, "the machine hangs");
        // The worker's time is over while nobody can be asked.
        self.at += READY_AFTER + 34 * SECOND;
        self.cue(None, "the API server does not answer any more", Act::Api { up: false }, Vec::new());
        self.at += 25 * SECOND;
        self.cue(None, "the API server answers again", Act::Api { up: true }, Vec::new());
        self.at += 4 * MINUTE;
    }

    /// Of all zones in turn.
    fn victims(&self, chapter: usize, each: usize) -> Vec<usize> {
        let zone = &self.script.zones[chapter % self.script.zones.len()];
        let nodes = zone.nodes.iter().cycle().skip(chapter + 1).take(each.min(zone.nodes.len()));
        nodes.map(|node| self.number(node)).collect()
    }

    fn name(&self, number: usize) -> String {
        self.script.scenario.machines[number].name.clone()
    }

    fn number(&self, node: &str) -> usize {
        let found = self.script.scenario.machines.iter().position(|machine| machine.name == node);
        found.expect("zones are made of these machines")
    }

    fn cue(&mut self, headline: Option<String>, text: &'static str, act: Act, nodes: Vec<String>) {
        let breaks = matches!(act, Act::Break(..) | Act::BreakZone(..));
        self.script.scenario.acts.push((self.at, act));
        self.script.cues.push_back(Cue { headline, text, nodes, breaks });
    }
}
