//! The only file of this crate that reads the time or waits for it.

use std::time::{Duration, Instant};

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// The time since the host was started, with the time in which it was suspended: a server does not wait for a host that sleeps.
pub(crate) fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    #[cfg(not(target_os = "linux"))]
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map(Duration::from).unwrap_or_default()
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
