//! When the job fires: the stored configuration becomes a schedule, and the time that passes becomes due times.

use std::sync::Arc;
use std::time::Duration;

use super::types::{Effects, Life, Phase};
use super::{Effect, JobMachine, Note};
use crate::config::JobConfig;
use crate::limits;
use crate::time::Timestamp;
use crate::wire::JobDocument;

/// Due times that are walked over one by one after the process was held up; a day of a job each second.
const CATCH_UP_MAX: usize = 100_000;

impl JobMachine {
    /// Reads the stored configuration again, if it was written since.
    pub(super) fn refresh_config(&mut self, now: Timestamp, out: &mut Effects) {
        let Some(node) = &self.view.config else { return };
        if self.config_read == Some(node.mzxid) {
            return;
        }
        self.config_read = Some(node.mzxid);
        let document = match JobDocument::parse(&node.data) {
            Ok(document) => document,
            // Damage: nobody knows what was meant. The job rests.
            Err(error) => {
                self.config = None;
                self.schedule.next_due = None;
                self.schedule.cron = None;
                return self.refuse_config(error.to_string(), out);
            }
        };
        let checked = JobConfig::check(&document, &*self.surroundings.zones).and_then(|config| {
            let faults = (self.setup.check.0)(&config);
            if faults.is_empty() { Ok(config) } else { Err(faults) }
        });
        match checked {
            Ok(config) if config.cron.is_none() && !self.setup.one_off => {
                self.refuse_config("`cron` is empty: a scheduled job needs one".to_owned(), out);
            }
            Ok(config) => self.use_config(now, config, out),
            // A change that cannot be used is refused: what was in force stays so.
            Err(faults) => {
                let reason = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                self.refuse_config(reason, out);
            }
        }
    }

    fn refuse_config(&mut self, reason: String, out: &mut Effects) {
        self.config_refused = true;
        out.note(Note::BadConfig { reason, rests: self.config.is_none() });
    }

    fn use_config(&mut self, now: Timestamp, config: JobConfig, out: &mut Effects) {
        let first = self.config.is_none();
        if std::mem::take(&mut self.config_refused) {
            out.note(Note::GoodConfig);
        }
        self.reconcile_at = config.reconcile_interval.map(|i| now + i);
        if first && config.max_time_diff.is_some() {
            out.push(Effect::CheckClock);
        }
        self.config = Some(Arc::new(config));
        self.reschedule(now, out);
    }

    fn reschedule(&mut self, now: Timestamp, out: &mut Effects) {
        let Some(config) = &self.config else { return };
        let Some(cron) = config.cron.as_ref().filter(|_| !self.setup.one_off) else { return };
        let wanted = (cron.text().to_owned(), config.time_zone_text.clone());
        if self.schedule.cron.as_ref() == Some(&wanted) {
            return;
        }
        let changed = self.schedule.cron.is_some();
        self.schedule.next_due = cron.next(now, &config.time_zone);
        if changed {
            let (cron, zone) = wanted.clone();
            out.note(Note::Rescheduled { cron, zone, next: self.schedule.next_due });
        }
        self.schedule.cron = Some(wanted);
    }

    /// Lets the time pass: due times that have come are noted, for the items that cannot take them at once too.
    pub(super) fn tick(&mut self, now: Timestamp, out: &mut Effects) {
        let stepped_back = self.schedule.last_tick > now + Duration::from_secs(1);
        self.schedule.last_tick = now;
        if self.reconcile_at.is_some_and(|at| at <= now) && self.session.is_some() {
            let interval = self.config.as_ref().and_then(|c| c.reconcile_interval);
            self.reconcile_at = interval.map(|i| now + i);
            out.push(Effect::Reload);
        }
        let Some(config) = self.config.clone() else { return };
        let Some(cron) = config.cron.as_ref() else { return };
        if self.schedule.next_due.is_none() {
            return;
        }
        if stepped_back {
            self.schedule.next_due = cron.next(now, &config.time_zone);
            return;
        }
        let (mut last, mut skipped) = (None, None);
        for _ in 0..CATCH_UP_MAX {
            let Some(due) = self.schedule.next_due.filter(|due| *due <= now) else { break };
            skipped = last.replace(due);
            self.schedule.next_due = cron.next(due, &config.time_zone);
        }
        if let Some(due) = skipped {
            out.note(Note::Skipped { due, reason: "the process was held up, and a later firing is due already" });
        }
        if let Some(due) = last {
            self.schedule.last_due = Some(due);
            self.fell_due(now, due, &config, out);
        }
    }

    /// A due time has come: what cannot take it says so now, what can is left to the rule `begin`.
    fn fell_due(&mut self, now: Timestamp, due: Timestamp, config: &JobConfig, out: &mut Effects) {
        if self.life != Life::Joined || (self.session.is_some() && !self.is_available()) {
            self.schedule.floor = self.schedule.floor.max(due);
            return;
        }
        if self.is_held() {
            self.follow.hold_until.get_or_insert(now + limits::SHARDING_WAIT);
        }
        let mut missed = Vec::new();
        for (number, item) in &mut self.items {
            let overlaps = self.busy.get(number).is_some_and(|b| b.phase == Phase::Running && b.due < due);
            if item.disabled || item.taken_by.is_some() {
                item.accounted = item.accounted.max(due);
            } else if (overlaps || self.blocked.contains_key(number)) && item.accounted < due {
                item.accounted = due;
                missed.push(*number);
                item.missed = config.misfire.then_some(due);
            }
        }
        if missed.is_empty() {
        } else if config.misfire {
            out.note(Note::Misfired { items: missed, due });
        } else {
            out.note(Note::Skipped { due, reason: "the run before has not ended, and misfire is off" });
        }
    }
}
