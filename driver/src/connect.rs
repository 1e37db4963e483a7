//! How is an API server connected to, and what becomes of connections on which nobody answers?
//!
//! Idle connections outlive the server that they lead to when it dies without a word, and each request would find the next of
//! them. So few are kept, and not for long; the kernel gives up what is not acknowledged; and after a request that nobody
//! answered none of those that lay idle then is used again.

use std::error::Error as StdError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use resus_core::plan::REQUESTS_MAX;
use rustls::CertificateError;
use tower::{BoxError, Service, ServiceExt as _};

/// The loop has its own patience; TLS included.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// What was sent and is not acknowledged for so long never will be.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);
/// A watch that says nothing is asked by the kernel whether it lives, well before we would call it stale.
const PROBED_AFTER: Duration = Duration::from_secs(15);
const PROBED_EACH: Duration = Duration::from_secs(5);
/// The lease is renewed each two seconds; whatever else comes back sooner than this is a part of the same storm.
const IDLE_FOR: Duration = Duration::from_secs(15);
/// As many as can be under way at once.
const IDLE_MAX: usize = REQUESTS_MAX;

/// How far do we follow an address that somebody else wrote?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Wherever it leads.
    Anything,
    /// Over TLS that is verified, and not to what only this host can reach: itself, and what answers on link-local addresses,
    /// such as the metadata of clouds, with the credentials of this host.
    Remote,
    /// Likewise, but our own API server is on this host, too.
    RemoteOrLoopback,
}

impl Trust {
    pub fn refusal(self, address: IpAddr) -> Option<Refusal> {
        let address = address.to_canonical();
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        match self {
            Trust::Anything => None,
            Trust::Remote | Trust::RemoteOrLoopback if is_link_local => Some(Refusal("its address is link-local")),
            // Who connects to no address at all arrives here.
            Trust::Remote if address.is_loopback() || address.is_unspecified() => Some(Refusal("its address is this host")),
            Trust::Remote | Trust::RemoteOrLoopback => None,
        }
    }
}

/// Why an address is not dialled.
#[derive(Debug, thiserror::Error)]
#[error("{0}, which is refused without --allow-insecure-workload-clusters")]
pub struct Refusal(&'static str);

#[derive(Debug, thiserror::Error)]
#[error("its name cannot be resolved")]
struct Unresolved;

#[derive(Debug, thiserror::Error)]
#[error("no connection within {CONNECT_WITHIN:?}")]
struct Slow;

/// As [`Client::try_from`] makes it, with our own connections.
pub fn client(config: &Config, proxy: Option<&Uri>, trust: Trust) -> Result<Client> {
    let mut connector = HttpConnector::new_with_resolver(Resolver(trust));
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_tcp_user_timeout(Some(ACKNOWLEDGED_WITHIN));
    connector.set_keepalive(Some(PROBED_AFTER));
    connector.set_keepalive_interval(Some(PROBED_EACH));
    match proxy {
        None => over(config, config.rustls_https_connector_with_connector(connector)?),
        Some(proxy) => over(config, config.rustls_https_connector_with_connector(tunnel(config, proxy, connector)?)?),
    }
}

fn tunnel<C>(config: &Config, proxy: &Uri, connector: C) -> Result<Tunnel<C>> {
    let (host, port) = (proxy.host().unwrap_or_default(), proxy.port_u16().unwrap_or(80));
    if proxy.scheme_str() != Some("http") || host.is_empty() {
        bail!("the proxy for {} does not begin with http://, and no others can be used", config.cluster_url);
    }
    let address: Uri = format!("http://{host}:{port}").parse().context("the proxy has no usable address")?;
    let tunnel = Tunnel::new(address, connector);
    Ok(match proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@')) {
        None => tunnel,
        Some((user, _)) => {
            let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(decoded(user)));
            tunnel.with_auth(HeaderValue::from_str(&basic).expect("base64 has no odd characters"))
        }
    })
}

fn over<C>(config: &Config, connector: C) -> Result<Client>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send, Response: Connection + Read + Write + Send + Unpin + 'static>,
    C: Clone + Send + Sync + 'static,
{
    let in_time = tower::service_fn(move |server: Uri| {
        let connected = connector.clone().oneshot(server);
        async move { tokio::time::timeout(CONNECT_WITHIN, connected).await.map_err(|_| BoxError::from(Slow))?.map_err(Into::into) }
            .boxed()
    });
    let builder = ClientBuilder::new(Pool::new(in_time), config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&tower::util::option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer());
    Ok(builder.build())
}

