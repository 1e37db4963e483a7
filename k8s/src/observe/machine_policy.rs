//! What does a MachineHealthCheck ask for?
//!
//! The same in four dialects. A check that is not understood in full does nothing, and says why: what it leaves to
//! others, or deletes, depends on every field.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use resus_core::facts::{Amount, Invalid, Rule, Selector};
use resus_core::mhc::facts::{Budget, CLUSTER_LABEL, Dialect, Flavour, MachinePolicy, Repair};
use resus_core::text::is_name;
use serde::Deserialize;
use serde_json::Value;

use super::fields::{Fields, decode, duration, requirements, shown, template};
use super::{Meta, invalid};
use crate::names;
use crate::quantity::IntOrPercent;

/// Without nodeStartupTimeout in the check.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(600);
/// Without any threshold in the check.
const BUDGET: Budget = Budget::AtMost(Amount::Percent(100));

pub fn read(spec: &Value, metadata: &Meta, dialect: Dialect) -> Result<MachinePolicy, Invalid> {
    let spec = Fields::of_spec(spec, "selector")?;
    let selector = selector(&spec, dialect.flavour())?;
    match dialect {
        Dialect::V1beta2 => {
            let checks = spec.below("checks", "unhealthyNodeConditions")?;
            let remediation = spec.below("remediation", "triggerIf or templateRef")?;
            let trigger = remediation.below("triggerIf", "unhealthyLessThanOrEqualTo")?;
            let seconds =
                checks.read("nodeStartupTimeoutSeconds", SECONDS)?.map(|seconds: u32| Duration::from_secs(seconds.into()));
            Ok(MachinePolicy {
                selector,
                node_rules: rules(&checks, "unhealthyNodeConditions", rule_in_seconds)?,
                machine_rules: machine_rules(&checks, rule_in_seconds)?,
                startup_timeout: startup_timeout(seconds),
                budget: budget(&trigger, "unhealthyLessThanOrEqualTo", Some("unhealthyInRange"), dialect)?,
                repair: template_named(&remediation, "templateRef")?.unwrap_or(Repair::Owner),
            })
        }
        Dialect::V1alpha3 | Dialect::V1beta1 => Ok(MachinePolicy {
            selector,
            node_rules: rules(&spec, "unhealthyConditions", rule)?,
            machine_rules: machine_rules(&spec, rule)?,
            startup_timeout: startup_timeout(spec.duration("nodeStartupTimeout")?),
            budget: budget(&spec, "maxUnhealthy", Some("unhealthyRange"), dialect)?,
            repair: template_of_either_name(&spec)?.unwrap_or(Repair::Owner),
        }),
        Dialect::OpenShift => {
            let (annotation, value) = names::POWER_CYCLE_STRATEGY;
            let otherwise = match metadata.annotation(annotation) == Some(value) {
                true => Repair::PowerCycle,
                false => Repair::Deletion,
            };
            Ok(MachinePolicy {
                selector,
                node_rules: rules(&spec, "unhealthyConditions", rule)?,
                machine_rules: Vec::new(),
                startup_timeout: startup_timeout(spec.duration("nodeStartupTimeout")?),
                budget: budget(&spec, "maxUnhealthy", None, dialect)?,
                repair: template_of_either_name(&spec)?.unwrap_or(otherwise),
            })
        }
    }
}

fn selector(spec: &Fields, flavour: Flavour) -> Result<Selector, Invalid> {
    let write = "matchLabels with texts, and matchExpressions with key, operator and values";
    let selector: LabelSelector = spec.read("selector", write)?.unwrap_or_default();
    match flavour {
        // An empty one selects all.
        Flavour::OpenShift => requirements(selector),
        Flavour::ClusterApi => {
            is_of_cluster(spec, &selector)?;
            let selector = requirements(selector)?;
            match selector.0.is_empty() {
                true => Err(invalid(
                    "spec.selector must not be empty: write matchLabels with labels of the machines to be checked".into(),
                )),
                false => Ok(selector),
            }
        }
    }
}

fn is_of_cluster(spec: &Fields, selector: &LabelSelector) -> Result<(), Invalid> {
    let write = "the name of a Cluster in the check's namespace, or leave it out for Nodes of this cluster";
    let Some(cluster) = spec.read::<String>("clusterName", write)? else { return Ok(()) };
    if !is_name(&cluster) {
        return Err(invalid(format!("spec.clusterName is {:?}: write {write}", shown(&cluster))));
    }
    let label = selector.match_labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL));
    match label.filter(|label| **label != cluster) {
        Some(label) => Err(invalid(format!(
            "spec.selector.matchLabels: {CLUSTER_LABEL} is {:?}, but spec.clusterName is {cluster:?}: write the same, or leave the label out",
            shown(label)
        ))),
        None => Ok(()),
    }
}

type ReadRule = fn(&Value, &str) -> Result<Rule, Invalid>;

/// Without a list only machines without a node are found.
fn rules(fields: &Fields, name: &str, read: ReadRule) -> Result<Vec<Rule>, Invalid> {
    let listed = fields.list(name)?.unwrap_or_default().iter().enumerate();
    listed.map(|(number, value)| read(value, &format!("{}[{number}]", fields.place(name)))).collect()
}

