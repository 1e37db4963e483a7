//! While a remediation runs, what it was made from stays, and so does the check.

use std::time::Duration;

use http::Method;
use resus_harness::until;
use serde_json::{Value, json};

use crate::check;
use crate::good::{base, escalation, step, template};
use crate::side::{Answer, CHECKS, Side};

/// Far more than a real server needs to learn of a policy.
pub const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_server_keeps_what_a_running_remediation_needs() {
    what_runs_is_kept(&mut Side::embedded()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_keeps_what_a_running_remediation_needs() {
    let Some(mut side) = Side::real_or_skip().await else { return };
    what_runs_is_kept(&mut side).await;
}

async fn what_runs_is_kept(side: &mut Side) {
    let running = json!([{"name": "n0"}, {"name": "n1", "remediations": [{"resource": {"kind": "Reboot", "name": "n1"}}]}]);
    let mut selecting = base();
    selecting["selector"] = json!({"matchLabels": {"a": "b"}});
    for (name, spec) in [("single", &base()), ("several", &escalation()), ("selecting", &selecting)] {
        let created = side.create(CHECKS, &check(name, spec)).await;
        assert!(created.is_ok(), "{}", created.message());
        assert!(remediates(side, name, json!([{"name": "n1"}])).await.is_ok());
    }
    changes(side, true).await;
    for name in ["single", "several", "selecting"] {
        let answer = remediates(side, name, running.clone()).await;
        assert!(answer.is_ok(), "{}", answer.message());
    }
    wait_for_the_policy(side).await;
    changes(side, false).await;
    others_change(side).await;
    for path in ["", "/single"] {
        let answer = side.ask(Method::DELETE, &format!("{CHECKS}{path}"), "application/json", &Value::Null).await;
        let says = "deletion prohibited due to running remediation: wait until";
        assert!(answer.code == 403 && answer.message().contains(says), "{path}: {} {}", answer.code, answer.message());
        let way_out = "kubectl delete validatingadmissionpolicybinding nodehealthcheck-deletion.resus.dev";
        assert!(answer.message().contains(way_out), "{}", answer.message());
    }
    for name in ["single", "several", "selecting"] {
        // What it shows last is not kept for ever: the status may change all the time.
        assert!(remediates(side, name, json!([{"name": "n1", "remediations": []}])).await.is_ok());
    }
    changes(side, true).await;
    let answer = side.ask(Method::DELETE, &format!("{CHECKS}/single"), "application/json", &Value::Null).await;
    assert!(answer.is_ok(), "{}", answer.message());
}

async fn remediates(side: &mut Side, name: &str, nodes: Value) -> Answer {
    side.patch(&format!("{CHECKS}/{name}/status"), &json!({"status": {"unhealthyNodes": nodes}})).await
}

/// Tries each change, and leaves everything as it is.
async fn changes(side: &mut Side, allowed: bool) {
    let selector = json!({"selector": {"matchLabels": {"a": "c"}}});
    let other = json!({"remediationTemplate": {"name": "other"}});
    let escalated = json!({"remediationTemplate": null, "escalatingRemediations": [step("ATemplate", 1, "60s")]});
    let de_escalated = json!({"remediationTemplate": template("ATemplate"), "escalatingRemediations": null});
    let slower = json!({"escalatingRemediations": [step("RebootRemediationTemplate", 2, "6m")]});
    for (name, patch, field) in [
        ("single", &selector, "selector"),
        ("selecting", &selector, "selector"),
        ("selecting", &json!({"selector": null}), "selector"),
        ("single", &other, "remediationTemplate"),
        ("single", &escalated, "remediationTemplate"),
        ("single", &escalated, "escalatingRemediations"),
        ("several", &de_escalated, "remediationTemplate"),
        ("several", &de_escalated, "escalatingRemediations"),
        ("several", &slower, "escalatingRemediations"),
    ] {
        let answer = side.patch(&format!("{CHECKS}/{name}?dryRun=All"), &json!({"spec": patch})).await;
        let says = format!("{field} update prohibited due to running remediation: wait until");
        match allowed {
            true => assert!(answer.is_ok(), "{name} {patch}: {}", answer.message()),
            false => assert!(
                answer.code == 422 && answer.blames(&format!("spec.{field}"), &says),
                "{name} {patch}: {} {}",
                answer.code,
                answer.message()
            ),
        }
    }
}

/// Everything else may change at any time, and nothing at all.
async fn others_change(side: &mut Side) {
    for patch in [
        json!({"spec": {"pauseRequests": ["wait"], "maxUnhealthy": 3, "healthyDelay": "-1s", "mode": "DryRun"}}),
        json!({"spec": {"unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "1m"}]}}),
        json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["a.test/b"]}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"spec": {"remediationTemplate": {"name": "reboot"}}}),
        // Not by pretending that nothing runs: a change of the spec does not touch the status.
        json!({"status": {"unhealthyNodes": []}}),
    ] {
        let answer = side.patch(&format!("{CHECKS}/single"), &patch).await;
        assert!(answer.is_ok(), "{patch}: {}", answer.message());
    }
    let pretended = json!({"status": {"unhealthyNodes": []}, "spec": {"selector": {"matchLabels": {"a": "c"}}}});
    let answer = side.patch(&format!("{CHECKS}/single"), &pretended).await;
    assert!(answer.blames("spec.selector", "selector update prohibited"), "{} {}", answer.code, answer.message());
}

/// A real server hears of policies a moment after they are stored.
async fn wait_for_the_policy(side: &mut Side) {
    let Side::Real(client, _) = side else { return };
    until(SOON, "the policy is in force", || async {
        let request = http::Request::delete(format!("{CHECKS}/single?dryRun=All")).body(Vec::new().into());
        let response = client.send(request.expect("the path is well-formed")).await.expect("the server answers");
        (response.status() == 403).then_some(())
    })
    .await;
}
