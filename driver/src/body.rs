//! How much of an answer do we read?

use http_body_util::BodyExt as _;
use kube::client::Body;

/// It goes on beyond what we take.
#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {0} bytes")]
pub struct TooLarge(usize);

/// An answer from its beginning to its end.
pub async fn whole(mut body: Body, max: usize) -> Result<kube::Result<Vec<u8>>, TooLarge> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) if all.len() + data.len() > max => return Err(TooLarge(max)),
            Ok(Ok(data)) => all.extend_from_slice(&data),
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(all))
}
