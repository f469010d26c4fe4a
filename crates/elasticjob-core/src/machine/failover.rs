//! Marks of the dead (Java: `FailoverService`, `FailoverListenerManager`): runs of instances that died are taken over where
//! failover is on, and their marks cleared where it is not.

use std::collections::BTreeSet;
use std::time::Duration;

use super::types::{Effects, Purpose, Step};
use super::{JobMachine, Note, StepResult};
use crate::limits;
use crate::path;
use crate::time::Timestamp;
use crate::tree::Op;
use crate::view::{Answer, Query};
use crate::wire::Ledger;

/// A `failover` node whose taker is not there is deleted after this long; ephemeral ones go by themselves.
const TAKER_ODD: Duration = Duration::from_secs(1);
/// For how long it matters who has gone and when.
const GONE_KEPT: Duration = Duration::from_secs(600);

impl JobMachine {
    /// When a second look at something that vanished is due.
    pub(super) fn second_look_at(&self) -> Option<Timestamp> {
        let gone = self.bereaved.iter().filter_map(|id| self.gone.get(id)).map(|t| *t + limits::SECOND_LOOK);
        let blocked = self.blocked.values().filter_map(super::types::Blocked::look_at);
        let takers = self.takers_odd_since.values().map(|t| *t + TAKER_ODD);
        let leader = self.is_leader().then(|| self.gone.values().max().map(|t| *t + limits::SECOND_LOOK)).flatten();
        let leader = leader.filter(|t| *t > self.schedule.last_tick);
        gone.chain(blocked).chain(takers).chain(leader).min()
    }

    /// Rule: looks for runs that instances left behind when they died.
    pub(super) fn find_orphans(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        self.gone.retain(|_, since| now < *since + GONE_KEPT);
        let Some(config) = self.config.clone() else { return false };
        if !config.failover {
            self.bereaved.clear();
            self.orphans.clear();
            return false;
        }
        let waits = self.bereaved.iter().filter_map(|id| self.gone.get(id)).any(|t| now < *t + limits::SECOND_LOOK);
        if self.bereaved.is_empty() || waits || !self.is_available() {
            return false;
        }
        self.bereaved.clear();
        let items: Vec<u32> = (0..config.sharding_total_count).collect();
        let queries = items
            .iter()
            .flat_map(|i| {
                [
                    Query::Node(self.path.item_running(*i)),
                    Query::Node(self.path.item_failovering(*i)),
                    Query::Node(self.path.item_failover(*i)),
                ]
            })
            .collect();
        self.read(Step::FindOrphans { items }, queries, out)
    }

    pub(super) fn orphans_found(&mut self, now: Timestamp, items: &[u32], result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else {
            self.bereaved.insert(String::new());
            return self.look_again(now, out);
        };
        for (item, answers) in items.iter().zip(answers.chunks(3)) {
            let dead = |index: usize| answers[index].node().is_some_and(|n| self.is_dead(*item, &n.text()));
            if answers[2].node().is_none() && (dead(0) || (answers[0].node().is_none() && dead(1))) {
                self.orphans.insert(*item);
            }
        }
    }

    /// Whether a mark with that id belongs to nobody: its instance is gone, or it is ours and we do not run the item.
    fn is_dead(&self, item: u32, id: &str) -> bool {
        if id == self.id() {
            !self.busy.contains_key(&item) && !self.taken.contains_key(&item)
        } else {
            !self.view.is_live(id)
        }
    }

