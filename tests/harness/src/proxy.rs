//! How does a story lose, delay and forge single requests between a client and the API server?
//!
//! A plain-HTTP/1.1 reverse proxy on loopback, so that no client needs to trust it. Each client connection has one
//! connection to the server, so that a watch is streamed chunk by chunk and ends on both sides when one side goes.
//! A client that goes away takes its request with it, unless a rule holds it (see [`Rule::release`]).

use std::convert::Infallible;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request as HttpRequest, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::rule::{Action, Asked, Draft, Held, Rule};
use crate::upstream::Upstream;

/// A proxy in front of a cluster's API server. Everything through it ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<Infallible>,
}

/// A request that reached the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// What the server answered, or the proxy in its place, whether or not the client was told. None while there is no
    /// answer, and for ever if it was cut.
    pub status: Option<u16>,
}

impl Proxy {
    pub async fn in_front_of(cluster: &Cluster) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream: cluster.upstream()?,
            rules: Mutex::default(),
            requests: Arc::default(),
            refusing: AtomicBool::new(false),
            date_shift: AtomicI64::new(0),
            connections: Mutex::default(),
            errands: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Proxy { address, shared, accepting })
    }

    /// The server address for [`Cluster::kubeconfig_via`].
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Drafts a fault for the requests that `matches` picks; `times` or `always` puts it in force.
    pub fn rule(&self, matches: impl Fn(&Asked<'_>) -> bool + Send + Sync + 'static, action: Action) -> Draft<'_> {
        Draft { proxy: self, matches: Box::new(matches), action, skips: 0 }
    }

    /// Drops every open connection, watches too. Returns when they are closed.
    pub async fn cut_all(&self) {
        let mut connections = std::mem::take(&mut *lock(&self.shared.connections));
        connections.shutdown().await;
    }

    /// Whether new connections are closed at once, as if the API were away. Open ones stay: [`Proxy::cut_all`].
    pub fn refuse(&self, refusing: bool) {
        self.shared.refusing.store(refusing, Ordering::SeqCst);
    }

    /// From now on the server's clock seems to be ahead by so many seconds, or behind if they are negative.
    pub fn shift_dates(&self, seconds: i64) {
        self.shared.date_shift.store(seconds, Ordering::SeqCst);
    }

    /// Everything that was asked so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    pub(crate) fn add(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        lock(&self.shared.connections).abort_all();
        lock(&self.shared.errands).abort_all();
    }
}

struct Shared {
    upstream: Upstream,
    rules: Mutex<Vec<Rule>>,
    requests: Arc<Mutex<Vec<Request>>>,
    refusing: AtomicBool,
    /// Seconds.
    date_shift: AtomicI64,
    connections: Mutex<JoinSet<()>>,
    /// What is done for a client whether or not it waits.
    errands: Mutex<JoinSet<()>>,
}

/// A place in the list of requests, where the answer is to be written.
pub(crate) struct Note {
    requests: Arc<Mutex<Vec<Request>>>,
    index: usize,
}

impl Note {
    pub(crate) fn answered(&self, status: StatusCode) {
        lock(&self.requests)[self.index].status = Some(status.as_u16());
    }
}

type Reply = Response<Either<Incoming, Full<Bytes>>>;

/// The client's connection is to be closed without an answer. hyper does so when a service fails.
#[derive(Debug, thiserror::Error)]
#[error("cut by the proxy")]
struct Cut;

async fn accept(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
    loop {
        let (stream, _) = listener.accept().await.expect("loopback accepts as long as there are files to open");
        if !shared.refusing.load(Ordering::SeqCst) {
            let connection = serve_connection(stream, shared.clone());
            let mut connections = lock(&shared.connections);
            while connections.try_join_next().is_some() {}
            connections.spawn(connection);
        }
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let line = Arc::new(Line { upstream: shared.upstream.clone(), sender: tokio::sync::Mutex::default() });
    let service = service_fn(|request| async {
        let mut reply = serve(request, shared.clone(), line.clone()).await?;
        shift_date(reply.headers_mut(), shared.date_shift.load(Ordering::SeqCst));
        Ok::<Reply, Cut>(reply)
    });
    // However it ends, the client is told by the end of the connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn shift_date(headers: &mut HeaderMap, seconds: i64) {
    let date = headers.get(DATE).and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok());
    if let Some(date) = date.filter(|_| seconds != 0) {
        let shifted = date.timestamp() + jiff::SignedDuration::from_secs(seconds);
        let text = shifted.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        headers.insert(DATE, HeaderValue::from_str(&text).expect("a date is plain text"));
    }
}

