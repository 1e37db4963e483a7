//! What becomes of a request between a controller and the API?

use crate::clock::{Millis, SECOND};
use crate::rng::Rng;
use crate::scenario::NetSpec;

pub struct Net {
    pub spec: NetSpec,
    rng: Rng,
    links: Vec<Link>,
}

#[derive(Clone, Default)]
struct Link {
    cut: bool,
    /// Watches lag by so much.
    lag: Millis,
}

/// All times count from the sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Executed and answered.
    Through { executed: Millis, answered: Millis },
    /// The server says no before it does anything.
    Refused { code: u16, answered: Millis },
    /// The connection breaks before the request has arrived.
    CutBefore { told: Millis },
    /// The request is executed, the answer lost; None: nobody is told, the client waits for its time-out.
    CutAfter { executed: Millis, told: Option<Millis> },
    /// It goes nowhere, and nobody is told.
    Nowhere,
}

impl Fate {
    pub fn word(self) -> Option<&'static str> {
        match self {
            Fate::Through { executed, .. } if executed < SECOND => None,
            Fate::Through { .. } => Some("request slow"),
            Fate::Refused { .. } => Some("request refused"),
            Fate::CutBefore { .. } => Some("request cut before"),
            Fate::CutAfter { told: Some(_), .. } => Some("answer lost"),
            Fate::CutAfter { told: None, .. } => Some("request late"),
            Fate::Nowhere => Some("request nowhere"),
        }
    }
}

/// A request that its sender has given up is executed no later than this: for as long as the sender waits it may be on
/// its way, and for as long again the server may work on it.
const LATE: (Millis, Millis) = (4 * SECOND + 1, 8 * SECOND);

impl Net {
    pub fn new(spec: NetSpec, replicas: usize, rng: Rng) -> Net {
        Net { spec, rng, links: vec![Link::default(); replicas] }
    }

    pub fn heals(&mut self) {
        self.spec = NetSpec { latency: self.spec.latency, ..NetSpec::good() };
        self.links.fill(Link::default());
    }

    pub fn cut(&mut self, replica: usize, cut: bool) {
        self.links[replica].cut = cut;
    }

    pub fn is_cut(&self, replica: usize) -> bool {
        self.links[replica].cut
    }

    pub fn lag(&mut self, replica: usize, by: Millis) {
        self.links[replica].lag = by;
    }

    pub fn lag_of(&self, replica: usize) -> Millis {
        self.links[replica].lag
    }

    pub fn latency(&mut self) -> Millis {
        self.rng.within(1..=self.spec.latency.max(1))
    }

    pub fn fate(&mut self, replica: usize, api_is_up: bool) -> Fate {
        if self.links[replica].cut {
            return Fate::Nowhere;
        }
        let latency = self.latency();
        if !api_is_up {
            return Fate::CutBefore { told: latency };
        }
        let NetSpec { slow, refused, cut_before, cut_after, late, .. } = self.spec;
        let mut drawn = u32::try_from(self.rng.below(100)).unwrap_or(0);
        let mut is = |percent: u32| {
            let hit = drawn < percent;
            drawn = drawn.saturating_sub(percent);
            hit && percent > 0
        };
        let (is_slow, is_refused, is_before, is_after, is_late) =
            (is(slow), is(refused), is(cut_before), is(cut_after), is(late));
        if is_slow {
            let executed = self.rng.within(SECOND..=3 * SECOND);
            Fate::Through { executed, answered: executed + self.rng.within(1..=3 * SECOND) }
        } else if is_refused {
            Fate::Refused { code: if self.rng.chance(50) { 429 } else { 503 }, answered: latency }
        } else if is_before {
            Fate::CutBefore { told: latency }
        } else if is_after {
            Fate::CutAfter { executed: latency, told: Some(latency + self.rng.within(1..=100)) }
        } else if is_late {
            Fate::CutAfter { executed: self.rng.within(LATE.0..=LATE.1), told: None }
        } else {
            Fate::Through { executed: latency / 2, answered: latency }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_fate_is_met_and_none_in_good_times() {
        let spec = NetSpec { latency: 20, slow: 10, refused: 10, cut_before: 10, cut_after: 10, late: 10, lag_max: 0 };
        let mut net = Net::new(spec, 1, Rng::of(3, "net"));
        let met: BTreeSet<_> = (0..500).filter_map(|_| net.fate(0, true).word()).collect();
        assert_eq!(met.len(), 5, "{met:?}");
        net.cut(0, true);
        assert_eq!(net.fate(0, true), Fate::Nowhere);
        net.heals();
        assert!((0..500).all(|_| net.fate(0, true).word().is_none()));
        assert!(matches!(net.fate(0, false), Fate::CutBefore { .. }));
    }
}
