//! The only file of this crate that reads a clock or waits.

use std::time::{Duration, Instant, SystemTime};

use elasticjob::Timestamp;

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A moment of the clock that only goes forward, to measure spans.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
