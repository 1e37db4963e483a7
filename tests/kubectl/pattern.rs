//! Is this what the session expects, where the parts that differ from run to run are left open?
//!
//! In an expected line, `<age>`, `<time>`, `<uid>`, `<version>`, `<server>`, `<word>` and `<any>` stand for what they
//! say; a line of `...` stands for any lines. Everything else in angle brackets is kubectl's own, such as `<none>`.
//! The width of columns is left open too, as ages change it.

/// Whether all that was said fits.
pub fn fits(expected: &[String], said: &[String]) -> bool {
    let expected: Vec<String> = expected.iter().map(|line| squeeze(line)).collect();
    let said: Vec<String> = said.iter().map(|line| squeeze(line)).collect();
    // Where to go back to when a line does not fit: the last `...`, which then takes in one line more.
    let (mut at, mut heard, mut back) = (0, 0, None);
    while heard < said.len() {
        match expected.get(at) {
            Some(line) if line == "..." => {
                back = Some((at, heard));
                at += 1;
            }
            Some(line) if line_fits(line, &said[heard]) => {
                at += 1;
                heard += 1;
            }
            _ => match &mut back {
                Some((dots, taken)) => {
                    *taken += 1;
                    (at, heard) = (*dots + 1, *taken);
                }
                None => return false,
            },
        }
    }
    expected[at..].iter().all(|line| line == "...")
}

