//! How much is `1500m`, and how does Kubernetes write it back?

use std::fmt;

use serde_json::{Map, Value, json};

/// Kubernetes keeps nine digits after the point and rounds up beyond.
const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// More digits than this cannot be a quantity of anything, and must not overflow.
const DIGITS_MAX: usize = 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    pub nano: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

impl Quantity {
    pub fn parse(text: &str) -> Option<Quantity> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let long = whole.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX;
        if long || fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let (format, numerator, denominator) = scale(suffix)?;
        let digits = match fraction.is_empty() {
            true => whole.parse::<i128>().ok()?,
            false => format!("{whole}{fraction}").parse::<i128>().ok()?,
        };
        let tens = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let above = digits.checked_mul(numerator)?.checked_mul(NANO)?;
        let below = tens.checked_mul(denominator)?;
        let nano = above.checked_add(below - 1)? / below;
        Some(Quantity { nano: if negative { -nano } else { nano }, format })
    }

    pub fn of(value: &Value) -> Option<Quantity> {
        match value {
            Value::String(text) => Quantity::parse(text),
            Value::Number(number) => Quantity::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    pub fn is_integer(&self) -> bool {
        self.nano % NANO == 0
    }
}

/// Rewrites each value of a map of quantities in the form that Kubernetes stores.
pub fn normalise(map: &mut Map<String, Value>) {
    for value in map.values_mut() {
        if value.as_str().is_some_and(is_plainly_canonical) {
            continue;
        }
        if let Some(quantity) = Quantity::of(value) {
            *value = json!(quantity.to_string());
        }
    }
}

/// The cheap answer for nearly all that kubelets send, so that a heartbeat allocates nothing here.
fn is_plainly_canonical(text: &str) -> bool {
    let digits = text.strip_suffix("Ki").unwrap_or(text);
    let simple = !digits.starts_with('0') && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.len() == text.len() {
        true => (simple && !digits.ends_with("000")) || text == "0",
        false => simple && digits.parse::<u64>().is_ok_and(|number| number % 1024 != 0),
    }
}

fn scale(suffix: &str) -> Option<(Format, i128, i128)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(ten_to(*power, Format::Decimal));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == suffix) {
        return Some((Format::Binary, 1i128 << (10 * power), 1));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    (-18..=18).contains(&exponent).then(|| ten_to(exponent, Format::Exponent))
}

fn ten_to(power: i32, format: Format) -> (Format, i128, i128) {
    let tens = 10i128.pow(power.unsigned_abs());
    if power < 0 { (format, 1, tens) } else { (format, tens, 1) }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return out.write_str("0");
        }
        let is_small = self.nano.abs() < 1024 * NANO;
        if self.format == Format::Binary && !is_small {
            let mut number = self.nano / NANO;
            let mut power = 0;
            while number % 1024 == 0 && power + 1 < BINARY.len() {
                (number, power) = (number / 1024, power + 1);
            }
            return write!(out, "{number}{}", BINARY[power]);
        }
        let mut number = self.nano;
        let mut at = 0;
        while number % 1000 == 0 && at + 1 < DECIMAL.len() {
            (number, at) = (number / 1000, at + 1);
        }
        let (suffix, power) = DECIMAL[at];
        match (self.format, power) {
            (Format::Exponent, 0) => write!(out, "{number}"),
            (Format::Exponent, power) => write!(out, "{number}e{power}"),
            (Format::Decimal | Format::Binary, _) => write!(out, "{number}{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_back_as_the_real_server_does() {
        let table = [
            ("4000m", "4"),
            ("1024Ki", "1Mi"),
            ("1000000Ki", "1000000Ki"),
            ("4096", "4096"),
            ("1000", "1k"),
            ("1.5", "1500m"),
            ("-1", "-1"),
            ("1.1", "1100m"),
            ("0.5Gi", "512Mi"),
            ("1e3", "1e3"),
            ("512Ki", "512Ki"),
            ("0", "0"),
            ("0Gi", "0"),
        ];
        for (given, expected) in table {
            assert_eq!(Quantity::parse(given).unwrap().to_string(), expected, "{given}");
        }
        for bad in ["", "-", "abc", "1.2.3", "1Kx", "1e99999", "é", &"9".repeat(60)] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_plainly_canonical_is_what_would_be_written() {
        for text in ["4", "110", "16374268Ki", "61255492Ki", "0", "1500"] {
            let canonical = Quantity::parse(text).unwrap().to_string() == text;
            assert_eq!(is_plainly_canonical(text), canonical, "{text}");
        }
        for text in ["1000", "1024Ki", "04", "4000m", "00"] {
            assert!(!is_plainly_canonical(text), "{text}");
        }
    }
}
