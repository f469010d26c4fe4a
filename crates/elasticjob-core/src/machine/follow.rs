//! Taking in what the leader assigned (Java: `ShardingService.getLocalShardingItems`).
//!
//! An item is ours only by a claim: an ephemeral child of `sharding/<i>/instance`, created after the node was seen to name
//! us, and followed by another look. A Java leader deletes and creates that node, which takes the claim along; a leader of
//! ours writes it, which raises its version. The begin checks both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::memory::{Abandoned, Item, Life, Step};
use super::types::Effects;
use super::{Effect, JobEvent, JobMachine, StepResult};
use crate::limits;
use crate::path::{JobPath, parse_item};
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op, Reason, Refusal};
use crate::wire::{Claim, Ledger};

/// What is read of an item of ours after it was claimed.
const QUERIES_PER_ITEM: usize = 5;

/// Number of firings after the last begin of an item that are searched for the missed one.
const FIRINGS_WALKED: usize = 32;

impl JobMachine {
    /// Whether firings wait: for a resharding, or for a read of its result.
    pub(super) fn is_held(&self) -> bool {
        self.follow.stale || self.state.necessary.is_some() || self.state.processing.is_some()
    }

    /// Rule: reads the assignment once a resharding is through.
    pub(super) fn take_in(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if self.follow.hold_until.is_some_and(|until| until <= now) {
            self.give_up_waiting(out);
        }
        if matches!(self.life, Life::Leaving { .. }) && !self.is_shut_down {
            self.keep_last_items();
            return false;
        }
        if !self.is_available() {
            let items = std::mem::take(&mut self.items);
            self.earlier.extend(items.iter().map(|(number, item)| (*number, item.earlier())));
            self.follow.stale = true; // read it again when we may have items
            return false;
        }
        let Some(config) = self.config.clone() else { return false };
        if !self.follow.stale || self.state.necessary.is_some() || self.state.processing.is_some() {
            return false;
        }
        self.follow.read_for = self.follow.reasons;
        let mut queries = vec![Query::Children(self.path.sharding())];
        queries.extend((0..config.sharding_total_count).map(|item| Query::Node(self.path.item_owner(item))));
        self.read(Step::ReadOwners, queries, out)
    }

    /// An instance that is leaving keeps the items that run. It keeps all items if no other instance can own them.
    fn keep_last_items(&mut self) {
        if self.is_alone() {
            return;
        }
        let stays = |number: &u32| self.busy.contains_key(number) || self.blocked.contains_key(number);
        self.items.retain(|number, _| stays(number));
    }

    /// The firing that waits has waited for long enough.
    fn give_up_waiting(&mut self, out: &mut Effects) {
        self.follow.hold_until = None;
        if std::mem::take(&mut self.follow.trigger_held) {
            out.report(JobEvent::TriggerDropped {
                items: Vec::new(),
                reason: "this instance owned no items, because the resharding did not complete in time",
            });
        }
        if let Some(due) = self.schedule.last_due.filter(|due| *due > self.schedule.floor && self.is_held()) {
            self.schedule.floor = due;
            let misfire = self.config.as_ref().is_some_and(|c| c.misfire);
            let items: Vec<u32> = self.items.iter().filter(|(_, i)| i.accounted < due).map(|(n, _)| *n).collect();
            self.account(&items, due, out);
            for item in self.items.values_mut().filter(|item| item.accounted < due) {
                item.accounted = due;
                item.miss(due, misfire);
            }
            if misfire && !items.is_empty() {
                out.report(JobEvent::Misfired { items, due });
            } else {
                let reason = "this instance did not learn in time which items it owns, because of a resharding or a lost connection";
                out.report(JobEvent::Skipped { items, due, reason });
            }
        }
    }

