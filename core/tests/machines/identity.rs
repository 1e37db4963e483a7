//! Is it still the cluster that it was, and does it send more than we take?

use resus_core::effect::Effect;
use resus_core::facts::{Amount, Name, Node, Source, Status, Version};
use resus_core::input::{Answer, Fact, Input};
use resus_core::mhc::facts::{Access, Budget, ClusterKey, Dialect, Repair};
use resus_core::mhc::fleet::{REGION_ETCD_MAX, REGION_NODES_MAX, TOO_MUCH_AGAIN};
use resus_core::mhc::identity::AGAIN_AFTER;
use resus_core::time::Wall;

use crate::facts::{EPOCH, check, node, ready_since};
use crate::model::{CHECK, Fleet, plan};

/// Machines `m0` and so on of the Cluster `blue`, whose nodes are there.
fn remote(machines: usize) -> (Fleet, ClusterKey) {
    let (mut fleet, key) = Fleet::new(Dialect::V1beta2, machines).into_cluster();
    let mut blue = check(Dialect::V1beta2, CHECK, Repair::Owner, Budget::AtMost(Amount::Percent(100)));
    blue.cluster = Some("blue".into());
    fleet.add_check(blue);
    fleet.settle();
    assert_eq!(fleet.status().healthy, Some(u32::try_from(machines).unwrap_or(0)));
    (fleet, key)
}

fn uid(uid: &str) -> Answer {
    Answer::Done(Some(Fact::Identity { uid: uid.into() }))
}

fn forbidden() -> Answer {
    Answer::Refused { why: "no".into(), retry_after: None, forbidden: true }
}

impl Fleet {
    /// What the name of its server leads to has other nodes, and says that it is this.
    fn leads_to(&mut self, key: &ClusterKey, answer: Answer) {
        self.identities.insert(key.clone(), answer);
        let others = (100..103).map(|n| (Name::from(format!("n{n}")), node(n, Wall(EPOCH)))).collect();
        self.nodes.insert(Some(key.clone()), others);
    }

    pub fn breaks_and_lists(&mut self, key: &ClusterKey) {
        self.tell(Input::Broken(Source::RemoteNodes(key.clone())));
        self.list(Source::RemoteNodes(key.clone()));
    }

    pub fn another_kubeconfig(&mut self, key: &ClusterKey) {
        let access = Ok(Access("another".into()));
        self.access.insert(key.clone(), access.clone());
        self.tell(Input::Seen(Fact::Access { cluster: key.clone(), access }));
        self.list(Source::RemoteNodes(key.clone()));
    }

    fn is_told(&self, condition: &str, part: &str) {
        assert_eq!(self.condition("RemediationAllowed").as_deref(), Some(condition));
        assert!(self.message("RemediationAllowed").contains(part), "{}", self.message("RemediationAllowed"));
    }
}

#[test]
fn another_cluster_is_a_reason_to_wait_and_is_told() {
    let ways: [fn(&mut Fleet, &ClusterKey); 2] = [Fleet::breaks_and_lists, Fleet::another_kubeconfig];
    for lead_elsewhere in ways {
        let (mut fleet, key) = remote(3);
        fleet.leads_to(&key, uid("other"));
        lead_elsewhere(&mut fleet, &key);
        fleet.wait(3600);
        assert_eq!(fleet.all_asked(), [""; 0], "every node is gone, for all that it shows");
        fleet.is_told("False AnotherCluster", "resus.dev/cluster-uid=other (it was uid-of-blue)");

        // Back at the right one: nothing more is needed.
        fleet.identities.remove(&key);
        let right = (0..3).map(|n| (Name::from(format!("n{n}")), node(n, Wall(EPOCH)))).collect();
        fleet.nodes.insert(Some(key.clone()), right);
        fleet.wait(AGAIN_AFTER.as_secs().cast_signed() + 2);
        assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("True RemediationAllowed"));
        fleet.ready(Some(&key), "n1", Status::False);
        fleet.wait(302);
        assert_eq!(fleet.all_asked(), ["m1"]);
    }
}

#[test]
fn a_person_says_which_cluster_it_is() {
    let (mut fleet, key) = remote(3);
    fleet.leads_to(&key, uid("other"));
    fleet.breaks_and_lists(&key);
    fleet.wait(20);
    fleet.set_cluster(&key, |cluster| cluster.identity = Some("neither".into()));
    fleet.wait(200);
    assert_eq!(fleet.all_asked(), [""; 0]);
    fleet.is_told("False AnotherCluster", "resus.dev/cluster-uid=other (it was neither)");
    fleet.set_cluster(&key, |cluster| cluster.identity = Some("other".into()));
    fleet.wait(5);
    assert_eq!(fleet.all_asked(), ["m0", "m1", "m2"], "their nodes are gone: somebody has said that it is the right one");
}

