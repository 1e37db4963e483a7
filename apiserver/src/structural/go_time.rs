//! How does Go read a time, and what does it say when it cannot?

/// RFC 3339 with seconds, as `metav1.Time`; with exactly six digits of a second if `micros`, as `metav1.MicroTime`.
pub fn parse(text: &str, micros: bool) -> Result<(), String> {
    let layout = if micros { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let mut reader = Reader { text, rest: text, layout };
    let year = reader.number("2006", 4, 4)?;
    reader.literal("-")?;
    let month = reader.number("01", 2, 2)?;
    reader.within(month, 1, 12, "month")?;
    reader.literal("-")?;
    let day = reader.number("02", 2, 2)?;
    reader.literal("T")?;
    let hour = reader.number("15", 1, 2)?;
    reader.within(hour, 0, 23, "hour")?;
    reader.literal(":")?;
    let minute = reader.number("04", 2, 2)?;
    reader.within(minute, 0, 59, "minute")?;
    reader.literal(":")?;
    let second = reader.number("05", 2, 2)?;
    reader.within(second, 0, 59, "second")?;
    reader.fraction(micros)?;
    reader.zone()?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {:?}", reader.rest));
    }
    reader.within(day, 1, days_in(year, month), "day")
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'a str,
}

impl Reader<'_> {
    fn fail<T>(&self, element: &str) -> Result<T, String> {
        Err(format!("parsing time {:?} as {:?}: cannot parse {:?} as {element:?}", self.text, self.layout, self.rest))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.fail(literal),
        }
    }

    fn number(&mut self, element: &str, least: usize, most: usize) -> Result<u32, String> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return self.fail(element);
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.parse().or_else(|_| self.fail(element))
    }

    fn within(&self, value: u32, least: u32, most: u32, what: &str) -> Result<(), String> {
        match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("parsing time {:?}: {what} out of range", self.text)),
        }
    }

    fn fraction(&mut self, micros: bool) -> Result<(), String> {
        let digits = match self.rest.as_bytes() {
            [b'.' | b',', digits @ ..] => digits.iter().take_while(|one| one.is_ascii_digit()).count(),
            _ => 0,
        };
        match micros {
            true if digits < 6 => return self.fail(".000000"),
            true => self.rest = &self.rest[7..],
            false if digits > 0 => self.rest = &self.rest[1 + digits..],
            false => {}
        }
        Ok(())
    }

    fn zone(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(());
        }
        let [b'+' | b'-', a, b, b':', c, d, ..] = self.rest.as_bytes() else { return self.fail("Z07:00") };
        if ![a, b, c, d].iter().all(|one| one.is_ascii_digit()) {
            return self.fail("Z07:00");
        }
        self.rest = &self.rest[6..];
        Ok(())
    }
}

pub fn days_in(year: u32, month: u32) -> u32 {
    let leaps = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leaps => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
