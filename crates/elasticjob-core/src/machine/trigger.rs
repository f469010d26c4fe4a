//! Triggers through the registry. `trigger/<id>` (Java: `TriggerListenerManager`) asks an instance to run its items; one that comes
//! during a run is kept and runs after it, once, where Java drops it. `trigger/<item>`, a Rust addition, asks for one item, whichever instance owns
//! it: the begin deletes it, so that it runs exactly once, also when its owner dies, leaves or loses the item before.

use super::memory::{Life, Step};
use super::types::Effects;
use super::{JobEvent, JobMachine, StepResult};
use crate::job_state::ServerState;
use crate::limits;
use crate::time::Timestamp;
use crate::tree::Op;

/// Why a trigger is dropped.
pub(super) const DISABLED: &str = "the items are disabled";
const JOB_DISABLED: &str = "the job is disabled on all its servers";
const BEYOND: &str = "the job no longer has these items";
/// The same as the result of a trigger.
const NOT_RUN_DISABLED: &str = "not run: the item is disabled";
const NOT_RUN_JOB_DISABLED: &str = "not run: the job is disabled on all its servers";
const NOT_RUN_BEYOND: &str = "not run: the job no longer has the item";
pub(super) const NOT_RUN_LOST: &str = "not run: the connection to the registry was lost before the item started";

impl JobMachine {
    pub(super) fn trigger(&mut self, now: Timestamp, out: &mut Effects) {
        out.report(JobEvent::Triggered);
        if self.items.is_empty() || self.is_held() {
            self.follow.trigger_held = true;
            self.follow.hold_until.get_or_insert(now + limits::SHARDING_WAIT);
        }
        let disabled: Vec<u32> =
            self.items.iter().filter(|(_, item)| item.disabled).map(|(number, _)| *number).collect();
        for item in self.items.values_mut().filter(|item| !item.disabled) {
            item.triggered = true;
        }
        if !disabled.is_empty() {
            out.report(JobEvent::TriggerDropped { items: disabled, reason: DISABLED });
        }
    }

    /// Rule: deletes the triggers of own items that are disabled, which would run when they are enabled; of a leader, also those of
    /// items that the job has no more. Only while that is so: the transaction checks it.
    pub(super) fn drop_triggers(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if self.state.item_triggers.is_empty() || self.life != Life::Joined {
            return false;
        }
        if self.is_disabled_everywhere() {
            let triggers = self.state.item_triggers.iter().take(limits::ITEMS_PER_COMMIT).cloned();
            let triggers: Vec<(u32, String)> = triggers.collect();
            let deletions = triggers.iter().map(|(_, name)| Op::delete(self.path.trigger(name)));
            let servers = self.state.servers.iter().map(|(ip, node)| Op::check(self.path.server(ip), node.version));
            let ops = deletions.chain(servers).collect();
            return self.commit(Step::DropTriggers { triggers, reason: JOB_DISABLED }, ops, out);
        }
        if self.is_held() {
            return false;
        }
        let is_disabled = |item: u32| self.items.get(&item).is_some_and(|own| own.disabled);
        // A leader that refused the stored configuration does not know how many items there are.
        let knows = self.is_leader() && !self.config_refused;
        let total = self.config.as_ref().filter(|_| knows).map(|config| config.sharding_total_count);
        let is_beyond = |item: u32| total.is_some_and(|total| item >= total);
        let of = |dropped: &dyn Fn(u32) -> bool| -> Vec<(u32, String)> {
            let triggers = self.state.item_triggers.iter().filter(|(item, _)| dropped(*item));
            triggers.take(limits::ITEMS_PER_COMMIT).cloned().collect()
        };
        let mut triggers = of(&is_disabled);
        let mut reason = DISABLED;
        let mut checks: Vec<Op> = triggers.iter().map(|(item, _)| Op::exists(self.path.item_disabled(*item))).collect();
        if triggers.is_empty() {
            triggers = of(&is_beyond);
            reason = BEYOND;
            checks = self.state.config.iter().map(|node| Op::check(self.path.config(), node.version)).collect();
        }
        if triggers.is_empty() {
            return false;
        }
        let deletions = triggers.iter().map(|(_, name)| Op::delete(self.path.trigger(name)));
        let ops = deletions.chain(checks).collect();
        self.commit(Step::DropTriggers { triggers, reason }, ops, out)
    }

    /// Whether an operator disabled the job, or each of its servers.
    pub(super) fn is_disabled_everywhere(&self) -> bool {
        let servers = &self.state.servers;
        let is_disabled = |ip: &String| self.state.server(ip) == Some(ServerState::Disabled);
        !servers.is_empty() && servers.keys().all(is_disabled)
    }

