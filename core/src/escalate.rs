//! What would repair this node next, and under which name?
//!
//! The steps of a check are tried one after the other. What is left of earlier steps stays until the node is healthy;
//! then everything goes together. Whether a step may be taken now is the gate's question.

use crate::decision::Because;
use crate::event;
use crate::facts::{Body, Check, Kind, Name, Node, Object, ObjectKey, Policy, Served, Step};
use crate::nhc::Remediation;
use crate::time::{Mono, Now};
use crate::world::World;

/// Everything that a remediation is made from.
pub struct Workshop<'a> {
    pub template: &'a Object,
    pub body: &'a Body,
    pub kind: Kind,
    pub served: &'a Served,
}

/// A remediation's kind is its template's without this suffix.
pub const TEMPLATE_SUFFIX: &str = "Template";

/// Metal3 works on the Machine that owns a remediation, and an owner has to be in the same namespace.
const METAL3: (&str, &str, &str) = ("infrastructure.cluster.x-k8s.io", "Metal3RemediationTemplate", "openshift-machine-api");

/// One for each step, or why the check can do nothing at all.
pub fn workshops<'a>(world: &'a World, policy: &Policy) -> Result<Vec<Workshop<'a>>, Because> {
    let usable = |step: &Step| match metal3_trouble(&step.template) {
        Some(why) => Err(Because::TemplateInvalid { key: step.template.clone(), why }),
        None => workshop(world, &step.template),
    };
    policy.steps.iter().map(usable).collect()
}

pub fn workshop<'a>(world: &'a World, key: &ObjectKey) -> Result<Workshop<'a>, Because> {
    let kind = remediation_kind(&key.kind);
    match world.served(&key.kind).map(|served| (served.namespaced, &key.namespace)) {
        None => return Err(Because::KindNotServed { key: key.clone() }),
        Some((true, None)) => return Err(Because::TemplateUnplaced { key: key.clone() }),
        Some((false, Some(_))) => {
            let why = "its kind is not namespaced: remove the namespace from its reference".into();
            return Err(Because::TemplateInvalid { key: key.clone(), why });
        }
        Some((true, Some(_)) | (false, None)) => {}
    }
    let Some(served) = world.served(&kind) else {
        return Err(Because::KindNotServed { key: ObjectKey { kind, ..key.clone() } });
    };
    let Some(template) = world.objects.get(key).filter(|template| !template.deleting) else {
        return Err(Because::TemplateMissing { key: key.clone() });
    };
    match &template.body {
        Some(Ok(body)) => Ok(Workshop { template, body, kind, served }),
        Some(Err(invalid)) => Err(Because::TemplateInvalid { key: key.clone(), why: invalid.0.clone() }),
        None => Err(Because::TemplateInvalid { key: key.clone(), why: "it has no spec.template.spec".into() }),
    }
}

pub fn remediation_kind(template: &Kind) -> Kind {
    let name = template.kind.strip_suffix(TEMPLATE_SUFFIX).unwrap_or(&template.kind);
    Kind { api_version: template.api_version.clone(), kind: name.into() }
}

pub fn template_kind(remediation: &Kind) -> Kind {
    Kind { api_version: remediation.api_version.clone(), kind: format!("{}{TEMPLATE_SUFFIX}", remediation.kind).into() }
}

fn metal3_trouble(key: &ObjectKey) -> Option<Name> {
    let (group, kind, namespace) = METAL3;
    let is_metal3 = &*key.kind.kind == kind && key.kind.api_version.split('/').next() == Some(group);
    (is_metal3 && key.namespace.as_deref() != Some(namespace))
        .then(|| format!("it has to be in the namespace {namespace}, where Metal3 finds the node's Machine").into())
}

impl Workshop<'_> {
    /// Deterministic, so that a second attempt finds the first.
    pub fn name_for(&self, check: &Check, node: &Node, step: usize) -> ObjectKey {
        let name = if self.template.allows_several {
            let parts = [&*check.uid, &*node.name, &self.template.key.to_string(), &step.to_string()];
            event::named(&node.name, '-', event::hash(&parts))
        } else {
            node.name.clone()
        };
        ObjectKey { kind: self.kind.clone(), namespace: self.template.key.namespace.clone(), name }
    }
}

/// How far the repair of a node has got.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// This step is next; nothing of it exists.
    Next(usize),
    /// This remediation is at work, until then if it has a time-out.
    Working(&'a Object, Option<Mono>),
    /// All steps have been tried.
    Exhausted,
}

/// `remembered` are remediations that are gone, but were given up before.
pub fn progress<'a>(world: &World, policy: &Policy, mine: &[&'a Object], remembered: &[&Remediation], now: Now) -> Progress<'a> {
    if let Some(at_work) = at_work(world, policy, mine, now) {
        return at_work;
    }
    let is_tried = |step: &Step| {
        let is_there = mine.iter().any(|object| is_of(&object.key, object.template.as_ref(), step));
        is_there || remembered.iter().any(|gone| is_of(&gone.key, gone.template.as_ref(), step))
    };
    policy.steps.iter().position(|step| !is_tried(step)).map_or(Progress::Exhausted, Progress::Next)
}

/// Whatever has begun has its time, of whichever step it is by now: the steps of a check may be edited meanwhile. What belongs to no
/// step was made from a template that the check no longer names: it is at work all the same, until it was given up.
fn at_work<'a>(world: &World, policy: &Policy, mine: &[&'a Object], now: Now) -> Option<Progress<'a>> {
    let is_over = |object: &Object| match step_of(policy, object) {
        Some(step) => is_over(world, step, object, now),
        None => object.timed_out || object.succeeded == Some(false),
    };
    let object = mine.iter().find(|object| !is_over(object))?;
    Some(Progress::Working(object, step_of(policy, object).and_then(|step| gives_up_at(world, step, object, now))))
}

pub fn step_of<'a>(policy: &'a Policy, object: &Object) -> Option<&'a Step> {
    policy.steps.iter().find(|step| is_of(&object.key, object.template.as_ref(), step))
}

/// Has the remediation failed, or had its time?
pub fn is_over(world: &World, step: &Step, object: &Object, now: Now) -> bool {
    let has_failed = object.succeeded == Some(false) || object.timed_out;
    step.timeout.is_some() && (has_failed || gives_up_at(world, step, object, now).is_some_and(|at| now.mono >= at))
}

/// The first millisecond at which the step's time is over, strictly.
pub fn gives_up_at(world: &World, step: &Step, object: &Object, now: Now) -> Option<Mono> {
    step.timeout.map(|timeout| world.clock.anchor(object.created_at, now).beyond(timeout))
}

fn is_of(key: &ObjectKey, template: Option<&Name>, step: &Step) -> bool {
    key.kind == remediation_kind(&step.template.kind)
        && key.namespace == step.template.namespace
        && template.is_none_or(|template| *template == step.template.name)
}
