//! The only file of this crate that reads the time or waits for it.

use std::time::{Duration, Instant};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Waits until then; for ever without a time.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// What that gives within the time.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
