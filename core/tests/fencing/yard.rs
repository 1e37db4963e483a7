//! One node, what the API shows of it, and a leader that fences it. Time is in seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::lease::{Claim, Seen};
use resus_core::fencing::pill::{Case, Facts, Hold, Looks, Node, Noted, Pod, Read, Step, Strategy, Watch, Word};
use resus_core::fencing::roll::{Entry, Roll};
use resus_core::time::{Mono, Wall};

pub const BOUND: u64 = 85;

pub struct Yard {
    pub time: i64,
    version: u64,
    pub case: Case,
    pub watch: Watch,
    pub facts: Facts,
    pub node: Option<Node>,
    pub lease: Option<Seen>,
    pub roll: Roll,
    pub acks: BTreeMap<Name, u64>,
    pub kubelet: Option<Version>,
    pub pods: Vec<Pod>,
    /// What was done, and when.
    pub done: Vec<(i64, String)>,
}

impl Yard {
    /// Of three electors, one of them the node itself; one pod runs on it.
    pub fn new(strategy: Strategy) -> Yard {
        let electors: BTreeSet<Name> = ["x", "y", "z"].map(Name::from).into();
        let version = |n: u64| Version(n.to_string().into());
        let node = Node { uid: "node".into(), version: version(1), boot: "b1".into(), cordoned: false, hold: Hold::None };
        let claim = Claim { boot: "b1".into(), bound: Some(Duration::from_secs(BOUND)), assured: true, roll: 7 };
        Yard {
            time: 1000,
            version: 10,
            case: Case {
                node: "x".into(),
                remediation: "r".into(),
                strategy,
                ending: false,
                noted: None,
                safe_time: None,
                require_assured: false,
                word: Word::None,
            },
            watch: Watch::default(),
            facts: Facts::default(),
            node: Some(node),
            lease: Some(Seen { uid: "lease".into(), version: version(2), claim, order: None }),
            roll: Roll { number: 7, electors, ..Roll::default() },
            acks: ["y", "z"].map(|name| (name.into(), 8)).into(),
            kubelet: Some(version(3)),
            pods: vec![pod("db", true, false, false)],
            done: Vec::new(),
        }
    }

    fn now(&self) -> Mono {
        Mono(self.time * 1000)
    }

    fn read<T>(&self, found: T) -> Option<Read<T>> {
        Some(Read { asked_at: self.now(), found })
    }

