//! Spans of time: as text, and the one that reaches back to the latest firing.

use std::fmt;
use std::time::Duration;

use jiff::tz::TimeZone;

use crate::cron::Cron;
use crate::time::Timestamp;

/// How far back the latest firing is searched: beyond the longest distance of yearly ones.
const LOOK_BACK_MAX: Duration = Duration::from_secs(5 * 366 * 86_400);

/// The latest firing that is not later than `now`: a search that halves the time in which it must be.
pub(super) fn latest_firing(cron: &Cron, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let fires_after = |moment: Timestamp| cron.next(moment, zone).filter(|first| *first <= now);
    let mut window = Duration::from_secs(2);
    while fires_after(now - window).is_none() {
        if window > LOOK_BACK_MAX {
            return None;
        }
        window *= 2;
    }
    let (mut before, mut after) = (now - window, now);
    while after.since(before) > Duration::from_secs(1) {
        let middle = before + after.since(before) / 2;
        if fires_after(middle).is_some() { before = middle } else { after = middle }
    }
    fires_after(before)
}

/// A span of time in the largest unit of which it has two.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let seconds = self.0.as_secs();
        match seconds {
            0 | 1 => write!(f, "{millis} ms"),
            2..120 => write!(f, "{seconds} s"),
            120..7_200 => write!(f, "{} min", seconds / 60),
            7_200..172_800 => write!(f, "{} h", seconds / 3_600),
            _ => write!(f, "{} days", seconds / 86_400),
        }
    }
}
