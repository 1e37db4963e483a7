//! Checks that cannot work say why, and the others go on.

use std::process::Command;

use resus_harness::Cluster;
use serde_json::json;

use super::check::{Check, check};
use super::dialect::Dialect;
use super::site::{CLUSTER, Site, bare_site, kubeconfig, site};

/// Stands in every text of a Secret that is wrong, and nowhere else afterwards.
const CANARY: &str = "canary";

/// Which check, why nothing is allowed under it, and what people are told.
async fn is_refused(site: &Site, name: &str, reason: &str, message: &str) {
    site.until_told(name, "RemediationAllowed", &format!("False {reason}"), message).await;
    let event = match reason {
        "RemediationTemplateUnavailable" => "RemediationTemplateUnavailable",
        _ => "RemediationRestricted",
    };
    site.until_event(event, &format!("MachineHealthCheck {name}"), message).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_makes_no_sense_is_refused_and_others_go_on_in_v1beta1() {
    a_check_that_makes_no_sense_is_refused_and_others_go_on(Dialect::V1beta1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_makes_no_sense_is_refused_and_others_go_on_in_v1beta2() {
    a_check_that_makes_no_sense_is_refused_and_others_go_on(Dialect::V1beta2).await;
}

async fn a_check_that_makes_no_sense_is_refused_and_others_go_on(dialect: Dialect) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    site.machines(3).await;
    site.breaks("n1").await;
    let sometimes = json!({"matchExpressions": [{"key": "pool", "operator": "Sometimes", "values": ["workers"]}]});
    let of_red = json!({"matchLabels": {"pool": "workers", "cluster.x-k8s.io/cluster-name": "red"}});
    let bad: [(Check, &str, &str, &str); 6] = [
        (check("a-selector").selector(sometimes), "a-selector", "MachineHealthCheckInvalid", "Sometimes"),
        (check("a-void").selector(json!({})), "a-void", "MachineHealthCheckInvalid", "must not be empty"),
        (check("a-stranger").selector(of_red), "a-stranger", "MachineHealthCheckInvalid", "red"),
        (check("a-range").range("[5-3]"), "a-range", "MachineHealthCheckInvalid", "[5-3]"),
        (
            check("a-template").by_template_of("nowhere.test/v1", "NothingTemplate", "nothing"),
            "a-template",
            "RemediationTemplateUnavailable",
            "NothingTemplate",
        ),
        (check("a-cluster").cluster("nowhere"), "a-cluster", "ClusterMissing", "nowhere"),
    ];
    for (bad, ..) in &bad {
        site.check(bad).await;
    }
    let controller = site.controller().await;
    for (_, name, reason, message) in &bad {
        is_refused(&site, name, reason, message).await;
    }
    site.stays_untouched(3).await;
    site.check(&check("good")).await;
    site.until_asked(&["m1"]).await;
    site.until_counters("good", [3, 2, 2]).await;

    // One is put right, and acts when it is the oldest that can.
    site.delete("MachineHealthCheck", "good").await;
    let right = check("a-range").range("[1-3]").render(dialect);
    site.change("MachineHealthCheck", "a-range", json!({"spec": right["spec"]})).await;
    site.breaks("n2").await;
    site.until_asked(&["m1", "m2"]).await;
    site.until_counters("a-range", [3, 1, 1]).await;
    assert!(controller.is_running());
}

/// Whoever writes the status of a Machine may write anything there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_node_that_is_none_costs_its_own_machine() {
    let Some(site) = site(Dialect::V1beta1, Cluster::builder()).await else { return };
    site.machines(3).await;
    site.machine_status("m2", json!({"nodeRef": {"name": "a".repeat(70_000)}})).await;
    site.check(&check("good")).await;
    let controller = site.controller().await;
    let why = "m2: its status.nodeRef.name is not the name of a Node";
    site.until_told("good", "RemediationHeld", "True MachinesHeld", why).await;
    site.breaks("n1").await;
    site.until_asked(&["m1"]).await;
    site.until_counters("good", [3, 1, 1]).await;
    assert!(controller.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_that_cannot_be_used_is_refused_and_others_go_on() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.machines(2).await;
    site.check(&check("good")).await;
    let server = "https://127.0.0.1:1";
    let with_user = |user: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": server}}], "users": [{"name": "a", "user": user}]})
        .to_string()
    };
    let with_server = |server: &str| with_user(json!({"token": CANARY})).replace("https://127.0.0.1:1", server);
    let mistyped = "apiVersion: v1\nkind: Config\nusers:\n- name: canary\n  user:\n    password: canary-1\n   token: canary-2\n";
    let proof = site.stage.cluster.folder().join("was-run");
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [proof],
        "interactiveMode": "Never"}});
    let secrets = [
        ("garbage", Some(json!({"value": "neither YAML: [nor a canary"})), "no kubeconfig"),
        ("mistyped", Some(json!({"value": mistyped})), "it is no kubeconfig: look at line 7"),
        ("token", Some(json!({"value": with_user(json!({"token": "canary\n"}))})), "look for a line break"),
        (
            "key",
            Some(json!({"value": with_user(json!({"client-certificate-data": CANARY, "client-key-data": CANARY}))})),
            "look at its certificates",
        ),
        ("plain", Some(json!({"value": with_server("http://canary.example")})), "--allow-insecure-workload-clusters"),
        ("cloud", Some(json!({"value": with_server("https://169.254.169.254/canary")})), "link-local"),
        ("schemeless", Some(json!({"value": with_server("canary.example:6443")})), "write https://"),
        (
            "proxy",
            Some(json!({"value": with_server("https://a.example\", \"proxy-url\": \"http://u:canary@canary.example")})),
            "proxy-url",
        ),
        (
            "skipping",
            Some(json!({"value": with_server("https://a.example\", \"insecure-skip-tls-verify\": true, \"a\": \"canary")})),
            "skip",
        ),
        ("hollow", Some(json!({"value": ""})), "value"),
        ("program", Some(json!({"value": with_user(exec)})), "a program to be run"),
        ("file", Some(json!({"value": with_user(json!({"tokenFile": "/etc/canary"}))})), "names files"),
        ("keyless", Some(json!({"kubeconfig": "canary in the wrong place"})), "has no key value"),
        ("secretless", None, "there is no Secret secretless-kubeconfig"),
    ];
    for (name, data, _) in &secrets {
        site.cluster_without_access(name).await;
        if let Some(data) = data {
            site.secret(name, data.clone()).await;
        }
        // Its node is nowhere, for all that anybody here could see.
        site.machine(&format!("{name}-1"), name, Some("nowhere")).await;
        site.check(&check(name).cluster(name)).await;
    }
    let controller = site.controller().await;
    for (name, _, message) in &secrets {
        is_refused(&site, name, "ClusterUnreachable", message).await;
    }
    assert!(!proof.exists(), "whoever may write a Secret must not be able to have programs run");
    site.stays_untouched(2 + secrets.len()).await;
    site.breaks("n1").await;
    site.until_asked(&["m1"]).await;

    // The right one takes the place of the wrong one.
    let good = kubeconfig(site.stage.cluster.admin_kubeconfig());
    site.secret("secretless", json!({"value": good})).await;
    site.until_asked(&["m1", "secretless-1"]).await;
    site.until_says("Machine", "secretless-1", "HealthCheckSucceeded", &["False NodeDeleted", "False NodeNotFound"]).await;
    // Readers of statuses, events and logs are not readers of Secrets.
    let said = site.stage.kubectl(&["get", "machinehealthchecks,machines,events", "-A", "-o", "json"]).await + &controller.log();
    let told: Vec<&str> = said.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(told.is_empty(), "{told:#?}");
    assert!(controller.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubeconfig_of_a_cluster_is_read_once_it_is_granted_as_the_status_says() {
    let Some(site) = bare_site(Dialect::V1beta2, Cluster::builder()).await else { return };
    site.definitions().await;
    site.forbidden_cluster(CLUSTER).await;
    site.secret(CLUSTER, json!({"value": kubeconfig(site.stage.cluster.admin_kubeconfig())})).await;
    site.machines(2).await;
    site.check(&check("workers")).await;
    let _controller = site.controller().await;
    let command = "resus manifests --cluster default/blue | kubectl apply -f -";
    site.until_told("workers", "RemediationAllowed", "False ClusterUnreachable", command).await;
    site.breaks("n1").await;
    site.stays_untouched(2).await;

    let printed = Command::new(env!("CARGO_BIN_EXE_resus")).args(["manifests", "--cluster", "default/blue"]).output();
    let printed = String::from_utf8(printed.expect("it runs").stdout).expect("it is YAML");
    site.stage.apply(&printed).await;
    site.until_asked(&["m1"]).await;
    site.until_says("MachineHealthCheck", "workers", "RemediationAllowed", &["True RemediationAllowed", "True"]).await;
    let secrets =
        ["auth", "can-i", "list", "secrets", "-n", "default", "--as=system:serviceaccount:poison-pill:resus-controller"];
    let others = site.stage.cluster.kubectl(secrets).await.expect("kubectl runs");
    assert!(others.ok().is_err(), "no other Secret may be read");
}
