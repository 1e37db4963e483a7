//! Where nothing happens, nothing is written.

use std::time::Duration;

use jiff::Timestamp;
use resus_harness::{Cluster, holds_for};
use serde_json::json;

use super::check::check;
use super::dialect::Dialect;
use super::site::site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_rest_cost_nothing_but_the_lease() {
    let Some(site) = site(Dialect::V1beta2, Cluster::builder().audit(true)).await else { return };
    site.machines(9).await;
    site.template().await;
    let pool = |name: &str| json!({"matchLabels": {"pool": name}});
    for (machine, label) in [("m1", "two"), ("m2", "two"), ("m3", "two"), ("m4", "three"), ("m5", "three"), ("m6", "three")] {
        site.change("Machine", machine, json!({"metadata": {"labels": {"pool": label}}})).await;
    }
    // One check is well, one waits for an owner, one for a remediation, and too many are ill under none of them.
    site.check(&check("one").at_most(1)).await;
    site.check(&check("two").selector(pool("two"))).await;
    site.check(&check("three").selector(pool("three")).by_template()).await;
    let controller = site.controller().await;
    for check in ["two", "three"] {
        site.until_counters(check, [3, 3, 3]).await;
    }
    site.breaks("n1").await;
    site.breaks("n4").await;
    site.until_asked(&["m1"]).await;
    site.until_remediations(&["m4"]).await;
    for check in ["two", "three"] {
        site.until_counters(check, [3, 2, 2]).await;
    }
    holds_for(Duration::from_secs(3), "settles", || async { Ok(()) }).await;

    let began_at = Timestamp::now();
    holds_for(Duration::from_secs(30), "the controller runs", || async {
        if controller.is_running() { Ok(()) } else { Err(controller.last_lines(20)) }
    })
    .await;
    let entries = site.stage.cluster.audit_log().expect("the audit log can be read");
    let ours = entries.iter().filter(|entry| entry.user.ends_with(":resus-controller") && entry.at >= began_at);
    let (leases, others): (Vec<_>, Vec<_>) =
        ours.filter(|entry| entry.verb != "watch").partition(|entry| entry.uri.contains("/leases/resus-controller"));
    assert!((12..=18).contains(&leases.len()), "one renewal each two seconds, not {}", leases.len());
    assert!(others.len() <= 1 && others.iter().all(|entry| entry.verb == "get"), "{others:#?}");
}
