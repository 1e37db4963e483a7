//! What was typed, and what should come back?
//!
//! A session file reads like a terminal:
//!
//! ```text
//! # A line like this one says why.
//! $ kubectl get namespace nowhere
//! Error from server (NotFound): namespaces "nowhere" not found
//! [exit 1]
//! ```
//!
//! A step is a line of bash after `$ `, and goes on over here-documents, and over lines after one that ends in `\`.
//! What it should print (on either stream) follows, up to a blank line before the next step or comment; `pattern.rs` says
//! what can be left open. Last comes `[exit N]`, unless it is 0. Steps share `$WORK`, a folder for files, and run in
//! the repository's root.

use std::path::Path;
use std::time::Duration;

use resus_harness::run;

use crate::pattern::{fits, generalise};
use crate::server::Server;

/// `kubectl wait` and the like have limits of 30 s in the sessions themselves.
const STEP_WITHIN: Duration = Duration::from_secs(120);

pub struct Session {
    name: String,
    parts: Vec<Part>,
}

enum Part {
    /// Comments and blank lines, kept for the recording.
    Text(String),
    Step(Step),
}

struct Step {
    line: usize,
    command: Vec<String>,
    answer: Answer,
}

/// What a step printed and how it ended, or should.
#[derive(Default)]
pub struct Answer {
    lines: Vec<String>,
    exit: i32,
}

impl Session {
    pub fn read(path: &Path) -> Session {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Session { name, parts: parse(&text) }
    }

    /// Types everything, step by step, whatever comes back.
    pub async fn run(&self, server: &Server) -> Vec<Answer> {
        let mut answers = Vec::new();
        for step in self.steps() {
            let said = run(&server.shell(&step.command.join("\n")), STEP_WITHIN).await;
            answers.push(match said {
                Ok(said) => Answer {
                    lines: said.stdout.trim_end().lines().filter(|line| !is_race(line)).map(str::to_owned).collect(),
                    exit: said.status.code().unwrap_or(-1),
                },
                Err(error) => Answer { lines: vec![format!("{error:#}")], exit: -1 },
            });
        }
        answers
    }

    /// Each step that came out otherwise, with what was expected and what came.
    pub fn differences(&self, answers: &[Answer]) -> Vec<String> {
        let steps = self.steps().zip(answers).filter(|(step, got)| !step.answer.fits(got));
        steps
            .map(|(step, got)| {
                let (at, command) = (format!("{}:{}", self.name, step.line), step.command.join("\n"));
                format!("=== {at}\n$ {command}\n--- expected\n{}--- got\n{}", step.answer.written(), got.written())
            })
            .collect()
    }

    /// The session as it would have to be for these answers. Expectations that fit stay as they are.
    pub fn record(&self, answers: &[Answer]) -> String {
        let mut answers = answers.iter();
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(line) => format!("{line}\n"),
            Part::Step(step) => {
                let got = answers.next().expect("there is an answer to each step");
                let answer = if step.answer.fits(got) { step.answer.written() } else { got.general().written() };
                format!("$ {}\n{answer}", step.command.join("\n"))
            }
        });
        parts.collect()
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Step(step) => Some(step),
        })
    }
}

impl Answer {
    fn fits(&self, got: &Answer) -> bool {
        self.exit == got.exit && fits(&self.lines, &got.lines)
    }

    fn general(&self) -> Answer {
        Answer { lines: self.lines.iter().map(|line| generalise(line)).collect(), exit: self.exit }
    }

    fn written(&self) -> String {
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        if self.exit != 0 {
            text.push_str(&format!("[exit {}]\n", self.exit));
        }
        text
    }
}

/// When its time is up, kubectl notices now its own clock first and now the end of the watch, or of the list before it, and warns
/// of the others. Over HTTP/1.1, which ours speaks, that is a toss-up; over HTTP/2 the clock mostly wins.
fn is_race(line: &str) -> bool {
    line.contains("reflector.go") && ["very short watch", "context deadline exceeded"].iter().any(|end| line.contains(end))
}

fn parse(text: &str) -> Vec<Part> {
    let lines: Vec<&str> = text.lines().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(command) = lines[at].strip_prefix("$ ") else {
            assert!(lines[at].is_empty() || lines[at].starts_with('#'), "line {}: neither step nor comment", at + 1);
            parts.push(Part::Text(lines[at].to_owned()));
            at += 1;
            continue;
        };
        let line = at + 1;
        let command = take_command(command, &lines, &mut at);
        parts.push(Part::Step(Step { line, command, answer: take_answer(&lines, &mut at) }));
    }
    parts
}

/// Moves on to the line after the command.
fn take_command(first: &str, lines: &[&str], at: &mut usize) -> Vec<String> {
    let mut command = vec![first.to_owned()];
    *at += 1;
    while command.last().is_some_and(|line| line.ends_with('\\')) {
        command.push((*lines.get(*at).expect("a line follows one that ends in \\")).to_owned());
        *at += 1;
    }
    let ends: Vec<String> = command.iter().filter_map(|line| here_document_end(line)).collect();
    for end in ends {
        loop {
            let line = lines.get(*at).unwrap_or_else(|| panic!("a here-document without its {end}"));
            command.push((*line).to_owned());
            *at += 1;
            if *line == end {
                break;
            }
        }
    }
    command
}

/// The word after `<<`, without quotes.
fn here_document_end(line: &str) -> Option<String> {
    let (_, after) = line.split_once("<<")?;
    let word = after.split_whitespace().next()?;
    Some(word.trim_matches('\'').to_owned())
}

/// Moves on to the next step or comment; blank lines before it are not part of the answer.
fn take_answer(lines: &[&str], at: &mut usize) -> Answer {
    let rest = &lines[*at..];
    let end = rest.iter().position(|line| line.starts_with("$ ") || line.starts_with("# ")).unwrap_or(rest.len());
    let mut answer: Vec<String> = rest[..end].iter().map(|line| (*line).to_owned()).collect();
    while answer.last().is_some_and(String::is_empty) {
        answer.pop();
    }
    *at += answer.len();
    let exit = answer.last().and_then(|line| line.strip_prefix("[exit ")?.strip_suffix(']')?.parse().ok());
    if exit.is_some() {
        answer.pop();
    }
    Answer { lines: answer, exit: exit.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Why.\n$ cat <<'END'\nin\nEND\nout\n\nmore\n[exit 3]\n\n# Next.\n$ one \\\n  two\n$ three\n";

    #[test]
    fn steps_have_a_command_an_answer_and_an_exit_code() {
        let session = Session { name: "a".to_owned(), parts: parse(TEXT) };
        let steps: Vec<_> = session.steps().map(|step| (step.line, step.command.join("\n"), step.answer.written())).collect();
        let expected = [(2, "cat <<'END'\nin\nEND", "out\n\nmore\n[exit 3]\n"), (11, "one \\\n  two", ""), (13, "three", "")];
        assert_eq!(steps, expected.map(|(line, command, answer)| (line, command.to_owned(), answer.to_owned())));
    }

    #[test]
    fn a_recording_keeps_what_fits_and_replaces_what_does_not() {
        let session = Session { name: "a".to_owned(), parts: parse(TEXT) };
        let answer = |text: &str, exit| Answer { lines: text.lines().map(str::to_owned).collect(), exit };
        let answers = [answer("out\n\nmore", 3), answer("new", 0), answer("", 0)];
        assert_eq!(session.record(&answers), TEXT.replace("two\n", "two\nnew\n"));
        assert_eq!(session.differences(&answers).len(), 1);
    }
}
