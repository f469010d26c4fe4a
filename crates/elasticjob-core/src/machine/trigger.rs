//! Triggers through the registry, `trigger/<id>` (Java: `TriggerListenerManager`). One that comes during a run is kept and
//! runs after it, once; Java drops it.

use super::types::{Effects, Step};
use super::{JobMachine, Note, StepResult};
use crate::limits;
use crate::time::Timestamp;
use crate::tree::Op;

impl JobMachine {
    pub(super) fn trigger(&mut self, now: Timestamp, out: &mut Effects) {
        out.note(Note::Triggered);
        if self.items.is_empty() || self.is_held() {
            self.follow.trigger_held = true;
            self.follow.hold_until.get_or_insert(now + limits::SHARDING_WAIT);
        }
        for item in self.items.values_mut() {
            item.triggered = true;
        }
    }

    /// Rule: takes the own trigger node away, which its addressee does in any case.
    pub(super) fn acknowledge_trigger(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        if !self.view.triggers.contains(self.id()) {
            return false;
        }
        let op = Op::delete(self.path.trigger(self.id()));
        self.commit(Step::Trigger, vec![op], out)
    }

    pub(super) fn trigger_acknowledged(&mut self, _now: Timestamp, result: StepResult) {
        if matches!(result, StepResult::Committed { .. } | StepResult::Refused(_)) {
            let id = self.id().to_owned();
            self.view.triggers.remove(&id);
        }
    }
}
