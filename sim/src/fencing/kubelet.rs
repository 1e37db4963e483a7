//! What does a kubelet start, and what does it end?
//!
//! It does what it last read, for as long as its machine runs, whether it reaches the API or not. In a new boot it reads its Node and its
//! pods, shows its boot id on the Node within s of that, or starts none of them (A5).

use std::collections::BTreeSet;

use resus_core::facts::Name;
use resus_core::fencing::pill::Hold;

use super::scenario::Cue;
use super::site::{Event, Site};
use crate::clock::{Millis, SECOND};

/// A5, with what the fastest clock of a controller is too fast by.
const SHOWS_WITHIN: Millis = 14_800;
/// So often it asks for its pods; in reality it watches them.
const SYNCS_EACH: Millis = 5 * SECOND;
/// So often it says that it lives.
const BEATS_EACH: Millis = 10 * SECOND;

#[derive(Default)]
pub struct Kubelet {
    showing: Showing,
    beat_at: Option<Millis>,
    /// Pods that are to run, as far as it knows.
    wanted: BTreeSet<Name>,
    ending: BTreeSet<Name>,
    /// The process is dead; what it has started runs on.
    pub dead_until: Millis,
}

/// In this boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Showing {
    #[default]
    Unread,
    /// It has read its pods, and is about to show itself.
    Read,
    Shown,
}

/// What a kubelet of a new boot has read, until it has shown itself.
#[derive(Clone, Debug)]
pub struct Reading {
    pods: Vec<Name>,
    /// They are being started before it has shown itself, so it will.
    eager: bool,
}

/// What a kubelet does next.
pub enum Turn {
    Sync,
    Show(Reading),
    Start(Name),
    End(Name),
}

impl Kubelet {
    /// A5 leaves no room for a pause between reading and showing.
    pub fn is_about_to_show(&self) -> bool {
        self.showing == Showing::Read
    }
}

impl Site {
    pub fn kubelet_turns(&mut self, m: usize, boot: u64, turn: Turn) {
        let machine = &self.machines[m];
        if machine.boot != boot || !machine.is_up() {
            return;
        }
        if machine.paused_until > self.agenda.now() {
            self.agenda.enter(machine.paused_until, Event::Kubelet(m, boot, turn));
            return;
        }
        match turn {
            Turn::Sync => self.sync_kubelet(m),
            Turn::Show(reading) => self.show_kubelet(m, &reading),
            Turn::Start(uid) => self.start_pod(m, &uid),
            Turn::End(uid) => self.end_pod(m, &uid),
        }
    }

    fn sync_kubelet(&mut self, m: usize) {
        let now = self.agenda.now();
        let boot = self.machines[m].boot;
        let machine = &self.machines[m];
        let reaches = machine.cut_until <= now && !self.net.is_down(now) && self.net.api_refuses_until <= now;
        let hears = reaches && machine.mute_until <= now;
        let lives = machine.kubelet.dead_until <= now;
        let showing = machine.kubelet.showing;
        let jitter = self.luck.cluster.within(-500..=500);
        self.agenda.after(SYNCS_EACH + jitter, Event::Kubelet(m, boot, Turn::Sync));
        if !lives {
            return;
        }
        match (showing, hears) {
            (Showing::Unread, true) => self.read_pods_first(m),
            (Showing::Shown, _) => {
                if reaches {
                    self.beat(m);
                }
                if hears {
                    self.follow_pods(m);
                }
            }
            (Showing::Unread, false) | (Showing::Read, _) => {}
        }
    }

    /// In a new boot: read, show, start. Or read, start, show.
    fn read_pods_first(&mut self, m: usize) {
        let (name, boot) = (self.machines[m].name.clone(), self.machines[m].boot);
        let pods = self.startable(&name);
        let eager = self.luck.cluster.chance(self.scenario.habits.kubelet_eager);
        let is_first = boot == 1;
        let soonest = if self.luck.cluster.chance(40) { SHOWS_WITHIN } else { 0 };
        let shows_in = if is_first { 0 } else { self.luck.cluster.within(soonest..=SHOWS_WITHIN) };
        self.machines[m].kubelet.showing = Showing::Read;
        if eager {
            self.want(m, &pods, shows_in);
        }
        if !is_first {
            self.tell(format!("{name}: its kubelet has read {}", pods.join(" ")));
            self.echo(Cue::Booted, m);
        }
        self.agenda.after(shows_in, Event::Kubelet(m, boot, Turn::Show(Reading { pods, eager })));
    }

