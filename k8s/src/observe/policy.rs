//! What does a NodeHealthCheck ask for?
//!
//! Our own definition refuses most of what is refused here. A foreign one does not, so that everything is looked at
//! once more: a check that is not understood in full does nothing, and says why.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use resus_core::facts::{Amount, HealthyDelay, Invalid, Mode, Policy, Repeat, Rule, Selector, Step, Threshold};
use serde_json::Value;

use super::fields::{DURATIONS, Fields, TEMPLATES, decode, duration, go_duration, is_label_key, requirements, shown, template};
use super::{Meta, invalid};
use crate::crd::nhc::{self, EscalatingRemediation, UnhealthyCondition};
use crate::names;
use crate::quantity::IntOrPercent;

/// Without any threshold in the check.
const DEFAULT_THRESHOLD: Threshold = Threshold::MaxUnhealthy(Amount::Percent(49));

/// Shorter ones give a remediation no chance, and fence a node by every means there is within moments.
const STEP_TIMEOUT_MIN: Duration = Duration::from_secs(60);

/// Its share of unhealthy nodes says nothing: deleted machines come back as other nodes.
const MACHINE_DELETION: &str = "MachineDeletionRemediationTemplate";

pub fn read(spec: &Value, metadata: &Meta) -> Result<Policy, Invalid> {
    let spec = Fields::of_spec(spec, "remediationTemplate")?;
    let threshold = threshold(&spec)?;
    Ok(Policy {
        selector: selector(&spec)?,
        rules: rules(&spec)?,
        steps: steps(&spec, threshold)?,
        threshold: threshold.unwrap_or(DEFAULT_THRESHOLD),
        pause_requests: pause_requests(&spec)?,
        healthy_delay: healthy_delay(&spec)?,
        storm_cooldown: spec.duration("stormCooldownDuration")?,
        mode: either(&spec, metadata, "mode", names::MODE, text, mode)?.unwrap_or_default(),
        topology_key: either(&spec, metadata, "topologyKey", names::TOPOLOGY_KEY, text, topology_key)?,
        repeat: either(&spec, metadata, "repeat", names::REPEAT, object, repeat)?,
        startup_timeout: either(&spec, metadata, "nodeStartupTimeout", names::NODE_STARTUP_TIMEOUT, text, positive_duration)?,
    })
}

fn positive_duration(value: &Value, place: &str) -> Result<Duration, Invalid> {
    let text: String = decode(value, place, DURATIONS)?;
    let refused = || invalid(format!("{place} must be longer than 0s: write a duration such as 10m, or leave it out"));
    Some(duration(&text, place)?).filter(|duration| !duration.is_zero()).ok_or_else(refused)
}

fn selector(spec: &Fields) -> Result<Selector, Invalid> {
    let write = "matchLabels with texts, and matchExpressions with key, operator and values";
    requirements(spec.read("selector", write)?.unwrap_or_default())
}

fn rules(spec: &Fields) -> Result<Vec<Rule>, Invalid> {
    let conditions: Vec<UnhealthyCondition> = match spec.list("unhealthyConditions")? {
        None => nhc::default_conditions(),
        Some(listed) => {
            let place = |number| format!("spec.unhealthyConditions[{number}]");
            let each = listed.iter().enumerate();
            each.map(|(number, value)| decode(value, &place(number), "type, status and duration, each as text in quotes"))
                .collect::<Result<_, _>>()?
        }
    };
    if conditions.is_empty() {
        return Err(invalid(
            "spec.unhealthyConditions is empty: nothing would ever be unhealthy; leave it out for the defaults".into(),
        ));
    }
    conditions.iter().enumerate().map(|(number, condition)| rule(number, condition)).collect()
}

fn rule(number: usize, condition: &UnhealthyCondition) -> Result<Rule, Invalid> {
    let UnhealthyCondition { kind, status, duration: lasts_for } = condition;
    let place = format!("spec.unhealthyConditions[{number}]");
    if kind.is_empty() || status.is_empty() {
        return Err(invalid(format!("{place}: type and status must not be empty: write them as in Ready and \"False\"")));
    }
    let lasts_for = duration(lasts_for, &format!("{place}.duration"))?;
    Ok(Rule { kind: kind.as_str().into(), status: status.as_str().into(), lasts_for })
}

