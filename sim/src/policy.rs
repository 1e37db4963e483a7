//! What does a check ask for, read a second time?
//!
//! The oracles must not believe the code under test: selectors, durations, thresholds and health are read here from
//! the stored JSON once more, in the plainest way.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::clock::{Millis, SECOND};

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub uid: String,
    pub created_at: Millis,
    pub deleting: bool,
    pub rules: Vec<Rule>,
    pub paused: bool,
    /// Name of the template, if it is of the one kind that exists here.
    pub template: Option<String>,
    /// The parts of the spec that are read when they are needed.
    selector: Value,
    max_unhealthy: Value,
    min_healthy: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub kind: String,
    pub status: String,
    pub lasts_for: Millis,
}

/// A Node as it is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub conditions: Vec<Condition>,
    pub deleting: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub kind: String,
    pub status: String,
    /// As it is dated; of what is dated in the future, when it was stored.
    pub since: Millis,
    pub dated: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Healthy,
    /// A rule matches, its time is not over.
    Pending,
    Expired,
    /// Neither: it has not reported, or is going away.
    Unknown,
}

impl Policy {
    pub fn read(object: &Value, created_at: Millis) -> Policy {
        let spec = &object["spec"];
        let rule = |rule: &Value| Rule {
            kind: text(&rule["type"]),
            status: text(&rule["status"]),
            lasts_for: duration(rule["duration"].as_str().unwrap_or_default()),
        };
        let reference = &spec["remediationTemplate"];
        let is_known = reference["kind"] == "RebootRemediationTemplate" && reference["apiVersion"] == "provider.test/v1";
        Policy {
            uid: text(&object["metadata"]["uid"]),
            created_at,
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
            rules: spec["unhealthyConditions"].as_array().into_iter().flatten().map(rule).collect(),
            paused: spec["pauseRequests"].as_array().is_some_and(|requests| !requests.is_empty()),
            template: is_known.then(|| text(&reference["name"])),
            selector: spec["selector"].clone(),
            max_unhealthy: spec["maxUnhealthy"].clone(),
            min_healthy: spec["minHealthy"].clone(),
        }
    }

    pub fn selects(&self, node: &NodeState) -> bool {
        let labels = self.selector["matchLabels"].as_object().into_iter().flatten();
        let all_labels = labels.into_iter().all(|(key, value)| node.labels.get(key).map(String::as_str) == value.as_str());
        let mut expressions = self.selector["matchExpressions"].as_array().into_iter().flatten();
        all_labels
            && expressions.all(|expression| {
                let value = node.labels.get(expression["key"].as_str().unwrap_or_default());
                let is_in = value.is_some_and(|value| {
                    expression["values"].as_array().is_some_and(|all| all.iter().any(|one| one == value.as_str()))
                });
                match expression["operator"].as_str() {
                    Some("In") => is_in,
                    Some("NotIn") => !is_in,
                    Some("Exists") => value.is_some(),
                    Some("DoesNotExist") => value.is_none(),
                    _ => false,
                }
            })
    }

    /// A selector that nobody can read makes the check unusable.
    pub fn is_valid(&self) -> bool {
        let mut expressions = self.selector["matchExpressions"].as_array().into_iter().flatten();
        expressions.all(|expression| {
            let has_values = expression["values"].as_array().is_some_and(|values| !values.is_empty());
            matches!(expression["operator"].as_str(), Some("In" | "NotIn")) == has_values
        })
    }

    /// How many of `targets` may be not healthy while remediations start.
    pub fn allowed(&self, targets: usize) -> usize {
        let count = |value: &Value, round_up: bool| {
            let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
            let written = value.as_str().unwrap_or_default();
            let percent = written.strip_suffix('%').and_then(|percent| percent.parse::<usize>().ok());
            let share = percent.map(|percent| (targets * percent + if round_up { 99 } else { 0 }) / 100);
            number.or(share).or_else(|| written.parse().ok()).unwrap_or(0).min(targets)
        };
        match (self.min_healthy.is_null(), self.max_unhealthy.is_null()) {
            (false, _) => targets - count(&self.min_healthy, true),
            (true, false) => count(&self.max_unhealthy, false),
            (true, true) => count(&Value::from("49%"), false),
        }
    }

    /// `slack` is how much older than it is a condition may have seemed.
    pub fn health(&self, node: &NodeState, at: Millis, slack: Millis) -> Health {
        let matching = self.rules.iter().filter_map(|rule| {
            let found =
                node.conditions.iter().find(|condition| condition.kind == rule.kind && condition.status == rule.status)?;
            Some(at + slack > found.since + rule.lasts_for)
        });
        let asks_ready = self.rules.iter().any(|rule| rule.kind == "Ready");
        let is_silent = asks_ready && !node.conditions.iter().any(|condition| condition.kind == "Ready");
        match matching.max() {
            Some(true) => Health::Expired,
            Some(false) => Health::Pending,
            None if is_silent || node.deleting => Health::Unknown,
            None => Health::Healthy,
        }
    }

    pub fn longest_rule(&self) -> Millis {
        self.rules.iter().map(|rule| rule.lasts_for).max().unwrap_or(0)
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Seconds and minutes are all that scenarios use.
fn duration(written: &str) -> Millis {
    let (number, unit) = written.split_at(written.find(|c: char| !c.is_ascii_digit()).unwrap_or(written.len()));
    let number: Millis = number.parse().unwrap_or(0);
    match unit {
        "m" | "m0s" => number * 60 * SECOND,
        "ms" => number,
        _ => number * SECOND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(spec: &Value) -> Policy {
        Policy::read(&json!({"metadata": {"uid": "u"}, "spec": spec}), 0)
    }

    #[test]
    fn thresholds_are_read_as_the_design_says() {
        for (spec, targets, allowed) in [
            (json!({"maxUnhealthy": "40%"}), 5, 2),
            (json!({"maxUnhealthy": 12}), 10, 10),
            (json!({"maxUnhealthy": "3"}), 10, 3),
            (json!({"minHealthy": "51%"}), 3, 1),
            (json!({"minHealthy": 12}), 10, 0),
            (json!({}), 100, 49),
        ] {
            assert_eq!(policy(&spec).allowed(targets), allowed, "{spec} of {targets}");
        }
    }

    #[test]
    fn a_node_is_unhealthy_strictly_after_its_time() {
        let policy = policy(&json!({"unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "5s"}]}));
        let condition = Condition { kind: "Ready".into(), status: "False".into(), since: 1_000, dated: String::new() };
        let node = NodeState { conditions: vec![condition], ..NodeState::default() };
        assert_eq!(policy.health(&node, 6_000, 0), Health::Pending);
        assert_eq!(policy.health(&node, 6_001, 0), Health::Expired);
        assert_eq!(policy.health(&NodeState::default(), 6_000, 0), Health::Unknown);
    }
}
