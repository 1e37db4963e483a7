//! What must hold for an object, and what does the server fill in?

use serde_json::Value;

use crate::admission;
use crate::ask::Ask;
use crate::builtin;
use crate::cel;
use crate::crd;
use crate::delete::is_definition;
use crate::refusal::Cause;
use crate::server::Server;
use crate::structural;

/// After a cause of these reasons CEL rules are not evaluated.
const BREAKS_RULES: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];
const UNCHECKED: &str = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

impl Server {
    pub(crate) fn default(&self, ask: &Ask, object: &mut Value) {
        let resource = ask.resource();
        match resource.custom {
            Some(_) => structural::default(object, &resource.schema),
            None if is_definition(resource) => crd::default(object),
            None => builtin::default(resource, object),
        }
    }

    pub(crate) fn prepare_create(&self, ask: &Ask, object: &mut Value) {
        let resource = ask.resource();
        if resource.custom.is_none() {
            builtin::prepare_create(resource, object);
            if is_definition(resource) {
                // The status that a client sent is gone now; which version is stored is known all the same.
                crd::default(object);
            }
        } else if resource.has("status")
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
            structural::default(object, &resource.schema);
        }
        if resource.is("certificates.k8s.io", "certificatesigningrequests") {
            builtin::set_requester(object, &ask.user);
        }
    }

    /// `old` is what is stored, at an update.
    pub(crate) fn validate(&self, ask: &Ask, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let resource = ask.resource();
        let mut causes = builtin::validate_meta(resource, object, old);
        let is_policy = resource.is("admissionregistration.k8s.io", "validatingadmissionpolicies");
        if resource.custom.is_some() {
            let shape = match ask.route.subresource.as_str() {
                "status" => structural::validate_status(object, old, &resource.schema),
                _ => structural::validate(object, old, &resource.schema),
            };
            // Rules may count on the shape that the schema promises.
            if !shape.iter().any(|cause| BREAKS_RULES.contains(&cause.reason)) {
                causes.extend(shape);
                let rules = cel::check(object, old, &resource.schema).into_iter();
                causes.extend(rules.map(|cause| match cause.field.is_empty() {
                    true => Cause { field: "<nil>".to_owned(), ..cause },
                    false => cause,
                }));
            } else {
                causes.extend(shape);
                if cel::has_rules(&resource.schema) {
                    causes.push(Cause { field: "<nil>".to_owned(), reason: "FieldValueInvalid", message: UNCHECKED.to_owned() });
                }
            }
        } else if is_definition(resource) {
            causes.extend(crd::validate(object, old));
        } else if is_policy {
            causes.extend(admission::validate(object));
        } else {
            causes.extend(match (old, ask.route.subresource.as_str()) {
                (None, _) => builtin::validate_create(resource, object),
                (Some(old), "" | "scale") => builtin::validate_update(resource, object, old),
                (Some(old), "status") => builtin::validate_status(resource, object, old),
                // Others set what nobody else may, as the scheduler does.
                (Some(old), other) => builtin::validate_subresource(resource, other, object, old),
            });
        }
        causes
    }
}
