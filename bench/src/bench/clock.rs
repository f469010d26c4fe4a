//! The only file of the comparison that reads the time or waits for it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch, as both workloads write them.
#[expect(clippy::disallowed_methods, reason = "what is measured")]
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default()
}

/// A monotonic clock.
#[expect(clippy::disallowed_methods, reason = "what is measured")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Lets the measured processes run.
#[expect(clippy::disallowed_methods, reason = "the measured time")]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Lets what waits within a link wait.
pub(crate) async fn sleep_until(moment: Instant) {
    tokio::time::sleep_until(moment.into()).await;
}
