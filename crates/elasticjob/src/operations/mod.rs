//! Operations on jobs, servers and items (Java: `elasticjob-lite-lifecycle`; manual: "Operation"), directly on the registry:
//! no instance is needed.
//!
//! Each takes one report of the job, checks its arguments against it, and writes one transaction, which is refused when what it
//! changes has changed meanwhile; what it has written is read back. An unknown job, server or item is refused and leaves no node
//! behind.

mod config;
mod dump;
mod explain;
#[cfg(feature = "rdb")]
mod history;
mod java;
mod jobs;
mod remove;
mod results;
mod shards;
mod statistics;
mod trigger;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::ConfigError;
use elasticjob_core::path::{self, JobPath};
use elasticjob_core::query::{Answer, Query};
use elasticjob_core::report::{Detail, JobReport, Known};
use elasticjob_core::tree::{Op, Reason, Refusal};
use elasticjob_registry::{Error, Link, Outcome, Registry};
use futures_util::StreamExt;

use crate::clock::{self, Clock};
use crate::connection::Connection;
use crate::plugins::Plugins;

pub use config::{Change, StoredConfig};
pub(crate) use dump::dump_text;
pub use dump::{DUMP_ANSWER_MAX, dump_from};
#[cfg(feature = "rdb")]
pub use history::{History, HistoryEntry, HistoryQuery, history, stored_source};
pub use results::{ItemOutcome, ItemResult, Pending};
pub use trigger::{TriggerRequest, Triggered};

/// Maximum number of attempts of an operation that conflicts with concurrent writes.
const TRIES: usize = 20;
/// Before that.
const TRY_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of reads of a report whose nodes change between two reads.
const LOOKS: usize = 5;
/// Longest wait for a broken link to come back, to learn what became of a write.
const LINK_WAIT: Duration = Duration::from_secs(15);
/// Jobs that are changed at one time where an operation is about all of a server's.
const JOBS_AT_ONCE: usize = 32;

/// Receives the number of completed jobs and the number of all jobs.
type Progress = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// Operations on the jobs of a registry. Cheap to clone.
#[derive(Clone)]
pub struct Operations {
    registry: Arc<dyn Registry>,
    plugins: Arc<Plugins>,
    clock: Clock,
    progress: Option<Progress>,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operations").field(&self.registry).finish()
    }
}

/// What an operation is about (Java: a job name and a server's IP, of which one may be null).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope<'a> {
    /// A job, on all of its servers.
    Job(&'a str),
    /// A job, on one server.
    JobOnServer(&'a str, &'a str),
    /// A server, with all jobs that know it.
    Server(&'a str),
}

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The job does not exist.
    #[error("job `{job}` not found{}", hint(.near.as_deref()))]
    UnknownJob {
        /// The name that was given.
        job: String,
        /// A job with a similar name.
        near: Option<String>,
    },
    /// The job does not know the server, or no job does.
    #[error("{}server `{server}` not found", .job.as_ref().map(|job| format!("job `{job}`: ")).unwrap_or_default())]
    UnknownServer {
        /// The job, if the operation concerned one.
        job: Option<String>,
        /// The IP address of the server.
        server: String,
    },
    /// The job does not have the item.
    #[error("job `{job}` has no item {item}: its items are 0 to {}", .total - 1)]
    UnknownItem {
        /// The name of the job.
        job: String,
        /// The item.
        item: u32,
        /// The number of its items, at least 1.
        total: u32,
    },
    /// The stored configuration is invalid, so that it cannot be changed either.
    #[error("invalid stored configuration of job `{job}`: {reason}")]
    BadConfig {
        /// The name of the job.
        job: String,
        /// Why.
        reason: String,
    },
    /// The new configuration is invalid.
    #[error("job `{job}`: {}", .faults.iter().map(|f| format!("key {f}")).collect::<Vec<_>>().join("; "))]
    WrongConfig {
        /// The name of the job.
        job: String,
        /// Every fault.
        faults: Vec<ConfigError>,
    },
    /// The new configuration has an unknown key, at which Java's instances would fail.
    #[error("job `{job}`: unknown key `{key}`{}", hint(.near.as_deref()))]
    UnknownKey {
        /// The name of the job.
        job: String,
        /// The key.
        key: String,
        /// A similar key.
        near: Option<String>,
    },
    /// Another process changed the same nodes at the same time.
    #[error(
        "job `{job}` was changed by somebody else at the same time, and nothing was written; review the job and retry"
    )]
    Conflict {
        /// The name of the job.
        job: String,
    },
    /// The connection was lost before the registry answered, so that the outcome is unknown.
    #[error(
        "connection lost while changing job `{job}`; the outcome is unknown, check it with `elasticjob job show {job}`"
    )]
    Unsettled {
        /// The name of the job.
        job: String,
    },
    /// No instance of the job could run it.
    #[error("job `{job}` has no running instance; start an agent whose file contains it")]
    NoInstance {
        /// The name of the job.
        job: String,
    },
    /// The job, or each of its items, is disabled.
    #[error(
        "job `{job}`, all of its servers, or all of its items are disabled; `elasticjob job explain {job}` shows which of them, and how to enable them"
    )]
    Disabled {
        /// The name of the job.
        job: String,
    },
    /// The operation succeeded for some of the jobs only.
    #[error("succeeded for {done} jobs, failed for {}: {}", .failures.len(), .failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Partly {
        /// The number of jobs for which it succeeded.
        done: usize,
        /// The reasons for the others.
        failures: Vec<OperationError>,
    },
    /// The history of the job cannot be read.
    #[error("{reason}")]
    History {
        /// Why.
        reason: String,
    },
    /// The dump of another process cannot be read.
    #[error("dump from {address}: {reason}")]
    Dump {
        /// The address of that process.
        address: String,
        /// Why.
        reason: String,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] Error),
}

