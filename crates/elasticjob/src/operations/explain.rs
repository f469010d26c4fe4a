//! Why a job does not run.

use std::time::Duration;

use elasticjob_core::config::JobConfig;
use elasticjob_core::report::{Detail, Explained, Facts, explain};
use elasticjob_core::wire::JobDocument;
use elasticjob_registry::Error;

use super::{OperationError, Operations};
use crate::clock;

/// What passes by itself, as an election or a takeover, is over after this.
const PASSING: Duration = Duration::from_millis(700);
/// Looks until two in a row come to the same.
const LOOKS_MAX: usize = 5;

impl Operations {
    /// Checks everything that a job needs to run; the first that is missing is named. Nothing is written. What looks like a
    /// trouble is looked at again, so that an election or a resharding that is under way is not taken for one.
    ///
    /// A registry that does not answer is the first cause, not an error.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub async fn explain(&self, job: &str) -> Result<Explained, OperationError> {
        let mut before: Option<Explained> = None;
        for _ in 0..LOOKS_MAX {
            let now = match self.look(job).await {
                Err(OperationError::Registry(
                    error @ (Error::Unreachable { .. } | Error::TimedOut { .. } | Error::Denied { .. }),
                )) => return Ok(Explained::without_registry(&error.to_string())),
                found => found?,
            };
            let names = |explained: &Explained| explained.causes().map(|check| check.name).collect::<Vec<_>>();
            let causes = names(&now);
            if causes.is_empty() || before.as_ref().is_some_and(|before| names(before) == causes) {
                return Ok(now);
            }
            before = Some(now);
            clock::sleep(PASSING).await;
        }
        before.ok_or_else(|| OperationError::Conflict { job: job.to_owned() })
    }

    async fn look(&self, job: &str) -> Result<Explained, OperationError> {
        let asked = clock::instant();
        let report = self.known_report(job, Detail::Full).await?;
        let answered = asked.elapsed();
        let data = report.state.config.as_ref().map(|node| node.data.as_ref()).unwrap_or_default();
        let config = JobDocument::parse(data).map_err(|error| error.to_string()).and_then(|document| {
            let told = |faults: Vec<elasticjob_core::config::ConfigError>| {
                faults.iter().map(|fault| format!("key {fault}")).collect::<Vec<_>>().join("; ")
            };
            let config = JobConfig::check(&document, &clock::zone).map_err(told)?;
            // Its instances reject what its job type does not accept, and keep the configuration before.
            let class = report.state.root.as_ref().map(elasticjob_core::tree::Node::text).unwrap_or_default();
            let (faults, _) = super::config::check(&document, &class, &self.plugins);
            if faults.is_empty() { Ok(config) } else { Err(told(faults)) }
        });
        let registry = format!("{}, read in {} ms", self.registry.describe(), answered.as_millis());
        Ok(explain(&report, &Facts { now: self.clock.now(), config, registry }))
    }
}
