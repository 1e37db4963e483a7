//! Do we read and print durations as Go itself does?
//!
//! Some 20,000 texts, the same in each run, go to Go's `time.ParseDuration` and to ours: both must accept the same
//! ones, with the same nanoseconds, and print them alike.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use resus_k8s::quantity::{GoDuration, QuantityError, parse_duration};

const TEXTS: usize = 20_000;

#[test]
fn durations_mean_the_same_to_us_and_to_go() {
    let texts = texts();
    let Some(go) = ask_go(&texts) else { return };
    assert_eq!(go.len(), texts.len(), "Go answers each text with a line");

    // A generator that only makes garbage, or only what is valid, would prove little.
    let accepted = go.iter().flatten().count();
    assert!((TEXTS / 4..TEXTS * 3 / 4).contains(&accepted), "Go accepts {accepted} of {}", texts.len());

    let differences: Vec<String> = texts.iter().zip(&go).filter_map(|(text, go)| difference(text, go.as_ref())).collect();
    assert!(
        differences.is_empty(),
        "{} of {} texts differ, the first of them:\n{}",
        differences.len(),
        texts.len(),
        differences[..differences.len().min(20)].join("\n")
    );
}

/// Should Go mend this one day, the departure can go from our documentation too.
#[test]
fn go_takes_a_sum_that_wraps_around_for_zero_and_we_refuse_it() {
    let text = "9223372036854775808ns9223372036854775808ns";
    let Some(go) = ask_go(&[text.to_owned()]) else {
        return;
    };
    assert_eq!(go, [Some(Answer { nanos: 0, text: "0s".to_owned() })]);
    assert!(matches!(parse_duration(text), Err(QuantityError::DurationTooLong(_))));
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Answer {
    nanos: i64,
    text: String,
}

fn difference(text: &str, go: Option<&Answer>) -> Option<String> {
    let ours = parse_duration(text);
    let same = match (&ours, go) {
        (Ok(ours), Some(go)) => ours.as_nanos() == go.nanos && ours.to_string() == go.text,
        (Err(QuantityError::DurationTooLong(_)), Some(_)) => wraps_around(text),
        (Err(_), None) => true,
        (Ok(_), None) | (Err(_), Some(_)) => false,
    };
    (!same).then(|| match go {
        Some(go) => format!("{text:?}: ours {ours:?}, Go {} ({})", go.nanos, go.text),
        None => format!("{text:?}: ours {ours:?}, Go refuses it"),
    })
}

/// Only two groups of exactly 2^63 nanoseconds add up to zero in 64 bits, and `NUMBERS` has one way to write such.
fn wraps_around(text: &str) -> bool {
    text.matches("9223372036854775808").count() >= 2
}

/// What Go says to each text, or nothing if there is no Go and that is allowed.
fn ask_go(texts: &[String]) -> Option<Vec<Option<Answer>>> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/parse_duration.go");
    // GOFLAGS may ask for a vendor folder or a module, and this program has neither.
    let started =
        Command::new("go").arg("run").arg(program).env("GOFLAGS", "").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip("quantity_vs_go: durations were not compared with Go's, since go is not in PATH");
            return None;
        }
        Err(error) => panic!("go does not start: {error}"),
    };

    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Written beside the reading: Go answers as it goes, and would block on a full pipe while we do.
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for text in texts {
                let line = serde_json::to_string(text).expect("a string is always JSON");
                writeln!(stdin, "{line}").expect("Go reads to the end");
            }
        });
        let output = child.wait_with_output().expect("the output of go can be read");
        // A Go program that stopped early breaks the pipe, but its own exit says more.
        assert!(output.status.success(), "go run ended with {}", output.status);
        writer.join().expect("all texts were written");
        output
    });

    let answers = String::from_utf8(output.stdout).expect("Go prints UTF-8");
    let parse = |line: &str| serde_json::from_str(line).expect("each line is an answer or null");
    Some(answers.lines().map(parse).collect())
}

