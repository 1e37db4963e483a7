//! How is our own API server reached, and does it still know us?
//!
//! Credentials die while we run: certificates are renewed in the file that we read once, tokens expire, programs that make
//! them have to be asked again. What is refused for a minute is read anew; what is refused for minutes after that ends the
//! process, since whoever starts it again may know better.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tracing::{info, warn};

use crate::telemetry::Telemetry;

/// A webhook for authentication that is away for a moment is no reason.
const READ_ANEW_AFTER: Duration = Duration::from_secs(60);
const END_AFTER: Duration = Duration::from_secs(300);
/// Interval between two looks at how it stands.
const LOOK_EACH: Duration = Duration::from_secs(5);

/// Makes a client from wherever the credentials are.
pub type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Client>> + Send + Sync>;

pub struct Home {
    connect: Connect,
    state: Mutex<(Client, Standing)>,
    telemetry: Arc<Telemetry>,
}

impl Home {
    pub async fn new(connect: Connect, telemetry: Arc<Telemetry>) -> Result<Arc<Home>> {
        let client = connect().await?;
        Ok(Arc::new(Home { connect, state: Mutex::new((client, Standing::new(Instant::now()))), telemetry }))
    }

    /// Sends through whatever client is the latest.
    pub fn client(self: &Arc<Home>) -> Client {
        let (home, namespace) = (self.clone(), self.lock().0.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let home = home.clone();
            async move { home.send(request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let client = self.lock().0.clone();
        let response = client.send(request).await.map_err(|error| match error {
            kube::Error::Service(cause) => cause, // It is wrapped once more by whoever called.
            error => error.into(),
        })?;
        if self.lock().1.answered(response.status(), Instant::now()) {
            self.telemetry.answered_well();
        }
        Ok(response)
    }

    /// Ends only with an error.
    pub async fn tend(&self) -> Result<()> {
        loop {
            tokio::time::sleep(LOOK_EACH).await;
            let due = self.lock().1.due(Instant::now());
            match due {
                Due::Nothing => {}
                Due::ReadAnew => {
                    // Not again before another minute, whether this works or not.
                    self.lock().1.read_at = Instant::now();
                    match (self.connect)().await {
                        Ok(client) => {
                            info!("the API server does not accept our credentials; they were read anew");
                            self.lock().0 = client;
                        }
                        Err(error) => {
                            warn!(why = format!("{error:#}"), "our credentials are not accepted, and there are no others");
                        }
                    }
                }
                Due::End => bail!("the API server has not accepted our credentials for {END_AFTER:?}"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Client, Standing)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the answers so far say about our credentials.
struct Standing {
    /// The first refusal since the last answer that was none.
    refused_since: Option<Instant>,
    /// When the credentials were read last.
    read_at: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    ReadAnew,
    End,
}

impl Standing {
    fn new(now: Instant) -> Standing {
        Standing { refused_since: None, read_at: now }
    }

    /// Did the API server do what was asked, or say why not? An error of whatever stands before it tells nothing.
    fn answered(&mut self, code: StatusCode, now: Instant) -> bool {
        match code {
            StatusCode::UNAUTHORIZED => self.refused_since = self.refused_since.or(Some(now)),
            code if code.is_server_error() => {}
            _ => self.refused_since = None,
        }
        code != StatusCode::UNAUTHORIZED && !code.is_server_error()
    }

    fn due(&self, now: Instant) -> Due {
        match self.refused_since {
            Some(since) if now >= since + END_AFTER => Due::End,
            Some(since) if now >= since.max(self.read_at) + READ_ANEW_AFTER => Due::ReadAnew,
            Some(_) | None => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_that_are_refused_for_a_minute_are_read_anew_and_end_us_after_five() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut standing = Standing::new(began);
        assert!(!standing.answered(StatusCode::UNAUTHORIZED, after(10)));
        assert!(standing.answered(StatusCode::FORBIDDEN, after(20)));
        assert_eq!(standing.due(after(500)), Due::Nothing, "somebody knew who we are");
        standing.answered(StatusCode::UNAUTHORIZED, after(500));
        assert!(!standing.answered(StatusCode::BAD_GATEWAY, after(530)), "of a load balancer");
        standing.answered(StatusCode::UNAUTHORIZED, after(559));
        assert_eq!(standing.due(after(559)), Due::Nothing);
        assert_eq!(standing.due(after(560)), Due::ReadAnew);
        standing.read_at = after(560);
        assert_eq!(standing.due(after(619)), Due::Nothing, "once a minute");
        assert_eq!(standing.due(after(620)), Due::ReadAnew);
        assert_eq!(standing.due(after(799)), Due::ReadAnew);
        assert_eq!(standing.due(after(800)), Due::End);
        standing.answered(StatusCode::OK, after(800));
        assert_eq!(standing.due(after(800)), Due::Nothing);
    }
}
