//! What a MachineHealthCheck asks for, in each of its dialects.

use std::time::Duration;

use resus_core::facts::{Amount, Status};
use resus_core::mhc::facts::{Budget, Dialect, MachineCheck, MachinePolicy, Repair};
use resus_k8s::observe;
use serde_json::{Value, json};

use crate::stage::Stage;

const WITH_DURATIONS: [Dialect; 3] = [Dialect::V1alpha3, Dialect::V1beta1, Dialect::OpenShift];
const ALL: [Dialect; 4] = [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift];

pub fn check(dialect: Dialect, annotations: &Value, spec: &Value) -> MachineCheck {
    let object = json!({"metadata": {"name": "c", "namespace": "n", "uid": "u", "annotations": annotations}, "spec": spec});
    observe::machine_check(object.to_string().as_bytes(), dialect).expect("its metadata is good")
}

/// A spec that is good, but for the fields that are given.
pub fn with(fields: &Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"pool": "a"}}});
    for (key, value) in fields.as_object().expect("fields are an object") {
        spec[key] = value.clone();
    }
    spec
}

fn policy(dialect: Dialect, fields: &Value) -> MachinePolicy {
    check(dialect, &json!({}), &with(fields)).policy.unwrap_or_else(|why| panic!("{dialect:?} {fields}: {}", why.0))
}

fn refusal(dialect: Dialect, fields: &Value) -> String {
    let policy = check(dialect, &json!({}), &with(fields)).policy;
    policy.expect_err(&format!("{dialect:?} {fields}")).0.to_string()
}

fn template(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name})
}

fn metal3() -> Value {
    template("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate", "t")
}

#[test]
fn a_check_with_nothing_but_a_selector_has_the_defaults_of_the_reference() {
    for dialect in ALL {
        let policy = policy(dialect, &json!({}));
        assert_eq!((policy.node_rules.len(), policy.machine_rules.len()), (0, 0));
        assert_eq!(policy.startup_timeout, Some(Duration::from_secs(600)), "{dialect:?}");
        assert_eq!(policy.budget, Budget::AtMost(Amount::Percent(100)), "{dialect:?}");
        let expected = if dialect == Dialect::OpenShift { Repair::Deletion } else { Repair::Owner };
        assert_eq!(policy.repair, expected, "{dialect:?}");
    }
}

#[test]
fn rules_are_the_same_in_durations_and_in_seconds() {
    let rules = |timeout: &Value, field: &str| json!([{"type": "Ready", "status": "Unknown", field: timeout}, {"type": "Disk", "status": "odd", field: timeout}]);
    for dialect in ALL {
        let policy = match dialect {
            Dialect::V1beta2 => {
                let rules = rules(&json!(90), "timeoutSeconds");
                policy(
                    dialect,
                    &json!({"checks": {"unhealthyNodeConditions": rules, "unhealthyMachineConditions": [{"type": "NodeHealthy", "status": "False", "timeoutSeconds": 0}]}}),
                )
            }
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => {
                let rules = rules(&json!("1.5m"), "timeout");
                policy(
                    dialect,
                    &json!({"unhealthyConditions": rules, "unhealthyMachineConditions": [{"type": "NodeHealthy", "status": "False", "timeout": "0"}]}),
                )
            }
        };
        let read: Vec<_> = policy.node_rules.iter().map(|rule| (&*rule.kind, &rule.status, rule.lasts_for)).collect();
        let odd = Status::Other("odd".into());
        let expected = [("Ready", &Status::Unknown, Duration::from_secs(90)), ("Disk", &odd, Duration::from_secs(90))];
        assert_eq!(read, expected, "{dialect:?}");
        let on_machines: Vec<_> = policy.machine_rules.iter().map(|rule| (&*rule.kind, rule.lasts_for)).collect();
        match dialect {
            Dialect::OpenShift => assert_eq!(on_machines, [], "it has none"),
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => assert_eq!(on_machines, [("NodeHealthy", Duration::ZERO)]),
        }
    }
}

