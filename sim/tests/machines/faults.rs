//! Whatever the network and the controllers do: nothing is done about a machine that is well, and nobody who is ill is
//! forgotten.

use std::collections::BTreeMap;

use resus_core::facts::Claim;
use resus_core::mhc::facts::Dialect;
use resus_sim::clock::{MINUTE, Millis, SECOND};
use resus_sim::scenario::{Act, Flags, NetSpec, ProviderSpec, Scenario};

use crate::check::Check;
use crate::story::{BLUE, Story, WORKERS};

const MACHINES: usize = 8;
const TIMEOUT: Millis = 60 * SECOND;
/// What a controller knew when it sent a request may be as old as this: it was slow, and so was the request.
const BLIND_FOR: Millis = 25 * SECOND;

/// A story with a truth of its own.
struct Trouble {
    story: Story,
    /// Since when each node is not ready; and until when, if it is again.
    ill: BTreeMap<String, (Millis, Option<Millis>)>,
    drawn: u64,
}

impl Trouble {
    fn new(dialect: Dialect, has_template: bool, seed: u64) -> Trouble {
        let net = NetSpec { latency: 200, slow: 5, refused: 5, cut_before: 5, cut_after: 5, late: 5, lag_max: 0 };
        let provider = ProviderSpec { idle: true, ..ProviderSpec::default() };
        let flags = Flags { mhc: Claim::All, ..Flags::default() };
        let scenario = Scenario { provider, flags, net, replicas: 2, ends_at: Millis::MAX, ..Scenario::calm(seed, 0) };
        let mut story = Story::play(dialect, MACHINES, scenario);
        story.add_template();
        story.add_check(WORKERS, &Check { timeout: TIMEOUT / SECOND, has_template, ..Check::default() });
        story.run(30 * SECOND);
        Trouble { story, ill: BTreeMap::new(), drawn: seed }
    }

    /// One of so many.
    fn draw(&mut self, of: usize) -> usize {
        self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.drawn >> 33).unwrap_or(0) % of
    }

    fn something_happens(&mut self) {
        let n = self.draw(MACHINES);
        let (node, now) = (format!("n{n}"), self.story.now());
        match self.draw(10) {
            0..=3 if !self.is_ill(&node) => {
                self.story.breaks(&node);
                self.ill.insert(node, (now, None));
            }
            4..=6 if self.is_ill(&node) => {
                self.story.recovers(&node);
                self.ill.entry(node).and_modify(|ill| ill.1 = Some(now));
            }
            7 => {
                let replica = self.draw(2);
                self.story.simulation.act_now(&Act::Kill { replica });
                self.story.simulation.act_now(&Act::Start { replica });
            }
            8 => self.story.simulation.act_now(&Act::DropWatches { replica: n % 2 }),
            9 => self.story.simulation.act_now(&Act::Freeze { replica: n % 2, lasts_for: 20 * SECOND }),
            _ => {}
        }
    }

    fn is_ill(&self, node: &str) -> bool {
        self.ill.get(node).is_some_and(|(_, until)| until.is_none())
    }

    /// About which machines something is being done.
    fn acted_on(&mut self) -> Vec<String> {
        let machines = self.story.machines();
        let gone = (0..MACHINES).map(|n| format!("m{n}")).filter(|name| !machines.contains(name));
        let mut all: Vec<String> = gone.chain(self.story.asked()).chain(self.story.remediations()).collect();
        all.sort();
        all
    }

    /// Whoever is acted on was ill for long enough, as far as anybody could know.
    fn must_be_justified(&mut self, before: &[String]) -> Vec<String> {
        let (now, acted_on) = (self.story.now(), self.acted_on());
        for machine in acted_on.iter().filter(|machine| !before.contains(machine)) {
            let node = machine.replace('m', "n");
            let justified = self.ill.get(&node).is_some_and(|(since, until)| {
                now - since > TIMEOUT && until.is_none_or(|until| until - since > TIMEOUT && now - until <= BLIND_FOR)
            });
            assert!(justified, "{machine}: {:?} at {now}", self.ill.get(&node));
        }
        acted_on
    }

    /// How often something was begun.
    fn play(mut self) -> usize {
        let (mut before, mut begun) = (Vec::new(), 0);
        for second in 0..20 * 60 {
            if second % 15 == 0 {
                self.something_happens();
            }
            self.story.run(SECOND);
            let acted_on = self.must_be_justified(&before);
            begun += acted_on.iter().filter(|machine| !before.contains(machine)).count();
            before = acted_on;
        }
        self.story.simulation.calm_down();
        self.story.run(3 * MINUTE);
        let acted_on = self.acted_on();
        let machines = self.story.machines();
        for n in 0..MACHINES {
            let (machine, node) = (format!("m{n}"), format!("n{n}"));
            // What is deleted stays so.
            if machines.contains(&machine) {
                assert_eq!(acted_on.contains(&machine), self.is_ill(&node), "{machine}: {:?}", self.ill.get(&node));
            }
        }
        self.story.expect_quiet();
        begun
    }
}

/// Each of these seeds, and there is enough to do in them.
fn play(dialect: Dialect, has_template: bool, seeds: u64, begun_min: usize) {
    let begun: usize = (0..seeds).map(|seed| Trouble::new(dialect, has_template, seed).play()).sum();
    assert!(begun >= begun_min, "only {begun}");
}

#[test]
fn owners_are_asked_about_those_that_are_ill_and_about_no_other() {
    play(Dialect::V1beta2, false, 6, 30);
    play(Dialect::V1beta1, false, 2, 10);
}

#[test]
fn remediations_are_made_for_those_that_are_ill_and_for_no_other() {
    play(Dialect::V1beta2, true, 6, 30);
    play(Dialect::OpenShift, true, 2, 10);
}

#[test]
fn machines_are_deleted_that_are_ill_and_no_other() {
    play(Dialect::OpenShift, false, 6, 20);
}

/// As seen from the controller, a node in a cluster that comes and goes is never gone by that.
#[test]
fn a_cluster_that_comes_and_goes_costs_no_machine() {
    let mut story = Story::with(Dialect::V1beta2, MACHINES, &Check::default());
    for turn in 0..40 {
        match turn % 4 {
            0 => story.simulation.switch_remote(BLUE, false),
            1 => story.simulation.switch_remote(BLUE, true),
            2 => story.simulation.hang_remote(BLUE, true),
            _ => story.simulation.hang_remote(BLUE, false),
        }
        story.run((turn % 7) * 5 * SECOND + SECOND);
        assert_eq!(story.asked(), [""; 0]);
    }
    story.run(30 * SECOND);
    assert_eq!(story.counters(WORKERS), [8, 8, 8]);
    assert_eq!(story.events("MachineMarkedUnhealthy"), [""; 0]);
}
