//! Chance, from a seed, so that every run can be repeated.

use serde_json::{Map, Value, json};

/// What long texts consist of.
pub const FILL: &str = "x";

/// SplitMix64.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, many: u64) -> u64 {
        self.next() % many
    }

    pub fn index(&mut self, many: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(many).unwrap_or(1)).unwrap_or(0)
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// One time in three something in it is replaced, renamed, or gone.
    pub fn bent(&mut self, mut value: Value) -> Value {
        if self.below(3) == 0 {
            for _ in 0..=self.below(3) {
                self.bend(&mut value);
            }
        }
        value
    }

    pub fn bent_rarely(&mut self, value: Value) -> Value {
        if self.below(20) == 0 { self.bent(value) } else { value }
    }

    fn bend(&mut self, value: &mut Value) {
        match value {
            Value::Object(all) if !all.is_empty() && self.below(6) > 0 => {
                let keys: Vec<String> = all.keys().cloned().collect();
                let key = &keys[self.index(keys.len())];
                match self.below(12) {
                    0 => drop(all.remove(key)),
                    1 => {
                        let value = all.remove(key).unwrap_or_default();
                        all.insert(self.text(), value);
                    }
                    _ => all.get_mut(key).into_iter().for_each(|below| self.bend(below)),
                }
            }
            Value::Array(all) if !all.is_empty() && self.below(6) > 0 => {
                let at = self.index(all.len());
                match self.below(8) {
                    0 => drop(all.remove(at)),
                    1 => all.push(all[at].clone()),
                    _ => self.bend(&mut all[at]),
                }
            }
            _ => *value = self.hostile(),
        }
    }

    fn hostile(&mut self) -> Value {
        match self.below(16) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.pick(&[0, -1, i64::MAX, i64::MIN, 1 << 40])),
            3 => json!(self.pick(&[1e308, -0.5, 1e-9])),
            4 => json!([]),
            5 => json!({}),
            6 => (0..self.below(200)).fold(json!(0), |inner, _| json!([inner])),
            7 => (0..self.below(200)).fold(json!({}), |inner, n| json!({"metadata": inner, "n": n})),
            8 => json!({self.text(): self.text()}),
            9 => Value::Array((0..self.below(300)).map(|_| json!({"type": "Ready", "status": "False"})).collect()),
            10 => Value::Object((0..self.below(300)).map(|n| (n.to_string(), json!("v"))).collect::<Map<_, _>>()),
            _ => json!(self.text()),
        }
    }

    pub fn text(&mut self) -> String {
        let length = self.pick(&[253, 254, 300, 3_000, 70_000]);
        match self.below(14) {
            0 => String::new(),
            1 | 2 => FILL.repeat(length),
            3 => format!("default/{}", FILL.repeat(length)),
            4 => format!("{}/v1", FILL.repeat(length)),
            5 => "\u{fc}".repeat(length / 10),
            6 => "1 2".to_owned(),
            7 => "two\nlines\r\t\u{0}\u{1b}[31m\u{202e}\u{feff}".to_owned(),
            8 => "../../%2F?x=y&z#".to_owned(),
            9 => self.pick(&["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "-009999-01-01T00:00:00Z", "yesterday"]).to_owned(),
            10 => self.pick(&["-1h", "2562047h48m", "1ns", "99999999999999999999h", "101%", "-1%", "9999999999"]).to_owned(),
            11 => self.pick(&["True", "False", "Unknown", "true", "Ready"]).to_owned(),
            12 => format!("Waiting for {} ({}/v1)", FILL.repeat(length), FILL.repeat(length)),
            _ => self.pick(&["n1", "n2", "m1", "default", "RebootTemplate", "provider.test/v1", "v1"]).to_owned(),
        }
    }

    /// One time in twenty it is no longer what it was.
    pub fn garbled(&mut self, text: String) -> Vec<u8> {
        let mut bytes = text.into_bytes();
        if self.below(20) == 0 && !bytes.is_empty() {
            let at = self.index(bytes.len());
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = u8::try_from(self.below(256)).unwrap_or(0),
                2 => bytes.splice(at..at, [0xff, 0x00, b'"', b'{']).for_each(drop),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    }
}
