//! The embedded API server over HTTPS, for kubectl and everything else that speaks to Kubernetes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use resus_apiserver::{Reply, Server, Watch};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Whoever holds more connections than this waits.
const CONNECTIONS_MAX: usize = 4096;
/// For the TLS handshake and for the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// When nothing changes; deleted namespaces wait for their time.
const TEND_EACH: Duration = Duration::from_secs(1);
/// A little more than the server takes itself, so that it is the server who refuses.
const BODY_MAX: usize = 4 << 20;
/// Bodies that are being read, 256 MiB of them at the most; further ones wait.
const BODIES_MAX: usize = 64;
/// For the body of a request: at 1 Mbit/s the largest takes 34 s.
const BODY_WITHIN: Duration = Duration::from_secs(40);
/// Lines of a watch that wait for a slow reader.
const LINES_MAX: usize = 16;

/// A server that tasks share, and its version for those who wait for changes.
#[derive(Clone)]
pub struct Shared {
    server: Arc<Mutex<Server>>,
    version: watch::Sender<u64>,
    bodies: Arc<Semaphore>,
}

/// Where and as whom to reach it.
pub struct Front {
    listener: TcpListener,
    tls: TlsAcceptor,
    kubeconfig: String,
    pub url: String,
}

impl Shared {
    pub fn new(server: Server) -> Shared {
        let version = watch::Sender::new(server.version());
        Shared { server: Arc::new(Mutex::new(server)), version, bodies: Arc::new(Semaphore::new(BODIES_MAX)) }
    }

    /// Does something with the server, and tells all who wait if that changed anything.
    pub fn with<T>(&self, work: impl FnOnce(&mut Server) -> T) -> T {
        let (done, version) = {
            let mut server = self.lock();
            (work(&mut server), server.version())
        };
        self.version.send_if_modified(|known| std::mem::replace(known, version) != version);
        done
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        // A panic in one request must not end the others: the store is changed by single calls.
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never ends: does what Kubernetes' own controllers do, whenever something has changed.
    pub async fn tend(self) {
        let mut changes = self.version.subscribe();
        loop {
            while self.with(|server| server.tend(Timestamp::now())) {}
            // Some things end only after a while.
            if let Ok(Err(_)) = tokio::time::timeout(TEND_EACH, changes.changed()).await {
                return;
            }
        }
    }
}

impl Front {
    /// `token` is the admin's.
    pub async fn bind(address: SocketAddr, token: &str) -> Result<Front> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let local = listener.local_addr()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), local.ip().to_string()];
        let certified = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)?;
        // An address that means "all of them" cannot be called.
        let host = if local.ip().is_unspecified() { "127.0.0.1".to_owned() } else { local.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let url = format!("https://{host}:{}", local.port());
        let ca = base64::engine::general_purpose::STANDARD.encode(certified.cert.pem());
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "resus",
            "clusters": [{"name": "resus", "cluster": {"server": url, "certificate-authority-data": ca}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "resus", "context": {"cluster": "resus", "user": "admin"}}],
        });
        Ok(Front { listener, tls: TlsAcceptor::from(Arc::new(config)), kubeconfig: serde_saphyr::to_string(&kubeconfig)?, url })
    }

    /// Appears whole, or not at all: who waits for the file may read it at once. It holds a token, so only its owner may read it.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().and_then(|name| name.to_str()).context("the kubeconfig needs a file name")?;
        // Nobody can have put a file or a link of this name there before.
        let draft = folder.join(format!(".{name}.{}", secret()));
        let write = || -> Result<()> {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(self.kubeconfig.as_bytes())?;
            std::fs::rename(&draft, path)?;
            Ok(())
        };
        write().with_context(|| {
            let _ = std::fs::remove_file(&draft);
            format!("cannot write the kubeconfig {}", path.display())
        })
    }

    /// Serves until it is aborted.
    pub async fn serve(self, shared: Shared) -> Result<()> {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            while connections.try_join_next().is_some() {}
            let socket = match self.listener.accept().await {
                Ok((socket, _)) => socket,
                // A peer that went away, or no more file handles: neither is a reason to stop.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            connections.spawn(connection(socket, self.tls.clone(), shared.clone()));
        }
    }
}

async fn connection(socket: TcpStream, tls: TlsAcceptor, shared: Shared) {
    let _ = socket.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD_WITHIN, tls.accept(socket)).await else { return };
    converse(stream, shared, BODY_WITHIN).await;
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Shared, body_within: Duration) {
    let service = service_fn(|request| answer(request, shared.clone(), body_within));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    // An error here is the peer's: it hung up in the middle of a request.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Shared,
    body_within: Duration,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (parts, body) = request.into_parts();
    let refuse = |status, why: &'static str| {
        let mut refused = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
        *refused.status_mut() = status;
        Ok(refused)
    };
    let body = match tokio::time::timeout(body_within, read(body, &shared.bodies)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or broke off\n"),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body took too long\n"),
    };
    let reply = shared.with(|server| server.handle(Timestamp::now(), Request::from_parts(parts, body)));
    Ok(match reply {
        Reply::Answer(answer) => answer.map(|body| Full::new(Bytes::from(body)).boxed()),
        Reply::Watch(watch) => {
            let (lines, body) = mpsc::channel(LINES_MAX);
            tokio::spawn(follow(watch, shared, lines));
            let frames = body.map(|line: Bytes| Ok(Frame::data(line)));
            let mut response = Response::new(http_body_util::BodyExt::boxed(StreamBody::new(frames)));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    })
}

