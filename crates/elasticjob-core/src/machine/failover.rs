//! Marks of the dead (Java: `FailoverService`, `FailoverListenerManager`): runs of instances that died are taken over where
//! failover is on, and their marks cleared where it is not.

use std::collections::BTreeSet;

use super::memory::{Abandoned, Purpose, Step, Taken};
use super::types::Effects;
use super::{JobEvent, JobMachine, StepResult};
use crate::limits;
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op};
use crate::wire::Ledger;

/// The version of a `failover` node of ours, see `orphan_read`.
pub(super) const TAKEN_VERSION: i32 = 1;
/// What is read of each orphan.
const ANSWERS_OF_ORPHAN: usize = 8;

/// A run of another instance that this one takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Takeover {
    pub(super) item: u32,
    taken: Taken,
    /// The id of the instance that ran it.
    from: String,
}

impl JobMachine {
    /// When the second read of a node that vanished is due.
    pub(super) fn second_look_at(&self) -> Option<Timestamp> {
        let gone = self.bereaved.iter().filter_map(|id| self.gone.get(id)).map(|t| *t + limits::SECOND_LOOK);
        let blocked = self.blocked.values().flat_map(super::memory::Blocked::times);
        let takers = self.takers.values().map(|(_, _, until)| *until);
        let leader = self.is_leader().then(|| self.gone.values().max().map(|t| *t + limits::SECOND_LOOK)).flatten();
        let leader = leader.filter(|t| *t > self.schedule.last_tick);
        let now = self.schedule.last_tick;
        gone.chain(blocked).chain(takers).chain(leader).filter(|t| *t > now).min()
    }