impl OperationError {
    /// Returns `true` if the same operation may succeed later without a change of its arguments.
    pub fn is_retryable(&self) -> bool {
        match self {
            OperationError::Conflict { .. } | OperationError::NoInstance { .. } => true,
            OperationError::Registry(error) => error.is_retryable(),
            OperationError::Partly { failures, .. } => failures.iter().all(OperationError::is_retryable),
            OperationError::UnknownJob { .. }
            | OperationError::UnknownServer { .. }
            | OperationError::UnknownItem { .. }
            | OperationError::BadConfig { .. }
            | OperationError::WrongConfig { .. }
            | OperationError::UnknownKey { .. }
            | OperationError::Unsettled { .. }
            | OperationError::Disabled { .. }
            | OperationError::History { .. }
            | OperationError::Dump { .. } => false,
        }
    }
}

fn hint(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

impl Operations {
    /// Creates the operations on a registry. [`Connection::operations`](crate::registry::Connection::operations) returns those on
    /// the registry of a connection, with its plug-ins.
    pub fn new(registry: Arc<dyn Registry>) -> Operations {
        Operations { registry, plugins: Arc::default(), clock: Clock::default(), progress: None }
    }

    pub(crate) fn on(connection: &Connection) -> Operations {
        let (registry, plugins) = (Arc::clone(connection.registry()), Arc::clone(connection.plugins()));
        Operations { registry, plugins, clock: connection.clock().clone(), progress: None }
    }

    /// Reports the progress of operations on many jobs: the number of jobs that are done, and the number of all.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(usize, usize) + Send + Sync + 'static) -> Operations {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// The same operation on each of these jobs, some at one time. What fails for one does not keep it from the others.
    async fn each<F: Future<Output = Result<(), OperationError>>>(
        &self,
        jobs: &[String],
        operation: impl Fn(String) -> F,
    ) -> Result<(), OperationError> {
        let all = jobs.len();
        let tell = |done: usize| self.progress.iter().for_each(|progress| progress(done, all));
        tell(0);
        let mut results =
            futures_util::stream::iter(jobs.iter().cloned().map(operation)).buffer_unordered(JOBS_AT_ONCE);
        let (mut done, mut failures) = (0, Vec::new());
        while let Some(result) = results.next().await {
            failures.extend(result.err());
            done += 1;
            tell(done);
        }
        match (failures.len(), all) {
            (0, _) => Ok(()),
            (1, 1) => Err(failures.remove(0)),
            _ => Err(OperationError::Partly { done: all - failures.len(), failures }),
        }
    }

    /// The names of all jobs: the nodes directly below the namespace.
    async fn names(&self) -> Result<Vec<String>, OperationError> {
        let answers = self.registry.read(vec![Query::Children("/".into())]).await?;
        // A namespace that is the root of ZooKeeper has its own node there.
        Ok(answers[0].children().iter().filter(|name| *name != "zookeeper").cloned().collect())
    }

    /// One consistent report of a job: read again until no name has come or gone between the questions. What it holds was
    /// then there at one moment, as far as one request of the registry has room for it (500 nodes).
    async fn report(&self, job: &str, detail: Detail) -> Result<JobReport, OperationError> {
        if !is_name(job) {
            return Err(OperationError::UnknownJob { job: job.to_owned(), near: None });
        }
        let path = JobPath::new(job);
        let mut known = self.know(&[(path.clone(), detail)], Known::new(), None).await?;
        for _ in 0..LOOKS {
            let queries = JobReport::queries(&path, detail, &known);
            let answers = self.registry.read(queries.clone()).await?;
            let seen: Known = queries.into_iter().zip(answers).collect();
            if JobReport::same_names(&known, &seen) {
                return Ok(JobReport::build(&path, &seen));
            }
            known = self.know(&[(path.clone(), detail)], seen, None).await?;
        }
        Ok(JobReport::build(&path, &known))
    }

    /// The same of a job that must have a configuration.
    async fn known_report(&self, job: &str, detail: Detail) -> Result<JobReport, OperationError> {
        match self.report(job, detail).await {
            Ok(report) if report.state.config.is_some() => Ok(report),
            Ok(_) | Err(OperationError::UnknownJob { .. }) => Err(self.unknown_job(job).await),
            Err(error) => Err(error),
        }
    }

    /// Pictures of many jobs, in as few requests as there are levels of names, each packed with 500 questions. If a name was
    /// created or deleted in the meantime, its job is read again. If the registry denies access to a node, the job's report
    /// lacks that node and names it in [`JobReport::denied`].
    async fn reports(&self, jobs: &[String], detail: Detail) -> Result<Vec<JobReport>, OperationError> {
        let paths: Vec<(JobPath, Detail)> = jobs.iter().map(|job| (JobPath::new(job), detail)).collect();
        let mut denied = BTreeSet::new();
        let mut known = self.know(&paths, Known::new(), Some(&mut denied)).await?;
        for _ in 0..LOOKS {
            let names: Vec<Query> = known.keys().filter(|q| matches!(q, Query::Children(_))).cloned().collect();
            let answers = self.read_visible(names.clone(), &mut denied).await?;
            let again: Known = names.into_iter().zip(answers).collect();
            let moved: BTreeSet<String> = again
                .iter()
                .filter(|(query, answer)| known.get(query) != Some(answer))
                .filter_map(|(query, _)| path::job_of(query.path()).map(str::to_owned))
                .collect();
            if moved.is_empty() {
                break;
            }
            known.retain(|query, _| path::job_of(query.path()).is_none_or(|job| !moved.contains(job)));
            known = self.know(&paths, known, Some(&mut denied)).await?;
        }
        let build = |path: &JobPath| {
            let is_of_job = |at: &&String| path::job_of(at) == Some(path.job());
            JobReport { denied: denied.iter().filter(is_of_job).cloned().collect(), ..JobReport::build(path, &known) }
        };
        Ok(paths.iter().map(|(path, _)| build(path)).collect())
    }

    /// Asks until no question is open. Without `denied`, a node that the registry refuses to show is an error.
    async fn know(
        &self,
        jobs: &[(JobPath, Detail)],
        mut known: Known,
        mut denied: Option<&mut BTreeSet<String>>,
    ) -> Result<Known, OperationError> {
        loop {
            let open: Vec<Query> = jobs
                .iter()
                .flat_map(|(path, detail)| JobReport::queries(path, *detail, &known))
                .filter(|query| !known.contains_key(query))
                .collect();
            if open.is_empty() {
                return Ok(known);
            }
            let answers = match denied.as_deref_mut() {
                Some(denied) => self.read_visible(open.clone(), denied).await?,
                None => self.registry.read(open.clone()).await?,
            };
            known.extend(open.into_iter().zip(answers));
        }
    }

    /// Reads, and answers for a node that the registry refuses to show as for one that does not exist. Adds its path to `denied`.
    async fn read_visible(
        &self,
        queries: Vec<Query>,
        denied: &mut BTreeSet<String>,
    ) -> Result<Vec<Answer>, OperationError> {
        // The registry refuses a whole request because of one node: the halves of a refused request are asked again.
        let mut open = vec![queries];
        let mut answers = Vec::new();
        while let Some(mut queries) = open.pop() {
            match self.registry.read(queries.clone()).await {
                Ok(more) => answers.extend(more),
                Err(Error::Denied { .. }) if queries.len() > 1 => {
                    let second = queries.split_off(queries.len() / 2);
                    open.extend([second, queries]);
                }
                Err(Error::Denied { .. }) => {
                    answers.extend(queries.into_iter().map(|query| {
                        denied.insert(query.path().to_owned());
                        match query {
                            Query::Node(_) => Answer::Node(None),
                            Query::Children(_) => Answer::Children(None),
                        }
                    }));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(answers)
    }

    /// The job does not exist; looks for one with a similar name.
    async fn unknown_job(&self, job: &str) -> OperationError {
        let names = self.names().await.unwrap_or_default();
        OperationError::UnknownJob { job: job.to_owned(), near: nearest(job, &names) }
    }

    async fn session(&self) -> Result<u64, OperationError> {
        let unreachable = |reason: String| Error::Unreachable { registry: self.registry.describe(), reason };
        let mut link = self.registry.link();
        // A link that does not come back is not waited for.
        let settled = link.wait_for(|l| !matches!(l, Link::Down { .. }) || !self.registry.reconnects());
        match clock::within(LINK_WAIT, settled).await {
            Some(Ok(state)) => match &*state {
                Link::Up { session, .. } => Ok(*session),
                Link::Down { reason, .. } => Err(unreachable(reason.clone()).into()),
                Link::Closed => Err(unreachable("the connection is closed".into()).into()),
            },
            Some(Err(_)) => Err(unreachable("the connection is closed".into()).into()),
            None => Err(Error::TimedOut { registry: self.registry.describe() }.into()),
        }
    }

    /// Computes operations from one report and carries them out together; again from a new report when they were refused,
    /// since somebody else was first. Operations that come to nothing are done.
    ///
    /// When an answer is lost, what the operations come to after that tells whether they were carried out, but for `once`:
    /// operations whose effect may be gone by then.
    async fn change(
        &self,
        job: &str,
        detail: Detail,
        once: bool,
        ops: impl Fn(&JobReport) -> Result<Vec<Op>, OperationError>,
    ) -> Result<(), OperationError> {
        for _ in 0..TRIES {
            let report = self.report(job, detail).await?;
            let ops = ops(&report)?;
            if ops.is_empty() {
                return Ok(());
            }
            let (written, paths) = (written(&ops), ops.iter().map(|op| op.path().to_owned()).collect::<Vec<_>>());
            match self.registry.commit(self.session().await?, &ops).await {
                Outcome::Committed { zxid } => return self.read_back(job, written, zxid).await,
                Outcome::Refused(refusal) => refused(refusal, &paths)?,
                Outcome::Unknown if once => return Err(OperationError::Unsettled { job: job.to_owned() }),
                Outcome::Unknown => {}
                Outcome::Failed(error) => return Err(error.into()),
            }
            clock::sleep(TRY_AGAIN).await;
        }
        Err(OperationError::Conflict { job: job.to_owned() })
    }

    /// The registry has the written value, or a later one.
    async fn read_back(&self, job: &str, written: BTreeMap<String, Vec<u8>>, zxid: i64) -> Result<(), OperationError> {
        let queries: Vec<Query> = written.keys().cloned().map(Query::Node).collect();
        if queries.is_empty() {
            return Ok(());
        }
        let answers = self.registry.read(queries).await?;
        let stands = |(data, answer): (&Vec<u8>, &Answer)| {
            answer.node().is_some_and(|node| *node.data == **data || node.mzxid > zxid)
        };
        let all = written.values().zip(&answers).all(stands);
        if all { Ok(()) } else { Err(OperationError::Conflict { job: job.to_owned() }) }
    }
}

/// A refusal for want of a right is no matter of who was first.
fn refused(refusal: Refusal, paths: &[String]) -> Result<(), OperationError> {
    match refusal.reason {
        Reason::Forbidden => {
            let path = paths.get(refusal.op).cloned().unwrap_or_default();
            Err(Error::Denied { path }.into())
        }
        Reason::Missing | Reason::Exists | Reason::Version | Reason::NotEmpty => Ok(()),
    }
}

/// Whether a text can be the name of a job's node.
fn is_name(job: &str) -> bool {
    !matches!(job, "" | "." | "..") && !job.contains('/') && !job.chars().any(char::is_control)
}

/// What a transaction leaves in the data of nodes. Nodes that are created are not looked for: they are signals, which their
/// readers take away.
fn written(ops: &[Op]) -> BTreeMap<String, Vec<u8>> {
    let set = |op: &Op| match op {
        Op::Set { path, data, .. } => Some((path.clone(), data.clone())),
        Op::Ensure(_) | Op::Create { .. } | Op::Delete { .. } | Op::Check { .. } => None,
    };
    ops.iter().filter_map(set).collect()
}

/// The most similar name, when it is near: at most a third of the letters differ.
fn nearest(name: &str, names: &[String]) -> Option<String> {
    let far = |other: &String| strsim::osa_distance(&name.to_lowercase(), &other.to_lowercase());
    let best = names.iter().filter(|other| *other != name).min_by_key(|other| far(other))?;
    (far(best) <= name.chars().count().div_ceil(3)).then(|| best.clone())
}
