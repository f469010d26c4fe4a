//! What an item is told about its run.

use std::collections::BTreeSet;
use std::sync::Arc;

use elasticjob_core::config::JobConfig;
use elasticjob_core::machine::{Run, RunItem};
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::{ContextFields, context_json};
use tokio::sync::watch;

use super::lease::Lease;

/// What an item is told about its run (Java: `ShardingContext`). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    run: Arc<Run>,
    item: u32,
    fencing_token: i64,
    instance: Arc<str>,
    cancelled: Cancelled,
    yielding: watch::Receiver<BTreeSet<u32>>,
    lease: Lease,
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
        Context { run, item: item.item, fencing_token: item.fencing_token, instance, cancelled, yielding, lease }
    }

    /// Whether the session of the run lives.
    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The job's name.
    pub fn job_name(&self) -> &str {
        &self.run.config.name
    }

    /// Java's id of the task: the same for all items that one instance runs together.
    pub fn task_id(&self) -> &str {
        &self.run.task_id
    }

    /// Into how many items the job is cut.
    pub fn sharding_total_count(&self) -> u32 {
        self.run.config.sharding_total_count
    }

    /// The parameter of the whole job, empty by default.
    pub fn job_parameter(&self) -> &str {
        &self.run.config.job_parameter
    }

    /// The item to run, from 0.
    pub fn item(&self) -> u32 {
        self.item
    }

    /// The parameter of this item, if it has one.
    pub fn parameter(&self) -> Option<&str> {
        self.run.config.sharding_item_parameters.get(self.item)
    }

    /// A number that is higher in each later run of this item, in the whole cluster. A store that remembers the highest one
    /// it saw can refuse what comes from a run that lost its session.
    pub fn fencing_token(&self) -> i64 {
        self.fencing_token
    }

    /// The due time that this run stands for; the moment of its begin when nobody planned it.
    pub fn due(&self) -> Timestamp {
        self.run.due
    }

    /// Why it runs: `schedule`, `misfire`, `failover` or `trigger`.
    pub fn source(&self) -> &'static str {
        self.run.source.word()
    }

    /// The instance that runs it.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The configuration at the begin of the run, with its properties.
    pub fn config(&self) -> &JobConfig {
        &self.run.config
    }

    /// The context as Java's JSON, as scripts get it.
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

    /// Tells when the run should end early, because the process leaves or the time limit is over: a job that can stop should
    /// look at it.
    pub fn cancelled(&self) -> Cancelled {
        self.cancelled.clone()
    }

    pub(super) fn set_cancelled(&mut self, cancelled: Cancelled) {
        self.cancelled = cancelled;
    }

    /// Whether a run that goes on for as long as there is work should end after its current piece; see
    /// [`DataflowJob`](crate::DataflowJob).
    pub fn should_yield(&self) -> bool {
        self.cancelled.is_cancelled() || self.yielding.borrow().contains(&self.item)
    }
}

/// See [`Context::cancelled`].
#[derive(Clone, Debug)]
pub struct Cancelled(pub(crate) watch::Receiver<bool>);

impl Cancelled {
    /// Whether it has been said.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is said; for ever when it never is.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
