//! The first of a run's two transactions (Java: `ElasticJobExecutor`, `ExecutionService`); the other one is in `release.rs`.
//!
//! The begin transaction is fence and ledger: it commits only if the assignment is still valid and no instance has begun that due time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failover::TAKEN_VERSION;
use super::memory::{Abandoned, Blocked, Busy, Item, Life, Mark, Phase, Step, Taken};
use super::types::{Begun, Effects};
use super::{Effect, JobEvent, JobMachine, Run, RunId, RunItem, Source, StepResult};
use crate::config::JobConfig;
use crate::limits;
use crate::query::Query;
use crate::time::Timestamp;
use crate::tree::{Mode, Op, Reason, Refusal};
use crate::wire::{Ledger, task_id};

/// What an operation of a begin is for: the operations themselves are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The due time goes into the item's ledger.
    Ledger(u32),
    /// The item is still ours.
    Fence(u32),
    /// What was missed is made up: its node goes.
    Misfire(u32),
    /// The mark of a taker that is gone goes.
    Superseded(u32),
    /// The mark that the item runs.
    Mark(u32),
    /// What asked the instance for the run goes.
    Trigger,
    /// What asked for the run of this item goes.
    ItemTrigger(u32),
}

impl Part {
    /// The item that it is about.
    pub(super) fn item(self) -> Option<u32> {
        match self {
            Part::Ledger(item)
            | Part::Fence(item)
            | Part::Misfire(item)
            | Part::Superseded(item)
            | Part::ItemTrigger(item)
            | Part::Mark(item) => Some(item),
            Part::Trigger => None,
        }
    }
}

impl JobMachine {
    /// Rule: begins what is due.
    pub(super) fn begin(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let Some(config) = self.config.clone().filter(|_| self.life == Life::Joined) else { return false };
        let Some((source, due, items)) = self.candidates(now, &config) else { return false };
        self.begins += 1;
        let run = RunId(self.begins);
        let (instance, session) = (self.id().to_owned(), self.session_id());
        let mut ledger = Ledger { due, instance, session, begin: self.begins, at: Some(now), requests: Vec::new() };
        let mut plan = Begun { run, due, source, items: Vec::new(), parts: Vec::new(), triggers: Vec::new() };
        let mut ops = Vec::new();
        for item in items.into_iter().take(limits::ITEMS_PER_COMMIT) {
            let taken = self.taken.contains_key(&item);
            // A ledger never decreases: a catch-up after a later firing keeps the due time of that firing.
            let own = self.items.get(&item);
            let last = own.map_or(due, |i| i.accounted.max(due));
            ledger.due = last;
            ledger.requests = self.requests(item, source);
            let text = ledger.to_text();
            let end = if last > due { last + Duration::from_millis(1) } else { due };
            let passed = own.map_or((end, end), |i| (i.told, end));
            let known = self.taken.get(&item).map(|t| (t.ledger_version, t.made));
            let (version, made) = known.or(own.map(|i| (i.ledger_version, i.made))).unwrap_or_default();
            for (part, op) in self.begin_ops(item, taken, (&text, version), &config, source).into_iter().flatten() {
                plan.parts.push(part);
                ops.push(op);
            }
            plan.items.push(item);
            if source == Source::Trigger {
                for name in self.state.triggers_of(item) {
                    plan.parts.push(Part::ItemTrigger(item));
                    ops.push(Op::delete(self.path.trigger(name)));
                    plan.triggers.push((item, name.clone()));
                }
            }
            let mark = match (config.monitor_execution, config.failover || taken) {
                (_, true) => Mark::Persistent,
                (true, false) => Mark::Ephemeral,
                (false, false) => Mark::None,
            };
            let session = self.session_id();
            let phase = Phase::Beginning;
            let busy = Busy {
                run,
                due,
                source,
                phase,
                token: 0,
                ledger: text,
                version,
                made,
                taken,
                passed,
                mark,
                session,
                remarked: false,
                requests: ledger.requests.clone(),
            };
            self.busy.insert(item, Box::new(busy));
        }
        if source == Source::Trigger && self.state.triggers.contains(self.id()) {
            plan.parts.push(Part::Trigger);
            ops.push(Op::delete(self.path.trigger(self.id())));
        }
        self.commit(Step::Begin(Box::new(plan)), ops, out)
    }

