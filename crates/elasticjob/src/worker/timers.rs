//! The one timer queue of a process, with one time for each job. The wall clock is looked at again at least each second, so that
//! steps of it and suspended machines are seen.

use std::collections::BTreeSet;
use std::time::Duration;

use elasticjob_core::time::Timestamp;

use super::slots::SlotId;
use crate::clock::Clock;

/// The longest time without reading the wall clock.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Timestamp, SlotId)>,
    /// By the place of the job.
    armed: Vec<Option<(SlotId, Timestamp)>>,
    /// The wall clock when it was looked at last.
    looked: Timestamp,
}

/// A clock that is set back by less is not noticed: its firings are late by that.
const STEP: Duration = Duration::from_secs(1);

impl Timers {
    /// Wakes the job at that time; it replaces the one before.
    pub(super) fn arm(&mut self, job: SlotId, at: Timestamp) {
        if self.armed.len() <= job.place() {
            self.armed.resize(job.place() + 1, None);
        }
        match self.armed[job.place()].replace((job, at)) {
            Some(before) if before == (job, at) => return,
            Some((armed, before)) => drop(self.queue.remove(&(before, armed))),
            None => {}
        }
        self.queue.insert((at, job));
    }

    /// The job has left.
    pub(super) fn disarm(&mut self, job: SlotId) {
        let place = self.armed.get_mut(job.place());
        if let Some((job, at)) = place.and_then(|place| place.take_if(|(armed, _)| *armed == job)) {
            self.queue.remove(&(at, job));
        }
    }

    /// Looks at the wall clock. Where it was set back, each job is woken, since its time is one of the clock before; returns by how much.
    pub(super) fn look(&mut self, now: Timestamp) -> Option<Duration> {
        let back = self.looked.since(now);
        self.looked = now;
        if back <= STEP {
            return None;
        }
        let jobs: Vec<SlotId> = self.queue.iter().map(|(_, job)| *job).collect();
        jobs.into_iter().for_each(|job| self.arm(job, now));
        Some(back)
    }

    /// A job whose time has come.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<SlotId> {
        let (at, job) = *self.queue.first()?;
        if at > now {
            return None;
        }
        self.disarm(job);
        Some(job)
    }

    /// How long there is nothing to do.
    pub(super) fn pause(&self, clock: &Clock) -> Duration {
        match self.queue.first() {
            Some((at, _)) => clock.until(*at).min(LOOK),
            None => LOOK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_one_time_and_the_earliest_comes_first() {
        let (one, two) = (SlotId::of(1), SlotId::of(2));
        let mut timers = Timers::default();
        timers.arm(one, Timestamp(30));
        timers.arm(two, Timestamp(20));
        timers.arm(one, Timestamp(10));
        timers.arm(two, Timestamp(40));
        assert_eq!(timers.queue.len(), 2);
        assert_eq!(timers.due(Timestamp(9)), None);
        assert_eq!(timers.due(Timestamp(35)), Some(one));
        assert_eq!(timers.due(Timestamp(35)), None);
        assert_eq!(timers.due(Timestamp(40)), Some(two));
        assert_eq!(timers.due(Timestamp(99)), None);

        timers.arm(one, Timestamp(10_000_000));
        for (now, back) in [(9_000_000, None), (8_999_500, None), (5_000_000, Some(3_999_500)), (5_000_001, None)] {
            assert_eq!(timers.look(Timestamp(now)), back.map(Duration::from_millis), "{now}");
        }
        assert_eq!(timers.due(Timestamp(5_000_001)), Some(one), "it is not woken an hour later");
        timers.arm(one, Timestamp(50));
        timers.disarm(one);
        assert_eq!(timers.due(Timestamp(99)), None);
        assert!(timers.queue.is_empty() && timers.armed.iter().all(Option::is_none));
    }
}
