//! How do we learn what is in the cluster, and notice when we do not?
//!
//! List, then watch from there; go on from the last version after a break, and list again when that
//! version is too old or the resumed watch stays silent. Every break is told, so that nothing is decided
//! on what may be out of date.

use std::hash::{BuildHasher as _, RandomState};
use std::io::BufRead as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use resus_core::facts::{Served, Source};
use resus_core::input::Input;
use resus_core::mhc::facts::{Access, ClusterKey};
use resus_core::text::Plain;
use resus_core::world::STALE_AFTER;
use resus_k8s::answer;
use resus_k8s::feed::{self, Line};
use resus_k8s::limits::{self, Limits, PAGE, PAGE_MIN, Taken, TooMuch};
use resus_k8s::names::Places;
use resus_k8s::observe::{ApiStatus, Keep};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::body::{self, TooLarge};
use crate::clusters::Clusters;
use crate::connect;
use crate::pump::{Clock, Heard};
use crate::telemetry::Telemetry;

/// A kubeconfig that cannot be used is tried again after this: a name may lead elsewhere by then, and files may be opened again.
const NO_ACCESS_AGAIN: Duration = Duration::from_secs(300);
/// For the head of an answer, and for a page of a list.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Busy clusters send an event at once; where a resumed watch is silent, a list is small and brings certainty.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Most of a heartbeat's cost is the wake-up: after one, let the socket fill before reading again.
const FILL_FOR: Duration = Duration::from_millis(20);
/// Where lists are all that we may have.
const POLL_EVERY: Duration = Duration::from_secs(15);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Where more is there than we take: somebody has to look at it first.
const TOO_MUCH_AGAIN: Duration = Duration::from_secs(60);

/// A watch that lived for so long was a good one: the next attempt need not wait.
const LIVED_FOR: Duration = Duration::from_secs(5);
/// Nothing for so long: the socket is empty.
const DRAINED_AFTER: Duration = Duration::from_millis(1);
/// Events, and bytes of them, that are handed to the loop together.
const TOGETHER_MAX: usize = 256;
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Messages of one watch that the loop has not taken yet. Who sends faster than we think has to wait: what is under way would
/// take the memory, and its places in the queue, from all others.
const UNREAD_MAX: usize = 2;

/// What is to be watched, and how.
#[derive(Clone)]
pub struct Wanted {
    pub clock: Clock,
    pub source: Source,
    pub served: Option<Served>,
    pub keep: Arc<Keep>,
    pub places: Arc<Places>,
}

/// Whom to ask.
pub enum Server {
    Here(Client),
    Elsewhere(Clusters, ClusterKey, Access),
}

impl Server {
    pub async fn client(self) -> Result<Client> {
        match self {
            Server::Here(client) => Ok(client),
            Server::Elsewhere(clusters, cluster, access) => clusters.client(&cluster, &access).await,
        }
    }

    /// None: it is our own.
    pub fn access(&self) -> Option<&Access> {
        match self {
            Server::Here(_) => None,
            Server::Elsewhere(_, _, access) => Some(access),
        }
    }
}