/// Says loudly that a test did not run: past the capture of the test runner, and into the list that `make test` shows.
fn skip(why: &str) {
    assert!(std::env::var("RESUS_REQUIRE_REAL").as_deref() != Ok("1"), "RESUS_REQUIRE_REAL=1, but {why}");
    let line = format!("SKIPPED: {why}");
    writeln!(std::io::stderr(), "{line}").expect("stderr is open");
    if let Some(list) = std::env::var_os("RESUS_SKIPPED_FILE") {
        let mut list = OpenOptions::new().create(true).append(true).open(list).expect("the list can be opened");
        writeln!(list, "{line}").expect("the list can be written");
    }
}

const NUMBERS: &[&str] = &[
    "0",
    "00",
    "1",
    "5",
    "007",
    "59",
    "60",
    "300",
    "999",
    "1000",
    "2562047",
    "2562048",
    "153722867",
    "9223372036",
    "9223372037",
    "9223372036854",
    "9223372036855",
    "9223372036854775",
    "922337203685477580",
    "9223372036854775807",
    "9223372036854775808",
    "9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "",
];
const UNITS: &[&str] = &["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h"];
const NOT_UNITS: &[&str] = &["", "S", "d", "w", "min", "sec", " s", "s ", "\u{b5}", "\u{3bc}", "\u{b5}m", "%", "\n", "\0"];
const SIGNS: &[&str] = &["", "", "", "", "-", "+"];
const WRONG_SIGNS: &[&str] = &["--", "+-", " ", "\u{2212}", "e"];
const STRAY: &[char] =
    &['0', '9', '.', '-', '+', ' ', 'e', 's', 'm', 'h', 'n', 'u', ',', '_', '\0', '\u{b5}', '\u{3bc}', '\u{663}', '\u{1f600}'];

fn texts() -> Vec<String> {
    let mut draw = Draw(0x5eed_0f60_d0a7_1045);
    let edges = NUMBERS.iter().flat_map(|number| UNITS.iter().map(move |unit| format!("-{number}{unit}")));
    let mut texts: Vec<String> = edges.collect();
    while texts.len() < TEXTS {
        let text = match draw.below(8) {
            0 => GoDuration::from_nanos(draw.nanos()).to_string(),
            1 => format!("{}ns", draw.nanos()),
            2..5 => draw.well_formed(),
            5 => draw.almost_well_formed(),
            6 => {
                let text = draw.well_formed();
                draw.mutated(&text)
            }
            _ => (0..draw.below(8)).map(|_| draw.one_of(STRAY)).collect(),
        };
        texts.push(text);
    }
    texts
}

/// A xorshift generator: texts that are the same in each run need no more.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Of all magnitudes alike, since each has a format of its own.
    fn nanos(&mut self) -> i64 {
        let shift = self.below(64);
        self.next().cast_signed() >> shift
    }

    fn digits(&mut self, max: usize) -> String {
        (0..self.below(max + 1)).map(|_| char::from(b'0' + self.below(10) as u8)).collect()
    }

    fn number(&mut self) -> String {
        match self.below(8) {
            0 => self.one_of(NUMBERS).to_owned(),
            1 => format!("{}.{}", self.one_of(NUMBERS), self.digits(25)),
            2 => format!("{}.{}", self.digits(2), self.one_of(NUMBERS)),
            3..5 => format!("{}.{}", self.digits(4), self.digits(22)),
            _ => self.below(100_000).to_string(),
        }
    }

    fn well_formed(&mut self) -> String {
        let groups = 1 + self.below(4);
        let groups: String = (0..groups).map(|_| self.number() + self.one_of(UNITS)).collect();
        self.one_of(SIGNS).to_owned() + &groups
    }

    fn almost_well_formed(&mut self) -> String {
        let mut text = self.well_formed();
        if self.below(2) == 0 {
            self.one_of(WRONG_SIGNS).to_owned() + &text
        } else {
            text += &self.number();
            text + self.one_of(NOT_UNITS)
        }
    }

    fn mutated(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.below(chars.len());
        match self.below(4) {
            0 => drop(chars.remove(at)),
            1 => chars.insert(at, self.one_of(STRAY)),
            2 => chars[at] = self.one_of(STRAY),
            _ => {
                let other = self.below(chars.len());
                chars.swap(at, other);
            }
        }
        chars.into_iter().collect()
    }
}
