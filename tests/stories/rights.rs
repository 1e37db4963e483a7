//! What if a provider's role does not grant all that we would like?

use resus_harness::{Cluster, until};
use serde_json::{Value, json};

use crate::stage::{SOON, annotation, stage};

/// As many providers ship it: enough for the Go controllers, which list and update.
const LEAN_ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: provider-remediation
rules:
  - apiGroups: [provider.test]
    resources: [rebootremediations, rebootremediationtemplates]
    verbs: [get, list, create, update, delete]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_whose_role_lacks_watch_and_patch_works_all_the_same() {
    let Some(stage) = stage(Cluster::builder().lacks_rights()).await else { return };
    stage.nodes(3).await;
    stage.check_with("workers", "1", json!({"healthyDelay": "-1s"})).await;
    let kubeconfig = stage.account().await;
    stage.apply(LEAN_ROLE).await;
    let _controller = stage.controller("controller", &kubeconfig);
    stage.until_status("workers", "it says that it may not watch", |status| limits(status).contains("watch")).await;
    stage.condition("n1", "Ready", "False", 60).await;
    stage.until_remediations(&["n1"]).await;
    stage.condition("n1", "Ready", "True", 0).await;
    until(SOON, "the remediation is marked by an update", || async {
        let object = stage.remediations_api().get("n1").await.ok()?;
        annotation(&object, "remediation.medik8s.io/healthy-delay").map(|_| ())
    })
    .await;
    stage.until_status("workers", "it says that it may not patch", |status| limits(status).contains("patch")).await;
    stage.change_check("workers", json!({"spec": {"healthyDelay": null}})).await.expect("it may be changed");
    stage.until_remediations(&[]).await;
}

fn limits(status: &Value) -> &str {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let limited = conditions.iter().find(|condition| condition["type"] == "LimitedRights");
    limited.and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}