/// `%3A` is a colon; what is no such code stands for itself.
fn decoded(text: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (text.as_bytes(), Vec::new());
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// Looks at every address that a name leads to, each time that it is looked up: it may lead elsewhere by then.
#[derive(Clone)]
struct Resolver(Trust);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (trust, found) = (self.0, GaiResolver::new().call(name));
        async move {
            let found: Vec<SocketAddr> = found.await.map_err(|_| Unresolved)?.collect();
            match found.iter().find_map(|address| trust.refusal(address.ip())) {
                Some(refusal) => Err(refusal.into()),
                None => Ok(found.into_iter()),
            }
        }
        .boxed()
    }
}

/// The connections to one server, and how often all that lay idle were given up.
struct Pool<C> {
    connector: C,
    current: Arc<Mutex<(u64, legacy::Client<C, Body>)>>,
}

impl<C: Clone> Clone for Pool<C> {
    fn clone(&self) -> Pool<C> {
        Pool { connector: self.connector.clone(), current: self.current.clone() }
    }
}

impl<C: Connect + Clone> Pool<C> {
    fn new(connector: C) -> Pool<C> {
        let current = Arc::new(Mutex::new((0, fresh(connector.clone()))));
        Pool { connector, current }
    }

    fn current(&self) -> (u64, legacy::Client<C, Body>) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is under way on those that were current then goes on.
    fn renew(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number {
            *current = (number + 1, fresh(self.connector.clone()));
        }
    }
}

fn fresh<C: Connect + Clone>(connector: C) -> legacy::Client<C, Body> {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_FOR).pool_max_idle_per_host(IDLE_MAX).build(connector)
}

impl<C> Service<Request<Body>> for Pool<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (number, http) = self.current();
        let mut asked = Asked { pool: self.clone(), number, is_answered: false };
        async move {
            let answer = http.request(request).await;
            asked.answered();
            answer.map_err(Into::into)
        }
        .boxed()
    }
}

/// A request that may be given up before its answer comes.
struct Asked<C: Connect + Clone> {
    pool: Pool<C>,
    number: u64,
    is_answered: bool,
}

impl<C: Connect + Clone> Asked<C> {
    fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl<C: Connect + Clone> Drop for Asked<C> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.pool.renew(self.number);
        }
    }
}

/// Why a server could not be asked, in words of our own: those of libraries repeat its address, and what it sent.
pub fn why(error: &(dyn StdError + 'static)) -> String {
    let mut cause = Some(error);
    let mut said = None;
    while let Some(error) = cause {
        said = sentence(error).or(said);
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    said.unwrap_or_else(|| "it cannot be reached".into())
}

fn sentence(error: &(dyn StdError + 'static)) -> Option<String> {
    if error.is::<Refusal>() || error.is::<Unresolved>() || error.is::<Slow>() {
        return Some(error.to_string());
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(untrusted(error).into());
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return Some(error.kind().to_string());
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    let is_cut = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    Some(if is_cut { "the connection was closed" } else { "it does not speak HTTP as we do" }.into())
}

fn untrusted(error: &rustls::Error) -> &'static str {
    let rustls::Error::InvalidCertificate(error) = error else { return "it does not speak TLS as we do" };
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "its certificate is not valid yet",
        CertificateError::UnknownIssuer => "its certificate is not signed by the certificate authority that is given",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        _ => "its certificate cannot be verified",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Barrier;

    use super::*;

    /// The first two connections answer one request each, together; all later ones answer every request.
    async fn converse(mut stream: TcpStream, number: usize, both: Arc<Barrier>) -> io::Result<()> {
        let mut answered = 0;
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            match (number, answered) {
                (0 | 1, 0) => {
                    both.wait().await;
                }
                (0 | 1, _) => std::future::pending().await,
                (_, _) => {}
            }
            answered += 1;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        }
    }

    #[tokio::test]
    async fn after_a_request_that_nobody_answered_no_idle_connection_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
        let server: Uri = format!("http://{}", listener.local_addr().expect("it is bound")).parse().expect("it is a URL");
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = accepted.clone();
        tokio::spawn(async move {
            let both = Arc::new(Barrier::new(2));
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, counted.fetch_add(1, Ordering::SeqCst), both.clone()));
            }
        });
        let client = client(&Config::new(server), None, Trust::Anything).expect("it can be made");
        let ask = |within: u64| {
            let request = Request::get("/version").body(Body::empty()).expect("it is a request");
            let (client, patience) = (client.clone(), Duration::from_millis(within));
            async move { tokio::time::timeout(patience, client.send(request)).await.map(|answer| answer.expect("it lives").status()) }
        };
        let (one, other) = tokio::join!(ask(5000), ask(5000));
        assert!(one.is_ok() && other.is_ok(), "two connections lie idle now, and both are dead");
        assert!(ask(300).await.is_err());
        assert_eq!(ask(5000).await, Ok(http::StatusCode::OK), "the other one was not tried");
        assert_eq!(accepted.load(Ordering::SeqCst), 3);
    }
}
