//! Nobody asks the registry again and again without a pause, whatever is wrong: a rule that makes no progress waits.

use super::Violation;
use crate::Evidence;

pub(super) const NAME: &str = "calm";

/// Requests of one job on one instance, each sent at once when the one before was answered. A loop never ends; some forty were
/// seen where all was well.
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
