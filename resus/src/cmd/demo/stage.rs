//! How is the story shown: line by line, or with a live view below?
//!
//! On a terminal the lines scroll by as anywhere, so that they can be read again later, and the panel stays below them.

use std::io::{self, Stdout, Write as _};
use std::time::Duration;

use resus_core::decision::Verdict;
use resus_sim::clock::{MINUTE, Millis, SECOND};
use terminal_size::{Height, Width, terminal_size};

use super::paint::{Paint, is_screen};
use super::panel::{Panel, clock};
use super::story::{Line, Speaker};

/// Lines for pipes and files are as wide as they are.
const WIDTH_UNKNOWN: usize = usize::MAX;
/// Less is no room for a live view.
const WIDTH_MIN: usize = 40;
const HEIGHT_MIN: usize = 12;
/// `  00:30  resus     `.
const INDENT: usize = 19;
/// A quiet time that is worth a line.
const QUIET: Millis = 45 * SECOND;
/// How often the clock moves while time passes.
const FRAMES: i64 = 8;

pub struct Stage {
    out: Stdout,
    paint: Paint,
    panel: Panel,
    view: View,
    at: Millis,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// As fast as it goes.
    Lines,
    /// At a pace at which it can be read.
    PacedLines,
    /// `drawn` rows stand below the lines.
    Live { drawn: usize },
}

impl Stage {
    pub fn new(panel: Panel, fast: bool) -> Stage {
        let (width, height) = size();
        let view = match is_screen() {
            _ if fast || !io::IsTerminal::is_terminal(&io::stdout()) => View::Lines,
            true if (WIDTH_MIN..WIDTH_UNKNOWN).contains(&width) && height >= HEIGHT_MIN => View::Live { drawn: 0 },
            true | false => View::PacedLines,
        };
        Stage { out: io::stdout(), paint: Paint::for_stdout(), panel, view, at: 0 }
    }

    /// Can somebody interrupt it, and want a tidy screen then?
    pub fn is_paced(&self) -> bool {
        self.view != View::Lines
    }

    /// What is said before and after the story.
    pub fn say(&mut self, lines: &[String]) -> io::Result<()> {
        let width = size().0;
        let lines: Vec<String> = lines.iter().flat_map(|line| wrap(line, width, indent_of(line))).collect();
        self.print(&lines)
    }

    pub async fn show(&mut self, line: &Line) -> io::Result<()> {
        self.pass_until(line).await?;
        self.panel.take(line);
        let lines = self.lines_of(line);
        self.print(&lines)?;
        self.pause(reading_time(line)).await;
        Ok(())
    }

    /// The panel goes, the cursor returns.
    pub fn close(&mut self) -> io::Result<()> {
        if let View::Live { drawn } = self.view {
            self.view = View::PacedLines;
            write!(self.out, "{}\x1b[?25h", erase(drawn))?;
        }
        self.out.flush()
    }

    fn lines_of(&self, line: &Line) -> Vec<String> {
        let Line { at, speaker, .. } = line;
        let width = size().0;
        if *speaker == Speaker::Headline {
            let mut lines = vec![String::new()];
            lines.extend(wrap(&format!("# {}", line.sentence()), width, 2).iter().map(|text| self.paint.bold(text)));
            return lines;
        }
        let text = format!("  {}  {:9} {}", clock(*at), speaker.name(), line.sentence());
        let mut lines = wrap(&text, width, INDENT);
        if let Some(first) = lines.first_mut() {
            let (time, rest) = first.split_at(9.min(first.len()));
            *first = format!("{}{}", self.paint.dim(time), self.paint.speaker(*speaker, rest));
        }
        lines.iter_mut().skip(1).for_each(|rest| *rest = self.paint.speaker(*speaker, rest));
        lines
    }

    /// Time that passes between two lines is seen to pass.
    async fn pass_until(&mut self, line: &Line) -> io::Result<()> {
        let passes = line.at - self.at;
        let is_begin = self.at == 0;
        if !is_begin && passes >= QUIET && line.speaker != Speaker::Headline {
            let text = format!("{:9}{} {}", "", self.paint.ellipsis(), minutes(passes));
            let text = self.paint.dim(&text);
            self.print(&[text])?;
        }
        if passes >= SECOND && !is_begin {
            // In milliseconds of our own time.
            let takes = if passes >= QUIET { 520 } else { 160 };
            let from = self.at;
            for frame in 1..=FRAMES {
                self.at = from + passes * frame / FRAMES;
                if matches!(self.view, View::Live { .. }) {
                    self.print(&[])?;
                }
                self.pause(takes / FRAMES).await;
            }
        }
        self.at = line.at;
        Ok(())
    }

    /// Above the panel, if there is one.
    fn print(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::new();
        if let View::Live { drawn } = self.view {
            text.push_str("\x1b[?25l");
            text.push_str(&erase(drawn));
        }
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        if let View::Live { drawn } = &mut self.view {
            let (width, height) = size();
            let rows = self.panel.draw(self.at, width.saturating_sub(1), height / 2, &self.paint);
            *drawn = rows.len();
            rows.iter().for_each(|row| {
                text.push_str(row);
                text.push('\n');
            });
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    async fn pause(&self, millis: i64) {
        if self.is_paced() {
            tokio::time::sleep(Duration::from_millis(millis.unsigned_abs())).await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Nobody is left to be told that the terminal has gone.
        let _ = self.close();
    }
}

/// Back to where the panel began, and everything from there on gone.
fn erase(drawn: usize) -> String {
    match drawn {
        0 => String::new(),
        rows => format!("\x1b[{rows}A\r\x1b[J"),
    }
}

fn size() -> (usize, usize) {
    match terminal_size() {
        Some((Width(width), Height(height))) if width > 0 && height > 0 => (width.into(), height.into()),
        _ => (WIDTH_UNKNOWN, 0),
    }
}

/// In milliseconds. All of them together make some half a minute.
fn reading_time(line: &Line) -> i64 {
    match line.speaker {
        Speaker::Headline => 800,
        Speaker::Resus(Verdict::Hold) => 700,
        Speaker::Resus(Verdict::Wait | Verdict::Start) => 250,
        Speaker::Trouble => 300,
        Speaker::Cluster | Speaker::Resus(_) | Speaker::Provider | Speaker::Relief => 130,
    }
}

fn minutes(passes: Millis) -> String {
    match (passes + MINUTE / 2) / MINUTE {
        1 => "a minute passes".to_owned(),
        many => format!("{many} minutes pass"),
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len() + 2
}

/// Breaks between words; the lines after the first are indented.
fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    // With no room beside the indent, the terminal does it better.
    if width < indent + WIDTH_MIN / 2 {
        return vec![text.to_owned()];
    }
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for word in text.split_inclusive(' ') {
        let (long, shown) = (word.chars().count(), word.trim_end().chars().count());
        if used + shown >= width && !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)).trim_end().to_owned());
            used = indent;
        }
        line.push_str(word);
        used += long;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_are_indented() {
        let text = "  00:30  resus     wait worker-2, because condition Ready is Unknown";
        assert_eq!(
            wrap(text, 46, 19),
            ["  00:30  resus     wait worker-2, because", "                   condition Ready is Unknown"]
        );
        assert_eq!(wrap(text, WIDTH_UNKNOWN, 19), [text]);
        assert_eq!(wrap(text, 20, 19), [text], "no room to do it well");
    }

    #[test]
    fn time_is_told_in_minutes() {
        assert_eq!((minutes(70 * SECOND), minutes(300 * SECOND)), ("a minute passes".to_owned(), "5 minutes pass".to_owned()));
    }
}
