//! Which colours and symbols can be shown here?

use std::io::IsTerminal as _;

use resus_core::decision::Verdict;

use super::story::{Speaker, State};

pub struct Paint {
    colours: bool,
    /// Symbols beyond ASCII.
    symbols: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BLUE: &str = "34";
const CYAN: &str = "36";

impl Paint {
    /// Nothing but ASCII, as for pipes and files.
    #[cfg(test)]
    pub fn plain() -> Paint {
        Paint { colours: false, symbols: false }
    }

    /// For standard output, as the environment says.
    pub fn for_stdout() -> Paint {
        let is_screen = is_screen();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        // The first of them that is set decides.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
        let locale = locale.into_iter().find(|locale| !locale.is_empty()).unwrap_or_default().to_lowercase();
        let speaks_utf8 = locale.contains("utf-8") || locale.contains("utf8");
        Paint { colours: is_screen && !is_set("NO_COLOR"), symbols: is_screen && speaks_utf8 }
    }

    pub fn speaker(&self, speaker: Speaker, text: &str) -> String {
        let code = match speaker {
            Speaker::Headline => BOLD,
            Speaker::Trouble => RED,
            Speaker::Cluster => return text.to_owned(),
            Speaker::Resus(Verdict::Wait) => YELLOW,
            Speaker::Resus(Verdict::Hold) => "1;33",
            Speaker::Resus(Verdict::Start | Verdict::Keep) => "1;36",
            Speaker::Resus(Verdict::Leave | Verdict::Remove) => CYAN,
            Speaker::Provider => BLUE,
            Speaker::Relief => GREEN,
        };
        self.colour(code, text)
    }

    pub fn state(&self, state: State, text: &str) -> String {
        let code = match state {
            State::Healthy => GREEN,
            State::Broken | State::Unhealthy => RED,
            State::Pending => YELLOW,
            State::Repairing => CYAN,
            State::Rebooting => BLUE,
        };
        self.colour(code, text)
    }

    pub fn symbol(&self, state: State) -> &'static str {
        let (symbol, ascii) = match state {
            State::Healthy => ("●", "o"),
            State::Broken => ("○", "."),
            State::Pending => ("◐", "?"),
            State::Unhealthy => ("✖", "X"),
            State::Repairing => ("◆", "#"),
            State::Rebooting => ("↻", "~"),
        };
        if self.symbols { symbol } else { ascii }
    }

    pub fn ellipsis(&self) -> &'static str {
        if self.symbols { "…" } else { "..." }
    }

    pub fn rule(&self, width: usize) -> String {
        self.dim(&if self.symbols { "─" } else { "-" }.repeat(width))
    }

    pub fn dim(&self, text: &str) -> String {
        self.colour(DIM, text)
    }

    pub fn bold(&self, text: &str) -> String {
        self.colour(BOLD, text)
    }

    fn colour(&self, code: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// A terminal that knows more than to print one line after the other.
pub fn is_screen() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}
