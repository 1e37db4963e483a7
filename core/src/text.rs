//! How much of what others write is believed to be a name, and how much is shown to people?

use std::fmt;

/// Of names and of label prefixes, in bytes, as in Kubernetes.
pub const NAME_MAX: usize = 253;
/// Characters of a text of others in a status, an event or the log.
pub const TEXT_MAX: usize = 256;

/// Of a message of ours, which may name many, in characters: Cluster API takes 10,240, other conditions 32,768.
pub const MESSAGE_MAX: usize = 8000;

/// What is too long for a message ends early.
pub fn message(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_MAX) {
        text.truncate(end);
    }
    text
}

/// As far as a path is concerned; the API server knows the finer rules.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_MAX
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
}

/// A text of others as people see it: on one line, of at most [`TEXT_MAX`] characters.
pub struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.chars();
        for c in rest.by_ref().take(TEXT_MAX) {
            fmt::Write::write_char(f, if is_odd(c) { ' ' } else { c })?;
        }
        if rest.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// Control characters, and those that have the text after them shown in another order or not at all.
fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_short_and_on_one_line() {
        let cases: [(&str, &str); 4] = [
            ("", ""),
            ("plain", "plain"),
            ("two\nlines\r\tand\u{1b}[31m red\u{7f}", "two lines  and [31m red "),
            ("a\u{202e}b\u{feff}", "a b "),
        ];
        for (text, shown) in cases {
            assert_eq!(Plain(text).to_string(), shown);
        }
        let full = "\u{fc}".repeat(TEXT_MAX);
        assert_eq!(Plain(&full).to_string(), full);
        assert_eq!(Plain(&format!("{full}x")).to_string(), format!("{full}..."));
    }

    #[test]
    fn names_are_those_of_kubernetes() {
        let longest = "a".repeat(NAME_MAX);
        for name in ["n", "node-1.example", "0", &longest] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a/b", "..%2f", "Upper", "a b", "a\n", &format!("{longest}a")] {
            assert!(!is_name(name), "{name}");
        }
    }
}
