//! No instance sends requests repeatedly without a pause, whatever the fault: a rule that makes no progress waits.

use super::Violation;
use crate::Evidence;

pub(super) const NAME: &str = "calm";

/// Requests of one job on one instance, each sent immediately after the previous answer. A loop never ends; some forty were
/// seen without a fault.
const AT_MOST: u32 = 150;

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let rows = evidence.longest_rows.iter().filter(|(_, (_, requests))| *requests > AT_MOST);
    rows.map(|(instance, (at, requests))| Violation {
        invariant: NAME,
        at: *at,
        what: format!("{instance} asked the registry {requests} times in a row, without a pause"),
    })
    .collect()
}
