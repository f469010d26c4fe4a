//! Removes jobs and servers (Java: `JobOperateAPI.remove`, `JobConfigurationAPI.removeJobConfiguration`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::report::{Detail, JobReport};
use elasticjob_core::tree::Op;
use elasticjob_registry::Outcome;

use super::jobs::{known_server, shut};
use super::{OperationError, Operations, Scope};
use crate::clock;

/// Maximum number of nodes that one transaction deletes.
const DELETED_AT_ONCE: usize = 500;
/// Instances that shut down because of the removal may write for so long. A job without instances has no such writes.
const LATE_WRITES: Duration = Duration::from_millis(500);
/// Maximum number of times that late writes are deleted.
const SWEEPS: usize = 20;

impl Operations {
    /// Shuts the instances down and removes the servers. The job's configuration stays, and the job counts as crashed.
    ///
    /// # Errors
    ///
    /// There is no such job or server, or the registry failed.
    pub async fn remove(&self, scope: Scope<'_>) -> Result<(), OperationError> {
        match scope {
            Scope::Job(job) => {
                self.change_job(job, Detail::Items, false, |report| {
                    let servers = report.state.servers.keys().map(|ip| Op::delete(report.path.server(ip)));
                    Ok(shut(report, None).into_iter().chain(servers).collect())
                })
                .await
            }
            Scope::JobOnServer(job, server) => {
                let seen = AtomicBool::new(false);
                self.change_job(job, Detail::Items, false, |report| {
                    // Asked again after a lost answer, a server that is gone is what was wanted.
                    if !seen.swap(true, Ordering::Relaxed) {
                        known_server(report, server)?;
                    }
                    let node = report.state.servers.get(server).map(|_| Op::delete(report.path.server(server)));
                    Ok(shut(report, Some(server)).into_iter().chain(node).collect())
                })
                .await
            }
            Scope::Server(server) => {
                let jobs = self.jobs_of(server).await?;
                let one = |job: String| async move {
                    let ops = |report: &JobReport| {
                        let node = report.state.servers.get(server).map(|_| Op::delete(report.path.server(server)));
                        Ok(shut(report, Some(server)).into_iter().chain(node).collect())
                    };
                    self.change(&job, Detail::Items, false, ops).await
                };
                self.each(&jobs, one).await
            }
        }
    }

    /// Removes a job with all of its nodes. Its instances shut it down. Nodes that they write while they do so are deleted too,
    /// for up to ten seconds; a job without instances is removed immediately.
    ///
    /// # Errors
    ///
    /// The job does not exist, others write to it again and again or create a new job of that name, or the registry failed.
    pub async fn remove_job(&self, job: &str) -> Result<(), OperationError> {
        self.check_removable(job).await?;
        let path = JobPath::new(job);
        let mut config = None;
        let mut had_instances = false;
        for _ in 0..SWEEPS {
            let report = self.report(job, Detail::Items).await?;
            let found = report.state.config.as_ref().map(|node| node.czxid);
            if found.is_some() && config.is_some_and(|removed| found != Some(removed)) {
                return Err(OperationError::Conflict { job: job.to_owned() });
            }
            config = config.or(found);
            let instances = shut(&report, None);
            if !instances.is_empty() {
                had_instances = true;
                self.delete(instances).await?;
            }
            let mut nodes = self.subtree(&path).await?;
            nodes.reverse(); // children first
            for part in nodes.chunks(DELETED_AT_ONCE) {
                self.delete(part.iter().cloned().map(Op::delete).collect()).await?;
            }
            if had_instances {
                clock::sleep(LATE_WRITES).await;
            }
            if self.subtree(&path).await?.is_empty() {
                return Ok(());
            }
        }
        Err(OperationError::Conflict { job: job.to_owned() })
    }

    /// Whether there is a job of that name to be removed, also one that has lost its configuration.
    ///
    /// # Errors
    ///
    /// There is no such job: no node, or one that looks like none; or the registry failed.
    pub async fn check_removable(&self, job: &str) -> Result<(), OperationError> {
        let path = JobPath::new(job);
        let parts = [path.config(), path.servers(), path.instances(), path.leader(), path.sharding()];
        let is_job = match super::is_name(job) && job != "zookeeper" {
            true => {
                let answers = self.registry.read(parts.map(Query::Node).into()).await?;
                answers.iter().any(|answer| answer.node().is_some())
            }
            false => false,
        };
        if is_job { Ok(()) } else { Err(self.unknown_job(job).await) }
    }

    /// A transaction whose nodes may have been deleted, or got children, in the meantime: the next pass finds them.
    async fn delete(&self, ops: Vec<Op>) -> Result<(), OperationError> {
        let paths: Vec<String> = ops.iter().map(|op| op.path().to_owned()).collect();
        match self.registry.commit(self.session().await?, &ops).await {
            Outcome::Committed { .. } | Outcome::Unknown => Ok(()),
            Outcome::Refused(refusal) => super::refused(refusal, &paths),
            Outcome::Failed(error) if error.is_retryable() => Ok(()),
            Outcome::Failed(error) => Err(error.into()),
        }
    }

    /// Every path of a job, parents first; none when there is no such job.
    pub(super) async fn subtree(&self, path: &JobPath) -> Result<Vec<String>, OperationError> {
        let mut paths = Vec::new();
        let mut level = vec![path.root().to_owned()];
        while !level.is_empty() {
            let answers = self.registry.read(level.iter().cloned().map(Query::Children).collect()).await?;
            let mut below = Vec::new();
            for (at, answer) in level.into_iter().zip(&answers) {
                if matches!(answer, Answer::Children(Some(_))) {
                    below.extend(answer.children().iter().map(|name| format!("{at}/{name}")));
                    paths.push(at);
                }
            }
            level = below;
        }
        Ok(paths)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elasticjob_core::tree::Op;
    use elasticjob_registry::{Link, Outcome, Registry, memory};

    use super::*;

    /// Creates a job, removes it, and returns the time that this took on tokio's paused clock: the time of its sleeps.
    async fn removal(nodes: &[&str]) -> Duration {
        let registry = Arc::new(memory::Memory::new().connect());
        let Link::Up { session, .. } = registry.link().borrow().clone() else { panic!("there is a link") };
        let ops: Vec<Op> = nodes.iter().map(|path| Op::create(*path, "")).collect();
        assert!(matches!(registry.commit(session, &ops).await, Outcome::Committed { .. }));
        let operations = Operations::new(registry);
        let begin = tokio::time::Instant::now();
        operations.remove_job("j").await.expect("is removed");
        let elapsed = begin.elapsed();
        assert!(operations.check_removable("j").await.is_err(), "no node is left");
        elapsed
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_job_with_instances_waits_for_late_writes() {
        let job = ["/j", "/j/config", "/j/servers", "/j/servers/10.0.0.1", "/j/instances"];
        assert_eq!(removal(&job).await, Duration::ZERO);
        let running = [job.as_slice(), &["/j/instances/10.0.0.1@-@7"]].concat();
        assert!(removal(&running).await >= LATE_WRITES);
    }
}