    /// The triggers that the begin of an item answers and whose callers wait.
    fn requests(&self, item: u32, source: Source) -> Vec<String> {
        match source {
            Source::Trigger => self.state.triggers_of(item).filter(|name| name.contains('-')).cloned().collect(),
            Source::Failover => self.taken.get(&item).map(|taken| taken.requests.clone()).unwrap_or_default(),
            Source::Schedule | Source::Misfire => Vec::new(),
        }
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
        // Most inputs come when nothing is to begin.
        let last = self.schedule.last_due;
        let is_triggered = |number: u32, item: &Item| {
            item.triggered || (!self.state.item_triggers.is_empty() && self.state.triggers_of(number).next().is_some())
        };
        let wants = |number: u32, item: &Item| {
            item.missed.is_some() || last.is_some_and(|due| item.accounted < due) || is_triggered(number, item)
        };
        let idle = |number: &u32, item: &Item| {
            let free = !self.busy.contains_key(number) && !self.blocked.contains_key(number);
            wants(*number, item)
                && free
                && !item.disabled
                && item.taken_by.is_none()
                && !self.taken.contains_key(number)
        };
        let ready: Vec<(u32, &Item)> = self.items.iter().filter(|(n, i)| idle(n, i)).map(|(n, i)| (*n, &**i)).collect();
        let which = |wanted: &dyn Fn(&Item) -> bool| -> Vec<u32> {
            ready.iter().filter(|(_, item)| wanted(item)).map(|(number, _)| *number).collect()
        };
        let triggered: Vec<u32> =
            ready.iter().filter(|(number, item)| is_triggered(*number, item)).map(|(number, _)| *number).collect();
        let triggered = (!triggered.is_empty() && !self.gathers_triggers(now)).then_some(triggered);
        let caught_up = ready.iter().filter(|(_, i)| i.yields_until <= now).filter_map(|(_, i)| i.missed).min();
        if let Some(due) = caught_up.filter(|_| config.misfire) {
            // A job whose runs take longer than its period always has something to catch up: its triggers would never run.
            if let Some(items) = triggered {
                return Some((Source::Trigger, now, items));
            }
            let is_due = |item: &Item| item.missed == Some(due) && item.yields_until <= now;
            return Some((Source::Misfire, due, which(&is_due)));
        }
        if let Some(due) = last {
            let owed = which(&|item| item.accounted < due);
            if !owed.is_empty() {
                return Some((Source::Schedule, due, owed));
            }
        }
        triggered.map(|items| (Source::Trigger, now, items))
    }

    /// Whether triggers of other own items may be about to arrive.
    fn gathers_triggers(&self, now: Timestamp) -> bool {
        let is_missing = |number: u32, item: &Item| {
            !item.disabled && !item.triggered && self.state.triggers_of(number).next().is_none()
        };
        let is_recent = |since: Timestamp| now < since + limits::TRIGGER_GATHER;
        self.follow.triggered_at.is_some_and(is_recent)
            && self.items.iter().any(|(number, item)| is_missing(*number, item))
    }

