//! Specs that are taken, each close to a mistake that is not.

use serde_json::{Value, json};

use crate::side::CHECKS;

pub fn template(kind: &str) -> Value {
    json!({"apiVersion": "provider.test/v1", "kind": kind, "name": "reboot", "namespace": "provider"})
}

pub fn step(kind: &str, order: i64, timeout: &str) -> Value {
    json!({"remediationTemplate": template(kind), "order": order, "timeout": timeout})
}

/// Nothing but what has to be there.
pub fn base() -> Value {
    json!({"remediationTemplate": template("RebootRemediationTemplate")})
}

pub fn escalation() -> Value {
    json!({"escalatingRemediations": [step("RebootRemediationTemplate", 2, "5m"), step("ReplaceRemediationTemplate", 1, "1h30m")]})
}

/// Merged into a good spec, as the bad ones are.
pub fn all() -> Vec<Value> {
    let steps = |steps: Value| json!({"remediationTemplate": null, "escalatingRemediations": steps});
    let expressions = |all: Value| json!({"selector": {"matchExpressions": all}});
    let conditions = |all: Value| json!({"unhealthyConditions": all});
    vec![
        json!({}),
        json!({"minHealthy": 0}),
        json!({"minHealthy": "51%"}),
        json!({"maxUnhealthy": "0"}),
        json!({"maxUnhealthy": "3"}),
        json!({"maxUnhealthy": "100%"}),
        json!({"maxUnhealthy": 100_000}),
        json!({"minHealthy": 1, "remediationTemplate": {"kind": "MachineDeletionRemediationTemplate"}}),
        json!({"remediationTemplate": {"kind": "MachineDeletionRemediationTemplate"}}),
        json!({"maxUnhealthy": 1, "remediationTemplate": {"kind": "MyMachineDeletionRemediationTemplate"}}),
        json!({"escalatingRemediations": []}),
        json!({"remediationTemplate": {"namespace": null}}),
        json!({"remediationTemplate": {"namespace": ""}}),
        json!({"remediationTemplate": {"uid": "u", "resourceVersion": "1", "fieldPath": "spec"}}),
        steps(json!([step("ATemplate", 0, "60s")])),
        steps(json!([step("ATemplate", -1, "1m"), step("ATemplate", 5, "1.5h"), step("BTemplate", 3, "59s1000ms")])),
        json!({"minHealthy": 1, "remediationTemplate": null, "escalatingRemediations": [
            step("MachineDeletionRemediationTemplate", 1, "60s"),
        ]}),
        steps(Value::Array((0..20).map(|order| step("ATemplate", order, "60s")).collect())),
        json!({"selector": {}}),
        json!({"selector": {"matchLabels": {"node-role.kubernetes.io/worker": "", "zone": "a_b.C-1"}}}),
        expressions(
            json!([{"key": "k", "operator": "In", "values": ["a", ""]}, {"key": "k", "operator": "NotIn", "values": ["b"]}]),
        ),
        expressions(json!([{"key": "a.b/C_d", "operator": "Exists"}, {"key": "k", "operator": "DoesNotExist", "values": []}])),
        conditions(json!([{"type": "Ready", "status": "False", "duration": "0s"}])),
        conditions(
            json!([{"type": "Ready", "status": "False", "duration": "1h2m3s4ms5us6ns"}, {"type": "a.b/C", "status": "Odd", "duration": "1.5h"}]),
        ),
        conditions(json!([{"type": "Ready", "status": "False", "duration": "2562047h"}])),
        conditions(json!([{"type": "Ready", "status": "False", "duration": "1.5h30µs"}])),
        steps(json!([step("ATemplate", 1, "60000000.5µs")])),
        json!({"repeat": {"max": 1, "within": "1µs", "backoff": "1µs", "maxBackoff": "2µs"}}),
        json!({"pauseRequests": []}),
        json!({"pauseRequests": ["upgrade by alice", ""]}),
        json!({"healthyDelay": "0s"}),
        json!({"healthyDelay": "10m"}),
        json!({"healthyDelay": "-1.5h30m"}),
        json!({"stormCooldownDuration": "0s"}),
        json!({"stormCooldownDuration": "30m"}),
        json!({"topologyKey": "topology.kubernetes.io/zone"}),
        json!({"topologyKey": "rack"}),
        json!({"nodeStartupTimeout": "1ns"}),
        json!({"mode": "Act"}),
        json!({"mode": "DryRun"}),
        json!({"repeat": {"max": 1, "within": "1h"}}),
        json!({"repeat": {"max": 100, "within": "24h", "backoff": "5m", "maxBackoff": "5m"}}),
        json!({"repeat": {"max": 3, "within": "1h", "backoff": "0s"}}),
    ]
}

