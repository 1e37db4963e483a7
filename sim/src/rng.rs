//! Chance, all of it from one seed.
//!
//! Each component has a generator of its own, so that one more draw in one place does not shift all others.

use std::ops::RangeInclusive;

/// xoshiro256++, seeded by splitmix64: small, quick, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    pub fn of(seed: u64, component: &str) -> Rng {
        let mut state = resus_core::event::hash(&[component]) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut splitmix = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Rng([splitmix(), splitmix(), splitmix(), splitmix()])
    }

    pub fn draw(&mut self) -> u64 {
        let s = &mut self.0;
        let drawn = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        drawn
    }

    /// Evenly enough: the ranges here are tiny beside 2^64.
    pub fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        let span = u64::try_from(range.end() - range.start()).map_or(1, |span| span + 1);
        range.start() + i64::try_from(self.draw() % span).unwrap_or(0)
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0..=i64::try_from(count.max(1) - 1).unwrap_or(0))).unwrap_or(0)
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.draw() % 100 < u64::from(percent)
    }

    /// None only of nothing.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_component_draw_the_same_and_others_differ() {
        let draws = |seed, component| -> Vec<u64> {
            let mut rng = Rng::of(seed, component);
            (0..8).map(|_| rng.draw()).collect()
        };
        assert_eq!(draws(1, "net"), draws(1, "net"));
        assert_ne!(draws(1, "net"), draws(2, "net"));
        assert_ne!(draws(1, "net"), draws(1, "machine"));
    }

    #[test]
    fn draws_stay_within_their_range_and_reach_both_ends() {
        let mut rng = Rng::of(7, "range");
        let drawn: Vec<i64> = (0..200).map(|_| rng.within(-2..=2)).collect();
        assert!(drawn.iter().all(|n| (-2..=2).contains(n)));
        assert!(drawn.contains(&-2) && drawn.contains(&2));
        assert!((0..100).all(|_| !rng.chance(0)) && (0..100).all(|_| rng.chance(100)));
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
