//! An external controller repairs, by objects made from a template.

use std::time::Duration;

use resus_harness::{Cluster, until};
use serde_json::{Value, json};

use super::check::check;
use super::dialect::Dialect;
use super::site::{CLUSTER, Site, site};
use crate::stage::annotation;

/// A template that arrives is used within so long.
const PICKED_UP_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remediation_is_made_and_removed_in_v1alpha3() {
    a_remediation_is_made_and_removed(Dialect::V1alpha3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remediation_is_made_and_removed_in_v1beta1() {
    a_remediation_is_made_and_removed(Dialect::V1beta1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remediation_is_made_and_removed_in_v1beta2() {
    a_remediation_is_made_and_removed(Dialect::V1beta2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remediation_is_made_and_removed_on_openshift() {
    a_remediation_is_made_and_removed(Dialect::OpenShift).await;
}

async fn a_remediation_is_made_and_removed(dialect: Dialect) {
    let Some(site) = site(dialect, Cluster::builder()).await else { return };
    site.machines(5).await;
    site.check(&check("workers").at_most(2).by_template()).await;
    let _controller = site.controller().await;
    // The counters are those of the threshold alone, whatever else keeps repairs from starting.
    site.until_counters("workers", [5, 5, 2]).await;

    // Without its template it does nothing at all: to fall back to the owner would be to lose the machine.
    site.breaks("n1").await;
    site.until_counters("workers", [5, 4, 1]).await;
    let missing = "False ExternalRemediationTemplateNotFound";
    site.until_told("workers", "ExternalRemediationTemplateAvailable", missing, "reboot").await;
    site.until_told("workers", "RemediationAllowed", "False RemediationTemplateUnavailable", "").await;
    site.until_event("RemediationTemplateUnavailable", "MachineHealthCheck workers", "reboot").await;
    site.stays_untouched(5).await;

    site.template().await;
    until(PICKED_UP_WITHIN, "it is used", || async { (site.remediations().await == ["m1"]).then_some(()) }).await;
    is_as_remediators_want_it(&site, "m1").await;
    site.until_says("MachineHealthCheck", "workers", "ExternalRemediationTemplateAvailable", &[]).await;
    site.until_counters("workers", [5, 4, 1]).await;
    if dialect.has_clusters() {
        let waits: Vec<&str> = dialect.each([Some("False WaitingForRemediation"), None]).into_iter().flatten().collect();
        site.until_says("Machine", "m1", "ExternallyRemediated", &waits).await;
        assert_eq!(site.says("Machine", "m1", "OwnerRemediated").await, [""; 0], "its owner has nothing to do with it");
    }

    // What runs does not keep the next from starting; too many do, and then a recovery still ends what runs.
    site.breaks("n2").await;
    site.until_remediations(&["m1", "m2"]).await;
    site.breaks("n3").await;
    site.breaks("n4").await;
    site.until_counters("workers", [5, 1, 0]).await;
    site.recovers("n1").await;
    site.until_remediations(&["m2"]).await;
    site.until_told("workers", "RemediationAllowed", "False TooManyUnhealthy", "").await;
    site.until_event("RemediationRemoved", "Machine m1", "RebootRemediation").await;

    for node in ["n2", "n3", "n4"] {
        site.recovers(node).await;
    }
    site.until_remediations(&[]).await;
    site.until_counters("workers", [5, 5, 2]).await;
    if dialect.has_clusters() {
        let well = dialect.each(["True HealthCheckSucceeded", "True"]);
        for machine in ["m1", "m2", "m5"] {
            site.until_says("Machine", machine, "ExternallyRemediated", &[]).await;
            site.until_says("Machine", machine, "HealthCheckSucceeded", &well).await;
        }
    }
    assert_eq!(site.names().await.len(), 5);
}

/// Name, namespace and owner are the contract; the rest says where it comes from.
async fn is_as_remediators_want_it(site: &Site, machine: &str) {
    let made = site.remediations_api().get(machine).await.expect("it is in the namespace of the machine");
    let uid = site.get("Machine", machine).await["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": site.dialect.api_version(), "kind": "Machine", "name": machine, "uid": uid}]);
    assert_eq!(json!(made.metadata.owner_references), owner, "one, that is no controller");
    let cloned_from = |what: &str| format!("{}/cloned-from-{what}", site.dialect.group());
    assert_eq!(annotation(&made, &cloned_from("name")), Some("reboot"));
    assert_eq!(annotation(&made, &cloned_from("groupkind")), Some("RebootRemediationTemplate.provider.test"));
    let mut labels = json!({"from": "template"});
    if site.dialect.has_clusters() {
        labels["cluster.x-k8s.io/cluster-name"] = json!(CLUSTER);
    }
    assert_eq!(json!(made.metadata.labels), labels);
    assert_eq!(made.data.get("spec"), Some(&json!({"method": "power-cycle"})));
    assert_eq!(made.data.get("status"), None::<&Value>);
}
