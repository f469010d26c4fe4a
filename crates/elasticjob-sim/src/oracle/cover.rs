//! After quiet the assignments cover each item once, on live instances whose servers are enabled, as the strategy wants; and
//! no item beyond the count is left.

use std::collections::BTreeMap;

use elasticjob_core::limits;
use elasticjob_core::path::parse_item;
use elasticjob_core::shard;
use elasticjob_core::time::Timestamp;

use super::{Replay, Violation};
use crate::{Change, Evidence};

pub(super) const NAME: &str = "cover";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.terms.is_at_rest {
        return Vec::new();
    }
    // A leader of Java's that waited for long and goes on although it leads no more is no rest.
    let late = |change: &&Change| change.at + limits::OWNERS_RECHECKS[2] > evidence.terms.end;
    let by_java =
        |change: &Change| change.path == evidence.path.processing() && evidence.is_java_s_session(change.session);
    if evidence.history.iter().rev().take_while(late).any(by_java) {
        return Vec::new();
    }
    let replay = Replay::of(&evidence.history);
    let path = &evidence.path;
    let Some(document) = replay.document(path) else {
        return Vec::new();
    };
    let total = u32::try_from(document.sharding_total_count).unwrap_or_default();
    let mut violations = Vec::new();
    let mut fault = |what: String| violations.push(Violation { invariant: NAME, at: evidence.terms.end, what });
    let live: Vec<String> = replay.available(path).map(str::to_owned).collect();
    if live.is_empty() {
        return Vec::new();
    }
    let mut owners: BTreeMap<u32, String> = BTreeMap::new();
    for (name, _) in replay.below(&path.sharding()) {
        match parse_item(name) {
            Some(item) if item < total => {
                let owner = replay.get(&path.item_owner(item)).map(|node| node.text());
                owners.extend(owner.map(|owner| (item, owner)));
            }
            // Java's leader misses a change of the count that comes while it divides.
            _ if !evidence.java.is_empty() => {}
            _ => fault(format!("`sharding/{name}` is left, of {total} items")),
        }
    }
    for item in 0..total {
        match owners.get(&item) {
            None => fault(format!("item {item} has no owner")),
            Some(owner) if !live.contains(owner) => {
                fault(format!("item {item} belongs to {owner}, which is not there or disabled; live: {live:?}"));
            }
            Some(_) => {}
        }
    }
    // Java loses a join that comes while it divides, and the last instance's leaving too.
    if evidence.java.is_empty() && !document.static_sharding && document.job_sharding_strategy_type.is_none() {
        let wanted: BTreeMap<u32, String> = shard::built_in()
            .first()
            .map(|strategy| strategy.assign(&shard::descending(live), path.job(), total, Timestamp(0)))
            .unwrap_or_default()
            .into_iter()
            .flat_map(|(id, items)| items.into_iter().map(move |item| (item, id.clone())))
            .collect();
        // One whose runs follow each other without a pause moves when the leader sees it idle.
        let busy = |item: &u32| {
            let recent = evidence
                .runs
                .iter()
                .filter(|run| run.item == *item && run.start + evidence.terms.run_max > evidence.terms.end);
            evidence.terms.run_max > limits::MOVE_YIELD && recent.count() > 0
        };
        let differ = wanted.iter().any(|(item, owner)| owners.get(item) != Some(owner) && !busy(item));
        if differ || wanted.len() != owners.len() {
            fault(format!("the items are {owners:?}, the strategy wants {wanted:?}"));
        }
    }
    violations
}