fn machine_rules(fields: &Fields, read: ReadRule) -> Result<Vec<Rule>, Invalid> {
    let name = "unhealthyMachineConditions";
    let rules = rules(fields, name, read)?;
    match rules.iter().position(|rule| names::NOT_FOR_RULES.contains(&&*rule.kind)) {
        Some(number) => Err(invalid(format!(
            "{}[{number}].type is {}: write another, not one of {}",
            fields.place(name),
            rules[number].kind,
            names::NOT_FOR_RULES.join(", ")
        ))),
        None => Ok(rules),
    }
}

fn rule(value: &Value, place: &str) -> Result<Rule, Invalid> {
    #[derive(Deserialize)]
    struct View {
        #[serde(rename = "type")]
        kind: Box<str>,
        status: Box<str>,
        timeout: Box<str>,
    }
    let View { kind, status, timeout } = decode(value, place, "type, status and timeout, each as text in quotes")?;
    named(kind, &status, duration(&timeout, &format!("{place}.timeout"))?, place)
}

fn rule_in_seconds(value: &Value, place: &str) -> Result<Rule, Invalid> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct View {
        #[serde(rename = "type")]
        kind: Box<str>,
        status: Box<str>,
        timeout_seconds: u32,
    }
    let write = "type and status as text in quotes, and timeoutSeconds as a number";
    let View { kind, status, timeout_seconds } = decode(value, place, write)?;
    named(kind, &status, Duration::from_secs(timeout_seconds.into()), place)
}

fn named(kind: Box<str>, status: &str, lasts_for: Duration, place: &str) -> Result<Rule, Invalid> {
    match kind.is_empty() || status.is_empty() {
        true => Err(invalid(format!("{place}: type and status must not be empty: write them as in Ready and \"False\""))),
        false => Ok(Rule { kind, status: status.into(), lasts_for }),
    }
}

const SECONDS: &str = "a number of seconds such as 600, or 0 for never";

/// Zero switches it off.
fn startup_timeout(given: Option<Duration>) -> Option<Duration> {
    Some(given.unwrap_or(STARTUP_TIMEOUT)).filter(|timeout| !timeout.is_zero())
}

fn budget(fields: &Fields, threshold: &str, range: Option<&str>, dialect: Dialect) -> Result<Budget, Invalid> {
    let at_most = match fields.read(threshold, "a number such as 3, or a percentage such as \"40%\"")? {
        None => None,
        // As OpenShift does it: nothing is ever repaired.
        Some(IntOrPercent::Int(count)) if count < 0 && dialect == Dialect::OpenShift => Some(Amount::Count(0)),
        Some(IntOrPercent::Int(count)) if count < 0 => {
            let place = fields.place(threshold);
            return Err(invalid(format!("{place} must not be negative: {count}: write a number such as 3, or \"40%\"")));
        }
        Some(IntOrPercent::Int(count)) => Some(Amount::Count(u32::try_from(count).unwrap_or(u32::MAX))),
        Some(IntOrPercent::Percent(percent)) => Some(Amount::Percent(percent)),
    };
    let between = range.map(|range| between(fields, range)).transpose()?.flatten();
    Ok(between.or(at_most.map(Budget::AtMost)).unwrap_or(BUDGET))
}

fn between(fields: &Fields, name: &str) -> Result<Option<Budget>, Invalid> {
    let write = "two numbers in brackets, the smaller first, as in \"[1-3]\"";
    let Some(text) = fields.read::<String>(name, write)? else { return Ok(None) };
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    let numbers = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).and_then(|rest| rest.split_once('-'));
    match numbers.and_then(|(min, max)| Some((number(min)?, number(max)?))) {
        Some((min, max)) if min <= max => Ok(Some(Budget::Between { min, max })),
        Some(_) | None => Err(invalid(format!("{} is {:?}: write {write}", fields.place(name), shown(&text)))),
    }
}

/// The second is the name that the proposal gave it.
fn template_of_either_name(spec: &Fields) -> Result<Option<Repair>, Invalid> {
    let (name, proposed) = ("remediationTemplate", "externalRemediationTemplate");
    match (template_named(spec, name)?, template_named(spec, proposed)?) {
        (Some(_), Some(_)) => Err(invalid(format!(
            "{} and {} are two names of the same: remove one of them",
            spec.place(name),
            spec.place(proposed)
        ))),
        (template, other) => Ok(template.or(other)),
    }
}

/// It is looked for in the Machine's namespace, whichever one the reference names.
fn template_named(fields: &Fields, name: &str) -> Result<Option<Repair>, Invalid> {
    let write = "apiVersion, kind and name of a template, each as text";
    let Some(reference) = fields.read::<ObjectReference>(name, write)? else { return Ok(None) };
    let key = template(&ObjectReference { namespace: None, ..reference }, &fields.place(name))?;
    if names::NO_REMEDIATION_TEMPLATES.iter().any(|suffix| key.kind.kind.ends_with(suffix)) {
        return Err(invalid(format!(
            "{}.kind is {:?}, of which machines themselves are made: write the kind of a remediation's template, as in Metal3RemediationTemplate",
            fields.place(name),
            shown(&key.kind.kind)
        )));
    }
    Ok(Some(Repair::Template { kind: key.kind, name: key.name }))
}
