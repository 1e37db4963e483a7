//! What does a MachineHealthCheck ask for, read a second time?
//!
//! As [`crate::policy`]: from the stored JSON once more, in the plainest way.

use resus_core::mhc::facts::{Dialect, Flavour};
use serde_json::Value;

use crate::clock::{Millis, SECOND};
use crate::fleet::truth::MachineState;
use crate::ledger::dated;
use crate::machinery::fields;
use crate::policy::{Health, NodeState, Rule, Slack, duration, expiries, text};

#[derive(Clone, Debug, PartialEq)]
pub struct MachinePolicy {
    pub uid: String,
    pub created_at: Millis,
    pub deleting: bool,
    pub paused: bool,
    pub flavour: Flavour,
    /// None: its nodes are in this cluster.
    pub cluster: Option<String>,
    pub way: Way,
    pub rules: Vec<Rule>,
    pub startup: Option<Millis>,
    selector: Value,
    max_unhealthy: Value,
    range: Option<(usize, usize)>,
}

/// How machines are to be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Owner,
    /// By what is made from the template of this name.
    Template(String),
    PowerCycle,
    Deletion,
}

/// What both APIs take for a start-up time-out that is not written down.
const STARTUP: Millis = 600 * SECOND;

impl MachinePolicy {
    pub fn read(object: &Value, dialect: Dialect) -> MachinePolicy {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let at = |path: &[&str]| path.iter().fold(spec, |at, element| &at[element]).clone();
        let [nodes, _, startup, limit, range, template] = fields(dialect).map(at);
        let lasts = |value: &Value| match value.as_i64() {
            Some(seconds) => Some(seconds * SECOND),
            None => value.as_str().map(duration),
        };
        let rule = |rule: &Value| Rule {
            kind: text(&rule["type"]),
            status: text(&rule["status"]),
            lasts_for: lasts(&rule["timeoutSeconds"]).or_else(|| lasts(&rule["timeout"])).unwrap_or(0),
        };
        let flavour = dialect.flavour();
        let strategy = metadata["annotations"]["machine.openshift.io/remediation-strategy"] == "external-baremetal";
        let way = match (template["name"].as_str(), flavour) {
            (Some(template), _) => Way::Template(template.to_owned()),
            (None, Flavour::ClusterApi) => Way::Owner,
            (None, Flavour::OpenShift) if strategy => Way::PowerCycle,
            (None, Flavour::OpenShift) => Way::Deletion,
        };
        MachinePolicy {
            uid: text(&metadata["uid"]),
            created_at: dated(&metadata["creationTimestamp"]),
            deleting: !metadata["deletionTimestamp"].is_null(),
            paused: !metadata["annotations"]["cluster.x-k8s.io/paused"].is_null(),
            flavour,
            cluster: spec["clusterName"].as_str().map(str::to_owned),
            way,
            rules: nodes.as_array().into_iter().flatten().map(rule).collect(),
            startup: Some(lasts(&startup).unwrap_or(STARTUP)).filter(|lasts| *lasts > 0),
            selector: spec["selector"].clone(),
            max_unhealthy: limit,
            range: range.as_str().and_then(between),
        }
    }

    pub fn targets(&self, machine: &MachineState) -> bool {
        let is_out = self.flavour == Flavour::ClusterApi && (machine.paused || machine.skipped);
        let mut labels = self.selector["matchLabels"].as_object().into_iter().flatten();
        !is_out
            && (self.cluster.is_none() || self.cluster == machine.cluster)
            && labels.all(|(key, value)| machine.labels.get(key).map(String::as_str) == value.as_str())
    }

    /// `node`: the one that the machine names, if it is there.
    pub fn health(&self, machine: &MachineState, node: Option<&NodeState>, at: Millis, slack: Slack) -> Health {
        let due: Option<bool> = match (&machine.node, node) {
            _ if machine.is_wanted_repaired(self.flavour) => return Health::Expired,
            (Some(_), None) => return Health::Expired,
            (Some(_), Some(node)) => expiries(&self.rules, node, at, slack).max(),
            (None, _) => {
                let since = match self.flavour {
                    Flavour::ClusterApi => Some(machine.created_at),
                    Flavour::OpenShift => machine.updated_at,
                };
                self.startup.zip(since).map(|(lasts, since)| at + slack.any > since + lasts)
            }
        };
        match due {
            Some(true) => Health::Expired,
            Some(false) => Health::Pending,
            None if machine.node.is_none() || machine.deleting || machine.power_cycled => Health::Unknown,
            None => Health::Healthy,
        }
    }

    /// May repairs start while so many of the targets are not healthy?
    pub fn allows(&self, targets: usize, not_healthy: usize) -> bool {
        not_healthy <= self.allowed(targets) && not_healthy >= self.range.map_or(0, |(min, _)| min)
    }

    /// How many may be not healthy at most.
    pub fn allowed(&self, targets: usize) -> usize {
        let number = self.max_unhealthy.as_u64().and_then(|number| usize::try_from(number).ok());
        let percent = self.max_unhealthy.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse().ok());
        let share = percent.map(|percent: usize| targets * percent / 100);
        self.range.map(|(_, max)| max).or(number).or(share).unwrap_or(targets)
    }

    /// How many have to be not healthy.
    pub fn needed(&self) -> usize {
        self.range.map_or(0, |(min, _)| min)
    }

    pub fn longest(&self) -> Millis {
        self.rules.iter().map(|rule| rule.lasts_for).chain(self.startup).max().unwrap_or(0)
    }
}

/// `[2-5]`
fn between(text: &str) -> Option<(usize, usize)> {
    let (min, max) = text.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
    Some((min.parse().ok()?, max.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machinery::CheckSpec;
    use serde_json::json;

    #[test]
    fn a_check_says_the_same_in_each_version() {
        for dialect in [Dialect::V1beta1, Dialect::V1beta2, Dialect::OpenShift] {
            let check = CheckSpec {
                selector: json!({"matchLabels": {"pool": "a"}}),
                on_nodes: vec![("Ready", "False", 30)],
                startup: Some(60),
                range: Some("[1-2]".to_owned()),
                template: Some("reboot".to_owned()),
                ..CheckSpec::default()
            };
            let policy = MachinePolicy::read(&json!({"metadata": {"uid": "u"}, "spec": check.spec(dialect)}), dialect);
            assert_eq!((policy.rules[0].lasts_for, policy.startup), (30 * SECOND, Some(60 * SECOND)), "{dialect:?}");
            assert_eq!((policy.way.clone(), policy.allowed(9)), (Way::Template("reboot".to_owned()), 2), "{dialect:?}");
            assert_eq!([0, 1, 2, 3].map(|bad| policy.allows(9, bad)), [false, true, true, false], "{dialect:?}");
        }
    }

    #[test]
    fn without_a_limit_anything_goes_and_percentages_are_rounded_down() {
        let allowed = |limit: Value| {
            let check = CheckSpec { limit: Some(limit), ..CheckSpec::default() };
            MachinePolicy::read(&json!({"spec": check.spec(Dialect::V1beta1)}), Dialect::V1beta1).allowed(5)
        };
        assert_eq!([allowed(json!(2)), allowed(json!("59%")), allowed(json!(null))], [2, 2, 5]);
    }
}