/// What is remembered is remembered of this Cluster, not of the next one of its name.
#[test]
fn a_cluster_that_is_made_anew_may_be_another() {
    let (mut fleet, key) = remote(3);
    fleet.identities.insert(key.clone(), uid("other"));
    fleet.set_cluster(&key, |cluster| cluster.uid = "another-uid".into());
    fleet.breaks_and_lists(&key);
    fleet.wait(5);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("True RemediationAllowed"));
}

#[test]
fn that_no_named_node_is_there_is_a_reason_to_wait() {
    // Who may not ask which cluster it is has this protection alone.
    for answer in [uid("uid-of-blue"), forbidden()] {
        let (mut fleet, key) = Fleet::new(Dialect::V1beta2, 3).into_cluster();
        fleet.identities.insert(key.clone(), answer.clone());
        let mut blue = check(Dialect::V1beta2, CHECK, Repair::Owner, Budget::AtMost(Amount::Percent(100)));
        blue.cluster = Some("blue".into());
        fleet.add_check(blue);
        fleet.settle();
        assert_eq!(fleet.status().healthy, Some(3));
        let is_hidden = answer == forbidden();
        assert_eq!(plan(&fleet.world, fleet.now()).unidentified.contains(&key), is_hidden, "it is said that nobody would notice");
        fleet.leads_to(&key, answer);
        fleet.breaks_and_lists(&key);
        fleet.wait(3600);
        assert_eq!(fleet.all_asked(), [""; 0]);
        fleet.is_told("False NoNodeKnown", "none of the 3 Nodes");

        // With one of them the others are gone.
        fleet.nodes.entry(Some(key.clone())).or_default().insert("n2".into(), node(2, Wall(EPOCH)));
        fleet.breaks_and_lists(&key);
        fleet.wait(5);
        assert_eq!(fleet.all_asked(), ["m0", "m1"]);
    }
}

/// One may be gone by itself; and where a person says that it is the right cluster, all may be.
#[test]
fn the_only_node_may_be_gone() {
    let (mut fleet, key) = remote(1);
    fleet.node_goes(Some(&key), "n0");
    fleet.wait(5);
    assert_eq!(fleet.all_asked(), ["m0"]);

    let (mut fleet, key) = remote(2);
    fleet.set_cluster(&key, |cluster| cluster.identity = Some("uid-of-blue".into()));
    fleet.node_goes(Some(&key), "n0");
    fleet.node_goes(Some(&key), "n1");
    fleet.wait(5);
    assert_eq!(fleet.all_asked(), ["m0", "m1"]);
}

#[test]
fn who_does_not_say_any_more_who_it_is_is_not_believed() {
    for (answer, part) in [(forbidden(), "may not get the namespace kube-system any more"), (Answer::Missing, "has no namespace")]
    {
        let (mut fleet, key) = remote(3);
        fleet.identities.insert(key.clone(), answer);
        fleet.node_goes(Some(&key), "n1");
        fleet.breaks_and_lists(&key);
        fleet.wait(400);
        assert_eq!(fleet.all_asked(), [""; 0]);
        fleet.is_told("False ClusterUnreachable", part);
        fleet.identities.remove(&key);
        fleet.wait(AGAIN_AFTER.as_secs().cast_signed() + 2);
        assert_eq!(fleet.all_asked(), ["m1"]);
    }
}

#[test]
fn until_it_has_said_who_it_is_nothing_starts_and_it_is_told() {
    let (mut fleet, key) = remote(3);
    let unsure = Answer::Unsure { why: "no answer".into() };
    fleet.identities.insert(key.clone(), unsure);
    fleet.node_goes(Some(&key), "n1");
    fleet.breaks_and_lists(&key);
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), [""; 0]);
    fleet.is_told("False Stale", "");
    fleet.identities.remove(&key);
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), ["m1"]);
}

/// A machine of a workload cluster has its node there: here it would be gone.
#[test]
fn a_check_without_a_cluster_is_not_for_machines_of_clusters() {
    let mut fleet = Fleet::new(Dialect::V1beta2, 3);
    fleet.has_clusters = true;
    fleet.change("m2", |machine| machine.labels = [("app", "x")].into_iter().collect());
    fleet.nodes.entry(None).or_default().remove("n1");
    fleet.add_check(check(Dialect::V1beta2, CHECK, Repair::Owner, Budget::AtMost(Amount::Percent(100))));
    fleet.wait(60);
    assert_eq!(fleet.status().expected, Some(1));
    assert_eq!(fleet.all_asked(), [""; 0]);
    fleet.breaks("n2");
    fleet.wait(302);
    assert_eq!(fleet.all_asked(), ["m2"]);
}

