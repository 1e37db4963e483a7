//! Is there something left of another template, or of a check that is gone?
//!
//! Two repairs must not meet on one machine, and an object that no check would remove would never go. Which kind it has
//! stands on the Machine, in the condition ExternallyRemediated.

use super::remediation_key;
use crate::effect::Effect;
use crate::facts::{Kind, Object, Source};
use crate::mhc::facts::{Machine, Sign, Style};
use crate::mhc::status;
use crate::plan::Draft;
use crate::world::World;

pub enum Earlier<'a> {
    Nothing,
    /// Not enough has been heard.
    Unknown(Source),
    There(&'a Object),
}

/// `own` is the kind that the machine's check makes, if it makes any.
pub fn earlier<'a>(world: &'a World, machine: &Machine, own: Option<&Kind>) -> Earlier<'a> {
    let Some(kind) = kind_on(machine).filter(|kind| own != Some(kind)) else { return Earlier::Nothing };
    let object = world.objects.get(&remediation_key(&kind, machine));
    let is_ours = |object: &&Object| object.machine_check.is_some() && machine.is_repaired_by(object);
    match object.filter(is_ours) {
        Some(object) => Earlier::There(object),
        None if !world.kinds.contains_key(&kind.api_version) => Earlier::Unknown(Source::Objects(kind)),
        None if world.served(&kind).is_some() && !world.is_synced(&Source::Objects(kind.clone())) => {
            Earlier::Unknown(Source::Objects(kind))
        }
        None => Earlier::Nothing,
    }
}

/// The kind of what was made for the machine, as we wrote it down there.
pub fn kind_on(machine: &Machine) -> Option<Kind> {
    let posted = machine.board(Style::New)?.get(Sign::ExternallyRemediated)?;
    status::awaited(posted)
}

impl Draft<'_> {
    pub(super) fn remove_earlier(&mut self, object: &Object) {
        let is_fresh = self.world.is_fresh(&Source::Objects(object.key.kind.clone()), self.now.mono);
        let served = self.world.served(&object.key.kind).filter(|_| is_fresh && !object.deleting);
        if let Some(served) = served {
            let (key, plural, uid) = (object.key.clone(), served.plural.clone(), object.uid.clone());
            self.send(Effect::Delete { key, plural, uid, tells: Vec::new() });
        }
    }
}