/// Dropped half way by hyper when the client goes away.
async fn serve(request: HttpRequest<Incoming>, shared: Arc<Shared>, line: Arc<Line>) -> Result<Reply, Cut> {
    let (request, body) = onward(request).await?;
    let note = shared.note(&request);
    let asked = Asked { method: request.method(), path: path_of(&request), body: &String::from_utf8_lossy(&body) };
    let Some((rule, action)) = shared.first_rule(&asked) else {
        return line.pass(request, &note).await;
    };
    match action {
        Action::Cut => {
            rule.hit();
            Err(Cut)
        }
        Action::Hang => {
            rule.hit();
            pending().await
        }
        Action::Answer { status, headers, body } => {
            note.answered(status);
            rule.hit();
            Ok(made_up(status, &headers, &body))
        }
        Action::Delay(duration) => {
            rule.hit();
            wait_out(duration).await;
            line.pass(request, &note).await
        }
        Action::HoldBefore => {
            let (answer_to, answer) = oneshot::channel();
            rule.hold(Held::Before { request, upstream: shared.upstream.clone(), note, answer_to });
            answer.await.map(|answer| answer.map(Either::Left)).map_err(|_| Cut)
        }
        Action::HoldAfter => {
            let answer = shared.send_whoever_waits(request, note, move |answer, answer_to| {
                rule.hold(Held::After { answer, answer_to });
            });
            answer.await.map(|answer| answer.map(Either::Left)).map_err(|_| Cut)
        }
        Action::LoseAnswer => {
            let never = shared.send_whoever_waits(request, note, move |_answer, _answer_to| rule.hit());
            let _ = never.await;
            Err(Cut)
        }
    }
}

impl Shared {
    fn note(&self, request: &HttpRequest<Full<Bytes>>) -> Note {
        let mut requests = lock(&self.requests);
        requests.push(Request { method: request.method().to_string(), path: path_of(request).to_owned(), status: None });
        Note { requests: self.requests.clone(), index: requests.len() - 1 }
    }

    fn first_rule(&self, asked: &Asked<'_>) -> Option<(Rule, Action)> {
        lock(&self.rules).iter().find_map(|rule| rule.applies(asked).map(|action| (rule.clone(), action)))
    }

    /// Has the server execute the request even if the client goes away meanwhile, then does `then`. What comes back is
    /// what `then`, or who it gives the sender to, sends; an error if the sender was dropped.
    fn send_whoever_waits(
        &self,
        request: HttpRequest<Full<Bytes>>,
        note: Note,
        then: impl FnOnce(Response<Incoming>, oneshot::Sender<Response<Incoming>>) + Send + 'static,
    ) -> oneshot::Receiver<Response<Incoming>> {
        let (answer_to, answer) = oneshot::channel();
        let upstream = self.upstream.clone();
        lock(&self.errands).spawn(async move {
            if let Ok(answer) = upstream.send(request).await {
                note.answered(answer.status());
                then(answer, answer_to);
            }
        });
        answer
    }
}

/// The server's end of one client connection, opened when first needed and again when the server closed it.
struct Line {
    upstream: Upstream,
    sender: tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Line {
    /// A server that cannot be reached is, to the client, a connection that ends.
    async fn pass(&self, request: HttpRequest<Full<Bytes>>, note: &Note) -> Result<Reply, Cut> {
        let answer = self.send(request).await.map_err(|_| Cut)?;
        note.answered(answer.status());
        Ok(answer.map(Either::Left))
    }

    async fn send(&self, request: HttpRequest<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        let mut sender = self.sender.lock().await;
        let mut open = match sender.take() {
            Some(open) if !open.is_closed() => open,
            Some(_) | None => self.upstream.connect().await?,
        };
        open.ready().await?;
        let mut answer = open.send_request(request).await?;
        *sender = Some(open);
        drop_hop_headers(answer.headers_mut());
        Ok(answer)
    }
}

/// The request as it goes on: read to its end, since no rule could hold or repeat half a request.
async fn onward(request: HttpRequest<Incoming>) -> Result<(HttpRequest<Full<Bytes>>, Bytes), Cut> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    drop_hop_headers(&mut head.headers);
    head.version = Version::HTTP_11;
    head.uri = head.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
    Ok((HttpRequest::from_parts(head, Full::new(body.clone())), body))
}

/// Without the question mark that kube puts where there is no query.
fn path_of(request: &HttpRequest<Full<Bytes>>) -> &str {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    path.trim_end_matches('?')
}

/// These speak about one connection; hyper sets its own for the next.
fn drop_hop_headers(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
}

fn made_up(status: StatusCode, headers: &[(&'static str, String)], body: &serde_json::Value) -> Reply {
    let mut reply = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        reply = reply.header(*name, value);
    }
    reply.body(Either::Right(Full::from(body.to_string()))).expect("a story gives headers that HTTP allows")
}

/// Ends early when the client goes away, as the future is dropped then.
async fn wait_out(duration: Duration) {
    let _ = timeout(duration, pending::<()>()).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds a lock of the proxy")
}