    pub fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }

    /// Until there is something to wait for, which is returned.
    pub fn settle(&mut self) -> Step {
        for _ in 0..50 {
            let step = self.decide();
            if matches!(step, Step::Wait { .. } | Step::Done(_)) {
                return step;
            }
            self.carry_out(step);
        }
        panic!("it never rests: {:?}", self.done);
    }

    /// Until this is to be done; it is not done yet.
    pub fn until(&mut self, is_it: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..1000 {
            let step = self.decide();
            match step {
                step if is_it(&step) => return step,
                Step::Wait { .. } | Step::Done(_) => {
                    self.time += 1;
                    self.look_at_all();
                }
                step => self.carry_out(step),
            }
        }
        panic!("it never comes to that: {:?}", self.done);
    }

    pub fn decide(&mut self) -> Step {
        self.watch.see(&self.case, &self.facts, self.now());
        self.watch.next(&self.case, &self.facts, self.now())
    }

    /// Everything is read anew each second.
    pub fn wait(&mut self, seconds: i64) -> Step {
        for _ in 0..seconds {
            self.time += 1;
            self.look_at_all();
            self.settle();
        }
        self.settle()
    }

    fn look_at_all(&mut self) {
        self.facts = Facts {
            node: self.read(self.node.clone()),
            lease: self.read(self.lease.clone()),
            roll: self.read(self.roll.clone()),
            acks: self.acks.clone(),
            kubelet: self.read(self.kubelet.clone()),
            pods: self.read(self.pods.clone()),
        };
    }

    pub fn carry_out(&mut self, step: Step) {
        let told = |what: &str| what.to_owned();
        let what = match step {
            Step::Look(looks) => {
                match looks {
                    Looks::Node => self.facts.node = self.read(self.node.clone()),
                    Looks::Lease => self.facts.lease = self.read(self.lease.clone()),
                    Looks::Roll => {
                        self.facts.roll = self.read(self.roll.clone());
                        self.facts.acks = self.acks.clone();
                    }
                    Looks::Kubelet => self.facts.kubelet = self.read(self.kubelet.clone()),
                    Looks::Pods => self.facts.pods = self.read(self.pods.clone()),
                }
                return;
            }
            Step::Cordon(version) => self.write(&version, "cordon", |node| node.cordoned = true),
            Step::Hold(version) => self.write(&version, "hold", |node| node.hold = Hold::Held),
            Step::Commit(version, _) => self.write(&version, "commit", |node| node.hold = Hold::Released),
            Step::Unhold(version) => self.write(&version, "unhold", |node| node.hold = Hold::None),
            Step::Uncordon(version) => self.write(&version, "uncordon", |node| node.cordoned = false),
            Step::Note { boot } => {
                self.case.noted = Some(Noted { boot, at: Wall(0), released: false });
                told("note")
            }
            Step::NoteReleased => {
                if let Some(noted) = &mut self.case.noted {
                    noted.released = true;
                }
                told("note released")
            }
            Step::Order { lease, order } => {
                let version = self.next_version();
                let known = self.lease.as_mut().expect("a Lease");
                assert_eq!(known.version, lease, "it names the version that it was decided on");
                (known.order, known.version) = (Some(order), version);
                self.facts.lease = self.read(self.lease.clone());
                told("order")
            }
            Step::Enter { boot } => {
                self.roll.earlier.insert(self.roll.number, self.roll.electors.clone());
                self.roll.number += 1;
                let since = self.roll.number;
                self.roll.orders.insert(Entry { node: "x".into(), boot, since });
                self.facts.roll = self.read(self.roll.clone());
                self.facts.acks = self.acks.clone();
                told("enter")
            }
            Step::DeletePods(uids) => {
                self.pods.retain(|pod| !uids.contains(&pod.uid));
                self.facts.pods = self.read(self.pods.clone());
                format!("delete pods {}", uids.join(" "))
            }
            Step::DeleteNode { uid, version } => {
                let node = self.node.take().expect("a Node");
                assert_eq!((node.uid, node.version), (uid, version));
                self.facts.node = self.read(None);
                told("delete node")
            }
            Step::Wait { .. } | Step::Done(_) => return,
        };
        self.done.push((self.time, what));
    }

    fn write(&mut self, version: &Version, what: &str, change: impl FnOnce(&mut Node)) -> String {
        let next = self.next_version();
        let node = self.node.as_mut().expect("a Node");
        assert_eq!(node.version, *version, "it names the version that it was decided on");
        change(node);
        node.version = next;
        self.facts.node = self.read(self.node.clone());
        what.to_owned()
    }

    pub fn deeds(&self) -> Vec<&str> {
        self.done.iter().map(|(_, what)| what.as_str()).collect()
    }

    pub fn when(&self, what: &str) -> Option<i64> {
        self.done.iter().find(|(_, own)| own == what).map(|(at, _)| *at)
    }

    pub fn is_released(&self) -> bool {
        self.when("commit").is_some()
    }

    /// How long after the order the hold came.
    pub fn waited(&self) -> Option<i64> {
        self.when("hold").zip(self.when("order")).map(|(hold, order)| hold - order)
    }

    /// Would the server refuse it, because what it rests on has moved?
    pub fn refuses(&self, step: &Step) -> bool {
        let node = self.node.as_ref().map(|node| &node.version);
        match step {
            Step::Cordon(version) | Step::Hold(version) | Step::Unhold(version) | Step::Uncordon(version) => {
                node != Some(version)
            }
            Step::Commit(version, _) | Step::DeleteNode { version, .. } => node != Some(version),
            Step::Order { lease, .. } => self.lease.as_ref().map(|lease| &lease.version) != Some(lease),
            other => panic!("it is not conditional: {other:?}"),
        }
    }

    /// The node is up again, and both its kubelet and its agent say so.
    pub fn reboot(&mut self) {
        let (node, lease, kubelet) = (self.next_version(), self.next_version(), self.next_version());
        let known = self.node.as_mut().expect("a Node");
        (known.boot, known.version) = ("b2".into(), node);
        let known = self.lease.as_mut().expect("a Lease");
        (known.claim.boot, known.version) = ("b2".into(), lease);
        self.kubelet = Some(kubelet);
    }
}

pub fn pod(uid: &str, marked: bool, tolerates: bool, local: bool) -> Pod {
    Pod { uid: uid.into(), marked, tolerates, local }
}