#[test]
fn zero_switches_the_wait_for_a_node_off() {
    for dialect in WITH_DURATIONS {
        for (text, seconds) in [("0", None), ("0s", None), ("0h0m", None), ("20m", Some(1200)), ("1s", Some(1))] {
            let policy = policy(dialect, &json!({"nodeStartupTimeout": text}));
            assert_eq!(policy.startup_timeout, seconds.map(Duration::from_secs), "{dialect:?} {text}");
        }
    }
    for (number, seconds) in [(0, None), (30, Some(30))] {
        let policy = policy(Dialect::V1beta2, &json!({"checks": {"nodeStartupTimeoutSeconds": number}}));
        assert_eq!(policy.startup_timeout, seconds.map(Duration::from_secs), "{number}");
    }
}

#[test]
fn budgets_are_read_in_all_spellings() {
    use Amount::{Count, Percent};
    let given = |dialect, threshold: &Value, range: Option<&str>| match dialect {
        Dialect::V1beta2 => {
            json!({"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": threshold, "unhealthyInRange": range}}})
        }
        Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::OpenShift => json!({"maxUnhealthy": threshold, "unhealthyRange": range}),
    };
    for dialect in ALL {
        for (threshold, expected) in [
            (json!(null), Percent(100)),
            (json!(3), Count(3)),
            (json!("3"), Count(3)),
            (json!(0), Count(0)),
            (json!("40%"), Percent(40)),
            (json!("150%"), Percent(150)),
            (json!(99_999_999_999i64), Count(u32::MAX)),
        ] {
            let policy = policy(dialect, &given(dialect, &threshold, None));
            assert_eq!(policy.budget, Budget::AtMost(expected), "{dialect:?} {threshold}");
        }
        let both = policy(dialect, &given(dialect, &json!("40%"), Some("[1-3]"))).budget;
        match dialect {
            Dialect::OpenShift => assert_eq!(both, Budget::AtMost(Percent(40)), "it has no ranges"),
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => assert_eq!(both, Budget::Between { min: 1, max: 3 }),
        }
        match dialect {
            Dialect::OpenShift => {
                let clamped = policy(dialect, &given(dialect, &json!(-1), None)).budget;
                assert_eq!(clamped, Budget::AtMost(Count(0)), "as its own controller does it");
            }
            Dialect::V1alpha3 | Dialect::V1beta1 | Dialect::V1beta2 => {
                let why = refusal(dialect, &given(dialect, &json!(-1), None));
                assert!(why.contains("must not be negative: -1: write"), "{why}");
                for (range, why) in ["[3-1]", "[1-3", "1-3", "[a-b]", "[-1]", "[1-]", "[+1-2]", "[1-99999999999999]", ""]
                    .map(|range| (range, refusal(dialect, &given(dialect, &json!(null), Some(range)))))
                {
                    assert!(why.contains(&format!("is {range:?}: write two numbers in brackets")), "{why}");
                }
            }
        }
    }
}

