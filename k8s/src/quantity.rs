//! How long, and how many, did the admin write?
//!
//! Durations are Go's (`5m`, `1.5h`, `300ms`), as in every Kubernetes API that takes them as text; counts are an
//! integer or a percentage. Both come from people, so each refusal says what to write instead.
//!
//! The rules for durations are those of Go's `time.ParseDuration`, digit for digit, with one departure: a sum that
//! wraps around 64 bits is refused. Go takes `9223372036854775808ns9223372036854775808ns` for zero, and a time-out
//! of zero would fence a node at once.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Reads a duration as Go does: an optional sign, then one or more numbers, each with its unit.
pub fn parse_duration(text: &str) -> Result<GoDuration, QuantityError> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) | None => (false, text),
    };
    let magnitude = match unsigned {
        "0" => Ok(0),
        "" => Err(Problem::NotADuration),
        groups => sum_of_groups(groups),
    };
    magnitude.and_then(|magnitude| signed(negative, magnitude)).map(GoDuration).map_err(|problem| problem.in_text(text))
}

/// Reads an integer or a whole, non-negative percentage. A percentage may exceed 100: what that means is for the
/// field that holds it to say.
pub fn parse_int_or_percent(text: &str) -> Result<IntOrPercent, QuantityError> {
    let (digits, percent) = match text.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (text.strip_prefix('-').unwrap_or(text), false),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::NotIntOrPercent(quoted(text)));
    }
    // Only digits are left, so the one thing that can still be wrong is the size.
    let parsed = if percent { digits.parse().map(IntOrPercent::Percent) } else { text.parse().map(IntOrPercent::Int) };
    parsed.map_err(|_| QuantityError::IntOrPercentTooLarge(quoted(text)))
}

/// A duration as Go holds it: nanoseconds, possibly negative. Prints in Go's format (`5m0s`, `1.5s`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

impl GoDuration {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The duration to wait for, unless it is negative and nothing can be waited for.
    pub fn non_negative(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negative() { "-" } else { "" };
        f.pad(&format!("{sign}{}", format_magnitude(self.0.unsigned_abs())))
    }
}

/// What Kubernetes calls IntOrString, without the strings that mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntOrPercent {
    Int(i64),
    Percent(u32),
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => write!(f, "{int}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for IntOrPercent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(int) => serializer.serialize_i64(*int),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntOrPercentVisitor)
    }
}

struct IntOrPercentVisitor;

impl Visitor<'_> for IntOrPercentVisitor {
    type Value = IntOrPercent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer such as 3 or a whole percentage such as \"40%\"")
    }

    fn visit_i64<E: de::Error>(self, int: i64) -> Result<IntOrPercent, E> {
        Ok(IntOrPercent::Int(int))
    }

    fn visit_u64<E: de::Error>(self, int: u64) -> Result<IntOrPercent, E> {
        i64::try_from(int).map(IntOrPercent::Int).map_err(|_| E::custom(QuantityError::IntOrPercentTooLarge(int.to_string())))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrPercent, E> {
        parse_int_or_percent(text).map_err(E::custom)
    }
}

/// Why a quantity was refused. Holds the text as it was written, cut short when it is long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("{0:?} is not a duration: write a number with a unit such as 300s, 5m or 1.5h")]
    NotADuration(String),
    #[error("{0:?} has a number without a unit: write a unit after each number, as in 300s, 5m or 1h30m")]
    MissingUnit(String),
    #[error("{text:?} has the unknown unit {unit:?}: write h, m, s, ms, us or ns, as in 5m or 1.5h (a day is 24h)")]
    UnknownUnit { text: String, unit: String },
    #[error("{0:?} is too long a duration: write at most 2562047h, which is some 292 years")]
    DurationTooLong(String),
    #[error("{0:?} is neither an integer nor a percentage: write a whole number such as 3, or a percentage such as 40%")]
    NotIntOrPercent(String),
    #[error("{0:?} is too large: write a whole number of at most 18 digits, or a percentage such as 40%")]
    IntOrPercentTooLarge(String),
}

/// What is wrong with a duration, before the whole text is put next to it.
enum Problem<'a> {
    NotADuration,
    MissingUnit,
    UnknownUnit(&'a str),
    TooLong,
}

