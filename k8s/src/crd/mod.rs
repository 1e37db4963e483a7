//! Which kinds do we define?

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use crate::names::{MANAGED_BY_LABEL, MANAGER};

pub mod nhc;
pub mod poison_pill;
pub mod policy;
mod rules;

/// Every definition that `deploy/crds` holds.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        nhc::NodeHealthCheck::crd(),
        poison_pill::PoisonPillRemediation::crd(),
        poison_pill::PoisonPillRemediationTemplate::crd(),
    ];
    for crd in &mut crds {
        // Says whose definition it is; a definition of the same kind that others installed does not have it.
        crd.metadata.labels.get_or_insert_default().insert(MANAGED_BY_LABEL.into(), MANAGER.into());
        let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
        schemas.for_each(without_nulls);
    }
    crds
}

/// To a rule, a field that is null is there. The reference's definitions take no nulls either.
fn without_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(allowed) = &mut schema.enum_ {
        allowed.retain(|value| !value.0.is_null());
    }
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(without_nulls);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_nulls(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        without_nulls(values);
    }
}
