//! The only file of this crate that reads the time or waits for it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use elasticjob_core::time::Timestamp;

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The wall clock in nanoseconds, for waiting until just behind a due time.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn until(moment: Timestamp) -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = Duration::from_millis(u64::try_from(moment.0).unwrap_or_default());
    moment.saturating_sub(since)
}

/// A moment of the clock that only goes forward, to measure spans.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// What a future gives, when it does within that time; it is dropped else.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Looks a time zone up by its IANA name in the host's database; the host's own zone for `None`.
pub(crate) fn zone(name: Option<&str>) -> Option<jiff::tz::TimeZone> {
    match name {
        None => Some(jiff::tz::TimeZone::system()),
        Some(name) => jiff::tz::TimeZone::get(name).ok(),
    }
}
