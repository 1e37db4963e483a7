//! What one remediation does not repair, the next one tries.

use std::time::Duration;

use jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams};
use resus_harness::{Cluster, until};
use serde_json::{Value, json};

use crate::outside::{address, get};
use crate::stage::{SOON, Stage, annotation, created_at, listed, stage};

const TIMED_OUT: &str = "remediation.medik8s.io/nhc-timed-out";
const TEMPLATE_NAME: &str = "remediation.medik8s.io/template-name";

fn steps(templates: [(&str, &str); 2]) -> Value {
    let step = |order: usize, (kind, name): (&str, &str)| {
        json!({"order": order, "timeout": "60s", "remediationTemplate":
            {"apiVersion": "provider.test/v1", "kind": format!("{kind}Template"), "name": name, "namespace": "provider"}})
    };
    json!([step(1, templates[0]), step(2, templates[1])])
}

/// Reboots a node, and then turns its power off and on.
pub fn two_steps() -> Value {
    let steps = steps([("RebootRemediation", "reboot"), ("PowerRemediation", "power")]);
    json!({"remediationTemplate": null, "escalatingRemediations": steps})
}

async fn names(stage: &Stage, kind: &str) -> Vec<String> {
    let all = stage.objects_api(kind).list(&ListParams::default()).await.expect("they can be listed");
    all.items.into_iter().filter_map(|object| object.metadata.name).collect()
}

pub async fn until_powered(stage: &Stage, within: Duration, expected: &[&str]) {
    until(within, &format!("the second step is taken on {expected:?}"), || async {
        (names(stage, "PowerRemediation").await == expected).then_some(())
    })
    .await;
}

/// The first step is marked with when it was given up.
pub async fn until_given_up(stage: &Stage, within: Duration, node: &str) {
    let marked = until(within, &format!("the first step of {node} is marked"), || async {
        annotation(&stage.remediations_api().get(node).await.ok()?, TIMED_OUT).map(str::to_owned)
    })
    .await;
    assert!(marked.parse::<jiff::Timestamp>().is_ok(), "{marked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_step_follows_a_failure_at_once_and_a_time_out_in_time() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.power_provider().await;
    stage.nodes(4).await;
    stage.check_with("workers", "50%", two_steps()).await;
    let kubeconfig = stage.account().await;
    let controller = stage.controller_with("controller", &kubeconfig, &["--metrics-bind-address=127.0.0.1:0"]);
    stage.condition("n1", "Ready", "False", 60).await;
    stage.condition("n2", "Ready", "False", 60).await;
    stage.until_remediations(&["n1", "n2"]).await;

    // Its provider gives up on n1; n2 is heard of no more.
    stage.provider_says("RebootRemediation", "n1", "Succeeded", "False").await;
    until_powered(&stage, SOON, &["n1"]).await;
    let failed = stage.remediations_api().get("n1").await.expect("the first step stays");
    until_given_up(&stage, SOON, "n1").await;
    let began_at = created_at(&failed);
    stage.provider_says("PowerRemediation", "n1", "Succeeded", "False").await;
    stage.until_held("workers", "n1", "by hand").await;
    stage.until_event("NoTemplateLeft", "n1").await;

    // What runs may be neither taken away nor exchanged.
    let refused = stage.checks_api().delete("workers", &DeleteParams::default()).await.expect_err("remediations run");
    assert!(refused.to_string().contains("deletion prohibited due to running remediation"), "{refused}");
    let exchanged = steps([("PowerRemediation", "power"), ("RebootRemediation", "reboot")]);
    let refused = stage.change_check("workers", json!({"spec": {"escalatingRemediations": exchanged}})).await;
    let refused = refused.expect_err("remediations run");
    assert!(refused.to_string().contains("update prohibited due to running remediation"), "{refused}");

    until_powered(&stage, Duration::from_secs(75), &["n1", "n2"]).await;
    let second = stage.objects_api("PowerRemediation").get("n2").await.expect("it exists");
    let waited = created_at(&second).duration_since(created_at(&stage.remediations_api().get("n2").await.expect("it stays")));
    assert!(waited >= SignedDuration::from_secs(60) && waited < SignedDuration::from_secs(66), "{waited} since {began_at}");
    let status = stage
        .until_status("workers", "both steps are told", |status| {
            listed(status, "n2")["remediations"].as_array().map(Vec::len) == Some(2)
        })
        .await;
    let remediations = &listed(&status, "n2")["remediations"];
    let told = |at: usize| (remediations[at]["templateName"].clone(), remediations[at]["timedOut"].is_string());
    assert_eq!((told(0), told(1)), ((json!("reboot"), true), (json!("power"), false)), "{status}");
    assert!(annotation(&stage.remediations_api().get("n2").await.expect("it stays"), TIMED_OUT).is_some());
    assert!(annotation(&second, TIMED_OUT).is_none());

    let metrics = address(&controller, "serving metrics").await;
    assert!(get(&metrics, "/metrics").await.starts_with("HTTP/1.1 200"));
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "True", 0).await;
    }
    stage.until_remediations(&[]).await;
    until_powered(&stage, SOON, &[]).await;
    stage.until_status("workers", "all is well", |status| status["healthyNodes"] == 4).await;
}

