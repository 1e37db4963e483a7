//! Which kinds do we define?

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::names::{MANAGED_BY_LABEL, MANAGER};

pub mod nhc;

/// Everything that `deploy/crds` holds.
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![nhc::NodeHealthCheck::crd()];
    for crd in &mut crds {
        // Says whose definition it is; a definition of the same kind that others installed does not have it.
        crd.metadata.labels.get_or_insert_default().insert(MANAGED_BY_LABEL.into(), MANAGER.into());
    }
    crds
}
