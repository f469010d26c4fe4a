//! The leader's work: dividing the items (Java: `ShardingService.shardingIfNecessary`).
//!
//! Java waits until nothing runs, deletes the owners one by one and creates the new ones. Here items that are running stay
//! with their owner until their run ends, all others move immediately, in one transaction that names no instance that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failover::lives_on;
use super::memory::{Basis, Plan, Step, Survey};
use super::types::Effects;
use super::{JobEvent, JobMachine, StepResult};
use crate::limits;
use crate::path::parse_item;
use crate::query::{Answer, Query};
use crate::shard;
use crate::time::Timestamp;
use crate::tree::{Node, Op};

/// Items whose nodes are written in one transaction; a larger job is resharded in parts while `necessary` stops all instances.
const ITEMS_PER_PART: usize = 1_000;

impl JobMachine {
    /// Rule: reshards if instances, count or strategy changed, or if an instance requested it.
    pub(super) fn reshard(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if !self.is_leader() || !self.is_available() {
            self.lead = super::memory::Lead::default();
            return false;
        }
        let Some(basis) = self.basis() else { return false };
        if basis.available.is_empty() || self.is_in_doubt(now) {
            return false;
        }
        if !self.is_resharding_needed(now, &basis) {
            self.lead.at = None;
            return false;
        }
        let is_asked_for = self.state.necessary.is_some() || self.state.processing.is_some();
        if let Some(until) = self.lead.rests_until.filter(|until| now < *until && !is_asked_for) {
            self.lead.at = Some(until);
            return false;
        }
        let alone = self.state.instances.len() == 1;
        // Java reads the owners from a cache that lags: it must see `necessary` before each resharding.
        let direct = alone || (self.state.java.is_empty() && self.lead.direct_until.is_some_and(|until| now < until));
        if self.state.necessary.is_none() && !direct {
            return self.flag(now, out);
        }
        let at = self.lead.at.unwrap_or(if direct { now } else { now + limits::RESHARD_SETTLE });
        let near = |due: Timestamp| due > at && due.since(at) < limits::RESHARD_GUARD;
        let at = match self.schedule.next_due {
            Some(due) if !alone && near(due) => due + limits::RESHARD_AFTER_FIRE,
            _ => at,
        };
        self.lead.at = Some(at);
        if now < at {
            return false;
        }
        self.lead.at = None;
        let mut queries = vec![Query::Children(self.path.sharding())];
        for item in 0..basis.total {
            queries.push(Query::Node(self.path.item_owner(item)));
            queries.push(Query::Node(self.path.item_running(item)));
        }
        let survey = Survey { basis, queries: queries.clone(), answers: Vec::new() };
        self.read(Step::Survey(Box::new(survey)), queries, out)
    }

    fn basis(&self) -> Option<Basis> {
        let config = self.config.as_ref()?;
        Some(Basis {
            available: Arc::clone(self.state.available()),
            total: config.sharding_total_count,
            strategy: config.sharding_strategy.clone(),
        })
    }

    /// Whether an instance has just vanished: Java instances come back immediately after a reconnect.
    fn is_in_doubt(&self, now: Timestamp) -> bool {
        self.gone.values().any(|since| now < *since + limits::SECOND_LOOK)
    }

    fn is_resharding_needed(&mut self, now: Timestamp, basis: &Basis) -> bool {
        if self.state.necessary.is_some() || self.state.processing.is_some() || self.lead.forced {
            return true;
        }
        // Owners that live and can run nothing: they leave, or their server is disabled.
        let displaced = || self.follow.owners.values().any(|owner| !basis.available.contains(owner));
        if let Some(old) = &self.lead.basis {
            let fixed = self.config.as_ref().is_some_and(|c| c.static_sharding);
            let is_changed = match fixed {
                true => old.total != basis.total || (old.available != basis.available && displaced()),
                false => old != basis,
            };
            return is_changed || self.has_unowned_items();
        }
        if self.follow.stale || !self.follow.known {
            return false; // not known yet: the assignment is about to be read
        }
        // A new leader: is the assignment what it should be?
        let fixed = self.config.as_ref().is_some_and(|c| c.static_sharding) && !self.follow.owners.is_empty();
        let complete = self.follow.owners.len() == basis.total as usize && !self.has_unowned_items();
        let as_wanted =
            if fixed { complete && !displaced() } else { self.desired(now).as_ref() == Some(&self.follow.owners) };
        let as_wanted = as_wanted && !self.follow.has_excess;
        if as_wanted {
            self.lead.basis = Some(basis.clone());
            self.lead.owners = Some(self.follow.owners.clone());
        }
        !as_wanted
    }

