//! Machines that host etcd, whatever their labels say.

use resus_core::etcd::EtcdPod;
use resus_core::facts::{Amount, ETCD_LABEL, Node, Source, Status};
use resus_core::input::{Answer, Fact, Input};
use resus_core::mhc::facts::{Access, Budget, CONTROL_PLANE_MACHINE_LABEL, ClusterKey, Dialect, Repair};
use resus_core::mhc::fleet::REGION_ETCD_MAX;
use resus_core::mhc::identity::AGAIN_AFTER;
use resus_core::time::Wall;

use crate::facts::{EPOCH, by_template, check, node};
use crate::model::{CHECK, Fleet};

/// Five machines without a label of the control plane, and etcd on the nodes of the first three.
fn hosts(repair: Repair, elsewhere: bool) -> (Fleet, Option<ClusterKey>) {
    let mut fleet = Fleet::new(Dialect::V1beta2, 5);
    let nodes = fleet.nodes.get_mut(&None).expect("this cluster has nodes");
    nodes.values_mut().take(3).for_each(|node| node.labels = [(ETCD_LABEL, "true")].into_iter().collect());
    let mut check = check(Dialect::V1beta2, CHECK, repair, Budget::AtMost(Amount::Percent(100)));
    let mut cluster = None;
    if elsewhere {
        check.cluster = Some("blue".into());
        let (moved, key) = fleet.into_cluster();
        (fleet, cluster) = (moved, Some(key));
    }
    fleet.add_check(check);
    fleet.add_template();
    fleet.settle();
    (fleet, cluster)
}

/// n0 breaks, and its machine is not repaired, as etcd needs it.
fn breaks_and_is_guarded(fleet: &mut Fleet, cluster: Option<&ClusterKey>) {
    fleet.ready(cluster, "n0", Status::False);
    fleet.wait(302);
    let told = fleet.message("RemediationHeld");
    assert!(told.contains("m0: etcd would lose its majority") && fleet.remediations().is_empty(), "{told}");
}

#[test]
fn a_host_of_etcd_is_guarded_whatever_its_machine_says() {
    for elsewhere in [false, true] {
        let (mut fleet, cluster) = hosts(by_template(), elsewhere);
        for node in ["n0", "n1", "n3"] {
            fleet.ready(cluster.as_ref(), node, Status::False);
        }
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m3"], "{elsewhere}");
        assert!(fleet.message("RemediationHeld").contains("m0: etcd would lose its majority"), "{elsewhere}");
        fleet.ready(cluster.as_ref(), "n1", Status::True);
        fleet.wait(2);
        assert_eq!(fleet.remediations(), ["m0", "m3"], "{elsewhere}");
        fleet.ready(cluster.as_ref(), "n1", Status::False);
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m0", "m3"], "{elsewhere}");
        assert!(fleet.message("RemediationHeld").contains("m1: m0 is being remediated"), "{elsewhere}");
    }
}

#[test]
fn a_host_of_etcd_whose_node_is_gone_is_guarded_too() {
    for elsewhere in [false, true] {
        let (mut fleet, cluster) = hosts(by_template(), elsewhere);
        fleet.node_goes(cluster.as_ref(), "n0");
        fleet.node_goes(cluster.as_ref(), "n3");
        fleet.ready(cluster.as_ref(), "n1", Status::False);
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m3"], "{elsewhere}: {}", fleet.message("RemediationHeld"));
        assert!(fleet.message("RemediationHeld").contains("m0: etcd would lose its majority"), "{elsewhere}");
    }
}

#[test]
fn a_machine_set_is_not_asked_to_replace_what_etcd_needs() {
    for is_control_plane in [false, true] {
        let (mut fleet, _) = hosts(Repair::Owner, false);
        if is_control_plane {
            for machine in ["m0", "m1", "m2"] {
                let labels = fleet.machines[machine].labels.clone();
                let labels = labels.iter().chain([(CONTROL_PLANE_MACHINE_LABEL, "")]).collect();
                fleet.change(machine, |machine| machine.labels = labels);
            }
        }
        ["n0", "n1", "n3"].iter().for_each(|node| fleet.breaks(node));
        fleet.wait(302);
        let asked: &[&str] = if is_control_plane { &["m0", "m1", "m3"] } else { &["m3"] };
        assert_eq!(fleet.all_asked(), asked, "the owner of a control plane looks after its etcd itself");
    }
}

/// Two of five; and another kubeconfig, of the same cluster: a token that was renewed.
#[test]
fn members_that_are_gone_are_remembered_while_their_cluster_is_reached_anew() {
    for says_who_it_is in [true, false] {
        remembers_while_it_is_reached_anew(says_who_it_is);
    }
}

