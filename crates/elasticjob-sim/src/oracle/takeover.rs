//! With failover, a run whose instance died is taken over once, and within the session time-out and a second.
//!
//! Once: a firing of an item is run by takeover no more often than its runs were cut off. Within its bound: where nothing
//! else was wrong meanwhile, and somebody of ours was there to take it.

use std::collections::BTreeMap;
use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::Ledger;

use super::{Replay, Violation};
use crate::{Entry, Evidence, What};

pub(super) const NAME: &str = "takeover";

/// What a takeover may take beyond the session time-out.
const BOUND: Duration = Duration::from_secs(1);

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((item, due), begins) in begins(evidence) {
        let runs: Vec<&Entry> = evidence.runs.iter().filter(|run| run.item == item && run.due == due).collect();
        let taken = runs.iter().filter(|run| run.source == Source::Failover).count();
        let cut_off = begins.iter().filter(|begin| begin.was_cut_off).count();
        if taken > cut_off && !is_begun_twice_by_marks(evidence, item) {
            violations.push(Violation {
                invariant: NAME,
                at: runs[0].start,
                what: format!(
                    "item {item} due {due} was taken over {taken} times, {cut_off} begins were cut off: {runs:?}"
                ),
            });
        }
        for run in runs.iter().filter(|run| !run.java && run.end.is_none()) {
            violations.extend(late(evidence, run));
        }
    }
    violations
}

/// A begin as the registry has it: its run may never have been seen.
struct Begin {
    /// Whether the session ended before the mark was taken away in it.
    was_cut_off: bool,
}

/// Every begin of each firing of each item, from the ledgers.
fn begins(evidence: &Evidence) -> BTreeMap<(u32, Timestamp), Vec<Begin>> {
    let mut begins: BTreeMap<(u32, Timestamp), Vec<Begin>> = BTreeMap::new();
    let total = 1 + evidence.runs.iter().map(|run| run.item).max().unwrap_or_default();
    for item in 0..total {
        let (node, mark) = (evidence.path.item(item), evidence.path.item_running(item));
        for (index, change) in evidence.history.iter().enumerate().filter(|(_, change)| change.path == node) {
            let What::Wrote { data, .. } = &change.what else { continue };
            let Some(ledger) = Ledger::parse(data) else { continue };
            let later = || evidence.history[index..].iter();
            let gone = later().find(|c| c.path == mark && c.what == What::Deleted);
            let ended = later().find(|c| c.session == change.session && c.what == What::SessionEnded);
            let by_itself = gone.is_some_and(|gone| gone.session == change.session);
            let in_time = gone.is_some_and(|gone| ended.is_none_or(|ended| gone.zxid < ended.zxid));
            let was_cut_off = ended.is_some() && !(by_itself && in_time);
            begins.entry((item, ledger.due)).or_default().push(Begin { was_cut_off });
        }
    }
    begins
}

/// Whether somebody planted marks on this item: they may have been taken over as they say.
fn is_begun_twice_by_marks(evidence: &Evidence, item: u32) -> bool {
    let marks = [
        evidence.path.item_running(item),
        evidence.path.item_failover(item),
        evidence.path.item_failovering(item),
        evidence.path.failover_item(item),
    ];
    evidence.history.iter().any(|change| change.session == 0 && marks.contains(&change.path))
        || !evidence.java.is_empty()
}

/// A run whose process died, and that nobody took in time although somebody could.
fn late(evidence: &Evidence, run: &Entry) -> Option<Violation> {
    // One whose session was ended before its time registers again, and its mark counts as that of a living one.
    let lease_end = run.lease_end.filter(|_| !evidence.expired.contains(&run.session))?;
    let bound = lease_end + BOUND + evidence.terms.round_trip * 2;
    if bound > evidence.terms.end
        || !had_failover(evidence, run)
        || evidence.terms.round_trip > Duration::from_millis(200)
    {
        return None;
    }
    // Another trouble at that time is another story.
    let near = |(from, to): &&(Timestamp, Timestamp)| *from <= bound && *to >= run.start;
    if evidence.troubles.iter().filter(near).count() > 1 {
        return None;
    }
    // A Java survivor takes one item at a time, when it is idle.
    if !evidence.java.is_empty() {
        return None;
    }
    let mut replay = Replay::default();
    evidence.history.iter().take_while(|c| c.at <= lease_end).for_each(|c| replay.apply(c));
    let survivors: Vec<&str> = replay.available(&evidence.path).filter(|id| *id != run.instance).collect();
    let taken = evidence
        .runs
        .iter()
        .any(|again| again.item == run.item && again.due == run.due && again.start > run.start && again.start <= bound);
    (!survivors.is_empty() && !taken).then(|| Violation {
        invariant: NAME,
        at: bound,
        what: format!("nobody of {survivors:?} took item {} in time: {run:?}", run.item),
    })
}

/// Whether failover was on from the begin of that run until its lease ended.
fn had_failover(evidence: &Evidence, run: &Entry) -> bool {
    let path = evidence.path.config();
    let mut on = false;
    for change in evidence.history.iter().filter(|c| c.path == path) {
        let text = match &change.what {
            crate::What::Wrote { data, .. } => String::from_utf8_lossy(data).into_owned(),
            crate::What::Deleted | crate::What::SessionEnded => String::new(),
        };
        if change.at <= run.start {
            on = text.contains("failover: true") && text.contains("monitorExecution: true");
        } else if run.lease_end.is_some_and(|lease| change.at <= lease + BOUND) {
            return false; // it was rewritten meanwhile
        }
    }
    on
}
