//! With failover, a run whose instance died is taken over once, and within the session timeout and a second.
//!
//! Once: a firing of an item is run by takeover no more often than its runs were cut off. Within its bound: where no
//! other fault was near, and a Rust instance was able to take it over.

use std::collections::BTreeMap;
use std::time::Duration;

use elasticjob_core::machine::Source;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::Ledger;

use super::{Replay, Violation};
use crate::{Entry, Evidence, What};

pub(super) const NAME: &str = "takeover";

/// What a takeover may take beyond the session timeout.
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
        // Also a run that was cancelled before it completed.
        let told_to_end = |begin: &&Begin| runs.iter().any(|run| run.token == begin.zxid && run.cut_off);
        for begin in begins.iter().filter(|begin| begin.was_cut_off || told_to_end(begin)) {
            violations.extend(late(evidence, item, due, begin));
        }
    }
    violations
}

/// A begin as the registry has it: its run may never have been seen.
struct Begin {
    zxid: i64,
    at: Timestamp,
    session: u64,
    instance: String,
    /// When its session was over.
    lease_end: Option<Timestamp>,
    /// Whether the session ended before the mark was deleted in it.
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
            let (zxid, at, session, instance) = (change.zxid, change.at, change.session, ledger.instance);
            let lease_end = ended.map(|ended| ended.at);
            let begin = Begin { zxid, at, session, instance, lease_end, was_cut_off };
            begins.entry((item, ledger.due)).or_default().push(begin);
        }
    }
    begins
}

/// Whether the schedule planted marks on this item: they may have been taken over.
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

/// A run whose session ended, and that no instance took over in time although one was able to.
fn late(evidence: &Evidence, item: u32, due: Timestamp, begin: &Begin) -> Option<Violation> {
    // One whose session was ended before its time registers again, and its mark counts as that of a living one.
    let lease_end = begin.lease_end.filter(|_| !evidence.expired.contains(&begin.session))?;
    let bound = lease_end + BOUND + evidence.terms.round_trip * 2;
    // A Java survivor takes one item at a time, when it is idle.
    if bound > evidence.terms.end || !had_failover(evidence, begin.at, lease_end) || !evidence.java.is_empty() {
        return None;
    }
    let disabled = evidence.path.item_disabled(item);
    let switched = || evidence.history.iter().filter(|change| change.path == disabled && change.at <= bound);
    let was_disabled = switched().rfind(|change| change.at <= begin.at).is_some_and(|c| c.what != What::Deleted);
    if was_disabled || switched().any(|change| change.at > begin.at) {
        return None; // it is not taken over while it is disabled
    }
    // Another fault at that time excuses it.
    let near = |(from, to): &&(Timestamp, Timestamp)| *from <= bound && *to >= begin.at;
    if evidence.troubles.iter().filter(near).count() > 1 {
        return None;
    }
    // One that was only cut off, and registers again, ends its run itself.
    let node = evidence.path.instance(&begin.instance);
    let comes_back = |c: &crate::Change| c.path == node && c.zxid > begin.zxid && matches!(c.what, What::Wrote { .. });
    if evidence.history.iter().take_while(|c| c.at <= bound).any(comes_back) {
        return None;
    }
    let mut replay = Replay::default();
    evidence.history.iter().take_while(|c| c.at <= lease_end).for_each(|c| replay.apply(c));
    let survivors: Vec<&str> = replay.available(&evidence.path).filter(|id| *id != begin.instance).collect();
    // By a begin for the same due time; the run itself shows it if the item had reached a later one in the meantime.
    let path = evidence.path.item(item);
    let later = evidence.history.iter().filter(|c| c.path == path && c.zxid > begin.zxid && c.at <= bound);
    let begun = later.filter_map(|c| match &c.what {
        What::Wrote { data, .. } => Ledger::parse(data),
        What::Deleted | What::SessionEnded => None,
    });
    // The code may start long after the begin.
    let begun_at = |run: &Entry| evidence.begin_of(run).1;
    let ran = |run: &Entry| run.item == item && run.due == due && run.token > begin.zxid && begun_at(run) <= bound;
    let is_taken = begun.into_iter().any(|ledger| ledger.due == due) || evidence.runs.iter().any(ran);
    (!survivors.is_empty() && !is_taken).then(|| Violation {
        invariant: NAME,
        at: bound,
        what: format!(
            "nobody of {survivors:?} took item {item} in time, which {} had begun for {due} and left when its session ended at \
             {lease_end}",
            begin.instance
        ),
    })
}

/// Whether failover was on from the begin of that run until its lease ended.
fn had_failover(evidence: &Evidence, begun: Timestamp, lease_end: Timestamp) -> bool {
    let path = evidence.path.config();
    let mut on = false;
    for change in evidence.history.iter().filter(|c| c.path == path) {
        let text = match &change.what {
            crate::What::Wrote { data, .. } => String::from_utf8_lossy(data).into_owned(),
            crate::What::Deleted | crate::What::SessionEnded => String::new(),
        };
        if change.at <= begun {
            on = text.contains("failover: true") && text.contains("monitorExecution: true");
        } else if change.at <= lease_end + BOUND {
            return false; // it was rewritten meanwhile
        }
    }
    on
}
