//! Never two runs of one item at the same time, as far as the registry's sessions can show.
//!
//! A run counts until it has ended, or until the session of its begin was over: what a paused or cut-off process does beyond
//! that, the fencing token lets a store refuse. Without `monitorExecution` nothing is promised, as in Java. A run of Java's
//! whose own mark Java took away while it went on (at each reconnect), and one that Java began although a mark stood there,
//! are Java's own faults.

use std::collections::BTreeMap;

use super::{Replay, Violation};
use crate::{Change, Entry, Evidence, What};

pub(super) const NAME: &str = "overlap";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut by_item: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
    for run in evidence.runs.iter().filter(|run| !evidence.is_beyond_its_lease(run)) {
        by_item.entry(run.item).or_default().push(run);
    }
    let mut violations = Vec::new();
    for (item, mut runs) in by_item {
        runs.sort_by_key(|run| run.start);
        for (index, first) in runs.iter().enumerate() {
            let until = first.end.into_iter().chain(first.lease_end).min();
            let at_once = runs[index + 1..].iter().take_while(|next| until.is_none_or(|until| next.start < until));
            for second in at_once {
                let by_java = if first.java {
                    let before = |run: &&&Entry| run.end.is_some_and(|end| end + evidence.terms.run_max >= first.start);
                    let of_it = |run: &&&Entry| run.instance == first.instance && run.start <= first.start;
                    let intruded = runs.iter().filter(of_it).filter(before).any(|run| intrudes(evidence, &runs, run));
                    intrudes(evidence, &runs, first) || intruded || !was_deprived(evidence, first, second)
                } else {
                    (second.java && !gave_up_its_mark(evidence, first, second))
                        || has_lost_its_mark(evidence, first, second)
                };
                if by_java || unmonitored(evidence, first) {
                    continue;
                }
                violations.push(Violation {
                    invariant: NAME,
                    at: second.start,
                    what: format!("item {item} ran twice at once: {first:?} and {second:?}"),
                });
            }
        }
    }
    violations
}

/// Whether this run of Java's began although another one was going on: it put its mark in the place of the other one's, whose
/// end then takes it away.
fn intrudes(evidence: &Evidence, runs: &[&Entry], run: &Entry) -> bool {
    // The mark of a Rust instance exists from its begin on; its code may start later.
    let begun = |other: &Entry| if other.java { other.start } else { other.start.min(evidence.begin_of(other).1) };
    let goes_on = |other: &Entry| begun(other) <= run.start && other.end.is_none_or(|end| end > run.start);
    runs.iter().any(|other| !std::ptr::eq(*other, run) && goes_on(other))
}

/// Whether a Rust instance deleted the mark of this run of a Java instance during the run. Else Java had created none, or had deleted it
/// itself; or its instance node did not exist, since Java deletes it and creates it again when it reconnects.
fn was_deprived(evidence: &Evidence, first: &Entry, second: &Entry) -> bool {
    let (path, instance) = (evidence.path.item_running(first.item), evidence.path.instance(&first.instance));
    let mut replay = Replay::default();
    let known = [&path, &instance];
    let mut replaced = false;
    evidence.history.iter().filter(|c| known.contains(&&c.path) && c.at <= second.start).any(|change| {
        let is_mark = change.path == path;
        let own = replay.is(&path, &first.instance);
        // An instance that has just come back did not exist at the time of the read.
        let registered = replay.get(&instance).is_some_and(|node| node.since + evidence.terms.round_trip <= change.at);
        let stood = is_mark && own && !replaced && registered;
        if is_mark && change.what == What::Deleted {
            // It put its mark in the place of another one's.
            replaced = !own && evidence.is_java_s_session(change.session);
        }
        replay.apply(change);
        let by_ours = change.session != 0 && !evidence.is_java_s_session(change.session);
        stood && change.what == What::Deleted && by_ours && change.at >= first.start
    })
}

/// Whether one of ours took its own mark away before its run had ended, and before the other one began.
fn gave_up_its_mark(evidence: &Evidence, first: &Entry, second: &Entry) -> bool {
    let path = evidence.path.item_running(first.item);
    let early = |change: &&Change| change.at <= second.start && first.end.is_none_or(|end| change.at < end);
    let own = evidence.history.iter().filter(|c| c.path == path && c.zxid > first.token && c.session == first.session);
    own.filter(early).any(|change| change.what == What::Deleted)
}

/// Whether a Java instance deleted a mark of another one, or overwrote it, in these runs: Java does so when it requests
/// takeovers, and when it reconnects.
pub(super) fn has_lost_its_mark(evidence: &Evidence, one: &Entry, other: &Entry) -> bool {
    let path = evidence.path.item_running(one.item);
    // An answer may be on its way for long: from the begins in the registry on.
    let begun = evidence.begin_of(one).1.min(evidence.begin_of(other).1);
    let (from, to) = (begun, one.start.max(other.start));
    let mut replay = Replay::default();
    evidence.history.iter().filter(|change| change.path == path && change.at <= to).any(|change| {
        let by_java = change.at >= from && change.session != 0 && evidence.is_java_s_session(change.session);
        let another_s = replay.get(&path).is_some_and(|node| !evidence.java.contains(&node.text()));
        replay.apply(change);
        by_java && another_s
    })
}

/// Whether the job was not monitored when the run began, or at any time until it ended.
pub(super) fn unmonitored(evidence: &Evidence, run: &Entry) -> bool {
    let path = evidence.path.config();
    let mut replay = Replay::default();
    for change in evidence.history.iter().filter(|c| c.path == path && run.end.is_none_or(|end| c.at <= end)) {
        replay.apply(change);
    }
    replay.document(&evidence.path).is_some_and(|document| !document.monitor_execution)
}
