//! Has the writer seen the object that it is about to overwrite?

use serde_json::{Value, json};

use crate::ask::Ask;
use crate::builtin;
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;
use crate::store::Key;
use crate::write::text;

/// Two writers must not overwrite each other unseen.
pub fn check_precondition(ask: &Ask, old: &Value, new: &Value) -> Result<(), Refusal> {
    let was = &old["metadata"];
    check_uid(ask, text(&new["metadata"], "uid"), text(was, "uid"))?;
    match version_of(new)? {
        0 if builtin::updates_unconditionally(ask.resource()) => Ok(()),
        0 => {
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            // Here Kubernetes names the plural, where it names the kind everywhere else.
            let by_plural = Resource { kind: ask.resource().plural.clone(), ..ask.resource().clone() };
            Err(Refusal::invalid(&by_plural, &ask.route.name, vec![cause]))
        }
        version if version.to_string() == text(was, "resourceVersion") => Ok(()),
        _ => Err(Refusal::modified(ask.resource(), &ask.route.name)),
    }
}

/// The version that a writer has seen; 0 if it does not say.
pub fn version_of(object: &Value) -> Result<u64, Refusal> {
    match text(&object["metadata"], "resourceVersion") {
        "" => Ok(0),
        version => version.parse().map_err(|_| {
            let is_number = version.bytes().all(|byte| byte.is_ascii_digit());
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Refusal::plain(format!("strconv.ParseUint: parsing {version:?}: {why}"))
        }),
    }
}

/// Who names a uid means that very object.
pub fn check_uid(ask: &Ask, uid: &str, is: &str) -> Result<(), Refusal> {
    if uid.is_empty() || uid == is {
        return Ok(());
    }
    let Key { namespace, name } = ask.route.key();
    // The oldest name of Nodes has survived here.
    let plural = if ask.resource().is("", "nodes") { "minions" } else { &ask.resource().plural };
    let place = [ask.resource().custom.as_ref().map_or("", |_| &ask.resource().group), plural, &namespace, &name];
    // Where nothing is stored the place has no root.
    let root = if ask.is_dry_run() { "" } else { "/registry" };
    let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
    let detail = format!(
        "StorageError: invalid object, Code: 4, Key: {root}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {is}",
        place.join("/"),
    );
    Err(Refusal::conflict(ask.resource(), &ask.route.name, &detail))
}
