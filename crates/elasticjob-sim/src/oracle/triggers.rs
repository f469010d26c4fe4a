//! A trigger of an item leads to one run of it: it is deleted by a begin of that item, or dropped because the item is disabled or
//! gone, and an item has no more triggered runs than it had triggers.

use std::collections::{BTreeMap, BTreeSet};

use elasticjob_core::machine::Source;
use elasticjob_core::path::Place;

use super::{Replay, Violation};
use crate::{Evidence, What};

pub(super) const NAME: &str = "triggers";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut replay = Replay::default();
    let (mut of_items, mut of_instances): (BTreeMap<u32, usize>, usize) = (BTreeMap::new(), 0);
    let begins: BTreeSet<(i64, &str)> = evidence
        .history
        .iter()
        .filter(|change| matches!(change.what, What::Wrote { .. }))
        .map(|change| (change.zxid, change.path.as_str()))
        .collect();
    for change in &evidence.history {
        match (evidence.path.place(&change.path), &change.what) {
            (Some(Place::ItemTrigger(item, _)), What::Wrote { .. }) => *of_items.entry(item).or_default() += 1,
            (Some(Place::Trigger(_)), What::Wrote { .. }) => of_instances += 1,
            // An operator may take one back.
            (Some(Place::ItemTrigger(item, _)), What::Deleted) if change.session != 0 => {
                let begun = begins.contains(&(change.zxid, evidence.path.item(item).as_str()));
                let servers: Vec<String> =
                    replay.below(&evidence.path.servers()).map(|(_, server)| server.text()).collect();
                let is_disabled = replay.get(&evidence.path.item_disabled(item)).is_some()
                    || (!servers.is_empty() && servers.iter().all(|state| state == "DISABLED"));
                let is_gone = replay.get(&evidence.path.item(item)).is_none()
                    || replay.document(&evidence.path).is_none_or(|d| i64::from(item) >= d.sharding_total_count);
                if !begun && !is_disabled && !is_gone {
                    let what = format!("the trigger {} was deleted without a begin of its item", change.path);
                    violations.push(Violation { invariant: NAME, at: change.at, what });
                }
            }
            _ => {}
        }
        replay.apply(change);
    }
    let mut runs: BTreeMap<u32, usize> = BTreeMap::new();
    for run in evidence.runs.iter().filter(|run| !run.java && run.source == Source::Trigger) {
        let count = runs.entry(run.item).or_default();
        *count += 1;
        let triggers = of_items.get(&run.item).copied().unwrap_or_default() + of_instances;
        if *count > triggers {
            let what = format!("item {} ran {count} times by {triggers} triggers: {run:?}", run.item);
            violations.push(Violation { invariant: NAME, at: run.start, what });
        }
    }
    violations
}