    pub(super) fn triggers_dropped(
        &mut self,
        now: Timestamp,
        triggers: Vec<(u32, String)>,
        reason: &'static str,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => {
                let mut items: Vec<u32> = triggers.iter().map(|(item, _)| *item).collect();
                items.dedup();
                for trigger in triggers {
                    self.state.item_triggers.remove(&trigger);
                    if trigger.1.contains('-') {
                        let result = match reason {
                            DISABLED => NOT_RUN_DISABLED,
                            JOB_DISABLED => NOT_RUN_JOB_DISABLED,
                            _ => NOT_RUN_BEYOND,
                        };
                        self.results.insert(trigger.1, result);
                    }
                }
                out.report(JobEvent::TriggerDropped { items, reason });
            }
            StepResult::Refused(refusal) => match triggers.get(refusal.op) {
                // One was gone already: the others are asked for again.
                Some(gone) => {
                    self.state.item_triggers.remove(gone);
                }
                // It was enabled, or the job got more items, in the meantime.
                None => self.look_again(now, out),
            },
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => self.look_again(now, out),
        }
    }

    /// Rule: writes the results of triggers whose caller waits. The nodes of callers that stopped waiting are gone.
    pub(super) fn report_results(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if self.results.is_empty() {
            return false;
        }
        let results: Vec<(String, &'static str)> =
            self.results.iter().take(limits::ITEMS_PER_COMMIT).map(|(name, result)| (name.clone(), *result)).collect();
        let ops = results.iter().map(|(name, result)| Op::set(self.path.result(name), *result)).collect();
        self.commit(Step::Report { results }, ops, out)
    }

    pub(super) fn results_reported(
        &mut self,
        now: Timestamp,
        results: Vec<(String, &'static str)>,
        result: StepResult,
    ) {
        match result {
            StepResult::Committed { .. } => results.iter().for_each(|(name, _)| {
                self.results.remove(name);
            }),
            StepResult::Refused(refusal) => {
                if let Some((gone, _)) = results.get(refusal.op) {
                    self.results.remove(gone);
                }
            }
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => self.pause(now),
        }
    }

    /// Rule, of the leader: an instance that is gone did not take its trigger up. Each item that it still owns gets a trigger of its
    /// own instead.
    pub(super) fn adopt_triggers(&mut self, now: Timestamp, out: &mut Effects) -> bool {
        if self.state.triggers.is_empty() || !self.is_leader() || self.follow.stale || !self.follow.known {
            return false;
        }
        let is_gone = |id: &&String| {
            !self.state.is_live(id) && self.gone.get(*id).is_none_or(|since| now >= *since + limits::SECOND_LOOK)
        };
        let Some(id) = self.state.triggers.iter().find(is_gone).cloned() else { return false };
        let has_trigger = |item: u32| self.state.triggers_of(item).next().is_some();
        let owned = self.follow.owners.iter().filter(|(item, owner)| **owner == id && !has_trigger(**item));
        let items: Vec<u32> = owned.map(|(item, _)| *item).take(limits::ITEMS_PER_COMMIT).collect();
        let mut ops = vec![Op::delete(self.path.trigger(&id))];
        ops.extend(items.iter().map(|item| Op::create(self.path.trigger(&item.to_string()), "")));
        self.commit(Step::AdoptTrigger { id, items }, ops, out)
    }

    pub(super) fn trigger_adopted(
        &mut self,
        now: Timestamp,
        id: String,
        items: Vec<u32>,
        result: StepResult,
        out: &mut Effects,
    ) {
        match result {
            StepResult::Committed { .. } => {
                self.state.triggers.remove(&id);
                self.state.item_triggers.extend(items.iter().map(|item| (*item, item.to_string())));
                out.report(JobEvent::TriggerAdopted { instance: id, items });
            }
            StepResult::Refused(refusal) if refusal.op == 0 => {
                self.state.triggers.remove(&id);
            }
            StepResult::Refused(refusal) => {
                if let Some(item) = items.get(refusal.op - 1) {
                    self.state.item_triggers.insert((*item, item.to_string()));
                }
            }
            StepResult::Unknown | StepResult::Failed | StepResult::Answers(_) => self.look_again(now, out),
        }
    }

    /// Rule: takes the own trigger node away, which its addressee does in any case. One that leaves does not take it up.
    pub(super) fn acknowledge_trigger(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if self.life != Life::Joined || !self.state.triggers.contains(self.id()) {
            return false;
        }
        let op = Op::delete(self.path.trigger(self.id()));
        self.commit(Step::Trigger, vec![op], out)
    }

    pub(super) fn trigger_acknowledged(&mut self, _now: Timestamp, result: StepResult) {
        if matches!(result, StepResult::Committed { .. } | StepResult::Refused(_)) {
            let id = self.id().to_owned();
            self.state.triggers.remove(&id);
        }
    }
}
