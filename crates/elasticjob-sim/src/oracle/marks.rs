//! No orphan mark after quiet: what says that an item runs is of a run that goes on, and what asks for something was
//! answered.

use std::collections::BTreeSet;
use std::time::Duration;

use elasticjob_core::path::item_of_trigger;
use elasticjob_core::wire::JobDocument;

use super::{Replay, Violation};
use crate::Evidence;

pub(super) const NAME: &str = "marks";

/// What young marks are allowed: they are of this very moment.
const YOUNG: Duration = Duration::from_secs(3);

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.terms.is_at_rest {
        return Vec::new();
    }
    let replay = Replay::of(&evidence.history);
    let end = evidence.terms.end;
    let live: BTreeSet<&str> = replay.below(&evidence.path.instances()).map(|(id, _)| id).collect();
    if live.is_empty() {
        return Vec::new(); // nobody is there to clear anything
    }
    let young = YOUNG.max(evidence.terms.run_max * 3) + evidence.terms.round_trip * 2;
    let document = replay.document(&evidence.path);
    let is = |flag: fn(&JobDocument) -> bool| document.as_ref().is_some_and(flag);
    let (misfire, failover, monitored) = (is(|d| d.misfire), is(|d| d.failover), is(|d| d.monitor_execution));
    let mut violations = Vec::new();
    for (path, node) in replay.iter() {
        let Some(rest) = path.strip_prefix(evidence.path.root()).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let text = node.text();
        let is_old = node.written + young < end;
        let dead = !live.contains(text.as_str());
        // What was interrupted waits until its item is enabled.
        let item = match parts.as_slice() {
            ["sharding", item, ..] | ["leader", "failover", "items", item] => item.parse().ok(),
            _ => None,
        };
        let waits = item.is_some_and(|item: u32| replay.get(&evidence.path.item_disabled(item)).is_some());
        // A planted mark that blocks nothing stays until it is used.
        let planted = evidence.history.iter().rev().find(|c| c.path == path).is_some_and(|c| c.session == 0);
        // Of an item that a live instance of Java's owns Java does not take it away.
        let owner = path.rsplit_once('/').map(|(item, _)| format!("{item}/instance")).unwrap_or_default();
        let java_s = evidence.is_java_s(&replay, path) || evidence.is_java_s(&replay, &owner);
        let left = match parts.as_slice() {
            ["sharding", item, "running"] => {
                let runs = evidence.runs.iter().any(|run| {
                    run.item.to_string() == *item
                        && run.instance == text
                        && run.end.is_none()
                        && run.lease_end.is_none()
                });
                is_old && monitored && (dead || !runs) && !java_s && !waits
            }
            ["sharding", _, "failover"] => is_old && !java_s,
            ["sharding", _, "failovering"] => is_old && !planted && !waits && !evidence.java.contains(&text),
            // Without misfire it stays until that is switched on, as in Java.
            ["sharding", _, "misfire"] => is_old && misfire && monitored && evidence.java.is_empty() && !planted,
            ["sharding", _, "instance", claim] if claim.starts_with("claim-") => {
                let session = u64::from_str_radix(&claim["claim-".len()..], 16).unwrap_or_default();
                session != node.owner
            }
            ["leader", "sharding", "necessary" | "processing"] => is_old,
            ["leader", "failover", "items", _] => is_old && failover && !planted && !waits,
            ["leader", _, "latch", _] => is_old,
            // A Rust owner runs it or drops it.
            ["trigger", name] if let Some(item) = item_of_trigger(name) => {
                let owner = evidence.path.item_owner(item);
                let owned = replay.get(&owner).is_some_and(|node| live.contains(node.text().as_str()));
                let busy =
                    evidence.runs.iter().any(|run| run.item == item && run.end.is_none_or(|at| at + young >= end));
                is_old && owned && !busy && !evidence.is_java_s(&replay, &owner)
            }
            ["trigger", id] => is_old && live.contains(id) && !evidence.java.contains(*id),
            _ => false,
        };
        if left {
            let what = format!("{path} = `{text}` (since {}, session {:x}) is left", node.since, node.owner);
            violations.push(Violation { invariant: NAME, at: end, what });
        }
    }
    violations
}
