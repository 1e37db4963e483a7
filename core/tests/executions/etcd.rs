//! Whatever hosts etcd, its majority is not lost by our hand.

use resus_core::decision::Because;
use resus_core::etcd::EtcdPod;
use resus_core::facts::{CONTROL_PLANE_LABELS, ETCD_LABEL, HealthyDelay, Name, Requirement, Selector, Source};
use resus_core::input::{Fact, Gone, Input};

use crate::checks::{MINUTE, because, control_plane, exist, name, now, reboot, set_label, settled};
use crate::model::Cluster;

/// A Pod of etcd for this node; no kubelet says anything of it if `ready` is None.
fn shows(cluster: &mut Cluster, node: &str, ready: Option<bool>) {
    let (pod, says): (Name, _) = (format!("etcd-{node}").into(), ready.map(|ready| EtcdPod { node: name(node), ready }));
    cluster.etcd.insert(pod.clone(), says.clone());
    cluster.tell(Input::Seen(Fact::Etcd { pod, says }));
}

fn pod_goes(cluster: &mut Cluster, node: &str) {
    let pod: Name = format!("etcd-{node}").into();
    cluster.etcd.remove(&pod);
    cluster.tell(Input::Gone(Gone::Etcd { pod }));
}

fn node_goes(cluster: &mut Cluster, node: &str) {
    cluster.broken_since.remove(&name(node));
    cluster.tell(Input::Gone(Gone::Node(name(node))));
}

fn breaks(cluster: &mut Cluster, nodes: &[&str]) {
    nodes.iter().for_each(|node| cluster.set_broken(&name(node), true));
    cluster.run_well(8_000);
}

#[test]
fn a_host_of_etcd_is_guarded_without_a_label_of_the_control_plane() {
    for has_pods in [false, true] {
        for (hosts, started) in [(3, None), (5, Some(reboot("n1")))] {
            let mut cluster = settled();
            for node in &["n1", "n2", "n3", "n4", "n5"][..hosts] {
                set_label(&mut cluster, node, ETCD_LABEL, "true");
                if has_pods {
                    shows(&mut cluster, node, Some(true));
                }
            }
            cluster.run_well(10_000);
            breaks(&mut cluster, &["n1", "n2"]);
            exist(&cluster, started.as_slice());
            let busy = matches!(because(&cluster, "n2"), Because::ControlPlaneBusy { .. });
            assert_eq!(busy, started.is_some(), "{has_pods}: one at a time, as in any control plane");
            assert!(started.is_none_or(|key| cluster.objects[&key].control_plane), "{has_pods}");
        }
    }
}

#[test]
fn a_member_that_is_down_on_a_ready_node_is_not_up() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    shows(&mut cluster, "n2", Some(false));
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 });
    shows(&mut cluster, "n2", Some(true));
    cluster.run_well(3_000);
    exist(&cluster, &[reboot("n1")]);
}

#[test]
fn only_static_pods_on_nodes_of_the_control_plane_are_members() {
    for is_static in [false, true] {
        let mut cluster = settled();
        control_plane(&mut cluster, &["n1"], true);
        for node in ["n4", "n5"] {
            shows(&mut cluster, node, is_static.then_some(true));
        }
        breaks(&mut cluster, &["n1"]);
        assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 0, needed: 1, of: 1 }, "{is_static}");
        breaks(&mut cluster, &["n4"]);
        match is_static {
            // By its kubelet's word it may be one itself, and n1 is down.
            true => assert_eq!(because(&cluster, "n4"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 }),
            false => exist(&cluster, &[reboot("n4")]),
        }
    }
}

/// NodeRestriction keeps a kubelet from giving the label back to its Node, and neither an hour nor a restart of ours puts that right.
#[test]
fn a_member_whose_node_has_no_label_is_guarded_as_long_as_its_pod_stands() {
    for restarts in [false, true] {
        let mut cluster = settled();
        control_plane(&mut cluster, &["n1", "n2", "n3"], true);
        // Its check is one of workers.
        let is_worker = Requirement::DoesNotExist(CONTROL_PLANE_LABELS[0].into());
        cluster.change_policy(|policy| policy.selector = Selector(vec![is_worker]));
        node_goes(&mut cluster, "n2");
        cluster.labels.remove(&name("n2"));
        cluster.broken_since.insert(name("n2"), None);
        cluster.touch(&name("n2"));
        cluster.run_well(2 * 60 * MINUTE);
        if restarts {
            cluster.restart();
            cluster.run_well(30_000);
        }
        shows(&mut cluster, "n1", Some(false));
        breaks(&mut cluster, &["n2"]);
        assert_eq!(because(&cluster, "n2"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 }, "{restarts}");
        shows(&mut cluster, "n1", Some(true));
        cluster.run_well(3_000);
        exist(&cluster, &[reboot("n2")]);
    }
}

/// A worker whose kubelet shows a member of etcd is repaired, and the control plane does not wait for that.
#[test]
fn who_shows_a_member_keeps_but_itself_from_being_repaired() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    shows(&mut cluster, "n5", Some(true));
    breaks(&mut cluster, &["n5"]);
    exist(&cluster, &[reboot("n5")]);
    assert!(!cluster.objects[&reboot("n5")].control_plane);
    breaks(&mut cluster, &["n1"]);
    exist(&cluster, &[reboot("n1"), reboot("n5")]);
}

