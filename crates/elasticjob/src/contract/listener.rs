//! Listeners, and the run that they receive.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::{Run, Source};
use elasticjob_core::time::Timestamp;
use elasticjob_registry::Registry;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Cancelled, JobResult};
use crate::clock::Clock;

/// A listener that is called before and after each run of a job on an instance, once for all items that run there (Java:
/// `ElasticJobListener`; manual: "Job Listener"). [`Plugins::listener`](crate::Plugins::listener) registers it.
///
/// The job's error handler receives an error or a panic of a listener; the run continues. The listeners of a job are called one
/// after the other in their order. The next firing waits for them.
///
/// # Examples
///
/// ```
/// use elasticjob::{JobResult, ListenedRun, Listener};
///
/// struct Watch;
///
/// impl Listener for Watch {
///     fn name(&self) -> &str {
///         "WATCH"
///     }
///
///     async fn after(&self, run: &ListenedRun) -> JobResult {
///         println!("{} completed, failed items: {:?}", run.job_name(), run.failed());
///         Ok(())
///     }
/// }
/// ```
pub trait Listener: Send + Sync + 'static {
    /// Returns the name in `jobListenerTypes`. Configurations may write it in upper or lower case.
    fn name(&self) -> &str;

    /// Returns the order: lower ones are called first, equal ones as the configuration lists them. The default is the highest
    /// number, as in Java.
    fn order(&self) -> i32 {
        i32::MAX
    }

    /// Returns the faults of the properties that the listener reads. A job with faults does not start.
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Called after the begin of a run, before its items execute. Does nothing by default.
    ///
    /// # Errors
    ///
    /// The error handler receives the error; the run continues.
    fn before(&self, run: &ListenedRun) -> impl Future<Output = JobResult> + Send {
        let _ = run;
        std::future::ready(Ok(()))
    }

    /// Called when all items of a run have completed. Does nothing by default.
    ///
    /// # Errors
    ///
    /// The error handler receives the error.
    fn after(&self, run: &ListenedRun) -> impl Future<Output = JobResult> + Send {
        let _ = run;
        std::future::ready(Ok(()))
    }
}

/// A listener that is called once per firing in the whole cluster, on the instance that came last (Java:
/// `AbstractDistributeOnceElasticJobListener`; manual: "Distributed Listener").
/// [`DistributeOnce`](crate::DistributeOnce) makes it a [`Listener`].
pub trait OnceListener: Send + Sync + 'static {
    /// Returns the name in `jobListenerTypes`.
    fn name(&self) -> &str;

    /// As [`Listener::order`].
    fn order(&self) -> i32 {
        i32::MAX
    }

    /// As [`Listener::check`].
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Returns the timeouts that a job's configuration sets. `None`, the default, means those of
    /// [`DistributeOnce::new`](crate::DistributeOnce::new).
    fn timeouts(&self, config: &JobConfig) -> Option<OnceTimeouts> {
        let _ = config;
        None
    }

    /// Called when all items of a firing have started. No item executes before this returns (Java:
    /// `doBeforeJobExecutedAtLastStarted`). Does nothing by default.
    ///
    /// # Errors
    ///
    /// The error handler receives the error; the run continues.
    fn all_started(&self, run: &ListenedRun) -> impl Future<Output = JobResult> + Send {
        let _ = run;
        std::future::ready(Ok(()))
    }

    /// Called when all items of a firing have completed (Java: `doAfterJobExecutedAtLastCompleted`). Does nothing by default.
    ///
    /// # Errors
    ///
    /// The error handler receives the error.
    fn all_completed(&self, run: &ListenedRun) -> impl Future<Output = JobResult> + Send {
        let _ = run;
        std::future::ready(Ok(()))
    }
}

/// The times that instances wait for each other at a [`OnceListener`]. `None` waits without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnceTimeouts {
    /// For all items to start.
    pub started: Option<Duration>,
    /// For all items to complete.
    pub completed: Option<Duration>,
}

/// The object-safe form of [`Listener`].
pub(crate) trait DynListener: Send + Sync {
    fn name(&self) -> &str;
    fn order(&self) -> i32;
    fn check(&self, config: &JobConfig) -> Vec<ConfigError>;
    fn before<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult>;
    fn after<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult>;
}

impl<L: Listener> DynListener for L {
    fn name(&self) -> &str {
        Listener::name(self)
    }

    fn order(&self) -> i32 {
        Listener::order(self)
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        Listener::check(self, config)
    }

    fn before<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult> {
        Listener::before(self, run).boxed()
    }

    fn after<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult> {
        Listener::after(self, run).boxed()
    }
}

/// A run as a listener sees it (Java: `ShardingContexts`).
#[derive(Clone)]
pub struct ListenedRun {
    pub(crate) run: Arc<Run>,
    pub(crate) instance: Arc<str>,
    pub(crate) failed: Vec<u32>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) leaving: Cancelled,
    /// Locked by a listener that acts for the whole process.
    pub(crate) turns: Arc<tokio::sync::Mutex<()>>,
    pub(crate) clock: Clock,
}

impl fmt::Debug for ListenedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenedRun").field("run", &self.run).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl ListenedRun {
    /// Returns the name of the job.
    pub fn job_name(&self) -> &str {
        &self.run.config.name
    }

    /// Returns Java's id of the task, which all items share that one instance runs together.
    pub fn task_id(&self) -> &str {
        &self.run.task_id
    }

    /// Returns the number of items of the job.
    pub fn sharding_total_count(&self) -> u32 {
        self.run.config.sharding_total_count
    }

    /// Returns the parameter of the job; empty if it has none.
    pub fn job_parameter(&self) -> &str {
        &self.run.config.job_parameter
    }

    /// Returns the items of this run with their parameters. The parameter is empty for an item that has none.
    pub fn items(&self) -> BTreeMap<u32, &str> {
        let parameter = |item: u32| self.run.config.sharding_item_parameters.get(item).unwrap_or_default();
        self.run.items.iter().map(|i| (i.item, parameter(i.item))).collect()
    }

    /// Returns the items that failed. Empty before the run.
    pub fn failed(&self) -> &[u32] {
        &self.failed
    }

    /// Returns the due time of the run.
    pub fn due(&self) -> Timestamp {
        self.run.due
    }

    /// Returns why the job runs.
    pub fn source(&self) -> Source {
        self.run.source
    }

    /// Returns the id of the instance on which it runs.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the configuration at the start of the run.
    pub fn config(&self) -> &JobConfig {
        &self.run.config
    }

    /// Returns the signal that fires when the instance leaves.
    pub fn cancelled(&self) -> Cancelled {
        self.leaving.clone()
    }
}
