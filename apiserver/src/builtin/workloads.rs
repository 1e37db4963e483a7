//! What is right for Deployments, DaemonSets and PodDisruptionBudgets, which all select Pods?

use serde_json::{Map, Value, json};

use super::read::{child, drop_zero, fill, fill_text, go_struct, invalid_text, not_negative, text, untimed};
use super::{meta, pod, pod_rules, selector};
use crate::refusal::Cause;

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub fn default_deployment(deployment: &mut Value) {
    let Some(spec) = child(deployment, "spec") else { return };
    drop_zero(spec, &["minReadySeconds", "paused"]);
    fill(spec, "replicas", json!(1));
    fill(spec, "revisionHistoryLimit", json!(10));
    fill(spec, "progressDeadlineSeconds", json!(600));
    fill(spec, "strategy", json!({}));
    default_strategy(spec, "strategy", json!("25%"), json!("25%"));
    default_template(spec);
    if let Some(status) = child(deployment, "status") {
        untimed(status, &["lastUpdateTime", "lastTransitionTime"]);
    }
}

pub fn default_daemon_set(daemon_set: &mut Value) {
    let Some(spec) = child(daemon_set, "spec") else { return };
    drop_zero(spec, &["minReadySeconds"]);
    fill(spec, "revisionHistoryLimit", json!(10));
    fill(spec, "updateStrategy", json!({}));
    default_strategy(spec, "updateStrategy", json!(1), json!(0));
    default_template(spec);
    let Some(status) = child(daemon_set, "status") else { return };
    untimed(status, &["lastTransitionTime"]);
    for key in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"] {
        fill(status, key, json!(0));
    }
}

pub fn default_disruption_budget(budget: &mut Value) {
    let Some(status) = child(budget, "status") else { return };
    untimed(status, &["lastTransitionTime"]);
    for key in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        fill(status, key, json!(0));
    }
}

/// The number of the template lives in an annotation since the field has gone. Nobody but the server sets it.
pub fn count_template(daemon_set: &mut Value, old: Option<&Value>) {
    let count = match old {
        None => 1,
        Some(old) => {
            let count = text(&old["metadata"]["annotations"], TEMPLATE_GENERATION).parse::<u64>().unwrap_or_default();
            count + u64::from(old["spec"]["template"] != daemon_set["spec"]["template"])
        }
    };
    if let Some(annotations) = child(&mut daemon_set["metadata"], "annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), json!(count.to_string()));
    }
}

fn default_strategy(spec: &mut Map<String, Value>, key: &str, unavailable: Value, surge: Value) {
    let Some(strategy) = spec.get_mut(key).and_then(Value::as_object_mut) else { return };
    fill_text(strategy, "type", "RollingUpdate");
    if strategy["type"] != "RollingUpdate" {
        return;
    }
    fill(strategy, "rollingUpdate", json!({}));
    if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
        fill(rolling, "maxUnavailable", unavailable);
        fill(rolling, "maxSurge", surge);
    }
}

fn default_template(spec: &mut Map<String, Value>) {
    fill(spec, "template", json!({}));
    let Some(template) = spec.get_mut("template") else { return };
    if let Some(meta) = child(template, "metadata") {
        drop_zero(meta, &["labels", "annotations", "creationTimestamp"]);
    }
    if let Some(pod_spec) = child(template, "spec") {
        pod::default_spec(pod_spec);
    }
}

pub fn validate_deployment(deployment: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &deployment["spec"];
    not_negative("spec.replicas", &spec["replicas"], &mut causes);
    select(spec, "deployment", &mut causes);
    template(spec, &mut causes);
    if spec["template"]["spec"]["activeDeadlineSeconds"].is_number() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        causes.push(Cause::forbidden("spec.template.spec.activeDeadlineSeconds", detail));
    }
    deployment_strategy(&spec["strategy"], &mut causes);
    for key in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        not_negative(format!("spec.{key}"), &spec[key], &mut causes);
    }
    let (deadline, ready) = (&spec["progressDeadlineSeconds"], spec["minReadySeconds"].as_i64().unwrap_or_default());
    if deadline.as_i64().is_some_and(|deadline| deadline <= ready) {
        causes.push(Cause::invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"));
    }
    immutable_selector(spec, old, &mut causes);
    causes
}

pub fn validate_daemon_set(daemon_set: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &daemon_set["spec"];
    if spec["selector"].is_object() {
        select(spec, "daemonset", &mut causes);
    } else {
        mismatch(spec, &mut causes);
    }
    template(spec, &mut causes);
    not_negative("spec.minReadySeconds", &spec["minReadySeconds"], &mut causes);
    daemon_set_strategy(&spec["updateStrategy"], &mut causes);
    not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"], &mut causes);
    immutable_selector(spec, old, &mut causes);
    causes
}

fn select(spec: &Value, kind: &str, causes: &mut Vec<Cause>) {
    let selector = &spec["selector"];
    let before = causes.len();
    match selector.is_object() {
        false => causes.push(Cause::required("spec.selector", "")),
        true => selector::validate(selector, "spec.selector", causes),
    }
    let is_well_formed = causes.len() == before;
    if selector.is_object() && selector::is_empty(selector) {
        let detail = format!("empty selector is invalid for {kind}");
        causes.push(Cause::invalid("spec.selector", &json!({}), detail));
    } else if !is_well_formed && selector.is_object() {
        causes.push(selector::invalid(selector, "spec.selector", "invalid label selector"));
    } else {
        mismatch(spec, causes);
    }
}

