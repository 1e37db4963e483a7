//! How is an instant written so that a later process can read it back?

use crate::time::Wall;

const DAY: i64 = 86_400;

/// RFC 3339 in whole seconds, UTC: `2027-01-15T08:00:00Z`.
pub fn write(at: Wall) -> String {
    let seconds = at.0.div_euclid(1000);
    let (year, month, day) = date(seconds.div_euclid(DAY));
    let time = seconds.rem_euclid(DAY);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

/// None for anything that [`write`] does not write.
pub fn read(text: &str) -> Option<Wall> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let at = Wall((days(year, month, day) * DAY + hour * 3600 + minute * 60 + second) * 1000);
    // Whatever is not exactly what this instant looks like (a month 13, another zone) is not ours.
    (write(at) == text).then_some(at)
}

/// The Gregorian date of a day since 1970. Years are counted from March, so that a leap day ends one.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // Since 0000-03-01.
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The inverse of [`date`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_the_api_writes_them_and_read_back() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_800_000_000, "2027-01-15T08:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(write(Wall(seconds * 1000)), text);
            assert_eq!(read(text), Some(Wall(seconds * 1000)), "{text}");
        }
        for day in 0..200_000 {
            assert_eq!(read(&write(Wall(day * DAY * 1000))), Some(Wall(day * DAY * 1000)));
        }
    }

    #[test]
    fn what_is_no_such_instant_is_not_read() {
        for text in [
            "",
            "now",
            "2027-13-15T08:00:00Z",
            "2027-01-15T08:00:00+02:00",
            "2027-01-15T08:00:00.5Z",
            "2027-02-29T08:00:00Z",
            "+027-01-15T08:00:00Z",
            "2027-01-15T25:00:00Z",
            "ääää-01-15T08:00:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