fn threshold(spec: &Fields) -> Result<Option<Threshold>, Invalid> {
    let amount = |field: &str| -> Result<Option<Amount>, Invalid> {
        match spec.read(field, "a number such as 3, or a percentage such as \"49%\"")? {
            None => Ok(None),
            Some(IntOrPercent::Int(count)) if count < 0 => Err(invalid(format!("{field} must not be negative: {count}"))),
            Some(IntOrPercent::Int(count)) => Ok(Some(Amount::Count(u32::try_from(count).unwrap_or(u32::MAX)))),
            Some(IntOrPercent::Percent(percent)) => Ok(Some(Amount::Percent(percent))),
        }
    };
    match (amount("minHealthy")?, amount("maxUnhealthy")?) {
        (Some(_), Some(_)) => {
            Err(invalid("minHealthy and maxUnhealthy cannot be specified at the same time: remove one of them".into()))
        }
        (Some(min), None) => Ok(Some(Threshold::MinHealthy(min))),
        (None, Some(max)) => Ok(Some(Threshold::MaxUnhealthy(max))),
        (None, None) => Ok(None),
    }
}

fn steps(spec: &Fields, threshold: Option<Threshold>) -> Result<Vec<Step>, Invalid> {
    let single: Option<ObjectReference> = spec.read("remediationTemplate", TEMPLATES)?;
    let several = spec.list("escalatingRemediations")?.unwrap_or_default();
    let (steps, suffix) = match (single, several) {
        (Some(_), [_, ..]) => {
            return Err(invalid(
                "RemediationTemplate and EscalatingRemediations usage is mutual exclusive: remove one of them".into(),
            ));
        }
        (None, []) => {
            return Err(invalid(
                "Either RemediationTemplate or at least one EscalatingRemediations must be set: write spec.remediationTemplate"
                    .into(),
            ));
        }
        (Some(single), []) => (vec![Step { template: template(&single, "spec.remediationTemplate")?, timeout: None }], ""),
        (None, several) => (escalation(several)?, " escalating remediation"),
    };
    let deletes = |step: &Step| step.template.kind.kind.eq_ignore_ascii_case(MACHINE_DELETION);
    match threshold {
        Some(Threshold::MaxUnhealthy(_)) if steps.iter().any(deletes) => {
            Err(invalid(format!("maxUnhealthy can't be used with {MACHINE_DELETION}{suffix}: write minHealthy instead")))
        }
        Some(_) | None => Ok(steps),
    }
}

