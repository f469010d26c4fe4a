//! Back-off, for each rule on its own: a rule whose transactions are refused again and again is asked less and less, which is told
//! once; the others go on meanwhile.

use std::collections::BTreeMap;

use super::types::{Effects, Step};
use super::{JobMachine, Note, back_off};
use crate::limits;
use crate::time::Timestamp;

/// The rules that rest, or may have to, by their place in `RULES`.
pub(super) type Rests = BTreeMap<usize, Rest>;

/// A rule that was refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// How often in a row.
    times: usize,
    /// How often it may be before it rests: what is refused is left out of the next step, which then has fewer parts.
    patience: usize,
    /// Until when it is not asked.
    pub(super) until: Timestamp,
}

impl JobMachine {
    pub(super) fn is_resting(&self, rule: usize, now: Timestamp) -> bool {
        self.rests.get(&rule).is_some_and(|rest| now < rest.until)
    }

    /// The step of that rule was refused.
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

/// Each part of a step may be refused for a reason of its own, and is left out then. Where there are more refusals, what is read is
/// not what decides, and reading it again is vain.
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

/// What was refused, for people.
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
