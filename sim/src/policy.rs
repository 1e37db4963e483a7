//! What does a check ask for, read a second time?
//!
//! The oracles must not believe the code under test: selectors, durations, thresholds and health are read here from
//! the stored JSON once more, in the plainest way.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::clock::{Millis, SECOND};
use crate::scenario::{CONTROL_PLANE, EXCLUDED};

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub uid: String,
    pub created_at: Millis,
    pub deleting: bool,
    pub rules: Vec<Rule>,
    pub paused: bool,
    pub dry_run: bool,
    /// In the order in which they are tried.
    pub steps: Vec<Step>,
    /// For how long a node must be healthy; None: until somebody says so.
    pub healthy_delay: Option<Millis>,
    pub storm_cooldown: Option<Millis>,
    pub topology_key: Option<String>,
    startup_timeout: Option<Millis>,
    /// The parts of the spec that are read when they are needed.
    selector: Value,
    max_unhealthy: Value,
    min_healthy: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Where the template is among the provider's objects, if it can be there.
    pub template: Option<String>,
    pub lasts_for: Option<Millis>,
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
    pub created_at: Millis,
    pub deleting: bool,
}

impl NodeState {
    pub fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    pub fn is_control_plane(&self) -> bool {
        self.labels.contains_key(CONTROL_PLANE)
    }

    pub fn is_excluded(&self) -> bool {
        self.labels.get(EXCLUDED).is_some_and(|value| value == "true")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub kind: String,
    pub status: String,
    /// When it was stored with this status.
    pub since: Millis,
    pub dated: String,
    /// How much earlier it is dated.
    pub dated_before: Millis,
}

/// How much older than it is a condition may seem.
#[derive(Clone, Copy, Debug)]
pub struct Slack {
    /// Any.
    pub any: Millis,
    /// Of what changed after this, a watch told at once, with the age of the report; of anything earlier there is nothing but its
    /// date to go by.
    pub watched_since: Millis,
}

impl Slack {
    pub const NONE: Slack = Slack { any: 0, watched_since: Millis::MIN };

    fn of(self, condition: &Condition) -> Millis {
        self.any + if condition.since < self.watched_since { condition.dated_before } else { 0 }
    }
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
        let lasts = |field: &str| spec[field].as_str().map(duration);
        Policy {
            uid: text(&object["metadata"]["uid"]),
            created_at,
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
            rules: spec["unhealthyConditions"].as_array().into_iter().flatten().map(rule).collect(),
            paused: spec["pauseRequests"].as_array().is_some_and(|requests| !requests.is_empty()),
            dry_run: spec["mode"] == "DryRun",
            steps: steps(spec),
            healthy_delay: Some(lasts("healthyDelay").unwrap_or(0)).filter(|delay| *delay >= 0),
            storm_cooldown: lasts("stormCooldownDuration"),
            topology_key: spec["topologyKey"].as_str().map(str::to_owned),
            startup_timeout: lasts("nodeStartupTimeout"),
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

    pub fn health(&self, node: &NodeState, at: Millis, slack: Slack) -> Health {
        let matching = expiries(&self.rules, node, at, slack);
        let asks_ready = self.rules.iter().any(|rule| rule.kind == "Ready");
        let has_reported = node.conditions.iter().any(|condition| condition.kind == "Ready");
        let is_silent = asks_ready && !has_reported;
        let never_started = self.startup_timeout.filter(|_| !has_reported).map(|lasts| at + slack.any > node.created_at + lasts);
        match matching.chain(never_started).max() {
            Some(true) => Health::Expired,
            Some(false) => Health::Pending,
            None if is_silent || node.deleting => Health::Unknown,
            None => Health::Healthy,
        }
    }

    pub fn longest_rule(&self) -> Millis {
        self.rules.iter().map(|rule| rule.lasts_for).max().unwrap_or(0)
    }

    /// What a check may wait for without anything else happening.
    pub fn longest_wait(&self) -> Millis {
        let steps = self.steps.iter().filter_map(|step| step.lasts_for);
        steps.chain(self.healthy_delay).chain(self.storm_cooldown).max().unwrap_or(0)
    }

    pub fn zone<'a>(&self, node: &'a NodeState) -> Option<&'a str> {
        self.topology_key.as_ref().map(|key| node.labels.get(key).map_or("", String::as_str))
    }
}

/// Of each rule that matches: is its time over?
pub fn expiries(rules: &[Rule], node: &NodeState, at: Millis, slack: Slack) -> impl Iterator<Item = bool> {
    rules.iter().filter_map(move |rule| {
        let found = node.conditions.iter().find(|condition| condition.kind == rule.kind && condition.status == rule.status)?;
        Some(at + slack.of(found) > found.since + rule.lasts_for)
    })
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn steps(spec: &Value) -> Vec<Step> {
    let place = |reference: &Value| {
        let is_known = reference["apiVersion"] == "provider.test/v1";
        is_known.then(|| format!("{}s/{}", text(&reference["kind"]).to_lowercase(), text(&reference["name"])))
    };
    let mut several: Vec<&Value> = spec["escalatingRemediations"].as_array().into_iter().flatten().collect();
    several.sort_by_key(|step| step["order"].as_i64());
    if several.is_empty() {
        return vec![Step { template: place(&spec["remediationTemplate"]), lasts_for: None }];
    }
    let lasts = |step: &Value| Some(duration(step["timeout"].as_str().unwrap_or_default()));
    several.into_iter().map(|step| Step { template: place(&step["remediationTemplate"]), lasts_for: lasts(step) }).collect()
}

/// Hours, minutes or seconds, one of them, are all that scenarios use.
pub fn duration(written: &str) -> Millis {
    if let Some(positive) = written.strip_prefix('-') {
        return -duration(positive);
    }
    let (number, unit) = written.split_at(written.find(|c: char| !c.is_ascii_digit()).unwrap_or(written.len()));
    let number: Millis = number.parse().unwrap_or(0);
    match unit {
        "h" => number * 3600 * SECOND,
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
        let condition =
            Condition { kind: "Ready".into(), status: "False".into(), since: 1_000, dated: String::new(), dated_before: 500 };
        let node = NodeState { conditions: vec![condition], ..NodeState::default() };
        assert_eq!(policy.health(&node, 6_000, Slack::NONE), Health::Pending);
        assert_eq!(policy.health(&node, 6_001, Slack::NONE), Health::Expired);
        assert_eq!(policy.health(&node, 5_501, Slack { any: 0, watched_since: 1_000 }), Health::Pending, "watched");
        assert_eq!(policy.health(&node, 5_501, Slack { any: 0, watched_since: 1_001 }), Health::Expired, "listed");
        assert_eq!(policy.health(&NodeState::default(), 6_000, Slack::NONE), Health::Unknown);
    }
}