    pub(super) fn owners_read(&mut self, now: Timestamp, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        let Some((names, answers)) = answers.split_first() else { return };
        let owners: BTreeMap<u32, String> =
            (0_u32..).zip(answers).filter_map(|(item, a)| Some((item, a.node()?.text()))).collect();
        let beyond = |name: &String| parse_item(name).is_some_and(|item| item as usize >= answers.len());
        self.follow.has_excess = names.children().iter().any(beyond);
        let own: Vec<u32> = owners.iter().filter(|(_, id)| *id == self.id()).map(|(item, _)| *item).collect();
        // A previous leader that did not know of its successor has resharded after us: is the assignment still valid?
        if self.lead.owners.take_if(|known| *known != owners).is_some() {
            self.lead.basis = None;
        }
        self.remember_owners(now, owners);
        let session = self.session_id();
        let claim = Claim { instance: self.id().to_owned(), at: now }.to_text();
        let mut ops: Vec<Op> = own
            .iter()
            .filter(|i| !self.claimed.contains(i))
            .map(|i| Op::ephemeral(self.path.item_claim(*i, session), claim.as_str()))
            .collect();
        // Also what we had before we were disabled for a while.
        let had: BTreeSet<u32> = self.items.keys().chain(&self.claimed).copied().collect();
        // A claim also shows that a run goes on, when its instance is shut down.
        let lost: Vec<u32> = had.into_iter().filter(|i| !own.contains(i) && !self.busy.contains_key(i)).collect();
        ops.extend(lost.iter().map(|i| Op::delete(self.path.item_claim(*i, session))));
        let watched = lost.iter().flat_map(|i| [self.path.item_disabled(*i), self.path.item_failover(*i)]).collect();
        self.unwatch(watched, out);
        // Read again, since their `failover` is not watched any more.
        let waits = |item: &&u32| self.left_behind.remove(item) || self.state.failover_items.contains(item);
        let behind: Vec<u32> = lost.iter().filter(waits).copied().collect();
        self.orphans.extend(behind);
        self.claimed.retain(|item| !lost.contains(item));
        if ops.is_empty() {
            return self.read_own(own, out);
        }
        self.claim(own, ops, out);
    }

    /// The items that name us are claimed: what else is to be known of them is read, and whether they name us still.
    fn read_own(&mut self, own: Vec<u32>, out: &mut Effects) {
        if own.is_empty() {
            return self.settle_items(BTreeMap::new(), out);
        }
        self.claimed.extend(own.iter().copied());
        let watched = own.iter().flat_map(|i| [self.path.item_disabled(*i), self.path.item_failover(*i)]).collect();
        self.watch(watched, out);
        let queries = own.iter().flat_map(|item| item_queries(&self.path, *item)).collect();
        self.read(Step::ReadOwn { own }, queries, out);
    }

    fn claim(&mut self, own: Vec<u32>, ops: Vec<Op>, out: &mut Effects) {
        let part = ops.iter().take(limits::ITEMS_PER_COMMIT).cloned().collect();
        self.commit(Step::Claim { own, ops }, part, out);
    }

    /// Due times that the former owners cannot have begun, since they were gone.
    fn remember_owners(&mut self, now: Timestamp, owners: BTreeMap<u32, String>) {
        let gone_at = |owner: Option<&String>| owner.and_then(|o| self.gone.get(o)).copied();
        let unsettled = self.follow.unsettled_since.unwrap_or(now);
        let handover = std::mem::take(&mut self.follow.handover);
        self.follow.handover = owners
            .iter()
            .map(|(item, owner)| {
                // Read once more before it was taken in: who had it before is the one of then.
                let same = self.follow.owners.get(item) == Some(owner) && !self.items.contains_key(item);
                if let Some(known) = handover.get(item).filter(|_| same) {
                    return (*item, known.clone());
                }
                let before = self.follow.owners.get(item);
                let since = gone_at(before).map_or(unsettled, |gone| gone.min(unsettled));
                (*item, (before.cloned(), since))
            })
            .collect();
        self.follow.owners = owners;
        self.follow.known = true;
    }