fn mismatch(spec: &Value, causes: &mut Vec<Cause>) {
    let labels = &spec["template"]["metadata"]["labels"];
    if !selector::matches(&spec["selector"], labels) {
        let detail = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, detail));
    }
}

fn template(spec: &Value, causes: &mut Vec<Cause>) {
    let template = &spec["template"];
    meta::labels(&template["metadata"], "labels", "spec.template.labels", causes);
    let policy = &template["spec"]["restartPolicy"];
    pod_rules::validate_spec(&template["spec"], "spec.template.spec", causes);
    if policy != "Always" && ["OnFailure", "Never"].iter().any(|known| policy == known) {
        causes.push(Cause::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

fn immutable_selector(spec: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if old.is_some_and(|old| old["spec"]["selector"] != spec["selector"]) {
        causes.push(selector::invalid(&spec["selector"], "spec.selector", "field is immutable"));
    }
}

fn deployment_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let rolling = &strategy["rollingUpdate"];
    let path = "spec.strategy.rollingUpdate";
    match text(strategy, "type") {
        "Recreate" if rolling.is_object() => {
            causes.push(Cause::forbidden(path, "may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            share(&rolling["maxUnavailable"], &format!("{path}.maxUnavailable"), false, causes);
            share(&rolling["maxSurge"], &format!("{path}.maxSurge"), false, causes);
            if is_zero(&rolling["maxUnavailable"]) && is_zero(&rolling["maxSurge"]) {
                let detail = "may not be 0 when `maxSurge` is 0";
                causes.push(Cause::invalid(format!("{path}.maxUnavailable"), &rolling["maxUnavailable"], detail));
            }
            at_most_all(&rolling["maxUnavailable"], &format!("{path}.maxUnavailable"), causes);
        }
        _ => causes.push(unknown_strategy(strategy, "spec.strategy", "\"Recreate\", \"RollingUpdate\"")),
    }
}

fn daemon_set_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let rolling = &strategy["rollingUpdate"];
    let path = "spec.updateStrategy.rollingUpdate";
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            for (key, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                share(value, &format!("{path}.{key}"), true, causes);
            }
            match (is_zero(unavailable), is_zero(surge)) {
                (true, true) => {
                    causes.push(Cause::required(format!("{path}.maxUnavailable"), "cannot be 0 when maxSurge is 0"));
                }
                (false, false) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    causes.push(Cause::invalid(format!("{path}.maxSurge"), surge, detail));
                }
                (true, false) | (false, true) => {}
            }
        }
        _ => causes.push(unknown_strategy(strategy, "spec.updateStrategy", "\"RollingUpdate\", \"OnDelete\"")),
    }
}

fn unknown_strategy(strategy: &Value, path: &str, known: &str) -> Cause {
    let rolling = match &strategy["rollingUpdate"] {
        Value::Null => "null".to_owned(),
        rolling => go_struct(rolling, &[("MaxUnavailable", "maxUnavailable", "0"), ("MaxSurge", "maxSurge", "0")]),
    };
    let shown = go_struct(strategy, &[("Type", "type", "\"\""), ("RollingUpdate", "", &rolling)]);
    let message = format!("Unsupported value: {shown}: supported values: {known}");
    Cause { field: path.to_owned(), reason: "FieldValueNotSupported", message }
}

pub fn validate_disruption_budget(budget: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &budget["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let fields = [
            ("MinAvailable", "minAvailable", "null"),
            ("Selector", "selector", "null"),
            ("MaxUnavailable", "maxUnavailable", "null"),
            ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", "null"),
        ];
        let detail = "minAvailable and maxUnavailable cannot be both set";
        causes.push(invalid_text("spec", &go_struct(spec, &fields), detail));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        share(&spec[key], &format!("spec.{key}"), true, &mut causes);
    }
    selector::validate(&spec["selector"], "spec.selector", &mut causes);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() && policy != "AlwaysAllow" && policy != "IfHealthyBudget" {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        causes.push(Cause::not_supported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
    causes
}

/// Numbers of a status: none may be negative, and of a Deployment none may exceed the replicas.
pub fn validate_status(object: &Value, keys: &[&str], within: Option<&str>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let status = &object["status"];
    for key in keys {
        not_negative(format!("status.{key}"), &status[*key], &mut causes);
    }
    let Some(within) = within else { return causes };
    let count = |key: &str| status[key].as_i64().unwrap_or_default();
    let mut at_most = |key: &str, most: i64, of: &str| {
        if count(key) > most {
            causes.push(Cause::invalid(format!("status.{key}"), &json!(count(key)), format!("cannot be greater than {of}")));
        }
    };
    for key in keys.iter().filter(|key| !matches!(**key, "replicas" | "observedGeneration" | "unavailableReplicas")) {
        at_most(key, count(within), &format!("status.{within}"));
    }
    at_most("availableReplicas", count("readyReplicas"), "readyReplicas");
    causes
}

/// A number, or a percentage.
fn share(value: &Value, path: &str, at_most_hundred: bool, causes: &mut Vec<Cause>) {
    not_negative(path, value, causes);
    if value.is_string() && percent(value).is_none() {
        let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for \
                      validation is '[0-9]+%')";
        causes.push(Cause::invalid(path, value, detail));
    }
    if at_most_hundred {
        at_most_all(value, path, causes);
    }
}

fn at_most_all(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if percent(value).is_some_and(|percent| percent > 100) {
        causes.push(Cause::invalid(path, value, "must not be greater than 100%"));
    }
}

fn percent(value: &Value) -> Option<u64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0) || percent(value) == Some(0)
}