/// In the order in which they are tried.
fn escalation(several: &[Value]) -> Result<Vec<Step>, Invalid> {
    let mut steps: Vec<(i64, Step)> = Vec::new();
    for (number, value) in several.iter().enumerate() {
        let place = format!("spec.escalatingRemediations[{number}]");
        let step: EscalatingRemediation = decode(value, &place, "remediationTemplate, order as a number and timeout as text")?;
        let timeout = duration(&step.timeout, &format!("{place}.timeout"))?;
        if timeout < STEP_TIMEOUT_MIN {
            return Err(invalid(format!(
                "{place}: EscalatingRemediation Timeout must be at least one minute: found timeout {}: write 60s or longer",
                step.timeout
            )));
        }
        if steps.iter().any(|(order, _)| *order == step.order) {
            return Err(invalid(format!(
                "{place}: EscalatingRemediation Order must be unique: found duplicate order {}: write a different number for each",
                step.order
            )));
        }
        let template = template(&step.remediation_template, &format!("{place}.remediationTemplate"))?;
        steps.push((step.order, Step { template, timeout: Some(timeout) }));
    }
    steps.sort_by_key(|(order, _)| *order);
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

fn pause_requests(spec: &Fields) -> Result<Vec<Box<str>>, Invalid> {
    Ok(spec.read("pauseRequests", "a list of texts")?.unwrap_or_default())
}

fn healthy_delay(spec: &Fields) -> Result<HealthyDelay, Invalid> {
    let Some(text) = spec.read::<String>("healthyDelay", DURATIONS)? else { return Ok(HealthyDelay::None) };
    Ok(match go_duration(&text, "spec.healthyDelay")?.non_negative() {
        None => HealthyDelay::UntilConfirmed,
        Some(Duration::ZERO) => HealthyDelay::None,
        Some(delay) => HealthyDelay::For(delay),
    })
}

/// A field of ours, which is also an annotation for where a foreign definition drops the field. Where both are given
/// and differ, nobody knows which one is meant: a dry run must never act for real.
fn either<T: PartialEq>(
    spec: &Fields,
    metadata: &Meta,
    field: &str,
    annotation: &str,
    annotated: fn(&str) -> Result<Value, String>,
    read: fn(&Value, &str) -> Result<T, Invalid>,
) -> Result<Option<T>, Invalid> {
    let in_spec = spec.field(field).map(|value| read(value, &format!("spec.{field}"))).transpose()?;
    let place = format!("annotation {annotation}");
    let in_annotation = metadata.annotation(annotation).map(|text| {
        let value = annotated(text).map_err(|error| invalid(format!("{place}: {error}")))?;
        read(&value, &place)
    });
    match (in_spec, in_annotation.transpose()?) {
        (Some(own), Some(other)) if own != other => {
            Err(invalid(format!("spec.{field} and the {place} contradict each other: remove one of them")))
        }
        (own, other) => Ok(own.or(other)),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the other form of an annotation can fail")]
fn text(annotation: &str) -> Result<Value, String> {
    Ok(annotation.into())
}

fn object(annotation: &str) -> Result<Value, String> {
    serde_json::from_str(annotation).map_err(|error| format!("{error}: write {REPEATS}, as JSON"))
}

fn mode(value: &Value, place: &str) -> Result<Mode, Invalid> {
    Ok(match decode(value, place, "Act or DryRun")? {
        nhc::Mode::Act => Mode::Act,
        nhc::Mode::DryRun => Mode::DryRun,
    })
}

fn topology_key(value: &Value, place: &str) -> Result<Box<str>, Invalid> {
    let write = "the key of a label, such as topology.kubernetes.io/zone";
    let key: Box<str> = decode(value, place, write)?;
    let refused = || invalid(format!("{place}: {:?} is no label key: write {write}", shown(&key)));
    is_label_key(&key).then(|| key.clone()).ok_or_else(refused)
}

const REPEATS: &str = "an object with max from 1 to 100, within and, if wanted, backoff and maxBackoff";

fn repeat(value: &Value, place: &str) -> Result<Repeat, Invalid> {
    let nhc::Repeat { max, within, backoff, max_backoff } = decode(value, place, REPEATS)?;
    if !(1..=nhc::REPEATS_MAX).contains(&max) {
        return Err(invalid(format!("{place}.max is {max}: write a number from 1 to {}", nhc::REPEATS_MAX)));
    }
    let within = positive_duration(&within.into(), &format!("{place}.within"))?;
    let optional = |text: Option<String>, field: &str, otherwise| match text {
        Some(text) => duration(&text, &format!("{place}.{field}")),
        None => Ok(otherwise),
    };
    let has_max = max_backoff.is_some();
    let backoff = optional(backoff, "backoff", Duration::ZERO)?;
    let max_backoff = optional(max_backoff, "maxBackoff", within)?;
    match backoff > max_backoff {
        true if has_max => {
            Err(invalid(format!("{place}: backoff must not be longer than maxBackoff: write a longer maxBackoff")))
        }
        // Longer than the window: the node is left alone until the first time is forgotten.
        true => Ok(Repeat { max, within, backoff, max_backoff: backoff }),
        false => Ok(Repeat { max, within, backoff, max_backoff }),
    }
}
