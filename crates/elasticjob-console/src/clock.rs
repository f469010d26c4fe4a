//! The time of this process, and pauses.
#![expect(clippy::disallowed_methods, reason = "the module that reads the clock and sleeps")]

use std::time::{Duration, Instant};

/// Returns the time of the monotonic clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Pauses.
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Returns the time of the wall clock, in milliseconds since 1970.
pub(crate) fn millis() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