    /// What the begin of one item asks for.
    fn begin_ops(
        &self,
        item: u32,
        taken: bool,
        (ledger, version): (&str, i32),
        config: &JobConfig,
        source: Source,
    ) -> [Option<(Part, Op)>; 6] {
        let path = &self.path;
        let own = self.items.get(&item).filter(|_| !taken);
        let set = Op::Set { path: path.item(item), data: ledger.into(), version: Some(version) };
        let fence = if taken {
            Some(Op::check(path.item_failover(item), TAKEN_VERSION))
        } else {
            own.map(|own| Op::check(path.item_owner(item), own.owner_version))
        };
        let claim = own.map(|_| Op::exists(path.item_claim(item, self.session_id())));
        let made_up = own.is_some_and(|own| own.misfire_node && source == Source::Misfire);
        let superseded = own.is_some_and(|own| own.superseded && config.failover);
        let marked = config.monitor_execution || taken;
        let mark = || {
            let mode = if config.failover || taken { Mode::Persistent } else { Mode::Ephemeral };
            Op::Create { path: path.item_running(item), data: self.id().into(), mode }
        };
        [
            Some((Part::Ledger(item), set)),
            fence.map(|op| (Part::Fence(item), op)),
            claim.map(|op| (Part::Fence(item), op)),
            made_up.then(|| (Part::Misfire(item), Op::delete(path.item_misfire(item)))),
            superseded.then(|| (Part::Superseded(item), Op::delete(path.item_failovering(item)))),
            marked.then(|| (Part::Mark(item), mark())),
        ]
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
        if !plan.triggers.is_empty() {
            self.follow.triggered_at = None;
        }
        for trigger in &plan.triggers {
            self.state.item_triggers.remove(trigger);
        }
        for number in &plan.items {
            self.note_begun(*number, plan.due, plan.source, zxid);
        }
        if plan.source == Source::Trigger {
            let id = self.id().to_owned();
            if plan.parts.contains(&Part::Trigger) {
                self.state.triggers.remove(&id);
            } else if self.state.triggers.contains(&id) {
                // Another one has come while this begin was under way.
                self.items.values_mut().for_each(|item| item.triggered = true);
            }
        }
        self.start(now, plan.run, plan.due, plan.source, &plan.items, out);
    }

