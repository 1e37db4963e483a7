//! A watch of the controller in virtual time: list, then watch, as the driver does it.
//!
//! The same states, patience and pauses as `driver/src/watch.rs`, driven by signals in place of awaits.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{Request, Response};
use resus_core::facts::{Served, Source};
use resus_core::input::Input;
use resus_core::upgrade::Detectors;
use resus_core::world::STALE_AFTER;
use resus_k8s::feed::{self, Line};
use resus_k8s::limits::PAGE;
use resus_k8s::names::Places;
use resus_k8s::observe::Keep;

use crate::clock::{Millis, SECOND};
use crate::scenario::NAMESPACE;

/// As in the driver: for the head of an answer, and for a page of a list.
pub const ANSWER_WITHIN: Millis = 10 * SECOND;
const SILENCE_MAX: Millis = 2 * SECOND;
const POLL_EVERY: Millis = 15 * SECOND;
const BACKOFF_MIN: Millis = 200;
const BACKOFF_MAX: Millis = 5 * SECOND;
const LIVED_FOR: Millis = 5 * SECOND;
const PATIENCE: Millis = STALE_AFTER.as_secs() as Millis * SECOND;

/// As a controller without flags: the usual marks of maintenance.
pub fn keep() -> &'static Keep {
    static KEEP: LazyLock<Keep> = LazyLock::new(|| Keep::of(&Detectors::default()));
    &KEEP
}

pub struct Watcher {
    source: Source,
    served: Option<Served>,
    state: State,
    began_at: Millis,
    backoff: Millis,
}

enum State {
    /// Left by the answer.
    Listing,
    /// Left by the head of the answer.
    Opening { version: String, resumed: bool },
    /// Left when the watch ends, expires, or stays silent.
    Following { version: String, resumed: bool, heard: bool, silent_at: Millis },
    /// Left in time.
    Resting { next: Next, until: Millis },
}

#[derive(Clone)]
enum Next {
    List,
    Watch { version: String, resumed: bool },
}

/// What the loop gets to hear, and what is to be asked.
#[derive(Default)]
pub struct Moved {
    pub inputs: Vec<Input>,
    pub ask: Option<Request<Vec<u8>>>,
}

impl Watcher {
    pub fn begin(source: Source, served: Option<Served>, now: Millis) -> (Watcher, Moved) {
        let state = State::Listing;
        let mut watcher = Watcher { source, served, state, began_at: now, backoff: BACKOFF_MIN };
        let mut moved = Moved::default();
        watcher.start(Next::List, now, &mut moved);
        (watcher, moved)
    }

    /// When it wants to be woken.
    pub fn timer(&self) -> Option<Millis> {
        match &self.state {
            State::Listing | State::Opening { .. } => None,
            State::Following { silent_at, .. } => Some(*silent_at),
            State::Resting { until, .. } => Some(*until),
        }
    }

    pub fn on_time(&mut self, now: Millis) -> Moved {
        let mut moved = Moved::default();
        match &self.state {
            State::Following { silent_at, .. } if now >= *silent_at => {
                moved.inputs.push(Input::Broken(self.source.clone()));
                self.rest(Next::List, now);
            }
            State::Resting { until, next } if now >= *until => {
                let next = next.clone();
                self.start(next, now, &mut moved);
            }
            _ => {}
        }
        moved
    }

    /// An answer that is no watch: a page, or a refusal.
    pub fn on_answer(&mut self, response: &Response<Vec<u8>>, now: Millis) -> Moved {
        let mut moved = Moved::default();
        let code = response.status().as_u16();
        match &self.state {
            State::Listing if response.status().is_success() => self.page(response.body(), now, &mut moved),
            State::Listing => {
                self.refused(code, &mut moved);
                self.rest(Next::List, now);
            }
            State::Opening { .. } if code == 403 && matches!(self.source, Source::Objects(_)) => {
                moved.inputs.push(Input::Polled(self.source.clone()));
                self.state = State::Resting { next: Next::List, until: now + POLL_EVERY };
            }
            State::Opening { .. } => {
                if code != 410 {
                    moved.inputs.push(Input::Broken(self.source.clone()));
                }
                self.refused(code, &mut moved);
                self.rest(Next::List, now);
            }
            State::Following { .. } | State::Resting { .. } => {}
        }
        moved
    }

    fn refused(&self, code: u16, moved: &mut Moved) {
        match code {
            404 => moved.inputs.push(Input::NotServed(self.source.clone())),
            403 => moved.inputs.push(Input::Forbidden(self.source.clone())),
            _ => {}
        }
    }

    fn page(&mut self, body: &[u8], now: Millis, moved: &mut Moved) {
        let Ok(page) = feed::read_page(&self.source, keep(), body) else { return self.rest(Next::List, now) };
        moved.inputs.extend(page.inputs);
        match page.next {
            Some(next) => match feed::list(&self.source, self.served.as_ref(), &Places::new(NAMESPACE), Some(&next), PAGE) {
                Ok(request) => moved.ask = Some(request),
                Err(_) => self.rest(Next::List, now),
            },
            None => {
                moved.inputs.push(Input::Listed(self.source.clone()));
                self.start(Next::Watch { version: page.version, resumed: false }, now, moved);
            }
        }
    }

