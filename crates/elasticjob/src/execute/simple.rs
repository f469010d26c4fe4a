//! Jobs that are code of the user's: an async trait, a blocking trait, a closure (Java: `SimpleJob`).

use std::future::Future;
use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::lease::{SessionOver, Start};
use super::{Context, ItemExecutor, JobError, JobResult};

/// Blocking items that run at one time in this process; more wait. Threads cost memory, and tokio has 512 at the most.
const BLOCKING_MAX: usize = 256;

/// A job as an async method, called once for each item.
///
/// ```
/// use elasticjob::{Context, JobResult, SimpleJob};
///
/// struct Report;
///
/// impl SimpleJob for Report {
///     async fn execute(&self, context: Context) -> JobResult {
///         println!("item {} of {}", context.item(), context.job_name());
///         Ok(())
///     }
/// }
/// ```
pub trait SimpleJob: Send + Sync + 'static {
    /// Runs one item.
    ///
    /// # Errors
    ///
    /// Whatever makes the item count as failed; the job's error handler gets it.
    fn execute(&self, context: Context) -> impl Future<Output = JobResult> + Send;
}

/// A job as a method that may block: it runs on a thread of its own, of which there are 256 in a process at the most.
pub trait BlockingJob: Send + Sync + 'static {
    /// Runs one item.
    ///
    /// # Errors
    ///
    /// As of [`SimpleJob::execute`].
    fn execute(&self, context: Context) -> JobResult;
}

pub(crate) struct Simple<J>(pub(crate) Arc<J>);

impl<J: SimpleJob> ItemExecutor for Simple<J> {
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult> {
        let job = Arc::clone(&self.0);
        async move { job.execute(context).await }.boxed()
    }
}

pub(crate) struct Closure<F>(pub(crate) F);

impl<F, R> ItemExecutor for Closure<F>
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output = JobResult> + Send + 'static,
{
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult> {
        (self.0)(context).boxed()
    }
}

pub(crate) struct Blocking<J>(pub(crate) Arc<J>);

static BLOCKING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(BLOCKING_MAX));

impl<J: BlockingJob> ItemExecutor for Blocking<J> {
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult> {
        let job = Arc::clone(&self.0);
        async move {
            let mut cancelled = context.cancelled();
            let place = tokio::select! {
                place = BLOCKING.acquire() => place,
                () = cancelled.wait() => return Err("not executed: its turn had not come".into()),
            };
            match context.lease().wait(&cancelled).await {
                Start::Now => {}
                Start::Over => return Err(SessionOver.into()),
                Start::Leaving => return Err("not executed: its turn had not come".into()),
            }
            let work = tokio::task::spawn_blocking(move || {
                let _place = place; // kept as long as the thread is, also when nobody waits for it any more
                job.execute(context)
            });
            match work.await {
                Ok(result) => result,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => Err(JobError::from(error)),
            }
        }
        .boxed()
    }

    fn ends_when_dropped(&self) -> bool {
        false
    }
}