    /// The ledger of a begin states up to where all due times are accounted for: what passed before is reported.
    fn account_begun(&mut self, items: &[u32], out: &mut Effects) {
        let mut gaps: BTreeMap<(Timestamp, Timestamp), Vec<u32>> = BTreeMap::new();
        for number in items {
            let Some(busy) = self.busy.get(number) else { continue };
            // This begin catches up a firing that is older than the last one: that firing was not missed.
            let (told, end) = busy.passed;
            let is_between = told < busy.due && busy.due < end;
            let parts =
                if is_between { [Some((told, busy.due)), Some((busy.due, end))] } else { [Some((told, end)), None] };
            for (told, due) in parts.into_iter().flatten().filter(|(told, due)| self.has_passed(*told, *due)) {
                gaps.entry((told, due)).or_default().push(*number);
            }
            if let Some(item) = self.items.get_mut(number) {
                // The due time of a trigger is any moment: a firing may follow it a millisecond later.
                let last = if end > busy.due { end - Duration::from_millis(1) } else { end };
                item.told = item.told.max(last);
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
        out.report(JobEvent::Begun { source, due, items: items.to_vec(), late: now.since(due) });
        let task_id = task_id(self.path.job(), items, self.id());
        out.push(Effect::Run(Run { id, session: self.session_id(), task_id, due, source, config, items: run_items }));
    }

    /// One item's operation refused: it is left out, and the others go again.
    fn begin_refused(&mut self, now: Timestamp, plan: &Begun, refusal: &Refusal) {
        let Some(part) = plan.parts.get(refusal.op).copied() else { return };
        let Some(item) = part.item() else {
            let id = self.id().to_owned();
            self.state.triggers.remove(&id); // the trigger's own node was gone already
            return;
        };
        if part == Part::Mark(item) && refusal.reason == Reason::Exists {
            self.blocked.insert(item, Blocked { inspect: true, ..Blocked::default() });
        } else if refusal.reason == Reason::Forbidden {
            // A right is missing on a node of this item. The other items continue.
            let again = Some(now + limits::FORBIDDEN_REST);
            self.blocked.insert(item, Blocked { again, ..Blocked::default() });
        } else if part == Part::ItemTrigger(item) {
            // Begun, or dropped, by another owner before.
            for trigger in plan.triggers.iter().filter(|(of, _)| *of == item) {
                self.state.item_triggers.remove(trigger);
            }
        } else if part == Part::Misfire(item) {
            if let Some(item) = self.items.get_mut(&item) {
                item.misfire_node = false;
            }
        } else if part == Part::Superseded(item) {
            // Its taker has taken it away, and those of the others too, as far as we know.
            for item in &plan.items {
                if let Some(item) = self.items.get_mut(item) {
                    item.superseded = false;
                }
            }
        } else if self.taken.remove(&item).is_some() {
            self.abandoned.insert(item, Abandoned { failover: true, seen: None }); // its owner, or another taker, was faster
        } else {
            // The assignment, the claim or the ledger is not what we knew: others have been there.
            self.earlier.extend(self.items.remove(&item).map(|lost| (item, lost.earlier())));
            self.unsettle(now);
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
                // Or committed, and begun by others since, or the item was deleted or created again: then it never ran.
                let others = node.and_then(|n| Ledger::parse(&n.data));
                let is_same = node.is_some_and(|n| n.czxid == busy.made);
                // A ledger goes back where a clock was set back: its version does not.
                let again = node.is_some_and(|n| n.version > busy.version + 1);
                let overtaken = others.is_some_and(|l| l.instance != self.id() && (l.due >= busy.due || again));
                if !is_same {
                    self.answer_lost(&busy); // where others have begun it, they may answer for it
                }
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
            out.report(JobEvent::Lost { items, due });
        }
    }

    /// It was begun, but the session that it was begun in is over: it must not run now. Its mark is an orphan of ours, or is
    /// deleted if failover was switched off in the meantime: otherwise the owner of the item would take it for the mark of a run.
    pub(super) fn begin_lost(&mut self, now: Timestamp, number: u32, busy: &Busy) {
        let failover = self.config.as_ref().is_some_and(|c| c.failover);
        // One that waited for its turn may have a mark in this session too.
        if (!failover && busy.mark == Mark::Persistent) || busy.remarked {
            self.answer_lost(busy);
            self.set_phase(number, Phase::Ended { at: now });
            if let Some(item) = self.items.get_mut(&number).filter(|_| !busy.taken) {
                item.missed = Some(busy.due);
            }
            return;
        }
        self.busy.remove(&number);
        if busy.taken {
            self.half_taken.insert(number); // our `failover` may still stand
        } else if failover && busy.mark == Mark::Persistent {
            self.orphans.insert(number);
        } else {
            self.answer_lost(busy);
            if let Some(item) = self.items.get_mut(&number) {
                item.missed = Some(busy.due);
            }
        }
    }

    /// It was begun, does not run, and no instance takes it over.
    fn answer_lost(&mut self, busy: &Busy) {
        self.results.extend(busy.requests.iter().cloned().map(|request| (request, super::trigger::NOT_RUN_LOST)));
    }

    /// Rule: writes down that items missed a firing, so that the catch-up survives this instance.
    pub(super) fn mark_misfires(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        // What is checked must be known: else it would be refused again and again.
        let is_leaving = matches!(self.life, Life::Leaving { .. });
        let known = (is_leaving || self.life == Life::Joined) && !self.follow.stale;
        if !self.config.as_ref().is_some_and(|c| c.misfire) || !known {
            return false;
        }
        let unmarked = |number: &u32, item: &Item| {
            item.missed.is_some()
                && !item.misfire_node
                && self.claimed.contains(number)
                && (is_leaving || self.busy.contains_key(number) || self.blocked.contains_key(number))
        };
        let unmarked = self.items.iter().filter(|(n, i)| unmarked(n, i)).map(|(n, _)| *n);
        let items: Vec<u32> = unmarked.take(limits::ITEMS_PER_COMMIT).collect();
        if items.is_empty() {
            return false;
        }
        // Only while this instance owns the item: its next owner has read the node already.
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
            // A right is missing on a node of this item, so it counts as marked: its next begin finds that the mark is not there.
            StepResult::Refused(refusal) if refusal.reason == Reason::Forbidden => {
                let path = ops[refusal.op].path();
                let mut parts = items.into_iter();
                parts.find(|i| path.starts_with(&format!("{}/", self.path.item(*i)))).into_iter().collect()
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
