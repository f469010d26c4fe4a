//! The second of a run's two transactions: it deletes the marks that the begin created, and nothing else.
//!
//! What is ours is known by its version, its session and the version of the ledger that the begin wrote; what is not known is
//! looked at.

use std::collections::BTreeSet;

use super::failover::TAKEN_VERSION;
use super::memory::{Abandoned, Busy, Mark, Phase, Purpose, Step};
use super::types::Effects;
use super::{EndedItem, ItemEnd, JobEvent, JobMachine, RunId, StepResult};
use crate::limits;
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op, Reason, Refusal};

/// A remaining node of a run: an operation of its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remnant {
    /// No instance has begun the item since: its ledger has that version.
    Ledger(i32),
    /// The mark that it runs goes.
    Running,
    /// The marks of a takeover go.
    Failover,
    Failovering,
    /// That Java asked for a takeover.
    Asked,
}

impl JobMachine {
    pub(super) fn items_ended(&mut self, now: Timestamp, ended: &[EndedItem], out: &mut Effects) {
        let (mut items, mut failed) = (Vec::new(), Vec::new());
        for EndedItem { run, item, end } in ended {
            let Some(busy) = self.busy.get(item).filter(|b| b.run == *run) else { continue };
            if *end == ItemEnd::NotStarted {
                let busy = busy.clone();
                self.begin_lost(now, *item, &busy);
                out.report(JobEvent::Lost { items: vec![*item], due: busy.due });
                continue;
            }
            items.push(*item);
            if *end == ItemEnd::Failed {
                failed.push(*item);
            }
            self.item_ended(now, *item, *end == ItemEnd::Failed);
        }
        if !items.is_empty() {
            items.sort_unstable();
            failed.sort_unstable();
            out.report(JobEvent::Ended { items, failed });
        }
    }

    fn item_ended(&mut self, now: Timestamp, item: u32, failed: bool) {
        let session = self.session_id();
        let Some(busy) = self.busy.get_mut(&item) else { return };
        busy.phase = Phase::Ended { at: now };
        let requests = std::mem::take(&mut busy.requests);
        let (mark, taken, begun_in) = (busy.mark, busy.taken, busy.session);
        let was_cut_off = failed && self.cut_off.is_some();
        if mark == Mark::Persistent && was_cut_off {
            // Its mark stays, so that another one takes the run over, and answers who waits for it.
            self.cut.insert(item, taken && begun_in == session);
            self.busy.remove(&item);
            return;
        }
        let result = if failed { "failed" } else { "ok" };
        self.results.extend(requests.into_iter().map(|request| (request, result)));
        if mark == Mark::None {
            self.busy.remove(&item);
        }
    }

    /// The ended items that are to be released now, and else when to look again.
    fn releasable(&self, now: Timestamp) -> (Vec<u32>, Option<Timestamp>) {
        let ended = |b: &Busy| match b.phase {
            Phase::Ended { at } => Some(at),
            Phase::Beginning | Phase::Unsettled | Phase::Running => None,
        };
        if !self.busy.values().any(|b| ended(b).is_some()) {
            return (Vec::new(), None);
        }
        let unfinished: BTreeSet<RunId> = self.busy.values().filter(|b| ended(b).is_none()).map(|b| b.run).collect();
        let session = self.session_id();
        let mut wait: Option<Timestamp> = None;
        let mut ready = Vec::new();
        for (item, busy) in &self.busy {
            let Some(at) = ended(busy).filter(|_| busy.session == session) else { continue };
            let gathered = at + limits::END_GATHER;
            if !unfinished.contains(&busy.run) || gathered <= now {
                ready.push(*item);
            } else {
                wait = Some(wait.map_or(gathered, |w| w.min(gathered)));
            }
        }
        (ready, wait)
    }

    pub(super) fn release_at(&self) -> Option<Timestamp> {
        if self.busy.is_empty() { None } else { self.releasable(self.schedule.last_tick).1 }
    }

