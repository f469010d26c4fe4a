//! The only file of this crate that reads the time or waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use elasticjob_core::time::Timestamp;
use tokio::sync::watch;

/// The wall clock by which a connection schedules: the host's, or one that a test moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Option<Arc<Shift>>);

/// The difference between a test's clock and the host's.
#[derive(Debug, Default)]
struct Shift {
    millis: AtomicI64,
    moved: watch::Sender<()>,
}

impl Clock {
    /// Returns a clock that shows the host's time until it is moved.
    pub(crate) fn movable() -> Clock {
        Clock(Some(Arc::default()))
    }

    pub(crate) fn now(&self) -> Timestamp {
        let shift = self.0.as_ref().map_or(0, |shift| shift.millis.load(Ordering::SeqCst));
        Timestamp(now().0.saturating_add(shift))
    }

    /// Returns the time until just after a moment.
    pub(crate) fn until(&self, moment: Timestamp) -> Duration {
        let shift = self.0.as_ref().map_or(0, |shift| shift.millis.load(Ordering::SeqCst));
        until(Timestamp(moment.0.saturating_sub(shift)))
    }

    /// Moves a movable clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        if let Some(shift) = &self.0 {
            let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
            shift.millis.fetch_add(by, Ordering::SeqCst);
            shift.moved.send_replace(());
        }
    }

    /// Returns a receiver that changes when the clock is moved; `None` for the host's clock.
    pub(crate) fn moves(&self) -> Option<watch::Receiver<()>> {
        self.0.as_ref().map(|shift| shift.moved.subscribe())
    }
}

/// Returns the time of the host.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the time until just after a moment, in nanoseconds.
#[expect(clippy::disallowed_methods, reason = "the one place")]
fn until(moment: Timestamp) -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = Duration::from_millis(u64::try_from(moment.0).unwrap_or_default());
    moment.saturating_sub(since)
}

/// Returns a moment of the monotonic clock, to measure durations.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Returns the output of a future, or `None` if it takes longer than the limit. The future is dropped then.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// Looks up a time zone by its IANA name in the host's database. `None` names the host's own zone.
pub(crate) fn zone(name: Option<&str>) -> Option<jiff::tz::TimeZone> {
    match name {
        None => Some(jiff::tz::TimeZone::system()),
        Some(name) => jiff::tz::TimeZone::get(name).ok(),
    }
}
