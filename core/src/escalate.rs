//! What would repair this node, and under which name?
//!
//! One template per check so far. Whether it can be used is decided here; whether it may be used now is
//! the gate's question.

use crate::decision::Because;
use crate::facts::{Check, Kind, Name, Node, Object, ObjectKey, Policy, Served};
use crate::nhc;
use crate::world::World;

/// Everything that a remediation of this check is made from.
pub struct Workshop<'a> {
    pub template: &'a Object,
    pub body: &'a Name,
    pub kind: Kind,
    pub served: &'a Served,
}

/// A remediation's kind is its template's without this suffix.
pub const TEMPLATE_SUFFIX: &str = "Template";

/// Later steps of an escalation will count on from here.
const FIRST_STEP: &str = "0";

pub fn workshop<'a>(world: &'a World, policy: &Policy) -> Result<Workshop<'a>, Because> {
    let key = &policy.steps.first().expect("a policy has at least one step").template;
    let kind = remediation_kind(key);
    if let Some(why) = namespace_trouble(world, key) {
        return Err(Because::TemplateInvalid { key: key.clone(), why });
    }
    if world.served(&key.kind).is_none() {
        return Err(Because::KindNotServed { key: key.clone() });
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

pub fn remediation_kind(template: &ObjectKey) -> Kind {
    let name = template.kind.kind.strip_suffix(TEMPLATE_SUFFIX).unwrap_or(&template.kind.kind);
    Kind { api_version: template.kind.api_version.clone(), kind: name.into() }
}

fn namespace_trouble(world: &World, key: &ObjectKey) -> Option<Name> {
    let served = world.served(&key.kind)?;
    match (&key.namespace, served.namespaced) {
        (None, true) => Some("no namespace is provided: write spec.remediationTemplate.namespace".into()),
        (Some(_), false) => Some("its kind is not namespaced: remove spec.remediationTemplate.namespace".into()),
        (Some(_), true) | (None, false) => None,
    }
}

impl Workshop<'_> {
    /// Deterministic, so that a second attempt finds the first.
    pub fn name_for(&self, check: &Check, node: &Node) -> ObjectKey {
        let name = if self.template.allows_several {
            nhc::named(&node.name, '-', nhc::hash(&[&check.uid, &node.name, &self.template.key.to_string(), FIRST_STEP]))
        } else {
            node.name.clone()
        };
        ObjectKey { kind: self.kind.clone(), namespace: self.template.key.namespace.clone(), name }
    }
}
