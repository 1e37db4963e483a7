//! How do we learn what is in the cluster, and notice when we do not?
//!
//! List, then watch from there; go on from the last version after a break, and list again when that
//! version is too old or the resumed watch stays silent. Every break is told, so that nothing is decided
//! on what may be out of date.
//!
//! A [`Watcher`] neither sends nor waits: it says what is to be asked and when it wants to be woken, and is told what came of it.

use std::io::BufRead as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use resus_core::facts::{Served, Source};
use resus_core::input::Input;
use resus_core::mhc::facts::ClusterKey;
use resus_core::text::Plain;
use resus_core::time::Mono;
use resus_core::world::STALE_AFTER;

use crate::answer;
use crate::feed::{self, Line};
use crate::limits::{self, LINE_MAX, Limits, PAGE, PAGE_MIN, Taken, TooMuch};
use crate::names::Places;
use crate::observe::{ApiStatus, Keep};

/// For the head of an answer, and for a page of a list.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Busy clusters send an event at once; where a resumed watch is silent, a list is small and brings certainty.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Where lists are all that we may have.
const POLL_EVERY: Duration = Duration::from_secs(15);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// After an attempt of at least 5 s the next one waits no longer than `BACKOFF_MIN`.
const LIVED_FOR: Duration = Duration::from_secs(5);
/// Where more is there than we take: somebody has to look at it first.
const TOO_MUCH_AGAIN: Duration = Duration::from_secs(60);
/// A kubeconfig that cannot be used is tried again after this: a name may lead elsewhere by then, and files may be opened again.
pub const NO_ACCESS_AGAIN: Duration = Duration::from_secs(300);
/// Room for lines that have not come to their end which is kept; a longer one is rare.
const ROOM_KEPT: usize = 1 << 20;

/// What is to be watched, and how.
#[derive(Clone)]
pub struct Wanted {
    pub source: Source,
    /// How the API serves the kind of [`Source::Objects`].
    pub served: Option<Served>,
    pub keep: Arc<Keep>,
    pub places: Arc<Places>,
    /// Unlike that of other watches: those that broke together do not all come back in the same moment.
    pub chance: u64,
}

pub struct Watcher {
    what: Wanted,
    limits: Limits,
    state: State,
    /// When what is tried now was begun.
    began_at: Mono,
    backoff: Duration,
    /// Objects to be asked for at once.
    page: u32,
    /// Of the list that is under way.
    taken: Taken,
    /// The trouble has been told; its repetitions are not.
    told: bool,
    polled: bool,
}

enum State {
    /// Left by the page, a refusal, or in time.
    Listing { from: Option<String>, asked_at: Mono, code: Option<StatusCode> },
    /// Left by the head of the answer, or in time.
    Opening { version: String, resumed: bool, asked_at: Mono, code: Option<StatusCode> },
    /// Left when the watch ends, expires, or stays silent.
    Following { version: String, resumed: bool, heard: bool, heard_at: Mono, line: Vec<u8> },
    /// Left in time.
    Resting { next: Next, until: Mono },
    /// Too much was sent. Not left: whoever hears of it ends this watch, and begins another in time.
    Full,
}

#[derive(Clone)]
enum Next {
    List,
    Watch { version: String, resumed: bool },
}

/// What comes of something that happened.
#[derive(Default)]
pub struct Moved {
    pub inputs: Vec<Input>,
    /// What was asked before is of no interest any more.
    pub ask: Option<Ask>,
    pub news: Vec<News>,
}

/// What is to be asked of the server.
pub enum Ask {
    /// The answer has an end: at most this many bytes are read of it.
    Page(Request<Vec<u8>>, usize),
    Watch(Request<Vec<u8>>),
}

/// What is worth a line in a log, or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Listed {
        objects: usize,
    },
    /// Pages of this many objects, from now on.
    Smaller {
        page: u32,
        why: String,
    },
    Polled {
        every: Duration,
        why: String,
    },
    /// A watch has come to its end.
    Ended,
    Trouble {
        why: String,
    },
    NoAccess {
        why: String,
    },
    TooMuch {
        why: String,
    },
}