#[test]
fn a_template_wins_over_every_other_way() {
    let expected = Repair::Template {
        kind: resus_core::facts::Kind {
            api_version: "infrastructure.cluster.x-k8s.io/v1beta1".into(),
            kind: "Metal3RemediationTemplate".into(),
        },
        name: "t".into(),
    };
    let mut elsewhere = metal3();
    elsewhere["namespace"] = json!("Not A Namespace");
    let strategy = json!({"machine.openshift.io/remediation-strategy": "external-baremetal"});
    for dialect in WITH_DURATIONS {
        for name in ["remediationTemplate", "externalRemediationTemplate"] {
            let read = check(dialect, &strategy, &with(&json!({name: elsewhere}))).policy.expect("it is valid");
            assert_eq!(read.repair, expected, "{dialect:?} {name}: its namespace does not matter");
        }
        let both = refusal(dialect, &json!({"remediationTemplate": metal3(), "externalRemediationTemplate": metal3()}));
        assert!(both.contains("spec.remediationTemplate and spec.externalRemediationTemplate are two names"), "{both}");
    }
    assert_eq!(policy(Dialect::V1beta2, &json!({"remediation": {"templateRef": metal3()}})).repair, expected);

    for (annotations, expected) in [
        (strategy.clone(), Repair::PowerCycle),
        (json!({"machine.openshift.io/remediation-strategy": "other"}), Repair::Deletion),
        (json!({}), Repair::Deletion),
    ] {
        let read = check(Dialect::OpenShift, &annotations, &with(&json!({}))).policy.expect("it is valid");
        assert_eq!(read.repair, expected, "{annotations}");
    }
    let read = check(Dialect::V1beta1, &strategy, &with(&json!({}))).policy.expect("it is valid");
    assert_eq!(read.repair, Repair::Owner, "the annotation is OpenShift's");
}

#[test]
fn only_openshift_selects_all() {
    for selector in [json!(null), json!({}), json!({"matchLabels": {}, "matchExpressions": []})] {
        for dialect in [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2] {
            let why = refusal(dialect, &json!({"selector": selector}));
            assert!(why.contains("spec.selector must not be empty: write matchLabels"), "{why}");
        }
        assert_eq!(policy(Dialect::OpenShift, &json!({"selector": selector})).selector.0.len(), 0);
    }
}

#[test]
fn a_check_selects_in_its_own_cluster() {
    let labels = |cluster: &str| json!({"matchLabels": {"cluster.x-k8s.io/cluster-name": cluster}});
    for dialect in [Dialect::V1alpha3, Dialect::V1beta1, Dialect::V1beta2] {
        let good = check(dialect, &json!({}), &json!({"clusterName": "one", "selector": labels("one")}));
        assert_eq!((good.cluster.as_deref(), good.policy.is_ok()), (Some("one"), true));
        let here = check(dialect, &json!({}), &json!({"selector": labels("two")}));
        assert_eq!((here.cluster, here.policy.is_ok()), (None, true), "nothing that it could contradict");
        let why = refusal(dialect, &json!({"clusterName": "one", "selector": labels("two")}));
        assert!(why.contains("cluster-name is \"two\", but spec.clusterName is \"one\": write the same"), "{why}");
        for name in [json!(""), json!("a/b"), json!(5), json!(["one"])] {
            let why = refusal(dialect, &json!({"clusterName": name}));
            assert!(why.contains("spec.clusterName") && why.contains("write the name of a Cluster"), "{why}");
        }
    }
    let of_openshift = check(Dialect::OpenShift, &json!({}), &json!({"clusterName": "one"}));
    assert_eq!((of_openshift.cluster, of_openshift.policy.is_ok()), (None, true));
}

