//! When the job fires: the stored configuration becomes a schedule, and the time that passes becomes due times.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::memory::{Item, Life, Phase, Schedule};
use super::types::Effects;
use super::{Effect, JobEvent, JobMachine};
use crate::config::{ConfigError, JobConfig};
use crate::limits;
use crate::time::Timestamp;
use crate::wire::JobDocument;

/// Due times that are walked over one by one after the process was held up; a day of a job each second.
const CATCH_UP_MAX: usize = 100_000;

impl JobMachine {
    /// Reads the stored configuration again, if it was written since.
    pub(super) fn refresh_config(&mut self, now: Timestamp, out: &mut Effects) {
        let Some(node) = &self.state.config else { return };
        if self.config_read == Some(node.mzxid) {
            return;
        }
        self.config_read = Some(node.mzxid);
        self.compare(out);
        let Some(node) = &self.state.config else { return };
        let document = match JobDocument::parse(&node.data) {
            Ok(document) => document,
            // Damage: the intended value is unknown. The job is paused.
            Err(error) => {
                self.config = None;
                self.schedule.next_due = None;
                self.schedule.cron = None;
                return self.refuse_config(error.to_string(), out);
            }
        };
        let checked = JobConfig::check(&document, &*self.context.zones).and_then(|config| {
            // Code of the user's: its panic must not end the machines of the other jobs.
            match catch_unwind(AssertUnwindSafe(|| (self.setup.check.0)(&config))) {
                Ok(faults) if faults.is_empty() => Ok(config),
                Ok(faults) => Err(faults),
                Err(_) => {
                    let expected =
                        "the configuration check of this job type panicked; see stderr of this process".into();
                    Err(vec![ConfigError { key: "elasticJobType", value: self.setup.class.clone(), expected }])
                }
            }
        });
        match checked {
            Ok(config) if config.cron.is_none() && !self.setup.one_off => {
                self.refuse_config(
                    "`cron` is empty: expected a cron expression, because the job is scheduled".to_owned(),
                    out,
                );
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
        out.report(JobEvent::BadConfig { reason, paused: self.config.is_none() });
    }

    fn use_config(&mut self, now: Timestamp, config: JobConfig, out: &mut Effects) {
        let first = self.config.is_none();
        let cron = |config: &JobConfig| config.cron.as_ref().map(|cron| cron.text().to_owned());
        if let (Some(last), Some(before)) = (self.schedule.last_due, &self.config)
            && cron(before) != cron(&config)
        {
            // Firings that the previous schedule missed are reported while they are known.
            let items: Vec<u32> = self.owned().collect();
            self.account(&items, last, out);
        }
        if std::mem::take(&mut self.config_refused) {
            out.report(JobEvent::GoodConfig);
        }
        self.reconcile_at = config.reconcile_interval.map(|i| now + i);
        if first && config.max_time_diff.is_some() {
            out.push(Effect::CheckClock);
        }
        if self.config.as_ref().is_some_and(|before| before.failover && !config.failover) {
            self.bereaved.insert(String::new()); // what waits to be taken over now is nobody's any more
        }
        self.config = Some(Arc::new(config));
        self.reschedule(now, out);
    }

    fn reschedule(&mut self, now: Timestamp, out: &mut Effects) {
        let Some(config) = &self.config else { return };
        let Some(cron) = config.cron.as_ref().filter(|_| !self.setup.one_off) else { return };
        let wanted = (cron.text().to_owned(), config.time_zone_text.clone(), cron.is_twice_in_repeated_hours());
        if self.schedule.cron.as_ref() == Some(&wanted) {
            return;
        }
        let changed = self.schedule.cron.is_some();
        self.schedule.next_due = cron.next(now, &config.time_zone);
        self.schedule.due_before = None;
        if changed {
            // What fell due by another schedule is not looked for.
            self.schedule.untold = self.schedule.untold.max(now);
            self.items.values_mut().for_each(|item| item.told = item.told.max(now));
        }
        if changed {
            let (cron, zone, _) = wanted.clone();
            out.report(JobEvent::Rescheduled { cron, zone, next: self.schedule.next_due });
        }
        self.schedule.cron = Some(wanted);
    }

    /// Advances the time: due times that have come are recorded, also for items that cannot start them immediately.
    pub(super) fn tick(&mut self, now: Timestamp, out: &mut Effects) {
        let stepped_back = self.schedule.last_tick > now + Duration::from_secs(1);
        if stepped_back {
            self.shift_back(self.schedule.last_tick.since(now));
        }
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
            self.forget_the_future(now);
            return;
        }
        let (mut last, mut skipped) = (None, None);
        for _ in 0..CATCH_UP_MAX {
            let Some(due) = self.schedule.next_due.filter(|due| *due <= now) else { break };
            skipped = last.replace(due);
            self.schedule.next_due = cron.next(due, &config.time_zone);
        }
        if let Some(due) = skipped {
            let reason = "the process was suspended or the clock was set forward, and a later firing is already due";
            out.report(JobEvent::Skipped { items: Vec::new(), due, reason });
        }
        if let Some(due) = last {
            self.schedule.due_before = skipped.or(self.schedule.last_due);
            self.schedule.last_due = Some(due);
            self.fell_due(now, due, &config, out);
        }
    }

    /// The clock was set back: what waits for a moment waits for as long as it would have. Only firings go by the wall clock.
    fn shift_back(&mut self, by: Duration) {
        let mut moments: Vec<&mut Timestamp> = vec![&mut self.pause_until];
        moments.extend(&mut self.cut_off);
        moments.extend(self.latch_wait.as_mut().map(|wait| &mut wait.until));
        moments.extend(self.rests.values_mut().flat_map(|rest| [&mut rest.until, &mut rest.last]));
        if let Life::Leaving { deadline } = &mut self.life {
            moments.push(deadline);
        }
        let since = [&mut self.reconcile_at, &mut self.leader_odd_since, &mut self.leaderless_since];
        moments.extend(since.into_iter().flatten());
        moments.extend(self.namesake.as_mut().map(|namesake| &mut namesake.since));
        moments.extend(self.lead.stands_in_for.as_mut().map(|stands_in| &mut stands_in.until));
        moments.extend(self.leader_seen.as_mut().map(|(_, since)| since));
        moments.extend(self.gone.values_mut().chain(self.servers_dead_since.values_mut()));
        moments.extend(self.takers.values_mut().map(|(_, _, until)| until));
        moments.extend(self.blocked.values_mut().flat_map(|b| [&mut b.orphan_since, &mut b.again]).flatten());
        let follow = &mut self.follow;
        moments.extend(follow.recheck.iter_mut());
        let waits =
            [&mut follow.unsettled_since, &mut follow.hold_until, &mut follow.ask_at, &mut follow.unowned_since];
        moments.extend(waits.into_iter().chain([&mut follow.triggered_at]).flatten());
        moments
            .extend([&mut self.lead.at, &mut self.lead.direct_until, &mut self.lead.rests_until].into_iter().flatten());
        moments.extend(self.items.values_mut().map(|item| &mut item.yields_until));
        moments.extend(self.busy.values_mut().filter_map(|busy| match &mut busy.phase {
            Phase::Ended { at } => Some(at),
            Phase::Beginning | Phase::Unsettled | Phase::Running => None,
        }));
        moments.into_iter().for_each(|moment| *moment = *moment - by);
    }

    /// The clock was set back. What was begun for times that come again is not begun again, but where it had been far off:
    /// what it said then does not count.
    fn forget_the_future(&mut self, now: Timestamp) {
        let credible = now + limits::LEDGER_AHEAD;
        match self.schedule.last_due {
            Some(last) if last <= now => {}
            Some(last) if last <= credible => {
                self.schedule.floor = self.schedule.floor.max(last);
                self.schedule.last_due = None;
            }
            Some(_) | None => {
                self.schedule.floor = self.schedule.floor.min(now);
                self.schedule.last_due = None;
            }
        }
        self.schedule.rested = None;
        self.schedule.due_before = None;
        self.schedule.untold = self.schedule.untold.min(credible);
        self.earlier.retain(|_, earlier| earlier.accounted <= credible);
        for item in self.items.values_mut().filter(|item| item.accounted > credible) {
            item.accounted = now;
            item.told = now;
            item.missed = item.missed.map(|_| now);
        }
    }

    /// A due time has come: what cannot take it says so now, what can is left to the rule `begin`.
    fn fell_due(&mut self, now: Timestamp, due: Timestamp, config: &JobConfig, out: &mut Effects) {
        if let Life::Leaving { .. } = self.life {
            return self.fell_due_while_leaving(due, config, out);
        }
        if self.life != Life::Joined || (self.session.is_some() && !self.is_available()) {
            self.schedule.floor = self.schedule.floor.max(due);
            // One whose node is gone does not rest: its session is over, or it was shut down, and others go on.
            if self.life == Life::Joined && self.state.is_live(self.id()) {
                let first = self.schedule.rested.map_or(due, |(first, _)| first);
                self.schedule.rested = Some((first, due));
            }
            return;
        }
        self.schedule.rested = None;
        if self.is_held() {
            self.follow.hold_until.get_or_insert(now + limits::SHARDING_WAIT);
        }
        let (mut missed, mut elsewhere) = (Vec::new(), Vec::new());
        for (number, item) in &mut self.items {
            let overlaps = self.busy.get(number).is_some_and(|b| b.phase == Phase::Running && b.due < due);
            if item.disabled {
                item.accounted = item.accounted.max(due);
                item.told = item.told.max(due);
            } else if item.accounted >= due {
            } else if item.taken_by.is_some() {
                elsewhere.push(*number);
            } else if overlaps || self.blocked.contains_key(number) {
                missed.push(*number);
            }
        }
        self.account(&missed, due, out);
        self.account(&elsewhere, due, out);
        for number in elsewhere.iter().chain(&missed) {
            let Some(item) = self.items.get_mut(number) else { continue };
            item.accounted = due;
            if missed.contains(number) {
                item.miss(due, config.misfire);
            }
        }
        if !elsewhere.is_empty() {
            let reason = "an interrupted run of these items is being taken over";
            out.report(JobEvent::Skipped { items: elsewhere, due, reason });
        }
        self.say_missed(missed, due, out);
    }

    /// An instance that is leaving starts nothing. With misfire on, it marks the firing as missed, and the next owner catches it up.
    fn fell_due_while_leaving(&mut self, due: Timestamp, config: &JobConfig, out: &mut Effects) {
        self.schedule.floor = self.schedule.floor.max(due);
        if !config.misfire {
            return;
        }
        let is_missed = |item: &Item| !item.disabled && item.accounted < due && item.taken_by.is_none();
        let missed = self.items.iter().filter(|(_, item)| is_missed(item));
        let missed: Vec<u32> = missed.map(|(number, _)| *number).collect();
        self.account(&missed, due, out);
        for number in &missed {
            let Some(item) = self.items.get_mut(number) else { continue };
            item.accounted = due;
            item.missed = Some(due);
        }
        self.say_missed(missed, due, out);
    }

    /// Reports a firing that items could not start.
    pub(super) fn say_missed(&self, items: Vec<u32>, due: Timestamp, out: &mut Effects) {
        if items.is_empty() {
        } else if self.config.as_ref().is_some_and(|c| c.misfire) {
            out.report(JobEvent::Misfired { items, due });
        } else {
            out.report(JobEvent::Skipped {
                items,
                due,
                reason: "the previous run has not completed, and misfire is off",
            });
        }
    }

    /// Called when something is said of a firing of these items, or it is begun: firings between it and the last one that is
    /// known passed while no instance of ours had the items, which people should know.
    pub(super) fn account(&mut self, items: &[u32], due: Timestamp, out: &mut Effects) {
        let mut gaps: BTreeMap<Timestamp, Vec<u32>> = BTreeMap::new();
        for number in items {
            let Some(told) = self.items.get(number).map(|item| item.told) else { continue };
            if self.has_passed(told, due) {
                gaps.entry(told).or_default().push(*number);
            }
            if let Some(item) = self.items.get_mut(number) {
                item.told = told.max(due);
            }
        }
        for (told, items) in gaps {
            self.tell_passed(items, told, due, out);
        }
    }

    /// Whether there may have been a firing between these two, as far as we saw the latest one before the second pass.
    pub(super) fn has_passed(&self, told: Timestamp, due: Timestamp) -> bool {
        let Schedule { last_due, due_before, .. } = self.schedule;
        let latest = if last_due.is_some_and(|last| last < due) { last_due } else { due_before };
        told < due && latest.is_none_or(|latest| told < latest)
    }

    /// Reports the firings between two others that no instance began, if there may have been any.
    pub(super) fn tell_passed(&self, items: Vec<u32>, told: Timestamp, due: Timestamp, out: &mut Effects) {
        let Some(config) = self.config.as_ref() else { return };
        let Some(cron) = config.cron.as_ref() else { return };
        let (mut first, mut last, mut firings) = (None, told, 0);
        while let Some(next) = cron.next(last, &config.time_zone).filter(|next| *next < due) {
            first.get_or_insert(next);
            last = next;
            firings += 1;
            if firings == limits::PASSED_MAX {
                last = due - Duration::from_millis(1);
                break;
            }
        }
        if let Some(first) = first {
            out.report(JobEvent::Passed { items, first, last, firings });
        }
    }
}
