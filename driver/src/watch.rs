//! What a [`Watcher`] asks is sent, what comes of it is told, and the loop hears of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use resus_core::facts::Source;
use resus_core::input::Input;
use resus_core::mhc::facts::{Access, ClusterKey};
use resus_core::text::Plain;
use resus_k8s::limits;
use resus_k8s::watcher::{Ask, Moved, NO_ACCESS_AGAIN, News, Wanted, Watcher};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{error, info, warn};

use crate::body;
use crate::clusters::Clusters;
use crate::connect;
use crate::pump::{Clock, Heard};
use crate::telemetry::Telemetry;

/// Most of a heartbeat's cost is the wake-up: after one, let the socket fill before reading again.
const FILL_FOR: Duration = Duration::from_millis(20);
/// Nothing for so long: the socket is empty.
const DRAINED_AFTER: Duration = Duration::from_millis(1);
/// Events, and bytes of them, that are handed to the loop together.
const TOGETHER_MAX: usize = 256;
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Messages of one watch that the loop has not taken yet. Who sends faster than we think has to wait: what is under way would
/// take the memory, and its places in the queue, from all others.
const UNREAD_MAX: usize = 2;

/// Whom to ask.
pub enum Server {
    Here(Client),
    Elsewhere(Clusters, ClusterKey, Access),
}

impl Server {
    pub async fn client(&self) -> Result<Client> {
        match self {
            Server::Here(client) => Ok(client.clone()),
            Server::Elsewhere(clusters, cluster, access) => clusters.client(cluster, access).await,
        }
    }
}

/// How what a watch says reaches the loop.
#[derive(Clone)]
pub struct Ear {
    number: u64,
    heard: Sender<Heard>,
    /// For what the loop has not taken yet.
    room: Arc<Semaphore>,
}

impl Ear {
    pub fn new(number: u64, heard: Sender<Heard>) -> Ear {
        Ear { number, heard, room: Arc::new(Semaphore::new(UNREAD_MAX)) }
    }

    /// Never completes once the loop has ended: then this task is about to end, too.
    async fn hear(&self, inputs: Vec<Input>) {
        let room = self.room.clone().acquire_owned().await.ok();
        if self.heard.send(Heard { watch: Some(self.number), inputs, room }).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Never ends by itself; it is aborted when the source is no longer wanted.
pub async fn watch(server: Server, wanted: Wanted, ear: Ear, clock: Clock, telemetry: Arc<Telemetry>) {
    let Server::Elsewhere(_, cluster, _) = &server else {
        return follow(&server, wanted, &ear, clock, &telemetry).await;
    };
    // Whatever one cluster does to us, all others are served.
    loop {
        let caught = telemetry.caught(follow(&server, wanted.clone(), &ear, clock, &telemetry)).await;
        let why = caught.err().unwrap_or_default();
        error!(source = %wanted.source, %why, "a watch was given up, and is begun anew in a while; please report this");
        ear.hear(vec![Input::NoAccess { cluster: cluster.clone(), why: why.into() }]).await;
        tokio::time::sleep(NO_ACCESS_AGAIN).await;
    }
}

async fn follow(server: &Server, wanted: Wanted, ear: &Ear, clock: Clock, telemetry: &Telemetry) {
    let (watcher, moved) = Watcher::begin(wanted, clock.now().mono);
    let mut watch = Watch { server, watcher, ear, clock, telemetry };
    let mut ask = watch.tell(moved).await;
    loop {
        let moved = match ask.take() {
            Some(ask) => watch.ask(ask).await,
            None => watch.wait().await,
        };
        ask = watch.tell(moved).await;
    }
}

struct Watch<'a> {
    server: &'a Server,
    watcher: Watcher,
    ear: &'a Ear,
    clock: Clock,
    telemetry: &'a Telemetry,
}

impl Watch<'_> {
    /// Returns what is to be asked next.
    async fn tell(&self, Moved { inputs, ask, news }: Moved) -> Option<Ask> {
        news.iter().for_each(|news| self.log(news));
        if !inputs.is_empty() {
            self.ear.hear(inputs).await;
        }
        ask
    }

    async fn wait(&mut self) -> Moved {
        match self.watcher.wake_at() {
            Some(at) => tokio::time::sleep_until(self.clock.instant(at).into()).await,
            None => std::future::pending().await,
        }
        self.watcher.on_time(self.now())
    }

    async fn ask(&mut self, ask: Ask) -> Moved {
        let client = self.server.client().await;
        // What the loop, or a connection, made it wait for is no time of the server's.
        self.watcher.on_sent(self.now());
        let until = self.deadline();
        let client = match (client, self.server) {
            (Ok(client), _) => client,
            (Err(error), Server::Elsewhere(_, cluster, _)) => {
                return self.watcher.on_no_access(cluster, &format!("{error:#}"), self.now());
            }
            (Err(error), Server::Here(_)) => return self.watcher.on_lost(&format!("{error:#}"), self.now()),
        };
        let (request, page) = match ask {
            Ask::Page(request, bytes) => (request, Some(bytes)),
            Ask::Watch(request) => (request, None),
        };
        let began = Instant::now();
        let moved = self.answer(&client, request, page, until).await;
        if page.is_some() {
            self.telemetry.took("list", began.elapsed());
        }
        moved
    }

