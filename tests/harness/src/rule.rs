//! What goes wrong with which request on its way to the API server?
//!
//! A rule picks requests and says what happens to them. The first rule that still applies wins; what no rule picks
//! passes unharmed. Every rule counts what it did, so that a story can wait for the fault to have happened.

use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::proxy::{Note, Proxy};
use crate::upstream::Upstream;

/// A controller that has not asked within so long will not: its own retries are at most seconds apart.
const REACHED_WITHIN: Duration = Duration::from_secs(60);

/// What happens to a request that a rule picks.
#[derive(Clone, Debug)]
pub enum Action {
    /// It reaches the proxy and goes no further until [`Rule::release`].
    HoldBefore,
    /// The server has executed and answered it; the answer is held back until [`Rule::release`].
    HoldAfter,
    /// The server has executed and answered it; the client's connection is cut without an answer.
    LoseAnswer,
    /// The proxy answers in place of the server.
    Answer { status: StatusCode, headers: Vec<(&'static str, String)>, body: Value },
    /// The connection is closed; the server never hears of it.
    Cut,
    /// Nothing ever comes back, and the server never hears of it.
    Hang,
    /// It goes on to the server only after so long; not at all if the client has gone by then.
    Delay(Duration),
}

impl Action {
    /// An answer with a Kubernetes Status, such as `(CONFLICT, "Conflict", "the object has been modified")`.
    pub fn refuse(status: StatusCode, reason: &str, message: &str) -> Action {
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": status.as_u16(), "reason": reason, "message": message,
        });
        Action::Answer { status, headers: Vec::new(), body }
    }

    /// 410: the resource version that a list or watch asks for is too old.
    pub fn gone() -> Action {
        Action::refuse(StatusCode::GONE, "Expired", "too old resource version")
    }

    /// 429 with Retry-After in whole seconds, as priority and fairness answers when the server is overloaded.
    pub fn too_many_requests(retry_after: Duration) -> Action {
        match Action::refuse(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "too many requests, try again later") {
            Action::Answer { status, body, .. } => {
                Action::Answer { status, headers: vec![("Retry-After", retry_after.as_secs().to_string())], body }
            }
            other => other,
        }
    }
}

/// A request as a rule sees it.
#[derive(Debug)]
pub struct Asked<'a> {
    pub method: &'a Method,
    /// Path and query.
    pub path: &'a str,
    pub body: &'a str,
}

impl Asked<'_> {
    /// Whether it has this method and this text somewhere in path or query.
    pub fn is(&self, method: &str, path_part: &str) -> bool {
        self.method.as_str() == method && self.path.contains(path_part)
    }
}

type Matches = Box<dyn Fn(&Asked<'_>) -> bool + Send + Sync>;

/// A rule that does not apply yet: `times` or `always` puts it in force, in one step, so that no request slips in.
#[must_use = "a draft does nothing until times() or always()"]
pub struct Draft<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) matches: Matches,
    pub(crate) action: Action,
    pub(crate) skips: usize,
}

impl Draft<'_> {
    /// Lets the first `n` matching requests pass: `skip(2).times(1)` is about the third.
    pub fn skip(mut self, n: usize) -> Self {
        self.skips = n;
        self
    }

    /// Applies to so many matching requests, then no more.
    pub fn times(self, n: usize) -> Rule {
        self.put_in_force(n)
    }

    /// Applies to every matching request until it is removed.
    pub fn always(self) -> Rule {
        self.put_in_force(usize::MAX)
    }

    fn put_in_force(self, times_left: usize) -> Rule {
        let state = State { skips_left: self.skips, times_left, held: Vec::new() };
        let law = Law { matches: self.matches, action: self.action, hits: watch::Sender::new(0), state: state.into() };
        let rule = Rule { law: Arc::new(law) };
        self.proxy.add(rule.clone());
        rule
    }
}

/// A rule in force. Dropping this handle changes nothing; [`Rule::remove`] does.
#[derive(Clone)]
pub struct Rule {
    law: Arc<Law>,
}

struct Law {
    matches: Matches,
    action: Action,
    hits: watch::Sender<usize>,
    state: Mutex<State>,
}

