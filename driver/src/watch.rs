//! How do we learn what is in the cluster, and notice when we do not?
//!
//! List, then watch from there; go on from the last version after a break, and list again when that
//! version is too old or the resumed watch stays silent. Every break is told, so that nothing is decided
//! on what may be out of date.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use resus_core::facts::{Served, Source};
use resus_core::input::Input;
use resus_core::world::STALE_AFTER;
use resus_k8s::feed::{self, Line};
use resus_k8s::observe::ApiStatus;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tracing::{info, warn};

/// For the head of an answer, and for a page of a list.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Busy clusters send an event at once; where a resumed watch is silent, a list is small and brings certainty.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Most of a heartbeat's cost is the wake-up: after one, let the socket fill before reading again.
const FILL_FOR: Duration = Duration::from_millis(20);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// No object in etcd is nearly as large; a line beyond this is garbage.
const LINE_MAX: usize = 16 << 20;

/// Never ends by itself; it is aborted when the source is no longer wanted.
pub async fn watch(client: Client, source: Source, served: Option<Served>, inputs: Sender<Input>) {
    let mut watch = Watch { client, source, served, inputs, told: false };
    let mut next = Next::List;
    let mut backoff = BACKOFF_MIN;
    loop {
        let done = match &next {
            Next::List => watch.list().await,
            Next::Watch { version, resumed } => watch.follow(version.clone(), *resumed).await,
        };
        next = match done {
            Ok(after) => {
                backoff = BACKOFF_MIN;
                watch.told = false;
                after
            }
            Err(error) => {
                watch.report(&error);
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
                match next {
                    Next::List => Next::List,
                    Next::Watch { version, .. } => Next::Watch { version, resumed: true },
                }
            }
        };
    }
}

enum Next {
    /// Left when the list is complete.
    List,
    /// Left when the watch ends, expires, or stays silent after being resumed.
    Watch { version: String, resumed: bool },
}

struct Watch {
    client: Client,
    source: Source,
    served: Option<Served>,
    inputs: Sender<Input>,
    /// The trouble has been logged; its repetitions are not.
    told: bool,
}

impl Watch {
    async fn list(&mut self) -> Result<Next> {
        self.input(Input::Listing(self.source.clone())).await?;
        let mut page: Option<String> = None;
        let mut listed = 0;
        loop {
            let request = feed::list(&self.source, self.served.as_ref(), page.as_deref());
            let answer = timeout(ANSWER_WITHIN, self.whole(request)).await.context("no answer in time")?;
            let body = match answer? {
                Ok(body) => body,
                // The list took so long that its snapshot is gone: begin again.
                Err(status) if status.code == 410 && page.is_some() => return Ok(Next::List),
                Err(status) => bail!(self.explain(&status)),
            };
            let read = feed::read_page(&self.source, &body).context("the list cannot be read")?;
            for input in read.inputs {
                listed += 1;
                self.input(input).await?;
            }
            match read.next {
                Some(next) => page = Some(next),
                None => {
                    self.input(Input::Listed(self.source.clone())).await?;
                    info!(source = %self.source, objects = listed, "listed");
                    return Ok(Next::Watch { version: read.version, resumed: false });
                }
            }
        }
    }

    async fn follow(&mut self, mut version: String, resumed: bool) -> Result<Next> {
        let request = feed::watch(&self.source, self.served.as_ref(), &version);
        let opened = timeout(ANSWER_WITHIN, self.open(request)).await;
        let mut body = match opened.context("no answer in time").flatten() {
            Ok(Ok(body)) => body,
            Ok(Err(status)) => {
                self.broken().await?;
                return match status.code {
                    410 => Ok(Next::List),
                    _ => bail!(self.explain(&status)),
                };
            }
            Err(error) => {
                self.broken().await?;
                return Err(error);
            }
        };
        let mut buffer = Vec::new();
        let mut heard = !resumed;
        loop {
            let patience = if heard { STALE_AFTER } else { SILENCE_MAX };
            let chunk = match timeout(patience, body.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(_)) | None) => {
                    self.broken().await?;
                    return Ok(Next::Watch { version, resumed: true });
                }
                Err(_) => {
                    self.broken().await?;
                    return Ok(Next::List);
                }
            };
            buffer.extend_from_slice(&chunk);
            let mut begin = 0;
            while let Some(length) = buffer[begin..].iter().position(|byte| *byte == b'\n') {
                let line = &buffer[begin..begin + length];
                begin += length + 1;
                match feed::read_line(&self.source, line) {
                    Ok(Line::Input(input, newer)) => {
                        heard = true;
                        self.input(input).await?;
                        version = newer.unwrap_or(version);
                    }
                    Ok(Line::Expired) => {
                        self.broken().await?;
                        return Ok(Next::List);
                    }
                    Ok(Line::Error(status)) => {
                        self.broken().await?;
                        bail!(self.explain(&status));
                    }
                    // Nothing can be said about it, not even its name; a list will show what there is.
                    Err(error) => {
                        self.broken().await?;
                        warn!(source = %self.source, %error, "a line of the watch cannot be read; listing again");
                        tokio::time::sleep(BACKOFF_MAX).await;
                        return Ok(Next::List);
                    }
                }
            }
            buffer.drain(..begin);
            if buffer.len() > LINE_MAX {
                self.broken().await?;
                bail!("a line of the watch is longer than {LINE_MAX} bytes");
            }
            if self.source == Source::Nodes {
                tokio::time::sleep(FILL_FOR).await;
            }
        }
    }

    async fn whole(&self, request: Request<Vec<u8>>) -> Result<Result<Bytes, ApiStatus>> {
        let response = self.client.send(request.map(Body::from)).await?;
        let code = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(if code.is_success() { Ok(body) } else { Err(api_status(code, &body)) })
    }

    async fn open(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Result<impl Stream<Item = kube::Result<Bytes>> + Unpin + use<>, ApiStatus>> {
        let response = self.client.send(request.map(Body::from)).await?;
        let code = response.status();
        if !code.is_success() {
            let body = response.into_body().collect().await?.to_bytes();
            return Ok(Err(api_status(code, &body)));
        }
        Ok(Ok(response.into_body().into_data_stream()))
    }

    async fn broken(&self) -> Result<()> {
        self.input(Input::Broken(self.source.clone())).await
    }

    async fn input(&self, input: Input) -> Result<()> {
        self.inputs.send(input).await.context("the loop has ended")
    }

    fn explain(&self, status: &ApiStatus) -> String {
        let what_to_do = match (&self.source, status.code) {
            (Source::Checks, 404) => ": apply deploy/crds",
            (_, 403) => ": grant list and watch on it (deploy/rbac.yaml has what is needed)",
            (_, 401) => ": the credentials are not accepted",
            _ => "",
        };
        format!("{} ({}){what_to_do}", status.message, status.code)
    }

    fn report(&mut self, error: &anyhow::Error) {
        if !std::mem::replace(&mut self.told, true) {
            warn!(source = %self.source, why = format!("{error:#}"), "cannot be watched; trying again");
        }
    }
}

fn api_status(code: StatusCode, body: &[u8]) -> ApiStatus {
    let status: ApiStatus = serde_json::from_slice(body).unwrap_or_default();
    let message = if status.message.is_empty() { code.to_string() } else { status.message };
    ApiStatus { code: code.as_u16(), message, ..status }
}
