//! The one timer queue of a process, with one time for each job. The wall clock is looked at again at least each second, so that
//! steps of it and suspended machines are seen.

use std::collections::BTreeSet;
use std::time::Duration;

use elasticjob_core::time::Timestamp;

use super::slots::SlotId;
use crate::clock;

/// The longest time without a look at the wall clock.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Timestamp, SlotId)>,
    /// By the place of the job.
    armed: Vec<Option<(SlotId, Timestamp)>>,
}

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
    pub(super) fn pause(&self) -> Duration {
        match self.queue.first() {
            Some((at, _)) => clock::until(*at).min(LOOK),
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
        timers.arm(one, Timestamp(50));
        timers.disarm(one);
        assert_eq!(timers.due(Timestamp(99)), None);
        assert!(timers.queue.is_empty() && timers.armed.iter().all(Option::is_none));
    }
}
