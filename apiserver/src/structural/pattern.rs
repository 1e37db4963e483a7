//! How does Go read a regular expression?
//!
//! Patterns in CRDs are Go's RE2. The regex crate is its close relative; where the two read the same text differently,
//! the text is rewritten: `\d`, `\w` and `\s` are ASCII, a brace that repeats nothing and a bracket inside of a class
//! are ordinary characters.

use regex::{Regex, RegexBuilder};

/// Memory that one compiled pattern may take. Patterns come from whoever may write CRDs; real ones take some KiB.
const COMPILED_BYTES_MAX: usize = 4 << 20;

pub fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(&rewrite(pattern)).size_limit(COMPILED_BYTES_MAX).build();
    compiled.map_err(|error| format!("error parsing regexp: {}", error.to_string().lines().last().unwrap_or_default()))
}

fn rewrite(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    let mut class_starts = false;
    while let Some(one) = rest.next() {
        let first_of_class = std::mem::take(&mut class_starts);
        match one {
            '\\' => escape(rest.next(), in_class, &mut out),
            '[' if in_class && rest.peek() == Some(&':') => {
                out.push('[');
                for inner in rest.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '[' if in_class => out.push_str("\\["),
            '[' => {
                (in_class, class_starts) = (true, true);
                out.push('[');
            }
            '^' if first_of_class => {
                class_starts = true;
                out.push('^');
            }
            ']' if in_class && !first_of_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => out.extend(['\\', one]),
            '{' if !in_class && !repeats(rest.clone()) => out.push_str("\\{"),
            other => out.push(other),
        }
    }
    out
}

fn escape(escaped: Option<char>, in_class: bool, out: &mut String) {
    let class = match escaped {
        Some('d') => "[:digit:]",
        Some('D') => "[:^digit:]",
        Some('w') => "[:word:]",
        Some('W') => "[:^word:]",
        Some('s') if in_class => return out.push_str("\\t\\n\\x0c\\r "),
        Some('s') => return out.push_str("[\\t\\n\\x0c\\r ]"),
        Some('S') if !in_class => return out.push_str("[^\\t\\n\\x0c\\r ]"),
        Some('S') => "[:^space:]",
        Some('b') => return out.push_str("(?-u:\\b)"),
        Some(other) => return out.extend(['\\', other]),
        None => return out.push('\\'),
    };
    match in_class {
        true => out.push_str(class),
        false => out.extend(["[", class, "]"]),
    }
}

/// Whether what follows a brace makes it a count: `3}`, `3,}` or `3,5}`.
fn repeats(rest: impl Iterator<Item = char>) -> bool {
    let inside: String = rest.take_while(|one| *one != '}').take(12).collect();
    let (low, high) = inside.split_once(',').unwrap_or((&inside, ""));
    let digits = |text: &str| text.chars().all(|one| one.is_ascii_digit());
    !low.is_empty() && digits(low) && digits(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_go_means() {
        for (pattern, matching, other) in [
            (r"^a\d+$", "a1", "a\u{661}"),
            (r"^[\w-]+$", "a-b_1", "ä"),
            (r"^a{b$", "a{b", "ab"),
            (r"^[[a]$", "[", "b"),
            (r"^x{2,3}$", "xx", "x{2,3}"),
            (r"^[^]a]$", "b", "]"),
            (r"^[[:alpha:]&&]+$", "a&", "1"),
            (r"^\S+\s\S+$", "a b", "a\u{a0}b"),
            (r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$", "1h30m", "1d"),
            (r"^((100|[0-9]{1,2})%|[0-9]+)$", "40%", "140%"),
        ] {
            let compiled = compile(pattern).unwrap();
            assert!(compiled.is_match(matching), "{pattern} {matching}");
            assert!(!compiled.is_match(other), "{pattern} {other}");
        }
        assert!(compile("a(b").is_err());
        assert!(compile("\\").is_err());
    }
}
