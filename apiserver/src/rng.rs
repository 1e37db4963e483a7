//! Names and uids that nobody has had before, the same ones for the same seed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A version 4 UUID.
    pub fn uid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        let (a, b) = (a & !0xf000 | 0x4000, b & !(3 << 62) | 2 << 62);
        format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", a >> 32, a >> 16 & 0xffff, a & 0xffff, b >> 48, b & 0xffff_ffff_ffff)
    }

    /// Five letters and digits, of those that Kubernetes takes: none that are easily confused or make words.
    pub fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let count = LETTERS.len() as u64;
        (0..5).map(|_| char::from(LETTERS[usize::try_from(self.next() % count).unwrap_or(0)])).collect()
    }

    /// For who has nothing better: from any uid all of them follow, those before and those to come.
    pub fn secret(&mut self) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())
    }
}

/// Shaped as clients expect, with claims that they can read; what makes it good is that nobody guesses its end.
pub fn token(claims: &str, secret: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{secret}", part(r#"{"alg":"none","typ":"JWT"}"#), part(claims))
}
