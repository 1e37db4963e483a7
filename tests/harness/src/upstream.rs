//! How do we speak HTTP to a server on loopback, plainly or by TLS with the certificate that it made for itself?

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Once};

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server on 127.0.0.1.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

impl Upstream {
    pub(crate) fn plain(port: u16) -> Upstream {
        Upstream { address: on_loopback(port), tls: None }
    }

    /// A server whose certificate file is at `certificate`: its own certificate and the authority that signed it.
    pub fn tls(port: u16, certificate: &Path) -> anyhow::Result<Upstream> {
        choose_ring();
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("reading {}", certificate.display()))?;
        roots.add_parsable_certificates(certificates);
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Upstream { address: on_loopback(port), tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// A connection of its own. It is driven by a task that ends when the sender and the last body are dropped.
    pub async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            return Ok(sender);
        };
        let stream = tls.connect(ServerName::from(self.address.ip()), stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends one request over a connection of its own.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        Ok(self.connect().await?.send_request(request).await?)
    }

    /// The status of a plain GET, as a readiness probe wants it.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<StatusCode> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(http::header::HOST, self.address.to_string())
            .body(Full::default())?;
        Ok(self.send(request).await?.status())
    }
}

/// Without a choice rustls panics as soon as two providers are linked in; the client under test uses ring too.
pub(crate) fn choose_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that somebody chose before us, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

fn on_loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
