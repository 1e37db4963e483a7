//! Is the process well, is it ready, and what are its numbers?

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::telemetry::Telemetry;

/// Callers are probes and scrapers. Beyond this the oldest connection is given up for the newest: a probe is answered at once,
/// and who holds connections without a word must not keep it out.
const CONNECTIONS_MAX: usize = 64;
/// For the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(2);

/// On all addresses: of both families, where there are both.
pub async fn bind_all(port: u16) -> Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != ErrorKind::AddrInUse => bind((Ipv4Addr::UNSPECIFIED, port).into()).await,
        bound => bound.with_context(|| format!("cannot listen on port {port}")),
    }
}

pub async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Serves `/healthz`, `/readyz` and `/metrics` until it is aborted.
pub async fn serve(listener: TcpListener, telemetry: Arc<Telemetry>) -> Result<()> {
    let mut connections = JoinSet::new();
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        while connections.try_join_next().is_some() {}
        by_age.retain(|connection| !connection.is_finished());
        while by_age.len() >= CONNECTIONS_MAX
            && let Some(oldest) = by_age.pop_front()
        {
            oldest.abort();
        }
        let (socket, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            // A peer that went away, or no more file handles: neither is a reason to stop repairing.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let telemetry = telemetry.clone();
        by_age.push_back(connections.spawn(async move {
            let service = service_fn(|request| answer(request, telemetry.clone()));
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
            // An error here is the peer's: it hung up in the middle of a request.
            let _ = server.serve_connection(TokioIo::new(socket), service).await;
        }));
    }
}

async fn answer(request: Request<Incoming>, telemetry: Arc<Telemetry>) -> Result<Response<Full<Bytes>>, Infallible> {
    let state = |state: Result<(), String>| match state {
        Ok(()) => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{why}\n")),
    };
    let (code, kind, body) = match request.uri().path() {
        "/healthz" => state(telemetry.health()),
        "/readyz" => state(telemetry.readiness()),
        "/metrics" => (StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", telemetry.metrics()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "try /healthz, /readyz or /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    Ok(response)
}
