//! Chance that is the same in each run.

use serde_json::{Map, Value, json};

/// Splitmix64.
pub struct Draw(pub u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(count.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Something that nobody would write there.
    pub fn anything(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 7 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.one_in(2)),
            2 => json!(self.pick(&[0, 1, -1, 30, i64::MAX, i64::MIN])),
            3 => json!(1.5),
            4 => json!(""),
            5 => json!(self.pick(&["0", "5m", "-5m", "1e9h", "[3-1]", "[1-", "150%", "é\n\u{0}", "Ready", "a/b", "{}"])),
            6 => json!("x".repeat(self.below(400))),
            7 => (0..self.below(4)).map(|_| self.anything(depth - 1)).collect(),
            _ => {
                let keys = ["type", "status", "timeout", "matchLabels", "kind", "name", "conditions", "é"];
                let fields: Map<String, Value> =
                    (0..self.below(4)).map(|_| (self.pick(&keys).to_owned(), self.anything(depth - 1))).collect();
                fields.into()
            }
        }
    }

    /// Some values of it replaced by others, or gone.
    pub fn garble(&mut self, value: &mut Value, one_in: usize) {
        if self.one_in(one_in) {
            *value = self.anything(2);
            return;
        }
        match value {
            Value::Object(fields) => {
                let gone = fields.keys().next().filter(|_| self.one_in(one_in)).cloned();
                gone.iter().for_each(|key| drop(fields.remove(key)));
                fields.values_mut().for_each(|value| self.garble(value, one_in));
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.garble(value, one_in)),
            _ => {}
        }
    }
}
