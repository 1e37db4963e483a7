//! Where does a printer column look? Kubernetes' dialect of JSONPath, as CRDs may use it.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Value, json};

/// Objects are no deeper than what the JSON parser lets in; this only keeps `..` from ever growing beyond it.
const DEPTH_MAX: usize = 128;

/// A path that could not be read finds nothing.
#[derive(Debug)]
pub struct Path(Option<Vec<Step>>);

#[derive(Debug)]
enum Step {
    Field(String),
    /// `.*`
    Each,
    /// `..`
    Descend,
    Slice {
        start: Option<i64>,
        end: End,
        step: Option<i64>,
    },
    Union(Vec<Vec<Step>>),
    Filter(Filter),
    Literal(Value),
}

#[derive(Clone, Copy, Debug)]
enum End {
    At(i64),
    /// `[3]` stands for `[3:4]`; `[-1]` for the last.
    AfterStart,
    Open,
}

#[derive(Debug)]
enum Filter {
    Exists(Vec<Step>),
    Compare { left: Vec<Step>, operator: Operator, right: Vec<Step> },
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

type Found<'a> = Vec<Cow<'a, Value>>;

impl Path {
    pub fn parse(text: &str) -> Path {
        Path(steps(text))
    }

    /// The first result, which is all that a column shows; nothing if there is none or the path does not fit.
    pub fn first<'a>(&self, object: &'a Value) -> Option<Cow<'a, Value>> {
        walk(vec![Cow::Borrowed(object)], self.0.as_ref()?)?.into_iter().next()
    }
}

fn steps(mut rest: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("[?(") {
            rest = filter(after, &mut steps)?;
        } else if let Some(after) = rest.strip_prefix("..") {
            if matches!(steps.last(), Some(Step::Descend)) {
                return None;
            }
            steps.push(Step::Descend);
            let named = after.starts_with(|letter: char| letter == '_' || letter.is_alphanumeric());
            rest = if named { field(after, &mut steps) } else { after };
        } else {
            rest = match first {
                ' ' | '@' | '$' => &rest[1..],
                '.' => field(&rest[1..], &mut steps),
                '[' => bracket(&rest[1..], &mut steps)?,
                '"' | '\'' => quoted(rest, first, &mut steps)?,
                _ => literal(rest, &mut steps)?,
            };
        }
    }
    Some(steps)
}

/// A name up to the next step; a backslash takes the next character as it is.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, letter)| letter).filter(|letter| *letter != '\\')),
            ends if is_end(ends) => {
                end = at;
                break;
            }
            letter => name.push(letter),
        }
    }
    steps.push(if name == "*" { Step::Each } else { Step::Field(name) });
    &text[end..]
}

fn is_end(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// `'name']`, `3]`, `1:3]`, `*]` or several of these.
fn bracket<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let (inside, rest) = text.split_once(']')?;
    let choices: Vec<&str> = inside.split(',').collect();
    if choices.len() > 1 {
        let one = |choice: &str| self::steps(&format!("[{}]", choice.trim_matches(' ')));
        steps.push(Step::Union(choices.into_iter().map(one).collect::<Option<_>>()?));
        return Some(rest);
    }
    let key = inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\'')).filter(|key| !key.contains('\''));
    match key {
        Some(key) => steps.extend(self::steps(&format!(".{key}"))?),
        None => steps.push(slice(if inside == "*" { ":" } else { inside })?),
    }
    Some(rest)
}

fn slice(text: &str) -> Option<Step> {
    let parts: Vec<&str> = text.split(':').collect();
    let number = |at: usize| match parts.get(at).copied().unwrap_or_default() {
        "" => Some(None),
        digits if digits.starts_with('+') => None,
        digits => digits.parse::<i64>().ok().map(Some),
    };
    let (start, end, step) = (number(0)?, number(1)?, number(2)?);
    let end = match (parts.len(), end) {
        (1, _) => End::AfterStart,
        (2 | 3, Some(end)) => End::At(end),
        (2 | 3, None) => End::Open,
        _ => return None,
    };
    Some(Step::Slice { start, end, step })
}

