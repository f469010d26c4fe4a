//! What is called around a run (Java: `ElasticJobListener`; manual: "Job Listener").

mod once;
mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::machine::Run;
use elasticjob_core::time::Timestamp;
use elasticjob_registry::Registry;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use once::{DistributeOnce, OnceListener, TimeOuts};

use crate::execute::{Cancelled, JobResult, panic_text};
use crate::web;

/// Called before and after each run of a job on an instance: once for all of the items that run there.
///
/// An error or a panic goes to the job's error handler, and the run goes on. Listeners of one job are called one after the
/// other, by their order; the next firing waits until they have ended.
pub trait Listener: Send + Sync + 'static {
    /// The name in `jobListenerTypes`; a configuration may write it in any case.
    fn name(&self) -> &str;

    /// Lower ones are called first; those of one order as the configuration has them. The highest number by default, as in
    /// Java.
    fn order(&self) -> i32 {
        i32::MAX
    }

    /// The faults of the properties that it reads; a job with faults is not started.
    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let _ = config;
        Vec::new()
    }

    /// Called when the run was begun, before its items execute.
    fn before<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult>;

    /// Called when all of its items have ended.
    fn after<'a>(&'a self, run: &'a ListenedRun) -> BoxFuture<'a, JobResult>;
}

/// A run as a listener sees it (Java: `ShardingContexts`).
#[derive(Clone)]
pub struct ListenedRun {
    pub(crate) run: Arc<Run>,
    pub(crate) instance: Arc<str>,
    pub(crate) failed: Vec<u32>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) leaving: Cancelled,
    /// Taken by a listener that acts for the whole process.
    pub(crate) turns: Arc<tokio::sync::Mutex<()>>,
}

impl fmt::Debug for ListenedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenedRun").field("run", &self.run).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl ListenedRun {
    /// The job's name.
    pub fn job_name(&self) -> &str {
        &self.run.config.name
    }

    /// Java's id of the task.
    pub fn task_id(&self) -> &str {
        &self.run.task_id
    }

    /// Into how many items the job is cut.
    pub fn sharding_total_count(&self) -> u32 {
        self.run.config.sharding_total_count
    }

    /// The parameter of the whole job.
    pub fn job_parameter(&self) -> &str {
        &self.run.config.job_parameter
    }

    /// The items of this run, each with its parameter, which is empty when it has none.
    pub fn items(&self) -> BTreeMap<u32, &str> {
        let parameter = |item: u32| self.run.config.sharding_item_parameters.get(item).unwrap_or_default();
        self.run.items.iter().map(|i| (i.item, parameter(i.item))).collect()
    }

    /// The items that failed; none before the run.
    pub fn failed(&self) -> &[u32] {
        &self.failed
    }

    /// The due time that the run stands for.
    pub fn due(&self) -> Timestamp {
        self.run.due
    }

    /// Why it runs: `schedule`, `misfire`, `failover` or `trigger`.
    pub fn source(&self) -> &'static str {
        self.run.source.word()
    }

    /// The instance on which it runs.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The configuration at the begin of the run.
    pub fn config(&self) -> &JobConfig {
        &self.run.config
    }

    /// Tells when the instance leaves.
    pub fn cancelled(&self) -> Cancelled {
        self.leaving.clone()
    }
}

/// The listeners that are always there.
pub(crate) fn built_in() -> Vec<Arc<dyn Listener>> {
    vec![Arc::new(script::Script), Arc::new(script::OnceScript::listener())]
}

/// Which of the two methods is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    After,
}

/// Calls one listener; a panic is an error.
pub(crate) async fn call(listener: &dyn Listener, moment: Moment, run: &ListenedRun) -> JobResult {
    let work = AssertUnwindSafe(async {
        match moment {
            Moment::Before => listener.before(run).await,
            Moment::After => listener.after(run).await,
        }
    });
    let result = work.catch_unwind().await.unwrap_or_else(|panic| Err(panic_text("the listener", &*panic).into()));
    let name = listener.name();
    result.map_err(|error| format!("listener `{name}`, {}: {}", moment.word(), web::chain(&*error)).into())
}

impl Moment {
    fn word(self) -> &'static str {
        match self {
            Moment::Before => "before the run",
            Moment::After => "after the run",
        }
    }
}