/// A line as a session should expect it: what differs from run to run is left open.
pub fn generalise(line: &str) -> String {
    let mut general = String::new();
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let inside_a_word = general.ends_with(|letter: char| letter.is_ascii_alphanumeric());
        let varies = [Open::Uid, Open::Time, Open::Server, Open::Version, Open::Age].into_iter().filter(|_| !inside_a_word);
        let found = varies.filter_map(|open| Some((open, open.length(rest)?))).find(|(open, length)| match open {
            Open::Age => general.ends_with("  ") && (rest.len() == *length || rest[*length..].starts_with("  ")),
            Open::Version => {
                let before = general.trim_end_matches([' ', '"', ':']);
                before.ends_with("resourceVersion") || before.ends_with("Resource Version")
            }
            Open::Uid | Open::Time | Open::Server | Open::Word | Open::Any => true,
        });
        let length = match found {
            Some((open, length)) => {
                general.push_str(open.written());
                length
            }
            None => {
                general.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    general
}

/// A part of a line that is left open.
#[derive(Clone, Copy, Debug)]
enum Open {
    Age,
    Time,
    Uid,
    Version,
    Server,
    Word,
    Any,
}

impl Open {
    const ALL: [Open; 7] = [Open::Age, Open::Time, Open::Uid, Open::Version, Open::Server, Open::Word, Open::Any];

    fn written(self) -> &'static str {
        match self {
            Open::Age => "<age>",
            Open::Time => "<time>",
            Open::Uid => "<uid>",
            Open::Version => "<version>",
            Open::Server => "<server>",
            Open::Word => "<word>",
            Open::Any => "<any>",
        }
    }

    /// How much of the beginning of the text it is, if any. `<any>` takes all, and gives back what the rest needs.
    fn length(self, text: &str) -> Option<usize> {
        let length = match self {
            Open::Age => age(text),
            Open::Time => ["0000-00-00T00:00:00.000000Z", "0000-00-00T00:00:00Z", "aaa, 00 aaa 0000 00:00:00 +0000"]
                .iter()
                .find_map(|shape| shaped(shape, text))
                .unwrap_or(0),
            Open::Uid => shaped("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", text).unwrap_or(0),
            Open::Version => text.bytes().take_while(u8::is_ascii_digit).count(),
            Open::Server => text
                .strip_prefix("127.0.0.1:")
                .map_or(0, |port| text.len() - port.len() + port.bytes().take_while(u8::is_ascii_digit).count()),
            Open::Word => text.find(char::is_whitespace).unwrap_or(text.len()),
            Open::Any => text.len(),
        };
        (length > 0).then_some(length)
    }
}

fn line_fits(expected: &str, said: &str) -> bool {
    let next = Open::ALL.into_iter().filter_map(|open| Some((expected.find(open.written())?, open))).min_by_key(|(at, _)| *at);
    let Some((at, open)) = next else { return expected == said };
    let Some(said) = said.strip_prefix(&expected[..at]) else { return false };
    let expected = &expected[at + open.written().len()..];
    let Some(longest) = open.length(said) else { return matches!(open, Open::Any) && line_fits(expected, said) };
    match open {
        Open::Any | Open::Word => {
            (0..=longest).rev().filter(|end| said.is_char_boundary(*end)).any(|end| line_fits(expected, &said[end..]))
        }
        Open::Age | Open::Time | Open::Uid | Open::Version | Open::Server => line_fits(expected, &said[longest..]),
    }
}

/// `5s`, `3m10s`, `2d4h`, or what kubectl prints instead when a clock is off.
fn age(text: &str) -> usize {
    if text.starts_with("<invalid>") {
        return "<invalid>".len();
    }
    let mut length = 0;
    loop {
        let digits = text[length..].bytes().take_while(u8::is_ascii_digit).count();
        let unit = text[length + digits..].bytes().next();
        if digits == 0 || !unit.is_some_and(|unit| b"smhdy".contains(&unit)) {
            return length;
        }
        length += digits + 1;
    }
}

/// `0` is a digit, `a` a letter, `x` a hexadecimal digit, all else itself.
fn shaped(shape: &str, text: &str) -> Option<usize> {
    let fits = text.len() >= shape.len()
        && shape.bytes().zip(text.bytes()).all(|(shape, byte)| match shape {
            b'0' => byte.is_ascii_digit(),
            b'a' => byte.is_ascii_alphabetic(),
            b'x' => byte.is_ascii_hexdigit(),
            other => byte == other,
        });
    fits.then_some(shape.len())
}

/// Gaps between columns are three spaces wide, however wide they were; indentation stays.
fn squeeze(line: &str) -> String {
    let line = line.trim_end();
    let indent = line.len() - line.trim_start().len();
    let words: Vec<&str> = line[indent..].split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    format!("{}{}", &line[..indent], words.join("   "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_left_open_fits_and_nothing_else_does() {
        for (expected, said, fit) in [
            ("n1   Ready   <age>", "n1      Ready     3m10s", true),
            ("n1   Ready   <age>", "n1      NotReady  3m10s", false),
            ("n1   Ready   <age>", "n1      Ready     <unknown>", false),
            ("  n1", "n1", false),
            ("<none>", "<none>", true),
            ("uid: <uid>", "uid: 0b9d1e3c-1b5c-4c0e-9d0e-0123456789ab", true),
            ("uid: <uid>", "uid: 0b9d1e3c", false),
            ("at <time>,", "at 2026-01-02T03:04:05Z,", true),
            ("Created: <time>", "Created: Fri, 02 Jan 2026 03:04:05 +0000", true),
            ("pod-<word> created", "pod-x7f2k created", true),
            ("pod-<word> created", "pod- created", false),
            ("a<any>z", "a to z", true),
            ("a<any>z", "az", true),
            ("a<any>z", "a to y", false),
            ("a\n...\nz", "a\nb\nz\nc\nz", true),
            ("a\n...\nz", "a\nz", true),
            ("a\n...\nz", "a\nb", false),
            ("a\n...", "a", true),
            ("a", "a\nb", false),
            ("a\nb", "a", false),
        ] {
            assert_eq!(fits(&lines(expected), &lines(said)), fit, "{expected:?} and {said:?}");
        }
    }

    #[test]
    fn recorded_lines_leave_open_what_will_differ() {
        for (said, recorded) in [
            ("n1   Ready   12s", "n1   Ready   <age>"),
            ("n1   12s    v1", "n1   <age>    v1"),
            ("  duration: 12s", "  duration: 12s"),
            ("  uid: 0b9d1e3c-1b5c-4c0e-9d0e-0123456789ab", "  uid: <uid>"),
            ("  resourceVersion: \"123\"", "  resourceVersion: \"<version>\""),
            ("  Resource Version:  123", "  Resource Version:  <version>"),
            ("  creationTimestamp: \"2026-01-02T03:04:05Z\"", "  creationTimestamp: \"<time>\""),
            ("at https://127.0.0.1:6443/api", "at https://<server>/api"),
            ("é 5 <none>", "é 5 <none>"),
        ] {
            assert_eq!(generalise(said), recorded);
            assert!(fits(&lines(recorded), &lines(said)), "{recorded:?} and {said:?}");
        }
    }
}