/// Two Nodes that registered anew, and a process that never saw them otherwise: by their Pods alone nobody else waits for them, but
/// they do for each other.
#[test]
fn members_that_have_nothing_but_their_pods_to_show_wait_for_each_other() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    for node in ["n4", "n5"] {
        shows(&mut cluster, node, Some(true));
    }
    cluster.run_well(10_000);
    breaks(&mut cluster, &["n4", "n5"]);
    exist(&cluster, &[reboot("n4")]);
    assert_eq!(because(&cluster, "n5"), Because::ControlPlaneBusy { node: name("n4") });
    // At work on a node that is up for all that can be seen.
    cluster.set_broken(&name("n4"), false);
    cluster.change_policy(|policy| policy.healthy_delay = HealthyDelay::UntilConfirmed);
    cluster.run_well(60 * MINUTE);
    exist(&cluster, &[reboot("n4")]);
    assert_eq!(because(&cluster, "n5"), Because::ControlPlaneBusy { node: name("n4") });
    breaks(&mut cluster, &["n1"]);
    exist(&cluster, &[reboot("n1"), reboot("n4")]);
}

/// It has a Node without a label by now; its Pod stands, so that it counts for the others for longer than an hour, and from when
/// that goes for one hour more.
#[test]
fn a_member_counts_for_an_hour_after_its_pod_is_gone() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    shows(&mut cluster, "n3", Some(false));
    cluster.labels.remove(&name("n2"));
    cluster.touch(&name("n2"));
    cluster.run_well(2 * 60 * MINUTE);
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 });
    cluster.set_broken(&name("n1"), false);
    pod_goes(&mut cluster, "n2");
    shows(&mut cluster, "n3", Some(true));
    cluster.run_well(30 * MINUTE);
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 });
    cluster.run_well(31 * MINUTE);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 2, of: 2 }, "two of two cannot lose one");
}

/// Its Pod stands for it, however long ago it lost its label.
#[test]
fn a_member_without_a_label_counts_though_another_departs_hours_later() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3", "n4"], true);
    cluster.labels.remove(&name("n2"));
    cluster.touch(&name("n2"));
    cluster.run_well(2 * 60 * MINUTE);
    pod_goes(&mut cluster, "n4");
    node_goes(&mut cluster, "n4");
    shows(&mut cluster, "n3", Some(false));
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 3, of: 4 });
}

#[test]
fn a_member_whose_node_we_have_never_seen_counts() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2"], true);
    shows(&mut cluster, "n9", Some(true));
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 });
}

#[test]
fn a_member_is_remembered_for_an_hour() {
    let ways: [(&str, fn(&mut Cluster, &str)); 5] = [
        ("its Node goes, then its Pod", |cluster, node| {
            node_goes(cluster, node);
            pod_goes(cluster, node);
        }),
        ("its Pod goes, then its Node", |cluster, node| {
            pod_goes(cluster, node);
            node_goes(cluster, node);
        }),
        ("its Pod goes", pod_goes),
        ("its Pod is no longer the kubelet's", |cluster, node| shows(cluster, node, None)),
        ("both are missing when all are listed anew", |cluster, node| {
            cluster.broken_since.remove(&name(node));
            cluster.etcd.remove(&*format!("etcd-{node}"));
            cluster.list(Source::Nodes);
            cluster.list(Source::Etcd);
        }),
    ];
    for (way, departs) in ways {
        let mut cluster = settled();
        control_plane(&mut cluster, &["n1", "n2", "n3", "n4", "n5"], true);
        departs(&mut cluster, "n4");
        departs(&mut cluster, "n5");
        let departed_at = cluster.time;
        breaks(&mut cluster, &["n1"]);
        assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 2, needed: 3, of: 5 }, "{way}");
        cluster.run_well(departed_at + 60 * MINUTE - 1 - cluster.time);
        exist(&cluster, &[]);
        let wakes_at = now(&cluster).wake_at.expect("there is something to wait for");
        assert!(wakes_at.0 <= departed_at + 60 * MINUTE, "{way}: nobody else will wake us");
        cluster.run_well(3_000);
        exist(&cluster, &[reboot("n1")]);
    }
}

#[test]
fn a_node_that_registers_anew_without_its_labels_is_still_a_host() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    node_goes(&mut cluster, "n2");
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::EtcdQuorum { ready: 1, needed: 2, of: 3 });
    cluster.labels.remove(&name("n2"));
    cluster.broken_since.insert(name("n2"), None);
    cluster.touch(&name("n2"));
    cluster.run_well(8_000);
    exist(&cluster, &[reboot("n1")]);
    breaks(&mut cluster, &["n2"]);
    assert_eq!(because(&cluster, "n2"), Because::ControlPlaneBusy { node: name("n1") });
}

#[test]
fn a_node_that_loses_its_labels_is_still_a_host() {
    let mut cluster = settled();
    control_plane(&mut cluster, &["n1", "n2", "n3"], true);
    cluster.labels.remove(&name("n2"));
    cluster.touch(&name("n2"));
    breaks(&mut cluster, &["n2"]);
    exist(&cluster, &[reboot("n2")]);
    assert!(cluster.objects[&reboot("n2")].control_plane);
    breaks(&mut cluster, &["n1"]);
    assert_eq!(because(&cluster, "n1"), Because::ControlPlaneBusy { node: name("n2") });
}