/// Never ends by itself; it is aborted when the source is no longer wanted.
pub async fn watch(server: Server, what: Wanted, number: u64, heard: Sender<Heard>, telemetry: Arc<Telemetry>) {
    let ear = Ear { number, heard, room: Arc::new(Semaphore::new(UNREAD_MAX)) };
    let (clusters, cluster, access) = match server {
        Server::Here(client) => loop {
            let TooMuch(why) = follow(client.clone(), what.clone(), false, ear.clone(), telemetry.clone()).await;
            error!(source = %what.source, why, "there is more than we take; it is listed again in a while");
            tokio::time::sleep(TOO_MUCH_AGAIN).await;
        },
        Server::Elsewhere(clusters, cluster, access) => (clusters, cluster, access),
    };
    let source = what.source.clone();
    loop {
        let watched = async {
            match clusters.client(&cluster, &access).await {
                Ok(client) => {
                    let TooMuch(why) = follow(client, what.clone(), true, ear.clone(), telemetry.clone()).await;
                    Input::TooMuch { cluster: cluster.clone(), why: why.into() }
                }
                Err(error) => Input::NoAccess { cluster: cluster.clone(), why: Plain(&format!("{error:#}")).to_string().into() },
            }
        };
        // Whatever one cluster does to us, all others are served.
        let caught = telemetry.caught(watched).await;
        let input = caught.unwrap_or_else(|why| Input::NoAccess { cluster: cluster.clone(), why: why.into() });
        let is_refused = matches!(input, Input::NoAccess { .. });
        match &input {
            Input::NoAccess { why, .. } => {
                warn!(%source, %why, "cannot be watched with this kubeconfig; it is tried again in a while");
            }
            Input::TooMuch { why, .. } => warn!(%source, %why, "there is more than we take; it is listed again in a while"),
            _ => {}
        }
        ear.hear(vec![input]).await;
        if !is_refused {
            // Whoever hears of it ends this watch, and begins another in time.
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(NO_ACCESS_AGAIN).await;
    }
}

/// How what a watch says reaches the loop.
#[derive(Clone)]
struct Ear {
    number: u64,
    heard: Sender<Heard>,
    /// For what the loop has not taken yet.
    room: Arc<Semaphore>,
}

impl Ear {
    /// None: the loop has ended.
    async fn hear(&self, inputs: Vec<Input>) -> Option<()> {
        let room = self.room.clone().acquire_owned().await.ok()?;
        self.heard.send(Heard { watch: Some(self.number), inputs, room: Some(room) }).await.ok()
    }
}

/// Ends only where there is too much.
async fn follow(client: Client, what: Wanted, elsewhere: bool, ear: Ear, telemetry: Arc<Telemetry>) -> TooMuch {
    let Wanted { clock, source, served, keep, places } = what;
    let (limits, page) = (limits::of(&source), PAGE);
    let mut watch = Watch {
        clock,
        client,
        source,
        served,
        keep,
        places,
        elsewhere,
        ear,
        limits,
        page,
        telemetry,
        told: false,
        polled: false,
    };
    let mut next = Next::List;
    let mut backoff = BACKOFF_MIN;
    loop {
        let began = Instant::now();
        let done = match &next {
            Next::List => watch.list().await,
            Next::Watch { version, resumed } => watch.follow(version.clone(), *resumed).await,
        };
        let was_list = matches!(next, Next::List);
        if !was_list && !watch.polled {
            watch.telemetry.restarted(&watch.source);
        }
        next = match done {
            Ok(after) => after,
            Err(error) => {
                let error = match error.downcast::<TooMuch>() {
                    Ok(too_much) => return too_much,
                    Err(error) => error,
                };
                watch.report(&error);
                match next {
                    Next::List => Next::List,
                    Next::Watch { version, .. } => Next::Watch { version, resumed: true },
                }
            }
        };
        // Straight from a list to its watch; everything else waits, the longer the more often it fails.
        if was_list && matches!(next, Next::Watch { .. }) {
            continue;
        }
        if began.elapsed() >= LIVED_FOR {
            backoff = BACKOFF_MIN;
        }
        tokio::time::sleep(spread(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Watches that broke together do not all come back in the same moment.
fn spread(pause: Duration) -> Duration {
    let chance = RandomState::new().hash_one(()) % 1000;
    pause.mul_f64(0.5 + chance as f64 / 2000.0)
}

enum Next {
    /// Left when the list is complete.
    List,
    /// Left when the watch ends, expires, or stays silent after being resumed.
    Watch { version: String, resumed: bool },
}

struct Watch {
    clock: Clock,
    client: Client,
    source: Source,
    served: Option<Served>,
    keep: Arc<Keep>,
    places: Arc<Places>,
    /// On a server of others, of which nothing is repeated.
    elsewhere: bool,
    ear: Ear,
    limits: Limits,
    /// Objects to be asked for at once.
    page: u32,
    telemetry: Arc<Telemetry>,
    /// The trouble has been logged; its repetitions are not.
    told: bool,
    polled: bool,
}

impl Watch {
    async fn list(&mut self) -> Result<Next> {
        self.input(Input::Listing(self.source.clone())).await?;
        let mut page: Option<String> = None;
        let mut taken = Taken::default();
        // What was too large for a slow moment is tried again in the next list.
        self.page = (self.page * 2).min(PAGE);
        loop {
            let body = match self.page(page.as_deref()).await? {
                Ok(body) => body,
                // The list took so long that its snapshot is gone: begin again.
                Err(status) if status.code == 410 && page.is_some() => return Ok(Next::List),
                Err(status) => return self.refused(&status).await,
            };
            let read = feed::read_page(&self.source, &self.keep, &body).context("the list cannot be read")?;
            taken.page(&self.limits, read.inputs.len(), body.len())?;
            self.inputs(read.inputs).await?;
            match read.next {
                Some(next) => page = Some(next),
                None => {
                    self.input(Input::Listed(self.source.clone())).await?;
                    self.told = false;
                    if !self.polled {
                        info!(source = %self.source, objects = taken.objects, "listed");
                    }
                    return Ok(Next::Watch { version: read.version, resumed: false });
                }
            }
        }
    }

    /// What is too large for us, or for a slow link, is asked for again in halves, from where it began.
    async fn page(&mut self, from: Option<&str>) -> Result<Result<Bytes, ApiStatus>> {
        loop {
            let request = feed::list(&self.source, self.served.as_ref(), &self.places, from, self.page)?;
            let began = Instant::now();
            let answer = timeout(ANSWER_WITHIN, self.whole(request)).await;
            self.telemetry.took("list", began.elapsed());
            let why = match answer {
                Ok(Err(error)) if error.is::<TooLarge>() => error,
                Ok(answer) => return answer,
                Err(_) => anyhow!("no answer in time"),
            };
            if self.page <= PAGE_MIN {
                return Err(why);
            }
            self.page = (self.page / 2).max(PAGE_MIN);
            info!(source = %self.source, %why, page = self.page, "asking for less at once");
        }
    }

    async fn follow(&mut self, mut version: String, resumed: bool) -> Result<Next> {
        let request = match feed::watch(&self.source, self.served.as_ref(), &self.places, &version) {
            Ok(request) => request,
            // Another list may have a version that can be asked for.
            Err(error) => {
                self.broken().await?;
                self.report(&error.into());
                return Ok(Next::List);
            }
        };
        let opened = timeout(ANSWER_WITHIN, self.open(request)).await;
        let mut body = match opened.context("no answer in time").flatten() {
            Ok(Ok(body)) => body,
            // The list before it is as good as ever; there will be another soon.
            Ok(Err(status)) if status.code == 410 => return Ok(Next::List),
            // Roles of many providers lack this one verb: what may be listed is listed often.
            Ok(Err(status)) if status.code == 403 && matches!(self.source, Source::Objects(_)) => {
                self.input(Input::Polled(self.source.clone())).await?;
                if !std::mem::replace(&mut self.polled, true) {
                    let why = self.explain(&status);
                    warn!(source = %self.source, every = ?POLL_EVERY, why, "may not be watched; listed instead");
                }
                tokio::time::sleep(POLL_EVERY).await;
                return Ok(Next::List);
            }
            Ok(Err(status)) => {
                self.broken().await?;
                return self.refused(&status).await;
            }
            Err(error) => {
                self.broken().await?;
                return Err(error);
            }
        };
        let mut buffer = Vec::new();
        let mut heard = false;
        loop {
            let patience = if heard || !resumed { STALE_AFTER } else { SILENCE_MAX };
            let Batch { inputs, newest, end } = self.gather(&mut body, &mut buffer, patience).await;
            heard |= newest.is_some();
            version = newest.unwrap_or(version);
            self.inputs(inputs).await?;
            match end {
                End::Full => continue,
                End::Drained if matches!(self.source, Source::Nodes | Source::RemoteNodes(_)) => {
                    tokio::time::sleep(FILL_FOR).await;
                }
                End::Drained => continue,
                End::Closed => {
                    self.broken().await?;
                    return Ok(Next::Watch { version, resumed: true });
                }
                End::Silent => {
                    self.broken().await?;
                    return Ok(Next::List);
                }
                // As above: nothing came after the list, but nothing was missed either.
                End::Trouble(Trouble::Expired) if !resumed && !heard => return Ok(Next::List),
                End::Trouble(trouble) => {
                    self.broken().await?;
                    match trouble {
                        Trouble::Expired => {}
                        Trouble::Refused(status) => self.report(&anyhow::Error::msg(self.explain(&status))),
                        Trouble::Garbage(error) => self.report(&error),
                    }
                    return Ok(Next::List);
                }
            }
        }
    }

    /// Waits for something, then takes all that has come meanwhile: each wake-up costs more than reading an event.
    async fn gather(
        &self,
        body: &mut (impl Stream<Item = kube::Result<Bytes>> + Unpin),
        buffer: &mut Vec<u8>,
        patience: Duration,
    ) -> Batch {
        let mut batch = Batch { inputs: Vec::new(), newest: None, end: End::Full };
        let mut bytes = 0;
        while batch.inputs.len() < TOGETHER_MAX && bytes < TOGETHER_BYTES_MAX {
            let wait = if batch.inputs.is_empty() { patience } else { DRAINED_AFTER };
            let chunk = match timeout(wait, body.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(_)) | None) => return Batch { end: End::Closed, ..batch },
                Err(_) if batch.inputs.is_empty() => return Batch { end: End::Silent, ..batch },
                Err(_) => return Batch { end: End::Drained, ..batch },
            };
            bytes += chunk.len();
            buffer.extend_from_slice(&chunk);
            // To look through all of a line again with each of its bytes would keep us busy.
            if !chunk.contains(&b'\n') && buffer.len() <= limits::LINE_MAX {
                continue;
            }
            match self.lines(buffer, &mut batch.inputs) {
                Ok(newest) => batch.newest = newest.or(batch.newest),
                Err(trouble) => return Batch { end: End::Trouble(trouble), ..batch },
            }
        }
        batch
    }

    /// Takes all whole lines out of the buffer; returns the version after the last of them.
    fn lines(&self, buffer: &mut Vec<u8>, inputs: &mut Vec<Input>) -> Result<Option<String>, Trouble> {
        let (mut begin, mut newest) = (0, None);
        while let Some(line) = whole_line(&buffer[begin..]) {
            begin += line.len() + 1;
            match feed::read_line(&self.source, &self.keep, line) {
                Ok(Line::Input(input, version)) => {
                    inputs.push(input);
                    newest = version.or(newest);
                }
                Ok(Line::Expired) => return Err(Trouble::Expired),
                Ok(Line::Error(status)) => return Err(Trouble::Refused(status)),
                // Nothing can be said about it, not even its name; a list will show what there is.
                Err(error) => {
                    return Err(Trouble::Garbage(anyhow::Error::new(error).context("a line of the watch cannot be read")));
                }
            }
        }
        buffer.drain(..begin);
        match buffer.len() > limits::LINE_MAX {
            true => {
                let why = anyhow!("a line of the watch is longer than {} bytes", limits::LINE_MAX);
                Err(Trouble::Garbage(why))
            }
            false => {
                // A long line is rare, and the room for it is not kept.
                buffer.shrink_to(TOGETHER_BYTES_MAX);
                Ok(newest)
            }
        }
    }

    /// The server is there and says no. What we knew of versions may be wrong too: after a pause, list.
    async fn refused(&mut self, status: &ApiStatus) -> Result<Next> {
        match status.code {
            404 => self.input(Input::NotServed(self.source.clone())).await?,
            403 => self.input(Input::Forbidden(self.source.clone())).await?,
            _ => {}
        }
        self.report(&anyhow::Error::msg(self.explain(status)));
        Ok(Next::List)
    }

    async fn whole(&self, request: Request<Vec<u8>>) -> Result<Result<Bytes, ApiStatus>> {
        let (code, body) = self.send(request).await?;
        match code.is_success() {
            true => Ok(Ok(body::whole(body, self.limits.page_bytes).await?.map_err(|error| self.why(error))?.into())),
            false => self.refusal(code, body).await.map(Err),
        }
    }

    async fn open(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Result<impl Stream<Item = kube::Result<Bytes>> + Unpin + use<>, ApiStatus>> {
        let (code, body) = self.send(request).await?;
        match code.is_success() {
            true => Ok(Ok(body.into_data_stream())),
            false => self.refusal(code, body).await.map(Err),
        }
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<(StatusCode, Body)> {
        let sent_at = self.clock.now().mono;
        let response = self.client.send(request.map(Body::from)).await.map_err(|error| self.why(error))?;
        let cluster = match &self.source {
            Source::RemoteNodes(cluster) | Source::RemoteEtcd(cluster) => Some(cluster.clone()),
            _ => None,
        };
        // What the head of the answer says of the server's clock is heard before anything that is dated by it. Objects of
        // providers may be served by somebody else.
        let tells_time = !matches!(self.source, Source::Objects(_));
        if let Some(dated) = answer::dated(response.headers(), cluster, sent_at).filter(|_| tells_time) {
            self.input(dated).await?;
        }
        Ok((response.status(), response.into_body()))
    }

    async fn refusal(&self, code: StatusCode, body: Body) -> Result<ApiStatus> {
        let body = body::whole(body, limits::REFUSAL_MAX).await.unwrap_or_else(|_| Ok(Vec::new()));
        Ok(api_status(code, &body.map_err(|error| self.why(error))?))
    }

    fn why(&self, error: kube::Error) -> anyhow::Error {
        match self.elsewhere {
            true => anyhow!(connect::why(&error)),
            false => error.into(),
        }
    }

    async fn broken(&self) -> Result<()> {
        self.input(Input::Broken(self.source.clone())).await
    }

    async fn input(&self, input: Input) -> Result<()> {
        self.inputs(vec![input]).await
    }

    async fn inputs(&self, inputs: Vec<Input>) -> Result<()> {
        self.ear.hear(inputs).await.context("the loop has ended")
    }

    fn explain(&self, status: &ApiStatus) -> String {
        if self.elsewhere {
            return match status.code {
                403 => "let the user of its kubeconfig list and watch this (403)".into(),
                401 => "the credentials of its kubeconfig are not accepted (401)".into(),
                code => StatusCode::from_u16(code).map_or_else(|_| code.to_string(), |code| code.to_string()),
            };
        }
        let what_to_do = match (&self.source, status.code) {
            (Source::Checks, 404) => ": apply deploy/crds",
            (_, 403) => ": grant list and watch on it (deploy/rbac.yaml has what is needed)",
            (_, 401) => ": the credentials are not accepted",
            _ => "",
        };
        format!("{} ({}){what_to_do}", Plain(&status.message), status.code)
    }

    fn report(&mut self, error: &anyhow::Error) {
        if !std::mem::replace(&mut self.told, true) {
            warn!(source = %self.source, why = %Plain(&format!("{error:#}")), "cannot be watched; trying again");
        }
    }
}

/// What a watch said at one go.
struct Batch {
    inputs: Vec<Input>,
    /// The version after the last of them.
    newest: Option<String>,
    end: End,
}

/// Why it was not more.
enum End {
    Full,
    Drained,
    /// Nothing came at all.
    Silent,
    Closed,
    Trouble(Trouble),
}

/// Why a watch that was open is of no more use.
enum Trouble {
    Expired,
    Refused(ApiStatus),
    Garbage(anyhow::Error),
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

#[cfg(test)]
pub mod tests {
    use http::Response;
    use tokio::sync::mpsc;

    use super::*;
    use crate::connect::Trust;

    /// A client whose every request panics in the task that sends it.
    pub fn mistaken() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let method = request.method();
            assert!(method == http::Method::OPTIONS, "on two\nlines");
            Ok::<Response<Body>, kube::Error>(Response::new(Body::empty()))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_panic_in_the_watch_of_a_workload_cluster_is_a_loss_of_access() {
        let cluster = ClusterKey { namespace: "ns".into(), name: "blue".into() };
        let access = Access("kubeconfig".into());
        let clusters = Clusters::new(Trust::Anything);
        clusters.keep(&cluster, &access, mistaken());
        let wanted = Wanted {
            clock: Clock::start(),
            source: Source::RemoteNodes(cluster.clone()),
            served: None,
            keep: Arc::default(),
            places: Arc::new(Places::new("resus")),
        };
        let telemetry = Arc::new(Telemetry::new());
        let (sender, mut heard) = mpsc::channel(8);
        let server = Server::Elsewhere(clusters, cluster.clone(), access);
        let task = tokio::spawn(watch(server, wanted, 7, sender, telemetry.clone()));
        let first = heard.recv().await.expect("it lists first");
        assert!(matches!(&first.inputs[..], [Input::Listing(_)]));
        let Heard { watch: Some(7), inputs, .. } = heard.recv().await.expect("it lives on") else { panic!("of watch 7") };
        let [Input::NoAccess { cluster: lost, why }] = &inputs[..] else { panic!("{inputs:?}") };
        assert_eq!((lost, &**why), (&cluster, "a mistake in this program: on two lines"));
        assert!(telemetry.metrics().contains("resus_task_panics_total 1"));
        assert!(!task.is_finished());
        task.abort();
    }

    /// What is too large for us is asked for in halves, from where it began, and in larger pieces again in the next list.
    #[tokio::test]
    async fn pages_get_smaller_until_they_fit() {
        let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let body = match query.as_str() {
                "limit=100" => r#"{"metadata": {"continue": "here"}, "items": []}"#.to_owned(),
                query if query.starts_with("limit=100") || query.starts_with("limit=50") => " ".repeat(5 << 20),
                _ => r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#.to_owned(),
            };
            seen.lock().expect("nobody panics").push(query);
            async move { Ok::<Response<Body>, kube::Error>(Response::new(Body::from(body.into_bytes()))) }
        });
        let source = Source::RemoteNodes(ClusterKey { namespace: "ns".into(), name: "blue".into() });
        let (sender, _heard) = mpsc::channel(8);
        let mut watch = Watch {
            clock: Clock::start(),
            telemetry: Arc::default(),
            client: Client::new(service, "default"),
            limits: limits::of(&source),
            source,
            served: None,
            keep: Arc::default(),
            places: Arc::new(Places::new("resus")),
            elsewhere: true,
            ear: Ear { number: 1, heard: sender, room: Arc::new(Semaphore::new(8)) },
            page: PAGE,
            told: false,
            polled: false,
        };
        let next = watch.list().await.expect("the last of them fits");
        assert!(matches!(next, Next::Watch { version, .. } if version == "7"));
        let asked = asked.lock().expect("nobody panics").clone();
        assert_eq!(asked, ["limit=100", "limit=100&continue=here", "limit=50&continue=here", "limit=25&continue=here"]);
        assert_eq!(watch.page, 25);
    }
}
