//! Whole reports of jobs, for the console.

use elasticjob_core::config::JobConfig;
use elasticjob_core::report::{Detail, JobReport};
use elasticjob_core::wire::JobDocument;

use super::{OperationError, Operations};
use crate::clock;

impl Operations {
    /// Every job with all of its nodes, by name. A job without a configuration is included, and one that the registry does not show; a node that is no job is not.
    ///
    /// # Errors
    ///
    /// The registry failed.
    #[doc(hidden)]
    pub async fn full_reports(&self) -> Result<Vec<JobReport>, OperationError> {
        let names = self.names().await?;
        let mut reports = self.reports(&names, Detail::Full).await?;
        let is_job = |report: &JobReport| report.state.config.is_some() || report.state.has_servers;
        reports.retain(|report| is_job(report) || !report.denied.is_empty());
        Ok(reports)
    }

    /// The name and address of the registry.
    #[doc(hidden)]
    pub fn registry_name(&self) -> String {
        self.registry.describe()
    }

    /// Checks a stored configuration as instances do; the error has every fault.
    ///
    /// # Errors
    ///
    /// The text is no configuration, or has an invalid value.
    #[doc(hidden)]
    pub fn checked_config(data: &[u8]) -> Result<JobConfig, String> {
        let document = JobDocument::parse(data).map_err(|error| error.to_string())?;
        let faults = |faults: Vec<elasticjob_core::config::ConfigError>| {
            faults.iter().map(|fault| format!("key {fault}")).collect::<Vec<_>>().join("; ")
        };
        JobConfig::check(&document, &clock::zone).map_err(faults)
    }
}