    /// Writes `necessary`, clear of the firings before and after, so that Java's executions see it at their start or not
    /// at all.
    fn flag(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        let quiet = self.schedule.last_due.map(|due| due + limits::RESHARD_QUIET).filter(|until| now < *until);
        let close = self.schedule.next_due.filter(|due| due.since(now) < limits::RESHARD_QUIET);
        if let Some(at) = quiet.or(close.map(|due| due + limits::RESHARD_QUIET)) {
            self.lead.at = Some(at);
            return false;
        }
        let ops = vec![
            Op::Ensure(self.path.leader()),
            Op::Ensure(self.path.below("leader/sharding")),
            Op::exists(self.path.leader_instance()),
            Op::create(self.path.necessary(), ""),
        ];
        self.lead.at = None;
        self.commit(Step::Flag, ops, out)
    }

    pub(super) fn flag_done(&mut self, now: Timestamp, result: StepResult) {
        if let StepResult::Committed { zxid } = result {
            self.lead.at = Some(now + limits::RESHARD_SETTLE);
            self.state.necessary.get_or_insert_with(|| Node::new("", zxid, 0, now));
            self.follow.unsettled_since.get_or_insert(now);
        }
        // Rejected: it exists already, or the leadership is lost; the state will show that.
        if matches!(result, StepResult::Refused(_)) {
            self.pause(now);
        }
    }

    /// The owners as the strategy wants them; `None` when it is unknown or its answer is unusable.
    pub(super) fn desired(&self, now: Timestamp) -> Option<BTreeMap<u32, String>> {
        let basis = self.basis()?;
        let strategy = self.context.strategies.iter().find(|s| s.name().eq_ignore_ascii_case(&basis.strategy))?;
        // Code of the user's: its panic must not end the machines of the other jobs.
        let assign = || strategy.assign(&basis.available, self.path.job(), basis.total, now);
        let assignment = catch_unwind(AssertUnwindSafe(assign)).ok()?;
        if !shard::is_complete(&assignment, &basis.available, basis.total) {
            return None;
        }
        Some(assignment.into_iter().flat_map(|(id, items)| items.into_iter().map(move |i| (i, id.clone()))).collect())
    }

    pub(super) fn surveyed(&mut self, now: Timestamp, mut survey: Survey, result: StepResult, out: &mut Effects) {
        let StepResult::Answers(answers) = result else { return };
        if self.basis().as_ref() != Some(&survey.basis) {
            return; // what it is made from has changed meanwhile: it begins anew
        }
        survey.answers.extend(answers);
        // Items beyond the count are deleted with all that is below them.
        let excess: Vec<u32> = survey.answers[0].children().iter().filter_map(|n| parse_item(n)).collect();
        let further: Vec<Query> = excess
            .into_iter()
            .filter(|item| *item >= survey.basis.total)
            .flat_map(|i| {
                [
                    Query::Children(self.path.item(i)),
                    Query::Children(self.path.item_owner(i)),
                    Query::Node(self.path.item_owner(i)),
                    Query::Node(self.path.item_running(i)),
                    Query::Node(self.path.item(i)),
                ]
            })
            .chain(self.left_marks(&survey))
            .filter(|query| !survey.queries.contains(query))
            .collect();
        if !further.is_empty() {
            survey.queries.extend(further.iter().cloned());
            self.read(Step::Survey(Box::new(survey)), further, out);
            return;
        }
        let Some(desired) = self.desired(now) else { return self.bad_strategy(now, &survey.basis, out) };
        let plan = self.plan(&survey, &desired);
        self.commit_part(plan, out);
    }

