//! Back-off for each rule on its own: the machine evaluates a rule less and less often while the registry rejects its transactions,
//! and logs that once. The other rules continue.

use std::collections::BTreeMap;

use super::memory::Step;
use super::types::Effects;
use super::{JobMachine, Note, back_off};
use crate::limits;
use crate::time::Timestamp;

/// The rules that were rejected, by their index in `RULES`.
pub(super) type Rests = BTreeMap<usize, Rest>;

/// A rule whose transactions were rejected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// Rejections since the last commit of this rule.
    times: usize,
    /// Rejections before the rule pauses. It does not shrink: each retry omits the part that was rejected, and is shorter.
    patience: usize,
    /// When the rule is evaluated again.
    pub(super) until: Timestamp,
}

impl JobMachine {
    pub(super) fn is_resting(&self, rule: usize, now: Timestamp) -> bool {
        self.rests.get(&rule).is_some_and(|rest| now < rest.until)
    }

    /// Counts a rejection, and pauses the rule when there are too many.
    pub(super) fn rest(&mut self, now: Timestamp, rule: usize, step: &Step, out: &mut Effects) {
        let rest = self.rests.entry(rule).or_default();
        rest.patience = rest.patience.max(limits::REFUSALS_MAX + parts(step));
        rest.times += 1;
        let (times, patience) = (rest.times, rest.patience);
        if times >= patience {
            rest.until = now + back_off(times - patience);
        }
        if times == patience {
            out.note(Note::Refused { what: about(step), times });
        }
    }
}

/// The number of parts that the registry may reject one by one. More rejections mean that reads and writes disagree, and that another
/// read does not help.
fn parts(step: &Step) -> usize {
    match step {
        Step::Begin(plan) => plan.items.len(),
        Step::DropTriggers { triggers, .. } => triggers.len(),
        Step::AdoptTrigger { items, .. } | Step::Mark { items, .. } | Step::Misfire { items, .. } => items.len(),
        Step::Release { remnants, .. } => remnants.len(),
        Step::Report { results } => results.len(),
        Step::Leave { ops } | Step::Claim { ops, .. } => ops.len(),
        _ => 0,
    }
}

/// Names the rejected step in a log line.
fn about(step: &Step) -> String {
    match step {
        Step::Begin(plan) => format!("the begin of items {}", crate::ranges::Ranges(&plan.items)),
        Step::Join { .. } => "the registration".to_owned(),
        Step::Elect { .. } => "the election".to_owned(),
        Step::Claim { .. } => "the claim of the assigned items".to_owned(),
        Step::Flag | Step::AskForItems | Step::Reshard(_) => "a resharding".to_owned(),
        Step::TakeOver { .. } => "a takeover".to_owned(),
        Step::Release { .. } | Step::ReleaseLate { .. } => "the end of a run".to_owned(),
        Step::Leave { .. } => "the end of this instance's registration".to_owned(),
        _ => "a change of the job's nodes".to_owned(),
    }
}
