//! The stored configuration (Java: `JobConfigurationAPI`).

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::path::JobPath;
use elasticjob_core::query::Query;
use elasticjob_core::report::Detail;
use elasticjob_core::tree::{Node, Op};
use elasticjob_core::wire::{Difference, JobDocument};
use elasticjob_registry::Outcome;

use super::jobs::switch_servers;
use super::{OperationError, Operations};
use crate::clock;
use crate::execute;
use crate::plugins::Plugins;

/// A configuration as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredConfig {
    /// Its text, as Java writes it.
    pub text: String,
    version: i32,
    /// Tells it from that of another job of the same name.
    czxid: i64,
}

/// A change of a configuration that has been checked and not yet written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// The job.
    pub job: String,
    /// What is stored.
    pub before: StoredConfig,
    /// What would be.
    pub after: String,
    /// Names that this program does not know, which instances may.
    pub warnings: Vec<ConfigError>,
}

impl StoredConfig {
    /// Tells this state of the configuration from every other one of its job.
    #[doc(hidden)]
    pub fn etag(&self) -> String {
        format!("{:x}-{}", self.czxid, self.version)
    }
}

impl Change {
    /// Returns `true` if nothing would change.
    pub fn is_empty(&self) -> bool {
        self.before.text == self.after
    }

    /// Returns whether the change disables (`true`) or enables (`false`) the job; `None` if it does neither.
    pub fn disables(&self) -> Option<bool> {
        let disabled = |text: &str| JobDocument::parse(text.as_bytes()).ok().map(|document| document.disabled);
        let (before, after) = (disabled(&self.before.text)?, disabled(&self.after)?);
        (before != after).then_some(after)
    }
}

