//! Progress: within the session timeout and two firings after quiet, and what a run and slow requests may take, each enabled
//! item runs; and it runs on to the end. Quiet is when the last fault and the sessions that it cost are over. With Java there,
//! a leader may have to be replaced first. Where a clock was off, its error is added.

use std::time::Duration;

use elasticjob_core::config::JobConfig;
use elasticjob_core::limits;

use super::{Replay, Violation};
use crate::{Change, Evidence};

pub(super) const NAME: &str = "progress";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.terms.is_at_rest {
        return Vec::new();
    }
    let replay = Replay::of(&evidence.history);
    let late = |change: &Change| change.at + limits::OWNERS_RECHECKS[2] > evidence.terms.end;
    let early = evidence.history.iter().position(late).unwrap_or(evidence.history.len());
    let shortly_before = Replay::of(&evidence.history[..early]);
    let path = &evidence.path;
    let config = replay.document(path).and_then(|document| {
        JobConfig::check(&document, &|name| name.is_none().then_some(jiff::tz::TimeZone::UTC)).ok()
    });
    let Some(config) = config else { return Vec::new() };
    let Some(cron) = config.cron.as_ref() else { return Vec::new() };
    if replay.available(path).next().is_none() {
        return Vec::new();
    }
    let terms = &evidence.terms;
    // From when on two firings count: everything has settled.
    let settled = terms.quiet_from + terms.session_timeout;
    let mut due = settled;
    for _ in 0..2 {
        let Some(next) = cron.next(due, &config.time_zone) else { return Vec::new() };
        due = next;
    }
    // A Java leader that does not lead is replaced, and may have to be twice.
    let java = if evidence.java.is_empty() { Duration::ZERO } else { limits::LEADER_WAIT * 2 };
    let slack = terms.round_trip * 2 + terms.run_max * 2 + terms.clock_error + Duration::from_millis(500);
    let first_bound = due + slack + java;
    let mut violations = Vec::new();
    for item in (0..config.sharding_total_count).filter(|item| replay.get(&path.item_disabled(*item)).is_none()) {
        // Java has its own ways to lose a firing, and its own marks; and it takes an owner away at any time.
        let java_s = |node: &String| evidence.is_java_s(&replay, node) || evidence.is_java_s(&shortly_before, node);
        if [path.item_owner(item), path.item_running(item)].iter().any(java_s) {
            continue;
        }
        let runs: Vec<_> =
            evidence.runs.iter().filter(|run| run.item == item && run.start > terms.quiet_from).collect();
        let mut fault = |at, what| violations.push(Violation { invariant: NAME, at, what });
        match runs.iter().map(|run| run.start).min() {
            _ if first_bound > terms.end => {}
            Some(first) if first <= first_bound => {}
            first => {
                fault(first_bound, format!("item {item} ran first at {first:?} after quiet from {}", terms.quiet_from))
            }
        }
        // And to the end: the last firing that had time for it was begun, unless a run was still going on.
        let last = runs.iter().map(|run| run.start).max();
        let mut due = first_bound;
        let mut wanted = None;
        while let Some(next) = cron.next(due, &config.time_zone).filter(|next| *next + slack <= terms.end) {
            due = next;
            wanted = Some(next);
        }
        if let Some(wanted) = wanted
            && last.is_none_or(|last| last + slack < wanted)
        {
            fault(terms.end, format!("item {item} ran last at {last:?}, and was due at {wanted}"));
        }
    }
    violations
}
