//! The only file of this crate that reads the time or waits for it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use elasticjob_core::time::Timestamp;

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// What that gives within the time.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
