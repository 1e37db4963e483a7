//! Which objects does a selector mean?

use crate::refusal::Refusal;

/// `a=b,c in (d, e),!f`: all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<LabelSelector, Refusal> {
        let mut words = Words { rest: text };
        let mut requirements = Vec::new();
        if words.peek().is_empty() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(
                requirement(&mut words).map_err(|why| Refusal::bad_request(format!("unable to parse requirement: {why}")))?,
            );
            match words.next() {
                "" => return Ok(LabelSelector { requirements }),
                "," => {}
                other => {
                    return Err(Refusal::bad_request(format!("found '{other}', expected: ',' or 'end of string'")));
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// `labels` yields each key once.
    pub fn matches<'a>(&self, labels: &(impl Iterator<Item = (&'a str, &'a str)> + Clone)) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.clone().find(|(key, _)| *key == requirement.key).map(|(_, value)| value);
            requirement.operator.holds(value)
        })
    }
}

impl Operator {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::Greater(than) => number().is_some_and(|number| number > *than),
            Operator::Less(than) => number().is_some_and(|number| number < *than),
        }
    }
}

fn requirement(words: &mut Words) -> Result<Requirement, String> {
    if words.peek() == "!" {
        words.next();
        if !is_word(words.peek()) {
            return Err(format!("found '{}', expected: identifier", words.peek()));
        }
        return Ok(Requirement { key: key(words)?, operator: Operator::Absent });
    }
    let key = key(words)?;
    let operator = match words.peek() {
        "" | "," => Operator::Exists,
        "=" | "==" => Operator::In(vec![value_after_sign(words)?]),
        "!=" => Operator::NotIn(vec![value_after_sign(words)?]),
        ">" => Operator::Greater(number_after_sign(words)?),
        "<" => Operator::Less(number_after_sign(words)?),
        "in" => Operator::In(values(words)?),
        "notin" => Operator::NotIn(values(words)?),
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    Ok(Requirement { key, operator })
}

fn key(words: &mut Words) -> Result<String, String> {
    match words.next() {
        word if is_word(word) => {
            let wrong = crate::builtin::names::qualified(word);
            match wrong.is_empty() {
                true => Ok(word.to_owned()),
                false => Err(format!("key: Invalid value: {word:?}: {}", wrong.join("; "))),
            }
        }
        other => Err(format!("found '{other}', expected: !, identifier, or 'end of string'")),
    }
}

fn value_after_sign(words: &mut Words) -> Result<String, String> {
    words.next();
    match words.peek() {
        "" | "," => Ok(String::new()),
        _ => value(words),
    }
}

fn number_after_sign(words: &mut Words) -> Result<i64, String> {
    let text = value_after_sign(words)?;
    text.parse()
        .map_err(|_| format!("values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"))
}

fn values(words: &mut Words) -> Result<Vec<String>, String> {
    words.next();
    match words.next() {
        "(" => {}
        other => return Err(format!("found '{other}' expected: '('")),
    }
    let mut values = Vec::new();
    loop {
        match words.peek() {
            ")" | "," => values.push(String::new()),
            _ => values.push(value(words)?),
        }
        match words.next() {
            "," => {}
            ")" => break,
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
    values.sort();
    values.dedup();
    Ok(values)
}

fn value(words: &mut Words) -> Result<String, String> {
    match words.next() {
        word if is_word(word) => {
            let wrong = crate::builtin::names::label_value(word);
            match wrong.is_empty() {
                true => Ok(word.to_owned()),
                false => Err(format!("values[0]: Invalid value: {word:?}: {}", wrong.join("; "))),
            }
        }
        other => Err(format!("found '{other}', expected: identifier")),
    }
}

fn is_word(text: &str) -> bool {
    text.chars().next().is_some_and(|first| !is_sign(first) && !first.is_whitespace())
}

fn is_sign(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn peek(&self) -> &'a str {
        let rest = self.rest.trim_start();
        let signs = ["==", "!="];
        if let Some(sign) = signs.iter().find(|sign| rest.starts_with(**sign)) {
            return &rest[..sign.len()];
        }
        match rest.chars().next() {
            None => "",
            Some(c) if is_sign(c) => &rest[..c.len_utf8()],
            Some(_) => &rest[..rest.find(|c: char| is_sign(c) || c.is_whitespace()).unwrap_or(rest.len())],
        }
    }

    fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.rest = &self.rest.trim_start()[word.len()..];
        word
    }
}

/// `spec.nodeName=n1,status.phase!=Failed`: all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    pub terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub equals: bool,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<FieldSelector, Refusal> {
        let mut terms = Vec::new();
        for term in split_terms(text).iter().filter(|term| !term.is_empty()) {
            let (field, value, equals) = [("!=", false), ("==", true), ("=", true)]
                .iter()
                .find_map(|(sign, equals)| term.split_once(sign).map(|(field, value)| (field, value, *equals)))
                .ok_or_else(|| Refusal::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")))?;
            let value = unescape(value)
                .ok_or_else(|| Refusal::bad_request(format!("invalid field selector: invalid escape sequence in {value:?}")))?;
            terms.push(FieldTerm { field: field.to_owned(), value, equals });
        }
        Ok(FieldSelector { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn matches(&self, value_of: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|term| (value_of(&term.field) == term.value) == term.equals)
    }
}

/// At commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[begin..]);
    terms
}

fn unescape(value: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|next| matches!(next, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            _ => out.push(c),
        }
    }
    Some(out)
}