fn filter<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut quote = None;
    let mut before = '(';
    let end = text.char_indices().find(|(_, letter)| {
        match (*letter, quote) {
            ('"' | '\'', None) => quote = Some(*letter),
            (letter, Some(open)) if letter == open && before != '\\' => quote = None,
            (')', None) => return true,
            _ => {}
        }
        before = *letter;
        false
    });
    let (inside, rest) = text.split_at(end?.0);
    let rest = rest.strip_prefix(")]")?;
    steps.push(Step::Filter(condition(inside)?));
    Some(rest)
}

fn condition(text: &str) -> Option<Filter> {
    let is_operator = |letter: char| matches!(letter, '!' | '<' | '>' | '=');
    let Some(at) = text.find(is_operator).filter(|at| *at > 0) else { return Some(Filter::Exists(steps(text)?)) };
    let (left, rest) = text.split_at(at);
    let right = rest.trim_start_matches(is_operator);
    let operator = match &rest[..rest.len() - right.len()] {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        _ => return None,
    };
    Some(Filter::Compare { left: steps(left)?, operator, right: steps(right)? })
}

fn quoted<'a>(text: &'a str, quote: char, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut said = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => said.push(letters.next()?.1),
            letter if letter == quote => {
                steps.push(Step::Literal(json!(said)));
                return Some(&text[at + 1..]);
            }
            letter => said.push(letter),
        }
    }
    None
}

/// Numbers, `true` and `false`. Kubernetes also knows `range` and `end`, which make no sense in a column.
fn literal<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let numeric = text.starts_with(|first: char| matches!(first, '+' | '-') || first.is_ascii_digit());
    let ends = |letter: char| is_end(letter) && !(numeric && letter == '.');
    let (word, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    steps.push(Step::Literal(match word {
        "true" => json!(true),
        "false" => json!(false),
        number if numeric => match number.parse::<i64>() {
            Ok(whole) => json!(whole),
            Err(_) => json!(number.parse::<f64>().ok()?),
        },
        _ => return None,
    }));
    Some(rest)
}

/// Nothing where a step does not fit, as an index beyond the end of a list.
fn walk<'a>(from: Found<'a>, steps: &[Step]) -> Option<Found<'a>> {
    steps.iter().try_fold(from, |found, step| take(found, step))
}

fn take<'a>(from: Found<'a>, step: &Step) -> Option<Found<'a>> {
    match step {
        Step::Field(name) => Some(from.iter().filter_map(|value| child(value, name)).collect()),
        Step::Each => Some(from.iter().flat_map(children).collect()),
        Step::Descend => Some(from.into_iter().flat_map(|value| descend(value, 0)).collect()),
        Step::Slice { start, end, step } => {
            let present = from.iter().filter(|value| !value.is_null());
            let parts = present.map(|value| part(&elements(value)?, *start, *end, *step));
            Some(parts.collect::<Option<Vec<_>>>()?.concat())
        }
        Step::Union(choices) => {
            let parts = choices.iter().map(|steps| walk(from.clone(), steps));
            Some(parts.collect::<Option<Vec<_>>>()?.concat())
        }
        Step::Filter(filter) => {
            let parts = from.iter().map(|value| kept(elements(value)?, filter));
            Some(parts.collect::<Option<Vec<_>>>()?.concat())
        }
        Step::Literal(value) => Some(from.iter().map(|_| Cow::Owned(value.clone())).collect()),
    }
}

fn child<'a>(value: &Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.as_object()?.get(name).cloned().map(Cow::Owned),
    }
}

fn children<'a>(value: &Cow<'a, Value>) -> Found<'a> {
    match value {
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        // Only literals are owned, and these have no children.
        Cow::Borrowed(_) | Cow::Owned(_) => Vec::new(),
    }
}

fn descend(value: Cow<'_, Value>, depth: usize) -> Found<'_> {
    let children = children(&value);
    if children.is_empty() || depth >= DEPTH_MAX {
        return Vec::new();
    }
    let below = children.into_iter().flat_map(|child| descend(child, depth + 1));
    std::iter::once(value).chain(below).collect()
}

fn elements<'a>(value: &Cow<'a, Value>) -> Option<Found<'a>> {
    value.is_array().then(|| children(value))
}