    /// Without failover, no instance deletes the mark of an instance that is gone, if Java owns the item. An instance that seems to be gone
    /// is read once more, after the mark: the state lags.
    fn left_marks(&self, survey: &Survey) -> Vec<Query> {
        if self.config.as_ref().is_none_or(|c| c.failover) {
            return Vec::new();
        }
        let mark = |item: u32| {
            // After the names, each item has an owner and a mark.
            survey
                .answers
                .get(2 + 2 * item as usize)?
                .node()
                .filter(|mark| mark.owner == 0 && !self.state.is_live(&mark.text()))
        };
        let left = (0..survey.basis.total).filter(|item| mark(*item).is_some());
        let about = |item: u32| [Query::Node(self.path.item(item)), Query::Children(self.path.item_owner(item))];
        let mut queries: Vec<Query> = left.flat_map(about).collect();
        if !queries.is_empty() {
            queries.push(Query::Children(self.path.instances()));
        }
        queries
    }

    fn bad_strategy(&mut self, now: Timestamp, basis: &Basis, out: &mut Effects) {
        let known = self.context.strategies.iter().any(|s| s.name().eq_ignore_ascii_case(&basis.strategy));
        let reason =
            if known { "panicked or returned an incomplete assignment" } else { "is not registered in this process" };
        out.report(JobEvent::BadStrategy { name: basis.strategy.clone(), reason });
        self.lead.at = Some(now + limits::RETRY_MAX);
    }

    fn plan(&self, survey: &Survey, desired: &BTreeMap<u32, String>) -> Plan {
        let found: BTreeMap<&Query, &Answer> = survey.queries.iter().zip(&survey.answers).collect();
        let node = |path: String| found.get(&Query::Node(path)).and_then(|a| a.node());
        let children = |path: String| found.get(&Query::Children(path)).map(|a| a.children()).unwrap_or_default();
        let existing: BTreeSet<u32> =
            children(self.path.sharding()).iter().filter_map(|name| parse_item(name)).collect();
        let runs_with = |item: u32, owner: &str| {
            node(self.path.item_running(item)).is_some_and(|mark| mark.is(owner)) && self.state.is_live(owner)
        };

        let mut plan = Plan {
            basis: survey.basis.clone(),
            old: BTreeMap::new(),
            new: BTreeMap::new(),
            kept: BTreeSet::new(),
            necessary: self.state.necessary.as_ref().map(|n| n.czxid),
            processing: self.state.processing.as_ref().map(|n| n.czxid),
            parts: Vec::new(),
        };
        let mut ops = vec![Op::Ensure(self.path.sharding())];
        // What has an owner that lives stays there until the count changes; Java leaves the items of dead ones without an owner too.
        let is_fixed = self.config.as_ref().is_some_and(|c| c.static_sharding) && existing.len() == desired.len();
        for (item, wanted) in desired {
            let owner = node(self.path.item_owner(*item));
            let mut new = wanted.clone();
            if let Some(owner) = owner {
                let old = owner.text();
                if is_fixed && survey.basis.available.contains(&old) {
                    new.clone_from(&old);
                }
                let keeps = survey.basis.available.contains(&old) || self.state.leaving.contains(&old);
                if old != new && keeps && runs_with(*item, &old) {
                    plan.kept.insert(*item);
                    new.clone_from(&old);
                }
                plan.old.insert(*item, old);
            }
            if !existing.contains(item) {
                ops.push(Op::Ensure(self.path.item(*item)));
            }
            let path = self.path.item_owner(*item);
            match owner {
                None => ops.push(Op::create(path, new.as_str())),
                Some(owner) if owner.is(&new) => {}
                Some(owner) => ops.push(Op::Set { path, data: new.clone().into(), version: Some(owner.version) }),
            }
            plan.new.insert(*item, new);
            // Asked for in `left_marks`. A begin of ours since would have raised the ledger's version.
            if let (Some(mark), Some(ledger)) = (node(self.path.item_running(*item)), node(self.path.item(*item)))
                && !children(self.path.instances()).contains(&mark.text())
                && !lives_on(mark, Some(ledger), children(self.path.item_owner(*item)))
            {
                ops.push(Op::check(self.path.item(*item), ledger.version));
                ops.push(Op::Delete { path: self.path.item_running(*item), version: Some(mark.version) });
            }
        }
        let owners: BTreeSet<&String> = plan.new.values().collect();
        let mut guard: Vec<Op> = vec![Op::exists(self.path.leader_instance())];
        if let Some(leader) = &self.state.leader {
            guard[0] = Op::check(self.path.leader_instance(), leader.version);
        }
        guard.extend(self.state.config.as_ref().map(|n| Op::check(self.path.config(), n.version)));
        let receivers: Vec<Op> = owners.into_iter().map(|id| Op::exists(self.path.instance(id))).collect();
        for item in existing.iter().filter(|i| **i >= survey.basis.total) {
            plan.old.extend(node(self.path.item_owner(*item)).map(|owner| (*item, owner.text())));
            let claims = children(self.path.item_owner(*item));
            let lives = |mark: &Node| lives_on(mark, node(self.path.item(*item)), claims);
            if node(self.path.item_running(*item)).is_some_and(|mark| self.state.is_live(&mark.text()) || lives(mark)) {
                plan.kept.insert(*item);
                continue;
            }
            let below = |child: &String| format!("{}/{child}", self.path.item(*item));
            ops.extend(claims.iter().map(|c| Op::delete(format!("{}/{c}", self.path.item_owner(*item)))));
            ops.extend(children(self.path.item(*item)).iter().map(|c| Op::delete(below(c))));
            ops.push(Op::delete(self.path.item(*item)));
        }
        let mut last = Vec::new();
        if self.state.necessary.is_some() {
            last.push(Op::delete(self.path.necessary()));
        }
        // `processing` is created and deleted in the same transaction: it notifies the other Rust instances to read the assignment.
        last.push(Op::Ensure(self.path.leader()));
        last.push(Op::Ensure(self.path.below("leader/sharding")));
        if self.state.processing.is_none() {
            last.push(Op::ephemeral(self.path.processing(), ""));
        }
        last.push(Op::delete(self.path.processing()));
        plan.parts = ops.chunks(ITEMS_PER_PART).map(<[Op]>::to_vec).collect();
        for part in &mut plan.parts {
            part.splice(0..0, guard.iter().cloned());
        }
        if let Some(part) = plan.parts.last_mut() {
            part.splice(0..0, receivers);
            part.extend(last);
        }
        plan.parts.reverse(); // taken from the end
        plan
    }