/// A schema refuses most of these already; a foreign one may not.
#[test]
fn a_bad_spec_is_a_sentence_that_names_the_field() {
    let rule = |timeout: &str| json!([{"type": "Ready", "status": "False", "timeout": timeout}]);
    for (fields, says) in [
        (json!({"selector": "pool=a"}), "spec.selector: "),
        (json!({"selector": {"matchLabels": {"pool": 5}}}), "write matchLabels with texts"),
        (json!({"selector": {"matchLabels": {"a b": "c"}}}), "is no label key"),
        (json!({"selector": {"matchExpressions": [{"key": "k", "operator": "Resembles"}]}}), "write In, NotIn"),
        (json!({"unhealthyConditions": "Ready"}), "spec.unhealthyConditions is not a list"),
        (json!({"unhealthyConditions": [5]}), "spec.unhealthyConditions[0]: "),
        (
            json!({"unhealthyConditions": [{"type": "Ready", "status": "False"}]}),
            "missing field `timeout`: write type, status and timeout",
        ),
        (json!({"unhealthyConditions": [{"type": "", "status": "False", "timeout": "5m"}]}), "must not be empty"),
        (json!({"unhealthyConditions": rule("5 minutes")}), "spec.unhealthyConditions[0].timeout: \"5 minutes\" has"),
        (json!({"unhealthyConditions": rule("-5m")}), "spec.unhealthyConditions[0].timeout must not be negative"),
        (json!({"nodeStartupTimeout": 600}), "spec.nodeStartupTimeout: "),
        (json!({"nodeStartupTimeout": "soon"}), "spec.nodeStartupTimeout: \"soon\" is not a duration: write"),
        (json!({"nodeStartupTimeout": "-10m"}), "spec.nodeStartupTimeout must not be negative"),
        (json!({"maxUnhealthy": "many"}), "spec.maxUnhealthy: \"many\" is neither"),
        (json!({"maxUnhealthy": [3]}), "spec.maxUnhealthy: "),
        (json!({"remediationTemplate": "t"}), "write apiVersion, kind and name of a template"),
        (json!({"remediationTemplate": template("v1", "ATemplate", "t")}), "spec.remediationTemplate.apiVersion is \"v1\""),
        (json!({"remediationTemplate": template("a/v1", "Reboot", "t")}), "ends with Template"),
        (json!({"externalRemediationTemplate": template("a/v1", "RebootTemplate", "../x")}), "is no name"),
        (json!({"remediationTemplate": template("a/v1", "Metal3MachineTemplate", "t")}), "of which machines themselves are made"),
        (json!({"externalRemediationTemplate": template("a/v1", "KubeadmConfigTemplate", "t")}), "of which machines themselves"),
        (json!({"remediationTemplate": template("a/v1", "KubeadmControlPlaneTemplate", "t")}), "of which machines themselves"),
        (json!({"externalRemediationTemplate": {}}), "spec.externalRemediationTemplate.apiVersion is missing"),
    ] {
        for dialect in WITH_DURATIONS {
            let why = refusal(dialect, &fields);
            assert!(why.contains(says) && !why.contains('\n'), "{dialect:?} {fields}: {why}");
        }
    }
    let rule = |timeout: Value| json!([{"type": "Ready", "status": "False", "timeoutSeconds": timeout}]);
    for (fields, says) in [
        (json!({"checks": []}), "spec.checks is not an object: write unhealthyNodeConditions"),
        (json!({"checks": {"unhealthyNodeConditions": {}}}), "spec.checks.unhealthyNodeConditions is not a list"),
        (json!({"checks": {"unhealthyNodeConditions": rule(json!("5m"))}}), "spec.checks.unhealthyNodeConditions[0]: "),
        (json!({"checks": {"unhealthyNodeConditions": rule(json!(-5))}}), "timeoutSeconds as a number"),
        (json!({"checks": {"nodeStartupTimeoutSeconds": "10m"}}), "spec.checks.nodeStartupTimeoutSeconds: "),
        (json!({"checks": {"nodeStartupTimeoutSeconds": -1}}), "write a number of seconds such as 600, or 0 for never"),
        (json!({"remediation": "now"}), "spec.remediation is not an object"),
        (json!({"remediation": {"triggerIf": 3}}), "spec.remediation.triggerIf is not an object"),
        (
            json!({"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "x"}}}),
            "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo: ",
        ),
        (json!({"remediation": {"templateRef": {"kind": "ATemplate"}}}), "spec.remediation.templateRef.apiVersion is missing"),
    ] {
        let why = refusal(Dialect::V1beta2, &fields);
        assert!(why.contains(says), "{fields}: {why}");
    }
    for spec in [json!("x"), json!(5), json!([])] {
        for dialect in ALL {
            let why = check(dialect, &json!({}), &spec).policy.expect_err("it says nothing").0;
            assert!(why.contains("spec is not an object: write selector"), "{why}");
        }
    }
}

#[test]
fn no_rule_follows_its_own_shadow() {
    for kind in ["Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated"] {
        let rule = |field: &str, timeout: Value| json!([{"type": "NodeHealthy", "status": "False", field: timeout}, {"type": kind, "status": "False", field: timeout}]);
        let in_spec = json!({"unhealthyMachineConditions": rule("timeout", json!("5m"))});
        for dialect in [Dialect::V1alpha3, Dialect::V1beta1] {
            let why = refusal(dialect, &in_spec);
            assert!(why.contains(&format!("spec.unhealthyMachineConditions[1].type is {kind}: write another")), "{why}");
        }
        let why =
            refusal(Dialect::V1beta2, &json!({"checks": {"unhealthyMachineConditions": rule("timeoutSeconds", json!(300))}}));
        assert!(why.contains(&format!("spec.checks.unhealthyMachineConditions[1].type is {kind}")), "{why}");
    }
}

#[test]
fn annotations_say_whose_it_is_and_whether_it_rests() {
    let read = |annotations: Value| {
        let check = check(Dialect::V1beta1, &annotations, &with(&json!({})));
        (check.take_over, check.paused)
    };
    assert_eq!(read(json!({})), (false, false));
    assert_eq!(read(json!({"resus.dev/take-over": "true"})), (true, false));
    assert_eq!(read(json!({"resus.dev/take-over": "yes", "cluster.x-k8s.io/paused": ""})), (false, true));
    assert_eq!(read(json!({"cluster.x-k8s.io/paused": "false"})), (false, true), "whatever it says");
}

/// As it stands in the proposal of Cluster API.
const PROPOSED: &str = r#"
apiVersion: cluster.x-k8s.io/v1alpha3
kind: MachineHealthCheck
metadata:
  name: example
  namespace: machine-api
spec:
  selector:
    matchLabels:
      role: worker
  unhealthyConditions:
  - type:    "Ready"
    status:  "Unknown"
    timeout: "5m"
  - type:    "Ready"
    status:  "False"
    timeout: "5m"
  maxUnhealthy: "40%"
status:
  currentHealthy: 5
  expectedMachines: 5
"#;

/// As it stands in that proposal and in OpenShift's, with names where they leave some to be chosen.
const PROPOSED_WITH_TEMPLATE: &str = r#"
    kind: MachineHealthCheck
    apiVersion: cluster.x-k8s.io/v1alpha3
    metadata:
      name: remediation-group
      namespace: machine-api
    spec:
      selector:
        matchLabels:
          role: worker
      externalRemediationTemplate:
        kind: Metal3RemediationTemplate
        apiVersion: remediation.metal3.io/v1alpha1
        name: m3-remediation-group
"#;

#[test]
fn what_was_proposed_is_taken_and_understood() {
    let mut stage = Stage::ours(Dialect::V1alpha3);
    for (text, is_external) in [(PROPOSED, false), (PROPOSED_WITH_TEMPLATE, true)] {
        let object: Value = serde_saphyr::from_str(text).expect("it is YAML");
        let read = observe::machine_check(object.to_string().as_bytes(), Dialect::V1alpha3).expect("it can be read");
        let policy = read.policy.expect("it is valid");
        assert_eq!(policy.selector.0.len(), 1);
        assert_eq!(policy.repair != Repair::Owner, is_external);
        if !is_external {
            assert_eq!(policy.node_rules.len(), 2);
            assert_eq!(policy.budget, Budget::AtMost(Amount::Percent(40)));
            assert_eq!((read.status.expected, read.status.healthy), (Some(5), Some(5)));
        }
        let name = object["metadata"]["name"].as_str().expect("it has a name");
        let stored = stage.check(name, &object["spec"]);
        assert_eq!(stored.policy.as_ref(), Ok(&policy), "a server takes it, and drops nothing");
    }
}