impl Watcher {
    pub fn begin(what: Wanted, now: Mono) -> (Watcher, Moved) {
        let limits = limits::of(&what.source);
        let mut watcher = Watcher {
            what,
            limits,
            state: State::Full,
            began_at: now,
            backoff: BACKOFF_MIN,
            page: PAGE,
            taken: Taken::default(),
            told: false,
            polled: false,
        };
        let mut moved = Moved::default();
        watcher.start(Next::List, now, &mut moved);
        (watcher, moved)
    }

    pub fn source(&self) -> &Source {
        &self.what.source
    }

    /// A watch is open, and is to be read on.
    pub fn is_following(&self) -> bool {
        matches!(self.state, State::Following { .. })
    }

    /// When it wants to be woken, at the latest; before that, whenever something comes.
    pub fn wake_at(&self) -> Option<Mono> {
        match &self.state {
            State::Listing { asked_at, .. } | State::Opening { asked_at, .. } => Some(asked_at.after(ANSWER_WITHIN)),
            State::Following { resumed, heard, heard_at, .. } => {
                Some(heard_at.after(if *heard || !resumed { STALE_AFTER } else { SILENCE_MAX }))
            }
            State::Resting { until, .. } => Some(*until),
            State::Full => None,
        }
    }

    pub fn on_time(&mut self, now: Mono) -> Moved {
        let mut moved = Moved::default();
        if self.wake_at().is_none_or(|at| now < at) {
            return moved;
        }
        match &self.state {
            State::Listing { .. } => self.ask_for_less("no answer in time".into(), now, &mut moved),
            State::Opening { .. } => self.lost("no answer in time", now, &mut moved),
            State::Following { .. } => self.broken(Next::List, now, &mut moved),
            State::Resting { next, .. } => {
                let next = next.clone();
                self.start(next, now, &mut moved);
            }
            State::Full => {}
        }
        moved
    }

    /// What was asked goes out now, not when it was thought of.
    pub fn on_sent(&mut self, now: Mono) {
        if let State::Listing { asked_at, .. } | State::Opening { asked_at, .. } = &mut self.state {
            *asked_at = now;
        }
    }

    /// The answer begins. What it says of the server's clock is heard before anything that is dated by it.
    pub fn on_head(&mut self, code: StatusCode, headers: &HeaderMap, now: Mono) -> Moved {
        let mut moved = Moved::default();
        let (asked_at, seen) = match &mut self.state {
            State::Listing { asked_at, code, .. } | State::Opening { asked_at, code, .. } => (*asked_at, code),
            State::Following { .. } | State::Resting { .. } | State::Full => return moved,
        };
        *seen = Some(code);
        // Objects of providers may be served by somebody else.
        if !matches!(self.what.source, Source::Objects(_)) {
            moved.inputs.extend(answer::dated(headers, self.what.source.cluster().cloned(), asked_at));
        }
        if let State::Opening { version, resumed, .. } = &self.state
            && code.is_success()
        {
            let (version, resumed) = (version.clone(), *resumed);
            self.state = State::Following { version, resumed, heard: false, heard_at: now, line: Vec::new() };
        }
        moved
    }

