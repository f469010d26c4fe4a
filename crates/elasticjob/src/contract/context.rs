//! The context of an item's run, and its cancellation.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use elasticjob_core::config::JobConfig;
use elasticjob_core::machine::{Run, RunItem, Source};
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::{ContextFields, context_json};
use tokio::sync::watch;

use super::lease::Lease;

/// The context of an item's run (Java: `ShardingContext`). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    run: Arc<Run>,
    item: u32,
    fencing_token: i64,
    instance: Arc<str>,
    cancelled: Cancelled,
    yielding: watch::Receiver<BTreeSet<u32>>,
    lease: Lease,
    log: Option<Arc<dyn RunLines>>,
}

/// Takes the lines of a run's log.
pub(crate) trait RunLines: fmt::Debug + Send + Sync {
    /// Takes a text from `source`, a word such as `stdout` or `WARN`. Each line of the text becomes one of the log. Never waits.
    fn write(&self, source: &str, text: &str);
}

impl Context {
    pub(crate) fn new(
        run: Arc<Run>,
        item: &RunItem,
        instance: Arc<str>,
        cancelled: Cancelled,
        yielding: watch::Receiver<BTreeSet<u32>>,
        lease: Lease,
    ) -> Context {
        Context {
            run,
            item: item.item,
            fencing_token: item.fencing_token,
            instance,
            cancelled,
            yielding,
            lease,
            log: None,
        }
    }

    /// Sets the log of this run.
    pub(crate) fn set_log(&mut self, log: Option<Arc<dyn RunLines>>) {
        self.log = log;
    }

    /// Returns the log of this run, if it is recorded.
    pub(crate) fn run_log(&self) -> Option<&Arc<dyn RunLines>> {
        self.log.as_ref()
    }

    /// Adds a text to the log of this run, which `elasticjob job logs` and the console show. Each line of the text becomes one of the
    /// log. The text is dropped if the log is not recorded; see [`RunLogs`](crate::trace::RunLogs). Never waits.
    pub fn log(&self, text: impl AsRef<str>) {
        if let Some(log) = &self.log {
            log.write("INFO", text.as_ref());
        }
    }

    /// Returns the lease on which the code runs.
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

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

    /// Returns the item to run, from 0.
    pub fn item(&self) -> u32 {
        self.item
    }

    /// Returns the parameter of this item, if it has one.
    pub fn parameter(&self) -> Option<&str> {
        self.run.config.sharding_item_parameters.get(self.item)
    }

    /// Returns the fencing token: it increases with every run of the item in the whole cluster. A store that remembers the
    /// highest token can reject late writes of a run that lost its session.
    pub fn fencing_token(&self) -> i64 {
        self.fencing_token
    }

    /// Returns the due time of the run. A run that was triggered is due when it starts.
    pub fn due(&self) -> Timestamp {
        self.run.due
    }

    /// Returns why the item runs.
    pub fn source(&self) -> Source {
        self.run.source
    }

    /// Returns the id of the instance that runs it.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the configuration at the start of the run, with its properties.
    pub fn config(&self) -> &JobConfig {
        &self.run.config
    }

    /// Returns the context as Java's JSON, as scripts receive it.
    pub fn json(&self) -> String {
        context_json(ContextFields {
            job_name: self.job_name(),
            task_id: self.task_id(),
            sharding_total_count: self.sharding_total_count(),
            job_parameter: self.job_parameter(),
            sharding_item: self.item,
            sharding_parameter: self.parameter(),
        })
    }

    /// Returns the signal that fires when the run should end early: the process leaves, or the time limit has passed. Code that
    /// can stop should watch it.
    pub fn cancelled(&self) -> Cancelled {
        self.cancelled.clone()
    }

    pub(crate) fn set_cancelled(&mut self, cancelled: Cancelled) {
        self.cancelled = cancelled;
    }

    /// Returns `true` if a run that continues for as long as there is work should end after its current piece. See
    /// [`DataflowJob`](crate::DataflowJob).
    pub fn should_yield(&self) -> bool {
        self.cancelled.is_cancelled() || self.yielding.borrow().contains(&self.item)
    }
}

/// A cancellation signal. See [`Context::cancelled`].
#[derive(Clone, Debug)]
pub struct Cancelled(pub(crate) watch::Receiver<bool>);

impl Cancelled {
    /// Returns `true` once cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until cancellation is requested.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