/// What users have, as they have it.
pub const USERS: [(&str, &str); 8] = [
    (CHECKS, MEDIK8S),
    (CHECKS, ESCALATING),
    (CHECKS, DEFAULT_OF_THE_SEED),
    (CHECKS, SAMPLE_OF_THE_SEED),
    (TEMPLATES, TEMPLATE_OF_THE_SEED),
    (TEMPLATES, NODE_DELETION),
    (REMEDIATIONS, REMEDIATION_OF_THE_SEED),
    (
        REMEDIATIONS,
        "{apiVersion: poison-pill.medik8s.io/v1alpha1, kind: PoisonPillRemediation, metadata: {name: n1}, spec: {remediationStrategy: OutOfServiceTaint, requireAssured: true}}",
    ),
];

pub const TEMPLATES: &str = "/apis/poison-pill.medik8s.io/v1alpha1/namespaces/default/poisonpillremediationtemplates";
pub const REMEDIATIONS: &str = "/apis/poison-pill.medik8s.io/v1alpha1/namespaces/default/poisonpillremediations";

const MEDIK8S: &str = r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: nodehealthcheck-sample
spec:
  minHealthy: 51%
  pauseRequests: []
  remediationTemplate:
    apiVersion: self-node-remediation.medik8s.io/v1alpha1
    kind: SelfNodeRemediationTemplate
    name: self-node-remediation-automatic-strategy-template
    namespace: openshift-workload-availability
  selector:
    matchExpressions:
      - key: node-role.kubernetes.io/control-plane
        operator: DoesNotExist
      - key: node-role.kubernetes.io/master
        operator: DoesNotExist
  unhealthyConditions:
    - type: Ready
      status: "False"
      duration: 5m0s
    - type: Ready
      status: Unknown
      duration: 5m0s
"#;

const ESCALATING: &str = r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: nodehealthcheck-escalating
spec:
  selector:
    matchLabels:
      node-role.kubernetes.io/worker: ""
  maxUnhealthy: 40%
  stormCooldownDuration: 15m
  healthyDelay: -1s
  escalatingRemediations:
    - remediationTemplate:
        apiVersion: self-node-remediation.medik8s.io/v1alpha1
        kind: SelfNodeRemediationTemplate
        name: self-node-remediation-resource-deletion-template
        namespace: openshift-workload-availability
      order: 1
      timeout: 300s
    - remediationTemplate:
        apiVersion: fence-agents-remediation.medik8s.io/v1alpha1
        kind: FenceAgentsRemediationTemplate
        name: fence-agents-template
        namespace: openshift-workload-availability
      order: 2
      timeout: 10m0s
"#;

const DEFAULT_OF_THE_SEED: &str = r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: nhc-worker-default
spec:
  # mandatory
  remediationTemplate:
    kind: PoisonPillRemediationTemplate
    apiVersion: medik8s.io/v1alpha1
    name: poison-pill-default-template
    namespace: poison-pill
  # see k8s doc on selectors https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#resources-that-support-set-based-requirements
  selector:
    matchExpressions:
      - key: node-role.kubernetes.io/worker
        operator: Exists
  maxUnhealthy: "49%"
  unhealthyConditions:
    - type: Ready
      status: "False"
      duration: 300s
    - type: Ready
      status: Unknown
      duration: 300s
"#;

const SAMPLE_OF_THE_SEED: &str = r#"
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata:
  name: nodehealthcheck-sameple
spec:
  remediationTemplate:
    kind: PoisonPillRemediationTemplate
    apiVersion: poison-pill.medik8s.io/v1alpha1
    name: group-x
    namespace: default
"#;

const TEMPLATE_OF_THE_SEED: &str = r#"
apiVersion: poison-pill.medik8s.io/v1alpha1
kind: PoisonPillRemediationTemplate
metadata:
  name: group-x
  namespace: default
spec:
  template:
    spec: {}
"#;

const NODE_DELETION: &str = r#"
apiVersion: poison-pill.medik8s.io/v1alpha1
kind: PoisonPillRemediationTemplate
metadata:
  name: node-deletion
  namespace: default
spec:
  template:
    spec:
      remediationStrategy: NodeDeletion
"#;

/// With the kind spelled as its definition is; the owner's uid is filled in by whoever creates it.
const REMEDIATION_OF_THE_SEED: &str = r#"
apiVersion: poison-pill.medik8s.io/v1alpha1
kind: PoisonPillRemediation
metadata:
  # named after the target node
  name: worker-0-21
  namespace: default
  ownerReferences:
    - kind: NodeHealthCheck
      apiVersion: remediation.medik8s.io/v1alpha1
      name: nhc-worker-default
      uid: 00000000-0000-0000-0000-000000000000
spec: {}
"#;