/// A provider that knows a node by the name of its object has one at a time; one that allows several has all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_steps_of_one_kind_make_room_or_stand_side_by_side() {
    let Some(stage) = stage(Cluster::builder()).await else { return };
    stage.nodes(2).await;
    for (name, annotations) in [
        ("soft", json!({})),
        ("hard", json!({})),
        ("many-soft", json!({"remediation.medik8s.io/multiple-templates-support": "true"})),
        ("many-hard", json!({"remediation.medik8s.io/multiple-templates-support": "true"})),
    ] {
        let metadata = json!({"name": name, "namespace": "provider", "annotations": annotations});
        let template = json!({"apiVersion": "provider.test/v1", "kind": "RebootRemediationTemplate", "metadata": metadata,
            "spec": {"template": {"spec": {"method": name}}}});
        stage.apply(&template.to_string()).await;
    }
    for (check, node, templates) in [("one", "n1", ["soft", "hard"]), ("many", "n2", ["many-soft", "many-hard"])] {
        stage.change_node(node, json!({"metadata": {"labels": {"pool": check}}})).await;
        let fields = json!({"remediationTemplate": null, "selector": {"matchLabels": {"pool": check}},
            "escalatingRemediations": steps(templates.map(|template| ("RebootRemediation", template)))});
        stage.check_with(check, "1", fields).await;
    }
    let kubeconfig = stage.account().await;
    let _controller = stage.controller("controller", &kubeconfig);
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "False", 60).await;
    }
    let names = by_template(&stage, &["many-soft", "soft"]).await;
    assert!(names.contains(&"n1".to_owned()) && !names.contains(&"n2".to_owned()), "{names:?}");
    for name in &names {
        stage.provider_says("RebootRemediation", name, "Succeeded", "False").await;
    }
    let names = by_template(&stage, &["hard", "many-hard", "many-soft"]).await;
    assert!(names.contains(&"n1".to_owned()), "{names:?}");
    let status = stage
        .until_status("one", "both steps are told", |status| {
            listed(status, "n1")["remediations"].as_array().map(Vec::len) == Some(2)
        })
        .await;
    assert!(listed(&status, "n1")["remediations"][0]["timedOut"].is_string(), "{status}");
    // Another failure of both: nothing is left to try.
    for name in &names {
        stage.provider_says("RebootRemediation", name, "Succeeded", "False").await;
    }
    stage.until_held("one", "n1", "by hand").await;
    stage.until_held("many", "n2", "by hand").await;
    for node in ["n1", "n2"] {
        stage.condition(node, "Ready", "True", 0).await;
    }
    stage.until_remediations(&[]).await;
}

/// Names of all remediations, when they are of these templates.
async fn by_template(stage: &Stage, templates: &[&str]) -> Vec<String> {
    until(SOON, &format!("the remediations are of {templates:?}"), || async {
        let all = stage.remediations_api().list(&ListParams::default()).await.ok()?.items;
        let mut found: Vec<&str> = all.iter().filter_map(|object| annotation(object, TEMPLATE_NAME)).collect();
        found.sort_unstable();
        (found == templates).then(|| all.iter().filter_map(|object| object.metadata.name.clone()).collect())
    })
    .await
}
