//! Two transactions a run (Java: `ElasticJobExecutor`, `ExecutionService`).
//!
//! *Begin* is fence and ledger: it commits only while the assignment stands and nobody has begun that due time. *Release*
//! takes away the marks that this begin created, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::failover::TAKEN_VERSION;
use super::types::{Abandoned, Begun, Blocked, Busy, Effects, Item, Life, Mark, Phase, Purpose, Step, Taken};
use super::{Effect, JobMachine, Note, Run, RunId, RunItem, Source, StepResult};
use crate::config::JobConfig;
use crate::limits;
use crate::time::Timestamp;
use crate::tree::{Mode, Node, Op, Reason, Refusal};
use crate::view::{Answer, Query};
use crate::wire::{Ledger, task_id};

impl JobMachine {
    /// Rule: begins what is due.
    pub(super) fn begin(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let Some(config) = self.config.clone().filter(|_| self.life == Life::Joined) else { return false };
        let Some((source, due, items)) = self.candidates(now, &config) else { return false };
        self.begins += 1;
        let run = RunId(self.begins);
        let (instance, session) = (self.id().to_owned(), self.session_id());
        let ledger = Ledger { due, instance, session, begin: self.begins, at: Some(now) };
        let mut plan = Begun { run, due, source, items: Vec::new(), spans: Vec::new(), ops: Vec::new() };
        for item in items.into_iter().take(limits::ITEMS_PER_COMMIT) {
            let start = plan.ops.len();
            let taken = self.taken.contains_key(&item);
            // A ledger never goes back: a catch-up that comes behind a later firing keeps that one's time.
            let own = self.items.get(&item);
            let last = own.map_or(due, |i| i.accounted.max(due));
            let text = Ledger { due: last, ..ledger.clone() }.to_text();
            let end = if last > due { last + Duration::from_millis(1) } else { due };
            let passed = own.map_or((end, end), |i| (i.told, end));
            let known = self.taken.get(&item).map(|t| (t.ledger_version, t.made));
            let (version, made) = known.or(own.map(|i| (i.ledger_version, i.made))).unwrap_or_default();
            self.begin_ops(item, taken, (&text, version), &config, source, &mut plan.ops);
            plan.spans.push((item, start..plan.ops.len()));
            plan.items.push(item);
            let mark = match (config.monitor_execution, config.failover || taken) {
                (_, true) => Mark::Persistent,
                (true, false) => Mark::Ephemeral,
                (false, false) => Mark::None,
            };
            let session = self.session_id();
            let phase = Phase::Beginning;
            let ledger = text;
            let busy = Busy {
                run,
                due,
                source,
                phase,
                token: 0,
                ledger,
                version,
                made,
                taken,
                passed,
                mark,
                session,
                remarked: false,
            };
            self.busy.insert(item, busy);
        }
        if source == Source::Trigger && self.view.triggers.contains(self.id()) {
            plan.ops.push(Op::delete(self.path.trigger(self.id())));
        }
        let ops = plan.ops.clone();
        self.commit(Step::Begin(Box::new(plan)), ops, out)
    }

    /// What can begin now, most urgent first; all of one answer have the same due time.
    fn candidates(&self, now: Timestamp, config: &JobConfig) -> Option<(Source, Timestamp, Vec<u32>)> {
        let free = |item: &u32| !self.busy.contains_key(item) && !self.blocked.contains_key(item);
        let taken = self.taken.iter().filter(|(item, _)| free(item));
        if let Some((_, Taken { due, .. })) = taken.clone().next() {
            let items = taken.filter(|(_, t)| t.due == *due).map(|(item, _)| *item).collect();
            return Some((Source::Failover, *due, items));
        }
        if self.is_held() || !self.is_available() {
            return None;
        }
        let idle = |number: &u32, item: &Item| {
            let free = !self.busy.contains_key(number) && !self.blocked.contains_key(number);
            free && !item.disabled && item.taken_by.is_none() && !self.taken.contains_key(number)
        };
        let ready: Vec<(u32, &Item)> = self.items.iter().filter(|(n, i)| idle(n, i)).map(|(n, i)| (*n, i)).collect();
        let which = |wanted: &dyn Fn(&Item) -> bool| -> Vec<u32> {
            ready.iter().filter(|(_, item)| wanted(item)).map(|(number, _)| *number).collect()
        };
        if config.misfire
            && let Some(due) = ready.iter().filter(|(_, i)| i.yields_until <= now).filter_map(|(_, i)| i.missed).min()
        {
            let caught_up = |item: &Item| item.missed == Some(due) && item.yields_until <= now;
            return Some((Source::Misfire, due, which(&caught_up)));
        }
        if let Some(due) = self.schedule.last_due {
            let owed = which(&|item| item.accounted < due);
            if !owed.is_empty() {
                return Some((Source::Schedule, due, owed));
            }
        }
        let triggered = which(&|item| item.triggered);
        (!triggered.is_empty()).then_some((Source::Trigger, now, triggered))
    }

