//! The one timer queue of a process. The wall clock is looked at again at least each second, so that steps of it and
//! suspended machines are seen.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use elasticjob_core::time::Timestamp;

use crate::clock;

/// The longest time without a look at the wall clock.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// The entry that counts for each job; the others are void.
    armed: HashMap<usize, Timestamp>,
}

impl Timers {
    /// Wakes the job at that time; it replaces the one before.
    pub(super) fn arm(&mut self, job: usize, at: Timestamp) {
        if self.armed.insert(job, at) != Some(at) {
            self.queue.push(Reverse((at, job)));
        }
    }

    /// A job whose time has come.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<usize> {
        while let Some(Reverse((at, job))) = self.queue.peek().copied() {
            let counts = self.armed.get(&job) == Some(&at);
            if counts && at > now {
                return None;
            }
            self.queue.pop();
            if counts {
                self.armed.remove(&job);
                return Some(job);
            }
        }
        None
    }

    /// How long there is nothing to do.
    pub(super) fn pause(&self) -> Duration {
        match self.queue.peek() {
            Some(Reverse((at, _))) => clock::until(*at).min(LOOK),
            None => LOOK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_one_time_and_the_earliest_comes_first() {
        let mut timers = Timers::default();
        timers.arm(1, Timestamp(30));
        timers.arm(2, Timestamp(20));
        timers.arm(1, Timestamp(10));
        timers.arm(2, Timestamp(40));
        assert_eq!(timers.due(Timestamp(9)), None);
        assert_eq!(timers.due(Timestamp(35)), Some(1));
        assert_eq!(timers.due(Timestamp(35)), None);
        assert_eq!(timers.due(Timestamp(40)), Some(2));
        assert_eq!(timers.due(Timestamp(99)), None);
    }
}