fn remembers_while_it_is_reached_anew(says_who_it_is: bool) {
    let (mut fleet, cluster) = hosts(by_template(), true);
    let key = cluster.clone().expect("it is elsewhere");
    if !says_who_it_is {
        let answer = Answer::Refused { why: "forbidden".into(), retry_after: None, forbidden: true };
        fleet.identities.insert(key.clone(), answer);
        fleet.restart();
    }
    for (node, machine) in [("n3", "m3"), ("n4", "m4")] {
        let mut host = fleet.nodes[&cluster][node].clone();
        (host.version, host.labels) = (fleet.next_version(), [(ETCD_LABEL, "true")].into_iter().collect());
        fleet.nodes.get_mut(&cluster).expect("it is there").insert(node.into(), host.clone());
        fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), host)));
        fleet.change(machine, |machine| machine.marks.skipped = true);
        fleet.node_goes(cluster.as_ref(), node);
    }
    fleet.settle();
    for token in ["another", "yet another"] {
        let access = Ok(Access(token.into()));
        fleet.access.insert(key.clone(), access.clone());
        fleet.tell(Input::Seen(Fact::Access { cluster: key.clone(), access }));
        fleet.list(Source::RemoteNodes(key.clone()));
        fleet.list(Source::RemoteEtcd(key.clone()));
        fleet.wait(10);
    }
    breaks_and_is_guarded(&mut fleet, cluster.as_ref());
}

/// By its Pod, which stands all the time, while its Node has lost its label; and what never had one is no more than it was.
#[test]
fn members_without_a_label_are_what_they_were_when_their_cluster_is_reached_anew() {
    for had_label in [true, false] {
        let (mut fleet, cluster) = hosts(by_template(), true);
        let key = cluster.clone().expect("it is elsewhere");
        let says = EtcdPod { node: "n4".into(), ready: false };
        fleet.etcd.insert("etcd-n4".into(), says.clone());
        fleet.list(Source::RemoteEtcd(key.clone()));
        for labels in [[(ETCD_LABEL, "true")].as_slice(), &[]].into_iter().filter(|labels| had_label || labels.is_empty()) {
            let mut host = fleet.nodes[&cluster]["n4"].clone();
            (host.version, host.labels) = (fleet.next_version(), labels.iter().copied().collect());
            fleet.nodes.get_mut(&cluster).expect("it is there").insert("n4".into(), host.clone());
            fleet.tell(Input::Seen(Fact::RemoteNode(key.clone(), host)));
        }
        fleet.wait(2 * 3600);
        fleet.another_kubeconfig(&key);
        fleet.list(Source::RemoteEtcd(key.clone()));
        fleet.wait(10);
        fleet.ready(cluster.as_ref(), "n0", Status::False);
        fleet.wait(302);
        match had_label {
            true => assert!(fleet.message("RemediationHeld").contains("2 other members of 4"), "{:?}", fleet.remediations()),
            false => assert_eq!(fleet.remediations(), ["m0"], "{}", fleet.message("RemediationHeld")),
        }
    }
}

/// Not even a label: the kubelet of any node may show a Pod of etcd.
#[test]
fn who_shows_a_member_keeps_but_itself_from_being_repaired() {
    let (mut fleet, _) = hosts(by_template(), false);
    fleet.hosts_etcd("n4", true);
    fleet.change("m4", |machine| machine.deleting = true);
    fleet.breaks("n0");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m0"], "{}", fleet.message("RemediationHeld"));

    let (mut fleet, _) = hosts(by_template(), false);
    fleet.hosts_etcd("n4", true);
    fleet.breaks("n4");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m4"]);
    fleet.breaks("n0");
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m0", "m4"], "{}", fleet.message("RemediationHeld"));

    // But n0 and n1 are down now, and it may be one.
    let (mut fleet, _) = hosts(by_template(), false);
    fleet.hosts_etcd("n4", true);
    ["n1", "n2"].iter().for_each(|node| fleet.breaks(node));
    fleet.breaks("n4");
    fleet.wait(302);
    let told = fleet.message("RemediationHeld");
    assert!(told.contains("m4: etcd would lose its majority") && fleet.remediations().is_empty(), "{told}");
}

/// They may be members of one etcd.
#[test]
fn machines_that_have_nothing_but_a_member_to_show_wait_for_each_other() {
    for repair in [by_template(), Repair::Owner] {
        let (mut fleet, _) = hosts(repair, false);
        ["n3", "n4"].iter().for_each(|node| fleet.hosts_etcd(node, true));
        ["n3", "n4"].iter().for_each(|node| fleet.breaks(node));
        fleet.wait(302);
        let repaired = [fleet.remediations(), fleet.all_asked()].concat();
        assert_eq!(repaired, ["m3"], "{}", fleet.message("RemediationHeld"));
        assert!(fleet.message("RemediationHeld").contains("m4: m3 is being remediated"), "{}", fleet.message("RemediationHeld"));
    }
}