    pub(super) fn claim_done(
        &mut self,
        now: Timestamp,
        mut own: Vec<u32>,
        mut ops: Vec<Op>,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => drop(ops.drain(..ops.len().min(limits::ITEMS_PER_COMMIT))),
            // A claim that already exists, or one that was deleted with its node, is as good.
            StepResult::Refused(Refusal { op, reason: Reason::Exists }) => drop(ops.remove(op)),
            StepResult::Refused(Refusal { op, reason: Reason::Missing }) => {
                let op = ops.remove(op);
                if matches!(op, Op::Create { .. }) {
                    own.retain(|item| self.path.item_claim(*item, self.session_id()) != op.path());
                }
            }
            StepResult::Refused(_) | StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                return self.look_again(now, out);
            }
        }
        if !ops.is_empty() {
            return self.claim(own, ops, out);
        }
        self.read_own(own, out);
    }

    pub(super) fn own_read(&mut self, now: Timestamp, own: &[u32], result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        let claim = format!("claim-{:016x}", self.session_id());
        let failover = self.config.as_ref().is_some_and(|c| c.failover);
        let mut items = BTreeMap::new();
        let mut ahead: BTreeMap<Timestamp, Vec<u32>> = BTreeMap::new();
        for (item, answers) in own.iter().zip(answers.chunks(QUERIES_PER_ITEM)) {
            let [owner, claims, node, marks, taker] = answers else { continue };
            let (Some(owner), Some(node)) = (owner.node(), node.node()) else { continue };
            let left = |mark: &str| marks.children().iter().any(|m| m == mark);
            if !failover && left("failovering") && !left("running") {
                // A takeover of before failover was switched off.
                self.abandoned.insert(*item, Abandoned { failover: false, seen: None });
            }
            let ledger = Ledger::parse(&node.data).filter(|_| !self.items.contains_key(item));
            if let Some(ledger) = ledger.filter(|ledger| ledger.due > now + CLOCKS_DIFFER) {
                ahead.entry(ledger.due).or_default().push(*item);
            }
            if owner.is(self.id()) && claims.children().contains(&claim) {
                items.insert(*item, Box::new(self.item(now, *item, owner, node, marks, taker)));
            } else {
                self.claimed.remove(item); // gone with the node, or never made
            }
        }
        for (due, items) in ahead {
            out.report(JobEvent::LedgerAhead { items, due, counts: due <= now + limits::LEDGER_AHEAD });
        }
        if items.len() < own.len() {
            self.pause(now);
            return self.unsettle(now); // it changed hands again: read it again
        }
        self.settle_items(items, out);
    }

    fn item(&self, now: Timestamp, number: u32, owner: &Node, node: &Node, marks: &Answer, taker: &Answer) -> Item {
        let has = |mark: &str| marks.children().iter().any(|m| m == mark);
        let before = self.items.get(&number);
        let accounted = match before {
            Some(before) => before.accounted,
            None => {
                let known = self.accounted_at_handover(now, number, Ledger::parse(&node.data));
                self.earlier.get(&number).map_or(known, |earlier| known.max(earlier.accounted))
            }
        };
        let begun = Ledger::parse(&node.data).filter(|l| is_credible(l, now)).map(|l| l.due);
        let misfire_node = has("misfire");
        // The node does not say which firing was missed. The last one of the schedule, also where that was before our start, unless
        // that was begun: then it is as of now.
        let is_missed = |due: &Timestamp| begun.is_none_or(|begun| begun < *due);
        let before_us = || misfire_node.then(|| self.last_firing(begun?, now)).flatten();
        let of_node = self.schedule.last_due.filter(is_missed).or_else(before_us).unwrap_or(now);
        let known = begun.unwrap_or(accounted).max(self.schedule.untold);
        // While the whole job was disabled, nothing was to be begun.
        let rested = self.schedule.rested.filter(|(first, _)| known < *first).map_or(known, |(_, last)| last);
        let told = before.map_or(known.max(rested), |b| b.told.max(known));
        Item {
            told,
            yields_until: Timestamp(0),
            superseded: has("failovering") && !has("failover"),
            owner_version: owner.version,
            ledger_version: node.version,
            made: node.czxid,
            accounted: begun.map_or(accounted, |due| due.max(accounted)),
            disabled: has("disabled"),
            taken_by: taker.node().map(Node::text),
            taken_at: taker.node().map(|n| n.created).unwrap_or_default(),
            taken_in: taker.node().map(|n| n.owner).unwrap_or_default(),
            misfire_node,
            // Another instance may have run what this one missed.
            missed: before
                .and_then(|b| b.missed)
                .or_else(|| self.earlier.get(&number).filter(|_| misfire_node)?.missed)
                .filter(|missed| begun.is_none_or(|due| due < *missed))
                .or_else(|| misfire_node.then_some(of_node)),
            triggered: before.is_some_and(|b| b.triggered) || self.follow.trigger_held,
        }
    }

    /// Returns the last firing after `begun` and up to now; `None` when there is none, or more than [`FIRINGS_WALKED`].
    fn last_firing(&self, begun: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let config = self.config.as_ref()?;
        let cron = config.cron.as_ref()?;
        let mut last = None;
        let mut next = cron.next(begun, &config.time_zone);
        for _ in 0..FIRINGS_WALKED {
            let Some(due) = next.filter(|due| *due <= now) else { return last };
            last = Some(due);
            next = cron.next(due, &config.time_zone);
        }
        None
    }

    /// Up to which due time another instance was responsible for an item that this one owns now.
    ///
    /// The ledger knows where the owner before was one of ours. A Java owner writes none: of it we know only that it held
    /// its firings since the resharding began, and that it ran nothing after it was gone.
    fn accounted_at_handover(&self, now: Timestamp, item: u32, ledger: Option<Ledger>) -> Timestamp {
        let unsettled = self.follow.unsettled_since.unwrap_or(now);
        let (before, since) = self.follow.handover.get(&item).cloned().unwrap_or((None, unsettled));
        let timeout = self.session.map(|s| s.timeout).unwrap_or_default();
        let window = now - (timeout + limits::HANDOVER_WINDOW);
        let known = ledger.filter(|l| is_credible(l, now) && before.as_ref() == Some(&l.instance)).map(|l| l.due);
        known.unwrap_or(since - Duration::from_millis(1)).max(window).max(self.schedule.floor)
    }

    /// The assignment is known: firings go on.
    fn settle_items(&mut self, items: BTreeMap<u32, Box<Item>>, out: &mut Effects) {
        let changed = !self.items.keys().eq(items.keys());
        self.earlier.retain(|number, _| !items.contains_key(number));
        self.items = items;
        self.follow.stale = self.follow.reasons != self.follow.read_for;
        if !self.follow.stale {
            self.follow.unsettled_since = None;
        }
        if self.items.is_empty() {
            self.follow.ask_at.get_or_insert(self.schedule.last_tick + limits::LEFT_OUT_WAIT);
        } else {
            self.follow.trigger_held = false;
        }
        if !self.follow.trigger_held {
            self.follow.hold_until = None;
        }
        self.blocked.retain(|item, _| self.items.contains_key(item));
        if changed {
            out.push(Effect::Report(JobEvent::Assigned { items: self.owned().collect() }));
        }
    }

    /// An instance that reshards, or has resharded, may continue although another one leads by now: see
    /// [`limits::OWNERS_RECHECKS`].
    pub(super) fn look_at_owners_later(&mut self, now: Timestamp) {
        self.follow.recheck = limits::OWNERS_RECHECKS.iter().map(|after| now + *after).collect();
    }

    /// Rule: looks whether the owners are still those that we know.
    pub(super) fn look_at_owners(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let pending = self.follow.recheck.len();
        self.follow.recheck.retain(|at| *at > now);
        if self.follow.recheck.len() == pending || !self.is_available() {
            return false;
        }
        let total = self.config.as_ref().map(|c| c.sharding_total_count).unwrap_or_default();
        let queries = (0..total).map(|item| Query::Node(self.path.item_owner(item))).collect();
        self.read(Step::LookAgain, queries, out)
    }

    /// The nodes are as this instance knows them, or are stored now; nothing waits for this read.
    pub(super) fn looked_again(&mut self, now: Timestamp, result: StepResult) {
        let StepResult::Answers(answers) = result else { return };
        let owners: BTreeMap<u32, String> =
            (0_u32..).zip(&answers).filter_map(|(item, a)| Some((item, a.node()?.text()))).collect();
        if owners != self.follow.owners {
            self.unsettle(now);
        }
        // The end of a run of an instance that was shut down is not reported.
        self.lead.forced |= !self.lead.kept.is_empty();
    }

    /// Rule: asks a Java leader for the items that its resharding did not assign to this instance: Java misses an instance that joins
    /// while it reshards. Once per registration, and not immediately (see [`limits::LEFT_OUT_WAIT`]).
    pub(super) fn ask_for_items(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let Some(at) = self.follow.ask_at.filter(|_| !self.follow.asked) else { return false };
        if !self.items.is_empty() || !self.is_available() || self.is_leader() {
            self.follow.ask_at = None; // until a resharding leaves us without items
            return false;
        }
        if self.is_held() || self.state.leader.is_none() {
            self.follow.ask_at = Some(at.max(now + limits::LEFT_OUT_WAIT));
            return false;
        }
        if now < at {
            return false;
        }
        self.follow.asked = true;
        let Some(wanted) = self.desired(now) else { return false };
        if !wanted.values().any(|owner| owner == self.id()) {
            return false;
        }
        self.ask_for_resharding(out)
    }

    /// Rule: asks for a resharding where an item has no live owner and the leader, which should have asked, does not. A leader yet
    /// to be elected looks for itself.
    pub(super) fn ask_for_division(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let fixed = self.config.as_ref().is_some_and(|c| c.static_sharding);
        let looks = self.is_available() && !self.is_held() && !self.is_leader() && !fixed;
        if !looks || self.state.leader.is_none() || !self.has_unowned_items() {
            self.follow.unowned_since = None;
            return false;
        }
        if self.follow.asked_for.as_ref() == Some(&self.follow.owners) {
            return false; // that is how the leader wants it
        }
        let since = *self.follow.unowned_since.get_or_insert(now);
        if now < since + limits::LEADER_WAIT {
            return false;
        }
        self.follow.unowned_since = None;
        self.follow.asked_for = Some(self.follow.owners.clone());
        self.ask_for_resharding(out)
    }

    /// Whether an item has no owner, or one that is gone, by the assignment as it was read last.
    pub(super) fn has_unowned_items(&self) -> bool {
        let total = self.config.as_ref().map(|c| c.sharding_total_count).unwrap_or_default();
        // The configuration that this instance rejected may have fewer items: one without an owner says nothing then.
        let is_known = |item: &u32| !self.config_refused || self.follow.owners.contains_key(item);
        let owned = |item: u32| self.follow.owners.get(&item).is_some_and(|owner| self.state.is_live(owner));
        self.follow.known && !self.follow.stale && !(0..total).filter(is_known).all(owned)
    }

    fn ask_for_resharding(&mut self, out: &mut Effects) -> bool {
        let ops = vec![
            Op::Ensure(self.path.leader()),
            Op::Ensure(self.path.below("leader/sharding")),
            Op::create(self.path.necessary(), ""),
        ];
        self.commit(Step::AskForItems, ops, out)
    }

    pub(super) fn asked_for_items(&mut self, result: StepResult, out: &mut Effects) {
        if matches!(result, StepResult::Committed { .. }) {
            out.report(JobEvent::AskedForItems);
        }
    }
}

fn item_queries(path: &JobPath, item: u32) -> [Query; QUERIES_PER_ITEM] {
    [
        Query::Node(path.item_owner(item)),
        Query::Children(path.item_owner(item)),
        Query::Node(path.item(item)),
        Query::Children(path.item(item)),
        Query::Node(path.item_failover(item)),
    ]
}

/// Clocks of two hosts may differ by so much without a word.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

/// A ledger from far ahead was written by a clock that was off.
fn is_credible(ledger: &Ledger, now: Timestamp) -> bool {
    ledger.due <= now + limits::LEDGER_AHEAD
}