fn again(fleet: &mut Fleet, key: &ClusterKey) {
    let is_watched = |fleet: &Fleet| plan(&fleet.world, fleet.now()).watches.contains(&Source::RemoteNodes(key.clone()));
    assert!(!is_watched(fleet), "it is left alone");
    assert!(fleet.world.fleet.region(key).is_none(), "and takes no memory");
    fleet.wait(20);
    assert_eq!(fleet.all_asked(), [""; 0]);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False ClusterUnreachable"));
    fleet.wait(TOO_MUCH_AGAIN.as_secs().cast_signed());
    assert!(is_watched(fleet));
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("True RemediationAllowed"));
}

#[test]
fn a_cluster_that_sends_too_much_is_left_alone_for_a_while_and_is_told() {
    let (mut fleet, key) = remote(3);
    fleet.tell(Input::TooMuch { cluster: key.clone(), why: "its list has more than 7 pages".into() });
    fleet.wait(5);
    fleet.is_told("False ClusterUnreachable", "its list has more than 7 pages");
    again(&mut fleet, &key);

    let (mut fleet, key) = remote(3);
    for n in 0..=REGION_NODES_MAX {
        fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), node(n, Wall(EPOCH)))));
    }
    // What was under way when it was too much is not taken in either, whatever it says of itself.
    fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), node(1, Wall(EPOCH)))));
    fleet.tell(Input::Unreadable { source: Source::RemoteNodes(key.clone()), name: "n1".into(), why: "no".into() });
    assert!(fleet.world.fleet.region(&key).is_none());
    fleet.wait(5);
    again(&mut fleet, &key);

    let (mut fleet, key) = remote(3);
    for n in 0..1000 {
        let mut fat = node(n, Wall(EPOCH));
        fat.labels = [("app", "x".repeat(20_000))].into_iter().collect();
        fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), fat)));
    }
    fleet.wait(5);
    fleet.is_told("False ClusterUnreachable", "they take more than 16 MiB");
    again(&mut fleet, &key);

    let (mut fleet, key) = remote(3);
    for n in 0..=REGION_ETCD_MAX {
        let says = Some(resus_core::etcd::EtcdPod { node: "n1".into(), ready: true });
        fleet.tell(Input::Seen(Fact::RemoteEtcd { cluster: key.clone(), pod: format!("etcd-{n}").into(), says }));
    }
    fleet.wait(5);
    again(&mut fleet, &key);
}

/// A Node that comes, changes and goes again weighs nothing any more.
#[test]
fn what_is_gone_weighs_nothing() {
    let (mut fleet, key) = remote(3);
    for n in 0..2000_u64 {
        let mut fat = node(7, Wall(EPOCH));
        fat.version = resus_core::facts::Version((100 + n).to_string().into());
        let label = "x".repeat(10_000 + usize::try_from(n).unwrap_or(0));
        fat.labels = [("app", label)].into_iter().collect();
        fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), fat)));
        if n % 3 == 0 {
            fleet.tell(Input::Unreadable { source: Source::RemoteNodes(key.clone()), name: "n7".into(), why: "no".into() });
        }
        if n % 7 == 0 {
            fleet.tell(Input::Gone(resus_core::input::Gone::RemoteNode(key.clone(), "n7".into())));
            fleet.tell(Input::Unreadable { source: Source::RemoteNodes(key.clone()), name: "n7".into(), why: "no".into() });
        }
    }
    fleet.tell(Input::Gone(resus_core::input::Gone::RemoteNode(key.clone(), "n7".into())));
    let kept = fleet.world.fleet.region(&key).expect("it was never too much");
    let (mut fresh, key) = remote(3);
    fresh.list(Source::RemoteNodes(key.clone()));
    assert_eq!(kept.nodes.len(), 3);
    assert_eq!(Some(kept.weight()), fresh.world.fleet.region(&key).map(resus_core::mhc::fleet::Region::weight));
}

/// Its answer is about a node of the cluster that the old kubeconfig led to.
#[test]
fn a_look_that_was_on_its_way_when_the_kubeconfig_changed_says_nothing() {
    let (mut fleet, key) = remote(3);
    fleet.ready(Some(&key), "n1", Status::False);
    fleet.wait(297);
    let sent = fleet.until_sent(|effect| matches!(effect, Effect::Look { .. }));
    fleet.another_kubeconfig(&key);
    fleet.ready(Some(&key), "n1", Status::True);
    fleet.settle();
    let Effect::Look { node: name, .. } = &sent else { unreachable!("it was looked for") };
    let conditions = [ready_since(Status::False, Wall(EPOCH))].into();
    let old = Node { uid: "of-the-old".into(), version: Version("999999".into()), conditions, ..node(1, Wall(EPOCH)) };
    assert_eq!(old.name, *name);
    fleet.tell(Input::Answered(sent.key(), Answer::Done(Some(Fact::Node(old)))));
    fleet.wait(60);
    assert_eq!(fleet.all_asked(), [""; 0], "it is well");
}
