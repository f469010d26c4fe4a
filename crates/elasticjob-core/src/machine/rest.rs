//! Back-off for each rule on its own: the machine evaluates a rule less and less often while the registry rejects its transactions,
//! and logs that once. The other rules continue.

use std::collections::BTreeMap;
use std::time::Duration;

use super::memory::Step;
use super::types::Effects;
use super::{JobEvent, JobMachine, back_off};
use crate::limits;
use crate::time::Timestamp;
use crate::tree::Reason;

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
    /// When it was rejected last.
    pub(super) last: Timestamp,
}

/// A rejection so long after the one before has a cause of its own.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

impl Rest {
    /// Counts a rejection of a transaction with that many parts, and pauses when there are too many. Returns their number when it begins
    /// to pause.
    fn count(&mut self, now: Timestamp, parts: usize) -> Option<usize> {
        if now.since(self.last.max(self.until)) > FORGOTTEN_AFTER {
            *self = Rest::default();
        }
        self.last = now;
        self.patience = self.patience.max(limits::REFUSALS_MAX + parts);
        self.times += 1;
        if self.times >= self.patience {
            self.until = now + back_off(self.times - self.patience);
        }
        (self.times == self.patience).then_some(self.times)
    }
}

impl JobMachine {
    pub(super) fn is_resting(&self, rule: usize, now: Timestamp) -> bool {
        self.rests.get(&rule).is_some_and(|rest| now < rest.until)
    }

    /// Counts a rejection, and pauses the rule when there are too many.
    pub(super) fn rest(&mut self, now: Timestamp, rule: usize, step: &Step, reason: Reason, out: &mut Effects) {
        let paused = self.rests.entry(rule).or_default().count(now, parts(step));
        // A missing right is logged by the process, with its node, and the servers agree.
        if let Some(times) = paused.filter(|_| reason != Reason::Forbidden) {
            let items = if let Step::Begin(plan) = step { plan.items.clone() } else { Vec::new() };
            out.report(JobEvent::Refused { step: name(step), items, times });
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
        Step::ReadApplied
        | Step::Join { .. }
        | Step::EnableAgain
        | Step::Publish { .. }
        | Step::ConfirmShutdown
        | Step::AnnounceLeave
        | Step::Server
        | Step::Tidy
        | Step::ReadLeader { .. }
        | Step::Elect { .. }
        | Step::Abdicate
        | Step::ReadOwners
        | Step::ReadOwn { .. }
        | Step::Flag
        | Step::AskForItems
        | Step::ReadQueue { .. }
        | Step::ReadPlaces { .. }
        | Step::LeavePlaces { .. }
        | Step::Survey(_)
        | Step::Reshard(_)
        | Step::Settle { .. }
        | Step::Abandon { .. }
        | Step::LookAgain
        | Step::ReadLate { .. }
        | Step::ReleaseLate { .. }
        | Step::ReadMark { .. }
        | Step::Trigger
        | Step::Inspect { .. }
        | Step::InspectTaker { .. }
        | Step::ClearMark { .. }
        | Step::FindOrphans { .. }
        | Step::FindLeft { .. }
        | Step::ReadOrphans { .. }
        | Step::TakeOver { .. }
        | Step::SettleTakeovers { .. } => 0,
    }
}

/// The name of the rejected step in a log line.
fn name(step: &Step) -> &'static str {
    match step {
        Step::Begin(_) => "begin",
        Step::Join { .. } | Step::Publish { .. } => "registration",
        Step::AnnounceLeave | Step::Leave { .. } | Step::ConfirmShutdown => "deregistration",
        Step::Elect { .. } | Step::ReadLeader { .. } => "election",
        Step::Abdicate => "resignation",
        Step::Claim { .. } => "claim",
        Step::Flag | Step::AskForItems | Step::Reshard(_) | Step::Survey(_) => "resharding",
        Step::TakeOver { .. } | Step::SettleTakeovers { .. } => "takeover",
        Step::Release { .. } | Step::ReleaseLate { .. } | Step::ReadLate { .. } => "release",
        Step::Settle { .. } | Step::Abandon { .. } => "settlement of a begin",
        Step::Mark { .. } | Step::Misfire { .. } | Step::ReadMark { .. } => "misfire mark",
        Step::ClearMark { .. } => "deletion of a stale mark",
        Step::AdoptTrigger { .. } | Step::DropTriggers { .. } | Step::Trigger => "trigger",
        Step::Report { .. } => "result of a trigger",
        Step::Server => "server node",
        Step::Tidy => "deletion of old nodes",
        Step::EnableAgain => "change of `disabled` in the configuration",
        Step::ReadQueue { .. } | Step::ReadPlaces { .. } | Step::LeavePlaces { .. } => "latch",
        Step::ReadApplied
        | Step::ReadOwners
        | Step::ReadOwn { .. }
        | Step::LookAgain
        | Step::Inspect { .. }
        | Step::InspectTaker { .. }
        | Step::FindOrphans { .. }
        | Step::FindLeft { .. }
        | Step::ReadOrphans { .. } => "read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_in_a_row_make_a_rule_pause_and_old_ones_do_not_count() {
        let mut rest = Rest::default();
        let mut now = Timestamp(1_000_000);
        let reported: Vec<usize> = (0..20)
            .filter_map(|_| {
                now = rest.until.max(now + Duration::from_secs(1));
                rest.count(now, 1)
            })
            .collect();
        assert_eq!(reported, [limits::REFUSALS_MAX + 1], "once");
        assert_eq!(rest.until, now + limits::RETRY_MAX);

        let mut rest = Rest::default();
        for hour in 0..100 {
            let now = Timestamp(hour * 3_600_000);
            assert_eq!(rest.count(now, 1), None);
            assert!(rest.until <= now, "it does not pause");
        }
    }
}