impl Problem<'_> {
    fn in_text(self, text: &str) -> QuantityError {
        match self {
            Self::NotADuration => QuantityError::NotADuration(quoted(text)),
            Self::MissingUnit => QuantityError::MissingUnit(quoted(text)),
            Self::UnknownUnit(unit) => QuantityError::UnknownUnit { text: quoted(text), unit: quoted(unit) },
            Self::TooLong => QuantityError::DurationTooLong(quoted(text)),
        }
    }
}

/// Errors end up in conditions and logs, and the text in them can be as large as an object may be.
const QUOTED_CHARS_MAX: usize = 60;

fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Nanoseconds, at most this many: one more than `i64::MAX`, since the most negative duration has that magnitude.
const MAGNITUDE_MAX: u64 = 1 << 63;

fn signed(negative: bool, magnitude: u64) -> Result<i64, Problem<'static>> {
    let nanos = if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    nanos.ok_or(Problem::TooLong)
}

fn sum_of_groups(groups: &str) -> Result<u64, Problem<'_>> {
    let (mut sum, mut rest) = (0u64, groups);
    while !rest.is_empty() {
        let (nanos, after) = leading_group(rest)?;
        sum = within_max(sum.checked_add(nanos))?;
        rest = after;
    }
    Ok(sum)
}

/// Takes one number with its unit (`1.5h`) off the front: its nanoseconds, and what follows.
fn leading_group(text: &str) -> Result<(u64, &str), Problem<'_>> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(Problem::NotADuration);
    }
    // Before the unit is looked at, as in Go; it decides only which of two refusals is given.
    let whole = parse_whole(whole)?;
    let (unit, rest) = rest.split_at(rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len()));
    let unit = match unit {
        "" => return Err(Problem::MissingUnit),
        unit => nanos_in(unit).ok_or(Problem::UnknownUnit(unit))?,
    };
    let nanos = within_max(whole.checked_mul(unit))?;
    let nanos = within_max(nanos.checked_add(nanos_of_fraction(fraction, unit)))?;
    Ok((nanos, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn parse_whole(digits: &str) -> Result<u64, Problem<'static>> {
    // No digits before the point is zero, as in `.5s`.
    if digits.is_empty() { Ok(0) } else { within_max(digits.parse().ok()) }
}

fn within_max(nanos: Option<u64>) -> Result<u64, Problem<'static>> {
    nanos.filter(|&nanos| nanos <= MAGNITUDE_MAX).ok_or(Problem::TooLong)
}

fn nanos_in(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        // The micro sign U+00B5, then the Greek letter mu U+03BC: keyboards have either.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60 * 1_000_000_000),
        "h" => Some(3_600 * 1_000_000_000),
        _ => None,
    }
}

