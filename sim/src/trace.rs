//! What went on, as a number that must be the same each time, and as the last part of a story.

use std::collections::{BTreeMap, VecDeque};

use crate::clock::Millis;
use crate::happening::{Happening, Violation, What};

/// Happenings that are kept for reports: some minutes of a busy run.
const KEPT_MAX: usize = 400;
/// A broken rule is broken again and again; the first cases tell the story.
const VIOLATIONS_MAX: usize = 20;

#[derive(Default)]
pub struct Trace {
    hash: Hash,
    recent: VecDeque<Happening>,
    /// Not yet handed out by `step`.
    pub news: VecDeque<Happening>,
    pub violations: Vec<Violation>,
    counters: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// Everything that happens feeds the hash, notable or not.
    pub fn feed(&mut self, at: Millis, parts: &[&[u8]]) {
        self.hash.feed(&at.to_le_bytes());
        parts.iter().for_each(|part| self.hash.feed(part));
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    pub fn tell(&mut self, at: Millis, what: What) {
        let happening = Happening { at, what };
        self.feed(at, &[happening.to_string().as_bytes()]);
        if self.recent.len() == KEPT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(happening.clone());
        self.news.push_back(happening);
    }

    pub fn violated(&mut self, rule: &'static str, at: Millis, story: String) {
        let violation = Violation { rule, at, story };
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation.clone());
            self.tell(at, What::Violation(violation));
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash.0
    }

    pub fn recent(&self) -> impl Iterator<Item = &Happening> {
        self.recent.iter()
    }

    pub fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }
}

/// FNV-1a.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn feed(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().chain(&[0xff]).fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_time_change_the_hash() {
        let hash = |events: &[(Millis, &str)]| {
            let mut trace = Trace::default();
            events.iter().for_each(|(at, text)| trace.feed(*at, &[text.as_bytes()]));
            trace.hash()
        };
        assert_eq!(hash(&[(1, "a"), (2, "b")]), hash(&[(1, "a"), (2, "b")]));
        assert_ne!(hash(&[(1, "a"), (2, "b")]), hash(&[(2, "b"), (1, "a")]));
        assert_ne!(hash(&[(1, "a")]), hash(&[(2, "a")]));
    }
}
