//! Executors for the code of a program: closures, async and blocking traits, dataflow (Java: `SimpleJobExecutor`,
//! `DataflowJobExecutor`).

use std::future::Future;
use std::sync::{Arc, LazyLock};

use elasticjob_core::config::{ConfigError, JobConfig};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::contract::lease::{SessionOver, Start};
use crate::contract::{BlockingJob, Context, DataflowJob, ItemExecutor, JobError, JobResult, Props, SimpleJob};

/// Maximum number of blocking items that run at one time in a process. Threads cost memory, and tokio has 512.
const BLOCKING_MAX: usize = 256;
/// Whether an item fetches until nothing is left; `false` by default: it fetches once a run.
pub(crate) const STREAMING: &str = "props.streaming.process";

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
                () = cancelled.wait() => return Err("not run: the job stopped on this instance before the item could start".into()),
            };
            match context.lease().wait(&cancelled).await {
                Start::Now => {}
                Start::Over => return Err(SessionOver.into()),
                Start::Leaving => return Err("not run: the job stopped on this instance before the item could start".into()),
            }
            let span = tracing::Span::current();
            let work = tokio::task::spawn_blocking(move || {
                let _place = place; // kept as long as the thread is, also when nobody waits for it any more
                span.in_scope(|| job.execute(context))
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
        props.into_faults()
    }
}