impl Operations {
    /// The stored configuration, unchanged.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn config(&self, job: &str) -> Result<StoredConfig, OperationError> {
        let answers = match super::is_name(job) {
            true => self.registry.read(vec![Query::Node(JobPath::new(job).config())]).await?,
            false => Vec::new(),
        };
        match answers.first().and_then(|answer| answer.node()) {
            Some(node) => Ok(StoredConfig { text: node.text(), version: node.version, czxid: node.czxid }),
            None => Err(self.unknown_job(job).await),
        }
    }

    /// The instances that were started with another configuration than the stored one, with the differences. Instances of Java
    /// report none.
    ///
    /// # Errors
    ///
    /// The registry failed.
    pub async fn differences(&self, job: &str) -> Result<Vec<(String, Vec<Difference>)>, OperationError> {
        if !super::is_name(job) {
            return Ok(Vec::new());
        }
        let path = JobPath::new(job);
        let names = self.registry.read(vec![Query::Children(path.applied())]).await?[0].children().to_vec();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.registry.read(names.iter().map(|id| Query::Node(path.applied_by(id))).collect()).await?;
        let found = names.into_iter().zip(&answers).filter_map(|(id, answer)| {
            let found = Difference::parse(&answer.node()?.data);
            (!found.is_empty()).then_some((id, found))
        });
        Ok(found.collect())
    }

    /// Checks a whole configuration against the one that is stored under its name. What this program does not know of that
    /// one (keys of other versions, Java's tracing element) stays; a key that is missing gets its default.
    ///
    /// # Errors
    ///
    /// There is no such job, the new configuration has faults or a key that is neither known nor stored, or the registry
    /// failed.
    pub async fn plan_config(&self, mut document: JobDocument) -> Result<Change, OperationError> {
        let job = document.job_name.clone();
        let path = JobPath::new(&job);
        let before = self.config(&job).await?;
        let stored = JobDocument::parse(before.text.as_bytes()).ok();
        let kept = |key: &String| stored.iter().any(|s| s.kept.iter().any(|(k, _)| k == key));
        let strange = |key: &&String| !JobDocument::KEYS.contains(&key.as_str()) && !kept(key);
        if let Some(key) = document.kept.iter().map(|(key, _)| key).find(strange) {
            let near = super::nearest(key, &JobDocument::KEYS.map(str::to_owned));
            return Err(OperationError::UnknownKey { job, key: key.clone(), near });
        }
        if let Some(stored) = &stored {
            for (key, text) in &stored.kept {
                if !document.kept.iter().any(|(known, _)| known == key) {
                    document.kept.push((key.clone(), text.clone()));
                }
            }
            document.thread_pool_key = stored.thread_pool_key;
        }
        let answers = self.registry.read(vec![Query::Node(path.root().to_owned())]).await?;
        let class = answers[0].node().map(Node::text).unwrap_or_default();
        let (faults, warnings) = check(&document, &class, &self.plugins);
        if !faults.is_empty() {
            return Err(OperationError::WrongConfig { job, faults });
        }
        // An equal configuration is not written again: another program may have formatted it in another way.
        let same = stored.is_some_and(|stored| stored == document);
        let after = if same { before.text.clone() } else { document.to_yaml() };
        Ok(Change { job, before, after, warnings })
    }

    /// Writes a change, if the stored configuration is still the one from which it was made. A change of `disabled` disables or
    /// enables the job on all servers, as [`Operations::disable`] and [`Operations::enable`] do.
    ///
    /// # Errors
    ///
    /// [`OperationError::Conflict`] if the configuration or a server changed in the meantime; or the registry failed.
    pub async fn apply(&self, change: &Change) -> Result<(), OperationError> {
        if change.is_empty() {
            return Ok(());
        }
        let mut ops = vec![write(change, JobPath::new(&change.job).config())];
        // `disabled` in the configuration is a half of what `disable` writes: alone it would be undone by the leader.
        if let Some(disabled) = change.disables() {
            let report = self.report(&change.job, Detail::Servers).await?;
            ops.extend(switch_servers(&report, disabled));
        }
        self.commit_change(change, ops).await
    }

    /// Writes the operations of a change, of which the first writes the configuration.
    pub(super) async fn commit_change(&self, change: &Change, ops: Vec<Op>) -> Result<(), OperationError> {
        let job = || change.job.clone();
        if self.config(&change.job).await?.czxid != change.before.czxid {
            return Err(OperationError::Conflict { job: job() });
        }
        let (path, data) = (JobPath::new(&change.job).config(), change.after.clone().into_bytes());
        let paths: Vec<String> = ops.iter().map(|op| op.path().to_owned()).collect();
        match self.registry.commit(self.session().await?, &ops).await {
            Outcome::Committed { zxid } => self.read_back(&change.job, [(path, data)].into(), zxid).await,
            // If the node has our text, it was written; any other text proves nothing.
            Outcome::Unknown => {
                self.session().await?;
                let written = self.config(&change.job).await?.text == change.after;
                if written { Ok(()) } else { Err(OperationError::Unsettled { job: job() }) }
            }
            Outcome::Refused(refusal) => {
                super::refused(refusal, &paths)?;
                Err(OperationError::Conflict { job: job() })
            }
            Outcome::Failed(error) => Err(error.into()),
        }
    }

    /// Changes parts of a configuration: reads it, lets `change` have it, writes it; all of it again when somebody else was
    /// first.
    ///
    /// # Errors
    ///
    /// As of [`Operations::plan_config`] and [`Operations::apply`]; the stored one cannot be read.
    pub async fn update_config(&self, job: &str, change: impl Fn(&mut JobDocument)) -> Result<(), OperationError> {
        for _ in 0..super::TRIES {
            let stored = self.config(job).await?;
            let bad = |e: elasticjob_core::wire::DocumentError| OperationError::BadConfig {
                job: job.to_owned(),
                reason: e.to_string(),
            };
            let mut document = JobDocument::parse(stored.text.as_bytes()).map_err(bad)?;
            change(&mut document);
            job.clone_into(&mut document.job_name);
            let mut planned = self.plan_config(document).await?;
            // It may have been written between the two reads: then this is not a change of what we read.
            if planned.before != stored {
                continue;
            }
            planned.before = stored;
            match self.apply(&planned).await {
                Err(OperationError::Conflict { .. }) => {}
                done => return done,
            }
        }
        Err(OperationError::Conflict { job: job.to_owned() })
    }
}

/// Writes the new configuration over the one from which it was made.
pub(super) fn write(change: &Change, path: String) -> Op {
    Op::Set { path, data: change.after.clone().into_bytes(), version: Some(change.before.version) }
}

/// Keys that name a plugin. An instance may have one that this process does not know.
const PLUGINS: [&str; 5] = [
    "elasticJobType",
    "jobListenerTypes",
    "jobErrorHandlerType",
    "jobShardingStrategyType",
    "jobExecutorThreadPoolSizeProviderType",
];

/// Faults, and names that only the instances can judge. Properties are checked of what is known here.
pub(super) fn check(document: &JobDocument, class: &str, plugins: &Plugins) -> (Vec<ConfigError>, Vec<ConfigError>) {
    let config = match JobConfig::check(document, &clock::zone) {
        Ok(config) => config,
        Err(faults) => return (faults, Vec::new()),
    };
    let mut faults = JobConfig::contradictions(document);
    let found = match plugins.find_job_type(class) {
        Some(job_type) => execute::check(&config, &*job_type.executor(), plugins),
        None => plugins.check(&config),
    };
    let (names, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|fault| PLUGINS.contains(&fault.key));
    faults.extend(others);
    (faults, names)
}