    pub fn on_open(&mut self, now: Millis) {
        if let State::Opening { version, resumed } = &self.state {
            let (version, resumed) = (version.clone(), *resumed);
            let silent_at = now + if resumed { SILENCE_MAX } else { PATIENCE };
            self.state = State::Following { version, resumed, heard: false, silent_at };
        }
    }

    /// No answer came, or none in time.
    pub fn on_lost(&mut self, now: Millis) -> Moved {
        let mut moved = Moved::default();
        match &self.state {
            State::Listing => self.rest(Next::List, now),
            State::Opening { version, .. } => {
                let next = Next::Watch { version: version.clone(), resumed: true };
                moved.inputs.push(Input::Broken(self.source.clone()));
                self.rest(next, now);
            }
            State::Following { .. } | State::Resting { .. } => {}
        }
        moved
    }

    pub fn on_lines(&mut self, lines: &[Bytes], now: Millis) -> Moved {
        let mut moved = Moved::default();
        let State::Following { version, resumed, heard, silent_at } = &mut self.state else { return moved };
        let mut trouble = None;
        for line in lines {
            match feed::read_line(&self.source, keep(), line.trim_ascii_end()) {
                Ok(Line::Input(input, newest)) => {
                    moved.inputs.push(input);
                    *heard |= newest.is_some();
                    *version = newest.unwrap_or(std::mem::take(version));
                }
                Ok(Line::Expired) => trouble = Some(*resumed || *heard),
                Ok(Line::Error(_)) | Err(_) => trouble = Some(true),
            }
            if trouble.is_some() {
                break;
            }
        }
        *silent_at = now + if *heard || !*resumed { PATIENCE } else { SILENCE_MAX };
        if let Some(is_broken) = trouble {
            if is_broken {
                moved.inputs.push(Input::Broken(self.source.clone()));
            }
            self.rest(Next::List, now);
        }
        moved
    }

    pub fn on_close(&mut self, now: Millis) -> Moved {
        let mut moved = Moved::default();
        if let State::Following { version, .. } = &self.state {
            let next = Next::Watch { version: version.clone(), resumed: true };
            moved.inputs.push(Input::Broken(self.source.clone()));
            self.rest(next, now);
        }
        moved
    }

    fn rest(&mut self, next: Next, now: Millis) {
        if now - self.began_at >= LIVED_FOR {
            self.backoff = BACKOFF_MIN;
        }
        self.state = State::Resting { next, until: now + self.backoff };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    fn start(&mut self, next: Next, now: Millis, moved: &mut Moved) {
        self.began_at = now;
        match next {
            Next::List => {
                moved.inputs.push(Input::Listing(self.source.clone()));
                moved.ask = feed::list(&self.source, self.served.as_ref(), &Places::new(NAMESPACE), None, PAGE).ok();
                self.state = State::Listing;
            }
            Next::Watch { version, resumed } => {
                match feed::watch(&self.source, self.served.as_ref(), &Places::new(NAMESPACE), &version) {
                    Ok(request) => {
                        moved.ask = Some(request);
                        self.state = State::Opening { version, resumed };
                    }
                    Err(_) => self.rest(Next::List, now),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Watcher {
        let (mut watcher, moved) = Watcher::begin(Source::Nodes, None, 0);
        assert!(moved.ask.is_some_and(|ask| !ask.uri().to_string().contains("watch")));
        let page = Response::new(br#"{"metadata":{"resourceVersion":"7"},"items":[]}"#.to_vec());
        let moved = watcher.on_answer(&page, 10);
        assert_eq!(moved.inputs, [Input::Listed(Source::Nodes)]);
        assert!(moved.ask.is_some_and(|ask| ask.uri().to_string().contains("resourceVersion=7")));
        watcher.on_open(20);
        watcher
    }

    #[test]
    fn a_watch_that_closes_is_resumed_and_listed_anew_if_it_stays_silent() {
        let mut watcher = listed();
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#.to_vec();
        assert_eq!(watcher.on_lines(&[bookmark.into()], 30).inputs, [Input::Heard(Source::Nodes)]);
        assert_eq!(watcher.on_close(40).inputs, [Input::Broken(Source::Nodes)]);
        let resumed = watcher.on_time(240).ask;
        assert!(resumed.is_some_and(|ask| ask.uri().to_string().contains("resourceVersion=9")));
        watcher.on_open(250);
        assert_eq!(watcher.timer(), Some(2_250));
        assert_eq!(watcher.on_time(2_250).inputs, [Input::Broken(Source::Nodes)]);
        let again = watcher.on_time(watcher.timer().unwrap());
        assert_eq!(again.inputs, [Input::Listing(Source::Nodes)]);
    }

    #[test]
    fn an_expired_version_right_after_the_list_is_no_break() {
        let mut watcher = listed();
        let expired = br#"{"type":"ERROR","object":{"code":410}}"#.to_vec();
        assert_eq!(watcher.on_lines(&[expired.into()], 30).inputs, []);
        assert!(watcher.on_time(10_000).ask.is_some(), "it lists again");
    }
}