    fn commit_part(&mut self, mut plan: Plan, out: &mut Effects) {
        if let Some(ops) = plan.parts.pop() {
            self.commit(Step::Reshard(Box::new(plan)), ops, out);
        }
    }

    pub(super) fn resharded(&mut self, now: Timestamp, plan: Plan, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Committed { .. } if !plan.parts.is_empty() => self.commit_part(plan, out),
            StepResult::Committed { .. } => {
                // Those that this instance deleted are gone; one that appeared in the meantime requests the next resharding.
                self.state.necessary.take_if(|n| Some(n.czxid) == plan.necessary);
                self.state.processing.take_if(|n| Some(n.czxid) == plan.processing);
                self.unsettle(now);
                let watched = plan.kept.iter().map(|item| self.path.item_running(*item)).collect();
                self.watch(watched, out);
                let kept: Vec<u32> = plan.kept.iter().copied().collect();
                if plan.processing.is_some() || !plan.kept.is_empty() {
                    // Another leader was, or still is, at it; or a run has to end.
                    self.look_at_owners_later(now);
                }
                self.lead.basis = Some(plan.basis);
                self.lead.owners = Some(plan.new.clone());
                let kept_before = std::mem::replace(&mut self.lead.kept, plan.kept);
                self.lead.forced = false;
                self.lead.direct_until = Some(now + limits::RESHARD_DIRECT);
                let instances = u32::try_from(self.state.instances.len()).unwrap_or(u32::MAX);
                self.lead.rests_until = Some(now + limits::RESHARD_REST.saturating_mul(instances));
                if plan.old != plan.new || kept.iter().any(|item| !kept_before.contains(item)) {
                    out.report(JobEvent::Resharded { old: plan.old, new: plan.new, kept });
                }
            }
            // Something changed since the survey, or our state is not what is there.
            StepResult::Refused(_) | StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => {
                self.lead.basis = None;
                self.look_again(now, out);
            }
        }
    }
}
