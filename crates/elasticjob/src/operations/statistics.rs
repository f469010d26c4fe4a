//! Lines about jobs, servers and items (Java: `JobStatisticsAPI`, `ServerStatisticsAPI`, `ShardingStatisticsAPI`).

use std::collections::BTreeMap;

use elasticjob_core::picture::{Detail, JobBrief, ServerBrief, ShardInfo, job_brief, server_briefs, shard_infos};

use super::{OperationError, Operations};

impl Operations {
    /// Every job that has a configuration, by name.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn jobs(&self) -> Result<Vec<JobBrief>, OperationError> {
        let names = self.names().await?;
        Ok(self.pictures(&names, Detail::Brief).await?.iter().filter_map(job_brief).collect())
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
        let picture = self.known_picture(job, Detail::Brief).await?;
        job_brief(&picture).ok_or_else(|| OperationError::UnknownJob { job: job.to_owned(), near: None })
    }

    /// The jobs that know a server, by name, as they stand there.
    ///
    /// # Errors
    ///
    /// No job has that server, or the registry failed.
    pub async fn jobs_on_server(&self, server: &str) -> Result<Vec<JobBrief>, OperationError> {
        let jobs = self.jobs_of(server).await?;
        let pictures = self.pictures(&jobs, Detail::Servers).await?;
        Ok(pictures.iter().filter_map(|picture| JobBrief::on_server(picture, server)).collect())
    }

    /// Every server, by its IP as text.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn servers(&self) -> Result<Vec<ServerBrief>, OperationError> {
        let names = self.names().await?;
        Ok(server_briefs(&self.pictures(&names, Detail::Servers).await?))
    }

    /// How many items of all jobs each server owns, by its IP. Servers that have an instance and own nothing are among them.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn items_by_server(&self) -> Result<BTreeMap<String, usize>, OperationError> {
        let names = self.names().await?;
        let mut items = BTreeMap::new();
        let server = |id: &str| id.split("@-@").next().unwrap_or_default().to_owned();
        for picture in self.pictures(&names, Detail::Brief).await? {
            for id in picture.view.instances.keys() {
                items.entry(server(id)).or_insert(0);
            }
            for owner in picture.items.values().filter_map(|item| item.owner_id()) {
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
        Ok(shard_infos(&self.known_picture(job, Detail::Items).await?))
    }
}