    /// All of an answer that has an end; after its head.
    pub fn on_body(&mut self, body: &[u8], now: Mono) -> Moved {
        let mut moved = Moved::default();
        match &self.state {
            State::Listing { code: Some(code), .. } if code.is_success() => self.page(body, now, &mut moved),
            State::Listing { code: Some(code), from, .. } => {
                let status = api_status(*code, body);
                // The snapshot from which the pages come has expired: the list begins again.
                if !(status.code == 410 && from.is_some()) {
                    self.refused(&status, &mut moved);
                }
                self.rest(Next::List, now);
            }
            State::Opening { code: Some(code), .. } => {
                let status = api_status(*code, body);
                moved.news.extend((!self.polled).then_some(News::Ended));
                match status.code {
                    // The list before it is as good as ever; there will be another soon.
                    410 => self.rest(Next::List, now),
                    // Roles of many providers lack this one verb: what may be listed is listed often.
                    403 if matches!(self.what.source, Source::Objects(_)) => {
                        moved.inputs.push(Input::Polled(self.what.source.clone()));
                        if !std::mem::replace(&mut self.polled, true) {
                            moved.news.push(News::Polled { every: POLL_EVERY, why: self.explain(&status) });
                        }
                        self.state = State::Resting { next: Next::List, until: now.after(POLL_EVERY) };
                    }
                    _ => {
                        moved.inputs.push(Input::Broken(self.what.source.clone()));
                        self.refused(&status, &mut moved);
                        self.rest(Next::List, now);
                    }
                }
            }
            _ => {}
        }
        moved
    }

    /// The page is larger than it may be.
    pub fn on_too_large(&mut self, why: String, now: Mono) -> Moved {
        let mut moved = Moved::default();
        match self.state {
            State::Listing { .. } => self.ask_for_less(why, now, &mut moved),
            _ => self.lost(&why, now, &mut moved),
        }
        moved
    }

    /// There is no answer, or it broke off.
    pub fn on_lost(&mut self, why: &str, now: Mono) -> Moved {
        let mut moved = Moved::default();
        self.lost(why, now, &mut moved);
        moved
    }

    /// Nobody can be asked with what leads to this cluster.
    pub fn on_no_access(&mut self, cluster: &ClusterKey, why: &str, now: Mono) -> Moved {
        let why = Plain(why).to_string();
        let input = Input::NoAccess { cluster: cluster.clone(), why: why.as_str().into() };
        self.state = State::Resting { next: Next::List, until: now.after(NO_ACCESS_AGAIN) };
        Moved { inputs: vec![input], news: vec![News::NoAccess { why }], ask: None }
    }

    /// More of what the server says on a watch, however it is cut into pieces.
    pub fn on_bytes(&mut self, bytes: &[u8], now: Mono) -> Moved {
        let mut moved = Moved::default();
        let State::Following { version, heard, heard_at, line, .. } = &mut self.state else { return moved };
        *heard_at = now;
        line.extend_from_slice(bytes);
        // To look through all of a line again with each of its bytes would keep us busy.
        if !bytes.contains(&b'\n') && line.len() <= LINE_MAX {
            return moved;
        }
        let read = read_lines(&self.what, line, &mut moved.inputs);
        if let Ok(newest) = &read {
            *heard |= newest.is_some();
        }
        match read {
            Ok(newest) => *version = newest.unwrap_or_else(|| std::mem::take(version)),
            Err(trouble) => self.end(trouble, now, &mut moved),
        }
        moved
    }

    /// The watch has ended.
    pub fn on_close(&mut self, now: Mono) -> Moved {
        let mut moved = Moved::default();
        if let State::Following { version, .. } = &self.state {
            let next = Next::Watch { version: version.clone(), resumed: true };
            self.broken(next, now, &mut moved);
        }
        moved
    }

    fn page(&mut self, body: &[u8], now: Mono, moved: &mut Moved) {
        let page = match feed::read_page(&self.what.source, &self.what.keep, body) {
            Ok(page) => page,
            Err(error) => {
                self.trouble(&format!("the list cannot be read: {error}"), moved);
                return self.rest(Next::List, now);
            }
        };
        if let Err(TooMuch(why)) = self.taken.page(&self.limits, page.inputs.len(), body.len()) {
            return self.too_much(why, now, moved);
        }
        moved.inputs.extend(page.inputs);
        match page.next {
            Some(next) => self.ask_for(Some(next), now, moved),
            None => {
                moved.inputs.push(Input::Listed(self.what.source.clone()));
                self.told = false;
                moved.news.extend((!self.polled).then_some(News::Listed { objects: self.taken.objects }));
                self.start(Next::Watch { version: page.version, resumed: false }, now, moved);
            }
        }
    }

