//! Operations on jobs (Java: `JobOperateAPI`, `JobConfigurationAPI`), directly on the registry: no worker is needed. Each
//! checks that the job is there first, and writes nothing when it is not.

use std::sync::Arc;

use elasticjob_core::path::JobPath;
use elasticjob_core::tree::{Node, Op};
use elasticjob_core::view::{JobView, Query, ServerState};
use elasticjob_core::wire::JobDocument;
use elasticjob_registry::{Error, Link, Outcome, Registry};

use crate::mirror;

/// How often an operation is tried again because somebody else wrote at the same time.
const TRIES: usize = 20;

/// Operations on the jobs of a registry.
#[derive(Clone, Debug)]
pub struct Operate(Arc<dyn Registry>);

/// One line about a job (Java: `JobBriefInfo`, with its status rules).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobBrief {
    /// The job's name.
    pub job_name: String,
    /// `OK`, `CRASHED` (no instance), `DISABLED` (every server is) or `SHARDING_FLAG` (to be sharded).
    pub status: &'static str,
    /// Its description.
    pub description: String,
    /// Its cron expression, if it has one.
    pub cron: Option<String>,
    /// How many instances it has.
    pub instance_count: usize,
    /// Into how many items it is cut.
    pub sharding_total_count: i64,
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OperateError {
    /// There is no such job.
    #[error("there is no job `{0}`")]
    UnknownJob(String),
    /// The stored configuration cannot be read, so it cannot be changed either.
    #[error("the configuration of job `{job}` cannot be read: {reason}")]
    BadConfig {
        /// The job.
        job: String,
        /// Why.
        reason: String,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] Error),
}

impl Operate {
    /// Operations on that registry.
    pub fn new(registry: Arc<dyn Registry>) -> Operate {
        Operate(registry)
    }

    /// Every job that has a configuration, by name.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn list(&self) -> Result<Vec<JobBrief>, OperateError> {
        let names = self.0.read(vec![Query::Children("/".into())]).await?;
        let mut briefs = Vec::new();
        for name in names[0].children() {
            let path = JobPath::new(name);
            let view = mirror::view(&*self.0, &path).await?;
            let Some(config) = &view.config else { continue };
            let Ok(document) = JobDocument::parse(&config.data) else { continue };
            let owners = (0..u32::try_from(document.sharding_total_count).unwrap_or_default())
                .map(|item| Query::Node(path.item_owner(item)))
                .collect();
            let owners: Vec<String> =
                self.0.read(owners).await?.iter().filter_map(|a| a.node().map(Node::text)).collect();
            briefs.push(JobBrief {
                job_name: name.clone(),
                status: status(&view, &owners),
                description: document.description.unwrap_or_default(),
                cron: document.cron.filter(|c| !c.is_empty()),
                instance_count: view.instances.len(),
                sharding_total_count: document.sharding_total_count,
            });
        }
        Ok(briefs)
    }

    /// The stored configuration, as it stands there.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn config(&self, job: &str) -> Result<String, OperateError> {
        let answers = self.0.read(vec![Query::Node(JobPath::new(job).config())]).await?;
        answers[0].node().map(Node::text).ok_or_else(|| OperateError::UnknownJob(job.to_owned()))
    }

    /// Runs the job once, now, on all of its instances.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn trigger(&self, job: &str) -> Result<(), OperateError> {
        self.change(job, |path, view| {
            let waiting = view.instances.keys().filter(|id| !view.triggers.contains(*id));
            let mut ops = vec![Op::Ensure(path.triggers())];
            ops.extend(waiting.map(|id| Op::create(path.trigger(id), "")));
            Ok(ops)
        })
        .await
    }

    /// Disables the job: on every server that it has, and for those to come.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn disable(&self, job: &str) -> Result<(), OperateError> {
        self.set_disabled(job, true).await
    }

    /// Undoes [`Operate::disable`].
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn enable(&self, job: &str) -> Result<(), OperateError> {
        self.set_disabled(job, false).await
    }

    async fn set_disabled(&self, job: &str, disabled: bool) -> Result<(), OperateError> {
        let (text, wanted) =
            if disabled { ("DISABLED", ServerState::Disabled) } else { ("ENABLED", ServerState::Enabled) };
        self.change(job, |path, view| {
            let mut ops: Vec<Op> = view
                .servers
                .keys()
                .filter(|ip| view.server(ip) != Some(wanted))
                .map(|ip| Op::set(path.server(ip), text))
                .collect();
            let Some(node) = &view.config else { return Ok(ops) };
            let mut document = JobDocument::parse(&node.data)
                .map_err(|e| OperateError::BadConfig { job: job.to_owned(), reason: e.to_string() })?;
            if document.disabled != disabled {
                document.disabled = disabled;
                let data = document.to_yaml().into_bytes();
                ops.push(Op::Set { path: path.config(), data, version: Some(node.version) });
            }
            Ok(ops)
        })
        .await
    }

    /// Shuts the job down on all of its instances: their processes live on, the job stays down until they start it again.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn shutdown(&self, job: &str) -> Result<(), OperateError> {
        self.change(job, |path, view| Ok(view.instances.keys().map(|id| Op::delete(path.instance(id))).collect())).await
    }

    /// Computes operations from one picture and carries them out together; again from a new picture when they are refused.
    async fn change(
        &self,
        job: &str,
        ops: impl Fn(&JobPath, &JobView) -> Result<Vec<Op>, OperateError>,
    ) -> Result<(), OperateError> {
        let path = JobPath::new(job);
        let mut link = self.0.link();
        let session = match &*link.wait_for(|l| !matches!(l, Link::Down(_))).await.map_err(|_| self.gone())? {
            Link::Up { session, .. } => *session,
            Link::Down(_) | Link::Closed => return Err(self.gone().into()),
        };
        for _ in 0..TRIES {
            let view = mirror::view(&*self.0, &path).await?;
            if view.config.is_none() {
                return Err(OperateError::UnknownJob(job.to_owned()));
            }
            let ops = ops(&path, &view)?;
            if ops.is_empty() {
                return Ok(());
            }
            match self.0.commit(session, ops).await {
                Outcome::Committed { .. } => return Ok(()),
                Outcome::Refused(_) => {}
                Outcome::Unknown => return Err(Error::TimedOut { registry: self.0.describe() }.into()),
                Outcome::Failed(error) => return Err(error.into()),
            }
        }
        Err(Error::TimedOut { registry: self.0.describe() }.into())
    }

    fn gone(&self) -> Error {
        Error::Unreachable { registry: self.0.describe(), reason: "the connection is closed".into() }
    }
}

/// Java's rules, the first that fits.
fn status(view: &JobView, owners: &[String]) -> &'static str {
    let disabled = view.servers.keys().filter(|ip| view.server(ip) == Some(ServerState::Disabled)).count();
    if view.instances.is_empty() {
        "CRASHED"
    } else if disabled == view.servers.len() {
        "DISABLED"
    } else if owners.is_empty() || owners.iter().any(|id| !view.is_live(id)) {
        "SHARDING_FLAG"
    } else {
        "OK"
    }
}
