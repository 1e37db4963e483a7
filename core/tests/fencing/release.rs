//! When is a node released, and what keeps it from that?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use resus_core::facts::{Name, Version};
use resus_core::fencing::lease::{Claim, Order, Seen};
use resus_core::fencing::pill::{Case, Done, Facts, Hold, Looks, Node, Noted, Pod, Read, Step, Strategy, Watch, Why, Word};
use resus_core::fencing::roll::{Entry, Roll};
use resus_core::time::{Mono, Wall};

const BOUND: u64 = 85;
const LOOK_AFTER: i64 = 15;

/// A node, what is known of it, and one leader. Time is in seconds.
struct Yard {
    time: i64,
    version: u64,
    case: Case,
    watch: Watch,
    facts: Facts,
    node: Option<Node>,
    lease: Option<Seen>,
    roll: Roll,
    acks: BTreeMap<Name, u64>,
    kubelet: Option<Version>,
    pods: Vec<Pod>,
    /// What was done, and when.
    done: Vec<(i64, String)>,
}

impl Yard {
    /// Of three electors, one of them the node itself; one pod runs on it.
    fn new(strategy: Strategy) -> Yard {
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

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }

    /// Until there is something to wait for, which is returned.
    fn settle(&mut self) -> Step {
        for _ in 0..50 {
            self.watch.see(&self.case, &self.facts, self.now());
            let step = self.watch.next(&self.case, &self.facts, self.now());
            if matches!(step, Step::Wait { .. } | Step::Done(_)) {
                return step;
            }
            self.carry_out(step);
        }
        panic!("it never rests: {:?}", self.done);
    }

    /// Everything is read anew each second.
    fn wait(&mut self, seconds: i64) -> Step {
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

    fn carry_out(&mut self, step: Step) {
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

    fn deeds(&self) -> Vec<&str> {
        self.done.iter().map(|(_, what)| what.as_str()).collect()
    }

    fn when(&self, what: &str) -> Option<i64> {
        self.done.iter().find(|(_, own)| own == what).map(|(at, _)| *at)
    }

    fn is_released(&self) -> bool {
        self.when("commit").is_some()
    }
}

fn pod(uid: &str, marked: bool, tolerates: bool, local: bool) -> Pod {
    Pod { uid: uid.into(), marked, tolerates, local }
}

#[test]
fn one_step_follows_the_other_and_nothing_is_released_before_its_time() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(200);
    let deeds = ["cordon", "note", "order", "enter", "hold", "commit", "delete pods db", "note released", "unhold"];
    assert_eq!(yard.deeds(), deeds);
    let at = |what: &str| yard.when(what).expect(what);
    assert_eq!(
        at("hold"),
        at("order") + BOUND as i64,
        "the bound counts from when the order was known, and was known to be known"
    );
    assert_eq!(at("commit"), at("hold") + LOOK_AFTER);
    assert_eq!(yard.settle(), Step::Done(Done::Released));
    yard.case.ending = true;
    yard.wait(2);
    assert_eq!(yard.deeds()[deeds.len()..], ["uncordon"]);
    assert_eq!(yard.settle(), Step::Done(Done::Cleared));
}

#[test]
fn with_node_deletion_the_node_goes_last() {
    let mut yard = Yard::new(Strategy::NodeDeletion);
    yard.wait(200);
    let deeds = yard.deeds();
    assert_eq!(deeds[deeds.len() - 3..], ["delete pods db", "note released", "delete node"]);
    assert_eq!(yard.settle(), Step::Done(Done::Released));
}

#[test]
fn out_of_service_leaves_the_pods_to_kubernetes_and_stays_until_they_are_gone() {
    let mut yard = Yard::new(Strategy::OutOfServiceTaint);
    yard.wait(300);
    assert_eq!(yard.settle(), Step::Wait { why: Why::PodsLeaving, until: None });
    assert_eq!(yard.deeds().last(), Some(&"commit"));
    // Not even if the remediation goes: the node may be up again, and Kubernetes is deleting what it would start.
    yard.case.ending = true;
    yard.wait(60);
    assert_eq!(yard.deeds().last(), Some(&"commit"));
    yard.pods.clear();
    yard.wait(2);
    let deeds = yard.deeds();
    assert_eq!(deeds[deeds.len() - 2..], ["unhold", "uncordon"]);
}

#[test]
fn half_of_the_electors_have_to_know() {
    for (know, released) in [(vec![], false), (vec!["y"], false), (vec!["y", "z"], true), (vec!["x", "y"], false)] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.acks = know.iter().map(|name| (Name::from(*name), 8)).collect();
        let step = yard.wait(3600);
        assert_eq!(yard.is_released(), released, "{know:?}");
        if !released {
            let of_others = know.iter().filter(|name| **name != "x").count();
            assert_eq!(step, Step::Wait { why: Why::Acknowledging { know: of_others, needed: 2 }, until: None });
        }
    }
    // An older number does not have the order.
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.acks = ["y", "z"].map(|name| (name.into(), 7)).into();
    yard.wait(3600);
    assert!(!yard.is_released());
    // And the time counts from when they know.
    yard.acks = ["y", "z"].map(|name| (name.into(), 9)).into();
    let known_at = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(known_at + BOUND as i64));
}