fn part<'a>(list: &Found<'a>, start: Option<i64>, end: End, step: Option<i64>) -> Option<Found<'a>> {
    let length = i64::try_from(list.len()).ok()?;
    let from_end = |at: i64| if at < 0 { at.saturating_add(length) } else { at };
    let first = start.unwrap_or(0);
    let after = match end {
        End::Open => length,
        End::At(end) => from_end(end),
        End::AfterStart if first == -1 => length,
        End::AfterStart => from_end(first).saturating_add(1),
    };
    let first = from_end(first);
    if first == after {
        return Some(Vec::new());
    }
    let fits = first >= 0 && first < length && after <= length && first < after;
    let range = usize::try_from(first).ok()?..usize::try_from(after).ok()?;
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    fits.then(|| list[range].iter().step_by(step).cloned().collect())
}

fn kept<'a>(list: Found<'a>, filter: &Filter) -> Option<Found<'a>> {
    let mut kept = Vec::new();
    for value in list {
        let keep = match filter {
            Filter::Exists(steps) => walk(vec![value.clone()], steps).is_some_and(|found| !found.is_empty()),
            Filter::Compare { left, operator, right } => {
                let (left, right) = (walk(vec![value.clone()], left)?, walk(vec![value.clone()], right)?);
                match (left.as_slice(), right.as_slice()) {
                    ([], _) | (_, []) => false,
                    ([left], [right]) => compare(left, *operator, right)?,
                    _ => return None,
                }
            }
        };
        if keep {
            kept.push(value);
        }
    }
    Some(kept)
}

/// Nothing where the two cannot be compared: a whole number and a fraction cannot, as in Kubernetes.
fn compare(left: &Value, operator: Operator, right: &Value) -> Option<bool> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            left.as_f64()?.partial_cmp(&right.as_f64()?)?
        }
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, Operator::Equal | Operator::NotEqual) => left.cmp(right),
        _ => return None,
    };
    Some(match operator {
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        Operator::GreaterOrEqual => order != Ordering::Less,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_what_they_find_in_kubernetes() {
        let object = json!({"a": {"b.c": 1, "d": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}, {"n": 3}], "f": 1.5}, "z": null});
        let table = [
            (".a['b\\.c']", Some(json!(1))),
            (".a.b\\.c", Some(json!(1))),
            (".a.d[1].t", Some(json!("y"))),
            (".a.d[-1].n", Some(json!(3))),
            (".a.d[-2:].n", Some(json!(2))),
            (".a.d[7]", None),
            (".a.d[*].t", Some(json!("x"))),
            (".a.d[0,1].n", Some(json!(1))),
            (".a.d[?(@.t==\"y\")].n", Some(json!(2))),
            (".a.d[?(@.t=='y')].n", Some(json!(2))),
            (".a.d[?(@.n>=2)].n", Some(json!(2))),
            (".a.d[?(@.n!=1)].t", Some(json!("y"))),
            // A whole number and a text cannot be compared, and that spoils the whole.
            (".a.d[?(@.n==\"1\")].n", None),
            (".a.d[?(@.t)].n", Some(json!(1))),
            ("..t", Some(json!("x"))),
            (".z", Some(json!(null))),
            (".a.f.g", None),
            (".a.d.n", None),
            (".a[0]", None),
            (".a.d[0:2].t", Some(json!("x"))),
            (".a.d[2:1]", None),
            (".a.d[?(@.n<1.5)].n", None),
            (".a.d[?(@.t > \"x\")].n", Some(json!(2))),
            // A CRD with one of these is refused, so nobody asks.
            (".a.d[", None),
            (".a.d[?(@.t", None),
            (".a[x]", None),
            ("....", None),
            ("", Some(object.clone())),
        ];
        for (path, expected) in table {
            assert_eq!(Path::parse(path).first(&object).map(Cow::into_owned), expected, "{path}");
        }
    }
}
