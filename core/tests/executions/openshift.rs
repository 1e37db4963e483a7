//! What is special on OpenShift: etcd that guards itself, and Machines that own remediations.

use resus_core::decision::Because;
use resus_core::facts::{
    Budget, Guard, Kind, MACHINE_ANNOTATION, Object, ObjectKey, Requirement, Selector, Signal, SignalFact, Source, Status, Step,
};
use resus_core::reasons;

use crate::checks::{because, control_plane, exist, name, reboot, settled};
use crate::model::{Cluster, Fate, template};

/// Three nodes of the control plane, with a budget of so many disruptions and a guard on each, as ready as said.
fn guarded(allowed: u32, ready: [Option<Status>; 3]) -> Cluster {
    let mut cluster = settled();
    cluster.signals.insert(Signal::ClusterVersions, SignalFact::Quiet);
    let selector = Selector(vec![Requirement::In("app".into(), vec!["guard".into()])]);
    cluster.budgets.insert("openshift-etcd/etcd-guard-pdb".into(), Budget { selector, disruptions_allowed: allowed });
    for (node, ready) in ["n1", "n2", "n3"].into_iter().zip(ready) {
        let labels = [("app", "guard")].into_iter().collect();
        cluster.guards.insert(format!("openshift-etcd/guard-{node}").into(), Guard { node: node.into(), labels, ready });
        // Another Pod of the same namespace says nothing.
        let labels = [("app", "installer")].into_iter().collect();
        let other = Guard { node: node.into(), labels, ready: Some(Status::True) };
        cluster.guards.insert(format!("openshift-etcd/installer-{node}").into(), other);
    }
    cluster.restart();
    control_plane(&mut cluster, &["n1", "n2", "n3"], false);
    cluster
}

#[test]
fn openshift_says_by_its_budget_and_guards_whether_etcd_can_spare_a_member() {
    let (up, down, unknown) = (|| Some(Status::True), || Some(Status::False), || Some(Status::Unknown));
    for (allowed, guard, may) in [
        (1, up(), true),
        (0, up(), false),
        (0, unknown(), false),
        (0, down(), true),
        // It has not reported anything: there is no member that could be lost.
        (0, None, true),
    ] {
        let mut cluster = guarded(allowed, [guard.clone(), up(), up()]);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        assert_eq!(cluster.objects.contains_key(&reboot("n1")), may, "{allowed} {guard:?}");
        assert_eq!(because(&cluster, "n1") == Because::EtcdGuarded, !may, "{allowed} {guard:?}");
    }
}

#[test]
fn without_exactly_one_budget_nothing_is_taken_from_openshifts_control_plane() {
    for found in [0, 2] {
        let mut cluster = guarded(1, [Some(Status::False), Some(Status::True), Some(Status::True)]);
        let budget = cluster.budgets.values().next().expect("there is one").clone();
        cluster.budgets.clear();
        for number in 0..found {
            cluster.budgets.insert(format!("openshift-etcd/budget-{number}").into(), budget.clone());
        }
        cluster.list(Source::Budgets);
        cluster.set_broken(&name("n1"), true);
        cluster.set_broken(&name("n4"), true);
        cluster.run_well(8_000);
        exist(&cluster, &[reboot("n4")]);
        assert_eq!(because(&cluster, "n1"), Because::EtcdBudgets { found });
    }
}

#[test]
fn a_machine_beside_the_template_owns_the_remediation_too() {
    // Where the annotation points, whether such a Machine exists, and whether it owns the remediation.
    for (machine, exists, owns) in
        [("default/m1", true, true), ("default/m1", false, false), ("elsewhere/m1", true, false), ("garbage", true, false)]
    {
        let mut cluster = settled();
        if exists {
            cluster.machines.insert(machine.into(), ("uid-of-m1".into(), Some(name("n1"))));
        }
        cluster.annotations.insert(name("n1"), vec![(MACHINE_ANNOTATION, machine)]);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        let object = &cluster.objects[&reboot("n1")];
        assert_eq!(object.has_owner("uid-of-m1"), owns, "{machine} {exists}");
    }
}

/// H8: a kubelet names any Machine as its own, and Metal3 power-cycles the host of the Machine that owns a remediation.
#[test]
fn a_machine_of_another_node_owns_nothing() {
    for named in [Some(name("n2")), None] {
        let mut cluster = settled();
        cluster.machines.insert("default/m2".into(), ("uid-of-m2".into(), named.clone()));
        cluster.annotations.insert(name("n1"), vec![(MACHINE_ANNOTATION, "default/m2")]);
        cluster.set_broken(&name("n1"), true);
        cluster.run_well(8_000);
        let object = &cluster.objects[&reboot("n1")];
        assert_eq!(object.owners.len(), 1, "the check, and nobody else: {:?}", object.owners);
        let told: Vec<_> = cluster.events.iter().filter(|event| event.reason == reasons::EVENT_MACHINE_MISMATCH).collect();
        let [event] = told.as_slice() else { panic!("{named:?} is told once: {told:?}") };
        let says = if named.is_some() { "names Node n2" } else { "names no Node" };
        assert!(event.warning && event.message.contains("default/m2") && event.message.ends_with(says), "{}", event.message);
    }
}

/// Metal3 would not know which host it is about.
#[test]
fn nothing_is_created_without_an_owner_that_cannot_be_asked_for() {
    let mut cluster = settled();
    cluster.machines.insert("default/m1".into(), ("uid-of-m1".into(), Some(name("n1"))));
    cluster.annotations.insert(name("n1"), vec![(MACHINE_ANNOTATION, "default/m1")]);
    cluster.set_broken(&name("n1"), true);
    for _ in 0..20 {
        cluster.hear_all();
        cluster.turn();
        while let Some(effect) = cluster.requests.front() {
            let asks = matches!(effect, resus_core::effect::Effect::FindMachine { .. });
            cluster.execute(0, if asks { Fate::Refused } else { Fate::Done });
        }
        cluster.time += 1_000;
    }
    exist(&cluster, &[]);
    assert!(matches!(because(&cluster, "n1"), Because::Refused { key, .. } if &*key.kind.kind == "Machine"));
    cluster.run_well(60_000);
    assert_eq!(cluster.objects[&reboot("n1")].owners.len(), 2);
}

#[test]
fn metal3_finds_machines_in_one_namespace_only() {
    let mut cluster = settled();
    for (group, namespace, may) in [
        ("infrastructure.cluster.x-k8s.io/v1beta1", "default", false),
        ("infrastructure.cluster.x-k8s.io/v1beta1", "openshift-machine-api", true),
        ("other.io/v1", "default", true),
    ] {
        let kind = Kind { api_version: group.into(), kind: "Metal3RemediationTemplate".into() };
        let key = ObjectKey { kind, namespace: Some(namespace.into()), name: "metal3".into() };
        cluster.add_object(Object { key: key.clone(), ..template() });
        cluster.change_policy(|policy| policy.steps = vec![Step { template: key, timeout: None }]);
        cluster.run_well(20_000);
        let disabled =
            cluster.check.status.conditions.iter().find(|condition| &*condition.kind == "Disabled").expect("it is told");
        assert_eq!(disabled.status == Status::False, may, "{group} {namespace}: {}", disabled.message);
    }
}
