//! Machines that host etcd, whatever their labels say.

use resus_core::facts::{Amount, ETCD_LABEL, Source, Status};
use resus_core::input::{Fact, Input};
use resus_core::mhc::facts::{Access, Budget, CONTROL_PLANE_MACHINE_LABEL, ClusterKey, Dialect, Repair};

use crate::facts::{by_template, check};
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
    let (mut fleet, cluster) = hosts(by_template(), true);
    let key = cluster.clone().expect("it is elsewhere");
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
    fleet.ready(cluster.as_ref(), "n0", Status::False);
    fleet.wait(302);
    let told = fleet.message("RemediationHeld");
    assert!(told.contains("m0: etcd would lose its majority") && fleet.remediations().is_empty(), "{told}");
}
