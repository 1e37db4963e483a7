//! Is there something left of another template, or of a check that is gone?
//!
//! Two repairs must not meet on one machine, and an object that no check would remove would never go. It carries our mark;
//! which kind it has stands on the Machine, too, in the condition ExternallyRemediated, for who has not seen it yet.

use crate::facts::{Kind, Object, Source};
use crate::kinds;
use crate::mhc::facts::{Machine, Sign, Style};
use crate::mhc::status;
use crate::plan::Draft;

pub enum Earlier<'a> {
    Nothing,
    /// Not enough has been heard.
    Unknown(Source),
    There(&'a Object),
}

impl<'a> Draft<'a> {
    /// `own` is the kind that the machine's check makes, if it makes any.
    pub(super) fn earlier(&self, machine: &Machine, own: Option<&Kind>) -> Earlier<'a> {
        let is_other = |kind: &Kind| own.is_none_or(|own| !own.is_like(kind));
        if let Some(object) = self.made_for(machine).find(|object| is_other(&object.key.kind)) {
            return Earlier::There(object);
        }
        let Some(kind) = kind_on(machine).filter(is_other) else { return Earlier::Nothing };
        let is_made = kinds::is_made(self.world, &kind);
        let is_known = self.world.kinds.contains_key(&kind.api_version);
        let source = Source::Objects(kind);
        if is_known && (!is_made || self.world.is_synced(&source)) { Earlier::Nothing } else { Earlier::Unknown(source) }
    }

    /// What was made for the machine by us, of whichever kind.
    pub(in crate::plan) fn made_for<'s>(&'s self, machine: &'s Machine) -> impl Iterator<Item = &'a Object> + use<'s, 'a> {
        let objects = self.made_for_machines.get(&(&machine.place.namespace, &machine.place.name)).into_iter().flatten();
        objects.copied().filter(|object| machine.is_repaired_by(object))
    }

    pub(super) fn remove_earlier(&mut self, object: &Object) {
        let is_fresh = self.world.is_fresh(&Source::Objects(object.key.kind.clone()), self.now.mono);
        if is_fresh && !object.deleting {
            self.delete(object, Vec::new());
        }
    }
}

/// The kind of what was made for the machine, as we wrote it down there.
pub fn kind_on(machine: &Machine) -> Option<Kind> {
    let posted = machine.board(Style::New)?.get(Sign::ExternallyRemediated)?;
    status::awaited(posted)
}
