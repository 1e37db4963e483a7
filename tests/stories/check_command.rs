//! `resus check`, against definitions that others installed.

use std::process::Command;
use std::time::Duration;

use resus_harness::{Builder, Said, cluster_api, run};
use serde_json::{Value, json};

use crate::stage::{Stage, bare_stage};

const ANNOTATED: &str = r#"
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata:
  name: metal
  namespace: default
  annotations:
    machine.openshift.io/remediation-strategy: external-baremetal
    mine: stays
spec:
  selector: {}
  maxUnhealthy: 40%
  unhealthyConditions:
    - {type: Ready, status: Unknown, timeout: 300s}
"#;

async fn resus_check(stage: &Stage, args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resus"));
    command.arg("check").args(args).arg("--kubeconfig").arg(stage.cluster.admin_kubeconfig());
    run(&command, Duration::from_secs(30)).await.expect("it comes to an end")
}

fn file(stage: &Stage, name: &str, text: &str) -> String {
    let path = stage.cluster.folder().join(name);
    std::fs::write(&path, text).expect("the folder of the story can be written to");
    path.to_str().expect("it is named in ASCII").to_owned()
}

/// A dry run must never act for real because the definition that is installed drops the word.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_fields_would_be_dropped_is_refused() {
    let Some(stage) = bare_stage(Builder::default()).await else { return };
    let crd = "crd/nodehealthchecks.remediation.medik8s.io";
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/mode";
    let patch = json!([{"op": "remove", "path": path}]).to_string();
    let yaml = crate::stage::check_yaml("workers", 5, "40%").replace("spec:\n", "spec:\n  mode: DryRun\n  modus: x\n");
    let with_both = file(&stage, "check.yaml", &yaml);

    let said = resus_check(&stage, &[&with_both]).await;
    assert!(!said.status.success(), "{}", said.stdout);
    assert!(said.stdout.contains("spec.modus would be dropped"), "{}", said.stdout);
    assert!(!said.stdout.contains("spec.mode would"), "ours has it: {}", said.stdout);

    stage.kubectl(&["patch", crd, "--type=json", "-p", &patch]).await;
    let told = resus_harness::until(crate::stage::SOON, "the field is told of", || async {
        let said = resus_check(&stage, &[&with_both]).await;
        said.stdout.contains("spec.mode would be dropped").then_some(said.stdout)
    })
    .await;
    assert!(told.contains("write it as the annotation resus.dev/mode"), "{told}");
    assert_eq!(stage.kubectl(&["get", "nodehealthchecks", "-o", "name"]).await, "", "nothing was stored");

    let good = file(&stage, "good.yaml", &crate::stage::check_yaml("workers", 5, "40%"));
    let said = resus_check(&stage, &[&good]).await;
    assert!(said.status.success(), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("every field is kept"), "{}", said.stdout);
    let none = file(&stage, "none.yaml", "kind: ConfigMap\napiVersion: v1\n");
    assert!(!resus_check(&stage, &[&none]).await.status.success(), "a file without any check is a mistake");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_that_still_use_the_annotation_are_listed_and_rewritten() {
    let Some(stage) = bare_stage(Builder::default()).await else { return };
    let said = resus_check(&stage, &[]).await;
    assert!(said.stdout.contains("no MachineHealthCheck uses the annotation"), "without the API: {}{}", said.stdout, said.stderr);

    let parts = cluster_api().await.expect("the definitions can be had");
    stage.cluster.apply_file(&parts.join("crds/openshift")).await.expect("they are accepted");
    stage.established("machinehealthchecks.machine.openshift.io").await;
    stage.apply(ANNOTATED).await;
    let said = resus_check(&stage, &[]).await;
    assert!(said.stdout.starts_with("MachineHealthCheck default/metal: the annotation"), "{}{}", said.stdout, said.stderr);

    let said = resus_check(&stage, &["--rewrite"]).await;
    assert!(said.status.success(), "{}", said.stderr);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&said.stdout).expect("it is YAML");
    let [template, check] = &objects[..] else { panic!("a template and a check: {objects:?}") };
    assert_eq!(template["kind"], "Metal3RemediationTemplate");
    assert_eq!(check["metadata"], json!({"name": "metal", "namespace": "default", "annotations": {"mine": "stays"}}));
    assert_eq!(check["spec"]["remediationTemplate"]["name"], template["metadata"]["name"]);
    assert_eq!(check["spec"]["maxUnhealthy"], "40%");

    // Accepted by a definition that is not ours, but not by us.
    let text = ANNOTATED.replace(
        "  selector: {}",
        "  selector: {}\n  remediationTemplate: {apiVersion: a.test/v1, kind: AMachineTemplate, name: t}",
    );
    let wrong = file(&stage, "wrong.yaml", &text);
    let wrong = resus_check(&stage, &[&wrong]).await;
    assert!(!wrong.status.success() && wrong.stdout.contains("of which machines themselves are made"), "{}", wrong.stdout);

    // What is printed can be applied as it stands.
    let text = said.stdout.split("---\n").last().unwrap_or_default().to_owned();
    let rewritten = file(&stage, "rewritten.yaml", &text);
    stage.kubectl(&["replace", "-f", &rewritten]).await;
    let said = resus_check(&stage, &[]).await;
    assert!(said.stdout.contains("no MachineHealthCheck uses the annotation"), "{}", said.stdout);
}