    /// Rule: takes the marks of ended items away: together, but none waits long for a slow one of its run.
    pub(super) fn release(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if let Some((item, of)) = self.abandoned.first_key_value().map(|(item, of)| (*item, *of)) {
            let mut ops = vec![Op::Delete { path: self.path.item_failovering(item), version: of.seen }];
            if of.failover {
                // Only while it is ours: a Java instance may have put its own in its place.
                ops.insert(0, Op::Delete { path: self.path.item_failover(item), version: Some(TAKEN_VERSION) });
            }
            return self.commit(Step::Abandon { item }, ops, out);
        }
        if self.busy.is_empty() {
            return false;
        }
        let session = self.session_id();
        // An ephemeral mark of a session that is over was deleted with it, and there is none if creating it again
        // was rejected after the end of the run.
        self.busy.retain(|_, b| {
            let is_old = b.mark == Mark::Ephemeral && ![0, session].contains(&b.session);
            if !matches!(b.phase, Phase::Ended { .. }) {
                return true;
            }
            if is_old && b.remarked {
                b.session = 0; // it may have been made anew, the answer being lost: it is looked at
                return true;
            }
            !is_old && b.mark != Mark::None
        });
        let (mut items, _) = self.releasable(now);
        if items.is_empty() {
            return false;
        }
        items.truncate(limits::ITEMS_PER_COMMIT);
        let mut remnants = Vec::new();
        for item in &items {
            let Some(busy) = self.busy.get(item) else { continue };
            // The mark may belong to another instance if ours was deleted, and others have begun the item since.
            remnants.extend([(*item, Remnant::Ledger(busy.version + 1)), (*item, Remnant::Running)]);
            if busy.taken {
                remnants.extend([(*item, Remnant::Failover), (*item, Remnant::Failovering)]);
                // Asked for by Java while the takeover was on its way: this run was it.
                if self.state.failover_items.contains(item) {
                    remnants.push((*item, Remnant::Asked));
                }
            }
        }
        self.commit_release(items, remnants, out)
    }

    fn commit_release(&mut self, items: Vec<u32>, remnants: Vec<(u32, Remnant)>, out: &mut Effects) -> bool {
        let path = &self.path;
        let op = |(item, remnant): &(u32, Remnant)| match remnant {
            Remnant::Ledger(version) => Op::check(path.item(*item), *version),
            // At the version of its creation: Java writes its own id over a mark that it finds.
            Remnant::Running => Op::Delete { path: path.item_running(*item), version: Some(0) },
            Remnant::Failover => Op::Delete { path: path.item_failover(*item), version: Some(TAKEN_VERSION) },
            Remnant::Failovering => Op::delete(path.item_failovering(*item)),
            Remnant::Asked => Op::delete(path.failover_item(*item)),
        };
        let ops = remnants.iter().map(op).collect();
        self.commit(Step::Release { items, remnants }, ops, out)
    }

    pub(super) fn release_done(
        &mut self,
        now: Timestamp,
        items: Vec<u32>,
        mut remnants: Vec<(u32, Remnant)>,
        result: StepResult,
        out: &mut Effects,
    ) {
        if let StepResult::Refused(refusal) = &result {
            let (refused, remnant) = remnants.remove(refusal.op); // gone already, which is what we want
            if let Remnant::Ledger(_) = remnant {
                remnants.retain(|(item, _)| *item != refused); // others have begun it since: what stands there is theirs
            }
            if remnants.iter().any(|(_, remnant)| !matches!(remnant, Remnant::Ledger(_))) {
                self.commit_release(items, remnants, out);
                return;
            }
        }
        match result {
            StepResult::Committed { .. } | StepResult::Refused(_) => {
                let done = items.clone();
                for item in items {
                    self.busy.remove(&item);
                }
                self.yield_to_move(now, &done);
            }
            StepResult::Unknown => self.release_unknown(&items),
            StepResult::Failed | StepResult::Answers(_) => self.pause(now),
        }
    }