    /// Rule: takes an orphaned run over, in one transaction below the failover latch. One at a time, so that survivors
    /// share them.
    pub(super) fn take_over(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let free = |item: &&u32| !self.busy.contains_key(item) && !self.taken.contains_key(item);
        let wanted = self.config.as_ref().is_some_and(|c| c.failover) && self.is_available();
        let Some(item) = self.orphans.iter().rev().find(free).copied().filter(|_| wanted) else {
            if self.latch.as_ref().is_some_and(|l| l.purpose == Purpose::TakeOver) {
                self.release_latch(out);
            }
            return false;
        };
        if self.latch.is_none() {
            self.ask_latch(Purpose::TakeOver, out);
            return false;
        }
        let Some(latch) = self.held_latch(Purpose::TakeOver) else { return false };
        let queries = vec![
            Query::Node(self.path.item_owner(item)),
            Query::Node(self.path.item_running(item)),
            Query::Node(self.path.item_failover(item)),
            Query::Node(self.path.item_failovering(item)),
            Query::Node(self.path.item(item)),
            Query::Node(self.path.failover_item(item)),
            Query::Children(self.path.instances()),
        ];
        self.read(Step::ReadOrphan { item, latch }, queries, out)
    }

    pub(super) fn orphan_read(
        &mut self,
        now: Timestamp,
        item: u32,
        latch: String,
        result: StepResult,
        out: &mut Effects,
    ) {
        let StepResult::Answers(answers) = result else {
            self.release_latch(out);
            return self.look_again(now, out);
        };
        let node = |index: usize| answers.get(index).and_then(Answer::node);
        let live: BTreeSet<&String> = answers.get(6).map(Answer::children).unwrap_or_default().iter().collect();
        let dead = |id: &String| if id == self.id() { self.is_dead(item, id) } else { !live.contains(id) };
        let (running, failovering) = (node(1).map(|n| n.text()), node(3).map(|n| n.text()));
        // The run of a dead instance, that of a dead taker, or one that a Java survivor asks somebody to take.
        let from = match (&running, &failovering) {
            (Some(runner), _) => dead(runner).then(|| runner.clone()),
            (None, Some(taker)) if dead(taker) => Some(taker.clone()),
            (None, _) => node(5).map(|_| "a dead instance".to_owned()),
        };
        if let (Some(failover), Some(ledger)) = (node(2), node(4))
            && failover.owner == self.session_id()
            && !self.taken.contains_key(&item)
            && !self.busy.contains_key(&item)
        {
            // Our own takeover, whose answer was lost.
            let due = Ledger::parse(&ledger.data).map(|l| l.due).or(self.schedule.last_due).unwrap_or(now);
            self.taken.insert(item, (ledger.version, due));
            self.orphans.remove(&item);
            self.release_latch(out);
            return;
        }
        let (Some(dead), None, Some(ledger)) = (from, node(2), node(4)) else {
            self.orphans.remove(&item);
            self.release_latch(out);
            return;
        };
        let mut ops = vec![Op::delete(latch.clone())];
        ops.extend(node(0).map(|owner| Op::check(self.path.item_owner(item), owner.version)));
        ops.extend(node(1).map(|mark| Op::Delete { path: self.path.item_running(item), version: Some(mark.version) }));
        ops.extend(node(5).map(|_| Op::delete(self.path.failover_item(item))));
        ops.push(Op::ephemeral(self.path.item_failover(item), self.id()));
        ops.push(match node(3) {
            Some(_) => Op::set(self.path.item_failovering(item), self.id()),
            None => Op::create(self.path.item_failovering(item), self.id()),
        });
        let due = Ledger::parse(&ledger.data).map(|l| l.due).or(self.schedule.last_due).unwrap_or(now);
        let ledger = (ledger.version, due);
        self.commit(Step::TakeOver { item, latch, ledger, dead }, ops, out);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one step's end")]
    pub(super) fn taken_over(
        &mut self,
        now: Timestamp,
        item: u32,
        latch: &str,
        ledger: (i32, Timestamp),
        dead: &str,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => {
                debug_assert!(self.latch.as_ref().is_none_or(|l| l.node.as_deref() == Some(latch)));
                self.latch = None;
                self.orphans.remove(&item);
                self.view.failover_items.remove(&item);
                self.blocked.remove(&item);
                self.taken.insert(item, ledger);
                out.note(Note::TakenOver { item, from: dead.to_owned() });
            }
            StepResult::Refused(_) => {
                self.release_latch(out);
                self.pause(now); // somebody was faster, or the items were divided anew: look again
            }
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                self.release_latch(out);
                self.look_again(now, out);
            }
        }
    }

    /// Rule: finds out whose mark it is that refused a begin, and clears it where its owner is gone.
    pub(super) fn inspect_blocked(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        self.find_odd_takers(now);
        let odd = self.takers_odd_since.iter().find(|(_, since)| **since + TAKER_ODD <= now).map(|(item, _)| *item);
        if let Some(item) = odd {
            self.takers_odd_since.remove(&item);
            let of = self.items.get(&item).and_then(|i| i.taken_by.clone()).unwrap_or_default();
            let op = Op::delete(self.path.item_failover(item));
            return self.commit(Step::ClearMark { item, of }, vec![op], out);
        }
        let due = |b: &super::types::Blocked| b.inspect || b.look_at().is_some_and(|at| at <= now);
        let Some(item) = self.blocked.iter().find(|(_, b)| due(b)).map(|(item, _)| *item) else { return false };
        let queries = vec![Query::Node(self.path.item_running(item)), Query::Children(self.path.instances())];
        self.read(Step::Inspect { item }, queries, out)
    }

    fn find_odd_takers(&mut self, now: Timestamp) {
        let odd = |number: &u32, by: &str| !by.is_empty() && self.is_dead(*number, by);
        let found: BTreeSet<u32> = self
            .items
            .iter()
            .filter(|(number, item)| item.taken_by.as_deref().is_some_and(|by| odd(number, by)))
            .map(|(number, _)| *number)
            .collect();
        self.takers_odd_since.retain(|item, _| found.contains(item));
        for item in found {
            self.takers_odd_since.entry(item).or_insert(now);
        }
    }

    pub(super) fn inspected(&mut self, now: Timestamp, item: u32, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        let Some(mark) = answers[0].node() else {
            self.blocked.remove(&item);
            return;
        };
        let (owner, version) = (mark.text(), mark.version);
        let ours = owner == self.id() && self.is_dead(item, &owner);
        if !ours && path_lists(&answers[1], &owner) {
            return self.wait_for_mark(item, owner, out);
        }
        let Some(blocked) = self.blocked.get_mut(&item) else { return };
        blocked.inspect = false;
        let since = *blocked.orphan_since.get_or_insert(now);
        if !ours && now < since + limits::SECOND_LOOK {
            return;
        }
        if self.config.as_ref().is_some_and(|c| c.failover) {
            self.blocked.remove(&item);
            self.orphans.insert(item);
            return;
        }
        // Only while the item is ours can nobody else have begun it meanwhile.
        let Some(own) = self.items.get(&item) else {
            self.blocked.remove(&item);
            return;
        };
        let ops = vec![
            Op::check(self.path.item_owner(item), own.owner_version),
            Op::exists(self.path.item_claim(item, self.session_id())),
            Op::Delete { path: self.path.item_running(item), version: Some(version) },
        ];
        self.commit(Step::ClearMark { item, of: owner }, ops, out);
    }

    /// It runs elsewhere: this firing is missed, and caught up when the mark goes.
    fn wait_for_mark(&mut self, item: u32, by: String, out: &mut Effects) {
        if let Some(blocked) = self.blocked.get_mut(&item) {
            blocked.inspect = false;
            blocked.orphan_since = None;
        }
        let misfire = self.config.as_ref().is_some_and(|c| c.misfire);
        if let (Some(own), Some(due)) = (self.items.get_mut(&item), self.schedule.last_due)
            && own.accounted < due
        {
            own.accounted = due;
            own.missed = misfire.then_some(due);
        }
        self.watch(vec![self.path.item_running(item)], out);
        out.note(Note::Blocked { item, by });
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
                out.note(Note::ClearedMark { item, of });
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
