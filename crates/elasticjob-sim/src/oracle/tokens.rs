//! Fencing tokens rise: a later run of an item has a higher one, in the whole cluster. Where runs are not monitored one may
//! start while the begin before it is on its way, which its token shows.

use std::collections::BTreeMap;

use super::Violation;
use super::overlap::{has_lost_its_mark, unmonitored};
use crate::{Entry, Evidence};

pub(super) const NAME: &str = "tokens";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut last: BTreeMap<u32, &Entry> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut runs: Vec<&Entry> =
        evidence.runs.iter().filter(|run| !run.java && !evidence.is_beyond_its_lease(run)).collect();
    runs.sort_by_key(|run| run.start);
    for run in runs {
        if let Some(before) = last.insert(run.item, run)
            && before.token >= run.token
            && !has_lost_its_mark(evidence, before, run)
            && !unmonitored(evidence, run)
        {
            let what = format!("item {}: token {} behind {}: {before:?}, {run:?}", run.item, run.token, before.token);
            violations.push(Violation { invariant: NAME, at: run.start, what });
        }
    }
    violations
}