    /// The nodes of a takeover that came to nothing are gone, or another one's.
    pub(super) fn abandoned(&mut self, now: Timestamp, item: u32, result: StepResult, out: &mut Effects) {
        match result {
            // A begin of the owner deleted `failovering` as superseded; our `failover` still exists.
            StepResult::Refused(refusal) if refusal.op == 1 => {
                let op = Op::Delete { path: self.path.item_failover(item), version: Some(TAKEN_VERSION) };
                self.commit(Step::Abandon { item }, vec![op], out);
            }
            // Java takes every `failover` away when failover is switched off. What became of `failovering` is looked at.
            StepResult::Refused(Refusal { op: 0, reason: Reason::Missing })
                if self.abandoned.get(&item).is_some_and(|of| of.failover) =>
            {
                self.abandoned.remove(&item);
                if self.config.as_ref().is_some_and(|c| c.failover) {
                    self.orphans.insert(item);
                } else {
                    self.abandoned.insert(item, Abandoned { failover: false, seen: None });
                }
            }
            StepResult::Committed { .. } | StepResult::Refused(_) => drop(self.abandoned.remove(&item)),
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => self.pause(now),
        }
    }

    /// Items that are to be caught up immediately, and belong to another instance by the strategy, give the leader time.
    fn yield_to_move(&mut self, now: Timestamp, items: &[u32]) {
        let missed = |number: &&u32| self.items.get(number).is_some_and(|item| item.missed.is_some());
        let fixed = self.config.as_ref().is_some_and(|c| c.static_sharding);
        let missed: Vec<u32> = items.iter().filter(missed).copied().collect();
        if missed.is_empty() || fixed {
            return;
        }
        let Some(wanted) = self.desired(now) else { return };
        let moves: Vec<u32> =
            missed.into_iter().filter(|number| wanted.get(number).is_some_and(|id| id != self.id())).collect();
        for number in moves {
            if let Some(item) = self.items.get_mut(&number) {
                item.yields_until = now + limits::MOVE_YIELD;
            }
        }
    }

    /// When an item that gave way may be caught up after all.
    pub(super) fn yield_ends_at(&self) -> Option<Timestamp> {
        let now = self.schedule.last_tick;
        self.items.values().filter(|i| i.missed.is_some()).map(|i| i.yields_until).filter(|at| *at > now).min()
    }

    /// Done or not: it is not tried again, since the mark may be another one's by now. One that is still ours is found by
    /// its session or its transaction.
    pub(super) fn release_unknown(&mut self, items: &[u32]) {
        for item in items {
            if let Some(busy) = self.busy.get_mut(item) {
                busy.session = 0;
            }
        }
    }

    /// Rule: creates the marks of runs of an earlier session again, in this one. Until they end, no instance begins these items: neither this
    /// instance nor another one that owns them now.
    pub(super) fn keep_marks(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let session = self.session_id();
        let unmarked = |b: &Busy| b.phase == Phase::Running && b.mark == Mark::Ephemeral && b.session != session;
        let unmarked = self.busy.iter().filter(|(_, b)| unmarked(b)).map(|(item, _)| *item);
        let items: Vec<u32> = unmarked.take(limits::ITEMS_PER_COMMIT).collect();
        if items.is_empty() || self.is_held() {
            return false;
        }
        // No instance has begun it since.
        let version = |item: &u32| self.busy.get(item).map(|b| b.version + 1).unwrap_or_default();
        let mark = |item: &u32| {
            [Op::check(self.path.item(*item), version(item)), Op::ephemeral(self.path.item_running(*item), self.id())]
        };
        let ops: Vec<Op> = items.iter().flat_map(mark).collect();
        for item in &items {
            if let Some(busy) = self.busy.get_mut(item) {
                busy.remarked = true;
            }
        }
        self.commit(Step::Mark { items, ops: ops.clone() }, ops, out)
    }