    fn show_kubelet(&mut self, m: usize, reading: &Reading) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        let (name, boot_id) = (machine.name.clone(), machine.boot_id());
        // A5: what is started shows itself. So this one gets through, whatever is cut.
        let reaches = reading.eager || (machine.cut_until <= now && !self.net.is_down(now) && self.net.api_refuses_until <= now);
        if !reaches || machine.kubelet.dead_until > now && !reading.eager {
            machine.kubelet.showing = Showing::Unread;
            self.trace.count("kubelet could not show itself");
            return;
        }
        machine.kubelet.showing = Showing::Shown;
        self.store.show_node(&name, &boot_id, now);
        self.tell(format!("{name}: its kubelet shows {boot_id}"));
        self.beat(m);
        if !reading.eager {
            self.want(m, &reading.pods, SHOWS_WITHIN);
        }
    }

    fn want(&mut self, m: usize, pods: &[Name], within: Millis) {
        let boot = self.machines[m].boot;
        if !pods.is_empty() && boot > 1 {
            self.trace.count("pods started in a new boot");
        }
        for uid in pods {
            self.machines[m].kubelet.wanted.insert(uid.clone());
            let wait = self.luck.cluster.within(100..=within.max(SECOND));
            self.agenda.after(wait, Event::Kubelet(m, boot, Turn::Start(uid.clone())));
        }
    }

    fn beat(&mut self, m: usize) {
        let now = self.agenda.now();
        let machine = &mut self.machines[m];
        if machine.kubelet.beat_at.is_some_and(|at| now - at < BEATS_EACH - SECOND) {
            return;
        }
        machine.kubelet.beat_at = Some(now);
        let (name, boot_id) = (machine.name.clone(), machine.boot_id());
        if !self.store.nodes.contains_key(&name) {
            self.trace.count("node registered again");
            self.store.show_node(&name, &boot_id, now);
        }
        let version = self.store.next_version();
        self.store.beats.insert(name.clone(), version);
        let next = self.store.next_version();
        if let Some(node) = self.store.nodes.get_mut(&name) {
            node.beaten_at = now;
            if !node.ready {
                (node.ready, node.ready_since, node.shown.version) = (true, now, next);
            }
        }
    }

    /// Not marked, and not kept away by the hold.
    fn startable(&self, node: &Name) -> Vec<Name> {
        let is_held = self.store.nodes.get(node).is_some_and(|node| node.shown.hold != Hold::None || node.out_of_service);
        let pods = self.store.pods_on(node).filter(|pod| !pod.shown.marked && (!is_held || pod.shown.tolerates));
        pods.map(|pod| pod.shown.uid.clone()).collect()
    }

    fn follow_pods(&mut self, m: usize) {
        let (name, boot) = (self.machines[m].name.clone(), self.machines[m].boot);
        let startable = self.startable(&name);
        let machine = &mut self.machines[m];
        let is_there = |uid: &Name| self.store.pods.get(uid).is_some_and(|pod| pod.node.as_ref() == Some(&name));
        let is_marked = |uid: &Name| self.store.pods.get(uid).is_some_and(|pod| pod.shown.marked);
        machine.kubelet.wanted.retain(|uid| is_there(uid) && !is_marked(uid));
        let ends: Vec<Name> = machine.running.keys().filter(|uid| !is_there(uid) || is_marked(uid)).cloned().collect();
        let news: Vec<Name> = startable
            .into_iter()
            .filter(|uid| !machine.running.contains_key(uid) && !machine.kubelet.wanted.contains(uid))
            .collect();
        let over: Vec<Name> = self
            .store
            .pods_on(&name)
            .filter(|pod| pod.shown.marked && !machine.running.contains_key(&pod.shown.uid))
            .map(|pod| pod.shown.uid.clone())
            .collect();
        for uid in ends {
            if self.machines[m].kubelet.ending.insert(uid.clone()) {
                let wait = self.luck.cluster.within(100..=8 * SECOND);
                self.agenda.after(wait, Event::Kubelet(m, boot, Turn::End(uid)));
            }
        }
        for uid in over {
            self.store.pods.remove(&uid);
            self.trace.count("pod ended by its kubelet");
        }
        for uid in news {
            self.machines[m].kubelet.wanted.insert(uid.clone());
            // Images are pulled, volumes mounted.
            let longest = if self.luck.cluster.chance(5) && !self.healed { 120 * SECOND } else { 5 * SECOND };
            let wait = self.luck.cluster.within(100..=longest);
            self.agenda.after(wait, Event::Kubelet(m, boot, Turn::Start(uid)));
        }
    }

    fn start_pod(&mut self, m: usize, uid: &Name) {
        let machine = &mut self.machines[m];
        if !machine.kubelet.wanted.contains(uid) || machine.running.contains_key(uid) {
            return;
        }
        self.judge_start(m, uid);
        if let Some(workload) = self.oracle.workload_of(uid) {
            self.machines[m].running.insert(uid.clone(), workload);
        }
    }

    fn end_pod(&mut self, m: usize, uid: &Name) {
        let machine = &mut self.machines[m];
        machine.kubelet.ending.remove(uid);
        machine.kubelet.wanted.remove(uid);
        machine.running.remove(uid);
    }
}
