//! Lines about jobs, servers and items (Java: `JobStatisticsAPI`, `ServerStatisticsAPI`, `ShardingStatisticsAPI`).

use std::collections::BTreeMap;

use elasticjob_core::job_state::ServerState;
use elasticjob_core::report::{Detail, JobBrief, ServerBrief, ShardInfo, job_brief, server_briefs, shard_infos};

use super::{OperationError, Operations};

impl Operations {
    /// Every job that has a configuration, by name.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn jobs(&self) -> Result<Vec<JobBrief>, OperationError> {
        let names = self.names().await?;
        Ok(self.reports(&names, Detail::Brief).await?.iter().filter_map(job_brief).collect())
    }

    /// The number of nodes below the namespace, whatever they are, as Java counts jobs.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn jobs_total_count(&self) -> Result<usize, OperationError> {
        Ok(self.names().await?.len())
    }

    /// One job.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn job(&self, job: &str) -> Result<JobBrief, OperationError> {
        let report = self.known_report(job, Detail::Brief).await?;
        job_brief(&report).ok_or_else(|| OperationError::UnknownJob { job: job.to_owned(), near: None })
    }

    /// The jobs that know a server, by name, as they stand there.
    ///
    /// # Errors
    ///
    /// No job has that server, or the registry failed.
    pub async fn jobs_on_server(&self, server: &str) -> Result<Vec<JobBrief>, OperationError> {
        let jobs = self.jobs_of(server).await?;
        let reports = self.reports(&jobs, Detail::Servers).await?;
        Ok(reports.iter().filter_map(|report| JobBrief::on_server(report, server)).collect())
    }

    /// Every server, by its IP as text.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn servers(&self) -> Result<Vec<ServerBrief>, OperationError> {
        let names = self.names().await?;
        Ok(server_briefs(&self.reports(&names, Detail::Servers).await?))
    }

    /// Returns the number of items of all jobs that each server owns, by its IP address. A server that owns nothing is included if one of its
    /// instances could own items.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn items_by_server(&self) -> Result<BTreeMap<String, usize>, OperationError> {
        let names = self.names().await?;
        let mut items = BTreeMap::new();
        let server = |id: &str| id.split("@-@").next().unwrap_or_default().to_owned();
        for report in self.reports(&names, Detail::Brief).await? {
            // A server on which every job is disabled can own nothing.
            let is_enabled = |ip: &String| report.state.server(ip) != Some(ServerState::Disabled);
            for ip in report.state.instances.keys().map(|id| server(id)).filter(is_enabled) {
                items.entry(ip).or_insert(0);
            }
            for owner in report.items.values().filter_map(|item| item.owner_id()) {
                *items.entry(server(&owner)).or_insert(0) += 1;
            }
        }
        Ok(items)
    }

    /// The number of servers.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn servers_total_count(&self) -> Result<usize, OperationError> {
        Ok(self.servers().await?.len())
    }

    /// The items of a job, by number.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn items(&self, job: &str) -> Result<Vec<ShardInfo>, OperationError> {
        Ok(shard_infos(&self.known_report(job, Detail::Items).await?))
    }
}
