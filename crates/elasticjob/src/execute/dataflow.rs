//! Jobs that fetch and process (Java: `DataflowJob`, `DataflowJobExecutor`; manual: "Dataflow Job").

use std::future::Future;
use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Context, ItemExecutor, JobError, JobResult};
use crate::props::Props;

/// Whether an item goes on fetching until nothing is left; `false` by default: it fetches once a run.
const STREAMING: &str = "props.streaming.process";

/// A job that fetches a piece of data and processes it.
///
/// With the property `streaming.process` set to `true` it does so again and again until nothing is fetched any more. A piece
/// that was fetched is always processed. After that the stream ends early when the items are divided anew, the job or its
/// server is disabled, the job leaves, the session is lost, or the item is due again (with `misfire`, so that the new firing
/// begins at once): what is left is there for the next run.
///
/// ```
/// use elasticjob::{Context, DataflowJob, JobError, JobResult};
///
/// struct Orders;
///
/// impl DataflowJob for Orders {
///     type Data = u64;
///
///     async fn fetch(&self, context: &Context) -> Result<Vec<u64>, JobError> {
///         Ok(vec![u64::from(context.item())])
///     }
///
///     async fn process(&self, context: &Context, orders: Vec<u64>) -> JobResult {
///         println!("item {} of {}: {orders:?}", context.item(), context.job_name());
///         Ok(())
///     }
/// }
/// ```
pub trait DataflowJob: Send + Sync + 'static {
    /// One entry of what is fetched.
    type Data: Send;

    /// Fetches a piece of work for the item of the context; an empty one ends the run.
    ///
    /// # Errors
    ///
    /// Whatever makes the item count as failed.
    fn fetch(&self, context: &Context) -> impl Future<Output = Result<Vec<Self::Data>, JobError>> + Send;

    /// Processes what was fetched.
    ///
    /// # Errors
    ///
    /// Whatever makes the item count as failed; the stream ends.
    fn process(&self, context: &Context, data: Vec<Self::Data>) -> impl Future<Output = JobResult> + Send;
}

pub(crate) struct Dataflow<J>(pub(crate) Arc<J>);

impl<J: DataflowJob> ItemExecutor for Dataflow<J> {
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult> {
        let job = Arc::clone(&self.0);
        async move {
            let streaming = Props::of(context.config()).flag(STREAMING, false);
            loop {
                let data = job.fetch(&context).await?;
                if data.is_empty() {
                    return Ok(());
                }
                job.process(&context, data).await?;
                if !streaming || context.should_yield() {
                    return Ok(());
                }
            }
        }
        .boxed()
    }

    fn streams(&self) -> bool {
        true
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut props = Props::of(config);
        props.flag(STREAMING, false);
        props.faults()
    }
}
