//! Tests wait for conditions, with a bound: the time is read here alone, and slept here alone but where a test that awaits asks
//! again after a moment (`znodes`, `crashes`).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Waits until `probe` gives something. What is asked stands in files, logs and the memory of other processes, which tell
/// nobody when they change: so it is asked again every 20 ms, and the pause between two questions is the only sleep here
/// beside [`pause`].
///
/// # Panics
///
/// When it has not within `patience`; `what` says what was waited for.
pub fn eventually<T>(what: &str, patience: Duration, probe: impl FnMut() -> Option<T>) -> T {
    within(patience, probe).unwrap_or_else(|| panic!("not within {patience:?}: {what}"))
}

/// The same, where giving nothing in that time is an answer too.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn within<T>(patience: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if start.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets a cluster run for a while, where the passing of time itself is what is tested: that nothing runs in a quiet time,
/// that every second has its run, that a process stands still or a link is cut for so long. There is no condition to wait
/// for in these.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the one place")]
pub fn wall_clock_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}

/// Returns the number of log lines (text format) that contain this sentence and these fields.
pub fn logged(log: &str, sentence: &str, fields: &str) -> usize {
    log.lines().filter(|line| line.contains(sentence) && line.contains(fields)).count()
}