    fn start(&mut self, next: Next, now: Mono, moved: &mut Moved) {
        self.began_at = now;
        match next {
            Next::List => {
                moved.inputs.push(Input::Listing(self.what.source.clone()));
                self.taken = Taken::default();
                // What was too large for a slow moment is tried again in the next list.
                self.page = (self.page * 2).min(PAGE);
                self.ask_for(None, now, moved);
            }
            Next::Watch { version, resumed } => {
                let Wanted { source, served, places, .. } = &self.what;
                match feed::watch(source, served.as_ref(), places, &version) {
                    Ok(request) => {
                        moved.ask = Some(Ask::Watch(request));
                        self.state = State::Opening { version, resumed, asked_at: now, code: None };
                    }
                    // Another list may have a version that can be asked for.
                    Err(error) => {
                        self.trouble(&error.to_string(), moved);
                        self.broken(Next::List, now, moved);
                    }
                }
            }
        }
    }

    fn ask_for(&mut self, from: Option<String>, now: Mono, moved: &mut Moved) {
        let Wanted { source, served, places, .. } = &self.what;
        match feed::list(source, served.as_ref(), places, from.as_deref(), self.page) {
            Ok(request) => {
                moved.ask = Some(Ask::Page(request, self.limits.page_bytes));
                self.state = State::Listing { from, asked_at: now, code: None };
            }
            Err(error) => {
                self.trouble(&error.to_string(), moved);
                self.rest(Next::List, now);
            }
        }
    }

    /// What is too large for us, or for a slow link, is asked for again in halves, from where it began.
    fn ask_for_less(&mut self, why: String, now: Mono, moved: &mut Moved) {
        let State::Listing { from, .. } = &self.state else { return };
        if self.page <= PAGE_MIN {
            return self.lost(&why, now, moved);
        }
        let from = from.clone();
        self.page = (self.page / 2).max(PAGE_MIN);
        moved.news.push(News::Smaller { page: self.page, why });
        self.ask_for(from, now, moved);
    }

    fn lost(&mut self, why: &str, now: Mono, moved: &mut Moved) {
        match &self.state {
            State::Listing { .. } => self.rest(Next::List, now),
            State::Opening { version, .. } => {
                let next = Next::Watch { version: version.clone(), resumed: true };
                self.broken(next, now, moved);
            }
            State::Following { .. } | State::Resting { .. } | State::Full => return,
        }
        self.trouble(why, moved);
    }

    /// A watch that is of no more use.
    fn end(&mut self, trouble: Trouble, now: Mono, moved: &mut Moved) {
        let State::Following { resumed, heard, .. } = &self.state else { return };
        // Nothing came after the list, but nothing was missed either.
        if matches!(trouble, Trouble::Expired) && !resumed && !heard {
            moved.news.push(News::Ended);
            return self.rest(Next::List, now);
        }
        match trouble {
            Trouble::Expired => {}
            Trouble::Refused(status) => {
                let why = self.explain(&status);
                self.trouble(&why, moved);
            }
            Trouble::Garbage(why) => self.trouble(&why, moved),
        }
        self.broken(Next::List, now, moved);
    }

    fn broken(&mut self, next: Next, now: Mono, moved: &mut Moved) {
        moved.inputs.push(Input::Broken(self.what.source.clone()));
        moved.news.extend((!self.polled).then_some(News::Ended));
        self.rest(next, now);
    }

    /// The server is there and says no. What we knew of versions may be wrong too: after a pause, list.
    fn refused(&mut self, status: &ApiStatus, moved: &mut Moved) {
        match status.code {
            404 => moved.inputs.push(Input::NotServed(self.what.source.clone())),
            403 => moved.inputs.push(Input::Forbidden(self.what.source.clone())),
            _ => {}
        }
        let why = self.explain(status);
        self.trouble(&why, moved);
    }

