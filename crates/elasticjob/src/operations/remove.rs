//! Taking away what is no longer there (Java: `JobOperateAPI.remove`, `JobConfigurationAPI.removeJobConfiguration`).

use std::cell::Cell;
use std::time::Duration;

use elasticjob_core::path::JobPath;
use elasticjob_core::picture::{Detail, Picture};
use elasticjob_core::tree::Op;
use elasticjob_core::view::{Answer, Query};
use elasticjob_registry::Outcome;

use super::jobs::{known_server, shut};
use super::{OperationError, Operations, Scope};
use crate::clock;

/// Nodes that are deleted in one transaction.
const DELETED_AT_ONCE: usize = 500;
/// After this, what an instance or an election wrote meanwhile has come: it goes too.
const LATE_WRITES: Duration = Duration::from_millis(500);
/// How often late writes are taken away.
const SWEEPS: usize = 20;

impl Operations {
    /// Shuts down, and takes the servers away: a job's configuration stays, and the job counts as crashed.
    ///
    /// # Errors
    ///
    /// There is no such job or server, or the registry failed.
    pub async fn remove(&self, scope: Scope<'_>) -> Result<(), OperationError> {
        match scope {
            Scope::Job(job) => {
                self.change_job(job, Detail::Items, false, |picture| {
                    let servers = picture.view.servers.keys().map(|ip| Op::delete(picture.path.server(ip)));
                    Ok(shut(picture, None).into_iter().chain(servers).collect())
                })
                .await
            }
            Scope::JobOnServer(job, server) => {
                let seen = Cell::new(false);
                self.change_job(job, Detail::Items, false, |picture| {
                    // Asked again after a lost answer, a server that is gone is what was wanted.
                    if !seen.replace(true) {
                        known_server(picture, server)?;
                    }
                    let node = picture.view.servers.get(server).map(|_| Op::delete(picture.path.server(server)));
                    Ok(shut(picture, Some(server)).into_iter().chain(node).collect())
                })
                .await
            }
            Scope::Server(server) => {
                let jobs = self.jobs_of(server).await?;
                let one = |job: String| async move {
                    let ops = |picture: &Picture| {
                        let node = picture.view.servers.get(server).map(|_| Op::delete(picture.path.server(server)));
                        Ok(shut(picture, Some(server)).into_iter().chain(node).collect())
                    };
                    self.change(&job, Detail::Items, false, ops).await
                };
                self.each(&jobs, one).await
            }
        }
    }

    /// Removes a job with all that it has: instances that run it shut it down, and nothing of it is left for one of the same
    /// name. What an instance writes on its way out is taken away too, for as long as ten seconds.
    ///
    /// # Errors
    ///
    /// There is no such job; somebody writes to it again and again, or makes a new one of that name; or the registry failed.
    pub async fn remove_job(&self, job: &str) -> Result<(), OperationError> {
        self.check_removable(job).await?;
        let path = JobPath::new(job);
        let mut config = None;
        for _ in 0..SWEEPS {
            let picture = self.picture(job, Detail::Items).await?;
            let found = picture.view.config.as_ref().map(|node| node.czxid);
            if found.is_some() && config.is_some_and(|removed| found != Some(removed)) {
                return Err(OperationError::Conflict { job: job.to_owned() });
            }
            config = config.or(found);
            let instances = shut(&picture, None);
            if !instances.is_empty() {
                self.delete(instances).await?;
            }
            let mut nodes = self.subtree(&path).await?;
            nodes.reverse(); // children first
            for part in nodes.chunks(DELETED_AT_ONCE) {
                self.delete(part.iter().cloned().map(Op::delete).collect()).await?;
            }
            clock::sleep(LATE_WRITES).await;
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

    /// A transaction whose nodes may have gone, or got children, meanwhile: the next sweep sees.
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
