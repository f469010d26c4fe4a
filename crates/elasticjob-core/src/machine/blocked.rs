//! Items whose begin was rejected because of a `running` mark of another instance, or that another instance has taken over: whether that
//! one lives, and what becomes of the mark.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failover::{TAKEN_VERSION, lives_on};
use super::memory::Step;
use super::types::Effects;
use super::{JobEvent, JobMachine, StepResult};
use crate::limits;
use crate::path;
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op};
use crate::wire::Ledger;

/// A `failover` node whose taker is not there is deleted after this long; ephemeral ones go by themselves.
const TAKER_ODD: Duration = Duration::from_secs(1);
/// How long a taker that lives may take until it runs what it took.
const TAKER_TIME: Duration = Duration::from_secs(10);
/// How often a mark is looked at whose instance was shut down and lives on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl JobMachine {
    /// Rule: finds out whose mark it is that refused a begin, and clears it where its owner is gone.
    pub(super) fn inspect_blocked(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        self.look_at_takers(now);
        let late =
            self.takers.iter().find(|(_, (_, _, until))| *until <= now).map(|(item, taker)| (*item, taker.clone()));
        if let Some((item, (taker, gone, _))) = late {
            self.takers.remove(&item);
            if !gone {
                let queries =
                    vec![Query::Node(self.path.item_running(item)), Query::Node(self.path.item_failover(item))];
                return self.read(Step::InspectTaker { item, taker }, queries, out);
            }
            let op = Op::delete(self.path.item_failover(item));
            return self.commit(Step::ClearMark { item, of: taker }, vec![op], out);
        }
        let due = |(item, b): &(&u32, &super::memory::Blocked)| {
            let is_settled = b.is_orphan && !self.orphans.contains(item);
            let is_disabled = self.items.get(item).is_some_and(|own| own.disabled);
            !is_disabled && (b.inspect || is_settled || b.look_at().is_some_and(|at| at <= now))
        };
        let Some(item) = self.blocked.iter().find(due).map(|(item, _)| *item) else { return false };
        let queries = vec![
            Query::Node(self.path.item_running(item)),
            Query::Children(self.path.instances()),
            Query::Node(self.path.item_failovering(item)),
            Query::Node(self.path.item(item)),
            Query::Children(self.path.item_owner(item)),
            Query::Node(self.path.item_failover(item)),
        ];
        self.read(Step::Inspect { item }, queries, out)
    }

    /// An instance that has taken over an item of this one has time to run it; one that is gone has less.
    fn look_at_takers(&mut self, now: Timestamp) {
        let mut found = BTreeMap::new();
        for (number, item) in &self.items {
            let Some(by) = item.taken_by.clone().filter(|by| by != self.id() || self.is_dead(*number, by)) else {
                continue;
            };
            // An ephemeral one goes with its session: while it exists its process lives, registered or not.
            let gone = item.taken_in == 0 && self.is_dead(*number, &by);
            let until = match self.takers.get(number) {
                Some((taker, was_gone, until)) if *taker == by && *was_gone == gone => *until,
                _ if gone => now + TAKER_ODD,
                _ => (item.taken_at.min(now) + TAKER_TIME).max(now + TAKER_ODD),
            };
            found.insert(*number, (by, gone, until));
        }
        self.takers = found;
    }

    /// A taker that lives and does not run what it took: Java's does so when the mark of the dead is still there, for ever.
    pub(super) fn taker_inspected(
        &mut self,
        now: Timestamp,
        item: u32,
        taker: &str,
        result: StepResult,
        out: &mut Effects,
    ) {
        let StepResult::Answers(answers) = result else { return };
        let (running, failover) = (answers.first().and_then(Answer::node), answers.get(1).and_then(Answer::node));
        let Some(failover) = failover.filter(|n| n.is(taker)) else { return };
        if taker == self.id() && self.is_dead(item, taker) {
            self.half_taken.insert(item);
            return;
        }
        // It runs, or is a Rust instance, which needs no help: read again later.
        if running.is_some_and(|mark| mark.is(taker)) || (failover.owner != 0 && failover.version == TAKEN_VERSION) {
            self.takers.insert(item, (taker.to_owned(), false, now + TAKER_TIME));
            return;
        }
        // The mark of the dead is looked at when the item is begun.
        let ops = vec![Op::Delete { path: self.path.item_failover(item), version: Some(failover.version) }];
        self.commit(Step::ClearMark { item, of: taker.to_owned() }, ops, out);
    }

    pub(super) fn inspected(&mut self, now: Timestamp, item: u32, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        let Some(mark) = answers[0].node() else {
            self.blocked.remove(&item);
            return;
        };
        let (owner, version) = (mark.text(), mark.version);
        let ours = owner == self.id() && self.is_dead(item, &owner);
        let listed = path_lists(&answers[1], &owner);
        let ledger = answers[3].node().and_then(|n| Ledger::parse(&n.data));
        let taker = answers[5].node();
        let takes = taker.is_some_and(|n| ledger.is_some_and(|l| l.session == n.owner && mark.is(&l.instance)));
        // A Java instance that has taken the run over leaves the mark of the dead one until its own run ends.
        let is_taken = taker.is_some_and(|n| !n.is(self.id()) && !self.is_dead(item, &n.text()));
        if !ours && (listed || takes || is_taken || lives_on(mark, answers[3].node(), answers[4].children())) {
            // An instance that was shut down completes its runs; no event reports its death.
            let again = (!listed).then(|| now + LOOK_AGAIN);
            let by = taker.filter(|_| is_taken).map_or(owner, Node::text);
            return self.wait_for_mark(item, by, again, out);
        }
        let Some(blocked) = self.blocked.get_mut(&item) else { return };
        blocked.inspect = false;
        blocked.again = None;
        blocked.is_orphan = false;
        let since = *blocked.orphan_since.get_or_insert(now);
        if !ours && now < since + limits::SECOND_LOOK {
            return;
        }
        if self.taken.contains_key(&item) {
            // A mark from before this instance took the item over.
            let ops = vec![
                Op::check(self.path.item_failover(item), TAKEN_VERSION),
                Op::Delete { path: self.path.item_running(item), version: Some(version) },
            ];
            self.commit(Step::ClearMark { item, of: owner }, ops, out);
            return;
        }
        if self.config.as_ref().is_some_and(|c| c.failover) {
            // A begin would be refused again.
            blocked.is_orphan = true;
            blocked.orphan_since = None;
            self.orphans.insert(item);
            return;
        }
        // While this instance owns the item, no other instance can have begun it.
        let Some(own) = self.items.get(&item) else {
            self.blocked.remove(&item);
            return;
        };
        let mut ops = vec![
            Op::check(self.path.item_owner(item), own.owner_version),
            Op::exists(self.path.item_claim(item, self.session_id())),
            Op::Delete { path: self.path.item_running(item), version: Some(version) },
        ];
        // From before failover was switched off: later it would be taken for a run to take over.
        let failovering = answers.get(2).and_then(Answer::node).filter(|n| n.is(&owner));
        ops.extend(
            failovering.map(|n| Op::Delete { path: self.path.item_failovering(item), version: Some(n.version) }),
        );
        self.commit(Step::ClearMark { item, of: owner }, ops, out);
    }

    /// It runs elsewhere: this firing is missed, and caught up when the mark goes.
    fn wait_for_mark(&mut self, item: u32, by: String, again: Option<Timestamp>, out: &mut Effects) {
        let told = self.blocked.get(&item).is_some_and(|b| b.again.is_some());
        if let Some(blocked) = self.blocked.get_mut(&item) {
            blocked.inspect = false;
            blocked.again = again;
            blocked.orphan_since = None;
            blocked.is_orphan = false;
        }
        let misfire = self.config.as_ref().is_some_and(|c| c.misfire);
        if let Some(due) = self.schedule.last_due.filter(|d| self.items.get(&item).is_some_and(|i| i.accounted < *d)) {
            self.account(&[item], due, out);
            if let Some(own) = self.items.get_mut(&item) {
                own.accounted = due;
                own.miss(due, misfire);
            }
            self.say_missed(vec![item], due, out);
        }
        self.watch(vec![self.path.item_running(item)], out);
        if !told {
            out.report(JobEvent::Blocked { item, by });
        }
    }

    pub(super) fn mark_cleared(
        &mut self,
        now: Timestamp,
        item: u32,
        of: String,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => {
                self.blocked.remove(&item);
                out.report(JobEvent::ClearedMark { item, of });
            }
            StepResult::Refused(_) => {
                self.blocked.remove(&item);
                self.look_again(now, out);
            }
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => self.look_again(now, out),
        }
    }
}

fn path_lists(children: &Answer, id: &str) -> bool {
    children.children().iter().any(|name| path::name(name) == id)
}
