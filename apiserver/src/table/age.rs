//! How old is it, in a few characters?

use jiff::Timestamp;
use serde_json::{Value, json};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Since an instant as it stands in an object.
pub fn since(instant: &Value, now: Timestamp) -> String {
    match instant.as_str().filter(|text| !text.is_empty()) {
        None => "<unknown>".to_owned(),
        Some(text) => text.parse().map_or_else(|_| "<invalid>".to_owned(), |at| between(at, now)),
    }
}

/// The cell of most kinds.
pub fn of(object: &Value, now: Timestamp) -> Value {
    json!(since(&object["metadata"]["creationTimestamp"], now))
}

fn between(at: Timestamp, now: Timestamp) -> String {
    // Whole seconds, towards zero: clocks that differ by less than two seconds are no reason to complain.
    let seconds = now.as_millisecond().saturating_sub(at.as_millisecond()) / 1000;
    if seconds < -1 { "<invalid>".to_owned() } else { human(seconds.max(0)) }
}

/// Two units at most, and the second only while it matters.
pub fn human(seconds: i64) -> String {
    let two = |unit: i64, name: &str, small: i64, small_name: &str| match seconds % unit / small {
        0 => format!("{}{name}", seconds / unit),
        rest => format!("{}{name}{rest}{small_name}", seconds / unit),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, "m", 1, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, "h", MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, "d", HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubernetes_writes_them() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * 60 + 59, "179m"),
            (180 * 60, "3h"),
            (7 * 3600 + 59 * 60, "7h59m"),
            (8 * 3600, "8h"),
            (48 * 3600 - 1, "47h"),
            (48 * 3600, "2d"),
            (8 * 86400 - 1, "7d23h"),
            (8 * 86400, "8d"),
            (730 * 86400 - 1, "729d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (8 * 365 * 86400, "8y"),
        ];
        for (seconds, text) in table {
            assert_eq!(human(seconds), text);
        }
    }

    #[test]
    fn an_instant_in_the_future_is_invalid_unless_it_is_almost_now() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(since(&json!("2026-01-01T00:00:01.9Z"), now), "0s");
        assert_eq!(since(&json!("2026-01-01T00:00:02Z"), now), "<invalid>");
        assert_eq!(since(&json!("soon"), now), "<invalid>");
        assert_eq!(since(&Value::Null, now), "<unknown>");
    }
}