/// The nanoseconds of the digits behind the point, with Go's own floating-point steps in Go's order: any other way of
/// rounding differs from it in the last nanosecond for some inputs.
fn nanos_of_fraction(digits: &str, unit: u64) -> u64 {
    let (mut fraction, mut scale) = (0u64, 1f64);
    for digit in digits.bytes().map(|byte| u64::from(byte - b'0')) {
        // Go stops at the first digit that does not fit and ignores the rest.
        if fraction > i64::MAX as u64 / 10 || fraction * 10 + digit > MAGNITUDE_MAX {
            break;
        }
        fraction = fraction * 10 + digit;
        scale *= 10.0;
    }
    // Less than one unit, which is at most 3.6e12: the conversion back only cuts off what is behind the point.
    (fraction as f64 * (unit as f64 / scale)) as u64
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Below a second in the largest unit that leaves a digit before the point, above it in hours, minutes and seconds.
fn format_magnitude(nanos: u64) -> String {
    let (seconds, minutes, hours) = (nanos % (60 * SECOND), nanos / (60 * SECOND) % 60, nanos / (3_600 * SECOND));
    match nanos {
        0 => "0s".to_owned(),
        1..MICROSECOND => format!("{nanos}ns"),
        MICROSECOND..MILLISECOND => format!("{}\u{b5}s", decimal(nanos, 3)),
        MILLISECOND..SECOND => format!("{}ms", decimal(nanos, 6)),
        _ if hours > 0 => format!("{hours}h{minutes}m{}s", decimal(seconds, 9)),
        _ if minutes > 0 => format!("{minutes}m{}s", decimal(seconds, 9)),
        _ => format!("{}s", decimal(seconds, 9)),
    }
}

/// `value` divided by ten to the power of `places`, without trailing zeros.
fn decimal(value: u64, places: usize) -> String {
    let padded = format!("{value:0width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("300s", 300_000_000_000),
            ("5m", 300_000_000_000),
            ("+5m", 300_000_000_000),
            ("-5m", -300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("30m1h", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("300ms", 300_000_000),
            ("7us", 7_000),
            ("7\u{b5}s", 7_000),
            ("7\u{3bc}s", 7_000),
            ("1.9ns", 1),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.100000000000000000000h", 360_000_000_000),
            ("0.9223372036854775807h", 3_320_413_933_267),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-2562047h47m16.854775808s", i64::MIN),
        ] {
            assert_eq!(parse_duration(text), Ok(GoDuration(nanos)), "{text}");
        }
    }

    #[test]
    fn a_refused_duration_says_what_to_write_instead() {
        let instead = "write a number with a unit such as 300s, 5m or 1.5h";
        for (text, message) in [
            ("", format!("\"\" is not a duration: {instead}")),
            ("-", format!("\"-\" is not a duration: {instead}")),
            ("--5m", format!("\"--5m\" is not a duration: {instead}")),
            ("five", format!("\"five\" is not a duration: {instead}")),
            (" 5m", format!("\" 5m\" is not a duration: {instead}")),
            (".s", format!("\".s\" is not a duration: {instead}")),
            ("\u{665}m", format!("\"\u{665}m\" is not a duration: {instead}")),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message);
        }
        for (text, error) in [
            ("300", QuantityError::MissingUnit("300".into())),
            ("5m30", QuantityError::MissingUnit("5m30".into())),
            ("00", QuantityError::MissingUnit("00".into())),
            ("1.2.3s", QuantityError::MissingUnit("1.2.3s".into())),
            ("5 m", QuantityError::UnknownUnit { text: "5 m".into(), unit: " m".into() }),
            ("5m ", QuantityError::UnknownUnit { text: "5m ".into(), unit: "m ".into() }),
            ("1d", QuantityError::UnknownUnit { text: "1d".into(), unit: "d".into() }),
            ("5M", QuantityError::UnknownUnit { text: "5M".into(), unit: "M".into() }),
            ("9223372036854775808ns", QuantityError::DurationTooLong("9223372036854775808ns".into())),
            ("2562048h", QuantityError::DurationTooLong("2562048h".into())),
            ("2562047h48m", QuantityError::DurationTooLong("2562047h48m".into())),
            ("99999999999999999999s", QuantityError::DurationTooLong("99999999999999999999s".into())),
        ] {
            assert_eq!(parse_duration(text), Err(error));
        }
    }

    /// The one departure from Go, which takes this for zero.
    #[test]
    fn a_sum_that_wraps_around_is_refused() {
        let half = "9223372036854775808ns";
        for text in [format!("{half}{half}"), format!("-{half}{half}"), format!("{half}{half}5m")] {
            assert_eq!(parse_duration(&text), Err(QuantityError::DurationTooLong(quoted(&text))));
        }
    }

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (999, "999ns"),
            (1_000, "1\u{b5}s"),
            (1_100, "1.1\u{b5}s"),
            (300_000_000, "300ms"),
            (2_200_000, "2.2ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (300_000_000_000, "5m0s"),
            (5_400_000_000_000, "1h30m0s"),
            (3_600_000_000_001, "1h0m0.000000001s"),
            (-300_000_000_000, "-5m0s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(GoDuration(nanos).to_string(), text);
        }
    }

    #[test]
    fn only_a_duration_that_is_not_negative_can_be_waited_for() {
        assert_eq!(GoDuration(-1).non_negative(), None);
        assert_eq!(GoDuration(0).non_negative(), Some(Duration::ZERO));
        assert_eq!(GoDuration(1_500_000_000).non_negative(), Some(Duration::from_millis(1500)));
        assert!(GoDuration(-1).is_negative() && !GoDuration(0).is_negative());
    }

    #[test]
    fn a_long_text_is_quoted_in_part() {
        let error = parse_duration(&"\u{3bc}".repeat(100_000)).unwrap_err().to_string();
        assert!(error.len() < 300 && error.contains("\u{3bc}...\""), "{error}");
    }

    #[test]
    fn counts_are_integers_or_whole_percentages() {
        for (text, value) in [
            ("3", IntOrPercent::Int(3)),
            ("0", IntOrPercent::Int(0)),
            ("-1", IntOrPercent::Int(-1)),
            ("007", IntOrPercent::Int(7)),
            ("9223372036854775807", IntOrPercent::Int(i64::MAX)),
            ("-9223372036854775808", IntOrPercent::Int(i64::MIN)),
            ("0%", IntOrPercent::Percent(0)),
            ("40%", IntOrPercent::Percent(40)),
            ("150%", IntOrPercent::Percent(150)),
            ("4294967295%", IntOrPercent::Percent(u32::MAX)),
        ] {
            assert_eq!(parse_int_or_percent(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "", "abc", "%", "-", "4 0%", " 3", "3 ", "40% ", "40 %", "1.5%", "1.5", "-5%", "+3", "+5%", "40%%", "--1", "1e3",
            "0x10", "\u{663}%",
        ] {
            assert_eq!(parse_int_or_percent(text), Err(QuantityError::NotIntOrPercent(text.into())), "{text}");
        }
        for text in ["9223372036854775808", "-9223372036854775809", "4294967296%", "99999999999999999999999%"] {
            assert_eq!(parse_int_or_percent(text), Err(QuantityError::IntOrPercentTooLarge(text.into())), "{text}");
        }
    }

    #[test]
    fn json_holds_an_int_as_number_and_a_percentage_as_text() {
        for (json, value, back) in [
            ("3", IntOrPercent::Int(3), "3"),
            ("-1", IntOrPercent::Int(-1), "-1"),
            ("\"3\"", IntOrPercent::Int(3), "3"),
            ("\"40%\"", IntOrPercent::Percent(40), "\"40%\""),
            ("\"4\\u0030%\"", IntOrPercent::Percent(40), "\"40%\""),
        ] {
            assert_eq!(serde_json::from_str::<IntOrPercent>(json).unwrap(), value, "{json}");
            assert_eq!(serde_json::to_string(&value).unwrap(), back);
        }
        for (json, says) in [
            ("\"abc\"", "write a whole number such as 3"),
            ("9223372036854775808", "too large"),
            ("1.5", "expected an integer such as 3 or a whole percentage"),
            ("null", "expected an integer such as 3 or a whole percentage"),
            ("{}", "expected an integer such as 3 or a whole percentage"),
        ] {
            let error = serde_json::from_str::<IntOrPercent>(json).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = parse_duration(&text).map_err(|error| error.to_string());
            let _ = parse_int_or_percent(&text).map_err(|error| error.to_string());
        }

        #[test]
        fn nothing_that_looks_like_a_quantity_makes_it_panic(text in "[-+]?([0-9]{0,25}(\\.[0-9]{0,25})?(ns|us|µs|μs|ms|s|m|h|%|d| )?){0,4}") {
            let _ = parse_duration(&text).map_err(|error| error.to_string());
            let _ = parse_int_or_percent(&text).map_err(|error| error.to_string());
        }

        #[test]
        fn a_printed_duration_reads_back_the_same(nanos in any::<i64>(), shift in 0u32..64) {
            // Shifted, so that short durations, which have formats of their own, come up as often as long ones.
            let duration = GoDuration(nanos >> shift);
            prop_assert_eq!(parse_duration(&duration.to_string()), Ok(duration));
        }

        #[test]
        fn a_sign_only_changes_the_sign(nanos in 0..=i64::MAX) {
            let text = GoDuration(nanos).to_string();
            prop_assert_eq!(parse_duration(&format!("+{text}")), Ok(GoDuration(nanos)));
            prop_assert_eq!(parse_duration(&format!("-{text}")), Ok(GoDuration(-nanos)));
        }

        #[test]
        fn an_int_or_percent_survives_text_and_json(value in prop_oneof![
            any::<i64>().prop_map(IntOrPercent::Int),
            any::<u32>().prop_map(IntOrPercent::Percent),
        ]) {
            prop_assert_eq!(parse_int_or_percent(&value.to_string()), Ok(value));
            let json = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(serde_json::from_str::<IntOrPercent>(&json).unwrap(), value);
        }
    }
}
