//! No begin without the assignment: at the transaction that began a run, its item named the instance as its owner, or as its
//! taker; and where runs are monitored it created `running`.

use std::collections::BTreeMap;

use super::{Replay, Violation};
use crate::{Entry, Evidence};
use elasticjob_core::machine::Source;

pub(super) const NAME: &str = "assignment";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut by_token: BTreeMap<i64, Vec<&Entry>> = BTreeMap::new();
    for run in evidence.runs.iter().filter(|run| !run.java) {
        by_token.entry(run.token).or_default().push(run);
    }
    let mut violations = Vec::new();
    let mut replay = Replay::default();
    let mut changes = evidence.history.iter().peekable();
    for (token, runs) in by_token {
        while let Some(change) = changes.next_if(|change| change.zxid < token) {
            replay.apply(change);
        }
        // Who had the item before the begin, which does not give it to itself.
        let owner = |run: &&Entry| {
            let path = match run.source {
                Source::Failover => evidence.path.item_failover(run.item),
                Source::Schedule | Source::Misfire | Source::Trigger => evidence.path.item_owner(run.item),
            };
            let text = replay.get(&path).map(|node| node.text());
            (path, text)
        };
        let owners: Vec<(String, Option<String>)> = runs.iter().map(owner).collect();
        while let Some(change) = changes.next_if(|change| change.zxid == token) {
            replay.apply(change);
        }
        for (run, (path, owner)) in runs.into_iter().zip(owners) {
            let mut fault = |what: String| violations.push(Violation { invariant: NAME, at: run.start, what });
            if owner.as_deref() != Some(run.instance.as_str()) {
                fault(format!("{} began item {} which {path} gives to {owner:?}: {run:?}", run.instance, run.item));
            }
            let monitored = replay.document(&evidence.path).is_some_and(|document| document.monitor_execution);
            if monitored && !replay.is(&evidence.path.item_running(run.item), &run.instance) {
                fault(format!("{} began item {} without its mark `running`: {run:?}", run.instance, run.item));
            }
        }
    }
    violations
}