/// Its hosts are all gone from what is listed: three others are.
fn lead_to_another(fleet: &mut Fleet, cluster: &ClusterKey) {
    fleet.identities.insert(cluster.clone(), Answer::Done(Some(Fact::Identity { uid: "other".into() })));
    let labels = [(ETCD_LABEL, "true")];
    let others = (100..103).map(|n| {
        let host = node(n, Wall(EPOCH));
        (host.name.clone(), Node { labels: labels.into_iter().collect(), ..host })
    });
    fleet.nodes.insert(Some(cluster.clone()), others.collect());
}

#[test]
fn members_of_another_cluster_are_not_remembered() {
    for is_replaced in [false, true] {
        let (mut fleet, cluster) = hosts(by_template(), true);
        let key = cluster.clone().expect("it is elsewhere");
        let right = fleet.nodes[&cluster].clone();
        lead_to_another(&mut fleet, &key);
        if is_replaced {
            fleet.another_kubeconfig(&key);
        } else {
            fleet.breaks_and_lists(&key);
        }
        fleet.list(Source::RemoteEtcd(key.clone()));
        fleet.wait(20);
        assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("False AnotherCluster"));
        match is_replaced {
            // A person says so, and the machines have new nodes.
            true => {
                for (n, machine) in (100..103).zip(["m0", "m1", "m2"]) {
                    let provider_id = node(n, Wall(EPOCH)).provider_id;
                    fleet.change(machine, |machine| {
                        (machine.node, machine.provider_id) = (Some(format!("n{n}").into()), provider_id);
                    });
                }
                for machine in ["m3", "m4"] {
                    fleet.change(machine, |machine| machine.marks.skipped = true);
                }
                fleet.set_cluster(&key, |cluster| cluster.identity = Some("other".into()));
            }
            false => {
                fleet.identities.remove(&key);
                fleet.nodes.insert(cluster.clone(), right);
            }
        }
        fleet.wait(AGAIN_AFTER.as_secs().cast_signed() + 2);
        let first = if is_replaced { "n100" } else { "n0" };
        fleet.ready(cluster.as_ref(), first, Status::False);
        fleet.wait(302);
        assert_eq!(fleet.remediations(), ["m0"], "{is_replaced}: {}", fleet.message("RemediationHeld"));
    }
}

/// Hosts by their label alone, of which a list no longer shows two.
#[test]
fn members_that_go_while_their_cluster_is_reached_anew_are_remembered() {
    let (mut fleet, cluster) = hosts(by_template(), true);
    let key = cluster.clone().expect("it is elsewhere");
    for machine in ["m1", "m2"] {
        fleet.change(machine, |machine| machine.marks.skipped = true);
    }
    let nodes = fleet.nodes.get_mut(&cluster).expect("it is there");
    ["n1", "n2"].iter().for_each(|node| drop(nodes.remove(*node)));
    fleet.another_kubeconfig(&key);
    fleet.list(Source::RemoteEtcd(key.clone()));
    fleet.wait(10);
    breaks_and_is_guarded(&mut fleet, cluster.as_ref());
    assert!(fleet.message("RemediationHeld").contains("0 other members of 3"), "{}", fleet.message("RemediationHeld"));
    fleet.wait(3600);
    assert!(fleet.message("RemediationHeld").contains("0 other members of 1"), "for an hour");
}

/// What was too much is not kept for the next time, when it would be too much again.
#[test]
fn more_members_than_a_cluster_has_are_not_remembered() {
    let (mut fleet, cluster) = hosts(by_template(), true);
    let key = cluster.clone().expect("it is elsewhere");
    let nodes = fleet.nodes.get_mut(&cluster).expect("it is there");
    for n in 10..11 + REGION_ETCD_MAX {
        let host = node(n, Wall(EPOCH));
        nodes.insert(host.name.clone(), Node { labels: [(ETCD_LABEL, "true")].into_iter().collect(), ..host });
    }
    fleet.list(Source::RemoteNodes(key.clone()));
    fleet.wait(10);
    let nodes = fleet.nodes.get_mut(&cluster).expect("it is there");
    nodes.retain(|name, _| name.len() == 2);
    fleet.another_kubeconfig(&key);
    fleet.list(Source::RemoteEtcd(key.clone()));
    fleet.wait(10);
    assert_eq!(fleet.condition("RemediationAllowed").as_deref(), Some("True RemediationAllowed"));
    fleet.ready(cluster.as_ref(), "n0", Status::False);
    fleet.wait(302);
    assert_eq!(fleet.remediations(), ["m0"], "{}", fleet.message("RemediationHeld"));
}