    /// Rule: looks for interrupted runs of instances that died.
    pub(super) fn find_orphans(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        self.gone.retain(|_, since| now < *since + limits::GONE_KEPT);
        let Some(config) = self.config.clone() else { return false };
        if !config.failover {
            // Nothing is taken over any more; what asks for it would be a phantom run once failover is on again.
            self.left_behind.clear();
            self.enabled.clear();
            if !self.orphans.is_empty() {
                self.orphans.clear();
                self.bereaved.insert(String::new());
            }
        }
        let waits = self.bereaved.iter().filter_map(|id| self.gone.get(id)).any(|t| now < *t + limits::SECOND_LOOK);
        if (self.bereaved.is_empty() && self.enabled.is_empty()) || waits || !self.is_available() {
            return false;
        }
        let enabled = std::mem::take(&mut self.enabled);
        let items: Vec<u32> = match std::mem::take(&mut self.bereaved).is_empty() {
            true => enabled.into_iter().collect(),
            false => (0..config.sharding_total_count).collect(),
        };
        if !config.failover {
            let queries = items.iter().map(|i| Query::Node(self.path.item_failovering(*i))).collect();
            return self.read(Step::FindLeft { items }, queries, out);
        }
        let queries = items
            .iter()
            .flat_map(|i| {
                [
                    Query::Node(self.path.item_running(*i)),
                    Query::Node(self.path.item_failovering(*i)),
                    Query::Node(self.path.item_failover(*i)),
                    Query::Node(self.path.item(*i)),
                    Query::Children(self.path.item_owner(*i)),
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
        for (item, answers) in items.iter().zip(answers.chunks(5)) {
            let dead = |index: usize| {
                let lives = |mark: &Node| lives_on(mark, answers[3].node(), answers[4].children());
                let ours = |mark: &Node| mark.is(self.id());
                answers[index]
                    .node()
                    .is_some_and(|mark| self.is_dead(*item, &mark.text()) && (ours(mark) || !lives(mark)))
            };
            // Only this instance knows that nothing runs under a mark of its own: the instance that owns the item now waits for it.
            let ours = answers[0].node().is_some_and(|mark| mark.is(self.id()));
            let is_free = answers[2].node().is_none();
            if (is_free || ours) && (dead(0) || (answers[0].node().is_none() && dead(1))) {
                self.orphans.insert(*item);
            }
        }
    }

    /// Without failover, `failovering` of instances that left is deleted, whichever instance owns the item.
    pub(super) fn left_found(&mut self, now: Timestamp, items: &[u32], result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else {
            self.bereaved.insert(String::new());
            return self.look_again(now, out);
        };
        for (item, answer) in items.iter().zip(&answers) {
            if let Some(mark) = answer.node().filter(|mark| self.is_over(*item, mark)) {
                let left = Abandoned { failover: false, seen: Some(mark.version) };
                self.abandoned.entry(*item).or_insert(left);
            }
        }
    }

    /// Whether the run that a `failovering` node records has ended.
    fn is_over(&self, item: u32, failovering: &Node) -> bool {
        if failovering.is(self.id()) {
            !self.taken.contains_key(&item) && !self.busy.get(&item).is_some_and(|b| b.taken)
        } else {
            !self.state.is_live(&failovering.text())
        }
    }

    /// Whether a mark with that id is stale: its instance is gone, or it is this instance, which does not run the item.
    pub(super) fn is_dead(&self, item: u32, id: &str) -> bool {
        if id == self.id() {
            !self.busy.contains_key(&item) && !self.taken.contains_key(&item)
        } else {
            !self.state.is_live(id)
        }
    }

    /// Rule: takes orphaned runs over, in one transaction below the failover latch: a fair share of them, so that the other
    /// survivors get theirs at their turn.
    pub(super) fn take_over(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let free = |item: &&u32| !self.busy.contains_key(item) && !self.taken.contains_key(item);
        let wanted = self.config.as_ref().is_some_and(|c| c.failover) && self.is_available();
        let mut items: Vec<u32> = self.orphans.iter().rev().filter(free).copied().collect();
        if items.is_empty() || !wanted {
            if self.latch.as_ref().is_some_and(|l| l.purpose == Purpose::TakeOver) {
                self.release_latch(out);
            }
            return false;
        };
        if self.latch.is_none() {
            self.ask_latch(now, Purpose::TakeOver, out);
            return false;
        }
        let Some(latch) = self.held_latch(Purpose::TakeOver) else { return false };
        items.truncate(if self.takes_one { 1 } else { limits::TAKEOVERS_PER_COMMIT });
        let mut queries = vec![Query::Children(self.path.instances())];
        queries.extend(items.iter().flat_map(|item| {
            [
                Query::Node(self.path.item_owner(*item)),
                Query::Node(self.path.item_running(*item)),
                Query::Node(self.path.item_failover(*item)),
                Query::Node(self.path.item_failovering(*item)),
                Query::Node(self.path.item(*item)),
                Query::Node(self.path.failover_item(*item)),
                Query::Children(self.path.item_owner(*item)),
                Query::Node(self.path.item_disabled(*item)),
            ]
        }));
        self.read(Step::ReadOrphans { items, latch }, queries, out)
    }

    /// Those that can be taken over are, in one transaction. What is to be done with the others is done one by one, once none
    /// can be taken over.
    pub(super) fn orphans_read(
        &mut self,
        now: Timestamp,
        items: &[u32],
        latch: String,
        result: StepResult,
        out: &mut Effects,
    ) {
        let answers = match result {
            StepResult::Answers(answers) if !answers.is_empty() => answers,
            StepResult::Answers(_)
            | StepResult::Committed { .. }
            | StepResult::Refused(_)
            | StepResult::Unknown
            | StepResult::Failed => {
                self.release_latch(out);
                return self.look_again(now, out);
            }
        };
        let live: BTreeSet<&String> = answers[0].children().iter().collect();
        let looks = || items.iter().zip(answers[1..].chunks(ANSWERS_OF_ORPHAN));
        let (mut takeovers, mut ops) = (Vec::new(), vec![Op::delete(latch.clone())]);
        // The other survivors know of the same ones, and have taken some of them by now.
        let share = items.len().div_ceil(self.state.available().len().max(1));
        for (item, answers) in looks() {
            if takeovers.len() == share {
                break;
            }
            if let Some(from) = self.orphaned_by(*item, &live, answers) {
                takeovers.extend(self.takeover(now, *item, from, answers, &mut ops));
            }
        }
        if !takeovers.is_empty() {
            self.commit(Step::TakeOver { takeovers, latch }, ops, out);
            return;
        }
        self.release_latch(out);
        for (item, answers) in looks() {
            if self.leave_orphan(now, *item, &live, answers, out) {
                return;
            }
        }
    }

    /// The instance whose run of this item is orphaned: a dead runner, a dead taker, or the one for which a Java survivor requests a
    /// takeover.
    fn orphaned_by(&self, item: u32, live: &BTreeSet<&String>, answers: &[Answer]) -> Option<String> {
        let node = |index: usize| answers.get(index).and_then(Answer::node);
        let dead = |id: &String| if id == self.id() { self.is_dead(item, id) } else { !live.contains(id) };
        let (running, failovering) = (node(1).map(|n| n.text()), node(3).map(|n| n.text()));
        let claims = answers.get(6).map(Answer::children).unwrap_or_default();
        let lives = node(1).is_some_and(|mark| !mark.is(self.id()) && lives_on(mark, node(4), claims));
        match (running, failovering) {
            (Some(runner), _) => (dead(&runner) && !lives).then_some(runner),
            // Unless the item was begun since: then the dead one's run is superseded.
            (None, Some(taker)) if dead(&taker) && !begun_since(answers) => Some(taker),
            (None, _) => node(5).map(|_| "unknown".to_owned()),
        }
    }

    /// Adds the operations of the takeover; `None` if another instance has taken the run over, or the item is disabled or does not exist.
    fn takeover(
        &self,
        now: Timestamp,
        item: u32,
        from: String,
        answers: &[Answer],
        ops: &mut Vec<Op>,
    ) -> Option<Takeover> {
        let node = |index: usize| answers.get(index).and_then(Answer::node);
        let (None, Some(ledger), None) = (node(2), node(4), node(7)) else { return None };
        // Written as it is: a begin of the owner's that has not seen the takeover is refused by the version.
        ops.extend(node(0).map(|owner| Op::Set {
            path: self.path.item_owner(item),
            data: owner.data.to_vec(),
            version: Some(owner.version),
        }));
        ops.extend(node(1).map(|mark| Op::Delete { path: self.path.item_running(item), version: Some(mark.version) }));
        ops.extend(node(5).map(|_| Op::delete(self.path.failover_item(item))));
        // Written once more: version 1 distinguishes it from a node that a Java instance puts in its place.
        ops.push(Op::ephemeral(self.path.item_failover(item), self.id()));
        ops.push(Op::set(self.path.item_failover(item), self.id()));
        ops.push(match node(3) {
            Some(_) => Op::set(self.path.item_failovering(item), self.id()),
            None => Op::create(self.path.item_failovering(item), self.id()),
        });
        let taken = Taken::of(ledger, self.schedule.last_due.unwrap_or(now));
        Some(Takeover { item, taken, from })
    }

    /// What seemed to be an orphan is none: what is left of it is tidied, or watched. Says whether that is a step of its own.
    fn leave_orphan(
        &mut self,
        now: Timestamp,
        item: u32,
        live: &BTreeSet<&String>,
        answers: &[Answer],
        out: &mut Effects,
    ) -> bool {
        let node = |index: usize| answers.get(index).and_then(Answer::node);
        if let (Some(failover), Some(ledger)) = (node(2), node(4))
            && self.take_up(now, item, failover, ledger)
        {
            return false;
        }
        let from = self.orphaned_by(item, live, answers);
        if from.is_some() && node(7).is_some() {
            // If the mark is from this instance, no other instance knows that the item does not run, not even its owner.
            self.orphans.remove(&item);
            if self.left_behind.insert(item) {
                out.report(JobEvent::TakeoverWaits { item });
            }
            if !self.items.contains_key(&item) && !self.claimed.contains(&item) {
                // Watched again, so that it is read again: it may have been deleted in the meantime.
                self.unwatch(vec![self.path.item_disabled(item)], out);
                self.watch(vec![self.path.item_disabled(item)], out);
            }
            return false;
        }
        let dead = |id: &String| if id == self.id() { self.is_dead(item, id) } else { !live.contains(id) };
        if let (None, None, Some(left), true) = (&from, node(2), node(3), begun_since(answers))
            && node(1).is_none()
            && dead(&left.text())
        {
            let ops = vec![Op::Delete { path: self.path.item_failovering(item), version: Some(left.version) }];
            self.orphans.remove(&item);
            return self.commit(Step::ClearMark { item, of: left.text() }, ops, out);
        }
        if let (None, Some(asked), Some(ledger)) = (&from, node(5), node(4))
            && ledger.mzxid > asked.czxid
        {
            // Begun since it was asked for, and that one goes on.
            let ops = vec![
                Op::check(self.path.item(item), ledger.version),
                Op::Delete { path: self.path.failover_item(item), version: Some(asked.version) },
            ];
            self.orphans.remove(&item);
            return self.commit(Step::Tidy, ops, out);
        }
        self.orphans.remove(&item);
        if node(5).is_some() && node(4).is_some() {
            // An instance runs it, or is about to: read again when the nodes of that instance are deleted.
            // A watch on a missing node reports it in the same way as a node that was deleted.
            let nodes = [(2, self.path.item_failover(item)), (1, self.path.item_running(item))];
            let there = nodes.into_iter().filter(|(index, _)| node(*index).is_some()).map(|(_, path)| path);
            let there: Vec<String> = there.collect();
            // Set again, so that it is read again: a node that was deleted in the meantime may have been reported already.
            self.unwatch(there.clone(), out);
            self.watch(there, out);
        }
        if node(2).is_some() && node(1).is_some_and(|mark| mark.is(self.id())) && self.is_dead(item, self.id()) {
            // Only this instance knows that it does not run.
            self.left_behind.insert(item);
            self.watch(vec![self.path.item_failover(item)], out);
        }
        // Asked for before the count went down: there is no such item any more.
        if let (None, Some(_), Some(config)) = (node(4), node(5), &self.state.config)
            && self.config.as_ref().is_some_and(|c| item >= c.sharding_total_count)
        {
            let version = config.version;
            let ops = vec![Op::check(self.path.config(), version), Op::delete(self.path.failover_item(item))];
            return self.commit(Step::Tidy, ops, out);
        }
        false
    }

    pub(super) fn taken_over(
        &mut self,
        now: Timestamp,
        takeovers: Vec<Takeover>,
        latch: &str,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => {
                debug_assert!(self.latch.as_ref().is_none_or(|l| l.node.as_deref() == Some(latch)));
                self.latch = None;
                self.takes_one = false;
                for Takeover { item, taken, from } in takeovers {
                    self.orphans.remove(&item);
                    self.blocked.remove(&item);
                    self.taken.insert(item, taken);
                    if let Some(own) = self.items.get_mut(&item) {
                        own.owner_version += 1; // written by this takeover
                    }
                    out.report(JobEvent::TakenOver { item, from });
                }
            }
            StepResult::Refused(_) => {
                self.takes_one = true; // one of them may be refused again
                self.release_latch(out);
                self.pause(now); // somebody was faster, or the items were divided anew: look again
            }
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                self.half_taken.extend(takeovers.iter().map(|takeover| takeover.item));
                self.release_latch(out);
                self.look_again(now, out);
            }
        }
    }

    /// Rule: reads the outcome of takeovers whose answer was lost, also if failover was switched off in the meantime.
    pub(super) fn settle_takeovers(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if self.half_taken.is_empty() {
            return false;
        }
        let items: Vec<u32> = self.half_taken.iter().copied().collect();
        let nodes = |i: &u32| [self.path.item_failover(*i), self.path.item_failovering(*i), self.path.item(*i)];
        let queries = items.iter().flat_map(nodes).map(Query::Node).collect();
        self.read(Step::SettleTakeovers { items }, queries, out)
    }

    pub(super) fn takeovers_settled(&mut self, now: Timestamp, items: &[u32], result: StepResult) {
        let StepResult::Answers(answers) = result else { return };
        for (item, answers) in items.iter().zip(answers.chunks(3)) {
            self.half_taken.remove(item);
            let [failover, failovering, ledger] = answers else { continue };
            if let (Some(failover), Some(ledger)) = (failover.node(), ledger.node())
                && self.take_up(now, *item, failover, ledger)
            {
                continue;
            }
            let left = failovering.node().filter(|mark| self.is_over(*item, mark));
            if self.config.as_ref().is_some_and(|c| c.failover) {
                self.orphans.insert(*item);
            } else if let (None, Some(mark)) = (failover.node(), left) {
                // Committed in a session that is over.
                self.abandoned.insert(*item, Abandoned { failover: false, seen: Some(mark.version) });
            }
        }
    }

    /// A takeover of ours that is neither begun nor waits for that, since an answer was lost: it goes on. Says whether it does.
    fn take_up(&mut self, now: Timestamp, item: u32, failover: &Node, ledger: &Node) -> bool {
        let is_free = !self.taken.contains_key(&item) && !self.busy.contains_key(&item);
        let ours = failover.owner == self.session_id() && failover.version == TAKEN_VERSION && is_free;
        if ours {
            self.taken.insert(item, Taken::of(ledger, self.schedule.last_due.unwrap_or(now)));
            self.orphans.remove(&item);
        }
        ours
    }
}

/// Whether a mark's instance lives although it is not registered: it was shut down, and lets its runs end. Its begin is the
/// item's last one, and a session holds the mark (that of its begin, or a later one: a run may outlast its session), or the
/// claim. A Java instance leaves no ledger, and counts as gone.
pub(super) fn lives_on(mark: &Node, ledger: Option<&Node>, claims: &[String]) -> bool {
    let Some(ledger) = ledger.and_then(|n| Ledger::parse(&n.data)) else { return false };
    let claim = format!("claim-{:016x}", ledger.session);
    mark.is(&ledger.instance) && (mark.owner != 0 || claims.contains(&claim))
}

/// Whether an item was begun since it was taken over, by what was read of it.
fn begun_since(answers: &[Answer]) -> bool {
    let node = |index: usize| answers.get(index).and_then(Answer::node);
    node(4).zip(node(3)).is_some_and(|(ledger, taker)| ledger.mzxid > taker.mzxid)
}
