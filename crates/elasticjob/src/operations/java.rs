//! Operations whose writes are exactly those of Java's lifecycle API, for programs that were written for Java's console.
//!
//! They differ from those of the same purpose on [`Operations`]: they change fewer nodes, and accept more jobs.

use std::collections::BTreeSet;

use elasticjob_core::path::JobPath;
use elasticjob_core::report::Detail;
use elasticjob_core::tree::Op;

use super::config::write;
use super::jobs::{server_of, switch_servers};
use super::{Change, OperationError, Operations};

impl Operations {
    /// Disables or enables a job on the servers that it has now (Java: `JobOperateAPI.disable` and `enable`). Servers that join later,
    /// and `disabled` in the configuration, are not affected.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    #[doc(hidden)]
    pub async fn switch_known_servers(&self, job: &str, disabled: bool) -> Result<(), OperationError> {
        self.change_job(job, Detail::Brief, false, |report| Ok(switch_servers(report, disabled))).await
    }

    /// Asks each instance of a job to run its items once (Java: `JobOperateAPI.trigger`), whether or not the job is disabled. Succeeds for
    /// a job without instances, of which nothing is written.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    #[doc(hidden)]
    pub async fn trigger_instances(&self, job: &str) -> Result<(), OperationError> {
        self.change_job(job, Detail::Full, true, |report| {
            let (path, state) = (&report.path, &report.state);
            let waiting = state.instances.keys().filter(|id| !state.triggers.contains(*id));
            // An instance that leaves in the meantime gets no trigger.
            let each = |id: &String| [Op::exists(path.instance(id)), Op::create(path.trigger(id), "")];
            let mut ops: Vec<Op> = waiting.flat_map(each).collect();
            if !ops.is_empty() {
                ops.insert(0, Op::Ensure(path.triggers()));
            }
            Ok(ops)
        })
        .await
    }

    /// The servers on which instances of a job run, by their IP addresses; none if the job does not exist.
    ///
    /// # Errors
    ///
    /// The registry failed.
    #[doc(hidden)]
    pub async fn live_servers(&self, job: &str) -> Result<BTreeSet<String>, OperationError> {
        let report = self.report(job, Detail::Servers).await?;
        Ok(report.state.instances.iter().map(|(id, node)| server_of(id, node)).collect())
    }

    /// Writes a change of the configuration, and only that (Java: `JobConfigurationAPI.updateJobConfiguration`): a change of `disabled`
    /// does not change the servers.
    ///
    /// # Errors
    ///
    /// As of [`Operations::apply`].
    #[doc(hidden)]
    pub async fn apply_to_config(&self, change: &Change) -> Result<(), OperationError> {
        if change.is_empty() {
            return Ok(());
        }
        let op = write(change, JobPath::new(&change.job).config());
        self.commit_change(change, vec![op]).await
    }
}