    pub(super) fn marks_kept(
        &mut self,
        now: Timestamp,
        items: Vec<u32>,
        mut ops: Vec<Op>,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => {
                let session = self.session_id();
                for item in items {
                    if let Some(busy) = self.busy.get_mut(&item) {
                        busy.session = session;
                    }
                }
            }
            StepResult::Refused(refusal) => {
                let path = ops.swap_remove(refusal.op).path().to_owned();
                let is_same = |item: &&u32| self.path.item(**item) == path;
                if let Some(busy) = items.iter().find(is_same).and_then(|item| self.busy.get_mut(item)) {
                    busy.mark = Mark::None; // somebody else runs it by now: nothing of ours to release
                } else if let Some(item) = items.iter().find(|item| self.path.item_running(**item) == path) {
                    self.read_mark(*item, out);
                }
            }
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => self.pause(now),
        }
    }

    /// A mark that exists where one is to be created again: another one's, or ours, when an answer was lost.
    pub(super) fn read_mark(&mut self, item: u32, out: &mut Effects) -> bool {
        self.read(Step::ReadMark { item }, vec![Query::Node(self.path.item_running(item))], out)
    }

    pub(super) fn mark_read(&mut self, now: Timestamp, item: u32, result: StepResult) {
        let StepResult::Answers(answers) = result else { return self.pause(now) };
        let session = self.session_id();
        let mark = answers.first().and_then(Answer::node);
        let ours = mark.is_some_and(|m| m.is(self.id()) && m.owner == session && m.version == 0);
        let Some(busy) = self.busy.get_mut(&item) else { return };
        if ours {
            busy.session = session;
        } else {
            busy.mark = Mark::None;
        }
    }

    /// Rule: a run of a failover job that outlived its session: its mark is ours only while its transaction is that of our
    /// begin, and it is read and deleted while holding the failover latch, so that no takeover comes in between.
    pub(super) fn release_late(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let session = self.session_id();
        // Or one whose release has an unknown end: its mark may stand there in this very session.
        let late = |b: &Busy| {
            let of_before = b.mark == Mark::Persistent && b.session != session;
            matches!(b.phase, Phase::Ended { .. }) && (of_before || (b.mark == Mark::Ephemeral && b.session == 0))
        };
        if self.is_removed() && self.busy.values().any(|b| late(b)) {
            // The job was removed, and its marks with it. The latch would create its nodes again.
            self.busy.retain(|_, b| !late(b));
            return true;
        }
        let Some(item) = self.busy.iter().find(|(_, b)| late(b)).map(|(item, _)| *item) else {
            if self.latch.as_ref().is_some_and(|l| l.purpose == Purpose::LateRelease) {
                self.release_latch(out);
            }
            return false;
        };
        if self.latch.is_none() {
            self.ask_latch(now, Purpose::LateRelease, out);
            return false;
        }
        let Some(latch) = self.held_latch(Purpose::LateRelease) else { return false };
        let queries = vec![
            Query::Node(self.path.item_running(item)),
            Query::Node(self.path.item_failover(item)),
            Query::Node(self.path.item_failovering(item)),
        ];
        self.read(Step::ReadLate { item, latch }, queries, out)
    }

    pub(super) fn late_read(&mut self, now: Timestamp, item: u32, latch: &str, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return self.look_again(now, out) };
        let Some((token, taken)) = self.busy.get(&item).map(|b| (b.token, b.taken)) else { return };
        // Of its begin, or set again in a later session.
        let renewed = |mark: &Node| mark.owner != 0 && mark.owner == self.session_id() && mark.is(self.id());
        let is_ours = |mark: &Node| mark.version == 0 && (mark.czxid == token || renewed(mark));
        let marked = answers[0].node().is_some_and(is_ours);
        let mut ops = vec![Op::delete(latch)];
        if marked {
            ops.push(Op::Delete { path: self.path.item_running(item), version: Some(0) });
        }
        // An instance that deleted the mark, as Java does, left those of the takeover.
        if marked || taken {
            let ours = |index: usize| answers[index].node().filter(|n| n.is(self.id()));
            let delete = |path: String, node: &Node| Op::Delete { path, version: Some(node.version) };
            let failover = ours(1).filter(|n| n.version == TAKEN_VERSION);
            ops.extend(failover.map(|n| delete(self.path.item_failover(item), n)));
            ops.extend(ours(2).map(|n| delete(self.path.item_failovering(item), n)));
        }
        if ops.len() == 1 {
            self.busy.remove(&item); // taken over, or cleared
            return;
        }
        self.commit(Step::ReleaseLate { item, latch: latch.to_owned() }, ops, out);
    }

    pub(super) fn late_released(&mut self, item: u32, latch: &str, result: StepResult, out: &mut Effects) {
        if matches!(result, StepResult::Committed { .. }) {
            self.busy.remove(&item);
            debug_assert!(self.latch.as_ref().is_none_or(|l| l.node.as_deref() == Some(latch)));
            self.latch = None;
        } else {
            self.release_latch(out);
        }
    }
}