struct State {
    skips_left: usize,
    times_left: usize,
    held: Vec<Held>,
}

/// A request that is being held. Its client waits for `answer_to`, or has gone if that is closed.
pub(crate) enum Held {
    Before { request: Request<Full<Bytes>>, upstream: Upstream, note: Note, answer_to: oneshot::Sender<Response<Incoming>> },
    After { answer: Response<Incoming>, answer_to: oneshot::Sender<Response<Incoming>> },
}

impl Rule {
    /// To how many requests it has happened so far: held, answered, cut. With `HoldAfter` and `LoseAnswer` a request
    /// counts once the server has answered it.
    pub fn hits(&self) -> usize {
        *self.law.hits.borrow()
    }

    /// Waits for the first hit.
    #[track_caller]
    pub fn reached(&self) -> impl Future<Output = ()> {
        self.reached_times(1)
    }

    /// Waits until there were so many hits. Panics after a minute.
    #[track_caller]
    pub fn reached_times(&self, n: usize) -> impl Future<Output = ()> {
        let asked_at = Location::caller();
        let mut hits = self.law.hits.subscribe();
        async move {
            let enough = timeout(REACHED_WITHIN, hits.wait_for(|hits| *hits >= n)).await.is_ok();
            let seen = *hits.borrow();
            assert!(enough, "the rule was hit {seen} of {n} times in {REACHED_WITHIN:?} ({asked_at})");
        }
    }

    /// How many requests it holds now, of clients that wait and of clients that have gone.
    pub fn held(&self) -> usize {
        self.state().held.len()
    }

    /// Whether it holds something and all clients of that have gone.
    pub fn is_abandoned(&self) -> bool {
        let state = self.state();
        !state.held.is_empty() && !state.held.iter().any(Held::is_awaited)
    }

    /// Lets go what is held now, also of clients that have gone: a request held before the server is executed late.
    /// Returns when the server has answered, with its answers (none where it could not be reached). The rule stays.
    pub async fn release(&self) -> Vec<Option<StatusCode>> {
        let held = std::mem::take(&mut self.state().held);
        let going: Vec<_> = held.into_iter().map(|held| tokio::spawn(held.let_go())).collect();
        join_all(going).await.into_iter().map(|answer| answer.ok().flatten()).collect()
    }

    /// Cuts off what is held now: the server never hears of it, or its answer is lost. The rule stays.
    pub fn cut_held(&self) {
        self.state().held.clear();
    }

    /// Ends the rule. What is held goes on if its client still waits, and is forgotten if not.
    pub async fn remove(&self) {
        {
            let mut state = self.state();
            state.times_left = 0;
            state.held.retain(Held::is_awaited);
        }
        self.release().await;
    }

    /// What happens to this request, if the rule applies to it. Uses up one of its times.
    pub(crate) fn applies(&self, asked: &Asked<'_>) -> Option<Action> {
        let mut state = self.state();
        if state.times_left == 0 || !(self.law.matches)(asked) {
            return None;
        }
        if state.skips_left > 0 {
            state.skips_left -= 1;
            return None;
        }
        if state.times_left != usize::MAX {
            state.times_left -= 1;
        }
        Some(self.law.action.clone())
    }

    pub(crate) fn hit(&self) {
        self.law.hits.send_modify(|hits| *hits += 1);
    }

    pub(crate) fn hold(&self, held: Held) {
        self.state().held.push(held);
        self.hit();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.law.state.lock().expect("no matcher panics")
    }
}

impl Held {
    async fn let_go(self) -> Option<StatusCode> {
        let (answer, answer_to) = match self {
            Held::After { answer, answer_to } => (answer, answer_to),
            Held::Before { request, upstream, note, answer_to } => {
                let answer = upstream.send(request).await.ok()?;
                note.answered(answer.status());
                (answer, answer_to)
            }
        };
        let status = answer.status();
        // An error means that the client has gone. The server has executed the request all the same.
        let _ = answer_to.send(answer);
        Some(status)
    }

    fn is_awaited(&self) -> bool {
        match self {
            Held::Before { answer_to, .. } | Held::After { answer_to, .. } => !answer_to.is_closed(),
        }
    }
}