    fn begin_ops(
        &self,
        item: u32,
        taken: bool,
        (ledger, version): (&str, i32),
        config: &JobConfig,
        source: Source,
        ops: &mut Vec<Op>,
    ) {
        let own = self.items.get(&item);
        ops.push(Op::Set { path: self.path.item(item), data: ledger.into(), version: Some(version) });
        if taken {
            ops.push(Op::check(self.path.item_failover(item), TAKEN_VERSION));
        } else if let Some(own) = own {
            ops.push(Op::check(self.path.item_owner(item), own.owner_version));
            ops.push(Op::exists(self.path.item_claim(item, self.session_id())));
            if own.misfire_node && source == Source::Misfire {
                ops.push(Op::delete(self.path.item_misfire(item)));
            }
            if own.superseded && config.failover {
                ops.push(Op::delete(self.path.item_failovering(item)));
            }
        }
        if config.monitor_execution || taken {
            let mode = if config.failover || taken { Mode::Persistent } else { Mode::Ephemeral };
            ops.push(Op::Create { path: self.path.item_running(item), data: self.id().into(), mode });
        }
    }

    pub(super) fn begin_done(&mut self, now: Timestamp, plan: Begun, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Committed { zxid } => self.begun(now, &plan, zxid, out),
            StepResult::Refused(refusal) => {
                plan.items.iter().for_each(|item| drop(self.busy.remove(item)));
                self.begin_refused(now, &plan, &refusal);
            }
            StepResult::Unknown => plan.items.iter().for_each(|item| self.set_phase(*item, Phase::Unsettled)),
            StepResult::Failed | StepResult::Answers(_) => {
                plan.items.iter().for_each(|item| drop(self.busy.remove(item)));
            }
        }
    }

    fn begun(&mut self, now: Timestamp, plan: &Begun, zxid: i64, out: &mut Effects) {
        self.account_begun(&plan.items, out);
        for number in &plan.items {
            self.note_begun(*number, plan.due, plan.source, zxid);
        }
        if plan.source == Source::Trigger {
            let id = self.id().to_owned();
            let node = self.path.trigger(&id);
            if plan.ops.iter().any(|op| op.path() == node) {
                self.view.triggers.remove(&id);
            } else if self.view.triggers.contains(&id) {
                // Another one has come while this begin was under way.
                self.items.values_mut().for_each(|item| item.triggered = true);
            }
        }
        self.start(now, plan.run, plan.due, plan.source, &plan.items, out);
    }

    /// The ledger of a begin says up to where all is accounted for: what passed before that is told.
    fn account_begun(&mut self, items: &[u32], out: &mut Effects) {
        let mut gaps: BTreeMap<(Timestamp, Timestamp), Vec<u32>> = BTreeMap::new();
        for number in items {
            let Some(busy) = self.busy.get(number) else { continue };
            gaps.entry(busy.passed).or_default().push(*number);
            if let Some(item) = self.items.get_mut(number) {
                item.told = item.told.max(busy.passed.1);
            }
        }
        for ((told, due), items) in gaps {
            self.tell_passed(items, told, due, out);
        }
    }

    fn note_begun(&mut self, number: u32, due: Timestamp, source: Source, token: i64) {
        if let Some(busy) = self.busy.get_mut(&number) {
            busy.phase = Phase::Running;
            busy.token = token;
        }
        self.taken.remove(&number);
        let Some(item) = self.items.get_mut(&number) else { return };
        item.ledger_version += 1;
        item.superseded = false;
        item.accounted = item.accounted.max(due);
        match source {
            Source::Misfire => {
                item.missed = None;
                item.misfire_node = false;
            }
            Source::Trigger => item.triggered = false,
            Source::Failover | Source::Schedule => {}
        }
    }

    fn start(&mut self, now: Timestamp, id: RunId, due: Timestamp, source: Source, items: &[u32], out: &mut Effects) {
        let Some(config) = self.config.clone() else { return };
        let token = |item: &u32| self.busy.get(item).map(|b| b.token).unwrap_or_default();
        let run_items = items.iter().map(|item| RunItem { item: *item, fencing_token: token(item) }).collect();
        out.note(Note::Begun { source, due, items: items.to_vec(), late: now.since(due) });
        let task_id = task_id(self.path.job(), items, self.id());
        out.push(Effect::Run(Run { id, task_id, due, source, config, items: run_items }));
    }

    /// One item's operation refused: it is left out, and the others go again.
    fn begin_refused(&mut self, now: Timestamp, plan: &Begun, refusal: &Refusal) {
        let Some((item, _)) = plan.spans.iter().find(|(_, span)| span.contains(&refusal.op)) else {
            let id = self.id().to_owned();
            self.view.triggers.remove(&id); // the trigger's own node was gone already
            return;
        };
        let (item, op) = (*item, &plan.ops[refusal.op]);
        let mark = op.path() == self.path.item_running(item);
        if mark && refusal.reason == Reason::Exists {
            self.blocked.insert(item, Blocked { inspect: true, ..Blocked::default() });
        } else if op.path() == self.path.item_misfire(item) {
            if let Some(item) = self.items.get_mut(&item) {
                item.misfire_node = false;
            }
        } else if op.path() == self.path.item_failovering(item) && !self.taken.contains_key(&item) {
            // Its taker has taken it away, and those of the others too, as far as we know.
            for item in &plan.items {
                if let Some(item) = self.items.get_mut(item) {
                    item.superseded = false;
                }
            }
            return;
        } else if self.taken.remove(&item).is_some() {
            self.abandoned.insert(item, Abandoned { failover: true, seen: None }); // its owner, or another taker, was faster
        } else {
            // The assignment, the claim or the ledger is not what we knew: others have been there.
            self.items.remove(&item);
            self.unsettle(now);
        }
        self.failures += 1;
        if self.failures > 5 {
            self.pause(now);
        }
    }

    pub(super) fn set_phase(&mut self, item: u32, phase: Phase) {
        if let Some(busy) = self.busy.get_mut(&item) {
            busy.phase = phase;
        }
    }

    /// Rule: reads what became of begins whose answer was lost.
    pub(super) fn settle(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let items: Vec<u32> =
            self.busy.iter().filter(|(_, b)| b.phase == Phase::Unsettled).map(|(item, _)| *item).collect();
        if items.is_empty() {
            return false;
        }
        let queries =
            items.iter().flat_map(|i| [Query::Node(self.path.item(*i)), Query::Node(self.path.item_running(*i))]);
        let queries = queries.collect();
        self.read(Step::Settle { items }, queries, out)
    }

    pub(super) fn settled(&mut self, now: Timestamp, items: &[u32], result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        let mut runs: BTreeMap<RunId, (Timestamp, Source, Vec<u32>)> = BTreeMap::new();
        let mut lost: BTreeMap<Timestamp, Vec<u32>> = BTreeMap::new();
        for (item, answers) in items.iter().zip(answers.chunks(2)) {
            let Some(busy) = self.busy.get(item).cloned() else { continue };
            let node = answers[0].node();
            let begun = node.filter(|n| n.is(&busy.ledger)).map(|n| n.mzxid);
            let Some(token) = begun else {
                self.busy.remove(item); // not carried out: due as before
                // Or carried out, and begun by others since, or the item is gone or was made anew: then it never ran.
                let others = node.and_then(|n| Ledger::parse(&n.data));
                let is_same = node.is_some_and(|n| n.czxid == busy.made);
                // A ledger goes back where a clock was set back: its version does not.
                let again = node.is_some_and(|n| n.version > busy.version + 1);
                let overtaken = others.is_some_and(|l| l.instance != self.id() && (l.due >= busy.due || again));
                if overtaken || !is_same {
                    lost.entry(busy.due).or_default().push(*item);
                }
                continue;
            };
            self.account_begun(&[*item], out);
            let marked = busy.mark == Mark::None || answers[1].node().is_some_and(|n| n.is(self.id()));
            if busy.session == self.session_id() && marked {
                self.note_begun(*item, busy.due, busy.source, token);
                runs.entry(busy.run).or_insert((busy.due, busy.source, Vec::new())).2.push(*item);
            } else {
                self.note_begun(*item, busy.due, busy.source, token);
                self.begin_lost(now, *item, &busy);
                lost.entry(busy.due).or_default().push(*item);
            }
        }
        for (run, (due, source, items)) in runs {
            self.start(now, run, due, source, &items, out);
        }
        for (due, items) in lost {
            out.note(Note::Lost { items, due });
        }
    }

    /// It was begun, but the session that it was begun in is over: it must not run now. Its mark is an orphan of ours, or is
    /// taken away where failover was switched off meanwhile: whoever owns the item takes it for that of a run.
    fn begin_lost(&mut self, now: Timestamp, number: u32, busy: &Busy) {
        let failover = self.config.as_ref().is_some_and(|c| c.failover);
        if !failover && busy.mark == Mark::Persistent {
            self.set_phase(number, Phase::Ended { at: now });
            if let Some(item) = self.items.get_mut(&number).filter(|_| !busy.taken) {
                item.missed = Some(busy.due);
            }
            return;
        }
        self.busy.remove(&number);
        if busy.taken {
            self.half_taken.insert(number); // our `failover` may still stand
        } else if failover {
            self.orphans.insert(number);
        } else if let Some(item) = self.items.get_mut(&number) {
            item.missed = Some(busy.due);
        }
    }

    pub(super) fn item_ended(&mut self, now: Timestamp, run: RunId, item: u32, failed: bool, out: &mut Effects) {
        let session = self.session_id();
        let Some(busy) = self.busy.get_mut(&item).filter(|b| b.run == run) else { return };
        busy.phase = Phase::Ended { at: now };
        out.note(Note::Ended { items: vec![item], failed: if failed { vec![item] } else { Vec::new() } });
        let was_cut_off = failed && self.cut_off.is_some();
        match busy.mark {
            Mark::None => drop(self.busy.remove(&item)),
            // Its mark stays, so that another one takes the run over.
            Mark::Persistent if was_cut_off => {
                let taken = busy.taken && busy.session == session;
                self.cut.insert(item, taken);
                self.busy.remove(&item);
            }
            Mark::Ephemeral | Mark::Persistent => {}
        }
    }

    /// The ended items that are to be released now, and else when to look again.
    fn releasable(&self, now: Timestamp) -> (Vec<u32>, Option<Timestamp>) {
        let ended = |b: &Busy| match b.phase {
            Phase::Ended { at } => Some(at),
            Phase::Beginning | Phase::Unsettled | Phase::Running => None,
        };
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
        // An ephemeral mark of a session that is over is gone with it, and there is none where one that was to be made anew
        // was refused behind the end of the run.
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
        let mut ops = Vec::new();
        for item in &items {
            let Some(busy) = self.busy.get(item) else { continue };
            // Nobody has begun it since: the mark may be another one's where ours was taken away.
            ops.push(Op::check(self.path.item(*item), busy.version + 1));
            // At the version of its creation: Java writes its own id over a mark that it finds.
            ops.push(Op::Delete { path: self.path.item_running(*item), version: Some(0) });
            if busy.taken {
                ops.push(Op::Delete { path: self.path.item_failover(*item), version: Some(TAKEN_VERSION) });
                ops.push(Op::delete(self.path.item_failovering(*item)));
                // Asked for by Java while the takeover was on its way: this run was it.
                if self.view.failover_items.contains(item) {
                    ops.push(Op::delete(self.path.failover_item(*item)));
                }
            }
        }
        self.commit(Step::Release { items, ops: ops.clone() }, ops, out)
    }

    pub(super) fn release_done(
        &mut self,
        now: Timestamp,
        items: Vec<u32>,
        mut ops: Vec<Op>,
        result: StepResult,
        out: &mut Effects,
    ) {
        if let StepResult::Refused(refusal) = &result {
            let path = ops.remove(refusal.op).path().to_owned(); // gone already, which is what we want
            if let Some(item) = items.iter().find(|item| self.path.item(**item) == path) {
                // Others have begun it since: what stands there is theirs.
                let below = format!("{path}/");
                ops.retain(|op| !op.path().starts_with(&below) && op.path() != self.path.failover_item(*item));
            }
            if ops.iter().any(|op| matches!(op, Op::Delete { .. })) {
                self.commit(Step::Release { items, ops: ops.clone() }, ops, out);
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
            // A begin of the owner's took `failovering` away as superseded; our `failover` still stands.
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

    /// Items that are to be caught up at once, and belong to another instance by the strategy, give the leader time.
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

    /// Rule: gives items that run on from the session before a mark in the new one, so that nobody begins them meanwhile.
    pub(super) fn keep_marks(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let session = self.session_id();
        let unmarked = |item: &u32, b: &Busy| {
            b.phase == Phase::Running
                && b.mark == Mark::Ephemeral
                && b.session != session
                && self.items.contains_key(item)
        };
        let unmarked = self.busy.iter().filter(|(i, b)| unmarked(i, b)).map(|(item, _)| *item);
        let items: Vec<u32> = unmarked.take(limits::ITEMS_PER_COMMIT).collect();
        if items.is_empty() || self.is_held() {
            return false;
        }
        // Nobody has begun it since.
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

    /// A mark that stands where one is to be made anew: another one's, or ours, when an answer was lost.
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
    /// begin, and it is looked at and taken away below the failover latch, so that no takeover comes in between.
    pub(super) fn release_late(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let session = self.session_id();
        // Or one whose release has an unknown end: its mark may stand there in this very session.
        let late = |b: &Busy| {
            let of_before = b.mark == Mark::Persistent && b.session != session;
            matches!(b.phase, Phase::Ended { .. }) && (of_before || (b.mark == Mark::Ephemeral && b.session == 0))
        };
        let Some(item) = self.busy.iter().find(|(_, b)| late(b)).map(|(item, _)| *item) else {
            if self.latch.as_ref().is_some_and(|l| l.purpose == Purpose::LateRelease) {
                self.release_latch(out);
            }
            return false;
        };
        if self.latch.is_none() {
            self.ask_latch(Purpose::LateRelease, out);
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
        // Of its begin, or set anew in a session behind that one.
        let renewed = |mark: &Node| mark.owner != 0 && mark.owner == self.session_id() && mark.is(self.id());
        let is_ours = |mark: &Node| mark.version == 0 && (mark.czxid == token || renewed(mark));
        let marked = answers[0].node().is_some_and(is_ours);
        let mut ops = vec![Op::delete(latch)];
        if marked {
            ops.push(Op::Delete { path: self.path.item_running(item), version: Some(0) });
        }
        // Whoever took the mark away, as Java does, left those of the takeover.
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

    /// Rule: writes down that items missed a firing, so that the catch-up survives this instance.
    pub(super) fn mark_misfires(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        // What is checked must be known: else it would be refused again and again.
        let known = self.life == Life::Joined && !self.follow.stale;
        if !self.config.as_ref().is_some_and(|c| c.misfire) || !known {
            return false;
        }
        let unmarked = |number: &u32, item: &Item| {
            item.missed.is_some()
                && !item.misfire_node
                && self.claimed.contains(number)
                && (self.busy.contains_key(number) || self.blocked.contains_key(number))
        };
        let unmarked = self.items.iter().filter(|(n, i)| unmarked(n, i)).map(|(n, _)| *n);
        let items: Vec<u32> = unmarked.take(limits::ITEMS_PER_COMMIT).collect();
        if items.is_empty() {
            return false;
        }
        // Only while the item is ours: whoever has it by now has looked for the node already.
        let session = self.session_id();
        let owner = |item: &u32| self.items.get(item).map(|i| i.owner_version).unwrap_or_default();
        let mark = |item: &u32| {
            [
                Op::check(self.path.item_owner(*item), owner(item)),
                Op::exists(self.path.item_claim(*item, session)),
                Op::create(self.path.item_misfire(*item), ""),
            ]
        };
        let ops: Vec<Op> = items.iter().flat_map(mark).collect();
        self.commit(Step::Misfire { items, ops: ops.clone() }, ops, out)
    }

    pub(super) fn misfires_marked(&mut self, now: Timestamp, items: Vec<u32>, ops: Vec<Op>, result: StepResult) {
        let marked: Vec<u32> = match result {
            StepResult::Committed { .. } => items,
            StepResult::Refused(refusal) if refusal.reason == Reason::Exists => {
                let path = ops[refusal.op].path();
                items.into_iter().filter(|i| self.path.item_misfire(*i) == path).collect()
            }
            StepResult::Refused(_) => return self.unsettle(now),
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => return,
        };
        for item in marked {
            if let Some(item) = self.items.get_mut(&item) {
                item.misfire_node = true;
            }
        }
    }
}
