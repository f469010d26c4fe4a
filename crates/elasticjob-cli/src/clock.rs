//! The only file of this crate that waits for the passing of time.

use std::time::{Duration, Instant};

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// A moment of the clock that only goes forward, to measure spans.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