    async fn answer(&mut self, client: &Client, request: Request<Vec<u8>>, page: Option<usize>, until: Instant) -> Moved {
        let response = match timeout_at(until, client.send(request.map(Body::from))).await {
            Err(_) => return self.watcher.on_time(self.now()),
            Ok(Err(error)) => return self.watcher.on_lost(&self.why(error), self.now()),
            Ok(Ok(response)) => response,
        };
        let (head, body) = response.into_parts();
        let moved = self.watcher.on_head(head.status, &head.headers, self.now());
        self.tell(moved).await;
        let most = match (head.status.is_success(), page) {
            (true, None) => return self.read(body).await,
            (true, Some(bytes)) => bytes,
            (false, _) => limits::REFUSAL_MAX,
        };
        match timeout_at(until, body::whole(body, most)).await {
            Err(_) => self.watcher.on_time(self.now()),
            Ok(Ok(Ok(body))) => self.watcher.on_body(&body, self.now()),
            // Of a refusal its code is enough.
            Ok(Err(_)) if !head.status.is_success() => self.watcher.on_body(&[], self.now()),
            Ok(Err(too_large)) => self.watcher.on_too_large(too_large.to_string(), self.now()),
            Ok(Ok(Err(error))) => self.watcher.on_lost(&self.why(error), self.now()),
        }
    }

    /// A watch that is open, to its end.
    async fn read(&mut self, body: Body) -> Moved {
        let is_of_nodes = matches!(self.watcher.source(), Source::Nodes | Source::RemoteNodes(_));
        let mut body = body.into_data_stream();
        loop {
            let (mut together, mut bytes) = (Moved::default(), 0);
            // Waits for something, then takes all that has come meanwhile: each wake-up costs more than reading an event.
            let is_drained = loop {
                let next = match bytes {
                    0 => timeout_at(self.deadline(), body.next()).await,
                    _ => timeout(DRAINED_AFTER, body.next()).await,
                };
                let moved = match next {
                    Ok(Some(Ok(chunk))) => {
                        bytes += chunk.len();
                        self.watcher.on_bytes(&chunk, self.now())
                    }
                    Ok(Some(Err(_)) | None) => self.watcher.on_close(self.now()),
                    Err(_) if bytes == 0 => self.watcher.on_time(self.now()),
                    Err(_) => break true,
                };
                together.inputs.extend(moved.inputs);
                together.news.extend(moved.news);
                together.ask = moved.ask;
                if !self.watcher.is_following() {
                    return together;
                }
                if together.inputs.len() >= TOGETHER_MAX || bytes >= TOGETHER_BYTES_MAX {
                    break false;
                }
            };
            self.tell(together).await;
            if is_drained && is_of_nodes {
                tokio::time::sleep(FILL_FOR).await;
            }
        }
    }

    fn now(&self) -> resus_core::time::Mono {
        self.clock.now().mono
    }

    fn deadline(&self) -> Instant {
        self.watcher.wake_at().map_or_else(Instant::now, |at| self.clock.instant(at).into())
    }

    /// Of other servers nothing is repeated.
    fn why(&self, error: kube::Error) -> String {
        match self.server {
            Server::Here(_) => format!("{:#}", anyhow::Error::new(error)),
            Server::Elsewhere(..) => connect::why(&error),
        }
    }

    fn log(&self, news: &News) {
        let source = self.watcher.source();
        match news {
            News::Listed { objects } => info!(%source, objects, "listed"),
            News::Smaller { page, why } => info!(%source, why = %Plain(why), page, "asking for less at once"),
            News::Polled { every, why } => warn!(%source, ?every, why, "may not be watched; listed instead"),
            News::Ended => self.telemetry.restarted(source),
            News::Trouble { why } => warn!(%source, why, "cannot be watched; trying again"),
            News::NoAccess { why } => warn!(%source, why, "cannot be watched with this kubeconfig; it is tried again in a while"),
            News::TooMuch { why } => error!(%source, why, "there is more than we take; it is listed again in a while"),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use http::Response;
    use resus_k8s::names::Places;
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
        let source = Source::RemoteNodes(cluster.clone());
        let places = Arc::new(Places::new("resus"));
        let wanted = Wanted { source, served: None, keep: Arc::default(), places, chance: 7 };
        let telemetry = Arc::new(Telemetry::new());
        let (sender, mut heard) = mpsc::channel(8);
        let server = Server::Elsewhere(clusters, cluster.clone(), access);
        let task = tokio::spawn(watch(server, wanted, Ear::new(7, sender), Clock::start(), telemetry.clone()));
        let first = heard.recv().await.expect("it lists first");
        assert!(matches!(&first.inputs[..], [Input::Listing(_)]));
        let Heard { watch: Some(7), inputs, .. } = heard.recv().await.expect("it lives on") else { panic!("of watch 7") };
        let [Input::NoAccess { cluster: lost, why }] = &inputs[..] else { panic!("{inputs:?}") };
        assert_eq!((lost, &**why), (&cluster, "a mistake in this program: on two lines"));
        assert!(telemetry.metrics().contains("resus_task_panics_total 1"));
        assert!(!task.is_finished());
        task.abort();
    }
}