#[test]
fn a_list_that_is_lost_fences_nobody() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.lease.as_mut().expect("a Lease").claim.roll = 3;
    assert_eq!(yard.wait(3600), Step::Wait { why: Why::ListLost, until: None });
    yard.case.word = Word::Confirmed;
    yard.wait(60);
    assert!(yard.is_released(), "but a person may");
}

#[test]
fn who_promises_nothing_is_not_released_by_time() {
    let change: [(&str, fn(&mut Yard), Why); 4] = [
        ("withdrawn", |yard| yard.lease.as_mut().expect("a Lease").claim.bound = None, Why::NoPromise),
        ("no Lease", |yard| yard.lease = None, Why::NoAgent),
        ("no agent in this boot", |yard| yard.lease.as_mut().expect("a Lease").claim.boot = "b0".into(), Why::NoAgent),
        (
            "not assured, and that is demanded",
            |yard| {
                let claim = &mut yard.lease.as_mut().expect("a Lease").claim;
                (claim.bound, claim.assured, yard.case.require_assured) = (None, false, true);
            },
            Why::NotAssured,
        ),
    ];
    for (what, change, why) in change {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        change(&mut yard);
        assert_eq!(yard.wait(3600), Step::Wait { why, until: None }, "{what}");
        assert!(!yard.is_released(), "{what}");
        yard.case.word = Word::KeptOff;
        yard.wait(60);
        assert!(yard.is_released(), "{what}: its BMC says that it is off");
    }
}

#[test]
fn a_node_without_a_watchdog_is_waited_for_as_long_as_configured() {
    for (safe_time, expected) in [(None, 180), (Some(300), 300)] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        let claim = &mut yard.lease.as_mut().expect("a Lease").claim;
        (claim.bound, claim.assured) = (None, false);
        yard.case.safe_time = safe_time.map(Duration::from_secs);
        yard.wait(400);
        assert_eq!(yard.when("hold").zip(yard.when("order")).map(|(hold, order)| hold - order), Some(expected));
    }
}

#[test]
fn a_configured_time_raises_the_bound_and_never_lowers_it() {
    for (safe_time, expected) in [(10, BOUND as i64), (120, 120)] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.case.safe_time = Some(Duration::from_secs(safe_time));
        yard.wait(300);
        assert_eq!(yard.when("hold").zip(yard.when("order")).map(|(hold, order)| hold - order), Some(expected));
    }
}

