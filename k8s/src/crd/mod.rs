//! Which kinds do we define?

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use crate::names::{MANAGED_BY_LABEL, MANAGER};

mod machine;
mod machine_rules;
pub mod mhc;
pub mod nhc;
pub mod poison_pill;
pub mod policy;
mod rules;

/// Every definition that `deploy/crds` holds.
pub fn all() -> Vec<CustomResourceDefinition> {
    ours(vec![
        nhc::NodeHealthCheck::crd(),
        poison_pill::PoisonPillRemediation::crd(),
        poison_pill::PoisonPillRemediationTemplate::crd(),
    ])
}

/// Those of `deploy/crds-machines`, for clusters without Cluster API.
pub fn machines() -> Vec<CustomResourceDefinition> {
    ours(vec![
        also_as_v1alpha3(mhc::MachineHealthCheck::crd(), mhc::v1alpha3_columns()),
        also_as_v1alpha3(machine::Machine::crd(), machine::v1alpha3_columns()),
    ])
}

/// The older version is the same in all but its columns, so that nothing has to convert one into the other.
fn also_as_v1alpha3(mut crd: CustomResourceDefinition, columns: Vec<CustomResourceColumnDefinition>) -> CustomResourceDefinition {
    let older = crd.spec.versions.first().map(|version| CustomResourceDefinitionVersion {
        name: "v1alpha3".into(),
        storage: false,
        additional_printer_columns: Some(columns),
        ..version.clone()
    });
    crd.spec.versions.splice(0..0, older);
    crd
}

fn ours(mut crds: Vec<CustomResourceDefinition>) -> Vec<CustomResourceDefinition> {
    for crd in &mut crds {
        // Says whose definition it is; a definition of the same kind that others installed does not have it.
        crd.metadata.labels.get_or_insert_default().insert(MANAGED_BY_LABEL.into(), MANAGER.into());
        let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
        schemas.for_each(without_nulls);
    }
    crds
}

fn column(name: &str, kind: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.into(),
        type_: kind.into(),
        json_path: json_path.into(),
        ..CustomResourceColumnDefinition::default()
    }
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
