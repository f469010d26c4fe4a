//! The only file of this crate that waits for the passing of time.

use std::time::Duration;

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