#[test]
fn any_sign_of_life_means_that_it_is_back() {
    let signs: [(&str, fn(&mut Yard)); 2] = [
        ("its Node shows another boot", |yard| {
            let version = yard.next_version();
            let node = yard.node.as_mut().expect("a Node");
            (node.boot, node.version) = ("b2".into(), version);
        }),
        ("its Lease shows another boot", |yard| yard.lease.as_mut().expect("a Lease").claim.boot = "b2".into()),
    ];
    for (what, sign) in signs {
        for after in [1, 50, 84, 86, 95] {
            let mut yard = Yard::new(Strategy::ResourceDeletion);
            yard.wait(after);
            sign(&mut yard);
            yard.wait(3600);
            assert!(!yard.is_released(), "{what} after {after} s");
        }
    }
    // The kubelet says something between the hold and the look.
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(90);
    assert!(yard.when("hold").is_some());
    yard.kubelet = Some(Version("99".into()));
    assert_eq!(yard.wait(3600), Step::Done(Done::Back));
    assert!(!yard.is_released());
}

/// A person may be wrong about a node whose agent says something in another boot.
#[test]
fn a_lease_that_moves_after_the_hold_is_a_sign_of_life() {
    for word in [Word::Confirmed, Word::KeptOff] {
        let mut yard = Yard::new(Strategy::ResourceDeletion);
        yard.lease.as_mut().expect("a Lease").claim.boot = "b0".into();
        yard.case.word = word;
        yard.wait(5);
        assert!(yard.when("hold").is_some());
        let version = yard.next_version();
        yard.lease.as_mut().expect("a Lease").version = version;
        assert_eq!(yard.wait(3600), Step::Done(Done::Back), "{word:?}");
        assert!(!yard.is_released(), "{word:?}");
    }
}

#[test]
fn pods_that_a_kubelet_would_start_keep_the_node_from_being_released() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.pods = vec![pod("db", false, false, false), pod("log", false, true, true)];
    assert_eq!(yard.wait(300), Step::Wait { why: Why::NotMarked { pods: vec!["db".into()] }, until: None });
    yard.pods[0].marked = true;
    yard.pods.push(pod("stubborn", false, true, false));
    assert_eq!(yard.wait(300), Step::Wait { why: Why::Tolerate { pods: vec!["stubborn".into()] }, until: None });
    yard.case.word = Word::Confirmed;
    yard.wait(60);
    assert!(!yard.is_released(), "nor does a person's word release what a kubelet would start");
    yard.case.word = Word::KeptOff;
    yard.wait(60);
    assert!(yard.is_released());
    assert!(yard.done.iter().any(|(_, what)| what == "delete pods db stubborn"), "not those of the node itself: {:?}", yard.done);
}

#[test]
fn another_leader_waits_anew() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(80);
    yard.watch = Watch::default();
    yard.facts = Facts::default();
    let began = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(began + BOUND as i64));
    assert_eq!(yard.deeds().iter().filter(|what| **what == "order").count(), 1, "what was ordered is not ordered again");
}

#[test]
fn a_lease_that_was_made_anew_has_to_be_ordered_anew() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    yard.wait(80);
    let version = yard.next_version();
    let lease = yard.lease.as_mut().expect("a Lease");
    (lease.uid, lease.order, lease.version) = ("another".into(), None, version);
    let began = yard.time + 1;
    yard.wait(200);
    assert_eq!(yard.when("hold"), Some(began + BOUND as i64));
}

#[test]
fn somebody_elses_order_for_the_same_boot_is_not_written_over() {
    let mut yard = Yard::new(Strategy::ResourceDeletion);
    let order = Order { boot: "b1".into(), remediation: "another".into() };
    yard.lease.as_mut().expect("a Lease").order = Some(order.clone());
    yard.wait(200);
    assert_eq!(yard.lease.as_ref().and_then(|lease| lease.order.clone()), Some(order), "an order is final, whoever gave it");
    assert!(yard.is_released(), "and its boot dies of it all the same");
}

#[test]
fn what_ends_before_anything_was_released_is_undone() {
    for after in [1, 50, 90] {
        let mut yard = Yard::new(Strategy::NodeDeletion);
        yard.wait(after);
        yard.case.ending = true;
        yard.wait(3600);
        let node = yard.node.as_ref().expect("it stays");
        assert_eq!((node.cordoned, node.hold), (false, Hold::None), "after {after} s");
        assert!(!yard.is_released());
        assert_eq!(yard.settle(), Step::Done(Done::Cleared));
    }
}
