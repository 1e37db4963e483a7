//! What do people hear of something that happened, and under which name is it written?

use crate::facts::{Name, ObjectKey};
use crate::text::NAME_MAX;
use crate::time::Wall;

/// An Event to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The same for every attempt to report the same thing.
    pub name: Name,
    pub about: ObjectKey,
    pub about_uid: Name,
    pub warning: bool,
    pub reason: &'static str,
    pub message: Name,
    pub at: Wall,
    /// It speaks for several nodes. Another a moment later would speak for nearly the same, so it waits for the pace of the status.
    pub sums_up: bool,
}

impl Event {
    /// `anchor` tells it from others of the same reason about the same object.
    pub fn new(about: ObjectKey, uid: &Name, reason: &'static str, anchor: &str, message: &str, at: Wall) -> Event {
        Event {
            name: named(&about.name, '.', hash(&[uid, reason, anchor])),
            about,
            about_uid: uid.clone(),
            warning: false,
            reason,
            message: message.into(),
            at,
            sums_up: false,
        }
    }

    pub fn warning(self) -> Event {
        Event { warning: true, ..self }
    }
}

/// A name made of another, that a second attempt would choose again. A long one is cut, its hash keeps it unique.
pub fn named(prefix: &str, between: char, hash: u64) -> Name {
    let room = NAME_MAX - 17;
    let cut = prefix.char_indices().map(|(at, _)| at).find(|at| *at >= room).unwrap_or(prefix.len());
    format!("{}{between}{hash:016x}", prefix[..cut].trim_end_matches(['.', '-'])).into()
}

/// FNV-1a: the same on every machine and in every version, which is all that names need.
pub fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
