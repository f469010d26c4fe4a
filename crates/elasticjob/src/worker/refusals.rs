//! Requests that the registry refuses, or that cannot be sent: nothing that waits or retries by itself. Each cause is logged with
//! its remedy, repeated at a slow pace while it lasts, and included in the health of the process.

use std::collections::{HashMap, HashSet};
use std::mem::Discriminant;
use std::time::{Duration, Instant};

use elasticjob_core::machine::StepResult;
use elasticjob_registry::Error;

use super::Task;
use super::slots::SlotId;
use crate::clock;

/// Pause between two log lines about one kind of refusal.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Time for which a refusal stays in the health of the process: other requests of the job may be accepted in that time.
const KEPT: Duration = Duration::from_secs(15);

/// What was logged of each kind of refusal.
#[derive(Debug, Default)]
pub(super) struct Refusals(HashMap<Discriminant<Error>, Logged>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    /// The jobs that were refused since.
    jobs: HashSet<String>,
    /// The jobs that a log line has named since.
    named: HashSet<String>,
}

/// Jobs that a kind of refusal names one by one, before they are only counted.
const NAMED_MAX: usize = 10;

impl Refusals {
    /// Returns how many other jobs were refused for the same cause since its last log line; `None` while that line is recent.
    fn note(&mut self, job: &str, error: &Error, now: Instant) -> Option<usize> {
        let kind = std::mem::discriminant(error);
        let Some(logged) = self.0.get_mut(&kind) else {
            let named = HashSet::from([job.to_owned()]);
            self.0.insert(kind, Logged { at: now, jobs: HashSet::new(), named });
            return Some(0);
        };
        if now.duration_since(logged.at) < LOG_EVERY {
            let is_new = logged.named.len() < NAMED_MAX && logged.named.insert(job.to_owned());
            if !is_new {
                logged.jobs.insert(job.to_owned());
            }
            return is_new.then_some(0);
        }
        logged.at = now;
        logged.named = HashSet::from([job.to_owned()]);
        let jobs = std::mem::take(&mut logged.jobs);
        Some(jobs.iter().filter(|other| *other != job).count())
    }
}

impl Task {
    /// A request of that job was refused.
    pub(super) fn refused(&mut self, job: SlotId, error: &Error) {
        let Some(slot) = self.slots.get_mut(job) else { return };
        slot.executor.meter().set_refusal(Some(error.to_string()));
        slot.refused_at = Some(clock::instant());
        match self.refusals.note(&slot.name, error, clock::instant()) {
            None => {}
            Some(others) => tracing::warn!(
                job = slot.name,
                other_jobs = (others > 0).then_some(others),
                "the registry rejects a request of the job: {error}; retrying"
            ),
        }
    }

    /// A write that was committed some time after the last refusal shows that the registry takes requests of that job.
    pub(super) fn accepted(&mut self, job: SlotId, result: &StepResult) {
        if matches!(result, StepResult::Committed { .. })
            && let Some(slot) = self.slots.get_mut(job)
            && slot.refused_at.take_if(|at| at.elapsed() >= KEPT).is_some()
            && slot.executor.meter().set_refusal(None)
        {
            tracing::info!(job = slot.name, "the registry accepts requests of the job again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_logged_immediately_and_then_at_a_slow_pace_with_the_number_of_jobs() {
        let mut refusals = Refusals::default();
        let denied = |path: &str| Error::Denied { path: path.to_owned() };
        let start = clock::instant();
        assert_eq!(refusals.note("a", &denied("/a"), start), Some(0));
        for (job, logged) in [("a", None), ("b", Some(0)), ("c", Some(0)), ("b", None), ("c", None)] {
            assert_eq!(refusals.note(job, &denied("/x"), start + Duration::from_secs(1)), logged, "{job}");
        }
        for number in 0..20 {
            let logged = (number < NAMED_MAX - 3).then_some(0);
            let job = format!("job{number}");
            assert_eq!(refusals.note(&job, &denied("/x"), start + Duration::from_secs(2)), logged, "{job}");
        }
        let large = Error::TooLarge { path: "/a".into(), bytes: 2, limit: 1 };
        assert_eq!(refusals.note("a", &large, start + Duration::from_secs(1)), Some(0), "another cause");
        assert_eq!(refusals.note("a", &denied("/a"), start + LOG_EVERY), Some(15));
        assert_eq!(refusals.note("a", &denied("/a"), start + LOG_EVERY * 2), Some(0));
    }
}
