//! Nobody asks the registry again and again without a pause, whatever is wrong: a rule that makes no progress waits.

use super::Violation;
use crate::Evidence;

pub(super) const NAME: &str = "calm";

/// Requests of one job on one instance in one second. A loop that waits for nothing but its answers makes hundreds.
const AT_MOST: u32 = 100;

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let busiest = evidence.busiest.iter().filter(|(_, (_, requests))| *requests > AT_MOST);
    busiest
        .map(|(instance, (at, requests))| Violation {
            invariant: NAME,
            at: *at,
            what: format!("{instance} asked the registry {requests} times within a second"),
        })
        .collect()
}