async fn read(body: Incoming, bodies: &Semaphore) -> Result<Vec<u8>> {
    if body.is_end_stream() {
        return Ok(Vec::new());
    }
    let _place = bodies.acquire().await?;
    let read = Limited::new(body, BODY_MAX).collect().await.map_err(|why| anyhow::anyhow!(why))?;
    Ok(read.to_bytes().to_vec())
}

/// Ends when the watch does, or when the reader has gone.
async fn follow(mut watch: Watch, shared: Shared, mut lines: mpsc::Sender<Bytes>) {
    let mut changes = shared.version.subscribe();
    loop {
        changes.mark_unchanged();
        let followed = shared.lock().follow(Timestamp::now(), &mut watch);
        let is_more = !followed.lines.is_empty();
        for line in followed.lines {
            if lines.send(line).await.is_err() {
                return;
            }
        }
        if followed.ended {
            return;
        }
        if is_more {
            continue;
        }
        let wait = Duration::try_from(watch.wakes_at().duration_since(Timestamp::now())).unwrap_or_default();
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
            () = closed(&mut lines) => return,
        }
    }
}

/// Completes when nobody reads any more.
async fn closed(lines: &mut mpsc::Sender<Bytes>) {
    std::future::poll_fn(|context| match lines.poll_ready(context) {
        std::task::Poll::Ready(Err(_)) => std::task::Poll::Ready(()),
        _ => std::task::Poll::Pending,
    })
    .await;
}

/// 128 bits that nobody else on this machine should guess, as text.
pub fn secret() -> String {
    let mut bytes = [0; 16];
    let drawn = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    drawn.expect("where the operating system has no randomness, nothing can be served over TLS either");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_body_that_never_ends_is_given_up() {
        let shared = Shared::new(Server::new(1, Timestamp::UNIX_EPOCH));
        let (mut client, server) = tokio::io::duplex(4096);
        tokio::spawn(converse(server, shared.clone(), Duration::from_millis(50)));
        let head = "POST /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
        client.write_all(head.as_bytes()).await.expect("it listens");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.expect("it answers");
        assert_eq!(&answer, b"HTTP/1.1 408");
        assert_eq!(shared.bodies.available_permits(), BODIES_MAX);
    }

    #[tokio::test]
    async fn so_many_bodies_are_read_at_a_time_and_the_others_wait() {
        let shared = Shared::new(Server::new(1, Timestamp::UNIX_EPOCH));
        let head = b"POST /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n";
        let begin = || async {
            let (mut client, server) = tokio::io::duplex(4096);
            tokio::spawn(converse(server, shared.clone(), Duration::from_secs(3600)));
            client.write_all(head).await.expect("it listens");
            client
        };
        let mut clients = Vec::new();
        for _ in 0..BODIES_MAX {
            clients.push(begin().await);
        }
        while shared.bodies.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let mut last = begin().await;
        last.write_all(b"{}").await.expect("it listens");
        let mut answer = [0; 8];
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(futures::poll!(std::pin::pin!(last.read_exact(&mut answer))).is_pending(), "all places are taken");
        drop(clients.pop());
        last.read_exact(&mut answer).await.expect("it answers");
        assert_eq!(&answer, b"HTTP/1.1");
    }

    #[test]
    fn secrets_differ() {
        let (one, other) = (secret(), secret());
        assert!(one != other && one.len() == 32, "{one}, {other}");
    }

    #[tokio::test]
    async fn a_kubeconfig_goes_where_no_link_leads() {
        let folder = tempfile::tempdir().expect("a folder");
        let front = Front::bind("127.0.0.1:0".parse().expect("an address"), "token").await.expect("a free port");
        let path = folder.path().join("config");
        for _ in 0..2 {
            front.write_kubeconfig(&path).expect("it can be written");
            assert_eq!(std::fs::read_to_string(&path).expect("it is there"), front.kubeconfig);
        }
        let entries = std::fs::read_dir(folder.path()).expect("the folder is there").count();
        assert_eq!(entries, 1, "nothing is left beside it");
        let folder_as_file = folder.path().join("folder");
        std::fs::create_dir(&folder_as_file).expect("a folder");
        front.write_kubeconfig(&folder_as_file).expect_err("a folder is no file");
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 2, "no draft is left either");
    }
}