    fn too_much(&mut self, why: String, now: Mono, moved: &mut Moved) {
        self.state = match self.what.source.cluster() {
            Some(cluster) => {
                moved.inputs.push(Input::TooMuch { cluster: cluster.clone(), why: why.as_str().into() });
                State::Full
            }
            None => State::Resting { next: Next::List, until: now.after(TOO_MUCH_AGAIN) },
        };
        moved.news.push(News::TooMuch { why });
    }

    fn trouble(&mut self, why: &str, moved: &mut Moved) {
        if !std::mem::replace(&mut self.told, true) {
            moved.news.push(News::Trouble { why: Plain(why).to_string() });
        }
    }

    /// The longer the more often it fails.
    fn rest(&mut self, next: Next, now: Mono) {
        if now.since(self.began_at) >= LIVED_FOR {
            self.backoff = BACKOFF_MIN;
        }
        // As good as any for this.
        self.what.chance = self.what.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let parts = u32::try_from(500 + (self.what.chance >> 33) % 500).unwrap_or(1000);
        self.state = State::Resting { next, until: now.after(self.backoff * parts / 1000) };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    fn explain(&self, status: &ApiStatus) -> String {
        if self.what.source.cluster().is_some() {
            return match status.code {
                403 => "let the user of its kubeconfig list and watch this (403)".into(),
                401 => "the credentials of its kubeconfig are not accepted (401)".into(),
                code => StatusCode::from_u16(code).map_or_else(|_| code.to_string(), |code| code.to_string()),
            };
        }
        let what_to_do = match (&self.what.source, status.code) {
            (Source::Checks, 404) => ": apply deploy/crds",
            (_, 403) => ": grant list and watch on it (deploy/rbac.yaml has what is needed)",
            (_, 401) => ": the credentials are not accepted",
            _ => "",
        };
        format!("{} ({}){what_to_do}", Plain(&status.message), status.code)
    }
}

/// Why a watch that was open is of no more use.
enum Trouble {
    Expired,
    Refused(ApiStatus),
    Garbage(String),
}

/// Takes all whole lines out of the buffer; returns the version after the last of them.
fn read_lines(what: &Wanted, buffer: &mut Vec<u8>, inputs: &mut Vec<Input>) -> Result<Option<String>, Trouble> {
    let (mut begin, mut newest) = (0, None);
    while let Some(line) = whole_line(&buffer[begin..]) {
        begin += line.len() + 1;
        match feed::read_line(&what.source, &what.keep, line) {
            Ok(Line::Input(input, version)) => {
                inputs.push(input);
                newest = version.or(newest);
            }
            Ok(Line::Expired) => return Err(Trouble::Expired),
            Ok(Line::Error(status)) => return Err(Trouble::Refused(status)),
            // Nothing can be said about it, not even its name; a list will show what there is.
            Err(error) => return Err(Trouble::Garbage(format!("a line of the watch cannot be read: {error}"))),
        }
    }
    buffer.drain(..begin);
    if buffer.len() > LINE_MAX {
        return Err(Trouble::Garbage(format!("a line of the watch is longer than {LINE_MAX} bytes")));
    }
    buffer.shrink_to(ROOM_KEPT);
    Ok(newest)
}

fn whole_line(bytes: &[u8]) -> Option<&[u8]> {
    let length = (&mut &*bytes).skip_until(b'\n').expect("what is in memory can be read");
    bytes[..length].strip_suffix(b"\n")
}

fn api_status(code: StatusCode, body: &[u8]) -> ApiStatus {
    let status: ApiStatus = serde_json::from_slice(body).unwrap_or_default();
    // Whatever its body says of itself.
    let message = if status.message.is_empty() { code.to_string() } else { status.message };
    ApiStatus { code: code.as_u16(), message, ..status }
}
